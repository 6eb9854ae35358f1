"""Missing values of a unit, drawn from a public model of the columns given the unit's own observed values.

Model
-----
An earlier study released a model of the joint table (`algorithm = "synthetic-data"`), which is public. It is a mixture
of M products of equal weight: p_kj(a) is the probability of category a of column j in component k. A category is a
level or a bin of numbers; one more stands for missing values. For a row with observed columns O, of categories x_j, and
columns I to be imputed, the model's distribution of the missing values is

    P(x_I | x_O) = sum_k prod_{j in O} p_kj(x_j) prod_{i in I} p_ki(x_i) / c,

over the categories of I that stand for values. The category of missing values of I is left out: so the distribution is
that of the units whose columns I are observed, which is right if values are missing at random. Columns that are missing
under another rule, or are not in the model, drop out of the product.

Draws. A unit with a missing value becomes D copies of itself with weight 1/D each, every copy with values of its own
(fractional imputation, Kim 2011); its contribution to a sum is the mean over the copies. A copy needs one uniform
number for the component and one for each column. The D numbers for one purpose lie in D equal parts of [0, 1), one in
each (Latin hypercube, McKay, Beckman and Conover 1979), so that the mean over few copies is close to the expectation.
Their order and their place within the parts follow from a hash of the unit's own rows.

Privacy. Copies and values are a function of the unit's own rows and of public values: model, D and columns. A unit is
mapped to one unit, so that neighbouring data are mapped to neighbouring data, and every statistic keeps its
sensitivity, which is proved for units of any rows. Units with equal rows draw differently by a running count of equal
units (`Units.own_draws`). The arithmetic is gathers, products, sums in the order of components, and comparisons within
one row, so that the values of a unit do not depend on the units beside it, to the bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, BadStudy, first_fault
from zerosum.kernel.grid import MOST_UNITS, rows_allowed
from zerosum.kernel.statistic import FloatArray

Level = bool | float | str

# Numbers of rows, copies and components (or categories) at a time, times 8. Chosen by hand, for about 100 MB.
_COMPARED = 1 << 24
# Least probability of a category in a component: a value that noise made impossible must not make all components
# impossible. Far below a released share; chosen by hand.
_LEAST = 1e-9
# Most rows of a unit after copying, unless it has more itself (`grid.rows_allowed` of the most units of a site).
MOST_COPIES = rows_allowed(MOST_UNITS)
_FILE_BYTES = 1 << 28  # largest file of a model; chosen by hand
_GOLDEN = 0x9E3779B97F4A7C15  # odd constant of SplitMix64 (Steele, Lea and Flood 2014)


class ColumnModel(BaseModel):
    """A column of the public model: what its categories stand for, and their probabilities.

    Parameters
    ----------
    levels : tuple
        Levels of a column of categories; empty for one of numbers.
    quantiles : array of shape (bins, Q + 1)
        For a column of numbers, Q + 1 values of each bin at equal steps of the probability within the bin, from its
        lower to its upper edge; empty for one of categories.
    whole : bool
        Whether the numbers are whole.
    probabilities : array of shape (M, K)
        p_kj of each level or bin, and last of a missing value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    levels: tuple[Level, ...] = ()
    quantiles: FloatArray = Field(default_factory=lambda: np.zeros((0, 2)))
    whole: bool = False
    probabilities: FloatArray

    @model_validator(mode="after")
    def _fits(self) -> Self:
        known = len(self.levels) or len(self.quantiles)
        if (len(self.levels) > 0) == (self.quantiles.size > 0) or self.quantiles.ndim != 2:
            raise ValueError("a column of a model must have either levels or bins")
        if len(set(self.levels)) < len(self.levels):
            raise ValueError("the levels of a column of a model must be different")
        if self.quantiles.size:
            joined = self.quantiles.ravel()
            if self.quantiles.shape[1] < 2 or not np.all(np.isfinite(joined)) or not np.all(np.diff(joined) >= 0):
                raise ValueError("the values of the bins of a model must be finite and rise")
        p = self.probabilities
        if p.ndim != 2 or p.shape[1] != known + 1 or not len(p) or not np.all((p >= 0) & (p <= 1)):
            raise ValueError(
                f"probabilities of a column of a model must be {known + 1} numbers from 0 to 1 by component"
            )
        return self

    def category(self, values: Floats, positions: Sequence[int]) -> NDArray[np.intp]:
        """The category of each value, shape of `values`; for NaN any.

        Parameters
        ----------
        values : array of shape (rows,)
            Numbers, or positions of levels in the study that is to be imputed.
        positions : sequence of int
            For a column of categories, the category of each of the study's levels; others are undeclared.
        """
        if not self.levels:
            return np.searchsorted(self.quantiles[1:, 0], values, side="right")
        known = np.isin(values, np.arange(len(positions)))
        places = np.array([*positions, len(self.levels)])
        return np.asarray(places[np.where(known, values, len(positions)).astype(np.intp)])

    def within(self, bins: NDArray[np.intp], places: Floats) -> Floats:
        """Values of bins of numbers, shape of `bins`.

        Parameters
        ----------
        bins : array
            The bin of each value.
        places : array
            The place of each value within its bin as a probability, 0 to 1.
        """
        steps = self.quantiles.shape[1] - 1
        at = np.minimum((places * steps).astype(np.intp), steps - 1)
        low, high = self.quantiles[bins, at], self.quantiles[bins, at + 1]
        values = low + (high - low) * (places * steps - at)
        if not self.whole:
            return np.asarray(values)
        # Edges lie at halves, so that each whole number of a bin has the same part of it.
        return np.asarray(np.clip(np.round(values), np.ceil(self.quantiles[0, 0]), np.floor(self.quantiles[-1, -1])))


