"""Zerosum over Flower: an exchange, and a whole ICA. `federation.py` runs it.

A SuperLink, four nodes and four sites are processes on this machine, with TLS and node keys on loopback. In one run,
exchanges of a frame that goes through to every site's process and comes back are timed; then the study runs. With
`--supernodes` the nodes are Flower's own, which start a process for each message. Needs the extra `flower`.

    .venv-flower/bin/python benchmarks/federation_flower.py EXCHANGES [--supernodes]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from helpers.deployment import NAMES, Deployment
from helpers.exchange_study import study_of
from helpers.flower_federation import Flower
from zerosum.coordinator.consent import gather
from zerosum.coordinator.journal import Journal
from zerosum.flower import server_app
from zerosum.flower.grid import FlowerGrid
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Secure
from zerosum.study.coordinating import Settings


def _timed(grid: Grid, context: Context) -> None:
    """A coordinator that measures before and while it runs its study."""
    home = Path(os.environ["ZEROSUM_COORDINATOR"])
    folder = home / str(context.run_config["study"])
    settings = Settings.load(folder)
    with closing(Journal(folder / "journal")) as journal:
        plan = journal.plan
    engine = FlowerGrid(grid, settings.nodes, plan.digest(), settings.seconds)
    gather(plan, engine, lambda sites: None, seconds=120, every=0.2)
    frames, times = dict.fromkeys(NAMES, encode(Secure("advertise"))), []
    for _ in range(int(os.environ["ZEROSUM_EXCHANGES"])):
        start = perf_counter()
        assert all(reply is not None for _, reply in engine.exchange(frames))
        times.append(perf_counter() - start)
    start = perf_counter()
    if not os.environ.get("ZEROSUM_EXCHANGES_ONLY"):
        server_app._main(grid, context)
    (home / "times.new").write_text(json.dumps({"frames": times, "study": perf_counter() - start}))
    (home / "times.new").rename(home / "times.json")


app = ServerApp()
app.main()(_timed)


def measure(folder: Path, exchanges: int, supernodes: bool) -> dict[str, Any]:
    """Seconds of each exchange over Flower, and of the whole study (not with Flower's own nodes)."""
    deployment = Deployment(folder, epsilon=1000.0, rows=20)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")])
    here = {"ZEROSUM_EXCHANGES": str(exchanges), "PYTHONPATH": path}
    here |= {"ZEROSUM_EXCHANGES_ONLY": "1"} if supernodes else {}
    flower = Flower(deployment, supernodes=NAMES if supernodes else (), environment={"superexec": here})
    study = study_of(deployment, "--short" in sys.argv)
    try:
        flower.start()
        deployment.start()
        written = flower.app(study)
        project = written / "pyproject.toml"
        project.write_text(project.read_text().replace("zerosum.flower.server_app:app", "federation_flower:app"))
        run = flower.run(written)
        ended = flower.ended(run)
        if ended != "finished:completed":
            raise SystemExit(f"the run ended as {ended}\n{flower.log('superexec')[-3000:]}")
    finally:
        flower.stop()
        deployment.stop()
    found: dict[str, Any] = json.loads((folder / "studies" / "times.json").read_text())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(Path(scratch), int(sys.argv[1]), "--supernodes" in sys.argv[2:])))
