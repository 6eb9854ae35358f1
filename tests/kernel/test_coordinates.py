"""Isometric coordinates: as many as there are distinct entries, of the same norm, and back."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.kernel import coordinates


def symmetric(columns: int, order: int) -> Floats:
    array = np.random.default_rng(columns).normal(size=(columns,) * order)
    return np.asarray(sum(array.transpose(axes) for axes in permutations(range(order))))


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("columns", [1, 2, 5])
def test_pack_keeps_norm_and_unpack_restores_array(columns: int, order: int) -> None:
    array = symmetric(columns, order)
    packed = coordinates.pack(array)
    assert packed.shape == (coordinates.size(columns, order),) == (len(np.unique(array.round(9))),)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(array))
    np.testing.assert_allclose(coordinates.unpack(packed, columns, order), array, rtol=1e-14)


@pytest.mark.parametrize("order", [2, 3])
def test_pack_keeps_inner_products(order: int) -> None:
    one, two = symmetric(4, order), symmetric(4, order) ** 2
    assert coordinates.pack(one) @ coordinates.pack(two) == pytest.approx(np.sum(one * two))


def test_pack_row_by_row_has_same_bits_as_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large matrices are not packed by an index."""
    matrix = np.random.default_rng(0).normal(size=(40, 40))
    matrix = matrix + matrix.T
    by_index = coordinates.pack(matrix)
    back = coordinates.unpack(by_index, 40)
    monkeypatch.setattr(coordinates, "_LARGE_ORDER", 1)
    assert coordinates.pack(matrix).tobytes() == by_index.tobytes()
    assert coordinates.unpack(by_index, 40).tobytes() == back.tobytes()
    assert coordinates.pack(np.eye(3, dtype=int)).tolist() == [1, 0, 0, 1, 0, 1]
