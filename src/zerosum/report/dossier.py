"""Writes the dossier of a study: what a data protection officer, an ethics board and a registry ask for.

The folder of a dossier has

- `summary.html`, two printed pages for reviewers who are not experts, and `summary.json`;
- `dossier.html`, the questions of NIST SP 800-226 with the answers of this plan, and the annex of an impact
  assessment by recipient, and `dossier.json`;
- `registry.json`, an entry for the Differential Privacy Deployments Registry, if the plan is private;
- `plan.json`, the plan; and `dossier.docx` on request.

Pages and JSON are signed like a report (`zerosum.report.signature`), and `zerosum verify` checks them. The dossier
names the digests of the other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from zerosum.disk import make_folder
from zerosum.report.build import signed_files
from zerosum.report.document import Document, Section, Table, Text
from zerosum.report.dossier_facts import DOES_NOT_APPLY, NOT_STATED, Facts
from zerosum.report.dossier_questions import question_sections
from zerosum.report.dossier_recipients import assessment_sections
from zerosum.report.dossier_registry import registry_entry
from zerosum.report.dossier_summary import summary_sections
from zerosum.report.dossier_word import word
from zerosum.report.guarantee_text import question, study_title, summary
from zerosum.report.record import check_target, versions, write_whole
from zerosum.secagg.keys import Identity


def write_dossier(facts: Facts, folder: Path, key: Identity, *, site: str = "", docx: bool = False) -> list[Path]:
    """Write a dossier to a new folder. Returns the paths of its files, the summary first.

    Parameters
    ----------
    facts : Facts
        What it is filled from.
    folder : Path
        A new folder.
    key : Identity
        Signing key: of a site, if `site` is given, otherwise of its author.
    site : str
        The site whose key signs.
    docx : bool
        Whether a Word file is written as well; it needs python-docx.
    """
    check_target(folder)
    # All contents are made before anything is written, so that a fault leaves no part of a dossier.
    files: dict[str, bytes] = {"plan.json": facts.plan.to_json()}
    if (entry := registry_entry(facts)) is not None:
        files["registry.json"] = entry.to_json()
    brief = summary_document(facts, key.public.hex(), site)
    files["summary.html"], files["summary.json"] = signed_files(brief, key)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    whole = dossier_document(facts, digests, key.public.hex(), site)
    files["dossier.html"], files["dossier.json"] = signed_files(whole, key)
    if docx:
        files["dossier.docx"] = word((brief, whole))
    # For those whom its owner gives it to: with a site's file it has the site's other studies.
    if not folder.exists():
        make_folder(folder)
    # The page of the dossier is written last: a folder that has it is complete.
    order = sorted(files, key=lambda name: name == "dossier.html")
    for name in order:
        write_whole(folder / name, files[name])
    shown = ("summary.html", "dossier.html")
    return [folder / name for name in (*shown, *sorted(set(files) - set(shown)))]


def summary_document(facts: Facts, key: str, site: str = "") -> Document:
    """The summary. Parameters are those of `dossier_document`."""
    base = _base(facts, {}, key, site)
    return replace(base, format="zerosum summary 1", sections=summary_sections(facts))


def dossier_document(facts: Facts, files: Mapping[str, str], key: str, site: str = "") -> Document:
    """The dossier.

    Parameters
    ----------
    facts : Facts
        What it is filled from.
    files : mapping of str to str
        SHA-256 of the other files of its folder.
    key : str
        Public signing key, hexadecimal.
    site : str
        The site whose key signs; empty for another author.
    """
    sections = (
        Section("question", "The question", question(facts.plan.question, facts.plan.algorithm)),
        *question_sections(facts),
        *assessment_sections(facts),
        Section("registry", "Entry for the public registry", (_registry(facts),)),
        Section("provenance", "Provenance", (_provenance(facts, files),)),
    )
    return replace(_base(facts, files, key, site), format="zerosum dossier 1", sections=sections)


def _base(facts: Facts, files: Mapping[str, str], key: str, site: str) -> Document:
    """The fields that summary and dossier share."""
    plan, report = facts.plan, facts.report
    brief = summary(plan, report, done=facts.result is not None)
    open_ = "" if facts.result else " No result was given; a plan alone spends nothing."
    return Document(
        study=plan.study,
        algorithm=plan.algorithm,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        title=study_title(plan.study),
        summary=f"{brief}{open_}",
        coordinator=key,
        plan_digest=plan.digest(),
        proposal_digest=plan.proposal_digest,
        public_digest=plan.public_digest,
        files=dict(files),
        privacy=report.as_record(),
        participants=facts.result.participants if facts.result else (),
        versions=versions(),
        warnings=facts.result.warnings if facts.result else (),
        sections=(),
        site=site,
    )


def _registry(facts: Facts) -> Text | Table:
    """The fields of the registry entry as a table."""
    entry = registry_entry(facts)
    if entry is None:
        return Text((f"{DOES_NOT_APPLY}the run is not differentially private, and the registry lists no such runs",))
    rows = []
    for part, fields in entry.deployment.model_dump(mode="json", exclude_none=True).items():
        for name, value in fields.items():
            rows.append((f"{part}.{name}".replace("_", " "), _field(value)))
    return Table("Fields of registry.json", ("field", "content"), tuple(rows))


def _field(value: object) -> str:
    """A value of the registry entry as text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')}: {_field(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_field, value))
    return str(value)


def _provenance(facts: Facts, files: Mapping[str, str]) -> Table:
    """Where the entries come from."""
    plan = facts.plan
    draft = (
        "made for this dossier from a study file; the plan that is approved has another digest"
        if facts.draft
        else "given"
    )
    rows = [
        ("plan", draft),
        ("digest of the plan", plan.digest()),
        ("digest without keys", plan.proposal_digest),
        ("digest of the question", plan.public_digest),
        ("result", "given" if facts.result else f"{NOT_STATED}none was given"),
        (
            "policies and ledgers",
            ", ".join(f"{each.name}{'' if each.ledger else ' (no ledger yet)'}" for each in facts.sites)
            or f"{NOT_STATED}no site's file was given",
        ),
        *((f"SHA-256 of {name}", digest) for name, digest in files.items()),
        *((f"version of {name}", version) for name, version in versions().items()),
    ]
    return Table("What this dossier was made from", ("entry", "content"), tuple(rows))
