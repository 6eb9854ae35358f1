"""Base class of private classifiers over sites, and the linear classifier on public features."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import ColumnRanges, Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.supervised import Supervised
from zerosum.estimators.validation import CLASSES, Constraint, of_type, optional
from zerosum.statistics.features import FeatureMap, build
from zerosum.statistics.softmax import BIAS


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class JointClassifier(ClassifierMixin, Supervised, ColumnRanges):  # type: ignore[misc]  # sklearn is untyped
    """Base class of classifiers: public classes, the class of every row as its last column, and probabilities.

    A subclass implements `_logits`.

    Parameters
    ----------
    %(classes)s
    """

    _dimensions: ClassVar[tuple[int, ...]] = (2, 3)
    _constraints: ClassVar[Mapping[str, Constraint]] = {**ColumnRanges._constraints, "classes": optional(CLASSES)}

    classes: Sequence[Any] | None = None

    @abstractmethod
    def _logits(self, rows: Floats) -> Floats:
        """Logarithm of the probability of each class (rows, n_classes), up to a constant per row."""

    # ---- classes ---------------------------------------------------------------------------------------------------

    def _prepare_coding(self, vectors: Mapping[str, Any]) -> None:
        if self.classes is not None:
            known = np.asarray(self.classes)
        elif self.random_state is None:
            raise BadParameter("give the public classes: classes=[0, 1, 2]")
        else:
            known = self._classes_in(vectors, "classes")
        self.classes_ = known

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        # `searchsorted` needs sorted labels; `order` leads back to the order in which the classes were given.
        order = np.argsort(self.classes_, kind="stable")
        known = self.classes_[order]
        try:
            place = np.minimum(np.searchsorted(known, array), len(known) - 1)
            sound = bool(np.all(known[place] == array))
        # Text and numbers do not compare.
        except TypeError:
            sound = False
        if not sound:
            raise BadData("some values of y are not among the classes: Unknown label type")
        return np.asarray(order[place], dtype=np.float64)

    @property
    def _class_names(self) -> tuple[Any, ...]:
        """The classes with whole numbers as floats, the type of the program."""
        return tuple(float(each) if isinstance(each, int) else each for each in self.classes_.tolist())

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Floats:
        """One validated table; the lines of an image (rows x height x width) follow each other in a row."""
        if getattr(data, "ndim", 2) == 3:
            shape = np.shape(data)[1:]
            if first:
                self._take_shape(shape)
            elif getattr(self, "_shape", shape) != shape:
                raise BadData(f"images have shape {shape[0]} x {shape[1]}, those of the first site another one")
            data = np.reshape(np.asarray(data), (len(data), -1))
        return super()._rows(data, first=first, **checks)

    def _take_shape(self, shape: tuple[int, ...]) -> None:
        """Store the shape of images, from the first site."""
        self._shape = shape

    # ---- predictions -----------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """Probability of each class.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_classes)
            Probabilities; those of a row add up to one.
        """
        logits = self._logits(self._own_rows(X))
        # The largest is subtracted, so that exp does not overflow.
        growth = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        return np.asarray(growth / np.sum(growth, axis=1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """The most probable class of each row.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows,)
            Classes.
        """
        best = np.argmax(self._logits(self._own_rows(X)), axis=1)
        return self.classes_[best]

    def _learn_quality(self, estimate: Estimate) -> None:
        """Set the attributes of the evaluation, if there was one."""
        if "accuracy" in estimate:
            self.accuracy_ = float(estimate["accuracy"][0])
            self.accuracy_interval_ = tuple(estimate["accuracy_interval_95"].tolist())
            self.confusion_: Floats = estimate["confusion"].value.copy()
            self.calibration_: Floats = estimate["calibration"].value.copy()


@documented
@dataclass(eq=False, repr=False)
class FeatureBased(JointClassifier):
    """A classifier on public features of the columns.

    Parameters
    ----------
    features : str, dict or FeatureMap, default="random"
        Public features: "scattering" (wavelet scattering of grey images), "random" (random waves of columns) or
        "linear" (the columns themselves); a dict with `kind` and settings; or a `FeatureMap`.
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **JointClassifier._constraints,
        "features": of_type(
            "the name of a kind, a dict with a kind and settings, or a FeatureMap", str, Mapping, FeatureMap
        ),
    }

    features: str | Mapping[str, Any] | FeatureMap = "random"

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        settings = self._settings(tables)
        # Stored, since predictions need the same map.
        self.features_ = build(settings)
        return super()._parameters(tables) | {"classes": self._class_names, "features": settings}

    def _settings(self, tables: Tables) -> dict[str, Any]:
        """Kind and settings of the features; settings that are not given follow from ranges and shape of images."""
        if isinstance(self.features, FeatureMap):
            return {"kind": self.features.kind, **self.features.model_dump()}
        settings: dict[str, Any] = {"kind": self.features} if isinstance(self.features, str) else dict(self.features)
        if settings.get("kind") == "scattering":
            shape = getattr(self, "_shape", None)
            side = math.isqrt(self.n_features_in_)
            # Rows without a shape are taken as square images, if the number of columns is a square.
            if shape is None and side * side == self.n_features_in_:
                shape = side, side
            if shape is not None:
                settings = {"height": int(shape[0]), "width": int(shape[1]), **settings}
            if not {"height", "width"} <= settings.keys():
                raise BadParameter(
                    "give the shape of the images: features={'kind': 'scattering', 'height': ..., 'width': ...}"
                )
            if self.ranges is not None:
                raise BadParameter("all pixels have one range: give it as lower and upper, not as ranges")
            for name, given in (("lowest", self.lower), ("highest", self.upper)):
                if given is not None:
                    settings.setdefault(name, float(np.asarray(given, dtype=np.float64).item()))
        elif settings.get("kind") in ("linear", "random") and "lower" not in settings:
            lower, upper = self._bounds_or_extremes(tables)
            settings |= {"lower": lower.tolist(), "upper": upper.tolist()}
        return settings

    def _directions(self, rows: Floats) -> Floats:
        """Whitened features of rows, each scaled to norm 1, as in the fit."""
        features = np.asarray(self.features_(rows), dtype=np.float64)
        # As `statistics.softmax.Whitened`, up to the rounding to whole numbers there.
        features = (features - self.center_) @ self.projection_
        norm = np.linalg.norm(features, axis=1, keepdims=True)
        return np.asarray(features / np.where(norm > 0, norm, 1.0))

    def _learn(self, estimate: Estimate) -> None:
        self.center_: Floats = estimate["center"].value.copy()
        self.projection_: Floats = estimate["projection"].value.copy()
        self.weights_: Floats = estimate["weights"].value.copy()


