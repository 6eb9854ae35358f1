"""The second moment of single records in whole numbers: exact, and four times as fast as in doubles.

The map of one unit is that of `Scatter` for a unit of one row x with norm(x) <= 1 after scaling: x is multiplied by
2046, rounded at random to a vector n of whole numbers with norm(n) <= 2048, and contributes n n' / 2046^2.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Array, Floats
from zerosum.compute.devices import on_host
from zerosum.compute.units import Units, pieces
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.scatter import CACHED, Scatter

# The largest norm of a record in whole numbers. src/native/module.c has the same constant. n.n <= 2^22, so that sums
# over 2^31 records stay below 2^53.
LARGEST_NORM = 2048.0
# The norm of a record before it is rounded, for a record of norm 1. Two less than `LARGEST_NORM`: room for the
# rounding. Chosen by hand; no benchmark recorded.
TARGET = 2046.0
# The largest standard deviation of the rounding error of an entry, relative to a record of norm 1: an entry is rounded
# up or down by at most 1, with standard deviation at most 1/2.
STEP = 1 / (2 * TARGET)
# Odd 64-bit multipliers of the hash in `_drawn`: 2^64 over the golden ratio, and a multiplier of the SplitMix64
# generator.
_GOLDEN, _MIXED = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class RoundedScatter(Scatter):
    """The sum of `Scatter` for records that are rounded to whole numbers first, at 2046 for a norm of 1.

    Each entry is rounded up or down at random, with the probabilities that keep its mean. The random numbers are a hash
    of the record's own numbers. Errors of many records therefore do not accumulate, as they would if all were rounded
    to the nearest number and were similar. A record whose rounded norm would exceed 2048 is rounded towards zero. The
    sum of products is exact in any order and is divided by 2046^2 at the end. Units with many rows, and units on a
    device, are not rounded: they are summed as in `Scatter`.

    Sensitivity. Rounding towards zero does not lengthen an entry, so that a record has norm at most 2048 in either
    case. Its contribution is n n' / 2046^2, which is positive semidefinite and has norm at most (2048/2046)^2. The
    argument for `Scatter` then gives D of `Scatter` times (2048/2046)^2.

    Parameters
    ----------
    columns, center, scale, per_recording, projection, lift, clip, normalise, fill, own_rows
        As for `Scatter`.
    """

    name: ClassVar[str] = "rounded_scatter"

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return super().sensitivity(adjacency) * (LARGEST_NORM / TARGET) ** 2

    @property
    def block_bytes(self) -> int:
        """Working memory of a block in bytes, for any number of rows."""
        # A square matrix of doubles, its triangle, and rows in whole numbers.
        return 24 * self.size + 2048 * self.width

    def adds_exactly(self, units: Units) -> bool:
        """Whether these units are rounded and summed without error: single rows on the host."""
        return units.offsets is None and units.device is None and (units.is_sparse or on_host(units.rows))

    def sum_block(self, block: Units) -> Array:
        """The packed sum over a block, rounded records or plain scatter."""
        return self.finished(self.exact_block(block)) if self.adds_exactly(block) else super().sum_block(block)

    def exact_block(self, block: Units) -> Array:
        """The upper triangle of the sum of n n' in whole numbers, row by row; shape (width (width + 1)/2,)."""
        placing = self._native(block)
        if placing is not None:
            return placing.scatter(block.rows)
        # Without the kernel in C, NumPy computes the same whole numbers.
        numbers = self._weighed(block, TARGET)
        for some in pieces(len(numbers), max(1, CACHED // (8 * self.width))):
            round_rows(numbers[some])
        # Whole numbers of norm at most 2048: every partial sum is exact in doubles.
        return coordinates.triangle(numbers.T @ numbers)

    def finished(self, total: Floats) -> Floats:
        """The last step, the only one that rounds: division by 2046^2 and isometric coordinates."""
        return coordinates.scaled(total, self.width, TARGET**2)


def round_rows(weighed: Floats) -> None:
    """Round records in place to whole numbers of norm at most 2048.

    Parameters
    ----------
    weighed : array of shape (records, width)
        Records of norm at most 1, times 2046. Overwritten.

    Examples
    --------
    >>> rows = np.array([[1500.4, 1391.5], [0.2, -0.7], [3.0, 0.0]])
    >>> round_rows(rows)
    >>> rows.tolist()
    [[1501.0, 1392.0], [1.0, 0.0], [3.0, 0.0]]
    """
    # floor(x + u) with u uniform in [0, 1) has mean x.
    whole = np.floor(weighed + _drawn(weighed))
    # The squared norm of whole numbers is exact, so that a record alone decides whether it is too long.
    long = np.sum(whole * whole, axis=1) > LARGEST_NORM**2
    whole[long] = np.trunc(weighed[long])
    weighed[...] = whole


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of the hash: xor with the high half, then multiply."""
    return (numbers ^ numbers >> np.uint64(32)) * _MIXED


def _drawn(rows: Floats) -> Floats:
    """A number in [0, 1) for every entry, from a hash of its row and its position; shape (rows, columns).

    The number need not be hard to guess. It must not be a function of the entry alone, because equal entries of many
    records would then be rounded the same way.
    """
    places = _GOLDEN * np.arange(1, rows.shape[1] + 1, dtype=np.uint64)
    # Adding 0.0 turns -0.0 into 0.0, so that equal rows have equal bits.
    bits = (rows + 0.0).view(np.uint64) + places
    # One hash of the whole row; the sum over columns wraps modulo 2^64.
    own = _mixed(np.sum(_mixed(bits), axis=1))
    own ^= own >> np.uint64(29)
    drawn = _mixed(own[:, None] + places)
    # The top 52 bits become the mantissa of a double in [1, 2); subtracting 1 gives a uniform number in [0, 1).
    drawn = drawn >> np.uint64(12) | np.uint64(0x3FF0000000000000)
    return drawn.view(np.float64) - 1.0
