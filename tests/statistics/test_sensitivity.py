"""Every bound attacked: the worst neighbour is searched for numerically, never computed from the formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from helpers.gaussian_adversary import assert_not_exceeded
from helpers.statistic_cases import MANY_ROWS, ONE_ROW, SMALL, Case, of_many_rows, with_holes
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel import coordinates
from zerosum.kernel.statistic import Adjacency
from zerosum.noise.sampler import Sampler
from zerosum.statistics import BUILTIN, build
from zerosum.statistics.user import statistic

Floats = NDArray[np.float64]

CASES: list[Case] = [*SMALL, ("attacked_by_tests", {"columns": 3, "clip": 0.9})]
# Two climbs that end this close to each other, relatively, have found the same largest change.
AGREEMENT = 1e-6
# Part of the bound that a search must find. That of the infomax gradient is approached with many sources only
# (tests/papers/test_published_programs.py), that of local training with an added unit whose features are zero
# (tests/statistics/test_local_training.py), and both of a Cox regression's step by units with short rows and with an
# event after about as much as was expected (tests/statistics/test_cox_statistics.py). The bound of connectivity that is
# centred at its site is that of large sites (tests/statistics/test_connectivity.py); here it has one other unit.
LEAST = {"infomax_gradient": 0.8, "local_training": 0.85, "cox_step": 0.7, "site_centred_connectivity": 0.12}


@statistic("attacked_by_tests", length=3)
def attacked(rows: Floats) -> Floats:
    if rows[0, 0] > 50:
        raise RuntimeError("a unit that fails counts as zero")
    return np.asarray(1e3 * rows.sum(axis=0))


def moved(stat: BoundedStatistic, one: Floats | None, other: Floats | None, norm: int = 2) -> float:
    """How far the sum moves when one unit's rows are replaced by the other's (None: the unit is not there)."""
    rest = [np.zeros((2, stat.columns))]
    here = rest + ([] if one is None else [one])
    there = rest + ([] if other is None else [other])
    listed: Callable[[list[Floats]], Units] = Units.from_list
    if stat.name in ONE_ROW:
        listed = lambda tables: Units.from_rows(np.vstack([table[:1] for table in tables]))  # noqa: E731
    return float(np.linalg.norm(stat.total(listed(here)) - stat.total(listed(there)), ord=norm))


def search(
    stat: BoundedStatistic, adjacency: Adjacency, seed: int = 0, enough: float = math.inf, norm: int = 2
) -> tuple[float, Floats, Floats | None]:
    """The farthest neighbour found: random units of one to three rows at all scales, the best ones climbed from.

    Climbs start from the best six in turn. They end early where two of them reach the same largest change and it is at
    least `enough`: below that they may have ended on lower hills.
    """
    rng = np.random.default_rng(seed)
    discrete = stat.name == "histogram" and getattr(stat, "edges", None) is None

    def draw() -> Floats:
        rows, scale = int(rng.integers(1, 4)), 10 ** rng.uniform(-1, 2)
        if discrete:
            return with_holes(stat, rng.integers(0, stat.size, (rows, 1)).astype(float), rng)
        longer = of_many_rows(stat, rng)
        return longer if longer is not None else with_holes(stat, scale * rng.normal(size=(rows, stat.columns)), rng)

    best: list[tuple[float, Floats, Floats | None]] = []
    for _ in range(400):
        one, other = draw(), None if adjacency is Adjacency.ADD_REMOVE else draw()
        best.append((moved(stat, one, other, norm), one, other))
    best = sorted(best, key=lambda found: -found[0])[:6]
    if discrete:
        return best[0]
    if stat.name in MANY_ROWS:  # whole units move a little at a time
        found, one, other = best[0]
        for _ in range(150):
            near = [None if each is None else each * (1 + 0.1 * rng.normal(size=each.shape)) for each in (one, other)]
            assert near[0] is not None
            if (farther := moved(stat, near[0], near[1])) > found:
                found, one, other = farther, near[0], near[1]
        return found, one, other
    climbs: list[float] = []
    for _, one, other in list(best):
        if len(climbs) > 1 and climbs[-2] >= max(climbs[-1], best[0][0], enough) * (1 - AGREEMENT):
            break
        start = np.concatenate([one[:1].ravel(), [] if other is None else other[:1].ravel()])
        there = ~np.isnan(start)  # what is missing stays so
        if not np.any(there):
            continue

        def pair(x: Floats, start: Floats = start, there: Any = there) -> tuple[Floats, Floats | None]:
            whole = start.copy()
            whole[there] = x
            second = whole[stat.columns :]
            return whole[: stat.columns].reshape(1, -1), second.reshape(1, -1) if len(second) else None

        def distance(x: Floats, pair: Callable[[Floats], tuple[Floats, Floats | None]] = pair) -> float:
            return -moved(stat, *pair(x), norm)

        climbed = minimize(
            distance, start[there], method="Nelder-Mead", options={"maxiter": 600, "xatol": 1e-6, "fatol": 1e-11}
        )
        first, second = pair(climbed.x)
        best.append((moved(stat, first, second, norm), first, second))
        climbs = sorted([*climbs, best[-1][0]])
    return max(best, key=lambda found: found[0])


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(("name", "params"), CASES)
def test_sensitivity_is_attained_and_exceeded_by_no_neighbour(
    name: str, params: dict[str, Any], adjacency: Adjacency
) -> None:
    stat = build(name, params)
    bound = stat.sensitivity(adjacency)
    found, *_ = search(stat, adjacency, enough=LEAST.get(name, 0.97) * bound)
    assert found <= bound * (1 + 1e-9)
    assert found >= LEAST.get(name, 0.97) * bound


L1_CASES = [
    ("vector_sum", {"columns": 3, "clip": 1.3}),
    ("vector_sum", {"columns": 3, "clip": 1.3, "count": True}),
    ("vector_sum", {"columns": 2, "clip": 2.0, "lower": -np.ones(2), "upper": np.ones(2)}),
    ("observed_sums", {"columns": 2, "clip": 1.3, "count_weight": 0.7}),
    ("observed_sums", {"columns": 2, "clip": 1.3, "count_weight": 1.4}),
    ("observed_sums", {"columns": 1, "clip": 1.0, "count_weight": 1.7, "lower": -np.ones(1), "upper": np.ones(1)}),
    ("histogram", {"bins": 4}),
    ("histogram", {"bins": 3, "edges": np.array([0.0, 1.0, 2.0, 5.0])}),
]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(("name", "params"), L1_CASES)
def test_l1_sensitivity_is_attained_and_exceeded_by_no_neighbour(
    name: str, params: dict[str, Any], adjacency: Adjacency
) -> None:
    stat = build(name, params)
    bound = stat.sensitivity_l1(adjacency)
    assert bound is not None
    found, *_ = search(stat, adjacency, enough=0.97 * bound, norm=1)
    assert found <= bound * (1 + 1e-9)
    assert found >= 0.97 * bound


def test_l1_sensitivity_cases_have_every_statistic_with_a_bound() -> None:
    bounded = {name for name, params in CASES if build(name, params).sensitivity_l1(Adjacency.ADD_REMOVE) is not None}
    assert bounded == {name for name, _ in L1_CASES}


def test_sensitivity_cases_have_every_builtin_statistic() -> None:
    elsewhere = set() if find_spec("torch") else {"module_gradient", "module_predictions"}  # make test-torch
    assert {name for name, _ in CASES} >= BUILTIN - elsewhere


def apart(stat: BoundedStatistic, one: list[float], other: list[float]) -> float:
    return moved(stat, np.array([one]), np.array([other]))


def test_observed_sums_count_weight_is_largest_possible() -> None:
    """Whoever is seen in half of the columns and whoever in the others, with one in common, or in none."""
    nan, c = math.nan, 1.3
    for columns in (3, 5, 9):
        stat = build("observed_sums", {"columns": columns, "clip": c, "count_weight": math.sqrt(2)})
        rest = (columns - 1) // 2
        one, other = [99.0, *[0.0] * rest, *[nan] * rest], [-99.0, *[nan] * rest, *[0.0] * rest]
        assert apart(stat, one, other) == pytest.approx(2 * c, rel=1e-9)
    single = build("observed_sums", {"columns": 1, "clip": c, "count_weight": math.sqrt(3)})
    assert apart(single, [99.0], [nan]) == pytest.approx(2 * c, rel=1e-9)
    ranges = {"columns": 4, "clip": 2.0, "lower": -np.ones(4), "upper": np.ones(4), "count_weight": math.sqrt(3)}
    whole = build("observed_sums", ranges)
    assert apart(whole, [9.0, 9.0, nan, nan], [nan, nan, 9.0, 9.0]) == pytest.approx(4.0, rel=1e-9)
    for params in ({"columns": 2, "clip": c}, ranges | {"clip": 1.9}):
        with pytest.raises(BadParameter, match=r"1\.41421"):
            build("observed_sums", {**params, "count_weight": 1.42})


# ---- the test that would catch a wrong sensitivity does ----------------------------------------------------------


def attack_second_moment(entries: Callable[[Floats], Floats], std: Floats) -> float:
    """x x' of the unit ball, released as `entries` of the matrix with independent noise `std`, claimed as mu = 1.

    The attacker gets the worst pair a numerical search finds for exactly this release.
    """
    stat = build("second_moment", {"columns": 3, "clip": 1.0})
    rng = np.random.default_rng(5)

    def change(pair: Floats) -> Floats:
        one, other = (coordinates.unpack(stat.total(Units.from_rows(row[None, :])), 3) for row in pair.reshape(2, 3))
        return entries(one - other)

    def visible(pair: Floats) -> float:
        return -float(np.linalg.norm(change(pair) / std))

    runs = [minimize(visible, 2 * rng.normal(size=6), method="Nelder-Mead") for _ in range(12)]
    shift = change(min(runs, key=lambda run: run.fun).x)
    noise = Sampler.system().normal(shift.size * 60_000, 1.0).reshape(shift.size, -1)
    return assert_not_exceeded(1.0, std[:, None] * noise, shift)


def test_second_moment_attack_reaches_stated_mu() -> None:
    sensitivity = build("second_moment", {"columns": 3, "clip": 1.0}).sensitivity(Adjacency.REPLACE_ONE)
    mu = attack_second_moment(coordinates.pack, np.full(6, sensitivity))
    assert mu == pytest.approx(1.0, rel=0.03)
    full = attack_second_moment(np.ravel, np.full(9, sensitivity))  # equivalent, at more bytes
    assert full == pytest.approx(1.0, rel=0.03)


def test_second_moment_attack_finds_sensitivity_of_one() -> None:
    """As in capeDJICA and capePCA, which take the spectral norm."""
    with pytest.raises(AssertionError, match=r"1\.[34]"):
        attack_second_moment(coordinates.pack, np.full(6, 1.0))


def test_second_moment_attack_finds_triangles_counted_once() -> None:
    """Isometric noise, sqrt(2) smaller off the diagonal, drawn for each triangle anew: averaging undoes half of it."""
    std = np.where(np.eye(3) > 0, math.sqrt(2), 1.0).ravel()
    with pytest.raises(AssertionError, match=r"1\.[34]"):
        attack_second_moment(np.ravel, std)


@pytest.mark.parametrize("huge", [1e99, 1e154, 1e200, 1e308])
def test_scatter_product_basis_with_overflowing_products_is_refused(huge: float) -> None:
    basis = np.array([[1e6, 0.0], [0.0, huge]])
    for extra in ({}, {"projection": [[1.0, 0.0], [0.0, 0.0]]}):
        with pytest.raises(BadParameter, match="basis"):
            build("scatter_product", {"columns": 2, "basis": basis, **extra})


@pytest.mark.parametrize("other", [1e-60, 1e60, 0.0])
def test_scatter_norms_extreme_record_leaves_bins_of_others(other: float) -> None:
    row = np.random.default_rng(0).normal(size=(1, 3))
    here = np.repeat(row, 50, axis=0)
    there = here.copy()
    there[0] = other
    norm = float(np.sum(row * row)) * (1 + 2**-40)
    for k in range(-6, 7):
        middle = norm * (1 + k * 1.1e-16)
        stat = build("scatter_norms", {"columns": 3, "lowest": middle / 2, "highest": 2 * middle, "bins": 2})
        apart = stat.total(Units.from_rows(here)) - stat.total(Units.from_rows(there))
        assert np.linalg.norm(apart) <= math.sqrt(2)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        (
            "polynomial_coefficients",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "table": [[1e6], [1.0]], "weights": [1.0, 1.0]},
        ),
        ("column_moments", {"columns": 1, "lower": [-1], "upper": [1], "count": True}),
        (
            "residual_gradient",
            {"columns": 2, "lower": [-1, -1], "upper": [1, 1], "coefficients": [0.1, 0], "count": True},
        ),
        ("vector_sum", {"columns": 1, "clip": 0.1, "count": True}),
    ],
)
def test_sensitivity_covers_units_that_fail(name: str, parameters: dict[str, object]) -> None:
    """A unit with NaN in a column without a rule counts as zeros, which is no contribution of these statistics."""
    statistic = build(name, {"clip": 1.0} | parameters)
    units = [np.full((1, statistic.columns), value) for value in (0.5, -1.0, np.nan, 1e300)]
    totals = [statistic.total(Units.from_list([unit])) for unit in units]
    for one in totals:
        for other in totals:
            assert np.linalg.norm(one - other) <= statistic.sensitivity(Adjacency.REPLACE_ONE) * (1 + 1e-9)
