"""Studies of a coordinator, read from their state folders. Nothing is written or kept open.

A study that cannot be read is listed as damaged and does not hide others. A coordinator has no access to the sites'
ledgers; costs come from the plan.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from zerosum.coordinator.journal import NAME as JOURNAL
from zerosum.coordinator.journal import Journal
from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.study.archive import ArchivedStudy
from zerosum.study.coordinating import Settings
from zerosum.study.status import BEGUN, read_status

State = Literal["begun", "gathering", "running", "finished", "refused", "failed", "stopped", "damaged"]
_MOST_CHARACTERS = 2000  # characters of an error message that are shown
# States of studies that are not over.
UNDER_WAY: tuple[State, ...] = ("begun", "gathering", "running")


@dataclass(frozen=True)
class CoordinatorStudy:
    """State of one study.

    Attributes
    ----------
    key : str
        Key in addresses.
    folder : Path
        State folder of the coordinator.
    state : State
        State shown on the page.
    stage : str
        Stage of a running study, from the status file.
    sites, losses : mapping
        Attendance, and number of missed answers, by site.
    rounds, planned : int
        Finished and planned rounds.
    ended : str
        Error message, if the study did not finish.
    plan : str
        Digest of the plan.
    started, updated : str
        ISO 8601 times in UTC.
    fault : str
        Why the folder cannot be read.
    """

    key: str
    folder: Path
    state: State
    name: str
    algorithm: str = ""
    stage: str = ""
    sites: Mapping[str, str] = field(default_factory=dict)  # site name to attendance
    losses: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 0
    planned: int = 0
    ended: str = ""  # message, if the study did not finish
    plan: str = ""  # digest
    started: str = ""
    updated: str = ""
    fault: str = ""

    @property
    def missing(self) -> list[str]:
        """Names of the sites that have not agreed."""
        return [name for name, how in self.sites.items() if how != "agreed"]


class StudyFolders:
    """Studies of some folders. Each folder is a state folder, or contains state folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.absolute() for folder in folders]
        self._plans: dict[str, tuple[str, Plan]] = {}  # key to (digest of the plan, plan)

    def all(self) -> list[CoordinatorStudy]:
        """All studies, newest first."""
        # A folder that is listed twice, or lies in a listed folder, has one key.
        folders = {key_of(folder): folder for folder in self._places()}
        # Plans of removed folders are dropped from the cache.
        for gone in self._plans.keys() - folders.keys():
            self._plans.pop(gone, None)
        studies = [self.read(folder) for folder in folders.values()]
        return sorted(studies, key=lambda study: (study.started, study.key), reverse=True)

    def find(self, key: str) -> CoordinatorStudy | None:
        """Study by key, or None."""
        folder = next((each for each in self._places() if key_of(each) == key), None)
        return None if folder is None else self.read(folder)

    def plan(self, study: CoordinatorStudy) -> Plan:
        """Plan of a study from its journal. Cached until the digest changes because sites were left out."""
        # Opening a journal verifies its chain of digests, which takes longer the more rounds it has.
        known = self._plans.get(study.key)
        if known is None or known[0] != study.plan:
            journal = Journal.inspect(study.folder)
            if journal is None:
                raise BadInput(f"there is no journal in {study.folder}")
            with journal:
                known = study.plan, journal.plan
            self._plans[study.key] = known
        return known[1]

    def result(self, study: CoordinatorStudy) -> Path | None:
        """Folder of the result, or None."""
        if study.state == "damaged":
            return None
        out = Settings.load(study.folder).out
        return out if (out / "result.json").is_file() else None

    def read(self, folder: Path) -> CoordinatorStudy:
        """State of a study; "damaged" if its folder cannot be read."""
        try:
            return self._read(folder)
        except (ZerosumError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            fault = str(error) if isinstance(error, ZerosumError) else "its state folder cannot be read"
            return CoordinatorStudy(key_of(folder), folder, "damaged", folder.name, fault=fault)

    def _read(self, folder: Path) -> CoordinatorStudy:
        """State of a study from status file and journal."""
        record = read_status(folder)
        key, running = key_of(folder), bool(record["running"])
        # The study was created and no process has run it: there is no status file, but a plan.
        if record["stage"] == BEGUN:
            plan = self.plan(CoordinatorStudy(key, folder, "begun", folder.name))
            when = _moment((folder / JOURNAL).stat().st_mtime)
            sites = {site.name: "absent" for site in plan.sites}
            return CoordinatorStudy(
                key, folder, "begun", plan.study, plan.algorithm, sites=sites, planned=plan.rounds, started=when
            )
        ended = record["ended"]
        sites, losses = record["sites"], record.get("traffic", {}).get("losses", {})
        state = _state(running, str(record["stage"]), None if ended is None else str(ended))
        if state == "refused":  # The name of the refusing site is in the error message.
            sites = {name: "refused" if f": site {name!r}: " in str(ended) else how for name, how in sites.items()}
        return CoordinatorStudy(
            key,
            folder,
            state,
            str(record["study"]),
            str(record.get("algorithm", "")),
            str(record["stage"]),
            {str(name): str(how) for name, how in sites.items()},
            {str(name): int(count) for name, count in losses.items()},
            int(record["rounds"]),
            int(record["planned"]),
            "" if ended in (None, "finished", "stopped") else _message(str(ended)),
            str(record["plan"]),
            _moment(float(record["started"])),
            _moment(float(record["updated"])),
        )

    def _places(self) -> list[Path]:
        """All state folders."""
        folders = []
        for folder in self._folders:
            try:
                if (folder / JOURNAL).exists():
                    folders.append(folder)
                else:
                    with os.scandir(folder) as entries:
                        folders += [Path(each.path) for each in entries if Path(each.path, JOURNAL).exists()]
            except OSError:  # the folder does not exist
                continue
        return folders


@dataclass(frozen=True)
class ArchiveLine:
    """An archived study of `zerosum run`."""

    id: str
    folder: Path
    name: str
    began: str
    algorithm: str
    done: bool
    fault: str = ""
    cost: str = ""  # largest exact epsilon of a site, and the budget


def archive_lines() -> list[ArchiveLine]:
    """Archived studies, newest first. Ledgers are not read."""
    return [archive_line(archived) for archived in reversed(ArchivedStudy.all())]


def archive_line(archived: ArchivedStudy) -> ArchiveLine:
    """Summary of an archived study."""
    about, algorithm, cost, fault = archived.about, "", "", ""
    place = archived.folder / "result" / "result.json"
    done = place.is_file()
    if done:
        try:
            algorithm, cost = _summary(place, place.stat().st_mtime_ns)
        except (OSError, ValueError, TypeError, KeyError):
            fault = "its result cannot be read"
    name, began = str(about["study"]), str(about["began"])
    return ArchiveLine(archived.id, archived.folder, name, began, algorithm, done, fault, cost)


# Cache: path and modification time of a result to its algorithm and its cost.
_SUMMARIES: dict[tuple[Path, int], tuple[str, str]] = {}


def _summary(place: Path, changed: int) -> tuple[str, str]:
    """Algorithm and cost of a result. Cached, because a result may be large and a list has many."""
    if (place, changed) not in _SUMMARIES:
        record = json.loads(place.read_bytes())
        privacy = record["privacy"]
        worst = max(
            (float(line["epsilon"]) for line in privacy["per_site"] if line["epsilon"] is not None), default=None
        )
        private = worst is not None and privacy["private"]
        cost = cost_text(worst or 0.0, float(privacy["epsilon"]), float(privacy["delta"])) if private else "not private"
        _SUMMARIES[place, changed] = str(record["algorithm"]), cost
    return _SUMMARIES[place, changed]


def cost_text(worst: float, budget: float, delta: float) -> str:
    """The cost of a study at the site with the largest one, and its budget.

    >>> cost_text(1.99999, 2.0, 1e-5)
    'epsilon 2.0000 of 2 at delta 1e-05'
    """
    return f"epsilon {worst:.4f} of {budget:g} at delta {delta:g}"


def key_of(folder: Path) -> str:
    """Key of a study in addresses: a digest, so that addresses do not contain paths."""
    return hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]


def _state(running: bool, stage: str, ended: str | None) -> State:
    """State of a study from status file and lock."""
    if running:
        return "gathering" if stage == "gathering" else "running"
    if ended == "finished":
        return "finished"
    if ended is None or ended == "stopped":
        return "stopped"
    # The status file stores the error class and its message.
    return "refused" if ended.startswith(("PolicyRefused", "BudgetExceeded", "Refused")) else "failed"


def _message(ended: str) -> str:
    """Error message of a study, without the error class that the status file stores before it."""
    return (ended.partition(": ")[2] or ended)[:_MOST_CHARACTERS]


def _moment(seconds: float) -> str:
    """ISO 8601 time in UTC from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def as_json(path: Path) -> dict[str, Any]:
    """JSON object of a file. Raises `BadInput`."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise BadInput(f"{path} cannot be read") from None
    if not isinstance(record, dict):
        raise BadInput(f"{path} contains no JSON object; restore it from a backup")
    return record
