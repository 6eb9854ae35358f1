"""Linear regression over sites: rounds of the joint moment of features and residuals, or of the gradient alone.

Model
-----
The response in [-1, 1] is y = u.w + o + error, with the features u (width D) in a frame, coefficients w (D) and an
optional offset o (`regression`). At coefficients w the residual is r = y - o - u.w, clipped to [-b, b].

Method "moment". A round releases, in one matrix of sensitivity sqrt(2) (`ResidualMoment`, D + 1 columns),

    S = sum u u' (D, D),    g = sum r u (D),    q = sum r^2.

The Hessian S does not depend on w, so the S of all rounds are averaged. An opening round takes the damped Newton step

    w <- w + V diag(1/(max(e, 0) + damping)) V' g,    e, V the eigenvalues and vectors of the averaged S/n,

with damping = (noise of an entry of S/n) sqrt(D). One round then releases a histogram of the norms of the scores u r of
whole rows (`ScoreNorms`), which decides where the closing rounds clip scores. A closing round releases, in one matrix
of sensitivity sqrt(2) (`ScoreMoment`, D + 1 columns),

    sum d (D),    sum d d' (D, D),    d the score clipped by its norm.

Closing rounds are at the average of the later w, or at three places where noise is small. `linear_inference` averages
the gradients of both kinds, takes the last step with half the damping, shrinks slopes that are noise, and has the
errors.

Method "gradient". A round releases g and q only (`ResidualGradient`, sensitivity 2, D + 1 numbers), and the step is
gradient descent with momentum: speed <- 0.7 speed + g/n, w <- w + rate/c^2 speed, c the clip of a row.

In both methods the bound b follows the released size of the residuals. It starts at the range of the response and is
reduced to `residual_clip` times the root mean square; the noise of g is proportional to b.

Releases: the optional column moments, `rounds` equal shares (the histogram of scores is one), the optional histogram of
the fit. Steps, posterior and
intervals are free post-processing. The planner's constants were chosen on the kinds of data of
`benchmarks/regression.py` (docs/regression.md, "Accuracy"); no record says which run chose which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.algorithms.regression.base import Frame, Regression, counted_units
from zerosum.algorithms.regression.inference import GradientRelease, Posterior, posterior
from zerosum.algorithms.regression.linear_inference import (
    Closing,
    Level,
    LinearFit,
    Tail,
    best_clip,
    lengthening,
    linear_fit,
    mean_moments,
    positive,
)
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.regression import SQUARE, ResidualGradient, ResidualMoment, ScoreMoment, ScoreNorms


class LinearRegressionProgram(Regression):
    """Least squares in a fixed number of rounds, each a release at the current coefficients.

    With "moment" a round releases the joint second moment of features and residuals. The gradient has the same noise as
    a release of the gradient alone, and the average of the features' moments over all rounds has the noise of one
    release of the whole budget. Steps are Newton steps, damped by the known noise; directions whose eigenvalue is below
    the noise still move slowly, as in gradient descent. With "gradient" (many columns, or moments that are mostly
    noise) a round releases the gradient and the mean square residual, and steps have momentum.

    Results besides those of `Regression`: `residual_std`, in the units of the response, and `r_squared` if the variance
    of the response was released with the column moments (`standardise`).
    """

    name: ClassVar[str] = "linear-regression"
    goal: Literal["inference", "predict"] = "inference"
    """`inference` spends part of the rounds on scores of whole rows, so that intervals contain the bias of the others;
    `predict` spends all on clipped rows, which predict better where noise is large."""
    method: Literal["auto", "moment", "gradient"] = "auto"
    """What a round releases: joint second moments, or the gradient."""
    rounds: int | None = Field(default=None, gt=1, le=1000)
    """Number of rounds; the planner's choice if not given."""
    residual_clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Clip of residuals, in their standard deviations; the planner's choice if not given."""
    room: float | None = Field(default=None, gt=0, le=TUNING.declared_most, allow_inf_nan=False)
    """Rows are clipped where their squared length is this many times the average, by default the planner's choice."""
    learning_rate: float | None = Field(default=None, gt=0, le=2)
    """The length of a step of `gradient`, by default the planner's choice."""
    burn_in: int | None = Field(default=None, ge=0)
    """Rounds that the final average leaves out."""
    closing_rounds: int | None = Field(default=None, ge=0)
    """Rounds of `moment`, the last ones, that release scores; the planner's choice if not given."""
    score_clip: float | None = Field(default=None, gt=0, le=TUNING.declared_most, allow_inf_nan=False)
    """Clip of scores in closing rounds, over the norm of a typical one; by default from a released histogram."""

    @property
    def describe(self) -> str:
        """The method and its rounds, for the plan."""
        measured = "standardised" if self.standardise == "dp" else "measured"
        bought = f"columns {measured} for a share of {self.standardise_share:g}, " if self._buys else ""
        return f"{bought}{self._turns} {self.method} rounds"

    @property
    def _turns(self) -> int:
        """Number of rounds, as declared or chosen by the planner."""
        return self.rounds or TUNING.moment_rounds

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets the method, the rounds and both clips from the noise, the number of units and the number of columns.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.

        Returns
        -------
        algorithm : LinearRegressionProgram
            A copy in which no choice is left open. Values that were given stay.
        """
        unit = self._unit_noise(facts)
        width = self.features + int(self.intercept)
        # Norm of the noise of S/n over the squared clip: an entry of the joint matrix has noise sqrt(2) unit, z is
        # divided by sqrt(2) (a factor 2 in its square), and a symmetric noise matrix of order D has norm sqrt(2 D).
        blur = 2 * math.sqrt(2) * unit * math.sqrt(2 * width)
        method = self.method
        if method == "auto":
            method = "moment" if width <= TUNING.moment_columns_most and blur < 1 else "gradient"
        rounds, rate = self.rounds, self.learning_rate
        if method == "gradient":
            # The effect of noise depends on the learning time rounds * rate/(1 - momentum) alone, in units of 1/clip^2:
            # longer where noise is smaller. `time` is rounds * rate, so the factor 1 - momentum is taken out.
            # A mean gradient of rows of norm c and residuals within b has sensitivity 2 b c.
            gradient_noise = 2 * TUNING.planned_residual * max(unit, 1e-12)
            time = TUNING.learning_time / gradient_noise * (1 - TUNING.gradient_momentum)
            rounds = rounds or int(np.clip(math.ceil(time / TUNING.learning_rate_most), *TUNING.gradient_rounds))
            rate = rate or float(min(TUNING.learning_rate_most, time / rounds))
        noisy = method == "moment" and blur > TUNING.noisy
        rounds = rounds or (TUNING.noisy_rounds if noisy else TUNING.moment_rounds)
        closing, score_clip = self.closing_rounds, self.score_clip
        if method == "gradient" or (self.goal == "predict" and closing is None):
            closing = 0
        elif closing is None:
            # Where noise is large, no wide clip pays for its noise, and nothing is identified: the rounds that predict
            # better then serve both goals.
            least, most = TUNING.closing_share
            share = float(np.clip(most * math.sqrt(TUNING.closing_noise / max(blur, 1e-12)), least, most))
            closing = 0 if noisy else int(share * rounds)
        # With less noise than `linear_noise` the clips widen (less bias); with more they keep the tightest values.
        quiet = math.sqrt(TUNING.linear_noise / max(blur, 1e-12))
        widening = quiet**TUNING.linear_exponent
        (tightest, loosest), (least, most) = TUNING.linear_residual_clip, TUNING.linear_room
        clip, room = float(np.clip(tightest * widening, tightest, loosest)), min(max(least * widening, least), most)
        burn_in = 1 if blur < TUNING.linear_noise else (rounds - closing) // TUNING.burn_in_divisor
        chosen = {
            "standardise": self._standardised(facts),
            "method": method,
            "rounds": rounds,
            "learning_rate": rate,
            "residual_clip": self.residual_clip or clip,
            "room": self.room or room,
            "burn_in": burn_in if self.burn_in is None else self.burn_in,
            "closing_rounds": closing,
            "score_clip": score_clip,
        }
        return self.model_copy(update=chosen)

    @property
    def _as_it_is(self) -> bool:
        """The link is the identity."""
        return True

    @property
    def _response_half(self) -> float:
        """Half the range of the response."""
        return float(self.half[-1])

    @property
    def _response_middle(self) -> float:
        """The middle of the range of the response."""
        return float(self.middle[-1])

    def _moment(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ResidualMoment:
        """The statistic of a round of "moment".

        Parameters
        ----------
        frame : Frame
            How features enter.
        at : array of shape (D,)
            Coefficients.
        bound : float
            b, in half ranges of the response.
        adjacency : Adjacency
            Whether the release counts the units.
        """
        return ResidualMoment(**self._bounds(frame, adjacency), coefficients=at, bound=bound)

    def _gradient(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ResidualGradient:
        """The statistic of a round of "gradient", with the arguments of `_moment`."""
        return ResidualGradient(**self._bounds(frame, adjacency), coefficients=at, bound=bound)

    def _norms(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ScoreNorms:
        """The histogram of the norms of the scores, with the arguments of `_moment`."""
        return ScoreNorms(
            **self._bounds(frame, adjacency), coefficients=at, bound=bound, edges=np.array(TUNING.score_edges)
        )

    def _scores(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ScoreMoment:
        """The statistic of a closing round, with the arguments of `_moment`."""
        return ScoreMoment(**self._bounds(frame, adjacency), coefficients=at, bound=bound)

    @property
    def _closing_turns(self) -> int:
        """Number of closing rounds: at least one opening round and the histogram come before them."""
        return 0 if self.method == "gradient" else min(self.closing_rounds or 0, max(self._turns - 2, 0))

    @property
    def _measures(self) -> int:
        """Number of histograms of scores, 0 or 1: a declared clip needs none."""
        return int(self._closing_turns > 0 and self.score_clip is None)

    @property
    def _share(self) -> float:
        """Share of the budget of one round."""
        return self._left / self._turns

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The column moments (optional), equal rounds, the evaluation (optional)."""
        # Templates at coefficients of zero: sensitivity and size of a release depend on neither coefficients nor bound.
        frame = self._frame(self.room or TUNING.linear_room[0], TUNING.uniform_square)
        kind = self._gradient if self.method == "gradient" else self._moment
        each = PrivateSum(kind(frame, frame.start, 1.0, adjacency), self._share)
        closing = self._closing_turns
        rounds = [each] * (self._turns - closing - self._measures)
        if closing:
            norms = PrivateSum(self._norms(frame, frame.start, 1.0, adjacency), self._share)
            rounds += [norms] * self._measures
            rounds += [PrivateSum(self._scores(frame, frame.start, 1.0, adjacency), self._share)] * closing
        return (*self._bought(adjacency), *rounds, *self._evaluation(adjacency))

    def program(self, adjacency: Adjacency) -> Program:
        """The frame, then the rounds of the chosen method."""
        frame = yield from self._measure(adjacency, self.room or TUNING.linear_room[0], TUNING.uniform_square)
        if self.method == "gradient":
            return (yield from self._descend(frame, adjacency))
        return (yield from self._newton(frame, adjacency))

    @property
    def _widest(self) -> float:
        """Largest residual at coefficients of zero: a response in [-1, 1] less the largest offset."""
        return 1.0 + max((abs(end) for end in self._offset_range or ()), default=0.0)

    def _next_bound(self, bound: float, first: bool, mean_square: float, noise: float) -> float:
        """The bound of the residuals in the next round: `residual_clip` times their root mean square.

        It never grows, and at most halves in a round, so that one noisy release cannot clip all later ones.

        Parameters
        ----------
        bound : of the round that just ended.
        first : whether that was the first round, whose residuals are still the whole response.
        mean_square : released mean square of the clipped residuals.
        noise : its standard deviation; a multiple of it is added, because a bound that is too small biases the fit.
        """
        if first:
            return min(bound, TUNING.first_bound * self._widest)
        size = math.sqrt(max(mean_square + TUNING.bound_margin * noise, 1e-6))
        clip = self.residual_clip or TUNING.linear_residual_clip[0]
        return float(np.clip(clip * size, bound / TUNING.bound_fall_most, bound))

    def _newton(self, frame: Frame, adjacency: Adjacency) -> Program:
        """Opening rounds of the method "moment", the histogram of the norms of scores, and the closing rounds.

        Parameters
        ----------
        frame : Frame
            How features enter with the opening clip, and the coefficients (width,) of the first round.
        adjacency : Adjacency
            Whether the release holds a count of units.
        """
        closing_turns = self._closing_turns
        first = self._turns - closing_turns - self._measures
        burn_in = self.burn_in if self.burn_in is not None else first // TUNING.burn_in_divisor
        burn_in = min(burn_in, first - 1)  # at least one round remains for the average
        opening = Level(frame, _room(frame, self.room or TUNING.linear_room[0]))
        at, bound, units = frame.start, self._widest, 1.0
        for turn in range(first):
            statistic = self._moment(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            second, gradient, squares = (part / units for part in statistic.split(release.value))
            # c and b map a coordinate of the release to the units of features and residuals
            c, b = statistic.scales
            noise = release.noise_std / units
            # units of weight zero have no residual: their share is taken out of the mean square
            square = float(squares) / frame.weight
            opening.units, opening.noise = units, release.noise_std
            opening.add(at, bound, np.asarray(second), np.asarray(gradient), square, c, noise, turn >= burn_in)
            # The Hessian of least squares does not depend on the coefficients: the moments of all rounds estimate the
            # same matrix. The damping is about the norm of the noise of their mean: a smaller one makes the steps
            # diverge.
            hessian, blur = mean_moments(opening)
            values, vectors = np.linalg.eigh(hessian)
            at = at + vectors @ ((vectors.T @ gradient) / positive(values, blur * math.sqrt(frame.width)))
            bound = self._next_bound(bound, turn == 0, square, b**2 * noise / frame.weight)
        lengthened = lengthening(*mean_moments(opening), frame)

        def fitted(closing: Closing | None) -> LinearFit:
            # A weak prior: a typical change of one feature changes the response by `prior_spread` times its standard
            # deviation, which is released with the columns, or is taken from that of the residuals.
            size = opening.std**2
            prior = TUNING.prior_spread * math.sqrt(max(size, frame.response_variance or TUNING.response_ratio * size))
            return linear_fit(opening, closing, lengthened, frame.start, prior, units, frame.intercept)

        found = fitted(None)
        if closing_turns:
            closing = yield from self._close(frame, adjacency, opening, lengthened[0], fitted)
            found = fitted(closing)
        estimate = self._told(frame, found)
        return (yield from self._evaluated(frame, found.mean, adjacency, estimate))

    def _close(
        self,
        frame: Frame,
        adjacency: Adjacency,
        opening: Level,
        longer: Floats,
        fitted: Callable[[Closing | None], LinearFit],
    ) -> Generator[Request, Release, Closing]:
        """The histogram of the norms of the scores, and the closing rounds, whose clip follows from it.

        Parameters
        ----------
        frame, adjacency : as for `_newton`.
        opening, longer : the opening rounds, and how much longer whole rows are (`lengthening`).
        fitted : the fit from the opening and some closing rounds.
        """
        at = opening.at / opening.weight
        # The norm of a typical score, the unit of the histogram and of the clip.
        size = max(float(np.diag(opening.moments) @ longer) / opening.turns, TUNING.trace_least * frame.clip**2)
        unit = opening.std * math.sqrt(size * (longer[-1] if self.intercept else 1.0))
        units, turns, noise = opening.units, self._closing_turns, opening.noise
        tail, clip = Tail.expected(), self.score_clip
        if clip is None:
            norms = self._norms(frame, at, unit, adjacency)
            release = yield PrivateSum(norms, self._share)
            units, noise = counted_units(release), release.noise_std
            counts = release.value[: len(norms.edges) - 1]
            tail = Tail.fitted(counts, norms.edges, units * frame.weight, noise)
        # all have sensitivity sqrt(2), so that the noise of a mean of sensitivity 1 over all closing rounds is
        blur = noise / math.sqrt(2 * turns) / units
        clip = clip or best_clip(tail, blur, frame.width, units)
        small = blur * math.sqrt(frame.width) < TUNING.stage_noise_most
        closing, stages = Closing(clip * unit, clip, unit, tail, small), TUNING.closing_stages if small else 1
        for turn in range(turns):
            # The moments of clipped rows are not those of whole rows, and a step is too long or too short. Where noise
            # is small, later rounds are at the place that the earlier ones lead to.
            if turn * stages // turns > (turn - 1) * stages // turns and turn:
                at = fitted(closing).unshrunk
            statistic = self._scores(frame, at, closing.bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            gradient, meat = statistic.split(release.value / units)
            closing.add(at, np.asarray(gradient), np.asarray(meat), release.noise_std / units)
        return closing

    def _told(self, frame: Frame, found: LinearFit) -> Estimate:
        """The results, without the evaluation.

        Parameters
        ----------
        frame : how features entered.
        found : posterior of the coefficients.
        """
        dispersion = found.dispersion
        # Prior: a typical entry of a row, clip/sqrt(width), changes a response in [-1, 1] by 1 (standard deviation).
        prior = math.sqrt(frame.width) / frame.clip
        pooled, population = (Posterior(found.mean, part) for part in (found.pooled, found.population))
        estimate = self._report(frame, found.mean, pooled, population, prior, found.moments)
        extra = {"residual_std": Quantity(np.array([self._response_half * math.sqrt(dispersion)]), "diagnostic")}
        if frame.response_variance is not None:
            # share of variance explained; noise may move the ratio beyond 1
            explained = np.array([1 - dispersion / frame.response_variance])
            extra["r_squared"] = Quantity(np.clip(explained, 0, 1), "diagnostic")
        return {**estimate, **extra}

    def _finish(
        self,
        frame: Frame,
        at: Floats,
        point: GradientRelease,
        residual: float,
        bound: float,
        slope: float,
        units: float,
    ) -> Estimate:
        """Results of "gradient", which releases no moments.

        Parameters
        ----------
        frame : how features entered.
        at : (width,), the coefficients.
        point : gradient and Hessian with their noise.
        residual, bound : mean square of the clipped residuals, and their bound.
        slope : share of residuals that are not clipped.
        units : number of units.
        """
        prior = math.sqrt(frame.width) / frame.clip
        # The released mean square is noisy: it lies between a positive floor (it becomes a variance) and the bound.
        dispersion = float(np.clip(residual, 1e-6, bound**2))
        pooled = posterior(point, prior, slope=slope).covariance
        population = posterior(point, prior, sampling=dispersion / units, slope=slope).covariance
        return self._told(frame, LinearFit(at, pooled, population, dispersion))

    def _descend(self, frame: Frame, adjacency: Adjacency) -> Program:
        """Rounds of the method "gradient". Of the Hessian only the bound clip^2 on its norm is known.

        Parameters
        ----------
        frame : Frame
            How features enter, and the coefficients (width,) of the first round.
        adjacency : Adjacency
            Whether the release holds a count of units.
        """
        rounds, rate = self._turns, self.learning_rate or 1.0
        at, speed, bound = frame.start, np.zeros(frame.width), self._widest
        residual, used, units, noise = 1.0, 1.0, 1.0, 0.0
        for turn in range(rounds):
            statistic = self._gradient(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            gradient, squares = statistic.split(release.value)
            noise, residual, used = release.noise_std / units, squares / (units * frame.weight), bound
            # Heavy ball (Polyak 1964), stable while rate * e/clip^2 < 2 (1 + momentum) for all eigenvalues e of the
            # Hessian. These are at most clip^2, so that every rate of at most 2 is stable.
            speed = TUNING.gradient_momentum * speed + gradient / units
            at = at + rate / frame.clip**2 * speed
            # the noise of the released mean square: `ResidualGradient` releases SQUARE r^2/bound^2
            bound = self._next_bound(bound, turn == 0, residual, bound**2 * noise / (SQUARE * frame.weight))
        # No Hessian was released. A Hessian of zero with noise clip^2 makes the posterior equal to the prior, so all
        # coefficients are reported as not identified.
        blank = np.zeros((frame.width, frame.width))
        point = GradientRelease(at, np.zeros(frame.width), blank, max(frame.clip * used * noise, 1e-12), frame.clip**2)
        estimate = self._finish(frame, at, point, residual, used, 1.0, units)
        return (yield from self._evaluated(frame, at, adjacency, estimate))


def _corner(frame: Frame) -> float:
    """Squared norm of the longest row: the farthest corner of the public ranges."""
    return float(np.sum(((1 + np.abs(frame.center)) / frame.scale) ** 2)) + frame.intercept**2


def _room(frame: Frame, room: float) -> float:
    """`room`, the squared clip of rows over their mean square; infinite if no row is longer than the clip."""
    return math.inf if frame.clip**2 >= _corner(frame) else room
