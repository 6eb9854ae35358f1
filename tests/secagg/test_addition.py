"""Partial sums along a tree: they open to the sum of the star, and a fault in one loses its branch and no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from helpers.secure_sum import CONTEXT, Study, random_vectors, total
from zerosum.errors import BadParameter, Forged, Inconsistent, Malformed, Misdirected, OutOfTurn, ZerosumError
from zerosum.secagg import wire
from zerosum.secagg.addition import Addition, sites_and_vector
from zerosum.secagg.collector import Collector
from zerosum.secagg.commitments import COMMITTED_BYTES
from zerosum.secagg.wire import Kind

SIZE = 5
# Sites 0 and 1 are at the top; 2 and 3 are below 0, and 4 is below 2. Sites 5 and 6 are below 1.
TOP = {0: (0, 2, 3, 4), 1: (1, 5, 6)}
BELOW: dict[int, dict[int, tuple[int, ...]]] = {
    0: {0: (0,), 2: (2, 4), 3: (3,)},
    1: {1: (1,), 5: (5,), 6: (6,)},
    2: {2: (2,), 4: (4,)},
}


def grown(dropouts: int = 2, attempts: int = 1) -> Study:
    """Seven sites after the set-up, with a collector that expects the two branches."""
    study = Study(7, 1, dropouts, attempts)
    study.collector = Collector(study.roster, TOP)
    return study.set_up()


def node(study: Study, me: int, attempt: int = 0, size: int = SIZE, context: bytes = CONTEXT) -> Addition:
    return Addition(study.roster, attempt, size, context, BELOW[me])


def sums(study: Study, masked: dict[int, bytes]) -> dict[int, bytes]:
    """The partial sums of the two branches, from the vectors of these sites."""
    found: dict[int, bytes] = {}
    for me in (2, 0, 1):
        added = node(study, me)
        for part in BELOW[me]:
            data = found.get(part) or masked.get(part)
            if data is not None:
                added.take(data)
        if added.arrived:
            found[me] = added.partial_sum(me, study.identities[me])
    return {top: found[top] for top in TOP if top in found}


@pytest.mark.parametrize("lost", [(), (4,), (3, 6)])
def test_addition_partial_sums_open_to_sum_of_sites_in_them(lost: tuple[int, ...]) -> None:
    study = grown()
    vectors = random_vectors(7, SIZE)
    study.fold(0, sums(study, study.masked(0, vectors, [s for s in study.everybody if s not in lost])), SIZE)
    result, listed = study.finish(0)
    assert listed == tuple(s for s in range(7) if s not in lost)
    assert np.array_equal(result, total(vectors, listed))


def test_addition_partial_sum_has_size_of_vector_and_its_list() -> None:
    study = grown()
    message = sums(study, study.masked(0, random_vectors(7, SIZE), study.everybody))[0]
    assert len(message) == 100 + 32 + 1 + 4 * COMMITTED_BYTES + 8 * SIZE
    listed, vector = sites_and_vector(message, 7)
    assert listed == (0, 2, 3, 4)
    assert len(vector) == 8 * SIZE


def altered(study: Study, message: bytes, sender: int, change: Callable[[bytearray], None], attempt: int = 0) -> bytes:
    """A partial sum with another body, signed by its inner node, as one that lies would send it."""
    body = bytearray(wire.decode(message).body)
    change(body)
    return study.site_message(sender, Kind.PARTIAL, attempt, bytes(body))


def listing(*members: int) -> Callable[[bytearray], None]:
    def change(body: bytearray) -> None:
        body[32:33] = wire.pack_list(members, 7)

    return change


def other_request(body: bytearray) -> None:
    body[0] ^= 1


def without_commitments(body: bytearray) -> None:
    del body[33 : 33 + COMMITTED_BYTES]


def exchanged_commitments(body: bytearray) -> None:
    one, other = slice(33, 33 + COMMITTED_BYTES), slice(33 + COMMITTED_BYTES, 33 + 2 * COMMITTED_BYTES)
    body[one], body[other] = body[other], body[one]


def forged_commitment(body: bytearray) -> None:
    body[33 + 60] ^= 1


def longer(body: bytearray) -> None:
    body += bytes(8)


def beyond_roster(body: bytearray) -> None:
    body[32] = 0xFF


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (listing(), Inconsistent),
        (listing(0, 1), Inconsistent),
        (listing(5, 6), Inconsistent),
        (beyond_roster, Malformed),
        (other_request, Misdirected),
        (longer, Malformed),
        (without_commitments, Malformed),
        (exchanged_commitments, Inconsistent),
        (forged_commitment, Forged),
        (lambda body: body.clear(), Malformed),
    ],
)
def test_addition_false_partial_sum_is_refused_and_loses_its_branch_only(
    change: Callable[[bytearray], None], error: type[ZerosumError]
) -> None:
    study = grown()
    vectors = random_vectors(7, SIZE)
    branches = sums(study, study.masked(0, vectors, study.everybody))
    study.collector.begin(0, SIZE, CONTEXT)
    with pytest.raises(error):
        study.collector.take_masked(0, altered(study, branches[0], 0, change))
    study.collector.take_masked(0, branches[1])
    assert study.collector._sums[0].vectors.arrived == {1, 5, 6}
    # The right partial sum is still welcome: the false one left no trace.
    study.collector.take_masked(0, branches[0])
    result, listed = study.finish(0)
    assert np.array_equal(result, total(vectors, listed))


def test_addition_partial_sum_twice_or_overlapping_is_refused() -> None:
    study = grown()
    masked = study.masked(0, random_vectors(7, SIZE), study.everybody)
    branches = sums(study, masked)
    study.collector.begin(0, SIZE, CONTEXT)
    study.collector.take_masked(0, branches[0])
    for again in (branches[0], masked[0]):
        with pytest.raises(OutOfTurn):
            study.collector.take_masked(0, again)


def test_addition_partial_sum_after_closed_list_is_refused() -> None:
    study = Study(7, 1, 2)
    study.collector = Collector(study.roster, {0: TOP[0], 1: (1, 5), 6: (6,)})
    study.set_up()
    masked = study.masked(0, random_vectors(7, SIZE), study.everybody)
    late = masked.pop(6)
    study.collector.begin(0, SIZE, CONTEXT)
    for branch in sums(study, masked).values():
        study.collector.take_masked(0, branch)
    study.collector.close_list(0)
    with pytest.raises(OutOfTurn):
        study.collector.take_masked(0, late)


def test_addition_partial_sum_of_other_attempt_or_study_is_refused() -> None:
    study, other = grown(attempts=2), grown(attempts=2)
    masked = study.masked(0, random_vectors(7, SIZE), study.everybody)
    replayed = sums(study, masked)[0]
    study.collector.begin(1, SIZE, CONTEXT)
    with pytest.raises(Misdirected):
        study.collector.take_masked(1, replayed)
    other.collector.begin(0, SIZE, CONTEXT)
    with pytest.raises(Misdirected):
        other.collector.take_masked(0, replayed)


def test_addition_partial_sum_in_name_of_other_node_is_forged() -> None:
    study = grown()
    body = wire.decode(sums(study, study.masked(0, random_vectors(7, SIZE), study.everybody))[0]).body
    study.collector.begin(0, SIZE, CONTEXT)
    forged = wire.encode(Kind.PARTIAL, study.roster.study, 0, 0, body, study.identities[1])
    with pytest.raises(Forged):
        study.collector.take_masked(0, forged)


def test_addition_vector_from_outside_branch_is_refused_by_inner_node() -> None:
    study = grown()
    masked = study.masked(0, random_vectors(7, SIZE), study.everybody)
    with pytest.raises(Misdirected):
        node(study, 0).take(masked[5])
    # The vector of a site two levels below comes in the sum of the node between them only.
    with pytest.raises(Misdirected):
        node(study, 0).take(masked[4])


def test_addition_of_no_numbers_is_refused() -> None:
    with pytest.raises(BadParameter):
        node(grown(), 0, size=0)


def test_addition_lying_node_spoils_sum_and_reveals_nothing_else() -> None:
    """A node that claims a vector it did not add, or adds another, makes the sum useless: as any site in a star can."""
    study = grown()
    vectors = random_vectors(7, SIZE)
    masked = study.masked(0, vectors, study.everybody)
    branches = sums(study, {s: data for s, data in masked.items() if s != 4})
    of_lost = bytes(wire.decode(masked[4]).body[:COMMITTED_BYTES])

    def claiming(body: bytearray) -> None:
        listing(0, 2, 3, 4)(body)
        body[33 + 3 * COMMITTED_BYTES : 33 + 3 * COMMITTED_BYTES] = of_lost

    branches[0] = altered(study, branches[0], 0, claiming)
    study.fold(0, branches, SIZE)
    result, listed = study.finish(0)
    assert listed == tuple(range(7))
    # The masks of site 4 are uniform and in the result: no number agrees with a sum with or without its vector.
    assert not np.any(result == total(vectors, listed))
    assert not np.any(result == total(vectors, [0, 1, 2, 3, 5, 6]))
