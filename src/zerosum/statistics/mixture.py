"""What mixtures ask of a site: moments with a constant appended, a white third moment, and the sums of an EM round.

Rows are centred at `center` and divided by `scale` first, public constants or earlier releases.

Tested in tests/statistics/test_sensitivity.py.
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
from zerosum.kernel import coordinates
from zerosum.kernel.devices import on_host
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, Positive
from zerosum.kernel.units import Units, rows_at_once
from zerosum.statistics.missing import Filled
from zerosum.statistics.rows import (
    INSIDE,
    Exact,
    added,
    averages,
    clip_rows,
    exponential,
    fold,
    gram,
    like,
    products,
    sized,
)
from zerosum.statistics.scatter import Scatter

_FAR = 1e6  # times what a clip reaches: farther rows are drawn in to there first, so that nothing overflows
_RARE = 60.0  # responsibilities below exp(-60) of the largest are that


class AugmentedScatter(Scatter):
    """The sum over units of Z+, the mean over a unit's rows of (x, a)(x, a)', after rows were divided by the root of c
    and its Z, the mean of x x', was clipped at Frobenius norm 1 (`Scatter`): second and first moments in one release.

    `constant` is a. The entry a^2 is left out unless `count` is set: then it counts the units.

    Sensitivity. With m the mean row, m m' <= Z in the order of semidefinite matrices, so norm(m)^2 = norm(m m') <=
    norm(Z) <= 1 and norm(Z+)^2 = norm(Z)^2 + 2 a^2 norm(m)^2 + a^4 <= (1 + a^2)^2. Two of them are semidefinite, so
    norm(Z+ - W+)^2 <= 2 (1 + a^2)^2: D = sqrt(2) (1 + a^2), attained by single rows x, y of norm 1 with x.y = -a^2.
    Added or removed: 1 + a^2, or sqrt(1 + 2 a^2) where a^2 is left out. The slack of `Scatter` grows likewise.
    """

    name: ClassVar[str] = "augmented_scatter"
    adds_in_pieces: ClassVar[bool] = True
    normalise: bool = False
    constant: float = Field(default=0.3, ge=1e-3, le=1)
    count: bool = False

    @property
    def size(self) -> int:
        return coordinates.size(self.width + 1) - int(not self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        bound = super().sensitivity(adjacency)
        if adjacency is Adjacency.ADD_REMOVE and not self.count:
            return bound * math.sqrt(1 + 2 * self.constant**2)
        return bound * (1 + self.constant**2)

    def sum_block(self, block: Units) -> Array:
        packed = super().sum_block(block)
        return packed if self.count else packed[:-1]

    def _moments(self, block: Units) -> Iterator[Array]:
        for rows, weights, measured in self._bounded(block):
            xp = array_namespace(rows)
            constant = self.constant * xp.sqrt(measured.spread(xp.ones_like(measured.norms)))
            yield gram(xp.concat([rows * xp.sqrt(weights)[:, None], constant[:, None]], axis=1))

    def split(self, release: Floats) -> tuple[Floats, Floats, float | None]:
        """A release as (sum of x x', sum of x, number of units or None)."""
        packed = release if self.count else np.append(release, 0.0)
        whole = coordinates.unpack(packed, self.width + 1)
        root = math.sqrt(self.clip)
        count = float(release[-1]) / self.constant**2 if self.count else None
        return self.clip * whole[:-1, :-1], root / self.constant * whole[:-1, -1], count


class Placed(Filled):
    """Rows as they enter: missing values filled in, centred, divided by a scale."""

    columns: int = Field(gt=0)
    center: FloatArray | None = None
    scale: FloatArray | None = None
    clip: Positive = 1.0

    @model_validator(mode="after")
    def _placed(self) -> Self:
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.columns,):
                raise ValueError(f"{what} must hold one number for each of the {self.columns} columns")
        if self.scale is not None and not np.all(self.scale >= SMALLEST):
            raise ValueError("every scale must be positive")
        return self

    def placed(self, block: Units) -> Array:
        rows = self.filled(block)
        if self.center is not None:
            rows = rows - like(self.center, rows)[None, :]
        if self.scale is not None:
            rows = rows / like(self.scale, rows)[None, :]
        return rows


