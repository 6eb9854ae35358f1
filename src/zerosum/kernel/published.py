"""Accountants of the papers and of related work, for comparison: the epsilon that each would report for the same mu.

At every setting the exact epsilon (`zerosum.kernel.accountant`) is the smallest of them. No plan with exact calibration
uses this module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from zerosum.kernel.accountant import epsilon, renyi_bound
from zerosum.kernel.amounts import check_delta
from zerosum.kernel.roots import find_root


def rdp_published(mu: float, delta: float) -> float:
    """Renyi accounting with the conversion that the papers use (capeDJICA, propositions 3 to 5), at the best order.

    >>> round(rdp_published(1.0, 1e-5), 4)
    5.2985
    """
    check_delta(delta)
    return renyi_bound(mu, delta)


def rdp(mu: float, delta: float) -> float:
    """Renyi accounting with the tighter conversion of Canonne, Kamath, Steinke 2020, at the best order.

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

    # log(order - 1) at the optimum of the plain conversion; the search covers a factor of e^5 on either side.
    best = 0.5 * math.log(2 * math.log(1 / delta)) - math.log(mu)
    from scipy.optimize import minimize_scalar

    minimum = minimize_scalar(at, bounds=(best - 5, best + 5), method="bounded", options={"xatol": 1e-10})
    return max(0.0, min(float(minimum.fun), rdp_published(mu, delta)))


def moments(mu: float, delta: float, orders: int = 64) -> float:
    """The moments accountant of Abadi et al. 2016 over integer orders up to `orders`.

    With a continuous order it equals `rdp_published`: delta = min_t exp(mu^2 (t + t^2)/2 - t eps) at t = eps/mu^2 -
    1/2. The quadratic printed for capeDJICA (section IV-B) has -eps where this gives -eps/2.

    >>> moments(1.0, 1e-5) >= rdp_published(1.0, 1e-5)
    True
    """
    check_delta(delta)
    return min(mu * mu * (t + 1) / 2 - math.log(delta) / t for t in range(1, orders + 1))


def strong_composition(mus: Iterable[float], delta: float) -> float:
    """Strong composition (Dwork, Rothblum, Vadhan 2010) of single releases, each converted exactly.

    A part of delta, `slack`, pays for the composition, and the rest is divided over the releases. The best of nine
    splits is taken.

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
        # expm1 overflows in double precision beyond 709.
        drift = math.fsum(e * math.expm1(e) if e < 700 else math.inf for e in singles)
        return min(math.fsum(singles), spread + drift)

    return min(at(slack / 10) for slack in range(1, 10))


def best_order(mu: float, delta: float) -> float:
    """alpha_opt of the papers, the order at which `rdp_published` is smallest: 1 + sqrt(2 ln(1/delta))/mu.

    >>> round(best_order(1.0, 1e-5), 3)
    5.799
    """
    check_delta(delta)
    return 1 + math.sqrt(2 * math.log(1 / delta)) / mu


def composed(mu: float, rounds: int, delta: float) -> dict[str, float]:
    """The epsilon of `rounds` Gaussian releases of loss `mu` each, by the exact accountant and by every other one.

    `basic_composition` converts each release exactly at delta/rounds and adds up. `textbook` does the same with the
    formula of the Gaussian mechanism, as the papers calibrate.

    >>> found = composed(0.1, 100, 1e-5)
    >>> found["exact"] == min(found.values())
    True
    """
    total = mu * math.sqrt(rounds)
    return {
        "exact": epsilon(total, delta),
        "rdp": rdp(total, delta),
        "rdp_published": rdp_published(total, delta),
        "moments": moments(total, delta),
        "strong_composition": strong_composition([mu] * rounds, delta),
        "basic_composition": rounds * epsilon(mu, delta / rounds),
        "textbook": rounds * gaussian_mechanism(mu, 1.0, delta / rounds),
    }


def gaussian_mechanism(sensitivity: float, tau: float, delta: float) -> float:
    """The textbook formula eps = sqrt(2 ln(1.25/delta)) D/tau, proved for eps < 1 only.

    >>> round(gaussian_mechanism(1.0, 4.8448, 1e-5), 3)
    1.0
    """
    check_delta(delta)
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / tau


def theorem_1(sites: int, colluders: int) -> float | None:
    """mu^2 at D = tau = 1 as claimed by Theorem 1 of capeDJICA and capeFM, or None outside its assumptions.

    The theorem omits that colluders know their own draws; the exact figure is up to 2.5 times larger.

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
    x = find_root(lambda x: -0.5 * x * x - 0.5 * math.log(2 * math.pi) - math.log(x) - target, 1e-12, 1e3)
    return mean + spread * x


def claimed_mu_squared(scheme: str, sites: int, colluders: int) -> float | None:
    """mu^2 at D = tau = 1 as the papers claim it for one of their schemes, None where they have no formula.

    capeDJICA and capeFM have Theorem 1. capePCA uses the marginal variance tau^2 of each message.
    """
    if scheme == "cape-published":
        return theorem_1(sites, colluders)
    return 1.0 if scheme == "cape-helper" else None


def claimed_epsilon(scheme: str, mu_squared: float, delta: float) -> float:
    """The eps that the papers would compute from their claimed mu^2, by their own formulas."""
    if scheme == "cape-published":
        return theorem_1_epsilon(mu_squared, delta)
    return gaussian_mechanism(math.sqrt(mu_squared), 1.0, delta)
