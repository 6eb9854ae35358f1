"""Second moments of columns that are mapped by public rising curves, such as noisy distribution functions (ranks)."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on
from zerosum.compute.units import Units
from zerosum.kernel.statistic import FloatArray
from zerosum.statistics.moments import SecondMoment

# Largest number of knots of a curve.
_MOST_KNOTS = 4097


class RankMoment(SecondMoment):
    """The second moment of rows after each column is mapped by a public curve f_j from [-1, 1] to [-1, 1].

    x is the row in [-1, 1] by column, as for `SecondMoment`. f_j is linear between K equally spaced knots, at which it
    has the values `heights`. With f_j = 2 F_j - 1 for a distribution function F_j, the second moments are those of
    ranks.

    Sensitivity. The curves are public and applied to each row alone. f(x) lies in [-1, 1]^d, and is then clipped to
    norm c like a row of `SecondMoment`. So the contributions are contributions of a `SecondMoment`, and D is the same:
    sqrt(2) (c^2 + a^2) if a unit is replaced, c^2 + a^2 if one is added or removed. With c at most sqrt(d) it is
    attained as there where every curve takes the values -1 and 1, since f is continuous and then takes all values
    between.

    Parameters
    ----------
    heights : array of shape (columns, K)
        Values of the curves at the knots, non-decreasing, in [-1, 1].
    columns, clip, lower, upper, mean_weight, count
        As for `SecondMoment`; ranges are required.
    """

    name: ClassVar[str] = "rank_moment"
    heights: FloatArray

    @model_validator(mode="after")
    def _heights_fit(self) -> Self:
        if self.lower is None:
            raise ValueError("lower and upper are required: knots are equally spaced on the ranges")
        if self.heights.ndim != 2 or len(self.heights) != self.columns or not 2 <= self.heights.shape[1] <= _MOST_KNOTS:
            raise ValueError(f"heights must have a row of 2 to {_MOST_KNOTS} numbers for each of the columns")
        if not (np.all(np.abs(self.heights) <= 1) and np.all(np.diff(self.heights, axis=1) >= 0)):
            raise ValueError("heights must not fall, and lie in [-1, 1]")
        return self

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: that of a second moment, and positions and ends of intervals."""
        return super().row_bytes + 8 * 5 * self.columns

    def normalise(self, block: Units) -> Array:
        """Rows mapped by the curves, shape (rows, columns); a missing value without a rule stays NaN."""
        x = super().normalise(block)
        xp = array_namespace(x)
        last = self.heights.shape[1] - 1
        place = (x + 1.0) / 2.0 * last
        # A missing value gets a place and becomes NaN again below, by the share of its interval.
        at = xp.astype(xp.clip(xp.floor(xp.where(xp.isnan(place), xp.zeros_like(place), place)), 0, last - 1), xp.int64)
        start = constant_on(np.arange(self.columns) * (last + 1), at)
        low, high = (self._values_at(constant_on(self._flat, x), start + at + step) for step in (0, 1))
        share = place - xp.astype(at, xp.float64)
        # Rounding may leave the interpolated value just outside of the two heights.
        return xp.clip(low + share * (high - low), -1.0, 1.0)

    @cached_property
    def _flat(self) -> Floats:
        """The heights of all curves, one after another."""
        return np.ascontiguousarray(self.heights, dtype=np.float64).ravel()

    @staticmethod
    def _values_at(values: Array, places: Array) -> Array:
        """The values at places of any shape."""
        xp = array_namespace(values)
        return xp.reshape(xp.take(values, xp.reshape(places, (-1,))), places.shape)
