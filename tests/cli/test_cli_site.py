"""A site as its steward meets it: real processes, their files, and what they refuse."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.deployment import Deployment, zerosum
from zerosum.engines.sockets import Sockets
from zerosum.errors import Abandoned, AwaitingConsent
from zerosum.report.record import write_whole
from zerosum.study import Study, execute


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    yield made
    made.stop()


def test_cli_site_init_writes_key_and_file_and_overwrites_nothing(tmp_path: Path) -> None:
    done = zerosum("site", "init", "north", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    key = tmp_path / "north" / "identity.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(said["identity"]) == 64
    again = zerosum("site", "init", "north", "--json", cwd=tmp_path)
    assert again.returncode == 2
    assert "north" in json.loads(again.stdout)["error"]["message"]
    assert zerosum("site", "health", "--site", "north/site.toml", cwd=tmp_path).returncode == 4


def test_site_process_from_start_to_stop_reports_health_and_logs(deployment: Deployment) -> None:
    home = deployment.folder / "north"
    deployment.start("north")
    health = zerosum("site", "health", "--json", cwd=home)
    said = json.loads(health.stdout)
    assert {"site": "north", "serves": True, "ledger": "sound", "releases": 0, "spent": 0.0}.items() <= said.items()
    assert said["metrics"]["serving"]
    assert said["metrics"]["studies"] == said["metrics"]["waiting"] == 0
    assert said["metrics"]["memory_bytes"] > 1e6
    second = zerosum("site", "run", cwd=home)
    assert second.returncode == 2
    assert "process" in second.stderr
    process = deployment.running["north"]
    deployment.stop()
    assert process.returncode == 0
    assert [line["event"] for line in deployment.log("north")] == ["started", "stopped"]
    assert not deployment.site("north").socket.exists()


def test_site_process_without_declared_device_exits(deployment: Deployment) -> None:
    file = deployment.folder / "north" / "site.toml"
    file.write_text('device = "cuda:99"\n' + file.read_text())
    done = zerosum("site", "run", cwd=file.parent, timeout=60)
    assert done.returncode == 2
    assert "PyTorch" in done.stderr


def test_cli_site_dry_run_shows_cost_and_spends_nothing(deployment: Deployment) -> None:
    plan = Study.load(deployment.study()).plan()
    path = deployment.folder / "plan.json"
    write_whole(path, plan.to_json())
    home = deployment.folder / "north"
    said = json.loads(zerosum("site", "dry-run", path, "--json", cwd=home).stdout)
    assert said["would_agree"]
    assert said["digest"] == plan.digest()
    assert said["epsilon"] == pytest.approx(2.0, abs=3e-5)
    assert deployment.spent("north") == []
    (home / "data.csv").write_text("age,pressure\n1,2\n")
    said = json.loads(zerosum("site", "dry-run", path, "--json", cwd=home).stdout)
    assert not said["would_agree"]
    shown = zerosum("site", "dry-run", path, cwd=home)
    assert "refuse" in shown.stdout


def test_cli_site_approve_and_refuse_decide_waiting_plan(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, automatic=False)
    study = Study.load(deployment.study(scheme="local"))
    plan = study.plan()
    home = tmp_path / "north"
    deployment.start("north")
    try:
        assert json.loads(zerosum("site", "status", "--json", cwd=home).stdout)["waiting"] == []
        engine = Sockets({"north": deployment.site("north").socket}, plan.digest(), seconds=30.0)
        with pytest.raises(AwaitingConsent, match="steward"):
            execute(plan, study.build_algorithm(), engine)
        status = json.loads(zerosum("site", "status", "--json", cwd=home).stdout)
        assert status["serves"]
        assert [each["digest"] for each in status["waiting"]] == [plan.digest()]
        assert json.loads(zerosum("site", "dry-run", plan.digest()[:10], "--json", cwd=home).stdout)["would_agree"]
        assert zerosum("site", "approve", plan.digest()[:10], cwd=home).returncode == 0
        with pytest.raises(Abandoned, match="'east', 'south', 'west'"):
            execute(plan, study.build_algorithm(), engine)
        engine.close()
    finally:
        deployment.stop()
    assert [line["event"] for line in deployment.log("north")] == [
        "started",
        "waiting",
        "decided",
        "consented",
        "stopped",
    ]
    assert zerosum("site", "approve", "abc", cwd=home).returncode == 2
    done = zerosum("site", "refuse", plan.digest(), "--reason", "not this year", cwd=home)
    assert all(part in " ".join(done.stdout.split()) for part in ("refused", plan.digest(), "not this year"))


def test_site_with_a_database_serves_the_rows_that_it_fetched(deployment: Deployment) -> None:
    home = deployment.folder / "north"
    header, *lines = (home / "data.csv").read_text().splitlines()
    with sqlite3.connect(home / "data.sqlite") as connection:
        names = header.split(",")
        connection.execute(f"CREATE TABLE visits ({', '.join(names)})")
        rows = [[float(cell) for cell in line.split(",")] for line in lines]
        connection.executemany(f"INSERT INTO visits VALUES ({', '.join('?' * len(names))})", rows)
    file = home / "site.toml"
    own = "\n".join(line for line in file.read_text().splitlines() if not line.startswith('data = "data.csv"'))
    file.write_text(f'{own}\n[source]\nengine = "sqlite"\ndatabase = "data.sqlite"\ntable = "visits"\n')
    assert zerosum("site", "run", cwd=home).returncode == 2  # nothing was fetched yet
    record = json.loads(zerosum("site", "fetch", "--json", cwd=home).stdout)
    assert record["rows"] == len(rows)
    assert record["columns"] == names
    # The schema of the same rows from a file was confirmed before, and still holds.
    assert json.loads(zerosum("site", "schema", "--json", cwd=home).stdout)["confirmed"]
    deployment.start("north")
    with sqlite3.connect(home / "data.sqlite") as connection:
        connection.execute("DELETE FROM visits")  # the site does not read the database
    path = deployment.folder / "plan.json"
    write_whole(path, Study.load(deployment.study()).plan().to_json())
    assert json.loads(zerosum("site", "dry-run", path, "--json", cwd=home).stdout)["would_agree"]
    assert zerosum("site", "fetch", cwd=home).returncode == 2  # a query without rows leaves the old snapshot
    assert [line["event"] for line in deployment.log("north")] == ["fetched", "started"]
    assert json.loads(zerosum("site", "dry-run", path, "--json", cwd=home).stdout)["would_agree"]


def test_site_schema_of_a_rehearsal_is_drafted_without_a_policy_and_not_confirmed(tmp_path: Path) -> None:
    (tmp_path / "east.csv").write_text("age;bmi\n60;21,5\n70;30,1\n")
    (tmp_path / "east.toml").write_text(
        'name = "east"\ndata = "east.csv"\ndelimiter = ";"\nschema = "east-schema.toml"\n'
    )
    found = json.loads(zerosum("site", "schema", "--site", "east.toml", "--json", cwd=tmp_path).stdout)
    assert found["drafted"]
    assert found["schema"]["columns"]["bmi"]["decimal"] == ","
    refused = zerosum("site", "schema", "--site", "east.toml", "--confirm", cwd=tmp_path)
    assert refused.returncode == 2
    assert "policy" in refused.stderr
