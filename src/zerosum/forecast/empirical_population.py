"""Populations for forecasts: base class, and resampling of a public file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.errors import BadParameter
from zerosum.forecast.assumptions import Assumptions

MAX_ELEMENTS = 10**8  # Largest number of matrix elements of synthetic data. Chosen by hand; no benchmark recorded.
_HOLD_OUT_EVERY = (
    4  # Every fourth unit of a public file is held out for evaluation. Chosen by hand; no benchmark recorded.
)


class Population(ABC):
    """A population from which samples of a study's units are drawn."""

    used_assumptions: frozenset[str] = frozenset()  # fields of `Assumptions` in use, beside columns
    truth: Floats | None = None  # reference: true centres, maps or topics, or held-out rows
    description: str = ""  # description of the assumptions, for messages

    @property
    @abstractmethod
    def numbers_each(self) -> int:
        """Number of matrix elements per unit."""

    @abstractmethod
    def people(self, count: int, rng: np.random.Generator) -> Units:
        """Draw a sample of `count` units, in the form that the study's statistics take."""


class EmpiricalPopulation(Population):
    """Units of a public file, drawn with replacement, each with all its rows.

    With `hold_out`, for classifiers, every fourth unit is held out for evaluation."""

    def __init__(self, units: Units, design: Design | None, *, hold_out: bool = False) -> None:
        self.design, self.units = design, units
        self.description = f"{len(units)} public people, drawn with replacement"
        if hold_out:
            judges = np.arange(len(units)) % _HOLD_OUT_EVERY == _HOLD_OUT_EVERY - 1
            if not np.any(judges):
                raise BadParameter(
                    f"every fourth person of a public file evaluates a classifier: give at least {_HOLD_OUT_EVERY}"
                )
            self.units, judging = units.chosen(~judges), units.chosen(judges)
            self.truth = np.asarray(judging.dense().rows, dtype=np.float64)
            self.description += ", except every fourth, held out for evaluation"

    @property
    def numbers_each(self) -> int:
        """Mean number of matrix elements per unit, at least one row."""
        return max(int(self.units.rows.shape[0]) // max(len(self.units), 1), 1) * self.units.columns

    def people(self, count: int, rng: np.random.Generator) -> Units:
        """Draw with replacement, and apply the design."""
        # With replacement, so that samples of any size can be drawn, and each differs as samples of a population do.
        units = select_units(self.units, rng.integers(len(self.units), size=count))
        return (
            units
            if self.design is None
            else Units(expand_design(np.asarray(units.rows, dtype=np.float64), self.design))
        )


def select_units(units: Units, places: NDArray[np.int64]) -> Units:
    """Units at these indices, in this order.

    Parameters
    ----------
    units : Units
        Units of one row, of several rows, or of several recordings each.
    places : array of shape (count,)
        Indices of units, which may repeat.
    """
    if units.offsets is None:
        return Units(units.rows[places])
    if units.runs is None:
        tables = list(units.each())
        return Units.from_list([tables[at] for at in places])
    held = list(units.recordings())
    steps = [[step or 1.0 for _rows, step in held[at]] for at in places]
    return Units.from_runs([[np.asarray(rows) for rows, _step in held[at]] for at in places], steps)


def expand_design(rows: Floats, design: Design) -> Floats:
    """Rows expanded by a design. If sites have effects, the rows are divided equally among the sites."""
    sites = design.sites if design.site_effects and design.sites else ("",)
    # Site effects are columns of the design, so every row needs a site. Which rows belong to which site does not matter
    # for synthetic people.
    ends = np.linspace(0, len(rows), len(sites) + 1).astype(int)
    parts = [Units(rows[a:b]) for a, b in pairwise(ends)]
    return np.vstack([np.asarray(design.expand(part, site).rows) for part, site in zip(parts, sites, strict=True)])


def refuse_columns(assumptions: Assumptions, why: str) -> None:
    """Raise `BadParameter` for guesses about columns that the population does not use."""
    if assumptions.columns:
        raise BadParameter(
            f"{why}, and guesses about columns would have no effect: leave them out, or draw from a file"
        )
