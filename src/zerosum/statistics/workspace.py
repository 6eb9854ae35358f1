"""Memory to compute in that is used again: mapping fresh memory takes longer than most of what is computed there.

Tested in tests/statistics/test_workspace.py.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MOST = 1 << 23  # bytes that are kept
_LINE = 64  # bytes of a processor's cache that belong together


class Workspace:
    """Arrays out of one piece of memory, one after another. Where that is full they are fresh ones, and the next
    to use it finds more room."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, dtype=np.uint8)
        self._used = 0

    def __call__(self, *shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An array that holds anything, until the workspace is given back."""
        count = math.prod(shape) * np.dtype(dtype).itemsize
        start = self._used
        self._used += -(-count // _LINE) * _LINE
        if self._used > len(self._bytes):
            return np.empty(shape, dtype=dtype)
        return self._bytes[start : start + count].view(dtype).reshape(shape)

    def clear(self) -> None:
        """Ready for the next one, with as much room as this one wanted."""
        if len(self._bytes) < self._used <= _MOST:
            more = np.empty(self._used + _LINE, dtype=np.uint8)
            start = -more.ctypes.data % _LINE
            self._bytes = more[start : start + self._used]
        self._used = 0


_idle: deque[Workspace] = deque(maxlen=8)  # appending and popping are atomic: each thread has its own


@contextmanager
def workspace() -> Iterator[Workspace]:
    """One that nobody else uses meanwhile.

    >>> with workspace() as spare:
    ...     spare(2, 3).shape
    (2, 3)
    """
    try:
        found = _idle.pop()
    except IndexError:
        found = Workspace()
    try:
        yield found
    finally:
        found.clear()
        _idle.append(found)
