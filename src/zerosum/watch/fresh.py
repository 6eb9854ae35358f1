"""What takes a moment to read, read at most so often, whoever asks.

Tested in tests/watch/test_own_site.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Fresh(Generic[Value]):
    """Calls `read` again only once its last answer is `seconds` old; threads that ask meanwhile wait for one answer."""

    def __init__(self, read: Callable[[], Value], seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._mutex = threading.Lock()
        self._known: tuple[float, Value] | None = None

    def __call__(self) -> Value:
        with self._mutex:
            if self._known is None or time.monotonic() - self._known[0] > self._seconds:
                self._known = time.monotonic(), self._read()
            return self._known[1]

    def forget(self) -> None:
        """Something was changed here: read again."""
        with self._mutex:
            self._known = None
