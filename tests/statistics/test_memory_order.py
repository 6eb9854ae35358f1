"""What a person with several rows contributes does not depend on how the rows lie in memory, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.statistic_cases import ONE_ROW, SMALL, WIDE, Case, with_holes
from zerosum.compute.units import Runs, Units
from zerosum.statistics import build

PEOPLE = [case for case in SMALL + WIDE if case[0] not in ONE_ROW]
LENGTHS = (3, 5, 9, 17, 40)


def people(case: Case, seed: int) -> Units:
    """People with several rows each, in C's order."""
    stat, rng = build(*case), np.random.default_rng(seed)
    if stat.name == "histogram" and getattr(stat, "edges", None) is None:
        rows = rng.integers(0, stat.size, (sum(LENGTHS), 1)).astype(float)
    else:
        size = float(getattr(stat, "clip", 1.0)) * 10 ** rng.uniform(-1, 1)
        rows = size * rng.normal(size=(sum(LENGTHS), stat.columns)) / np.sqrt(stat.columns)
    ends = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64)
    return Units(np.ascontiguousarray(with_holes(stat, rows, rng)), ends)


def in_columns(units: Units) -> Units:
    return Units(np.asfortranarray(units.rows), units.offsets, units.runs)


@pytest.mark.parametrize("case", PEOPLE, ids=[f"{at}-{case[0]}" for at, case in enumerate(PEOPLE)])
def test_statistic_of_rows_in_another_memory_order_is_the_same_to_the_last_bit(case: Case) -> None:
    stat = build(*case)
    for seed in range(6):
        units = people(case, seed)
        assert stat.total(in_columns(units)).tobytes() == stat.total(units).tobytes()
        for person in (units.between(at, at + 1) for at in range(len(units))):
            assert stat.total(in_columns(person)).tobytes() == stat.total(person).tobytes()
        strided = Units(np.repeat(units.rows, 2, axis=1)[:, ::2], units.offsets)
        assert stat.total(strided).tobytes() == stat.total(units).tobytes()


@pytest.mark.parametrize("case", [each for each in PEOPLE if hasattr(build(*each), "per_recording")][:12])
def test_statistic_of_recordings_in_another_memory_order_is_the_same_to_the_last_bit(case: Case) -> None:
    stat, units = build(*case), people(case, 0)
    assert units.offsets is not None
    begins = np.sort(np.concatenate([units.offsets, units.offsets[:-1] + 2]))
    runs = Units(units.rows, units.offsets, Runs(begins, np.ones(len(begins) - 1)))
    runs.check(range(units.columns))
    assert stat.total(in_columns(runs)).tobytes() == stat.total(runs).tobytes()


def test_average_of_values_in_another_memory_order_is_the_same_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    units = Units(np.zeros((sum(LENGTHS), 1)), np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64))
    for _ in range(20):
        values = rng.normal(size=(sum(LENGTHS), 7))
        assert units.average(np.asfortranarray(values)).tobytes() == units.average(values).tobytes()


def test_block_of_records_in_columns_is_not_copied() -> None:
    rows = np.asfortranarray(np.ones((5000, 3)))
    assert all(np.shares_memory(block.rows, rows) for block in Units(rows).blocks())


def test_block_of_people_in_rows_is_not_copied_and_one_in_columns_is() -> None:
    rows, ends = np.ones((5000, 3)), np.arange(0, 5001, 2)
    assert all(np.shares_memory(block.rows, rows) for block in Units(rows, ends).blocks())
    across = np.asfortranarray(rows)
    assert not any(np.shares_memory(block.rows, across) for block in Units(across, ends).blocks())
