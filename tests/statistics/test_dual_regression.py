"""Dual regression against NumPy, its invariants, and parameters that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.dual_regression import DualRegression

RNG = np.random.default_rng(0)
V, R = 12, 3
M = np.linalg.qr(RNG.normal(size=(V, R)))[0].T + 0.1 * RNG.normal(size=(R, V))
Q = np.linalg.svd(M)[2][R:].T[:, :5]


def person(rows: int = 60) -> Any:
    return RNG.normal(size=(rows, R)) @ M * 2 + RNG.normal(size=(rows, V))


def reference(rows: Any) -> Any:
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    courses = standard @ np.linalg.pinv(M)
    return np.linalg.lstsq(courses, standard, rcond=None)[0] - M


def test_dual_regression_without_clip_agrees_with_least_squares() -> None:
    rows = [person() for _ in range(4)]
    statistic = DualRegression(columns=V, templates=M, clip=1e6, per_recording="standardise")
    total = statistic.total(Units.from_list(rows)).reshape(R, V)
    np.testing.assert_allclose(total, sum(map(reference, rows)), atol=1e-6)


def test_dual_regression_with_directions_is_the_same_in_their_coordinates() -> None:
    rows, weights, center = person(), RNG.uniform(0.5, 2, (R, 5)), RNG.normal(size=(R, 5))
    given: dict[str, Any] = {"directions": Q, "weights": weights, "center": center, "per_recording": "standardise"}
    statistic = DualRegression(columns=V, templates=M, clip=1e6, **given)
    total = statistic.total(Units.from_list([rows])).reshape(R, 5)
    np.testing.assert_allclose(total, weights * (reference(rows) @ Q - center), atol=1e-6)


def test_dual_regression_difference_is_zero_in_the_span_of_templates() -> None:
    statistic = DualRegression(columns=V, templates=M, clip=1e6, per_recording="center")
    total = statistic.total(Units.from_list([person()])).reshape(R, V)
    np.testing.assert_allclose(total @ M.T, 0, atol=1e-5)


def test_dual_regression_person_with_fewer_rows_than_templates_stays_in_the_ball() -> None:
    statistic = DualRegression(columns=V, templates=M, clip=0.5)
    for rows in (np.ones((1, V)), np.zeros((2, V)), 1e200 * person(2)):
        assert np.linalg.norm(statistic.total(Units.from_list([rows]))) <= 0.5


def test_dual_regression_count_is_released_under_add_remove() -> None:
    statistic = DualRegression(columns=V, templates=M, clip=0.5, count=True)
    summed, count = statistic.split(statistic.total(Units.from_list([person() for _ in range(7)])))
    assert count == pytest.approx(7)
    assert summed.shape == (R, V)
    assert statistic.sensitivity(Adjacency.ADD_REMOVE) == pytest.approx(0.5 * np.sqrt(1.04))


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"templates": np.ones((2, V))}, "independent"),
        ({"templates": np.ones((1, 3))}, "columns"),
        ({"templates": M, "directions": M.T}, "orthogonal"),
        ({"templates": M, "center": np.zeros((R, V))}, "directions"),
        ({"templates": M, "directions": Q, "weights": np.zeros((R, 5))}, "positive"),
        ({"templates": M, "directions": Q, "center": np.zeros((R, 4))}, "shape"),
    ],
)
def test_dual_regression_parameters_that_contradict_each_other_are_refused(
    parameters: dict[str, Any], word: str
) -> None:
    with pytest.raises(BadParameter, match=word):
        DualRegression(columns=V, clip=1.0, **parameters)


def test_units_of_few_rows_have_maps_in_bounded_memory() -> None:
    statistic = DualRegression(columns=300, templates=np.eye(60, 300), clip=1.0)
    units = Units.from_rows(np.ones((400, 300)))
    batches = [rows.shape[0] for _batch, _some, rows in statistic.rows_by_shape(units)]
    assert sum(batches) == 400
    assert max(batches) * 60 * 300 <= 1 << 21
