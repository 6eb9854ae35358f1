"""Moments, counts and ranks of columns, group by group, where groups are the public categories of one column.

A unit's contribution consists of a block for each column. In each block it is the average over those of its rows that
are observed there: rows whose group is known and whose value is not missing. A unit without any such row contributes
zero in that block. What a row contributes lies at its own group's place, so rows of different groups are orthogonal.

Lemma. If a row of a column contributes a point of a finite or bounded set P, or the origin where nothing is observed,
then a unit's block lies in the convex hull of P or is the origin. The distance between two points of convex hulls is
largest between points of the sets themselves, so that replacing a unit moves the block by at most the diameter of
P and the origin, and adding or removing one by the largest norm in P. Squares add up over columns.

Tested in tests/statistics/test_groups.py.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.errors import BadData
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, to_numpy
from zerosum.kernel.units import Units
from zerosum.statistics.missing import Filled

FREE_SECOND = math.sqrt((11 + 5 * math.sqrt(5)) / 32)  # the largest weight of second moments that costs nothing
MOST_BINS = 4096


class Grouped(Filled):
    """A statistic of the columns at `positions`, for each of `groups` groups. The column at the position `group` holds
    their codes 0, 1, ...; a row with any other code counts nowhere. Without one, everybody is in the only group."""

    columns: int = Field(gt=0)
    positions: tuple[int, ...] = Field(min_length=1)
    group: int | None = None
    groups: int = Field(default=1, gt=0, le=100_000)

    @model_validator(mode="after")
    def _places_fit(self) -> Self:
        places = [*self.positions, *([] if self.group is None else [self.group])]
        if not all(0 <= at < self.columns for at in places):
            raise ValueError(f"positions and group must be among the {self.columns} columns")
        if self.group is None and self.groups != 1:
            raise ValueError("several groups need a column that says which")
        if self.own_rows:
            raise ValueError("a unit counts by its own rows that are there, and is not filled in from them")
        return self

    @property
    def codes(self) -> dict[int, int]:
        """Columns that hold codes, and how many there are."""
        return {} if self.group is None else {self.group: self.groups}

    @property
    def row_bytes(self) -> int:
        return 8 * 8 * (self.columns + 1)  # however long the release is: rows are counted, not laid out

    def check_values(self, units: Units) -> None:
        for at, known in self.codes.items():
            for block in units.blocks():
                values = to_numpy(block.rows[:, at])
                if np.any(_outside(values, known) & ~np.isnan(values)):
                    raise BadData(f"some values of column {at + 1} lie outside its {known} declared categories")

    def _members(self, rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The group of every row, and whether it is known."""
        if self.group is None:
            return np.zeros(len(rows), dtype=np.intp), np.ones(len(rows), dtype=bool)
        return codes_of(rows[:, self.group], self.groups)

    @property
    def _several(self) -> bool:
        return self.groups > 1


