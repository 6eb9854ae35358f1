"""Sums and histograms by group, as tests need them, from the releases of grouped statistics. Free post-processing.

Model
-----
A release of `GroupedMoments` has for each group g and column the noisy numbers n_g, S_g (sum of x) and Q_g (sum of
2 x^2 - 1), with independent normal noise of known variances. A release of `GroupedRanks` has R h_g for the histograms
h_g. Both are improved by public facts: columns without missing values have the same true n_g, and the total may be
public. Hypothesis tests and the p values of descriptive tables use the same sums (`score_tests`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from zerosum.algorithms.quantiles import summation_of
from zerosum.algorithms.score_tests import BinNoise, GroupSums
from zerosum.arrays import Floats
from zerosum.kernel.request import Release
from zerosum.statistics.groups import GroupedMoments


def sums_by_column(release: Release, statistic: GroupedMoments, whole: Sequence[bool]) -> list[GroupSums]:
    """Numbers of units, sums and sums of squares by group, for each column.

    Parameters
    ----------
    release : Release
        A release of `statistic`.
    statistic : GroupedMoments
        It knows the layout and the weights of the release.
    whole : sequence of bool
        By column, whether every unit counts in it: it has no missing values.
    """
    counts, sums, second = statistic.split(release.value)  # each (groups, columns)
    variances = statistic.noise(release.noise_std) ** 2
    # X = (Q + n)/2 with the raw counts: the noise of Q and n has mean 0, which makes X unbiased.
    squares = (second + counts) / 2
    counts, noise = _improved_counts(counts, float(variances[0]), release.units, np.asarray(whole, dtype=bool))
    return [
        GroupSums(counts[:, j], sums[:, j], squares[:, j], noise[j], float(variances[1]), float(variances[2]))
        for j in range(counts.shape[1])
    ]


def _improved_counts(counts: Floats, variance: float, units: float | None, whole: Floats) -> tuple[Floats, Floats]:
    """Counts by group and column with what is known about them, and the covariance of their noise by column.

    The true counts of columns without missing values are equal, so their noisy ones are averaged. A public total
    takes away the mean of the noise over groups.

    Parameters
    ----------
    counts : array of shape (groups, columns)
        Noisy counts.
    variance : float
        Variance of the noise of one count.
    units : float, optional
        The public number of units.
    whole : array of bool, shape (columns,)
        Columns without missing values.

    Returns
    -------
    counts : array of shape (groups, columns)
    covariance : array of shape (columns, groups, groups)
    """
    counts, groups = counts.copy(), len(counts)
    covariance = np.tile(variance * np.eye(groups), (counts.shape[1], 1, 1))
    if np.any(whole):
        counts[:, whole] = np.mean(counts[:, whole], axis=1, keepdims=True)
        covariance[whole] /= np.sum(whole)
        if units is not None:
            # Normal noise of equal variance, conditioned on its sum: every group loses the mean. The covariance
            # becomes that of deviations from a mean.
            counts[:, whole] -= (np.sum(counts[:, whole], axis=0) - units) / groups
            covariance[whole] = covariance[whole] @ (np.eye(groups) - 1 / groups)
    return counts, covariance


def histograms_by_group(table: Floats, std: float, units: float | None) -> tuple[Floats, BinNoise]:
    """Histograms by group from released R h, and their noise.

    Parameters
    ----------
    table : array of shape (groups, bins)
        R h of each group, with independent noise of standard deviation `std`.
    std : float
        See above.
    units : float, optional
        The public number of units of all groups.

    Returns
    -------
    histograms : array of shape (groups, bins)
    noise : BinNoise
    """
    groups, bins = table.shape
    inverse, own = _bins_of_release(bins)
    histograms = table @ inverse.T
    if units is not None:
        # Condition the normal noise on the known total of all groups and bins.
        along = np.sum(own, axis=1)
        # Conditional mean given the sum: subtract Cov(h, total)/Var(total) times the excess.
        histograms = histograms - along / (groups * float(np.sum(along))) * (float(np.sum(histograms)) - units)
    return histograms, BinNoise(own, std**2, groups, units is not None)


@lru_cache(maxsize=8)
def _bins_of_release(bins: int) -> tuple[Floats, Floats]:
    """The matrix that maps R h to h, and the covariance of its result for noise of variance 1; both (bins, bins)."""
    to_cumulative, _ = summation_of(bins)
    # Counts of bins are differences of cumulative counts.
    inverse = np.diff(np.vstack([np.zeros(bins), to_cumulative]), axis=0)
    return inverse, inverse @ inverse.T
