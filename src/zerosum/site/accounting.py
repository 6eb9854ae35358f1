"""Decisions under locks, with the slow accounting done before the locks are taken.

Whether a spend fits under a cap is decided inside locks: those of the service and the ledger's write transaction. The
epsilon that decides it may take seconds where releases are sub-sampled, and other studies must not wait for that. So a
decision inside `decided` uses only epsilons that are known already. Where one is not, the decision is given up, its
locks are released, the epsilon is computed and kept, and the decision is made again:

    decide            locks taken; the epsilon of (ledger + held back + asked) is not known: Unaccounted, locks released
    compute it        no locks
    decide again      locks taken; known, unless the ledger changed meanwhile

The epsilon is always that of the state inside the locks, so two spends never both pass where only one fits. After
`MOST_REPEATS` a decision is made with the accounting inside the locks: slow, and right.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import ParamSpec, TypeVar

from zerosum.kernel.computed_once import ComputedOnce

P = ParamSpec("P")
R = TypeVar("R")

MOST_REPEATS = 8  # a refusal needs up to four epsilons, one in each repeat; the others are for changes meanwhile

_ONLY_KNOWN: ContextVar[bool] = ContextVar("only_known", default=False)


class Unaccounted(Exception):
    """A decision needs a value that is not known yet; `compute` makes it known. Every one is caught by `decided`."""

    def __init__(self, compute: Callable[[], object]) -> None:
        super().__init__("a value that was not accounted before the locks were taken")
        self.compute = compute


def accounted(function: ComputedOnce[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The value of a slow function; inside `decided`, only if it is known.

    Parameters
    ----------
    function : ComputedOnce
        A pure function with a cache.
    *args, **kwargs
        Its arguments, which are also the key of the cache.

    Raises
    ------
    Unaccounted
        Inside `decided`, if the value is not in the cache.
    """
    if _ONLY_KNOWN.get() and not function.known(*args, **kwargs):
        raise Unaccounted(partial(function, *args, **kwargs))
    return function(*args, **kwargs)


def decided(decide: Callable[[], R]) -> R:
    """The result of `decide`, which takes its own locks and has no effect before the last value it asks for.

    Inside another `decided` the locks of the outer decision are held, so that the outer one does the accounting.

    Parameters
    ----------
    decide : callable
        May be called several times. It must take its locks inside, so that they are released when it raises.
    """
    if _ONLY_KNOWN.get():
        return decide()
    for _ in range(MOST_REPEATS):
        # A context variable and not a global: other threads decide about other studies at the same time.
        token = _ONLY_KNOWN.set(True)
        try:
            return decide()
        except Unaccounted as unknown:
            compute = unknown.compute
        finally:
            _ONLY_KNOWN.reset(token)
        # Outside the locks; the result stays in the cache of `ComputedOnce`, where the repeated decision finds it.
        compute()
    # Other studies changed the ledger in every repeat. The decision must end, so the accounting is done under the
    # locks.
    return decide()
