"""Gradients of a network with one hidden layer, from closed formulas: the statistic for training in NumPy.

Rows hold the p features and, last, the response. Features are normalised, centred and scaled by public constants, and
clipped to norm `radius`. With h hidden units and o outputs the network is

    A = max(x W + b, 0),   p = softmax(A V + c)   (two classes: one output, p = sigmoid(A v + c)),

with W of shape (p, h), b of shape (h,), V of shape (h, o), c of shape (o,). The gradient of the cross-entropy of one
example is the pair of outer products (x, 1) B' and (A, 1) e'. Here e is p minus the class, and B = (V e) where A > 0,
else 0. Its norm needs no gradient: |B|^2 (1 + |x|^2) + |e|^2 (1 + |A|^2) is its square.

Arithmetic. Up to the clip nothing is computed over several units that rounds: x W is an exact product (`rows.Exact`), A
V and V e are elementwise with `fold`, and the sums over units are matrix products after the clip.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import INSIDE, Exact, clip_rows, constant_on, exponential, fold, sized
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray
from zerosum.statistics.constants import check_placement
from zerosum.statistics.holdout import Part, units_of_part
from zerosum.statistics.predictions import PredictionHistogram
from zerosum.statistics.ranges import Ranged

# The output of a network with two classes is clipped to this absolute value before exp; exp(-30) = 9e-14. Chosen by
# hand; no benchmark recorded.
_STEEPEST = 30.0
# The largest absolute weight and radius, so that products of weights, inputs and activations stay far from overflow.
_LARGEST_WEIGHT = 1e6


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """Public weights of a network with one hidden layer.

    Parameters
    ----------
    first : array of shape (features, hidden)
        W.
    bias : array of shape (hidden,)
        b.
    second : array of shape (hidden, outputs)
        V.
    constant : array of shape (outputs,)
        c.
    """

    first: Floats
    bias: Floats
    second: Floats
    constant: Floats

    @staticmethod
    def size(features: int, hidden: int, classes: int) -> int:
        """The number of weights of such a network."""
        outputs = outputs_of(classes)
        return (features + 1) * hidden + (hidden + 1) * outputs

    @staticmethod
    def of_flat(weights: Floats, features: int, hidden: int, classes: int) -> TwoLayer:
        """The network of a flat vector that holds W, b, V and c in this order, row by row."""
        outputs = outputs_of(classes)
        ends = np.cumsum([features * hidden, hidden, hidden * outputs])
        first, bias, second, constant = np.split(weights, ends)
        return TwoLayer(first.reshape(features, hidden), bias, second.reshape(hidden, outputs), constant)

    @staticmethod
    def start(features: int, hidden: int, classes: int, seed: int) -> Floats:
        """Flat initial weights from a public seed: He's initialisation for the hidden layer, smaller weights for
        the outputs.
        """
        rng = np.random.default_rng(seed)
        outputs = outputs_of(classes)
        # He et al. 2015: variance 2/fan-in keeps the size of activations through a rectifier.
        first = rng.normal(0, math.sqrt(2 / features), features * hidden)
        second = rng.normal(0, math.sqrt(1 / hidden), hidden * outputs)
        return np.concatenate([first, np.zeros(hidden), second, np.zeros(outputs)])

    def probabilities(self, x: Floats) -> Floats:
        """The probability of every class, shape (rows, classes), for inputs of shape (rows, features). For the user
        of a model, not for sums over units.
        """
        logits = np.maximum(x @ self.first + self.bias, 0) @ self.second + self.constant
        if logits.shape[1] == 1:
            logits = np.column_stack([np.zeros(len(logits)), logits])
        growth = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(growth / growth.sum(axis=1, keepdims=True))


def outputs_of(classes: int) -> int:
    """The number of outputs of a network: one for two classes.

    >>> outputs_of(2), outputs_of(10)
    (1, 10)
    """
    return 1 if classes <= 2 else classes


class Examples(Ranged):
    """Base of statistics of networks at public weights: rows of features and, last, a class (0, 1, ...) or, with one
    class, a number.

    A class outside the range counts as the nearest class. With ranges, a number is mapped to [-1, 1]; classes stay
    unchanged.

    Parameters
    ----------
    columns : int
        p features and the response.
    classes : int
        The number of classes; 1 for a numeric response.
    weights : array of shape (n,)
        All weights of the network in one flat vector.
    center, scale : array of shape (p,), optional
        Subtracted from the features, then divided by.
    part : {"all", "fitted", "held-out"}
        Which units take part (`zerosum.statistics.holdout`).
    hold_out : float
        The share of units that is held out.
    clip, lower, upper, fill, own_rows
        As for `Ranged`.
    """

    classes: int = Field(default=2, ge=1, le=100_000)
    weights: FloatArray
    center: FloatArray | None = None
    scale: FloatArray | None = None
    part: Part = "all"
    hold_out: float = Field(default=0.0, ge=0, lt=1)

    @abstractmethod
    def probabilities(self, block: Units) -> Floats:
        """The probability of every class for each row, shape (rows, classes); a row's do not depend on other rows."""

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.columns < 2:
            raise ValueError(f"there must be a feature beside the response, got {self.columns} column")
        check_placement(self.columns - 1, self.center, self.scale, "features")
        return self

    def entering(self, units: Units) -> Units:
        """The units of the chosen part."""
        if self.part == "all":
            return units
        return units.made(f"{self.part} {self.hold_out}", lambda: units_of_part(units, self.part, self.hold_out))

    def examples(self, block: Units) -> tuple[Array, Array]:
        """The inputs of each row, shape (rows, p), and its class as a whole number or its response, shape (rows,)."""
        rows = self.normalise(block)
        xp = array_namespace(rows)
        x, response = rows[:, :-1], rows[:, -1]
        if self.center is not None:
            x = x - constant_on(self.center, rows)[None, :]
        if self.scale is not None:
            x = x / constant_on(self.scale, rows)[None, :]
        if self.classes > 1:
            if self.lower is not None:
                # `normalise` mapped the class range to [-1, 1]; this is the inverse for codes 0 to classes - 1.
                response = 0.5 * (response + 1.0) * (self.classes - 1)
            response = xp.clip(xp.round(response), 0.0, self.classes - 1.0)
        # A missing class counts as class 0: NaN would make the unit's gradient invalid.
        return x, xp.where(xp.isfinite(response), response, xp.zeros_like(response))


