"""Normal components of a mixture, and one EM step from released sums. Free post-processing.

Symbols: K components in D columns, component k with mean a_k (D), variance v_k (spherical) and weight w_k. A round
releases for each component a count, the sum of clipped residuals, and the sum of 1 - |residual|^2/clip^2 where that is
positive (`MixtureSums`). The functions here turn such a release into a step of the means, weights and variances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from zerosum.arrays import Floats
from zerosum.statistics.mixture import MixtureSums

Bools = NDArray[np.bool_]

# Chosen by hand; no benchmark recorded, unless a source is given.
DROWNED = 3.0  # smallest count of a component, in standard deviations of the noise
ONE_PEAK = 2.0  # distance in standard deviations below which two equal normal components have one peak (exact)
_KNOWN = 0.05  # noise of a spread over its count, at which the released and the earlier variance have equal weight
_FARTHEST = 5.0  # largest factor between the variance of a component and the mean variance
_QUANTILES = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, eq=False)
class Components:
    """Normal components: means, variances, weights."""

    means: Floats
    variances: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Step:
    """The result of one round of EM."""

    moves: Floats  # (K, D), change of each mean
    noise: Floats  # (K,), standard deviation of the noise of a move, per coordinate
    counts: Floats  # (K,), as released
    count_noise: float  # standard deviation of the noise of a count
    variances: Floats  # (K,)

    @property
    def weights(self) -> Floats:
        """Counts over their sum. Small counts are raised to the noise threshold, so that no weight is zero."""
        counts = np.maximum(self.counts, max(DROWNED * self.count_noise, 1.0))
        return np.asarray(counts / np.sum(counts))


def stepped(statistic: MixtureSums, release: Floats, noise: float, at: Components, *, update_variances: bool) -> Step:
    """One EM step from the release of a round. A component whose count is below the noise threshold does not move.

    Clipping the residuals shrinks a shift of the mean by a factor that depends on the clip and the variance of a normal
    component (`kept_shift`). The moves are divided by this factor.

    Parameters
    ----------
    statistic : MixtureSums
        The request of the round.
    release : array
        Its released sums.
    noise : float
        Standard deviation of the noise of a count.
    at : Components
        The components of the request.
    update_variances : bool
        Whether to estimate variances from the released spreads.
    """
    counts, sums, spreads = statistic.split(release)
    clips, width = statistic.clip * statistic.radii, statistic.width
    least = max(DROWNED * noise, 1.0)
    heard, firm = counts > least, np.maximum(counts, least)
    variances = at.variances
    if update_variances:
        ordinary = float(at.weights @ at.variances)
        told = np.array([variance_of(r, c, v, width) for r, c, v in zip(spreads / firm, clips, variances, strict=True)])
        told = np.clip(told, ordinary / _FARTHEST, _FARTHEST * ordinary)
        # weighted geometric mean of the released and the earlier variance; noise lowers the weight of the released one
        trust = heard / (1 + (noise / firm / _KNOWN) ** 2)
        variances = np.exp(trust * np.log(told) + (1 - trust) * np.log(variances))
    kept = np.array([kept_shift(c / math.sqrt(v), width) for c, v in zip(clips, variances, strict=True)])
    moves = sums / (firm * kept)[:, None]
    size = np.linalg.norm(moves, axis=1)
    # a move longer than twice the clip is more than clipped residuals can support: it is mostly noise
    moves = moves * (heard * np.minimum(1, 2 * clips / np.maximum(size, 1e-300)))[:, None]
    return Step(moves, clips * noise / (firm * kept), counts, noise, np.asarray(variances))


def believed(step: Step, basis: Floats | None) -> Floats:
    """The moves of the last round, shrunk towards zero (positive-part James-Stein).

    The parts of a move inside the subspace of the means and orthogonal to it are shrunk separately, each by the share
    of its squared length that its noise explains. A move that noise explains leaves the mean of the earlier rounds.

    `basis` is (D, P), orthonormal; None: there is no subspace.
    """
    if basis is None:
        return _shrunk(step.moves, step.noise, step.moves.shape[1])
    inside = step.moves @ basis @ basis.T
    D, P = basis.shape
    return _shrunk(inside, step.noise, P) + _shrunk(step.moves - inside, step.noise, D - P)


def _shrunk(moves: Floats, noise: Floats, width: int) -> Floats:
    squares = np.maximum(np.sum(moves**2, axis=1), 1e-300)
    return np.asarray(moves * np.maximum(0.0, 1 - max(width - 2, 0) * noise**2 / squares)[:, None])


def separations(means: Floats, variances: Floats, noise: Floats, heard: Bools) -> tuple[Floats, Floats]:
    """For each mean the distance to the nearest other mean, in standard deviations of the data, and the noise of that
    distance along the line between the two; zero where there is no other.

    `heard` (K,) selects the components with a count above the noise; the others are no neighbours.

    >>> separations(np.array([[0.0], [3.0], [4.0]]), np.ones(3), np.full(3, 0.1), np.array([True] * 3))[0].tolist()
    [3.0, 1.0, 1.0]
    """
    spread = np.sqrt((variances[:, None] + variances[None, :]) / 2)
    apart = np.linalg.norm(means[:, None] - means[None], axis=2) / spread
    apart = np.where(heard[None, :] & ~np.eye(len(means), dtype=bool), apart, np.inf)
    rows, nearest = np.arange(len(means)), np.argmin(apart, axis=1)
    found = apart[rows, nearest]
    std = np.hypot(noise, noise[nearest]) / spread[rows, nearest]
    alone = np.isinf(found)
    return np.where(alone, 0.0, found), np.where(alone, 0.0, std)


def _norms(width: int) -> Floats:
    """Quantiles of the norm of a standard normal vector."""
    return np.asarray(np.sqrt(2 * gammaincinv(width / 2, _QUANTILES)))


def kept_shift(clip: float, width: int) -> float:
    """Derivative of the mean of a clipped normal vector with respect to its mean, at zero.

    A standard normal vector x in `width` dimensions is clipped to norm `clip`. Below the clip the derivative is 1.
    Above it, x clip/|x| depends only on the direction of x, and the derivative is clip/|x| (1 - 1/width) on average.

    >>> round(kept_shift(100.0, 5), 6), kept_shift(1.0, 5) < 0.5
    (1.0, True)
    """
    norms = _norms(width)
    return max(float(np.mean(np.where(norms < clip, 1.0, clip / norms * (1 - 1 / width)))), 1e-3)


def variance_of(ratio: float, clip: float, variance: float, width: int) -> float:
    """The variance of a normal vector x for which max(0, 1 - |x|^2/clip^2) has the mean `ratio`.

    The mean decreases with the variance, so the equation is inverted by interpolation on a grid from variance/20 to
    20 variance.
    """
    squares = _norms(width) ** 2 / clip**2
    tried = variance * np.geomspace(0.05, 20, 400)
    told = np.array([np.mean(np.maximum(0.0, 1 - v * squares)) for v in tried])
    return float(np.interp(-ratio, -told, tried))


def heard_shares(counts: Floats, noise: float) -> Floats:
    """The shares of a noisy histogram. Bins below the noise threshold count as empty, except the largest.

    >>> heard_shares(np.array([40.0, -3.0, 2.0, 10.0]), 1.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    kept = np.where(counts > min(DROWNED * noise, float(np.max(counts)) * (1 - 1e-9)), counts, 0.0)
    return np.asarray(kept / np.sum(kept)) if np.sum(kept) > 0 else np.full(len(counts), 1 / len(counts))


def quantile(edges: Floats, shares: Floats, inside: float) -> tuple[float, float]:
    """A quantile of squared norms from their histogram, and the bias of clipping there.

    Parameters
    ----------
    edges, shares : arrays (n + 1,) and (n,)
        Logarithmic edges of the bins, and the shares of units in them.
    inside : float
        Probability of the quantile.

    Returns
    -------
    square, factor : float
        The quantile of the squared norms, and the mean of squared norms over their mean when clipped at the quantile.
    """
    until = np.concatenate([[0.0], np.cumsum(shares)])
    at = min(max(int(np.searchsorted(until, inside)), 1), len(shares))
    part = (inside - until[at - 1]) / max(float(until[at] - until[at - 1]), 1e-9)
    square = float(edges[at - 1] * (edges[at] / edges[at - 1]) ** min(max(part, 0.0), 1.0))
    middles = np.sqrt(edges[1:] * edges[:-1])
    return square, float(shares @ middles / (shares @ np.minimum(middles, square)))


def far_apart(candidates: Floats, count: int) -> Floats:
    """Choose `count` of the candidates, each the farthest from all chosen before it (greedy k-center)."""
    chosen, distance = [0], np.full(len(candidates), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.sum((candidates - candidates[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(np.argmax(distance)))
    return np.asarray(candidates[chosen])
