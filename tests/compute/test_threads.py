"""Blocks side by side: in order, no bit depends on how many threads there are, and errors come out as from one."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from threadpoolctl import threadpool_info, threadpool_limits

from zerosum.arrays import Array
from zerosum.compute import statistic as statistic_module
from zerosum.compute.devices import max_terms
from zerosum.compute.statistic import BoundedMap
from zerosum.compute.threads import one_thread, side_by_side, threads
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.user import UserStatistic

Floats = NDArray[np.float64]
WORKERS = (1, 2, 3)


def running() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("zerosum-block")]


def blas() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows, or of few people, each of which is worth a thread."""
    monkeypatch.setattr("zerosum.compute.units.BLOCK_ROWS", 16)
    monkeypatch.setattr("zerosum.compute.units._BLOCK_BYTES", 1 << 17)
    monkeypatch.setattr("zerosum.compute.units._LONG", 16)
    monkeypatch.setattr(statistic_module, "_WORTH_A_THREAD", 0)


@pytest.mark.parametrize("workers", WORKERS)
def test_side_by_side_results_come_in_order_with_few_started(workers: int) -> None:
    begun, taken, most = 0, 0, 0
    gate = threading.Event()

    def items() -> Iterator[int]:
        nonlocal begun
        for item in range(40):
            begun += 1
            yield item

    def work(item: int) -> int:
        if item % 3 == 0 and workers > 1:
            gate.wait(0.002)  # later ones are done before
        return item * item

    found = []
    with side_by_side(workers) as each:
        for result in each(work, items()):
            most = max(most, begun - taken)
            taken += 1
            found.append(result)
    assert found == [item * item for item in range(40)]
    assert most <= workers + 1
    assert not running()


def fail(item: int) -> int:
    if item == 5:
        raise ValueError("fifth")
    return item


@pytest.mark.parametrize("workers", WORKERS)
def test_side_by_side_error_is_raised_in_order_and_threads_end(workers: int) -> None:
    found, before = [], blas()

    def take() -> None:
        with side_by_side(workers) as each:
            for result in each(fail, range(1000)):
                found.append(result)

    with pytest.raises(ValueError, match="fifth"):
        take()
    assert found == [0, 1, 2, 3, 4]
    assert not running()
    assert blas() == before


