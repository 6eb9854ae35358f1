"""File formats of tables (NPY, NPZ, CSV, TSV, Parquet, Arrow): named columns that are read in batches of rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import lzma
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Runs
from zerosum.errors import BadData, BadParameter, ZerosumError

Cells: TypeAlias = "Text | NDArray[Any]"  # some rows of one column, as text or numbers

# Rows per batch of formats other than text. Chosen by hand; no benchmark recorded.
_BATCH_ROWS = 1 << 14
# Cells per batch of Parquet and Arrow files (32 MB of doubles), and the largest number of rows. Chosen by hand; no
# benchmark recorded.
_BATCH_CELLS = 1 << 22
_MOST_BATCH_ROWS = 1 << 17
# Characters of text per batch: the first, then twice as many each time up to the largest, which grows with the number
# of columns. Small blocks report progress early; large ones have less overhead per column (benchmarks/csv_reading.py).
_FIRST_BLOCK = 1 << 14
_BLOCK_BYTES = 1 << 22
_BLOCK_BYTES_PER_COLUMN = 1 << 13
# Cells of a column that are searched for words. Chosen by hand; it has no effect on values.
_SAMPLE_CELLS = 1 << 10
# Numbers that pyarrow reads. Others are left to `number`.
_PLAIN_NUMBER = r"\A-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][-+]?[0-9]{1,2})?\z"
_EMPTY_LINE = re.compile(rb"\A[\r\n]|\n[\r\n]|\r\r")
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
        # The text of a library's error may quote cells; its class and the reason given by the system do not.
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


class Text:
    """Cells of one column as text. No Python object per cell is created, only one per distinct cell where needed.

    Parameters
    ----------
    strings : pyarrow.StringArray
        The cells, without nulls.
    """

    def __init__(self, strings: Any) -> None:
        self.strings = strings

    @classmethod
    def of(cls, cells: Sequence[str]) -> Text:
        """Text of a sequence of strings. A lone surrogate, which UTF-8 cannot encode, is written as an escape."""
        import pyarrow as pa

        try:
            return cls(pa.array(cells, pa.string()))
        except UnicodeEncodeError:
            return cls(pa.array([cell.encode("utf-8", "backslashreplace") for cell in cells], pa.string()))

    def __len__(self) -> int:
        return len(self.strings)

    def numbers(self) -> NDArray[np.float64]:
        """The finite number in each cell, or NaN: `number` of every cell, to the bit."""
        import pyarrow as pa
        from pyarrow import compute

        # Pyarrow accepts fewer spellings than `number`: no spaces, no sign "+", no digits outside ASCII. It refuses
        # the whole column if it refuses one cell. Both parsers round to the nearest double.
        try:
            values = np.array(self.strings.cast(pa.float64()))
        except pa.ArrowInvalid:
            # A search for a few words is faster than a pattern: mostly, all cells without a number are a few tokens
            # for missing values that occur at the beginning already. Both ways give the same values.
            first = self.strings[:_SAMPLE_CELLS]
            words = first.filter(compute.invert(compute.match_substring_regex(first, _PLAIN_NUMBER))).unique()
            plain = compute.invert(compute.is_in(self.strings, value_set=words))
            try:
                some = self.strings.filter(plain).cast(pa.float64())
            except pa.ArrowInvalid:
                plain = compute.match_substring_regex(self.strings, _PLAIN_NUMBER)
                some = self.strings.filter(plain).cast(pa.float64())
            there, values = np.asarray(plain), np.empty(len(self))
            values[there] = some
            codes, cells = self.distinct(np.flatnonzero(~there))
            values[~there] = np.array([number(cell) for cell in cells], dtype=np.float64)[codes]
        # Like `number`, which returns NaN for "inf" and for numbers beyond the largest double.
        values[~np.isfinite(values)] = np.nan
        return values

    def distinct(self, rows: NDArray[np.intp] | None = None) -> tuple[NDArray[np.intp], list[str]]:
        """Distinct cells of these rows (default: of all) in order of first appearance, and the index of each row's
        cell among them."""
        import pyarrow as pa

        chosen = self.strings if rows is None else self.strings.take(pa.array(rows))
        encoded = chosen.dictionary_encode()
        return np.asarray(encoded.indices).astype(np.intp), encoded.dictionary.to_pylist()


def distinct(cells: Cells, rows: NDArray[np.intp] | None = None) -> tuple[NDArray[np.intp], list[Any]]:
    """Distinct cells in order of first appearance, and their index by row.

    A decision for each distinct cell is the same as a decision for each cell.

    Parameters
    ----------
    cells : Cells
        Some rows of a column.
    rows : array of int, optional
        Positions of the cells to use. Default: all.
    """
    if isinstance(cells, Text):
        return cells.distinct(rows)
    places: dict[Any, int] = {}
    chosen = (cells if rows is None else cells[rows]).tolist()
    codes = np.array([places.setdefault(cell, len(places)) for cell in chosen], dtype=np.intp)
    return codes, list(places)


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
    if path.is_dir() and (parts := parquet_files(path)):
        return _parquet_table(parts, path)
    if not path.is_file():
        raise BadData(f"there is no file {path}")
    match [suffix.lower() for suffix in path.suffixes]:
        case [*_, ".npy"]:
            # Memory-mapped: a table larger than memory can be read in blocks.
            held = {"data": np.lib.format.open_memmap(path, mode="r")}
            return _array_table(path, held, columns, unit_column)
        case [*_, ".npz"]:
            return _array_table(path, _read_npz(path), columns, unit_column)
        case [*_, ".csv"] | [*_, ".csv", ".gz"]:
            return _csv_table(path, delimiter or ",", encoding)
        case [*_, ".tsv"] | [*_, ".tsv", ".gz"]:
            return _csv_table(path, delimiter or "\t", encoding)
        case [*_, ".parquet"]:
            return _parquet_table([path], path)
        case [*_, ".arrow" | ".feather"]:
            return _arrow_table(path)
    raise BadData(f"{path} is none of .npy, .npz, .csv, .csv.gz, .tsv, .tsv.gz, .parquet, .arrow and .feather")


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder, in the order of their names; empty if it holds none."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".parquet" and path.is_file())


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The table of an archive as `data`, and the arrays that describe it."""
    # No pickles: loading one runs code that the file contains.
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
    """First row of each unit and the number of rows: from a third dimension, or from `offsets`.

    Parameters
    ----------
    path : Path
        For messages.
    held : mapping
        The arrays of the file.
    size : int
        Number of rows.
    """
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
    # Methods for recordings treat a run as one unit's rows. A run across two units would mix two people.
    if not np.isin(offsets, bounds).all():
        raise BadData(f"a run of {path} must lie within the rows of one unit: every unit begins with a run")
    if seconds.dtype.kind not in "iuf" or seconds.shape not in ((), (len(bounds) - 1,)):
        raise BadData(f"the seconds of {path} must be one number, or one for each of its runs")
    return Runs(bounds, np.broadcast_to(seconds, (len(bounds) - 1,)).astype(np.float64))


