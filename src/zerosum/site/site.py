"""A site: it consents to a plan or refuses, and every contribution passes its policy and its ledger first.

A site receives the whole plan from the coordinator: the sites, how many of them may collude or be lost, and every
request. It consents once, as its policy allows. After that it uses no number of the coordinator: sensitivities come
from its own registry of statistics, noise and cost from its own reading of the plan. The order for every contribution
is: compute, keep what the site's auditor needs, charge the ledger durably, and only then send. The same request again
gets the same reply; another request under the same attempt is refused.

A site that restarts continues a plan that is proposed again, as far as its ledger allows. Rounds go forward. Rounds
that were answered are not answered again, except under an attempt that the plan has paid for and that is unused.
"""

from __future__ import annotations

import math
from functools import partial, singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import clip_rows
from zerosum.compute.statistic import BoundedMap
from zerosum.compute.units import Units
from zerosum.errors import (
    BadData,
    Inconsistent,
    Malformed,
    Misdirected,
    NotAgreed,
    OutOfTurn,
    OutsidePlan,
    PolicyRefused,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.kernel.schemes import NoiseLaw, NoiseMechanism
from zerosum.kernel.statistic import Adjacency, Statistic
from zerosum.kernel.terms import Noise
from zerosum.noise.sampler import Sampler, derive, new_secret
from zerosum.protocol.codec import decode_message, encode
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
from zerosum.site.budget import spend_of, unpaid
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Spend
from zerosum.site.ledger_summary import Consented, in_words
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.secrets_kept import MOST_REQUEST, Kept, KeptSecrets
from zerosum.statistics import BUILTIN, find


class Site:
    """One institution: a name on the roster, its data, its policy, and its signing identity.

    Parameters
    ----------
    name:
        The site's name on the roster.
    units:
        The data.
    policy:
        What the site allows; it names the ledger.
    identity:
        The signing key; a new one if None.
    ledger:
        A ledger that several studies share. If None, the site opens its own when it first needs one.
    schema:
        The public description of the data. If None, it is derived from the units, which is for sites in the process of
        the data's owner.
    kept:
        Where the secrets of masked contributions are kept for the site's auditor. None: they are kept nowhere, as for
        the sites of a rehearsal.

    The decision about a plan depends on the plan, the policy, the ledger and the schema, not on rows.
    """

    def __init__(
        self,
        name: str,
        units: Units,
        policy: Policy,
        identity: Identity | None = None,
        ledger: Ledger | None = None,
        schema: DataSchema | None = None,
        kept: KeptSecrets | None = None,
    ) -> None:
        self.name = name
        self.units = units
        self.policy = policy
        self.schema = schema or DataSchema.of(units, policy.adjacency)
        self.identity = identity or Identity()
        self.consent: Consented | None = None  # how the plan was approved (by a steward or automatically)
        self._plan: Plan | None = None
        self._ledger = ledger
        self._session: SiteSession | None = None
        self._kept = kept
        self._shares: dict[tuple[int, int], tuple[bytes, NoiseShare]] = {}
        self._answered: dict[tuple[type, int, int], str] = {}
        self._last: tuple[str, Reply] | None = None
        self._masked_in: int | None = None  # the last slot in which a vector was masked

    @singledispatchmethod
    def handle(self, message: Message) -> Reply:
        """Answer one message of the coordinator."""
        raise OutsidePlan(f"a site does not answer {type(message).__name__}")

    @handle.register
    def _(self, message: Propose) -> Reply:
        plan = message.plan
        before = None if self._plan is None or self._session is None else self._plan.digest()
        # Policy and schema are checked again also for a known plan: the steward may have changed the policy meanwhile.
        if message.keep and before == plan.digest():
            # `_review` and not `review`: the cap was checked at consent, and is checked again at each charge.
            self._review(plan)
        else:
            self.review(plan)
            self._begin(plan)
        return Consent(self.name, self.schema.units if plan.adjacency is Adjacency.REPLACE_ONE else None)

    def _begin(self, plan: Plan) -> None:
        """New secrets for a plan, and no replies under them yet."""
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
        secret, share = self._shares[round, attempt] = self._share(plan, round, attempt)
        if plan.law(round).mechanism is NoiseMechanism.BROADCAST:
            self._secure().check(slot(plan, round, attempt))
            draws = share.draw().view(np.uint64)
            committed = self._committed(plan, round, attempt, draws, None, secret)
            payload = self._masked(plan, round, attempt, draws, None, committed)
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
        if hidden:  # a message out of turn is refused before the ledger is charged
            self._secure().check(slot(plan, round, attempt))
        # Taken out of the table: the draws of an attempt are used in one contribution and never again.
        prepared = (round, attempt) in self._shares
        secret, share = self._shares.pop((round, attempt)) if prepared else self._share(plan, round, attempt)
        # A GPU adds up the units, so the processor is free to draw the noise at the same time.
        if self.units.elsewhere:
            share.begin()
        try:
            values = self._values(plan, round, attempt, message.request, secret)
        except Exception:
            # A failure is charged like the release: no unit makes a statistic fail, but memory may run out, which
            # depends on the number of rows. A failure without charge could be requested again and again.
            self._charge(plan, round, attempt, asked)
            raise
        noisy = self._noisy(share, values, message.noise_input)
        committed = b""
        if hidden:
            committed = self._committed(plan, round, attempt, noisy.view(np.uint64), message, secret)
        # The charge is durable before this handler returns anything, and under secure-sum before the vector is masked:
        # a crash can charge too much, never too little. A crash before it leaves a file of secrets that were not used.
        self._charge(plan, round, attempt, asked)
        payload: Floats | Steps | bytes = noisy
        if hidden:
            payload = self._masked(plan, round, attempt, noisy.view(np.uint64), message.request, committed)
        return self._remember(Contribute, round, attempt, asked, Contribution(self.name, payload))

    def _noisy(self, share: NoiseShare, values: Floats, noise_input: NoiseInput) -> Floats | Steps:
        """The noisy values in the shape of the values."""
        return share.noisy(values.ravel(), noise_input).reshape(values.shape)

    def _charge(self, plan: Plan, round: int, attempt: int, asked: str) -> None:
        """Record the spend durably before a reply leaves the site.

        A phase of many rounds is charged whole at its first round; its later rounds are recorded as draws from that
        reservation. An attempt beyond the first is charged again, whatever the result of the attempts before.

        Parameters
        ----------
        plan : Plan
            The plan with consent.
        round, attempt : int
            Both from 0; extra attempts are numbered through the whole study.
        asked : str
            Digest of the request, which the ledger stores with the spend.
        """
        # Without noise there is no finite mu. A policy admits such plans for data marked as public or synthetic only.
        if not plan.scheme.facts.noisy:
            return
        books, release = self._books(), plan.position(round)
        steps = plan.releases[release].steps
        # this phase was reserved at its first round
        if steps > 1 and plan.position(books.standing(plan.study, plan.digest()).round) == release:
            if attempt == 0:
                books.draw(plan.study, round, attempt, asked, plan.digest())
                return
            steps = 1
        spend = self._spend(plan, round, attempt, asked, steps)
        books.record(spend, self.policy.cap, plan.digest(), partial(in_words, plan, self.consent))

    def unpaid(self, plan: Plan) -> list[Spend]:
        """The spends that a plan still costs this site."""
        standing = self._books().standing(plan.study, plan.digest())
        return unpaid(plan, self._position(plan), standing)

    def _books(self) -> Ledger:
        """The ledger, verified when it is opened and kept open: the cost of a round does not grow with the number of
        rounds.
        """
        if self._ledger is None or not self._ledger.usable:
            self._ledger = self.policy.open_ledger()
        return self._ledger

    def close(self) -> None:
        """Close the ledger. The next request opens it again."""
        if self._ledger is not None and self._ledger.usable:
            self._ledger.close()
        self._ledger = None

    def _values(self, plan: Plan, round: int, attempt: int, request: Request, secret: bytes) -> Floats:
        """The requested values: the sum over units, the sum over a sample of units, or one row per unit.

        Parameters
        ----------
        plan : Plan
            The plan with consent.
        round, attempt : int
            Select the stream of secret samples, if the run is seeded.
        request : Request
            A request that `_fits` has accepted.
        secret : bytes
            The secret of the attempt, from which samples and orders follow.

        Returns
        -------
        array of shape (size,), or (units, size) for a publication
            Exact values, which must not leave the site.
        """
        bound = plan.release(round).bound
        if isinstance(request, PrivatePublication):
            # a second check of the bound, as in `_total`
            rows = np.asarray(clip_rows(request.statistic.rows(self.units), bound))
            if len(rows) != len(self.units):  # a map that omits units: the message must not disclose how many
                rows = np.zeros((len(self.units), request.statistic.size))
            return rows[self._order(plan, round, attempt, secret)]
        units = self.units
        if request.sampling is not None and not request.sampling.full:
            # Each step and attempt has a fresh secret sample: the accounting of a phase assumes independent samples.
            sampler = self._sampler(plan, round, f"sample {attempt}" if attempt else "sample", secret)
            units = units.chosen(sampler.bernoulli(len(units), request.sampling.rate))
        return self._total(units, request.statistic, bound, plan.release(round).noise)

    def _order(self, plan: Plan, round: int, attempt: int, secret: bytes) -> NDArray[np.intp]:
        """A secret order of the units for a publication. Data are often sorted by their values, and then the position
        of a row would disclose what its noise hides.
        """
        words = self._sampler(plan, round, f"order {attempt}", secret).words(len(self.units))
        return np.argsort(words, kind="stable")

    def _total(self, units: Units, statistic: Statistic, bound: float, noise: Noise = "gaussian") -> Floats:
        """The sum over units, with a second check in case a statistic breaks its own bound.

        A sum longer than all the units' bounds together is scaled to that length, and a sum that is not finite is
        replaced by zero. A refusal would disclose something about the data.

        Parameters
        ----------
        units : Units
            All units, or the secret sample of this round.
        statistic : Statistic
            From this site's own registry.
        bound : float
            Planned bound c on the norm of one unit's contribution.
        noise : str
            The noise law, which decides the norm: L2, or L1 for Laplace noise.
        """
        total = statistic.total(units)
        share = total / (bound * max(len(units), 1))  # divided before squaring, since squares may overflow
        # Not `norm`: it starts BLAS's threads, which then occupy cores that the next sum needs.
        with np.errstate(over="ignore"):
            if noise == "laplace":
                excess = float(np.sum(np.abs(share, out=share)))
            else:
                excess = math.sqrt(np.sum(np.square(share, out=share)))
        if not math.isfinite(excess):
            return np.zeros_like(total)
        return total / excess if excess > 1 else total

    def _committed(
        self, plan: Plan, round: int, attempt: int, vector: Ring, asked: Contribute | None, secret: bytes
    ) -> bytes:
        """The signed commitments to a vector, which are kept with the secret before they are returned.

        Parameters
        ----------
        plan, round, attempt, vector
            As in `_masked`.
        asked : Contribute or None
            The request; None for the round of draws.
        secret : bytes
            The secret of the attempt.
        """
        session, mine = self._secure(), slot(plan, round, attempt)
        context = mask_context(plan, round, None if asked is None else asked.request)
        committed = session.commit(mine, vector, context, secret)
        if self._kept is not None:
            frame = b"" if asked is None else encode(asked)
            request = frame if len(frame) <= MOST_REQUEST else None
            about = session.about(mine, context)
            self._kept.keep(plan, Kept(round, attempt, secret, about, committed, request))
        return committed

    def recomputed(self, plan: Plan, kept: Kept) -> Ring:
        """The vector that this site sent before it was masked, from its data and what it kept. Nothing is charged.

        Parameters
        ----------
        plan : Plan
            The plan of the study.
        kept : Kept
            With its request.
        """
        round, attempt = kept.round, kept.attempt
        share = self._noise(plan, round, attempt, kept.secret)
        if not kept.request:
            return share.draw().view(np.uint64)
        asked = decode_message(kept.request)
        if not isinstance(asked, Contribute):
            raise Malformed("a request that was kept is none")
        self._fits(plan, round, asked.request)
        values = self._values(plan, round, attempt, asked.request, kept.secret)
        return self._noisy(share, values, asked.noise_input).view(np.uint64)

    def _masked(
        self, plan: Plan, round: int, attempt: int, vector: Ring, request: Request | None, committed: bytes
    ) -> bytes:
        """The vector under its masks. The slot masked before is finished by now, opened or abandoned, and its secrets
        are deleted.

        Parameters
        ----------
        plan : Plan
            The plan with consent.
        round, attempt : int
            Select the slot of the secure sum, which is used once.
        vector : array of uint64
            Values on the grid, with noise.
        request : Request or None
            Bound into the masks, so that sites that received different requests do not cancel each other's masks. None
            for the round of draws.
        committed : bytes
            The commitments to the vector.
        """
        session, mine = self._secure(), slot(plan, round, attempt)
        # The secrets of the previous slot are deleted before the next vector is masked.
        if self._masked_in is not None and self._masked_in != mine:
            session.abandon(self._masked_in)
        masked = session.mask(mine, vector, mask_context(plan, round, request), committed)
        self._masked_in = mine
        return masked

    def _again(self, kind: type, round: int, attempt: int, asked: str) -> Reply | None:
        """The earlier reply to the same request, if it is still available; None for a new request.

        A second computation would draw fresh noise, and the coordinator could average it.

        Parameters
        ----------
        kind : type
            Class of the message.
        round, attempt : int
            As in the message.
        asked : str
            Digest of the request; empty for a message without one.

        Raises
        ------
        Inconsistent
            If another request was answered under this round and attempt.
        OutOfTurn
            If the reply is not stored any more. Only the last reply is, so that memory does not grow with the rounds.
        """
        before = self._answered.get((kind, round, attempt))
        if before is None:
            return None
        if before != asked:
            raise Inconsistent(f"round {round + 1}, attempt {attempt + 1} was answered before, to another request")
        if self._last is None or self._last[0] != f"{kind.__name__} {round} {attempt}":
            raise OutOfTurn(f"round {round + 1}, attempt {attempt + 1} is over")
        return self._last[1]

    def _remember(self, kind: type, round: int, attempt: int, asked: str, reply: Reply) -> Reply:
        """Store a reply, so that the same request gets the same bytes."""
        self._answered[kind, round, attempt] = asked
        self._last = (f"{kind.__name__} {round} {attempt}", reply)
        return reply

    def review(self, plan: Plan) -> None:
        """Refuse a plan by all checks that need no row, the budget included. Nothing is spent."""
        self._review(plan)
        if plan.scheme.facts.noisy:
            self._books().check(self.unpaid(plan), self.policy.cap)

    def check_data(self) -> None:
        """Raise `PolicyRefused` if there are fewer units than the policy requires.

        For the owner of the data, in the owner's own process: under add-remove the number of units is data and must not
        reach a coordinator.
        """
        if len(self.units) < self.policy.minimum_units:
            raise PolicyRefused(
                f"this site's policy asks for at least {self.policy.minimum_units} units (minimum_units), its data "
                "hold fewer"
            )

    def _review(self, plan: Plan) -> None:
        """Refuse by the plan, the policy and the schema. No check here depends on a row."""
        position = own_position(plan, self.name, self.identity)
        # The declared number of units, not the counted one: a refusal must not depend on rows (docs/guarantee.md, "What
        # a site sends").
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
        """Compare a request, whose statistic comes from this site's own registry, with the planned release.

        Parameters
        ----------
        plan : Plan
            The plan with consent.
        round : int
            Which release is meant.
        request : Request
            The coordinator's request, decoded with this site's registry.

        Raises
        ------
        OutsidePlan
            If it would release more, or something else, than was planned.
        """
        planned, statistic = plan.release(round), request.statistic
        if (statistic.name, statistic.size) != (planned.statistic, planned.size):
            raise OutsidePlan(
                f"release {round + 1} was planned as {planned.size} numbers of {planned.statistic!r}, asked for are "
                f"{statistic.size} of {statistic.name!r}"
            )
        sampling = request.sampling if isinstance(request, PrivateSum) else None
        kind = "sum" if isinstance(request, PrivateSum) else "publication"
        if (kind, sampling) != (planned.kind, planned.sampling):
            raise OutsidePlan(f"release {round + 1} was planned as another kind of request")
        # Computed here from the public parameters: the noise was calibrated to the planned values, so larger ones are
        # refused.
        sensitivity = statistic.distance(plan.adjacency, planned.noise)
        bound = statistic.distance(Adjacency.ADD_REMOVE, planned.noise)
        allowed = 1 + 1e-15  # tolerance for rounding of a sensitivity that was written to JSON
        if sensitivity > planned.sensitivity * allowed or bound > planned.bound * allowed:
            raise OutsidePlan(
                f"release {round + 1} was planned with sensitivity {planned.sensitivity:g} and bound "
                f"{planned.bound:g}, asked for are {sensitivity:g} and {bound:g}"
            )
        statistic.check(self.units)

    def _spend(self, plan: Plan, round: int, attempt: int, request: str, steps: int) -> Spend:
        """The spend of `steps` rounds of a release for this site, computed from the public plan."""
        return spend_of(plan, self._position(plan), round, attempt, request, steps)

    def _agreed(self, round: int, attempt: int) -> Plan:
        """The plan, if this round and attempt belong to it."""
        if self._plan is None:
            raise NotAgreed("this site has not agreed to a plan")
        if not (isinstance(round, int) and 0 <= round < self._plan.rounds and 0 <= attempt <= self._plan.attempts):
            raise OutsidePlan("this round or attempt is not in the plan")
        return self._plan

    def _secure(self) -> SiteSession:
        """The session of secure aggregation, if the plan has one."""
        if self._session is None:
            kind = NotAgreed if self._plan is None else OutsidePlan
            raise kind("this site has not agreed to a secure sum")
        return self._session

    def _share(self, plan: Plan, round: int, attempt: int) -> tuple[bytes, NoiseShare]:
        """A fresh secret for one attempt at one round, and the noise that follows from it."""
        secret = self._secret(plan, round, attempt)
        return secret, self._noise(plan, round, attempt, secret)

    def _secret(self, plan: Plan, round: int, attempt: int) -> bytes:
        """The secret of an attempt: from the operating system, or derived from the seed of a non-private run."""
        if plan.seed is None:
            return new_secret()
        return derive(str(plan.seed).encode(), f"{self.name} {round} {attempt} secret".encode())

    def _noise(self, plan: Plan, round: int, attempt: int, secret: bytes) -> NoiseShare:
        """The noise of this site for one attempt at one round. The context binds shared streams to the plan, round and
        attempt.
        """
        context = f"{plan.digest()} {round} {attempt}".encode()
        law, planned = plan.law(round), plan.release(round)
        size = planned.size * (len(self.units) if planned.kind == "publication" else 1)
        sampler = self._sampler(plan, round, f"{attempt}", secret)
        return self._new_share(law, self._position(plan), size, sampler, context)

    def _sampler(self, plan: Plan, round: int, purpose: str, secret: bytes) -> Sampler:
        """A generator of randomness: from the secret of an attempt, or from the seed of a non-private run.

        The secret has 256 bits of the operating system and is drawn once for an attempt at a round, which is answered
        once: no two vectors share a stream. HKDF separates the streams of one secret, so that each is as good as one
        keyed by the operating system to every party without the secret (`Sampler.of_secret`). The site's auditor, who
        has it, repeats the draws.

        Parameters
        ----------
        plan : Plan
            Its seed, if it has one.
        round : int
            Number of the round.
        purpose : str
            Separates the streams of noise, samples and orders.
        secret : bytes
            The secret of the attempt; unused if the plan has a seed.
        """
        if plan.seed is None:
            return Sampler.of_secret(secret, purpose)
        return Sampler.seeded(derive(str(plan.seed).encode(), f"{self.name} {round} {purpose}".encode()))

    def _new_share(self, law: NoiseLaw, position: int, size: int, sampler: Sampler, context: bytes) -> NoiseShare:
        """The noise object of an attempt. In a method of its own, so that an audit can record the draws."""
        return NoiseShare(law, position, size, sampler, context)

    def _position(self, plan: Plan) -> int:
        return own_position(plan, self.name, self.identity)


def own_position(plan: Plan, name: str, identity: Identity) -> int:
    """Index of a site on a plan's roster. Refuses a plan that pins another identity for the site."""
    names = [site.name for site in plan.sites]
    if name not in names:
        raise OutsidePlan(f"this site, {name!r}, is not on the plan's roster")
    position = names.index(name)
    # Another party would hold this site's place, and would read the shares that are sealed for it.
    if plan.sites[position].identity not in (None, identity.public.hex()):
        raise Misdirected("the plan pins another identity for this site")
    return position
