from __future__ import annotations

import hashlib
import json
import math
import shutil
import sqlite3
import stat
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spends import ACCOUNT, CAP, spend
from zerosum.errors import BadParameter, BudgetExceeded, LedgerRefused
from zerosum.kernel.accountant import compose, epsilon, mixed_epsilon, mu_for
from zerosum.kernel.events import Subsampled
from zerosum.site.account import Account, Cap, Spend
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_file import copy_file


def grown(path: Path, entries: int) -> Path:
    with Ledger.open(path, ACCOUNT) as ledger:
        for number in range(entries):
            ledger.record(spend(number), CAP)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "l.sqlite"


def counter_of(path: Path) -> Path:
    return path.with_name("l.sqlite.counter")


# ---- what is kept ------------------------------------------------------------------------------------------


def test_entries_come_back_exactly_and_chained(path: Path) -> None:
    spends = [
        spend(0, 0.1 + 0.2, study="é\ud800 ☃"),
        spend(1, 5e-324, sensitivity=1 / 3),
        spend(2, 0, attempt=7),
    ]
    with Ledger.open(path, ACCOUNT) as ledger:
        recorded = [ledger.record(each, CAP) for each in spends]
        assert ledger.entries() == recorded
    with Ledger.inspect(path) as ledger:
        assert ledger.entries() == recorded
        assert ledger.account == ACCOUNT
        assert ledger.verify() == 3
    assert [entry.spend for entry in recorded] == spends
    assert [entry.number for entry in recorded] == [1, 2, 3]
    assert [entry.previous for entry in recorded[1:]] == [entry.digest for entry in recorded[:-1]]
    assert recorded[0].recorded.endswith("+00:00")


def test_totals_are_the_accountants(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        assert ledger.mu == ledger.epsilon(1e-5) == 0
        for number, mu in enumerate((0.3, 0.4, 1.2)):
            ledger.record(spend(number, mu), CAP)
        assert ledger.mu == compose((0.3, 0.4, 1.2)) == pytest.approx(1.3)
        assert ledger.epsilon(1e-6) == epsilon(ledger.mu, 1e-6)


def test_files_are_the_users_own(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(), CAP)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys(("l.sqlite", "l.sqlite-wal", "l.sqlite-shm", "l.sqlite.counter"), 0o600)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path.parent.parent)} == {0o700}


def test_a_commit_is_on_the_disk_when_it_returns(path: Path) -> None:
    """No kill of a process shows this, only a loss of power would; so ask SQLite how it is set."""
    with Ledger.open(path, ACCOUNT) as ledger:
        settings = {"journal_mode": "wal", "synchronous": 2, "page_size": 1024}
        for name, value in settings.items():
            assert ledger._connection.execute(f"PRAGMA {name}").fetchone() == (value,)


def test_one_ledger_serves_several_objects_and_threads(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as first, Ledger.open(path, ACCOUNT) as second:

        def work(ledger: Ledger, study: str) -> None:
            for number in range(10):
                ledger.record(spend(number, study=study), Cap(100.0, 1e-5))

        jobs = [(first, "a"), (first, "b"), (second, "c")]
        threads = [threading.Thread(target=work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(first.entries()) == second.verify() == 30
    assert counter_of(path).read_text().split()[2] == "30"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mu": -0.1}, "mu must be finite"),
        ({"mu": math.inf}, "mu must be finite"),
        ({"mu": math.nan}, "mu must be finite"),
        ({"sensitivity": math.nan}, "sensitivity must be finite"),
        ({"unit": "row"}, "'person' or 'record', got 'row'"),
        ({"study": ""}, "the study must have a name"),
        ({"number": -1}, "count from 0"),
        ({"steps": 0}, "at least 1"),
        ({"rate": 1.5}, "sampling rate"),
        ({"rate": 0.5, "steps": 0}, "at least 1"),
    ],
)
def test_a_senseless_spend_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        spend(**fields)


def test_senseless_accounts_caps_and_requests_are_refused(path: Path) -> None:
    with pytest.raises(BadParameter, match="replace-one"):
        Account("cohort", "person", "neighbours")
    with pytest.raises(BadParameter, match="population must have a name"):
        Account("", "person", "replace-one")
    with pytest.raises(BadParameter, match="rows_per_unit"):
        Account("cohort", "person", "replace-one", 0)
    with pytest.raises(BadParameter, match="epsilon"):
        Cap(0.0, 1e-5)
    with pytest.raises(BadParameter, match="delta"):
        Cap(1.0, 1.0)
    with pytest.raises(BadParameter, match="hex"):
        replace(spend(), request="the mean")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.check([replace(spend(), request="")], CAP)
        with pytest.raises(BadParameter, match="names no request"):
            ledger.record(replace(spend(), request=""), CAP)


# ---- the cap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3, 7, 49])
def test_the_cap_may_be_reached_but_not_passed(path: Path, parts: int) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        share = mu_for(CAP.epsilon, CAP.delta) / math.sqrt(parts)
        for number in range(parts):
            ledger.record(spend(number, share), CAP)
        assert ledger.epsilon(CAP.delta) == pytest.approx(CAP.epsilon)
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(parts, 1e-4), CAP)
        ledger.record(spend(parts, 0.0), CAP)
        assert len(ledger.entries()) == parts + 1


