from __future__ import annotations

import math
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.ledger_spends import ACCOUNT, CAP, counter_of, grown, spend
from zerosum.errors import BadParameter, BudgetExceeded, LedgerRefused
from zerosum.kernel.accountant import compose, epsilon, mixed_epsilon, mu_for
from zerosum.kernel.events import Subsampled
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Account, Cap, Spend


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "l.sqlite"


# ---- what is kept ------------------------------------------------------------------------------------------


def test_ledger_entries_are_read_back_exactly_and_chained(path: Path) -> None:
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


def test_ledger_totals_equal_accountant(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        assert ledger.mu == ledger.epsilon(1e-5) == 0
        for number, mu in enumerate((0.3, 0.4, 1.2)):
            ledger.record(spend(number, mu), CAP)
        assert ledger.mu == compose((0.3, 0.4, 1.2)) == pytest.approx(1.3)
        assert ledger.epsilon(1e-6) == epsilon(ledger.mu, 1e-6)


def test_ledger_files_are_readable_by_owner_only(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(), CAP)
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == dict.fromkeys(("l.sqlite", "l.sqlite-wal", "l.sqlite-shm", "l.sqlite.counter"), 0o600)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path.parent.parent)} == {0o700}


def test_ledger_sqlite_settings_commit_to_disk(path: Path) -> None:
    """No kill of a process shows this, only a loss of power would; so ask SQLite how it is set."""
    with Ledger.open(path, ACCOUNT) as ledger:
        settings = {"journal_mode": "wal", "synchronous": 2, "page_size": 1024}
        for name, value in settings.items():
            assert ledger._connection.execute(f"PRAGMA {name}").fetchone() == (value,)


def test_ledger_used_by_several_objects_and_threads_is_consistent(path: Path) -> None:
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
    ("fields", "word"),
    [
        ({"mu": -0.1}, "mu"),
        ({"mu": math.inf}, "mu"),
        ({"mu": math.nan}, "mu"),
        ({"sensitivity": math.nan}, "sensitivity"),
        ({"unit": "row"}, "'row'"),
        ({"study": ""}, "study"),
        ({"number": -1}, "-1|number|0"),
        ({"steps": 0}, "steps"),
        ({"rate": 1.5}, "rate"),
        ({"rate": 0.5, "steps": 0}, "steps"),
    ],
)
def test_spend_bad_field_is_refused(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        spend(**fields)


def test_ledger_bad_account_cap_or_request_is_refused(path: Path) -> None:
    with pytest.raises(BadParameter, match="replace-one"):
        Account("cohort", "person", "neighbours")
    with pytest.raises(BadParameter, match="population"):
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
        with pytest.raises(BadParameter, match="request"):
            ledger.record(replace(spend(), request=""), CAP)


# ---- the cap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3, 7, 49])
def test_ledger_cap_may_be_reached_but_not_exceeded(path: Path, parts: int) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        share = mu_for(CAP.epsilon, CAP.delta) / math.sqrt(parts)
        for number in range(parts):
            ledger.record(spend(number, share), CAP)
        assert ledger.epsilon(CAP.delta) == pytest.approx(CAP.epsilon)
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(parts, 1e-4), CAP)
        ledger.record(spend(parts, 0.0), CAP)
        assert len(ledger.entries()) == parts + 1


def test_ledger_refusal_names_population_and_amounts(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 1.0), CAP)
        with pytest.raises(BudgetExceeded) as refusal:
            ledger.record(spend(1, 2.0), CAP)
        assert ledger.verify() == 1
    assert "'cohort'" in str(refusal.value)
    spent, asked, together, delta, cap = "4.378", "9.998", "11.49", "1e-05", "10"
    assert set(re.findall(r"\d[\d.]*(?:e-\d+)?", str(refusal.value))) == {spent, asked, together, delta, cap}


@pytest.mark.parametrize("mu", [1e3, 1e7, 1e100, 1e200])
def test_ledger_huge_spend_exceeds_cap(path: Path, mu: float) -> None:
    with Ledger.open(path, ACCOUNT) as ledger, pytest.raises(BudgetExceeded, match="cohort"):
        ledger.record(spend(0, mu), CAP)


def test_ledger_check_adds_up_and_records_nothing(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 1.0), CAP)
        ledger.check([spend(number, 0.3) for number in range(1, 10)], CAP)
        with pytest.raises(BudgetExceeded):
            ledger.check([spend(number, 0.3) for number in range(1, 40)], CAP)
        with pytest.raises(LedgerRefused, match="already"):
            ledger.check([spend(1), spend(1)], CAP)
        assert ledger.verify() == 1


