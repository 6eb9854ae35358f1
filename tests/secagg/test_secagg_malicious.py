"""A coordinator that lies, with C sites that hand over everything they hold: it opens one list at most, and of no site
and attempt ever both secrets.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations, product

import pytest

from helpers.secure_sum import Study, masked, random_vectors, settings
from zerosum.errors import BadMessage, Forged, Inconsistent, Malformed, OutOfTurn
from zerosum.secagg import keys, shamir, wire
from zerosum.secagg.session import SiteSession
from zerosum.secagg.wire import Kind

List = tuple[int, ...]


@pytest.fixture(autouse=True)
def _each_signature_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "check_signature", lru_cache(maxsize=4096)(keys.check_signature))


class Liar:
    """Runs a study up to the masked vectors, then does as it likes. The last C sites are its own."""

    def __init__(self, sites: int, colluders: int, dropouts: int, attempts: int) -> None:
        self.study = Study(sites, colluders, dropouts, attempts).set_up()
        self.roster = self.study.roster
        self.honest = range(sites - colluders)
        self.colluders = range(sites - colluders, sites)
        self.lists = [members for lost in range(dropouts + 1) for members in combinations(range(sites), sites - lost)]

    def mask(self, attempt: int) -> None:
        vectors = random_vectors(self.roster.sites, 1)
        for s in self.honest:
            masked(self.study.sites[s], attempt, vectors[s])

    def held(self, attempt: int) -> dict[int, tuple[set[int], set[int]]]:
        """Of each honest site: whose shares of its key, and of its self-mask, the colluders hand over."""
        for c in self.colluders:
            assert set(self.study.sites[c]._attempts[attempt].shares) == set(range(self.roster.sites))
        return {s: (set(self.colluders), set(self.colluders)) for s in self.honest}

    def signatures(self, attempt: int, shown: Sequence[List]) -> dict[List, dict[int, bytes]]:
        """Show each honest site a list of its own; colluders sign every list that names them."""
        signed: dict[List, dict[int, bytes]] = {members: {} for members in self.lists}
        for s, members in zip(self.honest, shown, strict=True):
            try:
                signed[members][s] = self.study.sites[s].sign(attempt, self.study.list_of(attempt, members))
            except Inconsistent:
                assert s not in members
        for members in self.lists:
            text = self.study.collector._known_adverts().text(members)
            for c in set(self.colluders) & set(members):
                signed[members][c] = self.study.site_message(c, Kind.SIGNED, attempt, text)
        return {members: dict(sorted(under.items())) for members, under in signed.items()}

    def opens(self, attempt: int, s: int, warrant: bytes) -> bool:
        try:
            return bool(self.study.sites[s].open(attempt, warrant))
        except BadMessage:
            return False

    def check(self, attempt: int, opened: dict[int, set[List]]) -> None:
        """Count what it holds: of no honest site may both secrets be within reach."""
        threshold = self.roster.shape.threshold
        shares = self.held(attempt)
        for holder, lists in opened.items():
            assert len(lists) <= 1
            for members in lists:
                for s in self.honest:
                    shares[s][s in members].add(holder)
        for of_key, of_seed in shares.values():
            assert len(of_key) < threshold or len(of_seed) < threshold

    def attack(self, attempt: int, shown: Sequence[List]) -> set[List]:
        """Collect signatures, try every list on every honest site, and return the lists that were opened."""
        self.mask(attempt)
        opened: dict[int, set[List]] = {s: set() for s in self.honest}
        for members, under in self.signatures(attempt, shown).items():
            chosen = dict(list(under.items())[: self.roster.signatures])
            warrant = self.study.warrant_of(attempt, members, chosen)
            for s in self.honest:
                if self.opens(attempt, s, warrant):
                    assert len(under) >= self.roster.signatures
                    opened[s].add(members)
        self.check(attempt, opened)
        return set().union(*opened.values())


@pytest.mark.parametrize("setting", [s for s in settings(5, 5) if s[2]])
def test_secagg_any_split_of_two_lists_opens_at_most_one(setting: tuple[int, int, int]) -> None:
    """Every pair of lists (of 120 with two losses, 40 at random), every way to show them to the honest sites."""
    sites, colluders, _ = setting
    lists = Liar(*setting, 1).lists
    pairs = list(combinations(lists, 2))
    random.shuffle(pairs)
    tries = [[pair[n] for n in split] for pair in pairs[:40] for split in product((0, 1), repeat=sites - colluders)]
    liar = Liar(*setting, len(tries))
    opened = [liar.attack(attempt, shown) for attempt, shown in enumerate(tries)]
    assert max(map(len, opened)) == 1  # some splits open one list; none opens two


@pytest.mark.parametrize("setting", [s for s in settings(6, 7) if s[2]])
def test_secagg_any_assignment_of_lists_opens_at_most_one(setting: tuple[int, int, int]) -> None:
    """Random lists, more than two at once, to sites at random."""
    sites, colluders, _ = setting
    liar = Liar(*setting, 40)
    for attempt in range(40):
        few = random.sample(liar.lists, random.randint(1, 3))
        shown = [random.choice(few) for _ in range(sites - colluders)]
        assert len(liar.attack(attempt, shown)) <= 1


@pytest.mark.parametrize("setting", [s for s in settings(5, 7) if s[2]])
def test_secagg_threshold_without_signatures_opens_at_most_one_list(
    setting: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if every warrant were believed, a site opens once, and 2t > S + C keeps the second secret out of reach."""
    monkeypatch.setattr(SiteSession, "_check_warrant", lambda *_: None)
    liar = Liar(*setting, 60)
    for attempt in range(60):
        liar.mask(attempt)
        opened: dict[int, set[List]] = {s: set() for s in liar.honest}
        few = random.sample(liar.lists, 2)
        for s in liar.honest:
            for members in random.sample(few, 2):
                if liar.opens(attempt, s, liar.study.warrant_of(attempt, members, {})):
                    opened[s].add(members)
        liar.check(attempt, opened)


