"""Sums for Cox regression: what rows contribute, and a search for worse neighbours over whole designs."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import numpy as np
import pytest

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.cox import CovariateMoments, ExitTable
from zerosum.statistics.cox_step import ALL_ROWS_MOST, CURVATURE_MOST, CoxStep, weights

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
    bins, weight = parts + int(rng.integers(0, 3)), float(rng.uniform(0.01, 0.5))
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
        matrix=rng.normal(size=(p, p)) * rng.choice([0.1, 0.3, 1.0, 5.0]),
        shift=0.1 * rng.normal(size=p),
        bound=float(rng.choice([1.0, 1.5, 4.0])),
        part_weight=weight,
        stratum_weight=float(rng.uniform(0, 0.6)),
        curvature=float(rng.uniform(0.1, ALL_ROWS_MOST if all_rows else CURVATURE_MOST)),
        all_rows=all_rows,
        since=float(rng.choice([0.0, 0.5])),
    )


def random_unit(statistic: CoxStep, rng: np.random.Generator, rows: int) -> Floats:
    """Rows of one unit, with features near the ends of their ranges, and times on and just after edges as well as
    between; they may overlap and follow an event."""
    p, bins = statistic.features, statistic.bins
    features = np.sign(rng.normal(size=(rows, p))) * rng.random((rows, p)) ** 0.3
    after = rng.choice(statistic.edges, rows) + 1e-3 * rng.random(rows)
    times = np.where(rng.random(rows) < 0.5, rng.uniform(0, bins, rows), after)
    roles: list[Any] = [times * rng.random(rows) * rng.integers(0, 2, rows)] if statistic.entry else []
    roles += [rng.integers(0, statistic.strata, rows)] if statistic.strata > 1 else []
    return np.column_stack([features, *roles, times, rng.random(rows) < 1 / (1 + rows / 3)])


def attack(statistic: CoxStep, rng: np.random.Generator, most_rows: int) -> tuple[float, float]:
    """The largest distance of two units, and the largest norm of one, over the sensitivity."""
    units = [random_unit(statistic, rng, int(rng.integers(1, most_rows + 1))) for _ in range(80)]
    sums = np.array([statistic.total(Units.from_list([unit])) for unit in units] + [np.zeros(statistic.size)])
    norms = np.sum(sums**2, axis=1)
    apart = np.sqrt(np.maximum(norms[:, None] + norms - 2 * sums @ sums.T, 0))
    return (
        float(np.max(apart)) / statistic.sensitivity(Adjacency.REPLACE_ONE),
        math.sqrt(np.max(norms)) / statistic.sensitivity(Adjacency.ADD_REMOVE),
    )


@pytest.mark.parametrize("most_rows", [1, 6])
@pytest.mark.parametrize("entry", [False, True])
@pytest.mark.parametrize("all_rows", [False, True])
def test_cox_step_random_designs_have_no_pair_beyond_sensitivity(all_rows: bool, entry: bool, most_rows: int) -> None:
    rng = np.random.default_rng(5 + all_rows)
    found = [attack(random_step(rng, all_rows=all_rows, entry=entry), rng, most_rows) for _ in range(20)]
    for farthest in np.max(found, axis=0):
        assert 0.8 < farthest <= 1 + 1e-9


def switching(step_: CoxStep, intervals: int, sign: float, event: bool = False) -> Floats:
    """A unit whose feature changes its sign between intervals of 1/`intervals` of the time."""
    ends = np.arange(1, intervals + 1) * float(step_.edges[-1]) / intervals
    feature = sign * (-1.0) ** np.arange(intervals)
    died = np.zeros(intervals)
    died[-1] = event
    return np.column_stack([feature, np.concatenate([[0.0], ends[:-1]]), ends, died])


@pytest.mark.parametrize("intervals", [1, 2, 3, 8, 100])
def test_cox_step_unit_with_alternating_features_keeps_the_sensitivity(intervals: int) -> None:
    """Residuals of opposite features add up in the second moments while they cancel in the score."""
    for a, c, size in ((0.01, 0.0, 0.9), (0.3, 0.3, 0.6), (0.01, 0.0, 3.0)):
        statistic = step(
            columns=4, entry=True, hazards=[[0.0, 2.0, 5.0, 9.0]], matrix=[[size]], part_weight=a, stratum_weight=c
        )
        sums = [
            statistic.total(Units.from_list([switching(statistic, intervals, sign, event)]))
            for sign in (-1.0, 1.0)
            for event in (False, True)
        ]
        for one_ in sums:
            assert np.linalg.norm(one_) <= math.sqrt(2)
            for other in sums:
                assert np.linalg.norm(one_ - other) <= 2


def test_cox_step_time_of_a_unit_with_thousands_of_rows_does_not_grow_with_the_parts() -> None:
    """Each row is in one part or two: 100 parts took 60 times as long as one, 30 s for 60 000 rows."""

    def seconds(parts: int) -> float:
        statistic = step(
            **{"columns": 4, "entry": True, "edges": np.arange(parts + 1.0), "parts": tuple(range(1, parts + 1))},
            hazards=[np.linspace(0, 40, parts + 1)],
        )
        units = Units.from_list([switching(statistic, 2000, 1.0)])
        began = time.process_time()
        statistic.total(units)
        return time.process_time() - began

    assert min(seconds(100) for _ in range(3)) < 12 * min(seconds(1) for _ in range(3))


def test_cox_step_rows_of_a_unit_split_anywhere_give_the_same_sum() -> None:
    """(0, 3] and (0, 1], (1, 1.7], (1.7, 3] with equal features are one observation, stopped or not."""
    statistic = step(columns=4, entry=True, hazards=[[0.0, 0.6, 1.5, 3.0]], matrix=[[0.9]])
    for end, event in ((1.5, 1), (3.0, 1), (3.0, 0), (0.9, 1)):
        cuts = [0.0, *(cut for cut in (0.4, 1.0, 1.7) if cut < end), end]
        rows = [[0.8, a, b, event * float(b == end)] for a, b in itertools.pairwise(cuts)]
        split = statistic.total(Units.from_list([rows[::-1]]))  # in any order
        assert np.allclose(split, one(statistic, 0.8, 0.0, end, event), atol=1e-12)


def test_cox_step_both_sensitivities_are_attained_within_two_percent() -> None:
    given: dict[str, Any] = {"matrix": [[1.0]], "part_weight": 0.01, "stratum_weight": 0.0, "curvature": 2.0}
    statistic = step(hazards=[[0.0, 1.0, 40.0, 100.0]], **given)
    apart = one(statistic, 0.1, 4.0, 0) - one(statistic, -0.1, 4.0, 0)
    assert 1.96 < np.linalg.norm(apart) <= statistic.sensitivity(Adjacency.REPLACE_ONE)
    # An event where one event is expected: the score is zero and the second moments are full.
    whole = max(float(np.linalg.norm(one(statistic, 1.0, time, 1))) for time in np.linspace(0.5, 1.1, 200))
    assert 0.98 * math.sqrt(2) < whole <= statistic.sensitivity(Adjacency.ADD_REMOVE)


def test_cox_step_time_between_rows_of_a_unit_does_not_count() -> None:
    statistic = step(columns=4, entry=True)
    gap = statistic.total(Units.from_list([[[0.5, 0.0, 1.0, 0.0], [0.5, 2.0, 3.0, 1.0]]]))
    score, _moments = statistic.split(gap)
    assert score[1:3].sum() == pytest.approx(0.2 * (1 - 0.1 - 0.2))


def test_cox_step_rows_after_the_event_of_a_unit_do_not_count() -> None:
    statistic = step(columns=4, entry=True)
    first = [0.5, 0.0, 1.0, 1.0]
    assert np.array_equal(statistic.total(Units.from_list([[first, [0.9, 1.0, 3.0, 1.0]]])), one(statistic, *first))


def test_cox_step_without_entry_begins_a_row_where_the_one_before_it_ends() -> None:
    rows = [[0.5, 1.0, 0.0], [-0.5, 3.0, 1.0]]
    late = [[0.5, 0.0, 1.0, 0.0], [-0.5, 1.0, 3.0, 1.0]]
    with_entry = step(columns=4, entry=True).total(Units.from_list([late]))
    assert np.array_equal(step().total(Units.from_list([rows])), with_entry)


def test_cox_step_since_equals_late_entry_of_all() -> None:
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.uniform(-1, 1, 50), np.zeros(50), rng.uniform(1.5, 4, 50), rng.integers(0, 2, 50)])
    late = rows.copy()
    late[:, 1] = 1.2
    statistic = step(columns=4, entry=True)
    later = step(columns=4, entry=True, since=1.2)
    assert np.array_equal(later.total(Units.from_rows(rows)), statistic.total(Units.from_rows(late)))


def test_weights_leave_room_for_one_expected_event_before_the_stop() -> None:
    """The time of a row is not stopped before it expects `bound` events, at any length."""
    for curvature in (0.3, 1.0, 2.0, CURVATURE_MOST):
        n = np.geomspace(1e-3, 1e6, 400)
        w = weights(n, curvature, all_rows=False)
        for B in (1.0, 2.0, 10.0):
            e = np.linspace(0, B * (1 - 1e-8), 50)[:, None]
            alive = 2 * (w**2 * n) * (e / B) ** 2 + (curvature * w * n * e / (2 * B)) ** 2
            dead = 2 * (w**2 * n) * ((1 - e) / B) ** 2 + (curvature * w * n * (1 + e) / (2 * B)) ** 2
            assert np.all(alive <= 2)
            assert np.all(dead <= 2)


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
    # |x|^2 = 1 and b = 1: 2 e^2 + e^2/4 = 2 at e = 0.9428.
    statistic = step(hazards=[[0.0, 0.6, 5.0, 9.0]], matrix=[[math.sqrt(0.92)]], parts=[3])
    score, _moments = statistic.split(one(statistic, 1.0, 3.0, 1))
    weight = weights(np.array([1.0]), 1.0, all_rows=False)[0]
    stop = math.sqrt(8 / 9) / weight
    assert score[1] == pytest.approx(-0.2 * weight * stop, abs=1e-6)


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


def test_exit_table_counts_a_unit_once_from_its_first_entry_to_its_last_time() -> None:
    table = ExitTable(columns=4, entry=True, **COMMON)
    unit = [[0.1, 0.5, 0.8, 0], [0.3, 2.5, 3.5, 1], [0.2, 0.8, 2.5, 0], [0.3, 3.5, 4.0, 1]]
    exits, events, entries = table.split(table.total(Units.from_list([unit])))
    assert exits.tolist() == [[0, 0, 0, 0, 0, 1, 0]]
    assert events == 1
    assert entries.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("rows", [[[0.1, 0.0, 2.0, 0], [0.1, 1.0, 3.0, 1]], [[0.1, 0.0, 1.0, 1], [0.1, 1.0, 3.0, 0]]])
def test_cox_statistics_owner_is_told_of_overlaps_and_of_rows_after_the_event(rows: list[list[float]]) -> None:
    with pytest.raises(BadData):
        ExitTable(columns=4, entry=True, **COMMON).check_values(Units.from_list([rows]))


def test_exit_table_with_entry_attains_root_five() -> None:
    table = ExitTable(columns=4, entry=True, **COMMON)
    apart = one(table, 0.0, 0.5, 3.0, 1) - one(table, 0.0, 1.5, 3.0, 0)
    assert np.linalg.norm(apart) == pytest.approx(math.sqrt(5))
    assert table.sensitivity(Adjacency.REPLACE_ONE) == pytest.approx(math.sqrt(5))


@pytest.mark.parametrize(
    "changes",
    [
        {"curvature": 5.0},
        {"curvature": 1.3, "all_rows": True},
        {"hazards": [[0.0, 1.0, 2.0, 1e101]]},
        {"matrix": [[1e51]]},
        {"since": -1.0},
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
