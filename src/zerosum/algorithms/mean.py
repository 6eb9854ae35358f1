"""The mean of vectors over all units of all sites.

Tested in tests/algorithms/test_programs.py.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency


class Mean(RangedAlgorithm):
    """The mean of each column; `noise_std` is the standard deviation that privacy adds to it."""

    name: ClassVar[str] = "mean"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        count = {"count": True} if adjacency is Adjacency.ADD_REMOVE else {}
        return (PrivateSum("vector_sum", self.bounds | count, 1.0),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        units, total = release.units, release.value
        noise = np.full(len(self.columns), release.noise_std)
        if units is None:  # the count is noisy too, and a mean m feels it m times
            units, total = max(float(total[0]), 1.0), total[1:]
            noise = noise * np.sqrt(1 + (total / units) ** 2)
        return {"mean": self.middle + self.half * total / units, "noise_std": self.half * noise / units}
