"""Algorithms and their programs: public parameters, the planned requests, and the generator that makes them.

The generator protocol
----------------------
`Algorithm.program` returns a generator. It yields a `Request` (a private sum or a publication), receives the `Release`
with the noisy value, and returns the estimate. It has no access to data, files, network or noise, so one program runs
unchanged in the simulator, in tests and in a study over real sites. A program of two rounds looks like this:

    def program(self, adjacency):
        # First round. The release holds a noisy sum, its noise and the number of units (None under add/remove).
        release = yield PrivateSum(VectorSum(...), share=0.5)
        center = release.value / release.units
        # Second round. Its parameters may depend on earlier releases, because they are already public.
        release = yield PrivateSum(Scatter(..., center=center), share=0.5)
        return {"covariance": Quantity(release.value / release.units, "covariance")}

The caller drives it. `next` gives the first request, `send` passes a release and gives the next request, and the
estimate is the value of `StopIteration`:

    program = algorithm.program(adjacency)
    request = next(program)
    try:
        while True:
            request = program.send(answer(request))
    except StopIteration as stop:
        estimate = stop.value

Part of a program is a generator of its own, called by `yield from`; its return value is an intermediate result.

The plan is made before the data are read. `Algorithm.requests` therefore lists a template of each request: the same
statistic, size, sensitivity and share as the one that `program` will yield, with placeholder parameters. The privacy
cost follows from the templates alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from zerosum.algorithms.expectation import Expectation
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter, first_fault
from zerosum.kernel.missing import (
    MEANINGS,
    OBSERVED,
    OWN_ROWS,
    VALUE,
    Rule,
    is_number,
    rules_by_column,
    unknown_rule,
)
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.statistic import LARGEST, Adjacency, FloatArray
from zerosum.kernel.terms import Noise, PlannedRelease

Estimate = Mapping[str, Quantity]
# yields requests, receives releases, returns the estimate (see the module's docstring)
Program = Generator[Request, Release, Estimate]


@dataclass(frozen=True)
class PublicFacts:
    """Public facts about a study, from which the planner chooses what the study leaves open.

    A release of sensitivity D and share w of the budget has noise of standard deviation D noise/sqrt(w).
    """

    noise: float  # standard deviation of a released sum of sensitivity 1, if one release took the whole budget
    units: int | None  # total number of units; None if it is not public
    # as `noise`, for a publication of sensitivity 1: its noise is drawn by one site alone, without cancelling parts
    published: float | None = None


class Algorithm(BaseModel, ABC):
    """Base class of algorithms. Fields are the public parameters; unknown ones raise `BadParameter`.

    A subclass implements `requests` and `program`. `requests` returns a template of each request of `program`, in
    order, with the same statistic, size, sensitivity and share for any data. A phase of sub-sampled sums has one
    template.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]
    laplace: ClassVar[bool] = False  # whether its results are right for Laplace noise as well as for normal noise
    rows_of_a_unit: ClassVar[int] = 1  # rows of a unit in the synthetic data of an audit; the least with any effect

    columns: tuple[str, ...] = Field(min_length=1)
    """The columns to read, in this order; with `[imaging]`, `[design]` or a vocabulary they follow from it."""

    def __init__(self, /, **parameters: Any) -> None:
        """Validate the parameters. Errors of pydantic become `BadParameter` with the first fault."""
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise BadParameter(f"algorithm {self.name!r}: {first_fault(error)}") from None

    @abstractmethod
    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        """Templates of all requests, in order, from public parameters alone.

        Parameters
        ----------
        adjacency : Adjacency
            Under add-remove the number of units is private, and statistics that need it release a count, too.
        """

    @abstractmethod
    def program(self, adjacency: Adjacency) -> Program:
        """A new generator: yields requests, receives releases, returns the estimate. It makes no noise and no I/O.

        Parameters
        ----------
        adjacency : Adjacency
            As for `requests`. A site refuses a request with another statistic or size than planned, or a
            larger sensitivity.
        """

    def resolve(self, facts: PublicFacts) -> Self:
        """A copy in which all parameters that were left to the planner are set, from public facts alone.

        The result is a function of the facts and the fields; parameters that are given do not change.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units by the plan. Data must not decide: the planner and the process that runs the
            plan resolve independently and must agree.
        """
        return self

    def expectation(self, facts: PublicFacts) -> Expectation | None:
        """Expected correlation of the result with that without noise, from public facts alone; None if there is none.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units by the plan.
        """
        return None

    @property
    def describe(self) -> str:
        """One line for the plan about the chosen method; empty if the list of releases is enough."""
        return ""

    @property
    def column_axis(self) -> Axis:
        """The axis of estimates that have one entry per column."""
        return columns_axis(self.columns)

    @property
    def categories(self) -> dict[str, Sequence[str | float | bool]]:
        """Public categories by the name of each categorical column."""
        return {}

    @property
    def rules(self) -> dict[str, Rule]:
        """Rules for missing values by column; missing values in other columns are refused."""
        return {}

    @classmethod
    def rule_words(cls) -> tuple[str, ...]:
        """The rules for missing values that this algorithm has, for messages."""
        return ()

    def check_missing(self, units: Units) -> None:
        """Raise at the site if a column without a rule has missing values. The message stays at the site.

        Parameters
        ----------
        units : Units
            The data of one site.
        """
        units.check()

    def releases(self, adjacency: Adjacency, noise: Noise = "gaussian") -> tuple[PlannedRelease, ...]:
        """The plan's entries for `requests`, with Laplace noise for all of them or for none."""
        return tuple(planned(request, adjacency, noise) for request in self.requests(adjacency))


