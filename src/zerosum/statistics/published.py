"""Statistics of the papers' programs, where the published form differs from what our own programs release.

They are as safe as any other statistic: bounded, with a proof of the exact sensitivity, which is not always the
sensitivity that the papers print.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import (
    INSIDE,
    Exact,
    added,
    clip_rows,
    constant_on,
    doubles,
    exponential,
    fold,
    gram,
    products,
    sized,
)
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, Positive
from zerosum.statistics.network import TwoLayerGradient
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.topics import PairMoment, TripleMoment

# Largest entry of an unmixing matrix, of a bias and of a projection, so that products of three of them stay far from
# overflow. The papers restart the iteration at 1e8.
LARGEST_ENTRY = 1e9
# Largest |z| of a time point. tanh(z/2) is constant far below it, and its square times that of a weight is finite.
_LARGEST_SOURCE = 1e60
# Largest argument of `exponential`. tanh(30) is 1 in double precision.
_STEEPEST = 60.0
# Most columns of a third moment: 171 700 numbers. Chosen by hand.
_MOST_COLUMNS = 100
# Added to a squared norm in units of its terms, which may cancel: more than their rounding (64 terms of 2^-53).
_CANCELLATION = 2.0**-44


class DistinctSecondMoment(Ranged):
    """The sum over units of the distinct entries (i <= j) of the mean of x x' over the unit's rows, x clipped to c.

    capePCA and capeDJICA perturb the entries on and above the diagonal alike. Isometric coordinates
    (`zerosum.statistics.moments.SecondMoment`) put sqrt(2) times less noise on the entries above the diagonal at the
    same sensitivity.

    Sensitivity. Let Z and W be the contributions of two units as matrices: positive semidefinite, of Frobenius norm at
    most c^2. The distinct entries of a symmetric matrix have at most its Frobenius norm, and norm(Z - W)^2 = norm(Z)^2
    + norm(W)^2 - 2 tr(Z W) <= 2 c^4, because the trace of a product of positive semidefinite matrices is not negative.
    D = sqrt(2) c^2, attained by rows c e_1 and c e_2, whose difference is diagonal. Added or removed: c^2, attained by
    c e_1. The papers use c^2 for a replaced unit, which is too small.

    Parameters
    ----------
    columns, clip, lower, upper
        d, c and the public ranges, as for `Ranged`.
    """

    name: ClassVar[str] = "distinct_second_moment"
    adds_in_pieces: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """d (d + 1)/2."""
        return coordinates.size(self.columns)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return (math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0) * self.clip**2

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: four arrays of d doubles."""
        return 8 * 4 * self.columns

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, shape (size,), row by row of the upper triangle."""
        rows = clip_rows(self.normalise(block), self.clip)
        xp = array_namespace(rows)
        # The gram matrix of rows times the root of their weight is the sum of weight x x'.
        root = rows if block.offsets is None else rows * xp.sqrt(block.row_weights(rows))[:, None]
        return packed(gram(root)) / constant_on(self._roots, root)

    @cached_property
    def _roots(self) -> Floats:
        """The factors of isometric coordinates: 1 on the diagonal, sqrt(2) above it."""
        return coordinates.layout(self.columns, 2)[1]

    def matrix(self, release: Floats) -> Floats:
        """A release of shape (size,) as a symmetric matrix (d, d)."""
        return coordinates.unpack(release * self._roots, self.columns)


class DistinctThirdMoment(Ranged):
    """The sum over units of the distinct entries (i <= j <= k) of the mean over its rows of t t t - v c(t).

    t is a row clipped to norm c and divided by c, v is `variance` over c^2, and c(t)_ijk = t_i d_jk + t_j d_ik + t_k
    d_ij. For rows of a mixture of spherical Gaussians of this variance the mean of t t t - v c(t) is the sum of weight
    a a a over the components' means a. capeAGN perturbs the distinct entries alike; isometric coordinates
    (`zerosum.statistics.mixture.ThirdMoment`) put up to sqrt(6) times less noise on the others.

    Sensitivity. Let f(t) be the distinct entries for one row t of d columns, p_i = t_i^2 and s = norm(t)^2 <= 1. Adding
    up the squares of the entries iii, iij and ijk gives

        norm(f(t))^2 = sum_i (a p_i^2 + p_i^3/3) + s^3/6 - 2 v s^2 + (d + 8) v^2 s,    a = s/2 - 4 v.

    For given s the sum over i is largest at p = (s, 0, ..., 0) or at p = (s/d, ..., s/d). Proof: two entries with the
    sum q and the product r contribute a (q^2 - 2 r) + q^3/3 - q r, which is linear in r with the slope -(2 a + q). So
    at a maximum positive entries may be taken as equal, to s/m each. With 1 < m < d the pairs of two positive entries
    need 2 a + 2 s/m <= 0, and those of a positive and a zero entry 2 a + s/m >= 0, which is impossible. Therefore
    norm(f)^2 is at most the larger of the cubics

        s^3 - 6 v s^2 + (d + 8) v^2 s    and    s^3 (d + 1)(d + 2)/(6 d^2) - 2 v s^2 (d + 2)/d + (d + 8) v^2 s

    on [0, 1], which is the squared sensitivity R^2 for a unit added or removed. f is odd, so D = 2 R for a replaced
    unit, attained by t and -t. A unit of several rows contributes a mean, which lies in the convex hull. The paper uses
    2 + 6 d v, which is safe but too large; as an L2 distance of the whole tensor the bound would be 2 sqrt(1 - 6 v + (3
    d + 6) v^2).

    Rounding. t t t and v c(t) are summed separately, and their norms together are at most 1 + v sqrt(d + 8). The slack
    is that of terms of this size.

    Parameters
    ----------
    columns : int
        d, the number of columns, at most 100.
    clip : float
        c, the largest norm of a row.
    variance : float
        The variance of a component in each direction, at most c^2.
    lower, upper : array of shape (columns,), optional
        Public ranges, mapped to [-1, 1].
    """

    name: ClassVar[str] = "distinct_third_moment"
    adds_in_pieces: ClassVar[bool] = True
    variance: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _tensor_fits(self) -> Self:
        if self.columns > _MOST_COLUMNS:
            raise ValueError(f"a third moment takes at most {_MOST_COLUMNS} columns, got {self.columns}")
        if self.variance > self.clip**2:
            raise ValueError(f"variance must not exceed the squared clip of {self.clip**2:g}, got {self.variance:g}")
        return self

    @property
    def size(self) -> int:
        """d (d + 1)(d + 2)/6."""
        return coordinates.size(self.columns, 3)

    @property
    def _v(self) -> float:
        """The variance of a row divided by the clip."""
        return self.variance / self.clip**2

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring, with the slack for rounding."""
        d, v = self.columns, self._v
        last = (d + 8) * v**2
        squared = max(
            _largest_cubic(1.0, 6 * v, last),
            _largest_cubic((d + 1) * (d + 2) / (6 * d**2), 2 * v * (d + 2) / d, last),
        )
        bound = math.sqrt(squared)
        # The planned slack is that of terms of norm `bound`.
        slack = summation_slack() * (1 + v * math.sqrt(d + 8) - bound)
        return (2 * bound if adjacency is Adjacency.REPLACE_ONE else bound) + slack

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: its products of pairs, twice, and four arrays of d doubles."""
        return 8 * (2 * coordinates.size(self.columns) + 4 * self.columns)

    @property
    def block_bytes(self) -> int:
        """Working memory of a sum in bytes, of any number of rows."""
        return 8 * (coordinates.size(self.columns) * self.columns + 4 * self.size)

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, shape (size,), in the order of `zerosum.kernel.coordinates`."""
        rows = clip_rows(self.normalise(block), self.clip) / self.clip
        xp = array_namespace(rows)
        weighted = rows if block.offsets is None else rows * block.row_weights(rows)[:, None]
        first, second = (constant_on(each, rows) for each in coordinates.layout(self.columns, 2)[0])
        pairs = xp.take(weighted, first, axis=1) * xp.take(rows, second, axis=1)
        # Sums over units begin here: rows of `cubes` are pairs i <= j, its columns k.
        cubes, total = products(pairs, rows), added(weighted)
        at, which, times = (constant_on(each, rows) for each in self._entries)
        return xp.take(xp.reshape(cubes, (-1,)), at) - self._v * times * xp.take(total, which)

    @cached_property
    def _entries(self) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        """For each distinct entry (i, j, k): its place among products of pairs and columns, and c(t)_ijk as the
        position of one entry of t and the number of times that it counts.
        """
        d = self.columns
        i, j, k = coordinates.layout(d, 3)[0]
        pair = i * d - i * (i - 1) // 2 + j - i
        # With i <= j <= k, c(t)_ijk is 3 t_i for iii, t_k for iik, t_i for ikk and 0 for three different positions.
        return pair * d + k, np.where(i == j, k, i), np.where(i == k, 3.0, np.where((i == j) | (j == k), 1.0, 0.0))

    def tensor(self, release: Floats) -> Floats:
        """A release of shape (size,) as a symmetric tensor (d, d, d), in units of the rows."""
        roots = coordinates.layout(self.columns, 3)[1]
        return self.clip**3 * coordinates.unpack(release * roots, self.columns, 3)


