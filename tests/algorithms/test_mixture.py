"""Mixtures: exact moments and EM without noise, near the truth with it, honest where the budget does not carry them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from zerosum.algorithms import MixtureProgram
from zerosum.algorithms.mixture.components import Step, kept_shift, quantile, separations, shrink_moves, variance_of
from zerosum.algorithms.program import PublicFacts
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
UNITS = 20_000


def names(columns: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(columns))


def made(columns: int, count: int, variance: float = 0.05, offset: float = 0.0, seed: int = 0) -> tuple[Floats, Floats]:
    """Means on the unit sphere about an offset, and rows."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(count, columns))
    means = means / np.linalg.norm(means, axis=1, keepdims=True) + offset / math.sqrt(columns)
    which = rng.choice(count, UNITS)
    return means, means[which] + math.sqrt(variance) * rng.normal(size=(UNITS, columns))


def error(found: Any, truth: Floats) -> float:
    distance = np.linalg.norm(np.asarray(found)[:, None] - truth[None], axis=2)
    rows, columns = linear_sum_assignment(distance)
    return float(distance[rows, columns].mean())


def fit(rows: Floats, components: int, epsilon: float, seed: int = 0, **more: Any) -> Any:
    algorithm = MixtureProgram(**{"columns": names(rows.shape[1]), "n_components": components, "clip": 10.0} | more)
    return Rehearsal(algorithm, len(rows), 5, epsilon, 0.01).run(Units.from_rows(rows), seed)


@pytest.mark.parametrize(
    ("columns", "count", "offset"), [(10, 5, 0.0), (20, 4, 3.0), (3, 6, 0.0), (4, 4, 1.0), (5, 1, 2.0)]
)
def test_mixture_means_are_found_within_sampling_error(columns: int, count: int, offset: float) -> None:
    """More components than columns, as many, and one: whatever the start."""
    variance = 0.01 if count > columns else 0.05
    means, rows = made(columns, count, variance, offset)
    found = fit(rows, count, epsilon=3.0)
    assert error(found["means"], means) < 2 * math.sqrt(variance * columns * count / UNITS)
    assert np.allclose(found["weights"], 1 / count, atol=0.02)
    assert float(found["variance"]) == pytest.approx(variance, rel=0.1)
    assert np.all(found["carried"].value == 1)


def test_mixture_of_unequal_weights_variances_and_shapes_is_found() -> None:
    rng = np.random.default_rng(1)
    means = np.linalg.qr(rng.normal(size=(20, 20)))[0][:5] + 3 / math.sqrt(20)
    weights, variances = 0.7 ** np.arange(5), np.linspace(0.02, 0.08, 5)
    which = rng.choice(5, UNITS, p=weights / weights.sum())
    shapes = np.exp(0.3 * rng.normal(size=(5, 20)))
    rows = means[which] + rng.normal(size=(UNITS, 20)) * shapes[which] * np.sqrt(variances[which])[:, None]
    found = fit(rows, 5, epsilon=1.0)
    order = np.argsort(-found["weights"].value)
    assert error(found["means"], means) < 0.05
    assert np.allclose(found["weights"].value[order], weights / weights.sum(), atol=0.02)


def test_mixture_public_variance_is_used_unchanged() -> None:
    means, rows = made(10, 4)
    found = fit(rows, 4, epsilon=1.0, variance=0.05)
    assert np.allclose(found["variances"], 0.05)
    assert error(found["means"], means) < 0.03


def test_mixture_one_component_too_few_or_too_many_finds_others() -> None:
    means, rows = made(20, 6)
    more, fewer = fit(rows, 7, epsilon=1.0), fit(rows, 5, epsilon=1.0)
    assert error(more["means"], means) < 0.05
    assert np.sum(np.min(np.linalg.norm(fewer["means"].value[:, None] - means[None], axis=2), axis=1) < 0.1) >= 3
    assert np.sort(more["weights"])[0] < 0.05


def test_mixture_component_beyond_budget_is_not_carried() -> None:
    _means, rows = made(20, 6)
    assert np.all(fit(rows, 6, epsilon=1.0)["carried"].value == 1)
    drowned = fit(rows[:2000], 6, epsilon=0.05)
    assert np.sum(drowned["carried"].value) <= 1
    one_cluster = np.random.default_rng(0).normal(size=(UNITS, 3)) * 0.3
    split = fit(one_cluster, 2, epsilon=3.0)
    assert not np.all(split["carried"].value == 1)