def test_secagg_openings_reconstruct_one_secret_of_site_only() -> None:
    """The bytes themselves: all openings and the colluder's shares give what the list opens, and nothing else."""
    study = Study(5, 1, 1)
    secret = [(site._attempts[0].secret, site._attempts[0].seed) for site in study.sites]
    study.set_up()
    kept = {c: dict(study.sites[c]._attempts[0].shares) for c in (4,)}
    study.masked(0, random_vectors(5), range(5))
    listed = (0, 1, 2, 4)
    signed = {s: study.sites[s].sign(0, study.list_of(0, listed)) for s in (0, 1, 2, 4)}
    warrant = study.warrant_of(0, listed, signed)
    size = shamir.SHARE_BYTES
    before = len(study.collector._known_adverts().text(listed))
    bodies = {s: bytes(wire.decode(study.sites[s].open(0, warrant)).body)[before:] for s in (0, 1, 2)}
    for s in range(4):
        given = {holder + 1: body[s * size : (s + 1) * size] for holder, body in bodies.items()}
        wanted, other = (0, 1) if s == 3 else (1, 0)
        assert shamir.combine({**given, 5: kept[4][s][wanted]}) == secret[s][wanted]
        assert shamir.combine({**given, 5: kept[4][s][other]}) not in secret[s]
        assert shamir.combine(given) not in secret[s]


# -- one site, and what it must not be talked into -------------------------------------------------------------------


@pytest.fixture
def study() -> Study:
    study = Study(5, 1, 1, attempts=2).set_up()
    study.masked(0, random_vectors(5), range(5))
    return study


def sign(study: Study, members: Iterable[int], attempt: int = 0) -> dict[int, bytes]:
    """Signatures of all members, made without asking the sites."""
    listed = sorted(members)
    text = study.collector._known_adverts().text(listed)
    return {s: study.site_message(s, Kind.SIGNED, attempt, text) for s in listed}


def first(signed: dict[int, bytes], count: int) -> dict[int, bytes]:
    return dict(list(signed.items())[:count])


def test_secagg_site_that_signed_one_list_refuses_other(study: Study) -> None:
    site = study.sites[0]
    site.sign(0, study.list_of(0, [0, 1, 2, 3]))
    other = study.warrant_of(0, [0, 1, 2, 4], sign(study, [0, 1, 2, 4]))
    with pytest.raises(Inconsistent, match="list"):
        site.open(0, other)
    with pytest.raises(Inconsistent, match="list"):
        site.sign(0, study.list_of(0, range(5)))
    right = study.warrant_of(0, [0, 1, 2, 3], sign(study, [0, 1, 2, 3]))
    assert site.open(0, right) == site.open(0, right)
    with pytest.raises(Inconsistent, match="list"):
        site.open(0, other)


