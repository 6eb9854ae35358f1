"""Pairs of neighbouring data sets, written as the files that a site loads.

A `Pair` is two lists of people, equal but for one person, with a writer that puts either list into a folder. What both
lists share is public: names and kinds of columns, the number of people under replace-one, the most rows of a person.
The one person that differs has a trait that nobody else may have: a rare level, a missing cell, a word such as "NA", an
extreme or a fractional number, more rows; of images large motion, short runs, holes; of documents no words at all.

Replace-one pairs have the same number of people. Add-remove pairs have one person more on the left or on the right.
"""

from __future__ import annotations

import csv
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array, save_npz

from helpers import brain_images
from zerosum.data.imputation import ColumnModel, ImputationModel
from zerosum.kernel.question import columns_digest
from zerosum.site.schema import ColumnSchema, DataSchema, ImagesSchema

Rng = np.random.Generator
Change = Literal["replace", "add", "remove"]
P = TypeVar("P")

MOST_ROWS = 3  # rows of one person, as policies of these sites declare
OWNER = "who"  # the column that names a row's person


@dataclass(frozen=True)
class Column:
    """What is public about a column of a table: numbers in a range, or levels; whether cells may be missing."""

    name: str
    low: float = 0.0
    high: float = 1.0
    levels: tuple[str, ...] = ()  # as they stand in files; codes are levels that are numbers
    gaps: bool = False

    @property
    def is_text(self) -> bool:
        return bool(self.levels) and not all(level.isdigit() for level in self.levels)


COLUMNS = {
    column.name: column
    for column in (
        Column("age", 0, 100),
        Column("bmi", 10, 60, gaps=True),
        Column("dose", 0, 10),
        Column("score", -5, 5, gaps=True),
        Column("time", 0.1, 10),
        Column("visits", 0, 9),
        Column("sick", levels=("0", "1")),
        Column("stage", levels=("0", "1", "2"), gaps=True),
        Column("arm", levels=("0", "1")),
        Column("grade", levels=("0", "1", "2")),
        Column("sex", levels=("f", "m", "x"), gaps=True),
        Column("ward", levels=("north", "south", "east", "west")),
    )
}


def _modelled(column: Column, at: int) -> ColumnModel:
    p = np.random.default_rng(at).dirichlet(np.ones(len(column.levels) or 4), 3).round(6)
    p = np.column_stack([p * 0.9, np.full(3, 0.05)])
    if column.levels:
        values = tuple(float(level) if level.isdigit() else level for level in column.levels)
        return ColumnModel(levels=values, probabilities=p)
    edges = np.linspace(column.low, column.high, 5)
    return ColumnModel(quantiles=np.column_stack([edges[:-1], edges[1:]]), probabilities=p)


# A public model of all columns, of which every site has a copy: from it missing values may be drawn.
MODEL = ImputationModel(columns={name: _modelled(column, at) for at, (name, column) in enumerate(COLUMNS.items())})
# What a site with files of its own spelling declares, by column.
SPELLED: dict[str, dict[str, Any]] = {
    "age": {"date": "%d.%m.%Y", "age_at": "2021-07-01"},
    **{name: {"decimal": ",", "thousands": "."} for name in ("bmi", "dose", "score", "time")},
    "sex": {"labels": {"weiblich": "f", "w": "f", "männlich": "m"}},
}
NUMBERS = tuple(name for name, column in COLUMNS.items() if not column.levels)
CODES = tuple(name for name, column in COLUMNS.items() if column.levels and not column.is_text)
WORDS = ("", "NA", "nan", "?", "-9")  # how files write a missing cell


