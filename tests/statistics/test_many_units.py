"""Sums over more units than are planned for in blocks of the usual length: shorter groups of rows, the same sums."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.statistic_cases import ONE_ROW, SMALL, WHOLE_SITE, Case, with_holes
from zerosum.compute.units import Units
from zerosum.kernel.grid import MOST_UNITS, PLANNED_UNITS, rows_allowed, summation_slack
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.topics import DocumentStatistic

CASES = [case for case in SMALL if case[0] not in WHOLE_SITE]


def units_of(case: Case, people: int, *, owned: bool) -> Units:
    """Random units of a statistic: single records, or people of one to four rows."""
    stat, rng = build(*case), np.random.default_rng(0)
    lengths = rng.integers(1, 5, people) if owned else np.ones(people, dtype=np.int64)
    count = int(lengths.sum())
    if stat.name == "histogram" and getattr(stat, "edges", None) is None:
        rows = rng.integers(0, stat.size, (count, 1)).astype(float)
    else:
        rows = rng.normal(size=(count, stat.columns)) * float(getattr(stat, "clip", 1.0)) / np.sqrt(stat.columns)
    offsets = np.concatenate([[0], np.cumsum(lengths)]) if owned else None
    return Units(np.ascontiguousarray(with_holes(stat, rows, rng)), offsets)


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_statistic_of_many_units_has_the_same_sum(case: Case, owned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of rows that may be added in any order is that of 10^9 units. Groups of rows differ, so that only
    rounding does: by less than the slack that is planned for."""
    if owned and case[0] in ONE_ROW:
        pytest.skip("a statistic of single records")
    stat, units = build(*case), units_of(case, 300, owned=owned)
    usual = stat.total(units)
    few = rows_allowed(MOST_UNITS)
    for module in ("statistic", "units"):
        monkeypatch.setattr(f"zerosum.compute.{module}.rows_allowed", lambda units: few)
    monkeypatch.setattr("zerosum.statistics.groups.PLANNED_UNITS", 1)
    many = stat.total(units)
    bound = stat.sensitivity(Adjacency.ADD_REMOVE)
    assert np.linalg.norm(many - usual) <= summation_slack(len(units)) * max(bound, 1.0)


def test_statistics_with_more_terms_serve_fewer_units() -> None:
    for name, parameters in SMALL:
        stat = build(name, parameters)
        expected = PLANNED_UNITS if isinstance(stat, DocumentStatistic) else MOST_UNITS
        assert type(stat).most_units == expected
