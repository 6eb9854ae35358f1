"""The cost of a plan for a site, computed from the public plan alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from zerosum.errors import BudgetExceeded, LedgerRefused, OutsidePlan, PolicyRefused
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.plan import Plan
from zerosum.kernel.terms import Noise
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Spend, StudyProgress, Total, left_under
from zerosum.site.policy import Policy
from zerosum.statistics import BUILTIN


def spend_of(plan: Plan, position: int, round: int, attempt: int, request: str, steps: int) -> Spend:
    """The spend of `steps` rounds of a release for the site at `position` on the roster.

    Parameters
    ----------
    plan : Plan
        The public plan.
    position : int
        Index of the site on the roster.
    round : int
        Number of the round; for a phase, of its first round.
    attempt : int
        0, or the number of a repetition of a round.
    request : str
        Hex digest of the request; empty for a spend that is only planned.
    steps : int
        Number of rounds that are charged together: all rounds of a phase, or 1.
    """
    planned = plan.release(round)
    # From the site's own reading of the plan (docs/guarantee.md, "The theorem"): the coordinator sends no cost.
    mu = float(plan.mus(round)[position])
    if not math.isfinite(mu):
        raise OutsidePlan(
            f"release {plan.position(round) + 1} has infinite mu at this site: it would protect no unit here"
        )
    return Spend(
        study=plan.study,
        round=round,
        attempt=attempt,
        unit=plan.unit,
        statistic=planned.statistic,
        sensitivity=planned.sensitivity,
        mu=mu,
        request=request,
        distance=plan.distance(round) * steps,
        kind=planned.kind,
        rate=None if planned.sampled is None else planned.sampled.rate,
        steps=steps,
        laplace_moves=plan.moves(plan.position(round), position) if planned.laplace else None,
    )


def unpaid(plan: Plan, position: int, standing: StudyProgress) -> list[Spend]:
    """The spends that a plan still costs a site: releases that were not begun, and every remaining attempt on the most
    expensive round that may still be repeated; for sub-sampled phases and Laplace noise on each of them (as the plan
    accounts for them).

    Parameters
    ----------
    plan : Plan
        The public plan.
    position : int
        Index of the site on the roster.
    standing : StudyProgress
        What the ledger has of this study. A new `StudyProgress` gives the cost of the whole study.
    """
    # Attempts are numbered through the whole study, so the last number used is also the number of attempts used.
    left, begun = plan.attempts - standing.extra, plan.position(standing.round)
    if standing.round == plan.rounds - 1 and left < 1:
        raise LedgerRefused(
            f"study {plan.study!r} is in the ledger already, whole: what was sent once is not sent again"
        )
    # Every release that was not begun is reserved whole, a phase of many steps with all its steps: a study that has
    # started must be able to end under the cap.
    spends = [
        spend_of(plan, position, plan.first_round(r), 0, "", plan.releases[r].steps)
        for r in range(begun + 1, len(plan.releases))
    ]
    if left > 0:
        # The release in progress may be repeated as well; earlier ones are over.
        again = {r: plan.first_round(r) for r in range(max(begun, 0), len(plan.releases))}
        plain = [round for r, round in again.items() if plan.releases[r].plain]
        # Which round will be repeated is not known in advance, so the reservation assumes the most expensive one. Costs
        # of sub-sampled phases and of Laplace noise have no common order, so each of them is reserved.
        dearest = max(plain, key=lambda round: plan.mus(round)[position], default=None)
        others = [round for r, round in again.items() if not plan.releases[r].plain]
        rounds = others if dearest is None else [*others, dearest]
        spends += [spend_of(plan, position, round, standing.extra + 1, "", left) for round in rounds]
    return spends


def law_of(plan: Plan) -> Noise:
    """The noise law of a plan, for what one more study like it may cost: "laplace" if all of it is Laplace noise."""
    return "laplace" if all(release.laplace for release in plan.releases) else "gaussian"


def refusals(plan: Plan, policy: Policy) -> Iterator[PolicyRefused]:
    """The refusals of a policy that do not depend on data. Identities are checked only if the plan pins them.

    Parameters
    ----------
    plan : Plan
        The plan, before or after its sites are pinned.
    policy : Policy
        The policy of one site.
    """
    # A plan from a study file has no identities before the sites are known; a roster would refuse every such plan.
    pinned = all(site.identity is not None for site in plan.sites)
    seen = policy if pinned else policy.model_copy(update={"roster": None})
    yield from seen.refusals(plan, None, BUILTIN)


def remaining_budget(plan: Plan, name: str, policy: Policy) -> str:
    """What the steward must know about the cap before deciding about a plan, in one sentence.

    Parameters
    ----------
    plan : Plan
        The proposal.
    name : str
        The site's name on its roster.
    policy : Policy
        Names the ledger, its counter and the cap.
    """
    cap, total = policy.cap, Total()
    if policy.ledger_path.exists():
        with Ledger.inspect(policy.ledger_path, counter=policy.counter_path) as ledger:
            total = ledger.total
    spent = f"epsilon {format_epsilon(total.epsilon(cap.delta))} of {cap.epsilon:g} at delta {cap.delta:g} is spent"
    try:
        left = check_budget(plan, [site.name for site in plan.sites].index(name), policy)
    except BudgetExceeded:
        return f"{spent}, and this study does not fit under the cap any more"
    if left is None:
        return f"{spent}; this study has no noise and is not charged"
    return f"{spent}; after this study one more may cost {left:.4g}"


def check_budget(plan: Plan, position: int, policy: Policy) -> float | None:
    """Refuse a plan that does not fit under the cap by today's ledger; return the epsilon that one more study may cost
    afterwards.

    Reads the ledger if there is one, and creates none. None for a plan without noise, whose cost no ledger can express.

    Parameters
    ----------
    plan : Plan
        The public plan.
    position : int
        Index of the site on the roster.
    policy : Policy
        Names the ledger, its counter and the cap.

    Raises
    ------
    BudgetExceeded
        If the remaining cost of the plan does not fit.
    """
    if not plan.scheme.facts.noisy:
        return None
    # Without a ledger nothing was spent. To create one here would leave a file for a study that may never run.
    total = Total()
    spends = unpaid(plan, position, StudyProgress())
    if policy.ledger_path.exists():
        with Ledger.inspect(policy.ledger_path, counter=policy.counter_path) as ledger:
            total = ledger.total
            spends = unpaid(plan, position, ledger.standing(plan.study, plan.digest()))
    after = total.plus((spend, policy.account.charge(spend)) for spend in spends)
    cap = policy.cap
    if cap.exceeded(after.epsilon(cap.delta)):
        before = format_epsilon(total.epsilon(cap.delta))
        raise BudgetExceeded(
            f"population {policy.population!r} has spent epsilon {before} at delta {cap.delta:g}, and with this study "
            f"it would be {format_epsilon(after.epsilon(cap.delta))}, above its lifetime cap of {cap.epsilon:g}: "
            f"one more study may cost {left_under(total, cap, law_of(plan)):.4g} at that delta"
        )
    return left_under(after, cap)
