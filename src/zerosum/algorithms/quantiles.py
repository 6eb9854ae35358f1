"""Quantiles of columns, by group, from one release of cumulative histograms.

Model
-----
For a column with histogram h (n bins) the release is R h plus independent normal noise (`GroupedRanks`). R is the
square root of the summation matrix L (lower triangular, all ones) with its columns scaled to norm 1 (`summation_root`).
Cumulative counts are L R^-1 (R h). Their noise grows with log n, and not with the root of n as for sums of noisy bins.

A quantile is read off a non-decreasing fit of the cumulative counts. Its interval comes from the unfitted counts, whose
covariance is known: it covers all bins that a test of level 2.5 % on each side does not exclude. All of this is free
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.intervals import ENDS, Z
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import MOST_BINS, GroupedRanks, summation_root

# Bins where the noise is not known, and the least and most that the planner chooses. Chosen by hand; no benchmark
# recorded.
USUAL_BINS, FEWEST_BINS, MANY_BINS = 128, 32, 1024
# Most bins for non-negative least squares, whose time grows with the cube. It reduces errors by 5 to 10 % (measured by
# hand; no benchmark recorded).
FITTED_BINS = 256
# Typical noise of a cumulative count, over that of an entry of R h. The mean norm of a row of L R^-1 is 1.9 for 32
# bins, 2.3 for 128 and 3.0 for 1024.
_RANK_NOISE = 2.2
# Units of a bin, over the noise of a cumulative count, for units spread evenly: narrower bins would not make quantiles
# more accurate. Chosen by hand; no benchmark recorded.
_BIN_UNITS = 0.5
# Weight of the equation for the public total in least squares, beside 1 for the others: practically a constraint.
_TOTAL_WEIGHT = 1e3


def check_whole(whole: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `ValueError` unless every column of whole numbers has a range that holds two of them.

    Parameters
    ----------
    whole : sequence of str
        Columns of whole numbers.
    ranges : mapping of str to tuple
        Public lowest and highest value of columns of numbers.
    """
    for name in whole:
        if name not in ranges:
            raise ValueError(f"whole names {name!r}, which has no range: declare its range")
        low, high = ranges[name]
        if math.ceil(low) >= math.floor(high):
            raise ValueError(f"the range of column {name!r} must hold two whole numbers, got {low:g} to {high:g}")


def bin_edges(low: float, high: float, bins: int, *, whole: bool) -> Floats:
    """Edges of the bins of a column, at most `bins` in number; shape (bins + 1,).

    Parameters
    ----------
    low, high : float
        The range of the column.
    bins : int
        The number of bins. A column of fewer whole numbers has one bin for each.
    whole : bool
        Whether the column holds whole numbers: edges then lie between them.

    >>> bin_edges(0, 3, 8, whole=True).tolist()
    [-0.5, 0.5, 1.5, 2.5, 3.5]
    """
    if not whole:
        return np.asarray(np.linspace(low, high, bins + 1))
    # Edges at halves, so that no whole number lies on an edge; one bin per number if there are few.
    first, last = math.ceil(low), math.floor(high)
    if last - first + 1 <= bins:
        return np.asarray(np.arange(first, last + 2) - 0.5)
    return np.asarray(np.unique(np.round(np.linspace(float(first), float(last + 1), bins + 1))) - 0.5)


class BinnedAlgorithm(GroupedAlgorithm):
    """Base class of algorithms with histograms of columns of numbers by group, in coordinates of cumulative counts.

    Parameters
    ----------
    bins : int, optional
        Number of bins n of each histogram; the planner chooses it from the noise if it is not given.
    whole : tuple of str
        Columns of whole numbers: the edges of their bins lie between whole numbers.
    """

    bins: int | None = Field(default=None, ge=2, le=MOST_BINS)
    whole: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _whole_fits(self) -> Self:
        """Refuse whole columns without two whole numbers."""
        check_whole(self.whole, self.ranges)
        return self

    def edges(self, name: str) -> Floats:
        """Edges of the bins of a column, (n + 1,). A column of few whole numbers has fewer bins than `bins`.

        Parameters
        ----------
        name : str
            A column of numbers.
        """
        return bin_edges(*self.ranges[name], self.bins or USUAL_BINS, whole=name in self.whole)

    @property
    def ranks(self) -> GroupedRanks:
        """The statistic of the release: histograms of all columns and groups, in the coordinates R h."""
        edges = tuple(self.edges(name) for name in self.numbers)
        return GroupedRanks(**self.layout, positions=self.positions(self.numbers), edges=edges)

    def suited_bins(self, facts: PublicFacts, share: float) -> int:
        """Number of bins at which a bin holds half of the noise of a cumulative count, for units spread evenly.

        More bins would not make quantiles more accurate. The result is a power of two.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        share : float
            Share of the budget of the release.
        """
        if facts.units is None or facts.noise == 0:
            return self.bins or USUAL_BINS
        # noise of a cumulative count: sensitivity sqrt(2 columns), and the rows of L R^-1
        rank = _RANK_NOISE * facts.noise * math.sqrt(2 * len(self.numbers) / share)
        wanted = facts.units / _BIN_UNITS / self.groups / rank
        return self.bins or int(2 ** round(math.log2(min(max(wanted, FEWEST_BINS), MANY_BINS))))


