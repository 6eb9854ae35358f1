"""Moments, counts and ranks of columns, by group; groups are the public categories of one column.

The contribution of a unit consists of one block for each column at `positions`. In each block it is the average over
the unit's rows that are observed there: rows whose group is known and whose value is not missing. A unit without any
such row contributes zero in that block. A row contributes at the place of its own group, so that rows of different
groups are orthogonal.

Lemma. Let a row of a column contribute a point of a finite or bounded set P, or the origin if nothing is observed. Then
a unit's block lies in the convex hull of P or is the origin. The distance between two points of convex hulls is largest
between points of the sets themselves. So replacing a unit moves the block by at most the diameter of P and the origin
together. Adding or removing a unit moves the block by at most the largest norm in P. Squares of these bounds add up
over columns.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray
from zerosum.statistics.missing import Filled

# The largest weight of second moments that does not increase the sensitivity: w of the proof in `GroupedMoments`.
FREE_SECOND = math.sqrt((11 + 5 * math.sqrt(5)) / 32)
# The largest number of bins of a column. The matrix R of `GroupedRanks` then has 2^24 entries. Chosen by hand; no
# benchmark recorded.
MOST_BINS = 4096


class Grouped(Filled):
    """Base of statistics of the columns at `positions`, for each of `groups` groups.

    Parameters
    ----------
    columns : int
        The number of columns of the data.
    positions : tuple of int
        The columns that are described, k in number.
    group : int, optional
        The column that holds the group codes 0, 1, ...; a row with any other code does not count. None: all rows are in
        the only group.
    groups : int
        G, the number of groups.
    fill : tuple
        Public values for missing entries (`zerosum.statistics.missing`). `own_rows` is not allowed: a unit counts by
        its observed rows.
    """

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
        """The columns that hold codes, with the number of codes of each."""
        return {} if self.group is None else {self.group: self.groups}

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        # Independent of the length of the release: rows are counted into it and not laid out in it.
        return 8 * 8 * (self.columns + 1)

    def check_values(self, units: Units) -> None:
        """Report codes outside the declared categories to the owner of the data."""
        for at, known in self.codes.items():
            for block in units.blocks():
                values = to_numpy(block.rows[:, at])
                if np.any(_outside(values, known) & ~np.isnan(values)):
                    raise BadData(f"some values of column {at + 1} lie outside its {known} declared categories")

    def _members(self, rows: Floats) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The group of every row, and whether the group is known; both of shape (rows,)."""
        if self.group is None:
            return np.zeros(len(rows), dtype=np.intp), np.ones(len(rows), dtype=bool)
        return codes_of(rows[:, self.group], self.groups)

    @property
    def _several(self) -> bool:
        """Whether there is more than one group."""
        return self.groups > 1


