"""A cache for slow functions of several threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from zerosum.kernel.computed_once import computed_once, kept_property

PATIENCE = 60.0  # seconds until a test that would hang fails instead


@contextmanager
def pool(gate: threading.Event) -> Iterator[ThreadPoolExecutor]:
    """Threads that a gate keeps; it opens at the end, so that a failed test ends too."""
    with ThreadPoolExecutor(8) as threads:
        try:
            yield threads
        finally:
            gate.set()


def test_computed_once_value_requested_by_several_threads_is_computed_once() -> None:
    gate, begun, calls = threading.Event(), threading.Event(), []

    @computed_once(maxsize=4)
    def slow(x: int) -> int:
        calls.append(x)
        if x == 3:
            begun.set()
            assert gate.wait(PATIENCE)
        return x * x

    with pool(gate) as threads:
        asked = [threads.submit(slow, 3) for _ in range(4)]
        assert begun.wait(PATIENCE)
        assert threads.submit(slow, 4).result(PATIENCE) == 16  # another value does not wait
        assert slow.known(4)
        assert not slow.known(3)
        gate.set()
        assert [each.result(PATIENCE) for each in asked] == [9] * 4
    assert calls == [3, 4]


def test_computed_once_limit_computes_one_value_at_a_time() -> None:
    gate, begun, inside, most = threading.Event(), threading.Event(), [0], [0]

    @computed_once(maxsize=8, at_once=1)
    def slow(x: int) -> int:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        begun.set()
        assert gate.wait(PATIENCE)
        inside[0] -= 1
        return x

    with pool(gate) as threads:
        asked = [threads.submit(slow, x) for x in range(4)]
        assert begun.wait(PATIENCE)
        gate.set()
        assert [each.result(PATIENCE) for each in asked] == [0, 1, 2, 3]
    assert most == [1]


def test_computed_once_exception_is_raised_and_not_stored() -> None:
    faults = [ValueError("once")]

    @computed_once(maxsize=1, at_once=1)
    def unsteady(x: int) -> int:
        if faults:
            raise faults.pop()
        return x

    with pytest.raises(ValueError, match="once"):
        unsteady(1)
    assert unsteady(1) == 1


def test_computed_once_drops_least_recently_used_value() -> None:
    @computed_once(maxsize=2)
    def same(x: int) -> int:
        return x

    for x in (1, 2, 1, 3):
        same(x)
    assert [same.known(x) for x in (1, 2, 3)] == [True, False, True]
    same.cache_clear()
    assert not same.known(3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_computed_once_forked_process_computes_pending_value() -> None:
    gate, begun = threading.Event(), threading.Event()
    parent = os.getpid()

    @computed_once(maxsize=2, at_once=1)
    def slow(x: int) -> int:
        if os.getpid() == parent:
            begun.set()
            assert gate.wait(PATIENCE)
        return x

    with pool(gate) as threads:
        asked = threads.submit(slow, 5)
        assert begun.wait(PATIENCE)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that waits for its parent's thread would wait forever
            os._exit(0 if slow(5) == 5 else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0
        gate.set()
        assert asked.result(PATIENCE) == 5


def test_kept_property_of_one_object_does_not_wait_for_another() -> None:
    gate, begun = threading.Event(), threading.Event()

    class Owner:
        def __init__(self, slow: bool) -> None:
            self.slow, self.calls = slow, 0

        @kept_property
        def value(self) -> int:
            self.calls += 1
            if self.slow:
                begun.set()
                assert gate.wait(PATIENCE)
            return self.calls

    first, second = Owner(slow=True), Owner(slow=False)
    with pool(gate) as threads:
        asked = threads.submit(lambda: first.value)
        assert begun.wait(PATIENCE)
        assert threads.submit(lambda: second.value).result(PATIENCE) == 1
        gate.set()
        assert asked.result(PATIENCE) == 1
    assert (first.value, second.value, first.calls, second.calls) == (1, 1, 1, 1)
