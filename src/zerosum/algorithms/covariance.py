"""The mean and covariance of the columns, from one joint release.

With x (p numbers) a row in half ranges from the middle of its ranges, clipped to norm r, the release holds the sums
over units of x x' (p, p) and, with weight `mean_weight`, of x (p), in one vector of one sensitivity (`SecondMoment`).
With n units, mean = sum x/n and covariance = sum x x'/n - mean mean'. Under add/remove adjacency the release also holds
a noisy count, which replaces n. All else is free post-processing.

Noise of a covariance. Let m be the mean, C the covariance, E the noise of the second moment (variance s^2 on the
diagonal and s^2/2 off it), e that of the mean (variance t^2 in each entry) and g that of the count, over n (variance
c^2; 0 under replace-one). All are independent and normal. To first order in g,

    dC_ij = E_ij - m_i e_j - m_j e_i - e_i e_j - (C_ij - m_i m_j) g                                                  (1)

The expectation of e e', t^2 I, is added back to C. The variances of (1), with the second-order term e e', are

    var C_ii = s^2   + 4 m_i^2 t^2           + 2 t^4 + (C_ii - m_i^2)^2 c^2
    var C_ij = s^2/2 + (m_i^2 + m_j^2) t^2   + t^4   + (C_ij - m_i m_j)^2 c^2
    cov(C_ii, C_ij) = 2 m_i m_j t^2 + (C_ii - m_i^2) (C_ij - m_i m_j) c^2
    cov(C_ii, C_jj) = (C_ii - m_i^2) (C_jj - m_j^2) c^2

A correlation is C_ij/D with D = sqrt(C_ii C_jj), whose noise follows by the delta method. Its interval is Fieller's,
which allows for the noise of D (`intervals.ratio_interval`).

Sampling. The population intervals add the sampling variance of normal data: (C_ii C_jj + C_ij^2)/n for a covariance,
and 1/(n - 3) for the Fisher transform of a correlation. Rows with heavier tails vary more than this: their fourth
moments are not released.

The projection to the nearest positive semi-definite matrix lies closer to the covariance of the data than the noisy
matrix, in Frobenius norm (the cone is convex), so that standard deviations of (1) are upper bounds on average over the
entries. Every interval contains both the interval around the noisy entry and the one around the projected entry.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from zerosum.algorithms.intervals import ENDS, Z, ratio_interval, within
from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.moments import SecondMoment


class CovarianceProgram(RangedAlgorithm):
    """Mean, covariance and correlation. First and second moments are in one release with one sensitivity.

    `mean_weight` is the weight of the first moment as a fraction of the clip: a larger one makes the mean more accurate
    and the covariance less. The covariance is projected to the nearest positive semi-definite matrix.

    Results: `mean`, `covariance` and `correlation` in the units of the data, each with the standard deviation that
    privacy adds; a correlation with one of 1 is unknown. `covariance_interval` and `correlation_interval` cover the
    value of the pooled data in 95 % (privacy noise), `covariance_population_interval` and
    `correlation_population_interval` that of the population, if the data are normal (privacy noise and sampling error).
    `mean_noise_std` and `moment_noise_std` are the standard deviations of the mean and of the second moments. With a
    clip, all of these are about the clipped rows.

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
        raw = second / units - np.outer(mean, mean) + mean_noise**2 * np.eye(len(mean))
        # noise makes small eigenvalues negative: they become 0, which is the projection in the Frobenius norm
        values, vectors = np.linalg.eigh(raw)
        covariance = (vectors * np.maximum(values, 0)) @ vectors.T
        # A column within [-1, 1], of rows of norm at most the clip, has a variance of at most `most`. Columns beyond it
        # are scaled down, which leaves the matrix positive semi-definite.
        most = self.radius**2 if self.lower is None else min(1.0, self.radius**2)
        held = np.sqrt(most / np.maximum(np.diag(covariance), most))
        covariance = covariance * np.outer(held, held)
        deviation = np.sqrt(np.diag(covariance))
        # a column whose variance is 0 after the projection has correlations of 0 with all others
        scale = np.where(deviation > 0, deviation, 1.0)
        correlation = np.clip(covariance / np.outer(scale, scale), -1, 1)
        np.fill_diagonal(correlation, 1.0)
        noisy = Noisy(raw, mean, noise, mean_noise, count_noise, most)
        ends = noisy.covariance_interval(covariance)
        related = noisy.correlation_interval(correlation)
        # delta method: the mean is a ratio, and a noisy count adds mean * (noise of the count)/n
        mean_std = self.half * np.hypot(mean_noise, mean * count_noise)
        unit = np.outer(self.half, self.half)
        moment_std = unit * np.where(np.eye(len(mean)) > 0, noise, noise / np.sqrt(2))
        axis = self.column_axis
        square, pairs = (axis, axis), (axis, axis, ENDS)
        population = unit[..., None] * sampled_covariances(covariance, ends, units, most)
        return {
            "mean": Quantity(self.middle + self.half * mean, "mean", (axis,), mean_std),
            "covariance": Quantity(covariance * unit, "covariance", square, unit * noisy.covariance_std),
            "covariance_interval": Quantity(unit[..., None] * ends, "number", pairs),
            "covariance_population_interval": Quantity(population, "number", pairs),
            "correlation": Quantity(correlation, "covariance", square, noisy.correlation_std),
            "correlation_interval": Quantity(related, "number", pairs),
            "correlation_population_interval": Quantity(
                sampled_correlations(correlation, related, units), "number", pairs
            ),
            "mean_noise_std": Quantity(mean_std, "diagnostic", (axis,)),
            "moment_noise_std": Quantity(moment_std, "diagnostic", square),
        }


