"""Tables that describe columns, and quantiles, over sites.

Tested in tests/estimators/test_describe_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import DataMark, Tables
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class _Grouped(TableEstimator):
    """What descriptions and quantiles share."""

    ranges: Mapping[str, tuple[float, float]] | None
    levels: Levels | None
    by: str | None
    probabilities: Sequence[float]
    whole: Sequence[str]
    bins: int | None
    missing: Missing

    def _checked_scheme(self) -> Scheme:
        for name in ("ranges", "levels"):
            if not isinstance(getattr(self, name) or {}, Mapping):
                raise BadParameter(f"{name} must be a dict by the name of the column")
        if not self._declared:
            raise BadParameter("say what the columns may hold: ranges={column: (low, high)}, levels={column: [...]}")
        if isinstance(self.probabilities, str) or not isinstance(self.probabilities, Sequence | np.ndarray):
            raise BadParameter("probabilities must be a list of numbers between 0 and 1")
        return super()._checked_scheme()

    @property
    def _declared(self) -> tuple[str, ...]:
        return (*(self.ranges or {}), *(self.levels or {}))

    @property
    def _categories(self) -> Levels:
        return self.levels or {}

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return {
            "ranges": {name: tuple(each) for name, each in (self.ranges or {}).items()},
            "levels": {name: tuple(each) for name, each in self._categories.items()},
            "by": self.by,
            "probabilities": tuple(self.probabilities),
            "whole": tuple(self.whole),
            "bins": self.bins,
            "missing": self.missing,
        }


class Describe(_Grouped):
    """A table that describes columns over sites: for numbers how many units are observed, mean, standard deviation and
    quantiles, for categories proportions, for everybody and by group, with intervals. `print` it.

    Every unit weighs one: who has several rows counts with their mean.

    Parameters
    ----------
    ranges : dict of str to (float, float)
        The public range of each column of numbers; values are clamped to it. Columns of arrays without names are called
        x0, x1 and so on. Of a data frame, only columns that are declared are read.
    levels : dict of str to sequence, optional
        The public categories of each other column, in order. A value that is not among them is refused.
    by : str, optional
        The column of the groups; its levels must be declared.
    probabilities : sequence of float, default=(0.25, 0.5, 0.75)
        Which quantiles.
    whole : sequence of str, optional
        The columns that hold whole numbers: so are their quantiles.
    bins : int, optional
        In how many bins a column is counted for its quantiles; by default chosen by the noise.
    missing : float, str or dict, optional
        What is done where a value is missing (NaN, None or an empty string), for all columns or by the name of each: a
        value to take instead, or "observed", where those count who are observed. By default missing values are refused.
    parts : sequence of "means", "quantiles", "proportions"
        What is wanted, by default all; the budget goes to no other.
    shares : dict of str to float, optional
        How the budget is split between the parts, by default as `zerosum plan` says.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the rows of a unit, or a single row. It must be said where sites are plain
        tables, whose rows could be either; `Units` that say whose each row is hold persons. A seeded run protects
        nobody, and takes plain rows for records.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. It is refused unless `data` says that they are nobody's, or
        sites' own policies do.
    data : {"private", "public", "synthetic"}, default="private"
        Whose the data are. Public and synthetic data are nobody's: sites without a policy of their own then take part
        in any study, and their ledgers are thrown away after the run.
    budget : Budget, optional
        A `zerosum.Budget` that several fits share, which refuses what goes beyond it.

    Attributes
    ----------
    groups_ : tuple of str
        "all", then each group: what the first axis of the arrays below runs along.
    observed_, mean_, std_error_, sd_ : ndarray of shape (groups, columns of numbers)
        How many units are observed, their mean, the standard deviation that privacy gives it, and their spread.
    mean_interval_, mean_population_interval_ : ndarray of shape (groups, columns of numbers, 2)
        Of 95 %: for the pooled data, which privacy's noise hides, and for the people they are a sample of.
    quantiles_ : ndarray of shape (groups, columns of numbers, quantiles)
        With `quantile_interval_` and `quantile_population_interval_`.
    proportions_ : ndarray of shape (groups, levels of all columns of categories)
        With `proportion_interval_` and `proportion_population_interval_`.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns.
    privacy_ : PrivacyReport
        Whom the fit protects, against whom, and how well.
    result_ : Result
        The study's whole record.
    notes_ : tuple of str
        What else a reader has to know about the run.

    Notes
    -----
    Fitting again is spending again: each `fit` is a study of its own, with fresh noise, charged to every site's ledger.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.column_stack([rng.normal(50, 10, 500), rng.integers(0, 2, 500)]) for _ in range(3)]
    >>> table = Describe(ranges={"x0": (20, 90)}, levels={"x1": [0, 1]}, by="x1", random_state=0, data="synthetic")
    >>> _ = table.fit(sites)
    >>> table.groups_, bool(abs(table.mean_[0, 0] - 50) < 3)
    (('all', 'x1 = 0', 'x1 = 1'), True)
    """

    _algorithm: ClassVar[str] = "describe"

    def __init__(
        self,
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        levels: Levels | None = None,
        by: str | None = None,
        probabilities: Sequence[float] = (0.25, 0.5, 0.75),
        whole: Sequence[str] = (),
        bins: int | None = None,
        missing: Missing = None,
        parts: Sequence[str] = ("means", "quantiles", "proportions"),
        shares: Mapping[str, float] | None = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.ranges = ranges
        self.levels = levels
        self.by = by
        self.probabilities = probabilities
        self.whole = whole
        self.bins = bins
        self.missing = missing
        self.parts = parts
        self.shares = shares

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        shares = None if self.shares is None else dict(self.shares)
        return super()._parameters(tables) | {"parts": tuple(self.parts), "shares": shares}

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = _groups(estimate)
        if "mean" in estimate:
            self.observed_: Floats = np.asarray(estimate["observed"])
            self.mean_: Floats = np.asarray(estimate["mean"])
            self.std_error_: Floats = np.asarray(estimate["mean"].std)
            self.sd_: Floats = np.asarray(estimate["sd"])
            self.mean_interval_: Floats = np.asarray(estimate["mean_interval"])
            self.mean_population_interval_: Floats = np.asarray(estimate["mean_population_interval"])
        if "quantile" in estimate:
            _learn_quantiles(self, estimate)
        if "proportion" in estimate:
            self.proportions_: Floats = np.asarray(estimate["proportion"])
            self.proportion_interval_: Floats = np.asarray(estimate["proportion_interval"])
            self.proportion_population_interval_: Floats = np.asarray(estimate["proportion_population_interval"])


class Quantiles(_Grouped):
    """Quantiles of columns over sites, for everybody and by group, with intervals, from one release.

    Parameters
    ----------
    ranges : dict of str to (float, float)
        The public range of each column of numbers; values are clamped to it. Columns of arrays without names are called
        x0, x1 and so on. Of a data frame, only columns that are declared are read.
    levels : dict of str to sequence, optional
        The public categories of each other column, in order. A value that is not among them is refused.
    by : str, optional
        The column of the groups; its levels must be declared.
    probabilities : sequence of float, default=(0.25, 0.5, 0.75)
        Which quantiles.
    whole : sequence of str, optional
        The columns that hold whole numbers: so are their quantiles.
    bins : int, optional
        In how many bins a column is counted for its quantiles; by default chosen by the noise.
    missing : float, str or dict, optional
        What is done where a value is missing (NaN, None or an empty string), for all columns or by the name of each: a
        value to take instead, or "observed", where those count who are observed. By default missing values are refused.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the rows of a unit, or a single row. It must be said where sites are plain
        tables, whose rows could be either; `Units` that say whose each row is hold persons. A seeded run protects
        nobody, and takes plain rows for records.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. It is refused unless `data` says that they are nobody's, or
        sites' own policies do.
    data : {"private", "public", "synthetic"}, default="private"
        Whose the data are. Public and synthetic data are nobody's: sites without a policy of their own then take part
        in any study, and their ledgers are thrown away after the run.
    budget : Budget, optional
        A `zerosum.Budget` that several fits share, which refuses what goes beyond it.

    Attributes
    ----------
    groups_ : tuple of str
        "all", then each group: what the first axis of the arrays below runs along.
    quantiles_ : ndarray of shape (groups, columns of numbers, quantiles)
        The quantiles.
    quantile_interval_, quantile_population_interval_ : ndarray of shape (groups, columns of numbers, quantiles, 2)
        Of 95 %: for the pooled data, which privacy's noise hides, and for the people they are a sample of.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns.
    privacy_ : PrivacyReport
        Whom the fit protects, against whom, and how well.
    result_ : Result
        The study's whole record.
    notes_ : tuple of str
        What else a reader has to know about the run.

    Notes
    -----
    Fitting again is spending again: each `fit` is a study of its own, with fresh noise, charged to every site's ledger.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(120, 15, (800, 1)) for _ in range(3)]
    >>> found = Quantiles(ranges={"x0": (80, 200)}, random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(found.quantiles_[0, 0] - [110, 120, 130]) < 4))
    True
    """

    _algorithm: ClassVar[str] = "quantiles"

    def __init__(
        self,
        *,
        ranges: Mapping[str, tuple[float, float]] | None = None,
        levels: Levels | None = None,
        by: str | None = None,
        probabilities: Sequence[float] = (0.25, 0.5, 0.75),
        whole: Sequence[str] = (),
        bins: int | None = None,
        missing: Missing = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.ranges = ranges
        self.levels = levels
        self.by = by
        self.probabilities = probabilities
        self.whole = whole
        self.bins = bins
        self.missing = missing

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = _groups(estimate)
        _learn_quantiles(self, estimate)


def _groups(estimate: Estimate) -> tuple[str, ...]:
    quantity = next(iter(estimate.values()))
    return quantity.axes[0].labels


def _learn_quantiles(estimator: Any, estimate: Estimate) -> None:
    estimator.quantiles_ = np.asarray(estimate["quantile"])
    estimator.quantile_interval_ = np.asarray(estimate["quantile_interval"])
    estimator.quantile_population_interval_ = np.asarray(estimate["quantile_population_interval"])
