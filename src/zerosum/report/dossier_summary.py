"""The summary of a dossier for reviewers who are not experts of differential privacy: two printed pages."""

from __future__ import annotations

from collections.abc import Iterator

from zerosum.kernel.names import counted
from zerosum.report.document import Section, Table, Text
from zerosum.report.dossier_facts import DOES_NOT_APPLY, PERMIT, Facts, answers
from zerosum.report.dossier_questions import reads
from zerosum.report.guarantee_text import chance, description


def summary_sections(facts: Facts) -> tuple[Section, ...]:
    """The sections of the summary.

    Parameters
    ----------
    facts : Facts
        What the texts are taken from.
    """
    return (
        Section("study", "The study", (answers("In short", tuple(_study(facts)), ("entry", "content")),)),
        Section("person", "What it means for one person", tuple(_person(facts))),
        Section("board", "What a board may ask", (answers("Questions of a board", tuple(_board(facts))),)),
    )


def _study(facts: Facts) -> Iterator[tuple[str, str]]:
    plan = facts.plan
    yield "Purpose", facts.purpose
    yield "Permit", f"{facts.permit('number')}; {PERMIT['authority'].lower()}: {facts.permit('authority')}"
    yield "Controller and contact", f"{facts.permit('controller')}; {facts.permit('contact')}"
    yield (
        "What is computed",
        f"{description(plan.algorithm)[0].upper()}{description(plan.algorithm)[1:]}, of "
        f"{counted(plan.question.n_columns, 'column')}: {', '.join(plan.question.columns[:8])}"
        + (" and more." if plan.question.n_columns > 8 else "."),
    )
    people = f" They hold the data of {facts.units} {plan.unit}s." if facts.units else ""
    yield "Who takes part", f"{', '.join(site.name for site in plan.sites)}.{people}"
    yield "What leaves a site", f"{_leaves(facts)} {reads(facts)[0].upper()}{reads(facts)[1:]}."


def _leaves(facts: Facts) -> str:
    """What leaves a site, in a sentence."""
    if any(release.kind == "publication" for release in facts.plan.releases):
        return "A noisy record of every unit."
    return "No record: only sums over all its people."


def _person(facts: Facts) -> Iterator[Text | Table]:
    plan = facts.plan
    if not plan.private:
        yield Text(
            (f"This run protects no {plan.unit}. It is for public or synthetic data only: refuse it for real ones.",),
            "warning",
        )
        return
    yield Text(
        (
            f"Suppose somebody sees everything that {_seers(facts)}, and wants to find out which of two possible sets "
            f"of data is that of one {plan.unit}. With the best method there is, the guess is right in at most "
            f"{facts.guess(facts.promise)} of cases. A coin is right in 50 %.",
        ),
        "promise",
    )
    yield Text(
        (
            f"Statisticians call this epsilon {facts.epsilon} at delta {plan.delta:g}. Delta is the chance, "
            f"{chance(plan.delta)}, that the bound by epsilon is not kept. The smaller both are, the stronger the "
            "protection.",
            f"Protected is {facts.unit}. The figures hold whatever else the attacker knows.",
        )
    )
    rows = [("a reader of the result", facts.guess("reader")), ("the coordinator alone", facts.guess("coordinator"))]
    if "coalition" in facts.recipients:
        rows.append((f"the coordinator with {facts.coalition}", facts.guess("coalition")))
    yield Table("Right guesses, at most, by who looks", ("who", "right guesses"), tuple(rows))
    yield Text(
        (
            "Facts about groups are not hidden: if the study finds that smokers fall ill more often, that is known of "
            "each smoker, whether or not they took part.",
            "Each site knows its own people. Nothing here protects records from the site that holds them.",
            "Further studies on the same people weaken the protection; each site keeps account and refuses what "
            "exceeds its limit.",
        ),
        "points",
    )


def _seers(facts: Facts) -> str:
    """The parties whose view the promise is about."""
    if facts.plan.scheme.facts.sees_data:
        return "a reader of the result sees (the coordinator sees the data and must be trusted)"
    alone = not facts.plan.coalition.colluders
    return "the coordinator sees" if alone else f"the coordinator and {facts.coalition} see, together"


def _board(facts: Facts) -> Iterator[tuple[str, str]]:
    plan = facts.plan
    yield (
        "Who decides whether a site takes part?",
        "The site alone: its written policy, its data steward, and its record of what was spent. A site can refuse at "
        "any time.",
    )
    yield (
        "Can more be asked later under this permit?",
        f"Not under this plan. It lists {counted(len(plan.releases), 'release')}, before data are read; another "
        "question is another plan, with another decision.",
    )
    yield (
        "Who must be trusted?",
        f"The software at each site, and {plan.scheme.facts.trusted_party}."
        if plan.scheme.facts.trusted_party != "no one"
        else "The software at each site. Not the coordinator, and not the other sites, up to "
        f"{plan.coalition.colluders} that collude.",
    )
    yield (
        "Is the result still useful?",
        "The noise is stated with each number. "
        + (
            f"The report has {counted(len(facts.result.warnings), 'warning')}."
            if facts.result
            else "The study was not run yet, or no result was given."
        )
        if plan.scheme.facts.noisy
        else f"{DOES_NOT_APPLY}no noise is added",
    )
    yield (
        "What can be checked afterwards?",
        "The plan has a digest, the report and this dossier are signed (zerosum verify checks them), and each site "
        "has a ledger and a log that cannot be shortened unnoticed.",
    )
