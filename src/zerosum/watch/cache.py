"""Thread-safe caches: one value with a time to live, and the most recently used values by key."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
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


class RecentCache(Generic[Value]):
    """Cache of the `size` values that were used last, by key."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._mutex = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, or None. It counts as used."""
        with self._mutex:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Hashable, value: Value) -> Value:
        """Store a value and return it. The values that were not used for the longest time are discarded."""
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._size:
                self._values.popitem(last=False)
        return value
