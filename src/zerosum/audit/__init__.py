"""The audit: an adversary on real transcripts. A guarantee nobody attacks is a hope.

A study runs over the in-process engine with synthetic data. A recorder keeps every message the coordinator reads, and
the colluding sites hand over everything they drew or were dealt. From that the adversary builds its view of each
round: one row per thing it knows, one column per number of the release, each column an independent copy of the same
noise. It is told nothing about the scheme's mathematics. It learns how its rows vary together on half of the columns,
takes the linear discriminant for a change in the victim's contribution, which is optimal for Gaussian views, and
measures on the other half how large its noise is. Two neighbouring worlds, one unit of the victim replaced by the
worst other one that a numerical search finds, are as far apart as their contributions; that distance over that noise
is the mu reached.

The claim fails when it lies below the interval around the mu reached. The interval is Z standard errors wide on either
side, relative width Z/sqrt(2n): a sound claim fails at most once in 3.4 million checks, about once in 3.7 million at
the default size. It works for views that are Gaussian or nearly so, which all schemes here are at mu of 1 and above.

Of a publication the adversary reads every row. The victim's row is that of the unit which differs, the discriminant is
the likelihood ratio of its two possible rows, and all rows of its site together say how large their noise is. The
order in which a site publishes is secret; here it is told.

All this takes the numbers of a release, and the releases, to be independent. `echoes` attacks that: it looks for noise
that comes back in the errors of the adversary's estimates, over all numbers, rounds and studies, and in everything that
any site drew. Where the error of one estimate has correlation r with that of another one, their difference reaches
1/sqrt(1 - r) times the mu, which is infinite where noise is used twice. `shape` looks at the same streams for noise
that is too small somewhere, missing or not normal. Either is a fault even where this coalition gains nothing by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import Algorithm, Mean
from zerosum.arrays import Floats
from zerosum.audit import echoes, shape
from zerosum.audit.adversary import Attack, Draw, attack, candidates, contributed, rehearsed, worst_pair
from zerosum.audit.transcript import ColludingSite, Recorder, overhear, planned_size, view
from zerosum.coordinator.conduct import conduct
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, Release, Request
from zerosum.kernel.schemes import NoiseMechanism, Scheme
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition, dealer_mu
from zerosum.protocol.messages import Contribute, Message, Prepare, Secure
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import make_plan, pin, resolve

Z = 5.0
VICTIM = 0
MOST_STUDIES = 2000  # in one audit; that takes minutes


@dataclass(frozen=True)
class Finding:
    """What an audit came to.

    `planned` is what the sites are charged, `claimed` what this adversary may reach: more under `cape-helper`, whose
    helper is the coordinator itself, unless the helper is held apart.
    """

    scheme: str
    algorithm: str
    sites: int
    colluders: int
    dropouts: int
    planned: float
    claimed: float
    reached: float
    low: float
    high: float
    samples: int
    helper_apart: bool = False
    faults: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the claim is not below what an attacker reaches, and nothing is wrong with the noise."""
        return self.claimed >= self.low and not self.faults

    @property
    def tight(self) -> bool:
        """Whether the claim is what an attacker reaches."""
        return self.low <= self.claimed <= self.high

    @property
    def name(self) -> str:
        """Of the scheme, and of the adversary where there are two."""
        return f"{self.scheme} (helper apart)" if self.helper_apart else self.scheme

    @property
    def verdict(self) -> str:
        if self.claimed < self.low:
            return "exceeded"
        return "wrong noise" if self.faults else "tight" if self.tight else "not exceeded"


