"""Counts and sums per cluster: one step of k-means.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.kernel.units import Units
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import BITS, Exact, added, clip_rows, like, products, rounded, whole


class ClusterSums(Ranged):
    """For each public centre: the number of units nearest to it, then the sum of x/c over their rows x of norm <= c.

    A unit with several rows contributes the mean over its rows.

    Sensitivity. One row contributes (1, y), y = x/c of norm <= 1, in the block of its cluster. Two rows in the same
    cluster are norm(y - y') <= 2 apart; in different ones their blocks are orthogonal: sqrt(1 + norm(y)^2 + 1 +
    norm(y')^2) <= 2. A unit's contribution is an average of such points, and a convex hull is as wide as its points,
    so D = 2. (Unscaled it is max(2c, sqrt(2 + 2c^2)); dividing by c first costs the sums nothing and favours the
    counts.) Adding or removing one: sqrt(2).
    """

    name: ClassVar[str] = "cluster_sums"
    adds_in_pieces: ClassVar[bool] = True
    centers: FloatArray

    @model_validator(mode="after")
    def _centers_fit(self) -> Self:
        if self.centers.ndim != 2 or self.centers.shape[1] != self.columns or len(self.centers) == 0:
            raise ValueError(f"centers must be a table of {self.columns} columns, got shape {self.centers.shape}")
        return self

    @property
    def size(self) -> int:
        return len(self.centers) * (1 + self.columns)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (counts, sums of rows)."""
        k = len(self.centers)
        return release[:k], self.clip * release[k:].reshape(k, self.columns)

    @property
    def row_bytes(self) -> int:
        return 8 * (4 * self.columns + 3 * len(self.centers))

    @cached_property
    def _exact(self) -> tuple[Exact, Floats]:
        """The centres, all in one unit, and half their squared norms in the unit of products with rows."""
        largest = float(np.max(np.abs(self.centers))) or 1.0  # divided by first: squares of tiny centres underflow
        scaled = self.centers / largest
        size = float(np.max(np.linalg.norm(scaled, axis=1))) or 1.0
        numbers = np.ascontiguousarray(whole(scaled, np.full(len(scaled), size)).T)
        squares = np.sum((scaled / size) ** 2, axis=1) * (largest * size / self.clip) * 2.0 ** (2 * BITS - 1)
        return Exact(numbers, np.full(len(scaled), largest * size)), squares

    def _nearest(self, rows: Array) -> Array:
        """The nearest centre of each row, whoever else is there: products are exact, to 26 bits of a norm of c."""
        xp, (exact, squares) = array_namespace(rows), self._exact
        numbers = rounded(rows * (2.0**BITS / self.clip))
        return xp.argmax(exact.product(numbers) - like(squares, rows)[None, :], axis=1)

    def sum_block(self, block: Units) -> Array:
        rows = clip_rows(self.normalise(block), self.clip)
        xp = array_namespace(rows)
        places = xp.arange(len(self.centers), device=device_of(rows))
        member = xp.astype(self._nearest(rows)[:, None] == places[None, :], rows.dtype)
        if block.offsets is not None:
            member = member * block.row_weights(rows)[:, None]
        counts = added(member)
        sums = products(member, rows) / self.clip
        return xp.concat([counts, xp.reshape(sums, (-1,))])
