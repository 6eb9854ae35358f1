"""Private logistic and Poisson regression over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.data.design import Design
from zerosum.errors import BadData, BadParameter, ResultWarning
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.regression import ModelRegression
from zerosum.estimators.validation import POSITIVE, TWO_CLASSES, Constraint, optional
from zerosum.report.coefficients import NEARLY_COLLINEAR


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class LogisticRegression(ClassifierMixin, ModelRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private logistic regression of two classes over sites.

    `coef_` are logarithms of odds ratios. Predictions use `score_coef_`, which are shrunk more and rank better.

    Parameters
    ----------
    %(ranges)s
    response : pair, optional
        The two public classes, the reference first; by default (0, 1). A seeded run without it takes the classes of the
        data and adds a note to `notes_`.
    %(offset_range)s
    %(regression)s
    method : {"auto", "newton", "polynomial"}, default="auto"
        Newton rounds, or one release of the quadratic Taylor polynomial of the loss, which ranks better at a small
        budget.
    goal : {"auto", "predict", "inference"}, default="auto"
        What the method is chosen for: "inference" takes Newton rounds, "predict" the method that ranks better, and
        "auto" the quadratic only where rounds would identify nothing.
    rounds : int, optional
        Number of Newton rounds; by default the planner's choice.
    room : float, optional
        Squared norm above which rows have less weight, over the mean squared norm; by default the planner's choice.
    %(regression_evaluation)s
    %(privacy)s

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two classes, the reference first.
    coef_ : ndarray of shape (1, n_features)
        Coefficients in the units of the data: logarithms of odds ratios of the second class.
    %(coefficients)s
    score_coef_ : ndarray of shape (n_features,)
        Coefficients of the predictions.
    score_intercept_ : float
        Intercept of the predictions.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [(rng.random(3000) < 1 / (1 + np.exp(-rows @ [2.0, -2.0]))).astype(int) for rows in X]
    >>> fitted = LogisticRegression(lower=-1, upper=1, epsilon=3, random_state=0, data="synthetic").fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [[2.0, -2.0]])) < 0.4), fitted.classes_.tolist()
    (True, [0, 1])
    """

    _algorithm: ClassVar[str] = "logistic-regression"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **ModelRegression._constraints,
        "response": optional(TWO_CLASSES),
    }

    method: Literal["auto", "newton", "polynomial"] = "auto"
    goal: Literal["auto", "predict", "inference"] = "auto"

    def _prepare_coding(self, vectors: Mapping[str, Any]) -> None:
        if self.response is not None:
            known = np.asarray(self.response)
        elif self.random_state is None:
            # Public by convention. Classes found in the data would disclose which labels occur.
            known = np.array([0, 1])
        else:
            known = self._classes_in(vectors, "response")
            if len(known) > 2:
                raise BadData("Only binary classification is supported. The type of the target is multiclass.")
        self.classes_ = known

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        # At the owner's own desk; a serving site counts such a value instead of refusing.
        if np.any((array != self.classes_[0]) & (array != self.classes_[1])):
            raise BadData("some values of y are not among the two classes: Unknown label type")
        return np.asarray(array == self.classes_[1], dtype=np.float64)

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return 0.0, 1.0

    @classmethod
    def _response_of(cls, design: Design) -> dict[str, Any]:
        if design.response not in design.levels:
            raise BadParameter(f"the response {design.response!r} needs two levels: name it in levels")
        return {"response": tuple(design.levels[design.response])}

    @classmethod
    def _labels_of(cls, design: Design, coded: dict[str, Floats]) -> dict[str, Any]:
        levels = np.asarray(design.levels[design.response])
        return {site: levels[each.astype(np.intp)] for site, each in coded.items()}

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.score_coef_: Floats = estimate["score_coefficients"].value.copy()
        self.score_intercept_ = float(estimate["score_intercept"][0])
        # scikit-learn's shape for two classes, (1, n_features).
        self.coef_ = self.coef_[None, :]

    def decision_function(self, X: Any, offset: Any = None) -> Floats:
        """Linear predictor of rows with `score_coef_`; it is positive for the second class.

        Parameters
        ----------
        %(rows_and_offset_to)s
        ndarray of shape (rows,)
            Linear predictors.
        """
        return self._shifted(self._own_rows(X) @ self.score_coef_ + self.score_intercept_, offset)

    def predict(self, X: Any, offset: Any = None) -> Any:
        """The more probable class of rows.

        Parameters
        ----------
        %(rows_and_offset_to)s
        ndarray of shape (rows,)
            Classes.
        """
        above = self.decision_function(X, offset) > 0
        return self.classes_[above.astype(np.intp)]

    def predict_proba(self, X: Any, offset: Any = None) -> Floats:
        """Probabilities of both classes.

        Parameters
        ----------
        %(rows_and_offset_to)s
        ndarray of shape (rows, 2)
            Probabilities; those of a row add up to one.
        """
        # exp overflows above 709 in double precision.
        second = 1 / (1 + np.exp(-np.clip(self.decision_function(X, offset), -700, 700)))
        return np.stack([1 - second, second], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PoissonRegression(RegressorMixin, ModelRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private Poisson regression with a logarithmic link over sites.

    `coef_` are logarithms of rate ratios. Predictions use `score_coef_`, which are shrunk more.

    Parameters
    ----------
    %(ranges)s
    response : float
        Public upper bound of the counts; larger counts are lowered to it. A seeded run may leave it out; it takes the
        largest count of the data and adds a note to `notes_`.
    %(offset_range)s
    %(regression)s
    rounds : int, optional
        Number of Newton rounds; by default the planner's choice.
    room : float, optional
        Squared norm above which rows have less weight, over the mean squared norm; by default the planner's choice.
    residual_clip : float, default=3.0
        Bound on a residual, in standard deviations of the residuals, which are released with every round.
    tails : float, optional
        Factor by which the bounds on residuals and rates may be wider if the noise allows it; by default the planner's
        choice.
    law : {"quasi-poisson", "negative-binomial"}, default="quasi-poisson"
        Variance of a count with mean m: `dispersion_` m, or m + `shape_` m^2.
    %(regression_evaluation)s
    %(privacy)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients in the units of the data: logarithms of rate ratios.
    score_coef_ : ndarray of shape (n_features,)
        Coefficients of the predictions.
    score_intercept_ : float
        Intercept of the predictions.
    dispersion_ : float
        Variance of the counts over that of the law, at least 1. Population standard errors use it.
    shape_ : float
        Shape of the negative binomial; 0 for "quasi-poisson".
    %(coefficients)s
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [rng.poisson(np.exp(rows @ [0.5, -0.5])) for rows in X]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> fitted = PoissonRegression(lower=-1, upper=1, response=10, epsilon=3, **seeded).fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [0.5, -0.5])) < 0.15)
    True
    """

    _algorithm: ClassVar[str] = "poisson-regression"
    _constraints: ClassVar[Mapping[str, Constraint]] = {**ModelRegression._constraints, "response": optional(POSITIVE)}

    response: float | None = None
    residual_clip: float = 3.0
    tails: float | None = None
    law: Literal["quasi-poisson", "negative-binomial"] = "quasi-poisson"

    @classmethod
    def _response_of(cls, design: Design) -> dict[str, Any]:
        ((low, high),) = super()._response_of(design).values()
        if low != 0:
            raise BadParameter(f"the range of the count {design.response!r} must begin at 0, got {low:g}")
        return {"response": high}

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        self._most = self._largest(tables)
        return 0.0, self._most

    def _largest(self, tables: Tables) -> float:
        """The public upper bound of the counts."""
        if self.response is not None:
            return float(self.response)
        if self.random_state is None:
            raise BadParameter("give the highest count that is expected, a public number: response=10")
        self._note("no response was given, so the highest count of the data was taken, which is not private")
        return max(1.0, max(float(np.max(np.asarray(units.rows)[:, -1])) for units in tables.values()))

    def _coded(self, values: Any) -> Floats:
        counts = super()._coded(values)
        if np.any(counts < 0):
            raise BadData("some counts are negative")
        return counts

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.score_coef_: Floats = estimate["score_coefficients"].value.copy()
        self.score_intercept_ = float(estimate["score_intercept"][0])
        self.dispersion_ = float(estimate["dispersion"][0])
        # results of earlier versions have no shape
        self.shape_ = float(estimate["shape"][0]) if "shape" in estimate else 0.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # the checks of scikit-learn have few rows, and the noise is large
        return tags

    def predict(self, X: Any, offset: Any = None) -> Floats:
        """Expected count of rows, at most the public upper bound of the counts where there is no offset.

        Warns (`ResultWarning`) where no slope is identified: the counts are then near the mean count, plus noise.

        Parameters
        ----------
        %(rows_and_offset_to)s
        ndarray of shape (rows,)
            Expected counts.
        """
        # first, as it checks that the model is fitted and the rows fit
        predictor = self._shifted(self._own_rows(X) @ self.score_coef_ + self.score_intercept_, offset)
        # coefficients that only collinear columns make unknown predict together
        known = (row.identified or row.reason == NEARLY_COLLINEAR for row in self.table_.rows[:-1])
        if self.coef_.size and not any(known):
            warnings.warn(
                "no coefficient of a feature is identified at this budget: predictions are the mean count and noise",
                ResultWarning,
                stacklevel=2,
            )
        # Counts beyond the bound were lowered to it in the fit. One row far out cannot spoil a sum of predictions.
        most = math.log(self._most) if offset is None else 700.0
        return np.asarray(np.exp(np.clip(predictor, -700, most)))
