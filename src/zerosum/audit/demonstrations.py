"""Two programs with a sensitivity that is too small, which an audit must detect. No policy permits them.

They show to a user that the audit measures something: the first mistake is that of two of the papers, and neither shows
in the results. With S = x x' and S' = y y' for rows of norm at most 1, the Frobenius distance is at most
sqrt(2), while the spectral norm of the difference is at most 1. The noise is added to every element of the matrix, so
the Frobenius distance counts.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Array
from zerosum.compute.backends.exact import clip_rows
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build, register
from zerosum.statistics.moments import SecondMoment


class SpectralNorm(SecondMoment):
    """Second moment with the spectral norm as sensitivity, as in capeDJICA and capePCA."""

    name: ClassVar[str] = "mistake_spectral"

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The wrong sensitivity, clip squared; the Frobenius distance is sqrt(2) times that."""
        return self.clip**2


class BothTriangles(SecondMoment):
    """Second moment with both triangles released with independent noise, and accounted as one."""

    name: ClassVar[str] = "mistake_triangles"

    @property
    def size(self) -> int:
        """All elements of the matrix."""
        return self.columns**2

    def sum_block(self, block: Units) -> Array:
        """Sum of both triangles in isometric coordinates."""
        rows = clip_rows(np.asarray(block.rows, dtype=np.float64), self.clip)
        # Isometric coordinates give an element off the diagonal the weight sqrt(2), because it stands for two. With
        # both triangles released it is counted twice.
        scale = np.where(np.eye(self.columns) > 0, 1.0, math.sqrt(2))
        return (rows.T @ rows * scale).ravel()


# Names and descriptions of the demonstrations, as `zerosum audit --mistake` accepts them.
MISTAKES = {
    "spectral": "the sensitivity of a second moment taken as 1",
    "triangles": "both triangles of a second moment noised, and counted once",
}
_STATISTICS = {"spectral": SpectralNorm, "triangles": BothTriangles}


class Demonstration(RangedAlgorithm):
    """Program with one release of a statistic, for statistics with a wrong sensitivity."""

    name: ClassVar[str] = "demonstration"
    statistic: str

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The only request."""
        return (PrivateSum(build(self.statistic, self.bounds)),)

    def program(self, adjacency: Adjacency) -> Program:
        """Request the sum and return it."""
        release = yield self.requests(adjacency)[0]
        return {"sum": Quantity(release.value)}


def demonstration(mistake: str, columns: int = 50) -> Demonstration:
    """Program whose statistic has the named mistake. Raises `BadParameter` for unknown names."""
    if mistake not in MISTAKES:
        raise BadParameter(f"unknown mistake {mistake!r}; there are {', '.join(MISTAKES)}")
    kind = register(_STATISTICS[mistake])
    return Demonstration(columns=tuple(f"x{i}" for i in range(columns)), clip=1.0, statistic=kind.name)
