"""Forecast of synthetic data: made-up people, and a line for each table of two columns."""

from __future__ import annotations

import numpy as np

from helpers.program_results import result_of
from zerosum.algorithms import SyntheticDataProgram
from zerosum.forecast.assumptions import Assumptions
from zerosum.forecast.measures import measure_of
from zerosum.forecast.populations import population_of
from zerosum.kernel.quantity import Quantity

PROGRAM = SyntheticDataProgram(
    columns=("age", "sex", "ward"),
    ranges={"age": (20, 80)},
    levels={"sex": ("f", "m"), "ward": ("a", "b", "c")},
    bins=8,
)


def test_synthetic_data_forecast_has_a_line_for_each_pair_of_columns() -> None:
    measure, population = measure_of(PROGRAM), population_of(PROGRAM, Assumptions())
    assert measure is not None
    assert population is not None
    assert [line.label for line in measure.lines[1:]] == ["age and sex", "age and ward", "sex and ward"]
    people = population.people(2000, np.random.default_rng(0))
    shares = result_of(PROGRAM, people, noise=5.0)["component_shares"]
    found = measure.values({"component_shares": Quantity(np.asarray(shares), "share")}, people, None)
    assert np.isclose(found[0], found[1:].mean())
    assert found[0] < 0.1


def test_synthetic_data_forecast_of_many_columns_has_a_line_for_each_column() -> None:
    names = tuple(f"x{at}" for at in range(12))
    measure = measure_of(SyntheticDataProgram(columns=names, levels=dict.fromkeys(names, (0, 1))))
    assert measure is not None
    assert len(measure.lines) == 13


def test_synthetic_data_forecast_people_are_correlated_unless_guessed_otherwise() -> None:
    for assumptions, expected in ((Assumptions(), True), (Assumptions(correlation=0.0), False)):
        population = population_of(PROGRAM, assumptions)
        assert population is not None
        rows = np.asarray(population.people(4000, np.random.default_rng(0)).rows)
        # 5 standard errors of a correlation of 4000 people; one false alarm in a million
        assert (abs(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1]) > 0.08) == expected
