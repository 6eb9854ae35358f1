"""Public ranges: values are clamped column by column and mapped to [-1, 1], a free transformation of each row."""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on
from zerosum.compute.units import Units
from zerosum.kernel.statistic import SMALLEST, FloatArray, Positive
from zerosum.statistics.missing import Filled


class Ranged(Filled):
    """A statistic of rows that may first be clamped into declared ranges, then clipped to L2 norm `clip`.

    The ranges and the clip are public. Clamping is a function of one row, so that no sensitivity depends on it.

    Parameters
    ----------
    columns : int
        d, the number of columns of the data.
    clip : float
        c, the largest norm of a row, after the ranges are mapped to [-1, 1] if there are any.
    lower, upper : array of shape (columns,), optional
        Public ranges: the middle of a range becomes 0, its ends -1 and 1. Both or neither.
    fill, own_rows
        The rules for missing values, as for `Filled`.
    """

    columns: int = Field(gt=0)
    clip: Positive
    lower: FloatArray | None = None
    upper: FloatArray | None = None

    @model_validator(mode="after")
    def _ranges_fit(self) -> Self:
        if (self.lower is None) != (self.upper is None):
            given = "lower" if self.upper is None else "upper"
            raise ValueError(f"lower and upper must be given together, got only {given}")
        if self.lower is not None and self.upper is not None:
            if self.lower.shape != (self.columns,) or self.upper.shape != (self.columns,):
                raise ValueError(f"lower and upper must hold one number for each of the {self.columns} columns")
            if not np.all(self.upper - self.lower >= SMALLEST):
                raise ValueError("every lower bound must lie below its upper bound")
        return self

    def normalise(self, block: Units) -> Array:
        """Rows as floats, missing values filled in by their rules, in [-1, 1] by column where ranges are declared.

        Parameters
        ----------
        block : Units
            Some units; each row is mapped by itself.

        Returns
        -------
        array of shape (rows, columns)
            Doubles. A missing value in a column without a rule stays NaN; the clip of its row then gives zero.
        """
        rows = self.filled(block)
        xp = array_namespace(rows)
        if self.lower is None or self.upper is None:
            return rows
        middle, half = (constant_on(each, rows) for each in self._middle)
        # Comparisons with NaN are false: a missing value passes the clip as NaN.
        return xp.clip((rows - middle) / half, -1.0, 1.0)

    @cached_property
    def _middle(self) -> tuple[Floats, Floats]:
        """The middle of each range and half its length, both of shape (columns,)."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        return (upper + lower) / 2, (upper - lower) / 2
