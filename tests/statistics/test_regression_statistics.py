"""Statistics of regression: what they add up, and the two lemmas and two constants their bounds rest on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.backends.exact import exponential
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.polynomial import PolynomialCoefficients, distance_bound
from zerosum.statistics.regression import (
    CURVATURE,
    SQUARE,
    ColumnMoments,
    CountStep,
    NewtonStep,
    ResidualGradient,
    ResidualMoment,
)

Floats = NDArray[np.float64]

LOWER, UPPER = np.array([-2.0, 0.0, -1.0]), np.array([2.0, 4.0, 3.0])
CENTER, SCALE, W = np.array([0.1, -0.2]), np.array([0.5, 2.0]), np.array([0.3, -0.4, 0.2])
BOUNDS: dict[str, Any] = {
    "columns": 3,
    "lower": LOWER,
    "upper": UPPER,
    "center": CENTER,
    "scale": SCALE,
    "clip": 1.8,
    "intercept": 0.7,
}


def people() -> tuple[Units, list[Floats]]:
    rng = np.random.default_rng(0)
    rows = [rng.uniform(LOWER, UPPER, (count, 3)) for count in (1, 3, 2, 1, 5)]
    return Units.from_list(rows), rows


def entered(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Features in the frame, clipped; what they were multiplied by; the response in -1 to 1."""
    normal = (rows - (LOWER + UPPER) / 2) / ((UPPER - LOWER) / 2)
    u = np.column_stack([(normal[:, :2] - CENTER) / SCALE, np.full(len(rows), 0.7)])
    shrunk = np.minimum(1, 1.8 / np.linalg.norm(u, axis=1))
    return u * shrunk[:, None], shrunk, normal[:, 2]


def test_residual_gradient_and_moment_are_means_of_clipped_rows() -> None:
    units, tables = people()
    gradient, moment, squares = np.zeros(3), np.zeros((3, 3)), 0.0
    some_clipped = False
    for rows in tables:
        u, shrunk, y = entered(rows)
        r = np.clip(shrunk * y - u @ W, -0.4, 0.4)
        some_clipped |= bool(np.any(shrunk < 1)) and bool(np.any(np.abs(r) == 0.4))
        gradient += (u * r[:, None]).mean(axis=0)
        moment += u.T @ u / len(rows)
        squares += float(np.mean(r**2))
    assert some_clipped
    one = ResidualGradient(**BOUNDS, coefficients=W, bound=0.4, count=True)
    total = one.total(units)
    assert np.allclose(one.split(total)[0], gradient)
    assert one.split(total)[1] == pytest.approx(squares)
    assert total[-1] == len(tables)
    two = ResidualMoment(**BOUNDS, coefficients=W, bound=0.4, response_weight=0.6)
    second, again, size = two.split(two.total(units))
    assert np.allclose(second, moment)
    assert np.allclose(again, gradient)
    assert size == pytest.approx(squares)


@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_newton_step_equals_gradient_and_hessian_of_likelihood(family: str) -> None:
    units, tables = people()
    more = {} if family == "logistic" else {"bound": 2.0, "most": 6.0, "rate_bound": 1.5, "curvature": 0.7}
    stat = NewtonStep(**BOUNDS, coefficients=W, family=family, **more)
    gradient, hessian = np.zeros(3), np.zeros((3, 3))
    for rows in tables:
        u, _shrunk, y = entered(rows)
        if family == "logistic":
            p = 1 / (1 + np.exp(-u @ W))
            r, h = (y > 0) - p, p * (1 - p)
        else:
            rate = np.exp(u @ W)
            r, h = np.clip(3 * (y + 1) - rate, -2, 2), np.minimum(rate, 1.5)
        gradient += (u * r[:, None]).mean(axis=0)
        hessian += (u * h[:, None]).T @ u / len(rows)
    found = stat.split(stat.total(units))
    assert np.allclose(found[0], gradient)
    assert np.allclose(found[1], hessian)


