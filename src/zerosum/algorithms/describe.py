"""A table that describes columns, for everybody and by group: counts, means, spread, quantiles and proportions.

Tested in tests/algorithms/test_describe.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from zerosum.algorithms.groups import shown
from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.intervals import Z, difference_interval, ratio_interval, widened, within
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.algorithms.quantiles import ENDS, QuantileAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import FREE_SECOND, Grouped, GroupedCounts, GroupedMoments

Part = Literal["means", "quantiles", "proportions"]


class DescribeProgram(QuantileAlgorithm):
    """For columns of numbers how many units are observed, mean, standard deviation and quantiles; for columns of
    categories proportions; for everybody and, with `by`, for each group, with differences from the first group.

    Every estimate has two intervals of 95 %: for the pooled data, what the same table without privacy would say, and
    for the population they are a sample of. There are up to three releases: moments, cumulative histograms, and counts
    of categories. `parts` says which are wanted, `shares` how the budget is split between them.
    """

    name: ClassVar[str] = "describe"
    parts: tuple[Part, ...] = ("means", "quantiles", "proportions")
    shares: dict[Part, float] | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if len(set(self.parts)) < len(self.parts) or not self.wanted:
            raise ValueError("name different parts, and columns that they can describe")
        if self.shares is not None:
            if set(self.shares) != set(self.wanted):
                raise ValueError(f"shares must have a number for each of {', '.join(self.wanted)}")
            if not all(each > 0 for each in self.shares.values()) or abs(sum(self.shares.values()) - 1) > 1e-9:
                raise ValueError("shares must be positive and add up to 1")
        return self

    @property
    def wanted(self) -> tuple[Part, ...]:
        """The parts that there are columns for, in the order in which they are released."""
        some = {"means": self.numbers, "quantiles": self.numbers, "proportions": self.described or self.by}
        order: tuple[Part, ...] = ("means", "quantiles", "proportions")
        return tuple(part for part in order if part in self.parts and some[part])

    @property
    def split(self) -> dict[Part, float]:
        """Each part's share of the budget: as given, or such that the sum of the parts' variances is least.

        A mean's error is counted in ranges, a quantile's too (where people lie as densely as a normal distribution
        whose range is six standard deviations wide), a proportion's as it is. With variances v/share, shares in
        proportion to the root of v are best.
        """
        if self.shares is not None:
            return {part: self.shares[part] for part in self.wanted}
        numbers, tables = len(self.numbers), len(self.described) + (self.by is not None)
        variance = {"means": numbers, "quantiles": 1.7 * numbers, "proportions": 2 * tables}
        roots = {part: math.sqrt(variance[part]) for part in self.wanted}
        return {part: root / sum(roots.values()) for part, root in roots.items()}

    def resolve(self, facts: PublicFacts) -> Self:
        settled = {"shares": self.split}
        if "quantiles" not in self.wanted:
            return self.model_copy(update=settled)
        return self.model_copy(update=settled | {"bins": self.suited_bins(facts, self.split["quantiles"])})

    @property
    def describe(self) -> str:
        said = ", ".join(f"{part} {100 * share:.0f} %" for part, share in self.split.items())
        return f"the budget goes to {said}" + (f"; {self.bins} bins in a column" if "quantiles" in self.wanted else "")

    def moments(self, adjacency: Adjacency) -> GroupedMoments:
        """With the largest weights of counts and squares that cost nothing where units are replaced."""
        second, count = math.sqrt(0.5), math.sqrt(0.5)
        if self.groups == 1 and adjacency is Adjacency.REPLACE_ONE:
            second, count = FREE_SECOND, math.sqrt(3 - FREE_SECOND**2)
        low, high = np.array([self.ranges[name] for name in self.numbers]).T
        return GroupedMoments(
            **self.layout,
            positions=self.positions(self.numbers),
            lower=low,
            upper=high,
            count_weight=count,
            second_weight=second,
        )

    @property
    def counts(self) -> GroupedCounts:
        """Of the categories of every column and, with groups, first of the groups."""
        names = (*(() if self.by is None else (self.by,)), *self.described)
        levels = [1 if name == self.by else len(self.levels[name]) for name in names]
        return GroupedCounts(**self.layout, positions=self.positions(names), levels=levels)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        statistic: dict[Part, Callable[[], Grouped]] = {
            "means": lambda: self.moments(adjacency),
            "quantiles": lambda: self.ranks,
            "proportions": lambda: self.counts,
        }
        return tuple(PrivateSum(statistic[part](), share) for part, share in self.split.items())

    def program(self, adjacency: Adjacency) -> Program:
        found: dict[str, Quantity] = {}
        for part, request in zip(self.wanted, self.requests(adjacency), strict=True):
            release = yield request
            if part == "means":
                found |= self._means(release, self.moments(adjacency))
            elif part == "quantiles":
                found |= self.from_ranks(release)
            else:
                found |= self._proportions(release)
        return found

    def _means(self, release: Release, statistic: GroupedMoments) -> Estimate:
        """Means and standard deviations from counts, sums of x and sums of 2 x^2 - 1, all of them noisy."""
        counts, sums, squares = self.with_all(statistic.split(release.value), axis=1)
        noise = statistic.noise(release.noise_std) ** 2
        variances = noise[:, None, None] * np.broadcast_to(self.noise_factors[:, None], counts.shape)
        count_var = self._share_counts(counts, variances[0], release.units)
        divisor = np.maximum(counts, 1.0)
        raw = sums / divisor
        mean = np.clip(raw, -1, 1)
        mean_var = (variances[1] + mean**2 * count_var) / divisor**2
        ends = ratio_interval(sums, counts, variances[1], np.zeros_like(sums), count_var, -np.inf, np.inf)
        square = (squares + counts) / (2 * divisor)
        variance = np.clip(square - mean**2 + mean_var, 0, 1)  # the noisy mean's square is too large by its variance
        by_count = 0.5 - (square - 2 * mean**2)
        variance_std = np.sqrt(variances[2] / 4 + 4 * mean**2 * variances[1] + by_count**2 * count_var) / divisor
        spread = np.clip(np.stack([variance - Z * variance_std, variance + Z * variance_std], axis=-1), 0, 1)
        one_less = np.where(divisor > 2, divisor - 1, divisor)
        sampled = variance * divisor / one_less  # as if divided by n - 1
        scale = np.sqrt(np.divide(sampled, variance, out=np.ones_like(variance), where=variance > 0))
        population = widened(raw, ends, sampled / divisor)
        middle, half = (statistic.lower + statistic.upper) / 2, (statistic.upper - statistic.lower) / 2
        axis = columns_axis(self.numbers)
        axes = (self.group_axis, axis)
        found = {
            "observed": Quantity(counts, "count", axes, np.sqrt(count_var)),
            "mean": Quantity(middle + half * mean, "mean", axes, half * np.sqrt(mean_var)),
            "mean_interval": _ends(middle[:, None] + half[:, None] * within(ends, raw, mean, -1, 1), axes),
            "mean_population_std": Quantity(half * np.sqrt(mean_var + sampled / divisor), "diagnostic", axes),
            "mean_population_interval": _ends(
                middle[:, None] + half[:, None] * within(population, raw, mean, -1, 1), axes
            ),
            "sd": Quantity(half * np.sqrt(sampled), "scale", axes),
            "sd_interval": _ends((half * scale)[..., None] * np.sqrt(spread), axes),
        }
        if self.groups > 1:
            apart = (self.difference_axis, axis)
            found |= {
                "difference": _differences(mean * half, apart, found["mean"].std),
                "difference_interval": _difference_ends(raw, ends, mean, 2, apart, half),
                "difference_population_interval": _difference_ends(raw, population, mean, 2, apart, half),
            }
        return found

    def _share_counts(self, counts: Floats, variance: Floats, units: float | None) -> Floats:
        """In columns where nothing is missing, a count is what these columns say together, or public; in place.

        Returns the variance of every count.
        """
        variance = variance.copy()
        always = np.array([self.is_whole(name) for name in self.numbers])
        if np.any(always):
            counts[:, always] = np.mean(counts[:, always], axis=1, keepdims=True)
            variance[:, always] /= np.sum(always)
            if units is not None:
                counts[0, always], variance[0, always] = units, 0.0
        return variance

    def _proportions(self, release: Release) -> Estimate:
        """Of each category among those observed in its column; and how many units are in each group."""
        tables = [self.with_all(table) for table in self.counts.split(release.value)]
        noise = release.noise_std**2 * self.noise_factors
        found: dict[str, Quantity] = {}
        if self.by is not None:
            sizes, std = tables.pop(0)[:, 0], np.sqrt(noise)
            if self.is_whole(self.by) and release.units is not None:
                sizes[0], std[0] = release.units, 0.0
            found["units"] = Quantity(sizes, "count", (self.group_axis,), std)
        if not self.described:
            return found
        parts = [
            self._of_column(name, table, noise, release.units)
            for name, table in zip(self.described, tables, strict=True)
        ]
        joined = [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]
        share, raw, ends, population, std, observed = joined
        labels = tuple(f"{name} = {shown(level)}" for name in self.described for level in self.levels[name])
        axis = Axis("level", labels)
        axes = (self.group_axis, axis)
        found |= {
            "proportion": Quantity(share, "share", axes, std),
            "proportion_interval": _ends(within(ends, raw, np.clip(raw, 0, 1), 0, 1), axes),
            "proportion_population_interval": _ends(within(population, raw, np.clip(raw, 0, 1), 0, 1), axes),
            "proportion_observed": Quantity(observed, "count", axes),
        }
        if self.groups > 1:
            apart = (self.difference_axis, axis)
            found |= {
                "proportion_difference": _differences(share, apart, std),
                "proportion_difference_interval": _difference_ends(raw, ends, share, 1, apart),
                "proportion_difference_population_interval": _difference_ends(raw, population, share, 1, apart),
            }
        return found

    def _of_column(self, name: str, table: Floats, noise: Floats, units: float | None) -> tuple[Floats, ...]:
        levels = table.shape[1]
        counts, total = table.copy(), np.sum(table, axis=1)
        own, cross, whole = noise.copy(), noise.copy(), levels * noise
        if self.is_whole(name) and units is not None:  # the sum is public: what it is off by is the noise of all parts
            counts[0] -= (total[0] - units) / levels
            total[0], own[0], cross[0], whole[0] = units, noise[0] * (1 - 1 / levels), 0.0, 0.0
        shape = table.shape
        wide = [np.broadcast_to(each[:, None], shape) for each in (total, own, cross, whole)]
        ends = ratio_interval(counts, wide[0], wide[1], wide[2], wide[3], -np.inf, np.inf)
        near = np.stack([nearest_probabilities(row) for row in counts])
        share = np.clip(near, np.clip(ends[..., 0], 0, 1), np.clip(ends[..., 1], 0, 1))
        divisor = np.maximum(wide[0], 1.0)
        variance = np.maximum(wide[1] - 2 * share * wide[2] + share**2 * wide[3], 0.0) / divisor**2
        raw = counts / divisor
        population = widened(raw, ends, share * (1 - share) / divisor)
        return share, raw, ends, population, np.sqrt(variance), wide[0]


def _ends(ends: Floats, axes: tuple[Axis, ...]) -> Quantity:
    return Quantity(ends, "number", (*axes, ENDS))


def _differences(value: Floats, axes: tuple[Axis, ...], std: Floats | float | None) -> Quantity:
    """Every group less the first one; everybody stands before the groups."""
    spread = np.asarray(std)
    return Quantity(value[2:] - value[1], "number", axes, np.hypot(spread[2:], spread[1]))


def _difference_ends(
    raw: Floats, ends: Floats, value: Floats, most: float, axes: tuple[Axis, ...], unit: Floats | float = 1.0
) -> Quantity:
    """From what each group's estimate and interval are before they are brought to what is possible: to hold the
    difference of the estimates, and no more than `most` of the unit."""
    apart = difference_interval(raw[2:], ends[2:], raw[1], ends[1])
    held = within(apart, raw[2:] - raw[1], value[2:] - value[1], -most, most)
    return _ends(held * np.broadcast_to(unit, raw.shape[1:])[:, None], axes)
