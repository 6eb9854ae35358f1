"""Proofs of guilt: signed messages that together show that a site broke the protocol, for anybody who has the roster.

A proof is several messages, one after the other (`wire.pack`). The first is the coordinator's message with the adverts
of all sites, whose digest names the set-up and stands in all messages behind it. They are one of

    OPENING of s                         no loss is tolerated, and s opened a seed that has not the hash in its advert
    DEALT of u, READY and OPENING of s   s opened a share that has not the hash which u dealt and s confirmed
    DEALT of u, OPENINGs                 shares with the hashes that u dealt give another secret than u advertised

In the second form u may be s itself, and READY is left out: s knows what it dealt.

No honest site can be proven guilty, whatever the others and the coordinator do, but for a second preimage of a hash of
128 bits, a collision of SHA-256 or a forged signature. It makes one set-up message of each kind for a set-up and opens
once in an attempt. What it opens has the hashes that it signed: its seed that of its advert, and its shares those whose
digest is in READY, so that no list of hashes with another digest counts. What it dealt gives its secrets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zerosum.errors import Inconsistent, Malformed
from zerosum.secagg import commitments, keys, shamir, wire
from zerosum.secagg.session import Adverts, Roster
from zerosum.secagg.wire import Kind, Message


@dataclass(frozen=True)
class Opening:
    """What one site opened in an attempt.

    Attributes
    ----------
    listed:
        The sites in the sum.
    seed:
        The site's own seed; empty if losses are tolerated.
    shares:
        Its shares by dealer: of the seed of a listed site, of the masking key of another one.
    """

    listed: frozenset[int]
    seed: bytes
    shares: Mapping[int, bytes]

    @classmethod
    def read(cls, roster: Roster, known: Adverts, message: Message) -> Opening:
        """The opening in a message, whose signature was checked."""
        width = (roster.sites + 7) // 8
        listed = wire.unpack_list(message.body[:width], roster.sites)
        if message.body[width : width + 32] != known.digest:
            raise Inconsistent("a site opened what belongs to another set-up")
        content = bytes(message.body[width + 32 :])
        dealers = known.holders(message.sender)
        size = shamir.SHARE_BYTES
        expected = size * len(dealers) if roster.dropouts else keys.KEY_BYTES
        if len(content) != expected:
            raise Malformed(f"an opening of {expected} bytes was expected, got {len(content)}")
        if not roster.dropouts:
            return cls(frozenset(listed), content, {})
        shares = {dealer: content[at * size : (at + 1) * size] for at, dealer in enumerate(dealers)}
        return cls(frozenset(listed), b"", shares)


@dataclass(frozen=True)
class Dealt:
    """The hashes of the shares that one site dealt."""

    dealer: int
    by_holder: Mapping[int, bytes]

    @classmethod
    def read(cls, roster: Roster, known: Adverts, data: bytes | memoryview) -> Dealt:
        """The hashes in a message, whose signature is checked."""
        message = roster.take(data, Kind.DEALT, 0)
        holders, size = known.holders(message.sender), roster.share_hash_bytes
        body = bytes(message.body)
        if body[:32] != known.digest:
            raise Inconsistent("a site signed hashes of shares of another set-up")
        if len(body) != 32 + size * len(holders):
            raise Malformed("a site signed the wrong number of hashes of shares")
        return cls(
            message.sender, {holder: body[32 + at * size : 32 + (at + 1) * size] for at, holder in enumerate(holders)}
        )

    def digest(self, holder: int) -> bytes:
        """The digest of the hashes of one holder's shares, which the holder confirms."""
        return hashlib.sha256(self.by_holder[holder]).digest()

    def holds(self, holder: int, attempt: int, of_seed: bool, share: bytes, set_up: bytes) -> bool:
        """Whether an opened share is the one that was dealt."""
        size = commitments.SHARE_HASH_BYTES
        at = size * (2 * attempt + of_seed)
        hashed = commitments.share_hash(share, self.dealer, holder, attempt, of_seed, set_up)
        return hashed == self.by_holder[holder][at : at + size]


def confirmed(
    roster: Roster, known: Adverts, data: bytes | memoryview
) -> tuple[int, dict[int, bytes], dict[int, bytes]]:
    """The sender of a READY message; by neighbour the digest of the hashes of their shared keys, and that of the hashes
    of the shares that it received.
    """
    message = roster.take(data, Kind.READY, 0)
    peers = known.neighbours[message.sender]
    body = bytes(message.body)
    parts = [body[at : at + 32] for at in range(32, len(body), 32)]
    if body[:32] != known.digest:
        raise Inconsistent("a site confirmed another set-up")
    if len(body) != 32 * (1 + len(peers) * (2 if roster.dropouts else 1)):
        raise Malformed("a site confirmed the wrong number of keys and shares")
    return message.sender, dict(zip(peers, parts, strict=False)), dict(zip(peers, parts[len(peers) :], strict=False))