class GroupedMoments(Grouped):
    """For each group and column the number of observed units, the sum of x and the sum of 2 x^2 - 1.

    x is the value clamped to its public range and mapped to [-1, 1]. A row contributes (v, x, w (2 x^2 - 1)) at its
    group's place, v the `count_weight` and w the `second_weight`.

    Sensitivity. The norm of a row's contribution is largest at x = 1 or x = -1, where it is sqrt(1 + v^2 + w^2) =: r.
    So r bounds a column if a unit is added or removed, and two rows of different groups are at most sqrt(2) r apart.
    Two rows x and y of the same group are |x - y| sqrt(1 + 4 w^2 (x + y)^2) apart. With s = |x + y| we have |x - y| <=
    2 - s. The inequality (2 - s)^2 (1 + 4 w^2 s^2) <= 4 holds if and only if 4 w^2 <= (4 - s)/(s (2 - s)^2), whose
    least value on (0, 2) is (11 + 5 sqrt(5))/8, at s = 3 - sqrt(5). So for w^2 <= (11 + 5 sqrt(5))/32 = 0.693 they are
    at most 2 apart, attained at x = -y = 1. One row against nothing is at most r away. By the lemma D^2 is the number
    of columns times max(4, 2 r^2), or times max(4, r^2) if there is one group. It is attained by units that are
    observed in all columns, with x = -y in the same group or x = y = 1 in two groups.

    Parameters
    ----------
    lower, upper : array of shape (k,)
        Public ranges of the columns at `positions`.
    count_weight : float
        v, the weight of counts. A larger v gives counts less noise; it is free while r^2 stays below the maximum above.
    second_weight : float
        w, the weight of second moments; at most `FREE_SECOND`.
    columns, positions, group, groups, fill
        As for `Grouped`.
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
        """Three numbers for each group and column."""
        return 3 * self.groups * len(self.positions)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        norm = 1 + self.count_weight**2 + self.second_weight**2
        if adjacency is Adjacency.REPLACE_ONE:
            norm = max(4.0, (2 if self._several else 1) * norm)
        return math.sqrt(len(self.positions) * norm)

    def sum_block(self, block: Units) -> Floats:
        """The sum over a block, ordered by group, then moment, then column; shape (size,)."""
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        half = (self.upper - self.lower) / 2
        x = np.clip((rows[:, self.positions] - (self.lower + self.upper) / 2) / half, -1.0, 1.0)
        # Missing values do not count, and neither do rows without a known group.
        here = ~np.isnan(x) & known[:, None]
        x = np.where(here, x, 0.0)
        # 2 x^2 - 1 is the second Chebyshev polynomial: it lies in [-1, 1], which makes its noise as large as that of x
        # at w = 1.
        terms = np.stack([np.ones_like(x), x, 2 * x * x - 1]) * unit_weights(block, here)
        sums = np.stack([np.sum(terms[:, codes == g], axis=1) for g in range(self.groups)])
        return (sums * self._weights[:, None]).ravel()

    @property
    def _weights(self) -> Floats:
        """The weights of count, first and second moment, shape (3,)."""
        return np.array([self.count_weight, 1.0, self.second_weight])

    def split(self, release: Floats) -> Floats:
        """A release as an array of shape (3, groups, k): counts, sums of x, sums of 2 x^2 - 1."""
        parts = release.reshape(self.groups, 3, len(self.positions)) / self._weights[:, None]
        return np.moveaxis(parts, 1, 0)

    def noise(self, noise: float) -> Floats:
        """The standard deviations of these three, if that of the release is `noise`; shape (3,)."""
        return noise / self._weights


class GroupedCounts(Grouped):
    """The number of units of each group in each category of some columns.

    A row contributes 1 at the place of its group and category. In a column with one level it does so for any value, and
    the column counts the units of each group. In other columns the row counts only if the value is one of the codes 0,
    1, ... of the levels.

    Sensitivity. Any two places are sqrt(2) apart and have norm 1. By the lemma D is sqrt(2 k) for k columns, and
    sqrt(k) if a unit is added or removed; attained by two units that differ in all columns. A column with one level
    moves by sqrt(2) only if the group differs, and with one group that may be missing by 1.

    Parameters
    ----------
    levels : tuple of int, length k
        The number of categories of each column at `positions`.
    columns, positions, group, groups, fill
        As for `Grouped`.
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
        """Also the columns with more than one level."""
        own = {at: count for at, count in zip(self.positions, self.levels, strict=True) if count > 1}
        return own | super().codes

    @property
    def size(self) -> int:
        """One number for each group and level."""
        return self.groups * sum(self.levels)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.ADD_REMOVE:
            return math.sqrt(len(self.levels))
        return math.sqrt(sum(2.0 if self._several or count > 1 else 1.0 for count in self.levels))

    def sum_block(self, block: Units) -> Floats:
        """The counts of a block, column after column, each table of groups by levels row by row."""
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        parts = []
        for at, count in zip(self.positions, self.levels, strict=True):
            own, here = codes_of(rows[:, at], count) if count > 1 else (np.zeros(len(rows), dtype=np.intp), known)
            weights = unit_weights(block, (here & known)[:, None])[:, 0]
            # The place of a row is group * levels + code. Rows that do not count have code 0 and weight 0.
            parts.append(np.bincount(codes * count + own, weights=weights, minlength=self.groups * count))
        return np.concatenate(parts).astype(np.float64)

    def split(self, release: Floats) -> list[Floats]:
        """A release as a table of shape (groups, levels) for each column."""
        ends = np.cumsum([self.groups * count for count in self.levels])[:-1]
        return [part.reshape(self.groups, -1) for part in np.split(release, ends)]


