"""Phases of sub-sampled sums: the noise of a step, so that the phase costs what its share of the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from zerosum.kernel.accountant import epsilon, mixed_epsilon
from zerosum.kernel.events import Sampling, Subsampled

_PRECISION = 1e-3  # of a step's mu: noise that is so much larger than it must be
MOST_MU = 2.0  # of a step: with less noise than half a unit's bound, sampling hides nobody who is in the sample


@lru_cache(maxsize=256)
def step_mu(mu: float, sampling: Sampling, delta: float) -> float:
    """The largest mu of a step at which the phase alone costs no more, at this delta, than one sum of this mu.

    Without sampling, steps of mu/(2 sqrt(steps)) would: a replaced unit is there with one value or the other, twice its
    bound apart. Sampling only hides it better, so that this is where the search begins.

    >>> step_mu(1.0, Sampling(1.0, 4), 1e-5) >= 0.25 * (1 - 1e-3)
    True
    """
    target = epsilon(mu, delta)
    floor = mu / (2 * math.sqrt(sampling.steps)) * (1 - _PRECISION)  # what PLDs round up is less than that
    return _largest(
        floor, lambda m: mixed_epsilon(0.0, (Subsampled(m, sampling.rate, sampling.steps),), delta) <= target
    )


def step_mus(
    mu: float, plain: float, phases: Sequence[tuple[float, Sampling]], eps: float, delta: float
) -> list[float]:
    """The mu of a step of each phase: `phases` are shares and samplings, `plain` the mu of all other releases, and `mu`
    that of the whole study."""
    alone = [step_mu(mu * math.sqrt(share), sampling, delta) for share, sampling in phases]

    def fits(factor: float) -> bool:
        events = [Subsampled(m * factor, each.rate, each.steps) for m, (_, each) in zip(alone, phases, strict=True)]
        return mixed_epsilon(plain, events, delta) <= eps

    factor = 1.0 if fits(1.0) else _largest(0.25, fits)
    return [m * factor for m in alone]


def _largest(low: float, fits: Callable[[float], bool]) -> float:
    """The largest number, up to `MOST_MU`, at which something still holds that holds for small ones, from below."""
    while not fits(low):
        low /= 2
    if fits(MOST_MU):
        return MOST_MU
    high = min(2 * low, MOST_MU)
    while high < MOST_MU and fits(high):
        low, high = high, min(2 * high, MOST_MU)
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
