"""Figure 2 of the capeFM paper: numbers, picture, and the two readings of its data."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from zerosum.errors import BadParameter
from zerosum.papers.figures import network as figures
from zerosum.papers.figures import reproduce
from zerosum.papers.figures.experiment import Run


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RECORDS": 600, "HELD_OUT": 300, "QUICK_SEEDS": 2, "QUICK_STEPS": 5, "ITERATIONS": 5}.items():
        monkeypatch.setattr(figures, name, value)


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", ["nn-epsilon", "nn-samples"])
def test_network_figure_quick_run_writes_csv_and_picture(name: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = reproduce(name, "norm", None, tmp_path, on_step=lambda *step: steps.append(step))
    assert steps == [(done, len(steps) - 1) for done in range(len(steps))]
    assert (tmp_path / f"{name}-norm.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / f"{name}-norm.csv").open(newline="") as file:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {figures.OURS, *figures.SCHEMES, figures.NON_PRIVATE}
    for row in rows:
        if row["calibration"] == "exact":
            assert row["exact_epsilon"] == row["epsilon"]
        elif row["calibration"] == "published":
            assert float(row["exact_epsilon"]) > 3 * float(row["epsilon"])
    assert len({row["epsilon"] for row in rows}) == (4 if name == "nn-epsilon" else 1)
    assert len({row["records"] for row in rows}) == (1 if name == "nn-epsilon" else 3)


@pytest.mark.usefixtures("_tiny")
def test_network_figure_means_apart_in_every_coordinate_are_easier() -> None:
    scores = {}
    for data in figures.DATA:
        rows = figures.carry("epsilon", Run(data, seeds=1))
        scores[data] = next(float(row["accuracy"]) for row in rows if row["method"] == "non-private")
    assert scores["coordinate"] > 0.75 > scores["norm"]


def test_network_figure_without_seeds_is_refused() -> None:
    with pytest.raises(BadParameter, match="seed"):
        figures.carry("epsilon", Run("norm", seeds=0))
