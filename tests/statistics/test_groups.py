"""Moments, counts and ranks by group, and who left when: what they count, and how large free weights may be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.grid import summation_slack
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.groups import FREE_SECOND, GroupedCounts, GroupedMoments, GroupedRanks, summation_root
from zerosum.statistics.survival import SurvivalTable

NAN = math.nan


def test_grouped_moments_equal_moments_of_each_group() -> None:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(0, 10, 50), rng.integers(0, 3, 50)])
    rows[::7, 0] = NAN
    stat = GroupedMoments(columns=2, positions=(0,), group=1, groups=3, lower=[0], upper=[10])
    counts, sums, squares = stat.split(stat.total(Units(rows)))
    for g in range(3):
        x = rows[(rows[:, 1] == g) & ~np.isnan(rows[:, 0]), 0] / 5 - 1
        assert np.allclose([counts[g, 0], sums[g, 0], squares[g, 0]], [len(x), x.sum(), np.sum(2 * x**2 - 1)])


def test_grouped_statistics_unit_has_weight_one_in_observed_columns() -> None:
    people = Units.from_list([np.array([[1.0, 0], [3.0, 1], [NAN, 1]]), np.array([[NAN, 0.0]]), np.array([[2.0, NAN]])])
    stat = GroupedMoments(columns=2, positions=(0,), group=1, groups=2, lower=[0], upper=[4], count_weight=1)
    counts, sums, _ = stat.split(stat.total(people))
    assert counts[:, 0].tolist() == [0.5, 0.5]  # one row in each group; two units have nothing to say
    assert sums[:, 0].tolist() == [-0.25, 0.25]
    table = GroupedCounts(columns=2, positions=(1,), levels=(1,), group=1, groups=2).total(people)
    assert np.allclose(table, [1 / 3 + 1, 2 / 3])


def test_grouped_moments_second_weight_is_largest_possible() -> None:
    """At s = 3 - sqrt(5), x = 1 and y = s - 1 are as far apart as 1 and -1 are; a larger weight would cost more."""
    y = 2 - math.sqrt(5)
    for weight, excess in ((FREE_SECOND, 0.0), (FREE_SECOND * 1.01, 1e-3)):
        apart = math.hypot(1 - y, weight * (2 - 2 * y * y))
        assert apart == pytest.approx(2, abs=1e-9) if excess == 0 else apart > 2 + excess
    with pytest.raises(BadParameter):
        GroupedMoments(columns=1, positions=(0,), lower=[0], upper=[1], second_weight=FREE_SECOND * 1.01)


def test_summation_root_squared_gives_cumulative_counts() -> None:
    for bins in (1, 2, 7, 64):
        root = summation_root(bins)
        norms = np.sqrt(np.cumsum([math.comb(2 * k, k) ** 2 / 16**k for k in range(bins)]))[::-1]
        plain = root * norms
        assert np.allclose(plain @ plain, np.tril(np.ones((bins, bins))))
        assert np.allclose(np.linalg.norm(root, axis=0), 1)


def test_grouped_ranks_equal_root_of_histogram() -> None:
    values = np.array([[-5.0], [0.0], [0.5], [1.0], [9.0], [NAN]])
    stat = GroupedRanks(columns=1, positions=(0,), edges=([0.0, 1.0, 2.0],))
    assert np.allclose(stat.total(Units(values)), summation_root(2) @ [3, 2])


def test_survival_table_counts_up_to_and_including_right_edge() -> None:
    rows = np.array([[0.0, 1], [1.0, 1], [1.5, 0], [2.0, 1], [2.1, 1], [-3.0, 0], [NAN, 1], [1.0, NAN]])
    table = SurvivalTable(columns=2, edges=[0, 1, 2]).total(Units(rows))
    assert table.tolist() == [1, 2, 1, 1, 1]


@pytest.mark.parametrize("groups", [1, 2, 50])
def test_grouped_sensitivity_is_same_for_any_number_of_groups(groups: int) -> None:
    by: dict[str, Any] = {"group": 0, "groups": groups}
    counts = build("grouped_counts", {"columns": 2, "positions": [1], "levels": [4], **by})
    assert counts.sensitivity(Adjacency.REPLACE_ONE) == pytest.approx(math.sqrt(2))
    moments = build("grouped_moments", {"columns": 2, "positions": [1], "lower": [0], "upper": [1], **by})
    assert moments.sensitivity(Adjacency.REPLACE_ONE) == pytest.approx(2)
    ranks = build("grouped_ranks", {"columns": 2, "positions": [1], "edges": [np.linspace(0, 1, 65)], **by})
    assert ranks.sensitivity(Adjacency.REPLACE_ONE) <= math.sqrt(2) * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_grouped_ranks_sensitivity_covers_rounding_of_product(adjacency: Adjacency) -> None:
    """Planned is for the rows of a block; a rank has as many terms more as there are bins."""
    for bins in (8, 4096):
        edges = [np.linspace(0, 1, bins + 1)] * 2
        ranks = build("grouped_ranks", {"columns": 3, "positions": [1, 2], "edges": edges, "group": 0, "groups": 2})
        exact = 2.0 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)
        most = summation_slack() + summation_slack(rows=bins)
        assert ranks.sensitivity(adjacency) + math.sqrt(2) * summation_slack() >= exact + math.sqrt(2) * most


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("grouped_moments", {"columns": 1, "positions": [1], "lower": [0], "upper": [1]}),
        ("grouped_moments", {"columns": 1, "positions": [0], "lower": [1], "upper": [1]}),
        ("grouped_moments", {"columns": 1, "positions": [0], "lower": [0, 0], "upper": [1, 1]}),
        ("grouped_moments", {"columns": 1, "positions": [0], "lower": [0], "upper": [1], "groups": 2}),
        ("grouped_counts", {"columns": 1, "positions": [0], "levels": [1]}),
        ("grouped_counts", {"columns": 1, "positions": [0], "levels": []}),
        ("grouped_ranks", {"columns": 1, "positions": [0], "edges": [[1, 0]]}),
        ("grouped_ranks", {"columns": 1, "positions": [0], "edges": []}),
        ("grouped_ranks", {"columns": 1, "positions": [0], "edges": [[0, 1]], "fill": [1.0], "own_rows": [0]}),
        ("survival_table", {"columns": 2, "edges": [1]}),
        ("survival_table", {"columns": 3, "edges": [0, 1], "group": 0, "groups": 2}),
    ],
)
def test_grouped_statistic_bad_parameter_is_refused(name: str, params: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        build(name, params)


def test_grouped_counts_code_outside_levels_is_refused() -> None:
    stat = GroupedCounts(columns=2, positions=(0,), levels=(2,), group=1, groups=2)
    stat.check_values(Units(np.array([[0.0, 1.0], [NAN, NAN]])))
    with pytest.raises(BadData, match="2"):
        stat.check_values(Units(np.array([[0.0, 2.0]])))
