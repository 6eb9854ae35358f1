"""One site's records, from a file into `Units`: .npy, .npz, .csv, .csv.gz and .parquet.

A cell can be unfit in three ways (`CellFault`): a value is missing and its column has no rule for that, a cell of a
column of numbers is no finite number, or a value is none of the categories that the caller names. What becomes of such
a cell is the same everywhere:

- In a column of numbers it becomes NaN. A unit that cannot be computed with counts as a unit of zeros.
- A category that the caller does not name is "other or missing": it counts in no category. It becomes NaN, and where
  missing values of the column have a rule, `OTHER`, so that the rule does not apply to it.

At the desk of the data's owner such cells are errors: `load_units` raises `BadData`. A site that serves a coordinator
passes a list instead (`faults`), to which they are added, and loads the table all the same: the coordinator chooses the
columns, categories and tokens, and must not learn from a refusal what a cell holds.

A message names the file, the column and the kind of fault, never a cell, a row or a count. Which row it was is the
error's `detail`, which stays here. A column is called by its name only where the caller gave that name (the first line
of a file without a header is a record), and the text of a library's error is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zerosum.data.formats import Cells, Table, number, open_table, readable
from zerosum.data.frames import array_table, frame_table, is_frame
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.missing import refusal
from zerosum.kernel.units import Units

Category: TypeAlias = str | float | bool
Lookup: TypeAlias = Mapping[str | float, int]  # what a cell may say, and the category it means
Floats: TypeAlias = NDArray[np.float64]
Categories: TypeAlias = Mapping[str, Sequence[Category]]
Labels: TypeAlias = Mapping[str, Mapping[str, Category]]  # by column, what a file's own label means
OnScan: TypeAlias = Callable[[int, int], None]  # how much of how much was read
Tokens: TypeAlias = Sequence[str | float] | Mapping[str, Sequence[str | float]]  # for all columns, or by column

FaultKind: TypeAlias = Literal["missing", "unreadable", "other"]  # no rule; no finite number; no named category

OTHER = -1.0  # the code of a category that the caller does not name, where missing values have a rule of their own


@dataclass(frozen=True)
class CellFault:
    """The first unfit cell of its kind in a column; for the owner of the data only."""

    column: str  # as messages call it
    kind: FaultKind
    sentence: str
    row: int  # of the data, counted from 1


@dataclass(frozen=True, eq=False)
class TableData:
    """A site's units, and the names of their columns in order."""

    units: Units
    columns: tuple[str, ...]


def load_units(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    unit_column: str | None = None,
    categories: Mapping[str, Sequence[Category]] | None = None,
    missing: Collection[str] = (),
    missing_tokens: Tokens = (),
    delimiter: str | None = None,
    encoding: str | None = None,
    labels: Labels | None = None,
    on_scan: OnScan | None = None,
    faults: list[CellFault] | None = None,
) -> TableData:
    """Load one site's records, or raise `BadData`, which says everything that is wrong with the file.

    Parameters
    ----------
    path
        `.npy`: numbers of shape (rows,), (rows, columns) or (units, rows, columns), memory-mapped, and not
        copied if they are float32 or float64 and all are read as they are. `.npz`: such an array as `data` or
        `X` or alone, with optional `columns` (their names) and `units` (a label per row) or `offsets` (where
        each unit's rows begin, and the end), and for rows in order of time `seconds` between them and
        `run_offsets` (where each recording begins, and the end). `.csv`, `.csv.gz`: UTF-8, commas, a header.
        `.parquet`: columns of numbers, booleans or text.
    columns
        The columns to read, in this order; None: all but the unit column, in the file's order. An array's
        columns without names are "0", "1" and so on, or, all of them at once, what they are called here.
    unit_column
        Rows with the same label in this column are one unit; None: every row is, unless an array says more.
    categories
        Values of these columns become their index in the declared list. Numbers compare as numbers: "1" and
        1.0 are both 1.
    missing
        The columns in which values may be missing, which become NaN: those that have a rule. Missing are empty cells
        and NaN, and what `missing_tokens` say.
    missing_tokens
        What else a missing value may be written as ("NA", "?", -9), in all columns or by column. Numbers compare as
        numbers, and a declared category is never a token.
    delimiter, encoding
        Of text files: by default commas, in .tsv files tabs, and UTF-8.
    labels
        What a file's own labels mean, by column: `{"sex": {"w": "f"}}` reads "w" as the declared category "f".
    on_scan
        Called with how much of how much was read.
    faults
        A list to which unfit cells are added, the first of each kind in each column; no cell then raises an error.
        Labels for categories that are not declared are skipped, too.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "visits.csv")
    ...     _ = path.write_text("person,sex,age\\nann,f,71\\nbob,m,64\\nann,f,72\\n")
    ...     sex = {"sex": ["f", "m"]}
    ...     loaded = load_units(path, columns=["age", "sex"], unit_column="person", categories=sex)
    >>> loaded.columns, [rows.tolist() for rows in loaded.units.each()]
    (('age', 'sex'), [[[71.0, 0.0], [72.0, 0.0]], [[64.0, 1.0]]])
    """
    lookups = _lookups(categories, labels, strict=faults is None)
    with readable(path):
        table = open_table(path, columns, unit_column, delimiter, encoding)
    return _loaded(str(path), table, columns, unit_column, lookups, missing, missing_tokens, on_scan, faults)


