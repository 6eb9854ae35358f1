"""Quantiles of columns, by group, from one release of cumulative histograms.

Tested in tests/algorithms/test_describe.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.intervals import Z
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import MOST_BINS, GroupedRanks, summation_root

USUAL_BINS, FEWEST_BINS, MANY_BINS = 128, 32, 1024
FITTED_BINS = 256  # up to which least squares without negative counts is worth its time: errors are 5 to 10 % less
ENDS = Axis("end", ("lower", "upper"))


class QuantileAlgorithm(GroupedAlgorithm):
    """What algorithms share that find quantiles: which ones, and between how many edges.

    `bins` is chosen by the noise, if it is not given. Columns named in `whole` hold whole numbers: their bins lie
    around whole numbers, and so do their quantiles.
    """

    probabilities: tuple[float, ...] = (0.25, 0.5, 0.75)
    bins: int | None = Field(default=None, ge=2, le=MOST_BINS)
    whole: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _quantiles_fit(self) -> Self:
        rising = all(a < b for a, b in zip(self.probabilities, self.probabilities[1:], strict=False))
        if not self.probabilities or not all(0 < each < 1 for each in self.probabilities) or not rising:
            raise ValueError("probabilities must rise, between 0 and 1")
        for name in self.whole:
            if name not in self.ranges:
                raise ValueError(f"{name!r} is to hold whole numbers, and has no range")
            low, high = self.ranges[name]
            if math.ceil(low) >= math.floor(high):
                raise ValueError(f"the range of column {name!r} does not hold two whole numbers")
        return self

    def edges(self, name: str) -> Floats:
        """Between which a column's values are counted."""
        bins, (low, high) = self.bins or USUAL_BINS, self.ranges[name]
        if name not in self.whole:
            return np.asarray(np.linspace(low, high, bins + 1))
        first, last = math.ceil(low), math.floor(high)
        if last - first + 1 <= bins:
            return np.asarray(np.arange(first, last + 2) - 0.5)
        return np.asarray(np.unique(np.round(np.linspace(float(first), float(last + 1), bins + 1))) - 0.5)

    @property
    def ranks(self) -> GroupedRanks:
        edges = tuple(self.edges(name) for name in self.numbers)
        return GroupedRanks(**self.layout, positions=self.positions(self.numbers), edges=edges)

    def suited_bins(self, facts: PublicFacts, share: float) -> int:
        """So many that one holds half of the noise of a rank, if people were spread evenly over the range."""
        if facts.units is None or facts.noise == 0:
            return self.bins or USUAL_BINS
        rank = 2.2 * facts.noise * math.sqrt(2 * len(self.numbers) / share)  # of a cumulative count
        wanted = 2 * facts.units / self.groups / rank
        return self.bins or int(2 ** round(math.log2(min(max(wanted, FEWEST_BINS), MANY_BINS))))

    def from_ranks(self, release: Release) -> Estimate:
        """Quantiles with both intervals: free once the release is there."""
        tables, factors = self.ranks.split(release.value), self.noise_factors
        shape = (len(factors), len(self.numbers), len(self.probabilities))
        value, pooled, population = np.zeros(shape), np.zeros((*shape, 2)), np.zeros((*shape, 2))
        for j, name in enumerate(self.numbers):
            public = release.units if self.is_whole(name) else None
            for g, noisy in enumerate(self.with_all(tables[j])):
                std = release.noise_std * math.sqrt(factors[g])
                curve = Curve.of(noisy, std, self.edges(name), public if g == 0 else None, name in self.whole)
                for q, probability in enumerate(self.probabilities):
                    pooled[g, j, q] = curve.interval(probability)
                    population[g, j, q] = curve.interval(probability, sampled=True)
                    value[g, j, q] = np.clip(curve.quantile(probability), *pooled[g, j, q])
        labels = tuple(f"{100 * each:g} %" for each in self.probabilities)
        axes = (self.group_axis, columns_axis(self.numbers), Axis("quantile", labels))
        return {
            "quantile": Quantity(value, "number", axes, (pooled[..., 1] - pooled[..., 0]) / (2 * Z)),
            "quantile_interval": Quantity(pooled, "number", (*axes, ENDS)),
            "quantile_population_interval": Quantity(population, "number", (*axes, ENDS)),
        }


class QuantilesProgram(QuantileAlgorithm):
    """Quantiles of columns of numbers, for everybody and, with `by`, for each group, with intervals.

    All come from one release: histograms between public edges, released so that their cumulative sums carry little
    noise. `quantile_interval` is for the pooled data, `quantile_population_interval` for the people they are a sample
    of.
    """

    name: ClassVar[str] = "quantiles"

    @model_validator(mode="after")
    def _some_numbers(self) -> Self:
        if not self.numbers or self.described:
            raise ValueError("quantiles are of columns with ranges; the only levels are those of the groups")
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        return self.model_copy(update={"bins": self.suited_bins(facts, 1.0)})

    @property
    def describe(self) -> str:
        return f"{self.bins} bins in a column"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(self.ranks),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        return self.from_ranks(release)


