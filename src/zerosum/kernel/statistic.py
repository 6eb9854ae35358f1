"""Statistics as the accounting sees them: public parameters, the size of a release, and its sensitivity.

A statistic maps each unit to a vector and releases the sum over units. It is a frozen record of public parameters.
`size` and `sensitivity` follow from the parameters alone, before any data is read. How a site computes the sum is
`zerosum.compute.statistic`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter, first_fault


class Adjacency(Enum):
    """The neighbouring relation: one unit replaced (counts are public), or one unit added or removed."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


# limits of public parameters, so that their squares and ratios neither overflow nor underflow
SMALLEST, LARGEST = 1e-100, 1e100
# What an L1 bound is proved for: a class that replaces one of these has to prove its own.
_BOUNDED_BY_PROOF = (
    "size",
    "sensitivity",
    "total",
    "rows",
    "sum_block",
    "map_block",
    "exact_block",
    "finished",
    "entering",
)
_ROUNDING = 1e-12  # relative; an L1 and an L2 bound of one number are equal up to this


def _as_floats(value: Any) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, OverflowError):
        raise ValueError("must hold numbers only") from None
    if not np.all(np.abs(array) <= LARGEST):  # also false for NaN
        raise ValueError(f"must hold finite numbers of at most {LARGEST:g} only")
    return array


FloatArray = Annotated[Floats, BeforeValidator(_as_floats)]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]


class Statistic(BaseModel, ABC):
    """A map of each unit to a vector with a bound. The fields are its public parameters; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]

    columns: int

    def __init__(self, /, **parameters: Any) -> None:
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise BadParameter(f"statistic {self.name!r}: {first_fault(error)}") from None

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers one release of this statistic has."""

    @abstractmethod
    def sensitivity(self, adjacency: Adjacency) -> float:
        """The largest L2 distance between the sums of two neighbours. Under ADD_REMOVE this is the largest norm of one
        contribution; for a statistic that is no sum over units, the largest distance that a unit more or less makes.
        """

    def sensitivity_l1(self, adjacency: Adjacency) -> float | None:
        """The same in L1 norm, for Laplace noise; None if no bound is proved."""
        return None

    def distance(self, adjacency: Adjacency, noise: str) -> float:
        """The sensitivity in the norm of a noise law: L2 for "gaussian", L1 for "laplace".

        Raises
        ------
        BadParameter
            No L1 bound is proved for this statistic: none is stated, it is inherited by a class with another sum or
            another L2 bound, or it is below the L2 bound, which no L1 bound can be.
        """
        if noise == "gaussian":
            return self.sensitivity(adjacency)
        if (bound := self.sensitivity_l1(adjacency)) is None:
            raise BadParameter(f"statistic {self.name!r} has no bound for Laplace noise: use noise = 'gaussian'")
        # A subclass with another sum would otherwise have the noise of its parent's L1 bound.
        own = self._defined_at("sensitivity_l1")
        if replaced := [each for each in _BOUNDED_BY_PROOF if self._defined_at(each) < own]:
            raise BadParameter(
                f"statistic {self.name!r} inherits its bound for Laplace noise and replaces {replaced[0]!r}: define "
                "sensitivity_l1 beside it, or use noise = 'gaussian'"
            )
        # norm_2(v) <= norm_1(v) for every v. Written so that NaN is refused.
        if not bound >= self.sensitivity(adjacency) * (1 - _ROUNDING):
            raise BadParameter(
                f"statistic {self.name!r} has an L1 bound below its L2 bound, so one of them is wrong: use noise = "
                "'gaussian'"
            )
        return bound

    def _defined_at(self, name: str) -> int:
        """The place in the method resolution order of the class that defines `name`; that of `object` if none does."""
        order = type(self).__mro__
        return next((place for place, each in enumerate(order) if name in vars(each)), len(order) - 1)

    @abstractmethod
    def total(self, units: Any) -> Floats:
        """The sum of the bounded contributions of a site's units (`zerosum.compute.units.Units`), shape (size,)."""

    def check(self, units: Any) -> None:
        """Refuse data of another shape, before the site consents to a study. Values are not examined: the parameters
        come from the coordinator, which could search for values by one refusal after another.
        """
        if units.columns != self.columns:
            raise BadData(f"the data do not have the {self.columns} columns of the study")

    def check_values(self, units: Any) -> None:
        """Warn the owner of the data about values that would not count. The warning does not leave the site."""

    def parameters(self) -> dict[str, Any]:
        """The public parameters by name. They are sent together with the statistic's name."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class PublishableStatistic(Statistic):
    """A statistic whose contributions can be published one by one, since each of them is bounded."""

    @property
    def every_unit(self) -> bool:
        """Whether there is a row for every unit. A publication requires it: the number of units in a part is data."""
        return True

    @abstractmethod
    def rows(self, units: Any) -> Floats:
        """One bounded contribution for every unit, shape (units, size)."""
