"""Principal components: exact without noise, private with it, on real data where it is here."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.component_data import captured, data, names, without_noise
from zerosum.algorithms import PCAProgram
from zerosum.algorithms.pca.spectrum import leading_vectors, matrix_edge
from zerosum.algorithms.program import PublicFacts
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.study import run

Floats = NDArray[np.float64]


@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_pca_both_solvers_find_components_of_normalised_rows(solver: str) -> None:
    rows = data(3000, 12)
    bounds = {"columns": names(12), "lower": np.zeros(12), "upper": np.ones(12)}
    algorithm = PCAProgram(**bounds, n_components=3, solver=solver, rounds=40, centering="ranges")
    estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    centred = rows - 0.5
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
    found = np.asarray(estimate["components"])
    assert np.allclose(np.abs(np.sum(found * vectors[:, ::-1][:, :3].T, axis=1)), 1, atol=1e-6)
    assert np.allclose(estimate["eigenvalues"], values[::-1][:3], rtol=1e-6)
    assert np.all(found[np.arange(3), np.argmax(np.abs(found), axis=1)] > 0)  # a fixed sign
    assert [request.statistic.name for request in asked] == (
        ["scatter"] if solver == "matrix" else ["scatter_product"] * 40
    )
    assert len(algorithm.releases(Adjacency.REPLACE_ONE)) == len(asked)


def test_pca_solver_is_chosen_by_columns_and_is_in_description() -> None:
    assert PCAProgram(columns=names(2000), n_components=2, clip=1.0).chosen == "matrix"
    wide = PCAProgram(columns=names(2001), n_components=2, clip=1.0, centering="none")
    assert [release.statistic for release in wide.releases(Adjacency.REPLACE_ONE)] == ["scatter_product"] * 3
    assert wide.releases(Adjacency.REPLACE_ONE)[0].size == 2001 * 12  # never a square matrix
    assert "subspace" in wide.describe
    assert re.findall(r"[\d.]*\d", wide.describe) == ["3", "0.227", "0.32", "0.453", "2", "10"]
    small = PCAProgram(columns=names(5), n_components=2, clip=1.0)
    assert "matrix" in small.describe


def test_pca_resolve_chooses_rounds_from_public_facts_and_keeps_given_fields() -> None:
    wide = PCAProgram(columns=names(3000), n_components=5, clip=1.0, centering="none")
    facts = PublicFacts(noise=1.0, units=10_000)
    resolve = wide.resolve(facts)
    assert resolve == wide.resolve(facts) == resolve.resolve(facts)  # the same again, and nothing left to choose
    assert resolve == wide.resolve(PublicFacts(noise=1.0, units=None))  # a guess, where units are not public
    assert None not in (resolve.rounds, resolve.growth, resolve.extra)
    quiet = wide.resolve(PublicFacts(noise=0.001, units=10**6)).schedule
    assert resolve.schedule.growth > quiet.growth  # where noise is small there is nothing to save up for the end
    assert wide.model_copy(update={"rounds": 9, "growth": 3.0}).resolve(facts).schedule.rounds == 9
    all_given = wide.model_copy(update={"rounds": 2, "growth": 3.0, "extra": 1})
    assert all_given.resolve(facts) == all_given
    small = PCAProgram(columns=names(5), n_components=2, clip=1.0, centering="none")
    assert small.resolve(facts) == small.model_copy(update={"rounded": False})  # and there is nothing else to choose
    shares = [release.share for release in resolve.releases(Adjacency.REPLACE_ONE)]
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares)


def test_pca_planned_schedule_captures_more_than_equal_rounds() -> None:
    """On data unlike the stand-in: eigenvalues that fall as k^-2 and then end, in a random basis."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(6000, 60)) / np.arange(1, 61)) @ np.linalg.qr(rng.normal(size=(400, 60)))[0].T
    units = Units.from_rows(rows)
    matrix = coordinates.unpack(build("scatter", {"columns": 400}).total(units), 400)
    open_ = PCAProgram(columns=names(400), n_components=8, clip=1.0, centering="none", solver="subspace")
    plain = open_.model_copy(update={"rounds": 3, "growth": 1.0, "extra": 0})
    found: dict[str, list[float]] = {"planned": [], "plain": []}
    for which, algorithm in (("planned", open_.resolve(PublicFacts(5.0, 6000))), ("plain", plain)):

        def noisy(request: Request) -> Release:
            total, std = request.statistic.total(units), 5 * np.sqrt(2 / request.share)
            return Release(total + std * rng.normal(size=total.shape), std, 6000.0, ("a", "b"))

        for _ in range(8):
            estimate, _asked = drive(algorithm.program(Adjacency.REPLACE_ONE), noisy)
            found[which].append(captured(matrix, np.asarray(estimate["components"])))
    assert np.mean(found["planned"]) > np.mean(found["plain"]) + 0.01


