"""Private classifiers over sites: what they share, and the linear one on public features.

Tested in tests/estimators/test_classifier_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import DataMark, JointEstimator, RangedEstimator, Tables, bad_data
from zerosum.estimators.supervised import Supervised
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.statistics.features import FeatureMap, build
from zerosum.statistics.softmax import BIAS
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class JointClassifier(ClassifierMixin, Supervised, RangedEstimator):  # type: ignore[misc]  # sklearn is untyped
    """What classifiers share: public classes, the class of every row as its last column, and probabilities.

    A subclass has `classes`, and says how far each class is ahead for rows of its own (`_logits`).
    """

    _dimensions: ClassVar[tuple[int, ...]] = (2, 3)
    classes: Sequence[Any] | None

    @abstractmethod
    def _logits(self, rows: Floats) -> Floats:
        """Logarithms of the classes' probabilities for each row, up to a constant for the row."""

    # ---- classes ---------------------------------------------------------------------------------------------------

    def _see(self, vectors: Mapping[str, Any]) -> None:
        if self.classes is not None:
            known = np.asarray(self.classes)
            if known.ndim != 1 or len(known) < 2 or len(np.unique(known)) < len(known):
                raise BadParameter("classes must be two or more different labels")
        elif self.random_state is None:
            raise BadParameter("give the classes, which are public: classes=[0, 1, 2]")
        else:
            values = np.concatenate([np.asarray(vector) for vector in vectors.values()])
            if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
                raise BadData("some values of y are not finite (NaN or infinity)")
            with bad_data():
                check_classification_targets(values)
            known = np.unique(values)
            if len(known) == 1:
                raise BadData("a classifier is for two classes or more, y has one class")
            self._note("the classes were read off the data, which is not private")
        self.classes_ = known

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        order = np.argsort(self.classes_, kind="stable")
        known = self.classes_[order]
        try:
            place = np.minimum(np.searchsorted(known, array), len(known) - 1)
            sound = bool(np.all(known[place] == array))
        except TypeError:
            sound = False
        if not sound:
            raise BadData("some values of y are none of the classes: Unknown label type")
        return np.asarray(order[place], dtype=np.float64)

    @property
    def _class_names(self) -> tuple[Any, ...]:
        """The classes as a program takes them."""
        return tuple(float(each) if isinstance(each, int) else each for each in self.classes_.tolist())

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Floats:
        """One validated table; images (rows x height x width) are laid out line by line."""
        if getattr(data, "ndim", 2) == 3:
            shape = np.shape(data)[1:]
            if first:
                self._take_shape(shape)
            elif getattr(self, "_shape", shape) != shape:
                raise BadData(f"images are {shape[0]} x {shape[1]} here, those of the first site are not")
            data = np.reshape(np.asarray(data), (len(data), -1))
        return super()._rows(data, first=first, **checks)

    def _take_shape(self, shape: tuple[int, ...]) -> None:
        """What images look like, by the first site's."""
        self._shape = shape

    # ---- predictions -----------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Floats:
        """The probability of every class.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site; predictions are free, and stay with whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_classes)
        """
        logits = self._logits(self._own_rows(X))
        growth = np.exp(logits - np.max(logits, axis=1, keepdims=True))
        return np.asarray(growth / np.sum(growth, axis=1, keepdims=True))

    def predict(self, X: Any) -> Any:
        """The most probable class of rows.

        Parameters
        ----------
        X : array of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        best = np.argmax(self._logits(self._own_rows(X)), axis=1)
        return self.classes_[best]

    def _learn_quality(self, estimate: Estimate) -> None:
        """What was bought about how good the classifier is."""
        if "accuracy" in estimate:
            self.accuracy_ = float(estimate["accuracy"][0])
            self.accuracy_interval_ = tuple(estimate["accuracy_interval_95"].tolist())
            self.confusion_: Floats = estimate["confusion"].value.copy()
            self.calibration_: Floats = estimate["calibration"].value.copy()


class FeatureBased(JointClassifier):
    """A classifier on public features: what they are, from `features`, `lower` and `upper`."""

    features: str | Mapping[str, Any] | FeatureMap

    def _settings(self, tables: Tables) -> dict[str, Any]:
        """The features' kind and settings; those that are not given follow from ranges and from how images look."""
        settings = self._chosen(tables)
        self.features_ = build(settings)
        return settings

    def _chosen(self, tables: Tables) -> dict[str, Any]:
        if isinstance(self.features, FeatureMap):
            return {"kind": self.features.kind, **self.features.model_dump()}
        if isinstance(self.features, str):
            settings: dict[str, Any] = {"kind": self.features}
        elif isinstance(self.features, Mapping):
            settings = dict(self.features)
        else:
            raise BadParameter("features must be a kind, a dict with a kind and settings, or a FeatureMap")
        if settings.get("kind") == "scattering":
            shape = getattr(self, "_shape", None)
            side = math.isqrt(self.n_features_in_)
            if shape is None and side * side == self.n_features_in_:
                shape = side, side
            if shape is not None:
                settings = {"height": int(shape[0]), "width": int(shape[1]), **settings}
            if not {"height", "width"} <= settings.keys():
                raise BadParameter(
                    "say how images lie in the columns: features={'kind': 'scattering', 'height': ..., 'width': ...}"
                )
            for name, given in (("lowest", self.lower), ("highest", self.upper)):
                if given is not None:
                    settings.setdefault(name, float(np.asarray(given, dtype=np.float64).item()))
        elif settings.get("kind") in ("linear", "random") and "lower" not in settings:
            settings |= self._ranges(tables)
        return settings

    def _ranges(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if lower is None or upper is None:
            if self.random_state is None:
                raise BadParameter("give public ranges (lower and upper) of the columns: data must not set their own")
            stacked = np.concatenate([np.asarray(units.rows)[:, :-1] for units in tables.values()])
            lower = np.min(stacked, axis=0) if lower is None else lower
            upper = np.max(stacked, axis=0) if upper is None else upper
            upper = np.where(upper > lower, upper, lower + 1.0)
            self._note("no ranges were given, so they were read off the data, which is not private")
        return {"lower": lower.tolist(), "upper": upper.tolist()}

    def _directions(self, rows: Floats) -> Floats:
        """Rows as the whitened features of norm 1 that a study saw of them."""
        found = np.asarray(self.features_(rows), dtype=np.float64)
        found = (found - self.center_) @ self.projection_
        norm = np.linalg.norm(found, axis=1, keepdims=True)
        return np.asarray(found / np.where(norm > 0, norm, 1.0))

    def _learn(self, estimate: Estimate) -> None:
        self.center_: Floats = estimate["center"].value.copy()
        self.projection_: Floats = estimate["projection"].value.copy()
        self.weights_: Floats = estimate["weights"].value.copy()


class FeatureClassifier(FeatureBased):
    """Private softmax classifier on public features, over sites.

    Nothing of the features is learned from data, so nothing is spent on them: wavelet scattering for images, random
    waves for tables. What is learned is a whitener and one weight for each direction and class, by gradient descent in
    which every unit takes part in every round.

    Parameters
    ----------
    features : str, dict or FeatureMap, default="random"
        "scattering" for grey images, "random" for tables, "linear" for columns as they are; a dict with `kind` and
        settings; or a map from `zerosum.statistics.features`.
    classes : sequence
        The classes, which are public.
    lower, upper : float or array of shape (n_features,)
        Public ranges of the columns, or of the pixels.
    evaluate_share : float, default=0
        The share of the budget that buys accuracy, confusion and calibration on held-out units.
    hold_out : float, default=0.1
        About how many of the units are held out then.
    rounds, clip, learning_rate : optional
        Chosen from the noise, which is public, unless given.
    epsilon, delta, scheme, colluders, dropouts, unit, policies, random_state, data, budget
        As in `PCA`.

    attempts : int, default=0
        How many rounds, in all, may be tried once more after a loss or a kill; paid for in advance.
    checkpoint : path, optional
        A folder in which the training survives its process: the same fit with the same folder goes on where it was, and
        gives the result of a finished one again for nothing.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    center_, projection_, weights_ : ndarrays
        What features are centred at, their whitener, and the weights of its directions, that of the constant last.
    accuracy_, accuracy_interval_, confusion_, calibration_
        Where they were bought: the share of held-out units that are classified rightly with a 95 % interval (sampling
        and privacy), counts by true and predicted class, and by the predicted class's probability (all, those right).
    privacy_, result_, notes_
        As in `PCA`.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (2000, 2)) for _ in range(3)]
    >>> y = [(np.prod(rows, axis=1) > 0).astype(int) for rows in X]
    >>> model = FeatureClassifier(classes=[0, 1], lower=-1, upper=1, epsilon=3, random_state=0, data="synthetic")
    >>> fitted = model.fit(X, y)
    >>> bool(fitted.score(X[0], y[0]) > 0.9)
    True
    """

    _algorithm: ClassVar[str] = "feature-classifier"

    def __init__(
        self,
        features: str | Mapping[str, Any] | FeatureMap = "random",
        *,
        classes: Sequence[Any] | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        evaluate_share: float = 0.0,
        hold_out: float = 0.1,
        rounds: int | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
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
        attempts: int = 0,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        JointEstimator.__init__(
            self,
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
        self.features = features
        self.classes = classes
        self.lower = lower
        self.upper = upper
        self.evaluate_share = evaluate_share
        self.hold_out = hold_out
        self.attempts = attempts
        self.checkpoint = checkpoint
        self.rounds = rounds
        self.clip = clip
        self.learning_rate = learning_rate

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return {
            "classes": self._class_names,
            "features": self._settings(tables),
            "evaluate_share": self.evaluate_share,
            "hold_out": self.hold_out,
            "rounds": self.rounds,
            "clip": self.clip,
            "learning_rate": self.learning_rate,
        }

    def _learn(self, estimate: Estimate) -> None:
        super()._learn(estimate)
        self._learn_quality(estimate)

    def _logits(self, rows: Floats) -> Floats:
        return np.asarray(self._directions(rows) @ self.weights_[:-1] + BIAS * self.weights_[-1])
