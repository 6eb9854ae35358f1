"""Databases as sources of a site: the same rows from every engine, and no password or cell in a message."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from helpers.postgresql import connected, serve_postgresql
from zerosum.data.formats import open_table
from zerosum.data.sources import Source, fetch
from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadStudy

# Whole numbers, numbers with and without an exact decimal text, missing values, text and truth values.
ROWS: list[tuple[Any, ...]] = [
    (1, 0.1 + 0.2, "f", True, "ann"),
    (2, None, "m", False, "bob"),
    (3, 1e-300, None, None, "ann"),
    (-(2**53), -7.25, "f", True, "cem"),
    (5, 123456789.123456789, "other", False, "bob"),
]
COLUMNS = ["visits", "score", "sex", "smoker"]
CATEGORIES: dict[str, Any] = {"sex": ["f", "m"], "smoker": [0, 1]}
SQL = "SELECT visits, score, sex, smoker, person FROM people ORDER BY place"


def test_same_units_from_every_file_and_engine(tmp_path: Path) -> None:
    paths = {"parquet": tmp_path / "people.parquet", "arrow": tmp_path / "people.arrow", "csv": tmp_path / "people.csv"}
    table = arrow_rows()
    pq.write_table(table, paths["parquet"])
    with pa.ipc.new_file(paths["arrow"], table.schema) as writer:
        writer.write_table(table)
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in ROWS]
    paths["csv"].write_text(
        "\n".join(["visits,score,sex,smoker,person", *lines]).replace("True", "1").replace("False", "0")
    )
    folder = tmp_path / "parts"
    folder.mkdir()
    for at in range(len(ROWS)):
        pq.write_table(table.slice(at, 1), folder / f"part-{at}.parquet")
    paths["folder"] = folder
    paths["sqlite"] = snapshot(tmp_path, Source(engine="sqlite", database=sqlite_database(tmp_path), query=SQL))
    expected = units_of_rows(paths["csv"])
    for name, path in paths.items():
        assert_same(units_of_rows(path), expected, name)


def test_same_units_from_duckdb_as_from_files(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pq.write_table(arrow_rows(), tmp_path / "people.parquet")
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS SELECT * FROM '{tmp_path}/people.parquet'")
    expected = units_of_rows(tmp_path / "people.parquet")
    stored = snapshot(tmp_path, Source(engine="duckdb", database="people.duckdb", table="people"))
    assert_same(units_of_rows(stored), expected, "a table")
    # The engine itself reads files; a relative path starts at the site's folder.
    stored = snapshot(tmp_path, Source(engine="duckdb", query="SELECT * FROM 'peop*.parquet'"))
    assert_same(units_of_rows(stored), expected, "a file by a query")


def test_same_units_from_postgresql_as_from_files(tmp_path: Path, postgresql: str) -> None:
    expected_path = tmp_path / "people.parquet"
    pq.write_table(arrow_rows(), expected_path)
    password = tmp_path / "password"
    password.write_text("s3cret: /@\n")
    password.chmod(0o600)
    source = Source(engine="postgresql", database=postgresql, query=SQL, password_file=Path("password"))
    assert_same(units_of_rows(snapshot(tmp_path, source)), units_of_rows(expected_path), "postgresql")
    # The text of the engine quotes a cell: it stays in the detail, which is for the owner of the data.
    with pytest.raises(BadData) as failed:
        snapshot(tmp_path, source.model_copy(update={"query": "SELECT CAST(person AS int) AS a FROM people"}))
    assert '"ann"' in failed.value.detail
    assert '"ann"' not in str(failed.value)
    assert "s3cret" not in f"{failed.value} {failed.value.detail}"
    with pytest.raises(BadData):  # the session is read-only
        snapshot(tmp_path, source.model_copy(update={"query": "DELETE FROM people RETURNING visits"}))
    assert units_of_rows(snapshot(tmp_path, source)).rows.shape[0] == len(ROWS)


def test_snapshot_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    database = sqlite_database(tmp_path)
    path = snapshot(tmp_path, Source(engine="sqlite", database=database, query=SQL))
    before = path.read_bytes()
    for query in ("SELECT nothing FROM people", "SELECT visits FROM people WHERE visits > 99", "SELECT 1 AS a, 2 AS a"):
        with pytest.raises(BadData):
            snapshot(tmp_path, Source(engine="sqlite", database=database, query=query))
    assert path.read_bytes() == before
    assert {each.name for each in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_snapshot_is_its_owners_only(tmp_path: Path) -> None:
    path = snapshot(tmp_path, Source(engine="sqlite", database=sqlite_database(tmp_path), query=SQL))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_one_cell_of_sqlite_does_not_change_how_others_are_read(tmp_path: Path) -> None:
    database = sqlite_database(tmp_path)
    before = units_of_rows(snapshot(tmp_path, Source(engine="sqlite", database=database, query=SQL)))
    with sqlite3.connect(tmp_path / database) as connection:
        connection.execute("UPDATE people SET score = 'high' WHERE place = 4")
    path = snapshot(tmp_path, Source(engine="sqlite", database=database, query=SQL))
    after = load_units(path, columns=COLUMNS, categories=CATEGORIES, missing=COLUMNS, faults=[]).units
    order = np.argsort(before_rows(before)[:, 0])
    changed = np.argsort(after.rows[:, 0])
    assert np.array_equal(before_rows(before)[order][:, 0], after.rows[changed][:, 0])
    assert np.count_nonzero(~np.isclose(before_rows(before)[order], after.rows[changed], equal_nan=True)) == 1


@pytest.fixture
def storage() -> Iterator[Any]:
    """A storage service in memory; its files are gone afterwards."""
    system = pytest.importorskip("fsspec").filesystem("memory")
    yield system
    system.rm("/visits", recursive=True)


def test_same_units_from_a_storage_service_as_from_files(tmp_path: Path, storage: Any) -> None:
    table = arrow_rows()
    for at in range(len(ROWS)):
        with storage.open(f"/visits/part-{at}.parquet", "wb") as file:
            pq.write_table(table.slice(at, 1), file)
    pq.write_table(table, tmp_path / "people.parquet")
    own = Source(engine="fsspec", database="memory://visits/*.parquet")
    assert_same(units_of_rows(snapshot(tmp_path, own)), units_of_rows(tmp_path / "people.parquet"), "parquet")
    lines = [";".join("" if cell is None else str(cell).replace("True", "1") for cell in row) for row in ROWS]
    text = "\n".join(["visits;score;sex;smoker;größe", *lines]).replace("False", "0")
    with storage.open("/visits/all.csv", "wb") as file:
        file.write(text.encode("latin-1"))
    path = tmp_path / "state" / "data.parquet"
    own = Source(engine="fsspec", database="memory://visits/all.csv")
    fetch(own, tmp_path, path, delimiter=";", encoding="latin-1")
    options: dict[str, Any] = {"categories": CATEGORIES, "missing": COLUMNS, "faults": []}
    rows = [load_units(each, columns=COLUMNS, **options).units.rows for each in (path, tmp_path / "people.parquet")]
    assert rows[0].tobytes() == rows[1].tobytes()


def test_storage_service_keeps_large_whole_numbers_of_persons_apart(tmp_path: Path, storage: Any) -> None:
    with storage.open("/visits/a.parquet", "wb") as file:
        pq.write_table(pa.table({"person": [2**53, 2**53 + 1, 2**53], "x": [1.0, 2.0, 3.0]}), file)
    path = snapshot(tmp_path, Source(engine="fsspec", database="memory://visits/a.parquet"))
    assert len(load_units(path, columns=["x"], unit_column="person").units) == 2


def test_storage_service_without_files_or_with_other_columns_is_refused(tmp_path: Path, storage: Any) -> None:
    for name, table in (("a", {"x": [1.0]}), ("b", {"y": [1.0]})):
        with storage.open(f"/visits/{name}.parquet", "wb") as file:
            pq.write_table(pa.table(table), file)
    for address in ("memory://visits/*.parquet", "memory://visits/*.csv", "memory://visits/c.parquet"):
        with pytest.raises(BadData):
            snapshot(tmp_path, Source(engine="fsspec", database=address))
    assert not list((tmp_path / "state").glob("*.parquet*part"))


@pytest.mark.parametrize(
    "entries",
    [
        {"engine": "fsspec", "database": "visits.parquet"},
        {"engine": "fsspec", "database": "s3://b/a.parquet", "query": "q"},
        {"engine": "fsspec", "database": "s3://b/a.parquet", "options": {"secret": "x"}},
        {"engine": "fsspec", "database": "az://b/a.parquet", "options": {"account_key": "x"}},
        {"engine": "fsspec", "database": "s3://b/a.parquet", "password_env": "X"},
        {"engine": "sqlite", "database": "a", "query": "q", "options": {"a": 1}},
        {"engine": "sqlite", "database": "a", "query": "q", "table": "t"},
        {"engine": "sqlite", "database": "a"},
        {"engine": "postgresql", "query": "q"},
        {"engine": "adbc", "database": "a", "query": "q"},
        {"engine": "sqlite", "database": "a", "table": "people; DROP TABLE people"},
        {"engine": "postgresql", "database": "postgresql://reader:secret@host/db", "query": "q"},
        {"engine": "postgresql", "database": "postgresql://reader:sec/ret@host/db", "query": "q"},
        {"engine": "postgresql", "database": "postgresql://reader@host/db?password=secret", "query": "q"},
        {"engine": "postgresql", "database": "host=db user=reader password = secret", "query": "q"},
        {"engine": "sqlite", "database": "a", "query": "q", "password_env": "A", "password_file": "b"},
    ],
)
def test_source_refuses_entries_that_contradict_each_other(entries: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Source(**entries)


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_password_file_open_to_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    (tmp_path / "password").chmod(0o644)
    source = Source(engine="postgresql", database="postgresql://a@b/c", query="q", password_file=Path("password"))
    with pytest.raises(BadStudy) as refused:
        source.password(tmp_path)
    assert "s3cret" not in str(refused.value)
    (tmp_path / "password").chmod(0o600)
    assert source.password(tmp_path) == "s3cret"


@pytest.mark.parametrize("quoted", ["s3cret /@", "s3cret%20%2F%40"])
def test_password_that_a_driver_quotes_is_not_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quoted: str
) -> None:
    # libpq quotes a malformed address whole, and ADBC's driver of SQLite an unknown option with its value.
    (tmp_path / "quoting_driver").mkdir()
    (tmp_path / "quoting_driver" / "__init__.py").write_text("")
    (tmp_path / "quoting_driver" / "dbapi.py").write_text(
        f"def connect(database, db_kwargs): raise ValueError('no option password={quoted} here')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "quoting_driver.dbapi", raising=False)
    monkeypatch.delitem(sys.modules, "quoting_driver", raising=False)
    monkeypatch.setenv("READER", "s3cret /@")
    source = Source(engine="adbc", driver="quoting_driver", query="q", password_env="READER")
    with pytest.raises(BadData) as failed:
        snapshot(tmp_path, source)
    assert failed.value.detail == "no option password=(the password) here"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock of files")
def test_second_fetch_at_the_same_time_is_refused_and_leaves_the_first_whole(tmp_path: Path) -> None:
    source = Source(engine="sqlite", database=sqlite_database(tmp_path), query=SQL)
    refused: list[BadData] = []

    def fetch_again(rows: int) -> None:
        with pytest.raises(BadData) as error:
            snapshot(tmp_path, source)
        refused.append(error.value)

    found = fetch(source, tmp_path, tmp_path / "state" / "data.parquet", fetch_again)
    assert "another process" in str(refused[0])
    assert pq.read_table(found.path).num_rows == found.rows == len(ROWS)
    assert hashlib.sha256(found.path.read_bytes()).hexdigest() == found.digest
    snapshot(tmp_path, source)  # the lock is released


def test_arrow_stream_and_file_give_the_same_cells(tmp_path: Path) -> None:
    table = arrow_rows()
    stream, file = tmp_path / "s.arrow", tmp_path / "f.feather"
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert open_table(stream, None, None).names == open_table(file, None, None).names
    assert_same(units_of_rows(stream), units_of_rows(file), "stream")
    stream.write_bytes(stream.read_bytes()[:-200])
    with pytest.raises(BadData):
        units_of_rows(stream)


def test_parquet_folder_with_different_types_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa.table({"a": [1.0]}), folder / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), folder / "2.parquet")
    with pytest.raises(BadData):
        load_units(folder, columns=["a"])


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server with the table `people`."""
    for address in serve_postgresql():
        with connected(address) as cursor:
            cursor.execute(
                "CREATE TABLE people (place int, visits bigint, score double precision, sex text, smoker boolean, "
                "person text)"
            )
            for at, row in enumerate(ROWS):
                cursor.execute("INSERT INTO people VALUES ($1, $2, $3, $4, $5, $6)", (at, *row))
        yield address


