"""Arithmetic from a unit's rows to a statistic: the same bits for a unit, independent of the other units.

Up to the last decision about a unit (a clip, a bin, the nearest centre, a threshold, a norm to divide by), every number
computed for it must depend on that unit and on public values alone. A matrix product over many rows does not satisfy
this: the rounding of a row depends on the number of rows, the kernel and the threads. So decisions rest on three kinds
of operation only (docs/guarantee.md, "Units do not affect each other's contributions"):

1. Elementwise +, -, *, /, sqrt, rounding and comparisons, which IEEE 754 rounds correctly one number at a time.
2. `fold`: a sum along a unit's own axis, made of elementwise additions in an order that its length fixes.
3. `Exact.product`: a product with a public matrix that does not round at all. Both factors are whole numbers, and by
the Cauchy-Schwarz inequality every partial sum stays below 2^53, so that any order of summation gives the same number.

Shorter floats and integers are converted to double first.

On a GPU the same holds, for the same reasons. A device computes elementwise operations one number at a time as well,
and exact products in any order. The order of its own reductions depends on the shape of their input, so that they are
not used before the last decision. A kernel of `fused` does in one pass over memory the steps for which PyTorch needs
several. One program of a kernel reads the rows of one unit, or a piece of them that its length alone fixes. Only the
products of a PyTorch module round before a decision; `module_gradients` describes the safeguard. All numbers are in
double precision except where a statistic documents single precision. A device is tested on public numbers before any
other data (`devices.check_products`, `fused.serves`).
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
from zerosum.compute.backends import fused
from zerosum.compute.blocks import compensated
from zerosum.compute.devices import array_on, max_terms, on_host
from zerosum.compute.devices import constant_on as constant_on
from zerosum.compute.threads import one_thread as one_thread
from zerosum.compute.units import Units, pieces
from zerosum.compute.units import fold as fold
from zerosum.errors import BadParameter
from zerosum.kernel.grid import BLOCK_ROWS, TREE

# Bits of a whole number for a norm of 1. A product of two such numbers has 52 bits, and the rounding of its factors
# adds less than 1 bit: below the 53 bits of a double.
BITS = 26
# Rows of many units that are processed at once on a device. Chosen by hand; no benchmark recorded.
_TOGETHER = 1 << 14
# Numbers of partial sums that are held at once on a device (512 MiB in doubles) and on the host (8 MiB). Chosen by
# hand; no benchmark recorded.
_TOGETHER_NUMBERS = 1 << 26
_HOST_NUMBERS = 1 << 20
# Additions reserved for the sum of partial sums by `fold`: its depth is the logarithm of their number plus 8.
_DEPTH = 64
# Columns from which half a product on a device is worth several calls. Chosen by hand; no benchmark recorded.
_WORTH_CUTTING = 384
# Computed norms have a relative error below 2^-46 (128 times 2^-53). Dividing by a norm times this factor keeps the
# result inside its bound.
INSIDE = 1 + 2.0**-46


def doubles(rows: Array) -> Array:
    """The rows as doubles. Sums of shorter floats have errors that no bound covers."""
    xp = array_namespace(rows)
    return xp.astype(rows, xp.float64, copy=False)


def averages(units: Units, rows: Array, made: Callable[[Array], Array], at_once: int) -> Array:
    """One row per unit: the mean over its rows of `made` of them.

    Parts are counted from a unit's own first row and added up by `fold`. So the rounding of a mean depends on that unit
    alone, and a unit with many rows needs no more memory than others.

    Parameters
    ----------
    units : Units
        The units.
    rows : array of shape (rows, columns)
        Their rows.
    made : callable
        Maps an array of rows to an array with one result for each row; row by row.
    at_once : int
        The number of rows that `made` gets at a time.

    Examples
    --------
    >>> averages(Units(np.arange(6.0)[:, None], np.array([0, 1, 6])), np.arange(6.0)[:, None], np.square, 2).tolist()
    [[0.0], [11.0]]
    """
    # A unit with one row is its own mean; no addition could round.
    if units.offsets is None:
        return made(rows)
    if not on_host(rows):
        return _averages(units, rows, made, at_once)
    # A short block is mapped in one call. `made` is row by row, so that the results are the same bits.
    whole = made(rows) if len(rows) <= at_once else None
    means = []
    for first, last in itertools.pairwise(units.offsets.tolist()):
        total = 0.0
        for start in range(first, last, at_once):
            part = slice(start, min(start + at_once, last))
            # `fold` sums axis 1 and overwrites its argument; the parts of `whole` are used once.
            total = total + fold((made(rows[part]) if whole is None else whole[part])[None, ...])[0]
        means.append(total / (last - first))
    return np.stack(means)


def _averages(units: Units, rows: Array, made: Callable[[Array], Array], at_once: int) -> Array:
    """`averages` on a device, for many units of one length together; a unit's parts are cut by its own length."""
    xp, parts, order = array_namespace(rows), [], []
    # Units of one length share the same sequence of operations, so that a unit rounds as it would alone.
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
    # Batches are ordered by length; this restores the order of the units.
    return xp.take(xp.concat(parts), array_on(np.argsort(np.concatenate(order)), rows), axis=0)


