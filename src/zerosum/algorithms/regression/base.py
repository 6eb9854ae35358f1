"""Base class of the regressions: scaling of columns, the optional first and last release, and the results.

Model
-----
A row has features v (p numbers), optionally an offset o, a weight and a draw, and a response y. Each number is mapped
from its public range to [-1, 1] first. The features then enter in a `Frame`:

    u_j = (v_j - center_j) / scale_j,  j = 1..p,    u_{p+1} = intercept      (the last one only with an intercept)

so that u has `width` = p or p + 1 entries. The linear predictor is eta = u.w + o with coefficients w (width). What y is
given eta depends on the subclass: mean eta (`linear`), a class or a count (`glm`), a polynomial loss (`functional`).
Rows longer than the clip c are shortened to norm c (`zerosum.statistics.regression` has the sensitivity proofs).

A unit is one person. A unit with several rows contributes the mean over its rows, so each unit has weight one.

Releases
--------
1. Optional, `standardise_share`: for each column the sums of v and of q v^2 (`ColumnMoments`, sensitivity 2). They
   give the frame: means as centers, sizes as scales, and the mean weight.
2. The rounds of the subclass, with the share that is left (`_left`).
3. Optional, `evaluate_share`: one histogram of scores or residuals (`FitHistogram`, sensitivity sqrt(2)).

All else is post-processing of released numbers and costs no budget: the choice of the frame, the posterior of the
coefficients (`inference`), the map to the units of the data, and the goodness of fit (`goodness_of_fit`).

References: Imtiaz, Mohammadi, Sarwate 2019 (CAPE: correlated noise over sites, functional mechanism); James, Stein 1961
(`shrunk`).
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.pca.subspace import GUESSED_UNITS
from zerosum.algorithms.program import Estimate, PublicFacts, RangedAlgorithm
from zerosum.algorithms.regression.goodness_of_fit import fit_of, spread_of
from zerosum.algorithms.regression.inference import Posterior, table, unseen_share
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Kind, Quantity
from zerosum.kernel.request import PrivateSum, Release, Request
from zerosum.kernel.significance import joint_wald
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.fit import FitHistogram
from zerosum.statistics.regression import SQUARE, ColumnMoments

# Results with one entry per coefficient, the intercept last; the others have no named axis.
_BY_COEFFICIENT = frozenset(
    {
        "identified",
        "p_value",
        "unidentified_reason",
        *(f"{kind}_{what}" for kind in ("pooled", "population") for what in ("std", "interval_90", "interval_95")),
    }
)


@dataclass(frozen=True, eq=False)
class Frame:
    """How features enter a statistic: u = (v - center)/scale for v in [-1, 1], then the constant `intercept`.

    All fields are public constants or functions of earlier releases, so that a site may receive them.
    """

    center: Floats  # (p,), in half ranges from the middle of the range
    scale: Floats  # (p,), in half ranges
    intercept: float  # value of the constant column; 0 if the model has no intercept
    clip: float  # largest norm of u; longer rows are shortened to it
    start: Floats  # (width,), coefficients of the first round
    response_variance: float | None = None  # of the response in [-1, 1]; None if unknown or below its noise
    weight: float = 1.0  # mean weight of a unit in the fit: below 1 with weights, or with units held out
    # (2, p), released means and standard deviations of the features in half ranges; None if they were not bought
    moments: Floats | None = None
    moments_noise: float = 0.0  # standard deviation of such a mean; that of a mean square is 1/SQUARE of it
    square: float | None = None  # released mean squared norm of u; None if the column moments were not bought

    @property
    def width(self) -> int:
        """Number of coefficients, the intercept included."""
        return len(self.center) + int(self.intercept > 0)


class Regression(RangedAlgorithm):
    """Base class of linear, logistic and Poisson regression and of polynomial losses.

    Columns are the features, then the optional columns `offset`, `weight` and `draw` in this order, then the response.

    - An offset is added to the linear predictor with coefficient 1. For counts it is the logarithm of the exposure.
    - A weight multiplies the contribution of its row. Its range begins at 0, and the end of the range is weight 1.
    - A draw is a number in [0, 1], the same in all rows of a unit. Units with a draw below `hold_out` take no part in
      the fit; the evaluation uses only them.

    Public ranges of all columns are required. There are three ways to centre and scale the features:

    - declared: `center` and `scale`, in the units of the data (a typical value and a typical deviation from it);
    - `standardise="dp"`: one release of the means and mean squares of all columns, for `standardise_share`;
    - `standardise="none"`: the ranges alone.

    `standardise="auto"` chooses "dp" if nothing is declared and the noise of that release is small. `clip` bounds the
    norm of a row after scaling. With weights the column moments are always released, because the mean weight is needed.

    `evaluate_share` pays for one histogram of the fit at the end. With `hold_out` its results have the prefix
    `held_out_`. Every round is charged to all units, held out or not.

    Results, in the units of the data, with the intercept last:

    - `coefficients`, `intercept`;
    - `pooled_std`, `pooled_interval_90`, `pooled_interval_95`: error relative to the same regression on the pooled
      data, from privacy noise and from what clips and weights of rows change;
    - `population_std` and its intervals: error relative to the population, from sampling and privacy noise;
    - `p_value`: Wald's p value of each coefficient, and `wald_statistic`, `wald_p_value`, the joint test of all
      coefficients but the intercept, for the population;
    - `identified`: 1, or 0 if the noise of this budget leaves a coefficient undetermined;
    - `pooled_covariance`, `population_covariance`: covariances of the coefficients, for combinations of them, and
      `identified_covariance`, the largest pooled one at which a combination is identified; up to 48 coefficients;
    - with "dp" `feature_mean` and `feature_std`, released means and standard deviations of the features, and for an
      identity link `response_std`;
    - with `evaluate_share` the results of `fit_of`, and with `hold_out` also those of `spread_of`.
    """

    center: FloatArray | None = None
    """A typical value of each feature, if it is public knowledge."""
    scale: FloatArray | None = None
    """A typical deviation of each feature from `center`."""
    intercept: bool = True
    """Whether there is a constant."""
    standardise: Literal["auto", "dp", "none"] = "auto"
    """How features are scaled: `dp` releases their means and sizes, `none` uses ranges or `center` and `scale`, `auto`
    chooses."""
    standardise_share: float = Field(default=0.05, gt=0, lt=1)
    """Share of the budget for the release of means and sizes."""
    evaluate_share: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the budget for the histogram of the fit; 0: none is released."""
    offset: str | None = None
    """A column, before the response, that is added to the linear predictor with coefficient 1."""
    weight: str | None = None
    """A column, before the response, with the weight of each row."""
    draw: str | None = None
    """A column, before the response, that decides which units are held out; a `[design]` makes it."""
    hold_out: float = Field(default=0.0, ge=0, le=0.5)
    """Share of units that are left out of the fit and used for the evaluation."""
    measured_in: dict[str, str] = Field(default_factory=dict)
    """The unit of measurement of columns, for the table of coefficients."""

    @model_validator(mode="after")
    def _roles_fit(self) -> Self:
        """Refuse columns out of order, and ranges of weights and draws on which the proofs of the statistics do not
        hold.
        """
        if strangers := [name for name in self.measured_in if name not in self.columns]:
            raise ValueError(f"measured_in has {strangers[0]!r}, which is not one of the columns")
        named = self._roles
        if named != self.columns[self.features : -1]:
            raise ValueError(
                f"columns must end with the offset, the weight and the draw ({', '.join(named)}) in this order and "
                f"then the response, got {', '.join(self.columns[self.features :])}"
            )
        if self.lower is None or self.upper is None:
            raise ValueError("lower and upper are required: public ranges of the features and the response")
        low, high = self.lower[self.features : -1], self.upper[self.features : -1]
        if self.weight is not None and (low[named.index(self.weight)] != 0 or high[named.index(self.weight)] <= 0):
            raise ValueError(f"the range of the weight {self.weight!r} must begin at 0 and end above 0")
        if self.draw is not None and (low[-1], high[-1]) != (0, 1):
            raise ValueError(f"the range of the draw {self.draw!r} must be 0 to 1, got {low[-1]:g} to {high[-1]:g}")
        if self.offset is not None and not max(abs(low[0]), abs(high[0])) <= TUNING.offset_most:
            raise ValueError(
                f"the range of the offset {self.offset!r} must lie within {TUNING.offset_most:g} of 0, got "
                f"{low[0]:g} to {high[0]:g}"
            )
        if bool(self.hold_out) != (self.draw is not None) or bool(self.hold_out) > bool(self.evaluate_share):
            raise ValueError(
                "hold_out needs a draw (the column that decides) and an evaluate_share (the evaluation), and a draw "
                f"needs hold_out, got hold_out = {self.hold_out:g}, draw = {self.draw!r} and evaluate_share = "
                f"{self.evaluate_share:g}"
            )
        return self

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        """Refuse declared centers, scales and clips outside of any reasonable size, which could overflow."""
        if self.features < 1 and not self.intercept:
            raise ValueError("columns must have a feature before the response, or intercept must be true")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(
                    f"{what} must hold one number for each of the {self.features} features, got {value.size}"
                )
        if self.scale is not None and not np.all(self.scale > 0):
            at = int(np.argmin(self.scale))
            raise ValueError(f"scale must be positive, got {self.scale[at]:g} for column {self.columns[at]!r}")
        middle, half = self._own(self.middle), self._own(self.half)
        far = np.ones(self.features) * TUNING.declared_most * half
        if self.center is not None and np.any(np.abs(self.center - middle) > far):
            at = int(np.argmax(np.abs(self.center - middle) > far))
            raise ValueError(
                f"center must lie near the range of each feature, got {self.center[at]:g} for column "
                f"{self.columns[at]!r} with range {middle[at] - half[at]:g} to {middle[at] + half[at]:g}"
            )
        if self.scale is not None and not np.all((self.scale <= far) & (self.scale >= far / TUNING.declared_most**2)):
            at = int(np.argmin((self.scale <= far) & (self.scale >= far / TUNING.declared_most**2)))
            raise ValueError(
                f"scale must be of the size of the range of each feature, got {self.scale[at]:g} for column "
                f"{self.columns[at]!r} with range {middle[at] - half[at]:g} to {middle[at] + half[at]:g}"
            )
        if self.clip is not None and not 1 / TUNING.declared_most <= self.clip <= TUNING.declared_most:
            raise ValueError(
                f"clip is in standardised units and must be from {1 / TUNING.declared_most:g} to "
                f"{TUNING.declared_most:g}, got {self.clip:g}"
            )
        return self

    @property
    def _roles(self) -> tuple[str, ...]:
        """Names of the columns between the features and the response, in their order."""
        return tuple(name for name in (self.offset, self.weight, self.draw) if name is not None)

    @property
    def features(self) -> int:
        """Number of features p."""
        return len(self.columns) - 1 - len(self._roles)

    def _own(self, by_column: Floats) -> Floats:
        """The entries of the features, from an array with one entry per column."""
        return by_column[: self.features]

    @property
    def declared(self) -> bool:
        """Whether the study declares a center or a scale of the features."""
        return self.center is not None or self.scale is not None

    @property
    def _left(self) -> float:
        """Share of the budget for the rounds of the fit."""
        return 1 - self.evaluate_share - (self.standardise_share if self._buys else 0.0)

    @property
    def _buys(self) -> bool:
        """Whether the column moments are the first release."""
        return self.standardise == "dp" or self.weight is not None

    def _standardised(self, facts: PublicFacts) -> Literal["dp", "none"]:
        """The value of `standardise` after "auto" is resolved from public facts.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        if self.standardise != "auto":
            return self.standardise
        # Noise of a released mean: `ColumnMoments` has sensitivity 2 and divides by sqrt(columns), and a share f of the
        # budget has noise 1/sqrt(f) times that of the whole budget (Gaussian mechanism).
        noise = 2 * math.sqrt(len(self.columns) / self.standardise_share) * self._unit_noise(facts)
        return "dp" if not self.declared and noise < TUNING.mean_noise_most else "none"

    def _unit_noise(self, facts: PublicFacts) -> float:
        """Standard deviation of a mean over the fitted units of sensitivity 1, if it took the whole budget.

        Held-out units contribute zero, so that the mean over the others has more noise.

        Parameters
        ----------
        facts : PublicFacts
            Noise and number of units.
        """
        return facts.noise / ((facts.units or GUESSED_UNITS) * (1 - self.hold_out))

    # ---- requests --------------------------------------------------------------------------------------------------

    def _bounds(self, frame: Frame, adjacency: Adjacency) -> dict[str, Any]:
        """Parameters that all statistics of a round share; the sensitivity proofs are about these.

        Parameters
        ----------
        frame : Frame
            How features enter.
        adjacency : Adjacency
            Whether releases count the units.
        """
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
            # draws lie in [0, 1], and the upper end of `kept` is exclusive: any number above 1 includes a draw of 1
            "kept": (self.hold_out, 2.0) if self.hold_out else None,
            **self.filling,
        }

    @property
    def _offset_middle(self) -> float:
        """Public offset that is subtracted from all offsets, in the units of the data.

        With an intercept it is the middle of the range, so that offsets are small. `_in_data_units` corrects the
        intercept for it. Without an intercept no coefficient could absorb the shift, and it is 0.
        """
        return float(self.middle[self.features]) if self.offset is not None and self.intercept else 0.0

    @property
    def _offset_range(self) -> tuple[float, float] | None:
        """Lowest and highest offset in units of the linear predictor, or None without an offset.

        The linear predictor of a linear model is in half ranges of the response; `_response_half` is 1 for the others.
        """
        if self.offset is None:
            return None
        # the offset is the first column after the features
        middle, half = float(self.middle[self.features]) - self._offset_middle, float(self.half[self.features])
        return (middle - half) / self._response_half, (middle + half) / self._response_half

    def _columns(self, adjacency: Adjacency) -> ColumnMoments:
        """The statistic of the first release. Under add/remove adjacency it also counts the units."""
        count = adjacency is Adjacency.ADD_REMOVE
        ranges = {"lower": self.lower, "upper": self.upper, **self.filling}
        return ColumnMoments(columns=len(self.columns), count=count, **ranges)

    # ---- frames ----------------------------------------------------------------------------------------------------

    def _frame(self, room: float, ranged: float) -> Frame:
        """The frame from public declarations alone.

        Parameters
        ----------
        room : squared clip per feature if a center or a scale is declared; a scaled feature has mean square about 1.
        ranged : squared clip per feature if only ranges are known; a feature in [-1, 1] has mean square at most 1.
        """
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
        """Adds the constant column and the clip.

        Parameters
        ----------
        center, scale : (p,), in half ranges.
        squares : squared norm of the features at which rows are clipped.
        start : (width,), first coefficients; the last one is the intercept for a constant column of 1.
        """
        # The constant column gets at least a tenth of the squared norm, since the prior and the damping treat all
        # columns alike (`TUNING.intercept_share`). Without scaling it is 1.
        constant = math.sqrt(max(1.0, TUNING.intercept_share * squares)) if np.any(scale != 1) else 1.0
        constant = constant if self.intercept else 0.0
        if self.intercept:
            # the coefficient of a larger constant column is smaller: their product is the intercept
            start = np.append(start[:-1], start[-1] / constant)
        clip = self.clip if self.clip is not None else math.sqrt(max(squares, 1e-6) + constant**2)
        return Frame(center, scale, constant, clip, start)

    def _measured_frame(self, release: Release, statistic: ColumnMoments, units: float, room: float) -> Frame:
        """The frame from the released column moments.

        Parameters
        ----------
        release, statistic : the release of `_columns` and its statistic.
        units : number of units, public or released.
        room : squared clip per feature, over the mean square of a scaled feature.

        Returns
        -------
        frame : with released means as center (p,), sizes as scale (p,), and the variance of the response.
        """
        sums, squares = statistic.split(release.value)
        # standard deviation of a released mean in [-1, 1]; that of a mean square is 1/SQUARE of it (`ColumnMoments`)
        noise = release.noise_std * math.sqrt(len(self.columns)) / units
        mean = np.clip(sums / units, -1, 1)  # a mean of values in [-1, 1]; beyond it is noise
        spreads = squares / units - mean**2  # variances of all columns, for the offset
        # Noisy means are shrunk to the middle of the range and noisy variances to their average: a frame that follows
        # the noise is worse than one that ignores small differences between columns.
        # Standardised coefficients need the moments without shrinkage. A variance below its noise is set to the noise.
        moments = np.stack([self._own(mean), np.sqrt(np.maximum(self._own(spreads), noise / SQUARE))])
        mean[: self.features] = shrunk(self._own(mean), 0.0, noise)
        variance = self._own(squares / units - mean**2)
        variance = shrunk(variance, float(np.mean(variance)), noise / SQUARE) if self.features else variance
        # a difference of noisy numbers may be negative; a variance below its own noise is not distinguishable from it
        variance = np.maximum(variance, max(TUNING.scale_least**2, noise / SQUARE))
        size = np.sqrt(variance)
        # The scale is the geometric mean of a column's own size and the root mean square over columns: full
        # standardisation would raise narrow columns, which often carry less signal, to the size of the others.
        # Exponent 1/2: chosen by hand; no benchmark recorded.
        scale = np.sqrt(size * math.sqrt(float(np.mean(variance)))) if len(size) else size
        begin = np.zeros(self.features + int(self.intercept))
        if self.intercept:
            begin[-1] = self._constant(float(mean[-1])) - self._mean_offset(mean, spreads)
        # variance/scale^2 is the mean square of a scaled feature; their sum is the mean squared norm of a row
        frame = self._framed(self._own(mean), scale, room * float(np.sum(variance / scale**2)), begin)
        spread = float(squares[-1] / units - mean[-1] ** 2)
        # r_squared divides by this variance: it is left out where it is not significantly above zero
        known = spread if spread > TUNING.variance_significance * noise / SQUARE else None
        # E (v - center)^2 from the released moments themselves: shrinkage is for single columns, not for their sum
        own = self._own(squares / units) - 2 * frame.center * self._own(sums / units) + frame.center**2
        square = float(np.sum(own / scale**2)) + frame.intercept**2
        measured = replace(frame, moments=moments, moments_noise=noise, square=square)
        return replace(measured, response_variance=known, weight=self._mean_weight(mean))

    def _mean_weight(self, mean: Floats | None = None) -> float:
        """Mean weight of a unit in the fit: the share that is not held out, times the mean of the weight column.

        `mean` (columns,) holds released column means in [-1, 1]; None if they were not released.
        """
        weight = 1 - self.hold_out
        if self.weight is not None and mean is not None:
            at = self.features + int(self.offset is not None)
            # The range [0, end] of a weight was mapped to [-1, 1]. The mean is a divisor, hence the lower limit.
            weight *= float(np.clip((mean[at] + 1) / 2, TUNING.weight_least, 1))
        return weight

    def _mean_offset(self, mean: Floats, variance: Floats) -> float:
        """Mean offset in units of the linear predictor.

        Subclasses use the variance.

        Parameters
        ----------
        mean, variance : array of shape (columns,)
            Released moments of the columns in [-1, 1].
        """
        if (ends := self._offset_range) is None:
            return 0.0
        return ends[0] + (ends[1] - ends[0]) * float(mean[self.features] + 1) / 2

    def _constant(self, mean_response: float) -> float:
        """The intercept that alone fits a mean response in [-1, 1]: the link function of the model."""
        return mean_response

    def _measure(self, adjacency: Adjacency, room: float, ranged: float) -> Generator[Request, Release, Frame]:
        """First part of a program: buys the column moments if the plan has them, and returns the frame.

        With weights but without "dp" the release gives the mean weight only, and the declared frame is kept.

        Parameters
        ----------
        adjacency : Adjacency
            Whether the release counts the units.
        room, ranged : float
            As for `_frame`.
        """
        # What is known without a release; the only frame of a study that buys no column moments.
        declared = replace(self._frame(room, ranged), weight=self._mean_weight())
        if not self._buys:
            return declared
        statistic = self._columns(adjacency)
        release = yield PrivateSum(statistic, self.standardise_share)
        measured = self._measured_frame(release, statistic, counted_units(release), room)
        return measured if self.standardise == "dp" else replace(declared, weight=measured.weight)

    def _bought(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Template of the request of `_measure`; empty if it makes none."""
        return (PrivateSum(self._columns(adjacency), self.standardise_share),) if self._buys else ()

    # ---- how well it fits ------------------------------------------------------------------------------------------

    def _fit_bounds(self, frame: Frame, adjacency: Adjacency) -> dict[str, Any]:
        """As `_bounds`, but for the held-out units if there are any."""
        held = {"kept": (0.0, self.hold_out)} if self.hold_out else {}
        return self._bounds(frame, adjacency) | held

    def _fit_statistic(self, frame: Frame, at: Floats, adjacency: Adjacency, size: float | None = None) -> FitHistogram:
        """The statistic of the evaluation.

        Parameters
        ----------
        frame, at : the frame and the coefficients (width,) of the fitted model.
        size : standard deviation of the residuals in half ranges of the response; None: bins span the whole range.
        """
        wide = self._fit_bounds(frame, adjacency)
        bound = 1.0 if size is None else min(1.0, TUNING.residual_span * size)
        return FitHistogram(**wide, coefficients=at, bound=bound, edges=np.linspace(-1, 1, TUNING.residual_bins + 1))

    def _evaluation(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """Template of the request of `_evaluated`; empty without `evaluate_share`."""
        if not self.evaluate_share:
            return ()
        frame = self._frame(1.0, 1.0)
        return (PrivateSum(self._fit_statistic(frame, frame.start, adjacency), self.evaluate_share),)

    def _evaluated(
        self, frame: Frame, at: Floats, adjacency: Adjacency, estimate: Estimate
    ) -> Generator[Request, Release, Estimate]:
        """Last part of a program: adds the goodness of fit to the estimate, if the plan pays for it.

        Parameters
        ----------
        frame, at : the frame and the coefficients (width,) of the fitted model.
        estimate : the estimate without the evaluation.
        """
        if not self.evaluate_share:
            return estimate
        size = None
        # The residuals of held-out units are binned at the scale of the fitted residuals, which was released already.
        if self.hold_out and "residual_std" in estimate:
            size = float(estimate["residual_std"]) / self._response_half
        statistic = self._fit_statistic(frame, at, adjacency, size)
        release = yield PrivateSum(statistic, self.evaluate_share)
        found = fit_of(statistic, release)
        if not self.hold_out:
            return {**estimate, **found}
        found |= spread_of(statistic, release, self._response_half, frame.response_variance)
        return {**estimate, **{f"held_out_{name}": quantity for name, quantity in found.items()}}

    # ---- results ---------------------------------------------------------------------------------------------------

    def _in_data_units(self, frame: Frame) -> tuple[Floats, Floats]:
        """The affine map w -> M w + b from the frame to coefficients in the units of the data.

        M is (p + 1, width) and b is (p + 1,); the last row is the intercept, which is 0 in the frame if it has none.
        With h, m the half ranges and middles of the features and H, M_y those of the response,

            M_y + H sum_j w_j ((x_j - m_j)/h_j - center_j)/scale_j + H w_0 intercept

        has slope H w_j/(h_j scale_j) in x_j; the terms without x_j are the intercept.

        Parameters
        ----------
        frame : Frame
            How features entered.
        """
        features = self.features
        # slopes H/(h_j scale_j), and what each slope subtracts from the intercept at the center of its feature
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
        """One unit of the linear predictor in the units of the response, where the link is the identity; else 1."""
        return 1.0

    @property
    def _response_middle(self) -> float:
        """The response at a linear predictor of 0, where the link is the identity; else 0."""
        return 0.0

    def _report(
        self,
        frame: Frame,
        mean: Floats,
        pooled: Posterior,
        population: Posterior,
        prior: float | Floats,
        moments: tuple[Floats, float] | None = None,
    ) -> Estimate:
        """Coefficients with their standard errors and intervals, in the units of the data.

        Parameters
        ----------
        mean : (width,), coefficients in the frame.
        pooled, population : their posterior without and with sampling error; only the covariances are used.
        prior : prior standard deviation of each coefficient in the frame, one number or (width,).
        moments : released moments of the rows (width, width), or their Hessian, with the noise of a diagonal entry.
        """
        matrix, constant = self._in_data_units(frame)
        found = matrix @ mean + constant
        # Independent priors: the prior variance of M w is the sum of squares of a row of M times the priors.
        # Covariances transform as M C M'.
        known = np.sqrt(np.sum((matrix * prior) ** 2, axis=1))
        covariances = {
            kind: matrix @ each.covariance @ matrix.T for kind, each in (("pooled", pooled), ("population", population))
        }
        # A slope of the data is one of the frame in other units. An intercept mixes all of them.
        unseen = np.zeros(len(found))
        if moments is not None:
            unseen[:-1] = unseen_share(*moments)[: self.features]
        errors = table(found, covariances["pooled"], covariances["population"], known, unseen)
        if len(found) > 1:
            statistic, _, p = joint_wald(found[:-1], (matrix @ population.covariance @ matrix.T)[:-1, :-1])
            errors |= {"wald_statistic": np.array([statistic]), "wald_p_value": np.array([p])}
        named = self._named({"coefficients": found[:-1], "intercept": found[-1:], **errors})
        # A combination is identified by the criterion of `table`: a variance of at most ratio^2 times the prior one.
        covariances["identified"] = TUNING.identified_ratio**2 * (matrix * prior**2) @ matrix.T
        return {**named, **self._for_combinations(frame, covariances)}

    def _for_combinations(self, frame: Frame, covariances: dict[str, Floats]) -> Estimate:
        """Quantities for combinations of coefficients: both covariances, and standard deviations of the columns.

        Parameters
        ----------
        frame : Frame
            How features entered.
        covariances : dict of str to array of shape (p + 1, p + 1)
            Covariances of the coefficients in the units of the data, the intercept last, by kind; and the largest
            pooled covariance at which combinations count as identified.
        """
        found: dict[str, Quantity] = {}
        names = (*self.columns[: self.features], "intercept")
        if len(names) <= TUNING.covariances_most:
            axes = Axis("coefficient", names), Axis("coefficient", names)
            found |= {f"{kind}_covariance": Quantity(each, "diagnostic", axes) for kind, each in covariances.items()}
        if frame.moments is not None:
            columns, half = (Axis("column", names[:-1]),), self._own(self.half)
            found["feature_mean"] = Quantity(self._own(self.middle) + half * frame.moments[0], "diagnostic", columns)
            found["feature_std"] = Quantity(half * frame.moments[1], "diagnostic", columns)
            if self._as_it_is and frame.response_variance is not None:
                response = math.sqrt(frame.response_variance) * self._response_half
                found["response_std"] = Quantity(np.array([response]), "diagnostic")
        return found

    def _named(self, found: dict[str, Floats]) -> Estimate:
        """Arrays as quantities, with the names of the coefficients along their axes.

        `coefficients` and `intercept` get `pooled_std` as the standard deviation that privacy adds.

        Parameters
        ----------
        found : dict of str to array
            Results with one entry for each coefficient, the intercept last, or diagnostics.
        """
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
        """Unit of measurement of a coefficient: "mmHg per year", or "per year" where the link is not the identity."""
        own = self.measured_in.get(self.columns[-1], "") if self._as_it_is else ""
        per = self.measured_in.get(name, "") if name != "intercept" else ""
        return f"{own} per {per}".strip() if per else own

    @property
    def _as_it_is(self) -> bool:
        """Whether the link is the identity, so that coefficients are in units of the response."""
        return False


def shrunk(values: Floats, towards: float, noise: float) -> Floats:
    """Noisy values shrunk towards a common one (positive-part James-Stein).

    The mean square distance of the values from `towards` estimates signal plus noise^2. They keep the share of it that
    is signal, max(0, 1 - noise^2/spread), for all values alike.

    Parameters
    ----------
    values : (n,), each with independent noise of standard deviation `noise`.
    towards : the common value.

    >>> shrunk(np.array([1.0, 3.0]), 2.0, 10.0).tolist()
    [2.0, 2.0]
    """
    # The factor (n - 2)/n of James and Stein is left out: with one or two values it would prevent any shrinkage.
    spread = float(np.mean((values - towards) ** 2)) if len(values) else 0.0
    kept = max(0.0, 1 - noise**2 / spread) if spread > 0 else 0.0
    return np.asarray(towards + kept * (values - towards))


def counted_units(release: Release) -> float:
    """Number of units: public, or (add/remove adjacency) the noisy count, the last entry of the release; at least 1.

    Parameters
    ----------
    release : Release
        A release of a statistic whose last entry is the count, if `count` was set.
    """
    return release.units if release.units is not None else max(float(release.value[-1]), 1.0)