class GroupedRanks(Grouped):
    """For each group and column the histogram h between public `edges` as R h, for cumulative counts with little noise.

    R is the square root of summation with normalised columns. Let f_0 = 1 and f_k = f_{k-1} (2k - 1)/(2k). The lower
    triangular matrix with f_{i-j} in row i and column j is a matrix S with S S h = cumulative sums of h. R is S with
    its columns divided by their norms. Noise of R h becomes noise of cumulative counts that grows with the logarithm of
    the number of bins, where that of plain counts grows with its root (docs/describe.md has the figures). Values
    outside the edges count in the first or last bin. A value on an edge counts in the bin above it.

    Sensitivity. A row contributes a column of R, of norm 1, at its group's place. So with k columns of the data D is
    sqrt(k) if a unit is added or removed. It is at most sqrt(2 k) if one is replaced, attained by two groups. With one
    group, two rows are as far apart as two columns of R, or, against nothing, 1. By the lemma D^2 is the sum over
    columns of the largest of these squares. Since R has no negative entry each is less than 2. The value is computed
    and rounded up at the ninth digit, so that every machine computes the same value. Rows are counted before they are
    multiplied by R: the slack of as many more terms as there are bins is added.

    Parameters
    ----------
    edges : tuple of k arrays
        Rising public bin edges of each column at `positions`.
    columns, positions, group, groups, fill
        As for `Grouped`.
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
        """The number of bins of each column."""
        return tuple(each.size - 1 for each in self.edges)

    @property
    def size(self) -> int:
        """One number for each group and bin."""
        return self.groups * sum(self.bins)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring, with the slack for rounding."""
        rounding = math.sqrt(len(self.bins)) * summation_slack(rows=max(self.bins))
        if adjacency is Adjacency.ADD_REMOVE:
            return math.sqrt(len(self.bins)) + rounding
        if self._several:
            return math.sqrt(2 * len(self.bins)) + rounding
        return math.sqrt(sum(_largest_distance(count) for count in self.bins)) + rounding

    def sum_block(self, block: Units) -> Floats:
        """R h of a block, column after column, group after group."""
        rows = to_numpy(self.filled(block))
        codes, known = self._members(rows)
        values = rows[:, self.positions]
        weights = unit_weights(block, ~np.isnan(values) & known[:, None])
        parts = []
        for j, (edges, count) in enumerate(zip(self.edges, self.bins, strict=True)):
            # Only inner edges are searched, so that values outside the range fall into the outer bins.
            places = codes * count + np.searchsorted(edges[1:-1], values[:, j], side="right")
            table = np.bincount(places, weights=weights[:, j], minlength=self.groups * count)
            # The product with R is linear, so that it is applied once to the counts of the block and not to every row.
            parts.append((table.reshape(self.groups, count) @ summation_root(count).T).ravel())
        return np.concatenate(parts)

    def split(self, release: Floats) -> list[Floats]:
        """A release as a table of shape (groups, bins) for each column: R h of each group."""
        ends = np.cumsum([self.groups * count for count in self.bins])[:-1]
        return [part.reshape(self.groups, -1) for part in np.split(release, ends)]


@cache
def summation_root(bins: int) -> Floats:
    """R, the square root of summation with columns of norm 1; shape (bins, bins).

    >>> root = summation_root(5)
    >>> np.linalg.norm(root, axis=0).round(12).tolist(), bool(np.all(root >= 0))
    ([1.0, 1.0, 1.0, 1.0, 1.0], True)
    """
    # f_k are the coefficients of the power series of 1/sqrt(1 - z), whose square is the series of summation 1/(1 - z).
    falling = np.ones(bins)
    for k in range(1, bins):
        falling[k] = falling[k - 1] * (2 * k - 1) / (2 * k)
    apart = np.arange(bins)[:, None] - np.arange(bins)
    root = np.where(apart >= 0, falling[np.maximum(apart, 0)], 0.0)
    # Column j of S holds f_0, ..., f_{bins-1-j}: its squared norm is a partial sum of f_k^2.
    norms = np.sqrt(np.cumsum(falling**2))[::-1]
    columns = root / norms
    columns.setflags(write=False)
    return np.asarray(columns)


@cache
def _largest_distance(bins: int) -> float:
    """The largest squared distance between two columns of R, or between one and zero."""
    root = summation_root(bins)
    # Columns have norm 1: the squared distance is 2 - 2 times their inner product.
    least = float(np.min(root.T @ root))
    # Rounded up at the ninth digit: larger than the error of the product, and equal on all machines.
    return math.ceil(max(1.0, 2 - 2 * least) * 1e9) / 1e9


def codes_of(values: Floats, known: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Values as codes 0, 1, ..., and whether they are valid codes; both of shape (rows,).

    Parameters
    ----------
    values : array of shape (rows,)
        The values; NaN is not valid.
    known : int
        The number of codes.
    """
    inside = ~_outside(values, known)
    return np.where(inside, values, 0).astype(np.intp), inside


def _outside(values: Floats, known: int) -> NDArray[np.bool_]:
    """Whether each value is not one of the whole numbers 0, ..., known - 1. True for NaN."""
    return np.asarray(~((values >= 0) & (values < known) & (values == np.floor(values))))


def unit_weights(block: Units, here: NDArray[np.bool_]) -> Floats:
    """1/(number of the unit's rows observed in the column) for every row and column, so that each unit has weight one
    there.

    Parameters
    ----------
    block : Units
        The units.
    here : bool array of shape (rows, k)
        Whether a row is observed in a column.
    """
    if block.offsets is None:
        return here.astype(np.float64)
    count = np.add.reduceat(here.astype(np.float64), block.offsets[:-1], axis=0)
    return np.asarray(here / np.repeat(np.maximum(count, 1.0), np.diff(block.offsets), axis=0))
