"""File formats of tables (NPY, NPZ, CSV, TSV, Parquet): named columns that are read in batches of rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Runs
from zerosum.errors import BadData, BadParameter, ZerosumError

Cells: TypeAlias = Sequence[str] | NDArray[Any]  # some rows of one column, as text or numbers

# Rows per batch. Chosen by hand; no benchmark recorded.
_BATCH_ROWS = 1 << 14
_DESCRIBING = ("columns", "units", "offsets", "run_offsets", "seconds")  # arrays of an .npz that describe the table
_DAMAGE: tuple[type[Exception], ...] = (  # errors of NumPy, zip, gzip and csv for a truncated or damaged file
    *(ValueError, TypeError, SyntaxError, LookupError, ArithmeticError, RuntimeError, MemoryError, OSError),
    *(EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, csv.Error),
)


@contextmanager
def readable(path: Path, *also: type[Exception], called: str | None = None) -> Iterator[None]:
    """Convert errors of libraries that read a file to `BadData`. The message quotes nothing of the file's content.

    Parameters
    ----------
    path : Path
        The file.
    *also : exception types
        Further errors of the library in use.
    called : str, optional
        Description used in the message instead of the path, for files whose names identify people. The path is in the
        error's `detail` then.
    """
    try:
        yield
    except ZerosumError:
        raise
    except (*_DAMAGE, *also) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        what, detail = (path, "") if called is None else (called, str(path))
        fault = f"{what} is cut short, damaged, of another format or unreadable ({why})"
        raise BadData(fault, detail=detail) from None


def number(cell: str | float) -> float:
    """The finite number in a cell, or NaN."""
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return np.nan
    # Python accepts underscores: float("1_000") is 1000
    return value if np.isfinite(value) and "_" not in str(cell) else np.nan


@dataclass(frozen=True, eq=False)
class Table:
    """An opened file.

    `batches(positions)` yields lists with the cells of the columns at these positions, one list per batch of rows.
    """

    names: tuple[str, ...]
    batches: Callable[[Sequence[int]], Iterator[list[Cells]]]
    array: NDArray[Any] | None = None  # the whole table, if it can be used without conversion
    offsets: NDArray[np.int64] | None = None  # first row of each unit, and the number of rows
    unit_column: str | None = None  # name of the unit column, if the file has one
    runs: Runs | None = None  # recordings, if the file has sampling intervals
    progress: Callable[[], tuple[int, int]] | None = None  # (done, total) in a unit of the format


def open_table(
    path: Path,
    columns: Sequence[str] | None,
    unit_column: str | None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Table:
    """Open a file by its suffix.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str or None
        Columns to read; they name the columns of an array without names.
    unit_column : str or None
        Column with the owner of each row.
    delimiter, encoding : str or None
        Of text files; by default comma or tab, and UTF-8.
    """
    if not path.is_file():
        raise BadData(f"there is no file {path}")
    match [suffix.lower() for suffix in path.suffixes]:
        case [*_, ".npy"]:
            held = {"data": np.lib.format.open_memmap(path, mode="r")}
            return _array_table(path, held, columns, unit_column)
        case [*_, ".npz"]:
            return _array_table(path, _read_npz(path), columns, unit_column)
        case [*_, ".csv"] | [*_, ".csv", ".gz"]:
            return _csv_table(path, delimiter or ",", encoding)
        case [*_, ".tsv"] | [*_, ".tsv", ".gz"]:
            return _csv_table(path, delimiter or "\t", encoding)
        case [*_, ".parquet"]:
            return _parquet_table(path)
    raise BadData(f"{path} is none of .npy, .npz, .csv, .csv.gz, .tsv, .tsv.gz and .parquet")


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The table of an archive as `data`, and the arrays that describe it."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        tables = [key for key in archive.files if key not in _DESCRIBING]
        named = [key for key in ("data", "X") if key in tables]
        if not named and len(tables) != 1:
            raise BadData(f"{path} holds no array, or several, none of which is called data or X")
        keys = {"data": (named or tables)[0]} | {key: key for key in _DESCRIBING}
        return {name: np.asarray(archive[key]) for name, key in keys.items() if key in archive.files}


def _array_table(
    path: Path, held: Mapping[str, NDArray[Any]], columns: Sequence[str] | None, unit_column: str | None
) -> Table:
    """Table of a NumPy array.

    Parameters
    ----------
    path : Path
        For messages.
    held : mapping
        Array `data` of one, two or three dimensions, and arrays that describe it.
    columns, unit_column
        As in `open_table`.
    """
    data, labels = held["data"], held.get("units")
    if data.dtype.kind not in "biuf":
        raise BadData(f"{path} holds values that are not real numbers")
    if data.ndim not in (1, 2, 3) or data.size == 0:
        raise BadData(f"{path} holds an array that is not rows and columns, or empty", detail=f"shape {data.shape}")
    # Three dimensions are (units, rows, columns).
    array = data[:, None] if data.ndim == 1 else data.reshape(-1, data.shape[-1])
    size, width = array.shape
    offsets = _unit_offsets(path, held, size)
    runs = _runs(path, held, offsets, size)
    if unit_column is not None and (offsets is not None or ("units" in held and unit_column != "units")):
        raise BadData(f"{path} says itself which rows make a unit, so column {unit_column!r} cannot")
    names = _array_names(path, held.get("columns"), width, columns, unit_column)
    if labels is not None:
        if labels.shape != (size,) or labels.dtype.kind not in "biufU" or offsets is not None:
            raise BadData(f"the units of {path} must be one label for each of its rows, without offsets")
        names += ("units",)

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        for start in range(0, size, _BATCH_ROWS):
            some = slice(start, start + _BATCH_ROWS)
            yield [array[some, at] if at < width or labels is None else labels[some] for at in positions]

    usable = array.dtype in (np.float32, np.float64)
    return Table(names, batches, array if usable else None, offsets, None if labels is None else "units", runs)


def _unit_offsets(path: Path, held: Mapping[str, NDArray[Any]], size: int) -> NDArray[np.int64] | None:
    """First row of each unit and the number of rows: from a third dimension, or from `offsets`."""
    data = held["data"]
    if "offsets" not in held:
        return np.arange(0, size + 1, data.shape[1], dtype=np.int64) if data.ndim == 3 else None
    if data.ndim == 3:
        raise BadData(f"{path} has offsets, but its third dimension says already which rows make a unit")
    return _bounds(path, "offsets", held["offsets"], size)


def _runs(path: Path, held: Mapping[str, NDArray[Any]], offsets: NDArray[np.int64] | None, size: int) -> Runs | None:
    """Recordings from `run_offsets` (default: one per unit), with the sampling intervals `seconds`."""
    seconds = held.get("seconds")
    if seconds is None:
        if "run_offsets" in held:
            raise BadData(f"{path} has run_offsets but no seconds between the rows of a run")
        return None
    if offsets is None:
        raise BadData(f"{path} has seconds between rows but no offsets: where each unit's rows begin, and the end")
    bounds = _bounds(path, "run_offsets", held["run_offsets"], size) if "run_offsets" in held else offsets
    if not np.isin(offsets, bounds).all():
        raise BadData(f"a run of {path} must lie within the rows of one unit: every unit begins with a run")
    if seconds.dtype.kind not in "iuf" or seconds.shape not in ((), (len(bounds) - 1,)):
        raise BadData(f"the seconds of {path} must be one number, or one for each of its runs")
    return Runs(bounds, np.broadcast_to(seconds, (len(bounds) - 1,)).astype(np.float64))


def _bounds(path: Path, name: str, given: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Validate offsets: increasing integers from 0 to the number of rows."""
    whole = given.dtype.kind in "iu" and given.ndim == 1 and len(given) > 1
    if not whole or given[0] != 0 or given[-1] != size or np.any(given[1:] <= given[:-1]):
        raise BadData(f"the {name} of {path} must be rising whole numbers from 0 to its number of rows")
    return given.astype(np.int64)


