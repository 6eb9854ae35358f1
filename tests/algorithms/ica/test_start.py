"""Directions from noisy fourth cumulants: exact without noise, better than joint diagonalisation with it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms.ica.start import directions, jade, noise_level
from zerosum.kernel import coordinates

Floats = NDArray[np.float64]


def tensor_of(kurtoses: Floats, u: Floats) -> Floats:
    return np.asarray(np.einsum("k,ka,kb,kc,kd->abcd", kurtoses, u, u, u, u, optimize=True))


def rotation(order: int, seed: int) -> Floats:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(order, order)))[0]


def noisy(order: int, seed: int) -> Floats:
    draw = np.random.default_rng(seed).normal(size=coordinates.size(order, 4))
    return coordinates.unpack(draw, order, 4)


@pytest.mark.parametrize("signs", [[1, 1, 1, 1, 1], [-1, -1, -1, -1, -1], [1, -1, 1, -1, -1]])
def test_ica_start_directions_and_signs_of_any_kurtosis_are_found(signs: list[int]) -> None:
    u, kurtoses = rotation(5, 0), np.array(signs) * np.array([3.0, 2.5, 2.0, 1.5, 1.0])
    found, k = directions(tensor_of(kurtoses, u))
    which = np.argmax(np.abs(found @ u.T), axis=1)
    assert sorted(which.tolist()) == list(range(5))
    assert np.allclose(np.max(np.abs(found @ u.T), axis=1), 1, atol=1e-4)
    assert np.allclose(k, kurtoses[which], atol=1e-3)
    assert np.allclose(np.max(np.abs(jade(tensor_of(kurtoses, u)) @ u.T), axis=1), 1, atol=1e-4)


def test_ica_start_climb_on_noisy_tensor_is_closer_than_joint_diagonalisation() -> None:
    lost: dict[str, list[float]] = {"climbed": [], "jade": []}
    for seed in range(6):
        u = rotation(6, seed)
        tensor = tensor_of(np.full(6, 9.0), u) + noisy(6, seed)
        for name, found in (("climbed", directions(tensor)[0]), ("jade", jade(tensor))):
            lost[name].append(1 - float(np.mean(np.max(np.abs(found @ u.T), axis=1))))
    assert np.mean(lost["climbed"]) < np.mean(lost["jade"])
    assert np.mean(lost["climbed"]) < 0.01


@pytest.mark.parametrize("order", [3, 6, 10])
def test_ica_start_noise_level_equals_kurtosis_of_pure_noise(order: int) -> None:
    found = [np.mean(directions(noisy(order, seed))[1] ** 2) for seed in range(5)]
    assert np.sqrt(np.mean(found)) == pytest.approx(noise_level(order), rel=0.15)


def test_ica_start_zero_tensor_gives_rotation_and_zero_kurtoses() -> None:
    found, k = directions(np.zeros((4,) * 4))
    assert np.allclose(found @ found.T, np.eye(4), atol=1e-5)
    assert not np.any(k)