class QuantileAlgorithm(BinnedAlgorithm):
    """Base class of algorithms with quantiles: their probabilities. Quantiles of whole columns are whole.

    Parameters
    ----------
    probabilities : tuple of float
        Rising, each between 0 and 1.
    """

    probabilities: tuple[float, ...] = (0.25, 0.5, 0.75)

    @model_validator(mode="after")
    def _quantiles_fit(self) -> Self:
        """Refuse probabilities that do not rise within (0, 1)."""
        rising = all(a < b for a, b in zip(self.probabilities, self.probabilities[1:], strict=False))
        if not self.probabilities or not all(0 < each < 1 for each in self.probabilities) or not rising:
            raise ValueError(f"probabilities must rise and lie between 0 and 1, got {list(self.probabilities)}")
        return self

    def from_ranks(self, release: Release) -> Estimate:
        """Quantiles with both intervals from the release of `ranks`. Free post-processing.

        Parameters
        ----------
        release : Release
            A release of `ranks`, for one column after another and, within a column, one group after another.
        """
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
                    # fit and interval are different functions of the release: the estimate stays in its interval
                    value[g, j, q] = np.clip(curve.quantile(probability), *pooled[g, j, q])
        labels = tuple(f"{100 * each:g} %" for each in self.probabilities)
        axes = (self.group_axis, columns_axis(self.numbers), Axis("quantile", labels))
        return {
            "quantile": Quantity(value, "number", axes, (pooled[..., 1] - pooled[..., 0]) / (2 * Z)),
            "quantile_interval": Quantity(pooled, "number", (*axes, ENDS)),
            "quantile_population_interval": Quantity(population, "number", (*axes, ENDS)),
        }


class QuantilesProgram(QuantileAlgorithm):
    """Quantiles of columns of numbers with intervals, for all units and, with `by`, for each group.

    One release holds the histograms of all columns between public edges, in coordinates in which cumulative counts have
    little noise. `quantile_interval` is for the pooled data, `quantile_population_interval` for the population of which
    they are a sample.
    """

    name: ClassVar[str] = "quantiles"

    @model_validator(mode="after")
    def _some_numbers(self) -> Self:
        """Refuse columns of categories other than the column of groups."""
        if not self.numbers or self.described:
            raise ValueError(
                "quantiles need columns with ranges, and no levels but those of the column `by`"
                + (f": leave out {', '.join(self.described)}" if self.described else ": declare ranges")
            )
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the number of bins."""
        return self.model_copy(update={"bins": self.suited_bins(facts, 1.0)})

    @property
    def describe(self) -> str:
        """The number of bins, for the plan."""
        return f"{self.bins} bins in a column"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        return (PrivateSum(self.ranks),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release, then the quantiles of every column and group."""
        release = yield self.requests(adjacency)[0]
        return self.from_ranks(release)


