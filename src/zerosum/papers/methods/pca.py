"""Principal component analysis as published in the papers, for reproduction runs; never a default.

**Public or synthetic data only.** These are plain NumPy functions: the noise comes from a seeded generator, and no
ledger is charged. The papers' preprocessing (centre all records at their mean, divide by the largest norm) is not
private. A site is an array with one record per row, of norm at most one; all sites have the same number of records.

A record is protected by Gaussian noise `tau` on the entries of a second moment. The papers assume a sensitivity of 1/n;
`published_tau` follows them. The distinct entries (i <= j) of x x' - y y' have

    sum of their squares = (norm(x x' - y y')^2 + sum over i of (x_i^2 - y_i^2)^2)/2 <= 2   in the unit ball,

attained by two different unit vectors of the axes, so the exact sensitivity is sqrt(2)/n. The cancelling noise of cape
is not symmetric while the own noise is. A coalition therefore averages entries ij and ji and halves the variance of the
cancelling noise off the diagonal. That at most doubles mu^2 of such an entry. With d the squared change on the
diagonal, the entries above it change by at most (2 - d)/2 in all: the worst pair is still on the diagonal, and mu^2 is
that of `zerosum.kernel.view` at sensitivity sqrt(2)/n. `exact_epsilon` gives the exact cost of the published
calibration, `tau_for_exact` the noise of each method at a given exact epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import amounts
from zerosum.kernel.calculator import account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition

# Source of the cancelling noise in capePCA: the sites (capeDJICA paper) or a trusted helper (its own paper).
Variant = Literal["broadcast", "helper"]

SENSITIVITY = math.sqrt(2)  # of the distinct entries of a second moment, times 1/n

# Method to the kernel's scheme with the same noise law.
SCHEMES: dict[str, str] = {
    "cape-broadcast": "cape-published",
    "cape-helper": "cape-helper",
    "conv": "local",
    "dp-dis-pca": "local",
    "analyze-gauss": "local",
    "pooled": "pooled",
}


# ---- the methods: all return D x K, one component a column ----------------------------------------------------------


def second_moment(rows: Floats) -> Floats:
    """Mean of x x' over the records, shape (D, D)."""
    return np.asarray(rows.T @ rows / len(rows))


def top(matrix: Floats, K: int) -> Floats:
    """Eigenvectors of the K largest eigenvalues of the symmetric part of a matrix, shape (D, K)."""
    if not 0 < K <= len(matrix):
        raise BadParameter(f"between 1 and {len(matrix)} components can be had, got {K}")
    vectors: Floats = np.linalg.eigh((matrix + matrix.T) / 2)[1]
    return vectors[:, ::-1][:, :K]


def non_private(sites: Sequence[Floats], K: int) -> Floats:
    """Components of all records together, without noise."""
    return top(second_moment(np.concatenate(sites)), K)


def pooled_dp(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator) -> Floats:
    """A trusted coordinator holds all records and adds noise `tau` once."""
    return analyze_gauss(np.concatenate(sites), K, tau, rng)


def analyze_gauss(rows: Floats, K: int, tau: float, rng: np.random.Generator) -> Floats:
    """One site alone (the papers' "local"): its second moment with symmetric noise."""
    return top(second_moment(rows) + symmetric_noise(rows.shape[1], tau, rng), K)


def conv(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator) -> Floats:
    """Every site adds symmetric noise `tau` to its second moment; the mean is decomposed."""
    return top(np.mean([second_moment(rows) + symmetric_noise(rows.shape[1], tau, rng) for rows in sites], axis=0), K)


def dp_dis_pca(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator, R: int | None = None) -> Floats:
    """Every site sends the rank-R square root of its noisy second moment (default R = K); their squares are summed.

    Directions with a negative noisy eigenvalue have no root and are left out.
    """
    D = sites[0].shape[1]
    R = K if R is None else R
    if not 0 < R <= D:
        raise BadParameter(f"the intermediate rank must lie between 1 and {D}, got {R}")
    roots = []
    for rows in sites:
        values, vectors = np.linalg.eigh(second_moment(rows) + symmetric_noise(D, tau, rng))
        roots.append(vectors[:, -R:] * np.sqrt(np.maximum(values[-R:], 0)))
    return top(np.mean([root @ root.T for root in roots], axis=0), K)


