"""Whoever is lost, and whenever: the exact sum of the listed sites' vectors, or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, combinations

import numpy as np
import pytest

from helpers.secure_sum import Study, random_vectors, settings, total
from zerosum.errors import Abandoned, OutOfTurn
from zerosum.secagg import keys, wire
from zerosum.secagg.session import Roster

Trace = tuple[frozenset[int], frozenset[int], frozenset[int]]  # lost before masking, before signing, before opening
NOBODY: frozenset[int] = frozenset()


@pytest.fixture(autouse=True)
def _each_signature_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process the same signature would be checked by every party: remember those that hold."""
    monkeypatch.setattr(wire, "check_signature", lru_cache(maxsize=4096)(keys.check_signature))


def subsets(members: Iterable[int]) -> Iterator[frozenset[int]]:
    pool = list(members)
    return map(frozenset, chain.from_iterable(combinations(pool, n) for n in range(len(pool) + 1)))


def traces(roster: Roster) -> Iterator[Trace]:
    """Every way to lose sites that makes a difference: once an attempt is over, nobody can be lost in it."""
    everybody = frozenset(range(roster.sites))
    for first in subsets(everybody):
        if len(first) > roster.dropouts:
            yield first, NOBODY, NOBODY
            continue
        for second in subsets(everybody - first) if roster.dropouts else [NOBODY]:
            if too_few(roster, first, second):
                yield first, second, NOBODY
                continue
            for third in subsets(everybody - first - second):
                yield first, second, third


def too_few(roster: Roster, *lost: frozenset[int]) -> bool:
    """Whether so many are lost that the rest can neither sign nor open (both need as many, among few sites)."""
    needed = roster.signatures if roster.dropouts else roster.sites
    return len(frozenset().union(*lost)) > roster.sites - needed


def play(study: Study, attempt: int, lost: Trace, size: int = 5) -> bool:
    """Run one attempt with these losses and check what comes out; returns whether a sum came out."""
    roster, collector = study.roster, study.collector
    vectors = random_vectors(roster.sites, size)
    here = [s for s in study.everybody if s not in lost[0]]
    study.fold(attempt, study.masked(attempt, vectors, here), size)
    held = collector._sums[attempt].vectors.total
    right = total(vectors, here) if here else np.zeros(size, dtype=np.uint64)
    if len(lost[0]) <= roster.dropouts and not too_few(roster, *lost):
        result, listed = study.finish(attempt, lost[1], lost[2])
        assert listed == tuple(here)
        np.testing.assert_array_equal(result, right)
        return True
    with pytest.raises(Abandoned):
        study.finish(attempt, lost[1], lost[2])
    assert attempt not in collector._sums
    assert not here or not np.any(held == right)  # what it held is masked in every number
    with pytest.raises(OutOfTurn):
        collector.result(attempt)
    return False


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"),
    [*settings(2, 5), *(pytest.param(*setting, marks=pytest.mark.slow) for setting in settings(6, 6))],
)
def test_secagg_every_pattern_of_losses_within_plan_gives_sum(sites: int, colluders: int, dropouts: int) -> None:
    probe = Roster(bytes(16), tuple(bytes([s]) for s in range(sites)), 1, colluders, dropouts)
    every = list(traces(probe))
    study = Study(sites, colluders, dropouts, attempts=len(every)).set_up()
    for attempt, lost in enumerate(every):
        came = play(study, attempt, lost)
        assert came or sum(map(len, lost)) > dropouts  # with no more losses than planned for there is always a sum


def random_trace(sites: int, losses: int) -> Trace:
    chosen = random.sample(range(sites), losses)
    phases = [random.randrange(3) for _ in chosen]
    first, second, third = (frozenset(s for s, p in zip(chosen, phases, strict=True) if p == n) for n in range(3))
    return first, second, third


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts", "patterns"), [(50, 16, 5, 100), (50, 5, 10, 100), (200, 66, 20, 20)]
)
def test_secagg_random_losses_among_many_sites_give_sum(
    sites: int, colluders: int, dropouts: int, patterns: int
) -> None:
    study = Study(sites, colluders, dropouts, attempts=patterns).set_up()
    assert study.roster.shape.degree < sites - 1
    for attempt in range(patterns):
        assert play(study, attempt, random_trace(sites, random.randint(0, dropouts)))


@pytest.mark.slow
def test_secagg_more_losses_than_planned_give_no_sum() -> None:
    study = Study(50, 5, 10, attempts=20).set_up()
    for attempt in range(20):
        lost = frozenset(random.sample(range(50), random.randint(11, 50)))
        assert not play(study, attempt, (lost, NOBODY, NOBODY))
