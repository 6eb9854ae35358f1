"""Execution of bounded statistics: a site's units are cut into blocks, the blocks are summed, the sums are added up.

A subclass defines `sum_block`, which adds up the bounded contributions of one block, and proves its sensitivity in its
docstring; tests search numerically for worse neighbours. `total` does the rest: blocks, threads, devices, and units
whose contribution cannot be computed.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from zerosum.arrays import Array, Floats
from zerosum.compute.blocks import Running
from zerosum.compute.devices import no_memory, on_host, release_scope, to_numpy, works
from zerosum.compute.threads import side_by_side, threads
from zerosum.compute.units import Units, rows_at_once
from zerosum.kernel.grid import rows_allowed
from zerosum.kernel.statistic import PublishableStatistic, Statistic

_log = logging.getLogger(__name__)  # stays at the site
_WORTH_A_THREAD = 1 << 21  # least bytes of one block for threads to pay: below it they wait for the interpreter
_WORKING_BYTES = 1 << 29  # most bytes of working memory of all blocks that are computed at the same time


class BoundedStatistic(Statistic):
    """A statistic with the computation of its sum. Besides `sum_block`, subclasses may describe its cost (`row_bytes`,
    `block_bytes`) and how it may be executed (the class variables).
    """

    takes_sparse: ClassVar[bool] = False  # whether `sum_block` takes sparse rows as they are
    # whether all sums go through `zerosum.compute.backends.exact`, which limits the rounding of long blocks
    adds_in_pieces: ClassVar[bool] = False
    adds_units: ClassVar[bool] = False  # whether each unit enters the sum as one vector, whatever its number of rows
    in_threads: ClassVar[bool] = True  # whether `sum_block` may run in several threads at a time

    @abstractmethod
    def sum_block(self, block: Units) -> Array:
        """The sum of the bounded contributions of some units, shape (size,). A unit whose contribution is not finite
        counts as a row of zeros.

        The values that are computed for a unit, up to the last decision about it, must not depend on the other units of
        the block (`zerosum.compute.backends.exact`).
        """

    def adds_exactly(self, units: Units) -> bool:
        """Whether `exact_block` adds up these units without rounding. If so, they may be cut into blocks in any way."""
        return False

    def exact_block(self, block: Units) -> Array:
        """`sum_block` before its last step, the only one that rounds."""
        return self.sum_block(block)

    def exact_bytes(self, units: Units) -> int:
        """Working memory of `exact_block` per unit, in bytes, for units of one row each."""
        return 8 * units.columns

    def finished(self, total: Floats) -> Floats:
        """The last step of an exact sum, applied to the sum over all units. It may overwrite its argument."""
        return total

    def entering(self, units: Units) -> Units:
        """The units that `sum_block` receives in blocks: the units themselves, or a table derived from them that many
        rounds share (`Units.made`). It must not fail, and the result for a unit must not depend on other units.
        """
        return units

    @classmethod
    def ready_for(cls, parameters: Mapping[str, Any]) -> None:
        """Refuse a question whose parameters need a library or module that this site does not have, before the site
        consents and a release is charged.
        """

    @np.errstate(all="ignore")
    def total(self, units: Units) -> Floats:
        """The sum over all units, block by block, as a NumPy vector of shape (size,). It does not fail for any values
        of a unit.

        Blocks are added up in double precision on the device of their rows. Only the sum is copied back from a device.
        """
        with release_scope(rows_allowed(len(units))):
            entering = self.entering(units)
            workers, exact = self._workers(entering), self.adds_exactly(entering)
            running = Running(self.size, exact=exact)
            if exact:
                blocks = entering.evenly(workers, self.exact_bytes(entering))
            else:
                blocks = entering.blocks(self.row_bytes, longer=self.adds_in_pieces, by_units=self.adds_units)
            add = self.exact_block if exact else self.sum_block
            with side_by_side(workers) as each:
                for part in each(partial(self._part, add), blocks):
                    running.add(part)
        return self.finished(running.total()) if exact else running.total()

    def _workers(self, units: Units) -> int:
        """Number of blocks on the host that are computed at the same time. No bit of the result depends on it. It is 1
        for small sums, for sums with much working memory, and where a device computes.
        """
        if not self.in_threads or units.device is not None or not (units.is_sparse or on_host(units.rows)):
            return 1
        exact, every = self.adds_exactly(units), int(units.rows.shape[0])
        # The same limits that `Units.blocks` and `Units.evenly` apply, so that the estimate agrees with the cut.
        rows = rows_at_once(self.row_bytes, by_units=self.adds_units or exact)
        blocks = units.even_blocks(threads(), self.exact_bytes(units)) if exact else -(-every // rows)
        # a block of persons may hold a single one
        together = rows if units.offsets is None else min(rows, every // max(1, len(units)))
        together = min(together, every // blocks) if exact and blocks else together
        if blocks < 2 or together * self.row_bytes < _WORTH_A_THREAD:
            return 1
        # A unit is never divided, so a block may be as long as the largest unit.
        held = max(rows, units.largest) * self.row_bytes + self.block_bytes
        return max(1, min(threads(), blocks, _WORKING_BYTES // held))

    def _part(self, add: Callable[[Units], Array], block: Units) -> Array:
        """The sum over a block.

        If the computation fails or is not finite, the block is halved, down to the unit at fault, which counts as a
        unit of zeros. After a site has consented, an error would disclose something about a unit to the coordinator.
        """
        # One block at a time: the whole table in dense form may not fit into memory.
        block = block if self.takes_sparse else block.dense()
        try:
            part = add(block)
            xp = array_namespace(part)
            # A value that overflowed in one unit would make the whole sum not finite, and the coordinator would learn
            # of it.
            if part.shape == (self.size,) and bool(xp.all(xp.isfinite(part))):
                return part if on_host(part) else xp.astype(part, xp.float64, copy=False)
        except Exception as error:
            self._blame(error, block)
        if len(block) == 1:
            return self._nobody(add)
        # Halving finds k units at fault among n in of the order of k log2(n) calls, and all other units count as usual.
        middle = len(block) // 2
        one, other = (self._part(add, half) for half in (block.between(0, middle), block.between(middle, len(block))))
        return one + other if on_host(one) == on_host(other) else to_numpy(one) + to_numpy(other)

    def _blame(self, error: Exception, block: Units) -> None:
        """Raise errors that no unit has caused, except a full device where half of the block may fit. Log all other
        errors.
        """
        full = no_memory(error)
        # Memory and a broken device are faults of the machine and not of a unit. To treat units as zeros then would
        # return a wrong sum, and without an error.
        if full and len(block) == 1 and not isinstance(error, MemoryError):
            raise MemoryError("there is no memory left for one unit") from error
        if isinstance(error, MemoryError) or not works(block.rows):
            raise error
        if not full:
            # The log stays at the site; the message of the error may contain values.
            text = "%s failed for a block of units; only the one at fault is left out"
            _log.warning(text, self.name, exc_info=error)

    def _nobody(self, add: Callable[[Units], Array]) -> Floats:
        """The contribution used for a unit whose computation fails: that of one row of zeros. It is a contribution like
        any other, so that every bound on the distance between two units holds for it. A vector of zeros would be no
        contribution.
        """
        try:
            # The same preprocessing as for data, since a row of zeros may become something else (a centre is
            # subtracted).
            part = to_numpy(add(self.entering(Units(np.zeros((1, self.columns))))))
        except Exception:
            return np.zeros(self.size)
        return part if part.shape == (self.size,) and np.all(np.isfinite(part)) else np.zeros(self.size)

    @property
    def row_bytes(self) -> int:
        """Working memory of `sum_block` per row, in bytes; it decides the length of blocks."""
        return 8 * (2 * self.columns + self.size)

    @property
    def block_bytes(self) -> int:
        """Working memory of `sum_block` that does not depend on the number of rows, in bytes."""
        return 16 * self.size


class BoundedMap(BoundedStatistic, PublishableStatistic):
    """A bounded statistic that also computes the contributions one by one, for publications."""

    @abstractmethod
    def map_block(self, block: Units) -> Array:
        """The bounded contributions of some units, shape (units, size); a contribution that is not finite is zero."""

    def sum_block(self, block: Units) -> Array:
        rows = self.map_block(block)
        return array_namespace(rows).sum(rows, axis=0)

    @np.errstate(all="ignore")
    def rows(self, units: Units) -> Floats:
        """One row for every unit, shape (units, size). It does not fail for any values of a unit."""
        with release_scope(rows_allowed(len(units))):
            entering = self.entering(units)
            with side_by_side(self._workers(entering)) as each:
                parts = list(each(self._dense_rows, entering.blocks(row_bytes=self.row_bytes)))
        return np.concatenate(parts) if parts else np.zeros((0, self.size))

    def _dense_rows(self, block: Units) -> Floats:
        return self._rows(block.dense())

    def _rows(self, block: Units) -> Floats:
        """The rows of a block. As in `_part`, a unit that fails does not affect others; its row is zero."""
        try:
            # A publication sends one row per unit, so that the number of rows must be right also where a unit fails.
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
