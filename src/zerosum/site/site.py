"""A site: it agrees to a plan or refuses, and every contribution passes its policy and its ledger first.

What it takes from the coordinator is the plan, whole: who takes part, how many of them may collude or be lost, what
will be asked. It agrees to that once, as its policy allows. From there on it trusts no number: sensitivities come
from its own registry, noise and cost from its own reading of the plan. The order for every contribution is: compute,
charge the ledger durably, and only then let it leave. The same request again gets the same reply; anything else
under the same attempt is refused.

A site that restarts goes on with a plan that is proposed again, as far as its ledger says: rounds go forward, and those
that were answered are not answered again, except under an attempt that the plan has bought and nobody has used.
"""

from __future__ import annotations

import math
from functools import partial, singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import BadData, Inconsistent, Misdirected, NotAgreed, OutOfTurn, OutsidePlan, PolicyRefused
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism
from zerosum.kernel.statistic import Adjacency, BoundedMap, BoundedStatistic
from zerosum.kernel.units import Units
from zerosum.noise.sampler import Sampler, derive
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    Dismissed,
    Message,
    NoiseInput,
    Prepare,
    Prepared,
    Propose,
    Reply,
    Secure,
    Secured,
    Steps,
)
from zerosum.protocol.roster import mask_context, roster, slot
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import SiteSession
from zerosum.site.account import Spend
from zerosum.site.costs import spend_of, unpaid
from zerosum.site.ledger import Ledger
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.statement import Consented, in_words
from zerosum.statistics import BUILTIN, find
from zerosum.statistics.rows import clip_rows


