"""Queries of databases: a site's own table or query, copied once into a Parquet file that studies read.

A site that keeps its records in a database names the database and one query in its own file. `fetch` runs the query at
the site's own desk and writes the result to a snapshot, a Parquet file in the site's state folder. Schema, plans and
studies read the snapshot and never the database:

- whether a database answers, how fast, and with how many rows cannot influence what a site sends during a study;
- all rounds of a study use the same rows;
- the snapshot is read in batches, so that memory does not grow with the number of rows (`zerosum.data.spool`).

Rows keep the order in which the engine returns them. A result with the same cells in the same order gives the same
units, to the bit, from every engine. An engine may return rows in any order unless the query has an ORDER BY.

No plan contains a query, and no coordinator can choose one. Zerosum does not parse SQL.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, model_validator

from zerosum.data.formats import Text, open_table, readable
from zerosum.data.omop import Definitions
from zerosum.disk import make_folder, open_new, sync_folder
from zerosum.errors import BadData, BadStudy, ZerosumError

if sys.platform != "win32":
    import fcntl

Engine = Literal["duckdb", "sqlite", "postgresql", "adbc", "fsspec"]

# Rows of a batch on its way into the snapshot: 100 columns of doubles are 13 MB. Chosen by hand; no benchmark recorded.
_BATCH_ROWS = 1 << 14
# What to install for an engine. SQLite is part of Python.
_PACKAGES = {
    "duckdb": "duckdb",
    "fsspec": "fsspec",
    "postgresql": "adbc_driver_postgresql.dbapi",
    "adbc": "adbc_driver_manager.dbapi",
}
# A password within an address: of a user, or as a setting of libpq ("password=...", also after "?").
_PASSWORD = re.compile(r"://[^@?]*:[^@?]+@|\b(password|passwd|pwd|sslpassword)\s*=", re.IGNORECASE)
_SUFFIXES = (".parquet", ".csv", ".tsv", ".gz")  # of files in a storage service
_DEFINITIONS = b"zerosum.columns"  # key of the definitions of columns in a snapshot's metadata
# Names of options that hold secrets. They belong to the environment of the library, and to no file of a site.
_SECRET = re.compile(r"secret|password|token|credential|sas|(^|_)key$", re.IGNORECASE)
_EXTRAS = {
    "fsspec": "zerosum[storage]",
    "duckdb": "zerosum[duckdb]",
    "postgresql": "zerosum[postgres]",
    "adbc": "adbc-driver-manager",
}


class Source(BaseModel):
    """Table [source] of a site's file: where a query reads. It never enters a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: Engine
    """`"duckdb"` (also for folders of Parquet and CSV files, by its functions), `"sqlite"`, `"postgresql"`,
    `"adbc"` for another ADBC driver, or `"fsspec"` for files in a storage service."""
    database: str = ""
    """A file (DuckDB: empty for none), or an address without a password: `"postgresql://reader@db/research"`,
    `"s3://bucket/visits/*.parquet"`."""
    options: dict[str, str | int | bool] = Field(default_factory=dict)
    """Of `"fsspec"`: options of the file system without secrets, such as `{ endpoint_url = "https://store" }`."""
    kind: Literal["query", "omop"] = "query"
    """`"omop"`: an OMOP database in DuckDB or PostgreSQL, whose columns a public file defines; see
    [OMOP](omop.md)."""
    variables: Path | None = None
    """The public file of `"omop"` that defines cohort and columns, the same as the study's."""
    cdm_schema: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$")
    """The schema of the database with the tables of `"omop"`; in a DuckDB file of the same name, `"cdm.cdm"`."""
    query: str | None = Field(default=None, min_length=1)
    """One query; its result is the table. Give an ORDER BY if rows must always come in the same order."""
    table: str | None = Field(
        default=None, min_length=1, pattern=r"^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)*$"
    )
    """A table or view, instead of a query."""
    driver: str | None = Field(default=None, min_length=1)
    """The driver of `"adbc"`: a Python module with `dbapi`, or a shared library."""
    password_env: str | None = Field(default=None, min_length=1)
    """The environment variable with the password."""
    password_file: Path | None = None
    """The file with the password, of mode 0600, relative to the site's file."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        """Refuse combinations of entries that no engine can serve."""
        if self.kind == "omop":
            if self.engine not in ("duckdb", "postgresql"):
                raise ValueError(f"OMOP databases are read by DuckDB and PostgreSQL, not by {self.engine!r}")
            if self.variables is None or self.query is not None or self.table is not None or not self.database:
                raise ValueError("an OMOP source needs a database and variables, and has no query and no table")
        elif self.variables is not None or self.cdm_schema is not None:
            raise ValueError('variables and cdm_schema are for the kind "omop"')
        elif self.engine == "fsspec":
            if "://" not in self.database or self.query is not None or self.table is not None:
                raise ValueError("files in a storage service need an address (s3://bucket/file), and have no query")
        elif (self.query is None) == (self.table is None):
            raise ValueError("give either a query or a table")
        if self.engine == "fsspec" and (self.password_env is not None or self.password_file is not None):
            raise ValueError("credentials of a storage service are those of its library: give no password")
        if self.options and self.engine != "fsspec":
            raise ValueError('options are for the engine "fsspec"')
        if secret := [name for name in self.options if _SECRET.search(name)]:
            raise ValueError(f"{secret[0]!r} may be a secret: give it by the environment of the storage's library")
        if self.engine not in ("duckdb", "adbc") and not self.database:
            raise ValueError(f"the engine {self.engine!r} needs a database")
        if (self.driver is not None) != (self.engine == "adbc"):
            raise ValueError('a driver is for the engine "adbc", which needs one')
        if self.password_env is not None and self.password_file is not None:
            raise ValueError("give the password by an environment variable or by a file, not by both")
        if _PASSWORD.search(self.database):
            raise ValueError("an address must not contain a password: use password_env or password_file")
        return self

    def definitions(self, folder: Path) -> Definitions | None:
        """The definitions of an OMOP source; None for a query. Raises `BadStudy` if the file cannot be read."""
        return None if self.variables is None else Definitions.load(folder / self.variables)

    def statement(self, folder: Path) -> str:
        """The SQL text that is run. `folder`: that of the site's file."""
        if (definitions := self.definitions(folder)) is not None:
            return definitions.statement(self.cdm_schema)
        if self.engine == "fsspec":
            return json.dumps(self.options, sort_keys=True)  # no SQL; part of what was read
        # The pattern of `table` allows plain identifiers only, so that nothing needs quotes.
        return self.query if self.query is not None else f"SELECT * FROM {self.table}"  # noqa: S608 # a plain identifier

    def digest(self, folder: Path) -> str:
        """SHA-256 of the engine, the database and the SQL text, for the audit log. A password is not part of it."""
        return hashlib.sha256("\0".join([self.engine, self.database, self.statement(folder)]).encode()).hexdigest()

    def password(self, folder: Path) -> str | None:
        """The password, or None.

        Parameters
        ----------
        folder : Path
            Folder of the site's file.

        Raises
        ------
        BadStudy
            If the variable is not set, or the file cannot be read or is open to other users.
        """
        if self.password_env is not None:
            if self.password_env not in os.environ:
                raise BadStudy(f"the environment variable {self.password_env!r} with the password is not set")
            return os.environ[self.password_env]
        if self.password_file is None:
            return None
        path = folder / self.password_file
        try:
            if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
                raise BadStudy(f"{path} holds a password and is open to other users: chmod 600")
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BadStudy(f"the password file {path} cannot be read ({type(error).__name__})") from None


