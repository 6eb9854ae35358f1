"""Finite arithmetic: what rounding adds to the sensitivity, and how far the noise on the grid is from a normal.

Protected values are multiples of one step, a power of two. A site adds up its units' contributions (L2 norm <= c each,
d numbers) in float64 and rounds the sum once. If one unit is replaced, the rounded sum moves by at most

    D  +  2 n gamma c  +  step sqrt(d)

The middle term is the summation error on both neighbouring data sets. The sum is computed block by block, in any order
inside a block of B rows (or of B units, where each enters as one vector), and with compensation between blocks. A sum
of n terms is then off by at most gamma n c in L2 norm, gamma = k u/(1 - k u) with k = B + 8 and u = 2^-53
(componentwise, then by the triangle inequality over units). The term is planned for n = MAX_UNITS units in blocks of B
= BLOCK_ROWS; a site whose data would need more refuses. The last term is the rounding of both sums to the grid.

The sum of H discrete Gaussians of variance sigma^2 is, up to a factor that is negligible beside the next term (Kairouz,
Liu, Steinke 2021), one of variance H sigma^2, and that is within total variation 4.9e-4 (step/sigma)^4 a coordinate of
a rounded normal of variance less by step^2/12, which is exactly Gaussian-DP. `worst_distance` adds the sampler's own
error ETA a draw; a study's delta pays (1 + e^eps) times the distances of all its releases. Where e^eps is so large that
this would be visible in delta, the grid is finer (`steps_for`).

For a publication only the row of the unit that differs counts. All other rows are drawn independently, from the same
distribution on both data sets, and a common independent part adds nothing to the distance between two distributions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from zerosum.errors import BadParameter
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism

STEPS = 2.0**22  # least number of steps in a standard deviation of the noise. Chosen by hand; no benchmark recorded
# largest number of steps in a standard deviation, for large epsilon. Chosen by hand; no benchmark recorded
FINEST = 2.0**30
# times (step/sigma)^4: total variation between a discrete Gaussian and a rounded normal, per coordinate
_VARIATION_FACTOR = 4.9e-4
FINE = 4096  # rounding to the grid adds at most 1/FINE of the sensitivity. Chosen by hand; no benchmark recorded
ETA = 2.0**-120  # total variation error of one draw of the sampler (`zerosum.noise.discrete_gaussian`)
MOST_STEPS = 2.0**40  # largest number of steps in a standard deviation for which ETA is proven
# Limits of the planned summation error: units of one site, and rows added up in any order. Chosen by hand; no benchmark
# recorded.
MAX_UNITS = 10**7
BLOCK_ROWS = 1 << 11

GRIDDED = frozenset({NoiseMechanism.NONE, NoiseMechanism.TRUSTED, NoiseMechanism.MASKED})


def _gamma(terms: int) -> float:
    """Bound on the relative rounding error of a sum of `terms` numbers: k u/(1 - k u), u = 2^-53 (Higham's gamma_k)."""
    unit = terms * 2.0**-53
    return unit / (1 - unit)


def summation_slack(units: int = MAX_UNITS, rows: int = BLOCK_ROWS) -> float:
    """Largest distance between two sums that is due to summation error, as a multiple of the bound c: 2 n gamma.

    >>> summation_slack() < 2e-5
    True
    """
    return 2 * units * _gamma(rows + 8)


def rows_allowed(units: int) -> int:
    """Number of rows that a block may have in a sum over `units` units, in any order, so that the summation error stays
    within the planned error (MAX_UNITS units in blocks of BLOCK_ROWS). Sums over fewer units may have longer blocks.

    >>> rows_allowed(MAX_UNITS) == BLOCK_ROWS, rows_allowed(200_000) > 100_000
    (True, True)
    """
    share = summation_slack() / (2 * max(1, units))
    # gamma_k <= share solved for k; the factor 1 - 2^-40 covers the rounding of this line itself.
    terms = math.floor(share / (2.0**-53 * (1 + share)) * (1 - 2.0**-40))
    return max(BLOCK_ROWS, terms - 8)


def steps_for(size: int, price: float) -> float:
    """Number of grid steps in a standard deviation, so that the grid's distance costs less than a thousandth of delta.

    `size` is the number of values (of all steps of a phase), and `price` the fraction of delta that a total variation
    of 1 costs.

    >>> steps_for(1000, 1e9) == STEPS, steps_for(1000, 1e27) / STEPS
    (True, 8.0)
    """
    # 1000 size _VARIATION_FACTOR price / steps^4 <= 1, solved for steps.
    wanted = min((1000 * _VARIATION_FACTOR * size * price) ** 0.25, FINEST)
    return max(STEPS, 2.0 ** math.ceil(math.log2(wanted)))


def place(law: NoiseLaw, sensitivity: float, bound: float, size: int, steps: float = STEPS) -> NoiseLaw:
    """Put a law on a grid that is fine enough for its noise and its sensitivity. The caller has to `calibrate` the
    result again, since `rounding` adds to the sensitivity.

    Parameters
    ----------
    law:
        A law that is calibrated without a grid.
    sensitivity:
        L2 sensitivity of the sum that accounting uses.
    bound:
        c, the largest L2 norm of one unit's contribution.
    size:
        d, how many numbers the release has.
    steps:
        Least number of steps in a standard deviation.
    """
    noise = law.central if law.mechanism is NoiseMechanism.TRUSTED else float(np.min(law.own))
    # The smallest noise decides. The second term keeps the rounding, step sqrt(d), below sensitivity/FINE.
    finest = min(noise / steps, sensitivity / (FINE * math.sqrt(size)))
    # A power of two, so that dividing by the step and multiplying with it is exact in double precision.
    step = 2.0 ** math.floor(math.log2(finest))
    largest = max(float(np.max(law.own)), law.central)
    # Largest possible sum in steps. The noise exceeds 20 standard deviations with negligible probability.
    reach = law.sites * (MAX_UNITS * bound + 20 * largest) / step
    if reach >= 2.0**63:
        raise BadParameter(f"a sum of {size} numbers over {law.sites} sites could wrap around in 64 bits: clip lower")
    return replace(law, step=step, rounding=step * math.sqrt(size) + summation_slack() * bound)


def drawable(law: NoiseLaw) -> NoiseLaw:
    """Return the law if the sampler can draw its noise, and refuse the plan otherwise: in a round the refusal would
    come too late.
    """
    if law.step > 0 and max(float(np.max(law.own)), law.central) > MOST_STEPS * law.step:
        raise BadParameter(
            "the noise would be too large for the grid that its values need: ask for a larger epsilon or share of it, "
            "or for fewer numbers"
        )
    return law


def worst_distance(size: int, sites: int, steps: float = STEPS) -> float:
    """Total variation between a release of `size` numbers and its ideal, at the coarsest grid that `place` gives.

    Each number has one draw of each of `sites` sites, with error ETA, and one comparison with a rounded normal.
    """
    return size * (sites * ETA + _VARIATION_FACTOR / steps**4)
