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

from zerosum.algorithms.joint_fit import Cumulants, Fit, Heard, fitted, rotated
from zerosum.algorithms.kurtosis import noise_level, polar
from zerosum.arrays import Floats
from zerosum.statistics.unmixing import SCORES, Score, Told, UnmixingScore, upper

_TURN = np.array([[1.0, -1.0], [-1.0, 1.0]])  # of a pair's two coefficients, those that are a rotation
_WIDE = 0.5  # the variance of an angle about which nothing is known
_FAINT = 1.3  # kurtoses below so many times what noise alone shows say nothing by themselves
_SURE = 8.0  # log odds of the sign of a kurtosis as large again as what noise alone shows
_ALIKE = 3.0  # log odds of the sign that most kurtoses of the start have, if most have one
_SOME = 0.25  # of all sources, counted in advance to either sign
_FORGET = 0.5  # how much of what earlier rounds said of slopes counts in the next: sources change as they are unmixed
_AS_BOTH = np.array([0.6, 0.45, 0.0])  # what the slope of "both" is, in slopes of the others
_FARTHEST = 1.0  # standard deviations that a slope is drawn towards the others (Efron and Morris's limited translation)
_LEAST_SLOPE = 0.3  # of the mean: what is divided by is no less

# Slopes by SCORES of sources of each kind, in simulations: bursts (GARCH), heavy tails (Laplace), light ones (uniform).
_KINDS = np.array([[0.68, 0.33, 0.25], [0.35, 0.75, 0.57], [-0.46, -1.05, -1.54]])
_ALONG = _KINDS / np.linalg.norm(_KINDS, axis=1, keepdims=True)
_ALONG_BOTH = (_ALONG[0] + _ALONG[1]) / np.linalg.norm(_ALONG[0] + _ALONG[1])
_HALVED = {1.0: 0.55, -1.0: 0.22}  # what is left of them where two such sources are mixed by 45 degrees
_LEAST_PART = 0.2  # and what is expected at least of a source that is still mixed
_LOST, _FOUND = 2.0, 4.0  # standard deviations of evidence: with less a source is looked for anew, with more it is sure
_SURPRISE = 4.0, 3.0  # standard deviations of what a round tells of one source's angles, and of all, that are too much
_LITTLE, _FAINTLY = 0.8, 5.0  # of what the better sources show, and standard deviations: with less one may be half
_STRAY = 0.4  # radians that such a source is turned by
_STEPS = 15  # of a fit, after each round
_NOTHING = (1.0, 0.1)  # odds beforehand that all sources feign their slopes, and that only those of a sign do
_PROVEN = 3.0  # standard deviations of the evidence of all sources of one sign together
_TAILS = np.array([0.0, 0.8, 0.6])  # of slopes, those that rows that are few or alike make smaller, never larger
_IS_LESS = 0.03, 0.001  # odds beforehand that a source ends as half of two that are mixed, and as nothing
_IS_LESS_BLIND = 1.0, 0.3  # the same where rounds begin anywhere
_TRIED, _MOST_TRIED = 6.0, 0.1  # standard deviations that the known turns should show as, and radians at most
_AS_WHOLE, _AS_HALF = 7.0, (4.5, 1.5)  # standard deviations that a fit finds of a source at least, and of half ones
_MANY = 10  # sources: with fewer there are too few pairs for a fit to tell halves
_OF_HALF = 0.75  # the correlation of what is half a source
_CLEAR = 5.0  # standard deviations: more evidence than that says no more about a source's being half one
_SLOPE_WEIGHTS = 0.035, 0.0115  # in a round before sources are sure, and after, times the root of what pairs there are


