"""Rows beyond the memory setting: the same values and units, and no file that is left."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from zerosum.compute.mapped import release_pages
from zerosum.compute.units import Units
from zerosum.data.spool import Spool, Storage, memory_bytes
from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.vectors import VectorSum


@pytest.mark.parametrize("unit_column", [None, "person"])
def test_units_beyond_the_memory_setting_have_the_same_bits(tmp_path: Path, unit_column: str | None) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "rows.parquet"
    columns = {"a": rng.normal(size=40_000), "b": rng.normal(size=40_000), "person": rng.integers(0, 3000, 40_000)}
    pq.write_table(pa.table(columns), path)
    whole, spooled = (
        load_units(path, columns=["a", "b"], unit_column=unit_column, storage=Storage(memory, tmp_path / "state")).units
        for memory in (None, 10_000)
    )
    assert isinstance(spooled.rows, np.memmap)
    assert not isinstance(whole.rows, np.memmap)
    assert spooled.rows.tobytes() == whole.rows.tobytes()
    assert (whole.offsets is None) == (spooled.offsets is None)
    if whole.offsets is not None and spooled.offsets is not None:
        assert np.array_equal(whole.offsets, spooled.offsets)
    assert list((tmp_path / "state").iterdir()) == []
    for statistic in (VectorSum(columns=2, clip=1.0), SecondMoment(columns=2, clip=1.0)):
        assert statistic.total(spooled).tobytes() == statistic.total(whole).tobytes()


def test_grouped_rows_keep_their_order_within_a_unit() -> None:
    rows, codes = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 2, 1, 0])
    for memory in (None, 1):
        spool = Spool(2, Storage(memory))
        spool.append(rows[:4])
        spool.append(rows[4:])
        table, offsets = spool.grouped(codes)
        expected = Units.from_groups(rows, codes)
        assert np.array_equal(table, expected.rows)
        assert offsets.tolist() == [0, 3, 5, 6]


@pytest.mark.parametrize("memory", [None, 1, 3_000, 10**6])
@pytest.mark.parametrize("people", [1, 7, 900])
def test_unsorted_rows_are_grouped_over_many_chunks_and_ranges(
    memory: int | None, people: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in {"_FIRST_CHUNK": 64, "_LARGEST_CHUNK": 512, "_COPY_BYTES": 700}.items():
        monkeypatch.setattr(f"zerosum.data.spool.{name}", size)
    rng = np.random.default_rng(people)
    rows = rng.normal(size=(5000, 3))
    # Some people have most of the rows, so that the ranges are of different lengths.
    codes = np.unique((people * rng.random(5000) ** 3).astype(int), return_inverse=True)[1]
    spool = Spool(3, Storage(memory))
    for start in range(0, 5000, 999):
        spool.append_columns(list(rows[start : start + 999].T))
    table, offsets = spool.grouped(codes)
    assert isinstance(table, np.memmap) == (memory in (1, 3_000))
    expected = Units.from_groups(rows, codes)
    assert table.tobytes() == expected.rows.tobytes()
    assert expected.offsets is not None
    assert np.array_equal(offsets, expected.offsets)


@pytest.mark.parametrize("memory", [None, 1, 2_000])
@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000])
def test_spooled_rows_are_those_that_were_added(memory: int | None, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.data.spool._FIRST_CHUNK", 64)
    monkeypatch.setattr("zerosum.data.spool._COPY_BYTES", 100)
    table = np.random.default_rng(0).normal(size=(rows, 1))
    spool = Spool(1, Storage(memory))
    for start in range(0, rows, 5):
        spool.append(table[start : start + 5])
    assert len(spool) == rows
    assert spool.rows().tobytes() == table.tobytes()


@pytest.mark.parametrize("bounds", [(0, 100_000), (3, 50_001), (7, 8), (5, 5)])
def test_released_pages_are_read_again(bounds: tuple[int, int]) -> None:
    rows = np.random.default_rng(0).normal(size=(100_000, 3))
    spool = Spool(3, Storage(1))
    spool.append(rows)
    mapped = spool.rows()
    assert np.array_equal(mapped, rows)
    release_pages(mapped, *bounds)
    release_pages(mapped[10:], 0, 20)
    assert np.array_equal(mapped, rows)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not list the pages of a mapping")
def test_blocks_that_end_within_a_page_leave_no_page_in_memory() -> None:
    """At 10^8 units a block has 197 rows: one page left by each block would be 2 GB."""
    spool = Spool(3, Storage(1))
    spool.append(np.zeros((200_000, 3)))
    mapped = spool.rows()
    for start in range(0, len(mapped), 197):
        mapped[start : start + 197].sum()
        release_pages(mapped, start, min(start + 197, len(mapped)))
    address = f"{mapped.ctypes.data:x}-"
    text = Path("/proc/self/smaps").read_text()
    resident = text[text.index(address) :].split("Rss:")[1].split()[0]
    assert int(resident) <= 64  # kB: pages that the system read ahead behind the last block


def test_changes_to_a_mapped_array_in_memory_are_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((50_000, 3)))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="c")  # changes are not written to the file
    mapped[:, 1] = 0.0
    for block in Units(mapped).blocks():
        assert not block.rows[:, 1].any()
    assert not mapped[:, 1].any()


@pytest.mark.parametrize(("text", "expected"), [("2 GB", 2 * 10**9), ("1.5mb", 1_500_000), (77, 77), ("8 B", 8)])
def test_memory_bytes_reads_amounts(text: str | int, expected: int) -> None:
    assert memory_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "-1 GB", "0", "2 GiB", "1e3", 0])
def test_memory_bytes_refuses_what_is_no_amount(text: str | int) -> None:
    with pytest.raises(BadParameter):
        memory_bytes(text)


def test_full_disk_is_an_error_without_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is a device of Linux")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))
    spool = Spool(2, Storage(1, tmp_path))
    spool.append(np.zeros((5, 2)))
    with pytest.raises(BadData):
        spool.rows()


def test_adjacency_is_unchanged_by_where_rows_lie() -> None:
    # The statistic's sensitivity has no parameter of storage.
    assert VectorSum(columns=2, clip=1.0).sensitivity(Adjacency.REPLACE_ONE) == 2.0
