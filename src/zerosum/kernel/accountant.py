"""Accounting of Gaussian releases: composition, conversion to (epsilon, delta), and calibration.

A release that shifts by at most D in L2 norm and carries Gaussian noise of standard deviation sigma is exactly
mu-Gaussian-DP with mu = D / sigma (Dong, Roth, Su 2022). Every function of plain releases is a function of mu:

    compose          mu_total^2 = sum of mu^2
    delta, epsilon   delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), and its inverse in eps
    mu_for           its inverse in mu, rounded to the private side

Phi is the distribution function of the standard normal. Sub-sampled releases (`zerosum.kernel.events.Subsampled`) and
releases with Laplace noise (`LaplaceSum`) are composed by their privacy loss distributions, with dp_accounting.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.amounts import check_delta, check_epsilon, check_mu
from zerosum.kernel.computed_once import computed_once
from zerosum.kernel.events import LaplaceSum, Subsampled
from zerosum.kernel.laplace import Curve
from zerosum.kernel.roots import find_root

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
# Spacing of the losses of privacy loss distributions, the default of dp_accounting.
_INTERVAL = 1e-4
# Bounded losses of more than this in total have a coarser grid, so that their loss distribution has 10^6 places at
# most; beside sub-sampled phases they add up by basic composition. Chosen by hand; no benchmark recorded.
MOST_COMPOSED = 50.0
# Bounded losses of more than this add up by basic composition in every case: no budget is that large.
_MOST_BOUND = 1e4
_CONVOLUTION_ERROR = 1e-12  # added to delta; the rounding of the Fourier transforms is far below it
_TRIMMED = 1e-14  # probability that a composition may trim from the ends of its distribution; added to delta
_SOLVED = 4096  # solutions of epsilon and of mu that are cached; two floats each


Other = Subsampled | LaplaceSum


def compose(mus: Iterable[float]) -> float:
    """The mu of several releases together: the root of the sum of squares. It holds for adaptively chosen releases as
    well.

    >>> compose([3.0, 4.0])
    5.0
    """
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def _log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon), accurate from very small to very large mu.

    With a = mu/2 - eps/mu and b = -mu/2 - eps/mu one has phi(a) = e^eps phi(b), where phi is the density of the
    standard normal. With the Mills ratio M(x) = Phi(-x)/phi(x), the difference of two nearly equal terms becomes phi(a)
    (M(-a) - M(-b)). This form contains no e^eps, so that it neither overflows nor cancels.
    """
    from scipy.special import erfcx, ndtr

    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    log_phi_a = -0.5 * a * a - _LOG_SQRT_2PI
    # M(x) = sqrt(pi/2) erfcx(x/sqrt(2)). For a < 0 both arguments are positive, where erfcx is bounded and decreasing.
    if a < 0:
        mills = math.sqrt(math.pi / 2) * (erfcx(-a / math.sqrt(2)) - erfcx(-b / math.sqrt(2)))
        return log_phi_a + math.log(mills) if mills > 0 else -math.inf
    # For a >= 0 erfcx(-a/sqrt(2)) would overflow at large a. Phi(a) is at least 1/2 there and is used directly.
    second = math.exp(log_phi_a) * math.sqrt(math.pi / 2) * float(erfcx(-b / math.sqrt(2)))
    gap = float(ndtr(a)) - second
    return math.log(gap) if gap > 0 else -math.inf


def delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which a mu-Gaussian-DP view is (epsilon, delta)-DP.

    >>> round(delta(1.0, 1.0), 6)
    0.126937
    """
    check_mu(mu)
    if math.isnan(epsilon) or epsilon < 0:
        raise BadParameter(f"epsilon must not be negative, got {epsilon:g}")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_delta(mu, epsilon))


def renyi_bound(mu: float, delta: float) -> float:
    """An upper bound on epsilon(mu, delta): Renyi accounting at its best order, mu^2/2 + mu sqrt(2 ln(1/delta))."""
    return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))


def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-Gaussian-DP view is (epsilon, delta)-DP.

    >>> round(epsilon(1.0, 1e-5), 4)
    4.3772
    """
    check_mu(mu)
    check_delta(delta)
    if mu == 0:
        return 0.0
    if mu > 1e6:  # the bound below is within 1e-5 of the root, which doubles no longer resolve
        return renyi_bound(mu, delta)
    return _solve_epsilon(float(mu), float(delta))