@dataclass(frozen=True, eq=False)
class Curve:
    """A noisy cumulative count at the edges of bins, the first one 0, with the covariance of its noise."""

    edges: Floats
    cumulative: Floats
    covariance: Floats
    rising: Floats  # cumulative too, but never falling
    whole: bool

    @classmethod
    def of(cls, noisy: Floats, std: float, edges: Floats, units: float | None, whole: bool) -> Curve:
        """From R h with noise of this standard deviation; `units` is what h adds up to, where that is public."""
        to_cumulative, covariance = _summation(len(noisy))
        cumulative = to_cumulative @ noisy
        if units is not None:  # what is known of the sum is known of the parts
            pull = covariance[:, -1] / covariance[-1, -1]
            cumulative = cumulative - pull * (cumulative[-1] - units)
            covariance = covariance - np.outer(pull, covariance[-1])
        rising = _fitted(noisy, units) if len(noisy) <= FITTED_BINS else _rising(cumulative)
        padded = np.zeros((len(edges), len(edges)))
        padded[1:, 1:] = std**2 * covariance
        return cls(edges, np.append(0.0, cumulative), padded, np.append(0.0, rising), whole)

    def quantile(self, probability: float) -> float:
        """Where the rising curve reaches this share of its end, even within bins."""
        target = probability * self.rising[-1]
        at = int(np.clip(np.searchsorted(self.rising, target), 1, len(self.edges) - 1))
        low, high = self.edges[at - 1], self.edges[at]
        rise = self.rising[at] - self.rising[at - 1]
        found = low + (high - low) * ((target - self.rising[at - 1]) / rise if rise > 0 else 0.5)
        return float(np.clip(np.rint(found), low + 0.5, high - 0.5) if self.whole else found)

    def interval(self, probability: float, *, sampled: bool = False) -> tuple[float, float]:
        """From the first to the last bin that may hold the quantile.

        A bin may if the count up to its right edge is not clearly less, and that up to its left edge not clearly more,
        than this share of everybody. Each comparison errs in one of 40 cases, so the true bin is among these in 95 %.
        """
        gap = self.cumulative - probability * self.cumulative[-1]
        end = self.covariance[-1]
        variance = np.diag(self.covariance) - 2 * probability * end + probability**2 * end[-1]
        if sampled:
            variance = variance + probability * (1 - probability) * max(self.cumulative[-1], 1.0)
        reach = Z * np.sqrt(np.maximum(variance, 0.0))
        slack = 1e-9 * max(abs(float(self.cumulative[-1])), 1.0)  # of rounding, where there is no noise
        low = np.flatnonzero(gap[1:] >= -reach[1:] - slack)
        high = np.flatnonzero(gap[:-1] < reach[:-1] - slack)
        first = int(low[0]) if low.size else 0
        last = int(high[-1]) if high.size else len(self.edges) - 2
        if first > last:  # only where there is next to nobody
            first, last = 0, len(self.edges) - 2
        inside = 0.5 if self.whole else 0.0
        return float(self.edges[first] + inside), float(self.edges[last + 1] - inside)


@cache
def _summation(bins: int) -> tuple[Floats, Floats]:
    """The matrix that makes cumulative counts of R h, and the covariance of what unit noise becomes."""
    to_cumulative = np.tril(np.ones((bins, bins))) @ np.linalg.inv(summation_root(bins))
    return to_cumulative, to_cumulative @ to_cumulative.T


def _rising(cumulative: Floats) -> Floats:
    """Half-way between the highest before and the lowest after, and not below 0."""
    highest = np.maximum.accumulate(np.maximum(cumulative, 0.0))
    lowest = np.minimum.accumulate(np.maximum(cumulative, 0.0)[::-1])[::-1]
    return np.asarray((highest + lowest) / 2)


def _fitted(noisy: Floats, units: float | None) -> Floats:
    """The cumulative counts of the histogram without negative entries that is nearest, in the metric of the noise."""
    from scipy.optimize import nnls  # heavy: loaded when it is used

    root, scale = np.asarray(summation_root(len(noisy))), max(float(np.max(np.abs(noisy))), 1.0)
    if units is not None:  # as if it had been counted with next to no noise
        root, noisy = np.vstack([root, np.full(root.shape[1], 1e3)]), np.append(noisy, 1e3 * units)
    counts, _ = nnls(root, noisy / scale, maxiter=20 * len(noisy))
    return np.asarray(np.cumsum(counts) * scale)
