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
    """A statistic of rows that may first be clamped into declared ranges, then clipped to L2 norm `clip`."""

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
        """Rows as floats, missing values filled in by their rules, in [-1, 1] by column where ranges are declared."""
        rows = self.filled(block)
        xp = array_namespace(rows)
        if self.lower is None or self.upper is None:
            return rows
        middle, half = (constant_on(each, rows) for each in self._middle)
        return xp.clip((rows - middle) / half, -1.0, 1.0)

    @cached_property
    def _middle(self) -> tuple[Floats, Floats]:
        """Of every range its middle and half its length."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        return (upper + lower) / 2, (upper - lower) / 2
