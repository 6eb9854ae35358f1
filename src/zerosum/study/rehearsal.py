"""A study without sites: its program, with the noise that its plan gives it. As fast as its statistics, for benchmarks
and forecasts.

What is released has the law of a real run's, up to finite arithmetic; nothing is protected and nothing is spent.

Tested in tests/study/test_rehearsal.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zerosum.algorithms import Algorithm, Estimate
from zerosum.arrays import Floats
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan, resolve

_REMEMBERED = 25_000  # numbers of a sum, at most, that several runs on the same data share


class Rehearsed:
    """An algorithm as a plan has it, with the plan's noise; `run` it on any data of that size.

    `fewer` of the people stand for all: as many times fewer as their noise is then smaller, so that means, and whatever
    follows from means and their known noise, have the law they would have with everybody.
    """

    def __init__(self, algorithm: Algorithm, plan: Plan, fewer: float = 1.0) -> None:
        self.algorithm, self.plan = resolve(algorithm, plan), plan
        laws = [plan.law(round) for round in range(plan.rounds)]
        kinds = [plan.release(round).kind for round in range(plan.rounds)]
        self.noise = [
            float(np.max(law.own / law.factor)) if kind == "publication" else law.noise_std / fewer
            for law, kind in zip(laws, kinds, strict=True)
        ]
        self.weights = laws[0].weight * laws[0].factor

    def run(self, data: Units | Sequence[Units], seed: int) -> Estimate:
        """The estimate, with noise from a seed. Data are those of all sites, or a list with each site's."""
        return self.asked(data, seed)[0]

    def runs(self, data: Units | Sequence[Units], seeds: Iterable[int]) -> list[Estimate]:
        """Several runs on the same data; what they ask alike is computed once."""
        known: dict[str, Floats] = {}
        return [self._driven(data, rng, rng, known)[0] for rng in map(np.random.default_rng, seeds)]

    def asked(self, data: Units | Sequence[Units], seed: int) -> tuple[Estimate, list[Request]]:
        """The estimate, and what was asked for on the way."""
        estimate, heard = self.heard(data, seed)
        return estimate, [request for request, _release in heard]

    def heard(self, data: Units | Sequence[Units], seed: int) -> tuple[Estimate, list[tuple[Request, Release]]]:
        """The estimate, and everything that the coordinator heard on the way."""
        rng = np.random.default_rng(seed)
        return self._driven(data, rng, rng)

    def quietly(self, data: Units | Sequence[Units]) -> Estimate:
        """What a run says if all its noise happens to be 0: what it says of its own noise is then about these data."""
        return self._driven(data, np.random.default_rng(0), None)[0]

    def _driven(
        self,
        data: Units | Sequence[Units],
        rng: np.random.Generator,
        loud: np.random.Generator | None,
        known: dict[str, Floats] | None = None,
    ) -> tuple[Estimate, list[tuple[Request, Release]]]:
        parts, weights = ([data], np.ones(1)) if isinstance(data, Units) else (list(data), self.weights)
        units: float = float(np.sum(weights * [len(part) for part in parts]))
        counted = self.plan.adjacency is Adjacency.REPLACE_ONE
        noise = iter(self.noise)
        heard: list[tuple[Request, Release]] = []

        def listening(request: Request) -> Release:
            heard.append((request, answer(request)))
            return heard[-1][1]

        def noisy(value: Floats, std: float) -> Floats:
            return value if loud is None else np.asarray(value + std * loud.normal(size=value.shape))

        def answer(request: Request) -> Release:
            if isinstance(request, PrivatePublication):
                rows, std = np.vstack([request.statistic.rows(part) for part in parts]), next(noise)
                names = tuple(site.name for site in self.plan.sites) if len(parts) > 1 else ("a",)
                return Release(noisy(rows, std), std, len(rows), names, tuple(map(len, parts)))
            sampling = request.sampling
            rate = 1.0 if sampling is None else sampling.rate
            samples = parts if rate == 1 else [part.chosen(rng.random(len(part)) < rate) for part in parts]
            total, std = summed(request, samples, remember=rate == 1), next(noise)
            return Release(noisy(total, std), std, rate * units if counted else None, ("a", "b"))

        def summed(request: PrivateSum, samples: Sequence[Units], *, remember: bool) -> Floats:
            asked = request.digest() if known is not None and remember else ""
            if known is not None and asked in known:
                return known[asked]
            totals = [w * request.statistic.total(part) for w, part in zip(weights, samples, strict=True)]
            total = np.asarray(sum(totals[1:], totals[0]))
            if known is not None and asked and total.size <= _REMEMBERED:
                known[asked] = total
            return total

        return drive(self.algorithm.program(self.plan.adjacency), listening)[0], heard


class Rehearsal(Rehearsed):
    """An algorithm as planned for so many units at so many equal sites."""

    def __init__(
        self,
        algorithm: Algorithm,
        units: int,
        sites: int,
        epsilon: float,
        delta: float,
        colluders: int = 1,
        scheme: str = DEFAULT_SCHEME,
    ) -> None:
        each = np.diff(np.linspace(0, units, sites + 1).astype(int))
        terms = Terms(
            sites=tuple(PlannedSite(f"s{i}", int(n)) for i, n in enumerate(each)),
            epsilon=epsilon,
            delta=delta,
            scheme=Scheme(scheme),
            coalition=Coalition(colluders),
        )
        self.units, self.sites, self.epsilon, self.delta = units, sites, epsilon, delta
        super().__init__(algorithm, make_plan(resolve(algorithm, terms), terms, "rehearsal"))
