"""What a linear classifier on public features asks of a site: the features' moments, gradients, predictions.

Rows hold what the features are made of and, last, the class as a whole number. The map (`zerosum.statistics.features`)
is a site's own; what it makes of a row is clipped to the unit ball. Once a whitener is known, features x become
z = (x - center) projection, brought to norm 1 by themselves: a unit's own scale is free to take away.

Up to the last decision about a row everything is exact or elementwise: z is kept in whole numbers of 22 bits, which
single floats hold, so that products with public weights do not round (`zerosum.statistics.rows`).

Tested in tests/statistics/test_softmax.py.
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
from zerosum.kernel import coordinates
from zerosum.kernel.devices import on_host, to_host
from zerosum.kernel.question import plain
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, Positive
from zerosum.kernel.units import Units
from zerosum.statistics.features import FeatureMap, ModuleFeatures, build, find
from zerosum.statistics.holdout import Part, chosen
from zerosum.statistics.predictions import PredictionHistogram, class_of
from zerosum.statistics.rows import (
    INSIDE,
    Exact,
    added,
    clip_rows,
    doubles,
    exponential,
    fold,
    gram,
    like,
    products,
    rounded,
    sized,
)

BIAS = 0.15  # the constant feature, beside features of norm 1
_BITS = 22  # of a row's whole numbers: single floats hold 24
_FARTHEST = 60.0  # a class this far below the likeliest has no probability


class Featured(BoundedStatistic):
    """A statistic of rows of public features, and of one part of the units: all, those fitted, or those held out."""

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
        return build(self.features)

    @cached_property
    def _called(self) -> str:
        """The name of what enters, for `Units.made`: everything it depends on."""
        return _digest([self.feature_map.kind, self.feature_map.model_dump(), self.part, self.hold_out])

    def check(self, units: Units) -> None:
        super().check(units)
        self.feature_map.ready()

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        asked = parameters.get("features")
        if isinstance(asked, Mapping) and issubclass(find(asked.get("kind")), ModuleFeatures):
            build(asked).ready()

    def entering(self, units: Units) -> Units:
        self.feature_map.ready()
        return units.made(self._called, lambda: self._featured(units))

    def _featured(self, units: Units) -> Units:
        units = chosen(units.dense(), self.part, self.hold_out)
        xp = array_namespace(units.rows)
        label = xp.astype(units.rows[:, -1:], xp.float32)
        rows = xp.concat([self.feature_map(units.rows[:, :-1]), label], axis=1)
        return Units(rows, units.offsets, device=units.device)


class FeatureMoments(Featured):
    """The sum over units of the mean over rows of z z', z = (x, 1)/sqrt(2), in isometric coordinates.

    With `count` the entry that counts units stays; without it it is public and left out.

    Sensitivity. norm(z) <= 1, so a contribution Z is positive semidefinite with norm at most 1, and norm(Z - W)^2 <=
    2 - 2 tr(Z W). Here tr(Z W) >= 0: D = sqrt(2), attained by x.x' = -1, where z.z' = 0. Added or removed: 1, and
    sqrt(3)/2 without the entry that counts, which is 1/2.
    """

    name: ClassVar[str] = "feature_moments"
    adds_in_pieces: ClassVar[bool] = True
    count: bool = False

    @property
    def width(self) -> int:
        return self.feature_map.size

    @property
    def size(self) -> int:
        return coordinates.size(self.width) + self.width + int(self.count)

    @property
    def row_bytes(self) -> int:
        return 8 * 4 * self.width

    def sensitivity(self, adjacency: Adjacency) -> float:
        if adjacency is Adjacency.REPLACE_ONE:
            return math.sqrt(2)
        return 1.0 if self.count else math.sqrt(3) / 2

    def sum_block(self, block: Units) -> Array:
        rows = clip_rows(block.rows[:, :-1], 1.0)
        xp = array_namespace(rows)
        weights = block.row_weights(rows)
        root = rows if block.offsets is None else rows * xp.sqrt(weights)[:, None]
        second = coordinates.packed(gram(root)) / 2
        first = products(weights[:, None], rows)[0, :] / math.sqrt(2)
        return xp.concat([second, first, *([xp.full_like(first[:1], len(block) / 2)] if self.count else [])])

    def split(self, release: Floats) -> tuple[Floats, Floats, float | None]:
        """A release as (sum of x x', sum of x, number of units or None)."""
        matrix = coordinates.size(self.width)
        second = 2 * coordinates.unpack(release[:matrix], self.width)
        first = math.sqrt(2) * release[matrix : matrix + self.width]
        return second, first, 2 * float(release[-1]) if self.count else None


class Whitened(Featured):
    """Rows as z = (x - center) projection of norm 1, and `bias` as one more feature; with weights for each class."""

    classes: int = Field(ge=2, le=1000)
    center: FloatArray
    projection: FloatArray
    weights: FloatArray
    bias: float = Field(default=BIAS, ge=0, le=10)

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        width = self.feature_map.size
        if self.center.shape != (width,):
            raise ValueError(f"center must hold one number for each of the {width} features")
        if self.projection.ndim != 2 or self.projection.shape[0] != width or not self.projection.size:
            raise ValueError(f"projection must have {width} rows and a column, got shape {self.projection.shape}")
        if self.weights.shape != (self.width + 1, self.classes):
            raise ValueError(
                f"weights must have {self.width + 1} rows and {self.classes} columns, got shape {self.weights.shape}"
            )
        return self

    @property
    def width(self) -> int:
        return int(self.projection.shape[1])

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.width + 12 * self.classes)

    def entering(self, units: Units) -> Units:
        called = _digest([self._called, self.center, self.projection])
        return units.made(called, lambda: self._whitened(super(Whitened, self).entering(units)))

    def _whitened(self, units: Units) -> Units:
        """The rows in whole numbers, and the label; row by row."""
        exact = Exact.of(self.projection)
        parts = []
        for block in units.blocks(row_bytes=8 * 6 * len(self.center)):
            xp = array_namespace(block.rows)
            rows = clip_rows(block.rows[:, :-1], 1.0) - like(self.center, block.rows)[None, :]
            scaled, _size, norm = sized(rows)
            scaled, _size, norm = sized(exact.valid(exact.seen(scaled, norm)))
            some = norm > 0
            factor = 2.0**_BITS / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
            numbers = rounded(scaled * xp.where(some, factor, xp.zeros_like(factor))[:, None])
            made = xp.concat([xp.astype(numbers, xp.float32), block.rows[:, -1:]], axis=1)
            parts.append(to_host(made) if on_host(units.rows) else made)
        xp = array_namespace(units.rows)
        empty = xp.zeros((0, self.width + 1), dtype=xp.float32, device=device_of(units.rows))
        return Units(xp.concat(parts, axis=0) if parts else empty, units.offsets, device=units.device)

    @cached_property
    def _unit(self) -> float:
        """What a whole number is worth: rounding may lengthen a row by half of one in every direction."""
        return 1 / ((2.0**_BITS + math.sqrt(self.width) / 2) * INSIDE)

    @cached_property
    def _exact_weights(self) -> Exact:
        return Exact.of(self.weights[:-1])

    @cached_property
    def _constants(self) -> tuple[Floats, Floats]:
        return np.asarray(self._exact_weights.unit * self._unit), np.asarray(self.bias * self.weights[-1])

    def probabilities(self, block: Units) -> Array:
        numbers = doubles(block.rows[:, :-1])
        xp, exact = array_namespace(numbers), self._exact_weights
        worth, offset = self._constants
        logits = exact.product(numbers) * like(worth, numbers)[None, :]
        logits = logits + like(offset, numbers)[None, :]
        logits = xp.clip(logits - xp.max(logits, axis=1, keepdims=True), -_FARTHEST, 0.0)
        growth = exponential(logits)
        return growth / fold(growth + 0.0)[:, None]