class ImputationModel(BaseModel):
    """The public model of several columns, as in its file.

    Parameters
    ----------
    columns : dict of str to ColumnModel
        All with the same number of components.

    >>> smoker = ColumnModel(levels=("no", "yes"), probabilities=[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    >>> ImputationModel(columns={"smoker": smoker}).components
    2
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: dict[str, ColumnModel] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len({len(column.probabilities) for column in self.columns.values()}) > 1:
            raise ValueError("all columns of a model must have the same number of components")
        return self

    @property
    def components(self) -> int:
        """M, the number of components."""
        return len(next(iter(self.columns.values())).probabilities)

    @classmethod
    def load(cls, path: Path) -> ImputationModel:
        """Read the file of a model. Raises `BadStudy`."""
        try:
            if path.stat().st_size > _FILE_BYTES:
                raise BadStudy(f"the model {path} has more than {_FILE_BYTES >> 20} MB")
            return cls.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise BadStudy(f"the model {path} cannot be read: {error.strerror or error}") from None
        except ValidationError as error:
            raise BadStudy(f"the model {path}: {first_fault(error)}") from None
        except (ValueError, RecursionError) as error:  # not UTF-8 or not JSON
            raise BadStudy(f"the model {path} is not a file of `zerosum synth model`: {type(error).__name__}") from None

    def content(self) -> str:
        """The text of the file."""
        columns = {}
        for name, column in self.columns.items():
            domain = {"levels": list(column.levels)} if column.levels else {"quantiles": column.quantiles.tolist()}
            columns[name] = domain | {"whole": column.whole, "probabilities": column.probabilities.tolist()}
        return json.dumps({"columns": columns}) + "\n"


@dataclass(frozen=True, eq=False)
class Imputation:
    """How the missing values of a study's columns are drawn.

    Parameters
    ----------
    model : ImputationModel
        The public model.
    read : tuple of str
        The columns of the study's rows, in their order.
    levels : mapping
        The study's levels of its columns of categories; their rows hold positions of levels.
    wanted : tuple of str
        Columns whose missing values are drawn.
    given : tuple of str
        Columns that the model must have, such as the response: without it a relation with the response would be lost.
    copies : int
        D, the copies of a unit with missing values.
    """

    model: ImputationModel
    read: tuple[str, ...]
    levels: Mapping[str, Sequence[Level]]
    wanted: tuple[str, ...]
    given: tuple[str, ...]
    copies: int

    def __post_init__(self) -> None:
        for name in (*self.wanted, *self.given):
            if name not in self.model.columns:
                what = "is to be imputed" if name in self.wanted else "is the response, and belongs to it"
                raise BadParameter(f"column {name!r} {what}, and the model for imputation does not have it")
        for name in self.read:
            if name not in self.model.columns:
                continue
            known = self.model.columns[name].levels
            if bool(known) != (name in self.levels):
                kinds = ("levels", "numbers") if known else ("numbers", "levels")
                raise BadParameter(
                    f"column {name!r} holds {kinds[0]} in the model for imputation and {kinds[1]} in the study"
                )
            if stranger := [level for level in self.levels.get(name, ()) if level not in known]:
                raise BadParameter(f"level {stranger[0]!r} of column {name!r} is not in the model for imputation")

    @cached_property
    def _positions(self) -> dict[str, tuple[int, ...]]:
        """For each column of categories, the model's category of each of the study's levels."""
        return {
            name: tuple(self.model.columns[name].levels.index(level) for level in levels)
            for name, levels in self.levels.items()
            if name in self.model.columns
        }

    @cached_property
    def _allowed(self) -> dict[str, Floats]:
        """For each wanted column the probabilities of what may be drawn, by component: the study's levels, or bins."""
        found = {}
        for name in self.wanted:
            p = self.model.columns[name].probabilities
            found[name] = np.maximum(p[:, list(self._positions[name])] if name in self.levels else p[:, :-1], _LEAST)
        return found

    def completed(self, units: Units, draws: Floats) -> tuple[Units, Floats]:
        """Units with copies, and their rows with the missing values of the wanted columns drawn.

        Parameters
        ----------
        units : Units
            Rows of shape (n, columns of `read`), categories as positions of levels, NaN where missing.
        draws : array of shape (units,)
            The number of each unit, from `Units.own_draws`.

        Returns
        -------
        copied : Units
            A unit with missing values has every row D times (fewer if it has many rows), with NaN where they were;
            others are unchanged.
        rows : array
            The rows of `copied` with the values that were drawn.
        """
        rows = np.asarray(units.rows, dtype=np.float64)
        offsets = np.arange(len(rows) + 1) if units.offsets is None else units.offsets
        sizes = np.diff(offsets)
        gaps = np.isnan(rows[:, [self.read.index(name) for name in self.wanted]]).any(axis=1)
        whose = np.repeat(np.arange(len(units)), sizes)
        # A unit has copies if one of its rows has a gap.
        copied = np.bincount(whose, weights=gaps, minlength=len(units)) > 0
        # Fewer copies of units with many rows, by their own number: the rounding error of a sum is planned for that
        # many rows of a unit, whatever the number of units.
        times = np.where(copied, np.clip(MOST_COPIES // sizes, 1, self.copies), 1)
        by_row = times[whose]
        first = np.cumsum(by_row) - by_row
        many = np.repeat(rows, by_row, axis=0)
        ends = np.concatenate([[0], np.cumsum(sizes * times)]).astype(np.int64)
        single = units.offsets is None and self.copies == 1
        result, filled = Units(many, None if single else ends), many.copy()
        at = np.flatnonzero(gaps)
        widest = max(self.model.components, *(each.shape[1] for each in self._allowed.values()))
        step = max(1, _COMPARED // (8 * widest * self.copies))
        for start in range(0, len(at), step):
            some = at[start : start + step]
            places = first[some][:, None] + np.arange(self.copies)
            exists = np.arange(self.copies) < by_row[some][:, None]
            for name, values in self._drawn(rows[some], draws[whose[some]]).items():
                column = self.read.index(name)
                gone = np.isnan(rows[some, column])[:, None] & exists
                filled[places[gone], column] = values[gone]
        return result, filled

    def _drawn(self, rows: Floats, draws: Floats) -> dict[str, Floats]:
        """Values of the wanted columns for rows with a gap, each of shape (rows, D).

        Parameters
        ----------
        rows : array of shape (rows, columns)
            The rows.
        draws : array of shape (rows,)
            The number of each row's unit.
        """
        weights = np.ones((len(rows), self.model.components))
        for at, name in enumerate(self.read):
            if name not in self.model.columns:
                continue
            column, there = self.model.columns[name], ~np.isnan(rows[:, at])
            category = column.category(np.where(there, rows[:, at], 0.0), self._positions.get(name, ()))
            factor = np.maximum(column.probabilities.T, _LEAST)[category]
            other = np.sum(self._allowed[name], axis=1) if name in self.wanted else 1.0
            weights *= np.where(there[:, None], factor, other)
            # Scaled by the largest: products of many columns would be 0 in doubles.
            weights /= np.max(weights, axis=1, keepdims=True)
        # [rows, components]; sums in the order of the components.
        component, _ = _chosen(np.cumsum(weights, axis=1)[:, None, :], _uniforms(draws, 0, self.copies))
        found = {}
        for at, name in enumerate(self.wanted):
            rising = np.cumsum(self._allowed[name], axis=1)
            category, place = _chosen(rising[component], _uniforms(draws, at + 1, self.copies))
            # A category of a study's column is the position of its level.
            found[name] = (
                category.astype(np.float64) if name in self.levels else self.model.columns[name].within(category, place)
            )
        return found


def _chosen(rising: Floats, uniforms: Floats) -> tuple[NDArray[np.intp], Floats]:
    """The category by the inverse distribution function, and the place of the number within its part, 0 to 1.

    Parameters
    ----------
    rising : array of shape (rows, copies or 1, categories)
        Cumulative weights.
    uniforms : array of shape (rows, copies)
        Numbers in [0, 1).
    """
    wanted = uniforms * rising[:, :, -1]
    category = np.minimum(np.sum(rising <= wanted[:, :, None], axis=2), rising.shape[2] - 1)
    parts = np.broadcast_to(rising, (*category.shape, rising.shape[2]))
    end = np.take_along_axis(parts, category[:, :, None], axis=2)[:, :, 0]
    begin = np.where(
        category > 0, np.take_along_axis(parts, np.maximum(category - 1, 0)[:, :, None], axis=2)[:, :, 0], 0
    )
    place = np.divide(wanted - begin, end - begin, out=np.zeros_like(wanted), where=end > begin)
    return category, np.clip(place, 0.0, 1.0)


def _uniforms(draws: Floats, purpose: int, copies: int) -> Floats:
    """For each unit D numbers in [0, 1), one in each of D equal parts; shape (units, D).

    Parameters
    ----------
    draws : array of shape (units,)
        The number of each unit, a multiple of 2^-53.
    purpose : int
        0 for the component, j for the j-th column: each has an order of the parts and a place of its own.
    copies : int
        D.

    >>> (np.sort(_uniforms(np.array([0.25]), 1, 4)) * 4).astype(int).tolist()
    [[0, 1, 2, 3]]
    """
    bits = (draws * 2.0**53).astype(np.uint64)
    place = (_mixed(bits + _constant(2 * purpose + 1)) >> np.uint64(11)).astype(np.float64) / 2.0**53
    # A public order of the parts, turned by a number of the unit: so all pairs of parts of two purposes occur alike.
    order = np.argsort(_mixed(np.arange(copies, dtype=np.uint64) + _constant((purpose + 1) << 20)), kind="stable")
    turn = (_mixed(bits + _constant(2 * purpose + 2)) % np.uint64(copies)).astype(np.intp)
    part = (order + turn[:, None]) % copies
    return np.asarray((part + place[:, None]) / copies)


def _constant(count: int) -> NDArray[np.uint64]:
    """A multiple of SplitMix64's constant, modulo 2^64."""
    return np.array([count * _GOLDEN % 2**64], dtype=np.uint64)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64: a bijection of 64 bits in exact arithmetic modulo 2^64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(bits ^ (bits >> np.uint64(31)))
