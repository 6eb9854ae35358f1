"""Dossiers: every entry is filled or has a reason, and each follows the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.errors import BadInput, CheckFailed
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import SCHEMES, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite
from zerosum.kernel.view import Coalition
from zerosum.report.document import Document, Table, Text
from zerosum.report.dossier import dossier_document, summary_document, write_dossier
from zerosum.report.dossier_facts import DOES_NOT_APPLY, NOT_STATED, PERMIT, Facts, SiteFacts
from zerosum.report.dossier_registry import SCHEMA, RegistryEntry, json_schema, registry_entry
from zerosum.report.record import Result
from zerosum.report.verify import check_plan, verify
from zerosum.secagg.keys import Identity
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_summary import statement
from zerosum.study.entries import PermitTable

SUM = PlannedRelease("vector_sum", 2.0, 1.0, 2, 1.0)


def cells(document: Document) -> Iterator[str]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Table):
                for row in block.rows:
                    yield from row
            elif isinstance(block, Text):
                yield from block.sentences


def pages(plan: Plan, result: Result | None = None) -> str:
    """Texts of summary, dossier and registry entry without digests of this plan and the time of writing."""
    facts = Facts(plan, result)
    entry = registry_entry(facts)
    texts = [*cells(summary_document(facts, "k")), *cells(dossier_document(facts, {}, "k"))]
    text = "\n".join([*texts, "" if entry is None else entry.to_json().decode()])
    for digest in (plan.digest(), plan.proposal_digest, plan.public_digest, plan.proposal_digest[:8]):
        text = text.replace(digest, "")
    return text


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "epsilon": ({"epsilon": 1.0}, "e^1)"),
    "delta": ({"delta": 1e-7}, "one in 10,000,000"),
    "scheme": ({"scheme": Scheme("local")}, "the coordinator reads every noisy sum"),
    "unit": ({"unit": "record"}, "Record-level"),
    "neighbours": ({"adjacency": Adjacency.ADD_REMOVE}, "unbounded, add-remove"),
    "colluders": ({"coalition": Coalition(2)}, "any 2 sites"),
    "losses": ({"coalition": Coalition(1, 1)}, "1 lost site"),
    "noise law": ({"releases": (replace(SUM, noise="laplace", size=1),)}, "discrete Laplace noise"),
    "sites": ({"sites": tuple(PlannedSite(f"s{i}") for i in range(6))}, "6 sites"),
    "units": ({"sites": tuple(PlannedSite(f"s{i}", 50) for i in range(4))}, "200 units"),
    "sub-sampling": (
        {"releases": (replace(SUM, sampling=Sampling(0.1, 5)),)},
        "Poisson sampling at rate 0.1, 5 steps",
    ),
    "publication": (
        {
            "releases": (replace(SUM, kind="publication"),),
            "sites": tuple(PlannedSite(f"s{i}", 9) for i in range(4)),
        },
        "A noisy record of every unit",
    ),
    "attempts": ({"attempts": 2}, "2 repeated rounds"),
    "seed": ({"seed": 3}, "A seed that is in the plan"),
    "tree": ({"parents": {"s1": "s0"}}, "a tree of 2 levels"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_dossier_of_a_changed_plan_has_changed_pages(change: str) -> None:
    changes, text = CHANGES[change]
    before = make("secure-sum", releases=(SUM,))
    after = replace(before, **changes)
    assert text.lower() not in pages(before).lower()
    assert text.lower() in pages(after).lower()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dossier_has_no_empty_entry(scheme: str, tmp_path: Path) -> None:
    plan = make(scheme)
    result = carry_out(plan, make_sites(tmp_path))
    for facts in (Facts(plan), Facts(result.plan, result)):
        for document in (summary_document(facts, "k"), dossier_document(facts, {"plan.json": "d"}, "k")):
            assert all(cell.strip() for cell in cells(document))
            # A reason follows each mark of an open entry.
            for cell in cells(document):
                for mark in (NOT_STATED, DOES_NOT_APPLY):
                    assert all(len(rest) > 10 for rest in cell.split(mark)[1:])


def test_dossier_with_result_policy_and_ledger_states_them(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    result = carry_out(make("secure-sum"), sites)
    site = sites[0]
    with Ledger.inspect(site.policy.ledger_path) as ledger:
        own = SiteFacts(site.name, site.policy, statement(ledger, site.policy.cap))
    text = "\n".join(cells(dossier_document(Facts(result.plan, result, (own,)), {}, "k")))
    assert "s0 allows 100 in a lifetime" in text
    assert "s0: epsilon" in text
    assert "charged epsilon" in text
    assert "p0" in text  # the population
    assert "none was given" not in text


def test_dossier_states_permit_and_purpose_that_travel_in_the_plan() -> None:
    given = PermitTable(number="EK 17", authority="Board", controller="Hospital", contact="office@example.org").texts()
    plan = make("secure-sum")
    stated = replace(plan, question=replace(plan.question, purpose="To learn X", permit=given))
    assert {"To learn X", "EK 17", "Board", "Hospital"} <= set(cells(dossier_document(Facts(stated), {}, "k")))
    entry = registry_entry(Facts(stated))
    assert entry is not None
    assert entry.deployment.basic.data_curators[0].data_curator_name == "Hospital"
    assert entry.deployment.basic.intended_use == "To learn X"
    assert Plan.from_json(stated.to_json()) == stated
    assert stated.digest() != plan.digest()


def test_plan_without_permit_has_the_entries_of_earlier_plans() -> None:
    question = json.loads(make("secure-sum").to_json())["question"]
    assert {"purpose", "permit"}.isdisjoint(question)


def test_permit_entries_have_names_in_dossiers() -> None:
    assert set(PERMIT) | {"controller_kind"} == set(PermitTable.model_fields)


def test_permit_with_empty_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        PermitTable(number=" ")


def test_registry_entry_is_valid_and_has_the_plan(tmp_path: Path) -> None:
    plan = make("secure-sum", releases=(SUM,), epsilon=1.0)
    entry = registry_entry(Facts(plan))
    assert entry is not None
    assert RegistryEntry.parse(entry.to_json()) == entry
    loss = entry.deployment.privacy_loss
    assert (loss.privacy_parameters.epsilon, loss.privacy_parameters.delta) == (1.0, 1e-5)
    assert loss.privacy_unit == "Person-level"
    assert entry.deployment.deployment_model.model_name == "Federated"
    assert entry.deployment.administrative.status == "Draft"


def test_registry_schema_file_is_that_of_the_model() -> None:
    assert SCHEMA.read_text() == json_schema()


@pytest.mark.parametrize("scheme", [name for name, facts in SCHEMES.items() if facts.noisy])
def test_registry_entry_meets_the_shipped_schema(scheme: str) -> None:
    linter = pytest.importorskip("jsonschema")
    entry = registry_entry(Facts(make(scheme)))
    assert entry is not None
    linter.validate(json.loads(entry.to_json()), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry.pop("url_slug"),
        lambda entry: entry["deployment"].update(unknown=1),
        lambda entry: entry["deployment"]["privacy_loss"]["privacy_parameters"].update(epsilon=-1),
        lambda entry: entry["deployment"]["basic"].update(intended_use=""),
        lambda entry: entry["deployment"]["deployment_model"].update(model_name="Trusted"),
    ],
)
def test_registry_entry_that_is_invalid_is_refused(spoil: Callable[[dict[str, Any]], object]) -> None:
    entry = registry_entry(Facts(make("secure-sum")))
    assert entry is not None
    record = json.loads(entry.to_json())
    spoil(record)
    with pytest.raises(BadInput):
        RegistryEntry.parse(json.dumps(record).encode())


def test_run_without_privacy_has_no_registry_entry(tmp_path: Path) -> None:
    written = write_dossier(Facts(make("non-private")), tmp_path / "d", Identity())
    assert "registry.json" not in [path.name for path in written]


def test_dossier_verifies_and_a_changed_byte_does_not(tmp_path: Path) -> None:
    plan, key = make("secure-sum"), Identity()
    write_dossier(Facts(plan), tmp_path / "d", key)
    found = verify(tmp_path / "d")
    assert found.key == key.public.hex()
    assert found.absent == ()
    assert found.redrawn
    assert not check_plan(found, plan)  # which pins no key
    assert verify(tmp_path / "d" / "summary.html").redrawn
    for name in ("dossier.html", "dossier.json", "registry.json", "plan.json", "summary.html"):
        path = tmp_path / "d" / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b"e", b"f", 1))
        with pytest.raises(CheckFailed):
            verify(tmp_path / "d")
        path.write_bytes(content)


def test_dossier_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    write_dossier(Facts(make("secure-sum")), tmp_path / "d", Identity())
    assert (tmp_path / "d").stat().st_mode & 0o077 == 0


def test_dossier_of_another_plan_is_refused(tmp_path: Path) -> None:
    write_dossier(Facts(make("secure-sum")), tmp_path / "d", Identity())
    with pytest.raises(CheckFailed):
        check_plan(verify(tmp_path / "d"), make("secure-sum", epsilon=1.0))


def test_dossier_in_an_existing_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").touch()
    with pytest.raises(BadInput):
        write_dossier(Facts(make("secure-sum")), tmp_path / "d", Identity())


def test_word_file_has_the_headings_of_both_documents(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    write_dossier(Facts(make("secure-sum")), tmp_path / "d", Identity(), docx=True)
    file = docx.Document(str(tmp_path / "d" / "dossier.docx"))
    headings = [each.text for each in file.paragraphs if each.style.name.startswith("Heading")]
    assert {"What a board may ask", "The unit of privacy", "Impact assessment: recipients"} <= set(headings)
    assert len(file.tables) > 10