def _array_names(
    path: Path, own: NDArray[Any] | None, width: int, columns: Sequence[str] | None, unit_column: str | None
) -> tuple[str, ...]:
    """Column names: the file's own, else the caller's if it names all columns, else positions."""
    if own is not None:
        if own.shape != (width,) or own.dtype.kind != "U":
            raise BadData(f"the columns of {path} must be {width} names")
        return tuple(str(name).strip() for name in own)
    names = tuple(str(at) for at in range(width))
    if columns is None or any(name.isdecimal() for name in columns):
        return names
    free = width - (unit_column in names)
    if len(columns) != free:
        raise BadData(
            f"{path} has columns without names, and another number of them than the {len(columns)} names given",
            detail=f"it has {free}; rows and columns may be exchanged",
        )
    new = iter(columns)
    return tuple(name if name == unit_column else next(new) for name in names)


def _csv_table(path: Path, delimiter: str, encoding: str | None) -> Table:
    """Table of a delimited text file with a header. The file is opened again for every pass."""
    raw: list[BinaryIO] = []  # the binary file, whose position gives the progress
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise BadParameter(f"a delimiter is one character, got {delimiter!r}")
    try:
        known = "utf-8-sig" if encoding is None else codecs.lookup(encoding).name
    except LookupError:
        raise BadParameter(f"there is no encoding {encoding!r}; there are utf-8, latin-1, cp1252 and others") from None

    @contextmanager
    def opened() -> Iterator[TextIO]:
        with path.open("rb") as file:
            raw[:] = [file]
            stream = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
            with io.TextIOWrapper(cast(BinaryIO, stream), encoding=known, newline="") as text:
                yield text

    with _decodable(path, known), opened() as file:
        first = file.readline()
        file.seek(0)
        names = tuple(name.strip() for name in next(csv.reader(file, delimiter=delimiter, strict=True), []))
    others = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
    if len(names) == 1 and (between := [mark for mark in others if mark != delimiter and mark in first]):
        raise BadData(
            f"the first line of {path} has {others[between[0]]} and no {others.get(delimiter, repr(delimiter))}: say "
            f"delimiter = {json.dumps(between[0])} where the site's data are named (zerosum describe: --delimiter)"
        )
    if not any(names):
        raise BadData(f"{path} is empty, or its first line is")
    if all(np.isfinite(number(name)) for name in names):
        raise BadData(f"the first line of {path} holds numbers where the columns' names should be")

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        with readable(path), _decodable(path, known), opened() as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            next(reader)
            rows = (row for row in reader if not blank(row, reader.line_num))
            while some := list(islice(rows, _BATCH_ROWS)):
                yield [[row[at] for row in some] for at in positions]

    def blank(row: list[str], line: int) -> bool:
        """Whether a row is an empty line. Raises `BadData` for another number of cells than the header."""
        if len(row) != len(names) and (row or len(names) == 1):
            detail = f"line {line} has {len(row)} cells, the header {len(names)}"
            raise BadData(f"some line of {path} has more or fewer cells than its header", detail=detail)
        return not row

    def progress() -> tuple[int, int]:
        return (raw[0].tell() if raw and not raw[0].closed else 0), max(path.stat().st_size, 1)

    return Table(names, batches, progress=progress)


