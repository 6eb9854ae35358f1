"""What makes a site's health check fail."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from helpers.site_service import REQUEST, serve, tell
from helpers.small_studies import make
from zerosum.protocol.messages import Contribute, Propose
from zerosum.site.decisions import Consents
from zerosum.site.health import Limits, faults
from zerosum.site.service import Service

ANY = Limits(disk_free=1, decide_seconds=3600.0)


def found(service: Service, folder: Path, limits: Limits = ANY) -> list[str]:
    return faults(service.policy, folder, Consents(folder), limits, service.ledger)


def test_health_of_new_and_used_site_has_no_fault(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    assert found(service, tmp_path) == []
    tell(service, plan, Propose(plan))
    tell(service, plan, Contribute(0, 0, REQUEST))
    assert found(service, tmp_path) == []
    assert sorted(each.name for each in tmp_path.iterdir() if each.name.startswith("tmp")) == []


def test_health_disk_that_is_nearly_full_is_a_fault(tmp_path: Path) -> None:
    (fault,) = found(serve(tmp_path), tmp_path, Limits(disk_free=1 << 60, decide_seconds=3600.0))
    assert "nearly full" in fault


def test_health_disk_that_takes_no_byte_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger's disk is another one than that of the state folder."""
    (tmp_path / "other").mkdir()
    service = serve(tmp_path, ledger=tmp_path / "other" / "ledger.sqlite")

    def fsync(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(tmp_path / "other"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("zerosum.site.health.os.fsync", fsync)
    (fault,) = found(service, tmp_path)
    assert str(tmp_path / "other") in fault
    assert "No space" in fault


def test_health_clock_behind_ledger_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    tell(service, plan, Contribute(0, 0, REQUEST))
    now = datetime.now(UTC)
    for days, count in ((0, 0), (400, 1)):
        past = (now - timedelta(days=days)).timestamp()
        monkeypatch.setattr("zerosum.site.health.time.time", lambda past=past: past)
        assert len(found(service, tmp_path)) == count


def test_health_plan_that_waits_too_long_is_a_fault(tmp_path: Path) -> None:
    service, plan = serve(tmp_path, automatic=False), make("local")
    tell(service, plan, Propose(plan))
    assert found(service, tmp_path) == []
    old = time.time() - 7200
    os.utime(tmp_path / "proposals" / f"{plan.digest()}.json", (old, old))
    (fault,) = found(service, tmp_path)
    assert plan.digest() in fault
    Consents(tmp_path).decide(plan.digest(), "approved")
    assert found(service, tmp_path) == []
