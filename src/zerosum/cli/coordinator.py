"""`zerosum coordinator`: run, resume and check a study as its coordinator.

A coordinated study lives in a state folder (`zerosum.study.coordinating`): settings, journal and status. `run` creates
the folder and continues as `resume` does, so that both commands have one path. The journal has every request before it
is sent and every release before it is used: a process that ends at any moment can be resumed, and a released round is
not requested again.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import (
    AgreementSeconds,
    Anyway,
    ApprovedPlan,
    Json,
    Patience,
    ProposalSeconds,
    PublicStudyFile,
    ReplySeconds,
    ResultFolder,
    StateOption,
    coordinator_app,
)
from zerosum.cli.log import LogJson, log_event, start_logging
from zerosum.errors import BadParameter
from zerosum.kernel.names import counted, visible
from zerosum.protocol.progress import Progress

if TYPE_CHECKING:
    from zerosum.report.record import Result


@coordinator_app.command("run")
def coordinator_run(
    study: PublicStudyFile,
    state: Annotated[Path, typer.Option(help="A new folder for the study's state, from which it can be resumed.")],
    out: ResultFolder,
    site: Annotated[list[str], typer.Option(help="NAME=SOCKET: where a site listens.")],
    plan: ApprovedPlan = None,
    seconds: ReplySeconds = 600.0,
    wait: AgreementSeconds = 86400.0,
    every: ProposalSeconds = 2.0,
    patience: Patience = 60.0,
    anyway: Anyway = False,
    log_json: LogJson = False,
    json_: Json = False,
) -> None:
    """Wait until every site has agreed, run the study, and write its result. Stopped or killed, it can be resumed."""
    from zerosum.report.record import read_plan
    from zerosum.study import Study
    from zerosum.study.coordinating import Settings, begin

    times = {"seconds": seconds, "wait": wait, "every": every, "patience": patience}
    # Zero would give up on every site at once, and infinity would wait for a lost one without end.
    if not all(0 < each < float("inf") for each in times.values()):
        raise BadParameter("--seconds, --wait, --every and --patience must be positive")
    sites = dict(_site_address(each) for each in site)
    settings = Settings.model_validate({"study": study.absolute(), "out": out.absolute(), "sites": sites, **times})
    # A study whose plan was approved was judged then.
    if plan is None and not anyway and (outlook := Study.load(study).outlook()) is not None:
        outlook.check()
    # From here on the study exists in its folder; `begin` has checked the study file, the roster and the addresses.
    chosen = begin(settings, state, None if plan is None else read_plan(plan))
    start_logging(log_json)
    log_event("begun", f"plan {chosen.digest()}", plan=chosen.digest())
    _coordinate(state, json_, log_json)


@coordinator_app.command("resume")
def coordinator_resume(state: StateOption, log_json: LogJson = False, json_: Json = False) -> None:
    """Resume a study that was stopped. Released rounds are not repeated, and nothing is spent twice. Sites that stay
    away count as lost, as far as the plan tolerates losses."""
    start_logging(log_json)
    _coordinate(state, json_, log_json)


@coordinator_app.command("leave-out")
def coordinator_leave_out(
    names: Annotated[list[str], typer.Argument(help="Sites that were lost before the first round.")],
    state: StateOption,
    job: Annotated[Path | None, typer.Option(help="A new folder for the job, where FLARE carries the study.")] = None,
) -> None:
    """Continue a study without some sites, as far as its plan allows (`absences`). Resume it afterwards."""
    from zerosum.flare.jobs import write_job
    from zerosum.study.coordinating import leave_out

    # Before anything changes: a study with a plan of fewer sites and no job could not be continued by FLARE.
    if job is not None and job.exists():
        raise BadParameter(f"{job} exists already; choose another place for the job")
    plan = leave_out(state, names)
    if job is not None:
        write_job(job, state.absolute().name, len(plan.sites))
    terminal.out.print(f"plan {plan.digest()}", soft_wrap=True)
    left = ", ".join(visible(site.name) for site in plan.sites)
    terminal.out.print(f"continues with {left}: zerosum coordinator resume, or submit the new job", soft_wrap=True)


@coordinator_app.command("give-up")
def coordinator_give_up(state: StateOption) -> None:
    """End a study that will not be resumed, so that its sites can take other studies. What was spent stays spent."""
    from zerosum.study.coordinating import give_up

    plan = give_up(state)
    terminal.out.print(f"plan {plan.digest()}", soft_wrap=True)
    terminal.out.print("given up: the sites that were reached hold no place for it any more", soft_wrap=True)


@coordinator_app.command("health")
def coordinator_health(
    state: StateOption,
    quiet: Annotated[float, typer.Option(help="Largest number of seconds without progress.")] = 3600.0,
    json_: Json = False,
) -> None:
    """For monitors: exit code 0 if the study is complete, has just begun or makes progress; 4 if not."""
    from zerosum.study.status import check_status

    record = check_status(state, quiet)
    if json_:
        terminal.print_json(record)
        return
    if "planned" not in record:
        terminal.out.print("begun: no process runs it yet")
        return
    sites = ", ".join(f"{visible(name)}: {how}" for name, how in record["sites"].items())
    # A study that ended has the reason; one that runs has its stage.
    how = record["ended"] or record["stage"]
    terminal.out.print(f"{how}, {record['rounds']} of {counted(record['planned'], 'round')}; {sites}", soft_wrap=True)


def _site_address(text: str) -> tuple[str, Path]:
    """Name and socket of a site, from `NAME=SOCKET`.

    The path is made absolute: the settings are stored, and `resume` may run in another working directory.
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise BadParameter("--site is NAME=SOCKET")
    return name, Path(path).absolute()