def test_secagg_site_that_opened_unsigned_signs_same_list_only(study: Study) -> None:
    site, listed = study.sites[0], [0, 1, 2, 3]
    site.open(0, study.warrant_of(0, listed, sign(study, listed)))
    assert site.sign(0, study.list_of(0, listed)) == site.sign(0, study.list_of(0, listed))
    with pytest.raises(Inconsistent):
        site.sign(0, study.list_of(0, range(5)))


@pytest.mark.parametrize("members", [[], [0], [0, 1, 2], [1, 2, 3, 4]], ids=["nobody", "one", "too few", "not itself"])
def test_secagg_bad_list_is_refused_by_site(study: Study, members: list[int]) -> None:
    with pytest.raises(Inconsistent):
        study.sites[0].sign(0, study.list_of(0, members))
    with pytest.raises(Inconsistent):
        study.sites[0].open(0, study.warrant_of(0, members, sign(study, members)))
    assert study.sites[0].sign(0, study.list_of(0, range(5)))


def test_secagg_bad_warrant_is_refused(study: Study) -> None:
    site, listed = study.sites[0], [0, 1, 2, 3]
    signed = sign(study, listed)
    everybody = sign(study, range(5))
    twin = Study(5, 1, 1, attempts=2, like=study).set_up()  # the same sites in the same study, set up once more
    refused = [
        (Malformed, first(signed, 3)),  # too few
        (Malformed, {}),
        (Malformed, {**signed, 4: everybody[4]}),  # too many
        (Forged, {**first(signed, 3), 4: sign(study, range(5))[4]}),  # of a site that is not on the list
        (Forged, first(everybody, 4)),  # under another list
        (Forged, sign(study, listed, attempt=1)),  # in another attempt
        (Forged, sign(twin, listed)),  # in another set-up
        (Forged, {**first(signed, 3), 3: signed[2]}),  # one site's under another's name
        (Forged, dict(reversed(signed.items()))),  # out of order
        (Forged, {**first(signed, 3), 2**32 - 1: signed[3]}),
    ]
    for error, under in refused:
        with pytest.raises(error):
            site.open(0, study.warrant_of(0, listed, under))
    twice = wire.decode(study.warrant_of(0, listed, first(signed, 3))).body
    with pytest.raises(Forged):
        site.open(0, study.coordinator_message(Kind.WARRANT, 0, bytes(twice) + (2).to_bytes(4) + signed[2][-64:]))
    assert site.open(0, study.warrant_of(0, listed, signed))


def test_secagg_without_dropouts_only_full_list_opens() -> None:
    study = Study(3, 0, 0).set_up()
    study.masked(0, random_vectors(3), range(3))
    for members in [(), (0,), (0, 1), (0, 2)]:
        with pytest.raises(Inconsistent):
            study.sites[0].open(0, study.list_of(0, members))
    assert study.sites[0].open(0, study.list_of(0, range(3)))


# -- a set-up that is not what it seems ------------------------------------------------------------------------------


def adverts_with(study: Study, site: int, body: bytes) -> bytes:
    """Everybody's adverts, with this body in place of one site's own, signed by that site."""
    adverts = [s.advertise() for s in study.sites]
    adverts[site] = study.site_message(site, Kind.ADVERT, 0, body)
    return study.coordinator_message(Kind.ADVERTS, 0, wire.pack(adverts))


def body_of(advert: bytes) -> bytes:
    return bytes(wire.decode(advert).body)


def test_secagg_copied_key_is_refused() -> None:
    study = Study(4, 1, 1, attempts=2)
    own, other = body_of(study.sites[3].advertise()), body_of(study.sites[1].advertise())
    hashes = own[96:]
    for copied in (
        other,
        own[:64] + other[64:96] + hashes,
        other[:32] + own[32:],
        own[:32] * 3 + hashes,
        own[:64] + own[32:64] + hashes,
    ):
        with pytest.raises(Forged, match="key"):
            study.sites[0].share(adverts_with(study, 3, copied))
    study.set_up()  # nothing of this stays


PRIME = 2**255 - 19


def other_encodings(public: bytes) -> list[bytes]:
    """Every other string of 32 bytes that X25519 takes for this public key."""
    value = int.from_bytes(public, "little")
    low = [each for each in (value, value + PRIME) if each < 2**255]
    return [(each + top).to_bytes(32, "little") for top in (0, 2**255) for each in low if each + top != value]


