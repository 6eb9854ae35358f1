"""Autocorrelations of DP-djICA's components, and its gain index on pooled data, at a small size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zerosum.data.fmri import garch_sources
from zerosum.errors import BadParameter
from zerosum.papers.figures import djica, find, ica
from zerosum.papers.figures.experiment import Run
from zerosum.papers.figures.separating import NOT_PRIVATE, OPEN, OPEN_TUNED, OURS_ALONE

TINY = ica.Size(people=160, components=4, points=40, side=8, rounds=5, seeds=2)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(djica, "QUICK", TINY)


def test_autocorrelation_of_a_moving_average_equals_theory() -> None:
    """e_t + e_(t-1) has 1/2 at lag 1 and 0 beyond; 200 people of 400 points: standard errors of at most 0.004."""
    drawn = np.random.default_rng(0).normal(size=(200, 401))
    found = djica.autocorrelation(drawn[:, 1:] + drawn[:, :-1], lags=5)
    assert found[0] == 1.0
    assert found[1] == pytest.approx(0.5, abs=0.02)
    assert np.abs(found[2:]).max() < 0.02


def test_mixtures_have_the_autocorrelation_of_sources_but_not_their_independence() -> None:
    sources = np.asarray(garch_sources(60, 4, 250, rng=np.random.default_rng(1)), dtype=np.float64)
    mixtures = sources @ np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    for courses in (sources, mixtures):
        assert np.abs(djica.autocorrelation(courses[:, :, 0])[1:]).max() < 0.1
    assert 3 * djica.dependence(sources) < djica.dependence(mixtures)


def test_autocorrelation_figure_has_every_method_and_component(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = find("ica-autocorrelation").run(tmp_path, seeds=2, on_step=lambda *step: steps.append(step))
    assert steps == [(done, 10) for done in range(11)]
    methods = {djica.SOURCES, djica.MIXTURES, OPEN, OPEN_TUNED, NOT_PRIVATE}
    assert {(row["method"], row["component"], row["seed"]) for row in rows} == {
        (method, component, seed) for method in methods for component in range(4) for seed in range(2)
    }
    lines = {line["method"]: line for line in djica.independence_summary(rows)}
    assert float(lines[djica.SOURCES]["gain_index"]) == 0.0
    assert float(lines[djica.MIXTURES]["gain_index"]) > 0.1
    assert (tmp_path / "ica-autocorrelation.png").read_bytes().startswith(b"\x89PNG")


def test_pooled_figure_has_one_party_and_the_exact_cost_of_a_person(tmp_path: Path) -> None:
    rows = find("ica-pooled").run(tmp_path, seeds=1)
    assert {row["people"] for row in rows} == {160}
    ours = [row for row in rows if row["method"] == OURS_ALONE]
    assert [float(row["exact_epsilon"]) for row in ours] == pytest.approx([1.0, 4.0])
    assert len([row for row in rows if row["method"] == NOT_PRIVATE]) == 3
    assert all(0 <= float(row["gain_index"]) <= 1 for row in rows)
    assert (tmp_path / "ica-pooled.png").exists()
    with pytest.raises(BadParameter, match="seed"):
        djica.pooled_epsilon(Run(seeds=0))
