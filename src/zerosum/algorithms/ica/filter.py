"""The fixed-point solver of ICA: a Kalman filter for every pair of sources. Free post-processing.

Model, in white coordinates with R sources and N = R (R - 1)/2 pairs i < j:

    B          current unmixing matrix (R x R); component i of a row x is y_i = (B x)_i
    a_ij       what component i still contains of source j, small: y = (I + A) s with A = (a_ij), zero diagonal
    slope_i    expected slope of the score of component i, summed over units (in the unit of a released sum)
    scale      sum over units of 1/(norm of the unit's contribution): the weight of a coefficient in the sum

A round of `statistics.unmixing.UnmixingScore` at B releases, for each pair, to first order in A,

    turn        = slope_i a_ij - slope_j a_ji + noise, standard deviation sqrt(2) noise
    correlation = scale (a_ij + a_ji) + noise,         standard deviation noise / correlation_weight

and for each source the slopes of the three scores of SCORES (noise / slope_weight). Each pair has a state (a_ij, a_ji)
with a 2 x 2 covariance P, and each round is one linear observation of it: a Kalman filter with known noise. After each
update the estimate of A is removed from B, so the mean of the state is zero again and only P is stored. The
antisymmetric part of A is an error of rotation, the symmetric part an error of whitening.

The kind of a source (bursts, heavy tails, light tails) is unknown. The slopes identify it: `_choose_scores` selects
signs by the likelihood of the slopes under the three kinds (`TUNING.kind_slopes`), and the steepest score for the next
round.

`Filter.refit` replaces the rotation by the joint fit of all rounds (`likelihood.maximise`), since the filter linearises
each round at its own B. `Filter.stability` gives the expected correlation of each component with its noise-free
version. It combines P with the probability that the component is a source, an unresolved mixture of two sources, or
Gaussian.

Every input is a released number or a public seed, so nothing in this module spends budget.

References: Kalman filter, Anderson and Moore, Optimal Filtering (1979); limited translation, Efron and Morris, JASA 67
(1972). Tuned constants are in `tuning`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.ica.likelihood import Cumulants, Fit, ScoreRelease, maximise, rotated
from zerosum.algorithms.ica.start import noise_level, polar
from zerosum.algorithms.ica.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.statistics.unmixing import SCORES, Score, ScoreSums, UnmixingScore, upper

# Covariance of (a_ij, a_ji) per unit variance of an angle: a rotation by t has a_ij = t, a_ji = -t.
_ROTATION_COVARIANCE = np.array([[1.0, -1.0], [-1.0, 1.0]])
# Tuned slopes as arrays: of the kinds (3 kinds x 3 scores), of the score "both" (3) and of the proof of heavy tails
# (3).
_KIND_SLOPES = np.array(TUNING.kind_slopes)
_BOTH_SLOPE = np.array(TUNING.score_both_slope)
_TAIL_WEIGHTS = np.array(TUNING.tail_weights)
# Kinds as directions of norm 1: the projection of released slopes on them has the noise of one slope.
_KIND_DIRECTIONS = _KIND_SLOPES / np.linalg.norm(_KIND_SLOPES, axis=1, keepdims=True)
_BOTH_DIRECTION = _KIND_DIRECTIONS[0] + _KIND_DIRECTIONS[1]
_BOTH_DIRECTION = _BOTH_DIRECTION / np.linalg.norm(_BOTH_DIRECTION)
# Fraction of the slopes that remains in an unresolved mixture of two sources, by the sign of their kurtosis.
_MIXTURE_SLOPES = {1.0: TUNING.mixture_slope_positive, -1.0: TUNING.mixture_slope_negative}


@dataclass(eq=False)
class Filter:
    """State of the fixed-point solver: the unmixing matrix and the uncertainty of its errors.

    Usage in each round: `randomise_unresolved` or `probe_rotation` moves the matrix, an `UnmixingScore` is requested
    there, `update` takes the release, and `refit` (with cumulants only) fits all rounds. At the end `stability`
    describes the result. R is the number of sources and N = R (R - 1)/2 the number of pairs i < j, in the order of
    `upper`.
    """

    B: Floats  # (R, R), unmixing matrix: sources x white coordinates
    signs: Floats  # (R,), 1 or -1, sign of each source's kurtosis
    P: Floats  # (N, 2, 2), covariance of (a_ij, a_ji) of each pair
    scores: tuple[Score, ...] = field(init=False)  # R entries, the score of each source in the next round
    slopes: Floats = field(init=False)  # (3, R), estimated slope of each of SCORES for each source
    precision: Floats = field(init=False)  # (R,), 1 over the variance of a column of `slopes`
    own: Floats = field(init=False)  # (R,), slope of each source's own score in the last round, positive
    scale: float = 0.0  # running mean of the released `scale`
    scale_weight: float = 0.0  # weight of that mean, in shares of the budget
    proof: Floats = field(init=False)  # (2, R), evidence of the kind chosen before each round: weighted sum, and weight
    tails: Floats = field(init=False)  # (R,), the same weighted sum for heavy tails, of sources with positive sign
    common: float = 0.0  # log odds of a positive kurtosis that the start gives to all sources
    odds: Floats = field(init=False)  # (R,), log odds of a positive kurtosis by the start, halved in each round
    less: tuple[float, float] = field(
        default_factory=lambda: TUNING.class_odds
    )  # prior odds of an unresolved mixture, and of a Gaussian component
    steep: float = 1.0  # mean over pairs of slope_i + slope_j: the response of a turn to an angle of 1 radian
    response: Floats = field(init=False)  # (2, N), of known rotations: turn times angle, and angle squared, over noise
    level: float = 0.0  # root mean square kurtosis of the sources in the start's tensor
    rounds: list[tuple[UnmixingScore, Floats, ScoreSums, float]] = field(
        default_factory=list
    )  # request, B, release, noise
    fit: Fit | None = None  # the last joint fit

    def __post_init__(self) -> None:
        """The state before the first release: no slopes, no evidence, and the score "both" for every source."""
        R = len(self.B)
        undecided: Score = "both"
        self.scores = (undecided,) * R
        self.slopes = np.zeros((len(SCORES), R))
        self.own, self.odds, self.precision, self.proof = np.zeros(R), np.zeros(R), np.zeros(R), np.zeros((2, R))
        self.tails, self.response = np.zeros(R), np.zeros((2, R * (R - 1) // 2))

    @classmethod
    def from_rotation(cls, rotation: Floats, white: float) -> Filter:
        """A filter with an uninformative prior on all angles.

        Parameters
        ----------
        rotation : array of shape (R, R)
            Public; the first unmixing matrix in white coordinates.
        white : float
            Variance of the correlations that whitening left.
        """
        R = len(rotation)
        angles = np.full(R * (R - 1) // 2, TUNING.angle_variance)
        return cls(rotation, np.ones(R), _covariances(angles, white), less=TUNING.class_odds_random)

    @classmethod
    def from_cumulants(cls, rotation: Floats, kurtoses: Floats, noise: float, white: float) -> Filter:
        """A filter that starts at the directions of a released cumulant tensor.

        Parameters
        ----------
        rotation, kurtoses : arrays (R, R) and (R,)
            Results of `start.directions`.
        noise : float
            Standard deviation of the tensor's noise in isometric coordinates.
        white : float
            Variance of the correlations that whitening left.
        """
        alone = noise_level(len(rotation)) * noise
        angles, odds = _prior_by_kurtosis(kurtoses, noise)
        signs, common = np.sign(kurtoses), float(np.sum(kurtoses)) / max(float(np.linalg.norm(kurtoses)), 1e-300)
        # `common` is a z-like statistic: kurtoses of random sign have mean 0 and variance 1. Beyond
        # `common_sign_limit` most sources share a sign, and kurtoses that pure noise explains take that sign.
        if abs(common) > TUNING.common_sign_limit:
            signs = np.where(np.abs(kurtoses) < TUNING.kurtosis_noise_ratio * alone, np.sign(common), signs)
        result = cls(rotation, np.where(signs == 0, 1.0, signs), _covariances(angles, white))
        result.level = math.sqrt(float(np.mean(_squares_above_noise(kurtoses, alone))))
        result.odds = odds
        if abs(common) > TUNING.common_sign_limit:
            result.common = TUNING.common_sign_log_odds * float(np.sign(common))
        return result

    def randomise_unresolved(self, seed: int) -> None:
        """Rotate unresolved components among themselves, by random angles with a public seed, before the next round.

        If two components are mixtures of the same two sources by 45 degrees, the score is flat in their angle; likewise
        for Gaussian components. Further rounds at the same matrix give no new information. At another angle the score
        of a mixture has a slope.

        Parameters
        ----------
        seed : int
            Public; the number of the round.
        """
        unresolved = self._unresolved()
        row, column = upper(len(unresolved))
        # A component is in (unresolved components - 1) rotated pairs, so its total rotation is about
        # `unresolved_rotation` radians.
        size = TUNING.unresolved_rotation / math.sqrt(max(int(np.sum(unresolved)) - 1, 1))
        angles = size * np.random.default_rng(seed).normal(size=len(row))
        self.B = rotated(np.where(unresolved[row] & unresolved[column], angles, 0.0), len(unresolved)) @ self.B

    def refit(self, tensor: Floats, noise: float) -> None:
        """Replace the rotation by the joint fit of all rounds and the cumulant tensor (`likelihood.maximise`).

        The whitening of B and its uncertainty remain those of the filter.

        Parameters
        ----------
        tensor : array of shape (R, R, R, R)
            The release of fourth cumulants.
        noise : float
            Its standard deviation in isometric coordinates.
        """
        R, scale = len(self.B), max(self.scale, 1.0)
        # The slope of "both" is not released; approximated by `score_both_slope` of the released slopes. The usual
        # slopes of an undecided source are the mean of those of bursts and heavy tails. Rows of `usual` are sources.
        weights = dict(zip((*SCORES, "both"), [*np.eye(len(SCORES)), _BOTH_SLOPE], strict=True))
        kinds = dict(zip((*SCORES, "both"), [*_KIND_SLOPES, (_KIND_SLOPES[0] + _KIND_SLOPES[1]) / 2], strict=True))
        usual = scale * np.stack(
            [kinds["cube" if sign < 0 else each] for each, sign in zip(self.scores, self.signs, strict=True)]
        )
        rounds = []
        for request, B, sums, std in self.rounds:
            scores, signs = request.scores or self.scores, request.signs if request.signs is not None else np.ones(R)
            by = np.stack([weights[each] for each in scores])
            own, own_noise = np.sum(by * sums.slopes.T, axis=1), std / request.slope_weight * np.linalg.norm(by, axis=1)
            cube = np.array([float(each == "cube") for each in scores])
            rounds.append(ScoreRelease(B, signs, cube, by @ usual.T, sums.turns, own, math.sqrt(2) * std, own_noise))
        self.fit = maximise(
            np.asarray(np.linalg.inv(self.B), dtype=np.float64),
            self.signs,
            rounds,
            Cumulants(tensor, noise, self.level),
            TUNING.fit_steps,
        )
        # Keep the filter's variance of whitening errors, (a_ij + a_ji)/2, and take the variance of angles from the fit.
        self.B = np.asarray(np.linalg.inv(self.fit.mixing), dtype=np.float64)
        stretch = (self.P[:, 0, 0] + self.P[:, 1, 1] + 2 * self.P[:, 0, 1]) / 4
        self.P = _covariances(self.fit.angles, 0.0) + stretch[:, None, None] * np.ones((2, 2))

    def _unresolved(self) -> NDArray[np.bool_]:
        """(R,) Components whose fitted part is small beside the median of the better half, and uncertain.

        None before the first joint fit.
        """
        if self.fit is None:
            return np.zeros(len(self.B), dtype=bool)
        parts, doubt = self.fit.parts, np.sqrt(self.fit.doubt)
        usual = np.median(parts[parts >= np.median(parts)])
        return np.asarray((parts < TUNING.unresolved_part * usual) & (parts < TUNING.unresolved_evidence * doubt))

    def probe_rotation(self, noise: float, rounds: int, seed: int) -> Floats:
        """A small known rotation (R x R, public seed) at which the next round is evaluated.

        Slopes are biased where units have few or autocorrelated rows: they are not zero for Gaussian components. The
        response of the turns to a known rotation has no such bias: Gaussian data have no preferred directions, so the
        response is zero.

        Parameters
        ----------
        noise : float
            Expected standard deviation of the next release.
        rounds : int
            Number of rounds with a known rotation.
        seed : int
            Public seed of the signs of the angles.
        """
        R = len(self.B)
        pairs = R * (R - 1) // 2
        # A turn responds to an angle with `steep`, against noise of sqrt(2) noise. Over all pairs and rounds the angle
        # `size` then gives an evidence of `probe_evidence` standard deviations.
        size = TUNING.probe_evidence * math.sqrt(2 / (pairs * rounds)) * noise / self.steep
        size = min(size, TUNING.probe_angle_most)
        return rotated(size * np.random.default_rng(seed).choice([-1.0, 1.0], pairs), R)

    def update(
        self,
        statistic: UnmixingScore,
        sums: ScoreSums,
        noise: float,
        share: float,
        *,
        late: bool,
        step: float = 1.0,
        probe: Floats | None = None,
    ) -> None:
        """Update the filter with one release.

        Parameters
        ----------
        statistic : UnmixingScore
            The request, evaluated at probe @ B.
        sums : ScoreSums
            Its release.
        noise : float
            Standard deviation of each released number.
        share : float
            The round's share of the budget: its weight in the running mean of `scale`.
        late : bool
            In late rounds slope estimates are accumulated instead of decayed.
        step : float
            Factor on the rotation of components with little evidence; above 1 they overshoot.
        probe : array (R, R), optional
            The known rotation of this round.
        """
        R = len(self.B)
        row, column = upper(R)
        # A run without noise would divide by zero: a floor far below the effect of one unit.
        noise = max(noise, 1e-6 * max(sums.scale, 1.0))
        self.rounds.append((statistic, self.B if probe is None else probe @ self.B, sums, noise))
        # Exponential mean: norms of contributions change while B converges.
        self.scale_weight = TUNING.scale_memory * self.scale_weight + share
        self.scale += (sums.scale - self.scale) * share / self.scale_weight
        # Evidence is collected for the kinds chosen before this release. Its noise is independent of that choice, so
        # pure noise has no preferred sign here. This must precede `_choose_scores`.
        sure = (statistic.slope_weight / noise) ** 2
        self.proof += sure * np.stack([self._slope_along_kind(sums.slopes), np.ones(R)])
        self.tails += sure * np.where(self.signs > 0, _TAIL_WEIGHTS @ sums.slopes, 0.0)
        slopes = self._merge_slopes(sums.slopes, sure, 1.0 if late else TUNING.slope_memory)
        both, turns = slopes[row] + slopes[column], sums.turns
        self.steep = float(np.mean(both))
        if probe is not None:
            # Normal equations of the response to known angles, then remove that response from the turns: the filter
            # estimates the error of B, not of probe @ B.
            known = (probe - probe.T)[row, column] / 2
            self.response += np.stack([turns * known, known**2]) / (2 * noise**2)
            turns = turns - both * known
        self._inflate_variances(turns, both, noise)
        # Kalman update. Observations: (turn, correlation) = H (a_ij, a_ji) + noise. `split` multiplies turns by sqrt(2)
        # and divides correlations by their weight, and their noise with them.
        H = np.empty((len(row), 2, 2))
        H[:, 0, 0], H[:, 0, 1], H[:, 1, :] = slopes[row], -slopes[column], max(self.scale, 1.0)
        R_noise = np.diag([2 * noise**2, (noise / statistic.correlation_weight) ** 2])
        HP = H @ self.P
        gain = np.linalg.solve(HP @ H.transpose(0, 2, 1) + R_noise, HP).transpose(0, 2, 1)
        newton_steps = np.einsum("nij,nj->ni", gain, np.stack([turns, sums.correlations], axis=1))
        self.P = self.P - gain @ HP
        A = np.zeros((R, R))
        A[row, column], A[column, row] = newton_steps[:, 0], newton_steps[:, 1]
        # With a small slope the linearisation underestimates large angles; components with little evidence may
        # overshoot. A clip at `turn_most` bounds the effect of a slope that is wrong by far.
        unsure = self._uncertain_sources()
        steps = np.where(unsure[:, None] | unsure, step, 1.0)
        turn, stretch = np.clip(steps * (A - A.T) / 2, -TUNING.turn_most, TUNING.turn_most), (A + A.T) / 2
        # A spectral norm below 1 keeps I - stretch invertible.
        stretch *= min(1.0, TUNING.stretch_most / max(float(np.linalg.norm(stretch, 2)), 1e-300))
        # Remove the estimated A from B: the rotation exactly orthogonal (polar factor), the whitening to first order.
        self.B = polar(np.eye(R) - turn) @ (np.eye(R) - stretch) @ self.B
        self._choose_scores()

    def slope_weight(self, late: bool) -> float:
        """The `slope_weight` of the next round: smaller once all kinds are certain, or in late rounds.

        Slopes, correlations and turns of a unit are divided by their joint norm, so weight on slopes costs precision of
        turns.

        Parameters
        ----------
        late : bool
            Whether the next round is a late one.
        """
        sure = np.all(self._slope_along_kind(self.slopes) * np.sqrt(self.precision) > TUNING.kind_evidence)
        weight = TUNING.slope_weight_late if late or sure else TUNING.slope_weight
        return min(math.sqrt(len(self.B) - 1) * weight, 1.0)

    def stability(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The expected correlation of each component with its noise-free version (R,), and which are real (R, bool).

        The filter's covariance gives the error of a component, conditional on the component being real. For each sign:

        1. Evidence. If the collected slopes of all components of this sign are not 3 standard deviations above zero
           together, all of them get stability 0.
        2. Class. Each component is a resolved source, an unresolved mixture of two, or Gaussian. Bayes's rule gives the
           probabilities, from the joint fit (`_classify_by_fit`) or from the slopes (`_classify_by_slopes`).
        3. Known rotations. If the turns respond less to known rotations than the slopes predict, the slopes may be
           spurious. `_probability_of_reality` gives the probability that they are real, for all components and for this
           sign.
        4. Heavy tails. Autocorrelated rows bias the burst score upward but not the heavy-tail score. If heavy tails are
           proven by themselves, the components count as real. The known rotations then estimate which part of the
           slopes is real, and errors of angles are larger by the inverse of that part.
        """
        R = len(self.B)
        row, column = upper(R)
        # Variance of everything that component i contains of other sources: sum over j of Var(a_ij).
        error = np.bincount(row, self.P[:, 0, 0], R) + np.bincount(column, self.P[:, 1, 1], R)
        stable, real = np.zeros(R), np.zeros(R, dtype=bool)
        some = _probability_of_reality(*self._probe_evidence(np.ones(R, dtype=bool)), TUNING.spurious_odds)
        for sign, part in _MIXTURE_SLOPES.items():
            group = self.signs == sign
            evidence, weight = self.proof[:, group]
            if not np.any(group) or np.sum(evidence) < TUNING.proof * math.sqrt(float(np.sum(weight))):
                continue
            if self.fit is not None and TUNING.fit_sources <= R:
                likely = _classify_by_fit(self.fit, group)
            else:
                likely = self._classify_by_slopes(evidence, weight, part)
            turned = min(some, _probability_of_reality(*self._probe_evidence(group), TUNING.spurious_odds_sign))
            # A unit-variance source plus an independent error of variance e has correlation 1/sqrt(1 + e) with it.
            left = turned / np.sqrt(1 + error[group])
            if sign > 0 and np.sum(self.tails[group]) > TUNING.proof * math.sqrt(float(np.sum(weight))):
                turned = 1.0
                part_of_slopes = _part_of_reality(*self._probe_evidence(group))
                left = np.maximum(left, 1 / np.sqrt(1 + error[group] / part_of_slopes**2))
            stable[group] = left * (likely[0] + TUNING.mixture_correlation * likely[1])
            real[group] = turned * (1 - likely[2]) > TUNING.reality
        return stable, real

    def _classify_by_slopes(self, evidence: Floats, weight: Floats, part: float) -> Floats:
        """Probabilities (3, sources) of resolved, mixture and Gaussian for the n sources of one sign, by their slopes.

        Parameters
        ----------
        evidence, weight : arrays (n,)
            Rows of `proof`: weighted sum of slopes along the kind, and its weight. evidence/sqrt(weight) has variance
            1.
        part : float
            Fraction of the slope that remains in an unresolved mixture (`_MIXTURE_SLOPES`).
        """
        root, likely = np.sqrt(weight), np.ones((3, len(evidence)))
        # Expectation and maximisation, with a fixed number of iterations: `level` is the slope of a resolved source.
        for _ in range(10):
            level = float(np.sum(likely[0] * evidence) / max(float(np.sum(likely[0] * weight)), 1e-300))
            # Cap the separation of the three classes at `class_evidence_most` standard deviations.
            clear = np.minimum(1.0, TUNING.class_evidence_most / np.maximum(level * root, 1e-300))
            apart = clear * (evidence / root - level * root * np.array([[1.0], [part], [0.0]]))
            # A slope above the level is no evidence against a resolved source.
            apart[0] = np.minimum(apart[0], 0.0)
            # Where the cap applies, prior odds move from those of this start (`less`) to the small ones of
            # `class_odds`.
            odds = [
                np.full(len(evidence), 1.0),
                *(few + (less - few) * clear**2 for few, less in zip(TUNING.class_odds, self.less, strict=True)),
            ]
            likely = _softmax(np.log(odds) - apart**2 / 2)
        return likely

    def _probe_evidence(self, group: NDArray[np.bool_]) -> tuple[float, float]:
        """Evidence of the known rotations for the sources in `group` (R, bool): observed, and expected by the slopes.

        Both in standard deviations of the sum of the group's slopes. A pair responds with the sum of its two slopes, so
        the slopes follow from least squares over all pairs. Without any known rotation: infinity and 1.
        """
        R = len(self.B)
        row, column = upper(R)
        M = np.diag(np.bincount(row, self.response[1], R) + np.bincount(column, self.response[1], R))
        M[row, column] = M[column, row] = self.response[1]
        if not np.any(M):
            return math.inf, 1.0
        # M is singular for R = 2, where one pair determines only the sum of two slopes; hence the pseudo-inverse.
        doubt = np.linalg.pinv(M, hermitian=True)
        slopes = doubt @ (np.bincount(row, self.response[0], R) + np.bincount(column, self.response[0], R))
        spread = max(math.sqrt(float(np.sum(doubt[np.ix_(group, group)]))), 1e-300)
        # Project the slopes on what the pairs can determine, so that both numbers are comparable.
        own = doubt @ M @ self.own
        return float(np.sum(slopes[group])) / spread, float(np.sum(own[group])) / spread

    # ---- slopes and scores -----------------------------------------------------------------------------------------

    def _merge_slopes(self, released: Floats, new: float, memory: float) -> Floats:
        """Merge released slopes into the running estimate; returns the slope (R,) of each source's own score, positive.

        Parameters
        ----------
        released : array (3, R)
            Released slopes by SCORES.
        new : float
            Their precision (1/variance).
        memory : float
            Factor on the precision of the earlier estimate: 1 accumulates, less forgets.
        """
        old = memory * self.precision
        self.precision = old + new
        self.slopes = (self.slopes * old + released * new) / self.precision
        shrunk = self._shrink_slopes()
        own = [
            float(_BOTH_SLOPE @ shrunk[:, i]) if score == "both" else float(shrunk[SCORES.index(score), i])
            for i, score in enumerate(self.scores)
        ]
        # Slopes are divisors in the filter. A slope near zero would turn noise into large angles, so it is at least a
        # fraction of the mean slope, and at least half a standard deviation (`slope_noise_least`) of the mean slope
        # over sources.
        each = np.array(own) * self.signs
        mean = max(float(np.mean(each)), 1e-9)
        least = TUNING.slope_noise_least / math.sqrt(float(np.sum(self.precision)))
        self.own = np.maximum(each, max(TUNING.slope_least * mean, least))
        return self.own

    def _shrink_slopes(self) -> Floats:
        """Slopes (3, R) shrunk towards the mean of their sign, by the share of their spread that is noise.

        Empirical Bayes as by James and Stein, with limited translation: no slope moves by more than `slope_translation`
        standard deviations.
        """
        shrunk, doubt = self.slopes.copy(), 1 / self.precision
        for sign in (1.0, -1.0):
            group = self.signs == sign
            if np.sum(group) > 1:
                own, its = self.slopes[:, group], doubt[group]
                mean = np.average(own, axis=1, weights=1 / its)[:, None]
                spread = np.maximum(np.var(own, axis=1, keepdims=True, ddof=1) - np.mean(its), 0)
                towards = (mean - own) * its / (spread + its)
                most = TUNING.slope_translation * np.sqrt(its)
                shrunk[:, group] = own + np.clip(towards, -most, most)
        return shrunk

    def _choose_scores(self) -> None:
        """Choose the sign and the score of each source for the next round, from the slopes.

        Signs: the log likelihood ratio of the better positive kind (bursts, heavy tails) and the negative kind (light
        tails), plus the prior odds of the start, plus the log odds of the estimated proportion of signs.
        """
        doubt = 1 / np.sqrt(self.precision)
        # The start's odds lose half their weight in each round, like earlier slopes.
        self.odds = TUNING.slope_memory * self.odds
        likely = self._kind_likelihoods()
        positive = np.maximum(likely[0], likely[1]) - likely[2] + self.odds + self.common
        common = 0.0
        # Proportion of positive signs by expectation and maximisation, with pseudo-counts of `sign_pseudo_count` R for
        # either sign.
        for _ in range(20):
            share = 1 / (1 + np.exp(-np.clip(positive + common, -50, 50)))
            pseudo = TUNING.sign_pseudo_count * len(share)
            common = math.log((np.sum(share) + pseudo) / (np.sum(1 - share) + pseudo))
        self.signs = np.where(positive + common < 0, -1.0, 1.0)
        shrunk, positive = self._shrink_slopes(), self.signs > 0
        # Bursts or heavy tails: the steeper score has the higher signal. If the difference is within its noise, "both".
        gap = shrunk[0] - shrunk[1]
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

    def _kind_likelihoods(self) -> Floats:
        """Log likelihood (3, R) of each source's slopes under each kind of `TUNING.kind_slopes`.

        A partly mixed source has a fraction of the usual slopes. The fraction is profiled out: its least-squares
        estimate, between `part_least` and 1, is used for each kind.
        """
        scale, norms = max(self.scale, 1.0), np.sum(_KIND_SLOPES**2, axis=1)
        part = np.clip(_KIND_SLOPES @ self.slopes / (scale * norms[:, None]), TUNING.part_least, 1.0)
        apart = self.slopes[None] - scale * part[:, None, :] * _KIND_SLOPES[:, :, None]
        return np.asarray(-self.precision / 2 * np.sum(apart**2, axis=1))

    def _uncertain_sources(self) -> NDArray[np.bool_]:
        """(R,) Sources with little evidence of their kind: below `overshoot_evidence` and below half the mean of their
        sign."""
        evidence = self._slope_along_kind(self.slopes) * np.sqrt(self.precision)
        level = np.array([np.mean(evidence[self.signs == sign]) for sign in self.signs])
        return np.asarray(evidence < np.minimum(TUNING.overshoot_evidence, level / 2))

    def _slope_along_kind(self, slopes: Floats) -> Floats:
        """(R,) Projection of `slopes` (3, R) on the direction of norm 1 of each source's kind."""
        along = dict(zip(SCORES, _KIND_DIRECTIONS @ slopes, strict=True)) | {"both": _BOTH_DIRECTION @ slopes}
        kinds = np.where(self.signs < 0, "cube", self.scores)
        return np.array([along[kind][i] for i, kind in enumerate(kinds)])

    def _inflate_variances(self, turns: Floats, both: Floats, noise: float) -> None:
        """Inflate the variances of angles where the innovations are larger than the filter predicts.

        The filter linearises, so it can be overconfident far from the sources. The inflation discards the knowledge of
        all pairs of a source, so the thresholds `innovation_limit_*` make false alarms rare.

        Parameters
        ----------
        turns : array (N,)
            Released turns, less the response to known rotations.
        both : array (N,)
            slope_i + slope_j of each pair: the response of a turn to an angle.
        noise : float
            Standard deviation of the release; a turn has sqrt(2) times that.
        """
        R = len(self.B)
        row, column = upper(R)
        have = (self.P[:, 0, 0] + self.P[:, 1, 1] - 2 * self.P[:, 0, 1]) / 4
        # `have`: predicted variance of the angle (a_ij - a_ji)/2. `surprise`: squared innovation over its predicted
        # variance, with mean 1 for a correct filter. `excess`: an unbiased estimate of the squared angle.
        surprise = turns**2 / both**2 / (have + 2 * noise**2 / both**2)
        excess = (turns**2 - 2 * noise**2) / both**2
        by_source = _mean_by_source(surprise, R)
        common = max(float(np.mean(excess)), 0.0)
        angles = np.clip((_mean_by_source(excess, R) + common) / 2, 0, TUNING.angle_variance)
        surprised = by_source > 1 + TUNING.innovation_limit_source * math.sqrt(2 / (R - 1))
        all_wrong = np.mean(surprise) > 1 + TUNING.innovation_limit_all * math.sqrt(2 / len(row))
        wrong = surprised[row] | surprised[column] | all_wrong
        more = np.where(wrong, np.maximum((angles[row] + angles[column]) / 2 - have, 0), 0.0)
        self.P = self.P + more[:, None, None] * _ROTATION_COVARIANCE