@dataclass(frozen=True)
class Snapshot:
    """Facts about a fetched snapshot, for the audit log."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    query_digest: str
    digest: str  # SHA-256 of the Parquet file
    fetched: str  # UTC time


def fetch(
    source: Source,
    folder: Path,
    path: Path,
    on_rows: Callable[[int], None] | None = None,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Snapshot:
    """Run a site's query and replace its snapshot.

    The old snapshot stays until the new one is complete and on disk, also if the process is killed.

    Parameters
    ----------
    source : Source
        The database and the query.
    folder : Path
        Folder of the site's file; relative paths start there.
    path : Path
        The snapshot, a Parquet file of mode 0600. A folder that does not exist yet gets mode 0700.
    on_rows : callable, optional
        Called with the number of rows so far.
    delimiter, encoding : str, optional
        Of text files in a storage service.

    Raises
    ------
    BadData
        If the query fails, returns no rows, or two columns have the same name, or if another process fetches this
        snapshot. The message has no text of the engine, which may quote cells; that text is in the error's `detail`.
    """
    make_folder(path.parent)
    with _alone(path):
        return _fetch(source, folder, path, on_rows, delimiter, encoding)


def write_defined(path: Path, schema: Any, batches: Iterator[Any], columns: Mapping[str, Mapping[str, Any]]) -> int:
    """Write a new Parquet file, of mode 0600, whose columns a public file defines. Returns the number of rows.

    Parameters
    ----------
    path : Path
        The file. It is complete or not there, also if the process is killed.
    schema : pyarrow.Schema
        Names and types.
    batches : iterator of pyarrow.RecordBatch
        The rows.
    columns : mapping
        Entries of a site's schema, by column.
    """
    if path.exists():
        raise BadData(f"{path} exists: give the name of a new file")
    return _write(path, schema.with_metadata({_DEFINITIONS: json.dumps(columns).encode()}), batches, None)[0]


def _write(path: Path, schema: Any, batches: Iterator[Any], on_rows: Callable[[int], None] | None) -> tuple[int, str]:
    """Write a Parquet file of mode 0600 in place of the old one. Returns the number of rows and the SHA-256.

    Parameters
    ----------
    path : Path
        The file. It stays as it is until the new one is complete and on disk.
    schema : pyarrow.Schema
        Names, types and metadata.
    batches : iterator of pyarrow.RecordBatch
        The rows; none are an error.
    on_rows : callable or None
        Called with the number of rows so far.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = path.with_name(path.name + ".part")
    rows = 0
    try:
        part.unlink(missing_ok=True)  # of a process that was killed
        with open_new(part, private=True) as file:
            # Checksums: a damaged page is an error when the file is read, and not another person's value.
            with pq.ParquetWriter(file, schema, write_page_checksum=True) as writer:
                for batch in batches:
                    writer.write_table(pa.Table.from_batches([batch], schema))
                    rows += batch.num_rows
                    if on_rows is not None:
                        on_rows(rows)
            file.flush()
            os.fsync(file.fileno())
        if rows == 0:
            raise BadData("the query or the export of the site has no rows")
        with part.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise BadData(f"{path.name} cannot be written: {error.strerror or type(error).__name__}") from None
    finally:
        part.unlink(missing_ok=True)
    return rows, digest


