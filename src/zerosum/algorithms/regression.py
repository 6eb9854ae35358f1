"""What all regressions over sites share: how columns enter, what is bought about them, and how results are told.

Tested in tests/algorithms/test_regression.py.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.fit import fit_of, spread_of
from zerosum.algorithms.inference import Belief, table
from zerosum.algorithms.program import Estimate, PublicFacts, RangedAlgorithm
from zerosum.algorithms.schedule import GUESSED_UNITS
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Kind, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.regression import SQUARE, ColumnMoments

_BLURRED = 0.2  # a column's mean and size are bought where their noise, in ranges of -1 to 1, is less than this
_SMALLEST_SCALE = 0.05  # of a column, over half its range: narrower ones are not blown up further
_BY_COEFFICIENT = frozenset(
    {
        "identified",
        *(f"{kind}_{what}" for kind in ("pooled", "population") for what in ("std", "interval_90", "interval_95")),
    }
)
_FARTHEST = 1e4  # times its range: beyond it nobody means a centre, a scale or a clip
_HIGHEST_OFFSET = 1e4
_LEAST_WEIGHT = 0.02  # on average: less is noise
_RESIDUALS = 5.0  # standard deviations of residuals that a histogram of them spans


@dataclass(frozen=True, eq=False)
class Frame:
    """How features enter a statistic, all public or released: u = (normalised - center)/scale, and `intercept`."""

    center: Floats
    scale: Floats
    intercept: float
    clip: float
    start: Floats  # coefficients to begin with
    response_variance: float | None = None  # in the range of -1 to 1, where it was released
    weight: float = 1.0  # what a unit weighs on average, where units have weights or some are held out

    @property
    def width(self) -> int:
        return len(self.center) + int(self.intercept > 0)


class Regression(RangedAlgorithm):
    """What linear, logistic and Poisson regression share: columns are the features, then the response.

    Before the response stand, in this order, the columns that are named as `offset`, `weight` and `draw`, if any. An
    offset is added to the linear predictor as it is (of counts, the logarithm of the exposure). A weight, in a range
    that begins at 0, says how much a row counts, in parts of the range's end. Draws are numbers in 0 to 1, one for each
    unit and the same in all its rows, by which `hold_out` leaves a share of the units out of the fit.

    Ranges are public and needed. Features are centred and scaled by what is declared (`center` and `scale`, in the
    units of the data: an ordinary value of a column and an ordinary deviation from it); where nothing is declared, a
    release of every column's mean and mean square may be bought for `standardise_share` ("dp"), or ranges are all there
    is ("none"). "auto" buys it where its noise is small. `clip` bounds the norm of a row in these units.

    `evaluate_share` buys one histogram of the fit at the end: `clipped_share` of rows, and how residuals or scores lie;
    of the units that were held out, where some were, and then called `held_out_`. Every round is charged to all units.
    With weights the columns' means are always bought, for the mean weight. `measured_in` has the unit of measurement of
    columns that have one, for the table of coefficients.

    Results, the intercept last and in the units of the data: `coefficients`, `intercept`; for each of them `pooled_std`
    and `pooled_interval_90`, `_95` (about what the pooled data would give: privacy noise alone), `population_std` and
    its intervals (sampling and privacy), and `identified`, 0 where the noise of this budget leaves a coefficient open.
    """

    center: FloatArray | None = None
    """An ordinary value of each feature, where that is public knowledge."""
    scale: FloatArray | None = None
    """An ordinary deviation of each feature from it."""
    intercept: bool = True
    """Whether there is a constant."""
    standardise: Literal["auto", "dp", "none"] = "auto"
    """How features are brought to one size: `dp` buys their means and sizes, `none` takes ranges or `center` and
    `scale`, `auto` chooses."""
    standardise_share: float = Field(default=0.05, gt=0, lt=1)
    """What buying them costs, as a share of the budget."""
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)
    """What the histogram that says how well the model fits costs; 0: none is bought."""
    offset: str | None = None
    """A column, before the response, that is added to the linear predictor as it is."""
    weight: str | None = None
    """A column, before the response, that says how much a row counts."""
    draw: str | None = None
    """A column, before the response, that says who is held out; a `[design]` makes it."""
    hold_out: float = Field(default=0.0, ge=0, le=0.5)
    """The share of units that are left out of the fit, to evaluate it on."""
    measured_in: dict[str, str] = Field(default_factory=dict)
    """The unit of measurement of columns, for the table of coefficients."""

    @model_validator(mode="after")
    def _roles_fit(self) -> Self:
        if strangers := [name for name in self.measured_in if name not in self.columns]:
            raise ValueError(f"measured_in has {strangers[0]!r}, which is not one of the columns")
        named = self._roles
        if named != self.columns[self.features : -1]:
            raise ValueError("the offset, the weight and the draw must stand in this order before the response")
        if self.lower is None or self.upper is None:
            raise ValueError("regression needs public ranges (lower and upper) of the features and the response")
        low, high = self.lower[self.features : -1], self.upper[self.features : -1]
        if self.weight is not None and (low[named.index(self.weight)] != 0 or high[named.index(self.weight)] <= 0):
            raise ValueError("the range of a weight must begin at 0: weights are in parts of its end")
        if self.draw is not None and (low[-1], high[-1]) != (0, 1):
            raise ValueError("draws are in 0 to 1")
        if self.offset is not None and not max(abs(low[0]), abs(high[0])) <= _HIGHEST_OFFSET:
            raise ValueError(f"an offset must be within {_HIGHEST_OFFSET:g}")
        if bool(self.hold_out) != (self.draw is not None) or bool(self.hold_out) > bool(self.evaluate_share):
            raise ValueError("units are held out by a draw, for an evaluation: give hold_out, draw and evaluate_share")
        return self

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.features < 1 and not self.intercept:
            raise ValueError("regression needs a feature or an intercept beside the response, which comes last")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(f"{what} must hold one number for each of the {self.features} features")
        if self.scale is not None and not np.all(self.scale > 0):
            raise ValueError("every scale must be positive")
        middle, half = self._own(self.middle), self._own(self.half)
        far = np.ones(self.features) * _FARTHEST * half
        if self.center is not None and np.any(np.abs(self.center - middle) > far):
            raise ValueError("every center must lie near its range")
        if self.scale is not None and not np.all((self.scale <= far) & (self.scale >= far / _FARTHEST**2)):
            raise ValueError("every scale must be of the size of its range")
        if self.clip is not None and not 1 / _FARTHEST <= self.clip <= _FARTHEST:
            raise ValueError(f"the clip is in standardised units: from {1 / _FARTHEST:g} to {_FARTHEST:g}")
        return self

    @property
    def _roles(self) -> tuple[str, ...]:
        """The columns between the features and the response."""
        return tuple(name for name in (self.offset, self.weight, self.draw) if name is not None)

    @property
    def features(self) -> int:
        return len(self.columns) - 1 - len(self._roles)

    def _own(self, by_column: Floats) -> Floats:
        """Of numbers by column those of the features."""
        return by_column[: self.features]

    @property
    def declared(self) -> bool:
        return self.center is not None or self.scale is not None

    @property
    def _left(self) -> float:
        return 1 - self.evaluate_share - (self.standardise_share if self._buys else 0.0)

    @property
    def _buys(self) -> bool:
        """Whether a release of the columns' means and sizes comes first."""
        return self.standardise == "dp" or self.weight is not None

    def _standardised(self, facts: PublicFacts) -> Literal["dp", "none"]:
        if self.standardise != "auto":
            return self.standardise
        noise = 2 * math.sqrt(len(self.columns) / self.standardise_share) * self._unit_noise(facts)
        return "dp" if not self.declared and noise < _BLURRED else "none"

    def _unit_noise(self, facts: PublicFacts) -> float:
        """The noise of a mean of sensitivity 1 that took the whole budget."""
        return facts.noise / ((facts.units or GUESSED_UNITS) * (1 - self.hold_out))

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
            "offset": self._offset_range,
            "weighted": self.weight is not None,
            "kept": (self.hold_out, 2.0) if self.hold_out else None,
            **self.filling,
        }

    @property
    def _offset_middle(self) -> float:
        """The public offset that enters as zero: the middle of its range where a constant can make up for it."""
        return float(self.middle[self.features]) if self.offset is not None and self.intercept else 0.0

    @property
    def _offset_range(self) -> tuple[float, float] | None:
        """What the ends of the offset's range stand for in the linear predictor."""
        if self.offset is None:
            return None
        middle, half = float(self.middle[self.features]) - self._offset_middle, float(self.half[self.features])
        return (middle - half) / self._response_half, (middle + half) / self._response_half

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
                center = (self.center - self._own(self.middle)) / self._own(self.half)
            if self.scale is not None:
                scale = self.scale / self._own(self.half)
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
        spreads = squares / units - mean**2
        mean[: self.features] = shrunk(self._own(mean), 0.0, noise)
        variance = self._own(squares / units - mean**2)
        variance = shrunk(variance, float(np.mean(variance)), noise / SQUARE) if self.features else variance
        variance = np.maximum(variance, max(_SMALLEST_SCALE**2, noise / SQUARE))
        size = np.sqrt(variance)
        scale = np.sqrt(size * math.sqrt(float(np.mean(variance)))) if len(size) else size
        begin = np.zeros(self.features + int(self.intercept))
        if self.intercept:
            begin[-1] = self._constant(float(mean[-1])) - self._mean_offset(mean, spreads)
        frame = self._framed(self._own(mean), scale, room * float(np.sum(variance / scale**2)), begin)
        spread = float(squares[-1] / units - mean[-1] ** 2)
        known = spread if spread > 2 * noise / SQUARE else None
        return replace(frame, response_variance=known, weight=self._mean_weight(mean))

    def _mean_weight(self, mean: Floats | None = None) -> float:
        """What a unit weighs on average, from the columns' means where weights are data."""
        weight = 1 - self.hold_out
        if self.weight is not None and mean is not None:
            at = self.features + int(self.offset is not None)
            weight *= float(np.clip((mean[at] + 1) / 2, _LEAST_WEIGHT, 1))
        return weight

    def _mean_offset(self, mean: Floats, variance: Floats) -> float:
        """The offset of an average unit as it enters the linear predictor."""
        if (ends := self._offset_range) is None:
            return 0.0
        return ends[0] + (ends[1] - ends[0]) * float(mean[self.features] + 1) / 2

    def _constant(self, mean_response: float) -> float:
        """The linear predictor that fits a mean response of -1 to 1."""
        return mean_response

    def _measure(self, adjacency: Adjacency, room: float, ranged: float) -> Generator[Request, Release, Frame]:
        declared = replace(self._frame(room, ranged), weight=self._mean_weight())
        if not self._buys:
            return declared
        statistic = self._columns(adjacency)
        release = yield PrivateSum(statistic, self.standardise_share)
        measured = self._measured_frame(release, statistic, counted_units(release), room)
        return measured if self.standardise == "dp" else replace(declared, weight=measured.weight)

    def _bought(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The template of that release, where it is bought."""
        return (PrivateSum(self._columns(adjacency), self.standardise_share),) if self._buys else ()

    # ---- how well it fits ------------------------------------------------------------------------------------------

    def _fit_bounds(self, frame: Frame, adjacency: Adjacency) -> dict[str, Any]:
        """Of the units that were held out, where some were."""
        held = {"kept": (0.0, self.hold_out)} if self.hold_out else {}
        return self._bounds(frame, adjacency) | held

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        """A histogram of the fit; `size` is the standard deviation of residuals, where it is known and used."""
        wide = self._fit_bounds(frame, adjacency)
        bound = 1.0 if size is None else min(1.0, _RESIDUALS * size)
        return FitHistogram(**wide, coefficients=at, bound=bound, edges=np.linspace(-1, 1, 21))

    def _evaluation(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The template of the last release, where one was asked for."""
        if not self.evaluate_share:
            return ()
        frame = self._frame(1.0, 1.0)
        return (PrivateSum(self._fit_statistic(frame, frame.start, adjacency), self.evaluate_share),)

    def _evaluated(
        self, frame: Frame, at: Floats, adjacency: Adjacency, told: Estimate
    ) -> Generator[Request, Release, Estimate]:
        """The estimate with what a last release says of its fit: of the same units, or of those held out."""
        if not self.evaluate_share:
            return told
        size = None
        if self.hold_out and "residual_std" in told:
            size = float(told["residual_std"]) / self._response_half
        statistic = self._fit_statistic(frame, at, adjacency, size)
        release = yield PrivateSum(statistic, self.evaluate_share)
        found = fit_of(statistic, release)
        if not self.hold_out:
            return {**told, **found}
        found |= spread_of(statistic, release, self._response_half, frame.response_variance)
        return {**told, **{f"held_out_{name}": quantity for name, quantity in found.items()}}

    # ---- results ---------------------------------------------------------------------------------------------------

    def _in_data_units(self, frame: Frame) -> tuple[Floats, Floats]:
        """The linear map (matrix and constant) from coefficients in the frame to those of the data."""
        features = self.features
        worth = self._response_half / (frame.scale * self._own(self.half))
        matrix = np.zeros((features + 1, frame.width))
        matrix[:features, :features] = np.diag(worth)
        matrix[features, :features] = -worth * (self._own(self.middle) + self._own(self.half) * frame.center)
        if self.intercept:
            matrix[features, features] = self._response_half * frame.intercept
        constant = np.zeros(features + 1)
        constant[features] = self._response_middle - self._offset_middle
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
        every = (*self.columns[: self.features], "intercept")
        units = tuple(self._measure_of(name) for name in every) if self.measured_in else ()
        std = found.get("pooled_std")
        named: dict[str, Quantity] = {}
        for name, value in found.items():
            kind: Kind = "coefficient" if name.endswith(("coefficients", "intercept")) else "diagnostic"
            if name.endswith("coefficients"):
                axes: tuple[Axis, ...] = (Axis("coefficient", every[:-1], units[:-1]),)
            elif name.endswith("intercept"):
                axes = (Axis("coefficient", every[-1:], units[-1:]),)
            elif value.shape[0] == len(every) and name in _BY_COEFFICIENT:
                axes = (Axis("coefficient", every, units), Axis("end", ("lower", "upper")))[: value.ndim]
            else:
                axes = ()
            own = {"coefficients": slice(0, -1), "intercept": slice(-1, None)}.get(name)
            named[name] = Quantity(value, kind, axes, None if std is None or own is None else std[own])
        return named

    def _measure_of(self, name: str) -> str:
        """What a coefficient is measured in: the response's unit, where it is explained as it is, per the column's."""
        own = self.measured_in.get(self.columns[-1], "") if self._as_it_is else ""
        per = self.measured_in.get(name, "") if name != "intercept" else ""
        return f"{own} per {per}".strip() if per else own

    @property
    def _as_it_is(self) -> bool:
        """Whether coefficients are in the units of the response."""
        return False


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
