"""Second moments.

Tested in tests/statistics/test_sensitivity.py.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import SMALLEST, Adjacency
from zerosum.kernel.units import Units
from zerosum.statistics.ranges import Ranged
from zerosum.statistics.rows import added, clip_rows, gram


class SecondMoment(Ranged):
    """The sum over units of the mean over its rows of z z', z = (x, a), x clipped to norm c, in isometric coordinates.

    `mean_weight` a adds the first moment to the same release (a = 0: x x' alone); `count` keeps the entry a^2 too,
    which counts the units. Without it that entry is public and left out.

    Sensitivity. A contribution Z is positive semidefinite with norm(Z) <= c^2 + a^2 =: r in Frobenius norm, being
    an average of matrices z z' with norm(z z') = norm(z)^2. For two such matrices norm(Z - W)^2 = norm(Z)^2 +
    norm(W)^2 - 2 tr(Z W) <= 2 r^2, since tr(Z W) >= 0. So D = sqrt(2) r; attained by z orthogonal to w, which needs
    a <= c. (Not r, as capeDJICA and capePCA have it: that is the spectral norm.) Adding or removing one: r.
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
        first = self.columns if self.mean_weight > 0 else 0
        return coordinates.size(self.columns) + first + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        radius = self.clip**2 + self.mean_weight**2
        return math.sqrt(2) * radius if adjacency is Adjacency.REPLACE_ONE else radius

    @property
    def row_bytes(self) -> int:
        return 8 * 4 * self.columns

    def sum_block(self, block: Units) -> Array:
        rows = clip_rows(self.normalise(block), self.clip)
        xp = array_namespace(rows)
        root = rows if block.offsets is None else rows * xp.sqrt(block.row_weights(rows))[:, None]
        parts = [coordinates.packed(gram(root))]
        if self.mean_weight > 0:
            weighted = rows if block.offsets is None else rows * block.row_weights(rows)[:, None]
            parts.append(math.sqrt(2) * self.mean_weight * added(weighted))
        if self.count:
            parts.append(xp.full_like(parts[0][:1], self.mean_weight**2 * len(block)))
        return xp.concat(parts)

    def split(self, release: Floats) -> tuple[Floats, Floats | None, float | None]:
        """A release as (sum of x x', sum of x or None, number of units or None)."""
        matrix = coordinates.size(self.columns)
        second = coordinates.unpack(release[:matrix], self.columns)
        if self.mean_weight == 0:
            return second, None, None
        first = release[matrix : matrix + self.columns] / (math.sqrt(2) * self.mean_weight)
        return second, first, float(release[-1]) / self.mean_weight**2 if self.count else None
