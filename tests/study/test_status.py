"""What monitors read of a coordinator, and what passes through its engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.small_studies import QUESTION, make, make_sites
from zerosum.coordinator.journal import Journal
from zerosum.engines.counted import Traffic, TrafficCounter
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadInput, CheckFailed
from zerosum.protocol.progress import Progress
from zerosum.study import execute, pin
from zerosum.study.status import NAME, Status, check_status, read_status


def test_status_of_running_stopped_finished_or_stalled_study_is_reported(tmp_path: Path) -> None:
    plan = make("local")
    with pytest.raises(BadInput, match="journal"):
        read_status(tmp_path)
    Journal.create(tmp_path, plan).close()
    assert check_status(tmp_path, 3600.0)["stage"] == "begun"  # its job was submitted a moment ago
    with pytest.raises(CheckFailed, match="resume"):
        check_status(tmp_path, -1.0)
    resumed = Journal.open(tmp_path)
    assert resumed is not None
    with resumed:
        assert read_status(tmp_path)["stage"] == "begun"
        status = Status(tmp_path, plan)
        status.attended({"s0": "agreed", "s1": "absent"})
        status.progressed(Progress("set-up", 1, 1))
        status.progressed(Progress("round", 1, 1))
        record = check_status(tmp_path, 3600.0)
        assert (record["running"], record["stage"], record["rounds"]) == (True, "round", 1)
        assert record["sites"] == {"s0": "agreed", "s1": "absent"}
        with pytest.raises(CheckFailed, match="0 seconds"):
            check_status(tmp_path, -1.0)
    with pytest.raises(CheckFailed, match="resume"):  # killed: nobody wrote how it ended
        check_status(tmp_path, 3600.0)
    status.end("Abandoned: no answer")
    with pytest.raises(CheckFailed, match="Abandoned"):
        check_status(tmp_path, 3600.0)
    status.end("finished")
    assert check_status(tmp_path, -1.0)["ended"] == "finished"
    (tmp_path / NAME).write_text("{")
    with pytest.raises(BadInput, match=r"status\.json"):
        check_status(tmp_path, 3600.0)


def test_status_traffic_is_counted_and_losses_named(tmp_path: Path) -> None:
    sites, traffic = make_sites(tmp_path), Traffic()
    engine = InProcess(sites, lambda name, message: name == "s2" and type(message).__name__ == "Contribute")
    plan = pin(make("local", coalition=make("secure-sum").coalition.__class__(1, 1)), sites)
    execute(plan, QUESTION, TrafficCounter(engine, traffic))
    assert traffic.exchanges == 2
    assert traffic.losses == {"s2": 1}
    assert traffic.bytes_out > traffic.bytes_in > 0
    status = Status(tmp_path, plan)
    status.traffic = traffic
    status.end("finished")
    assert json.loads((tmp_path / NAME).read_text())["traffic"]["losses"] == {"s2": 1}