@pytest.mark.parametrize("place", [0, 32, 64], ids=["sealing", "first attempt", "second attempt"])
def test_copied_key_in_another_encoding_is_refused(place: int) -> None:
    study = Study(4, 1, 1, attempts=2)
    own, other = body_of(study.sites[3].advertise()), body_of(study.sites[1].advertise())
    key, secret = other[place : place + 32], keys.new_secret()
    flipped = key[:31] + bytes([key[31] ^ 0x80])
    assert flipped in other_encodings(key)
    assert keys.agree(secret, flipped) == keys.agree(secret, key)
    with pytest.raises(Forged, match="canonical"):
        study.sites[0].share(adverts_with(study, 3, own[:place] + flipped + own[place + 32 :]))
    study.set_up()


def test_key_encoded_above_the_prime_is_refused() -> None:
    """Keys below 19 have an encoding p + x, too; the base point, u = 9, is one that has a large order."""
    study = Study(4, 1, 1)
    own, secret = body_of(study.sites[3].advertise()), keys.new_secret()
    least = (9).to_bytes(32, "little")  # the base point
    found = other_encodings(least)
    assert [int.from_bytes(each, "little") for each in found] == [PRIME + 9, 2**255 + 9, 2**255 + PRIME + 9]
    for encoding in found:
        assert keys.agree(secret, encoding) == keys.agree(secret, least)
        with pytest.raises(Forged, match="canonical"):
            study.sites[0].share(adverts_with(study, 3, encoding + own[32:]))
    with pytest.raises(Forged, match="canonical"):
        keys.essence(PRIME.to_bytes(32, "little"))


def test_copied_key_shifted_by_a_point_of_small_order_is_refused() -> None:
    """On a Montgomery curve adding the point (0, 0) of order 2 takes u to 1/u, and clamped scalars cancel it."""
    study = Study(4, 1, 1)
    own, other = body_of(study.sites[3].advertise()), body_of(study.sites[1].advertise())
    key, secret = other[:32], keys.new_secret()
    shifted = pow(int.from_bytes(key, "little"), -1, PRIME).to_bytes(32, "little")
    assert shifted != key
    assert keys.agree(secret, shifted) == keys.agree(secret, key)
    with pytest.raises(Forged, match="key"):
        study.sites[0].share(adverts_with(study, 3, shifted + own[32:]))


def test_secagg_sealing_key_of_small_order_is_refused_and_study_goes_on() -> None:
    study = Study(4, 1, 1)
    own = body_of(study.sites[3].advertise())
    with pytest.raises(Forged, match="key"):
        study.sites[0].share(adverts_with(study, 3, bytes(32) + own[32:]))
    with pytest.raises(OutOfTurn):
        study.sites[0].receive(study.coordinator_message(Kind.DELIVERY, 0, b""))
    vectors = random_vectors(4)
    assert study.set_up().run(0, vectors)[1] == (0, 1, 2, 3)


def test_secagg_masking_key_of_small_order_is_refused_at_set_up() -> None:
    study = Study(4, 1, 1, attempts=2)
    own = body_of(study.sites[3].advertise())
    with pytest.raises(Forged, match="key"):
        study.sites[0].share(adverts_with(study, 3, own[:32] + bytes(32) + own[64:]))


def test_secagg_adverts_out_of_order_or_of_other_sites_are_refused() -> None:
    study, other = Study(4, 1, 1), Study(4, 1, 1)
    adverts = [site.advertise() for site in study.sites]
    again = Study(4, 1, 1, like=study).sites
    cases: list[tuple[type[BadMessage], list[bytes]]] = [
        (Inconsistent, [adverts[1], adverts[0], *adverts[2:]]),
        (Inconsistent, [adverts[0], adverts[1], adverts[2], adverts[2]]),
        (Malformed, adverts[:3]),
        (Malformed, [*adverts, adverts[0]]),
        (BadMessage, [*adverts[:3], other.sites[3].advertise()]),
        (Inconsistent, [again[0].advertise(), *adverts[1:]]),  # an old advert of the site itself
        (Malformed, [*adverts[:3], study.site_message(3, Kind.ADVERT, 0, bytes(64))]),
        (OutOfTurn, [*adverts[:3], study.site_message(3, Kind.READY, 0, body_of(adverts[3]))]),
    ]
    for error, shown in cases:
        with pytest.raises(error):
            study.sites[0].share(study.coordinator_message(Kind.ADVERTS, 0, wire.pack(shown)))
    study.set_up()
