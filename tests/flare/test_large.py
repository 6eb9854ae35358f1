"""A contribution of six million numbers from each of four sites, over FLARE: what it takes in memory, at the most."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from helpers.deployment import NAMES, Deployment, declare
from helpers.flare_federation import Flare

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: make test-flare")

COLUMNS = 3464  # their second moment has 6 001 380 different entries
PAYLOAD = 8 * COLUMNS * (COLUMNS + 1) // 2


class Watch:
    """The most memory that processes ever held, in bytes, looked at fifty times a second; of the coordinator's also the
    most until the first release was in its journal, before its program computes anything of it."""

    def __init__(self, flare: Flare, journal: Path) -> None:
        self._flare, self._journal, self._ended = flare, journal, threading.Event()
        self.most: dict[str, int] = {}
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        known: dict[str, int] = {}
        looked, carrying = 0.0, True
        while not self._ended.wait(0.02):
            if time.monotonic() > looked + 1:
                looked = time.monotonic()
                known = self._processes()
            now = {name: held(pid) for name, pid in known.items()}
            now["carried to server"] = now.get("job server", 0) if carrying else 0
            carrying = carrying and b'"kind": "release"' not in self._journal.read_bytes()
            for name, size in now.items():
                self.most[name] = max(self.most.get(name, 0), size)

    def _processes(self) -> dict[str, int]:
        flare = self._flare
        known = {f"site {name}": process.pid for name, process in flare.deployment.running.items()}
        known |= {f"flare {name}": process.pid for name, process in flare.running.items()}
        for name in flare.running:
            with suppress(ValueError):  # none yet, or none any more
                known[f"job {name}"] = flare.job_process(name)
        return known


def held(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


@pytest.mark.slow
def test_flare_payload_of_48_megabytes_per_site_takes_bounded_memory(tmp_path: Path) -> None:
    """Growth over what the same processes take for a small study: four payloads at most at a site and at a relay, and
    at the coordinator two for each site in flight."""
    deployment = Deployment(tmp_path, epsilon=1000.0)
    rng = np.random.default_rng(0)
    names = [f"c{at}" for at in range(COLUMNS)]
    for name in NAMES:
        rows = rng.uniform(-1, 1, (60, COLUMNS))
        lines = [",".join(f"{value:.3f}" for value in row) for row in rows]
        (deployment.folder / name / "data.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
        declare(deployment.site(name))
    flare = Flare(deployment)

    def study(name: str, columns: int) -> Path:
        ranges = f"lower = {[-1] * columns}\nupper = {[1] * columns}\n"
        more = 'n_components = 2\nsolver = "matrix"\ncentering = "ranges"\nshrink = false'
        path = deployment.study("pca", name=name, ranges=ranges, parameters=more)
        path.write_text(path.read_text().replace('["age", "pressure", "bmi"]', json.dumps(names[:columns])))
        return path

    most = []
    try:
        flare.start()
        deployment.start()
        for path in (study("small", 10), study("large", COLUMNS)):
            job = flare.job(path, seconds=300, wait=120)
            with Watch(flare, tmp_path / "studies" / path.stem / "journal") as watch:
                assert flare.ended(flare.submit(job)) == ["FINISHED:COMPLETED"], flare.log("server")[-3000:]
            most.append(watch.most)
    finally:
        flare.stop()
        deployment.stop()
    assert (deployment.folder / "large-out" / "result.json").exists()
    grown = {name: (most[1][name] - most[0][name]) / PAYLOAD for name in most[1]}
    print({name: round(value, 2) for name, value in grown.items()})
    for name in NAMES:
        assert grown[f"site {name}"] <= 4
        assert grown[f"job {name}"] <= 4
        assert grown[f"flare {name}"] <= 4
    assert grown["carried to server"] <= 2 * len(NAMES)
    assert grown["flare server"] <= 2 * len(NAMES)
