"""The posterior from a Hessian that is shrunk towards its diagonal: exact without noise, and covering with it."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.algorithms.regression.inference import GradientRelease
from zerosum.algorithms.regression.shrinkage import average, denoised, moved, shrunk_posterior
from zerosum.arrays import Floats

COLUMNS = 40


def hessian_of(rng: np.random.Generator) -> Floats:
    """The second moment of many columns of different size with a common factor."""
    rows = rng.normal(size=(400, COLUMNS)) + 0.6 * rng.normal(size=(400, 1))
    rows = rows * rng.uniform(0.3, 1.0, COLUMNS)
    return np.asarray(0.15 * rows.T @ rows / 400)


def noisy(rng: np.random.Generator, hessian: Floats, std: float) -> Floats:
    """A release in isometric coordinates: std on the diagonal, std/sqrt(2) off it."""
    noise = std * rng.normal(size=hessian.shape)
    return np.asarray(hessian + (noise + noise.T) / 2 + np.diag(std * (1 - 2**-0.5) * rng.normal(size=len(hessian))))


def test_average_of_linear_gradients_is_exact_whatever_the_hessians_noise() -> None:
    rng = np.random.default_rng(0)
    hessian, best = hessian_of(rng), rng.normal(size=COLUMNS)
    points = [
        GradientRelease(at, hessian @ (best - at), noisy(rng, hessian, 5.0), 0.1, 5.0)
        for at in best + rng.normal(size=(6, COLUMNS))
    ]
    found = average(points)
    assert np.allclose(found.gradient, hessian @ (best - found.at))
    assert found.gradient_noise == pytest.approx(0.1 / np.sqrt(6))
    assert found.hessian_noise == pytest.approx(5.0 / np.sqrt(6))


def test_average_with_remainder_leaves_far_points_out() -> None:
    far, near = (GradientRelease(np.full(2, at), np.ones(2), np.eye(2), 0.1, 0.1) for at in (9.0, 0.0))
    assert np.allclose(average([far, near, near], bend=1.0).at, 0.0, atol=1e-3)


def test_average_near_last_point_counts_hessians_of_far_points_less() -> None:
    # the mean of h is 4 far away, and 1 near the maximiser
    far, near = (
        GradientRelease(np.full(2, at), np.zeros(2), size * np.eye(2), 0.01, 0.01)
        for at, size in ((2.0, 4.0), (0.0, 1.0))
    )
    alike, weighted = (average([far, near, near], 0.2, *more) for more in ((), (np.ones(2), 1.0)))
    assert alike.hessian[0, 0] == pytest.approx(2.0)
    assert weighted.hessian[0, 0] == pytest.approx(1.0, abs=0.01)
    # the error that remains is a doubt, and no noise
    assert weighted.hessian_noise < 0.01
    assert alike.hessian_doubt == 0


def test_average_with_reach_doubts_only_a_column_that_moved() -> None:
    points = [GradientRelease(np.array([at, 0.0]), np.zeros(2), np.eye(2), 5.0, 0.1) for at in (0.3, -0.3)]
    doubts = np.diag(np.asarray(average(points, 1e-9, np.array([10.0, 10.0])).doubt))
    # reach H_jj d^2/2 = 0.45 in each point; noise makes their weights nearly equal
    assert doubts[0] == pytest.approx(0.45**2 / 2, rel=0.1)
    assert doubts[1] < 1e-9


def test_moved_point_has_wider_posterior_with_same_mean() -> None:
    point = GradientRelease(np.zeros(2), np.full(2, 0.5), np.eye(2), 0.01, 0.01)
    way = moved(point, np.ones(2), 0.25)
    found, wider = (shrunk_posterior(each, np.full(2, 3.0), cautious=True).covariance[0, 0] for each in (point, way))
    # the error of the gradient is 0.25 d'd = 0.5, and H is 1
    assert np.sqrt(wider) == pytest.approx(0.5, rel=0.05)
    assert np.sqrt(found) < 0.05
    assert np.array_equal(shrunk_posterior(point, np.ones(2)).mean, shrunk_posterior(way, np.ones(2)).mean)


def test_denoised_entries_of_noise_alone_are_shrunk() -> None:
    rng = np.random.default_rng(1)
    mean, variance = denoised(noisy(rng, 0.5 * np.eye(COLUMNS), 0.2), 0.2)
    off = ~np.eye(COLUMNS, dtype=bool)
    assert np.sqrt(np.mean(mean[off] ** 2)) < 0.2 * 0.2
    assert np.all(variance[off] < 0.2**2 / 2)
    assert np.all(np.linalg.eigvalsh(mean) > 0)


def test_shrunk_posterior_of_many_columns_covers_where_noise_exceeds_eigenvalues() -> None:
    """1600 coordinates; with 8 standard errors of independent ones the test cannot fail by chance."""
    inside, widths = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        hessian, best = hessian_of(rng), 0.3 * rng.normal(size=COLUMNS)
        std, error = 0.01, 0.005
        assert std * np.sqrt(COLUMNS / 2) > np.quantile(np.linalg.eigvalsh(hessian), 0.2)  # the smallest are below it
        at = best + 0.1 * rng.normal(size=COLUMNS)
        gradient = hessian @ (best - at) + error * rng.normal(size=COLUMNS)
        point = GradientRelease(at, gradient, noisy(rng, hessian, std), error, std)
        found = shrunk_posterior(point, np.full(COLUMNS, 2.0), cautious=True)
        sizes = np.sqrt(np.diag(found.covariance))
        inside.append(np.abs(found.mean - best) <= 1.645 * sizes)
        widths.append(sizes)
    assert np.mean(inside) > 0.84
    assert np.median(widths) < 0.6 * 2.0  # and the release has narrowed the prior


def test_shrunk_posterior_direction_without_curvature_keeps_its_prior() -> None:
    point = GradientRelease(np.zeros(2), np.zeros(2), np.diag([1.0, 0.0]), 0.01, 0.001)
    found = shrunk_posterior(point, np.array([2.0, 3.0]), cautious=True)
    assert np.sqrt(found.covariance[0, 0]) < 0.02
    assert np.sqrt(found.covariance[1, 1]) > 1.5


def test_denoised_hessian_of_zeros_without_noise_is_finite() -> None:
    assert all(np.all(np.isfinite(each)) for each in denoised(np.zeros((2, 2)), 0.0))
