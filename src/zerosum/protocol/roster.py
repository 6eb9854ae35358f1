"""What both sides derive from a plan for the secure sum: whom it is between, and what each vector is about.

Tested in tests/secagg/secure_study.py.
"""

from __future__ import annotations

from zerosum.errors import OutsidePlan
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Request
from zerosum.secagg.session import Roster


def roster(plan: Plan) -> Roster:
    """Whom the secure sum of a plan is between: the pinned identities, keys for every round and for every attempt
    beyond the first."""
    pinned = [site.identity for site in plan.sites]
    if None in pinned:
        raise OutsidePlan("the plan pins no identity for some of its sites")
    identities = tuple(bytes.fromhex(identity or "") for identity in pinned)
    study = bytes.fromhex(plan.digest())[:16]
    keys = plan.rounds + plan.attempts
    return Roster(study, identities, keys, plan.coalition.colluders, plan.coalition.dropouts)


def slot(plan: Plan, round: int, attempt: int) -> int:
    """Which keys of the secure sum serve a round. Attempts beyond the first are numbered through the whole study, so
    no two share keys."""
    return round if attempt == 0 else plan.rounds + attempt - 1


def mask_context(plan: Plan, round: int, request: Request | None) -> bytes:
    """What a masked vector is about; sites that were asked different things do not cancel."""
    law = plan.law(round)
    asked = "draws" if request is None else request.digest()
    return f"{plan.digest()} {round} {asked} {law.own.tolist()} {law.step}".encode()
