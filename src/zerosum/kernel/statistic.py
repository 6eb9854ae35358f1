"""Bounded statistics: a map of one unit to a vector, how far one unit can move the sum, and nothing else.

A statistic is a frozen record of public parameters. `size` and `sensitivity` follow from these alone, before any data
is read; `sum_block` adds up the bounded contributions of some units. Each subclass proves its sensitivity in its
docstring; tests search for worse neighbours numerically.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from zerosum.arrays import Array, Floats
from zerosum.errors import BadData, BadParameter, first_fault
from zerosum.kernel.devices import no_memory, on_host, release, works
from zerosum.kernel.devices import to_numpy as to_numpy
from zerosum.kernel.grid import rows_allowed
from zerosum.kernel.threads import side_by_side, threads
from zerosum.kernel.units import Units, rows_at_once

_log = logging.getLogger(__name__)  # stays at the site
_PIECE = 1 << 13  # numbers of a sum at a time
_WORTH_A_THREAD = 1 << 21  # bytes that are worked on at a time, below which threads wait for the interpreter
_HELD = 1 << 29  # bytes that blocks hold which are computed at the same time


class Adjacency(Enum):
    """Which data sets are neighbours: one unit replaced (counts are public), or one added or removed."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


SMALLEST, LARGEST = 1e-100, 1e100  # of public parameters: their squares and ratios neither over- nor underflow


def _as_floats(value: Any) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, OverflowError):
        raise ValueError("must hold numbers only") from None
    if not np.all(np.abs(array) <= LARGEST):  # fails on what is not a number
        raise ValueError(f"must hold finite numbers of at most {LARGEST:g} only")
    return array


FloatArray = Annotated[Floats, BeforeValidator(_as_floats)]
Positive = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]


