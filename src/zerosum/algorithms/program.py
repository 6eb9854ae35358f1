"""What a program is: public parameters, the requests it will make, and the generator that makes them.

Tested in tests/algorithms/test_programs.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zerosum.arrays import Floats
from zerosum.errors import BadParameter, first_fault
from zerosum.kernel.missing import OBSERVED, OWN_ROWS, RULES, Rule, is_number, rules_by_column
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.statistic import LARGEST, Adjacency, FloatArray
from zerosum.kernel.terms import PlannedRelease
from zerosum.kernel.units import Units

Estimate = Mapping[str, Quantity]
Program = Generator[Request, Release, Estimate]


@dataclass(frozen=True)
class PublicFacts:
    """What is public before a study runs."""

    noise: float  # standard deviation of a released sum of sensitivity 1, if one release took the whole budget
    units: int | None  # how many units take part in all, where that is public
    published: float | None = None  # the same of a publication of sensitivity 1, whose noise nobody shares


class Algorithm(BaseModel, ABC):
    """A family of programs. Fields are its public parameters; unknown ones are refused.

    `requests` lists a template of every request `program` will yield, in order: the same statistic, size,
    sensitivity and share, whatever the data turn out to be. A phase of sub-sampled sums has one template.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]
    rows_of_a_unit: ClassVar[int] = 1  # how many it takes to say something; an audit makes units of so many

    columns: tuple[str, ...] = Field(min_length=1)
    """The columns to read, in this order; with `[imaging]`, `[design]` or a vocabulary they follow from it."""

    def __init__(self, /, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise BadParameter(f"algorithm {self.name!r}: {first_fault(error)}") from None

    @abstractmethod
    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """What will be asked for, before anything runs."""

    @abstractmethod
    def program(self, adjacency: Adjacency) -> Program:
        """The generator: yields requests, receives releases, returns the estimate. No input or output, no noise."""

    def resolve(self, facts: PublicFacts) -> Self:
        """This algorithm with everything it leaves to the planner chosen, from public facts alone.

        The same facts give the same choice, and what is settled stays as it is.
        """
        return self

    @property
    def describe(self) -> str:
        """What a plan cannot show by itself about how this will run; nothing unless there is something to say."""
        return ""

    @property
    def column_axis(self) -> Axis:
        """The axis along which an estimate has a place for every column."""
        return columns_axis(self.columns)

    @property
    def categories(self) -> dict[str, Sequence[str | float | bool]]:
        """Columns that hold public categories rather than numbers."""
        return {}

    @property
    def rules(self) -> dict[str, Rule]:
        """The columns in which values may be missing, and what is done then; none unless the question says so."""
        return {}

    def check_missing(self, units: Units) -> None:
        """Tell the owner of the data, and nobody else, which column has missing values and no rule."""
        units.check()

    def releases(self, adjacency: Adjacency) -> tuple[PlannedRelease, ...]:
        """The plan's entries for `requests`."""
        return tuple(planned(request, adjacency) for request in self.requests(adjacency))


def planned(request: Request, adjacency: Adjacency) -> PlannedRelease:
    """What a plan says of a request; how far a unit is from none is the bound on its norm."""
    statistic = request.statistic
    return PlannedRelease(
        statistic.name,
        statistic.sensitivity(adjacency),
        request.share,
        statistic.size,
        statistic.sensitivity(Adjacency.ADD_REMOVE),
        statistic.columns,
        "publication" if isinstance(request, PrivatePublication) else "sum",
        request.sampling if isinstance(request, PrivateSum) else None,
    )


class MissingAlgorithm(Algorithm):
    """An algorithm that has rules for missing values: one for all columns, or one for each that may have some.

    A subclass says which of the words it knows, and why not the others.
    """

    missing: Rule | dict[str, Rule] | None = None
    """What is done where a value is missing, for all columns or by column: a value to take instead, `own-rows` or
    `observed`; by default missing values are refused."""
    words: ClassVar[Mapping[str, str]] = {}  # words that are not taken, and why

    @model_validator(mode="after")
    def _rules_known(self) -> Self:
        for rule in self.rules.values():
            if not self.fills(rule) and rule not in (OWN_ROWS, OBSERVED):
                raise ValueError(f"missing must be, for all columns or by the name of each, {RULES}")
            if not self.fills(rule) and rule in self.words:
                raise ValueError(self.words[str(rule)])
        return self

    @property
    def rules(self) -> dict[str, Rule]:
        return rules_by_column(self.missing, self.columns)

    def check_missing(self, units: Units) -> None:
        rules = self.rules
        allowed = [at for at, name in enumerate(self.columns) if name in rules]
        units.check(allowed, [f"column {name!r}" for name in self.columns])

    def fills(self, rule: Rule) -> bool:
        """Whether a rule is a value to take instead."""
        return is_number(rule) and abs(float(rule)) <= LARGEST


class RangedAlgorithm(MissingAlgorithm):
    """An algorithm on numeric columns with public ranges, or with a public bound on each row's L2 norm.

    With `lower` and `upper` the rows are clamped and mapped to [-1, 1] by column, and `clip` bounds the norm of what
    comes out (by default it cuts nothing off); without them `clip` bounds the rows as they are.
    """

    lower: FloatArray | None = None
    """Public ranges, with `upper`: values are clamped to them and mapped to [-1, 1], column by column."""
    upper: FloatArray | None = None
    """See `lower`."""
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Bound on the L2 norm of a row after that, by default the square root of the number of columns; required
    without ranges, and then in the data's own units."""

    words: ClassVar[Mapping[str, str]] = {
        OBSERVED: "missing cannot be 'observed' where a row's values are needed together: give a number or 'own-rows'"
    }

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.lower is None) != (self.upper is None):
            raise ValueError("lower and upper belong together")
        if any(bound is not None and bound.shape != (len(self.columns),) for bound in (self.lower, self.upper)):
            raise ValueError(f"lower and upper must hold one number for each of the {len(self.columns)} columns")
        if self.clip is None and self.lower is None:
            raise ValueError("give public ranges (lower and upper) or a clip, since data must not set their own bounds")
        return self

    @property
    def bounds(self) -> dict[str, Any]:
        """The parameters every ranged statistic shares."""
        params: dict[str, Any] = {"columns": len(self.columns), "clip": self.radius}
        if self.lower is not None and self.upper is not None:
            params |= {"lower": self.lower, "upper": self.upper}
        return params | self.filling

    @property
    def filling(self) -> dict[str, Any]:
        """The parameters by which a statistic fills in missing values; a unit's own rows, then the public middle."""
        known = {name: rule for name, rule in self.rules.items() if rule != OBSERVED}
        if not known:
            return {}
        middle = dict(zip(self.columns, self.middle.tolist(), strict=True))
        fill = {name: middle[name] if rule == OWN_ROWS else float(rule) for name, rule in known.items()}
        own = tuple(at for at, name in enumerate(self.columns) if known.get(name) == OWN_ROWS)
        return {"fill": tuple(fill.get(name) for name in self.columns), "own_rows": own}

    @property
    def radius(self) -> float:
        return float(np.sqrt(len(self.columns))) if self.clip is None else self.clip

    @property
    def middle(self) -> Floats:
        if self.lower is None or self.upper is None:
            return np.zeros(len(self.columns))
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Floats:
        """What one normalised unit is worth in the units of the data, by column."""
        if self.lower is None or self.upper is None:
            return np.ones(len(self.columns))
        return (self.upper - self.lower) / 2
