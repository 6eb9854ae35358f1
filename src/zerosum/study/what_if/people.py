"""Where a study's people come from in a forecast: what every world has, and people in a public file.

Tested in tests/study/test_what_if.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.data.design import Design
from zerosum.errors import BadParameter
from zerosum.kernel.units import Units
from zerosum.study.what_if.guesses import Guesses

NUMBERS = 10**8  # of made-up data, at most
_JUDGES = 4  # of the people in a public file every fourth judges, and is not drawn


class World(ABC):
    """Where a study's people come from."""

    hears: frozenset[str] = frozenset()  # guesses that count, beside those about columns
    truth: Floats | None = None  # what a result is held against: centres, maps, topics, or people who judge
    says: str = ""  # what was taken for granted

    @property
    @abstractmethod
    def numbers_each(self) -> int:
        """How many numbers one person's data hold."""

    @abstractmethod
    def people(self, count: int, rng: np.random.Generator) -> Units:
        """A sample of so many, as the study's statistics take them."""


class Public(World):
    """People in a public file, drawn with replacement, each with all its rows. Where a classifier is to be judged,
    every fourth of them judges and is not drawn."""

    def __init__(self, units: Units, design: Design | None, *, judged: bool = False) -> None:
        self.design, self.units = design, units
        self.says = f"{len(units)} public people, drawn with replacement"
        if judged:
            judges = np.arange(len(units)) % _JUDGES == _JUDGES - 1
            if not np.any(judges):
                raise BadParameter(f"every fourth person in a public file judges a classifier: give {_JUDGES} at least")
            self.units, judging = units.chosen(~judges), units.chosen(judges)
            self.truth = np.asarray(judging.dense().rows, dtype=np.float64)
            self.says += ", but for every fourth, who judge"

    @property
    def numbers_each(self) -> int:
        return max(int(self.units.rows.shape[0]) // max(len(self.units), 1), 1) * self.units.columns

    def people(self, count: int, rng: np.random.Generator) -> Units:
        found = taken(self.units, rng.integers(len(self.units), size=count))
        return found if self.design is None else Units(expanded(np.asarray(found.rows, dtype=np.float64), self.design))


def taken(units: Units, places: NDArray[np.int64]) -> Units:
    """The units at these places, in this order; one may be taken more than once."""
    if units.offsets is None:
        return Units(units.rows[places])
    if units.runs is None:
        tables = list(units.each())
        return Units.from_list([tables[at] for at in places])
    held = list(units.recordings())
    steps = [[step or 1.0 for _rows, step in held[at]] for at in places]
    return Units.from_runs([[np.asarray(rows) for rows, _step in held[at]] for at in places], steps)


def expanded(rows: Floats, design: Design) -> Floats:
    """Rows as a design reads them, as they enter: shared out among the sites, where these have effects."""
    sites = design.sites if design.site_effects and design.sites else ("",)
    ends = np.linspace(0, len(rows), len(sites) + 1).astype(int)
    parts = [Units(rows[a:b]) for a, b in pairwise(ends)]
    return np.vstack([np.asarray(design.expand(part, site).rows) for part, site in zip(parts, sites, strict=True)])


def no_columns(guesses: Guesses, why: str) -> None:
    """Refuse guesses that would not be heard."""
    if guesses.columns:
        raise BadParameter(f"{why}, and guesses about columns would not count: leave them out, or draw from a file")
