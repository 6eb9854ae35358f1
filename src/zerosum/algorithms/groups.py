"""Base class of descriptive algorithms: public ranges and levels of columns, groups, and rules for missing values.

Statistics of groups release one block of sums per group (g groups). Rows of results are all units first, which is the
sum of the blocks, and then each group. The noise variance of all units is therefore g times that of a group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import MissingAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.missing import OBSERVED, OWN_ROWS, Rule, is_number
from zerosum.kernel.quantity import Axis
from zerosum.kernel.statistic import LARGEST, Adjacency
from zerosum.statistics.groups import FREE_SECOND, GroupedMoments

Level = bool | float | str
ALL = "all"


class GroupedAlgorithm(MissingAlgorithm):
    """An algorithm on columns of numbers with public `ranges` and on columns of categories with public `levels`.

    With `by`, the name of a column of categories, results are for all units and for each of its groups.

    Parameters
    ----------
    ranges : dict
        Public lowest and highest value of each column of numbers.
    levels : dict
        Public categories of each column of categories, in the order of results.
    by : str, optional
        Column of groups; it must have levels.
    """

    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    levels: dict[str, tuple[Level, ...]] = Field(default_factory=dict)
    by: str | None = None

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "the observed rows of each unit are counted with missing = 'observed': use that rule"
    }

    @model_validator(mode="after")
    def _declared(self) -> Self:
        """Refuse columns without a public domain, levels that are not distinct, and rules that do not fit their
        column.
        """
        check_domains(self.columns, self.ranges, self.levels)
        for name in self.described:
            if len(self.levels[name]) < 2:
                raise ValueError(f"column {name!r} needs two levels or more for proportions, and has one")
        if self.by is not None and self.by not in self.levels:
            raise ValueError(f"by = {self.by!r} names a column without levels: declare its levels")
        for name, rule in self.rules.items():
            if rule != OBSERVED and not self._is_value(name, rule):
                raise ValueError(
                    f"missing of column {name!r} must be one of its levels or 'observed', got {rule!r}"
                    if name in self.levels
                    else f"missing of column {name!r} must be a number or 'observed', got {rule!r}"
                )
        return self

    def _is_value(self, name: str, rule: Rule) -> bool:
        """Whether a rule for missing values is a level, or a number, that the column may hold.

        Parameters
        ----------
        name : str
            The column.
        rule : object
            The rule given for it.
        """
        return rule in self.levels[name] if name in self.levels else is_number(rule) and abs(float(rule)) <= LARGEST

    def fills(self, rule: Rule) -> bool:
        """Any value but the two rules; `_declared` checks the value against its column."""
        return rule not in (OBSERVED, OWN_ROWS)

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        """The levels of each column of categories, the column of groups included."""
        return {name: known for name, known in self.levels.items() if name in self.columns}

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers, in order."""
        return tuple(name for name in self.columns if name in self.ranges)

    @property
    def described(self) -> tuple[str, ...]:
        """The columns of categories, in order, without the column of groups."""
        return tuple(name for name in self.columns if name in self.levels and name != self.by)

    @property
    def groups(self) -> int:
        """g, the number of groups; 1 without `by`."""
        return 1 if self.by is None else len(self.levels[self.by])

    @property
    def layout(self) -> dict[str, Any]:
        """The parameters that statistics of these columns share."""
        fill = tuple(self._fill(name) for name in self.columns) if self.rules else ()
        at = None if self.by is None else self.columns.index(self.by)
        return {"columns": len(self.columns), "group": at, "groups": self.groups, "fill": fill}

    def _fill(self, name: str) -> float | None:
        """The number that a missing value of a column counts as; None if missing values are left out."""
        # statistics know categories by their positions
        rule = self.rules.get(name)
        if rule is None or rule == OBSERVED:
            return None
        return float(self.levels[name].index(rule) if name in self.levels else rule)

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Positions of columns in a row.

        Parameters
        ----------
        names : sequence of str
            Some of the columns.
        """
        return tuple(self.columns.index(name) for name in names)

    def moments(self, adjacency: Adjacency) -> GroupedMoments:
        """The statistic of means and standard deviations.

        For one group under replace-one, counts and squares get the largest weights that do not raise the sensitivity.
        """
        # With several groups, or add/remove neighbours, the squared sensitivity grows with the squares of both weights:
        # a larger weight gives counts or squares less noise, and means more. Chosen by hand; no benchmark recorded.
        second, count = math.sqrt(0.5), math.sqrt(0.5)
        if self.groups == 1 and adjacency is Adjacency.REPLACE_ONE:
            second, count = FREE_SECOND, math.sqrt(3 - FREE_SECOND**2)
        low, high = np.array([self.ranges[name] for name in self.numbers]).T
        return GroupedMoments(
            **self.layout,
            positions=self.positions(self.numbers),
            lower=low,
            upper=high,
            count_weight=count,
            second_weight=second,
        )

    def is_whole(self, name: str) -> bool:
        """Whether every unit counts in a column: no value can be missing in it or in the column of groups."""
        return OBSERVED not in (self.rules.get(name), self.rules.get(self.by or ""))

    @property
    def group_axis(self) -> Axis:
        """All units, then each group."""
        # without `by` the axis has one entry, so that results have the same axes with and without groups
        own = () if self.by is None else tuple(f"{self.by} = {shown(level)}" for level in self.levels[self.by])
        return Axis("group", (ALL, *own))

    @property
    def difference_axis(self) -> Axis:
        """Every group but the first, which is the reference of the differences."""
        first, *others = self.levels[self.by or ""]
        return Axis("difference", tuple(f"{shown(each)} - {shown(first)}" for each in others))

    def with_all(self, by_group: Floats, axis: int = 0) -> Floats:
        """Sums by group, preceded by the sum over all groups.

        Parameters
        ----------
        by_group : array
            Sums with g entries along `axis`.
        axis : int
            The axis of groups. Without `by` nothing is added: the only group is all units.
        """
        if self.by is None:
            return by_group
        return np.concatenate([np.sum(by_group, axis=axis, keepdims=True), by_group], axis=axis)

    @property
    def noise_factors(self) -> Floats:
        """Noise variance of each row of `with_all`, over that of a group's sum: a sum over g groups has g times it."""
        return np.array([1.0] if self.by is None else [float(self.groups), *[1.0] * self.groups])


