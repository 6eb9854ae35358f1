"""Orthogonal decompositions: exact without noise, and the simultaneous one better with it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from zerosum.algorithms.tensor import parts, power_method, simultaneous
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates

Floats = NDArray[np.float64]


def made(order: int, count: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.uniform(1, 4, count), np.linalg.qr(rng.normal(size=(order, order)))[0][:count]


def apart(found: Floats, truth: Floats) -> float:
    distance = np.linalg.norm(found[:, None] - truth[None], axis=2)
    rows, columns = linear_sum_assignment(distance)
    return float(distance[rows, columns].mean())


@pytest.mark.parametrize("method", [power_method, simultaneous])
@pytest.mark.parametrize(("order", "count"), [(2, 2), (6, 6), (8, 3)])
def test_tensor_decomposition_without_noise_finds_parts(method: object, order: int, count: int) -> None:
    values, vectors = made(order, count, seed=order)
    found, directions = method(parts(values, vectors), count)  # type: ignore[operator]
    assert np.allclose(np.sort(found), np.sort(values), atol=1e-6)
    assert apart(directions, vectors) < 1e-6
    assert np.allclose(parts(found, directions), parts(values, vectors), atol=1e-6)


def test_tensor_simultaneous_decomposition_with_noise_is_better_than_power_method() -> None:
    rng, errors = np.random.default_rng(0), []
    for seed in range(12):
        values, vectors = made(7, 7, seed)
        noise = coordinates.unpack(0.25 * rng.normal(size=coordinates.size(7, 3)), 7, 3)
        tensor = parts(values, vectors) + noise
        errors.append([apart(method(tensor, 7)[1], vectors) for method in (power_method, simultaneous)])
    one_by_one, together = np.mean(errors, axis=0)
    assert together < 0.8 * one_by_one
    _values, found = simultaneous(tensor, 7)
    assert np.allclose(found @ found.T, np.eye(7), atol=1e-9)


def test_tensor_of_zeros_is_decomposed_and_bad_order_is_refused() -> None:
    values, vectors = simultaneous(np.zeros((3, 3, 3)), 2)
    assert np.allclose(values, 0)
    assert np.allclose(vectors @ vectors.T, np.eye(2))
    with pytest.raises(BadParameter, match="4"):
        simultaneous(np.zeros((3, 3, 3)), 4)
    for tensor, count in ((np.zeros((3, 3)), 1), (np.zeros((3, 3, 2)), 1), (np.zeros((3, 3, 3)), 0)):
        with pytest.raises(BadParameter):
            power_method(tensor, count)