def test_a_refusal_says_who_what_and_how_much(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 1.0), CAP)
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.record(spend(1, 2.0), CAP)
        assert ledger.verify() == 1
    assert str(refusal.value) == (
        "population 'cohort' has spent epsilon 4.3772, 9.9973 was asked for, and together that is 11.4801 at"
        " delta 1e-05, above its lifetime cap of 10: ask for less, or for other people"
    )


@pytest.mark.parametrize("mu", [1e3, 1e7, 1e100, 1e200])
def test_an_absurd_spend_is_over_the_cap(path: Path, mu: float) -> None:
    with Ledger.open(path, ACCOUNT) as ledger, pytest.raises(BudgetExceeded, match="cohort"):
        ledger.record(spend(0, mu), CAP)


def test_check_adds_up_and_records_nothing(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 1.0), CAP)
        ledger.check([spend(number, 0.3) for number in range(1, 10)], CAP)
        with pytest.raises(BudgetExceeded):
            ledger.check([spend(number, 0.3) for number in range(1, 40)], CAP)
        with pytest.raises(LedgerRefused, match="already"):
            ledger.check([spend(1), spend(1)], CAP)
        assert ledger.verify() == 1


def test_the_same_attempt_is_charged_once(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(1), CAP)
        with pytest.raises(LedgerRefused, match="study 's', round 1, attempt 0 is in the ledger already"):
            ledger.record(spend(1, 0.0, statistic="other"), CAP)
        ledger.record(spend(1, attempt=1), CAP)
        ledger.record(spend(1, study="t"), CAP)
        assert ledger.verify() == 3


# ---- units and sub-sampling --------------------------------------------------------------------------------


def test_a_record_counts_towards_a_person_by_their_rows(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger, pytest.raises(LedgerRefused, match="state rows_per_unit"):
        ledger.record(spend(0, unit="record"), CAP)
    with Ledger.open(path, replace(ACCOUNT, rows_per_unit=5)) as ledger:
        entry = ledger.record(spend(0, 0.2, unit="record"), CAP)
        assert (entry.spend.mu, entry.charged_mu) == (0.2, 1.0)
        ledger.record(spend(1, 0.2), CAP)
        assert ledger.mu == compose((1.0, 0.2))
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(2, 0.4, unit="record"), CAP)
        with pytest.raises(LedgerRefused, match="without sub-sampling"):
            ledger.record(spend(2, 0.1, unit="record", rate=0.1), CAP)
    with Ledger.inspect(path) as ledger:  # what was charged stays charged
        assert [entry.charged_mu for entry in ledger.entries()] == [1.0, 0.2]


def test_a_person_counts_towards_a_record_as_it_is(path: Path) -> None:
    with Ledger.open(path, Account("cohort", "record", "replace-one")) as ledger:
        assert ledger.record(spend(0, 0.5), CAP).charged_mu == 0.5
        with pytest.raises(LedgerRefused, match="without sub-sampling"):
            ledger.record(spend(1, 0.5, rate=0.1), CAP)


def test_sub_sampled_spends_compose_with_plain_ones(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.5), CAP)
        ledger.record(spend(1, 0.5, rate=0.1, steps=20), CAP)
        ledger.record(spend(2, 0.5, rate=0.1, steps=30), CAP)
        assert ledger.mu == 0.5
        assert ledger.epsilon(1e-5) == mixed_epsilon(0.5, [Subsampled(0.5, 0.1, 50)], 1e-5)
        assert ledger.epsilon(1e-5) < epsilon(compose([0.5] * 51), 1e-5)
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(3, 0.5, rate=0.1, steps=3), Cap(ledger.epsilon(1e-5) + 0.01, 1e-5))


def test_sub_sampling_needs_replaced_units(path: Path) -> None:
    """The accountant's figure is for a replaced unit: for an added one it would be 1.2 where 1.83 is true."""
    with Ledger.open(path, Account("cohort", "person", "add-remove")) as ledger:
        ledger.record(spend(0), CAP)
        with pytest.raises(LedgerRefused, match="without sub-sampling"):
            ledger.record(spend(1, rate=0.1, steps=3), CAP)