class SoftmaxGradient(Whitened):
    """The sum over units of the gradient of the cross-entropy, (z, bias) r' with r the predicted probabilities less the
    true class, clipped to norm c row by row; the mean over a unit's rows.

    Sensitivity. (z, bias) has norm at most xi = sqrt(1 + bias^2), and r is scaled to norm at most c/xi, so that rows
    contribute matrices of Frobenius norm at most c; a mean of such is one. D = 2c, attained by two rows with the same
    features of different classes that are predicted to be equally likely. Added or removed: c.
    """

    name: ClassVar[str] = "softmax_gradient"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive

    @property
    def size(self) -> int:
        return (self.width + 1) * self.classes

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def sum_block(self, block: Units) -> Array:
        expected = self.probabilities(block)
        xp = array_namespace(expected)
        labels = class_of(doubles(block.rows[:, -1]), self.classes)
        true = labels[:, None] == xp.arange(self.classes, dtype=xp.float64, device=device_of(labels))[None, :]
        r = clip_rows(expected - xp.astype(true, xp.float64), self.clip / (math.sqrt(1 + self.bias**2) * INSIDE))
        r = r * block.row_weights(r)[:, None]
        numbers = doubles(block.rows[:, :-1])
        gradient = products(numbers, r) * self._unit
        return xp.concat([xp.reshape(gradient, (-1,)), self.bias * added(r)])


class SoftmaxPredictions(Whitened, PredictionHistogram):
    """What such a classifier predicts, as a `PredictionHistogram`."""

    name: ClassVar[str] = "softmax_predictions"


def _digest(parts: list[Any]) -> str:
    """A name for public parameters."""
    return hashlib.sha256(json.dumps(plain(parts), sort_keys=True).encode()).hexdigest()
