"""Private logistic and Poisson regression over sites.

Tested in tests/estimators/test_regression_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import Tables, bad_data
from zerosum.estimators.regression import JointRegression


class LogisticRegression(ClassifierMixin, JointRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private logistic regression of two classes over sites.

    Parameters are those of `LinearRegression`, but for `response`: the two classes, public, the reference first; (0, 1)
    unless given. `coef_` are logarithms of odds ratios. Predictions rest on `score_coef_`, which are shrunk more and
    rank better.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two classes, the reference first.
    coef_, intercept_, coef_std_, table_
        As in `LinearRegression`; `coef_` has one row, as scikit-learn has it.
    score_coef_, score_intercept_
        What predictions rest on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [(rng.random(3000) < 1 / (1 + np.exp(-rows @ [2.0, -2.0]))).astype(int) for rows in X]
    >>> fitted = LogisticRegression(lower=-1, upper=1, epsilon=3, random_state=0, data="synthetic").fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [[2.0, -2.0]])) < 0.4), fitted.classes_.tolist()
    (True, [0, 1])
    """

    _algorithm: ClassVar[str] = "logistic-regression"

    def _see(self, vectors: Mapping[str, Any]) -> None:
        if self.response is not None:
            known = np.asarray(self.response)
            if known.shape != (2,) or known[0] == known[1]:
                raise BadParameter("response must be the two classes, the reference first")
        elif self.random_state is None:
            known = np.array([0, 1])
        else:
            values = np.concatenate([np.asarray(vector) for vector in vectors.values()])
            if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
                raise BadData("some values of y are not finite (NaN or infinity)")
            with bad_data():
                check_classification_targets(values)
            known = np.unique(values)
            if len(known) == 1:
                raise BadData("logistic regression is for two classes, y has one class")
            if len(known) > 2:
                raise BadData("Only binary classification is supported. The type of the target is multiclass.")
            self._note("the classes were read off the data, which is not private")
        self.classes_ = known

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        if np.any((array != self.classes_[0]) & (array != self.classes_[1])):
            raise BadData("some values of y are none of the two classes: Unknown label type")
        return np.asarray(array == self.classes_[1], dtype=np.float64)

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return 0.0, 1.0

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self.score_coef_: Floats = estimate["score_coefficients"].value.copy()
        self.score_intercept_ = float(estimate["score_intercept"][0])
        self.coef_ = self.coef_[None, :]

    def decision_function(self, X: Any, offset: Any = None) -> Floats:
        """The linear predictor of rows by the coefficients that rank best; above 0 is the second class.

        Parameters
        ----------
        X : array of shape (rows, n_features)
        offset : array of shape (rows,), optional
            Their offset; 0 unless given.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return self._shifted(self._own_rows(X) @ self.score_coef_ + self.score_intercept_, offset)

    def predict(self, X: Any, offset: Any = None) -> Any:
        """The more probable class of rows.

        Parameters
        ----------
        X : array of shape (rows, n_features)
        offset : array of shape (rows,), optional
            Their offset; 0 unless given.

        Returns
        -------
        ndarray of shape (rows,)
        """
        above = self.decision_function(X, offset) > 0
        return self.classes_[above.astype(np.intp)]

    def predict_proba(self, X: Any, offset: Any = None) -> Floats:
        """The probabilities of both classes.

        Parameters
        ----------
        X : array of shape (rows, n_features)
        offset : array of shape (rows,), optional
            Their offset; 0 unless given.

        Returns
        -------
        ndarray of shape (rows, 2)
        """
        second = 1 / (1 + np.exp(-np.clip(self.decision_function(X, offset), -700, 700)))
        return np.stack([1 - second, second], axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PoissonRegression(RegressorMixin, JointRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private Poisson regression with a logarithmic link over sites.

    Parameters are those of `LinearRegression`, but for `response`: the highest count, public. Counts above it count as
    it. `coef_` are logarithms of rate ratios.

    Attributes
    ----------
    coef_, intercept_, coef_std_, table_
        As in `LinearRegression`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [rng.poisson(np.exp(rows @ [0.5, -0.5])) for rows in X]
    >>> made_up = {"random_state": 0, "data": "synthetic"}
    >>> fitted = PoissonRegression(lower=-1, upper=1, response=10, epsilon=3, **made_up).fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - [0.5, -0.5])) < 0.15)
    True
    """

    _algorithm: ClassVar[str] = "poisson-regression"

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        if self.response is not None:
            most = np.asarray(self.response, dtype=np.float64)
            if most.shape != () or not most > 0:
                raise BadParameter("response must be the highest count, one positive number")
            return 0.0, float(most)
        if self.random_state is None:
            raise BadParameter("give the highest count that is expected, a public number: response=10")
        self._note("the highest count was read off the data, which is not private")
        return 0.0, max(1.0, max(float(np.max(np.asarray(units.rows)[:, -1])) for units in tables.values()))

    def _coded(self, values: Any) -> Floats:
        counts = super()._coded(values)
        if np.any(counts < 0):
            raise BadData("some counts are negative")
        return counts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        tags.regressor_tags.poor_score = True  # noise, on few rows
        return tags

    def predict(self, X: Any, offset: Any = None) -> Floats:
        """The expected count of rows.

        Parameters
        ----------
        X : array of shape (rows, n_features)
        offset : array of shape (rows,), optional
            Their offset; 0 unless given.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return np.asarray(np.exp(np.clip(self._predictor(X, offset), -700, 700)))
