"""Clipped records, and reduced ones with their class: what a private publication publishes.

Tested in tests/coordinator/test_publication.py.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import Field, model_validator

from zerosum.arrays import Array
from zerosum.kernel.statistic import Adjacency, BoundedMap, FloatArray
from zerosum.kernel.units import Units
from zerosum.statistics.predictions import class_of
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import INSIDE, Exact, clip_rows, doubles, like, sized
from zerosum.statistics.softmax import Featured


class ClippedRecords(Ranged, BoundedMap):
    """Of every unit its mean row v, clipped to norm c, to be published one by one or summed.

    Sensitivity. Replacing a unit replaces its own row and no other: norm(v - v') <= 2c, attained by v' = -v. In a sum,
    adding or removing one moves it by norm(v) <= c; a publication tells how many units there are, so that it is for
    replaced units only.
    """

    name: ClassVar[str] = "clipped_records"

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def map_block(self, block: Units) -> Array:
        return clip_rows(block.average(self.normalise(block)), self.clip)


class LabelledRecords(Featured, BoundedMap):
    """Of every unit (z, w e): z the mean over its rows of their reduced features, e that of their classes as one-hot
    vectors, to be published together under the same noise.

    A row's public features x become (x - center) projection, brought to norm 1 by itself: a unit's own scale is free to
    take away. The class stands last in a row; a row without one has e = 0.

    Sensitivity. z lies in the unit ball, and e is a probability vector or shorter, of which two are at most sqrt(2)
    apart. Replacing a unit replaces its own row and no other: D = sqrt(4 + 2 w^2), attained by opposite z of different
    classes. That is less than 2 sqrt(1 + w^2), what a clip of the whole vector would give, since one-hot vectors do
    not point away from each other. In a sum, adding or removing one moves it by sqrt(1 + w^2).
    """

    name: ClassVar[str] = "labelled_records"
    classes: int = Field(ge=2, le=1000)
    center: FloatArray
    projection: FloatArray
    label_weight: float = Field(default=1.0, ge=1e-3, le=1e3)

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        width = self.feature_map.size
        if self.center.shape != (width,):
            raise ValueError(f"center must hold one number for each of the {width} features")
        if self.projection.ndim != 2 or self.projection.shape[0] != width or not self.projection.size:
            raise ValueError(f"projection must have {width} rows and a column, got shape {self.projection.shape}")
        return self

    @property
    def width(self) -> int:
        return int(self.projection.shape[1])

    @property
    def every_unit(self) -> bool:
        return self.part == "all"

    @property
    def size(self) -> int:
        return self.width + self.classes

    @property
    def row_bytes(self) -> int:
        return 8 * (6 * len(self.center) + 2 * self.size)

    def sensitivity(self, adjacency: Adjacency) -> float:
        if adjacency is Adjacency.REPLACE_ONE:
            return math.sqrt(4 + 2 * self.label_weight**2)
        return math.sqrt(1 + self.label_weight**2)

    @cached_property
    def _exact(self) -> Exact:
        return Exact.of(self.projection)

    def reduced(self, features: Array) -> Array:
        """Rows of features, each reduced and brought to norm 1 by itself; of one that has nothing left, zeros."""
        xp = array_namespace(features)
        rows = clip_rows(features, 1.0) - like(self.center, features)[None, :]
        scaled, _size, norm = sized(rows)
        scaled, _size, norm = sized(self._exact.valid(self._exact.seen(scaled, norm)))
        some = norm > 0
        factor = 1 / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
        return scaled * xp.where(some, factor, xp.zeros_like(factor))[:, None]

    def map_block(self, block: Units) -> Array:
        z = clip_rows(block.average(self.reduced(block.rows[:, :-1])), 1.0)
        xp = array_namespace(z)
        labels = class_of(doubles(block.rows[:, -1]), self.classes)
        each = labels[:, None] == xp.arange(self.classes, dtype=xp.float64, device=device_of(z))[None, :]
        shares = block.average(xp.astype(each, xp.float64))
        return xp.concat([z, self.label_weight * shares], axis=1)
