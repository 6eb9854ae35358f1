"""Mean, Histogram, Covariance and KMeans in scikit-learn's manner: its checks, and what each finds."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.algorithms.histogram import nearest_probabilities
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import Covariance, Histogram, KMeans, Mean
from zerosum.site.policy import Policy

Floats = NDArray[np.float64]
CHECKED = [kind(scheme="pooled", epsilon=20.0, random_state=0, data="synthetic") for kind in (Mean, Covariance, KMeans)]


def rows(count: int = 600, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, 3)) @ [[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.3]]
    return np.asarray(mixed + np.array([1.0, -2.0, 0.5]))


def three(count: int = 600) -> list[Floats]:
    return list(np.array_split(rows(count), 3))


def blobs(count: int = 900) -> Floats:
    """Three clusters far apart, in columns of very different size."""
    rng = np.random.default_rng(3)
    centers = np.array([[-5.0, 0.0], [5.0, 400.0], [0.0, -500.0]])
    return np.asarray(centers[np.arange(count) % 3] + rng.normal(size=(count, 2)) * [0.3, 20.0])


@parametrize_with_checks(CHECKED)  # type: ignore[untyped-decorator]  # theirs
def test_table_estimators_pass_sklearn_checks(estimator: BaseEstimator, check: Callable[[BaseEstimator], None]) -> None:
    check(estimator)


# ---- what is found ---------------------------------------------------------------------------------------------


def test_mean_and_covariance_without_noise_equal_numpy_and_sklearn() -> None:
    free: dict[str, Any] = {"scheme": "non-private", "lower": -20, "upper": 20, "random_state": 0, "data": "synthetic"}
    assert np.allclose(Mean(**free).fit(rows()).mean_, rows().mean(axis=0))
    assert np.all(Mean(**free).fit(rows()).noise_std_ == 0)
    found, plain = Covariance(**free).fit(rows()), EmpiricalCovariance().fit(rows())
    assert np.allclose(found.location_, plain.location_)
    assert np.allclose(found.covariance_, plain.covariance_)
    assert np.allclose(found.correlation_, np.corrcoef(rows().T))
    assert np.all(found.noise_std_ == 0)


def test_mean_estimator_person_with_many_rows_counts_once() -> None:
    people = [np.full((1 + 9 * (p == 0), 1), float(p)) for p in range(20)]
    found = Mean(scheme="non-private", clip=100.0, random_state=0, data="synthetic").fit(
        [Units.from_list(people[s::2]) for s in (0, 1)]
    )
    assert found.mean_ == pytest.approx([9.5])
    assert found.privacy_.unit == "person"


@pytest.mark.parametrize("bounds", [{"lower": -8, "upper": 12}, {"clip": 30.0}])
def test_mean_and_covariance_stated_noise_equals_spread_over_runs(bounds: dict[str, Any]) -> None:
    """Errors of many columns in units of what is said: their mean square over five runs is 1, give or take 0.1."""
    columns, seen = 24, []
    data = np.random.default_rng(1).normal(np.linspace(-4, 4, columns), 1.0, size=(20_000, columns))
    upper = np.triu_indices(columns)
    for seed in range(5):
        settings = bounds | {"scheme": "pooled", "epsilon": 20.0, "random_state": seed, "data": "synthetic"}
        mean, found = Mean(**settings).fit(data), Covariance(**settings).fit(data)
        assert np.min(np.linalg.eigvalsh(found.covariance_)) > 0.1  # so nothing was set to zero
        off = (found.covariance_ - np.cov(data.T, bias=True)) / found.noise_std_
        places = [
            (each - data.mean(axis=0)) / std
            for each, std in ((mean.mean_, mean.noise_std_), (found.location_, found.location_noise_std_))
        ]
        seen.append([np.mean(values**2) for values in (off[upper], np.diag(off), *places)])
    assert np.mean(seen, axis=0) == pytest.approx(1, abs=0.5)
    assert np.mean(seen, axis=0)[0] == pytest.approx(1, abs=0.2)


def test_kmeans_estimator_finds_and_predicts_clusters_in_data_units() -> None:
    data = blobs()
    found = KMeans(n_clusters=3, lower=[-10, -1000], upper=[10, 1000], random_state=0, data="synthetic", epsilon=5.0)
    found.fit(np.array_split(data, 3))
    order = np.argsort(found.cluster_centers_[:, 0])
    assert np.allclose(found.cluster_centers_[order], [[-5, 0], [0, -500], [5, 400]], atol=[0.5, 50])
    assert np.all(np.abs(found.counts_ - 300) < 6 * found.counts_noise_std_)
    assert found.scale_.tolist() == [10, 1000]
    apart = (data[:, None] - found.cluster_centers_) / [10, 1000]
    assert np.allclose(found.transform(data), np.linalg.norm(apart, axis=2))
    assert np.array_equal(found.predict(data), np.argmin(found.transform(data), axis=1))
    assert np.bincount(found.predict(data)).tolist() == [300, 300, 300]
    assert found.get_feature_names_out().tolist() == ["kmeans0", "kmeans1", "kmeans2"]
    assert not hasattr(found, "labels_")


def test_kmeans_estimator_works_in_pipeline() -> None:
    pipeline = make_pipeline(
        StandardScaler(), KMeans(n_clusters=3, clip=4.0, random_state=0, data="synthetic", epsilon=5.0)
    )
    pipeline.fit(blobs(), kmeans__sites=np.arange(900) % 4)
    assert len(set(pipeline.predict(blobs()).tolist())) == 3


def test_kmeans_estimator_before_fit_or_for_several_sites_is_refused() -> None:
    with pytest.raises(NotFittedError):
        KMeans().predict(blobs())
    with pytest.raises(BadParameter):  # a fit that fails is none
        (failed := KMeans(clip=-1.0, random_state=0, data="synthetic")).fit(three())
    with pytest.raises(NotFittedError):
        failed.transform(rows())
    found = KMeans(n_clusters=2, clip=9.0, random_state=0, data="synthetic").fit(three())
    with pytest.raises(BadData, match="array"):
        found.predict(three())


def test_kmeans_fit_predict_gives_the_nearest_centre_of_each_row_by_site() -> None:
    settings: dict[str, Any] = {"n_clusters": 3, "clip": 9.0, "random_state": 0, "data": "synthetic"}
    tables = three()
    found = KMeans(**settings)
    labels = found.fit_predict(tables)
    assert [each.tolist() for each in labels] == [found.predict(rows).tolist() for rows in tables]
    named = KMeans(**settings).fit_predict({f"site {at}": rows for at, rows in enumerate(tables)})
    assert list(named) == ["site 0", "site 1", "site 2"]
    whole = np.vstack(tables)
    assert KMeans(**settings).fit_predict(whole, sites=np.arange(len(whole)) % 3).shape == (len(whole),)


# ---- histograms ------------------------------------------------------------------------------------------------

WORDS = {"north": ["A", "B", "A", "0"] * 50, "east": ["B", "B", "0", "AB"] * 50}


def words(**change: Any) -> Histogram:
    settings: dict[str, Any] = {
        "categories": ["A", "B", "AB", "0"],
        "random_state": 0,
        "data": "synthetic",
        "scheme": "non-private",
    }
    return Histogram(**settings | change)


def test_histogram_estimator_words_in_any_container_are_counted() -> None:
    flat, labels = WORDS["north"] + WORDS["east"], ["north"] * 200 + ["east"] * 200
    codes = {name: Units.from_rows([["A", "B", "AB", "0"].index(word) for word in own]) for name, own in WORDS.items()}
    table = {name: np.array(own)[:, None] for name, own in WORDS.items()}
    for found in (
        words().fit(WORDS),
        words().fit(list(WORDS.values())),
        words().fit(table),
        words().fit(flat, sites=labels),
        words().fit(np.array(flat, dtype=object)),
        words().fit(codes),
        words(categories=np.array(["A", "B", "AB", "0"])).fit(WORDS),
    ):
        assert found.counts_.tolist() == [100, 150, 50, 100]
        assert found.shares_ == pytest.approx([0.25, 0.375, 0.125, 0.25])
        assert found.categories_.tolist() == ["A", "B", "AB", "0"]
        assert not hasattr(found, "edges_")


def test_histogram_estimator_numbers_are_counted_by_value_and_by_unit() -> None:
    values = np.array([10.0, 30.0, 10.0, 20.0] * 30)
    settings: dict[str, Any] = {
        "categories": (30, 20, 10),
        "scheme": "non-private",
        "random_state": 0,
        "data": "synthetic",
    }
    plain = Histogram(**settings).fit([values, values])
    assert plain.counts_.tolist() == [60, 60, 120]
    pairs = Units.from_list([[[10.0], [30.0]], [[20.0]], [[10.0]]])
    assert Histogram(**settings).fit([pairs, pairs]).counts_.tolist() == [1, 2, 3]


def test_histogram_estimator_bins_have_edges_and_noise_std() -> None:
    ages = [np.random.default_rng(s).uniform(0, 100, 3000) for s in range(3)]
    found = Histogram(edges=[0, 20, 50, 100], random_state=0, data="synthetic").fit(ages)
    exact = np.histogram(np.concatenate(ages), [0, 20, 50, 100])[0]
    assert 0 < found.noise_std_ < 50
    assert np.all(np.abs(found.counts_ - exact) < 6 * found.noise_std_)
    assert np.array_equal(found.shares_, nearest_probabilities(found.counts_))
    assert found.edges_.tolist() == [0, 20, 50, 100]
    assert not hasattr(found, "categories_")
    found.set_params(edges=None, categories=(1.0,)).fit([np.ones(30)] * 3)
    assert not hasattr(found, "edges_")  # a refit forgets what no longer holds


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "edges"),
        ({"categories": ["a"], "edges": [0, 1]}, "edges"),
        ({"categories": "ab"}, "categories"),
        ({"categories": ["a", "a"]}, "values|categories"),
        ({"categories": []}, "categories"),
        ({"edges": [1.0]}, "edges"),
        ({"edges": [1.0, 0.0, 2.0]}, "edges"),
        ({"edges": "abc"}, "edges"),
    ],
)
def test_histogram_estimator_bad_bins_are_refused(settings: dict[str, Any], word: str) -> None:
    data = [np.array(["a"] * 20, dtype=object)] * 2 if settings.get("categories") else [np.ones(20)] * 2
    with pytest.raises(BadParameter, match=word):
        Histogram(**settings, unit="record", data="public").fit(data)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        ([["A"] * 20, ["C", "A"] * 10], "'site 1'.*categories"),
        ([["A"] * 20, [None] * 20], "'site 1'.*categories"),
        ([np.array([["A", "B"]] * 20)] * 2, r"'site 0'.*\(20, 2\)"),
        ([Units.from_rows(np.zeros((20, 2)))] * 2, "'site 0'"),
        ([Units.from_rows(np.full(20, 7.0))] * 2, "categories"),
    ],
)
def test_histogram_estimator_undeclared_values_are_refused(data: Any, word: str) -> None:
    with pytest.raises(BadData, match=word) as refused:
        words().fit(data)
    assert "C" not in str(refused.value)


# ---- habits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Mean, Covariance, KMeans])
def test_table_estimators_list_labels_and_dict_give_same_study(kind: Any) -> None:
    settings: dict[str, Any] = {"lower": -12, "upper": 12, "random_state": 0, "data": "synthetic"}
    names = [f"site {s}" for s in range(3)]
    listed = kind(**settings).fit(three())
    for other in (
        kind(**settings).fit(dict(zip(names, three(), strict=True))),
        kind(**settings).fit(rows(), sites=np.repeat(names, 200)),
        kind(**settings).fit([Units.from_rows(table) for table in three()]),
    ):
        assert {name: value.tolist() for name, value in other.result_.estimate.items()} == {
            name: value.tolist() for name, value in listed.result_.estimate.items()
        }


@pytest.mark.parametrize(
    "estimator", [*CHECKED, Histogram(edges=[-9, 0, 9], random_state=0, data="synthetic", scheme="pooled")]
)
def test_table_estimators_survive_clone_and_pickle(estimator: Any) -> None:
    data = rows()[:, 0] if isinstance(estimator, Histogram) else rows()
    fitted = clone(estimator).fit(data)
    assert clone(fitted).get_params() == estimator.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    assert again.privacy_ == fitted.privacy_
    assert not fitted.privacy_.private


@pytest.mark.parametrize("kind", [Mean, Covariance, KMeans, Histogram])
def test_table_estimators_private_fit_spends_and_failed_fit_changes_nothing(kind: Any) -> None:
    bounds = {"edges": [-9, 0, 9]} if kind is Histogram else {"clip": 9.0}
    tables = {f"site {s}": table[:, 0] if kind is Histogram else table for s, table in enumerate(three())}
    fitted = kind(**bounds, unit="person").fit(tables)
    assert fitted.privacy_.private
    assert fitted.privacy_.unit == "person"
    before = dict(vars(fitted))
    bad = [np.full((20, 5), np.nan)] * 3
    with pytest.raises(BadData):
        fitted.fit(bad)
    assert vars(fitted) == before
    with Policy(population="site 0").open_ledger() as ledger:
        assert 0.9 < ledger.epsilon(1e-5) <= 1 + 1e-9
