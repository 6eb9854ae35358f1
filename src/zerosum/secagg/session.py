"""A site's half of secure aggregation: a state machine of messages and vectors. No input or output.

Set-up, once per study: advertise keys, share secrets, receive the others' shares. Then, for each attempt, in this order
and once: mask a vector; where losses are tolerated, sign the list of vectors that arrived; open what the list opens.

    the same set-up message, list or warrant again    the same bytes again
    another one, or a second vector                   refused

Secrets exist in memory only and are deleted as soon as they are not needed: the sealing key and the masking keys with
the set-up, when the keys shared with each neighbour are agreed on, and all others with their attempt. A site that
restarts has no secrets, so that it can open nothing and masks nothing twice. It rejoins with a new set-up, whose keys
enter every mask and signature, so that no message of the old set-up is valid in it.

What a site will open, it has signed the hash of before (`zerosum.secagg.commitments`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zerosum.errors import BadParameter, Forged, Inconsistent, Malformed, Misdirected, OutOfTurn
from zerosum.secagg import commitments, graph, keys, masks, shamir, wire
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.wire import COORDINATOR, Kind, Message


@dataclass(frozen=True)
class Roster:
    """The parties of a study: pinned identities in order, the number of attempts, and the numbers of colluders and
    losses to withstand.

    Parameters
    ----------
    study:
        16 bytes that name the study: the first half of the plan's digest.
    identities:
        Ed25519 public keys of the S sites, in the order of the plan; a site's number is its place.
    attempts:
        Planned attempts at sums in the whole study; each has its own keys.
    colluders, dropouts:
        C sites may collude with the coordinator, and L sites may be lost in a round.
    """

    study: bytes
    identities: tuple[bytes, ...]
    attempts: int
    colluders: int
    dropouts: int

    def __post_init__(self) -> None:
        if len(self.study) != wire.STUDY_BYTES:
            raise BadParameter(f"a study is named by {wire.STUDY_BYTES} bytes, got {len(self.study)}")
        if len(self.identities) < 2 or len(set(self.identities)) < len(self.identities):
            raise BadParameter("a secure sum needs at least two sites with identities of their own")
        if self.attempts < 1:
            raise BadParameter("a secure sum needs at least one attempt")
        graph.check(self.sites, self.colluders, self.dropouts)

    @property
    def sites(self) -> int:
        return len(self.identities)

    @property
    def shape(self) -> graph.Shape:
        return graph.shape(self.sites, self.colluders, self.dropouts)

    @property
    def signatures(self) -> int:
        """Number of signatures that a list needs, so that no two lists can have them: 2t > S + C."""
        # Honest sites sign one list, colluders may sign two: two lists would need 2t signatures, and there are at most
        # (S - C) + 2C.
        return (self.sites + self.colluders) // 2 + 1

    @property
    def share_bytes(self) -> int:
        """Bytes that a site seals for one neighbour: two shares for each attempt, none where no loss is tolerated."""
        return 2 * shamir.SHARE_BYTES * self.attempts if self.dropouts else 0

    @property
    def share_hash_bytes(self) -> int:
        """Bytes of the hashes of the shares that one site deals to one holder."""
        return 2 * commitments.SHARE_HASH_BYTES * self.attempts if self.dropouts else 0

    @property
    def digest(self) -> bytes:
        # `wire.pack` writes the length of every part, so that no two rosters have the same bytes.
        parts = [self.study, *self.identities, bytes(f"{self.attempts} {self.colluders} {self.dropouts}", "ascii")]
        return hashlib.sha256(wire.pack(parts)).digest()

    def take(self, data: bytes | bytearray | memoryview, kind: Kind, attempt: int) -> Message:
        """A message of that kind and attempt of this study, with its sender's signature checked."""
        message = wire.decode(data)
        # A message that was signed for another study, step or attempt has a valid signature too: without these checks
        # it could be replayed here.
        if message.study != self.study:
            raise Misdirected("the message belongs to another study")
        if message.kind is not kind:
            raise OutOfTurn(f"a message of kind {kind.name} was expected, got {message.kind.name}")
        if message.attempt != attempt:
            raise Misdirected(f"the message belongs to attempt {message.attempt}, not {attempt}")
        # The coordinator may be the adversary, so a signature of its own would prove nothing to a site. What matters in
        # its messages is signed by sites: the adverts, the sealed shares, the list. The zeros are checked so that a
        # message has only one encoding.
        if kind in (Kind.ADVERTS, Kind.DELIVERY, Kind.LIST, Kind.WARRANT):
            if message.sender != COORDINATOR or any(message.signature):
                raise Forged(f"a message of kind {kind.name} comes from the coordinator, unsigned")
            return message
        if message.sender >= self.sites:
            raise Forged(f"the sender is number {message.sender}, and the roster has sites 0 to {self.sites - 1}")
        message.check(self.identities[message.sender])
        return message


