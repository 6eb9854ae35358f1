"""The program of Cox regression: without noise the fit of all data; strata, entry times, designs, flags."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import norm

from zerosum.algorithms import CoxRegressionProgram, Estimate
from zerosum.algorithms.cox.baseline import bent, exits_of, parts_of, uncover
from zerosum.algorithms.cox.bounds import chosen_bounds
from zerosum.algorithms.cox.concordance import concordance_of
from zerosum.algorithms.cox.estimation import evidence, likely_size, plausible_spread, positive, shrunk_moments
from zerosum.algorithms.cox.proportionality import late_parts
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.errors import BadParameter
from zerosum.estimators.cox import CoxRegression
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency
from zerosum.report.caveats import interval_caveats
from zerosum.report.coefficients import CoefficientTable
from zerosum.report.paper import coefficient_table
from zerosum.report.warnings import result_warnings

TRUTH = np.array([0.8, -0.5])


def program(**changes: Any) -> CoxRegressionProgram:
    given: dict[str, Any] = {"columns": ("a", "b", "time", "event"), "lower": [-2, 0, 0, 0], "upper": [2, 1, 4, 1]}
    return CoxRegressionProgram(**given | changes)


def people(count: int = 4000, seed: int = 0, factor: float = 1.0) -> Floats:
    """Rows a, b, time, event with hazard factor exp(0.8 a - 0.5 b), censored at random."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(0, 0.7, count).clip(-2, 2), rng.integers(0, 2, count)])
    death, leaves = rng.exponential(np.exp(-x @ TRUTH) / factor), rng.uniform(0.5, 5, count)
    return np.column_stack([x, np.minimum(death, leaves), death <= leaves])


def driven(asked: CoxRegressionProgram, rows: Floats, unit: float = 0.0, seed: int = 0, **more: Any) -> Estimate:
    """The estimate from exact sums with normal noise; `unit` is that of a sum of sensitivity 1 and the whole budget."""
    adjacency, rng = more.get("adjacency", Adjacency.REPLACE_ONE), np.random.default_rng(seed)
    running = asked.program(adjacency)
    request = next(running)
    units = float(len(rows)) if adjacency is Adjacency.REPLACE_ONE else None
    try:
        while True:
            assert isinstance(request, PrivateSum)
            std = unit * request.statistic.sensitivity(adjacency) / math.sqrt(request.share)
            total = request.statistic.total(Units.from_rows(rows))
            request = running.send(Release(total + std * rng.standard_normal(total.size), std, units, ("all",)))
    except StopIteration as stop:
        estimate: Estimate = stop.value
        return estimate


def test_cox_program_without_noise_is_near_partial_likelihood() -> None:
    found = driven(program(), people())["coefficients"].value
    # Sampling error of 4000 people: 0.03 for a, 0.04 for b; four of them.
    assert np.all(np.abs(found - TRUTH) < 0.16)


def test_cox_program_pooled_intervals_hold_result_without_noise() -> None:
    rows, asked = people(), program()
    exact, hits = driven(asked, rows)["coefficients"].value, []
    for seed in range(12):
        found = driven(asked, rows, unit=4.0, seed=seed)  # about epsilon 1
        low, high = found["pooled_interval_95"].value.T
        hits += ((low <= exact) & (exact <= high)).tolist()
        assert np.all(found["pooled_std"].value < found["population_std"].value)
        assert np.all(found["identified"].value == 1)
    # 24 intervals of 95 %: fewer than 19 hits have a probability of 1e-4.
    assert sum(hits) >= 19


def test_cox_program_requests_are_as_planned() -> None:
    for adjacency in Adjacency:
        asked, rows, planned = program(), people(300), []
        running = asked.program(adjacency)
        request = next(running)
        try:
            while True:
                assert isinstance(request, PrivateSum)
                planned.append((request.statistic.name, request.statistic.size, request.share))
                assert request.statistic.sensitivity(adjacency) <= asked.requests(adjacency)[
                    len(planned) - 1
                ].statistic.sensitivity(adjacency)
                total = request.statistic.total(Units.from_rows(rows))
                request = running.send(Release(total, 5.0, None, ("all",)))
        except StopIteration:
            pass
        assert planned == [(each.statistic.name, each.statistic.size, each.share) for each in asked.requests(adjacency)]
        assert math.fsum(share for *_rest, share in planned) == pytest.approx(1)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e7, 1e12])
