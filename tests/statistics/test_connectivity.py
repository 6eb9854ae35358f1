"""Connectivity against NumPy, and the sensitivity of products that are centred at their site."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.connectivity import GroupedConnectivity, SiteCentredConnectivity

RNG = np.random.default_rng(0)
REGIONS = 4
UPPER = np.triu_indices(REGIONS, 1)


def person(*own: float, rows: int = 50) -> Any:
    data = RNG.normal(size=(rows, 1)) * 0.8 + RNG.normal(size=(rows, REGIONS))
    return np.hstack([data, np.tile(own, (rows, 1))])


def z_of(rows: Any, ridge: float | None = None) -> Any:
    r = np.corrcoef(rows[:, :REGIONS].T)
    if ridge is not None:
        inverse = np.linalg.inv((1 - ridge) * r + ridge * np.eye(REGIONS))
        scale = np.sqrt(np.diag(inverse))
        r = -inverse / np.outer(scale, scale)
    return np.arctanh(np.clip(r[UPPER], -0.96, 0.96))


@pytest.mark.parametrize("ridge", [None, 0.1])
def test_grouped_connectivity_agrees_with_correlations_of_numpy(ridge: float | None) -> None:
    people = [person(at % 2) for at in range(6)]
    statistic = GroupedConnectivity(
        columns=5, regions=4, clip=50.0, group=4, groups=2, ridge=ridge, per_recording="center"
    )
    sums, counts, energies = statistic.split(statistic.total(Units.from_list(people)))
    own = np.array([z_of(rows, ridge) for rows in people])
    np.testing.assert_allclose(sums, [own[::2].sum(axis=0), own[1::2].sum(axis=0)], atol=1e-6)
    np.testing.assert_allclose(counts, [3, 3])
    np.testing.assert_allclose(energies, [np.sum(own[::2] ** 2), np.sum(own[1::2] ** 2)], rtol=1e-6)


def test_grouped_connectivity_of_networks_uses_their_time_courses() -> None:
    rows, P = person(), RNG.normal(size=(REGIONS, 2))
    statistic = GroupedConnectivity(columns=4, regions=4, clip=9.0, projection=P, per_recording="center")
    sums, _counts, _energies = statistic.split(statistic.total(Units.from_list([rows])))
    assert sums[0, 0] == pytest.approx(np.arctanh(np.corrcoef((rows @ P).T)[0, 1]), abs=1e-6)


def test_grouped_connectivity_person_of_no_group_contributes_nothing() -> None:
    statistic = GroupedConnectivity(columns=5, regions=4, clip=1.0, group=4, groups=2)
    for code in (2.0, np.nan, 0.5):
        assert not np.any(statistic.total(Units.from_list([person(code)])))
    with pytest.raises(BadData, match="declared"):
        statistic.check_values(Units.from_list([person(2.0)]))


def test_grouped_connectivity_distance_of_two_groups_is_at_most_the_bound() -> None:
    statistic = GroupedConnectivity(columns=5, regions=4, clip=0.4, group=4, groups=2)
    totals = [statistic.total(Units.from_list([person(at % 3)])) for at in range(30)]
    apart = max(float(np.linalg.norm(a - b)) for a in totals for b in totals)
    assert 0.97 * 0.8 <= apart <= 0.8 * (1 + 1e-9)


def site(part: str, covariates: int = 1) -> SiteCentredConnectivity:
    ends = np.ones(covariates)
    places = tuple(range(2, 2 + covariates))
    return SiteCentredConnectivity(
        columns=2 + covariates, regions=2, clip=1.0, covariates=places, lower=-ends, upper=ends, part=part
    )


def two(sign: float, *x: float) -> Any:
    """A person of two regions with correlation 1 or -1, whose connectivity is clipped to norm 1."""
    return np.array([[1.0, sign, *x], [-1.0, -sign, *x]])


@pytest.mark.parametrize("part", ["edges", "covariates", "energy"])
def test_site_centred_connectivity_sensitivity_is_attained_in_large_sites(part: str) -> None:
    statistic, others = site(part), [two(-1.0, -1.0)] * 400
    if part == "energy":
        neighbours = two(1.0, 0.0), two(-1.0, 0.0)
    elif part == "covariates":
        neighbours = two(1.0, 1.0), two(1.0, -1.0)
    else:
        # The same covariate, opposite connectivity: (1 - m) times the distance of 2.
        neighbours = two(1.0, 1.0), two(-1.0, 1.0)
    here, there = (statistic.total(Units.from_list([*others, each])) for each in neighbours)
    bound = statistic.sensitivity(Adjacency.REPLACE_ONE)
    assert 0.97 * bound <= np.linalg.norm(here - there) <= bound * (1 + 1e-9)


@pytest.mark.parametrize(("q", "edges"), [(1, 3), (2, 2), (3, 3)])
def test_site_centred_products_of_any_neighbours_move_at_most_four_times_the_bounds(q: int, edges: int) -> None:
    """The bound of the proof, for all x, y, m and f, g, m' in unit balls; climbs from random starts."""
    rng, best = np.random.default_rng(q), 0.0

    def moved(flat: Any) -> float:
        x, y, m = (each / max(1.0, np.linalg.norm(each)) for each in flat[: 3 * q].reshape(3, q))
        f, g, n = (each / max(1.0, np.linalg.norm(each)) for each in flat[3 * q :].reshape(3, edges))
        return -float(np.linalg.norm(np.outer(x - m, f - n) - np.outer(y - m, g - n)))

    for _ in range(8):
        best = max(best, -minimize(moved, 2 * rng.normal(size=3 * (q + edges)), method="Powell").fun)
    assert 3.9 <= best <= 4 * (1 + 1e-9)


