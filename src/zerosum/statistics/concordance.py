"""A table of scores by exit, for the concordance index of a survival model on people who were held out of its fit."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import fold
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.cox import CoxRows
from zerosum.statistics.groups import MOST_BINS
from zerosum.statistics.holdout import units_of_part


class ScoreTable(CoxRows):
    """For each bin of the score and of the time the units that left without and with the event, and those observed
    longer.

    The score of a unit is the linear predictor of its first row, v times public coefficients; its exit is that of its
    last row (`CoxRows.episodes`). The release has Q (2 bins + 1) entries, Q one more than the number of cuts.

    Sensitivity. A unit contributes zero or 1 at one place, so that two units are at most sqrt(2) apart, attained by two
    units at two places, and adding or removing one moves the sum by at most 1. Whether a unit is in the part depends on
    its own rows, and zero is one of its contributions.

    Parameters
    ----------
    coefficients : array of shape (p,)
        Coefficients of v in the score.
    cuts : array of shape (Q - 1,)
        Rising public bounds between the bins of the score.
    columns, lower, upper, edges, entry, strata, causes, cause, part, hold_out, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "score_table"
    coefficients: FloatArray
    cuts: FloatArray = Field()

    @model_validator(mode="after")
    def _table_fits(self) -> Self:
        if self.coefficients.shape != (self.features,):
            raise ValueError(f"coefficients must hold one number for each of the {self.features} features")
        if self.cuts.ndim != 1 or not 1 <= self.cuts.size <= MOST_BINS or not np.all(np.diff(self.cuts) > 0):
            raise ValueError(f"cuts must rise, and make 2 to {MOST_BINS + 1} bins of the score")
        return self

    @property
    def size(self) -> int:
        """Q (2 bins + 1)."""
        return (self.cuts.size + 1) * (2 * self.bins + 1)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        """The table of a block, one bin of the score after another."""
        rows = self.episodes(units_of_part(block, self.part, self.hold_out))
        first = rows.place == 0
        # The next row belongs to another unit.
        last = np.concatenate([first[1:], [True]])[: len(first)]
        # Elementwise operations and `fold`: the bin of a unit depends on the unit alone.
        score = np.searchsorted(self.cuts, fold(rows.v[first] * self.coefficients[None, :]), side="right")
        end, event = rows.end[last], rows.event[last]
        longer = (end >= self.edges[-1]) & ~event
        place = np.where(longer, 2 * self.bins, 2 * self._bin(end) + event)
        width = 2 * self.bins + 1
        return np.bincount(score * width + place, minlength=self.size).astype(np.float64)

    def split(self, release: Floats) -> Floats:
        """A release as a table (Q, 2 bins + 1): pairs (without, with the event) by bin of time, then those longer."""
        return release.reshape(self.cuts.size + 1, 2 * self.bins + 1)
