"""The mean of vectors over all units of all sites.

Tested in tests/algorithms/test_programs.py.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.vectors import VectorSum


class Mean(RangedAlgorithm):
    """The mean of each column; `noise_std` is the standard deviation that privacy adds to it."""

    name: ClassVar[str] = "mean"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(VectorSum(**self.bounds, count=adjacency is Adjacency.ADD_REMOVE)),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        units, total = release.units, release.value
        noise = np.full(len(self.columns), release.noise_std)
        if units is None:  # the count is noisy too, and a mean m feels it m times
            units, total = max(float(total[0]), 1.0), total[1:]
            noise = noise * np.sqrt(1 + (total / units) ** 2)
        std = self.half * noise / units
        axes = (self.column_axis,)
        return {
            "mean": Quantity(self.middle + self.half * total / units, "mean", axes, std),
            "noise_std": Quantity(std, "diagnostic", axes),
        }