def test_cox_program_asks_for_every_planned_release_whatever_the_releases_are(scale: float) -> None:
    """The budget is charged when a study begins: a site that sends anything may not end it early."""
    columns, rng = ("a", "b", "site", "time", "event"), np.random.default_rng(3)
    more = {"columns": columns, "lower": [-2, 0, 0, 0, 0], "upper": [2, 1, 1, 4, 1]}
    asked = program(
        **more, stratum="site", strata=("north", "south"), rounds=4, parts=2, proportionality=0.1, concordance=0.1
    )
    for kind in Adjacency:
        running, planned = asked.program(kind), asked.requests(kind)
        request, units = next(running), 300.0 if kind is Adjacency.REPLACE_ONE else None
        for at, each in enumerate(planned):
            assert isinstance(request, PrivateSum)
            assert (request.statistic.name, request.statistic.size) == (each.statistic.name, each.statistic.size)
            value = scale * (rng.random(each.statistic.size) - (0.5 if at % 2 else 1.0))
            try:
                request = running.send(Release(value, 0.01, units, ("all",)))
            except StopIteration:
                assert each is planned[-1]


def test_estimation_of_singular_information_raises_nothing() -> None:
    """Releases far beyond their noise make it: the charged rounds after them are asked for all the same."""
    singular = np.full((2, 2), 1e20)
    assert likely_size(singular, np.ones(2), 1) in TUNING.sizes
    assert not math.isnan(evidence(singular, np.ones(2), np.eye(2)))


def test_cox_program_test_of_proportional_hazards_needs_two_parts() -> None:
    """With one part no time is late: the statistic would see nobody."""
    with pytest.raises((BadParameter, ValidationError), match="two parts"):
        program(parts=1, proportionality=0.1)


