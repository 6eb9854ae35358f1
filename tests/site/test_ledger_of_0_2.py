"""Ledgers of Zerosum 0.2: studies that a site agreed to automatically are marked, and count as they were charged.

Ledgers are made by the site service, as under 0.2: entries say version 0.2.0 and not who consented.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.site_service import REQUEST, serve, tell
from helpers.small_studies import make
from zerosum.cli import _run
from zerosum.kernel.plan import Plan
from zerosum.protocol.messages import Contribute, Contribution, Propose
from zerosum.site import ledger as ledgers
from zerosum.site import site as sites
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_summary import in_words, statement
from zerosum.version import VERSION

APPROVED, AUTOMATIC = make("local", study="read by the steward"), make("local", study="read by nobody")


@pytest.fixture
def of_0_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is charged from here on is charged as 0.2 did."""
    monkeypatch.setattr(ledgers, "VERSION", "0.2.0")
    monkeypatch.setattr(sites, "in_words", lambda plan, consent: in_words(plan))


def take_part(folder: Path, plans: Sequence[Plan], *, automatic: bool = True) -> None:
    service = serve(folder, automatic=automatic)
    for plan in plans:
        tell(service, plan, Propose(plan))
        assert isinstance(tell(service, plan, Contribute(0, 0, REQUEST)), Contribution)
    service.close()


@pytest.fixture
def state(tmp_path: Path, of_0_2: None) -> Path:
    """A site's state folder with one study that the steward approved, and one that was agreed to automatically."""
    Consents(tmp_path).decide(APPROVED.digest(), "approved")
    take_part(tmp_path, [APPROVED, AUTOMATIC])
    return tmp_path


def studies(folder: Path, name: str = "ledger.sqlite") -> dict[str, tuple[str | None, bool]]:
    with Ledger.inspect(folder / name) as ledger:
        return {line["study"]: (line["consent"], line["exposed"]) for line in statement(ledger)["studies"]}


def shown(path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert _run(["ledger", "show", str(path), *([how] if how else [])]) == 0
    return capsys.readouterr().out


def test_ledger_of_0_2_in_a_state_folder_marks_what_no_steward_approved(state: Path) -> None:
    assert studies(state) == {APPROVED.study: ("steward", False), AUTOMATIC.study: ("automatic", True)}
    with Ledger.inspect(state / "ledger.sqlite") as ledger:
        assert {entry.version for entry in ledger.entries()} == {"0.2.0"}
        assert all("consent" not in (entry.asked or {}) for entry in ledger.entries())
        assert ledger.verify() == 2
        assert ledger.epsilon(1e-5) > 0  # it counts as it was charged


def test_ledger_of_0_2_whose_site_has_no_decision_at_all_marks_every_study(tmp_path: Path, of_0_2: None) -> None:
    take_part(tmp_path, [AUTOMATIC])
    assert not (tmp_path / "decisions").exists()
    assert studies(tmp_path) == {AUTOMATIC.study: ("automatic", True)}


def test_approval_withdrawn_later_marks_study_automatic(state: Path) -> None:
    Consents(state).decide(APPROVED.digest(), "refused")
    assert studies(state)[APPROVED.study] == ("automatic", True)


def test_plan_of_0_2_without_a_site_that_the_approved_plan_lets_go_is_approved(tmp_path: Path, of_0_2: None) -> None:
    whole = replace(make("local", study="with absences"), absences=1)
    Consents(tmp_path).keep(whole)
    Consents(tmp_path).decide(whole.digest(), "approved")
    fewer = whole.without([whole.sites[-1].name])
    take_part(tmp_path, [fewer], automatic=False)
    assert fewer.digest() != whole.digest()
    assert studies(tmp_path) == {whole.study: ("steward", False)}


def test_ledger_of_0_2_outside_a_state_folder_marks_nothing(state: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("ledger.sqlite", "ledger.sqlite.counter"):
        shutil.copy(state / name, elsewhere)
    assert set(studies(elsewhere).values()) == {(None, False)}


def test_new_ledger_records_consent_and_marks_nothing(tmp_path: Path) -> None:
    Consents(tmp_path).decide(APPROVED.digest(), "approved")
    take_part(tmp_path, [APPROVED, AUTOMATIC])
    with Ledger.inspect(tmp_path / "ledger.sqlite") as ledger:
        said = [entry.asked["consent"] for entry in ledger.entries() if entry.asked is not None]
        assert not any(str(entry.version).startswith("0.2") for entry in ledger.entries())
    assert said == ["steward", "automatic"]
    assert studies(tmp_path) == {APPROVED.study: ("steward", False), AUTOMATIC.study: ("automatic", False)}


def test_new_entries_in_a_marked_ledger_keep_their_own_marks(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "VERSION", VERSION)
    monkeypatch.setattr(sites, "in_words", in_words)
    later = make("local", study="later")
    take_part(state, [later])
    assert studies(state)[later.study] == ("automatic", False)
    assert studies(state)[AUTOMATIC.study] == ("automatic", True)


@pytest.mark.usefixtures("_wide")
def test_ledger_show_has_the_marks_in_every_form(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state / "ledger.sqlite"
    record: dict[str, Any] = json.loads(shown(path, "--json", capsys))
    assert [(line["consent"], line["exposed"]) for line in record["studies"]] == [
        ("steward", False),
        ("automatic", True),
    ]
    assert "Zerosum 0.2" in record["warning"]
    assert {entry["guarantee"] for entry in record["entries"]} == {None}
    text = " ".join(shown(path, "", capsys).split())
    assert text.count("automatic, under 0.2") == 1
    assert text.count("Zerosum 0.2") == 1
    lines = list(csv.DictReader(io.StringIO(shown(path, "--csv", capsys))))
    assert [(line["study"], line["version"], line["consent"], line["exposed"]) for line in lines] == [
        (APPROVED.study, "0.2.0", "steward", ""),
        (AUTOMATIC.study, "0.2.0", "automatic", "yes"),
    ]


@pytest.mark.usefixtures("_wide")
def test_ledger_show_of_an_unmarked_ledger_has_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    take_part(tmp_path, [AUTOMATIC])
    assert json.loads(shown(tmp_path / "ledger.sqlite", "--json", capsys))["warning"] is None
    text = shown(tmp_path / "ledger.sqlite", "", capsys)
    assert "automatic" in text
    assert "0.2" not in text
