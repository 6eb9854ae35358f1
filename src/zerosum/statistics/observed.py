"""Sums and counts of observed values, column by column, for data with missing values.

The map of one unit, with d = `columns`: m in {0, 1}^d marks the columns in which some row of the unit is observed. v in
R^d is the mean of the observed rows, column by column, and 0 where nothing is observed. The contribution is (v, w m),
shape (2 d,).
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import added, clip_rows
from zerosum.compute.units import Units
from zerosum.kernel.statistic import SMALLEST, Adjacency
from zerosum.statistics.missing import observed_means
from zerosum.statistics.ranges import Ranged


class ObservedSums(Ranged):
    """For each of d columns the sum of observed values, then for each column the number of units observed in it.

    A unit is observed in a column if any of its rows is. It contributes (v, w m) as defined above. v is clipped to norm
    c sqrt(|m|/d), |m| the number of observed columns, so that a unit observed in fewer columns has less influence. With
    ranges, c is at most sqrt(d), and at c = sqrt(d) nothing is cut off. The weight of counts is w = a c / sqrt(d), a
    the `count_weight`.

    Sensitivity. Adding or removing a unit moves the sum by sqrt(norm(v)^2 + w^2 |m|) <= c sqrt(1 + a^2), attained if
    all columns are observed. For replacing a unit with columns S by one with columns T there are two cases.

    With ranges and c = sqrt(d), or with one column, |v_j| <= c/sqrt(d) =: b. A column in both S and T moves by at most
    (2b)^2 in squares. A column in S or T alone moves by b^2 + (a b)^2 <= (2b)^2 if a <= sqrt(3). Other columns do not
    move. So D = 2 b sqrt(d) = 2c, attained by v' = -v with all columns observed.

    Otherwise norm(v - v')^2 <= 2 norm(v)^2 + 2 norm(v')^2 <= 2 (c^2/d) (|S| + |T|). Counts move by a^2 (c^2/d) k, k the
    number of columns in S or T alone. Since |S| + |T| + k = 2 |S or T| <= 2d, the total is at most 2 (c^2/d) 2d = 4 c^2
    if a <= sqrt(2). So D = 2c, attained as before. A weight above sqrt(2) is not free: with d odd, (d + 1)/2 columns in
    each of S and T and one in both, v = -v' in that one, the square is 2 c^2 (d + 1)/d + a^2 (c^2/d) (d - 1), which is
    4 c^2 at a = sqrt(2).

    (If v were clipped to c for any number of observed columns, no weight would be free: v = -v' in one column that both
    have, all others observed in one of them only, is sqrt(4 c^2 + w^2 (d - 1)) apart.)

    In L1 norm, for Laplace noise: with b = c/sqrt(d), norm_1(v) <= sqrt(|S|) norm(v) <= b |S| by Cauchy-Schwarz. So v
    moves by at most b (|S| + |T|), and the counts by a b k. With |S| + |T| = 2 |S or T| - k and k <= |S or T| <= d the
    total is at most b (2d - k + a k) <= b d (1 + max(1, a)), attained by v' = -v with all columns observed for a <= 1,
    and for a > 1 by a unit observed everywhere and one observed nowhere. Adding or removing a unit moves the sum by at
    most b |S| (1 + a) <= b d (1 + a).

    Parameters
    ----------
    columns : int
        d, the number of columns.
    clip : float
        The largest norm of v if all columns are observed.
    lower, upper : array of shape (columns,), optional
        Public ranges, mapped to [-1, 1].
    count_weight : float
        a, the weight of counts relative to sums; at most `largest_weight`.
    """

    name: ClassVar[str] = "observed_sums"
    adds_in_pieces: ClassVar[bool] = True
    count_weight: float = Field(default=1.0, ge=SMALLEST, le=math.sqrt(3))

    @model_validator(mode="after")
    def _weight_is_free(self) -> Self:
        if self.count_weight > self.largest_weight:
            raise ValueError(f"count_weight must not exceed {self.largest_weight:.6g} here, got {self.count_weight:g}")
        return self

    @property
    def radius(self) -> float:
        """c: the clip, or sqrt(d) if ranges are declared and sqrt(d) is smaller."""
        return self.clip if self.lower is None else min(self.clip, math.sqrt(self.columns))

    @property
    def largest_weight(self) -> float:
        """The largest a that adds nothing to D for a replaced unit: sqrt(3) in the first case of the proof, else
        sqrt(2).
        """
        whole = self.lower is not None and self.clip >= math.sqrt(self.columns)
        return math.sqrt(3) if whole or self.columns == 1 else math.sqrt(2)

    @property
    def size(self) -> int:
        """A sum and a count for each column."""
        return 2 * self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2 * self.radius if adjacency is Adjacency.REPLACE_ONE else self.radius * math.hypot(1, self.count_weight)

    def sensitivity_l1(self, adjacency: Adjacency) -> float:
        """The L1 bound proved in the class docstring."""
        weight = max(1.0, self.count_weight) if adjacency is Adjacency.REPLACE_ONE else self.count_weight
        return self.radius * math.sqrt(self.columns) * (1 + weight)

    @property
    def _weight(self) -> float:
        """w = a c / sqrt(d)."""
        return self.count_weight * self.radius / math.sqrt(self.columns)

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: sums, then weighted counts."""
        means, some = observed_means(block, self.normalise(block))
        xp = array_namespace(means)
        there = xp.astype(some, xp.float64)
        columns = xp.astype(xp.sum(xp.astype(some, xp.int64), axis=1), xp.float64)
        # sqrt(|m|/d); a unit without observed columns gets |m| = 1 to avoid division by zero, and its v is zero.
        share = xp.sqrt(xp.where(columns > 0, columns, xp.ones_like(columns)) / self.columns)[:, None]
        # The first clip bounds v, so that the division by `share` cannot overflow.
        vectors = clip_rows(means, self.radius)
        # Clipping v/share to c and multiplying by share clips v to c sqrt(|m|/d).
        vectors = clip_rows(vectors / share, self.radius) * share
        return xp.concat([added(vectors), self._weight * added(there)])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sums of observed values, numbers of observed units), each of shape (columns,)."""
        return release[: self.columns], release[self.columns :] / self._weight

    def count_noise(self, noise: float) -> float:
        """The standard deviation of a count, if that of the release is `noise`."""
        return noise / self._weight
