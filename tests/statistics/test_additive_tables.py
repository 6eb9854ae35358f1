"""Sums by bin for additive models: against NumPy, exact sensitivities on every pair of rows, and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.additive import ModelTables, ResponseTables, ScoreProducts, TermTables

Floats = NDArray[np.float64]
LAYOUT: dict[str, Any] = {
    "columns": 3,
    "levels": (2, 0, 0),
    "edges": ([], [0.0, 1.0, 2.0], [-1.0, 3.0]),
    "cells": 40,
    "of": (0, 1, 1),
    "bins": ((0, 1, 2), (0, 1, 2), (0, 0, 1)),
    "terms": ((0,), (1,), (0, 2)),
}
ROWS = np.array([[0, 0.5, -1.0], [1, 5.0, 9.0], [7, -1.0, np.nan], [np.nan, np.nan, 1.0], [1, 1.5, 0.0]])


def test_response_tables_have_sums_and_counts_of_cells() -> None:
    statistic = ResponseTables(**LAYOUT)
    sums, counts = statistic.split(statistic.total(Units.from_rows(ROWS)))
    # responses are mapped to -1/2, 1/2 (clipped), 0 (missing), 0 and -1/4
    assert sums[:3].tolist() == pytest.approx([-0.5, 0.25, 0.0])
    assert counts[:3].tolist() == pytest.approx([1, 2, 2])
    # the third column has its last cell for the missing value
    assert sums[3:6].tolist() == pytest.approx([-0.5, 0.25, 0.0])
    assert counts[3:6].tolist() == pytest.approx([2, 2, 1])
    assert counts[6:].sum() == pytest.approx(5)


def test_response_tables_of_a_class_count_an_undeclared_one_as_neither() -> None:
    rows = np.array([[0.0, 0.5, 0.0], [0.0, 0.5, 1.0], [0.0, 0.5, 1.0], [0.0, 0.5, 7.0], [0.0, 0.5, np.nan]])
    statistic = ResponseTables(**LAYOUT | {"levels": (2, 0, 2), "edges": ([], [0.0, 1.0, 2.0], [])})
    sums, _ = statistic.split(statistic.total(Units.from_rows(rows)))
    assert sums[0] == pytest.approx(0.5)


def test_response_tables_of_unit_with_several_rows_have_weight_one() -> None:
    statistic = ResponseTables(**LAYOUT)
    sums, counts = statistic.split(statistic.total(Units.from_list([ROWS[[0, 1]]])))
    assert counts[:3].tolist() == pytest.approx([0.5, 0.5, 0])
    assert sums[:3].tolist() == pytest.approx([-0.25, 0.25, 0])


def test_response_tables_missing_response_is_reported_to_the_owner_alone() -> None:
    statistic, units = ResponseTables(**LAYOUT), Units.from_rows(ROWS[[0, 4]] * [1, 1, np.nan])
    with pytest.raises(BadData):
        statistic.check_values(units)
    assert np.all(np.isfinite(statistic.total(units)))


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_model_tables_have_values_of_the_model(family: Any) -> None:
    effects = np.linspace(-1, 1, 12)
    statistic = ModelTables(**LAYOUT, family=family, intercept=0.3, effects=effects)
    cells = [
        start + own for start, own in zip(statistic.starts, statistic.cells_of(Units.from_rows(ROWS)), strict=True)
    ]
    eta = 0.3 + sum(effects[own] for own in cells)
    s = np.clip(eta, -0.5, 0.5) if family == "linear" else 1 / (1 + np.exp(-eta)) - 0.5
    expected = np.zeros(40)
    for own in cells:
        np.add.at(expected, own, s)
    assert statistic.total(Units.from_rows(ROWS)) == pytest.approx(expected)


def test_score_products_are_products_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    statistic = ScoreProducts(**LAYOUT, scores=rng.uniform(-1, 1, 12))
    cells = statistic.cells_of(Units.from_rows(ROWS))
    y = np.column_stack([statistic.scores[start + own] for start, own in zip(statistic.starts, cells, strict=True)])
    found = statistic.split(statistic.total(Units.from_rows(ROWS)))
    assert found == pytest.approx(y.T @ y * (1 - np.eye(3)))


def layout(columns: int) -> dict[str, Any]:
    """Columns of two levels, each with a term, and a number as the response."""
    return {
        "columns": columns + 1,
        "levels": (*[2] * columns, 0),
        "edges": (*[[]] * columns, [-1.0, 1.0]),
        "cells": 200,
        "of": tuple(range(columns)),
        "bins": ((0, 1, 2),) * columns,
        "terms": tuple((at,) for at in range(columns)),
    }


def extremes(statistic: TermTables, columns: int) -> tuple[float, float]:
    """Largest distance of two rows, and largest norm of one, over all levels and the ends of the response."""
    rows = np.array(list(itertools.product(*[(0.0, 1.0)] * columns, (-1.0, 1.0))))
    vectors = np.array([statistic.total(Units.from_rows(row[None])) for row in rows])
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    return float(distances.max()), float(np.linalg.norm(vectors, axis=1).max())


@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5])
def test_additive_sensitivities_are_the_largest_distances_of_all_rows(columns: int) -> None:
    given = layout(columns)
    # The first column alone moves the value from one end to the other.
    effects = np.zeros(3 * columns)
    effects[:2] = [-1, 1]
    statistics: list[TermTables] = [
        ResponseTables(**given),
        ModelTables(**given, family="linear", intercept=0.0, effects=effects),
    ]
    if columns > 1:
        statistics.append(ScoreProducts(**given, scores=np.tile([-1.0, 1.0, 0.3], columns)))
    for statistic in statistics:
        distance, norm = extremes(statistic, columns)
        assert distance == pytest.approx(statistic.sensitivity(Adjacency.REPLACE_ONE))
        assert norm == pytest.approx(statistic.sensitivity(Adjacency.ADD_REMOVE))


@pytest.mark.parametrize(
    "wrong",
    [
        {"cells": 23},
        {"of": (0, 2, 1)},
        {"terms": ((0,), (0, 1, 2))},
        {"terms": ((0,), (3,))},
        {"bins": ((0, 1, 2), (0, 1, 2), (0, 0, 2))},
        {"edges": ([], [0.0, 1.0, 2.0], [-1.0, 0.0, 3.0])},
        {"edges": ([], [0.0, 1.0, 2.0], [0.0, 5e-324])},
        {"levels": (2, 0, 3), "edges": ([], [0.0, 1.0, 2.0], [])},
    ],
)
def test_term_tables_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        ResponseTables(**LAYOUT | wrong).total(Units.from_rows(ROWS))


def test_model_and_scores_that_do_not_fit_are_refused() -> None:
    for effects in (np.zeros(11), np.full(12, 1e9)):
        with pytest.raises(BadParameter):
            ModelTables(**LAYOUT, family="linear", intercept=0.0, effects=effects)
    for scores in (np.zeros(11), np.full(12, 1.001)):
        with pytest.raises(BadParameter):
            ScoreProducts(**LAYOUT, scores=scores)


def test_response_range_without_a_width_in_doubles_is_refused() -> None:
    with pytest.raises(BadParameter, match="wide"):
        ResponseTables(**LAYOUT | {"edges": ([], [0.0, 1.0, 2.0], [0.0, 5e-324])})
