"""Programs driven by scripted releases, and their accuracy on data."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.program_results import exact, result_of
from zerosum import algorithms
from zerosum.algorithms import CovarianceProgram, CustomProgram, HistogramProgram, KMeansProgram, MeanProgram
from zerosum.algorithms.cells import weighted_kmeans
from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency


@pytest.mark.parametrize("adjacency", Adjacency)
def test_mean_of_rows_and_of_people_equals_numpy(adjacency: Adjacency) -> None:
    rng = np.random.default_rng(1)
    rows = rng.uniform([20, 100], [80, 180], (60, 2))
    algorithm = MeanProgram(columns=("age", "systolic"), lower=[20, 100], upper=[80, 180])
    assert np.allclose(result_of(algorithm, Units.from_rows(rows), adjacency)["mean"], rows.mean(axis=0))
    people = Units.from_groups(rows, np.arange(60) % 7)
    by_person = np.mean([rows[np.arange(60) % 7 == k].mean(axis=0) for k in range(7)], axis=0)
    assert np.allclose(result_of(algorithm, people, adjacency)["mean"], by_person)


def test_mean_values_outside_ranges_are_clamped_by_column() -> None:
    rows = np.array([[1e9, 0.5], [0.5, -1e9]])
    algorithm = MeanProgram(columns=("a", "b"), lower=[0, 0], upper=[1, 1])
    assert np.allclose(result_of(algorithm, Units.from_rows(rows))["mean"], [0.75, 0.25])


def test_mean_clip_without_ranges_bounds_each_row() -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    found = result_of(MeanProgram(columns=("a", "b"), clip=1.0), Units.from_rows(rows))["mean"]
    assert np.allclose(found, (np.array([0.6, 0.8]) + rows[1]) / 2)


def test_histogram_of_categories_and_of_bins_counts_values() -> None:
    codes = np.array([0, 1, 1, 2, 1, 0], dtype=float)
    algorithm = HistogramProgram(columns=("sex",), values=("f", "m", "x"))
    found = result_of(algorithm, Units.from_rows(codes))
    assert found["counts"].tolist() == [2, 3, 1]
    assert np.allclose(found["shares"], np.array([2, 3, 1]) / 6)
    people = Units.from_groups(codes[:, None], ["p", "p", "q", "q", "q", "r"])
    assert np.allclose(result_of(algorithm, people)["counts"], [1.5, 0.5 + 2 / 3, 1 / 3])
    ages = HistogramProgram(columns=("age",), edges=[0, 18, 65, 120])
    found = result_of(ages, Units.from_rows(np.array([3.0, 18.0, 64.9, 65.0, 400.0, -2.0])))
    assert found["counts"].tolist() == [2, 2, 2]


def test_nearest_probabilities_of_noisy_counts_are_probabilities() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        counts = rng.normal(0, 50, 6) + rng.uniform(-50, 50)
        shares = nearest_probabilities(counts)
        assert np.all(shares >= 0)
        assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("size", [1e10, 1e16, 1e20, 1e300])
def test_nearest_probabilities_of_huge_noise_add_up_to_one(size: float) -> None:
    counts = size * np.random.default_rng(0).normal(size=40)
    for total in (1.0, 100.0):
        shares = nearest_probabilities(counts, total)
        assert np.all(shares >= 0)
        assert np.argmax(shares) == np.argmax(counts)
        assert np.sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_covariance_without_noise_equals_numpy_in_data_units(adjacency: Adjacency) -> None:
    rng = np.random.default_rng(2)
    rows = rng.multivariate_normal([50, 3], [[90, 6], [6, 1]], 4000).clip([10, 0], [90, 6])
    algorithm = CovarianceProgram(columns=("a", "b"), lower=[10, 0], upper=[90, 6])
    found = result_of(algorithm, Units.from_rows(rows), adjacency)
    assert np.allclose(found["mean"], rows.mean(axis=0))
    assert np.allclose(found["covariance"], np.cov(rows.T, bias=True))
    assert np.allclose(found["correlation"], np.corrcoef(rows.T))


def test_covariance_with_noise_is_positive_and_unbiased() -> None:
    rows = np.random.default_rng(3).normal(0, 0.2, (500, 3))
    algorithm = CovarianceProgram(columns=("a", "b", "c"), clip=1.0)
    many = []
    for seed in range(400):
        rng = np.random.default_rng(seed)

        def answer(request: Request, rng: np.random.Generator = rng) -> Release:
            total = request.statistic.total(Units.from_rows(rows))
            return Release(total + 20 * rng.normal(size=total.shape), 20.0, 500.0, ())

        estimate, _ = drive(algorithm.program(Adjacency.REPLACE_ONE), answer)
        many.append(np.asarray(estimate["covariance"]))
        assert np.min(np.linalg.eigvalsh(many[-1])) > -1e-12
    truth = np.cov(rows.T, bias=True)
    assert np.max(np.abs(np.mean(many, axis=0) - truth)) < 0.015


@pytest.mark.parametrize("start", range(5))
def test_kmeans_finds_separate_clusters(start: int) -> None:
    rng = np.random.default_rng(4)
    true = np.array([[2.0, 2.0], [8.0, 3.0], [5.0, 8.0]])
    rows = np.vstack([c + 0.4 * rng.normal(size=(300, 2)) for c in true])
    algorithm = KMeansProgram(columns=("a", "b"), n_clusters=3, lower=[0, 0], upper=[10, 10], start=start)
    found = result_of(algorithm, Units.from_rows(rows))
    distance = np.linalg.norm(found["centers"][:, None] - true[None], axis=2)
    assert np.all(distance.min(axis=0) < 0.15)
    assert sorted(found["counts"].round().tolist()) == [300, 300, 300]


def test_kmeans_under_huge_noise_keeps_centres_in_range() -> None:
    algorithm = KMeansProgram(columns=("a",), n_clusters=2, lower=[0], upper=[1])
    units = Units.from_rows(np.full((5, 1), 0.2))
    estimate, _ = drive(algorithm.program(Adjacency.REPLACE_ONE), exact(units, noise=1000.0))  # type: ignore[arg-type]
    centers = np.asarray(estimate["centers"])
    assert centers.shape == (2, 1)
    assert np.all((centers >= 0) & (centers <= 1))


def test_weighted_kmeans_of_many_points_is_reproducible_and_finds_the_clusters() -> None:
    rng = np.random.default_rng(0)
    true = np.array([[-5.0, 0.0], [0.0, 5.0], [5.0, 0.0]])
    points, weights = true[rng.integers(0, 3, 900)] + 0.1 * rng.normal(size=(900, 2)), 10 ** rng.uniform(-6, 6, 900)
    found = weighted_kmeans(points, weights, 3, 1)
    assert np.array_equal(found, weighted_kmeans(points, weights, 3, 1))
    assert np.max(np.abs(found - true)) < 0.5


def test_weighted_kmeans_of_fewer_distinct_points_than_clusters_repeats_centers() -> None:
    found = weighted_kmeans(np.array([[1.0], [1.0], [1.0], [2.0]]), np.ones(4), 3, 0)
    assert set(found.ravel().tolist()) == {1.0, 2.0}


@pytest.mark.parametrize("seed", range(3))
def test_kmeans_of_five_distant_clusters_leaves_no_centre_empty(seed: int) -> None:
    """Random public cells of a wide domain leave centres without rows; the start of the mixture does not."""
    rng = np.random.default_rng(seed)
    true = np.array([[-4.0, -4.0], [-4.0, 4.0], [0.0, 0.0], [4.0, -4.0], [4.0, 4.0]])
    rows = np.vstack([center + 0.4 * rng.normal(size=(300, 2)) for center in true])
    algorithm = KMeansProgram(columns=("a", "b"), n_clusters=5, lower=[-10, -10], upper=[10, 10])
    estimate, _ = drive(
        algorithm.program(Adjacency.REPLACE_ONE),
        exact(Units.from_rows(rows), noise=5.0),  # type: ignore[arg-type]
    )
    distance = np.linalg.norm(np.asarray(estimate["centers"])[:, None] - true[None], axis=2)
    assert np.all(distance.min(axis=0) < 0.3)


@pytest.mark.parametrize("K", [1, 2, 7])
def test_kmeans_requests_are_those_of_the_program(K: int) -> None:
    algorithm = KMeansProgram(columns=("a", "b", "c"), n_clusters=K, rounds=2, clip=2.0)
    planned = algorithm.requests(Adjacency.REPLACE_ONE)
    assert sum(each.share for each in planned) == pytest.approx(1.0)
    units = Units.from_rows(np.random.default_rng(0).normal(size=(50, 3)))
    _, made = drive(algorithm.program(Adjacency.REPLACE_ONE), exact(units, noise=3.0))  # type: ignore[arg-type]
    assert [(each.statistic.name, each.statistic.size) for each in made] == [
        (each.statistic.name, each.statistic.size) for each in planned
    ]


@pytest.mark.parametrize(
    ("name", "parameters", "named"),
    [
        ("median", {}, "'median'"),
        ("mean", {"columns": ["a"]}, "clip"),
        ("mean", {"columns": [], "clip": 1}, "columns"),
        ("mean", {"columns": ["a"], "clip": -1}, "clip"),
        ("mean", {"columns": ["a"], "clip": 1, "robust": True}, "robust"),
        ("mean", {"columns": ["a"], "lower": [0], "clip": 1.0}, "upper"),
        ("mean", {"columns": ["a"], "lower": [1], "upper": [0]}, "upper"),
        ("mean", {"columns": ["a", "b"], "lower": [1], "upper": [2]}, "2"),
        ("mean", {"columns": ["a"], "lower": [float("nan")], "upper": [2]}, "lower"),
        ("histogram", {"columns": ["a"]}, "edges"),
        ("histogram", {"columns": ["a"], "values": ["x", "x"]}, "values"),
        ("histogram", {"columns": ["a"], "edges": [1]}, "edges"),
        ("histogram", {"columns": ["a"], "edges": [1, 0]}, "edges"),
        ("histogram", {"columns": ["a", "b"], "values": ["x"]}, "columns"),
        ("covariance", {"columns": ["a"], "clip": 1, "mean_weight": 2}, "mean_weight"),
        ("k-means", {"columns": ["a"], "clip": 1}, "clusters"),
        ("k-means", {"columns": ["a"], "clip": 1, "n_clusters": 0}, "clusters"),
        ("k-means", {"columns": ["a"], "clip": 1, "n_clusters": 2, "rounds": 0}, "rounds"),
        ("statistic", {"columns": ["a"], "clip": 1, "statistic": "not_there"}, "'not_there'"),
    ],
)
def test_build_bad_parameter_is_refused_in_one_line(name: str, parameters: dict[str, object], named: str) -> None:
    with pytest.raises(BadInput, match=named) as caught:
        algorithms.build(name, parameters).releases(Adjacency.REPLACE_ONE)
    assert "\n" not in str(caught.value)


def test_custom_program_of_builtin_statistic_is_refused() -> None:
    algorithm = CustomProgram(columns=("a", "b"), statistic="vector_sum", clip=1.0)
    with pytest.raises(BadParameter, match="options"):  # a built-in one has parameters of its own
        algorithm.releases(Adjacency.REPLACE_ONE)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "new"),
    [
        ("pca", {"components": 2}, "'n_components'"),
        ("pca", {"n_components": 2, "scaling": "nothing"}, "'none'"),
        ("ica", {"n_components": 2, "within": "center"}, "'per_recording'"),
        ("ica", {"n_components": 2, "passes": 1}, "'n_passes'"),
        ("k-means", {"clusters": 2}, "'n_clusters'"),
    ],
)
def test_build_renamed_parameter_names_the_new_one(algorithm: str, parameters: dict[str, object], new: str) -> None:
    with pytest.raises(BadParameter, match=new):
        algorithms.build(algorithm, {"columns": ["a", "b"], "clip": 1.0} | parameters)


@pytest.mark.parametrize(
    "old", [{"centering": "paid"}, {"centering": "dp"}, {"mean_share": 0.1}, {"matrix_clip": "dp"}]
)
def test_build_removed_parameter_names_its_replacement(old: dict[str, object]) -> None:
    with pytest.raises(BadParameter, match="'auto'"):
        algorithms.build("pca", {"columns": ("a", "b"), "clip": 1.0, "n_components": 1} | old)


@pytest.mark.parametrize("name", ["mean", "covariance", "linear-regression", "logistic-regression"])
def test_algorithm_range_with_lower_end_last_names_its_column(name: str) -> None:
    with pytest.raises(BadParameter, match=r"column 'b' .* got 2 to 1"):
        algorithms.build(name, {"columns": ["a", "b"], "lower": [0, 2], "upper": [1, 1]})
