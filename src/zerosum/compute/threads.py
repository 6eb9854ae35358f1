"""Blocks in several threads: as many as BLAS has, with BLAS itself on one thread meanwhile.

NumPy computes elementwise operations on one core, and a product over one block of rows is too small for many cores. So
blocks are computed in parallel. Their number is BLAS's own number of threads, which the user sets as usual
(OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, threadpoolctl). Results are returned in the order of the blocks, and a block is
computed as on one thread: no bit depends on the number of threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")


class OrderedMap(Protocol):
    """Type of `map` for one iterable."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


@cache
def _libraries() -> list[Any]:
    """The BLAS libraries that are loaded."""
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _Limit:
    """Holds BLAS at one thread while at least one caller needs it.

    The number of threads belongs to the process with some libraries and to a thread with others. So every caller sets
    it, the first one stores the old number, and the last one restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before: list[int] = []

    def set(self) -> None:
        """Set BLAS to one thread. The first caller stores the numbers to be restored."""
        with self._lock:
            if self._wanted == 0:
                # Read before the first change. A second caller would read 1 and restore 1.
                self._before = [each.num_threads for each in _libraries()]
                _anybody_may_set()
            self._wanted += 1
            _set([1] * len(_libraries()))

    def lift(self) -> None:
        """End one caller's limit. The last caller restores the stored numbers."""
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                _anybody_may_set()
                _set(self._before)
                _anybody_may_set()

    def threads(self) -> int:
        """The number of threads outside of the limit."""
        with self._lock:
            return max(self._before if self._wanted else [each.num_threads for each in _libraries()], default=1)


def _set(numbers: list[int]) -> None:
    """Set the number of threads of each loaded library."""
    for library, number in zip(_libraries(), numbers, strict=True):
        library.set_num_threads(number)


def _anybody_may_set() -> None:
    """Newer versions of threadpoolctl obey only the thread that first set OpenBLAS's number, as long as it lives. The
    last caller here may be another thread.
    """
    for library in _libraries():
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


_limit = _Limit()


def threads() -> int:
    """Number of threads of BLAS outside of `one_thread`; 1 if no library is known.

    >>> with one_thread():
    ...     inside = threads()
    >>> inside == threads() >= 1
    True
    """
    return _limit.threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Scope in which BLAS uses one thread. A product of one shape per unit then rounds equally, whatever the settings
    of the machine.
    """
    _limit.set()
    try:
        yield
    finally:
        _limit.lift()


@contextmanager
def side_by_side(workers: int) -> Iterator[OrderedMap]:
    """`map`, or the same on `workers` threads, which end with the scope.

    At most one item more than there are threads is started and not yet returned. An error is raised where the item's
    result would be returned. If no thread can be started, the caller computes.

    >>> with side_by_side(2) as each:
    ...     list(each(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    # Without threads BLAS keeps its own, which is faster for one large product.
    if workers < 2:
        yield map
        return
    # Each new thread sets the limit again, since with some libraries (OpenMP) the number belongs to a thread.
    limited = partial(_set, [1] * len(_libraries()))
    with one_thread(), ThreadPoolExecutor(workers, "zerosum-block", limited) as pool:
        try:
            yield partial(_in_order, pool, workers)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # leaving waits for those that run


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """The results of several functions, computed in parallel.

    >>> at_once(lambda: 1, lambda: 2)
    [1, 2]
    """

    def found(one: Callable[[], Any]) -> Any:
        return one()

    with side_by_side(len(work)) as each:
        return list(each(found, work))


def _in_order(pool: ThreadPoolExecutor, workers: int, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Results in the order of the items, so that the sum of the blocks rounds equally for any number of threads.

    Parameters
    ----------
    pool : ThreadPoolExecutor
        Threads that compute.
    workers : int
        Number of threads; at most one item more is started and not yet returned.
    work : callable
        Maps one item.
    items : iterable
        Read lazily in the caller's thread, since blocks may be read from a file.
    """
    coming: deque[Future[R]] = deque()
    for item in items:
        try:
            coming.append(pool.submit(copy_context().run, work, item))  # with NumPy's error state and `devices.release`
        except RuntimeError:  # the machine has no more threads, or the main thread of the program has ended
            while coming:
                yield coming.popleft().result()
            yield work(item)
        # Bounds the memory: finished parts that wait for an earlier one are as large as a sum.
        if len(coming) > workers:
            yield coming.popleft().result()
    while coming:
        yield coming.popleft().result()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; each is read in a thread while the one before is processed.

    One item ahead and no more, since each may take much memory. If no thread can be started, the caller reads.

    >>> list(ahead(iter([1, 2, 3])))
    [1, 2, 3]
    """
    with ThreadPoolExecutor(1, "zerosum-ahead") as reader:
        try:
            coming = reader.submit(_next, items)
        except RuntimeError:  # the machine has no more threads, or the main thread of the program has ended
            yield from items
            return
        while found := coming.result():
            coming = reader.submit(_next, items)
            yield found[0]


def _next(items: Iterator[T]) -> tuple[()] | tuple[T]:
    """The next item, or nothing at the end."""
    for item in items:
        return (item,)
    return ()
