"""What the coordinator can read before the last exchange is uniform, and no key ever serves twice.

Chi-square over bytes and over single bits. Each p-value is held against 5e-9, and there are fewer than 200 of them: a
false alarm comes once in a million runs.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from helpers.secure_sum import CONTEXT, Study, random_vectors, total, vector_of
from zerosum.errors import Forged
from zerosum.secagg import keys, masks, wire
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import pair_key
from zerosum.secagg.wire import Kind

LEVEL = 5e-9
SIZE = 1 << 15  # numbers in a vector


def assert_uniform(vector: Ring) -> None:
    octets = np.bincount(vector.view(np.uint8), minlength=256)
    expected = 8 * len(vector) / 256
    assert chi2.sf(((octets - expected) ** 2 / expected).sum(), 255) > LEVEL, "bytes are not uniform"
    bits = np.unpackbits(vector.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int64)  # per place
    half = len(vector) / 2
    assert chi2.sf(((bits - half) ** 2 / (half / 2)).sum(), 64) > LEVEL, "bits are not uniform"


def number(data: bytes) -> Ring:
    return vector_of(data)


def added(vectors: list[Ring]) -> Ring:
    result = np.zeros(SIZE, dtype=np.uint64)
    for vector in vectors:
        result += vector
    return result


def zeros(sites: int) -> list[Ring]:
    return [np.zeros(SIZE, dtype=np.uint64) for _ in range(sites)]


def test_assert_uniform_finds_values_that_are_not_uniform() -> None:
    for bad in (zeros(1)[0], np.arange(SIZE, dtype=np.uint64), np.full(SIZE, 2**64 - 1, dtype=np.uint64)):
        with pytest.raises(AssertionError, match="uniform"):
            assert_uniform(bad)
    good = np.frombuffer(np.random.default_rng(1).bytes(8 * SIZE), dtype=np.uint64)
    assert_uniform(good)
    with pytest.raises(AssertionError, match="uniform"):
        assert_uniform(good & np.uint64(2**64 - 2**40 - 1))  # one bit of 64 is never set


@pytest.mark.parametrize("dropouts", [0, 1])
def test_secagg_masked_zeros_and_differences_are_uniform(dropouts: int) -> None:
    """One site's vector; the same site in two attempts; two sites; the same study once more, set up anew."""
    first = Study(4, 1, dropouts, attempts=3).set_up()
    again = Study(4, 1, dropouts, attempts=1, like=first).set_up()
    seen = [{s: number(d) for s, d in first.masked(r, zeros(4), range(4)).items()} for r in range(3)]
    repeated = {s: number(d) for s, d in again.masked(0, zeros(4), range(4)).items()}
    for s in range(4):
        assert_uniform(seen[0][s])
        assert_uniform(repeated[s] - seen[0][s])
        for one, other in combinations(range(3), 2):
            assert_uniform(seen[one][s] - seen[other][s])
    for group in (2, 3):
        for members in combinations(range(4), group):
            assert_uniform(added([seen[0][s] for s in members]))
    for one, other in combinations(range(4), 2):
        assert_uniform(seen[0][one] - seen[0][other])


def test_secagg_sum_is_uniform_until_every_site_has_opened() -> None:
    study = Study(4, 1, 0).set_up()
    masked = study.masked(0, zeros(4), range(4))
    study.fold(0, masked, SIZE)
    closed = study.collector.close_list(0)
    about = study.collector._known_adverts().context(0, CONTEXT)
    running = added([number(data) for data in masked.values()])
    for s in range(4):
        assert_uniform(running)
        opening = study.sites[s].open(0, closed)
        seed = bytes(wire.decode(opening).body)[-32:]
        masks.add(running, [(keys.derive(seed, "self mask", b"%d " % s + about), False)])
    assert not running.any()


def test_secagg_late_vector_of_lost_site_stays_uniform() -> None:
    """Site 4 is declared lost, its key is opened, and then its vector arrives after all."""
    study = Study(5, 1, 1).set_up()
    vectors = [np.full(SIZE, s, dtype=np.uint64) for s in range(5)]
    late = study.masked(0, vectors, [4])[4]
    secrets_of_lost: list[bytes] = []
    combine = keys.public_of  # the collector checks the key it has put together: overhear it there

    def overheard(secret: bytes) -> bytes:
        secrets_of_lost.append(secret)
        return combine(secret)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "public_of", overheard)
        result, listed = study.run(0, vectors, unmasked=[4])
    assert listed == (0, 1, 2, 3)
    np.testing.assert_array_equal(result, total(vectors, listed))

    (secret,) = secrets_of_lost
    known = study.collector._known_adverts()
    about = known.context(0, CONTEXT)
    vector = number(late).copy()
    masks.add(
        vector, [(pair_key(keys.agree(secret, known.masking[peer][0]), (4, peer), about), True) for peer in range(4)]
    )
    assert_uniform(vector)  # every mask with the others is gone, its own is not
    assert not np.any(vector == vectors[4])
    assert_uniform(vector - vectors[4])


