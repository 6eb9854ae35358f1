"""Sums and counts of what is observed, column by column.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.statistic import SMALLEST, Adjacency
from zerosum.kernel.units import Units
from zerosum.statistics.missing import observed_means
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import added, clip_rows


class ObservedSums(Ranged):
    """For each of d columns the sum of what is observed, then for each the number of units observed in it.

    A unit is observed in a column if any of its rows is. It contributes (v, w m): v the mean of what is observed of
    its rows, column by column, and m 1 where something is; both are 0 where nothing is. v is clipped to norm
    c sqrt(|m|/d), |m| the number of its columns, so that whoever is observed in fewer of them has less to say; with
    ranges, c is at most sqrt(d), and there nothing is cut off. The weight of counts is w = a c / sqrt(d), a the
    `count_weight`.

    Sensitivity. Adding or removing a unit moves the sum by sqrt(norm(v)^2 + w^2 |m|) <= c sqrt(1 + a^2), attained where
    everything is observed. Replacing one with columns S by one with columns T:

    With ranges and c = sqrt(d), or with one column, |v_j| <= c/sqrt(d) =: b. A column in both moves by at most
    (2b)^2 in squares, one in S or T alone by b^2 + (a b)^2 <= (2b)^2 if a <= sqrt(3), others by nothing. So
    D = 2 b sqrt(d) = 2c, attained by v' = -v with everything observed.

    Otherwise norm(v - v')^2 <= 2 norm(v)^2 + 2 norm(v')^2 <= 2 (c^2/d) (|S| + |T|), and counts move by
    a^2 (c^2/d) k, k the number of columns in S or T alone. Since |S| + |T| + k = 2 |S or T| <= 2d, all of it is at most
    2 (c^2/d) 2d = 4 c^2 if a <= sqrt(2). So D = 2c, attained as before; and more than sqrt(2) will not do: with d odd,
    (d + 1)/2 columns in each of S and T and one in both, v = -v' in that one, the square is
    2 c^2 (d + 1)/d + a^2 (c^2/d) (d - 1), which is 4 c^2 at a = sqrt(2).

    (Were v clipped to c whatever is observed, no weight would be free: v = -v' in one column that both have, all others
    observed in one of them only, is sqrt(4 c^2 + w^2 (d - 1)) apart.)
    """

    name: ClassVar[str] = "observed_sums"
    adds_in_pieces: ClassVar[bool] = True
    count_weight: float = Field(default=1.0, ge=SMALLEST, le=math.sqrt(3))

    @model_validator(mode="after")
    def _weight_is_free(self) -> Self:
        if self.count_weight > self.heaviest:
            raise ValueError(f"count_weight must not exceed {self.heaviest:.6g} here, got {self.count_weight:g}")
        return self

    @property
    def radius(self) -> float:
        """c: the clip, or what ranges allow if that is less."""
        return self.clip if self.lower is None else min(self.clip, math.sqrt(self.columns))

    @property
    def heaviest(self) -> float:
        """The largest weight of counts that adds nothing to D when a unit is replaced."""
        whole = self.lower is not None and self.clip >= math.sqrt(self.columns)
        return math.sqrt(3) if whole or self.columns == 1 else math.sqrt(2)

    @property
    def size(self) -> int:
        return 2 * self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.radius if adjacency is Adjacency.REPLACE_ONE else self.radius * math.hypot(1, self.count_weight)

    @property
    def _weight(self) -> float:
        return self.count_weight * self.radius / math.sqrt(self.columns)

    def sum_block(self, block: Units) -> Array:
        means, some = observed_means(block, self.normalise(block))
        xp = array_namespace(means)
        there = xp.astype(some, xp.float64)
        columns = xp.astype(xp.sum(xp.astype(some, xp.int64), axis=1), xp.float64)
        share = xp.sqrt(xp.where(columns > 0, columns, xp.ones_like(columns)) / self.columns)[:, None]
        vectors = clip_rows(means, self.radius)  # first: what is divided by a share must not overflow
        vectors = clip_rows(vectors / share, self.radius) * share
        return xp.concat([added(vectors), self._weight * added(there)])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sums of what is observed, how many units are observed), by column."""
        return release[: self.columns], release[self.columns :] / self._weight

    def count_noise(self, noise: float) -> float:
        """The standard deviation of a count, where that of the release is `noise`."""
        return noise / self._weight