class ThirdMoment(Placed):
    """The sum over units of a unit's third moment in white coordinates, over c and clipped at norm 1, in isometric
    coordinates.

    A row x has coordinates z = W'x (`projection`), with `constant` followed by it (0: nothing is). Its tensor is z z z
    less z_i G_jk + z_j G_ik + z_k G_ij, what spherical noise adds: G is diagonal with `correction` on it, 0 for the
    constant. A unit with several rows contributes the mean of their tensors, clipped as one.

    Sensitivity. A contribution has norm <= 1: D = 2 (triangle inequality). Without a constant the map is odd, and z and
    -z attain it; with one they come as near as they are large. Added or removed: 1.
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
        """The order of the tensor."""
        return int(self.projection.shape[1]) + int(self.constant > 0)

    @property
    def size(self) -> int:
        return coordinates.size(self.width, 3)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    @property
    def row_bytes(self) -> int:
        return 8 * (3 * self.columns + 6 * self.size)

    @cached_property
    def _exact(self) -> Exact:
        return Exact.of(self.projection)

    @cached_property
    def _corrected(self) -> tuple[NDArray[np.intp], Floats]:
        """For each coordinate of the tensor, which entry of z is taken off it, and how often."""
        gain = np.append(self.correction, 0.0) if self.constant > 0 else self.correction
        eye = np.eye(self.width)
        parts = eye[:, :, None, None] * (gain[:, None] * eye)[None, None, :, :]  # takes off z_i G_jk of entry (i; jk)
        taken = np.array([coordinates.pack(each + _turned(each, 1) + _turned(each, 2)) for each in parts])
        which = np.argmax(np.abs(taken), axis=0)
        return which, taken[which, np.arange(self.size)]

    def white(self, block: Units) -> Array:
        """The rows' coordinates z."""
        rows = self.placed(block)
        scaled, size, norm = sized(rows)
        seen = self._exact.seen(scaled, norm)
        xp = array_namespace(seen)
        far = _FAR * max(1.0, self.clip ** (1 / 3), math.sqrt(float(np.max(np.abs(self.correction)))))
        with np.errstate(over="ignore", invalid="ignore"):
            z = seen * (size * norm)[:, None]
        z = clip_rows(z, far)
        if self.constant > 0:
            z = xp.concat([z, xp.full_like(z[:, :1], self.constant)], axis=1)
        return z

    def tensors(self, z: Array) -> Array:
        """Of rows with coordinates z, over c."""
        which, often = self._corrected
        chosen = z[:, which] if on_host(z) else array_namespace(z).take(z, like(which, z), axis=1)
        taken = chosen * like(often, z)[None, :]
        return (coordinates.powers(z, 3) - taken) / self.clip

    def sum_block(self, block: Units) -> Array:
        means = averages(block, self.white(block), self.tensors, rows_at_once(self.row_bytes))
        return added(clip_rows(means, 1.0))

    def split(self, release: Floats) -> Floats:
        """A release as the sum of tensors, width x width x width."""
        return self.clip * coordinates.unpack(release, self.width, 3)


def _turned(each: Floats, axis: int) -> Floats:
    return np.moveaxis(each, 0, axis)


