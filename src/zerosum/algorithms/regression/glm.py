"""Logistic and Poisson regression over sites: a rough start, then Newton rounds.

Model
-----
With features u (width D) in a frame, coefficients w (D) and the linear predictor eta = u.w + o (`regression`), the
response is a class with P(second class) = 1/(1 + exp(-eta)), or a count with mean exp(eta). A Newton round releases at
the current w, in one vector of D + D (D + 1)/2 numbers (`NewtonStep`, sensitivity 2 for logistic models and
sqrt(4 + b^2) for Poisson),

    g = sum r u (D),    H = sum h u u' (D, D),

r the residual and h = p (1 - p) or the rate. A long row has less weight, in g and in H alike, which leaves the
maximiser unbiased. For counts (`CountStep`) that release also holds the mean square of the residuals, for the
dispersion and for
the clip of the next round. Releases are merged by `shrinkage.average`, and the next w is the posterior mean under the
prior N(c, Q) of `shrinkage.shrunk_posterior`. The center c is 0; in Poisson models it is the released mean count with
slopes of 0. Coefficients of the result are that mean after the last round.

The start of the logistic model is the functional mechanism (Zhang et al. 2012; capeFM, Imtiaz, Mohammadi and Sarwate
2019): with y = -1 or 1 the loss log(1 + exp(-y eta)) = log 2 - y eta/2 + eta^2/8 + O(eta^4) is released as its
coefficient arrays and minimised with a ridge. The Poisson model starts at the released mean count.

Releases: column moments (optional; always for counts), the quadratic (logistic, without an offset), the Newton rounds
of equal shares but the first, the optional histogram of the fit. Posterior, scores and intervals are free
post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.algorithms.regression.base import Frame, Regression, counted_units
from zerosum.algorithms.regression.functional import lowest_quadratic
from zerosum.algorithms.regression.inference import GradientRelease, relative_clip
from zerosum.algorithms.regression.shrinkage import average, denoised, moved, shrunk_posterior
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.polynomial import PolynomialCoefficients
from zerosum.statistics.regression import SQUARE, CountStep, Family, NewtonStep


@dataclass(frozen=True)
class Scale:
    """Size of the responses and of their residuals, for clips and standard errors.

    Attributes
    ----------
    rate : float
        Approximate mean response.
    spread : float
        Standard deviation of the residuals, in the units of the response.
    dispersion : float
        Variance of the residuals over that of the model's law: 1 for classes and for Poisson counts.
    shape : float
        a of the variance m + a m^2 of a negative binomial at mean m, by which residuals are divided; 0 for Poisson
        counts.
    """

    rate: float
    spread: float
    dispersion: float = 1.0
    shape: float = 0.0

    @property
    def weight(self) -> float:
        """h of the model at the mean response: m/(1 + a m)."""
        return self.rate / (1 + self.shape * self.rate)


# A class has a dispersion of 1, and its residuals are at most 1: nothing of a scale is used.
CLASSES = Scale(0.5, 0.5)


class NewtonRegression(Regression):
    """Base of logistic and Poisson regression: Newton rounds that release gradient and Hessian together.

    Coefficients are posterior means. The posterior uses all releases, accounts for the noise of gradients and Hessians,
    and has a weak prior: a typical change of one feature changes the linear predictor by `TUNING.predictor_spread`
    (1.75) in standard deviation.
    Directions without signal keep the prior and are reported as not identified, so no step can diverge.

    Results besides those of `Regression`: `score_coefficients` and `score_intercept`, from a narrower prior. They rank
    and predict better.
    """

    family: ClassVar[Family]
    rounds: int | None = Field(default=None, ge=2, le=1000)
    """Number of Newton rounds; the planner's choice if not given."""
    room: float | None = Field(default=None, gt=0, le=TUNING.declared_most, allow_inf_nan=False)
    """Rows are clipped where their squared length is this many times the average, by default the planner's choice."""

    @property
    def describe(self) -> str:
        """The rounds, for the plan."""
        bought = f"columns measured for a share of {self.standardise_share:g}, " if self._buys else ""
        return f"{bought}{self._plan}"

    @property
    def _plan(self) -> str:
        """The rounds in words, for the description of a plan."""
        return f"{self._turns} Newton rounds"

    def _unit_noise(self, facts: PublicFacts) -> float:
        """As in `Regression`, but relative to the signal that the assumed mean weight leaves.

        Noise is planned for weights of 1. A mean weight of 1/2 halves the sums and leaves the noise as it is.
        """
        return super()._unit_noise(facts) / (TUNING.weight_typical if self.weight is not None else 1.0)

    @property
    def _turns(self) -> int:
        """Number of Newton rounds, as declared or chosen by the planner."""
        return self.rounds or TUNING.newton_rounds

    @property
    def _newton(self) -> tuple[float, ...]:
        """Relative shares of the Newton rounds: the first ones are far from the maximum and get less."""
        first = TUNING.newton_first_shares[: self._turns - 1]
        return (*first, *([1.0] * (self._turns - len(first))))

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets clip, rounds and `standardise`.

        Parameters
        ----------
        facts : PublicFacts
            Noise of a sum of sensitivity 1 that takes the whole budget, and the public number of units.
        """
        chosen = {
            "standardise": self._standardised(facts),
            "rounds": self._turns,
            "room": self.room or self._planned_room(facts),
        }
        return self.model_copy(update=chosen)

    def _planned_room(self, facts: PublicFacts) -> float:
        """The squared clip per scaled feature at which the modelled error of a coefficient is least.

        Long rows have less weight (`NewtonStep`). A smaller clip has less noise, and loses more of the information.
        With k the share of the information that is kept, for normal rows, the variance of a coefficient is that of the
        privacy noise, (noise/k)^2, plus that of the rows that count less, (1 - k)/(n h k). Where the model is wrong,
        rows with less weight also move the maximiser; that bias falls with the clip and not with n.
        """
        width = self.features + int(self.intercept)
        units = (facts.units or GUESSED_UNITS) * (1 - self.hold_out)
        rooms = TUNING.newton_room * TUNING.newton_room_step ** np.arange(TUNING.newton_room_steps)
        kept = np.array([1 - lost_information(width, room) for room in rooms])
        noise = np.array([self._coefficient_noise(facts, width, room) for room in rooms])
        lost = (1 - kept) / (units * TUNING.hessian_typical * kept)
        return float(rooms[np.argmin((noise / kept) ** 2 + lost + (self._misfit / rooms) ** 2)])

    @property
    def _misfit(self) -> float:
        """Bias of a coefficient at a squared clip of the mean square, where the model is wrong."""
        return TUNING.misfit

    def _coefficient_noise(self, facts: PublicFacts, width: int, room: float) -> float:
        """Approximate noise of a coefficient in one round of the whole budget.

        The gradient has noise 2 clip unit (sensitivity 2, clip^2 = room width), the Hessian of scaled features is about
        `TUNING.hessian_typical`, and a Newton step is their ratio.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        width : int
            D, the number of coefficients.
        room : float
            Squared clip per scaled feature.
        """
        return 2 * math.sqrt(room * width) * self._unit_noise(facts) / TUNING.hessian_typical

    @property
    def _rooms(self) -> tuple[float, float]:
        """Arguments `room` and `ranged` of `Regression._frame`; a feature in [-1, 1] has a square of at most 1."""
        room = self.room or TUNING.newton_room
        return room, min(1.0, TUNING.newton_room_ranged * room / TUNING.newton_room)

    def _shares(self) -> tuple[float, ...]:
        """Share of the budget of each Newton round; together `_left`."""
        return tuple(self._left * share / math.fsum(self._newton) for share in self._newton)

    @abstractmethod
    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, scale: Scale) -> NewtonStep:
        """The statistic of a Newton round at coefficients `at` (width,), for responses of this `scale`.

        Parameters
        ----------
        frame : Frame
            How features enter.
        at : array of shape (D,)
            Coefficients.
        adjacency : Adjacency
            Whether the release counts the units.
        scale : Scale
            Size of the responses and residuals; used for counts only.
        """

    def _loss(self, frame: Frame, square: float | None = None) -> float:
        """Share of the information that is lost because long rows have less weight.

        Parameters
        ----------
        frame : Frame
            How features enter.
        square : float, optional
            Released mean squared norm of the rows with these weights. Without it, or without column moments, rows are
            taken to be normal.
        """
        if square is not None and frame.square is not None:
            lost = min(1 - square / (frame.weight * frame.square), TUNING.loss_most)
            return lost if lost > 1e-9 else 0.0  # below it is rounding
        # a declared clip in standardised units: a typical row has a squared norm of about its width
        room = self._rooms[0] if self.clip is None else self.clip**2 / frame.width
        return lost_information(frame.width, room)

    def _doubt(self, frame: Frame, loss: float) -> float:
        """Variance of the bias of the gradient where a model of counts is wrong for long rows, over dispersion H_jj.

        Rows of less weight leave the maximiser of a true model as it is. Of a model that is wrong for long rows the
        mean residual m of these rows is not 0, and the gradient has the bias E[(1 - s^2) m u]; the clip of residuals
        adds to it. With m^2 in proportion to the variance of a residual, Cauchy and Schwarz give a square of at most
        q^2 E(1 - s^2) loss dispersion H_jj. For tails of the power 3 the loss falls as 1/clip and E(1 - s^2) as its
        third power, so that loss^3 is a cautious measure of the product while clips are near the typical row. The
        loss that normal rows would have is left out: it is no sign of long rows.

        Parameters
        ----------
        frame : Frame
            How features enter.
        loss : float
            Released share of the information that is lost in rows of less weight.
        """
        if self.family != "poisson" or frame.square is None or self.clip is not None:
            return 0.0
        excess = max(loss - lost_information(frame.width, self._rooms[0]), 0.0)
        return TUNING.misfit_residual**2 * excess**3

    def _scaled(self, statistic: NewtonStep, value: Floats, noise: float, weight: float, scale: Scale) -> Scale:
        """What a release says about the size of the residuals, for the next round: for a class, nothing.

        Parameters
        ----------
        statistic, value, noise : the statistic, its released mean over units, and the noise of an entry.
        weight : mean weight of a unit in the fit.
        scale : the scale so far.
        """
        return scale

    def _prior(self, frame: Frame, hessian: Floats, noise: float) -> Floats:
        """Prior standard deviations of the coefficients (width,).

        A change of a feature by its standard deviation changes the linear predictor by `TUNING.predictor_spread` in
        standard deviation. The mean square of feature j, weighted as in the fit, is H_jj over the mean of h, which the
        constant column gives. Without a constant it is taken from the clip: clip/sqrt(width) is a typical entry.

        Parameters
        ----------
        frame : Frame
            How features enter.
        hessian : array of shape (width, width)
            Released Hessian.
        noise : float
            Standard deviation of the noise of a diagonal entry.
        """
        typical = TUNING.predictor_spread * math.sqrt(frame.width) / frame.clip
        if not frame.intercept:
            return np.full(frame.width, typical)
        diagonal = np.diag(denoised(hessian, noise)[0])
        prior = TUNING.predictor_spread * np.sqrt(diagonal[-1] / frame.intercept**2 / diagonal)
        # A column whose H_jj is not above its noise may be nearly constant, and then the rule above gives a prior
        # without limit, whose variance would make the gradients of all other columns uncertain. Its prior is that of
        # the change of the predictor over half the range of the column, which is 1/scale in the frame.
        if noise > 0:
            certainty = 1 + np.minimum(diagonal[:-1] / noise / TUNING.range_certainty, 1e3) ** 2
            prior[:-1] = np.minimum(prior[:-1], TUNING.range_spread * frame.scale * certainty)
        prior[-1] = self._prior_intercept / frame.intercept
        return np.asarray(prior)

    @property
    def _prior_intercept(self) -> float:
        """Prior standard deviation of the intercept at the center of the features."""
        return TUNING.intercept_spread

    def _point(self, statistic: NewtonStep, at: Floats, value: Floats, noise: float, units: float) -> GradientRelease:
        """A released sum as a `GradientRelease`: means over units.

        Parameters
        ----------
        statistic : NewtonStep
            The statistic of the round.
        at : array of shape (width,)
            Its coefficients.
        value : array of shape (statistic.size,)
            The released sum.
        noise : float
            Standard deviation of the noise of a released number.
        units : float
            Number of units, public or released.
        """
        # noise of one entry, in the units of the gradient and of the Hessian
        gradient, hessian = statistic.split(value)
        return GradientRelease(
            at,
            gradient / units,
            hessian / units,
            statistic.clip * statistic.bound * noise / units,
            statistic.hessian_scale * noise / units,
        )

    def _rounds(
        self,
        frame: Frame,
        at: Floats,
        adjacency: Adjacency,
        shares: tuple[float, ...],
        scale: Scale,
        square: float | None = None,
        even: float | None = None,
    ) -> Program:
        """The Newton rounds and the results.

        Parameters
        ----------
        at : (width,), coefficients of the first round, and the mean of the prior.
        shares : one per round.
        scale : mean and spread of the responses, which set the bounds of counts.
        square : released mean squared norm of the rows with the weights of the rounds; None if not known.
        even : h of all rows in the first round, if they are equal there; its Hessian then gives `square`.
        """
        center = at if self.family == "poisson" else None
        points: list[GradientRelease] = []
        # the remainder in one entry of the gradient is proportional to a typical entry of a row, clip/sqrt(width)
        bend = TUNING.remainder * frame.clip / math.sqrt(frame.width)
        units = 1.0
        for turn, share in enumerate(shares):
            statistic = self._step(frame, at, adjacency, scale)
            release = yield PrivateSum(statistic, share)
            units = counted_units(release)
            points.append(self._point(statistic, at, release.value, release.noise_std, units))
            scale = self._scaled(statistic, release.value / units, release.noise_std / units, frame.weight, scale)
            if even is not None and turn == 0:
                square = float(np.trace(points[0].hessian)) / even
            # The posterior mean of all points so far is the next point of expansion: a Newton step that is shrunk
            # towards the center where the noise exceeds the prior, so that it cannot diverge. The prior of steps is
            # narrower, since noise that moves the points adds errors of second order, and h falls far from the center.
            point = average(points, bend)
            prior = self._prior(frame, point.hessian, point.hessian_noise)
            at = shrunk_posterior(point, prior / TUNING.step_prior, center=center).mean
        # a feature lies in [-1, 1] before it is centred and scaled
        reach = np.append((1 + np.abs(frame.center)) / frame.scale, frame.intercept)[: frame.width]
        reach = np.minimum(reach, frame.clip)
        near = average(points, bend, reach, frame.intercept)
        at = shrunk_posterior(near, prior, center=center).mean
        near = moved(near, at, bend)
        # The sampling variance of the mean gradient is dispersion H/n. Rows of less weight make the estimate differ
        # from that of all rows in full by part of it, and by a bias that does not fall with n where the model is wrong.
        sampling, loss = scale.dispersion / units, self._loss(frame, square)
        bias = scale.dispersion * self._doubt(frame, loss)
        pooled = shrunk_posterior(near, prior, loss * sampling + bias, center, cautious=True)
        population = shrunk_posterior(near, prior, sampling + bias, center, cautious=True)
        # a narrower prior of the slopes makes the scores less variable
        narrow = prior / np.append(np.full(self.features, TUNING.score_prior), np.ones(frame.width - self.features))
        scores = shrunk_posterior(point, narrow, center=center).mean
        moments = near.hessian, math.hypot(near.hessian_noise, near.hessian_doubt)
        estimate = self._with_scores(frame, scores, self._report(frame, at, pooled, population, prior, moments))
        if self.family == "poisson":
            estimate["dispersion"] = Quantity(np.array([scale.dispersion]), "diagnostic")
            estimate["shape"] = Quantity(np.array([scale.shape]), "diagnostic")
        return (yield from self._evaluated(frame, at, adjacency, estimate))

    def _with_scores(self, frame: Frame, at: Floats, estimate: Estimate) -> dict[str, Quantity]:
        """An estimate with the coefficients `at` (width,) as scores, in the units of the data."""
        matrix, constant = self._in_data_units(frame)
        scores = matrix @ at + constant
        return {**estimate, **self._named({"score_coefficients": scores[:-1], "score_intercept": scores[-1:]})}


def lost_information(width: int, room: float) -> float:
    """Share of the information of normal rows that is lost where rows are weighted down to a squared norm.

    The share is 1 - E min(q, room) for q the squared norm over its mean, a chi-square variable with `width` degrees of
    freedom over `width`.

    Parameters
    ----------
    width : number of features of a row, the intercept included.
    room : largest squared norm over its mean.

    >>> round(lost_information(1, 1.0), 3), lost_information(3, 30.0) < 1e-12
    (0.484, True)
    """
    from scipy.special import gammainc, gammaincc  # heavy: loaded when it is used

    # E[q; q <= room] is the chi-square distribution with two more degrees of freedom.
    at = room * width / 2
    return max(0.0, 1 - float(gammainc(width / 2 + 1, at)) - room * float(gammaincc(width / 2, at)))


class LogisticRegressionProgram(NewtonRegression):
    """Logistic regression: the response is one of two classes, above the middle of its range or not.

    The start is the functional mechanism: the quadratic Taylor polynomial of the loss, released once as coefficient
    arrays and minimised with a ridge from the known noise. With `method` "polynomial" it takes the whole budget and no
    rounds follow. It ranks better at small budgets; its intervals come from one point at zero coefficients and leave
    most coefficients not identified. "auto" chooses it if the noise of one Newton round is more than 1/6.3 of the
    prior, and with `goal` "predict" if it is more than 1/35. The quadratic has no offset; with an offset the Newton
    rounds start at zero.
    """

    name: ClassVar[str] = "logistic-regression"
    family: ClassVar[Family] = "logistic"
    method: Literal["auto", "newton", "polynomial"] = "auto"
    """Newton rounds, or Taylor's quadratic of the loss alone, which ranks better where the budget is small."""
    goal: Literal["auto", "predict", "inference"] = "auto"
    """What `method = "auto"` is chosen for: `inference` takes Newton rounds, `predict` the method that ranks better,
    and `auto` the quadratic only where rounds would identify nothing."""

    @model_validator(mode="after")
    def _start_fits(self) -> Self:
        """Refuse the quadratic start alone with an offset: Taylor's polynomial is in x.w only."""
        if self.offset is not None and self.method == "polynomial":
            raise ValueError("the method 'polynomial' knows no offset: leave it to the planner, or take 'newton'")
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        """As in `NewtonRegression`, and sets `method`: Newton rounds where one of them has enough signal."""
        # Prior standard deviation over the noise of a coefficient (`_prior`, `_coefficient_noise`), both for a squared
        # clip of one per coefficient.
        width = self.features + int(self.intercept)
        # `_coefficient_noise` without the Hessian: sensitivity 2 and a clip of sqrt(width).
        gradient_noise = 2 * math.sqrt(width) * max(self._unit_noise(facts), 1e-300)
        known = TUNING.hessian_typical * TUNING.predictor_spread / gradient_noise
        method = self.method
        if method == "auto":
            worth = {"auto": TUNING.newton_worth, "predict": TUNING.predict_worth, "inference": 0.0}[self.goal]
            method = "newton" if known > worth or self.offset is not None else "polynomial"
        return super().resolve(facts).model_copy(update={"method": method})

    @property
    def _plan(self) -> str:
        """The start and the rounds in words."""
        if self.offset is not None:
            return super()._plan
        chosen = (
            "one quadratic" if self.method == "polynomial" else f"a quadratic start and {self._turns} Newton rounds"
        )
        return chosen if self.goal == "auto" else f"{chosen}, goal {self.goal}"

    def _shares(self) -> tuple[float, ...]:
        """Shares of the start and of the rounds; with an offset there is no start."""
        if self.offset is not None:
            return super()._shares()
        if self.method == "polynomial":
            return (self._left,)
        relative = (TUNING.start_share, *self._newton)
        whole = TUNING.start_share + math.fsum(self._newton)
        return tuple(self._left * share / whole for share in relative)

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        """As in `Regression`: the histogram is over scores, by class."""
        bounds = self._fit_bounds(frame, adjacency) | {"family": "logistic"}
        edges = np.linspace(-TUNING.score_span, TUNING.score_span, TUNING.score_bins + 1)
        return FitHistogram(**bounds, coefficients=at, edges=edges)

    def _quadratic(self, frame: Frame, adjacency: Adjacency) -> PolynomialCoefficients:
        """The statistic of the start: Taylor's coefficients -y/2 and 1/8, each weighted to a largest norm of 1.

        Parameters
        ----------
        frame : Frame
            How features enter.
        adjacency : Adjacency
            Whether the release counts the units.
        """
        return PolynomialCoefficients(
            **self._bounds(frame, adjacency),
            table=np.array([[0.0, 0.0], [0.0, -0.5], [0.125, 0.0]]),
            # 1/(1/2) and 1/(1/8); the constant log 2 is not released, since it does not depend on the data
            weights=np.array([0.0, 2.0, 8.0]),
        )

    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, scale: Scale) -> NewtonStep:
        return NewtonStep(**self._bounds(frame, adjacency), coefficients=at, weighed=True)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The column moments (optional), the quadratic (without an offset), the Newton rounds, the evaluation
        (optional).
        """
        frame = self._frame(*self._rooms)
        shares, first = self._shares(), []
        if self.offset is None:
            first, shares = [PrivateSum(self._quadratic(frame, adjacency), shares[0])], shares[1:]
        steps = [PrivateSum(self._step(frame, frame.start, adjacency, CLASSES), share) for share in shares]
        return (*self._bought(adjacency), *first, *steps, *self._evaluation(adjacency))

    def _constant(self, mean_response: float) -> float:
        """The intercept starts at 0; the quadratic start or the first Newton round moves it."""
        return 0.0

    def program(self, adjacency: Adjacency) -> Program:
        """The optional column moments, the quadratic start, the Newton rounds, and the optional evaluation."""
        frame = yield from self._measure(adjacency, *self._rooms)
        if self.offset is not None:
            return (yield from self._rounds(frame, frame.start, adjacency, self._shares(), CLASSES))
        start, *rest = self._shares()
        statistic = self._quadratic(frame, adjacency)
        release = yield PrivateSum(statistic, start)
        units = counted_units(release)
        arrays = statistic.split(release.value)
        second = coordinates.unpack(arrays[2] / units, frame.width)
        noise = release.noise_std * statistic.worth(2) / units
        # The noise of the quadratic part has norm about noise * sqrt(D). Without rounds the ridge is twice that norm,
        # since nothing corrects the start later.
        ridge = TUNING.alone_ridge if self.method == "polynomial" else TUNING.start_ridge
        at = lowest_quadratic(arrays[1] / units, second, ridge * noise * math.sqrt(frame.width))
        if self.method != "polynomial":
            # the quadratic part is the mean of u u'/8, with the weights of the rounds
            square = 8 * float(np.trace(second))
            return (yield from self._rounds(frame, at, adjacency, tuple(rest), CLASSES, square))
        # the start as a release at w = 0: the log-likelihood is minus the loss, and the Hessian of w'Lw is 2 L
        first = GradientRelease(
            np.zeros(frame.width),
            -arrays[1] / units,
            2 * second,
            release.noise_std * statistic.worth(1) / units,
            2 * noise,
        )
        prior = self._prior(frame, first.hessian, first.hessian_noise)
        # The loss is quadratic by construction, so there is no remainder. Sampling: dispersion 1 of a class.
        pooled = shrunk_posterior(first, prior, cautious=True)
        population = shrunk_posterior(first, prior, 1 / units, cautious=True)
        moments = first.hessian, first.hessian_noise
        estimate = self._with_scores(frame, at, self._report(frame, pooled.mean, pooled, population, prior, moments))
        return (yield from self._evaluated(frame, at, adjacency, estimate))


class PoissonRegressionProgram(NewtonRegression):
    """Poisson regression with a logarithmic link: the response is a count from 0 to the top of its range.

    The column moments are always released first, because mean and variance of the counts set the start and the clips:
    residuals at `tails` (`residual_clip` s + 1) and rates at `tails` (2 m + 1). m is the mean count, and s the standard
    deviation of the residuals: that of the counts in the first round, then from the mean square that every round
    releases. `tails` is larger than 1 where noise is small. The variance of a count is taken to be `dispersion` times
    its mean (quasi-Poisson).

    With `law` "negative-binomial" the variance is m + `shape` m^2 (Lawless 1987). The residual of a count is divided by
    1 + shape m, so that large counts do not dominate. The shape follows from the same releases, at the mean count:
    first from the variance of the counts, then in every round from the mean square of the residuals.

    Results besides those of `NewtonRegression`: `dispersion`, at least 1, and `shape` of the negative binomial.
    """

    name: ClassVar[str] = "poisson-regression"
    family: ClassVar[Family] = "poisson"
    residual_clip: float = Field(default=3.0, gt=0, allow_inf_nan=False)
    """Clip of residuals, in their standard deviations."""
    tails: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Factor on the clips of residuals and rates, larger where noise is small; the planner's choice if not given."""
    law: Literal["quasi-poisson", "negative-binomial"] = "quasi-poisson"
    """The variance of a count with mean m: proportional to m, or m + shape m^2. The factor is released either way."""
    standardise: Literal["auto", "dp", "none"] = "auto"

    @model_validator(mode="after")
    def _counts(self) -> Self:
        """Refuse a range of the response that does not begin at 0."""
        if self.lower is not None and self.lower[-1] != 0:
            raise ValueError(
                f"the range of the response {self.columns[-1]!r} must begin at 0, since it is a count, got "
                f"{self.lower[-1]:g}"
            )
        return self

    @property
    def _most(self) -> float:
        """Largest count: the width of the range, which begins at 0."""
        return 2 * float(self.half[-1])

    def resolve(self, facts: PublicFacts) -> Self:
        """As in `NewtonRegression`, and sets `tails`: the less noise, the wider the clips of counts and rates."""
        noise = self._coefficient_noise(facts, self.features + int(self.intercept), TUNING.newton_room)
        # The tails of residuals fall exponentially at best, and noise grows with the clip: the clip at which bias and
        # noise are alike grows with the logarithm of the noise.
        grown = 1 + TUNING.tail_growth * math.log(TUNING.tail_noise / max(noise, 1e-300))
        wide = float(np.clip(grown, 1, TUNING.tail_most))
        return super().resolve(facts).model_copy(update={"tails": self.tails or wide})

    @property
    def _wide(self) -> float:
        """Factor on the clips of counts and rates, as declared or chosen by the planner."""
        return self.tails or 1.0

    @property
    def _buys(self) -> bool:
        """The column moments are always released."""
        return True

    @property
    def _left(self) -> float:
        """Share of the budget for the Newton rounds."""
        return 1 - self.standardise_share - self.evaluate_share

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        """As in `Regression`: the residuals of counts are binned over their whole range."""
        bounds = self._fit_bounds(frame, adjacency) | {"family": "poisson", "most": self._most, "bound": self._most}
        return FitHistogram(**bounds, coefficients=at, edges=np.linspace(-1, 1, TUNING.count_bins + 1))

    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, scale: Scale) -> CountStep:
        bounds: dict[str, Any] = self._bounds(frame, adjacency)
        return CountStep(
            **bounds,
            coefficients=at,
            family="poisson",
            most=self._most,
            # The 1 is for small rates, where single counts exceed any multiple of their standard deviation.
            bound=min(self._most, self._wide * (self.residual_clip * scale.spread + 1)),
            # m/(1 + a m) is less than 1/a
            rate_bound=min(self._most, self._wide * (TUNING.rate_clip * scale.rate + 1), 1 / max(scale.shape, 1e-9)),
            curvature=TUNING.hessian_weight,
            shape=scale.shape,
        )

    @property
    def _misfit(self) -> float:
        """Not counted: bounds of counts are relative to the clip, and noise grows faster with it."""
        return 0.0

    @property
    def _prior_intercept(self) -> float:
        """The prior is centred at the released mean count."""
        return TUNING.predictor_spread

    def _scaled(self, statistic: NewtonStep, value: Floats, noise: float, weight: float, scale: Scale) -> Scale:
        """The spread of the residuals and the dispersion, from the released mean square of the clipped residuals.

        The mean square q of residuals clipped at b is that of a normal residual of deviation s: q = b^2 f(s/b), which
        `relative_clip` inverts. Quasi-Poisson: the dispersion is s^2/m. Negative binomial: residuals were divided by
        1 + a m, so that s^2 (1 + a m)^2 is the variance m + a m^2 of a count, which gives a (`_shaped`).

        Parameters
        ----------
        statistic : NewtonStep
            The `CountStep` of the round.
        value : array of shape (statistic.size,)
            Its released mean over units.
        noise : float
            Standard deviation of the noise of an entry.
        weight : float
            Mean weight of a unit in the fit.
        scale : Scale
            The scale so far.
        """
        step = cast(CountStep, statistic)  # the statistic of `_step`
        # units of weight zero have no residual; the noise is added, because a bound that is too small biases the fit
        square = (step.mean_square(value) + step.bound**2 * noise) / weight
        # the residuals before they were clipped, if they are normal
        spread = step.bound / relative_clip(max(square, 0.0), step.bound)
        if self.law == "quasi-poisson":
            # Counts vary at least as those of the law. The spread falls from round to round, as the fit improves.
            spread = max(math.sqrt(scale.rate), min(spread, scale.spread))
            return replace(scale, spread=spread, dispersion=spread**2 / scale.rate)
        # The mean of h over all people, m/(1 + a m) at an effective mean m, makes the shape a fixed point of its
        # update: with the true a the squared residuals have that mean whatever the rates are.
        effective = scale.rate
        if statistic.intercept > 0:
            kept = 1 - lost_information(statistic.width, self._rooms[0])
            mean = float(statistic.split(value)[1][-1, -1]) / (statistic.intercept**2 * weight * kept)
            # h = m/(1 + a m) is below 1/a, and noise may exceed that; the factors 0.9 and 3 are limits on noise, chosen
            # by hand, no benchmark recorded.
            mean = min(max(mean, 0.0), 0.9 / max(scale.shape, 1e-9))
            effective = float(np.clip(mean / (1 - scale.shape * mean), scale.rate / 3, 3 * scale.rate))
        found = self._shaped(replace(scale, rate=effective), (spread * (1 + scale.shape * effective)) ** 2)
        return replace(found, rate=scale.rate, spread=math.sqrt(replace(found, rate=scale.rate).weight))

    def _shaped(self, scale: Scale, variance: float) -> Scale:
        """The scale of a negative binomial whose counts have this variance about their means, at the mean count.

        The variance m + a m^2 gives the shape a, and residuals over 1 + a m have the variance m/(1 + a m).

        Parameters
        ----------
        scale : Scale
            Mean count m as `rate`, and the shape so far.
        variance : float
            Variance of the counts about their means.
        """
        shape = max(variance - scale.rate, 0.0) / scale.rate**2
        shape = min(shape, TUNING.shape_most)
        changed = replace(scale, shape=shape)
        return replace(changed, spread=math.sqrt(changed.weight))

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The column moments, the Newton rounds, the evaluation (optional)."""
        frame = self._frame(*self._rooms)
        steps = [
            PrivateSum(self._step(frame, frame.start, adjacency, Scale(1.0, 1.0)), share) for share in self._shares()
        ]
        return (*self._bought(adjacency), *steps, *self._evaluation(adjacency))

    def _rate(self, mean_response: float) -> float:
        """Mean count from a released mean in [-1, 1]; at least 1 % of the largest count, as its logarithm is used.

        Parameters
        ----------
        mean_response : float
            Released mean of the response, in [-1, 1].
        """
        return max(self._most * (mean_response + 1) / 2, TUNING.rate_least * self._most)

    def _constant(self, mean_response: float) -> float:
        """The logarithm of the mean count."""
        return math.log(self._rate(mean_response))

    def program(self, adjacency: Adjacency) -> Program:
        """The column moments, the Newton rounds from the mean count, and the optional evaluation."""
        # The moments are released whatever `standardise` is: the mean count sets the start and the clips.
        statistic = self._columns(adjacency)
        release = yield PrivateSum(statistic, self.standardise_share)
        units = counted_units(release)
        measured = self._measured_frame(release, statistic, units, self._rooms[0])
        sums, squares = statistic.split(release.value)
        means = np.clip(sums / units, -1, 1)
        mean, spreads = float(means[-1]), squares / units - means**2
        frame, at = measured, measured.start
        # without standardisation the declared frame is used, but the intercept still starts at the released mean count
        if self.standardise != "dp":
            frame = self._frame(*self._rooms)
            at = frame.start
            if self.intercept:
                begin = self._constant(mean) - self._mean_offset(means, spreads)
                at = np.append(at[:-1], begin / frame.intercept)
        # clips of counts refer to the rates of units with a large exposure, not only to the mean rate
        rate = self._rate(mean) * self._uneven(means, spreads)
        # The variance of the counts bounds that of the residuals at the start, where only the intercept is fitted.
        # Its noise is added, as in `_scaled`.
        noise = release.noise_std * math.sqrt(len(self.columns)) / (units * SQUARE)
        variance = (self._most / 2) ** 2 * (max(float(spreads[-1]), 0.0) + noise)
        scale = Scale(rate, math.sqrt(max(rate, variance)))
        if self.law == "negative-binomial":
            scale = self._shaped(scale, variance)
        # At the start all slopes are 0, so that all rates are the mean count, if no offsets differ.
        even = scale.weight if self.offset is None else None
        return (yield from self._rounds(frame, at, adjacency, self._shares(), scale, even=even))

    def _offset_spread(self, variance: Floats) -> float:
        """Standard deviation of the offset, from released variances (columns,) of the columns in [-1, 1]."""
        if (ends := self._offset_range) is None:
            return 0.0
        return (ends[1] - ends[0]) / 2 * math.sqrt(float(np.clip(variance[self.features], 0, 1)))

    def _mean_offset(self, mean: Floats, variance: Floats) -> float:
        """Logarithm of the mean exposure, log E exp(o) = E o + var(o)/2 for normal o, at most the end of the range.

        Parameters
        ----------
        mean, variance : array of shape (columns,)
            Released moments of the columns in [-1, 1].
        """
        if (ends := self._offset_range) is None:
            return 0.0
        middle = super()._mean_offset(mean, variance)
        return min(middle + self._offset_spread(variance) ** 2 / 2, ends[1])

    def _uneven(self, mean: Floats, variance: Floats) -> float:
        """Factor on the mean rate for the clips of counts, where exposures differ; at least 1.

        The factor is the exposure `TUNING.exposure_spread` standard deviations above the mean, over
        `TUNING.exposure_divisor`, because the clips already allow several times the mean rate.

        Parameters
        ----------
        mean, variance : array of shape (columns,)
            Released moments of the columns in [-1, 1].
        """
        if (ends := self._offset_range) is None:
            return 1.0
        above = min(TUNING.exposure_spread * self._offset_spread(variance), ends[1] - self._mean_offset(mean, variance))
        return max(1.0, math.exp(above) / TUNING.exposure_divisor)
