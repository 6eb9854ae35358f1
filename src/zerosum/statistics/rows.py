"""From a unit's rows to what enters a statistic: the same bits whoever else is there.

Up to the last decision about a unit (a clip, a bin, the nearest centre, a threshold, a norm to divide by), what is
computed for it must depend on that unit and on public values alone. A matrix product over many rows does not keep to
that: how a row rounds depends on the number of rows, the kernel and the threads. So decisions rest on three kinds of
operation only (docs/guarantee.md, "Nobody decides for others"):

1. Elementwise +, -, *, /, sqrt, rounding and comparisons, which IEEE 754 rounds correctly one number at a time.
2. `fold`: a sum along a unit's own axis, made of elementwise additions in an order that its length fixes.
3. `Exact.product`: a product with a public matrix that does not round at all. Both factors are whole numbers, and by
   Cauchy and Schwarz every partial sum stays below 2^53, so that any order of summation gives the same number.

Shorter floats and integers are converted to double first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
from array_api_compat import array_namespace
from threadpoolctl import ThreadpoolController

from zerosum.arrays import Array, Floats
from zerosum.errors import BadParameter
from zerosum.kernel.units import Units

BITS = 26  # of a whole number that stands for a norm of 1: a product has 52, and rounding its factors adds less than 1
INSIDE = 1 + 2.0**-46  # norms are computed to less than this, so that what is divided by them stays inside its bound


def doubles(rows: Array) -> Array:
    """The rows as doubles, whatever they are kept as: sums of shorter floats have errors that no bound covers."""
    xp = array_namespace(rows)
    return xp.astype(rows, xp.float64, copy=False)


def fold(values: Array) -> Array:
    """The sum along axis 1, by adding the second half to the first until a few are left. Overwrites its argument.

    >>> fold(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])).tolist()
    [6.0, 15.0]
    """
    width = values.shape[1]
    while width > 8:
        half = (width + 1) // 2
        values[:, : width - half, ...] += values[:, half:width, ...]
        width = half
    total = values[:, 0, ...]
    for column in range(1, width):
        total = total + values[:, column, ...]
    return total


def averages(units: Units, rows: Floats, made: Callable[[Floats], Floats], at_once: int) -> Floats:
    """One row per unit: the mean over its rows of what is `made` of them, row by row, of `at_once` of them at a time.

    Parts are counted from a unit's own first row and added up by `fold`: how a mean rounds depends on that unit alone,
    and one with many rows takes no more memory than others.

    >>> averages(Units(np.arange(6.0)[:, None], np.array([0, 1, 6])), np.arange(6.0)[:, None], np.square, 2).tolist()
    [[0.0], [11.0]]
    """
    if units.offsets is None:
        return made(rows)
    whole = made(rows) if len(rows) <= at_once else None
    means = []
    for first, last in itertools.pairwise(units.offsets.tolist()):
        total = 0.0
        for start in range(first, last, at_once):
            part = slice(start, min(start + at_once, last))
            total = total + fold((made(rows[part]) if whole is None else whole[part])[None, ...])[0]
        means.append(total / (last - first))
    return np.stack(means)


def sized(rows: Array) -> tuple[Array, Array, Array]:
    """Rows, what each was divided by, and the norm of what is left, which is 0 or between 1e-100 and 1e100.

    Most are divided by 1. One whose squares would over- or underflow is divided by its largest entry; one that is not
    finite becomes zero. Which it is, a row decides alone: the others keep their bits.
    """
    xp = array_namespace(rows)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        squares = fold(rows * rows)
        plain = (squares > 1e-200) & (squares < 1e200)
        ones = xp.ones_like(squares)
        if bool(xp.all(plain)):
            return rows, ones, xp.sqrt(squares)
        largest = xp.max(xp.abs(rows), axis=1)
        sound = xp.isfinite(largest)
        rows = xp.where(sound[:, None], rows, xp.zeros_like(rows))
        largest = xp.where(plain | ~sound | (largest == 0), ones, largest)
        scaled = rows / largest[:, None]  # by 1 where plain: the same bits
        squares = xp.where(plain, squares, fold(scaled * scaled))
        return scaled, largest, xp.sqrt(squares)


def clip_rows(rows: Array, radius: float) -> Array:
    """Scale every row into the L2 ball; a row that is not finite becomes zero.

    For every radius that a statistic takes (1e-100 to 1e100) the ratio of radius and norm is far from subnormal, since
    rows were divided by their largest entry where their norm is extreme. Dividing by slightly more than the norm keeps
    the result inside the ball.

    >>> [f"{x:.6g}" for x in clip_rows(np.array([[3e300, 4e300]]), 1e-20)[0]]
    ['6e-21', '8e-21']
    """
    return clip_factors(rows, radius)[0]


def clip_factors(rows: Array, radius: float) -> tuple[Array, Array]:
    """Every row scaled into the L2 ball as by `clip_rows`, and what it was multiplied by.

    >>> clip_factors(np.array([[3.0, 4.0], [0.6, 0.8]]), 1.0)[1].round(6).tolist()
    [0.2, 1.0]
    """
    xp = array_namespace(rows)
    scaled, size, norm = sized(doubles(rows))
    with np.errstate(over="ignore", under="ignore"):
        norm = norm * INSIDE
        shrunk = radius / xp.where(norm > 0, norm, xp.ones_like(norm))
        inside = norm <= radius / size
        clipped = scaled * xp.where(inside, size, shrunk)[:, None]
        return clipped, xp.where(inside, xp.ones_like(norm), shrunk / size)


def exponential(values: Array) -> Array:
    """exp of numbers in [-60, 60], to 13 digits, from elementwise operations alone.

    A library's exponential may round a number differently wherever it stands among others. This one takes the series of
    values/4096 and squares it twelve times.

    >>> float(exponential(np.array([1.0]))[0]) - math.e < 1e-12
    True
    """
    part = values * 2.0**-12
    series = part * 0.0 + 1.0
    for k in range(8, 0, -1):
        series = 1.0 + part * series / float(k)
    for _ in range(12):
        series = series * series
    return series


def whole(rows: Array, norm: Array) -> Array:
    """Rows of this norm (one a row) as whole numbers, of norm at most 2^26 + sqrt(columns)/2; zero stays zero."""
    xp = array_namespace(rows)
    some = norm > 0
    factor = 2.0**BITS / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
    return rounded(rows * xp.where(some, factor, xp.zeros_like(factor))[:, None])


def rounded(values: Array) -> Array:
    """Numbers below 2^51 rounded to whole ones, halves to even, in place."""
    values += 1.5 * 2.0**52
    values -= 1.5 * 2.0**52
    return values


@dataclass(frozen=True, eq=False)
class Exact:
    """A public matrix whose products do not round: whole numbers, and what each column of them is to be multiplied by.

    Column j is `numbers[:, j] * unit[j]`, rounded to 26 bits of its norm: a change of the public matrix of at most
    sqrt(rows) 2^-27 of each column's norm, the same for everybody.
    """

    numbers: Floats
    unit: Floats

    def __post_init__(self) -> None:
        most = 2.0**BITS * INSIDE + math.sqrt(len(self.numbers)) / 2
        if not np.all(np.linalg.norm(self.numbers, axis=0) <= most):  # fails on what is not a number
            raise BadParameter("a public matrix cannot be brought to whole numbers")  # products would round

    @classmethod
    def of(cls, matrix: Floats) -> Exact:
        """Of a public matrix (columns of the data x anything)."""
        scaled, size, norm = sized(np.ascontiguousarray(np.asarray(matrix, dtype=np.float64).T))
        return cls(np.ascontiguousarray(whole(scaled, norm).T), size * norm * INSIDE * 2.0**-BITS)

    def product(self, numbers: Array) -> Array:
        """Whole numbers (`whole`) times those of the matrix: exact, in any order.

        Every partial sum is at most (2^26 + sqrt(N)/2)^2 < 2^53 for up to 10^15 numbers N of a unit.
        """
        return array_namespace(numbers).matmul(numbers, like(self.numbers, numbers))

    def seen(self, rows: Array, norm: Array) -> Array:
        """Rows of this norm, divided by it, times the matrix: to 26 bits of the norm of its columns."""
        return self.seen_whole(whole(rows, norm))

    def seen_whole(self, numbers: Array) -> Array:
        """The same of rows that are whole numbers already."""
        seen = self.product(numbers)
        seen *= like(self.unit * (INSIDE * 2.0**-BITS), numbers)[None, :]
        return seen

    def valid(self, seen: Array) -> Array:
        """What was seen of units (one a row), without those of which nothing is left but the rounding of `whole`."""
        xp = array_namespace(seen)
        rounding = math.sqrt(len(self.numbers)) * float(np.max(self.unit))
        return xp.where((xp.max(xp.abs(seen), axis=1) > rounding)[:, None], seen, xp.zeros_like(seen))


def like(constant: Floats, rows: Array) -> Array:
    """A public constant in the namespace of the rows."""
    return array_namespace(rows).asarray(constant)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS on one thread: a product of one shape for each unit then rounds the same on every machine's settings."""
    with _libraries().limit(limits=1, user_api="blas"):
        yield
