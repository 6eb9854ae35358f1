"""Looks at lifted rows: centre, scale and clip are found, and their errors become no component."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.component_data import captured, data, names, own_matrices, people, without_noise
from zerosum.algorithms import PCAProgram
from zerosum.algorithms.pca import centering
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.study import run
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]


def test_pca_centering_without_noise_ends_at_ordinary_components() -> None:
    """However far the middle of the ranges is from the data."""
    rows = data(3000, 12) + np.linspace(-0.3, 3, 12)
    algorithm = PCAProgram(columns=names(12), n_components=3, lower=np.zeros(12), upper=np.full(12, 9.0))
    estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True))
    found = np.asarray(estimate["components"])
    assert np.allclose(np.abs(np.sum(found * vectors[:, ::-1][:, :3].T, axis=1)), 1, atol=1e-6)
    assert np.allclose(estimate["eigenvalues"], values[::-1][:3], rtol=1e-6)
    assert np.allclose(estimate["mean"], rows.mean(axis=0))
    assert np.isclose(estimate["total"][0], np.sum(values))
    shares = [(request.statistic.name, request.share) for request in asked]
    assert [name for name, _share in shares] == ["scatter_norms", "scatter_column", *["scatter_norms", "scatter"] * 2]
    assert sum(share for _name, share in shares) == pytest.approx(1)
    assert [(each.statistic, each.share) for each in algorithm.releases(Adjacency.REPLACE_ONE)] == shares


def test_pca_subspace_solver_without_noise_finds_centre_and_components() -> None:
    rows = data(3000, 12) + np.linspace(-0.3, 3, 12)
    algorithm = PCAProgram(
        columns=names(12), n_components=3, lower=np.zeros(12), upper=np.full(12, 9.0), solver="subspace", rounds=40
    )
    estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert [request.statistic.size for request in asked[:5]] == [40, 13, 40, 13, 40]
    assert sum(request.share for request in asked) == pytest.approx(1)
    centred = rows - rows.mean(axis=0)
    assert np.allclose(estimate["mean"], rows.mean(axis=0), atol=0.02)
    assert captured(centred.T @ centred, np.asarray(estimate["components"])) > 0.999


@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_pca_noisy_centre_does_not_become_component(solver: str) -> None:
    """Rows of one length in all directions but three: a noisy centre is far away as seen from them."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(900, 40)) * np.arange(1, 41) ** -0.75
    units, found = Units.from_rows(rows), []
    algorithm = PCAProgram(
        columns=names(40), n_components=3, lower=np.full(40, -5.0), upper=np.full(40, 5.0), solver=solver
    )
    for seed in range(6):
        rehearsal = Rehearsal(algorithm, 900, 3, 2.0, 1e-5)
        estimate = rehearsal.run(units, seed)
        found.append(captured(np.diag(np.arange(1, 41) ** -1.5), np.asarray(estimate["components"])))
    assert np.mean(found) > (0.93 if solver == "matrix" else 0.6)  # 0.5 and 0.1 about a paid mean


def test_norms_quantiles_and_mean_contribution_follow_clip() -> None:
    norms = centering.Norms(np.array([1.0, 10.0, 100.0, 1000.0]), np.array([0.5, 0.5, 0.0]))
    assert norms.quantile(0.5) == pytest.approx(10)
    assert norms.quantile(1.0) == pytest.approx(100)  # the end of the last bin that has anybody
    assert (
        norms.mean_contribution(1e6, 1.0) < norms.mean_contribution(10.0, 1.0) < norms.mean_contribution(1.0, 1.0) < 1
    )


