"""Clipped records, and reduced records with their class: the contents of a private publication.

The map of one unit gives one bounded row, which is published with noise of its own (`BoundedMap`). `ClippedRecords`
gives the clipped mean row v, shape (d,). `LabelledRecords` gives (z, w e), shape (k + classes,): reduced features z and
class shares e.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import Field, model_validator

from zerosum.arrays import Array
from zerosum.compute.backends.exact import INSIDE, Exact, clip_rows, constant_on, doubles, sized
from zerosum.compute.statistic import BoundedMap
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.predictions import class_of
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.softmax import Featured


class ClippedRecords(Ranged, BoundedMap):
    """For every unit its mean row v, clipped to norm c, published one by one or summed.

    Sensitivity. Replacing a unit replaces its own row and no other: norm(v - v') <= 2c, attained by v' = -v. In a sum,
    adding or removing a unit moves the sum by norm(v) <= c. A publication reveals the number of units, so that it is
    for replaced units only.

    Parameters
    ----------
    columns, clip, lower, upper
        d, c and the public ranges, as for `Ranged`.
    """

    name: ClassVar[str] = "clipped_records"

    @property
    def size(self) -> int:
        """d, the length of a row."""
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def map_block(self, block: Units) -> Array:
        """The clipped mean row of each unit, shape (units, columns)."""
        return clip_rows(block.average(self.normalise(block)), self.clip)


class LabelledRecords(Featured, BoundedMap):
    """For every unit (z, w e), published together under the same noise.

    z is the mean over the unit's rows of their reduced features. e is the mean over the rows of their classes as
    one-hot vectors. The public features x of a row become (x - center) projection, scaled to norm 1: the scale of a
    single row carries no information that is released. The class is the last column of a row. A row without a class has
    e = 0.

    Sensitivity. z lies in the unit ball, so two z are at most 2 apart. e is a probability vector or shorter, and two of
    these are at most sqrt(2) apart. Replacing a unit replaces its own row and no other: D = sqrt(4 + 2 w^2), attained
    by opposite z of different classes. This is less than 2 sqrt(1 + w^2), the bound from a clip of the whole vector,
    because one-hot vectors do not point away from each other. In a sum, adding or removing a unit moves the sum by at
    most sqrt(1 + w^2).

    Parameters
    ----------
    columns : int
        The number of inputs of the feature map, plus one for the class.
    features : mapping
        The feature map by its `kind` and settings (`zerosum.statistics.features`), with F features.
    classes : int
        The number of classes.
    center : array of shape (F,)
        Subtracted from the features.
    projection : array of shape (F, k)
        Reduces F features to k.
    label_weight : float
        w, the weight of the class shares. A larger w gives less noise on labels and more on features.
    part, hold_out
        Which units take part (`zerosum.statistics.holdout`).
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
        """k, the number of reduced features."""
        return int(self.projection.shape[1])

    @property
    def every_unit(self) -> bool:
        """Whether every unit has a row in the publication."""
        return self.part == "all"

    @property
    def size(self) -> int:
        """k + classes."""
        return self.width + self.classes

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (6 * len(self.center) + 2 * self.size)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return math.sqrt(4 + 2 * self.label_weight**2)
        return math.sqrt(1 + self.label_weight**2)

    @cached_property
    def _exact(self) -> Exact:
        """The projection in whole numbers, whose products do not round."""
        return Exact.of(self.projection)

    def reduced(self, features: Array) -> Array:
        """Rows of features, each reduced and scaled to norm 1; shape (rows, k). A row that is zero after reduction
        stays zero.

        Parameters
        ----------
        features : array of shape (rows, F)
            The features of each row.
        """
        xp = array_namespace(features)
        rows = clip_rows(features, 1.0) - constant_on(self.center, features)[None, :]
        # The scale of the row is discarded: only its direction enters.
        scaled, _size, norm = sized(rows)
        # `valid` sets rows to zero that hold only the rounding error of the product; their direction would be noise.
        scaled, _size, norm = sized(self._exact.valid(self._exact.projections(scaled, norm)))
        some = norm > 0
        # `INSIDE` makes the divisor slightly larger than the norm, so that the result stays in the unit ball.
        factor = 1 / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
        return scaled * xp.where(some, factor, xp.zeros_like(factor))[:, None]

    def map_block(self, block: Units) -> Array:
        """One row (z, w e) for each unit, shape (units, size)."""
        # A mean of vectors in the unit ball lies in it; the clip only corrects rounding.
        z = clip_rows(block.average(self.reduced(block.rows[:, :-1])), 1.0)
        xp = array_namespace(z)
        labels = class_of(doubles(block.rows[:, -1]), self.classes)
        # A comparison with NaN is false, so that a row without a class gives zeros.
        each = labels[:, None] == xp.arange(self.classes, dtype=xp.float64, device=device_of(z))[None, :]
        shares = block.average(xp.astype(each, xp.float64))
        return xp.concat([z, self.label_weight * shares], axis=1)