@lru_cache(maxsize=_SOLVED)
def _solve_epsilon(mu: float, delta: float) -> float:
    """`epsilon` for 0 < mu <= 1e6. A study asks for the same values in plans, ledgers and reports."""
    # Solve in log delta, since delta itself may be far below the resolution of a difference of probabilities.
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    # The Renyi bound is an upper bound on the root, and delta(0) > delta was checked, so the bracket contains the root.
    upper = renyi_bound(mu, delta)
    root = find_root(lambda e: _log_delta(mu, e) - target, 0.0, upper, absolute=1e-300, relative=1e-15)
    return _nudge(root, lambda e: _log_delta(mu, e) <= target, upward=True)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that keeps a view (epsilon, delta)-DP, rounded to the private side: used for calibration.

    >>> round(mu_for(1.0, 1e-5), 4)
    0.2681
    """
    check_epsilon(epsilon)
    check_delta(delta)
    return _solve_mu(float(epsilon), float(delta))


@lru_cache(maxsize=_SOLVED)
def _solve_mu(epsilon: float, delta: float) -> float:
    """`mu_for` of valid arguments."""
    target = math.log(delta)
    # delta(epsilon) increases with mu. Double and halve until the bracket contains the root.
    upper = 1.0
    while _log_delta(upper, epsilon) < target:
        upper *= 2
    lower = upper
    while _log_delta(lower, epsilon) > target:
        lower /= 2
    root = lower
    if lower < upper:
        root = find_root(lambda m: _log_delta(m, epsilon) - target, lower, upper, absolute=1e-300, relative=1e-15)
    return _nudge(root, lambda m: _log_delta(m, epsilon) <= target, upward=False)


def _nudge(root: float, private: Callable[[float], bool], *, upward: bool) -> float:
    """Move a root by a few units in the last place until `private` holds.

    `upward` is the private direction: up for an epsilon that is reported, down for a mu that noise is calibrated to.
    """
    step = 2.0**-52
    while not private(root):
        root *= 1 + step if upward else 1 - step
        step *= 2
    return root


def with_distance(epsilon_at: Callable[[float], float], distance: float, delta: float) -> float:
    """The eps at `delta` if delta also pays (1 + e^eps) `distance`, the cost of noise that is drawn within `distance`
    (total variation) of the accounted distribution.

    `epsilon_at(delta)` is the eps of the accounted distribution. The result is infinite if this cost exceeds a
    hundredth of delta.

    >>> with_distance(lambda d: epsilon(1.0, d), 1e-12, 1e-5) >= epsilon(1.0, 1e-5)
    True
    """
    eps = epsilon_at(delta)
    # Fixed point iteration: the cost depends on eps and lowers the delta that is left, which raises eps. The cost is at
    # most a hundredth of delta, so that each iteration changes eps much less than the one before.
    for _ in range(20 if distance > 0 else 0):
        extra = (1 + math.exp(min(eps, 700.0))) * distance
        if extra > delta / 100:
            return math.inf
        higher = epsilon_at(delta - extra)
        if higher <= eps:
            return eps
        eps = higher
    return eps


def mixed_epsilon(mu: float, others: Iterable[Other], delta: float) -> float:
    """The eps of plain releases of total loss `mu` together with others, for one replaced unit.

    Computed by the privacy loss distributions of dp-accounting, pessimistic: its replaced unit contributes +c and -c,
    as far apart as a norm bound c allows. Add/remove accounting would be smaller and untrue for a replaced unit (1.83
    instead of 2.84 at mu 1, rate 0.01, 1000 steps).

    Parameters
    ----------
    mu:
        The mu of all plain releases.
    others:
        Sub-sampled releases, and releases with Laplace noise.
    delta:
        The delta at which eps is computed.
    """
    check_delta(delta)
    return mixed_curve(mu, others)(delta)


def mixed_curve(mu: float, others: Iterable[Other]) -> Callable[[float], float]:
    """`mixed_epsilon` as a function of delta alone: one composition is used for every delta."""
    check_mu(mu)
    return _curve(mu, others, _mixed)


def trial_epsilon(mu: float, others: Iterable[Other], delta: float) -> float:
    """`mixed_epsilon` for one evaluation of a search. Its loss distributions are not cached, since no other call needs
    them and they would displace those of ledgers.
    """
    check_mu(mu)
    check_delta(delta)
    return _curve(mu, others, lambda plain, rest: _with_plain(_compose(rest), plain))(delta)


def _curve(
    mu: float, others: Iterable[Other], composed: Callable[[float, tuple[Other, ...]], Any]
) -> Callable[[float], float]:
    """The eps of a composition as a function of delta.

    Parameters
    ----------
    mu:
        The mu of all plain releases.
    others:
        All other releases.
    composed:
        Composes both into one loss distribution, where some are sub-sampled.
    """
    rest, pure = _merge(others)
    if not pure:
        if not rest:
            return lambda delta: epsilon(mu, delta)
        sampled = composed(mu, rest)
        return lambda delta: float(sampled.get_epsilon_for_delta(delta))
    if mu == 0 and not rest and len(pure) == 1 and pure[0].steps == 1:
        return Curve(pure[0].epsilon, pure[0].moves).epsilon_at
    # Basic composition holds for losses of any kind: a release of a bounded loss adds at most this bound to eps. The
    # other ways are rounded up, so that it may be the smaller one.
    bound = _bound(pure)
    without = _curve(mu, rest, composed) if mu > 0 or rest else lambda delta: 0.0
    if bound > (MOST_COMPOSED if rest else _MOST_BOUND):
        return lambda delta: without(delta) + bound
    if rest:
        mixed = composed(mu, (*rest, *pure))
        return lambda delta: min(float(mixed.get_epsilon_for_delta(delta)), without(delta) + bound)
    return lambda delta: _epsilon_beside(mu, pure, delta, without(delta) + bound)


def _epsilon_beside(mu: float, pure: tuple[LaplaceSum, ...], delta: float, upper: float) -> float:
    """The eps of plain releases beside releases with Laplace noise, at most `upper`, rounded up."""
    low = _delta_beside(mu, pure, 0.0)
    if low <= delta:
        return 0.0
    if _delta_beside(mu, pure, upper) >= delta:
        return upper
    root = find_root(lambda e: _delta_beside(mu, pure, e) - delta, 0.0, upper, absolute=1e-12, relative=1e-12)
    return min(upper, _nudge(root + 1e-12, lambda e: _delta_beside(mu, pure, e) <= delta, upward=True))


def _delta_beside(mu: float, pure: tuple[LaplaceSum, ...], eps: float) -> float:
    """The divergence of plain releases beside releases with Laplace noise.

    Losses of independent releases add up. Given the loss l of the Laplace releases, the divergence at eps is that of
    the plain releases at eps - l, which has a closed form for any real argument: delta(eps) is its mean over l.
    """
    interval = _interval(_bound(pure))
    return _delta_of(mu, _bounded_losses(pure, interval), interval, eps)


def _delta_of(mu: float, probabilities: Floats, interval: float, eps: float) -> float:
    """The divergence of plain releases beside losses on a grid."""
    last = len(probabilities) // 2
    # At x = mu^2/2 + 9 mu and beyond, the divergence of the plain releases is at most Phi(-9) = 1e-19; it is left out
    # there, which _CONVOLUTION_ERROR covers. So losses below eps - x do not count.
    first = math.floor((eps - mu * (mu / 2 + 9)) / interval)
    first = max(min(first, last + 1), -last)
    rest = np.asarray(eps - np.arange(first, last + 1) * interval, dtype=np.float64)
    deltas = -np.expm1(np.minimum(rest, 0.0)) if mu == 0 else _deltas(mu, rest)
    # What was trimmed counts as an unlimited loss.
    trimmed = max(1 - float(np.sum(probabilities)), 0.0)
    return float(probabilities[first + last :] @ deltas) + trimmed + _CONVOLUTION_ERROR


def epsilon_within(mu: float, others: Iterable[Other], more: LaplaceSum | None, eps: float, delta: float) -> bool:
    """Whether plain releases, others, and one more with Laplace noise have an epsilon of at most `eps` at `delta`.

    One evaluation of delta at `eps` instead of a solution for epsilon. The losses of the others are composed once and
    kept, so that many values of `mu` and of `more` can be tried.

    Parameters
    ----------
    mu:
        The mu of all plain releases.
    others:
        Sub-sampled releases, and releases with Laplace noise.
    more:
        One more release, or None.
    eps, delta:
        The bound.

    >>> [epsilon_within(0.0, (), LaplaceSum(each, 4096), 1.0, 1e-5) for each in (1.0, 1.01)]
    [True, False]
    """
    check_mu(mu)
    check_delta(delta)
    rest, pure = _merge(others)
    one = () if more is None else (more,)
    bound = _bound((*pure, *one))
    # The exact curve of one release, and losses that are not on this grid.
    if rest or bound > _MOST_BOUND or (mu == 0 and len(pure) + len(one) <= 1):
        epsilon_of = mixed_epsilon if more is None else trial_epsilon  # without `more` the phases are composed once
        return epsilon_of(mu, (*rest, *pure, *one), delta) <= eps
    # Basic composition may be the smaller bound (`_curve`).
    if bound <= eps and (epsilon(mu, delta) if mu > 0 else 0.0) + bound <= eps:
        return True
    # Of the bound of the others and the largest `more` that can fit: the composition of the others is then the same
    # for every `more` of a search.
    interval = _interval(_bound(pure) + eps)
    losses = _bounded_losses(pure, interval) if pure else np.ones(1)
    if more is not None:
        losses = _convolved(losses, Curve(more.epsilon, more.moves).on_grid(interval))
    return _delta_of(mu, losses, interval, eps) <= delta


def _bound(pure: Iterable[LaplaceSum]) -> float:
    """The largest loss of releases with Laplace noise together."""
    return math.fsum(event.epsilon * event.steps for event in pure)


def _interval(bound: float) -> float:
    """The spacing of a grid of losses up to a bound, with at most 10^6 places; a power of two times the usual one.

    The result is an upper bound for every spacing: `Curve.on_grid` dominates the curve for every interval, since its
    divergence lies above the convex curve, and a composition of dominating distributions dominates the composition
    (adaptive compositions included; Zhu, Dong, Wang 2022). The spacing decides the accuracy alone.
    """
    return _INTERVAL * 2.0 ** max(math.ceil(math.log2(bound / MOST_COMPOSED)), 0) if bound > 0 else _INTERVAL


def _deltas(mu: float, eps: Floats) -> Floats:
    """`delta` for an array of real numbers, by the same two forms as `_log_delta`."""
    from scipy.special import erfcx, ndtr

    a, b = mu / 2 - eps / mu, -mu / 2 - eps / mu
    density = np.exp(-0.5 * a * a - _LOG_SQRT_2PI)
    # M(x) = sqrt(pi/2) erfcx(x/sqrt(2)); the arguments are limited where the other form is taken.
    half = math.sqrt(math.pi / 2)
    outer = density * half * (erfcx(np.maximum(-a, 0.0) / math.sqrt(2)) - erfcx(np.maximum(-b, 0.0) / math.sqrt(2)))
    # Phi(a) - e^eps Phi(b), whose second term is phi(a) M(-b) for b < 0 and computed directly for b >= 0, eps < 0.
    second = np.where(b < 0, density * half * erfcx(np.maximum(-b, 0.0) / math.sqrt(2)), 0.0)
    second = np.where(b >= 0, np.exp(np.minimum(eps, 0.0)) * ndtr(b), second)
    return np.asarray(np.where(a < 0, outer, np.maximum(ndtr(a) - second, 0.0)))


@computed_once(maxsize=16)  # an array may have 8 MB
def _bounded_losses(events: tuple[LaplaceSum, ...], interval: float) -> Floats:
    """Probabilities of the losses -n interval, ..., n interval of releases with Laplace noise together, each of them
    rounded up to a dominating distribution (`Curve.on_grid`).
    """
    cut = _TRIMMED / sum(event.steps for event in events)
    total = np.ones(1)
    for event in events:
        power = Curve(event.epsilon, event.moves).on_grid(interval)
        steps = event.steps
        # Repeated squaring.
        while steps:
            if steps & 1:
                total = _trimmed(_convolved(total, power), cut)
            steps >>= 1
            if steps:
                power = _trimmed(_convolved(power, power), cut)
    return total


def _convolved(one: Floats, other: Floats) -> Floats:
    """The distribution of the sum of two independent losses on a grid."""
    from scipy.signal import fftconvolve

    return np.asarray(np.maximum(fftconvolve(one, other), 0.0))


def _trimmed(probabilities: Floats, cut: float) -> Floats:
    """A distribution on a grid about 0 without ends of a probability of at most `cut` each."""
    ends = np.cumsum(np.maximum(probabilities, probabilities[::-1]))
    away = min(int(np.searchsorted(ends, cut)), len(probabilities) // 2)
    return probabilities[away : len(probabilities) - away]


def best_guess(mu: float, others: Iterable[Other] = (), distance: float = 0.0) -> float:
    """Probability that the best test between two equally likely neighbours is right, for releases as in
    `mixed_epsilon`.

    It is (1 + delta(0)) / 2, since delta(0) is the total variation between the views of the two neighbours; Phi(mu / 2)
    for plain releases. Noise that is drawn within `distance` of its accounted distribution moves each of the two views
    by that much.

    >>> round(best_guess(0.2681), 4), best_guess(0.0)
    (0.5533, 0.5)
    """
    rest, pure = _merge(others)
    if _bound(pure) > (MOST_COMPOSED if rest else _MOST_BOUND):
        return 1.0
    if mu == 0 and not rest and len(pure) == 1 and pure[0].steps == 1:
        variation = float(Curve(pure[0].epsilon, pure[0].moves).divergence(0.0))
    elif rest:
        variation = float(_mixed(mu, (*rest, *pure)).get_delta_for_epsilon(0.0))
    elif pure:
        variation = _delta_beside(mu, pure, 0.0)
    else:
        variation = delta(mu, 0.0)
    return min(1.0, (1 + variation) / 2 + distance)


def _merge(others: Iterable[Other]) -> tuple[tuple[Subsampled, ...], tuple[LaplaceSum, ...]]:
    """Sub-sampled phases and sums with Laplace noise, each in one order, equal ones merged: the time of a composition
    depends on the number of different events, not of steps.
    """
    phases: Counter[tuple[float, float]] = Counter()
    pure: Counter[tuple[float, int]] = Counter()
    for event in others:
        if isinstance(event, LaplaceSum):
            pure[event.epsilon, event.moves] += event.steps
        elif event.mu > 0:
            phases[event.mu, event.rate] += event.steps
    return (
        tuple(Subsampled(*each, count) for each, count in sorted(phases.items())),
        tuple(LaplaceSum(*each, count) for each, count in sorted(pure.items())),
    )


def _mixed(mu: float, others: tuple[Other, ...]) -> Any:
    """The loss distribution of a plain release of total loss `mu` and others."""
    return _with_plain(_composed(others), mu)


def _with_plain(losses: Any, mu: float) -> Any:
    """A loss distribution composed with that of a plain release of loss `mu`."""
    if mu == 0:
        return losses
    # exact: under REPLACE_ONE the sensitivity is 2, so noise of 2/mu gives loss mu
    return losses.compose(_gaussian(2 / mu))


@computed_once(maxsize=64)
def _composed(events: tuple[Other, ...]) -> Any:
    """The loss distribution of these events. It takes seconds to compute, and a ledger needs it again with every later
    spend.
    """
    return _compose(events)


def _compose(events: tuple[Other, ...]) -> Any:
    """The loss distribution of these events, not cached. For the REPLACE_ONE relation a unit contributes +1 or -1 where
    it is in the sample.
    """
    from dp_accounting.pld import privacy_loss_distribution

    losses = privacy_loss_distribution.identity(value_discretization_interval=_INTERVAL)
    for event in events:
        single = _laplace(event) if isinstance(event, LaplaceSum) else _gaussian(1 / event.mu, event.rate)
        losses = losses.compose(single.self_compose(event.steps))
    return losses


def _gaussian(noise: float, rate: float = 1.0) -> Any:
    """The loss distribution of a Gaussian sum over a sample, for a unit that contributes +1 or -1."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=noise,
        value_discretization_interval=_INTERVAL,
        sampling_prob=rate,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )


def _laplace(event: LaplaceSum) -> Any:
    """The loss distribution of one sum with Laplace noise, for compositions with sub-sampled sums. The worst neighbours
    are symmetric: one distribution serves both directions.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    probabilities = Curve(event.epsilon, event.moves).on_grid(_INTERVAL)
    last = len(probabilities) // 2
    places = dict(zip(range(-last, last + 1), probabilities.tolist(), strict=True))
    return privacy_loss_distribution.PrivacyLossDistribution(pld_pmf.create_pmf(places, _INTERVAL, 0.0, True))