class TwoLayerExamples(Examples):
    """Base of statistics of a network with one hidden layer at public weights.

    Parameters
    ----------
    hidden : int
        h, the number of hidden units.
    weights : array of shape (TwoLayer.size(p, h, classes),)
        W, b, V and c in one flat vector.
    radius : float
        The norm to which inputs are clipped.
    columns, classes, center, scale, part, hold_out, clip, lower, upper, fill, own_rows
        As for `Examples`.
    """

    classes: int = Field(default=2, ge=2, le=10_000)
    hidden: int = Field(gt=0, le=100_000)
    radius: float = Field(default=1.0, ge=1e-6, le=_LARGEST_WEIGHT)

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        wanted = TwoLayer.size(self.columns - 1, self.hidden, self.classes)
        if self.weights.shape != (wanted,):
            raise ValueError(f"there must be {wanted} weights, got shape {self.weights.shape}")
        if np.any(np.abs(self.weights) > _LARGEST_WEIGHT):
            largest = float(np.max(np.abs(self.weights)))
            raise ValueError(f"weights must not exceed {_LARGEST_WEIGHT:g} in absolute value, got {largest:g}")
        return self

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (6 * self.columns + 8 * self.hidden + 6 * outputs_of(self.classes))

    @cached_property
    def network(self) -> TwoLayer:
        """The weights as matrices."""
        return TwoLayer.of_flat(self.weights, self.columns - 1, self.hidden, self.classes)

    @cached_property
    def _exact(self) -> Exact:
        """W in whole numbers, whose products do not round."""
        return Exact.of(self.network.first)

    def probabilities(self, block: Units) -> Floats:
        """The probability of every class for each row, shape (rows, classes); independent of the other rows of the
        block.
        """
        chance = self._chance(self._hidden(clip_rows(to_numpy(self.examples(block)[0]), self.radius)))
        return np.column_stack([1 - chance, chance]) if self.classes == 2 else chance

    def _hidden(self, x: Floats) -> Floats:
        """The hidden activations A, shape (rows, hidden), of clipped inputs."""
        scaled, size, norm = sized(x)
        # x W is exact up to the rounding of x to 26 bits, which each row decides alone; norm * size puts the scale
        # back.
        Z = self._exact.projections(scaled, norm) * (norm * size)[:, None] + self.network.bias
        return np.where(Z > 0, Z, 0.0)

    def _chance(self, A: Floats) -> Floats:
        """The probability of the class of each output, shape (rows, outputs); the only output of two classes is the
        second class.
        """
        # One fold for each output in place of a matrix product, whose rounding may depend on the number of rows.
        logits = np.stack([fold(A * column) for column in self.network.second.T], axis=1) + self.network.constant
        if logits.shape[1] == 1:
            growth = exponential(np.clip(logits, -_STEEPEST, _STEEPEST))
            return np.asarray(growth / (1.0 + growth))
        growth = exponential(np.clip(logits - logits.max(axis=1, keepdims=True), -2 * _STEEPEST, 0.0))
        return np.asarray(growth / fold(growth.copy())[:, None])


