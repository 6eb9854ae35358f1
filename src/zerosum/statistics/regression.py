"""Sums for regression: gradients, Hessians and moments at public coefficients.

Rows hold the features, then an offset, a weight and a draw if the statistic has these columns, and last the response. A
row is processed in this order. The p features are normalised to their ranges, centred and scaled (public constants or
earlier releases). The constant `intercept` is appended, which gives a row u of length `width`. The row u is divided by
c and clipped to the unit ball: x = s u/c with s <= 1. A linear response is multiplied by the same s. A clipped row is
then a row with less weight (s^2), and the linear model still holds for it. In the other families the model is that of
the clipped features.

Two lemmas carry every bound below.

**Sphere.** Let a row contribute a vector made of blocks t_j x^(j). The numbers t_j belong to that row (a residual, a
rate). x^(j) is the j-fold symmetric power of x in isometric coordinates. If norm(x) < 1, append the coordinate sqrt(1 -
norm(x)^2) to x. The blocks of the longer vector contain those of x, and leaving coordinates out does not increase any
distance. So norm(x) = 1 may be assumed for distances, and <x^(j), x'^(j)> = k^j with k = x.x' in [-1, 1].

**Parabola.** For t, t' in [-1, 1] the points (t, q t^2) are at most 2 apart if q^2 <= golden^5/4 = 2.7725... Proof: let
s = |t + t'| and d = |t - t'|, so that d <= 2 - s. The square of the distance is d^2 (1 + q^2 s^2) <= (2 - s)^2 (1 + q^2
s^2). This is at most 4 if q^2 <= (4 - s)/(s (2 - s)^2). The least value of the right-hand side on (0, 2) is at s = 3 -
sqrt(5). `SQUARE` is that q.

**Several rows.** A unit with several rows contributes the mean over its rows. The mean lies in the convex hull of the
contributions of single rows, and a hull has the diameter of its points. So one bound holds for the whole vector, and
nothing is clipped a second time. With `count` one more entry counts the units, which is needed if their number is not
public. Replacing a unit does not change that entry.

**Weights.** A weight in [0, 1] multiplies the contribution of a row, except for the count. A row whose draw is not
`kept` contributes zero. Contributions then lie in the hull of the contributions of whole rows and zero. The diameter of
that hull is the larger of two numbers: the diameter for whole rows, and the largest norm of a contribution. For every
statistic of this module the norm (the bound for an added unit) is less than the diameter, so that neither bound
changes; `polynomial_coefficients` takes the larger of the two itself.

**Offsets.** An offset is clipped to its public range and added to the linear predictor of its row. Every proof below
holds for any residual in [-1, 1], and that of the logistic model for any probability. So no bound depends on the
offset.
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
from zerosum.compute.backends.exact import added, clip_factors, constant_on, exponential, fold, gram, products
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.constants import check_placement
from zerosum.statistics.ranges import Ranged

Family = Literal["linear", "logistic", "poisson"]

# q of the parabola lemma, sqrt(golden^5/4); golden is (1 + sqrt(5))/2. Reduced by 1e-12 so that rounding cannot put it
# above the limit.
SQUARE = ((1 + math.sqrt(5)) / 2) ** 2.5 / 2 * (1 - 1e-12)
# The largest b in the proof of `NewtonStep` for logistic models, 1.2420..., reduced by 1e-12 for the same reason.
CURVATURE = math.sqrt((37 + 14 * math.sqrt(7)) / 48) * (1 - 1e-12)
Bounded = Annotated[float, Field(ge=-1e6, le=1e6)]
# Linear predictors are clipped to this absolute value before exp, which avoids overflow. exp(-30) = 9e-14. Chosen by
# hand; no benchmark recorded.
_STEEPEST = 30.0


class ColumnMoments(Ranged):
    """The sum over units of (v, q v^2)/sqrt(d) for the values v in [-1, 1] of d columns.

    The map of one row: each value v_j is clamped to [-1, 1]; the contribution is (v_1, ..., v_d, q v_1^2, ..., q
    v_d^2)/sqrt(d), shape (2 d,). A unit contributes the mean over its rows.

    Sensitivity. The pairs (v, q v^2) of one column are at most 2 apart by the parabola lemma. All columns together are
    at most 2 sqrt(d) apart, and division by sqrt(d) gives D = 2. It is attained by values of 1 and -1 throughout.
    Adding or removing a unit moves the sum by at most sqrt(1 + q^2), with the count by sqrt(1 + q^2 + 1).

    Parameters
    ----------
    columns : int
        d, the number of columns.
    clip : float
        Not used: values are clamped one by one.
    lower, upper : array of shape (columns,), optional
        Public ranges, mapped to [-1, 1].
    count : bool
        Whether the number of units is released.
    """

    name: ClassVar[str] = "column_moments"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive = 1.0
    count: bool = False

    @property
    def size(self) -> int:
        """2 d, and one for the count."""
        return 2 * self.columns + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2 + int(self.count))

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 6 * self.columns

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, shape (size,)."""
        rows = self.normalise(block)
        xp = array_namespace(rows)
        # The parabola lemma holds on [-1, 1] only: values beyond a declared range are moved to its end.
        rows = xp.clip(rows, -1.0, 1.0)
        # The weight 1/m of a row in its unit's mean, and the common factor 1/sqrt(d) of the contribution.
        weights = block.row_weights(rows) / math.sqrt(self.columns)
        sums = products(weights[:, None], xp.concat([rows, SQUARE * rows * rows], axis=1))[0, :]
        return counted(sums, block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (sum of values, sum of squares), each of shape (columns,)."""
        root = math.sqrt(self.columns)
        return root * release[: self.columns], root / SQUARE * release[self.columns : 2 * self.columns]


@dataclass(frozen=True, eq=False)
class Entered:
    """Rows after preprocessing.

    Parameters
    ----------
    x : array of shape (rows, width)
        The features with the intercept, of norm at most 1.
    shrunk : array of shape (rows,)
        s, the factor by which the clip shortened the row; 1 for rows that were not clipped.
    response : array of shape (rows,)
        The response in [-1, 1].
    weight : array of shape (rows,)
        The weight of the row in the sum: one over the number of its unit's rows, times the row's own weight.
    offset : array of shape (rows,) or None
        The offset of the linear predictor.
    """

    x: Array
    shrunk: Array
    response: Array
    weight: Array
    offset: Array | None


class RegressionRows(Ranged):
    """Base of the statistics of this module: from a row to (x, s, y).

    Parameters
    ----------
    columns : int
        p features, the optional columns below, and the response.
    clip : float
        c, the norm by which a row is divided and at which it is clipped.
    lower, upper : array of shape (columns,), optional
        Public ranges of all columns, mapped to [-1, 1].
    center, scale : array of shape (p,), optional
        Subtracted from the features, and divided by.
    intercept : float
        The constant appended to the features; 0 for a model without one.
    count : bool
        Whether the number of units is released as the last entry.
    offset : pair of float, optional
        The values of the linear predictor at the two ends of the offset's range; None if there is no such column.
    weighted : bool
        Whether there is a column of weights, whose range is mapped to [0, 1].
    kept : pair of float, optional
        There is a column of draws, whose range is mapped to [0, 1]. Rows count whose draw is at least the first number
        and below the second. The optional columns precede the response in the order offset, weight, draw.
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
            raise ValueError(
                f"a regression needs a feature or an intercept beside the response, got {self.columns} columns and "
                f"intercept = {self.intercept:g}"
            )
        check_placement(self.features, self.center, self.scale, "features")
        return self

    @property
    def features(self) -> int:
        """p, the number of features."""
        return self.columns - 1 - sum((self.offset is not None, self.weighted, self.kept is not None))

    @property
    def width(self) -> int:
        """The number of coefficients: p, plus one with an intercept."""
        return self.features + int(self.intercept > 0)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * 8 * (self.width + 1)

    def design(self, block: Units) -> Entered:
        """The rows of some units after preprocessing."""
        rows = self.normalise(block)
        xp = array_namespace(rows)
        features, response = rows[:, : self.features], xp.clip(rows[:, -1], -1.0, 1.0)
        if self.center is not None:
            features = features - constant_on(self.center, rows)[None, :]
        if self.scale is not None:
            features = features / constant_on(self.scale, rows)[None, :]
        if self.intercept > 0:
            constant = xp.full_like(rows[:, :1], self.intercept)
            features = xp.concat([features, constant], axis=1)
        # The clip of the whole row, intercept included, bounds norm(x) by 1, which every proof uses.
        x, shrunk = clip_factors(features / self.clip, 1.0)
        offset, weight = self._roles(rows, block.row_weights(x))
        return Entered(x, shrunk, response, weight, offset)

    def _roles(self, rows: Array, weight: Array) -> tuple[Array | None, Array]:
        """The offset of every row, and its weight.

        Parameters
        ----------
        rows : array of shape (rows, columns)
            Normalised rows.
        weight : array of shape (rows,)
            The weight of each row in its unit's mean.
        """
        xp, at, offset = array_namespace(rows), self.features, None

        # The position of a value within its range, from 0 to 1. The clip matters where no ranges are declared: a weight
        # above 1 would break the bounds.
        def share() -> Array:
            return 0.5 * (xp.clip(rows[:, at], -1.0, 1.0) + 1.0)

        if self.offset is not None:
            low, high = self.offset
            offset, at = low + (high - low) * share(), at + 1
        if self.weighted:
            weight, at = weight * share(), at + 1
        if self.kept is not None:
            # The draw of a row is a column of the data: the same rows are kept in every release that names the same
            # interval.
            draw = share()
            weight = weight * xp.astype((draw >= self.kept[0]) & (draw < self.kept[1]), weight.dtype)
        return offset, weight

    def _check_coefficients(self, coefficients: Floats) -> None:
        """Raise if the coefficients do not have the shape (width,)."""
        if coefficients.shape != (self.width,):
            raise ValueError(f"there must be {self.width} coefficients, got shape {coefficients.shape}")


class Residuals(RegressionRows):
    """Rows with the residual of their response at public coefficients, clipped to a bound and divided by it.

    Parameters
    ----------
    coefficients : array of shape (width,)
        The coefficients w of the features u, in the units of the preprocessed features.
    bound : float
        The largest absolute residual, in the units of the response. At least 1 in logistic models, where it then clips
        nothing.
    family : {"linear", "logistic", "poisson"}
        The model, and the meaning of a response in [-1, 1]: a number; a class (above 0 is the second one); a count from
        0 to `most`.
    most : float
        The count for a response of 1 in Poisson models.
    columns, clip, lower, upper, center, scale, intercept, count, offset, weighted, kept
        As for `RegressionRows`.
    """

    coefficients: FloatArray
    bound: Positive = 1.0
    family: Family = "linear"
    most: Positive = 1.0

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        self._check_coefficients(self.coefficients)
        if self.family == "logistic" and self.bound < 1:
            raise ValueError(
                f"residuals of a logistic model are within 1: their bound must be at least 1, got {self.bound:g}"
            )
        return self

    @cached_property
    def _slopes(self) -> Floats:
        """Coefficients of x: x = s u/c, so that x.(c w) = s u.w."""
        return np.asarray(self.clip * self.coefficients)

    def predictor(self, rows: Entered) -> Array:
        """The linear predictor of every row, shape (rows,). That of a linear model has no offset: the offset is
        subtracted from the response.
        """
        # `fold` and not a matrix product: the residual is clipped next, so that its bits must depend on the row alone.
        own = fold(rows.x * constant_on(self._slopes, rows.x)[None, :])
        return own if rows.offset is None or self.family == "linear" else own + rows.offset

    def residuals(self, rows: Entered) -> tuple[Array, Array]:
        """For each row the residual over its bound, in [-1, 1], and the expectation of the model (a probability, a
        rate).
        """
        x, predictor, response = rows.x, self.predictor(rows), rows.response
        xp = array_namespace(x)
        if self.family == "linear":
            expected = predictor
            # The response is multiplied by the same s as the features, so that the model y = u.w holds for the clipped
            # row.
            gap = rows.shrunk * (response if rows.offset is None else response - rows.offset) - predictor
        else:
            # `exponential` is made of elementwise operations, which round every row by itself.
            growth = exponential(xp.clip(predictor, -_STEEPEST, _STEEPEST))
            if self.family == "logistic":
                expected = growth / (1.0 + growth)
                gap = xp.astype(response > 0, x.dtype) - expected
            else:
                expected = growth
                # The response in [-1, 1] as a count from 0 to `most`.
                gap = 0.5 * self.most * (response + 1.0) - growth
        return xp.clip(gap / self.bound, -1.0, 1.0), expected


class ResidualGradient(Residuals):
    """The sum over units of (x r, q r^2), r the clipped residual over its bound: gradient and size of the residuals.

    Sensitivity. By the sphere lemma norm(x) = 1. With k = x.x' the square of the distance is r^2 + r'^2 - 2 k r r' +
    q^2 (r^2 - r'^2)^2, which is linear in k. So the worst pair has x' = x or x' = -x. That leaves points (t, q t^2) of
    the parabola with t = r and t' = r' or -r'. By the parabola lemma D = 2, as for the gradient alone. Adding or
    removing a unit moves the sum by at most sqrt(1 + q^2).

    Parameters
    ----------
    coefficients, bound, family, most and the other parameters
        As for `Residuals`.
    """

    name: ClassVar[str] = "residual_gradient"
    adds_in_pieces: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """width + 1, and one for the count."""
        return self.width + 1 + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + SQUARE**2 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: gradient, size of the residuals, count."""
        rows = self.design(block)
        r, _expected = self.residuals(rows)
        xp = array_namespace(r)
        # After the clip of r nothing is decided about a row any more, so that matrix products over rows may round.
        weighted = r * rows.weight
        gradient = products(weighted[:, None], rows.x)[0, :]
        size = SQUARE * xp.reshape(added(weighted * r), (1,))
        return counted(xp.concat([gradient, size]), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, float]:
        """A release as (sum of u r, sum of r^2), in the units of features and response."""
        gradient = self.clip * self.bound * release[: self.width]
        return gradient, self.bound**2 * float(release[self.width]) / SQUARE


class ResidualMoment(Residuals):
    """The sum over units of z z' for z = (x, a r)/sqrt(1 + a^2), in isometric coordinates.

    The release holds the second moments of the features, the gradient, and the size of the residuals. At coefficients
    of zero it is the joint moment of features and response. a is `response_weight`. Only linear models: their Hessian
    does not depend on the coefficients.

    Sensitivity. norm(z) <= 1, so the contributions Z are positive semidefinite of Frobenius norm at most 1. For two of
    them norm(Z - W)^2 <= 2 - 2 tr(Z W) <= 2. So D = sqrt(2), attained by z orthogonal to w, which a <= 1 allows. Adding
    or removing a unit moves the sum by at most 1. The noise of the gradient is (1 + a^2)/a times the planned noise in
    units of c and the bound: at a = 1 twice as much, which is the cost of the gradient alone. Averages over a unit's
    rows have trace at most 1, so that sums round no worse than planned.

    Parameters
    ----------
    response_weight : float
        a, the weight of the residual beside the features.
    coefficients, bound and the other parameters
        As for `Residuals`; `family` is "linear".
    """

    name: ClassVar[str] = "residual_moment"
    adds_in_pieces: ClassVar[bool] = True
    response_weight: float = Field(default=1.0, ge=0.01, le=1)
    family: Literal["linear"] = "linear"

    @property
    def size(self) -> int:
        """The distinct entries of a symmetric matrix of order width + 1, and one for the count."""
        return coordinates.size(self.width + 1) + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        """The packed sum of z z' over a block, and the count."""
        rows = self.design(block)
        r, _expected = self.residuals(rows)
        xp = array_namespace(r)
        z = xp.concat([rows.x, self.response_weight * r[:, None]], axis=1)
        # Rows times the root of their weight: the gram matrix is then the weighted sum of z z'.
        z = z * xp.sqrt(rows.weight / (1 + self.response_weight**2))[:, None]
        return counted(packed(gram(z)), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats, float]:
        """A release as (sum of u u', sum of u r, sum of r^2), in the units of features and response."""
        Z = coordinates.unpack(release[: coordinates.size(self.width + 1)], self.width + 1)
        c, b = self.scales
        return c**2 * Z[:-1, :-1], c * b * Z[:-1, -1], b**2 * float(Z[-1, -1])

    @property
    def scales(self) -> tuple[float, float]:
        """The factors from a release to features and residuals: one entry of x and of r is worth this much in z."""
        root = math.sqrt(1 + self.response_weight**2)
        return self.clip * root, self.bound * root / self.response_weight


class NewtonStep(Residuals):
    """The sum over units of (x r, b h x x'): gradient and Hessian of the log-likelihood, in one release.

    r is the clipped residual over its bound. h is 4 p (1 - p) in logistic models. In Poisson models h is the rate over
    `rate_bound`, clipped to 1. x x' is in isometric coordinates. b is `curvature`, at most `CURVATURE` = 1.2420...

    Sensitivity, logistic. A class is 0 or 1, so h = 4 t (1 - t) with t = |r|. By the sphere lemma norm(x) = 1. With k =
    |x.x'| and the worse sign of the gradients the square of the distance is at most

        t^2 + t'^2 + 2 t t' k + B^2 + B'^2 - 2 B B' k^2,  B = 4 b t (1 - t).

    (i) If t t' >= 2 B B', the expression grows with k up to k = 1. There it is s^2 + 16 b^2 d^2 (1 - s)^2 with s = t +
    t' and d = t - t'. For s <= 1 and |d| <= s it is at most 1 + b^2 < 4. For s = 2 - u and |d| <= u it is (2 - u)^2 +
    16 b^2 u^2 (1 - u)^2 <= 4 if b^2 <= (4 - u)/(16 u (1 - u)^2). The least value of the right-hand side on (0, 1) is at
    u = 3 - sqrt(7): b^2 <= (37 + 14 sqrt(7))/48.

    (ii) Otherwise its largest value in k is g(t) + g(t') + T, with g(t) = t^2 + B^2 <= 1.82 and T = t t' / (32 b^2 (1 -
    t)(1 - t')) < t t'. The square grows with b, so that the largest b suffices. If t and t' are at most 0.8, T <=
    0.64/(32 b^2 0.04) < 0.33, and the sum is at most 3.97. If one is above 0.8, its g is at most 1.28, and g(t') + t'
    <= 2.39: the sum is at most 3.67.

    So D = 2, as for the gradient alone; attained by x' = x, r = 1, r' = -1. Adding or removing a unit: the root of the
    largest g(t).

    With `weighed` rows the predictor is that of the whole row u, and a long row has the weight s^2 in gradient and
    Hessian alike: u r s^2/c and h u u' s^2/c^2 are (s r) x and h x x'. Weights that depend on features alone leave the
    maximiser unbiased, whereas clipped features do not. Proof of the same bounds: t = s |r| <= |r| replaces t, and B is
    as before. The first expression of this proof grows with t and with t' for every k, and so does t^2 + B^2, so that
    both are largest at s = 1.

    Sensitivity, Poisson. h is not tied to r. For norm(x) = 1 the square is (largest over r) 2 + 2 k + b^2 (h^2 + h'^2 -
    2 h h' k^2), which is convex in h and in h'. With (h, h') = (1, 0) it is 4 + b^2. With (1, 1) it is at most max(4, 2
    + 2 b^2 + 1/(2 b^2)), which is less than 4 + b^2 for b^2 <= 1.7. So D = sqrt(4 + b^2). Adding or removing a unit:
    sqrt(1 + b^2).

    Parameters
    ----------
    family : {"logistic", "poisson"}
        The model.
    curvature : float
        b, the weight of the Hessian beside the gradient.
    rate_bound : float
        The rate at which h reaches 1 in Poisson models.
    weighed : bool
        Whether a long row has less weight. If not, its features are clipped.
    coefficients, bound, most and the other parameters
        As for `Residuals`.
    """

    name: ClassVar[str] = "newton_step"
    adds_in_pieces: ClassVar[bool] = True
    family: Literal["logistic", "poisson"] = "logistic"
    curvature: float = Field(default=CURVATURE, gt=0.01, le=CURVATURE)
    rate_bound: Positive = 1.0
    weighed: bool = False

    @property
    def size(self) -> int:
        """width, the distinct entries of the Hessian, and one for the count."""
        return self.width + coordinates.size(self.width) + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2.0 if self.family == "logistic" else math.sqrt(4 + self.curvature**2)
        own = _farthest(self.curvature) if self.family == "logistic" else 1 + self.curvature**2
        return math.sqrt(own + int(self.count))

    def predictor(self, rows: Entered) -> Array:
        """The linear predictor of every clipped row, or of every whole row u if rows are `weighed`."""
        if not self.weighed:
            return super().predictor(rows)
        own = fold(rows.x * constant_on(self._slopes, rows.x)[None, :]) / rows.shrunk
        return own if rows.offset is None else own + rows.offset

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: gradient, packed Hessian, count."""
        rows = self.design(block)
        r, expected = self.residuals(rows)
        x, weights = rows.x, rows.weight
        xp = array_namespace(x)
        # h in [0, 1]: 4 p (1 - p), or the rate clipped at its bound. The clip makes the sensitivity finite and biases
        # the Hessian of rows with larger rates.
        if self.family == "logistic":
            bent = 4.0 * expected * (1.0 - expected)
        else:
            bent = xp.clip(expected / self.rate_bound, 0.0, 1.0)
        # After the clips nothing is decided about a row any more, so that matrix products over rows may round.
        pull = r * weights * rows.shrunk if self.weighed else r * weights
        gradient = products(pull[:, None], x)[0, :]
        # Rows times the root of b h and of their weight: the gram matrix is the weighted sum of b h x x'.
        root = x * xp.sqrt(self.curvature * bent * weights)[:, None]
        return counted(xp.concat([gradient, packed(gram(root))]), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (gradient, Hessian) of the log-likelihood, in the units of features and response."""
        gradient = self.clip * self.bound * release[: self.width]
        packed = release[self.width : self.width + coordinates.size(self.width)]
        return gradient, self.hessian_scale * coordinates.unpack(packed, self.width)

    @property
    def hessian_scale(self) -> float:
        """The factor from an entry of a release to an entry of the Hessian."""
        return self.clip**2 / self.curvature * (0.25 if self.family == "logistic" else self.rate_bound)


class CountStep(NewtonStep):
    """The sum over units of (s x r, r^2, b h x x'): a Newton step of a Poisson model, weighted by the length of rows.

    x is the clipped row s u/c. In contrast to the other statistics the predictor is that of the whole row u. So the
    release holds gradient and Hessian of the log-likelihood in which a row has the weight s^2: u r s^2/c and h u u'
    s^2/c^2. Weights that depend on features alone leave the maximiser unbiased, whereas clipped features would not.
    r is the residual over its bound, clipped, and h the rate over `rate_bound`, clipped to 1; where r is clipped, h is
    the count in place of the rate. The mean of r^2 gives the
    dispersion of the counts, and the clip of the next round. b is `curvature`.

    With a `shape` a > 0 the model is the negative binomial, with variance m + a m^2 at mean m: the residual is (y - m)/
    (1 + a m) and h is m/(1 + a m), both before their clips. The proof is for any r in [-1, 1] and h in [0, 1].

    Sensitivity: that of `NewtonStep`, D = sqrt(4 + b^2); the entry r^2 is free. Proof. By the sphere lemma norm(x) = 1.
    Let t = s r, so that |t| <= |r| <= 1. With k = x.x' the square of the distance is

        A + b^2 (h^2 + h'^2 - 2 h h' k^2),    A = t^2 + t'^2 - 2 k t t' + (r^2 - r'^2)^2.

    A is at most t^2 + t'^2 + 2 |k t t'| + (r^2 - r'^2)^2, which is largest at |t| = |r| and |t'| = |r'|. Since |r^2 -
    r'^2| <= 1, r^2 + r'^2 + (r^2 - r'^2)^2 <= 2 max(r^2, r'^2) <= 2, and so A <= 2 + 2 |k|. This is the bound of the
    gradient alone in the proof of `NewtonStep`, and the rest of that proof holds as it stands. Adding or removing a
    unit moves the sum by at most sqrt(1 + 1 + b^2).

    Parameters
    ----------
    shape : float
        a, the shape of a negative binomial; 0 for the Poisson model.
    coefficients, bound, most, rate_bound, curvature and the other parameters
        As for `NewtonStep`; `family` is "poisson".
    """

    name: ClassVar[str] = "count_step"
    family: Literal["poisson"] = "poisson"
    weighed: Literal[True] = True
    shape: float = Field(default=0.0, ge=0, le=1e6)

    @property
    def size(self) -> int:
        """One more than `NewtonStep`."""
        return super().size + 1

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return super().sensitivity(adjacency)
        return math.sqrt(2 + self.curvature**2 + int(self.count))

    def residuals(self, rows: Entered) -> tuple[Array, Array]:
        """As in `Residuals`; with a shape both are divided by 1 + a m."""
        if not self.shape:
            return super().residuals(rows)
        xp = array_namespace(rows.x)
        rate = exponential(xp.clip(self.predictor(rows), -_STEEPEST, _STEEPEST))
        divisor = 1.0 + self.shape * rate
        gap = (0.5 * self.most * (rows.response + 1.0) - rate) / divisor
        return xp.clip(gap / self.bound, -1.0, 1.0), rate / divisor

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: gradient, size of the residuals, packed Hessian, count."""
        rows = self.design(block)
        r, expected = self.residuals(rows)
        x, weights = rows.x, rows.weight
        xp = array_namespace(x)
        count = 0.5 * self.most * (rows.response + 1.0)
        # Where the residual is clipped the rate is far off, and the count itself is the better estimate of the rate at
        # the maximum. As in `NewtonStep`, the clip of h makes the sensitivity finite.
        curved = xp.where(xp.abs(r) < 1.0, expected, count / (1.0 + self.shape * count))
        bent = xp.clip(curved / self.rate_bound, 0.0, 1.0)
        # After the clips nothing is decided about a row any more, so that matrix products over rows may round.
        weighted = r * weights
        gradient = products((weighted * rows.shrunk)[:, None], x)[0, :]
        size = xp.reshape(added(weighted * r), (1,))
        # Rows times the root of b h and of their weight, as in `NewtonStep`; x holds the factor s already.
        root = x * xp.sqrt(self.curvature * bent * weights)[:, None]
        return counted(xp.concat([gradient, size, packed(gram(root))]), block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (gradient, Hessian) of the weighted log-likelihood, in the units of features and response."""
        return super().split(np.delete(release, self.width))

    def mean_square(self, release: Floats) -> float:
        """The sum of the squared clipped residuals, in squared counts."""
        return self.bound**2 * float(release[self.width])


def _farthest(curvature: float) -> float:
    """The largest t^2 + 16 b^2 t^2 (1 - t)^2 on [0, 1], for b = `curvature`."""
    # The derivative over t is 2 + 32 b^2 (1 - t)(1 - 2 t), a polynomial of degree 2; t = 0 is the minimum.
    stationary = np.roots([4 * 16 * curvature**2, -6 * 16 * curvature**2, 2 * 16 * curvature**2 + 2])
    inside = [float(t.real) for t in stationary if abs(t.imag) < 1e-12 and 0 <= t.real <= 1]
    # The factor covers the rounding of the roots.
    return max(t**2 + 16 * (curvature * t * (1 - t)) ** 2 for t in [*inside, 1.0]) * (1 + 1e-12)


def counted(sums: Array, block: Units, count: bool) -> Array:
    """Sums with the number of units appended, if `count` is set.

    Parameters
    ----------
    sums : array of shape (n,)
        The sum over a block.
    block : Units
        The units of the block.
    count : bool
        Whether to append their number.
    """
    if not count:
        return sums
    xp = array_namespace(sums)
    return xp.concat([sums, xp.full_like(sums[:1], float(len(block)))])
