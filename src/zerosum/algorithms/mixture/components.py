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

from zerosum.algorithms.mixture.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.statistics.mixture import MixtureSums

Bools = NDArray[np.bool_]

# Midpoints of 400 equal parts of [0, 1]: a mean over quantiles at these points is the midpoint rule for an expectation.
_QUANTILES = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, eq=False)
class Components:
    """K spherical normal components."""

    means: Floats  # (K, D), about the centre of the frame, in the scale of the rows
    variances: Floats  # (K,), per column
    weights: Floats  # (K,), positive, with sum 1


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
        counts = np.maximum(self.counts, max(TUNING.count_evidence * self.count_noise, 1.0))
        return np.asarray(counts / np.sum(counts))


def em_step(statistic: MixtureSums, release: Floats, noise: float, at: Components, *, update_variances: bool) -> Step:
    """One EM step from the release of a round. A component whose count is below the noise threshold does not move.

    Clipping the residuals shrinks a shift of the mean by a factor that depends on the clip and the variance of a normal
    component (`kept_shift`). The moves are divided by this factor.

    Parameters
    ----------
    statistic : MixtureSums
        The request of the round.
    release : array (K (2 + width),)
        Its released sums.
    noise : float
        Standard deviation of the noise of a count.
    at : Components
        The components of the request.
    update_variances : bool
        Whether to estimate variances from the released spreads.

    Returns
    -------
    Step
        Moves are in the coordinates of the round: `width` is K - 1 in the subspace of the means, else D.
    """
    counts, sums, spreads = statistic.split(release)
    clips, width = statistic.clip * statistic.radii, statistic.width
    least = max(TUNING.count_evidence * noise, 1.0)
    # Counts are divisors: below the threshold they are replaced by it, and `present` keeps their quotients unused.
    present, firm = counts > least, np.maximum(counts, least)
    variances = at.variances
    if update_variances:
        ordinary = float(at.weights @ at.variances)
        updates = np.array(
            [variance_of(r, c, v, width) for r, c, v in zip(spreads / firm, clips, variances, strict=True)]
        )
        updates = np.clip(updates, ordinary / TUNING.variance_ratio, TUNING.variance_ratio * ordinary)
        # Weighted geometric mean of the released and the earlier variance (variances are scale parameters, so their
        # logarithms are averaged); noise lowers the weight of the released one.
        trust = present / (1 + (noise / firm / TUNING.spread_noise) ** 2)
        variances = np.exp(trust * np.log(updates) + (1 - trust) * np.log(variances))
    # Mean of clipped residuals = kept * (shift of the mean) to first order, so the sums are divided by count * kept.
    fractions = np.array([kept_shift(c / math.sqrt(v), width) for c, v in zip(clips, variances, strict=True)])
    moves = sums / (firm * fractions)[:, None]
    size = np.linalg.norm(moves, axis=1)
    # Clipped residuals have a mean of at most one clip, so a longer move is mostly noise and is shortened.
    moves = moves * (present * np.minimum(1, TUNING.move_most * clips / np.maximum(size, 1e-300)))[:, None]
    return Step(moves, clips * noise / (firm * fractions), counts, noise, np.asarray(variances))


def shrink_moves(step: Step, basis: Floats | None) -> Floats:
    """The moves of the last round, shrunk towards zero (positive-part James-Stein).

    The parts of a move inside the subspace of the means and orthogonal to it are shrunk separately, each by the share
    of its squared length that its noise explains. A move that noise explains leaves the mean of the earlier rounds.

    Parameters
    ----------
    step : Step
        Moves (K, D) of the components in a round, with the noise of each.
    basis : array of shape (D, P), optional
        Orthonormal; None: there is no subspace.
    """
    if basis is None:
        return _shrink(step.moves, step.noise, step.moves.shape[1])
    inside = step.moves @ basis @ basis.T
    D, P = basis.shape
    return _shrink(inside, step.noise, P) + _shrink(step.moves - inside, step.noise, D - P)


def _shrink(moves: Floats, noise: Floats, width: int) -> Floats:
    """Positive-part James-Stein: moves (K, D) times max(0, 1 - (width - 2) noise^2/|move|^2).

    Below three dimensions nothing is shrunk, since no estimator is uniformly better there (Stein 1956).

    Parameters
    ----------
    moves : array of shape (K, D)
        Noisy moves.
    noise : array of shape (K,)
        Standard deviation of a coordinate of each move.
    width : int
        Dimension of the space in which the moves lie.
    """
    squares = np.maximum(np.sum(moves**2, axis=1), 1e-300)
    return np.asarray(moves * np.maximum(0.0, 1 - max(width - 2, 0) * noise**2 / squares)[:, None])


