"""Units: the protected unit is a person (who may own many rows) or a single record.

N is the number of rows of a site, n its number of units. Functions here decide how rows are cut into blocks; they use
shapes only.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from zerosum.arrays import Array
from zerosum.compute.devices import (
    HOST,
    array_on,
    available_bytes,
    check_device,
    check_products,
    is_gpu,
    on_host,
    to_device,
    to_host,
    to_numpy,
)
from zerosum.compute.mapped import release_pages
from zerosum.compute.threads import ahead, threads
from zerosum.errors import BadData
from zerosum.kernel.grid import BLOCK_ROWS, MOST_UNITS, PLANNED_UNITS, rows_allowed
from zerosum.kernel.missing import refusal_by_rules

_TABLES = 2  # derived tables that are kept with the units
_BLOCK_BYTES = 1 << 25  # working memory of a pass over the data, in bytes
_DRAWN_ROWS = 1 << 16  # rows that are hashed at a time; it has no effect on values
_LONG = 1 << 11  # least rows of a block of `Units.evenly`
_HOST_BYTES = 1 << 31  # working memory on the host, in bytes, for rows on a device, where blocks are long


@dataclass(frozen=True, eq=False)
class Runs:
    """Recordings: `offsets` (recordings + 1,) has the first row of each and, last, the number of rows; `seconds`
    (recordings,) is the time between two rows.
    """

    offsets: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def within(self, first: int, last: int) -> Runs:
        """The recordings in rows `first` to `last`, which begin and end with a recording; offsets are counted from
        `first`.
        """
        a, b = np.searchsorted(self.offsets, [first, last])
        return Runs(self.offsets[a : b + 1] - first, self.seconds[a:b])


@dataclass(frozen=True, eq=False)
class Batch:
    """Units of one shape.

    `units` are their indices, `length` the number of rows of each, `begins` the first row of each. `runs` are the
    offsets of the recordings within a unit, the end included, and `seconds` the time between their rows where known.
    """

    units: NDArray[np.int64]
    length: int
    begins: NDArray[np.int64]
    runs: NDArray[np.int64]
    seconds: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.units)

    def of(self, values: Array) -> Array:
        """Their part of `values` (one row per row of data), shape (units, rows, columns); a view if the units are
        adjacent.
        """
        xp, begin = array_namespace(values), int(self.begins[0])
        shape = (len(self), self.length, *values.shape[1:])
        if np.array_equal(self.begins, begin + self.length * np.arange(len(self))):
            return xp.reshape(values[begin : begin + len(self) * self.length, ...], shape)
        places = (self.begins[:, None] + np.arange(self.length)).reshape(-1)
        return xp.reshape(xp.take(values, array_on(places, values), axis=0), shape)


@dataclass(frozen=True, eq=False)
class Units:
    """A site's data: `rows` (N, columns), where each unit's rows begin (None: every row is a unit), and, where rows
    follow each other in time, the recordings a unit consists of.

    Rows may be sparse (SciPy's `csr_array`): statistics of documents take them as they are, others block by block as
    dense ones. They may lie on a GPU, or stay on the host and go to `device` block by block (`on`).

    >>> len(Units.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]]))
    2
    """

    rows: Array
    offsets: NDArray[np.int64] | None = None
    runs: Runs | None = None
    device: str | None = None  # where blocks go, if that is not where the rows are
    _made: dict[str, Units] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_rows(cls, rows: ArrayLike | Array) -> Units:
        """Every row is a unit. One column may be given as a plain vector; sparse rows stay sparse."""
        array: Array = rows if hasattr(rows, "ndim") else np.asarray(rows, dtype=np.float64)
        if bool(issparse(array)):
            array = doubled(array)
            _check_places(array)
            # The squares of duplicate entries add up to another norm than that of the row that they stand for.
            array.sum_duplicates()
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise BadData(f"records must be a table of rows and columns, got {array.ndim} dimensions")
        return cls(array)

    @classmethod
    def from_list(cls, units: Sequence[ArrayLike]) -> Units:
        """One table of rows per unit."""
        tables = [np.atleast_2d(np.asarray(unit, dtype=np.float64)) for unit in units]
        if not tables:
            raise BadData("there are no units")
        if any(len(table) == 0 for table in tables):
            raise BadData("a unit has no rows")
        if len({table.shape[1] for table in tables}) > 1:
            raise BadData("the units' tables disagree in their number of columns")
        offsets = _ends([len(table) for table in tables])
        return cls(np.vstack(tables), offsets)

    @classmethod
    def from_runs(cls, units: Sequence[Sequence[ArrayLike]], seconds: Sequence[Sequence[float]]) -> Units:
        """For each unit its recordings (tables of rows in order of time), and the seconds between the rows of each.

        >>> person = [np.zeros((5, 2)), np.zeros((3, 2))]
        >>> Units.from_runs([person], [[2.0, 0.8]]).runs.offsets.tolist()
        [0, 5, 8]
        """
        if len(units) != len(seconds) or any(len(u) != len(s) for u, s in zip(units, seconds, strict=True)):
            raise BadData("give the seconds between rows for every recording of every unit")
        # One list of recordings; `counts` has the first recording of each unit, and `begins[counts]` its first row.
        flat = [table for unit in units for table in unit]
        if any(len(unit) == 0 for unit in units):
            raise BadData("a unit has no recordings")
        rows = cls.from_list(flat).rows
        begins = _ends([len(np.atleast_2d(table)) for table in flat])
        counts = _ends([len(unit) for unit in units])
        steps = np.array([step for unit in seconds for step in unit], dtype=np.float64)
        return cls(rows, begins[counts], Runs(begins, steps))

    @classmethod
    def from_groups(cls, rows: ArrayLike, labels: ArrayLike) -> Units:
        """Rows with the same label belong to one unit; labels need not be sorted."""
        table, groups = np.asarray(rows, dtype=np.float64), np.asarray(labels)
        if table.ndim != 2 or len(groups) != len(table):
            raise BadData(
                "there must be one unit label for each row of a table", detail=f"{len(groups)} for {table.shape}"
            )
        if len(groups) == 0:
            raise BadData("there are no units")
        _, codes = np.unique(groups, return_inverse=True)
        # Stable, so that the rows of a unit keep their order: in a time series it is data.
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes)
        return cls(table[order], _ends(sizes))

    def __len__(self) -> int:
        return int(self.rows.shape[0]) if self.offsets is None else len(self.offsets) - 1

    @property
    def columns(self) -> int:
        return int(self.rows.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether only the entries that are not zero are kept."""
        return bool(issparse(self.rows))

    def dense(self) -> Units:
        """The same units, every entry kept."""
        return Units(doubled(self.rows).toarray(), self.offsets, self.runs) if self.is_sparse else self

    @property
    def largest(self) -> int:
        """The most rows any unit owns."""
        return 1 if self.offsets is None else int(np.max(np.diff(self.offsets)))

    @property
    def elsewhere(self) -> bool:
        """Whether a GPU computes with these units, so that the processor is idle meanwhile."""
        return self.device is not None or is_gpu(self.rows)

    def on(self, device: str) -> Units:
        """The same units, to be computed with on a device ("cuda", "cuda:1"; "cpu": no change).

        Rows move to the device if they fit in half of its memory. Otherwise each block is copied when it is needed,
        from memory or from a mapped file, while the block before is processed.
        """
        device = check_device(device)
        if device == HOST or self.is_sparse or not on_host(self.rows):
            return self
        if self.rows.nbytes <= (available_bytes(device) or 0) * 3 // 4:
            return Units(to_device(self.rows, device), self.offsets, self.runs)
        return Units(self.rows, self.offsets, self.runs, device)

    def blocks(self, row_bytes: int | None = None, *, longer: bool = False, by_units: bool = False) -> Iterator[Units]:
        """The units in order, in blocks of bounded working memory.

        Parameters
        ----------
        row_bytes:
            Working memory per row, in bytes; None: the row itself.
        longer:
            Whether blocks may exceed the number of rows that may be added up in any order (`grid.rows_allowed`), on a
            device or for many units; the caller then bounds the rounding itself.
        by_units:
            On the host, whether the limit counts units instead of rows: for statistics that add up one vector per unit.
        """
        # Beside the working memory, 16 bytes per entry are counted: the rows of the block and one copy of them as
        # doubles.
        size = row_bytes or 8 * self.columns
        wanted = self.rows.shape[0] * (size + 16 * self.columns)
        where = available_bytes(self.rows if self.device is None else self.device, wanted)
        if where is None:
            at_most = rows_at_once(size, by_units=by_units)
            if not longer and not by_units:
                at_most = min(at_most, rows_allowed(len(self)))
        else:
            at_most = max(1, where // (size + 16 * self.columns))
            if not longer:  # some of these statistics compute on the host
                at_most = min(rows_allowed(len(self)), at_most, max(BLOCK_ROWS, _HOST_BYTES // size))
        # On the host a block holds at most BLOCK_ROWS units, the limit for which the rounding of a sum is planned.
        together = BLOCK_ROWS if longer else min(BLOCK_ROWS, rows_allowed(len(self)))
        cut = self._cut(at_most, together if where is None else at_most)
        if self.device is None:
            return cut
        device = self.device
        return ahead(Units(to_device(block.rows, device), block.offsets, block.runs) for block in cut)

    def even_blocks(self, workers: int, row_bytes: int) -> int:
        """Number of blocks of `evenly`: a multiple of the workers if each block is long enough."""
        fewest = max(1, -(-len(self) * row_bytes // _BLOCK_BYTES))
        return max(fewest, min(-(-fewest // workers) * workers, len(self) // _LONG))

    def evenly(self, workers: int, row_bytes: int) -> Iterator[Units]:
        """Single records on the host in few blocks of about equal length and bounded memory, for exact sums.

        >>> [len(block) for block in Units(np.zeros((8195, 2))).evenly(4, 16)]
        [2049, 2049, 2049, 2048]
        """
        at_most = max(1, -(-len(self) // self.even_blocks(workers, row_bytes)))
        return self._cut(at_most, at_most)

    def _cut(self, at_most: int, units: int) -> Iterator[Units]:
        """Blocks of at most `at_most` rows and `units` units, in order; a block has at least one unit."""
        start = 0
        # Blocks are computed by other threads when the next one is asked for, at most one more than there are threads
        # (`threads.side_by_side`). Pages that such a thread reads after their release are released again later.
        begins: deque[int] = deque([0], maxlen=2 + threads())
        while start < len(self):
            end = start + at_most
            if self.offsets is not None:
                # The last unit that ends within `at_most` rows. A unit is never divided; one that is longer is a block
                # of its own.
                end = int(np.searchsorted(self.offsets, self.offsets[start] + at_most, side="right")) - 1
            end = min(max(end, start + 1), start + units, len(self))
            yield self.between(start, end)
            last = end if self.offsets is None else int(self.offsets[end])
            release_pages(self.rows, begins[0], last)
            begins.append(last)
            start = end

    def within(self, at_most: int) -> Iterator[Units]:
        """The units in order, in blocks of at most `at_most` rows, or of one unit that has more. Rows are views where
        possible; pages of mapped rows are released after each block.
        """
        return self._cut(at_most, at_most)

    def between(self, start: int, end: int) -> Units:
        """The units from `start` up to, not including, `end`.

        Parameters
        ----------
        start, end : int
            Positions of units, not of rows. Rows are views where possible.
        """
        if self.offsets is None:
            return Units(self.rows[start:end, ...])
        first, last = int(self.offsets[start]), int(self.offsets[end])
        runs = None if self.runs is None else self.runs.within(first, last)
        return Units(_by_rows(self.rows[first:last, ...]), self.offsets[start : end + 1] - first, runs)

    def chosen(self, which: NDArray[np.bool_]) -> Units:
        """Those units for which `which` is true, in their order.

        Parameters
        ----------
        which : bool array of shape (units,)
            Units of the sample.
        """
        if self.offsets is None:
            return Units(self._rows_at(np.flatnonzero(which)), device=self.device)
        sizes = np.diff(self.offsets)
        runs = None
        if self.runs is not None:
            # The unit of each recording, from its first row.
            whose = np.searchsorted(self.offsets, self.runs.offsets[:-1], side="right") - 1
            lengths = np.diff(self.runs.offsets)[which[whose]]
            runs = Runs(_ends(lengths), self.runs.seconds[which[whose]])
        rows = self._rows_at(np.flatnonzero(np.repeat(which, sizes)))
        return Units(rows, _ends(sizes[which]), runs, self.device)

    def _rows_at(self, places: NDArray[np.intp]) -> Array:
        """Rows at these positions, on their device."""
        if self.is_sparse:
            return self.rows[places]
        return array_namespace(self.rows).take(self.rows, array_on(places, self.rows), axis=0)

    def own_draws(self, *, twins: Literal["together", "apart"] = "together") -> NDArray[np.float64]:
        """A number in [0, 1) for every unit, from a hash of its own rows. It does not depend on other units or on the
        time.

        Units with equal rows have equal numbers or, with twins="apart", different ones: the hash then includes a
        running count of equal units. This keeps the draw a function of the unit alone: equal units are
        indistinguishable, so one more or one less of them adds or removes one number, and all others stay.

        >>> Units(np.array([[1.0], [2.0], [1.0]])).own_draws(twins="apart").round(3).tolist()
        [0.458, 0.425, 0.61]
        """
        if self.is_sparse:
            return np.concatenate([np.zeros(0), *(block.dense().own_draws() for block in self.blocks())])
        occurrences: Counter[bytes] = Counter()
        drawn, at = np.empty(len(self)), 0
        for block in self.within(_DRAWN_ROWS):
            table = np.ascontiguousarray(to_host(block.rows), dtype=np.float64)
            bounds = range(len(table) + 1) if block.offsets is None else block.offsets.tolist()
            for first, last in itertools.pairwise(bounds):
                # Hashed from the bytes of doubles, so that a table of floats and one of integers draw equally.
                own = hashlib.blake2b(table[first:last].tobytes(), digest_size=16).digest()
                drawn_bytes = hashlib.blake2b(own + occurrences[own].to_bytes(8, "little"), digest_size=8).digest()
                # The upper 53 bits: exactly representable in a double, so that the result is uniform on a grid and
                # below 1.
                drawn[at] = (int.from_bytes(drawn_bytes) >> 11) / 2.0**53
                at += 1
                if twins == "apart":
                    occurrences[own] += 1
        return drawn

    def made(self, what: str, make: Callable[[], Units]) -> Units:
        """The derived table of this name, computed once. The last two are kept with the units, for rounds that begin
        with the same work.
        """
        if what not in self._made:
            made = make()
            # The oldest one leaves; a derived table may be as large as the data.
            while len(self._made) >= _TABLES:
                del self._made[next(iter(self._made))]
            self._made[what] = made
        return self._made[what]

    def each(self) -> Iterator[NDArray[np.float64]]:
        """One unit's rows after another, as NumPy arrays."""
        bounds = np.arange(self.rows.shape[0] + 1) if self.offsets is None else self.offsets
        for first, last in itertools.pairwise(bounds):
            rows = self.rows[int(first) : int(last), ...]
            yield np.asarray(doubled(rows).toarray(), dtype=np.float64) if self.is_sparse else to_numpy(rows)

    def recordings(self) -> Iterator[list[tuple[Array, float | None]]]:
        """For one unit after another its recordings in order, each with the seconds between its rows, where known."""
        bounds = np.arange(self.rows.shape[0] + 1) if self.offsets is None else self.offsets
        for first, last in itertools.pairwise(bounds.tolist()):
            if self.runs is None:
                yield [(self.rows[first:last, ...], None)]
                continue
            runs = self.runs.within(first, last)
            starts = itertools.pairwise((runs.offsets + first).tolist())
            yield [(self.rows[a:b, ...], step) for (a, b), step in zip(starts, runs.seconds.tolist(), strict=True)]

    def average(self, values: Array) -> Array:
        """One row per unit: the mean over its rows of `values` (one row per row of data)."""
        if self.offsets is None:
            return values
        xp = array_namespace(values)
        if on_host(values):
            # `mean` adds up along a unit's own rows, which are contiguous: the order depends on the unit's length only.
            bounds = self.offsets.tolist()
            return xp.stack([xp.mean(_by_rows(values[a:b, ...]), axis=0) for a, b in itertools.pairwise(bounds)])
        parts, order = [], []
        for batch in self.batches():
            rows = batch.of(values)
            # A copy, since `fold` overwrites its argument and `rows` may be a view of the data.
            parts.append(fold(xp.asarray(rows, copy=True)) / rows.shape[1])
            order.append(batch.units)
        if len(parts) == 1:
            return parts[0]
        return xp.take(xp.concat(parts), array_on(np.argsort(np.concatenate(order)), values), axis=0)

    def batches(self) -> Iterator[Batch]:
        """Batches of units whose recordings have equal lengths and sampling intervals. A batch depends on shapes only,
        not on values.
        """
        ends = np.arange(self.rows.shape[0] + 1) if self.offsets is None else self.offsets
        if self.runs is None and len(ends) > 1 and np.all(np.diff(ends) == ends[1]):
            yield Batch(np.arange(len(ends) - 1), int(ends[1]), ends[:-1], ends[:2], None)
            return
        runs = ends if self.runs is None else self.runs.offsets
        first = np.searchsorted(runs, ends)
        lengths = np.diff(runs)
        clocks = np.zeros(len(lengths)) if self.runs is None else self.runs.seconds
        alike: dict[bytes, list[int]] = {}
        for unit, (a, b) in enumerate(itertools.pairwise(first.tolist())):
            # The bytes of both arrays are the key: units are together only if every recording has the same shape and
            # clock.
            alike.setdefault(lengths[a:b].tobytes() + clocks[a:b].tobytes(), []).append(unit)
        for members in alike.values():
            units = np.array(members, dtype=np.int64)
            a, b = first[units[0]], first[units[0] + 1]
            seconds = None if self.runs is None else clocks[a:b]
            yield Batch(units, int(runs[b] - runs[a]), ends[units], runs[a : b + 1] - runs[a], seconds)

    def row_weights(self, like: Array) -> Array:
        """1/(rows of its unit) for every row, so that each unit weighs one; in the namespace of `like`."""
        xp = array_namespace(like)
        if self.offsets is None:
            return xp.ones(self.rows.shape[0], dtype=like.dtype, device=device_of(like))
        sizes = np.diff(self.offsets)
        return xp.asarray(np.repeat(1 / sizes, sizes), dtype=like.dtype, device=device_of(like))

    def check(
        self,
        missing: Collection[int] = (),
        names: Sequence[str] = (),
        rules: Sequence[str] = (),
        *,
        converted: bool = False,
    ) -> None:
        """Refuse what no study can use: no units, no columns, values that are not finite.

        In the columns at the positions `missing`, which have a rule, values may be missing (NaN). A refusal calls
        columns as `names` do, where these are given, and then says which rules there are.

        Parameters
        ----------
        missing : collection of int
            Positions of columns in which NaN is allowed.
        names : sequence of str
            Descriptions of the columns in refusals; for the owner of the data only.
        rules : sequence of str
            The rules for missing values that there are, in words.
        converted : bool
            Whether each value was looked at when it was converted, so that no pass over the rows is needed.
        """
        if len(self) == 0:
            raise BadData("there are no units")
        if self.columns == 0:
            raise BadData("there are no columns")
        # The sensitivity of a plan includes a rounding error, which larger data would exceed. Sums over documents have
        # more terms, whose error is planned for PLANNED_UNITS documents.
        most = PLANNED_UNITS if self.is_sparse else MOST_UNITS
        if len(self) > most or self.largest > rows_allowed(len(self)):
            raise BadData(
                "there are too many units, or too many rows in one, for the rounding error that is planned for"
            )
        if self.offsets is not None:
            # Otherwise rows would belong to no unit or to two, and the sensitivity would not hold.
            whole = len(self.offsets) > 0 and (self.offsets[0], self.offsets[-1]) == (0, self.rows.shape[0])
            if not whole or not np.all(np.diff(self.offsets) > 0):
                raise BadData("where units begin must rise from 0 to the number of rows")
        if self.runs is not None:
            self._check_runs(self.runs)
        if self.is_sparse:
            _check_places(self.rows)
            if not np.all(np.isfinite(self.rows.data)):
                raise BadData("some values are not finite (NaN or infinite)")
            return
        # Before any other computation on the device, and with public numbers.
        check_products(self.rows)
        if converted:
            return
        for block in self.blocks():
            xp = array_namespace(block.rows)
            if not bool(xp.all(xp.isfinite(block.rows))):
                self._check_missing(block.rows, frozenset(missing), names, rules)

    def _check_missing(self, rows: Array, allowed: frozenset[int], names: Sequence[str], rules: Sequence[str]) -> None:
        """Of rows that are not all finite, refuse all but NaN where that is allowed. How many there are is data.

        Parameters
        ----------
        rows : array
            Rows of a block.
        allowed, names, rules
            As for `check`.
        """
        xp = array_namespace(rows)
        gone = [at for at in range(self.columns) if at not in allowed and bool(xp.any(xp.isnan(rows[:, at])))]
        if gone and names:
            raise BadData(refusal_by_rules([names[at] for at in gone], rules))
        if gone or bool(xp.any(xp.isinf(rows))):
            raise BadData("some values are not finite (NaN or infinite)")

    def _check_runs(self, runs: Runs) -> None:
        """Refuse recordings that are not part of one unit each, or that have no positive sampling interval."""
        if len(runs.seconds) != len(runs.offsets) - 1 or not np.all(np.isfinite(runs.seconds) & (runs.seconds > 0)):
            raise BadData("every recording needs a positive number of seconds between its rows")
        ends = np.arange(self.rows.shape[0] + 1) if self.offsets is None else self.offsets
        rising = bool(np.all(np.diff(runs.offsets) > 0))
        if not rising or not np.all(np.isin(ends, runs.offsets)) or runs.offsets[-1] != self.rows.shape[0]:
            raise BadData("a recording must lie within the rows of one unit")


def fold(values: Array) -> Array:
    """The sum along axis 1, by adding the second half to the first until at most 8 are left. It overwrites its
    argument.

    The order of the additions depends on the length only, so that the result for a unit is the same in every batch.

    >>> fold(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist()
    [6.0, 15.0]
    """
    width = values.shape[1]
    while width > 8:
        half = (width + 1) // 2
        # With an odd width the middle column has no partner and stays.
        values[:, : width - half, ...] += values[:, half:width, ...]
        width = half
    total = values[:, 0, ...]
    for column in range(1, width):
        total = total + values[:, column, ...]
    return total


def pieces(length: int, most: int) -> Iterator[slice]:
    """Slices that cover `length` positions, `most` at a time.

    >>> list(pieces(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return (slice(start, min(start + most, length)) for start in range(0, length, most))


def rows_at_once(row_bytes: int, *, by_units: bool = False) -> int:
    """Number of rows that a block may hold, given the working memory per row in bytes. Rows may be added up in any
    order, so their number is also limited by BLOCK_ROWS, unless units are counted.

    >>> rows_at_once(1), rows_at_once(1 << 20), rows_at_once(1 << 40)
    (2048, 32, 1)
    """
    most = max(1, _BLOCK_BYTES // max(1, row_bytes))
    return most if by_units else min(BLOCK_ROWS, most)


def doubled(rows: Any) -> csr_array:
    """A copy of sparse rows of any format as doubles. Duplicate entries are added up afterwards, since a sum of short
    integers could wrap around. Rows that are not numbers are refused.
    """
    if rows.dtype.kind not in "biuf":
        raise BadData("sparse rows must hold real numbers")
    return csr_array(rows.astype(np.float64), copy=True)


def _check_places(rows: csr_array) -> None:
    """Refuse sparse rows with an entry outside of the table: in dense form it would overwrite numbers
    of other units.
    """
    try:
        rows.check_format(full_check=True)
    except ValueError:
        raise BadData("the sparse rows have an entry in a column that they do not have") from None


def _by_rows(rows: Array) -> Array:
    """The same rows, on the host contiguous in row order.

    NumPy adds up along the memory, and so in another order for column order (Fortran): the rounding of a mean over the
    rows of one unit would depend on the layout. Rows that have this order already are not copied.
    """
    return np.ascontiguousarray(rows) if isinstance(rows, np.ndarray) else rows


def _ends(sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Cumulative sums of sizes, with a leading 0: where parts begin and, last, end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
