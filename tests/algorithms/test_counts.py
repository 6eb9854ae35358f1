"""Consistent counts of a table: constraints hold, the error falls, exact counts stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.algorithms.counts import consistent_counts
from zerosum.arrays import Floats

SIZES = np.array([60.0, 100.0, 40.0])
COUNTS = np.array([[60.0, 55.0, 60.0], [100.0, 80.0, 99.0], [40.0, 10.0, 40.0]])
COMPLETE = np.array([True, False, False])


def test_counts_without_error_stay() -> None:
    tiny = np.full((3, 3), 1e-9)
    found = consistent_counts(SIZES, np.full(3, 1e-9), COUNTS, tiny, COMPLETE, 200, closed=True)
    assert np.allclose(found.sizes, SIZES)
    assert np.allclose(found.counts, COUNTS)
    assert found.total == 200


@pytest.mark.parametrize("closed", [True, False])
def test_counts_meet_what_is_public_and_come_nearer_to_the_truth(closed: bool) -> None:
    rng = np.random.default_rng(0)
    total = 200.0 if closed else 210.0
    variance = np.array([4.0, 25.0, 25.0])
    before, after = [], []
    for _ in range(200):
        sizes, counts = SIZES + rng.normal(0, 3, 3), COUNTS + rng.normal(0, 1, (3, 3)) * np.sqrt(variance)
        found = consistent_counts(
            sizes, np.full(3, 9.0), counts, np.tile(variance, (3, 1)), COMPLETE, total, closed=closed
        )
        assert np.all((found.counts >= 0) & (found.counts <= found.sizes[:, None] + 1e-9))
        assert np.array_equal(found.counts[:, 0], found.sizes)
        assert np.sum(found.sizes) == pytest.approx(total) if closed else np.sum(found.sizes) <= total + 1e-6
        weights = 1 / np.concatenate([[9.0], variance])
        truth = np.column_stack([SIZES, COUNTS])
        before.append(np.sum(weights * (np.column_stack([sizes, counts]) - truth) ** 2))
        after.append(np.sum(weights * (np.column_stack([found.sizes, found.counts]) - truth) ** 2))
    # A projection on a convex set that contains the truth never increases the weighted distance to it.
    assert np.all(np.array(after) <= np.array(before) + 1e-9)
    assert np.mean(after) < 0.7 * np.mean(before)


def test_counts_are_the_least_squares_solution() -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(1)
    sizes, counts = SIZES + rng.normal(0, 6, 3), COUNTS + rng.normal(0, 6, (3, 3))
    variance = np.tile([4.0, 25.0, 16.0], (3, 1))
    found = consistent_counts(sizes, np.full(3, 9.0), counts, variance, COMPLETE, 200, closed=True)

    def distance(values: Floats) -> float:
        n, seen = values[:3], values[3:].reshape(3, 2)
        joined = np.column_stack([n, seen])
        return float(np.sum((n - sizes) ** 2) / 9 + np.sum((joined - counts) ** 2 / variance))

    constraints: Any = [
        {"type": "eq", "fun": lambda v: np.sum(v[:3]) - 200},
        {"type": "ineq", "fun": lambda v: (v[:3, None] - v[3:].reshape(3, 2)).ravel()},
        {"type": "ineq", "fun": lambda v: v},
    ]
    start = np.concatenate([SIZES, COUNTS[:, 1:].ravel()])
    best = minimize(distance, start, constraints=constraints, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500})
    own = distance(np.concatenate([found.sizes, found.counts[:, 1:].ravel()]))
    assert own == pytest.approx(best.fun, rel=1e-6)
    assert np.allclose(found.sizes, best.x[:3], atol=1e-3)


def test_counts_without_a_public_total_or_sizes_are_bounded_by_their_group() -> None:
    counts = np.array([[50.0, 70.0]])
    one = np.ones((1, 2))
    found = consistent_counts(None, np.ones(1), counts, one, np.array([True, False]), None, closed=True)
    assert found.sizes == pytest.approx([60.0])
    assert found.counts == pytest.approx(np.array([[60.0, 60.0]]))
    free = consistent_counts(None, np.ones(1), counts, one, np.array([False, False]), None, closed=True)
    assert free.counts == pytest.approx(counts, abs=1e-3)


def test_size_variance_is_that_of_the_weighted_mean_given_the_total() -> None:
    rng = np.random.default_rng(2)
    found = [
        consistent_counts(
            SIZES + rng.normal(0, 3, 3),
            np.full(3, 9.0),
            COUNTS[:, :1] + rng.normal(0, 2, (3, 1)),
            np.full((3, 1), 4.0),
            COMPLETE[:1],
            200,
            closed=True,
        )
        for _ in range(2000)
    ]
    spread = np.var([each.sizes for each in found], axis=0)
    # The relative standard error of a variance from 2000 draws is 3 %: five of them.
    assert spread == pytest.approx(found[0].size_variance, rel=0.16)
    assert found[0].total_variance == 0
