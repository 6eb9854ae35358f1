"""The benchmark of regressions on fresh data."""

from __future__ import annotations

import numpy as np
import pytest

import fresh
from fresh_data import POPULATIONS, DataSet


def drawn(name: str, seed: int = 0, rows: int = 3000) -> DataSet:
    table = POPULATIONS[name].table(name, seed, rows)
    # The fit to the rows stands in for the population, whose large draw takes seconds.
    object.__setattr__(table, "population", table.pooled)
    return table


@pytest.mark.parametrize(("name", "least"), [("same-twice", 0.3), ("wrong-link", 0.15), ("exposures", 0.25)])
def test_gradient_descent_at_large_epsilon_explains_nearly_as_much_as_the_pooled_fit(name: str, least: float) -> None:
    data = drawn(name)
    grid = fresh.Grid(rounds=(60,), steps=(1.0,), clips=(3.0,), standardise=(True,), averaged=(False,))
    (found,) = fresh.gradient_descent([data], 1e4, grid)[1]
    assert least < fresh.explained(data, found) <= fresh.explained(data, data.pooled) + 1e-9


@pytest.mark.parametrize("name", ["clinic", "wrong-link"])
def test_objective_perturbation_at_large_epsilon_finds_the_pooled_fit(name: str) -> None:
    data = drawn(name)
    found = fresh.perturbed_objective(data, 200.0, 0)
    assert fresh.explained(data, found) == pytest.approx(fresh.explained(data, data.pooled), abs=0.1)


def test_sufficient_statistics_at_large_epsilon_find_the_pooled_fit() -> None:
    data = drawn("clinic")
    assert fresh.sufficient_statistics(data, 1e6, 0) == pytest.approx(data.pooled, abs=1e-2)


def test_ours_on_a_small_table_records_its_intervals() -> None:
    data, coverage = drawn("clinic", rows=300), fresh.Coverage()
    found = fresh.ours(data, fresh.plan_for(data, 30.0, {}), 0, coverage)
    assert np.all(np.isfinite(found))
    assert len(coverage.pooled[0]) == len(data.columns) + 1
    assert coverage.line().count("|") == 3
