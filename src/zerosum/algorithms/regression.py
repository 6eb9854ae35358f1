"""Linear regression over sites, and what all regressions share."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.fit import fit_of
from zerosum.algorithms.inference import Belief, Look, believed, table, unclipped
from zerosum.algorithms.program import Estimate, Program, PublicFacts, RangedAlgorithm
from zerosum.algorithms.schedule import GUESSED_UNITS
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Kind, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.regression import SQUARE, ColumnMoments, ResidualGradient, ResidualMoment

_BLURRED = 0.2  # a column's mean and size are bought where their noise, in ranges of -1 to 1, is less than this
_SMALLEST_SCALE = 0.05  # of a column, over half its range: narrower ones are not blown up further
_SQUARES = 1 / 3  # of a value anywhere in -1 to 1
_QUIET = 0.008  # noise of the second moments, as the norm of their noise over the clip's square, that clips may ignore
_FIRST_BOUND = 0.35  # of residuals after the first round, as the response lies in -1 to 1
_BY_COEFFICIENT = frozenset(
    {
        "identified",
        *(f"{kind}_{what}" for kind in ("pooled", "population") for what in ("std", "interval_90", "interval_95")),
    }
)
_FARTHEST = 1e4  # times its range: beyond it nobody means a centre, a scale or a clip
_MATRIX_COLUMNS = 256  # up to here the features' second moments travel with every gradient


@dataclass(frozen=True, eq=False)
class Frame:
    """How features enter a statistic, all public or released: u = (normalised - center)/scale, and `intercept`."""

    center: Floats
    scale: Floats
    intercept: float
    clip: float
    start: Floats  # coefficients to begin with
    response_variance: float | None = None  # in the range of -1 to 1, where it was released

    @property
    def width(self) -> int:
        return len(self.center) + int(self.intercept > 0)


class Regression(RangedAlgorithm):
    """What linear, logistic and Poisson regression share: columns are the features, then the response.

    Ranges are public and needed. Features are centred and scaled by what is declared (`center` and `scale`, in the
    units of the data: an ordinary value of a column and an ordinary deviation from it); where nothing is declared, a
    release of every column's mean and mean square may be bought for `standardise_share` ("dp"), or ranges are all there
    is ("none"). "auto" buys it where its noise is small. `clip` bounds the norm of a row in these units.

    `evaluate_share` buys one histogram of the fit at the end: `clipped_share` of rows, and how residuals or scores lie.

    Results, the intercept last and in the units of the data: `coefficients`, `intercept`; for each of them `pooled_std`
    and `pooled_interval_90`, `_95` (about what the pooled data would give: privacy noise alone), `population_std` and
    its intervals (sampling and privacy), and `identified`, 0 where the noise of this budget leaves a coefficient open.
    """

    center: FloatArray | None = None
    scale: FloatArray | None = None
    intercept: bool = True
    standardise: Literal["auto", "dp", "none"] = "auto"
    standardise_share: float = Field(default=0.05, gt=0, lt=1)
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.lower is None or self.upper is None:
            raise ValueError("regression needs public ranges (lower and upper) of the features and the response")
        if len(self.columns) < 2 and not self.intercept:
            raise ValueError("regression needs a feature or an intercept beside the response, which comes last")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (len(self.columns) - 1,):
                raise ValueError(f"{what} must hold one number for each of the {len(self.columns) - 1} features")
        if self.scale is not None and not np.all(self.scale > 0):
            raise ValueError("every scale must be positive")
        far = np.ones(self.features) * _FARTHEST * self.half[:-1]
        if self.center is not None and np.any(np.abs(self.center - self.middle[:-1]) > far):
            raise ValueError("every center must lie near its range")
        if self.scale is not None and not np.all((self.scale <= far) & (self.scale >= far / _FARTHEST**2)):
            raise ValueError("every scale must be of the size of its range")
        if self.clip is not None and not 1 / _FARTHEST <= self.clip <= _FARTHEST:
            raise ValueError(f"the clip is in standardised units: from {1 / _FARTHEST:g} to {_FARTHEST:g}")
        return self

    @property
    def features(self) -> int:
        return len(self.columns) - 1

    @property
    def declared(self) -> bool:
        return self.center is not None or self.scale is not None

    @property
    def _left(self) -> float:
        return 1 - self.evaluate_share - (self.standardise_share if self.standardise == "dp" else 0.0)

    def _standardised(self, facts: PublicFacts) -> Literal["dp", "none"]:
        if self.standardise != "auto":
            return self.standardise
        noise = 2 * math.sqrt(len(self.columns) / self.standardise_share) * self._unit_noise(facts)
        return "dp" if not self.declared and noise < _BLURRED else "none"

    @staticmethod
    def _unit_noise(facts: PublicFacts) -> float:
        """The noise of a mean of sensitivity 1 that took the whole budget."""
        return facts.noise / (facts.units or GUESSED_UNITS)

    # ---- requests --------------------------------------------------------------------------------------------------

    def _bounds(self, frame: Frame, adjacency: Adjacency) -> dict[str, Any]:
        return {
            "columns": len(self.columns),
            "lower": self.lower,
            "upper": self.upper,
            "center": frame.center,
            "scale": frame.scale,
            "intercept": frame.intercept,
            "clip": frame.clip,
            "count": adjacency is Adjacency.ADD_REMOVE,
            **self.filling,
        }

    def _columns(self, adjacency: Adjacency) -> ColumnMoments:
        count = adjacency is Adjacency.ADD_REMOVE
        ranges = {"lower": self.lower, "upper": self.upper, **self.filling}
        return ColumnMoments(columns=len(self.columns), count=count, **ranges)

    # ---- frames ----------------------------------------------------------------------------------------------------

    def _frame(self, room: float, ranged: float) -> Frame:
        """From what is declared. Rows are clipped at `room` times the square of an ordinary row, or, where only ranges
        are known, at `ranged` for each feature."""
        center, scale = np.zeros(self.features), np.ones(self.features)
        each = ranged
        if self.declared:
            each = room
            if self.center is not None:
                center = (self.center - self.middle[:-1]) / self.half[:-1]
            if self.scale is not None:
                scale = self.scale / self.half[:-1]
        return self._framed(center, scale, each * self.features, np.zeros(self.features + int(self.intercept)))

    def _framed(self, center: Floats, scale: Floats, squares: float, start: Floats) -> Frame:
        constant = math.sqrt(max(1.0, 0.1 * squares)) if np.any(scale != 1) else 1.0
        constant = constant if self.intercept else 0.0
        if self.intercept:
            start = np.append(start[:-1], start[-1] / constant)
        clip = self.clip if self.clip is not None else math.sqrt(max(squares, 1e-6) + constant**2)
        return Frame(center, scale, constant, clip, start)

    def _measured_frame(self, release: Release, statistic: ColumnMoments, units: float, room: float) -> Frame:
        """From a release of the columns' means and mean squares. Columns are scaled half way from their common size to
        their own, since a narrow one may say less, not more."""
        sums, squares = statistic.split(release.value)
        noise = release.noise_std * math.sqrt(len(self.columns)) / units
        mean = np.clip(sums / units, -1, 1)
        mean[:-1] = shrunk(mean[:-1], 0.0, noise)
        variance = (squares / units - mean**2)[:-1]
        variance = shrunk(variance, float(np.mean(variance)), noise / SQUARE) if self.features else variance
        variance = np.maximum(variance, max(_SMALLEST_SCALE**2, noise / SQUARE))
        size = np.sqrt(variance)
        scale = np.sqrt(size * math.sqrt(float(np.mean(variance)))) if len(size) else size
        begin = np.zeros(self.features + int(self.intercept))
        if self.intercept:
            begin[-1] = self._constant(float(mean[-1]))
        frame = self._framed(mean[:-1], scale, room * float(np.sum(variance / scale**2)), begin)
        spread = float(squares[-1] / units - mean[-1] ** 2)
        return replace(frame, response_variance=spread if spread > 2 * noise / SQUARE else None)

    def _constant(self, mean_response: float) -> float:
        """The linear predictor that fits a mean response of -1 to 1."""
        return mean_response

    def _measure(self, adjacency: Adjacency, room: float, ranged: float) -> Generator[Request, Release, Frame]:
        if self.standardise != "dp":
            return self._frame(room, ranged)
        statistic = self._columns(adjacency)
        release = yield PrivateSum(statistic, self.standardise_share)
        return self._measured_frame(release, statistic, counted_units(release), room)

    # ---- how well it fits ------------------------------------------------------------------------------------------

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency) -> FitHistogram:
        return FitHistogram(**self._bounds(frame, adjacency), coefficients=at, edges=np.linspace(-1, 1, 21))

    def _evaluation(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The template of the last release, where one was asked for."""
        if not self.evaluate_share:
            return ()
        frame = self._frame(1.0, 1.0)
        return (PrivateSum(self._fit_statistic(frame, frame.start, adjacency), self.evaluate_share),)

    def _evaluated(
        self, frame: Frame, at: Floats, adjacency: Adjacency, told: Estimate
    ) -> Generator[Request, Release, Estimate]:
        """The estimate with what a last release says of its fit, of the same units."""
        if not self.evaluate_share:
            return told
        statistic = self._fit_statistic(frame, at, adjacency)
        release = yield PrivateSum(statistic, self.evaluate_share)
        return {**told, **fit_of(statistic, release)}

    # ---- results ---------------------------------------------------------------------------------------------------

    def _in_data_units(self, frame: Frame) -> tuple[Floats, Floats]:
        """The linear map (matrix and constant) from coefficients in the frame to those of the data."""
        features = self.features
        worth = self._response_half / (frame.scale * self.half[:-1])
        matrix = np.zeros((features + 1, frame.width))
        matrix[:features, :features] = np.diag(worth)
        matrix[features, :features] = -worth * (self.middle[:-1] + self.half[:-1] * frame.center)
        if self.intercept:
            matrix[features, features] = self._response_half * frame.intercept
        constant = np.zeros(features + 1)
        constant[features] = self._response_middle
        return matrix, constant

    @property
    def _response_half(self) -> float:
        return 1.0

    @property
    def _response_middle(self) -> float:
        return 0.0

    def _report(self, frame: Frame, mean: Floats, pooled: Belief, population: Belief, prior: float) -> Estimate:
        matrix, constant = self._in_data_units(frame)
        found = matrix @ mean + constant
        known = prior * np.sqrt(np.sum(matrix**2, axis=1))
        told = table(found, matrix @ pooled.covariance @ matrix.T, matrix @ population.covariance @ matrix.T, known)
        return self._named({"coefficients": found[:-1], "intercept": found[-1:], **told})

    def _named(self, found: dict[str, Floats]) -> Estimate:
        """Estimates with the names of their coefficients, the intercept last, and the noise that privacy adds."""
        every = (*self.columns[:-1], "intercept")
        std = found.get("pooled_std")
        named: dict[str, Quantity] = {}
        for name, value in found.items():
            kind: Kind = "coefficient" if name.endswith(("coefficients", "intercept")) else "diagnostic"
            if name.endswith("coefficients"):
                axes: tuple[Axis, ...] = (Axis("coefficient", every[:-1]),)
            elif name.endswith("intercept"):
                axes = (Axis("coefficient", every[-1:]),)
            elif value.shape[0] == len(every) and name in _BY_COEFFICIENT:
                axes = (Axis("coefficient", every), Axis("end", ("lower", "upper")))[: value.ndim]
            else:
                axes = ()
            own = {"coefficients": slice(0, -1), "intercept": slice(-1, None)}.get(name)
            named[name] = Quantity(value, kind, axes, None if std is None or own is None else std[own])
        return named