def test_scatter_person_with_any_rows_has_weight_one() -> None:
    rng = np.random.default_rng(1)
    people = [rng.normal(size=(int(rng.integers(3, 50)), 5)) * 10 ** rng.uniform(-3, 3) for _ in range(30)]
    stat = build("scatter", {"columns": 5, "per_recording": "standardise"})
    expected = np.zeros((5, 5))
    for rows in people:
        own = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        expected += own.T @ own / np.linalg.norm(own.T @ own)
    assert np.allclose(coordinates.unpack(stat.total(Units.from_list(people)), 5), expected)


def test_scatter_unit_without_spread_counts_as_zero() -> None:
    stat = build("scatter", {"columns": 2, "per_recording": "standardise"})
    assert not np.any(stat.total(Units.from_list([np.ones((4, 2)), np.full((3, 2), 7.0)])))
    assert not np.any(build("scatter", {"columns": 2}).total(Units.from_rows(np.zeros((3, 2)))))


@pytest.mark.parametrize("size", [1e-200, 1e-155, 1.65e-81, 1e-60, 1e60, 1e160, 1e300])
@pytest.mark.parametrize("normalise", [True, False])
def test_scatter_values_whose_squares_over_or_underflow_stay_within_bound(size: float, normalise: bool) -> None:
    rng = np.random.default_rng(3)
    stat = build("scatter", {"columns": 4, "normalise": normalise})
    for unit in (size * rng.normal(size=(1, 4)), size * rng.normal(size=(7, 4)), size * np.eye(4)):
        for units in (Units.from_list([unit]), Units.from_rows(unit)):
            bound = len(units)
            norm = float(np.linalg.norm(stat.total(units)))
            assert norm <= bound * (1 + 1e-9)
            if len(units) == 1 and (normalise or size > 10):
                assert norm == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_components": 4}, "components"),
        ({"n_components": 0}, "components"),
        ({"look_share": 0.5}, "look_share"),
        ({"look_share": 0.2, "small_looks": 4}, "look_share"),
        ({"normalise": False}, "normalise"),
        ({"solver": "power"}, "solver"),
        ({"matrix_clip": 2.0}, "matrix_clip"),
        ({"matrix_clip": -2.0, "normalise": False}, "matrix_clip"),
        ({"n_passes": 2, "normalise": False, "centering": "none"}, "passes"),
        ({"n_passes": 2}, "passes"),
        ({"n_passes": 2, "solver": "subspace"}, "passes"),
        ({"n_passes": 3}, "n_passes"),
        ({"scaling": "ranges"}, "scaling"),
        ({"scaling": "ranges", "lower": [0, 0, 0], "upper": [1, 1, 0]}, "scaling"),
        ({"lower": [1, 2, 3], "upper": [1, 2, 3]}, "1e-90"),
        ({"clip": 0.995e50}, "1e-90"),  # the clip that is found could be more than 1e100
        ({"clip": 1e-46}, "1e-90"),
    ],
)
def test_pca_bad_parameter_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        PCAProgram(**{"columns": names(3), "n_components": 1, "clip": 1.0, **change})


def test_scatter_product_basis_not_orthonormal_is_refused() -> None:
    with pytest.raises(BadParameter, match="orthonormal"):
        build("scatter_product", {"columns": 2, "basis": [[1.0, 0.1], [0.0, 1.0]]})


def test_pca_noise_is_subtracted_from_eigenvalues_and_real_components_are_counted() -> None:
    rows = np.zeros((4000, 40))
    rows[:2000, 0], rows[2000:, 1] = 1.0, 1.0  # two components of equal weight, 38 of none
    result = run(
        PCAProgram(columns=names(40), n_components=5, clip=1.0, centering="none"),
        {"a": rows[::2], "b": rows[1::2]},
        epsilon=1.0,
        delta=1e-5,
        unit="record",
    )
    assert result.estimate["above_noise"].tolist() == [2.0]
    assert np.allclose(result.estimate["eigenvalues"], [0.5, 0.5, 0, 0, 0], atol=0.02)


