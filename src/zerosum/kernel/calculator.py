"""The calculator behind `zerosum account`: the rounds of a scheme among given sites, from noise to epsilon or back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts, laplace, published
from zerosum.kernel.events import MOST_STEPS, LaplaceSum, Sampling, Subsampled
from zerosum.kernel.schemes import Combine, NoiseLaw, NoiseMechanism, Scheme, SiteShape, weighted_laws
from zerosum.kernel.view import Coalition, calibrate, worst_mu

_HALVINGS = 40  # of the bracket of a pure epsilon


@dataclass(frozen=True)
class SiteCost:
    """Cost of all rounds for the units of one site, and the standard deviations of the noise in its messages.

    `units` is None where no number of units was given. `sigma_e` is infinite under secure aggregation, and for a site
    whose cancelling noise is the remainder of the others (`cape-helper` with weights).
    """

    units: int | None
    round_mu: float
    epsilon: float
    sigma_g: float
    sigma_e: float


@dataclass(frozen=True)
class Solutions:
    """Variance of a release of weighted means over that of a pooled sum, at equal mu, by the way its noise is divided.

    `used` is the solution of the plan, "printed" or "solved" (`zerosum.kernel.schemes.WeightedLaws`). `printed` is None
    where there is none. `sums` is the same ratio for `Combine.SUMS`.
    """

    used: str
    printed: float | None
    solved: float
    sums: float


@dataclass(frozen=True)
class Releases:
    """What equal releases are: the scheme, its sites and coalition, the sensitivity, delta and the number of rounds."""

    scheme: str
    sites: int
    colluders: int
    dropouts: int
    sensitivity: float
    delta: float
    rounds: int


@dataclass(frozen=True)
class Cost(Releases):
    """Cost and noise of `rounds` equal releases.

    `mu`, `round_mu` and `epsilon` are exact, for the site with the largest cost, against its worst coalition. `mu` is
    that of all rounds together; for sub-sampled rounds it is that of one sum with the same epsilon. `noise` has the
    standard deviations by their names in the papers, and `noise_std` is the standard deviation of one released sum.
    `variance_ratio` is the variance of a release over that of a pooled release of the same mu. `published_*` is the
    claim of the papers' theorem for all rounds, None where there is none. `accountants` has the epsilon of all rounds
    by other accountants (`zerosum.kernel.published.composed`), for the mu of the papers ("papers") and for the exact
    one ("exact"); None unless asked for. `solutions` is None unless the scheme combines weighted means.
    """

    rate: float
    mu: float
    mu_squared: float
    round_mu: float
    epsilon: float
    noise: dict[str, float]
    noise_std: float
    variance_ratio: float
    published_mu_squared: float | None
    published_epsilon: float | None
    by_site: tuple[SiteCost, ...]
    accountants: dict[str, dict[str, float | None]] | None
    solutions: Solutions | None


def account(
    scheme: Scheme,
    *,
    sites: int | Sequence[SiteShape],
    coalition: Coalition,
    sensitivity: float,
    delta: float,
    tau: float | None = None,
    epsilon: float | None = None,
    rounds: int = 1,
    rate: float = 1.0,
    compare: bool = False,
) -> Cost:
    """The exact cost of a number of equal releases given their noise, or their noise given the exact epsilon.

    Parameters
    ----------
    scheme:
        The noise scheme.
    sites:
        Number of equal sites, or the public facts of each site.
    coalition:
        Colluders and lost sites.
    sensitivity:
        D, the L2 sensitivity of the sum over units for a replaced unit. Contributions that are clipped to norm C have D
        = 2 C, and `rate` below 1 is accounted with C = D/2.
    delta:
        The delta at which epsilon is reported.
    tau:
        Standard deviation of the noise: the papers' tau for the two cape schemes, a site's own noise (sigma_g) for
        local, secure-sum, zero-sum and pairwise, and the noise of the sum for pooled. With means of unequal sites, the
        noise of site s is tau/(n_s a_s). Give either `tau` or `epsilon`.
    epsilon:
        The exact epsilon of all rounds together.
    rounds:
        Number of releases, each with fresh noise.
    rate:
        Probability with which a unit takes part in a round (Poisson sampling).
    compare:
        Whether to compute the epsilons of the other accountants.

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
    if not 1 <= rounds <= MOST_STEPS:
        raise BadParameter(f"rounds must be a whole number from 1 to {MOST_STEPS}, got {rounds}")
    sampling = Sampling(rate, rounds)
    shapes = [SiteShape()] * sites if isinstance(sites, int) else list(sites)
    unit = scheme.law(shapes, coalition.honest(len(shapes)))
    # A sampled unit is present or absent, which moves a sum by its norm C; a replaced unit moves it by D
    # (`zerosum.kernel.events.Subsampled`).
    moved = sensitivity if sampling.full else sensitivity / 2
    if epsilon is not None:
        law = calibrate(unit, moved, coalition, _round_mu(epsilon, delta, sampling))
    elif tau is not None:
        if not (tau > 0 and math.isfinite(tau)):
            raise BadParameter(f"the noise must be positive and finite, got {tau:g}")
        law = unit.scaled(tau)
    mus = worst_mu(law, moved, coalition)
    worst = float(np.max(mus))
    if not math.isfinite(worst):
        raise BadParameter("against this coalition a site has no noise of its own: no epsilon is finite")
    by_mu = {mu: _epsilon(mu, delta, sampling) for mu in set(mus.tolist())}
    total = worst * math.sqrt(rounds) if sampling.full else _equal_mu(by_mu[worst], delta)
    claims = _claimed_ratio(scheme, law, coalition, sensitivity)
    first = None if claims is None else published.claimed_mu_squared(scheme.name, len(shapes), coalition.colluders)
    # The papers have no theorem for sub-sampled rounds.
    theirs = None if claims is None or first is None or not sampling.full else first * claims**2 * rounds
    return Cost(
        scheme=scheme.name,
        sites=len(shapes),
        colluders=coalition.colluders,
        dropouts=coalition.dropouts,
        sensitivity=sensitivity,
        delta=delta,
        rounds=rounds,
        rate=rate,
        mu=total,
        mu_squared=total * total,
        round_mu=worst,
        epsilon=by_mu[worst],
        noise=_noise(scheme, law.noise_std / unit.noise_std if tau is None else tau),
        noise_std=law.noise_std,
        variance_ratio=(law.noise_std * worst / moved) ** 2,
        published_mu_squared=theirs,
        published_epsilon=None if theirs is None else published.claimed_epsilon(scheme.name, theirs, delta),
        by_site=tuple(
            SiteCost(shape.units, mu, by_mu[mu], own, cancelling)
            for shape, mu, own, cancelling in zip(
                shapes, mus.tolist(), law.own.tolist(), law.cancelling.tolist(), strict=True
            )
        ),
        accountants=_accountants(sensitivity / moved * worst, claims, first, rounds, delta) if compare else None,
        solutions=_solutions(scheme, shapes, coalition) if scheme.combine is Combine.WEIGHTED else None,
    )


