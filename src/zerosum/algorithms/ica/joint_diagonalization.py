"""Second-order separation: joint diagonalisation of second moments by frequency band. Free post-processing.

Model. Sources with different spectra have, in band b of `bands`, the second moment

    M_b = A D_b A'        (A: R x R mixing matrix in the reduced coordinates; D_b: diagonal, R x R).

The input is the release of `statistics.bands.BandScatter`: `moments` (bands x R x R), the sum over units of their
normalised second moments by band, with Gaussian noise of standard deviation `noise` in isometric coordinates. Two free
steps recover A:

1. `pca.spectrum.whiten_again` whitens the sum over bands, sum_b M_b, with shrinkage of the eigenvalues.
2. `joint_rotation` finds the rotation Q that minimises the sum over bands of the squared off-diagonal entries of
   Q' K_b Q, with K_b the whitened M_b (Cardoso and Souloumiac, "Jacobi angles for simultaneous diagonalization", SIAM
   J. Matrix Anal. Appl. 17, 1996). SOBI (Belouchrani et al., IEEE Trans. Signal Process. 45, 1997) does the same with
   lagged covariances; the moments by band determine those, and are positive semidefinite.

`bootstrap_stability` estimates the stability of each source by a parametric bootstrap: it takes the estimated moments
as truth, adds noise of the known size, separates again, and correlates the maps. It uses released numbers and a public
seed only.

Tuned constants are in `tuning`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.ica.tuning import TUNING
from zerosum.algorithms.pca.spectrum import ReplayedSpectra, whiten_again
from zerosum.arrays import Floats
from zerosum.kernel import coordinates


def joint_rotation(matrices: Floats, sweeps: int = 200) -> Floats:
    """The orthogonal Q (R x R) that minimises the sum of the squared off-diagonal entries of all Q' K Q.

    Jacobi's method: each step rotates one pair of coordinates by the angle of Cardoso and Souloumiac, which is optimal
    for that pair. Disjoint pairs commute, so they are rotated together in one vectorised step.

    Parameters
    ----------
    matrices : array (matrices, R, R)
        Symmetric matrices K.
    sweeps : int
        Most sweeps over all pairs. The iteration stops earlier when no angle of a sweep exceeds 1e-8 radians.

    Returns
    -------
    array (R, R)
        Q, one direction per column.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    >>> K = np.stack([Q @ np.diag(rng.normal(size=4)) @ Q.T for _ in range(3)])
    >>> found = joint_rotation(K)
    >>> sorted(np.abs(found.T @ Q).max(axis=0).round(6).tolist())
    [1.0, 1.0, 1.0, 1.0]
    """
    K = np.array(matrices, dtype=np.float64)
    R = K.shape[1]
    Q = np.eye(R)
    for _ in range(sweeps):
        largest = 0.0
        for p, q in _disjoint_pairs(R):
            # For each matrix the vector (K_pp - K_qq, 2 K_pq) turns by twice the rotation angle. The optimal angle
            # aligns the principal axis of these vectors, over all matrices, with the first coordinate.
            apart, across = K[:, p, p] - K[:, q, q], 2 * K[:, p, q]
            straight, bent = np.sum(apart**2 - across**2, axis=0), 2 * np.sum(apart * across, axis=0)
            # The form with hypot keeps the angle within 45 degrees (the inner rotation), which makes sweeps converge.
            angle = 0.5 * np.arctan2(bent, straight + np.hypot(straight, bent))
            largest = max(largest, float(np.max(np.abs(angle))))
            c, s = np.cos(angle), np.sin(angle)
            # Columns of K, then rows of K (the columns of its transposed view), then the accumulated rotation.
            for turned in (K, K.transpose(0, 2, 1), Q):
                left, right = turned[..., p], turned[..., q]
                turned[..., p], turned[..., q] = c * left + s * right, c * right - s * left
        if largest < 1e-8:
            break
    return Q


@lru_cache(maxsize=8)
def _disjoint_pairs(order: int) -> tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]:
    """All pairs of `order` indices, grouped so that each index occurs at most once in a group.

    The circle method of a round-robin tournament: index 0 keeps its place and the others rotate. Returns for each group
    two index arrays p < q. For an odd order one place stays empty.

    >>> [list(zip(p.tolist(), q.tolist())) for p, q in _disjoint_pairs(3)]
    [[(1, 2)], [(0, 2)], [(0, 1)]]
    """
    even, rounds = order + order % 2, []
    for turn in range(even - 1):
        seats = np.concatenate([[0], 1 + (np.arange(even - 1) - turn) % (even - 1)])
        pairs = np.sort(np.stack([seats[: even // 2], seats[: even // 2 - 1 : -1]]), axis=0)
        rounds.append(pairs[:, pairs[1] < order])
    return tuple((pair[0], pair[1]) for pair in rounds if pair.size)


def separate(moments: Floats, noise: float, sweeps: int = 200) -> tuple[Floats, Floats, Floats]:
    """Whiten and rotate noisy second moments by band.

    Parameters
    ----------
    moments : array (bands, R, R)
        Released second moments by band.
    noise : float
        Standard deviation of the noise of one band, in isometric coordinates.
    sweeps : int
        Most Jacobi sweeps.

    Returns
    -------
    white : array (R, R)
        Whitening matrix: coordinates c become c @ white.
    back : array (R, R)
        Its inverse transposed: white coordinates z stand for back @ z.
    rotation : array (R, R)
        One source per row, in white coordinates.
    """
    # The sum over bands is the total second moment; noise of independent bands adds in squares.
    white, back = whiten_again(np.sum(moments, axis=0), noise * math.sqrt(len(moments)))
    return white, back, joint_rotation(white.T @ moments @ white, sweeps).T


def bootstrap_stability(
    moments: Floats,
    noise: float,
    reductions: ReplayedSpectra,
    rotation: Floats,
    back: Floats,
    columns: Floats,
    seed: int = 0,
) -> Floats:
    """The expected correlation of each source's map with its noise-free map, by a parametric bootstrap.

    Each replicate repeats both private stages. The reduction is taken from `reductions`: simulated releases of the
    second moment, in which noise mixes the R selected directions with the rejected ones. The bands get fresh noise. A
    rejected direction has no known spectrum, so it gets the spectrum of a randomly chosen source.

    The bootstrap is biased, because the estimated moments are not the true ones. A second-level bootstrap of the band
    stage alone estimates this bias as the ratio of first-level to second-level correlations; all correlations are
    multiplied by that one ratio.

    Parameters
    ----------
    moments : array (bands, R, R)
        Released second moments by band, in the reduced coordinates.
    noise : float
        Standard deviation of the noise of one band, in isometric coordinates.
    reductions : ReplayedSpectra
        Simulated releases of the reduction (`NoisySpectrum.replay`), or `ReplayedSpectra.exact` if nothing was reduced.
    rotation, back : arrays (R, R)
        Results of `separate`.
    columns : array (data columns, directions)
        All directions of the last release of the reduction in data columns, the R selected ones first.
    seed : int
        Public seed of the replicates.

    Returns
    -------
    array (R,)
        Expected correlations between 0 and 1.
    """
    rng, R = np.random.default_rng(seed), len(rotation)
    if len(columns) == R:
        # With as many directions as sources there are few columns, and `_bootstrap` subtracts the mean over columns.
        # Appending the negated rows makes every mean zero, so the correlation is the cosine of the maps.
        columns = np.concatenate([columns, -columns]) / math.sqrt(2)
    mixing = back @ rotation.T
    stability, _ = _bootstrap(moments, noise, reductions, mixing, columns, rng, TUNING.replicates)
    # For the bias the reduction counts as exact. Only the noise of the bands is simulated, at two levels.
    wanted = columns[:, :R] * np.mean(reductions.roots, axis=0)
    exact = _exact_reduction(moments, noise)
    first, again = _bootstrap(moments, noise, exact, mixing, wanted, rng, TUNING.replicates // 2)
    second = [
        np.mean(
            _bootstrap(
                simulated, noise, _exact_reduction(simulated, noise), mixed, wanted, rng, TUNING.bias_replicates
            )[0]
        )
        for simulated, mixed in again[: TUNING.bias_replicates]
    ]
    return np.asarray(np.clip(stability * np.mean(first) / max(float(np.mean(second)), 1e-300), 0.0, 1.0))


def _bootstrap(
    moments: Floats,
    noise: float,
    reductions: ReplayedSpectra,
    mixing: Floats,
    columns: Floats,
    rng: np.random.Generator,
    repeats: int,
) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """Bootstrap replicates: the mean correlation of each map, and the moments and mixing matrix of each replicate.

    Maps are compared in data columns, as `metrics.matched` compares them. Strong directions count for more there than
    in white coordinates.

    Parameters
    ----------
    moments : array (bands, R, R)
        Second moments by band that count as the truth after shrinkage.
    noise : float
        Standard deviation of the noise of one band, in isometric coordinates.
    reductions : ReplayedSpectra
        Simulated releases of the reduction. Replicate i uses number i modulo their count.
    mixing : array (R, R)
        Estimated mixing matrix in the coordinates of `moments`.
    columns : array (data columns, directions)
        Directions in data columns, the R selected ones first.
    rng : Generator
        Source of the simulated noise (not private noise).
    repeats : int
        Number of replicates.

    Returns
    -------
    correlations : array (R,)
        Mean absolute correlation of each map with its matched map of the replicates.
    again : list of (moments, mixing)
        The noisy moments (bands, R, R) and the estimated mixing (R, R) of each replicate.
    """
    from scipy.optimize import linear_sum_assignment  # heavy: loaded when it is used

    bands, R, _ = moments.shape
    whole = np.sum(moments, axis=0)
    # Released bands differ more than the true bands, because of noise. `alike` is the hypothesis that all bands are
    # proportional to their sum. Deviations from it shrink by the share of their sum of squares that noise explains
    # (James and Stein): (bands - 1) R (R + 1)/2 free coordinates with variance noise^2 each.
    alike = np.trace(moments, axis1=1, axis2=2)[:, None, None] / max(float(np.trace(whole)), noise) * whole
    by_noise = (bands - 1) * noise**2 * R * (R + 1) / 2
    explained = min(by_noise / max(float(np.sum((moments - alike) ** 2)), 1e-300), 1.0)
    clean = alike + math.sqrt(1 - explained) * (moments - alike)
    # The spectrum of each source: its variance by band, normalised to sum 1. It is used for rejected directions below.
    unmixing = np.linalg.inv(mixing)
    spectra = np.maximum(np.diagonal(unmixing @ clean @ unmixing.T, axis1=1, axis2=2), 0.0)
    spectra = spectra / np.maximum(np.sum(spectra, axis=0), 1e-300)
    # Rescale from the coordinates of the bands to the directions of the reduction, so that the diagonal of the sum of
    # bands equals the noise-free eigenvalues of `reductions`, in which the rejected directions are given too.
    stretch = np.sqrt(reductions.values[:R] / np.maximum(np.diag(whole), noise))
    clean = stretch[:, None] * clean * stretch
    maps = columns[:, :R] @ (stretch[:, None] * mixing)
    # Only the share `reductions.inside` of a direction lies in the retained coordinates at all. Dividing by the norm of
    # the whole map counts the lost part as lost correlation.
    norms = np.linalg.norm(_centre(columns[:, :R] / np.sqrt(reductions.inside) @ (stretch[:, None] * mixing)), axis=0)
    maps = _centre(maps) / np.maximum(norms, 1e-300)
    matches, again = np.zeros((repeats, R)), []
    for i, draw in enumerate(matches):
        vectors, root = reductions.vectors[i % len(reductions.vectors)], reductions.roots[i % len(reductions.roots)]
        # The simulated eigenvectors hold `own` of the R true directions and `others` of the rejected ones. Both parts
        # enter the moments that this replicate would release, in its own (imperfectly) white coordinates.
        own, others = vectors[:R], vectors[R:]
        other = spectra[:, rng.integers(R, size=len(others))] * reductions.values[R:]
        simulated = (own.T @ clean @ own + others.T @ (other[:, :, None] * others)) / (root[:, None] * root)
        total = float(np.trace(np.sum(simulated, axis=0)))
        # Every unit is normalised to norm 1 in whatever coordinates, so the total stays that of the real release.
        if total > 0:
            simulated *= max(float(np.trace(whole)), 0.0) / total
        simulated += np.stack([coordinates.unpack(noise * rng.normal(size=R * (R + 1) // 2), R) for _ in simulated])
        _white, back, rotation = separate(simulated, noise, TUNING.replicate_sweeps)
        mixed = back @ rotation.T
        apart = _centre(columns @ (vectors @ (root[:, None] * mixed)))
        # Order and sign of sources are arbitrary: take absolute values and the optimal one-to-one assignment.
        correlation = np.abs(maps.T @ apart) / np.maximum(np.linalg.norm(apart, axis=0), 1e-300)
        draw[:] = correlation[np.arange(R), linear_sum_assignment(-correlation)[1]]
        again.append((simulated, mixed))
    return np.asarray(np.mean(matches, axis=0)), again


def _exact_reduction(moments: Floats, noise: float) -> ReplayedSpectra:
    """A reduction without error: the variances of the R coordinates, at least `noise`, and no rejected directions."""
    return ReplayedSpectra.exact(np.maximum(np.diag(np.sum(moments, axis=0)), noise))


def _centre(maps: Floats) -> Floats:
    """Maps (columns x R) less the mean of each over the columns, as a correlation needs them."""
    return np.asarray(maps - np.mean(maps, axis=0))
