"""What a Gaussian release costs: composition, (epsilon, delta), calibration, and the published accountants.

A release that shifts by at most D in L2 norm and carries Gaussian noise of standard deviation sigma is exactly
mu-Gaussian-DP with mu = D / sigma (Dong, Roth, Su 2022). Everything here is a function of mu:

    compose          mu_total^2 = sum of mu^2
    delta, epsilon   delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), and its inverse in eps
    mu_for           its inverse in mu, rounded to the private side

The second half keeps the accountants that the papers use, for comparison only: at every setting the exact
epsilon is the smallest of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, ndtr

from zerosum.errors import BadParameter

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


SMALLEST, LARGEST = 1e-100, 1e100  # amounts whose squares, and these times noise, stay well inside double precision
MOST = 10**12  # of anything counted


def check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise BadParameter(f"epsilon must be positive and finite, got {epsilon:g}")
    check_amount("epsilon", epsilon)


def check_amount(what: str, value: float) -> None:
    """Refuse NaN, infinities, zero, negative numbers, and numbers that nobody means and arithmetic cannot hold."""
    if not SMALLEST <= value <= LARGEST:
        raise BadParameter(f"{what} must lie between {SMALLEST:g} and {LARGEST:g}, got {_shown(value)}")


def check_count(what: str, value: int, least: int = 1) -> None:
    if not least <= value <= MOST:
        raise BadParameter(f"{what} must be a whole number from {least} to {MOST:g}, got {_shown(value)}")


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:  # a whole number beyond double precision
        return "one with hundreds of digits"


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise BadParameter(f"delta must lie strictly between 0 and 1, got {delta:g}")
    check_amount("delta", delta)


def _check_mu(mu: float) -> None:
    if math.isnan(mu) or mu < 0:
        raise BadParameter(f"mu must not be negative, got {mu:g}")


def compose(mus: Iterable[float]) -> float:
    """The mu of several releases together; adaptively chosen ones included.

    >>> compose([3.0, 4.0])
    5.0
    """
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def _log_delta(mu: float, epsilon: float) -> float:
    """log delta(epsilon), accurate from tiny to huge mu.

    With a = mu/2 - eps/mu and b = -mu/2 - eps/mu one has phi(a) = e^eps phi(b), so with the Mills ratio
    M(x) = Phi(-x)/phi(x) the difference of two nearly equal terms becomes phi(a) (M(-a) - M(-b)): no exponent
    of epsilon is left to cancel.
    """
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    log_phi_a = -0.5 * a * a - _LOG_SQRT_2PI
    if a < 0:
        mills = math.sqrt(math.pi / 2) * (erfcx(-a / math.sqrt(2)) - erfcx(-b / math.sqrt(2)))
        return log_phi_a + math.log(mills) if mills > 0 else -math.inf
    second = math.exp(log_phi_a) * math.sqrt(math.pi / 2) * float(erfcx(-b / math.sqrt(2)))
    gap = float(ndtr(a)) - second
    return math.log(gap) if gap > 0 else -math.inf


def delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which a mu-Gaussian-DP view is (epsilon, delta)-DP.

    >>> round(delta(1.0, 1.0), 6)
    0.126937
    """
    _check_mu(mu)
    if math.isnan(epsilon) or epsilon < 0:
        raise BadParameter(f"epsilon must not be negative, got {epsilon:g}")
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return math.exp(_log_delta(mu, epsilon))


def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-Gaussian-DP view is (epsilon, delta)-DP.

    >>> round(epsilon(1.0, 1e-5), 4)
    4.3772
    """
    _check_mu(mu)
    check_delta(delta)
    if mu == 0:
        return 0.0
    if mu > 1e6:  # the bound below is within 1e-5 of the root, which doubles no longer resolve
        return rdp_published(mu, delta)
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    upper = rdp_published(mu, delta)
    root = float(brentq(lambda e: _log_delta(mu, e) - target, 0.0, upper, xtol=1e-300, rtol=1e-15))
    return _nudge(root, lambda e: _log_delta(mu, e) <= target, upward=True)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu that keeps a view (epsilon, delta)-DP: calibration, rounded to the private side.

    >>> round(mu_for(1.0, 1e-5), 4)
    0.2681
    """
    check_epsilon(epsilon)
    check_delta(delta)
    target = math.log(delta)
    upper = 1.0
    while _log_delta(upper, epsilon) < target:
        upper *= 2
    lower = upper
    while _log_delta(lower, epsilon) > target:
        lower /= 2
    root = lower
    if lower < upper:
        root = float(brentq(lambda m: _log_delta(m, epsilon) - target, lower, upper, xtol=1e-300, rtol=1e-15))
    return _nudge(root, lambda m: _log_delta(m, epsilon) <= target, upward=False)