def cape_pca(
    sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator, variant: Variant = "broadcast"
) -> Floats:
    """capePCA: of the capeDJICA paper (appendix J, Algorithm 3), or of its own paper (Algorithm 2), with a helper."""
    return top(np.mean(cape_messages(sites, tau, rng, variant), axis=0), K)


def cape_messages(
    sites: Sequence[Floats], tau: float, rng: np.random.Generator, variant: Variant = "broadcast"
) -> list[Floats]:
    """Matrices (D, D) that the aggregator averages in capePCA, one per site; with a helper, after subtraction of
    F_s."""
    return cape_perturbed([second_moment(rows) for rows in sites], tau, rng, variant)


def cape_perturbed(
    moments: Sequence[Floats], tau: float, rng: np.random.Generator, variant: Variant = "broadcast"
) -> list[Floats]:
    """Messages of capePCA from the sites' second moments.

    E_s has variance (1 - 1/S) tau^2 in all D^2 entries and sums to zero over sites. F_s has the same variance and does
    not sum to zero. G_s is symmetric with variance tau^2/S.
    """
    S, D = len(moments), len(moments[0])
    draws = tau * rng.standard_normal((S, D, D))
    cancelling = draws - draws.mean(axis=0)
    messages = []
    for moment, E in zip(moments, cancelling, strict=True):
        message = moment + E + symmetric_noise(D, tau / math.sqrt(S), rng)
        if variant == "helper":
            # drawn by the aggregator, which can subtract it
            F = math.sqrt(1 - 1 / S) * tau * rng.standard_normal((D, D))
            message = (message + F) - F
        messages.append(message)
    return messages


def symmetric_noise(D: int, tau: float, rng: np.random.Generator) -> Floats:
    """Independent normal entries on and above the diagonal, mirrored below it."""
    upper = np.triu(tau * rng.standard_normal((D, D)))
    return np.asarray(upper + np.triu(upper, 1).T)


# ---- privacy cost ---------------------------------------------------------------------------------------------------


def published_tau(epsilon: float, delta: float, records: int) -> float:
    """The papers' noise for n records, sqrt(2 ln(1.25/delta))/(epsilon n): at a site, or of all sites for `pooled_dp`.

    >>> round(published_tau(1.0, 1e-5, 1000), 6)
    0.004845
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / (epsilon * _counted(records))


def exact_epsilon(method: str, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Exact epsilon of a method (a name in `SCHEMES`) at the published calibration for `epsilon`.

    >>> round(exact_epsilon("conv", 1.0, 1e-5, sites=5, colluders=1), 3)
    1.098
    """
    tau = published_tau(epsilon, delta, 1)
    return account(
        _scheme(method), sites=sites, coalition=Coalition(colluders), sensitivity=SENSITIVITY, delta=delta, tau=tau
    ).epsilon


def tau_for_exact(method: str, epsilon: float, delta: float, sites: int, colluders: int, records: int) -> float:
    """Noise at which a method is exactly (epsilon, delta)-private; `records` as in `published_tau`."""
    cost = account(
        _scheme(method),
        sites=sites,
        coalition=Coalition(colluders),
        sensitivity=SENSITIVITY,
        delta=delta,
        epsilon=epsilon,
    )
    return cost.noise["tau"] / _counted(records)


def _scheme(method: str) -> Scheme:
    """The kernel's scheme of a method. Raises `BadParameter`."""
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    return Scheme(SCHEMES[method])


def _counted(records: int) -> int:
    """The number, at least 1. Raises `BadParameter`."""
    if records < 1:
        raise BadParameter(f"a method needs at least one record, got {records}")
    return records
