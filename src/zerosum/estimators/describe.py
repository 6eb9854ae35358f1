"""Tables that describe columns, and quantiles, over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.estimators.validation import LIST, MAPPING, RANGES, Constraint, optional
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.significance import Correction
from zerosum.report.paper import PaperTable
from zerosum.report.table_one import table_one


@dataclass(eq=False, repr=False, kw_only=True)
class GroupedEstimator(TableEstimator):
    """Parameters of estimators on columns with ranges or levels, by group."""

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **TableEstimator._constraints,
        "ranges": optional(RANGES),
        "levels": optional(MAPPING),
    }

    ranges: Mapping[str, tuple[float, float]] | None = None
    levels: Levels | None = None
    by: str | None = None
    whole: Sequence[str] = ()
    bins: int | None = None
    missing: Missing = None

    def _tables(self, X: Any, sites: Any, scheme: Scheme) -> Tables:
        # Before the data are read, since the declaration selects the columns.
        if not self._declared:
            raise BadParameter("give ranges={column: (lowest, highest)}, levels={column: [...]}, or both")
        return super()._tables(X, sites, scheme)

    @property
    def _declared(self) -> tuple[str, ...]:
        return (*(self.ranges or {}), *(self.levels or {}))

    @property
    def _categories(self) -> Levels:
        return self.levels or {}

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {
            # Tuples, since a plan and its digest must not depend on the type of a sequence.
            "ranges": {name: tuple(each) for name, each in (self.ranges or {}).items()},
            "levels": {name: tuple(each) for name, each in self._categories.items()},
            "whole": tuple(self.whole),
        }


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class _Grouped(GroupedEstimator):
    """Parameters and results of `Describe` and `Quantiles`."""

    _constraints: ClassVar[Mapping[str, Constraint]] = {**GroupedEstimator._constraints, "probabilities": LIST}

    probabilities: Sequence[float] = (0.25, 0.5, 0.75)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {"probabilities": tuple(self.probabilities)}

    def _learn_quantiles(self, estimate: Estimate) -> Floats:
        """Set the attributes of quantiles, and return the standard deviation of their noise."""
        self.quantiles_: Floats = np.asarray(estimate["quantile"])
        self.quantile_interval_: Floats = np.asarray(estimate["quantile_interval"])
        self.quantile_population_interval_: Floats = np.asarray(estimate["quantile_population_interval"])
        return np.asarray(estimate["quantile"].std)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Describe(_Grouped):
    """A private table that describes columns over sites, for all units and by group, with intervals; `print` it.

    Numeric columns have the number of observed units, mean, standard deviation and quantiles; columns of categories
    have proportions. Every unit has weight one: a unit with several rows counts with their mean.

    Parameters
    ----------
    %(grouped)s
    parts : sequence of {"means", "quantiles", "proportions"}
        Parts of the table, by default all. The budget is spent on these parts only.
    shares : dict of str to float, optional
        Share of the budget of each part; by default the planner's choice, which `zerosum plan` shows.
    %(privacy)s

    Attributes
    ----------
    groups_ : tuple of str
        Labels of the first axis of all arrays: "all", then each group.
    mean_ : ndarray of shape (groups, numeric columns)
        Means; the attributes up to `mean_population_interval_` exist only with the part "means".
    noise_std_ : ndarray of shape (groups, numeric columns)
        Standard deviation that privacy adds to each mean.
    observed_ : ndarray of shape (groups, numeric columns)
        Noisy number of observed units.
    sd_ : ndarray of shape (groups, numeric columns)
        Standard deviation between units.
    mean_interval_ : ndarray of shape (groups, numeric columns, 2)
        Interval of 95 % for the mean of the pooled data, from privacy alone.
    mean_population_interval_ : ndarray of shape (groups, numeric columns, 2)
        Interval of 95 % for the mean of the population, from sampling and privacy.
    quantiles_ : ndarray of shape (groups, numeric columns, quantiles)
        Quantiles; this and the next three only with the part "quantiles".
    quantiles_noise_std_ : ndarray of shape (groups, numeric columns, quantiles)
        Standard deviation that privacy adds to each quantile.
    quantile_interval_ : ndarray of shape (groups, numeric columns, quantiles, 2)
        Interval of 95 % for the quantile of the pooled data, from privacy alone.
    quantile_population_interval_ : ndarray of shape (groups, numeric columns, quantiles, 2)
        Interval of 95 % for the quantile of the population, from sampling and privacy.
    proportions_ : ndarray of shape (groups, categories of all columns)
        Share of each category; this and the next three only with the part "proportions".
    proportions_noise_std_ : ndarray of shape (groups, categories of all columns)
        Standard deviation that privacy adds to each share.
    proportion_interval_ : ndarray of shape (groups, categories of all columns, 2)
        Interval of 95 % for the share in the pooled data, from privacy alone.
    proportion_population_interval_ : ndarray of shape (groups, categories of all columns, 2)
        Interval of 95 % for the share in the population, from sampling and privacy.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.column_stack([rng.normal(50, 10, 500), rng.integers(0, 2, 500)]) for _ in range(3)]
    >>> table = Describe(ranges={"x0": (20, 90)}, levels={"x1": [0, 1]}, by="x1", random_state=0, data="synthetic")
    >>> _ = table.fit(sites)
    >>> table.groups_, bool(abs(table.mean_[0, 0] - 50) < 3)
    (('all', 'x1 = 0', 'x1 = 1'), True)
    """

    _algorithm: ClassVar[str] = "describe"

    parts: Sequence[str] = ("means", "quantiles", "proportions")
    shares: Mapping[str, float] | None = None

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        shares = None if self.shares is None else dict(self.shares)
        return super()._parameters(tables) | {"parts": tuple(self.parts), "shares": shares}

    def table_one(self, correction: Correction = "none") -> PaperTable:
        """Table 1 of a paper: the groups as columns, with standardised differences and p values; `print` it.

        Parameters
        ----------
        correction : {"none", "holm", "benjamini-hochberg"}, default="none"
            Adjustment of the p values for the number of tests in the table.

        Returns
        -------
        PaperTable
            Texts; `result_.to_frame("table1")` and `zerosum results export` have them as a data frame and in documents.
        """
        self._fitted()
        return table_one(self.result_.estimate, self.result_.plan.question, correction=correction)

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = _groups(estimate)
        if "mean" in estimate:
            self.observed_: Floats = np.asarray(estimate["observed"])
            self.mean_: Floats = np.asarray(estimate["mean"])
            self.noise_std_: Floats = np.asarray(estimate["mean"].std)
            self.sd_: Floats = np.asarray(estimate["sd"])
            self.mean_interval_: Floats = np.asarray(estimate["mean_interval"])
            self.mean_population_interval_: Floats = np.asarray(estimate["mean_population_interval"])
        if "quantile" in estimate:
            self.quantiles_noise_std_ = self._learn_quantiles(estimate)
        if "proportion" in estimate:
            self.proportions_: Floats = np.asarray(estimate["proportion"])
            self.proportions_noise_std_: Floats = np.asarray(estimate["proportion"].std)
            self.proportion_interval_: Floats = np.asarray(estimate["proportion_interval"])
            self.proportion_population_interval_: Floats = np.asarray(estimate["proportion_population_interval"])


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Quantiles(_Grouped):
    """Private quantiles of columns over sites, for all units and by group, with intervals, from one release.

    Parameters
    ----------
    %(grouped)s
    %(privacy)s

    Attributes
    ----------
    groups_ : tuple of str
        Labels of the first axis of all arrays: "all", then each group.
    quantiles_ : ndarray of shape (groups, numeric columns, quantiles)
        Quantiles of the numeric columns.
    noise_std_ : ndarray of shape (groups, numeric columns, quantiles)
        Standard deviation that privacy adds to each quantile.
    quantile_interval_ : ndarray of shape (groups, numeric columns, quantiles, 2)
        Interval of 95 % for the quantile of the pooled data, from privacy alone.
    quantile_population_interval_ : ndarray of shape (groups, numeric columns, quantiles, 2)
        Interval of 95 % for the quantile of the population, from sampling and privacy.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(120, 15, (800, 1)) for _ in range(3)]
    >>> found = Quantiles(ranges={"x0": (80, 200)}, random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(found.quantiles_[0, 0] - [110, 120, 130]) < 4))
    True
    """

    _algorithm: ClassVar[str] = "quantiles"

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = _groups(estimate)
        self.noise_std_ = self._learn_quantiles(estimate)


def _groups(estimate: Estimate) -> tuple[str, ...]:
    # Every quantity of these programs has the groups on its first axis.
    quantity = next(iter(estimate.values()))
    return quantity.axes[0].labels
