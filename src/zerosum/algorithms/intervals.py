"""Intervals of 95 % for functions of noisy sums and counts. Privacy noise is normal with known variance.

All functions work entry by entry on arrays of any common shape; an interval has one more axis of length 2, its lower
and upper end. Free post-processing of released numbers.

References: Fieller 1954 (ratios); Zou and Donner 2008 (differences, MOVER).
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis

# The 97.5 % point of the normal distribution, scipy.stats.norm.ppf(0.975), to double precision.
Z = 1.959963984540054
# Coverage of the intervals.
LEVEL = 0.95
# Last axis of an interval in a result.
ENDS = Axis("end", ("lower", "upper"))


def ratio_interval(
    top: Floats, bottom: Floats, top_var: Floats, cross: Floats, bottom_var: Floats, lower: float, upper: float
) -> Floats:
    """Fieller's interval for a ratio top/bottom of two noisy numbers, clipped to [lower, upper].

    It contains every r for which |top - r bottom| is at most Z times its standard deviation

        sqrt(top_var - 2 r cross + r^2 bottom_var),

    so its coverage is exact for any noise of the denominator. With a = bottom^2 - Z^2 bottom_var, b = top bottom -
    Z^2 cross and c = top^2 - Z^2 top_var these r lie between the roots of a r^2 - 2 b r + c. If a or the denominator is
    not positive, the set is not one interval, and the result is [lower, upper].

    Parameters
    ----------
    top, bottom : arrays
        Numerators and denominators.
    top_var, cross, bottom_var : arrays
        Variances and covariance of their noise.
    lower, upper : float
        Smallest and largest possible ratio.

    Returns
    -------
    ends : array
        Lower and upper ends along a last axis of length 2.

    >>> ratio_interval(*map(np.array, (3.0, 10.0, 1.0, 0.0, 0.0)), 0.0, 1.0).round(3).tolist()
    [0.104, 0.496]
    """
    a = bottom**2 - Z**2 * bottom_var
    b = top * bottom - Z**2 * cross
    c = top**2 - Z**2 * top_var
    # If a > 0 the discriminant is positive up to rounding: at r = top/bottom the quadratic is not positive.
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    # a <= 0: the denominator does not differ significantly from 0, and the set is unbounded.
    sound = (a > 0) & (bottom > 0)
    divisor = np.where(sound, a, 1.0)
    ends = np.stack([(b - root) / divisor, (b + root) / divisor], axis=-1)
    return np.where(sound[..., None], np.clip(ends, lower, upper), np.array([lower, upper]))


def widened(value: Floats, ends: Floats, variance: Floats) -> Floats:
    """Intervals for the population: each side of an interval for the pooled data, widened by a sampling variance.

    Parameters
    ----------
    value : array
        Estimates.
    ends : array
        Their intervals for the pooled data, with a last axis of length 2.
    variance : array
        Sampling variance of each estimate.
    """
    # Privacy noise and sampling error are independent: variances add, side by side, since Fieller's intervals are not
    # symmetric.
    below = np.hypot(value - ends[..., 0], Z * np.sqrt(variance))
    above = np.hypot(ends[..., 1] - value, Z * np.sqrt(variance))
    return np.stack([value - below, value + above], axis=-1)


def difference_interval(one: Floats, ends: Floats, other: Floats, other_ends: Floats) -> Floats:
    """Interval of the difference `one` - `other` of two independent estimates, from the interval of each.

    The method of variance estimates recovery (MOVER; Zou and Donner 2008): the lower side is the root of the sum of
    squares of the lower distance of `one` and the upper distance of `other`, and the upper side the reverse.

    Parameters
    ----------
    one, other : array
        The two estimates.
    ends, other_ends : array
        Their intervals, with a last axis of length 2.

    >>> difference_interval(*map(np.array, (5.0, [2.0, 9.0], 1.0, [-3.0, 4.0]))).tolist()
    [-0.24264068711928477, 9.65685424949238]
    """
    # Each distance stands for Z standard deviations on that side, so that squares of distances add as variances do.
    gap = one - other
    below = np.hypot(one - ends[..., 0], other_ends[..., 1] - other)
    above = np.hypot(ends[..., 1] - one, other - other_ends[..., 0])
    return np.stack([gap - below, gap + above], axis=-1)


def within(ends: Floats, value: Floats, point: Floats, lower: Floats | float, upper: Floats | float) -> Floats:
    """An interval around `value`, clipped to possible values [lower, upper] together with its estimate.

    Noise may move a value beyond the possible range; the estimate is then the nearest possible `point`. The result is
    the union of the interval and of the same interval shifted to the point, clipped to the range. It covers the truth
    at least as often as the interval, contains the estimate, and is not empty where the interval lies outside.

    Parameters
    ----------
    ends : array
        Intervals around `value`, with a last axis of length 2.
    value, point : array
        Unbiased estimate, and the nearest possible value.
    lower, upper : array or float
        Smallest and largest possible value.

    >>> within(*map(np.array, ([1.1, 1.5], 1.3, 1.0)), -1.0, 1.0).round(3).tolist()
    [0.8, 1.0]
    >>> within(*map(np.array, ([0.5, 0.9], 0.7, 0.7)), -1.0, 1.0).tolist()
    [0.5, 0.9]
    """
    # the same interval around the reported estimate; the union below contains both estimates
    moved = ends + (point - value)[..., None]
    both = np.stack([np.minimum(ends[..., 0], moved[..., 0]), np.maximum(ends[..., 1], moved[..., 1])], axis=-1)
    return np.asarray(np.clip(both, np.asarray(lower)[..., None], np.asarray(upper)[..., None]))
