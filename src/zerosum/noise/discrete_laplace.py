"""Exact shares of discrete Laplace noise, many draws at a time.

Model. The discrete Laplace distribution of parameter 0 < a < 1 on the integers is P(x) = (1 - a)/(1 + a) a^|x|, the
difference of two independent geometric variables P(k) = (1 - a) a^k. The sum of H independent negative binomial
variables NB(1/H, 1 - a), P(k) = Gamma(k + 1/H) / (k! Gamma(1/H)) (1 - a)^(1/H) a^k, is geometric: the exponents of the
generating function ((1 - a) / (1 - a z))^(1/H) add up to 1. One share is the difference of two such variables, so that
the sum of H shares is discrete Laplace.

A share is drawn as a compound Poisson sum. From log((1 - a) / (1 - a z)) = sum over k >= 1 of (z^k - 1) a^k / k, the
generating function of a share is

    exp( (1/H) sum over k >= 1 of (a^k / k) (z^k - 1 + z^-k - 1) )

which is that of x = s_1 k_1 + ... + s_N k_N, with independent

    N ~ Poisson(lambda),  lambda = (2/H) log(1 / (1 - a))        number of terms
    P(k) = a^k / (k log(1 / (1 - a))),  k = 1, 2, ...            logarithmic series distribution
    s = +1 or -1 with probability 1/2 each.

A term k is proposed by its highest bit: level j with weight a^(2^j), then k = 2^j + i with i uniform in 0, ..., 2^j -
1, and the proposal is kept with probability a^i 2^j / (2^j + i). The product of the three is a^k / k up to a common
factor, so kept proposals follow the logarithmic series. More than 0.6 of the proposals are kept.

Distance from exact, if the words are uniform. 1 - a is a double, hence an exact fraction, and lambda and all bounds are
computed in 120-digit decimals. Comparisons of a uniform number with a bound use the 64 leading bits first, and 256 more
where these do not decide; such a comparison goes wrong less often than 2^-287 (as in `discrete_gaussian`). What
remains:

    the table of N ends where the tail has probability below 2^-130,
    levels end at the first j with 2^j log(1/a) > 88.8. The terms beyond have probability below
    a^(2^j) / (2^j (1 - a) log(1 / (1 - a))) < exp(-88.8) / 42 < 2^-133 for 1 - a <= 1/2.

A share has lambda <= 57 terms on average, for 1 - a >= 2^-41 and H >= 1. By the union bound over its terms the total
variation is below 2^-130 + 57 * 2^-133 < 2^-126, so that ETA holds with a margin.

Error of the double comparison. i < 2^48 is exact, log(a) has a relative error of 2^-52, and with E exp(-E) <= 1/e the
product, exp and the quotient move the probability by less than 2^-49. The uniform number lies less than 2^-53 above its
53 known bits. The band of 2^-45, in which decimals decide, covers both.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache

import numpy as np

from zerosum.errors import BadParameter
from zerosum.noise.discrete_gaussian import EXACT, Ints, Source, Words, extended

# Promised total variation error of one share, the same as that of a Gaussian draw.
ETA = 2.0**-120
# Range of 1 - a for which the module's text proves ETA.
SMALLEST, LARGEST = 2.0**-41, 0.5

_BLOCK = 1 << 15  # proposals per block
_BAND = 2.0**-45  # half width of the band in which the double comparison does not decide
_TAIL = 88.8  # exp(-88.8) < 2^-128
_REST = Decimal(2) ** -130  # largest probability of the tail of N that the table leaves out


def draw(size: int, decay: float, parts: int, source: Source) -> Ints:
    """Independent shares of discrete Laplace noise, `parts` of which add up to it, in steps of the grid; shape (size,).

    Parameters
    ----------
    size : int
        Number of shares.
    decay : float
        1 - a: the factor by which the probability falls from one step to the next is a.
    parts : int
        H; 1 gives the whole noise.
    source : callable
        Returns uniform 64-bit words.

    >>> words = np.random.default_rng(0)
    >>> draw(4, 1e-3, 3, lambda n: words.integers(0, 2**64, n, dtype=np.uint64)).shape
    (4,)
    """
    if not SMALLEST <= decay <= LARGEST:
        raise BadParameter(f"the sampler is proven for 1 - a between 2^-41 and 1/2, got {decay:g}")
    if parts < 1:
        raise BadParameter(f"noise has one part at least, got {parts}")
    terms = _below(source(size), _counts(float(decay), int(parts)), source)
    out = np.zeros(size, dtype=np.int64)
    # Each term is added to the share it belongs to.
    np.add.at(out, np.repeat(np.arange(size), terms), _signed_series(int(terms.sum()), _levels(float(decay)), source))
    return out


class _Bounds:
    """Rising bounds in (0, 1) that divide uniform numbers into classes 0, 1, ..., len(bounds)."""

    def __init__(self, bounds: list[Decimal]) -> None:
        self.exact = bounds
        # The 64-bit words that contain the bounds.
        self.words = np.array([int(EXACT.multiply(bound, Decimal(1 << 64))) for bound in bounds], dtype=np.uint64)


def _below(words: Words, bounds: _Bounds, source: Source) -> Ints:
    """The class of each uniform number, given its 64 leading bits: the number of bounds that do not exceed it."""
    places = np.searchsorted(bounds.words, words, side="right")
    # A word that contains a bound does not decide: 256 more bits do.
    for place in np.flatnonzero(words == bounds.words[np.maximum(places - 1, 0)]):
        value = extended(int(words[place]), 64, source)
        places[place] = sum(value >= bound for bound in bounds.exact)
    return places


@lru_cache(maxsize=64)
def _counts(decay: float, parts: int) -> _Bounds:
    """The distribution function of N."""
    rate = EXACT.divide(EXACT.multiply(Decimal(-2), EXACT.ln(Decimal(decay))), Decimal(parts))
    term = EXACT.exp(EXACT.minus(rate))
    sums = [term]
    while True:
        n = Decimal(len(sums))
        term = EXACT.divide(EXACT.multiply(term, rate), n)
        # Beyond n > rate the terms fall at least as a geometric series of ratio rate/(n + 1).
        if n > rate and EXACT.divide(term, EXACT.subtract(1, EXACT.divide(rate, EXACT.add(n, 1)))) < _REST:
            return _Bounds(sums)
        sums.append(EXACT.add(sums[-1], term))


class _Levels:
    """The distribution of levels j, and all values for keeping a proposal."""

    def __init__(self, decay: float) -> None:
        # Exact: a double of at least 2^-41 has at most 93 binary places, and as many decimal ones.
        self.log = EXACT.ln(EXACT.subtract(1, Decimal(decay)))
        self.factor = float(self.log)
        last = max(0, math.ceil(math.log2(_TAIL / -self.factor)))
        sums = [Decimal(0)]
        for j in range(last + 1):
            sums.append(EXACT.add(sums[-1], EXACT.exp(EXACT.multiply(self.log, Decimal(1 << j)))))
        self.bounds = _Bounds([EXACT.divide(part, sums[-1]) for part in sums[1:-1]])

    def keep(self, level: int, i: int) -> Decimal:
        """The probability of keeping 2^level + i."""
        start = Decimal(1 << level)
        grown = EXACT.exp(EXACT.multiply(self.log, Decimal(i)))
        return EXACT.divide(EXACT.multiply(grown, start), EXACT.add(start, Decimal(i)))


@lru_cache(maxsize=64)
def _levels(decay: float) -> _Levels:
    return _Levels(decay)


def _signed_series(size: int, levels: _Levels, source: Source) -> Ints:
    """Independent terms s k, shape (size,)."""
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        # More than 0.6 of the proposals are kept. Surplus terms are discarded, which is independent of their values.
        wanted = min(_BLOCK, int((size - filled) / 0.65) + 16)
        draws = _propose(wanted, levels, source)[: size - filled]
        out[filled : filled + len(draws)] = draws
        filled += len(draws)
    return out


def _propose(count: int, levels: _Levels, source: Source) -> Ints:
    """The accepted ones among `count` proposals: one word each for the level, for sign and i, and for keeping."""
    words = source(3 * count)
    first, second, third = words[:count], words[count : 2 * count], words[2 * count :]
    level = _below(first, levels.bounds, source)
    start = np.left_shift(np.int64(1), level)
    # The sign is the first bit and i the last ones, at most 48: no bit is used twice.
    i = second.view(np.int64) & (start - 1)
    margin = np.exp(i * levels.factor) * (start / (start + i).astype(np.float64))
    margin -= (third >> np.uint64(11)).astype(np.float64) * 2.0**-53
    keep, maybe = margin > _BAND, margin >= -_BAND
    for place in np.flatnonzero(keep != maybe):
        keep[place] = extended(int(third[place]), 64, source) < levels.keep(int(level[place]), int(i[place]))
    signed = start + i
    negative = second.view(np.int64) < 0
    np.negative(signed, out=signed, where=negative)
    accepted: Ints = signed[keep]
    return accepted
