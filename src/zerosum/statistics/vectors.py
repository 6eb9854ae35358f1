"""Sums of clipped vectors: one mean row per unit.

The map of one unit, with d = `columns` and m rows x_1, ..., x_m in R^d:

    v = clip_c(mean of x_1, ..., x_m)        shape (d,), norm(v) <= c
    contribution = v, or (1, v) with `count`  shape (d,) or (1 + d,)

clip_c scales a vector of norm above c down to norm c. Rows are first mapped to [-1, 1] column by column if public
ranges are declared (`zerosum.statistics.ranges`). The release is the sum of contributions over units plus noise.
"""

from __future__ import annotations

import math
from typing import ClassVar

from array_api_compat import array_namespace

from zerosum.arrays import Array
from zerosum.compute.backends.exact import added, clip_rows
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.ranges import Ranged


class VectorSum(Ranged):
    """The sum over units of a unit's mean row v, clipped to norm c; with `count`, of (1, v).

    Sensitivity. Replacing a unit replaces v by v' and moves the sum by norm(v - v'). By the triangle inequality norm(v
    - v') <= norm(v) + norm(v') <= 2c, attained by v' = -v with norm(v) = c. The entry that counts units does not move,
    because the number of units stays the same. Adding or removing a unit moves the sum by norm(v) <= c, and with the
    count by norm((1, v)) <= sqrt(1 + c^2).

    In L1 norm, for Laplace noise: norm_1(v) <= sqrt(d) norm(v) <= sqrt(d) c =: c_1 by Cauchy-Schwarz, attained by d
    equal entries. With ranges every entry of v lies in [-1, 1], also after clipping, which shortens v, so that c_1 is
    at most d. Replacing a unit moves the sum by at most 2 c_1, adding or removing one by c_1, with the count by
    1 + c_1.

    Parameters
    ----------
    columns : int
        d, the number of columns of the data.
    clip : float
        c, the largest norm of a contribution, in the units of the rows after ranges were applied.
    lower, upper : array of shape (columns,), optional
        Public ranges. Values are clamped to them and mapped to [-1, 1].
    count : bool
        Whether the number of units is released as the first entry.
    """

    name: ClassVar[str] = "vector_sum"
    adds_in_pieces: ClassVar[bool] = True
    count: bool = False

    @property
    def size(self) -> int:
        """d, or d + 1 with the count."""
        return self.columns + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2 * self.clip
        return math.hypot(self.clip, 1.0) if self.count else self.clip

    def sensitivity_l1(self, adjacency: Adjacency) -> float:
        """The L1 bound proved in the class docstring."""
        whole = math.sqrt(self.columns) * self.clip
        if self.lower is not None:
            whole = min(whole, float(self.columns))
        return 2 * whole if adjacency is Adjacency.REPLACE_ONE else whole + int(self.count)

    def sum_block(self, block: Units) -> Array:
        """The sum of the clipped mean rows of a block, shape (size,)."""
        # The mean is clipped, not the rows: a unit with many rows weighs the same as a unit with one.
        vectors = clip_rows(block.average(self.normalise(block)), self.clip)
        xp = array_namespace(vectors)
        total = added(vectors)
        if not self.count:
            return total
        # The count is exact: it is not multiplied by any weight, so 1 in the release is one unit.
        return xp.concat([xp.full_like(total[:1], float(len(block))), total])
