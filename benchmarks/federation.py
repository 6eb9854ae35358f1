"""Exchanges and a whole ICA of fifteen rounds over NVIDIA FLARE, over Flower and in one process, one after the other.

FLARE and Flower need different versions of other packages: each has an environment of its own, in which
`federation_flare.py` and `federation_flower.py` run.

    make .venv-flare/.ready .venv-flower/.ready
    .venv/bin/python benchmarks/federation.py [--exchanges 100] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.deployment import NAMES, Deployment
from zerosum.coordinator.consent import gather
from zerosum.engines.in_process import InProcess
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Secure
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study, execute
from zerosum.study.site_data import load_for

ROOT = Path(__file__).parent.parent
SLOW = 3  # exchanges with Flower's own nodes, of some seconds each


def in_one_process(folder: Path, exchanges: int) -> dict[str, Any]:
    """The same exchange and the same study, with all sites in this process and ledgers of their own."""
    deployment = Deployment(folder, epsilon=1000.0, rows=20)
    study = deployment.study("ica", name="ica", ranges="", parameters="n_components = 2\nrounds = 11")
    plan, sites = Study.load(study).plan(), []
    for name in NAMES:
        file = deployment.site(name)
        policy = Policy.throwaway(name, folder / f"{name}.sqlite")
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
        return {"frames": times, "study": perf_counter() - start}


def _over(carrier: str, *words: object) -> dict[str, Any]:
    """The measurement of one carrier, in its environment."""
    python = ROOT / f".venv-{carrier}" / "bin" / "python"
    command = [str(python), str(Path(__file__).parent / f"federation_{carrier}.py"), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(exchanges: int) -> dict[str, Any]:
    """Spread of an exchange in milliseconds, and seconds of the study, by carrier."""
    with tempfile.TemporaryDirectory() as folder:
        found = {"one process": in_one_process(Path(folder), exchanges)}
    found["FLARE"] = _over("flare", exchanges)
    found["Flower"] = _over("flower", exchanges)
    found["Flower, its own nodes"] = _over("flower", SLOW, "--supernodes")
    times = {name: each["frames"] for name, each in found.items()} | {"FLARE alone": found["FLARE"]["bare"]}
    studies = {name: each["study"] for name, each in found.items() if not name.endswith("nodes")}
    return {"exchange_ms": {name: _spread(each) for name, each in times.items()}, "study_s": studies}


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=10)
    return {"count": len(seconds), "median": 1e3 * median(seconds), "p10": 1e3 * cuts[0], "p90": 1e3 * cuts[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.exchanges)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print("an exchange with four sites, median (tenth to ninetieth percentile)")
    for name, spread in found["exchange_ms"].items():
        text = f"{spread['median']:8.2f} ms ({spread['p10']:.2f} to {spread['p90']:.2f}, {spread['count']} exchanges)"
        print(f"  {name:24} {text}")
    print("an ICA of fifteen rounds")
    for name, seconds in found["study_s"].items():
        print(f"  {name:24} {seconds:8.2f} s")


if __name__ == "__main__":
    main()
