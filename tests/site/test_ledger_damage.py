"""Ledgers older than their counter, changed, garbled, gone, held by others, or copied while somebody writes."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helpers.ledger_spends import ACCOUNT, CAP, counter_of, grown, spend
from zerosum.errors import LedgerRefused
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_file import chained, copy_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "l.sqlite"


def refused(path: Path, word: str) -> None:
    with pytest.raises(LedgerRefused, match=word) as opened:
        Ledger.open(path, ACCOUNT)
    with pytest.raises(LedgerRefused, match=word) as inspected:
        Ledger.inspect(path)
    assert "\n" not in f"{opened.value} {inspected.value}"


def test_ledger_older_copy_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(grown(path, 2), tmp_path / "backup")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(2), CAP)
    newest = path.read_bytes()
    shutil.copy(tmp_path / "backup", path)
    refused(path, r"\b2 entries.*\b3\b")
    path.write_bytes(newest)
    with Ledger.open(path, ACCOUNT) as ledger:
        assert ledger.verify() == 3


def test_ledger_older_copy_under_open_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(grown(path, 2), tmp_path / "backup")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(2), CAP)
        (tmp_path / "backup").replace(path)  # the open ledger goes on with the old files, which have no name
        path.with_name("l.sqlite-wal").unlink()
        ledger.record(spend(3), CAP)
    refused(path, r"\b2 entries.*\b4\b")


def test_ledger_replaced_by_other_with_more_entries_is_refused(path: Path, tmp_path: Path) -> None:
    grown(path, 2)
    shutil.copy(grown(tmp_path / "l.sqlite", 5), path)
    refused(path, r"\b5 entries.*\b2\b")


def test_ledger_ahead_of_counter_is_accepted_and_counter_repaired(path: Path) -> None:
    grown(path, 2)
    old = counter_of(path).read_bytes()
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(2), CAP)
    new = counter_of(path).read_bytes()
    counter_of(path).write_bytes(old)
    with Ledger.inspect(path) as ledger:
        assert ledger.verify() == 3
    assert counter_of(path).read_bytes() == old
    with Ledger.open(path, ACCOUNT) as ledger:
        assert counter_of(path).read_bytes() == new


def test_ledger_missing_counter_with_entries_is_refused(path: Path) -> None:
    grown(path, 0)
    counter_of(path).unlink()
    grown(path, 1)
    counter_of(path).unlink()
    refused(path, r"\b1 entry.*counter")


def test_ledger_missing_file_is_not_created_again(path: Path) -> None:
    grown(path, 0).unlink()
    grown(path, 1).unlink()
    with pytest.raises(LedgerRefused, match=r"l\.sqlite\.counter"):
        Ledger.open(path, ACCOUNT)
    counter_of(path).unlink()
    path.with_name("l.sqlite-wal").write_bytes(b"frames")
    with pytest.raises(LedgerRefused, match=r"l\.sqlite-wal"):
        Ledger.open(path, ACCOUNT)
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "7", "zerosum-counter 2 1 " + "0" * 64 + "\n", "garbage\n", "\xff" * 90])
def test_ledger_garbled_counter_is_refused(path: Path, text: str) -> None:
    grown(path, 1)
    counter_of(path).write_text(text)
    refused(path, "counter")


def test_ledger_unwritable_counter_stops_send_and_entry_counts(path: Path) -> None:
    obstacle = counter_of(path).with_name("l.sqlite.counter.new")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0), CAP)
        obstacle.mkdir()
        with pytest.raises(LedgerRefused, match=r"\.counter\.new"):
            ledger.record(spend(1), CAP)
        obstacle.rmdir()
        assert len(ledger.entries()) == 2
        assert counter_of(path).read_text().split()[2] == "1"
        ledger.record(spend(2), CAP)
        assert counter_of(path).read_text().split()[2] == "3"


def tamper(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chain SET body = replace(body, '\"charged_mu\":0.1', '\"charged_mu\":0.0') WHERE number = 2",
        "DELETE FROM chain WHERE number = 2",
        "DELETE FROM chain WHERE number = 3",
        "DELETE FROM chain",
        "UPDATE chain SET number = 9 WHERE number = 3",
        "UPDATE chain SET digest = NULL WHERE number = 3",
        "UPDATE chain SET body = NULL WHERE number = 1",
        "INSERT INTO chain VALUES (4, 'x', 'y')",
        "INSERT INTO chain VALUES (5, 'x', 'y')",
        "DROP TABLE chain",
    ],
)
def test_ledger_changed_history_is_refused(path: Path, statement: str) -> None:
    tamper(grown(path, 3), statement)
    refused(path, "damaged|older|table")


@pytest.mark.parametrize("body", ["[]", '"text"', "7", "{}", "not json", '{"spend":{"mu":1}}'])
def test_ledger_rehashed_bad_row_is_refused(path: Path, body: str) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        last = ledger.record(spend(0), CAP)
    tamper(path, "INSERT INTO chain VALUES (2, ?, ?)", body, chained(last.digest, body))
    refused(path, "row 2")


def test_ledger_of_later_format_is_refused(path: Path) -> None:
    body = json.dumps({"format": 2, "population": "cohort", "unit": "person", "adjacency": "replace-one"})
    grown(path, 0)
    tamper(path, "UPDATE chain SET body = ?, digest = ?", body, chained("0" * 64, body))
    refused(path, "version")


def test_ledger_damaged_while_open_is_refused(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        for number in range(3):
            ledger.record(spend(number), CAP)
        tamper(path, "UPDATE chain SET body = 'x' WHERE number = 3")
        with pytest.raises(LedgerRefused, match="row 3"):
            ledger.record(spend(3), CAP)
        tamper(path, "DELETE FROM chain WHERE number = 3")
        with pytest.raises(LedgerRefused, match="row 3"):
            ledger.entries()
        with pytest.raises(LedgerRefused, match="older"):
            ledger.verify()


def test_ledger_open_of_other_file_is_refused(tmp_path: Path) -> None:
    folder, text, empty, other = (tmp_path / name for name in ("folder", "text", "empty", "other"))
    folder.mkdir()
    text.write_text("population = 'cohort'\n" * 100)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE chain (number, body, digest)")
    for path, word in ((text, str(text)), (empty, "empty"), (other, "row 0")):
        refused(path, word)
    refused(folder, str(folder))
    with pytest.raises(LedgerRefused, match=str(text)):
        Ledger.open(text / "l.sqlite", ACCOUNT)
    refused(tmp_path / ("x" * 300), "File name too long")  # the system's own words
    assert sorted(tmp_path.iterdir()) == sorted([folder, text, empty, other])


def test_ledger_locked_by_other_process_is_refused_after_timeout(path: Path) -> None:
    grown(path, 1)
    with Ledger.open(path, ACCOUNT) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        ledger._connection.execute("PRAGMA busy_timeout=20")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerRefused, match="process"):
            ledger.record(spend(1), CAP)
        assert len(ledger.entries()) == 1  # reading does not wait
        other.execute("ROLLBACK")
        ledger.record(spend(1), CAP)


def test_ledger_step_without_reservation_is_refused(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0), CAP, "aa")
        with pytest.raises(LedgerRefused, match="step"):
            ledger.draw("s", 1, 0, "c0ffee", "aa")
        digest = ledger.entries()[-1].digest
    step = {"study": "s", "round": 1, "attempt": 0, "request": "aa", "reservation": 1}
    body = json.dumps({"draw": step, "plan": "aa", "number": 2, "recorded": "", "version": "0"})
    tamper(path, "INSERT INTO chain VALUES (2, ?, ?)", body, hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest())
    refused(path, "step")


# ---- a copy in passing, while somebody writes ------------------------------------------------------------------------


def test_ledger_entry_after_copy_does_not_make_copy_older(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(source: Path, own: Path) -> None:
        copy_file(source, own)
        writer.record(spend(1), CAP)

    monkeypatch.setattr("zerosum.site.ledger.copy_file", copied)
    with Ledger.open(path, ACCOUNT) as writer:
        writer.record(spend(0), CAP)
        with Ledger.inspect(path, copy=True) as found:
            assert [entry.spend.round for entry in found.entries()] == [0]
            assert not found.unwitnessed


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ledger_log_merged_during_copy_is_not_missed(moment: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one to close a ledger removes its log; what was copied of that log would undo what came since."""
    copyfile, closed = shutil.copyfile, list[Any]()

    def copied(source: Path, own: Path) -> None:
        log = source.name.endswith("-wal") and not closed
        if moment == "after":
            copyfile(source, own)
        if log:
            closed.append(writer.record(spend(1), CAP))
            writer.close()
        if moment == "before":
            copyfile(source, own)

    writer = Ledger.open(path, ACCOUNT)
    writer.record(spend(0), CAP)
    monkeypatch.setattr(shutil, "copyfile", copied)
    with Ledger.inspect(path, copy=True) as found:
        assert len(closed) == 1
        assert [entry.spend.round for entry in found.entries()] == [0, 1]
