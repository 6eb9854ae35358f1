"""A FLARE server and four sites, each a process of its own, with mutual TLS on loopback (`make test-flare`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.coordinator_runs import in_process
from helpers.deployment import NAMES, Deployment
from helpers.flare_federation import Flare, wait_for_rounds

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")


@pytest.fixture(scope="module")
def flare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flare]:
    deployment = Deployment(tmp_path_factory.mktemp("f"), epsilon=1000.0, rows=20)
    made = Flare(deployment)
    try:
        made.start()
        deployment.start()
        yield made
    finally:
        made.stop()
        deployment.stop()


def test_flare_concurrent_studies_equal_in_process_results(flare: Flare) -> None:
    deployment, folder = flare.deployment, flare.deployment.folder
    studies = {
        "mean": deployment.study(name="mean"),
        "pca": deployment.study("pca", name="pca", parameters="n_components = 2"),
        "ica": deployment.study("ica", name="ica", ranges="", parameters="n_components = 2\nrounds = 11"),
        "open": deployment.study(name="open", seed=None),
    }
    ended = flare.ended(flare.submit(*(flare.job(study) for study in studies.values())))
    assert ended == ["FINISHED:COMPLETED"] * 4, flare.log("server")[-4000:]
    for name in ("mean", "pca", "ica"):
        expected = in_process(deployment, studies[name], folder / "studies" / name)
        with np.load(folder / f"{name}-out" / "estimate.npz") as found:
            for key, quantity in expected.estimate.items():
                assert found[key].tobytes() == quantity.value.tobytes()
    assert len(expected.participants) == 15
    for name in NAMES:
        spent = deployment.spent(name)
        assert len(set(spent)) == len(spent) >= 18
        assert {line["event"] for line in deployment.log(name)} == {"started", "consented", "released"}


def test_flare_classes_named_by_jobs_and_kits_exist() -> None:
    names = "zerosum.flare.controller.Coordinator", "zerosum.flare.relay.Relay", "zerosum.flare.launcher.Launcher"
    code = "import sys, pydoc; [pydoc.locate(name, forceload=False).__module__ for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *names, "zerosum.flare.cells.Cells.exchange"], check=True)


def test_flare_job_with_other_classes_is_refused_by_server_and_clients(flare: Flare) -> None:
    """Not even FLARE's own classes: an administrator of FLARE runs nothing beside the data."""
    folder = flare.deployment.folder
    strange = {
        "server": {"id": "other", "path": "nvflare.app_common.workflows.cyclic_ctl.CyclicController"},
        "client": {"path": "nvflare.app_common.np.np_trainer.NPTrainer", "args": {}},
    }
    jobs = []
    for where, other in strange.items():
        job = flare.job(flare.deployment.study(name=f"strange-{where}"), seconds=5, wait=5)
        path = job / "app" / "config" / f"config_fed_{where}.json"
        config = json.loads(path.read_text())
        if where == "server":
            config["workflows"][0] = other
        else:
            config["executors"][0]["executor"] = other
        path.write_text(json.dumps(config))
        jobs.append(job)
    before = {name: flare.deployment.spent(name) for name in NAMES}
    ended = flare.ended(flare.submit(*jobs, folder / "open-job"))
    assert ended[2] == "FINISHED:COMPLETED"
    assert "FINISHED:COMPLETED" not in ended[:2]
    assert {name: flare.deployment.spent(name) for name in NAMES} == before
    for where, who, name in (("server", "localhost", "CyclicController"), ("client", "north", "NPTrainer")):
        logs = "".join(each.read_text(errors="replace") for each in (flare.kits / who).rglob("*log*.txt"))
        logs += flare.log("server" if where == "server" else "north")
        assert f"{name}'" in logs
        assert "is not in allow_list" in logs
        assert not (folder / f"strange-{where}-out").exists()


def test_flare_killed_relay_and_job_resume_without_double_spending(flare: Flare) -> None:
    """A killed relay is a lost site; a killed job is resumed by the next one, and nothing is spent twice."""
    deployment, folder = flare.deployment, flare.deployment.folder
    name, state = "shot", folder / "studies" / "shot"
    parameters = "n_clusters = 1\nrounds = 37"
    study = deployment.study("k-means", name=name, parameters=parameters, seed=None)
    job = flare.job(study)
    submitted = flare.submit(job)
    wait_for_rounds(state, 3)
    os.kill(flare.job_process("east"), signal.SIGKILL)
    wait_for_rounds(state, 8)
    os.kill(flare.job_process("server"), signal.SIGKILL)
    assert flare.ended(submitted) != ["FINISHED:COMPLETED"]
    assert flare.ended(flare.submit(job)) == ["FINISHED:COMPLETED"]
    result = json.loads((folder / "shot-out" / "result.json").read_text())
    assert len(result["participants"]) == 40
    assert any("east" not in names for names in result["participants"])
    assert "east" in result["participants"][-1]  # a new job is a new relay, and the site's process never went away
    for each in NAMES:
        spent = [(round, attempt) for which, round, attempt in deployment.spent(each) if which.startswith("shot")]
        assert len(set(spent)) == len(spent) <= 40
        assert each == "east" or sorted(spent) == [(round, 0) for round in range(40)]
