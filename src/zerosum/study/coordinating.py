"""Coordinator as a separate process: state folder, start, resume, and sites behind sockets.

Files of the state folder:

    settings.json   paths of the study file, the sites' sockets and the result, and the time-outs
    journal         the plan, the requests and the releases; see `zerosum.coordinator.journal`
    status.json     progress, for monitors; see `zerosum.study.status`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zerosum.coordinator.consent import Attendance, OnAttendance, dismiss, gather
from zerosum.coordinator.journal import NAME as JOURNAL
from zerosum.coordinator.journal import Journal
from zerosum.engines.base import Engine
from zerosum.engines.counted import TrafficCounter
from zerosum.engines.sockets import FRAME_BYTES, Sockets
from zerosum.engines.tree import Tree
from zerosum.errors import BadInput, BadStudy, Refused, ZerosumError, first_fault
from zerosum.kernel.plan import Plan
from zerosum.protocol.progress import Observer, Progress, nobody
from zerosum.report.build import PAGE
from zerosum.report.record import Result, check_target, write_whole
from zerosum.report.signature import coordinator_key, key_place
from zerosum.study.planning import resolve
from zerosum.study.running import execute
from zerosum.study.status import Status
from zerosum.study.study_file import Study

Connect = Callable[[Plan], AbstractContextManager[Engine]]


class Settings(BaseModel):
    """Settings of one coordinated study, stored in the state folder so that the study can be resumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: Path
    out: Path
    sites: dict[str, Path] = Field(default_factory=dict)
    seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)  # s, time-out of one reply
    wait: float = Field(default=86400.0, gt=0, allow_inf_nan=False)  # s, time-out until all sites have consented
    every: float = Field(default=2.0, gt=0, allow_inf_nan=False)  # s between two requests for consent to one site
    patience: float = Field(default=60.0, gt=0, allow_inf_nan=False)  # s, wait for absent sites after the first round
    # s without a reply after which a FLARE relay counts as lost
    ping: float = Field(default=2.0, gt=0, allow_inf_nan=False)
    frame_bytes: int = Field(default=FRAME_BYTES, gt=0)
    # s, silence of a site before the first round after which a FLARE job ends, since a relay that was killed does not
    # come back within its job; chosen by hand
    absent: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    nodes: dict[str, str] = Field(default_factory=dict)  # public key (PEM) of each site's node, where Flower carries
    # Signing key of the report, also when another user resumes the study. None: the key of the current user.
    key: Path | None = None

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read `settings.json` of a state folder. Raises `BadInput` if it is missing or damaged."""
        path = folder / "settings.json"
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError:
            raise BadInput(f"{folder} is not a coordinator's state folder: there is no {path}") from None
        except ValidationError as error:
            raise BadInput(f"{path} is damaged: {first_fault(error)}") from None

    def save(self, folder: Path) -> None:
        """Write `settings.json`, readable by the owner only."""
        path = folder / "settings.json"
        path.unlink(missing_ok=True)
        write_whole(path, json.dumps(self.model_dump(mode="json"), indent=2).encode(), private=True)

    def connect(self, plan: Plan) -> AbstractContextManager[Engine]:
        """Engine that reaches the sites through the sockets named in these settings."""
        # A site at the top answers when all sites below it have answered, or have timed out one level after the other.
        seconds = self.seconds * plan.tree.levels
        return closing(Sockets(self.sites, plan.digest(), seconds=seconds, frame_bytes=self.frame_bytes))


def begin(settings: Settings, folder: Path, plan: Plan | None = None) -> Plan:
    """Create the state folder of a study and write its plan to the journal. No site is contacted.

    Parameters
    ----------
    settings : Settings
        Where the study file, the sites and the result are.
    folder : Path
        The state folder; it must not hold a journal.
    plan : Plan, optional
        An approved plan of the same study file. By default a new plan is made.

    Returns
    -------
    Plan
        The plan that is in the journal.

    Raises
    ------
    Refused
        If the folder holds a study, or the plan is of another study.
    BadStudy
        If a site has no identity on the roster or no socket.
    """
    if (folder / JOURNAL).exists():
        raise Refused(f"the folder {folder} already contains a study: resume it, or choose another folder")
    # Before anything is written: a study whose result cannot be stored must not begin.
    check_target(settings.out)
    study = Study.load(settings.study)
    new_plan = study.plan()
    if plan is not None and plan.public_digest != new_plan.public_digest:
        raise Refused("the plan is of another study: make it again, or restore the study file it was made from")
    # The key is fixed at the start, so that another user who resumes the study signs with the same key.
    # Absolute, since the study may be resumed from another folder.
    settings = settings.model_copy(update={"key": settings.key or key_place().absolute()})
    identity = coordinator_key(plan or new_plan, settings.key)
    chosen = plan or replace(new_plan, coordinator=identity.public.hex())
    if unknown := [site.name for site in chosen.sites if site.identity is None]:
        raise BadStudy(f"the roster has no identity for {', '.join(map(repr, unknown))}: zerosum site init prints it")
    if settings.sites and (missing := [name for name in chosen.tree.top if name not in settings.sites]):
        raise BadStudy(f"there is no address for {', '.join(map(repr, missing))}: give --site NAME=SOCKET")
    # The settings are written first: a folder with a journal always has settings.
    settings.save(folder)
    Journal.create(folder, chosen).close()
    return chosen


def leave_out(folder: Path, names: Sequence[str]) -> Plan:
    """Continue without sites that were lost before the first release, if the plan permits absences. Returns the new
    plan."""
    with _journal(folder) as journal:
        journal.leave_out(names)
        return journal.plan


def give_up(folder: Path, connect: Connect | None = None) -> Plan:
    """End a study that will not be resumed: its sites release their places and the budget that they hold for it.

    A study that was abandoned after its first round keeps its place at every site, for two days by default, because it
    may be resumed under the same keys. What was spent stays spent. Sites that are away release the place later, when
    they received nothing for that time. A resumed study needs another attempt of its plan.

    Parameters
    ----------
    folder : Path
        The state folder.
    connect : callable, optional
        Makes an engine for a plan. By default the sockets of the settings.

    Returns
    -------
    Plan
        The plan of the study.

    Raises
    ------
    BadInput
        If there is no study in the folder.
    Refused
        If the study is finished, so that no site holds a place, or another process runs it.
    """
    settings = Settings.load(folder)
    with _journal(folder) as journal:
        plan = journal.plan
        if journal.finished:
            raise Refused("the study is finished: no site holds a place for it")
        with (connect or settings.connect)(plan) as engine:
            dismiss(Tree(plan, engine), [site.name for site in plan.sites])
        status = Status(folder, plan)
        status.progressed(Progress("resumed", len(journal.released_rounds()), plan.rounds))
        status.end("given up")
    return plan


def fewest(folder: Path) -> int:
    """Smallest number of sites with which the study in a state folder can be resumed."""
    journal = Journal.inspect(folder)
    if journal is None:
        raise BadInput(f"there is nothing to resume in {folder}: no study was begun there")
    with journal:
        if not journal.rounds:
            raise Refused(
                "no round was begun yet: a study begins with all sites, or leaves sites out as its plan allows"
            )
        return len(journal.plan.sites) - journal.spare


def _journal(folder: Path) -> Journal:
    """Open the journal of a state folder for writing. Raises `BadInput` if there is none."""
    journal = Journal.open(folder)
    if journal is None:
        raise BadInput(f"there is nothing to resume in {folder}: no study was begun there")
    return journal


def coordinate(
    folder: Path,
    on_attendance: OnAttendance,
    observer: Observer = nobody,
    connect: Connect | None = None,
    *,
    absent: float | None = None,
) -> Result:
    """Run or resume the study of a state folder and write its result. Finished rounds are not requested again.

    Parameters
    ----------
    folder : Path
        State folder made by `begin`.
    on_attendance : callable
        Receives the attendance of the sites while they are gathered.
    observer : callable
        Receives progress reports. An exception of `on_attendance` or `observer` stops the study between two rounds, so
        that it can be resumed.
    connect : callable, optional
        Makes an engine for a plan. By default the sockets of the settings.
    absent : float, optional
        Seconds after which a site that does not answer before the first round ends this run; None: `wait` only.

    Returns
    -------
    Result
        The result, which is also in the folder `out` of the settings.
    """
    settings = Settings.load(folder)
    study = Study.load(settings.study)
    # The journal is locked for the whole run, so that a second `resume` is refused.
    with _journal(folder) as journal:
        plan = journal.plan
        # Raises if the key is not the one named in the plan, before the first request.
        identity = coordinator_key(plan, settings.key)
        if study.plan().public_digest != journal.original.public_digest:
            raise Refused(f"the study file {settings.study} has changed since the plan was made")
        # Resolved with the original roster, so that parameters do not change when sites are left out.
        algorithm = resolve(study.build_algorithm(), journal.original)
        status = Status(folder, plan)

        def record_attendance(sites: Mapping[str, Attendance]) -> None:
            # The status first, since the callback of the caller may stop the study.
            status.attended(sites)
            on_attendance(sites)

        def record_progress(progress: Progress) -> None:
            status.progressed(progress)
            observer(progress)

        try:
            with (connect or settings.connect)(plan) as engine:
                over = journal.finished
                traffic = TrafficCounter(engine, status.traffic)
                sites = Tree(plan, traffic, seconds=settings.seconds, traffic=status.traffic)
                try:
                    # A finished study has its releases in the journal: no site is asked again.
                    if not over:
                        gather(
                            plan,
                            sites,
                            record_attendance,
                            seconds=settings.wait,
                            every=settings.every,
                            spare=journal.spare,
                            patience=settings.patience,
                            resumed=journal.rounds > 0,
                            absent=absent,
                        )
                    result = execute(plan, algorithm, sites, record_progress, journal)
                except ZerosumError:
                    # After the first round the sites keep their keys, because the study may be resumed with them.
                    if not journal.rounds:
                        dismiss(Tree(plan, engine), [site.name for site in plan.sites])
                    raise
                if not over:
                    dismiss(Tree(plan, engine), result.participants[-1] if result.participants else ())
            # Both files are tested, since an earlier process may have been killed between the two.
            if not (settings.out / "result.json").exists():
                result.write(settings.out)
            if not (settings.out / PAGE).exists():
                study.illustrate(settings.out, result, identity)
        except BaseException as error:
            # Messages of other errors may hold paths or values, and monitors read this file.
            status.end(f"{type(error).__name__}: {error}" if isinstance(error, ZerosumError) else "stopped")
            raise
        status.end("finished")
    return result