def check_reading(columns: Sequence[str], unit_column: str | None, categories: Categories) -> None:
    """Refuse a wish to read that no table could fulfil: no columns, a column twice, categories that are not different.
    No file is opened."""
    wanted = columns if unit_column is None else [*columns, unit_column]
    if not columns or len(set(wanted)) < len(wanted):
        raise BadParameter("there must be columns to read, and they and the unit column must all differ")
    if stray := categories.keys() - set(columns):
        raise BadParameter(f"categories are declared for {min(stray)!r}, which is not a column to read")
    _lookups(categories, None)


def units_of(
    data: Any,
    called: str,
    *,
    columns: Sequence[str],
    categories: Categories | None = None,
    missing: Collection[str] = (),
) -> Units:
    """One site's records from a frame (pandas, polars, Arrow), or from an array that holds text, as from a file."""
    table = frame_table(data, called) if is_frame(data) else array_table(data, columns, called)
    if table.names == ("",) and len(columns) == 1:
        table = replace(table, names=tuple(columns))
    return _loaded(called, table, columns, None, _lookups(categories, None), missing, (), None, None).units


def _loaded(
    path: str,
    table: Table,
    columns: Sequence[str] | None,
    unit_column: str | None,
    lookups: Mapping[str, Lookup],
    missing: Collection[str],
    missing_tokens: Tokens,
    on_scan: OnScan | None,
    faults: list[CellFault] | None,
) -> TableData:
    owner = unit_column or table.unit_column
    chosen, unit = _choose(path, table.names, columns, owner, lookups, missing, missing_tokens)
    found: list[CellFault] = []
    units = _units(path, table, chosen, unit, on_scan, found)
    names = tuple(table.names[column.position] for column in chosen)
    if faults is not None:
        faults += found
        return TableData(units, names)
    raise_faults(found)
    try:
        called = [column.called.removesuffix(f" of {path}") for column in chosen]
        units.check([at for at, column in enumerate(chosen) if column.optional], called)
    except BadData as error:
        raise error.about(str(path)) from None
    return TableData(units, names)


def table_names(
    path: Path, unit_column: str | None = None, delimiter: str | None = None, encoding: str | None = None
) -> tuple[str, ...]:
    """The columns of a file but the one of units, in its order, from its header."""
    with readable(path):
        table = open_table(path, None, unit_column, delimiter, encoding)
    owner = unit_column or table.unit_column
    return tuple(name for name in table.names if name != owner)


