"""Sums of vectors.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from typing import ClassVar

from array_api_compat import array_namespace

from zerosum.arrays import Array
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import added, clip_rows


class VectorSum(Ranged):
    """The sum over units of a unit's mean row v, clipped to norm c; with `count`, of (1, v).

    Sensitivity. Replacing a unit moves the sum by norm(v - v') <= 2c (triangle inequality; attained by v' = -v); a
    count does not move. Adding or removing one moves it by norm(v) <= c, with its count by sqrt(1 + c^2).
    """

    name: ClassVar[str] = "vector_sum"
    adds_in_pieces: ClassVar[bool] = True
    count: bool = False

    @property
    def size(self) -> int:
        return self.columns + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        if adjacency is Adjacency.REPLACE_ONE:
            return 2 * self.clip
        return math.hypot(self.clip, 1.0) if self.count else self.clip

    def sum_block(self, block: Units) -> Array:
        vectors = clip_rows(block.average(self.normalise(block)), self.clip)
        xp = array_namespace(vectors)
        total = added(vectors)
        if not self.count:
            return total
        return xp.concat([xp.full_like(total[:1], float(len(block))), total])
