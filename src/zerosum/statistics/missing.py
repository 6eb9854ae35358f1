"""Missing values filled in, row by row and unit by unit, before anything else is done to rows.

Tested in tests/statistics/test_filled.py.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import beside
from zerosum.kernel.statistic import LARGEST, BoundedStatistic
from zerosum.kernel.units import Units
from zerosum.statistics.rows import doubles, like


class Filled(BoundedStatistic):
    """A statistic of rows whose missing values (NaN) are first filled in, where a column has a rule.

    `fill` holds a public value for each column, or None where there is no rule; empty, no column has one. In the
    columns at the positions `own_rows` a unit's own rows come first: the mean of those that are observed, and `fill`
    where none is. Filling is a function of one unit and of public values, so no sensitivity depends on it.
    """

    fill: tuple[float | None, ...] = ()
    own_rows: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _fills_fit(self) -> Self:
        if self.fill and len(self.fill) != self.columns:
            raise ValueError(f"fill must hold a number or None for each of the {self.columns} columns")
        if not all(value is None or abs(value) <= LARGEST for value in self.fill):  # fails on what is not a number
            raise ValueError(f"fill must hold finite numbers of at most {LARGEST:g} only")
        if any(not 0 <= at < len(self.fill) or self.fill[at] is None for at in self.own_rows):
            raise ValueError("a column whose own rows are taken needs a fill for units that have none")
        return self

    @cached_property
    def _fill(self) -> Floats:
        return np.array([[math.nan if value is None else value for value in self.fill]])

    @cached_property
    def _own(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.columns), self.own_rows)[None, :]

    def filled(self, block: Units) -> Array:
        """The rows as doubles; what is missing in a column without a rule stays NaN."""
        rows = doubles(block.rows)
        if not self.fill:
            return rows
        xp, value = array_namespace(rows), like(self._fill, rows)
        gone = xp.isnan(rows)
        if self.own_rows and block.offsets is not None:
            own, some = observed_means(block, rows)
            own = xp.where(some & like(self._own, rows), own, value)
            value = xp.take(own, beside(np.repeat(np.arange(len(block)), np.diff(block.offsets)), rows), axis=0)
        return xp.where(gone, value, rows)


def observed_means(block: Units, rows: Array) -> tuple[Array, Array]:
    """For each unit the mean of what is observed of its rows, column by column (0: nothing is), and whether any is."""
    xp = array_namespace(rows)
    gone = xp.isnan(rows)
    seen = block.average(xp.astype(~gone, xp.float64))
    some = seen > 0
    total = block.average(xp.where(gone, xp.zeros_like(rows), rows))
    return total / xp.where(some, seen, xp.ones_like(seen)), some
