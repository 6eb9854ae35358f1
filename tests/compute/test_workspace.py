"""Memory that is used again: what is computed in it is one's own as long as it lasts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zerosum.compute import workspace as module
from zerosum.compute.workspace import Workspace, workspace


def test_workspace_arrays_are_disjoint_and_aligned() -> None:
    spare = Workspace()
    for _ in range(2):  # fresh memory, then the same again
        arrays = [spare(3, 5), spare(7, dtype=np.float64), spare(2, 0), spare(1, dtype=np.uint8)]
        assert [each.shape for each in arrays] == [(3, 5), (7,), (2, 0), (1,)]
        assert [each.dtype.char for each in arrays] == ["f", "d", "f", "B"]
        for number, each in enumerate(arrays):
            each[...] = number
        assert all(np.all(each == number) for number, each in enumerate(arrays))
        spare.clear()
    first, second = spare(3, 5), spare(7)
    assert first.ctypes.data % 64 == 0
    assert second.ctypes.data - first.ctypes.data == 64


def test_workspace_memory_is_reused_unless_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 1 << 10)
    spare = Workspace()
    for count, again in ((100, True), (2000, False)):
        spare(count, dtype=np.uint8)
        spare.clear()
        places = set()
        for _ in range(3):
            places.add(spare(count, dtype=np.uint8).ctypes.data)
            assert (len(spare._bytes) >= count) is again
            spare.clear()
        assert len(places) == 1 or not again


def test_workspace_nested_or_concurrent_use_shares_no_memory() -> None:
    """One inside the other, side by side, and after a failure."""

    def fail() -> None:
        with workspace() as inner:
            inner(1000)[...] = -1
            raise ZeroDivisionError

    def work(number: int) -> bool:
        with workspace() as outer:
            mine = outer(1000)
            mine[...] = number
            with pytest.raises(ZeroDivisionError):
                fail()
            with workspace() as inner:
                inner(1000)[...] = -1
                return bool(np.all(mine == number))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))
    assert len(module._idle) <= 8
