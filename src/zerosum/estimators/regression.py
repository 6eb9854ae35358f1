"""Private linear regression over sites, and what all regressions share.

Tested in tests/estimators/test_regression_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import DataMark, RangedEstimator, Tables, bad_data
from zerosum.estimators.supervised import Supervised
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.report.coefficients import CoefficientTable
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class JointRegression(Supervised, RangedEstimator):
    """What regressions share: public ranges, offsets and weights, and the table of coefficients.

    A subclass says what is public about the response (`_response_range`, `_coded`).
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        response: ArrayLike | None = None,
        offset_range: ArrayLike | None = None,
        center: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        fit_intercept: bool = True,
        standardise: Literal["auto", "dp", "none"] = "auto",
        clip: float | None = None,
        missing: Missing = None,
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
            lower=lower,
            upper=upper,
            clip=clip,
            missing=missing,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.response = response
        self.offset_range = offset_range
        self.center = center
        self.scale = scale
        self.fit_intercept = fit_intercept
        self.standardise = standardise

    def fit(
        self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, offset: Any = None, weights: Any = None
    ) -> Self:
        """Run one study over the sites, and spend what it costs at each of them.

        Parameters
        ----------
        X : list or dict of (rows, n_features) arrays or Units, or one array
            One table of features per site, called "site 0", "site 1", ... in a list. One array needs `sites`, but for
            the schemes "pooled" and "non-private", where one holder has all rows.
        y : list or dict of vectors, or one vector
            The response of every row, by site as X is.
        sites : array of shape (rows,), optional
            For one array, the name of the site that holds each row.
        offset : as y, optional
            What is added to the linear predictor of every row as it is (of counts, the logarithm of the exposure), in
            the public `offset_range`.
        weights : as y, optional
            How much every row counts, from 0 to 1: private like all that is said of a unit.

        Returns
        -------
        self
            The fitted estimator. If the fit fails, what the last one learned is kept.

        Raises
        ------
        ZerosumError
            What is wrong with the parameters or the data, or which site refuses and why.
        """
        return self._fit_to(X, y, sites, {"offset": offset, "weights": weights})

    # ---- the response ----------------------------------------------------------------------------------------------

    def _with_role(self, what: str, units: Units, values: Any) -> Units:
        joined = super()._with_role(what, units, values)
        weights = np.asarray(joined.rows)[:, -1]
        if what == "weights" and np.any((weights < 0) | (weights > 1)):
            raise BadData("weights must lie in 0 to 1")
        return joined

    @abstractmethod
    def _response_range(self, tables: Tables) -> tuple[float, float]:
        """The public range of the response as it is coded."""

    def _numeric_range(self, tables: Tables) -> tuple[float, float]:
        """The range of a response that is a number: as given, or in a seeded run as found."""
        if self.response is not None:
            found = np.asarray(self.response, dtype=np.float64)
            if found.shape != (2,) or not found[0] < found[1]:
                raise BadParameter(
                    "response must be the public range of the response: two numbers, the lower one first"
                )
            return float(found[0]), float(found[1])
        if self.random_state is None:
            raise BadParameter("give the public range of the response: response=(lowest, highest)")
        values = np.concatenate([np.asarray(units.rows)[:, -1] for units in tables.values()])
        self._note("the range of the response was read off the data, which is not private")
        low, high = float(np.min(values)), float(np.max(values))
        return low, high if high > low else low + 1.0

    def _offset_ends(self, tables: Tables) -> tuple[float, float]:
        """The range of the offset: as given, or in a seeded run as found."""
        if self.offset_range is not None:
            found = np.asarray(self.offset_range, dtype=np.float64)
            if found.shape != (2,) or not found[0] < found[1]:
                raise BadParameter("offset_range must be the public range of the offset: two numbers, the lower first")
            return float(found[0]), float(found[1])
        if self.random_state is None:
            raise BadParameter("give the public range of the offset: offset_range=(lowest, highest)")
        self._note("the range of the offset was read off the data, which is not private")
        values = np.concatenate([np.asarray(units.rows)[:, self.n_features_in_] for units in tables.values()])
        low, high = float(np.min(values)), float(np.max(values))
        return low, high if high > low else low + 1.0

    # ---- the program -----------------------------------------------------------------------------------------------

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if (lower is None or upper is None) and self.random_state is None:
            raise BadParameter(
                "give public ranges (lower and upper) of the features: data must not set their own bounds"
            )
        if lower is None or upper is None:
            stacked = np.concatenate([np.asarray(units.rows)[:, : self.n_features_in_] for units in tables.values()])
            lower = np.nanmin(stacked, axis=0) if lower is None else lower
            upper = np.nanmax(stacked, axis=0) if upper is None else upper
            upper = np.where(upper > lower, upper, lower + 1.0)
            self._note("no ranges were given, so they were read off the data, which is not private")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            raise BadParameter(f"fit_intercept must be True or False, got {self.fit_intercept!r}")
        ends = [self._offset_ends(tables)] if "offset" in self._roles else []
        ends += [(0.0, 1.0)] if "weights" in self._roles else []
        ends.append(self._response_range(tables))
        return {
            "lower": np.append(lower, [low for low, _high in ends]),
            "upper": np.append(upper, [high for _low, high in ends]),
            "offset": "offset" if "offset" in self._roles else None,
            "weight": "weights" if "weights" in self._roles else None,
            "clip": self.clip,
            "center": self._by_column("center"),
            "scale": self._by_column("scale"),
            "intercept": bool(self.fit_intercept),
            "standardise": self.standardise,
            "missing": self.missing,
        }

    def _learn(self, estimate: Estimate) -> None:
        self.coef_: Floats = estimate["coefficients"].value.copy()
        self.intercept_ = float(estimate["intercept"][0])
        if "pooled_std" in estimate:
            self.table_ = CoefficientTable.of(estimate)
            self.coef_std_: Floats = estimate["population_std"].value[:-1].copy()
            left = sum(not row.identified for row in self.table_.rows)
            if left:
                self._note(f"{left} of {len(self.table_.rows)} coefficients are not identified at this budget")

    def _predictor(self, X: Any, offset: Any = None) -> Floats:
        """The linear predictor of rows, for whoever holds them."""
        return self._shifted(self._own_rows(X) @ self.coef_ + self.intercept_, offset)

    @staticmethod
    def _shifted(predictor: Any, offset: Any) -> Floats:
        if offset is None:
            return np.asarray(predictor)
        with bad_data():
            column = np.asarray(column_or_1d(offset), dtype=np.float64)
        if column.shape != np.shape(predictor) or not np.all(np.isfinite(column)):
            raise BadData("offset must have a finite number for each row")
        return np.asarray(predictor + column)


