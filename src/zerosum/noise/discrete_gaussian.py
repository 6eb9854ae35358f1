"""Exact discrete Gaussian noise, many draws at a time.

The distribution on the integers is P(x) proportional to exp(-x^2 / (2 sigma^2)). Let t be the power of two with 4 t <=
sigma < 8 t, or 1 where sigma < 8. Every integer is in exactly one way x = y or x = -1 - y with y = k t + j, k >= 0, 0
<= j < t; then |x| = k t + i with i = j or i = j + 1, and

    x^2 = (k t)^2 + i (2 k t + i)

so drawing k with weight exp(-(k t)^2 / (2 sigma^2)) from a table, j and the sign from fair bits, and keeping the
proposal with probability exp(-i (2 k t + i) / (2 sigma^2)) is exact (after Karney 2016). With r = sigma / t the
fraction of proposals that is kept is at least r sqrt(2 pi) / (1 + 1.00000001 r sqrt(2 pi)) by Poisson summation: 0.71
at sigma = 1, 0.9 from 4 on.

Distance from exact, if the words are uniform. Each proposal compares two uniform numbers with real bounds. Of a number,
only the leading bits are known first: 12 for k, looked up in a guide, and 32 for the other, compared in double
precision. Where a bound falls within the unknown bits, or within the arithmetic's error, the comparison is postponed:
k's number gets 52 more bits and is compared in 64-bit words; where that too falls on a bound, and at once for the other
number, 256 more bits are drawn and compared in 120-digit decimals. What remains is

    the table ends beyond |x| = 13.3 sigma and leaves out less than exp(-88.8) < 2^-128 of the distribution,
    a number ends after 288 or 320 bits, and bounds err by 10^-115: a comparison goes wrong less often than 2^-287.

If every comparison were right, kept proposals would follow the distribution without its tail: the first is all that is
missing. The second, over at most 107 bounds for k and one for keeping, moves a proposal by less than 2^-280 in total
variation and a kept one by less than 2 / 0.71 times that. Together less than 2^-127, so that ETA holds with a margin.

Error of the double comparison, for every sigma in the range: k t < 2^45 and j < 2^38, so i and 2 k t + i are exact.
Their product, the factor 1 / (2 sigma^2) and the product with it take four roundings, in all 2^-50.9 relative; as E
exp(-E) <= 1/e they move the probability by less than 2^-52. The uniform number lies less than 2^-32 above its known
bits, which a double holds exactly, and the subtraction rounds by 2^-53. So the band of 2^-31 leaves exp an error of
0.999 * 2^-32, more than a million units in the last place; numpy's is below one
(tests/noise/test_discrete_gaussian.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zerosum.errors import BadParameter

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Source = Callable[[int], Words]  # returns n fresh uniform 64-bit words, in an array that is not written to again

# Promised total variation error of one draw, and the range of sigma, in grid steps, for which the module's text proves
# it.
ETA = 2.0**-120
SMALLEST, LARGEST = 1.0, 2.0**40

_BLOCK = 1 << 15  # proposals per block
_GUIDE = 12  # leading bits of k's number, by which the guide is indexed
# Half width of the band in which the double comparison does not decide (see "Error of the double comparison").
_BAND = 2.0**-31
EXACT = Context(prec=120)  # use its methods only: operators on decimals round to the caller's context
_TAIL = 88.8  # exp(-88.8) < 2^-128


def draw(size: int, sigma: float, source: Source) -> Ints:
    """Independent draws of standard parameter `sigma`, both in steps of the grid; shape (size,).

    >>> words = np.random.default_rng(0)
    >>> draw(4, 1000.0, lambda n: words.integers(0, 2**64, n, dtype=np.uint64)).shape
    (4,)
    """
    if not SMALLEST <= sigma <= LARGEST:
        raise BadParameter(f"the sampler is proven for a sigma of 1 to 2^40 steps, got {sigma:g}")
    table = _table(float(sigma))
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        # The expected number of proposals for the draws that are left, with a margin, at most one block. Surplus draws
        # are discarded, which is independent of their values.
        wanted = min(_BLOCK, int((size - filled) / table.kept * 1.01) + 16)
        draws = _propose(wanted, table, source)[: size - filled]
        out[filled : filled + len(draws)] = draws
        filled += len(draws)
    return out


class _Table:
    """All values that depend on sigma alone."""

    def __init__(self, sigma: float) -> None:
        self.shift = max(0, math.frexp(sigma)[1] - 3)  # frexp is exact, also just below a power of two
        self.t = 1 << self.shift
        self.kept = 1.0 / (1.0 + self.t / (sigma * math.sqrt(2 * math.pi)))
        top, bottom = sigma.as_integer_ratio()
        self.twice_variance = Decimal(2 * top * top), Decimal(bottom * bottom)  # 2 sigma^2 as an exact fraction
        # Only for the comparison in double precision, whose error the band covers; exact decisions use
        # `twice_variance`.
        self.factor = -1.0 / (2.0 * sigma * sigma)
        # (k t)^2 / (2 sigma^2) > 88.8 from here on: the part of the distribution that the table leaves out.
        last = math.ceil(math.sqrt(2 * _TAIL) * sigma / self.t)
        weights = [self.exp(k * k * self.t * self.t) for k in range(last + 1)]
        sums = [Decimal(0)]
        for weight in weights:
            sums.append(EXACT.add(sums[-1], weight))
        # k's number is below bounds[k] exactly if the level is k or less
        self.bounds = [EXACT.divide(part, sums[-1]) for part in sums[1:-1]]
        words = [int(EXACT.multiply(bound, Decimal(1 << 64))) for bound in self.bounds]
        self.thresholds = np.array(words, dtype=np.uint64)  # the 64-bit words that contain the bounds
        start = np.arange(1 << _GUIDE, dtype=np.uint64) << np.uint64(64 - _GUIDE)
        # A cell of the guide holds all words with the same 12 leading bits. It decides k if no threshold lies in it,
        # both ends included, since a word that equals a threshold needs more bits.
        lowest = np.searchsorted(self.thresholds, start, side="left")
        highest = np.searchsorted(self.thresholds, start + np.uint64((1 << 64 - _GUIDE) - 1), side="right")
        guide = np.where(lowest == highest, lowest << self.shift, -1)  # k t, or -1 where a bound falls within the cell
        self.guide: Ints = np.tile(guide, 2)  # once for either sign bit

    def exp(self, exponent: int) -> Decimal:
        """exp(-exponent / (2 sigma^2)) to 117 digits or more."""
        top, bottom = self.twice_variance
        return EXACT.exp(EXACT.divide(EXACT.multiply(Decimal(-exponent), bottom), top))


@lru_cache(maxsize=64)
def _table(sigma: float) -> _Table:
    return _Table(sigma)


def _propose(count: int, table: _Table, source: Source) -> Ints:
    """The accepted proposals among `count`. A word has its sign in the first bit, then 12 bits for k, and in its last
    bits at most 38 for j.
    """
    # One word per proposal for sign, k and j, and half a word (32 bits) for the decision to keep it. The bits of a word
    # are used once each: shared bits would make the decision depend on the proposal.
    words = source(count + (count + 1) // 2)
    first, second = words[:count], words[count:].view(np.uint32)[:count]
    start = table.guide.take((first >> np.uint64(63 - _GUIDE)).view(np.int64), mode="wrap")  # k t
    if len(unsettled := np.flatnonzero(start < 0)):
        start[unsettled] = _levels(first[unsettled], table, source) << table.shift
    signed = first.view(np.int64)
    negative = signed >> 63  # -1 or 0
    i = signed & (table.t - 1)
    # i = j for x = y, and i = j + 1 for x = -1 - y, so that zero is not counted twice.
    i -= negative
    size = start + i
    start += size  # 2 k t + i
    margin = i.astype(np.float64)
    margin *= start.astype(np.float64)
    margin *= table.factor
    np.exp(margin, out=margin)
    uniform = second.astype(np.float64)
    uniform *= 2.0**-32
    margin -= uniform
    # Inside the band the comparison is decided exactly, in decimals with fresh bits.
    keep, maybe = margin > _BAND, margin >= -_BAND
    if np.count_nonzero(keep) < np.count_nonzero(maybe):
        for place in np.flatnonzero(keep != maybe):
            bound = table.exp(int(i[place]) * int(start[place]))
            keep[place] = extended(int(second[place]), 32, source) < bound
    # Two's complement: x ^ -1 then + 1 is -x; with `negative` = 0 both lines do nothing.
    size ^= negative
    size -= negative
    return size[keep]


def _levels(first: Words, table: _Table, source: Source) -> Ints:
    """k where the guide does not decide it: its 12 bits and 52 fresh ones against the thresholds."""
    # The sign bit is shifted out; the 12 bits of the guide stay in front.
    known = (first << np.uint64(1)) >> np.uint64(64 - _GUIDE) << np.uint64(64 - _GUIDE)
    words = known | source(len(first)) >> np.uint64(_GUIDE)
    k = np.searchsorted(table.thresholds, words, side="right")
    for place in np.flatnonzero(words == table.thresholds[np.maximum(k - 1, 0)]):
        value = extended(int(words[place]), 64, source)
        k[place] = sum(value >= bound for bound in table.bounds)
    return k


def extended(word: int, bits: int, source: Source) -> Decimal:
    """A uniform number in [0, 1) from `bits` known bits and 256 fresh ones after them."""
    for extra in source(4).tolist():
        word = word << 64 | int(extra)
    return EXACT.divide(Decimal(word), Decimal(1 << bits + 256))