@dataclass(frozen=True, eq=False)
class Curve:
    """Noisy cumulative counts at the n + 1 edges of bins, the first one 0, with the covariance of their noise."""

    edges: Floats  # (n + 1,)
    cumulative: Floats  # (n + 1,), unbiased
    covariance: Floats  # (n + 1, n + 1)
    rising: Floats  # (n + 1,), non-decreasing fit of the cumulative counts
    whole: bool  # the column holds whole numbers

    @classmethod
    def of(cls, noisy: Floats, std: float, edges: Floats, units: float | None, whole: bool) -> Curve:
        """The curve of one column and group.

        Parameters
        ----------
        noisy : array of shape (n,)
            Released R h.
        std : float
            Standard deviation of the noise of an entry.
        edges : array of shape (n + 1,)
            Edges of the bins.
        units : float, optional
            The public sum of h.
        whole : bool
            Whether the column holds whole numbers.
        """
        to_cumulative, covariance = summation_of(len(noisy))
        cumulative = to_cumulative @ noisy
        if units is not None:
            # Condition the normal noise on the known total: the regression of all entries on the last one, whose noise
            # is then known exactly. The covariance loses the explained part.
            pull = covariance[:, -1] / covariance[-1, -1]
            cumulative = cumulative - pull * (cumulative[-1] - units)
            covariance = covariance - np.outer(pull, covariance[-1])
        rising = _cumulative_fit(noisy, units) if len(noisy) <= FITTED_BINS else _rising(cumulative)
        padded = np.zeros((len(edges), len(edges)))
        padded[1:, 1:] = std**2 * covariance
        return cls(edges, np.append(0.0, cumulative), padded, np.append(0.0, rising), whole)

    def quantile(self, probability: float) -> float:
        """Where the non-decreasing fit reaches this share of its total, interpolated linearly within a bin."""
        # The total is that of the fit, noisy or public: a quantile is a share of the same curve.
        target = probability * self.rising[-1]
        at = int(np.clip(np.searchsorted(self.rising, target), 1, len(self.edges) - 1))
        low, high = self.edges[at - 1], self.edges[at]
        rise = self.rising[at] - self.rising[at - 1]
        value = low + (high - low) * ((target - self.rising[at - 1]) / rise if rise > 0 else 0.5)
        return float(np.clip(np.rint(value), low + 0.5, high - 0.5) if self.whole else value)

    def interval(self, probability: float, *, sampled: bool = False) -> tuple[float, float]:
        """From the first to the last bin that may hold the quantile.

        A bin may hold it unless the count up to its right edge is significantly below this share of all units, or the
        count up to its left edge significantly above. Each test errs with probability 2.5 %, so the interval contains
        the bin of the true quantile with probability 95 %. With `sampled`, the binomial variance is added.

        Parameters
        ----------
        probability : float
            p of the quantile.
        sampled : bool
            Whether the interval is for the population and not for the pooled data.
        """
        # gap_b = C_b - p C_n has variance S_bb - 2 p S_bn + p^2 S_nn for the covariance S of the cumulative counts.
        gap = self.cumulative - probability * self.cumulative[-1]
        end = self.covariance[-1]
        variance = np.diag(self.covariance) - 2 * probability * end + probability**2 * end[-1]
        if sampled:
            variance = variance + probability * (1 - probability) * max(self.cumulative[-1], 1.0)
        reach = Z * np.sqrt(np.maximum(variance, 0.0))
        # Rounding errors, for releases without noise: a gap of exactly 0 is not significant.
        slack = 1e-9 * max(abs(float(self.cumulative[-1])), 1.0)
        low = np.flatnonzero(gap[1:] >= -reach[1:] - slack)
        high = np.flatnonzero(gap[:-1] < reach[:-1] - slack)
        first = int(low[0]) if low.size else 0
        last = int(high[-1]) if high.size else len(self.edges) - 2
        # the tests exclude all bins only with hardly any units: the whole range is then the interval
        if first > last:
            first, last = 0, len(self.edges) - 2
        inside = 0.5 if self.whole else 0.0
        return float(self.edges[first] + inside), float(self.edges[last + 1] - inside)


@cache
def summation_of(bins: int) -> tuple[Floats, Floats]:
    """The matrix that maps R h to cumulative counts, and the covariance of its result for noise of variance 1.

    Both are (bins, bins). They depend on the number of bins alone, so they are computed once.
    """
    to_cumulative = np.tril(np.ones((bins, bins))) @ np.linalg.inv(summation_root(bins))
    return to_cumulative, to_cumulative @ to_cumulative.T


def _rising(cumulative: Floats) -> Floats:
    """A non-decreasing curve: the mean of the running maximum and of the minimum of all later values, at least 0."""
    highest = np.maximum.accumulate(np.maximum(cumulative, 0.0))
    lowest = np.minimum.accumulate(np.maximum(cumulative, 0.0)[::-1])[::-1]
    return np.asarray((highest + lowest) / 2)


def _cumulative_fit(noisy: Floats, units: float | None) -> Floats:
    """Cumulative counts (n,) of the histogram that `_least_squares_counts` gives; they never fall."""
    return np.asarray(np.cumsum(_least_squares_counts(noisy, units)))


def non_negative_counts(noisy: Floats, units: float | None) -> Floats:
    """A non-negative histogram from a release, with the total scaled to the public one.

    Parameters
    ----------
    noisy : array of shape (n,)
        Released R h.
    units : float, optional
        The public sum of h.

    Returns
    -------
    counts : array of shape (n,)
    """
    if len(noisy) <= FITTED_BINS:
        return _least_squares_counts(noisy, units)
    to_cumulative, _ = summation_of(len(noisy))
    counts = np.diff(np.append(0.0, _rising(to_cumulative @ noisy)))
    total = float(np.sum(counts))
    return counts * (units / total) if units is not None and total > 0 else counts


def _least_squares_counts(noisy: Floats, units: float | None) -> Floats:
    """The counts whose cumulative sum is `_cumulative_fit`, with its arguments; shape (n,)."""
    from scipy.optimize import nnls  # heavy: loaded when it is used

    root, scale = np.asarray(summation_root(len(noisy))), max(float(np.max(np.abs(noisy))), 1.0)
    if units is not None:
        # one more equation with a large weight: the counts add up to the public total
        total = np.full(root.shape[1], _TOTAL_WEIGHT)
        root, noisy = np.vstack([root, total]), np.append(noisy, _TOTAL_WEIGHT * units)
    # Noise of equal variance in every entry of R h: least squares is the largest likelihood. Scaled, so that the
    # tolerance of the solver is relative.
    counts, _ = nnls(root, noisy / scale, maxiter=20 * len(noisy))
    return np.asarray(counts * scale)