class MixtureSums(Placed):
    """One round of EM: for each public component k the sums over units of r_k, of r_k z_k and of r_k (1 - norm(z_k)^2).

    z_k = (x - `means`_k)/(c `radii`_k), clipped to norm 1; r are the responsibilities, which add up to 1, of spherical
    normal components with these `weights` and `variances`. Means are in units of c and variances of c^2. With a `basis`
    (columns x p, orthonormal) responsibilities are taken from the coordinates of x in it, and where it is `projected`
    z_k too. A unit with several rows contributes the mean over its rows.

    Sensitivity. Let u = (1, z, 1 - norm(z)^2) with norm(z) = t <= 1. A row contributes the convex combination, with
    weights r_k, of points that have some u in the block of one component and zeros elsewhere, a unit an average of
    those, and a convex hull is as wide as its points. Two points of different components: norm(u)^2 = 1 + t^2 + (1 -
    t^2)^2 = 2 - t^2 (1 - t^2) <= 2, so they are at most sqrt(2 + 2) = 2 apart. Two of the same one: norm(z - z')^2 +
    (t^2 - t'^2)^2 <= (t + t')^2 (1 + d^2) with d = |t - t'|, and t + t' <= 2 - d. (2 - d)^2 (1 + d^2) is 4 at d = 0 and
    falls on [0, 1]: its derivative is -(4 - 2 d) (1 - 2 d + 2 d^2). So D = 2, attained by z' = -z of norm 1: counts and
    spreads cost nothing. Added or removed: sqrt(2). Responsibilities are divided by slightly more than their sum, so
    that rounding does not pass this.
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
        """How many coordinates z_k has."""
        return int(self.basis.shape[1]) if self.basis is not None and self.projected else self.columns

    @property
    def size(self) -> int:
        return len(self.means) * (2 + self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)

    @property
    def row_bytes(self) -> int:
        return 8 * (6 * self.columns + 4 * len(self.means))

    @cached_property
    def _exact(self) -> Exact | None:
        return None if self.basis is None else Exact.of(self.basis)

    def _seen(self, rows: Array) -> Array:
        """The rows in the basis."""
        if self._exact is None:
            return rows
        scaled, size, norm = sized(rows)
        return self._exact.seen(scaled, norm) * (size * norm)[:, None]

    def sum_block(self, block: Units) -> Array:
        rows = clip_rows(self.placed(block), _FAR * self.clip) / self.clip
        xp = array_namespace(rows)
        seen = self._seen(rows)
        shares = self._responsibilities(seen) * block.row_weights(rows)[:, None]
        moving, around = (seen, self._places) if self.projected else (rows, self.means)
        around, sums, spreads = like(around, rows), [], []
        for k in range(len(self.means)):
            apart = (moving - around[k, :][None, :]) * (1.0 / float(self.radii[k]))
            square = fold(apart * apart)
            outside = square * INSIDE > 1.0
            factor = xp.where(outside, 1.0 / (xp.sqrt(xp.where(outside, square, 1.0 + 0.0 * square)) * INSIDE), 1.0)
            sums.append(products((shares[:, k] * factor)[:, None], apart)[0, :])
            spreads.append(added(shares[:, k] * xp.where(outside, 0.0 * square, 1.0 - square)))
        return xp.concat([added(shares), xp.reshape(xp.stack(sums), (-1,)), xp.stack(spreads)])

    @cached_property
    def _places(self) -> Floats:
        """The means in the basis."""
        return self.means if self.basis is None else np.asarray(self.means @ self.basis)

    def _responsibilities(self, seen: Array) -> Array:
        """What each component's share in every row is."""
        xp, places = array_namespace(seen), like(self._places, seen)
        constants = np.log(self.weights) - 0.5 * self._places.shape[1] * np.log(self.variances)
        parts = []
        for k, (variance, constant) in enumerate(zip(self.variances.tolist(), constants.tolist(), strict=True)):
            apart = seen - places[k, :][None, :]
            parts.append(constant - fold(apart * apart) * (0.5 / variance))
        logs = xp.stack(parts, axis=1)
        likely = exponential(xp.clip(logs - xp.max(logs, axis=1)[:, None], -_RARE, 0.0))
        return likely / (fold(likely + 0.0) * INSIDE)[:, None]

    def split(self, release: Floats) -> tuple[Floats, Floats, Floats]:
        """A release as (counts, sums of what rows differ from their mean, sums of 1 - norm(z)^2)."""
        K = len(self.means)
        counts, spreads = release[:K], release[-K:]
        return counts, self.clip * self.radii[:, None] * release[K:-K].reshape(K, self.width), spreads
