"""Sites that open, deal or confirm something else than they signed: the right one is named, and the sum is right.

Each attack is tried with random settings, culprits and values. What is recorded as a proof convinces a party that has
only the roster, and no message of an honest site proves anything against it.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from helpers.secure_sum import CONTEXT, Study, masked, random_vectors, total
from zerosum.errors import Abandoned, BadMessage, Forged, Inconsistent, Malformed, Misdirected, ZerosumError
from zerosum.secagg import blame, commitments, keys, shamir, wire
from zerosum.secagg.collector import Collector, FalseDealing
from zerosum.secagg.masks import Ring
from zerosum.secagg.wire import Kind

TRIES = [6, pytest.param(100, marks=pytest.mark.slow)]


@dataclass
class Round:
    """A study up to the closed list of its first attempt, and who is in the sum."""

    study: Study
    vectors: list[Ring]
    listed: tuple[int, ...]


def setting(rng: random.Random, dropouts: int) -> tuple[int, int, int]:
    """Sites, colluders and losses, with at least two more sites than must open."""
    sites = rng.randint(4 + 2 * dropouts, 7)
    return sites, rng.randint(0, sites - 2 * dropouts - 3), dropouts


def begun(study: Study, lost: tuple[int, ...] = ()) -> Round:
    vectors = random_vectors(study.roster.sites)
    here = [s for s in study.everybody if s not in lost]
    study.fold(0, study.masked(0, vectors, here), 5)
    study.collector.close_list(0)
    return Round(study, vectors, study.collector.survivors(0))


def openings(each: Round) -> dict[int, bytes]:
    """What the listed sites open, in the order of their signatures."""
    study, collector = each.study, each.study.collector
    closed = collector.close_list(0)
    if study.roster.dropouts:
        for s in each.listed:
            collector.take_signature(0, study.sites[s].sign(0, closed))
        closed = collector.warrant(0)
    return {s: study.sites[s].open(0, closed) for s in each.listed}


def altered(study: Study, opening: bytes, at: int, content: bytes) -> bytes:
    """An opening with other bytes from a place counted from its end, signed by its site."""
    message = wire.decode(opening)
    body = bytearray(message.body)
    start = len(body) + at
    body[start : start + len(content)] = content
    return study.site_message(message.sender, Kind.OPENING, 0, bytes(body))


def convicted(study: Study, proof: bytes) -> int:
    """Whom a proof shows to be guilty, to a party that has only the roster."""
    return blame.guilty(study.roster, bytes(bytearray(proof)))


def take_all(each: Round, said: dict[int, bytes]) -> dict[int, bytes]:
    """Give the openings to the collector; the proofs against those that it refused."""
    proofs = {}
    for s, data in said.items():
        try:
            each.study.collector.take_opening(0, data)
        except Inconsistent:
            proofs[s] = each.study.collector.proof(data)
    return proofs


@pytest.mark.parametrize("tries", TRIES)
def test_blame_wrong_seed_is_proven_and_nothing_is_unmasked(tries: int) -> None:
    rng = random.Random(1)
    for _ in range(tries):
        study = Study(*setting(rng, 0)).set_up()
        each = begun(study)
        culprit = rng.choice(each.listed)
        said = openings(each)
        seed = bytearray(bytes(wire.decode(said[culprit]).body)[-32:])
        wrong = rng.randbytes(32) if rng.random() < 0.5 else bytes([seed[0] ^ 1 << rng.randrange(8)]) + bytes(seed[1:])
        said[culprit] = altered(study, said[culprit], -32, wrong)
        proofs = take_all(each, said)
        assert {s: convicted(study, proof) for s, proof in proofs.items()} == {culprit: culprit}
        with pytest.raises(Abandoned):
            study.collector.result(0)


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("of", ["listed site", "lost site"])
def test_blame_wrong_share_is_proven_and_the_sum_is_right(of: str, tries: int) -> None:
    """One or two sites, in collusion with the coordinator's network or not: the others open enough."""
    rng = random.Random(2)
    for _ in range(tries):
        study = Study(*setting(rng, 1)).set_up()
        lost = rng.randrange(study.roster.sites)
        each = begun(study, (lost,) if of == "lost site" else ())
        said = openings(each)
        spare = len(each.listed) - study.roster.shape.threshold
        culprits = rng.sample(each.listed, min(rng.randint(1, 2), spare))
        for culprit in culprits:
            dealers = study.collector._known_adverts().holders(culprit)
            about = lost if of == "lost site" else rng.choice(each.listed)
            at = shamir.SHARE_BYTES * (dealers.index(about) - len(dealers))
            value = rng.choice((b"\xff" * 33, bytes(33), b"\0" + rng.randbytes(32)))
            said[culprit] = altered(study, said[culprit], at, value)
        proofs = take_all(each, said)
        assert {s: convicted(study, proof) for s, proof in proofs.items()} == {s: s for s in culprits}
        np.testing.assert_array_equal(study.collector.result(0), total(each.vectors, each.listed))


