"""Logistic and Poisson regression over sites: a rough start, then Newton rounds.

Model
-----
With features u (width D) in a frame, coefficients w (D) and the linear predictor eta = u.w + o (`regression`), the
response is a class with P(second class) = 1/(1 + exp(-eta)), or a count with mean exp(eta). A Newton round releases at
the current w, in one vector of D + D (D + 1)/2 numbers (`NewtonStep`, sensitivity 2 for logistic models and
sqrt(4 + b^2) for Poisson),

    g = sum r u (D),    H = sum h u u' (D, D),

r the residual and h = p (1 - p) or the rate. All releases are merged by `inference.combined`, and the next w is the
posterior mean under the prior N(0, prior^2 I). Coefficients of the result are that mean after the last round.

The start of the logistic model is the functional mechanism (Zhang et al. 2012; capeFM, Imtiaz, Mohammadi and Sarwate
2019): with y = -1 or 1 the loss log(1 + exp(-y eta)) = log 2 - y eta/2 + eta^2/8 + O(eta^4) is released as its
coefficient arrays and minimised with a ridge. The Poisson model starts at the released mean count.

Releases: column moments (optional; always for counts), the quadratic (logistic, without an offset), the Newton rounds
with growing shares, the optional histogram of the fit. Posterior, scores and intervals are free post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.regression.base import Frame, Regression, counted_units
from zerosum.algorithms.regression.functional import lowest_quadratic
from zerosum.algorithms.regression.inference import Belief, GradientRelease, believed, combined
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.polynomial import PolynomialCoefficients
from zerosum.statistics.regression import Family, NewtonStep

# All values below: chosen by hand; no benchmark recorded, unless a source is given.
# Squared clip per feature, over its mean square (_ROOM) and where only ranges are known (_RANGED). Wider than for
# linear models, because clipped features bias these models.
_ROOM, _RANGED = 1.6, 0.45
# Share of the quadratic start, relative to the shares of the Newton rounds.
_START = 0.1
# Relative shares of the Newton rounds, by their number. Later rounds are nearer to the maximum and cost more.
_NEWTON = {3: (0.2, 0.3, 0.4), 8: (0.04, 0.05, 0.07, 0.1, 0.13, 0.16, 0.17, 0.18)}
# Bias of a coefficient per share of clipped rows, in prior units: the planner's model of the cost of clipping.
_BIAS = 0.3
# Coefficient noise at which the clips of counts and rates begin to widen.
_TAILS = 0.009
# Coefficient noise below which there are eight rounds and not three.
_QUIET = 0.05
# Prior standard deviation of the change of the linear predictor by a typical change of one feature.
_PREDICTOR = 1.25
# Factor of the remainder of third order in `combined`. The trapezoidal rule gives |h''|/12 h^-1.5, about 0.15 for the
# largest |h''| = 1/8 of the logistic model and h = 1/6; rare classes have more, hence a larger value.
_BEND = 2.0
# Typical h = p (1 - p) of a logistic model, for the planner: 0.25 at p = 1/2 and 0.15 at p = 0.18.
_CURVED = 0.15
# Least ratio of prior standard deviation to coefficient noise of one Newton round for "newton"; below it the quadratic
# alone ranks better.
_WORTH = 4.5
# Mean weight of a unit that the planner assumes, since weights are data.
_GUESSED_WEIGHT = 0.5
# The prior of the score coefficients is narrower by this factor: ranking gains more from shrinkage than estimates do.
_SCORES = 4.0


class NewtonRegression(Regression):
    """Base of logistic and Poisson regression: Newton rounds that release gradient and Hessian together.

    Coefficients are posterior means. The posterior uses all releases, accounts for the noise of gradients and Hessians,
    and has a weak prior: a typical change of one feature changes the linear predictor by 1.25 in standard deviation.
    Directions without signal keep the prior and are reported as not identified, so no step can diverge.

    Results besides those of `Regression`: `score_coefficients` and `score_intercept`, from a narrower prior. They rank
    and predict better.
    """

    family: ClassVar[Family]
    rounds: Literal[3, 8] | None = None
    """Number of Newton rounds; the planner's choice if not given."""
    room: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rows are clipped where their squared length is this many times the average, by default the planner's choice."""

    @property
    def describe(self) -> str:
        bought = f"columns measured for a share of {self.standardise_share:g}, " if self._buys else ""
        return f"{bought}{self._plan}"

    @property
    def _plan(self) -> str:
        return f"{self._turns} Newton rounds"

    def _unit_noise(self, facts: PublicFacts) -> float:
        """As in `Regression`, but relative to the signal that the assumed mean weight leaves."""
        return super()._unit_noise(facts) / (_GUESSED_WEIGHT if self.weight is not None else 1.0)

    @property
    def _turns(self) -> int:
        return self.rounds or 3

    @property
    def _newton(self) -> tuple[float, ...]:
        return _NEWTON[self._turns]

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets clip, rounds and `standardise`: wider clips and more rounds with less noise."""
        width = self.features + int(self.intercept)
        noise, room = self._coefficient_noise(facts, width, _ROOM), _ROOM
        # widen until the modelled bias is below a third of the noise: clipped rows bias these models. Steps of 1.25,
        # at most 12 times the mean square: chosen by hand.
        while room < 12 and _BIAS * clipped_share(width, room) > self._coefficient_noise(facts, width, room) / 3:
            room *= 1.25
        chosen = {
            "standardise": self._standardised(facts),
            "rounds": self.rounds or (8 if noise < _QUIET else 3),
            "room": self.room or room,
        }
        return self.model_copy(update=chosen)

    def _coefficient_noise(self, facts: PublicFacts, width: int, room: float) -> float:
        """Approximate noise of a coefficient in one round of the whole budget.

        The gradient has noise 2 clip unit (sensitivity 2, clip^2 = room width), the Hessian of scaled features is about
        _CURVED, and a Newton step is their ratio.
        """
        return 2 * math.sqrt(room * width) * self._unit_noise(facts) / _CURVED

    @property
    def _rooms(self) -> tuple[float, float]:
        """Arguments `room` and `ranged` of `Regression._frame`; a feature in [-1, 1] has a square of at most 1."""
        room = self.room or _ROOM
        return room, min(1.0, _RANGED * room / _ROOM)

    def _shares(self) -> tuple[float, ...]:
        return tuple(self._left * share / math.fsum(self._newton) for share in self._newton)

    @abstractmethod
    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, rate: float) -> NewtonStep:
        """The statistic of a Newton round at coefficients `at` (width,); `rate` is the approximate mean response."""

    def _prior(self, frame: Frame) -> float:
        """Prior standard deviation of a coefficient: clip/sqrt(width) is a typical entry of a row."""
        return _PREDICTOR * math.sqrt(frame.width) / frame.clip

    def _look(self, statistic: NewtonStep, at: Floats, value: Floats, noise: float, units: float) -> GradientRelease:
        """A released sum as a `GradientRelease`: means over `units`, and the noise of a released number."""
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
        looks: list[GradientRelease],
        at: Floats,
        adjacency: Adjacency,
        shares: tuple[float, ...],
        rate: float,
    ) -> Program:
        """The Newton rounds and the results.

        Parameters
        ----------
        looks : earlier looks (of the quadratic start); the rounds append theirs.
        at : (width,), coefficients of the first round.
        shares : one per round.
        rate : approximate mean response, which sets the bounds of counts.
        """
        # the remainder in one entry of the gradient is proportional to a typical entry of a row, clip/sqrt(width)
        prior, bend = self._prior(frame), _BEND * frame.clip / math.sqrt(frame.width)
        units = 1.0
        for share in shares:
            statistic = self._step(frame, at, adjacency, rate)
            release = yield PrivateSum(statistic, share)
            units = counted_units(release)
            looks.append(self._look(statistic, at, release.value, release.noise_std, units))
            at = settled(looks, prior, bend).mean
        pooled = settled(looks, prior, bend)
        population = settled(looks, prior, bend, sampling=1 / units)
        matrix, constant = self._in_data_units(frame)
        scores = matrix @ settled(looks, prior / _SCORES, 0.0).mean + constant
        told = self._report(frame, pooled.mean, pooled, population, prior)
        told = {**told, **self._named({"score_coefficients": scores[:-1], "score_intercept": scores[-1:]})}
        return (yield from self._evaluated(frame, pooled.mean, adjacency, told))


def clipped_share(width: int, room: float) -> float:
    """Share of normal rows whose squared norm exceeds `room` times its mean, a chi-square tail with `width` degrees.

    >>> clipped_share(3, 12.0) < 1e-6 < clipped_share(3, 1.6)
    True
    """
    from scipy.special import gammaincc

    return float(gammaincc(width / 2, room * width / 2))


def settled(looks: list[GradientRelease], prior: float, bend: float, sampling: float = 0.0) -> Belief:
    """Posterior from all looks: `combined`, then `believed`."""
    return believed(combined(looks, bend), prior, sampling)


class LogisticRegressionProgram(NewtonRegression):
    """Logistic regression: the response is one of two classes, above the middle of its range or not.

    The start is the functional mechanism: the quadratic Taylor polynomial of the loss, released once as coefficient
    arrays and minimised with a ridge from the known noise. With `method` "polynomial" it takes the whole budget and no
    rounds follow. It ranks better at small budgets; its intervals come from one look at zero coefficients and leave
    most coefficients not identified. "auto" chooses it if the noise of one Newton round is more than 1/4.5 of the
    prior. The quadratic has no offset; with an offset the Newton rounds start at zero.
    """

    name: ClassVar[str] = "logistic-regression"
    family: ClassVar[Family] = "logistic"
    method: Literal["auto", "newton", "polynomial"] = "auto"
    """Newton rounds, or Taylor's quadratic of the loss alone, which ranks better where the budget is small."""

    @model_validator(mode="after")
    def _start_fits(self) -> Self:
        if self.offset is not None and self.method == "polynomial":
            raise ValueError("the method 'polynomial' knows no offset: leave it to the planner, or take 'newton'")
        return self

    def resolve(self, facts: PublicFacts) -> Self:
        width = self.features + int(self.intercept)
        # prior standard deviation over the coefficient noise of `_coefficient_noise`; the clip cancels
        known = _CURVED * _PREDICTOR / (2 * math.sqrt(width) * max(self._unit_noise(facts), 1e-300))
        method = self.method
        if method == "auto":
            method = "newton" if known > _WORTH or self.offset is not None else "polynomial"
        return super().resolve(facts).model_copy(update={"method": method})

    @property
    def _plan(self) -> str:
        if self.offset is not None:
            return super()._plan
        return "one quadratic" if self.method == "polynomial" else f"a quadratic start and {self._turns} Newton rounds"

    def _shares(self) -> tuple[float, ...]:
        """Shares of the start and of the rounds; with an offset there is no start."""
        if self.offset is not None:
            return super()._shares()
        if self.method == "polynomial":
            return (self._left,)
        return tuple(self._left * share / (_START + math.fsum(self._newton)) for share in (_START, *self._newton))

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        bounds = self._fit_bounds(frame, adjacency) | {"family": "logistic"}
        return FitHistogram(**bounds, coefficients=at, edges=np.linspace(-5, 5, 41))

    def _quadratic(self, frame: Frame, adjacency: Adjacency) -> PolynomialCoefficients:
        """The statistic of the start: Taylor's coefficients -y/2 and 1/8, each weighted to a largest norm of 1."""
        return PolynomialCoefficients(
            **self._bounds(frame, adjacency),
            table=np.array([[0.0, 0.0], [0.0, -0.5], [0.125, 0.0]]),
            weights=np.array([0.0, 2.0, 8.0]),
        )

    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, rate: float = 0.5) -> NewtonStep:
        return NewtonStep(**self._bounds(frame, adjacency), coefficients=at)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        frame = self._frame(*self._rooms)
        shares, first = self._shares(), []
        if self.offset is None:
            first, shares = [PrivateSum(self._quadratic(frame, adjacency), shares[0])], shares[1:]
        steps = [PrivateSum(self._step(frame, frame.start, adjacency), share) for share in shares]
        return (*self._bought(adjacency), *first, *steps, *self._evaluation(adjacency))

    def _constant(self, mean_response: float) -> float:
        return 0.0

    def program(self, adjacency: Adjacency) -> Program:
        frame = yield from self._measure(adjacency, *self._rooms)
        if self.offset is not None:
            return (yield from self._rounds(frame, [], frame.start, adjacency, self._shares(), 0.5))
        start, *rest = self._shares()
        statistic = self._quadratic(frame, adjacency)
        release = yield PrivateSum(statistic, start)
        units = counted_units(release)
        arrays = statistic.split(release.value)
        second = coordinates.unpack(arrays[2] / units, frame.width)
        noise = release.noise_std * statistic.worth(2) / units
        # With one release alone the ridge is twice the noise's norm, since nothing corrects it later (prototype: 2
        # sigma sqrt(D)). Before Newton rounds half of that: chosen by hand; no benchmark recorded.
        ridge = 2.0 if self.method == "polynomial" else 1.0
        at = lowest_quadratic(arrays[1] / units, second, ridge * noise * math.sqrt(frame.width))
        # the start as a release at w = 0: the log-likelihood is minus the loss, and the Hessian of w'Lw is 2 L
        first = GradientRelease(
            np.zeros(frame.width),
            -arrays[1] / units,
            2 * second,
            release.noise_std * statistic.worth(1) / units,
            2 * noise,
        )
        if self.method == "polynomial":
            matrix, constant = self._in_data_units(frame)
            scores, prior = matrix @ at + constant, self._prior(frame)
            pooled, population = settled([first], prior, 0.0), settled([first], prior, 0.0, sampling=1 / units)
            told = self._report(frame, pooled.mean, pooled, population, prior)
            told = {**told, **self._named({"score_coefficients": scores[:-1], "score_intercept": scores[-1:]})}
            return (yield from self._evaluated(frame, at, adjacency, told))
        return (yield from self._rounds(frame, [first], at, adjacency, tuple(rest), 0.5))


