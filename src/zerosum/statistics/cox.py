"""Rows of survival times: moments of covariates, and the table of exits.

A row holds p features, then the entry time and the stratum if the statistic has these columns, then the time and the
code of the event. The row was at risk from its entry (0 without one) to its time. Codes are 0, ..., causes - 1; the
event of interest is `cause`, and all others end the observation. Times are clipped to the horizon, the last of the
public edges; a row that is observed beyond it is censored there. A row with a missing value, with another code, with a
stratum other than 0, ..., G - 1, or with a time not after its entry contributes zero.

**Several rows.** The rows of a unit are intervals (entry, time] of one observation, with the features of each interval
(time-varying covariates). They are put in the order of their times (`CoxRows.episodes`). An interval begins at the end
of the one before it if it would begin earlier, so that no time counts twice, and rows after the first event of a unit
do not count. Without an entry column each row begins where the one before it ends. The order, the cuts and the rows
that count are functions of the rows of the unit and of public values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray
from zerosum.statistics.groups import MOST_BINS, codes_of
from zerosum.statistics.holdout import Part, units_of_part
from zerosum.statistics.missing import Filled
from zerosum.statistics.regression import SQUARE


@dataclass(frozen=True, eq=False)
class Episodes:
    """Rows that count, in the order of units and of times within a unit."""

    v: Floats  # features in [-1, 1] (rows, p)
    begin: Floats
    end: Floats
    event: NDArray[np.bool_]  # whether the event of interest happened at the end
    stratum: NDArray[np.intp]
    unit: NDArray[np.intp]  # position of the unit in the block; rising
    place: NDArray[np.intp]  # position of the row among those of its unit: 0, 1, ...

    def since(self, time: float) -> Episodes:
        """The same rows, observed from a time on only; rows that end before it are left out."""
        if time == 0:
            return self
        later = self.end > time
        unit = self.unit[later]
        begin = np.maximum(self.begin[later], time)
        return Episodes(
            self.v[later], begin, self.end[later], self.event[later], self.stratum[later], unit, positions(unit)
        )


def positions(unit: NDArray[np.intp]) -> NDArray[np.intp]:
    """The position of each row among those of its unit, for rows in the order of units.

    >>> positions(np.array([0, 0, 3, 4, 4])).tolist()
    [0, 1, 0, 0, 1]
    """
    at = np.arange(len(unit))
    first = np.ones(len(unit), dtype=bool)
    first[1:] = unit[1:] != unit[:-1]
    # The place of the latest first row.
    return np.asarray(at - np.maximum.accumulate(np.where(first, at, 0)))


class CoxRows(Filled):
    """Base of the statistics of this module.

    Parameters
    ----------
    columns : int
        p features, the optional columns, the time and the event.
    lower, upper : array of shape (p,)
        Public ranges of the features, mapped to [-1, 1].
    edges : array of shape (bins + 1,)
        Rising public edges of the bins of time, from 0 to the horizon.
    entry : bool
        Whether there is a column with the time of entry.
    strata : int
        G, the number of strata; with more than one there is a column with the stratum, 0, ..., G - 1.
    causes, cause : int
        The number of codes of the event, and the code of the event of interest; 0 is no event.
    part, hold_out
        Which units take part (`zerosum.statistics.holdout`). All others contribute zero.
    fill, own_rows
        As for `Filled`.
    """

    lower: FloatArray
    upper: FloatArray
    edges: FloatArray
    entry: bool = False
    strata: int = Field(default=1, ge=1, le=10_000)
    causes: int = Field(default=2, ge=2, le=1000)
    cause: int = Field(default=1, ge=1)
    part: Part = "all"
    hold_out: float = Field(default=0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.features < 1:
            raise ValueError(f"a Cox regression needs a feature beside time and event, got {self.columns} columns")
        if self.lower.shape != (self.features,) or self.upper.shape != (self.features,):
            raise ValueError(f"lower and upper must hold one number for each of the {self.features} features")
        if not np.all(self.upper - self.lower >= SMALLEST):
            raise ValueError("every lower bound must lie below its upper bound")
        if self.edges.ndim != 1 or not 2 <= self.edges.size <= MOST_BINS + 1 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(f"edges must rise, and make 1 to {MOST_BINS} bins")
        if self.edges[0] != 0:
            raise ValueError(f"edges must begin at 0, got {self.edges[0]:g}")
        if self.cause >= self.causes:
            raise ValueError(f"cause must be one of the {self.causes} codes of the event, got {self.cause}")
        return self

    @property
    def features(self) -> int:
        """p, the number of features."""
        return self.columns - 2 - int(self.entry) - int(self.strata > 1)

    @property
    def codes(self) -> dict[int, int]:
        """The columns that hold codes, with the number of codes of each."""
        event = {self.columns - 1: self.causes}
        return event | ({self.columns - 3: self.strata} if self.strata > 1 else {})

    @property
    def bins(self) -> int:
        """The number of bins of time."""
        return self.edges.size - 1

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 8 * (self.columns + 8)

    def check_values(self, units: Units) -> None:
        """Report to the owner of the data rows that would not count."""
        for block in units.blocks():
            *_rest, known = self._read(block)
            if not np.all(known):
                raise BadData(
                    "some rows have an undeclared event or stratum, or a time that is negative or not after the entry"
                )
            if block.offsets is not None:
                self._check_intervals(block)

    def _check_intervals(self, block: Units) -> None:
        """Report rows of a unit that overlap, or that begin after its event."""
        _v, begin, end, _event, over, _stratum, known = self._read(block)
        unit, order = self._order(block, end, known)
        same = unit[1:] == unit[:-1]
        if self.entry and np.any(same & (begin[order][1:] < end[order][:-1])):
            raise BadData("some rows of a unit overlap in time; give intervals from an entry to a time")
        if np.any(same & over[order][:-1] & (end[order][:-1] < self.edges[-1])):
            raise BadData("some units have rows after their event")

    def _read(
        self, block: Units
    ) -> tuple[Floats, Floats, Floats, NDArray[np.bool_], NDArray[np.bool_], NDArray[np.intp], NDArray[np.bool_]]:
        """Features v in [-1, 1] (rows, p); and for every row the entry, the time, whether the event happened up to the
        horizon, whether any event did, the stratum, and whether the row counts. Values of rows that do not count are
        replaced by zeros.
        """
        rows = to_numpy(self.filled(block))
        known = np.all(np.isfinite(rows), axis=1)
        rows = np.where(known[:, None], rows, 0.0)
        # `at` is the next optional column: the entry, then the stratum.
        half, at = (self.upper - self.lower) / 2, self.features
        v = np.clip((rows[:, :at] - (self.upper + self.lower) / 2) / half, -1.0, 1.0)
        horizon = float(self.edges[-1])
        begin = np.zeros(len(rows))
        if self.entry:
            begin, at = np.clip(rows[:, at], 0.0, horizon), at + 1
        stratum = np.zeros(len(rows), dtype=np.intp)
        if self.strata > 1:
            stratum, inside = codes_of(rows[:, at], self.strata)
            known &= inside
        # A code outside 0, ..., causes - 1 leaves the row out: it contributes zero, and raises nothing.
        event, inside = codes_of(rows[:, -1], self.causes)
        known &= inside & (rows[:, -2] >= 0)
        # Observed beyond the horizon: censored there.
        over = (event > 0) & (rows[:, -2] <= horizon)
        end = np.clip(rows[:, -2], 0.0, horizon)
        if self.entry:
            known &= end > begin
        return v, begin, end, over & (event == self.cause) & known, over & known, stratum, known

    def _order(self, block: Units, end: Floats, known: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The units of the rows that count, and the positions of these rows, by unit and then by time."""
        places = np.flatnonzero(known)
        if block.offsets is None:
            return places, places
        unit = np.repeat(np.arange(len(block)), np.diff(block.offsets))[places]
        # Stable: of two rows with equal times the first one counts.
        order = np.lexsort((end[places], unit))
        return unit[order], places[order]

    def episodes(self, block: Units) -> Episodes:
        """The intervals of each unit in the order of time, without overlaps and without rows after an event.

        Parameters
        ----------
        block : Units
            Some units. Which rows count depends on the rows of their own unit and on public values.
        """
        v, begin, end, event, over, stratum, known = self._read(block)
        unit, order = self._order(block, end, known)
        begin, end, over = begin[order], end[order], over[order]
        place = positions(unit)
        first, start = place == 0, np.arange(len(unit)) - place
        before = np.where(first, 0.0, np.concatenate([[0.0], end[:-1]])[: len(end)])
        begin = np.maximum(begin, before)
        # Events of the unit before this row.
        ended: NDArray[np.intp] = np.cumsum(over) - over
        counts = (first | (end > begin)) & (ended == ended[start])
        unit, order, begin, end = unit[counts], order[counts], begin[counts], end[counts]
        return Episodes(v[order], begin, end, event[order], stratum[order], unit, positions(unit))

    def _bin(self, times: Floats) -> NDArray[np.intp]:
        """The bin of each time; a time on an edge belongs to the bin that ends there."""
        return np.minimum(np.searchsorted(self.edges[1:], times, side="left"), self.bins - 1)


