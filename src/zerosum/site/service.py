"""A site that serves: several studies at once and one after the other, each found by its plan's digest.

It trusts nothing that arrives. A plan is held against the policy and the steward's decision before data are read; a
message of a plan that was not agreed to, or of another one, is refused; whatever is refused has a code and a sentence,
and is in the audit log. Two studies never share a session, and all share one ledger.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from zerosum.errors import AwaitingConsent, BadData, BadInput, Misdirected, NotAgreed, PolicyRefused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.units import Units
from zerosum.protocol.codec import Frame, decode_message, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Message, Propose, Reply
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog, consent_in_words, release_in_words
from zerosum.site.consents import Consents, Decision
from zerosum.site.host import guarded
from zerosum.site.ledger import Ledger
from zerosum.site.policy import Policy
from zerosum.site.site import Site, own_position
from zerosum.statistics import BUILTIN

Load = Callable[[Plan], Units]  # a site's own data, by the public question of a plan


@dataclass
class _Session:
    """One study at this site."""

    plan: Plan
    lock: threading.Lock = field(default_factory=threading.Lock)
    site: Site | None = None  # once its data are read
    consented: bool = False
    released: set[tuple[int, int]] = field(default_factory=set)


class Service:
    """Answers frames. Studies beyond `most_studies` push out the one that was quiet longest: to its coordinator, this
    site has restarted."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        identity: Identity,
        load: Load,
        consents: Consents,
        log: AuditLog,
        *,
        most_studies: int = 8,
    ) -> None:
        self.name, self.policy, self.identity = name, policy, identity
        self._load, self._consents, self._log, self._most = load, consents, log, most_studies
        self._ledger: Ledger = policy.open_ledger()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._mutex = threading.Lock()

    def close(self) -> None:
        self._ledger.close()

    def answer(self, study: bytes, frame: Frame) -> bytes:
        """The reply to one frame, which came as one of a study."""
        digest = study.hex()
        return encode(guarded(self.name, lambda: self._handle(digest, frame), lambda error: self.refuse(error, digest)))

    def refuse(self, error: ZerosumError, digest: str | None = None) -> None:
        """Write down that something was refused."""
        with self._mutex:
            session = self._sessions.get(digest or "")
        if not isinstance(error, AwaitingConsent):  # said once, when the plan came
            self._log.refused(error, None if session is None else session.plan)

    def _handle(self, digest: str, frame: Frame) -> Reply:
        message = decode_message(frame)
        decision = self._consents.decision(digest)
        plan = message.plan if isinstance(message, Propose) else None
        session = self._find(digest) if plan is None else self._proposed(digest, plan, decision)
        if decision == "refused":
            raise PolicyRefused("the steward of this site refused this study")
        with session.lock:
            if session.site is None:
                session.site = self._site(session.plan)
            reply = session.site.handle(message)
            self._record(session, message, reply)
            return reply

    def _proposed(self, digest: str, plan: Plan, decision: Decision | None) -> _Session:
        if plan.digest() != digest:
            raise Misdirected("a plan came under the digest of another one")
        own_position(plan, self.name, self.identity)
        self.policy.review(plan, self.policy.minimum_units, BUILTIN)  # whatever can be said without a look at data
        if decision is None and not self._consents.automatic:
            if self._consents.keep(plan):
                self._log.write("waiting", "a plan waits for the steward: zerosum site approve, or refuse", plan)
            raise AwaitingConsent("this site waits for its steward to decide")
        with self._mutex:
            session = self._sessions.setdefault(digest, _Session(plan))
            self._sessions.move_to_end(digest)
            while len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
            return session

    def _find(self, digest: str) -> _Session:
        with self._mutex:
            if digest not in self._sessions:
                raise NotAgreed("this site has not agreed to that plan, or has restarted since")
            self._sessions.move_to_end(digest)
            return self._sessions[digest]

    def _site(self, plan: Plan) -> Site:
        """The site with the data that a plan asks for. Which of them is wrong, and how, is not for others: whoever
        proposes again and again would learn where values are missing."""
        try:
            units = self._load(plan)
        except BadInput as error:
            detail = f"{error} {error.detail}".strip()
            raise BadData("the data of this site do not fit what the study asks", detail=detail) from None
        return Site(self.name, units, self.policy, self.identity, self._ledger)

    def _record(self, session: _Session, message: Message, reply: Reply) -> None:
        plan = session.plan
        position = own_position(plan, self.name, self.identity)
        if isinstance(reply, Consent):
            if not (isinstance(message, Propose) and message.keep and session.consented):
                session.released.clear()
                self._log.write("consented", consent_in_words(plan, position), plan)
            session.consented = True
        elif isinstance(reply, Contribution) and isinstance(message, Contribute):
            key = message.round, message.attempt
            words = release_in_words(plan, position, *key, message.request)
            self._log.write("repeated" if key in session.released else "released", words, plan)
            session.released.add(key)
