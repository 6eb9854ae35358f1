"""Logistic and Poisson regression over sites: a rough start, then Newton rounds.

Tested in tests/algorithms/test_regression.py.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.functional import lowest_quadratic
from zerosum.algorithms.inference import Belief, Look, believed, combined
from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.regression import Frame, Regression, counted_units
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.polynomial import PolynomialCoefficients
from zerosum.statistics.regression import Family, NewtonStep

_ROOM, _RANGED = 1.6, 0.45  # of a row's squared norm that is not clipped: clipped features bias these models
_START = 0.1  # share of the start
_NEWTON = {3: (0.2, 0.3, 0.4), 8: (0.04, 0.05, 0.07, 0.1, 0.13, 0.16, 0.17, 0.18)}  # shares beside the start's
_BIAS = 0.3  # of a coefficient, for every row that is clipped
_TAILS = 0.009  # such noise lets residuals and rates of counts be as wide as they are
_QUIET = 0.05  # noise of a coefficient, over an ordinary one, below which there are eight rounds
_PREDICTOR = 1.25  # standard deviation of what one ordinary feature does to the linear predictor, before any data
_BEND = 2.0  # what third derivatives leave out: |h''|/12 (1/h)^1.5 is 0.16 at h = 1/6, and more for rare classes
_CURVED = 0.15  # of a logistic Hessian, over the features' second moments
_WORTH = 4.5  # times the prior's deviation over what is left of it: less, and one quadratic ranks better
_GUESSED_WEIGHT = 0.5  # of a unit on average, before any data
_SCORES = 4.0  # times narrower for scores, which gain more from shrinking than coefficients do


class NewtonRegression(Regression):
    """Newton rounds whose releases hold gradient and Hessian at once, and all of which count in the end.

    Coefficients are means of a normal law that knows the noise of gradient and Hessian and begins with a weak prior:
    an ordinary change of one feature changes the linear predictor by 1.25 in standard deviation. Directions without
    signal fall back to it, are reported as not identified, and nothing diverges.

    Results beside those of `Regression`: `score_coefficients`, of a narrower prior: they rank and predict better.
    """

    family: ClassVar[Family]
    rounds: Literal[3, 8] | None = None
    """Newton rounds, by default the planner's choice."""
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
        """What weights leave of the signal counts here: rounds that are all noise lead nowhere."""
        return super()._unit_noise(facts) / (_GUESSED_WEIGHT if self.weight is not None else 1.0)

    @property
    def _turns(self) -> int:
        return self.rounds or 3

    @property
    def _newton(self) -> tuple[float, ...]:
        return _NEWTON[self._turns]

    def resolve(self, facts: PublicFacts) -> Self:
        """Clips are as wide, and rounds as many, as the noise makes worth while: clipped rows bias these models, and
        steep ones take more steps."""
        width = self.features + int(self.intercept)
        noise, room = self._coefficient_noise(facts, width, _ROOM), _ROOM
        while room < 12 and _BIAS * clipped_share(width, room) > self._coefficient_noise(facts, width, room) / 3:
            room *= 1.25
        chosen = {
            "standardise": self._standardised(facts),
            "rounds": self.rounds or (8 if noise < _QUIET else 3),
            "room": self.room or room,
        }
        return self.model_copy(update=chosen)

    def _coefficient_noise(self, facts: PublicFacts, width: int, room: float) -> float:
        """About the noise of a coefficient of ordinary features, in one round of the whole budget."""
        return 2 * math.sqrt(room * width) * self._unit_noise(facts) / _CURVED

    @property
    def _rooms(self) -> tuple[float, float]:
        """Of a row's squared norm that is not clipped: over an ordinary one, and by feature where ranges are all there
        is, which end at 1."""
        room = self.room or _ROOM
        return room, min(1.0, _RANGED * room / _ROOM)

    def _shares(self) -> tuple[float, ...]:
        return tuple(self._left * share / math.fsum(self._newton) for share in self._newton)

    @abstractmethod
    def _step(self, frame: Frame, at: Floats, adjacency: Adjacency, rate: float) -> NewtonStep:
        """What a Newton round releases, where the mean response is about `rate`."""

    def _prior(self, frame: Frame) -> float:
        return _PREDICTOR * math.sqrt(frame.width) / frame.clip

    def _look(self, statistic: NewtonStep, at: Floats, value: Floats, noise: float, units: float) -> Look:
        gradient, hessian = statistic.split(value)
        return Look(
            at,
            gradient / units,
            hessian / units,
            statistic.clip * statistic.bound * noise / units,
            statistic.hessian_scale * noise / units,
        )

    def _rounds(
        self, frame: Frame, looks: list[Look], at: Floats, adjacency: Adjacency, shares: tuple[float, ...], rate: float
    ) -> Program:
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
    """How many normal rows are longer than `room` times their mean square.

    >>> clipped_share(3, 12.0) < 1e-6 < clipped_share(3, 1.6)
    True
    """
    from scipy.special import gammaincc

    return float(gammaincc(width / 2, room * width / 2))


