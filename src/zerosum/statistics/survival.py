"""Counts of exits by time and cause: the table behind survival curves.

The map of one row, with B bins of time and G groups: 1 at the place of (group, bin, event), or at the group's last
place if the time lies beyond the last bin. A unit contributes the mean over its complete rows. The release has the
shape (G (2 B + 1),).
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.groups import MOST_BINS, Grouped, codes_of, unit_weights


class SurvivalTable(Grouped):
    """For each group and each public bin of time the units that left without the event and with it; then those observed
    longer.

    Columns are the time, the event indicator (1: the event happened then; 0: observation ended), and the group if there
    are several groups. A bin holds times above its left edge up to and including its right edge. Times before the first
    edge count in the first bin. A row with any missing value does not count. The rows of a unit share its weight.

    Sensitivity. A row contributes 1 at one place or zero. A unit contributes an average of such vectors, or zero. Two
    contributions are at most sqrt(2) apart, attained by any two places. Their norm is at most 1, which bounds an added
    or removed unit.

    Parameters
    ----------
    edges : array of shape (B + 1,)
        Rising public edges of the time bins.
    columns : int
        2, or 3 with a group.
    group : int, optional
        2 if there are groups, else None.
    groups : int
        G, the number of groups.
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
        """B, the number of time bins."""
        return self.edges.size - 1

    @property
    def codes(self) -> dict[int, int]:
        """Also the event indicator, with two codes."""
        return {1: 2} | super().codes

    @property
    def size(self) -> int:
        """G (2 B + 1)."""
        return self.groups * (2 * self.bins + 1)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        """The table of a block, group after group: (censored, event) for each bin, then the units beyond the last
        bin.
        """
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        event, has_event = codes_of(rows[:, 1], 2)
        weights = unit_weights(block, (known & has_event & ~np.isnan(rows[:, 0]))[:, None])[:, 0]
        # side="left" puts a time on a right edge into the bin that ends there, as survival analysis counts events at t.
        at = np.searchsorted(self.edges[1:], rows[:, 0], side="left")
        # Beyond the last bin the event indicator is not used: the unit was at risk in all bins.
        place = np.where(at < self.bins, 2 * np.minimum(at, self.bins - 1) + event, 2 * self.bins)
        width = 2 * self.bins + 1
        return np.bincount(codes * width + place, weights=weights, minlength=self.size).astype(np.float64)
