"""Statistics for a linear classifier on public features: moments of the features, gradients, predictions.

Rows hold the inputs of the feature map and, last, the class as a whole number. The map (`zerosum.statistics.features`)
is the site's own; its output x of F features is clipped to the unit ball. `FeatureMoments` releases the moments from
which a whitener is computed. Once the whitener is known, features become z = (x - center) projection in R^k, scaled to
norm 1 row by row: the scale of a single row is discarded at no cost. The classifier is softmax of (z, bias) W with
public weights W of shape (k + 1, classes).

Arithmetic. Up to the last decision about a row everything is exact or elementwise. z is stored in whole numbers of 22
bits, which single floats hold exactly, so that products with public weights do not round
(`zerosum.compute.backends.exact`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import (
    INSIDE,
    Exact,
    added,
    clip_rows,
    constant_on,
    doubles,
    exponential,
    fold,
    gram,
    products,
    rounded,
    sized,
)
from zerosum.compute.devices import on_host, to_host
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.question import plain
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.features import FeatureMap, ModuleFeatures, build, find
from zerosum.statistics.holdout import Part, units_of_part
from zerosum.statistics.predictions import PredictionHistogram, class_of

# The constant feature, beside features of norm 1. A larger value fits the intercepts faster and lengthens every
# gradient by sqrt(1 + bias^2). Chosen by hand; no benchmark recorded.
BIAS = 0.15
# Bits of a row's whole numbers. Single floats hold 24 bits, which leaves room for rounding.
_BITS = 22
# Logits are clipped at this distance below the largest: exp(-60) = 9e-27. It is also the limit of `exponential`.
_LOGIT_RANGE = 60.0


class Featured(BoundedStatistic):
    """Base of statistics of rows of public features, and of one part of the units.

    Parameters
    ----------
    columns : int
        The number of inputs of the feature map, plus one for the class.
    features : mapping
        The feature map by its `kind` and settings.
    part : {"all", "fitted", "held-out"}
        Which units take part (`zerosum.statistics.holdout`).
    hold_out : float
        The share of units that is held out.
    """

    columns: int = Field(ge=2)
    features: Mapping[str, Any]
    part: Part = "all"
    hold_out: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _map_fits(self) -> Self:
        if self.feature_map.inputs != self.columns - 1:
            raise ValueError(
                f"the features are made of {self.feature_map.inputs} columns, and one holds the class: there must be "
                f"{self.feature_map.inputs + 1} columns, got {self.columns}"
            )
        return self

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The feature map from the site's own registry."""
        return build(self.features)

    @cached_property
    def _called(self) -> str:
        """A name for the mapped units, for the cache of `Units.made`: a digest of all parameters they depend on."""
        return _digest([self.feature_map.kind, self.feature_map.model_dump(), self.part, self.hold_out])

    def check(self, units: Units) -> None:
        """Also refuse a feature map that is not ready at this site; no data are used for that."""
        super().check(units)
        self.feature_map.ready()

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        """Refuse a study whose feature map needs a module that this site cannot run, before the site consents."""
        asked = parameters.get("features")
        if isinstance(asked, Mapping) and issubclass(find(asked.get("kind")), ModuleFeatures):
            build(asked).ready()

    def entering(self, units: Units) -> Units:
        """The units with their rows mapped to features; computed once and shared by all rounds."""
        self.feature_map.ready()
        return units.made(self._called, lambda: self._featured(units))

    def _featured(self, units: Units) -> Units:
        """The chosen units with rows (features, class) in single floats, shape (rows, F + 1)."""
        units = units_of_part(units.dense(), self.part, self.hold_out)
        xp = array_namespace(units.rows)
        label = xp.astype(units.rows[:, -1:], xp.float32)
        rows = xp.concat([self.feature_map(units.rows[:, :-1]), label], axis=1)
        return Units(rows, units.offsets, device=units.device)