def _classify_by_fit(fit: Fit, group: NDArray[np.bool_]) -> Floats:
    """Probabilities (3, n) of resolved, mixture and Gaussian for the n sources in `group` (R, bool), by the joint fit.

    The statistic is the fitted part over its standard deviation. A mixture of sources has a poorly determined part,
    however large it is.

    Parameters
    ----------
    fit : Fit
        The joint fit of all rounds.
    group : bool array of shape (R,)
        Sources of one sign.

    Returns
    -------
    array of shape (3, n)
        Columns add up to 1.
    """
    sure = (fit.parts / np.sqrt(fit.doubt))[group]
    mixture = (sure - TUNING.mixture_evidence) / TUNING.mixture_spread
    # A part above that of a usual source is no evidence against a resolved source.
    apart = np.stack([np.minimum(sure - TUNING.source_evidence, 0.0), mixture, sure])
    few, likely = np.array([1.0, *TUNING.class_odds]), np.zeros((3, 1))
    # Odds of mixtures against resolved sources by expectation and maximisation, with the prior odds as pseudo-counts.
    # The spread of mixtures enters as the normalising constant of their normal density.
    for _ in range(10):
        counted = np.array([1.0, (np.sum(likely[1]) + few[1]) / (np.sum(likely[0]) + few[0]), few[2]])
        likely = _softmax(np.log(counted / [1.0, TUNING.mixture_spread, 1.0])[:, None] - apart**2 / 2)
    return likely


