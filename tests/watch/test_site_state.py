"""A site's own files, as its page reads them: while they are written, locked, damaged and replaced."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest

from helpers.small_studies import make
from helpers.watch_page import wait_for
from zerosum.cli.site import site_init
from zerosum.errors import BadInput, BadStudy
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.ledger_records import Spend
from zerosum.watch.cache import TimedCache
from zerosum.watch.site_state import LedgerReader, LogReader, SiteReader


@pytest.fixture
def home(tmp_path: Path) -> Path:
    site_init(tmp_path / "s0", json_=True)
    return tmp_path / "s0"


def spend(study: str, mu: float = 0.3, round: int = 0) -> Spend:
    return Spend(study, round, 0, "person", "mean", 1.0, mu, "aa")


def record(site: SiteReader, study: str, mu: float = 0.3) -> None:
    with site.policy.open_ledger() as ledger:
        ledger.record(spend(study, mu), site.policy.cap)


def test_site_reader_ledger_totals_follow_spends(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    account = site.state().ledger
    assert (account.known, account.epsilon, account.left, account.releases) == (True, 0.0, 10.0, 0)
    record(site, "first")
    wait_for(lambda: site.state().ledger.releases == 1)
    before = site.state().ledger
    assert 0 < before.epsilon < before.left < 10
    record(site, "second", 0.5)
    wait_for(lambda: site.state().ledger.releases == 2)
    assert site.state().ledger.left < before.left
    (second, _) = site.state().studies
    assert (second.name, second.state) == ("second", "over")  # nothing but the ledger knows of it


def test_ledger_reader_locked_ledger_shows_last_totals(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    record(site, "first")
    reader = LedgerReader()
    assert reader.latest(site.policy, 20.0).releases == 1
    holder = sqlite3.connect(site.policy.ledger_path, isolation_level=None)
    try:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        (home / "state" / "ledger.sqlite.counter").touch()  # it looks changed
        found = reader.latest(site.policy)  # at once, however long the other one takes
        assert (found.known, found.releases) == (True, 1)
        fresh = LedgerReader().latest(site.policy, 0.1)
        assert not fresh.known
        assert "process" in fresh.fault
    finally:
        holder.close()
    wait_for(lambda: reader.latest(site.policy).releases == 1 and not reader.latest(site.policy).fault, 40.0)


def test_ledger_reader_damaged_ledger_is_reported_and_read_again_after_repair(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    record(site, "first")
    path = site.policy.ledger_path
    whole = path.read_bytes()
    path.write_bytes(b"not a ledger")
    found = LedgerReader()
    assert str(path) in found.latest(site.policy, 20.0).fault
    path.write_bytes(whole)
    wait_for(lambda: found.latest(site.policy, 20.0).known)
    assert found.latest(site.policy).fault == ""


def test_log_reader_follows_log_line_by_line(tmp_path: Path) -> None:
    path, plan = tmp_path / "audit.jsonl", make("local", study="vitals")
    reader, log = LogReader(path), AuditLog(path)
    reader.follow()
    log.write("started", "site serves")
    log.write("consented", "agreed", plan, rounds=2)
    reader.follow()
    seen = reader.plans[plan.digest()]
    assert (seen.study, seen.planned, seen.agreed, len(seen.rounds)) == ("vitals", 2, True, 0)
    log.write("released", "round 1 of 2", plan, round=1, rounds=2)
    with path.open("ab") as file:  # what is damaged, and what is being written just now
        file.write(b'\xff\n[]\n{"time": 1}\n{"time": "t", "event"')
    reader.follow()
    assert (len(seen.rounds), reader.faulty, len(reader.lines)) == (1, 3, 3)
    with path.open("ab") as file:
        file.write(b': "stopped", "words": "w"}\n')
    reader.follow()
    assert reader.lines[-1].event == "stopped"
    assert not seen.agreed  # consent does not outlive the process
    path.unlink()
    reader.follow()
    log.write("started", "another file")
    reader.follow()
    assert [line.text for line in reader.lines] == ["another file"]
    assert reader.plans == {}


def test_site_reader_leaves_log_details_out(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    plan = make("local", study="vitals")
    AuditLog(home / "state" / "audit.jsonl").write(
        "refused", "the data do not fit", plan, code="BadData", detail="row 7 of patient 12"
    )
    state = site.state()
    assert "patient 12" not in repr(state) + repr(site.lines(plan.digest()))
    assert state.lines[-1].text == "the data do not fit"


def test_site_reader_state_follows_study_from_waiting_to_over(home: Path) -> None:
    site, plan = SiteReader(home / "site.toml"), make("local", study="vitals")
    digest, log = plan.digest(), AuditLog(home / "state" / "audit.jsonl")
    consents = Consents(home / "state")

    def state() -> str:
        return next(study.state for study in site.state().studies if study.key == digest)

    consents.keep(plan)
    assert state() == "waits"
    assert site.state().studies[0].columns == ("a", "b")
    said = site.decide(digest, "approved", "")
    assert said.endswith("on the page")
    assert consents.decision(digest) == "approved"
    assert state() == "approved"
    with pytest.raises(BadInput, match="wait"):
        site.decide(digest, "approved", "")
    log.write("consented", "agreed", plan, rounds=2)
    assert state() == "agreed"
    log.write("released", "round 1", plan, round=1, rounds=2)
    log.write("stopped", "site was asked to stop")
    assert state() == "stopped"
    log.write("consented", "agreed", plan, rounds=2)
    log.write("released", "round 2", plan, round=2, rounds=2)
    assert state() == "over"
    site.decide(digest, "refused", "not again")
    (study,) = site.state().studies
    assert (study.state, study.reason) == ("refused", "not again")
    assert site.plan(digest) == plan  # it can still be read


def test_site_reader_damaged_proposal_or_state_folder_is_reported(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    (home / "state" / "proposals").mkdir(parents=True)
    (home / "state" / "proposals" / f"{'a' * 64}.json").write_bytes(b"{")
    (study,) = site.state().studies
    assert (study.state, study.name) == ("waits", "a" * 16)
    assert site.plan("a" * 64) is None
    with pytest.raises(BadInput, match="read"):
        site.decide("a" * 64, "approved", "")
    (home / "state" / "decisions").write_text("a file where a folder should be")
    AuditLog(home / "state" / "audit.jsonl").write("waiting", "w", make("local"))
    assert any("state folder" in fault for fault in site.state().faults)


def test_site_reader_damaged_site_file_is_reported(home: Path) -> None:
    site = SiteReader(home / "site.toml")
    text = (home / "site.toml").read_text()
    (home / "site.toml").write_text("name = ")
    assert any("site.toml" in fault for fault in site.state().faults)
    assert site.state().name == "s0"
    (home / "site.toml").write_text(text.replace("epsilon = 10.0", "epsilon = 4.0"))
    wait_for(lambda: site.state().ledger.cap == 4.0)
    assert site.state().faults == ()
    with pytest.raises(BadStudy):
        SiteReader(home / "nowhere.toml")


def test_timed_cache_concurrent_callers_share_one_value() -> None:
    calls = []
    slow = threading.Event()
    fresh = TimedCache(lambda: calls.append(1) or slow.wait(0.2), seconds=60.0)  # type: ignore[func-returns-value]
    threads = [threading.Thread(target=fresh) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(calls) == 1
    fresh.forget()
    fresh()
    assert len(calls) == 2


def test_log_reader_keeps_limited_number_of_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.watch.site_state._MOST_PLANS", 10)
    path = tmp_path / "audit.jsonl"
    said = [{"time": "t", "event": "waiting", "words": "w", "plan": f"{at:064x}", "study": "s"} for at in range(40)]
    path.write_text("".join(json.dumps(each) + "\n" for each in said))
    reader = LogReader(path)
    reader.follow()
    assert list(reader.plans) == [f"{at:064x}" for at in range(30, 40)]
