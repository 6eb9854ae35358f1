"""Principal components: exact without noise, private with it, on real data where it is here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import PCA, lifted
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.spectral import leading, matrix_edge
from zerosum.audit import audit
from zerosum.coordinator.rehearse import drive
from zerosum.kernel import coordinates
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.site.policy import Policy
from zerosum.statistics import build
from zerosum.study import run
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]


def without_noise(units: Units) -> object:
    def answer(request: Request) -> Release:
        total = request.statistic.total(units)
        return Release(total, 0.0, float(len(units)), ("a", "b"))

    return answer


def names(columns: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(columns))


def data(rows: int, columns: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(0.5 + 0.1 * rng.normal(size=(rows, columns)) / np.arange(1, columns + 1)).clip(0, 1)


@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_both_solvers_find_the_components_of_the_normalised_rows(solver: str) -> None:
    rows = data(3000, 12)
    bounds = {"columns": names(12), "lower": np.zeros(12), "upper": np.ones(12)}
    algorithm = PCA(**bounds, n_components=3, solver=solver, rounds=40, centering="ranges")
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


def test_the_solver_is_chosen_by_size_and_said_in_the_plan() -> None:
    assert PCA(columns=names(2000), n_components=2, clip=1.0).chosen == "matrix"
    wide = PCA(columns=names(2001), n_components=2, clip=1.0, centering="none")
    assert [release.statistic for release in wide.releases(Adjacency.REPLACE_ONE)] == ["scatter_product"] * 3
    assert wide.releases(Adjacency.REPLACE_ONE)[0].size == 2001 * 12  # never a square matrix
    assert wide.describe == "solver subspace, 3 rounds at shares 0.227, 0.32, 0.453, a basis of 2 + 10 columns"
    small = PCA(columns=names(5), n_components=2, clip=1.0)
    assert small.describe.startswith(
        "solver matrix, the whole second moment at once; centre and clip from two small looks"
    )


def test_the_planner_chooses_rounds_from_public_facts_and_leaves_alone_what_is_given() -> None:
    wide = PCA(columns=names(3000), n_components=5, clip=1.0, centering="none")
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
    small = PCA(columns=names(5), n_components=2, clip=1.0, centering="none")
    assert small.resolve(facts) == small.model_copy(update={"rounded": False})  # and there is nothing else to choose
    shares = [release.share for release in resolve.releases(Adjacency.REPLACE_ONE)]
    assert sum(shares) == pytest.approx(1.0)
    assert shares == sorted(shares)


def test_the_planned_schedule_captures_more_than_equal_rounds_without_extra_columns() -> None:
    """On data unlike the stand-in: eigenvalues that fall as k^-2 and then end, in a random basis."""
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(6000, 60)) / np.arange(1, 61)) @ np.linalg.qr(rng.normal(size=(400, 60)))[0].T
    units = Units.from_rows(rows)
    matrix = coordinates.unpack(build("scatter", {"columns": 400}).total(units), 400)
    open_ = PCA(columns=names(400), n_components=8, clip=1.0, centering="none", solver="subspace")
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


def test_a_person_weighs_the_same_whatever_the_number_and_size_of_its_rows() -> None:
    rng = np.random.default_rng(1)
    people = [rng.normal(size=(int(rng.integers(3, 50)), 5)) * 10 ** rng.uniform(-3, 3) for _ in range(30)]
    stat = build("scatter", {"columns": 5, "per_recording": "standardise"})
    expected = np.zeros((5, 5))
    for rows in people:
        own = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        expected += own.T @ own / np.linalg.norm(own.T @ own)
    assert np.allclose(coordinates.unpack(stat.total(Units.from_list(people)), 5), expected)


def test_a_unit_without_any_spread_counts_as_zero() -> None:
    stat = build("scatter", {"columns": 2, "per_recording": "standardise"})
    assert not np.any(stat.total(Units.from_list([np.ones((4, 2)), np.full((3, 2), 7.0)])))
    assert not np.any(build("scatter", {"columns": 2}).total(Units.from_rows(np.zeros((3, 2)))))


@pytest.mark.parametrize("size", [1e-200, 1e-155, 1.65e-81, 1e-60, 1e60, 1e160, 1e300])
@pytest.mark.parametrize("normalise", [True, False])
def test_the_bound_holds_for_values_whose_squares_over_or_underflow(size: float, normalise: bool) -> None:
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
    ("change", "message"),
    [
        ({"n_components": 4}, "at most 3 components"),
        ({"n_components": 0}, "components"),
        ({"look_share": 0.5}, "look_share"),
        ({"look_share": 0.2, "small_looks": 4}, "four small looks"),
        ({"normalise": False}, "the clip is found"),
        ({"solver": "power"}, "solver"),
        ({"matrix_clip": 2.0}, "set normalise to false"),
        ({"matrix_clip": -2.0, "normalise": False}, "matrix_clip"),
        ({"n_passes": 2, "normalise": False, "centering": "none"}, "two passes"),
        ({"n_passes": 2}, "two passes"),
        ({"n_passes": 2, "solver": "subspace"}, "two passes"),
        ({"n_passes": 3}, "n_passes"),
        ({"scaling": "ranges"}, "needs a public range"),
        ({"scaling": "ranges", "lower": [0, 0, 0], "upper": [1, 1, 0]}, "of positive width"),
        ({"lower": [1, 2, 3], "upper": [1, 2, 3]}, "must reach a squared norm"),
        ({"clip": 0.995e50}, "must reach a squared norm"),  # the clip that is found could be more than 1e100
        ({"clip": 1e-46}, "must reach a squared norm"),
    ],
)
def test_bad_parameters_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PCA(**{"columns": names(3), "n_components": 1, "clip": 1.0, **change})


def test_a_basis_that_is_not_orthonormal_is_refused() -> None:
    with pytest.raises(ValueError, match="orthonormal"):
        build("scatter_product", {"columns": 2, "basis": [[1.0, 0.1], [0.0, 1.0]]})


def test_noise_is_taken_out_of_the_eigenvalues_and_drowned_components_are_said() -> None:
    rows = np.zeros((4000, 40))
    rows[:2000, 0], rows[2000:, 1] = 1.0, 1.0  # two components of equal weight, 38 of none
    result = run(
        PCA(columns=names(40), n_components=5, clip=1.0, centering="none"),
        {"a": rows[::2], "b": rows[1::2]},
        epsilon=1.0,
        delta=1e-5,
        unit="record",
    )
    assert result.estimate["above_noise"].tolist() == [2.0]
    assert np.allclose(result.estimate["eigenvalues"], [0.5, 0.5, 0, 0, 0], atol=0.02)


def test_pure_noise_stays_below_its_edge() -> None:
    """2000 matrices of nothing but noise, each above its edge about once in 10^5: more than two once in 10^6 runs."""
    rng = np.random.default_rng()
    over = 0
    for columns in (20, 60):
        for _ in range(1000):
            noise = coordinates.unpack(rng.normal(size=coordinates.size(columns)), columns)
            over += int(np.max(np.linalg.eigvalsh(noise)) > matrix_edge(columns, 1.0))
    assert over <= 2


def test_scaling_by_ranges_divides_columns_before_they_are_normalised() -> None:
    rows = data(500, 4) * [1, 10, 100, 1000]
    upper = np.array([1.0, 10, 100, 1000])
    algorithm = PCA(
        columns=names(4), n_components=2, lower=np.zeros(4), upper=upper, centering="ranges", scaling="ranges"
    )
    estimate, _ = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert np.array_equal(estimate["scale"], upper / 2)
    own = (rows - upper / 2) / (upper / 2)
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    assert np.allclose(estimate["eigenvalues"], np.linalg.eigvalsh(own.T @ own / 500)[::-1][:2])
    assert algorithm.reach == 4


def people(count: int, seed: int = 0) -> list[Floats]:
    """People of six rows in six columns, whose sizes spread over orders of magnitude."""
    rng = np.random.default_rng(seed)
    return [10 ** rng.normal(0, 0.4) * rng.normal(size=(6, 6)) / np.arange(1, 7) for _ in range(count)]


def own_matrices(units: list[Floats]) -> Floats:
    return np.array([rows.T @ rows / len(rows) for rows in units])


def test_without_noise_the_looks_end_at_the_ordinary_components() -> None:
    """However far the middle of the ranges is from the data."""
    rows = data(3000, 12) + np.linspace(-0.3, 3, 12)
    algorithm = PCA(columns=names(12), n_components=3, lower=np.zeros(12), upper=np.full(12, 9.0))
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


def test_the_lifted_subspace_solver_finds_centre_and_components() -> None:
    rows = data(3000, 12) + np.linspace(-0.3, 3, 12)
    algorithm = PCA(
        columns=names(12), n_components=3, lower=np.zeros(12), upper=np.full(12, 9.0), solver="subspace", rounds=40
    )
    estimate, asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert [request.statistic.size for request in asked[:5]] == [40, 13, 40, 13, 40]
    assert sum(request.share for request in asked) == pytest.approx(1)
    centred = rows - rows.mean(axis=0)
    assert np.allclose(estimate["mean"], rows.mean(axis=0), atol=0.02)
    assert captured(centred.T @ centred, np.asarray(estimate["components"])) > 0.999


@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_the_centres_error_does_not_become_a_component(solver: str) -> None:
    """Rows of one length in all directions but three: a noisy centre is far away as seen from them."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(900, 40)) * np.arange(1, 41) ** -0.75
    units, found = Units.from_rows(rows), []
    algorithm = PCA(columns=names(40), n_components=3, lower=np.full(40, -5.0), upper=np.full(40, 5.0), solver=solver)
    for seed in range(6):
        rehearsal = Rehearsal(algorithm, 900, 3, 2.0, 1e-5)
        estimate = rehearsal.run(units, seed)
        found.append(captured(np.diag(np.arange(1, 41) ** -1.5), np.asarray(estimate["components"])))
    assert np.mean(found) > (0.93 if solver == "matrix" else 0.6)  # 0.5 and 0.1 about a paid mean