def _nudge(root: float, private: Callable[[float], bool], *, upward: bool) -> float:
    """Move a root by a few units in the last place until the private side's inequality holds."""
    step = 2.0**-52
    while not private(root):
        root *= 1 + step if upward else 1 - step
        step *= 2
    return root


def with_distance(epsilon_at: Callable[[float], float], distance: float, delta: float) -> float:
    """eps when delta also pays (1 + e^eps) `distance`, the price of drawing from nearly the right law.

    `epsilon_at(delta)` is the eps of the right law. Infinite where more than a hundredth of delta would go that way.

    >>> with_distance(lambda d: epsilon(1.0, d), 1e-12, 1e-5) >= epsilon(1.0, 1e-5)
    True
    """
    eps = epsilon_at(delta)
    for _ in range(20 if distance > 0 else 0):
        extra = (1 + math.exp(min(eps, 700.0))) * distance
        if extra > delta / 100:
            return math.inf
        higher = epsilon_at(delta - extra)
        if higher <= eps:
            return eps
        eps = higher
    return eps


# ---- for comparison: what the papers and their peers would report for the same mu ---------------------------


def rdp_published(mu: float, delta: float) -> float:
    """Renyi accounting with the conversion the papers use (paper 000, propositions 3 to 5), best order.

    >>> round(rdp_published(1.0, 1e-5), 4)
    5.2985
    """
    check_delta(delta)
    return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))


def rdp(mu: float, delta: float) -> float:
    """Renyi accounting at its best: the tighter conversion of Canonne, Kamath, Steinke 2020, best order.

    >>> epsilon(1.0, 1e-5) < rdp(1.0, 1e-5) < rdp_published(1.0, 1e-5)
    True
    """
    check_delta(delta)
    if mu == 0:
        return 0.0

    def at(log_order_less_one: float) -> float:
        order = 1 + math.exp(log_order_less_one)
        converted = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        return mu * mu * order / 2 + converted

    best = 0.5 * math.log(2 * math.log(1 / delta)) - math.log(mu)
    found = minimize_scalar(at, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10})
    return max(0.0, min(float(found.fun), rdp_published(mu, delta)))


def moments(mu: float, delta: float, orders: int = 64) -> float:
    """The moments accountant of Abadi et al. 2016 over integer orders up to `orders`.

    With a continuous order it equals `rdp_published`: delta = min_t exp(mu^2 (t + t^2)/2 - t eps) at
    t = eps/mu^2 - 1/2. The quadratic printed in paper 000 (section IV-B) has -eps where this gives -eps/2.

    >>> moments(1.0, 1e-5) >= rdp_published(1.0, 1e-5)
    True
    """
    check_delta(delta)
    return min(mu * mu * (t + 1) / 2 - math.log(delta) / t for t in range(1, orders + 1))


def strong_composition(mus: Iterable[float], delta: float) -> float:
    """Strong composition (Dwork, Rothblum, Vadhan 2010) of single releases, each converted exactly.

    Half of delta pays for the composition unless another split is better; the best of nine is taken.

    >>> strong_composition([0.1] * 100, 1e-5) > epsilon(1.0, 1e-5)
    True
    """
    check_delta(delta)
    releases = list(mus)
    if not releases:
        return 0.0

    def at(slack: float) -> float:
        each = {mu: epsilon(mu, delta * (1 - slack) / len(releases)) for mu in set(releases)}
        singles = [each[mu] for mu in releases]
        spread = math.sqrt(2 * math.log(1 / (slack * delta)) * math.fsum(e * e for e in singles))
        drift = math.fsum(e * math.expm1(e) if e < 700 else math.inf for e in singles)
        return min(math.fsum(singles), spread + drift)

    return min(at(slack / 10) for slack in range(1, 10))


