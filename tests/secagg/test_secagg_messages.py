"""Messages that are not what was expected: each is refused by name, and the honest one works afterwards."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from helpers.secure_sum import CONTEXT, Study, Take, masked, random_vectors, total
from zerosum.errors import (
    Abandoned,
    BadMessage,
    BadParameter,
    Forged,
    Inconsistent,
    Malformed,
    Misdirected,
    OutOfTurn,
    Unsupported,
)
from zerosum.secagg import blame, keys, masks, shamir, wire
from zerosum.secagg.commitments import COMMITTED_BYTES
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import Roster, SiteSession
from zerosum.secagg.wire import COORDINATOR, Kind

HEAD = struct.Struct(">2sBB16sIIQ")


def changed(data: bytes, at: int, value: bytes) -> bytes:
    at %= len(data)
    return data[:at] + value + data[at + len(value) :]


def flipped(data: bytes, at: int) -> bytes:
    return changed(data, at, bytes([data[at] ^ 1]))


def bad_forms(study: Study, data: bytes) -> list[tuple[type[BadMessage], bytes]]:
    """What any message can be turned into, and what each must be called."""
    message = wire.decode(data)
    other_kind = Kind(message.kind % 10 + 1)
    return [
        (Malformed, b""),
        (Malformed, data[:10]),
        (Malformed, data[:-1]),
        (Malformed, data + b"\0"),
        (Malformed, b"XX" + data[2:]),
        (Unsupported, changed(data, 2, b"\x00")),
        (Unsupported, changed(data, 2, b"\x01")),  # the version without commitments
        (Unsupported, changed(data, 2, b"\x03")),  # a version from the future
        (Unsupported, changed(data, 2, b"\xff")),
        (Malformed, changed(data, 3, b"\x00")),
        (Malformed, changed(data, 3, bytes([max(Kind) + 1]))),
        (OutOfTurn, changed(data, 3, bytes([other_kind]))),
        (Misdirected, changed(data, 4, bytes(16))),  # another study
        (Misdirected, changed(data, 20, (message.attempt + 1).to_bytes(4))),  # another attempt
        (Misdirected, changed(data, 20, b"\xff\xff\xff\xff")),
        (Malformed, changed(data, 28, (2**64 - 1).to_bytes(8))),
        (Malformed, changed(data, 28, (len(message.body) + 1).to_bytes(8))),
        (Malformed, changed(data, 28, (2**63).to_bytes(8))),
        (Forged, changed(data, 24, (study.roster.sites).to_bytes(4))),  # nobody on the roster
        (Forged, changed(data, 24, (2**31).to_bytes(4))),
        (Forged, flipped(data, len(data) - 1)),
    ]


def body_with(message: bytes, numbers: int) -> bytes:
    """The commitments of a masked message, and another number of bytes behind them."""
    return bytes(wire.decode(message).body[:COMMITTED_BYTES]) + bytes(numbers)


def site_forms(study: Study, data: bytes) -> list[tuple[type[BadMessage], bytes]]:
    message = wire.decode(data)
    stranger = Identity()
    parts = (message.kind, message.study, message.attempt)
    return [
        *bad_forms(study, data),
        (Forged, changed(data, 24, ((message.sender + 1) % study.roster.sites).to_bytes(4))),
        (Forged, changed(data, 24, COORDINATOR.to_bytes(4))),
        (Forged, wire.encode(*parts, message.sender, message.body, stranger)),  # a key the roster does not know
        (Forged, wire.encode(*parts, message.sender, message.body)),  # no signature
        *((Forged, flipped(data, at)) for at in range(HEAD.size, len(data) - 64, max(1, len(message.body) // 9))),
    ]


def test_secagg_every_message_in_bad_form_is_refused_and_study_goes_on() -> None:
    """Ahead of every delivery of a study with a loss; then the study goes on as if nothing had been."""
    study = Study(5, 1, 1, attempts=3)
    count = 0

    def before(take: Take, data: bytes) -> None:
        nonlocal count
        forms = bad_forms(study, data) if wire.decode(data).sender == COORDINATOR else site_forms(study, data)
        for error, bad in forms:
            with pytest.raises(error):
                take(bad)
            count += 1

    study.before = before
    study.set_up()
    for attempt, lost in ((0, []), (1, [2])):
        vectors = random_vectors(5)
        result, listed = study.run(attempt, vectors, unmasked=lost)
        np.testing.assert_array_equal(result, total(vectors, listed))
    assert count > 1500


def test_secagg_repeated_messages_are_refused_by_collector() -> None:
    """A message that was taken is taken once by the collector; sites give the same answer again."""
    study = Study(5, 1, 1, attempts=2)
    taken: list[tuple[Take, bytes]] = []
    study.before = lambda take, data: taken.append((take, data))
    study.set_up()
    vectors = random_vectors(5)
    study.fold(0, study.masked(0, vectors, range(4)), 5)
    for take, data in taken:
        if wire.decode(data).sender == COORDINATOR:
            assert take(data) == take(data)
        elif wire.decode(data).kind is not Kind.READY:
            with pytest.raises(OutOfTurn):
                take(data)
    collector = study.collector
    for early in (collector.warrant, collector.result, collector.survivors):
        with pytest.raises(OutOfTurn, match="list"):
            early(0)
    with pytest.raises(OutOfTurn):
        collector.take_signature(0, study.site_message(0, Kind.SIGNED, 0, b"\x0f" + collector._known_adverts().digest))
    with pytest.raises(OutOfTurn):
        collector.take_opening(0, study.site_message(0, Kind.OPENING, 0, bytes(165)))
    result, listed = study.finish(0)
    np.testing.assert_array_equal(result, total(vectors, listed))
    for kind, late in (
        (Kind.MASKED, collector.take_masked),
        (Kind.SIGNED, collector.take_signature),
        (Kind.OPENING, collector.take_opening),
    ):
        with pytest.raises(OutOfTurn, match="attempt"):
            late(0, study.site_message(0, kind, 0, bytes(40)))
    with pytest.raises(Misdirected):
        collector.begin(0, 5, CONTEXT)  # over is over
    collector.begin(1, 5, CONTEXT)
    collector.abandon(1)
    with pytest.raises(Misdirected):
        collector.begin(1, 5, CONTEXT)


def test_secagg_steps_of_site_out_of_order_are_refused() -> None:
    study = Study(3, 0, 1, attempts=2)
    site, (vector,) = study.sites[0], random_vectors(1)
    for early in (lambda: masked(site, 0, vector), lambda: site.abandon(0)):
        with pytest.raises(OutOfTurn):
            early()
    with pytest.raises(OutOfTurn):
        site.receive(study.coordinator_message(Kind.DELIVERY, 0, b""))
    study.set_up()
    with pytest.raises(OutOfTurn, match="attempt"):
        site.sign(0, study.list_of(0, range(3)))
    with pytest.raises(OutOfTurn, match="attempt"):
        site.open(0, study.warrant_of(0, range(3), {}))
    for nowhere in (-1, 2, 2**32):
        with pytest.raises(Misdirected):
            masked(site, nowhere, vector)
    masked(site, 0, vector)
    for again in (vector, vector + np.uint64(1)):
        with pytest.raises(OutOfTurn, match="attempt"):
            masked(site, 0, again)


@pytest.mark.parametrize(
    "vector", [np.zeros(0, np.uint64), np.zeros((2, 2), np.uint64), np.zeros(2), np.zeros(2, np.int64)]
)
def test_secagg_mask_of_bad_vector_uses_no_attempt(
    vector: Ring,
) -> None:
    study = Study(3, 1, 0).set_up()
    with pytest.raises(BadParameter):
        study.sites[0].mask(0, vector, CONTEXT, b"")
    vectors = random_vectors(3)
    np.testing.assert_array_equal(study.run(0, vectors)[0], total(vectors, range(3)))


@pytest.mark.parametrize(
    "size", [1, 2, 3, masks.BLOCK + 1, masks.PART + 1, 2 * masks.PART + 5, masks.SERIAL_LENGTH + 3]
)
@pytest.mark.parametrize(("sites", "dropouts"), [(2, 0), (4, 1)])
def test_secagg_masked_message_is_signed_and_vector_unchanged(size: int, sites: int, dropouts: int) -> None:
    study = Study(sites, 0, dropouts, attempts=2).set_up()
    sent: list[bytes] = []
    copies: list[bytes] = []
    for attempt in range(2):
        vectors = random_vectors(sites, size)  # read-only
        before = [vector.copy() for vector in vectors]
        sums = study.masked(attempt, vectors, range(sites))
        for s, data in sums.items():
            message = wire.decode(data)
            body = bytes(message.body)
            assert data == wire.encode(Kind.MASKED, study.roster.study, attempt, s, body, study.identities[s])
            assert len(body) == COMMITTED_BYTES + 8 * size
        study.fold(attempt, sums, size)
        np.testing.assert_array_equal(study.finish(attempt)[0], sum(before[1:], before[0]))
        np.testing.assert_array_equal(vectors, before)
        sent += sums.values()
        copies += [bytes(bytearray(data)) for data in sums.values()]
    assert sent == copies  # the second round wrote into no message of the first


@pytest.mark.parametrize("few", [masks.SERIAL_LENGTH, masks.PART])
def test_secagg_failed_mask_sends_nothing_and_uses_no_attempt(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(3, 1, 0).set_up()
    monkeypatch.setattr(masks, "SERIAL_LENGTH", few)
    vectors = random_vectors(3, 2 * masks.PART + 1)
    add, first = masks._add, [masks.PART]

    def failing(*how: Any) -> Ring:
        if how[-1] in first:
            raise MemoryError
        return add(*how)

    monkeypatch.setattr(masks, "_add", failing)
    with pytest.raises(MemoryError):
        masked(study.sites[0], 0, vectors[0])
    with pytest.raises(OutOfTurn, match="attempt"):
        study.sites[0].open(0, study.list_of(0, range(3)))
    first.clear()
    np.testing.assert_array_equal(study.run(0, vectors)[0], vectors[0] + vectors[1] + vectors[2])


# -- set-up ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> tuple[Study, list[bytes]]:
    """A study up to the deliveries, and these."""
    study = Study(4, 1, 1, attempts=2)
    for site in study.sites:
        study.collector.take_advert(site.advertise())
    adverts = study.collector.adverts()
    for site in study.sites:
        study.collector.take_shares(site.share(adverts))
    return study, [study.collector.delivery(s) for s in range(4)]


def test_secagg_shares_under_other_sender_are_refused(shared: tuple[Study, list[bytes]]) -> None:
    study, deliveries = shared
    parts = [bytes(part) for part in wire.unpack(wire.decode(deliveries[0]).body, 3)]
    wrong = [
        [parts[1], parts[0], parts[2]],
        [parts[2], parts[0], parts[1]],
        [parts[0], parts[0], parts[0]],
        [flipped(parts[0], 5), *parts[1:]],
        [parts[0][:-1], *parts[1:]],
        [b"", *parts[1:]],
        [*parts[:2], parts[2] + b"\0"],
    ]
    for mail in wrong:
        with pytest.raises(Forged):
            study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, wire.pack(mail)))
    for mail in (parts[:2], [*parts, parts[0]], []):
        with pytest.raises(Malformed):
            study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, wire.pack(mail)))
    with pytest.raises(Malformed):
        study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, wire.pack(parts)[:-1]))
    with pytest.raises(Forged):
        study.sites[0].receive(deliveries[1])  # somebody else's
    with pytest.raises(OutOfTurn):
        masked(study.sites[0], 0, random_vectors(1)[0])
    for s, site in enumerate(study.sites):
        study.collector.take_ready(site.receive(deliveries[s]))
    with pytest.raises(Inconsistent, match="READY"):
        study.sites[0].receive(deliveries[1])
    vectors = random_vectors(4)
    np.testing.assert_array_equal(study.run(0, vectors, unmasked=[1])[0], total(vectors, [0, 2, 3]))


def test_secagg_sealed_share_of_wrong_size_is_refused(shared: tuple[Study, list[bytes]]) -> None:
    """A neighbour that seals too little is caught by whom it seals for, even past a careless coordinator."""
    study, deliveries = shared
    known = study.sites[3]._known_adverts()
    parts = [bytes(part) for part in wire.unpack(wire.decode(deliveries[0]).body, 3)]
    parts[2] = keys.seal(study.sites[3]._seal_key(known, 3, 0), bytes(shamir.SHARE_BYTES), known.digest)
    with pytest.raises(Malformed, match="shares"):
        study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, wire.pack(parts)))
    assert study.sites[0].receive(deliveries[0])


def test_secagg_delivery_repeats_until_received(shared: tuple[Study, list[bytes]]) -> None:
    study, deliveries = shared
    assert study.collector.delivery(0) == deliveries[0]
    study.collector.take_ready(study.sites[0].receive(deliveries[0]))
    with pytest.raises(OutOfTurn):
        study.collector.delivery(0)
    assert study.collector.delivery(1) == deliveries[1]


def test_secagg_collector_takes_set_up_messages_in_order_only() -> None:
    study = Study(3, 1, 0)
    collector, sites = study.collector, study.sites
    adverts = [site.advertise() for site in sites]
    ready = study.site_message(0, Kind.READY, 0, b"")
    for early in (
        collector.adverts,
        lambda: collector.delivery(0),
        lambda: collector.take_shares(study.site_message(0, Kind.SHARES, 0, b"")),
        lambda: collector.take_ready(ready),
    ):
        with pytest.raises(OutOfTurn):
            early()
    for body in (b"", bytes(32), bytes(65), bytes(64), bytes(128)):
        with pytest.raises(Malformed):
            collector.take_advert(study.site_message(0, Kind.ADVERT, 0, body))
    for advert in adverts:
        collector.take_advert(advert)
    with pytest.raises(OutOfTurn):
        collector.take_advert(adverts[0])
    told = collector.adverts()
    shares = [site.share(told) for site in sites]
    for body in (b"", wire.pack([b""]), wire.pack([b"", b""]), wire.pack([bytes(16), bytes(17)]), b"\xff" * 8):
        with pytest.raises(Malformed):
            collector.take_shares(study.site_message(0, Kind.SHARES, 0, body))
    for data in shares[:2]:
        collector.take_shares(data)
    with pytest.raises(OutOfTurn):
        collector.delivery(0)
    collector.take_shares(shares[2])
    with pytest.raises(OutOfTurn):
        collector.delivery(3)


def test_secagg_collector_with_copied_key_raises() -> None:
    study = Study(3, 1, 0)
    adverts = [site.advertise() for site in study.sites]
    adverts[2] = study.site_message(2, Kind.ADVERT, 0, bytes(wire.decode(adverts[1]).body))
    for advert in adverts:
        study.collector.take_advert(advert)
    with pytest.raises(Forged, match="key"):
        study.collector.adverts()


# -- attempts --------------------------------------------------------------------------------------------------------


def test_secagg_collector_refuses_bad_vectors_signatures_and_openings() -> None:
    study = Study(5, 1, 1, attempts=2).set_up()
    collector, vectors = study.collector, random_vectors(5)
    text = collector._known_adverts().text
    for attempt, size in ((2, 5), (-1, 5)):
        with pytest.raises(Misdirected):
            collector.begin(attempt, size, CONTEXT)
    for size in (0, -1):
        with pytest.raises(BadParameter):
            collector.begin(0, size, CONTEXT)
    sent = study.masked(0, vectors, range(5))
    with pytest.raises(OutOfTurn):
        collector.take_masked(0, sent[0])
    collector.begin(0, 5, CONTEXT)
    for size in (0, 1, 39, 41, 32, 48, 320):
        with pytest.raises(Malformed, match="5"):
            collector.take_masked(0, study.site_message(0, Kind.MASKED, 0, body_with(sent[0], size)))
    for s in range(4):
        assert collector.take_masked(0, sent[s]) == s
    with pytest.raises(OutOfTurn):
        collector.take_masked(0, sent[0])
    closed = collector.close_list(0)
    assert collector.close_list(0) == closed
    with pytest.raises(OutOfTurn):
        collector.take_masked(0, sent[4])  # too late

    for body in (text(range(5)), text([0, 1, 2, 4]), b"\x0f", b"", text(range(4))[:-1], b"\x0f" + bytes(32)):
        with pytest.raises(Inconsistent):
            collector.take_signature(0, study.site_message(0, Kind.SIGNED, 0, body))
    with pytest.raises(OutOfTurn, match="list"):
        collector.take_signature(0, study.site_message(4, Kind.SIGNED, 0, text(range(4))))
    for s in range(4):
        collector.take_signature(0, study.sites[s].sign(0, closed))
        collector.take_signature(0, study.sites[s].sign(0, closed))  # again does no harm
    with pytest.raises(Inconsistent):
        study.sites[4].sign(0, closed)
    warrant = collector.warrant(0)
    for size in (0, 32, 33 * 4, 33 * 5 - 1, 33 * 6):
        with pytest.raises(Malformed, match="165"):
            collector.take_opening(0, study.opening_of(0, 0, bytes(size)))
    with pytest.raises(Inconsistent, match="set-up"):
        collector.take_opening(0, study.site_message(0, Kind.OPENING, 0, b"\x0f" + bytes(32 + 165)))
    with pytest.raises(Inconsistent, match="list"):
        collector.take_opening(0, study.site_message(0, Kind.OPENING, 0, text(range(5)) + bytes(165)))
    with pytest.raises(OutOfTurn, match="list"):
        collector.take_opening(0, study.site_message(4, Kind.OPENING, 0, bytes(165)))
    for s in range(4):
        assert collector.take_opening(0, study.sites[s].open(0, warrant)) == s
    with pytest.raises(OutOfTurn):
        collector.take_opening(0, study.sites[0].open(0, warrant))
    np.testing.assert_array_equal(collector.result(0), total(vectors, range(4)))


@pytest.mark.parametrize(
    "share", [b"\xff" * 33, shamir.PRIME.to_bytes(33), bytes(33)], ids=["all ones", "the prime", "zero"]
)
@pytest.mark.parametrize(("colluders", "left"), [(0, True), (1, False)], ids=["enough are left", "too few are left"])
def test_secagg_wrong_share_of_lost_site_is_left_out_and_proven(share: bytes, colluders: int, left: bool) -> None:
    study = Study(5, colluders, 1).set_up()
    vectors = random_vectors(5)
    study.fold(0, study.masked(0, vectors, [0, 1, 2, 3]), 5)
    held = study.collector._sums[0].vectors.total
    closed = study.collector.close_list(0)
    for s in range(4):
        study.collector.take_signature(0, study.sites[s].sign(0, closed))
    warrant = study.collector.warrant(0)
    for s in range(4):
        opening = study.sites[s].open(0, warrant)
        if s == 0:
            opening = study.site_message(0, Kind.OPENING, 0, bytes(wire.decode(opening).body)[:-33] + share)
            with pytest.raises(Inconsistent, match="another secret"):
                study.collector.take_opening(0, opening)
            assert blame.guilty(study.roster, study.collector.proof(opening)) == 0
            continue
        study.collector.take_opening(0, opening)
    if left:
        np.testing.assert_array_equal(study.collector.result(0), total(vectors, range(4)))
        return
    with pytest.raises(Abandoned, match="shares"):
        study.collector.result(0)
    assert not np.any(held == total(vectors, range(4)))  # nothing was unmasked
    with pytest.raises(OutOfTurn):
        study.collector.result(0)


def test_secagg_collector_before_enough_messages_abandons() -> None:
    study = Study(4, 1, 1, attempts=2).set_up()
    study.fold(0, study.masked(0, random_vectors(4), range(4)), 5)
    study.collector.close_list(0)
    with pytest.raises(Abandoned, match="0"):
        study.collector.warrant(0)
    study.fold(1, study.masked(1, random_vectors(4), range(2)), 5)
    with pytest.raises(Abandoned, match=r"2\D+4"):
        study.collector.close_list(1)


# -- rosters ---------------------------------------------------------------------------------------------------------


def test_secagg_bad_roster_is_refused() -> None:
    public = [Identity().public for _ in range(4)]
    for study, identities, attempts, colluders, dropouts in [
        (bytes(15), public, 1, 1, 0),
        (bytes(17), public, 1, 1, 0),
        (bytes(16), public[:1], 1, 0, 0),
        (bytes(16), [*public[:3], public[0]], 1, 1, 0),
        (bytes(16), public, 0, 1, 0),
        (bytes(16), public, -1, 1, 0),
        (bytes(16), public, 1, 4, 0),
        (bytes(16), public, 1, 2, 1),
        (bytes(16), public, 1, 0, 2),
        (bytes(16), public, 1, -1, 0),
        (bytes(16), public, 1, 1, -1),
    ]:
        with pytest.raises(BadParameter):
            Roster(study, tuple(identities), attempts, colluders, dropouts)


def test_secagg_session_with_other_identity_than_roster_is_refused() -> None:
    identities = [Identity() for _ in range(3)]
    roster = Roster(bytes(16), tuple(i.public for i in identities), 1, 1, 0)
    for me, identity in ((0, identities[1]), (0, Identity()), (3, identities[2]), (-1, identities[2])):
        with pytest.raises(Misdirected):
            SiteSession(roster, me, identity)


def test_secagg_roster_digest_depends_on_every_field() -> None:
    public = tuple(Identity().public for _ in range(5))
    rosters = [
        Roster(bytes(16), public, 1, 1, 1),
        Roster(b"\1" * 16, public, 1, 1, 1),
        Roster(bytes(16), public[::-1], 1, 1, 1),
        Roster(bytes(16), public[:4], 1, 1, 1),
        Roster(bytes(16), public, 2, 1, 1),
        Roster(bytes(16), public, 1, 2, 1),
        Roster(bytes(16), public, 1, 1, 0),
        Roster(bytes(16), public, 11, 1, 1),
    ]
    assert len({roster.digest for roster in rosters}) == len(rosters)
