"""Statistics for mixtures: moments with a constant appended, a white third moment, and the sums of an EM round.

Rows x in R^d are first filled in, centred at `center` and divided by `scale`, which are public constants or earlier
releases. `AugmentedScatter` releases first and second moments. `ThirdMoment` releases the third moment in white
coordinates, from which the method of moments finds components. `MixtureSums` releases the
sufficient statistics of one round of expectation-maximisation for spherical normal components.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    averages,
    clip_rows,
    constant_on,
    exponential,
    fold,
    gram,
    products,
    sized,
)
from zerosum.compute.devices import on_host
from zerosum.compute.symmetric import powers
from zerosum.compute.units import Units, rows_at_once
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.constants import check_placement, placed
from zerosum.statistics.missing import Filled
from zerosum.statistics.scatter import Scatter

# Rows farther than this many times the reach of the clip are first scaled back to that distance, so that nothing
# overflows. Chosen by hand; no effect on rows nearer than that.
_FAR = 1e6
# Log-responsibilities are clipped at this distance below the largest: exp(-60) = 9e-27, far below the rounding of a sum
# with 1. It is also the limit of `exponential`.
_RARE = 60.0


class AugmentedScatter(Scatter):
    """The sum over units of Z+, the mean over a unit's rows of (x, a)(x, a)': second and first moments in one release.

    Rows were first divided by sqrt(c), and the unit's Z, the mean of x x', was clipped at Frobenius norm 1 (`Scatter`).
    `constant` is a. The entry a^2 is left out unless `count` is set; with `count` it counts the units. The release is
    in isometric coordinates of order width + 1.

    Sensitivity. Let m be the mean row. m m' <= Z in the order of semidefinite matrices, so norm(m)^2 = norm(m m') <=
    norm(Z) <= 1. Hence norm(Z+)^2 = norm(Z)^2 + 2 a^2 norm(m)^2 + a^4 <= (1 + a^2)^2. Two contributions are
    semidefinite, so norm(Z+ - W+)^2 <= 2 (1 + a^2)^2. So D = sqrt(2) (1 + a^2), attained by single rows x, y of norm 1
    with x.y = -a^2. Adding or removing a unit: 1 + a^2, or sqrt(1 + 2 a^2) if a^2 is left out. The slack of `Scatter`
    is multiplied by the same factor.

    Parameters
    ----------
    constant : float
        a, the weight of the first moment.
    count : bool
        Whether the entry that counts units is released.
    clip : float
        c, the norm of Z at which a unit is clipped.
    columns, center, scale, per_recording, projection, lift, fill, own_rows
        As for `Scatter`.
    """

    name: ClassVar[str] = "augmented_scatter"
    adds_in_pieces: ClassVar[bool] = True
    normalise: bool = False
    constant: float = Field(default=0.3, ge=1e-3, le=1)
    count: bool = False

    @property
    def size(self) -> int:
        """The distinct entries of a matrix of order width + 1, less one without the count."""
        return coordinates.size(self.width + 1) - int(not self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        bound = super().sensitivity(adjacency)
        if adjacency is Adjacency.ADD_REMOVE and not self.count:
            return bound * math.sqrt(1 + 2 * self.constant**2)
        return bound * (1 + self.constant**2)

    def sum_block(self, block: Units) -> Array:
        """The packed sum over a block; the last entry is a^2 times the number of units."""
        packed = super().sum_block(block)
        return packed if self.count else packed[:-1]

    def _moments(self, block: Units) -> Iterator[Array]:
        """Partial sums of Z+, each of shape (width + 1, width + 1)."""
        for rows, weights, measured in self._bounded(block):
            xp = array_namespace(rows)
            # The constant has the weight 1/m in each of m rows, also for a clipped unit: the clip scales x alone, and
            # a^2 stays exact.
            constant = self.constant * xp.sqrt(measured.spread(xp.ones_like(measured.norms)))
            yield gram(xp.concat([rows * xp.sqrt(weights)[:, None], constant[:, None]], axis=1))

    def split(self, release: Floats) -> tuple[Floats, Floats, float | None]:
        """A release as (sum of x x', sum of x, number of units or None)."""
        # The entry a^2 that was left out is not needed; 0 takes its place.
        packed = release if self.count else np.append(release, 0.0)
        whole = coordinates.unpack(packed, self.width + 1)
        root = math.sqrt(self.clip)
        count = float(release[-1]) / self.constant**2 if self.count else None
        return self.clip * whole[:-1, :-1], root / self.constant * whole[:-1, -1], count


class PlacedRows(Filled):
    """Base of statistics of rows that are filled in, centred and divided by a scale.

    Parameters
    ----------
    columns : int
        d, the number of columns.
    center, scale : array of shape (columns,), optional
        Subtracted from each row, then divided by.
    clip : float
        c; its meaning depends on the statistic.
    """

    columns: int = Field(gt=0)
    center: FloatArray | None = None
    scale: FloatArray | None = None
    clip: Positive = 1.0

    @model_validator(mode="after")
    def _placed(self) -> Self:
        check_placement(self.columns, self.center, self.scale)
        return self

    def placed(self, block: Units) -> Array:
        """The rows of a block, filled in, centred and scaled; shape (rows, columns)."""
        return placed(self.filled(block), self.center, self.scale)


class ThirdMoment(PlacedRows):
    """The sum over units of a unit's third moment in white coordinates, over c and clipped at norm 1.

    A row x has coordinates z = W'x with W the `projection`, followed by `constant` if that is positive. Its tensor is z
    z z less z_i G_jk + z_j G_ik + z_k G_ij, the expected contribution of spherical noise. G is diagonal with
    `correction` on its diagonal, and 0 for the constant. A unit with several rows contributes the mean of their
    tensors, clipped as one. The release is in isometric coordinates of order 3.

    Sensitivity. A contribution has norm at most 1, so D = 2 by the triangle inequality. Without a constant the map is
    odd, and z and -z attain the bound. With a constant, z and -z approach the bound as they grow. Adding or removing a
    unit: 1.

    Parameters
    ----------
    projection : array of shape (columns, p)
        W, the whitening map.
    correction : array of shape (p,)
        The diagonal of G.
    constant : float
        Appended to z; 0 for none.
    columns, center, scale, clip, fill, own_rows
        As for `PlacedRows`; `clip` is the norm of a tensor at which a unit is clipped.
    """

    name: ClassVar[str] = "third_moment"
    adds_in_pieces: ClassVar[bool] = True
    projection: FloatArray
    correction: FloatArray
    constant: float = Field(default=0.0, ge=0, le=1e6)

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        shape = self.projection.shape
        if self.projection.ndim != 2 or shape[0] != self.columns or not self.projection.size:
            raise ValueError(f"projection must have {self.columns} rows and a column, got {shape}")
        if self.correction.shape != (shape[1],) or not np.all(np.abs(self.correction) <= 1e12):
            raise ValueError("correction must hold one number for each column of the projection, at most 1e12")
        return self

    @property
    def width(self) -> int:
        """The order of the tensor: p, plus one with a constant."""
        return int(self.projection.shape[1]) + int(self.constant > 0)

    @property
    def size(self) -> int:
        """The distinct entries of a symmetric tensor of order 3."""
        return coordinates.size(self.width, 3)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (3 * self.columns + 6 * self.size)

    @cached_property
    def _exact(self) -> Exact:
        """The projection in whole numbers, whose products do not round."""
        return Exact.of(self.projection)

    @cached_property
    def _corrected(self) -> tuple[NDArray[np.intp], Floats]:
        """For each packed coordinate of the tensor, the index of the entry of z in its correction, and the factor
        of that entry.
        """
        gain = np.append(self.correction, 0.0) if self.constant > 0 else self.correction
        eye = np.eye(self.width)
        # parts[i] is the tensor with G_jk at (i; j, k).
        parts = eye[:, :, None, None] * (gain[:, None] * eye)[None, None, :, :]
        taken = np.array([coordinates.pack(each + _turned(each, 1) + _turned(each, 2)) for each in parts])
        # G is diagonal, so that each coordinate of the sum of three terms contains at most one entry of z.
        which = np.argmax(np.abs(taken), axis=0)
        return which, taken[which, np.arange(self.size)]

    def white(self, block: Units) -> Array:
        """The coordinates z of the rows, shape (rows, width).

        Parameters
        ----------
        block : Units
            Some units; each row is mapped by itself.
        """
        rows = self.placed(block)
        scaled, size, norm = sized(rows)
        projections = self._exact.projections(scaled, norm)
        xp = array_namespace(projections)
        # The tensor is of order z^3 and its correction of order z G: beyond `far` both are clipped in any case.
        far = _FAR * max(1.0, self.clip ** (1 / 3), math.sqrt(float(np.max(np.abs(self.correction)))))
        with np.errstate(over="ignore", invalid="ignore"):
            z = projections * (size * norm)[:, None]
        # A row that overflowed to infinity becomes zero here, which the row alone decides.
        z = clip_rows(z, far)
        if self.constant > 0:
            z = xp.concat([z, xp.full_like(z[:, :1], self.constant)], axis=1)
        return z

    def tensors(self, z: Array) -> Array:
        """The packed tensors of rows with coordinates z, divided by c; shape (rows, size).

        Parameters
        ----------
        z : array of shape (rows, width)
            White coordinates.
        """
        which, often = self._corrected
        chosen = z[:, which] if on_host(z) else array_namespace(z).take(z, constant_on(which, z), axis=1)
        taken = chosen * constant_on(often, z)[None, :]
        return (powers(z, 3) - taken) / self.clip

    def sum_block(self, block: Units) -> Array:
        """The sum over a block of the clipped mean tensors."""
        # The mean over a unit's rows comes before the clip, hence `averages`, which rounds each unit by its own rows
        # alone.
        means = averages(block, self.white(block), self.tensors, rows_at_once(self.row_bytes))
        return added(clip_rows(means, 1.0))

    def split(self, release: Floats) -> Floats:
        """A release as the sum of tensors, shape (width, width, width)."""
        return self.clip * coordinates.unpack(release, self.width, 3)


def _turned(each: Floats, axis: int) -> Floats:
    """The array with its first axis moved to `axis`."""
    return np.moveaxis(each, 0, axis)


class MixtureSums(PlacedRows):
    """One round of EM: for each public component k the sums over units of r_k, of r_k z_k and of r_k (1 - norm(z_k)^2).

    z_k = (x - means_k)/(c radii_k), clipped to norm 1. r are the responsibilities, which sum to 1, of spherical normal
    components with these `weights` and `variances`. Means are in units of c and variances in units of c^2. With a
    `basis`, responsibilities are computed from the coordinates of x in it, and with `projected` z_k is, too. A unit
    with several rows contributes the mean over its rows. The release has the shape (K (2 + width),): K counts, K sums,
    K spreads.

    Sensitivity. Let u = (1, z, 1 - norm(z)^2) with norm(z) = t <= 1. A row contributes the convex combination, with
    weights r_k, of points that have some u in the block of one component and zeros elsewhere. A unit contributes an
    average of those, and a convex hull has the diameter of its points. Two points of different components: norm(u)^2 =
    1 + t^2 + (1 - t^2)^2 = 2 - t^2 (1 - t^2) <= 2, so they are at most sqrt(2 + 2) = 2 apart. Two points of the same
    component: norm(z - z')^2 + (t^2 - t'^2)^2 <= (t + t')^2 (1 + d^2) with d = |t - t'|, and t + t' <= 2 - d. The
    function (2 - d)^2 (1 + d^2) is 4 at d = 0 and falls on [0, 1]: its derivative is -(4 - 2 d) (1 - 2 d + 2 d^2). So D
    = 2, attained by z' = -z of norm 1: counts and spreads cost nothing. Adding or removing a unit: sqrt(2).
    Responsibilities are divided by slightly more than their sum, so that rounding does not exceed this bound.

    Parameters
    ----------
    means : array of shape (K, columns)
        The means of the components, in units of c.
    variances, weights : array of shape (K,)
        The variances in units of c^2, and the mixture weights.
    radii : array of shape (K,)
        The distance from its mean at which a row is clipped, in units of c.
    basis : array of shape (columns, p), optional
        Orthonormal columns.
    projected : bool
        Whether z_k is taken in the basis.
    columns, center, scale, clip, fill, own_rows
        As for `PlacedRows`.
    """

    name: ClassVar[str] = "mixture_sums"
    adds_in_pieces: ClassVar[bool] = True
    means: FloatArray
    variances: FloatArray
    radii: FloatArray
    weights: FloatArray
    basis: FloatArray | None = None
    projected: bool = False

    @model_validator(mode="after")
    def _components_fit(self) -> Self:
        means = self.means
        if means.ndim != 2 or means.shape[1] != self.columns or len(means) == 0:
            raise ValueError(f"means must be a table of {self.columns} columns, got shape {means.shape}")
        if np.max(np.abs(means)) > 1e4:
            raise ValueError("means must lie within 10 000 clips of the center")
        sizes = (("variances", self.variances), ("weights", self.weights), ("radii", self.radii))
        for what, value in sizes:
            if value.shape != (len(means),) or not np.all((value >= 1e-8) & (value <= 1e8)):
                raise ValueError(f"{what} must hold a number between 1e-8 and 1e8 for each component")
        if self.basis is None and self.projected:
            raise ValueError("only a basis can be projected on")
        if self.basis is not None:
            basis = self.basis
            if basis.ndim != 2 or basis.shape[0] != self.columns or not 1 <= basis.shape[1] <= self.columns:
                raise ValueError(f"the basis must have {self.columns} rows and no more columns, got {basis.shape}")
            if np.max(np.abs(basis)) > 2:
                raise ValueError("the columns of the basis must have unit norm")
        return self

    @property
    def width(self) -> int:
        """The number of coordinates of z_k."""
        return int(self.basis.shape[1]) if self.basis is not None and self.projected else self.columns

    @property
    def size(self) -> int:
        """K (2 + width)."""
        return len(self.means) * (2 + self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (6 * self.columns + 4 * len(self.means))

    @cached_property
    def _exact(self) -> Exact | None:
        """The basis in whole numbers; None without a basis."""
        return None if self.basis is None else Exact.of(self.basis)

    def _coordinates(self, rows: Array) -> Array:
        """The coordinates of rows in the basis, or the rows themselves."""
        if self._exact is None:
            return rows
        scaled, size, norm = sized(rows)
        return self._exact.projections(scaled, norm) * (size * norm)[:, None]

    def sum_block(self, block: Units) -> Array:
        """The sum over a block: counts, sums, spreads."""
        rows = clip_rows(self.placed(block), _FAR * self.clip) / self.clip
        xp = array_namespace(rows)
        coordinates_of_rows = self._coordinates(rows)
        shares = self._responsibilities(coordinates_of_rows) * block.row_weights(rows)[:, None]
        moving, around = (coordinates_of_rows, self._places) if self.projected else (rows, self.means)
        around, sums, spreads = constant_on(around, rows), [], []
        for k in range(len(self.means)):
            apart = (moving - around[k, :][None, :]) * (1.0 / float(self.radii[k]))
            # `fold`: whether a row is clipped must depend on the row alone.
            square = fold(apart * apart)
            outside = square * INSIDE > 1.0
            # 1/norm for rows outside the unit ball, 1 inside. `INSIDE` keeps the result within norm 1 after rounding.
            factor = xp.where(outside, 1.0 / (xp.sqrt(xp.where(outside, square, 1.0 + 0.0 * square)) * INSIDE), 1.0)
            sums.append(products((shares[:, k] * factor)[:, None], apart)[0, :])
            # A clipped z has norm 1, so that 1 - norm(z)^2 is 0.
            spreads.append(added(shares[:, k] * xp.where(outside, 0.0 * square, 1.0 - square)))
        return xp.concat([added(shares), xp.reshape(xp.stack(sums), (-1,)), xp.stack(spreads)])

    @cached_property
    def _places(self) -> Floats:
        """The means in the basis, shape (K, p)."""
        return self.means if self.basis is None else np.asarray(self.means @ self.basis)

    def _responsibilities(self, z: Array) -> Array:
        """The responsibility of each component for every row, shape (rows, K).

        Parameters
        ----------
        z : array of shape (rows, p)
            The rows in the basis, in units of c.
        """
        xp, places = array_namespace(z), constant_on(self._places, z)
        # The log-density of a spherical normal in p dimensions, up to a constant: -(p/2) log variance - distance^2/(2
        # variance).
        constants = np.log(self.weights) - 0.5 * self._places.shape[1] * np.log(self.variances)
        parts = []
        for k, (variance, constant) in enumerate(zip(self.variances.tolist(), constants.tolist(), strict=True)):
            apart = z - places[k, :][None, :]
            parts.append(constant - fold(apart * apart) * (0.5 / variance))
        logs = xp.stack(parts, axis=1)
        # The largest log-likelihood is subtracted, so that exp does not overflow and the sum is at least 1.
        likely = exponential(xp.clip(logs - xp.max(logs, axis=1)[:, None], -_RARE, 0.0))
        return likely / (fold(likely + 0.0) * INSIDE)[:, None]

    def split(self, release: Floats) -> tuple[Floats, Floats, Floats]:
        """A release as (counts, sums of deviations from the mean, sums of 1 - norm(z)^2).

        Parameters
        ----------
        release : array of shape (size,)
            A noisy sum.

        Returns
        -------
        counts : array of shape (K,)
        sums : array of shape (K, width)
            In the units of the rows before the division by c.
        spreads : array of shape (K,)
        """
        K = len(self.means)
        counts, spreads = release[:K], release[-K:]
        # z_k is in units of c radii_k; the factor turns sums of z_k into sums of x - mean.
        return counts, self.clip * self.radii[:, None] * release[K:-K].reshape(K, self.width), spreads