def test_mixture_stated_noise_of_means_equals_spread_over_runs() -> None:
    means, rows = made(10, 3)
    runs = [fit(rows[:8000], 3, epsilon=0.5, seed=seed) for seed in range(8)]
    exact = fit(rows[:8000], 3, epsilon=50.0)["means"].value
    apart = [np.linalg.norm(run["means"].value[:, None] - exact[None], axis=2).min(axis=1) for run in runs]
    said = float(np.mean(runs[0]["means"].std)) * math.sqrt(10)
    assert 0.6 * said < float(np.sqrt(np.mean(np.square(apart)))) < 1.15 * said
    assert error(exact, means) < 0.03


def test_mixture_under_add_remove_finds_means_and_requests_planned_releases() -> None:
    """Under add-remove no release says how many units there are."""
    means, rows = made(6, 3)
    algorithm, units = MixtureProgram(columns=names(6), n_components=3, clip=10.0), Units.from_rows(rows)

    def answer(request: Request) -> Release:
        return Release(request.statistic.total(units), 0.0, None, ("a", "b"))

    found, asked = drive(algorithm.program(Adjacency.ADD_REMOVE), answer)
    assert error(found["means"], means) < 0.03
    planned = algorithm.requests(Adjacency.ADD_REMOVE)
    assert [(a.statistic.name, a.statistic.size) for a in asked] == [
        (p.statistic.name, p.statistic.size) for p in planned
    ]


@pytest.mark.parametrize("components", [1, 3, 6])
def test_mixture_requests_equal_planned_releases(components: int) -> None:
    _means, rows = made(4, 3)
    algorithm = MixtureProgram(columns=names(4), n_components=components, lower=-np.ones(4) * 3, upper=np.ones(4) * 3)
    rehearsal = Rehearsal(algorithm, UNITS, 5, 1.0, 1e-5)
    _found, asked = rehearsal.run_with_requests(Units.from_rows(rows), 0)
    planned = rehearsal.algorithm.requests(Adjacency.REPLACE_ONE)
    assert len(asked) == len(planned)
    for one, other in zip(asked, planned, strict=True):
        assert (one.statistic.name, one.statistic.size, one.share) == (
            other.statistic.name,
            other.statistic.size,
            other.share,
        )
        for adjacency in Adjacency:
            assert one.statistic.sensitivity(adjacency) == other.statistic.sensitivity(adjacency)
    assert math.fsum(request.share for request in asked) == pytest.approx(1)


def test_mixture_resolve_larger_noise_gives_start_more_budget() -> None:
    algorithm = MixtureProgram(columns=names(20), n_components=5, clip=1.0, start_share=0.07)
    quiet, loud = (algorithm.resolve(PublicFacts(noise, 10_000)) for noise in (0.1, 30.0))
    assert quiet.moment_share is not None
    assert loud.moment_share is not None
    assert quiet.moment_share < loud.moment_share
    assert quiet.start_share == loud.start_share == 0.07
    assert "moment" in quiet.describe
    assert "cells" in MixtureProgram(columns=("a",), n_components=2, clip=1.0).describe


def test_mixture_extreme_rows_do_not_move_means() -> None:
    """Rows that are huge, all alike, or far out."""
    means, rows = made(6, 3)
    rows[:20], rows[20:40] = 1e300, -1e5
    assert error(fit(rows, 3, epsilon=1.0)["means"], means) < 0.05
    for table in (np.zeros((500, 4)), np.ones((500, 4)), np.full((500, 4), 1e-9)):
        found = fit(table, 3, epsilon=1.0)
        assert all(np.all(np.isfinite(quantity.value)) for quantity in found.values())


# ---- the free half ---------------------------------------------------------------------------------------------------


def test_mixture_clipped_shift_and_spread_are_corrected() -> None:
    rng = np.random.default_rng(0)
    for width, room in ((3, 0.9), (9, 1.1), (50, 0.9)):
        drawn = rng.normal(size=(100_000, width))
        clip, shift = room * math.sqrt(width), 0.1
        moved = drawn + shift * np.eye(width)[0]
        scaled = moved * np.minimum(1, clip / np.linalg.norm(moved, axis=1))[:, None]
        assert scaled[:, 0].mean() == pytest.approx(shift * kept_shift(clip, width), abs=0.012)
        ratio = float(np.mean(np.maximum(0, 1 - 1.3 * np.sum(drawn**2, axis=1) / clip**2)))
        if ratio > 0.01:
            assert variance_of(ratio, clip, 1.0, width) == pytest.approx(1.3, rel=0.02)


