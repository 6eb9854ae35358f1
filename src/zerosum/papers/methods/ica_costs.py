"""Privacy cost of capeDJICA and DP-djICA: as claimed, by every accountant of the papers, and exactly.

A round releases G and h, each with sensitivity over noise r = epsilon/sqrt(2 ln(1.25/delta)) of one round. J rounds
therefore have mu^2 = 2 J r^2 at the coordinator. The papers' accounting ends there. The exact value includes

- the whole view of a coordinator and its colluders: mu^2 is larger by a factor of 1.87 for CAPE at S = 4, C = 1;
- the reduction: the sensitivity of capePCA is sqrt(2)/n, and for a person with T volumes T times that.

The sensitivities 2B of the two clips are used unchanged. That of G is approached only if W is nearly singular, but W is
not known beforehand. The entries of h are below one, so that R < 30 components cannot reach B_h = sqrt(30). With
`components` the exact value is smaller, by 9 % in mu at R = 20.

Section IV-A includes the step rho in the accounted noise, sigma^2 = rho^2 tau^2/Delta^2 (with Delta squared, to be
dimensionless), as if the sensitivity did not shrink with it: `claimed_with_step` overstates mu by 1/rho.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, published
from zerosum.kernel.calculator import account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition
from zerosum.papers.methods.ica import CLIP, ROUND_DELTA
from zerosum.papers.rehearsal import published_tau

DELTA = 1e-5  # delta of the total in the papers' experiments
PIECES = 2  # releases per round: G and h

# Method to the scheme with the same noise law. A site alone has the noise of a trusted holder of its people.
SCHEMES: dict[str, str] = {
    "cape-djica": "cape-published",
    "conv": "local",
    "pooled": "pooled",
    "single-site": "pooled",
}
# Methods that use the first site only.
ONE_SITE_METHODS = ("single-site",)


def ratio(epsilon: float, delta: float = ROUND_DELTA) -> float:
    """Sensitivity over noise of G, and of h, in one round calibrated for (epsilon, delta).

    >>> round(ratio(1.0), 5)
    0.3218
    """
    return 1 / published_tau(epsilon, delta)


def round_tau(epsilon: float, delta: float = ROUND_DELTA) -> float:
    """Noise of one round as published, of the sum over people of (G/B, h/sqrt(B)): each part has the sensitivity 2.

    The mean over n people of a site has B times that noise in G, and sqrt(B) times that in h, over n (capeDJICA,
    equation 3).

    >>> [round(round_tau(1.0) * clip / 256, 5) for clip in (CLIP, math.sqrt(CLIP))]
    [0.72832, 0.13297]
    """
    return published_tau(epsilon, delta, 2.0)


def price(method: str, sites: int, colluders: int) -> float:
    """mu^2 of one release at sensitivity = tau = 1, for the whole view of the coalition.

    >>> round(price("cape-djica", sites=4, colluders=1), 6)
    1.866667
    """
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    # mu^2 does not depend on delta; 0.5 is a placeholder.
    return account(
        Scheme(SCHEMES[method]), sites=sites, coalition=Coalition(colluders), sensitivity=1.0, delta=0.5, tau=1.0
    ).mu_squared


def exact_mu(
    method: str,
    rounds: int,
    epsilon: float,
    *,
    sites: int,
    colluders: int,
    delta: float = ROUND_DELTA,
    points: int = 1,
    components: int | None = None,
) -> float:
    """mu of a person over all rounds; with `points` volumes per person, mu of one volume instead."""
    # h has R entries below 1 in magnitude, so that it moves by at most 2 sqrt(R); its noise is for 2 sqrt(B_G). The
    # squared ratio is R/B_G where that is below 1.
    pieces = PIECES if components is None else 1 + min(1.0, components / CLIP)
    # mu^2 of Gaussian releases adds up over pieces and rounds (Gaussian differential privacy, Dong, Roth and Su 2022).
    return ratio(epsilon, delta) * math.sqrt(pieces * _check_count(rounds) * price(method, sites, colluders)) / points


def exact_epsilon(
    method: str,
    rounds: int,
    epsilon: float,
    *,
    sites: int,
    colluders: int,
    delta: float = ROUND_DELTA,
    total_delta: float = DELTA,
    components: int | None = None,
) -> float:
    """Exact total epsilon of `rounds` rounds, each calibrated as published for (epsilon, delta).

    >>> round(exact_epsilon("cape-djica", 1000, 1.0, sites=4, colluders=1), 1)
    276.3
    """
    mu = exact_mu(method, rounds, epsilon, sites=sites, colluders=colluders, delta=delta, components=components)
    return accountant.epsilon(mu, total_delta)


def epsilon_for_exact(
    method: str,
    rounds: int,
    total: float,
    *,
    sites: int,
    colluders: int,
    delta: float = ROUND_DELTA,
    total_delta: float = DELTA,
) -> float:
    """The epsilon of a round at which `rounds` rounds are exactly (total, total_delta)-private."""
    # The noise of a round is proportional to 1/epsilon, so that mu is proportional to epsilon: one division, no root.
    one = exact_mu(method, rounds, 1.0, sites=sites, colluders=colluders, delta=delta)
    return accountant.mu_for(total, total_delta) / one


def reduction_mu(epsilon: float, delta: float, *, sites: int, colluders: int, points: int = 1) -> float:
    """mu of the capePCA stage, calibrated as published with 1/n for n volumes: of one volume, or of a person's
    `points`.

    >>> [round(reduction_mu(1.0, 1e-2, sites=4, colluders=1, points=points), 3) for points in (1, 250)]
    [0.622, 155.445]
    """
    # The factor sqrt 2 is the exact sensitivity of the second moment (`zerosum.papers.methods.pca`), of which the
    # papers assume 1. The T volumes of a person add up linearly in the worst case, when they are equal.
    return math.sqrt(2 * price("cape-djica", sites, colluders)) * ratio(epsilon, delta) * _check_count(points)


# ---- accountants of the papers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claims:
    """Total epsilon of the same rounds by every accountant. All except the last use the coordinator's view alone."""

    composition: float  # Theorem 2: (2 J epsilon, 2 J delta) from Theorem 1
    strong: float
    moments: float
    moments_printed: float  # from the quadratic equation as printed
    rdp: float  # with the papers' conversion
    rdp_best: float
    coordinator: float  # exact, for the coordinator's view
    exact: float  # exact, for the coordinator and its colluders


