"""Random intercepts by site: the same as generalised least squares on the rows, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.report.mixed import random_intercept

Floats = NDArray[np.float64]
SITES, NOISE = 6, 2.0


def rows(between: float, seed: int, size: int = 30) -> tuple[Floats, Floats, Floats]:
    """A column, the site of each row, and a response with slope 0.5."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(SITES), size).astype(float)
    x = rng.normal(site, 1.5)  # the column differs between sites, so that the model matters for its slope
    return x, site, 1.0 + 0.5 * x + between * rng.normal(size=SITES)[site.astype(int)] + NOISE * rng.normal(size=len(x))


def fixed_constants(x: Floats, site: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Least squares with a constant for each site, with the known variance of the errors."""
    design = np.column_stack([x, site[:, None] == np.arange(SITES)]).astype(float)
    covariance = NOISE**2 * np.linalg.inv(design.T @ design)
    return covariance @ design.T @ y / NOISE**2, covariance


@pytest.mark.parametrize("between", [0.3, 1.0, 4.0])
def test_random_intercept_equals_generalised_least_squares_on_the_rows(between: float) -> None:
    x, site, y = rows(between, 1)
    found = random_intercept(*fixed_constants(x, site, y), SITES)
    design = np.column_stack([x, np.ones_like(x)])
    law = NOISE**2 * np.eye(len(x)) + found.between**2 * (site[:, None] == site)
    expected = np.linalg.inv(design.T @ np.linalg.solve(law, design))
    estimate = fixed_constants(x, site, y)[0]
    assert found.map @ estimate == pytest.approx(expected @ design.T @ np.linalg.solve(law, y), rel=1e-6)
    assert found.covariance == pytest.approx(expected, rel=1e-6)
    # The constants are the conditional means given all rows.
    rest = y - design @ (found.map @ estimate)
    members = (site == np.arange(SITES)[:, None]).astype(float)
    constants = (found.map @ estimate)[1] + found.between**2 * members @ np.linalg.solve(law, rest)
    assert found.constants == pytest.approx(constants, rel=1e-6)


def test_random_intercept_variance_is_the_maximum_of_the_restricted_likelihood_of_the_rows() -> None:
    x, site, y = rows(1.5, 2)
    found = random_intercept(*fixed_constants(x, site, y), SITES)
    design = np.column_stack([x, np.ones_like(x)])

    def restricted(between: float) -> float:
        law = NOISE**2 * np.eye(len(x)) + between**2 * (site[:, None] == site)
        inner = design.T @ np.linalg.solve(law, design)
        rest = y - design @ np.linalg.solve(inner, design.T @ np.linalg.solve(law, y))
        return float(np.linalg.slogdet(law)[1] + np.linalg.slogdet(inner)[1] + rest @ np.linalg.solve(law, rest))

    assert all(restricted(found.between) <= restricted(found.between * factor) for factor in (0.9, 0.99, 1.01, 1.1))


def test_random_intercept_interval_and_slope_cover() -> None:
    inside = {"between": 0, "slope": 0}
    for seed in range(200):
        x, site, y = rows(1.0, seed + 10)
        estimate, covariance = fixed_constants(x, site, y)
        found = random_intercept(estimate, covariance, SITES)
        inside["between"] += found.interval[0] <= 1.0 <= found.interval[1]
        error = abs(float((found.map @ estimate)[0]) - 0.5)
        inside["slope"] += error <= 1.96 * np.sqrt(found.covariance[0, 0])
    # Binomial(200, 0.95) is below 180 with a probability of 0.0008. The interval of t is exact for a known covariance;
    # that of the slope takes t as known.
    assert inside["between"] >= 180
    assert inside["slope"] >= 176


def test_random_intercept_of_equal_sites_is_one_constant() -> None:
    x, site, y = rows(0.0, 3)
    estimate, covariance = fixed_constants(x, site, y)
    # Constants without any difference.
    estimate[1:] = 1.0
    found = random_intercept(estimate, covariance, SITES)
    assert (found.between, found.interval[0]) == (0.0, 0.0)
    assert np.ptp(found.constants) < 1e-9
