"""Figures of mixtures: every method at both calibrations, Zerosum ahead, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms.metrics import component_error
from zerosum.errors import BadParameter
from zerosum.papers.figures import EXPERIMENTS, components, mixture
from zerosum.papers.figures.experiment import Run
from zerosum.papers.methods.tensor import METHODS


def test_mixture_figure_every_method_runs_and_own_error_is_smallest() -> None:
    made = mixture.TrueMixture.draw(6, 3, 3000, seed=0)
    point = components.Point(1.0, 0.01, 3000)
    rows = mixture.published_errors(made, point, seed=0)
    assert {(method, which) for method, which, _true, _error in rows} == {
        ("non-private", "none"),
        ("random", "none"),
        *[(method, which) for method in METHODS for which in ("exact", "published")],
    }
    assert all(true == 1.0 for _m, which, true, _e in rows if which == "exact")
    error = {(method, which): value for method, which, _true, value in rows}
    mine = component_error(mixture.ours(made.sites, 3, 1.0, 0.01, 0), made.means)
    assert mine < min(error[method, "exact"] for method in METHODS)
    assert mine < 2 * error["non-private", "none"] < error["random", "none"]


@pytest.mark.parametrize("name", ["otd-mog-epsilon", "otd-mog-samples", "otd-mog-delta"])
def test_mixture_figure_is_registered_with_data(name: str) -> None:
    assert EXPERIMENTS[name].data == ("d10", "d50")


def test_mixture_figure_writes_picture_and_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "DATA", {"d10": (5, 2)})
    monkeypatch.setattr(components, "_RECORDS", 400)
    steps: list[tuple[int, int]] = []

    def on_step(done: int, planned: int) -> None:
        steps.append((done, planned))

    rows = EXPERIMENTS["otd-mog-delta"].carry(Run("d10", seeds=1, on_step=on_step))
    assert steps == [(done, 3) for done in range(4)]
    experiment = EXPERIMENTS["otd-mog-delta"]
    experiment.draw(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    lines = experiment.summary(rows)
    assert set(experiment.shown.values()) <= set(lines[0])
    assert len(lines) == 3 * (3 + 2 * len(METHODS))


def test_mixture_figure_data_have_stated_shape_and_bad_data_is_refused() -> None:
    made = mixture.TrueMixture.draw(10, 5, 2000, seed=1)
    assert [len(rows) for rows in made.sites] == [2000] * components.SITES
    assert np.allclose(np.linalg.norm(made.means, axis=1), 1)
    with pytest.raises(BadParameter, match="'d7'"):
        EXPERIMENTS["otd-mog-epsilon"].carry(Run("d7"))
    with pytest.raises(BadParameter, match="seed"):
        EXPERIMENTS["otd-mog-samples"].carry(Run("d10", seeds=0))
