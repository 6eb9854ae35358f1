"""The table of communication: bytes of whole studies beside the papers' orders."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from zerosum.kernel.schemes import SCHEMES
from zerosum.papers.figures import communication, find
from zerosum.papers.figures.experiment import Table


@pytest.fixture(scope="module")
def rows() -> Table:
    settings = [(4, 10), (4, 50), (6, 10)]
    return [
        row
        for name in ("local", "cape-published", "pairwise", "secure-sum")
        for each in settings
        for row in communication.message_sizes(name, *each)
    ]


def test_communication_grows_as_the_papers_say(rows: Table) -> None:
    """Three settings give the three coefficients exactly. CAPE: O(S + D) with three vectors of 8 bytes a number."""
    _, set_up, _ = communication.growth(rows, "cape-published", "set-up")
    assert set_up == pytest.approx(communication.growth(rows, "secure-sum", "set-up")[1])
    assert 136 < set_up < 300  # keys and shares for a peer
    _, peers, numbers = communication.growth(rows, "cape-published", "round")
    assert peers == pytest.approx(0, abs=2)
    assert numbers == pytest.approx(24, abs=0.2)
    assert communication.growth(rows, "secure-sum", "round")[2] == pytest.approx(8, abs=0.2)
    assert communication.growth(rows, "local", "set-up") == pytest.approx((0, 0, 0), abs=1e-9)
    assert communication.growth(rows, "pairwise", "round")[1] > 32  # a public key of every site


def test_communication_of_aggregator_is_that_of_all_sites(rows: Table) -> None:
    for row in rows:
        assert float(row["aggregator_bytes"]) <= float(row["sites"]) * float(row["site_bytes"])
        assert float(row["aggregator_bytes"]) >= float(row["sites"]) * (float(row["site_bytes"]) - 8)


def test_communication_covers_every_scheme_with_noise() -> None:
    assert set(communication._PRINTED) == {name for name, facts in SCHEMES.items() if facts.noisy}


def test_communication_figure_writes_table_and_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "SITES", (2, 3))
    monkeypatch.setattr(communication, "NUMBERS", (2, 5))
    steps: list[tuple[int, int]] = []
    experiment = find("communication")
    found = experiment.run(tmp_path, on_step=lambda *step: steps.append(step))
    assert steps == [(done, 28) for done in range(29)]
    assert (tmp_path / "communication.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "communication.csv").open(newline="") as file:
        assert [{key: str(value) for key, value in row.items()} for row in found] == list(csv.DictReader(file))
    headings, cells = experiment.printed(experiment.summary(found))
    assert {len(line) for line in cells} == {len(headings)}
    assert "Heikkilä et al." in [line[0] for line in cells]
