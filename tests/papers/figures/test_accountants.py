"""The figure that compares accountants, and how experiments are found and run."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from zerosum.errors import BadParameter
from zerosum.papers.figures import EXPERIMENTS, accountants, find, reproduce
from zerosum.papers.figures.experiment import Run, Table, averages


def test_accountants_figure_writes_csv_and_picture(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    rows = reproduce("accountants", None, None, tmp_path, on_step=lambda *step: steps.append(step))
    assert steps == [(done, 14) for done in range(15)]
    assert (tmp_path / "accountants.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "accountants.csv").open(newline="") as file:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(file))


def test_accountants_figure_curves_have_published_order() -> None:
    rows = accountants.totals(Run())
    found = {(row["setting"], row["rounds"], row["accountant"]): float(row["epsilon"]) for row in rows}
    for setting in (accountants.FIGURE, accountants.SECTION):
        at = {accountant: found[setting, 1000, accountant] for accountant in ("strong", "moments", "rdp")}
        assert at["strong"] > max(at["moments"], at["rdp"])
        assert found[setting, 1000, "coordinator"] < at["rdp"] < found[setting, 1000, "exact"]
    mu = math.sqrt(1000 * 2 * 4)  # variance 0.25 twice
    assert found[accountants.FIGURE, 1000, "rdp"] == pytest.approx(mu**2 / 2 + mu * math.sqrt(2 * math.log(1e5)))
    with_step = found[accountants.SECTION, 10, accountants.WITH_STEP]
    assert with_step > 1e3 * found[accountants.SECTION, 10, "rdp"]
    assert (accountants.FIGURE, 10, accountants.WITH_STEP) not in found


def test_accountants_figure_full_run_has_more_points_than_summary() -> None:
    rows = accountants.totals(Run(full=True))
    assert len({row["rounds"] for row in rows}) > 30
    assert {row["rounds"] for row in accountants.summary(rows)} <= {1, 10, 100, 1000}


def test_experiments_are_found_by_name_with_their_data() -> None:
    sweeps = ["ica-epsilon", "ica-epsilon-256", "ica-subjects", "ica-subjects-2", "ica-delta"]
    abide = ["ica-abide", "ica-abide-256", "ica-abide-subjects", "ica-abide-subjects-2", "ica-abide-delta"]
    separations = [*sweeps, "ica-maps", "ica-grid", *abide, "ica-pooled", "ica-autocorrelation"]
    regressions = ["fm-epsilon", "fm-samples", "fm-delta", "fm-error"]
    networks = ["nn-epsilon", "nn-samples"]
    mixtures = ["otd-mog-epsilon", "otd-mog-samples", "otd-mog-delta"]
    topics = ["otd-stm-epsilon", "otd-stm-samples", "otd-stm-delta"]
    components = ["pca-epsilon", "pca-samples", "pca-delta"]
    last = ["dc-mnist", "dc-fashion", "cape-collusion", "cape-delta", "accountants", "communication"]
    assert list(EXPERIMENTS) == [*components, *separations, *regressions, *networks, *mixtures, *topics, *last]
    with pytest.raises(BadParameter, match=r"'pca-moon'.*pca-epsilon"):
        find("pca-moon")
    assert find("pca-delta").dataset(None) == "synthetic"
    assert find("accountants").dataset(None) == "none"
    with pytest.raises(BadParameter, match="'mnist'"):
        find("accountants").dataset("mnist")
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name


def test_averages_are_over_seeds_only() -> None:
    rows: Table = [{"eps": e, "seed": s, "error": e + s, "time": 2.0 * s} for e in (1, 2) for s in (0, 1)]
    assert averages(rows, ["error", "time"]) == [
        {"eps": 1, "error": 1.5, "time": 1.0, "spread": 0.5, "runs": 2},
        {"eps": 2, "error": 2.5, "time": 1.0, "spread": 0.5, "runs": 2},
    ]
