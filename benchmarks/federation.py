"""Exchanges and a whole ICA of fifteen rounds over NVIDIA FLARE, over Flower and in one process, one after the other.

FLARE and Flower need different versions of other packages: each has an environment of its own, in which
`federation_flare.py` and `federation_flower.py` run.

    make .venv-flare/.ready .venv-flower/.ready
    .venv/bin/python benchmarks/federation.py [--exchanges 100] [--short] [--json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from helpers.deployment import NAMES, Deployment
from helpers.exchange_study import study_of
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


def in_one_process(folder: Path, exchanges: int, short: bool) -> dict[str, Any]:
    """The same exchange and the same study, with all sites in this process and ledgers of their own."""
    with redirect_stdout(sys.stderr):  # what the command prints
        deployment = Deployment(folder, epsilon=1000.0, rows=20)
    study = study_of(deployment, short)
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


def measure(exchanges: int, short: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Spread of an exchange in milliseconds, and seconds of the study, by carrier, as they are there."""
    more = ["--short"] if short else []
    with tempfile.TemporaryDirectory() as folder:
        yield from _figures("one process", in_one_process(Path(folder), exchanges, short))
    yield from _figures("FLARE", _over("flare", exchanges, *more))
    yield from _figures("Flower", _over("flower", exchanges, *more))
    yield from _figures("Flower, its own nodes", _over("flower", SLOW, "--supernodes", *more))


def _figures(name: str, found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and figures of a carrier, and of FLARE alone if its exchanges were measured in turns."""
    yield name, {"exchange_ms": _spread(found["frames"]), "study_s": found["study"]}
    if "bare" in found:
        yield f"{name} alone", {"exchange_ms": _spread(found["bare"]), "study_s": None}


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=10)
    return {"count": len(seconds), "median": 1e3 * median(seconds), "p10": 1e3 * cuts[0], "p90": 1e3 * cuts[-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=100)
    parser.add_argument("--short", action="store_true", help="a mean of one round in place of the ICA")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kind = "a mean" if arguments.short else "an ICA of fifteen rounds"
    if not arguments.json:
        print(f"carrier: an exchange with four sites, median (tenth to ninetieth percentile); {kind}")
    for name, found in measure(arguments.exchanges, arguments.short):
        if arguments.json:
            print(json.dumps({"carrier": name, **found}), flush=True)
            continue
        spread, seconds = found["exchange_ms"], found["study_s"]
        text = f"{spread['median']:8.2f} ms ({spread['p10']:.2f} to {spread['p90']:.2f}, {spread['count']} exchanges)"
        print(f"  {name:24} {text} {'' if seconds is None else f'{seconds:8.2f} s'}", flush=True)


if __name__ == "__main__":
    main()
