"""The runs that compare Zerosum's ICA with the papers'."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms.ica.program import ICAProgram
from zerosum.algorithms.metrics import matched
from zerosum.compute.units import Units
from zerosum.data.bases import low_frequencies
from zerosum.data.fmri import make_fmri
from zerosum.errors import BadParameter
from zerosum.papers.figures import ica, reproduce
from zerosum.papers.figures import separating as parts
from zerosum.papers.figures.experiment import Run
from zerosum.papers.figures.panels import aligned
from zerosum.papers.figures.separating import Separated, Separating, Trial
from zerosum.papers.methods import ica_costs as costs
from zerosum.site.policy import Policy
from zerosum.study import run

TINY = ica.Size(people=160, components=3, points=20, side=8, rounds=5, seeds=2)


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ica, "QUICK", TINY)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Trial]:
    """Every trial finds the truth at once, at no cost."""
    trials: list[Trial] = []

    def separate(self: Separating, trial: Trial, seed: int | None) -> Separated:
        trials.append(trial)
        maps = self.study.maps
        unmixing = np.asarray(np.linalg.pinv(maps.T)) + 1e-3
        return Separated(unmixing, maps, len(trials) % 2 + 9, 2 * trial.epsilon, 3 * trial.epsilon)

    monkeypatch.setattr(Separating, "separate", separate)
    return trials


@pytest.mark.usefixtures("_tiny")
def test_grid_of_maps_has_a_row_for_each_number_of_people_and_epsilon(tmp_path: Path, tried: list[Trial]) -> None:
    rows = reproduce("ica-grid", None, None, tmp_path)
    assert [trial.epsilon for trial in tried] == [0.5, 2.0, 10.0] * 2
    lines = ica.maps_summary(rows)
    assert [(line["method"], line["people"]) for line in lines] == [
        (ica.TRUTH, 40),
        *[("cape-djica", people) for people in (40, 160) for _ in range(3)],
    ]
    assert (tmp_path / "ica-grid.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", ["ica-epsilon", "ica-epsilon-256", "ica-subjects", "ica-subjects-2", "ica-delta"])
def test_ica_figure_sweep_writes_csv_and_picture(name: str, tmp_path: Path, tried: list[Trial]) -> None:
    steps: list[tuple[int, int]] = []
    rows = reproduce(name, None, None, tmp_path, on_step=lambda *step: steps.append(step))
    assert steps == [(done, len(rows)) for done in range(len(rows) + 1)]
    assert len(tried) == len(rows)
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / f"{name}.csv").open(newline="") as file:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(file))
    paid = [row for row in rows if row["calibration"] == "exact"]
    swept = {"epsilon": "epsilon", "subjects": "people", "delta": "delta"}[name.split("-")[1]]
    assert len({row[swept] for row in paid}) == 3
    assert {row["method"] for row in paid} == {parts.OURS, parts.OURS_PCA, parts.CAPE_TUNED, *costs.SCHEMES}
    assert {line["runs"] for line in ica.summary(rows)} == {2}
    if name == "ica-delta":  # there it is in the published noise too
        assert all(trial.round_delta == trial.delta for trial in tried if trial.calibration == "published")


@pytest.mark.usefixtures("tried")
def test_ica_figure_full_sweep_has_more_points_and_quick_one_no_slow_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ica, "FULL", TINY)
    monkeypatch.setattr(ica, "QUICK", replace(TINY, slow=False))
    for carry in (ica.ica_epsilon, ica.ica_subjects, ica.ica_delta):
        full, quick = carry(Run(full=True, seeds=1)), carry(Run(seeds=1))
        assert len(full) > len(quick)
        assert parts.OURS_PCA not in {row["method"] for row in quick}
        assert parts.NOT_PRIVATE in {row["method"] for row in quick}
    with pytest.raises(BadParameter, match="seed"):
        ica.ica_epsilon(Run(seeds=0))


def test_ica_figure_trial_costs_stated_epsilon_and_repeats() -> None:
    setting = TINY.setting(TINY.people, seed=1)
    for trial in (*ica._references(), *ica._trials(ica._Point(people=TINY.people), True, True)):
        found = setting.separate(trial, 1)
        assert 0 <= found.amari_index(setting.study.maps) <= 1
        if trial.calibration == "exact":
            assert found.exact_epsilon == pytest.approx(trial.epsilon, rel=1e-6)
            assert found.with_reduction == pytest.approx(trial.epsilon, rel=1e-6)
        elif trial.calibration == "published":
            assert found.with_reduction > found.exact_epsilon > trial.epsilon
        else:
            assert math.isinf(found.exact_epsilon)
        if trial.method in (parts.OURS, "cape-djica", parts.NOT_PRIVATE):
            assert np.array_equal(setting.separate(trial, 1).maps, found.maps)
            assert not np.array_equal(setting.separate(trial, 2).maps, found.maps)


@pytest.mark.usefixtures("_tiny")
def test_ica_figure_maps_are_written_with_values(tmp_path: Path) -> None:
    rows = reproduce("ica-maps", None, None, tmp_path)
    assert (tmp_path / "ica-maps.png").read_bytes().startswith(b"\x89PNG")
    assert all(len(str(row[ica.MAP]).split()) == TINY.side**2 for row in rows)
    lines = {(line["method"], line["calibration"]): line for line in ica.maps_summary(rows)}
    assert float(lines[ica.TRUTH, "none"]["correlation"]) == pytest.approx(1)
    assert float(lines[ica.TRUTH, "none"]["amari_index"]) == pytest.approx(0, abs=1e-9)
    assert lines[parts.OURS_ALONE, "exact"]["exact_epsilon"] == pytest.approx(ica.EPSILON)
    assert all(ica.MAP not in line for line in lines.values())


def test_ica_figure_fewer_rounds_cost_published_epsilon() -> None:
    study = make_fmri(160, components=3, points=20, side=8)
    for method in costs.SCHEMES:
        found = Separating(study, rounds=8).separate(Trial(method, "published", 0.5, 1e-5), 0)
        assert found.exact_epsilon == pytest.approx(costs.exact_epsilon(method, 1000, 0.5, sites=4, colluders=1))
        assert found.rounds == 8


def test_ica_figure_reduction_costs_person_by_volume() -> None:
    few, many = (
        Separating(make_fmri(160, components=3, points=points, side=8), rounds=8).separate(
            Trial("cape-djica", "published", 0.5, 1e-5), 0
        )
        for points in (20, 40)
    )
    assert few.exact_epsilon == many.exact_epsilon
    assert many.with_reduction > few.with_reduction


def test_ica_figure_coordinates_in_basis_give_maps_of_volumes(tmp_path: Path) -> None:
    study = make_fmri(160, components=3, points=40, side=8, seed=1)
    found = Separating(study, per_axis=5).separate(Trial(parts.OURS_OPEN), None)
    offsets = np.arange(41) * 40
    sites = {f"site {s}": Units(study.observed(s).reshape(-1, 64), offsets) for s in range(4)}
    policies = {
        name: Policy(population=name, data="synthetic", trusted_coordinator=True, ledger=tmp_path / f"{name}.sqlite")
        for name in sites
    }
    question = ICAProgram(
        columns=tuple(f"v{i}" for i in range(64)), n_components=3, per_recording="none", basis=low_frequencies(8, 5)
    )
    with np.errstate(over="ignore"):
        whole = run(question, sites, epsilon=1.0, delta=1e-5, scheme="non-private", colluders=1, policies=policies)
    pairs = matched(found.maps, np.asarray(whole.estimate["maps"]))
    assert np.all(pairs.correlations > 0.999)


def test_ica_figure_unequal_sites_are_refused_and_sensor_noise_enters_norm() -> None:
    noisy = Separating(make_fmri(80, components=3, points=20, side=8, noise=0.1), rounds=4)
    assert noisy._largest == pytest.approx(noisy.study.largest_norm() ** 2)
    with pytest.raises(BadParameter, match="21"):
        Separating(make_fmri(81, components=3, points=20, side=8), rounds=4).separate(Trial(parts.OPEN), 0)


def test_ica_figure_aligned_maps_have_order_and_sign_of_truth() -> None:
    truth = make_fmri(4, components=3, side=8, points=5).maps
    assert np.allclose(aligned(-3 * truth[::-1], truth), truth / np.max(truth, axis=1, keepdims=True))


def test_ica_figure_own_method_separates_where_cape_does_not() -> None:
    setting = Separating(make_fmri(512, components=8, points=100), rounds=20)
    truth = setting.study.maps
    ours = setting.separate(Trial(parts.OURS, "exact", 2.0, 1e-5), 0)
    cape = setting.separate(Trial("cape-djica", "exact", 2.0, 1e-5), 0)
    assert ours.amari_index(truth) < ica.USABLE < 0.2 < cape.amari_index(truth)
