"""The questions of a dossier about the guarantee, with the answers of one plan.

The topics are those of NIST SP 800-226 (Guidelines for Evaluating Differential Privacy Guarantees, March 2025), from
the top of its pyramid to the bottom: the parameters, the unit of privacy, the trust model, algorithms and their
correctness, utility and bias, implementation, security and access, and the exposure by the collection of data. NIST
publishes no form; the wording of the questions is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.report.document import Block, Section, Table
from zerosum.report.dossier_facts import DOES_NOT_APPLY, NOT_STATED, Facts, answers, odds
from zerosum.report.guarantee_text import chance, description
from zerosum.report.number_format import format_number, format_percent

_PRIORS = (0.01, 0.1, 0.5)  # beliefs of an attacker before the study, in the table of beliefs; chosen by hand

# What a coordinator that follows the protocol reads, by mechanism.
_READS = {
    NoiseMechanism.NONE: "each site adds the whole noise to its own sum, and the coordinator reads every noisy sum",
    NoiseMechanism.TRUSTED: "the coordinator reads the exact sums of the sites and adds the noise",
    NoiseMechanism.BROADCAST: "each site adds its own noise and noise that cancels; the coordinator reads every "
    "message",
    NoiseMechanism.HELPER: "each site adds its own noise and noise that the coordinator dealt; the coordinator reads "
    "every message",
    NoiseMechanism.PAIRWISE: "each pair of sites shares noise that cancels; the coordinator reads every message",
    NoiseMechanism.MASKED: "masks from secure aggregation hide the message of each site; the coordinator reads only "
    "the noisy sum over the sites",
}

# Algorithms whose result is a model that predicts.
MODELS = (
    *("linear-regression", "logistic-regression", "poisson-regression", "cox-regression", "polynomial-loss"),
    *("feature-classifier", "neural-classifier", "data-collaboration", "mixture", "topics", "k-means", "cape-network"),
    *("cape-fm", "fl-dp"),
)


def reads(facts: Facts) -> str:
    """What the coordinator reads under the plan's scheme."""
    if not facts.plan.scheme.facts.noisy:
        return "no noise is added, and the coordinator reads the exact sums of the sites"
    return _READS[facts.plan.scheme.facts.mechanism]


def question_sections(facts: Facts) -> tuple[Section, ...]:
    """The sections with all questions, one for each level of the pyramid.

    Parameters
    ----------
    facts : Facts
        What the answers are taken from.
    """
    parts = (
        ("parameters", "Strength: the parameters", tuple(_parameters(facts))),
        ("unit", "The unit of privacy", (answers("What is protected", tuple(_unit(facts))),)),
        ("trust", "The trust model", (answers("Against whom", tuple(_trust(facts))),)),
        ("algorithm", "Algorithm and correctness", tuple(_algorithm(facts))),
        ("utility", "Utility and bias", (answers("What the noise does to the result", tuple(_utility(facts))),)),
        ("implementation", "Implementation", (answers("How it is carried out", tuple(_implementation(facts))),)),
        ("security", "Security, access and collection", (answers("Around the guarantee", tuple(_security(facts))),)),
    )
    return tuple(Section(name, heading, blocks) for name, heading, blocks in parts)


