"""Two ways to draw: reproducibly, so that a commit that passed passes everywhere, or afresh (ZEROSUM_EXPLORE=1).

By default Hypothesis derives its examples from the source of a test, and noise keys and the module `random` are seeded
with the identifier of the running test, unless it is marked `system_randomness`. `make explore` and `make slow` set
ZEROSUM_EXPLORE: examples and noise then come from the operating system, with ten times as many examples.

Not reproducible in either mode: subprocesses and forked children, which draw keys from the operating system, and the
order in which threads draw keys.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from zerosum.noise import sampler
from zerosum.noise.sampler import Sampler

EXPLORE = bool(os.environ.get("ZEROSUM_EXPLORE"))
_FACTOR = 10  # examples of an exploring run for each example of a default run; chosen by hand
_shared = Sampler.shared  # not replaced


def examples(count: int) -> int:
    """The budget of a test with its own `max_examples`: `count` by default, ten times that in an exploring run."""
    return count * _FACTOR if EXPLORE else count


def load_profile() -> None:
    """Registers and loads the Hypothesis profile of this run."""
    # No test may fail because the machine is slow or busy. Examples may share function-scoped fixtures, which only
    # provide folders.
    lenient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    settings.register_profile("steady", lenient, derandomize=True, database=None)
    # Said, since Hypothesis derandomises by default where the environment says CI.
    settings.register_profile("explore", lenient, derandomize=False, max_examples=examples(100))
    settings.load_profile("explore" if EXPLORE else "steady")
    if not EXPLORE:
        # Hypothesis also draws constants found in the source of the project's imported modules. Which modules are
        # imported depends on the tests that ran before in the same process, and `derandomize` does not account for
        # that, so reproducible runs use Hypothesis' own constants only.
        providers._get_local_constants = lambda: providers._local_constants


class _Keys:
    """Stands in for `os` in `zerosum.noise.sampler`, with keys derived from a seed."""

    def __init__(self, seed: str) -> None:
        self._seed, self._count, self._pid = seed, itertools.count(), os.getpid()

    def urandom(self, size: int) -> bytes:
        if os.getpid() != self._pid:  # a forked child's copy of the counter would repeat the keys of its parent
            return os.urandom(size)
        return hashlib.shake_256(f"{next(self._count)} {self._seed}".encode()).digest(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@contextmanager
def reproducible(seed: str) -> Iterator[None]:
    """Within the block the noise of `Sampler.system` and `Sampler.shared` and the draws of the module `random` follow
    from `seed`. A new pair of sites gets the next stream, whatever key their secrets, the plan and its fresh name made.
    """
    pairs = _Keys(f"pairs {seed}")
    streams: dict[bytes, bytes] = {}

    def reproducibly_shared(_: type[Sampler], key: bytes) -> Sampler:
        return _shared(streams.get(key) or streams.setdefault(key, pairs.urandom(32)))

    state = random.getstate()
    random.seed(seed)
    try:
        with (
            patch.object(sampler, "os", _Keys(seed)),
            patch.object(Sampler, "shared", classmethod(reproducibly_shared)),
        ):
            yield
    finally:
        random.setstate(state)
