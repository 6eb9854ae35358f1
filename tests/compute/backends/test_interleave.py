"""Rows of a table from its columns, by the kernel in C and by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.compute.backends import native


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("width", [1, 3, 8, 9, 20, 33])
@pytest.mark.parametrize("rows", [0, 1, 127, 128, 129, 1000])
def test_interleaved_columns_are_the_columns_of_the_rows(
    kernel: bool, width: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel and not native.present():
        pytest.skip("the kernels are not compiled")
    if not kernel:
        monkeypatch.setattr(native, "_native", None)
    columns = list(np.random.default_rng(0).normal(size=(width, rows + 7)))
    columns[0] = columns[0][::-1]  # not contiguous
    table = np.empty((rows, width))
    native.interleave(columns, 5, table)
    assert np.array_equal(table, np.column_stack(columns)[5 : 5 + rows])


@pytest.mark.skipif(not native.present(), reason="the kernels are not compiled")
@pytest.mark.parametrize(("first", "rows"), [(-1, 2), (8, 3), (11, 0), (0, 11)])
def test_interleave_outside_the_columns_is_refused(first: int, rows: int) -> None:
    columns = [np.zeros(10), np.zeros(10)]
    with pytest.raises(ValueError, match="doubles"):
        native.interleave(columns, first, np.empty((rows, 2)))
    with pytest.raises(ValueError, match="doubles"):
        native.interleave([np.zeros(10), np.zeros(1)], 0, np.empty((5, 2)))
