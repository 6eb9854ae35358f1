"""GaussianMixture in scikit-learn's manner: its checks, and what it finds, predicts and draws."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture as Plain
from sklearn.utils.estimator_checks import parametrize_with_checks

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators import GaussianMixture

Floats = NDArray[np.float64]
CENTERS = np.array([[-3.0, 0.0, 1.0], [3.0, 2.0, 0.0], [0.0, -3.0, -1.0]])


def rows(count: int = 3000, seed: int = 0) -> tuple[Floats, NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    which = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    return CENTERS[which] + 0.5 * rng.normal(size=(count, 3)), which


def fitted(**more: Any) -> Any:
    given: dict[str, Any] = {"clip": 10.0, "epsilon": 5.0, "random_state": 0, "data": "synthetic"} | more
    return GaussianMixture(3, **given).fit(list(np.array_split(rows()[0], 3)))


@parametrize_with_checks([GaussianMixture(2, scheme="pooled", epsilon=20.0, random_state=0, data="synthetic")])  # type: ignore[untyped-decorator]  # theirs
def test_gaussian_mixture_passes_sklearn_checks(
    estimator: BaseEstimator, check: Callable[[BaseEstimator], None]
) -> None:
    check(estimator)


def test_gaussian_mixture_without_noise_equals_sklearn() -> None:
    table, _which = rows()
    found = fitted(scheme="non-private", rounds=12)
    plain = Plain(3, covariance_type="spherical", means_init=CENTERS).fit(table)
    order = np.argsort(-found.weights_)
    assert np.allclose(found.means_[order], plain.means_, atol=0.02)
    assert np.allclose(found.weights_[order], plain.weights_, atol=0.005)
    assert np.allclose(found.covariances_[order], plain.covariances_, rtol=0.05)
    assert found.score(table) == pytest.approx(plain.score(table), abs=0.005)


def test_gaussian_mixture_predicts_component_of_rows() -> None:
    found, (table, which) = fitted(), rows(500, seed=1)
    assert np.all(found.carried_)
    chances = found.predict_proba(table)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.array_equal(found.predict(table), chances.argmax(axis=1))
    nearest = np.argmin(np.linalg.norm(found.means_[:, None] - CENTERS[None], axis=2), axis=1)
    assert np.mean(nearest[found.predict(table)] == which) > 0.99
    assert found.score(table) == pytest.approx(float(np.mean(found.score_samples(table))))
    drawn, by = found.sample(4000, seed=0)
    assert np.allclose(drawn.mean(axis=0), found.weights_ @ found.means_, atol=0.15)
    assert np.allclose(np.bincount(by) / 4000, found.weights_, atol=0.03)


def test_gaussian_mixture_scaled_by_ranges_returns_data_units() -> None:
    table, which = rows()
    wide = table * [1.0, 100.0, 10.0]
    low, high = np.array([-8.0, -800.0, -80.0]), np.array([8.0, 800.0, 80.0])
    found = GaussianMixture(3, lower=low, upper=high, scaling="ranges", epsilon=5.0, random_state=0, data="synthetic")
    found.fit(list(np.array_split(wide, 3)))
    truth = CENTERS[np.argmin(np.linalg.norm(CENTERS[:, None] - (found.means_ / [1, 100, 10])[None], axis=2), axis=0)]
    assert np.allclose(found.means_ / [1, 100, 10], truth, atol=0.2)
    assert np.mean(found.predict(wide) == found.predict(wide[which.argsort()])[which.argsort().argsort()]) == 1
    assert found.score(wide) == pytest.approx(fitted().score(table) - np.log(1000), abs=0.05)


def test_gaussian_mixture_components_beyond_budget_are_noted() -> None:
    found = fitted(epsilon=0.01)
    assert not np.all(found.carried_)
    assert any(f"{np.sum(~found.carried_)} of 3" in note for note in found.notes_)


def test_gaussian_mixture_person_with_several_rows_counts_once() -> None:
    table, _which = rows(900)
    people = [Units.from_list([np.repeat(row[None, :], 1 + i % 3, axis=0) for i, row in enumerate(part)])
              for part in np.array_split(table, 3)]  # fmt: skip
    once = GaussianMixture(3, clip=10.0, scheme="non-private", random_state=0, data="synthetic").fit(
        list(np.array_split(table, 3))
    )
    often = GaussianMixture(3, clip=10.0, scheme="non-private", random_state=0, data="synthetic").fit(people)
    assert np.allclose(once.means_, often.means_, atol=1e-6)


def test_gaussian_mixture_bad_parameter_or_order_is_refused() -> None:
    with pytest.raises(NotFittedError):
        GaussianMixture().sample()
    with pytest.raises(NotFittedError):
        GaussianMixture().predict(rows()[0])
    with pytest.raises(BadParameter, match="n_components"):
        GaussianMixture(0, clip=1.0, random_state=0, data="synthetic").fit([rows()[0]] * 2)
    with pytest.raises(BadParameter, match="columns"):
        GaussianMixture(4, clip=1.0, start="tensor", random_state=0, data="synthetic").fit([rows()[0]] * 2)
    with pytest.raises(BadParameter, match="n_samples"):
        fitted().sample(0)
    with pytest.raises(BadData, match="array"):
        fitted().predict([rows()[0], rows()[0]])
