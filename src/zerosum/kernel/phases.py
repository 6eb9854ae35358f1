"""Calibration of sub-sampled phases: the largest mu of a step at which the phase costs its share of the budget.

A phase of k steps at sampling rate q has no closed form. Its epsilon at a given delta is computed from the privacy loss
distribution (`zerosum.kernel.accountant.trial_epsilon`), which takes from milliseconds to seconds. The search below
evaluates it as rarely as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from zerosum.kernel.accountant import epsilon, trial_epsilon
from zerosum.kernel.computed_once import computed_once
from zerosum.kernel.events import Sampling, Subsampled

_PRECISION = 1e-3  # relative precision of a step's mu; the noise is larger than necessary by at most this factor
# relative width of the bracket at which interpolation stops; bisection then rarely needs another evaluation
_WITHIN = _PRECISION / 4
_MOST_PROBES = 12  # most evaluations of the interpolation; typically 4 to 6 are used, and bisection follows
# largest mu of a step: with noise below half of a unit's bound, sampling does not hide a unit that is in the sample
MOST_MU = 2.0


@computed_once(maxsize=256)
def step_mu(mu: float, sampling: Sampling, delta: float) -> float:
    """The largest mu of a step at which the phase alone costs no more, at this delta, than one sum of mu `mu`.

    Without sampling, steps of mu/(2 sqrt(steps)) would cost as much: a replaced unit is present with one value or the
    other, which are at most twice its bound apart. Sampling only lowers the cost, so the search starts at this value.

    >>> step_mu(1.0, Sampling(1.0, 4), 1e-5) >= 0.25 * (1 - 1e-3)
    True
    """
    target = epsilon(mu, delta)
    # the discretisation of privacy loss distributions rounds costs up by less than that
    floor = mu / (2 * math.sqrt(sampling.steps)) * (1 - _PRECISION)
    fits = _Threshold(lambda m: trial_epsilon(0.0, (Subsampled(m, sampling.rate, sampling.steps),), delta), target)
    fits.narrow(floor)
    return _largest(floor, fits)


@computed_once(maxsize=256, at_once=1)
def step_mus(
    mu: float, plain: float, phases: tuple[tuple[float, Sampling], ...], eps: float, delta: float
) -> tuple[float, ...]:
    """The mu of a step of each phase, such that the whole study costs at most (eps, delta).

    Parameters
    ----------
    mu:
        The mu of the whole study.
    plain:
        The mu of all releases that are not sub-sampled, together.
    phases:
        Share of the budget and sampling of each phase.
    eps, delta:
        The budget of the whole study.

    The computation takes seconds, most of them in Python code that blocks the other threads of the process. Therefore
    one plan is calibrated at a time. Plans without sub-sampled phases are not calibrated here and never wait.
    """
    # First each phase alone at its share; then one common factor, since the losses of different mechanisms do not
    # compose by adding squares.
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
    """Whether a cost stays within a limit, with the results of earlier evaluations kept.

    The cost grows with its argument. An argument below one that fits, or above one that does not fit, is answered
    without another evaluation.
    """

    def __init__(self, cost: Callable[[float], float], limit: float) -> None:
        self._cost, self._limit = cost, limit
        self._low, self._low_cost = 0.0, 0.0  # largest argument known to fit, and its cost
        self._high, self._high_cost = math.inf, math.inf  # smallest argument known not to fit, and its cost

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
        """Narrow the bracket by interpolating log cost against log argument, which is nearly linear.

        Costs far above the limit are not evaluated: privacy loss distributions with so little noise take gigabytes of
        memory.
        """
        guess = start
        for _ in range(_MOST_PROBES):
            self(min(guess, MOST_MU))
            if self._low >= MOST_MU or self._high <= self._low * (1 + _WITHIN):
                return
            guess = self._guess()

    def _guess(self) -> float:
        """The next argument to evaluate, strictly between the two ends of the bracket."""
        low, high = self._low, self._high
        if math.isinf(high):
            if self._low_cost == 0:  # delta alone covers a rate this small, often at any noise level
                return MOST_MU
            # The cost grows at least in proportion to its argument: the root lies at this ratio or below it.
            return low * min(max(self._limit / self._low_cost, 1 + _WITHIN), 8.0)
        if low == 0:  # the same bound from above
            return high * min(max(self._limit / self._high_cost, 1 / 8), 1 - _WITHIN)
        if self._low_cost > 0 and math.isfinite(self._high_cost):
            slope = math.log(high / low) / math.log(self._high_cost / self._low_cost)
            root = low * math.pow(self._limit / self._low_cost, slope)
        else:
            root = math.sqrt(low * high)
        # A small step to the side that is further away, so that the bracket closes from both sides.
        side = 1 + _WITHIN / 3 if high / root > root / low else 1 - _WITHIN / 3
        return min(max(root * side, low * (1 + _WITHIN / 3)), high * (1 - _WITHIN / 3))


def _largest(low: float, fits: Callable[[float], bool]) -> float:
    """The largest number up to `MOST_MU` at which `fits` holds, to a relative precision of `_PRECISION`, rounded down.

    `fits` must hold for small numbers and must not hold again above the first number at which it fails.
    """
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