def _parameters(facts: Facts) -> Iterator[Block]:
    plan, report = facts.plan, facts.report
    if not plan.private:
        why = "the run adds no noise" if not plan.scheme.facts.noisy else "the noise comes from a seed in the plan"
        none = f"None: {why}. It is for public or synthetic data only."
        reason = f"{DOES_NOT_APPLY}{why}"
        topics = ("What is epsilon?", "What is delta?", "What can a recipient find out about one unit?")
        yield answers("The parameters", (("Which definition of privacy?", none), *((each, reason) for each in topics)))
        return
    asked = f" The study asked for at most {format_epsilon(plan.epsilon)}."
    times = odds(report.worst_epsilon)
    pure = all(release.laplace for release in plan.releases)
    units = facts.units
    expected = (
        f" Over all {units} units, delta times their number is {format_number(plan.delta * units, 3)}."
        if units
        else " The plan does not state the number of units, so that delta cannot be compared with it here."
    )
    yield answers(
        "The parameters",
        (
            (
                "Which definition of privacy?",
                "(epsilon, delta)-differential privacy, exact over the whole study and for adaptive choices"
                + (
                    "; every single release is also purely epsilon-differentially private."
                    if pure
                    else "; for each release the whole trade-off curve is known (Gaussian differential privacy)."
                ),
            ),
            ("What is epsilon?", f"{facts.epsilon}, computed exactly for the unit with the largest cost.{asked}"),
            (
                "What does epsilon mean?",
                f"A conclusion about one {plan.unit} becomes at most {times} times (e^{facts.epsilon}) as likely as it "
                "would be with other data in their place.",
            ),
            (
                "What is delta?",
                f"{plan.delta:g}, a chance of {chance(plan.delta)} that the bound by epsilon does not hold.{expected}",
            ),
            (
                "What can a recipient find out about one unit?",
                f"An attacker who has two candidates for the data of one {plan.unit}, both equally likely, and sees "
                f"all that the stated adversary sees, guesses right in at most {facts.guess(facts.promise)} of cases "
                "(50 % without the study). The figure is that of the best possible test.",
            ),
            (
                "How was epsilon chosen?",
                "By the analyst, before any data were read, and accepted by the policy and the steward of each site. "
                f"The reasons of the analyst are not recorded. {_caps(facts)}",
            ),
            (
                "Can it be compared with other systems?",
                "Only for the same unit, neighbours and adversary, which the next two sections state, and for the cost "
                "of all releases on the same people together, not of one query or one day.",
            ),
        ),
    )
    factor = min(report.worst_epsilon, 690.0)
    rows = []
    for prior in _PRIORS:
        after = 1 / (1 + (1 - prior) / prior * math.exp(-factor))
        rows.append((format_percent(prior), format_percent(after)))
    yield Table(
        "What an attacker may believe after the study, at worst (from epsilon alone, but for a chance of delta)",
        ("belief before", "largest belief after"),
        tuple(rows),
    )
    yield Table(
        "Exact cost at each site",
        ("site", f"epsilon at delta {plan.delta:g}", "mu", "best guess"),
        tuple(
            (
                line.site,
                format_epsilon(line.epsilon),
                format_number(line.mu, 5),
                f"{format_epsilon(100 * line.best_guess)} %",
            )
            for line in report.per_site
        ),
    )


def _caps(facts: Facts) -> str:
    """Caps of the sites whose policies are known."""
    if not facts.sites:
        return f"{NOT_STATED}the caps of the sites, since no site's file was given."
    caps = [
        f"{each.name} allows {format_number(each.policy.epsilon)} in a lifetime"
        + (f" and {format_number(each.policy.study_epsilon)} for one study" if each.policy.study_epsilon else "")
        for each in facts.sites
    ]
    return f"Caps: {'; '.join(caps)}."


def _unit(facts: Facts) -> Iterator[tuple[str, str]]:
    plan = facts.plan
    yield "What is the unit of privacy?", f"{facts.unit[0].upper()}{facts.unit[1:]}."
    yield "Which data sets are neighbours?", f"Two data sets of which {facts.neighbours}."
    yield (
        "How much can one unit contribute?",
        "All rows of a person are bounded together: their contribution to a release is clipped to the bound in the "
        "table of releases, however many rows they own."
        if plan.unit == "person"
        else "One row. A person with several rows is protected less: the policy of a site can state the largest "
        "number of rows of a person, and the site then charges its ledger for the person.",
    )
    yield (
        "Over which time?",
        f"The whole study, all rounds, and {counted(plan.attempts, 'repeated round')} that the plan allows. Later "
        "studies on the same people add to the cost, in the ledger of each site.",
    )
    yield (
        "Who is not covered?",
        "A person with data at two sites: the costs of both sites add up. People who are not in the data: the result "
        "may reveal facts about groups that they belong to.",
    )
    yield (
        "Is anything about the units released exactly?",
        "The number of units at each site is public in this plan, and protected by no noise."
        if any(site.units is not None for site in plan.sites)
        else (
            "The plan has no number of units. Under replace-one neighbours the number of units at a site is not "
            "protected, and a site sends it with its agreement."
            if facts.report.adjacency == "replace-one"
            else "No: the number of units is protected as well."
        ),
    )


