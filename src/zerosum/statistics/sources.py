"""From each unit's rows to its sources: what every statistic of separation begins with.

Tested in tests/statistics/test_time_courses.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import on_host, to_host
from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, to_numpy
from zerosum.kernel.units import Units, pieces
from zerosum.statistics import fused
from zerosum.statistics.rows import INSIDE, Exact, added, doubles, fold, one_thread, sized, summed, whole
from zerosum.statistics.scaled_sources import batch_units, scaled_sources
from zerosum.statistics.scatter import PerRecording, per_recording_rows

Singles = NDArray[np.float32]

_HELD = 1 << 22  # numbers that are made of units that are taken at once, but for one


class SourceStatistic(BoundedStatistic):
    """The sum over units of a direction that is made of the unit's sources y = W x (W is `unmixing`).

    Every source is scaled to mean square 1 over the unit's own rows, and what is made of them (`told`) is divided by
    its norm. Sources are computed in double precision up to that scale and in single precision from there.

    Sensitivity. A contribution has norm 1, or 0 where there is nothing to say: two of them are at most 2 apart,
    attained by opposite directions. Added or removed: 1.
    """

    adds_in_pieces: ClassVar[bool] = True
    at_once: ClassVar[int] = 64_000  # numbers that are taken at once

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
        return len(self.unmixing)

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.columns + 6 * self.sources)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def unit_numbers(self, rows: int) -> int:
        """How many numbers a unit of so many rows becomes, more or less."""
        return rows * self.sources

    @abstractmethod
    def told(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """What units of equal length say (units x rows x sources, of mean square 1 or 0), one a row, before it is
        divided by its norm; `runs` is where their recordings begin and end."""

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
            for first, last in alike(units, runs, self._together):
                begin, end = int(units[first]), int(units[last])
                inside = runs[(runs >= begin) & (runs <= units[first + 1])] - begin
                y, speaks = _scaled(self._sources(block.rows[begin:end, ...], last - first, inside))
                total += self._contributed(y, speaks, inside)
        return total

    def _together(self, rows: int) -> int:
        """How many units of so many rows are taken at once."""
        return max(1, min(self.at_once // (rows * self.sources), _HELD // self.unit_numbers(rows)))

    def _batched(self, block: Units) -> Iterator[Array]:
        """Units on a device, in batches of one shape: what they say is made there too where there are kernels."""
        for batch in block.batches():
            rows = batch.of(block.rows)
            here = not (fused.serves(rows) and fused.holds(self.sources))
            few = batch_units(rows, batch.length * self.columns, self.unit_numbers(batch.length))
            for some in pieces(len(batch), few):
                y, loud = scaled_sources(rows[some, ...], self._exact, batch.runs, self.per_recording)
                if here:
                    yield from self._on_host(y, loud, batch.runs)
                else:
                    yield self._contributed(y, array_namespace(y).any(loud, axis=1), batch.runs)

    def _on_host(self, y: Array, loud: Array, runs: NDArray[np.int64]) -> Iterator[Floats]:
        with one_thread():
            for part in pieces(y.shape[0], self._together(y.shape[1])):
                speaks = np.any(to_host(loud[part, ...]), axis=1)
                yield self._contributed(np.ascontiguousarray(to_host(y[part, ...])), speaks, runs)

    def _contributed(self, y: Array, speaks: Array, runs: NDArray[np.int64]) -> Array:
        told = self.told(y, runs)
        xp = array_namespace(told)
        scaled, _size, norms = sized(xp.where(speaks[:, None], told, xp.zeros_like(told)))
        return added(scaled / xp.where(norms > 0, norms * INSIDE, xp.ones_like(norms))[:, None])

    def _sources(self, rows: Array, count: int, runs: NDArray[np.int64]) -> Floats:
        """W x, units x rows x sources, for equally long units, each divided by the unit's norm."""
        xp, rows = array_namespace(rows), doubles(rows)
        length = rows.shape[0] // count
        if self.per_recording == "standardise":
            rows = xp.reshape(rows, (count, length, self.columns))
            each = [
                per_recording_rows(rows[u, a:b, ...], self.per_recording, xp)
                for u in range(count)
                for a, b in pairs(runs)
            ]
            rows = xp.concat(each)
        elif self.per_recording == "center":
            rows = xp.reshape(rows, (count, length, self.columns))
            parts = [rows[:, a:b, ...] for a, b in pairs(runs)]
            means = [fold(xp.asarray(part, copy=True)) / part.shape[1] for part in parts]
            parts = [part - mean[:, None, :] for part, mean in zip(parts, means, strict=True)]
            rows = parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)
        flat, _size, norm = sized(xp.reshape(rows, (count, -1)))
        seen = self._exact.seen_whole(xp.reshape(whole(flat, norm), (-1, self.columns)))
        return to_numpy(self._exact.valid(xp.reshape(seen, (count, -1)))).reshape(count, length, self.sources)

    def neighbours(self, values: Array, runs: NDArray[np.int64]) -> Array:
        """The mean over `window` rows around each row of the same recording."""
        parts = [moving_average(values[:, a:b, ...], self.window) for a, b in pairs(runs)]
        return parts[0] if len(parts) == 1 else array_namespace(values).concat(parts, axis=1)


