"""Gradients of a network with one hidden layer, from closed formulas: what training in NumPy asks of a site.

Rows hold the features and, last, the response. Features are normalised, centred and scaled by public constants; what
comes out is clipped to norm `radius`, so that no example is far away. The network is

    A = max(x W + b, 0),   p = softmax(A V + c)   (two classes: one output, p = sigmoid(A v + c)),

and the gradient of the cross-entropy of one example is the pair of outer products (x, 1) B' and (A, 1) e', where e is p
minus the class and B = (V e) where A > 0. Its norm needs no gradient: |B|^2 (1 + |x|^2) + |e|^2 (1 + |A|^2).

Up to the clip nothing is computed over several units that rounds: x W is an exact product (`rows.Exact`), A V and V e
are elementwise with `fold`, and the sums over units are matrix products after the clip.

Tested in tests/statistics/test_network_statistics.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.holdout import Part, chosen
from zerosum.statistics.predictions import PredictionHistogram
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import INSIDE, Exact, clip_rows, exponential, fold, like, sized

_STEEPEST = 30.0  # an output beyond this changes nothing
_LARGEST_WEIGHT = 1e6  # products of weights, inputs and each other stay far from overflow


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """Public weights of a network with one hidden layer: W (features x hidden), b, V (hidden x outputs), c."""

    first: Floats
    bias: Floats
    second: Floats
    constant: Floats

    @staticmethod
    def size(features: int, hidden: int, classes: int) -> int:
        outputs = outputs_of(classes)
        return (features + 1) * hidden + (hidden + 1) * outputs

    @staticmethod
    def of_flat(weights: Floats, features: int, hidden: int, classes: int) -> TwoLayer:
        outputs = outputs_of(classes)
        ends = np.cumsum([features * hidden, hidden, hidden * outputs])
        first, bias, second, constant = np.split(weights, ends)
        return TwoLayer(first.reshape(features, hidden), bias, second.reshape(hidden, outputs), constant)

    @staticmethod
    def start(features: int, hidden: int, classes: int, seed: int) -> Floats:
        """Flat weights to begin with: He's for the hidden layer, smaller ones for the outputs, from a public seed."""
        rng = np.random.default_rng(seed)
        outputs = outputs_of(classes)
        first = rng.normal(0, math.sqrt(2 / features), features * hidden)
        second = rng.normal(0, math.sqrt(1 / hidden), hidden * outputs)
        return np.concatenate([first, np.zeros(hidden), second, np.zeros(outputs)])

    def probabilities(self, x: Floats) -> Floats:
        """Of every class, one row for each row of inputs."""
        logits = np.maximum(x @ self.first + self.bias, 0) @ self.second + self.constant
        if logits.shape[1] == 1:
            logits = np.column_stack([np.zeros(len(logits)), logits])
        growth = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(growth / growth.sum(axis=1, keepdims=True))


def outputs_of(classes: int) -> int:
    """How many outputs a network has: one for two classes.

    >>> outputs_of(2), outputs_of(10)
    (1, 10)
    """
    return 1 if classes <= 2 else classes


class Examples(Ranged):
    """What statistics of networks share: rows of features and, last, a class (0, 1, ...) or, with one class, a number.

    A class that is none counts as the nearest. With ranges a number is brought to -1 to 1; classes stay what they are.
    """

    classes: int = Field(default=2, ge=1, le=100_000)
    center: FloatArray | None = None
    scale: FloatArray | None = None
    part: Part = "all"  # of the units: those trained on, or those held out
    hold_out: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.columns < 2:
            raise ValueError("there must be a feature beside the response")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.columns - 1,):
                raise ValueError(f"{what} must hold one number for each of the {self.columns - 1} features")
        if self.scale is not None and not np.all(self.scale >= SMALLEST):
            raise ValueError("every scale must be positive")
        return self

    def entering(self, units: Units) -> Units:
        if self.part == "all":
            return units
        return units.made(f"{self.part} {self.hold_out}", lambda: chosen(units, self.part, self.hold_out))

    def examples(self, block: Units) -> tuple[Array, Array]:
        """For each row its inputs, and its class as a whole number or its response."""
        rows = self.normalise(block)
        xp = array_namespace(rows)
        x, response = rows[:, :-1], rows[:, -1]
        if self.center is not None:
            x = x - like(self.center, rows)[None, :]
        if self.scale is not None:
            x = x / like(self.scale, rows)[None, :]
        if self.classes > 1:
            if self.lower is not None:
                response = 0.5 * (response + 1.0) * (self.classes - 1)
            response = xp.clip(xp.round(response), 0.0, self.classes - 1.0)
        return x, xp.where(xp.isfinite(response), response, xp.zeros_like(response))