@pytest.mark.parametrize("most", [0, 1, 2])
def test_side_by_side_without_threads_computes_in_caller(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    start, started = threading.Thread.start, 0

    def limited(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started > most:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with side_by_side(3) as each:
        assert list(each(lambda item: item * item, range(40))) == [item * item for item in range(40)]
    assert not running()


def test_side_by_side_after_end_of_main_thread_computes() -> None:
    """Python gives a program no more threads once its main one has ended, while others may still be at work."""
    script = """
import threading
from zerosum.compute.threads import side_by_side

def late():
    threading.main_thread().join()
    with side_by_side(2) as each:
        print(sum(each(abs, range(-9, 1))))

threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("45", 0), done.stderr


@pytest.mark.parametrize("workers", WORKERS)
def test_side_by_side_consumer_that_stops_ends_threads(workers: int) -> None:
    begun: list[int] = []

    def take() -> None:
        with side_by_side(workers) as each:
            for _result in each(begun.append, range(1000)):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take()
    assert len(begun) <= workers + 1
    assert not running()


def test_one_thread_overlapping_blocks_limit_blas_until_last_ends() -> None:
    """Studies of one process overlap as they like, and not as brackets do."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            entered.set()
            leave.wait(10)

    with threadpool_limits(3, user_api="blas"):
        thread = threading.Thread(target=other)
        with one_thread():
            thread.start()
            assert entered.wait(10)
            assert threads() == 3
            assert set(blas()) == {1}
        assert threads() == 3
        assert set(blas()) == {1}
        leave.set()
        thread.join()
        assert threads() == 3
        assert set(blas()) == {3}
        with one_thread(), one_thread():
            assert set(blas()) == {1}
        assert set(blas()) == {3}


class Watched(BoundedMap):
    """Sums of rows in [-1, 1]; notes who computes them and how."""

    name: ClassVar[str] = "watched"
    seen: ClassVar[list[tuple[str, bool]]]
    trouble: ClassVar[Callable[[Floats], None]]

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2 * math.sqrt(self.columns)

    def map_block(self, block: Units) -> Array:
        rows = np.clip(block.rows, -1, 1)
        sound = set(np.geterr().values()) == {"ignore"} and max_terms() is not None
        type(self).seen.append((threading.current_thread().name, sound))
        type(self).trouble(rows)
        return rows


@pytest.fixture
def watched() -> Watched:
    Watched.seen, Watched.trouble = [], lambda rows: None
    return Watched(columns=3)


ROWS = np.random.default_rng(0).uniform(-2, 2, size=(500, 3))


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("workers", WORKERS)
def test_statistic_on_worker_threads_equals_caller(watched: Watched, workers: int) -> None:
    with threadpool_limits(workers, user_api="blas"), np.errstate(all="raise"):
        for found in (np.sum(watched.rows(Units(ROWS)), axis=0), watched.total(Units(ROWS))):
            assert np.allclose(found, np.clip(ROWS, -1, 1).sum(axis=0))
    assert all(sound for _name, sound in Watched.seen)
    names = {name for name, _sound in Watched.seen}
    assert all(name.startswith("zerosum-block") for name in names) == (workers > 1)


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("workers", WORKERS)
def test_statistic_failing_unit_is_left_out_alone(watched: Watched, workers: int) -> None:
    rows = ROWS.copy()
    rows[[3, 333]] = 77.0

    def trouble(found: Floats) -> None:
        if np.any(np.all(found == 1.0, axis=1)):
            raise RuntimeError("no such unit")

    Watched.trouble = staticmethod(trouble)
    rows[np.all(np.clip(rows, -1, 1) == 1.0, axis=1)] = 77.0
    sound = rows[:, 0] != 77.0
    with threadpool_limits(workers, user_api="blas"):
        assert np.allclose(watched.total(Units(rows)), np.clip(rows[sound], -1, 1).sum(axis=0))
        assert np.array_equal(watched.rows(Units(rows)), np.clip(rows, -1, 1) * sound[:, None])


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("workers", WORKERS)
def test_statistic_out_of_memory_raises(watched: Watched, workers: int) -> None:
    def trouble(found: Floats) -> None:
        raise MemoryError("full")

    Watched.trouble = staticmethod(trouble)
    with threadpool_limits(workers, user_api="blas"):
        with pytest.raises(MemoryError, match="full"):
            watched.total(Units(ROWS))
        with pytest.raises(MemoryError, match="full"):
            watched.rows(Units(ROWS))
    assert not running()


def test_statistic_little_work_or_large_units_use_one_thread(watched: Watched) -> None:
    with threadpool_limits(3, user_api="blas"):
        assert watched._workers(Units(np.zeros((0, 3)))) == 1
        assert watched._workers(Units(np.zeros((10**5, 3)))) == 1  # many blocks, all of them small
        wide = Watched(columns=2000)
        assert wide._workers(Units(np.zeros((600, 2000)))) == 1  # one block
        assert wide._workers(Units(np.zeros((1500, 2000)))) == 3
        assert wide._workers(Units(np.zeros((1500, 2000)), np.arange(0, 1501, 100))) == 3
        assert wide._workers(Units(np.zeros((1500, 2000)), np.arange(0, 1501, 10))) == 1  # people with few rows
        long = Units(np.zeros((20_000, 2000)), np.array([0, 9_000, 20_000]))
        assert wide._workers(long) == 1  # one unit fills what all may hold
        people = Units(np.zeros((3000, 100)), np.arange(0, 3001, 100))
        found = [build("fourth_cumulants", {"columns": 100, "unmixing": np.eye(100)[:R]}) for R in (50, 100)]
        assert [each._workers(people) for each in found] == [3, 1]  # of a hundred sources, one unit's products do


@pytest.mark.usefixtures("many_blocks")
def test_user_statistic_is_called_by_one_thread() -> None:
    called: set[str] = set()

    class Mine(UserStatistic):
        name: ClassVar[str] = "mine"
        length: ClassVar[int] = 1

        @staticmethod
        def function(rows: Floats) -> Floats:
            called.add(threading.current_thread().name)
            return rows[0, :1]

    with threadpool_limits(3, user_api="blas"):
        Mine(columns=3, clip=1.0).total(Units(ROWS))
    assert called == {threading.current_thread().name}


RNG = np.random.default_rng(1)
WIDE = RNG.normal(size=(400, 40))
PEOPLE = np.array([0, 1, 2, *range(10, 401, 10)])
STATISTICS = [
    ("scatter", {"columns": 40, "center": np.full(40, 0.3), "lift": 2.0, "clip": 30.0, "normalise": False}),
    ("scatter", {"columns": 40, "projection": RNG.normal(size=(40, 7))}),
    ("rounded_scatter", {"columns": 40, "center": np.full(40, 0.3), "lift": 2.0}),
    ("scatter_norms", {"columns": 40, "lowest": 1e-2, "highest": 1e2, "bins": 9}),
    ("scatter_product", {"columns": 40, "basis": np.linalg.qr(RNG.normal(size=(40, 4)))[0]}),
    ("unmixing_score", {"columns": 40, "unmixing": RNG.normal(size=(5, 40)), "scores": ("tanh",) * 5}),
    ("second_moment", {"columns": 40, "clip": 2.0}),
    ("vector_sum", {"columns": 40, "clip": 2.0}),
    ("word_presence", {"columns": 40}),
]


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("case", STATISTICS, ids=lambda case: case[0])
@pytest.mark.parametrize("offsets", [None, PEOPLE], ids=["records", "people"])
def test_statistic_number_of_threads_changes_no_bit(
    case: tuple[str, dict[str, object]], offsets: NDArray[np.int64] | None
) -> None:
    statistic = build(*case)
    units = Units(csr_array(np.floor(np.abs(WIDE))) if case[0] == "word_presence" else WIDE, offsets)
    found = []
    for workers in WORKERS:
        with threadpool_limits(workers, user_api="blas"):
            assert statistic._workers(units) == workers
            found.append(statistic.total(units))
    assert np.any(found[0] != 0)
    assert all(np.array_equal(each, found[0]) for each in found)