def test_shrink_moves_of_noise_are_zero_and_others_hardly_change() -> None:
    rng = np.random.default_rng(0)
    noise, true = np.full(200, 0.1), np.zeros((200, 30))
    true[:, :5] = 1.0
    basis = np.eye(30)[:, :5]
    step = Step(true + 0.1 * rng.normal(size=true.shape), noise, np.ones(200), 0.0, np.ones(200))
    found = shrink_moves(step, basis)
    assert np.mean((found - true) ** 2) < 0.3 * np.mean((step.moves - true) ** 2)
    plain = Step(step.moves, np.zeros(200), np.ones(200), 0.0, np.ones(200))
    assert np.allclose(shrink_moves(plain, basis), step.moves)
    assert np.allclose(shrink_moves(plain, None), step.moves)


def test_mixture_quantile_and_separations_equal_hand_calculation() -> None:
    edges = np.geomspace(1, 16, 5)
    square, larger = quantile(edges, np.array([0.25, 0.25, 0.25, 0.25]), 0.5)
    assert square == pytest.approx(4)
    assert larger > 1
    means = np.array([[0.0], [1.0], [9.0]])
    apart, _std = separations(means, np.ones(3), np.full(3, 0.1), np.array([True, False, True]))
    assert apart.tolist() == [9.0, 1.0, 9.0]


def test_mixture_sums_sensitivity_is_attained_within_two_percent() -> None:
    """Within 2 % of the bound and never beyond, between components and within one, at every radius."""
    rng = np.random.default_rng(0)
    sums = {"columns": 3, "clip": 1.0, "means": [[5.0] * 3, [-5.0] * 3], "variances": [1, 1]}
    statistic = build("mixture_sums", sums | {"radii": [1, 1], "weights": [0.5, 0.5]})
    units = rng.normal(size=(300, 3)) * rng.uniform(0, 1.5, (300, 1)) + rng.choice([-5.0, 5.0], (300, 1))
    units = np.vstack([units, [[5 + s, 5, 5] for s in (-1, 1)], [[-5 + s, -5, -5] for s in (-1, 1)]])
    said = np.array([statistic.total(Units.from_rows(row[None])) for row in units])
    apart = np.linalg.norm(said[:, None] - said[None], axis=2)
    bound, alone = statistic.sensitivity(Adjacency.REPLACE_ONE), statistic.sensitivity(Adjacency.ADD_REMOVE)
    assert 0.98 * bound < float(np.max(apart)) <= bound
    assert 0.98 * alone < float(np.max(np.linalg.norm(said, axis=1))) <= alone


def test_moment_sensitivities_are_attained_within_two_percent() -> None:
    white = {"projection": np.eye(2), "correction": [0, 4], "constant": 1}
    third = build("third_moment", {"columns": 2, "clip": 0.7, **white})
    augmented = build("augmented_scatter", {"columns": 2, "clip": 4.0, "constant": 0.3})
    turned = [-0.09, math.sqrt(1 - 0.09**2)]
    for statistic, one, other in (
        (third, [[300.0, 0.0]], [[-300.0, 0.0]]),
        (third, [[300.0, 0.0], [310.0, 0.0]], [[-300.0, 0.0]]),
        (augmented, [[9.0, 0.0]], [[9 * t for t in turned]]),
    ):
        apart = np.linalg.norm(statistic.total(Units.from_list([one])) - statistic.total(Units.from_list([other])))
        bound = statistic.sensitivity(Adjacency.REPLACE_ONE)
        assert 0.98 * bound < float(apart) <= bound


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"n_components": 0}, "n_components"),
        ({"start": "tensor", "n_components": 4}, "columns"),
        ({"moment_share": 0.9}, "moment_share"),
        ({"scaling": "ranges"}, "scaling"),
        ({"variance": -1.0}, "variance"),
        ({"clip": None}, "lower"),
    ],
)
def test_mixture_bad_parameter_is_refused(more: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        MixtureProgram(**{"columns": names(3), "n_components": 2, "clip": 1.0} | more)


@pytest.mark.slow
@pytest.mark.parametrize("components", [2, 3])
def test_mixture_audit_does_not_exceed_claim(components: int) -> None:
    """From a tensor, and from cells."""
    algorithm = MixtureProgram(columns=names(2), n_components=components, clip=3.0, rounds=1)
    assert audit(Scheme("secure-sum"), algorithm, samples=200).holds