def secret_fits(known: Adverts, roster: Roster, site: int, attempt: int, of_seed: bool, secret: bytes) -> bool:
    """Whether a secret is the one that a site advertised for an attempt."""
    if of_seed:
        return commitments.seed_hash(secret, roster.digest, site, attempt) == known.seeds[site][attempt]
    return keys.public_of(secret) == known.masking[site][attempt]


def guilty(roster: Roster, proof: bytes) -> int:
    """The site that a proof shows to be guilty.

    Raises
    ------
    BadMessage
        If the proof shows nothing.
    """
    parts = wire.unpack_all(memoryview(proof), 3 + roster.sites)
    if not parts:
        raise Malformed("a proof without messages shows nothing")
    adverts, *others = parts
    known = Adverts.read(roster, wire.unpack(roster.take(adverts, Kind.ADVERTS, 0).body, roster.sites))
    match [(wire.decode(each).kind, each) for each in others]:
        case [(Kind.OPENING, opening)]:
            message, opened = _opening(roster, known, opening)
            if not roster.dropouts and not secret_fits(
                known, roster, message.sender, message.attempt, True, opened.seed
            ):
                return message.sender
        case [(Kind.DEALT, dealt), (Kind.READY, ready), (Kind.OPENING, opening)]:
            hashes = Dealt.read(roster, known, dealt)
            holder, _, received = confirmed(roster, known, ready)
            message, opened = _opening(roster, known, opening)
            if message.sender != holder or received.get(hashes.dealer) != hashes.digest(holder):
                raise Inconsistent("the messages of a proof are not of one share")
            if not _as_dealt(known, hashes, message, opened):
                return holder
        case [(Kind.DEALT, dealt), (Kind.OPENING, opening)] if len(others) == 2 and _own(dealt, opening):
            hashes = Dealt.read(roster, known, dealt)
            message, opened = _opening(roster, known, opening)
            if not _as_dealt(known, hashes, message, opened):
                return message.sender
        case [(Kind.DEALT, dealt), *_]:
            return _dealer(roster, known, dealt, others[1:])
    raise Inconsistent("the messages of a proof show no fault")


def _own(dealt: memoryview, opening: memoryview) -> bool:
    return wire.decode(dealt).sender == wire.decode(opening).sender


def _opening(roster: Roster, known: Adverts, data: memoryview) -> tuple[Message, Opening]:
    message = roster.take(data, Kind.OPENING, wire.decode(data).attempt)
    if message.attempt >= roster.attempts:
        raise Malformed("an opening is of an attempt that is not planned")
    return message, Opening.read(roster, known, message)


def _as_dealt(known: Adverts, hashes: Dealt, message: Message, opened: Opening) -> bool:
    share = opened.shares.get(hashes.dealer, b"")
    of_seed = hashes.dealer in opened.listed
    return hashes.holds(message.sender, message.attempt, of_seed, share, known.digest)


def _dealer(roster: Roster, known: Adverts, dealt: memoryview, openings: Sequence[memoryview]) -> int:
    """The site whose shares, opened as it dealt them, do not give what it advertised."""
    hashes = Dealt.read(roster, known, dealt)
    shares: dict[int, bytes] = {}
    lists: set[tuple[int, frozenset[int]]] = set()
    for each in openings:
        message, opened = _opening(roster, known, each)
        if hashes.dealer not in opened.shares or not _as_dealt(known, hashes, message, opened):
            raise Inconsistent("an opened share is not one that the site dealt")
        shares[message.sender + 1] = opened.shares[hashes.dealer]
        lists.add((message.attempt, opened.listed))
    if len(lists) != 1 or len(shares) != roster.shape.threshold:
        raise Inconsistent("the shares of a proof are not those that open one secret")
    ((attempt, listed),) = lists
    of_seed = hashes.dealer in listed
    try:
        fits = secret_fits(known, roster, hashes.dealer, attempt, of_seed, shamir.combine(shares))
    except Inconsistent:  # not shares of any secret
        fits = False
    if fits:
        raise Inconsistent("the shares give the secret that the site advertised")
    return hashes.dealer
