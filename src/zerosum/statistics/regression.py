"""What regression asks of a site: sums over units of what each says about the coefficients at hand.

Rows hold the features, then an offset, a weight and a draw where the statistic says that there are such columns, and,
last, the response. Features are normalised, centred and scaled (public constants or earlier
releases), `intercept` is appended, and the row u is divided by c and clipped to the unit ball: x = s u/c with s <= 1.
A linear response is multiplied by the same s, so that a clipped row is one that weighs less (s^2) and the model still
holds for it; in the other families the model is that of the clipped features.

Two lemmas carry every bound below.

**Sphere.** Let a row contribute a vector made of blocks t_j x^(j): numbers t_j of that row (a residual, a rate) times
x^(j), the j-fold symmetric power of x in isometric coordinates. For norm(x) <= 1 append the coordinate sqrt(1 -
norm(x)^2): the blocks of the longer vector contain those of x, and leaving coordinates out moves no two points apart.
So for distances norm(x) = 1 may be assumed, and <x^(j), x'^(j)> = k^j with k = x.x' in [-1, 1].

**Parabola.** For t, t' in [-1, 1] the points (t, q t^2) are at most 2 apart if q^2 <= golden^5/4 = 2.7725...: with
s = |t + t'|, d = |t - t'| <= 2 - s the square of the distance is d^2 (1 + q^2 s^2) <= (2 - s)^2 (1 + q^2 s^2), and that
is at most 4 if q^2 <= (4 - s)/(s (2 - s)^2), whose least value on (0, 2) is at s = 3 - sqrt(5). `SQUARE` is that q.

A unit with several rows contributes the mean over its rows, which lies in the convex hull of what single rows
contribute, and a hull is as wide as its points: one bound for the whole vector, and nothing is clipped a second time.
With `count` one more entry counts the units (needed where their number is not public); replacing a unit leaves it.

**Weights.** A weight in [0, 1] multiplies what a row contributes but for the count, and a row whose draw is not `kept`
contributes nothing. Contributions then lie in the hull of those of whole rows and of zero. The diameter of that is that
of the whole rows, or the largest norm of one, if that is more. For every statistic of this module the norm (what adding
a unit does) is less than the diameter, so neither bound changes; `polynomial_coefficients` takes the larger itself.

**Offsets.** An offset is clipped to its public range and added to the linear predictor of its row. Every proof below
holds for any residual in [-1, 1], and that of the logistic model for any probability, so no bound depends on it.

Tested in tests/statistics/test_regression_statistics.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, Positive
from zerosum.kernel.units import Units
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import added, clip_factors, exponential, fold, gram, like, products

Family = Literal["linear", "logistic", "poisson"]

SQUARE = ((1 + math.sqrt(5)) / 2) ** 2.5 / 2 * (1 - 1e-12)
CURVATURE = math.sqrt((37 + 14 * math.sqrt(7)) / 48) * (1 - 1e-12)
Bounded = Annotated[float, Field(ge=-1e6, le=1e6)]
_STEEPEST = 30.0  # linear predictors beyond this change nothing


class ColumnMoments(Ranged):
    """The sum over units of (v, q v^2) for each column's value v in [-1, 1], over the root of the number of columns.

    Sensitivity. Each column's pair is at most 2 apart (parabola), all columns together 2 sqrt(columns), over that root:
    D = 2, attained by values of 1 and -1 throughout. Added or removed: sqrt(1 + q^2), with the count one more inside.
    """

    name: ClassVar[str] = "column_moments"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive = 1.0
    count: bool = False

    @property
    def size(self) -> int:
        return 2 * self.columns + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2 + int(self.count))

    @property
    def row_bytes(self) -> int:
        return 8 * 6 * self.columns

    def sum_block(self, block: Units) -> Array:
        rows = self.normalise(block)
        xp = array_namespace(rows)
        rows = xp.clip(rows, -1.0, 1.0)
        weights = block.row_weights(rows) / math.sqrt(self.columns)
        sums = products(weights[:, None], xp.concat([rows, SQUARE * rows * rows], axis=1))[0, :]
        return counted(sums, block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sum of values, sum of squares)."""
        root = math.sqrt(self.columns)
        return root * release[: self.columns], root / SQUARE * release[self.columns : 2 * self.columns]


@dataclass(frozen=True, eq=False)
class Entered:
    """Rows as they enter a statistic."""

    x: Array  # the features, of norm at most 1
    shrunk: Array  # what they were multiplied by to be so
    response: Array  # in -1 to 1
    weight: Array  # of each row in the sum: one over its unit's rows, times the row's own weight
    offset: Array | None  # of the linear predictor