@dataclass(frozen=True)
class _Column:
    position: int
    called: str  # in messages
    lookup: Lookup | None = None
    optional: bool = False  # whether values may be missing
    tokens: frozenset[str | float] = frozenset()  # what says so, beside empty cells and NaN

    def numbers(self, cells: Cells, before: int, faults: list[CellFault]) -> Floats:
        """The cells as numbers, or as indices of categories, NaN where they are missing or unfit (or `OTHER`); `before`
        rows came before. Unfit cells are added to `faults`, the first of each kind."""
        values = _numbers(cells) if self.lookup is None else _encode(cells, self.lookup)
        if self.lookup is None and self.tokens:
            values[np.isin(values, [each for each in self.tokens if isinstance(each, float)])] = np.nan
        unfit = np.flatnonzero(~np.isfinite(values))
        values[unfit] = np.nan  # infinite ones too
        known = {fault.kind for fault in faults if fault.column == self.called}
        for at, gone in zip(unfit.tolist(), self._missing(cells, unfit), strict=True):
            kind: FaultKind = "missing" if gone else "unreadable" if self.lookup is None else "other"
            if kind == "other" and self.optional:
                values[at] = OTHER
            if kind not in known and not (gone and self.optional):
                known.add(kind)
                faults.append(CellFault(self.called, kind, self._sentence(kind), before + at + 1))
        return values

    def _sentence(self, kind: FaultKind) -> str:
        match kind:
            case "missing":
                return refusal(self.called)
            case "other":
                return f"some values of {self.called} are outside the declared categories"
        return f"{self.called} is not a finite number in some row; `missing_tokens` may name words for missing values"

    def _missing(self, cells: Cells, which: NDArray[np.intp]) -> list[bool]:
        """Whether these cells say that a value is missing."""
        some = cells[which].tolist() if isinstance(cells, np.ndarray) else [cells[at].strip() for at in which]
        return [_nothing(cell) or cell in self.tokens or number(cell) in self.tokens for cell in some]

    def labels(self, cells: Cells, before: int, seen: dict[Any, int]) -> list[int]:
        """Each label's number in order of appearance."""
        codes = []
        for row, cell in enumerate(cells.tolist() if isinstance(cells, np.ndarray) else cells, before + 1):
            label = cell.strip() if isinstance(cell, str) else cell
            if label == "" or label != label:
                raise BadData(f"{self.called} says whose row it is, but is empty in some row", detail=f"data row {row}")
            codes.append(seen.setdefault(label, len(seen)))
        return codes


def _choose(
    path: str,
    names: Sequence[str],
    columns: Sequence[str] | None,
    unit: str | None,
    lookups: Mapping[str, Lookup],
    optional: Collection[str],
    tokens: Tokens,
) -> tuple[list[_Column], _Column | None]:
    """The columns to read, and the one that says whose row it is."""
    if len(set(names)) < len(names):
        raise BadData(f"two columns of {path} have the same name")
    chosen = [name for name in names if name != unit] if columns is None else list(columns)
    wanted = chosen if unit is None else [*chosen, unit]
    if not chosen:
        raise BadData(f"there are no columns to read in {path}")
    if columns is None and "" in chosen:
        raise BadData(f"column {names.index('') + 1} of {path} has no name: list the columns to read")
    if len(set(wanted)) < len(wanted):
        raise BadParameter("the columns to read and the unit column must all differ")
    known = set(names)
    if missing := [name for name in wanted if name not in known]:
        raise BadData(f"{path} has no column {' and no column '.join(map(repr, missing))}")
    if stray := lookups.keys() - chosen:
        raise BadParameter(f"categories are declared for {min(stray)!r}, which is not a column to read")

    if stray := set(optional) - set(chosen):
        raise BadParameter(f"values may be missing in {min(stray)!r}, which is not a column to read")
    if isinstance(tokens, Mapping) and (strangers := tokens.keys() - set(chosen)):
        raise BadParameter(f"tokens for missing values are given for {min(strangers)!r}, which is not a column to read")

    places = {name: at for at, name in enumerate(names)}

    def column(name: str) -> _Column:
        at = places[name]
        given = name == unit or name in lookups or columns is not None
        called = f"column {repr(name) if given else at + 1} of {path}"
        own = tokens.get(name, ()) if isinstance(tokens, Mapping) else tokens
        return _Column(at, called, lookups.get(name), name in optional, token_set(own))

    return [column(name) for name in chosen], None if unit is None else column(unit)


def _units(
    path: str,
    table: Table,
    columns: Sequence[_Column],
    unit: _Column | None,
    on_scan: OnScan | None,
    faults: list[CellFault],
) -> Units:
    positions = [column.position for column in columns]
    as_it_lies = unit is None and all(column.lookup is None and not column.tokens for column in columns)
    if table.array is not None and as_it_lies:
        whole = positions == list(range(table.array.shape[1]))
        return Units(table.array if whole else table.array[:, positions], table.offsets, table.runs)
    parts: list[list[Floats]] = [[] for _ in columns]
    labels: list[int] = []
    seen: dict[Any, int] = {}
    before, nameless = 0, None
    for batch in table.batches([*positions, unit.position] if unit else positions):
        for column, cells, part in zip(columns, batch, parts, strict=False):  # the labels come last
            part.append(column.numbers(cells, before, faults))
        if unit and nameless is None:
            try:
                labels += unit.labels(batch[-1], before, seen)
            except BadData as error:
                nameless = error
        before += len(batch[0])
        if on_scan is not None and table.progress is not None:
            on_scan(*table.progress())
    if nameless is not None:  # rows without an owner cannot be grouped by unit
        raise_faults(faults, nameless)
    if before == 0:
        raise BadData(f"{path} has no rows")
    rows = np.column_stack([np.concatenate(part) for part in parts])
    return Units.from_groups(rows, labels) if unit else Units(rows, table.offsets, table.runs)


