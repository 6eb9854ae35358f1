"""Tests of hypotheses over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.algorithms.hypothesis_test import Test
from zerosum.algorithms.score_tests import Alternative
from zerosum.arrays import Floats
from zerosum.estimators.base import Tables
from zerosum.estimators.describe import GroupedEstimator
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import MAPPING, Constraint, optional
from zerosum.kernel.significance import Correction


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class HypothesisTest(GroupedEstimator):
    """Private tests over sites, one for each column, with p values that count the privacy noise.

    All results come from one release. With `by` the groups are compared; without it one sample is compared with `null`
    or `expected`. Every unit has weight one: a unit with several rows counts with their mean.

    Parameters
    ----------
    test : str, default="welch"
        "t" (Student), "welch", "anova", "equivalence" (two one-sided tests), "mann-whitney", "kruskal-wallis",
        "wilcoxon" (signed ranks) or "chi-squared" (tables of any size).
    ranges : dict of str to (float, float), optional
        Public range of each numeric column; values are clamped to it. Columns of an array without names are called x0,
        x1, and so on. Of a data frame only the columns in `ranges` and `levels` are read.
    levels : dict of str to sequence, optional
        Public categories of each other column, in order. Another value in the data is refused.
    by : str, optional
        The column of the groups; it must be in `levels`.
    null : dict of str to float, optional
        Null values of columns of one sample; by default 0.
    expected : dict of str to sequence of float, optional
        Shares of the levels of each column of one sample under the null hypothesis.
    margin : dict of str to float, optional
        For "equivalence": the largest difference that counts as equivalent, by column.
    alternative : {"two-sided", "less", "greater"}, default="two-sided"
        "greater": the second group, or the sample, is larger.
    correction : {"none", "holm", "benjamini-hochberg"}, default="none"
        Adjustment of p values for the number of columns.
    effect : dict of str to float, optional
        Effects that the study plans for, by column; the result then has the power of the test for them.
    whole : sequence of str, optional
        Columns of whole numbers, for tests by ranks: their bins hold whole numbers.
    bins : int, optional
        Number of bins of tests by ranks; by default chosen from the noise.
    missing : float, str or dict, optional
        Rule for missing values (NaN, None or an empty string), for all columns or by column name: a value that replaces
        them, or "observed", which uses the observed units only. By default missing values are refused.
    %(privacy)s

    Attributes
    ----------
    statistic_ : ndarray of shape (columns,)
        Test statistics, chi-squared under the null hypothesis with `degrees_of_freedom_`; of "equivalence" the smaller
        of the two standard scores.
    degrees_of_freedom_ : ndarray of shape (columns,)
        Degrees of freedom.
    p_value_ : ndarray of shape (columns,)
        P values for the population, with sampling error and privacy noise.
    p_adjusted_ : ndarray of shape (columns,)
        Adjusted p values; only with a correction.
    effect_ : ndarray of shape (columns,)
        Difference of the means, or the probability that a value of the second group is larger ("mann-whitney"), or the
        rank correlation ("wilcoxon"); only for two groups or one sample, and not for categories.
    effect_interval_ : ndarray of shape (columns, 2)
        Interval of 95 % for the effect in the population.
    power_ : ndarray of shape (columns,)
        Power at the level of 5 % for the planned `effect`; of "equivalence" for a difference of `effect` or 0.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.column_stack([rng.normal(50, 10, 500), rng.integers(0, 2, 500)]) for _ in range(3)]
    >>> for rows in sites:
    ...     rows[:, 0] += 5 * rows[:, 1]
    >>> test = HypothesisTest(ranges={"x0": (20, 90)}, levels={"x1": [0, 1]}, by="x1", random_state=0, data="synthetic")
    >>> bool(test.fit(sites).p_value_[0] < 0.01)
    True
    """

    _algorithm: ClassVar[str] = "hypothesis-test"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **GroupedEstimator._constraints,
        "null": optional(MAPPING),
        "expected": optional(MAPPING),
        "margin": optional(MAPPING),
        "effect": optional(MAPPING),
    }

    test: Test = "welch"
    null: Mapping[str, float] | None = None
    expected: Mapping[str, Sequence[float]] | None = None
    margin: Mapping[str, float] | None = None
    alternative: Alternative = "two-sided"
    correction: Correction = "none"
    effect: Mapping[str, float] | None = None

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {
            "null": dict(self.null or {}),
            "expected": {name: tuple(each) for name, each in (self.expected or {}).items()},
            "margin": dict(self.margin or {}),
            "effect": dict(self.effect or {}),
        }

    def _learn(self, estimate: Estimate) -> None:
        # One entry for each tested column: numbers, or categories with "chi-squared".
        self.statistic_: Floats = np.asarray(estimate["statistic"])
        self.degrees_of_freedom_: Floats = np.asarray(estimate["degrees_of_freedom"])
        self.p_value_: Floats = np.asarray(estimate["p_value"])
        if "p_adjusted" in estimate:
            self.p_adjusted_: Floats = np.asarray(estimate["p_adjusted"])
        # More than two groups and categories have no single effect.
        if "effect" in estimate:
            self.effect_: Floats = np.asarray(estimate["effect"])
            self.effect_interval_: Floats = np.asarray(estimate["effect_interval"])
        if "power" in estimate:
            self.power_: Floats = np.asarray(estimate["power"])