def _trust(facts: Facts) -> Iterator[tuple[str, str]]:
    plan, coalition = facts.plan, facts.plan.coalition
    scheme = plan.scheme
    model = "central" if scheme.facts.sees_data else "distributed"
    yield "Which trust model?", f"The {model} model, scheme {scheme.name}: {reads(facts)}."
    yield "Who must be trusted with data?", f"Beside each site with its own people: {scheme.facts.trusted_party}."
    yield (
        "Against whom does epsilon hold?",
        f"Against {facts.adversary}. C = {coalition.colluders} of {len(plan.sites)} sites may share all that they know."
        if plan.private
        else f"{DOES_NOT_APPLY}{facts.adversary}",
    )
    yield (
        "What if sites are lost?",
        f"The noise is planned for {facts.lost} in each round. A round with more losses is not opened.",
    )
    yield (
        "What if more sites collude?",
        "Each site adds its own share of the noise in any case; with more colluders than planned the guarantee "
        "weakens step by step to that of this share alone."
        if scheme.facts.noisy and not scheme.facts.sees_data
        else f"{DOES_NOT_APPLY}the coordinator is trusted with the data anyway",
    )
    yield (
        "Which cryptographic assumptions?",
        "X25519, HKDF-SHA256, AES-256, ChaCha20-Poly1305 and Ed25519 are not broken. Without this assumption a site "
        "keeps its own share of the noise."
        if scheme.facts.secure
        else f"{DOES_NOT_APPLY}the scheme {scheme.name} hides no message behind a cipher; transport is encrypted by "
        "the operators",
    )
    yield (
        "Are parties assumed to follow the protocol?",
        "A coordinator that lies about losses or sends different requests to different sites gains nothing, as long "
        "as the sites of the roster are real (a policy can pin their keys). A site that sends false numbers can make "
        "the result wrong, and cannot be noticed.",
    )
    roster = f"messages travel along a tree of {plan.tree.levels} levels" if plan.parents else "none: a star"
    yield "Do other sites relay messages?", f"{roster[0].upper()}{roster[1:]}."


def _algorithm(facts: Facts) -> Iterator[Block]:
    plan, report = facts.plan, facts.report
    sampled = [release for release in plan.releases if release.sampled is not None]
    published = [release for release in plan.releases if release.kind == "publication"]
    shared = " Where a share of sites is lost, the others carry the noise." if plan.coalition.dropouts else ""
    rows = [
        (
            "Which query?",
            f"{description(plan.algorithm)[0].upper()}{description(plan.algorithm)[1:]} ({plan.algorithm}).",
        ),
        (
            "Which mechanism?",
            f"Clipped sums with {facts.noise}, calibrated to the sensitivity of each release.{shared}"
            if plan.scheme.facts.noisy
            else f"{DOES_NOT_APPLY}no noise is added",
        ),
        (
            "How was the sensitivity found?",
            "By a proof beside the code of each statistic, for both kinds of neighbours; a numerical search for worse "
            "neighbours tests each proof. Clipping is per unit, before any sum, so that it holds for every data set.",
        ),
        (
            "Where do clipping bounds and ranges come from?",
            "From the study file, before data are read. They are public, and in the section on the question of the "
            "report.",
        ),
        (
            "How do releases compose?",
            f"{counted(len(plan.releases), 'release')} in {counted(plan.rounds, 'round')}, adaptively: mu squared "
            "adds up for Gaussian releases, other losses by their exact distributions. Each release has its share of "
            "the budget in the table.",
        ),
        (
            "Which accountant?",
            "Exact privacy-loss accounting: Gaussian differential privacy for full sums"
            + (", and numerical composition of privacy-loss distributions, rounded up." if sampled else ".")
            if plan.calibration == "exact"
            else "The papers' published formula chose the noise; the epsilon stated here is computed exactly for that "
            "noise, and may exceed the one that was asked for.",
        ),
        (
            "Is there sub-sampling?",
            "; ".join(
                f"{release.statistic}: Poisson sampling at rate {format_number(release.sampled.rate)}, "
                f"{release.steps} steps"
                for release in sampled
                if release.sampled is not None
            )
            + ". The sampled units stay secret at their site."
            if sampled
            else f"{DOES_NOT_APPLY}every unit takes part in every release",
        ),
        (
            "Are records published?",
            "Yes, noisy records of every unit: " + ", ".join(release.statistic for release in published) + "."
            if published
            else "No: only sums over units leave a site.",
        ),
        ("Are there parallel queries on parts of the data?", "No saving is claimed for parts: all releases add up."),
        (
            "How were hyper-parameters chosen?",
            "By the analyst, or by the planner from public facts only (number of sites, units where they are public, "
            "epsilon). They are in the plan. No search over the private data was made for them by this software.",
        ),
        (
            "What happens to the data before?",
            "The preparation in the plan, unit by unit: "
            + ", ".join(sorted(plan.question.preprocessing))
            + ". A step that needs the data of several units is a paid release."
            if plan.question.preprocessing
            else "Nothing but scaling by the public ranges and the rules for missing values.",
        ),
    ]
    yield answers("How the guarantee is reached", tuple(rows))
    yield Table(
        "Releases: sensitivity, clipping bound and noise",
        ("release", "numbers", "sensitivity", "bound of one unit", "noise, standard deviation", "law", "share of mu²"),
        tuple(
            (
                line.statistic,
                str(line.size),
                format_number(line.sensitivity),
                format_number(release.bound),
                format_number(line.noise_std),
                line.noise if plan.scheme.facts.noisy else "none",
                format_percent(line.share),
            )
            for line, release in zip(report.releases, plan.releases, strict=True)
        ),
    )


