"""Kernels in C (src/native): one pass over memory for steps that take NumPy several.

The kernels are compiled at installation if there is a compiler; without them NumPy computes the same numbers. A kernel
processes one unit at a time and adds up in an order that the unit's own length fixes. It is compiled without options
that change this order. So the rule of `rows` holds: numbers computed for a unit depend on no other unit.
ZEROSUM_NATIVE=0 in the environment switches the kernels off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import Exact
from zerosum.compute.devices import on_host

# Bytes of rows that NumPy fills column by column while they are in the processor's cache (benchmarks/sources.py).
_CACHED_BYTES = 1 << 18
# Fewest rows of such a part: with many columns a copy of few numbers costs more than a cache miss. Chosen by hand.
_LEAST_ROWS = 256

try:
    from zerosum.compute.backends import _native
except ImportError:  # there was no compiler
    _native = None  # type: ignore[assignment]
if os.environ.get("ZEROSUM_NATIVE") == "0":
    _native = None  # type: ignore[assignment]


def present() -> bool:
    """Whether the kernels are compiled and switched on."""
    return _native is not None


def kind(wanted: str | None = None) -> str:
    """The instruction set of the kernels: the best one of this processor, or `wanted` from now on."""
    return _native.kind(wanted)


@dataclass(frozen=True, eq=False)
class Placing:
    """The preprocessing of single records in C, before their matrix x x' is bounded.

    Parameters
    ----------
    center, scale : array of shape (columns,), optional
        Subtracted from each record, then divided by.
    lift : float, optional
        A constant appended as the last column.
    clip : float, optional
        c, by which matrices are divided; None: by their own norm.
    """

    center: Floats | None = None
    scale: Floats | None = None
    lift: float | None = None
    clip: float | None = None

    def norms(self, rows: Array) -> Floats:
        """The norm of every preprocessed row, shape (rows,)."""
        return self._run(_native.norms, rows, len(rows))

    def column(self, rows: Array) -> Floats:
        """The last column of the sum of bounded x x', shape (width,)."""
        return self._run(_native.column, rows, self._width(rows))

    def scatter(self, rows: Array) -> Floats:
        """The upper triangle of the sum of x x' of rows rounded to whole numbers, shape (width (width + 1)/2,)."""
        width = self._width(rows)
        return self._run(_native.scatter, rows, width * (width + 1) // 2)

    def _width(self, rows: Array) -> int:
        """The number of columns after the lift."""
        return int(rows.shape[1]) + (self.lift is not None)

    def _run(self, kernel: Callable[..., None], rows: Array, size: int) -> Floats:
        """The output of a kernel for these rows.

        Parameters
        ----------
        kernel : callable
            A function of the extension module.
        rows : array of shape (rows, columns)
            Records on the host.
        size : int
            The length of the output.
        """
        given = _doubles(rows)
        center, scale = (None if each is None else _doubles(each) for each in (self.center, self.scale))
        out = np.empty(size)
        # 0.0 stands for "no lift" and "no clip": both are positive where they are given.
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
    """The sum over people of their contributions to `UnmixingScore`, each divided by its norm.

    Parameters
    ----------
    people : array of shape (people, rows, columns)
        People with equally many rows.
    exact : Exact
        The unmixing matrix in whole numbers, with k sources.
    runs : int array
        The first row of each recording, and the end of the last one.
    chosen : int array of shape (k,)
        The number of each source's score.
    signs : array of shape (k,)
        The sign of each score.
    window : int
        The number of rows around a row.
    weights : tuple of three floats
        The weights of correlations and slopes, and the constant (`UnmixingScore`).
    """
    _, rows, columns = people.shape
    sources = len(chosen)
    # The kernel reads 8 sources at a time: columns of zeros fill up the last group.
    numbers = np.zeros((columns, -(-sources // 8) * 8))
    numbers[:, :sources] = exact.numbers
    # One number for each pair in the scores and in the correlations, three slopes for each source, and the constant.
    out = np.empty(sources * (sources - 1) + 3 * sources + 1)
    arrays = numbers, exact.worth[:-1], _doubles(signs), np.ascontiguousarray(runs, dtype=np.int64), chosen
    _native.unmixing(_doubles(people), *arrays, (rows, columns, sources, window), (exact.rounding, *weights), out)
    return out


def interleave(columns: Sequence[Floats], first: int, rows: Floats) -> None:
    """Copy values of columns into the rows of a table.

    Parameters
    ----------
    columns : sequence of arrays of doubles, each of shape (values,)
        The columns of the table.
    first : int
        The position in the columns of the first row.
    rows : array of doubles of shape (rows, columns)
        Overwritten; contiguous in row order.
    """
    if present():
        _native.interleave(tuple(_doubles(values) for values in columns), first, rows)
        return
    # Parts of a table are filled while they are in the processor's cache.
    part = max(_LEAST_ROWS, _CACHED_BYTES // (8 * len(columns)))
    for start in range(0, len(rows), part):
        end = min(start + part, len(rows))
        for at, values in enumerate(columns):
            rows[start:end, at] = values[first + start : first + end]


def _doubles(values: Array) -> Floats:
    """Values in the form that kernels read: doubles in this machine's byte order, contiguous and aligned."""
    return np.require(values, np.float64, ["C", "A"])


def takes(rows: Any) -> bool:
    """Whether kernels can process these rows: on the host, with at least one column."""
    return present() and on_host(rows) and rows.shape[1] > 0


def in_place(rows: Any) -> bool:
    """Whether kernels read these rows without a copy."""
    return takes(rows) and bool(np.may_share_memory(_doubles(rows[:2]), rows))
