"""Commands of the operator and the auditor: show, audit verify, backup, restore, upgrade; errors in logs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from helpers.deployment import declare
from zerosum.cli import _run
from zerosum.cli.log import start_logging
from zerosum.cli.site import site_init
from zerosum.site.audit_log import AuditLog
from zerosum.site.ledger_records import Spend
from zerosum.study import SiteFile


def run(*words: object) -> int:
    return _run([str(word) for word in words])


@pytest.fixture
def site(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    site_init(tmp_path / "north", json_=True)
    (tmp_path / "north" / "data.csv").write_text("age,bmi\n" + "40.0,20.0\n" * 20)
    declare(SiteFile.load(tmp_path / "north" / "site.toml"))
    monkeypatch.setenv("ZEROSUM_PASSPHRASE", "a long passphrase")
    capsys.readouterr()
    return tmp_path / "north" / "site.toml"


def spend(site: Path, numbers: range) -> None:
    policy = SiteFile.load(site).own_policy()
    with policy.open_ledger() as ledger:
        for number in numbers:
            ledger.record(Spend("s", number, 0, "person", "mean", 2.0, 0.5, "aa"), policy.cap)


def test_cli_site_show_has_identity_policy_and_budget(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spend(site, range(2))
    assert run("site", "show", "--site", site, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    loaded = SiteFile.load(site)
    assert found["identity"] == loaded.keep_identity().public.hex()
    assert found["policy"]["population"] == "north"
    assert 0 < found["spent"] < found["cap"]["epsilon"] > found["left"] > 0
    assert found["schema"]
    assert found["releases"] == 2
    assert run("site", "show", "--site", site) == 0
    assert found["identity"] in capsys.readouterr().out
    (site.parent / "identity.key").unlink()
    assert run("site", "show", "--site", site) == 2
    assert not (site.parent / "identity.key").exists()


def test_cli_site_audit_verify_notices_removed_line(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SiteFile.load(site).audit_log
    assert run("site", "audit", "verify", "--site", site) == 0
    for number in range(4):
        AuditLog(path).write("waiting", f"event {number}")
    capsys.readouterr()
    assert run("site", "audit", "verify", "--site", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["last"] == 4
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert run("site", "audit", "verify", "--site", site) == 4
    assert run("site", "audit", "verify", "--log", path) == 4


def test_cli_site_backup_and_restore_record_what_was_charged(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spend(site, range(2))
    out = site.parent.parent / "backup"
    assert run("site", "backup", out, "--site", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 2
    new = site.parent.parent / "new"
    assert run("site", "restore", out, new, "--cap", "-1") == 2
    word = site.parent.parent / "word"
    word.write_text("another passphrase\n")
    assert run("site", "restore", out, new, "--passphrase-file", word) == 2
    capsys.readouterr()
    assert run("site", "restore", out, new, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lost"] is None
    assert found["charged_mu"] > 0
    restored = new / "site.toml"
    (line,) = [json.loads(each) for each in SiteFile.load(restored).audit_log.read_text().splitlines()]
    assert line["event"] == "decided"
    assert line["user"]
    assert "charged" in line["words"]
    assert run("site", "upgrade", "--check", "--site", restored) == 0
    assert run("site", "audit", "verify", "--site", restored) == 0


def test_cli_site_upgrade_check_lists_faults(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("site", "upgrade", "--site", site) == 2
    assert run("site", "upgrade", "--check", "--site", site) == 0
    spend(site, range(1))
    capsys.readouterr()
    assert run("site", "upgrade", "--check", "--site", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["faults"] == []
    policy = SiteFile.load(site).own_policy()
    policy.counter_path.unlink()
    (site.parent / "schema.toml").unlink()
    plans = site.parent / "state" / "plans"
    plans.mkdir()
    (plans / f"{'0' * 64}.json").write_text("{}")
    capsys.readouterr()
    assert run("site", "upgrade", "--check", "--site", site, "--json") == 4
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 3


def test_cli_site_upgrade_check_has_faults_of_files_that_cannot_be_read(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ended the check with an error, before the other faults."""
    state = site.parent / "state"
    (state / "plans" / "plan.json").mkdir(parents=True)
    (state / "audit.jsonl.1").mkdir()
    (state / "metrics.json").write_text("{")
    monkeypatch.setattr("zerosum.study.site_upgrade.alive", lambda *_: True)
    assert run("site", "upgrade", "--check", "--site", site, "--json") == 4
    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [name for name in ("plan.json", "audit.jsonl.1", "metrics.json") for each in faults if name in each] == [
        "plan.json",
        "audit.jsonl.1",
        "metrics.json",
    ]


def test_cli_site_health_has_expired_certificate_among_other_faults(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(f'kit = "kit"\n{site.read_text()}')
    spend(site, range(1))
    monkeypatch.setattr("zerosum.protocol.stream.alive", lambda *_: True)
    monkeypatch.setattr("zerosum.cli.site._certificate_days", lambda _: -3)
    (site.parent / "state" / "metrics.json").write_text('{"written": 0}')
    assert run("site", "health", "--site", site) == 4
    words = capsys.readouterr().err
    assert "the metrics are" in words
    assert "has expired" in words


def test_cli_log_json_has_fault_of_the_program_as_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("zerosum.cli.coordinator._coordinate", broken)
    assert run("coordinator", "resume", "--state", tmp_path, "--log-json") == 1
    (line,) = (json.loads(each) for each in capsys.readouterr().err.splitlines())
    assert (line["level"], line["event"]) == ("critical", "fault")
    assert "ZeroDivisionError" in line["traceback"]
    with pytest.raises(ZeroDivisionError):
        run("coordinator", "resume", "--state", tmp_path)


def test_log_json_has_warnings_of_libraries_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        start_logging(True)
        try:
            warnings.warn("old", DeprecationWarning, stacklevel=1)
        finally:
            start_logging(False)
    (line,) = (json.loads(each) for each in capsys.readouterr().err.splitlines())
    assert line["level"] == "warning"
    assert "old" in line["words"]


def test_cli_log_json_has_final_error_as_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In 0.2 it was text between lines of JSON."""
    assert run("coordinator", "resume", "--state", tmp_path, "--log-json") == 2
    found = capsys.readouterr()
    line = json.loads(found.err.splitlines()[-1])
    assert (line["level"], line["event"], line["type"]) == ("error", "error", "BadInput")
    assert str(tmp_path) in line["words"]
    assert all(json.loads(each) for each in found.err.splitlines())
    assert not found.out
