"""Values that both sides derive from a plan for secure aggregation: its parties, their branches in a tree, and the
context of each vector.
"""

from __future__ import annotations

from collections.abc import Iterable

from zerosum.errors import OutsidePlan
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Request
from zerosum.secagg.session import Roster


def roster(plan: Plan) -> Roster:
    """The parties of a plan's secure aggregation: the pinned identities, with keys for every round and for every
    attempt beyond the first.
    """
    # Without pinned identities the coordinator could sign for a site that it invented, and open the sum of the others.
    pinned = [site.identity for site in plan.sites]
    if None in pinned:
        raise OutsidePlan("the plan pins no identity for some of its sites")
    identities = tuple(bytes.fromhex(identity or "") for identity in pinned)
    # The study is named by its plan: messages of the same study under a changed plan are of another study.
    study = bytes.fromhex(plan.digest())[:16]
    # Rounds of phases count one by one: no two sums share a key, as the difference of two vectors under one mask is
    # readable.
    keys = plan.rounds + plan.attempts
    return Roster(study, identities, keys, plan.coalition.colluders, plan.coalition.dropouts)


def branches(plan: Plan, senders: Iterable[str]) -> dict[int, tuple[int, ...]]:
    """For each of these sites the sites of its branch in the plan's tree, all by their place on the roster."""
    place = {site.name: s for s, site in enumerate(plan.sites)}
    return {place[name]: tuple(place[each] for each in plan.tree.branch[name]) for name in senders}


def slot(plan: Plan, round: int, attempt: int) -> int:
    """The index of the keys of secure aggregation for a round. Attempts beyond the first are numbered through the whole
    study, so that no two share keys.
    """
    return round if attempt == 0 else plan.rounds + attempt - 1


def mask_context(plan: Plan, round: int, request: Request | None) -> bytes:
    """The context of a masked vector; masks of sites with different requests do not cancel.

    Parameters
    ----------
    plan, round:
        The round of a plan.
    request:
        The request of the contributions; None for the draws of cancelling noise.
    """
    # Noise and step enter the context too: a site with another reading of the plan (another version of Zerosum, say)
    # does not cancel, so the error is noticed instead of giving a sum with too little noise.
    law = plan.law(round)
    content = "draws" if request is None else request.digest()
    shares = f" {law.decay} {law.parts}" if law.decay else ""
    return f"{plan.digest()} {round} {content} {law.own.tolist()} {law.step}{shares}".encode()
