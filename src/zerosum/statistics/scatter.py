"""The second moment of each unit, bounded in Frobenius norm: the release behind principal components.

The map of one unit, with k = `width` and m rows x_i in R^k after all preprocessing:

    Z = mean over i of x_i x_i'            shape (k, k), positive semidefinite
    contribution = Z / norm(Z)             with `normalise`
    contribution = (Z / c), clipped at norm 1   otherwise

All norms are Frobenius norms. The preprocessing of a row, in this order: fill in missing values, subtract `center`,
divide by `scale`, centre or standardise within each recording of the unit, multiply by `projection` or append the
constant `lift`. Every step uses public constants, earlier releases, or the unit's own rows.

The four statistics of this module release different functions of the same Z: `Scatter` the matrix, `ScatterColumn` its
last column, `ScatterProduct` its product with a public basis, `ScatterNorms` a histogram of norm(Z).

Arithmetic. The norm of Z decides how much a unit is scaled, so that it must not depend on other units or on the order
of summation (`zerosum.compute.backends.exact`). Rows of a unit with many rows are therefore rounded to whole numbers
before Z is computed, which makes the products exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends import fused, native
from zerosum.compute.backends.exact import (
    BITS,
    INSIDE,
    Exact,
    constant_on,
    doubles,
    fold,
    gram,
    products,
    sized,
    squares,
    summed,
    whole,
)
from zerosum.compute.devices import on_host
from zerosum.compute.symmetric import packed
from zerosum.compute.units import Units, pieces
from zerosum.kernel import coordinates
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.constants import check_basis, check_placement, placed
from zerosum.statistics.missing import Filled

PerRecording = Literal["none", "center", "standardise"]

# Bytes of rows that are scaled at a time on the host, so that they stay in a processor's cache. Chosen by hand; no
# benchmark recorded.
CACHED = 1 << 20
# Numbers (rows x columns of all units) that are processed together on a device, beside the block itself: 4 GiB in
# doubles. Chosen by hand; no benchmark recorded.
_BATCH_NUMBERS = 1 << 29


@dataclass(frozen=True, eq=False)
class MatrixNorms:
    """The rows of some units as they enter, with the norm of each unit's Z.

    The arrays must not be overwritten: `rows` may be the data themselves.

    Parameters
    ----------
    rows : array of shape (rows, width)
        The preprocessed rows, divided by `sizes` of their unit and possibly rounded to whole numbers.
    norms : array of shape (units,)
        The Frobenius norm of the mean of x x' over the unit's rows, in the numbers of `rows`.
    sizes : array of shape (units,)
        The factor by which the unit itself is larger than its `rows`.
    counts : array of shape (units,), int or None
        The number of rows of each unit; one int if all units have the same number; None if each unit has one row.
    """

    rows: Array
    norms: Array
    sizes: Array
    counts: NDArray[np.int64] | int | None = None

    def spread(self, weights: Array) -> Array:
        """The weight of a unit over its number of rows, for each of its rows; shape (rows,).

        Parameters
        ----------
        weights : array of shape (units,)
            One weight for each unit.
        """
        if self.counts is None:
            return weights
        xp = array_namespace(weights)
        if isinstance(self.counts, int):
            each = xp.broadcast_to((weights / self.counts)[:, None], (weights.shape[0], self.counts))
            return xp.reshape(each, (-1,))
        # Units of different lengths: one short array for each unit, joined in the order of the units.
        parts = [xp.broadcast_to(weights[u : u + 1] / n, (n,)) for u, n in enumerate(self.counts.tolist())]
        return xp.concat(parts)


class UnitMoment(Filled):
    """Base of statistics of each unit's own matrix Z, the mean of x x' over its rows.

    Missing values are filled in where columns have rules for them. Rows are then centred at `center` and divided by
    `scale` (public constants or earlier releases). They may be centred or standardised within each recording of the
    unit, which uses the unit's own rows only. Last, rows are multiplied by `projection`, if it is given, or extended by
    `lift`. With `lift`, Z holds the unit's mean beside its second moment. A unit whose projected rows are no larger
    than the rounding error of that product counts as zero.

    Rounding. A unit with many rows enters in whole numbers of norm at most 2^26, so that the norm of its Z does not
    depend on how the product is computed. Each unit is rounded relative to its own size, after all preprocessing. A
    single row x needs no product: the norm of x x' is the square of the norm of x, which `fold` adds up. Addition and
    scaling round fewer than 64 times by 2^-53 each, in relative terms, and the weights leave a margin of 128 times
    2^-53 (`INSIDE`). The kernels of `fused` round single rows to whole numbers, too.

    Parameters
    ----------
    columns : int
        The number of columns of the data.
    center : array of shape (columns,), optional
        Subtracted from each row.
    scale : array of shape (columns,), optional
        Positive; each row is divided by it after centring.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    projection : array of shape (columns, k), optional
        Rows are multiplied by it from the right.
    lift : float, optional
        A public constant appended to each row as the last column. Excludes `projection`.
    fill, own_rows : tuple
        The rules for missing values (`zerosum.statistics.missing`).
    """

    # Whether single rows must be rounded to whole numbers, because exact products with them follow.
    whole_numbers: ClassVar[bool] = False
    columns: int = Field(gt=0)
    center: FloatArray | None = None
    scale: FloatArray | None = None
    per_recording: PerRecording = "none"
    projection: FloatArray | None = None
    lift: Positive | None = None

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        if self.projection is not None and self.lift is not None:
            raise ValueError("rows are projected or lifted, not both")
        if self.projection is not None and (
            self.projection.ndim != 2 or self.projection.shape[0] != self.columns or not self.projection.size
        ):
            raise ValueError(f"projection must have {self.columns} rows and a column, got {self.projection.shape}")
        check_placement(self.columns, self.center, self.scale)
        return self

    @property
    def width(self) -> int:
        """k, the order of Z."""
        if self.projection is not None:
            return int(self.projection.shape[1])
        return self.columns + (self.lift is not None)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes: five arrays of doubles."""
        return 8 * 5 * max(self.columns, self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """sqrt(2) for a replaced unit and 1 for one added or removed; each subclass proves it for its own map."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    @cached_property
    def _exact(self) -> Exact | None:
        """The projection in whole numbers, whose products do not round; None without a projection."""
        return None if self.projection is None else Exact.of(self.projection)

    def _measured(self, block: Units) -> Iterator[MatrixNorms]:
        """Units as they enter: the whole block at once, or the units of one shape at a time if the block lies on a
        device.
        """
        if block.offsets is None and self._plain and fused.serves(block.rows):
            # One kernel on the device centres, scales, rounds and measures single rows in one pass over memory.
            placed = [None if each is None else constant_on(each, block.rows) for each in (self.center, self.scale)]
            numbers, norms, worth = fused.entered(block.rows, *placed)
            yield MatrixNorms(numbers, norms, worth)
            return
        xp, rows = array_namespace(block.rows), self._placed(block)
        if block.offsets is None:  # one row has no others to be centred about: nothing of it is left
            # A recording of one row minus its own mean is zero.
            yield self._records(self._lifted(rows if self.per_recording == "none" else xp.zeros_like(rows)))
            return
        if not on_host(rows):
            yield from self._batches(Units(rows, block.offsets, block.runs))
            return
        parts = []
        for recordings in Units(rows, block.offsets, block.runs).recordings():
            own = xp.concat([per_recording_rows(each, self.per_recording, xp) for each, _seconds in recordings])
            # Units on the host are processed one at a time: their lengths differ, and no unit's rounding can depend on
            # another unit.
            parts.append(self._people(self._lifted(own)[None, ...]))
        numbers, norms, sizes = (xp.concat([getattr(each, at) for each in parts]) for at in ("rows", "norms", "sizes"))
        yield MatrixNorms(numbers, norms, sizes, np.diff(block.offsets))

    @property
    def _plain(self) -> bool:
        """Whether rows are only centred and scaled before they are rounded."""
        return self._only_placed and self.lift is None

    @property
    def _only_placed(self) -> bool:
        """Whether rows are only centred, scaled and perhaps lifted."""
        return not self.fill and self.per_recording == "none" and self.projection is None

    def _native(self, block: Units) -> native.Placing | None:
        """The kernels in C, if they can process these units: single rows on the host without fills, recordings or
        projection.
        """
        taken = block.offsets is None and block.device is None and self._only_placed and native.takes(block.rows)
        return self._placing if taken else None

    def exact_bytes(self, units: Units) -> int:
        """Working memory for one unit: 8 bytes if a kernel in C reads the rows in place."""
        return 8 if self._native(units) is not None and native.in_place(units.rows) else super().exact_bytes(units)

    @cached_property
    def _placing(self) -> native.Placing:
        """The parameters of the kernels in C."""
        return native.Placing(self.center, self.scale, self.lift)

    def _placed(self, block: Units) -> Array:
        """Rows as doubles, filled in, centred and scaled, shape (rows, columns); on a device unchanged if no step
        applies.
        """
        if not (self.fill or self.lift) and self.center is None and self.scale is None and fused.serves(block.rows):
            # The kernels of `fused` convert shorter floats themselves; a copy in doubles would double the memory.
            return block.rows
        return placed(self.filled(block), self.center, self.scale)

    def _batches(self, units: Units) -> Iterator[MatrixNorms]:
        """Units of a block on a device, those of one shape together, as many at a time as `_BATCH_NUMBERS` allows."""
        for batch in units.batches():
            xp, rows = array_namespace(units.rows), batch.of(units.rows)
            few = max(1, _BATCH_NUMBERS // (batch.length * max(self.columns, self.width)))
            for some in pieces(len(batch), few):
                # All units of a batch have recordings of the same lengths, so that one call serves all of them.
                own = recordings_of(rows[some, ...], batch.runs, self.per_recording)
                if self.lift is not None:
                    own = xp.concat([own, xp.full_like(own[:, :, :1], self.lift)], axis=2)
                yield self._people(own)

    def _lifted(self, rows: Array) -> Array:
        """Rows with the constant `lift` as a last column, shape (rows, width); unchanged without a lift."""
        if self.lift is None:
            return rows
        xp = array_namespace(rows)
        return xp.concat([rows, xp.full_like(rows[:, :1], self.lift)], axis=1)

    def _records(self, rows: Array) -> MatrixNorms:
        """Units of one row each. The norm of Z = x x' is the square of the norm of x.

        Parameters
        ----------
        rows : array of shape (units, columns)
            The preprocessed rows before projection.
        """
        scaled, sizes, norm = sized(rows)
        if self._exact is not None:
            # `seen` divides rows by their norm before the product. The norm is kept in `sizes`.
            sizes = sizes * norm
            scaled, again, norm = sized(self._exact.valid(self._exact.projections(scaled, norm)))
            sizes = sizes * again
        # No later product needs exact rows here: the norm from `sized` is already a function of the row alone.
        if not (self.whole_numbers or fused.serves(scaled)):
            return MatrixNorms(scaled, norm * norm, sizes)
        # After rounding, the norm is computed again from the rounded row, because the rounded row is what enters.
        numbers = whole(scaled, norm)
        return MatrixNorms(numbers, squares(numbers), sizes * (norm * 2.0**-BITS))

    def _people(self, own: Array) -> MatrixNorms:
        """Units of several rows each, all of the same number of rows; Z is computed for its norm.

        Parameters
        ----------
        own : array of shape (units, rows, columns)
            The preprocessed rows before projection.
        """
        xp, (units, count, _columns) = array_namespace(own), own.shape
        if count == 1:
            return self._records(own[:, 0, ...])
        # All rows of a unit are scaled by one number, so that Z keeps its shape.
        flat, size, norm = sized(xp.reshape(own, (units, -1)))
        if self._exact is not None:
            size = size * norm
            # `seen` takes one norm for each row; every row of a unit gets the norm of the whole unit.
            norms = xp.reshape(xp.broadcast_to(norm[:, None], (units, count)), (-1,))
            projections = self._exact.projections(xp.reshape(flat, (units * count, -1)), norms)
            flat, again, norm = sized(self._exact.valid(xp.reshape(projections, (units, -1))))
            size = size * again
        numbers = xp.reshape(whole(flat, norm), (units, count, -1))
        turned = xp.matrix_transpose(numbers)
        # X'X and X X' have the same Frobenius norm; the smaller one is computed. Entries are whole numbers whose
        # partial sums stay below 2^53, so that the product is exact in any order of summation.
        moment = xp.matmul(turned, numbers) if count > self.width else xp.matmul(numbers, turned)
        # Z is the mean of x x', hence the division by the number of rows.
        norms = xp.sqrt(squares(xp.reshape(moment, (units, -1)))) / count
        return MatrixNorms(xp.reshape(numbers, (units * count, -1)), norms, size * (norm * 2.0**-BITS), count)


def per_recording_rows(rows: Array, per_recording: PerRecording, xp: Any) -> Array:
    """The rows of one recording, each column at mean zero and, with "standardise", at variance one.

    Parameters
    ----------
    rows : array of shape (rows, columns)
        The rows of one recording of one unit, on the host.
    per_recording : {"none", "center", "standardise"}
        The transformation.
    xp : module
        The array namespace of the rows.
    """
    if per_recording != "none":
        rows = rows - xp.mean(rows, axis=0, keepdims=True)
    if per_recording == "standardise":
        spread = xp.std(rows, axis=0, keepdims=True)
        # A constant column stays zero: division by 0 would make the unit invalid.
        rows = rows / xp.where(spread > 0, spread, xp.ones_like(spread))
    return rows


def recordings_of(rows: Array, runs: NDArray[np.int64], per_recording: PerRecording) -> Array:
    """The same as `per_recording_rows` for many units of one shape on a device.

    Means are sums by `fold`, whose order depends on the recording's own length alone.

    Parameters
    ----------
    rows : array of shape (units, rows, columns)
        Units whose recordings have the same lengths.
    runs : array of int
        The first row of each recording, and the end of the last one.
    per_recording : {"none", "center", "standardise"}
        The transformation.
    """
    if per_recording == "none":
        return rows
    bounds = list(pairwise(runs.tolist()))
    if fused.serves(rows):
        return fused.recordings(rows, bounds, per_recording == "standardise")
    xp, rows, parts = array_namespace(rows), doubles(rows), []
    for first, last in bounds:
        part = rows[:, first:last, ...]
        # `fold` overwrites its argument, hence the copy.
        part = part - (fold(xp.asarray(part, copy=True)) / (last - first))[:, None, :]
        if per_recording == "standardise":
            spread = xp.sqrt(fold(part * part) / (last - first))
            # A constant column stays zero.
            part = part / xp.where(spread > 0, spread, xp.ones_like(spread))[:, None, :]
        parts.append(part)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


class Scatter(UnitMoment):
    """The sum over units of Z divided by its Frobenius norm (`normalise`), or by c and then clipped at norm 1.

    The release is in isometric coordinates, shape (k (k + 1)/2,). A program that clips multiplies the release by c
    again.

    Sensitivity. A contribution is positive semidefinite, and its norm is at most 1 for every c. For two contributions
    norm(Z - W)^2 = norm(Z)^2 + norm(W)^2 - 2 tr(Z W) <= 2, because tr(Z W) >= 0 for positive semidefinite matrices. So
    D = sqrt(2) for a replaced unit, attained by orthogonal rank-one Z and W. Adding or removing a unit moves the sum by
    at most 1.

    Rounding. The planned slack for summation (`grid.summation_slack`) assumes terms whose norms add up to at most 1 for
    each unit. The terms here are products of a unit's rows, whose norms add up to tr(Z) <= sqrt(width). The rounding
    error of the sum grows by the same factor. Hence sqrt(width) - 1 times the planned slack is added to the bound.

    Parameters
    ----------
    clip : float
        c, the norm of Z above which a unit is clipped; used only if `normalise` is false.
    normalise : bool
        Whether every Z is divided by its own norm.
    columns, center, scale, per_recording, projection, lift, fill, own_rows
        As for `UnitMoment`.
    """

    name: ClassVar[str] = "scatter"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive = 1.0
    normalise: bool = True

    @property
    def size(self) -> int:
        """The number of distinct entries of a symmetric k x k matrix."""
        return coordinates.size(self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring, with the slack for rounding."""
        return super().sensitivity(adjacency) + (math.sqrt(self.width) - 1) * summation_slack()

    def sum_block(self, block: Units) -> Array:
        """The packed sum of the bounded matrices of a block."""
        return packed(summed(self._moments(block)))

    def _moments(self, block: Units) -> Iterator[Array]:
        """Partial sums of weight x x', each of shape (width, width).

        Rows are multiplied by the roots of their weights: the product of an array with its own transpose costs half as
        much as a general product.
        """
        if block.offsets is None and on_host(block.rows):
            yield gram(self._weighed(block))
            return
        for rows, weights, _measured in self._bounded(block):
            yield gram(rows * array_namespace(rows).sqrt(weights)[:, None])

    def _weighed(self, block: Units, times: float = 1.0) -> Floats:
        """Single rows scaled to norm 1 or less, times a constant; shape (units, width).

        Parameters
        ----------
        block : Units
            Units of one row each, on the host.
        times : float
            The constant.
        """
        weighed = np.empty((len(block), self.width))
        # A few rows at a time stay in a processor's cache between the steps.
        for some in pieces(len(block), max(1, CACHED // (8 * self.width))):
            for rows, weights, _measured in self._bounded(block.between(some.start, some.stop)):
                np.multiply(rows, (np.sqrt(weights) * times)[:, None], out=weighed[some])
        return weighed

    @cached_property
    def _placing(self) -> native.Placing:
        """The parameters of the kernels in C, with the clip."""
        return native.Placing(self.center, self.scale, self.lift, None if self.normalise else self.clip)

    def _bounded(self, block: Units) -> Iterator[tuple[Array, Array, MatrixNorms]]:
        """The rows as they enter and the weight of each, so that a unit contributes the sum of weight x x' over its
        rows.
        """
        for measured in self._measured(block):
            weights = self._weights(measured.norms, measured.sizes, array_namespace(measured.rows))
            yield measured.rows, measured.spread(weights), measured

    def _weights(self, norms: Array, sizes: Array, xp: Any) -> Array:
        """The factor that brings each Z to norm 1, or divides it by c and clips it at norm 1; 0 for Z = 0.

        Parameters
        ----------
        norms, sizes : array of shape (units,)
            As in `MatrixNorms`.
        xp : module
            The array namespace of both.
        """
        some = norms > 0
        # `INSIDE` makes the divisor slightly larger than the true norm, so that the contribution has norm at most 1
        # after rounding.
        weights = 1 / (xp.where(some, norms, xp.ones_like(norms)) * INSIDE)
        if not self.normalise:
            # Z was computed from rows divided by `sizes`, so that the true Z is sizes^2 times as large. Division by c
            # and the factor sizes^2 are combined before the square, which avoids overflow of sizes^2 alone.
            back = (sizes / math.sqrt(self.clip)) ** 2
            # The smaller weight wins: the clip at norm 1 if Z / c is longer than 1, else the division by c.
            weights = xp.where(weights < back, weights, back)
        return xp.where(some, weights, xp.zeros_like(norms))


class ScatterColumn(Scatter):
    """The last column of the sum of `Scatter`. With lifted rows it holds the units' mean and their total weight.

    The map of one unit is Z q, q the last unit vector of R^k; shape (k,).

    Sensitivity. Z is positive semidefinite of Frobenius norm at most 1, so its eigenvalues lie in [0, 1]. Hence norm(Z
    q)^2 = q' Z^2 q <= q' Z q. This is equivalent to norm(Z q - q/2)^2 <= 1/4. All Z q therefore lie in one ball of
    diameter 1, and D = 1 for a replaced unit as for one that is added or removed, plus the planned slack as for
    `Scatter`.
    """

    name: ClassVar[str] = "scatter_column"

    @property
    def size(self) -> int:
        """k, the length of a column."""
        return self.width

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound for an added or removed unit, for both adjacencies."""
        return super().sensitivity(Adjacency.ADD_REMOVE)

    def sum_block(self, block: Units) -> Array:
        """The sum of Z q over a block, shape (width,)."""
        placing = self._native(block)
        return summed(self._moments(block)) if placing is None else placing.column(block.rows)

    def _moments(self, block: Units) -> Iterator[Array]:
        """Partial sums of weight x (q.x), each of shape (width,)."""
        host = block.offsets is None and on_host(block.rows)
        for some in pieces(len(block), max(1, CACHED // (8 * self.width)) if host else len(block)):
            for rows, weights, _measured in self._bounded(block.between(some.start, some.stop)):
                # q.x is the last entry of the row, so that no matrix is computed.
                yield products(rows, (weights * rows[:, -1])[:, None])[:, 0]


class ScatterProduct(Scatter):
    """The sum over units of Z Q for a public Q with orthonormal columns: width x k numbers, never a square matrix.

    Sensitivity. norm(Z Q - W Q) <= norm(Z - W) norm_2(Q). The spectral norm norm_2(Q) is at most 1 + 1e-9, which is
    checked. Q is rounded to 26 bits so that products with it are exact. The rounding moves Q by at most sqrt(width k)
    2^-27 (1 + 1e-9) in Frobenius norm. So D is that of `Scatter` times 1 + 1e-9 + sqrt(width k) 2^-26.

    For a single column q of norm 1 the bound is smaller. Z has eigenvalues in [0, 1], so norm(Z q)^2 = q' Z^2 q <= q' Z
    q, which is norm(Z q - q/2)^2 <= 1/4. All Z q lie in one ball of diameter 1, and D = 1 for a replaced unit, too.

    Parameters
    ----------
    basis : array of shape (width, k)
        Q, a public matrix with orthonormal columns.
    clip, normalise, columns, center, scale, per_recording, projection, lift, fill, own_rows
        As for `Scatter`.
    """

    name: ClassVar[str] = "scatter_product"
    whole_numbers: ClassVar[bool] = True
    basis: FloatArray

    @model_validator(mode="after")
    def _orthonormal(self) -> Self:
        check_basis(self.basis, self.width)
        return self

    @property
    def size(self) -> int:
        """The number of entries of Z Q."""
        return int(self.basis.size)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        apart = super().sensitivity(adjacency)
        if self.basis.shape[1] == 1:
            apart = min(apart, super().sensitivity(Adjacency.ADD_REMOVE))
        return apart * (1 + 1e-9 + math.sqrt(self.basis.size) * 2.0**-BITS)

    @cached_property
    def _exact_basis(self) -> Exact:
        """Q in whole numbers with one unit for each column."""
        return Exact.of(self.basis)

    def sum_block(self, block: Units) -> Array:
        """The sum of Z Q over a block, row by row, shape (width * k,)."""
        total = summed(self._moments(block))
        return array_namespace(total).reshape(total, (-1,))

    def _moments(self, block: Units) -> Iterator[Array]:
        """Partial sums of weight x (x' Q), each of shape (width, k)."""
        basis = self._exact_basis
        for rows, weights, _measured in self._bounded(block):
            # x' Q is computed first: it is exact and has k entries, where x x' would have width entries for each
            # column.
            yield products(rows, basis.product(rows) * constant_on(basis.unit, rows)[None, :] * weights[:, None])


class ScatterNorms(UnitMoment):
    """The number of units whose Z has a Frobenius norm in each of `bins` bins, evenly spaced in its logarithm.

    Norms below `lowest` and above `highest` count in the first and last bin. A program chooses a clip from this
    release.

    Sensitivity. A unit counts in one bin. Replacing a unit moves two counts by 1, so D = sqrt(2). Adding or removing a
    unit moves one count by 1.

    Parameters
    ----------
    lowest, highest : float
        The ends of the histogram, in the units of norm(Z).
    bins : int
        The number of bins.
    columns, center, scale, per_recording, projection, lift, fill, own_rows
        As for `UnitMoment`.
    """

    name: ClassVar[str] = "scatter_norms"
    adds_in_pieces: ClassVar[bool] = True
    lowest: Positive
    highest: Positive
    bins: int = Field(gt=1, le=10_000)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest must be below highest, got {self.lowest:g} and {self.highest:g}")
        return self

    @property
    def size(self) -> int:
        """The number of bins."""
        return self.bins

    @property
    def edges(self) -> Floats:
        """The bin edges, shape (bins + 1,)."""
        return np.geomspace(self.lowest, self.highest, self.bins + 1)

    def adds_exactly(self, units: Units) -> bool:
        """Whether a kernel in C counts these units. Counts are whole numbers in any case, but only a kernel processes
        long blocks without more memory.
        """
        return self._native(units) is not None

    def sum_block(self, block: Units) -> Array:
        """The counts of a block, shape (bins,)."""
        placing = self._native(block)
        if placing is not None:
            # The kernel returns the norm of each row x, which is the root of the norm of Z = x x'.
            return self._counted(placing.norms(block.rows))
        total: Array = 0.0
        for measured in self._measured(block):
            xp = array_namespace(measured.norms)
            # Bins are found from the root of norm(Z) and not from its logarithm: a square root is rounded correctly on
            # every machine, and a logarithm need not be.
            roots = xp.sqrt(measured.norms) * measured.sizes
            if on_host(roots):
                total = total + self._counted(roots)
                continue
            # The bin is the number of inner edges at or below the value. Comparisons and a sum of zeros and ones are
            # exact.
            above = roots[:, None] >= constant_on(self._roots, roots)[None, :]
            bins = xp.sum(xp.astype(above, xp.float64), axis=1)
            hits = bins[:, None] == xp.arange(self.bins, dtype=xp.float64, device=device_of(bins))[None, :]
            total = total + xp.sum(xp.astype(hits, xp.float64), axis=0)  # whole numbers: exact
        return total

    def _counted(self, roots: Floats) -> Floats:
        """Counts by bin on the host.

        Parameters
        ----------
        roots : array of shape (units,)
            The root of norm(Z) of each unit.
        """
        return np.bincount(np.searchsorted(self._roots, roots, side="right"), minlength=self.bins).astype(np.float64)

    @cached_property
    def _roots(self) -> Floats:
        """The roots of the inner edges, shape (bins - 1,)."""
        return np.sqrt(self.edges[1:-1])
