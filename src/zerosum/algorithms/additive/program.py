"""Additive models over sites: shape functions of columns and of pairs of columns, for two classes or for numbers.

Model
-----
Unit i of n has d columns of numbers or categories, and a response, a class or a number. Column j is cut into cells:
levels, or intervals of its public range, and one for missing or undeclared values. The model is additive (Hastie and
Tibshirani, Generalized Additive Models, 1990; Lou, Caruana and Gehrke, Intelligible Models, KDD 2012, for pairs):

    g(E[response]) = constant + sum over columns of f_j(cell) + sum over given pairs of f_jk(cells),

with g the logit for classes and the identity for numbers. p is the number of terms, f_j or f_jk.

Releases, with shares of the budget (`Tuning`):

1. Counts of the ordered columns on nested grids (`WeightedTables`). Fine bins are merged to cells that hold more units
   than noise. Not made if no column has more than `Tuning.plain` bins.
2. By cell of every term: the sum of the responses, and the count (`ResponseTables`).
3. Of numbers: products of the effects that release 2 shows, for all pairs of terms (`ScoreProducts`), that is, how far
   columns move together. Not made for a single term.
4. Rounds: by cell of every term, the sum of the values of the present model (`ModelTables`).

Release 4 has no response in it, which is released once: a gradient would have twice the noise in every round. The cells
of a release and the values of the model are functions of earlier releases. Sizes and sensitivities are the same for any
of them, so that the noise is planned before data are read, and adaptive composition holds.

Everything else is free post-processing: `model`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from zerosum.algorithms.additive.cells import coarse, merged, widths_of
from zerosum.algorithms.additive.model import Fit, Terms
from zerosum.algorithms.additive.tuning import TUNING, Setting
from zerosum.algorithms.groups import Level, check_domains, shown
from zerosum.algorithms.program import Algorithm, Estimate, Program, PublicFacts
from zerosum.algorithms.quantiles import bin_edges, check_whole
from zerosum.algorithms.synthetic.bins import Coding
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.missing import OBSERVED, Rule
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.additive import EFFECT_MOST, MOST_SCORES, ModelTables, ResponseTables, ScoreProducts
from zerosum.statistics.marginals import MOST_CELLS, Codes, WeightedTables, weights_of

MISSING = "missing"  # label of the cell of missing and undeclared values


class AdditiveModelProgram(Algorithm):
    """Shape functions of columns and of pairs of columns, for a response of two classes or of numbers.

    The last column is the response: with two `levels` it is a class, the reference first, with a range a number.

    Parameters
    ----------
    ranges : dict
        Public lowest and highest value of each column of numbers.
    levels : dict
        Public categories of each other column.
    whole : tuple of str
        Columns of whole numbers, and of dates as days.
    pairs : tuple of (str, str)
        Pairs of columns that have a function of both.
    smooth : tuple of str
        Columns of numbers whose functions have no jumps.
    rising, falling : tuple of str
        Columns of numbers whose functions must not fall, or must not rise.
    bins : int, optional
        Fine bins of each column of numbers; the planner's choice if not given.
    cells : int, optional
        Most cells of a column of numbers after the first release; the planner's choice if not given.
    rounds : int, optional
        Rounds; the planner's choice if not given.
    """

    name: ClassVar[str] = "additive-model"
    columns: tuple[str, ...] = Field(min_length=2, max_length=201)
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    whole: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = Field(default=(), max_length=100)
    smooth: tuple[str, ...] = ()
    rising: tuple[str, ...] = ()
    falling: tuple[str, ...] = ()
    bins: int | None = Field(default=None, ge=2, le=4096)
    cells: int | None = Field(default=None, ge=2, le=1000)
    rounds: int | None = Field(default=None, ge=1, le=50)

    _evidence: float | None = PrivateAttr(default=None)  # u of the facts; set by `resolve`, for `describe`

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        """Refuse columns without a public domain, a response of no kind, and terms that do not fit the columns."""
        check_domains(self.columns, self.ranges, self.levels)
        check_whole(self.whole, self.ranges)
        if len(self.levels.get(self.response, (0, 1))) != 2:
            raise ValueError(
                f"the response {self.response!r}, the last column, must have two levels (a class) or a range (a "
                f"number), got {len(self.levels[self.response])} levels"
            )
        if self.response in self.whole:
            raise ValueError(f"whole names the response {self.response!r}, which has no bins: leave it out")
        for pair in self.pairs:
            for name in pair:
                if name not in self.features:
                    raise ValueError(f"pairs names {name!r}, which is not one of the columns before the response")
        if any(a == b for a, b in self.pairs) or len({frozenset(pair) for pair in self.pairs}) < len(self.pairs):
            raise ValueError("pairs must be of different columns, each given once")
        for what, names in (("smooth", self.smooth), ("rising", self.rising), ("falling", self.falling)):
            for name in names:
                if name not in self.features or name not in self.ranges:
                    raise ValueError(f"{what} names {name!r}, which is not a column of numbers before the response")
        if both := set(self.rising) & set(self.falling):
            raise ValueError(f"column {min(both)!r} can be rising or falling, not both")
        if self.most_cells * 2 > MOST_CELLS or sum(map(len, self._grids.values())) * 2 > MOST_CELLS:
            raise ValueError(
                f"the terms have up to {self.most_cells} cells, at most {MOST_CELLS // 2} are possible: declare fewer "
                "levels, cells or bins"
            )
        return self

    # ---- public facts --------------------------------------------------------------------------------------------

    @property
    def response(self) -> str:
        """The last column."""
        return self.columns[-1]

    @property
    def features(self) -> tuple[str, ...]:
        """The columns before the response."""
        return self.columns[:-1]

    @property
    def family(self) -> Literal["logistic", "linear"]:
        """Classes or numbers."""
        return "logistic" if self.response in self.levels else "linear"

    @property
    def term_names(self) -> tuple[str, ...]:
        """The columns, then the pairs."""
        return (*self.features, *(f"{a} x {b}" for a, b in self.pairs))

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        """The levels of each column of categories."""
        return {name: known for name, known in self.levels.items() if name in self.columns}

    @property
    def rules(self) -> dict[str, Rule]:
        """Missing values have a cell of their own in every column; a missing response is refused."""
        return dict.fromkeys(self.features, OBSERVED)

    def check_missing(self, units: Units) -> None:
        """Missing values are allowed in every column but the response."""
        units.check(range(len(self.features)), [f"column {name!r}" for name in self.columns])

    @property
    def _setting(self) -> Setting:
        """The planner's choice for the number of units, or for `Tuning.unknown`."""
        u = TUNING.unknown if self._evidence is None else self._evidence
        return next(setting for limit, setting in TUNING.settings if u < limit)

    @property
    def _planned_cells(self) -> int:
        """The planner's choice of the most cells of a column of numbers."""
        numbers = max(1, sum(name in self.ranges for name in self.features))
        return min(self._setting.cells, max(TUNING.total_cells // numbers, TUNING.cells_least))

    @property
    def _planned_bins(self) -> int:
        """The planner's choice of fine bins: fewer where there are many columns of numbers."""
        numbers = max(1, sum(name in self.ranges for name in self.features))
        # a power of two
        most = 1 << int(math.log2(max(TUNING.total_bins // numbers, TUNING.plain)))
        return min(self._setting.bins, most)

    @property
    def has_scores(self) -> bool:
        """Whether products of scores are released."""
        return self.family == "linear" and 1 < len(self.term_names) <= MOST_SCORES

    @property
    def response_range(self) -> tuple[float, float]:
        """Public range of the coded response: of a class 0 to 1."""
        return self.ranges.get(self.response, (0.0, 1.0))

    @property
    def edges(self) -> tuple[Floats, ...]:
        """Edges of the fine bins of each column, empty for a column of categories; of a response its range."""
        bins = self.bins or self._planned_bins
        own = [
            bin_edges(*self.ranges[name], bins, whole=name in self.whole) if name in self.ranges else np.zeros(0)
            for name in self.features
        ]
        return (*own, np.zeros(0) if self.family == "logistic" else np.array(self.response_range))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of categories of each column before the response: levels or fine bins, and missing."""
        return tuple(
            (len(self.levels[name]) if name in self.levels else edges.size - 1) + 1
            for name, edges in zip(self.features, self.edges, strict=False)
        )

    @property
    def _grids(self) -> dict[int, tuple[int, ...]]:
        """Widths of the grids of each column that has some, by its position."""
        found = {
            at: widths_of(size - 1)
            for at, (name, size) in enumerate(zip(self.features, self.sizes, strict=True))
            if name in self.ranges
        }
        return {at: widths for at, widths in found.items() if widths}

    @property
    def _most(self) -> tuple[int, ...]:
        """Most cells of each column."""
        most = self.cells or self._planned_cells
        return tuple(min(size - 1, most) + 1 if at in self._grids else size for at, size in enumerate(self.sizes))

    @property
    def most_cells(self) -> int:
        """Most cells of all terms: the planned length of a round."""
        most = dict(zip(self.features, self._most, strict=True))
        limit = TUNING.pair_bins + 1
        return sum(most.values()) + sum(min(most[a], limit) * min(most[b], limit) for a, b in self.pairs)

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """Shares of the budget: grids, responses, scores, and one round."""
        grids = self._setting.grid_share if self._grids else 0.0
        scores = TUNING.score_share if self.has_scores else 0.0
        rounds = self.rounds or self._setting.rounds
        return grids, TUNING.response_share, scores, (1 - grids - TUNING.response_share - scores) / rounds

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets fine bins, most cells and rounds from the number of units over the noise of a cell.

        Raises
        ------
        BadParameter
            If the noise hides everything: the least budget or number of units for this plan is in the message.
        """
        settled = self.model_copy()
        if facts.units is not None and facts.noise > 0:
            settled._evidence = facts.units / (facts.noise * math.sqrt(len(self.term_names)))
            if settled._evidence < TUNING.hopeless:
                raise BadParameter(
                    f"{facts.units} units are too few for an additive model of {len(self.term_names)} terms at this "
                    f"budget: the noise hides every effect. Plan {TUNING.hopeless / settled._evidence:.1f} times as "
                    "many units, a larger epsilon, or fewer columns"
                )
        choices = {"bins": settled._planned_bins, "cells": settled._planned_cells, "rounds": settled._setting.rounds}
        found = self.model_copy(update={name: getattr(self, name) or each for name, each in choices.items()})
        found._evidence = settled._evidence
        return found

    @property
    def describe(self) -> str:
        """The releases, for the plan, and what to expect of few units."""
        kind = "two classes" if self.family == "logistic" else "numbers"
        text = (
            f"functions of {len(self.features)} columns and {len(self.pairs)} pairs, for {kind}, in "
            f"{len(self.requests(Adjacency.REPLACE_ONE))} releases of up to {self.most_cells} cells"
        )
        if self._evidence is None or self._evidence >= TUNING.small:
            return text
        return (
            f"{text}. Few units for this budget: expect flat functions with the strongest effects only, unless there "
            f"are {TUNING.small / self._evidence:.1f} times as many units, or fewer columns, or a larger epsilon"
        )

    # ---- releases ------------------------------------------------------------------------------------------------

    @property
    def _layout(self) -> dict[str, Any]:
        """The parameters that the statistics share."""
        levels = tuple(len(self.levels.get(name, ())) for name in self.columns)
        return {"columns": len(self.columns), "levels": levels, "edges": self.edges}

    @property
    def grids(self) -> WeightedTables:
        """The statistic of the first release."""
        of, bins = [], []
        for at, widths in self._grids.items():
            size = self.sizes[at]
            for width in widths:
                # Missing values have a bin of their own in every grid.
                own = np.append(np.arange(size - 1) // width, -(-(size - 1) // width))
                of.append(at)
                bins.append(tuple(own.tolist()))
        return WeightedTables(
            **self._layout,
            cells=sum(max(each) + 1 for each in bins),
            of=tuple(of),
            bins=tuple(bins),
            tables=tuple((at,) for at in range(len(of))),
            weights=weights_of(np.ones(len(of))),
        )

    def layout_of(self, codings: Sequence[Coding]) -> dict[str, Any]:
        """The parameters that the statistics of cells share.

        Parameters
        ----------
        codings : sequence of arrays
            For each column before the response, the cell of each category.
        """
        of = list(range(len(self.features)))
        bins = [tuple(each.tolist()) for each in codings]
        terms: list[tuple[int, ...]] = [(at,) for at in of]
        known: dict[int, int] = {}
        wide = self.pair_codings(codings)
        for pair in self.pairs:
            own = []
            for at in map(self.features.index, pair):
                if at not in known:
                    known[at] = len(bins)
                    of.append(at)
                    bins.append(tuple(wide[at].tolist()))
                own.append(known[at])
            terms.append(tuple(own))
        return {**self._layout, "of": tuple(of), "bins": tuple(bins), "terms": tuple(terms)}

    @property
    def _placeholder(self) -> list[Coding]:
        """Codings with as many cells as possible."""
        return [np.minimum(np.arange(size), most - 1) for size, most in zip(self.sizes, self._most, strict=True)]

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """All releases with placeholder cells: sizes and sensitivities do not depend on them."""
        layout = self.layout_of(self._placeholder)
        first, second, third, each = self.shares
        found = [PrivateSum(self.grids, first)] if self._grids else []
        responses = self.responses(layout)
        found.append(PrivateSum(responses, second))
        if self.has_scores:
            found.append(PrivateSum(self.products(layout, np.zeros(sum(responses.sizes))), third))
        last = PrivateSum(self.values(layout, np.zeros(sum(responses.sizes) + 1)), each)
        return (*found, *[last] * self._rounds)

    @property
    def _rounds(self) -> int:
        """Rounds, as given or as planned."""
        return self.rounds or self._setting.rounds

    def responses(self, layout: dict[str, Any]) -> ResponseTables:
        """The statistic of the second release.

        Parameters
        ----------
        layout : dict
            From `layout_of`; of the next two as well.
        """
        return ResponseTables(**layout, cells=2 * self.most_cells)

    def products(self, layout: dict[str, Any], scores: Floats) -> ScoreProducts:
        """The statistic of the third release.

        Parameters
        ----------
        scores : array of shape (c,)
            The score of each cell.
        """
        p = len(self.term_names)
        return ScoreProducts(**layout, cells=p * (p - 1) // 2, scores=scores)

    def values(self, layout: dict[str, Any], theta: Floats) -> ModelTables:
        """The statistic of a round.

        Parameters
        ----------
        theta : array of shape (c + 1,)
            The constant and the effects.
        """
        # A faulty site may send numbers of any size: the limit is that of the statistic, far beyond any effect.
        safe = np.clip(np.nan_to_num(theta), -EFFECT_MOST, EFFECT_MOST)
        return ModelTables(
            **layout, cells=self.most_cells, family=self.family, intercept=float(safe[0]), effects=safe[1:]
        )

    def program(self, adjacency: Adjacency) -> Program:
        """The releases and the fit."""
        first, second, third, each = self.shares
        codings = [np.arange(size) for size in self.sizes]
        if self._grids:
            release = yield PrivateSum(self.grids, first)
            codings = self.codings(release.value, release.noise_std)
        layout = self.layout_of(codings)
        responses = self.responses(layout)
        release = yield PrivateSum(responses, second)
        terms = self.terms(responses.sizes)
        noise = max(release.noise_std, TUNING.noise_least)
        fit = Fit(terms, self.family == "logistic", *responses.split(release.value), release.units, noise)
        if self.has_scores:
            products = self.products(layout, fit.scores())
            release = yield PrivateSum(products, third)
            fit.take_scores(products.scores, products.split(release.value), release.noise_std)
        for _ in range(self._rounds):
            model = self.values(layout, fit.theta)
            release = yield PrivateSum(model, each)
            fit.take_round(release.value[: terms.cells], max(release.noise_std, TUNING.noise_least))
        return self._estimate(fit, codings)

    def _estimate(self, fit: Fit, codings: Sequence[Coding]) -> Estimate:
        """The result in the units of the response.

        Parameters
        ----------
        fit : Fit
            After the last round.
        codings : sequence of arrays
            The cell of each category of every column.
        """
        low, high = self.response_range
        scale, shift = (1.0, 0.0) if self.family == "logistic" else (high - low, (high + low) / 2)
        constant, effects = fit.centred()
        labels: list[str] = []
        firsts: list[int] = []
        for name, coding, own in zip(self.features, codings, self.labels_of(codings), strict=True):
            labels += [f"{name} = {label}" for label in own]
            firsts += np.unique(coding, return_index=True)[1].tolist()
        wide = self.labels_of(self.pair_codings(codings))
        for pair, name in zip(self.pairs, self.term_names[len(self.features) :], strict=True):
            sides = [wide[self.features.index(each)] for each in pair]
            labels += [f"{name} = {a}, {b}" for a in sides[0] for b in sides[1]]
            firsts += range(len(sides[0]) * len(sides[1]))
        cell, term = Axis("cell", tuple(labels)), Axis("term", self.term_names)
        sizes = np.array(fit.terms.sizes, dtype=np.float64)
        importance = [
            scale * math.sqrt(float(fit.counts[part] @ effects[part] ** 2) / fit.size) for part in fit.terms.parts
        ]
        return {
            "effects": Quantity(scale * effects, "coefficient", (cell,)),
            "cell_noise": Quantity(scale * fit.cell_noise, "diagnostic", (cell,)),
            "constant": Quantity(np.array([scale * constant + shift]), "coefficient"),
            "importance": Quantity(np.array(importance), "diagnostic", (term,)),
            "cell_units": Quantity(fit.counts, "count", (cell,)),
            "cell_start": Quantity(np.array(firsts, dtype=np.float64), "diagnostic", (cell,)),
            "term_cells": Quantity(sizes, "diagnostic", (term,)),
            "unit_count": Quantity(np.array([fit.size]), "count"),
        }

    def labels_of(self, codings: Sequence[Coding]) -> list[list[str]]:
        """Names of the cells of every column; the last one is `MISSING`.

        Parameters
        ----------
        codings : sequence of arrays
            The cell of each category.
        """
        found = []
        for name, edges, coding in zip(self.features, self.edges, codings, strict=False):
            cells = range(int(coding.max()))
            if name in self.levels:
                known = self.levels[name]
                own = [" / ".join(shown(known[at]) for at in np.flatnonzero(coding[:-1] == cell)) for cell in cells]
            else:
                # The edges at which a cell starts, and the end of the range.
                starts = np.searchsorted(coding[:-1], cells)
                ends = [*edges[starts].tolist(), float(edges[-1])]
                own = [interval_label(low, high, whole=name in self.whole) for low, high in pairwise(ends)]
            found.append([*own, MISSING])
        return found

    def cells_of(self, estimate: Estimate, rows: Floats) -> Codes:
        """The cell of each row in every term, counted from the first cell of all; shape (rows, terms).

        Parameters
        ----------
        estimate : mapping
            A result of this program.
        rows : array of shape (rows, columns before the response)
            Numbers and codes of levels, NaN where a value is missing.
        """
        starts = estimate["cell_start"].value.astype(np.intp)
        ends = np.cumsum([0, *estimate["term_cells"].value]).astype(int).tolist()
        codings = []
        for at, size in enumerate(self.sizes):
            own = starts[ends[at] : ends[at + 1]]
            codings.append(np.searchsorted(own, np.arange(size), side="right") - 1)
        statistic = self.responses(self.layout_of(codings))
        whole = Units.from_rows(np.column_stack([rows, np.zeros(len(rows))]))
        return np.column_stack(
            [start + own for start, own in zip(statistic.starts, statistic.cells_of(whole), strict=True)]
        )

    def predictor(self, estimate: Estimate, rows: Floats) -> Floats:
        """Log odds of the second class, or the expected response within its range, of rows; shape (rows,).

        Parameters
        ----------
        estimate, rows
            As for `cells_of`.
        """
        effects = estimate["effects"].value[self.cells_of(estimate, rows)]
        found = float(estimate["constant"][0]) + effects.sum(axis=1)
        return np.asarray(found if self.family == "logistic" else np.clip(found, *self.response_range))

    def pair_codings(self, codings: Sequence[Coding]) -> list[Coding]:
        """Codings of the columns where they enter pairs: on at most `Tuning.pair_bins` bins, and one for missing.

        Parameters
        ----------
        codings : sequence of arrays
            The cell of each category of every column.
        """
        return [coarse(int(each.max()) + 1, TUNING.pair_bins)[each] for each in codings]

    def terms(self, sizes: Sequence[int]) -> Terms:
        """The cells of all terms for the fit.

        Parameters
        ----------
        sizes : sequence of int
            The number of cells of each term.
        """
        pairs = len(self.pairs)
        return Terms(
            tuple(sizes),
            (*(name in self.ranges for name in self.features), *[False] * pairs),
            (*(name in self.smooth for name in self.features), *[False] * pairs),
            (*(int(name in self.rising) - int(name in self.falling) for name in self.features), *[0] * pairs),
        )

    def codings(self, released: Floats, noise: float) -> list[Coding]:
        """The cell of each category of every column, from the first release.

        Parameters
        ----------
        released : array
            Its value.
        noise : float
            Standard deviation of its noise.
        """
        statistic = self.grids
        grids = iter(statistic.split(released))
        std = noise / float(statistic.weights[0])
        least = max(TUNING.evidence * std, TUNING.least)
        found = []
        for at, size in enumerate(self.sizes):
            widths = self._grids.get(at, ())
            if not widths:
                found.append(np.arange(size))
                continue
            own = [next(grids)[:-1] for _ in widths]
            cells = merged(own, widths, size - 1, least, self._most[at] - 1)
            found.append(np.append(cells, cells[-1] + 1))
        return found


def interval_label(low: float, high: float, *, whole: bool) -> str:
    """The label of an interval of a column; of whole numbers the first and the last.

    Parameters
    ----------
    low, high : float
        Its ends.
    whole : bool
        Whether the column holds whole numbers, whose intervals end at halves.

    >>> interval_label(0.5, 2.5, whole=True), interval_label(0.5, 2.5, whole=False)
    ('1 to 2', '0.5 to 2.5')
    >>> interval_label(1250.0, 1347.656, whole=False)
    '1250 to 1348'
    """
    if not whole:
        # Two digits of the width.
        digits = max(0, 1 - math.floor(math.log10(high - low)))
        return f"{low:.{digits}f} to {high:.{digits}f}"
    first, last = math.ceil(low), math.floor(high)
    return f"{first}" if first == last else f"{first} to {last}"