class RegressionRows(Ranged):
    """What the statistics of this module share: from a row to (x, s, y).

    `offset` is what the ends of the offset's range stand for in the linear predictor; None if there is no such column.
    `weighted` says that there is a column of weights, whose range stands for 0 to 1. `kept` says that there is a column
    of draws, whose range stands for 0 to 1, and which of them count: from the first number up to the second. These
    columns stand before the response, in this order.
    """

    center: FloatArray | None = None
    scale: FloatArray | None = None
    intercept: float = Field(default=1.0, ge=0, le=1e6)
    count: bool = False
    offset: tuple[Bounded, Bounded] | None = None
    weighted: bool = False
    kept: tuple[Bounded, Bounded] | None = None

    @model_validator(mode="after")
    def _features_fit(self) -> Self:
        if self.features < 0 or self.features + int(self.intercept > 0) < 1:
            raise ValueError("a regression needs a feature or an intercept beside the response")
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.features,):
                raise ValueError(f"{what} must hold one number for each of the {self.features} features")
        if self.scale is not None and not np.all(self.scale >= SMALLEST):
            raise ValueError("every scale must be positive")
        return self

    @property
    def features(self) -> int:
        return self.columns - 1 - sum((self.offset is not None, self.weighted, self.kept is not None))

    @property
    def width(self) -> int:
        """How many coefficients there are."""
        return self.features + int(self.intercept > 0)

    @property
    def row_bytes(self) -> int:
        return 8 * 8 * (self.width + 1)

    def design(self, block: Units) -> Entered:
        """The rows of some units as they enter."""
        rows = self.normalise(block)
        xp = array_namespace(rows)
        features, response = rows[:, : self.features], xp.clip(rows[:, -1], -1.0, 1.0)
        if self.center is not None:
            features = features - like(self.center, rows)[None, :]
        if self.scale is not None:
            features = features / like(self.scale, rows)[None, :]
        if self.intercept > 0:
            constant = xp.full_like(rows[:, :1], self.intercept)
            features = xp.concat([features, constant], axis=1)
        x, shrunk = clip_factors(features / self.clip, 1.0)
        offset, weight = self._roles(rows, block.row_weights(x))
        return Entered(x, shrunk, response, weight, offset)

    def _roles(self, rows: Array, weight: Array) -> tuple[Array | None, Array]:
        """The offset of every row, and its weight where that in its unit's mean is given."""
        xp, at, offset = array_namespace(rows), self.features, None

        def share() -> Array:  # of the way from one end of its range to the other
            return 0.5 * (xp.clip(rows[:, at], -1.0, 1.0) + 1.0)

        if self.offset is not None:
            low, high = self.offset
            offset, at = low + (high - low) * share(), at + 1
        if self.weighted:
            weight, at = weight * share(), at + 1
        if self.kept is not None:
            draw = share()
            weight = weight * xp.astype((draw >= self.kept[0]) & (draw < self.kept[1]), weight.dtype)
        return offset, weight

    def _check_coefficients(self, coefficients: Floats) -> None:
        if coefficients.shape != (self.width,):
            raise ValueError(f"there must be {self.width} coefficients, got shape {coefficients.shape}")


class Residuals(RegressionRows):
    """Rows with what a model with the public `coefficients` leaves of their response, clipped to `bound` and over it.

    `family` says how the response follows from the linear predictor x.w, and what a response of -1 to 1 stands for: a
    number, a class (above 0 is the second one), or a count of 0 to `most`.
    """

    coefficients: FloatArray
    bound: Positive = 1.0
    family: Family = "linear"
    most: Positive = 1.0

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        self._check_coefficients(self.coefficients)
        if self.family == "logistic" and self.bound < 1:
            raise ValueError("residuals of a logistic model are within 1: their bound must not be less")
        return self

    @cached_property
    def _slopes(self) -> Floats:
        return np.asarray(self.clip * self.coefficients)

    def predictor(self, rows: Entered) -> Array:
        """The linear predictor of every row. A linear model's has no offset: that is taken from the response."""
        own = fold(rows.x * like(self._slopes, rows.x)[None, :])
        return own if rows.offset is None or self.family == "linear" else own + rows.offset

    def residuals(self, rows: Entered) -> tuple[Array, Array]:
        """For each row: the residual over its bound, and what the model expects (a probability, a rate)."""
        x, predictor, response = rows.x, self.predictor(rows), rows.response
        xp = array_namespace(x)
        if self.family == "linear":
            expected = predictor
            gap = rows.shrunk * (response if rows.offset is None else response - rows.offset) - predictor
        else:
            growth = exponential(xp.clip(predictor, -_STEEPEST, _STEEPEST))
            if self.family == "logistic":
                expected = growth / (1.0 + growth)
                gap = xp.astype(response > 0, x.dtype) - expected
            else:
                expected = growth
                gap = 0.5 * self.most * (response + 1.0) - growth
        return xp.clip(gap / self.bound, -1.0, 1.0), expected


