"""Rows of a table in memory, or beyond a limit in a file without a name.

A reader appends blocks of rows. While they fit the limit they stay in memory. After that they are written to a file
that was removed from its folder when it was opened, so that no other process can open it and nothing is left of it
after the process has ended, however it ended. The rows are then a memory-mapped array with the same values, and
statistics read it block by block (`Units.blocks`).

Rows of persons are put together by an external sort (`Spool.grouped`): one pass distributes them over files of ranges
of persons, each small enough for memory, and a second pass sorts each file. Both passes read and write in sequence.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.backends.native import interleave
from zerosum.compute.mapped import release_pages
from zerosum.disk import make_folder
from zerosum.errors import BadData, BadParameter

# Bytes of the first and of the largest chunk of rows in memory. The largest is above the size from which the C library
# returns memory to the system when it is freed (32 MiB, glibc's M_MMAP_THRESHOLD), so that joining chunks needs no
# second copy of the table.
_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 20, 1 << 26
# Bytes of a chunk on its way to a file, and of rows that are copied at a time when they are distributed. Chosen by
# hand; no benchmark recorded.
_COPY_BYTES = 1 << 24
# Part of the memory setting for one range of persons while it is sorted, and the most ranges, each an open file.
# Chosen by hand.
_RANGE_PART, _MOST_RANGES = 4, 256
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(B|KB|MB|GB|TB)?\s*", re.IGNORECASE)
_BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
Floats = NDArray[np.float64]


def memory_bytes(text: str | int) -> int:
    """Bytes of a setting such as "2 GB". Decimal prefixes: a GB has 10^9 bytes.

    >>> memory_bytes("1.5 GB"), memory_bytes(4096)
    (1500000000, 4096)
    """
    found = _SIZE.fullmatch(str(text))
    size = int(float(found[1]) * _BYTES[(found[2] or "").upper()]) if found else 0
    if size < 1:
        raise BadParameter(f'an amount of memory is a number of bytes or a text such as "2 GB", got {text!r}')
    return size


@dataclass(frozen=True)
class Storage:
    """Where rows are stored: up to `memory` bytes in memory (None: all), more in a file without a name in `folder`
    (None: the system's folder for temporary files).
    """

    memory: int | None = None
    folder: Path | None = None

    def part(self, divisor: int) -> Storage:
        """A part of the memory, and the same folder."""
        return self if self.memory is None else Storage(max(1, self.memory // divisor), self.folder)

    def beside(self, rows: object) -> Storage:
        """The memory that an array leaves; a memory-mapped one takes up none."""
        if self.memory is None or isinstance(rows, np.memmap):
            return self
        return Storage(max(1, self.memory - int(getattr(rows, "nbytes", 0))), self.folder)


IN_MEMORY = Storage()


class Spool:
    """Collects blocks of rows with the same number of columns.

    Parameters
    ----------
    columns : int
        Number of columns.
    storage : Storage
        Where the rows are stored.
    """

    def __init__(self, columns: int, storage: Storage = IN_MEMORY) -> None:
        self._columns, self._storage = columns, storage
        self._chunks: list[Floats] = []  # all full but the last one
        self._filled = 0  # rows of the last chunk
        self._file: IO[bytes] | None = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, block: Floats) -> None:
        """Add rows, shape (rows, columns)."""
        done = 0
        for room in self._rooms(len(block)):
            room[...] = block[done : done + len(room)]
            done += len(room)

    def append_columns(self, columns: Sequence[Floats]) -> None:
        """Add rows that are given by column, each of shape (rows,)."""
        done = 0
        for room in self._rooms(len(columns[0])):
            interleave(columns, done, room)
            done += len(room)

    def _rooms(self, rows: int) -> Iterator[Floats]:
        """Places for this number of further rows, in order; each is used before the next one is asked for."""
        while rows:
            if not self._chunks or self._filled == len(self._chunks[-1]):
                self._make_room()
            last = self._chunks[-1]
            count = min(rows, len(last) - self._filled)
            yield last[self._filled : self._filled + count]
            self._filled += count
            self._rows += count
            rows -= count

    def _make_room(self) -> None:
        """Add an empty chunk. Beyond the memory setting the rows so far are written to the file."""
        size = min(_FIRST_CHUNK << len(self._chunks), _LARGEST_CHUNK)
        more = max(1, size // (8 * self._columns))
        if self._file is None and (
            self._storage.memory is None or 8 * self._columns * (self._rows + more) <= self._storage.memory
        ):
            self._chunks.append(np.empty((more, self._columns)))
            self._filled = 0
            return
        self._write()
        if not self._chunks:
            self._chunks = [np.empty((max(1, _COPY_BYTES // (8 * self._columns)), self._columns))]
        self._filled = 0

    def _write(self) -> None:
        """Write the rows in memory to the file. One chunk stays for the next rows."""
        if self._file is None:
            self._file = opened(self._storage.folder)
        for chunk in self._chunks[:-1]:
            write(self._file, chunk)
        if self._chunks:
            write(self._file, self._chunks[-1][: self._filled])
        size = max(1, _COPY_BYTES // (8 * self._columns))
        self._chunks = [chunk for chunk in self._chunks[-1:] if len(chunk) == size]

    def rows(self) -> Floats:
        """All rows, shape (rows, columns): an array in memory, or a read-only memory-mapped array. The spool is empty
        afterwards."""
        count, self._rows = self._rows, 0
        if self._file is None:
            chunks, self._chunks = self._chunks, []
            if len(chunks) == 1 and len(chunks[0]) == count:
                return chunks[0]
            # The system provides memory of the new array when it is written, and takes that of a chunk back when it is
            # freed: at no time are there two copies of all rows.
            whole, start = np.empty((count, self._columns)), 0
            chunks.reverse()
            while chunks:
                chunk = chunks.pop()
                end = min(start + len(chunk), count)
                whole[start:end] = chunk[: end - start]
                start = end
                del chunk
            return whole
        self._write()
        self._chunks, file, self._file = [], self._file, None
        # The mapping stays valid after the file is closed.
        mapped = np.memmap(file, np.float64, "r", shape=(count, self._columns))
        file.close()
        return mapped

    def grouped(self, codes: NDArray[np.number]) -> tuple[Floats, NDArray[np.int64]]:
        """Rows in the order of their codes (stable), and the first row of each code, the end included.

        Parameters
        ----------
        codes : array of numbers, shape (rows,) or (rows, 1)
            Number of each row's unit, 0 to the number of units less 1; each occurs. It may be memory-mapped.

        Returns
        -------
        rows : array, shape (rows, columns)
            As `rows` returns them.
        offsets : array of int, shape (units + 1,)
            Where the rows of each unit begin.
        """
        step = max(1, _COPY_BYTES // (8 * self._columns))
        parts = _parts(codes, step)
        sizes, ordered, last = np.zeros(0, dtype=np.int64), True, 0
        for _start, some in parts():
            found = np.bincount(some, minlength=len(sizes))
            found[: len(sizes)] += sizes
            sizes = found
            ordered = ordered and last <= some[0] and bool(np.all(some[1:] >= some[:-1]))
            last = int(some[-1])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        mapped = self._file is not None
        rows = self.rows()
        if ordered:  # a query with ORDER BY, or one row per unit
            return rows, offsets
        if not mapped:
            # Stable: the rows of a unit keep their order, which in a time series is data.
            return rows[np.argsort(np.asarray(codes, dtype=np.int64).ravel(), kind="stable")], offsets
        grouped = Spool(self._columns, self._storage)
        with ExitStack() as files:
            ranges = self._distributed(rows, parts, offsets, files)
            del rows  # the unsorted file is closed before the sorted one grows
            for file, count in ranges:
                file.seek(0)
                held = np.fromfile(file, dtype=np.float64).reshape(count, self._columns + 1)
                file.close()
                order = np.argsort(held[:, -1], kind="stable")
                for start in range(0, count, step):
                    grouped.append(held[order[start : start + step], :-1])
                del held
        return grouped.rows(), offsets

    def _distributed(
        self,
        rows: Floats,
        parts: Callable[[], Iterator[tuple[int, NDArray[np.int64]]]],
        offsets: NDArray[np.int64],
        stack: ExitStack,
    ) -> list[tuple[IO[bytes], int]]:
        """The rows with their codes as last column, in one file for each range of units, in order within a range.

        Parameters
        ----------
        rows : array of shape (rows, columns)
            Memory-mapped rows.
        parts : callable
            Yields the first row and the codes of consecutive blocks of rows.
        offsets : array of int, shape (units + 1,)
            Where the rows of each unit will begin, which also divides the units into ranges of about equal size.
        stack : ExitStack
            Closes the files.

        Returns
        -------
        list of (file, int)
            The files, and the number of rows of each.
        """
        row_bytes = 8 * (self._columns + 1)
        # While a range is sorted there are its rows, and a copy of some.
        largest = max(
            _COPY_BYTES, (self._storage.memory or 0) // _RANGE_PART, len(rows) * row_bytes // _MOST_RANGES + 1
        )
        range_of = (offsets[:-1] * row_bytes // largest).astype(np.int16)
        files = [stack.enter_context(opened(self._storage.folder)) for _ in range(int(range_of[-1]) + 1)]
        counts = [0] * len(files)
        for start, some in parts():
            held = np.empty((len(some), self._columns + 1))
            held[:, :-1] = rows[start : start + len(some)]
            held[:, -1] = some
            release_pages(rows, start, start + len(some))
            where = range_of[some]
            # Stable, as above. Small integers are sorted by their digits, in linear time.
            held = held[np.argsort(where, kind="stable")]
            ends = np.cumsum(np.bincount(where, minlength=len(files))).tolist()
            for at, (first, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
                if end > first:
                    write(files[at], held[first:end])
                    counts[at] += end - first
        return [(file, count) for file, count in zip(files, counts, strict=True) if count]


def _parts(codes: NDArray[np.number], step: int) -> Callable[[], Iterator[tuple[int, NDArray[np.int64]]]]:
    """A function that yields the codes as whole numbers, `step` at a time, with the position of the first."""

    def parts() -> Iterator[tuple[int, NDArray[np.int64]]]:
        for start in range(0, len(codes), step):
            yield start, np.asarray(codes[start : start + step], dtype=np.int64).ravel()
            release_pages(codes, start, start + step)

    return parts


def opened(folder: Path | None) -> IO[bytes]:
    """A file for bytes without a name.

    Parameters
    ----------
    folder : Path or None
        Where it takes up space. None: the system's folder for temporary files.
    """
    if folder is not None:
        make_folder(folder)
    # Removed from its folder at once, mode 0600 (Python's documentation of TemporaryFile).
    return tempfile.TemporaryFile(dir=folder, prefix="rows-")


def write(file: IO[bytes], block: Floats) -> None:
    """Write rows to a file. Raises `BadData` for a full disk, and closes the file then."""
    try:
        file.write(np.ascontiguousarray(block).data)
        file.flush()  # so that a full disk is an error here
    except OSError as error:
        with suppress(OSError):  # closing tries to write the rest again
            file.close()
        raise BadData(f"rows beyond the memory setting cannot be written: {error.strerror}") from None