@documented
@dataclass(eq=False, repr=False)
class FeatureClassifier(FeatureBased):
    """Private softmax classifier on public features, over sites.

    The features do not depend on the data, so they cost no budget. The fit learns a whitening of the features and one
    weight for each direction and class, by gradient descent. Every unit takes part in every round.

    Parameters
    ----------
    features : str, dict or FeatureMap, default="random"
        Public features: "scattering" (wavelet scattering of grey images), "random" (random waves of columns) or
        "linear" (the columns themselves); a dict with `kind` and settings; or a map of `zerosum.statistics.features`.
    %(classes)s
    %(ranges)s
    directions : int, default=400
        Largest number of directions of the features that are used.
    whiten_share : float, default=0.06
        Share of the budget for the mean and the second moments of the features.
    evaluate_share : float, default=0
        Share of the budget for accuracy, confusion and calibration on held-out units. 0 makes no evaluation.
    hold_out : float, default=0.1
        Share of units that are held out for the evaluation, if there is one.
    rounds : int, optional
        Number of rounds of gradient descent; by default chosen from the noise.
    clip : float, optional
        Bound on the norm of a gradient; by default chosen from the noise.
    learning_rate : float, optional
        Length of a step; by default chosen from the noise.
    %(checkpoint)s
    %(privacy)s

    Attributes
    ----------
    %(feature_model)s
    projection_ : ndarray of shape (features, directions)
        Whitening of the features.
    weights_ : ndarray of shape (directions + 1, n_classes)
        Weights of the directions; those of the constant are last.
    %(quality)s
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (2000, 2)) for _ in range(3)]
    >>> y = [(np.prod(rows, axis=1) > 0).astype(int) for rows in X]
    >>> model = FeatureClassifier(classes=[0, 1], lower=-1, upper=1, epsilon=3, random_state=0, data="synthetic")
    >>> fitted = model.fit(X, y)
    >>> bool(fitted.score(X[0], y[0]) > 0.9)
    True
    """

    _algorithm: ClassVar[str] = "feature-classifier"

    _: KW_ONLY
    directions: int = 400
    whiten_share: float = 0.06
    evaluate_share: float = 0.0
    hold_out: float = 0.1
    rounds: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    attempts: int = 0
    checkpoint: str | PathLike[str] | None = None

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self._learn_quality(estimate)

    def _logits(self, rows: Floats) -> Floats:
        return np.asarray(self._directions(rows) @ self.weights_[:-1] + BIAS * self.weights_[-1])
