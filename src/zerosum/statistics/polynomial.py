"""The functional mechanism: a polynomial loss, summed over units as its coefficients.

Zhang et al., "Functional mechanism: regression analysis under differential privacy" (2012). The loss of one row (x, y)
at coefficients w is f(w) = sum over j of <Lambda_j, w^(j)> with Lambda_j = a_j(y) x^(j). One release holds the sums of
all Lambda_j, from which the loss can be minimised without further releases. Rows are processed as in
`zerosum.statistics.regression`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.symmetric import packed, powers
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.regression import RegressionRows, counted

# The largest number of boxes kept in one turn of branch and bound. A table that needs more gets a less sharp bound.
# Chosen by hand; no benchmark recorded.
_MOST_BOXES = 100_000
# The largest number of entries of a release. Chosen by hand; no benchmark recorded.
_MOST_SIZE = 1_000_000
# The relative distance of the bound on the squared distance above a value that is attained. It adds at most half of
# this to the noise. Chosen by hand.
_PRECISION = 1e-3
# The largest degree of the loss in w and in y. Chosen by hand; no benchmark recorded.
_MOST_DEGREE = 6


class PolynomialCoefficients(RegressionRows):
    """The sum over units of Lambda_0, ..., Lambda_J for the loss f(w) = sum over j of <Lambda_j, w^(j)>.

    Lambda_j = a_j(y) x^(j): the j-fold symmetric power of the features, times a polynomial a_j(y) = sum over k of
    `table`[j, k] y^k of the response. Squared error is [[0, 0, 1], [0, -2, 0], [1, 0, 0]]. Every Lambda_j is released
    in isometric coordinates, multiplied by `weights`[j] (a weight of zero leaves it out), all in one release.

    Sensitivity. By the sphere lemma (`regression`) norm(x) = 1, and with k = x.x' the square of the distance is

        F(y, y', k) = sum over j of weights[j]^2 (a_j(y)^2 + a_j(y')^2 - 2 a_j(y) a_j(y') k^j),

    a polynomial on the cube [-1, 1]^3. `distance_bound` bounds its maximum from above by branch and bound. On a box of
    half widths e around m it is at most F(m) plus e times bounds of the partial derivatives on the box. Boxes that
    cannot hold the maximum are dropped and the others cut, until the bound is within a thousandth of an attained value.
    Adding or removing a unit: the same with one point, sum of weights[j]^2 a_j(y)^2. If rows have weights of their own,
    or some rows do not count, replacing a unit may cost as much as removing it: the larger of the two bounds is used.

    Parameters
    ----------
    table : array of shape (J + 1, K + 1)
        Coefficients of a_j(y); row j belongs to degree j in w, column k to y^k.
    weights : array of shape (J + 1,)
        The weight of each degree in the release. A larger weight gives that degree less noise.
    columns, clip, lower, upper, center, scale, intercept, count, weighted, kept
        As for `RegressionRows`; offsets are not allowed.
    """

    name: ClassVar[str] = "polynomial_coefficients"
    table: FloatArray
    weights: FloatArray

    @model_validator(mode="after")
    def _table_fits(self) -> Self:
        if self.table.ndim != 2 or not 2 <= len(self.table) <= _MOST_DEGREE + 1 or self.table.shape[1] < 1:
            raise ValueError(
                f"the table must have a row for each degree, from 0 to at most {_MOST_DEGREE}, got shape "
                f"{self.table.shape}"
            )
        if self.table.shape[1] > _MOST_DEGREE + 1 or np.max(np.abs(self.table)) > 1e6:
            raise ValueError(
                f"degrees in the response go to {_MOST_DEGREE} and coefficients to 1e6, got degree "
                f"{self.table.shape[1] - 1} and a coefficient of {np.max(np.abs(self.table)):g}"
            )
        if self.weights.shape != (len(self.table),) or np.any(self.weights < 0) or np.max(self.weights) > 1e6:
            raise ValueError(
                f"weights must hold a number from 0 to 1e6 for each of the {len(self.table)} degrees, got "
                f"{self.weights.tolist()}"
            )
        if self.size > _MOST_SIZE:
            raise ValueError(f"a loss of this degree has {self.size} coefficients, more than {_MOST_SIZE}")
        if self.offset is not None:
            raise ValueError(f"a polynomial in x.w alone has no offset, got {self.offset}")
        if not self._norm2 > 1e-12:
            raise ValueError(
                f"nothing of the loss is left: its table or the weights are zero, got weights {self.weights.tolist()}"
            )
        return self

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees that are released."""
        return tuple(j for j in range(len(self.table)) if self.weights[j] > 0 and np.any(self.table[j] != 0))

    def lengths(self) -> tuple[int, ...]:
        """The number of entries of each released degree."""
        return tuple(coordinates.size(self.width, j) if j else 1 for j in self.degrees)

    @property
    def size(self) -> int:
        """The entries of all released degrees, and one for the count."""
        return sum(self.lengths()) + int(self.count)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (8 * (self.width + 1) + 3 * max(self.lengths()))

    @cached_property
    def _norm2(self) -> float:
        """The bound on the largest squared norm of a contribution."""
        return distance_bound(self.table, self.weights, pair=False)

    @cached_property
    def _distance2(self) -> float:
        """The bound on the largest squared distance of two contributions."""
        return distance_bound(self.table, self.weights, pair=True)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound described in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            zero_too = self.weighted or self.kept is not None
            return math.sqrt(max(self._distance2, self._norm2) if zero_too else self._distance2)
        return math.sqrt(self._norm2 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, degree after degree, then the count."""
        rows = self.design(block)
        x, response, own = rows.x, rows.response, rows.weight
        xp = array_namespace(x)
        parts = []
        for j in self.degrees:
            value = xp.zeros_like(response)
            # Horner's rule for a_j(y).
            for coefficient in self.table[j, ::-1].tolist():
                value = value * response + coefficient
            value = value * own * float(self.weights[j])
            # Degrees 0 to 2 are sums, one product and one matrix product; only higher degrees lay out the powers of
            # each row.
            if j == 0:
                parts.append(xp.reshape(xp.sum(value), (1,)))
            elif j == 1:
                parts.append(xp.matmul(value[None, :], x)[0, :])
            elif j == 2:
                parts.append(packed(xp.matmul(xp.matrix_transpose(x * value[:, None]), x)))
            else:
                parts.append(xp.matmul(value, powers(x, j)))
        return counted(xp.concat(parts), block, self.count)

    def split(self, release: Floats) -> dict[int, Floats]:
        """A release as the packed coefficient arrays by degree, in the units of the features."""
        parts, start = {}, 0
        for j, length in zip(self.degrees, self.lengths(), strict=True):
            parts[j] = release[start : start + length] * self.worth(j)
            start += length
        return parts

    def worth(self, degree: int) -> float:
        """The factor from an entry of a release to a coefficient of that degree: x = u/c, so that x^(j) is
        u^(j)/c^j.

        Parameters
        ----------
        degree : int
            j, one of `degrees`.
        """
        return float(self.clip**degree / self.weights[degree])


def distance_bound(table: Floats, weights: Floats, *, pair: bool) -> float:
    """An upper bound, to a thousandth, of the largest squared distance of two contributions, or of one from zero.

    Parameters
    ----------
    table : array of shape (J + 1, K + 1)
        Coefficients of a_j(y).
    weights : array of shape (J + 1,)
        The weights of the degrees.
    pair : bool
        Whether to bound the distance of two contributions; else the norm of one.

    Examples
    --------
    >>> squares = np.array([[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]])
    >>> weights = np.array([1.0, np.sqrt(0.5), 1.0])
    >>> round(distance_bound(squares, weights, pair=True), 2)  # z z' of z = (x, y): 2 (1 + 1)^2
    8.01
    """
    # weights[j] a_j(y), so that the weights need not appear below.
    scaled = weights[:, None] * table
    power = np.arange(len(table))
    order = np.arange(table.shape[1])
    # Bounds on [-1, 1] of |a_j| and of its derivative: the sums of absolute coefficients.
    most = np.sum(np.abs(scaled), axis=1)
    steep = np.sum(np.abs(scaled) * order, axis=1)

    def values(points: Floats) -> Floats:
        one = points[:, :1] ** order @ scaled.T
        if not pair:
            return np.asarray(np.sum(one**2, axis=1))
        two = points[:, 1:2] ** order @ scaled.T
        return np.asarray(np.sum(one**2 + two**2 - 2 * one * two * points[:, 2:] ** power, axis=1))

    def slopes(points: Floats, half: float) -> Floats:
        """Bounds of the partial derivatives on boxes of that half width: their values and how fast these change."""
        one, two = points[:, :1] ** order @ scaled.T, points[:, 1:2] ** order @ scaled.T
        k = np.minimum(np.abs(points[:, 2:]) + half, 1.0)
        rise = _derivative(points[:, :1], scaled), _derivative(points[:, 1:2], scaled)
        # On the box |a_j| is at most its value at the centre plus the half width times the largest derivative.
        near = [np.minimum(np.abs(a) + half * steep, most) for a in (one, two)]
        # A bound of the second derivative of a_j on [-1, 1].
        bent = np.sum(np.abs(scaled) * order * np.maximum(order - 1, 0), axis=1)
        tilt = [np.minimum(np.abs(a) + half * bent, steep) for a in rise]
        # dF/dy = sum of 2 a_j'(y) (a_j(y) - a_j(y') k^j), bounded by absolute values; dF/dk likewise.
        apart = near[0] + near[1] * k**power, near[1] + near[0] * k**power
        along = 2 * near[0] * near[1] * power * k ** np.maximum(power - 1, 0)
        return np.stack(
            [np.sum(2 * tilt[0] * apart[0], axis=1), np.sum(2 * tilt[1] * apart[1], axis=1), np.sum(along, axis=1)],
            axis=1,
        )

    # A coordinate on which F does not depend is fixed at 0, which saves boxes.
    varies = bool(np.any(scaled[:, 1:] != 0))
    moving = np.array([varies, varies and pair, pair], dtype=float)
    steps = np.linspace(-0.9, 0.9, 10)
    boxes = np.stack(np.meshgrid(*[steps if m else [0.0] for m in moving], indexing="ij"), axis=-1).reshape(-1, 3)
    half = 0.1
    # The maximum is often attained at a corner of the cube.
    best = float(np.max(values(np.sign(boxes) * moving)))
    # Branch and bound. `best` is a value of F that is attained, `bound` an upper bound on each box. The global
    # optimisers of scipy return values that are attained, not bounds from above: a sensitivity cannot rest on them.
    while True:
        middle = values(boxes)
        best = max(best, float(np.max(middle)))
        bound = middle + half * np.sum(slopes(boxes, half) * moving, axis=1)
        keep = bound > best * (1 + _PRECISION)
        if not np.any(keep):
            return best * (1 + _PRECISION)
        # Stop early with the valid, less sharp bound of the boxes that are left.
        if half < 1e-5 or np.sum(keep) > _MOST_BOXES:
            return float(np.max(bound[keep]))
        boxes = boxes[keep]
        offsets = np.array(np.meshgrid(*[[-1, 1] if m else [0] for m in moving], indexing="ij")).reshape(3, -1).T
        # Each box is cut into halves along every coordinate that moves.
        boxes = (boxes[:, None, :] + half / 2 * offsets[None, :, :]).reshape(-1, 3)
        half /= 2


def _derivative(points: Floats, scaled: Floats) -> Floats:
    """a_j'(y) of all degrees at points y, shape (points, J + 1).

    Parameters
    ----------
    points : array of shape (points, 1)
        Values of y.
    scaled : array of shape (J + 1, K + 1)
        Coefficients of a_j, times the weights.
    """
    order = np.arange(scaled.shape[1])
    return np.asarray(points ** np.maximum(order - 1, 0) @ (scaled * order).T)
