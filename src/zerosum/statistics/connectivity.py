"""Each unit's connectivity between networks, clipped as one vector: sums by group, and products with covariates.

The map of one unit, with the time courses y_t in R^k of its networks (`networks`) and K their sum of products:

    r_ij = K_ij / sqrt(K_ii K_jj)                  correlation of networks i and j; 0 if one is silent
    r_ij = -S_ij / sqrt(S_ii S_jj)                 instead, partial correlation: S = ((1 - l) r + l I)^-1, public l
    z_e  = arctanh(clip(r_ij, -0.96, 0.96))        Fisher's transform of the E = k (k - 1)/2 pairs i < j
    f    = clip_c((z - z0) U)                      z0: public centre; U: public directions of edges; L2 norm

A joint clip in L2 norm costs noise in proportion to c, which grows as the root of E; a range for each edge would cost a
sensitivity that grows as the root of E times the width of the ranges, about eight times as much for 45 edges.

A unit's group and covariates are its own columns beside the regions, equal in all rows of the unit; the first row
counts.

References: R. A. Fisher, On the probable error of a coefficient of correlation, Metron 1, 1921; G. Marrelec et al.,
Partial correlation for functional brain interactivity investigation in functional MRI, NeuroImage 32, 2006.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.elementwise import arctanh, solved
from zerosum.compute.backends.exact import Exact, added, clip_rows, constant_on, products, sized, squares, summed
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Batch, Units
from zerosum.errors import BadData
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, Positive
from zerosum.statistics.constants import check_basis
from zerosum.statistics.networks import NetworkStatistic, first_rows, zeros

# Largest correlation before Fisher's transform, which is 1.95 there: a single pair cannot take the whole clip.
LARGEST_CORRELATION = 0.96
# Weights of counts and of the energy in units of the clip: v and w of the proof in `GroupedConnectivity`.
COUNT_WEIGHT = ENERGY_WEIGHT = math.sqrt(0.5)


class EdgeStatistic(NetworkStatistic):
    """Base of statistics of a unit's clipped connectivity f.

    Parameters
    ----------
    columns : int
        Number of columns of the data: the regions, then columns of the unit itself.
    regions : int
        V, the number of regions.
    clip : float
        c, the largest norm of f.
    projection : array of shape (V, k), optional
        Public; time courses of networks are rows times it. By default every region is a network.
    center : array of shape (E,), optional
        z0, public; by default 0.
    ridge : float, optional
        l; partial correlations instead of correlations.
    basis : array of shape (E, m), optional
        U, public, with orthonormal columns; by default all edges.
    per_recording : {"none", "center", "standardise"}
        As for `NetworkStatistic`, of the regions.
    """

    regions: int = Field(gt=1)
    clip: Positive
    projection: FloatArray | None = None
    center: FloatArray | None = None
    ridge: float | None = Field(default=None, ge=1e-6, lt=1)
    basis: FloatArray | None = None

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        if self.regions > self.columns:
            raise ValueError(f"regions must be at most the {self.columns} columns, got {self.regions}")
        P = self.projection
        if P is not None and (P.ndim != 2 or P.shape[0] != self.regions or P.shape[1] < 2):
            raise ValueError(f"projection must have {self.regions} rows and two columns, got shape {P.shape}")
        if self.center is not None and self.center.shape != (self.edges,):
            raise ValueError(f"center must hold one number for each of the {self.edges} edges")
        if self.basis is not None:
            check_basis(self.basis, self.edges)
        return self

    @property
    def networks(self) -> int:
        """k, the number of networks."""
        return self.regions if self.projection is None else int(self.projection.shape[1])

    @property
    def edges(self) -> int:
        """E, the number of pairs of networks."""
        return self.networks * (self.networks - 1) // 2

    @property
    def width(self) -> int:
        """The length of f: E, or the number of directions of edges."""
        return self.edges if self.basis is None else int(self.basis.shape[1])

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (5 * self.columns + 4 * self.networks)

    @property
    def unit_numbers(self) -> int:
        """The products of all pairs of networks, twice where they are solved for partial correlations."""
        return self.networks**2 * (1 if self.ridge is None else 2)

    @cached_property
    def _exact(self) -> Exact | None:
        """The projection in whole numbers, whose products do not round."""
        return None if self.projection is None else Exact.of(self.projection)

    @cached_property
    def _exact_basis(self) -> Exact | None:
        """The directions of edges in whole numbers."""
        return None if self.basis is None else Exact.of(self.basis)

    def contributions(self, block: Units) -> Iterator[tuple[Batch, slice, Array]]:
        """f of the units of a block, those of one shape together, shape (units, width)."""
        for batch, some, rows in self.rows_by_shape(block):
            numbers, _worth = self.numbers(rows[:, :, : self.regions], batch, self._exact)
            z = self._transformed(numbers)
            if self.center is not None:
                z = z - constant_on(self.center, z)[None, :]
            if self._exact_basis is not None:
                flat, size, norm = sized(z)
                z = self._exact_basis.projections(flat, norm) * (size * norm)[:, None]
            yield batch, some, clip_rows(z, self.clip)

    def _transformed(self, numbers: Array) -> Array:
        """z of units from whole numbers in proportion to the time courses, shape (units, E)."""
        xp, k = array_namespace(numbers), self.networks
        products = xp.matmul(xp.matrix_transpose(numbers), numbers)  # whole numbers: exact
        r = self._correlations(products)
        if self.ridge is not None:
            unit = constant_on(np.eye(k), r)[None, ...]
            # The ridge makes the matrix positive definite, whatever the number of rows.
            shrunk = (1.0 - self.ridge) * r + self.ridge * unit
            r = -self._correlations(solved(shrunk, xp.broadcast_to(unit, shrunk.shape)))
        row, column = (constant_on(each, r) for each in np.triu_indices(k, 1))
        flat = xp.take(xp.reshape(r, (r.shape[0], -1)), row * k + column, axis=1)
        return arctanh(xp.clip(flat, -LARGEST_CORRELATION, LARGEST_CORRELATION))

    def _correlations(self, matrix: Array) -> Array:
        """Matrices divided by the roots of their diagonals, with ones there; rows of a diagonal of 0 become 0."""
        xp, k = array_namespace(matrix), self.networks
        diagonal = xp.reshape(xp.reshape(matrix, (matrix.shape[0], -1))[:, :: k + 1], (matrix.shape[0], k))
        loud = diagonal > 0
        root = xp.sqrt(xp.where(loud, diagonal, xp.ones_like(diagonal)))
        r = matrix / (root[:, :, None] * root[:, None, :])
        both = loud[:, :, None] & loud[:, None, :]
        own = constant_on(np.eye(k), matrix)[None, ...] > 0
        return xp.where(own, xp.ones_like(r), xp.where(both, r, xp.zeros_like(r)))


class GroupedConnectivity(EdgeStatistic):
    """The sum of f, the number of units and the energy of f, by group, in one release.

    A unit of group g contributes (f, v c, w c (2 norm(f)^2/c^2 - 1)) at the place of its group; v^2 = w^2 = 1/2. A unit
    of no known group contributes zeros.

    Sensitivity. Take c = 1, and let p and q be the norms of f and f' of two units. In the same group they are at most
    sqrt((p + q)^2 + 4 w^2 (p^2 - q^2)^2) = (p + q) sqrt(1 + 4 w^2 s^2) apart with s = |p - q|, and p + q <= 2 - s. As
    in `GroupedMoments`, (2 - s)^2 (1 + 4 w^2 s^2) <= 4 for all s in [0, 2] if w^2 <= (11 + 5 sqrt(5))/32 = 0.693. In
    different groups the square of the distance is p^2 + q^2 + 2 v^2 + w^2 (2 p^2 - 1)^2 + w^2 (2 q^2 - 1)^2, which is
    convex in p^2 and in q^2 and so largest at p, q in {0, 1}: 2, 3 or 4. Against a unit of no group it is at most 1 +
    v^2 + w^2 = 2. So D = 2c for a replaced unit, attained by f' = -f in one group, and by norms of c in two groups:
    counts and energies are free. Adding or removing a unit moves the sum by at most sqrt(2) c, attained at norm(f) = c.

    Parameters
    ----------
    group : int, optional
        The column with the group codes 0, 1, ...; any other value belongs to no group. None: one group.
    groups : int
        G, the number of groups.
    columns, regions, clip, projection, center, ridge, basis, per_recording
        As for `EdgeStatistic`.
    """

    name: ClassVar[str] = "grouped_connectivity"
    group: int | None = None
    groups: int = Field(default=1, gt=0, le=1000)

    @model_validator(mode="after")
    def _group_fits(self) -> Self:
        if self.group is None and self.groups != 1:
            raise ValueError("several groups need a column with their codes")
        if self.group is not None and not self.regions <= self.group < self.columns:
            raise ValueError(f"group must be one of the columns {self.regions} to {self.columns - 1}, got {self.group}")
        return self

    @property
    def codes(self) -> dict[int, int]:
        """The column that holds codes, with their number."""
        return {} if self.group is None else {self.group: self.groups}

    @property
    def size(self) -> int:
        """A vector, a count and an energy for each group."""
        return self.groups * (self.width + 2)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2 * self.clip
        return self.clip * math.sqrt(1 + COUNT_WEIGHT**2 + ENERGY_WEIGHT**2)

    def check_values(self, units: Units) -> None:
        """Report codes outside the declared groups to the owner of the data."""
        if self.group is not None:
            values = to_numpy(units.rows[:, self.group])
            if not np.all(np.isin(values, np.arange(self.groups)) | np.isnan(values)):
                raise BadData(
                    f"some values of column {self.group + 1} lie outside its {self.groups} declared categories"
                )

    def sum_block(self, block: Units) -> Array:
        """The sum of a block: vector, count and energy of each group; shape (size,)."""
        return summed(self._parts(block))

    def _parts(self, block: Units) -> Iterator[Array]:
        for batch, some, f in self.contributions(block):
            xp = array_namespace(f)
            codes = zeros(f, f.shape[0]) if self.group is None else first_rows(block, batch, some, self.group)
            places = constant_on(np.arange(self.groups, dtype=np.float64), f)
            member = xp.astype(codes[:, None] == places[None, :], xp.float64)  # NaN equals nothing
            # Rounding must not bring the energy above that of norm c.
            energy = 2.0 * xp.clip(squares(f) / self.clip**2, 0.0, 1.0) - 1.0
            count = xp.full_like(f[:, :1], COUNT_WEIGHT * self.clip)
            own = xp.concat([f, count, (ENERGY_WEIGHT * self.clip) * energy[:, None]], axis=1)
            yield xp.reshape(products(member, own), (-1,))

    def split(self, value: Floats) -> tuple[Floats, Floats, Floats]:
        """A release as sums of f, numbers of units, and sums of norm(f)^2, by group.

        Parameters
        ----------
        value : array of shape (size,)
            A noisy sum.

        Returns
        -------
        sums : array of shape (groups, width)
        counts, energies : array of shape (groups,)
        """
        table = value.reshape(self.groups, -1)
        counts = table[:, -2] / (COUNT_WEIGHT * self.clip)
        return table[:, :-2], counts, self.clip**2 * (table[:, -1] / (ENERGY_WEIGHT * self.clip) + counts) / 2


Part = Literal["edges", "covariates", "energy"]


class SiteCentredConnectivity(EdgeStatistic):
    """Products of covariates x and connectivity f, both centred at their means over the site.

    Covariates are mapped from their public ranges to [-1, 1], a missing one to 0, and clipped to norm b. Over the n
    units of a site

        edges        sum of (x - mean x)(f - mean f)'      q x width
        covariates   sum of (x - mean x)(x - mean x)'      q x q, in isometric coordinates
        energy       sum of norm(f - mean f)^2             one number

    Whatever is the same for all units of a site, such as the effect of its scanner on the mean, is not in them.

    Sensitivity. Let m and m' be the means of x and f over the n - 1 other units. A unit (x, f) adds (n - 1)/n times
    (x - m)(f - m')', so replacing it by (y, g) changes the edges by (n - 1)/n T with

        T = (x - m) f' - (y - m) g' + (y - x) m'' = u_1 v_1' + u_2 v_2' + u_3 v_3',   u_1 + u_2 + u_3 = 0,

    where u_1 = x - m, u_2 = m - y, u_3 = y - x are the sides of the triangle x, y, m, and v = (f, g, m'). T is affine
    in each of the six points, so its norm is largest on the spheres: take b = c = 1, all six points on unit spheres,
    and a triangle inscribed in a circle of radius at most 1. By convexity again radius 1 is enough. With angles A, B, C
    its sides are 2 sin A, 2 sin B, 2 sin C, and norm(T)^2 = sum over i, j of (u_i u_j)(v_i v_j), where u_i u_j is minus
    the product of two sides and the cosine of the angle between them. If the triangle is not acute (A >= 90 degrees),
    every term is largest for v_1 = -v_2 = -v_3, where T = 2 u_1 v_1' has norm 4 sin A <= 4. If it is acute, the choice
    of the v is that of three unit vectors that minimise the sum of cot C (v_1 v_2) over the pairs, whose least value is
    that of three vectors of lengths tan A, tan B, tan C with sum zero if such exist, that is if the largest, tan A, is
    at most tan B + tan C; otherwise v_1 = -v_2 = -v_3 as before. In the first case norm(T)^2 = 4 h with

        h = sin^2 A sin^2 B sin^2 C / (cos A cos B cos C).

    For fixed A, with k = cos A and t = cos(B - C), h = sin^2 A (t + k)^2 / (2 k (t - k)), which falls until t = 3 k and
    rises after it: it is largest at t = 1 or at the edge tan A = tan B + tan C, where 4 h = 16 sin^2 A <= 16. At t = 1,
    4 h = 2 (1 + k)^3/k, which falls until k = 1/2 and rises after it: it is at most 16, at k = 1, or again at an edge.
    So norm(T) <= 4, and D = 4 b c for a replaced unit, for any number of covariates and of edges, attained in large
    sites by x = y = 1, m = -1 and g = -f. Adding or removing a unit changes the edges by n/(n + 1) (x - m)(f - m')',
    which is at most 4 b c as well. The covariates follow with f := x: D = 4 b^2. The energy changes by
    (n - 1)/n (norm(f - m')^2 - norm(g - m')^2), at most 4 c^2.

    Rounding. The product of sums of x and of f over n is subtracted after the last unit. Its error is that of two more
    sums, each with the planned slack, and D is at least twice the norm of a product.

    Parameters
    ----------
    covariates : tuple of int
        Columns of the covariates, q in number.
    lower, upper : array of shape (q,)
        Their public ranges.
    bound : float, optional
        b; by default sqrt(q), the largest norm in the ranges.
    part : {"edges", "covariates", "energy"}
        What is released.
    columns, regions, clip, projection, center, ridge, basis, per_recording
        As for `EdgeStatistic`.
    """

    name: ClassVar[str] = "site_centred_connectivity"
    covariates: tuple[int, ...] = Field(min_length=1)
    lower: FloatArray
    upper: FloatArray
    bound: Positive | None = None
    part: Part = "edges"

    @model_validator(mode="after")
    def _covariates_fit(self) -> Self:
        if not all(self.regions <= at < self.columns for at in self.covariates):
            raise ValueError(f"covariates must be among the columns {self.regions} to {self.columns - 1}")
        q = len(self.covariates)
        if self.lower.shape != (q,) or self.upper.shape != (q,) or not np.all(self.upper - self.lower >= SMALLEST):
            raise ValueError(
                f"lower and upper must hold one number for each of the {q} covariates, the lower one first"
            )
        return self

    @property
    def radius(self) -> float:
        """b."""
        return math.sqrt(len(self.covariates)) if self.bound is None else self.bound

    @property
    def size(self) -> int:
        """The number of entries of the part."""
        q = len(self.covariates)
        return {"edges": q * self.width, "covariates": coordinates.size(q), "energy": 1}[self.part]

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring, for both adjacencies."""
        b, c = self.radius, self.clip
        return 4 * {"edges": b * c, "covariates": b * b, "energy": c * c}[self.part]

    def total(self, units: Units) -> Floats:
        """The centred products of all units of the site."""
        q, width, n = len(self.covariates), self.width, max(len(units), 1)
        cross, own, energy, x, f = _Sums.model_construct(**dict(self)).split(units)
        if self.part == "edges":
            return (cross.reshape(q, width) - np.outer(x, f) / n).ravel()
        if self.part == "covariates":
            return coordinates.pack(own.reshape(q, q) - np.outer(x, x) / n)
        return energy - np.sum(f * f) / n

    def sum_block(self, block: Units) -> Array:
        """The centred products of a block by itself, shape (size,)."""
        return self.total(block)

    def split(self, value: Floats) -> Floats:
        """A release in its shape: (q, width), (q, q) or (1,)."""
        q = len(self.covariates)
        if self.part == "covariates":
            return coordinates.unpack(value, q)
        return value.reshape(q, -1) if self.part == "edges" else value


class _Sums(SiteCentredConnectivity):
    """The sums over units from which the centred products follow: x f', x x', norm(f)^2, x and f."""

    @property
    def size(self) -> int:
        """The number of entries of all sums."""
        q = len(self.covariates)
        return q * self.width + q * q + 1 + q + self.width

    def total(self, units: Units) -> Floats:
        """The sum over units, block by block."""
        return super(SiteCentredConnectivity, self).total(units)

    def sum_block(self, block: Units) -> Array:
        """The sums of a block, shape (size,)."""
        return summed(self._parts(block))

    def _parts(self, block: Units) -> Iterator[Array]:
        middle, half = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        for batch, some, f in self.contributions(block):
            xp, columns = array_namespace(f), []
            for at, m, h in zip(self.covariates, middle.tolist(), half.tolist(), strict=True):
                value = xp.clip((first_rows(block, batch, some, at) - m) / h, -1.0, 1.0)
                columns.append(xp.where(xp.isnan(value), xp.zeros_like(value), value))
            x = clip_rows(xp.stack(columns, axis=1), self.radius)
            squared = [xp.reshape(products(x, f), (-1,)), xp.reshape(products(x, x), (-1,)), added(squares(f)[:, None])]
            yield xp.concat([*squared, added(x), added(f)])

    def split(self, units: Units) -> tuple[Floats, ...]:  # type: ignore[override]  # of a total and not of a release
        """The five sums over units."""
        q = len(self.covariates)
        ends = np.cumsum([q * self.width, q * q, 1, q])
        return tuple(np.split(self.total(units), ends))
