"""Quantities compute like the arrays they hold, and know their names."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Axis, Quantity, columns_axis

TABLE = Quantity(np.arange(6.0).reshape(2, 3), "center", (Axis.numbered("cluster", 2), columns_axis("abc")), 0.5)


def test_quantity_computes_like_array() -> None:
    plain = TABLE.value
    assert np.array_equal(TABLE, plain)
    assert np.array_equal(TABLE + TABLE, 2 * plain)
    assert np.array_equal(1 / (TABLE + 1), 1 / (plain + 1))
    assert np.array_equal(TABLE @ np.ones(3), plain @ np.ones(3))
    assert np.array_equal(np.ones(2) @ TABLE, np.ones(2) @ plain)
    assert np.array_equal(np.sqrt(TABLE), np.sqrt(plain))
    assert np.array_equal(np.linalg.norm(TABLE, axis=1), np.linalg.norm(plain, axis=1))
    assert (len(TABLE), TABLE.shape, TABLE[1, 2]) == (2, (2, 3), 5.0)
    assert [row.tolist() for row in TABLE] == plain.tolist() == TABLE.tolist()
    assert float(Quantity(np.array([3.0]))) == 3.0


def test_quantity_has_labels_and_noise() -> None:
    assert TABLE.labelled() == {"1": {"a": 0.0, "b": 1.0, "c": 2.0}, "2": {"a": 3.0, "b": 4.0, "c": 5.0}}
    assert np.asarray(TABLE.std).tolist() == [[0.5] * 3] * 2
    assert Quantity(np.ones(2)).labelled() == {"value": [1.0, 1.0]}
    record = TABLE.as_record()
    assert (record["kind"], [axis["name"] for axis in record["axes"]]) == ("center", ["cluster", "column"])


def test_quantity_axes_of_other_size_are_refused() -> None:
    for axes in ((columns_axis("ab"),), (columns_axis("abc"), columns_axis("ab"))):
        with pytest.raises(BadParameter):
            Quantity(np.ones(3), axes=axes)