def defined_columns(path: Path) -> dict[str, dict[str, Any]]:
    """Entries of a schema that a snapshot or a converted file declares, by column; empty for other files."""
    if not path.is_file() or path.suffix.lower() != ".parquet":
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(path, pa.ArrowException), pq.ParquetFile(path) as file:
        notes = (file.schema_arrow.metadata or {}).get(_DEFINITIONS, b"{}")
        found: dict[str, dict[str, Any]] = json.loads(notes)
        return found


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Scope in which no other process and no other thread fetches this snapshot.

    With two at once, one would put the unfinished file of the other in place.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        with suppress(FileExistsError):
            open_new(lock, private=True).close()
        file = lock.open("ab")
    except OSError as error:
        raise BadData(f"the snapshot cannot be written: {error.strerror or type(error).__name__}") from None
    with file:
        if sys.platform != "win32":
            try:
                # The system releases this lock at the end of the process for any reason.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadData("another process fetches this snapshot") from None
        yield


def _fetch(
    source: Source,
    folder: Path,
    path: Path,
    on_rows: Callable[[int], None] | None,
    delimiter: str | None,
    encoding: str | None,
) -> Snapshot:
    """`fetch` while no other process does."""
    definitions = source.definitions(folder)
    # What the columns mean stays with the snapshot: an edit of the file after the fetch changes no definition.
    notes = {} if definitions is None else {_DEFINITIONS: json.dumps(definitions.columns()).encode()}
    with _reader(source, folder, delimiter, encoding) as (found, batches):
        if len(set(found.names)) < len(found.names):
            raise BadData("two columns of the query have the same name")
        rows, digest = _write(path, found.with_metadata(notes or found.metadata), batches, on_rows)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Snapshot(path, rows, tuple(found.names), source.digest(folder), digest, now)


