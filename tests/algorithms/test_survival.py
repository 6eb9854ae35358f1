"""Survival curves: the plain ones without noise, intervals with it, and the log-rank test."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from helpers.program_results import Floats, result_of
from zerosum.algorithms import SurvivalProgram
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.study.rehearsal import Rehearsal

EDGES = np.linspace(0, 8, 17)
QUESTION: dict[str, Any] = {"columns": ("time", "event", "arm"), "edges": EDGES, "groups": ("p", "q")}


def cohort(n: int, seed: int, ratio: float) -> Floats:
    rng = np.random.default_rng(seed)
    arm = rng.integers(0, 2, n)
    event, end = rng.exponential(np.where(arm == 1, 6 / ratio, 6)), rng.uniform(1, 12, n)
    return np.column_stack([np.minimum(event, end), event <= end, arm])


def kaplan_meier(rows: Floats, at: Floats) -> Floats:
    left, value = [], 1.0
    for moment in np.unique(rows[rows[:, 1] == 1, 0]):
        value *= 1 - np.sum((rows[:, 0] == moment) & (rows[:, 1] == 1)) / np.sum(rows[:, 0] >= moment)
        left.append((moment, value))
    return np.array([min([1.0, *(value for moment, value in left if moment <= end)]) for end in at])


@pytest.mark.parametrize("adjacency", Adjacency)
def test_survival_without_noise_in_fine_bins_equals_kaplan_meier(adjacency: Adjacency) -> None:
    rows = cohort(600, 0, 0.6)
    question = SurvivalProgram(**(QUESTION | {"edges": np.linspace(0, 8, 401)}))
    found = result_of(question, Units(rows), adjacency)
    for g in (0, 1):
        exact = kaplan_meier(rows[rows[:, 2] == g], question.edges[1:])
        assert np.nanmax(np.abs(found["survival"][g] - exact)) < 0.002
        assert found["median"][g] == pytest.approx(question.edges[1:][np.argmax(exact <= 0.5)], abs=0.05)
    low, high = found["survival_population_interval"][0, 200]
    assert low < found["survival"][0, 200] < high
    assert np.allclose(np.diff(found["survival_interval"][0, :200], axis=1), 0)


def test_survival_times_at_bin_edges_are_exact() -> None:
    """Events at the ends of bins, nobody censored before the end: the same numbers as by hand."""
    rows = np.column_stack([[1.0, 1, 2, 3, 3, 3, 4, 9, 9, 9], [1.0] * 7 + [0] * 3])
    found = result_of(SurvivalProgram(columns=("t", "e"), edges=[0, 1, 2, 3, 4]), Units(rows))
    assert np.allclose(found["survival"][0], [0.8, 0.7, 0.4, 0.3])
    assert found["at_risk"][0].tolist() == [10, 8, 7, 4]
    assert found["median"][0] == pytest.approx(2 + 2 / 3)
    assert found["median_interval"][0].tolist() == [2, 3]


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_survival_intervals_cover_curve_without_privacy(epsilon: float) -> None:
    rows = cohort(2000, 1, 0.7)
    truth = np.array([kaplan_meier(rows[rows[:, 2] == g], EDGES[1:]) for g in (0, 1)])
    rehearsal = Rehearsal(SurvivalProgram(**QUESTION), len(rows), 4, epsilon, 1e-5)
    held, z = [], []
    plain = result_of(SurvivalProgram(**(QUESTION | {"edges": np.linspace(0, 8, 401)})), Units(rows))
    for run in range(60):
        found = rehearsal.run(Units(rows), run)
        ends = np.asarray(found["survival_interval"])
        held.append(float(np.mean((ends[..., 0] <= truth) & (truth <= ends[..., 1]))))
        std = float(np.asarray(found["log_rank_pooled_z"].std).item())
        z.append((float(found["log_rank_pooled_z"]) - float(plain["log_rank_pooled_z"].item())) / std)
        survival = np.asarray(found["survival"])
        assert np.all((ends[..., 0] <= survival) & (survival <= ends[..., 1]) | np.isnan(survival))
    assert np.mean(held) == pytest.approx(0.95, abs=0.03)
    assert np.std(z) == pytest.approx(1, abs=0.3)


@pytest.mark.slow
def test_log_rank_test_false_alarm_rate_is_as_stated() -> None:
    rehearsal = Rehearsal(SurvivalProgram(**QUESTION), 1000, 4, 1.0, 1e-5)
    p = np.array([float(rehearsal.run(Units(cohort(1000, 100 + s, 1.0)), s)["log_rank_p"]) for s in range(300)])
    assert np.mean(p < 0.05) <= 0.08
    assert np.mean(p < 0.5) == pytest.approx(0.5, abs=0.1)


def test_survival_curve_is_hidden_where_noise_exceeds_all_people() -> None:
    rehearsal = Rehearsal(SurvivalProgram(**QUESTION), 60, 4, 0.5, 1e-5)
    found = rehearsal.run(Units(cohort(60, 2, 1.0)), 0)
    assert np.all(np.isnan(np.asarray(found["survival"])[:, -1]))
    assert np.all(np.asarray(found["survival_interval"])[:, -1, 0] == 0)
    assert float(found["log_rank_p"]) <= 1


def test_survival_shown_points_are_the_same_in_all_runs_and_intervals_cover() -> None:
    """No point is shown or hidden by its noise: coverage holds over all points that are shown."""
    question: dict[str, Any] = {"columns": ("t", "e"), "edges": np.linspace(0, 8, 13)}
    rehearsal = Rehearsal(SurvivalProgram(**question), 228, 8, 0.5, 1e-5, 2)
    rng, shown, pooled, population = np.random.default_rng(0), [], [], []
    truth = np.exp(-question["edges"][1:] / 6)
    for run in range(150):
        event, end = rng.exponential(6, 228), rng.uniform(1, 12, 228)
        rows = np.column_stack([np.minimum(event, end), event <= end])
        exact = np.asarray(result_of(SurvivalProgram(**question), Units(rows))["survival"])[0]
        found = rehearsal.run(Units(rows), run)
        survival = np.asarray(found["survival"])[0]
        shown.append(np.isfinite(survival))
        low, high = np.asarray(found["survival_interval"])[0].T
        assert np.all((low <= survival) & (survival <= high) | np.isnan(survival))
        pooled.append((low <= exact) & (exact <= high))
        low, high = np.asarray(found["survival_population_interval"])[0].T
        population.append((low <= truth) & (truth <= high))
    at = shown[0]
    assert np.any(at)
    assert np.all(np.array(shown) == at)
    # 150 runs at 95 %: a point is below 0.87 by chance in 1 of 10^4
    for covered in (pooled, population):
        assert np.min(np.mean(covered, axis=0)[at]) >= 0.87
        assert np.mean(np.mean(covered, axis=0)[at]) >= 0.93


def test_survival_many_groups_and_bins_take_less_than_quadratic_memory() -> None:
    rng, groups, bins = np.random.default_rng(0), 6, 250
    rows = np.column_stack([rng.exponential(300, 3000), rng.integers(0, 2, 3000), rng.integers(0, groups, 3000)])
    question = SurvivalProgram(
        columns=QUESTION["columns"], edges=np.arange(bins + 1.0), groups=tuple(map(str, range(groups)))
    )
    tracemalloc.start()
    found = result_of(question, Units(rows.astype(float)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["log_rank_bins"][0] > 100
    square = 16 * (groups * (2 * bins + 1)) ** 2
    assert peak < 0.6 * square


def test_survival_rows_with_missing_value_are_left_out() -> None:
    rows = cohort(300, 3, 1.0)
    holes = np.vstack([rows, [[np.nan, 1, 0], [1, np.nan, 1], [1, 1, np.nan]]])
    question = SurvivalProgram(**QUESTION, missing="observed")
    one, two = result_of(question, Units(holes)), result_of(question, Units(rows))
    assert np.allclose(one["survival"], two["survival"], equal_nan=True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"edges": [0, 1]}, "edges"),
        ({"edges": [0, 2, 1]}, "edges"),
        ({"groups": ("p",)}, "groups"),
        ({"columns": ("time", "event")}, "groups"),
        ({"events": (1, 1)}, "events"),
        ({"missing": 3.0}, "missing"),
        ({"missing": "own-rows"}, "'observed'"),
    ],
)
def test_survival_bad_parameter_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        SurvivalProgram(**(QUESTION | change))