class CovariateMoments(CoxRows):
    """The sum over units of (v, q v^2)/sqrt(p) for the features v in [-1, 1].

    Sensitivity. As `ColumnMoments`: the pairs (v, q v^2) of one column are at most 2 apart by the parabola lemma of
    `zerosum.statistics.regression`, all p columns together at most 2 sqrt(p), and division by sqrt(p) gives D = 2,
    attained by values of 1 and -1 throughout. A row that does not count contributes zero, which is at most
    sqrt(1 + q^2) = 1.94 from any other. A unit contributes the mean over its rows, a point of the convex hull of these
    contributions and zero, and a hull has the diameter of its points. Adding or removing a unit moves the sum by at
    most sqrt(1 + q^2).

    Parameters
    ----------
    columns, lower, upper, edges, entry, strata, causes, cause, part, hold_out, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "covariate_moments"

    @property
    def size(self) -> int:
        """2 p."""
        return 2 * self.features

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2)

    def sum_block(self, block: Units) -> Floats:
        """The sum over a block: values, then squares."""
        block = units_of_part(block, self.part, self.hold_out)
        v, *_rest, known = self._read(block)
        # The mean over the rows of a unit; a row that does not count has the weight zero.
        weights = np.asarray(block.row_weights(np.zeros(1)), dtype=np.float64) * known / math.sqrt(self.features)
        return np.concatenate([weights @ v, SQUARE * (weights @ (v * v))])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sum of values, sum of squares), each of shape (p,)."""
        root = math.sqrt(self.features)
        return root * release[: self.features], root / SQUARE * release[self.features :]


