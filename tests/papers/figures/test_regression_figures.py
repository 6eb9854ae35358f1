"""The regression figures of the capeFM paper, and the data sets they use."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zerosum.errors import BadData, BadParameter
from zerosum.kernel import accountant, published
from zerosum.papers.figures import cape_delta, fitting, reproduce
from zerosum.papers.figures import regression as figures
from zerosum.papers.figures.experiment import Run
from zerosum.papers.figures.regression_data import load, synthetic
from zerosum.papers.methods import regression as methods

NAMES = [experiment.name for experiment in figures.EXPERIMENTS]


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "load", lambda data, folder, rows: synthetic(data, 4, rows // 10))
    monkeypatch.setattr(figures, "QUICK_SEEDS", 2)
    monkeypatch.setattr(figures, "DESCENTS", (*figures.DESCENTS[:3], *figures.DESCENTS[5:7]))


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", NAMES)
def test_regression_figure_quick_run_writes_csv_and_picture(name: str, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = reproduce(name, "synthetic", None, tmp_path / "out", on_step=lambda *step: steps.append(step))
    assert steps == [(done, len(steps) - 1) for done in range(len(steps))]
    assert (tmp_path / "out" / f"{name}-synthetic.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / f"{name}-synthetic.csv").open(newline="") as file:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(file))
    points = {(row["epsilon"], row["delta"], row["records"]) for row in rows}
    assert len(points) == {"fm-epsilon": 4, "fm-samples": 3, "fm-delta": 3, "fm-error": 8}[name]
    ours = {figures.OURS} if fitting.available() else set()
    assert {row["method"] for row in rows} == {"non-private", *ours, *methods.METHODS}
    best = {row["records"]: float(row["loss"]) for row in rows if row["method"] == "non-private"}
    for row in rows:
        assert float(row["loss"]) >= best[row["records"]] * (1 - 1e-9)  # nothing beats least squares in training
        if row["calibration"] == "exact":
            assert row["exact_epsilon"] == row["epsilon"]
        elif row["calibration"] == "published":
            asked, delta, method = float(row["epsilon"]), float(row["delta"]), str(row["method"])
            worth = methods.exact_epsilon(method, "linear", asked, delta, sites=5, colluders=1, columns=5)
            assert row["exact_epsilon"] == worth


@pytest.mark.usefixtures("_tiny")
def test_regression_figure_repeats_and_gradient_descent_is_best_of_its_settings() -> None:
    first, second = (figures.carry("epsilon", Run(seeds=1)) for _ in range(2))
    assert first == second
    data = synthetic("synthetic", 4, 1000)
    setting = figures.Settings.of(data, 200).whole
    point = figures.Point(1.0, 1e-3, 200)
    tried = [setting.loss(fit(setting, 0)) for fit in figures._fits(point, "dp-gd", "exact")]
    shown = [row["loss"] for row in first if (row["method"], row["epsilon"]) == ("dp-gd", 1.0)]
    assert shown == [min(tried)]


def test_regression_figure_losses_and_errors_equal_definition() -> None:
    data = synthetic("synthetic", 3, 503)
    assert data.weights is not None
    settings = figures.Settings.of(data, 100)
    w = np.array([0.1, 0.2, -0.3, 0.05])
    rows = np.concatenate(settings.whole.rows)
    assert rows.shape == (500, 4)
    assert settings.whole.loss(w) == pytest.approx(np.mean((rows[:, -1] - rows[:, :-1] @ w[:-1] - w[-1]) ** 2))
    assert settings.whole.error(w) == pytest.approx(np.linalg.norm(w - data.weights) / 4)
    assert settings.part.records == 80
    assert np.max(np.linalg.norm(settings.whole.sites.sites[2].x, axis=1)) <= 1 + 1e-12
    assert settings.whole.best == pytest.approx(data.weights, abs=0.05)


def test_regression_figure_medians_and_quartiles_are_over_seeds_only() -> None:
    def row(seed: int, loss: float) -> dict[str, str | int | float]:
        setting = dict.fromkeys(figures._SETTING, 1.0)
        return {**setting, "seed": seed, "loss": loss, "error": 10 * loss, "held_out": loss}

    (line,) = figures.summary([row(s, loss) for s, loss in enumerate((1.0, 2.0, 3.0, 4.0, 1e9))], "error")
    assert (line["loss"], line["error"], line["low"], line["high"], line["runs"]) == (3.0, 30.0, 20.0, 40.0, 5)


def test_regression_figure_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"communities_crime\.npz"):
        load("crime", tmp_path)
    with pytest.raises(BadData, match=r"keggundirected_data\.csv\.gz"):
        load("kegg")
    with pytest.raises(BadParameter, match=r"'iris'.*synthetic-50"):
        load("iris")
    with pytest.raises(BadParameter, match="seed"):
        figures.carry("delta", Run(seeds=0))
    (tmp_path / "communities_crime.npz").write_text("not an archive")
    with pytest.raises(BadData, match=r"communities_crime\.npz"):
        load("crime", tmp_path)


def test_regression_figure_files_are_scaled_into_ranges(tmp_path: Path) -> None:
    x = np.array([[0.0, 1.0, np.nan], [1.0, 0.5, 0.0]], dtype=np.float32)
    np.savez(tmp_path / "communities_crime.npz", X=x, y=np.array([0.0, 1.0]))
    crime = load("crime", tmp_path)
    assert sorted(map(tuple, np.column_stack([crime.x, crime.y]))) == [(-1.0, 1.0, -1.0), (1.0, 0.0, 1.0)]
    with gzip.open(tmp_path / "keggundirected_data.csv.gz", "wt") as file:
        file.write("1,7,10\n3,7,30\n2,7,20\n")
    kegg = load("kegg", tmp_path)  # the column that does not vary is left out
    assert sorted(map(tuple, np.column_stack([kegg.x, kegg.y]))) == [(-1.0, -1.0), (0.0, 0.0), (1.0, 1.0)]
    assert crime.weights is None


def test_regression_figure_synthetic_data_have_published_loss() -> None:
    """Non-private loss .00061 for D = 20 and .00058 for D = 50, with 10 000 records."""
    for name, least in (("synthetic", 0.00061), ("synthetic-50", 0.00058)):
        best = figures.Settings.of(load(name), 2000).whole
        assert best.loss(best.best) == pytest.approx(least, abs=1e-5)


@pytest.mark.skipif(not fitting.available(), reason="Zerosum has no linear-regression in this version")
def test_regression_figure_own_method_is_near_best_loss() -> None:
    setting = figures.Settings.of(synthetic("synthetic", 4, 5000), 1000).whole
    found = fitting.ours(setting.rows, 3.0, 1e-3, 1, seed=0)
    assert setting.loss(found) < 1.2 * setting.loss(setting.best)


@pytest.mark.slow
def test_regression_figure_of_crime_has_published_order(real_data: Callable[[str], Path]) -> None:
    rows = figures.carry("epsilon", Run("crime", real_data("communities_crime.npz").parent))
    found = {
        (str(line["method"]), line["epsilon"]): float(line["loss"])
        for line in figures.summary(rows)
        if line["calibration"] == "exact"
    }
    (bare,) = {float(row["loss"]) for row in rows if row["method"] == "non-private"}
    assert bare == pytest.approx(0.0665, abs=2e-4)
    assert found["dp-gd", 1.0] < 0.095
    assert found["cape-fm", 1.0] > 0.3  # no minimum: worse than predicting the mean
    assert found["dp-gd", 1.0] < found["cape-fm-ridge", 1.0] < found["cape-fm", 1.0]


# ---- the delta of CAPE ----------------------------------------------------------------------------------------------


def test_cape_delta_equals_hand_calculation() -> None:
    tau, epsilon = 4.0, 1.0
    found = cape_delta.deltas(5, epsilon, tau)
    assert found["cape exact"] == pytest.approx(accountant.delta(math.sqrt(1.875) / tau, epsilon))
    assert found["conv exact"] == pytest.approx(accountant.delta(math.sqrt(5) / tau, epsilon))
    assert found["secure sum exact"] == pytest.approx(accountant.delta(math.sqrt(5 / 4) / tau, epsilon))
    claimed = published.theorem_1(5, 1)
    assert claimed is not None
    back = published.theorem_1_epsilon(claimed / tau**2, found["cape claimed"])
    assert back == pytest.approx(epsilon)
    assert cape_delta.claimed_delta(9.0, 1.0) == 1.0  # epsilon below its mean: nothing is claimed


def test_cape_delta_lies_between_claim_and_conv(tmp_path: Path) -> None:
    rows = reproduce("cape-delta", None, None, tmp_path)
    assert (tmp_path / "cape-delta.png").read_bytes().startswith(b"\x89PNG")
    at: dict[tuple[float, float, float], dict[str, float]] = {}
    for row in rows:
        key = (float(row["sites"]), float(row["epsilon"]), float(row["tau"]))
        at.setdefault(key, {})[str(row["curve"])] = float(row["delta"])
    assert len(at) == 66
    for found in at.values():
        assert found["secure sum exact"] < found["cape exact"] < found["conv exact"] <= 1
        if found["conv claimed"] < 0.5:
            assert found["cape claimed"] < found["conv claimed"]
    broken = [key for key, found in at.items() if found["cape claimed"] < found["cape exact"]]
    assert broken
    assert {sites for sites, _, _ in broken} == {5, 10, 30}
    assert len(cape_delta.summary(rows)) == 6 * 3 * 6
    assert len(cape_delta.cape_delta(Run(full=True))) > 3 * len(rows)
