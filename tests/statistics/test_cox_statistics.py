"""Sums for Cox regression: what rows contribute, and a search for worse neighbours over whole designs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.cox import ALL_ROWS, CovariateMoments, CoxStep, ExitTable, free_curvature

COMMON: dict[str, Any] = {"lower": [-1.0], "upper": [1.0], "edges": [0.0, 1.0, 2.0, 4.0]}


def step(**changes: Any) -> CoxStep:
    given: dict[str, Any] = {
        **{"columns": 3, "coefficients": [0.0], "hazards": [[0.0, 0.1, 0.3, 0.7]], "parts": [1, 3]},
        **{"matrix": [[0.5]], "shift": [0.0], "part_weight": 0.2, "stratum_weight": 0.2, "curvature": 1.0},
        **COMMON,
    }
    return CoxStep(**given | changes)


def one(statistic: Any, *row: float) -> Floats:
    return np.asarray(statistic.total(Units.from_rows(np.array([row]))))


def random_step(rng: np.random.Generator, *, all_rows: bool, entry: bool) -> CoxStep:
    p, strata, parts = int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(1, 5))
    bins, weight = parts + int(rng.integers(0, 3)), float(rng.uniform(0.05, 0.5))
    rates = rng.exponential(1, (strata, bins)) * 10 ** rng.uniform(-2, 2, (strata, bins))
    ends = sorted(rng.choice(np.arange(1, bins), parts - 1, replace=False).tolist())
    return CoxStep(
        columns=p + 2 + int(strata > 1) + int(entry),
        lower=-np.ones(p),
        upper=np.ones(p),
        edges=np.arange(bins + 1.0),
        entry=entry,
        strata=strata,
        coefficients=rng.normal(size=p),
        hazards=np.concatenate([np.zeros((strata, 1)), np.cumsum(rates, axis=1)], axis=1),
        parts=(*ends, bins),
        matrix=rng.normal(size=(p, p)) * rng.choice([0.3, 1.0, 5.0]),
        shift=0.1 * rng.normal(size=p),
        bound=float(rng.choice([1.0, 1.5])),
        part_weight=weight,
        stratum_weight=float(rng.uniform(0, 0.6)),
        curvature=ALL_ROWS if all_rows else free_curvature(weight),
        all_rows=all_rows,
    )


def random_rows(statistic: CoxStep, rng: np.random.Generator, count: int) -> Floats:
    """Rows with features near the ends of their ranges, and times on and just after edges as well as between."""
    p, bins = statistic.features, statistic.bins
    features = np.sign(rng.normal(size=(count, p))) * rng.random((count, p)) ** 0.3
    after = rng.choice(statistic.edges, count) + 1e-3 * rng.random(count)
    times = np.where(rng.random(count) < 0.5, rng.uniform(0, bins, count), after)
    roles: list[Any] = [rng.uniform(0, bins, count) * rng.integers(0, 2, count)] if statistic.entry else []
    roles += [rng.integers(0, statistic.strata, count)] if statistic.strata > 1 else []
    return np.column_stack([features, *roles, times, rng.integers(0, 2, count)])


@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("all_rows", [False, True])
def test_cox_step_random_designs_have_no_pair_beyond_sensitivity(all_rows: bool, entry: bool) -> None:
    rng = np.random.default_rng(5 + all_rows)
    farthest = longest = 0.0
    for _ in range(20):
        statistic = random_step(rng, all_rows=all_rows, entry=entry)
        rows = random_rows(statistic, rng, 80)
        sums = np.array([one(statistic, *row) for row in rows] + [np.zeros(statistic.size)])
        norms = np.sum(sums**2, axis=1)
        apart = np.sqrt(np.maximum(norms[:, None] + norms - 2 * sums @ sums.T, 0))
        farthest = max(farthest, float(np.max(apart)) / statistic.sensitivity(Adjacency.REPLACE_ONE))
        longest = max(longest, math.sqrt(np.max(norms)) / statistic.sensitivity(Adjacency.ADD_REMOVE))
    assert 0.9 < farthest <= 1 + 1e-9
    assert 0.9 < longest <= 1 + 1e-9


def test_cox_step_residuals_at_the_true_model_have_mean_zero() -> None:
    """Stopping and weighting do not bias: 40 000 rows, six deviations."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 40_000)
    times, leaves = rng.exponential(np.exp(-1.5 * x)), rng.uniform(0, 4, 40_000)
    rows = np.column_stack([x, np.minimum(times, leaves), times <= leaves])
    statistic = step(coefficients=[1.5], hazards=[[0.0, 1.0, 2.0, 4.0]], matrix=[[3.0]])
    score, moments = statistic.split(statistic.total(Units.from_rows(rows)))
    # The Hessian is the variance of the score at the true model.
    assert np.all(np.abs(score) < 6 * np.sqrt(np.diag(moments)))
    # An estimator that clips the residual instead loses thousands of expected events.
    unweighted = np.minimum(np.exp(1.5 * x) * rows[:, 1], 1.0)
    assert abs(np.sum(rows[:, 2] - unweighted)) > 1000


