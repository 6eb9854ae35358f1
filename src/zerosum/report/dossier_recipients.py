"""The annex of a dossier for a data protection impact assessment: what each recipient gets, and what it can find out.

The figures are the best guesses of `zerosum.kernel.recipients`. Entries that a program cannot know, such as the legal
basis, come from the table [permit] of the study file, or are named as open.
"""

from __future__ import annotations

from zerosum.report.document import Bars, Section, Table, Text, known
from zerosum.report.dossier_facts import DOES_NOT_APPLY, NOT_STATED, PERMIT, Facts, answers
from zerosum.report.dossier_questions import reads
from zerosum.report.guarantee_text import description


def assessment_sections(facts: Facts) -> tuple[Section, ...]:
    """The annex: the processing, its recipients, its risks.

    Parameters
    ----------
    facts : Facts
        What the entries are taken from.
    """
    return (
        Section(
            "processing", "Impact assessment: the processing", (answers("Description", _processing(facts), _ENTRY),)
        ),
        Section("recipients", "Impact assessment: recipients", _recipients(facts)),
        Section("risks", "Impact assessment: risks and measures", (_risks(facts),)),
    )


_ENTRY = ("entry", "content")


def _processing(facts: Facts) -> tuple[tuple[str, str], ...]:
    plan = facts.plan
    people = f"{facts.units} units ({plan.unit}s) at {len(plan.sites)} sites" if facts.units else ""
    undeclared = f"{NOT_STATED}the plan has no number of units; {len(plan.sites)} sites take part"
    more = plan.question.n_columns > 20
    populations = "; ".join(f"{each.name}: {each.policy.population}" for each in facts.sites)
    return (
        ("Purpose", facts.purpose),
        *((text, facts.permit(name)) for name, text in PERMIT.items() if name not in ("controller_kind", "sector")),
        (
            "Nature of the processing",
            f"Each site computes bounded sums over its own records, for {description(plan.algorithm)}. "
            f"{reads(facts)[0].upper()}{reads(facts)[1:]}. The result is a function of the noisy sums.",
        ),
        ("Categories of data", ", ".join(plan.question.columns[:20]) + (", ..." if more else "")),
        ("People concerned", populations or f"{NOT_STATED}no site's file was given, whose policy names its population"),
        ("Number of people", people or undeclared),
        ("Sites", ", ".join(site.name for site in plan.sites)),
        ("Transfer of personal data", _transfer(facts)),
        ("Automated decisions about people", f"{DOES_NOT_APPLY}the result is about groups; no decision is made on a "
        "person"),
        (
            "Necessity and proportionality",
            "Only the columns of the plan are read, and only sums over them leave a site, at the lowest noise that the "
            f"budget allows. {NOT_STATED}why this question needs these columns; the controller adds it.",
        ),
        ("Views of the people concerned", f"{NOT_STATED}the controller adds whether and how they were asked."),
        ("Rights of the people concerned", "Access and erasure are exercised at each site, on its own records. A "
         "released sum has no record of a person that could be taken out; later studies read the corrected data."),
    )  # fmt: skip


def _transfer(facts: Facts) -> str:
    """Whether records leave a site, in words."""
    if any(release.kind == "publication" for release in facts.plan.releases):
        return "A noisy record of every unit is sent to the coordinator: judge it as a transfer of pseudonymous data."
    if facts.plan.scheme.facts.sees_data:
        return "No record. The exact sums of each site go to the coordinator, which is trusted with them."
    return "No record and no exact sum leaves a site."


def _recipients(facts: Facts) -> tuple[Text | Table | Bars, ...]:
    plan, known_recipients = facts.plan, facts.recipients
    C = plan.coalition.colluders
    labels = {
        "coordinator": "the coordinator alone",
        "coalition": f"the coordinator with {facts.coalition}",
        "sites": f"{facts.coalition}, without the coordinator",
        "reader": "a reader of the result",
    }
    data = "exact sums of each site" if plan.scheme.facts.sees_data else reads(facts)
    received = {
        "coordinator": f"Requests and replies: {data}; who took part.",
        "coalition": "The same, and all that these sites know: their own records, noise and keys.",
        "sites": "The result, and their own records, noise and keys."
        if plan.results_to_sites
        else "No result: this plan keeps it from the sites.",
        "reader": "The released sums, the result and this plan.",
    }
    rows = tuple((labels[name], received[name], facts.guess(name)) for name in known_recipients)
    blocks: list[Text | Table | Bars] = [
        Text(
            (
                "The figure is the largest probability that a recipient, who has two candidates for the data of one "
                f"{plan.unit} that are equally likely, picks the right one. Without the study it is 50 %. It is "
                f"exact: the best test, over all pairs of candidates, all rounds and {facts.lost}.",
            )
        ),
        Table("Recipients", ("recipient", "receives", "guesses right, at most"), rows),
        Bars(
            "Best guess by recipient",
            "Right guesses between two candidates for one unit; 50 % is pure chance.",
            tuple(labels[name] for name in known_recipients),
            tuple(known(each.best_guess) for each in known_recipients.values()),
            percent=True,
            whole=1.0,
        ),
    ]
    if not C:
        blocks.append(
            Text((f"{DOES_NOT_APPLY}colluding sites, since the plan protects against the coordinator only.",))
        )
    if not all(each.exact for each in known_recipients.values()):
        blocks.append(
            Text(
                (
                    "Figures marked with 'at most' are upper bounds: with Laplace noise and fewer colluders than "
                    "planned.",
                )
            )
        )
    return tuple(blocks)


def _risks(facts: Facts) -> Table:
    plan = facts.plan
    C = plan.coalition.colluders
    private = f"epsilon {facts.epsilon} at delta {plan.delta:g}" if plan.private else "no noise: no protection"
    pinned = [each.name for each in facts.sites if each.policy.roster]
    loose = [each.name for each in facts.sites if not each.policy.roster]
    checked = (
        f"keys are pinned at {', '.join(pinned)}" if pinned else "",
        f"not at {', '.join(loose)}" if loose else "",
    )
    roster = (
        "; ".join(filter(None, checked)) or f"{NOT_STATED}whether policies pin the keys, since no site's file was given"
    )
    worst = facts.guess("coalition" if C else "coordinator")
    rows = (
        (
            "A person is singled out from the result",
            f"Noise for {private}",
            f"A reader guesses right in at most {facts.guess('reader')} of cases",
        ),
        (
            "The coordinator and sites pool what they know",
            f"Noise is planned for C = {C}",
            f"At most {worst}; more with more colluders than planned",
        ),
        ("A coordinator invents sites", "Keys of the sites are in the plan, and policies can pin them", roster),
        (
            "Many studies add up",
            "A ledger at each site refuses what exceeds its cap",
            "Up to the cap of each site; none if people are in two populations"
            if facts.sites
            else f"{NOT_STATED}the caps, since no site's file was given",
        ),
        (
            "A site's machine is broken into",
            "The site needs no network and no open port; its process has its own user",
            "The records of that site, as without the study",
        ),
        (
            "A wrong result misleads",
            "Intervals with the noise are stated; keys name the sites",
            "A site that sends false numbers is not noticed",
        ),
    )
    return Table("Risks", ("risk", "measure", "what remains"), rows)