@contextmanager
def _reader(
    source: Source, folder: Path, delimiter: str | None, encoding: str | None
) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Schema and record batches of the query's result, from a connection that is closed at the end."""
    password = source.password(folder)
    with ExitStack() as stack:
        with _failing(source, password):
            schema, batches = _result(source, folder, password, stack, delimiter, encoding)

        def guarded() -> Iterator[Any]:
            # The engine may compute rows only when they are fetched, and fail then.
            while True:
                with _failing(source, password):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

        yield schema, guarded()


@contextmanager
def _failing(source: Source, password: str | None) -> Iterator[None]:
    """Convert errors of an engine to `BadData`, without the password, which drivers quote in some of their errors."""
    try:
        yield
    except (ZerosumError, MemoryError):
        raise
    except Exception as error:  # every driver has exceptions of its own
        message = f"the query of the site failed ({source.engine}: {type(error).__name__})"
        detail = str(error)
        for secret in (password, password and quote(password, safe="")):
            detail = detail.replace(secret, "(the password)") if secret else detail
        raise BadData(message, detail=detail) from None


def _result(
    source: Source,
    folder: Path,
    password: str | None,
    stack: ExitStack,
    delimiter: str | None,
    encoding: str | None,
) -> tuple[Any, Iterator[Any]]:
    """Schema and record batches of the query's result.

    Parameters
    ----------
    source : Source
        The database and the query.
    folder : Path
        Folder of the site's file.
    password : str or None
        For a server.
    stack : ExitStack
        Closes the connection.
    delimiter, encoding : str or None
        Of text files in a storage service.
    """
    match source.engine:
        case "sqlite":
            connection = stack.enter_context(closing(_sqlite(folder / source.database)))
            rows = connection.execute(source.statement(folder))
            return _text_batches([each[0] for each in rows.description or ()], rows)
        case "duckdb":
            duckdb = _module("duckdb")
            # Read-only: a site's query must not change its database, and another process may have it open.
            path = str(folder / source.database) if source.database else ":memory:"
            connection = stack.enter_context(closing(duckdb.connect(path, read_only=bool(source.database))))
            # Relative paths in the query, such as 'visits/*.parquet', start at the folder of the site's file.
            connection.execute(f"SET file_search_path = '{str(folder.absolute()).replace(chr(39), chr(39) * 2)}'")
            relation = connection.sql(source.statement(folder))
            if relation is None:
                raise BadData("the query of the site returns no table")
            reader = relation.to_arrow_reader(_BATCH_ROWS)
        case "fsspec":
            return _stored(source, stack, delimiter, encoding)
        case _:
            connection = stack.enter_context(closing(_adbc(source, password)))
            cursor = stack.enter_context(closing(connection.cursor()))
            cursor.execute(source.statement(folder))
            reader = cursor.fetch_record_batch()
    return reader.schema, iter(reader)


