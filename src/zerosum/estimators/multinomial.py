"""Private multinomial logistic regression over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.regression import JointRegression
from zerosum.estimators.validation import CLASSES, Constraint, optional
from zerosum.report.coefficients import CoefficientTable


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class MultinomialRegression(ClassifierMixin, JointRegression):  # type: ignore[misc]  # sklearn is untyped
    """Private logistic regression of three classes or more over sites.

    `coef_` are logarithms of odds ratios of each class against the first one, the reference. For two classes take
    `LogisticRegression`; for predictions from many columns or images `FeatureClassifier`.

    Parameters
    ----------
    %(ranges)s
    response : sequence, optional
        The public classes, the reference first; at least three. A seeded run without it takes the classes of the data
        and adds a note to `notes_`.
    %(regression)s
    rounds : int, optional
        Number of Newton rounds; by default the planner's choice.
    room : float, optional
        Squared norm above which rows have less weight, over the mean squared norm; by default the planner's choice.
    %(privacy)s

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, the reference first.
    coef_ : ndarray of shape (n_classes - 1, n_features)
        Coefficients in the units of the data: logarithms of odds ratios against the reference.
    intercept_ : ndarray of shape (n_classes - 1,)
        Intercepts.
    table_ : CoefficientTable
        Coefficients with both kinds of intervals, one row for each class and column; `print(model.table_)` shows it.
    noise_std_ : ndarray of shape (n_classes - 1, n_features)
        Standard deviation that privacy adds to each coefficient.
    population_std_ : ndarray of shape (n_classes - 1, n_features)
        Standard error of each coefficient for the population: sampling and privacy together.
    p_value_ : ndarray of shape (n_classes - 1, n_features)
        P value of the test that a coefficient of the population is 0.
    wald_p_value_ : float
        P value of the joint test of all coefficients but the intercepts.
    score_coef_ : ndarray of shape (n_classes - 1, n_features)
        Coefficients of the predictions, which are shrunk more.
    score_intercept_ : ndarray of shape (n_classes - 1,)
        Intercepts of the predictions.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> W = np.array([[0.0, 0.0], [2.0, -1.0], [-1.0, 2.0]])
    >>> y = [np.argmax(rows @ W.T + rng.gumbel(size=(3000, 3)), axis=1) for rows in X]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> fitted = MultinomialRegression(lower=-1, upper=1, response=[0, 1, 2], epsilon=4, **seeded).fit(X, y)
    >>> bool(np.max(np.abs(fitted.coef_ - W[1:])) < 0.5), fitted.predict_proba([[0.5, 0.5]]).shape
    (True, (1, 3))
    """

    _algorithm: ClassVar[str] = "multinomial-regression"
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **JointRegression._not_parameters,
        "classes": "given as `response`",
        **dict.fromkeys(
            ("offset", "evaluate_share", "hold_out", "draw"),
            "the program refuses it: a model of several classes has none",
        ),
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {**JointRegression._constraints, "response": optional(CLASSES)}

    rounds: int | None = None
    room: float | None = None

    def fit(self, X: Any, y: Any = None, *, sites: ArrayLike | None = None, weights: Any = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        y : list or dict of vectors, or one vector
            Class of every row, by site as X.
        %(fit_sites)s
        weights : as y, optional
            Weight of every row, from 0 to 1. Weights are private, as all columns of a unit.

        %(fit_returns)s
        """
        return self._fit_to(X, y, sites, {"weights": weights})

    def _prepare_coding(self, vectors: Mapping[str, Any]) -> None:
        if self.response is not None:
            known = np.asarray(self.response)
        elif self.random_state is None:
            # Classes found in the data would disclose which labels occur.
            raise BadParameter("give the public classes, the reference first: response=['none', 'mild', 'severe']")
        else:
            known = self._classes_in(vectors, "response")
        if len(known) < 3:
            raise BadParameter(f"there must be three classes or more, got {len(known)}: LogisticRegression takes two")
        self.classes_ = known

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        matches = array[:, None] == self.classes_[None, :]
        # At the owner's own desk; a serving site counts such a value instead of refusing.
        if not np.all(np.any(matches, axis=1)):
            raise BadData("some values of y are not among the classes: Unknown label type")
        return np.asarray(np.argmax(matches, axis=1), dtype=np.float64)

    def _response_range(self, tables: Tables) -> tuple[float, float]:
        return 0.0, float(len(self.classes_) - 1)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {"classes": tuple(self.classes_.tolist())}

    def _learn(self, estimate: Estimate) -> None:
        self.score_coef_: Floats = estimate["score_coefficients"].value.copy()
        self.score_intercept_: Floats = estimate["score_intercept"].value.copy()
        self.table_ = CoefficientTable.of(estimate, self._algorithm)
        others, features = self.score_coef_.shape
        by_class = {
            name: estimate[name].value.reshape(others, -1)
            for name in ("coefficients", "pooled_std", "population_std", "p_value")
        }
        # The intercept of a class is the last of its coefficients.
        self.coef_: Floats = by_class["coefficients"][:, :features].copy()
        intercepts = by_class["coefficients"][:, features:].copy()
        self.intercept_: Any = intercepts[:, 0] if self.fit_intercept else np.zeros(others)
        self.noise_std_: Floats = by_class["pooled_std"][:, :features].copy()
        self.population_std_: Floats = by_class["population_std"][:, :features].copy()
        self.p_value_: Floats = by_class["p_value"][:, :features].copy()
        self.wald_p_value_ = float(estimate["wald_p_value"][0]) if "wald_p_value" in estimate else float("nan")
        unidentified = sum(not row.identified for row in self.table_.rows)
        if unidentified:
            self._note(f"{unidentified} of {len(self.table_.rows)} coefficients are not identified at this budget")

    def decision_function(self, X: Any) -> Floats:
        """Logarithms of the odds of every class against the reference with `score_coef_`; 0 for the reference.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_classes)
            Logarithms of odds.
        """
        rows = self._own_rows(X)
        odds = rows @ self.score_coef_.T + self.score_intercept_
        return np.concatenate([np.zeros((len(rows), 1)), odds], axis=1)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_classes)
            Probabilities; those of a row add up to one.
        """
        odds = self.decision_function(X)
        # The largest is subtracted, so that exp cannot overflow.
        likely = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(likely / likely.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """The most probable class of rows.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows,)
            Classes.
        """
        return self.classes_[np.argmax(self.decision_function(X), axis=1)]
