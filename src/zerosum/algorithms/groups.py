"""What descriptions share: public ranges and levels of columns, a column of groups, and rules for missing values.

Tested in tests/algorithms/test_describe.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import MissingAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.missing import OBSERVED, OWN_ROWS, Rule, is_number
from zerosum.kernel.quantity import Axis
from zerosum.kernel.statistic import LARGEST

Level = bool | float | str
ALL = "all"


class GroupedAlgorithm(MissingAlgorithm):
    """An algorithm on columns of numbers with public `ranges` and columns of public categories, their `levels`; by the
    categories of the column `by`, where that is given."""

    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    by: str | None = None

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "a unit counts by its own rows that are there if missing is 'observed': say that instead"
    }

    @model_validator(mode="after")
    def _declared(self) -> Self:
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("two columns have the same name")
        for name in self.columns:
            if (name in self.ranges) == (name in self.levels):
                raise ValueError(f"declare either a range or the levels of column {name!r}")
        for name in (*self.ranges, *self.levels):
            if name not in self.columns:
                raise ValueError(f"{name!r} is declared, and is not one of the columns")
        for name, (low, high) in self.ranges.items():
            if not (abs(low) <= LARGEST and abs(high) <= LARGEST and low < high):  # fails on what is not a number
                raise ValueError(f"the range of column {name!r} must be two finite numbers that rise")
        for name, known in self.levels.items():
            if not all(isinstance(level, str) or np.isfinite(level) for level in known):
                raise ValueError(f"the levels of column {name!r} must be words or finite numbers")
            if not known or len(set(known)) < len(known):
                raise ValueError(f"the levels of column {name!r} must be different from each other, and at least one")
        for name in self.described:
            if len(self.levels[name]) < 2:
                raise ValueError(f"column {name!r} needs two levels or more, to have proportions")
        if self.by is not None and self.by not in self.levels:
            raise ValueError(f"groups are by {self.by!r}, whose levels must be declared")
        for name, rule in self.rules.items():
            if rule != OBSERVED and not self._is_value(name, rule):
                raise ValueError(
                    f"what is missing in column {name!r} can be counted as one of its levels only, or as 'observed'"
                    if name in self.levels
                    else f"what is missing in column {name!r} can be a number or 'observed'"
                )
        return self

    def _is_value(self, name: str, rule: Rule) -> bool:
        return rule in self.levels[name] if name in self.levels else is_number(rule) and abs(float(rule)) <= LARGEST

    def fills(self, rule: Rule) -> bool:
        """By the column, which `_declared` looks at."""
        return rule not in (OBSERVED, OWN_ROWS)

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        return {name: known for name, known in self.levels.items() if name in self.columns}

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers, in order."""
        return tuple(name for name in self.columns if name in self.ranges)

    @property
    def described(self) -> tuple[str, ...]:
        """The columns of categories, in order, but for that of the groups."""
        return tuple(name for name in self.columns if name in self.levels and name != self.by)

    @property
    def groups(self) -> int:
        return 1 if self.by is None else len(self.levels[self.by])

    @property
    def layout(self) -> dict[str, Any]:
        """The parameters that statistics of these columns share."""
        fill = tuple(self._fill(name) for name in self.columns) if self.rules else ()
        at = None if self.by is None else self.columns.index(self.by)
        return {"columns": len(self.columns), "group": at, "groups": self.groups, "fill": fill}

    def _fill(self, name: str) -> float | None:
        rule = self.rules.get(name)
        if rule is None or rule == OBSERVED:
            return None
        return float(self.levels[name].index(rule) if name in self.levels else rule)

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.columns.index(name) for name in names)

    def is_whole(self, name: str) -> bool:
        """Whether every unit counts in a column: nothing can be missing there, or in the column of groups."""
        return OBSERVED not in (self.rules.get(name), self.rules.get(self.by or ""))

    @property
    def group_axis(self) -> Axis:
        """Everybody, then each group."""
        own = () if self.by is None else tuple(f"{self.by} = {shown(level)}" for level in self.levels[self.by])
        return Axis("group", (ALL, *own))

    @property
    def difference_axis(self) -> Axis:
        """Every group but the first, which the others are compared to."""
        first, *others = self.levels[self.by or ""]
        return Axis("difference", tuple(f"{shown(each)} - {shown(first)}" for each in others))

    def with_all(self, by_group: Floats, axis: int = 0) -> Floats:
        """Sums by group with those of everybody put first."""
        if self.by is None:
            return by_group
        return np.concatenate([np.sum(by_group, axis=axis, keepdims=True), by_group], axis=axis)

    @property
    def noise_factors(self) -> Floats:
        """How much more noise a row of `with_all` has than a group's sum, as a factor of the variance."""
        return np.array([1.0] if self.by is None else [float(self.groups), *[1.0] * self.groups])


def shown(level: Level) -> str:
    """A level as it is called in results.

    >>> shown(1.0), shown("f"), shown(2.5), shown(True), shown(1234567.0)
    ('1', 'f', '2.5', 'True', '1234567')
    """
    return str(int(level)) if isinstance(level, float) and level.is_integer() and abs(level) < 1e15 else str(level)