class GroupedMoments(Grouped):
    """For each group and each column the number of units observed, the sum of x and that of 2 x^2 - 1, where x is the
    value clamped to its public range and mapped to [-1, 1].

    A row contributes (v, x, w (2 x^2 - 1)) at its group's place, v the `count_weight` and w the `second_weight`.

    Sensitivity. The norm of a row's contribution is largest at x = 1 or x = -1: sqrt(1 + v^2 + w^2) =: r. This is the
    bound for a column when a unit is added or removed, and two rows of different groups are at most sqrt(2) r apart.
    Two rows x and y of the same group are |x - y| sqrt(1 + 4 w^2 (x + y)^2) apart. With s = |x + y|,
    |x - y| <= 2 - s, and (2 - s)^2 (1 + 4 w^2 s^2) <= 4 if and only if 4 w^2 <= (4 - s)/(s (2 - s)^2), whose least
    value on (0, 2) is (11 + 5 sqrt(5))/8, at s = 3 - sqrt(5). So for w^2 <= (11 + 5 sqrt(5))/32 = 0.693 they are at
    most 2 apart, attained at x = -y = 1. One row against nothing: r. By the lemma D^2 is the number of columns times
    max(4, 2 r^2), or times max(4, r^2) where there is but one group; attained by units that are observed everywhere,
    x = -y in the same group or x = y = 1 in two groups.
    """

    name: ClassVar[str] = "grouped_moments"
    lower: FloatArray
    upper: FloatArray
    count_weight: float = Field(default=math.sqrt(0.5), ge=SMALLEST, le=10)
    second_weight: float = Field(default=math.sqrt(0.5), ge=SMALLEST, le=FREE_SECOND)

    @model_validator(mode="after")
    def _ranges_fit(self) -> Self:
        if self.lower.shape != (len(self.positions),) or self.upper.shape != (len(self.positions),):
            raise ValueError(f"lower and upper must hold one number for each of the {len(self.positions)} columns")
        if not np.all(self.upper - self.lower >= SMALLEST):
            raise ValueError("every lower bound must lie below its upper bound")
        return self

    @property
    def size(self) -> int:
        return 3 * self.groups * len(self.positions)

    def sensitivity(self, adjacency: Adjacency) -> float:
        norm = 1 + self.count_weight**2 + self.second_weight**2
        if adjacency is Adjacency.REPLACE_ONE:
            norm = max(4.0, (2 if self._several else 1) * norm)
        return math.sqrt(len(self.positions) * norm)

    def sum_block(self, block: Units) -> Floats:
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        half = (self.upper - self.lower) / 2
        x = np.clip((rows[:, self.positions] - (self.lower + self.upper) / 2) / half, -1.0, 1.0)
        here = ~np.isnan(x) & known[:, None]
        x = np.where(here, x, 0.0)
        terms = np.stack([np.ones_like(x), x, 2 * x * x - 1]) * unit_weights(block, here)
        sums = np.stack([np.sum(terms[:, codes == g], axis=1) for g in range(self.groups)])
        return (sums * self._weights[:, None]).ravel()

    @property
    def _weights(self) -> Floats:
        return np.array([self.count_weight, 1.0, self.second_weight])

    def split(self, release: Floats) -> Floats:
        """A release as an array of three (counts, sums of x, sums of 2 x^2 - 1) by groups by columns."""
        parts = release.reshape(self.groups, 3, len(self.positions)) / self._weights[:, None]
        return np.moveaxis(parts, 1, 0)

    def noise(self, noise: float) -> Floats:
        """The standard deviations of these three, where that of the release is `noise`."""
        return noise / self._weights


class GroupedCounts(Grouped):
    """How many units of each group fall into each category of some columns; in a column with one level, how many
    units there are.

    A row contributes 1 at the place of its group and category. In a column with one level it does so whatever it
    holds, in others only if that is one of the codes 0, 1, ... of its levels.

    Sensitivity. Any two places are sqrt(2) apart and have norm 1: by the lemma D is sqrt(2 k), and sqrt(k) when a unit
    is added or removed, for k columns, attained by two units that differ in all of them. A column with one level moves
    by sqrt(2) only if the group differs, and with one group that may be missing by 1.
    """

    name: ClassVar[str] = "grouped_counts"
    levels: tuple[int, ...]

    @model_validator(mode="after")
    def _levels_fit(self) -> Self:
        if len(self.levels) != len(self.positions) or not all(0 < each <= 100_000 for each in self.levels):
            raise ValueError("levels must hold how many categories each of the columns has")
        if self.group is None and 1 in self.levels:
            raise ValueError("a column with one level counts groups, and there is no column of groups")
        return self

    @property
    def codes(self) -> dict[int, int]:
        own = {at: count for at, count in zip(self.positions, self.levels, strict=True) if count > 1}
        return own | super().codes

    @property
    def size(self) -> int:
        return self.groups * sum(self.levels)

    def sensitivity(self, adjacency: Adjacency) -> float:
        if adjacency is Adjacency.ADD_REMOVE:
            return math.sqrt(len(self.levels))
        return math.sqrt(sum(2.0 if self._several or count > 1 else 1.0 for count in self.levels))

    def sum_block(self, block: Units) -> Floats:
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        parts = []
        for at, count in zip(self.positions, self.levels, strict=True):
            own, here = codes_of(rows[:, at], count) if count > 1 else (np.zeros(len(rows), dtype=np.intp), known)
            weights = unit_weights(block, (here & known)[:, None])[:, 0]
            parts.append(np.bincount(codes * count + own, weights=weights, minlength=self.groups * count))
        return np.concatenate(parts).astype(np.float64)

    def split(self, release: Floats) -> list[Floats]:
        """A release as a table of groups by levels for each column."""
        ends = np.cumsum([self.groups * count for count in self.levels])[:-1]
        return [part.reshape(self.groups, -1) for part in np.split(release, ends)]