def _bounds(path: Path, name: str, given: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Validate offsets: increasing integers from 0 to the number of rows."""
    # Strictly increasing: an empty unit has no rows from which a statistic could be computed.
    whole = given.dtype.kind in "iu" and given.ndim == 1 and len(given) > 1
    if not whole or given[0] != 0 or given[-1] != size or np.any(given[1:] <= given[:-1]):
        raise BadData(f"the {name} of {path} must be rising whole numbers from 0 to its number of rows")
    return given.astype(np.int64)


def _array_names(
    path: Path, own: NDArray[Any] | None, width: int, columns: Sequence[str] | None, unit_column: str | None
) -> tuple[str, ...]:
    """Column names: the file's own, else the caller's if it names all columns, else positions.

    Parameters
    ----------
    path : Path
        For messages.
    own : array or None
        Names in the file.
    width : int
        Number of columns.
    columns : sequence of str or None
        Columns that the caller reads.
    unit_column : str or None
        Column with the owner of each row.
    """
    if own is not None:
        if own.shape != (width,) or own.dtype.kind != "U":
            raise BadData(f"the columns of {path} must be {width} names")
        return tuple(str(name).strip() for name in own)
    names = tuple(str(at) for at in range(width))
    # A decimal name is a position. Otherwise the names are given in the order of the columns.
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
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise BadParameter(f"a delimiter is one character, got {delimiter!r}")
    try:
        known = "utf-8-sig" if encoding is None else codecs.lookup(encoding).name
    except LookupError:
        raise BadParameter(f"there is no encoding {encoding!r}; there are utf-8, latin-1, cp1252 and others") from None
    file = _DelimitedFile(path, delimiter, known)
    first, file.names = file.header()
    others = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
    if len(file.names) == 1 and (between := [mark for mark in others if mark != delimiter and mark in first]):
        raise BadData(
            f"the first line of {path} has {others[between[0]]} and no {others.get(delimiter, repr(delimiter))}: say "
            f"delimiter = {json.dumps(between[0])} where the site's data are named (zerosum describe: --delimiter)"
        )
    if not any(file.names):
        raise BadData(f"{path} is empty, or its first line is")
    # A first line of numbers is a person's record, and its cells would be published as names of columns.
    if all(np.isfinite(number(name)) for name in file.names):
        raise BadData(f"the first line of {path} holds numbers where the columns' names should be")
    return Table(file.names, file.batches, progress=file.progress)


class _DelimitedFile:
    """Reader of a delimited text file.

    The grammar is that of `csv.reader` with `strict=True` (`_rows`). It is read by pyarrow, which creates no Python
    object per cell. Pyarrow accepts more than the strict grammar, names no line in an error and needs whole records,
    so this class

    - cuts the text into blocks of whole records (`_blocks`),
    - reads the file with `csv.reader` if a block may be at fault, so that the error is that of the first fault.

    Parameters
    ----------
    path : Path
        The file; a name that ends in .gz is decompressed.
    delimiter : str
        One character.
    encoding : str
        Name of a Python codec.
    """

    names: tuple[str, ...] = ()

    def __init__(self, path: Path, delimiter: str, encoding: str) -> None:
        self.path, self.delimiter, self.encoding = path, delimiter, encoding
        self._raw: BinaryIO | None = None  # the binary file, whose position gives the progress
        # A record as `csv.reader` reads it: a quoted cell ends before a delimiter or a line end. The quantifiers are
        # possessive: without backtracking, the time is linear in the length of the text.
        mark = re.escape(delimiter.encode("utf-8"))
        cell = rb'(?:"[^"]*+(?:""[^"]*+)*+"|(?!")[^\r\n' + mark + rb"]*+)"
        # A carriage return at the end of a block may be the first half of a line end.
        ends = rb"(?:\n|\r\n|\r(?=[^\n]))"
        self._records = re.compile(rb"(?:(?>" + cell + rb"(?:" + mark + cell + rb")*+" + ends + rb"))*+")

    @contextmanager
    def _opened(self) -> Iterator[TextIO]:
        """The file as text from its beginning, decompressed. Each pass opens it again."""
        with self.path.open("rb") as file:
            self._raw = file
            stream = gzip.GzipFile(fileobj=file) if self.path.suffix.lower() == ".gz" else file
            # newline="": line ends within quoted cells are part of the cell and must not be translated.
            with io.TextIOWrapper(cast(BinaryIO, stream), encoding=self.encoding, newline="") as text:
                yield text

    def _reader(self, lines: Iterable[str]) -> Any:
        """The definition of the grammar."""
        return csv.reader(lines, delimiter=self.delimiter, strict=True)

    def header(self) -> tuple[str, tuple[str, ...]]:
        """First line, and the names of the columns."""
        with _decodable(self.path, self.encoding), self._opened() as file:
            first = file.readline()
            file.seek(0)
            return first, tuple(name.strip() for name in next(self._reader(file), []))

    def progress(self) -> tuple[int, int]:
        """Bytes read in this pass, and the size of the file."""
        done = 0 if self._raw is None or self._raw.closed else self._raw.tell()
        return done, max(self.path.stat().st_size, 1)

    def batches(self, positions: Sequence[int]) -> Iterator[list[Cells]]:
        """Cells of the columns at these positions, as `Table.batches`."""
        with readable(self.path), _decodable(self.path, self.encoding):
            if not self.delimiter.isascii():  # pyarrow takes a delimiter of one byte only
                rows = self._rows()
                while some := list(islice(rows, _BATCH_ROWS)):
                    yield [Text.of([row[at] for row in some]) for at in positions]
                return
            checked, fault = False, None
            blocks = self._blocks()
            while True:
                batch = None
                try:
                    if (block := next(blocks, None)) is None:
                        return
                    suspicious = block.incomplete or self._may_be_faulty(block.text)
                    if block.text.strip(b"\r\n"):
                        batch = self._parse(block.text, positions)
                except _DAMAGE as error:
                    fault = error
                # After the handler: the text of a library's error quotes cells, and must not become the context of
                # the error that is raised here.
                if (fault or suspicious) and not checked:
                    for _row in self._rows():
                        pass
                    checked = True
                if fault is not None:
                    raise fault
                if batch is not None:
                    yield batch

    def _rows(self) -> Iterator[list[str]]:
        """All rows of the data by `csv.reader`, without empty lines. Raises `BadData` for another number of cells than
        the header has."""
        width = len(self.names)
        with self._opened() as file:
            reader = self._reader(file)
            next(reader)
            for row in reader:
                # In a table of one column an empty line may be a missing value or no row at all.
                if len(row) != width and (row or width == 1):
                    detail = f"line {reader.line_num} has {len(row)} cells, the header {width}"
                    raise BadData(f"some line of {self.path} has more or fewer cells than its header", detail=detail)
                if row:
                    yield row

    def _blocks(self) -> Iterator[_Block]:
        """The data as UTF-8 text in blocks of whole records."""
        largest = _BLOCK_BYTES + _BLOCK_BYTES_PER_COLUMN * len(self.names)
        rest, size = b"", _FIRST_BLOCK
        with self._opened() as file:
            next(self._reader(file))
            while text := file.read(size):
                # Some codecs decode to lone surrogates, which UTF-8 cannot encode.
                rest += text.encode("utf-8", "backslashreplace")
                end = self._end(rest)
                # Without a whole record the next part is larger, so that a long record is scanned only a few times.
                yield _Block(rest[:end], incomplete=end == 0)
                rest = rest[end:]
                size = min(2 * size, largest) if end else 2 * size
        if rest:
            rest += b"\n"  # the last line end is optional
            yield _Block(rest, incomplete=self._end(rest) < len(rest))

    def _end(self, text: bytes) -> int:
        """End of the last whole record of a text that begins with a record."""
        if b'"' not in text:
            return max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
        found = self._records.match(text)
        return 0 if found is None else found.end()

    def _may_be_faulty(self, text: bytes) -> bool:
        """Whether records that pyarrow accepts may be refused by `csv.reader`: an empty line in a table of one column,
        or a cell longer than `csv.field_size_limit`. A block of few bytes per line has neither."""
        if len(self.names) == 1 and _EMPTY_LINE.search(text):
            return True
        # A cell longer than the limit covers one of these windows. In a block with quotes a window without a single
        # quote may lie in one quoted cell.
        quoted, width = b'"' in text, csv.field_size_limit() // 2
        for start in range(0, len(text) - width + 1, width):
            ends = text.find(b"\n", start, start + width) >= 0 or text.find(b"\r", start, start + width) >= 0
            if not ends or (quoted and b'"' not in text[start + 1 : start + width - 1].replace(b'""', b"")):
                break
        else:
            return False
        try:
            for _row in self._reader(io.StringIO(text.decode("utf-8"), newline="")):
                pass
        except csv.Error:
            return True
        return False

    def _parse(self, text: bytes, positions: Sequence[int]) -> list[Cells]:
        """Columns of a block of whole records."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        # Positions as names, since names of a header may be equal.
        names = [str(at) for at in range(len(self.names))]
        wanted = [names[at] for at in positions]
        # Copied to memory of Arrow. Memory of Python would be released by a thread of Arrow, which has to wait for the
        # interpreter: if that is ending, the process is aborted ("terminate called without an active exception").
        buffer = pa.BufferOutputStream()
        buffer.write(text)
        table = arrow_csv.read_csv(
            pa.BufferReader(buffer.getvalue()),
            # One block: pyarrow refuses a record that is longer than its block.
            arrow_csv.ReadOptions(column_names=names, block_size=len(text) + 1),
            arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=b'"' in text),
            # Text without inference of types or nulls. Otherwise one person's cell would decide how the cells of
            # other people in the same block are read.
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
                null_values=[],
                check_utf8=False,
            ),
        )
        return [Text(table.column(name).combine_chunks()) for name in wanted]