def _largest_cubic(a: float, b: float, c: float) -> float:
    """The maximum of a s^3 - b s^2 + c s on [0, 1], for a > 0 and b, c >= 0.

    >>> _largest_cubic(1.0, 0.0, 0.0), round(_largest_cubic(1.0, 1.5, 0.5625), 6)
    (1.0, 0.0625)
    """
    largest, discriminant = a - b + c, b**2 - 3 * a * c
    if discriminant > 0:
        # The smaller root of the derivative is the local maximum.
        s = (b - math.sqrt(discriminant)) / (3 * a)
        largest = max(largest, (a * s - b) * s * s + c * s) if s < 1 else largest
    return largest


class DistinctPairMoment(PairMoment):
    """`PairMoment` with the distinct entries (i <= j) themselves, as capeAGN perturbs them.

    Sensitivity. The distinct entries of a symmetric array have at most its norm, so every bound of `PairMoment` holds.
    D = sqrt(2) is attained by documents of one word each, whose matrices are diagonal.

    Parameters
    ----------
    columns, words, clip
        As for `PairMoment`.
    """

    name: ClassVar[str] = "distinct_pair_moment"

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of the matrices, row by row of the upper triangle."""
        return super().sum_documents(documents, shares) / coordinates.roots(self.width, 2)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric matrix of sums of probabilities, shape (V, V)."""
        return super().split(release * coordinates.roots(self.width, 2))


