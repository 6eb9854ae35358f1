"""What a monitor must know about a site before a study finds it out: disks, ledger, clock, and decisions that wait.

The serving process checks itself whenever it writes its metrics, and `zerosum site health` checks again. Nothing here
is sent over the socket.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from zerosum.errors import LedgerRefused
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.site.policy import Policy

PROBE = 1 << 16  # bytes of the file that is written as a test: more than a record of the ledger and its log take
CLOCK = 60.0  # s that the clock may be behind the last record, for clocks that are set by the network


@dataclass(frozen=True)
class Limits:
    """Thresholds.

    Parameters
    ----------
    disk_free : int
        Least free space in bytes on the disks of the state folder, the ledger and its counter.
    decide_seconds : float
        Longest time in seconds that a plan may wait for the steward.
    """

    disk_free: int
    decide_seconds: float


def faults(policy: Policy, folder: Path, consents: Consents, limits: Limits, ledger: Ledger | None) -> list[str]:
    """Everything that is wrong, in sentences for the operator; empty for a healthy site.

    Parameters
    ----------
    policy : Policy
        Names the ledger and its counter.
    folder : Path
        The state folder.
    consents : Consents
        The store of decisions.
    limits : Limits
        The thresholds.
    ledger : Ledger or None
        The open ledger; None if there is none yet.
    """
    return [
        *_disks({folder, policy.ledger_path.parent, policy.counter_path.parent}, limits.disk_free),
        *([] if ledger is None else _clock(ledger)),
        *_waiting(consents, limits.decide_seconds),
    ]


def _disks(folders: set[Path], least: int) -> Iterator[str]:
    """Folders that cannot be written, and disks that are nearly full."""
    for folder in sorted(folders):
        if not folder.is_dir():  # before the first release; it is made then
            continue
        # A user who may only read cannot test this. The serving process does, and its figures show the result.
        if os.access(folder, os.W_OK) and (why := _write(folder)):
            yield f"{folder} cannot be written: {why}"
        with suppress(OSError):
            if (free := shutil.disk_usage(folder).free) < least:
                yield (
                    f"the disk of {folder} is nearly full: {free / 1e6:.0f} MB are free, "
                    f"{least / 1e6:.0f} MB are the least (limits.disk_free)"
                )


def _write(folder: Path) -> str:
    """Write and sync a file without a name; the reason if that fails."""
    try:
        # Free space as the system reports it is no proof: quotas and read-only mounts show only when something is
        # written.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _clock(ledger: Ledger) -> Iterator[str]:
    """A ledger that cannot be read, and a clock that is behind its last record."""
    try:
        # Steps of a phase are draws, which are recorded later than the entry that paid for them.
        times = [each.recorded for each in ledger.entries()[-1:]] + [each.recorded for each in ledger.draws()[-1:]]
    except LedgerRefused as error:
        yield str(error)
        return
    last = max((datetime.fromisoformat(each).timestamp() for each in times), default=0.0)
    if (behind := last - time.time()) > CLOCK:
        yield f"the clock is {behind:.0f} s behind the last record of the ledger: set it before the next study"


def _waiting(consents: Consents, most: float) -> Iterator[str]:
    """Plans that have waited for the steward for too long."""
    for digest, since in consents.waiting_since():
        if (age := time.time() - since) > most:
            yield f"the plan {digest} has waited for the steward for {age / 3600:.0f} hours"