class ResidualGradient(Residuals):
    """The sum over units of (x r, q r^2), r the clipped residual over its bound: a gradient and the residuals' size.

    Sensitivity. By the sphere lemma norm(x) = 1. The square of the distance is r^2 + r'^2 - 2 k r r' + q^2 (r^2 -
    r'^2)^2 with k = x.x', linear in k: the worst pair has x' = x or -x, which leaves points (t, q t^2) of the parabola,
    t = r and t' = +-r'. D = 2, as for the gradient alone. Added or removed: sqrt(1 + q^2).
    """

    name: ClassVar[str] = "residual_gradient"
    adds_in_pieces: ClassVar[bool] = True

    @property
    def size(self) -> int:
        return self.width + 1 + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        rows = self.design(block)
        r, _expected = self.residuals(rows)
        xp = array_namespace(r)
        weighted = r * rows.weight
        gradient = products(weighted[:, None], rows.x)[0, :]
        size = SQUARE * xp.reshape(added(weighted * r), (1,))
        return counted(xp.concat([gradient, size]), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, float]:
        """A release as (sum of u r, sum of r^2), in the units of features and response."""
        gradient = self.clip * self.bound * release[: self.width]
        return gradient, self.bound**2 * float(release[self.width]) / SQUARE


class ResidualMoment(Residuals):
    """The sum over units of z z' for z = (x, a r)/sqrt(1 + a^2), in isometric coordinates: second moments of the
    features, the gradient, and the residuals' size. At coefficients of zero it is the joint moment of features and
    response; a is `response_weight`. Linear models only: their Hessian does not depend on the coefficients.

    Sensitivity. norm(z) <= 1, so the contributions Z are positive semidefinite of Frobenius norm <= 1, and norm(Z -
    W)^2 <= 2 - 2 tr(Z W) <= 2: D = sqrt(2), attained by z orthogonal to w, which a <= 1 allows. Added or removed: 1.
    The noise of the gradient is (1 + a^2)/a times the planned one in units of c and the bound: at a = 1 twice, which is
    what the gradient costs alone. Averages over a unit's rows have trace <= 1, so that sums round no worse.
    """

    name: ClassVar[str] = "residual_moment"
    adds_in_pieces: ClassVar[bool] = True
    response_weight: float = Field(default=1.0, ge=0.01, le=1)
    family: Literal["linear"] = "linear"

    @property
    def size(self) -> int:
        return coordinates.size(self.width + 1) + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        rows = self.design(block)
        r, _expected = self.residuals(rows)
        xp = array_namespace(r)
        z = xp.concat([rows.x, self.response_weight * r[:, None]], axis=1)
        z = z * xp.sqrt(rows.weight / (1 + self.response_weight**2))[:, None]
        return counted(coordinates.packed(gram(z)), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats, float]:
        """A release as (sum of u u', sum of u r, sum of r^2), in the units of features and response."""
        Z = coordinates.unpack(release[: coordinates.size(self.width + 1)], self.width + 1)
        c, b = self.scales
        return c**2 * Z[:-1, :-1], c * b * Z[:-1, -1], b**2 * float(Z[-1, -1])

    @property
    def scales(self) -> tuple[float, float]:
        """What features and residuals are worth in a release."""
        root = math.sqrt(1 + self.response_weight**2)
        return self.clip * root, self.bound * root / self.response_weight