def separations(means: Floats, variances: Floats, noise: Floats, present: Bools) -> tuple[Floats, Floats]:
    """The distance of each mean to the nearest other one, in standard deviations of the data.

    Parameters
    ----------
    means, variances : arrays (K, D) and (K,)
        The components.
    noise : array (K,)
        Standard deviation of the noise of a mean, per coordinate.
    present : array (K,), bool
        Components with a count above the noise; the others are no neighbours.

    Returns
    -------
    distance, std : arrays (K,)
        The distances, and their noise along the line between the two means; zero where there is no other.

    >>> separations(np.array([[0.0], [3.0], [4.0]]), np.ones(3), np.full(3, 0.1), np.array([True] * 3))[0].tolist()
    [3.0, 1.0, 1.0]
    """
    # The unit is the root mean square of the two standard deviations.
    spread = np.sqrt((variances[:, None] + variances[None, :]) / 2)
    apart = np.linalg.norm(means[:, None] - means[None], axis=2) / spread
    apart = np.where(present[None, :] & ~np.eye(len(means), dtype=bool), apart, np.inf)
    rows, nearest = np.arange(len(means)), np.argmin(apart, axis=1)
    distances = apart[rows, nearest]
    std = np.hypot(noise, noise[nearest]) / spread[rows, nearest]
    alone = np.isinf(distances)
    return np.where(alone, 0.0, distances), np.where(alone, 0.0, std)


def _norms(width: int) -> Floats:
    """Quantiles (400,) of the norm of a standard normal vector: |x|^2/2 has the gamma distribution of shape width/2."""
    return np.asarray(np.sqrt(2 * gammaincinv(width / 2, _QUANTILES)))


def kept_shift(clip: float, width: int) -> float:
    """Derivative of the mean of a clipped normal vector with respect to its mean, at zero.

    A standard normal vector x in `width` dimensions is clipped to norm `clip`. Below the clip the derivative is 1.
    Above it, x clip/|x| depends only on the direction of x, and the derivative is clip/|x| (1 - 1/width) on average.

    Parameters
    ----------
    clip : float
        Largest norm, in standard deviations of a coordinate.
    width : int
        Dimension of x.

    >>> round(kept_shift(100.0, 5), 6), kept_shift(1.0, 5) < 0.5
    (1.0, True)
    """
    norms = _norms(width)
    return max(float(np.mean(np.where(norms < clip, 1.0, clip / norms * (1 - 1 / width)))), 1e-3)


def variance_of(ratio: float, clip: float, variance: float, width: int) -> float:
    """The variance of a normal vector x for which max(0, 1 - |x|^2/clip^2) has the mean `ratio`.

    The mean decreases with the variance, so the equation is inverted by interpolation on a grid from variance/20 to 20
    variance. Outside of the grid the nearer end is returned. (A root finder would need a bracket for ratios that noise
    moves outside of the range, and gains nothing: noise is far above the error of the grid, 0.8 per cent.)

    Parameters
    ----------
    ratio : float
        Released spread over released count.
    clip : float
        Clip of the residuals, in the scale of the rows.
    variance : float
        The earlier variance, at the middle of the grid.
    width : int
        Dimension of x.
    """
    squares = _norms(width) ** 2 / clip**2
    tried = variance * np.geomspace(0.05, 20, 400)
    expected = np.array([np.mean(np.maximum(0.0, 1 - v * squares)) for v in tried])
    # np.interp needs rising abscissae, and the expected ratios fall.
    return float(np.interp(-ratio, -expected, tried))


def shares_above_noise(counts: Floats, noise: float) -> Floats:
    """The shares of a noisy histogram. Bins below the noise threshold count as empty, except the largest.

    >>> shares_above_noise(np.array([40.0, -3.0, 2.0, 10.0]), 1.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    # The factor below 1 keeps the largest bin even if it is below the threshold.
    counts_above = np.where(
        counts > min(TUNING.count_evidence * noise, float(np.max(counts)) * (1 - 1e-9)), counts, 0.0
    )
    return (
        np.asarray(counts_above / np.sum(counts_above))
        if np.sum(counts_above) > 0
        else np.full(len(counts), 1 / len(counts))
    )


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
    # Within the bin the squared norms are taken to be uniform on the logarithmic scale.
    part = (inside - until[at - 1]) / max(float(until[at] - until[at - 1]), 1e-9)
    square = float(edges[at - 1] * (edges[at] / edges[at - 1]) ** min(max(part, 0.0), 1.0))
    middles = np.sqrt(edges[1:] * edges[:-1])
    return square, float(shares @ middles / (shares @ np.minimum(middles, square)))
