"""Normal components and what a round of EM says about them. Free post-processing.

Tested in tests/algorithms/test_mixture.py.
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

DROWNED = 3.0  # standard deviations: a smaller count is no component
ONE_PEAK = 2.0  # standard deviations: two equal components that are nearer have one peak
_KNOWN = 0.05  # noise of a spread, over its count, at which half of it is believed
_FARTHEST = 5.0  # times the ordinary variance, or a part of it: no component is believed to be wider or narrower
_QUANTILES = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, eq=False)
class Components:
    """Normal components: means, variances, weights."""

    means: Floats
    variances: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class Step:
    """What one round says: how far each mean moves and the noise of that in every coordinate, counts as released and
    the noise of one, variances."""

    moves: Floats
    noise: Floats
    counts: Floats
    count_noise: float
    variances: Floats

    @property
    def weights(self) -> Floats:
        """Counts over their sum, none lost altogether."""
        counts = np.maximum(self.counts, max(DROWNED * self.count_noise, 1.0))
        return np.asarray(counts / np.sum(counts))


def stepped(statistic: MixtureSums, release: Floats, noise: float, at: Components, *, update_variances: bool) -> Step:
    """The step that a release of a round at these components gives. A component that noise drowns stays where it is.

    A clip lets only part of a shift through, which a normal component's variance tells; that is divided out.
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
        trust = heard / (1 + (noise / firm / _KNOWN) ** 2)
        variances = np.exp(trust * np.log(told) + (1 - trust) * np.log(variances))
    kept = np.array([kept_shift(c / math.sqrt(v), width) for c, v in zip(clips, variances, strict=True)])
    moves = sums / (firm * kept)[:, None]
    size = np.linalg.norm(moves, axis=1)
    moves = moves * (heard * np.minimum(1, 2 * clips / np.maximum(size, 1e-300)))[:, None]
    return Step(moves, clips * noise / (firm * kept), counts, noise, np.asarray(variances))


def believed(step: Step, basis: Floats | None) -> Floats:
    """The moves of the last round as far as noise does not explain them.

    Within the subspace and across it, a component's move is shrunk towards none by what its square exceeds its noise
    (James and Stein): what is known from the rounds before is worth as much as it turns out to be.
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
    """For each mean the distance to the nearest other one that was heard, in standard deviations of the data, and the
    noise of that along the line between them; zero where there is no other.

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
    """How much of a small shift of a standard normal vector is left in its mean once it is clipped at a norm.

    >>> round(kept_shift(100.0, 5), 6), kept_shift(1.0, 5) < 0.5
    (1.0, True)
    """
    norms = _norms(width)
    return max(float(np.mean(np.where(norms < clip, 1.0, clip / norms * (1 - 1 / width)))), 1e-3)


def variance_of(ratio: float, clip: float, variance: float, width: int) -> float:
    """The variance of a normal vector whose 1 - norm^2/clip^2, zero where that is negative, has the mean `ratio`.

    It is looked for about `variance`, within a factor of 20.
    """
    squares = _norms(width) ** 2 / clip**2
    tried = variance * np.geomspace(0.05, 20, 400)
    told = np.array([np.mean(np.maximum(0.0, 1 - v * squares)) for v in tried])
    return float(np.interp(-ratio, -told, tried))


def heard_shares(counts: Floats, noise: float) -> Floats:
    """The shares of a histogram, of bins alone that stand above the noise; of the largest where none does.

    >>> heard_shares(np.array([40.0, -3.0, 2.0, 10.0]), 1.0).tolist()
    [0.8, 0.0, 0.0, 0.2]
    """
    kept = np.where(counts > min(DROWNED * noise, float(np.max(counts)) * (1 - 1e-9)), counts, 0.0)
    return np.asarray(kept / np.sum(kept)) if np.sum(kept) > 0 else np.full(len(counts), 1 / len(counts))


def quantile(edges: Floats, shares: Floats, inside: float) -> tuple[float, float]:
    """From the shares of squared norms between these edges: the square that `inside` of all do not pass, and how much
    larger their mean is than with larger ones cut down to that."""
    until = np.concatenate([[0.0], np.cumsum(shares)])
    at = min(max(int(np.searchsorted(until, inside)), 1), len(shares))
    part = (inside - until[at - 1]) / max(float(until[at] - until[at - 1]), 1e-9)
    square = float(edges[at - 1] * (edges[at] / edges[at - 1]) ** min(max(part, 0.0), 1.0))
    middles = np.sqrt(edges[1:] * edges[:-1])
    return square, float(shares @ middles / (shares @ np.minimum(middles, square)))


def far_apart(candidates: Floats, count: int) -> Floats:
    """So many of the candidates, each the farthest from those before it."""
    chosen, distance = [0], np.full(len(candidates), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.sum((candidates - candidates[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(np.argmax(distance)))
    return np.asarray(candidates[chosen])
