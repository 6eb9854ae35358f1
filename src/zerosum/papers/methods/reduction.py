"""Dimension reduction of capeDJICA and DP-djICA: from D voxels to R columns before ICA. For comparison, never a
default.

**Public or synthetic data only**, as in `zerosum.papers.methods.ica`. All functions use second moments, D x D, so that
volumes need not be stored. Volumes are divided by their largest norm, which is not private.

capeDJICA uses capePCA (appendix J). Its noise protects one time point: a person's 250 volumes move the second moment
250 times as far (`zerosum.papers.methods.ica_costs.reduction_mu`). DP-djICA sends a matrix from site to site.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import amounts
from zerosum.papers.methods import pca

# Why DP-djICA is not private, for tables and figures.
NOT_PRIVATE = (
    "DP-djICA is not differentially private: its reduction adds a Wishart matrix W = E E', which has no "
    "negative eigenvalue, to the second moment C. A reader of C + W can rule out every data set whose second moment "
    "C' makes C + W - C' have one. A neighbour in which a zero record became a unit vector x is ruled out with "
    "probability 1 - exp(-epsilon): exp(-epsilon) is the chance that W - x x' has no negative eigenvalue. Bounding the "
    "ratio of the densities by exp(epsilon) where both are positive, as the proof does, says nothing about that. "
    "Besides, the unit is a time point and not a person, and the data are divided by their own largest norm."
)


def non_private(moments: Sequence[Floats], K: int) -> Floats:
    """The K leading directions of the mean second moment, shape (D, K)."""
    return pca.top(np.mean(moments, axis=0), K)


def cape(moments: Sequence[Floats], K: int, tau: float, rng: np.random.Generator) -> Floats:
    """capeDJICA's capePCA on the sites' second moments, shape (D, K). `tau` is
    `zerosum.papers.methods.pca.published_tau`."""
    return pca.top(np.mean(pca.cape_perturbed(moments, tau, rng), axis=0), K)


def wishart(D: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """E E' for D + 1 columns N(0, I/(2 epsilon)), with density proportional to exp(-epsilon trace)."""
    amounts.check_epsilon(epsilon)
    E = rng.standard_normal((D, D + 1)) / np.sqrt(2 * epsilon)
    return np.asarray(E @ E.T)


def private_local_pca(scatter: Floats, K: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """PrivateLocalPCA (DP-djICA, Algorithm 1) of a sum of x x': the rank-K root of the sum plus a Wishart matrix, shape
    (D, K).

    **Not private** in spite of its name: see `NOT_PRIVATE`.
    """
    if not 0 < K <= len(scatter):
        raise BadParameter(f"between 1 and {len(scatter)} components can be had, got {K}")
    values, vectors = np.linalg.eigh(scatter + wishart(len(scatter), epsilon, rng))
    return np.asarray((vectors[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0)))[:, :K])


def private_global_pca(
    scatters: Sequence[Floats], R: int, epsilon: float, rng: np.random.Generator, local: int | None = None
) -> Floats:
    """PrivateGlobalPCA (DP-djICA, Algorithm 2): a matrix of rank `local` (default R) visits all sites; shape (D, R).

    **Not private**: see `NOT_PRIVATE`. Every visit costs epsilon twice, for the site's own data and for the matrix. The
    columns are normalised at the end, so that the reduced data are not whitened.
    """
    K = R if local is None else local
    if R > K:
        raise BadParameter(f"the local rank must be at least {R}, got {K}")
    order = rng.permutation(len(scatters))
    first = scatters[order[0]]
    parcel = private_local_pca(first, _rank(first, K), epsilon, rng)
    for s in order[1:]:
        mine = private_local_pca(scatters[s], _rank(scatters[s], K), epsilon, rng)
        both = mine @ mine.T + parcel @ parcel.T
        parcel = private_local_pca(both, max(mine.shape[1], parcel.shape[1]), epsilon, rng)
    return np.asarray((parcel / np.linalg.norm(parcel, axis=0))[:, :R])


def _rank(scatter: Floats, most: int) -> int:
    """Rank of a matrix, at most `most`."""
    return min(most, int(np.linalg.matrix_rank(scatter, hermitian=True)))


def whitening(moment: Floats) -> Floats:
    """Symmetric inverse root of a second moment: rows times it have unit second moment.

    The papers have no such step. Exact whitening is the most favourable setting for their iteration, and is not
    private.
    """
    values, vectors = np.linalg.eigh((moment + moment.T) / 2)
    if values[0] <= 1e-12 * values[-1]:
        raise BadParameter("a second moment without an inverse cannot whiten")
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
