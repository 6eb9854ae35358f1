"""Networks behind one interface: first weights, and the statistics of a step and of predictions.

`TwoLayerModel` has closed-form gradients in NumPy (`zerosum.statistics.network`); `ModuleModel` is a PyTorch module
that every site knows by name (`zerosum.statistics.module`). `make_model` chooses between them by the name of the model;
no other code does. A model is public: it holds parameters of the study and no data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from zerosum.algorithms.training.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.statistics.module import ModuleGradient, ModulePredictions
from zerosum.statistics.module_gradients import Architecture
from zerosum.statistics.network import ClippedGradient, TwoLayer, TwoLayerGradient, TwoLayerPredictions
from zerosum.statistics.predictions import PredictionHistogram

TWO_LAYER = "two-layer"


class Model(ABC):
    """A network as training uses it. Weights are one flat vector of n numbers."""

    gradient: ClassVar[type[ClippedGradient]]
    """Statistic of a step: the sum over units of clipped gradients, (n,)."""
    predictions: ClassVar[type[PredictionHistogram]]
    """Statistic of the evaluation."""

    @abstractmethod
    def first_weights(self, seed: int) -> Floats:
        """The first weights (n,), from a public seed."""

    @abstractmethod
    def parameters(self, scale: Floats | None) -> dict[str, Any]:
        """Parameters of both statistics that this kind of model has beside those of `Examples`.

        Parameters
        ----------
        scale : array of shape (features,), optional
            Declared typical deviation of each feature, in half ranges; None if only ranges are known.
        """


@dataclass(frozen=True)
class TwoLayerModel(Model):
    """A network with one hidden layer of rectified units.

    Parameters
    ----------
    features, classes : int
        Numbers of inputs and of classes.
    hidden : int
        Number of hidden units.
    """

    gradient: ClassVar[type[ClippedGradient]] = TwoLayerGradient
    predictions: ClassVar[type[PredictionHistogram]] = TwoLayerPredictions

    features: int
    classes: int
    hidden: int

    def first_weights(self, seed: int) -> Floats:
        """He's initialisation from a public seed."""
        return TwoLayer.start(self.features, self.hidden, self.classes, seed)

    def parameters(self, scale: Floats | None) -> dict[str, Any]:
        each = np.full(self.features, TUNING.uniform_spread) if scale is None else scale
        # p standardised features have norm sqrt(p): divided by this, inputs have the norm for which the first weights
        # and the clip of inputs are meant, whatever the number of features.
        each = each * math.sqrt(self.features) / TUNING.input_norm
        # The radius bounds |x| in the norm of a gradient, which is proportional to sqrt(1 + |x|^2).
        return {"scale": each, "hidden": self.hidden, "radius": TUNING.input_radius * TUNING.input_norm}


@dataclass(frozen=True)
class ModuleModel(Model):
    """A PyTorch module in every site's registry. Needs the extra `torch` for the first weights.

    Parameters
    ----------
    module : str
        Name in the registries (`zerosum.statistics.module_registry`).
    settings : mapping
        Public settings of the module's factory.
    shape : tuple of int
        Shape of one input.
    classes : int
        Number of classes.
    batch : int
        Examples whose gradients are computed at once.
    precision : {"float32", "float64"}
        Precision of the module.
    """

    gradient: ClassVar[type[ClippedGradient]] = ModuleGradient
    predictions: ClassVar[type[PredictionHistogram]] = ModulePredictions

    module: str
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    classes: int
    batch: int
    precision: str

    def first_weights(self, seed: int) -> Floats:
        """The weights that the module's factory sets under a public seed."""
        # The module is built here, at the coordinator, from the public seed; sites receive weights, not code.
        return Architecture.of(self.module, self.settings, self.shape, self.classes, self.precision).start(seed)

    def parameters(self, scale: Floats | None) -> dict[str, Any]:
        # A module scales its inputs itself if it needs to: without a declared scale, inputs are in half ranges.
        return {
            "scale": scale,
            "module": self.module,
            "settings": self.settings,
            "shape": self.shape,
            "batch": self.batch,
            "precision": self.precision,
        }


def make_model(
    name: str,
    features: int,
    classes: int,
    *,
    hidden: int,
    settings: Mapping[str, Any],
    shape: tuple[int, ...] | None,
    batch: int,
    precision: str,
) -> Model:
    """The model of a study: the two-layer network, or the module of that name.

    Parameters
    ----------
    name : str
        "two-layer", or the name of a PyTorch module.
    features, classes : int
        Numbers of inputs and of classes.
    hidden : int
        Hidden units of the two-layer network; modules ignore it.
    settings, shape, batch, precision
        As for `ModuleModel`. `settings` and `shape` must be empty for the two-layer network; without a shape a module
        gets its inputs as one vector.

    Raises
    ------
    ValueError
        If the two-layer network has settings or a shape, or the shape does not have `features` numbers.
    """
    if name == TWO_LAYER:
        if settings or shape:
            raise ValueError(
                "settings and shape are for PyTorch modules only: leave them out with model = 'two-layer', got "
                f"settings = {dict(settings)} and shape = {shape}"
            )
        return TwoLayerModel(features, classes, hidden)
    if math.prod(shape or (features,)) != features:
        raise ValueError(f"shape must have {features} numbers, one per feature, got {shape}")
    # Only parameters are kept here: the module is looked up when first weights are drawn, and by each site.
    return ModuleModel(name, settings, shape or (features,), classes, batch, precision)
