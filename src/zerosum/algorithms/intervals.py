"""Intervals of 95 % for what is computed from noisy sums and counts: privacy's noise is normal with a known variance.

Tested in tests/algorithms/test_intervals.py.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Floats

Z = 1.959963984540054  # the 97.5 % point of the normal
LEVEL = 0.95


def ratio_interval(
    top: Floats, bottom: Floats, top_var: Floats, cross: Floats, bottom_var: Floats, lower: float, upper: float
) -> Floats:
    """Fieller's interval for a ratio of two noisy numbers, within what it can be at all; the ends along the last axis.

    The ratio r is not rejected where |top - r bottom| is at most Z times its own standard deviation, which depends on
    r: so the interval covers as often as it says, however noisy the denominator is. Where that is so noisy that the
    set is not one interval, it is everything from `lower` to `upper`.

    >>> ratio_interval(*map(np.array, (3.0, 10.0, 1.0, 0.0, 0.0)), 0.0, 1.0).round(3).tolist()
    [0.104, 0.496]
    """
    a = bottom**2 - Z**2 * bottom_var
    b = top * bottom - Z**2 * cross
    c = top**2 - Z**2 * top_var
    root = np.sqrt(np.maximum(b * b - a * c, 0.0))
    sound = (a > 0) & (bottom > 0)
    divisor = np.where(sound, a, 1.0)
    ends = np.stack([(b - root) / divisor, (b + root) / divisor], axis=-1)
    return np.where(sound[..., None], np.clip(ends, lower, upper), np.array([lower, upper]))


def widened(value: Floats, ends: Floats, variance: Floats) -> Floats:
    """An interval for the pooled data widened by a sampling variance, on each side by itself: for the population."""
    below = np.hypot(value - ends[..., 0], Z * np.sqrt(variance))
    above = np.hypot(ends[..., 1] - value, Z * np.sqrt(variance))
    return np.stack([value - below, value + above], axis=-1)


def difference_interval(one: Floats, ends: Floats, other: Floats, other_ends: Floats) -> Floats:
    """For the difference of two independent estimates, from the interval of each (the method of variance estimates
    recovery: each side is made of the distances that move the difference that way).

    >>> difference_interval(*map(np.array, (5.0, [2.0, 9.0], 1.0, [-3.0, 4.0]))).tolist()
    [-0.24264068711928477, 9.65685424949238]
    """
    gap = one - other
    below = np.hypot(one - ends[..., 0], other_ends[..., 1] - other)
    above = np.hypot(ends[..., 1] - one, other - other_ends[..., 0])
    return np.stack([gap - below, gap + above], axis=-1)


def within(ends: Floats, value: Floats, point: Floats, lower: Floats | float, upper: Floats | float) -> Floats:
    """An interval around `value`, brought to what is possible along with its estimate.

    Noise may carry a value beyond what is possible, and its estimate is then the nearest `point` that is. The interval
    is as it was and, beside that, as it would be around the point; of both together, what is possible. So it covers no
    less than before, holds the estimate, and does not shrink to nothing where all of it lay beyond.

    >>> within(*map(np.array, ([1.1, 1.5], 1.3, 1.0)), -1.0, 1.0).round(3).tolist()
    [0.8, 1.0]
    >>> within(*map(np.array, ([0.5, 0.9], 0.7, 0.7)), -1.0, 1.0).tolist()
    [0.5, 0.9]
    """
    moved = ends + (point - value)[..., None]
    both = np.stack([np.minimum(ends[..., 0], moved[..., 0]), np.maximum(ends[..., 1], moved[..., 1])], axis=-1)
    return np.asarray(np.clip(both, np.asarray(lower)[..., None], np.asarray(upper)[..., None]))