def test_site_centred_connectivity_agrees_with_centred_products_of_numpy() -> None:
    people = [person(float(x), float(y)) for x, y in RNG.uniform(-1, 1, (9, 2))]
    statistic = SiteCentredConnectivity(
        columns=6, regions=4, clip=9.0, covariates=(4, 5), lower=-np.ones(2), upper=np.ones(2), per_recording="center"
    )
    z, x = np.array([z_of(rows) for rows in people]), np.array([rows[0, 4:] for rows in people])
    z, x = z - z.mean(axis=0), x - x.mean(axis=0)
    units = Units.from_list(people)
    np.testing.assert_allclose(statistic.split(statistic.total(units)), x.T @ z, atol=1e-6)
    own = statistic.model_copy(update={"part": "covariates"})
    np.testing.assert_allclose(own.split(own.total(units)), x.T @ x, atol=1e-9)
    energy = statistic.model_copy(update={"part": "energy"})
    assert float(energy.total(units)[0]) == pytest.approx(float(np.sum(z**2)), rel=1e-6)


def test_site_centred_connectivity_does_not_depend_on_what_all_people_have_in_common() -> None:
    people = [person(float(x)) for x in RNG.uniform(-1, 1, 8)]
    centre = 0.5 * np.ones(6)
    given: dict[str, Any] = {"columns": 5, "regions": 4, "clip": 99.0, "covariates": (4,), "per_recording": "center"}
    plain = SiteCentredConnectivity(**given, lower=[-1.0], upper=[1.0])
    moved = SiteCentredConnectivity(**given, lower=[-1.0], upper=[1.0], center=centre)
    units = Units.from_list(people)
    np.testing.assert_allclose(plain.total(units), moved.total(units), atol=1e-9)


def test_site_centred_connectivity_missing_covariate_counts_as_the_middle() -> None:
    statistic = site("covariates")
    people = [two(1.0, x) for x in (1.0, -1.0, np.nan)]
    assert float(statistic.total(Units.from_list(people))[0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("parameters", "word"),
    [
        ({"regions": 3}, "regions"),
        ({"regions": 2, "projection": np.ones((3, 2))}, "projection"),
        ({"regions": 2, "center": np.zeros(2)}, "center"),
        ({"regions": 2, "basis": [[2.0]]}, "orthonormal"),
        ({"regions": 2, "group": 5, "groups": 2}, "group"),
        ({"regions": 2, "groups": 2}, "group"),
    ],
)
def test_grouped_connectivity_parameters_that_do_not_fit_are_refused(parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        GroupedConnectivity(columns=2, clip=1.0, **parameters)


@pytest.mark.parametrize("ridge", [None, 0.1])
def test_units_of_few_rows_are_computed_with_bounded_memory(ridge: float | None) -> None:
    """A unit of one row has k^2 products; all units of a block together would take gigabytes."""
    statistic = GroupedConnectivity(columns=200, regions=200, clip=1.0, ridge=ridge)
    units = Units.from_rows(RNG.normal(size=(600, 200)))
    batches = [rows.shape[0] for _batch, _some, rows in statistic.rows_by_shape(units)]
    assert sum(batches) == 600
    assert max(batches) * statistic.networks**2 <= 1 << 21
