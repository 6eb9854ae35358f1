"""What is wrong is said by a ZerosumError that is a ValueError too, by every estimator, and nothing is spent for it."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import zerosum
from zerosum.compute.units import Units
from zerosum.data.fmri import make_fmri
from zerosum.errors import BadData, BadInput, BadParameter
from zerosum.site.policy import Policy

KINDS = ["Mean", "Histogram", "Covariance", "KMeans", "PCA", "ICA"]
TABLES = KINDS[:-1]
MADE_UP = make_fmri(36, sites=3, components=2, points=20, side=2, noise=0.1)


def table(kind: str, seed: int = 0, count: int = 40, columns: int = 4) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(count, 1 if kind == "Histogram" else columns))


def sites(kind: str) -> list[Any]:
    if kind == "ICA":
        return [np.asarray(MADE_UP.observed(s)) for s in range(3)]
    return [table(kind, s) for s in range(3)]


def named(data: list[Any]) -> dict[str, Any]:
    return {f"site {s}": each for s, each in enumerate(data)}


def make(kind: str, **change: Any) -> Any:
    own: dict[str, dict[str, Any]] = {
        "Histogram": {"edges": [-3, 0, 3]},
        "ICA": {"rounds": 3},
        "KMeans": {"clip": 3.0, "n_clusters": 2},
    }
    settings = own.get(kind, {"clip": 3.0}) | {"unit": "person"} | change
    return getattr(zerosum, kind)(**settings)


def ledgers(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.sqlite"))


SHARED: list[tuple[dict[str, Any], str]] = [
    ({"scheme": "magic"}, "scheme"),
    ({"scheme": 7}, "scheme.* 7"),
    ({"epsilon": -1.0}, "epsilon.* -1"),
    ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": True}, "epsilon.* True"),
    ({"epsilon": "1"}, "epsilon.* '1'"),
    ({"epsilon": None}, "epsilon"),
    ({"delta": 0.0}, "delta"),
    ({"delta": [1e-5]}, "delta"),
    ({"unit": "house"}, "'house'"),
    ({"adjacency": "next"}, "adjacency.*'next'"),
    ({"random_state": np.random.RandomState(0)}, "random_state"),
    ({"random_state": -1}, "random_state"),
    ({"budget": 3.0}, "budget"),
    ({"colluders": 3}, "2 of 3"),
    ({"colluders": -1}, "colluders"),
    ({"colluders": "one"}, "colluders.*'one'"),
    ({"dropouts": 0.5}, "dropouts.*0.5"),
    ({"dropouts": 2}, "dropouts"),
    ({"policies": {"nobody": Policy(population="a")}}, "'nobody'"),
    ({"policies": ["a"]}, "policies"),
    ({"policies": {"site 0": "policy.toml"}}, "policies"),
]
BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({"clip": None}, "lower"),
    ({"clip": -1.0}, "clip"),
    ({"clip": "large"}, "clip"),
    ({"lower": 0.0}, "upper"),
    ({"lower": [0.0, 1.0], "upper": 2.0}, r"lower.*\(2,\)"),
    ({"lower": "none", "upper": 2.0}, "lower"),
    ({"lower": 3.0, "upper": 2.0}, "lower"),
    ({"lower": np.nan, "upper": 2.0}, "finite"),
]
OWN: list[tuple[str, dict[str, Any], str]] = [
    ("PCA", {"n_components": 5}, "components.* 5"),
    ("PCA", {"n_components": "two"}, "n_components"),
    ("ICA", {"n_components": 5}, "components.* 5"),
    ("ICA", {"n_components": 0}, "n_components"),
    ("ICA", {"basis": "cosines"}, "basis"),
    ("KMeans", {"n_clusters": 0}, "n_clusters"),
    ("KMeans", {"rounds": 0}, "rounds"),
    ("KMeans", {"start": "random"}, "start"),
    ("Covariance", {"mean_weight": 2.0}, "mean_weight"),
    ("Histogram", {"edges": [0.0]}, "edges"),
    ("Histogram", {"edges": None, "categories": 7}, "categories"),
]
ALL = [
    *((kind, *case) for kind in KINDS for case in SHARED),
    *((kind, *case) for kind in KINDS if kind not in ("Histogram", "ICA") for case in BOUNDS),
    *OWN,
]


@pytest.mark.parametrize(("kind", "change", "word"), ALL)
def test_estimator_bad_parameter_is_refused_before_spending(
    kind: str, change: dict[str, Any], word: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=word) as refused:
        make(kind, **change).fit(named(sites(kind)))
    assert isinstance(refused.value, ValueError)
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("kind", TABLES)
def test_estimator_plain_rows_without_unit_are_refused(kind: str, tmp_path: Path) -> None:
    for data in (sites(kind), [Units.from_rows(each) for each in sites(kind)]):
        with pytest.raises(BadParameter, match="unit='person'"):
            make(kind, unit=None).fit(data)
    assert ledgers(tmp_path) == []
    assert make(kind, unit=None, random_state=0, data="synthetic").fit(sites(kind)).privacy_.unit == "record"
    people = [Units.from_list(np.split(each, 20)) for each in sites(kind)]
    assert make(kind, unit=None).fit(named(people)).privacy_.unit == "person"


def test_ica_estimator_time_courses_have_person_as_unit() -> None:
    assert make("ICA", unit=None).fit(named(sites("ICA"))).privacy_.unit == "person"


@pytest.mark.parametrize("kind", KINDS)
def test_estimator_bad_data_are_refused_without_quoting_them(kind: str, tmp_path: Path) -> None:
    good = sites(kind)
    wide = good[1][..., :3] if kind != "Histogram" else np.ones((20, 2))
    broken = np.full_like(good[1], np.nan)
    words = np.full(good[1].shape, "Alice", dtype=object)
    columns = r"'site 1'.* 3 |'site 1'.*\(20, 2\)"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ([good[0], wide], {}, columns),
        ([good[0], broken], {}, "'site 1'.*(NaN|finite)"),
        ([good[0], words], {}, "'site 1'.*numbers"),
        ({"a": good[0], "b": []}, {}, "'b'"),
        ([], {}, "sites"),
        ({}, {}, "sites"),
        (named([good[0]]), {}, "sites"),
        ({1: good[0], "1": good[1]}, {}, "name"),
        (good, {"sites": [0, 1]}, "sites="),
        (good[0], {}, "sites=|people="),
        (good[0], {"sites": [0, 1]}, "inconsistent"),
        (good[0], {"sites": np.zeros((len(good[0]), 2))}, "1d array"),
        (Units.from_list(list(np.ones((30, 2, 1)))), {}, "Units"),
        (None, {}, "1D|2D|1d|shape|array"),
        ("north.csv", {}, "array|numbers|shape"),
        (7.0, {}, "2D|1d|array|shape"),
    ]
    for X, labels, word in cases:
        with pytest.raises(BadInput, match=word) as refused:
            make(kind).fit(X, **labels)
        assert "Alice" not in str(refused.value)
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("kind", ["Mean", "Covariance", "KMeans", "PCA"])
def test_estimator_sparse_tables_and_frames_with_other_names_are_refused(kind: str) -> None:
    with pytest.raises(BadData, match=r"'site 0'.*dense"):
        make(kind).fit([csr_array(table(kind))] * 2)
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(table(kind), columns=list(names)) for names in ("abcd", "abdc")]
    with pytest.raises(BadData, match=r"'site 1'.*names"):
        make(kind).fit(frames)
    assert make(kind).fit(named([frames[0], frames[0]])).feature_names_in_.tolist() == list("abcd")


@pytest.mark.parametrize(("kind", "method"), [("KMeans", "predict"), ("KMeans", "transform"), ("PCA", "transform"),
                                              ("ICA", "transform"), ("PCA", "inverse_transform")])  # fmt: skip
def test_fitted_estimator_bad_rows_are_refused_without_quoting_them(kind: str, method: str) -> None:
    fitted = make(kind, random_state=0, data="synthetic").fit(sites(kind))
    ask = getattr(fitted, method)
    for rows in (np.ones((5, 7)), np.full((5, 4), np.nan), np.ones(4), [["Alice"] * 4]):
        with pytest.raises(BadData) as refused:
            ask(rows)
        assert "Alice" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_estimator_seed_without_public_data_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="random_state"):
        make(kind, random_state=42).fit(named(sites(kind)))
    with pytest.raises(BadParameter, match="'synthetic'"):
        make(kind, data="mine").fit(named(sites(kind)))
    assert not make(kind, random_state=42, data="public").fit(sites(kind)).privacy_.private
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("kind", KINDS)
def test_estimator_private_sites_without_names_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="names"):
        make(kind).fit(sites(kind))
    assert ledgers(tmp_path) == []


@pytest.mark.parametrize("kind", ["LinearRegression", "PoissonRegression", "PolynomialLoss", "Describe", "PCA"])
def test_estimator_misspelt_parameter_names_own_class_and_parameter(kind: str) -> None:
    with pytest.raises(TypeError, match=rf"^{kind}\.__init__\(\) .*'lowr'"):
        getattr(zerosum, kind)(lowr=0)
