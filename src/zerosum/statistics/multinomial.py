"""Gradient and Hessian of a multinomial logistic model at public coefficients.

Rows are preprocessed as in `zerosum.statistics.regression`: x = s u/c with norm(x) <= 1, and a class from 0 to K - 1 as
the response. With coefficients W (K - 1, width) and class 0 as the reference, the probabilities of a row are

    p_k = exp(u.W_k)/(1 + sum_l exp(u.W_l)),  k = 1..K - 1.

With e the indicators of the row's class (zeros for class 0), its contribution is the pair (s (e - p) x x, b A x xx'),
where x between a vector and a vector or matrix is the Kronecker product, and A = diag(p) - pp'.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import INSIDE, constant_on, exponential, fold, gram, products
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.regression import RegressionRows, counted

# The largest b of the proof, reduced by 1e-12 so that rounding cannot put it above the limit.
CURVATURE = 2 * (1 - 1e-12)
# Linear predictors are clipped at this distance below the largest of a row: exp(-60) = 9e-27, far below the rounding of
# a sum with 1. It is also the limit of `exponential`.
_RARE = 60.0


class MultinomialStep(RegressionRows):
    """The sum over units of gradient and Hessian of the multinomial log-likelihood, in one release.

    A row contributes (s (e - p) x, b A x x') as Kronecker products (module docstring): (K - 1) width numbers, and the
    Hessian in isometric coordinates. A long row has the weight s^2 in both, which leaves the maximiser unbiased
    (`NewtonStep`). A unit with several rows contributes the mean over its rows.

    Sensitivity. Let r be the vector of all K residuals, the reference included, and S = sum_k p_k^2 over all K classes.
    Leaving out the reference class leaves out coordinates, and A becomes a principal submatrix of that of all classes:
    neither norms nor distances grow, and A stays positive semidefinite. With y the class of the row and C the sum of
    the p_k^3,

        norm(r)^2 = 1 - 2 p_y + S <= 1 + S,
        norm(A)^2 = S - 2 C + S^2 <= (1 - S) min(S, 1 - S).

    The second line has two bounds on C. (i) C >= S^2 by Cauchy's inequality, as p_k^2 = p_k^(1/2) p_k^(3/2) and the p_k
    add up to 1. (ii) C >= (3 S - 1)/2, as C - (3 S - 1)/2 = sum_k p_k (1 - p_k) (1/2 - p_k). No term is negative if all
    p_k are at most 1/2. If one is 1 - q > 1/2, its term is -q (1 - q) (1/2 - q), and the others, with p_k <= q and sum
    q, add up to at least q (1 - q) (1/2 - q).

    s <= 1 and norm(x) <= 1 reduce norms only. Since min(S, 1 - S) <= 1/2, with b^2 <= 4

        2 norm(r)^2 + b^2 norm(A)^2 <= 2 + 2 S + 2 (1 - S) = 4.

    Two contributions (g, H) and (g', H') have H and H' positive semidefinite, so their inner product is not negative:

        norm(g - g')^2 + norm(H - H')^2 <= 2 norm(g)^2 + 2 norm(g')^2 + norm(H)^2 + norm(H')^2 <= 8.

    So D = 2 sqrt(2): the Hessian costs nothing. The bound is approached by two rows of norm 1 on both sides of a
    boundary between two classes that are not the reference, with large coefficients: x' near x, the probabilities of
    one row near 1 for the first class and of the other for the second, and each row of the other class.

    Adding or removing a unit: norm(g)^2 + norm(H)^2 <= 1 + S + b^2 (1 - S) min(S, 1 - S), which rises up to S = 1/2 and
    is convex from there to S = 1: at most the larger of 3/2 + b^2/4 and 2, plus 1 for the count. (With two classes r
    has one coordinate, and D would be 2: `NewtonStep` has that model.)

    Weights in [0, 1] and offsets do not change the bound, as in `zerosum.statistics.regression`.

    Parameters
    ----------
    classes : int
        K, at least 3; the range of the response is mapped to the codes 0 to K - 1.
    coefficients : array of shape (K - 1, width)
        W, in the units of the preprocessed features.
    curvature : float
        b, the weight of the Hessian beside the gradient.
    columns, clip, lower, upper, center, scale, intercept, count, offset, weighted, kept
        As for `RegressionRows`.
    """

    name: ClassVar[str] = "multinomial_step"
    adds_in_pieces: ClassVar[bool] = True
    classes: int = Field(ge=3, le=1000)
    coefficients: FloatArray
    curvature: float = Field(default=CURVATURE, gt=0.01, le=CURVATURE)

    @model_validator(mode="after")
    def _coefficients_fit(self) -> Self:
        if self.offset is not None:
            raise ValueError("a multinomial model has no offset")
        if self.coefficients.shape != (self.classes - 1, self.width):
            raise ValueError(
                f"there must be {self.width} coefficients for each of {self.classes - 1} classes, got shape "
                f"{self.coefficients.shape}"
            )
        return self

    @property
    def order(self) -> int:
        """(K - 1) width, the number of coefficients."""
        return (self.classes - 1) * self.width

    @property
    def size(self) -> int:
        """The gradient, the distinct entries of the Hessian, and one for the count."""
        return self.order + coordinates.size(self.order) + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2 * math.sqrt(2)
        return math.sqrt(max(1.5 + self.curvature**2 / 4, 2.0) + int(self.count))

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (8 * (self.width + 1) + 3 * self.order + 4 * self.classes)

    @property
    def block_bytes(self) -> int:
        """Working memory of a block beside its rows: the Hessian and its two parts."""
        return 3 * 8 * self.order**2

    @cached_property
    def _slopes(self) -> Floats:
        """Coefficients of x for each class: u = c x/s, shape (K - 1, width)."""
        return np.asarray(self.clip * self.coefficients)

    def probabilities(self, x: Array, shrunk: Array) -> Array:
        """p of every row, the reference left out, shape (rows, K - 1).

        Parameters
        ----------
        x : array of shape (rows, width)
            Clipped rows.
        shrunk : array of shape (rows,)
            s; the predictor is that of the whole row.
        """
        xp, slopes = array_namespace(x), constant_on(self._slopes, x)
        # `fold` and not a matrix product: the bits of a row's probabilities must depend on the row alone.
        parts = [xp.zeros_like(shrunk)]
        parts += [fold(x * slopes[k, :][None, :]) / shrunk for k in range(self.classes - 1)]
        logits = xp.stack(parts, axis=1)
        # The largest predictor is subtracted, so that exp does not overflow and the sum is at least 1.
        likely = exponential(xp.clip(logits - xp.max(logits, axis=1)[:, None], -_RARE, 0.0))
        # Slightly more than the sum, so that rounding cannot put the sum of the probabilities above 1.
        return likely[:, 1:] / (fold(likely + 0.0) * INSIDE)[:, None]

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: gradient class by class, packed Hessian, count."""
        rows = self.design(block)
        x, weight = rows.x, rows.weight
        xp = array_namespace(x)
        p = self.probabilities(x, rows.shrunk)
        code = xp.round(0.5 * (self.classes - 1) * (rows.response + 1.0))
        others = constant_on(np.arange(1.0, self.classes), x)
        member = xp.astype(code[:, None] == others[None, :], x.dtype)
        # After the clips nothing is decided about a row any more, so that matrix products over rows may round.
        gradient = products((member - p) * (weight * rows.shrunk)[:, None], x)
        # A = diag(p) - p p': the blocks of its first part are gram matrices of rows times the root of p_k and of their
        # weight; the second part is the gram matrix of the Kronecker products p x.
        own = [gram(x * xp.sqrt(p[:, k] * weight)[:, None]) for k in range(self.classes - 1)]
        nothing = xp.zeros_like(own[0])
        first = xp.concat(
            [
                xp.concat([own[k] if k == other else nothing for other in range(self.classes - 1)], axis=1)
                for k in range(self.classes - 1)
            ],
            axis=0,
        )
        crossed = xp.reshape(p[:, :, None] * x[:, None, :], (x.shape[0], self.order))
        hessian = first - gram(crossed * xp.sqrt(weight)[:, None])
        sums = xp.concat([xp.reshape(gradient, (-1,)), self.curvature * packed(hessian)])
        return counted(sums, block, self.count)

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as (gradient, Hessian) of the log-likelihood, in the units of the features: shapes (order,) and
        (order, order).
        """
        hessian = release[self.order : self.order + coordinates.size(self.order)]
        return self.clip * release[: self.order], self.hessian_scale * coordinates.unpack(hessian, self.order)

    @property
    def hessian_scale(self) -> float:
        """The factor from an entry of a release to an entry of the Hessian."""
        return self.clip**2 / self.curvature