def tsv_rows(path: Path, called: str | None = None) -> Generator[list[str], None, None]:
    """Yield the lines of a small table of a BIDS data set, header first, as lists of cells.

    Parameters
    ----------
    path : Path
        Tab-separated text in UTF-8.
    called : str, optional
        As in `readable`.
    """
    # utf-8-sig accepts files with and without a byte order mark.
    with readable(path, called=called), path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(file, delimiter="\t", strict=True)


@dataclass(frozen=True)
class _Block:
    """Part of a delimited file."""

    text: bytes  # whole records, UTF-8
    incomplete: bool  # no record ends in the text read so far: it is long, or a quote is not closed


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


def _parquet_table(files: Sequence[Path], called: Path) -> Table:
    """Table of Parquet files with the same columns, one after the other.

    Parameters
    ----------
    files : sequence of Path
        The files.
    called : Path
        The file, or the folder of the files, in messages.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas = []
    for path in files:
        with readable(called, pa.ArrowException), pq.ParquetFile(path) as file:
            schemas.append(file.schema_arrow.remove_metadata())
    first = schemas[0]
    # Types decide how cells are read, so that they must be the same for all people.
    if at := next((at for at, schema in enumerate(schemas) if not schema.equals(first)), 0):
        raise BadData(f"the files of {called} differ in their columns or types", detail=files[at].name)

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        wanted = [first.names[at] for at in positions]
        rows = _batch_rows(len(wanted))
        for path in files:
            with readable(called, pa.ArrowException), pq.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(rows, columns=list(dict.fromkeys(wanted))):
                    yield [arrow_cells(batch.column(name), f"column {name!r} of {called}") for name in wanted]

    return Table(tuple(first.names), batches)


def _arrow_table(path: Path) -> Table:
    """Table of an Arrow file (also called Feather), in its file or stream format."""
    import pyarrow as pa

    @contextmanager
    def opened() -> Iterator[tuple[Any, Iterator[Any]]]:
        with readable(path, pa.ArrowException), pa.memory_map(str(path)) as file:
            if file.read(6) == b"ARROW1":  # the file format; a stream begins with the length of a message
                with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
                    yield reader.schema, (reader.get_batch(at) for at in range(reader.num_record_batches))
            else:
                file.seek(0)
                with pa.ipc.open_stream(file) as reader:
                    yield reader.schema, iter(reader)

    with opened() as (schema, _):
        names = tuple(schema.names)

    def batches(positions: Sequence[int]) -> Iterator[list[Cells]]:
        wanted = [names[at] for at in positions]
        rows = _batch_rows(len(wanted))
        with opened() as (_, each):
            for batch in each:
                for start in range(0, batch.num_rows, rows):
                    some = batch.slice(start, rows)
                    # By position, since names may be equal.
                    columns = zip(positions, wanted, strict=True)
                    yield [arrow_cells(some.column(at), f"column {name!r} of {path}") for at, name in columns]

    return Table(names, batches)


def _batch_rows(columns: int) -> int:
    """Rows of a batch: `_BATCH_CELLS` cells, within limits."""
    return max(_BATCH_ROWS, min(_MOST_BATCH_ROWS, _BATCH_CELLS // max(1, columns)))


def arrow_cells(column: Any, called: str) -> Cells:
    """Cells of an Arrow column: numbers, with NaN where they are missing, or text, with "" where it is missing; dates
    as text, "1970-04-03".

    Decoding depends on the type of the column only, and not on the presence of nulls. Otherwise one person's null would
    change how other cells are read (as the number 1 or as the text "True", for example).

    Parameters
    ----------
    column : pyarrow.Array or pyarrow.ChunkedArray
        The column, or some rows of it.
    called : str
        Description in messages.
    """
    import pyarrow as pa

    kinds = pa.types
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):  # exact decimals of PostgreSQL, as text
        column = column.storage
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if kinds.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False))  # nulls become NaN
    if kinds.is_boolean(kind) or kinds.is_integer(kind):
        try:
            # Exact: a safe cast fails for a whole number beyond 2^53, which a double may not represent.
            return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
        except pa.ArrowInvalid:
            # As Python's whole numbers: each cell is read as it would be above if all were small.
            return np.array([np.nan if cell is None else cell for cell in column.to_pylist()], dtype=object)
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        # Days as text, for the setting `date`. A time zone is one of the column.
        return Text(column.cast(pa.date32(), safe=False).cast(pa.string()).fill_null(""))
    if kinds.is_decimal(kind) or str(kind) in ("string", "large_string", "string_view", "null"):
        return Text(column.cast(pa.string()).fill_null(""))
    raise BadData(f"{called} holds neither numbers nor text")
