"""The benchmark of trees at small sizes: what it counts, never how long anything took."""

from __future__ import annotations

import tree as bench


def test_tree_benchmark_counts_one_vector_for_each_branch() -> None:
    size = 3000
    (_, _), (star, tree) = bench.compared(7, size, 2, 100.0)
    vector = 8 * size
    assert 7 * vector < star.coordinator_bytes < 8 * vector
    assert 2 * vector < tree.coordinator_bytes < 3 * vector
    # An inner node receives the vectors of two children and sends one.
    assert vector < star.busiest_bytes < 2 * vector
    assert 3 * vector < tree.busiest_bytes < 4 * vector


def test_tree_benchmark_times_every_party() -> None:
    for star, tree in bench.compared(4, 50, None, 100.0):
        assert star.node_seconds == 0
        assert min(star.coordinator_seconds, tree.coordinator_seconds, tree.node_seconds) > 0
        assert star.elapsed > star.coordinator_seconds
        assert tree.elapsed > tree.coordinator_seconds + tree.node_seconds
        assert (star.fan_out, tree.fan_out) == (None, 2)
