"""The Data Collaboration paper's tables, on a few small pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.errors import BadData, BadParameter
from zerosum.papers import figures
from zerosum.papers.figures import collaboration
from zerosum.papers.figures.experiment import Run
from zerosum.papers.methods.records import Records


def pictures(folder: Path, count: int = 400) -> Path:
    """Ten classes: a bright square whose place tells the class."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, count)
    x = rng.integers(0, 80, (count, 28, 28), dtype=np.uint8)
    for each in range(10):
        x[y == each, 2 + 5 * (each // 2) : 7 + 5 * (each // 2), 4 + 12 * (each % 2) : 12 + 12 * (each % 2)] += 100
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x[:200], y_test=y[:200])
    return folder


def test_collaboration_figure_every_method_has_expected_accuracy(tmp_path: Path) -> None:
    images, test = collaboration.load("mnist", pictures(tmp_path))
    clients = collaboration.shared_out(images, 40, 0)[:3]
    few = Records(test.x[:100], test.y[:100])
    found = {
        method: collaboration.accuracy(method, clients, few, 10, 0, epochs=5)
        for method in (*collaboration.REDUCED, *collaboration.TRAVELLING)
    }
    assert min(found["DC"], found["FL"], found["centralized"]) > 0.9
    assert found["FL-DP"] < 0.5  # its noise for so few records drowns everything
    coarse = {**collaboration.FEATURES, "cosines": 3}
    published, summed = (collaboration.ours(each, clients, few, 20.0, 0, coarse) for each in collaboration.OURS)
    assert summed > published


def test_collaboration_figure_has_published_numbers() -> None:
    assert collaboration.paper("mnist", "DC", 100, 50) == 82.94
    assert collaboration.paper("fashion", "FL-DP", 1000, 0) == 79.9
    assert np.isnan(collaboration.paper("fashion", "DC-DP", 100, 10))  # a misprint
    assert all(len(cells) in (1, len(collaboration.WIDTHS)) for cells in collaboration.PAPER.values())
    assert {"dc-mnist", "dc-fashion"} <= set(figures.EXPERIMENTS)


def test_collaboration_figure_summary_and_picture_are_written(tmp_path: Path) -> None:
    rows = [
        {
            "method": method,
            "records": records,
            "components": width,
            "epsilon": 50.0,
            "record_epsilon": worth,
            "paper": paper,
            "seed": seed,
            "accuracy": 90.0 + seed,
        }
        for records in (100, 1000)
        for method, width, worth, paper in (
            ("DC-DP", 10, 3500.0, 67.0),
            ("DC-DP", 50, 3500.0, 76.0),
            ("FL", 0, np.inf, np.nan),
        )
        for seed in range(2)
    ]
    lines = collaboration.summary(rows)
    assert [line["paper"] for line in lines[:3]] == [67.0, 76.0, "-"]
    assert lines[0]["accuracy"] == 90.5
    collaboration.draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_collaboration_figure_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"mnist\.npz"):
        collaboration.carry(Run("mnist"))
    with pytest.raises(BadData, match=r"fashion_mnist\.npz"):
        collaboration.load("fashion", tmp_path)
    (tmp_path / "mnist.npz").write_bytes(b"no")
    with pytest.raises(BadData, match=r"mnist\.npz"):
        collaboration.load("mnist", tmp_path)
    with pytest.raises(BadParameter, match="seed"):
        collaboration.carry(Run("mnist", seeds=0))