class GroupedRanks(Grouped):
    """For each group and column the histogram h between public `edges` as R h, from which cumulative counts can be had
    with little noise.

    R is the square root of summation: with f_0 = 1, f_k = f_{k-1} (2k - 1)/(2k), the lower triangular matrix with
    f_{i-j} in row i and column j is a matrix S with S S h = cumulative sums of h. R is S with its columns divided by
    their norms. Noise of R h becomes noise of cumulative counts that grows with the logarithm of the number of bins,
    where that of plain counts grows with its root (docs/describe.md has the figures). Values outside the edges count
    in the first or last bin; a value on an edge counts above it.

    Sensitivity. A row contributes a column of R, of norm 1, at its group's place. So with k columns of the data D is
    sqrt(k) when a unit is added or removed, and at most sqrt(2 k) when one is replaced, attained by two groups. With
    one group, two rows are as far apart as two columns of R, or, against nothing, 1: by the lemma D^2 is the sum of the
    largest of these squares. Since R has no negative entry this is less than 2; it is computed, and rounded up at the
    ninth digit, so that everybody computes the same. Rows are counted before they are multiplied by R: the slack of
    as many more terms as there are bins is added.
    """

    name: ClassVar[str] = "grouped_ranks"
    edges: tuple[FloatArray, ...]

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        if len(self.edges) != len(self.positions):
            raise ValueError("every column needs edges of its own")
        for each in self.edges:
            if each.ndim != 1 or not 2 <= each.size <= MOST_BINS + 1 or not np.all(np.diff(each) > 0):
                raise ValueError(f"edges must rise, and make 1 to {MOST_BINS} bins")
        return self

    @cached_property
    def bins(self) -> tuple[int, ...]:
        return tuple(each.size - 1 for each in self.edges)

    @property
    def size(self) -> int:
        return self.groups * sum(self.bins)

    def sensitivity(self, adjacency: Adjacency) -> float:
        rounding = math.sqrt(len(self.bins)) * summation_slack(rows=max(self.bins))
        if adjacency is Adjacency.ADD_REMOVE:
            return math.sqrt(len(self.bins)) + rounding
        if self._several:
            return math.sqrt(2 * len(self.bins)) + rounding
        return math.sqrt(sum(_farthest(count) for count in self.bins)) + rounding

    def sum_block(self, block: Units) -> Floats:
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        values = rows[:, self.positions]
        weights = unit_weights(block, ~np.isnan(values) & known[:, None])
        parts = []
        for j, (edges, count) in enumerate(zip(self.edges, self.bins, strict=True)):
            places = codes * count + np.searchsorted(edges[1:-1], values[:, j], side="right")
            table = np.bincount(places, weights=weights[:, j], minlength=self.groups * count)
            parts.append((table.reshape(self.groups, count) @ summation_root(count).T).ravel())
        return np.concatenate(parts)

    def split(self, release: Floats) -> list[Floats]:
        """A release as a table of groups by bins for each column: R h of each group."""
        ends = np.cumsum([self.groups * count for count in self.bins])[:-1]
        return [part.reshape(self.groups, -1) for part in np.split(release, ends)]


@cache
def summation_root(bins: int) -> Floats:
    """R, the square root of summation with columns of norm 1.

    >>> root = summation_root(5)
    >>> np.linalg.norm(root, axis=0).round(12).tolist(), bool(np.all(root >= 0))
    ([1.0, 1.0, 1.0, 1.0, 1.0], True)
    """
    falling = np.ones(bins)
    for k in range(1, bins):
        falling[k] = falling[k - 1] * (2 * k - 1) / (2 * k)
    apart = np.arange(bins)[:, None] - np.arange(bins)
    root = np.where(apart >= 0, falling[np.maximum(apart, 0)], 0.0)
    norms = np.sqrt(np.cumsum(falling**2))[::-1]  # of a column: as many terms as it has below the diagonal
    found = root / norms
    found.setflags(write=False)
    return np.asarray(found)


@cache
def _farthest(bins: int) -> float:
    """The largest squared distance between two columns of R, or between one and nothing."""
    root = summation_root(bins)
    least = float(np.min(root.T @ root))
    return math.ceil(max(1.0, 2 - 2 * least) * 1e9) / 1e9


def codes_of(values: Floats, known: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Values as codes 0, 1, ..., and whether they are such."""
    inside = ~_outside(values, known)
    return np.where(inside, values, 0).astype(np.intp), inside


def _outside(values: Floats, known: int) -> NDArray[np.bool_]:
    return np.asarray(~((values >= 0) & (values < known) & (values == np.floor(values))))


def unit_weights(block: Units, here: NDArray[np.bool_]) -> Floats:
    """For every row and column 1/(rows of its unit that are observed there), so that each unit weighs one there."""
    if block.offsets is None:
        return here.astype(np.float64)
    count = np.add.reduceat(here.astype(np.float64), block.offsets[:-1], axis=0)
    return np.asarray(here / np.repeat(np.maximum(count, 1.0), np.diff(block.offsets), axis=0))