@pytest.mark.parametrize("features", [1, 12])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_cox_program_rounds_are_within_the_plan_at_any_number_of_covariates(
    features: int, adjacency: Adjacency
) -> None:
    """Sites compare both bounds of a request with the plan, whatever its adjacency is."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, features))
    rows = np.column_stack([x, rng.exponential(np.exp(-x[:, 0])), np.ones(300)])
    columns = (*(f"x{at}" for at in range(features)), "time", "event")
    ends = np.ones(features)
    asked = program(columns=columns, lower=[*-ends, 0, 0], upper=[*ends, 4, 1], rounds=2)
    running, planned = asked.program(adjacency), asked.requests(adjacency)
    request = next(running)
    for each in planned:
        assert isinstance(request, PrivateSum)
        for kind in Adjacency:
            assert request.statistic.sensitivity(kind) <= each.statistic.sensitivity(kind)
        if each is not planned[-1]:
            total = request.statistic.total(Units.from_rows(rows))
            request = running.send(Release(total, 0.5, 300.0, ("all",)))
    assert isinstance(request, PrivateSum)
    assert request.statistic.name == "cox_step"


def test_cox_program_strata_take_up_different_baselines() -> None:
    """Stratum 1 has ten times the hazard and mostly a = high: one baseline would bias the coefficient."""
    low, high = people(3000, 1), people(3000, 2, factor=10.0)
    low = low[low[:, 0] < 0.5]
    high = high[high[:, 0] > -0.5]
    both = [np.insert(rows, 2, code, axis=1) for code, rows in enumerate((low, high))]
    columns = ("a", "b", "site", "time", "event")
    more = {"columns": columns, "lower": [-2, 0, 0, 0, 0], "upper": [2, 1, 1, 4, 1]}
    stratified = program(**more, stratum="site", strata=("north", "south"))
    found = driven(stratified, np.vstack(both), unit=2.0)
    one = driven(program(), np.vstack([low, high]))
    assert abs(found["coefficients"].value[0] - 0.8) < 0.2 < abs(one["coefficients"].value[0] - 0.8)
    assert found["baseline_survival"].axes[0].labels == ("north", "south")
    assert np.all(found["baseline_survival"].value[1, :20] < found["baseline_survival"].value[0, :20])


def test_cox_program_entry_times_leave_coefficients_and_baseline() -> None:
    rows = people(9000, 3)
    entry = np.random.default_rng(0).uniform(0, 0.8, len(rows)) * (rows[:, 0] > 0)  # those with a > 0 come late
    seen = rows[:, 2] > entry
    late = np.insert(rows, 2, entry, axis=1)[seen]
    more = {"columns": ("a", "b", "entry", "time", "event"), "lower": [-2, 0, 0, 0, 0], "upper": [2, 1, 4, 4, 1]}
    found = driven(program(**more, entry="entry"), late)
    assert np.all(np.abs(found["coefficients"].value - TRUTH) < 0.13)
    at = found["baseline_at"].value @ TRUTH
    true = np.exp(-np.exp(at) * np.array([float(end) for end in found["baseline_survival"].axes[1].labels]))
    assert np.max(np.abs(found["baseline_survival"].value[0] - true)) < 0.04


def test_cox_program_follow_up_that_depends_on_columns_does_not_bias() -> None:
    rows = people(9000, 4)
    rng = np.random.default_rng(1)
    # Censoring within 0.3 to 3 by column a: the marginal table of exits misleads.
    ends = 0.3 + 2.7 / (1 + np.exp(3 * rows[:, 0] + rng.normal(size=len(rows))))
    rows[:, 3] *= rows[:, 2] <= ends
    rows[:, 2] = np.minimum(rows[:, 2], ends)
    assert np.all(np.abs(driven(program(), rows)["coefficients"].value - TRUTH) < 0.15)


def test_cox_program_time_step_moves_edges_to_multiples() -> None:
    edges = program(upper=[2, 1, 28, 1], time_step=1.0).times
    assert np.array_equal(edges, np.round(edges))
    assert (edges[0], edges[-1]) == (0, 28)


def test_cox_program_few_events_are_flagged_with_reason() -> None:
    found = driven(program(), people(60), unit=8.0)
    assert np.all(found["identified"].value == 0)
    assert np.all(found["unidentified_reason"].value > 0)
    plan = SimpleNamespace(question=SimpleNamespace(parameters={}))
    assert any("no coefficient" in each for each in result_warnings(found, plan))  # type: ignore[arg-type]


def test_cox_program_collinear_columns_are_flagged_with_reason() -> None:
    rows = people(3000, 5)
    twin = rows[:, 0] + np.random.default_rng(0).normal(0, 0.01, len(rows))
    more = {"columns": ("a", "twin", "b", "time", "event"), "lower": [-2, -2, 0, 0, 0], "upper": [2, 2, 1, 4, 1]}
    found = driven(program(**more), np.insert(rows, 1, twin, axis=1), unit=1.0)
    assert found["unidentified_reason"].value.tolist() == [2, 2, 0]


def tailed(count: int) -> Floats:
    """People whose first column has most of its variance with one in fifty."""
    rng = np.random.default_rng(0)
    rows = people(count, 0)
    rows[:, 0] = np.where(rng.random(count) < 0.02, 2.0, 0.1 * rng.standard_normal(count))
    return rows


def test_cox_program_outweighed_column_is_named_below_the_table() -> None:
    found = driven(program(), tailed(4000), unit=1.0)
    assert found["outweighed"].value[0] > 0.3 > found["outweighed"].value[1]
    table = CoefficientTable.of(found, "cox-regression")
    assert any("column 'a'" in each for each in table.caveats)
    assert all(each in str(table) for each in table.caveats)
    assert len(coefficient_table(table).notes) >= 3


def test_cox_program_plain_people_have_no_caveat() -> None:
    assert not list(interval_caveats(driven(program(), people(), unit=1.0)))


def test_cox_program_follow_up_that_goes_with_a_column_is_named() -> None:
    rng, rows = np.random.default_rng(4), people(6000, 4)
    # The later a person came, the shorter the follow-up.
    leaves = 4 * norm.cdf(-2 * rows[:, 0] + 0.3 * rng.standard_normal(len(rows)))
    rows[:, 3] *= rows[:, 2] <= leaves
    rows[:, 2] = np.minimum(rows[:, 2], leaves)
    found = driven(program(), rows, unit=1.0)
    drift = found["column_drift"]
    assert drift.value[0] > 1.4 > drift.value[1]
    larger = {**found, "column_drift": replace(drift, value=drift.value * 2.1 / 1.4)}
    assert any("column 'a'" in each for each in interval_caveats(larger))


def test_plausible_spread_of_unknown_variance_is_near_its_prior() -> None:
    spread, least = plausible_spread(np.array([0.04, 0.0]), np.array([1e-6, 50.0]), np.array([0.5, 0.5]))
    assert spread[0] == pytest.approx(0.2, rel=0.01)
    assert least[0] == pytest.approx(0.2, rel=0.03)
    assert 0.4 < spread[1] < 0.7
    assert least[1] < 0.25


def test_cox_program_range_far_wider_than_unknown_values_is_named() -> None:
    found = driven(program(lower=[-8, 0, 0, 0], upper=[8, 1, 4, 1]), people(300), unit=5.0)
    assert any("column 'a'" in each for each in interval_caveats(found))


def test_cox_program_in_study_equals_driven_program() -> None:
    """A study over four sites has the noise that the driven program assumes."""
    rows = people(2000, 6)
    seeded: dict[str, Any] = {"data": "synthetic", "random_state": 3}
    model = CoxRegression(
        lower=[-2, 0], upper=[2, 1], horizon=4, stratify_by_site=False, epsilon=6.0, colluders=1, **seeded
    ).fit(*([part[:, at] for part in np.array_split(rows, 4)] for at in (slice(0, 2), 2, 3)))
    plan = model.result_.plan
    assert plan.releases == program().releases(plan.adjacency)
    unit = math.sqrt(4 / 3) / 1.31  # mu of epsilon 6 at delta 1e-5; three of four sites add noise that counts
    stated = [driven(program(), rows, unit, seed)["pooled_std"].value for seed in range(6)]
    # Standard errors depend on the noise by the steps of the baseline: within a factor of 1.5 of what six seeds give.
    assert np.all(model.noise_std_ > np.min(stated, axis=0) / 1.5)
    assert np.all(model.noise_std_ < np.max(stated, axis=0) * 1.5)
    exact = driven(program(), rows)["coefficients"].value
    assert np.all(np.abs(model.coef_ - exact) < 5 * model.noise_std_)


@pytest.mark.parametrize("unit", [0.0, 1e3])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_cox_program_without_or_with_overwhelming_noise_is_finite(unit: float, adjacency: Adjacency) -> None:
    found = driven(program(), people(50), unit=unit, adjacency=adjacency)
    assert all(np.all(np.isfinite(each.value)) for each in found.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1.0},
        {"cause": 2.0},
        {"events": (0, 1, 1)},
        {"stratum": "b"},
        {"lower": [-2, 0, 1, 0]},
        {"edges": [0, 1]},
        {"edges": [1, 2, 3, 4, 5, 6]},
        {"entry": "a"},
        {"measured_in": {"c": "year"}},
    ],
)
def test_cox_program_unsound_parameters_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        program(**changes)


# ---- design --------------------------------------------------------------------------------------------------------


def test_design_with_time_has_columns_and_roles_of_cox_regression() -> None:
    known: dict[str, Any] = {"ranges": {"age": (18, 100), "months": (0, 60)}, "levels": {"died": ["no", "yes"]}}
    design = Design(response="died", time="months", **known).for_sites(["north", "south"])
    assert design.read == ("age", "months", "died")
    assert design.columns == ("age", "site", "months", "died")
    assert design.roles == {"events": ("no", "yes"), "stratum": "site", "strata": ("north", "south")}
    rows = design.expand(Units.from_rows(np.array([[50.0, 70.0, 1.0]])), "south").rows
    assert np.asarray(rows).tolist() == [[50, 1, 70, 1]]
    plain = Design(response="died", time="months", strata="none", **known).for_sites(["north", "south"])
    assert plain.columns == ("age", "months", "died")


@pytest.mark.parametrize(
    "changes",
    [
        {"time": None, "strata": "site"},
        {"strata": "ward"},
        {"site_effects": True},
        {"ranges": {"age": (18, 100), "months": (1, 60)}},
        {"levels": {}},
        {"missing": {"months": 3.0}},
    ],
)
def test_design_with_time_unsound_entries_are_refused(changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {"ranges": {"age": (18, 100), "months": (0, 60)}, "levels": {"died": ["no", "yes"]}}
    with pytest.raises(ValidationError):
        Design(**{"response": "died", "time": "months", **given, **changes})


# ---- parts ---------------------------------------------------------------------------------------------------------


def test_exits_of_constant_hazard_rise_by_it() -> None:
    edges = np.linspace(0, 4, 9)
    alive = 1000 * np.exp(-0.5 * edges)
    table = np.zeros((1, 17))
    table[0, 1:16:2], table[0, 16] = -np.diff(alive), alive[-1]
    exits = exits_of(table, float(1000 - alive[-1]), np.zeros((1, 8)), edges, 0.0, 1000.0, entry=False)
    assert np.allclose(exits.hazards[0], 0.5 * edges, rtol=0.03)
    assert exits.total == pytest.approx(1000 - alive[-1])
    assert not np.any(exits.thin)


def test_exits_where_few_are_at_risk_are_thin() -> None:
    edges, table = np.linspace(0, 4, 9), np.zeros((1, 17))
    table[0, 0:4] = 490, 490, 5, 5
    table[0, 16] = 10
    exits = exits_of(table, 495.0, np.zeros((1, 8)), edges, 1.0, 1000.0, entry=False)
    assert exits.thin[0].tolist() == [False] + [True] * 7


def test_bridged_is_zero_without_merged_bins_and_largest_within_them() -> None:
    found = driven(program(), people(20_000), unit=0.0)
    wide = driven(program(), people(2000), unit=4.0)
    spans = [np.diff(np.log(-np.log(each["baseline_interval"].value[0])), axis=1)[:, 0] for each in (found, wide)]
    assert np.median(np.abs(spans[1])) > np.median(np.abs(spans[0]))


def test_uncover_inverts_margin_of_normal_predictor() -> None:
    rng = np.random.default_rng(0)
    predictor = rng.normal(0, 0.8, 200_000)
    marginal = -np.log(np.mean(np.exp(-1.3 * np.exp(predictor))))
    assert uncover(np.array([marginal]), 0.8)[0] == pytest.approx(1.3, rel=0.02)


def test_parts_of_few_bins_have_one_bin_each() -> None:
    assert parts_of(np.array([100.0, 1.0, 1.0]), 3) == (1, 2, 3)
    assert bent(np.array([[0.0, 1.0, 2.0]]), (1, 2), np.log([2.0, 3.0])).tolist() == [[0.0, 2.0, 5.0]]


def test_shrunk_moments_of_noise_are_uncorrelated() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(6, 6))
    moments = 1000 * np.eye(6) + 100 * (noise + noise.T) / 2
    found, _error = shrunk_moments(moments, 100.0, 1000.0, np.full(6, 0.1))
    assert np.max(np.abs(found - np.diag(np.diag(found)))) < 0.05


def test_positive_matrix_has_no_direction_below_floor() -> None:
    found = positive(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([0.1, 0.1]))
    assert np.min(np.linalg.eigvalsh(found)) == pytest.approx(0.1)


def test_likely_size_follows_size_of_coefficients() -> None:
    information = 1e4 * np.eye(8)
    sizes = [likely_size(information, 1e4 * np.full(8, size), 8) for size in (0.05, 0.6)]
    assert sizes[0] < 0.15 < math.exp(TUNING.size_log) < 0.45 < sizes[1]


# ---- several rows of a person, proportional hazards, concordance ---------------------------------------------------


def time_varying(count: int, seed: int) -> tuple[Floats, Floats]:
    """Rows (x, entry, time, event) and owners: a treatment begins at a random time and multiplies the hazard by
    exp(-1); the columns at the end of the follow-up alone would say that treatment keeps people alive."""
    rng = np.random.default_rng(seed)
    rows, owners = [], []
    for person in range(count):
        start, end = rng.uniform(0, 4), rng.uniform(1, 4)
        # Hazard 0.5 before the treatment and 0.5 exp(-1) after it.
        spent = rng.exponential() / 0.5
        death = spent if spent < start else start + (spent - start) * math.e
        last, died = min(death, end), float(death <= end)
        if last <= start:
            rows.append((0.0, 0.0, last, died))
        else:
            rows += [(0.0, 0.0, start, 0.0), (1.0, start, last, died)]
            owners.append(person)
        owners.append(person)
    return np.array(rows), np.array(owners)


def test_cox_program_rows_of_a_person_give_the_effect_of_a_time_varying_column() -> None:
    rows, owners = time_varying(4000, 0)
    asked = program(columns=("x", "entry", "time", "event"), lower=[0, 0, 0, 0], upper=[1, 4, 4, 1], entry="entry")
    found = driven_units(asked, Units.from_groups(rows, owners))
    # Deviation of the coefficient from sampling: 0.04; four of them.
    assert found["coefficients"].value[0] == pytest.approx(-1, abs=0.16)
    # Treatment as of the last row, for the whole time: immortal time before the treatment counts for it.
    last = rows[np.append(owners[1:] != owners[:-1], True)]
    last[:, 1] = 0.0
    assert driven(asked, last)["coefficients"].value[0] < -1.3


def driven_units(asked: CoxRegressionProgram, units: Units, unit: float = 0.0, seed: int = 0) -> Estimate:
    """As `driven`, for units of several rows."""
    running, rng = asked.program(Adjacency.REPLACE_ONE), np.random.default_rng(seed)
    request = next(running)
    try:
        while True:
            assert isinstance(request, PrivateSum)
            std = unit * request.statistic.sensitivity(Adjacency.REPLACE_ONE) / math.sqrt(request.share)
            total = request.statistic.total(units)
            noise = std * rng.standard_normal(total.size)
            request = running.send(Release(total + noise, std, float(len(units)), ("all",)))
    except StopIteration as stop:
        estimate: Estimate = stop.value
        return estimate


def test_cox_estimator_people_of_several_rows_equal_units() -> None:
    tables = [time_varying(300, seed) for seed in (1, 2)]
    settings: dict[str, Any] = {"lower": [0], "upper": [1], "horizon": 4, "epsilon": 5, "unit": "person"}
    settings |= {"random_state": 0, "data": "synthetic"}
    X, entry, time, event = ([rows[:, [at]] if at == 0 else rows[:, at] for rows, _ in tables] for at in range(4))
    people = [owners for _, owners in tables]
    mixed = [np.random.default_rng(0).permutation(len(owners)) for owners in people]
    found = CoxRegression(**settings).fit(X, time, event, entry=entry, people=people)
    again = CoxRegression(**settings).fit(
        *([values[order] for values, order in zip(each, mixed, strict=True)] for each in (X, time, event)),
        entry=[values[order] for values, order in zip(entry, mixed, strict=True)],
        people=[values[order] for values, order in zip(people, mixed, strict=True)],
    )
    assert np.allclose(found.coef_, again.coef_)
    intervals = found.predict_survival_interval(np.array([[0.0], [1.0]]), stratum="site 1")
    curves = found.predict_survival(np.array([[0.0], [1.0]]), stratum="site 1")
    assert np.all(intervals[..., 0] <= curves)
    assert np.all(curves <= intervals[..., 1])
    with pytest.raises(BadParameter):
        CoxRegression(**settings).fit(
            [Units.from_groups(x, owners) for x, owners in zip(X, people, strict=True)], time, event, people=people
        )


def fading(count: int, seed: int, factor: float) -> Floats:
    """Rows a, b, time, event; from time 0.6 on the effect of a is multiplied by the factor."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(0, 0.7, count).clip(-2, 2), rng.integers(0, 2, count)])
    early, late = np.exp(x @ TRUTH), np.exp(x @ (TRUTH * [factor, 1]))
    needed = rng.exponential(1, count) / 0.7
    death = np.where(needed < 0.6 * early, needed / early, 0.6 + (needed - 0.6 * early) / late)
    leaves = rng.uniform(0.5, 4, count)
    return np.column_stack([x, np.minimum(death, leaves), death <= leaves])


