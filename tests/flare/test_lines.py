"""Sites in network namespaces of their own, with 100 ms of delay and one packet in a hundred lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from helpers import network_lines
from helpers.deployment import NAMES, Deployment
from helpers.flare_federation import Flare, wait_for_rounds

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")


@pytest.mark.slow
def test_flare_study_with_delay_and_loss_completes_and_cut_off_site_is_lost(tmp_path: Path) -> None:
    """A study completes; in the next one a site is cut off in the middle, and lost."""
    if why := network_lines.allowed():
        pytest.skip(why)
    deployment = Deployment(tmp_path, epsilon=1000.0)
    made = network_lines.Lines(NAMES, 0.1, 0.01)
    flare = None
    try:
        before = {}
        for name in ("server", "admin", *NAMES):
            hosts = tmp_path / f"{name}.hosts"
            hosts.write_text(f"127.0.0.1 localhost\n{made.address(name)} hub.test\n")
            before[name] = made.inside(name, hosts)
        flare = Flare(deployment, host="hub.test", port=8002, before=before)
        flare.start()
        deployment.start()
        studies = tmp_path / "studies"
        parameters = "n_clusters = 1\nrounds = 7"
        study = deployment.study("k-means", name="far", parameters=parameters, seed=None)
        started = time.monotonic()
        assert flare.ended(flare.submit(flare.job(study, seconds=60))) == ["FINISHED:COMPLETED"], flare.log("server")
        print(f"ten rounds over lines with delay and loss: {time.monotonic() - started:.1f} s with FLARE's own start")
        took = json.loads((tmp_path / "far-out" / "result.json").read_text())["participants"]
        assert took == [list(NAMES)] * 10

        study = deployment.study("k-means", name="cut", parameters=parameters, seed=None)
        submitted = flare.submit(flare.job(study, seconds=60))
        wait_for_rounds(studies / "cut", 2)
        made.cut("south")
        started, known = time.monotonic(), (studies / "cut" / "journal").read_bytes().count(b'"kind": "release"')
        wait_for_rounds(studies / "cut", known + 2)
        print(f"two more rounds were over {time.monotonic() - started:.1f} s after the site was cut off")
        wait_for_rounds(studies / "cut", 10)
        while not (tmp_path / "cut-out" / "result.json").exists():
            assert time.monotonic() < started + 120
            time.sleep(0.1)
        took = json.loads((tmp_path / "cut-out" / "result.json").read_text())["participants"]
        assert "south" in took[0]
        assert [name for name in NAMES if any(name not in names for names in took)] == ["south"]
        submitted.kill()
        submitted.communicate()
        for name in NAMES:
            spent = deployment.spent(name)
            assert len(set(spent)) == len(spent)
    finally:
        if flare is not None:
            flare.stop()
        deployment.stop()
        made.close()
