"""Pages of a coordinator: list of studies, and one study.

Tested in tests/watch/test_boards.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zerosum.errors import BadInput, ZerosumError
from zerosum.kernel.markup import Html, element
from zerosum.kernel.names import counted
from zerosum.study.archive import ArchivedStudy
from zerosum.watch import outcomes, plans
from zerosum.watch.fresh import Fresh
from zerosum.watch.markup import Page, Section, badge, bar, join, moment, more, pairs, paragraph, table
from zerosum.watch.studies import UNDER_WAY, Coordinated, Coordinator, KeptLine, kept_line, kept_studies

_PART = 50  # rows of a long table on one page
# State of a study to its text and CSS class.
_STATES = {
    "begun": ("begun, nobody carries it out yet", "wait"),
    "gathering": ("waits for sites", "wait"),
    "running": ("under way", "good"),
    "finished": ("finished", "good"),
    "refused": ("refused", "bad"),
    "failed": ("did not finish", "bad"),
    "stopped": ("stopped: zerosum coordinator resume goes on", "bad"),
    "damaged": ("cannot be read", "bad"),
}
# Stage of a running study to its text.
_STAGES = {
    "gathering": "waiting until every site has agreed",
    "loading": "loading data",
    "resumed": "going on where it was",
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


class CoordinatorBoard:
    """Board of a coordinator. Paths: `` for all studies, `study/KEY`, `kept/ID`. `part` is the index of a piece of a
    long table."""

    title = "Studies"

    def __init__(self, folders: Sequence[Path]) -> None:
        self._coordinator = Coordinator(folders)
        # Several open pages share one reading of the folders. Times to live in seconds, chosen by hand.
        self._all = Fresh(self._coordinator.all, seconds=0.5)
        self._kept = Fresh(kept_studies, seconds=2.0)

    def page(self, path: str, part: int, form: str) -> Page | None:
        """Page at a path, or None. `form` is unused: a coordinator has no forms."""
        match path.split("/"):
            case [""]:
                return self._overview(part)
            case ["study", key]:
                found = next((study for study in self._all() if study.key == key), None)
                return None if found is None else self._study(found)
            case ["kept", id]:
                return self._kept_page(id)
        return None

    def report(self, path: str) -> bytes:
        """Report file of a study. Raises `BadInput` if there is none."""
        match path.split("/"):
            case ["study", key]:
                found = self._coordinator.find(key)
                folder = None if found is None else self._result(found)
            case ["kept", id]:
                folder = self._kept_folder(id) / "result"
            case _:
                folder = None
        if folder is None:
            raise BadInput("there is no report of this study")
        return outcomes.read_report(folder)

    def decide(self, path: str, decision: str, reason: str) -> str:
        """Refuse: only sites decide about plans."""
        raise BadInput("a coordinator decides about no plan: the sites' stewards do")

    def _overview(self, part: int) -> Page:
        """List of running, past and archived studies."""
        studies, kept = self._all(), self._kept()
        now = [study for study in studies if study.state in UNDER_WAY]
        past = [study for study in studies if study.state not in UNDER_WAY]
        said = f"{len(now)} under way, {len(past)} over"
        sections = [
            Section("now", "Under way", join(map(_card, now)) if now else paragraph("No study is under way.")),
            Section("past", "Over", _past(past, part)),
        ]
        if kept:
            sections.append(Section("kept", "Run and kept on this machine", _kept_table(kept, part)))
        return Page(self.title, tuple(sections), said, home=True)

    def _study(self, study: Coordinated) -> Page:
        """Page of one study."""
        words, _ = _STATES[study.state]
        # A section is left out if its content does not exist yet.
        sections = [Section("state", "How it stands", _standing(study))]
        if study.sites:
            sections.append(Section("sites", "Sites", self._sites(study)))
        if (folder := self._result(study)) is not None:
            sections.append(Section("result", "Result", _with_report(outcomes.outcome(folder), folder, study.key)))
        if study.state != "damaged":
            sections.append(Section("plan", "The plan", self._plan(study)))
        waiting = [name for name, how in study.sites.items() if how != "agreed"]
        said = f"{study.name}: {words}"
        if study.state == "gathering" and waiting:
            said += f"; not yet agreed: {', '.join(waiting)}"
        return Page(study.name, tuple(sections), f"{said}. {study.ended}".strip())

    def _result(self, study: Coordinated) -> Path | None:
        """Folder of the result, or None."""
        try:
            return self._coordinator.result(study)
        except ZerosumError:
            return None

    def _sites(self, study: Coordinated) -> Html:
        """Table of sites: consent, losses, and cost by the plan. A coordinator has no access to ledgers."""
        try:
            costs = {line.site: line.epsilon for line in plans.report_of(self._coordinator.plan(study)).per_site}
        except ZerosumError:
            costs = {}
        # The column of losses is shown only if there are any.
        lost = any(study.losses.get(name) for name in study.sites)
        rows = [
            (
                name,
                badge(how, _ATTENDANCE.get(how, "wait")),
                *([counted(study.losses[name], "time") if study.losses.get(name) else ""] if lost else []),
                f"{costs[name]:.4f}" if name in costs else "",
            )
            for name, how in study.sites.items()
        ]
        headings = ("site", "consent", *(["did not answer"] if lost else []), "epsilon by the plan")
        return table(headings, rows, "Who takes part, and what the plan costs there", 1)

    def _plan(self, study: Coordinated) -> Html:
        """Guarantee, question, costs and digests of the plan."""
        try:
            plan = self._coordinator.plan(study)
            said = join([plans.guarantee(plan), plans.asked(plan)])
            return join([said, more("What is released and what it costs", plans.costs(plan)), plans.digests(plan)])
        except ZerosumError as error:
            return paragraph(str(error), class_="fault")

    def _kept_folder(self, id: str) -> Path:
        """Folder of an archived study. Raises `BadInput`."""
        found = next((line for line in self._kept() if line.id == id), None)
        if found is None:
            raise BadInput("there is no such result")
        return found.folder

    def _kept_page(self, id: str) -> Page | None:
        """Page of an archived study, or None."""
        found = next((line for line in self._kept() if line.id == id), None)
        if found is None:
            return None
        # Read again, since the cached list may be two seconds old.
        line = kept_line(ArchivedStudy.load(found.id))
        lines = [
            ("kept as", element("code", line.id)),
            ("began", moment(line.began)),
            ("algorithm", line.algorithm or "not known"),
            ("state", _kept_state(line)),
        ]
        sections = [Section("state", "How it stands", pairs(lines))]
        if line.done:
            shown = _with_report(outcomes.outcome(line.folder / "result"), line.folder / "result", line.id, "kept")
            sections.append(Section("result", "Result", shown))
        return Page(line.name or line.id, tuple(sections))


def _standing(study: Coordinated) -> Html:
    """State, stage and times of a study."""
    words, kind = _STATES[study.state]
    lines: list[tuple[str, object]] = [("state", badge(words, kind))]
    if study.ended:
        lines.append(("why", element("strong", study.ended, class_="reason")))
    if study.fault:
        lines.append(("fault", study.fault))
    if study.state in UNDER_WAY and study.stage:
        lines.append(("stage", _STAGES.get(study.stage, study.stage)))
    if study.started:
        lines.append(("began", moment(study.started)))
    if study.updated:
        lines.append(("last news", moment(study.updated)))
    progress = [] if not study.planned else [_rounds(study)]
    return join([*progress, pairs(lines)])


def _rounds(study: Coordinated) -> Html:
    """Progress bar of the rounds."""
    words = f"{study.rounds} of {counted(study.planned, 'round')}"
    kind = "good" if study.state == "finished" else "bad" if study.state in ("refused", "failed") else ""
    return element("div", bar(study.rounds, study.planned, kind), element("p", words), class_="progress")


def _card(study: Coordinated) -> Html:
    """Summary of a running study."""
    words, kind = _STATES[study.state]
    agreed = sum(how == "agreed" for how in study.sites.values())
    waiting = [name for name, how in study.sites.items() if how != "agreed"]
    # At most six names.
    named = ", ".join(waiting[:6]) + (" and others" if len(waiting) > 6 else "")
    return element(
        "article",
        element("h3", element("a", study.name, href=f"study/{study.key}")),
        paragraph(badge(words, kind), f" {study.algorithm}"),
        _rounds(study) if study.planned else None,
        paragraph(
            f"{agreed} of {len(study.sites)} sites agreed" + (f"; not yet: {named}" if waiting else ""), class_="small"
        ),
        class_="card",
    )


def _past(studies: Sequence[Coordinated], part: int) -> Html:
    """Table of finished studies."""
    if not studies:
        return paragraph("No study is over yet.")
    rows = [
        (
            element("a", study.name, href=f"study/{study.key}"),
            badge(_STATES[study.state][0].partition(":")[0], _STATES[study.state][1]),
            f"{study.rounds} of {study.planned}" if study.planned else "",
            study.algorithm,
            moment(study.updated or study.started),
        )
        for study in studies[part * _PART : (part + 1) * _PART]
    ]
    shown = table(("study", "state", "rounds", "algorithm", "last news"), rows, "Studies that are over")
    return join([shown, pieces(len(studies), part, _PART)])


def _kept_table(kept: Sequence[KeptLine], part: int) -> Html:
    """Table of archived studies."""
    rows = [
        (
            element("a", line.name or line.id, href=f"kept/{line.id}"),
            _kept_state(line),
            line.algorithm,
            moment(line.began),
        )
        for line in kept[part * _PART : (part + 1) * _PART]
    ]
    shown = table(("study", "state", "algorithm", "began"), rows, "Results of zerosum run")
    return join([shown, pieces(len(kept), part, _PART)])


def _kept_state(line: KeptLine) -> Html:
    """State of an archived study."""
    if line.fault:
        return badge(line.fault, "bad")
    return badge("finished", "good") if line.done else badge("under way or stopped", "wait")


def _with_report(shown: Html, folder: Path, key: str, kind: str = "study") -> Html:
    """A result with a link to its report, if there is one."""
    if not outcomes.has_report(folder):
        return shown
    link = element("a", "Open the whole report", href=f"{kind}/{key}/report", class_="button")
    return join([paragraph(link), shown])


def pieces(count: int, part: int, size: int) -> Html:
    """Links to the other pieces of a long table."""
    if count <= size:
        return Html("")
    last = (count - 1) // size
    # The first, the last, and two pieces on either side of the current one.
    around = [at for at in range(last + 1) if at in (0, last) or abs(at - part) <= 2]
    links = [
        element(
            "li",
            element("a", f"{at * size + 1} to {min((at + 1) * size, count)}", href=f"?part={at}", aria_current=here),
        )
        for at in around
        for here in ["page" if at == part else None]
    ]
    return element("nav", element("ul", *links), class_="pieces", aria_label=f"Pieces of a table of {count} lines")
