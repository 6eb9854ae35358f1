"""Noisy counts of one table made consistent: weighted least squares under what is publicly known about them.

Model
-----
A table has g = 1..G groups of unknown sizes n_g, and columns k = 1..K with c_gk observed units in each group. Released
are noisy sizes and counts with known variances. Publicly known is

    c_gk = n_g           for a column without a rule for missing values that leaves units out (a complete column),
    0 <= c_gk <= n_g     for the others,
    sum_g n_g = N        if N is public and every unit is in a group;  <= N if the group may be missing.

The estimate is the point of this set that is nearest to the released counts, with the inverse variances as weights. The
set is convex and contains the true counts, so that the weighted distance to them never grows. Free post-processing.

For a multiplier m of the sum, every group is a problem of its own: with the inverse-variance mean a_g of the released
sizes and complete counts, and its precision w_g, n_g minimises

    w_g (n - a_g)^2 + sum_k w_gk max(released c_gk - n, 0)^2 + 2 m n,

whose derivative is piecewise linear and increasing. The sum of the n_g falls with m, so that m is the root of one
decreasing function, or 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats

# Precision of a group size that was not released, relative to the largest precision of a count: any small number, so
# that the size is the smallest one that the counts allow.
_NO_PRECISION = 1e-9


@dataclass(frozen=True, eq=False)
class Counts:
    """Consistent counts, and variances of the errors of the sizes without the inequalities (upper bounds)."""

    sizes: Floats  # (G,)
    counts: Floats  # (G, K)
    size_variance: Floats  # (G,)
    total: float
    total_variance: float


def consistent_counts(
    sizes: Floats | None,
    size_variance: Floats,
    counts: Floats,
    variance: Floats,
    complete: Floats,
    total: float | None,
    *,
    closed: bool,
) -> Counts:
    """The consistent counts nearest to released ones.

    Parameters
    ----------
    sizes : array of shape (G,), optional
        Released sizes of the groups.
    size_variance : array of shape (G,)
        Variances of their noise.
    counts, variance : array of shape (G, K)
        Released counts of observed units, and variances of their noise.
    complete : array of shape (K,)
        Whether every unit of a group counts in a column.
    total : float, optional
        Public number of units.
    closed : bool
        Whether every unit is in a group.

    Examples
    --------
    >>> one = np.ones((2, 1))
    >>> found = consistent_counts(np.array([6.0, 8.0]), np.ones(2), 9 * one, one, np.array([False]), 10, closed=True)
    >>> found.sizes.round(6).tolist(), found.counts.ravel().round(6).tolist()
    ([4.5, 5.5], [4.5, 5.5])
    """
    whole = np.asarray(complete, dtype=bool)
    groups = len(counts)
    # Inverse-variance mean of all released numbers that estimate the size of a group without bias.
    precise = 1 / variance[:, whole]
    weight = np.sum(precise, axis=1)
    top = np.sum(precise * counts[:, whole], axis=1)
    if sizes is not None:
        weight, top = weight + 1 / size_variance, top + sizes / size_variance
    measured = weight > 0
    centre = np.divide(top, weight, out=np.zeros(groups), where=measured)
    open_counts, open_weights = counts[:, ~whole], 1 / variance[:, ~whole]
    least = _NO_PRECISION * max(float(np.max(open_weights, initial=0.0)), float(np.max(weight, initial=0.0)), 1e-300)
    weight = np.where(measured, weight, least)

    def at(multiplier: float) -> Floats:
        return np.array(
            [_size(centre[g], weight[g], open_counts[g], open_weights[g], multiplier) for g in range(groups)]
        )

    counts_at_zero, multiplied = at(0.0), total is not None and groups > 0
    if multiplied and total is not None and (closed or float(np.sum(counts_at_zero)) > total):
        counts_at_zero = _with_sum(at, total, float(np.max(weight + np.sum(open_weights, axis=1))))
    spread = np.where(measured, 1 / weight, np.inf)
    tied = total is not None and closed
    if tied and np.all(measured):
        # Conditional on the sum, each size loses its share of the variance of the sum.
        errors, total_error = spread - spread**2 / float(np.sum(spread)), 0.0
    else:
        errors, total_error = spread, 0.0 if tied else float(np.sum(spread))
    held = np.where(whole, counts_at_zero[:, None], np.clip(counts, 0.0, counts_at_zero[:, None]))
    return Counts(
        counts_at_zero,
        held,
        errors,
        float(total) if tied and total is not None else float(np.sum(counts_at_zero)),
        total_error,
    )


def _size(centre: float, weight: float, counts: Floats, weights: Floats, multiplier: float) -> float:
    """Size of one group for a multiplier: the zero of a piecewise linear increasing function.

    Parameters
    ----------
    centre, weight : float
        Mean and precision of the released sizes.
    counts, weights : array of shape (k,)
        Released counts of columns with missing values, and their precisions.
    multiplier : float
        Multiplier of the sum of the sizes.
    """
    order = np.argsort(-counts)
    top, below = weight * centre - multiplier, weight
    size = top / below
    # The counts above the size pull it upwards; they are added from the largest downwards.
    for at in order:
        if counts[at] <= size:
            break
        top, below = top + weights[at] * counts[at], below + weights[at]
        size = top / below
    return max(float(size), 0.0)


def _with_sum(at: Callable[[float], Floats], total: float, scale: float) -> Floats:
    """Sizes whose sum is the public total, by the root of a decreasing function of the multiplier.

    Parameters
    ----------
    at : callable
        Sizes for a multiplier.
    total : float
        The public number of units.
    scale : float
        Largest precision of a size, for the first bracket.
    """
    from scipy.optimize import brentq  # heavy: loaded when it is used

    def excess(multiplier: float) -> float:
        return float(np.sum(at(multiplier))) - total

    # A multiplier of the precision times the distance moves every size by about that distance; the bracket is doubled
    # until the sum passes the total.
    reach = scale * max(abs(excess(0.0)), 1.0)
    low, high = -reach, reach
    while excess(low) < 0:
        low *= 2
    while excess(high) > 0 and high < 1e300:
        high *= 2
    counts = np.asarray(at(brentq(excess, low, high, xtol=1e-12 * reach, rtol=1e-14)))
    return counts * (total / float(np.sum(counts))) if np.sum(counts) > 0 else counts
