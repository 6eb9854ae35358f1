"""Frames in memory: pandas, polars and Arrow tables, and arrays of text, as named columns.

None of these libraries is imported: whoever has a frame has its library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zerosum.data.formats import Cells, Table
from zerosum.errors import BadData

_LIBRARIES = ("pandas", "polars", "pyarrow")


def is_frame(data: object) -> bool:
    """Whether data are a frame, or one column, of a library that names columns."""
    return type(data).__module__.split(".")[0] in _LIBRARIES


def is_text(data: object) -> bool:
    """Whether data are an array or a list that holds text."""
    if isinstance(data, list | tuple):
        first = data[0] if len(data) else None
        return isinstance(first, str) or (isinstance(first, list | tuple) and any(isinstance(x, str) for x in first))
    return isinstance(data, np.ndarray) and data.dtype.kind in "OUS"


def frame_table(frame: Any, called: str) -> Table:
    """A frame's columns by their names; a single column without a name is called ''."""
    if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):
        raise BadData(f"{called} is a lazy frame: give what its collect() returns")
    if hasattr(frame, "column_names"):  # Arrow
        names = [str(name) for name in frame.column_names]
    elif hasattr(frame, "columns"):
        names = [str(name) for name in frame.columns]
    else:  # a series
        names = [str(getattr(frame, "name", None) or "")]

    def column(at: int) -> Any:
        if hasattr(frame, "column_names"):
            return frame.column(at).to_pylist()
        if hasattr(frame, "to_series") and hasattr(frame, "columns"):  # polars
            return frame.to_series(at)
        return frame.iloc[:, at] if hasattr(frame, "columns") else frame

    return Table(tuple(names), lambda positions: iter([[_cells(column(at), called) for at in positions]]))


def array_table(data: Any, columns: Sequence[str], called: str) -> Table:
    """An array that holds text, its columns called as the caller does."""
    array = np.asarray(data, dtype=object)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise BadData(f"{called} must have rows of {len(columns)} columns: {', '.join(map(repr, columns))}")

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        yield [_cells(array[:, at], called) for at in positions]

    return Table(tuple(columns), batches)


def _cells(column: Any, called: str) -> Cells:
    """Numbers as they are, and everything else as text; what is missing is an empty cell."""
    if not isinstance(column, list):
        try:
            array = np.asarray(column)
        except (TypeError, ValueError):
            raise BadData(f"{called} has a column that holds neither numbers nor text") from None
        if array.dtype.kind in "biuf":
            return array
        column = array.tolist()
    return ["" if cell is None or str(cell) in ("<NA>", "NaT") or cell != cell else str(cell) for cell in column]
