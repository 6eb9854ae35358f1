"""Pages of a site: ledger, waiting plans, studies, and the form for decisions (templates/site.html)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from zerosum import html
from zerosum.errors import BadInput, LedgerRefused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.site.budget import check_budget, refusals
from zerosum.site.decisions import MOST_REASON
from zerosum.watch import plans
from zerosum.watch.cache import TimedCache
from zerosum.watch.layout import Page, Section
from zerosum.watch.site_state import SiteReader, SiteState, StudyState

_PART = 50  # rows of a long table on one page
_LATEST = 6  # log lines that are not folded
_MOST_CHECKS = 64  # checks of plans in the cache
# State of a study to its text and CSS class.
_STATES = {
    "waits": ("waits for you", "wait"),
    "approved": ("approved, not yet begun", "wait"),
    "refused": ("refused", "bad"),
    "agreed": ("under way", "good"),
    "over": ("over here", "good"),
    "stopped": ("stopped, or without news since", "bad"),
}


def _part(macro: str, *arguments: Any) -> Markup:
    """Content of a section."""
    return html.call("watch/site.html", macro, *arguments)


class SitePages:
    """Pages of a site. Paths: `` for the site, `study/KEY` for one study, by the digest of its plan."""

    def __init__(self, file: Path) -> None:
        self._site = SiteReader(file)
        self.title = self._site.name
        self._state = TimedCache(self._site.state, seconds=0.5)
        self._checks: dict[tuple[object, ...], Markup] = {}

    def page(self, path: str, part: int, form: str) -> Page | None:
        """Page at a path, or None. `form` is the secret for forms."""
        state = self._state()
        match path.split("/"):
            case [""]:
                return self._overview(state, part)
            case ["study", key]:
                match = next((study for study in state.studies if study.key == key), None)
                return None if match is None else self._study(state, match, form)
        return None

    def report(self, path: str) -> bytes:
        """Refuse: reports belong to the coordinator."""
        raise BadInput("a site has no report: results belong to the coordinator")

    def decide(self, path: str, decision: str, reason: str) -> str:
        """Apply the decision of a form. Raises `BadInput` or `Refused`."""
        match path.split("/"), decision:
            # Exact words only: any other text is no decision.
            case ["study", digest], "approved":
                sentence = self._site.decide(digest, "approved", "")
            case ["study", digest], "refused":
                sentence = self._site.decide(digest, "refused", reason)
            case _:
                raise BadInput(f"a plan is approved or refused, got the decision {decision!r}")
        # The next page must show the decision.
        self._state.forget()
        return sentence

    def _overview(self, state: SiteState, part: int) -> Page:
        """Ledger, waiting plans, running and earlier studies, latest events."""
        waiting = [study for study in state.studies if study.state == "waits"]
        running = [study for study in state.studies if study.state == "agreed"]
        past = [study for study in state.studies if study.state not in ("waits", "agreed")]
        sections = (
            Section("site", "This site", _part("site", state)),
            Section("waiting", "Waits for you", _part("waiting", waiting, _STATES, state.automatic)),
            Section("now", "Under way", _part("under_way", running, _STATES)),
            Section("past", "Earlier", _part("past", past, _STATES, part, _PART)),
            # 50 lines on the overview; the page of a study has all that are in memory.
            Section("lately", "Latest events", _part("log", state.lines[-50:], _LATEST)),
        )
        number = f"{len(waiting)} plan{'s wait' if len(waiting) != 1 else ' waits'} for you"
        return Page(state.name, sections, f"{number}; {len(running)} under way", home=True, count=len(waiting))

    def _study(self, state: SiteState, study: StudyState, form: str) -> Page:
        """Page of one study, with a form while a decision is possible."""
        plan = self._site.plan(study.plan) if study.plan else None
        algorithm = study.algorithm if plan is None else ""  # part of the question of a plan
        sections = [Section("state", "State", _part("state", study, _STATES, state.ledger.delta, algorithm))]
        if plan is not None:
            parts = plans.guarantee(plan), plans.costs(plan, state.name), plans.digests(plan)
            sections.append(Section("asked", "The question", plans.question(plan)))
            sections.append(Section("cost", "Cost at this site", self._cost(plan, study, state)))
            sections.append(Section("whole", "The whole plan", _part("plan", *parts)))
        elif study.columns:
            sections.append(Section("asked", "The question", _part("columns", study.columns)))
        # A refusal is also possible while a study runs.
        if study.plan and study.state in ("waits", "approved", "agreed"):
            decision = _part("decision", study, plan is not None, form, MOST_REASON)
            sections.append(Section("decide", "Your decision", decision))
        sections.append(Section("lately", "Events", _part("log", self._site.lines(study.plan), _LATEST)))
        status = f"{study.name}: {_STATES[study.state][0]}. {study.reason}".strip()
        return Page(study.name, tuple(sections), status)

    def _cost(self, plan: Plan, study: StudyState, state: SiteState) -> Markup:
        """Cost by plan and ledger. Data are checked by `zerosum site dry-run` only."""
        try:
            epsilon = plans.report_of(plan).per_site[_position(plan, state.name)].epsilon
        except ZerosumError as error:
            return _part("faults", [str(error)])
        # Once a study is under way or over, the ledger has its real cost, and a check against the cap would count it
        # twice.
        check = self._check(plan, state) if study.state in ("waits", "approved") else None
        return _part("cost", plan, epsilon, check, state.ledger)

    def _check(self, plan: Plan, state: SiteState) -> Markup:
        """Refusals by policy and cap, without reading data. Cached until plan, ledger or policy change."""
        ledger, policy = state.ledger, self._site.policy
        # Without the ledger the answer would hold for the policy alone.
        if not ledger.known or ledger.fault:
            return _part("unchecked")
        # The answer depends on these four only.
        key = plan.digest(), ledger.epsilon, ledger.releases, policy.model_dump_json()
        if key not in self._checks:
            if len(self._checks) > _MOST_CHECKS:
                self._checks.clear()
            faults, left = [str(each) for each in refusals(plan, policy)], None
            try:
                left = check_budget(plan, _position(plan, state.name), policy)
            except LedgerRefused as error:  # the study is over, or another process holds the ledger
                return _part("faults", [str(error)])
            except ZerosumError as error:
                faults.append(str(error))
            self._checks[key] = _part("check", faults, left)
        return self._checks[key]


def _position(plan: Plan, name: str) -> int:
    """Index of this site in a plan, by name. Its key was compared with the roster when the plan arrived."""
    for at, site in enumerate(plan.sites):
        if site.name == name:
            return at
    raise BadInput("this site is not on the plan's roster")
