"""Who masks with whom: symmetric, sparse, drawn from a seed; and safe whatever the coordinator says was lost."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from helpers.secure_sum import settings
from zerosum.errors import BadParameter
from zerosum.secagg import graph

MANY = [
    (sites, colluders, dropouts)
    for sites in (41, 50, 100, 200, 500, 1000)
    for colluders in (0, 1, sites // 10, -(-sites // 3) - 1, sites // 2)
    for dropouts in (0, 1, sites // 20, sites // 5)
    if colluders + 2 * dropouts < sites
]


def connected(adjacent: list[list[int]], members: Collection[int]) -> bool:
    inside, seen = set(members), set[int]()
    reach = list(inside)[:1]
    while reach:
        site = reach.pop()
        if site not in seen:
            seen.add(site)
            reach += [t for t in adjacent[site] if t in inside]
    return seen == inside


@pytest.mark.parametrize(("sites", "colluders", "dropouts"), [*settings(2, 12), (40, 13, 5), *MANY])
def test_graph_threshold_meets_bounds_for_colluders_and_losses(sites: int, colluders: int, dropouts: int) -> None:
    """Among few sites against all colluders and losses; among many against as many as neighbours can be."""
    shape = graph.shape(sites, colluders, dropouts)
    k, t = shape.degree, shape.threshold
    c, lost = colluders, dropouts
    if k == sites - 1:
        assert t == (sites + colluders) // 2 + 1
    else:
        assert sites > graph.COMPLETE
        assert k % 2 == 0
        c = graph._neighbour_bound(sites, colluders, k)
        lost = 1 + graph._neighbour_bound(sites, dropouts - 1, k) if dropouts else 0
        w = graph._neighbour_bound(sites, colluders, k // 2)
        assert k - min(2 * w, colluders) > dropouts or t >= k // 2 + 2 + w
    assert c < t <= k + 1 - lost
    assert 2 * t > k + 1 + c


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"),
    [(2, 2, 0), (2, 0, 1), (5, 1, 2), (5, 5, 0), (50, 10, 20), (5, -1, 0), (5, 0, -1)],
)
def test_graph_too_many_colluders_or_dropouts_are_refused(sites: int, colluders: int, dropouts: int) -> None:
    with pytest.raises(BadParameter, match="colluders"):
        graph.check(sites, colluders, dropouts)
    with pytest.raises(BadParameter):
        graph.shape(sites, colluders, dropouts)


@pytest.mark.parametrize(("sites", "degree"), [(2, 1), (5, 4), (40, 39), (41, 8), (50, 26), (200, 106), (51, 48)])
def test_graph_neighbours_are_symmetric_connected_and_seeded(sites: int, degree: int) -> None:
    seed = random.randbytes(32)
    adjacent = graph.neighbours(sites, degree, seed)
    assert adjacent == graph.neighbours(sites, degree, seed)
    for s, peers in enumerate(adjacent):
        assert len(peers) == degree
        assert peers == sorted(set(peers) - {s})
        assert all(s in adjacent[t] for t in peers)
    assert connected(adjacent, range(sites))
    if degree < sites - 1:
        assert adjacent != graph.neighbours(sites, degree, random.randbytes(32))


def test_graph_places_are_drawn_uniformly() -> None:
    """Over 3000 seeds each of 40 others is a neighbour of site 0 in a fifth of the cases: within 6.5 standard errors
    (22 of them, by the normal law 8e-11 each: a false alarm once in 300 million runs).
    """
    counts = [0] * 41
    for n in range(3000):
        for t in graph.neighbours(41, 8, n.to_bytes(32))[0]:
            counts[t] += 1
    assert counts[0] == 0
    assert all(abs(count - 600) < 6.5 * (3000 * 0.2 * 0.8) ** 0.5 for count in counts[1:])


def can_be_opened(adjacent: list[list[int]], site: int, holders: set[int], threshold: int) -> bool:
    """Whether enough of those who hold its shares are among these."""
    return len(holders.intersection([*adjacent[site], site])) >= threshold


@pytest.mark.parametrize(("sites", "colluders", "dropouts"), [(50, 16, 5), (100, 33, 10), (200, 66, 20), (200, 20, 40)])
def test_graph_honest_survivors_stay_connected(sites: int, colluders: int, dropouts: int) -> None:
    """Colluders and losses at random: all can be opened, and they form one piece. Fails once in 2^80 draws."""
    shape = graph.shape(sites, colluders, dropouts)
    for _ in range(100):
        adjacent = graph.neighbours(sites, shape.degree, random.randbytes(32))
        order = random.sample(range(sites), sites)
        bad, lost = set(order[:colluders]), set(order[-dropouts:])
        assert max(sum(t in bad for t in adjacent[s]) for s in range(sites) if s not in bad) < shape.threshold
        listed = set(range(sites)) - lost
        assert all(can_be_opened(adjacent, s, listed, shape.threshold) for s in range(sites))
        assert connected(adjacent, listed - bad)


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"),
    [(200, 66, 10), (200, 66, 20), (500, 0, 100), (1000, 0, 200), (1000, 333, 50), (1000, 100, 100)],
)
def test_graph_coordinator_that_places_losses_cannot_separate_honest_sites(
    sites: int, colluders: int, dropouts: int
) -> None:
    """It declares lost whoever stands in two gaps, so as to learn the sum between them. Either the gaps take more
    losses than it has, or a site at their edge cannot be opened, and with it none of those it masks with.
    """
    shape = graph.shape(sites, colluders, dropouts)
    seed = random.randbytes(32)
    adjacent = graph.neighbours(sites, shape.degree, seed)
    bad = set(random.sample(range(sites), colluders))
    circle = around(adjacent)
    half = shape.degree // 2
    tried = 0
    for start in range(0, sites, sites // 40):
        for length in (1, half, half + 1, 2 * half, sites // 2 - half):
            places = [circle[(start + n) % sites] for n in range(length + 2 * half)]
            between = set(places[half : half + length])
            gaps = set(places[:half]) | set(places[half + length :])
            lost = gaps - bad
            rest = set(range(sites)) - lost - between - bad
            if length + 2 * half > sites or not between - bad or not rest:
                continue
            assert not connected(adjacent, (between | rest) - bad)
            tried += 1
            holders = set(range(sites)) - lost  # colluders among them
            enough = all(can_be_opened(adjacent, s, holders, shape.threshold) for s in between - bad)
            assert len(lost) > dropouts or not enough
    assert tried


def around(adjacent: list[list[int]]) -> list[int]:
    """The order on the circle, from the graph alone: next to a site stands who shares most neighbours with it."""
    sets = [set(peers) for peers in adjacent]
    circle = [0]
    while len(circle) < len(adjacent):
        last, placed = circle[-1], set(circle)
        circle.append(max((t for t in adjacent[last] if t not in placed), key=lambda t: len(sets[last] & sets[t])))
    return circle