def audit(
    scheme: Scheme,
    algorithm: Algorithm | None = None,
    *,
    sites: int = 4,
    colluders: int = 1,
    dropouts: int = 0,
    mu: float = 1.5,
    units: int = 12,
    samples: int = 100_000,
    declare_units: bool = False,
    forget_colluders: bool = False,
    helper_apart: bool = False,
    site_kind: type[Site] = Site,
    on_step: Callable[[int, int], None] = lambda done, planned: None,
) -> Finding:
    """Attack a scheme running a program, until `samples` numbers of noise were seen.

    `declare_units` makes counts public in the plan, as combining means and publications need them. `forget_colluders`
    plans as if nobody colluded, one of the mistakes an audit must find. `helper_apart` takes what a trusted helper
    deals out of the coordinator's hands, as capePCA has it; here the coordinator is the helper.
    """
    if not scheme.facts.noisy:
        raise BadParameter("the non-private scheme claims nothing that could be audited")
    chosen = algorithm or Mean(columns=tuple(f"x{i}" for i in range(8000)), clip=1.0)
    coalition = Coalition(colluders, dropouts)
    coalition.honest(sites)
    delta = 1e-5
    terms = Terms(
        sites=tuple(PlannedSite(f"site {s}", units if declare_units else None) for s in range(sites)),
        epsilon=accountant.epsilon(mu, delta),
        delta=delta,
        scheme=scheme,
        coalition=Coalition(0, dropouts) if forget_colluders else coalition,
        results_to_sites=not forget_colluders,
    )
    asked = resolve(chosen, terms).requests(terms.adjacency)
    if any(isinstance(each, PrivatePublication) for each in asked):
        terms = replace(terms, sites=tuple(replace(site, units=units) for site in terms.sites))
    plan = make_plan(chosen, terms, "audit")
    if any(release.sampled is not None for release in plan.releases):
        raise BadParameter(
            "the audit attacks releases in which everybody takes part: whoever is in a secret sample, it cannot tell"
        )
    chosen = resolve(chosen, plan)
    shortest = min(numbers(release, units) for release in plan.releases)
    needed = math.ceil(samples / shortest)
    if needed > MOST_STUDIES:
        raise BadParameter(
            f"{samples} samples of a program that releases {shortest} numbers take {needed} studies, and "
            f"{MOST_STUDIES} are the most: ask for at most {MOST_STUDIES * shortest} samples, or audit a program that "
            "releases more numbers"
        )
    draw = candidates(chosen)
    one, other = worst_pair(rehearsed(chosen, draw, units), draw)
    attacks: dict[int, list[Attack]] = {}
    distances: dict[int, float] = {}
    drawn: dict[str, list[shape.Stream]] = {}
    words: list[tuple[str, NDArray[np.uint64]]] = []
    with TemporaryDirectory() as folder:
        for number in range(needed):
            world = (one, other) if number % 2 == 0 else (other, one)
            study = replace(plan, study=f"audit {number}")
            run = _Run(study, chosen, world, draw, units, Path(folder), site_kind, colluders, helper_apart)
            for round, (found, moved) in enumerate(run.attack()):
                attacks.setdefault(round, []).append(found)
                distances[round] = max(distances.get(round, 0.0), moved)
            for name, stream in run.drawn():
                drawn.setdefault(name, []).append(stream)
            words += run.words()
            on_step(number + 1, needed)
    seen = min(sum(each.seen for each in found) for found in attacks.values())
    reached, faults = _reached(plan, attacks, distances)
    streams = {name: _stacked(parts) for name, parts in drawn.items()}
    faults += tuple(echo.says for echo in echoes.search({name: s.values.ravel() for name, s in streams.items()}))
    faults += tuple(echo.says for echo in echoes.same_words(words))
    faults += shape.search(streams)
    error = Z / math.sqrt(2 * seen)
    return Finding(
        scheme.name,
        chosen.name,
        sites,
        colluders,
        dropouts,
        planned=accountant.compose(float(plan.mus(round)[VICTIM]) for round in attacks),
        claimed=accountant.compose(_claimed(plan, round, helper_apart) for round in attacks),
        reached=reached,
        low=reached * (1 - error),
        high=reached * (1 + error),
        samples=seen,
        helper_apart=helper_apart,
        faults=faults,
    )


def _claimed(plan: Plan, round: int, helper_apart: bool) -> float:
    """The mu of one release against this adversary. A coordinator that deals the cancelling noise itself takes it out
    of every message again: against it a site has its own noise, and nothing else."""
    law = plan.law(round)
    if law.mechanism is NoiseMechanism.HELPER and not helper_apart:
        return float(dealer_mu(law, plan.release(round).sensitivity, plan.coalition)[VICTIM])
    return float(plan.mus(round)[VICTIM])


def _reached(
    plan: Plan, attacks: Mapping[int, list[Attack]], distances: Mapping[int, float]
) -> tuple[float, tuple[str, ...]]:
    """The mu reached over all rounds, and what is wrong with the noise of the estimates."""
    mus, streams = [], {}
    for round, found in attacks.items():
        squares = sum(each.noise**2 * each.seen for each in found)
        if squares == 0 or not all(each.errors.size for each in found):
            return math.inf, ("what the coalition knows adds up to the victim's numbers, with no noise left",)
        noise = math.sqrt(squares / sum(each.seen for each in found))  # over all studies: one may be very short
        mus.append(distances[round] / noise)
        errors = np.stack([each.errors for each in found]) / noise
        slack = max(each.slack for each in found)
        streams[f"the estimate{_of(round, attacks)}"] = shape.Stream(
            errors, plan.law(round).step / noise, planned=False, slack=slack
        )
    seen = echoes.search({name: stream.values.ravel() for name, stream in streams.items()})
    rest = 1 - max((echo.correlation for echo in seen), default=0.0)
    reached = accountant.compose(mus) / math.sqrt(rest) if rest > 1e-9 else math.inf
    return reached, tuple(echo.says for echo in seen) + shape.search(streams)


def _stacked(parts: list[shape.Stream]) -> shape.Stream:
    """One stream of all studies, a row for each."""
    return replace(parts[0], values=np.stack([part.values for part in parts]))


def numbers(release: PlannedRelease, units: int) -> int:
    """How many numbers a site sends: of a publication a row for each of its units."""
    return release.size * (units if release.kind == "publication" else 1)


def _of(round: int, rounds: Collection[int]) -> str:
    return f" in round {round + 1}" if len(rounds) > 1 else ""


