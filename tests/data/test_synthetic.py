from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerosum.data.synthetic import COLUMNS, RANGES, hospitals
from zerosum.errors import BadParameter

FOUR = ["Northgate", "St. Anne", "Lakeside", "University"]


@given(st.integers(0, 2**32), st.lists(st.integers(1, 300), min_size=1, max_size=7))
def test_hospitals_of_any_sizes_stay_within_public_ranges(seed: int, sizes: list[int]) -> None:
    tables = hospitals(seed, sizes)
    assert [table.shape for table in tables.values()] == [(size, len(COLUMNS)) for size in sizes]
    for table in tables.values():
        for column, (low, high) in zip(table.T, (RANGES[name] for name in COLUMNS), strict=True):
            assert np.all((low <= column) & (column <= high))


def test_hospitals_same_seed_gives_same_tables() -> None:
    first, again, other = hospitals(1), hospitals(1), hospitals(2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)


def test_hospitals_are_named_then_numbered() -> None:
    assert list(hospitals(0)) == FOUR
    assert list(hospitals(0, [1] * 6)) == [*FOUR, "hospital 5", "hospital 6"]
    assert list(hospitals(0, [5, 5])) == FOUR[:2]


def test_hospitals_alone_are_biased() -> None:
    tables = hospitals(3, [2000] * 40)
    spreads = np.std(np.vstack(list(tables.values())), axis=0)
    means = np.array([table.mean(axis=0) for table in tables.values()]) / spreads
    bias = np.linalg.norm(means - means.mean(axis=0), axis=1)
    sampling = np.sqrt(len(COLUMNS) / 2000)
    assert np.all(bias > 3 * sampling)


def test_hospitals_columns_are_correlated() -> None:
    table = hospitals(5, [20_000])["Northgate"]
    correlation = np.asarray(np.corrcoef(table.T))
    assert correlation[0, 1] == pytest.approx(0.45, abs=0.05)
    assert np.all(correlation > 0)


@pytest.mark.parametrize("sizes", [[], [10, 0], [-1]])
def test_hospitals_without_patients_are_refused(sizes: list[int]) -> None:
    with pytest.raises(BadParameter, match=re.escape(str(sizes))):
        hospitals(0, sizes)