class NewtonStep(Residuals):
    """The sum over units of (x r, b h x x'): gradient and Hessian of the log-likelihood at the coefficients, in one
    release. r is the clipped residual over its bound; h is 4 p (1 - p) in logistic models, and in Poisson ones the rate
    over `rate_bound`, clipped to 1; x x' in isometric coordinates. b is `curvature`, at most `CURVATURE` = 1.2420...

    Sensitivity, logistic. A class is 0 or 1, so h = 4 t (1 - t) with t = |r|. By the sphere lemma norm(x) = 1; with k =
    |x.x'| and the worse sign of the gradients the square of the distance is at most

        t^2 + t'^2 + 2 t t' k + B^2 + B'^2 - 2 B B' k^2,  B = 4 b t (1 - t).

    (i) If t t' >= 2 B B' it grows with k up to k = 1, where it is s^2 + 16 b^2 d^2 (1 - s)^2 with s = t + t', d = t -
    t'. For s <= 1, |d| <= s: at most 1 + b^2 < 4. For s = 2 - u, |d| <= u: (2 - u)^2 + 16 b^2 u^2 (1 - u)^2 <= 4 if
    b^2 <= (4 - u)/(16 u (1 - u)^2), whose least value on (0, 1) is at u = 3 - sqrt(7): b^2 <= (37 + 14 sqrt(7))/48.
    (ii) Else its largest value in k is g(t) + g(t') + T, with g(t) = t^2 + B^2 <= 1.82 and T = t t' / (32 b^2 (1 -
    t)(1 - t')) < t t'. The square grows with b, so that the largest b suffices. If t and t' are at most 0.8, T <=
    0.64/(32 b^2 0.04) < 0.33: at most 3.97. If one is above 0.8, its g is at most 1.28, and g(t') + t' <= 2.39: 3.67.
    So D = 2, as for the gradient alone; attained by x' = x, r = 1, r' = -1. Added or removed: the largest g(t).

    Sensitivity, Poisson. h is not tied to r. For norm(x) = 1 the square is (largest over r) 2 + 2 k + b^2 (h^2 + h'^2 -
    2 h h' k^2), convex in h and in h': with (h, h') = (1, 0) it is 4 + b^2, with (1, 1) at most max(4, 2 + 2 b^2 + 1/(2
    b^2)), which is less than 4 + b^2 for b^2 <= 1.7. So D = sqrt(4 + b^2). Added or removed: sqrt(1 + b^2).
    """

    name: ClassVar[str] = "newton_step"
    adds_in_pieces: ClassVar[bool] = True
    family: Literal["logistic", "poisson"] = "logistic"
    curvature: float = Field(default=CURVATURE, gt=0.01, le=CURVATURE)
    rate_bound: Positive = 1.0

    @property
    def size(self) -> int:
        return self.width + coordinates.size(self.width) + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        if adjacency is Adjacency.REPLACE_ONE:
            return 2.0 if self.family == "logistic" else math.sqrt(4 + self.curvature**2)
        own = _farthest(self.curvature) if self.family == "logistic" else 1 + self.curvature**2
        return math.sqrt(own + int(self.count))

    def sum_block(self, block: Units) -> Array:
        rows = self.design(block)
        r, expected = self.residuals(rows)
        x, weights = rows.x, rows.weight
        xp = array_namespace(x)
        if self.family == "logistic":
            bent = 4.0 * expected * (1.0 - expected)
        else:
            bent = xp.clip(expected / self.rate_bound, 0.0, 1.0)
        gradient = products((r * weights)[:, None], x)[0, :]
        root = x * xp.sqrt(self.curvature * bent * weights)[:, None]
        return counted(xp.concat([gradient, coordinates.packed(gram(root))]), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (gradient, Hessian) of the log-likelihood, in the units of features and response."""
        gradient = self.clip * self.bound * release[: self.width]
        packed = release[self.width : self.width + coordinates.size(self.width)]
        return gradient, self.hessian_scale * coordinates.unpack(packed, self.width)

    @property
    def hessian_scale(self) -> float:
        """What an entry of the Hessian is worth in a release."""
        return self.clip**2 / self.curvature * (0.25 if self.family == "logistic" else self.rate_bound)


def _farthest(curvature: float) -> float:
    """The largest t^2 + 16 b^2 t^2 (1 - t)^2 on [0, 1], where its derivative vanishes or at the end."""
    stationary = np.roots([4 * 16 * curvature**2, -6 * 16 * curvature**2, 2 * 16 * curvature**2 + 2])
    inside = [float(t.real) for t in stationary if abs(t.imag) < 1e-12 and 0 <= t.real <= 1]
    return max(t**2 + 16 * (curvature * t * (1 - t)) ** 2 for t in [*inside, 1.0]) * (1 + 1e-12)


def counted(sums: Array, block: Units, count: bool) -> Array:
    if not count:
        return sums
    xp = array_namespace(sums)
    return xp.concat([sums, xp.full_like(sums[:1], float(len(block)))])
