"""Figures of topics: every method at both calibrations, Zerosum ahead, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms.metrics import component_error
from zerosum.errors import BadParameter
from zerosum.papers.figures import EXPERIMENTS, components, topics
from zerosum.papers.figures.components import SITES, Point
from zerosum.papers.figures.experiment import Run
from zerosum.papers.methods.tensor import METHODS


def test_topic_figure_every_method_runs_and_own_error_is_smallest() -> None:
    made = topics.TrueTopics.draw(8, 3, 3, 2000, seed=0)
    rows = topics.published_errors(made, Point(1.0, 0.01, 2000), seed=0)
    assert {(method, which) for method, which, _true, _error in rows} == {
        ("non-private", "none"),
        ("random", "none"),
        *[(method, which) for method in METHODS for which in ("exact", "published")],
    }
    error = {(method, which): value for method, which, _true, value in rows}
    mine = component_error(topics.ours(made, 1.0, 0.01, 0), made.topics)
    assert mine < min(error[method, "exact"] for method in METHODS)
    assert error["non-private", "none"] < error["random", "none"] / 5


@pytest.mark.parametrize("name", ["otd-stm-epsilon", "otd-stm-samples", "otd-stm-delta"])
def test_topic_figure_is_registered_with_data(name: str) -> None:
    assert EXPERIMENTS[name].data == ("d10", "d50")


def test_topic_figure_writes_picture_and_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "DATA", {"d10": (5, 2)})
    monkeypatch.setattr(components, "_RECORDS", 400)
    rows = EXPERIMENTS["otd-stm-delta"].carry(Run("d10", seeds=1))
    experiment = EXPERIMENTS["otd-stm-delta"]
    experiment.draw(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    lines = experiment.summary(rows)
    assert set(experiment.shown.values()) <= set(lines[0])
    assert len(lines) == 3 * (3 + 2 * len(METHODS))


def test_topic_figure_data_have_stated_shape_and_bad_data_is_refused() -> None:
    made = topics.TrueTopics.draw(10, 5, 7, 300, seed=1)
    assert [rows.shape for rows in made.sites] == [(300, 10)] * SITES
    assert all(np.all(counts.sum(axis=1) == 7) for counts in made.sites)
    with pytest.raises(BadParameter, match="'d7'"):
        EXPERIMENTS["otd-stm-epsilon"].carry(Run("d7"))
    with pytest.raises(BadParameter, match="seed"):
        EXPERIMENTS["otd-stm-samples"].carry(Run("d10", seeds=0))
