"""In-memory tables: pandas, polars and Arrow frames, and arrays of text, as named columns.

None of these libraries is imported: a caller with a frame has already imported its library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.data.formats import Cells, Table, Text, arrow_cells, readable
from zerosum.errors import BadData

# Top-level modules of supported frames.
_LIBRARIES = ("pandas", "polars", "pyarrow", "duckdb", "_duckdb")

# Types of pandas and polars for truth values that may be missing; NumPy has objects for them if one of them is.
_TRUTH_VALUES = ("boolean", "bool[pyarrow]", "Boolean")


def is_frame(data: object) -> bool:
    """Whether an object is a frame, or a single column, of one of these libraries, or the path of a Parquet file."""
    return isinstance(data, Path) or type(data).__module__.split(".")[0] in _LIBRARIES


def is_text(data: object) -> bool:
    """Whether an object is an array or a list that holds text."""
    if isinstance(data, list | tuple):
        first = data[0] if len(data) else None
        return isinstance(first, str) or (isinstance(first, list | tuple) and any(isinstance(x, str) for x in first))
    return isinstance(data, np.ndarray) and data.dtype.kind in "OUS"


def collected(data: Any) -> Any:
    """Rows that are not in memory yet, as a frame: a lazy frame of polars, a relation of DuckDB, or the path of a
    Parquet file or folder. Other data are returned as they are."""
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        return data.collect()
    if hasattr(data, "to_arrow_table"):
        return data.to_arrow_table()
    if isinstance(data, Path):
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not data.exists():
            raise BadData(f"there is no file {data}")
        if data.suffix.lower() != ".parquet" and not data.is_dir():
            raise BadData(f"{data} is no Parquet file or folder: read it into a frame, or use a study file")
        with readable(data, pa.ArrowException):
            return pq.read_table(data)
    return data


def frame_table(frame: Any, called: str) -> Table:
    """Table of a frame. A single column without a name has the name ''.

    Parameters
    ----------
    frame : object
        A frame of pandas, polars (also a lazy one) or Arrow, a relation of DuckDB, or a series.
    called : str
        Description in messages.
    """
    frame = collected(frame)
    # Libraries are distinguished by their methods, since none of them is imported here.
    if hasattr(frame, "column_names"):  # Arrow
        names = [str(name) for name in frame.column_names]
    elif hasattr(frame, "columns"):
        names = [str(name) for name in frame.columns]
    else:  # a series
        names = [str(getattr(frame, "name", None) or "")]

    def column(at: int) -> Any:
        if hasattr(frame, "to_series") and hasattr(frame, "columns"):  # polars
            return frame.to_series(at)
        return frame.iloc[:, at] if hasattr(frame, "columns") else frame

    if hasattr(frame, "column_names"):
        return Table(
            tuple(names), lambda positions: iter([[arrow_cells(frame.column(at), called) for at in positions]])
        )
    return Table(tuple(names), lambda positions: iter([[_cells(column(at), called) for at in positions]]))


def array_table(data: Any, columns: Sequence[str], called: str) -> Table:
    """Table of an array with text. `columns` are the names of its columns."""
    array = np.asarray(data, dtype=object)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != len(columns):
        raise BadData(f"{called} must have rows of {len(columns)} columns: {', '.join(map(repr, columns))}")

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        yield [_cells(array[:, at], called) for at in positions]

    return Table(tuple(columns), batches)


def _cells(column: Any, called: str) -> Cells:
    """Cells of a column: numbers unchanged, everything else as text, missing values as "".

    Parameters
    ----------
    column : object
        A list, or a column of a frame.
    called : str
        Description in messages.
    """
    if not isinstance(column, list):
        try:
            array = np.asarray(column)
        except (TypeError, ValueError):
            raise BadData(f"{called} has a column that holds neither numbers nor text") from None
        # The type of the column decides, never a single cell: one person's missing value must not change how the cells
        # of other people are read.
        if array.dtype.kind in "biuf":
            return array
        if str(getattr(column, "dtype", "")) in _TRUTH_VALUES:
            return np.array([np.nan if cell is None or str(cell) == "<NA>" else cell for cell in array], np.float64)
        column = array.tolist()
    return Text.of(
        ["" if cell is None or str(cell) in ("<NA>", "NaT") or cell != cell else str(cell) for cell in column]
    )
