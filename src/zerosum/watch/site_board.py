"""Pages of a site: ledger, waiting plans, studies, and the form for decisions.

Tested in tests/watch/test_boards.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zerosum.errors import BadInput, LedgerRefused, ZerosumError
from zerosum.kernel.markup import Html, element
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.site.budget import check_budget, refusals
from zerosum.site.decisions import MOST_REASON
from zerosum.watch import plans
from zerosum.watch.coordinator_board import pieces
from zerosum.watch.fresh import Fresh
from zerosum.watch.markup import Page, Section, badge, bar, join, moment, more, pairs, paragraph, table
from zerosum.watch.own_site import Account, Line, OwnSite, Standing, Taken

_PART = 50  # rows of a long table on one page
_LATEST = 6  # log lines that are not folded
# State of a study to its text and CSS class.
_STATES = {
    "waits": ("waits for you", "wait"),
    "approved": ("approved, not yet begun", "wait"),
    "refused": ("refused", "bad"),
    "agreed": ("under way", "good"),
    "over": ("over here", "good"),
    "stopped": ("stopped, or not heard of since", "bad"),
}


class SiteBoard:
    """Board of a site. Paths: `` for the site, `study/KEY` for one study, by the digest of its plan."""

    def __init__(self, file: Path) -> None:
        self._site = OwnSite(file)
        self.title = self._site.name
        self._standing = Fresh(self._site.standing, seconds=0.5)
        self._checked: dict[tuple[object, ...], Html] = {}

    def page(self, path: str, part: int, form: str) -> Page | None:
        """Page at a path, or None. `form` is the secret for forms."""
        standing = self._standing()
        match path.split("/"):
            case [""]:
                return self._overview(standing, part)
            case ["study", key]:
                found = next((study for study in standing.studies if study.key == key), None)
                return None if found is None else self._study(standing, found, form)
        return None

    def report(self, path: str) -> bytes:
        """Refuse: reports belong to the coordinator."""
        raise BadInput("a site has no report: results are the coordinator's")

    def decide(self, path: str, decision: str, reason: str) -> str:
        """Apply the decision of a form. Raises `BadInput` or `Refused`."""
        match path.split("/"), decision:
            case ["study", digest], "approved":
                said = self._site.decide(digest, "approved", "")
            case ["study", digest], "refused":
                said = self._site.decide(digest, "refused", reason)
            case _:
                raise BadInput("a plan is approved or refused")
        # The next page must show the decision.
        self._standing.forget()
        return said

    def _overview(self, standing: Standing, part: int) -> Page:
        """Ledger, waiting plans, running and earlier studies, latest events."""
        by_state: dict[str, list[Taken]] = {}
        for study in standing.studies:
            by_state.setdefault(study.state, []).append(study)
        waiting, now = by_state.get("waits", []), by_state.get("agreed", [])
        past = [study for study in standing.studies if study.state not in ("waits", "agreed")]
        sections = [
            Section("site", "This site", _site(standing)),
            Section("waiting", "Waits for you", _waiting(waiting, standing.automatic)),
            Section("now", "Under way", join(map(_card, now)) if now else paragraph("No study is under way here.")),
            Section("past", "Earlier", _past(past, part)),
            Section("lately", "What happened lately", _lines(standing.lines[-50:])),
        ]
        plans_wait = f"{len(waiting)} plan{'s wait' if len(waiting) != 1 else ' waits'} for you"
        said = f"{plans_wait}; {len(now)} under way"
        return Page(standing.name, tuple(sections), said, home=True, count=len(waiting))

    def _study(self, standing: Standing, study: Taken, form: str) -> Page:
        """Page of one study, with a form while a decision is possible."""
        words, kind = _STATES[study.state]
        plan = self._site.plan(study.plan) if study.plan else None
        lines: list[tuple[str, object]] = [("state", badge(words, kind))]
        if study.reason:
            lines.append(("why", element("strong", study.reason, class_="reason")))
        if study.epsilon is not None:
            lines.append(("spent here", f"epsilon {study.epsilon:.4f} at delta {standing.account.delta:g}"))
        if study.algorithm and plan is None:
            lines.append(("algorithm", study.algorithm))
        if study.first:
            lines.append(("first heard of", moment(study.first)))
        progress = _rounds(study) if study.planned and study.state != "waits" else None
        sections = [Section("state", "How it stands", join([progress, pairs(lines)]))]
        if plan is not None:
            sections.append(Section("asked", "What is asked", plans.asked(plan)))
            sections.append(Section("cost", "What it costs here", self._cost(plan, study, standing)))
            sections.append(Section("whole", "The whole plan", _whole(plan, standing.name)))
        elif study.columns:
            sections.append(Section("asked", "What is asked", pairs([("columns", ", ".join(study.columns))])))
        # A refusal is also possible while a study runs.
        if study.plan and study.state in ("waits", "approved", "agreed"):
            sections.append(Section("decide", "Your decision", _form(study, form, plan)))
        sections.append(Section("lately", "What happened", _lines(self._site.lines(study.plan))))
        return Page(study.name, tuple(sections), f"{study.name}: {words}. {study.reason}".strip())

    def _cost(self, plan: Plan, study: Taken, standing: Standing) -> Html:
        """Cost by plan and ledger. Data are checked by `zerosum site dry-run` only."""
        try:
            epsilon = plans.report_of(plan).per_site[_position(plan, standing.name)].epsilon
        except ZerosumError as error:
            return paragraph(str(error), class_="fault")
        parts = [paragraph(f"here: epsilon {epsilon:.4f} at delta {plan.delta:g}", class_="large")]
        if study.state in ("waits", "approved"):
            parts.append(self._judged(plan, standing))
            command = element("code", f"zerosum site dry-run {plan.digest()[:12]}")
            parts.append(
                paragraph("Your data were not read for this page: ", command, " reads them, and spends nothing.")
            )
        return join([*parts, _account(standing.account)])

    def _judged(self, plan: Plan, standing: Standing) -> Html:
        """Refusals by policy and cap, without reading data. Cached until plan, ledger or policy change."""
        account, policy = standing.account, self._site.policy
        if not account.known or account.fault:
            return paragraph("Whether it fits under the cap cannot be told while the ledger cannot be read.")
        # The answer depends on these four only.
        mark = plan.digest(), account.epsilon, account.releases, policy.model_dump_json()
        if mark not in self._checked:
            if len(self._checked) > 64:
                self._checked.clear()
            faults, left = [str(each) for each in refusals(plan, policy)], None
            try:
                left = check_budget(plan, _position(plan, standing.name), policy)
            except LedgerRefused as error:  # the study is over, or another process holds the ledger
                return paragraph(str(error), class_="fault")
            except ZerosumError as error:
                faults.append(str(error))
            said = [paragraph("this site would refuse: ", fault, class_="fault") for fault in faults]
            if not faults:
                said.append(paragraph("It fits the policy of this site and its cap.", class_="good"))
            if left is not None:
                said.append(paragraph(f"afterwards one more study may cost epsilon {left:.4f}"))
            self._checked[mark] = join(said)
        return self._checked[mark]


def _position(plan: Plan, name: str) -> int:
    """Index of this site in a plan, by name. Its key was compared with the roster when the plan arrived."""
    for at, site in enumerate(plan.sites):
        if site.name == name:
            return at
    raise BadInput("this site is not on the plan's roster")


def _site(standing: Standing) -> Html:
    """Ledger and settings of the site."""
    serves = badge("serves", "good") if standing.serves else badge("does not serve: zerosum site run", "bad")
    consent = "automatic, where a plan fits the policy" if standing.automatic else "every plan waits for its steward"
    faults = [paragraph(fault, class_="fault") for fault in standing.faults]
    lines = [("site", join([standing.name, " ", serves])), ("population", standing.population), ("consent", consent)]
    return join([*faults, _account(standing.account), pairs(lines)])


def _account(account: Account) -> Html:
    """Spent and remaining budget."""
    fault = paragraph(account.fault, class_="fault") if account.fault else None
    if not account.known:
        return join([fault])
    # Highlighted when less than a tenth of the cap is left. Chosen by hand.
    low = "bad" if account.left < 0.1 * account.cap else ""
    words = (
        f"epsilon spent: {account.epsilon:.4f} of {account.cap:g} at delta {account.delta:g}, in {account.releases} "
        f"release{'s' if account.releases != 1 else ''}; one more study may cost {account.left:.4f}"
    )
    if account.fault:
        words = f"when it was read last: {words}"
    return element("div", bar(account.epsilon, account.cap, low), paragraph(words), fault, class_="ledger")


def _waiting(studies: Sequence[Taken], automatic: bool) -> Html:
    """Waiting plans."""
    if not studies:
        return paragraph("Nothing waits." if not automatic else "Nothing waits: consent is automatic here.")
    # The plan is decided on its own page, where it is shown in full.
    return join(
        element(
            "article",
            element("h3", element("a", study.name, href=f"study/{study.key}")),
            paragraph(badge(*_STATES["waits"]), f" {study.algorithm}"),
            paragraph("columns: ", ", ".join(study.columns[:20]) + (", ..." if len(study.columns) > 20 else "")),
            paragraph(element("a", "Read and decide", href=f"study/{study.key}", class_="button")),
            class_="card",
        )
        for study in studies
    )


def _card(study: Taken) -> Html:
    """Summary of a running study."""
    spent = "" if study.epsilon is None else f"epsilon {study.epsilon:.4f} spent here"
    return element(
        "article",
        element("h3", element("a", study.name, href=f"study/{study.key}")),
        paragraph(badge(*_STATES[study.state]), f" {study.algorithm}"),
        _rounds(study),
        paragraph(spent, class_="small") if spent else None,
        class_="card",
    )


def _rounds(study: Taken) -> Html:
    """Progress bar of the rounds."""
    kind = "good" if study.state == "over" else "bad" if study.state in ("refused", "stopped") else ""
    words = paragraph(f"{study.rounds} of {counted(study.planned, 'round')} left this site")
    return element("div", bar(study.rounds, study.planned, kind), words, class_="progress")


def _past(studies: Sequence[Taken], part: int) -> Html:
    """Table of earlier studies."""
    if not studies:
        return paragraph("None yet.")
    rows = [
        (
            element("a", study.name, href=f"study/{study.key}"),
            badge(*_STATES[study.state]),
            "" if study.epsilon is None else f"{study.epsilon:.4f}",
            study.algorithm,
            moment(study.last),
        )
        for study in studies[part * _PART : (part + 1) * _PART]
    ]
    shown = table(("study", "state", "epsilon", "algorithm", "last news"), rows, "Studies that were asked before")
    return join([shown, pieces(len(studies), part, _PART)])


def _lines(lines: Sequence[Line]) -> Html:
    """Audit log lines, newest first."""
    if not lines:
        return paragraph("Nothing is in the audit log.")
    items = [
        element(
            "li",
            moment(line.time),
            " ",
            badge(line.event, "bad" if line.event == "refused" else "plain"),
            " ",
            line.words,
        )
        for line in reversed(lines)
    ]
    shown, rest = items[:_LATEST], items[_LATEST:]
    first = element("ol", *shown, class_="log")
    return first if not rest else join([first, more(f"{len(rest)} earlier", element("ol", *rest, class_="log"))])


def _whole(plan: Plan, here: str) -> Html:
    """Guarantee, costs and digests of a plan."""
    shown = more("What is released and what it costs each site", plans.costs(plan, here))
    return join([plans.guarantee(plan), shown, plans.digests(plan)])


def _form(study: Taken, secret: str, plan: Plan | None) -> Html:
    """Form to approve or refuse a plan. `secret` protects against requests from other sites (CSRF)."""
    hidden = element("input", type="hidden", name="form", value=secret)

    def button(words: str, value: str, kind: str) -> Html:
        return element("button", words, type="submit", name="decision", value=value, class_=kind)

    about = ("reason", "why")
    area = element("textarea", id=about[0], name="reason", rows=2, maxlength=MOST_REASON, aria_describedby=about[1])
    reason = element(
        "div",
        element("label", "Reason of a refusal (may be empty)", for_=about[0]),
        area,
        element("p", "The coordinator reads it. Write nothing about data into it.", id=about[1], class_="small"),
    )
    refuse = element("form", hidden, reason, button("Refuse", "refused", "bad"), **_to(study))
    if study.state != "waits":
        words = "A refusal holds at once, in the middle of a study too; what was spent stays spent."
        return join([paragraph(words), refuse])
    if plan is None:
        return join([paragraph("The plan cannot be read, so it cannot be approved here.", class_="fault"), refuse])
    approve = element("form", hidden, button("Approve", "approved", "good"), **_to(study))
    words = "Approving lets this site take part in the study of this very plan. It spends nothing by itself."
    return join([paragraph(words), element("div", approve, refuse, class_="decide")])


def _to(study: Taken) -> dict[str, str]:
    """Attributes of the form."""
    return {"method": "post", "action": f"study/{study.key}/decision", "accept_charset": "utf-8"}
