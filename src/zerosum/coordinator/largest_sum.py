"""The public bound of an opened sum: a longer one is not the sum of what honest sites send.

A site s adds to the sum a vector of d numbers in steps of the grid,

    x_s = round(c_s f_s) + g_s,        |c_s f_s| <= B_s = c_s n_s c

with n_s units whose contributions have norm c at most. Rounding moves a number by half a step, so that over the listed
sites the norm of the sum is at most

    sum over s of (B_s + sqrt(d)/2)  +  |g|,        g = sum over s of g_s.

What honest sites send exceeds the bounds on |g| below with probability less than 2^-63 in a release. A sum whose masks
did not cancel is uniform in Z_2^64, and exceeds a bound far below 2^63 sqrt(d/3) almost surely. A vector that is wrong
by less than the bound is not found, and no site is blamed: whose vector it was cannot be seen in the sum.

Gaussian noise. A discrete Gaussian is sub-Gaussian with its own sigma (Canonne, Kamath, Steinke 2020, proposition 25),
and so is g with the sum of the variances. By Hsu, Kakade, Zhang 2012, theorem 2.1, for every t > 0

    P( |g|^2 > sigma^2 (d + 2 sqrt(d t) + 2 t) ) <= exp(-t),        here t = 64 log 2.

Laplace noise. g is in each coordinate the difference of two negative binomial variables of shape r = (listed sites)/H,
hence |g_j| is not larger than the larger one. By Markov's inequality for z^G with a z = (1 + a)/2, P(G >= k) <= 2^r
z^-k. The union bound over 2 d variables gives k, and |g| <= sqrt(d) k.

The draws of cancelling noise are normals whose tails end at 8.21 standard deviations, and their bound holds always.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from zerosum.kernel.grid import MOST_UNITS
from zerosum.kernel.schemes import NoiseLaw, draw_step
from zerosum.protocol.messages import Steps

BITS = 64  # the noise of honest sites exceeds its allowance with probability 2^-BITS
SLACK = 2.0**-20  # relative; far more than the rounding of the sums over units and of this bound. Chosen by hand
TAILS = 8.21  # standard deviations at which the normals of `zerosum.noise.sampler` end


def of_contributions(law: NoiseLaw, bound: float, size: int, listed: Sequence[int], units: Mapping[int, int]) -> float:
    """The largest norm of a sum of contributions, in steps.

    Parameters
    ----------
    law:
        The noise of the round, on a grid.
    bound:
        c, the largest norm of one unit's contribution.
    size:
        d.
    listed:
        The sites in the sum.
    units:
        Numbers of units where they are public; elsewhere the largest number that a site may have counts.
    """
    sums = math.fsum(float(law.factor[s]) * units.get(s, MOST_UNITS) * bound / law.step for s in listed)
    return (sums + len(listed) * math.sqrt(size) / 2 + _noise(law, size, listed)) * (1 + SLACK)


def _noise(law: NoiseLaw, size: int, listed: Sequence[int]) -> float:
    """The allowance for |g|, in steps."""
    if law.decay > 0:
        shape = len(listed) / law.parts
        growth = math.log1p(law.decay / (2 * (1 - law.decay)))  # log z
        return math.sqrt(size) * (BITS + 1 + math.log2(size) + shape) * math.log(2) / growth
    variance = math.fsum((float(law.own[s]) / law.step) ** 2 for s in listed)
    t = BITS * math.log(2)
    return math.sqrt(variance * (size + 2 * math.sqrt(size * t) + 2 * t))


def of_draws(law: NoiseLaw, size: int, listed: Sequence[int]) -> float:
    """The largest norm of a sum of draws of cancelling noise, in their steps."""
    spread = math.fsum(float(law.cancelling[s] * law.weight[s]) / draw_step(law) for s in listed)
    return math.sqrt(size) * (TAILS * spread + len(listed) / 2) * (1 + SLACK)


def norm(total: Steps) -> float:
    """The L2 norm of an opened sum."""
    values = total.astype(np.float64)  # squares of 64-bit numbers overflow as integers
    return math.sqrt(np.sum(np.square(values, out=values)))
