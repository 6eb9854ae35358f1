"""The mean of each column over all units of all sites, from one release.

With public counts n the release is the sum S of the clipped vectors (`VectorSum`), and the mean is S/n. Under
add/remove adjacency the release also holds a noisy count. With the rule "observed" it holds a sum and a count for each
column (`ObservedSums`).
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

    Where a column's rule for missing values is "observed", its mean is over the units observed in it, and `observed` is
    their noisy number. Sums and counts are in one release with one sensitivity.

    Parameters
    ----------
    columns, lower, upper, clip, missing
        As for `RangedAlgorithm`. With ranges a column has noise in proportion to the width of its range, so that tight
        ranges pay.
    """

    name: ClassVar[str] = "mean"
    laplace: ClassVar[bool] = True
    words: ClassVar[Mapping[str, str]] = {}

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget: sums alone, or sums and counts where values may be missing."""
        if OBSERVED in self.rules.values():
            return (PrivateSum(self._observed_sums(adjacency)),)
        return (PrivateSum(VectorSum(**self.bounds, count=adjacency is Adjacency.ADD_REMOVE)),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release, then the quotient of sum and count."""
        if OBSERVED in self.rules.values():
            return (yield from self._of_observed(adjacency))
        release = yield self.requests(adjacency)[0]
        units, total = release.units, release.value
        noise = np.full(len(self.columns), release.noise_std)
        if units is None:  # delta method: S/n has error (e_S - mean e_n)/n
            units, total = max(float(total[0]), 1.0), total[1:]
            noise = noise * np.sqrt(1 + (total / units) ** 2)
        std = self.half * noise / units
        axes = (self.column_axis,)
        return {
            "mean": Quantity(self.middle + self.half * total / units, "mean", axes, std),
            "noise_std": Quantity(std, "diagnostic", axes),
        }

    def _observed_sums(self, adjacency: Adjacency) -> ObservedSums:
        """The statistic of sums and counts.

        Under replace-one, counts get the largest weight that does not raise the sensitivity. Under add/remove every
        weight raises it, and counts have weight 1 like the sums.

        Parameters
        ----------
        adjacency : Adjacency
            Decides the weight of the counts.
        """
        weight = ObservedSums(**self.bounds).largest_weight if adjacency is Adjacency.REPLACE_ONE else 1.0
        return ObservedSums(**self.bounds, count_weight=weight)

    def _of_observed(self, adjacency: Adjacency) -> Program:
        """Means S/n with noisy n: to first order the error is (e_S - mean e_n)/n. Means are clipped to the ranges.

        Parameters
        ----------
        adjacency : Adjacency
            Under replace-one columns without missing values have the public count.
        """
        statistic = self._observed_sums(adjacency)
        release = yield PrivateSum(statistic)
        sums, counts = statistic.split(release.value)
        count_std = np.full(len(self.columns), statistic.count_noise(release.noise_std))
        always = np.array([self.rules.get(name) != OBSERVED for name in self.columns])
        if np.any(always):  # columns without missing values have the same count: the public one, or the mean of theirs
            known = release.units is not None
            counts[always] = release.units if known else np.mean(counts[always])
            count_std[always] = 0.0 if known else count_std[always] / np.sqrt(np.sum(always))
        divisor = np.maximum(counts, 1.0)
        mean = sums / divisor
        # A quotient of noisy numbers may leave the range; the true mean cannot.
        if self.lower is not None:
            mean = np.clip(mean, -1, 1)
        std = self.half * np.hypot(release.noise_std, mean * count_std) / divisor
        axes = (self.column_axis,)
        return {
            "mean": Quantity(self.middle + self.half * mean, "mean", axes, std),
            "observed": Quantity(counts, "count", axes, count_std),
            "noise_std": Quantity(std, "diagnostic", axes),
        }