def test_count_step_weights_long_rows_and_predicts_with_whole_ones() -> None:
    """Gradient and Hessian of the log-likelihood with weight s^2, s = c/norm for a longer row, and the mean of r^2."""
    units, tables = people()
    whole = []
    for rows in tables:
        clipped, shrunk, y = entered(rows)
        whole.append((clipped / shrunk[:, None], y))
    short = 0.6 * max(float(np.max(np.linalg.norm(u, axis=1))) for u, _y in whole)
    stat = CountStep(**BOUNDS | {"clip": short}, coefficients=W, bound=2.0, most=6.0, rate_bound=1.5, curvature=0.7)
    gradient, hessian, square, weighted = np.zeros(3), np.zeros((3, 3)), 0.0, 0
    replaced = 0
    for u, y in whole:
        weight = np.minimum(1.0, short / np.linalg.norm(u, axis=1)) ** 2
        weighted += int(np.sum(weight < 1))
        rate = np.exp(u @ W)
        r = np.clip(3 * (y + 1) - rate, -2, 2)
        far = np.abs(r) == 2  # the count stands for the rate where the residual is clipped
        replaced += int(np.sum(far))
        h = np.minimum(np.where(far, 3 * (y + 1), rate), 1.5)
        gradient += (u * (weight * r)[:, None]).mean(axis=0)
        hessian += (u * (weight * h)[:, None]).T @ u / len(u)
        square += float(np.mean(r**2))
    total = stat.total(units)
    found = stat.split(total)
    assert weighted > 0
    assert replaced > 0
    assert np.allclose(found[0], gradient)
    assert np.allclose(found[1], hessian)
    assert stat.mean_square(total) == pytest.approx(square)


def test_newton_step_weighed_long_rows_equal_weighted_likelihood() -> None:
    """Gradient and Hessian of the log-likelihood with weight s^2, s = c/norm; the whole row predicts."""
    units, tables = people()
    short = 0.5
    stat = NewtonStep(**BOUNDS | {"clip": short}, coefficients=W, weighed=True)
    gradient, hessian = np.zeros(3), np.zeros((3, 3))
    for rows in tables:
        clipped, shrunk, y = entered(rows)
        u = clipped / shrunk[:, None]
        weight = np.minimum(1.0, short / np.linalg.norm(u, axis=1)) ** 2
        assert np.all(weight < 1)
        p = 1 / (1 + np.exp(-u @ W))
        gradient += (u * (weight * ((y > 0) - p))[:, None]).mean(axis=0)
        hessian += (u * (weight * p * (1 - p))[:, None]).T @ u / len(u)
    total = stat.total(units)
    found = stat.split(total)
    assert np.allclose(found[0], gradient)
    assert np.allclose(found[1], hessian)
    # one contribution stays within its bound however long the row is
    assert np.linalg.norm(total) <= len(tables) * stat.sensitivity(Adjacency.ADD_REMOVE)


def test_residual_gradient_offset_weight_and_draw_equal_formula() -> None:
    """Beside the features stand an offset in 0 to 4, a weight in 0 to 2 and a draw in 0 to 1."""
    rng = np.random.default_rng(1)
    tables = [rng.uniform(LOWER, UPPER, (count, 3)) for count in (1, 3, 2, 1, 5)]
    roles = [rng.uniform(0, [4, 2, 1], (len(rows), 3)) for rows in tables]
    wide = [np.column_stack([rows[:, :2], role, rows[:, 2]]) for rows, role in zip(tables, roles, strict=True)]
    more: dict[str, Any] = {
        "columns": 6,
        "lower": [*LOWER[:2], 0, 0, 0, LOWER[2]],
        "upper": [*UPPER[:2], 4, 2, 1, UPPER[2]],
        "offset": (-1.0, 1.0),
        "weighted": True,
        "kept": (0.4, 2.0),
        "coefficients": W,
    }
    steps, moments = np.zeros(3), np.zeros((3, 3))
    for rows, role in zip(tables, roles, strict=True):
        u, shrunk, y = entered(rows)
        offset, weight = role[:, 0] / 2 - 1, role[:, 1] / 2 * (role[:, 2] >= 0.4) / len(rows)
        r = (y > 0) - 1 / (1 + np.exp(-u @ W - offset))
        steps += (u * (weight * r)[:, None]).sum(axis=0)
        moments += (u * weight[:, None]).T @ u
    logistic = NewtonStep(**BOUNDS | more)
    assert np.allclose(logistic.split(logistic.total(Units.from_list(wide)))[0], steps)
    linear = ResidualMoment(**BOUNDS | more, bound=9.0)
    second, gradient, _size = linear.split(linear.total(Units.from_list(wide)))
    assert np.allclose(second, moments)
    expected = np.zeros(3)
    for rows, role in zip(tables, roles, strict=True):
        u, shrunk, y = entered(rows)
        weight = role[:, 1] / 2 * (role[:, 2] >= 0.4) / len(rows)
        expected += (u * (weight * (shrunk * (y - role[:, 0] / 2 + 1) - u @ W))[:, None]).sum(axis=0)
    assert np.allclose(gradient, expected)


