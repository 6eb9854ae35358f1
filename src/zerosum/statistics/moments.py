"""Second moments of clipped rows.

The map of one unit, with d = `columns`, c = `clip`, a = `mean_weight` and m rows x_i in R^d, each clipped to norm c:

    z_i = (x_i, a)                         shape (d + 1,)
    Z = mean over i of z_i z_i'            shape (d + 1, d + 1)

Z holds the second moment, a times the mean row, and a^2. It is released in isometric coordinates
(`kernel.coordinates`): the upper triangle with off-diagonal entries times sqrt(2), so that the L2 norm of the vector is
the Frobenius norm of the matrix. The entry a^2 is released only with `count`.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import added, clip_rows, gram
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import SMALLEST, Adjacency
from zerosum.statistics.ranges import Ranged


class SecondMoment(Ranged):
    """The sum over units of the mean over its rows of z z', z = (x, a), x clipped to norm c, in isometric coordinates.

    Sensitivity. Write r = c^2 + a^2. A contribution Z is positive semidefinite. Its Frobenius norm is at most r,
    because Z is an average of matrices z z' and norm(z z') = norm(z)^2 <= r. For two such matrices norm(Z - W)^2 =
    norm(Z)^2 + norm(W)^2 - 2 tr(Z W) <= 2 r^2, because the trace of the product of two positive semidefinite matrices
    is not negative. So D = sqrt(2) r for a replaced unit. It is attained by z orthogonal to w, which needs a <= c.
    Adding or removing a unit moves the sum by norm(Z) <= r.

    The published algorithms capeDJICA and capePCA use r for a replaced unit. That value is a bound in spectral norm and
    not in Frobenius norm.

    Parameters
    ----------
    columns, clip, lower, upper
        d, c and the public ranges, as for `Ranged`.
    mean_weight : float
        a, the constant appended to each row. With a = 0 the release holds x x' alone. Must not exceed the clip.
    count : bool
        Whether the entry a^2, which counts the units, is released. Without `count` the entry is public and left out.
    """

    name: ClassVar[str] = "second_moment"
    adds_in_pieces: ClassVar[bool] = True
    mean_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    count: bool = False

    @model_validator(mode="after")
    def _weight_fits(self) -> Self:
        if self.mean_weight > self.clip:
            raise ValueError(f"mean_weight must not exceed the clip of {self.clip:g}, got {self.mean_weight:g}")
        if 0 < self.mean_weight < SMALLEST:
            raise ValueError(f"mean_weight must be 0 or at least {SMALLEST:g}, got {self.mean_weight:g}")
        if self.count and self.mean_weight == 0:
            raise ValueError("counting units needs a positive mean_weight")
        return self

    @property
    def size(self) -> int:
        """d (d + 1)/2 entries of the matrix, d of the first moment where a > 0, and one for the count."""
        first = self.columns if self.mean_weight > 0 else 0
        return coordinates.size(self.columns) + first + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        radius = self.clip**2 + self.mean_weight**2
        return math.sqrt(2) * radius if adjacency is Adjacency.REPLACE_ONE else radius

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: four arrays of d doubles (normalised, clipped, weighted, and one
        temporary).
        """
        return 8 * 4 * self.columns

    def sum_block(self, block: Units) -> Array:
        """The sum over a block, in the order: packed second moment, first moment, count."""
        rows = clip_rows(self.normalise(block), self.clip)
        xp = array_namespace(rows)
        # The gram matrix of rows times the root of their weight is the sum of weight x x'. A unit of m rows has the
        # weight 1/m for each row.
        root = rows if block.offsets is None else rows * xp.sqrt(block.row_weights(rows))[:, None]
        parts = [packed(gram(root))]
        if self.mean_weight > 0:
            weighted = rows if block.offsets is None else rows * block.row_weights(rows)[:, None]
            # An off-diagonal entry in isometric coordinates is multiplied by sqrt(2). The last column of Z without its
            # diagonal entry is a times the mean row.
            parts.append(math.sqrt(2) * self.mean_weight * added(weighted))
        if self.count:
            parts.append(xp.full_like(parts[0][:1], self.mean_weight**2 * len(block)))
        return xp.concat(parts)

    def split(self, release: Floats) -> tuple[Floats, Floats | None, float | None]:
        """A release as (sum of x x', sum of x or None, number of units or None).

        Parameters
        ----------
        release : array of shape (size,)
            A noisy sum in the coordinates of `sum_block`.

        Returns
        -------
        second : array of shape (columns, columns)
        first : array of shape (columns,) or None
            None if `mean_weight` is 0.
        count : float or None
            None if `count` is not set.
        """
        matrix = coordinates.size(self.columns)
        second = coordinates.unpack(release[:matrix], self.columns)
        if self.mean_weight == 0:
            return second, None, None
        # The inverse of the factor in `sum_block`.
        first = release[matrix : matrix + self.columns] / (math.sqrt(2) * self.mean_weight)
        return second, first, float(release[-1]) / self.mean_weight**2 if self.count else None
