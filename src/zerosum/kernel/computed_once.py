"""A cache for slow functions of several threads: each value is computed once.

`functools.lru_cache` lets two threads that ask for the same value at the same time both compute it. Here the second
thread waits for the first one's result, and a thread that asks for another value does not wait, unless `at_once` limits
how many values are computed at a time.

`kept_property` is `functools.cached_property` without the lock that it has before Python 3.12. That lock is one for all
objects of a class, so that a slow property of one object keeps threads waiting that need the property of another one.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload
from weakref import WeakSet

P = ParamSpec("P")
R = TypeVar("R")


class ComputedOnce(Generic[P, R]):
    """A function of hashable positional arguments, and its last `maxsize` results.

    Parameters
    ----------
    function:
        What is computed. An exception goes to every caller that waits for the value, and is not kept.
    maxsize:
        How many results are kept; the one that was used longest ago goes first.
    at_once:
        How many different values may be computed at the same time; None for no limit. The function must not call
        itself through the cache where there is a limit.
    """

    def __init__(self, function: Callable[P, R], maxsize: int, at_once: int | None) -> None:
        self._function, self._maxsize, self._at_once = function, maxsize, at_once
        update_wrapper(self, function)
        self._values: OrderedDict[Hashable, R] = OrderedDict()
        self._renew_locks()
        _EVERY.add(self)

    def _renew_locks(self) -> None:
        self._mutex = threading.Lock()
        self._coming: dict[Hashable, Future[R]] = {}
        self._turns = None if self._at_once is None else threading.Semaphore(self._at_once)

    def cache_clear(self) -> None:
        """Forget every result."""
        with self._mutex:
            self._values.clear()

    def known(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Whether the result is kept, so that a call returns it without computing."""
        with self._mutex:
            return _key(args, kwargs) in self._values

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = _key(args, kwargs)
        # The lock covers the tables only, never the computation: another value is computed at the same time.
        with self._mutex:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            coming = self._coming.get(key)
            if coming is None:
                mine = self._coming[key] = Future()
        if coming is not None:
            return coming.result()
        try:
            with self._turns or nullcontext():
                value = self._function(*args, **kwargs)
        except BaseException as error:
            with self._mutex:
                del self._coming[key]
            # An interrupt is for the thread that it reached: the others learn that there is no result.
            mine.set_exception(error if isinstance(error, Exception) else RuntimeError("accounting was interrupted"))
            raise
        with self._mutex:
            self._values[key] = value
            if len(self._values) > self._maxsize:
                self._values.popitem(last=False)
            del self._coming[key]
        # After the value is in the table, so that a thread that arrives now finds it there and does not compute again.
        mine.set_result(value)
        return value


_EVERY: WeakSet[ComputedOnce[Any, Any]] = WeakSet()


def computed_once(maxsize: int, at_once: int | None = None) -> Callable[[Callable[P, R]], ComputedOnce[P, R]]:
    """Decorate a slow function of hashable arguments; see `ComputedOnce`.

    >>> @computed_once(maxsize=2)
    ... def square(x: int) -> int:
    ...     print("computing")
    ...     return x * x
    >>> square(3), square(3)
    computing
    (9, 9)
    """
    return lambda function: ComputedOnce(function, maxsize, at_once)


class kept_property(cached_property[R]):  # noqa: N801 - used like `property`
    """A property that is computed once and kept in its object's `__dict__`. Two threads may both compute it."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> R: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | R:
        if instance is None:
            return self
        assert self.attrname is not None  # noqa: S101
        value: R = self.func(instance)
        instance.__dict__[self.attrname] = value
        return value


def _key(args: tuple[object, ...], kwargs: dict[str, object]) -> Hashable:
    return args, tuple(sorted(kwargs.items()))


def _renew_all_locks() -> None:
    for each in list(_EVERY):
        each._renew_locks()


if hasattr(os, "register_at_fork"):
    # A fork copies locks as they are, and not the threads that would release them.
    os.register_at_fork(after_in_child=_renew_all_locks)
