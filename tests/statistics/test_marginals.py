"""Tables of categories: sums against NumPy, exact sensitivities, planned lengths, and refusals."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.marginals import CentredPairs, WeightedTables, weights_of

Floats = NDArray[np.float64]
LAYOUT: dict[str, Any] = {"columns": 3, "levels": (2, 0, 3), "edges": ([], [0.0, 1.0, 2.0], [])}


def tables(**more: Any) -> WeightedTables:
    given = {
        "cells": 30,
        "of": (0, 1, 2),
        "bins": ((0, 1, 2), (0, 1, 2), (0, 0, 1, 1)),
        "tables": ((0,), (1, 2)),
        "weights": np.array([0.6, 0.8]),
    }
    return WeightedTables(**(LAYOUT | given | more))


def every_row(sizes: tuple[int, ...]) -> Floats:
    return np.array(list(itertools.product(*(range(size) for size in sizes))), dtype=np.float64)


def test_weighted_tables_count_units_in_cells() -> None:
    rows = np.array([[0, 0.5, 2], [1, 5.0, 0], [7, -1.0, np.nan], [np.nan, np.nan, 1]])
    first, second = tables().split(tables().total(Units.from_rows(rows)))
    # a code outside the levels and a missing value are both in the last category
    assert first.tolist() == pytest.approx([1, 1, 2])
    # values outside the edges count in the outer bins; the third column has two bins: 0, 1 and 2, missing
    assert second.ravel().tolist() == pytest.approx([0, 2, 1, 0, 1, 0])


def test_weighted_tables_of_unit_with_several_rows_have_weight_one() -> None:
    rows = np.array([[0, 0.5, 2], [1, 0.5, 2], [0, 1.5, 0]])
    (first, _) = tables().split(tables().total(Units.from_list([rows])))
    assert first.tolist() == pytest.approx([2 / 3, 1 / 3, 0])


def test_weighted_tables_have_planned_length_for_any_tables() -> None:
    few = tables(tables=((0,),), weights=np.array([1.0]))
    total = few.total(Units.from_rows(np.zeros((4, 3))))
    assert len(total) == few.size == tables().size == 30
    assert not np.any(total[3:])


def test_weighted_tables_of_many_codings_need_the_memory_of_one_table() -> None:
    """A coordinator may send thousands of codings; a site holds the bins of those of one table at a time."""
    many = WeightedTables(
        columns=1,
        levels=(1,),
        edges=((),),
        cells=20,
        of=(0,) * 2000,
        bins=((0, 1),) * 2000,
        tables=((0,), (1999,)),
        weights=np.array([0.6, 0.8]),
    )
    units = Units(np.zeros((10_000, 1)))
    tracemalloc.start()
    many.total(units)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # the bins of all codings would be 160 MB
    assert peak < 10_000_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"cells": 8},
        {"weights": np.array([0.8, 0.8])},
        {"weights": np.array([-0.6, 0.8])},
        {"weights": np.array([0.6])},
        {"tables": ((0,), (0, 1, 2, 0))},
        {"tables": ((0,), (3,))},
        {"bins": ((0, 1, 2), (0, 1, 2), (0, 0, 2, 2))},
        {"bins": ((0, 1, 2), (0, 1), (0, 0, 1, 1))},
        {"bins": ((0, 1, 2), (0, 1, 2), (0, 0, 1, 10**30))},
        {"bins": ((0, 1, 2), (0, 1, 2), (0, 0, 1, 2**63 - 1))},
        {"bins": ((0, 1, 2), (0, 1, 2), ())},
        {"of": (0, 1, 3)},
        {"levels": (2, 1, 3)},
        {"levels": (2, 0)},
        {"edges": ([], [1.0, 0.0], [])},
        {"cells": 1 << 21},
    ],
)
def test_weighted_tables_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        tables(**wrong).total(Units.from_rows(np.zeros((1, 3))))


def test_weights_never_exceed_the_planned_norm() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 3, 40, 700):
        weights = weights_of(rng.uniform(1e-3, 1e3, size))
        assert 1 - 1e-11 < math.fsum((weights**2).tolist()) <= 1


def pairs(bins: tuple[tuple[int, ...], ...]) -> CentredPairs:
    levels = tuple(len(each) - 1 for each in bins)
    return CentredPairs(columns=len(bins), levels=levels, edges=((),) * len(bins), cells=900, bins=bins)


BINS = [
    ((0, 1), (0, 1)),
    ((0, 1, 2), (0, 0, 1)),
    ((0, 1, 2, 3), (0, 1), (0, 1, 1)),
    ((0, 0, 0), (0, 1, 2), (0, 1, 2, 3)),
    ((0, 1), (0, 1), (1, 0), (0, 1)),
    ((0, 1, 2), (0, 1, 2, 3, 4), (0, 1), (0, 1, 2)),
]


@pytest.mark.parametrize("bins", BINS)
def test_centred_pairs_sensitivity_is_the_largest_distance_of_all_rows(bins: tuple[tuple[int, ...], ...]) -> None:
    statistic = pairs(bins)
    # every category of every column: all pairs of units of one row
    vectors = np.array([statistic.total(Units(row[None])) for row in every_row(tuple(map(len, bins)))])
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    assert distances.max() <= statistic.sensitivity(Adjacency.REPLACE_ONE)
    assert distances.max() == pytest.approx(statistic.sensitivity(Adjacency.REPLACE_ONE))
    norms = np.linalg.norm(vectors, axis=1)
    # a constant, so that an added unit is as far from none as any other
    assert norms.max() - norms.min() < 1e-12
    assert norms.max() <= statistic.sensitivity(Adjacency.ADD_REMOVE)


def test_centred_pairs_sensitivity_of_many_columns_is_exact() -> None:
    """Forty columns: the closed form against all numbers of changed columns in the order of their bins, and random
    sets of columns, none of which may be farther."""
    rng = np.random.default_rng(1)
    counts = rng.integers(2, 9, 40)
    statistic = CentredPairs(
        columns=40,
        levels=tuple((counts - 1).tolist()),
        edges=((),) * 40,
        cells=1 << 20,
        bins=tuple(tuple(range(count)) for count in counts),
    )
    q = 1 - 1 / counts

    def square(some: NDArray[np.bool_]) -> float:
        changed = some[:, None], some[None, :]
        both, one = changed[0] & changed[1], changed[0] & ~changed[1]
        of_pairs = np.where(both, 2 * (q[:, None] + q - 1), 0) / 2 + np.where(one, 2 * q[None, :], 0)
        return float(np.sum(of_pairs) - np.sum(np.diag(of_pairs)))

    order = np.argsort(counts)
    best = max(square(np.isin(np.arange(40), order[:m])) for m in range(1, 41))
    assert 2 / statistic.scale**2 == pytest.approx(best)
    assert max(square(rng.random(40) < rng.random()) for _ in range(2000)) <= best * (1 + 1e-12)


def test_centred_pairs_release_is_the_centred_table() -> None:
    rng = np.random.default_rng(2)
    rows = np.column_stack([rng.integers(0, 3, 200), rng.integers(0, 2, 200)]).astype(np.float64)
    statistic = pairs(((0, 1, 2, 2), (0, 1, 1)))
    found = statistic.split(statistic.total(Units(rows)))[0, 1]
    one, other = np.eye(3)[rows[:, 0].astype(int)] - 1 / 3, np.eye(2)[rows[:, 1].astype(int)] - 1 / 2
    assert np.allclose(found, one.T @ other)


def test_centred_pairs_without_two_columns_of_two_bins_are_refused() -> None:
    with pytest.raises(BadParameter):
        pairs(((0, 0), (0, 1))).total(Units(np.zeros((1, 2))))
    with pytest.raises(BadParameter):
        CentredPairs(columns=2, levels=(3, 3), edges=((), ()), cells=8, bins=((0, 1, 2, 2), (0, 1, 2, 2)))


def test_categorised_codes_outside_the_levels_are_reported_to_the_owner_alone() -> None:
    units = Units(np.array([[0.0, 0.5, 1.0], [9.0, 0.5, 1.0]]))
    with pytest.raises(BadData):
        tables().check_values(units)
    tables().check(units)
    assert tables().total(units).sum() > 0
