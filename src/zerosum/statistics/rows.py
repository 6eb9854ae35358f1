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

On a GPU the same holds, for the same reasons. A device computes elementwise operations one number at a time as well,
and exact products in any order; its own reductions, whose order depends on the shape of what they are given, are not
used before the last decision. What PyTorch would do in several passes over memory, a kernel of `fused` does in one: one
program of it sees the rows of one unit, or a piece of them that its length alone fixes. Only a module's products round
before a decision; `module_gradients` says what is done about that. Everything is computed in double precision but for
what a statistic says it computes in single. Whether a device keeps to this is tried on public numbers before any others
(`devices.check_products`, `fused.serves`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from zerosum.arrays import Array, Floats
from zerosum.errors import BadParameter
from zerosum.kernel.devices import beside, on_host, terms
from zerosum.kernel.devices import like as like
from zerosum.kernel.grid import BLOCK_ROWS
from zerosum.kernel.statistic import compensated
from zerosum.kernel.threads import one_thread as one_thread
from zerosum.kernel.units import Units, pieces
from zerosum.kernel.units import fold as fold
from zerosum.statistics import fused

BITS = 26  # of a whole number that stands for a norm of 1: a product has 52, and rounding its factors adds less than 1
_TOGETHER = 1 << 14  # rows of many units that are taken at once on a device
_TOGETHER_NUMBERS = 1 << 26  # numbers of partial sums that are held at once
_DEPTH = 64  # additions that are left for the sum of partial sums
_WORTH_CUTTING = 384  # columns from which half a product is worth several calls
INSIDE = 1 + 2.0**-46  # norms are computed to less than this, so that what is divided by them stays inside its bound


def doubles(rows: Array) -> Array:
    """The rows as doubles, whatever they are kept as: sums of shorter floats have errors that no bound covers."""
    xp = array_namespace(rows)
    return xp.astype(rows, xp.float64, copy=False)


def averages(units: Units, rows: Array, made: Callable[[Array], Array], at_once: int) -> Array:
    """One row per unit: the mean over its rows of what is `made` of them, row by row, of `at_once` of them at a time.

    Parts are counted from a unit's own first row and added up by `fold`: how a mean rounds depends on that unit alone,
    and one with many rows takes no more memory than others.

    >>> averages(Units(np.arange(6.0)[:, None], np.array([0, 1, 6])), np.arange(6.0)[:, None], np.square, 2).tolist()
    [[0.0], [11.0]]
    """
    if units.offsets is None:
        return made(rows)
    if not on_host(rows):
        return _averages(units, rows, made, at_once)
    whole = made(rows) if len(rows) <= at_once else None
    means = []
    for first, last in itertools.pairwise(units.offsets.tolist()):
        total = 0.0
        for start in range(first, last, at_once):
            part = slice(start, min(start + at_once, last))
            total = total + fold((made(rows[part]) if whole is None else whole[part])[None, ...])[0]
        means.append(total / (last - first))
    return np.stack(means)


def _averages(units: Units, rows: Array, made: Callable[[Array], Array], at_once: int) -> Array:
    """The same on a device, for many units of one length together; a unit's parts are cut as its length says."""
    xp, parts, order = array_namespace(rows), [], []
    for batch in units.batches():
        own, few = batch.of(rows), max(1, _TOGETHER // max(1, min(at_once, batch.length)))
        for some in pieces(len(batch), few):
            total = 0.0
            for few_rows in pieces(batch.length, at_once):
                part = own[some, few_rows, ...]
                flat = made(xp.reshape(part, (-1, *rows.shape[1:])))
                total = total + fold(xp.reshape(flat, (part.shape[0], part.shape[1], *flat.shape[1:])))
            parts.append(total / batch.length)
        order.append(batch.units)
    return xp.take(xp.concat(parts), beside(np.argsort(np.concatenate(order)), rows), axis=0)


def squares(rows: Array) -> Array:
    """The sum of the squares of each row, in an order that its length fixes."""
    return fused.squares(rows) if fused.serves(rows) else fold(rows * rows)


# ---- sums over units, after the last decision about any of them ------------------------------------------------------


def added(values: Array) -> Array:
    """The sum over rows. On a device, where blocks are long, over as many at a time as may be added up in any order,
    and then by `fold`, whose depth is that of a tree: the planned rounding holds (`grid.rows_allowed`)."""
    xp, most = array_namespace(values), _most(values)
    if most is None:
        return xp.sum(values, axis=0)
    head, rest = values.shape[0] - values.shape[0] % most, values.shape[1:]
    parts = xp.sum(xp.reshape(values[:head, ...], (-1, most, *rest)), axis=1)
    if head < values.shape[0]:
        parts = xp.concat([parts, xp.sum(values[head:, ...], axis=0)[None, ...]], axis=0)
    return fold(parts[None, ...])[0, ...]


def products(left: Array, right: Array) -> Array:
    """left' right, a sum over rows, likewise."""
    xp, most = array_namespace(left), _most(left)
    if most is None:
        return xp.matmul(xp.matrix_transpose(left), right)
    count = left.shape[0] // most
    if count * left.shape[1] * right.shape[1] > _TOGETHER_NUMBERS:
        return summed(products(left[some, ...], right[some, ...]) for some in pieces(left.shape[0], most))
    head = count * most
    tall, wide = (xp.reshape(each[:head, ...], (count, most, -1)) for each in (left, right))
    parts = xp.matmul(xp.matrix_transpose(tall), wide)
    if head < left.shape[0]:
        last = xp.matmul(xp.matrix_transpose(left[head:, ...]), right[head:, ...])
        parts = xp.concat([parts, last[None, ...]], axis=0)
    return fold(parts[None, ...])[0, ...]


def gram(rows: Array) -> Array:
    """Rows times their own transpose, columns x columns, likewise. A processor's library computes half of it and
    mirrors that; on a device a wide one is cut into blocks, and those below the diagonal are mirrored."""
    xp, width = array_namespace(rows), rows.shape[1]
    if on_host(rows) or width < _WORTH_CUTTING:
        return products(rows, rows)
    if (most := _most(rows)) is not None:
        return summed(gram(rows[some, ...]) for some in pieces(rows.shape[0], most))
    half = width // 2
    left, right = rows[:, :half], rows[:, half:]
    across = xp.matmul(xp.matrix_transpose(left), right)
    upper = xp.concat([gram(left), across], axis=1)
    return xp.concat([upper, xp.concat([xp.matrix_transpose(across), gram(right)], axis=1)], axis=0)


def counts(places: Array, weights: Array, size: int) -> Array:
    """How much weight lies at each of `size` places, likewise."""
    if on_host(places):
        return np.bincount(places, weights=weights, minlength=size)
    xp, most = array_namespace(places), _most(places)
    if most is not None:
        count = -(-places.shape[0] // most)
        if count * size > _TOGETHER_NUMBERS:
            parts = pieces(places.shape[0], most)
            return summed(counts(places[some], weights[some], size) for some in parts)
        which = xp.arange(places.shape[0], device=device_of(places)) // most
        return fold(xp.reshape(_counts(places + which * size, weights, count * size), (1, count, size)))[0, ...]
    return _counts(places, weights, size)


def _counts(places: Array, weights: Array, size: int) -> Array:
    xp = array_namespace(places)
    if hasattr(xp, "bincount"):
        return xp.bincount(places, weights=weights, minlength=size)
    hits = places[:, None] == xp.arange(size, device=device_of(places))[None, :]
    return xp.sum(xp.where(hits, weights[:, None], xp.zeros_like(weights)[:, None]), axis=0)


def _most(rows: Array) -> int | None:
    """How many rows are added up at a time, if these are more."""
    if on_host(rows):
        return None
    most = (terms() or BLOCK_ROWS) - _DEPTH
    return most if rows.shape[0] > most else None


def summed(parts: Iterable[Array]) -> Array:
    """The sum of partial sums, with compensation: however many there are, it rounds as few additions do.

    >>> summed([np.array([1.0])] + [np.array([2.0**-53])] * 2**12).tolist() == [1 + 2.0**-41]
    True
    """
    total = lost = None
    for part in parts:
        total, lost = (part, 0.0) if total is None else compensated(total, lost, part)
    return total


def sized(rows: Array) -> tuple[Array, Array, Array]:
    """Rows, what each was divided by, and the norm of what is left, which is 0 or between 1e-100 and 1e100.

    Most are divided by 1. One whose squares would over- or underflow is divided by its largest entry; one that is not
    finite becomes zero. Which it is, a row decides alone: the others keep their bits.
    """
    xp = array_namespace(rows)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        size = squares(rows)
        plain = (size > 1e-200) & (size < 1e200)
        ones = xp.ones_like(size)
        if bool(xp.all(plain)):
            return rows, ones, xp.sqrt(size)
        largest = xp.max(xp.abs(rows), axis=1)
        sound = xp.isfinite(largest)
        rows = xp.where(sound[:, None], rows, xp.zeros_like(rows))
        largest = xp.where(plain | ~sound | (largest == 0), ones, largest)
        scaled = rows / largest[:, None]  # by 1 where plain: the same bits
        size = xp.where(plain, size, squares(scaled))
        return scaled, largest, xp.sqrt(size)


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


def whole(rows: Array, norm: Array, out: Array | None = None) -> Array:
    """Rows of this norm (one a row) as whole numbers, of norm at most 2^26 + sqrt(columns)/2; zero stays zero."""
    xp = array_namespace(rows)
    some = norm > 0
    factor = 2.0**BITS / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
    factor = xp.where(some, factor, xp.zeros_like(factor))
    if fused.serves(rows):
        return fused.whole(rows, factor)
    return rounded(rows * factor[:, None] if out is None else np.multiply(rows, factor[:, None], out=out))


def rounded(values: Array) -> Array:
    """Numbers below 2^51 rounded to whole ones, halves to even, in place."""
    if on_host(values):
        return np.rint(values, out=values)
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
        numbers = whole(rows, norm)
        seen = self.product(numbers)
        seen *= like(self._worth, numbers)[None, :]
        return seen

    @cached_property
    def _worth(self) -> Floats:
        return np.asarray(self.unit * (INSIDE * 2.0**-BITS))

    def valid(self, seen: Array) -> Array:
        """What was seen of units (one a row), without those of which nothing is left but the rounding of `whole`."""
        xp = array_namespace(seen)
        return xp.where((xp.max(xp.abs(seen), axis=1) > self.rounding)[:, None], seen, xp.zeros_like(seen))

    def heard(self, sizes: Floats) -> Array:
        """Of which units (one a row) more is left than the rounding of `whole`, by the root mean squares of their
        products with whole numbers (one a column)."""
        return np.any(sizes * self._worth > self.rounding, axis=1)

    @cached_property
    def worth(self) -> Floats:
        """What a product with whole numbers is worth, by column, and last the `rounding`."""
        return np.append(self._worth, self.rounding)

    @cached_property
    def rounding(self) -> float:
        """What the rounding of `whole` can come to in a product, at most."""
        return math.sqrt(len(self.numbers)) * float(np.max(self.unit))
