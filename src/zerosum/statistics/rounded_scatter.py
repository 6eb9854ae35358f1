"""The second moment of single records in whole numbers: four times as fast as in doubles, and exact.

Tested in tests/statistics/test_native.py and test_sensitivity.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import on_host
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units, pieces
from zerosum.statistics.scatter import CACHED, Scatter

WHOLE = 2048.0  # the norm that a record has at most, in whole numbers (src/native/module.c has the same)
TARGET = 2047.0  # the norm that it is brought to before it is rounded
STEP = 1 / (math.sqrt(12) * TARGET)  # the standard deviation of what rounding adds to an entry, of a norm of 1


class RoundedScatter(Scatter):
    """What `Scatter` sums, of records that are rounded first: to whole numbers, 2047 for a norm of 1.

    They are rounded to the nearest, or towards zero where a record would come out longer than 2048. The sum of products
    is then exact in any order, and is divided by 2047^2. Units with many rows are not rounded, nor is what lies on a
    device.

    Sensitivity. Rounded towards zero no entry grows, so that a record has at most norm 2048 either way. What it
    contributes is x x' of norm (2048/2047)^2 at most and positive semidefinite, as for `Scatter`: D is that of
    `Scatter` times (2048/2047)^2.
    """

    name: ClassVar[str] = "rounded_scatter"

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(adjacency) * (WHOLE / TARGET) ** 2

    def adds_exactly(self, units: Units) -> bool:
        return units.offsets is None and units.device is None and (units.is_sparse or on_host(units.rows))

    def sum_block(self, block: Units) -> Array:
        placing = self._native(block)
        return super().sum_block(block) if placing is None else placing.scatter(block.rows)

    def _moments(self, block: Units) -> Iterator[Array]:
        if not self.adds_exactly(block):
            yield from super()._moments(block)
            return
        numbers = self._weighed(block, TARGET)
        for some in pieces(len(numbers), max(1, CACHED // (8 * self.width))):
            round_rows(numbers[some])
        yield numbers.T @ numbers / TARGET**2


def round_rows(weighed: Floats) -> None:
    """Records of norm 1 at most times 2047, rounded in place to whole numbers of norm 2048 at most.

    >>> rows = np.array([[1500.4, 1392.5], [0.2, -0.7]])
    >>> round_rows(rows)
    >>> rows.tolist()
    [[1500.0, 1392.0], [0.0, -1.0]]
    """
    nearest = np.rint(weighed)
    long = np.sum(nearest * nearest, axis=1) > WHOLE**2  # of whole numbers: exact
    nearest[long] = np.trunc(weighed[long])
    weighed[...] = nearest
