"""The program of additive models, driven by exact and noisy sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import AdditiveModelProgram, Estimate
from zerosum.algorithms.additive.cells import coarse, merged, widths_of
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.forecast.measures import measure_of
from zerosum.kernel.request import Release
from zerosum.kernel.statistic import Adjacency

Floats = NDArray[np.float64]
CLASSES: dict[str, Any] = {
    "columns": ("age", "ward", "sick"),
    "ranges": {"age": (0, 100)},
    "levels": {"ward": ("a", "b", "c"), "sick": ("no", "yes")},
    "whole": ("age",),
}
NUMBERS: dict[str, Any] = {
    "columns": ("age", "copy", "ward", "cost"),
    "ranges": {"age": (0, 100), "copy": (0, 100), "cost": (-4, 4)},
    "levels": {"ward": ("a", "b", "c")},
}


def patients(count: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    age, ward = rng.integers(0, 101, count), rng.integers(0, 3, count)
    eta = -1 + 2 * (age > 50) + np.array([0.0, 1.0, -1.0])[ward]
    return np.column_stack([age, ward, rng.random(count) < 1 / (1 + np.exp(-eta))]).astype(np.float64)


def costs(count: int, seed: int) -> Floats:
    """Two columns that are nearly equal, and a number."""
    rng = np.random.default_rng(seed)
    age, ward = rng.uniform(0, 100, count), rng.integers(0, 3, count)
    copy = np.clip(age + rng.normal(0, 3, count), 0, 100)
    cost = np.sin(age / 16) + np.array([0.0, 0.5, -0.5])[ward] + 0.3 * rng.normal(size=count)
    return np.column_stack([age, copy, ward, cost])


def driven(
    program: AdditiveModelProgram, rows: Floats, noise: float, adjacency: Adjacency = Adjacency.REPLACE_ONE
) -> Estimate:
    """The estimate, with normal noise of a standard deviation of `noise` times the sensitivity."""
    rng, units = np.random.default_rng(0), Units.from_rows(rows)
    known = None if adjacency is Adjacency.ADD_REMOVE else float(len(rows))
    running = program.program(adjacency)
    request = next(running)
    for planned in program.requests(adjacency):
        statistic = request.statistic
        assert (statistic.name, statistic.size) == (planned.statistic.name, planned.statistic.size)
        assert statistic.sensitivity(adjacency) == planned.statistic.sensitivity(adjacency)
        std = noise * statistic.sensitivity(adjacency)
        total = statistic.total(units)
        release = Release(total + rng.normal(0, 1, total.shape) * std, std, known, ())
        try:
            request = running.send(release)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the value of a generator is Any
    raise AssertionError("the program asked for more than it planned")


@pytest.mark.parametrize("adjacency", Adjacency)
def test_additive_model_of_classes_finds_step_and_levels(adjacency: Adjacency) -> None:
    program = AdditiveModelProgram(**CLASSES, rounds=6)
    found = driven(program, patients(20_000, 0), 3.0, adjacency)
    assert found["unit_count"][0] == pytest.approx(20_000, rel=0.02)
    test = np.array([[20.0, 0.0], [80.0, 0.0], [20.0, 1.0], [20.0, 2.0]])
    # about six standard errors of a log odds of 3000 units
    assert program.predictor(found, test) == pytest.approx([-1, 1, 0, -2], abs=0.3)


def test_additive_model_of_collinear_numbers_does_not_overshoot() -> None:
    program = AdditiveModelProgram(**NUMBERS)
    rows, test = costs(20_000, 0), costs(5000, 1)
    found = driven(program, rows, 10.0)
    left = np.mean((test[:, -1] - program.predictor(found, test[:, :-1])) ** 2) / np.var(test[:, -1])
    # 0.12 is the variance of the response that no column explains
    assert left < 0.2


def test_additive_model_large_noise_gives_flat_functions() -> None:
    program = AdditiveModelProgram(**CLASSES)
    found = driven(program, patients(500, 0), 300.0)
    assert np.max(np.abs(found["effects"].value)) < 1


def test_additive_model_missing_values_have_their_own_effect() -> None:
    rows = patients(20_000, 0)
    gone = np.random.default_rng(1).random(len(rows)) < 0.3
    rows[gone, 0] = np.nan
    rows[gone, -1] = np.random.default_rng(2).random(int(gone.sum())) < 0.9
    program = AdditiveModelProgram(**CLASSES, rounds=6)
    found = driven(program, rows, 1.0)
    assert program.predictor(found, np.array([[np.nan, 0.0]]))[0] > 1.5


@pytest.mark.parametrize(("which", "sign"), [("rising", 1), ("falling", -1)])
def test_additive_model_rising_and_falling_functions_do(which: str, sign: int) -> None:
    program = AdditiveModelProgram(**NUMBERS, **{which: ("age",)})
    found = driven(program, costs(5000, 0), 10.0)
    cells = int(found["term_cells"][0]) - 1
    assert np.all(sign * np.diff(found["effects"][:cells]) >= -1e-12)


def test_additive_model_pair_has_interaction() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, (20_000, 2))
    rows = np.column_stack([codes, rng.normal(2.0 * (codes[:, 0] == codes[:, 1]), 0.5)])
    given = {"columns": ("a", "b", "y"), "levels": {"a": (0, 1, 2), "b": (0, 1, 2)}, "ranges": {"y": (-3, 5)}}
    program = AdditiveModelProgram(**given, pairs=(("a", "b"),))
    found = driven(program, rows, 3.0)
    assert program.predictor(found, np.array([[1.0, 1.0], [1.0, 2.0]])) == pytest.approx([2, 0], abs=0.3)


def test_additive_model_numbers_of_a_faulty_site_lose_no_release() -> None:
    program = AdditiveModelProgram(**CLASSES)
    units, rng = Units.from_rows(patients(300, 0)), np.random.default_rng(0)
    running = program.program(Adjacency.REPLACE_ONE)
    request, found = next(running), None
    for _ in program.requests(Adjacency.REPLACE_ONE):
        total = request.statistic.total(units) + rng.normal(0, 1e9, request.statistic.size)
        try:
            request = running.send(Release(total, 1.0, 300.0, ()))
        except StopIteration as stop:
            found = stop.value
    assert found is not None
    assert np.all(np.isfinite(found["effects"].value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": {"ward": ("a", "b"), "sick": ("no", "yes", "unknown")}},
        {"pairs": (("age", "sick"),)},
        {"pairs": (("age", "age"),)},
        {"pairs": (("age", "ward"), ("ward", "age"))},
        {"smooth": ("ward",)},
        {"rising": ("sick",)},
        {"rising": ("age",), "falling": ("age",)},
        {"whole": ("ward",)},
        {"ranges": {}},
    ],
)
def test_additive_model_parameters_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        AdditiveModelProgram(**CLASSES | wrong)


def test_additive_model_plan_follows_from_units_over_noise() -> None:
    program = AdditiveModelProgram(**CLASSES)
    few, many = (program.resolve(PublicFacts(noise, 10_000)) for noise in (50.0, 0.5))
    assert (few.bins or 0) < (many.bins or 0)
    assert (few.rounds or 0) < (many.rounds or 0)
    assert "Few units" in few.describe
    assert "Few units" not in many.describe
    with pytest.raises(BadParameter):
        program.resolve(PublicFacts(5000.0, 10_000))
    given = AdditiveModelProgram(**CLASSES, bins=32, cells=8, rounds=2).resolve(PublicFacts(0.5, 10_000))
    assert (given.bins, given.cells, given.rounds) == (32, 8, 2)
    # resolved twice as once: planner and process must agree
    assert many.resolve(PublicFacts(0.5, 10_000)) == many


def test_merged_cells_hold_more_than_the_least_count() -> None:
    counts = np.zeros(512)
    counts[[0, 100, 101, 300]] = [5000, 400, 30, 900]
    widths = widths_of(512)
    grids = [np.add.reduceat(counts, np.arange(0, 512, width)) for width in widths]
    cells = merged(grids, widths, 512, 20.0, 40)
    assert cells[0] != cells[1]
    assert cells[100] != cells[300]
    assert np.all(np.diff(cells) >= 0)
    assert np.all(np.bincount(cells, counts) > 0)
    assert merged(grids, widths, 512, 20.0, 3).max() < 3


def test_coarse_cells_leave_missing_values_apart() -> None:
    assert coarse(3, 8).tolist() == [0, 1, 2]
    assert coarse(30, 4).max() == 4


@pytest.mark.parametrize(("given", "make"), [(CLASSES, patients), (NUMBERS, costs)])
def test_additive_model_measure_is_the_unexplained_share_of_the_variance(given: dict[str, Any], make: Any) -> None:
    program = AdditiveModelProgram(**given)
    measure = measure_of(program)
    assert measure is not None
    rows = make(5000, 0)
    exact, noisy = (measure.values(driven(program, rows, noise), Units.from_rows(rows), None) for noise in (0.1, 1e4))
    assert 0 < exact[0] < noisy[0] <= 1
