"""Private neural networks over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from zerosum import algorithms
from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import Tables
from zerosum.estimators.classifier import JointClassifier
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import LIST, MAPPING, Constraint, optional
from zerosum.kernel.missing import Missing


@documented
@dataclass(eq=False, repr=False)
class NeuralClassifier(JointClassifier):
    """Private training of a neural network over sites. Each step is one noisy sum of clipped gradients.

    `FeatureClassifier` is usually better for images and tables, because its features cost no budget. A network is
    better if its features have to be learned and there are many units.

    Parameters
    ----------
    model : str, default="two-layer"
        "two-layer", a network with one hidden layer that needs NumPy only, or the name of a PyTorch module in the
        registry of every site ("perceptron", "tanh-cnn", or one of your own; see `zerosum.register_module`).
    hidden : int, default=16
        Number of rectified units of the two-layer network.
    settings : dict, optional
        Public arguments of the module.
    shape : tuple of int, optional
        Shape of an example for the module; by default images (rows x height x width) have one channel.
    %(classes)s
    %(ranges)s
    center, scale : float or array of shape (n_features,), optional
        A typical value of each feature and a typical deviation from it, if these are public knowledge.
    rate : float, default=1.0
        Probability that a unit takes part in a step. With 1 all units take part in every step. A smaller rate saves
        time and adds noise.
    steps : int, optional
        Number of steps; by default chosen from the noise.
    clip : float, optional
        Bound on the norm of a gradient; by default chosen from the noise.
    learning_rate : float, optional
        Length of a step; by default chosen from the noise.
    momentum : float, default=0.9
        Momentum of the optimiser "SGD".
    optimizer : str, default="SGD"
        "SGD", or another optimiser of PyTorch that updates every weight by itself.
    optimizer_settings : dict, optional
        Public arguments of another optimiser.
    averaging : float, default=0.5
        Share of the last steps whose weights are averaged.
    start : int, default=0
        Public seed of the first weights. It does not affect privacy.
    evaluate_share : float, default=0
        Share of the budget for accuracy, confusion and calibration on held-out units. 0 makes no evaluation.
    hold_out : float, default=0.1
        Share of units that are held out for the evaluation, if there is one.
    batch : int, default=256
        Number of examples whose gradients are computed at once. It changes memory and time, not the result.
    precision : {"float32", "float64"}, default="float32"
        Precision of the gradients of PyTorch modules.
    %(missing)s
    %(checkpoint)s
    %(privacy)s

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    weights_ : ndarray
        All weights in one vector.
    %(quality)s
    %(fitted)s

    %(notes)s

    Every setting that is tried on private data is one more fit, with its own cost.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(1000, 2)) for _ in range(3)]
    >>> y = [(np.linalg.norm(rows, axis=1) > 1.2).astype(int) for rows in X]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> net = NeuralClassifier(classes=[0, 1], lower=-4, upper=4, scale=1, steps=30, epsilon=5, **seeded)
    >>> bool(net.fit(X, y).score(X[0], y[0]) > 0.8)
    True
    """

    _algorithm: ClassVar[str] = "neural-classifier"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **JointClassifier._constraints,
        "settings": optional(MAPPING),
        "optimizer_settings": optional(MAPPING),
        "shape": optional(LIST),
    }

    model: str = "two-layer"
    _: KW_ONLY
    hidden: int = 16
    settings: Mapping[str, Any] | None = None
    shape: Sequence[int] | None = None
    center: ArrayLike | None = None
    scale: ArrayLike | None = None
    rate: float = 1.0
    steps: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    momentum: float = 0.9
    optimizer: str = "SGD"
    optimizer_settings: Mapping[str, Any] | None = None
    averaging: float = 0.5
    start: int = 0
    evaluate_share: float = 0.0
    hold_out: float = 0.1
    batch: int = 256
    precision: str = "float32"
    missing: Missing = None
    attempts: int = 0
    checkpoint: str | PathLike[str] | None = None

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._bounds_or_extremes(tables)
        # Stored, since predictions build the same network: a parameter may be changed after the fit.
        self._settings_of_fit = super()._parameters(tables) | {
            "lower": lower,
            "upper": upper,
            "center": self._by_column("center"),
            "scale": self._by_column("scale"),
            "classes": self._class_names,
            "settings": dict(self.settings or {}),
            "optimizer_settings": dict(self.optimizer_settings or {}),
            "shape": self._module_shape,
        }
        return self._settings_of_fit

    @property
    def _module_shape(self) -> tuple[int, ...] | None:
        """Shape of an example for the module; None for the two-layer network and for tables."""
        if self.shape is not None:
            return tuple(int(each) for each in self.shape)
        image = getattr(self, "_shape", None)
        # One channel, the first axis of an input of PyTorch.
        return None if image is None or self.model == "two-layer" else (1, *image)

    def _learn(self, estimate: Estimate) -> None:
        self.weights_: Floats = estimate["weights"].value.copy()
        self._learn_quality(estimate)

    def _logits(self, rows: Floats) -> Floats:
        program: Any = algorithms.build(self._algorithm, self._settings_of_fit | {"columns": self._columns})
        # A probability that underflowed to 0 has no logarithm.
        return np.asarray(np.log(np.maximum(program.probabilities(self.weights_, rows), 1e-300)))
