"""Units and the recordings they consist of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from zerosum.compute.units import Runs, Units
from zerosum.errors import BadData
from zerosum.kernel.grid import BLOCK_ROWS
from zerosum.statistics import build


def people() -> Units:
    rng = np.random.default_rng(0)
    sizes = [[40, 30], [50], [20, 20, 20], [60]]
    tables = [[rng.normal(size=(size, 3)) for size in person] for person in sizes]
    return Units.from_runs(tables, [[2.0, 1.0], [0.8], [2.0, 2.0, 3.0], [1.5]])


def test_units_block_keeps_recordings_of_its_people() -> None:
    units = people()
    units.check()
    assert len(units) == 4
    seconds, sizes = [], []
    for block in units.blocks(row_bytes=1 << 19):  # about one person each
        assert block.runs is not None
        block.check()
        seconds += block.runs.seconds.tolist()
        sizes += np.diff(block.runs.offsets).tolist()
    assert seconds == [2.0, 1.0, 0.8, 2.0, 2.0, 3.0, 1.5]
    assert sizes == [40, 30, 50, 20, 20, 20, 60]


def test_units_blocks_by_units_are_limited_by_memory_and_units() -> None:
    rows = np.zeros((3 * BLOCK_ROWS, 1))
    long = Units(rows, np.arange(0, len(rows) + 1, BLOCK_ROWS // 2))
    assert [len(block) for block in long.blocks(8)] == [2, 2, 2]
    assert [len(block) for block in long.blocks(8, by_units=True)] == [6]
    assert [len(block) for block in long.blocks(1 << 14, by_units=True)] == [2, 2, 2]
    short = Units(rows)
    assert [len(block) for block in short.blocks(8, by_units=True)] == [BLOCK_ROWS] * 3


def test_recordings_that_cross_people_or_have_no_clock_are_refused() -> None:
    rows, offsets = np.zeros((10, 2)), np.array([0, 6, 10])
    for runs in (
        Runs(np.array([0, 5, 10]), np.array([1.0, 1.0])),
        Runs(np.array([0, 6, 6, 10]), np.array([1.0, 1.0, 1.0])),
        Runs(np.array([0, 6, 9]), np.array([1.0, 1.0])),
        Runs(np.array([0, 6, 10]), np.array([1.0])),
        Runs(np.array([0, 6, 10]), np.array([1.0, 0.0])),
        Runs(np.array([0, 6, 10]), np.array([1.0, np.nan])),
    ):
        with pytest.raises(BadData):
            Units(rows, offsets, runs).check()
    Units(rows, offsets, Runs(np.array([0, 2, 6, 10]), np.ones(3))).check()


def test_units_recording_without_clock_is_refused() -> None:
    with pytest.raises(BadData, match="seconds"):
        Units.from_runs([[np.zeros((3, 2))]], [[1.0, 2.0]])
    with pytest.raises(BadData):
        Units.from_runs([[]], [[]])


def test_units_that_share_rows_or_have_none_are_refused() -> None:
    for offsets in ([0, 5, 3, 10], [0, 5, 5, 10], [1, 10], [0, 9]):
        with pytest.raises(BadData):
            Units(np.zeros((10, 2)), np.array(offsets, dtype=np.int64)).check()


def test_units_refusal_does_not_reveal_the_number_of_faults() -> None:
    """How many values are faulty is data: asked again and again, it would be an exact query."""
    messages = set()
    for bad in (1, 3):
        rows = np.zeros((10, 2))
        rows[:bad, 0] = np.nan
        with pytest.raises(BadData) as missing:
            Units(rows).check()
        with pytest.raises(BadData) as outside:
            build("histogram", {"bins": 2}).check_values(Units(np.full((bad, 1), 7.0)))
        messages |= {str(missing.value), str(outside.value)}
    assert len(messages) == 2  # the same two for any number of faulty values


def test_units_of_sparse_rows_with_entries_outside_are_refused() -> None:
    """As dense rows they would be counts of other documents, or memory outside of the array."""
    for place in (8, 200_000_000, -1):
        rows = csr_array((np.ones(3), np.array([0, place, 1]), np.array([0, 2, 3])), shape=(2, 8))
        with pytest.raises(BadData, match="column"):
            Units.from_rows(rows)
        with pytest.raises(BadData, match="column"):
            Units(rows).check()
