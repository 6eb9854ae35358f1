"""Phases of sub-sampled sums: the noise of a step, so that the phase costs what its share of the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable

from zerosum.kernel.accountant import epsilon, trial_epsilon
from zerosum.kernel.computed_once import computed_once
from zerosum.kernel.events import Sampling, Subsampled

_PRECISION = 1e-3  # of a step's mu: noise that is so much larger than it must be
_WITHIN = _PRECISION / 4  # the interpolation stops at a bracket this narrow: bisection rarely has a probe inside it
_MOST_PROBES = 12  # of the interpolation; typically 4 to 6, and bisection does the rest
MOST_MU = 2.0  # of a step: with less noise than half a unit's bound, sampling hides nobody who is in the sample


@computed_once(maxsize=256)
def step_mu(mu: float, sampling: Sampling, delta: float) -> float:
    """The largest mu of a step at which the phase alone costs no more, at this delta, than one sum of this mu.

    Without sampling, steps of mu/(2 sqrt(steps)) would: a replaced unit is there with one value or the other, twice its
    bound apart. Sampling only hides it better, so that this is where the search begins.

    >>> step_mu(1.0, Sampling(1.0, 4), 1e-5) >= 0.25 * (1 - 1e-3)
    True
    """
    target = epsilon(mu, delta)
    floor = mu / (2 * math.sqrt(sampling.steps)) * (1 - _PRECISION)  # what PLDs round up is less than that
    fits = _Threshold(lambda m: trial_epsilon(0.0, (Subsampled(m, sampling.rate, sampling.steps),), delta), target)
    fits.narrow(floor)
    return _largest(floor, fits)


@computed_once(maxsize=256, at_once=1)
def step_mus(
    mu: float, plain: float, phases: tuple[tuple[float, Sampling], ...], eps: float, delta: float
) -> tuple[float, ...]:
    """The mu of a step of each phase: `phases` are shares and samplings, `plain` the mu of all other releases, and `mu`
    that of the whole study.

    This takes seconds, most of them in Python code, which keeps every other thread of the process from running: so one
    plan is calibrated at a time. Plans without sub-sampled phases are not calibrated here and never wait for it.
    """
    alone = [step_mu(mu * math.sqrt(share), sampling, delta) for share, sampling in phases]

    def cost(factor: float) -> float:
        events = [Subsampled(m * factor, each.rate, each.steps) for m, (_, each) in zip(alone, phases, strict=True)]
        return trial_epsilon(plain, events, delta)

    fits, factor = _Threshold(cost, eps), 1.0
    if not fits(1.0):
        fits.narrow(0.25)
        factor = _largest(0.25, fits)
    return tuple(m * factor for m in alone)


class _Threshold:
    """Whether a cost stays within a limit. The cost grows with its argument, so an argument below one that fits, or
    above one that does not, is answered without another evaluation."""

    def __init__(self, cost: Callable[[float], float], limit: float) -> None:
        self._cost, self._limit = cost, limit
        self._low, self._low_cost = 0.0, 0.0  # the largest argument known to fit
        self._high, self._high_cost = math.inf, math.inf  # the smallest known not to

    def __call__(self, argument: float) -> bool:
        if argument <= self._low:
            return True
        if argument >= self._high:
            return False
        cost = self._cost(argument)
        if cost <= self._limit:
            self._low, self._low_cost = argument, cost
            return True
        self._high, self._high_cost = argument, cost
        return False

    def narrow(self, start: float) -> None:
        """Bracket the limit closely, by interpolating log cost against log argument, which is nearly a line.

        Costs far above the limit are not evaluated on the way: privacy loss distributions with so little noise take
        gigabytes.
        """
        guess = start
        for _ in range(_MOST_PROBES):
            self(min(guess, MOST_MU))
            if self._low >= MOST_MU or self._high <= self._low * (1 + _WITHIN):
                return
            guess = self._guess()

    def _guess(self) -> float:
        """The next argument to evaluate, strictly between the two that are known."""
        low, high = self._low, self._high
        if math.isinf(high):
            if self._low_cost == 0:  # delta alone covers a rate this small, often at any noise
                return MOST_MU
            # A cost grows at least in proportion: the limit lies at this ratio or below it.
            return low * min(max(self._limit / self._low_cost, 1 + _WITHIN), 8.0)
        if low == 0:  # the same from above
            return high * min(max(self._limit / self._high_cost, 1 / 8), 1 - _WITHIN)
        if self._low_cost > 0 and math.isfinite(self._high_cost):
            slope = math.log(high / low) / math.log(self._high_cost / self._low_cost)
            root = low * math.pow(self._limit / self._low_cost, slope)
        else:
            root = math.sqrt(low * high)
        # A little to the side that is further away, so that the bracket closes from both sides.
        side = 1 + _WITHIN / 3 if high / root > root / low else 1 - _WITHIN / 3
        return min(max(root * side, low * (1 + _WITHIN / 3)), high * (1 - _WITHIN / 3))


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
