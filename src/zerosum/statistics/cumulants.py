"""Each unit's fourth cumulants: which directions are not Gaussian, and with which sign, all in one release.

The map of one unit, with scaled sources y of shape (rows, R): the tensor K of fourth cumulants, of shape (R, R, R, R)
and symmetric, divided by its Frobenius norm, in isometric coordinates. For independent sources in white coordinates K
is the sum over sources of kurtosis times u u u u, u the directions of the sources.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import doubles, fold
from zerosum.compute.devices import constant_on, on_host
from zerosum.kernel import coordinates
from zerosum.statistics.sources import SourceStatistic, each_product, pairs

_MOST_SOURCES = 100  # most sources: they have four million cumulants
# Limit of a row's squared length with R sources: max(1.5 R, R + 12), where R is its mean. Longer rows are shortened.
_LONGEST, _MORE = 1.5, 12.0


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

    Parameters
    ----------
    memory : float
        The weight of cumulants between neighbouring rows beside those at one row; 0 leaves them out.
    columns, unmixing, per_recording, window
        As for `SourceStatistic`. At most 100 sources.
    """

    name: ClassVar[str] = "fourth_cumulants"
    at_once: ClassVar[int] = 8_000
    memory: float = Field(default=2.0, ge=0, le=100)

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if self.sources > _MOST_SOURCES:
            raise ValueError(f"fourth cumulants take at most {_MOST_SOURCES} sources, got {self.sources}")
        return self

    @property
    def size(self) -> int:
        """The distinct entries of a symmetric tensor of order 4."""
        return coordinates.size(self.sources, 4)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (2 * self.columns + 2 * self.sources**2)

    @property
    def block_bytes(self) -> int:
        """Working memory that does not depend on the number of rows: also two matrices over pairs of sources."""
        return super().block_bytes + 16 * coordinates.size(self.sources) ** 2

    def unit_numbers(self, rows: int) -> int:
        """Size of the intermediate arrays of a unit: products of pairs in every row, or the matrix over pairs."""
        return max(rows * self.sources**2, coordinates.size(self.sources) ** 2)

    def vectors(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """The packed cumulants of units of equal length, shape (units, size); no lag reaches beyond a recording."""
        y = np.ascontiguousarray(y) if on_host(y) else y
        xp, (units, rows, R) = array_namespace(y), y.shape
        length = xp.reshape(fold(xp.reshape(y * y, (-1, R))), (units, rows, 1))
        most = max(_LONGEST * R, R + _MORE)
        # A single row of extreme length would determine the tensor of its unit; its direction stays.
        y = y * xp.sqrt(most / xp.clip(length, most, None))
        layout = _layout(R)
        row, column = constant_on(layout.row, y), constant_on(layout.column, y)
        # y_a y_b for a <= b: a fourth moment is a product of two of these.
        products = xp.take(y, row, axis=2) * xp.take(y, column, axis=2)  # one layout, however many units
        others, width = products, min(self.window, int(np.max(np.diff(runs))))
        reach = width // 2
        memory = self.memory if reach else 0.0
        if memory:
            around = self.neighbours(products, runs)
            # The mean over neighbours without the row itself: the window has the row in it.
            others = products + memory * (width * around - products) / (width - 1)
        # E[y_a y_b y_c y_d] as a matrix over pairs (a, b) and (c, d), with the neighbours if there is memory.
        four = each_product(products, others) / rows
        lags = range(reach + 1) if memory else range(1)
        own = xp.take(xp.stack([_lagged(y, lag, runs) for lag in lags], axis=1), constant_on(layout.places, y), axis=2)
        first, later = (3 + memory) / 3, 2 * memory / (3 * max(reach, 1))
        four = four / 3 - each_product(xp.concat([own[:, :1, :] * first, own[:, 1:, :] * later], axis=1), own)
        # The three pairings (ab|cd), (ac|bd), (ad|bc) of a symmetric tensor: their sum is symmetric.
        flat = xp.reshape(four, (units, -1))
        ways = [xp.take(flat, constant_on(way, y), axis=1) for way in layout.ways]
        return doubles(ways[0] + ways[1] + ways[2]) * constant_on(layout.roots, y)[None, :]

    def split(self, value: Floats) -> Floats:
        """A released sum as the symmetric tensor, R x R x R x R.

        Parameters
        ----------
        value : array of shape (size,)
            A noisy sum.
        """
        return coordinates.unpack(value, self.sources, 4)


def _lagged(y: Array, lag: int, runs: NDArray[np.int64]) -> Array:
    """The symmetrised covariance of rows `lag` apart within a recording, for every unit; shape (units, R R), row by
    row.

    Parameters
    ----------
    y : array of shape (units, rows, R)
        Scaled sources.
    lag : int
        Number of rows between the two factors; 0 gives the covariance.
    runs : int array
        The first row of each recording, and the end of the last one.
    """
    xp, (units, rows, R) = array_namespace(y), y.shape
    total = xp.zeros_like(y[:, :1, :]) * xp.zeros_like(y[:, 0, :, None])
    for a, b in pairs(runs):
        if b - a > lag:
            total = total + each_product(y[:, a : b - lag, ...], y[:, a + lag : b, ...])
    return xp.reshape((total + xp.matrix_transpose(total)) * (0.5 / rows), (units, R * R))


class _Layout:
    """Which entries of a matrix over pairs are the three ways to read each distinct entry of the tensor.

    Parameters
    ----------
    order : int
        R, the number of sources.
    """

    def __init__(self, order: int) -> None:
        self.row, self.column = np.triu_indices(order)
        self.places = self.row * order + self.column  # in a matrix that is read row by row
        code = np.zeros((order, order), dtype=np.intp)
        code[self.row, self.column] = code[self.column, self.row] = np.arange(len(self.row))
        index = np.array(list(combinations_with_replacement(range(order), 4)), dtype=np.intp).T
        a, b, c, d = index
        count = len(self.row)
        self.ways = tuple(code[p, q] * count + code[r, s] for p, q, r, s in ((a, b, c, d), (a, c, b, d), (a, d, b, c)))
        self.roots = coordinates.roots(order, 4)


@lru_cache(maxsize=4)
def _layout(order: int) -> _Layout:
    """The layout for this number of sources, computed once."""
    return _Layout(order)