class BoundedStatistic(BaseModel, ABC):
    """A per-unit map with a bound. Fields are its public parameters; unknown ones are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    name: ClassVar[str]
    takes_sparse: ClassVar[bool] = False  # whether `sum_block` takes sparse rows as they are
    adds_in_pieces: ClassVar[bool] = False  # whether it adds up by `rows.added`, `products` and so on alone
    adds_units: ClassVar[bool] = False  # whether it adds up one vector for each unit, whatever number of rows that has
    in_threads: ClassVar[bool] = True  # whether several may run `sum_block` at a time

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
        """The largest L2 distance between the sums of two neighbours."""

    @abstractmethod
    def sum_block(self, block: Units) -> Array:
        """The sum of the bounded contributions of some units; one that is not finite counts as that of a row of zeros.

        What is computed for a unit up to the last decision about it must be the same whoever else is in the block
        (`zerosum.statistics.rows`).
        """

    def adds_exactly(self, units: Units) -> bool:
        """Whether `exact_block` adds these up without rounding: then they may be cut into blocks in any way."""
        return False

    def exact_block(self, block: Units) -> Array:
        """`sum_block` before its last step, the only one that rounds."""
        return self.sum_block(block)

    def exact_bytes(self, units: Units) -> int:
        """Working memory that `exact_block` needs for each of these, who own a row each."""
        return 8 * units.columns

    def finished(self, total: Floats) -> Floats:
        """That last step, for the sum over all units; it may overwrite it."""
        return total

    def entering(self, units: Units) -> Units:
        """What `sum_block` gets blocks of: the units themselves, unless a statistic makes something of them first that
        many rounds share (`Units.made`). It must not fail, and make of each unit what it would make of it alone."""
        return units

    def parameters(self) -> dict[str, Any]:
        """The public parameters by name: what travels, with the statistic's name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def check(self, units: Units) -> None:
        """Refuse data of another shape, before the site consents to a study. Values are not looked at: parameters come
        from the coordinator, and with one refusal after another it could search for them."""
        if units.columns != self.columns:
            raise BadData(f"the data do not have the {self.columns} columns of the study")

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        """Refuse a question whose parameters name what is not there at this site (a library, a module), before the
        site consents and anybody pays."""

    def check_values(self, units: Units) -> None:
        """Tell the owner of the data, and nobody else, what would count nowhere."""

    @np.errstate(all="ignore")
    def total(self, units: Units) -> Floats:
        """The sum over all units, block by block, as a NumPy vector. Whatever a unit holds, this does not fail.

        Blocks are added up in double precision where their rows are, and what comes back from a device is the sum."""
        with release(rows_allowed(len(units))):
            entering = self.entering(units)
            workers, exact = self._workers(entering), self.adds_exactly(entering)
            running = Running(self.size, exact=exact)
            if exact:
                blocks = entering.evenly(workers, self.exact_bytes(entering))
            else:
                blocks = entering.blocks(self.row_bytes, longer=self.adds_in_pieces, by_units=self.adds_units)
            add = self.exact_block if exact else self.sum_block
            with side_by_side(workers) as each:
                for part in each(partial(self._sum, add), blocks):
                    running.add(part)
        return self.finished(running.total()) if exact else running.total()

    def _workers(self, units: Units) -> int:
        """How many blocks of units on the host are computed at once: none of their bits depends on it. One where there
        is little to do or much to hold, and where a device computes."""
        if not self.in_threads or units.device is not None or not (units.is_sparse or on_host(units.rows)):
            return 1
        exact, every = self.adds_exactly(units), int(units.rows.shape[0])
        rows = rows_at_once(self.row_bytes, by_units=self.adds_units or exact)
        blocks = units.even_blocks(threads(), self.exact_bytes(units)) if exact else -(-every // rows)
        together = rows if units.offsets is None else min(rows, every // max(1, len(units)))  # people come one by one
        together = min(together, every // blocks) if exact and blocks else together
        if blocks < 2 or together * self.row_bytes < _WORTH_A_THREAD:
            return 1
        held = max(rows, units.largest) * self.row_bytes + self.block_bytes
        return max(1, min(threads(), blocks, _HELD // held))

    def _sum(self, add: Callable[[Units], Array], block: Units) -> Array:
        return self._part(add, block if self.takes_sparse else block.dense())

    def _part(self, add: Callable[[Units], Array], block: Units) -> Array:
        """The sum over a block. Where it fails or is not finite, over its halves, down to the unit that is at fault and
        counts as one of zeros: once a site has consented, an error would tell the coordinator about a unit."""
        try:
            part = add(block)
            xp = array_namespace(part)
            if part.shape == (self.size,) and bool(xp.all(xp.isfinite(part))):
                return part if on_host(part) else xp.astype(part, xp.float64, copy=False)
        except Exception as error:
            self._blame(error, block)
        if len(block) == 1:
            return self._nobody(add)
        middle = len(block) // 2
        one, other = (self._part(add, half) for half in (block.between(0, middle), block.between(middle, len(block))))
        return one + other if on_host(one) == on_host(other) else to_numpy(one) + to_numpy(other)

    def _blame(self, error: Exception, block: Units) -> None:
        """Raise what is not any unit's fault, unless the device is full and half a block may fit; else log it."""
        full = no_memory(error)
        if full and len(block) == 1 and not isinstance(error, MemoryError):
            raise MemoryError("there is no memory left for one unit") from error
        if isinstance(error, MemoryError) or not works(block.rows):
            raise error
        if not full:
            text = "%s failed for a block of units; only the one at fault is left out"
            _log.warning(text, self.name, exc_info=error)

    def _nobody(self, add: Callable[[Units], Array]) -> Floats:
        """What a unit counts as that fails: a unit with one row of zeros. It contributes like any other, so that every
        bound on how far two units are apart holds for it too; a vector of zeros would be no contribution at all."""
        try:
            part = to_numpy(add(self.entering(Units(np.zeros((1, self.columns))))))
        except Exception:
            return np.zeros(self.size)
        return part if part.shape == (self.size,) and np.all(np.isfinite(part)) else np.zeros(self.size)

    @property
    def row_bytes(self) -> int:
        """Working memory a row needs in `sum_block`; blocks are cut accordingly."""
        return 8 * (2 * self.columns + self.size)

    @property
    def block_bytes(self) -> int:
        """Working memory `sum_block` needs however few the rows are; fewer blocks are computed at once accordingly."""
        return 16 * self.size


class BoundedMap(BoundedStatistic):
    """A statistic whose contributions can be published one by one, since each is bounded by itself."""

    @property
    def every_unit(self) -> bool:
        """Whether there is a row for every unit. A publication needs that: how many units a part has is data."""
        return True

    @abstractmethod
    def map_block(self, block: Units) -> Array:
        """The bounded contributions of some units, one a row; one that is not finite is zero."""

    def sum_block(self, block: Units) -> Array:
        rows = self.map_block(block)
        return array_namespace(rows).sum(rows, axis=0)

    @np.errstate(all="ignore")
    def rows(self, units: Units) -> Floats:
        """One row for every unit, as a NumPy table. Whatever a unit holds, this does not fail."""
        with release(rows_allowed(len(units))):
            entering = self.entering(units)
            with side_by_side(self._workers(entering)) as each:
                parts = list(each(self._dense_rows, entering.blocks(row_bytes=self.row_bytes)))
        return np.concatenate(parts) if parts else np.zeros((0, self.size))

    def _dense_rows(self, block: Units) -> Floats:
        return self._rows(block.dense())

    def _rows(self, block: Units) -> Floats:
        """As `_part` does: a unit that fails is left out, and no other."""
        try:
            rows = to_numpy(self.map_block(block))
            if rows.shape == (len(block), self.size) and np.all(np.isfinite(rows)):
                return rows
        except Exception as error:
            self._blame(error, block)
        if len(block) == 1:
            return np.zeros((1, self.size))
        middle = len(block) // 2
        halves = block.between(0, middle), block.between(middle, len(block))
        return np.concatenate([self._rows(half) for half in halves])


class Running:
    """A sum of vectors with compensation: what is rounded away is added with the next one, unless nothing is (`exact`).
    It is kept where the vectors are, on the host or on a device."""

    def __init__(self, size: int, *, exact: bool = False) -> None:
        self._size, self._exact = size, exact
        self._here: Floats | None = None
        self._lost: Floats | None = None  # what the total on the host has lost; nothing, while it is of one vector
        self._there: tuple[Array, Array] | None = None  # the same on a device

    def add(self, part: Array) -> None:
        if not on_host(part):
            self._there = (part, part * 0.0) if self._there is None else compensated(*self._there, part)
        elif self._here is None:
            self._here = np.array(part, dtype=np.float64)
        elif self._exact:
            self._here += part
        else:
            self._lost = np.zeros(self._size) if self._lost is None else self._lost
            _add_up(self._here, self._lost, part)

    def total(self) -> Floats:
        parts = [] if self._here is None else [self._here]
        parts += [] if self._there is None else [to_numpy(self._there[0])]
        return sum(parts[1:], parts[0]) if parts else np.zeros(self._size)


def _add_up(total: Floats, lost: Floats, part: Floats) -> None:
    """`compensated` in place, a piece at a time that stays in a processor's cache."""
    added, raised = np.empty(_PIECE), np.empty(_PIECE)
    for start in range(0, len(total), _PIECE):
        here = slice(start, min(start + _PIECE, len(total)))
        more, higher = added[: here.stop - start], raised[: here.stop - start]
        np.add(part[here], lost[here], out=more)
        np.add(total[here], more, out=higher)
        np.subtract(higher, total[here], out=lost[here])
        np.subtract(more, lost[here], out=lost[here])
        total[here] = higher


def compensated(total: Array, lost: Array, part: Array) -> tuple[Array, Array]:
    """A total with one more part, and what that lost by rounding, to be added with the next."""
    added = part + lost
    raised = total + added
    return raised, added - (raised - total)
