"""Builds the report of a result: a document, then a signed HTML page and its JSON.

A report contains the plan and the releases, which the analyst may see. It contains nothing private to a site, such as
the budget left under its cap. A site adds that to its own copy (`site_copy`), which is signed with the site's key.

Steps: `build_document` turns the result into sections of text, tables and plot data (`zerosum.report.document`);
`signed_files` writes the document as JSON, signs it, renders the page from the same document with the digest of the
JSON in its footer, and signs the page. The JSON comes first, because the page states its digest and not the other way
round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zerosum.data.masker import Masker
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.amounts import format_epsilon
from zerosum.report.document import Bars, Block, Curves, Document, Section, Series, Table, Text, all_known, known
from zerosum.report.guarantee_text import guarantee, parameter_text, question, study_title, summary
from zerosum.report.number_format import format_number, format_percent
from zerosum.report.page import render
from zerosum.report.record import PrivacyReport, Result, write_whole
from zerosum.report.result_blocks import result_blocks
from zerosum.report.signature import coordinator_key, sign
from zerosum.secagg.keys import Identity

# File names of the page and of its JSON.
PAGE, TEXT = "report.html", "report.json"
# Files of a result whose digests the report contains.
_RESULT_FILES = ("result.json", "estimate.npz", "plan.json")
FILES = (*_RESULT_FILES, PAGE, TEXT)
_EPSILON_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)  # multiples of epsilon in the table of other budgets
_SUBSAMPLED_MULTIPLES = (0.5, 1.0, 2.0)  # the same for subsampled phases, whose accounting takes seconds
_MOST_BARS = 14  # largest number of bars; with more releases, those of one statistic are summed
_MOST_COLUMNS = 4  # largest number of columns in the table of other budgets


def write_report(
    folder: Path, space: Masker | None = None, result: Result | None = None, key: Identity | None = None
) -> Path:
    """Write report.html and report.json beside a written result. Returns the path of the page.

    Both files are signed and contain the digests of the result's files. A JSON file without a page, left by a killed
    process, is replaced.

    Parameters
    ----------
    folder : Path
        Folder with the written result.
    space : Masker, optional
        Public grid, for maps.
    result : Result, optional
        By default read from the folder.
    key : Identity, optional
        Signing key; by default the coordinator's (`coordinator_key`).
    """
    if (folder / PAGE).exists():
        raise BadInput(f"{folder / PAGE} exists already; choose another place")
    result = result or Result.read(folder)
    identity = key or coordinator_key(result.plan)
    files = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in _RESULT_FILES}
    page, text = signed_files(build_document(result, files, identity.public.hex(), space), identity)
    # The page is written last: a folder with a page has a complete report.
    (folder / TEXT).unlink(missing_ok=True)
    write_whole(folder / TEXT, text)
    write_whole(folder / PAGE, page)
    return folder / PAGE


def signed_files(document: Document, identity: Identity) -> tuple[bytes, bytes]:
    """Signed page and signed JSON of a document. The page contains the digest of the JSON.

    Parameters
    ----------
    document : Document
        The report. It names the public key of `identity` as its signer.
    identity : Identity
        Signing key.
    """
    # The signature becomes the last entry of the JSON object, so the closing brace is part of the seal.
    text = sign(document.to_json().removesuffix(b"\n}"), "json", identity)
    page = render(document, hashlib.sha256(text).hexdigest())
    return sign(page, "html", identity), text


def read_document(content: bytes) -> Document:
    """Document from the signed content of a JSON report."""
    # `signed_files` removes the last brace before signing, because the signature is the last entry of the object.
    return Document.from_json(content + b"\n}")


def build_document(result: Result, files: Mapping[str, str], key: str, space: Masker | None = None) -> Document:
    """Document of a result.

    Parameters
    ----------
    result : Result
        The result.
    files : mapping of str to str
        SHA-256 of the result's files.
    key : str
        Public signing key, hexadecimal.
    space : Masker, optional
        Public grid, for maps.
    """
    plan, report = result.plan, result.report
    # Warnings stand above the figures they are about.
    warned = (Text(result.warnings, "warning"),) if result.warnings else ()
    sections = (
        Section("question", "The question", question(plan.question, plan.algorithm)),
        Section("result", "The result", (*warned, *_result_section(result, space))),
        Section("guarantee", "The guarantee", (*guarantee(report), *_per_site(report))),
        Section("budget", "The budget", tuple(_budget(result))),
        Section("participants", "Who took part", tuple(_participants(result))),
        Section("provenance", "Provenance", tuple(_provenance(result, files))),
    )
    return Document(
        study=plan.study,
        algorithm=plan.algorithm,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        title=study_title(plan.study),
        summary=summary(plan, report),
        coordinator=key,
        plan_digest=plan.digest(),
        proposal_digest=plan.proposal_digest,
        public_digest=plan.public_digest,
        files=dict(files),
        privacy=report.as_record(),
        participants=result.participants,
        versions=dict(result.versions),
        warnings=result.warnings,
        sections=sections,
    )


def _result_section(result: Result, space: Masker | None) -> list[Block]:
    """Blocks of the result. If a picture fails, a note replaces them, so that the report is still written."""
    try:
        return result_blocks(result.estimate, result.plan.question, space, result.plan.algorithm)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = (
            f"The result could not be drawn ({type(error).__name__}); its numbers are in result.json and estimate.npz."
        )
        return [Text((why,), "warning")]


def site_copy(document: Document, site: str, key: str, statement: Mapping[str, Any]) -> Document:
    """Copy of a report for a site's own steward, with a section on the site's ledger.

    Parameters
    ----------
    document : Document
        The coordinator's report.
    site : str
        Name of the site.
    key : str
        Public key of the site, hexadecimal.
    statement : mapping
        Statement of the site's ledger: cap, spent and remaining epsilon, studies.
    """
    cap, spent = statement["cap"], float(statement["epsilon"])
    # Studies are recorded under their full name with its random suffix, which is unique.
    mine = next((each for each in statement["studies"] if each["study"] == document.study), None)
    cost = "nothing" if mine is None else f"epsilon {format_epsilon(float(mine['epsilon']))}"
    rows = [
        ("charged for this study", cost),
        ("spent in all studies so far", f"epsilon {format_epsilon(spent)} at delta {statement['delta']:g}"),
    ]
    from_here = f"From the ledger of {site}, for its own steward: this section is about other studies, too."
    rest = f"The other sections are from the report that the coordinator signed with the key {document.coordinator}."
    blocks: list[Block] = [Text((from_here, rest))]
    if cap is not None:
        rows += [
            ("the cap", f"epsilon {format_number(float(cap['epsilon']), 5)} at delta {cap['delta']:g}"),
            # Rounded down, so that the stated epsilon is always available.
            ("largest cost of one more study", f"epsilon {math.floor(1e4 * float(statement['left'])) / 1e4:g}"),
        ]
        # Not what one more study may cost (the row above): privacy costs compose to less than their sum, so that is
        # more than this difference.
        left = max(float(cap["epsilon"]) - spent, 0.0)
        about = "Spent against the cap, in epsilon. Studies add up to less than their sum."
        blocks.append(Bars("Under the cap", about, ("spent", "not spent"), (known(spent), known(left))))
    blocks.append(Table("The ledger", ("entry", "amount"), tuple(rows)))
    own = Section("at-this-site", f"At {site}", tuple(blocks))
    # The section about the site follows the guarantee.
    before = [section for section in document.sections if section.name in ("question", "result", "guarantee")]
    after = [section for section in document.sections if section not in before]
    return replace(document, site=site, coordinator=key, sections=(*before, own, *after))


# ---- the budget ----------------------------------------------------------------------------------------------------


def _per_site(report: PrivacyReport) -> Iterator[Block]:
    """Table of the exact cost at each site."""
    if not report.private:
        return
    dealt = any(line.helper_epsilon is not None for line in report.per_site)
    rows = []
    for line in report.per_site:
        more = (format_epsilon(line.helper_epsilon or math.inf),) if dealt else ()
        rows.append((line.site, format_epsilon(line.epsilon), format_number(line.mu, 5), *more))
    heading = ("site", f"epsilon at delta {report.delta:g}", "mu", *(["epsilon against the dealer"] if dealt else []))
    yield Table(f"Exact cost of the study for each {report.unit}", tuple(heading), tuple(rows))


def _budget(result: Result) -> Iterator[Block]:
    """Share of the budget, table of releases, and noise at other budgets."""
    report = result.report
    if result.plan.scheme.facts.noisy:
        yield from _releases(report)
    rows = []
    for line in report.releases:
        steps = f"{line.steps} of rate {line.rate:g}" if line.rate is not None and line.rate < 1 else str(line.steps)
        rows.append(
            (
                line.statistic,
                str(line.size),
                format_number(line.sensitivity),
                format_percent(line.share),
                format_number(line.noise_std),
                steps,
            )
        )
    heading = ("release", "numbers", "sensitivity", "share of mu²", "noise, standard deviation", "steps")
    yield Table("All planned releases", heading, tuple(rows), folded=len(rows) > _MOST_BARS)
    sentences = [f"{report.attempts} repeated rounds are paid for, used or not."] if report.attempts else []
    # A smaller part of delta needs no sentence.
    if report.extra_delta > 1e-6 * report.delta:
        sentences.append(f"Finite arithmetic adds {report.extra_delta:.2g} to delta, which is paid for.")
    if sentences:
        yield Text(tuple(sentences))
    yield from what_if(result)


def _releases(report: PrivacyReport) -> Iterator[Block]:
    """Bars with the share of the budget of each release."""
    names, shares = [line.statistic for line in report.releases], [line.share for line in report.releases]
    # Many releases of one statistic, such as the rounds of k-means, are one bar: their shares of mu squared add up.
    if len(names) > _MOST_BARS:
        totals: dict[str, float] = {}
        for name, share in zip(names, shares, strict=True):
            totals[name] = totals.get(name, 0.0) + share
        labels, values = tuple(totals), tuple(totals.values())
    else:
        # A statistic that is released several times gets its number.
        often = {name: names.count(name) for name in names}
        labels = tuple(f"{at + 1}. {name}" if often[name] > 1 else name for at, name in enumerate(names))
        values = tuple(shares)
    # More bars than that say less than the table below them.
    if len(labels) <= 2 * _MOST_BARS:
        about = "The share of the budget (of mu squared, which adds up) that each release had."
        yield Bars("The budget by release", about, labels, all_known(values), percent=True, whole=1.0)


def what_if(result: Result) -> Iterator[Block]:
    """Noise of the same releases at other budgets, from the noise law of the plan."""
    plan = result.plan
    if not plan.scheme.facts.noisy:
        return
    # Only estimates that are linear in the released sums: their noise is scaled exactly.
    columns = _scaled_intervals(result)
    rows, points = [], []
    # Accounting of subsampled phases takes seconds for each epsilon.
    sampled = any(release.sampled is not None for release in plan.releases)
    for times in _SUBSAMPLED_MULTIPLES if sampled else _EPSILON_MULTIPLES:
        try:
            ratio = plan.noise_ratio(times * plan.epsilon)
        except BadParameter:  # no plan exists for this epsilon
            continue
        cells = [f"± {format_number(ratio * half, 3)}" for _, half in columns]
        this = " (this study)" if times == 1 else ""
        rows.append((f"{format_number(times * plan.epsilon)}{this}", f"{format_number(ratio, 3)} times", *cells))
        points.append((times * plan.epsilon, ratio))
    yield Text(
        (
            "The same study at other budgets: the noise of every released number, as a multiple of its noise in this "
            "study. For a named column, also the 95 % interval of the noise. The sampling error does not change.",
        )
    )
    heading = ("epsilon", "noise", *(label for label, _ in columns))
    yield Table("With more or less budget", heading, tuple(rows))
    # Two points are no curve.
    if len(points) > 2:
        x, y = zip(*points, strict=True)
        about = "The standard deviation of every release's noise, this study's being 1."
        yield Curves("Noise against epsilon", about, "epsilon", "noise", (Series("noise", all_known(x), all_known(y)),))


def _scaled_intervals(result: Result) -> list[tuple[str, float]]:
    """(label, half width of the 95 % interval) of estimates that are released sums up to constants, whose noise scales
    with that of the sums."""
    for name, kinds in (("mean", ("mean",)), ("counts", ("count",))):
        quantity = result.estimate.get(name)
        if quantity is None or quantity.kind not in kinds or quantity.std is None or not quantity.axes:
            continue
        labels, halves = quantity.axes[-1].labels, quantity.half_width
        # The first row is that of all units, before groups.
        pairs = list(zip(labels, halves.reshape(-1, halves.shape[-1])[0], strict=True))
        return [(label, float(half)) for label, half in pairs[:_MOST_COLUMNS] if math.isfinite(half)]
    return []


# ---- participants and provenance -----------------------------------------------------------------------------------


def _participants(result: Result) -> Iterator[Block]:
    """Numbers of rounds, and the attendance of each site."""
    plan, rounds = result.plan, result.participants
    released = [names for names in rounds if names]
    rows, lost = [], 0
    for site in plan.sites:
        there = sum(site.name in names for names in released)
        missed = len(released) - there
        lost += missed > 0
        units = "not public" if site.units is None else str(site.units)
        rows.append((site.name, units, f"{there} of {len(released)}"))
    many = f"{len(released)} round{'s were' if len(released) != 1 else ' was'} released, {plan.rounds} planned."
    loss = "No site was lost." if not lost else f"{lost} of {len(plan.sites)} sites missed a round or more."
    yield Text((f"{many} {loss}",))
    yield Table("Sites", ("site", "people" if plan.unit == "person" else "records", "rounds"), tuple(rows))


def _provenance(result: Result, files: Mapping[str, str]) -> Iterator[Block]:
    """Digests, keys and versions."""
    plan = result.plan
    pinned = plan.coordinator or "none: to verify the report, obtain the key from the coordinator"
    rows = [
        ("study, with the run's random name", plan.study),
        ("scheme", parameter_text(plan.scheme.as_record())),
        ("digest of the plan that sites agreed to", plan.digest()),
        ("digest of the plan as approved, without keys", plan.proposal_digest),
        ("digest of the public question", plan.public_digest),
        ("coordinator's key that the plan pins", pinned),
        *((f"SHA-256 of {name}", digest) for name, digest in files.items()),
        *((f"version of {name}", number) for name, number in result.versions.items()),
    ]
    yield Table("Digests and versions", ("entry", "value"), tuple(rows))