class _Run:
    """One study with a coalition of the last sites, the victim first, and losses just before the colluders."""

    def __init__(
        self,
        plan: Plan,
        algorithm: Algorithm,
        world: tuple[Floats, Floats],
        draw: Draw,
        units: int,
        folder: Path,
        site_kind: type[Site],
        colluders: int,
        helper_apart: bool,
    ) -> None:
        self._algorithm, self._world, self._helper_apart = algorithm, world, helper_apart
        rng = np.random.default_rng(len(plan.study))
        S, L = len(plan.sites), plan.coalition.dropouts
        self._colluding: list[ColludingSite] = []
        self._sites: list[Site] = []
        for s, planned in enumerate(plan.sites):
            rows = [draw(rng)[0] for _ in range(units)]
            if s == VICTIM:
                rows[0] = world[0]
            asked = tuple({release.statistic for release in plan.releases})
            policy = Policy.throwaway(planned.name, folder / f"{s} {plan.study}.sqlite", statistics=asked)
            if s >= S - colluders:
                self._colluding.append(ColludingSite(planned.name, Units.from_list(rows), policy))
                self._sites.append(self._colluding[-1])
            else:
                self._sites.append(site_kind(planned.name, Units.from_list(rows), policy))
        self._lost = {site.name for site in self._sites[S - colluders - L : S - colluders]}
        self._heard = [overhear(site) for site in self._sites]
        self._central: dict[int, Floats] = {}
        self._plan = pin(plan, self._sites)

    def drawn(self) -> Iterator[tuple[str, shape.Stream]]:
        """Everything that any site or a trusted coordinator drew over the standard deviation it should have, with a
        name for each. Noise that a site should have drawn and did not is zero."""
        rounds = range(self._plan.rounds)
        for round, steps in self._central.items():
            std = self._plan.law(round).central / self._plan.law(round).step
            yield f"the noise of the coordinator{_of(round, rounds)}", shape.Stream(steps / std, 1 / std)
        for s, heard in enumerate(self._heard):
            for round, noted in enumerate(heard):
                law = self._plan.law(round)
                none = np.zeros(numbers(self._plan.release(round), len(self._sites[s].units)))
                for name, values in {"noise": none, **noted.draws}.items():
                    if (std := planned_size(law, s, name)) > 0:
                        step = 1 / std if law.step > 0 else 0.0
                        yield f"the {name} of site {s}{_of(round, rounds)}", shape.Stream(values / std, step)

    def words(self) -> Iterator[tuple[str, NDArray[np.uint64]]]:
        """The first words of every sampler that a site drew from."""
        rounds = range(self._plan.rounds)
        for s, heard in enumerate(self._heard):
            for round, noted in enumerate(heard):
                yield f"the noise of site {s}{_of(round, rounds)}", noted.words

    def attack(self) -> Iterator[tuple[Attack, float]]:
        """For each round: what the attack came to, and how far the two worlds are apart."""
        releases: list[tuple[Request, Release]] = []
        recorder = Recorder(InProcess(self._sites, self._loses))
        conduct(self._plan, self._watched(releases), recorder)
        for round, (request, release) in enumerate(releases):
            law = self._plan.law(round)
            said = partial(contributed, request)
            present = [s for s in self._sites if s.name in release.participants and s not in self._colluding]
            orders = [self._heard[self._sites.index(s)][round].order for s in present]  # worse than secret: known
            known = zip(present, orders, strict=True)
            sums = [law.factor[self._sites.index(s)] * said(s.units, order) for s, order in known]
            seen = view(self._plan, round, recorder, self._colluding, release.value, self._helper_apart)
            centre = np.zeros_like(seen)
            if law.mechanism in (NoiseMechanism.TRUSTED, NoiseMechanism.MASKED):
                everybody = self._sites if law.mechanism is NoiseMechanism.TRUSTED else present
                totals = [law.factor[self._sites.index(s)] * said(s.units) for s in everybody]
                centre[0] = np.sum(totals, axis=0)
                if law.central > 0 and law.step > 0:
                    sent = np.sum(np.rint(np.asarray(totals) / law.step), axis=0)
                    self._central[round] = np.rint(release.value / law.step) - sent
            else:
                centre[: len(sums)] = sums
            theirs = self._heard[len(self._sites) - len(self._colluding) :]
            spare = [heard[round].own for heard in theirs if heard[round].own.size]
            rest = list(self._sites[VICTIM].units.each())[1:]  # a unit must not change what others say either
            here, there = (said(Units.from_list([unit, *rest])) for unit in self._world)
            yield attack(seen, centre, spare), float(law.factor[VICTIM] * np.linalg.norm(here - there))

    def _loses(self, site: str, message: Message) -> bool:
        return (
            site in self._lost
            and isinstance(message, Prepare | Contribute | Secure)
            and not (isinstance(message, Secure) and message.step in ("advertise", "share", "receive"))
        )

    def _watched(self, releases: list[tuple[Request, Release]]) -> Any:
        """The program, with its requests and releases written down."""
        program = self._algorithm.program(self._plan.adjacency)
        request = next(program)
        while True:
            release = yield request
            releases.append((request, release))
            try:
                request = program.send(release)
            except StopIteration as stop:
                return stop.value
