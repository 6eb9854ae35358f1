"""capePCA's noise and cost, and DPdisPCA, for comparison; never a default.

capePCA, conv, pooled Analyze Gauss and one site alone are sums over sites: the program `cape-pca`
(`zerosum.papers.programs.pca`) under the schemes of `SCHEMES`, which the figures rehearse (`zerosum.papers.rehearsal`).
DPdisPCA, in which each site sends the root of its own noisy matrix, is no sum and is a function here. **Public or
synthetic data only.** The papers' preprocessing (centre all records at their mean, divide by the largest norm) is not
private. All sites have the same number of records n, of norm at most one.

A record is protected by Gaussian noise `tau` on the entries of the sum of x x'. The papers assume a sensitivity of 1
(1/n for a mean); `zerosum.papers.rehearsal.published_tau` follows them. The distinct entries (i <= j) of x x' - y y'
have

    sum of their squares = (norm(x x' - y y')^2 + sum over i of (x_i^2 - y_i^2)^2)/2 <= 2   in the unit ball,

attained by two different unit vectors of the axes, so the exact sensitivity is sqrt(2). The cancelling noise of cape is
not symmetric while the own noise is. A coalition therefore averages entries ij and ji and halves the variance of the
cancelling noise off the diagonal. That at most doubles mu^2 of such an entry. With d the squared change on the
diagonal, the entries above it change by at most (2 - d)/2 in all: the worst pair is still on the diagonal, and mu^2 is
that of `zerosum.kernel.view` at sensitivity sqrt(2). `exact_epsilon` gives the exact cost of the published calibration,
`tau_for_exact` the noise of each method at a given exact epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.papers import rehearsal

SENSITIVITY = math.sqrt(2)  # of the distinct entries of the sum of x x'

# Method to the scheme with the same noise law. A site alone has the noise of a trusted holder of its records.
SCHEMES: dict[str, str] = {
    "cape-broadcast": "cape-published",
    "cape-helper": "cape-helper",
    "conv": "local",
    "dp-dis-pca": "local",
    "analyze-gauss": "pooled",
    "pooled": "pooled",
}
# Methods that use the first site only.
ONE_SITE_METHODS = ("analyze-gauss",)


def leading(matrix: Floats, K: int) -> tuple[Floats, Floats]:
    """The K largest eigenvalues of the symmetric part of a matrix, shape (K,), and their eigenvectors, shape (D, K)."""
    if not 0 < K <= len(matrix):
        raise BadParameter(f"between 1 and {len(matrix)} components can be had, got {K}")
    # `eigh` reads one triangle and ignores the other. The mean of both uses all of a matrix whose noise is not
    # symmetric.
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    # Signed and not absolute values: noise gives a second moment negative eigenvalues, which stand for no direction of
    # the data. The papers' SVD of a symmetric matrix would rank them by magnitude.
    return values[::-1][:K], vectors[:, ::-1][:, :K]


# ---- DPdisPCA -------------------------------------------------------------------------------------------------------


def second_moment(rows: Floats) -> Floats:
    """Mean of x x' over the records, shape (D, D)."""
    return np.asarray(rows.T @ rows / len(rows))


def dp_dis_pca(sites: Sequence[Floats], K: int, tau: float, rng: np.random.Generator, R: int | None = None) -> Floats:
    """Components (D, K) of DPdisPCA: every site sends the rank-R square root of its noisy second moment (default R =
    K), and their squares are summed.

    `tau` is the noise of the sum over a site's records. Directions with a negative noisy eigenvalue have no root and
    are left out.
    """
    D = sites[0].shape[1]
    R = K if R is None else R
    if not 0 < R <= D:
        raise BadParameter(f"the intermediate rank must lie between 1 and {D}, got {R}")
    # Each site adds its own noise here, and none cancels in the sum.
    roots = []
    for rows in sites:
        values, vectors = leading(second_moment(rows) + symmetric_noise(D, tau / len(rows), rng), R)
        roots.append(vectors * np.sqrt(np.maximum(values, 0)))
    # Roots have a sign and an order of columns that differ between sites; their squares do not.
    return leading(np.mean([root @ root.T for root in roots], axis=0), K)[1]


def symmetric_noise(D: int, tau: float, rng: np.random.Generator) -> Floats:
    """Independent normal entries on and above the diagonal, mirrored below it."""
    # One draw for ij and ji, as in Algorithm 2 of capePCA: two would be averaged by any reader.
    upper = np.triu(tau * rng.standard_normal((D, D)))
    return np.asarray(upper + np.triu(upper, 1).T)


# ---- privacy cost ---------------------------------------------------------------------------------------------------


def exact_epsilon(method: str, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Exact epsilon of a method (a name in `SCHEMES`) at the published calibration for `epsilon`.

    >>> round(exact_epsilon("conv", 1.0, 1e-5, sites=5, colluders=1), 3)
    1.098
    """
    tau = rehearsal.published_tau(epsilon, delta)
    return rehearsal.exact_epsilon(
        _scheme(method), tau, delta, sites=sites, colluders=colluders, sensitivity=SENSITIVITY
    )


def tau_for_exact(method: str, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Noise at which a method is exactly (epsilon, delta)-private."""
    return rehearsal.exact_tau(
        _scheme(method), epsilon, delta, sites=sites, colluders=colluders, sensitivity=SENSITIVITY
    )


def _scheme(method: str) -> str:
    """The scheme of a method. Raises `BadParameter`."""
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    return SCHEMES[method]
