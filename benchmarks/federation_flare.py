"""Zerosum over NVIDIA FLARE beside FLARE alone: an exchange, and a whole ICA. `federation.py` runs it.

A server and four sites are processes on this machine, with mutual TLS on loopback. In one job, exchanges of a frame
that goes through to every site's process and comes back take turns with bare ones, which FLARE's own cells answer, so
that a busy machine slows both. Then the study runs. Needs the extra `nvflare`.

    .venv-flare/bin/python benchmarks/federation_flare.py EXCHANGES
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

from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from helpers.deployment import Deployment
from helpers.exchange_study import study_of
from helpers.flare_federation import Flare
from zerosum.coordinator.consent import gather
from zerosum.coordinator.journal import Journal
from zerosum.flare.cells import Cells
from zerosum.flare.controller import Coordinator
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Secure
from zerosum.study.coordinating import Settings


class Timed(Coordinator):
    """A coordinator that measures before and while it runs its study."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        home = Path(os.environ["ZEROSUM_COORDINATOR"])
        settings = Settings.load(home / self._study)
        with closing(Journal(home / self._study / "journal")) as journal:
            plan = journal.plan
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        targets = {client.name: FQCN.join([client.get_fqcn(), job]) for client in engine.get_clients()}
        frame = encode(Secure("advertise"))
        times: dict[str, list[float]] = {"frames": [], "bare": []}
        with closing(Cells(engine.get_cell(), targets, plan.digest(), abort_signal, settings.seconds)) as cells:
            gather(plan, cells, lambda sites: None, seconds=60, every=0.2)
            for _ in range(int(os.environ["ZEROSUM_EXCHANGES"])):
                start = perf_counter()
                assert all(reply is not None for _, reply in cells.exchange(dict.fromkeys(targets, frame)))
                middle = perf_counter()
                assert all(cells._pool.map(lambda name: cells._alive(name, 1), targets))
                times["frames"].append(middle - start)
                times["bare"].append(perf_counter() - middle)
        start = perf_counter()
        super().control_flow(abort_signal, fl_ctx)
        (home / "times.json").write_text(json.dumps(times | {"study": perf_counter() - start}))


def measure(folder: Path, exchanges: int) -> dict[str, Any]:
    """Seconds of each exchange over FLARE and of FLARE alone, and of the whole study."""
    deployment = Deployment(folder, epsilon=1000.0, rows=20)
    here = {"ZEROSUM_EXCHANGES": str(exchanges), "PYTHONPATH": str(Path(__file__).parent)}
    flare = Flare(deployment, environment={"server": here})
    resources = flare.kits / "localhost" / "local" / "resources.json"
    known = json.loads(resources.read_text())
    resources.write_text(json.dumps(known | {"class_allow_list": ["zerosum.flare.", "federation_flare."]}))  # `Timed`
    study = study_of(deployment, "--short" in sys.argv)
    try:
        flare.start()
        deployment.start()
        job = flare.job(study)
        config = job / "app" / "config" / "config_fed_server.json"
        config.write_text(config.read_text().replace("zerosum.flare.controller.Coordinator", "federation_flare.Timed"))
        ended = flare.ended(flare.submit(job))
        if ended != ["FINISHED:COMPLETED"]:
            raise SystemExit(f"the job ended as {ended}\n{flare.log('server')[-3000:]}")
    finally:
        flare.stop()
        deployment.stop()
    found: dict[str, Any] = json.loads((folder / "studies" / "times.json").read_text())
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(Path(scratch), int(sys.argv[1]))))
