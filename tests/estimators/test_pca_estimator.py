"""The scikit-learn facade: scikit-learn's own checks, every way to hand in sites, and what a fit spends."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.decomposition import PCA as PlainPCA  # noqa: N811  # a name of its own beside ours
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.compute.units import Units
from zerosum.errors import BadData, BudgetExceeded, PolicyRefused
from zerosum.estimators import PCA
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy

Floats = NDArray[np.float64]


def rows(count: int = 600, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.normal(size=(count, 4)) * [3, 1, 0.3, 0.1] + [1, 0, 0, 0])


def three(count: int = 600) -> list[Floats]:
    return list(np.array_split(rows(count), 3))


def named(tables: list[Any]) -> dict[str, Any]:
    return {f"site {s}": each for s, each in enumerate(tables)}


def seeded(**change: Any) -> PCA:
    settings: dict[str, Any] = {"lower": -12, "upper": 12, "random_state": 0, "data": "synthetic"}
    return PCA(**settings | change)


def private(**change: Any) -> PCA:
    settings: dict[str, Any] = {"lower": -12, "upper": 12, "unit": "record"} | change
    return PCA(**settings)


def ledgers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sqlite"))


def spent(name: str) -> float:
    with Policy(population=name, unit="record").open_ledger() as ledger:
        return ledger.epsilon(1e-5)


@parametrize_with_checks([PCA(scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")])  # type: ignore[untyped-decorator]  # theirs
def test_pca_estimator_passes_sklearn_checks(estimator: PCA, check: Callable[[PCA], None]) -> None:
    check(estimator)


# ---- the ways in -----------------------------------------------------------------------------------------------


def test_pca_estimator_list_labels_and_dict_give_same_study() -> None:
    tables = three()
    names = [f"site {s}" for s in range(3)]
    listed = seeded().fit(tables)
    named = seeded().fit(dict(zip(names, tables, strict=True)))
    labels = np.repeat(names, [len(table) for table in tables])
    labelled = seeded().fit(np.vstack(tables), sites=labels)
    units = seeded().fit([Units.from_rows(table) for table in tables])
    nested = seeded().fit([table.tolist() for table in tables])
    for other in (named, labelled, units, nested):
        assert np.array_equal(listed.components_, other.components_)
        assert [line.site for line in other.privacy_.per_site] == names


def test_pca_estimator_rows_of_site_in_any_order_give_same_components() -> None:
    data, labels = rows(), np.arange(600) % 3
    mixed = seeded().fit(data, sites=labels)
    sorted_ = seeded().fit({str(s): data[s::3] for s in range(3)})
    assert np.array_equal(mixed.components_, sorted_.components_)
    assert [line.site for line in mixed.privacy_.per_site] == ["0", "1", "2"]


@pytest.mark.parametrize("scheme", ["pooled", Scheme("pooled"), "non-private"])
def test_pca_estimator_of_trusted_holder_accepts_one_array(scheme: str | Scheme) -> None:
    data = rows()
    whole = seeded(scheme=scheme).fit(data)
    uneven = seeded(scheme=scheme).fit([data[:100], data[100:]])
    assert np.allclose(whole.components_, uneven.components_)
    assert np.allclose(whole.mean_, uneven.mean_)


def test_pca_estimator_without_noise_equals_pca_of_normalised_rows() -> None:
    data = rows()
    found = seeded(scheme="non-private", n_components=3, centering="none").fit(data)
    centred = data.copy()
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(centred.T @ centred / len(data))[::-1]
    assert np.allclose(found.explained_variance_, values[:3])
    assert np.allclose(found.explained_variance_ratio_, found.explained_variance_)
    assert np.isclose(np.sum(values), 1)  # so that eigenvalues are shares of the whole


@pytest.mark.parametrize("bounds", [{}, {"lower": None, "upper": None, "clip": 30.0}])
def test_pca_estimator_without_noise_equals_sklearn(bounds: dict[str, Any]) -> None:
    data = rows()
    found = seeded(scheme="non-private", n_components=3, **bounds).fit(data)
    plain = PlainPCA(3).fit(data)
    assert np.allclose(np.abs(found.components_), np.abs(plain.components_), atol=1e-8)
    assert np.allclose(found.explained_variance_ * 600 / 599, plain.explained_variance_)
    assert np.allclose(np.abs(found.transform(data)), np.abs(plain.transform(data)), atol=1e-6)
    assert np.allclose(found.explained_variance_ratio_, plain.explained_variance_ratio_)


def test_pca_estimator_scaling_by_ranges_equals_pca_of_scaled_rows() -> None:
    data, upper = rows() * [1, 10, 100, 1000], np.array([12.0, 60, 200, 700])
    bounds = {"lower": -upper, "upper": upper, "scaling": "ranges", "n_components": 4}
    found = seeded(scheme="non-private", **bounds).fit(data)
    assert np.array_equal(found.scale_, upper)
    plain = PlainPCA(4).fit(data / upper)
    assert np.allclose(np.abs(found.components_), np.abs(plain.components_), atol=1e-8)
    assert np.allclose(found.explained_variance_ * 600 / 599, plain.explained_variance_)
    assert np.allclose(np.abs(found.transform(data)), np.abs(plain.transform(data / upper)))
    assert np.allclose(found.inverse_transform(found.transform(data)), data)


def test_pca_estimator_finds_centre_and_clip_and_shrink_can_be_turned_off() -> None:
    found = seeded(n_components=2, epsilon=20.0).fit(three(6000))
    assert [line.statistic for line in found.privacy_.releases] == [
        *["scatter_norms", "scatter_column"] * 2,
        *["scatter_norms", "scatter"],
    ]
    assert 5 < found.explained_variance_[0] < 9  # 9, less what the clip takes
    fixed = seeded(n_components=2, centering="none", normalise=False, matrix_clip=300.0, epsilon=20.0).fit(three(6000))
    assert fixed.explained_variance_[0] == pytest.approx(10, rel=0.1)  # about zero, where the mean is 1
    assert np.all(fixed.explained_variance_noise_std_ > found.explained_variance_noise_std_)
    shrunk, plain = (seeded(shrink=shrink, epsilon=0.1).fit(three()) for shrink in (True, False))
    assert not np.allclose(shrunk.components_, plain.components_)


def test_pca_estimator_without_centering_has_zero_mean() -> None:
    data = rows() + 5
    found = seeded(scheme="non-private", centering="none", lower=-10, upper=[30, 20, 20, 20], normalise=False)
    found.fit(data)
    assert not np.any(found.mean_)
    assert np.isclose(found.explained_variance_[0], np.linalg.eigvalsh(data.T @ data / 600)[-1])


def test_pca_estimator_refit_removes_stale_attributes() -> None:
    pca = seeded().fit(three())
    assert hasattr(pca, "explained_variance_ratio_")
    people = [Units.from_list(np.split(table, 40)) for table in three()]  # five rows each
    pca.set_params(unit="person", per_recording="center").fit(people)
    assert not hasattr(pca, "explained_variance_ratio_")  # its second look is in other coordinates
    assert pca.privacy_.unit == "person"


@pytest.mark.parametrize("settings", [{}, {"centering": "none", "normalise": False}])
def test_pca_estimator_attributes_do_not_reveal_person_with_two_rows(settings: dict[str, Any]) -> None:
    """Attributes, their shapes and the notes follow from the parameters: one more row of one person changes none."""

    def published(first: int) -> dict[str, Any]:
        tables = [Units.from_list(np.split(table, len(table))) for table in three(300)]
        tables[0] = Units.from_list([rows(first, seed=5), *np.split(rows(99, seed=6), 99)])
        fitted = private(unit="person", **settings).fit(dict(zip("abc", tables, strict=True)))
        return {name: np.shape(value) for name, value in vars(fitted).items() if name != "result_"} | {
            "notes": fitted.notes_,
            "estimate": {name: value.shape for name, value in fitted.result_.estimate.items()},
        }

    one, two = published(1), published(2)
    assert one == two


# ---- scikit-learn's habits -------------------------------------------------------------------------------------


def test_pca_estimator_inverse_transform_restores_rows() -> None:
    data = rows()
    pca = seeded(n_components=4, epsilon=20.0).fit(np.array_split(data, 3))
    assert pca.transform(data).shape == (600, 4)
    assert np.allclose(pca.inverse_transform(pca.transform(data)), data)
    few = seeded(n_components=1).fit(np.array_split(data, 3))
    back = few.inverse_transform(few.transform(data))
    assert np.allclose(few.transform(back), few.transform(data))


def test_pca_estimator_features_have_names() -> None:
    pca = seeded(n_components=3).fit(three())
    assert pca.get_feature_names_out().tolist() == ["pca0", "pca1", "pca2"]
    assert pca.n_components_ == 3
    assert pca.n_features_in_ == 4
    assert not hasattr(pca, "feature_names_in_")


def test_pca_estimator_works_in_pipeline() -> None:
    data = rows()
    y, labels = (data[:, 0] > 1).astype(int), np.arange(600) % 3
    pipeline = make_pipeline(seeded(), LogisticRegression())
    pipeline.fit(data, y, pca__sites=labels)
    assert pipeline.score(data, y) > 0.9
    assert seeded().fit_transform(data, sites=labels).shape == (600, 2)


def test_pca_estimator_parameters_survive_clone_and_pickle() -> None:
    policies = {"site 0": Policy(population="a", unit="record")}
    pca = private(n_components=1, policies=policies, scheme="local")
    assert pca.policies is policies
    copy = clone(pca)
    assert copy.get_params() == pca.get_params()
    assert not hasattr(copy, "components_")
    fitted = seeded().fit(three())
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.components_, fitted.components_)
    assert again.privacy_ == fitted.privacy_


# ---- privacy ---------------------------------------------------------------------------------------------------


def test_pca_estimator_seeded_run_repeats_and_writes_no_ledger(tmp_path: Path) -> None:
    first, second, other = (seeded(random_state=seed).fit(three()) for seed in (0, np.int64(0), 1))
    assert np.array_equal(first.components_, second.components_)
    assert not np.array_equal(first.components_, other.components_)
    assert not first.privacy_.private
    assert first.privacy_.sentences()[0].startswith("This run protects no person")
    assert any("seed" in note for note in first.notes_)
    assert ledgers(tmp_path) == []


def test_pca_estimator_private_fit_spends_and_second_fit_spends_again() -> None:
    pca = private().fit(named(three()))
    assert pca.privacy_.private
    assert pca.privacy_.worst_epsilon <= 1.0
    assert all("noise" in note for note in pca.notes_)  # how many, noise decides
    once = [spent(f"site {s}") for s in range(3)]
    assert all(0.9 < epsilon <= 1 + 1e-9 for epsilon in once)
    before = pca.components_
    pca.fit(named(three()))
    assert not np.array_equal(pca.components_, before)
    assert all(spent(f"site {s}") > epsilon * 1.2 for s, epsilon in enumerate(once))


def test_pca_estimator_beyond_cap_is_refused() -> None:
    policies = {"site 1": Policy(population="small", unit="record", epsilon=1.2)}
    pca = private(policies=policies).fit(named(three()))
    with pytest.raises(BudgetExceeded):
        pca.fit(named(three()))
    assert spent("small") <= 1 + 1e-9
    assert spent("site 0") <= 1 + 1e-9  # nobody spends for a study that one refuses


def test_pca_estimator_given_policies_are_applied(tmp_path: Path) -> None:
    with pytest.raises(PolicyRefused, match="seed"):
        seeded(policies={"site 0": Policy(population="a", unit="record")}).fit(three())
    public = {
        f"site {s}": Policy(population=f"p{s}", unit="record", data="public", ledger=tmp_path / f"mine {s}.sqlite")
        for s in range(3)
    }
    seeded(policies=public).fit(three())
    assert len(ledgers(tmp_path)) == 3


def test_pca_estimator_pooled_scheme_needs_trusted_coordinator() -> None:
    with pytest.raises(PolicyRefused, match="trusted_coordinator"):
        private(scheme="pooled").fit(rows())
    with pytest.raises(PolicyRefused, match="non-private"):
        private(scheme="non-private").fit(rows())
    policies = {f"site {s}": Policy(population=f"h{s}", unit="record", trusted_coordinator=True) for s in range(2)}
    assert private(scheme="pooled", policies=policies).fit(rows()).privacy_.private


def test_pca_estimator_two_sites_of_one_population_are_refused_before_spending(tmp_path: Path) -> None:
    shared = Policy(population="h", unit="record", trusted_coordinator=True)
    with pytest.raises(ValueError, match="ledger"):
        private(scheme="pooled", policies={"site 0": shared, "site 1": shared}).fit(rows())
    assert ledgers(tmp_path) == []


def test_pca_estimator_without_bounds_runs_in_seeded_run_only() -> None:
    for scheme in ("secure-sum", "pooled", "non-private"):
        with pytest.raises(ValueError, match="lower"):
            PCA(scheme=scheme, unit="record").fit(three())
    found = PCA(random_state=0, data="synthetic").fit(three())
    largest = np.max(np.linalg.norm(rows(), axis=1))
    assert any("clip" in note and f"{largest:g}" in note for note in found.notes_)
    assert PCA(random_state=0, data="synthetic").fit([np.zeros((20, 3))] * 2).above_noise_ in (0, 1, 2)


def test_pca_estimator_counts_components_above_noise() -> None:
    found = seeded(n_components=3, epsilon=20.0).fit(three(30_000))
    assert found.above_noise_ == 3
    assert np.all(found.explained_variance_ > found.noise_edge_ / 2)
    drowned = seeded(n_components=3, epsilon=0.01).fit(three(60))
    assert drowned.above_noise_ < 3
    assert drowned.noise_edge_ > found.noise_edge_


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"n_components": 5}, "components.* 5"),
        ({"n_components": 0}, "components"),
        ({"upper": None}, "upper"),
        ({"upper": [1.0, 2.0]}, r"upper.*\(2,\)"),
        ({"solver": "power"}, "solver"),
        ({"matrix_clip": 1.0}, "normalise"),
        ({"matrix_clip": "dp"}, "matrix_clip"),
        ({"scaling": "ranges", "lower": None, "upper": None, "clip": 1.0}, "range"),
        ({"scheme": "magic"}, "'magic'"),
        ({"epsilon": -1.0}, "epsilon.*-1"),
        ({"delta": 2.0}, "delta.* 2"),
        ({"unit": "house"}, "'house'"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"policies": {"nobody": Policy(population="a")}}, "'nobody'"),
    ],
)
def test_pca_estimator_bad_parameter_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        seeded(**change).fit(three())


@pytest.mark.parametrize(
    ("X", "sites", "word"),
    [
        (rows(), None, "sites="),
        (rows(), np.zeros(600), "sites"),
        (rows(), [0, 1], r"\[600, 2\]"),
        (three(), np.zeros(600), "sites="),
        ([], None, "sites"),
        ({1: rows(), "1": rows()}, None, "name"),
        (Units.from_rows(rows()), None, "Units"),
        ([rows(), rows()[:, :3]], None, "'site 1'.* 3 "),
        ([Units.from_rows(rows()), Units.from_rows(rows()[:, :3])], None, "'site 1'.* 3 "),
        ({"a": rows(), "b": np.full((20, 4), np.nan)}, None, "'b'.*NaN"),
        ([rows(), Units.from_rows(np.full((20, 4), np.inf))], None, "'site 1'.*finite"),
    ],
)
def test_pca_estimator_bad_sites_are_refused_before_spending(X: Any, sites: Any, word: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=word):
        private().fit(X, sites=sites)
    assert ledgers(tmp_path) == []


def test_pca_estimator_sparse_tables_are_refused() -> None:
    with pytest.raises(BadData, match="dense"):
        private().fit([csr_array(rows()), csr_array(rows())])


def test_pca_estimator_transform_of_several_tables_is_refused() -> None:
    with pytest.raises(NotFittedError):
        private().transform(rows())
    with pytest.raises(NotFittedError):
        private().inverse_transform(rows())
    pca = seeded().fit(three())
    several: list[Any] = [three(), {"a": rows()}, Units.from_rows(rows())]
    for X in several:
        with pytest.raises(ValueError, match="array"):
            pca.transform(X)
    with pytest.raises(ValueError, match="2 columns"):
        pca.inverse_transform(rows())
