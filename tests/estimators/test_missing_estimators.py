"""NaN in scikit-learn's manner: refused unless `missing` says what is done, and only where it does."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.impute import SimpleImputer

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import (
    PCA,
    Covariance,
    Describe,
    FeatureClassifier,
    GaussianMixture,
    Histogram,
    KMeans,
    LinearRegression,
    Mean,
)
from zerosum.estimators.base import RangedEstimator

Floats = NDArray[np.float64]
NAN = np.nan
FREE: dict[str, Any] = {"scheme": "non-private", "random_state": 0, "data": "synthetic"}
BOUNDS: dict[str, Any] = FREE | {"lower": -5, "upper": 5}


def holes(count: int = 300) -> Floats:
    rng = np.random.default_rng(0)
    rows = rng.multivariate_normal([0, 1, -1], np.diag([2.0, 1.0, 0.5]) + 0.3, count).clip(-5, 5)
    rows[rng.random(rows.shape) < [0.1, 0.3, 0.0]] = NAN
    return np.asarray(rows)


@pytest.mark.parametrize("kind", [Mean, Covariance, PCA, KMeans, GaussianMixture])
def test_estimator_nan_without_missing_rule_is_refused(kind: type[RangedEstimator]) -> None:
    with pytest.raises(BadData, match="NaN"):
        kind(**BOUNDS).fit(holes())
    with pytest.raises(BadData, match="finite"):
        kind(**BOUNDS).fit([Units.from_rows(holes()), Units.from_rows(holes())])
    with pytest.raises(BadData, match=r"'x1'.*own-rows"):
        kind(**BOUNDS, missing={"x0": 0.0}).fit(holes())
    with pytest.raises(BadData, match="infinity"):
        kind(**BOUNDS, missing=0.0).fit(np.where(np.isnan(holes()), np.inf, holes()))
    with pytest.raises(BadParameter, match="missing"):
        kind(**BOUNDS, missing="mean").fit(holes())
    fitted = clone(kind(**BOUNDS, missing=0.0)).fit(holes())
    assert fitted.missing == 0.0
    assert fitted.__sklearn_tags__().input_tags.allow_nan
    assert not kind(**BOUNDS).__sklearn_tags__().input_tags.allow_nan


def test_estimator_missing_rule_equals_sklearn_imputer() -> None:
    filled = SimpleImputer(strategy="constant", fill_value=0.5).fit_transform(holes())
    for kind, found in (
        (Mean, "mean_"),
        (Covariance, "covariance_"),
        (PCA, "components_"),
        (KMeans, "cluster_centers_"),
        (GaussianMixture, "means_"),
    ):
        ours = getattr(kind(**BOUNDS, missing=0.5).fit(holes()), found)
        assert np.allclose(ours, getattr(kind(**BOUNDS).fit(filled), found))


def test_mean_estimator_of_observed_values_gives_observed_counts() -> None:
    found = Mean(**BOUNDS, missing="observed").fit(holes())
    assert np.allclose(found.mean_, np.nanmean(holes(), axis=0))
    assert np.allclose(found.observed_, np.sum(~np.isnan(holes()), axis=0))
    assert np.all(found.observed_noise_std_ == 0)
    assert not hasattr(Mean(**BOUNDS, missing=0.0).fit(holes()), "observed_")
    clipped = Mean(**FREE, missing="observed").fit(holes())  # the clip is read off the data, which a note says
    assert np.all(np.isfinite(clipped.mean_))


def test_pca_estimator_transform_of_nan_is_refused() -> None:
    fitted = PCA(**BOUNDS, missing=0.0).fit(holes())
    with pytest.raises(BadData, match="NaN"):
        fitted.transform(holes())


def test_histogram_estimator_missing_words_and_numbers_follow_rule() -> None:
    words = {"a": ["f", "m", None, "f"], "b": ["m", "", "f"]}
    with pytest.raises(BadData, match="categories"):
        Histogram(categories=["f", "m"], **FREE).fit(words)
    assert Histogram(categories=["f", "m"], missing="observed", **FREE).fit(words).counts_.tolist() == [3, 2]
    assert Histogram(categories=["f", "m"], missing="m", **FREE).fit(words).counts_.tolist() == [3, 4]
    numbers = {"a": [0.1, NAN, 0.9], "b": [0.2, NAN]}
    with pytest.raises(BadData, match="NaN"):
        Histogram(edges=[0, 0.5, 1], **FREE).fit(numbers)
    assert Histogram(edges=[0, 0.5, 1], missing="observed", **FREE).fit(numbers).counts_.tolist() == [2, 1]
    assert Histogram(edges=[0, 0.5, 1], missing=0.7, **FREE).fit(numbers).counts_.tolist() == [2, 3]
    codes = [Units.from_rows([[1.0], [NAN]]), Units.from_rows([[2.0]])]
    assert Histogram(categories=[1, 2], missing=2, **FREE).fit(codes).counts_.tolist() == [1, 2]


def test_linear_regression_of_complete_cases_is_fit_to_complete_rows() -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (4000, 2))
    X[:, 0] = 0.7 * X[:, 1] + 0.3 * X[:, 0]
    y = X @ [1.0, -2.0] + rng.normal(0, 0.1, 4000)
    # The features are correlated, so that a constant in place of missing values moves the other coefficient.
    X[(rng.random(4000) < 0.3) & (X[:, 1] > 0), 0] = NAN
    whole = ~np.isnan(X[:, 0])
    settings: dict[str, Any] = FREE | {"lower": -1, "upper": 1, "response": (-4, 4)}
    found = LinearRegression(**settings, missing="complete-cases").fit(X, y)
    complete = LinearRegression(**settings).fit(X[whole], y[whole])
    imputed = LinearRegression(**settings, missing=0.0).fit(X, y)
    assert found.coef_ == pytest.approx(complete.coef_, abs=0.003)
    assert abs(imputed.coef_[1] + 2) > abs(found.coef_[1] + 2) + 0.05
    weights = np.where(rng.random(4000) < 0.5, 1.0, 0.25)
    by_column = LinearRegression(**settings, missing={"x0": "complete-cases"}).fit(X, y, weights=weights)
    kept = LinearRegression(**settings).fit(X[whole], y[whole], weights=weights[whole])
    assert by_column.coef_ == pytest.approx(kept.coef_, abs=0.003)


def test_estimator_nan_message_names_missing_and_no_other_estimator() -> None:
    with pytest.raises(BadData, match="`missing`") as refused:
        Mean(**BOUNDS).fit(holes())
    assert "Gradient" not in str(refused.value)
    # Both columns that have missing values, by name, and not the third one.
    assert "'x0' and column 'x1'" in str(refused.value)
    assert "x2" not in str(refused.value)


@pytest.mark.parametrize(
    ("estimator", "rule", "no_rule"),
    [
        (LinearRegression(response=(-5, 5), **BOUNDS), "complete-cases", "observed"),
        (Mean(**BOUNDS), "observed", "complete-cases"),
        (Covariance(**BOUNDS), "own-rows", "observed"),
    ],
)
def test_estimator_nan_message_lists_the_rules_of_this_estimator(estimator: Any, rule: str, no_rule: str) -> None:
    arguments = [holes()[:, 0] * 0] if isinstance(estimator, LinearRegression) else []
    with pytest.raises(BadData) as refused:
        estimator.fit(holes(), *arguments)
    assert f'"{rule}"' in str(refused.value)
    assert f'"{no_rule}"' not in str(refused.value)


def test_estimator_without_rules_says_so() -> None:
    with pytest.raises(BadData, match="no rules"):
        FeatureClassifier(classes=[0, 1], **FREE).fit(holes(), (holes()[:, 2] > -1).astype(int))


def test_regression_unknown_rule_lists_complete_cases() -> None:
    model = LinearRegression(response=(-5, 5), **BOUNDS, missing="multiple-imputation")
    with pytest.raises(BadParameter, match=r"complete-cases.*synthetic-data"):
        model.fit(holes(), np.zeros(300))


def test_estimator_decimal_commas_are_named() -> None:
    with pytest.raises(BadData, match="decimal comma") as refused:
        Mean(**BOUNDS).fit(np.array([["1,5"], ["2,5"]]))
    assert "1,5" not in str(refused.value)
    with pytest.raises(BadData, match="decimal comma"):
        Describe(ranges={"x0": (0, 5)}, **FREE).fit([np.array([["1,5"], ["2"]], dtype=object)] * 2)
    with pytest.raises(BadData, match="not numbers") as plain:
        Mean(**BOUNDS).fit(np.array([["many"], ["2.5"]]))
    assert "comma" not in str(plain.value)
