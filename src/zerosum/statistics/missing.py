"""Missing values filled in, row by row and unit by unit, before any other step.

A missing value is NaN. Filling is a function of one unit and of public values, so that no sensitivity depends on it.
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
from zerosum.compute.backends.exact import constant_on, doubles
from zerosum.compute.devices import array_on
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.statistic import LARGEST


class Filled(BoundedStatistic):
    """A statistic of rows whose missing values (NaN) are first filled in, in the columns that have a rule.

    Parameters
    ----------
    fill : tuple of float or None
        A public value for each column, or None for a column without a rule. Empty: no column has a rule.
    own_rows : tuple of int
        Positions of columns in which a missing value is the mean of the unit's own observed rows. `fill` is used if no
        row of the unit is observed.
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
        """The public values as an array of shape (1, columns), NaN where there is no rule."""
        return np.array([[math.nan if value is None else value for value in self.fill]])

    @cached_property
    def _own(self) -> NDArray[np.bool_]:
        """Whether each column is filled from the unit's own rows; shape (1, columns)."""
        return np.isin(np.arange(self.columns), self.own_rows)[None, :]

    def filled(self, block: Units) -> Array:
        """The rows as doubles, filled in; shape (rows, columns). A missing value in a column without a rule stays
        NaN.

        Parameters
        ----------
        block : Units
            Some units; a value is filled in from its own unit or from public values.
        """
        rows = doubles(block.rows)
        if not self.fill:
            return rows
        xp, value = array_namespace(rows), constant_on(self._fill, rows)
        gone = xp.isnan(rows)
        if self.own_rows and block.offsets is not None:
            own, some = observed_means(block, rows)
            # The unit's own mean where there is one, else the public value. Then one copy for each row of the unit.
            own = xp.where(some & constant_on(self._own, rows), own, value)
            value = xp.take(own, array_on(np.repeat(np.arange(len(block)), np.diff(block.offsets)), rows), axis=0)
        return xp.where(gone, value, rows)


def observed_means(block: Units, rows: Array) -> tuple[Array, Array]:
    """For each unit the mean of its observed values by column (0 if none), and whether there are any.

    Parameters
    ----------
    block : Units
        The units.
    rows : array of shape (rows, columns)
        Their rows, NaN where missing.

    Returns
    -------
    means : array of shape (units, columns)
    some : bool array of shape (units, columns)
    """
    xp = array_namespace(rows)
    gone = xp.isnan(rows)
    # Share of the unit's rows that are observed.
    fraction = block.average(xp.astype(~gone, xp.float64))
    some = fraction > 0
    # Both averages divide by the number of all rows, which cancels in the quotient.
    total = block.average(xp.where(gone, xp.zeros_like(rows), rows))
    return total / xp.where(some, fraction, xp.ones_like(fraction)), some
