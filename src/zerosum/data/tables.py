"""Tables of one site: file or frame to `Units` (.npy, .npz, .csv, .csv.gz, .tsv, .tsv.gz, .parquet).

A cell can be unfit in three ways (`CellFault`): its value is missing and the column has no rule for missing values, a
cell of a numeric column is not a finite number, or a value is none of the declared categories. The treatment of such a
cell is the same everywhere:

- In a numeric column it becomes NaN. A unit with NaN counts as a unit of zeros.
- An undeclared category is "other or missing" and counts in no category. It becomes NaN, or `OTHER` if the column has a
  rule for missing values, so that the rule does not apply to it.

For the owner of the data such cells are errors: `load_units` raises `BadData`. A serving site passes a list instead
(`faults`), to which they are added, and the table is loaded. The coordinator chooses columns, categories and tokens,
and must not learn the content of a cell from a refusal.

A message contains the file, the column and the kind of fault, and no cell, row or count. The row is in the error's
`detail`, which stays at the site. A column is named only if the caller gave the name, since the first line of a file
without a header is a record. The text of a library's error is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.threads import ahead
from zerosum.compute.units import Units
from zerosum.data.formats import Cells, Table, Text, distinct, number, open_table, readable
from zerosum.data.frames import array_table, frame_table, is_frame
from zerosum.data.owners import Owners
from zerosum.data.spelling import Spelling, settings_for, suggestions
from zerosum.data.spool import IN_MEMORY, Spool, Storage
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.missing import MEANINGS, OBSERVED, OWN_ROWS, VALUE, refusal, refusal_by_rules

Category: TypeAlias = str | float | bool
Lookup: TypeAlias = Mapping[str | float, int]  # content of a cell to the index of its category
Floats: TypeAlias = NDArray[np.float64]
Categories: TypeAlias = Mapping[str, Sequence[Category]]
Labels: TypeAlias = Mapping[str, Mapping[str, Category]]  # by column: label in the file to declared category
OnScan: TypeAlias = Callable[[int, int], None]  # (done, total)
Tokens: TypeAlias = Sequence[str | float] | Mapping[str, Sequence[str | float]]  # for all columns, or by column

# missing without a rule; not a finite number; not a declared category
FaultKind: TypeAlias = Literal["missing", "unreadable", "other"]

# Contents of cells by the setting that reads them, in messages.
_KINDS = {"decimal": "numbers with a decimal comma", "thousands": "numbers with commas", "date": "dates"}
OTHER = -1.0  # Code of an undeclared category in a column with a rule for missing values.


@dataclass(frozen=True)
class CellFault:
    """First unfit cell of one kind in a column, for the owner of the data only."""

    column: str  # description in messages
    kind: FaultKind
    sentence: str
    row: int  # 1-based row of the data


@dataclass(frozen=True, eq=False)
class TableData:
    """Units of a site, and the names of their columns in order."""

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
    spellings: Mapping[str, Spelling] | None = None,
    storage: Storage = IN_MEMORY,
    on_scan: OnScan | None = None,
    faults: list[CellFault] | None = None,
) -> TableData:
    r"""Load the records of one site. `BadData` lists all faults of the file.

    Parameters
    ----------
    path : Path
        `.npy`: numbers of shape (rows,), (rows, columns) or (units, rows, columns). They are memory-mapped, and not
        copied if they are float32 or float64 and all are read unchanged. `.npz`: such an array named `data` or `X`, or
        the only one, with optional `columns` (names) and `units` (a label per row) or `offsets` (first row of each
        unit, and the end). For rows in order of time also `seconds` between them and `run_offsets` (first row of each
        recording, and the end). `.csv`, `.tsv`, also with `.gz`: text with a header. `.parquet`: columns of numbers,
        booleans or text.
    columns : sequence of str, optional
        Columns to read, in this order. Default: all except the unit column, in the file's order. Columns of an array
        without names are "0", "1" and so on, or have the names given here if all are named.
    unit_column : str, optional
        Rows with the same label in this column are one unit. Default: each row is a unit, unless an array defines
        units.
    categories : mapping, optional
        Values of these columns become their index in the declared list. Numbers are compared as numbers: "1" and 1.0
        are both 1.
    missing : collection of str
        Columns with a rule for missing values, where these become NaN. Empty cells, NaN and `missing_tokens` are
        missing values.
    missing_tokens : sequence or mapping
        Further tokens for missing values ("NA", "?", -9), for all columns or by column. Numbers are compared as
        numbers. A declared category is never a token.
    delimiter, encoding : str, optional
        Of text files: by default commas (tabs in .tsv) and UTF-8.
    labels : mapping, optional
        Meaning of labels in the file, by column: `{"sex": {"w": "f"}}` reads "w" as the declared category "f".
    spellings : mapping, optional
        How numbers and dates are written, by column (`zerosum.data.spelling`). By default as Python's `float` reads
        them. Columns that are not read are skipped.
    storage : Storage
        How many bytes of rows stay in memory, and where more rows are written to a file without a name
        (`zerosum.data.spool`). The values are the same. Default: all rows stay in memory.
    on_scan : callable, optional
        Called with (done, total).
    faults : list of CellFault, optional
        Receives unfit cells, the first of each kind in each column. Then no cell raises an error, and labels of
        undeclared categories are skipped.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "visits.csv")
    ...     _ = path.write_text("person,sex,age\nann,f,71\nbob,m,64\nann,f,72\n")
    ...     sex = {"sex": ["f", "m"]}
    ...     loaded = load_units(path, columns=["age", "sex"], unit_column="person", categories=sex)
    >>> loaded.columns, [rows.tolist() for rows in loaded.units.each()]
    (('age', 'sex'), [[[71.0, 0.0], [72.0, 0.0]], [[64.0, 1.0]]])
    """
    lookups = _lookups(categories, labels, strict=faults is None)
    with readable(path):
        table = open_table(path, columns, unit_column, delimiter, encoding)
    tokens = missing_tokens
    return _loaded(
        str(path), table, columns, unit_column, lookups, missing, tokens, on_scan, faults, storage, spellings
    )


def check_reading(columns: Sequence[str], unit_column: str | None, categories: Categories) -> None:
    """Raise `BadParameter` for a request that no table can satisfy: no columns, duplicate columns, ambiguous
    categories. No file is opened.

    Parameters
    ----------
    columns : sequence of str
        Columns to read.
    unit_column : str or None
        Column with the owner of each row.
    categories : mapping
        Declared categories by column.
    """
    wanted = columns if unit_column is None else [*columns, unit_column]
    if not columns or len(set(wanted)) < len(wanted):
        raise BadParameter(
            "columns must not be empty, and columns and unit column must all differ, got "
            f"{', '.join(map(repr, wanted)) or 'none'}"
        )
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
    """Units from a frame (pandas, polars, Arrow) or an array with text, with the rules of `load_units`. `called`
    describes the data in messages.

    Parameters
    ----------
    data : frame or array
        The table.
    called : str
        Description in messages.
    columns : sequence of str
        Columns to read, in this order.
    categories, missing
        As in `load_units`.
    """
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
    storage: Storage = IN_MEMORY,
    spellings: Mapping[str, Spelling] | None = None,
) -> TableData:
    """Read the chosen columns of an opened table. Raises or collects faults, see `load_units`."""
    owner = unit_column or table.unit_column
    chosen, unit = _choose(path, table.names, columns, owner, lookups, missing, missing_tokens, spellings or {})
    found: list[CellFault] = []
    units = _units(path, table, chosen, unit, on_scan, found, storage)
    names = tuple(table.names[column.position] for column in chosen)
    if faults is not None:
        faults += found
        return TableData(units, names)
    raise_faults(found)
    try:
        called = [column.called.removesuffix(f" of {path}") for column in chosen]
        # The algorithm is not known here: the rules that most algorithms have.
        rules = VALUE, MEANINGS[OWN_ROWS], MEANINGS[OBSERVED]
        optional = [at for at, column in enumerate(chosen) if column.optional]
        # Cells that `_Column.numbers` converted without a fault are finite, or missing where there is a rule.
        units.check(optional, called, rules, converted=table.array is None)
    except BadData as error:
        raise error.about(str(path)) from None
    return TableData(units, names)


def table_names(
    path: Path, unit_column: str | None = None, delimiter: str | None = None, encoding: str | None = None
) -> tuple[str, ...]:
    """Column names of a file without the unit column, in order, from its header."""
    with readable(path):
        table = open_table(path, None, unit_column, delimiter, encoding)
    owner = unit_column or table.unit_column
    return tuple(name for name in table.names if name != owner)


@dataclass(frozen=True)
class _Column:
    """A column to read."""

    position: int
    called: str  # description in messages
    lookup: Lookup | None = None
    optional: bool = False  # whether there is a rule for missing values
    tokens: frozenset[str | float] = frozenset()  # tokens for missing values, beside empty cells and NaN
    spelling: Spelling | None = None  # how numbers are written; by default plainly

    def numbers(self, cells: Cells, before: int, faults: list[CellFault]) -> Floats:
        """Cells as numbers or category indices; NaN (or `OTHER`) where missing or unfit.

        Parameters
        ----------
        cells : Cells
            A batch of cells.
        before : int
            Number of earlier rows.
        faults : list of CellFault
            Receives the first unfit cell of each kind.
        """
        if self.spelling is not None:
            cells = self.spelling.plain(cells, self.tokens)
        values = _numbers(cells) if self.lookup is None else _encode(cells, self.lookup)
        if self.lookup is None and self.tokens:
            gone = np.isin(values, [each for each in self.tokens if isinstance(each, float)])
            values = np.where(gone, np.nan, values)
        # A sum of numbers one of which is infinite or NaN is infinite or NaN. It is one pass without a second array. A
        # sum can also overflow: then each number is looked at.
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.add.reduce(values)
        if np.isfinite(total):
            return values
        sound = np.isfinite(values)
        if sound.all():
            return values
        values = np.where(sound, values, np.nan)  # infinite values become NaN too
        unfit = np.flatnonzero(~sound)
        codes, contents = distinct(cells, unfit)
        gone = np.array([self._missing(cell) for cell in contents], dtype=bool)[codes]
        if self.lookup is not None and self.optional:
            values[unfit[~gone]] = OTHER
        misfit: FaultKind = "unreadable" if self.lookup is None else "other"
        rows: dict[FaultKind, NDArray[np.intp]] = {misfit: unfit[~gone]}
        if not self.optional:
            rows["missing"] = unfit[gone]
        known = {fault.kind for fault in faults if fault.column == self.called}
        firsts = [(int(some[0]), kind) for kind, some in rows.items() if len(some) and kind not in known]
        # In the order of rows: the message of a column is that of its first fault.
        for at, kind in sorted(firsts):
            words = [each for each in contents if isinstance(each, str)] if kind == "unreadable" else []
            faults.append(CellFault(self.called, kind, self._sentence(kind, words), before + at + 1))
        return values

    def _sentence(self, kind: FaultKind, words: Sequence[str]) -> str:
        """Message for a kind of fault; `words` are cells that are no numbers."""
        match kind:
            case "missing":
                return refusal(self.called)
            case "other":
                return f"some values of {self.called} are outside the declared categories"
        if self.spelling is not None:
            return f"{self.called} is in some row not written as declared ({self.spelling})"
        if settings := settings_for(suggestions(words, np.ones(len(words), dtype=np.intp))):
            found = " and ".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
            return f"{self.called} has {_KINDS[min(settings)]}: declare {found} for it in the site's schema"
        return f"{self.called} is not a finite number in some row; `missing_tokens` may name words for missing values"

    def _missing(self, cell: str | float) -> bool:
        """Whether a cell is a missing value."""
        cell = cell.strip() if isinstance(cell, str) else cell
        return _nothing(cell) or cell in self.tokens or number(cell) in self.tokens


def _choose(
    path: str,
    names: Sequence[str],
    columns: Sequence[str] | None,
    unit: str | None,
    lookups: Mapping[str, Lookup],
    optional: Collection[str],
    tokens: Tokens,
    spellings: Mapping[str, Spelling],
) -> tuple[list[_Column], _Column | None]:
    """Columns to read, and the unit column (or None). Raises for invalid requests."""
    if len(set(names)) < len(names):
        raise BadData(f"two columns of {path} have the same name")
    chosen = [name for name in names if name != unit] if columns is None else list(columns)
    wanted = chosen if unit is None else [*chosen, unit]
    if not chosen:
        raise BadData(f"there are no columns to read in {path}")
    # A column without a name is often a row index that a spreadsheet added.
    if columns is None and "" in chosen:
        raise BadData(f"column {names.index('') + 1} of {path} has no name: list the columns to read")
    if len(set(wanted)) < len(wanted):
        twice = next(name for name in wanted if list(wanted).count(name) > 1)
        raise BadParameter(f"columns and unit column must all differ, and {twice!r} occurs twice")
    known = set(names)
    if missing := [name for name in wanted if name not in known]:
        raise BadData(
            f"{path} has no column {' and no column '.join(map(repr, missing))}{_named_alike(missing, names)}"
        )
    if stray := lookups.keys() - chosen:
        raise BadParameter(f"categories are declared for {min(stray)!r}, which is not a column to read")

    if stray := set(optional) - set(chosen):
        raise BadParameter(f"values may be missing in {min(stray)!r}, which is not a column to read")
    if isinstance(tokens, Mapping) and (strangers := tokens.keys() - set(chosen)):
        raise BadParameter(f"tokens for missing values are given for {min(strangers)!r}, which is not a column to read")

    places = {name: at for at, name in enumerate(names)}

    def column(name: str) -> _Column:
        at = places[name]
        # A name that comes from the file alone may be a person's cell (a file without a header), so that messages
        # have the position instead.
        given = name == unit or name in lookups or columns is not None
        called = f"column {repr(name) if given else at + 1} of {path}"
        own = tokens.get(name, ()) if isinstance(tokens, Mapping) else tokens
        return _Column(at, called, lookups.get(name), name in optional, token_set(own), spellings.get(name))

    owner = None if unit is None else replace(column(unit), spelling=None)
    return [column(name) for name in chosen], owner


def _named_alike(missing: Sequence[str], names: Sequence[str]) -> str:
    """Advice on columns whose names differ from the wanted ones in case or spaces only; empty without any.

    >>> _named_alike(["age", "sex"], ["AGE", "bmi"])
    "; its column 'AGE' differs from 'age' in case or spaces: rename it, or let a query rename it ([source])"
    """
    plain = {"".join(name.split()).casefold(): name for name in names}
    alike = {name: plain[key] for name in missing if (key := "".join(name.split()).casefold()) in plain}
    if not alike:
        return ""
    wanted, there = next(iter(alike.items()))
    more = f", and {len(alike) - 1} more" if len(alike) > 1 else ""
    return (
        f"; its column {there!r} differs from {wanted!r} in case or spaces{more}: rename it, or let a query rename it "
        "([source])"
    )


def _units(
    path: str,
    table: Table,
    columns: Sequence[_Column],
    unit: _Column | None,
    on_scan: OnScan | None,
    faults: list[CellFault],
    storage: Storage,
) -> Units:
    """Read all batches of a table."""
    positions = [column.position for column in columns]
    as_it_lies = unit is None and all(
        column.lookup is None and column.spelling is None and not column.tokens for column in columns
    )
    # No copy: a memory-mapped array stays on disk.
    # A unit column, categories and tokens change cells or the order of rows, and need a copy.
    if table.array is not None and as_it_lies:
        whole = positions == list(range(table.array.shape[1]))
        return Units(table.array if whole else table.array[:, positions], table.offsets, table.runs)
    # Rows in memory are sorted by their owners into a second array.
    rows = Spool(len(columns), storage.part(2) if unit else storage)
    empty_owner = f"{unit.called if unit else None} says whose row it is, but is empty in some row"
    owners = Owners(empty_owner, storage.part(8)) if unit else None
    before, nameless = 0, None
    batches = table.batches([*positions, unit.position] if unit else positions)
    # The next batch is decoded while this one is converted. The thread that reads states its progress.
    for batch, progress in ahead((batch, table.progress and table.progress()) for batch in batches):
        # The unit labels are last.
        parts = [column.numbers(cells, before, faults) for column, cells in zip(columns, batch, strict=False)]
        rows.append_columns(parts)
        # An empty label ends the numbering of units but not the reading: one error lists the faults of all columns.
        if owners is not None and nameless is None:
            try:
                owners.add(batch[-1], before)
            except BadData as error:
                nameless = error
        before += len(batch[0])
        if on_scan is not None and progress is not None:
            on_scan(*progress)
    if nameless is not None:  # rows without an owner cannot be assigned to a unit
        raise_faults(faults, nameless)
    if before == 0:
        raise BadData(f"{path} has no rows")
    if owners is not None:
        return Units(*rows.grouped(owners.numbers()))
    return Units(rows.rows(), table.offsets, table.runs)


def raise_faults(faults: Sequence[CellFault], last: BadData | None = None, rules: Sequence[str] | None = None) -> None:
    """Raise one `BadData` with the first fault of every column. No effect without faults.

    Parameters
    ----------
    faults : sequence of CellFault
        All faults.
    last : BadData, optional
        The fault of the unit column.
    rules : sequence of str, optional
        The rules for missing values of the algorithm, in words: columns with missing values are then in one sentence.
    """
    firsts = {fault.column: fault for fault in reversed(faults)}
    first_faults = [fault for fault in faults if firsts[fault.column] is fault]
    if rules is not None:
        first_faults = join_missing(first_faults, rules)
    if len(first_faults) == 1 and last is None:
        raise BadData(first_faults[0].sentence, detail=f"data row {first_faults[0].row}")
    if not first_faults and last is not None:
        raise last
    if first_faults:
        sentences = [*(fault.sentence for fault in first_faults), *([] if last is None else [str(last)])]
        details = [f"{fault.column}: data row {fault.row}" for fault in first_faults]
        details += [] if last is None else [last.detail]
        raise BadData("; ".join(sentences), detail="; ".join(details))


def join_missing(faults: Sequence[CellFault], rules: Sequence[str]) -> list[CellFault]:
    """The faults, with one in place of those that are missing values, which names each column once.

    Parameters
    ----------
    faults : sequence of CellFault
        At most one of a kind and column.
    rules : sequence of str
        The rules for missing values of the algorithm, in words.
    """
    gone = [fault for fault in faults if fault.kind == "missing"]
    if not gone:
        return list(faults)
    # The file is named once, after the last column.
    ends = [fault.column.rpartition(" of ") for fault in gone]
    same = len({end for _, _, end in ends}) == 1
    called = [name or fault.column for fault, (name, _, _) in zip(gone, ends, strict=True)] if same else []
    called = [*called[:-1], gone[-1].column] if same else [fault.column for fault in gone]
    one = replace(gone[0], sentence=refusal_by_rules(called, rules))
    return [one, *(fault for fault in faults if fault.kind != "missing")]


def _numbers(cells: Cells) -> Floats:
    """Numbers in cells; not finite for a cell without a number. Doubles are not copied."""
    if isinstance(cells, Text):
        return cells.numbers()
    with np.errstate(over="ignore", invalid="ignore"):
        return cells.astype(np.float64, copy=False)


def token_set(given: Sequence[str | float]) -> frozenset[str | float]:
    """Tokens for missing values as text, and as numbers where they are numbers."""
    # A token that is a number matches all spellings of the number: -9 matches "-9.0".
    words = [each.strip() if isinstance(each, str) else float(each) for each in given]
    numbers = [number(each) for each in words]
    return frozenset([*words, *(each for each in numbers if np.isfinite(each))])


def _nothing(cell: str | float) -> bool:
    """Whether a cell is empty or NaN. NaN is the only value that is not equal to itself."""
    return cell == "" or cell != cell or (isinstance(cell, str) and cell.lower() == "nan")


def _lookups(categories: Categories | None, labels: Labels | None, *, strict: bool = True) -> dict[str, Lookup]:
    """Cell contents to category index, by column: declared categories, and the file's own labels. A label for an
    undeclared category is an error, or skipped if not `strict`.

    Parameters
    ----------
    categories : mapping or None
        Declared categories by column, from the plan.
    labels : mapping or None
        Meaning of the file's own labels by column, from the site.
    strict : bool
        Whether a label that does not fit the plan is an error. At a serving site it is not: a refusal would depend on
        the site's labels.
    """
    lookups = {name: dict(_lookup(name, declared)) for name, declared in (categories or {}).items()}
    for name, meant in (labels or {}).items():
        if name not in lookups:  # A site's labels serve many studies, which need not read the column.
            continue
        known = dict(lookups[name])
        for label, category in meant.items():
            # From `known`, without the labels added in this loop: a label of a label has no meaning.
            index = known.get(category if isinstance(category, str) else number(category))
            if index is None and not strict:
                continue
            if index is None:
                raise BadParameter(f"a label of column {name!r} stands for a category that was not declared")
            if known.get(label.strip(), index) != index:
                if not strict:  # The plan declares this label as another category; the plan's meaning applies.
                    continue
                raise BadParameter(f"a label of column {name!r} is itself another declared category")
            lookups[name][label.strip()] = index
            if not np.isnan(number(label)):
                lookups[name].setdefault(number(label), index)
    return dict(lookups)


def _lookup(column: str, declared: Sequence[Category]) -> Lookup:
    """Cell contents to category index, for one column. Raises `BadParameter` for ambiguous categories."""
    lookup: dict[str | float, int] = {}
    for index, category in enumerate(declared):
        keys: set[str | float] = set() if np.isnan(number(category)) else {number(category)}
        if isinstance(category, bool):
            keys |= {"True", "true", "TRUE"} if category else {"False", "false", "FALSE"}
        elif isinstance(category, str):
            keys.add(category.strip())
        # Categories such as "1" and 1.0 are the same cell content, which cannot belong to both.
        if not keys or keys & lookup.keys():
            raise BadParameter(f"category {index + 1} of column {column!r} is not finite, or declared twice")
        lookup |= dict.fromkeys(keys, index)
    return lookup


def _encode(cells: Cells, lookup: Lookup) -> Floats:
    """Index of each cell's category, or NaN. Text is compared as text first, then as a number."""
    codes, contents = distinct(cells)

    def index(cell: str | float) -> float:
        if not isinstance(cell, str):
            return lookup.get(cell, np.nan)
        return lookup.get(cell.strip(), lookup.get(number(cell), np.nan))

    return np.array([index(cell) for cell in contents], dtype=np.float64)[codes]
