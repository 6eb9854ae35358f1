"""Thread-safe cache of one value with a time to live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class TimedCache(Generic[Value]):
    """Cache of the result of `read` for `seconds` seconds. Concurrent callers wait for one call of `read`."""

    def __init__(self, read: Callable[[], Value], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._mutex = threading.Lock()
        self._entry: tuple[float, Value] | None = None

    def __call__(self) -> Value:
        """The cached value, read again if it is too old."""
        with self._mutex:
            # The lock is held while `read` runs: ten open pages cause one reading of the files, not ten. A failed
            # reading is not stored, so the next caller tries again.
            if self._entry is None or time.monotonic() - self._entry[0] > self._seconds:
                self._entry = time.monotonic(), self._read()
            return self._entry[1]

    def forget(self) -> None:
        """Discard the cached value, after a change."""
        with self._mutex:
            self._entry = None
