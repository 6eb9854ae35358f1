"""Principal components as the papers published them: competitors for reproduction runs, never a default.

**Public or synthetic data only.** These are plain NumPy functions: the noise comes from a seeded generator, nothing is
charged to a ledger, and the preprocessing the papers ask for (centre all records at their mean, divide by the largest
norm) is not private. A site is an array with one record a row, of norm at most one; all sites hold as many records.

What protects a record is Gaussian noise `tau` on the entries of a second moment. The papers take its sensitivity to be
1/n; `published_tau` follows them. In truth the distinct entries (i <= j) of x x' - y y' have

    sum of their squares = (norm(x x' - y y')^2 + sum over i of (x_i^2 - y_i^2)^2)/2 <= 2   in the unit ball,

attained by two different unit vectors of the axes: sqrt(2)/n. The cancelling noise of cape is not symmetric while the
own noise is, so a coalition averages entries ij and ji and halves its variance off the diagonal. That at most doubles
mu^2 of such an entry, and with d the squared change on the diagonal those above it change by at most (2 - d)/2 in all:
the worst pair still lies on the diagonal, and mu^2 is that of `zerosum.kernel.view` at sensitivity sqrt(2)/n.
`exact_epsilon` says what the published calibration is worth, `tau_for_exact` what noise each method needs at a given
exact epsilon.

Tested in tests/papers/test_figures_pca.py.
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

#: Who draws the noise that cancels in capePCA: the sites (in capeDJICA) or a trusted helper (in its own paper).
Variant = Literal["broadcast", "helper"]

SENSITIVITY = math.sqrt(2)  # times 1/n, of the distinct entries of a second moment

#: The noise law of every private method here, by the kernel's name.
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
    """The mean of x x' over the records."""
    return np.asarray(rows.T @ rows / len(rows))


def top(matrix: Floats, K: int) -> Floats:
    """The eigenvectors of the K largest eigenvalues of a matrix, made symmetric first."""
    if not 0 < K <= len(matrix):
        raise BadParameter(f"between 1 and {len(matrix)} components can be had, got {K}")
    vectors: Floats = np.linalg.eigh((matrix + matrix.T) / 2)[1]
    return vectors[:, ::-1][:, :K]


def non_private(sites: Sequence[Floats], K: int) -> Floats:
    """Of all records together, without noise."""
    return top(second_moment(np.concatenate(sites)), K)


def pooled_dp(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator) -> Floats:
    """A trusted coordinator sees all records and adds noise `tau` once."""
    return analyze_gauss(np.concatenate(sites), K, tau, rng)


def analyze_gauss(rows: Floats, K: int, tau: float, rng: np.random.Generator) -> Floats:
    """One site alone (the papers' "local"): its second moment with symmetric noise."""
    return top(second_moment(rows) + symmetric_noise(rows.shape[1], tau, rng), K)


def conv(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator) -> Floats:
    """Every site adds symmetric noise `tau` to its second moment; the average is taken."""
    return top(np.mean([second_moment(rows) + symmetric_noise(rows.shape[1], tau, rng) for rows in sites], axis=0), K)


def dp_dis_pca(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator, R: int | None = None) -> Floats:
    """Every site sends the rank-R square root of its noisy second moment (R = K unless given); their squares add up.

    Directions whose noisy eigenvalue is negative have no root and are left out.
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
    """What the aggregator averages in capePCA, a D x D matrix a site (with a helper, after it took F_s out again)."""
    return cape_perturbed([second_moment(rows) for rows in sites], tau, rng, variant)


def cape_perturbed(
    moments: Sequence[Floats], tau: float, rng: np.random.Generator, variant: Variant = "broadcast"
) -> list[Floats]:
    """The messages of capePCA from the sites' second moments.

    E_s has variance (1 - 1/S) tau^2 in all D^2 entries and adds up to zero, F_s the same variance without adding up,
    G_s is symmetric with variance tau^2/S.
    """
    S, D = len(moments), len(moments[0])
    draws = tau * rng.standard_normal((S, D, D))
    cancelling = draws - draws.mean(axis=0)
    messages = []
    for moment, E in zip(moments, cancelling, strict=True):
        message = moment + E + symmetric_noise(D, tau / math.sqrt(S), rng)
        if variant == "helper":
            F = math.sqrt(1 - 1 / S) * tau * rng.standard_normal((D, D))  # the aggregator's own: it knows it
            message = (message + F) - F
        messages.append(message)
    return messages


def symmetric_noise(D: int, tau: float, rng: np.random.Generator) -> Floats:
    """Independent normal entries on and above the diagonal, mirrored below it."""
    upper = np.triu(tau * rng.standard_normal((D, D)))
    return np.asarray(upper + np.triu(upper, 1).T)


# ---- what they cost -------------------------------------------------------------------------------------------------


def published_tau(epsilon: float, delta: float, records: int) -> float:
    """The papers' noise for n records, sqrt(2 ln(1.25/delta))/(epsilon n): at a site, or at all sites for `pooled_dp`.

    >>> round(published_tau(1.0, 1e-5, 1000), 6)
    0.004845
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / (epsilon * _counted(records))


def exact_epsilon(method: str, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """The true epsilon of a method (a name in `SCHEMES`) at the published calibration for `epsilon`.

    >>> round(exact_epsilon("conv", 1.0, 1e-5, sites=5, colluders=1), 3)
    1.098
    """
    tau = published_tau(epsilon, delta, 1)
    return account(
        _scheme(method), sites=sites, coalition=Coalition(colluders), sensitivity=SENSITIVITY, delta=delta, tau=tau
    ).epsilon


def tau_for_exact(method: str, epsilon: float, delta: float, sites: int, colluders: int, records: int) -> float:
    """The noise at which a method is exactly (epsilon, delta)-private; `records` as in `published_tau`."""
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
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    return Scheme(SCHEMES[method])


def _counted(records: int) -> int:
    if records < 1:
        raise BadParameter(f"a method needs at least one record, got {records}")
    return records