def dealing(study: Study, dealer: int, change: Callable[[dict[int, bytes]], dict[int, bytes]]) -> Study:
    """Set up a study in which one site deals other shares than those of its secrets."""
    split, share = shamir.split, study.sites[dealer].share

    def falsely(adverts: bytes) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shamir, "split", lambda *what: change(split(*what)))
            return share(adverts)

    study.sites[dealer].share = falsely  # type: ignore[method-assign]
    return study.set_up()


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("of", ["listed site", "lost site"])
def test_blame_shares_of_no_secret_are_held_against_their_dealer(of: str, tries: int) -> None:
    """Not against the holders, who open what they were dealt; nothing is unmasked."""
    rng = random.Random(3)
    for _ in range(tries):
        study = Study(*setting(rng, 1))
        dealer = rng.randrange(study.roster.sites)

        def change(shares: dict[int, bytes]) -> dict[int, bytes]:
            # Of the first two holders one is listed at least, and its share is used.
            wrong = {1, 2, *rng.sample(sorted(shares), rng.randint(0, len(shares)))}
            return shares | {holder: b"\0" + rng.randbytes(32) for holder in wrong}

        dealing(study, dealer, change)
        each = begun(study, (dealer,) if of == "lost site" else ())
        held = study.collector._sums[0].vectors.total.copy()
        assert not take_all(each, openings(each))
        with pytest.raises(FalseDealing) as caught:
            study.collector.result(0)
        assert list(caught.value.proofs) == [dealer]
        assert convicted(study, caught.value.proofs[dealer]) == dealer
        assert not np.any(held == total(each.vectors, each.listed))


def test_blame_after_a_restoration_is_of_no_site() -> None:
    """The hashes of the shares are lost: a wrong share may be its holder's fault or its dealer's, and ends the sum."""
    study = Study(5, 0, 1).set_up()
    told = study.collector._told
    study.collector = Collector(study.roster)
    for site in study.sites:
        study.collector.take_advert(site.advertise())
    study.collector.restore(told)
    each = begun(study)
    said = openings(each)
    said[0] = altered(study, said[0], -33, b"\0" + secrets.token_bytes(32))
    assert not take_all(each, said)
    assert not study.collector.proof(said[0])
    with pytest.raises(Inconsistent) as caught:
        study.collector.result(0)
    assert not isinstance(caught.value, FalseDealing)


def test_blame_colluding_holder_of_a_false_share_is_not_its_dealer() -> None:
    """The dealer signs the hash of a wrong share for its accomplice, who opens it: the dealer is proven guilty."""
    study = Study(4, 1, 1)
    dealing(study, 2, lambda shares: shares | {1: b"\0" + secrets.token_bytes(32)})  # held by site 0
    each = begun(study)
    assert not take_all(each, openings(each))
    with pytest.raises(FalseDealing) as caught:
        study.collector.result(0)
    assert convicted(study, caught.value.proofs[2]) == 2


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("what", ["shares", "keys"])
def test_blame_contradiction_in_set_up_names_both_before_anything_is_masked(what: str, tries: int) -> None:
    rng = random.Random(4)
    for _ in range(tries):
        study = Study(*setting(rng, 1), attempts=2)
        liar = rng.randrange(study.roster.sites)
        peers = [s for s in study.everybody if s != liar]
        victim = rng.choice(peers)
        receive, place = study.sites[liar].receive, peers.index(victim)

        def confirm(
            delivery: bytes,
            study: Study = study,
            liar: int = liar,
            place: int = place,
            receive: Callable[[bytes], bytes] = receive,
        ) -> bytes:
            body = bytearray(wire.decode(receive(delivery)).body)
            at = 32 * (1 + place + (len(study.everybody) - 1 if what == "shares" else 0))
            body[at : at + 32] = secrets.token_bytes(32)
            return study.site_message(liar, Kind.READY, 0, bytes(body))

        study.sites[liar].receive = confirm  # type: ignore[method-assign]
        with pytest.raises(AssertionError):
            study.set_up()
        ((first, second, _),) = study.collector.disputes()
        assert {first, second} == {liar, victim}


