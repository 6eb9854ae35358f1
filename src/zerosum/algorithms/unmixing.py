"""What rounds of noisy scores say about an unmixing matrix: a Kalman filter for every pair of sources. Free of charge.

Where source i still holds a_ij of source j, a round tells slope_i a_ij - slope_j a_ji and a_ij + a_ji, both with noise
of a known size (see `UnmixingScore`). The filter keeps what is known of the two coefficients of each pair, corrects
both, and lets the slopes decide which score suits which source.

Tested in tests/algorithms/test_unmixing.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.kurtosis import noise_level, polar
from zerosum.arrays import Floats
from zerosum.statistics.unmixing import SCORES, Score, Told, UnmixingScore, upper

_WIDE = 0.5  # the variance of an angle about which nothing is known
_FAINT = 1.3  # kurtoses below so many times what noise alone shows say nothing by themselves
_FORGET = 0.5  # how much of what earlier rounds said of slopes counts in the next: sources change as they are unmixed
_USUAL = np.array([[0.55], [0.75], [0.6]])  # slopes of a source that suits each score, to weigh them against each other
_AS_BOTH = np.array([0.6, 0.45, 0.0])  # what the slope of "both" is, in slopes of the others
_FARTHEST = 1.0  # standard deviations that a slope is drawn towards the others (Efron and Morris's limited translation)
_LEAST_SLOPE = 0.3  # of the mean: what is divided by is no less


@dataclass(eq=False)
class Filter:
    """The unmixing matrix `B` (sources x white coordinates), and what is known of its errors."""

    B: Floats
    signs: Floats  # of every source's kurtosis
    P: Floats  # for each pair, the covariance of (a_ij, a_ji)
    scores: tuple[Score, ...] = field(init=False)
    slopes: Floats = field(init=False)  # for each score and source, as far as they are known
    precision: float = 0.0  # of the slopes
    scale: float = 0.0
    scale_weight: float = 0.0
    seen: Floats = field(init=False)  # for each pair, the precision of the angle by the later rounds
    moving: list[Floats] = field(default_factory=list)  # by round and source, squared angles beyond noise

    def __post_init__(self) -> None:
        R = len(self.B)
        undecided: Score = "both"
        self.scores = (undecided,) * R
        self.slopes, self.seen = np.zeros((len(SCORES), R)), np.zeros(R * (R - 1) // 2)

    @classmethod
    def blind(cls, rotation: Floats, white: float) -> Filter:
        """From any rotation, of which nothing is known; `white` is the variance of what is left of correlations."""
        R = len(rotation)
        return cls(rotation, np.ones(R), _prior(np.full(R * (R - 1) // 2, _WIDE), white))

    @classmethod
    def started(cls, rotation: Floats, kurtoses: Floats, noise: float, white: float) -> Filter:
        """From the directions of a noisy tensor. A kurtosis that noise could show takes the sign of the others."""
        R, alone = len(rotation), noise_level(len(rotation)) * noise
        row, column = upper(R)
        squared = np.maximum(kurtoses**2 - 0.7 * alone**2, max(0.02 * alone**2, 1e-300))
        angles = np.minimum(noise**2 / (4 * (squared[row] + squared[column])), _WIDE)
        signs, common = np.sign(kurtoses), float(np.sum(kurtoses)) / max(float(np.linalg.norm(kurtoses)), 1e-300)
        if abs(common) > 1.5:
            signs = np.where(np.abs(kurtoses) < _FAINT * alone, np.sign(common), signs)
        return cls(rotation, np.where(signs == 0, 1.0, signs), _prior(angles, white))

    def update(
        self, statistic: UnmixingScore, told: Told, noise: float, share: float, *, step: float, last: bool
    ) -> None:
        """Take in a round. `step` is how far it may overshoot; `last`: whether it counts for the stability."""
        R = len(self.B)
        row, column = upper(R)
        noise = max(noise, 1e-6 * max(told.scale, 1.0))  # what is left without any
        self.scale_weight = 0.7 * self.scale_weight + share
        self.scale += (told.scale - self.scale) * share / self.scale_weight
        slopes, each = self._slopes(told.slopes, statistic.slope_weight / noise)
        both = slopes[row] + slopes[column]
        self._widen(told.turns, both, noise)
        H = np.empty((len(row), 2, 2))
        H[:, 0, 0], H[:, 0, 1], H[:, 1, :] = slopes[row], -slopes[column], max(self.scale, 1.0)
        R_noise = np.diag([2 * noise**2, (noise / statistic.correlation_weight) ** 2])
        HP = H @ self.P
        gain = np.linalg.solve(HP @ H.transpose(0, 2, 1) + R_noise, HP).transpose(0, 2, 1)
        found = np.einsum("nij,nj->ni", gain, np.stack([told.turns, told.correlations], axis=1))
        self.P = self.P - gain @ HP
        A = np.zeros((R, R))
        A[row, column], A[column, row] = found[:, 0], found[:, 1]
        turn, stretch = np.clip(step * (A - A.T) / 2, -1, 1), (A + A.T) / 2
        stretch *= min(1.0, 0.5 / max(float(np.linalg.norm(stretch, 2)), 1e-300))  # else it might not be invertible
        self.B = polar(np.eye(R) - turn) @ (np.eye(R) - stretch) @ self.B
        if last:
            steep = np.maximum(each[row] + each[column], 0.0) ** 2 - 2 / self.precision
            self.seen += np.maximum(steep, 0.0) / (2 * noise**2)
        self._choose()

    def stability(self) -> Floats:
        """The expected correlation of each source with what it would be without noise.

        Angles are as uncertain as the noise of the later rounds makes them, and as much more as the last two rounds
        still told beyond their noise: a source that is still moving has not arrived.
        """
        R = len(self.B)
        row, column = upper(R)
        stretch = (self.P[:, 0, 0] + self.P[:, 1, 1] + 2 * self.P[:, 0, 1]) / 4
        error = np.zeros((R, R))
        error[row, column] = error[column, row] = 1 / np.maximum(self.seen, 1 / _WIDE) + stretch
        moving = np.maximum(np.sum(self.moving[-2:], axis=0), 0.0)
        return np.asarray(1 / np.sqrt(1 + np.sum(error, axis=1) + moving))

    # ---- slopes and scores -----------------------------------------------------------------------------------------

    def _slopes(self, told: Floats, root_precision: float) -> tuple[Floats, Floats]:
        """The slope of each source's own score: what is divided by, and as it is."""
        new, old = root_precision**2, _FORGET * self.precision
        self.precision = old + new
        self.slopes = (self.slopes * old + told * new) / self.precision
        drawn = self._drawn()
        own = [
            float(_AS_BOTH @ drawn[:, i]) if score == "both" else float(drawn[SCORES.index(score), i])
            for i, score in enumerate(self.scores)
        ]
        each = np.array(own) * self.signs
        mean = max(float(np.mean(each)), 1e-9)
        return np.maximum(each, max(_LEAST_SLOPE * mean, 0.5 / math.sqrt(self.precision * len(each)))), each

    def _drawn(self) -> Floats:
        """Slopes drawn towards the mean of sources of the same sign, as far as their spread is noise."""
        drawn, doubt = self.slopes.copy(), 1 / self.precision
        for sign in (1.0, -1.0):
            group = self.signs == sign
            if np.sum(group) > 1:
                own = self.slopes[:, group]
                mean = np.mean(own, axis=1, keepdims=True)
                spread = np.maximum(np.var(own, axis=1, keepdims=True, ddof=1) - doubt, 0)
                towards = (mean - own) * doubt / (spread + doubt)
                most = _FARTHEST * math.sqrt(doubt)
                drawn[:, group] = own + np.clip(towards, -most, most)
        return drawn

    def _choose(self) -> None:
        """Signs that three scores agree on, and the score that is steepest."""
        agreed, doubt = np.sum(self.slopes / _USUAL, axis=0), 1 / math.sqrt(self.precision)
        weak = np.abs(agreed) < 3 * doubt * float(np.linalg.norm(1 / _USUAL))
        self.signs = np.where(weak, self.signs, np.sign(agreed))
        drawn, positive = self._drawn(), self.signs > 0
        gap = drawn[0] - drawn[1]
        level = doubt * math.sqrt(2 / max(int(np.sum(positive)), 1))
        chosen: list[Score] = []
        for i in range(len(self.B)):
            if not positive[i]:
                chosen.append("cube")
            elif abs(gap[i]) < level:
                chosen.append("both")
            else:
                chosen.append("volatility" if gap[i] > 0 else "tanh")
        self.scores = tuple(chosen)

    def _widen(self, turns: Floats, both: Floats, noise: float) -> None:
        """Where rounds tell more than the filter expects, it knows less than it thinks: raise its variances to that."""
        R = len(self.B)
        row, column = upper(R)
        have = (self.P[:, 0, 0] + self.P[:, 1, 1] - 2 * self.P[:, 0, 1]) / 4
        surprise = turns**2 / both**2 / (have + 2 * noise**2 / both**2)  # about 1 where all is well
        excess = (turns**2 - 2 * noise**2) / both**2
        by_source = _by_source(surprise, R)
        self.moving.append((R - 1) * _by_source(excess, R))
        common = max(float(np.mean(excess)), 0.0)
        angles = np.clip((_by_source(excess, R) + common) / 2, 0, _WIDE)
        surprised = by_source > 1 + 2 * math.sqrt(2 / (R - 1))
        wrong = surprised[row] | surprised[column] | (np.mean(surprise) > 1 + 2 * math.sqrt(2 / len(row)))
        more = np.where(wrong, np.maximum((angles[row] + angles[column]) / 2 - have, 0), 0.0)
        self.P = self.P + more[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])


def _prior(angles: Floats, white: float) -> Floats:
    """Angles of these variances, and what is left of correlations."""
    turn, stretch = np.array([[1.0, -1.0], [-1.0, 1.0]]), np.ones((2, 2))
    return np.asarray(angles[:, None, None] * turn + white / 4 * stretch)


def _by_source(values: Floats, order: int) -> NDArray[np.float64]:
    """The mean over the pairs of each source."""
    row, column = upper(order)
    total = np.bincount(row, values, order) + np.bincount(column, values, order)
    return np.asarray(total / (order - 1))