class LinearRegression(RegressorMixin, JointRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private least squares over sites, with intervals that can be reported.

    Parameters
    ----------
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    lower, upper : float or array of shape (n_features,)
        Public ranges of the features. One number stands for every feature.
    response : (float, float)
        The public range of the response.
    offset_range : (float, float), optional
        The public range of the offset, where `fit` is given one.
    center, scale : float or array of shape (n_features,), optional
        What is declared of the features: an ordinary value, and an ordinary deviation from it. It saves budget.
    fit_intercept : bool, default=True
        Whether there is a constant. Without one the model passes through the middle of the ranges, or the centre that
        is declared or measured, not through 0.
    standardise : {"auto", "dp", "none"}, default="auto"
        Whether a release of every column's mean and size is bought first; "auto" does where its noise is small and
        nothing is declared.
    clip : float, optional
        A bound on the norm of a row in standardised units; by default the planner's.
    missing : float, str or dict, optional
        What is done where a feature is missing (NaN), for all or by the name of each: a number to take instead, or
        "own-rows". By default missing values are refused.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected; it must be said where sites are plain tables. A person with several rows is one unit.
    policies : dict of str to Policy, optional
        Sites' own policies by name.
    random_state : int, optional
        A number makes a **reproduction run, which protects nobody**.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The coefficients, in the units of the data.
    intercept_ : float
        The constant.
    coef_std_ : ndarray of shape (n_features,)
        Standard errors for the population: sampling and privacy.
    table_ : CoefficientTable
        Every coefficient with both kinds of standard errors and intervals, and whether it is identified.
    residual_std_ : float
        The standard deviation of the residuals.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    privacy_, result_, notes_
        Whom the fit protects, the study's whole record, and what a reader has to know.

    Notes
    -----
    **Fitting again is spending again.** Predictions are free and stay with whoever holds the rows.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (2000, 2)) for _ in range(3)]
    >>> y = [rows @ [1.0, -2.0] + rng.normal(0, 0.1, 2000) for rows in X]
    >>> made_up = {"random_state": 0, "data": "synthetic"}
    >>> fitted = LinearRegression(lower=-1, upper=1, response=(-4, 4), epsilon=3, **made_up).fit(X, y)
    >>> fitted.coef_.round(1).tolist()
    [1.0, -2.0]
    """

    _algorithm: ClassVar[str] = "linear-regression"

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return self._numeric_range(tables)

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.residual_std_ = float(estimate["residual_std"][0])

    def predict(self, X: Any, offset: Any = None) -> Floats:
        """The expected response of rows.

        Parameters
        ----------
        X : array of shape (rows, n_features)
        offset : array of shape (rows,), optional
            Their offset; 0 unless given.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return self._predictor(X, offset)
