"""A ledger on the disk: its file, which appears whole, the counter beside it, and what disks have to say, in words.

Tested in tests/site/test_ledger_damage.py.
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
from zerosum.site.account import Account

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
    """Whatever the disk or SQLite has to say becomes one sentence."""
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
    """Never creates a file. Threads are kept apart by the ledger's own lock."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA wal_autocheckpoint=100")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def create_file(path: Path, account: Account) -> None:
    """Make the file under another name and link it into place: it appears whole, never over another one."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600, as its log will be
    os.close(handle)
    fields = asdict(account) | {"format": 1}
    del fields["rows_per_unit"]
    body = as_json(fields)
    try:
        with closing(connect(Path(name))) as connection:
            # nobody sees the file yet, and one that is not finished is of no use: it is synced once, whole
            connection.execute("PRAGMA synchronous=OFF")
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("PRAGMA page_size=1024")
            connection.execute("CREATE TABLE chain (number INTEGER PRIMARY KEY, body TEXT, digest TEXT)")
            connection.execute("INSERT INTO chain VALUES (0, ?, ?)", (body, chained(START, body)))
            connection.execute("PRAGMA journal_mode=WAL")
        with Path(name).open("r+b") as file:
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(name, path)
    finally:
        for each in (name, f"{name}-wal", f"{name}-shm"):
            Path(each).unlink(missing_ok=True)
    sync_folder(path.parent)


def copy_file(path: Path, own: Path) -> None:
    """The file and its log, which may hold the newest entries, as they are at one moment."""
    for _ in range(10):
        with suppress(FileNotFoundError):  # the log was folded into the file meanwhile
            parts = [part for ending in ("", "-wal") if (part := beside(path, ending)).exists()]
            before = [_state(part) for part in parts]
            beside(own, "-wal").unlink(missing_ok=True)  # of the time before: an older log undoes what came since
            for part in parts:
                shutil.copyfile(part, own.with_name(part.name))
            if [_state(part) for part in parts] == before:
                return
    raise LedgerRefused(f"the ledger {path} changes while it is read: try again")


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def read_counter(path: Path) -> tuple[int, str] | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    if found := _COUNTER.fullmatch(text):
        return int(found[1]), found[2].decode()
    raise LedgerRefused(f"the counter {path} is damaged ({len(text)} bytes): bring back its newest copy")


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def as_json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)


def chained(previous: str, body: object) -> str:
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def write_counter(path: Path, entries: int, digest: str) -> None:
    """Durable on return, and never half written."""
    fresh = beside(path, ".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"zerosum-counter 1 {entries} {digest}\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