def _utility(facts: Facts) -> Iterator[tuple[str, str]]:
    plan, result = facts.plan, facts.result
    yield (
        "How large is the error by privacy?",
        "The standard deviation of the noise of each release is in the table above; the report states it for each "
        "number of the result, with 95 % intervals."
        if plan.scheme.facts.noisy
        else f"{DOES_NOT_APPLY}no noise is added",
    )
    yield (
        "Was utility checked before the study?",
        "The command zerosum plan --what-if forecasts the error from the plan alone. Whether it was used is not "
        "recorded.",
    )
    if result is None:
        yield "Was the result useful?", f"{NOT_STATED}the study was not run, or no result was given"
    else:
        said = f" Warnings: {'; '.join(result.warnings)}." if result.warnings else " It has no warnings."
        yield (
            "Was the result useful?",
            f"{counted(len(result.estimate), 'quantity', 'quantities')} were estimated.{said}",
        )
    yield (
        "Statistical bias?",
        "Values outside the public ranges are moved to their ends, and rows of norms above the bound are scaled down: "
        "both bias a result if the ranges are too narrow. The noise itself has mean zero.",
    )
    yield (
        "Systemic and human bias?",
        "Noise has the same size for small and large groups, so that small groups have the larger relative error. "
        "Decisions on such groups need the stated intervals. The software cannot judge how the data were collected.",
    )
    rule = (
        "a rule for missing values is in the plan"
        if plan.question.missing
        else "no rule for missing values was asked for"
    )
    yield "Missing values?", f"In this study {rule}. A cell that cannot be used never changes whether a site answers."
    yield (
        "Which post-processing?",
        "Only functions of the released sums and of public facts: they cost nothing. The estimates, intervals and "
        "pictures of the report are of this kind.",
    )