class _StopHandler:
    """Handler of SIGTERM and Ctrl-C that ends the process where the study can be resumed.

    While the coordinator waits for sites it ends at once, otherwise after the current round. A second signal ends it at
    once.
    """

    def __init__(self) -> None:
        # Whether a signal has arrived, and whether rounds have begun (any progress report).
        self._stop_requested = self._busy = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the handlers while a `with` block lasts, and restore the former ones."""
        before = {each: signal.signal(each, self._on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, *_: object) -> None:
        """End at once if nothing would be lost, or on the second signal; otherwise note the request."""
        if self._stop_requested or not self._busy:
            raise KeyboardInterrupt
        self._stop_requested = True
        log_event("stopping", "asked to stop: the current round is finished first")

    def log_attendance(self, sites: Mapping[str, str]) -> None:
        """Log which sites have agreed, and what the others wait for.

        Parameters
        ----------
        sites : mapping
            Attendance by the name of a site.
        """
        log_event("attendance", ", ".join(f"{visible(name)}: {how}" for name, how in sites.items()), sites=dict(sites))

    def on_progress(self, progress: Progress) -> None:
        """Stop after a completed round, if a signal has arrived.

        Parameters
        ----------
        progress : Progress
            Stage of the study, and rounds done of those planned. After the last round the study goes on: only the
            result is left to be computed and written.
        """
        self._busy = True
        if progress.stage == "round" and self._stop_requested and progress.done < progress.planned:
            raise KeyboardInterrupt


def _coordinate(state: Path, as_json: bool, log_json: bool) -> None:
    """Run or resume the study of a state folder, and print its result.

    Parameters
    ----------
    state : Path
        The state folder.
    as_json : bool
        Print the result as JSON on stdout.
    log_json : bool
        Log progress as JSON lines for a log collector; otherwise show it on the terminal.
    """
    from zerosum.study.coordinating import Settings, coordinate

    stopping = _StopHandler()
    with stopping.installed(), terminal.study_progress() as shown:

        def observe(progress: Progress) -> None:
            if log_json:
                log_event(
                    "progress",
                    f"{progress.stage}: {progress.done} of {progress.planned}",
                    stage=progress.stage,
                    site=progress.site,
                )
            else:
                shown(progress)
            # Last, because it may raise: the round that ended is shown or logged before the process stops.
            stopping.on_progress(progress)

        result: Result = coordinate(state, stopping.log_attendance, observe)
    # Read again instead of passed: `resume` knows the state folder only.
    out = Settings.load(state).out
    if as_json:
        terminal.print_json(result.as_record() | {"folder": str(out)})
        return
    terminal.show_report(result.report)
    terminal.out.print(f"\nwritten to {out}", soft_wrap=True)