@dataclass
class Adverts:
    """The public keys of all sites, checked, and the graph that follows from them; the digest
    identifies this set-up.
    """

    digest: bytes
    sealing: list[bytes]
    masking: list[list[bytes]]
    seeds: list[list[bytes]]  # the hashes of the self-mask seeds
    neighbours: list[list[int]]

    @classmethod
    def read(cls, roster: Roster, adverts: Sequence[bytes | memoryview]) -> Adverts:
        if len(adverts) != roster.sites:
            raise Malformed(f"{roster.sites} adverts were expected, got {len(adverts)}")
        sealing, masking, seeds = [], [], []
        for number, advert in enumerate(adverts):
            # `keys_in` checks the signature against the pinned identity: the coordinator can neither invent a site nor
            # replace a key, which would place it between two sites (Bonawitz et al. 2017, round 0 with signed keys).
            sender, (first, *others), hashes = cls.keys_in(roster, bytes(advert))
            if sender != number:
                raise Inconsistent("the adverts are not one from each site in order")
            sealing.append(first)
            masking.append(others)
            seeds.append(hashes)
        # A secret opens the masks of exactly one site in exactly one attempt. A key that occurs twice, also in another
        # encoding, would have a second use, and opening it for one would open the other (Bonawitz et al. 2017, round 1:
        # all keys are different).
        everything = [*sealing, *(key for site in masking for key in site)]
        if len({keys.essence(key) for key in everything}) < len(everything):
            raise Forged("a public key was advertised twice")
        # The order of the circle follows from the digest of all keys, so that no site can choose its place before the
        # others have advertised. The last one to advertise can still try several keys, which `graph.FAILURE` allows
        # for.
        hashed = [each for site in seeds for each in site]
        digest = hashlib.sha256(roster.digest + b"".join([*everything, *hashed])).digest()
        return cls(digest, sealing, masking, seeds, graph.neighbours(roster.sites, roster.shape.degree, digest))

    @staticmethod
    def keys_in(roster: Roster, advert: bytes) -> tuple[int, list[bytes], list[bytes]]:
        """The sender of an advert; its keys, one for sealing and one for each attempt; the hashes of its seeds."""
        message = roster.take(advert, Kind.ADVERT, 0)
        size = keys.KEY_BYTES  # a hash is as long as a key
        if len(message.body) != size * (1 + 2 * roster.attempts):
            raise Malformed("an advert holds the wrong number of keys")
        parts = [bytes(message.body[at : at + size]) for at in range(0, len(message.body), size)]
        return message.sender, parts[: 1 + roster.attempts], parts[1 + roster.attempts :]

    def holders(self, site: int) -> list[int]:
        """The holders of shares of a site's secrets: its neighbours and itself, in rising order."""
        # As in Bonawitz et al. 2017 a site holds a share of its own secrets: the threshold counts k + 1 holders.
        return sorted([*self.neighbours[site], site])

    def text(self, listed: Sequence[int]) -> bytes:
        """The text that a site signs: it has seen this list, and no other, in this set-up."""
        # With the digest a signature is valid in this set-up only. After a restart the same site may sign another list
        # for the same attempt number, and the two signatures must not be exchangeable.
        return wire.pack_list(listed, len(self.sealing)) + self.digest

    def context(self, attempt: int, asked: bytes) -> bytes:
        """The context of an attempt's masks; masks of sites with different requests do not cancel."""
        # A coordinator could otherwise single out one site: it would send the others a request whose sum it knows.
        # Under different requests the pair masks do not cancel, and it receives uniform numbers instead of a sum.
        return self.digest + attempt.to_bytes(4) + hashlib.sha256(asked).digest()


def pair_key(agreed: bytes, pair: tuple[int, int], context: bytes) -> bytes:
    """The key of the mask that two sites share in one attempt.

    Parameters
    ----------
    agreed:
        What both sites agree on by their masking keys (`keys.agree`).
    pair:
        The two sites.
    context:
        Identifies the request of both.
    """
    # Both sites must derive the same key, whichever of them calculates: hence the ordered pair.
    about = b"%d %d " % (min(pair), max(pair)) + context
    return keys.derive(agreed, "pair mask", about)


