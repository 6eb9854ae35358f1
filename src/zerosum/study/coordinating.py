"""A coordinator that is a process of its own: it survives in its state folder, and its sites are behind sockets.

    settings.json   where the study file, the sites' sockets and the place for the result are, and the time-outs
    journal         the plan, what was asked and what was released; see `zerosum.coordinator.journal`
    status.json     how it stands, for monitors; see `zerosum.study.status`

Tested in tests/cli/test_coordinators.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zerosum.coordinator.gather import Attendance, OnAttendance, dismiss, gather
from zerosum.coordinator.journal import NAME as JOURNAL
from zerosum.coordinator.journal import Journal
from zerosum.engines.base import Engine
from zerosum.engines.counted import Counted
from zerosum.engines.sockets import FRAME_BYTES, Sockets
from zerosum.errors import BadInput, BadStudy, Refused, ZerosumError, first_fault
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import Observer, Progress, nobody
from zerosum.report.compose import PAGE
from zerosum.report.record import Result, check_target, write_whole
from zerosum.report.signature import coordinator_key, key_place
from zerosum.study.planning import resolve
from zerosum.study.running import execute
from zerosum.study.schema import Study
from zerosum.study.status import Status

Connect = Callable[[Plan], AbstractContextManager[Engine]]


class Settings(BaseModel):
    """How a study is coordinated; kept, so that it can go on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Path
    out: Path
    sites: dict[str, Path] = Field(default_factory=dict)
    seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)  # for each reply
    wait: float = Field(default=86400.0, gt=0, allow_inf_nan=False)  # until everybody has agreed
    every: float = Field(default=2.0, gt=0, allow_inf_nan=False)  # how long until a site that has not is asked again
    patience: float = Field(default=60.0, gt=0, allow_inf_nan=False)  # for sites that are away, once it was under way
    ping: float = Field(default=2.0, gt=0, allow_inf_nan=False)  # over FLARE: until a relay that is silent is lost
    frame_bytes: int = Field(default=FRAME_BYTES, gt=0)
    key: Path | None = None  # that its report is signed with, wherever it is carried out; None: this user's

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / "settings.json"
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError:
            raise BadInput(f"{folder} is no coordinator's state folder: there is no {path}") from None
        except ValidationError as error:
            raise BadInput(f"{path} is damaged: {first_fault(error)}") from None

    def save(self, folder: Path) -> None:
        path = folder / "settings.json"
        path.unlink(missing_ok=True)
        write_whole(path, json.dumps(self.model_dump(mode="json"), indent=2).encode(), private=True)

    def connect(self, plan: Plan) -> AbstractContextManager[Engine]:
        """Sites behind the sockets that these settings name."""
        return closing(Sockets(self.sites, plan.digest(), seconds=self.seconds, frame_bytes=self.frame_bytes))


def begin(settings: Settings, folder: Path, plan: Plan | None = None) -> Plan:
    """Write down, before anybody is asked, what will be asked of whom: the plan given, or a new one."""
    if (folder / JOURNAL).exists():
        raise Refused(f"the folder {folder} holds a study already: resume it, or choose another folder")
    check_target(settings.out)
    study = Study.load(settings.study)
    fresh = study.plan()
    if plan is not None and plan.public_digest != fresh.public_digest:
        raise Refused("the plan is of another study: make it again, or bring back the study file it was made of")
    settings = settings.model_copy(update={"key": settings.key or key_place().absolute()})
    identity = coordinator_key(plan or fresh, settings.key)
    chosen = plan or replace(fresh, coordinator=identity.public.hex())
    if unknown := [site.name for site in chosen.sites if site.identity is None]:
        raise BadStudy(f"the roster has no identity for {', '.join(map(repr, unknown))}: zerosum site init prints it")
    if settings.sites and (missing := [site.name for site in chosen.sites if site.name not in settings.sites]):
        raise BadStudy(f"nobody said where {', '.join(map(repr, missing))} can be reached")
    settings.save(folder)
    Journal.create(folder, chosen).close()
    return chosen


def leave_out(folder: Path, names: Sequence[str]) -> Plan:
    """Go on without sites that were lost before anything was asked, as the plan allows; returns what is asked now."""
    with _journal(folder) as journal:
        journal.leave_out(names)
        return journal.plan


def fewest(folder: Path) -> int:
    """With how many sites the study of a folder can go on."""
    journal = Journal.inspect(folder)
    if journal is None:
        raise BadInput(f"there is nothing to resume in {folder}: the study did not begin")
    with journal:
        if not journal.rounds:
            raise Refused("nothing was asked yet: a study begins with everybody, or leaves sites out by its plan")
        return len(journal.plan.sites) - journal.spare


def _journal(folder: Path) -> Journal:
    journal = Journal.open(folder)
    if journal is None:
        raise BadInput(f"there is nothing to resume in {folder}: the study did not begin")
    return journal


def coordinate(
    folder: Path, on_attendance: OnAttendance, observer: Observer = nobody, connect: Connect | None = None
) -> Result:
    """Carry out the study of a state folder, from wherever it was, and write its result. What is over is not asked
    again. What `on_attendance` or `observer` raises stops it where it can go on: no round is under way then."""
    settings = Settings.load(folder)
    study = Study.load(settings.study)
    with _journal(folder) as journal:
        plan = journal.plan
        identity = coordinator_key(plan, settings.key)  # refuses another's, before anything is asked
        if study.plan().public_digest != journal.original.public_digest:
            raise Refused(f"the study file {settings.study} has changed since the plan was made of it")
        algorithm = resolve(study.build_algorithm(), journal.original)  # as planned, whoever was left out since
        status = Status(folder, plan)

        def attended(sites: Mapping[str, Attendance]) -> None:
            status.attended(sites)
            on_attendance(sites)

        def progressed(seen: Progress) -> None:
            status.progressed(seen)
            observer(seen)

        try:
            with (connect or settings.connect)(plan) as engine:
                counted, over = Counted(engine, status.traffic), journal.finished
                try:
                    if not over:
                        times = {"seconds": settings.wait, "every": settings.every, "patience": settings.patience}
                        gather(plan, counted, attended, spare=journal.spare, **times)
                    result = execute(plan, algorithm, counted, progressed, journal)
                except ZerosumError:
                    if not journal.rounds:  # else it may be resumed under the keys that sites have
                        dismiss(engine, [site.name for site in plan.sites])
                    raise
                if not over:
                    dismiss(engine, result.participants[-1] if result.participants else ())
            if not (settings.out / "result.json").exists():
                result.write(settings.out)
            if not (settings.out / PAGE).exists():
                study.illustrate(settings.out, result, identity)
        except BaseException as error:
            status.end(f"{type(error).__name__}: {error}" if isinstance(error, ZerosumError) else "stopped")
            raise
        status.end("finished")
    return result