# ---- whose ledger it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"population": "b"}, {"unit": "record"}, {"adjacency": "add-remove"}])
def test_another_accounts_ledger_is_refused(path: Path, other: dict[str, str]) -> None:
    grown(path, 1)
    with pytest.raises(LedgerRefused, match=r"belongs to 'cohort' \(person, replace-one\), not to"):
        Ledger.open(path, replace(ACCOUNT, **other))  # type: ignore[arg-type]  # mypy cannot tell the fields apart
    with Ledger.open(path, replace(ACCOUNT, rows_per_unit=3)) as ledger:
        assert ledger.account.rows_per_unit == 3


def test_inspection_makes_and_records_nothing(path: Path) -> None:
    with pytest.raises(LedgerRefused, match="there is no ledger"):
        Ledger.inspect(path)
    with pytest.raises(LedgerRefused, match="there is no ledger"):
        Ledger.open(path, ACCOUNT, create=False)
    assert not path.parent.exists()
    grown(path, 2)
    with Ledger.inspect(path) as ledger:
        assert ledger.mu == compose((0.1, 0.1))
        with pytest.raises(LedgerRefused, match="opened to be read"):
            ledger.record(spend(2), CAP)
    with pytest.raises(LedgerRefused, match="closed"):
        ledger.verify()


def test_the_counter_may_live_elsewhere(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other" / "disk" / "count"
    with Ledger.open(path, ACCOUNT, counter=elsewhere) as ledger:
        ledger.record(spend(), CAP)
    assert not counter_of(path).exists()
    with Ledger.inspect(path, counter=elsewhere) as ledger:
        assert ledger.verify() == 1
    with pytest.raises(LedgerRefused, match="is missing"):
        Ledger.inspect(path)


# ---- loss and damage ---------------------------------------------------------------------------------------


def refused(path: Path, message: str) -> None:
    with pytest.raises(LedgerRefused, match=message) as opened:
        Ledger.open(path, ACCOUNT)
    with pytest.raises(LedgerRefused, match=message) as inspected:
        Ledger.inspect(path)
    assert "\n" not in f"{opened.value} {inspected.value}"


def test_an_older_copy_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(grown(path, 2), tmp_path / "backup")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(2), CAP)
    newest = path.read_bytes()
    shutil.copy(tmp_path / "backup", path)
    refused(path, "older than its counter.*holds 2 entries.*knows 3")
    path.write_bytes(newest)
    with Ledger.open(path, ACCOUNT) as ledger:
        assert ledger.verify() == 3


def test_an_older_copy_under_an_open_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    shutil.copy(grown(path, 2), tmp_path / "backup")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(2), CAP)
        (tmp_path / "backup").replace(path)  # the open ledger goes on with the old files, which have no name
        path.with_name("l.sqlite-wal").unlink()
        ledger.record(spend(3), CAP)
    refused(path, "older than its counter.*holds 2 entries.*knows 4")


def test_another_ledger_with_more_entries_is_refused(path: Path, tmp_path: Path) -> None:
    grown(path, 2)
    shutil.copy(grown(tmp_path / "l.sqlite", 5), path)
    refused(path, "older than its counter, or another one")


def test_a_ledger_ahead_of_its_counter_is_taken_and_the_counter_repaired(path: Path) -> None:
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


def test_a_missing_counter_matters_once_there_are_entries(path: Path) -> None:
    grown(path, 0)
    counter_of(path).unlink()
    grown(path, 1)
    counter_of(path).unlink()
    refused(path, r"holds 1 entries, but its counter .* is missing")


def test_a_missing_ledger_is_not_made_anew(path: Path) -> None:
    grown(path, 0).unlink()
    grown(path, 1).unlink()
    with pytest.raises(LedgerRefused, match=r"is missing, but .*counter is there"):
        Ledger.open(path, ACCOUNT)
    counter_of(path).unlink()
    path.with_name("l.sqlite-wal").write_bytes(b"frames")
    with pytest.raises(LedgerRefused, match=r"is missing, but .*-wal is there"):
        Ledger.open(path, ACCOUNT)
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "7", "zerosum-counter 2 1 " + "0" * 64 + "\n", "garbage\n", "\xff" * 90])
def test_a_garbled_counter_is_refused(path: Path, text: str) -> None:
    grown(path, 1)
    counter_of(path).write_text(text)
    refused(path, "counter .* is damaged")


def test_a_counter_that_cannot_be_written_stops_the_send_not_the_count(path: Path) -> None:
    obstacle = counter_of(path).with_name("l.sqlite.counter.new")
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0), CAP)
        obstacle.mkdir()
        with pytest.raises(LedgerRefused, match=r"Is a directory at .*\.new; check the disk"):
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
def test_a_changed_history_is_refused(path: Path, statement: str) -> None:
    tamper(grown(path, 3), statement)
    refused(path, "damaged|older|no such table")


