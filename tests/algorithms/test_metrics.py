"""The Amari index and the pairing of components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.algorithms.metrics import amari_index, matched
from zerosum.errors import BadParameter


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_amari_index_ignores_order_sign_and_scale(R: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((R + 3, R))
    scales = rng.uniform(0.5, 2, R) * rng.choice([-1, 1], R)
    perfect = (scales[:, None] * np.linalg.pinv(A))[rng.permutation(R)]
    assert amari_index(perfect, A) == pytest.approx(0, abs=1e-9)
    P = rng.standard_normal((R, R))
    found = amari_index(P, np.eye(R))
    assert 0 <= found <= 1
    assert amari_index(P[rng.permutation(R)], np.eye(R)) == pytest.approx(found)


def test_amari_index_of_small_matrices_equals_hand_calculation() -> None:
    P = np.array([[2.0, 1.0], [0.0, 4.0]])
    assert amari_index(P, np.eye(2)) == pytest.approx((0.5 + 0 + 0 + 0.25) / 4)
    assert amari_index(np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(2)) == 1.0
    assert amari_index(np.array([[np.nan, 0.0], [1.0, 1.0]]), np.eye(2)) == 1.0


def test_matched_maps_in_any_order_and_sign_are_paired() -> None:
    rng = np.random.default_rng(1)
    truth = rng.standard_normal((5, 200))
    order = rng.permutation(5)
    signs = rng.choice([-1.0, 1.0], 5)
    shuffled = np.empty_like(truth)
    shuffled[order] = signs[:, None] * truth + 0.3 * rng.standard_normal((5, 200)) + 4.0
    found = matched(np.vstack([shuffled, rng.standard_normal((2, 200))]), truth)
    assert np.array_equal(found.order, order)
    assert np.array_equal(found.signs, signs)
    assert np.all(found.correlations > 0.9)


def test_metrics_maps_of_other_shape_are_refused() -> None:
    with pytest.raises(BadParameter, match="2, 3"):
        amari_index(np.ones((2, 3)), np.eye(3))
    with pytest.raises(BadParameter, match="2, 3"):
        matched(np.ones((2, 3)), np.ones((3, 3)))
