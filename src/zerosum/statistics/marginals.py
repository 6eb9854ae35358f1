"""Tables of categories and bins: weighted tables of one to three columns, and centred tables of all pairs of columns.

Model
-----
A row has d columns. Column j has K_j categories: its declared levels (codes 0, 1, ...) or the bins between its public
edges, and one more, the last one, for values that are missing or not declared. A coding c maps the categories of its
column to b_c bins. e_c(x) is the unit vector, shape (b_c,), of the bin of a row x.

A table t of the codings c1, c2, ... has the cells e_c1(x) (x) e_c2(x) (x) ..., and a row adds 1 to one of them. A unit
with several rows contributes the mean of what its rows contribute.

Lemma. A unit's contribution lies in the convex hull of the contributions of single rows. The distance between two
points of a convex hull is largest between two of the points that span it, and the norm is largest at one of them. So
both bounds follow from units of one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import combinations
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import counts
from zerosum.compute.devices import to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.groups import codes_of

Codes = NDArray[np.intp]

# Limits on what a coordinator may ask of a site in one release; a table costs a site one pass over its rows. Chosen by
# hand: all pairs of 100 columns, and as many numbers as 8 MB of a message.
MOST_TABLES, MOST_CELLS = 5000, 1 << 20
MOST_CATEGORIES = 100_000  # of one column; chosen by hand
# Distance by which the sum of squared weights may exceed 1 in floating point; `WeightedTables` divides by it.
_ROUNDING = 1e-12


class Categorised(BoundedStatistic):
    """Base of statistics of rows whose columns have categories.

    Parameters
    ----------
    columns : int
        d, the number of columns of the data.
    levels : tuple of int, length d
        The number of declared levels of each column of codes, 0 for a column of numbers.
    edges : tuple of arrays, length d
        Rising public bin edges of each column of numbers, empty for a column of codes. A value on an inner edge counts
        in the bin above it, and values outside count in the first or last bin.
    cells : int
        Length of the release. Places behind the last cell are zeros, so that the length is planned before the tables
        are known.
    """

    adds_in_pieces: ClassVar[bool] = True
    columns: int = Field(gt=0)
    levels: tuple[int, ...]
    edges: tuple[FloatArray, ...]
    cells: int = Field(gt=0, le=MOST_CELLS)

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        if len(self.levels) != self.columns or len(self.edges) != self.columns:
            raise ValueError(f"levels and edges must have one entry for each of the {self.columns} columns")
        for known, edges in zip(self.levels, self.edges, strict=True):
            if not 0 <= known <= MOST_CATEGORIES or edges.ndim != 1 or edges.size > MOST_CATEGORIES:
                raise ValueError(f"a column must have at most {MOST_CATEGORIES} levels or edges")
            if (known > 0) == (edges.size > 1) or edges.size == 1 or not np.all(np.diff(edges) > 0):
                raise ValueError("a column must have either levels or two or more rising edges")
        return self

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """K_j of each column, the category of missing and undeclared values included."""
        return tuple((known or edges.size - 1) + 1 for known, edges in zip(self.levels, self.edges, strict=True))

    @property
    def codes(self) -> dict[int, int]:
        """The columns that hold codes, with the number of codes of each."""
        return {at: known for at, known in enumerate(self.levels) if known}

    @property
    def size(self) -> int:
        """The planned length."""
        return self.cells

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: its categories, its bins in each column, and one table's places at a
        time.
        """
        return 8 * (2 * self.columns + 6)

    def check_values(self, units: Units) -> None:
        """Report codes outside the declared levels to the owner of the data: they count as missing."""
        for at, known in enumerate(self.levels):
            for block in units.blocks() if known else ():
                values = to_numpy(block.rows[:, at])
                if np.any(~codes_of(values, known)[1] & ~np.isnan(values)):
                    raise BadData(f"some values of column {at + 1} lie outside its {known} declared levels")

    def _category(self, values: Floats, at: int) -> Codes:
        """The category of every row in a column, shape (rows,).

        Parameters
        ----------
        values : array of shape (rows,)
            The column; NaN where a value is missing.
        at : int
            The position of the column.
        """
        last = self.categories[at] - 1
        if self.levels[at]:
            codes, known = codes_of(values, last)
            return np.where(known, codes, last)
        inner = np.searchsorted(self.edges[at][1:-1], values, side="right")
        return np.where(np.isnan(values), last, inner)

    def _categorised(self, block: Units, used: Iterable[int]) -> dict[int, Codes]:
        """The category of every row in some columns, each of shape (rows,).

        Parameters
        ----------
        block : Units
            The units.
        used : iterable of int
            Positions of columns.
        """
        rows = to_numpy(block.rows).astype(np.float64, copy=False)
        return {at: self._category(rows[:, at], at) for at in used}

    def _padded(self, parts: list[Floats]) -> Floats:
        """The cells of all tables one after another, with zeros up to the planned length."""
        found = np.zeros(self.cells)
        cells = np.concatenate(parts) if parts else np.zeros(0)
        found[: cells.size] = cells
        return found