def test_cox_program_test_of_proportional_hazards_has_level_and_power() -> None:
    asked = program(proportionality=0.1)
    level, power = (
        [
            float(driven(asked, fading(4000, seed, factor), unit=1.0, seed=seed)["proportionality_p_value"].value[0])
            for seed in range(20)
        ]
        for factor in (1.0, -0.5)
    )
    # 20 tests of 5 %: five or more rejections have a probability of 0.3 %.
    assert sum(p < 0.05 for p in level) < 5
    assert sum(p < 0.05 for p in power) >= 18
    found = driven(asked, fading(4000, 0, -0.5), unit=1.0)
    late = found["late_p_values"].value
    assert late[0] < 0.01 < late[1]
    assert found["late_difference"].value[0] < -0.3


def test_cox_program_concordance_of_held_out_people_is_harrells() -> None:
    rows = people(6000)
    asked = program(concordance=0.1)
    found = driven(asked, rows, unit=0.5)
    low, high = found["concordance_interval"].value
    exact = concordance_index(rows[:, 2], rows[:, 3], rows[:, :2] @ TRUTH)
    assert low < exact < high
    assert high - low < 0.2
    # Fit and table are of different people.
    planned = {each.statistic.name: each.statistic for each in asked.requests(Adjacency.REPLACE_ONE)}
    parts = {name: vars(statistic)["part"] for name, statistic in planned.items()}
    assert parts == dict.fromkeys(("covariate_moments", "exit_table", "cox_step"), "fitted") | {
        "score_table": "held-out"
    }