def _softmax(logs: Floats) -> Floats:
    """Softmax of each column: probabilities from log weights (classes x sources)."""
    likely = np.exp(logs - np.max(logs, axis=0))
    return np.asarray(likely / np.sum(likely, axis=0))


def _probability_of_reality(observed: float, expected: float, odds: float) -> float:
    """Posterior probability that slopes are real, from the response to known rotations.

    The log likelihood ratio of N(expected, 1) and N(0, 1) at x is expected x - expected^2/2.

    Parameters
    ----------
    observed, expected : float
        Results of `Filter._probe_evidence`.
    odds : float
        Prior odds that the slopes are spurious.
    """
    evidence = expected * min(observed, 1e3) - expected**2 / 2
    return 1 / (1 + odds * math.exp(-min(max(evidence, -50.0), 50.0)))


def _part_of_reality(observed: float, expected: float) -> float:
    """Posterior mean of the part of the slopes that is real, with a uniform prior on [0, 1].

    `observed` is the observed response to known rotations and `expected` the response if all of the slopes is real,
    both in standard deviations. The integral is a midpoint sum over 200 points.
    """
    part = (np.arange(200) + 0.5) / 200
    logs = expected * part * (min(observed, 1e3) - expected * part / 2)
    return float(np.average(part, weights=np.exp(logs - np.max(logs))))