def squares(rows: Array) -> Array:
    """The sum of the squares of each row, shape (rows,), in an order that the row's length fixes."""
    return fused.squares(rows) if fused.serves(rows) else fold(rows * rows)


# ---- sums over units, after the last decision about any of them ------------------------------------------------------


def added(values: Array) -> Array:
    """The sum over rows.

    Where a block has more rows than may be added in any order, on a device or for more than `grid.PLANNED_UNITS` units,
    the sum is taken over as many at a time, and then along a tree (`_tree`). So the planned bound of the rounding holds
    (`grid.rows_allowed`).
    """
    xp, most = array_namespace(values), _most(values)
    if most is None:
        return xp.sum(values, axis=0)
    head, rest = values.shape[0] - values.shape[0] % most, values.shape[1:]
    # Groups of `most` rows, then the remaining rows as one more group.
    parts = xp.sum(xp.reshape(values[:head, ...], (-1, most, *rest)), axis=1)
    if head < values.shape[0]:
        parts = xp.concat([parts, xp.sum(values[head:, ...], axis=0)[None, ...]], axis=0)
    return _tree(parts)


def products(left: Array, right: Array) -> Array:
    """left' right, a sum over rows of outer products, with the same bound of the rounding as `added`.

    Parameters
    ----------
    left : array of shape (rows, m)
    right : array of shape (rows, n)
        Both on the same device.
    """
    xp, most = array_namespace(left), _most(left)
    if most is None:
        return xp.matmul(xp.matrix_transpose(left), right)
    count = left.shape[0] // most
    if (at_once := _rows_at_once(left, count, left.shape[1] * right.shape[1], most)) is not None:
        # The partial products would need too much memory at once: some groups at a time, with compensation.
        return summed(products(left[some, ...], right[some, ...]) for some in pieces(left.shape[0], at_once))
    head = count * most
    tall, wide = (xp.reshape(each[:head, ...], (count, most, -1)) for each in (left, right))
    parts = xp.matmul(xp.matrix_transpose(tall), wide)
    if head < left.shape[0]:
        last = xp.matmul(xp.matrix_transpose(left[head:, ...]), right[head:, ...])
        parts = xp.concat([parts, last[None, ...]], axis=0)
    return _tree(parts)


def gram(rows: Array) -> Array:
    """rows' rows, shape (columns, columns), with the same bound of the rounding as `added`.

    A processor's library computes half of the product and mirrors it. On a device a wide product is cut into blocks,
    and those below the diagonal are mirrored.
    """
    xp, width = array_namespace(rows), rows.shape[1]
    if on_host(rows) or width < _WORTH_CUTTING:
        return products(rows, rows)
    if (most := _most(rows)) is not None:
        return summed(gram(rows[some, ...]) for some in pieces(rows.shape[0], most))
    # Recursion: two diagonal blocks and one block off the diagonal; the fourth is its transpose.
    half = width // 2
    left, right = rows[:, :half], rows[:, half:]
    across = xp.matmul(xp.matrix_transpose(left), right)
    upper = xp.concat([gram(left), across], axis=1)
    return xp.concat([upper, xp.concat([xp.matrix_transpose(across), gram(right)], axis=1)], axis=0)


