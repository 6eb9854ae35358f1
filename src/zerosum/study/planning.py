"""From a question to a plan: what an algorithm leaves open is settled, and everything it will release is listed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from zerosum.algorithms import Algorithm
from zerosum.algorithms.program import Outlook
from zerosum.errors import BadParameter
from zerosum.kernel.plan import Calibration, Plan, PlannedRelease, PlannedSite
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.view import Coalition
from zerosum.site.site import Site

_WHOLE = PlannedRelease("everything", sensitivity=1.0, share=1.0, size=1, bound=1.0)


def make_plan(
    algorithm: Algorithm,
    sites: Sequence[PlannedSite],
    *,
    name: str,
    epsilon: float,
    delta: float,
    scheme: Scheme,
    coalition: Coalition,
    unit: str = "person",
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    results_to_sites: bool = True,
    calibration: Calibration = "exact",
    seed: int | None = None,
) -> Plan:
    """A plan under a fresh study name."""
    plan = Plan(
        study=f"{name} {secrets.token_hex(8)}",
        algorithm=algorithm.name,
        unit=unit,
        adjacency=adjacency,
        epsilon=epsilon,
        delta=delta,
        scheme=scheme,
        coalition=coalition,
        sites=tuple(sites),
        releases=(_WHOLE,),
        results_to_sites=results_to_sites,
        calibration=calibration,
        seed=seed,
    )
    return replace(plan, releases=settle(algorithm, plan).releases(adjacency))


def settle(algorithm: Algorithm, plan: Plan) -> Algorithm:
    """The algorithm as this plan runs it: what it leaves open is chosen from the plan's public facts.

    The plan's own releases are no part of these, so whoever plans and whoever runs the plan choose the same.
    """
    alone = replace(plan, releases=(_WHOLE,))
    units = [site.units for site in plan.sites if site.units is not None]
    return algorithm.settled(
        Outlook(noise=alone.law(0).noise_std, units=sum(units) if len(units) == len(plan.sites) else None)
    )


def pin(plan: Plan, sites: Sequence[Site]) -> Plan:
    """The plan with the identities of these sites in its roster; no two of them may charge one ledger."""
    ledgers = [site.policy.ledger_path.resolve() for site in sites]
    if len(set(ledgers)) < len(ledgers):
        raise BadParameter("two sites have the same ledger: the same people must not take part twice")
    known = {site.name: site.identity.public.hex() for site in sites}
    return replace(plan, sites=tuple(replace(site, identity=known.get(site.name)) for site in plan.sites))


def coalition_of(colluders: int | None, dropouts: int, sites: int) -> Coalition:
    if colluders is None:
        colluders = Coalition.default(sites).colluders
    return Coalition(colluders, dropouts)
