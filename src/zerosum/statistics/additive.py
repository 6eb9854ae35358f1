"""Sums by bin for additive models: responses, values of a released model, and products of released scores.

Model
-----
A row has d columns with categories (`marginals.Categorised`) and a response, the last column. There are p terms. A term
has one or two codings of columns; its cells are the bins, or the pairs of bins. x, shape (cells of all terms,), has a 1
in one cell of each term and 0 elsewhere. A unit with several rows contributes the mean of what its rows contribute.

A term is shared by two rows if they lie in the same cell of it. Two rows that share every term have the same x.

Lemma. A unit's contribution lies in the convex hull of the contributions of single rows. The distance between two
points of a convex hull is largest between two of the points that span it, and the norm is largest at one of them. So
all bounds follow from units of one row.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import counts, exponential, products
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray
from zerosum.statistics.marginals import MOST_TABLES, Categorised, Codes, coding_of

# Most terms whose scores are multiplied: 80 000 pairs. Chosen by hand.
MOST_SCORES = 400
# Largest constant and effect of a model that a site evaluates.
EFFECT_MOST = 1e6
# Linear predictors beyond this count as this: their class has a probability of 1 to nine digits.
_STEEPEST = 20.0


class TermTables(Categorised):
    """Base of sums over the cells of terms.

    Parameters
    ----------
    of : tuple of int
        The column of each coding; the response has none.
    bins : tuple of tuple of int
        For each coding, the bin of each category of its column.
    terms : tuple of tuple of int
        One or two codings of each term.
    columns, levels, edges, cells
        As for `Categorised`. The last column is the response: it has two levels, or its public range as its edges.
    """

    columns: int = Field(gt=1)
    of: tuple[int, ...] = Field(min_length=1, max_length=2 * MOST_TABLES)
    bins: tuple[tuple[int, ...], ...]
    terms: tuple[tuple[int, ...], ...] = Field(min_length=1, max_length=MOST_TABLES)

    @model_validator(mode="after")
    def _terms_fit(self) -> Self:
        if len(self.of) != len(self.bins) or not all(0 <= at < self.columns - 1 for at in self.of):
            raise ValueError(f"of must hold one of the {self.columns - 1} columns before the response for each coding")
        if not all(1 <= len(term) <= 2 and all(0 <= c < len(self.of) for c in term) for term in self.terms):
            raise ValueError("a term must have one or two of the codings")
        if self.levels[-1] != 2 and self.edges[-1].shape != (2,):
            raise ValueError("the last column, the response, must have two levels, or two edges: its public range")
        # A difference that vanishes when it is halved would be a division by zero.
        if self.levels[-1] != 2 and not self.edges[-1][1] - self.edges[-1][0] >= SMALLEST:
            raise ValueError(f"the range of the response must be at least {SMALLEST:g} wide")
        if self.width > self.cells:
            raise ValueError(f"the sums have {self.width} numbers, and cells = {self.cells}")
        return self

    @property
    def width(self) -> int:
        """The number of numbers of the sum before the places that are left empty."""
        return sum(self.sizes)

    @cached_property
    def _codings(self) -> tuple[tuple[int, NDArray[np.intp]], ...]:
        """Column and map of each coding."""
        return tuple((at, coding_of(bins, self.categories[at])) for at, bins in zip(self.of, self.bins, strict=True))

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of the cells of each term."""
        found = [int(bins.max()) + 1 for _, bins in self._codings]
        return tuple(tuple(found[c] for c in term) for term in self.terms)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of cells of each term."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first cell of each term among all cells."""
        return tuple(np.cumsum([0, *self.sizes[:-1]]).tolist())

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: its categories and its cell in every term."""
        return 8 * (2 * self.columns + 2 * len(self.terms) + 6)

    def cells_of(self, block: Units) -> list[Codes]:
        """The cell of every row in each term, each of shape (rows,)."""
        category = self._categorised(block, set(self.of))
        found = []
        for term, shape in zip(self.terms, self.shapes, strict=True):
            own = [bins[category[at]] for at, bins in (self._codings[c] for c in term)]
            found.append(np.asarray(np.ravel_multi_index(own, shape)))
        return found

    def _sums(self, cells: list[Codes], values: Floats) -> list[Floats]:
        """The sums of values over the rows of each cell, term after term.

        Parameters
        ----------
        cells : list of arrays of shape (rows,)
            From `_cells`.
        values : array of shape (rows,)
            A value for each row, the weight of the row included.
        """
        return [np.asarray(counts(own, values, size)) for own, size in zip(cells, self.sizes, strict=True)]


class ResponseTables(TermTables):
    """By cell of every term: the sum of the responses, and half the number of units.

    The response is mapped to t in [-1/2, 1/2]: a class to one of the ends, a number by its public range. A missing or
    undeclared one counts as 0. A row contributes (t x, x/2).

    Sensitivity. By the lemma it suffices to look at units of one row. A shared term adds (t - t')^2 <= 1 to the squared
    distance of two rows, and any other term t^2 + t'^2 + 1/4 + 1/4 <= 1. So the squared distance is at most p, and D =
    sqrt(p), attained by t = 1/2 and t' = -1/2 whatever cells the rows lie in. The counts add nothing to the distance
    that the responses have alone: they are free. A row has squared norm p (t^2 + 1/4) <= p/2, so adding or removing a
    unit moves the sum by at most sqrt(p/2), attained by |t| = 1/2.

    Parameters
    ----------
    columns, levels, edges, cells, of, bins, terms
        As for `TermTables`.
    """

    name: ClassVar[str] = "response_tables"

    @property
    def width(self) -> int:
        """Two numbers for each cell."""
        return 2 * sum(self.sizes)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(len(self.terms) if adjacency is Adjacency.REPLACE_ONE else len(self.terms) / 2)

    def check_values(self, units: Units) -> None:
        """Report missing responses to the owner of the data as well: they count as the middle of the range."""
        super().check_values(units)
        for block in units.blocks():
            if np.any(np.isnan(to_numpy(block.rows[:, -1]))):
                raise BadData("some responses are missing")

    def sum_block(self, block: Units) -> Floats:
        """Sums of responses of all cells, then half the counts of all cells, each row by row."""
        cells, weights = self.cells_of(block), block.row_weights(np.empty(0))
        values = to_numpy(block.rows).astype(np.float64, copy=False)[:, -1]
        if self.levels[-1]:
            t = np.array([-0.5, 0.5, 0.0])[self._category(values, self.columns - 1)]
        else:
            low, high = self.edges[-1].tolist()
            # Divided before the subtraction, as a range may be wider than the largest double. Rounding: the clip keeps
            # the bound to the bit.
            width = high / 2 - low / 2
            t = np.clip((np.clip(values, low, high) / 2 - low / 2) / width - 0.5, -0.5, 0.5)
            t = np.where(np.isnan(values), 0.0, t)
        return self._padded([*self._sums(cells, weights * t), *self._sums(cells, 0.5 * weights)])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """The sums of t and the numbers of units of all cells, each of shape (cells of all terms,)."""
        width = sum(self.sizes)
        return release[:width].copy(), 2 * release[width : 2 * width]


class ModelTables(TermTables):
    """By cell of every term: the sum of the values of a released additive model.

    With eta = intercept + sum of the effects of the row's cells, the value is s = 1/(1 + exp(-eta)) - 1/2 ("logistic")
    or eta clipped to [-1/2, 1/2] ("linear"). A row contributes s x. The responses are not in it: they are released once
    (`ResponseTables`), and (t - s) x, the gradient, would cost twice the sensitivity in every round.

    Sensitivity. By the lemma it suffices to look at units of one row. A shared term adds (s - s')^2 <= 1 to the squared
    distance of two rows, and any other term s^2 + s'^2 <= 1/2. Rows that share all terms have the same s, so that they
    have distance 0. So at least one term of others is not shared, and the squared distance is at most (p - 1) + 1/2: D
    = sqrt(p - 1/2), attained where one term alone moves s from 1/2 to -1/2. A row has squared norm p s^2 <= p/4, so
    adding or removing a unit moves the sum by at most sqrt(p)/2.

    Parameters
    ----------
    family : {"logistic", "linear"}
        The value of a linear predictor.
    intercept : float
        The constant.
    effects : array of shape (cells of all terms,)
        The effect of each cell, term after term.
    columns, levels, edges, cells, of, bins, terms
        As for `TermTables`.
    """

    name: ClassVar[str] = "model_tables"
    family: Literal["logistic", "linear"]
    intercept: float = Field(ge=-EFFECT_MOST, le=EFFECT_MOST)
    effects: FloatArray

    @model_validator(mode="after")
    def _effects_fit(self) -> Self:
        if self.effects.shape != (sum(self.sizes),):
            raise ValueError(f"effects must hold one number for each of the {sum(self.sizes)} cells")
        if not np.all(np.abs(self.effects) <= EFFECT_MOST):
            raise ValueError(f"effects must hold numbers of at most {EFFECT_MOST:g} only")
        return self

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        p = len(self.terms)
        return math.sqrt(p - 0.5) if adjacency is Adjacency.REPLACE_ONE else math.sqrt(p) / 2

    def sum_block(self, block: Units) -> Floats:
        """Sums of the values of all cells, each row by row."""
        cells, weights = self.cells_of(block), block.row_weights(np.empty(0))
        # Elementwise additions in the order of the terms: the rounding of a row depends on the row alone.
        eta = np.full(int(block.rows.shape[0]), self.intercept)
        for own, start in zip(cells, self.starts, strict=True):
            eta = eta + self.effects[start + own]
        if self.family == "linear":
            s = np.clip(eta, -0.5, 0.5)
        else:
            growth = exponential(np.clip(eta, -_STEEPEST, _STEEPEST))
            s = np.clip(growth / (1.0 + growth) - 0.5, -0.5, 0.5)
        return self._padded(self._sums(cells, weights * s))


class ScoreProducts(TermTables):
    """For each pair of terms, the sum of the product of released scores of the row's cells.

    Every cell has a score in [-1, 1]. Let y_j be that of a row's cell of term j. A row contributes y_j y_k for all
    j < k.

    Sensitivity. By the lemma it suffices to look at units of one row. For rows y and y' the squared distance, the sum
    over pairs of (y_j y_k - y'_j y'_k)^2, is the squared norm of a function that is affine in each of the numbers. So
    it is convex in each of them, and largest where all are 1 or -1. Then with c_j = y_j y'_j it is p (p - 1) - (sum
    c)^2 + sum c^2 = p^2 - (sum c)^2. A sum of p numbers 1 or -1 is even if and only if p is, so that its square is at
    least p mod 2. So D = sqrt(p^2 - (p mod 2)), attained by rows with opposite scores in half of the terms (rounded
    down). A row has squared norm at most p (p - 1)/2: the bound for an added or removed unit is its root, attained.

    Parameters
    ----------
    scores : array of shape (cells of all terms,)
        The score of each cell.
    columns, levels, edges, cells, of, bins, terms
        As for `TermTables`.
    """

    name: ClassVar[str] = "score_products"
    terms: tuple[tuple[int, ...], ...] = Field(min_length=2, max_length=MOST_SCORES)
    scores: FloatArray

    @model_validator(mode="after")
    def _scores_fit(self) -> Self:
        if self.scores.shape != (sum(self.sizes),) or not np.all(np.abs(self.scores) <= 1):
            raise ValueError(f"scores must hold a number in -1 to 1 for each of the {sum(self.sizes)} cells")
        return self

    @property
    def width(self) -> int:
        """A number for each pair of terms."""
        return len(self.terms) * (len(self.terms) - 1) // 2

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: its cells and its scores, twice."""
        return super().row_bytes + 8 * 2 * len(self.terms)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        p = len(self.terms)
        return math.sqrt(p * p - p % 2) if adjacency is Adjacency.REPLACE_ONE else math.sqrt(p * (p - 1) / 2)

    def sum_block(self, block: Units) -> Floats:
        """The products of all pairs of terms, each row by row."""
        cells, weights = self.cells_of(block), block.row_weights(np.empty(0))
        y = np.column_stack([self.scores[start + own] for own, start in zip(cells, self.starts, strict=True)])
        table = np.asarray(products(y * weights[:, None], y))
        return self._padded([table[np.triu_indices(len(self.terms), 1)]])

    def split(self, release: Floats) -> Floats:
        """The products as a symmetric array of shape (p, p), with zeros on its diagonal."""
        p = len(self.terms)
        found = np.zeros((p, p))
        found[np.triu_indices(p, 1)] = release[: self.width]
        return found + found.T
