"""Pages of a coordinator: list of studies, and one study (templates/coordinator.html)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from zerosum import html
from zerosum.errors import BadInput, ZerosumError
from zerosum.study.archive import ArchivedStudy
from zerosum.watch import outcomes, plans
from zerosum.watch.cache import TimedCache
from zerosum.watch.layout import Page, Section
from zerosum.watch.studies import (
    UNDER_WAY,
    ArchiveLine,
    CoordinatorStudy,
    StudyFolders,
    archive_line,
    archive_lines,
    cost_text,
)

_PART = 50  # rows of a long table on one page
# State of a study to its text and CSS class.
_STATES = {
    "begun": ("begun, not running yet", "wait"),
    "gathering": ("waits for sites", "wait"),
    "running": ("under way", "good"),
    "finished": ("over", "good"),
    "refused": ("refused", "bad"),
    "failed": ("did not finish", "bad"),
    "stopped": ("stopped: zerosum coordinator resume continues it", "bad"),
    "damaged": ("cannot be read", "bad"),
}
# Stage of a running study to its text.
_STAGES = {
    "gathering": "waiting until every site has agreed",
    "loading": "loading data",
    "resumed": "resuming after an interruption",
    "consent": "asking for consent",
    "set-up": "setting up the secure sum",
    "round": "rounds",
    "writing": "writing the result",
}
# Attendance of a site to its CSS class.
_ATTENDANCE = {
    "agreed": "good",
    "absent": "bad",
    "refused": "bad",
    "waits for its steward": "wait",
    "busy with other studies": "wait",
}


def _part(macro: str, *arguments: Any) -> Markup:
    """Content of a section."""
    return html.call("watch/coordinator.html", macro, *arguments)


class CoordinatorPages:
    """Pages of a coordinator. Paths: `` for all studies, `study/KEY`, `kept/ID`. `part` is the index of a piece of a
    long table."""

    title = "Studies"

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = StudyFolders(folders)
        # Several open pages share one reading of the folders. Times to live in seconds, chosen by hand.
        self._studies = TimedCache(self._folders.all, seconds=0.5)
        self._archive = TimedCache(archive_lines, seconds=2.0)
        self._costs_by_plan: dict[tuple[str, str], str] = {}  # by key of the study and digest of the plan

    def page(self, path: str, part: int, form: str) -> Page | None:
        """Page at a path, or None. `form` is unused: a coordinator has no forms."""
        match path.split("/"):
            case [""]:
                return self._overview(part)
            # Keys are digests of folders (`key_of`): an address names a known study and cannot name a path.
            case ["study", key]:
                match = next((study for study in self._studies() if study.key == key), None)
                return None if match is None else self._study(match)
            case ["kept", id]:
                line = self._archived(id)
                return None if line is None else self._archive_page(line)
        return None

    def report(self, path: str) -> bytes:
        """Report file of a study. Raises `BadInput` if there is none."""
        folder = None
        match path.split("/"):
            case ["study", key]:
                study = self._folders.find(key)
                folder = None if study is None else self._result(study)
            case ["kept", id]:
                line = self._archived(id)
                folder = None if line is None else line.folder / "result"
        if folder is None:
            raise BadInput("there is no report of this study")
        return outcomes.read_report(folder)

    def decide(self, path: str, decision: str, reason: str) -> str:
        """Refuse: only sites decide about plans."""
        raise BadInput("a coordinator cannot decide about a plan: the stewards of the sites do")

    def _overview(self, part: int) -> Page:
        """List of running, past and archived studies."""
        # Two sources: state folders of the coordinator process, and the archive of runs in one process.
        studies, archive = self._studies(), self._archive()
        running = [study for study in studies if study.state in UNDER_WAY]
        past = [study for study in studies if study.state not in UNDER_WAY]
        sections = [
            Section("now", "Under way", _part("under_way", running, _STATES)),
            Section("past", "Over", _part("past", past, _STATES, *self._endings(past, part), part, _PART)),
        ]
        if archive:
            reports = {line.id for line in archive if line.done and outcomes.has_report(line.folder / "result")}
            table = _part("archive", archive, reports, part, _PART)
            sections.append(Section("kept", "Results kept on this machine", table))
        return Page(self.title, tuple(sections), f"{len(running)} under way, {len(past)} over", home=True)

    def _endings(self, past: Sequence[CoordinatorStudy], part: int) -> tuple[dict[str, str], dict[str, str]]:
        """Cost by the plan, and address of the report, of the studies of one piece of the table, by their keys."""
        costs, reports = {}, {}
        for study in past[part * _PART : (part + 1) * _PART]:
            if study.state != "damaged":
                costs[study.key] = self._cost(study)
            if (folder := self._result(study)) is not None and outcomes.has_report(folder):
                reports[study.key] = f"study/{study.key}/report"
        return costs, reports

    def _cost(self, study: CoordinatorStudy) -> str:
        """Largest cost of a site by the plan and the budget; empty if the plan is unreadable."""
        # The list of many studies has one text for each, which changes with the plan only.
        if (study.key, study.plan) not in self._costs_by_plan:
            try:
                report = plans.report_of(self._folders.plan(study))
            except ZerosumError:
                return ""
            text = cost_text(report.worst_epsilon, report.epsilon, report.delta) if report.private else "not private"
            self._costs_by_plan[study.key, study.plan] = text
        return self._costs_by_plan[study.key, study.plan]

    def _study(self, study: CoordinatorStudy) -> Page:
        """Page of one study."""
        stage = _STAGES.get(study.stage, study.stage) if study.state in UNDER_WAY else ""
        # A section is left out if its content does not exist yet.
        cost = "" if study.state == "damaged" else self._cost(study)
        sections = [Section("state", "State", _part("state", study, _STATES, stage, cost))]
        if study.sites:
            sections.append(Section("sites", "Sites", _part("sites", study, _ATTENDANCE, self._costs(study))))
        if (folder := self._result(study)) is not None:
            sections.append(Section("result", "Result", _result(folder, f"study/{study.key}/report")))
        # A damaged folder may have no readable plan; its fault is in the first section.
        if study.state != "damaged":
            sections.append(Section("plan", "The plan", self._plan(study)))
        # Screen readers announce this sentence when it changes.
        status = f"{study.name}: {_STATES[study.state][0]}"
        if study.state == "gathering" and study.missing:
            status += f"; not yet agreed: {', '.join(study.missing)}"
        return Page(study.name, tuple(sections), f"{status}. {study.ended}".strip())

    def _result(self, study: CoordinatorStudy) -> Path | None:
        """Folder of the result, or None."""
        try:
            return self._folders.result(study)
        except ZerosumError:
            return None

    def _costs(self, study: CoordinatorStudy) -> dict[str, str]:
        """Epsilon of each site by the plan, since a coordinator reads no ledgers; empty if the plan is unreadable."""
        try:
            report = plans.report_of(self._folders.plan(study))
        except ZerosumError:
            return {}
        return {line.site: f"{line.epsilon:.4f}" for line in report.per_site}

    def _plan(self, study: CoordinatorStudy) -> Markup:
        """Guarantee, question, costs and digests of the plan."""
        try:
            plan = self._folders.plan(study)
            return _part("plan", plans.guarantee(plan), plans.question(plan), plans.costs(plan), plans.digests(plan))
        except ZerosumError as error:
            return _part("fault", str(error))

    def _archived(self, id: str) -> ArchiveLine | None:
        """An archived study, or None."""
        return next((line for line in self._archive() if line.id == id), None)

    def _archive_page(self, entry: ArchiveLine) -> Page:
        """Page of an archived study."""
        # Read again, since the cached list may be two seconds old.
        line = archive_line(ArchivedStudy.load(entry.id))
        sections = [Section("state", "State", _part("archived", line))]
        if line.done:
            result = _result(line.folder / "result", f"kept/{line.id}/report")
            sections.append(Section("result", "Result", result))
        return Page(line.name or line.id, tuple(sections))


def _result(folder: Path, report: str) -> Markup:
    """A result with a link to its report, if there is one."""
    return _part("result", outcomes.outcome(folder), report if outcomes.has_report(folder) else "")
