"""Secure aggregation over an engine: carries the messages between the sites' sessions and the
coordinator's collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from zerosum.coordinator.largest_sum import norm
from zerosum.errors import Abandoned, BadMessage
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame
from zerosum.protocol.messages import Lost, Message, Reply, Secure, Secured
from zerosum.protocol.roster import branches, roster
from zerosum.secagg import blame as proofs
from zerosum.secagg import wire
from zerosum.secagg.collector import Collector, FalseDealing

Settle = Callable[[Sequence[str]], object]
Exchange = Callable[[Mapping[str, Message]], Iterable[Reply | Lost]]
Step = Literal["advertise", "share", "receive", "sign", "open"]
T = TypeVar("T")
# site, fault in one sentence, the message that could not be used, proof of guilt (empty if there is none)
Blame = Callable[[str, str, Frame | None, bytes], object]
WRONG_KIND = "it answered with a message of another kind"
LOST_IN_SET_UP = "a site was lost while the secure sum was set up; nothing was released"
FALSE_DEALING = "the shares that it dealt in the set-up do not give the secret that it had signed the hash of"


def no_blame(site: str, why: str, message: Frame | None, proof: bytes) -> None:
    """Record no fault."""


def sound(take: Callable[[T], object], data: T, blame: Callable[[str], object]) -> bool:
    """Whether a site's message could be used. A message with any fault counts as a lost one, and `blame` receives the
    fault in one sentence.
    """
    try:
        take(data)
    except BadMessage as error:
        blame(str(error))
        return False
    return True


class SecureSums:
    """All secure sums of one study, one attempt after another.

    Parameters
    ----------
    plan, exchange:
        The plan, and the exchange of messages with its sites.
    blame:
        Receives a site, its fault in one sentence, the message that could not be used, and a proof of guilt.

    Attributes
    ----------
    commitments : dict
        The signed commitments of the sites in the last sum, by name.
    """

    def __init__(self, plan: Plan, exchange: Exchange, blame: Blame = no_blame) -> None:
        self._names = [site.name for site in plan.sites]
        self._index = {name: s for s, name in enumerate(self._names)}
        self._exchange, self._blame = exchange, blame
        self._losses = plan.coalition.dropouts
        self._roster = roster(plan)
        self._collector = Collector(self._roster, branches(plan, plan.tree.top))
        self.commitments: dict[str, bytes] = {}

    def advertised(self) -> bytes | None:
        """The keys of all sites; None if a site did not advertise its key."""
        senders = self._ask("advertise", 0, dict.fromkeys(self._names, b""), self._collector.take_advert)
        return self._collector.adverts() if len(senders) == len(self._names) else None

    def go_on(self, adverts: bytes) -> list[str]:
        """Continue under the keys of a complete set-up; returns the names of the sites that still have these keys."""
        return [self._names[s] for s in self._collector.restore(adverts)]

    def set_up(self) -> None:
        """Exchange the shares for every planned attempt; every site must take part. Sites that did so before repeat
        their replies.
        """
        adverts = self._collector.adverts()
        self._all_sites("share", dict.fromkeys(self._names, adverts), self._collector.take_shares)
        mail = {name: self._collector.delivery(s) for name, s in self._index.items()}
        self._all_sites("receive", mail, self._collector.take_ready)
        # Before anything is masked or spent. Neither of the two is believed: both are named.
        disputes = self._collector.disputes()
        for first, second, why in disputes:
            for site, other in ((first, second), (second, first)):
                named = f"it and {self._names[other]!r} {why}; one of the two is wrong"
                self._blame(self._names[site], named, None, b"")
        if disputes:
            first, second, why = disputes[0]
            raise Abandoned(
                f"sites {self._names[first]!r} and {self._names[second]!r} {why} while the secure sum was set up; "
                "nothing was released"
            )

    def _all_sites(self, step: Step, data: Mapping[str, bytes], take: Callable[[bytes], object]) -> None:
        """One step of the set-up. The loss of one site ends it, since its shares would be missing in every round."""
        senders = self._ask(step, 0, data, take)
        if len(senders) < len(data):
            raise Abandoned(LOST_IN_SET_UP)

    def _ask(self, step: Step, attempt: int, data: Mapping[str, bytes], take: Callable[[bytes], object]) -> list[str]:
        """Send one step to the sites and return the names of those with a usable reply."""
        senders = []
        for reply in self._exchange({name: Secure(step, attempt, text) for name, text in data.items()}):
            if isinstance(reply, Secured) and sound(take, reply.data, partial(self._blamed, reply.site, reply.data)):
                senders.append(reply.site)
            elif not isinstance(reply, Secured | Lost):
                self._blame(reply.site, WRONG_KIND, None, b"")
        return senders

    def begin(self, attempt: int, size: int, context: bytes) -> None:
        """Begin an attempt: vectors of `size` words, bound to `context`."""
        self._collector.begin(attempt, size, context)

    def take(self, attempt: int, site: str, masked: Frame) -> bool:
        """Add the masked vector of a site to the sum; return whether it was valid."""
        return sound(
            lambda data: self._collector.take_masked(attempt, data), masked, partial(self._blamed, site, masked)
        )

    def _blamed(self, site: str, message: Frame, why: str) -> None:
        proof = self._collector.proof(message)
        # What is recorded as a proof convinces every reader who checks it: it was checked here in the same way.
        convicted = proof and proofs.guilty(self._roster, proof) == self._index[site]
        self._blame(site, why, message, proof if convicted else b"")

    def finish(
        self, attempt: int, settle: Settle, largest: Callable[[Sequence[int]], float]
    ) -> tuple[NDArray[np.int64], Sequence[str]]:
        """Fix the list of sites in the sum, have the sum opened, remove the masks, and hold the sum against its bound.

        Parameters
        ----------
        attempt:
            The attempt that was begun.
        settle:
            Receives the list before any site does.
        largest:
            The largest norm of the sum of these sites (`zerosum.coordinator.largest_sum`).
        """
        closed = self._collector.close_list(attempt)
        listed = self._collector.survivors(attempt)
        present = [self._names[s] for s in listed]
        self.commitments = {self._names[s]: each for s, each in self._collector.commitments(attempt).items()}
        # The journal has the list before a site receives it. After a crash the coordinator sends the same list again;
        # another list would be refused by every site, and the attempt would be lost.
        settle(present)
        signers = present
        # Sites sign the list before they open it: two different lists could be opened to reveal the vector of a single
        # site.
        if self._losses:
            signers = self._ask(
                "sign",
                attempt,
                dict.fromkeys(present, closed),
                lambda data: self._collector.take_signature(attempt, data),
            )
            closed = self._collector.warrant(attempt)
        self._ask(
            "open", attempt, dict.fromkeys(signers, closed), lambda data: self._collector.take_opening(attempt, data)
        )
        try:
            # The same 64 bits read as signed numbers: the plan has checked that the sum cannot exceed 2^63 in size.
            total = self._collector.result(attempt).view(np.int64)
        except FalseDealing as error:
            for site, proof in error.proofs.items():
                dealt = bytes(wire.unpack_all(memoryview(proof), 3 + len(self._names))[1])
                self._blame(self._names[site], FALSE_DEALING, dealt, proof)
            raise Abandoned(str(error)) from error
        except BadMessage as error:
            raise Abandoned(f"{error}; nothing was unmasked") from error
        if norm(total) > largest(listed):
            raise Abandoned(
                "the opened sum is longer than the vectors of all sites can be together: a site sent another vector "
                "than it should, or masked it otherwise; each site can find out by `zerosum site audit replay`"
            )
        return total, present
