"""Bounded statistics: a map of one unit to a vector, how far one unit can move the sum, and nothing else.

A statistic is a frozen record of public parameters. `size` and `sensitivity` follow from these alone, before any data
is read; `sum_block` adds up the bounded contributions of some units. Each subclass proves its sensitivity in its
docstring; tests search for worse neighbours numerically.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Annotated, Any, ClassVar

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict

from zerosum.errors import BadData
from zerosum.kernel.units import Array, Units

Floats = NDArray[np.float64]


class Adjacency(Enum):
    """Which data sets are neighbours: one unit replaced (counts are public), or one added or removed."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


def _as_floats(value: Any) -> Floats:
    array = np.asarray(value, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError("must hold finite numbers only")
    return array


FloatArray = Annotated[Floats, BeforeValidator(_as_floats)]


class BoundedStatistic(BaseModel, ABC):
    """A per-unit map with a bound. Fields are its public parameters; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]

    columns: int

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers one release of this statistic has."""

    @abstractmethod
    def sensitivity(self, adjacency: Adjacency) -> float:
        """The largest L2 distance between the sums of two neighbours."""

    @abstractmethod
    def sum_block(self, block: Units) -> Array:
        """The sum of the bounded contributions of some units; a contribution that is not finite counts as zero."""

    def check(self, units: Units) -> None:
        """Refuse data this statistic cannot take, before the site consents to a study."""
        units.check()
        if units.columns != self.columns:
            raise BadData(f"the study has {self.columns} columns, the data {units.columns}")

    def total(self, units: Units) -> Floats:
        """The sum over all units, block by block, as a NumPy vector."""
        total, lost = np.zeros(self.size), np.zeros(self.size)
        for block in units.blocks(row_bytes=self.row_bytes):
            part = to_numpy(self.sum_block(block)) + lost
            raised = total + part
            lost = part - (raised - total)  # what the addition rounded away, added with the next block
            total = raised
        return total

    @property
    def row_bytes(self) -> int:
        """Working memory a row needs in `sum_block`; blocks are cut accordingly."""
        return 8 * (2 * self.columns + self.size)


def clip_rows(rows: Array, radius: float) -> Array:
    """Scale every row into the L2 ball; a row that is not finite becomes zero.

    Dividing by slightly more than the norm keeps the result inside the ball in floating point too.
    """
    xp = array_namespace(rows)
    with np.errstate(over="ignore"):
        squares = xp.sum(rows * rows, axis=1)
    if radius > 1e-100 and bool(xp.all(xp.isfinite(squares))):
        norm = xp.sqrt(squares)
    else:  # something is not finite, or its square over- or underflows
        rows = xp.where(xp.all(xp.isfinite(rows), axis=1)[:, None], rows, xp.zeros_like(rows))
        largest = xp.max(xp.abs(rows), axis=1)
        unit = xp.where(largest > 0, largest, xp.ones_like(largest))
        scaled = rows / unit[:, None]
        norm = xp.sqrt(xp.sum(scaled * scaled, axis=1)) * unit
    norm = norm * (1 + 2.0**-46)
    shrink = radius / xp.where(norm > radius, norm, xp.full_like(norm, radius))
    return rows * shrink[:, None]


def to_numpy(vector: Array) -> Floats:
    """An array of any namespace as NumPy float64, copied from the device where it lives."""
    if is_numpy_array(vector):
        return np.asarray(vector, dtype=np.float64)
    if hasattr(vector, "cpu"):
        vector = vector.cpu()
    return np.from_dlpack(vector).astype(np.float64)
