"""Who left when, and why: the table that survival curves are made of.

Tested in tests/statistics/test_groups.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.kernel.statistic import Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.groups import MOST_BINS, Grouped, codes_of, unit_weights


class SurvivalTable(Grouped):
    """For each group and each public bin of time how many units left in it without the event, and how many with it;
    then how many were there longer than the last bin.

    Columns are the time, whether the event happened then (code 1) or observation ended (0), and, if there are several
    groups, the group. A bin holds times after its left edge up to and with its right one; times before the first edge
    count in the first bin. A row with something missing counts nowhere, and a unit's rows share its weight.

    Sensitivity. A row contributes 1 at one place or nothing, a unit an average of such vectors (or zero): two are at
    most sqrt(2) apart, attained by any two places, and their norm is at most 1.
    """

    name: ClassVar[str] = "survival_table"
    positions: tuple[int, ...] = (0, 1)
    edges: FloatArray
    columns: int = Field(ge=2, le=3)

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        if self.edges.ndim != 1 or not 2 <= self.edges.size <= MOST_BINS + 1 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(f"edges must rise, and make 1 to {MOST_BINS} bins")
        if self.positions != (0, 1) or self.group not in (None, 2):
            raise ValueError("columns are the time, the event and, where there is one, the group")
        return self

    @property
    def bins(self) -> int:
        return self.edges.size - 1

    @property
    def codes(self) -> dict[int, int]:
        return {1: 2} | super().codes

    @property
    def size(self) -> int:
        return self.groups * (2 * self.bins + 1)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        event, said = codes_of(rows[:, 1], 2)
        weights = unit_weights(block, (known & said & ~np.isnan(rows[:, 0]))[:, None])[:, 0]
        at = np.searchsorted(self.edges[1:], rows[:, 0], side="left")
        place = np.where(at < self.bins, 2 * np.minimum(at, self.bins - 1) + event, 2 * self.bins)
        width = 2 * self.bins + 1
        return np.bincount(codes * width + place, weights=weights, minlength=self.size).astype(np.float64)
