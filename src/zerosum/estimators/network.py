"""Private networks over sites.

Tested in tests/estimators/test_network_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from zerosum import algorithms
from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.estimators.base import DataMark, RangedEstimator, Tables
from zerosum.estimators.classifier import JointClassifier
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class NeuralClassifier(JointClassifier):
    """Private training of a network over sites: each step is one noisy sum of clipped gradients.

    For images and tables alike `FeatureClassifier` is usually the better choice: it spends nothing on features. A
    network pays where its features have to be learned and there are many units.

    Parameters
    ----------
    model : str, default="two-layer"
        "two-layer", a net with one hidden layer that needs NumPy alone, or the name of a PyTorch module in every site's
        registry ("perceptron", "tanh-cnn", or a site's own; see `zerosum.register_module`).
    hidden : int, default=16
        Rectified units of the two-layer net.
    settings : dict, optional
        What the module is built from; public.
    shape : tuple of int, optional
        What the module takes an example as; images (rows x height x width) have one channel unless it is given.
    classes : sequence
        The classes, which are public.
    lower, upper : float or array of shape (n_features,)
        Public ranges of the features.
    center, scale : float or array of shape (n_features,), optional
        What is declared of the features: an ordinary value, and an ordinary deviation from it.
    rate : float, default=1.0
        With 1 everybody takes part in every step; with less each site draws a secret sample for each step, which saves
        time and costs noise.
    steps, clip, learning_rate : optional
        Chosen from the noise, which is public, unless given.
    momentum : float, default=0.9
        Of "SGD".
    optimizer : str, default="SGD"
        Or another optimiser of PyTorch that treats every weight by itself, with `optimizer_settings`.
    averaging : float, default=0.5
        The share of the last steps whose weights are averaged.
    start : int, default=0
        The public seed of the weights to begin with.
    evaluate_share, hold_out
        As in `FeatureClassifier`.
    missing, epsilon, delta, scheme, colluders, dropouts, unit, policies, random_state, data, budget
        As in `LinearRegression`.

    attempts : int, default=0
        How many rounds, in all, may be tried once more after a loss or a kill; paid for in advance.
    checkpoint : path, optional
        A folder in which the training survives its process: the same fit with the same folder goes on where it was, and
        gives the result of a finished one again for nothing.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    weights_ : ndarray
        All weights, in one flat vector.
    accuracy_, accuracy_interval_, confusion_, calibration_
        Where they were bought, as in `FeatureClassifier`.
    privacy_, result_, notes_
        As in `PCA`.

    Notes
    -----
    **Fitting again is spending again**, and so is every setting that is tried. Predictions are free and stay with
    whoever holds the rows.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(1000, 2)) for _ in range(3)]
    >>> y = [(np.linalg.norm(rows, axis=1) > 1.2).astype(int) for rows in X]
    >>> made_up = {"random_state": 0, "data": "synthetic"}
    >>> net = NeuralClassifier(classes=[0, 1], lower=-4, upper=4, scale=1, steps=30, epsilon=5, **made_up)
    >>> bool(net.fit(X, y).score(X[0], y[0]) > 0.8)
    True
    """

    _algorithm: ClassVar[str] = "neural-classifier"

    def __init__(
        self,
        model: str = "two-layer",
        *,
        hidden: int = 16,
        settings: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        classes: Sequence[Any] | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        center: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        rate: float = 1.0,
        steps: int | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        momentum: float = 0.9,
        optimizer: str = "SGD",
        optimizer_settings: Mapping[str, Any] | None = None,
        averaging: float = 0.5,
        start: int = 0,
        evaluate_share: float = 0.0,
        hold_out: float = 0.1,
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
        attempts: int = 0,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        RangedEstimator.__init__(
            self,
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
        self.model = model
        self.hidden = hidden
        self.settings = settings
        self.shape = shape
        self.classes = classes
        self.center = center
        self.scale = scale
        self.rate = rate
        self.steps = steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.optimizer = optimizer
        self.optimizer_settings = optimizer_settings
        self.averaging = averaging
        self.start = start
        self.evaluate_share = evaluate_share
        self.hold_out = hold_out
        self.attempts = attempts
        self.checkpoint = checkpoint

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._ranges(tables)
        given = {
            "lower": lower,
            "upper": upper,
            "center": self._by_column("center"),
            "scale": self._by_column("scale"),
            "classes": self._class_names,
            "settings": dict(self.settings or {}),
            "optimizer_settings": dict(self.optimizer_settings or {}),
            "shape": self._module_shape,
        }
        plain = ("model", "hidden", "rate", "steps", "clip", "learning_rate", "momentum", "optimizer", "averaging")
        more = ("start", "evaluate_share", "hold_out", "missing")
        self._asked = given | {name: getattr(self, name) for name in (*plain, *more)}
        return self._asked

    @property
    def _module_shape(self) -> tuple[int, ...] | None:
        if self.shape is not None:
            return tuple(int(each) for each in self.shape)
        image = getattr(self, "_shape", None)
        return None if image is None or self.model == "two-layer" else (1, *image)

    def _ranges(self, tables: Tables) -> tuple[Floats, Floats]:
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if lower is not None and upper is not None:
            return lower, upper
        if self.random_state is None:
            raise BadParameter(
                "give public ranges (lower and upper) of the features: data must not set their own bounds"
            )
        stacked = np.concatenate([np.asarray(units.rows)[:, :-1] for units in tables.values()])
        lower = np.nanmin(stacked, axis=0) if lower is None else lower
        upper = np.nanmax(stacked, axis=0) if upper is None else upper
        self._note("no ranges were given, so they were read off the data, which is not private")
        return lower, np.where(upper > lower, upper, lower + 1.0)

    def _learn(self, estimate: Estimate) -> None:
        self.weights_: Floats = estimate["weights"].value.copy()
        self._learn_quality(estimate)

    def _logits(self, rows: Floats) -> Floats:
        program = algorithms.NeuralClassifierProgram(**self._asked, columns=self._columns)
        return np.asarray(np.log(np.maximum(program.probabilities(self.weights_, rows), 1e-300)))
