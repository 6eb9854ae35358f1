"""Connectivity with scripted releases: values, intervals, tests, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.program_results import result_of
from zerosum.algorithms.connectivity.program import ConnectivityProgram
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency

COLUMNS = ("a", "b", "c", "d", "who")
GROUPS: dict[str, Any] = {"columns": COLUMNS, "group": "who", "levels": ("no", "yes"), "clip": 9.0}


def people(count: int, effect: float = 0.8, seed: int = 0) -> tuple[Units, Any, Any]:
    """People of two groups, of which one has a common time course in the first two regions; with z and codes."""
    rng, rows, codes = np.random.default_rng(seed), [], rng_codes(count)
    for code in codes:
        own = rng.normal(size=(120, 4))
        own[:, :2] += effect * code * rng.normal(size=(120, 1))
        rows.append(np.hstack([own, np.full((120, 1), code)]))
    upper = np.triu_indices(4, 1)
    z = np.array([np.arctanh(np.corrcoef(each[:, :4].T)[upper]) for each in rows])
    return Units.from_list(rows), z, codes


def rng_codes(count: int) -> Any:
    return (np.arange(count) % 2).astype(float)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_connectivity_by_group_without_noise_has_the_means_of_the_data(adjacency: Adjacency) -> None:
    units, z, codes = people(40)
    found = result_of(ConnectivityProgram(**GROUPS), units, adjacency)
    means = np.array([z[codes == g].mean(axis=0) for g in (0, 1)])
    np.testing.assert_allclose(found["connectivity"], means, atol=1e-5)
    np.testing.assert_allclose(found["connectivity_difference"], means[1:] - means[:1], atol=1e-5)
    np.testing.assert_allclose(found["group_size"], [20, 20], atol=1e-6)
    spread = [np.sqrt(np.mean(z[codes == g].var(axis=0))) for g in (0, 1)]
    np.testing.assert_allclose(found["spread"], spread, rtol=1e-3)


def test_connectivity_of_all_people_has_one_group() -> None:
    units, z, _codes = people(20)
    rows = Units(np.ascontiguousarray(np.asarray(units.rows)[:, :4]), units.offsets)
    found = result_of(ConnectivityProgram(columns=COLUMNS[:4], clip=9.0), rows)
    np.testing.assert_allclose(found["connectivity"], [z.mean(axis=0)], atol=1e-5)
    assert "connectivity_difference" not in found


def test_connectivity_on_covariates_agrees_with_least_squares() -> None:
    units, z, codes = people(40)
    chosen = ConnectivityProgram(columns=COLUMNS, covariates={"who": (0.0, 1.0)}, clip=9.0)
    found = result_of(chosen, units)
    slope = z[codes == 1].mean(axis=0) - z[codes == 0].mean(axis=0)
    np.testing.assert_allclose(found["connectivity_coefficients"], [slope], atol=1e-5)


def test_connectivity_tests_find_an_effect_and_no_more() -> None:
    units, _z, _codes = people(200)
    found = result_of(ConnectivityProgram(**GROUPS), units)
    assert found["global_test"][0, 2] < 1e-3
    assert np.argmin(found["edge_p_value"][0]) == 0
    assert found["edge_q_value"][0, 0] < 0.05
    none, _z, _codes = people(200, effect=0.0, seed=4)
    assert result_of(ConnectivityProgram(**GROUPS), none)["global_test"][0, 2] > 1e-3


def test_connectivity_intervals_of_the_population_contain_those_of_the_people() -> None:
    units, _z, _codes = people(40)
    found = result_of(ConnectivityProgram(**GROUPS), units, noise=0.5)
    own, all_ = found["connectivity_difference_interval"], found["connectivity_difference_population_interval"]
    assert np.all(all_[..., 0] < own[..., 0])
    assert np.all(all_[..., 1] > own[..., 1])


def test_connectivity_intervals_cover_the_difference() -> None:
    """200 runs of 6 edges: a share outside 0.93 to 0.97 has a probability below 1 in 100."""
    units, z, codes = people(60)
    truth = z[codes == 1].mean(axis=0) - z[codes == 0].mean(axis=0)
    program = ConnectivityProgram(**GROUPS | {"clip": 3.0})
    statistic = program.requests(Adjacency.REPLACE_ONE)[0].statistic
    total, rng, inside = statistic.total(units), np.random.default_rng(0), []
    from zerosum.coordinator.rehearse import drive
    from zerosum.kernel.request import Release

    for _ in range(200):

        def answer(_request: object) -> Release:
            return Release(total + 0.8 * rng.normal(size=total.shape), 0.8, 60.0, ("a", "b"))

        ends = drive(program.program(Adjacency.REPLACE_ONE), answer)[0]
        low, high = np.moveaxis(ends["connectivity_difference_interval"].value[0], -1, 0)
        inside.append((low <= truth) & (truth <= high))
    assert 0.93 <= np.mean(inside) <= 0.97


def test_connectivity_directions_of_edges_release_fewer_numbers() -> None:
    units, z, codes = people(40)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 2)))[0]
    chosen = ConnectivityProgram(**GROUPS, edge_basis=basis)
    assert chosen.releases(Adjacency.REPLACE_ONE)[0].size == 2 * (2 + 2)
    found = result_of(chosen, units)["connectivity_difference"]
    whole = z[codes == 1].mean(axis=0) - z[codes == 0].mean(axis=0)
    np.testing.assert_allclose(found, [basis @ (basis.T @ whole)], atol=1e-5)


def test_connectivity_clip_follows_from_public_facts() -> None:
    short, long = (ConnectivityProgram(columns=COLUMNS[:4], duration=each) for each in (120.0, 900.0))
    assert short.radius > long.radius
    maps = ConnectivityProgram(columns=COLUMNS[:4], maps=np.eye(4)[:3])
    assert (maps.networks, maps.edges) == (3, 3)
    # Components have a mean near 0, regions do not.
    assert maps.radius / np.sqrt(3) < short.radius / np.sqrt(6)
    assert "clip" in maps.describe


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"group": "who"}, "levels"),
        ({"levels": ("a", "b")}, "group"),
        ({"group": "a", "levels": ("x", "y")}, "after all regions"),
        ({"group": "none", "levels": ("x", "y")}, "columns"),
        ({"group": "who", "levels": (0, 1), "covariates": {"who": (0, 1)}}, "not|both|code"),
        ({"covariates": {"who": (1, 0)}}, "lower one first"),
        ({"maps": np.ones((2, 5))}, "independent"),
        ({"maps": np.ones((2, 3))}, "column"),
        ({"labels": ("x",)}, "labels"),
        ({"edge_basis": np.eye(10)[:, :2]}, "clip"),
        ({"duration": 10.0}, "few"),
        ({"center": np.zeros(3), "clip": 1.0}, "center"),
        ({"band": (0.1, 0.01)}, "band"),
    ],
)
def test_connectivity_parameters_that_contradict_each_other_are_refused(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        ConnectivityProgram(columns=COLUMNS, **parameters)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_global_test_with_directions_that_leave_edges_out_is_finite(noise: float) -> None:
    units, _z, _codes = people(20)
    found = result_of(ConnectivityProgram(**GROUPS, edge_basis=np.eye(6)[:, :3]), units, noise=noise)
    assert np.all(np.isfinite(found["global_test"]))


def test_connectivity_of_equal_people_without_noise_has_a_result() -> None:
    person = people(2)[0].rows[:120]
    rows = np.vstack([np.column_stack([person[:, :4], np.full(120, code)]) for code in (0, 0, 0, 1, 1, 1)])
    units = Units(rows, np.arange(0, 721, 120))
    found = result_of(ConnectivityProgram(**{**GROUPS, "center": np.zeros(6), "clip": 1e-3}), units)
    assert np.all(np.isfinite(found["global_test"]))
