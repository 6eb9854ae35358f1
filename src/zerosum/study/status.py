"""Status file of a coordinated study (`status.json` in the state folder), for monitors in other processes.

The file is informational: a study is resumed from the journal only. Whether a process is running follows from the
journal's lock, which the operating system releases when the process ends for any reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zerosum.coordinator.journal import NAME as JOURNAL
from zerosum.disk import open_new
from zerosum.engines.counted import Traffic
from zerosum.errors import BadInput, CheckFailed
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import Progress

if sys.platform != "win32":
    import fcntl

# File name in the state folder.
NAME = "status.json"
# Stage of a study that has a journal and no process yet.
BEGUN = "begun"


class Status:
    """Writes the status file at every change.

    Parameters
    ----------
    folder : Path
        State folder of the coordinator.
    plan : Plan
        The plan that is run.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._path, self.traffic = folder / NAME, Traffic()
        self._record: dict[str, Any] = {
            "study": plan.study,
            "plan": plan.digest(),
            "pid": os.getpid(),
            "started": time.time(),
            "stage": "gathering",
            "sites": {site.name: "absent" for site in plan.sites},
            "rounds": 0,
            "planned": plan.rounds,
            "algorithm": plan.algorithm,
            "ended": None,
        }
        self._write()

    def attended(self, sites: Mapping[str, str]) -> None:
        """Record the attendance of the sites."""
        self._write(sites=dict(sites))

    def progressed(self, progress: Progress) -> None:
        """Record a progress report."""
        rounds = {"rounds": progress.done} if progress.stage in ("round", "resumed") else {}
        self._write(stage=progress.stage, **rounds)

    def end(self, how: str) -> None:
        """Record the end: "finished", "stopped" or an error message."""
        self._write(ended=how)

    def _write(self, **changed: Any) -> None:
        """Merge changes into the record and replace the file atomically."""
        self._record |= changed | {"updated": time.time(), "traffic": asdict(self.traffic)}
        # In the same folder, since a rename is atomic within one file system only.
        replacement = self._path.with_name(f".{NAME}")
        with suppress(OSError):  # A full disk stops the study at the journal, which reports it.
            replacement.unlink(missing_ok=True)
            with open_new(replacement, private=True) as file:
                file.write((json.dumps(self._record, indent=2) + "\n").encode())
            replacement.replace(self._path)


def read_status(folder: Path) -> dict[str, Any]:
    """Latest status with `running` (whether a process holds the journal) and `quiet_seconds` (seconds since the last
    write)."""
    if not (folder / JOURNAL).exists():
        raise BadInput(f"{folder} is not a coordinator's state folder: there is no {folder / JOURNAL}")
    # The lock is tested before the record is read. A process writes its end first and releases the lock afterwards.
    running = _locked(folder / JOURNAL)
    try:
        record: dict[str, Any] = json.loads((folder / NAME).read_bytes())
        updated = float(record["updated"])
    except FileNotFoundError:  # The journal exists, and no process has started yet.
        record, updated = {"stage": BEGUN, "ended": None, "rounds": 0}, (folder / JOURNAL).stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        raise BadInput(f"{folder / NAME} cannot be read") from None
    if not running and record["ended"] is None:  # A process may have started between the two reads.
        running = _locked(folder / JOURNAL)
    return record | {"running": running, "quiet_seconds": max(time.time() - updated, 0.0)}


def check_status(folder: Path, most_quiet: float) -> dict[str, Any]:
    """The status, or `CheckFailed` if the study stopped, made no progress for `most_quiet` seconds, or was not
    started.

    Parameters
    ----------
    folder : Path
        State folder of the coordinator.
    most_quiet : float
        Seconds without a write after which the study counts as stuck.
    """
    record = read_status(folder)
    if record["ended"] == "finished" and not record["running"]:
        return record
    # A study whose folder was just made has no process for a moment, which is no fault.
    if not record["running"] and (record["stage"] != BEGUN or record["quiet_seconds"] > most_quiet):
        why = f" ({record['ended']})" if record["ended"] else ""
        raise CheckFailed(f"no process runs the study in {folder}{why}: zerosum coordinator resume")
    if record["quiet_seconds"] > most_quiet:
        raise CheckFailed(f"the study in {folder} has made no progress for {record['quiet_seconds']:.0f} seconds")
    return record


def _locked(path: Path) -> bool:
    """Whether another process holds the lock of the journal. Always False on Windows, which has no flock."""
    if sys.platform == "win32":
        return False
    try:
        with path.open("rb") as file:
            # A shared lock fails only beside the exclusive one of a coordinator, so that two monitors do not see each
            # other.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    return False