class Noisy:
    """A noisy covariance matrix of columns in half ranges, with the variances of its noise.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Noisy and not projected, with expectation C.
    mean : array of shape (p,)
        Noisy mean.
    noise, mean_noise, count_noise : float
        s, t and c of the module docstring.
    most : float
        Largest possible variance.
    """

    def __init__(
        self, covariance: Floats, mean: Floats, noise: float, mean_noise: float, count_noise: float, most: float
    ) -> None:
        self.covariance, self.most = covariance, most
        own = np.eye(len(mean)) > 0
        # Means are noisy themselves: their squares are too large by t^2, which makes the variances slightly too large.
        square, joint = mean**2, np.outer(mean, mean)
        moved = covariance - joint
        variance = noise**2 / 2 + mean_noise**2 * np.add.outer(square, square) + mean_noise**4
        # On the diagonal the two terms in e are one, so that their variance is doubled like the others.
        variance = np.where(own, 2 * variance, variance) + (moved * count_noise) ** 2
        self.variance = variance
        # cov(C_ii, C_ij) at [i, j], and cov(C_ii, C_jj).
        self._crossed = 2 * joint * mean_noise**2 + np.diag(moved)[:, None] * moved * count_noise**2
        self._apart = np.outer(np.diag(moved), np.diag(moved)) * count_noise**2
        self._own = own
        # A variance that does not differ from 0 by more than its noise leaves its correlations unknown.
        diagonal = np.diag(covariance)
        self._known = diagonal > Z * np.sqrt(np.diag(variance))
        self._diagonal = np.where(self._known, diagonal, 1.0)

    @property
    def covariance_std(self) -> Floats:
        """Standard deviation of the noise of each covariance (p, p)."""
        return np.asarray(np.sqrt(self.variance))

    def covariance_interval(self, point: Floats) -> Floats:
        """Interval of each covariance of the pooled data (p, p, 2), around the noisy entry and the estimate `point`,
        within possible values.
        """
        side = Z * self.covariance_std
        ends = np.stack([self.covariance - side, self.covariance + side], axis=-1)
        return within(ends, self.covariance, point, np.where(self._own, 0.0, -self.most), self.most)

    def _ratio(self) -> tuple[Floats, Floats, Floats, Floats]:
        """sqrt(C_ii C_jj), its variance, its covariance with C_ij, and C_ij over it; all of shape (p, p)."""
        size = np.sqrt(np.outer(self._diagonal, self._diagonal))
        relative = np.diag(self.variance) / self._diagonal**2
        var = size**2 / 4 * (np.add.outer(relative, relative) + 2 * self._apart / size**2)
        share = self._crossed / self._diagonal[:, None]
        return size, var, size / 2 * (share + share.T), self.covariance / size

    @property
    def correlation_std(self) -> Floats:
        """Standard deviation of the noise of each correlation (p, p): 0 on the diagonal, and at most 1, for unknown."""
        size, var, cross, ratio = self._ratio()
        ratio = np.clip(ratio, -1, 1)
        spread = np.maximum(self.variance - 2 * ratio * cross + ratio**2 * var, 0.0) / size**2
        known = np.outer(self._known, self._known)
        return np.where(self._own, 0.0, np.where(known, np.minimum(np.sqrt(spread), 1.0), 1.0))

    def correlation_interval(self, point: Floats) -> Floats:
        """Interval of each correlation of the pooled data (p, p, 2), around the noisy ratio and `point`."""
        size, var, cross, ratio = self._ratio()
        # Ends far outside of [-1, 1] stand for an unbounded interval.
        ends = ratio_interval(self.covariance, size, self.variance, cross, var, -_FAR, _FAR)
        held = within(ends, ratio, point, -1.0, 1.0)
        known = np.outer(self._known, self._known)[..., None]
        return np.where(self._own[..., None], 1.0, np.where(known, held, np.array([-1.0, 1.0])))


