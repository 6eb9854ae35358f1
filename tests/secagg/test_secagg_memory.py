"""What is kept, and how much: secrets go when nothing rests on them, and nobody holds many vectors."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from helpers.secure_sum import CONTEXT, Study, masked, random_vectors, total
from zerosum.errors import OutOfTurn
from zerosum.secagg.session import SiteSession

SIZE = 10**6
VECTOR = 8 * SIZE


def secrets_of(site: SiteSession, attempt: int) -> set[bytes]:
    state = site._attempts[attempt]
    shares = {share for pair in state.shares.values() for share in pair}
    return {s for s in (state.secret, state.seed) if s} | set(state.agreed.values()) | shares


@pytest.mark.parametrize("dropouts", [0, 1])
def test_secagg_secrets_are_deleted_after_use(dropouts: int) -> None:
    study = Study(4, 1, dropouts, attempts=3)
    site = study.sites[0]
    assert site._sealing is not None
    study.set_up()
    assert site._sealing is None  # whoever breaks in later cannot read the shares that were delivered
    state = site._attempts[0]
    assert len(state.shares) == (4 if dropouts else 0)  # where nothing is opened from shares there are none
    vectors = random_vectors(4)
    study.fold(0, study.masked(0, vectors, range(4)), 5)
    assert state.secret is None
    assert not state.agreed
    assert (state.seed is None) == bool(dropouts)
    np.testing.assert_array_equal(study.finish(0)[0], total(vectors, range(4)))
    for s in range(4):
        assert not secrets_of(study.sites[s], 0)
        assert secrets_of(study.sites[s], 1)


def test_secagg_abandoned_attempt_cannot_be_opened() -> None:
    study = Study(4, 1, 1, attempts=2).set_up()
    vectors = random_vectors(4)
    study.fold(0, study.masked(0, vectors, range(4)), 5)
    for site in study.sites:
        site.abandon(0)
        assert not secrets_of(site, 0)
    with pytest.raises(OutOfTurn, match="attempt"):
        study.finish(0)
    site = study.sites[0]
    site.abandon(1)
    with pytest.raises(OutOfTurn, match="attempt"):
        masked(site, 1, vectors[0])


def test_secagg_secrets_are_sent_in_clear_only_if_opened() -> None:
    study = Study(5, 1, 1, attempts=2)
    drawn = [(site._attempts[r].secret, site._attempts[r].seed) for site in study.sites for r in range(2)]
    sealing = [site._sealing for site in study.sites]
    study.set_up()
    shares = set().union(*(secrets_of(site, r) for site in study.sites for r in range(2)))
    opened_later = set().union(*(secrets_of(site, 0) for site in study.sites))
    study.run(0, random_vectors(5), unmasked=[1])
    said = b"\n".join(study.log)
    for secret in [*sealing, *(s for pair in drawn for s in pair)]:
        assert secret is not None
        assert secret not in said
    assert not [share for share in shares - opened_later if share in said]
    assert [share for share in opened_later if share in said]


def test_secagg_collector_memory_holds_one_vector_and_current_message() -> None:
    """Ten sites, a million numbers, two losses: the peak above what came in stays far below four vectors."""
    study = Study(10, 1, 2).set_up()
    collector, vector = study.collector, np.ones(SIZE, dtype=np.uint64)
    tracemalloc.start()
    try:
        collector.begin(0, SIZE, CONTEXT)
        for s in range(9):
            start = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            data = masked(study.sites[s], 0, vector)
            assert tracemalloc.get_traced_memory()[1] - start < 1.1 * VECTOR  # at a site: the message, written in place
            start = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            collector.take_masked(0, data)
            assert tracemalloc.get_traced_memory()[1] - start < 0.1 * VECTOR
            del data
        assert tracemalloc.get_traced_memory()[0] < 1.1 * VECTOR
        tracemalloc.reset_peak()
        result, _ = study.finish(0, unsigned=[5])
        assert tracemalloc.get_traced_memory()[1] < 1.2 * VECTOR
    finally:
        tracemalloc.stop()
    assert (result == 9).all()
