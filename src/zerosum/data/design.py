"""The design of a regression: from a table's columns to numbers that enter it, row by row, by public rules alone.

A categorical column becomes one column of 0 or 1 for each public level but the first, which is the reference. An
interaction is the product of its parts. A site effect is 1 at its site: the first site on the roster is the reference.
What a row becomes depends on that row and on public values, so a design costs nothing.

Tested in tests/data/test_design.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from zerosum.arrays import Floats
from zerosum.errors import BadData
from zerosum.kernel.units import Units

Level = str | float | bool
Range = tuple[float, float]


class Design(BaseModel):
    """Which columns explain a response, and how they enter.

    Parameters
    ----------
    response : str
        The column to be explained.
    ranges : dict of str to (float, float)
        The public range of every numeric feature, and of the response where it is numeric.
    levels : dict of str to list
        The public levels of every categorical feature, the reference first. A response with two levels is a class.
    interactions : list of lists of str
        Features whose product enters too.
    site_effects : bool
        Whether every site but the first has a constant of its own.
    ordinary : dict of str to (float, float)
        Of numeric features an ordinary value and an ordinary deviation from it, where that is public knowledge: it
        saves budget. The others are then taken by the middle and half of their ranges.
    missing : dict of str to number or level
        What is taken where a value is missing, by column. Missing values of other columns are refused.

    Examples
    --------
    >>> design = Design(response="sick", ranges={"age": (0, 100)}, levels={"sex": ["f", "m"], "sick": [0, 1]},
    ...                 interactions=[["age", "sex"]])
    >>> design.columns
    ('age', 'sex=m', 'age:sex=m', 'sick')
    >>> design.upper.tolist()
    [100.0, 1.0, 100.0, 1.0]
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    response: str
    ranges: dict[str, Range] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    interactions: tuple[tuple[str, ...], ...] = ()
    site_effects: bool = False
    ordinary: dict[str, tuple[float, float]] = Field(default_factory=dict)
    missing: dict[str, Level] = Field(default_factory=dict)
    sites: tuple[str, ...] = ()  # the roster, where there are site effects

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if both := sorted(self.ranges.keys() & self.levels.keys()):
            raise ValueError(f"{both[0]!r} has a range and levels: a column is numeric or categorical")
        if self.response not in self.ranges and self.response not in self.levels:
            raise ValueError(f"the response {self.response!r} needs a public range, or two levels")
        if len(self.levels.get(self.response, (0, 1))) != 2:
            raise ValueError("a categorical response must have two levels")
        for name, (low, high) in self.ranges.items():
            if not low < high:
                raise ValueError(f"the range of {name!r} must be two numbers, the lower one first")
        for name, levels in self.levels.items():
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise ValueError(f"the levels of {name!r} must be at least two, all different")
        for name, (_value, deviation) in self.ordinary.items():
            if name not in self.ranges or name == self.response or not deviation > 0:
                raise ValueError(f"ordinary values are of numeric features, with a positive deviation: not so {name!r}")
        if self.response in self.missing:
            raise ValueError("what is taken for a missing value cannot be the response's: outcomes are not invented")
        if len({frozenset(parts) for parts in self.interactions}) < len(self.interactions):
            raise ValueError("two interactions are the same")
        for name, value in self.missing.items():
            if name in self.levels and value not in self.levels[name]:
                raise ValueError(f"what is taken for a missing {name!r} must be one of its levels")
            if name not in self.levels and (name not in self.ranges or isinstance(value, str | bool)):
                raise ValueError(f"what is taken for a missing {name!r} must be a number, of a column with a range")
        for parts in self.interactions:
            if len(parts) < 2 or len(set(parts)) < len(parts) or not set(parts) <= set(self.features):
                raise ValueError(f"the interaction {':'.join(parts)} must name two or more features")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that explain, as they stand in the table."""
        return tuple(name for name in (*self.ranges, *self.levels) if name != self.response)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns to read, the response last."""
        return (*self.features, self.response)

    @property
    def columns(self) -> tuple[str, ...]:
        """What each column that enters is called, the response last."""
        return (*(name for name, _low, _high in self._terms()), self.response)

    @property
    def lower(self) -> Floats:
        return np.array([low for _name, low, _high in self._terms()] + [self._own_range(self.response)[0]])

    @property
    def upper(self) -> Floats:
        return np.array([high for _name, _low, high in self._terms()] + [self._own_range(self.response)[1]])

    @property
    def center(self) -> Floats:
        return np.array([self._ordinary(*term)[0] for term in self._terms()])

    @property
    def scale(self) -> Floats:
        return np.array([self._ordinary(*term)[1] for term in self._terms()])

    def _ordinary(self, name: str, low: float, high: float) -> tuple[float, float]:
        return self.ordinary.get(name, ((low + high) / 2, (high - low) / 2))

    @property
    def reference(self) -> dict[str, str]:
        """For every categorical feature, and for sites, what the others are compared with."""
        known = {name: str(levels[0]) for name, levels in self.levels.items() if name != self.response}
        return known | ({"site": self.sites[0]} if self.site_effects and self.sites else {})

    def _own_range(self, name: str) -> Range:
        return self.ranges.get(name, (0.0, 1.0))

    def _own_terms(self, name: str) -> list[tuple[str, float, float]]:
        """What one column becomes: names and ranges."""
        if name in self.ranges:
            return [(name, *self.ranges[name])]
        return [(f"{name}={level}", 0.0, 1.0) for level in self.levels[name][1:]]

    def _terms(self) -> list[tuple[str, float, float]]:
        found = [term for name in self.features for term in self._own_terms(name)]
        for parts in self.interactions:
            for terms in itertools.product(*(self._own_terms(name) for name in parts)):
                low, high = 1.0, 1.0
                for _name, a, b in terms:
                    corners = [low * a, low * b, high * a, high * b]
                    low, high = min(corners), max(corners)
                found.append((":".join(term[0] for term in terms), low, high))
        effects = [(f"site={site}", 0.0, 1.0) for site in self.sites[1:]] if self.site_effects else []
        return [*found, *effects]

    def expand(self, units: Units, site: str) -> Units:
        """Rows of `read` (categories as their index) as they enter, at this site."""
        rows = np.asarray(units.rows, dtype=np.float64)
        if rows.shape[1] != len(self.read):
            raise BadData(f"the data do not have the {len(self.read)} columns of the design")
        rows = np.column_stack([self._filled(name, rows[:, at]) for at, name in enumerate(self.read)])
        for at, name in enumerate(self.read):
            known = len(self.levels[name]) if name in self.levels else None
            sound = np.isfinite(rows[:, at]) if known is None else np.isin(rows[:, at], np.arange(known))
            if not np.all(sound):
                raise BadData(f"some values of {name!r} are missing without a rule, or none of its levels")
        own = {name: self._own_columns(name, rows[:, at]) for at, name in enumerate(self.features)}
        parts = [column for name in self.features for column in own[name]]
        for names in self.interactions:
            for columns in itertools.product(*(own[name] for name in names)):
                parts.append(np.prod(columns, axis=0))
        if self.site_effects:
            parts += [np.full(len(rows), float(site == other)) for other in self.sites[1:]]
        return replace(units, rows=np.column_stack([*parts, rows[:, -1]]))

    def _filled(self, name: str, values: Floats) -> Floats:
        if name not in self.missing:
            return values
        value = self.missing[name]
        taken = self.levels[name].index(value) if name in self.levels else value
        return np.where(np.isnan(values), float(taken), values)

    def _own_columns(self, name: str, values: Floats) -> list[Floats]:
        if name in self.ranges:
            low, high = self.ranges[name]
            return [np.clip(values, low, high)]  # before products are formed, so that their ranges hold
        return [(values == index).astype(np.float64) for index in range(1, len(self.levels[name]))]

    def for_sites(self, sites: Sequence[str]) -> Self:
        """This design for a roster."""
        return self.model_copy(update={"sites": tuple(sites)})