def self_key(seed: bytes, site: int, context: bytes) -> bytes:
    """The key of a site's self-mask in one attempt; `seed` are the site's own 32 random bytes."""
    return keys.derive(seed, "self mask", b"%d " % site + context)


@dataclass
class _Attempt:
    """Secrets, shares and replies of a site in one attempt."""

    secret: bytes | None  # the masking key, until the keys below are agreed on
    seed: bytes | None
    agreed: dict[int, bytes] = field(default_factory=dict)  # neighbour -> the secret that both masking keys give
    # site -> (share of its masking secret, share of its self-mask seed)
    shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    masked: bool = False
    listed: tuple[int, ...] | None = None
    replies: dict[Kind, bytes] = field(default_factory=dict)

    def forget(self) -> None:
        self.secret = self.seed = None
        self.agreed.clear()
        self.shares.clear()


class SiteSession:
    """One site in one study.

    Parameters
    ----------
    roster:
        The parties, as this site reads them from the plan.
    me:
        This site's place on the roster.
    identity:
        This site's signing key, whose public half the roster has at that place.
    """

    def __init__(self, roster: Roster, me: int, identity: Identity) -> None:
        # Otherwise messages signed with another key would count as those of this site.
        if not 0 <= me < roster.sites or roster.identities[me] != identity.public:
            raise Misdirected("the roster holds another identity for this site")
        self._roster, self._me, self._identity = roster, me, identity
        # Keys for sealing and for masking are separate (Bonawitz et al. 2017, round 0: c_u and s_u): a masking key may
        # be opened when its site is lost, and must not decrypt the shares that were sent to that site.
        self._sealing: bytes | None = keys.new_secret()
        self._attempts = [_Attempt(keys.new_secret(), os.urandom(32)) for _ in range(roster.attempts)]
        self._adverts: Adverts | None = None
        self._setup: dict[Kind, tuple[bytes, bytes]] = {}  # kind of set-up message -> (digest of the message, reply)

    # -- set-up --------------------------------------------------------------------------------------------------

    def advertise(self) -> bytes:
        """This site's public keys and the hashes of its self-mask seeds, signed."""
        # The argument is empty: an advert answers no message, so a second call always repeats the same keys.
        return self._once(Kind.ADVERT, b"", self._publics)

    def _publics(self) -> bytes:
        secret = [self._sealing, *(attempt.secret for attempt in self._attempts)]
        digest = self._roster.digest
        return b"".join(keys.public_of(each or b"") for each in secret) + b"".join(
            commitments.seed_hash(attempt.seed or b"", digest, self._me, at)
            for at, attempt in enumerate(self._attempts)
        )

    def share(self, adverts: bytes) -> bytes:
        """Shares of every attempt's two secrets, sealed for each neighbour, and the hashes of all of them, signed."""
        message = self._roster.take(adverts, Kind.ADVERTS, 0)

        def sealed() -> bytes:
            known = Adverts.read(self._roster, wire.unpack(message.body, self._roster.sites))
            # A coordinator that replaced this site's keys would learn the secrets that others share with it.
            mine = b"".join([known.sealing[self._me], *known.masking[self._me], *known.seeds[self._me]])
            _, advert = self._setup.get(Kind.ADVERT, (b"", b""))
            if not advert or wire.decode(advert).body != mine:
                raise Inconsistent("the adverts hold keys for this site that it never made")
            body = self._sealed_shares(known)
            self._adverts = known
            return body

        return self._once(Kind.SHARES, adverts, sealed)

    def _sealed_shares(self, known: Adverts) -> bytes:
        holders = known.holders(self._me)
        points = [holder + 1 for holder in holders]
        threshold = self._roster.shape.threshold
        written: dict[int, list[bytes]] = {holder: [] for holder in holders}
        # Both secrets of an attempt are shared with one threshold (Bonawitz et al. 2017, round 1). If no loss is
        # tolerated nothing is shared: each site opens its own seed, and no group of others can.
        for attempt in self._attempts if self._roster.dropouts else ():
            # A share is a value of the polynomial at a positive point: the value at 0 is the secret itself, hence site
            # number + 1.
            of_secret = shamir.split(attempt.secret or b"", points, threshold)
            of_seed = shamir.split(attempt.seed or b"", points, threshold)
            for holder in holders:
                written[holder] += (of_secret[holder + 1], of_seed[holder + 1])
            attempt.shares[self._me] = (of_secret[self._me + 1], of_seed[self._me + 1])
        sealed = [
            keys.seal(self._seal_key(known, self._me, peer), b"".join(written[peer]), known.digest)
            for peer in known.neighbours[self._me]
        ]
        if not self._roster.dropouts:
            return wire.pack(sealed)
        # A share that is opened later is compared with its hash: neither can a holder open another one unnoticed, nor
        # can a dealer accuse a holder of what it dealt itself.
        hashes = b"".join(self._share_hashes(known, self._me, holder, written[holder]) for holder in holders)
        dealt = wire.encode(Kind.DEALT, self._roster.study, 0, self._me, known.digest + hashes, self._identity)
        return wire.pack([*sealed, dealt])

    @staticmethod
    def _share_hashes(known: Adverts, dealer: int, holder: int, shares: Sequence[bytes]) -> bytes:
        """The hashes of all shares that one site dealt to another: for each attempt of its key and of its seed."""
        return b"".join(
            commitments.share_hash(share, dealer, holder, at // 2, bool(at % 2), known.digest)
            for at, share in enumerate(shares)
        )

    def _seal_key(self, known: Adverts, sender: int, recipient: int) -> bytes:
        """The key under which `sender` seals for `recipient`; one of the two is this site."""
        if self._sealing is None:
            raise OutOfTurn("the set-up is over")
        peer = recipient if sender == self._me else sender
        # The direction is part of the derivation, because the nonce is constant: one key for both directions would
        # encrypt two texts under the same key stream, and their difference would be readable.
        shared = keys.agree(self._sealing, known.sealing[peer])
        return keys.derive(shared, "seal", b"%d to %d " % (sender, recipient) + known.digest)

    def receive(self, delivery: bytes) -> bytes:
        """Receive the shares sealed for this site, and agree on a key with each neighbour for every attempt; from then
        on it can mask. The reply has the hashes of both, by neighbour.
        """
        message = self._roster.take(delivery, Kind.DELIVERY, 0)

        def opened() -> bytes:
            known = self._known_adverts()
            peers, size = known.neighbours[self._me], shamir.SHARE_BYTES
            received = []
            # Shares are decrypted here and not at unmasking (Bonawitz et al. 2017 decrypt in round 4): a share that was
            # changed on its way ends the set-up, when nothing is masked yet and no budget is charged.
            for peer, sealed in zip(peers, wire.unpack(message.body, len(peers)), strict=True):
                text = keys.unseal(self._seal_key(known, peer, self._me), bytes(sealed), known.digest)
                # The seal proves who wrote the shares, not that they are well formed: a colluding neighbour can seal
                # anything.
                if len(text) != self._roster.share_bytes:
                    raise Malformed("a neighbour sent the wrong number of shares")
                parts = [text[at : at + size] for at in range(0, len(text), size)]
                for attempt, *pair in zip(self._attempts, parts[::2], parts[1::2], strict=False):
                    attempt.shares[peer] = (pair[0], pair[1])
                hashes = self._share_hashes(known, peer, self._me, parts)
                received += [hashlib.sha256(hashes).digest()] if parts else []
            agreed = [self._agree(known, peer) for peer in peers]
            for attempt in self._attempts:
                attempt.secret = None
            # The coordinator may have recorded the sealed shares. When both ends have deleted this key the record can
            # no longer be decrypted, also not by a party that takes over both.
            self._sealing = None
            return known.digest + b"".join([*agreed, *received])

        return self._once(Kind.READY, delivery, opened)

    def _agree(self, known: Adverts, peer: int) -> bytes:
        """Agree on the secrets of all attempts with a neighbour; returns the digest of their hashes, which both ends
        must sign alike.
        """
        digest = hashlib.sha256()
        for at, attempt in enumerate(self._attempts):
            if attempt.secret is None:
                raise OutOfTurn("the set-up is over")
            agreed = attempt.agreed[peer] = keys.agree(attempt.secret, known.masking[peer][at])
            digest.update(commitments.pair_hash(agreed, (self._me, peer), at, known.digest))
        return digest.digest()

    def _known_adverts(self) -> Adverts:
        if self._adverts is None:
            raise OutOfTurn("the adverts have not come yet")
        return self._adverts

    def _once(self, kind: Kind, asked: bytes, answer: Callable[[], bytes]) -> bytes:
        """Answer a set-up message once; repeat the reply to the same message, refuse another."""
        digest = hashlib.sha256(asked).digest()
        if kind in self._setup:
            # A repeated reply reveals no more than the first one. A reply to a second, different message would: the
            # same secrets, shared once more among other neighbours, have more holders than the threshold allows for.
            before, reply = self._setup[kind]
            if before != digest:
                raise Inconsistent(f"{kind.name} was answered before, to another message")
            return reply
        reply = wire.encode(kind, self._roster.study, 0, self._me, answer(), self._identity)
        self._setup[kind] = (digest, reply)
        return reply

    # -- an attempt ------------------------------------------------------------------------------------------------

    def commit(self, attempt: int, vector: Ring, context: bytes, secret: bytes) -> bytes:
        """The signed commitments to a vector and to the secret that its noise was drawn from (`commitments`). The
        attempt is not used by this.

        Parameters
        ----------
        attempt, vector, context:
            As in `mask`.
        secret:
            The 256-bit secret of this attempt.
        """
        self._unused(attempt)
        study, asked = self._roster.study, hashlib.sha256(context).digest()
        about = self.about(attempt, context)
        return commitments.committed(secret, vector, about, asked, study, attempt, self._me, self._identity)

    def about(self, attempt: int, context: bytes) -> bytes:
        """What a commitment names: the set-up, the attempt, the request, and this site."""
        return self._known_adverts().context(attempt, context) + self._me.to_bytes(4)

    def mask(self, attempt: int, vector: Ring, context: bytes, committed: bytes) -> bytes:
        """The commitments and the vector under its masks, as a signed message.

        Parameters
        ----------
        attempt:
            Number of the attempt, from 0; its keys are used for this one vector.
        vector:
            The noisy contribution, shape (n,), uint64: integers of the grid modulo 2^64. It is not changed.
        context:
            Bytes that identify the request. Masks of sites with another request do not cancel.
        committed:
            The message of `commit` for this vector.
        """
        state, seed = self._unused(attempt)
        if not len(vector):
            raise BadParameter("an empty vector cannot be masked")
        known = self._known_adverts()
        about = known.context(attempt, context)
        # y_u = x_u + PRG(b_u) + sum over v > u of PRG(s_uv) - sum over v < u of PRG(s_uv) (Bonawitz et al. 2017, round
        # 2). The self-mask PRG(b_u) hides the vector of a site that is declared lost and whose pair masks are opened,
        # but whose message arrives after all.
        streams = [(self_key(seed, self._me, about), True)]
        for peer in known.neighbours[self._me]:
            streams.append((pair_key(state.agreed[peer], (self._me, peer), about), self._me < peer))

        # The body is hashed part by part while later parts are still being masked: SHA-256 takes almost half as long as
        # the cipher.
        def fill(body: memoryview) -> bytes:
            body[: len(committed)] = committed
            digest = hashlib.sha256(committed)
            masked = np.frombuffer(body[len(committed) :], dtype="<u8")
            masks.add(vector, streams, masked, lambda part: digest.update(part.data))
            return digest.digest()

        study, length = self._roster.study, len(committed) + 8 * len(vector)
        message = wire.encode_in_place(Kind.MASKED, study, attempt, self._me, length, fill, self._identity)
        # The attempt is used up only now: a failure above sends nothing and leaves the secrets for another call. Then
        # the keys go, so that a second vector under the same masks is impossible; the difference of two would be
        # readable.
        state.masked = True
        state.agreed.clear()
        if self._roster.dropouts:
            state.seed = None  # from here on only shares of the two secrets exist
        return message

    def check(self, attempt: int) -> None:
        """Refuse what `mask` would refuse, before a vector is computed and charged."""
        self._unused(attempt)

    def _unused(self, attempt: int) -> tuple[_Attempt, bytes]:
        state = self._state(attempt)
        if Kind.READY not in self._setup:
            raise OutOfTurn("the set-up is not complete")
        if not state.agreed or state.seed is None:
            raise OutOfTurn(f"attempt {attempt} was answered before, or given up; a retry is a new attempt")
        return state, state.seed

    def sign(self, attempt: int, data: bytes) -> bytes:
        """Sign the list of vectors that arrived, once."""
        state, listed = self._listed(attempt, data, Kind.LIST)
        # `_listed` has refused any list but the first one of this attempt. Signing is Bonawitz et al. 2017, round 3.
        if Kind.SIGNED not in state.replies:
            state.listed = listed
            self._reply(state, Kind.SIGNED, attempt, self._known_adverts().text(listed))
        return state.replies[Kind.SIGNED]

    def open(self, attempt: int, data: bytes) -> bytes:
        """Open what the list opens: for each neighbour on the list a share of its self-mask seed, for each other one a
        share of its masking key.

        Parameters
        ----------
        attempt:
            Number of the attempt.
        data:
            The coordinator's message: a warrant (list and signatures) if losses are tolerated, otherwise the list.
        """
        state, listed = self._listed(attempt, data, Kind.WARRANT if self._roster.dropouts else Kind.LIST)
        if Kind.OPENING not in state.replies:
            if state.seed is None and not state.shares:
                raise OutOfTurn(f"attempt {attempt} was given up")
            state.listed = listed
            holders = self._known_adverts().holders(self._me)
            # Index 1 (True) is the share of the seed, for sites on the list; index 0 that of the masking secret, for
            # lost sites. A holder never opens both for one site and attempt: with both, the coordinator could remove
            # all masks of that site (Bonawitz et al. 2017, round 4).
            shares = [state.shares[holder][holder in listed] for holder in holders if self._roster.dropouts]
            # The set-up and the list are signed with it: what is opened under another list is of another site, and
            # must not be held against this one.
            text = self._known_adverts().text(listed)
            # `mask` deletes the seed where losses are tolerated, so that the seed itself is sent only where there are
            # no shares.
            self._reply(state, Kind.OPENING, attempt, text + (state.seed or b"".join(shares)))
            state.forget()
        return state.replies[Kind.OPENING]

    def abandon(self, attempt: int) -> None:
        """Give up an attempt: its secrets are deleted, and nothing of it can be opened any more."""
        if Kind.READY not in self._setup:
            raise OutOfTurn("the set-up is not complete")
        self._state(attempt).forget()

    def _listed(self, attempt: int, data: bytes, kind: Kind) -> tuple[_Attempt, tuple[int, ...]]:
        """The list in a message, if this site may act on it."""
        message = self._roster.take(data, kind, attempt)
        state = self._state(attempt)
        sites = self._roster.sites
        width = (sites + 7) // 8
        listed = wire.unpack_list(message.body[:width], sites)
        if kind is Kind.LIST and len(message.body) != width:
            raise Malformed("the list is too long")
        # A site opens only sums that it takes part in.
        if not state.masked:
            raise OutOfTurn(f"this site sent nothing in attempt {attempt}")
        # Two lists in one attempt are the attack that the signatures prevent: with one, a site counts as lost and its
        # key is opened, with the other it counts as present and its seed is opened.
        if state.listed not in (None, listed):
            raise Inconsistent("another list was shown before in this attempt")
        # A shorter list has the noise of fewer honest sites than the plan accounts for (H - L of them).
        if self._me not in listed or len(listed) < sites - self._roster.dropouts:
            raise Inconsistent(
                f"the list has {len(listed)} of {sites} sites; this one must be on it, and only "
                f"{self._roster.dropouts} may be missing"
            )
        if kind is Kind.WARRANT:
            self._check_warrant(attempt, listed, message.body[width:])
        return state, listed

    def _check_warrant(self, attempt: int, listed: tuple[int, ...], body: memoryview) -> None:
        """Check the signatures under a list: enough of them, of different listed sites, each for this list."""
        size = 4 + keys.SIGNATURE_BYTES
        if len(body) != size * self._roster.signatures:
            raise Malformed(f"{self._roster.signatures} signatures must stand under a list, there is another number")
        # The text is built from this site's own list and digest and never read from the message, so that a signature
        # under any other list, set-up or attempt fails.
        text = memoryview(self._known_adverts().text(listed))
        before = -1
        for at in range(0, len(body), size):
            sender, signature = int.from_bytes(body[at : at + 4]), bytes(body[at + 4 : at + size])
            # Rising order excludes one signature that is counted twice, and leaves one encoding of a warrant.
            if sender not in listed or sender <= before:
                raise Forged("the signatures under the list are not of different sites on it, in rising order")
            signed = Message(Kind.SIGNED, self._roster.study, attempt, sender, text, signature)
            signed.check(self._roster.identities[sender])
            before = sender

    def _state(self, attempt: int) -> _Attempt:
        if not 0 <= attempt < len(self._attempts):
            raise Misdirected(f"attempt {attempt} is not planned")
        return self._attempts[attempt]

    def _reply(self, state: _Attempt, kind: Kind, attempt: int, body: bytes) -> None:
        state.replies[kind] = wire.encode(kind, self._roster.study, attempt, self._me, body, self._identity)