def each_product(left: Array, right: Array) -> Array:
    """left' right of each unit (units x rows x anything): a product of its own for each."""
    if fused.serves(left):
        return fused.each_product(left, right)
    return np.matmul(np.ascontiguousarray(left).transpose(0, 2, 1), np.ascontiguousarray(right))


@lru_cache(maxsize=256)
def windows_of(runs: tuple[int, ...], window: int) -> NDArray[np.int32]:
    """Where the rows around each row begin, and how many they are: what `moving_average` is the mean of.

    >>> windows_of((0, 4, 6), 3).tolist()
    [[0, 0, 1, 1, 4, 4], [3, 3, 3, 3, 2, 2]]
    """
    begins, widths = [], []
    for a, b in pairwise(runs):
        width = min(window, b - a)
        begins.append(a + np.clip(np.arange(b - a) - width // 2, 0, b - a - width))
        widths.append(np.full(b - a, width))
    return np.array([np.concatenate(begins), np.concatenate(widths)], dtype=np.int32)


def _scaled(y: Floats) -> tuple[Singles, NDArray[np.bool_]]:
    """Sources of mean square 1 in every unit (a silent one stays zero), and which units are not silent."""
    power = fold(y * y)
    scale = np.sqrt(y.shape[1] / np.where(power > 0, power, 1.0))
    single = np.empty(y.shape, dtype=np.float32)  # halves the time; noise is far above its rounding
    np.multiply(y, scale[:, None, :], out=single, casting="same_kind")
    return single, np.any(power > 0, axis=1)


def pairs(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Where each begins and ends."""
    return pairwise(offsets.tolist())


def alike(
    units: NDArray[np.int64], runs: NDArray[np.int64], together: Callable[[int], int]
) -> Iterator[tuple[int, int]]:
    """Stretches of units of one recording each that are equally long, so that they can be taken at once, as many of so
    many rows as `together` says; the others come one by one.

    >>> list(alike(np.array([0, 5, 10, 16, 22, 28]), np.array([0, 5, 10, 16, 20, 22, 28]), lambda rows: 100 // rows))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    lengths = np.diff(units)
    single = np.searchsorted(runs, units[1:]) - np.searchsorted(runs, units[:-1]) == 1
    joins = (lengths[1:] == lengths[:-1]) & single[1:] & single[:-1]
    cuts = [0, *(np.flatnonzero(~joins) + 1).tolist(), len(lengths)]
    for first, last in pairwise(cuts):
        at_once = together(int(lengths[first]))
        for start in range(first, last, at_once):
            yield start, min(start + at_once, last)


def moving_average(values: Array, window: int) -> Array:
    """The mean over `window` rows (the last axis but one) around each; rows near an end have that of the nearest whole
    window.

    >>> moving_average(np.array([[[0], [3], [0], [3]]], dtype=np.float32), 3).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    xp, rows = array_namespace(values), values.shape[1]
    window = min(window, rows)
    whole, before = rows - window + 1, window // 2
    sums, length, start, parts = values, 1, 0, []
    while True:  # sums over 1, 2, 4, ... rows, as the binary digits of the window ask for them
        if window & length:
            parts.append(sums[:, start : start + whole, ...])
            start += length
        if 2 * length > window:
            break
        sums = sums[:, :-length, ...] + sums[:, length:, ...]
        length *= 2
    average = sum(parts[1:], parts[0]) * (1 / window)
    ends = ((average[:, :1, ...], before), (average[:, -1:, ...], rows - whole - before))
    first, last = (xp.broadcast_to(end, (end.shape[0], count, *end.shape[2:])) for end, count in ends)
    return xp.concat([first, average, last], axis=1)
