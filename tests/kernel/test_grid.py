from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.kernel import grid
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme, SiteShape
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite
from zerosum.kernel.view import Coalition, calibrate, worst_mu
from zerosum.noise import discrete_gaussian
from zerosum.noise.sampler import Sampler
from zerosum.site.noise import NoiseShare
from zerosum.statistics import build


def exact_sum(rows: Floats) -> Floats:
    return np.array([math.fsum(column) for column in rows.T])


@pytest.mark.parametrize("seed", range(4))
def test_summation_error_is_within_slack(seed: int) -> None:
    """Unit vectors of mixed signs and sizes, the kind that rounds worst; the bound must hold with room to spare."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60_000, 3)) * 10.0 ** rng.uniform(-6, 0, (60_000, 1))
    stat = build("vector_sum", {"columns": 3, "clip": 1.0})
    clipped = rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 2.0**-46))
    error = np.linalg.norm(stat.total(Units.from_rows(rows)) - exact_sum(clipped))
    assert error <= grid.summation_slack(60_000) / 2


def test_summation_slack_grows_and_too_many_units_are_refused() -> None:
    assert grid.summation_slack(10, 100) < grid.summation_slack(11, 100) < grid.summation_slack(11, 200)
    many = Units(np.zeros((40_000, 1)), np.arange(0, 40_001))
    many.check()
    heavy = Units(np.broadcast_to(np.zeros(1), (30_000, 1)), np.array([0, 30_000]))
    heavy.check()  # one unit with many rows is fine as long as there are few units
    for units, most in ((grid.MOST_UNITS + 1, 1), (grid.PLANNED_UNITS + 2, grid.BLOCK_ROWS)):
        rows = np.broadcast_to(np.zeros(1), (units + most - 1, 1))
        crowd = Units(rows, None if most == 1 else np.concatenate([[0], np.arange(most, len(rows) + 1)]))
        assert (len(crowd), crowd.largest) == (units, most)
        with pytest.raises(BadData):
            crowd.check()
    Units(np.broadcast_to(np.zeros(1), (grid.PLANNED_UNITS + 1, 1))).check()


@pytest.mark.parametrize("units", [1, 1000, 200_000, 10**7, 10**7 + 1, 3 * 10**7, 10**8, grid.MOST_UNITS])
def test_rows_allowed_stay_within_planned_rounding(units: int) -> None:
    rows = grid.rows_allowed(units)
    assert rows > grid.TREE
    assert (rows >= grid.BLOCK_ROWS) == (units <= grid.PLANNED_UNITS)
    assert grid.summation_slack(units, rows) <= grid.summation_slack()
    assert grid.summation_slack(units, rows + max(2, rows // 1000)) > grid.summation_slack()


@pytest.mark.parametrize("units", [10**7, 10**7 + 1, 10**8, grid.MOST_UNITS])
def test_blocks_of_many_units_have_no_more_rows_than_allowed(units: int) -> None:
    rows = np.broadcast_to(np.zeros(3), (units, 3))
    allowed = grid.rows_allowed(units)
    assert len(next(Units(rows).blocks(row_bytes=8))) == min(allowed, grid.BLOCK_ROWS)
    assert len(next(Units(rows).blocks(row_bytes=8, longer=True))) == grid.BLOCK_ROWS
    owned = Units(rows, np.arange(0, units + 1, 2, dtype=np.int64)) if units <= 10**7 + 1 else None
    if owned is not None:
        assert next(owned.blocks(row_bytes=8)).rows.shape[0] <= grid.BLOCK_ROWS


@pytest.mark.parametrize("sigma", [4.0, 5.5, 8.0, 12.0, 20.0])
def test_discrete_gaussian_distance_to_rounded_normal_is_within_bound(sigma: float) -> None:
    """Total variation 4.9e-4 / sigma^4 to a normal of variance sigma^2 - 1/12, rounded; by direct summation."""
    x = np.arange(-60 * math.ceil(sigma), 60 * math.ceil(sigma) + 1)
    weights = np.exp(-(x**2) / (2 * sigma**2))
    discrete = weights / math.fsum(weights)
    spread = math.sqrt(2 * (sigma**2 - 1 / 12))
    rounded = np.array([(math.erf((k + 0.5) / spread) - math.erf((k - 0.5) / spread)) / 2 for k in x])
    assert math.fsum(np.abs(discrete - rounded)) / 2 <= 4.9e-4 / sigma**4 + 1e-14


def test_sampler_error_and_range_cover_accounted_ones() -> None:
    assert discrete_gaussian.ETA <= grid.ETA
    assert discrete_gaussian.LARGEST >= 2.0**30


@pytest.mark.parametrize("name", ["local", "pooled", "secure-sum"])
@pytest.mark.parametrize(("size", "mu"), [(1, 0.01), (400_000, 1.0), (7, 30.0)])
def test_place_grid_is_fine_enough_and_meets_target(name: str, size: int, mu: float) -> None:
    coalition = Coalition(1)
    law = calibrate(Scheme(name).law([SiteShape()] * 4, 3), 2.0, coalition, mu)
    placed = calibrate(grid.place(law, 2.0, 1.0, size), 2.0, coalition, mu)
    noise = placed.central or float(placed.own[0])
    assert math.frexp(placed.step)[0] == 0.5  # a power of two
    assert discrete_gaussian.LARGEST >= noise / placed.step >= grid.STEPS
    assert placed.step * math.sqrt(size) <= 2.0 / grid.FINE
    assert worst_mu(placed, 2.0, coalition).max() <= mu
    assert noise <= (law.central or float(law.own[0])) * (1 + 1 / 2000)  # it costs next to nothing


def test_grid_sum_that_could_wrap_is_refused() -> None:
    law = Scheme("secure-sum").law([SiteShape()] * 1000, 600).scaled(1e-3)
    with pytest.raises(BadParameter, match="1000"):
        grid.place(law, 2.0, 1e6, 10)


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "pooled"])
def test_plan_noise_beyond_sampler_is_refused(scheme: str) -> None:
    assert discrete_gaussian.LARGEST == grid.MOST_STEPS
    coalition = Coalition(0 if scheme == "pooled" else 1)
    terms = {"scheme": Scheme(scheme), "coalition": coalition, "delta": 1e-12, "study": "s", "algorithm": "a"}
    sites = tuple(PlannedSite(f"s{i}") for i in range(3))
    for epsilon, size, fits in ((1e-3, 500, True), (1e-6, 5, True), (1e-6, 500_000, False)):
        releases = (PlannedRelease("vector_sum", 2.0, 1.0, size, 1.0),)
        plan = Plan(sites=sites, epsilon=epsilon, releases=releases, **terms)  # type: ignore[arg-type]
        if fits:
            law = plan.law(0)
            Sampler.system().steps(1, max(float(np.max(law.own)), law.central) / law.step)
        else:
            with pytest.raises(BadParameter):
                plan.site_mus()


def test_grid_message_of_any_neighbour_moves_within_sensitivity() -> None:
    """Contributions rounded to the grid, noise taken away: the worst of many neighbours, near halves of a step."""
    law = grid.place(Scheme("secure-sum").law([SiteShape()] * 2, 1).scaled(1.0), 2.0, 1.0, 5)
    law = replace(law, step=2.0**-4, rounding=2.0**-4 * math.sqrt(5), own=np.zeros(2))  # coarse, to see it
    stat = build("vector_sum", {"columns": 5, "clip": 1.0})
    rng = np.random.default_rng(0)
    share = NoiseShare(law, 0, 5, Sampler.system(), b"")
    worst = 0.0
    for _ in range(3000):
        unit = rng.normal(size=(1, 5))
        rest = np.round(rng.normal(size=(1, 5)) / law.step) * law.step * 0.1 + law.step / 2
        here, there = (share.noisy(stat.total(Units.from_rows(np.vstack([rest, u]))), None) for u in (unit, -unit))
        worst = max(worst, float(np.linalg.norm((here - there) * law.step)))
    assert 2.0 < worst <= law.site_sensitivity(2.0, 0)


def test_noise_share_draws_made_ahead_are_same_and_used_once() -> None:
    law = grid.place(Scheme("secure-sum").law([SiteShape()] * 2, 1).scaled(1.0), 2.0, 1.0, 300_000)
    total = np.zeros(300_000)
    plain, ahead = (NoiseShare(law, 0, len(total), Sampler.seeded(b"a test"), b"") for _ in range(2))
    ahead.begin()
    ahead.begin()
    first, second = (ahead.noisy(total, None) for _ in range(2))
    np.testing.assert_array_equal(first, plain.noisy(total, None))
    np.testing.assert_array_equal(second, plain.noisy(total, None))
    assert np.mean(first == second) < 0.01


def test_noise_share_without_threads_draws_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    law = grid.place(Scheme("secure-sum").law([SiteShape()] * 2, 1).scaled(1.0), 2.0, 1.0, 10)
    plain, ahead = (NoiseShare(law, 0, 10, Sampler.seeded(b"a test"), b"") for _ in range(2))
    monkeypatch.setattr(threading.Thread, "start", refused)
    ahead.begin()
    np.testing.assert_array_equal(ahead.noisy(np.zeros(10), None), plain.noisy(np.zeros(10), None))


def test_noise_share_failed_draw_raises_and_is_not_used() -> None:
    law = grid.place(Scheme("secure-sum").law([SiteShape()] * 2, 1).scaled(1.0), 2.0, 1.0, 10)

    class Broken(Sampler):
        fails = True

        def steps(self, size: int, std: float) -> NDArray[np.int64]:
            if self.fails:
                raise MemoryError("unavailable")
            return super().steps(size, std)

    sampler = Broken(bytes(32), rekey_after_fork=False)
    share = NoiseShare(law, 0, 10, sampler, b"")
    share.begin()
    with pytest.raises(MemoryError, match="unavailable"):
        share.noisy(np.zeros(10), None)
    sampler.fails = False
    assert np.any(share.noisy(np.zeros(10), None))


def make_plan(size: int, rounds: int, epsilon: float, sites: int = 4) -> Plan:
    release = PlannedRelease("second_moment", math.sqrt(2), 1 / rounds, size, 1.0)
    return Plan(
        study="s",
        algorithm="pca",
        unit="person",
        adjacency=Adjacency.REPLACE_ONE,
        epsilon=epsilon,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=Coalition(1),
        sites=tuple(PlannedSite(str(s)) for s in range(sites)),
        releases=(release,) * rounds,
    )


def test_plan_extra_delta_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        for what, plan in {
            "PCA of 900 columns, eps 1": make_plan(405_450, 1, 1.0),
            "PCA of 900 columns, eps 8": make_plan(405_450, 1, 8.0),
            "1000 rounds of 400 numbers, eps 1": make_plan(400, 1000, 1.0),
            "1000 rounds of 400 numbers, eps 8": make_plan(400, 1000, 8.0),
        }.items():
            print(f"extra delta, {what}: {plan.extra_delta:.3g} of 1e-05")
            assert 0 < plan.extra_delta < 1e-7 / 100


def test_plan_extra_delta_above_a_hundredth_is_refused() -> None:
    with pytest.raises(BadParameter, match="delta"):
        make_plan(405_450, 1, 60.0)


def test_plan_large_epsilon_has_finer_grid() -> None:
    coarse, fine = make_plan(200_000, 1, 8.0, 10), make_plan(200_000, 1, 50.0, 10)
    steps = [float(np.min(plan.law(0).own)) / plan.law(0).step for plan in (coarse, fine)]
    assert grid.STEPS <= steps[0] < 2 * grid.STEPS < grid.STEPS * 2**5 <= steps[1] <= discrete_gaussian.LARGEST
    assert fine.extra_delta <= 1e-5 / 100
    assert max(fine.site_epsilon(s) for s in range(10)) <= 50.0 * (1 + 1e-12)
    assert fine.extra_delta == pytest.approx((1 + math.exp(50)) * fine.distance(0))
    assert fine.distance(0) >= 200_000 * (10 * discrete_gaussian.ETA + 4.9e-4 / steps[1] ** 4)


def test_plan_distance_of_publication_counts_one_row() -> None:
    def distance(units: int) -> float:
        sites = tuple(PlannedSite(str(s), units) for s in range(4))
        release = PlannedRelease("clipped_records", 2.0, 1.0, 60, 1.0, kind="publication")
        return replace(make_plan(60, 1, 50.0), sites=sites, releases=(release,), unit="record").distance(0)

    assert distance(10) == distance(100_000) < make_plan(60, 1, 50.0).distance(0)


@pytest.mark.parametrize("epsilon", [700.0, 1e6])
def test_plan_huge_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(BadParameter):
        make_plan(1, 1, epsilon)


def test_plan_epsilon_at_whole_delta_includes_extra_delta() -> None:
    """The mu that is spent leaves room for the extra term: together they are the study's delta, not more."""
    plan = make_plan(405_450, 1, 35.0)
    assert plan.extra_delta > 1e-10
    assert max(plan.site_epsilon(s) for s in range(4)) <= 35.0 * (1 + 1e-12)


def test_place_adds_both_roundings_to_the_sensitivity() -> None:
    law = grid.place(Scheme("local").law([SiteShape()] * 3, 2), 2.0, 1.5, 7)
    assert law.rounding >= law.step * math.sqrt(7) + 1.5 * grid.summation_slack()
    assert law.site_sensitivity(2.0, 0) >= 2.0 + law.rounding
