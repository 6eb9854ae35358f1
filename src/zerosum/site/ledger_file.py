"""The files of a ledger: the database, which is created whole, the counter beside it, and readable messages for disk
errors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zerosum.disk import sync_folder
from zerosum.errors import LedgerRefused
from zerosum.site.ledger_records import Account

START = "0" * 64  # the digest before row 0
_COUNTER = re.compile(rb"zerosum-counter 1 (0|[1-9][0-9]{0,15}) ([0-9a-f]{64})\n")
_FAULTS = {
    sqlite3.SQLITE_FULL: "the disk is full; make room and try again",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; check it for space and faults",
    sqlite3.SQLITE_READONLY: "it is read-only; let this user write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; let this user write the file and its folder",
    sqlite3.SQLITE_BUSY: "another process holds it; try again when that one is done",
    sqlite3.SQLITE_CORRUPT: "it is damaged; bring back its newest copy",
    sqlite3.SQLITE_NOTADB: "it is damaged or no ledger; check the path or bring back its newest copy",
}


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn errors of the disk and of SQLite into `LedgerRefused` with one sentence."""
    try:
        yield
    except OSError as error:
        place = f" at {error.filename}" if error.filename else ""
        reason = f"{error.strerror or error}{place}; check the disk and who may write there"
        raise LedgerRefused(f"the ledger {path} cannot be used: {reason}") from error
    except (sqlite3.Error, UnicodeError) as error:
        reason = _FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error))
        raise LedgerRefused(f"the ledger {path} cannot be used: {reason}") from error


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing file; never creates one. The ledger's own lock keeps threads apart."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        # With a write-ahead log, FULL syncs the log at every commit: a commit is durable on return.
        connection.execute("PRAGMA synchronous=FULL")
        # Pages of the log before it is copied into the database: the log stays small, so that opening is fast.
        connection.execute("PRAGMA wal_autocheckpoint=100")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def create_file(path: Path, account: Account) -> None:
    """Create the file under another name and link it into place: it appears whole and never replaces another one.

    Parameters
    ----------
    path : Path
        The ledger's path. If another process creates the ledger first, its file stays.
    account : Account
        Written to row 0, without `rows_per_unit`, which may change in the policy.
    """
    # mode 0600; SQLite gives the same mode to the log
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    fields = asdict(account) | {"format": 1}
    del fields["rows_per_unit"]
    body = as_json(fields)
    try:
        with closing(connect(Path(name))) as connection:
            # The file is not visible yet, and an unfinished one is useless: it is synced once, at the end.
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA page_size=1024")
            connection.execute("CREATE TABLE chain (number INTEGER PRIMARY KEY, body TEXT, digest TEXT)")
            connection.execute("INSERT INTO chain VALUES (0, ?, ?)", (body, chained(START, body)))
            # The mode is stored in the file: every later connection has it, and `Ledger.verify` checks it.
            connection.execute("PRAGMA journal_mode=WAL")
        with Path(name).open("r+b") as file:
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process created the ledger first
            os.link(name, path)
    finally:
        for each in (name, f"{name}-wal", f"{name}-shm"):
            Path(each).unlink(missing_ok=True)
    sync_folder(path.parent)


def copy_file(path: Path, own: Path) -> None:
    """Copy the file and its log, which may hold the newest entries, in one consistent state.

    Parameters
    ----------
    path : Path
        The ledger, which may be in use.
    own : Path
        The copy, in a folder of the caller's.
    """
    for _ in range(10):
        with suppress(FileNotFoundError):  # a checkpoint removed the log meanwhile
            parts = [part for ending in ("", "-wal") if (part := beside(path, ending)).exists()]
            before = [_state(part) for part in parts]
            beside(own, "-wal").unlink(missing_ok=True)  # a log of an earlier attempt would undo newer changes
            for part in parts:
                shutil.copyfile(part, own.with_name(part.name))
            # A write during the copy would give a database and a log of different moments.
            if [_state(part) for part in parts] == before:
                return
    raise LedgerRefused(f"the ledger {path} changes while it is read: try again")


def _state(path: Path) -> tuple[int, int]:
    """Modification time and size, to detect a change during a copy."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def read_counter(path: Path) -> tuple[int, str] | None:
    """The number of entries and the digest of the last one; None if there is no counter."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    # A partial match would read a torn counter as a smaller number, and older copies of the ledger would pass.
    if found := _COUNTER.fullmatch(text):
        return int(found[1]), found[2].decode()
    raise LedgerRefused(f"the counter {path} is damaged ({len(text)} bytes): bring back its newest copy")


def beside(path: Path, ending: str) -> Path:
    """The path with an ending appended."""
    return path.with_name(path.name + ending)


def as_json(fields: dict[str, Any]) -> str:
    """Canonical JSON: sorted keys, no spaces, no NaN."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained(previous: str, body: object) -> str:
    """The digest of a row: SHA-256 of the previous digest, a newline and the body."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def write_counter(path: Path, entries: int, digest: str) -> None:
    """Replace the counter atomically; durable on return."""
    fresh = beside(path, ".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        # Synced before the rename: otherwise a power cut could leave the new name with an empty file.
        file.write(f"zerosum-counter 1 {entries} {digest}\n")
        file.flush()
        os.fsync(file.fileno())
    # A rename is atomic: a reader sees the old counter or the new one. The folder's sync makes the rename durable.
    fresh.replace(path)
    sync_folder(path.parent)