def concordance_index(times: Floats, event: Floats, score: Floats) -> float:
    """Harrell's C, over all pairs."""
    right = pairs = 0.0
    for at in np.flatnonzero(event):
        later = times > times[at]
        pairs += np.sum(later)
        right += np.sum(score[at] > score[later])
    return right / pairs


def test_concordance_of_table_without_noise_is_that_of_its_pairs() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (3, 5)).astype(float)
    right = pairs = 0.0
    for q, r, t in itertools.product(range(3), range(3), range(2)):
        later = table[r, 2 * t + 2 :].sum()
        pairs += table[q, 2 * t + 1] * later
        right += table[q, 2 * t + 1] * later * (1.0 if q > r else 0.5 if q == r else 0.0)
    assert concordance_of(table, 0.0).index == pytest.approx(right / pairs)


def test_concordance_of_noisy_table_has_the_stated_deviation() -> None:
    rng = np.random.default_rng(1)
    table, noise = rng.integers(20, 90, (4, 9)).astype(float), 5.0
    drawn = [concordance_of(table + noise * rng.standard_normal(table.shape), noise) for _ in range(2000)]
    # The ratio of deviations of 2000 draws has a deviation of 0.016; six of them.
    assert np.std([each.index for each in drawn]) / concordance_of(table, noise).noise == pytest.approx(1, abs=0.1)
    assert concordance_of(np.zeros((2, 3)), 1.0).std == math.inf


def test_cox_program_shares_of_all_releases_add_up_to_one() -> None:
    asked = program(proportionality=0.1, concordance=0.15)
    requests = asked.requests(Adjacency.REPLACE_ONE)
    assert math.fsum(each.share for each in requests) == pytest.approx(1)
    assert [each.statistic.name for each in requests[-2:]] == ["cox_step", "score_table"]
    with pytest.raises((BadParameter, ValidationError)):
        program(proportionality=0.7)


def test_bounds_grow_as_the_noise_falls_and_lose_less() -> None:
    found = [chosen_bounds(6, 1.0, 1500.0, 1.0, noise) for noise in (200.0, 20.0, 2.0)]
    lost, size = [each.lost for each in found], [each.stop * each.clip for each in found]
    assert lost == sorted(lost, reverse=True)
    assert size == sorted(size)
    assert all(0 < each.first_weight <= 1 and 0 < each.weight <= 1 for each in found)


def test_late_release_observes_from_the_middle_of_the_events() -> None:
    asked = program(proportionality=0.2)
    found = driven(asked, people())
    assert found["late_from"].value[0] in asked.times[1:-1]
    parts: Any = SimpleNamespace(K=4)
    assert late_parts(parts) == 2
