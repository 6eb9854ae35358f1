"""A serving site: several studies at once and one after the other, each identified by its plan's digest.

No message is trusted. A plan is compared with the policy, the declared schema of the data and the steward's decision;
the decision does not depend on a row of the data. A message for a plan without consent, or for another plan, is
refused. Every refusal has a code and a sentence and is written to the audit log. Two studies never share a session, and
all share one ledger.

A study takes all that it needs here at once: a session, with budget for its remaining rounds. If no session is free,
the plan waits in a queue, the oldest first, and its proposal is answered by `Busy`. A place in the queue lapses when
the coordinator has not asked for `TICKET_SECONDS`. A session ends with the last message of its study and not before:
its coordinator dismisses the site, or is silent for the times below.

Consent reserves budget. The remaining cost of a plan with consent counts against the cap when another plan is proposed,
so that a study in progress is not refused because others spent. The reservation ends when the study is complete, when
its coordinator dismisses the site, when the steward refuses the study, or after `hold` seconds without a message: after
`start` seconds if nothing but the proposal has arrived, and `settle` seconds after the last round. It does not outlive
the process, and neither do the secrets without which the study could not continue.

Locks. `_Session.lock` orders the messages of one study. `_mutex` protects the table of sessions and the counters and is
held briefly. `_reserving` orders decisions about the budget. `_reserving` is taken inside a session's lock, and
`_mutex` inside both.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from zerosum.compute.units import Units
from zerosum.errors import (
    AwaitingConsent,
    BadData,
    Busy,
    LedgerRefused,
    Misdirected,
    NotAgreed,
    PolicyRefused,
    SiteFault,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import NoiseMechanism
from zerosum.protocol.codec import Frame, decode_message, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    Dismissed,
    Message,
    Propose,
    Refusal,
    Relay,
    Relayed,
    Reply,
)
from zerosum.secagg.commitments import committed_with
from zerosum.secagg.keys import Identity
from zerosum.site.accounting import decided
from zerosum.site.audit_log import AuditLog, consent_in_words, release_in_words
from zerosum.site.decisions import Consents, Decision
from zerosum.site.host import known_error, memory_fault
from zerosum.site.inner_node import InnerNode, ProposedPlans
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_records import Spend
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.secrets_kept import KeptSecrets
from zerosum.site.site import Site, own_position
from zerosum.statistics import BUILTIN

Load = Callable[[Plan], Units]  # reads the site's data for the public question of a plan
Review = Callable[[Plan], None]  # refuses a plan by its public question and the schema
Exchange = Callable[[Mapping[str, bytes]], Iterable[tuple[str, Frame | None]]]  # with the children of an inner node
# Connects to the children, for the digest of a plan and a time-out in seconds of their replies.
Connect = Callable[[str, float], AbstractContextManager[Exchange]]


# A plan stays in the queue for this time after its last proposal. Coordinators propose every 2 s by default; chosen by
# hand, so that a short interruption does not cost the place, and a coordinator that is gone blocks no other for long.
TICKET_SECONDS = 30.0
MOST_QUEUED = 100  # plans in the queue, so that one coordinator cannot fill the memory; chosen by hand


def _no_question(plan: Plan) -> None:
    """The review for data that do not depend on a plan's question: accepts every plan."""


def _no_children(plan: str, seconds: float) -> AbstractContextManager[Exchange]:
    """The connection of a site without children."""
    return nullcontext(lambda frames: ())


