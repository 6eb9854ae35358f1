"""The mean and covariance of the columns, from one joint release.

With x (p numbers) a row in half ranges from the middle of its ranges, clipped to norm r, the release holds the sums
over units of x x' (p, p) and, with weight `mean_weight`, of x (p), in one vector of one sensitivity (`SecondMoment`).
With n units, mean = sum x/n and covariance = sum x x'/n - mean mean'. Under add/remove adjacency the release also holds
a noisy count, which replaces n. Projection, correlation and standard deviations are free post-processing.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.moments import SecondMoment


class CovarianceProgram(RangedAlgorithm):
    """Mean, covariance and correlation. First and second moments are in one release with one sensitivity.

    `mean_weight` is the weight of the first moment as a fraction of the clip: a larger one makes the mean more accurate
    and the covariance less. The covariance is projected to the nearest positive semi-definite matrix.

    Results: `mean`, `covariance` and `correlation` in the units of the data; `mean_noise_std` and `moment_noise_std`,
    the standard deviations that privacy adds to the mean and to the second moments.

    Parameters
    ----------
    columns, lower, upper, clip
        As for `RangedAlgorithm`: public ranges, and the largest norm of a row in half ranges.
    mean_weight : float
        In (0, 1].
    """

    name: ClassVar[str] = "covariance"
    mean_weight: float = Field(default=0.5, gt=0, le=1)

    def _statistic(self, adjacency: Adjacency) -> SecondMoment:
        """The statistic of the release; `mean_weight` is a fraction of the clip, so that it has no unit."""
        weight = self.mean_weight * self.radius
        return SecondMoment(**self.bounds, mean_weight=weight, count=adjacency is Adjacency.ADD_REMOVE)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        return (PrivateSum(self._statistic(adjacency)),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release, then covariance, correlation and their noise."""
        statistic = self._statistic(adjacency)
        release = yield PrivateSum(statistic)
        second, first, counted = statistic.split(release.value)
        units = release.units if release.units is not None else max(counted or 1.0, 1.0)
        # Noise of a mean over units. Off-diagonal entries have 1/sqrt(2) of the noise of a coordinate; the first moment
        # is released as such entries, times its weight.
        noise = release.noise_std / units
        mean_noise = noise / (np.sqrt(2) * statistic.mean_weight)
        mean = np.zeros(len(self.columns)) if first is None else first / units
        count_noise = 0.0 if counted is None else noise / statistic.mean_weight**2
        # E[m m'] of the noisy mean m exceeds mean mean' by the variance of its noise: added back
        covariance = second / units - np.outer(mean, mean) + mean_noise**2 * np.eye(len(mean))
        # noise makes small eigenvalues negative: they become 0, which is the projection in the Frobenius norm
        values, vectors = np.linalg.eigh(covariance)
        covariance = (vectors * np.maximum(values, 0)) @ vectors.T
        deviation = np.sqrt(np.diag(covariance))
        # a column whose variance is 0 after the projection has correlations of 0
        scale = np.where(deviation > 0, deviation, 1.0)
        # delta method: the mean is a ratio, and a noisy count adds mean * (noise of the count)/n
        mean_std = self.half * np.hypot(mean_noise, mean * count_noise)
        moment_std = np.outer(self.half, self.half) * np.where(np.eye(len(mean)) > 0, noise, noise / np.sqrt(2))
        axis = self.column_axis
        return {
            "mean": Quantity(self.middle + self.half * mean, "mean", (axis,), mean_std),
            "covariance": Quantity(covariance * np.outer(self.half, self.half), "covariance", (axis, axis)),
            "correlation": Quantity(covariance / np.outer(scale, scale), "covariance", (axis, axis)),
            "mean_noise_std": Quantity(mean_std, "diagnostic", (axis,)),
            "moment_noise_std": Quantity(moment_std, "diagnostic", (axis, axis)),
        }