def arrow_rows() -> pa.Table:
    """The rows as an Arrow table."""
    types = [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.string()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*ROWS, strict=True), types, strict=True)]
    return pa.table(columns, names=[*COLUMNS, "person"])


def sqlite_database(folder: Path) -> str:
    """An SQLite file with the table `people`; its name."""
    with sqlite3.connect(folder / "people.sqlite") as connection:
        connection.execute("CREATE TABLE people (place, visits, score, sex, smoker, person)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", [(at, *row) for at, row in enumerate(ROWS)]
        )
    return "people.sqlite"


def snapshot(folder: Path, source: Source) -> Path:
    """The path of a fetched snapshot."""
    return fetch(source, folder, folder / "state" / "data.parquet").path


def units_of_rows(path: Path) -> Any:
    """Units of persons, read with categories and a rule for missing values."""
    options: dict[str, Any] = {"categories": CATEGORIES, "missing": COLUMNS, "unit_column": "person", "faults": []}
    return load_units(path, columns=COLUMNS, **options).units


def before_rows(units: Any) -> Any:
    """Rows of units as an array."""
    return np.asarray(units.rows)


def assert_same(units: Any, expected: Any, name: str) -> None:
    """Both have the same bits, in the same order."""
    assert np.array_equal(units.offsets, expected.offsets), name
    assert units.rows.tobytes() == expected.rows.tobytes(), name
