"""What is filled in for missing values, and what is observed: by unit, and by nobody else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.statistics import build
from zerosum.statistics.missing import Filled

NAN = math.nan
PEOPLE = Units.from_list([[[1.0, NAN], [3.0, 8.0], [NAN, NAN]], [[NAN, NAN]], [[5.0, 2.0]]])


def filled(units: Units, **rules: Any) -> list[list[float]]:
    stat = build("vector_sum", {"columns": 2, "clip": 1e3, **rules})
    assert isinstance(stat, Filled)
    return np.asarray(stat.filled(units)).tolist()  # type: ignore[no-any-return]  # tolist is typed as Any


def test_fill_takes_public_value_or_own_rows() -> None:
    assert filled(PEOPLE, fill=[7, -1]) == [[1, -1], [3, 8], [7, -1], [7, -1], [5, 2]]
    assert filled(PEOPLE, fill=[7, -1], own_rows=[0, 1]) == [[1, 8], [3, 8], [2, 8], [7, -1], [5, 2]]
    assert filled(PEOPLE, fill=[7, -1], own_rows=[0]) == [[1, -1], [3, 8], [2, -1], [7, -1], [5, 2]]
    assert filled(Units(PEOPLE.rows), fill=[7, -1], own_rows=[0, 1])[2] == [7, -1]  # records have no other rows


def test_fill_column_without_rule_keeps_nan_and_unit_counts_as_zero() -> None:
    assert np.isnan(filled(PEOPLE, fill=[7, None])).tolist()[0] == [False, True]
    stat = build("vector_sum", {"columns": 2, "clip": 1e3, "fill": [7, None]})
    assert stat.total(PEOPLE).tolist() == [5.0, 2.0]


def test_fill_value_is_clamped() -> None:
    stat = build("vector_sum", {"columns": 1, "clip": 1.0, "lower": [0], "upper": [10], "fill": [99]})
    assert stat.total(Units.from_rows([[NAN], [5.0]])) == pytest.approx([1.0])


@pytest.mark.parametrize(
    "rules",
    [
        {"fill": [1.0]},
        {"fill": [1.0, NAN]},
        {"fill": [1e101, 0]},
        {"own_rows": [0]},
        {"fill": [1, None], "own_rows": [1]},
    ],
)
def test_fill_bad_rule_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(BadParameter, match="fill"):
        build("vector_sum", {"columns": 2, "clip": 1.0, **rules})


def test_observed_sums_are_over_means_of_people() -> None:
    stat = build("observed_sums", {"columns": 2, "clip": 100.0, "count_weight": 0.5})
    sums, counts = stat.split(stat.total(PEOPLE))  # type: ignore[attr-defined]
    assert sums.tolist() == pytest.approx([2 + 5, 8 + 2])
    assert counts.tolist() == pytest.approx([2, 2])


def test_observed_sums_unit_seen_in_few_columns_has_smaller_norm() -> None:
    stat = build("observed_sums", {"columns": 4, "clip": 1.0})
    for row, norm in (([50.0, NAN, NAN, NAN], 0.5), ([50.0, 0.0, NAN, NAN], math.sqrt(0.5)), ([50.0, 0, 0, 0], 1.0)):
        assert stat.total(Units.from_rows([row]))[0] == pytest.approx(norm)


def test_histogram_of_people_counts_observed_values() -> None:
    people = Units.from_list([[[0.0], [NAN], [1.0]], [[NAN]], [[NAN], [1.0]]])
    assert build("histogram", {"bins": 2}).total(people).tolist() == [0.5, 1.5]
    assert build("histogram", {"bins": 2, "edges": [-0.5, 0.5, 1.5]}).total(people).tolist() == [0.5, 1.5]
    shares = build("histogram", {"bins": 2, "fill": [0]}).total(people).tolist()
    assert shares == pytest.approx([2 / 3 + 1 + 0.5, 1 / 3 + 0.5])
