"""Ledgers that Zerosum 0.1 wrote: they open, count as they did, take new entries, and say what is in doubt.

The files in data/ are what 0.1 left behind: a mean and a k-means of two rounds under replace-one, a PCA of two looks
under add-remove; beside each, what its `zerosum ledger show --json` printed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from zerosum.cli import _run
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Spend

DATA = Path(__file__).with_name("data")
DOUBTS: dict[str, list[str | None]] = {
    "replace-one": [None, "did not hold", "did not hold"],
    "add-remove": ["may not have held", "may not have held"],
}


@pytest.fixture(params=DOUBTS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A ledger of 0.1 in a place of its own, and what 0.1 said of it."""
    for ending in (".ledger", ".ledger.counter"):
        shutil.copy(DATA / f"{request.param}{ending}", tmp_path)
    return tmp_path / f"{request.param}.ledger", json.loads((DATA / f"{request.param}.json").read_text())


def test_ledger_of_0_1_verifies_with_same_totals(old: tuple[Path, dict[str, Any]]) -> None:
    path, said = old
    with Ledger.inspect(path) as ledger:
        assert ledger.verify() == len(said["entries"])
        assert ledger.epsilon(1e-5) == said["epsilon"]
        assert ledger.mu == said["mu"]
        assert [entry.version for entry in ledger.entries()] == [None] * len(said["entries"])
        assert [entry.digest for entry in ledger.entries()] == [entry["digest"] for entry in said["entries"]]
        assert ledger.doubts() == DOUBTS[path.stem]


def test_ledger_of_0_1_takes_new_entries_without_doubts(old: tuple[Path, dict[str, Any]]) -> None:
    path, said = old
    account = said["account"]
    opener = Account(account["population"], account["unit"], account["adjacency"])
    with Ledger.open(path, opener) as ledger:
        for round, statistic in enumerate(("cluster_sums", "scatter")):
            ledger.record(Spend("new", round, 0, "person", statistic, 1.0, 0.1, "aa"), Cap(10.0, 1e-5))
    with Ledger.open(path, opener) as ledger:
        assert ledger.verify() == len(said["entries"]) + 2
        assert ledger.epsilon(1e-5) > said["epsilon"]
        assert ledger.doubts() == [*DOUBTS[path.stem], None, None]
        assert all(entry.version for entry in ledger.entries()[-2:])


@pytest.mark.usefixtures("_wide")
def test_ledger_of_0_1_is_shown_with_doubts(
    old: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = old
    assert _run(["ledger", "show", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["epsilon"] == said["epsilon"]
    assert [entry["guarantee"] for entry in record["entries"]] == DOUBTS[path.stem]
    assert "changelog" in record["warning"]
    for new, before in zip(record["entries"], said["entries"], strict=True):
        assert before.pop("spend").items() <= new["spend"].items()
        assert before.items() <= new.items()
    assert _run(["ledger", "show", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("Zerosum 0.1") == 1
    marks = shown.count(str(DOUBTS[path.stem][-1]))  # of two entries, in one line where they are alike; and below
    assert marks == (2 if "2 to 3" in shown else 3)


def test_ledger_show_of_new_ledger_has_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.ledger"
    for adjacency in ("replace-one", "add-remove"):
        path = tmp_path / f"{adjacency}.ledger"
        with Ledger.open(path, Account("p", "person", adjacency)) as ledger:
            ledger.record(Spend("s", 0, 0, "person", "cluster_sums", 1.0, 0.1, "aa"), Cap(10.0, 1e-5))
            ledger.record(Spend("s", 1, 0, "person", "scatter", 1.0, 0.1, "aa"), Cap(10.0, 1e-5))
        assert _run(["ledger", "show", str(path), "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["warning"] is None
        assert {entry["guarantee"] for entry in record["entries"]} == {None}
        assert _run(["ledger", "show", str(path)]) == 0
        assert "0.1 " not in capsys.readouterr().out