def coding_of(bins: tuple[int, ...], categories: int) -> NDArray[np.intp]:
    """The map of a coding as an array of shape (categories,), refused if it is no map onto bins 0, 1, ..., b - 1.

    Parameters
    ----------
    bins : tuple of int
        The bin of each category.
    categories : int
        The number of categories of the column.
    """
    # In Python's integers: a coordinator may send numbers that do not fit into an array.
    if len(bins) != categories or not all(0 <= each < categories for each in bins) or len(set(bins)) != max(bins) + 1:
        raise ValueError(f"a coding must map the {categories} categories of its column to bins 0, 1, ... without gaps")
    return np.array(bins, dtype=np.intp)


class WeightedTables(Categorised):
    """Tables of one to three columns on public bins: the number of units in each cell, times the table's weight.

    Sensitivity. By the lemma it suffices to look at units of one row. A row adds w_t to one cell of each table t, so
    its contribution has squared norm sum_t w_t^2 <= 1. The entries are not negative, so that the inner product of two
    contributions is not negative, and their squared distance is at most 1 + 1. So D = sqrt(2) for a replaced unit,
    attained by two rows that differ in a column of every table if the squared weights add up to 1. Adding or removing a
    unit moves the sum by at most 1.

    Parameters
    ----------
    of : tuple of int
        The column of each coding.
    bins : tuple of tuple of int
        For each coding, the bin of each category of its column.
    tables : tuple of tuple of int
        One to three codings of each table.
    weights : array of shape (tables,)
        Positive; their squares add up to at most 1.
    columns, levels, edges, cells
        As for `Categorised`.
    """

    name: ClassVar[str] = "weighted_tables"
    of: tuple[int, ...] = Field(min_length=1, max_length=3 * MOST_TABLES)
    bins: tuple[tuple[int, ...], ...]
    tables: tuple[tuple[int, ...], ...] = Field(min_length=1, max_length=MOST_TABLES)
    weights: FloatArray

    @model_validator(mode="after")
    def _tables_fit(self) -> Self:
        if len(self.of) != len(self.bins) or not all(0 <= at < self.columns for at in self.of):
            raise ValueError(f"of must hold one of the {self.columns} columns for each coding")
        if not all(1 <= len(table) <= 3 and all(0 <= c < len(self.of) for c in table) for table in self.tables):
            raise ValueError("a table must have one to three of the codings")
        if self.weights.shape != (len(self.tables),) or not np.all(self.weights > 0):
            raise ValueError("weights must hold one positive number for each table")
        # `fsum` rounds once, so that weights of `weights_of` pass.
        if math.fsum((self.weights**2).tolist()) > 1:
            raise ValueError("the squares of the weights must add up to at most 1")
        if sum(self.sizes) > self.cells:
            raise ValueError(f"the tables have {sum(self.sizes)} cells, and cells = {self.cells}")
        return self

    @cached_property
    def _codings(self) -> tuple[tuple[int, NDArray[np.intp]], ...]:
        """Column and map of each coding."""
        return tuple((at, coding_of(bins, self.categories[at])) for at, bins in zip(self.of, self.bins, strict=True))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each table."""
        found = [int(bins.max()) + 1 for _, bins in self._codings]
        return tuple(tuple(found[c] for c in table) for table in self.tables)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells of each table."""
        return tuple(math.prod(shape) for shape in self.shapes)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        """The weighted counts of a block, table after table, each row by row."""
        category = self._categorised(block, set(self.of))
        weights = block.row_weights(np.empty(0))
        parts = []
        for table, shape, size, weight in zip(self.tables, self.shapes, self.sizes, self.weights, strict=True):
            # Bins are looked up for one table at a time: those of all codings may be many times the data.
            own = [bins[category[at]] for at, bins in (self._codings[c] for c in table)]
            place = np.ravel_multi_index(own, shape)
            parts.append(weight * np.asarray(counts(place, weights, size)))
        return self._padded(parts)

    def split(self, release: Floats) -> list[Floats]:
        """A release as numbers of units, one array of its shape for each table."""
        parts = np.split(release, np.cumsum(self.sizes))[:-1]
        return [
            part.reshape(shape) / weight
            for part, shape, weight in zip(parts, self.shapes, self.weights.tolist(), strict=True)
        ]


def weights_of(relative: Floats) -> Floats:
    """Weights in given proportions whose squares add up to at most 1 after rounding.

    >>> weights = weights_of(np.array([1.0, 2.0, 2.0]))
    >>> bool(1 - 1e-11 < sum(weights**2) <= 1)
    True
    """
    return np.asarray(relative / (math.sqrt(math.fsum((relative**2).tolist())) * (1 + _ROUNDING)))