def gaussian_mechanism(sensitivity: float, tau: float, delta: float) -> float:
    """The textbook formula eps = sqrt(2 ln(1.25/delta)) D/tau, proved for eps < 1 only.

    >>> round(gaussian_mechanism(1.0, 4.8448, 1e-5), 3)
    1.0
    """
    check_delta(delta)
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / tau


def theorem_1(sites: int, colluders: int) -> float | None:
    """mu^2 at D = tau = 1 as claimed by Theorem 1 of papers 000 and 003, or None outside its assumptions.

    It leaves out that colluders know their own draws; the exact figure is up to 2.5 times larger.

    >>> theorem_1(3, 0)
    1.25
    """
    S, C = sites, colluders
    if S < 2 or math.ceil(S / 3) - 1 < C:
        return None
    return S / (S + 1) * ((S - C + 2) / (S - C) + 9 * C * C / (S - C) / (S * (S + 1) - 3 * C * C))


def theorem_1_epsilon(claimed_mu_squared: float, delta: float) -> float:
    """The eps that Theorem 1 reads off its claimed mu^2: delta = 2 sigma_z/(eps - mu_z) phi((eps - mu_z)/sigma_z).

    >>> round(theorem_1_epsilon(1.25, 1e-5), 3)
    5.575
    """
    check_delta(delta)
    mean, spread = claimed_mu_squared / 2, math.sqrt(claimed_mu_squared)
    target = math.log(delta / 2)
    x = float(brentq(lambda x: -0.5 * x * x - _LOG_SQRT_2PI - math.log(x) - target, 1e-12, 1e3))
    return mean + spread * x


def claimed_mu_squared(scheme: str, sites: int, colluders: int) -> float | None:
    """mu^2 at D = tau = 1 as the papers claim it for a scheme of theirs, None where they have no formula.

    Papers 000 and 003 have Theorem 1; paper 002 takes each message's marginal variance, tau^2, at face value.
    """
    if scheme == "cape-published":
        return theorem_1(sites, colluders)
    return 1.0 if scheme == "cape-helper" else None


def claimed_epsilon(scheme: str, mu_squared: float, delta: float) -> float:
    """The eps the papers would read off their claimed mu^2, by their own formulas."""
    if scheme == "cape-published":
        return theorem_1_epsilon(mu_squared, delta)
    return gaussian_mechanism(math.sqrt(mu_squared), 1.0, delta)


# ---- sub-sampled releases ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subsampled:
    """`steps` releases, each over a Poisson sample of the units at `rate`.

    `mu` is one step's loss for a unit that is present or absent: the bound on its contribution's norm over the
    effective noise. A replaced unit's own sensitivity is not enough here: it may be smaller than twice that bound, and
    the sampled mechanism's loss is not a function of it.
    """

    mu: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        _check_mu(self.mu)
        if not 0 < self.rate <= 1:
            raise BadParameter(f"the sampling rate must lie in (0, 1], got {self.rate:g}")
        if self.steps < 1:
            raise BadParameter(f"steps must be at least 1, got {self.steps}")


def mixed_epsilon(mu: float, sampled: Iterable[Subsampled], delta: float) -> float:
    """eps of plain releases of total loss `mu` together with sub-sampled ones, one unit replaced.

    By the privacy loss distributions of dp-accounting, pessimistic: its replaced unit contributes +c and -c, as far
    apart as a norm bound c allows. Add/remove accounting would be smaller and untrue for a replaced unit (1.83 instead
    of 2.84 at mu 1, rate 0.01, 1000 steps).
    """
    _check_mu(mu)
    check_delta(delta)
    rest = [event for event in sampled if event.mu > 0]
    if not rest:
        return epsilon(mu, delta)
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    for event in rest:
        gaussian = dp_accounting.GaussianDpEvent(1 / event.mu)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(event.rate, gaussian), event.steps)
    if mu > 0:  # exact for a plain release: +c and -c are its mu apart
        accountant.compose(dp_accounting.GaussianDpEvent(2 / mu))
    return float(accountant.get_epsilon(delta))
