"""Laplace noise in divisible shares: its grid, its exact privacy loss, and the law of a released number.

Mechanism. Protected values are whole numbers of grid steps. Every site adds one share of discrete Laplace noise of
parameter a = 1 - decay to each of its d numbers (`zerosum.noise.discrete_laplace`). H shares add up to discrete Laplace
noise, P(x) = (1 - a)/(1 + a) a^|x|, where H is the number of sites that neither collude nor are lost in the worst case.

Privacy. One unit moves the rounded sum of its site by a vector v of whole steps with norm_1(v) <= K. The coalition
knows the shares of its own sites. Among the other sites in the sum are H, that of the unit included, whose shares add
up to discrete Laplace noise. Further shares are independent of it and of the data: adding them is post-processing. Let
s = log(1/a) be the loss of one step.

    For every outcome y, the probabilities under the two data sets have the ratio a^(norm_1(y) - norm_1(y - v)), which
    lies between exp(-K s) and exp(K s): every release is K s differentially private, with delta = 0.

Worst neighbour. For all (epsilon, delta), and in compositions, v = (K, 0, ..., 0) is the worst neighbour: the pair
DLap(0), DLap(K) dominates every pair DLap(0)^d, DLap(v) with norm_1(v) <= K. Proof. Let D_k(m) be the hockey-stick
divergence of DLap(0) and DLap(k) at the losses epsilon = (k - 2m) s that it takes, m = 0, ..., k. Its distribution
functions give P(x <= m) - exp(epsilon) P(x <= m - k) = 1 - a^(m+1)/(1 + a) - a^m/(1 + a), hence

    D_k(m) = 1 - a^m                  and between these losses the divergence is linear in exp(epsilon).         (1)

For two coordinates, v = (j, k) with j <= k, let L = (j - 2x) s be the loss of the first one, where x = 0, ..., j has
the probabilities 1/(1 + a), a^x (1 - a)/(1 + a) for 0 < x < j, and a^j/(1 + a). The divergence of the pair at epsilon =
(j + k - 2m) s is the mean over x of D_k at epsilon - L, that is at m - x. For epsilon >= 0 all m - x are at most k, and
D_k(m - x) = max(1 - a^(m-x), 0). With t = (1 - a)/(1 + a) the mean is

    1 - a^m (1 + t j) + a^m t max(j - m, 0)  =  1 - a^m (1 + t min(m, j))  <=  1 - a^m,                          (2)

the value of (1) for DLap(j + k) at the same loss. Both sides are linear in exp(epsilon) between the same losses, and
negative epsilon follows by symmetry. So a shift of (j, k) is dominated by one of j + k. Domination is kept by tensor
products and holds coordinate by coordinate, hence for every v by one of norm_1(v) in a single coordinate; a shift of
k < K is dominated by (k, K - k) and hence by K. Since a unit may attain K, the bound is tight.

`divergence` is (1). The curve lies above 1 - exp((epsilon - K s)/2), its limit for fine grids.

Noise of a release. n sites in the sum have n/H of the variance of Laplace noise: each number is the difference of two
negative binomial variables of exponent n/H, in the limit of fine grids a variance gamma variable, whose intervals
(`interval_factor`) are those of Laplace noise for n = H and narrow to those of normal noise for large n/H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import grid
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.roots import find_root
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism

# Schemes under which Laplace noise is on a grid and divides between the sites.
LAPLACE_SCHEMES = ("secure-sum", "pooled", "local")
# A plan's largest move K has at least this number of grid steps (`place`). With fewer steps a divergence is larger, so
# calculations before there is a plan assume this number.
FEWEST_MOVES = 4096
# Least scale b of the noise in grid steps: the rounding of a site's sum is then invisible beside the noise. Chosen by
# hand; no benchmark recorded.
LEAST_SCALE = 1024
# Smallest 1 - a for which the sampler is proven (`zerosum.noise.discrete_laplace`).
SMALLEST_DECAY = 2.0**-41
_NODES = 400  # of the quadrature of `interval_factor`; its error is below 1e-5
_UP = 1 + 2.0**-48  # covers the rounding of a few operations in double precision


def step_loss(decay: float) -> float:
    """s = log(1/a), the loss of one grid step, rounded up.

    >>> round(step_loss(0.5), 6)
    0.693147
    """
    return -math.log1p(-decay) * _UP


def moves(law: NoiseLaw, sensitivity: float, site: int) -> int:
    """K: by how many grid steps one unit moves the sum of its site, in L1 norm.

    Parameters
    ----------
    law:
        A law on a grid, with its rounding.
    sensitivity:
        L1 sensitivity of the sum, before the factor of the site.
    site:
        Index of the site.
    """
    # The moves are whole numbers, so the integer part of a real bound is a bound.
    return math.floor(law.site_sensitivity(sensitivity, site) / law.step * _UP)


def losses(law: NoiseLaw, sensitivity: float) -> Floats:
    """The pure epsilon K s of one release for each site, shape (S,)."""
    return np.array([moves(law, sensitivity, s) * step_loss(law.decay) for s in range(law.sites)])


def place(shape: NoiseLaw, sensitivity: float, bound: float, size: int, honest: int, epsilon: float) -> NoiseLaw:
    """The Laplace noise with which one release is `epsilon` differentially private at every site.

    Rounding is part of the sensitivity: the neighbouring sums of a site are each rounded to the grid, which moves every
    number by at most one step, and each has a summation error. Componentwise that error is at most gamma times the sum
    of the units' magnitudes (`zerosum.kernel.grid`), hence gamma n c_1 in L1 norm with c_1 the L1 bound of a
    contribution. A sum that exceeds n c_1 by its rounding is scaled back by a site, which moves it by as much again:
    the summation slack is counted twice.

    Parameters
    ----------
    shape:
        The scheme's law at unit scale.
    sensitivity, bound:
        L1 sensitivity of the sum, and largest L1 norm of one unit's contribution.
    size:
        d, how many numbers the release has.
    honest:
        H, the number of sites whose shares add up to Laplace noise under MASKED.
    epsilon:
        Loss of the release at the site with the largest one.
    """
    check_epsilon(epsilon)
    moved = sensitivity * float(np.max(shape.factor))
    # The second term keeps the rounding, one step a number, below sensitivity/FINE.
    step = 2.0 ** math.floor(math.log2(min(moved / epsilon / LEAST_SCALE, moved / (grid.FINE * size))))
    rounding = step * size + 2 * grid.summation_slack() * bound
    law = replace(shape, step=step, rounding=rounding)
    most = max(moves(law, sensitivity, s) for s in range(law.sites))
    decay = -math.expm1(-epsilon / most)
    while most * step_loss(decay) > epsilon:
        decay *= 1 - 2.0**-50
    if decay < SMALLEST_DECAY:
        raise BadParameter(
            "the noise would be too large for the grid that its values need: ask for a larger epsilon or share of it, "
            "or for fewer numbers"
        )
    # Under MASKED only sums over at least H honest sites are readable. A message that is read alone has all the noise.
    parts = honest if law.mechanism is NoiseMechanism.MASKED else 1
    whole = math.sqrt(2 * (1 - decay)) / decay * step
    # A share exceeds 100 scales with a probability of less than exp(-90): wrapping around would spoil the sum, not the
    # guarantee.
    if law.sites * (grid.MAX_UNITS * bound / step + 100 / decay) >= 2.0**63:
        raise BadParameter(f"a sum of {size} numbers over {law.sites} sites could wrap around in 64 bits: clip lower")
    own, central = law.own * (whole / math.sqrt(parts)), law.central * whole
    return replace(law, own=own, central=central, decay=decay, parts=parts)


@dataclass(frozen=True)
class Curve:
    """The hockey-stick divergence of the worst neighbours of one release.

    Parameters
    ----------
    epsilon:
        K s, the largest loss.
    moves:
        K.
    """

    epsilon: float
    moves: int

    def divergence(self, epsilon: Floats | float) -> Floats:
        """delta(epsilon), exact: equation (1) of the module; for any real epsilon.

        >>> curve = Curve(2 * math.log(2), 2)
        >>> curve.divergence(np.array([curve.epsilon, 0.0, -curve.epsilon])).tolist()
        [0.0, 0.5, 0.75]
        """
        at = np.asarray(epsilon, dtype=np.float64)
        s = self.epsilon / self.moves
        # m of the loss at or above epsilon, and of the next one below it.
        inside = np.clip(at, -self.epsilon, self.epsilon)
        above = np.clip(np.floor((self.epsilon - inside) / (2 * s)), 0, self.moves - 1)
        upper = -np.expm1(-above * s)
        # Linear in exp(epsilon): 0 at the loss above, 1 at the loss below. The lower end differs by a^m (1 - a).
        gap = self.epsilon - 2 * above * s
        part = np.clip(np.expm1(inside - gap) / math.expm1(-2 * s), 0.0, 1.0)
        terms = upper - part * np.expm1(-s) * np.exp(-above * s)
        # Below the smallest loss both distributions are distinguished by nothing but the factor: 1 - exp(epsilon).
        terms = np.where(at < -self.epsilon, -np.expm1(np.minimum(at, 0.0)), terms)
        return np.asarray(np.where(at >= self.epsilon, 0.0, terms))

    def epsilon_at(self, delta: float) -> float:
        """The smallest epsilon at a delta: the upper bound that all curves share, by the chord that contains it."""
        check_delta(delta)
        s = self.epsilon / self.moves
        # The chord from loss m to loss m + 1 contains delta if 1 - a^m <= delta < 1 - a^(m+1).
        m = math.floor(-math.log1p(-delta) / s)
        if m >= self.moves:
            return 0.0
        low, high = -math.expm1(-m * s), -math.expm1(-(m + 1) * s)
        part = min(max((delta - low) / (high - low), 0.0), 1.0)
        # Rounded up: exp(epsilon) falls linearly along the chord.
        epsilon = self.epsilon - 2 * m * s + math.log1p(part * math.expm1(-2 * s))
        return max(epsilon + 2.0**-48 * self.epsilon, 0.0)

    def on_grid(self, interval: float) -> Floats:
        """Probabilities of the losses -n interval, ..., n interval of a distribution that dominates this one.

        Its divergences at multiples of the interval are those of the curve. Between them it is linear in exp(epsilon),
        above the curve, which is convex there ("Connect the dots", Doroshenko et al. 2022, Algorithm 1).

        Parameters
        ----------
        interval:
            Spacing of the losses.
        """
        last = math.ceil(self.epsilon / interval)
        deltas = self.divergence(np.asarray(np.arange(-last, last + 1) * interval, dtype=np.float64))
        deltas[-1] = 0.0  # at or above the largest loss, whatever the rounding of the product
        fall = np.diff(deltas)
        # Mass at a place: what the slopes on its two sides differ by.
        above = np.append(1 - deltas[0], fall / math.expm1(-interval))
        below = np.append(fall / math.expm1(interval), 0.0)
        return np.asarray(np.maximum(above + below, 0.0))


@lru_cache(maxsize=256)
def interval_factor(shares: float, level: float = 0.95) -> float:
    """Half width of the central interval of the noise of a released number, in its standard deviations.

    The noise is a variance gamma variable: normal of a variance that is a gamma variable G of shape `shares`. Its
    distribution function is the mean of the normal one over G, computed by quadrature over the quantiles of G.

    Parameters
    ----------
    shares:
        n/H, the number of sites in the sum over those that make Laplace noise; 1 is Laplace noise.
    level:
        Coverage of the interval.

    >>> round(interval_factor(1.0), 3), round(interval_factor(50.0), 1)
    (2.118, 2.0)
    """
    from scipy.special import gammaincinv, ndtr

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # G/shares has mean 1, so that the noise has variance 1. The mean over G is the integral over its probability.
    spread = np.sqrt(np.maximum(gammaincinv(shares, (nodes + 1) / 2) / shares, 1e-300))

    def outside(width: float) -> float:
        return float(weights @ ndtr(-width / spread)) - (1 - level)

    return find_root(outside, 0.0, 50.0, absolute=1e-9, relative=1e-9)