def settled(looks: list[Look], prior: float, bend: float, sampling: float = 0.0) -> Belief:
    """What all looks say together."""
    return believed(combined(looks, bend), prior, sampling)


class LogisticRegression(NewtonRegression):
    """Logistic regression: the response is one of two classes, above the middle of its range or not.

    The start is the functional mechanism's: Taylor's quadratic of the loss, released once as coefficients and minimised
    with a ridge from the known noise. With `method` "polynomial" that is all, at the whole budget: it ranks better
    where the budget is small, and its intervals are those of one look at zero, which leaves most coefficients open.
    "auto" takes it where one Newton round would know less than a few times what the prior does. With an offset, which
    the quadratic does not know, Newton rounds begin at once.
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
        """Of the start, then of the rounds; with an offset there is no start."""
        if self.offset is not None:
            return super()._shares()
        if self.method == "polynomial":
            return (self._left,)
        return tuple(self._left * share / (_START + math.fsum(self._newton)) for share in (_START, *self._newton))

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        bounds = self._fit_bounds(frame, adjacency) | {"family": "logistic"}
        return FitHistogram(**bounds, coefficients=at, edges=np.linspace(-5, 5, 41))

    def _quadratic(self, frame: Frame, adjacency: Adjacency) -> PolynomialCoefficients:
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
        ridge = 2.0 if self.method == "polynomial" else 1.0
        at = lowest_quadratic(arrays[1] / units, second, ridge * noise * math.sqrt(frame.width))
        first = Look(
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


class PoissonRegression(NewtonRegression):
    """Poisson regression with a logarithmic link: the response is a count from 0 to the top of its range.

    A release of the columns' means comes first, since the mean count sets where rounds begin and how residuals are
    clipped: at `residual_clip` standard deviations of a count of that mean, and rates at four times it, both `tails`
    times wider where noise leaves room. Counts that spread much more than Poisson's law are biased by that.
    """

    name: ClassVar[str] = "poisson-regression"
    family: ClassVar[Family] = "poisson"
    residual_clip: float = Field(default=3.0, gt=0, allow_inf_nan=False)
    """Residuals are clipped at so many standard deviations of a count of the mean."""
    tails: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    """How many times wider residuals and rates may go where noise leaves room, by default the planner's choice."""
    standardise: Literal["auto", "dp", "none"] = "auto"

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if self.lower is not None and self.lower[-1] != 0:
            raise ValueError("the range of a count must begin at 0")
        return self

    @property
    def _most(self) -> float:
        return 2 * float(self.half[-1])

    def resolve(self, facts: PublicFacts) -> Self:
        noise = self._coefficient_noise(facts, self.features + int(self.intercept), _ROOM)
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
        if self.standardise != "dp":
            frame = self._frame(*self._rooms)
            at = frame.start
            if self.intercept:
                begin = self._constant(mean) - self._mean_offset(means, spreads)
                at = np.append(at[:-1], begin / frame.intercept)
        rate = self._rate(mean) * self._uneven(means, spreads)
        return (yield from self._rounds(frame, [], at, adjacency, self._shares(), rate))

    def _offset_spread(self, variance: Floats) -> float:
        """The standard deviation of the offset."""
        if (ends := self._offset_range) is None:
            return 0.0
        return (ends[1] - ends[0]) / 2 * math.sqrt(float(np.clip(variance[self.features], 0, 1)))

    def _mean_offset(self, mean: Floats, variance: Floats) -> float:
        """The logarithm of the mean exposure, as for normal logarithms, but within the range of the offset."""
        if (ends := self._offset_range) is None:
            return 0.0
        middle = super()._mean_offset(mean, variance)
        return min(middle + self._offset_spread(variance) ** 2 / 2, ends[1])

    def _uneven(self, mean: Floats, variance: Floats) -> float:
        """How many times the mean rate bounds make room for, where exposures differ more than rates do anyway."""
        if (ends := self._offset_range) is None:
            return 1.0
        above = min(_EXPOSED * self._offset_spread(variance), ends[1] - self._mean_offset(mean, variance))
        return max(1.0, math.exp(above) / 2)


_EXPOSED = 1.5  # standard deviations of the offset above the mean that clips of counts make room for
_CURVATURE = 0.7  # of the Hessian beside a Poisson gradient: more of it makes both noisier
