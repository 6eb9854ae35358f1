"""From each unit's rows to its sources: the first step of every statistic of separation.

The map of one unit, with rows x_t in R^D (t = 1, ..., m) after centring within recordings, W = `unmixing` (R x D):

    y_t = W x_t                                  shape (R,)
    y_i scaled so that the mean of y_i,t^2 over the unit's rows is 1, or y_i = 0
    v = contributions(y)                         shape (size,); what a subclass computes from y
    contribution = v / norm(v)                   or 0

Arithmetic. Whether a source is zero, and the norm of v, are decisions about a unit, so that their bits must depend on
the unit alone (`zerosum.compute.backends.exact`). The product with W is in whole numbers and does not round. After it,
arrays of units of one shape are computed together in single precision, by operations whose order the shape fixes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends import fused
from zerosum.compute.backends.exact import INSIDE, Exact, added, fold, one_thread, sized, summed, whole
from zerosum.compute.devices import on_host, to_host
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units, pieces
from zerosum.compute.workspace import workspace
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.scaled_sources import batch_units, scaled_sources
from zerosum.statistics.scatter import PerRecording, per_recording_rows

Singles = NDArray[np.float32]

_SINGLE_SUMMANDS = 1 << 10  # most products that are added up in the precision of the factors, before doubles take over
_CACHED = 1 << 18  # numbers per pass on the host: more would leave a processor's cache
_BATCH_NUMBERS = (
    1 << 22
)  # most intermediate numbers (`unit_numbers`) of the units of one batch; a batch has at least one unit


class SourceStatistic(BoundedStatistic):
    """The sum over units of normalised vectors that are computed from the unit's sources y = W x.

    Every source is scaled to mean square 1 over the unit's own rows, and the vector that a subclass computes from the
    sources (`vectors`) is divided by its norm. The product with W does not round (`Exact`); from there everything is
    computed
    in single precision.

    Sensitivity. A contribution has norm 1, or 0 if all sources are silent. Two contributions are at most 2 apart,
    attained
    by opposite directions: D = 2 for a replaced unit. Adding or removing a unit: 1.

    Parameters
    ----------
    columns : int
        D, the number of columns of the data.
    unmixing : array of shape (R, D)
        W, public, with at least two rows.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    window : int
        Number of rows over which sizes of sources are averaged.
    """

    adds_in_pieces: ClassVar[bool] = True
    adds_units: ClassVar[bool] = True
    at_once: ClassVar[int] = 1 << 19  # most numbers of sources in one batch

    columns: int = Field(gt=0)
    unmixing: FloatArray
    per_recording: PerRecording = "none"
    window: int = Field(default=9, gt=0)

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        W = self.unmixing
        if W.ndim != 2 or W.shape[1] != self.columns or len(W) < 2:
            raise ValueError(f"unmixing must have {self.columns} columns and two rows at least, got shape {W.shape}")
        return self

    @property
    def sources(self) -> int:
        """R, the number of sources."""
        return len(self.unmixing)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (2 * self.columns + 6 * self.sources)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def unit_numbers(self, rows: int) -> int:
        """Approximate size of the intermediate arrays of a unit of `rows` rows, in numbers."""
        return rows * self.sources

    @abstractmethod
    def vectors(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """The vectors of units of equal length before division by their norms, shape (units, size).

        Parameters
        ----------
        y : array of shape (units, rows, R)
            Sources in single precision, of mean square 1, or 0.
        runs : int array
            The first row of each recording within a unit, and the end of the last one.
        """

    @cached_property
    def _exact(self) -> Exact:
        """W' in whole numbers, whose products do not round."""
        return Exact.of(self.unmixing.T)

    def sum_block(self, block: Units) -> Array:
        """The sum of the contributions of a block, shape (size,)."""
        if not on_host(block.rows):
            return summed(self._batched(block))
        with one_thread():
            return summed(self._here(block))

    def _here(self, block: Units) -> Iterator[Floats]:
        """Partial sums on the host. Units of one shape are computed together, wherever they are in the block."""
        for batch in block.batches():
            rows = batch.of(block.rows)
            for some in pieces(len(batch), self._together(batch.length)):
                yield self._sum_alike(rows[some], batch.runs)

    def _sum_alike(self, rows: Array, runs: NDArray[np.int64]) -> Floats:
        """The sum of the contributions of units of one shape.

        Parameters
        ----------
        rows : array of shape (units, rows, columns)
            Raw rows.
        runs : int array
            As for `vectors`.
        """
        with workspace() as spare:
            y = spare(rows.shape[0], self.sources, rows.shape[1])
            active = self._fill(y, rows, runs)
            return np.asarray(self._contributed(y.transpose(0, 2, 1), active, runs))

    def _together(self, rows: int) -> int:
        """Number of units of `rows` rows in one batch."""
        return max(1, min(self.at_once // (rows * self.sources), _BATCH_NUMBERS // self.unit_numbers(rows)))

    def _batched(self, block: Units) -> Iterator[Array]:
        """Partial sums on a device. The vectors are computed on the device if there are kernels, else on the host."""
        for batch in block.batches():
            rows = batch.of(block.rows)
            # Without kernels the host computes the vectors: reductions of a device round by the shape of their input.
            here = not (fused.serves(rows) and fused.holds(self.sources))
            few = batch_units(rows, batch.length * self.columns, self.unit_numbers(batch.length))
            for some in pieces(len(batch), few):
                y, loud = scaled_sources(rows[some, ...], self._exact, batch.runs, self.per_recording)
                if here:
                    yield from self._on_host(y, loud, batch.runs)
                else:
                    yield self._contributed(y, array_namespace(y).any(loud, axis=1), batch.runs)

    def _on_host(self, y: Array, loud: Array, runs: NDArray[np.int64]) -> Iterator[Floats]:
        """Partial sums on the host from sources that were computed on a device.

        Parameters
        ----------
        y : array of shape (units, rows, R)
            Scaled sources on the device.
        loud : bool array of shape (units, R)
            Whether each source is not zero.
        runs : int array
            As for `vectors`.
        """
        with one_thread():
            for part in pieces(y.shape[0], self._together(y.shape[1])):
                active = np.any(to_host(loud[part, ...]), axis=1)
                yield self._contributed(np.ascontiguousarray(to_host(y[part, ...])), active, runs)

    def _contributed(self, y: Array, active: Array, runs: NDArray[np.int64]) -> Array:
        """The sum of the vectors of some units, each divided by its norm, shape (size,).

        Parameters
        ----------
        y : array of shape (units, rows, R)
            Scaled sources.
        active : bool array of shape (units,)
            Whether a unit has a source that is not zero. Other units contribute zeros: a subclass may append a
            constant, which would be a direction without data.
        runs : int array
            As for `vectors`.
        """
        vectors = self.vectors(y, runs)
        xp = array_namespace(vectors)
        # `sized` also sets vectors to zero that are not finite, and avoids overflow of squares.
        scaled, _size, norms = sized(xp.where(active[:, None], vectors, xp.zeros_like(vectors)))
        return added(scaled / xp.where(norms > 0, norms * INSIDE, xp.ones_like(norms))[:, None])

    def _fill(self, y: Singles, rows: Array, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Write the scaled sources of some units to y; return which units are not silent, shape (units,).

        Parameters
        ----------
        y : array of shape (units, R, rows)
            Receives W x, each source of mean square 1 over its unit's rows.
        rows : array of shape (units, rows, columns)
            Raw rows.
        runs : int array
            As for `vectors`.
        """
        units, length, columns = rows.shape
        active = np.empty(units, dtype=bool)
        for some in pieces(units, cached(length * columns)):
            own = y[some]
            with workspace() as spare:
                flat = self._per_recording(rows[some], runs).reshape(len(own), -1)
                # The scale of a unit is discarded, since its sources are scaled to mean square 1 in any case.
                flat, _size, norm = sized(flat)
                numbers = whole(flat, norm, spare(*flat.shape, dtype=np.float64)).reshape(-1, length, columns)
                buffer = spare(len(own), length, self.sources, dtype=np.float64)
                np.matmul(numbers, self._exact.numbers, out=buffer)  # exact
                own[...] = buffer.transpose(0, 2, 1)
            power = sums(own, own)  # of numbers below 2^53: far from overflow
            active[some] = loud = self._exact.above_rounding(np.sqrt(power / length))
            # Whole numbers: a power that is not 0 is at least 1.
            scale = np.where(loud[:, None] & (power > 0), np.sqrt(length / np.maximum(power, 1)), 0.0)
            own *= scale.astype(np.float32)[:, :, None]
        return active

    def _per_recording(self, given: Array, runs: NDArray[np.int64]) -> Floats:
        """Rows as doubles, centred or standardised within each recording; shape (units, rows, columns)."""
        rows: Floats = np.ascontiguousarray(given, dtype=np.float64)  # one memory layout, so that sums have one order
        if self.per_recording == "none":
            return rows
        if self.per_recording == "standardise":
            each = [[per_recording_rows(unit[a:b], self.per_recording, np) for a, b in pairs(runs)] for unit in rows]
            return np.stack([np.concatenate(parts) for parts in each])
        parts = [rows[:, a:b] for a, b in pairs(runs)]
        return np.concatenate([part - fold(part.copy())[:, None] / part.shape[1] for part in parts], axis=1)

    def neighbours(self, values: Array, runs: NDArray[np.int64], spare: Sequence[Array] = ()) -> Array:
        """The mean over `window` rows around each row of the same recording, as by `moving_average`.

        Parameters
        ----------
        values : array of shape (units, rows, ...)
            What is averaged.
        runs : int array
            As for `vectors`; a window does not extend beyond its recording.
        spare : sequence of three arrays, optional
            Memory of the size of `values`, used if there is one recording.
        """
        if len(runs) == 2:
            return moving_average(values, self.window, spare)
        parts = [moving_average(values[:, a:b, ...], self.window) for a, b in pairs(runs)]
        return array_namespace(values).concat(parts, axis=1)


def each_product(left: Array, right: Array) -> Array:
    """left' right of each unit, shape (units, m, n), as one product for each unit.

    Parameters
    ----------
    left : array of shape (units, rows, m)
    right : array of shape (units, rows, n)
    """
    if fused.serves(left):
        return fused.each_product(left, right)
    return np.matmul(np.ascontiguousarray(left).transpose(0, 2, 1), np.ascontiguousarray(right))


@lru_cache(maxsize=256)
def windows_of(runs: tuple[int, ...], window: int) -> NDArray[np.int32]:
    """Where the rows around each row begin, and how many they are: what `moving_average` is the mean of.

    Parameters
    ----------
    runs : tuple of int
        The first row of each recording, and the end of the last one.
    window : int
        The number of rows around a row; a shorter recording has a shorter window.

    Returns
    -------
    array of shape (2, rows)
        The first row of each window, and its number of rows.

    >>> windows_of((0, 4, 6), 3).tolist()
    [[0, 0, 1, 1, 4, 4], [3, 3, 3, 3, 2, 2]]
    """
    begins, widths = [], []
    for a, b in pairwise(runs):
        width = min(window, b - a)
        begins.append(a + np.clip(np.arange(b - a) - width // 2, 0, b - a - width))
        widths.append(np.full(b - a, width))
    return np.array([np.concatenate(begins), np.concatenate(widths)], dtype=np.int32)


def cached(numbers: int) -> int:
    """Number of units of `numbers` numbers in one batch, so that their intermediate results fit in the CPU cache."""
    return max(1, _CACHED // numbers)


def sums(left: NDArray[Any], right: NDArray[Any]) -> Floats:
    """The sum of products along the last axis, in blocks of a thousand: each block in the precision of the arguments,
    the sum of the blocks in double precision.

    Decisions about a unit depend on this sum. NumPy's pairwise sum has an order that depends only on the number of
    terms. A dot product of BLAS may round differently at another memory address.

    >>> sums(np.ones((2, 3000), dtype=np.float32), np.ones(3000, dtype=np.float32)).tolist()
    [3000.0, 3000.0]
    """
    total = np.zeros(left.shape[:-1])
    for part in pieces(left.shape[-1], _SINGLE_SUMMANDS):
        with workspace() as spare:
            each = spare(*left[..., part].shape, dtype=left.dtype)
            total += np.add.reduce(np.multiply(left[..., part], right[..., part], out=each), axis=-1)
    return total


def pairs(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """The first row of each part and its end, from offsets."""
    return pairwise(offsets.tolist())


def moving_average(values: Array, window: int, spare: Sequence[Array] = ()) -> Array:
    """The mean over `window` rows (the last axis but one) around each; rows near an end have that of the nearest whole
    window. It lies in the first of three arrays to compute in, if they are given.

    The sum over a window of w rows is made of sums over 1, 2, 4, ... rows, by the binary digits of w: of the order of
    log2(w) additions for each row, in an order that w alone fixes.

    Parameters
    ----------
    values : array of shape (units, rows, ...)
        What is averaged.
    window : int
        w, the number of rows; all rows if there are fewer.
    spare : sequence of three arrays, optional
        Memory of the size of `values`. The result is in the first one.

    >>> moving_average(np.array([[[0], [3], [0], [3]]], dtype=np.float32), 3).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    xp, rows, step = array_namespace(values), values.shape[1], math.prod(values.shape[2:])
    window = min(window, rows)
    whole, before = rows - window + 1, window // 2
    flat = xp.reshape(values, (-1,))
    result, *others = (xp.reshape(each, (-1,)) for each in spare or [xp.empty_like(flat) for _ in range(3)])
    every = flat.shape[0] - (window - 1) * step  # sums; some extend beyond the end of a unit and are replaced below
    middle = result[before * step : before * step + every]
    sums, length, start = flat, 1, 0
    while True:  # sums over 1, 2, 4, ... rows, by the binary digits of the window
        if window & length:
            part = sums[start * step : start * step + every]
            if start:
                _plus(middle, part, middle)
            else:
                middle[...] = part
            start += length
        if 2 * length > window:
            break
        shift = length * step
        sums = _plus(sums[:-shift], sums[shift:], others[0][: sums.shape[0] - shift])
        others.reverse()
        length *= 2
    middle *= 1 / window
    result = xp.reshape(result, values.shape)
    result[:, :before, ...] = result[:, before : before + 1, ...]
    result[:, before + whole :, ...] = result[:, before + whole - 1 : before + whole, ...]
    return result


def _plus(left: Array, right: Array, out: Array) -> Array:
    """left + right, written to `out`, on the host without a temporary array."""
    if on_host(left):
        return np.add(left, right, out=out)
    out[...] = left + right
    return out
