"""Counts of public categories or bins.

The map of one unit, with K = `bins` and m rows of one value each: every observed row puts the weight 1/m' into the bin
of its value, m' being the number of observed rows of the unit. The contribution is the vector p of shape (K,) with
these weights, which sum to 1, or to less if some codes lie outside the categories. The release is the sum of p over
units plus noise.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on, counts
from zerosum.compute.devices import array_on, on_host, to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.missing import Filled


class Histogram(Filled):
    """The number of units in each of `bins` categories (codes 0, 1, ...) or between public `edges`.

    A unit with several rows contributes the shares of its rows, so that the unit has weight one. A value outside the
    edges counts in the first or last bin. A code outside the categories counts in no bin. A row with a missing value
    (NaN, where no fill is given) counts in no bin: the unit's other rows share its weight, and a unit without any
    observed row contributes zero.

    Sensitivity. A contribution is a probability vector p, or shorter, or zero. The inner product of two such vectors p
    and q is not negative, because their entries are not. Hence norm(p - q)^2 <= norm(p)^2 + norm(q)^2. The norm of p is
    at most the sum of its entries, which is at most 1. So norm(p - q)^2 <= 2 and D = sqrt(2) for a replaced unit,
    attained by two different categories. Adding or removing a unit moves the counts by norm(p) <= 1.

    In L1 norm, for Laplace noise: norm_1(p) is the sum of the entries, at most 1. So norm_1(p - q) <= 2 for a replaced
    unit, attained by two different categories, and 1 for a unit that is added or removed.

    Parameters
    ----------
    columns : int
        Always 1: a histogram has one column.
    bins : int
        K, the number of categories or bins.
    edges : array of shape (bins + 1,), optional
        Rising public bin edges. Without edges, values are codes 0, ..., K - 1. A value on an inner edge counts in the
        bin above it.
    fill : tuple of one number or None
        The public value that replaces a missing value (`zerosum.statistics.missing`).
    """

    name: ClassVar[str] = "histogram"
    adds_in_pieces: ClassVar[bool] = True
    columns: int = Field(default=1, ge=1, le=1)
    bins: int = Field(gt=0, le=10_000_000)
    edges: FloatArray | None = None

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        if self.edges is not None:
            if self.edges.shape != (self.bins + 1,):
                raise ValueError(f"{self.bins} bins need {self.bins + 1} edges, got {self.edges.size}")
            if not np.all(np.diff(self.edges) > 0):
                raise ValueError("edges must rise")
        return self

    @property
    def size(self) -> int:
        """K, one count for each bin."""
        return self.bins

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sensitivity_l1(self, adjacency: Adjacency) -> float:
        """The L1 bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def check_values(self, units: Units) -> None:
        """Report codes outside the declared categories to the owner of the data; the coordinator does not see this
        check.
        """
        if self.edges is None:
            for block in units.blocks():
                codes = to_numpy(block.rows)
                if np.any((codes < 0) | (codes >= self.bins) | ((codes != np.floor(codes)) & ~np.isnan(codes))):
                    raise BadData(f"some values lie outside the {self.bins} declared categories")

    def adds_exactly(self, units: Units) -> bool:
        """Whether every weight is 0 or 1, so that sums are whole numbers: units of one row on the host."""
        return units.offsets is None and units.device is None and on_host(units.rows)

    def exact_bytes(self, units: Units) -> int:
        """A unit's value, its bin, its weight, and whether it is inside, with one copy of each."""
        return 64

    def sum_block(self, block: Units) -> Array:
        """The sum of the probability vectors of a block, shape (bins,)."""
        values = self.filled(block)[:, 0]
        xp = array_namespace(values)
        if self.edges is not None:
            # Only inner edges are searched: values below the first or above the last edge fall into the outer bins.
            # Infinite values and NaN are excluded by `inside`.
            codes, inside = xp.searchsorted(constant_on(self._inner, values), values, side="right"), xp.isfinite(values)
        else:
            inside = (values >= 0) & (values < self.bins) & (values == xp.floor(values))
            # A code that is not valid is replaced by 0 to have a place; its weight below is 0.
            codes = xp.astype(xp.where(inside, values, xp.zeros_like(values)), xp.int64)
        # 1/m for each row, divided by the observed share m'/m, gives 1/m' for each observed row.
        weights = block.row_weights(values) / _observed_share(block, values) * xp.astype(inside, xp.float64)
        return counts(codes, weights, self.bins)

    @cached_property
    def _inner(self) -> Floats:
        """The inner edges, shape (bins - 1,)."""
        return np.asarray(self.edges)[1:-1]


def _observed_share(block: Units, values: Array) -> Array | float:
    """For every row, the share of its unit's rows that are observed, shape (rows,); 1 for units with no observed row.

    Parameters
    ----------
    block : Units
        The units; only their row offsets are used.
    values : array of shape (rows,)
        The values, with NaN where missing.
    """
    # A unit has one row: the row is observed or the unit contributes zero, and no weight is shared.
    if block.offsets is None:
        return 1.0
    sizes = np.diff(block.offsets)
    if not on_host(values):
        xp = array_namespace(values)
        # `Units.average` rounds each unit by its own rows alone, on a device too.
        share = block.average(xp.astype(~xp.isnan(values), xp.float64))
        share = xp.where(share > 0, share, xp.ones_like(share))
        return xp.take(share, array_on(np.repeat(np.arange(len(block)), sizes), values))
    there = ~np.isnan(values)
    share = np.add.reduceat(there.astype(np.float64), block.offsets[:-1]) / sizes
    # Without any observed row the share is set to 1 to avoid 0/0. These rows have weight zero in any case.
    return np.repeat(np.where(share > 0, share, 1.0), sizes)