@dataclass(frozen=True)
class Pair(ABC, Generic[P]):
    """Two neighbouring data sets: the people of each, and how the person that differs was changed."""

    left: tuple[P, ...]
    right: tuple[P, ...]
    change: Change
    trait: str

    kind = ""  # of the data: table, documents, images

    @property
    def units(self) -> int:
        """The number of units that a plan may declare under replace-one: the left one's."""
        return len(self.left)

    @property
    def adjacency(self) -> str:
        return "replace-one" if self.change == "replace" else "add-remove"

    @abstractmethod
    def write(self, side: Literal["left", "right"], folder: Path) -> Mapping[str, Any]:
        """Write one data set; returns the entries of the site's file that are the same for both."""

    def twice(self) -> Self:
        """The left data set on both sides."""
        return replace(self, right=self.left)

    def people(self, side: Literal["left", "right"]) -> tuple[P, ...]:
        return self.left if side == "left" else self.right


def _weighted(rng: Rng, weights: Mapping[str, int]) -> str:
    return str(rng.choice([name for name, weight in weights.items() for _ in range(weight)]))


def _changed(people: list[P], odd: P, change: Change, rng: Rng) -> tuple[tuple[P, ...], tuple[P, ...]]:
    """The two lists; the odd person is the first, the last, or anybody, and on either side."""
    at = int(rng.choice([0, len(people) - 1, int(rng.integers(len(people)))]))
    with_odd = (*people[:at], odd, *people[at + 1 :])
    without = tuple(people if change == "replace" else people[:at] + people[at + 1 :])
    swapped = change == "remove" or (change == "replace" and bool(rng.integers(2)))
    return (with_odd, without) if swapped else (without, with_odd)


# ---- tables ----------------------------------------------------------------------------------------------------

Row = tuple[str, ...]  # cells as text, in the order of the file's columns
TABLE_TRAITS = {  # with weights: cells that are nobody's mistake come more often
    **{"ordinary": 1, "level": 4, "gap": 2, "word": 2, "extreme": 2, "fraction": 3, "rows": 2, "several": 2},
    **{"garbage": 1},
}
Format = Literal["csv", "npy", "parquet", "sqlite"]
# Where a table is read from: its own file; with no memory for rows; an Arrow file; a folder of Parquet files; the
# snapshot of DuckDB.
Place = Literal["file", "memory", "arrow", "folder", "duckdb"]
DATABASES: tuple[Place, ...] = ("duckdb",) if find_spec("duckdb") else ()
PLACES: tuple[Place, ...] = ("file", "file", "memory", "arrow", "folder", *DATABASES)


@dataclass(frozen=True)
class TablePair(Pair[tuple[Row, ...]]):
    """People with rows in a table of these columns; `owned`: a column names whose each row is."""

    columns: tuple[str, ...] = ()
    format: Format = "csv"
    owned: bool = False
    spelled: bool = False  # cells as a German hospital writes them: decimal commas, dates of birth
    place: Place = "file"

    kind = "table"

    def write(self, side: Literal["left", "right"], folder: Path) -> Mapping[str, Any]:
        rows = [(f"p{at}", *row) if self.owned else row for at, own in enumerate(self.people(side)) for row in own]
        names = [OWNER, *self.columns] if self.owned else list(self.columns)
        (folder / "model.json").write_text(MODEL.content())
        entries: dict[str, Any] = {"unit_column": OWNER if self.owned else None, "files": (Path("model.json"),)}
        if self.place == "memory":
            entries["limits"] = {"memory": 1}
        elif self.place != "file":
            return entries | self._stored(names, rows, folder)
        path = folder / f"data.{self.format}"
        if self.spelled:
            rows = [tuple(spelled(name, cell) for name, cell in zip(names, row, strict=True)) for row in rows]
        if self.format == "sqlite":
            with closing(sqlite3.connect(path)) as connection:
                connection.execute(f"CREATE TABLE people ({', '.join(names)})")
                connection.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(names))})", rows)
                connection.commit()
            return {"source": {"engine": "sqlite", "database": path.name, "table": "people"}, **entries}
        if self.spelled:
            with path.open("w", newline="", encoding="latin-1") as file:
                csv.writer(file, delimiter=";").writerows([names, *rows])
            entries |= {"delimiter": ";", "encoding": "latin-1"}
        elif self.format == "csv":
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([names, *rows])
        elif self.format == "npy":
            np.save(path, np.array([[_float(cell) for cell in row] for row in rows]))
        else:
            pq.write_table(_table(names, rows), path)
        return {"data": Path(path.name), **entries}

    def _stored(self, names: Sequence[str], rows: Sequence[Row], folder: Path) -> dict[str, Any]:
        """Write the table to another place than a file of its format; returns entries of the site's file."""
        match self.place:
            case "duckdb":
                import duckdb

                people = _table(names, rows)
                with duckdb.connect(str(folder / "data.duckdb")) as database:
                    database.register("rows", people)
                    database.execute("CREATE TABLE people AS SELECT * FROM rows")
                return {"source": {"engine": "duckdb", "database": "data.duckdb", "table": "people"}}
            case "arrow":
                table = _table(names, rows)
                with pa.ipc.new_file(folder / "data.arrow", table.schema) as writer:
                    writer.write_table(table, max_chunksize=7)
                return {"data": Path("data.arrow")}
        (folder / "data").mkdir()
        table = _table(names, rows)
        for at in range(0, table.num_rows, 9):
            pq.write_table(table.slice(at, 9), folder / "data" / f"part-{at:04}.parquet")
        return {"data": Path("data")}