def test_matrix_edge_pure_noise_stays_below() -> None:
    """2000 matrices of nothing but noise, each above its edge about once in 10^5: more than two once in 10^6 runs."""
    rng = np.random.default_rng(random.getrandbits(64))
    over = 0
    for columns in (20, 60):
        for _ in range(1000):
            noise = coordinates.unpack(rng.normal(size=coordinates.size(columns)), columns)
            over += int(np.max(np.linalg.eigvalsh(noise)) > matrix_edge(columns, 1.0))
    assert over <= 2


def test_pca_scaling_by_ranges_divides_columns_before_normalisation() -> None:
    rows = data(500, 4) * [1, 10, 100, 1000]
    upper = np.array([1.0, 10, 100, 1000])
    algorithm = PCAProgram(
        columns=names(4), n_components=2, lower=np.zeros(4), upper=upper, centering="ranges", scaling="ranges"
    )
    estimate, _ = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert np.array_equal(estimate["scale"], upper / 2)
    own = (rows - upper / 2) / (upper / 2)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    assert np.allclose(estimate["eigenvalues"], np.linalg.eigvalsh(own.T @ own / 500)[::-1][:2])
    assert algorithm.reach == 4


def test_pca_covertype_at_epsilon_one_tenth_captures_98_percent(
    real_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(real_data("covtype_60k.npz")) as stored:
        rows = stored["X"].astype(np.float64)
    upper = np.maximum(rows.max(axis=0), rows.min(axis=0) + 1)
    rows = (rows - rows.min(axis=0)) / (upper - rows.min(axis=0))
    matrix = np.cov(rows.T, bias=True)
    algorithm = PCAProgram(columns=names(54), n_components=10, lower=np.zeros(54), upper=np.ones(54))
    sites = {f"s{s}": rows[s::5] for s in range(5)}
    found = []
    for seed in range(5):
        policies = {name: Policy(population=f"{name} {seed}", unit="record") for name in sites}
        result = run(algorithm, sites, epsilon=0.1, delta=1e-5, colluders=1, unit="record", policies=policies)
        found.append(captured(matrix, np.asarray(result.estimate["components"])))
    with capsys.disabled():
        print(f"\nCovertype, K=10, exact eps 0.1: captured energy {np.mean(found):.4f} +- {np.std(found):.4f}")
    assert np.mean(found) > 0.98


def test_leading_vectors_shrink_of_empty_columns_reduces_error_only() -> None:
    """Two columns of signal among 60 of nothing, at a noise that drowns a plain decomposition half of the time."""
    rng = np.random.default_rng(0)
    signal = np.zeros((62, 62))
    signal[:2, :2] = [[30.0, 12.0], [12.0, 20.0]]
    best = np.linalg.eigh(signal)[1][:, -1]
    plain: list[float] = []
    shrunk: list[float] = []
    for _ in range(60):
        noisy = signal + coordinates.unpack(2.5 * rng.normal(size=coordinates.size(62)), 62)
        for kept, shrink in ((plain, False), (shrunk, True)):
            kept.append(abs(float(leading_vectors(noisy, 2.5, 1, shrink=shrink)[:, 0] @ best)))
    assert np.mean(shrunk) > np.mean(plain) + 0.05
    strong = 1000 * np.eye(5) + np.diag([50.0, 40, 30, 20, 10])
    same = [leading_vectors(strong, 1.0, 2, shrink=shrink) for shrink in (True, False)]
    assert np.allclose(np.abs(same[0].T @ same[1]), np.eye(2), atol=1e-6)


@pytest.mark.parametrize("centering", ["none", "auto"])
def test_pca_audit_does_not_exceed_claim(centering: str) -> None:
    algorithm = PCAProgram(columns=names(60), n_components=3, clip=1.0, centering=centering)
    found = audit(Scheme("secure-sum"), algorithm, samples=20_000 if centering == "none" else 1_000)
    assert found.holds
    assert found.tight or centering == "auto"  # no unit is the worst one for norms and looks alike


def test_pca_audit_of_subspace_solver_with_centering_does_not_exceed_claim() -> None:
    algorithm = PCAProgram(columns=names(6), n_components=2, clip=1.0, solver="subspace", rounds=2)
    assert audit(Scheme("secure-sum"), algorithm, samples=400).holds
