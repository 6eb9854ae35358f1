"""Tests of hypotheses about columns, with the privacy noise counted in every p value.

One release holds what a test needs, for all columns:

- Student, Welch, ANOVA, equivalence: numbers of units, sums and sums of squares by group (`GroupedMoments`);
- Mann-Whitney, Kruskal-Wallis, Wilcoxon: histograms by group between public edges (`GroupedRanks`);
- chi-squared: counts of categories by group (`GroupedCounts`).

Model
-----
Values x are in half ranges, in [-1, 1]. For the groups g = 1..G of one column let n_g be the noisy number of units, S_g
the sum of x, and Q_g that of 2 x^2 - 1, so that the sum of x^2 is X_g = (Q_g + n_g)/2. A test has scores U (G) with
mean 0 under its null hypothesis, and the covariance V of sampling and privacy together:

- means: U_g = S_g - m n_g with the common mean m, or with the null value of one sample;
- ranks: U_g is the sum over the units of the group of the mid-rank share of x less 1/2, computed from histograms, in
  which x stands for its bin;
- signed ranks: the sum of sign times the rank of |x - null|, from bins that are symmetric about the null value;
- tables: the counts of the cells less those that margins, or given shares, imply.

The statistic U'V^- U is chi-squared to first order, with G - 1 degrees of freedom (1 for one sample); without noise
that of a table is Pearson's. V counts the noise of the release. The statistic of a table has no such law where cells
are rare: its law is simulated with the noise. `score_tests` has the formulas of U and V.

Effects are estimated beside the tests: a difference of means by Fieller's intervals (`intervals`), and the shift of the
ranks by U over its derivative in the shift (`Scores.growth`). Intervals are for the population: the people are a
sample of it. All of it is free post-processing.

References: Student 1908; Welch 1951; Mann and Whitney 1947; Kruskal and Wallis 1952; Wilcoxon 1945; Schuirmann 1987
(two one-sided tests); Holm 1979; Benjamini and Hochberg 1995.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.group_sums import histograms_by_group, sums_by_column
from zerosum.algorithms.groups import shown
from zerosum.algorithms.intervals import ENDS, Z, difference_interval, ratio_interval, widened, within
from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.quantiles import BinnedAlgorithm, non_negative_counts
from zerosum.algorithms.score_tests import (
    Alternative,
    GroupSums,
    Scores,
    mean_scores,
    noncentral_power,
    normal_tail,
    rank_scores,
    signed_rank_scores,
    table_test,
)
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Quantity, columns_axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.significance import Correction, adjusted
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.groups import Grouped, GroupedCounts, GroupedMoments

Test = Literal["t", "welch", "anova", "equivalence", "mann-whitney", "kruskal-wallis", "wilcoxon", "chi-squared"]
# Level of the power in results.
_LEVEL = 0.05
_MEANS = ("t", "welch", "anova", "equivalence")
_RANKS = ("mann-whitney", "kruskal-wallis", "wilcoxon")
_ONE_SAMPLE = ("t", "equivalence", "wilcoxon", "chi-squared")  # tests that make sense without `by`
_TWO_GROUPS = ("t", "equivalence", "mann-whitney")  # with `by`, for two groups only
_DIRECTED = ("t", "mann-whitney", "wilcoxon")  # tests with a direction; "welch" too with two groups


class HypothesisTestProgram(BinnedAlgorithm):
    """One test for each column, with p values that count the privacy noise.

    With `by` the groups are compared; without it one sample is compared with `null` (numbers) or `expected`
    (categories).

    - "t": Student's test of two means, or of one mean;
    - "welch": two or more means, each group with its own variance;
    - "anova": two or more means with one variance;
    - "equivalence": two means, or one and the null value, are less than `margin` apart (two one-sided tests);
    - "mann-whitney", "kruskal-wallis": two, or more, groups by ranks between public bins;
    - "wilcoxon": symmetry about the null value by signed ranks, for instance of differences of pairs;
    - "chi-squared": independence of a column of categories and the groups, or the expected shares. Its law is drawn,
      with noise, so that it serves small tables too (where Fisher's test is used without privacy).

    Results by column: `statistic`, `p_value`, `p_adjusted` with a correction, `power` with a planned `effect`; and
    `effect`, `effect_interval` for two groups or one sample: the difference of means from the first group or the null
    value, the probability that a value of the second group is larger (Mann-Whitney), or the rank correlation
    (Wilcoxon). Intervals are for the population and cover 95 %.

    Parameters
    ----------
    test : str
        The test, as above.
    null : dict of str to float
        Null value of columns without groups; 0 by default.
    expected : dict of str to tuple of float
        Shares of the levels under the null hypothesis, without groups.
    margin : dict of str to float
        For "equivalence", the largest difference that counts as equivalent, in the units of the column.
    alternative : {"two-sided", "less", "greater"}
        "greater": the second group, or the sample, is larger.
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment for the number of columns.
    effect : dict of str to float
        Planned effect, for `power`: as above for two groups and one sample of numbers; with more groups twice the
        standard deviation of their means; for categories Cohen's w.
    """

    name: ClassVar[str] = "hypothesis-test"
    test: Test
    null: dict[str, float] = Field(default_factory=dict)
    expected: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    margin: dict[str, float] = Field(default_factory=dict)
    alternative: Alternative = "two-sided"
    correction: Correction = "none"
    effect: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _test_fits(self) -> Self:
        """Refuse columns, groups and parameters that the test has no use for."""
        wrong = self.numbers if self.test == "chi-squared" else self.described
        if wrong or not self.tested:
            kind = "categories (levels)" if self.test == "chi-squared" else "numbers (ranges)"
            raise ValueError(
                f"the test {self.test!r} is for columns of {kind} besides the column of groups (by), got "
                f"{', '.join(wrong) or 'none'}"
            )
        if self.by is None and self.test not in _ONE_SAMPLE:
            raise ValueError(f"the test {self.test!r} compares groups: give by, the column of groups")
        if self.by is not None and (self.groups < 2 or self.test == "wilcoxon"):
            raise ValueError(
                f"the test {self.test!r} with by = {self.by!r} needs two groups or more"
                if self.test != "wilcoxon"
                else "the test 'wilcoxon' is for one sample: leave out by, or test 'mann-whitney'"
            )
        if self.groups > 2 and self.test in _TWO_GROUPS:
            instead = "kruskal-wallis" if self.test in _RANKS else "anova"
            raise ValueError(
                f"the test {self.test!r} is for two groups, and {self.by!r} has {self.groups}: test {instead!r}"
            )
        if self.alternative != "two-sided" and not (
            self.test in _DIRECTED or (self.test == "welch" and self.groups == 2)
        ):
            raise ValueError(f"alternative = {self.alternative!r} has no meaning for {self.test!r} here: leave it out")
        return self

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        """Check null values, expected shares, margins and planned effects against the columns."""
        for what, given in (
            ("null", self.null),
            ("expected", self.expected),
            ("margin", self.margin),
            ("effect", self.effect),
        ):
            if strangers := [name for name in given if name not in self.tested]:
                raise ValueError(f"{what} names {strangers[0]!r}, which is not tested")
        if (self.null or self.expected) and self.by is not None:
            raise ValueError("null and expected are for one sample without groups: leave them out")
        if bool(self.margin) != (self.test == "equivalence"):
            raise ValueError("margin is required for the test 'equivalence', and for no other")
        if (self.test == "chi-squared" and self.by is None) or self.test == "equivalence":
            needed = self.margin if self.test == "equivalence" else self.expected
            if lacking := [name for name in self.tested if name not in needed]:
                what = "margin" if self.test == "equivalence" else "expected (or by)"
                raise ValueError(f"{what} is required for {lacking[0]!r}")
        for name, shares in self.expected.items():
            if len(shares) != len(self.levels[name]) or not min(shares) > 0 or not math.isclose(sum(shares), 1):
                raise ValueError(f"expected of {name!r} must have a positive share for each level, with the sum 1")
        for name in self.numbers if self.by is None and self.test != "chi-squared" else ():
            (low, high), value = self.ranges[name], self.null.get(name, 0.0)
            if not low < value < high:
                raise ValueError(
                    f"null of {name!r}, the value of the hypothesis, must lie within its range of {low:g} to {high:g}, "
                    f"got {value:g}"
                )
        for what, given in (("margin", self.margin), ("effect", self.effect)):
            for name, value in given.items():
                if not 0 < value < math.inf:
                    raise ValueError(f"{what} of {name!r} must be positive, got {value:g}")
        return self

    @property
    def tested(self) -> tuple[str, ...]:
        """The columns that are tested, in order."""
        return self.described if self.test == "chi-squared" else self.numbers

    def edges(self, name: str) -> Floats:
        """Edges of the bins; for signed ranks an odd number of bins, symmetric about the null value."""
        if self.test != "wilcoxon":
            return super().edges(name)
        low, high = self.ranges[name]
        middle = self._null(name)
        # Bins reach equally far on both sides, so that every bin has a mirror image; those beyond the range stay empty.
        reach = max(high - middle, middle - low)
        if name in self.whole:
            # Bins of whole numbers: the middle one holds the null value, or lies between two numbers.
            half = math.ceil(reach)
            if 2 * half + 1 <= (self.bins or 2 * half + 1):
                return np.asarray(middle + np.arange(-half, half + 2) - 0.5)
        # The middle bin has differences that count as ties with the null value: neither sign.
        half = max((self.bins or 129) // 2, 1)
        return np.asarray(middle + reach * np.linspace(-1, 1, 2 * half + 2))

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the number of bins, for tests by ranks."""
        return self.model_copy(update={"bins": self.suited_bins(facts, 1.0)}) if self.test in _RANKS else self

    @property
    def describe(self) -> str:
        """The test, for the plan."""
        about = f"the groups of {self.by}" if self.by is not None else "one sample"
        bins = f"; {self.bins} bins in a column" if self.test in _RANKS else ""
        return f"{self.test} test of {about}, the noise counted in the p values{bins}"

    @property
    def counts(self) -> GroupedCounts:
        """The statistic of tests of tables."""
        levels = [len(self.levels[name]) for name in self.tested]
        return GroupedCounts(**self.layout, positions=self.positions(self.tested), levels=levels)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        statistic: Grouped
        if self.test == "chi-squared":
            statistic = self.counts
        else:
            statistic = self.moments(adjacency) if self.test in _MEANS else self.ranks
        return (PrivateSum(statistic),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release, then the test of every column."""
        release = yield self.requests(adjacency)[0]
        if self.test == "chi-squared":
            found = self._of_tables(release)
        elif self.test in _MEANS:
            found = self._of_means(release, self.moments(adjacency))
        else:
            found = self._of_ranks(release)
        if self.correction != "none":
            axes = found["p_value"].axes
            found["p_adjusted"] = Quantity(adjusted(found["p_value"].value, self.correction), "diagnostic", axes)
        return found

    def _null(self, name: str) -> float:
        """The null value of a column."""
        return self.null.get(name, 0.0)

    # ---- means -----------------------------------------------------------------------------------------------------

    def _of_means(self, release: Release, statistic: GroupedMoments) -> dict[str, Quantity]:
        """Tests of means.

        Parameters
        ----------
        release : Release
            A release of `moments`.
        statistic : GroupedMoments
            The statistic of the release, which knows its layout and weights.
        """
        rows = []
        whole = [self.is_whole(name) for name in self.numbers]
        for name, groups in zip(self.numbers, sums_by_column(release, statistic, whole), strict=True):
            low, high = self.ranges[name]
            middle, half = (low + high) / 2, (high - low) / 2
            null = (self._null(name) - middle) / half if self.by is None else None
            equal = self.test in ("t", "anova")
            scores = mean_scores(groups, equal_variances=equal, null=null)
            value, ends = _mean_effect(groups, null)
            if self.test == "equivalence":
                statistic_, p, power = self._equivalence(groups, null, name, scores)
            else:
                statistic_, p = scores.statistic(), scores.p_value(self.alternative)
                power = scores.power(self.effect.get(name, 0.0) / half, _LEVEL, self.alternative)
            rows.append((statistic_, scores.free, p, power, value * half, ends * half))
        return self._found(rows)

    def _equivalence(
        self, groups: GroupSums, null: float | None, name: str, scores: Scores
    ) -> tuple[float, float, float]:
        """Two one-sided tests: the smaller of the two standard scores, the larger p value, and the power.

        Parameters
        ----------
        groups : GroupSums
            The sums of the column.
        null : float, optional
            Null value of one sample, in half ranges.
        name : str
            The column.
        scores : Scores
            Scores of the hypothesis of no difference, for the power.
        """
        half = (self.ranges[name][1] - self.ranges[name][0]) / 2
        margin = self.margin[name] / half
        least = math.inf
        for sign in (-1.0, 1.0):
            # The hypothesis that the difference is sign * margin; equivalence is on the other side of it.
            if null is None:
                moved = mean_scores(groups, equal_variances=False, apart=np.array([0.0, sign * margin]))
            else:
                moved = mean_scores(groups, equal_variances=False, null=null + sign * margin)
            least = min(least, -sign * moved.standard())
        # Power: both one-sided tests reject where the true difference is the planned effect (0 without one).
        # `worth` is 1 over the standard error of the difference. At a true difference d the standard scores of the two
        # tests have means worth (margin - d) and worth (margin + d), and both must exceed the bound (Schuirmann 1987).
        worth = math.sqrt(max(noncentrality(scores), 0.0))
        effect = self.effect.get(name, 0.0) / half
        from scipy.special import ndtri

        bound = -float(ndtri(_LEVEL))
        upper, lower = worth * (margin - effect) - bound, worth * (margin + effect) - bound
        return least, normal_tail(least), max(1 - normal_tail(upper) - normal_tail(lower), 0.0)

    # ---- ranks -----------------------------------------------------------------------------------------------------

    def _of_ranks(self, release: Release) -> dict[str, Quantity]:
        """Tests by ranks from a release of `ranks`."""
        rows = []
        for name, table in zip(self.numbers, self.ranks.split(release.value), strict=True):
            units = release.units if self.is_whole(name) else None
            histograms, noise = histograms_by_group(table, release.noise_std, units)
            # R h is linear in h: the sum over groups is that of all units. Ranks need counts that are not negative.
            pooled = non_negative_counts(np.sum(table, axis=0), units)
            if self.test == "wilcoxon":
                scores = signed_rank_scores(histograms[0], noise, pooled)
                # The rank correlation: the signed ranks over their largest possible sum.
                weight = max(float(scores.growth[0, 0]), 1e-12)
                value = float(scores.value[0]) / weight
                std, shift = math.sqrt(float(scores.covariance[0, 0])) / weight, 0.0
            else:
                scores = rank_scores(histograms, noise, pooled)
                # U_2 = (n_1 n_2/n) (theta - 1/2), theta the probability that a value of the second group is larger.
                share = np.diag(scores.growth) / max(float(np.sum(pooled)), 1e-12)
                weight = max(float(scores.growth[-1, -1]) if len(share) > 1 else 1.0, 1e-12)
                value = float(scores.value[-1]) / weight
                std, shift = math.sqrt(max(float(scores.covariance[-1, -1]), 0.0)) / weight, 0.5
            point = np.clip(value + shift, -1.0 if shift == 0 else 0.0, 1.0)
            ends = np.clip(value + shift + Z * std * np.array([-1.0, 1.0]), -1.0 if shift == 0 else 0.0, 1.0)
            power = scores.power(self.effect.get(name, 0.0), _LEVEL, self.alternative)
            rows.append((scores.statistic(), scores.free, scores.p_value(self.alternative), power, point, ends))
        return self._found(rows)

    # ---- tables ----------------------------------------------------------------------------------------------------

    def _of_tables(self, release: Release) -> dict[str, Quantity]:
        """Tests of tables from a release of `counts`."""
        rows = []
        for name, table in zip(self.tested, self.counts.split(release.value), strict=True):
            units = release.units if self.is_whole(name) else None
            expected = np.array(self.expected[name]) if name in self.expected else None
            found = table_test(table, release.noise_std, units, expected)
            # The noncentrality of Pearson's statistic is n w^2 (Cohen 1988); noise reduces n to an effective number.
            power = noncentral_power(found.weight * self.effect.get(name, 0.0) ** 2, found.free, _LEVEL)
            rows.append((found.statistic, found.free, found.p_value, power, math.nan, np.full(2, math.nan)))
        return self._found(rows)

    def _found(self, rows: list[tuple[float, int, float, float, float, Floats]]) -> dict[str, Quantity]:
        """The results of all columns as quantities.

        Parameters
        ----------
        rows : list of tuple
            By column the statistic, degrees of freedom, p value, power, effect and its interval.
        """
        axis = columns_axis(self.tested)
        statistic, free, p, power, value, ends = (np.array(each, dtype=np.float64) for each in zip(*rows, strict=True))
        found = {
            "statistic": Quantity(statistic, "diagnostic", (axis,)),
            "degrees_of_freedom": Quantity(free, "diagnostic", (axis,)),
            "p_value": Quantity(p, "diagnostic", (axis,)),
        }
        if self.test != "chi-squared" and self.groups <= 2:
            found["effect"] = Quantity(value, "number", (axis,))
            found["effect_interval"] = Quantity(ends, "number", (axis, ENDS))
        if self.effect or self.test == "equivalence":
            found["power"] = Quantity(power, "diagnostic", (axis,))
        return found

    @property
    def contrast(self) -> str:
        """What a positive effect means, for tables: "m - f", or "sample - null"."""
        if self.by is None:
            return "sample - null"
        first, second = self.levels[self.by][:2]
        return f"{shown(second)} - {shown(first)}"


def noncentrality(scores: Scores) -> float:
    """Squared standard score per squared difference of one: how precisely the scores measure a difference.

    Parameters
    ----------
    scores : Scores
        Of two groups or of one sample. A shift d of the last group has the expected scores `growth` d.
    """
    shift = np.array([0.0, 1.0])[-len(scores.value) :]
    grown = scores.growth @ shift
    variance = float(scores.covariance[-1, -1])
    return float(grown[-1]) ** 2 / variance if variance > 0 else 0.0


def _mean_effect(groups: GroupSums, null: float | None) -> tuple[float, Floats]:
    """Difference of the second mean from the first, or of one mean from the null value, with its population interval.

    Means are in half ranges; NaN for more than two groups.

    Parameters
    ----------
    groups : GroupSums
        The sums of one column.
    null : float, optional
        The null value of one sample.
    """
    if len(groups.counts) > 2:
        return math.nan, np.full(2, math.nan)
    divisor = np.maximum(groups.counts, 1.0)
    # Fieller's interval of S/n counts the noise of both; sampling adds variance/n to it (`widened`).
    raw = groups.sums / divisor
    count_var = np.diag(groups.count_noise)
    sum_var = np.full_like(raw, groups.sum_noise)
    ends = ratio_interval(groups.sums, groups.counts, sum_var, np.zeros_like(raw), count_var, -np.inf, np.inf)
    mean = np.clip(raw, -1, 1)
    spread = np.clip(groups.squares / divisor - mean**2, 0, 1)
    ends = widened(raw, ends, spread / divisor)
    if null is not None:
        return float(mean[0] - null), within(ends, raw, mean, -1, 1)[0] - null
    apart = difference_interval(raw[1], ends[1], raw[0], ends[0])
    value = mean[1] - mean[0]
    return float(value), within(apart, raw[1] - raw[0], value, -2, 2)
