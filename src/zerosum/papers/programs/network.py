"""The network of capeFM (Imtiaz, Mohammadi and Sarwate 2019, section 5.1), trained by gradient descent under a scheme.

Model. One hidden layer of h rectified units and a sigmoid output (`zerosum.statistics.network`). From public weights
w_0, iteration t releases the sum over units of the gradient of the cross-entropy and steps along its mean over N units:

    v_t = m v_{t-1} + G_t/N,    w_t = w_{t-1} - rho v_t,    G_t = sum over units of clipped gradients + noise.

All units enter every iteration, and the last weights are the result. This is `neural-classifier` at the settings below
but for the clip. The paper gives each tensor (W1, b1, W2, b2) noise in proportion to "the L2 sensitivity of the
corresponding gradient". A network of rectified units has no such bound without a clip, which the paper does not have:
here each tensor of each example's gradient is clipped to norm c (`TensorClippedGradient`). The four tensors leave
together, with sensitivity 4c in every iteration, and all iterations are charged. `clipping = "joint"` clips the four
together, with sensitivity 2c. The paper's epsilon is that of one tensor in one iteration.

Choices where the paper is incomplete: it states neither h, iterations, step nor momentum. The defaults are 16, 25, 0.5
and 0.9, found on draws other than those of the figures. Features are centred and scaled by public constants, so that
their typical norm is 2, and not clipped beyond their public ranges.

The scheme decides which published method this is: `cape-published` is the paper's, `local` conv, `pooled` the pooled
one, `non-private` with a large clip plain gradient descent.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.training.models import TWO_LAYER
from zerosum.algorithms.training.network import NeuralClassifierProgram
from zerosum.algorithms.training.optimisers import SGD
from zerosum.arrays import Floats
from zerosum.compute.backends.exact import INSIDE
from zerosum.statistics.holdout import Part
from zerosum.statistics.network import ClippedGradient
from zerosum.statistics.published import TensorClippedGradient

# Iterations, step and momentum; see the module's docstring.
ITERATIONS, STEP, MOMENTUM = 25, 0.5, 0.9
# Tensors of a gradient: W1, b1, W2 and b2.
TENSORS = 4


class CapeNetworkProgram(NeuralClassifierProgram):
    """A network as published in capeFM. `zerosum.NeuralClassifier` is the better method on the same budget.

    Parameters and results are those of `neural-classifier`; only the two-layer network, all units in each step, and
    gradient descent with momentum are published.
    """

    name: ClassVar[str] = "cape-network"

    clipping: Literal["tensor", "joint"] = "tensor"
    """Whether each tensor of a row's gradient is clipped to `clip`, as in the paper, or the four together."""
    steps: int | None = Field(default=ITERATIONS, ge=1, le=100_000)
    """Iterations; each has an equal share of the budget."""
    learning_rate: float | None = Field(default=STEP, gt=0, allow_inf_nan=False)
    """rho, the step."""
    momentum: float = Field(default=MOMENTUM, ge=0, lt=1)
    """m."""
    clip: float | None = Field(default=1.0, gt=0, le=1e6)
    """c, the largest norm of a row's gradient of each tensor, or of all together."""
    averaging: float = Field(default=0.0, ge=0, le=1)
    """Share of the iterations, the last ones, whose weights are averaged; none in the paper."""

    @model_validator(mode="after")
    def _published(self) -> Self:
        """Refuse settings of `neural-classifier` that are not published."""
        # `rate` 1: the paper takes the gradient over all records of a site (section 5.1), without samples.
        fixed = {"model": TWO_LAYER, "optimizer": SGD, "optimizer_settings": {}, "rate": 1.0}
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} must be {value!r}, as published, got {getattr(self, name)!r}: use neural-classifier"
                )
        return self

    def statistic(self, weights: Floats) -> ClippedGradient:
        """The statistic of an iteration at these weights (n,)."""
        if self.clipping == "joint":
            return super().statistic(weights)
        return TensorClippedGradient(**self._parameters(weights, "fitted"))

    def _parameters(self, weights: Floats, part: Part) -> dict[str, Any]:
        """Parameters of a statistic at these weights (n,), over one part of the units, without a clip of inputs."""
        parameters = super()._parameters(weights, part)
        # The paper does not clip inputs: the radius is the largest norm within the ranges, and a little more for
        # rounding.
        center = np.zeros(self.features) if parameters["center"] is None else parameters["center"]
        return {**parameters, "radius": float(np.linalg.norm((1 + np.abs(center)) / parameters["scale"])) * INSIDE}
