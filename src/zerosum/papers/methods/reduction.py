"""Dimension reduction of capeDJICA and DP-djICA: from D voxels to R columns before ICA. For comparison, never a
default.

**Public or synthetic data only**, as in `zerosum.papers.methods.ica`. Second moments, D x D, are used, so that volumes
need not be stored. Volumes are divided by their largest norm, which is not private.

capeDJICA uses capePCA (appendix J), here the program `cape-pca` on `Scatters`. Its noise protects one time point: a
person's 250 volumes move the second moment 250 times as far (`zerosum.papers.methods.ica_costs.reduction_mu`). DP-djICA
sends a matrix from site to site.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import amounts
from zerosum.kernel.request import PrivateSum
from zerosum.papers.rehearsal import PublicSums

# Why DP-djICA is not private, for tables and figures.
NOT_PRIVATE = (
    "DP-djICA is not differentially private: its reduction adds a Wishart matrix W = E E', which has no "
    "negative eigenvalue, to the second moment C. A reader of C + W can rule out every data set whose second moment "
    "C' makes C + W - C' have one. A neighbour in which a zero record became a unit vector x is ruled out with "
    "probability 1 - exp(-epsilon): exp(-epsilon) is the chance that W - x x' has no negative eigenvalue. Bounding the "
    "ratio of the densities by exp(epsilon) where both are positive, as the proof does, says nothing about that. "
    "Besides, the unit is a time point and not a person, and the data are divided by their own largest norm."
)


class Scatters(PublicSums):
    """Sites of which the sums of x x' over their volumes are given, and not the volumes.

    The program `cape-pca` with a clip of 1 is rehearsed on them: capeDJICA's reduction, or that of another scheme.

    Parameters
    ----------
    scatters : sequence of array of shape (D, D)
        The sum of x x' of each site, x of norm at most 1.
    volumes : int
        Volumes at each site. Each is a unit, as published.
    """

    def __init__(self, scatters: Sequence[Floats], volumes: int) -> None:
        super().__init__(len(scatters[0]), [volumes] * len(scatters))
        self.scatters = list(scatters)

    def sums(self, request: PrivateSum) -> list[Floats]:
        """The distinct entries of every scatter, which `cape-pca` asks for."""
        return [scatter[np.triu_indices(self.columns)] for scatter in self.scatters]


def wishart(D: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """E E' for D + 1 columns N(0, I/(2 epsilon)), with density proportional to exp(-epsilon trace)."""
    amounts.check_epsilon(epsilon)
    # DP-djICA, Algorithm 1, line 2: with D + 1 columns the power of the determinant in the Wishart density is 0, and
    # exp(-epsilon trace) remains.
    E = rng.standard_normal((D, D + 1)) / np.sqrt(2 * epsilon)
    return np.asarray(E @ E.T)


def private_local_pca(scatter: Floats, K: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """PrivateLocalPCA (DP-djICA, Algorithm 1) of a sum of x x': the rank-K root of the sum plus a Wishart matrix, shape
    (D, K).

    **Not private** in spite of its name: see `NOT_PRIVATE`.
    """
    if not 0 < K <= len(scatter):
        raise BadParameter(f"between 1 and {len(scatter)} components can be had, got {K}")
    # Eigenvalues of a sum of two positive semi-definite matrices are below 0 by rounding only, and have no root there.
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
        # Algorithm 2, line 9: private PCA of the columns [P' P(j-1)], whose second moment is the sum of both squares.
        both = mine @ mine.T + parcel @ parcel.T
        parcel = private_local_pca(both, max(mine.shape[1], parcel.shape[1]), epsilon, rng)
    # Algorithm 2, line 12 (NormalizeTopColumns). The columns are roots times eigenvectors, in decreasing order.
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
    # Below this ratio an eigenvalue is mostly rounding error, whose size is relative to the largest eigenvalue.
    if values[0] <= 1e-12 * values[-1]:
        raise BadParameter("a second moment without an inverse cannot whiten")
    return np.asarray((vectors / np.sqrt(values)) @ vectors.T)