def claims(rounds: int, ratio: float, *, sites: int, colluders: int, total_delta: float = DELTA) -> Claims:
    """Total of every accountant for J rounds of capeDJICA whose G and h have sensitivity over noise `ratio`."""
    releases = PIECES * _check_count(rounds)
    if not (ratio > 0 and math.isfinite(ratio)):
        raise BadParameter(f"sensitivity over noise must be positive and finite, got {ratio:g}")
    mu = ratio * math.sqrt(releases)
    first = published.theorem_1(sites, colluders)
    return Claims(
        composition=math.inf
        if first is None
        else releases * published.theorem_1_epsilon(first * ratio**2, total_delta / releases),
        # The papers compare at the same noise, so every accountant receives the same ratio of sensitivity to noise.
        strong=published.strong_composition([ratio] * releases, total_delta),
        moments=published.moments(mu, total_delta),
        moments_printed=moments_printed(mu, total_delta),
        rdp=published.rdp_published(mu, total_delta),
        rdp_best=published.rdp(mu, total_delta),
        coordinator=accountant.epsilon(mu, total_delta),
        exact=accountant.epsilon(mu * math.sqrt(price("cape-djica", sites, colluders)), total_delta),
    )


def moments_printed(mu: float, delta: float) -> float:
    """Larger root of eps^2/(2 mu^2) - eps + mu^2/8 + ln delta = 0, as printed in capeDJICA (IV-B and G).

    The paper's own derivation gives eps/2 in the middle, and then mu^2/2 + mu sqrt(2 ln(1/delta)), the same as RDP.

    >>> round(moments_printed(1.0, 1e-5), 3) > round(published.rdp_published(1.0, 1e-5), 3)
    True
    """
    amounts.check_delta(delta)
    return mu * mu + mu * math.sqrt(0.75 * mu * mu + 2 * math.log(1 / delta))


def claimed_with_step(rounds: int, ratio: float, step: float, total_delta: float = DELTA) -> float:
    """Total epsilon by section IV-A to the letter: the step multiplies the noise but not the sensitivity."""
    return published.rdp_published(ratio * math.sqrt(PIECES * _check_count(rounds)) / step, total_delta)


def dp_djica_claimed(rounds: int, epsilon: float, points: int = 1) -> float:
    """Pure epsilon that DP-djICA claims: J epsilon for a time point, and `points` times that for a person.

    It covers the iteration only. The reduction before it is not private.
    """
    amounts.check_epsilon(epsilon)
    return _check_count(rounds) * _check_count(points) * epsilon


def _check_count(number: int) -> int:
    """The number, at least 1. Raises `BadParameter`."""
    if number < 1:
        raise BadParameter(f"at least one is needed, got {number}")
    return number