class ExitTable(CoxRows):
    """For each stratum and bin the units that left without and with the event; those observed longer; and all events.

    The map of one unit: of the end of its last row 1 at the place (stratum, bin, event) or, beyond the horizon, at the
    last place of the stratum; the event indicator once more in an entry of its own; and with `entry`, 1 at the place
    (stratum, bin) of the beginning of its first row if that is after time 0. Gaps between rows count as observed. The
    release has the entries G (2 bins + 1), then 1, then G bins with `entry`.

    Sensitivity. A unit, however many rows it has, contributes zero or 1 at one place of the first block, a number in
    {0, 1} in the second and 1 at one place or zero in the third. Squared distances are at most 2, 1 and 2, so that
    D = sqrt(3), or sqrt(5) with `entry`. It is attained by a unit with an event and one without, in two bins, and with
    two bins of entry. The norm is at most sqrt(2), with `entry` sqrt(3), which bounds an added or removed unit.

    Parameters
    ----------
    columns, lower, upper, edges, entry, strata, causes, cause, part, hold_out, fill, own_rows
        As for `CoxRows`.
    """

    name: ClassVar[str] = "exit_table"

    @property
    def size(self) -> int:
        """G (2 bins + 1), one, and G bins with `entry`."""
        return self.strata * (2 * self.bins + 1) + 1 + self.strata * self.bins * int(self.entry)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        replaced = adjacency is Adjacency.REPLACE_ONE
        return math.sqrt((3 if replaced else 2) + (2 if replaced else 1) * int(self.entry))

    def sum_block(self, block: Units) -> Floats:
        """The table of a block, stratum after stratum, then the events, then the entries."""
        rows = self.episodes(units_of_part(block, self.part, self.hold_out))
        first = rows.place == 0
        # The next row belongs to another unit.
        last = np.concatenate([first[1:], [True]])[: len(first)]
        end, event, stratum = rows.end[last], rows.event[last], rows.stratum[last]
        width, longer = 2 * self.bins + 1, (end >= self.edges[-1]) & ~event
        # Pairs (without, with the event) by bin, then the place of units observed beyond the horizon.
        place = np.where(longer, 2 * self.bins, 2 * self._bin(end) + event)
        parts = [np.bincount(stratum * width + place, minlength=self.strata * width), np.array([np.sum(event)])]
        if self.entry:
            # Units observed from time 0 on are the difference of all units and later entries: they need no entry of the
            # release.
            late, begin = first & (rows.begin > 0), rows.begin
            cells = rows.stratum[late] * self.bins + self._bin(begin[late])
            parts.append(np.bincount(cells, minlength=self.strata * self.bins))
        return np.concatenate(parts).astype(np.float64)

    def split(self, release: Floats) -> tuple[Floats, float, Floats]:
        """A release as (table of exits (G, 2 bins + 1), number of events, entries (G, bins))."""
        first = self.strata * (2 * self.bins + 1)
        entries = release[first + 1 :] if self.entry else np.zeros(self.strata * self.bins)
        return (
            release[:first].reshape(self.strata, -1),
            float(release[first]),
            entries.reshape(self.strata, self.bins),
        )