class ClippedGradient(Examples):
    """Base of the statistics of a step: the sum over units of contributions of norm at most c, one number per weight.

    Sensitivity. Contributions lie in the ball of radius c, whatever the network is. One replaced unit moves the sum by
    at most 2c, one added or removed by at most c. Subclasses clip each contribution, and state by which inputs the
    bounds are attained.

    Parameters
    ----------
    clip : float
        c, the largest norm of a contribution.
    columns, classes, weights, center, scale, part, hold_out, lower, upper, fill, own_rows
        As for `Examples`.
    """

    @property
    def size(self) -> int:
        """n, the number of weights."""
        return len(self.weights)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip


class TwoLayerGradient(TwoLayerExamples, ClippedGradient):
    """The sum over units of the gradient of the cross-entropy at public weights, clipped to norm c over all tensors.

    A unit with several rows contributes the mean of its rows' gradients, each clipped. A mean of vectors in the ball
    lies in the ball. A single clip of the mean would cut off less. But rows that cancel each other would then enter
    sums at their own size, and the rounding errors beside them affect the sums of other units: no bound on the mean
    bounds these errors.

    Sensitivity. That of `ClippedGradient`. Both bounds are attained: an example and the same example with the other
    class, both clipped, have gradients of opposite sign if there is one output, since e = p - y is positive for one
    class and negative for the other.

    Parameters
    ----------
    clip : float
        c, the largest norm of a row's gradient.
    hidden, weights, radius, columns, classes, center, scale, part, hold_out, lower, upper, fill, own_rows
        As for `TwoLayerExamples`.
    """

    name: ClassVar[str] = "two_layer_gradient"

    def sum_block(self, block: Units) -> Array:
        """The gradient of a block in the order of the flat weights."""
        x, A, B, e = self._slopes(block)
        weight = self._factors(block, x, A, B, e)[:, None]
        # Both outer products are linear in B and e, so that the clip factor is applied to these.
        B, e = B * weight, e * weight
        parts = x.T @ B, B.sum(axis=0), A.T @ e, e.sum(axis=0)
        return np.concatenate([part.ravel() for part in parts])

    def _slopes(self, block: Units) -> tuple[Floats, Floats, Floats, Floats]:
        """Of the rows of a block: inputs x (rows, features), activations A (rows, hidden), and the slopes of the loss
        in the hidden layer, B (rows, hidden), and in the outputs, e (rows, outputs).
        """
        x, label = (to_numpy(each) for each in self.examples(block))
        x = clip_rows(x, self.radius)
        A = self._hidden(x)
        known = label[:, None] == np.arange(1 if self.classes == 2 else 0, self.classes)
        e = self._chance(A) - known
        # V e is summed output by output, elementwise.
        B = np.zeros_like(A)
        for k, column in enumerate(self.network.second.T):
            B += e[:, k : k + 1] * column
        return x, A, np.where(A > 0, B, 0.0), e

    def _factors(self, block: Units, x: Floats, A: Floats, B: Floats, e: Floats) -> Floats:
        """The factor of each row: its clip times its share in its unit; shape (rows,).

        Parameters
        ----------
        block : Units
            For the share of a row in its unit.
        x : array of shape (rows, p)
            Clipped inputs.
        A, B : array of shape (rows, hidden)
            Activations, and slopes of the loss in the hidden layer.
        e : array of shape (rows, outputs)
            Slopes of the loss in the outputs.
        """
        # The norm of the gradient from its factors, see the module docstring.
        norms = np.sqrt(fold(B * B) * (1.0 + fold(x * x)) + fold(e * e) * (1.0 + fold(A * A)))
        # `INSIDE` makes the norm slightly larger, so that rounding stays within the ball.
        clipped = np.minimum(1.0, self.clip / np.maximum(norms * INSIDE, SMALLEST))
        return np.asarray(block.row_weights(x) * clipped)


class TwoLayerPredictions(TwoLayerExamples, PredictionHistogram):
    """The predictions of the network, as a `PredictionHistogram`."""

    name: ClassVar[str] = "two_layer_predictions"
    classes: int = Field(default=2, ge=2, le=1000)