@pytest.mark.parametrize("body", ["[]", '"text"', "7", "{}", "not json", '{"spend":{"mu":1}}'])
def test_a_rehashed_row_that_makes_no_sense_is_refused(path: Path, body: str) -> None:
    from zerosum.site.ledger_file import chained

    with Ledger.open(path, ACCOUNT) as ledger:
        last = ledger.record(spend(0), CAP)
    tamper(path, "INSERT INTO chain VALUES (2, ?, ?)", body, chained(last.digest, body))
    refused(path, r"damaged \(row 2 cannot be read")


def test_a_ledger_of_a_later_format_is_refused(path: Path) -> None:
    from zerosum.site.ledger_file import chained

    body = json.dumps({"format": 2, "population": "cohort", "unit": "person", "adjacency": "replace-one"})
    grown(path, 0)
    tamper(path, "UPDATE chain SET body = ?, digest = ?", body, chained("0" * 64, body))
    refused(path, "another version")


def test_damage_under_an_open_ledger_is_refused(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        for number in range(3):
            ledger.record(spend(number), CAP)
        tamper(path, "UPDATE chain SET body = 'x' WHERE number = 3")
        with pytest.raises(LedgerRefused, match="row 3 does not match"):
            ledger.record(spend(3), CAP)
        tamper(path, "DELETE FROM chain WHERE number = 3")
        with pytest.raises(LedgerRefused, match="row 3 is missing"):
            ledger.entries()
        with pytest.raises(LedgerRefused, match="older"):
            ledger.verify()


def test_files_that_are_no_ledger_are_refused(tmp_path: Path) -> None:
    folder, text, empty, other = (tmp_path / name for name in ("folder", "text", "empty", "other"))
    folder.mkdir()
    text.write_text("population = 'cohort'\n" * 100)
    empty.touch()
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE chain (number, body, digest)")
    for path, message in ((text, "no ledger"), (empty, "empty"), (other, "row 0 is missing")):
        refused(path, message)
    with pytest.raises(LedgerRefused, match="cannot be used"):
        Ledger.open(folder, ACCOUNT)
    with pytest.raises(LedgerRefused, match="no ledger"):
        Ledger.inspect(folder)
    with pytest.raises(LedgerRefused, match=r"cannot be used: .* at .*text"):
        Ledger.open(text / "l.sqlite", ACCOUNT)
    refused(tmp_path / ("x" * 300), "cannot be used: File name too long")
    assert sorted(tmp_path.iterdir()) == sorted([folder, text, empty, other])


def test_a_ledger_held_by_another_is_refused_after_a_while(path: Path) -> None:
    grown(path, 1)
    with Ledger.open(path, ACCOUNT) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        ledger._connection.execute("PRAGMA busy_timeout=20")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerRefused, match="another process holds it"):
            ledger.record(spend(1), CAP)
        assert len(ledger.entries()) == 1  # reading does not wait
        other.execute("ROLLBACK")
        ledger.record(spend(1), CAP)


def test_a_step_that_nobody_reserved_is_damage(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0), CAP, "aa")
        with pytest.raises(LedgerRefused, match="no step left"):
            ledger.draw("s", 1, 0, "c0ffee", "aa")
        digest = ledger.entries()[-1].digest
    step = {"study": "s", "round": 1, "attempt": 0, "request": "aa", "reservation": 1}
    body = json.dumps({"draw": step, "plan": "aa", "number": 2, "recorded": "", "version": "0"})
    tamper(path, "INSERT INTO chain VALUES (2, ?, ?)", body, hashlib.sha256(f"{digest}\n{body}".encode()).hexdigest())
    refused(path, "nobody reserved")


# ---- finite arithmetic ---------------------------------------------------------------------------------------


def test_the_distance_of_finite_arithmetic_is_paid_for(tmp_path: Path) -> None:
    """delta pays (1 + e^eps) times the distances; more than a hundredth of it is refused."""
    account = Account("p", "person", "replace-one")
    spend = Spend("s", 0, 0, "person", "x", 1.0, 1.0, "ab" * 32)
    with Ledger.open(tmp_path / "a.sqlite", account) as ledger:
        ledger.record(spend, Cap(10.0, 1e-5))
        plain = ledger.epsilon(1e-5)
        ledger.record(replace(spend, round=1, mu=0.0, distance=1e-10), Cap(10.0, 1e-5))
        assert plain < ledger.epsilon(1e-5) < plain * 1.001
        with pytest.raises(BudgetExceeded):
            ledger.record(replace(spend, round=2, mu=0.0, distance=1e-8), Cap(10.0, 1e-5))


# ---- a copy in passing, while somebody writes ------------------------------------------------------------------------


def test_an_entry_that_comes_after_the_copy_does_not_make_it_an_older_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_log_that_is_folded_into_its_ledger_during_the_copy_is_not_missed(
    moment: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
