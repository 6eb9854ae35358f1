"""Simulation of a study without sites: runs the program with the noise of its plan, for benchmarks and forecasts.

Releases have the distribution of a real run, up to floating-point arithmetic. Nothing is protected and no ledger is
charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zerosum.algorithms import Algorithm, Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import NoiseChoice, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan, resolve

# Largest number of elements of a sum that is cached between runs on the same data. Chosen by hand; no benchmark
# recorded.
_CACHED_SIZE = 25_000


class PlanSimulation:
    """Simulation of an algorithm under a given plan.

    Parameters
    ----------
    algorithm : Algorithm
        The program.
    plan : Plan
        Its plan, which gives the noise of each round.
    fewer : float
        Ratio of planned units to simulated units. The noise of sums is divided by it. Means of sums then have the same
        signal-to-noise ratio as with all units.

    Attributes
    ----------
    noise : list of float
        Standard deviation of the noise of each round, in units of the released sum.
    weights : array of shape (n_sites,)
        Factor applied to the sum of each site.
    """

    def __init__(self, algorithm: Algorithm, plan: Plan, fewer: float = 1.0) -> None:
        self.algorithm, self.plan = resolve(algorithm, plan), plan
        # A publication has the noise of one site, a sum that of all sites together.
        laws = [plan.law(round) for round in range(plan.rounds)]
        kinds = [plan.release(round).kind for round in range(plan.rounds)]
        self.noise = [
            float(np.max(law.own / law.factor)) if kind == "publication" else law.noise_std / fewer
            for law, kind in zip(laws, kinds, strict=True)
        ]
        # Shares of Laplace noise in each sum, 0 for normal noise (`NoiseLaw.shares`).
        self.shares = [law.shares if law.decay > 0 else 0.0 for law in laws]
        self.weights = laws[0].weight * laws[0].factor

    def run(self, data: Units | Sequence[Units], seed: int) -> Estimate:
        """Estimate with seeded noise. `data` are the units of all sites together, or a list with one entry per site."""
        return self.run_with_requests(data, seed)[0]

    def runs(self, data: Units | Sequence[Units], seeds: Iterable[int]) -> list[Estimate]:
        """Estimates of several runs on the same data, one per seed. Sums that are equal in all runs are computed
        once."""
        known: dict[str, Floats] = {}
        return [self._drive(data, rng, rng, known)[0] for rng in map(np.random.default_rng, seeds)]

    def run_with_requests(self, data: Units | Sequence[Units], seed: int) -> tuple[Estimate, list[Request]]:
        """The estimate and the list of requests made."""
        estimate, exchanges = self.run_with_releases(data, seed)
        return estimate, [request for request, _release in exchanges]

    def run_with_releases(
        self, data: Units | Sequence[Units], seed: int
    ) -> tuple[Estimate, list[tuple[Request, Release]]]:
        """The estimate and all pairs of request and release."""
        rng = np.random.default_rng(seed)
        return self._drive(data, rng, rng)

    def run_without_noise(self, data: Units | Sequence[Units]) -> Estimate:
        """Estimate with all noise set to 0. The program still assumes the planned noise, so its stated errors apply to
        these data."""
        return self._drive(data, np.random.default_rng(0), None)[0]

    def _drive(
        self,
        data: Units | Sequence[Units],
        rng: np.random.Generator,
        loud: np.random.Generator | None,
        known: dict[str, Floats] | None = None,
    ) -> tuple[Estimate, list[tuple[Request, Release]]]:
        """Drive the program and answer its requests from the data.

        Parameters
        ----------
        data : Units or sequence of Units
            Data of all sites together, or by site.
        rng : Generator
            Draws the samples of subsampled rounds.
        loud : Generator or None
            Draws the noise; None for no noise.
        known : dict or None
            Cache from the digest of a request to its exact sum, shared by several runs.
        """
        parts, weights = ([data], np.ones(1)) if isinstance(data, Units) else (list(data), self.weights)
        # With weights the release is a weighted sum, and so is the number of units that means divide by.
        units: float = float(np.sum(weights * [len(part) for part in parts]))
        # Under replace-one the number of units is public and is part of a release. Under add-remove it is private.
        counted = self.plan.adjacency is Adjacency.REPLACE_ONE
        noise = iter(zip(self.noise, self.shares, strict=True))
        exchanges: list[tuple[Request, Release]] = []

        def record_exchange(request: Request) -> Release:
            exchanges.append((request, answer(request)))
            return exchanges[-1][1]

        def add_noise(value: Floats, std: float, shares: float = 0.0) -> Floats:
            if loud is None:
                return value
            drawn = std * loud.normal(size=value.shape)
            if shares > 0:  # a variance gamma variable: normal, of a variance that is a gamma variable
                drawn *= np.sqrt(loud.gamma(shares, 1 / shares, size=value.shape))
            return np.asarray(value + drawn)

        def answer(request: Request) -> Release:
            if isinstance(request, PrivatePublication):
                rows, (std, _) = np.vstack([request.statistic.rows(part) for part in parts]), next(noise)
                names = tuple(site.name for site in self.plan.sites) if len(parts) > 1 else ("a",)
                return Release(add_noise(rows, std), std, len(rows), names, tuple(map(len, parts)))
            sampling = request.sampling
            rate = 1.0 if sampling is None else sampling.rate
            # Poisson subsampling: each unit is included independently with probability `rate`.
            samples = parts if rate == 1 else [part.chosen(rng.random(len(part)) < rate) for part in parts]
            total, (std, shares) = exact_sum(request, samples, remember=rate == 1), next(noise)
            return Release(add_noise(total, std, shares), std, rate * units if counted else None, ("a", "b"))

        def exact_sum(request: PrivateSum, samples: Sequence[Units], *, remember: bool) -> Floats:
            # A subsampled sum differs between runs and must not be cached.
            asked = request.digest() if known is not None and remember else ""
            if known is not None and asked in known:
                return known[asked]
            totals = [w * request.statistic.total(part) for w, part in zip(weights, samples, strict=True)]
            total = np.asarray(sum(totals[1:], totals[0]))
            if known is not None and asked and total.size <= _CACHED_SIZE:
                known[asked] = total
            return total

        return drive(self.algorithm.program(self.plan.adjacency), record_exchange)[0], exchanges


class Rehearsal(PlanSimulation):
    """Simulation of an algorithm with a default plan for sites of equal size.

    Parameters
    ----------
    algorithm : Algorithm
        The program.
    units, sites : int
        Units in all, and sites.
    epsilon, delta : float
        Budget of the study.
    colluders : int
        Colluding sites.
    scheme : str
        Noise scheme.
    noise : {"auto", "gaussian", "laplace"}, default="gaussian"
        Law of the noise, chosen as for a run.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        units: int,
        sites: int,
        epsilon: float,
        delta: float,
        colluders: int = 1,
        scheme: str = DEFAULT_SCHEME,
        noise: NoiseChoice = "gaussian",
    ) -> None:
        # Rounded cumulative sizes: the sizes differ by at most 1 and sum to `units`.
        each = np.diff(np.linspace(0, units, sites + 1).astype(int))
        terms = Terms(
            sites=tuple(PlannedSite(f"s{i}", int(n)) for i, n in enumerate(each)),
            epsilon=epsilon,
            delta=delta,
            scheme=Scheme(scheme),
            coalition=Coalition(colluders),
        )
        self.units, self.sites, self.epsilon, self.delta = units, sites, epsilon, delta
        super().__init__(algorithm, make_plan(resolve(algorithm, terms), terms, "rehearsal", noise=noise))
