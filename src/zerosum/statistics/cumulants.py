"""Each unit's fourth cumulants: which directions are not Gaussian, and in which way, all in one release.

Tested in tests/statistics/test_time_courses.py.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.statistics.rows import fold
from zerosum.statistics.sources import Singles, SourceStatistic, pairs

_LONGEST, _MORE = 1.5, 12.0  # a row's squared length, over its mean or beyond it: longer rows are brought to that


class FourthCumulants(SourceStatistic):
    """The sum over units of their fourth cumulants, each a symmetric tensor divided by its Frobenius norm.

    y = W x are the unit's sources, each of mean square 1 over its own rows; rows whose squared length is more than 1.5
    times the number of sources, and more than 12 above it, are brought to that (any
    closer, all tails would look light). Of each unit the tensor is the sample's cumulant

        E[y_a y_b y_c y_d] - E[y_a y_b] E[y_c y_d] - E[y_a y_c] E[y_b y_d] - E[y_a y_d] E[y_b y_c],

    plus `memory` times the mean over up to window // 2 rows on either side of the cumulants of y_a, y_b at one row and
    y_c, y_d at the other, made symmetric: sources whose size changes over time have these too. Cumulants of independent
    sources are zero but on the diagonal, in any white coordinates a sum of kurtosis times u u u u over the sources'
    directions u; and they are for sources that are autocorrelated and Gaussian too.

    Released are the distinct entries in isometric coordinates: R (R + 1) (R + 2) (R + 3)/24 numbers, 8855 for 20.

    Sensitivity. A contribution has norm 1, or 0 where every source is silent or nothing is left: two of them are at
    most 2 apart, approached by a unit of many rows that are nearly all zero against one whose rows are signs. Added or
    removed: 1.
    """

    name: ClassVar[str] = "fourth_cumulants"
    at_once: ClassVar[int] = 8_000
    memory: float = Field(default=2.0, ge=0, le=100)

    @property
    def size(self) -> int:
        return coordinates.size(self.sources, 4)

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.columns + 2 * self.sources**2)

    def told(self, y: Singles, runs: NDArray[np.int64]) -> Floats:
        units, rows, R = y.shape
        length = fold((y * y).reshape(-1, R)).reshape(units, rows, 1)
        most = np.float32(max(_LONGEST * R, R + _MORE))
        y = y * np.sqrt(most / np.maximum(length, most))
        layout = _layout(R)
        products = np.take(y, layout.row, axis=2) * np.take(y, layout.column, axis=2)  # one layout, however many units
        others, reach = products, self.window // 2
        memory = self.memory if reach else 0.0
        if memory:
            width = np.float32(2 * reach + 1)
            around = self.neighbours(products, runs)
            others = products + np.float32(memory) * (width * around - products) / (width - 1)
        four = np.matmul(products.transpose(0, 2, 1), others) / np.float32(rows)  # a product for each unit
        lags = range(reach + 1) if memory else range(1)
        own = np.stack([_lagged(y, lag, runs) for lag in lags], axis=1)[:, :, layout.row, layout.column]
        weights = [(3 + memory) / 3, *(2 * memory / (3 * reach) for _ in lags[1:])]
        four *= np.float32(1 / 3)
        four -= np.matmul((own * np.array(weights, dtype=np.float32)[:, None]).transpose(0, 2, 1), own)
        flat = four.reshape(units, -1)
        found = flat[:, layout.ways[0]] + flat[:, layout.ways[1]] + flat[:, layout.ways[2]]
        return np.asarray(found.astype(np.float64) * layout.roots)

    def split(self, value: Floats) -> Floats:
        """A released sum as the symmetric tensor, R x R x R x R."""
        return coordinates.unpack(value, self.sources, 4)


def _lagged(y: Singles, lag: int, runs: NDArray[np.int64]) -> Singles:
    """The symmetrised covariance of rows `lag` apart, in every unit."""
    rows, total = y.shape[1], np.zeros((len(y), y.shape[2], y.shape[2]), dtype=np.float32)
    for a, b in pairs(runs):
        if b - a > lag:
            early, late = np.ascontiguousarray(y[:, a : b - lag]), np.ascontiguousarray(y[:, a + lag : b])
            total += np.matmul(early.transpose(0, 2, 1), late)  # a product for each unit
    return (total + total.transpose(0, 2, 1)) * np.float32(0.5 / rows)


class _Layout:
    """Which entries of a matrix over pairs are the three ways to read each distinct entry of the tensor."""

    def __init__(self, order: int) -> None:
        self.row, self.column = np.triu_indices(order)
        code = np.zeros((order, order), dtype=np.intp)
        code[self.row, self.column] = code[self.column, self.row] = np.arange(len(self.row))
        index = np.array(list(combinations_with_replacement(range(order), 4)), dtype=np.intp).T
        a, b, c, d = index
        count = len(self.row)
        self.ways = tuple(code[p, q] * count + code[r, s] for p, q, r, s in ((a, b, c, d), (a, c, b, d), (a, d, b, c)))
        self.roots = coordinates.roots(order, 4)


@lru_cache(maxsize=4)
def _layout(order: int) -> _Layout:
    return _Layout(order)