def planned(request: Request, adjacency: Adjacency, noise: Noise = "gaussian") -> PlannedRelease:
    """The plan's entry for a request.

    The sensitivity under add/remove bounds the norm of one unit's contribution; the plan needs it besides the
    sensitivity of its own adjacency.

    Parameters
    ----------
    request : Request
        A template or an actual request: both give the same entry.
    adjacency : Adjacency
        The neighbouring relation of the plan.
    noise : str
        The noise law; it decides the norm of both sensitivities.
    """
    statistic = request.statistic
    return PlannedRelease(
        statistic.name,
        statistic.distance(adjacency, noise),
        request.share,
        statistic.size,
        statistic.distance(Adjacency.ADD_REMOVE, noise),
        statistic.columns,
        "publication" if isinstance(request, PrivatePublication) else "sum",
        request.sampling if isinstance(request, PrivateSum) else None,
        noise,
    )


class MissingAlgorithm(Algorithm):
    """An algorithm with rules for missing values: one rule for all columns, or one by column.

    A subclass lists in `words` the rules that it does not support, with the message of the error.
    """

    missing: Rule | dict[str, Rule] | None = None
    """What is done where a value is missing, for all columns or by column: a value to take instead, `own-rows` or
    `observed`; by default missing values are refused."""
    words: ClassVar[Mapping[str, str]] = {}  # error message by unsupported rule

    @model_validator(mode="after")
    def _rules_known(self) -> Self:
        """Refuse rules that no statistic knows, and those that this algorithm does not support (`words`)."""
        for rule in self.rules.values():
            if not self.fills(rule) and rule not in (OWN_ROWS, OBSERVED):
                raise ValueError(unknown_rule(rule, self.rule_words()))
            if not self.fills(rule) and rule in self.words:
                raise ValueError(self.words[str(rule)])
        return self

    @property
    def rules(self) -> dict[str, Rule]:
        """The rule of each column that has one; a single rule applies to all columns."""
        return rules_by_column(self.missing, self.columns)

    @classmethod
    def rule_words(cls) -> tuple[str, ...]:
        """The rules that the algorithm does not exclude."""
        return VALUE, *(MEANINGS[rule] for rule in (OWN_ROWS, OBSERVED) if rule not in cls.words)

    def check_missing(self, units: Units) -> None:
        """As in `Algorithm`: NaN is allowed in columns with a rule only."""
        rules = self.rules
        allowed = [at for at, name in enumerate(self.columns) if name in rules]
        units.check(allowed, [f"column {name!r}" for name in self.columns], self.rule_words())

    def fills(self, rule: Rule) -> bool:
        """Whether a rule is a number that replaces missing values."""
        return is_number(rule) and abs(float(rule)) <= LARGEST


class RangedAlgorithm(MissingAlgorithm):
    """An algorithm on numeric columns with public ranges, or with a public bound on each row's L2 norm.

    With `lower` and `upper` each column is clamped to its range and mapped to [-1, 1], and `clip` bounds the norm of
    the mapped row; its default sqrt(columns) is the largest norm possible and has no effect. Without ranges `clip`
    bounds the norm of the rows in the units of the data.
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
        """Refuse an algorithm without bounds: the sensitivity would be infinite, or bounds would come from the data."""
        if (self.lower is None) != (self.upper is None):
            raise ValueError("lower and upper belong together")
        if any(bound is not None and bound.shape != (len(self.columns),) for bound in (self.lower, self.upper)):
            raise ValueError(f"lower and upper must hold one number for each of the {len(self.columns)} columns")
        # Equal ends are refused where a width is needed, with the reason.
        if self.lower is not None and self.upper is not None and np.any(self.lower > self.upper):
            at = int(np.argmax(self.lower > self.upper))
            raise ValueError(
                f"lower must not exceed upper: the range of column {self.columns[at]!r} must have its lower end first, "
                f"got {self.lower[at]:g} to {self.upper[at]:g}"
            )
        if self.clip is None and self.lower is None:
            raise ValueError("give public ranges (lower and upper) or a clip, since data must not set their own bounds")
        return self

    @property
    def bounds(self) -> dict[str, Any]:
        """Parameters of all ranged statistics: number of columns, clip, ranges, and rules for missing values."""
        params: dict[str, Any] = {"columns": len(self.columns), "clip": self.radius}
        if self.lower is not None and self.upper is not None:
            params |= {"lower": self.lower, "upper": self.upper}
        return params | self.filling

    @property
    def filling(self) -> dict[str, Any]:
        """Parameters by which a statistic fills in missing values.

        `fill` has a value or None by column. Columns in `own_rows` take the mean of the unit's other rows first, and
        the public middle of the range if the unit has no value.
        """
        known = {name: rule for name, rule in self.rules.items() if rule != OBSERVED}
        if not known:
            return {}
        middle = dict(zip(self.columns, self.middle.tolist(), strict=True))
        fill = {name: middle[name] if rule == OWN_ROWS else float(rule) for name, rule in known.items()}
        own = tuple(at for at, name in enumerate(self.columns) if known.get(name) == OWN_ROWS)
        return {"fill": tuple(fill.get(name) for name in self.columns), "own_rows": own}

    @property
    def radius(self) -> float:
        """Bound on the norm of a row: `clip`, or sqrt(columns), the largest norm in [-1, 1]^columns."""
        return float(np.sqrt(len(self.columns))) if self.clip is None else self.clip

    @property
    def middle(self) -> Floats:
        """Middle of each range (columns,), in the units of the data; 0 without ranges."""
        if self.lower is None or self.upper is None:
            return np.zeros(len(self.columns))
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Floats:
        """Half the width of each range (columns,), in the units of the data; 1 without ranges."""
        if self.lower is None or self.upper is None:
            return np.ones(len(self.columns))
        return (self.upper - self.lower) / 2
