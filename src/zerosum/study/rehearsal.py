"""A study without sites: its program, with the noise that its plan gives it. As fast as its statistics, for benchmarks.

What is released has the law of a real run's, up to finite arithmetic; nothing is protected and nothing is spent.

Tested in tests/study/test_rehearsal.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zerosum.algorithms import Algorithm, Estimate
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, Release, Request
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan, resolve


@dataclass
class Rehearsal:
    """An algorithm as planned for so many units at so many equal sites; `run` it on any data of that size."""

    algorithm: Algorithm
    units: int
    sites: int
    epsilon: float
    delta: float
    colluders: int = 1
    scheme: str = DEFAULT_SCHEME
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        each = np.diff(np.linspace(0, self.units, self.sites + 1).astype(int))
        terms = Terms(
            sites=tuple(PlannedSite(f"s{i}", int(n)) for i, n in enumerate(each)),
            epsilon=self.epsilon,
            delta=self.delta,
            scheme=Scheme(self.scheme),
            coalition=Coalition(self.colluders),
        )
        self.algorithm = resolve(self.algorithm, terms)
        self.plan = make_plan(self.algorithm, terms, "rehearsal")
        laws = [self.plan.law(round) for round in range(self.plan.rounds)]
        kinds = [self.plan.release(round).kind for round in range(self.plan.rounds)]
        self.noise = [
            float(np.max(law.own / law.factor)) if kind == "publication" else law.noise_std
            for law, kind in zip(laws, kinds, strict=True)
        ]

    def run(self, data: Units, seed: int) -> Estimate:
        """The estimate, with noise from a seed."""
        return self.asked(data, seed)[0]

    def asked(self, data: Units, seed: int) -> tuple[Estimate, list[Request]]:
        """The estimate, and what was asked for on the way."""
        estimate, heard = self.heard(data, seed)
        return estimate, [request for request, _release in heard]

    def heard(self, data: Units, seed: int) -> tuple[Estimate, list[tuple[Request, Release]]]:
        """The estimate, and everything that the coordinator heard on the way."""
        rng, noise = np.random.default_rng(seed), iter(self.noise)
        heard: list[tuple[Request, Release]] = []

        def listening(request: Request) -> Release:
            heard.append((request, answer(request)))
            return heard[-1][1]

        def answer(request: Request) -> Release:
            if isinstance(request, PrivatePublication):
                rows, std = request.statistic.rows(data), next(noise)
                return Release(rows + std * rng.normal(size=rows.shape), std, self.units, ("a",), (len(rows),))
            sampling = request.sampling
            rate = 1.0 if sampling is None else sampling.rate
            sample = data if rate == 1 else data.chosen(rng.random(len(data)) < rate)
            total, std = request.statistic.total(sample), next(noise)
            return Release(total + std * rng.normal(size=total.shape), std, rate * self.units, ("a", "b"))

        return drive(self.algorithm.program(Adjacency.REPLACE_ONE), listening)[0], heard
