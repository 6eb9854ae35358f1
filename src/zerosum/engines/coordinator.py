"""The coordinator: drives a program, one planned release after another, over any engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from zerosum.engines.mixing import Mixer
from zerosum.engines.seam import Engine
from zerosum.errors import Abandoned, OutsidePlan, Refused
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import (
    Consent,
    Contribute,
    Contribution,
    Lost,
    Message,
    Prepare,
    Prepared,
    PrivateSum,
    Propose,
    Refusal,
    Release,
    Reply,
)
from zerosum.kernel.statistic import Adjacency
from zerosum.site.sampler import Sampler, derive

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What a study came to: the program's result, and who took part in each round."""

    result: T
    plan: Plan
    participants: tuple[tuple[str, ...], ...]


def conduct(
    plan: Plan,
    requests: Iterable[PrivateSum],
    program: Generator[PrivateSum, Release, T],
    engine: Engine,
    on_round: Callable[[int, int], None] = lambda done, planned: None,
) -> Outcome[T]:
    """Propose the plan to every site, then answer the program's requests until it returns."""
    coordinator = _Coordinator(plan, engine)
    coordinator.propose(tuple(requests))
    rounds: list[tuple[str, ...]] = []
    try:
        request = next(program)
        while True:
            release = coordinator.release(len(rounds), request)
            rounds.append(release.participants)
            on_round(len(rounds), len(plan.releases))
            request = program.send(release)
    except StopIteration as stop:
        return Outcome(stop.value, plan, tuple(rounds))
    finally:
        program.close()


class _Coordinator:
    def __init__(self, plan: Plan, engine: Engine) -> None:
        self._plan, self._engine = plan, engine
        self._index = {site.name: s for s, site in enumerate(plan.sites)}
        self._units: dict[str, int] = {}

    def propose(self, requests: tuple[PrivateSum, ...]) -> None:
        """Every site must agree before any contributes; one refusal ends the study, with nothing released."""
        message = Propose(self._plan, requests)
        lost = []
        for reply in self._exchange(dict.fromkeys(self._index, message)):
            if isinstance(reply, Consent) and reply.units is not None:
                self._units[reply.site] = reply.units
            if isinstance(reply, Lost):
                lost.append(reply.site)
        if lost:
            raise Abandoned(f"no answer from {_names(lost)}; the study did not start and nothing was released")

    def release(self, round: int, request: PrivateSum) -> Release:
        """One planned release: gather what must be prepared, then the contributions, and add them up."""
        plan = self._plan
        if round >= len(plan.releases):
            raise OutsidePlan(f"the program asks for release {round + 1}, the plan has {len(plan.releases)}")
        planned = plan.releases[round]
        if request.statistic != planned.statistic or request.share != planned.share:
            raise OutsidePlan(
                f"release {round + 1} was planned as {planned.statistic!r} with share {planned.share:g}, "
                f"the program asks for {request.statistic!r} with share {request.share:g}"
            )
        mixer = Mixer(plan.law(round), planned.size, self._sampler(round))
        present = list(self._index)
        if mixer.prepares:
            prepared = []
            for reply in self._exchange({name: Prepare(round, 0) for name in present}):
                if isinstance(reply, Prepared):
                    mixer.collect(self._index[reply.site], reply.payload)
                    prepared.append(reply.site)
            self._enough(round, len(present) - len(prepared))
            present = sorted(prepared, key=self._index.__getitem__)
        messages = {name: Contribute(round, 0, request, mixer.deal(self._index[name])) for name in present}
        arrived = []
        for reply in self._exchange(messages):
            if isinstance(reply, Contribution):
                mixer.add(self._index[reply.site], reply.vector)
                arrived.append(reply.site)
        if mixer.needs_everyone and len(arrived) < len(present):
            missing = [name for name in present if name not in arrived]
            raise Abandoned(
                f"round {round + 1} was abandoned: {_names(missing)} was lost after the noise had been fixed, and its "
                "share of it would stay in the sum; what was spent stays spent"
            )
        self._enough(round, len(self._index) - len(arrived))
        names = tuple(sorted(arrived, key=self._index.__getitem__))
        value, noise_std = mixer.finish([self._index[name] for name in names])
        return Release(value, noise_std, self._effective_units(names), names)

    def _effective_units(self, names: tuple[str, ...]) -> float | None:
        if self._plan.adjacency is Adjacency.ADD_REMOVE:
            return None
        return self._plan.effective_units(names, self._units)

    def _enough(self, round: int, lost: int) -> None:
        if lost > self._plan.coalition.dropouts:
            raise Abandoned(
                f"round {round + 1} was abandoned: {lost} of {len(self._index)} sites were lost, the plan tolerates "
                f"{self._plan.coalition.dropouts}; what was spent stays spent"
            )

    def _exchange(self, messages: Mapping[str, Message]) -> Iterable[Reply]:
        for reply in self._engine.exchange(messages):
            if isinstance(reply, Refusal):
                kind = type(reply.error) if isinstance(reply.error, Refused | ValueError) else Refused
                raise kind(f"site {reply.site!r}: {reply.error}")
            yield reply

    def _sampler(self, round: int) -> Sampler:
        if self._plan.seed is None:
            return Sampler.system()
        return Sampler.seeded(derive(str(self._plan.seed).encode(), f"coordinator {round}".encode()))


def _names(sites: Iterable[str]) -> str:
    return ", ".join(repr(site) for site in sites)
