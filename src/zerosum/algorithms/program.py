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
from zerosum.kernel.quantity import Axis, Quantity, columns_axis
from zerosum.kernel.request import PrivatePublication, PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.kernel.terms import PlannedRelease

Estimate = Mapping[str, Quantity]
Program = Generator[Request, Release, Estimate]


@dataclass(frozen=True)
class PublicFacts:
    """What is public before a study runs."""

    noise: float  # standard deviation of a released sum of sensitivity 1, if one release took the whole budget
    units: int | None  # how many units take part in all, where that is public


class Algorithm(BaseModel, ABC):
    """A family of programs. Fields are its public parameters; unknown ones are refused.

    `requests` lists a template of every request `program` will yield, in order: the same statistic, size,
    sensitivity and share, whatever the data turn out to be. A phase of sub-sampled sums has one template.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]
    rows_of_a_unit: ClassVar[int] = 1  # how many it takes to say something; an audit makes units of so many

    columns: tuple[str, ...] = Field(min_length=1)

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


class RangedAlgorithm(Algorithm):
    """An algorithm on numeric columns with public ranges, or with a public bound on each row's L2 norm.

    With `lower` and `upper` the rows are clamped and mapped to [-1, 1] by column, and `clip` bounds the norm of what
    comes out (by default it cuts nothing off); without them `clip` bounds the rows as they are.
    """

    lower: FloatArray | None = None
    upper: FloatArray | None = None
    clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.lower is None) != (self.upper is None):
            raise ValueError("lower and upper belong together")
        if self.clip is None and self.lower is None:
            raise ValueError("give public ranges (lower and upper) or a clip, since data must not set their own bounds")
        return self

    @property
    def bounds(self) -> dict[str, Any]:
        """The parameters every ranged statistic shares."""
        params: dict[str, Any] = {"columns": len(self.columns), "clip": self.radius}
        if self.lower is not None and self.upper is not None:
            params |= {"lower": self.lower, "upper": self.upper}
        return params

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
