"""The coordinator's half of secure aggregation: routes the set-up, adds masked vectors into one sum, and unmasks it.

It holds one vector, whatever the number of sites. If more sites are lost than planned, the attempt is abandoned before
unmasking. What a site opens is held against what it signed in the set-up (`zerosum.secagg.blame`): a wrong opening is
refused, and counts as none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from zerosum.errors import Abandoned, BadMessage, Inconsistent, Malformed, Misdirected, OutOfTurn
from zerosum.secagg import blame, keys, masks, shamir, wire
from zerosum.secagg.addition import Addition
from zerosum.secagg.blame import Dealt, Opening
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import Adverts, Roster, pair_key, self_key
from zerosum.secagg.wire import COORDINATOR, Kind


@dataclass
class _Sum:
    """State of one attempt at one sum."""

    context: bytes
    vectors: Addition
    listed: tuple[int, ...] | None = None
    signatures: dict[int, bytes] = field(default_factory=dict)
    openings: dict[int, Opening] = field(default_factory=dict)
    opened: dict[int, bytes] = field(default_factory=dict)  # the messages of the openings


class FalseDealing(Inconsistent):
    """The shares of some sites do not give the secrets that they advertised; `proofs` has a proof for each of them."""

    def __init__(self, proofs: Mapping[int, bytes]) -> None:
        super().__init__("the shares of a site do not give the secret that it advertised; nothing was unmasked")
        self.proofs = proofs


def _combined(shares: Mapping[int, bytes], weights: Sequence[int]) -> bytes | None:
    """The secret of these shares; None if they are of none."""
    try:
        return shamir.combine(shares, weights)
    except Inconsistent:
        return None


class Collector:
    """The sums of one study at the coordinator. Its methods follow the order of the protocol.

        set-up     take_advert (every site), adverts, take_shares (every site), delivery, take_ready (every site),
                   disputes
        attempt    begin, take_masked (every site), close_list, [take_signature, warrant,] take_opening, result

    The steps in brackets exist if losses are tolerated.

    Parameters
    ----------
    roster:
        The parties.
    branches:
        In a tree, for each site that sends vectors to the coordinator the sites of its branch. None: every site sends
        its own vector.
    """

    def __init__(self, roster: Roster, branches: Mapping[int, Collection[int]] | None = None) -> None:
        self._roster = roster
        self._branches = {s: (s,) for s in range(roster.sites)} if branches is None else branches
        # Adverts are stored and sent on byte for byte: a site can check a signature only on the bytes that were signed.
        self._raw: dict[int, bytes] = {}
        self._adverts: Adverts | None = None
        self._mail: dict[int, dict[int, bytes]] = {s: {} for s in range(roster.sites)}
        self._shared: set[int] = set()
        self._told = b""  # the message with the adverts
        self._dealt: dict[int, tuple[bytes, Dealt]] = {}
        self._ready: dict[int, bytes] = {}
        self._sums: dict[int, _Sum] = {}
        self._begun: set[int] = set()

    # -- set-up --------------------------------------------------------------------------------------------------

    def take_advert(self, data: bytes) -> None:
        """Take one site's public keys; the signature is checked."""
        sender, _, _ = Adverts.keys_in(self._roster, data)
        # A second advert with other keys would split the sites into two groups with different digests.
        if sender in self._raw:
            raise OutOfTurn("a site advertised twice")
        self._raw[sender] = data

    def adverts(self) -> bytes:
        """The keys of all sites, for all sites."""
        if len(self._raw) < self._roster.sites:
            raise OutOfTurn("not every site has advertised its keys")
        ordered = [self._raw[s] for s in range(self._roster.sites)]
        self._adverts = Adverts.read(self._roster, ordered)
        self._told = self._say(Kind.ADVERTS, 0, wire.pack(ordered))
        return self._told

    def restore(self, adverts: bytes) -> list[int]:
        """Continue under the keys of a set-up that every site completed; `adverts` is the message of that set-up.
        Returns the sites that have advertised the same keys again, and so still have their secrets.
        """
        asked, self._raw = self._raw, {}
        for advert in wire.unpack(self._roster.take(adverts, Kind.ADVERTS, 0).body, self._roster.sites):
            self.take_advert(bytes(advert))
        self.adverts()
        # The shares of that set-up were delivered and confirmed; the sites have them in memory, the coordinator needs
        # none again. It has lost the hashes of the shares: a wrong share still spoils no sum unnoticed, since the
        # secret that it gives is compared with the adverts, but it has no name.
        self._shared, self._mail = set(self._raw), {}
        return [site for site, raw in self._raw.items() if asked.get(site) == raw]

    def take_shares(self, data: bytes) -> None:
        """Take the shares that one site sealed for its neighbours. The coordinator cannot read them."""
        message = self._roster.take(data, Kind.SHARES, 0)
        peers = self._known_adverts().neighbours[message.sender]
        if message.sender in self._shared:
            raise OutOfTurn("a site shared its secrets twice")
        # The content is encrypted; the length is all that can be checked here. A wrong length would otherwise be
        # noticed only by the receiving site, which would then count as the faulty one.
        hashed = 1 if self._roster.dropouts else 0
        sealed = wire.unpack(message.body, len(peers) + hashed)
        if hashed:
            data = bytes(sealed.pop())
            dealt = Dealt.read(self._roster, self._known_adverts(), data)
            if dealt.dealer != message.sender:
                raise Inconsistent("a site sent the hashes of the shares of another one")
            self._dealt[dealt.dealer] = data, dealt
        if any(len(part) != self._roster.share_bytes + keys.SEAL_BYTES for part in sealed):
            raise Malformed("a site sealed the wrong number of shares")
        for peer, part in zip(peers, sealed, strict=True):
            self._mail[peer][message.sender] = bytes(part)
        self._shared.add(message.sender)

    def delivery(self, site: int) -> bytes:
        """The shares sealed for one site, until it confirms them."""
        # All sites must have shared before any is served: afterwards every mask can be removed, whichever planned
        # number is lost.
        if len(self._shared) < self._roster.sites or site not in self._mail:
            raise OutOfTurn("not every site has shared its secrets, or this one has its shares")
        peers = self._known_adverts().neighbours[site]
        return self._say(Kind.DELIVERY, 0, wire.pack(self._mail[site][peer] for peer in peers))

    def take_ready(self, data: bytes) -> int:
        """Take a site's confirmation that its shares are valid, with the hashes of its keys; return the site."""
        message = self._roster.take(data, Kind.READY, 0)
        if len(self._shared) < self._roster.sites:
            raise OutOfTurn("not every site has shared its secrets")
        blame.confirmed(self._roster, self._known_adverts(), data)
        self._mail.pop(message.sender, None)
        self._ready[message.sender] = bytes(data)
        return message.sender

    def disputes(self) -> list[tuple[int, int, str]]:
        """Pairs of sites that signed contradictory hashes of their shared keys, or of the shares that the first dealt
        to the second. One of the two is wrong; which, the coordinator cannot know without the secrets of the other.
        """
        known = self._known_adverts()
        said = {site: blame.confirmed(self._roster, known, data)[1:] for site, data in self._ready.items()}
        found = []
        for one, other in combinations(sorted(said), 2):
            if said[one][0].get(other) != said[other][0].get(one):
                found.append((one, other, "signed different hashes of the keys that they share"))
            for dealer, holder in ((one, other), (other, one)):
                received = said[holder][1].get(dealer)
                if received is not None and received != self._dealt[dealer][1].digest(holder):
                    found.append((dealer, holder, "signed different hashes of the shares that the first dealt"))
        return found

    def _known_adverts(self) -> Adverts:
        if self._adverts is None:
            raise OutOfTurn("not every site has advertised its keys")
        return self._adverts

    # -- an attempt ------------------------------------------------------------------------------------------------

    def begin(self, attempt: int, size: int, context: bytes) -> None:
        """Begin an attempt.

        Parameters
        ----------
        attempt:
            A planned attempt that was not begun before.
        size:
            Length of the vectors.
        context:
            Bytes that identify the request; the same as in the `mask` of every site.
        """
        if attempt in self._begun or not 0 <= attempt < self._roster.attempts:
            raise Misdirected(f"attempt {attempt} is not planned or was begun before")
        vectors = Addition(self._roster, attempt, size, context, self._branches)
        # Attempts are numbered once for the whole study and never begun again, also not after `abandon`: a site masks
        # only once under the keys of an attempt.
        self._begun.add(attempt)
        self._sums[attempt] = _Sum(context, vectors)

    def take_masked(self, attempt: int, data: bytes | bytearray | memoryview) -> int:
        """Add one masked vector, or in a tree the partial sum of a branch, and return its sender. The vector is not
        kept.
        """
        state = self._sum(attempt)
        # A vector that was not on the signed list has its pair masks opened, and must not enter the sum afterwards.
        if state.listed is not None:
            raise OutOfTurn("a vector came after the list was closed")
        return state.vectors.take(data)

    def close_list(self, attempt: int) -> bytes:
        """Close the list of vectors in the sum, unless too many are missing."""
        state = self._sum(attempt)
        # Fewer vectors carry less noise than the plan accounts for. The sites check the same bound and would refuse the
        # list.
        missing = self._roster.sites - len(state.vectors.arrived)
        if missing > self._roster.dropouts:
            self.abandon(attempt)
            raise Abandoned(
                f"{missing} of {self._roster.sites} sites were lost, the plan tolerates {self._roster.dropouts}; "
                "nothing was unmasked"
            )
        state.listed = tuple(sorted(state.vectors.arrived))
        return self._say(Kind.LIST, attempt, wire.pack_list(state.listed, self._roster.sites))

    def survivors(self, attempt: int) -> tuple[int, ...]:
        """The sites whose vectors are in the sum, after `close_list`."""
        state = self._sum(attempt)
        if state.listed is None:
            raise OutOfTurn("the list is not closed")
        return state.listed

    def take_signature(self, attempt: int, data: bytes) -> int:
        """Take one site's signature under the list; return the site."""
        state = self._sum(attempt)
        message = self._roster.take(data, Kind.SIGNED, attempt)
        listed = self.survivors(attempt)
        if message.sender not in listed:
            raise OutOfTurn("a signature came from a site that is not on the list")
        # The signature is valid, but for another text: the warrant would be refused by every site.
        if message.body != self._known_adverts().text(listed):
            raise Inconsistent("a site signed another list, or saw other adverts")
        state.signatures[message.sender] = message.signature
        return message.sender

    def warrant(self, attempt: int) -> bytes:
        """The list with enough signatures under it."""
        state, listed = self._sum(attempt), self.survivors(attempt)
        if len(state.signatures) < self._roster.signatures:
            self.abandon(attempt)
            raise Abandoned(f"only {len(state.signatures)} sites signed the list; nothing was unmasked")
        # Exactly t signatures in rising order, so that a warrant has one length and one encoding.
        chosen = sorted(state.signatures)[: self._roster.signatures]
        signed = b"".join(s.to_bytes(4) + state.signatures[s] for s in chosen)
        return self._say(Kind.WARRANT, attempt, wire.pack_list(listed, self._roster.sites) + signed)

    def take_opening(self, attempt: int, data: bytes) -> int:
        """Take what one site opens: its seed, or one share for each holder of its neighbourhood; return the site."""
        state = self._sum(attempt)
        message = self._roster.take(data, Kind.OPENING, attempt)
        if message.sender not in self.survivors(attempt) or message.sender in state.openings:
            raise OutOfTurn("an opening came twice, or from a site that is not on the list")
        opened = Opening.read(self._roster, self._known_adverts(), message)
        if opened.listed != set(self.survivors(attempt)):
            raise Inconsistent("a site opened what belongs to another list")
        if self._false(message.sender, attempt, opened) is not None:
            raise Inconsistent("it opened another secret than it had signed in the set-up")
        state.openings[message.sender], state.opened[message.sender] = opened, bytes(data)
        return message.sender

    def _false(self, site: int, attempt: int, opened: Opening) -> int | None:
        """The site whose secret an opening is wrong about: the site itself, or the dealer of a share; None if it is
        right about all.
        """
        known = self._known_adverts()
        if not self._roster.dropouts:
            fits = blame.secret_fits(known, self._roster, site, attempt, True, opened.seed)
            return None if fits else site
        for dealer, share in opened.shares.items():
            dealt = self._dealt.get(dealer)
            if dealt and not dealt[1].holds(site, attempt, dealer in opened.listed, share, known.digest):
                return dealer
        return None

    def proof(self, data: bytes | bytearray | memoryview) -> bytes:
        """A proof (`blame`) that the site which signed this opening is guilty; empty if there is none."""
        try:
            message = wire.decode(data)
            message = self._roster.take(data, Kind.OPENING, message.attempt)
            opened = Opening.read(self._roster, self._known_adverts(), message)
        except BadMessage:
            return b""
        about = self._false(message.sender, message.attempt, opened)
        if about is None:
            return b""
        before = []
        if self._roster.dropouts:
            before = [self._dealt[about][0]]
            before += [self._ready[message.sender]] if about != message.sender else []
        return wire.pack([self._told, *before, bytes(data)])

    def commitments(self, attempt: int) -> dict[int, bytes]:
        """The signed commitments of the sites in a sum, after `close_list`."""
        return dict(self._sum(attempt).vectors.commitments)

    def result(self, attempt: int) -> Ring:
        """The sum of the listed sites' vectors, in Z_2^64. The attempt is over afterwards, whatever the result.

        Raises
        ------
        Abandoned
            If too few sites opened.
        FalseDealing
            If the shares that some site dealt do not give the secret that it advertised.
        Inconsistent
            The same after a restoration, when it is not known whether the dealer or a holder is at fault.
        """
        state, listed = self._sum(attempt), self.survivors(attempt)
        # Deleted first: whatever fails below, no second call can unmask this sum with other openings.
        self.abandon(attempt)
        about = self._known_adverts().context(attempt, state.context)
        if self._roster.dropouts:
            streams = self._reconstructed(attempt, state, set(listed), about)
        elif len(state.openings) == len(listed):
            streams = [(self_key(state.openings[s].seed, s, about), False) for s in listed]
        else:
            raise Abandoned("a site was lost before it opened its mask; nothing was unmasked")
        # Each stream needs an open cipher in every thread. 1000 sites of which 50 are lost have more than 13 000
        # streams, so they are taken 64 at a time.
        for at in range(0, len(streams), 64):
            masks.add(state.vectors.total, streams[at : at + 64])
        return state.vectors.total

    def _reconstructed(self, attempt: int, state: _Sum, listed: set[int], about: bytes) -> list[tuple[bytes, bool]]:
        """The masks left in the sum: self-masks of the listed sites, and the masks that lost sites
        share with listed ones.
        """
        known, threshold = self._known_adverts(), self._roster.shape.threshold
        # In a complete graph all sites have the same holders, so that the Lagrange weights are computed once for all of
        # them.
        weights: dict[tuple[int, ...], list[int]] = {}
        streams: list[tuple[bytes, bool]] = []
        false: dict[int, bytes] = {}
        for site in range(self._roster.sites):
            chosen = tuple(h for h in known.holders(site) if h in state.openings)[:threshold]
            if len(chosen) < threshold:
                raise Abandoned(f"only {len(chosen)} of {threshold} shares were opened; nothing was unmasked")
            shares = {h + 1: state.openings[h].shares[site] for h in chosen}
            if chosen not in weights:
                weights[chosen] = shamir.weights(list(shares))
            secret = _combined(shares, weights[chosen])
            # Every share has the hash that the site dealt: if the secret is another than it advertised, the site dealt
            # shares of something else. After a restoration the hashes are not known. Then a holder may be at fault, and
            # no site is blamed.
            if secret is None or not blame.secret_fits(known, self._roster, site, attempt, site in listed, secret):
                if site not in self._dealt:
                    raise Inconsistent("opened shares do not give the secret that a site advertised")
                false[site] = wire.pack([self._told, self._dealt[site][0], *(state.opened[h] for h in chosen)])
                continue
            if site in listed:
                streams.append((self_key(secret, site, about), False))
                continue
            for peer in known.neighbours[site]:
                # Masks between two lost sites are in no vector of the sum.
                if peer in listed:
                    # The peer subtracted this mask if the lost site comes before it, and added it otherwise.
                    key = pair_key(keys.agree(secret, known.masking[peer][attempt]), (site, peer), about)
                    streams.append((key, site < peer))
        if false:
            raise FalseDealing(false)
        return streams

    def abandon(self, attempt: int) -> None:
        """Give up an attempt and delete what was collected."""
        self._sums.pop(attempt, None)

    def _sum(self, attempt: int) -> _Sum:
        if attempt not in self._sums:
            raise OutOfTurn(f"attempt {attempt} is not under way")
        return self._sums[attempt]

    def _say(self, kind: Kind, attempt: int, body: bytes) -> bytes:
        return wire.encode(kind, self._roster.study, attempt, COORDINATOR, body)
