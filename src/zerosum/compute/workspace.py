"""Reused working memory: mapping fresh memory takes longer than most of the computations in it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

# The largest number of bytes that a workspace keeps (8 MiB). Chosen by hand; no benchmark recorded.
_MOST_BYTES = 1 << 23
# Bytes of a cache line of common processors. Arrays start at multiples of it.
_LINE = 64


class Workspace:
    """Arrays from one piece of memory, one after another.

    If the memory is full, arrays are allocated afresh, and the next user of the workspace finds more memory.
    """

    def __init__(self) -> None:
        self._bytes = np.empty(0, dtype=np.uint8)
        self._used = 0

    def __call__(self, *shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """An array with arbitrary contents, valid until the workspace is returned.

        Parameters
        ----------
        *shape : int
            The shape of the array.
        dtype : dtype
            Its type.
        """
        count = math.prod(shape) * np.dtype(dtype).itemsize
        start = self._used
        # Rounded up to whole cache lines, so that the next array is aligned, too.
        self._used += -(-count // _LINE) * _LINE
        if self._used > len(self._bytes):
            return np.empty(shape, dtype=dtype)
        return self._bytes[start : start + count].view(dtype).reshape(shape)

    def clear(self) -> None:
        """Prepare for the next user, with as much memory as this user requested."""
        if len(self._bytes) < self._used <= _MOST_BYTES:
            # One line more than needed, so that an aligned start exists inside.
            more = np.empty(self._used + _LINE, dtype=np.uint8)
            start = -more.ctypes.data % _LINE
            self._bytes = more[start : start + self._used]
        self._used = 0


# Idle workspaces. Appending to and popping from a deque are atomic, so that two threads never share a workspace. At
# most 8 are kept; chosen by hand.
_idle: deque[Workspace] = deque(maxlen=8)


@contextmanager
def workspace() -> Iterator[Workspace]:
    """A workspace for exclusive use in a `with` block.

    >>> with workspace() as spare:
    ...     spare(2, 3).shape
    (2, 3)
    """
    try:
        arrays = _idle.pop()
    except IndexError:
        arrays = Workspace()
    try:
        yield arrays
    finally:
        arrays.clear()
        _idle.append(arrays)
