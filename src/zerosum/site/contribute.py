"""A site: it agrees to a plan or refuses, and every contribution passes its policy and its ledger first.

What it takes from the coordinator is the plan, whole: who takes part, how many of them may collude or be lost, what
will be asked. It agrees to that once, as its policy allows. From there on it trusts no number: sensitivities come
from its own registry, noise and cost from its own reading of the plan. The order for every contribution is: compute,
charge the ledger durably, and only then let it leave.
"""

from __future__ import annotations

import math
from functools import singledispatchmethod

from zerosum.errors import BadData, OutsidePlan
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import (
    Consent,
    Contribute,
    Contribution,
    Message,
    Prepare,
    Prepared,
    PrivateSum,
    Propose,
    Reply,
)
from zerosum.kernel.statistic import Adjacency, BoundedStatistic
from zerosum.kernel.units import Units
from zerosum.site.account import Spend
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.sampler import Sampler, derive
from zerosum.statistics import BUILTIN, build


class Site:
    """One institution: a name on the roster, its data, and its policy."""

    def __init__(self, name: str, units: Units, policy: Policy) -> None:
        self.name = name
        self.units = units
        self.policy = policy
        self._plan: Plan | None = None
        self._shares: dict[tuple[int, int], NoiseShare] = {}

    @singledispatchmethod
    def handle(self, message: Message) -> Reply:
        """Answer one message of the coordinator."""
        raise OutsidePlan(f"a site does not answer {type(message).__name__}")

    @handle.register
    def _(self, message: Propose) -> Reply:
        plan = message.plan
        self._review(plan, message.requests)
        if plan.scheme.name != "non-private":
            with self.policy.open_ledger() as ledger:
                ledger.check([self._spend(plan, r, 0, "") for r in range(len(plan.releases))], self.policy.cap)
        self._plan, self._shares = plan, {}
        return Consent(self.name, len(self.units) if plan.adjacency is Adjacency.REPLACE_ONE else None)

    @handle.register
    def _(self, message: Prepare) -> Reply:
        share = self._share(message.round, message.attempt)
        self._shares[message.round, message.attempt] = share
        return Prepared(self.name, share.prepare())

    @handle.register
    def _(self, message: Contribute) -> Reply:
        plan, round, attempt = self._agreed(message.round, message.attempt), message.round, message.attempt
        statistic = self._built(plan, round, message.request)
        share = self._shares.pop((round, attempt), None) or self._share(round, attempt)
        factor = float(plan.law(round).factor[self._position(plan)])
        vector = factor * statistic.total(self.units) + share.noise(message.dealt)
        if plan.scheme.name != "non-private":
            with self.policy.open_ledger() as ledger:
                ledger.record(self._spend(plan, round, attempt, message.request.digest()), self.policy.cap)
        return Contribution(self.name, vector)

    def _review(self, plan: Plan, requests: tuple[PrivateSum, ...]) -> None:
        """Everything that can be refused is refused here, before any data is used."""
        position = self._position(plan)
        self.policy.review(
            scheme=plan.scheme.name,
            calibration=plan.calibration,
            seeded=plan.seed is not None,
            statistics=[release.statistic for release in plan.releases],
            units=len(self.units),
            unit=plan.unit,
            adjacency=plan.adjacency,
            colluders=plan.coalition.colluders,
            builtin=BUILTIN,
        )
        if plan.unit == "record" and self.units.largest > 1:
            raise OutsidePlan("the study protects single records, but units here own several rows")
        declared = plan.sites[position].units
        if declared is not None and declared != len(self.units):
            raise BadData(f"the study declares {declared} units for this site, its data hold another number")
        if len(requests) != len(plan.releases):
            raise OutsidePlan(f"{len(requests)} requests were shown for {len(plan.releases)} planned releases")
        for round, request in enumerate(requests):
            self._built(plan, round, request).check(self.units)

    def _built(self, plan: Plan, round: int, request: PrivateSum) -> BoundedStatistic:
        """The statistic from this site's own registry, held against what was planned."""
        planned = plan.releases[round]
        statistic = build(request.statistic, request.params)
        sensitivity = statistic.sensitivity(plan.adjacency)
        if (request.statistic, statistic.size) != (planned.statistic, planned.size):
            raise OutsidePlan(
                f"release {round + 1} was planned as {planned.size} numbers of {planned.statistic!r}, asked for are "
                f"{statistic.size} of {request.statistic!r}"
            )
        if sensitivity > planned.sensitivity * (1 + 1e-12) or statistic.columns != self.units.columns:
            raise OutsidePlan(
                f"release {round + 1} was planned with sensitivity {planned.sensitivity:g} on {self.units.columns} "
                f"columns, asked for is {sensitivity:g} on {statistic.columns}"
            )
        return statistic

    def _spend(self, plan: Plan, round: int, attempt: int, request: str) -> Spend:
        """What a release costs this site, computed from the public plan."""
        planned = plan.releases[round]
        mu = float(plan.mus(round)[self._position(plan)])
        if not math.isfinite(mu):
            raise OutsidePlan(f"release {round + 1} would protect nobody at this site")
        return Spend(
            study=plan.study,
            round=round,
            attempt=attempt,
            unit=plan.unit,
            statistic=planned.statistic,
            sensitivity=planned.sensitivity,
            mu=mu,
            request=request,
        )

    def _agreed(self, round: int, attempt: int) -> Plan:
        if self._plan is None:
            raise OutsidePlan("this site has not agreed to a plan")
        if not 0 <= round < len(self._plan.releases) or attempt != 0:
            raise OutsidePlan(f"round {round + 1}, attempt {attempt + 1} is not in the plan")
        return self._plan

    def _share(self, round: int, attempt: int) -> NoiseShare:
        plan = self._agreed(round, attempt)
        context = f"{plan.digest()} {round} {attempt}".encode()
        if plan.seed is None:
            sampler = Sampler.system()
        else:
            sampler = Sampler.seeded(derive(str(plan.seed).encode(), f"{self.name} {round} {attempt}".encode()))
        law, size = plan.law(round), plan.releases[round].size
        return NoiseShare(law, self._position(plan), size, sampler, context)

    def _position(self, plan: Plan) -> int:
        names = [site.name for site in plan.sites]
        if self.name not in names:
            raise OutsidePlan(f"this site, {self.name!r}, is not on the plan's roster")
        return names.index(self.name)
