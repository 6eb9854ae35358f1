"""Relays that are killed before the first round, or stand still, over FLARE (`make test-flare`)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.deployment import NAMES, Deployment
from helpers.flare_federation import Flare, wait_for_rounds

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flare]:
    deployment = Deployment(tmp_path_factory.mktemp("f"), epsilon=1000.0)
    made = Flare(deployment, environment={"server": {"PYTHONPATH": str(Path(__file__).parent.parent)}})
    resources = made.kits / "localhost" / "local" / "resources.json"
    known = json.loads(resources.read_text())
    resources.write_text(json.dumps(known | {"class_allow_list": ["zerosum.flare.", "helpers.flare_killer."]}))
    try:
        made.start()
        deployment.start()
        yield made
    finally:
        made.stop()
        deployment.stop()


@pytest.mark.parametrize("at", ["propose", "advertise"])
def test_flare_relay_killed_before_first_round_ends_job_and_next_job_completes(flare: Flare, at: str) -> None:
    """A relay does not come back within its job: the job ends after `--absent`, with nothing spent."""
    deployment, name = flare.deployment, f"early-{at}"
    study = deployment.study(name=name)
    job = flare.job(study, absent=5)
    config = job / "app" / "config" / "config_fed_server.json"
    config.write_text(config.read_text().replace("zerosum.flare.controller.", "helpers.flare_killer."))
    order = deployment.folder / "studies" / "kill.json"
    order.write_text(json.dumps({"at": at, "pid": flare.running["east"].pid}))
    assert flare.ended(flare.submit(job)) != ["FINISHED:COMPLETED"]
    assert not order.exists()
    assert not any(entry[0].startswith(name) for each in NAMES for entry in deployment.spent(each))
    assert flare.ended(flare.submit(job)) == ["FINISHED:COMPLETED"], flare.log("server")[-4000:]
    for each in NAMES:
        assert [entry[1:] for entry in deployment.spent(each) if entry[0].startswith(name)] == [(0, 0)]


def test_flare_relay_that_stands_still_is_lost_and_used_again(flare: Flare) -> None:
    deployment, folder = flare.deployment, flare.deployment.folder
    study = deployment.study("k-means", name="still", parameters="n_clusters = 1\nrounds = 57", seed=None)
    state = folder / "studies" / "still"
    submitted = flare.submit(flare.job(study))
    wait_for_rounds(state, 3)
    relay = flare.job_process("west")
    os.kill(relay, signal.SIGSTOP)
    wait_for_rounds(state, 8)
    os.kill(relay, signal.SIGCONT)
    assert flare.ended(submitted) == ["FINISHED:COMPLETED"], flare.log("server")[-4000:]
    took = json.loads((folder / "still-out" / "result.json").read_text())["participants"]
    assert len(took) == 60
    assert [name for name in NAMES if any(name not in names for names in took)] == ["west"]
    assert "west" in took[-1]
    for each in NAMES:
        spent = [entry[1:] for entry in deployment.spent(each) if entry[0].startswith("still")]
        assert len(set(spent)) == len(spent) <= 60
        assert each == "west" or sorted(spent) == [(round, 0) for round in range(60)]
