"""The calculator behind `zerosum account`: one release of a scheme among equal sites, from noise to epsilon or back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, published
from zerosum.kernel.schemes import NoiseLaw, Scheme, SiteShape
from zerosum.kernel.view import Coalition, calibrate, worst_mu


@dataclass(frozen=True)
class Cost:
    """Cost and noise of one release.

    `mu` and `epsilon` are exact, against the worst coalition. `noise` has the standard deviations by their names in the
    papers, and `noise_std` is the standard deviation of the released sum. `variance_ratio` is the variance of the
    release over that of a pooled release of the same mu. `published_*` is the claim of the papers' theorem, None where
    there is none.
    """

    scheme: str
    sites: int
    colluders: int
    dropouts: int
    sensitivity: float
    delta: float
    mu: float
    mu_squared: float
    epsilon: float
    noise: dict[str, float]
    noise_std: float
    variance_ratio: float
    published_mu_squared: float | None
    published_epsilon: float | None


def account(
    scheme: Scheme,
    *,
    sites: int,
    coalition: Coalition,
    sensitivity: float,
    delta: float,
    tau: float | None = None,
    epsilon: float | None = None,
) -> Cost:
    """The exact cost of one release given its noise, or its noise given the exact epsilon.

    Parameters
    ----------
    scheme:
        The noise scheme; all sites are equal.
    sites:
        Number of sites.
    coalition:
        Colluders and lost sites.
    sensitivity:
        L2 sensitivity of the sum over units.
    delta:
        The delta at which epsilon is reported.
    tau:
        Standard deviation of the noise: the papers' tau for the two cape schemes, a site's own noise (sigma_g) for
        local, secure-sum,
        zero-sum and pairwise, and the noise of the sum for pooled. Give either `tau` or `epsilon`.
    epsilon:
        The exact epsilon of one release.

    >>> cost = account(Scheme("cape-published"), sites=4, coalition=Coalition(1), sensitivity=1, delta=1e-5, tau=1)
    >>> round(cost.mu_squared, 6), round(cost.published_mu_squared, 6)
    (1.866667, 1.47451)
    """
    if not (sensitivity > 0 and math.isfinite(sensitivity)):
        raise BadParameter(f"the sensitivity must be positive and finite, got {sensitivity:g}")
    amounts.check_delta(delta)
    if (tau is None) == (epsilon is None):
        raise BadParameter(f"give either the noise or epsilon, got {'neither' if tau is None else 'both'}")
    if not scheme.facts.noisy:
        raise BadParameter("the non-private scheme has no noise to account for")
    honest = coalition.honest(sites)
    law = scheme.law([SiteShape()] * sites, honest)
    if epsilon is not None:
        law = calibrate(law, sensitivity, coalition, accountant.mu_for(epsilon, delta))
    elif tau is not None:
        if not (tau > 0 and math.isfinite(tau)):
            raise BadParameter(f"the noise must be positive and finite, got {tau:g}")
        law = law.scaled(tau)
    mu = float(np.max(worst_mu(law, sensitivity, coalition)))
    noise = _noise(scheme, law, honest)
    claimed = published.claimed_mu_squared(scheme.name, sites, coalition.colluders)
    theirs = None
    # The papers' theorems do not cover lost sites.
    if claimed is not None and not coalition.dropouts:
        theirs = claimed * (sensitivity / noise["tau"]) ** 2
    return Cost(
        scheme=scheme.name,
        sites=sites,
        colluders=coalition.colluders,
        dropouts=coalition.dropouts,
        sensitivity=sensitivity,
        delta=delta,
        mu=mu,
        mu_squared=mu * mu,
        epsilon=accountant.epsilon(mu, delta),
        noise=noise,
        noise_std=law.noise_std,
        variance_ratio=(law.noise_std * mu / sensitivity) ** 2,
        published_mu_squared=theirs,
        published_epsilon=None if theirs is None else published.claimed_epsilon(scheme.name, theirs, delta),
    )


def _noise(scheme: Scheme, law: NoiseLaw, honest: int) -> dict[str, float]:
    """The standard deviations of a law by their names in the papers."""
    match scheme.name:
        case "pooled":
            return {"tau": law.central}
        case "cape-published" | "cape-helper":
            return {"tau": float(law.cancelling[0])}
        case "zero-sum":
            return {"sigma_g": float(law.own[0]), "sigma_e": float(law.cancelling[0])}
        case "pairwise":
            return {"sigma_g": float(law.own[0]), "sigma_e": float(law.cancelling[0]) * math.sqrt(honest)}
        case _:
            return {"tau": float(law.own[0])}
