"""Mixtures as published: sensitivities attacked, exact without noise, and what their calibration is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from zerosum.algorithms.metrics import component_error
from zerosum.compute.symmetric import powers
from zerosum.errors import BadParameter
from zerosum.kernel import accountant, coordinates
from zerosum.papers.methods import tensor as published

Floats = NDArray[np.float64]


def third(rows: Floats, variance: float) -> Floats:
    """t^3 - v c(t) of every row, in isometric coordinates."""
    D = rows.shape[1]
    eye = np.eye(D)
    parts = [np.einsum("i,jk->ijk", t, eye) for t in rows]
    taken = [coordinates.pack(p + np.moveaxis(p, 0, 1) + np.moveaxis(p, 0, 2)) for p in parts]
    return np.asarray(powers(rows, 3) - variance * np.array(taken))


@pytest.mark.parametrize(("columns", "variance"), [(1, 0.05), (1, 0.6), (2, 0.3), (3, 0.05), (4, 0.5), (10, 0.05)])
def test_third_moment_diameter_is_attained_within_two_percent(columns: int, variance: float) -> None:
    rng = np.random.default_rng(0)

    def apart(pair: Floats) -> float:
        rows = pair.reshape(2, columns)
        rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
        one, other = third(rows, variance)
        return -float(np.linalg.norm(one - other))

    starts = sorted(rng.normal(size=(300, 2 * columns)) * rng.uniform(0, 2, (300, 1)), key=apart)[:4]
    found = max(-minimize(apart, start, method="Powell").fun for start in starts)
    bound = published.third_moment_diameter(columns, variance)
    assert 0.98 * bound <= found <= bound * (1 + 1e-9)


def test_third_moment_diameter_at_published_setting_equals_reference() -> None:
    assert published.third_moment_diameter(50, 0.05) == pytest.approx(2.0881, abs=1e-4)
    row = np.random.default_rng(0).normal(size=(1, 50))
    row /= np.linalg.norm(row)
    one, other = third(np.vstack([row, -row]), 0.05)
    assert np.linalg.norm(one - other) == pytest.approx(published.third_moment_diameter(50, 0.05), rel=1e-9)
    assert published.published_third(50, 0.05) == pytest.approx(17)


def some_sites(sites: int = 5, records: int = 4000) -> tuple[Floats, list[Floats], float]:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(3, 8))
    means /= 2 * np.linalg.norm(means, axis=1, keepdims=True)
    rows = means[rng.choice(3, sites * records)] + 0.1 * rng.normal(size=(sites * records, 8))
    largest = float(np.max(np.linalg.norm(rows, axis=1)))
    return means / largest, list(np.array_split(rows / largest, sites)), 0.01 / largest**2


def test_projected_third_moment_equals_projection_of_full_tensor() -> None:
    _means, sites, variance = some_sites(records=20)
    W = np.random.default_rng(2).normal(size=(8, 3))
    full = coordinates.unpack(np.mean(third(sites[0], variance), axis=0), 8, 3)
    seen = np.einsum("ijk,ia,jb,kc->abc", full, W, W, W)
    assert np.allclose(published.projected_third(sites[0], variance, W), seen)
    index = published._layout(8)[0]
    assert np.allclose(published.projected(full[tuple(index)], W), seen)


@pytest.mark.parametrize("method", published.METHODS)
def test_tensor_methods_without_noise_find_means(method: str) -> None:
    means, sites, variance = some_sites()
    found = published.private(method, sites, 3, variance, (0.0, 0.0), seed=0)
    assert component_error(found, means) < 0.05
    if method not in published.ALONE:
        assert np.allclose(found, published.non_private(sites, 3, variance), atol=1e-9)


@pytest.mark.parametrize("method", published.METHODS)
def test_tensor_methods_exact_calibration_costs_requested_epsilon(method: str) -> None:
    S, C, D, v, delta = 5, 1, 8, 0.01, 0.01
    tau2, tau3 = published.noises_for_exact(method, 1.0, delta, S, C, 1, D, v)
    first = published.mu_squared(method, published.SECOND, tau2, S, C, delta)
    if method == "avn":
        total = accountant.epsilon(math.sqrt(first), delta) + published.third_moment_diameter(D, v) / tau3
    else:
        second = published.mu_squared(method, published.third_moment_diameter(D, v), tau3, S, C, delta)
        assert first == pytest.approx(second, rel=1e-6)
        total = accountant.epsilon(math.sqrt(first + second), delta)
    assert total == pytest.approx(1.0, rel=1e-6)


def test_tensor_methods_published_calibration_of_conv_costs_less_than_cape() -> None:
    """Too little noise on matrices, far too much on tensors; cape counts less than it costs."""
    plain = published.exact_epsilon("conv", 1.0, 0.01, 5, 1, 50, 0.05)
    cape = published.exact_epsilon("cape-broadcast", 1.0, 0.01, 5, 1, 50, 0.05)
    assert plain < cape
    louder, quieter = (
        component_error(published.private("conv", some_sites()[1], 3, some_sites()[2], (t, t), 0), some_sites()[0])
        for t in (0.3, 1e-5)
    )
    assert quieter < louder


def test_tensor_methods_remaining_noise_has_stated_std() -> None:
    """In the average of S sites: tau/S under cape, tau/sqrt(S) under conv, tau alone; AVN's norm is gamma."""
    S, rng = 4, np.random.default_rng(0)
    for method, left in (("cape-broadcast", 1 / S), ("cape-helper", 1 / S), ("conv", 1 / math.sqrt(S)), ("agn", 1.0)):
        matrix, entries = published.drawn_noise(method, S, 40, (2.0, 3.0), rng)
        assert np.allclose(matrix, matrix.T)
        assert np.std(matrix[np.triu_indices(40)]) == pytest.approx(2 * left, rel=0.1)
        assert np.std(entries) == pytest.approx(3 * left, rel=0.1)
    norms = [float(np.linalg.norm(published.drawn_noise("avn", S, 3, (1.0, 0.5), rng)[1])) for _ in range(3000)]
    assert np.mean(norms) == pytest.approx(0.5 * 10, rel=0.05)
    assert np.std(norms) == pytest.approx(0.5 * math.sqrt(10), rel=0.1)


def test_tensor_methods_bad_parameter_is_refused() -> None:
    with pytest.raises(BadParameter, match="'magic'"):
        published.published_noises("magic", 1.0, 0.01, 10, 3, 0.1)
    with pytest.raises(BadParameter, match="record"):
        published.published_noises("conv", 1.0, 0.01, 0, 3, 0.1)
    with pytest.raises(BadParameter, match="4"):
        published.whitening(np.eye(3), 4)
    assert published.random_vectors(4, 2).shape == (2, 4)
