"""Small studies of four sites, and their ledgers: what tests of sites and of the coordinator run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from zerosum.algorithms import Algorithm, MeanProgram
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Message
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import execute, make_plan, pin

QUESTION = MeanProgram(columns=("a", "b"), clip=1.0)
VITALS = """
name = "vitals"
algorithm = "mean"

[parameters]
columns = ["age", "pressure"]
lower = [0, 60]
upper = [100, 200]

[unit]
kind = "person"

[privacy]
epsilon = 1.0
delta = 1e-5
"""  # a study file without its sites


def make_sites(folder: Path, sizes: tuple[int, ...] = (12, 20, 40, 30), **policy: object) -> list[Site]:
    rng = np.random.default_rng(0)
    settings: dict[str, object] = {"data": "synthetic", "epsilon": 100.0, **policy}
    return [
        Site(
            f"s{i}",
            Units.from_rows(rng.normal(size=(n, 2)) * 0.3),
            Policy(population=f"p{i}", ledger=folder / f"{i}.sqlite", **settings),  # type: ignore[arg-type]
        )
        for i, n in enumerate(sizes)
    ]


def make(scheme: str = "zero-sum", **changes: object) -> Plan:
    plan = make_plan(
        QUESTION,
        Terms(
            sites=tuple(PlannedSite(f"s{i}") for i in range(4)),
            epsilon=5.0,
            delta=1e-5,
            scheme=Scheme(scheme),
            coalition=Coalition(1),
        ),
        "test",
        noise="gaussian",
    )
    return replace(plan, **changes)  # type: ignore[arg-type]


def carry_out(
    plan: Plan, sites: list[Site], loses: Callable[[str, Message], bool] | None = None, question: Algorithm = QUESTION
) -> Result:
    engine = InProcess(sites) if loses is None else InProcess(sites, loses)
    return execute(pin(plan, sites), question, engine)


def entries(site: Site) -> int:
    with site.policy.open_ledger() as ledger:
        return len(ledger.entries())
