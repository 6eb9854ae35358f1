"""Counts and sums per cluster: one step of k-means.

The map of one row x of R^d, clipped to norm c, with K public centres: (1, x/c) in the block of the nearest centre, zero
in the other blocks. A unit contributes the mean over its rows. The release holds the K counts first, then the K sums;
shape (K (1 + d),).
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
from zerosum.compute.backends.exact import BITS, Exact, added, clip_rows, constant_on, products, rounded, whole
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.ranges import Ranged


class ClusterSums(Ranged):
    """For each public centre the number of units nearest to it, then the sum of x/c over their rows x of norm <= c.

    A unit with several rows contributes the mean over its rows.

    Sensitivity. One row contributes (1, y) with y = x/c of norm at most 1, in the block of its cluster. Two rows in the
    same cluster are norm(y - y') <= 2 apart. Two rows in different clusters have orthogonal blocks: they are sqrt(1 +
    norm(y)^2 + 1 + norm(y')^2) <= 2 apart. A unit's contribution is an average of such points, and a convex hull has
    the diameter of its points. So D = 2. (Without the division by c it would be max(2c, sqrt(2 + 2c^2)); dividing by c
    first costs the sums nothing and gives the counts less noise.) Adding or removing a unit moves the sum by at most
    sqrt(2).

    Parameters
    ----------
    columns, clip, lower, upper
        d, c and the public ranges, as for `Ranged`.
    centers : array of shape (K, columns)
        Public centres, in the units of the normalised rows.
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
        """K counts and K sums of d numbers."""
        return len(self.centers) * (1 + self.columns)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (counts of shape (K,), sums of rows of shape (K, columns))."""
        k = len(self.centers)
        return release[:k], self.clip * release[k:].reshape(k, self.columns)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (4 * self.columns + 3 * len(self.centers))

    @cached_property
    def _exact(self) -> tuple[Exact, Floats]:
        """The centres in whole numbers of one common unit, and half their squared norms in the unit of products
        with rows.
        """
        # The division avoids underflow of the squares of tiny centres.
        largest = float(np.max(np.abs(self.centers))) or 1.0
        scaled = self.centers / largest
        size = float(np.max(np.linalg.norm(scaled, axis=1))) or 1.0
        # One unit for all centres: inner products with different centres are compared with each other.
        numbers = np.ascontiguousarray(whole(scaled, np.full(len(scaled), size)).T)
        # Rows enter as 2^26 x/c and centres as 2^26 m/(largest size): norm(m)^2/2 in the unit of their product.
        squares = np.sum((scaled / size) ** 2, axis=1) * (largest * size / self.clip) * 2.0 ** (2 * BITS - 1)
        return Exact(numbers, np.full(len(scaled), largest * size)), squares

    def _nearest(self, rows: Array) -> Array:
        """The index of the nearest centre of each row, shape (rows,).

        The decision depends on the row and the centres alone, because products of whole numbers are exact, to 26 bits
        of a norm of c.
        """
        xp, (exact, squares) = array_namespace(rows), self._exact
        numbers = rounded(rows * (2.0**BITS / self.clip))
        # norm(x - m)^2 = norm(x)^2 - 2 (x.m - norm(m)^2/2): the nearest centre has the largest x.m - norm(m)^2/2.
        return xp.argmax(exact.product(numbers) - constant_on(squares, rows)[None, :], axis=1)

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: counts, then sums row by row."""
        rows = clip_rows(self.normalise(block), self.clip)
        xp = array_namespace(rows)
        places = xp.arange(len(self.centers), device=device_of(rows))
        member = xp.astype(self._nearest(rows)[:, None] == places[None, :], rows.dtype)
        if block.offsets is not None:
            # A row of a unit with m rows has weight 1/m.
            member = member * block.row_weights(rows)[:, None]
        counts = added(member)
        sums = products(member, rows) / self.clip
        return xp.concat([counts, xp.reshape(sums, (-1,))])
