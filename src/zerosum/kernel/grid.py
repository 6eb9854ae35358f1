"""Finite arithmetic: what rounding adds to the sensitivity, and how far the noise on the grid is from a normal.

Protected values live on a grid of one step, a power of two. A site adds up its units' contributions (norm <= c each) in
float64 and rounds the sum once. What a replaced unit then moves is at most

    D  +  2 n gamma c  +  step sqrt(d)

The middle term is the summation error of both worlds: block by block, in any order inside a block of B rows (or of B
units, where each enters as one vector) and with compensation between blocks, a sum of n terms is off by at most
gamma n c in L2 norm, gamma = k u/(1 - k u) with k = B + 8 and u = 2^-53 (componentwise, then by the triangle inequality
over units). It is planned for MAX_UNITS units in blocks of BLOCK_ROWS; a site whose data would need more refuses. The
last term is the rounding of both worlds.

The sum of H discrete Gaussians of variance sigma^2 is, up to a factor that is negligible beside the next term (Kairouz,
Liu, Steinke 2021), one of variance H sigma^2, and that is within total variation 4.9e-4 (step/sigma)^4 a coordinate of
a rounded normal of variance less by step^2/12, which is exactly Gaussian-DP. `distance` adds the sampler's own error
ETA a draw; a study's delta pays (1 + e^eps) times the distances of all its releases. Where e^eps is so large that this
would show, the grid is finer (`steps_for`).

Of a publication only the row of the unit that differs counts: all other rows are drawn by themselves, from the same law
in both worlds, and what two worlds have in common and independent of the rest adds nothing to how far they are apart.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from zerosum.errors import BadParameter
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism

STEPS = 2.0**22  # steps in a standard deviation, at least
FINEST = 2.0**30  # steps in a standard deviation, where epsilon is large
_APART = 4.9e-4  # times (step/sigma)^4: how far a discrete Gaussian is from a rounded normal
FINE = 4096  # rounding adds at most 1/FINE of the sensitivity
ETA = 2.0**-120  # what the sampler promises for one draw
MOST_STEPS = 2.0**40  # in a standard deviation, that it is proven for
MAX_UNITS = 10**7
BLOCK_ROWS = 1 << 11

GRIDDED = frozenset({NoiseMechanism.NONE, NoiseMechanism.TRUSTED, NoiseMechanism.MASKED})


def _gamma(terms: int) -> float:
    unit = terms * 2.0**-53
    return unit / (1 - unit)


def summation_slack(units: int = MAX_UNITS, rows: int = BLOCK_ROWS) -> float:
    """How far two summation errors can put two sums apart, as a multiple of c.

    >>> summation_slack() < 2e-5
    True
    """
    return 2 * units * _gamma(rows + 8)


def rows_allowed(units: int) -> int:
    """How many rows a block may have in a sum over so many units, so that its rounding stays within what is planned for
    MAX_UNITS units in blocks of BLOCK_ROWS: fewer units may be added up in longer blocks.

    >>> rows_allowed(MAX_UNITS) == BLOCK_ROWS, rows_allowed(200_000) > 100_000
    (True, True)
    """
    share = summation_slack() / (2 * max(1, units))
    terms = math.floor(share / (2.0**-53 * (1 + share)) * (1 - 2.0**-40))
    return max(BLOCK_ROWS, terms - 8)


def steps_for(size: int, price: float) -> float:
    """How many steps a standard deviation has, for the grid of so many numbers to cost less than a thousandth of what
    there is; `price` is the part of it that a distance of 1 costs.

    >>> steps_for(1000, 1e9) == STEPS, steps_for(1000, 1e27) / STEPS
    (True, 8.0)
    """
    wanted = min((1000 * _APART * size * price) ** 0.25, FINEST)
    return max(STEPS, 2.0 ** math.ceil(math.log2(wanted)))


def place(law: NoiseLaw, sensitivity: float, bound: float, size: int, steps: float = STEPS) -> NoiseLaw:
    """The same law on a grid fine enough for its noise and its sensitivity; `calibrate` it afterwards."""
    noise = law.central if law.mechanism is NoiseMechanism.TRUSTED else float(np.min(law.own))
    finest = min(noise / steps, sensitivity / (FINE * math.sqrt(size)))
    step = 2.0 ** math.floor(math.log2(finest))
    largest = max(float(np.max(law.own)), law.central)
    reach = law.sites * (MAX_UNITS * bound + 20 * largest) / step
    if reach >= 2.0**63:
        raise BadParameter(f"a sum of {size} numbers over {law.sites} sites could wrap around in 64 bits: clip lower")
    return replace(law, step=step, rounding=step * math.sqrt(size) + summation_slack() * bound)


def drawable(law: NoiseLaw) -> NoiseLaw:
    """The law, if the sampler can draw its noise: a plan is refused for it, since a round would be too late."""
    if law.step > 0 and max(float(np.max(law.own)), law.central) > MOST_STEPS * law.step:
        raise BadParameter(
            "the noise would be too large for the grid that its values need: ask for a larger epsilon or share of it, "
            "or for fewer numbers"
        )
    return law


def worst_distance(size: int, sites: int, steps: float = STEPS) -> float:
    """Total variation between a release of `size` numbers and its ideal, at the coarsest grid `place` gives."""
    return size * (sites * ETA + _APART / steps**4)
