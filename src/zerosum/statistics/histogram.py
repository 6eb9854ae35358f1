"""Counts of public categories or bins.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.errors import BadData
from zerosum.kernel.statistic import Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.missing import Filled


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
                codes = np.asarray(block.rows)
                if np.any((codes < 0) | (codes >= self.bins) | ((codes != np.floor(codes)) & ~np.isnan(codes))):
                    raise BadData(f"some values lie outside the {self.bins} declared categories")

    def sum_block(self, block: Units) -> Array:
        values = to_numpy(self.filled(block)[:, 0])
        if self.edges is not None:
            codes, inside = np.searchsorted(self.edges[1:-1], values, side="right"), np.isfinite(values)
        else:
            inside = (values >= 0) & (values < self.bins) & (values == np.floor(values))
            codes = np.where(inside, values, 0).astype(np.intp)
        weights = block.row_weights(values) / _observed_share(block, values) * inside
        return np.bincount(codes, weights=weights, minlength=self.bins)


def _observed_share(block: Units, values: Floats) -> Floats | float:
    """For every row, the share of its unit's rows that are there; 1 where none is."""
    if block.offsets is None:
        return 1.0
    sizes, there = np.diff(block.offsets), ~np.isnan(values)
    share = np.add.reduceat(there.astype(np.float64), block.offsets[:-1]) / sizes
    return np.repeat(np.where(share > 0, share, 1.0), sizes)
