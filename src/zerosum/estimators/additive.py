"""Private additive models over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.validation import check_is_fitted

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import Tables, several_tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.supervised import Supervised, numbers
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.estimators.validation import LIST, MAPPING, RANGES, Constraint, one_of, optional
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.schemes import Scheme
from zerosum.study.additive_shapes import AdditiveShapes


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class AdditiveModel(Supervised, TableEstimator):
    """Private additive model over sites: one function of each column, for two classes or for numbers.

    The model is a constant plus a function of each column (Hastie and Tibshirani, Generalized Additive Models, 1990),
    and of pairs of columns that are given. Functions are constant on levels, or on intervals of the public range.
    Missing and undeclared values have a cell of their own.

    Parameters
    ----------
    task : {"classification", "regression"}, default="classification"
        Whether the response is one of two classes, with log odds as the scale of the functions, or a number.
    response : pair, optional
        The two public classes, the reference first, by default (0, 1); for regression the public lowest and highest
        value, which must be given. A seeded run takes either from the data and adds a note to `notes_`.
    ranges : dict of str to tuple, optional
        Public lowest and highest value of each column of numbers.
    levels : dict of str to sequence, optional
        Public categories of each other column.
    whole : sequence of str
        Columns of whole numbers.
    pairs : sequence of (str, str)
        Pairs of columns that have a function of both, beside those of each.
    smooth : sequence of str
        Columns of numbers whose functions have no jumps.
    rising, falling : sequence of str
        Columns of numbers whose functions must not fall, or must not rise.
    bins : int, optional
        Fine bins of each column of numbers, from which cells are made; by default chosen from the noise.
    cells : int, optional
        Most cells of a column of numbers; by default chosen from the noise.
    rounds : int, optional
        Rounds; by default chosen from the noise.
    %(privacy)s

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The two classes, the reference first; for classification.
    effects_ : ndarray of shape (cells of all terms,)
        Effect of each cell, with mean 0 over the units in every term: log odds, or the unit of the response.
    intercept_ : float
        The constant.
    importance_ : dict of str to float
        Standard deviation of each term's effect over the units.
    model_ : AdditiveShapes
        The released model.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (3000, 2)) for _ in range(3)]
    >>> y = [(rng.random(3000) < 1 / (1 + np.exp(-3 * np.abs(rows[:, 0]) + 1.5))).astype(int) for rows in X]
    >>> model = AdditiveModel(ranges={"x0": (-1, 1), "x1": (-1, 1)}, epsilon=3, random_state=0, data="synthetic")
    >>> model = model.fit(X, y)
    >>> model.predict([[0.9, 0.0], [0.0, 0.0], [-0.9, 0.0]]).tolist()
    [1, 0, 1]
    >>> max(model.importance_, key=model.importance_.get)
    'x0'
    """

    _algorithm: ClassVar[str] = "additive-model"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **TableEstimator._constraints,
        "task": one_of("classification", "regression"),
        "ranges": optional(RANGES),
        "levels": optional(MAPPING),
        "whole": LIST,
        "pairs": LIST,
        "smooth": LIST,
        "rising": LIST,
        "falling": LIST,
    }

    task: Literal["classification", "regression"] = "classification"
    response: ArrayLike | None = None
    ranges: Mapping[str, tuple[float, float]] | None = None
    levels: Levels | None = None
    whole: Sequence[str] = ()
    pairs: Sequence[tuple[str, str]] = ()
    smooth: Sequence[str] = ()
    rising: Sequence[str] = ()
    falling: Sequence[str] = ()
    bins: int | None = None
    cells: int | None = None
    rounds: int | None = None

    @property
    def _classifies(self) -> bool:
        return self.task == "classification"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if self._classifies:
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    # ---- the data --------------------------------------------------------------------------------------------------

    @property
    def _declared(self) -> tuple[str, ...]:
        return (*(self.ranges or {}), *(self.levels or {}))

    @property
    def _categories(self) -> Levels:
        return self.levels or {}

    @property
    def _allows_missing(self) -> bool:
        return True  # missing values have a cell of their own

    def _tables(self, X: Any, sites: Any, scheme: Scheme) -> Tables:
        # Before the data are read, since the declaration selects the columns.
        if not self._declared:
            raise BadParameter("give ranges={column: (lowest, highest)}, levels={column: [...]}, or both")
        return super()._tables(X, sites, scheme)

    def _prepare_coding(self, vectors: Mapping[str, Any]) -> None:
        given = None if self.response is None else np.asarray(self.response)
        if given is not None and given.shape != (2,):
            raise BadParameter(f"response must be a pair, got shape {given.shape}")
        if self._classifies:
            # Public by convention. Classes found in the data would disclose which labels occur.
            known = np.array([0, 1]) if given is None else given
            if given is None and self.random_state is not None:
                known = self._classes_in(vectors, "response")
                if len(known) > 2:
                    raise BadData("Only binary classification is supported. The type of the target is multiclass.")
            self.classes_: NDArray[Any] = known
            return
        if given is None:
            if self.random_state is None:
                raise BadParameter("give the public range of the response: response=(lowest, highest)")
            self._note("no response was given, so the extremes of the data were taken, which is not private")
            values = np.concatenate([numbers(vector) for vector in vectors.values()])
            low, high = float(np.min(values)), float(np.max(values))
            given = np.array([low, high if high > low else low + 1.0])
        self._range = (float(given[0]), float(given[1]))

    def _coded(self, values: Any) -> Floats:
        if not self._classifies:
            return numbers(values)
        array = np.asarray(values)
        # At the owner's own desk; a serving site counts such a value as missing.
        if np.any((array != self.classes_[0]) & (array != self.classes_[1])):
            raise BadData("some values of y are not among the two classes: Unknown label type")
        return np.asarray(array == self.classes_[1], dtype=np.float64)

    # ---- the program -----------------------------------------------------------------------------------------------

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        ranges = {name: tuple(each) for name, each in (self.ranges or {}).items()}
        levels: dict[str, Any] = {name: tuple(each) for name, each in self._categories.items()}
        if self._classifies:
            levels["response"] = (0.0, 1.0)
        else:
            ranges["response"] = self._range
        # Tuples, since a plan and its digest must not depend on the type of a sequence.
        return super()._parameters(tables) | {
            "ranges": ranges,
            "levels": levels,
            "whole": tuple(self.whole),
            "pairs": tuple((str(a), str(b)) for a, b in self.pairs),
            "smooth": tuple(self.smooth),
            "rising": tuple(self.rising),
            "falling": tuple(self.falling),
        }

    def _learn(self, estimate: Estimate) -> None:
        self.effects_: Floats = np.asarray(estimate["effects"].value)
        self.intercept_ = float(estimate["constant"][0])
        self.importance_: dict[str, float] = estimate["importance"].labelled()
        self.model_ = AdditiveShapes.of(self.result_)

    # ---- the fitted model ------------------------------------------------------------------------------------------

    def _own_rows(self, X: Any) -> Floats:
        check_is_fitted(self, "result_")
        # Rows of two sites in one call would mean that one holder sees both.
        if isinstance(X, Units | Mapping) or several_tables(X, (2,)):
            raise BadData("give one array with rows of one site: call this method for each site, at the site")
        return np.asarray(self._units(X, first=False).rows)

    def shape(self, term: str) -> Quantity:
        """The function of a term: the effect of each of its cells.

        Parameters
        ----------
        term : str
            A column, or a pair as "a x b".

        Returns
        -------
        Quantity
            Effects, labelled by cells.
        """
        self._fitted()
        return self.model_.shape(term)

    def decision_function(self, X: Any) -> Floats:
        """Log odds of the second class.

        Parameters
        ----------
        X : array or frame
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows,)
            Positive for the second class.
        """
        rows = self._own_rows(X)
        if not self._classifies:
            raise BadParameter("decision_function is for task='classification': use predict")
        return self.model_.predictor(rows)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the two classes.

        Parameters
        ----------
        X : array or frame
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows, 2)
            In the order of `classes_`.
        """
        rows = self._own_rows(X)
        if not self._classifies:
            raise BadParameter("predict_proba is for task='classification': use predict")
        second = self.model_.probability(rows)
        return np.column_stack([1 - second, second])

    def predict(self, X: Any) -> Any:
        """The more probable class, or the expected response within its public range.

        Parameters
        ----------
        X : array or frame
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows,)
            Classes or numbers.
        """
        found = self.model_.predictor(self._own_rows(X))
        return self.classes_[(found > 0).astype(np.intp)] if self._classifies else found

    def explain(self, X: Any) -> list[dict[str, Any]]:
        """The constant and the effect of every term in each row, from the largest to the smallest.

        Parameters
        ----------
        X : array or frame
            Rows of one site.

        Returns
        -------
        list of dict
            One for each row; its values add up to `decision_function`, or to the prediction before it is limited to
            the range.
        """
        return self.model_.explain(self._own_rows(X))

    def score(self, X: Any, y: Any) -> float:
        """Accuracy, or the share of the variance that is explained.

        Exact on its rows: on private rows it is not protected and must not leave the site that holds them.

        Parameters
        ----------
        X : array or frame
            Rows of one site.
        y : array
            Their responses.

        Returns
        -------
        float
            At most 1.
        """
        return float((accuracy_score if self._classifies else r2_score)(y, self.predict(X)))
