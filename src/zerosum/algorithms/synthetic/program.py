"""Synthetic tables over sites: three releases of small tables, and a model that gives any number of records.

Model
-----
Column j of d has K_j categories: declared levels or public bins, and one for missing or undeclared values. n is the
number of units. Three releases take shares of the budget (`Tuning.shares`):

1. Histograms of all columns, one release (`WeightedTables`). A table of c cells has a weight proportional to c^(1/3),
   which minimises the total absolute error of all cells. Categories below two standard deviations of the noise are
   merged into working bins.
2. All pairs of columns on at most 8 bins, centred (`CentredPairs`). The release shows which columns depend, and is data
   for the fit as well.
3. Tables of the pairs whose dependence in release 2 exceeds the error that measuring them adds, on bins as fine as the
   noise allows, and of pairs with the target (`WeightedTables`). The length of the release is planned; tables are added
   in the order of their dependence until it is full.

The bins and tables of a release are functions of earlier releases. The sensitivities are the same for any bins and
tables, so that the noise is planned before data are read, and adaptive composition holds.

Everything else is free post-processing. A mixture of products is fitted to all releases (`model`); records are drawn
from it (`records`). The error of tables that were not measured is computed by repeating the whole study, noise
included, on records of the model, whose tables are known (a parametric bootstrap): `twin`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from zerosum.algorithms.groups import Level, check_domains, shown
from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.algorithms.program import Algorithm, Program, PublicFacts
from zerosum.algorithms.quantiles import check_whole
from zerosum.algorithms.synthetic.bins import Coding, grouped, merged, one_hot
from zerosum.algorithms.synthetic.densities import Density, Points, check_densities
from zerosum.algorithms.synthetic.model import Mixture, PairsTerm, TableTerm, plausible, raked
from zerosum.algorithms.synthetic.records import Model, Twin, by_pair, distance, excess
from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.missing import OBSERVED, Rule
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.marginals import MOST_CELLS, CentredPairs, WeightedTables, weights_of

# A part of a program that returns what the releases give.
_Fitting = Generator[PrivateSum, Release, "Fitted"]

MISSING = "missing"  # label of the category of missing and undeclared values
_DIGITS = 7  # decimals of the stored model: the noise of a share is far larger


class SyntheticDataProgram(Algorithm):
    """Synthetic records with the tables of few columns of the sites' data, and a model that answers any question.

    Results: `component_shares`, the model; `category_shares`, the released histograms with their noise; for each pair
    of columns `dependence`, the total variation distance from independence in the model, `pair_error`, the expected
    distance between the model's table and that of the data, and `measured`, whether its table was released.

    Parameters
    ----------
    ranges : dict
        Public lowest and highest value of each column of numbers.
    levels : dict
        Public categories of each other column.
    whole : tuple of str
        Columns of whole numbers, and of dates as days.
    bins : int, optional
        Bins of each column of numbers; the planner's choice if not given.
    target : str, optional
        Column to be predicted from others: tables of two columns and this one are measured as well.
    totals : dict
        Public totals: for a column, the number of units in each of its levels or bins. Synthetic records agree with
        them up to one record. They must be public already; they cost nothing.
    impossible : tuple of dict
        Combinations of levels that no unit has, such as {"sex": "m", "pregnant": "yes"}.
    densities : dict
        For columns of numbers, the public density that sets their bins and values within a bin: "log" (of the
        logarithm) or rising points (x, density) over the range; by default uniform.
    table_cells : int, optional
        Planned length of the third release; the planner's choice if not given.
    """

    name: ClassVar[str] = "synthetic-data"
    columns: tuple[str, ...] = Field(min_length=2, max_length=100)
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    whole: tuple[str, ...] = ()
    bins: int | None = Field(default=None, ge=2, le=1000)
    target: str | None = None
    totals: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    impossible: tuple[dict[str, Level], ...] = ()
    densities: dict[str, Literal["log"] | Points] = Field(default_factory=dict)
    table_cells: int | None = Field(default=None, ge=4, le=MOST_CELLS)

    _noise: float | None = PrivateAttr(default=None)  # `pair_noise` of the facts; set by `resolve`, for `describe`

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        """Refuse columns without a public domain, and totals, targets and combinations that do not fit the columns."""
        check_domains(self.columns, self.ranges, self.levels)
        check_whole(self.whole, self.ranges)
        check_densities(self.densities, self.ranges)
        sizes = sorted(self.sizes)
        # The result has a distance for each pair, from a table of all its categories.
        if sum(sizes) > TUNING.categories_most or sizes[-1] * sizes[-2] > MOST_CELLS:
            raise ValueError(
                f"the columns have {sum(sizes)} categories together, and the two largest {sizes[-1]} and {sizes[-2]}. "
                f"At most {TUNING.categories_most} together and a product of {MOST_CELLS} are possible: declare fewer "
                "levels or bins"
            )
        if self.target is not None and self.target not in self.columns:
            raise ValueError(f"target = {self.target!r} is not one of the columns {', '.join(self.columns)}")
        for name, counts in self.totals.items():
            if name not in self.columns:
                raise ValueError(f"totals names {name!r}, which is not one of the columns")
            if name in self.ranges and self.bins is None:
                raise ValueError(f"totals of column {name!r}, whose bins the planner chooses: give bins")
            if len(counts) != self.sizes[self.columns.index(name)] - 1:
                wanted = self.sizes[self.columns.index(name)] - 1
                raise ValueError(f"totals of column {name!r} must have {wanted} numbers, got {len(counts)}")
            if not all(each >= 0 for each in counts) or not 0 < sum(counts) < math.inf:
                raise ValueError(f"totals of column {name!r} must be finite, not negative, and not all 0")
        for combination in self.impossible:
            if len(combination) < 2:
                raise ValueError("an impossible combination must name two columns or more: leave out a single level")
            for name, level in combination.items():
                if level not in self.levels.get(name, ()):
                    raise ValueError(f"impossible names {level!r} of column {name!r}, which is not one of its levels")
        if not self._possible:
            raise ValueError("impossible names every combination of levels: leave one that units may have")
        return self

    @property
    def _possible(self) -> bool:
        """Whether some combination of levels is possible, as far as a table of the named columns is small enough."""
        named = sorted({at for combination in self.forbidden for at in combination})
        shape = tuple(self.sizes[at] - 1 for at in named)
        if math.prod(shape) > MOST_CELLS:
            return True
        possible = np.ones(shape, dtype=bool)
        for combination in self.forbidden:
            possible[tuple(combination.get(at, slice(None)) for at in named)] = False
        return bool(np.any(possible))

    # ---- public facts --------------------------------------------------------------------------------------------

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        """The levels of each column of categories."""
        return {name: known for name, known in self.levels.items() if name in self.columns}

    @property
    def rules(self) -> dict[str, Rule]:
        """Missing values have a category of their own in every column, so that none is refused."""
        return dict.fromkeys(self.columns, OBSERVED)

    def check_missing(self, units: Units) -> None:
        """Missing values are allowed in every column."""
        units.check(range(len(self.columns)), [f"column {name!r}" for name in self.columns])

    def density(self, name: str) -> Density:
        """The public density of a column of numbers."""
        return Density(*self.ranges[name], self.densities.get(name))

    @property
    def edges(self) -> tuple[Floats, ...]:
        """Edges of the bins of each column, empty for a column of categories."""
        return tuple(
            self.density(name).edges(self.bins or TUNING.numeric_bins[1], whole=name in self.whole)
            if name in self.ranges
            else np.zeros(0)
            for name in self.columns
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """K_j, the number of categories of each column, the one of missing values included."""
        return tuple(
            (len(self.levels[name]) if name in self.levels else edges.size - 1) + 1
            for name, edges in zip(self.columns, self.edges, strict=True)
        )

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """Names of the categories of each column; the last one is `MISSING`."""
        found = []
        for name, edges in zip(self.columns, self.edges, strict=True):
            if name in self.levels:
                own = tuple(shown(level) for level in self.levels[name])
            elif name in self.whole:
                own = tuple(_whole_label(low, high) for low, high in pairwise(edges))
            else:
                own = tuple(f"{low:g} to {high:g}" for low, high in pairwise(edges))
            found.append((*own, MISSING))
        return tuple(found)

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the number of bins and the length of the third release."""
        low, high = TUNING.numeric_bins
        bins = self.bins
        if bins is None:
            bins = high
            if facts.units is not None and facts.noise > 0:
                # Units of a bin, for units spread evenly, about the noise of a bin: finer ones would be merged.
                noise = facts.noise * math.sqrt(2 * len(self.columns) / TUNING.shares[0])
                bins = min(max(2 ** round(math.log2(max(facts.units / noise, 1.0))), low), high)
        settled = self.model_copy(update={"bins": bins})
        pairs = len(self.columns) * (len(self.columns) - 1) // 2
        cells = self.table_cells or max(4, min(TUNING.table_cells, pairs * TUNING.table_cells_of_pair))
        settled = settled.model_copy(update={"table_cells": cells})
        settled._noise = settled.pair_noise(facts)
        return settled

    def pair_noise(self, facts: PublicFacts) -> float | None:
        """Noise of a cell of a pair that took the whole budget together with all others, as a share of the units.

        Parameters
        ----------
        facts : PublicFacts
            Of the plan; without a public number of units there is no answer.
        """
        if not facts.units:
            return None
        pairs = len(self.columns) * (len(self.columns) - 1) / 2
        return facts.noise * math.sqrt(2 * pairs) / facts.units

    @property
    def describe(self) -> str:
        """The releases, for the plan."""
        releases = (
            f"histograms of {len(self.columns)} columns ({sum(self.sizes)} categories), all pairs on at most "
            f"{self._pair_bins} bins, then tables of at most {self.table_cells} cells"
        )
        if self._noise is None or self._noise <= TUNING.pair_noise_most:
            return releases
        return (
            f"{releases}. Few units for this budget: expect relations between columns that are no better than those of "
            f"independent columns, unless there are {self._noise / TUNING.pair_noise_most:.1f} times as many units, or "
            "fewer columns, or a larger epsilon"
        )

    # ---- releases ------------------------------------------------------------------------------------------------

    @property
    def _layout(self) -> dict[str, object]:
        """The parameters that the statistics share."""
        levels = tuple(len(self.levels.get(name, ())) for name in self.columns)
        return {"columns": len(self.columns), "levels": levels, "edges": self.edges}

    @property
    def histograms(self) -> WeightedTables:
        """The statistic of the first release."""
        count = len(self.columns)
        return WeightedTables(
            **self._layout,
            cells=sum(self.sizes),
            of=tuple(range(count)),
            bins=tuple(tuple(range(size)) for size in self.sizes),
            tables=tuple((at,) for at in range(count)),
            weights=weights_of(np.array(self.sizes, dtype=np.float64) ** TUNING.weight_power),
        )

    @property
    def _pair_bins(self) -> int:
        """Most bins of a column in the release of pairs, so that its cells stay below the limit."""
        for most in range(TUNING.pair_bins_most, 2, -1):
            if self._pair_cells(most) <= TUNING.pair_cells_most:
                return most
        return 2

    def _pair_cells(self, most: int) -> int:
        """Cells of all pairs of columns with at most that many bins each."""
        bins = [min(size, most) for size in self.sizes]
        return sum(a * b for a, b in combinations(bins, 2))

    def pairs(self, codings: Sequence[Coding]) -> CentredPairs:
        """The statistic of the second release.

        Parameters
        ----------
        codings : sequence of arrays
            For each column, the bin of each category.
        """
        return CentredPairs(
            **self._layout,
            cells=self._pair_cells(self._pair_bins),
            bins=tuple(tuple(each.tolist()) for each in codings),
        )

    def tables(self, chosen: Sequence[Chosen]) -> WeightedTables:
        """The statistic of the third release.

        Parameters
        ----------
        chosen : sequence of Chosen
            The tables, one or more.
        """
        # Tables share codings; each different one is sent once.
        known: dict[tuple[int, tuple[int, ...]], int] = {}
        tables = []
        for table in chosen:
            keys = [(at, tuple(bins.tolist())) for at, bins in zip(table.columns, table.codings, strict=True)]
            tables.append(tuple(known.setdefault(key, len(known)) for key in keys))
        cells = np.array([table.cells for table in chosen], dtype=np.float64)
        return WeightedTables(
            **self._layout,
            cells=self.table_cells or TUNING.table_cells,
            of=tuple(at for at, _ in known),
            bins=tuple(bins for _, bins in known),
            tables=tuple(tables),
            weights=weights_of(cells**TUNING.weight_power),
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The three releases with placeholder bins and tables: sizes and sensitivities do not depend on them."""
        halves = [(np.arange(size) > 0).astype(np.intp) for size in self.sizes]
        first = Chosen((0, 1), (halves[0], halves[1]))
        statistics = (self.histograms, self.pairs(halves), self.tables([first]))
        return tuple(PrivateSum(each, share) for each, share in zip(statistics, TUNING.shares, strict=True))

    def program(self, adjacency: Adjacency) -> Program:
        """The releases, the fit, and repetitions on synthetic records for the errors."""
        # A fixed seed: the fit is a function of the releases, and readers can compute it again.
        fitted = yield from self.fitted(adjacency, np.random.default_rng(0))
        truth = fitted.model
        names = Axis("column", self.columns)
        twins = [
            self.twin(truth, fitted.noise, fitted.units, adjacency, np.random.default_rng(seed))
            for seed in range(1, TUNING.twins + 1)
        ]
        larger = excess(fitted.pair_misfit, twins)
        distances = np.mean([by_pair(len(self.columns), twin.distance) for twin in twins], axis=0)
        error = TUNING.error_factor * larger * distances
        independent = replace(truth, probabilities=np.mean(truth.probabilities, axis=0, keepdims=True))
        categories = Axis(
            "category",
            tuple(f"{name} = {label}" for name, own in zip(self.columns, self.labels, strict=True) for label in own),
        )
        dependence = by_pair(len(self.columns), lambda at: distance(truth.table(at), independent.table(at)))
        components = Axis.numbered("component", len(truth.probabilities))
        pair = (names, Axis("other column", self.columns))
        return {
            "category_shares": Quantity(fitted.shares, "share", (categories,), fitted.shares_std),
            "component_shares": Quantity(truth.probabilities.round(_DIGITS), "share", (components, categories)),
            "dependence": Quantity(dependence, "diagnostic", pair),
            "pair_error": Quantity(error, "diagnostic", pair),
            "pair_excess": Quantity(larger, "diagnostic", pair),
            "measured": Quantity(fitted.measured, "diagnostic", pair),
            "unit_count": Quantity(np.array([fitted.units]), "count"),
            "release_noise": Quantity(np.array(fitted.noise), "diagnostic"),
            "misfit": Quantity(np.array([fitted.misfit]), "diagnostic"),
        }

    def fitted(self, adjacency: Adjacency, rng: np.random.Generator) -> _Fitting:
        """Part of a program: the three releases and the fit."""
        fit = Fit(self, rng)
        first = yield PrivateSum(self.histograms, TUNING.shares[0])
        fit.take_histograms(first)
        second = yield PrivateSum(self.pairs(fit.pair_codings), TUNING.shares[1])
        fit.take_pairs(second)
        chosen = fit.chosen()
        third = yield PrivateSum(self.tables(chosen), TUNING.shares[2])
        fit.take_tables(third, chosen)
        return fit.finish((first.noise_std, second.noise_std, third.noise_std))

    def twin(
        self,
        truth: Model,
        noise: Sequence[float],
        units: float,
        adjacency: Adjacency,
        rng: np.random.Generator,
    ) -> Twin:
        """The same study on records of a model; it costs no privacy.

        Parameters
        ----------
        truth : Model
            The model of which records are drawn.
        noise : sequence of float
            Standard deviation of the noise of each release.
        units : float
            The number of units of the study. There are as many records, up to `Tuning.twin_numbers`.
        adjacency : Adjacency
            As in the study.
        rng : Generator
            For records, noise and fit.
        """
        count = max(1, min(round(units), TUNING.twin_numbers // len(self.columns)))
        codes = truth.records(count, rng)
        records = Units.from_rows(self.coordinates(codes))
        program = self.fitted(adjacency, rng)
        request = next(program)
        known = None if adjacency is Adjacency.ADD_REMOVE else float(len(records))
        # Fewer records than units have less noise: the noise of a share is that of the study.
        for std in (each * min(1.0, count / units) for each in noise):
            total = request.statistic.total(records)
            release = Release(total + rng.normal(0, std, total.shape), std, known, ())
            try:
                request = program.send(release)
            except StopIteration as stop:
                found: Fitted = stop.value
                return Twin(found.model, codes, found.pair_codings, found.pair_misfit)
        raise BadParameter(f"a twin needs the noise of all three releases, got {len(noise)}")

    def coordinates(self, codes: Coding) -> Floats:
        """Records as a site has them: codes of levels, middles of bins, NaN for missing values; shape of `codes`.

        Parameters
        ----------
        codes : array of shape (rows, columns)
            Categories.
        """
        found = codes.astype(np.float64)
        for at, (edges, size) in enumerate(zip(self.edges, self.sizes, strict=True)):
            if edges.size:
                middles = np.append((edges[:-1] + edges[1:]) / 2, np.nan)
                found[:, at] = middles[codes[:, at]]
            else:
                found[codes[:, at] == size - 1, at] = np.nan
        return found

    def table(self, data: Units, at: Sequence[int]) -> Floats:
        """The share of each combination of categories of some columns in public or synthetic data, without noise.

        Parameters
        ----------
        data : Units
            Rows as a site has them.
        at : sequence of int
            Positions of one to three columns.
        """
        statistic = WeightedTables(
            **self._layout,
            cells=math.prod(self.sizes[each] for each in at),
            of=tuple(at),
            bins=tuple(tuple(range(self.sizes[each])) for each in at),
            tables=(tuple(range(len(at))),),
            weights=np.ones(1),
        )
        (found,) = statistic.split(statistic.total(data))
        return np.asarray(found / np.sum(found))

    @property
    def forbidden(self) -> tuple[dict[int, int], ...]:
        """The impossible combinations as categories by position of the column."""
        return tuple(
            {self.columns.index(name): self.levels[name].index(level) for name, level in each.items()}
            for each in self.impossible
        )


@dataclass(frozen=True, eq=False)
class Chosen:
    """A table of the third release: its columns and a coding of each column's categories."""

    columns: tuple[int, ...]
    codings: tuple[Coding, ...]

    @property
    def cells(self) -> int:
        """The number of its cells."""
        return math.prod(int(each.max()) + 1 for each in self.codings)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What the releases give.

    Attributes
    ----------
    model : Model
        The fitted model, by category.
    shares, shares_std : arrays of shape (A,)
        Released histograms and their noise.
    measured : array of shape (d, d)
        1 for a pair in the third release.
    units : float
        The number of units, public or released.
    noise : tuple of float
        Standard deviation of the noise of each release.
    misfit : float
        Squared misfit over the noise variance.
    pair_codings : tuple of arrays, length d
        The coding of each column in the release of pairs.
    pair_misfit : array of shape (d, d)
        Sum of squared differences between the released table of each pair and that of the model.
    """

    model: Model
    shares: Floats
    shares_std: Floats
    measured: Floats
    units: float
    noise: tuple[float, ...]
    misfit: float
    pair_codings: tuple[Coding, ...]
    pair_misfit: Floats


class Fit:
    """The state between the releases: bins, dependences and the mixture.

    Parameters
    ----------
    program : SyntheticDataProgram
        Public parameters.
    rng : Generator
        For the start of the fit.
    """

    def __init__(self, program: SyntheticDataProgram, rng: np.random.Generator) -> None:
        self.program, self.rng = program, rng
        self.columns = range(len(program.columns))
        self.ordered = [name in program.ranges for name in program.columns]
        self.measured = np.eye(len(program.columns))

    def take_histograms(self, release: Release) -> None:
        """Read the first release: shares, working bins, and bins of the pairs."""
        program = self.program
        tables = program.histograms.split(release.value)
        weights = program.histograms.weights
        sizes = np.array(program.sizes)
        if release.units is not None:
            self.units = release.units
        else:
            # Each histogram adds up to the number of units, with variance proportional to K_j/w_j^2.
            precision = weights**2 / sizes
            self.units = max(float(precision @ [table.sum() for table in tables] / precision.sum()), 1.0)
        noise = max(release.noise_std, TUNING.std_least * float(np.max(weights)))
        self.std = noise / self.units / weights  # s_1 by column
        self.shares = [plausible(table / self.units, std) for table, std in zip(tables, self.std.tolist(), strict=True)]
        # Noise of one table that took the whole budget, as a share: all later noise follows from it.
        self.unit = noise * math.sqrt(TUNING.shares[0]) / self.units
        self.fine = [self._shares(at) for at in self.columns]
        self.working = [
            merged(fine, TUNING.working_noise * float(self.std[at]), ordered=self.ordered[at])
            for at, fine in enumerate(self.fine)
        ]
        self.binned = [grouped(fine, bins) for fine, bins in zip(self.fine, self.working, strict=True)]
        pairs = len(self.columns) * (len(self.columns) - 1) / 2
        # Expected noise of a cell of a pair: a sensitivity of about sqrt(2 pairs (1 - 1/b)^2), with b about 5.
        expected = self.unit * math.sqrt(0.65 * pairs / TUNING.shares[1])
        self.coarse = self._codings(math.sqrt(TUNING.pair_cell * expected), program._pair_bins)
        self.pair_codings = [self.coarse[at][self.working[at]] for at in self.columns]

    def _shares(self, at: int) -> Floats:
        """The histogram of a column as probabilities: public totals, or the nearest ones to the release."""
        program, size = self.program, self.program.sizes[at]
        found = np.zeros(size)
        if (totals := program.totals.get(program.columns[at])) is not None:
            found[:-1] = np.array(totals) / math.fsum(totals)
            return found
        # A category of missing values that only noise fills would put missing values into complete columns.
        last = size if self.shares[at][-1] > TUNING.missing_evidence * self.std[at] else size - 1
        found[:last] = nearest_probabilities(self.shares[at][:last], 1.0)
        return found

    def _codings(self, least: float, most: int) -> list[Coding]:
        """Codings of the working bins of all columns with bins of a least share.

        Parameters
        ----------
        least : float
            Least share of a bin.
        most : int
            Most bins.
        """
        return [self._coding(at, least, most) for at in self.columns]

    def _coding(self, at: int, least: float, most: int) -> Coding:
        """A coding of the working bins of a column, as `_codings`."""
        # The last working bin of an ordered column holds the missing values only where they are frequent.
        shares = self.binned[at]
        alone = self.ordered[at] and not np.any(self.working[at][:-1] == self.working[at][-1])
        if self.ordered[at] and not alone:
            return merged(np.append(shares, 0.0), least, ordered=True, most=most)[:-1]
        return merged(shares, least, ordered=self.ordered[at], most=most)

    def take_pairs(self, release: Release) -> None:
        """Read the second release: the terms of the fit, and how much each pair depends."""
        statistic = self.program.pairs(self.pair_codings)
        self.pair_std = max(release.noise_std / statistic.scale, TUNING.std_least) / self.units
        tables = {
            pair: plausible(table / self.units, self.pair_std) for pair, table in statistic.split(release.value).items()
        }
        self.mixture = Mixture(
            self.binned,
            np.concatenate([grouped(shares, bins) for shares, bins in zip(self._values, self.working, strict=True)]),
            np.concatenate(
                [std * np.sqrt(np.bincount(bins)) for std, bins in zip(self.std, self.working, strict=True)]
            ),
            self.rng,
        )
        counts = statistic.counts
        offsets = np.concatenate([[0], np.cumsum(counts)])
        value = np.zeros((offsets[-1], offsets[-1]), dtype=np.float32)
        mask, merge = np.zeros_like(value), np.zeros((len(self.mixture.base), offsets[-1]), dtype=np.float32)
        for at in self.columns:
            merge[self.mixture.at(at), offsets[at] : offsets[at + 1]] = one_hot(self.coarse[at])
        self.dependence: dict[tuple[int, int], float] = {}
        for (i, j), table in tables.items():
            rows, others = slice(offsets[i], offsets[i + 1]), slice(offsets[j], offsets[j + 1])
            value[rows, others], value[others, rows] = table, table.T
            mask[rows, others] = mask[others, rows] = 1
            self.dependence[i, j] = self._dependence(table, i, j)
        center = np.repeat(1 / np.array(counts), counts).astype(np.float32)
        self.mixture.pairs = PairsTerm(merge, center, mask, value, self.pair_std)

    @property
    def _values(self) -> list[Floats]:
        """The released histograms that the fit has to meet; public totals where there are any."""
        known = self.program.totals
        return [self.fine[at] if name in known else self.shares[at] for at, name in enumerate(self.program.columns)]

    def _dependence(self, table: Floats, i: int, j: int) -> float:
        """Estimated total variation distance between a pair's table and that of independent columns.

        Parameters
        ----------
        table : array of shape (b_i, b_j)
            Released centred shares.
        i, j : int
            The pair.
        """
        b, c = table.shape
        expected = np.outer(
            grouped(self.binned[i], self.coarse[i]) - 1 / b, grouped(self.binned[j], self.coarse[j]) - 1 / c
        )
        # The squared difference has the noise of (b - 1)(c - 1) free cells, which is subtracted. A normal variable has
        # the mean absolute value 0.8 of its standard deviation; half of the sum of absolute values is the distance.
        square = float(np.sum((table - expected) ** 2)) - (b - 1) * (c - 1) * self.pair_std**2
        return 0.5 * 0.8 * math.sqrt(b * c * max(square, 0.0))

    def chosen(self) -> list[Chosen]:
        """The tables of the third release: pairs by falling dependence while they gain more than they cost, then pairs
        with the target, up to the planned length.
        """
        program, share = self.program, TUNING.shares[2]
        # Expected noise of a cell if one table for each column were measured with equal weights.
        noise = self.unit * math.sqrt(len(self.columns) / share)
        fine = self._codings(math.sqrt(TUNING.table_cell * noise), TUNING.table_bins_most)
        order = sorted(self.dependence, key=lambda pair: -self.dependence[pair])
        room = program.table_cells or TUNING.table_cells
        found: list[Chosen] = []
        load = 0.0
        for i, j in order:
            table = self._table((i, j), (fine[i], fine[j]))
            if table.cells > room:
                continue
            # With weights c^(1/3) the absolute error of all cells is proportional to (sum c^(2/3))^(3/2).
            more = load + table.cells ** (2 / 3)
            cost = TUNING.gain * self.unit / math.sqrt(share) * (more**1.5 - load**1.5)
            # The first table is measured in any case: a release without a table does not exist.
            if not found or self.dependence[i, j] > cost:
                found.append(table)
                load, room = more, room - table.cells
                self.measured[i, j] = self.measured[j, i] = 1.0
        if not found:
            # The planned length holds no pair on these bins: two bins of the most dependent pair.
            i, j = order[0]
            halves = [merged(self.binned[at], 0.0, ordered=False, most=2) for at in (i, j)]
            found.append(self._table((i, j), (halves[0], halves[1])))
            room -= found[0].cells
        for table in self._triples(fine, noise):
            if table.cells <= room:
                found.append(table)
                room -= table.cells
        return found

    def _triples(self, fine: Sequence[Coding], noise: float) -> list[Chosen]:
        """Tables of two columns and the target, those first whose columns depend on each other and on the target.

        Parameters
        ----------
        fine : sequence of arrays
            The codings of tables of pairs, of which the target has its own.
        noise : float
            Expected noise of a cell.
        """
        if self.program.target is None:
            return []
        target = self.program.columns.index(self.program.target)

        def relevance(pair: tuple[int, int]) -> float:
            with_target = [self.dependence[min(at, target), max(at, target)] for at in pair]
            return self.dependence[pair] * sum(with_target)

        pairs = sorted((pair for pair in self.dependence if target not in pair), key=lambda pair: -relevance(pair))
        least = math.sqrt(2 * TUNING.table_cell * noise)  # the target's bins take part of each cell's share
        return [
            self._table(
                (*pair, target), (*(self._coding(at, least, TUNING.triple_bins_most) for at in pair), fine[target])
            )
            for pair in pairs[: TUNING.triples]
        ]

    def _table(self, columns: tuple[int, ...], codings: tuple[Coding, ...]) -> Chosen:
        """A table from codings of working bins."""
        own = tuple(coding[self.working[at]] for at, coding in zip(columns, codings, strict=True))
        return Chosen(columns, own)

    def take_tables(self, release: Release, chosen: Sequence[Chosen]) -> None:
        """Read the third release: one term of the fit for each table."""
        statistic = self.program.tables(chosen)
        weights = statistic.weights.tolist()
        for table, value, weight in zip(chosen, statistic.split(release.value), weights, strict=True):
            # The coding of a category, at the first category of each working bin.
            merges = []
            for at, coding in zip(table.columns, table.codings, strict=True):
                _, first = np.unique(self.working[at], return_index=True)
                merges.append(one_hot(coding)[first])
            std = max(release.noise_std / weight, TUNING.std_least) / self.units
            shares = plausible(value / self.units, std).astype(np.float32)
            flat = shares if shares.ndim == 2 else shares.reshape(-1, shares.shape[-1])
            self.mixture.tables.append(TableTerm(table.columns, tuple(merges), flat, std))

    def finish(self, noise: tuple[float, ...]) -> Fitted:
        """Fit the mixture, meet public totals, and divide working bins into their categories.

        Parameters
        ----------
        noise : tuple of float
            Standard deviation of the noise of each release.
        """
        self.mixture.fit()
        p = self.mixture.probabilities.astype(np.float64)
        for name in self.program.totals:
            at = self.program.columns.index(name)
            p[:, self.mixture.at(at)] = raked(p[:, self.mixture.at(at)], self.binned[at])
        parts = []
        for at, (fine, bins) in enumerate(zip(self.fine, self.working, strict=True)):
            # A category has its released share of its working bin; equal shares where all are 0.
            whole = grouped(fine, bins)[bins]
            equal = (1 / np.bincount(bins))[bins]
            within = np.divide(fine, whole, out=equal, where=whole > 0)
            parts.append(p[:, self.mixture.at(at)][:, bins] * within)
        model = Model(np.concatenate(parts, axis=1), self.program.sizes, self.program.forbidden)
        std = np.concatenate(
            [np.full(size, each) for size, each in zip(self.program.sizes, self.std.tolist(), strict=True)]
        )
        return Fitted(
            model,
            np.concatenate(self.shares),
            std,
            self.measured,
            self.units,
            noise,
            float(self.mixture.misfit),
            tuple(self.pair_codings),
            self.mixture.pair_misfit(),
        )


def _whole_label(low: float, high: float) -> str:
    """The label of a bin of whole numbers: one number, or the first and the last."""
    first, last = math.ceil(low), math.floor(high)
    return f"{first}" if first == last else f"{first} to {last}"
