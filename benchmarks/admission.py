"""How long one study's proposal keeps a site from answering another's.

    python benchmarks/admission.py [--phases 4] [--others 5] [--json]

A site serves studies as over a socket, without one. A first thread proposes a plan with sub-sampled phases, whose
accounting takes seconds. Meanwhile the main thread proposes ordinary plans, one after the other. Printed are the
seconds of an ordinary proposal on an idle site and beside the accounting, the seconds of the slow proposal, of the same
plan decoded and proposed again, and their ratios. The accounting is mostly Python code, so that the threads share one
core: an ordinary proposal beside it takes several times as long as alone, and not the seconds of the accounting.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Propose
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service
from zerosum.study import make_plan

PHASES = (Sampling(0.1, 200), Sampling(0.05, 500), Sampling(0.02, 1000), Sampling(0.2, 100))


@dataclass(frozen=True)
class Waits:
    """Seconds until a proposal is answered."""

    slow: float  # the plan with sub-sampled phases
    again: float  # the same plan, decoded from its bytes and proposed again
    alone: float  # an ordinary plan on an idle site, the median
    beside: float  # an ordinary plan during the accounting, the median
    longest: float  # the longest of those


def ordinary() -> Plan:
    sites = tuple(PlannedSite(f"s{i}") for i in range(4))
    terms = Terms(sites=sites, epsilon=2.0, delta=1e-5, scheme=Scheme("local"), coalition=Coalition(1))
    return make_plan(MeanProgram(columns=("a", "b"), clip=1.0), terms, "ordinary", noise="gaussian")


def sampled(phases: int) -> Plan:
    """A plan that spends an equal share of its budget on each of these phases."""
    plan = ordinary()
    (release,) = plan.releases
    parts = tuple(replace(release, share=1 / phases, sampling=each) for each in PHASES[:phases])
    return replace(plan, releases=parts)


def measure(phases: int, others: int, folder: Path) -> Waits:
    """Proposals to a new site: `others` ordinary ones on their own, then as many as fit beside the slow one."""
    rows = np.random.default_rng(0).normal(size=(40, 2)) * 0.3
    service = Service(
        "s0",
        Policy(population="p", data="synthetic", epsilon=1000.0, ledger=folder / "ledger.sqlite"),
        Identity(),
        lambda plan: Units.from_rows(rows),
        Consents(folder, automatic=True),
        AuditLog(folder / "audit.jsonl"),
        schema=DataSchema(units=len(rows), n_columns=2),
        most_studies=100_000,
    )

    def propose(plan: Plan) -> float:
        frame, began = encode(Propose(plan)), perf_counter()
        reply = decode_reply(service.answer(bytes.fromhex(plan.digest()), frame))
        took = perf_counter() - began
        if not isinstance(reply, Consent):
            raise SystemExit(f"the site refused: {reply}")
        return took

    import dp_accounting.pld  # noqa: F401 - an import is no part of the accounting

    propose(ordinary())  # imports
    alone = [propose(ordinary()) for _ in range(others)]
    plan, slow = sampled(phases), [0.0]
    thread = threading.Thread(target=_into(slow, lambda: propose(plan)))
    thread.start()
    beside: list[float] = []
    while thread.is_alive() and len(beside) < others:
        beside.append(propose(ordinary()))
    thread.join()
    again = propose(Plan.from_json(plan.to_json()))
    service.close()
    return Waits(slow[0], again, median(alone), median(beside), max(beside))


def _into(result: list[float], work: Callable[[], float]) -> Callable[[], None]:
    def run() -> None:
        result[0] = work()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phases", type=int, choices=range(1, 5), default=4, help="different sub-sampled phases")
    parser.add_argument("--others", type=int, default=5, help="ordinary proposals on their own, and beside at most")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        waits = measure(options.phases, options.others, Path(folder))
    if options.json:
        print(json.dumps(asdict(waits)))
        return
    print(f"{'proposal':42} {'seconds':>9} {'ratio to alone':>15}")
    for name, seconds in (
        ("ordinary, alone", waits.alone),
        ("ordinary, beside the accounting (median)", waits.beside),
        ("ordinary, beside the accounting (longest)", waits.longest),
        (f"{options.phases} sub-sampled phases", waits.slow),
        ("the same plan again", waits.again),
    ):
        print(f"{name:42} {seconds:9.3f} {seconds / waits.alone:15.1f}")


if __name__ == "__main__":
    main()
