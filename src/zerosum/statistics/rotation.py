"""Which way sources are still turned into each other: what a fixed-point ICA asks of every unit in every round.

Tested in tests/statistics/test_time_courses.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import on_host
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, to_numpy
from zerosum.kernel.units import Units, pieces
from zerosum.statistics import fused
from zerosum.statistics.rows import INSIDE, Exact, added, doubles, fold, like, one_thread, sized, summed
from zerosum.statistics.scaled_sources import averaged, batch_units, inner, scaled_sources
from zerosum.statistics.scatter import PerRecording, per_recording_rows

Nonlinearity = Literal["tanh", "volatility"]

Singles = NDArray[np.float32]

_LEAST = np.float32(0.2)  # the least size that is believed of a source, over its mean square
_AT_ONCE = 32_000  # numbers that are taken at once, so that they stay in the cache


class RotationScore(BoundedStatistic):
    """The sum over units of a direction: how the unit's sources y = W x (W is `unmixing`) want to be turned.

    Every source is scaled to mean square 1 over the unit's own rows. With F the unit's mean of psi(y) y', the unit
    contributes the distinct entries of F - F' (each over sqrt(2): isometric) and, times `diagonal`, the mean of
    psi'(y) less the diagonal of F, divided together by their norm. The symmetric part of F says nothing about rotation
    and is left out. `signs` turns psi over for sources whose kurtosis is negative.

    psi is tanh, or, with "volatility", y over what its square comes to around that row (a moving average over `window`
    rows, at least a fifth of the whole): the score of a source whose size changes over time.

    Sensitivity. A contribution has norm 1, or 0 where there is nothing to say: two of them are at most 2 apart,
    attained by opposite directions. Added or removed: 1.
    """

    name: ClassVar[str] = "rotation_score"
    adds_in_pieces: ClassVar[bool] = True
    columns: int = Field(gt=0)
    unmixing: FloatArray
    signs: FloatArray | None = None
    nonlinearity: Nonlinearity = "tanh"
    window: int = Field(default=9, gt=0)
    diagonal: float = Field(default=0.25, ge=1e-6, le=1)
    per_recording: PerRecording = "none"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        W = self.unmixing
        if W.ndim != 2 or W.shape[1] != self.columns or len(W) < 2:
            raise ValueError(f"unmixing must have {self.columns} columns and two rows at least, got shape {W.shape}")
        if self.signs is not None and (self.signs.shape != (len(W),) or not np.all(np.abs(self.signs) == 1)):
            raise ValueError(f"signs must hold 1 or -1 for each of the {len(W)} sources")
        return self

    @property
    def sources(self) -> int:
        return len(self.unmixing)

    @property
    def size(self) -> int:
        return self.sources * (self.sources + 1) // 2

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.columns + 6 * self.sources)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    @cached_property
    def _exact(self) -> Exact:
        return Exact.of(self.unmixing.T)

    def sum_block(self, block: Units) -> Array:
        if not on_host(block.rows):
            return summed(self._batched(block))
        units = np.arange(block.rows.shape[0] + 1) if block.offsets is None else block.offsets
        runs = units if block.runs is None else block.runs.offsets
        total = np.zeros(self.size)
        with one_thread():
            for first, last in alike(units, runs, _AT_ONCE // self.sources):
                begin, end = int(units[first]), int(units[last])
                inside = runs[(runs >= begin) & (runs <= units[first + 1])] - begin
                total += self._contribution(self._sources(block.rows[begin:end, ...], last - first, inside), inside)
        return total

    def _sources(self, rows: Array, count: int, runs: NDArray[np.int64]) -> Floats:
        """W x, units x rows x sources, for equally long units, each divided by the unit's norm."""
        xp, rows = array_namespace(rows), doubles(rows)
        length = rows.shape[0] // count
        if self.per_recording == "standardise":
            rows = xp.reshape(rows, (count, length, self.columns))
            each = [
                per_recording_rows(rows[u, a:b, ...], self.per_recording, xp)
                for u in range(count)
                for a, b in _pairs(runs)
            ]
            rows = xp.concat(each)
        elif self.per_recording == "center":
            rows = xp.reshape(rows, (count, length, self.columns))
            parts = [rows[:, a:b, ...] for a, b in _pairs(runs)]
            means = [fold(xp.asarray(part, copy=True)) / part.shape[1] for part in parts]
            parts = [part - mean[:, None, :] for part, mean in zip(parts, means, strict=True)]
            rows = parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)
        flat, _size, norm = sized(xp.reshape(rows, (count, -1)))
        norms = xp.reshape(xp.broadcast_to(norm[:, None], (count, length)), (-1,))
        seen = self._exact.seen(xp.reshape(flat, (-1, self.columns)), norms)
        return to_numpy(self._exact.valid(xp.reshape(seen, (count, -1)))).reshape(count, length, self.sources)

    def _contribution(self, y: Floats, runs: NDArray[np.int64]) -> Floats:
        """The sum of what units of equal length contribute; `y` is units x rows x sources."""
        power = fold(y * y)
        scale = np.sqrt(y.shape[1] / np.where(power > 0, power, 1.0))
        single = np.empty(y.shape, dtype=np.float32)  # halves the time; noise is far above its rounding
        np.multiply(y, scale[:, None, :], out=single, casting="same_kind")
        psi, slope = self._psi(single, runs)
        F = np.matmul(psi.transpose(0, 2, 1), single).astype(np.float64) / y.shape[1]  # a product for each unit
        slopes = np.where(power > 0, slope.astype(np.float64) / y.shape[1], 0.0)  # a silent source says nothing
        if self.signs is not None:
            F, slopes = F * self.signs[:, None], slopes * self.signs
        row, column = _upper(self.sources)
        diagonal = self.diagonal * (slopes - np.diagonal(F, axis1=1, axis2=2))
        turns = np.concatenate([(F[:, row, column] - F[:, column, row]) / math.sqrt(2), diagonal], axis=1)
        scaled, _size, norms = sized(turns)
        return np.asarray(np.sum(scaled / np.where(norms > 0, norms * INSIDE, 1.0)[:, None], axis=0))

    def _psi(self, y: Singles, runs: NDArray[np.int64]) -> tuple[Singles, Singles]:
        """psi for every unit, row and source, and the sum of its slope over the rows."""
        if self.nonlinearity == "tanh":
            psi = np.tanh(y)
            return psi, np.asarray(y.shape[1] - fold(psi * psi))
        square = y * y
        parts = [moving_average(square[:, a:b], self.window) for a, b in _pairs(runs)]
        size = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        size *= 1 - _LEAST
        size += _LEAST
        np.reciprocal(size, out=size)
        psi, part = y * size, (1 - _LEAST) * np.float32(2 / self.window)  # of its size a row is this part, twice over
        return psi, np.asarray(fold(size) - part * fold(psi * psi))

    # ---- the same on a device ----------------------------------------------------------------------------------------

    def _batched(self, block: Units) -> Iterator[Array]:
        """Units of one shape are taken together, as many as there is room for: how a product of several units rounds
        would depend on their number, so that either one program of a kernel sees one unit, or nothing rounds."""
        for batch in block.batches():
            rows = batch.of(block.rows)
            few = batch_units(rows, batch.length * self.columns, batch.length * self.sources)
            for some in pieces(len(batch), few):
                y, loud = scaled_sources(rows[some, ...], self._exact, batch.runs, self.per_recording)
                yield self._sum(y, loud, batch.runs)

    def _sum(self, y: Array, loud: Array, runs: NDArray[np.int64]) -> Array:
        xp, (units, length, R) = array_namespace(y), y.shape
        window = None if self.nonlinearity == "tanh" else self.window
        if len(runs) == 2 and fused.serves(y) and fused.holds(R):
            F, squared, size = fused.scores(y, window, float(_LEAST))
        else:
            if window is None:
                psi, size = xp.tanh(y), y[:, 0, :]
            else:
                divisor = 1 / (averaged(y * y, runs, window) * float(1 - _LEAST) + float(_LEAST))
                psi = y * divisor
                size = xp.astype(fold(divisor), xp.float64)
            F = inner(psi, y)
            squared = xp.astype(fold(psi * psi), xp.float64)
        part = float((1 - _LEAST) * np.float32(2 / self.window))  # of its size a row is this part, twice over
        slopes = (length - squared if window is None else size - part * squared) / length
        slopes, F = xp.where(loud, slopes, xp.zeros_like(slopes)), F / length
        if self.signs is not None:
            signs = like(self.signs, F)
            F, slopes = F * signs[None, :, None], slopes * signs[None, :]
        above, below, along = (like(each, F) for each in _places(R))
        flat = xp.reshape(F, (units, R * R))
        turns = (xp.take(flat, above, axis=1) - xp.take(flat, below, axis=1)) / math.sqrt(2)
        turns = xp.concat([turns, self.diagonal * (slopes - xp.take(flat, along, axis=1))], axis=1)
        scaled, _size, norms = sized(turns)
        norms = norms * INSIDE
        return added(scaled / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None])

    def split(self, value: Floats) -> tuple[Floats, Floats]:
        """A released sum as a skew-symmetric matrix (of F - F', halved) and the diagonal."""
        R = self.sources
        skew = np.zeros((R, R))
        skew[np.triu_indices(R, 1)] = value[: R * (R - 1) // 2] / math.sqrt(2)
        return skew - skew.T, value[R * (R - 1) // 2 :] / self.diagonal


@lru_cache(maxsize=8)
def _upper(order: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(order, 1)


@lru_cache(maxsize=8)
def _places(order: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Where the entries above the diagonal of a flat matrix are, those below, and those on it."""
    row, column = _upper(order)
    return row * order + column, column * order + row, np.arange(order) * (order + 1)


def _pairs(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return pairwise(offsets.tolist())


def alike(units: NDArray[np.int64], runs: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Stretches of units of one recording each that are equally long, so that they can be taken at once, `most` rows or
    one unit at a time; the others come one by one.

    >>> list(alike(np.array([0, 5, 10, 16, 22, 28]), np.array([0, 5, 10, 16, 20, 22, 28]), 100))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    lengths = np.diff(units)
    single = np.searchsorted(runs, units[1:]) - np.searchsorted(runs, units[:-1]) == 1
    joins = (lengths[1:] == lengths[:-1]) & single[1:] & single[:-1]
    cuts = [0, *(np.flatnonzero(~joins) + 1).tolist(), len(lengths)]
    for first, last in pairwise(cuts):
        at_once = max(1, most // int(lengths[first]))
        for start in range(first, last, at_once):
            yield start, min(start + at_once, last)


def moving_average(values: Singles, window: int) -> Singles:
    """The mean over `window` rows (the last axis but one) around each; rows near an end have that of the nearest whole
    window.

    >>> moving_average(np.array([[0], [3], [0], [3]], dtype=np.float32), 3).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    rows = values.shape[-2]
    window = min(window, rows)
    whole, before = rows - window + 1, window // 2
    sums, length, start, parts = values, 1, 0, []
    while True:  # sums over 1, 2, 4, ... rows, as the binary digits of the window ask for them
        if window & length:
            parts.append(sums[..., start : start + whole, :])
            start += length
        if 2 * length > window:
            break
        sums = sums[..., :-length, :] + sums[..., length:, :]
        length *= 2
    average = np.empty_like(values)
    np.multiply(sum(parts[1:], parts[0]), np.float32(1 / window), out=average[..., before : before + whole, :])
    average[..., :before, :] = average[..., before : before + 1, :]
    average[..., before + whole :, :] = average[..., before + whole - 1 : before + whole, :]
    return average