def raise_faults(faults: Sequence[CellFault], last: BadData | None = None) -> None:
    """Raise one error that has the first fault of every column, and last the one of the unit column."""
    firsts = {fault.column: fault for fault in reversed(faults)}
    first_faults = [fault for fault in faults if firsts[fault.column] is fault]
    if len(first_faults) == 1 and last is None:
        raise BadData(first_faults[0].sentence, detail=f"data row {first_faults[0].row}")
    if not first_faults and last is not None:
        raise last
    if first_faults:
        sentences = [*(fault.sentence for fault in first_faults), *([] if last is None else [str(last)])]
        details = [f"{fault.column}: data row {fault.row}" for fault in first_faults]
        details += [] if last is None else [last.detail]
        raise BadData("; ".join(sentences), detail="; ".join(details))


def _numbers(cells: Cells) -> Floats:
    """The numbers that cells say, none of them finite for a cell that says none."""
    if isinstance(cells, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            return cells.astype(np.float64)
    if "_" not in "".join(cells):
        with suppress(ValueError):
            return np.array(cells, dtype=np.float64)
    return np.array([number(cell) for cell in cells])


def token_set(given: Sequence[str | float]) -> frozenset[str | float]:
    """What a cell may say when a value is missing: as text, and as a number where it is one."""
    words = [each.strip() if isinstance(each, str) else float(each) for each in given]
    numbers = [number(each) for each in words]
    return frozenset([*words, *(each for each in numbers if np.isfinite(each))])


def _nothing(cell: str | float) -> bool:
    return cell == "" or cell != cell or (isinstance(cell, str) and cell.lower() == "nan")


def _lookups(categories: Categories | None, labels: Labels | None, *, strict: bool = True) -> dict[str, Lookup]:
    """The cells that stand for each category: the declared ones, and the file's own labels. A label for a category that
    is not declared is an error, or (not `strict`) skipped."""
    lookups = {name: dict(_lookup(name, declared)) for name, declared in (categories or {}).items()}
    for name, meant in (labels or {}).items():
        if name not in lookups:  # a site's file serves many studies
            continue
        known = dict(lookups[name])
        for label, category in meant.items():
            index = known.get(category if isinstance(category, str) else number(category))
            if index is None and not strict:
                continue
            if index is None:
                raise BadParameter(f"a label of column {name!r} stands for a category that was not declared")
            if known.get(label.strip(), index) != index:
                if not strict:  # the plan itself names this label as another category: the plan's meaning holds
                    continue
                raise BadParameter(f"a label of column {name!r} is itself another declared category")
            lookups[name][label.strip()] = index
            if not np.isnan(number(label)):
                lookups[name].setdefault(number(label), index)
    return dict(lookups)


def _lookup(column: str, declared: Sequence[Category]) -> Lookup:
    lookup: dict[str | float, int] = {}
    for index, category in enumerate(declared):
        keys: set[str | float] = set() if np.isnan(number(category)) else {number(category)}
        if isinstance(category, bool):
            keys |= {"True", "true", "TRUE"} if category else {"False", "false", "FALSE"}
        elif isinstance(category, str):
            keys.add(category.strip())
        if not keys or keys & lookup.keys():
            raise BadParameter(f"category {index + 1} of column {column!r} is not finite, or declared twice")
        lookup |= dict.fromkeys(keys, index)
    return lookup


def _encode(cells: Cells, lookup: Lookup) -> Floats:
    """The index of each cell's category, or NaN: text is compared as text, then as a number."""
    if isinstance(cells, np.ndarray):
        return np.array([lookup.get(cell, np.nan) for cell in cells.tolist()], dtype=np.float64)
    texts = (cell.strip() for cell in cells)
    return np.array([lookup.get(text, lookup.get(number(text), np.nan)) for text in texts], dtype=np.float64)