def test_secagg_masks_of_different_requests_do_not_cancel() -> None:
    study = Study(3, 1, 0).set_up()
    study.collector.begin(0, SIZE, b"one thing")
    for s, asked in enumerate([b"one thing", b"one thing", b"another"]):
        # The commitments of the third name the first request: otherwise its vector would not be added.
        committed = study.sites[s].commit(0, zeros(1)[0], b"one thing", bytes(32))
        study.collector.take_masked(0, study.sites[s].mask(0, zeros(1)[0], asked, committed))
    assert_uniform(study.finish(0)[0])


def test_secagg_sites_with_different_adverts_refuse_shares() -> None:
    """The third site advertises twice, and the coordinator shows each of the others another advert."""
    study = Study(3, 1, 0)
    twin = Study(3, 1, 0, like=study)
    adverts = [site.advertise() for site in study.sites]
    thirds = [adverts[2], twin.sites[2].advertise()]
    told = [study.coordinator_message(Kind.ADVERTS, 0, wire.pack([*adverts[:2], third])) for third in thirds]
    shares = [study.sites[s].share(told[t]) for s, t in ((0, 0), (1, 1), (2, 0))]
    sealed_for_first = [bytes(wire.unpack(wire.decode(shares[s]).body, 2)[0]) for s in (1, 2)]
    with pytest.raises(Forged, match="share"):
        study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, wire.pack(sealed_for_first)))


@pytest.mark.parametrize(("sites", "colluders", "dropouts"), [(4, 1, 0), (5, 1, 1), (6, 1, 2), (45, 2, 2)])
def test_secagg_no_key_is_derived_twice(
    sites: int, colluders: int, dropouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each (secret, purpose, context) is derived once by a party; by two sites only if they share it."""
    study = Study(sites, colluders, dropouts, attempts=4)
    derived: Counter[tuple[str, tuple[bytes, str, bytes]]] = Counter()
    streams: Counter[tuple[str, bytes]] = Counter()
    derive, add = keys.derive, masks.add

    def counted(secret: bytes, purpose: str, context: bytes) -> bytes:
        derived[study.speaking, (secret, purpose, context)] += 1
        return derive(secret, purpose, context)

    def counted_add(vector: Ring, with_keys: list[tuple[bytes, bool]], *more: Any) -> None:
        streams.update((study.speaking, key) for key, _ in with_keys)
        add(vector, with_keys, *more)

    monkeypatch.setattr(keys, "derive", counted)
    monkeypatch.setattr(masks, "add", counted_add)
    study.set_up()
    for attempt in range(4):
        lost = [attempt][:dropouts]
        study.run(attempt, random_vectors(sites), unmasked=lost if attempt % 2 else [], unsigned=lost)

    assert set(derived.values()) == {1}
    assert set(streams.values()) == {1}
    users: dict[tuple[bytes, str, bytes], set[str]] = {}
    for party, what in derived:
        users.setdefault(what, set()).add(party)
    allowed = {"seal": 2, "pair mask": 2, "self mask": 1}
    allowed |= {"seed hash": 1, "pair hash": 2, "commitment salt": 1, "commitment to the secret": 1}
    for (_, purpose, _), parties in users.items():
        assert len(parties - {"collector"}) <= allowed[purpose]
        assert purpose != "seal" or "collector" not in parties
    # the infos alone never repeat over different secrets either: each names what its key is for
    infos = Counter((purpose, context) for _, purpose, context in users)
    assert set(infos.values()) == {1}
    # and the coordinator never held both of one site and attempt: its self-mask, and its masks with others
    made = {what[1:] for party, what in derived if party == "collector"}
    for attempt in range(4):
        about = study.collector._known_adverts().context(attempt, CONTEXT)
        opened = {s for s in range(sites) if ("self mask", b"%d " % s + about) in made}
        lost_one = [attempt] if attempt % 2 and dropouts else []
        assert opened == set(range(sites)) - set(lost_one)
        for one, other in combinations(range(sites), 2):
            if ("pair mask", b"%d %d " % (one, other) + about) in made:
                assert {one, other} & set(lost_one)