def shrunk(values: Floats, towards: float, noise: float) -> Floats:
    """Values drawn towards a common one as far as their spread about it is noise (James and Stein).

    >>> shrunk(np.array([1.0, 3.0]), 2.0, 10.0).tolist()
    [2.0, 2.0]
    """
    spread = float(np.mean((values - towards) ** 2)) if len(values) else 0.0
    kept = max(0.0, 1 - noise**2 / spread) if spread > 0 else 0.0
    return np.asarray(towards + kept * (values - towards))


def counted_units(release: Release) -> float:
    """The number of units: public, or the last entry of what was released."""
    return release.units if release.units is not None else max(float(release.value[-1]), 1.0)


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
    rounds: int | None = Field(default=None, gt=1, le=1000)
    residual_clip: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    room: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    learning_rate: float | None = Field(default=None, gt=0, le=2)
    burn_in: int | None = Field(default=None, ge=0)  # rounds that the final average leaves out

    @property
    def describe(self) -> str:
        bought = f"columns standardised for a share of {self.standardise_share:g}, " if self.standardise == "dp" else ""
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
        bought = (PrivateSum(self._columns(adjacency), self.standardise_share),) if self.standardise == "dp" else ()
        kind = self._gradient if self.method == "gradient" else self._moment
        each = PrivateSum(kind(frame, frame.start, 1.0, adjacency), self._share)
        return (*bought, *[each] * (self.rounds or _ROUNDS), *self._evaluation(adjacency))

    def program(self, adjacency: Adjacency) -> Program:
        frame = yield from self._measure(adjacency, self.room or 0.8, _SQUARES)
        if self.method == "gradient":
            return (yield from self._descend(frame, adjacency))
        return (yield from self._newton(frame, adjacency))

    def _next_bound(self, bound: float, first: bool, mean_square: float, noise: float) -> float:
        """Never wider, and never less than half: `residual_clip` times the released size, the noise on top."""
        if first:
            return min(bound, _FIRST_BOUND)
        size = math.sqrt(max(mean_square + noise, 1e-6))
        return float(np.clip((self.residual_clip or 1.5) * size, bound / 2, bound))

    def _newton(self, frame: Frame, adjacency: Adjacency) -> Program:
        rounds, width = self.rounds or _ROUNDS, frame.width
        at, bound = frame.start, 1.0
        moments, looks, weights = np.zeros((width, width)), [], []
        residual, used, slope, units = 1.0, 1.0, 1.0, 1.0
        for turn in range(rounds):
            statistic = self._moment(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            second, gradient, squares = (part / units for part in statistic.split(release.value))
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
            bound = self._next_bound(bound, turn == 0, float(squares), b**2 * noise)
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
        at, speed, bound = frame.start, np.zeros(frame.width), 1.0
        residual, used, units, noise = 1.0, 1.0, 1.0, 0.0
        for turn in range(rounds):
            statistic = self._gradient(frame, at, bound, adjacency)
            release = yield PrivateSum(statistic, self._share)
            units = counted_units(release)
            gradient, squares = statistic.split(release.value)
            noise, residual, used = release.noise_std / units, squares / units, bound
            speed = _MOMENTUM * speed + gradient / units
            at = at + rate / frame.clip**2 * speed
            bound = self._next_bound(bound, turn == 0, residual, bound**2 * noise / SQUARE)
        # no Hessian was released: every direction is open but for the prior
        blank = np.zeros((frame.width, frame.width))
        look = Look(at, np.zeros(frame.width), blank, max(frame.clip * used * noise, 1e-12), frame.clip**2)
        told = self._finish(frame, at, look, residual, used, 1.0, units)
        return (yield from self._evaluated(frame, at, adjacency, told))


_ROUNDS = 24
_MOMENTUM = 0.7


def _floored(values: Floats, damping: float) -> Floats:
    """Eigenvalues that can be divided by: negative ones are noise, and all are raised by its size."""
    return np.maximum(values, 0.0) + max(damping, 1e-9 * max(float(np.max(np.abs(values))), 1e-12))
