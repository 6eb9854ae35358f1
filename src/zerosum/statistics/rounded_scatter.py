"""The second moment of single records in whole numbers: four times as fast as in doubles, and exact.

Tested in tests/statistics/test_rounded_scatter.py.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Array, Floats
from zerosum.kernel import coordinates
from zerosum.kernel.devices import on_host
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units, pieces
from zerosum.statistics.scatter import CACHED, Scatter

LONGEST = 2048.0  # the norm that a record has at most in whole numbers (src/native/module.c has the same)
TARGET = 2046.0  # the norm that it is brought to before it is rounded
STEP = 1 / (2 * TARGET)  # the standard deviation of what rounding adds to an entry, at most, of a norm of 1
_GOLDEN, _MIXED = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


class RoundedScatter(Scatter):
    """What `Scatter` sums, of records that are rounded first: to whole numbers, 2046 for a norm of 1.

    Each entry is rounded up or down, with chances that make its mean what it was, as a hash of the record's own numbers
    says: what many records lose does not add up, as it would where all are rounded to the nearest and are alike. Where
    a record would come out longer than 2048 it is rounded towards zero. The sum of products is then exact in any order,
    and is divided by 2046^2 at the end. Units with many rows are not rounded, nor is what lies on a device.

    Sensitivity. Rounded towards zero no entry grows, so that a record has at most norm 2048 either way. What it
    contributes is x x' of norm (2048/2046)^2 at most and positive semidefinite, as for `Scatter`: D is that of
    `Scatter` times (2048/2046)^2.
    """

    name: ClassVar[str] = "rounded_scatter"

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(adjacency) * (LONGEST / TARGET) ** 2

    @property
    def block_bytes(self) -> int:
        return 24 * self.size + 2048 * self.width  # a square of doubles, its triangle, and rows in whole numbers

    def adds_exactly(self, units: Units) -> bool:
        return units.offsets is None and units.device is None and (units.is_sparse or on_host(units.rows))

    def sum_block(self, block: Units) -> Array:
        return self.finished(self.exact_block(block)) if self.adds_exactly(block) else super().sum_block(block)

    def exact_block(self, block: Units) -> Array:
        """The upper triangle of the sum of x x' in whole numbers, row by row."""
        placing = self._native(block)
        if placing is not None:
            return placing.scatter(block.rows)
        numbers = self._weighed(block, TARGET)
        for some in pieces(len(numbers), max(1, CACHED // (8 * self.width))):
            round_rows(numbers[some])
        return coordinates.triangle(numbers.T @ numbers)

    def finished(self, total: Floats) -> Floats:
        return coordinates.scaled(total, self.width, TARGET**2)


def round_rows(weighed: Floats) -> None:
    """Records of norm 1 at most times 2046, rounded in place to whole numbers of norm 2048 at most.

    >>> rows = np.array([[1500.4, 1391.5], [0.2, -0.7], [3.0, 0.0]])
    >>> round_rows(rows)
    >>> rows.tolist()
    [[1501.0, 1392.0], [1.0, 0.0], [3.0, 0.0]]
    """
    whole = np.floor(weighed + _drawn(weighed))
    long = np.sum(whole * whole, axis=1) > LONGEST**2  # of whole numbers: exact
    whole[long] = np.trunc(weighed[long])
    weighed[...] = whole


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (numbers ^ numbers >> np.uint64(32)) * _MIXED


def _drawn(rows: Floats) -> Floats:
    """A number in [0, 1) for every entry, by a hash of its row and its place in it. It need not be hard to guess: it
    must not follow from the entry alone."""
    places = _GOLDEN * np.arange(1, rows.shape[1] + 1, dtype=np.uint64)
    bits = (rows + 0.0).view(np.uint64) + places  # a zero has no sign
    own = _mixed(np.sum(_mixed(bits), axis=1))
    own ^= own >> np.uint64(29)
    drawn = _mixed(own[:, None] + places)
    drawn = drawn >> np.uint64(12) | np.uint64(0x3FF0000000000000)  # of a double from 1 to 2
    return drawn.view(np.float64) - 1.0
