"""The mean of vectors over all units of all sites.

Tested in tests/algorithms/test_programs.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.kernel.missing import OBSERVED
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.observed import ObservedSums
from zerosum.statistics.vectors import VectorSum


class MeanProgram(RangedAlgorithm):
    """The mean of each column; `noise_std` is the standard deviation that privacy adds to it.

    Where a column's rule for missing values is "observed", its mean is over the units that are observed in it, and
    `observed` says how many these are: sums and counts travel in one release with one bound.
    """

    name: ClassVar[str] = "mean"
    words: ClassVar[Mapping[str, str]] = {}

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        if OBSERVED in self.rules.values():
            return (PrivateSum(self._observed_sums(adjacency)),)
        return (PrivateSum(VectorSum(**self.bounds, count=adjacency is Adjacency.ADD_REMOVE)),)

    def program(self, adjacency: Adjacency) -> Program:
        if OBSERVED in self.rules.values():
            return (yield from self._of_observed(adjacency))
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

    def _observed_sums(self, adjacency: Adjacency) -> ObservedSums:
        """With the largest weight of counts that is free where units are replaced; where they are added or removed no
        weight is, and counts weigh as much as sums."""
        weight = ObservedSums(**self.bounds).heaviest if adjacency is Adjacency.REPLACE_ONE else 1.0
        return ObservedSums(**self.bounds, count_weight=weight)

    def _of_observed(self, adjacency: Adjacency) -> Program:
        """A mean is a sum over a count. To first order its error is that of the sum less the mean times that of the
        count, over the count; a mean outside the ranges is brought back to them."""
        statistic = self._observed_sums(adjacency)
        release = yield PrivateSum(statistic)
        sums, counts = statistic.split(release.value)
        count_std = np.full(len(self.columns), statistic.count_noise(release.noise_std))
        always = np.array([self.rules.get(name) != OBSERVED for name in self.columns])
        if np.any(always):  # nobody is missing there: as many as there are, or what these columns say of it together
            known = release.units is not None
            counts[always] = release.units if known else np.mean(counts[always])
            count_std[always] = 0.0 if known else count_std[always] / np.sqrt(np.sum(always))
        divisor = np.maximum(counts, 1.0)
        mean = sums / divisor
        if self.lower is not None:
            mean = np.clip(mean, -1, 1)
        std = self.half * np.hypot(release.noise_std, mean * count_std) / divisor
        axes = (self.column_axis,)
        return {
            "mean": Quantity(self.middle + self.half * mean, "mean", axes, std),
            "observed": Quantity(counts, "count", axes, count_std),
            "noise_std": Quantity(std, "diagnostic", axes),
        }