class Site:
    """One institution: a name on the roster, its data, its policy, and the identity it signs with.

    It opens its ledger when it first needs it, unless it is given one that serves several studies. Whether it agrees to
    a plan follows from the plan, the policy, the ledger and the `schema`, the public description of its data; without
    one the schema is made of the units, which is for sites in the process of the data's owner.
    """

    def __init__(
        self,
        name: str,
        units: Units,
        policy: Policy,
        identity: Identity | None = None,
        ledger: Ledger | None = None,
        schema: DataSchema | None = None,
    ) -> None:
        self.name = name
        self.units = units
        self.policy = policy
        self.schema = schema or DataSchema.of(units, policy.adjacency)
        self.identity = identity or Identity()
        self.consent: Consented | None = None  # how the plan was agreed to, where somebody is asked
        self._plan: Plan | None = None
        self._ledger = ledger
        self._session: SiteSession | None = None
        self._shares: dict[tuple[int, int], NoiseShare] = {}
        self._answered: dict[tuple[type, int, int], str] = {}
        self._last: tuple[str, Reply] | None = None
        self._masked_in: int | None = None  # the last slot of the secure sum

    @singledispatchmethod
    def handle(self, message: Message) -> Reply:
        """Answer one message of the coordinator."""
        raise OutsidePlan(f"a site does not answer {type(message).__name__}")

    @handle.register
    def _(self, message: Propose) -> Reply:
        plan = message.plan
        before = None if self._plan is None or self._session is None else self._plan.digest()
        if message.keep and before == plan.digest():  # each round is held against the cap as it comes
            self._review(plan)
        else:
            self.review(plan)
            self._begin(plan)
        return Consent(self.name, self.schema.units if plan.adjacency is Adjacency.REPLACE_ONE else None)

    def _begin(self, plan: Plan) -> None:
        """New secrets for a plan, and nothing answered under them."""
        secure = plan.scheme.facts.secure
        self._session = SiteSession(roster(plan), self._position(plan), self.identity) if secure else None
        self._plan, self._shares, self._answered, self._last = plan, {}, {}, None
        self._masked_in = None

    @handle.register
    def _(self, message: Dismiss) -> Reply:
        self._plan, self._session, self._shares, self._answered, self._last = None, None, {}, {}, None
        return Dismissed(self.name)

    @handle.register
    def _(self, message: Secure) -> Reply:
        session = self._secure()
        match message.step:
            case "advertise":
                return Secured(self.name, session.advertise())
            case "share":
                return Secured(self.name, session.share(message.data))
            case "receive":
                return Secured(self.name, session.receive(message.data))
            case "sign":
                return Secured(self.name, session.sign(message.attempt, message.data))
            case "open":
                return Secured(self.name, session.open(message.attempt, message.data))

    @handle.register
    def _(self, message: Prepare) -> Reply:
        plan, round, attempt = self._agreed(message.round, message.attempt), message.round, message.attempt
        if (again := self._again(Prepare, round, attempt, "")) is not None:
            return again
        share = self._shares[round, attempt] = self._share(round, attempt)
        if plan.law(round).mechanism is NoiseMechanism.BROADCAST:
            payload = self._masked(plan, round, attempt, share.draw().view(np.uint64), None)
        else:
            payload = share.key()
        return self._remember(Prepare, round, attempt, "", Prepared(self.name, payload))

    @handle.register
    def _(self, message: Contribute) -> Reply:
        plan, round, attempt = self._agreed(message.round, message.attempt), message.round, message.attempt
        asked = message.request.digest()
        if (again := self._again(Contribute, round, attempt, asked)) is not None:
            return again
        self._fits(plan, round, message.request)
        hidden = plan.law(round).mechanism is NoiseMechanism.MASKED
        if hidden:  # a message out of turn is refused before it costs anything
            self._secure().check(slot(plan, round, attempt))
        share = self._shares.pop((round, attempt), None) or self._share(round, attempt)
        if self.units.elsewhere:
            share.begin()
        values = self._charged_values(plan, round, attempt, message.request)
        noisy = self._noisy(share, values, message.noise_input)
        self._charge(plan, round, attempt, asked)
        payload: Floats | Steps | bytes = noisy
        if hidden:
            payload = self._masked(plan, round, attempt, noisy.view(np.uint64), message.request)
        return self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))

    def _charged_values(self, plan: Plan, round: int, attempt: int, request: Request) -> Floats:
        """The values of a release. A failure is charged like the release: no unit makes a statistic fail, but memory
        may run out, which depends on how many rows there are, and a failure that costs nothing could be asked for again
        and again."""
        try:
            return self._values(plan, round, attempt, request)
        except Exception:
            self._charge(plan, round, attempt, request.digest())
            raise

    def _noisy(self, share: NoiseShare, values: Floats, noise_input: NoiseInput) -> Floats | Steps:
        return share.noisy(values.ravel(), noise_input).reshape(values.shape)

    def _charge(self, plan: Plan, round: int, attempt: int, asked: str) -> None:
        """Record the spend, durably, before anything leaves: a phase of many rounds at its first one, whole, and its
        later rounds as drawn from that. Another attempt is charged again, whatever came of those before."""
        if not plan.scheme.facts.noisy:
            return
        books, release = self._books(), plan.position(round)
        steps = plan.releases[release].steps
        if steps > 1 and plan.position(books.standing(plan.study, plan.digest()).round) == release:  # it is reserved
            if attempt == 0:
                books.draw(plan.study, round, attempt, asked, plan.digest())
                return
            steps = 1
        spend = self._spend(plan, round, attempt, asked, steps)
        books.record(spend, self.policy.cap, plan.digest(), partial(in_words, plan, self.consent))

    def unpaid(self, plan: Plan) -> list[Spend]:
        """What a plan still costs this site."""
        standing = self._books().standing(plan.study, plan.digest())
        return unpaid(plan, self._position(plan), standing)

    def _books(self) -> Ledger:
        """The ledger, verified when it is opened and kept open: a round costs the same, however many there were."""
        if self._ledger is None or not self._ledger.usable:
            self._ledger = self.policy.open_ledger()
        return self._ledger

    def close(self) -> None:
        """Let go of the ledger. A site that is asked again opens it again."""
        if self._ledger is not None and self._ledger.usable:
            self._ledger.close()
        self._ledger = None

    def _values(self, plan: Plan, round: int, attempt: int, request: Request) -> Floats:
        """What is asked of the units here: their sum, the sum of a sample of them, or a row for each."""
        bound = plan.release(round).bound
        if isinstance(request, PrivatePublication):
            rows = np.asarray(clip_rows(request.statistic.rows(self.units), bound))  # a second line, as below
            if len(rows) != len(self.units):  # a map that leaves units out: the message must not tell how many
                rows = np.zeros((len(self.units), request.statistic.size))
            return rows[self._order(plan, round, attempt)]
        units = self.units
        if request.sampling is not None and not request.sampling.full:
            sampler = self._sampler(plan, round, f"sample {attempt}" if attempt else "sample")
            units = units.chosen(sampler.bernoulli(len(units), request.sampling.rate))
        return self._total(units, request.statistic, bound)

    def _order(self, plan: Plan, round: int, attempt: int) -> NDArray[np.intp]:
        """A secret order of the units, in which they are published: data are often sorted by what they hold, and then a
        row's place would tell what its noise hides."""
        words = self._sampler(plan, round, f"order {attempt}").words(len(self.units))
        return np.argsort(words, kind="stable")

    def _total(self, units: Units, statistic: BoundedStatistic, bound: float) -> Floats:
        """The sum over units. A second line, should a statistic break its own bound: a sum longer than all the units'
        bounds together is scaled to that, and one that is not finite is zero. A refusal would speak of data."""
        total = statistic.total(units)
        share = total / (bound * max(len(units), 1))  # divided first: squares overflow
        # Not `norm`: it wakes BLAS's threads, which then spin for a while on cores that the next sum needs.
        with np.errstate(over="ignore"):
            excess = math.sqrt(np.sum(np.square(share, out=share)))
        if not math.isfinite(excess):
            return np.zeros_like(total)
        return total / excess if excess > 1 else total

    def _masked(self, plan: Plan, round: int, attempt: int, vector: Ring, request: Request | None) -> bytes:
        """The vector under its masks; whatever was masked before is over by now, opened or abandoned, and its secrets
        go."""
        session, mine = self._secure(), slot(plan, round, attempt)
        if self._masked_in is not None and self._masked_in != mine:
            session.abandon(self._masked_in)
        masked = session.mask(mine, vector, mask_context(plan, round, request))
        self._masked_in = mine
        return masked

    def _again(self, kind: type, round: int, attempt: int, asked: str) -> Reply | None:
        """The reply given before to the same request, while it is at hand."""
        before = self._answered.get((kind, round, attempt))
        if before is None:
            return None
        if before != asked:
            raise Inconsistent(f"round {round + 1}, attempt {attempt + 1} was answered before, to another request")
        if self._last is None or self._last[0] != f"{kind.__name__} {round} {attempt}":
            raise OutOfTurn(f"round {round + 1}, attempt {attempt + 1} is over")
        return self._last[1]

    def _remember(self, kind: type, round: int, attempt: int, asked: str, reply: Reply) -> Reply:
        self._answered[kind, round, attempt] = asked
        self._last = (f"{kind.__name__} {round} {attempt}", reply)
        return reply

    def review(self, plan: Plan) -> None:
        """Refuse whatever can be refused, before any row is used; nothing is spent."""
        self._review(plan)
        if plan.scheme.facts.noisy:
            self._books().check(self.unpaid(plan), self.policy.cap)

    def check_data(self) -> None:
        """Raise `PolicyRefused` if there are fewer units than the policy asks for. For the owner of the data, in the
        owner's own process: under add-remove the number of units is data, and must not reach a coordinator."""
        if len(self.units) < self.policy.minimum_units:
            raise PolicyRefused(
                f"this site's policy asks for at least {self.policy.minimum_units} units, its data hold fewer"
            )

    def _review(self, plan: Plan) -> None:
        """Refuse by the plan, the policy and the schema; nothing here depends on a row."""
        position = own_position(plan, self.name, self.identity)
        self.policy.review(plan, self.schema.units, BUILTIN)
        for refusal in self.schema.refusals(plan, position):
            raise refusal
        for release in plan.releases:
            kind = find(release.statistic)
            kind.ready_for(plan.question.parameters)
            if release.kind == "publication" and not issubclass(kind, BoundedMap):
                raise OutsidePlan(f"the statistic {release.statistic!r} cannot be published unit by unit")
            if release.columns not in (None, self.units.columns):
                raise BadData(f"the data do not have the {release.columns} columns of the study")

    def _fits(self, plan: Plan, round: int, request: Request) -> None:
        """Hold a request, whose statistic came from this site's own registry, against what was planned."""
        planned, statistic = plan.release(round), request.statistic
        sensitivity, bound = statistic.sensitivity(plan.adjacency), statistic.sensitivity(Adjacency.ADD_REMOVE)
        if (statistic.name, statistic.size) != (planned.statistic, planned.size):
            raise OutsidePlan(
                f"release {round + 1} was planned as {planned.size} numbers of {planned.statistic!r}, asked for are "
                f"{statistic.size} of {statistic.name!r}"
            )
        sampling = request.sampling if isinstance(request, PrivateSum) else None
        kind = "sum" if isinstance(request, PrivateSum) else "publication"
        if (kind, sampling) != (planned.kind, planned.sampling):
            raise OutsidePlan(f"release {round + 1} was planned as another kind of request")
        allowed = 1 + 1e-15  # a rounding
        if sensitivity > planned.sensitivity * allowed or bound > planned.bound * allowed:
            raise OutsidePlan(
                f"release {round + 1} was planned with sensitivity {planned.sensitivity:g} and bound "
                f"{planned.bound:g}, asked for are {sensitivity:g} and {bound:g}"
            )
        statistic.check(self.units)

    def _spend(self, plan: Plan, round: int, attempt: int, request: str, steps: int) -> Spend:
        """What so many rounds of a release cost this site, computed from the public plan."""
        return spend_of(plan, self._position(plan), round, attempt, request, steps)

    def _agreed(self, round: int, attempt: int) -> Plan:
        if self._plan is None:
            raise NotAgreed("this site has not agreed to a plan")
        if not (isinstance(round, int) and 0 <= round < self._plan.rounds and 0 <= attempt <= self._plan.attempts):
            raise OutsidePlan("this round or attempt is not in the plan")
        return self._plan

    def _secure(self) -> SiteSession:
        if self._session is None:
            kind = NotAgreed if self._plan is None else OutsidePlan
            raise kind("this site has not agreed to a secure sum")
        return self._session

    def _share(self, round: int, attempt: int) -> NoiseShare:
        plan = self._agreed(round, attempt)
        context = f"{plan.digest()} {round} {attempt}".encode()
        law, planned = plan.law(round), plan.release(round)
        size = planned.size * (len(self.units) if planned.kind == "publication" else 1)
        return self._new_share(law, self._position(plan), size, self._sampler(plan, round, f"{attempt}"), context)

    def _sampler(self, plan: Plan, round: int, purpose: str) -> Sampler:
        if plan.seed is None:
            return Sampler.system()
        return Sampler.seeded(derive(str(plan.seed).encode(), f"{self.name} {round} {purpose}".encode()))

    def _new_share(self, law: NoiseLaw, position: int, size: int, sampler: Sampler, context: bytes) -> NoiseShare:
        return NoiseShare(law, position, size, sampler, context)

    def _position(self, plan: Plan) -> int:
        return own_position(plan, self.name, self.identity)


def own_position(plan: Plan, name: str, identity: Identity) -> int:
    """Where a site stands on a plan's roster, which must not pin another identity for it."""
    names = [site.name for site in plan.sites]
    if name not in names:
        raise OutsidePlan(f"this site, {name!r}, is not on the plan's roster")
    position = names.index(name)
    if plan.sites[position].identity not in (None, identity.public.hex()):
        raise Misdirected("the plan pins another identity for this site")
    return position
