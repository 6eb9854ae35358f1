"""Columns centred and scaled by what all sites have together.

Tested in tests/estimators/test_describe_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import OneToOneFeatureMixin, TransformerMixin

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import DataMark, RangedEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, RangedEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Columns less their joint private mean, divided by their joint private standard deviation.

    Means and standard deviations of all columns come from one release.

    Parameters
    ----------
    lower, upper : float or array of shape (n_features,), optional
        Public ranges of the columns; one number stands for every column. Only a seeded run may do without: it takes
        the least and the largest values, and says so in `notes_`.
    missing : float, str or dict, optional
        What is done where a value is missing (NaN) in `fit`, for all columns or by the name of each: a number to take
        instead, or "observed", where those count who are observed. By default missing values are refused.
    with_mean, with_std : bool, default=True
        Whether columns are centred, and whether they are scaled.
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
    mean_ : ndarray of shape (n_features,)
        The mean of each column, of values clamped to their ranges.
    scale_ : ndarray of shape (n_features,)
        The standard deviation of each column; 1 where the noise leaves nothing of it.
    std_error_ : ndarray of shape (n_features,)
        The standard deviation that privacy's noise gives each mean.
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
    >>> sites = {name: rng.normal([50, 120], [10, 15], size=(900, 2)) for name in ("north", "east", "south")}
    >>> scaler = StandardScaler(lower=[0, 50], upper=[100, 250], random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(scaler.transform(sites["north"]).std(axis=0) - 1) < 0.2))
    True
    """

    _algorithm: ClassVar[str] = "describe"

    def __init__(
        self,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        missing: Missing = None,
        with_mean: bool = True,
        with_std: bool = True,
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
        self.lower = lower
        self.upper = upper
        self.missing = missing
        self.with_mean = with_mean
        self.with_std = with_std

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if (lower is None) != (upper is None):
            raise BadParameter("lower and upper belong together")
        if lower is None or upper is None:
            lower, upper = self._found(tables)
        if np.any(lower >= upper):
            raise BadParameter("every lower bound must lie below its upper bound")
        pairs = zip(lower.tolist(), upper.tolist(), strict=True)
        ranges = dict(zip(self._columns, pairs, strict=True))
        return {"ranges": ranges, "parts": ("means",), "missing": self.missing}

    def _found(self, tables: Tables) -> tuple[Floats, Floats]:
        if self.random_state is None:
            raise BadParameter(
                "give public ranges (lower and upper): bounds that are read off the data are not private"
            )
        self._note("no ranges were given, so they were read off the data, which is not private")
        rows = np.concatenate([np.asarray(units.rows, dtype=np.float64) for units in tables.values()])
        low, high = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
        return low, np.where(high > low, high, low + np.maximum(np.abs(low), 1.0))

    def _learn(self, estimate: Estimate) -> None:
        self.mean_: Floats = np.asarray(estimate["mean"])[0]
        self.std_error_: Floats = np.asarray(estimate["mean"].std)[0]
        spread = np.asarray(estimate["sd"])[0]
        self.scale_: Floats = np.where(spread > 0, spread, 1.0)

    def transform(self, X: ArrayLike) -> Floats:
        """The rows, centred and scaled.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about what becomes of them is private: it is for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_features)
            The rows less the mean, divided by the scale.
        """
        rows = self._own_rows(X)
        rows = rows - self.mean_ if self.with_mean else rows
        return np.asarray(rows / self.scale_ if self.with_std else rows)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """The rows that were so transformed.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            What `transform` returned.

        Returns
        -------
        ndarray of shape (rows, n_features)
            The rows as they were.
        """
        rows = self._own_rows(X)
        rows = rows * self.scale_ if self.with_std else rows
        return np.asarray(rows + self.mean_ if self.with_mean else rows)