class PoissonRegressionProgram(NewtonRegression):
    """Poisson regression with a logarithmic link: the response is a count from 0 to the top of its range.

    The column moments are always released first, because the mean count m sets the start and the clips: residuals at
    `tails` (`residual_clip` sqrt(m) + 1) and rates at `tails` (4 m + 1). `tails` is larger than 1 where noise is small.
    Clipping biases the coefficients of counts with much more variance than the Poisson law.
    """

    name: ClassVar[str] = "poisson-regression"
    family: ClassVar[Family] = "poisson"
    residual_clip: float = Field(default=3.0, gt=0, allow_inf_nan=False)
    """Clip of residuals, in standard deviations of a Poisson count with the mean rate."""
    tails: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """Factor on the clips of residuals and rates, larger where noise is small; the planner's choice if not given."""
    standardise: Literal["auto", "dp", "none"] = "auto"

    @model_validator(mode="after")
    def _counts(self) -> Self:
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
        noise = self._coefficient_noise(facts, self.features + int(self.intercept), _ROOM)
        # exponent 0.6 and the limit 8: chosen by hand; no benchmark recorded
        wide = float(np.clip((_TAILS / max(noise, 1e-300)) ** 0.6, 1, 8))
        return super().resolve(facts).model_copy(update={"tails": self.tails or wide})

    @property
    def _wide(self) -> float:
        return self.tails or 1.0

    @property
    def _buys(self) -> bool:
        return True

    @property
    def _left(self) -> float:
        return 1 - self.standardise_share - self.evaluate_share

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        bounds = self._fit_bounds(frame, adjacency) | {"family": "poisson", "most": self._most, "bound": self._most}
        return FitHistogram(**bounds, coefficients=at, edges=np.linspace(-1, 1, 41))

    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, rate: float) -> NewtonStep:
        bounds: dict[str, Any] = self._bounds(frame, adjacency)
        return NewtonStep(
            **bounds,
            coefficients=at,
            family="poisson",
            most=self._most,
            bound=min(self._most, self._wide * (self.residual_clip * math.sqrt(rate) + 1)),
            rate_bound=min(self._most, self._wide * (4 * rate + 1)),
            curvature=_CURVATURE,
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        frame = self._frame(*self._rooms)
        steps = [PrivateSum(self._step(frame, frame.start, adjacency, 1.0), share) for share in self._shares()]
        return (*self._bought(adjacency), *steps, *self._evaluation(adjacency))

    def _rate(self, mean_response: float) -> float:
        """Mean count from a released mean in [-1, 1]; at least 1 % of the largest count, as its logarithm is used."""
        return max(self._most * (mean_response + 1) / 2, 0.01 * self._most)

    def _constant(self, mean_response: float) -> float:
        return math.log(self._rate(mean_response))

    def program(self, adjacency: Adjacency) -> Program:
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
        rate = self._rate(mean) * self._uneven(means, spreads)
        return (yield from self._rounds(frame, [], at, adjacency, self._shares(), rate))

    def _offset_spread(self, variance: Floats) -> float:
        """Standard deviation of the offset, from released variances (columns,) of the columns in [-1, 1]."""
        if (ends := self._offset_range) is None:
            return 0.0
        return (ends[1] - ends[0]) / 2 * math.sqrt(float(np.clip(variance[self.features], 0, 1)))

    def _mean_offset(self, mean: Floats, variance: Floats) -> float:
        """Logarithm of the mean exposure, log E exp(o) = E o + var(o)/2 for normal o, at most the end of the range."""
        if (ends := self._offset_range) is None:
            return 0.0
        middle = super()._mean_offset(mean, variance)
        return min(middle + self._offset_spread(variance) ** 2 / 2, ends[1])

    def _uneven(self, mean: Floats, variance: Floats) -> float:
        """Factor on the mean rate for the clips of counts, where exposures differ; at least 1.

        The factor is the exposure _EXPOSED standard deviations above the mean, over 2, because the clips already allow
        several times the mean rate. The division by 2: chosen by hand; no benchmark recorded.
        """
        if (ends := self._offset_range) is None:
            return 1.0
        above = min(_EXPOSED * self._offset_spread(variance), ends[1] - self._mean_offset(mean, variance))
        return max(1.0, math.exp(above) / 2)


# Standard deviations of the offset above its mean that clips of counts allow. Chosen by hand; no benchmark recorded.
_EXPOSED = 1.5
# Weight b of the Hessian beside a Poisson gradient. The sensitivity is sqrt(4 + b^2): a larger b makes the gradient
# noisier, a smaller one the Hessian. Chosen by hand; no benchmark recorded.
_CURVATURE = 0.7
