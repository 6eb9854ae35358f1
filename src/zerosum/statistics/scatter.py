"""Each unit's own second moment, bounded in Frobenius norm: what principal components are made of.

Tested in tests/statistics/test_sensitivity.py.
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
from zerosum.kernel import coordinates
from zerosum.kernel.devices import on_host
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import SMALLEST, Adjacency, FloatArray, Positive
from zerosum.kernel.units import Units, pieces
from zerosum.statistics import fused, native
from zerosum.statistics.missing import Filled
from zerosum.statistics.rows import (
    BITS,
    INSIDE,
    Exact,
    doubles,
    fold,
    gram,
    like,
    products,
    sized,
    squares,
    summed,
    whole,
)

PerRecording = Literal["none", "center", "standardise"]

CACHED = 1 << 20  # bytes of rows that are weighed at a time
_BATCH_NUMBERS = 1 << 29  # of units that are taken together on a device, beside the block they are in


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows as they enter (not to be overwritten: they may be the data), and for each unit the norm of its Z in these
    numbers, and how much larger the unit itself is; `counts` is how many rows each unit has (None: one)."""

    rows: Array
    norms: Array
    sizes: Array
    counts: NDArray[np.int64] | int | None = None

    def spread(self, weights: Array) -> Array:
        """The weight of a unit for each of its rows, over their number."""
        if self.counts is None:
            return weights
        xp = array_namespace(weights)
        if isinstance(self.counts, int):
            each = xp.broadcast_to((weights / self.counts)[:, None], (weights.shape[0], self.counts))
            return xp.reshape(each, (-1,))
        parts = [xp.broadcast_to(weights[u : u + 1] / n, (n,)) for u, n in enumerate(self.counts.tolist())]
        return xp.concat(parts)