@pytest.mark.parametrize("tries", TRIES)
def test_blame_bad_commitments_are_refused_and_the_sum_goes_on(tries: int) -> None:
    """Missing, of another attempt, request, site or study, forged, unsigned: the vector is not added."""
    rng = random.Random(5)
    other = Study(7, 0, 1, attempts=2).set_up()
    for _ in range(tries):
        study = Study(*setting(rng, 1), attempts=2).set_up()
        vectors = random_vectors(study.roster.sites)
        culprit, peer = rng.sample(range(study.roster.sites), 2)
        site, secret = study.sites[culprit], secrets.token_bytes(32)
        right = site.commit(0, vectors[culprit], CONTEXT, secret)
        wrong: list[tuple[type[ZerosumError], bytes]] = [
            (Misdirected, site.commit(1, vectors[culprit], CONTEXT, secret)),
            (Misdirected, site.commit(0, vectors[culprit], b"another request", secret)),
            (Inconsistent, study.sites[peer].commit(0, vectors[culprit], CONTEXT, secret)),
            (Misdirected, other.sites[culprit].commit(0, vectors[culprit], CONTEXT, secret)),
            (Forged, right[:40] + bytes([right[40] ^ 1]) + right[41:]),
            (Forged, right[:-64] + bytes(64)),
            (Malformed, bytes(len(right))),
            (Malformed, b""),
        ]
        error, committed = rng.choice(wrong)
        sent = study.masked(0, vectors, [s for s in study.everybody if s != culprit])
        bad = site.mask(0, vectors[culprit], CONTEXT, committed)
        study.collector.begin(0, 5, CONTEXT)
        with pytest.raises(error):
            study.collector.take_masked(0, bad)
        assert wire.evidence(bad)  # its signed message is the evidence
        for data in sent.values():
            study.collector.take_masked(0, data)
        result, listed = study.finish(0)
        assert culprit not in listed
        np.testing.assert_array_equal(result, total(vectors, listed))


def mixtures(study: Study, again: Study) -> Iterator[list[bytes]]:
    """Messages of honest sites in two set-ups, put together as a coordinator that accuses them would."""
    parts: list[list[bytes]] = []
    for one in (study, again):
        each = begun(one)
        said = openings(each)
        dealt = [data for data, _ in one.collector._dealt.values()]
        parts.append([one.collector._told, *dealt, *one.collector._ready.values(), *said.values()])
    rng = random.Random(6)
    for _ in range(300):
        adverts = rng.choice((parts[0][0], parts[1][0]))
        yield [adverts, *rng.choices(parts[0] + parts[1], k=rng.randint(0, 5))]


@pytest.mark.parametrize("dropouts", [0, 1])
def test_blame_no_messages_of_honest_sites_are_a_proof(dropouts: int) -> None:
    study = Study(4, 0, dropouts)
    again = Study(4, 0, dropouts, like=study)
    for messages in mixtures(study.set_up(), again.set_up()):
        with pytest.raises(BadMessage):
            blame.guilty(study.roster, wire.pack(messages))


def test_blame_dealer_that_signs_two_lists_proves_nothing_against_holder() -> None:
    """The second list has other hashes than the holder confirmed: nobody can say that its share is wrong by them."""
    study = Study(4, 1, 1).set_up()
    each = begun(study)
    said, known = openings(each), study.collector._known_adverts()
    dealt = bytes(wire.decode(study.collector._dealt[2][0]).body)
    other = study.site_message(2, Kind.DEALT, 0, dealt[:32] + secrets.token_bytes(len(dealt) - 32))
    for proof in (
        [study.collector._told, other, study.collector._ready[0], said[0]],
        [study.collector._told, other, said[0]],
        [study.collector._told, other, *said.values()],
    ):
        with pytest.raises(BadMessage):
            blame.guilty(study.roster, wire.pack(proof))
    assert known.digest == dealt[:32]


