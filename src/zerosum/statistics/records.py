"""Clipped records: what a private publication publishes.

Tested in tests/coordinator/test_publication.py.
"""

from __future__ import annotations

from typing import ClassVar

from zerosum.arrays import Array
from zerosum.kernel.statistic import Adjacency, BoundedMap
from zerosum.kernel.units import Units
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import clip_rows


class ClippedRecords(Ranged, BoundedMap):
    """Of every unit its mean row v, clipped to norm c, to be published one by one or summed.

    Sensitivity. Replacing a unit replaces its own row and no other: norm(v - v') <= 2c, attained by v' = -v. In a sum,
    adding or removing one moves it by norm(v) <= c; a publication tells how many units there are, so that it is for
    replaced units only.
    """

    name: ClassVar[str] = "clipped_records"

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * self.clip if adjacency is Adjacency.REPLACE_ONE else self.clip

    def map_block(self, block: Units) -> Array:
        return clip_rows(block.average(self.normalise(block)), self.clip)
