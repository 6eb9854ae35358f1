"""Linear regression over sites: rounds of the joint moment of features and residuals, or of the gradient alone.

Tested in tests/algorithms/test_regression.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from zerosum.algorithms.inference import Look, believed, unclipped
from zerosum.algorithms.program import Estimate, Program, PublicFacts
from zerosum.algorithms.regression import Frame, Regression, counted_units
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.regression import SQUARE, ResidualGradient, ResidualMoment

_SQUARES = 1 / 3  # of a value anywhere in -1 to 1
_QUIET = 0.008  # noise of the second moments, as the norm of their noise over the clip's square, that clips may ignore
_FIRST_BOUND = 0.35  # of residuals after the first round, as the response lies in -1 to 1
_MATRIX_COLUMNS = 256  # up to here the features' second moments travel with every gradient
_ROUNDS = 24
_MOMENTUM = 0.7


class LinearRegression(Regression):
    """Least squares in a fixed number of rounds, each a release of its own at the current coefficients.

    With "moment" a round releases the joint second moment of features and residuals: the gradient costs what it costs
    alone, and the features' moments come with it, so that all rounds together know them as well as one release of the
    whole budget would. A round takes a Newton step damped by the known noise of these moments, and directions that
    drown in it are still followed slowly, as by gradient descent. The result is one last step from the average of the
    later rounds. With "gradient" (many columns, or moments that are all noise) rounds release the gradient and the
    residuals' size, and steps have momentum. In both the bound of the residuals follows their released size:
    it begins at 1, where the response lies in -1 to 1, and noise shrinks with it.

    Results beside those of `Regression`: `residual_std`, in the units of the response, and where the response's
    variance was bought with the columns' (`standardise`), `r_squared`.
    """

    name: ClassVar[str] = "linear-regression"
    method: Literal["auto", "moment", "gradient"] = "auto"
    """What a round releases: joint second moments, or the gradient."""
    rounds: int | None = Field(default=None, gt=1, le=1000)
    """How many, by default the planner's choice."""
    residual_clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Residuals are bounded at so many of their standard deviations, by default the planner's choice."""
    room: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Rows are clipped where their squared length is this many times the average, by default the planner's choice."""
    learning_rate: float | None = Field(default=None, gt=0, le=2)
    """The length of a step of `gradient`, by default the planner's choice."""
    burn_in: int | None = Field(default=None, ge=0)
    """Rounds that the final average leaves out."""

    @property
    def describe(self) -> str:
        measured = "standardised" if self.standardise == "dp" else "measured"
        bought = f"columns {measured} for a share of {self.standardise_share:g}, " if self._buys else ""
        return f"{bought}{self.rounds or _ROUNDS} {self.method} rounds"

    def resolve(self, facts: PublicFacts) -> Self:
        unit = self._unit_noise(facts)
        width = self.features + int(self.intercept)
        blur = 2 * math.sqrt(2) * unit * math.sqrt(2 * width)  # of second moments, over the clip's square
        method = self.method
        if method == "auto":
            method = "moment" if width <= _MATRIX_COLUMNS and blur < 1 else "gradient"
        quiet = math.sqrt(_QUIET / max(blur, 1e-12))
        rounds, rate = self.rounds, self.learning_rate
        if method == "gradient":
            # what noise does depends on the learning time alone, in units of 1/clip^2: longer where there is less
            time = 0.17 / (2 * 0.3 * max(unit, 1e-12)) * (1 - _MOMENTUM)
            rounds = rounds or int(np.clip(math.ceil(time / 2), 12, 100))
            rate = rate or float(min(2.0, time / rounds))
        chosen = {
            "standardise": self._standardised(facts),
            "method": method,
            "rounds": rounds or _ROUNDS,
            "learning_rate": rate,
            "residual_clip": self.residual_clip or float(np.clip(1.5 * quiet**1.5, 1.5, 5.0)),
            "room": self.room or float(np.clip(0.8 * quiet**1.5, 0.8, 2.5)),
            "burn_in": self.burn_in if self.burn_in is not None else (1 if quiet > 1 else (rounds or _ROUNDS) // 3),
        }
        return self.model_copy(update=chosen)

    @property
    def _as_it_is(self) -> bool:
        return True

    @property
    def _response_half(self) -> float:
        return float(self.half[-1])

    @property
    def _response_middle(self) -> float:
        return float(self.middle[-1])

    def _moment(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ResidualMoment:
        return ResidualMoment(**self._bounds(frame, adjacency), coefficients=at, bound=bound)

    def _gradient(self, frame: Frame, at: Floats, bound: float, adjacency: Adjacency) -> ResidualGradient:
        return ResidualGradient(**self._bounds(frame, adjacency), coefficients=at, bound=bound)

    @property
    def _share(self) -> float:
        return self._left / (self.rounds or _ROUNDS)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        frame = self._frame(self.room or 0.8, _SQUARES)
        kind = self._gradient if self.method == "gradient" else self._moment
        each = PrivateSum(kind(frame, frame.start, 1.0, adjacency), self._share)
        return (*self._bought(adjacency), *[each] * (self.rounds or _ROUNDS), *self._evaluation(adjacency))

    def program(self, adjacency: Adjacency) -> Program:
        frame = yield from self._measure(adjacency, self.room or 0.8, _SQUARES)
        if self.method == "gradient":
            return (yield from self._descend(frame, adjacency))
        return (yield from self._newton(frame, adjacency))

    @property
    def _widest(self) -> float:
        """The largest residual before any round: of the response in -1 to 1, less the offset."""
        return 1.0 + max((abs(end) for end in self._offset_range or ()), default=0.0)

    def _next_bound(self, bound: float, first: bool, mean_square: float, noise: float) -> float:
        """Never wider, and never less than half: `residual_clip` times the released size, the noise on top."""
        if first:
            return min(bound, _FIRST_BOUND * self._widest)
        size = math.sqrt(max(mean_square + noise, 1e-6))
        return float(np.clip((self.residual_clip or 1.5) * size, bound / 2, bound))

    def _newton(self, frame: Frame, adjacency: Adjacency) -> Program:
        rounds, width = self.rounds or _ROUNDS, frame.width
        at, bound = frame.start, self._widest
        moments, looks, weights = np.zeros((width, width)), [], []
        residual, used, slope, units = 1.0, 1.0, 1.0, 1.0
        for turn in range(rounds):
            statistic = self._moment(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            second, gradient, squares = (part / units for part in statistic.split(release.value))
            squares = squares / frame.weight
            c, b = statistic.scales
            noise = release.noise_std / units
            moments = moments + second
            entry_noise = c**2 * noise / math.sqrt(turn + 1)
            values, vectors = np.linalg.eigh(moments / (turn + 1))
            damping = entry_noise * math.sqrt(width)
            if turn >= min(self.burn_in if self.burn_in is not None else rounds // 3, rounds - 1):
                looks.append((at, np.asarray(gradient)))
                weights.append(bound**-2)
                residual, used = float(squares), bound
            step_noise = c * b * noise / math.sqrt(2)
            at = at + vectors @ ((vectors.T @ gradient) / _floored(values, damping))
            bound = self._next_bound(bound, turn == 0, float(squares), b**2 * noise / frame.weight)
        share = np.array(weights) / np.sum(weights)
        # noise is proportional to the bound, and weights to its inverse square
        mean_noise = step_noise / used * math.sqrt(1 / float(np.sum(weights)))
        average = np.asarray(sum(w * point for w, (point, _) in zip(share, looks, strict=True)))
        gradient = np.asarray(sum(w * g for w, (_, g) in zip(share, looks, strict=True)))
        slope = unclipped(max(residual, 0.0), used)
        step = vectors @ ((vectors.T @ gradient) / _floored(values, damping / 2))
        found = average + step
        look = Look(average, gradient, moments / rounds, mean_noise, entry_noise)
        told = self._finish(frame, found, look, residual, used, slope, units)
        return (yield from self._evaluated(frame, found, adjacency, told))

    def _finish(
        self, frame: Frame, found: Floats, look: Look, residual: float, bound: float, slope: float, units: float
    ) -> Estimate:
        prior = math.sqrt(frame.width) / frame.clip
        dispersion = float(np.clip(residual, 1e-6, bound**2))
        pooled = believed(look, prior, slope=slope)
        population = believed(look, prior, sampling=dispersion / units, slope=slope)
        told = self._report(frame, found, pooled, population, prior)
        extra = {"residual_std": Quantity(np.array([self._response_half * math.sqrt(dispersion)]), "diagnostic")}
        if frame.response_variance is not None:
            explained = np.array([1 - dispersion / frame.response_variance])
            extra["r_squared"] = Quantity(np.clip(explained, 0, 1), "diagnostic")
        return {**told, **extra}

    def _descend(self, frame: Frame, adjacency: Adjacency) -> Program:
        """Gradient descent with momentum. Nothing is known of the Hessian but that it is at most the clip's square."""
        rounds, rate = self.rounds or _ROUNDS, self.learning_rate or 1.0
        at, speed, bound = frame.start, np.zeros(frame.width), self._widest
        residual, used, units, noise = 1.0, 1.0, 1.0, 0.0
        for turn in range(rounds):
            statistic = self._gradient(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            gradient, squares = statistic.split(release.value)
            noise, residual, used = release.noise_std / units, squares / (units * frame.weight), bound
            speed = _MOMENTUM * speed + gradient / units
            at = at + rate / frame.clip**2 * speed
            bound = self._next_bound(bound, turn == 0, residual, bound**2 * noise / (SQUARE * frame.weight))
        # no Hessian was released: every direction is open but for the prior
        blank = np.zeros((frame.width, frame.width))
        look = Look(at, np.zeros(frame.width), blank, max(frame.clip * used * noise, 1e-12), frame.clip**2)
        told = self._finish(frame, at, look, residual, used, 1.0, units)
        return (yield from self._evaluated(frame, at, adjacency, told))


def _floored(values: Floats, damping: float) -> Floats:
    """Eigenvalues that can be divided by: negative ones are noise, and all are raised by its size."""
    return np.maximum(values, 0.0) + max(damping, 1e-9 * max(float(np.max(np.abs(values))), 1e-12))