def test_norms_have_quantiles_and_units_keep_what_the_clip_leaves() -> None:
    norms = lifted.Norms(np.array([1.0, 10.0, 100.0, 1000.0]), np.array([0.5, 0.5, 0.0]))
    assert norms.quantile(0.5) == pytest.approx(10)
    assert norms.quantile(1.0) == pytest.approx(100)  # the end of the last bin that has anybody
    assert norms.kept(1e6, 1.0) < norms.kept(10.0, 1.0) < norms.kept(1.0, 1.0) < 1


@pytest.mark.parametrize("rows", [np.zeros((150, 40)), np.ones((150, 40)), None], ids=["zero", "one", "isotropic"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_nothing_stands_above_the_noise_where_nothing_is(rows: Floats | None, epsilon: float) -> None:
    data = np.random.default_rng(6).normal(size=(900, 40)) if rows is None else rows
    bounds = {"lower": np.full(40, -5.0), "upper": np.full(40, 5.0)}
    rehearsal = Rehearsal(PCA(columns=names(40), n_components=5, **bounds), len(data), 3, epsilon, 1e-5)
    found = [float(rehearsal.run(Units.from_rows(data), seed)["above_noise"][0]) for seed in range(30)]
    assert found == [0.0] * 30


def test_a_single_column_and_the_last_of_all_can_stand_above_the_noise() -> None:
    """They have no others to be like: only privacy noise can be mistaken for them."""
    rows = np.random.default_rng(0).normal(size=(6000, 2)) * [2.0, 0.5]
    for columns, spread in ((1, rows[:, :1]), (2, rows), (1, np.zeros((6000, 1)))):
        bounds = {"lower": np.full(columns, -8.0), "upper": np.full(columns, 8.0), "centering": "ranges"}
        pca = PCA(columns=names(columns), n_components=columns, **bounds)
        found = Rehearsal(pca, 6000, 3, 2.0, 1e-5).run(Units.from_rows(spread), 0)
        assert found["above_noise"][0] == (columns if np.any(spread) else 0)
        assert np.all(np.asarray(found["eigenvalues"]) > 0) == bool(np.any(spread))


def test_where_a_histogram_would_be_noise_the_whole_budget_goes_to_one_look() -> None:
    facts = PublicFacts(noise=20.0, units=200)
    algorithm = PCA(columns=names(5), n_components=2, lower=np.zeros(5), upper=np.ones(5)).resolve(facts)
    assert [(each.statistic, each.share) for each in algorithm.releases(Adjacency.REPLACE_ONE)] == [("scatter", 1.0)]
    assert "about the middle of the ranges" in algorithm.describe
    many = PCA(columns=names(5), n_components=2, lower=np.zeros(5), upper=np.ones(5)).resolve(
        PublicFacts(noise=20.0, units=200_000)
    )
    assert len(many.releases(Adjacency.REPLACE_ONE)) == 6
    assert "two small looks" in many.describe


def test_where_noise_is_large_four_small_looks_find_the_centre() -> None:
    bounds = {"lower": np.zeros(5), "upper": np.ones(5)}
    noisy = PCA(columns=names(5), n_components=2, **bounds).resolve(PublicFacts(noise=20.0, units=4000))
    asked = [each.statistic for each in noisy.releases(Adjacency.REPLACE_ONE)]
    assert asked == ["scatter_norms", "scatter"] * 5
    assert "four small looks" in noisy.describe
    assert sum(each.share for each in noisy.releases(Adjacency.REPLACE_ONE)) == pytest.approx(1)
    few = PCA(columns=names(5), n_components=2, look_share=0.2, **bounds).resolve(PublicFacts(noise=20.0, units=4000))
    assert (few.small_looks, few.look_share) == (2, 0.2)
    for units, second in ((12_000, "scatter"), (200_000, "scatter_column")):
        calm = PCA(columns=names(5), n_components=2, **bounds).resolve(PublicFacts(noise=20.0, units=units))
        asked = [each.statistic for each in calm.releases(Adjacency.REPLACE_ONE)]
        assert asked == ["scatter_norms", "scatter_column", "scatter_norms", second, "scatter_norms", "scatter"]
        assert sum(each.share for each in calm.releases(Adjacency.REPLACE_ONE)) == pytest.approx(1)


@pytest.mark.parametrize("offset", [0.0, 0.02, 0.5])
def test_ranges_that_are_far_too_wide_do_no_harm(offset: float) -> None:
    """A thousand times as wide as the data, which lie in their middle or anywhere else."""
    rng = np.random.default_rng(4)
    axes = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    rows = rng.normal(size=(8000, 20)) * np.arange(1, 21) ** -0.7 @ axes.T
    matrix, found = np.cov(rows.T), []
    for width in (3.0, 1000.0):
        bounds = {"lower": np.full(20, -width), "upper": np.full(20, width)}
        study = Rehearsal(PCA(columns=names(20), n_components=3, **bounds), 8000, 4, 3.0, 1e-5)
        assert "two small looks" in study.algorithm.describe
        units = Units.from_rows(np.clip(rows + offset * width * rng.uniform(-1, 1, 20), -width, width))
        estimates = [study.run(units, seed) for seed in range(5)]
        found.append(np.mean([captured(matrix, np.asarray(each["components"])) for each in estimates]))
    assert found[1] > found[0] - 0.005
    assert found[1] > 0.99


def test_a_centre_far_from_the_middle_is_found_in_noise() -> None:
    """Rows near a corner of the ranges, 30 times their own spread from the middle."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    rows = 1 + 0.3 * rng.normal(size=(6000, 30)) * np.arange(1, 31) ** -0.6 @ axes.T
    bounds = {"lower": np.zeros(30), "upper": np.full(30, 20.0)}
    matrix, found = np.cov(rows.T), []
    for looks in (2, 4):
        study = Rehearsal(PCA(columns=names(30), n_components=3, small_looks=looks, **bounds), 6000, 5, 0.3, 1e-5)
        estimates = [study.run(Units.from_rows(rows), seed) for seed in range(5)]
        found.append(np.mean([captured(matrix, np.asarray(each["components"])) for each in estimates]))
    default = Rehearsal(PCA(columns=names(30), n_components=3, **bounds), 6000, 5, 0.3, 1e-5).algorithm
    assert "four small looks" in default.describe
    assert found[1] > found[0] + 0.05


def look(matrix: Floats, noise: float, corner: float = 1000.0) -> lifted.Look:
    return lifted.Look(matrix, np.zeros(len(matrix)), corner, noise)


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_the_mean_takes_the_place_of_a_direction_that_is_noise(size: float) -> None:
    kept, known = np.eye(4)[:, :2], np.array([0.0, 0.0, 3.0, 3.0])
    alike = np.diag([100.0, 20.0, 20.0, 20.0])
    rich = alike + 50 * np.outer(known, known) / 18
    found = look(rich, 1.0).with_known(kept, size * known)
    assert np.allclose(np.abs(found[:, 1]), known / np.sqrt(18))
    assert np.array_equal(look(alike, 1.0).with_known(kept, size * known), kept)  # no more than others hold
    assert np.array_equal(look(rich, 1.0).with_known(kept, np.zeros(4)), kept)  # no mean
    assert np.array_equal(look(rich, 1.0).with_known(kept, size * (kept[:, 0] + 1e-14)), kept)  # found already
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0][:, :2]
    inside = size * turned[:, 0] * 7
    assert np.array_equal(look(rich, 1.0).with_known(turned, inside), turned)  # but for rounding


def test_the_mean_takes_no_place_of_a_direction_that_holds_more() -> None:
    """Sampling alone could show what stands there, so it does not count; it is the better one all the same."""
    known, last = np.array([0.0, 3.0, 0.0, 0.0]), np.eye(4)[:, :1]
    matrix = np.diag([80.0, 70.0, 40.0, 40.0])
    for noise in (0.0, 0.1, 1.0):
        assert np.array_equal(look(matrix, noise).with_known(last, known), last)
    lost = look(matrix, 1.0, corner=2.0)  # the large value may be the mean's own
    assert np.array_equal(lost.with_known(last, known)[:, 0], known / 3)


def test_nothing_stands_above_the_noise_of_products_where_nothing_is() -> None:
    rows = np.random.default_rng(5).normal(size=(1500, 20)) + 3
    bounds = {"lower": np.full(20, -9.0), "upper": np.full(20, 9.0)}
    algorithm = PCA(columns=names(20), n_components=3, solver="subspace", **bounds)
    for epsilon in (1.0, 10.0, 30.0):
        study = Rehearsal(algorithm, 1500, 3, epsilon, 1e-5)
        assert all(study.run(Units.from_rows(rows), seed)["above_noise"][0] == 0 for seed in range(5))


def test_a_centre_stays_within_the_clip_where_there_are_no_ranges() -> None:
    rows = np.full((50, 3), 1e105)
    algorithm = PCA(columns=names(3), n_components=1, clip=1.0)
    estimate, _asked = drive(algorithm.program(Adjacency.REPLACE_ONE), without_noise(Units.from_rows(rows)))  # type: ignore[arg-type]
    assert np.linalg.norm(estimate["mean"]) <= 1 + 1e-9


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("solver", ["matrix", "subspace"])
def test_the_clip_is_found_for_people_of_very_different_sizes(solver: str, adjacency: Adjacency) -> None:
    """The safe clip is what rows inside the public bound reach, 1600; norms have their 0.9 quantile at 10."""
    units = people(3000)
    matrix = np.mean(own_matrices(units), axis=0)
    sites = {f"s{s}": Units.from_list(units[s::3]) for s in range(3)}
    for found in (True, False):
        safe = {} if found else {"centering": "none", "normalise": False}
        algorithm = PCA(columns=names(6), n_components=2, clip=40.0, solver=solver, **safe)
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
def test_whatever_is_found_is_a_parameter_that_sites_take(clip: float, size: float) -> None:
    units = Units.from_rows(size * clip * np.random.default_rng(0).normal(size=(500, 3)))
    for epsilon in (0.5, 5.0, 30.0):
        found = Rehearsal(PCA(columns=names(3), n_components=2, clip=clip), 500, 3, epsilon, 1e-5).run(units, 0)
        assert np.all(np.isfinite(found["components"].value))


def fresh(sites: Iterable[str], adjacency: Adjacency) -> dict[str, Policy]:
    return {name: Policy(population=f"{name} {secrets.token_hex(4)}", adjacency=adjacency) for name in sites}


def test_norms_are_counted_whatever_their_size() -> None:
    stat = build("scatter_norms", {"columns": 2, "lowest": 1e-2, "highest": 1e2, "bins": 4})
    sizes = [0.0, 1e-200, 0.05, 0.5, 2.0, 9.0, 1e30, 1e200]  # the norm is the square
    expected = [3.0, 1.0, 1.0, 3.0]
    for units in (
        Units.from_rows(np.array([[size, 0.0] for size in sizes])),
        Units.from_list([np.array([[size, 0.0]] * 3) for size in sizes]),
    ):
        assert stat.total(units).tolist() == expected
    with pytest.raises(ValueError, match="lowest must be below highest"):
        build("scatter_norms", {"columns": 2, "lowest": 2.0, "highest": 1.0, "bins": 4})


@pytest.mark.parametrize("clip", [1e-100, 1e-5, 1e100])
def test_no_clip_lets_a_unit_weigh_more_than_one(clip: float) -> None:
    rng = np.random.default_rng(4)
    stat = build("scatter", {"columns": 3, "normalise": False, "clip": clip})
    for size in (1e-200, 1e-60, 1e-3, 1e3, 1e80, 1e300):
        for unit in (size * rng.normal(size=(1, 3)), size * rng.normal(size=(5, 3))):
            assert np.linalg.norm(stat.total(Units.from_list([unit]))) <= 1


def captured(matrix: Floats, components: Floats) -> float:
    best = np.sum(np.linalg.eigvalsh(matrix)[-len(components) :])
    return float(np.trace(components @ matrix @ components.T) / best)


def test_covertype_at_a_tenth_of_epsilon(real_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(real_data("covtype_60k.npz")) as stored:
        rows = stored["X"].astype(np.float64)
    upper = np.maximum(rows.max(axis=0), rows.min(axis=0) + 1)
    rows = (rows - rows.min(axis=0)) / (upper - rows.min(axis=0))
    matrix = np.cov(rows.T, bias=True)
    algorithm = PCA(columns=names(54), n_components=10, lower=np.zeros(54), upper=np.ones(54))
    sites = {f"s{s}": rows[s::5] for s in range(5)}
    found = []
    for seed in range(5):
        policies = {name: Policy(population=f"{name} {seed}", unit="record") for name in sites}
        result = run(algorithm, sites, epsilon=0.1, delta=1e-5, colluders=1, unit="record", policies=policies)
        found.append(captured(matrix, np.asarray(result.estimate["components"])))
    with capsys.disabled():
        print(f"\nCovertype, K=10, exact eps 0.1: captured energy {np.mean(found):.4f} +- {np.std(found):.4f}")
    assert np.mean(found) > 0.98


def test_shrinking_dead_columns_helps_and_costs_nothing_where_there_are_none() -> None:
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
            kept.append(abs(float(leading(noisy, 2.5, 1, shrink=shrink)[:, 0] @ best)))
    assert np.mean(shrunk) > np.mean(plain) + 0.05
    strong = 1000 * np.eye(5) + np.diag([50.0, 40, 30, 20, 10])
    same = [leading(strong, 1.0, 2, shrink=shrink) for shrink in (True, False)]
    assert np.allclose(np.abs(same[0].T @ same[1]), np.eye(2), atol=1e-6)


@pytest.mark.parametrize("centering", ["none", "auto"])
def test_an_attacker_does_not_exceed_the_claim(centering: str) -> None:
    algorithm = PCA(columns=names(60), n_components=3, clip=1.0, centering=centering)
    found = audit(Scheme("secure-sum"), algorithm, samples=20_000 if centering == "none" else 1_000)
    assert found.holds
    assert found.tight or centering == "auto"  # no unit is the worst one for norms and looks alike


def test_an_attacker_does_not_exceed_the_claim_of_lifted_products() -> None:
    algorithm = PCA(columns=names(6), n_components=2, clip=1.0, solver="subspace", rounds=2)
    assert audit(Scheme("secure-sum"), algorithm, samples=400).holds
