"""Faults of sites in a study: which site was lost in a round, why, and what it had signed.

A site that sends something unusable counts as lost, like one that sends nothing. Its fault is recorded in the journal
and in the result, so that the loss has a name. Messages of the secure sum are signed by their site. Of such a message
the journal stores

    header      36 bytes     magic, version, kind, study, attempt, sender, length (`zerosum.secagg.wire`)
    digest      32 bytes     SHA-256 of the body
    signature   64 bytes     Ed25519, of the two fields above

which anyone who has the plan can verify, without the body. Such evidence shows that the site sent this message in this
study. It does not show that the coordinator had asked for it. That a site opened something else than it had signed the
hash of is shown by whole messages of the set-up and of the attempt (`zerosum.secagg.blame`), which the journal stores
beside the fault. Frames that are no message, refusals, and contributions
outside the secure sum are not signed: their fault rests on the word of the coordinator.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zerosum.errors import BadMessage
from zerosum.kernel.names import visible
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame
from zerosum.secagg import wire

MOST_WHY = 300  # characters of a reason, which a site may have written


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    site : str
        Name of the site.
    round : int or None
        The round from 0; None in the set-up.
    attempt : int
        0, or the number of an extra attempt.
    why : str
        What was wrong, in one sentence.
    evidence : str
        Header, digest and signature of the message in hex; empty if the message was not signed by the site.
    """

    site: str
    round: int | None
    attempt: int
    why: str
    evidence: str = ""

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        return asdict(self)

    def in_words(self) -> str:
        """The fault in one sentence."""
        where = "in the set-up" if self.round is None else f"in round {self.round + 1}"
        signed = "; it had signed that message" if self.evidence else ""
        return f"site {visible(self.site)!r} was lost {where}: {visible(self.why)}{signed}"

    def check(self, plan: Plan) -> None:
        """Raise `Forged`, or another `BadMessage`, unless the evidence was signed by the site that the plan pins."""
        identity = next((site.identity for site in plan.sites if site.name == self.site), None)
        wire.check_evidence(bytes.fromhex(self.evidence), bytes.fromhex(identity or ""))


def fault(plan: Plan, site: str, round: int | None, attempt: int, why: str, message: Frame | None = None) -> Fault:
    """A fault, with evidence if the site has signed the message.

    Parameters
    ----------
    plan : Plan
        It pins the identities of the sites.
    site, round, attempt, why
        As in `Fault`.
    message : bytes, optional
        The message of the secure sum that could not be used.
    """
    found = Fault(site, round, attempt, why[:MOST_WHY])
    if message is None:
        return found
    try:
        signed = Fault(site, round, attempt, why[:MOST_WHY], wire.evidence(message).hex())
        signed.check(plan)
    except BadMessage:  # not a message, or not signed by this site: another party may have written it
        return found
    return signed
