"""How a study that is coordinated stands, in a file of its state folder, for monitors in other processes.

`status.json` has no say in anything: the journal is what a study goes on from. Whether a process is at work is told by
the journal's lock, which goes away with the process, however it ended.
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

NAME = "status.json"
BEGUN = "begun"


class Status:
    """Writes down how a study stands whenever that changes."""

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
        self._write(sites=dict(sites))

    def progressed(self, seen: Progress) -> None:
        rounds = {"rounds": seen.done} if seen.stage in ("round", "resumed") else {}
        self._write(stage=seen.stage, **rounds)

    def end(self, how: str) -> None:
        """Finished, stopped, or the error in words."""
        self._write(ended=how)

    def _write(self, **changed: Any) -> None:
        self._record |= changed | {"updated": time.time(), "traffic": asdict(self.traffic)}
        fresh = self._path.with_name(f".{NAME}")
        with suppress(OSError):  # a full disk stops the journal, which says so
            fresh.unlink(missing_ok=True)
            with open_new(fresh, private=True) as file:
                file.write((json.dumps(self._record, indent=2) + "\n").encode())
            fresh.replace(self._path)


def read_status(folder: Path) -> dict[str, Any]:
    """What was written last, whether a process is `running`, and for how long nothing changed (`quiet_seconds`)."""
    if not (folder / JOURNAL).exists():
        raise BadInput(f"{folder} is no coordinator's state folder: there is no {folder / JOURNAL}")
    running = _locked(folder / JOURNAL)  # before the record: whoever ends writes that down, then lets go
    try:
        record: dict[str, Any] = json.loads((folder / NAME).read_bytes())
        updated = float(record["updated"])
    except FileNotFoundError:  # it began, and nobody carries it out yet
        record, updated = {"stage": BEGUN, "ended": None, "rounds": 0}, (folder / JOURNAL).stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        raise BadInput(f"{folder / NAME} cannot be read") from None
    if not running and record["ended"] is None:  # it may have been taken up in between
        running = _locked(folder / JOURNAL)
    return record | {"running": running, "quiet_seconds": max(time.time() - updated, 0.0)}


def check_status(folder: Path, most_quiet: float) -> dict[str, Any]:
    """The same, or `CheckFailed` where somebody has to look: the study stopped, nothing moves, or nobody took it up."""
    record = read_status(folder)
    if record["ended"] == "finished" and not record["running"]:
        return record
    if not record["running"] and (record["stage"] != BEGUN or record["quiet_seconds"] > most_quiet):
        why = f" ({record['ended']})" if record["ended"] else ""
        raise CheckFailed(f"no process carries out the study in {folder}{why}: zerosum coordinator resume")
    if record["quiet_seconds"] > most_quiet:
        raise CheckFailed(f"nothing has moved in the study in {folder} for {record['quiet_seconds']:.0f} seconds")
    return record


def _locked(path: Path) -> bool:
    if sys.platform == "win32":
        return False
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    return False
