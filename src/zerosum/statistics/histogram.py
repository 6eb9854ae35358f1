"""Counts of public categories or bins.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.errors import BadData
from zerosum.kernel.devices import beside, on_host
from zerosum.kernel.statistic import Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.missing import Filled
from zerosum.statistics.rows import counts, like


class Histogram(Filled):
    """How many units fall into each of `bins` categories (codes 0, 1, ...) or between public `edges`.

    A unit with several rows contributes the shares of its rows, so it weighs one. Values outside the edges count in
    the first or last bin, codes outside the categories nowhere. A row whose value is missing (NaN, where no fill is
    given) counts nowhere: the unit's other rows share its weight, and a unit without any contributes zero.

    Sensitivity. A contribution is a probability vector p (or zero). For two of them norm(p - q)^2 <= norm(p)^2 +
    norm(q)^2 <= 2, since their inner product is not negative and norm(p) <= sum(p) = 1; attained by two different
    categories. Adding or removing a unit moves the counts by norm(p) <= 1.
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
        return self.bins

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def check_values(self, units: Units) -> None:
        if self.edges is None:
            for block in units.blocks():
                codes = to_numpy(block.rows)
                if np.any((codes < 0) | (codes >= self.bins) | ((codes != np.floor(codes)) & ~np.isnan(codes))):
                    raise BadData(f"some values lie outside the {self.bins} declared categories")

    def sum_block(self, block: Units) -> Array:
        values = self.filled(block)[:, 0]
        xp = array_namespace(values)
        if self.edges is not None:
            codes, inside = xp.searchsorted(like(self._inner, values), values, side="right"), xp.isfinite(values)
        else:
            inside = (values >= 0) & (values < self.bins) & (values == xp.floor(values))
            codes = xp.astype(xp.where(inside, values, xp.zeros_like(values)), xp.int64)
        weights = block.row_weights(values) / _observed_share(block, values) * xp.astype(inside, xp.float64)
        return counts(codes, weights, self.bins)

    @cached_property
    def _inner(self) -> Floats:
        return np.asarray(self.edges)[1:-1]


def _observed_share(block: Units, values: Array) -> Array | float:
    """For every row, the share of its unit's rows that are there; 1 where none is."""
    if block.offsets is None:
        return 1.0
    sizes = np.diff(block.offsets)
    if not on_host(values):
        xp = array_namespace(values)
        share = block.average(xp.astype(~xp.isnan(values), xp.float64))
        share = xp.where(share > 0, share, xp.ones_like(share))
        return xp.take(share, beside(np.repeat(np.arange(len(block)), sizes), values))
    there = ~np.isnan(values)
    share = np.add.reduceat(there.astype(np.float64), block.offsets[:-1]) / sizes
    return np.repeat(np.where(share > 0, share, 1.0), sizes)