def _implementation(facts: Facts) -> Iterator[tuple[str, str]]:
    plan, report = facts.plan, facts.report
    noisy = plan.scheme.facts.noisy
    gridded = noisy and all(plan.gridded(release) for release in plan.releases)
    yield (
        "Floating point?",
        "Values are rounded to an integer grid and the noise is drawn exactly on it. Rounding is part of the "
        f"sensitivity, and finite arithmetic costs {format_number(report.extra_delta, 2)} of delta."
        if gridded
        else (
            "The noise is a normal in double precision, for comparison with papers. No bound on what its low bits "
            "reveal is claimed."
            if noisy
            else f"{DOES_NOT_APPLY}no noise is added"
        ),
    )
    yield (
        "Randomness?",
        f"{DOES_NOT_APPLY}no noise is added"
        if not noisy
        else "A stream cipher keyed by the operating system's generator, afresh for each release."
        if plan.seed is None
        else "A seed that is in the plan: a person who knows it can remove the noise.",
    )
    yield (
        "Side channels?",
        "Everything that a site sends, and whether it answers, follows from public values and releases. Time, memory "
        "and power of a site's own machine are out of scope; the noise sampler takes a time that depends on the noise.",
    )
    yield (
        "How was the implementation tested?",
        "Exact adversary models against closed forms, attacks on recorded transcripts, a differential fuzzer on "
        "neighbouring data sets, and seeded faults that the tests must find (docs/audit.md). No external audit is "
        "recorded.",
    )
    yield (
        "Can it be reproduced?",
        "The plan has the digest "
        f"{report.plan_digest}, and determines every cost. Noise cannot be drawn again, by design."
        if plan.seed is None
        else f"Yes, bit for bit, from the seed and the plan {report.plan_digest}.",
    )
    software = ", ".join(f"{name} {version}" for name, version in facts.result.versions.items()) if facts.result else ""
    yield (
        "Which software?",
        software or f"{NOT_STATED}no result was given; the last section has the version of the dossier",
    )


def _security(facts: Facts) -> Iterator[tuple[str, str]]:
    plan, result = facts.plan, facts.result
    yield (
        "Who can query?",
        "Only the coordinator that carries this plan, and only the releases in it, each once. It is no interactive "
        "system; a site refuses any other request.",
    )
    yield (
        "Who can access the data?",
        "The process of each site, as its own user, beside the data; its local socket; and, if set up, a socket for "
        "stewards and one for auditors. No record leaves the site."
        if not any(release.kind == "publication" for release in plan.releases)
        else "The process of each site. Noisy records of all units are published to the coordinator.",
    )
    yield (
        "Who agreed?",
        "; ".join(f"{each.name}: {_consent(facts, each.name)}" for each in facts.sites)
        if facts.sites
        else f"{NOT_STATED}no site's file was given; each site's audit log names the user who decided",
    )
    spent = [f"{each.name}: {_spent(each.ledger)}" for each in facts.sites if each.ledger is not None]
    yield (
        "What have other studies of the same people spent?",
        "; ".join(spent) if spent else f"{NOT_STATED}no site's ledger was given",
    )
    yield (
        "How were the data collected, and what if they are stolen there?",
        "Differential privacy protects what is released, not the stored records. "
        f"{NOT_STATED}how each site collected and stores its records; the controller of each site adds it.",
    )
    yield (
        "Are the same data released elsewhere without noise?",
        f"{NOT_STATED}the software cannot know it. Exact tables about the same people can undo the protection of both.",
    )
    yield (
        "Which data are read?",
        f"{plan.question.n_columns} columns: {', '.join(plan.question.columns[:12])}"
        + (" and more" if plan.question.n_columns > 12 else "")
        + ".",
    )
    yield (
        "Is there a record of what happened?",
        "Each site has a ledger, written before each release, and an audit log that is a hash chain. "
        + (
            f"Rounds with all sites: {sum(len(names) == len(plan.sites) for names in result.participants)} of "
            f"{len(result.participants)}."
            if result
            else "No result was given."
        ),
    )
    yield "How long is it kept?", facts.permit("retention")


def _spent(ledger: Mapping[str, Any]) -> str:
    """What a ledger has spent and what is left, in words."""
    left = ledger["left"]
    rest = "no cap" if left is None else f"{format_number(float(left), 4)} left for one more study"
    return f"epsilon {format_epsilon(float(ledger['epsilon']))} spent in all, {rest}"


def _consent(facts: Facts, name: str) -> str:
    """How a site agreed to the plan, by its ledger."""
    site = next(each for each in facts.sites if each.name == name)
    studies = [] if site.ledger is None else site.ledger["studies"]
    mine = next((each for each in studies if each["study"] == facts.plan.study), None)
    if mine is None:
        return "its ledger has no entry of this plan"
    how = {"steward": "the steward", "automatic": "automatically, by its policy"}.get(str(mine["consent"]))
    return f"{how or 'in one process with the other sites'}, charged epsilon {format_epsilon(float(mine['epsilon']))}"
