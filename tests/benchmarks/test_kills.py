"""Kills at random: the comparison of ledgers and journals finds what is wrong, and a short run finds nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import kills
from helpers.deployment import Deployment
from kills import compare, play


def test_kills_of_a_short_run_leave_ledgers_and_journals_in_agreement(tmp_path: Path) -> None:
    found = play("sockets", 2, 0, 0, tmp_path)
    assert found["wrong"] == []
    assert sum(found["killed"].values()) == 2
    assert sum(found["ended"].values()) >= 1


def test_kills_comparison_names_what_was_spent_twice_or_is_not_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [{"kind": "asked", "round": at, "attempt": 0} for at in range(2)] + [{"kind": "release", "round": 0}]
    monkeypatch.setattr(kills, "records", lambda state: written)
    entries = {"north": [(0, 0)], "east": [(0, 0), (0, 0)], "south": [(0, 0), (2, 0)], "west": []}
    monkeypatch.setattr(kills, "spent", lambda deployment, name, study: entries[name])
    deployment = Deployment(tmp_path)
    wrong = compare(deployment, "s0", set())
    assert [("east" in each, "south" in each) for each in wrong] == [(True, False), (False, True)]
    (tmp_path / "s0-out").mkdir()
    (tmp_path / "s0-out" / "result.json").write_text('{"participants": [["north", "west"]]}')
    assert ["west" in each for each in compare(deployment, "s0", set())].count(True) == 1
    assert not any("west" in each for each in compare(deployment, "s0", {"west"}))
    written.append({"kind": "release", "round": 0})
    assert any("journal" in each and "rounds" in each for each in compare(deployment, "s0", {"west"}))