@contextmanager
def _decodable(path: Path, encoding: str) -> Iterator[None]:
    """Convert decoding errors to `BadData` with the setting to change."""
    try:
        yield
    except UnicodeDecodeError:
        name = "UTF-8" if encoding.startswith("utf-8") else encoding
        raise BadData(
            f'{path} is not {name} text: say encoding = "latin-1", or what else it is, where the site\'s data are '
            "named (zerosum describe: --encoding)"
        ) from None


def _parquet_table(path: Path) -> Table:
    """Table of a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BadData(f"to read {path}, install pyarrow: pip install zerosum[parquet]") from None
    kinds, damage = pa.types, pa.ArrowException

    with readable(path, damage), pq.ParquetFile(path) as file:
        names = tuple(file.schema_arrow.names)

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        wanted = [names[at] for at in positions]
        with readable(path, damage), pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                yield [cells(batch.column(name), name) for name in wanted]

    def cells(column: Any, name: str) -> Cells:
        if kinds.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        # Decoding depends on the column's type only, and not on the presence of nulls. Otherwise one person's null
        # would change how other cells are read (as the number 1 or as the text "True", for example).
        if kinds.is_floating(kind):
            return np.asarray(column.to_numpy(zero_copy_only=False))  # nulls become NaN
        if kinds.is_boolean(kind) or kinds.is_integer(kind):
            return np.array([np.nan if cell is None else cell for cell in column.to_pylist()], dtype=object)
        if str(kind).startswith(("string", "large_string", "decimal", "null")):
            return ["" if cell is None else str(cell) for cell in column.to_pylist()]
        raise BadData(f"column {name!r} of {path} holds neither numbers nor text")

    return Table(names, batches)
