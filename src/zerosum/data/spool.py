"""Rows of a table in memory, or beyond a limit in a file without a name.

A reader appends blocks of rows. While they fit the limit they stay in memory. After that they are written to a file
that was removed from its folder when it was opened, so that no other process can open it and nothing is left of it
after the process has ended, however it ended. The rows are then a memory-mapped array with the same values, and
statistics read it block by block (`Units.blocks`).
"""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.mapped import release_pages
from zerosum.disk import make_folder
from zerosum.errors import BadData, BadParameter

# Bytes that are copied at a time when rows are put into another order. Chosen by hand; no benchmark recorded.
_COPY_BYTES = 1 << 24
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


class Spool:
    """Collects blocks of rows with the same number of columns.

    Parameters
    ----------
    columns : int
        Number of columns.
    memory : int, optional
        Bytes of rows that stay in memory. Default: all.
    folder : Path, optional
        Folder of the file. Default: the system's folder for temporary files.
    """

    def __init__(self, columns: int, memory: int | None = None, folder: Path | None = None) -> None:
        self._columns, self._memory, self._folder = columns, memory, folder
        self._blocks: list[Floats] = []
        self._file: IO[bytes] | None = None
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, block: Floats) -> None:
        """Add rows, shape (rows, columns), row by row in memory. The caller must not change them afterwards."""
        self._rows += len(block)
        if self._file is None:
            self._blocks.append(block)
            # Joining the blocks needs their memory once more.
            if self._memory is None or 16 * self._columns * self._rows <= self._memory:
                return
            self._file = self._opened()
            waiting, self._blocks = self._blocks, []
        else:
            waiting = [block]
        try:
            for each in waiting:
                self._file.write(np.ascontiguousarray(each).data)
            self._file.flush()  # so that a full disk is an error here
        except OSError as error:
            with suppress(OSError):  # closing tries to write the rest again
                self._file.close()
            raise BadData(f"rows beyond the memory setting cannot be written: {error.strerror}") from None

    def _opened(self) -> IO[bytes]:
        if self._folder is not None:
            make_folder(self._folder)
        # Removed from its folder at once, mode 0600 (Python's documentation of TemporaryFile).
        return tempfile.TemporaryFile(dir=self._folder, prefix="rows-")

    def rows(self) -> Floats:
        """All rows, shape (rows, columns): an array in memory, or a read-only memory-mapped array."""
        if self._file is None:
            blocks, self._blocks = self._blocks, []
            return np.concatenate(blocks) if len(blocks) != 1 else blocks[0]
        # The mapping stays valid after the file is closed.
        mapped = np.memmap(self._file, np.float64, "r", shape=(self._rows, self._columns))
        self._file.close()
        return mapped

    def grouped(self, codes: NDArray[np.intp]) -> tuple[Floats, NDArray[np.int64]]:
        """Rows in the order of their codes (stable), and the first row of each code, the end included.

        Parameters
        ----------
        codes : array of int, shape (rows,)
            Number of each row's unit, 0 to the number of units less 1; each occurs.

        Returns
        -------
        rows : array, shape (rows, columns)
            As `rows` returns them.
        offsets : array of int, shape (units + 1,)
            Where the rows of each unit begin.
        """
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.int64)
        rows = self.rows()
        if np.all(codes[1:] >= codes[:-1]):  # a query with ORDER BY, or one row per unit
            return rows, offsets
        # Stable: the rows of a unit keep their order, which in a time series is data.
        order = np.argsort(codes, kind="stable")
        sorted_rows = Spool(self._columns, self._memory, self._folder)
        step = max(1, _COPY_BYTES // (8 * self._columns))
        for start in range(0, len(order), step):
            sorted_rows.append(np.asarray(rows[order[start : start + step]]))
            release_pages(rows, 0, len(rows))
        return sorted_rows.rows(), offsets