def test_residual_gradient_weight_out_of_range_is_clamped() -> None:
    params: dict[str, Any] = {"columns": 3, "clip": 1, "coefficients": [0.0], "intercept": 0, "weighted": True}
    stat = ResidualGradient(**params)
    whole, heavy, none = (stat.total(Units.from_rows([[0.5, weight, 1.0]])) for weight in (1.0, 1e9, -1e9))
    assert np.linalg.norm(whole) > 0
    assert np.array_equal(heavy, whole)
    assert not np.any(none)


def test_polynomial_with_weights_is_more_sensitive() -> None:
    """Of a loss that is mostly a constant two rows are close to each other and far from none."""
    params: dict[str, Any] = {"columns": 2, "clip": 1, "table": [[1.0], [0.1]], "weights": [1, 1], "intercept": 0}
    whole = PolynomialCoefficients(**params)
    weighed = PolynomialCoefficients(**params | {"columns": 3}, weighted=True)
    assert whole.sensitivity(Adjacency.REPLACE_ONE) < 0.21
    assert weighed.sensitivity(Adjacency.REPLACE_ONE) == weighed.sensitivity(Adjacency.ADD_REMOVE) > 1
    with pytest.raises(BadParameter, match="offset"):
        PolynomialCoefficients(**params | {"columns": 3}, offset=(0.0, 1.0))


def test_polynomial_coefficients_evaluate_to_loss() -> None:
    units, tables = people()
    table = np.array([[0.5, 0.0, 1.0], [0.0, -2.0, 0.3], [1.0, 0.2, 0.0], [0.1, 0.0, 0.4]])
    stat = PolynomialCoefficients(**BOUNDS, table=table, weights=np.array([1.0, 0.5, 2.0, 3.0]))
    arrays = stat.split(stat.total(units))
    value = float(arrays[0][0])
    for j in (1, 2, 3):
        full = coordinates.unpack(arrays[j], 3, j)
        for _ in range(j):
            full = full @ W
        value += float(full)
    loss = 0.0
    for rows in tables:
        u, _shrunk, y = entered(rows)
        eta = u @ W
        loss += float(np.mean([sum(table[j, k] * eta**j * y**k for j in range(4) for k in range(3))]))
    assert value == pytest.approx(loss)


def test_column_moments_are_sums_of_values_and_squares() -> None:
    units, tables = people()
    normal = [(rows - (LOWER + UPPER) / 2) / ((UPPER - LOWER) / 2) for rows in tables]
    stat = ColumnMoments(columns=3, lower=LOWER, upper=UPPER)
    sums, squares = stat.split(stat.total(units))
    assert np.allclose(sums, sum(rows.mean(axis=0) for rows in normal))
    assert np.allclose(squares, sum((rows**2).mean(axis=0) for rows in normal))


def test_square_constant_is_largest_without_extra_sensitivity() -> None:
    t = np.linspace(-1, 1, 2001)
    one, other = np.meshgrid(t, t)

    def width(q: float) -> float:
        return float(np.sqrt(np.max((one - other) ** 2 + q**2 * (one**2 - other**2) ** 2)))

    assert width(SQUARE) <= 2 + 1e-12
    assert width(1.01 * SQUARE) > 2.001
    assert math.isclose(SQUARE**2, (11 + 5 * math.sqrt(5)) / 8)


