"""Databases as sources of a site: the same rows from every engine, and no password or cell in a message."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from zerosum.data.formats import open_table
from zerosum.data.sources import Source, fetch
from zerosum.data.tables import load_units
from zerosum.errors import BadData, BadStudy
from zerosum.study import Study

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
# Where Debian and others install the server's programs, which are not on the path.
SERVER = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))


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


STUDY = """
name = "visits"
algorithm = "mean"
[parameters]
columns = ["visits", "score"]
lower = [0, -10]
upper = [10, 10]
missing = {{ score = 0.0 }}
[unit]
kind = "person"
column = "person"
[privacy]
epsilon = 1.0
delta = 1e-5
random_state = 1
{sites}
"""


def test_study_from_every_source_has_the_same_bits_and_the_same_ledger(tmp_path: Path, postgresql: str) -> None:
    pytest.importorskip("duckdb")
    table = arrow_rows()
    pq.write_table(table, tmp_path / "people.parquet")
    with pa.ipc.new_file(tmp_path / "people.arrow", table.schema) as writer:
        writer.write_table(table)
    names = ["visits", "score", "sex", "smoker", "person"]
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in ROWS]
    (tmp_path / "people.csv").write_text("\n".join([",".join(names), *lines]))
    (tmp_path / "password").write_text("s3cret: /@\n")
    (tmp_path / "password").chmod(0o600)
    sources = {
        **{kind: f'data = "people.{kind}"' for kind in ("csv", "parquet", "arrow")},
        "sqlite": f'source = {{ engine = "sqlite", database = "{sqlite_database(tmp_path)}", query = "{SQL}" }}',
        "duckdb": 'source = { engine = "duckdb", query = "SELECT * FROM \'people.parquet\'" }',
        "postgresql": f'source = {{ engine = "postgresql", database = "{postgresql}", query = "{SQL}", '
        'password_file = "password" }',
    }
    found = {}
    for kind, source in sources.items():
        sites = ""
        for name in "abc":
            ledger = f"{kind}-{name}.sqlite"
            policy = f'population = "{name}", data = "synthetic", minimum_units = 2, ledger = "{ledger}"'
            sites += f'[[sites]]\nname = "{name}"\n{source}\npolicy = {{ {policy} }}\n'
        (tmp_path / "study.toml").write_text(STUDY.format(sites=sites))
        study = Study.load(tmp_path / "study.toml")
        result = study.run()
        spends = []
        for file in study.site_files:
            with file.own_policy().open_ledger() as ledger:
                # Each run has a name of its own.
                spends.append([replace(each.spend, study="visits") for each in ledger.entries()])
        found[kind] = result.estimate["mean"].value.tobytes(), spends
    assert found["csv"][1][0]
    assert {kind: each == found["csv"] for kind, each in found.items()} == dict.fromkeys(sources, True)


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


@pytest.mark.parametrize(
    "entries",
    [
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
    """The address of a PostgreSQL server on a Unix socket, with the table `people`."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    if not SERVER:
        pytest.skip("there is no PostgreSQL server: apt-get install postgresql")
    # Not a folder of pytest, which only the user of the tests may enter; and a path of a socket must be short.
    with TemporaryDirectory(prefix="pg-") as name:
        yield from serve(Path(name), dbapi)


def serve(folder: Path, dbapi: Any) -> Iterator[str]:
    """Runs the server until the address is not needed any more.

    Parameters
    ----------
    folder : Path
        Folder of the data and of the socket.
    dbapi : module
        ADBC's driver.
    """
    programs = SERVER[-1].parent
    # The server refuses to run as root.
    own = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if own:
        subprocess.run(["chown", "postgres", str(folder)], check=True)
    (folder / "word").write_text("s3cret: /@")
    if own:
        subprocess.run(["chown", "postgres", str(folder / "word")], check=True)
    start = [*own, str(programs / "initdb"), "-D", str(folder / "data"), "-U", "reader", "-A", "scram-sha-256"]
    subprocess.run([*start, "--pwfile", str(folder / "word"), "-E", "UTF8"], check=True, capture_output=True, cwd="/")
    options = ["-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen([*own, str(programs / "postgres"), *options], stderr=subprocess.DEVNULL, cwd="/")
    try:
        address = f"postgresql://reader@/postgres?host={folder}"
        known = address.replace("reader@", "reader:s3cret%3A%20%2F%40@")
        for _ in range(
            600
        ):  # the socket is there before the server answers; one that fails ends the loop with its exit
            with suppress(dbapi.OperationalError):
                dbapi.connect(known).close()
                break
            if server.poll() is not None:
                break
            time.sleep(0.1)
        with dbapi.connect(known, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE people (place int, visits bigint, score double precision, sex text, smoker boolean, "
                "person text)"
            )
            for at, row in enumerate(ROWS):
                cursor.execute("INSERT INTO people VALUES ($1, $2, $3, $4, $5, $6)", (at, *row))
        yield address
    finally:
        server.terminate()
        server.wait()


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
