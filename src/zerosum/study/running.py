"""From a plan to a result: `zerosum.run` over sites held in memory, and a program over any engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Literal

from numpy.typing import ArrayLike

from zerosum.algorithms import Algorithm
from zerosum.coordinator.conduct import conduct
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadParameter
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import Calibration, PlannedSite, Terms
from zerosum.kernel.units import Units
from zerosum.protocol.progress import Observer, nobody
from zerosum.report.record import Result, privacy_report, versions
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study.planning import coalition_of, identified, make_plan, resolve


def execute(plan: Plan, algorithm: Algorithm, engine: Engine, observer: Observer = nobody) -> Result:
    """Run a plan's program over an engine."""
    program = resolve(algorithm, plan).program(plan.adjacency)
    outcome = conduct(plan, program, engine, observer)
    return Result(outcome.result, privacy_report(plan), outcome.participants, versions())


def run(
    algorithm: Algorithm,
    sites: Mapping[str, ArrayLike | Units | Site],
    *,
    epsilon: float,
    delta: float,
    scheme: str | Scheme = DEFAULT_SCHEME,
    colluders: int | None = None,
    dropouts: int = 0,
    unit: Literal["person", "record"] = "person",
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    results_to_sites: bool = True,
    policies: Mapping[str, Policy] | None = None,
    calibration: Calibration = "exact",
    random_state: int | None = None,
    observer: Observer = nobody,
) -> Result:
    """Run an algorithm over sites held in memory: arrays (a row per unit), `Units`, or whole `Site` objects.

    A site without a policy of its own gets the default one: its ledger, under the site's name, lies in the user's state
    folder, and the spend is as real as in any study. Running again is spending again.
    """
    coalition = coalition_of(colluders, dropouts, len(sites))
    chosen = scheme if isinstance(scheme, Scheme) else Scheme(scheme)
    if strangers := set(policies or {}) - set(sites):
        raise BadParameter(f"there is no site named {', '.join(map(repr, sorted(strangers)))} for the policy given")
    members = []
    for name, data in sites.items():
        if isinstance(data, Site):
            if data.name != name:
                raise BadParameter(f"the site {data.name!r} was given under the name {name!r}")
            members.append(data)
            continue
        units = data if isinstance(data, Units) else Units.from_rows(data)
        policy = (policies or {}).get(name) or Policy(population=name, unit=unit, adjacency=adjacency)
        members.append(Site(name, units, policy))
    counted = adjacency is Adjacency.REPLACE_ONE  # counts are public; otherwise they are data
    shapes = [PlannedSite(site.name, len(site.units) if counted else None) for site in members]
    terms = Terms(
        unit=unit,
        adjacency=adjacency,
        epsilon=epsilon,
        delta=delta,
        scheme=chosen,
        coalition=coalition,
        sites=identified(members, shapes),
        results_to_sites=results_to_sites,
        calibration=calibration,
        seed=random_state,
    )
    plan = make_plan(algorithm, terms, algorithm.name)
    for request in resolve(algorithm, plan).requests(adjacency):
        for site in members:  # whoever calls this holds the data, and may be told
            request.statistic.check_values(site.units)
    with closing(InProcess(members)) as engine:
        return execute(plan, algorithm, engine, observer)