@dataclass(eq=False)
class Filter:
    """The unmixing matrix `B` (sources x white coordinates), and what is known of its errors."""

    B: Floats
    signs: Floats  # of every source's kurtosis
    P: Floats  # for each pair, the covariance of (a_ij, a_ji)
    scores: tuple[Score, ...] = field(init=False)
    slopes: Floats = field(init=False)  # for each score and source, as far as they are known
    precision: Floats = field(init=False)  # of the slopes of each source
    own: Floats = field(init=False)  # the slope of each source's own score, as the last round had it
    scale: float = 0.0
    scale_weight: float = 0.0
    proof: Floats = field(init=False)  # of each source's kind, by rounds that were told it: a sum, and its variance
    tails: Floats = field(init=False)  # the same sum for heavy tails, whatever the kind
    common: float = 0.0  # log odds of a positive kurtosis for all of them, where the start finds most on one side
    odds: Floats = field(init=False)  # log odds of a positive kurtosis, by what was known before the last round
    less: tuple[float, float] = _IS_LESS  # odds that a source is half of two that are mixed, and that it is nothing
    steep: float = 1.0  # what a pair's turn shows as in the sum, on average, by the slopes of its sources
    response: Floats = field(init=False)  # what known turns of each pair did show as, times these, and their precision
    level: float = 0.0  # of the kurtosis of a source in the start's tensor
    rounds: list[tuple[UnmixingScore, Floats, Told, float]] = field(default_factory=list)  # asked from which matrix
    fit: Fit | None = None  # of all rounds

    def __post_init__(self) -> None:
        R = len(self.B)
        undecided: Score = "both"
        self.scores = (undecided,) * R
        self.slopes = np.zeros((len(SCORES), R))
        self.own, self.odds, self.precision, self.proof = np.zeros(R), np.zeros(R), np.zeros(R), np.zeros((2, R))
        self.tails, self.response = np.zeros(R), np.zeros((2, R * (R - 1) // 2))

    @classmethod
    def blind(cls, rotation: Floats, white: float) -> Filter:
        """From any rotation, of which nothing is known; `white` is the variance of what is left of correlations."""
        R = len(rotation)
        return cls(rotation, np.ones(R), _prior(np.full(R * (R - 1) // 2, _WIDE), white), less=_IS_LESS_BLIND)

    @classmethod
    def started(cls, rotation: Floats, kurtoses: Floats, noise: float, white: float) -> Filter:
        """From the directions of a noisy tensor. A kurtosis that noise could show takes the sign of the others."""
        alone = noise_level(len(rotation)) * noise
        angles, odds = _by_kurtosis(kurtoses, noise)
        signs, common = np.sign(kurtoses), float(np.sum(kurtoses)) / max(float(np.linalg.norm(kurtoses)), 1e-300)
        if abs(common) > 1.5:
            signs = np.where(np.abs(kurtoses) < _FAINT * alone, np.sign(common), signs)
        found = cls(rotation, np.where(signs == 0, 1.0, signs), _prior(angles, white))
        found.level = math.sqrt(float(np.mean(_above(kurtoses, alone))))
        found.odds, found.common = odds, _ALIKE * np.sign(common) if abs(common) > 1.5 else 0.0
        return found

    def stray(self, seed: int) -> None:
        """Turn sources of which the fit finds little among themselves, at random, before they are asked about again.

        Where sources are halves of each other no turn shows, nor where they are none: rounds that ask from the same
        place hear the same. From another one they differ.
        """
        lost = self._faint()
        row, column = upper(len(lost))
        size = _STRAY / math.sqrt(max(int(np.sum(lost)) - 1, 1))
        angles = size * np.random.default_rng(seed).normal(size=len(row))
        self.B = rotated(np.where(lost[row] & lost[column], angles, 0.0), len(lost)) @ self.B

    def refit(self, tensor: Floats, noise: float) -> None:
        """Turn to where all rounds and the tensor of fourth cumulants together say that the sources are."""
        R, scale = len(self.B), max(self.scale, 1.0)
        weights = dict(zip((*SCORES, "both"), [*np.eye(len(SCORES)), _AS_BOTH], strict=True))
        kinds = dict(zip((*SCORES, "both"), [*_KINDS, (_KINDS[0] + _KINDS[1]) / 2], strict=True))
        usual = scale * np.stack(
            [kinds["cube" if sign < 0 else each] for each, sign in zip(self.scores, self.signs, strict=True)]
        )
        rounds = []
        for asked, B, told, std in self.rounds:
            scores, signs = asked.scores or self.scores, asked.signs if asked.signs is not None else np.ones(R)
            by = np.stack([weights[each] for each in scores])
            own, own_noise = np.sum(by * told.slopes.T, axis=1), std / asked.slope_weight * np.linalg.norm(by, axis=1)
            cube = np.array([float(each == "cube") for each in scores])
            rounds.append(Heard(B, signs, cube, by @ usual.T, told.turns, own, math.sqrt(2) * std, own_noise))
        self.fit = fitted(
            np.asarray(np.linalg.inv(self.B), dtype=np.float64),
            self.signs,
            rounds,
            Cumulants(tensor, noise, self.level),
            _STEPS,
        )
        self.B = np.asarray(np.linalg.inv(self.fit.mixing), dtype=np.float64)
        stretch = (self.P[:, 0, 0] + self.P[:, 1, 1] + 2 * self.P[:, 0, 1]) / 4
        self.P = _prior(self.fit.angles, 0.0) + stretch[:, None, None] * np.ones((2, 2))

    def _faint(self) -> NDArray[np.bool_]:
        """Sources that show much less than the better half of all does, and not for sure."""
        if self.fit is None:
            return np.zeros(len(self.B), dtype=bool)
        parts, doubt = self.fit.parts, np.sqrt(self.fit.doubt)
        return np.asarray((parts < _LITTLE * np.median(parts[parts >= np.median(parts)])) & (parts < _FAINTLY * doubt))

    def tried(self, noise: float, rounds: int, seed: int) -> Floats:
        """A small public rotation, about as large as what a round does not know, from which sources are asked about.

        Slopes are means of few rows, or of rows that are alike, and then they are not zero where sources are Gaussian.
        How far a known turn shows does not err: where no direction differs from others, no turn shows.
        """
        R = len(self.B)
        pairs = R * (R - 1) // 2
        size = min(_TRIED * math.sqrt(2 / (pairs * rounds)) * noise / self.steep, _MOST_TRIED)
        return rotated(size * np.random.default_rng(seed).choice([-1.0, 1.0], pairs), R)

    def update(
        self,
        statistic: UnmixingScore,
        told: Told,
        noise: float,
        share: float,
        *,
        late: bool,
        step: float = 1.0,
        tried: Floats | None = None,
    ) -> None:
        """Take in a round. In a late one it is known what sources are like, and what was learnt before is
        kept. `step` is how far sources that are lost may overshoot, `tried` what sources were turned by on purpose."""
        R = len(self.B)
        row, column = upper(R)
        noise = max(noise, 1e-6 * max(told.scale, 1.0))  # what is left without any
        self.rounds.append((statistic, self.B if tried is None else tried @ self.B, told, noise))
        self.scale_weight = 0.7 * self.scale_weight + share
        self.scale += (told.scale - self.scale) * share / self.scale_weight
        sure = (statistic.slope_weight / noise) ** 2
        self.proof += sure * np.stack([self._along(told.slopes), np.ones(R)])
        self.tails += sure * np.where(self.signs > 0, _TAILS @ told.slopes, 0.0)
        slopes = self._slopes(told.slopes, sure, 1.0 if late else _FORGET)
        both, turns = slopes[row] + slopes[column], told.turns
        self.steep = float(np.mean(both))
        if tried is not None:
            known = (tried - tried.T)[row, column] / 2
            self.response += np.stack([turns * known, known**2]) / (2 * noise**2)
            turns = turns - both * known
        self._widen(turns, both, noise)
        H = np.empty((len(row), 2, 2))
        H[:, 0, 0], H[:, 0, 1], H[:, 1, :] = slopes[row], -slopes[column], max(self.scale, 1.0)
        R_noise = np.diag([2 * noise**2, (noise / statistic.correlation_weight) ** 2])
        HP = H @ self.P
        gain = np.linalg.solve(HP @ H.transpose(0, 2, 1) + R_noise, HP).transpose(0, 2, 1)
        found = np.einsum("nij,nj->ni", gain, np.stack([turns, told.correlations], axis=1))
        self.P = self.P - gain @ HP
        A = np.zeros((R, R))
        A[row, column], A[column, row] = found[:, 0], found[:, 1]
        unsure = self._unsure()
        steps = np.where(unsure[:, None] | unsure, step, 1.0)
        turn, stretch = np.clip(steps * (A - A.T) / 2, -1, 1), (A + A.T) / 2
        stretch *= min(1.0, 0.5 / max(float(np.linalg.norm(stretch, 2)), 1e-300))  # else it might not be invertible
        self.B = polar(np.eye(R) - turn) @ (np.eye(R) - stretch) @ self.B
        self._choose()

    def slope_weight(self, late: bool) -> float:
        """How much the next round should spend on telling what sources are like."""
        sure = np.all(self._along(self.slopes) * np.sqrt(self.precision) > _FOUND)
        return min(math.sqrt(len(self.B) - 1) * _SLOPE_WEIGHTS[1 if late or sure else 0], 1.0)

    def stability(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The expected correlation of each source with what it would be without noise, and which are more than noise.

        The filter says how far a source is off if it is one. Whether it is, its slopes say, as told in rounds after it
        had been decided what it is like: noise alone has no preference. Where the sources of a sign are not proven
        together by these, none of them is one; else each is one, half of two that are mixed, or nothing, by Bayes's
        rule, and all of them, or those of a sign, are nothing as far as known turns show less than the slopes say.
        Rows that are alike feign slopes, of bursts above all, but no heavy tails: where these are proven, known turns
        say which part of the slopes is real, and errors are as many times larger.
        """
        R = len(self.B)
        row, column = upper(R)
        error = np.bincount(row, self.P[:, 0, 0], R) + np.bincount(column, self.P[:, 1, 1], R)
        stable, real = np.zeros(R), np.zeros(R, dtype=bool)
        some = _credible(*self._shown(np.ones(R, dtype=bool)), _NOTHING[0])
        for sign, part in _HALVED.items():
            group = self.signs == sign
            told, weight = self.proof[:, group]
            if not np.any(group) or np.sum(told) < _PROVEN * math.sqrt(float(np.sum(weight))):
                continue
            if self.fit is not None and R >= _MANY:
                likely = _by_fit(self.fit, group)
            else:
                likely = self._by_slopes(told, weight, part)
            turned = min(some, _credible(*self._shown(group), _NOTHING[1]))
            left = turned / np.sqrt(1 + error[group])
            if sign > 0 and np.sum(self.tails[group]) > _PROVEN * math.sqrt(float(np.sum(weight))):
                turned = 1.0
                left = np.maximum(left, 1 / np.sqrt(1 + error[group] / _part(*self._shown(group)) ** 2))
            stable[group] = left * (likely[0] + _OF_HALF * likely[1])
            real[group] = turned * (1 - likely[2]) > 0.5
        return stable, real

    def _by_slopes(self, told: Floats, weight: Floats, part: float) -> Floats:
        """How likely each source of a sign is one, half of two, or nothing, by the slopes that rounds were told."""
        root, likely = np.sqrt(weight), np.ones((3, len(told)))
        for _ in range(10):  # the level of those that are whole, by expectation and maximisation
            level = float(np.sum(likely[0] * told) / max(float(np.sum(likely[0] * weight)), 1e-300))
            # with more evidence than that a source that is only weaker would be half one
            clear = np.minimum(1.0, _CLEAR / np.maximum(level * root, 1e-300))
            apart = clear * (told / root - level * root * np.array([[1.0], [part], [0.0]]))
            apart[0] = np.minimum(apart[0], 0.0)  # no source is too clear
            odds = [
                np.full(len(told), 1.0),
                *(few + (less - few) * clear**2 for few, less in zip(_IS_LESS, self.less, strict=True)),
            ]
            likely = _shares(np.log(odds) - apart**2 / 2)
        return likely

    def _shown(self, group: NDArray[np.bool_]) -> tuple[float, float]:
        """How many standard deviations what known turns say of these sources' slopes together is above zero, where a
        pair shows the sum of its two, and how many it would be by the slopes themselves. Infinite where no turn was
        tried."""
        R = len(self.B)
        row, column = upper(R)
        M = np.diag(np.bincount(row, self.response[1], R) + np.bincount(column, self.response[1], R))
        M[row, column] = M[column, row] = self.response[1]
        if not np.any(M):
            return math.inf, 1.0
        doubt = np.linalg.pinv(M, hermitian=True)
        slopes = doubt @ (np.bincount(row, self.response[0], R) + np.bincount(column, self.response[0], R))
        spread = max(math.sqrt(float(np.sum(doubt[np.ix_(group, group)]))), 1e-300)
        own = doubt @ M @ self.own  # of two sources the one pair shows the sum, and no more
        return float(np.sum(slopes[group])) / spread, float(np.sum(own[group])) / spread

    def _undecided(self, source: int) -> Score:
        return "both" if self.signs[source] > 0 else "cube"

    # ---- slopes and scores -----------------------------------------------------------------------------------------

    def _slopes(self, told: Floats, new: float, kept: float) -> Floats:
        """The slope of each source's own score, to divide by."""
        old = kept * self.precision
        self.precision = old + new
        self.slopes = (self.slopes * old + told * new) / self.precision
        drawn = self._drawn()
        own = [
            float(_AS_BOTH @ drawn[:, i]) if score == "both" else float(drawn[SCORES.index(score), i])
            for i, score in enumerate(self.scores)
        ]
        each = np.array(own) * self.signs
        mean = max(float(np.mean(each)), 1e-9)
        self.own = np.maximum(each, max(_LEAST_SLOPE * mean, 0.5 / math.sqrt(float(np.sum(self.precision)))))
        return self.own

    def _drawn(self) -> Floats:
        """Slopes drawn towards the mean of sources of the same sign, as far as their spread is noise."""
        drawn, doubt = self.slopes.copy(), 1 / self.precision
        for sign in (1.0, -1.0):
            group = self.signs == sign
            if np.sum(group) > 1:
                own, its = self.slopes[:, group], doubt[group]
                mean = np.average(own, axis=1, weights=1 / its)[:, None]
                spread = np.maximum(np.var(own, axis=1, keepdims=True, ddof=1) - np.mean(its), 0)
                towards = (mean - own) * its / (spread + its)
                most = _FARTHEST * np.sqrt(its)
                drawn[:, group] = own + np.clip(towards, -most, most)
        return drawn

    def _choose(self) -> None:
        """Signs by the likelihood of each kind, and the score that is steepest."""
        doubt = 1 / np.sqrt(self.precision)
        self.odds = 0.5 * self.odds
        likely = self._likelihoods()
        positive = np.maximum(likely[0], likely[1]) - likely[2] + self.odds + self.common
        common = 0.0
        for _ in range(20):  # how many there are of each, by expectation and maximisation
            share = 1 / (1 + np.exp(-np.clip(positive + common, -50, 50)))
            common = math.log((np.sum(share) + _SOME * len(share)) / (np.sum(1 - share) + _SOME * len(share)))
        self.signs = np.where(positive + common < 0, -1.0, 1.0)
        drawn, positive = self._drawn(), self.signs > 0
        gap = drawn[0] - drawn[1]
        level = doubt * math.sqrt(2 / max(int(np.sum(positive)), 1))
        chosen: list[Score] = []
        for i in range(len(self.B)):
            if not positive[i]:
                chosen.append("cube")
            elif abs(gap[i]) < level[i]:
                chosen.append("both")
            else:
                chosen.append("volatility" if gap[i] > 0 else "tanh")
        self.scores = tuple(chosen)

    def _likelihoods(self) -> Floats:
        """For each kind and source, the log likelihood of its slopes, whatever part of the usual ones they are."""
        scale, norms = max(self.scale, 1.0), np.sum(_KINDS**2, axis=1)
        part = np.clip(_KINDS @ self.slopes / (scale * norms[:, None]), _LEAST_PART, 1.0)
        apart = self.slopes[None] - scale * part[:, None, :] * _KINDS[:, :, None]
        return np.asarray(-self.precision / 2 * np.sum(apart**2, axis=1))

    def _unsure(self) -> NDArray[np.bool_]:
        """Which sources have little evidence of their kind, by itself and beside others of the same sign."""
        evidence = self._along(self.slopes) * np.sqrt(self.precision)
        level = np.array([np.mean(evidence[self.signs == sign]) for sign in self.signs])
        return np.asarray(evidence < np.minimum(_LOST, level / 2))

    def _along(self, slopes: Floats) -> Floats:
        """How far slopes are on the side of each source's kind."""
        along = dict(zip(SCORES, _ALONG @ slopes, strict=True)) | {"both": _ALONG_BOTH @ slopes}
        kinds = np.where(self.signs < 0, "cube", self.scores)
        return np.array([along[kind][i] for i, kind in enumerate(kinds)])

    def _widen(self, turns: Floats, both: Floats, noise: float) -> None:
        """Where rounds tell more than the filter expects, it knows less than it thinks: raise its variances to that.

        Each alarm throws away what was known of all pairs of a source, so there should hardly be one by chance.
        """
        R = len(self.B)
        row, column = upper(R)
        have = (self.P[:, 0, 0] + self.P[:, 1, 1] - 2 * self.P[:, 0, 1]) / 4
        surprise = turns**2 / both**2 / (have + 2 * noise**2 / both**2)  # about 1 where all is well
        excess = (turns**2 - 2 * noise**2) / both**2
        by_source = _by_source(surprise, R)
        common = max(float(np.mean(excess)), 0.0)
        angles = np.clip((_by_source(excess, R) + common) / 2, 0, _WIDE)
        surprised = by_source > 1 + _SURPRISE[0] * math.sqrt(2 / (R - 1))
        all_wrong = np.mean(surprise) > 1 + _SURPRISE[1] * math.sqrt(2 / len(row))
        wrong = surprised[row] | surprised[column] | all_wrong
        more = np.where(wrong, np.maximum((angles[row] + angles[column]) / 2 - have, 0), 0.0)
        self.P = self.P + more[:, None, None] * _TURN


def _by_fit(fit: Fit, group: NDArray[np.bool_]) -> Floats:
    """How likely each source of a sign is one, half of others, or nothing, by how surely the fit finds any slope of it:
    where sources are mixed with each other it does not depend much on the rounds, however large it is."""
    sure = (fit.parts / np.sqrt(fit.doubt))[group]
    apart = np.stack([np.minimum(sure - _AS_WHOLE, 0.0), (sure - _AS_HALF[0]) / _AS_HALF[1], sure])
    few, likely = np.array([1.0, *_IS_LESS]), np.zeros((3, 1))
    for _ in range(10):  # how many are halves, by expectation and maximisation
        counted = np.array([1.0, (np.sum(likely[1]) + few[1]) / (np.sum(likely[0]) + few[0]), few[2]])
        likely = _shares(np.log(counted / [1.0, _AS_HALF[1], 1.0])[:, None] - apart**2 / 2)
    return likely


def _shares(logs: Floats) -> Floats:
    """From logarithms to what adds up to 1 in every column."""
    likely = np.exp(logs - np.max(logs, axis=0))
    return np.asarray(likely / np.sum(likely, axis=0))


def _credible(shown: float, expected: float, nothing: float) -> float:
    """How likely sources are real rather than nothing, by what known turns of them showed, in standard deviations, and
    what they would show: by Bayes's rule, with odds of nothing that count where turns can hardly show."""
    evidence = expected * min(shown, 1e3) - expected**2 / 2
    return 1 / (1 + nothing * math.exp(-min(max(evidence, -50.0), 50.0)))


def _part(shown: float, expected: float) -> float:
    """Which part of the slopes is real, by what known turns of sources showed, in standard deviations, and what they
    would show: the posterior mean, if all parts are as likely beforehand."""
    part = (np.arange(200) + 0.5) / 200
    logs = expected * part * (min(shown, 1e3) - expected * part / 2)
    return float(np.average(part, weights=np.exp(logs - np.max(logs))))


def _by_kurtosis(kurtoses: Floats, noise: float) -> tuple[Floats, Floats]:
    """The variance of each pair's angle, and the log odds of each sign, by kurtoses of a tensor with this noise."""
    row, column = upper(len(kurtoses))
    alone = noise_level(len(kurtoses)) * noise
    squared = _above(kurtoses, alone)
    angles = np.minimum(noise**2 / (4 * (squared[row] + squared[column])), _WIDE)
    return angles, np.sign(kurtoses) * _SURE * np.minimum(squared / max(alone**2, 1e-200), 3.0)


def _above(kurtoses: Floats, alone: float) -> Floats:
    """The squares of kurtoses, less what noise alone shows."""
    return np.maximum(kurtoses**2 - 0.7 * alone**2, max(0.02 * alone**2, 1e-300))


def _prior(angles: Floats, white: float) -> Floats:
    """Angles of these variances, and what is left of correlations."""
    return np.asarray(angles[:, None, None] * _TURN + white / 4)


def _by_source(values: Floats, order: int) -> NDArray[np.float64]:
    """The mean over the pairs of each source."""
    row, column = upper(order)
    total = np.bincount(row, values, order) + np.bincount(column, values, order)
    return np.asarray(total / (order - 1))