def test_blame_opening_of_another_set_up_proves_nothing() -> None:
    """After a resumption a site has other secrets under the same number of an attempt."""
    study = Study(4, 0, 0).set_up()
    again = Study(4, 0, 0, like=study).set_up()
    said = openings(begun(again))
    for s, opening in said.items():
        with pytest.raises(BadMessage):
            blame.guilty(study.roster, wire.pack([study.collector._told, opening]))
        with pytest.raises(BadMessage):
            blame.guilty(study.roster, wire.pack([again.collector._told, opening]))
        assert wire.decode(opening).sender == s


def test_blame_changed_proof_is_none() -> None:
    study = Study(4, 0, 0).set_up()
    each = begun(study)
    said = openings(each)
    wrong = altered(study, said[2], -32, bytes(32))
    proof = study.collector.proof(wrong)
    assert convicted(study, proof) == 2
    assert study.collector.proof(said[1]) == study.collector.proof(b"nonsense") == b""
    for at in range(0, len(proof), 7):
        with pytest.raises(BadMessage):
            convicted(study, proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :])
    for cut in (b"", proof[:-1], proof[: len(proof) // 2]):
        with pytest.raises(BadMessage):
            convicted(study, cut)


@pytest.mark.parametrize("runs", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_blame_honest_sites_raise_no_alarm(runs: int) -> None:
    rng, done = random.Random(7), 0
    while done < runs:
        dropouts = rng.randint(0, 1)
        study = Study(*setting(rng, dropouts)[:2], dropouts, attempts=100).set_up()
        for attempt in range(100):
            vectors = random_vectors(study.roster.sites, 2)
            lost = rng.sample(range(study.roster.sites), rng.randint(0, dropouts))
            result, listed = study.run(attempt, vectors, unmasked=lost)
            np.testing.assert_array_equal(result, total(vectors, listed))
        done += 100


# ---- commitments -----------------------------------------------------------------------------------------------------


def test_commitment_depends_on_vector_secret_and_place() -> None:
    study = Study(3, 0, 0, attempts=2).set_up()
    vector, secret = random_vectors(1)[0], secrets.token_bytes(32)
    other = vector.copy()
    other[4] += np.uint64(1)
    base = study.sites[0].about(0, CONTEXT)
    places = [base, study.sites[1].about(0, CONTEXT), study.sites[0].about(1, CONTEXT), study.sites[0].about(0, b"x")]
    places.append(Study(3, 0, 0, attempts=2, like=study).set_up().sites[0].about(0, CONTEXT))
    found = [commitments.to_contribution(secret, vector, about) for about in places]
    found += [commitments.to_contribution(secret, other, base), commitments.to_contribution(bytes(32), vector, base)]
    found += [commitments.to_secret(secret, about) for about in places] + [commitments.to_secret(bytes(32), base)]
    assert len(set(found)) == len(found)
    assert found[0] == commitments.to_contribution(secret, vector, base)


def test_commitment_of_the_same_vector_is_fresh_under_every_secret() -> None:
    """Without the salt a short vector could be guessed from its commitment."""
    study = Study(3, 0, 0).set_up()
    seen = {
        bytes(wire.decode(masked(study.sites[s], 0, np.zeros(1, dtype=np.uint64))).body[68:132])
        for s in study.everybody
    }
    assert len(seen) == 3
    about = study.sites[0].about(0, CONTEXT)
    found = {commitments.to_contribution(secrets.token_bytes(32), np.zeros(1, np.uint64), about) for _ in range(100)}
    assert len(found) == 100


def test_hashes_of_secrets_are_those_of_their_place_only() -> None:
    secret, digest = secrets.token_bytes(32), secrets.token_bytes(32)
    seeds = {commitments.seed_hash(secret, digest, s, a) for s in range(3) for a in range(3)}
    pairs = {commitments.pair_hash(secret, pair, a, digest) for pair in ((0, 1), (0, 2), (1, 2)) for a in range(3)}
    shares = {
        commitments.share_hash(b"\0" + secret, d, h, a, of_seed, digest)
        for d in range(3)
        for h in range(3)
        for a in range(2)
        for of_seed in (False, True)
    }
    assert (len(seeds), len(pairs), len(shares)) == (9, 9, 36)
    assert commitments.pair_hash(secret, (1, 0), 0, digest) == commitments.pair_hash(secret, (0, 1), 0, digest)
    assert keys.derive(secret, "pair mask", digest) not in seeds | pairs