class UnitMoment(Filled):
    """What is made of each unit's own matrix Z, the mean of x x' over its rows.

    Where columns have rules for missing values, these are filled in. Then rows are centred at `center` and divided by
    `scale` (public constants or earlier releases), may be centred or standardised within each recording of the unit,
    which uses the unit's own rows only, and are last multiplied by `projection` (columns x k, public or from earlier
    releases), where that is given. A unit whose rows are lost in the rounding of that product counts as zero. Or a
    public constant `lift` is added to each row as a last column: then Z holds the unit's mean beside its second moment.

    Of a unit with many rows whole numbers enter, at most 2^26 in norm, so that the norm of its Z does not depend on how
    its product is computed; each unit is rounded to that at its own size, after all that is done to its rows. A single
    row x needs no product: the norm of x x' is the square of its own, which `fold` adds up. Adding and weighing round
    fewer than 64 times by 2^-53 each, in relative terms, and weights leave 128 times that (`INSIDE`). Kernels of
    `fused` round single rows, too.
    """

    whole_numbers: ClassVar[bool] = False  # whether single rows must be rounded, for exact products with them
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
        for what, value in (("center", self.center), ("scale", self.scale)):
            if value is not None and value.shape != (self.columns,):
                raise ValueError(f"{what} must hold one number for each of the {self.columns} columns")
        if self.scale is not None and not np.all(self.scale >= SMALLEST):
            raise ValueError("every scale must be positive")
        return self

    @property
    def width(self) -> int:
        """The order of Z."""
        if self.projection is not None:
            return int(self.projection.shape[1])
        return self.columns + (self.lift is not None)

    @property
    def row_bytes(self) -> int:
        return 8 * 5 * max(self.columns, self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else 1.0

    @cached_property
    def _exact(self) -> Exact | None:
        return None if self.projection is None else Exact.of(self.projection)

    def _measured(self, block: Units) -> Iterator[Measured]:
        """Units as they enter: all of a block, or those of one shape at a time where it lies on a device."""
        if block.offsets is None and self._plain and fused.serves(block.rows):
            placed = [None if each is None else like(each, block.rows) for each in (self.center, self.scale)]
            numbers, norms, worth = fused.entered(block.rows, *placed)
            yield Measured(numbers, norms, worth)
            return
        xp, rows = array_namespace(block.rows), self._placed(block)
        if block.offsets is None:  # one row has no others to be centred about: nothing of it is left
            yield self._records(self._lifted(rows if self.per_recording == "none" else xp.zeros_like(rows)))
            return
        if not on_host(rows):
            yield from self._batches(Units(rows, block.offsets, block.runs))
            return
        parts = []
        for recordings in Units(rows, block.offsets, block.runs).recordings():
            own = xp.concat([per_recording_rows(each, self.per_recording, xp) for each, _seconds in recordings])
            parts.append(self._people(self._lifted(own)[None, ...]))
        numbers, norms, sizes = (xp.concat([getattr(each, at) for each in parts]) for at in ("rows", "norms", "sizes"))
        yield Measured(numbers, norms, sizes, np.diff(block.offsets))

    @property
    def _plain(self) -> bool:
        """Whether rows are only centred and scaled before they are rounded."""
        return self._only_placed and self.lift is None

    @property
    def _only_placed(self) -> bool:
        return not self.fill and self.per_recording == "none" and self.projection is None

    def _native(self, block: Units) -> native.Placing | None:
        """What kernels in C do, where they take these units."""
        taken = block.offsets is None and block.device is None and self._only_placed and native.takes(block.rows)
        return self._placing if taken else None

    def exact_bytes(self, units: Units) -> int:
        return 8 if self._native(units) is not None and native.in_place(units.rows) else super().exact_bytes(units)

    @cached_property
    def _placing(self) -> native.Placing:
        return native.Placing(self.center, self.scale, self.lift)

    def _placed(self, block: Units) -> Array:
        """Rows as doubles, filled in, centred and scaled; on a device as they are kept, if nothing is to be done."""
        if not (self.fill or self.lift) and self.center is None and self.scale is None and fused.serves(block.rows):
            return block.rows
        rows = self.filled(block)
        if self.center is not None:
            rows = rows - like(self.center, rows)[None, :]
        if self.scale is not None:
            rows = rows / like(self.scale, rows)[None, :]
        return rows

    def _batches(self, units: Units) -> Iterator[Measured]:
        for batch in units.batches():
            xp, rows = array_namespace(units.rows), batch.of(units.rows)
            few = max(1, _BATCH_NUMBERS // (batch.length * max(self.columns, self.width)))
            for some in pieces(len(batch), few):
                own = recordings_of(rows[some, ...], batch.runs, self.per_recording)
                if self.lift is not None:
                    own = xp.concat([own, xp.full_like(own[:, :, :1], self.lift)], axis=2)
                yield self._people(own)

    def _lifted(self, rows: Array) -> Array:
        if self.lift is None:
            return rows
        xp = array_namespace(rows)
        return xp.concat([rows, xp.full_like(rows[:, :1], self.lift)], axis=1)

    def _records(self, rows: Array) -> Measured:
        """Every row is a unit, and the norm of its Z is the square of its own."""
        scaled, sizes, norm = sized(rows)
        if self._exact is not None:
            sizes = sizes * norm
            scaled, again, norm = sized(self._exact.valid(self._exact.seen(scaled, norm)))
            sizes = sizes * again
        if not (self.whole_numbers or fused.serves(scaled)):
            return Measured(scaled, norm * norm, sizes)
        numbers = whole(scaled, norm)
        return Measured(numbers, squares(numbers), sizes * (norm * 2.0**-BITS))

    def _people(self, own: Array) -> Measured:
        """The same for units with many rows (units x rows x columns), whose Z is computed for its norm."""
        xp, (units, count, _columns) = array_namespace(own), own.shape
        if count == 1:
            return self._records(own[:, 0, ...])
        flat, size, norm = sized(xp.reshape(own, (units, -1)))
        if self._exact is not None:
            size = size * norm
            norms = xp.reshape(xp.broadcast_to(norm[:, None], (units, count)), (-1,))
            seen = self._exact.seen(xp.reshape(flat, (units * count, -1)), norms)
            flat, again, norm = sized(self._exact.valid(xp.reshape(seen, (units, -1))))
            size = size * again
        numbers = xp.reshape(whole(flat, norm), (units, count, -1))
        turned = xp.matrix_transpose(numbers)
        moment = xp.matmul(turned, numbers) if count > self.width else xp.matmul(numbers, turned)  # exact
        norms = xp.sqrt(squares(xp.reshape(moment, (units, -1)))) / count
        return Measured(xp.reshape(numbers, (units * count, -1)), norms, size * (norm * 2.0**-BITS), count)


def per_recording_rows(rows: Array, per_recording: PerRecording, xp: Any) -> Array:
    """The rows of one recording, each column brought to mean zero and, with "standardise", to variance one."""
    if per_recording != "none":
        rows = rows - xp.mean(rows, axis=0, keepdims=True)
    if per_recording == "standardise":
        spread = xp.std(rows, axis=0, keepdims=True)
        rows = rows / xp.where(spread > 0, spread, xp.ones_like(spread))
    return rows


def recordings_of(rows: Array, runs: NDArray[np.int64], per_recording: PerRecording) -> Array:
    """The same for many units of one shape (units x rows x columns, recordings begin and end at `runs`) on a device:
    means are folded, so that they round as the recording's own length says."""
    if per_recording == "none":
        return rows
    bounds = list(pairwise(runs.tolist()))
    if fused.serves(rows):
        return fused.recordings(rows, bounds, per_recording == "standardise")
    xp, rows, parts = array_namespace(rows), doubles(rows), []
    for first, last in bounds:
        part = rows[:, first:last, ...]
        part = part - (fold(xp.asarray(part, copy=True)) / (last - first))[:, None, :]
        if per_recording == "standardise":
            spread = xp.sqrt(fold(part * part) / (last - first))
            part = part / xp.where(spread > 0, spread, xp.ones_like(spread))[:, None, :]
        parts.append(part)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)


class Scatter(UnitMoment):
    """The sum over units of Z divided by its Frobenius norm (`normalise`), or by c and then clipped at norm 1.

    Released in isometric coordinates. A program that clips multiplies by c again.

    Sensitivity. What a unit contributes is positive semidefinite, and its norm is at most 1 whatever c is. For two of
    them norm(Z - W)^2 = norm(Z)^2 + norm(W)^2 - 2 tr(Z W) <= 2, since tr(Z W) >= 0: D = sqrt(2), attained by orthogonal
    rank-one Z and W. Added or removed: 1. The products of a unit's rows add up to tr(Z) <= sqrt(width) in norm, not to
    1, and the rounding of the sum with them: sqrt(width) - 1 times the planned slack is added.
    """

    name: ClassVar[str] = "scatter"
    adds_in_pieces: ClassVar[bool] = True
    clip: Positive = 1.0
    normalise: bool = True

    @property
    def size(self) -> int:
        return coordinates.size(self.width)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(adjacency) + (math.sqrt(self.width) - 1) * summation_slack()

    def sum_block(self, block: Units) -> Array:
        return coordinates.packed(summed(self._moments(block)))

    def _moments(self, block: Units) -> Iterator[Array]:
        """Rows times the roots of their weights: an array times its own transpose costs half."""
        if block.offsets is None and on_host(block.rows):
            yield gram(self._weighed(block))
            return
        for rows, weights, _measured in self._bounded(block):
            yield gram(rows * array_namespace(rows).sqrt(weights)[:, None])

    def _weighed(self, block: Units, times: float = 1.0) -> Floats:
        """Single rows of norm 1 or less, `times` that, made a few at a time, so that they stay in a processor's cache
        meanwhile."""
        weighed = np.empty((len(block), self.width))
        for some in pieces(len(block), max(1, CACHED // (8 * self.width))):
            for rows, weights, _measured in self._bounded(block.between(some.start, some.stop)):
                np.multiply(rows, (np.sqrt(weights) * times)[:, None], out=weighed[some])
        return weighed

    @cached_property
    def _placing(self) -> native.Placing:
        return native.Placing(self.center, self.scale, self.lift, None if self.normalise else self.clip)

    def _bounded(self, block: Units) -> Iterator[tuple[Array, Array, Measured]]:
        """The rows as they enter, and the weight of each, so that a unit contributes the sum of weight x x'."""
        for measured in self._measured(block):
            weights = self._weights(measured.norms, measured.sizes, array_namespace(measured.rows))
            yield measured.rows, measured.spread(weights), measured

    def _weights(self, norms: Array, sizes: Array, xp: Any) -> Array:
        """What brings matrices of these norms to norm 1, or divides them by c up to that; one without any stays zero.

        The rows they were made of had been divided by `sizes`; a weight of its square puts that back.
        """
        some = norms > 0
        weights = 1 / (xp.where(some, norms, xp.ones_like(norms)) * INSIDE)
        if not self.normalise:
            back = (sizes / math.sqrt(self.clip)) ** 2
            weights = xp.where(weights < back, weights, back)
        return xp.where(some, weights, xp.zeros_like(norms))


class ScatterColumn(Scatter):
    """The last column of what `Scatter` sums: of lifted rows, where the units' mean is and how much they weigh.

    Sensitivity. With q the last unit vector a unit contributes Z q. Z has eigenvalues in [0, 1], so norm(Z q)^2 =
    q' Z^2 q <= q' Z q, which is norm(Z q - q/2)^2 <= 1/4: all Z q lie in one ball of diameter 1, and D = 1 for a
    replaced unit as for one that is added or removed, plus the planned slack as for `Scatter`.
    """

    name: ClassVar[str] = "scatter_column"

    @property
    def size(self) -> int:
        return self.width

    def sensitivity(self, adjacency: Adjacency) -> float:
        return super().sensitivity(Adjacency.ADD_REMOVE)

    def sum_block(self, block: Units) -> Array:
        placing = self._native(block)
        return summed(self._moments(block)) if placing is None else placing.column(block.rows)

    def _moments(self, block: Units) -> Iterator[Array]:
        host = block.offsets is None and on_host(block.rows)
        for some in pieces(len(block), max(1, CACHED // (8 * self.width)) if host else len(block)):
            for rows, weights, _measured in self._bounded(block.between(some.start, some.stop)):
                yield products(rows, (weights * rows[:, -1])[:, None])[:, 0]


class ScatterProduct(Scatter):
    """The sum over units of Z Q for a public Q with orthonormal columns: `columns` x k numbers, never a square matrix.

    Sensitivity. norm(Z Q - W Q) <= norm(Z - W) norm_2(Q). norm_2(Q) is at most 1 + 1e-9, which is checked, and Q is
    rounded to 26 bits so that products with it are exact, which moves it by at most sqrt(width k) 2^-27 (1 + 1e-9) in
    Frobenius norm: D is that of `Scatter` times 1 + 1e-9 + sqrt(width k) 2^-26.
    For a single column q of norm 1 it is less. Z has eigenvalues in [0, 1], so norm(Z q)^2 = q' Z^2 q <= q' Z q, which
    is norm(Z q - q/2)^2 <= 1/4: all Z q lie in one ball of diameter 1, and D = 1 for a replaced unit, too.
    """

    name: ClassVar[str] = "scatter_product"
    whole_numbers: ClassVar[bool] = True
    basis: FloatArray

    @model_validator(mode="after")
    def _orthonormal(self) -> Self:
        basis = self.basis
        if basis.ndim != 2 or basis.shape[0] != self.width or not 1 <= basis.shape[1] <= self.width:
            raise ValueError(f"the basis must have {self.width} rows and no more columns, got shape {basis.shape}")
        sound = bool(np.max(np.abs(basis)) <= 1 + 1e-9)  # else products overflow, and NaN is not greater than anything
        if not (sound and np.linalg.norm(basis.T @ basis - np.eye(basis.shape[1]), 2) <= 1e-9):
            raise ValueError("the columns of the basis must be orthonormal")
        return self

    @property
    def size(self) -> int:
        return int(self.basis.size)

    def sensitivity(self, adjacency: Adjacency) -> float:
        apart = super().sensitivity(adjacency)
        if self.basis.shape[1] == 1:
            apart = min(apart, super().sensitivity(Adjacency.ADD_REMOVE))
        return apart * (1 + 1e-9 + math.sqrt(self.basis.size) * 2.0**-BITS)

    @cached_property
    def _exact_basis(self) -> Exact:
        return Exact.of(self.basis)

    def sum_block(self, block: Units) -> Array:
        total = summed(self._moments(block))
        return array_namespace(total).reshape(total, (-1,))

    def _moments(self, block: Units) -> Iterator[Array]:
        basis = self._exact_basis
        for rows, weights, _measured in self._bounded(block):
            yield products(rows, basis.product(rows) * like(basis.unit, rows)[None, :] * weights[:, None])


class ScatterNorms(UnitMoment):
    """How many units have a Z whose Frobenius norm lies in each of `bins` bins, evenly spaced in its logarithm.

    Smaller and larger norms than `lowest` and `highest` count in the first and last bin. From this a clip is bought.

    Sensitivity. A unit counts in one bin: replacing it moves two counts by 1, D = sqrt(2). Added or removed: 1.
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
        return self.bins

    @property
    def edges(self) -> Floats:
        """Where bins begin and the last one ends."""
        return np.geomspace(self.lowest, self.highest, self.bins + 1)

    def adds_exactly(self, units: Units) -> bool:
        """Counts are whole numbers; but only a kernel takes long blocks without more memory."""
        return self._native(units) is not None

    def sum_block(self, block: Units) -> Array:
        placing = self._native(block)
        if placing is not None:
            return self._counted(placing.norms(block.rows))
        total: Array = 0.0
        for measured in self._measured(block):
            xp = array_namespace(measured.norms)
            roots = xp.sqrt(measured.norms) * measured.sizes  # of the norms of Z: a logarithm need not round the same
            if on_host(roots):
                total = total + self._counted(roots)
                continue
            above = roots[:, None] >= like(self._roots, roots)[None, :]
            bins = xp.sum(xp.astype(above, xp.float64), axis=1)
            hits = bins[:, None] == xp.arange(self.bins, dtype=xp.float64, device=device_of(bins))[None, :]
            total = total + xp.sum(xp.astype(hits, xp.float64), axis=0)  # whole numbers: exact
        return total

    def _counted(self, roots: Floats) -> Floats:
        return np.bincount(np.searchsorted(self._roots, roots, side="right"), minlength=self.bins).astype(np.float64)

    @cached_property
    def _roots(self) -> Floats:
        return np.sqrt(self.edges[1:-1])