@pytest.mark.parametrize("rows", [np.zeros((150, 40)), np.ones((150, 40)), None], ids=["zero", "one", "isotropic"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_pca_data_without_components_has_none_above_noise(rows: Floats | None, epsilon: float) -> None:
    data = np.random.default_rng(6).normal(size=(900, 40)) if rows is None else rows
    bounds = {"lower": np.full(40, -5.0), "upper": np.full(40, 5.0)}
    rehearsal = Rehearsal(PCAProgram(columns=names(40), n_components=5, **bounds), len(data), 3, epsilon, 1e-5)
    found = [float(rehearsal.run(Units.from_rows(data), seed)["above_noise"][0]) for seed in range(30)]
    assert found == [0.0] * 30


def test_pca_single_or_last_column_counts_above_noise_if_it_has_spread() -> None:
    """They have no others to be like: only privacy noise can be mistaken for them."""
    rows = np.random.default_rng(0).normal(size=(6000, 2)) * [2.0, 0.5]
    for columns, spread in ((1, rows[:, :1]), (2, rows), (1, np.zeros((6000, 1)))):
        bounds = {"lower": np.full(columns, -8.0), "upper": np.full(columns, 8.0), "centering": "ranges"}
        pca = PCAProgram(columns=names(columns), n_components=columns, **bounds)
        found = Rehearsal(pca, 6000, 3, 2.0, 1e-5).run(Units.from_rows(spread), 0)
        assert found["above_noise"][0] == (columns if np.any(spread) else 0)
        assert np.all(np.asarray(found["eigenvalues"]) > 0) == bool(np.any(spread))


def test_pca_resolve_too_noisy_histogram_plans_one_scatter_release() -> None:
    facts = PublicFacts(noise=20.0, units=200)
    algorithm = PCAProgram(columns=names(5), n_components=2, lower=np.zeros(5), upper=np.ones(5)).resolve(facts)
    assert [(each.statistic, each.share) for each in algorithm.releases(Adjacency.REPLACE_ONE)] == [("scatter", 1.0)]
    assert "ranges" in algorithm.describe
    many = PCAProgram(columns=names(5), n_components=2, lower=np.zeros(5), upper=np.ones(5)).resolve(
        PublicFacts(noise=20.0, units=200_000)
    )
    assert len(many.releases(Adjacency.REPLACE_ONE)) == 6


def test_pca_resolve_large_noise_plans_four_small_centre_releases() -> None:
    bounds = {"lower": np.zeros(5), "upper": np.ones(5)}
    noisy = PCAProgram(columns=names(5), n_components=2, **bounds).resolve(PublicFacts(noise=20.0, units=4000))
    asked = [each.statistic for each in noisy.releases(Adjacency.REPLACE_ONE)]
    assert asked == ["scatter_norms", "scatter"] * 5
    assert sum(each.share for each in noisy.releases(Adjacency.REPLACE_ONE)) == pytest.approx(1)
    few = PCAProgram(columns=names(5), n_components=2, look_share=0.2, **bounds).resolve(
        PublicFacts(noise=20.0, units=4000)
    )
    assert (few.small_looks, few.look_share) == (2, 0.2)
    for units, second in ((12_000, "scatter"), (200_000, "scatter_column")):
        calm = PCAProgram(columns=names(5), n_components=2, **bounds).resolve(PublicFacts(noise=20.0, units=units))
        asked = [each.statistic for each in calm.releases(Adjacency.REPLACE_ONE)]
        assert asked == ["scatter_norms", "scatter_column", "scatter_norms", second, "scatter_norms", "scatter"]
        assert sum(each.share for each in calm.releases(Adjacency.REPLACE_ONE)) == pytest.approx(1)


@pytest.mark.parametrize("offset", [0.0, 0.02, 0.5])
def test_pca_ranges_far_too_wide_do_not_reduce_captured_energy(offset: float) -> None:
    """A thousand times as wide as the data, which lie in their middle or anywhere else."""
    rng = np.random.default_rng(4)
    axes = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    rows = rng.normal(size=(8000, 20)) * np.arange(1, 21) ** -0.7 @ axes.T
    matrix, found = np.cov(rows.T), []
    for width in (3.0, 1000.0):
        bounds = {"lower": np.full(20, -width), "upper": np.full(20, width)}
        study = Rehearsal(PCAProgram(columns=names(20), n_components=3, **bounds), 8000, 4, 3.0, 1e-5)
        assert len(study.algorithm.releases(Adjacency.REPLACE_ONE)) == 6  # two small looks
        units = Units.from_rows(np.clip(rows + offset * width * rng.uniform(-1, 1, 20), -width, width))
        estimates = [study.run(units, seed) for seed in range(5)]
        found.append(np.mean([captured(matrix, np.asarray(each["components"])) for each in estimates]))
    assert found[1] > found[0] - 0.005
    assert found[1] > 0.99


def test_pca_centre_far_from_middle_is_found_by_four_releases_in_noise() -> None:
    """Rows near a corner of the ranges, 30 times their own spread from the middle."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    rows = 1 + 0.3 * rng.normal(size=(6000, 30)) * np.arange(1, 31) ** -0.6 @ axes.T
    bounds = {"lower": np.zeros(30), "upper": np.full(30, 20.0)}
    matrix, found = np.cov(rows.T), []
    for looks in (2, 4):
        study = Rehearsal(
            PCAProgram(columns=names(30), n_components=3, small_looks=looks, **bounds), 6000, 5, 0.3, 1e-5
        )
        estimates = [study.run(Units.from_rows(rows), seed) for seed in range(5)]
        found.append(np.mean([captured(matrix, np.asarray(each["components"])) for each in estimates]))
    default = Rehearsal(PCAProgram(columns=names(30), n_components=3, **bounds), 6000, 5, 0.3, 1e-5).algorithm
    assert len(default.releases(Adjacency.REPLACE_ONE)) == 10  # four small looks
    assert found[1] > found[0] + 0.05


def look(matrix: Floats, noise: float, corner: float = 1000.0) -> centering.AugmentedMoments:
    return centering.AugmentedMoments(matrix, np.zeros(len(matrix)), corner, noise)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_replace_last_noise_direction_becomes_mean(size: float) -> None:
    kept, known = np.eye(4)[:, :2], np.array([0.0, 0.0, 3.0, 3.0])
    alike = np.diag([100.0, 20.0, 20.0, 20.0])
    rich = alike + 50 * np.outer(known, known) / 18
    found = look(rich, 1.0).replace_last(kept, size * known)
    assert np.allclose(np.abs(found[:, 1]), known / np.sqrt(18))
    assert np.array_equal(look(alike, 1.0).replace_last(kept, size * known), kept)  # no more than others hold
    assert np.array_equal(look(rich, 1.0).replace_last(kept, np.zeros(4)), kept)  # no mean
    assert np.array_equal(look(rich, 1.0).replace_last(kept, size * (kept[:, 0] + 1e-14)), kept)  # found already
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0][:, :2]
    inside = size * turned[:, 0] * 7
    assert np.array_equal(look(rich, 1.0).replace_last(turned, inside), turned)  # but for rounding


def test_replace_last_direction_with_more_energy_stays() -> None:
    """Sampling alone could show what stands there, so it does not count; it is the better one all the same."""
    known, last = np.array([0.0, 3.0, 0.0, 0.0]), np.eye(4)[:, :1]
    matrix = np.diag([80.0, 70.0, 40.0, 40.0])
    for noise in (0.0, 0.1, 1.0):
        assert np.array_equal(look(matrix, noise).replace_last(last, known), last)
    lost = look(matrix, 1.0, corner=2.0)  # the large value may be the mean's own
    assert np.array_equal(lost.replace_last(last, known)[:, 0], known / 3)


def test_pca_subspace_isotropic_data_have_no_component_above_noise() -> None:
    rows = np.random.default_rng(5).normal(size=(1500, 20)) + 3
    bounds = {"lower": np.full(20, -9.0), "upper": np.full(20, 9.0)}
    algorithm = PCAProgram(columns=names(20), n_components=3, solver="subspace", **bounds)
    for epsilon in (1.0, 10.0, 30.0):
        study = Rehearsal(algorithm, 1500, 3, epsilon, 1e-5)
        assert all(study.run(Units.from_rows(rows), seed)["above_noise"][0] == 0 for seed in range(5))


def test_pca_centre_without_ranges_stays_within_clip() -> None:
    rows = np.full((50, 3), 1e105)
    algorithm = PCAProgram(columns=names(3), n_components=1, clip=1.0)
    estimate, _asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert np.linalg.norm(estimate["mean"]) <= 1 + 1e-9


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_pca_clip_of_people_of_different_sizes_is_found(solver: str, adjacency: Adjacency) -> None:
    """The safe clip is what rows inside the public bound reach, 1600; norms have their 0.9 quantile at 10."""
    units = people(3000)
    matrix = np.mean(own_matrices(units), axis=0)
    sites = {f"s{s}": Units.from_list(units[s::3]) for s in range(3)}
    for found in (True, False):
        safe = {} if found else {"centering": "none", "normalise": False}
        algorithm = PCAProgram(columns=names(6), n_components=2, clip=40.0, solver=solver, **safe)
        result = run(algorithm, sites, epsilon=2.0, delta=1e-5, adjacency=adjacency, policies=fresh(sites, adjacency))
        assert result.report.worst_epsilon <= 2 + 1e-9
        if found:
            assert float(result.estimate["matrix_clip"][0]) < 60
            assert result.estimate["above_noise"].tolist() == [2.0]
            assert captured(matrix, np.asarray(result.estimate["components"])) > 0.98
        else:
            assert float(result.estimate["above_noise"][0]) < 2  # drowned, all or nearly


@pytest.mark.parametrize("clip", [0.99e45, 1.01e-45])
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_pca_extreme_clip_and_size_give_finite_components(clip: float, size: float) -> None:
    units = Units.from_rows(size * clip * np.random.default_rng(0).normal(size=(500, 3)))
    for epsilon in (0.5, 5.0, 30.0):
        found = Rehearsal(PCAProgram(columns=names(3), n_components=2, clip=clip), 500, 3, epsilon, 1e-5).run(units, 0)
        assert np.all(np.isfinite(found["components"].value))


def fresh(sites: Iterable[str], adjacency: Adjacency) -> dict[str, Policy]:
    return {name: Policy(population=f"{name} {secrets.token_hex(4)}", adjacency=adjacency) for name in sites}


def test_scatter_norms_of_any_size_are_counted() -> None:
    stat = build("scatter_norms", {"columns": 2, "lowest": 1e-2, "highest": 1e2, "bins": 4})
    sizes = [0.0, 1e-200, 0.05, 0.5, 2.0, 9.0, 1e30, 1e200]  # the norm is the square
    expected = [3.0, 1.0, 1.0, 3.0]
    for units in (
        Units.from_rows(np.array([[size, 0.0] for size in sizes])),
        Units.from_list([np.array([[size, 0.0]] * 3) for size in sizes]),
    ):
        assert stat.total(units).tolist() == expected
    with pytest.raises(BadParameter, match="lowest"):
        build("scatter_norms", {"columns": 2, "lowest": 2.0, "highest": 1.0, "bins": 4})


@pytest.mark.parametrize("clip", [1e-100, 1e-5, 1e100])
def test_scatter_any_clip_bounds_norm_of_unit_by_one(clip: float) -> None:
    rng = np.random.default_rng(4)
    stat = build("scatter", {"columns": 3, "normalise": False, "clip": clip})
    for size in (1e-200, 1e-60, 1e-3, 1e3, 1e80, 1e300):
        for unit in (size * rng.normal(size=(1, 3)), size * rng.normal(size=(5, 3))):
            assert np.linalg.norm(stat.total(Units.from_list([unit]))) <= 1