@dataclass(frozen=True)
class LaplaceCost(Releases):
    """Cost and noise of `rounds` equal releases with Laplace noise in shares.

    `round_epsilon` is the pure epsilon of one release, for a unit that moves the sum by `sensitivity` in L1 norm, and
    `epsilon` that of all together at `delta`. `scale` is the scale b of the noise that the honest sites' shares add up
    to, `noise_std` the standard deviation of one released sum. `variance_ratio` is the variance of a release over that
    of a pooled release of the same epsilon, and `interval` the half width of a 95 % interval in standard deviations.
    """

    round_epsilon: float
    epsilon: float
    scale: float
    noise_std: float
    variance_ratio: float
    interval: float


def account_laplace(
    scheme: Scheme,
    *,
    sites: int,
    coalition: Coalition,
    sensitivity: float,
    delta: float,
    scale: float | None = None,
    epsilon: float | None = None,
    rounds: int = 1,
) -> LaplaceCost:
    """The cost of equal releases with Laplace noise given its scale, or the scale given their epsilon.

    Parameters
    ----------
    scheme:
        secure-sum, pooled or local.
    sites:
        Number of equal sites.
    coalition:
        Colluders and lost sites.
    sensitivity:
        L1 sensitivity of the sum over units.
    delta:
        The delta at which the epsilon of all releases is computed.
    scale:
        b of the whole noise, that of a density proportional to exp(-|x|/b). Give either `scale` or `epsilon`.
    epsilon:
        The exact epsilon of all rounds together.
    rounds:
        Number of releases, each with fresh noise.

    >>> four = {"sites": 4, "coalition": Coalition(1)}
    >>> cost = account_laplace(Scheme("secure-sum"), **four, sensitivity=2, delta=1e-5, scale=2)
    >>> cost.round_epsilon, round(cost.noise_std, 4), round(cost.variance_ratio, 4)
    (1.0, 3.266, 1.3333)
    """
    if scheme.name not in laplace.LAPLACE_SCHEMES:
        raise BadParameter(
            f"Laplace noise is divided under the schemes {', '.join(laplace.LAPLACE_SCHEMES)}, not under "
            f"{scheme.name!r}"
        )
    amounts.check_amount("the sensitivity", sensitivity)
    amounts.check_delta(delta)
    if (scale is None) == (epsilon is None):
        raise BadParameter(f"give either the noise or epsilon, got {'neither' if scale is None else 'both'}")
    if not 1 <= rounds <= MOST_STEPS:
        raise BadParameter(f"rounds must be a whole number from 1 to {MOST_STEPS}, got {rounds}")
    honest = coalition.honest(sites)

    def together(pure: float) -> float:
        return accountant.trial_epsilon(0.0, [LaplaceSum(pure, laplace.FEWEST_MOVES, rounds)], delta)

    if epsilon is not None:
        amounts.check_epsilon(epsilon)
        # Basic composition from below; a release alone costs at most the whole from above.
        low, high = epsilon / rounds, epsilon / (1 - delta) + 2 * delta
        for _ in range(_HALVINGS if rounds > 1 else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if together(middle) <= epsilon else (low, middle)
        pure = low
    else:
        amounts.check_amount("the scale of the noise", scale or 0.0)
        pure = sensitivity / (scale or 1.0)
    b = sensitivity / pure
    parts = honest if scheme.facts.mechanism is NoiseMechanism.MASKED else 1
    shares = 1.0 if scheme.facts.sees_data else sites / parts
    return LaplaceCost(
        scheme=scheme.name,
        sites=sites,
        colluders=coalition.colluders,
        dropouts=coalition.dropouts,
        sensitivity=sensitivity,
        delta=delta,
        rounds=rounds,
        round_epsilon=pure,
        epsilon=together(pure),
        scale=b,
        noise_std=b * math.sqrt(2 * shares),
        variance_ratio=shares,
        interval=laplace.interval_factor(shares),
    )


def _round_mu(epsilon: float, delta: float, sampling: Sampling) -> float:
    """The mu of one round at which all rounds together cost at most (epsilon, delta)."""
    mu = accountant.mu_for(epsilon, delta)
    if sampling.full:
        return mu / math.sqrt(sampling.steps)
    from zerosum.kernel.phases import step_mu

    return step_mu(mu, sampling, delta)


def _epsilon(mu: float, delta: float, sampling: Sampling) -> float:
    """The exact epsilon of all rounds, given the mu of one."""
    if sampling.full:
        return accountant.epsilon(mu * math.sqrt(sampling.steps), delta)
    return accountant.trial_epsilon(0.0, [Subsampled(mu, sampling.rate, sampling.steps)], delta)


def _equal_mu(epsilon: float, delta: float) -> float:
    """The mu of one sum that costs as much."""
    return accountant.mu_for(epsilon, delta) if epsilon > 0 else 0.0


def _claimed_ratio(scheme: Scheme, law: NoiseLaw, coalition: Coalition, sensitivity: float) -> float | None:
    """Sensitivity over noise of a message as the papers count it, None where they have no theorem: for schemes other
    than theirs, lost sites and unequal sites.
    """
    if published.claimed_mu_squared(scheme.name, law.sites, coalition.colluders) is None or coalition.dropouts:
        return None
    if any(not np.allclose(each, each[0], rtol=1e-12, atol=0.0) for each in (law.factor, law.weight, law.cancelling)):
        return None
    return sensitivity * float(law.factor[0] / law.cancelling[0])


def _accountants(
    exact: float, claimed: float | None, first: float | None, rounds: int, delta: float
) -> dict[str, dict[str, float | None]]:
    """The epsilon of `rounds` rounds by every accountant, without sub-sampling.

    Parameters
    ----------
    exact, claimed:
        mu of one round for a replaced unit: exact, and as the papers count it (the noise of the released sum alone).
    first:
        mu^2 of the papers' theorem at sensitivity over noise of 1; None where they have none.
    """
    ours = published.composed(exact, rounds, delta)
    theirs = published.composed(claimed, rounds, delta) if claimed is not None else {}
    table = {name: {"papers": theirs.get(name), "exact": value} for name, value in ours.items()}
    if claimed is not None and first is not None:
        # Theorem 2: epsilon and delta of one round add up over the rounds.
        each = published.theorem_1_epsilon(first * claimed**2, delta / rounds)
        table["theorem_2"] = {"papers": rounds * each, "exact": None}
    return table


def _solutions(scheme: Scheme, shapes: Sequence[SiteShape], coalition: Coalition) -> Solutions:
    """The variance that a release of weighted means reaches by each solution of the papers' constraints."""
    honest = coalition.honest(len(shapes))
    laws = weighted_laws(scheme.facts.mechanism, shapes, honest)

    def ratio(law: NoiseLaw) -> float:
        # The product does not depend on the scale of the noise: mu is inversely proportional to it.
        return (law.noise_std * float(np.max(worst_mu(law, 1.0, coalition)))) ** 2

    return Solutions(
        used="solved" if laws.printed is None else "printed",
        printed=None if laws.printed is None else ratio(laws.printed),
        solved=ratio(laws.solved),
        sums=ratio(replace(scheme, combine=Combine.SUMS).law(shapes, honest)),
    )


def _noise(scheme: Scheme, scale: float) -> dict[str, float]:
    """The standard deviations of a law by their names in the papers, given the scale of its noise."""
    if scheme.facts.ratio:
        return {"sigma_g": scale, "sigma_e": scale * scheme.ratio}
    return {"tau": scale}