class CentredPairs(Categorised):
    """Tables of all pairs of columns on few bins, centred, so that one release shows which pairs depend.

    With coding i of column i (b_i bins) let u_i = e_i - 1/b_i, each entry less 1/b_i. A row contributes, for each pair
    i < j, the outer product u_i (x) u_j, times a scale a. Columns whose coding has one bin contribute nothing.

    Sensitivity. By the lemma it suffices to look at units of one row. Let q_i = 1 - 1/b_i. For rows x and x' the inner
    product of u_i and u_i' is q_i if column i is in the same bin, and -1/b_i = q_i - 1 if not. For a set M of columns
    whose bins differ, the squared distance of a pair, 2 q_i q_j - 2 <u_i, u_i'> <u_j, u_j'>, is

        0                   if neither column is in M,
        2 q_j               if only i is in M:  2 q_i q_j - 2 (q_i - 1) q_j,
        2 (q_i + q_j - 1)   if both are:        2 q_i q_j - 2 (q_i - 1) (q_j - 1).

    With the indicator m_i of M all cases are 2 (q_j m_i + q_i m_j - m_i m_j). Summed over all pairs, with Q = sum q_i
    over the columns with two or more bins and |M| = m, this is

        2 (sum over i in M of (Q - q_i)) - m (m - 1).

    For a given m it is largest for the m columns with the smallest q_i, that is, with the fewest bins. B^2, the maximum
    over m, is exact and attained by two rows that differ in these columns. The scale is a = sqrt(2)/B, so D = sqrt(2)
    for any bins: the noise can be planned before the bins are known.

    Adding or removing a unit: a row contributes a vector of squared norm a^2 sum q_i q_j =: a^2 v. For independent rows
    with uniform bins the mean contribution is zero, so that their mean squared distance is 2 a^2 v. It is at most D^2 =
    2. So a^2 v <= 1, and the bound is 1. The quotient v/(B^2/2) tends to 1 as the bins become many.

    Parameters
    ----------
    bins : tuple of tuple of int, length d
        For each column, the bin of each of its categories.
    columns, levels, edges, cells
        As for `Categorised`.
    """

    name: ClassVar[str] = "centred_pairs"
    columns: int = Field(gt=1, le=100)
    bins: tuple[tuple[int, ...], ...]

    @model_validator(mode="after")
    def _bins_fit(self) -> Self:
        if len(self.bins) != self.columns:
            raise ValueError(f"bins must have a coding for each of the {self.columns} columns")
        if sum(self.counts[i] > 1 for i in range(self.columns)) < 2:
            raise ValueError("two columns or more must have two bins or more")
        if self._offsets[-1] > self.cells:
            raise ValueError(f"the pairs have {self._offsets[-1]} cells, and cells = {self.cells}")
        return self

    @cached_property
    def _codings(self) -> tuple[tuple[int, NDArray[np.intp]], ...]:
        """Column and map of each coding."""
        return tuple((at, coding_of(bins, self.categories[at])) for at, bins in enumerate(self.bins))

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """b_i, the number of bins of each column."""
        return tuple(int(bins.max()) + 1 for _, bins in self._codings)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of columns with two or more bins, in the order of the release."""
        return tuple(combinations([at for at, count in enumerate(self.counts) if count > 1], 2))

    @cached_property
    def _offsets(self) -> list[int]:
        """The first place of each pair in the release, and the end."""
        return [0, *np.cumsum([self.counts[i] * self.counts[j] for i, j in self.pairs]).tolist()]

    @cached_property
    def scale(self) -> float:
        """a, the factor of all entries. The last factor covers the rounding of this computation."""
        # smallest q first: the m columns of the maximum
        q = sorted(1 - 1 / count for count in self.counts if count > 1)
        gains = np.cumsum(sum(q) - np.array(q))
        m = np.arange(1, len(q) + 1)
        return math.sqrt(2 / float(np.max(2 * gains - m * (m - 1)))) * (1 - _ROUNDING)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Floats:
        """The scaled and centred tables of a block, pair after pair, each row by row."""
        category = self._categorised(block, range(self.columns))
        places = [bins[category[at]] for at, bins in self._codings]
        weights = block.row_weights(np.empty(0))
        parts = []
        for i, j in self.pairs:
            b, c = self.counts[i], self.counts[j]
            table = np.asarray(counts(places[i] * c + places[j], weights, b * c)).reshape(b, c)
            # The sum of (e_i - 1/b) (x) (e_j - 1/c) over rows, from the table: linear, so that it may be centred once.
            centred = table - table.mean(axis=0) - table.mean(axis=1)[:, None] + table.mean()
            parts.append(self.scale * centred.ravel())
        return self._padded(parts)

    def split(self, release: Floats) -> dict[tuple[int, int], Floats]:
        """A release as centred numbers of units, an array of shape (b_i, b_j) for each pair."""
        return {
            (i, j): release[start:end].reshape(self.counts[i], self.counts[j]) / self.scale
            for (i, j), start, end in zip(self.pairs, self._offsets[:-1], self._offsets[1:], strict=True)
        }
