"""Values that both sides derive from a plan for secure aggregation: its parties, and the context of each vector."""

from __future__ import annotations

from zerosum.errors import OutsidePlan
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Request
from zerosum.secagg.session import Roster


def roster(plan: Plan) -> Roster:
    """The parties of a plan's secure aggregation: the pinned identities, with keys for every round and for every
    attempt beyond the first.
    """
    pinned = [site.identity for site in plan.sites]
    if None in pinned:
        raise OutsidePlan("the plan pins no identity for some of its sites")
    identities = tuple(bytes.fromhex(identity or "") for identity in pinned)
    study = bytes.fromhex(plan.digest())[:16]
    keys = plan.rounds + plan.attempts
    return Roster(study, identities, keys, plan.coalition.colluders, plan.coalition.dropouts)


def slot(plan: Plan, round: int, attempt: int) -> int:
    """The index of the keys of secure aggregation for a round. Attempts beyond the first are numbered through the whole
    study, so that no two share keys.
    """
    return round if attempt == 0 else plan.rounds + attempt - 1


def mask_context(plan: Plan, round: int, request: Request | None) -> bytes:
    """The context of a masked vector; masks of sites with different requests do not cancel."""
    law = plan.law(round)
    asked = "draws" if request is None else request.digest()
    return f"{plan.digest()} {round} {asked} {law.own.tolist()} {law.step}".encode()