def test_curvature_constant_is_largest_without_extra_sensitivity() -> None:
    t = np.linspace(0, 1, 201)
    one, other, k = np.meshgrid(t, t, np.linspace(0, 1, 101))

    def width(b: float) -> float:
        B, C = 4 * b * one * (1 - one), 4 * b * other * (1 - other)
        return float(np.sqrt(np.max(one**2 + other**2 + 2 * one * other * k + B**2 + C**2 - 2 * B * C * k**2)))

    assert width(CURVATURE) <= 2 + 1e-12
    assert width(1.01 * CURVATURE) > 2.001


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_polynomial_bound_is_within_two_percent_of_search(degree: int) -> None:
    rng = np.random.default_rng(degree)
    for _ in range(4):
        table, weights = rng.normal(size=(degree + 1, 3)), rng.uniform(0.3, 2, degree + 1)
        bound = distance_bound(table, weights, pair=True)
        points = rng.uniform(-1, 1, (300_000, 3))
        points[:100_000] = np.where(rng.uniform(size=(100_000, 3)) < 0.6, np.sign(points[:100_000]), points[:100_000])
        scaled, order = weights[:, None] * table, np.arange(3)
        one, two = points[:, :1] ** order @ scaled.T, points[:, 1:2] ** order @ scaled.T
        found = np.max(np.sum(one**2 + two**2 - 2 * one * two * points[:, 2:] ** np.arange(degree + 1), axis=1))
        assert found <= bound <= 1.02 * found


def test_exponential_is_exact_and_same_at_any_position() -> None:
    numbers = np.random.default_rng(0).uniform(-60, 60, 1000)
    values = exponential(numbers)
    assert np.allclose(values, np.exp(numbers), rtol=1e-11)
    for start in range(1, 20):
        assert np.array_equal(exponential(numbers[start:]), values[start:])


@pytest.mark.parametrize(
    ("name", "params", "named"),
    [
        ("residual_gradient", {"columns": 3, "clip": 1, "coefficients": [1, 2]}, "coefficients"),
        (
            "residual_gradient",
            {"columns": 1, "clip": 1, "coefficients": [], "intercept": 0},
            "intercept",
        ),
        (
            "newton_step",
            {"columns": 2, "clip": 1, "coefficients": [1, 2], "bound": 0.5},
            "bound",
        ),
        ("newton_step", {"columns": 2, "clip": 1, "coefficients": [1, 2], "curvature": 1.25}, "curvature"),
        ("newton_step", {"columns": 2, "clip": 1, "coefficients": [1, 2], "family": "linear"}, "family"),
        (
            "residual_moment",
            {"columns": 2, "clip": 1, "coefficients": [1, 2], "response_weight": 1.2},
            "response_weight",
        ),
        ("residual_moment", {"columns": 2, "clip": 1, "coefficients": [1, 2], "scale": [0.0]}, "scale"),
        (
            "polynomial_coefficients",
            {"columns": 2, "clip": 1, "table": [[1], [0]], "weights": [0, 1]},
            "table",
        ),
        (
            "polynomial_coefficients",
            {"columns": 2, "clip": 1, "table": [[1], [1]], "weights": [1]},
            "weights",
        ),
    ],
)
def test_regression_statistic_bad_parameter_is_refused(name: str, params: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        build(name, params)


def test_regression_sensitivity_is_independent_of_coefficients() -> None:
    for adjacency in Adjacency:
        for kind in (ResidualGradient, ResidualMoment, NewtonStep, CountStep):
            one = kind(columns=3, clip=1.0, coefficients=np.zeros(3))
            other = kind(columns=3, clip=7.0, coefficients=np.array([9.0, -1.0, 2.0]), bound=3.0)
            assert one.sensitivity(adjacency) == other.sensitivity(adjacency)


def test_polynomial_with_a_hostile_table_has_a_sensitivity_or_is_refused() -> None:
    table = [[-1, 0, 18, 0, -48, 0, 32], [0] * 7, [0] * 7]
    statistic = build(
        "polynomial_coefficients", {"columns": 2, "clip": 1.0, "table": table, "weights": [1.0, 0.0, 0.0]}
    )
    values = np.linspace(-1, 1, 2001)
    shape = -1 + 18 * values**2 - 48 * values**4 + 32 * values**6
    assert statistic.sensitivity(Adjacency.REPLACE_ONE) >= np.ptp(shape) * (1 - 1e-9)
    with pytest.raises(BadParameter, match="coefficients"):
        build("polynomial_coefficients", {"columns": 41, "clip": 1.0, "table": [[1.0]] * 7, "weights": [1.0] * 7})
