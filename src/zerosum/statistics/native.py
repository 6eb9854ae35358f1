"""Kernels in C (src/native): one pass over memory where NumPy makes many.

They are compiled where Zerosum is installed, if there is a compiler; without them NumPy computes the same numbers. A
kernel sees one unit at a time and adds up in an order that the unit's own length fixes; nothing in it is compiled to
another order. So it keeps to the rule of `rows`: what is computed for a unit depends on nobody else.

Tested in tests/statistics/test_native.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import on_host
from zerosum.statistics.rows import Exact

try:
    from zerosum.statistics import _native
except ImportError:  # there was no compiler
    _native = None  # type: ignore[assignment]
if os.environ.get("ZEROSUM_NATIVE") == "0":
    _native = None  # type: ignore[assignment]


def present() -> bool:
    """Whether there are kernels."""
    return _native is not None


def kind(wanted: str | None = None) -> str:
    """The kind of processor that kernels compute for: the best that this one is, or from now on another."""
    return _native.kind(wanted)


@dataclass(frozen=True, eq=False)
class Placing:
    """How single records are placed before their own matrix is bounded: centred, divided by a scale, lifted; `clip` is
    what matrices are divided by (None: by their own norm)."""

    center: Floats | None = None
    scale: Floats | None = None
    lift: float | None = None
    clip: float | None = None

    def norms(self, rows: Array) -> Floats:
        """The norm of every row."""
        return self._run(_native.norms, rows, len(rows))

    def column(self, rows: Array) -> Floats:
        """The last column of the sum of bounded x x'."""
        return self._run(_native.column, rows, self._width(rows))

    def scatter(self, rows: Array) -> Floats:
        """The upper triangle of the sum of x x' of rows that were rounded to whole numbers."""
        width = self._width(rows)
        return self._run(_native.scatter, rows, width * (width + 1) // 2)

    def _width(self, rows: Array) -> int:
        return int(rows.shape[1]) + (self.lift is not None)

    def _run(self, kernel: Callable[..., None], rows: Array, size: int) -> Floats:
        given = _doubles(rows)
        center, scale = (None if each is None else _doubles(each) for each in (self.center, self.scale))
        out = np.empty(size)
        kernel(given, center, scale, self.lift or 0.0, self.clip or 0.0, given.shape[1], out)
        return out


def unmixing(
    people: Floats,
    exact: Exact,
    runs: NDArray[np.int64],
    chosen: NDArray[np.int32],
    signs: Floats,
    window: int,
    weights: tuple[float, float, float],
) -> Floats:
    """What people (people x rows x columns) say of their sources, each divided by its norm, added up; `weights` are
    those of correlations and slopes, and the constant (`UnmixingScore`)."""
    _, rows, columns = people.shape
    sources = len(chosen)
    numbers = np.zeros((columns, -(-sources // 8) * 8))
    numbers[:, :sources] = exact.numbers
    out = np.empty(sources * (sources - 1) + 3 * sources + 1)
    arrays = numbers, exact.worth[:-1], _doubles(signs), np.ascontiguousarray(runs, dtype=np.int64), chosen
    _native.unmixing(_doubles(people), *arrays, (rows, columns, sources, window), (exact.rounding, *weights), out)
    return out


def _doubles(values: Array) -> Floats:
    """As kernels take them: of this machine's byte order, without gaps and aligned, wherever they were mapped from."""
    return np.require(values, np.float64, ["C", "A"])


def takes(rows: Any) -> bool:
    """Whether kernels take these rows: on the host, with a column at least."""
    return present() and on_host(rows) and rows.shape[1] > 0


def in_place(rows: Any) -> bool:
    """Whether they read these where they are, without a copy."""
    return takes(rows) and bool(np.may_share_memory(_doubles(rows[:2]), rows))