def test_cox_step_split_has_score_and_moments_of_one_row() -> None:
    statistic = step()
    score, moments = statistic.split(one(statistic, 0.8, 2.0, 1))
    expected = np.array([0.1, 0.2])  # by part
    residual = np.array([0.0, 1.0]) - expected
    z, a, c = 0.4, 0.2, 0.2
    assert np.allclose(score, [z * residual.sum(), *(a * residual), c * residual.sum()])
    half = (np.array([0.0, 1.0]) + expected) / 2
    assert moments[0, 0] == pytest.approx(z * z * half.sum())
    assert np.allclose(moments[0, 1:3], z * a * half)
    assert np.allclose(np.diag(moments)[1:3], a * a * half)
    assert np.allclose(moments[1:3, 3], a * c * half)
    assert moments[1, 2] == 0


def test_cox_step_row_is_stopped_where_its_expected_number_reaches_the_bound() -> None:
    statistic = step(hazards=[[0.0, 0.6, 5.0, 9.0]])
    score, _moments = statistic.split(one(statistic, 0.0, 3.0, 1))
    assert np.allclose(score[1:3], [0.2 * -0.6, 0.2 * -0.4])


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e16, 1e17])
def test_cox_step_huge_hazards_before_the_entry_keep_the_sensitivity(scale: float) -> None:
    # Beside a hazard of 1e16 the neighbours of a double are 2 apart, so that the sum of hazard and bound rounds.
    statistic = step(
        **{"columns": 4, "entry": True, "hazards": [[0.0, 0.0, scale + 2, 2 * scale + 4]], "parts": [1, 3]},
        **{"matrix": [[0.95]], "part_weight": 0.3, "stratum_weight": 0.0, "curvature": 0.01},
    )
    stopped, early = one(statistic, 1.0, 2.0, 4.0, 0.0), one(statistic, 1.0, 0.0, 0.4, 1.0)
    late = one(statistic, 1.0, 2.0, 3.0, 1.0)
    for row, other in ((stopped, early), (late, early), (late, stopped)):
        assert np.linalg.norm(row - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE)
    for row in (stopped, early, late):
        assert np.linalg.norm(row) <= statistic.sensitivity(Adjacency.ADD_REMOVE)


def test_cox_step_entry_removes_the_time_before() -> None:
    statistic = step(columns=4, entry=True)
    score, _moments = statistic.split(one(statistic, 0.0, 0.5, 2.0, 0))
    assert np.allclose(score[1:3], [0.2 * -0.05, 0.2 * -0.2])


def test_cox_step_other_cause_counts_as_end_of_observation() -> None:
    two, other = step(causes=3, cause=1), step()
    assert np.array_equal(one(two, 0.3, 1.5, 2), one(other, 0.3, 1.5, 0))
    assert np.array_equal(one(step(causes=3, cause=2), 0.3, 1.5, 2), one(other, 0.3, 1.5, 1))


@pytest.mark.parametrize(
    "row", [(0.1, 1.0, 2.0), (np.nan, 1.0, 1.0), (0.1, -1.0, 1.0), (0.1, np.nan, 1.0), (0.1, 1.0, 0.5)]
)
def test_cox_statistics_unfit_row_contributes_zero(row: tuple[float, ...]) -> None:
    for statistic in (step(), ExitTable(columns=3, **COMMON), CovariateMoments(columns=3, **COMMON)):
        assert not np.any(one(statistic, *row))
        with pytest.raises(BadData):
            statistic.check_values(Units.from_rows(np.array([row])))


def test_exit_table_counts_bins_events_and_entries() -> None:
    table = ExitTable(columns=5, entry=True, strata=2, **COMMON)
    rows = [[0.0, 0.0, 0, 1.0, 1], [0.0, 0.5, 1, 3.0, 0], [0.0, 1.5, 1, 9.0, 1], [0.0, 2.0, 1, 2.0, 1]]
    exits, events, entries = table.split(table.total(Units.from_rows(np.array(rows))))
    assert exits.tolist() == [[0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 1]]
    assert events == 1
    assert entries.tolist() == [[0, 0, 0], [1, 1, 0]]


def test_exit_table_with_entry_attains_root_five() -> None:
    table = ExitTable(columns=4, entry=True, **COMMON)
    apart = one(table, 0.0, 0.5, 3.0, 1) - one(table, 0.0, 1.5, 3.0, 0)
    assert np.linalg.norm(apart) == pytest.approx(math.sqrt(5))
    assert table.sensitivity(Adjacency.REPLACE_ONE) == pytest.approx(math.sqrt(5))


@pytest.mark.parametrize(
    "changes",
    [
        {"curvature": 1.4},
        {"curvature": 0.8, "all_rows": True},
        {"hazards": [[0.0, 1.0, 0.5, 2.0]]},
        {"parts": [1, 2]},
        {"bound": 0.5},
        {"part_weight": 0.6},
        {"edges": [1.0, 2.0, 3.0, 4.0]},
        {"cause": 2},
    ],
)
def test_cox_step_unsound_parameters_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        step(**changes)