class TwoLayerExamples(Examples):
    """Examples, and a network with one hidden layer: its public weights W, b, V and c in one flat vector.

    Inputs are clipped to norm `radius`.
    """

    classes: int = Field(default=2, ge=2, le=10_000)
    hidden: int = Field(gt=0, le=100_000)
    weights: FloatArray
    radius: float = Field(default=1.0, ge=1e-6, le=_LARGEST_WEIGHT)

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        wanted = TwoLayer.size(self.columns - 1, self.hidden, self.classes)
        if self.weights.shape != (wanted,):
            raise ValueError(f"there must be {wanted} weights, got shape {self.weights.shape}")
        if np.any(np.abs(self.weights) > _LARGEST_WEIGHT):
            raise ValueError(f"weights must not exceed {_LARGEST_WEIGHT:g}")
        return self

    @property
    def row_bytes(self) -> int:
        return 8 * (6 * self.columns + 8 * self.hidden + 6 * outputs_of(self.classes))

    @cached_property
    def network(self) -> TwoLayer:
        return TwoLayer.of_flat(self.weights, self.columns - 1, self.hidden, self.classes)

    @cached_property
    def _exact(self) -> Exact:
        return Exact.of(self.network.first)

    def probabilities(self, block: Units) -> Floats:
        """Of every class, for each row; what nobody else in the block can change."""
        chance = self._chance(self._hidden(clip_rows(to_numpy(self.examples(block)[0]), self.radius)))
        return np.column_stack([1 - chance, chance]) if self.classes == 2 else chance

    def _hidden(self, x: Floats) -> Floats:
        scaled, size, norm = sized(x)
        Z = self._exact.seen(scaled, norm) * (norm * size)[:, None] + self.network.bias
        return np.where(Z > 0, Z, 0.0)

    def _chance(self, A: Floats) -> Floats:
        """For each output the probability of its class; the only output of two classes is that of the second."""
        logits = np.stack([fold(A * column) for column in self.network.second.T], axis=1) + self.network.constant
        if logits.shape[1] == 1:
            growth = exponential(np.clip(logits, -_STEEPEST, _STEEPEST))
            return np.asarray(growth / (1.0 + growth))
        growth = exponential(np.clip(logits - logits.max(axis=1, keepdims=True), -2 * _STEEPEST, 0.0))
        return np.asarray(growth / fold(growth.copy())[:, None])


class TwoLayerGradient(TwoLayerExamples):
    """The sum over units of the gradient of the cross-entropy at public weights, clipped to norm c over all tensors.

    A unit with several rows contributes the mean of its rows' gradients, each clipped: a mean of vectors in the ball
    lies in it. To clip the mean once would cut off less, but rows that cancel would enter sums at their own size, and
    what is rounded away beside them is other people's: no bound on the mean bounds that.

    Sensitivity. Contributions lie in the ball of radius c: one replaced moves the sum by 2c at most, one added or
    removed by c. Both are attained: an example and the same with the other class, both clipped, have gradients of
    opposite sign where there is one output, since e = p - y is positive for one class and negative for the other.
    """

    name: ClassVar[str] = "two_layer_gradient"

    @property
    def size(self) -> int:
        return len(self.weights)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        x, A, B, e = self._slopes(block)
        weight = self._factors(block, x, A, B, e)[:, None]
        B, e = B * weight, e * weight
        parts = x.T @ B, B.sum(axis=0), A.T @ e, e.sum(axis=0)
        return np.concatenate([part.ravel() for part in parts])

    def _slopes(self, block: Units) -> tuple[Floats, Floats, Floats, Floats]:
        """For each row: inputs, hidden activations, and the slopes of the loss in the hidden layer and the outputs."""
        x, label = (to_numpy(each) for each in self.examples(block))
        x = clip_rows(x, self.radius)
        A = self._hidden(x)
        known = label[:, None] == np.arange(1 if self.classes == 2 else 0, self.classes)
        e = self._chance(A) - known
        B = np.zeros_like(A)
        for k, column in enumerate(self.network.second.T):
            B += e[:, k : k + 1] * column
        return x, A, np.where(A > 0, B, 0.0), e

    def _factors(self, block: Units, x: Floats, A: Floats, B: Floats, e: Floats) -> Floats:
        """What each row is multiplied by: what clips it, and its share of its unit."""
        norms = np.sqrt(fold(B * B) * (1.0 + fold(x * x)) + fold(e * e) * (1.0 + fold(A * A)))
        clipped = np.minimum(1.0, self.clip / np.maximum(norms * INSIDE, SMALLEST))
        return np.asarray(block.row_weights(x) * clipped)


class TwoLayerPredictions(TwoLayerExamples, PredictionHistogram):
    """What such a network predicts, as a `PredictionHistogram`."""

    name: ClassVar[str] = "two_layer_predictions"
    classes: int = Field(default=2, ge=2, le=1000)