@dataclass
class _Session:
    """The state of one study at this site."""

    plan: Plan
    lock: threading.Lock = field(default_factory=threading.Lock)
    site: Site | None = None  # None until the data are read
    consented: bool = False
    released: set[tuple[int, int]] = field(default_factory=set)
    agreed: bool = False
    lapsed: bool = False  # inactive for so long that its reservation has ended
    begun: bool = False  # a message after the proposal has arrived
    proposals: int = 0  # that are being answered at this moment
    used: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Whether the last round was answered."""
        return any(round == self.plan.rounds - 1 for round, _ in self.released)


@dataclass
class _Ticket:
    """A plan in the queue."""

    study: str
    since: float  # time of the first proposal, seconds since 1970
    asked: float  # time of the last proposal on the monotonic clock


class Service:
    """Answers frames of several studies.

    Parameters
    ----------
    name, policy, identity:
        The site's name on rosters, its policy, and its signing key.
    load:
        Reads the units for a plan. No cell of the data may make it fail, whatever the plan contains.
    consents, log:
        The steward's decisions, and the audit log.
    schema:
        The public description of the data.
    review:
        Refuses a plan whose question does not fit the schema.
    most_studies:
        How many studies take part at once; further ones wait in the queue.
    hold, start, settle:
        Seconds without a message after which a session and its reservation end: during a study, between its proposal
        and its next message, and after its last round. The defaults (two days, one hour, ten minutes) were chosen by
        hand; no benchmark recorded.
    former:
        Former keys, used for plans that pin them, until they are withdrawn.
    children, connect:
        For a site that is an inner node of trees: the names of the sites that it can reach, and the connection to them.
    kept:
        Where secrets are kept for the site's auditor; None: nowhere.
    on_proposal:
        Called once for each plan that waits for the steward; it must return at once.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        identity: Identity,
        load: Load,
        consents: Consents,
        log: AuditLog,
        *,
        schema: DataSchema,
        review: Review = _no_question,
        most_studies: int = 8,
        hold: float = 172800.0,
        start: float = 3600.0,
        settle: float = 600.0,
        former: Sequence[Identity] = (),
        children: Collection[str] = (),
        connect: Connect = _no_children,
        kept: KeptSecrets | None = None,
        on_proposal: Callable[[Plan], object] = _no_question,
    ) -> None:
        self.name, self.policy, self.identity, self.former = name, policy, identity, tuple(former)
        self.schema, self._review = schema, review
        self._load, self._consents, self._log, self._most, self._hold = load, consents, log, most_studies, hold
        self._settle, self._start, self._on_proposal = settle, start, on_proposal
        self._children, self._connect, self._kept = frozenset(children), connect, kept
        self._proposed_plans = ProposedPlans()  # through this site; needed for `Dismiss` only
        self._node = InnerNode(name, self._identity, self._plan_to_relay)
        self.counts: Counter[str] = Counter()  # for monitoring: frames, bytes, replies and refusals by kind
        self._ledger: Ledger = policy.open_ledger()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._queue: OrderedDict[str, _Ticket] = OrderedDict()  # by digest, the oldest first
        self._mutex, self._reserving = threading.Lock(), threading.Lock()

    @property
    def ledger(self) -> Ledger:
        """The open ledger, for the checks of the operator."""
        return self._ledger

    @property
    def studies(self) -> int:
        """Number of studies that are not complete."""
        with self._mutex:
            return sum(not session.over for session in self._sessions.values())

    def open_studies(self) -> list[dict[str, Any]]:
        """The studies with consent, for the operator: study, plan, rounds that were answered, seconds of silence."""
        now = time.monotonic()
        with self._mutex:
            return [
                {
                    "study": each.plan.study,
                    "plan": digest,
                    "rounds": len({round for round, _ in each.released}),
                    "planned": each.plan.rounds,
                    "silent_seconds": round(now - each.used, 1),
                }
                for digest, each in self._sessions.items()
                if each.agreed
            ]

    def queue(self) -> list[dict[str, Any]]:
        """The plans that wait for a session, the next one first: study, plan and time of the first proposal."""
        with self._mutex:
            self._forget_tickets()
            return [{"study": each.study, "plan": digest, "since": each.since} for digest, each in self._queue.items()]

    def close(self) -> None:
        """Close the ledger. Called once, when no frame is being answered."""
        self._ledger.close()

    def answer(self, study: bytes, frame: Frame) -> bytes:
        """The reply to one frame that arrived under the digest `study`."""
        digest = study.hex()
        try:
            reply = self._handle(digest, frame)
        except Exception as error:
            known = known_error(self.name, error)
            try:
                self.refuse(known, digest)
            except SiteFault as fault:
                # The audit log cannot be written. The coordinator learns that, and not why it was refused otherwise.
                known = fault
            reply = Refusal(self.name, known.public())
        answer = encode(reply)
        with self._mutex:
            self.counts.update({"frames": 1, "bytes_in": len(frame), "bytes_out": len(answer)})
            self.counts[f"answered {type(reply).__name__}"] += 1
        return answer

    def refuse(self, error: ZerosumError, digest: str | None = None) -> None:
        """Write a refusal to the audit log."""
        with self._mutex:
            session = self._sessions.get(digest or "")
            self.counts[f"refused {error.code}"] += 1
        # A coordinator asks every few seconds while a steward decides, which would fill the log.
        if not isinstance(error, AwaitingConsent):  # logged once, when the plan arrived
            self._log.refused(error, None if session is None else session.plan)

    def _handle(self, digest: str, frame: Frame) -> Reply:
        """The reply to one message, or an error that becomes a refusal.

        Parameters
        ----------
        digest : str
            The plan's digest in hex, under which the frame arrived.
        frame : bytes
            The encoded message.
        """
        message = decode_message(frame)
        if isinstance(message, Relay):
            return self._relayed(digest, message)
        if isinstance(message, Dismiss):
            with self._mutex:
                waited = self._queue.pop(digest, None) is not None
            if not waited:
                self._find(digest)
            self._drop(digest)
            return Dismissed(self.name)
        # The decision is read again for every message: a refusal or a withdrawn key takes effect in the middle of a
        # study.
        decision = self._consents.decision(digest)
        if decision == "refused":
            self._drop(digest)
            why = self._consents.reason(digest)
            raise PolicyRefused(f"the steward of this site refused this study{f': {why}' if why else ''}")
        plan = message.plan if isinstance(message, Propose) else self._find(digest).plan
        self._check_keys(plan)
        # The file of the decision was removed: that is no approval any more, also not for a study in progress.
        if decision is None and not isinstance(message, Propose) and not self._unasked(plan):
            self._drop(digest)
            raise PolicyRefused("the steward of this site no longer approves of this study")
        proposed = isinstance(message, Propose)
        session = self._proposed(digest, plan, decision) if proposed else self._find(digest)
        try:
            return self._in_turn(session, message)
        finally:
            if proposed:
                with self._mutex:
                    session.proposals -= 1

    def _in_turn(self, session: _Session, message: Message) -> Reply:
        """The reply of a study to a message. Messages of one study are answered one after the other."""
        # The data are read inside the lock, so that two messages do not read them twice.
        with session.lock:
            if not isinstance(message, Propose):
                session.begun = True
            if session.site is None:
                session.site = self._site(session.plan)
            # A repeated request gets its old reply and costs nothing, so it needs no reservation.
            if isinstance(message, Contribute) and (message.round, message.attempt) not in session.released:
                self._reserve(session)
            reply = self._agree(session, message) if isinstance(message, Propose) else session.site.handle(message)
            # The log line is durable before the reply is returned: what cannot be recorded does not leave.
            self._record(session, message, reply)
            return reply

    def _relayed(self, digest: str, message: Relay) -> Relayed:
        """Relay frames to the children, while this site answers its own, if there is one among them."""
        if message.plan != digest:
            raise Misdirected("frames of a branch came under the digest of another plan")
        study = bytes.fromhex(digest)

        def carry(frames: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, Frame | None]]:
            below = {name: frame for name, frame in frames.items() if name != self.name}
            if unknown := [name for name in below if name not in self._children]:
                raise PolicyRefused(
                    f"this site cannot reach {', '.join(map(repr, unknown))}, which the tree of the plan puts below it"
                )
            with ThreadPoolExecutor(1) as pool, self._connect(digest, seconds) as exchange:
                # The site computes its own reply while the branches below it compute theirs.
                own = {
                    name: pool.submit(self.answer, study, frame) for name, frame in frames.items() if name == self.name
                }
                yield from exchange(below)
                yield from ((name, reply.result()) for name, reply in own.items())

        return self._node.relay(message, carry)

    def _plan_to_relay(self, digest: str, first: Message) -> Plan:
        """The plan for which frames are relayed to the children.

        A proposal is relayed if this site's policy permits its plan, also while its steward decides: the stewards of a
        branch decide at the same time. Everything else is relayed only for a study that this site takes part in, so
        that proposals of others cannot displace the plan of a study in progress. Only `Dismiss` is also relayed for a
        plan that was proposed before: children may have agreed to what this site refused.

        Parameters
        ----------
        digest : str
            The plan's digest in hex.
        first : Message
            The first message for the branch.
        """
        decision = self._consents.decision(digest)
        if isinstance(first, Dismiss):
            with self._mutex:
                session = self._sessions.get(digest)
            return self._proposed_plans(digest, first) if session is None else session.plan
        if decision == "refused":
            raise PolicyRefused("the steward of this site refused this study")
        if not isinstance(first, Propose):
            plan = self._find(digest).plan
            self._check_keys(plan)
            if decision is None and not self._unasked(plan):
                raise PolicyRefused("the steward of this site no longer approves of this study")
            return plan
        plan = first.plan
        if plan.digest() != digest:
            raise Misdirected("a plan came under the digest of another one")
        self._check_keys(plan)
        own_position(plan, self.name, self._identity(plan))
        # Before anything of the plan is computed or passed on: the policy bounds its size, too.
        self.policy.review(plan, self.schema.units, BUILTIN)
        self._log.again("relayed", "a plan is relayed to the sites below this one in its tree", plan)
        return self._proposed_plans(digest, first)

    def _check_keys(self, plan: Plan) -> None:
        """Refuse a plan that pins a withdrawn key, at any point of a study."""
        withdrawn = self._consents.withdrawn()
        if gone := [site.name for site in plan.sites if site.identity in withdrawn]:
            self._drop(plan.digest())
            raise PolicyRefused(f"the key that the plan pins for {', '.join(map(repr, gone))} was withdrawn")

    def _agree(self, session: _Session, message: Propose) -> Reply:
        """Consent to a plan and reserve its remaining cost, if that fits beside the reservations of other studies."""
        plan, reply = session.plan, decided(lambda: self._promise(session, message))
        with self._mutex:  # one plan per study: the newest one with consent
            for digest, other in list(self._sessions.items()):
                if other is not session and other.plan.study == plan.study:
                    del self._sessions[digest]
        return reply

    def _promise(self, session: _Session, message: Propose) -> Reply:
        """Check the budget, consent and reserve, all under one lock: two plans never both pass where only one fits."""
        assert session.site is not None  # noqa: S101
        with self._reserving:
            self._fits(session)
            plan = session.plan
            steward = self._consents.decision(plan.digest()) == "approved" or self._consents.covers(plan)
            session.site.consent = "steward" if steward else "automatic"
            reply = session.site.handle(message)
            self._consents.remember(plan)
            if self._kept is not None:
                self._kept.forget_old()
            session.agreed, session.lapsed = True, False
        return reply

    def _reserve(self, session: _Session) -> None:
        """Renew the reservation of a study whose reservation ended, if its remaining cost still fits."""
        if session.lapsed:
            decided(lambda: self._hold_again(session))

    def _hold_again(self, session: _Session) -> None:
        """Check the budget again and renew the reservation."""
        with self._reserving:
            self._fits(session)
            session.lapsed = False

    def _fits(self, session: _Session) -> None:
        """Refuse if the remaining cost does not fit under the cap beside the ledger and all other reservations."""
        if session.plan.scheme.facts.noisy:
            # No other thread records between the reading of the reservations and the check: a spend must not count
            # twice or not at all.
            with self._ledger.still():
                self._ledger.check(_unpaid(session), self.policy.cap, self._promised(session))

    def _promised(self, asking: _Session) -> list[Spend]:
        """The remaining cost of the other studies with consent."""
        with self._mutex:
            others = [each for each in self._sessions.values() if each.plan.study != asking.plan.study and each.agreed]
        held: list[Spend] = []
        for each in others:
            if each.plan.scheme.facts.noisy and not self._given_up(each):
                held += _unpaid(each)
        return held

    def _given_up(self, session: _Session) -> bool:
        """Whether a study with consent has lost its reservation, though its coordinator was not informed yet."""
        if session.lapsed or self._quiet(session):
            return True
        keys = {site.identity for site in session.plan.sites}
        decision = self._consents.decision(session.plan.digest())
        refused = decision == "refused" or (decision is None and not self._unasked(session.plan))
        return refused or bool(keys & self._consents.withdrawn())

    def _quiet(self, session: _Session) -> bool:
        """Whether a study was inactive for so long that its reservation ends; sooner before its first message after the
        proposal, and after its last round, where only attempts and the opening of the sum remain.
        """
        hold = self._hold if session.begun else min(self._hold, self._start)
        return time.monotonic() - session.used > (self._settle if session.over else hold)

    def _drop(self, digest: str) -> None:
        """Forget a session and its secrets."""
        with self._mutex:
            self._sessions.pop(digest, None)

    def _proposed(self, digest: str, plan: Plan, decision: Decision | None) -> _Session:
        """The session of a proposed plan, after all checks that need no row of the data.

        Parameters
        ----------
        digest : str
            Under which the plan arrived.
        plan : Plan
            The proposal.
        decision : str or None
            The steward's decision about it; never "refused" here.

        Raises
        ------
        AwaitingConsent
            If the plan waits for the steward.
        Busy
            If no session is free, or other plans have waited for longer.
        """
        # Sessions, decisions and the log are found by the digest: a plan under another one's digest would inherit its
        # approval.
        if plan.digest() != digest:
            raise Misdirected("a plan came under the digest of another one")
        position = own_position(plan, self.name, self._identity(plan))
        self.policy.review(plan, self.schema.units, BUILTIN)
        for refusal in self.schema.refusals(plan, position):
            raise refusal
        with _at_the_desk():
            self._review(plan)
        if decision is None and not self._unasked(plan):
            # Only plans that could be accepted reach the steward: policy and schema have refused the others above.
            if self._consents.keep(plan):
                self._log.write("waiting", "a plan waits for the steward: zerosum site approve, or refuse", plan)
                self._on_proposal(plan)
            raise AwaitingConsent("this site waits for its steward to decide")
        plan.mus(0)  # calibration may take seconds: it is done and cached before a lock is taken
        with self._mutex:
            if digest not in self._sessions:
                self._admit(digest, plan.study)
                self._sessions[digest] = _Session(plan)
            session = self._touch(digest)
            session.proposals += 1
            return session

    def _unasked(self, plan: Plan) -> bool:
        """Whether a plan needs no decision of its own."""
        return self._consents.automatic or self._consents.covers(plan)

    def _admit(self, digest: str, study: str) -> None:
        """Take a plan out of the queue if a session is free for it, or leave it there and raise `Busy`."""
        self._forget_tickets()
        # First come, first served: a plan that arrived later may not take the session that an earlier one waits for.
        ahead = list(self._queue).index(digest) if digest in self._queue else len(self._queue)
        self._make_room(ahead + 1)
        if self._most - len(self._sessions) > ahead:
            self._queue.pop(digest, None)
            return
        now = time.monotonic()
        # A plan beyond the limit is answered in the same way and has no place.
        if digest in self._queue or len(self._queue) < MOST_QUEUED:
            self._queue.setdefault(digest, _Ticket(study, time.time(), now)).asked = now
        raise Busy("this site takes part in as many studies as it may at once")

    def _forget_tickets(self) -> None:
        """Remove plans from the queue whose coordinators have stopped to ask."""
        now = time.monotonic()
        for digest, ticket in list(self._queue.items()):
            if now - ticket.asked > TICKET_SECONDS:
                del self._queue[digest]

    def _make_room(self, wanted: int) -> None:
        """Remove sessions that lost their reservation, or that never came to a consent, until `wanted` are free."""
        for digest, each in list(self._sessions.items()):  # least recently used first
            if self._most - len(self._sessions) >= wanted:
                return
            # A study whose last round was answered stays, too: the list of sites in its sum is still to be signed, and
            # the sum to be opened.
            if self._given_up(each) or not (each.agreed or each.proposals):
                del self._sessions[digest]

    def _touch(self, digest: str) -> _Session:
        """Mark a session as used. A reservation that ended meanwhile stays ended until `_reserve` renews it."""
        self._sessions.move_to_end(digest)
        session = self._sessions[digest]
        session.lapsed = session.lapsed or self._quiet(session)
        session.used = time.monotonic()
        return session

    def _find(self, digest: str) -> _Session:
        """The session of a plan with consent."""
        with self._mutex:
            if digest not in self._sessions:
                raise NotAgreed("this site has not agreed to that plan, or has restarted since")
            return self._touch(digest)

    def _identity(self, plan: Plan) -> Identity:
        """The key that a plan pins for this site, if the site still has it; else the current key."""
        pinned = {site.identity for site in plan.sites if site.name == self.name}
        # A plan pins the key that the site had when the plan was written; a study in progress survives a rotation of
        # keys.
        return next((key for key in self.former if key.public.hex() in pinned), self.identity)

    def _site(self, plan: Plan) -> Site:
        """The site with the data for a plan.

        The plan has passed `review`, so a failure here is a fault at the site: a file that was moved, or changed since
        the start. Details stay in the site's own log.
        """
        with _at_the_desk():
            units = self._load(plan)
            if self.schema.units not in (None, len(units)):
                raise BadData(f"the schema declares {self.schema.units} units, the data hold {len(units)}")
        return Site(self.name, units, self.policy, self._identity(plan), self._ledger, self.schema, self._kept)

    def _record(self, session: _Session, message: Message, reply: Reply) -> None:
        """Write a consent or a release to the audit log.

        Parameters
        ----------
        session : _Session
            The study.
        message : Message
            What was asked.
        reply : Reply
            What will be sent after this returns.
        """
        plan = session.plan
        position = own_position(plan, self.name, self._identity(plan))
        if isinstance(reply, Consent):
            if not (isinstance(message, Propose) and message.keep and session.consented):
                session.released.clear()
                self._log.again("consented", consent_in_words(plan, position), plan, rounds=plan.rounds)
            session.consented = True
        elif isinstance(reply, Contribution) and isinstance(message, Contribute):
            key = message.round, message.attempt
            words = release_in_words(plan, position, *key, message.request)
            if key in session.released:
                self._log.again("repeated", words, plan)
            else:
                more: dict[str, Any] = {"round": message.round + 1, "rounds": plan.rounds}
                if plan.law(message.round).mechanism is NoiseMechanism.MASKED:
                    # In the chain of the log: neither the site's operator nor its auditor can exchange them later.
                    more["commitments"] = committed_with(bytes(reply.payload)).hex()
                self._log.write("released", words, plan, **more)
            session.released.add(key)


@contextmanager
def _at_the_desk() -> Iterator[None]:
    """Replace errors about the site's data or files by a general sentence. Details go to the site's own log."""
    try:
        yield
    except BadData as error:
        detail = f"{error} {error.detail}".strip()
        # The coordinator asks a site without memory again; data that do not fit are refused for good.
        if (fault := memory_fault(error, detail)) is not None:
            raise fault from None
        raise BadData("this site cannot read its data as it declared them", detail=detail) from None


def _unpaid(session: _Session) -> list[Spend]:
    """The remaining cost of a study. Nothing if the ledger has it whole or under another plan: the site itself refuses
    then.
    """
    try:
        return [] if session.site is None else session.site.unpaid(session.plan)
    except LedgerRefused:
        return []
