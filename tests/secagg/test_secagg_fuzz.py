"""A hundred thousand messages that are nearly right: only `BadMessage` comes out, and the sum is right afterwards.

Seeded, so that what fails once is met again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from helpers.secure_sum import Study, Take, masked, random_vectors, total
from zerosum.errors import Abandoned, BadMessage
from zerosum.secagg import keys, wire
from zerosum.secagg.masks import Ring
from zerosum.secagg.wire import Kind

EACH = 2200  # messages ahead of every delivery; there are 66 of these
HEAD = 36
FIELDS = [(0, 2), (2, 1), (3, 1), (4, 16), (20, 4), (24, 4), (28, 8)]  # of the header: where, how long


def flip(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5, 40))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))] if rng.random() < 0.5 else data[rng.randrange(len(data)) :]


def insert(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 4, 33, 64))) + data[at:]


def field(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    """Another value in the header: a small, a huge or a random one."""
    at, size = rng.choice(FIELDS)
    top = 1 << 8 * size
    value = rng.choice((0, 1, 2, 3, rng.randrange(12), top - 1, top // 2, rng.randrange(top)))
    return data[:at] + (value % top).to_bytes(size) + data[at + size :]


def splice(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    """The beginning of one message, the end of another, cut at random or where their parts meet."""
    other = rng.choice(pool)
    if rng.random() < 0.5:
        return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]
    ends = rng.choice(((HEAD, HEAD), (len(data) - 64, len(other) - 64), (rng.randrange(HEAD),) * 2))
    return data[: ends[0]] + other[ends[1] :]


def refit(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    """Another body of any length, with the length in the header made to agree."""
    body = data[HEAD:-64]
    body = rng.choice((b"", body[:-1], body + b"\0", rng.randbytes(len(body)), rng.choice(pool)[HEAD:-64]))
    return data[:28] + len(body).to_bytes(8) + body + data[-64:]


def noise(data: bytes, pool: list[bytes], rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(2 * len(data)))


Mutation = Callable[[bytes, list[bytes], random.Random], bytes]
MUTATIONS: list[Mutation] = [flip, flip, cut, insert, field, field, splice, splice, refit, noise]


def test_secagg_mutated_messages_are_refused_and_sum_is_right() -> None:
    study = Study(5, 1, 1, attempts=2)
    rng = random.Random(748)
    outcomes: Counter[type[BadMessage]] = Counter()

    def another_list(data: bytes) -> bool:
        """Whether this is a well-formed list: the coordinator may say what it likes there, and a site sign it."""
        try:
            message = study.roster.take(data, Kind.LIST, wire.decode(data).attempt)
            return len(wire.unpack_list(message.body, 5)) >= 4
        except BadMessage:
            return False

    def before(take: Take, data: bytes) -> None:
        pool = study.log
        for _ in range(EACH):
            source = data if rng.random() < 0.7 else rng.choice(pool)
            bad = rng.choice(MUTATIONS)(source, pool, rng)
            if bad in pool or another_list(bad):
                continue
            with pytest.raises(BadMessage) as caught:
                take(bad)
            outcomes[caught.type] += 1

    study.before = before
    study.set_up()
    for attempt, lost in ((0, [3]), (1, [])):
        vectors = random_vectors(5)
        result, listed = study.run(attempt, vectors, unmasked=lost)
        np.testing.assert_array_equal(result, total(vectors, listed))
    assert sum(outcomes.values()) > 100_000
    assert len(outcomes) == 6  # every kind of refusal was met


# -- garbage that is signed ------------------------------------------------------------------------------------------


def test_secagg_site_that_signs_garbage_is_refused() -> None:
    """Site 4 says anything, properly signed: it is refused by name, and no sum comes out wrong."""
    rng = random.Random(8439)
    ends: Counter[str] = Counter()
    for _ in range(200):
        spoiled = rng.choice((Kind.ADVERT, Kind.SHARES, Kind.READY, Kind.MASKED, Kind.SIGNED, Kind.OPENING))
        study = Study(5, 1, 1)
        vectors = random_vectors(5)

        def say(kind: Kind, honest: bytes, spoiled: Kind = spoiled, study: Study = study) -> bytes:
            if kind is not spoiled:
                return honest
            body = bytes(wire.decode(honest).body)
            garbage = rng.choice((b"", rng.randbytes(len(body)), body[:-1], body + b"\0", bytes(len(body))))
            return study.site_message(4, kind, 0, garbage)

        try:
            result = with_a_spoiler(study, vectors, say)
        except (BadMessage, Abandoned) as error:
            ends[type(error).__name__] += 1
        else:
            ends["right" if np.array_equal(result, total(vectors, range(5))) else "wrong"] += 1
    assert ends.keys() <= {"Malformed", "Forged", "Inconsistent", "OutOfTurn", "Abandoned"}


def with_a_spoiler(study: Study, vectors: list[Ring], say: Callable[[Kind, bytes], bytes]) -> Ring:
    collector, sites = study.collector, study.sites

    def each(kind: Kind, take: Take, ask: Callable[[int], bytes]) -> None:
        for s in range(5):
            take(say(kind, ask(s)) if s == 4 else ask(s))

    each(Kind.ADVERT, collector.take_advert, lambda s: sites[s].advertise())
    adverts = collector.adverts()
    each(Kind.SHARES, collector.take_shares, lambda s: sites[s].share(adverts))
    each(Kind.READY, collector.take_ready, lambda s: sites[s].receive(collector.delivery(s)))
    collector.begin(0, 5, b"")
    each(Kind.MASKED, lambda data: collector.take_masked(0, data), lambda s: masked(sites[s], 0, vectors[s], b""))
    closed = collector.close_list(0)
    each(Kind.SIGNED, lambda data: collector.take_signature(0, data), lambda s: sites[s].sign(0, closed))
    warrant = collector.warrant(0)
    each(Kind.OPENING, lambda data: collector.take_opening(0, data), lambda s: sites[s].open(0, warrant))
    return collector.result(0)


@pytest.mark.parametrize("octet", [b"\x00", b"\x01", b"\xff"])
def test_secagg_sealed_garbage_shares_are_disputed_in_set_up(octet: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are no shares, sealed by their site: its own hashes contradict them before anything is masked."""
    study, seal = Study(4, 1, 1), keys.seal

    def sealed(key: bytes, content: bytes, about: bytes) -> bytes:
        return seal(key, octet * len(content) if study.speaking == "site 3" else content, about)

    monkeypatch.setattr(keys, "seal", sealed)
    with pytest.raises(AssertionError):
        study.set_up()
    disputes = study.collector.disputes()
    assert {(dealer, holder) for dealer, holder, _ in disputes} == {(3, 0), (3, 1), (3, 2)}