def test_ledger_same_attempt_is_charged_once(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(1), CAP)
        with pytest.raises(LedgerRefused, match=r"'s'.*round 1.*attempt 0"):
            ledger.record(spend(1, 0.0, statistic="other"), CAP)
        ledger.record(spend(1, attempt=1), CAP)
        ledger.record(spend(1, study="t"), CAP)
        assert ledger.verify() == 3


# ---- units and sub-sampling --------------------------------------------------------------------------------


def test_ledger_record_level_spend_is_multiplied_by_rows_per_unit(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger, pytest.raises(LedgerRefused, match="rows_per_unit"):
        ledger.record(spend(0, unit="record"), CAP)
    with Ledger.open(path, replace(ACCOUNT, rows_per_unit=5)) as ledger:
        entry = ledger.record(spend(0, 0.2, unit="record"), CAP)
        assert (entry.spend.mu, entry.charged_mu) == (0.2, 1.0)
        ledger.record(spend(1, 0.2), CAP)
        assert ledger.mu == compose((1.0, 0.2))
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(2, 0.4, unit="record"), CAP)
        with pytest.raises(LedgerRefused, match="sub-sampling"):
            ledger.record(spend(2, 0.1, unit="record", rate=0.1), CAP)
    with Ledger.inspect(path) as ledger:  # what was charged stays charged
        assert [entry.charged_mu for entry in ledger.entries()] == [1.0, 0.2]


def test_ledger_person_level_spend_of_record_account_is_charged_unchanged(path: Path) -> None:
    with Ledger.open(path, Account("cohort", "record", "replace-one")) as ledger:
        assert ledger.record(spend(0, 0.5), CAP).charged_mu == 0.5
        with pytest.raises(LedgerRefused, match="sub-sampling"):
            ledger.record(spend(1, 0.5, rate=0.1), CAP)


def test_ledger_subsampled_spends_compose_with_plain_ones(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.5), CAP)
        ledger.record(spend(1, 0.5, rate=0.1, steps=20), CAP)
        ledger.record(spend(2, 0.5, rate=0.1, steps=30), CAP)
        assert ledger.mu == 0.5
        assert ledger.epsilon(1e-5) == mixed_epsilon(0.5, [Subsampled(0.5, 0.1, 50)], 1e-5)
        assert ledger.epsilon(1e-5) < epsilon(compose([0.5] * 51), 1e-5)
        with pytest.raises(BudgetExceeded):
            ledger.record(spend(3, 0.5, rate=0.1, steps=3), Cap(ledger.epsilon(1e-5) + 0.01, 1e-5))


def test_ledger_subsampling_under_add_remove_is_refused(path: Path) -> None:
    """The accountant's figure is for a replaced unit: for an added one it would be 1.2 where 1.83 is true."""
    with Ledger.open(path, Account("cohort", "person", "add-remove")) as ledger:
        ledger.record(spend(0), CAP)
        with pytest.raises(LedgerRefused, match="sub-sampling"):
            ledger.record(spend(1, rate=0.1, steps=3), CAP)


# ---- whose ledger it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"population": "b"}, {"unit": "record"}, {"adjacency": "add-remove"}])
def test_ledger_of_other_account_is_refused(path: Path, other: dict[str, str]) -> None:
    grown(path, 1)
    with pytest.raises(LedgerRefused, match=r"'cohort' \(person, replace-one\)"):
        Ledger.open(path, replace(ACCOUNT, **other))  # type: ignore[arg-type]  # mypy cannot tell the fields apart
    with Ledger.open(path, replace(ACCOUNT, rows_per_unit=3)) as ledger:
        assert ledger.account.rows_per_unit == 3


def test_ledger_inspect_creates_and_records_nothing(path: Path) -> None:
    with pytest.raises(LedgerRefused, match=str(path)):
        Ledger.inspect(path)
    with pytest.raises(LedgerRefused, match=str(path)):
        Ledger.open(path, ACCOUNT, create=False)
    assert not path.parent.exists()
    grown(path, 2)
    with Ledger.inspect(path) as ledger:
        assert ledger.mu == compose((0.1, 0.1))
        with pytest.raises(LedgerRefused, match=r"Ledger\.open"):
            ledger.record(spend(2), CAP)
    with pytest.raises(LedgerRefused, match="closed"):
        ledger.verify()


def test_ledger_counter_may_be_in_other_folder(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "other" / "disk" / "count"
    with Ledger.open(path, ACCOUNT, counter=elsewhere) as ledger:
        ledger.record(spend(), CAP)
    assert not counter_of(path).exists()
    with Ledger.inspect(path, counter=elsewhere) as ledger:
        assert ledger.verify() == 1
    with pytest.raises(LedgerRefused, match="counter"):
        Ledger.inspect(path)


# ---- finite arithmetic ---------------------------------------------------------------------------------------


def test_ledger_distance_of_finite_arithmetic_is_charged_to_delta(tmp_path: Path) -> None:
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
