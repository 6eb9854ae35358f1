"""Programs whose statistics claim too little. Nothing but the audit uses them; no policy allows them.

Tested in tests/audit/test_audit.py.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Array
from zerosum.errors import BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.statistics import build, register
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.rows import clip_rows


class SpectralNorm(SecondMoment):
    """The spectral norm for a sensitivity, as capeDJICA and capePCA have it."""

    name: ClassVar[str] = "mistake_spectral"

    def sensitivity(self, adjacency: Adjacency) -> float:
        return self.clip**2


class BothTriangles(SecondMoment):
    """Isometric coordinates of both triangles, each with noise of its own, counted as if there were one."""

    name: ClassVar[str] = "mistake_triangles"

    @property
    def size(self) -> int:
        return self.columns**2

    def sum_block(self, block: Units) -> Array:
        rows = clip_rows(np.asarray(block.rows, dtype=np.float64), self.clip)
        scale = np.where(np.eye(self.columns) > 0, 1.0, math.sqrt(2))
        return (rows.T @ rows * scale).ravel()


class Mistaken(RangedAlgorithm):
    """One release of a mistaken statistic."""

    name: ClassVar[str] = "mistaken"
    statistic: str

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(build(self.statistic, self.bounds)),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        return {"sum": Quantity(release.value)}


def mistaken(mistake: str, columns: int = 50) -> Mistaken:
    """A program whose statistic has the named mistake in it."""
    kinds = {"spectral": SpectralNorm, "triangles": BothTriangles}
    if mistake not in kinds:
        raise BadParameter(f"there is no statistic with the mistake {mistake!r}; there are {', '.join(kinds)}")
    kind = register(kinds[mistake])
    return Mistaken(columns=tuple(f"x{i}" for i in range(columns)), clip=1.0, statistic=kind.name)
