"""Records and tables from the result of a study of synthetic data, with error bars: all of it free post-processing.

Error bars. The whole study is repeated on records of the released model, noise included: these twins estimate tables
whose true values are known, those of the records. For a table with cells c and twins t let e_tc be the errors. Larger
cells have larger errors, about in proportion to the root of their share, so that the variance of a cell is modelled as

    v_c = f^2 mean(e^2) (p_c + a p)/((1 + a) p),

with p_c its share in the model, p the mean share of the table's cells, f = `Tuning.cell_factor` and a =
`Tuning.cell_offset`, since the mean over the cells of the last factor is 1. f exceeds 1, because a model's own
records depend less than the data, so that twins are more accurate than the study was (benchmarks/synthetic.py computes
the coverage).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np

from zerosum import algorithms
from zerosum.algorithms.groups import Level
from zerosum.algorithms.synthetic.program import SyntheticDataProgram
from zerosum.algorithms.synthetic.records import Model, Twin
from zerosum.algorithms.synthetic.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.data.imputation import ColumnModel, ImputationModel
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.report.record import Result

Records = dict[str, list[Level | None]]
Query = Mapping[str, Level | Collection[Level | None] | tuple[float, float] | None]
# Columns of one table. Relations of more are hardly known from tables of pairs. Chosen by hand.
_MOST_COLUMNS = 4
# Twins for error bars and for `inference`; the latter estimates a spread from them alone, to about
# 1/sqrt(2 * 20) = 16 per cent. Chosen by hand: a twin takes as long as the fit.
ERROR_TWINS, INFERENCE_TWINS = 4, 20


@dataclass(frozen=True)
class Inference:
    """An analysis of synthetic records with its spread over repetitions of the study; there is no interval.

    Attributes
    ----------
    estimate : array
        The analysis on records of the model.
    spread : array
        Root mean square distance of the repetitions from the estimate: privacy noise, sampling, and what the fit loses
        of a table that is a mixture already. What it has lost of the data is not in it, and may be the largest part: so
        the spread is a lower limit of the error, and gives no interval.
    """

    estimate: Floats
    spread: Floats


@dataclass(eq=False)
class SyntheticTable:
    """A released model of a table, from which records are drawn and questions are answered.

    Parameters
    ----------
    program : SyntheticDataProgram
        Public parameters of the study.
    result : Result
        Its result.
    """

    program: SyntheticDataProgram
    result: Result
    _twins: list[Twin] = field(default_factory=list, repr=False)

    @classmethod
    def of(cls, result: Result) -> SyntheticTable:
        """The synthetic table of a result.

        Raises
        ------
        BadParameter
            If the result is of another algorithm.
        """
        if result.plan.algorithm != SyntheticDataProgram.name:
            raise BadParameter(
                f"synthetic records need a result of {SyntheticDataProgram.name!r}, got one of "
                f"{result.plan.algorithm!r}"
            )
        question = result.plan.question
        program = algorithms.build(SyntheticDataProgram.name, {**question.parameters, "columns": question.columns})
        assert isinstance(program, SyntheticDataProgram)  # noqa: S101  # by the name above
        return cls(program, result)

    @property
    def model(self) -> Model:
        """The released model."""
        shares = self.result.estimate["component_shares"].value
        return Model(shares, self.program.sizes, self.program.forbidden)

    @property
    def units(self) -> int:
        """The number of units, public or released."""
        return max(1, round(float(self.result.estimate["unit_count"].value[0])))

    # ---- records -------------------------------------------------------------------------------------------------

    def records(self, rows: int | None = None, seed: int | None = None) -> Records:
        """Synthetic records: for each column a list of levels or numbers, None where a value is missing.

        Parameters
        ----------
        rows : int, optional
            Their number; by default that of the units.
        seed : int, optional
            The same seed gives the same records.
        """
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, Integral) or seed < 0):
            raise BadParameter(f"the seed must be a whole number of 0 or more, got {seed!r}")
        rng = np.random.default_rng(None if seed is None else int(seed))
        return self._decoded(self.model.records(_rows(rows, self.units), rng), rng)

    def _decoded(self, codes: Any, rng: np.random.Generator) -> Records:
        """Categories as values: a level, a whole number of the bin, or a number of the bin by its public density.

        Parameters
        ----------
        codes : array of shape (rows, columns)
            Categories.
        rng : Generator
            For values within bins.
        """
        found: Records = {}
        for at, name in enumerate(self.program.columns):
            own, edges = codes[:, at], self.program.edges[at]
            if name in self.program.levels:
                values: list[Level | None] = [*map(_plain, self.program.levels[name]), None]
                found[name] = [values[code] for code in own.tolist()]
                continue
            missing = own == edges.size - 1
            within = np.where(missing, 0, own)
            places = rng.random(len(within))
            numbers = self.program.density(name).drawn(edges[within], edges[within + 1], places)
            if name in self.program.whole:
                # Edges lie at halves, so that each whole number of a bin has the same share of it.
                numbers = np.clip(np.round(numbers), *(math.ceil(edges[0]), math.floor(edges[-1])))
            plain = numbers.tolist() if name not in self.program.whole else [int(each) for each in numbers]
            found[name] = [None if gone else value for gone, value in zip(missing.tolist(), plain, strict=True)]
        return found

    def imputation_model(self, columns: Sequence[str] | None = None) -> ImputationModel:
        """The public model for missing values of a regression (`zerosum.data.imputation`).

        Parameters
        ----------
        columns : sequence of str, optional
            The columns that the regression reads, its response included; by default all.
        """
        found = {}
        for name in self.program.columns if columns is None else columns:
            if name not in self.program.columns:
                raise BadParameter(f"there is no column {name!r}: the columns are {', '.join(self.program.columns)}")
            at = self.program.columns.index(name)
            p = self.model.column(at)
            if name in self.program.levels:
                levels = tuple(_plain(each) for each in self.program.levels[name])
                found[name] = ColumnModel(levels=levels, probabilities=p)
            else:
                quantiles = self.program.density(name).quantiles(self.program.edges[at])
                found[name] = ColumnModel(quantiles=quantiles, whole=name in self.program.whole, probabilities=p)
        return ImputationModel(columns=found)

    def schema(self) -> dict[str, dict[str, Any]]:
        """What each column holds, for readers of a file with records: kind, levels or range, and bins."""
        found: dict[str, dict[str, Any]] = {}
        for at, name in enumerate(self.program.columns):
            if name in self.program.levels:
                found[name] = {"kind": "levels", "levels": [_plain(each) for each in self.program.levels[name]]}
            else:
                kind = "whole number" if name in self.program.whole else "number"
                found[name] = {"kind": kind, "range": list(self.program.ranges[name])}
                found[name]["bins"] = self.program.edges[at].tolist()
        return found

    # ---- tables --------------------------------------------------------------------------------------------------

    def marginal(self, columns: Sequence[str]) -> Quantity:
        """The share of each combination of categories of one to four columns, with the standard deviation of its error.

        Parameters
        ----------
        columns : sequence of str
            Different columns; a single one has the released histogram's own noise as its error.
        """
        at = self._positions(columns)
        shares = self.model.table(at)
        axes = tuple(Axis(name, self.program.labels[each]) for name, each in zip(columns, at, strict=True))
        if len(at) == 1:
            # The histogram of one column was released itself: its noise is known, and no twin is needed.
            start = sum(self.program.sizes[: at[0]])
            std = np.asarray(self.result.estimate["category_shares"].std)[start : start + self.program.sizes[at[0]]]
            return Quantity(shares, "share", axes, std)
        errors = np.array([twin.errors(at) for twin in self.twins(ERROR_TWINS)])
        square = (TUNING.cell_factor * self._excess(at)) ** 2 * float(np.mean(errors**2))
        mean, offset = 1 / shares.size, TUNING.cell_offset
        return Quantity(shares, "share", axes, np.sqrt(square * (shares + offset * mean) / ((1 + offset) * mean)))

    def answer(self, query: Query) -> Quantity:
        """The share of units that fit a query, with the standard deviation of its error.

        Parameters
        ----------
        query : mapping
            For each column a level, a collection of levels, or a pair (lowest, highest) for a column of numbers; None
            for a missing value. Bins that a range covers in part count in part. A value outside the public range of its
            column is in the first or last bin at the sites, and counts as one within it.
        """
        at = self._positions(tuple(query))
        weights = [self._weight(name, wanted) for name, wanted in query.items()]

        def share(found: Floats) -> float:
            for weight in weights:
                # The first axis is that of the next column, shape (K_j, ...): each product removes one axis.
                found = np.tensordot(weight, found, axes=(0, 0))
            return float(found)

        own = share(self.model.table(at))
        errors = np.array([share(twin.errors(at)) for twin in self.twins(ERROR_TWINS)])
        std = TUNING.error_factor * self._excess(at) * math.sqrt(float(np.mean(errors**2)))
        return Quantity(np.array([own]), "share", (Axis("query", ("share",)),), np.array([std]))

    def _excess(self, at: Sequence[int]) -> float:
        """The factor on the errors of repetitions for a table of some columns: that of its pairs, in quadratic mean.

        Parameters
        ----------
        at : sequence of int
            Positions of columns.
        """
        if len(at) == 1:
            return 1.0
        known = self.result.estimate["pair_excess"].value
        own = math.sqrt(float(np.mean([known[pair] ** 2 for pair in combinations(at, 2)])))
        return own * (TUNING.beyond_factor if len(at) > 2 else 1.0)

    def _weight(self, name: str, wanted: Any) -> Floats:
        """The part of each category of a column that fits a query, shape (K_j,).

        Parameters
        ----------
        name : str
            The column.
        wanted : object
            As in `answer`.
        """
        at = self.program.columns.index(name)
        found = np.zeros(self.program.sizes[at])
        if wanted is None:
            found[-1] = 1.0
        elif name in self.program.levels:
            many = isinstance(wanted, Collection) and not isinstance(wanted, str)
            for level in wanted if many else (wanted,):
                if level is None:
                    found[-1] = 1.0
                    continue
                if level not in self.program.levels[name]:
                    raise BadParameter(f"column {name!r} has no level {level!r}")
                found[self.program.levels[name].index(level)] = 1.0
        else:
            if not _is_range(wanted):
                raise BadParameter(f"column {name!r} holds numbers: give a pair (lowest, highest), got {wanted!r}")
            edges = self.program.edges[at]
            low, high = wanted
            if name in self.program.whole:
                # NumPy's functions: an end may be infinite.
                low, high = np.ceil(low) - 0.5, np.floor(high) + 0.5
            found[:-1] = self.program.density(name).part(edges, low, high)
        return found

    def _positions(self, columns: Sequence[str]) -> tuple[int, ...]:
        """Positions of different columns of a table."""
        if not 1 <= len(columns) <= _MOST_COLUMNS or len(set(columns)) < len(columns):
            raise BadParameter(f"give one to {_MOST_COLUMNS} different columns, got {', '.join(columns) or 'none'}")
        for name in columns:
            if name not in self.program.columns:
                raise BadParameter(f"there is no column {name!r}: the columns are {', '.join(self.program.columns)}")
        at = tuple(self.program.columns.index(name) for name in columns)
        if (cells := math.prod(self.program.sizes[each] for each in at)) > TUNING.answer_cells_most:
            raise BadParameter(
                f"the table of {', '.join(columns)} has {cells} cells, and {TUNING.answer_cells_most} are possible: "
                "name fewer columns"
            )
        return at

    # ---- errors --------------------------------------------------------------------------------------------------

    def twins(self, count: int) -> list[Twin]:
        """Repetitions of the study on records of the released model (`SyntheticDataProgram.twin`), computed once.

        Parameters
        ----------
        count : int
            Their number; each takes as long as the fit of the study.
        """
        while len(self._twins) < count:
            # Twins 1 and 2 of the program have the seeds 1 and 2; these are others.
            rng = np.random.default_rng([len(self._twins), 1])
            noise = self.result.estimate["release_noise"].value.tolist()
            adjacency = self.result.plan.adjacency
            self._twins.append(self.program.twin(self.model, noise, float(self.units), adjacency, rng))
        return self._twins[:count]

    def inference(self, analysis: Callable[[Records], Any], twins: int = INFERENCE_TWINS, seed: int = 0) -> Inference:
        """An analysis with its spread over repetitions of the study (a parametric bootstrap); it gives no interval.

        Usual standard errors of an analysis of synthetic records are too small, because they count sampling only. The
        spread has privacy noise and fit as well, but not what the model has lost of the data, which no release shows
        for an analysis of any kind (docs/synthetic.md has figures).

        Parameters
        ----------
        analysis : callable
            From records (a dict of lists) to a number or an array; the same shape each time.
        twins : int
            Their number, 2 or more.
        seed : int
            For the records.
        """
        if twins < 2:
            raise BadParameter(f"inference needs two twins or more, got {twins}")
        rng = np.random.default_rng(seed)
        estimate = np.asarray(analysis(self._drawn(self.model, rng)), dtype=np.float64)
        found = np.array(
            [np.asarray(analysis(self._drawn(twin.model, rng)), dtype=float) for twin in self.twins(twins)]
        )
        return Inference(estimate, np.asarray(np.sqrt(np.mean((found - estimate) ** 2, axis=0))))

    def _drawn(self, model: Model, rng: np.random.Generator) -> Records:
        """As many records of a model as there are units."""
        return self._decoded(model.records(_rows(None, self.units), rng), rng)


def _plain(level: Level) -> Level:
    """A level as the sites write it: 1 and not 1.0."""
    # Floats beyond 1e15 do not hold every whole number.
    return int(level) if isinstance(level, float) and level.is_integer() and abs(level) < 1e15 else level


def _is_range(wanted: Any) -> bool:
    """Whether a value is a pair of rising numbers; false for NaN."""
    if not isinstance(wanted, tuple | list) or len(wanted) != 2:
        return False
    return all(isinstance(each, Real) for each in wanted) and bool(wanted[0] <= wanted[1])


def _rows(rows: int | None, units: int) -> int:
    """The number of records, checked."""
    rows = units if rows is None else rows
    if isinstance(rows, bool) or not isinstance(rows, Integral) or not 1 <= rows <= 100_000_000:
        raise BadParameter(f"the number of rows must be a whole number from 1 to 100000000, got {rows!r}")
    return int(rows)