class DistinctTripleMoment(TripleMoment):
    """`TripleMoment` with the distinct entries (i <= j <= k) themselves, as capeAGN perturbs them.

    Sensitivity. As for `DistinctPairMoment`: D = sqrt(2), attained by documents of one word each.

    Parameters
    ----------
    columns, words, clip, basis
        As for `TripleMoment`.
    """

    name: ClassVar[str] = "distinct_triple_moment"

    def sum_documents(self, documents: Array, shares: Floats) -> Floats:
        """The sum of the tensors, their distinct entries."""
        return super().sum_documents(documents, shares) / coordinates.roots(self.order, 3)

    def split(self, release: Floats) -> Floats:
        """A release as a symmetric tensor of sums of probabilities, shape (k, k, k)."""
        return super().split(release * coordinates.roots(self.order, 3))


class InfomaxGradient(BoundedStatistic):
    """The sum over units of djICA's infomax gradient at a public unmixing matrix, clipped time point by time point.

    With V the public `projection` (d, R), W `unmixing` (R, R) and b `bias` (R,), a time point x has

        z = W V'x + b,    y = 1 - 2 g(z) = -tanh(z/2)    (g the sigmoid),
        G = (I + y z') W, scaled into the ball of Frobenius norm B,    h = y, scaled into the ball of norm sqrt(B),

    B = `clip` (capeDJICA, appendix K, Algorithm 4). A unit contributes the mean over its time points of (G/B,
    h/sqrt(B)): the papers give both parts noise in proportion to their clips.

    Sensitivity. A contribution is a mean over time points of a first part of norm at most 1 and a second of norm at
    most r = min(1, sqrt(R/B)), since the entries of y lie in [-1, 1]; the mean has the same bounds. Two units differ by
    at most twice that in each part: D = 2 sqrt(1 + r^2). It is approached as R grows, with W = I: z = (t, k, ..., k)
    and z' = (t, -k, ..., -k) with t far above k and k far above 1 have y.y' = 2 - R, and G and G' nearly the inner
    product (2 - R)/R. Added or removed: sqrt(1 + r^2). The papers add noise for 2 B and 2 sqrt(B) to the parts
    separately and charge one of them only.

    Arithmetic. x'V W' is an exact product, tanh is computed from elementwise operations, and W'y and W'z are folded
    column by column: up to the clip nothing that rounds is computed over several units.

    Parameters
    ----------
    columns : int
        d, the number of columns of the data.
    unmixing : array of shape (R, R)
        W, at least 2 x 2.
    bias : array of shape (R,)
        b.
    projection : array of shape (d, R), optional
        V; by default the identity, for data of R columns.
    clip : float
        B.
    """

    name: ClassVar[str] = "infomax_gradient"
    adds_in_pieces: ClassVar[bool] = True

    columns: int = Field(gt=1)
    unmixing: FloatArray
    bias: FloatArray
    projection: FloatArray | None = None
    clip: Positive = 30.0

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        W, R = self.unmixing, len(self.unmixing)
        if W.ndim != 2 or W.shape != (R, R) or R < 2:
            raise ValueError(f"unmixing must be a square matrix of at least two rows, got shape {W.shape}")
        if self.bias.shape != (R,):
            raise ValueError(f"bias must hold {R} numbers, got shape {self.bias.shape}")
        wanted = (self.columns, R)
        if (np.eye(R) if self.projection is None else self.projection).shape != wanted:
            given = "none" if self.projection is None else f"shape {self.projection.shape}"
            raise ValueError(f"projection must have the shape {wanted}, got {given}")
        for name, value in (("unmixing", W), ("bias", self.bias), ("projection", self.projection)):
            if value is not None and np.max(np.abs(value)) > LARGEST_ENTRY:
                raise ValueError(f"{name} must not exceed {LARGEST_ENTRY:g}, got {np.max(np.abs(value)):g}")
        return self

    @property
    def sources(self) -> int:
        """R, the number of sources."""
        return len(self.unmixing)

    @property
    def size(self) -> int:
        """R^2 entries of G and R of h."""
        return self.sources * (self.sources + 1)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        norm = math.sqrt(1 + min(1.0, self.sources / self.clip))
        return 2 * norm if adjacency is Adjacency.REPLACE_ONE else norm

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: whole numbers of the row, and eight arrays of R doubles."""
        return 8 * (3 * self.columns + 8 * self.sources)

    @cached_property
    def _exact(self) -> Exact:
        """V W', shape (d, R), in whole numbers."""
        return Exact.of(self.unmixing.T if self.projection is None else self.projection @ self.unmixing.T)

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: G row by row over B, then h over sqrt(B); shape (size,)."""
        rows = doubles(block.rows)
        xp = array_namespace(rows)
        W, b = constant_on(self.unmixing, rows), constant_on(self.bias, rows)
        scaled, size, norm = sized(rows)
        z = self._exact.projections(scaled, norm) * (norm * size)[:, None] + b[None, :]
        z = xp.clip(z, -_LARGEST_SOURCE, _LARGEST_SOURCE)
        # tanh(|z|/2) = (1 - e)/(1 + e) with e = exp(-|z|)
        decay = exponential(xp.clip(-xp.abs(z), -_STEEPEST, 0.0))
        y = -xp.sign(z) * (1.0 - decay) / (1.0 + decay)
        # With u = W'z, G = W + y u', and norm(G)^2 = norm(W)^2 + 2 (W'y).u + norm(y)^2 norm(u)^2.
        u = xp.stack([fold(z * W[None, :, at]) for at in range(self.sources)], axis=1)
        turned = xp.stack([fold(y * W[None, :, at]) for at in range(self.sources)], axis=1)
        own, length = float(np.sum(self.unmixing**2)), fold(y * y)
        outer = length * fold(u * u)
        # The terms may cancel, so their rounding is added: the norm that is used is never below the norm of G.
        across = fold(xp.abs(turned * u))
        squared = own + 2.0 * fold(turned * u) + outer + _CANCELLATION * (own + 2.0 * across + outer)
        norms = xp.sqrt(xp.clip(squared, 0.0, math.inf)) * INSIDE
        weight = block.row_weights(rows)
        factors = weight * (1.0 / xp.where(norms > self.clip, norms, xp.full_like(norms, self.clip)))
        bias_norms = xp.sqrt(length) * INSIDE
        root = math.sqrt(self.clip)
        shrunk = weight / xp.where(bias_norms > root, bias_norms, xp.full_like(bias_norms, root))
        # Sums over units begin here, after every decision about a unit.
        G = added(factors[:, None])[0] * W + products(y * factors[:, None], u)
        h = products(shrunk[:, None], y)[0, :]
        return xp.concat([xp.reshape(G, (-1,)), h])

    def split(self, release: Floats) -> tuple[Floats, Floats]:
        """A release as the sums over units of G (R, R) and h (R,)."""
        R = self.sources
        return release[: R * R].reshape(R, R) * self.clip, release[R * R :] * math.sqrt(self.clip)


class TensorClippedGradient(TwoLayerGradient):
    """The sum over units of the gradient of a network with one hidden layer, each tensor of a row clipped by itself.

    capeFM (section 5.1) gives the gradient of each tensor (W, b, V and c of `zerosum.statistics.network`) noise in
    proportion to its own sensitivity, so that each is clipped to norm c. Everything else is that of `TwoLayerGradient`,
    which clips the four together and needs half of the noise for the same clip.

    Sensitivity. A row contributes four tensors, each of norm at most c, so that a contribution lies in the ball of
    radius 2c, and the mean over a unit's rows too. D = 4c for a replaced unit; 2c for one added or removed. Both are
    attained: an example and the same example with the other class of two have gradients of opposite sign in every
    tensor, and all four are clipped if c is small. The paper charges one tensor of one iteration.

    Parameters
    ----------
    clip : float
        c, the largest norm of the gradient of each tensor.
    hidden, weights, radius, columns, classes, center, scale, part, hold_out, lower, upper, fill, own_rows
        As for `TwoLayerGradient`.
    """

    name: ClassVar[str] = "tensor_clipped_gradient"

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 4 * self.clip if adjacency is Adjacency.REPLACE_ONE else 2 * self.clip

    def sum_block(self, block: Units) -> Array:
        """The gradient of a block in the order of the flat weights."""
        x, A, B, e = self._slopes(block)
        b, r, own = fold(B * B), fold(e * e), block.row_weights(x)
        # The gradient of W is the outer product of x and B, that of V the one of A and e: the squared norm of an outer
        # product is the product of the squared norms. That of b is B, and that of c is e.
        squared = b * fold(x * x), b, r * fold(A * A), r
        W, bias, V, constant = (
            own * np.minimum(1.0, self.clip / np.maximum(np.sqrt(each) * INSIDE, SMALLEST)) for each in squared
        )
        parts = x.T @ (B * W[:, None]), bias @ B, A.T @ (e * V[:, None]), constant @ e
        return np.concatenate([part.ravel() for part in parts])
