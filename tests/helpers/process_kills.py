"""Processes that are killed, at moments that a test chooses."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from zerosum.protocol.progress import Progress


@dataclass
class Killer:
    """Kills its own process so many calls of functions, Python's or C's, after the sites have agreed."""

    calls: int
    stage: str

    def __call__(self, seen: Progress) -> None:
        if seen.stage == self.stage and seen.done == seen.planned:
            left = count(self.calls, -1)

            def look(frame: object, event: str, argument: object) -> None:
                if next(left) <= 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(look)


def in_a_child(work: Callable[[], object]) -> bool:
    """Whether a forked process came to the end of its work, or was killed on the way."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0