def counts(places: Array, weights: Array, size: int) -> Array:
    """The sum of weights at each of `size` places, with the same bound of the rounding as `added`.

    Parameters
    ----------
    places : int array of shape (rows,)
        The place of each row, from 0 to size - 1.
    weights : array of shape (rows,)
        The weight of each row.
    size : int
        The number of places.
    """
    xp, most = array_namespace(places), _most(places)
    # Whole weights add up exactly, in any order.
    if most is not None and not (on_host(places) and np.array_equal(weights, np.rint(weights))):
        count = -(-places.shape[0] // most)
        if (at_once := _rows_at_once(places, count, size, most)) is not None:
            parts = pieces(places.shape[0], at_once)
            return summed(counts(places[some], weights[some], size) for some in parts)
        # Every group of `most` rows has places of its own; then the groups are added.
        which = xp.arange(places.shape[0], device=device_of(places)) // most
        return _tree(xp.reshape(_counts(places + which * size, weights, count * size), (count, size)))
    return _counts(places, weights, size)


def _counts(places: Array, weights: Array, size: int) -> Array:
    """`counts` of one group."""
    xp = array_namespace(places)
    if hasattr(xp, "bincount"):
        return xp.bincount(places, weights=weights, minlength=size)
    # A namespace without bincount: one comparison for each place.
    hits = places[:, None] == xp.arange(size, device=device_of(places))[None, :]
    return xp.sum(xp.where(hits, weights[:, None], xp.zeros_like(weights)[:, None]), axis=0)


def _most(rows: Array) -> int | None:
    """The number of rows that are added at a time, if the array has more; None otherwise, and for a block of the host
    of as many rows as any sum may have.
    """
    allowed = max_terms() or BLOCK_ROWS
    if allowed < BLOCK_ROWS:  # a sum over more than `grid.PLANNED_UNITS` units
        most = max(1, allowed - TREE)
    elif on_host(rows):
        return None
    else:
        most = allowed - _DEPTH
    return most if rows.shape[0] > most else None


def _rows_at_once(rows: Array, groups: int, numbers: int, most: int) -> int | None:
    """The number of rows whose groups are added up at a time; None for all.

    Parameters
    ----------
    rows : array
        Rows of a block.
    groups, numbers : int
        Number of groups, and of numbers in the sum of each.
    most : int
        Rows of a group.
    """
    limit = _HOST_NUMBERS if on_host(rows) else _TOGETHER_NUMBERS
    if groups * numbers <= limit:
        return None
    return most if (max_terms() or BLOCK_ROWS) >= BLOCK_ROWS else most * max(1, limit // numbers)


def _tree(parts: Array) -> Array:
    """The sum of partial sums of groups of `_most` rows, along axis 0. It may overwrite its argument."""
    return folded(parts) if (max_terms() or BLOCK_ROWS) < BLOCK_ROWS else fold(parts[None, ...])[0, ...]


def folded(parts: Array) -> Array:
    """The sum along axis 0 by a tree of additions, corrected by their errors: as accurate as `grid.TREE` additions.

    The error of each addition is computed exactly (TwoSum of Knuth, The Art of Computer Programming 2, 4.2.2, theorem
    B), from left to right as written.

    >>> folded(np.array([[1.0], *[[2.0**-54]] * 1024])).tolist() == [1 + 2.0**-44]
    True
    """
    xp, lost = array_namespace(parts), 0.0
    while parts.shape[0] > 1:
        half = parts.shape[0] // 2
        left, right, rest = parts[:half, ...], parts[half : 2 * half, ...], parts[2 * half :, ...]
        total = left + right
        own = total - left
        lost = lost + xp.sum((left - (total - own)) + (right - own), axis=0)
        parts = xp.concat([total, rest], axis=0)
    return parts[0, ...] + lost


def summed(parts: Iterable[Array]) -> Array:
    """The sum of partial sums with compensation (Kahan): for any number of parts it rounds as a few additions do.

    >>> summed([np.array([1.0])] + [np.array([2.0**-53])] * 2**12).tolist() == [1 + 2.0**-41]
    True
    """
    total = lost = None
    for part in parts:
        total, lost = (part, 0.0) if total is None else compensated(total, lost, part)
    return total


def sized(rows: Array) -> tuple[Array, Array, Array]:
    """Rows scaled to a safe size, the divisor of each, and the norm of each scaled row.

    The norm is 0 or between 1e-100 and 1e100. Most rows are divided by 1. A row whose squares would overflow or
    underflow is divided by its largest entry. A row that is not finite becomes zero. Each row decides this alone: the
    others keep their bits.

    Parameters
    ----------
    rows : array of shape (rows, columns)
        Doubles.

    Returns
    -------
    scaled : array of shape (rows, columns)
    size : array of shape (rows,)
        The divisors.
    norm : array of shape (rows,)
        The norms of `scaled`.
    """
    xp = array_namespace(rows)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        # The squares of a norm in 1e-100 to 1e100 neither overflow nor lose bits to subnormal numbers.
        size = squares(rows)
        plain = (size > 1e-200) & (size < 1e200)
        ones = xp.ones_like(size)
        # The usual case: the data themselves are returned, without a copy.
        if bool(xp.all(plain)):
            return rows, ones, xp.sqrt(size)
        largest = xp.max(xp.abs(rows), axis=1)
        sound = xp.isfinite(largest)
        rows = xp.where(sound[:, None], rows, xp.zeros_like(rows))
        # A row of zeros is divided by 1: 0/0 would be NaN.
        largest = xp.where(plain | ~sound | (largest == 0), ones, largest)
        # Division by 1 leaves the bits of the usual rows unchanged.
        scaled = rows / largest[:, None]
        size = xp.where(plain, size, squares(scaled))
        return scaled, largest, xp.sqrt(size)


def clip_rows(rows: Array, radius: float) -> Array:
    """Scale every row into the L2 ball; a row that is not finite becomes zero.

    For every radius that a statistic accepts (1e-100 to 1e100) the ratio of radius and norm is far from subnormal,
    since rows of extreme norm were divided by their largest entry. Division by slightly more than the norm keeps the
    result inside the ball.

    Parameters
    ----------
    rows : array of shape (rows, columns)
        Any floats.
    radius : float
        The radius of the ball.

    Examples
    --------
    >>> [f"{x:.6g}" for x in clip_rows(np.array([[3e300, 4e300]]), 1e-20)[0]]
    ['6e-21', '8e-21']
    """
    return clip_factors(rows, radius)[0]


def clip_factors(rows: Array, radius: float) -> tuple[Array, Array]:
    """Every row scaled into the L2 ball as by `clip_rows`, and the factor of each row, shape (rows,).

    >>> clip_factors(np.array([[3.0, 4.0], [0.6, 0.8]]), 1.0)[1].round(6).tolist()
    [0.2, 1.0]
    """
    xp = array_namespace(rows)
    scaled, size, norm = sized(doubles(rows))
    with np.errstate(over="ignore", under="ignore"):
        norm = norm * INSIDE
        shrunk = radius / xp.where(norm > 0, norm, xp.ones_like(norm))
        # The comparison is made with radius / size and not with norm * size, which could overflow.
        inside = norm <= radius / size
        clipped = scaled * xp.where(inside, size, shrunk)[:, None]
        return clipped, xp.where(inside, xp.ones_like(norm), shrunk / size)


def exponential(values: Array) -> Array:
    """exp of numbers in [-60, 60], to 13 digits, from elementwise operations alone.

    A library's exponential may round a number differently depending on its position among others. This one takes the
    series of values/4096 to the eighth power and squares it twelve times (4096 = 2^12).

    >>> float(exponential(np.array([1.0]))[0]) - math.e < 1e-12
    True
    """
    part = values * 2.0**-12
    # Horner's rule; |values/4096| < 0.015, so that the ninth term is below 1e-22.
    series = part * 0.0 + 1.0
    for k in range(8, 0, -1):
        series = 1.0 + part * series / float(k)
    for _ in range(12):
        series = series * series
    return series


def whole(rows: Array, norm: Array, out: Array | None = None) -> Array:
    """Rows of this norm as whole numbers, of norm at most 2^26 + sqrt(columns)/2; zero stays zero.

    Parameters
    ----------
    rows : array of shape (rows, columns)
        Rows from `sized`.
    norm : array of shape (rows,)
        Their norms.
    out : array of shape (rows, columns), optional
        Where to store the result, on the host.
    """
    xp = array_namespace(rows)
    some = norm > 0
    # Norm 1 becomes 2^26; rounding then moves each entry by at most 1/2, hence the norm by sqrt(columns)/2.
    factor = 2.0**BITS / (xp.where(some, norm, xp.ones_like(norm)) * INSIDE)
    factor = xp.where(some, factor, xp.zeros_like(factor))
    if fused.serves(rows):
        return fused.whole(rows, factor)
    return rounded(rows * factor[:, None] if out is None else np.multiply(rows, factor[:, None], out=out))


def rounded(values: Array) -> Array:
    """Numbers below 2^51 rounded to whole ones, halves to even, in place."""
    if on_host(values):
        return np.rint(values, out=values)
    # Adding 1.5 * 2^52 leaves no bits for fractions: the addition itself rounds, halves to even, on every device.
    values += 1.5 * 2.0**52
    values -= 1.5 * 2.0**52
    return values


@dataclass(frozen=True, eq=False)
class Exact:
    """A public matrix whose products do not round: whole numbers, and one unit for each column.

    Column j is `numbers[:, j] * unit[j]`, rounded to 26 bits of its norm. This changes each column of the public matrix
    by at most sqrt(rows) 2^-27 of its norm, equally at every site.

    Parameters
    ----------
    numbers : array of shape (columns of the data, k)
        Whole numbers, each column of norm about 2^26.
    unit : array of shape (k,)
        The value of 1 in each column.
    """

    numbers: Floats
    unit: Floats

    def __post_init__(self) -> None:
        most = 2.0**BITS * INSIDE + math.sqrt(len(self.numbers)) / 2
        # The bound of `product` assumes this norm. The comparison fails for NaN.
        if not np.all(np.linalg.norm(self.numbers, axis=0) <= most):
            raise BadParameter("a public matrix cannot be brought to whole numbers")  # products would round

    @classmethod
    def of(cls, matrix: Floats) -> Exact:
        """The exact form of a public matrix of shape (columns of the data, k)."""
        # Columns as rows: every column gets its own unit, so that a short one keeps 26 bits, too.
        scaled, size, norm = sized(np.ascontiguousarray(np.asarray(matrix, dtype=np.float64).T))
        return cls(np.ascontiguousarray(whole(scaled, norm).T), size * norm * INSIDE * 2.0**-BITS)

    def product(self, numbers: Array) -> Array:
        """Whole numbers (`whole`) times those of the matrix: exact, in any order of summation; shape (rows, k).

        Every partial sum is at most (2^26 + sqrt(N)/2)^2 < 2^53 for up to 10^15 numbers N of a unit.
        """
        return array_namespace(numbers).matmul(numbers, constant_on(self.numbers, numbers))

    def projections(self, rows: Array, norm: Array) -> Array:
        """Rows of this norm, divided by it, times the matrix, to 26 bits of the norm of its columns; shape (rows, k).

        Parameters
        ----------
        rows : array of shape (rows, columns)
            Rows from `sized`.
        norm : array of shape (rows,)
            Their norms; the caller multiplies by them again where the scale matters.
        """
        numbers = whole(rows, norm)
        projections = self.product(numbers)
        projections *= constant_on(self._worth, numbers)[None, :]
        return projections

    @cached_property
    def _worth(self) -> Floats:
        """The value of 1 in a product of whole numbers, by column."""
        return np.asarray(self.unit * (INSIDE * 2.0**-BITS))

    def valid(self, products: Array) -> Array:
        """Products of units (one a row), with zeros for units whose products are no larger than the rounding of
        `whole`.
        """
        xp = array_namespace(products)
        large = xp.max(xp.abs(products), axis=1) > self.rounding
        return xp.where(large[:, None], products, xp.zeros_like(products))

    def above_rounding(self, sizes: Floats) -> Array:
        """Whether the products of each unit exceed the rounding of `whole`; shape (units,).

        Parameters
        ----------
        sizes : array of shape (units, k)
            Root mean squares of the unit's products with whole numbers, by column.
        """
        return np.any(sizes * self._worth > self.rounding, axis=1)

    @cached_property
    def worth(self) -> Floats:
        """The value of 1 in a product of whole numbers, by column, and last the `rounding`; shape (k + 1,)."""
        return np.append(self._worth, self.rounding)

    @cached_property
    def rounding(self) -> float:
        """The largest effect of the rounding of `whole` on a product, by the Cauchy-Schwarz inequality.

        Half of it covers the rounding of the row, and half that of the matrix.
        """
        return math.sqrt(len(self.numbers)) * float(np.max(self.unit))
