"""A coordinator's studies, as their state folders tell of them. Everything is only read, and nothing is kept open.

What cannot be read is a study that is damaged: it hides no other. Of sites' ledgers a coordinator sees nothing; what a
study costs stands in its plan.

Tested in tests/watch/test_coordinated.py.
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
from zerosum.study.coordinating import Settings
from zerosum.study.kept import Kept
from zerosum.study.status import BEGUN, read_status

State = Literal["begun", "gathering", "running", "finished", "refused", "failed", "stopped", "damaged"]
_WORDS = 2000  # characters of what a site has to say about why not
UNDER_WAY: tuple[State, ...] = ("begun", "gathering", "running")


@dataclass(frozen=True)
class Coordinated:
    """How one study stands."""

    key: str
    folder: Path
    state: State
    name: str
    algorithm: str = ""
    stage: str = ""
    sites: Mapping[str, str] = field(default_factory=dict)  # and whether they have agreed
    losses: Mapping[str, int] = field(default_factory=dict)
    rounds: int = 0
    planned: int = 0
    ended: str = ""  # in words, where it was not the end that was hoped for
    plan: str = ""  # digest
    started: str = ""
    updated: str = ""
    fault: str = ""


class Coordinator:
    """The studies of some folders: each holds one study, or folders of studies."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.absolute() for folder in folders]
        self._plans: dict[str, tuple[str, Plan]] = {}  # by key: the digest that was asked for, and what was found

    def all(self) -> list[Coordinated]:
        """Every study, the newest first."""
        found = {key_of(folder): folder for folder in self._places()}
        for gone in self._plans.keys() - found.keys():
            self._plans.pop(gone, None)
        studies = [self.read(folder) for folder in found.values()]
        return sorted(studies, key=lambda study: (study.started, study.key), reverse=True)

    def find(self, key: str) -> Coordinated | None:
        """By its key; None if there is no such study, or none any more."""
        folder = next((each for each in self._places() if key_of(each) == key), None)
        return None if folder is None else self.read(folder)

    def plan(self, study: Coordinated) -> Plan:
        """What is asked, from the journal; read once, unless sites are left out since."""
        known = self._plans.get(study.key)
        if known is None or known[0] != study.plan:
            journal = Journal.inspect(study.folder)
            if journal is None:
                raise BadInput(f"there is no journal in {study.folder}")
            with journal:
                known = study.plan, journal.plan
            self._plans[study.key] = known
        return known[1]

    def result(self, study: Coordinated) -> Path | None:
        """Where the result lies, if there is one."""
        if study.state == "damaged":
            return None
        out = Settings.load(study.folder).out
        return out if (out / "result.json").is_file() else None

    def read(self, folder: Path) -> Coordinated:
        try:
            return self._read(folder)
        except (ZerosumError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            said = str(error) if isinstance(error, ZerosumError) else "its state folder cannot be read"
            return Coordinated(key_of(folder), folder, "damaged", folder.name, fault=said)

    def _read(self, folder: Path) -> Coordinated:
        record = read_status(folder)
        key, running = key_of(folder), bool(record["running"])
        if record["stage"] == BEGUN:
            plan = self.plan(Coordinated(key, folder, "begun", folder.name))
            when = _moment((folder / JOURNAL).stat().st_mtime)
            sites = {site.name: "absent" for site in plan.sites}
            return Coordinated(
                key, folder, "begun", plan.study, plan.algorithm, sites=sites, planned=plan.rounds, started=when
            )
        ended = record["ended"]
        sites, losses = record["sites"], record.get("traffic", {}).get("losses", {})
        state = _state(running, str(record["stage"]), None if ended is None else str(ended))
        if state == "refused":  # by whom, the error says
            sites = {name: "refused" if f": site {name!r}: " in str(ended) else how for name, how in sites.items()}
        return Coordinated(
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
            "" if ended in (None, "finished", "stopped") else (str(ended).partition(": ")[2] or str(ended))[:_WORDS],
            str(record["plan"]),
            _moment(float(record["started"])),
            _moment(float(record["updated"])),
        )

    def _places(self) -> list[Path]:
        found = []
        for folder in self._folders:
            try:
                if (folder / JOURNAL).exists():
                    found.append(folder)
                else:
                    with os.scandir(folder) as entries:
                        found += [Path(each.path) for each in entries if Path(each.path, JOURNAL).exists()]
            except OSError:  # not there yet, or no longer
                continue
        return found


@dataclass(frozen=True)
class KeptLine:
    """A study of `zerosum run` that was kept on this machine."""

    id: str
    folder: Path
    name: str
    began: str
    algorithm: str
    done: bool
    fault: str = ""


def kept_studies() -> list[KeptLine]:
    """All of them, the newest first; what they cost stands in ledgers, which are not read here."""
    return [kept_line(kept) for kept in reversed(Kept.all())]


def kept_line(kept: Kept) -> KeptLine:
    about, algorithm, fault = kept.about, "", ""
    place = kept.folder / "result" / "result.json"
    done = place.is_file()
    if done:
        try:
            algorithm = _algorithm(place, place.stat().st_mtime_ns)
        except (OSError, ValueError, TypeError, KeyError):
            fault = "its result cannot be read"
    return KeptLine(kept.id, kept.folder, str(about["study"]), str(about["began"]), algorithm, done, fault)


_ALGORITHMS: dict[tuple[Path, int], str] = {}


def _algorithm(place: Path, changed: int) -> str:
    """Read once: a result may be long, and a list has many."""
    if (place, changed) not in _ALGORITHMS:
        _ALGORITHMS[place, changed] = str(json.loads(place.read_bytes())["algorithm"])
    return _ALGORITHMS[place, changed]


def key_of(folder: Path) -> str:
    """What a study is called in an address: nothing of its folder's path."""
    return hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]


def _state(running: bool, stage: str, ended: str | None) -> State:
    if running:
        return "gathering" if stage == "gathering" else "running"
    if ended == "finished":
        return "finished"
    if ended is None or ended == "stopped":
        return "stopped"
    return "refused" if ended.startswith(("PolicyRefused", "BudgetExceeded", "Refused")) else "failed"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def as_json(path: Path) -> dict[str, Any]:
    """A record from a file, or `BadInput`."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise BadInput(f"{path} cannot be read") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} is not as it was written")
    return found