def _stored(source: Source, stack: ExitStack, delimiter: str | None, encoding: str | None) -> tuple[Any, Iterator[Any]]:
    """Schema and record batches of files in a storage service, one after the other in the order of their names.

    Files are copied to a folder of their own first, so that a connection that breaks is an error before any row is
    used. The folder is removed afterwards.
    """

    fsspec = _module("fsspec")
    system, pattern = fsspec.core.url_to_fs(source.database, **source.options)
    names = sorted(system.glob(pattern)) if any(mark in pattern for mark in "*?[") else [pattern]
    if not names:
        raise BadData("no file has the address of the source")
    # Mode 0700.
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="zerosum-")))
    parts = []
    for at, name in enumerate(names):
        suffixes = "".join(each for each in Path(name).suffixes if each.lower() in _SUFFIXES)
        own = folder / f"{at}{suffixes}"
        system.get_file(name, str(own))
        parts.append(_stored_file(own, delimiter, encoding))
    schema = parts[0][0]
    if any(not each.equals(schema) for each, _ in parts):
        raise BadData("the files of the source differ in their columns or types")
    return schema, (batch for _, batches in parts for batch in batches)


def _stored_file(path: Path, delimiter: str | None, encoding: str | None) -> tuple[Any, Iterator[Any]]:
    """Schema and record batches of a Parquet file with its own types, or of a text file as text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix.lower() == ".parquet":
        file = pq.ParquetFile(path, page_checksum_verification=True)
        return file.schema_arrow.remove_metadata(), file.iter_batches(_BATCH_ROWS)
    if not path.suffixes:
        raise BadData("the files of the source are none of .parquet, .csv and .tsv, or .gz of these")
    table = open_table(path, None, None, delimiter, encoding)
    schema = pa.schema([(name, pa.string()) for name in table.names])

    def batches() -> Iterator[Any]:
        for cells in table.batches(range(len(table.names))):
            yield pa.record_batch([each.strings for each in cells if isinstance(each, Text)], schema=schema)

    return schema, batches()


def _sqlite(path: Path) -> sqlite3.Connection:
    """A read-only connection to an SQLite file."""
    if not path.is_file():
        raise BadData(f"there is no file {path}")
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _text_batches(names: list[str], cursor: sqlite3.Cursor) -> tuple[Any, Iterator[Any]]:
    """Rows of SQLite as batches of text.

    SQLite has a type for each cell and none for a column. Text is the one type that holds every cell: Python's text of
    a number is read back as the same number. No cell decides how others are read.
    """
    import pyarrow as pa

    schema = pa.schema([(name, pa.string()) for name in names])

    def batches() -> Iterator[Any]:
        while some := cursor.fetchmany(_BATCH_ROWS):
            columns = [[None if cell is None else str(cell) for cell in column] for column in zip(*some, strict=True)]
            yield pa.record_batch([pa.array(column, pa.string()) for column in columns], schema=schema)

    return schema, batches()


def _adbc(source: Source, password: str | None) -> Any:
    """A connection of an ADBC driver."""
    if source.engine == "postgresql":
        address = source.database
        if password is not None:
            # The password goes into the address in memory only. libpq decodes percent signs.
            scheme, _, rest = address.partition("://")
            user, at, place = rest.partition("@")
            if not at:
                raise BadStudy("an address with a password needs a user: postgresql://USER@HOST/DATABASE")
            address = f"{scheme}://{user}:{quote(password, safe='')}@{place}"
        connection = _module("postgresql").connect(address)
        with closing(connection.cursor()) as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        connection.commit()  # the setting holds for the transactions that follow
        return connection
    driver = source.driver or ""
    try:
        # A package with the interface of adbc_driver_postgresql.
        own = importlib.import_module(f"{driver}.dbapi") if driver.isidentifier() else None
    except ImportError:
        own = None
    options = {} if password is None else {"password": password}
    if own is not None:
        return own.connect(source.database, db_kwargs=options) if options else own.connect(source.database)
    return _module("adbc").connect(driver=driver, db_kwargs={"uri": source.database, **options})


def _module(engine: str) -> Any:
    """The library of an engine, or `BadStudy` with what to install."""
    try:
        return importlib.import_module(_PACKAGES[engine])
    except ImportError:
        raise BadStudy(f"the engine {engine!r} needs a library: pip install {_EXTRAS[engine]}") from None
