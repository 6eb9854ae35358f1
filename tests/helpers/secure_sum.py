"""All parties of one secure sum in one process: what the tests run, overhear and play the parts of."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np

from zerosum.secagg import wire
from zerosum.secagg.collector import Collector
from zerosum.secagg.commitments import COMMITTED_BYTES
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import Roster, SiteSession
from zerosum.secagg.wire import COORDINATOR, Kind

Take = Callable[[bytes], object]
CONTEXT = b"the sum that was asked for"


def settings(least: int, most: int) -> Iterator[tuple[int, int, int]]:
    """Every allowed (sites, colluders, dropouts) with so many sites."""
    for sites in range(least, most + 1):
        for colluders in range(sites):
            for dropouts in range((sites - colluders + 1) // 2):
                yield sites, colluders, dropouts


def random_vectors(sites: int, size: int = 5) -> list[Ring]:
    return [np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64) for _ in range(sites)]


def total(vectors: list[Ring], who: Iterable[int]) -> Ring:
    """The sum in Python's own integers."""
    rows = [[int(number) for number in vectors[s]] for s in who]
    return np.array([sum(column) % 2**64 for column in zip(*rows, strict=True)], dtype=np.uint64)


def masked(site: SiteSession, attempt: int, vector: Ring, context: bytes = CONTEXT) -> bytes:
    """A site's masked vector with its commitments, under a fresh secret."""
    committed = site.commit(attempt, vector, context, secrets.token_bytes(32))
    return site.mask(attempt, vector, context, committed)


def vector_of(data: bytes) -> Ring:
    """The masked vector in a message."""
    return np.frombuffer(wire.decode(data).body[COMMITTED_BYTES:], dtype=np.uint64)


class Study:
    """Honest parties. `log` holds every message; `before` is called ahead of each delivery, `speaking` says by whom."""

    def __init__(self, sites: int, colluders: int, dropouts: int, attempts: int = 1, like: Study | None = None) -> None:
        self.identities: list[Identity] = like.identities if like else [Identity() for _ in range(sites)]
        name: bytes = like.roster.study if like else secrets.token_bytes(16)
        self.roster: Roster = Roster(name, tuple(i.public for i in self.identities), attempts, colluders, dropouts)
        self.sites = [SiteSession(self.roster, s, identity) for s, identity in enumerate(self.identities)]
        self.collector = Collector(self.roster)
        self.everybody = range(sites)
        self.log: list[bytes] = []
        self.before: Callable[[Take, bytes], None] = lambda take, data: None
        self.speaking = ""

    def by_site(self, site: int, ask: Callable[[], bytes]) -> bytes:
        self.speaking = f"site {site}"
        reply = ask()
        self.log.append(reply)
        return reply

    def to_site(self, site: int, take: Callable[[bytes], bytes], data: bytes) -> bytes:
        self.log.append(data)
        self.before(take, data)
        return self.by_site(site, lambda: take(data))

    def to_collector(self, take: Take, data: bytes) -> None:
        self.before(take, data)
        self.speaking = "collector"
        take(data)

    def set_up(self) -> Study:
        for s in self.everybody:
            self.to_collector(self.collector.take_advert, self.by_site(s, self.sites[s].advertise))
        adverts = self.collector.adverts()
        for s in self.everybody:
            self.to_collector(self.collector.take_shares, self.to_site(s, self.sites[s].share, adverts))
        for s in self.everybody:
            ready = self.to_site(s, self.sites[s].receive, self.collector.delivery(s))
            self.to_collector(self.collector.take_ready, ready)
        assert not self.collector.disputes()
        return self

    def masked(self, attempt: int, vectors: list[Ring], who: Iterable[int]) -> dict[int, bytes]:
        return {
            s: self.by_site(s, lambda s=s: masked(self.sites[s], attempt, vectors[s]))  # type: ignore[misc]
            for s in who
        }

    def fold(self, attempt: int, masked: Mapping[int, bytes], size: int) -> None:
        self.collector.begin(attempt, size, CONTEXT)
        for data in masked.values():
            self.to_collector(lambda data: self.collector.take_masked(attempt, data), data)

    def run(
        self,
        attempt: int,
        vectors: list[Ring],
        unmasked: Collection[int] = (),
        unsigned: Collection[int] = (),
        unopened: Collection[int] = (),
    ) -> tuple[Ring, tuple[int, ...]]:
        """One attempt; the sites named are lost before they mask, before they sign, before they open."""
        here = [s for s in self.everybody if s not in unmasked]
        self.fold(attempt, self.masked(attempt, vectors, here), len(vectors[0]))
        return self.finish(attempt, unsigned, unopened)

    def finish(
        self, attempt: int, unsigned: Collection[int] = (), unopened: Collection[int] = ()
    ) -> tuple[Ring, tuple[int, ...]]:
        closed = self.collector.close_list(attempt)
        listed = self.collector.survivors(attempt)
        here = [s for s in listed if s not in unsigned]
        if self.roster.dropouts:
            for s in here:
                signed = self.to_site(s, lambda data, s=s: self.sites[s].sign(attempt, data), closed)  # type: ignore[misc]
                self.to_collector(lambda data: self.collector.take_signature(attempt, data), signed)
            closed = self.collector.warrant(attempt)
        for s in here:
            if s not in unopened:
                opening = self.to_site(s, lambda data, s=s: self.sites[s].open(attempt, data), closed)  # type: ignore[misc]
                self.to_collector(lambda data: self.collector.take_opening(attempt, data), opening)
        self.speaking = "collector"
        return self.collector.result(attempt), listed

    def site_message(self, site: int, kind: Kind, attempt: int, body: bytes) -> bytes:
        """Message of a site that deviates from the protocol."""
        return wire.encode(kind, self.roster.study, attempt, site, body, self.identities[site])

    def coordinator_message(self, kind: Kind, attempt: int, body: bytes) -> bytes:
        """Message of a coordinator that deviates from the protocol."""
        return wire.encode(kind, self.roster.study, attempt, COORDINATOR, body)

    def list_of(self, attempt: int, members: Iterable[int]) -> bytes:
        return self.coordinator_message(Kind.LIST, attempt, wire.pack_list(list(members), self.roster.sites))

    def opening_of(self, site: int, attempt: int, content: bytes) -> bytes:
        """What a site opens under the list of the collector, as one that deviates from the protocol would sign it."""
        known = self.collector._known_adverts()
        text = known.text(self.collector.survivors(attempt))
        return self.site_message(site, Kind.OPENING, attempt, text + content)

    def warrant_of(self, attempt: int, members: Iterable[int], signed: Mapping[int, bytes]) -> bytes:
        """A list and the signatures of these messages under it, as the coordinator would write them."""
        under = b"".join(s.to_bytes(4) + data[-64:] for s, data in signed.items())
        return self.coordinator_message(Kind.WARRANT, attempt, wire.pack_list(list(members), self.roster.sites) + under)