class FeatureMoments(Featured):
    """The sum over units of the mean over rows of z z', z = (x, 1)/sqrt(2), in isometric coordinates.

    With `count` the entry that counts units stays. Without `count` the entry is public and left out.

    Sensitivity. norm(z) <= 1, so a contribution Z is positive semidefinite with norm at most 1. For two contributions
    norm(Z - W)^2 <= 2 - 2 tr(Z W), and tr(Z W) >= 0. So D = sqrt(2), attained by x.x' = -1, where z.z' = 0. Adding or
    removing a unit: 1, and sqrt(3)/2 without the entry that counts, which is 1/2.

    Parameters
    ----------
    count : bool
        Whether the number of units is released.
    columns, features, part, hold_out
        As for `Featured`.
    """

    name: ClassVar[str] = "feature_moments"
    adds_in_pieces: ClassVar[bool] = True
    count: bool = False

    @property
    def width(self) -> int:
        """F, the number of features."""
        return self.feature_map.size

    @property
    def size(self) -> int:
        """The distinct entries of an F x F matrix, F of the first moment, and one for the count."""
        return coordinates.size(self.width) + self.width + int(self.count)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 4 * self.width

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return math.sqrt(2)
        return 1.0 if self.count else math.sqrt(3) / 2

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: packed second moment, first moment, count."""
        rows = clip_rows(block.rows[:, :-1], 1.0)
        xp = array_namespace(rows)
        weights = block.row_weights(rows)
        # Rows times the root of their weight: the gram matrix is then the weighted sum of x x'.
        root = rows if block.offsets is None else rows * xp.sqrt(weights)[:, None]
        # The factor 1/2 is that of z z'. The first moment is an off-diagonal block: 1/2 times sqrt(2) is 1/sqrt(2).
        second = packed(gram(root)) / 2
        first = products(weights[:, None], rows)[0, :] / math.sqrt(2)
        return xp.concat([second, first, *([xp.full_like(first[:1], len(block) / 2)] if self.count else [])])

    def split(self, release: Floats) -> tuple[Floats, Floats, float | None]:
        """A release as (sum of x x', sum of x, number of units or None).

        Parameters
        ----------
        release : array of shape (size,)
            A noisy sum.

        Returns
        -------
        second : array of shape (F, F)
        first : array of shape (F,)
        count : float or None
            None if `count` is not set.
        """
        matrix = coordinates.size(self.width)
        second = 2 * coordinates.unpack(release[:matrix], self.width)
        first = math.sqrt(2) * release[matrix : matrix + self.width]
        return second, first, 2 * float(release[-1]) if self.count else None


class Whitened(Featured):
    """Base of statistics of whitened rows z of norm 1 with the constant `bias`, and public weights for each class.

    Parameters
    ----------
    classes : int
        The number of classes.
    center : array of shape (F,)
        Subtracted from the features.
    projection : array of shape (F, k)
        The whitener.
    weights : array of shape (k + 1, classes)
        Public weights; the last row belongs to the bias.
    bias : float
        The constant feature.
    columns, features, part, hold_out
        As for `Featured`.
    """

    classes: int = Field(ge=2, le=1000)
    center: FloatArray
    projection: FloatArray
    weights: FloatArray
    bias: float = Field(default=BIAS, ge=0, le=10)

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        width = self.feature_map.size
        if self.center.shape != (width,):
            raise ValueError(
                f"center must hold one number for each of the {width} features, got shape {self.center.shape}"
            )
        if self.projection.ndim != 2 or self.projection.shape[0] != width or not self.projection.size:
            raise ValueError(f"projection must have {width} rows and a column, got shape {self.projection.shape}")
        if self.weights.shape != (self.width + 1, self.classes):
            raise ValueError(
                f"weights must have {self.width + 1} rows and {self.classes} columns, got shape {self.weights.shape}"
            )
        return self

    @property
    def width(self) -> int:
        """k, the number of whitened features."""
        return int(self.projection.shape[1])

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (2 * self.width + 12 * self.classes)

    def entering(self, units: Units) -> Units:
        """The units with whitened rows in whole numbers; computed once and shared by all rounds with the same
        whitener.
        """
        called = _digest([self._called, self.center, self.projection])
        return units.made(called, lambda: self._whitened(super(Whitened, self).entering(units)))

    def _whitened(self, units: Units) -> Units:
        """The rows in whole numbers of 22 bits and the class, shape (rows, k + 1), in single floats.

        Parameters
        ----------
        units : Units
            Units whose rows hold features and class.
        """
        exact = Exact.of(self.projection)
        parts = []
        # In blocks, since features of all rows in doubles would need several times the memory of the result.
        for block in units.blocks(row_bytes=8 * 6 * len(self.center)):
            xp = array_namespace(block.rows)
            rows = clip_rows(block.rows[:, :-1], 1.0) - constant_on(self.center, block.rows)[None, :]
            scaled, _size, norm = sized(rows)
            # `valid` sets rows to zero that hold only the rounding error of the product; their direction would be
            # noise.
            scaled, _size, norm = sized(exact.valid(exact.projections(scaled, norm)))
            some = norm > 0
            # Norm 1 becomes 2^22. `INSIDE` keeps the row from being longer.
            factor = 2.0**_BITS / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
            numbers = rounded(scaled * xp.where(some, factor, xp.zeros_like(factor))[:, None])
            made = xp.concat([xp.astype(numbers, xp.float32), block.rows[:, -1:]], axis=1)
            parts.append(to_host(made) if on_host(units.rows) else made)
        xp = array_namespace(units.rows)
        empty = xp.zeros((0, self.width + 1), dtype=xp.float32, device=device_of(units.rows))
        return Units(xp.concat(parts, axis=0) if parts else empty, units.offsets, device=units.device)

    @cached_property
    def _unit(self) -> float:
        """The value of one whole number. Rounding may lengthen a row by 1/2 in each of k directions, hence by
        sqrt(k)/2, and the divisor allows for that: norm(z) <= 1.
        """
        return 1 / ((2.0**_BITS + math.sqrt(self.width) / 2) * INSIDE)

    @cached_property
    def _exact_weights(self) -> Exact:
        """The weights without the bias, in whole numbers."""
        return Exact.of(self.weights[:-1])

    @cached_property
    def _constants(self) -> tuple[Floats, Floats]:
        """For each class the value of one unit of a product of whole numbers, and the contribution of the bias;
        shapes (classes,).
        """
        return np.asarray(self._exact_weights.unit * self._unit), np.asarray(self.bias * self.weights[-1])

    def probabilities(self, block: Units) -> Array:
        """The predicted probability of every class for each row, shape (rows, classes).

        Parameters
        ----------
        block : Units
            Units from `entering`: rows of whole numbers and the class.
        """
        numbers = doubles(block.rows[:, :-1])
        xp, exact = array_namespace(numbers), self._exact_weights
        worth, offset = self._constants
        # Exact: 22 bits times 26 bits, and partial sums below 2^53.
        logits = exact.product(numbers) * constant_on(worth, numbers)[None, :]
        logits = logits + constant_on(offset, numbers)[None, :]
        # The largest logit is subtracted, so that exp does not overflow.
        logits = xp.clip(logits - xp.max(logits, axis=1, keepdims=True), -_LOGIT_RANGE, 0.0)
        growth = exponential(logits)
        return growth / fold(growth + 0.0)[:, None]


class SoftmaxGradient(Whitened):
    """The sum over units of the gradient of the cross-entropy, (z, bias) r', clipped to norm c row by row.

    r is the vector of predicted probabilities minus the one-hot vector of the true class. A unit contributes the mean
    over its rows. The release has the shape ((k + 1) classes,).

    Sensitivity. (z, bias) has norm at most xi = sqrt(1 + bias^2), and r is scaled to norm at most c/xi. So a row
    contributes a matrix of Frobenius norm at most c, and a mean of such matrices has norm at most c. D = 2c, attained
    by two rows with the same features of different classes that are predicted to be equally likely. Adding or removing
    a unit: c.

    Parameters
    ----------
    clip : float
        c, the largest norm of a row's gradient.
    classes, center, projection, weights, bias, columns, features, part, hold_out
        As for `Whitened`.
    """

    name: ClassVar[str] = "softmax_gradient"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive

    @property
    def size(self) -> int:
        """(k + 1) classes."""
        return (self.width + 1) * self.classes

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        """The gradient of a block, feature after feature, with the bias last."""
        expected = self.probabilities(block)
        xp = array_namespace(expected)
        # A comparison and not a look-up: a row without a class is equal to no class, and r stays within its clip.
        labels = class_of(doubles(block.rows[:, -1]), self.classes)
        true = labels[:, None] == xp.arange(self.classes, dtype=xp.float64, device=device_of(labels))[None, :]
        # The gradient is an outer product: its norm is norm((z, bias)) norm(r), so that a clip of r clips the gradient.
        r = clip_rows(expected - xp.astype(true, xp.float64), self.clip / (math.sqrt(1 + self.bias**2) * INSIDE))
        r = r * block.row_weights(r)[:, None]
        numbers = doubles(block.rows[:, :-1])
        # After the clip, rounding depends on the block only within the planned slack of a sum.
        gradient = products(numbers, r) * self._unit
        return xp.concat([xp.reshape(gradient, (-1,)), self.bias * added(r)])


class SoftmaxPredictions(Whitened, PredictionHistogram):
    """The predictions of the classifier, as a `PredictionHistogram`."""

    name: ClassVar[str] = "softmax_predictions"


def _digest(parts: list[Any]) -> str:
    """A name for public parameters: the SHA-256 of their JSON."""
    return hashlib.sha256(json.dumps(plain(parts), sort_keys=True).encode()).hexdigest()