def _prior_by_kurtosis(kurtoses: Floats, noise: float) -> tuple[Floats, Floats]:
    """Variance (N,) of each pair's angle and log odds (R,) of a positive sign, from the kurtoses of the start.

    A pair (i, j) has curvature 4 (k_i^2 + k_j^2)/noise^2, so the angle has the inverse of that as its variance.

    Parameters
    ----------
    kurtoses : array of shape (R,)
        Of the start's directions.
    noise : float
        Standard deviation of the tensor in isometric coordinates.

    Returns
    -------
    angles : array of shape (N,)
        Variances in radians squared.
    odds : array of shape (R,)
    """
    row, column = upper(len(kurtoses))
    alone = noise_level(len(kurtoses)) * noise
    squared = _squares_above_noise(kurtoses, alone)
    angles = np.minimum(noise**2 / (4 * (squared[row] + squared[column])), TUNING.angle_variance)
    ratio = np.minimum(squared / max(alone**2, 1e-200), TUNING.sign_log_odds_cap)
    return angles, np.sign(kurtoses) * TUNING.sign_log_odds * ratio


def _squares_above_noise(kurtoses: Floats, alone: float) -> Floats:
    """Squared kurtoses less a part of the squared noise level `alone`, with a lower limit so that roots exist."""
    least = max(TUNING.kurtosis_floor * alone**2, 1e-300)
    return np.maximum(kurtoses**2 - TUNING.kurtosis_noise_bias * alone**2, least)


def _covariances(angles: Floats, white: float) -> Floats:
    """Covariances (N, 2, 2) of the states of all pairs.

    Parameters
    ----------
    angles : array of shape (N,)
        Variances of the angles (a_ij - a_ji)/2.
    white : float
        Variance of a_ij + a_ji.
    """
    return np.asarray(angles[:, None, None] * _ROTATION_COVARIANCE + white / 4)


def _mean_by_source(values: Floats, order: int) -> NDArray[np.float64]:
    """The mean over the pairs of each source, shape (R,).

    Parameters
    ----------
    values : array of shape (N,)
        One value for each pair.
    order : int
        R.
    """
    row, column = upper(order)
    total = np.bincount(row, values, order) + np.bincount(column, values, order)
    return np.asarray(total / (order - 1))
