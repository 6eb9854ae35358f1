"""Descriptive statistics of columns, for all units and by group: counts, means, spread, quantiles and proportions.

Releases, each with its share of the budget:

1. means: for each group and column of numbers the count n, the sum of x and the sum of 2 x^2 - 1, with x in [-1, 1]
   (`GroupedMoments`);
2. quantiles: cumulative histograms between public edges (`GroupedRanks`, see `quantiles`);
3. proportions: for each group the counts of the categories (`GroupedCounts`).

From release 1, mean = S_x/n and variance = (S_2 + n)/(2 n) - mean^2, corrected for the noise of the mean. Intervals of
ratios are Fieller's (`intervals`). Numbers of units are made consistent over the releases in the end (`counts`): the
groups add up, and no column has more observed units than its group. With groups every part has a p value for each
column: Welch's test, Kruskal-Wallis and chi-squared, by the score tests of `hypothesis_test`. All of it is free
post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from zerosum.algorithms.counts import Counts, consistent_counts
from zerosum.algorithms.group_sums import histograms_by_group, sums_by_column
from zerosum.algorithms.groups import shown
from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.intervals import ENDS, Z, difference_interval, ratio_interval, widened, within
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.algorithms.quantiles import QuantileAlgorithm, non_negative_counts
from zerosum.algorithms.score_tests import mean_scores, rank_scores, table_test
from zerosum.arrays import Floats
from zerosum.kernel.missing import OBSERVED
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.significance import GROUP_TESTS
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import Grouped, GroupedCounts, GroupedMoments

Part = Literal["means", "quantiles", "proportions"]

# Variance of a quantile, over that of a mean, at the same share of the budget and in units of the range: for a normal
# density whose range is six standard deviations wide. The derivation is not recorded.
_QUANTILE_VARIANCE = 1.7
_EXACT = 1e-12  # variance that stands for none in inverse-variance weights; counts have at most 1e9 units


class DescribeProgram(QuantileAlgorithm):
    """A table of descriptive statistics for all units and, with `by`, for each group.

    Columns of numbers have the number of observed units, mean, standard deviation and quantiles. Columns of categories
    have proportions. With groups there are differences from the first group, and p values of the hypothesis that all
    groups are alike, with the privacy noise counted: `group_p_value`.

    Every estimate has two intervals of 95 %. The first is for the pooled data: it covers the value of the same table
    without privacy. The second is for the population of which the data are a sample.

    Parameters
    ----------
    parts : tuple of {"means", "quantiles", "proportions"}
        The releases. Parts without columns are left out.
    shares : dict, optional
        Share of the budget of each part, with the sum 1; the planner's choice if not given (`split`).
    """

    name: ClassVar[str] = "describe"
    parts: tuple[Part, ...] = ("means", "quantiles", "proportions")
    shares: dict[Part, float] | None = None

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        """Refuse parts without columns, and shares that do not add up to 1."""
        if len(set(self.parts)) < len(self.parts) or not self.wanted:
            raise ValueError(
                f"parts must be different from each other and match the columns (means and quantiles need ranges, "
                f"proportions need levels), got {', '.join(self.parts) or 'none'}"
            )
        if self.shares is not None:
            if set(self.shares) != set(self.wanted):
                raise ValueError(f"shares must be for {', '.join(self.wanted)}, got {', '.join(self.shares)}")
            if not all(each > 0 for each in self.shares.values()) or abs(sum(self.shares.values()) - 1) > 1e-9:
                raise ValueError(f"shares must be positive and add up to 1, got {self.shares}")
        return self

    @property
    def wanted(self) -> tuple[Part, ...]:
        """The parts that have columns, in the order of their releases."""
        some = {"means": self.numbers, "quantiles": self.numbers, "proportions": self.described or self.by}
        order: tuple[Part, ...] = ("means", "quantiles", "proportions")
        return tuple(part for part in order if part in self.parts and some[part])

    @property
    def split(self) -> dict[Part, float]:
        """Each part's share of the budget: as given, or the shares that minimise the sum of the parts' variances.

        Errors of means and quantiles are in units of the range, errors of proportions as they are. A quantile's error
        assumes a normal density whose range is six standard deviations wide. A part has variance v/share, and the sum
        is least for shares proportional to sqrt(v).
        """
        if self.shares is not None:
            return {part: self.shares[part] for part in self.wanted}
        numbers, tables = len(self.numbers), len(self.described) + (self.by is not None)
        # Lagrange: the sum of v/share subject to shares that add up to 1 is least for shares proportional to sqrt(v).
        variance = {"means": numbers, "quantiles": _QUANTILE_VARIANCE * numbers, "proportions": 2 * tables}
        roots = {part: math.sqrt(variance[part]) for part in self.wanted}
        return {part: root / sum(roots.values()) for part, root in roots.items()}

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the shares and, for quantiles, the number of bins."""
        settled = {"shares": self.split}
        if "quantiles" not in self.wanted:
            return self.model_copy(update=settled)
        return self.model_copy(update=settled | {"bins": self.suited_bins(facts, self.split["quantiles"])})

    @property
    def describe(self) -> str:
        """The shares of the parts, for the plan."""
        parts = ", ".join(f"{part} {100 * share:.0f} %" for part, share in self.split.items())
        return f"the budget goes to {parts}" + (f"; {self.bins} bins in a column" if "quantiles" in self.wanted else "")

    @property
    def counts(self) -> GroupedCounts:
        """The statistic of proportions: with `by`, the sizes of the groups; then the counts of each column's levels."""
        names = (*(() if self.by is None else (self.by,)), *self.described)
        levels = [1 if name == self.by else len(self.levels[name]) for name in names]
        return GroupedCounts(**self.layout, positions=self.positions(names), levels=levels)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release for each part, in the order of `wanted`."""
        statistic: dict[Part, Callable[[], Grouped]] = {
            "means": lambda: self.moments(adjacency),
            "quantiles": lambda: self.ranks,
            "proportions": lambda: self.counts,
        }
        return tuple(PrivateSum(statistic[part](), share) for part, share in self.split.items())

    def program(self, adjacency: Adjacency) -> Program:
        """The releases of the parts; each gives its own part of the table."""
        quantities: dict[str, Quantity] = {}
        tests: dict[str, float] = {}
        units: float | None = None
        for part, request in zip(self.wanted, self.requests(adjacency), strict=True):
            release = yield request
            units = release.units
            if part == "means":
                quantities |= self._means(release, self.moments(adjacency))
            elif part == "quantiles":
                quantities |= self.from_ranks(release)
            else:
                quantities |= self._proportions(release)
            if self.groups > 1:
                tests |= {f"{name}: {GROUP_TESTS[part]}": p for name, p in self._tests(part, release, adjacency)}
        quantities |= self._consistent(quantities, units)
        if tests:
            quantities["group_p_value"] = Quantity(
                np.array([*tests.values()]), "diagnostic", (Axis("test", (*tests,)),)
            )
        return quantities

    def _tests(self, part: Part, release: Release, adjacency: Adjacency) -> list[tuple[str, float]]:
        """P values of the hypothesis that all groups are alike, by column.

        Parameters
        ----------
        part : {"means", "quantiles", "proportions"}
            The part of the table.
        release : Release
            Its release.
        adjacency : Adjacency
            Decides the weights of the statistic of means.
        """
        if part == "means":
            whole = [self.is_whole(name) for name in self.numbers]
            sums = sums_by_column(release, self.moments(adjacency), whole)
            return [
                (name, mean_scores(groups, equal_variances=False).p_value("two-sided"))
                for name, groups in zip(self.numbers, sums, strict=True)
            ]
        found = []
        if part == "quantiles":
            for name, table in zip(self.numbers, self.ranks.split(release.value), strict=True):
                units = release.units if self.is_whole(name) else None
                histograms, noise = histograms_by_group(table, release.noise_std, units)
                # The sum over groups is that of all units. Ranks need counts that are not negative.
                pooled = non_negative_counts(np.sum(table, axis=0), units)
                found.append((name, rank_scores(histograms, noise, pooled).p_value("two-sided")))
            return found
        # The first table has the sizes of the groups.
        for name, table in zip(self.described, self.counts.split(release.value)[1:], strict=True):
            units = release.units if self.is_whole(name) else None
            found.append((name, table_test(table, release.noise_std, units).p_value))
        return found

    def _consistent(self, quantities: Estimate, units: float | None) -> Estimate:
        """The sizes of groups and the numbers of observed units, made consistent with each other (`counts`).

        Parameters
        ----------
        quantities : mapping of str to Quantity
            The estimate with the counts of each release.
        units : float, optional
            The public number of units.
        """
        # The groups alone: "all" is their sum. Without `by` the only group is all units.
        first = 0 if self.by is None else 1
        names = [name for name in ("observed", "proportion_observed") if name in quantities]
        if not names:
            return {}
        columns = {
            "observed": self.numbers,
            # One column for each level; those of one column hold the same count.
            "proportion_observed": tuple(name for name in self.described for _ in self.levels[name]),
        }
        last = {name: [columns[name].index(each) for each in dict.fromkeys(columns[name])] for name in names}
        every = [(name, at) for name in names for at in last[name]]
        counts = np.stack([quantities[name].value[first:, at] for name, at in every], axis=1)
        variance = np.stack([np.asarray(quantities[name].std)[first:, at] ** 2 for name, at in every], axis=1)
        complete = np.array([self.rules.get(columns[name][at]) != OBSERVED for name, at in every])
        sizes = quantities["units"].value[first:] if "units" in quantities else None
        spread = np.asarray(quantities["units"].std)[first:] ** 2 if "units" in quantities else np.ones(len(counts))
        closed = self.rules.get(self.by or "") != OBSERVED
        # A count without noise is exact and public.
        found_counts = consistent_counts(
            sizes, np.maximum(spread, _EXACT), counts, np.maximum(variance, _EXACT), complete, units, closed=closed
        )
        return self._replaced(quantities, found_counts, every, complete, columns)

    def _replaced(
        self,
        quantities: Estimate,
        counts: Counts,
        every: list[tuple[str, int]],
        complete: Floats,
        columns: dict[str, tuple[str, ...]],
    ) -> Estimate:
        """The quantities of counts with consistent values.

        Standard deviations are those without the inequalities, which do not increase the error of a table as a whole.

        Parameters
        ----------
        quantities : mapping of str to Quantity
            The estimate.
        counts : Counts
            The consistent counts.
        every : list of tuple
            Quantity and position of each column of `counts`.
        complete : array of shape (columns,)
            Whether every unit of a group counts in a column.
        columns : dict
            Names of the columns of each quantity.
        """

        def with_all(by_group: Floats, total: float) -> Floats:
            return by_group if self.by is None else np.append(total, by_group)

        spread = np.sqrt(with_all(counts.size_variance, counts.total_variance))
        if self.by is None:
            spread = np.sqrt(np.array([counts.total_variance]))
        sizes = with_all(counts.sizes, counts.total)
        changed = {}
        if "units" in quantities:
            least = np.minimum(spread, np.asarray(quantities["units"].std))
            changed["units"] = Quantity(sizes, "count", quantities["units"].axes, least)
        for k, (name, at) in enumerate(every):
            quantity = changed.get(name, quantities[name])
            value, std = quantity.value.copy(), np.array(quantity.std)
            own = [j for j, column in enumerate(columns[name]) if column == columns[name][at]]
            whole = sizes if complete[k] else with_all(counts.counts[:, k], float(np.sum(counts.counts[:, k])))
            value[:, own] = whole[:, None]
            if complete[k]:
                std[:, own] = np.minimum(spread[:, None], std[:, own])
            changed[name] = Quantity(value, quantity.kind, quantity.axes, std)
        return changed

    def _means(self, release: Release, statistic: GroupedMoments) -> Estimate:
        """Means and standard deviations from noisy counts, sums of x and sums of 2 x^2 - 1, for x in [-1, 1].

        Arrays are (groups, columns); with `by`, row 0 is for all units.

        Parameters
        ----------
        release : Release
            A release of `moments`.
        statistic : GroupedMoments
            The statistic of the release, which knows its layout and weights.
        """
        # Each number by group, then for all units: (groups or groups + 1, columns).
        counts, sums, squares = self.with_all(statistic.split(release.value), axis=1)
        noise = statistic.noise(release.noise_std) ** 2
        variances = noise[:, None, None] * np.broadcast_to(self.noise_factors[:, None], counts.shape)
        count_var = self._share_counts(counts, variances[0], release.units)
        # a noisy count may be near 0 or negative; intervals below use the count itself and become the whole range
        divisor = np.maximum(counts, 1.0)
        raw = sums / divisor
        mean = np.clip(raw, -1, 1)
        # Delta method: S_x/n has error (e_x - mean e_n)/n, and the errors of both sums are independent.
        mean_var = (variances[1] + mean**2 * count_var) / divisor**2
        ends = ratio_interval(sums, counts, variances[1], np.zeros_like(sums), count_var, -np.inf, np.inf)
        square = (squares + counts) / (2 * divisor)
        # The square of the noisy mean is too large by its variance, which is added back. x in [-1, 1] has a variance of
        # at most 1.
        variance = np.clip(square - mean**2 + mean_var, 0, 1)
        # delta method again: derivatives of (S_2 + n)/(2 n) - (S_x/n)^2, times n, in S_2 (1/2), S_x and n
        by_count = 0.5 - (square - 2 * mean**2)
        variance_std = np.sqrt(variances[2] / 4 + 4 * mean**2 * variances[1] + by_count**2 * count_var) / divisor
        spread = np.clip(np.stack([variance - Z * variance_std, variance + Z * variance_std], axis=-1), 0, 1)
        # The sample variance divides by n - 1; with a noisy count of at most 2 that would be no divisor.
        one_less = np.where(divisor > 2, divisor - 1, divisor)
        sampled = variance * divisor / one_less
        scale = np.sqrt(np.divide(sampled, variance, out=np.ones_like(variance), where=variance > 0))
        population = widened(raw, ends, sampled / divisor)
        middle, half = (statistic.lower + statistic.upper) / 2, (statistic.upper - statistic.lower) / 2
        axis = columns_axis(self.numbers)
        axes = (self.group_axis, axis)
        quantities = {
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
            quantities |= {
                "difference": _differences(mean * half, apart, quantities["mean"].std),
                "difference_interval": _difference_ends(raw, ends, mean, 2, apart, half),
                "difference_population_interval": _difference_ends(raw, population, mean, 2, apart, half),
            }
        return quantities

    def _share_counts(self, counts: Floats, variance: Floats, units: float | None) -> Floats:
        """Improve the counts of columns without missing values in place, and return the variance of every count.

        In these columns the true counts of a group are equal, so their noisy counts are averaged. The count of all
        units is replaced by the public number where there is one.

        Parameters
        ----------
        counts : array of shape (groups, columns)
            Noisy counts, changed in place; with `by`, row 0 is for all units.
        variance : array of shape (groups, columns)
            Variances of their noise.
        units : float, optional
            The public number of units.
        """
        # The mean of k independent noisy counts has 1/k of the variance. A public number has none.
        variance = variance.copy()
        always = np.array([self.is_whole(name) for name in self.numbers])
        if np.any(always):
            counts[:, always] = np.mean(counts[:, always], axis=1, keepdims=True)
            variance[:, always] /= np.sum(always)
            if units is not None:
                counts[0, always], variance[0, always] = units, 0.0
        return variance

    def _proportions(self, release: Release) -> Estimate:
        """Proportions of each category among the observed units of its column, and the sizes of the groups.

        Arrays are (groups, levels of all columns); with `by`, row 0 is for all units.

        Parameters
        ----------
        release : Release
            A release of `counts`.
        """
        tables = [self.with_all(table) for table in self.counts.split(release.value)]
        noise = release.noise_std**2 * self.noise_factors
        quantities: dict[str, Quantity] = {}
        if self.by is not None:
            sizes, std = tables.pop(0)[:, 0], np.sqrt(noise)
            if self.is_whole(self.by) and release.units is not None:
                sizes[0], std[0] = release.units, 0.0
            quantities["units"] = Quantity(sizes, "count", (self.group_axis,), std)
        if not self.described:
            return quantities
        parts = [
            self._of_column(name, table, noise, release.units)
            for name, table in zip(self.described, tables, strict=True)
        ]
        joined = [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]
        share, raw, ends, population, std, observed, observed_std = joined
        labels = tuple(f"{name} = {shown(level)}" for name in self.described for level in self.levels[name])
        axis = Axis("level", labels)
        axes = (self.group_axis, axis)
        quantities |= {
            "proportion": Quantity(share, "share", axes, std),
            "proportion_interval": _ends(within(ends, raw, np.clip(raw, 0, 1), 0, 1), axes),
            "proportion_population_interval": _ends(within(population, raw, np.clip(raw, 0, 1), 0, 1), axes),
            "proportion_observed": Quantity(observed, "count", axes, observed_std),
        }
        if self.groups > 1:
            apart = (self.difference_axis, axis)
            quantities |= {
                "proportion_difference": _differences(share, apart, std),
                "proportion_difference_interval": _difference_ends(raw, ends, share, 1, apart),
                "proportion_difference_population_interval": _difference_ends(raw, population, share, 1, apart),
            }
        return quantities

    def _of_column(self, name: str, table: Floats, noise: Floats, units: float | None) -> tuple[Floats, ...]:
        """Proportions of one column: estimate, ratio, two intervals, standard deviation, observed units with theirs.

        Parameters
        ----------
        name : str
            The column.
        table : array of shape (groups, levels)
            Noisy counts; with `by`, row 0 is for all units.
        noise : array of shape (groups,)
            Variance of an entry in each row.
        units : float, optional
            The public number of all units.

        Returns
        -------
        parts : tuple of arrays
            Each (groups, levels); intervals (groups, levels, 2).
        """
        levels = table.shape[1]
        counts, total = table.copy(), np.sum(table, axis=1)
        own, cross, whole = noise.copy(), noise.copy(), levels * noise
        if self.is_whole(name) and units is not None:
            # The total is public: its noise is subtracted in equal parts, which is the conditional mean of equal normal
            # errors. A count keeps 1 - 1/levels of its variance.
            counts[0] -= (total[0] - units) / levels
            total[0], own[0], cross[0], whole[0] = units, noise[0] * (1 - 1 / levels), 0.0, 0.0
        shape = table.shape
        wide = [np.broadcast_to(each[:, None], shape) for each in (total, own, cross, whole)]
        # A count is part of its total: their noise has the variance of the count as covariance.
        ends = ratio_interval(counts, wide[0], wide[1], wide[2], wide[3], -np.inf, np.inf)
        # The estimate is the nearest probability vector, within its intervals.
        near = np.stack([nearest_probabilities(row) for row in counts])
        share = np.clip(near, np.clip(ends[..., 0], 0, 1), np.clip(ends[..., 1], 0, 1))
        divisor = np.maximum(wide[0], 1.0)
        variance = np.maximum(wide[1] - 2 * share * wide[2] + share**2 * wide[3], 0.0) / divisor**2
        raw = counts / divisor
        population = widened(raw, ends, share * (1 - share) / divisor)
        return share, raw, ends, population, np.sqrt(variance), wide[0], np.sqrt(wide[3])


def _ends(ends: Floats, axes: tuple[Axis, ...]) -> Quantity:
    """Intervals as a quantity, with one more axis for the ends.

    Parameters
    ----------
    ends : array of shape (..., 2)
        Lower and upper ends.
    axes : tuple of Axis
        Axes of all but the last dimension.
    """
    return Quantity(ends, "number", (*axes, ENDS))


def _differences(value: Floats, axes: tuple[Axis, ...], std: Floats | float | None) -> Quantity:
    """Each group minus the first one. Row 0 is for all units, so groups begin at row 1.

    Parameters
    ----------
    value, std : array of shape (groups + 1, columns)
        Estimates, and the standard deviation that privacy adds.
    axes : tuple of Axis
        Differences, and columns or levels.
    """
    # groups have disjoint blocks of the release: their noise is independent
    spread = np.asarray(std)
    return Quantity(value[2:] - value[1], "number", axes, np.hypot(spread[2:], spread[1]))


def _difference_ends(
    raw: Floats, ends: Floats, value: Floats, most: float, axes: tuple[Axis, ...], unit: Floats | float = 1.0
) -> Quantity:
    """Intervals of the differences of groups from the first one.

    Parameters
    ----------
    raw, ends : arrays
        Estimate and interval of each group before they are clipped to possible values.
    value : array
        The clipped estimates; an interval contains their difference.
    most : float
        Largest possible difference, in multiples of `unit`.
    """
    apart = difference_interval(raw[2:], ends[2:], raw[1], ends[1])
    held = within(apart, raw[2:] - raw[1], value[2:] - value[1], -most, most)
    return _ends(held * np.broadcast_to(unit, raw.shape[1:])[:, None], axes)
