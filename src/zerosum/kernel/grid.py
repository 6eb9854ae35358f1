"""Finite arithmetic: what rounding adds to the sensitivity, and how far the noise on the grid is from a normal.

Protected values are multiples of one step, a power of two. A site adds up its units' contributions (L2 norm <= c each,
d numbers) in float64 and rounds the sum once. If one unit is replaced, the rounded sum moves by at most

    D  +  2 n gamma c  +  step sqrt(d)

The middle term is the summation error on both neighbouring data sets. The sum is computed block by block, in any order
inside a block of B rows (or of B units, where each enters as one vector), and with compensation between blocks. A sum
of n terms is then off by at most gamma n c in L2 norm, gamma = k u/(1 - k u) with k = B + 8 and u = 2^-53
(componentwise, then by the triangle inequality over units). The last term is the rounding of both sums to the grid.

A plan does not contain n, which under add-remove is data. The term is planned for n = PLANNED_UNITS units in blocks of
B = BLOCK_ROWS, and a site keeps n gamma within this budget by the choice of B (`rows_allowed`): blocks of more rows for
fewer units, and of fewer rows for more units, down to B = 12 for MOST_UNITS units. Above PLANNED_UNITS a sum with
B + TREE rows in groups of B is the sum of the groups by a tree of additions whose errors are added up as well
(`zerosum.compute.backends.exact.folded`). This has the error of TREE more additions, whatever the number of groups: by
Knuth's TwoSum the errors e of the additions are exact, so that the exact sum is s + sum of e. With m groups in a tree
of depth L, sum |e| <= L u (1 + u)^L sum |x|, and its own summation error is at most gamma_m of that. The result rounds
once more. Together u + (m + 1) L u^2 (1 + u)^L + ... < 2 u = TREE u for m <= 2^40. Sums of whole numbers below 2^53 do
not round, for any number of units.

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
# The planned summation error: units of one site, and rows added up in any order. Chosen by hand; no benchmark recorded.
PLANNED_UNITS = 10**7
BLOCK_ROWS = 1 << 11
# Most units of one site. Rounded records add up exactly in doubles up to 2^31 of them, and groups of at least ten rows
# stay within the planned error. Chosen by hand.
MOST_UNITS = 10**9
TREE = 2  # additions that a compensated tree of sums counts as, see above

GRIDDED = frozenset({NoiseMechanism.NONE, NoiseMechanism.TRUSTED, NoiseMechanism.MASKED})


def _gamma(terms: int) -> float:
    """Bound on the relative rounding error of a sum of `terms` numbers: k u/(1 - k u), u = 2^-53 (Higham's gamma_k)."""
    unit = terms * 2.0**-53
    return unit / (1 - unit)


def summation_slack(units: int = PLANNED_UNITS, rows: int = BLOCK_ROWS) -> float:
    """Largest distance between two sums that is due to summation error, as a multiple of the bound c: 2 n gamma.

    >>> summation_slack() < 2e-5
    True
    """
    return 2 * units * _gamma(rows + 8)


def rows_allowed(units: int) -> int:
    """Number of rows that a block may have in a sum over `units` units, in any order, so that the summation error stays
    within the planned error (PLANNED_UNITS units in blocks of BLOCK_ROWS). Sums over fewer units may have longer
    blocks, and sums over more units have shorter ones.

    >>> [rows_allowed(units) for units in (PLANNED_UNITS, 10**8, MOST_UNITS)], rows_allowed(200_000) > 100_000
    ([2048, 197, 12], True)
    """
    share = summation_slack() / (2 * max(1, units))
    # gamma_k <= share solved for k; the factor 1 - 2^-40 covers the rounding of this line itself.
    terms = math.floor(share / (2.0**-53 * (1 + share)) * (1 - 2.0**-40))
    return max(BLOCK_ROWS if units <= PLANNED_UNITS else 1, terms - 8)


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
    placed = replace(law, step=step, rounding=step * math.sqrt(size) + summation_slack() * bound)
    if not in_range(placed, bound, PLANNED_UNITS):
        raise BadParameter(f"a sum of {size} numbers over {law.sites} sites could wrap around in 64 bits: clip lower")
    return placed


def in_range(law: NoiseLaw, bound: float, units: int) -> bool:
    """Whether a sum over `units` units of every site fits into 64 bits. Wrapping around would spoil the sum, not the
    guarantee.

    Parameters
    ----------
    law:
        A law on a grid; any sum fits without one.
    bound:
        c, the largest norm of one unit's contribution.
    units:
        Units of each site.
    """
    if law.step == 0:
        return True
    largest = max(float(np.max(law.own)), law.central)
    # Largest possible sum in steps. The noise exceeds 20 standard deviations with negligible probability.
    return law.sites * (units * bound + 20 * largest) / law.step < 2.0**63


def drawable(law: NoiseLaw) -> NoiseLaw:
    """Return the law if the sampler can draw its noise, and refuse the plan otherwise: in a round the refusal would
    come too late.
    """
    largest = max(float(np.max(law.own)), law.central)
    if law.step > 0 and largest > MOST_STEPS * law.step:
        raise BadParameter(
            f"the noise would be {largest / law.step:.3g} steps of the grid that its values need, and at most "
            f"{MOST_STEPS:.3g} can be drawn: give about {largest / law.step / MOST_STEPS:.2g} times the epsilon, a "
            "larger delta, or release fewer numbers: fewer components, columns or rounds"
        )
    return law


def worst_distance(size: int, sites: int, steps: float = STEPS) -> float:
    """Total variation between a release of `size` numbers and its ideal, at the coarsest grid that `place` gives.

    Each number has one draw of each of `sites` sites, with error ETA, and one comparison with a rounded normal.
    """
    return size * (sites * ETA + _VARIATION_FACTOR / steps**4)
