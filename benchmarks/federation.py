"""Zerosum over NVIDIA FLARE beside FLARE alone and beside one process: an exchange, and a whole ICA of fifteen rounds.

A server and four sites are processes on this machine, with mutual TLS on loopback. In one job, exchanges of a frame
that goes through to every site's process and comes back take turns with bare ones, which FLARE's own cells answer, so
that a busy machine slows both. Then the study runs, there and in one process. Needs the extra `nvflare`.

    .venv-flare/bin/python benchmarks/federation.py [--exchanges 200] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.fqcn import FQCN

from helpers.deployment import NAMES, Deployment
from helpers.flare_federation import Flare
from zerosum.coordinator.consent import gather
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.flare.cells import Cells
from zerosum.flare.controller import Coordinator
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Secure
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study, execute
from zerosum.study.coordinating import Settings
from zerosum.study.site_data import load_for


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


def in_one_process(deployment: Deployment, study: Path, state: Path, exchanges: int) -> tuple[list[float], float]:
    """The same exchange and the same study, with all sites in this process and ledgers of their own."""
    with closing(Journal(state / "journal")) as journal:
        plan = journal.plan
    sites = []
    for name in NAMES:
        file = deployment.site(name)
        policy = Policy.throwaway(name, state / f"{name}.sqlite")
        sites.append(Site(name, load_for(plan, file), policy, file.keep_identity()))
    with closing(InProcess(sites)) as engine:
        gather(plan, engine, lambda sites: None, seconds=60)
        frame, times = encode(Secure("advertise")), []
        for _ in range(exchanges):
            start = perf_counter()
            list(engine.exchange(dict.fromkeys(NAMES, frame)))
            times.append(perf_counter() - start)
        start = perf_counter()
        execute(plan, Study.load(study).build_algorithm(), engine)
        return times, perf_counter() - start


def measure(folder: Path, exchanges: int) -> dict[str, Any]:
    deployment = Deployment(folder, epsilon=1000.0, rows=20)
    here = {"ZEROSUM_EXCHANGES": str(exchanges), "PYTHONPATH": str(Path(__file__).parent)}
    flare = Flare(deployment, environment={"server": here})
    resources = flare.kits / "localhost" / "local" / "resources.json"
    known = json.loads(resources.read_text())
    resources.write_text(json.dumps(known | {"class_allow_list": ["zerosum.flare.", "federation."]}))  # `Timed`
    study = deployment.study("ica", name="ica", ranges="", parameters="n_components = 2\nrounds = 11")
    try:
        flare.start()
        deployment.start()
        job = flare.job(study)
        config = job / "app" / "config" / "config_fed_server.json"
        config.write_text(config.read_text().replace("zerosum.flare.controller.Coordinator", "federation.Timed"))
        ended = flare.ended(flare.submit(job))
        if ended != ["FINISHED:COMPLETED"]:
            raise SystemExit(f"the job ended as {ended}\n{flare.log('server')[-3000:]}")
    finally:
        flare.stop()
        deployment.stop()
    times = json.loads((folder / "studies" / "times.json").read_text())
    one, whole = in_one_process(deployment, study, folder / "studies" / "ica", exchanges)
    took = json.loads((folder / "ica-out" / "result.json").read_text())["participants"]
    return {
        "exchange_ms": {name: _spread(times[name]) for name in ("frames", "bare")} | {"one process": _spread(one)},
        "study_s": {"rounds": len(took), "over FLARE": times["study"], "one process": whole},
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=10)
    return {"median": 1e3 * median(seconds), "p10": 1e3 * cuts[0], "p90": 1e3 * cuts[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), arguments.exchanges)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    what = {"frames": "Zerosum over FLARE", "bare": "FLARE alone", "one process": "one process"}
    print(f"an exchange with four sites, median of {arguments.exchanges} (tenth to ninetieth percentile)")
    for name, spread in found["exchange_ms"].items():
        print(f"  {what[name]:20} {spread['median']:8.2f} ms ({spread['p10']:.2f} to {spread['p90']:.2f})")
    print(f"an ICA of {found['study_s']['rounds']} rounds")
    print(f"  {'Zerosum over FLARE':20} {found['study_s']['over FLARE']:8.2f} s")
    print(f"  {'one process':20} {found['study_s']['one process']:8.2f} s")


if __name__ == "__main__":
    main()