_FAR = 1e3  # beyond any correlation


def sampled_covariances(covariance: Floats, ends: Floats, units: float, most: float) -> Floats:
    """Intervals for the population from those for the pooled data (p, p, 2), with the sampling error of normal data;
    no variance exceeds `most`.

    The sample covariance of normal data has the variance (C_ii C_jj + C_ij^2)/n (Anderson 2003, section 3.4).

    Parameters
    ----------
    covariance : array of shape (p, p)
        Estimate.
    ends : array of shape (p, p, 2)
        Intervals for the pooled data.
    units : float
        Number of units.
    most : float
        Largest possible variance.
    """
    diagonal = np.diag(covariance)
    side = Z * np.sqrt((np.outer(diagonal, diagonal) + covariance**2) / max(units, 1.0))
    # Privacy noise and sampling error are independent: squares of the distances on each side add up.
    widened_ends = np.stack(
        [
            covariance - np.hypot(covariance - ends[..., 0], side),
            covariance + np.hypot(ends[..., 1] - covariance, side),
        ],
        axis=-1,
    )
    own = np.eye(len(covariance)) > 0
    lowest = np.where(own, 0.0, -most)
    return np.stack([np.maximum(widened_ends[..., 0], lowest), np.minimum(widened_ends[..., 1], most)], axis=-1)


def sampled_correlations(correlation: Floats, ends: Floats, units: float) -> Floats:
    """Intervals for the population from those for the pooled data (p, p, 2), with the sampling error of normal data.

    The sampling distance on a side is that of Fisher's interval around the end on that side, not around the estimate:
    an estimate that noise moved to 1 has no sampling error of its own.

    Parameters
    ----------
    correlation : array of shape (p, p)
        Estimate.
    ends : array of shape (p, p, 2)
        Intervals for the pooled data.
    units : float
        Number of units.
    """
    shift = Z / np.sqrt(max(units - 3, 1.0))
    inner = np.clip(ends, -_NEARLY_ONE, _NEARLY_ONE)
    below = inner[..., 0] - np.tanh(np.arctanh(inner[..., 0]) - shift)
    above = np.tanh(np.arctanh(inner[..., 1]) + shift) - inner[..., 1]
    widened_ends = np.stack(
        [
            correlation - np.hypot(correlation - ends[..., 0], below),
            correlation + np.hypot(ends[..., 1] - correlation, above),
        ],
        axis=-1,
    )
    own = (np.eye(len(correlation)) > 0)[..., None]
    return np.where(own, ends, np.clip(widened_ends, -1, 1))


_NEARLY_ONE = 1 - 1e-12  # Fisher's transform is infinite at 1