def _table(names: Sequence[str], rows: Sequence[Row]) -> Any:
    """A typed Arrow table of cells."""
    return pa.table({name: _typed(name, cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)})


def spelled(name: str, cell: str) -> str:
    """A cell as `SPELLED` declares its column; what is no number stays as it is."""
    declared, value = SPELLED.get(name, {}), _float(cell)
    if "labels" in declared:
        return {"f": "weiblich", "m": "männlich"}.get(cell, cell)
    if "date" in declared and 0 <= value < 150 and cell != "7":  # an undeclared spelling of somebody
        return f"{1 + int(100 * value) % 28:02}.{1 + int(10 * value) % 12:02}.{2020 - int(value)}"
    if "decimal" in declared and cell != "0.5":  # not as declared: counts as no number
        whole, _, rest = cell.partition(".")
        return f"{whole},{rest}" if rest and value == value else cell
    return cell


def _float(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _typed(name: str, cells: Sequence[str]) -> Any:
    """A typed column of a parquet file: its type is public and the same for both data sets."""
    if name == OWNER or COLUMNS[name].is_text:
        return pa.array(list(cells), pa.string())
    values = [_float(cell) for cell in cells]
    if COLUMNS[name].levels == ("0", "1"):  # truth values, and whole numbers below: what is neither is null
        return pa.array([bool(value) if value in (0, 1) else None for value in values], pa.bool_())
    if COLUMNS[name].levels or name == "visits":
        whole = [int(value) if abs(value) < 1e6 and value == int(value) else None for value in values]
        return pa.array(whole, pa.int64())
    return pa.array([None if value != value else value for value in values], pa.float64())


def table_pair(rng: Rng, columns: Sequence[str], change: Change, *, numeric: bool = False) -> TablePair:
    """A pair over columns of `COLUMNS`; `numeric`: no text, so that arrays without names hold them too."""
    names = tuple(dict.fromkeys(columns))
    usual_formats: tuple[Format, ...] = ("csv", "csv", "csv", "csv", "parquet", "sqlite")
    array: tuple[Format, ...] = ("npy", "npy") if numeric else ()
    formats = usual_formats + array
    format = formats[int(rng.integers(len(formats)))]
    owned = format != "npy" and bool(rng.integers(2))
    if format != "npy" and rng.integers(2):  # columns that nobody asks about
        names = (*names, *(name for name in COLUMNS if name not in names))
    several = owned and bool(rng.integers(2))
    gaps = float(rng.choice([0.0, 0.0, 0.0, 0.0, 0.15]))
    usual = {  # the levels of everybody but the odd person, who may be the only one with another
        name: int(rng.integers(1, len(column.levels) + 1)) for name, column in COLUMNS.items() if column.levels
    }
    word = str(rng.choice(WORDS))

    def cell(name: str) -> str:
        column = COLUMNS[name]
        if column.gaps and rng.random() < gaps:
            return word
        if column.levels:
            return str(rng.choice(column.levels[: usual[name]]))
        value = rng.uniform(column.low, column.high)
        return f"{round(value)}" if name == "visits" else f"{value:.4g}"

    def person() -> tuple[Row, ...]:
        rows = int(rng.integers(1, MOST_ROWS + 1)) if several else 1
        return tuple(tuple(cell(name) for name in names) for _ in range(rows))

    people = [person() for _ in range(int(rng.integers(12, 24)))]
    trait = _weighted(rng, {each: n for each, n in TABLE_TRAITS.items() if each != "rows" or owned})
    odd = _odd_rows(rng, [list(row) for row in person()], names, trait, owned=owned)
    left, right = _changed(people, odd, change, rng)
    told = format in ("csv", "sqlite") and not rng.integers(3)
    return TablePair(left, right, change, trait, names, format, owned, told)


def _odd_rows(rng: Rng, rows: list[list[str]], names: Sequence[str], trait: str, *, owned: bool) -> tuple[Row, ...]:
    """The rows of the person that differs."""
    kinds = ("level", "gap", "word", "extreme", "fraction", "rows") if trait == "several" else (trait,)
    for each in kinds:
        if trait == "several" and rng.integers(2):
            continue
        if each == "rows" and owned:
            rows = [list(rows[0]) for _ in range(MOST_ROWS)]
        for row in rows:
            for at, name in enumerate(names):
                if rng.random() < 0.6:
                    row[at] = _odd_cell(rng, COLUMNS[name], each, row[at])
    return tuple(tuple(row) for row in rows)


def _odd_cell(rng: Rng, column: Column, trait: str, cell: str) -> str:
    match trait:
        case "level" if column.levels:
            return str(rng.choice(column.levels[1:]))
        case "gap" if column.gaps:
            return ""
        case "word" if column.gaps:
            return str(rng.choice(WORDS[1:]))
        case "extreme" if not column.levels:
            return str(rng.choice(["1e300", "-1e300", "1e-300", "0", "-9", f"{column.high:g}", f"{column.low:g}"]))
        case "fraction" if not column.is_text:
            return str(rng.choice(["0.5", "7", "-1", "1e9"]))
        case "garbage":
            return str(rng.choice(["abc", "f", "1,5", "--", "inf", "1.234,5", "31.02.1970", "1970-04-03", "w"]))
    return cell


# ---- documents -------------------------------------------------------------------------------------------------

VOCABULARY = ("boat", "lake", "house", "tree", "bird", "stone", "river", "cloud")
DOCUMENT_TRAITS = ("ordinary", "silent", "strange", "long", "single", "documents", "nothing")


@dataclass(frozen=True)
class DocumentPair(Pair[tuple[str, ...]]):
    """People with documents, as text; the public vocabulary is a file of the site."""

    words: tuple[str, ...] = VOCABULARY
    format: Literal["folders", "lines", "matrix", "bag"] = "folders"

    kind = "documents"

    def write(self, side: Literal["left", "right"], folder: Path) -> Mapping[str, Any]:
        people = self.people(side)
        (folder / "words.txt").write_text("\n".join(self.words) + "\n")
        counts = np.array([[text.split().count(word) for word in self.words] for own in people for text in own])
        match self.format:
            case "folders":
                path = folder / "documents"
                for at, own in enumerate(people):
                    (path / f"p{at:02}").mkdir(parents=True)
                    for number, text in enumerate(own):
                        (path / f"p{at:02}" / f"{number}.txt").write_text(text)
            case "lines":
                path = folder / "documents.text"
                path.write_text("".join(f"{text}\n" for own in people for text in own))
            case "matrix":
                path = folder / "documents.npz"
                save_npz(path, csr_array(counts.astype(float)))
            case "bag":
                path = folder / "documents.txt"
                held = [(at + 1, word + 1, counts[at, word]) for at, word in zip(*np.nonzero(counts), strict=True)]
                lines = [str(len(counts)), str(len(self.words)), str(len(held))]
                path.write_text("\n".join([*lines, *(" ".join(map(str, each)) for each in held)]) + "\n")
        return {"data": Path(path.name), "files": (Path("words.txt"),)}


def document_pair(rng: Rng, words: int, change: Change) -> DocumentPair:
    known = VOCABULARY[:words]
    format = ("folders", "lines", "matrix", "bag")[int(rng.integers(4))]

    def text(length: int) -> str:
        return " ".join(rng.choice(known, length))

    def person() -> tuple[str, ...]:
        documents = int(rng.integers(1, MOST_ROWS + 1)) if format == "folders" else 1
        return tuple(text(int(rng.integers(3, 12))) for _ in range(documents))

    people = [person() for _ in range(int(rng.integers(12, 20)))]
    people_only = ("documents", "nothing")  # traits of people who own several documents, or none
    traits = [each for each in DOCUMENT_TRAITS if format == "folders" or each not in people_only]
    trait = str(rng.choice(traits))
    odd = {
        "silent": ("",),
        "strange": ("zebra quark 17 ...",),
        "long": (text(400),),
        "single": (" ".join([known[0]] * 50),),
        "documents": tuple(text(5) for _ in range(MOST_ROWS)),
        "nothing": (),
    }.get(trait, person())
    left, right = _changed(people, odd, change, rng)
    return DocumentPair(left, right, change, trait, known, format)  # type: ignore[arg-type]  # one of the four


# ---- images ----------------------------------------------------------------------------------------------------

IMAGE_TRAITS = {
    **{"ordinary": 1, "motion": 5, "short": 3, "still": 1, "runs": 2, "clock": 2, "gaps": 2, "unlisted": 1},
    **{"holes": 1, "huge": 1},
}
CONFOUNDS = ("framewise_displacement", "rot_x", "trans_x")


@dataclass(frozen=True)
class Run:
    """One run of a person: a seed of its volumes, and what is unusual about it."""

    seed: int
    volumes: int = 14
    motion: float = 0.05  # mm, of the typical volume
    seconds: float = 2.0
    value: float | None = None  # of every voxel, where the image is constant
    cell: str = ""  # in place of a cell of the confounds
    confounds: tuple[str, ...] = CONFOUNDS


@dataclass(frozen=True)
class ImagePair(Pair[tuple[Run, ...]]):
    """People with runs in a derived BIDS folder with confounds; the public mask or atlas is a file of the site."""

    grid: Literal["mask", "atlas"] = "atlas"

    kind = "images"

    def write(self, side: Literal["left", "right"], folder: Path) -> Mapping[str, Any]:
        people = self.people(side)
        data = folder / "images"
        brain_images.participants(data, [f"sub-{at}" for at in range(len(people))])
        for at, runs in enumerate(people):
            for number, run in enumerate(runs):
                _write_run(data / f"sub-{at}" / "func", f"sub-{at}_task-rest_run-{number + 1}", run)
        image = brain_images.mask() if self.grid == "mask" else brain_images.atlas()
        brain_images.save(folder / f"{self.grid}.nii", image)
        return {"data": Path("images"), "files": (Path(f"{self.grid}.nii"),)}


def _write_run(folder: Path, name: str, run: Run) -> None:
    rng = np.random.default_rng(run.seed)
    volumes = rng.normal(100, 10, size=(*brain_images.SHAPE, run.volumes))
    if run.value is not None:
        volumes[...] = run.value
    brain_images.save(folder / f"{name}_desc-preproc_bold.nii", volumes, run.seconds)
    cells: dict[str, list[Any]] = {column: list(rng.normal(size=run.volumes).round(4)) for column in run.confounds}
    if "framewise_displacement" in cells:
        moved = np.abs(rng.normal(run.motion, run.motion / 5, run.volumes)).round(4)
        cells["framewise_displacement"] = ["n/a", *moved[1:].tolist()]
    if run.cell:
        cells[run.confounds[-1]][3] = run.cell
    brain_images.table(folder / f"{name}_desc-confounds_timeseries.tsv", cells)


def image_pair(rng: Rng, grid: Literal["mask", "atlas"], change: Change) -> ImagePair:
    def seed() -> int:
        return int(rng.integers(1 << 30))

    several = bool(rng.integers(2))
    people = [
        tuple(Run(seed()) for _ in range(int(rng.integers(1, 3)) if several else 1))
        for _ in range(int(rng.integers(4, 7)))
    ]
    trait = _weighted(rng, IMAGE_TRAITS)
    run = Run(seed())
    odd: tuple[Run, ...] = {
        "motion": (Run(seed(), motion=float(rng.choice([0.3, 0.6, 3.0]))),),
        "short": (Run(seed(), volumes=int(rng.integers(10, 13))),),
        "still": (Run(seed(), value=float(rng.choice([0.0, 100.0]))),),
        "runs": (run, Run(seed(), volumes=18)),
        "clock": (Run(seed(), seconds=float(rng.choice([0.8, 3.0, 6.0]))),),
        "holes": (Run(seed(), value=float("nan")),),
        "huge": (Run(seed(), value=1e120),),
        "gaps": (Run(seed(), cell=str(rng.choice(["n/a", "nan", "x"]))),),
        "unlisted": (Run(seed(), confounds=CONFOUNDS[:1]),),
    }.get(trait, (run,))
    left, right = _changed(people, odd, change, rng)
    return ImagePair(left, right, change, trait, grid)


AnyPair = TablePair | DocumentPair | ImagePair
TRAITS = {"table": tuple(TABLE_TRAITS), "documents": DOCUMENT_TRAITS, "images": tuple(IMAGE_TRAITS)}


# ---- schemas ---------------------------------------------------------------------------------------------------


def schema_of(pair: AnyPair, *, strict: bool) -> DataSchema:
    """The schema that a site with either data set declares, from what both share.

    A `strict` one says that no value is missing, so that plans without rules pass, and the cells that break it reach
    the site's code. Otherwise columns with gaps say so, and plans need rules for them.
    """
    units = pair.units if pair.adjacency == "replace-one" else None
    match pair:
        case TablePair():
            rows = MOST_ROWS if pair.owned else 1
            if pair.format == "npy":
                numbered = [str(at) for at in range(len(pair.columns))]
                digest = columns_digest(numbered)
                return DataSchema(
                    units=units, rows_per_unit=rows, n_columns=len(numbered), columns_digest=digest, missing=not strict
                )
            declared = SPELLED if pair.spelled else {}
            columns = {
                name: _column_schema(COLUMNS[name], strict=strict, **declared.get(name, {})) for name in pair.columns
            }
            return DataSchema(units=units, rows_per_unit=rows, columns=columns)
        case DocumentPair():
            words = len(pair.words) if pair.format in ("matrix", "bag") else None
            rows = MOST_ROWS if pair.format == "folders" else 1
            return DataSchema(kind="documents", units=units, rows_per_unit=rows, words=words)
    images = ImagesSchema(
        volumes=10,
        seconds=2.0 if strict else 6.0,
        confounds=CONFOUNDS,
        strategies=("simple", "scrubbing"),
        selectable={"task": ("rest",), "desc": ("preproc",)},
        shape=brain_images.SHAPE,
        affine=tuple(tuple(float(value) for value in row) for row in brain_images.AFFINE),
    )
    return DataSchema(kind="images", units=units, rows_per_unit=40, images=images)


def _column_schema(column: Column, *, strict: bool, **spelling: Any) -> ColumnSchema:
    return ColumnSchema(
        type="category" if column.is_text else "number",
        missing=column.gaps and not strict,
        tokens=() if strict else ("NA", "?"),
        levels=column.levels if strict else (),
        **spelling,
    )