def check_domains(
    columns: Sequence[str], ranges: Mapping[str, tuple[float, float]], levels: Mapping[str, tuple[Level, ...]]
) -> None:
    """Raise `ValueError` unless every column has either a range or levels, and these are sound.

    Parameters
    ----------
    columns : sequence of str
        The columns of the study.
    ranges : mapping of str to tuple
        Public lowest and highest value of columns of numbers.
    levels : mapping of str to tuple
        Public categories of the other columns.
    """
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise ValueError(f"columns must have different names, and {twice!r} occurs twice: leave one out")
    for name in columns:
        if (name in ranges) == (name in levels):
            answer = "both" if name in ranges else "neither"
            raise ValueError(f"column {name!r} needs either a range (numbers) or levels (categories), got {answer}")
    for name in (*ranges, *levels):
        if name not in columns:
            what = "ranges" if name in ranges else "levels"
            raise ValueError(f"{what} names {name!r}, which is not one of the columns {', '.join(columns)}")
    for name, (low, high) in ranges.items():
        # written with <= and `not`, so that NaN is refused too
        if not (abs(low) <= LARGEST and abs(high) <= LARGEST and low < high):
            raise ValueError(f"the range of column {name!r} must be finite and rise, got {low:g} to {high:g}")
    for name, known in levels.items():
        if not all(isinstance(level, str) or np.isfinite(level) for level in known):
            raise ValueError(f"the levels of column {name!r} must be words or finite numbers, got {list(known)}")
        if not known or len(set(known)) < len(known):
            raise ValueError(
                f"the levels of column {name!r} must be different from each other, and at least one, got {list(known)}"
            )


def shown(level: Level) -> str:
    """A level as it is called in results.

    >>> shown(1.0), shown("f"), shown(2.5), shown(True), shown(1234567.0)
    ('1', 'f', '2.5', 'True', '1234567')
    """
    # floats beyond 1e15 do not hold every whole number: they are shown as they are
    return str(int(level)) if isinstance(level, float) and level.is_integer() and abs(level) < 1e15 else str(level)
