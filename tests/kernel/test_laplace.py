"""Laplace noise in shares: exact privacy loss against enumeration, worst neighbours, calibration and plans."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import mpmath as mp  # type: ignore[import-untyped]  # ships no types
import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, grid, laplace
from zerosum.kernel.accountant import best_guess, epsilon, mixed_epsilon
from zerosum.kernel.events import LaplaceSum, Sampling, Subsampled
from zerosum.kernel.laplace import Curve, interval_factor
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import NoiseLaw, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.noise.sampler import Sampler
from zerosum.statistics import build

Floats = NDArray[np.float64]
REACH = 120  # steps to either side in enumerations


def discrete(decay: float, shift: int = 0) -> Floats:
    """Probabilities of shifted discrete Laplace noise on -REACH, ..., REACH."""
    at = np.abs(np.arange(-REACH, REACH + 1) - shift).astype(float)
    return decay / (2 - decay) * (1 - decay) ** at


def divergence(moved: tuple[int, ...], decay: float, eps: float) -> float:
    """Hockey-stick divergence of independent noise and the same noise moved by a vector, by enumeration."""
    one, other = np.ones(1), np.ones(1)
    for step in moved:
        one, other = np.outer(one, discrete(decay)).ravel(), np.outer(other, discrete(decay, step)).ravel()
    return float(np.sum(np.maximum(one - math.exp(eps) * other, 0)))


def plan_of(*releases: PlannedRelease, scheme: str = "secure-sum", sites: int = 4, **more: Any) -> Plan:
    """A plan at (1, 1e-5)."""
    coalition = Coalition(more.pop("colluders", 1), more.pop("dropouts", 0))
    scales = more.pop("scales", [1.0] * sites)
    roster = tuple(PlannedSite(f"s{s}", scale=scale) for s, scale in enumerate(scales))
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5} | more
    terms = Terms(sites=roster, scheme=Scheme(scheme), coalition=coalition, **settings)
    return Plan.of(terms, "study", "mean", releases)


def pure(size: int = 1, share: float = 1.0, sensitivity: float = 2.0, **more: Any) -> PlannedRelease:
    return PlannedRelease("vector_sum", sensitivity, share, size, sensitivity / 2, noise="laplace", **more)


# ---- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [1, 2, 5, 9])
@pytest.mark.parametrize("decay", [0.05, 0.3])
def test_curve_equals_enumerated_divergence(moves: int, decay: float) -> None:
    # 0.95^110 limits the enumeration to 1e-3; the curve for that decay is compared above this tail.
    tail = 2 * (1 - decay) ** (REACH - moves)
    curve = Curve(-moves * math.log1p(-decay), moves)
    for eps in np.linspace(-1.3, 1.3, 53) * curve.epsilon:
        assert float(curve.divergence(eps)) == pytest.approx(divergence((moves,), decay, float(eps)), abs=tail + 1e-14)


def test_no_neighbour_of_equal_l1_norm_exceeds_the_single_coordinate() -> None:
    """Every vector of whole steps with L1 norm up to 4 in two numbers."""
    decay, most = 0.3, 4
    curve = Curve(-most * math.log1p(-decay), most)
    vectors: list[tuple[int, ...]] = [
        v for v in product(range(-most, most + 1), repeat=2) if 0 < sum(map(abs, v)) <= most
    ]
    levels = np.linspace(-1.2, 1.2, 13) * curve.epsilon
    for vector in vectors:
        for eps in levels:
            assert divergence(vector, decay, float(eps)) <= float(curve.divergence(eps)) + 1e-12
    # Equal numbers are strictly better protected than one number that moves as far.
    assert divergence((2, 2), decay, 0.0) < 0.95 * divergence((4, 0), decay, 0.0)


@pytest.mark.parametrize("mu", [0.05, 0.5, 4.0, 12.0])
@pytest.mark.parametrize("eps", [-8.0, -0.3, 0.0, 0.2, 3.0, 30.0])
def test_divergence_of_plain_releases_for_arrays_is_the_closed_form(mu: float, eps: float) -> None:
    found = float(accountant._deltas(mu, np.array([eps]))[0])
    with mp.workdps(60):
        exact = mp.ncdf(mu / mp.mpf(2) - eps / mp.mpf(mu)) - mp.exp(eps) * mp.ncdf(-mu / mp.mpf(2) - eps / mp.mpf(mu))
        assert abs(found - exact) <= mp.mpf(1e-11) * exact + mp.mpf(1e-16)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.2, 0.39])
def test_epsilon_of_a_curve_is_the_smallest_at_its_delta(delta: float) -> None:
    curve = Curve(1.0, 7)
    found = curve.epsilon_at(delta)
    assert float(curve.divergence(found)) <= delta
    assert float(curve.divergence(found - 1e-9)) > delta - 1e-15
    assert curve.epsilon_at(0.45) == 0.0
    assert mixed_epsilon(0.0, [LaplaceSum(1.0, 7)], delta) == found


def share(decay: float, shape: float, size: int) -> Floats:
    """Exact probabilities of one share (`zerosum.noise.discrete_laplace`)."""
    steps = np.arange(1, size)
    single = decay**shape * np.concatenate([[1.0], np.cumprod((steps - 1 + shape) / steps * (1 - decay))])
    return np.convolve(single, single[::-1])


def largest_loss(parts: int, honest: int, moves: int, decay: float) -> float:
    """Largest log ratio of the probabilities of two sums of `honest` shares, `moves` steps apart, by enumeration."""
    total = share(decay, honest / parts, 400)
    at = slice(len(total) // 2 - 60, len(total) // 2 + 61)
    ratio = np.log(total[at]) - np.log(np.roll(total, moves)[at])
    return float(np.max(np.abs(ratio)))


@pytest.mark.parametrize(("sites", "colluders"), [(4, 1), (10, 3), (30, 9)])
def test_likelihood_ratio_of_honest_shares_stays_within_the_claim(sites: int, colluders: int) -> None:
    decay, moves, honest = 0.2, 6, sites - colluders
    claimed = moves * laplace.step_loss(decay)
    assert largest_loss(honest, honest, moves, decay) <= claimed * (1 + 1e-9)
    # More honest sites than the worst case add noise.
    assert largest_loss(honest, honest + 1, moves, decay) <= claimed * (1 + 1e-9)
    # Shares for all sites instead of the honest ones would not hold: the attack finds the fault.
    assert largest_loss(sites, honest, moves, decay) > claimed * 1.02


# ---- composition -----------------------------------------------------------------------------------------------------


def test_composition_with_gaussian_releases_agrees_with_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as losses

    theirs = losses.from_discrete_laplace_mechanism(1 / 100, 100).compose(losses.from_gaussian_mechanism(1 / 0.268))
    ours = mixed_epsilon(0.268, [LaplaceSum(1.0, 100)], 1e-5)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(1e-5), abs=2e-4)
    assert 1.0 < ours < 1.0 + epsilon(0.268, 1e-5)


def test_composition_of_equal_releases_is_between_one_and_their_sum() -> None:
    many = mixed_epsilon(0.0, [LaplaceSum(0.1, 5000, 12), LaplaceSum(0.1, 5000, 8)], 1e-5)
    assert many == mixed_epsilon(0.0, [LaplaceSum(0.1, 5000, 20)], 1e-5)
    assert 0.1 * math.sqrt(20) < many < 0.1 * 20


def test_composition_of_two_releases_covers_the_exact_one() -> None:
    moves, decay = 4, 0.3
    loss = -moves * math.log1p(-decay)
    for delta in (1e-5, 1e-3, 0.05):
        found = mixed_epsilon(0.0, [LaplaceSum(loss, moves, 2)], delta)
        assert divergence((moves, moves), decay, found) <= delta + 1e-12
        assert divergence((moves, moves), decay, found - 3e-4) > delta


def test_large_losses_compose_by_adding_them() -> None:
    assert mixed_epsilon(0.0, [LaplaceSum(40.0, 5000, 3)], 1e-5) == 120.0
    assert mixed_epsilon(20.0, [LaplaceSum(1.0, 5000)], 1e-5) < 1.0 + epsilon(20.0, 1e-5)
    sampled = Subsampled(0.3, 0.1, 20)
    both = mixed_epsilon(0.0, [LaplaceSum(0.5, 5000), sampled], 1e-5)
    assert mixed_epsilon(0.0, [sampled], 1e-5) < both < mixed_epsilon(0.0, [sampled], 1e-5) + 0.5


def test_best_guess_of_one_release_is_its_total_variation() -> None:
    assert best_guess(0.0, [LaplaceSum(1.0, 10**6)]) == pytest.approx(1 - math.exp(-0.5) / 2, rel=1e-9)


# ---- noise and plans -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 400])
@pytest.mark.parametrize("asked", [1e-3, 1.0, 20.0])
def test_placed_noise_costs_what_was_asked_with_rounding(size: int, asked: float) -> None:
    plan = plan_of(pure(size), epsilon=asked)
    law = plan.law(0)
    found = laplace.losses(law, 2.0)
    assert np.all(found <= asked)
    assert np.all(found > asked * (1 - 1e-9))
    # K covers the sensitivity, one step of rounding for every number, and the summation error.
    moves = laplace.moves(law, 2.0, 0)
    assert (moves + 1) * law.step > 2.0 + size * law.step + 2 * grid.summation_slack()
    assert moves * law.step <= 2.0 * (1 + 2 / 4096) + 1e-4
    assert 1 / law.decay >= laplace.LEAST_SCALE / 2
    assert plan.site_epsilon(0) <= asked


@pytest.mark.parametrize(("sites", "colluders", "dropouts"), [(4, 1, 0), (10, 3, 2), (30, 9, 0)])
def test_noise_variance_over_pooled_laplace_is_sites_over_honest_sites(
    sites: int, colluders: int, dropouts: int
) -> None:
    law = plan_of(pure(), sites=sites, colluders=colluders, dropouts=dropouts).law(0)
    pooled = plan_of(pure(), sites=sites, colluders=colluders, scheme="pooled").law(0)
    ratio = sites / (sites - colluders - dropouts)
    assert (law.noise_std / pooled.noise_std) ** 2 == pytest.approx(ratio, rel=1e-6)
    assert law.shares == pytest.approx(ratio)
    assert pooled.noise_std == pytest.approx(2 * math.sqrt(2), rel=1e-3)
    assert law.parts == sites - colluders - dropouts


def test_noise_of_each_message_is_the_whole_under_local() -> None:
    plan = plan_of(pure(), scheme="local")
    assert plan.law(0).parts == 1
    assert plan.law(0).noise_std == pytest.approx(2 * math.sqrt(2 * 4), rel=1e-3)


def test_drawn_noise_has_the_planned_size() -> None:
    law = plan_of(pure()).law(0)
    drawn = Sampler.seeded(b"planned").laplace_steps(100_000, law.decay, law.parts) * law.step
    # Kurtosis of a share is 3 + 3 parts = 12: the relative error of the std is sqrt(11/4e5); seven of these.
    assert np.std(drawn) == pytest.approx(float(law.own[0]), rel=7 * math.sqrt(11 / 4e5))


def test_site_with_a_smaller_scale_has_a_smaller_epsilon() -> None:
    plan = plan_of(pure(), scales=[1.0, 0.5, 0.5, 0.25])
    assert plan.site_epsilon(0) == pytest.approx(1.0, abs=1e-4)
    assert plan.site_epsilon(1) == pytest.approx(0.5, abs=1e-3)
    assert plan.site_epsilon(3) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("attempts", [0, 2])
def test_plan_of_both_laws_stays_within_its_budget(attempts: int) -> None:
    plan = plan_of(pure(share=0.4), PlannedRelease("scatter", 2.0, 0.6, 10, 1.0), attempts=attempts)
    assert 0.99 < plan.worst_epsilon <= 1.0
    assert isinstance(plan.event(0, 0), LaplaceSum)
    assert plan.site_mus()[0] <= plan.whole_mu(0.0)


def test_plan_with_attempts_pays_for_every_repetition() -> None:
    once, thrice = plan_of(pure()), plan_of(pure(), attempts=2)
    assert thrice.law(0).noise_std > 2.9 * once.law(0).noise_std
    assert thrice.worst_epsilon <= 1.0


def test_absent_site_leaves_the_others_more_noise() -> None:
    plan = plan_of(pure(), sites=6, absences=1)
    fewer = plan.without(["s5"])
    assert fewer.law(0).parts == plan.law(0).parts - 1
    assert fewer.worst_epsilon <= 1.0
    assert float(fewer.law(0).own[0]) > float(plan.law(0).own[0])


@pytest.mark.parametrize("scheme", ["zero-sum", "pairwise", "cape-published", "cape-helper"])
def test_scheme_without_grid_refuses_laplace_noise(scheme: str) -> None:
    with pytest.raises(BadParameter, match="Laplace"):
        plan_of(pure(), scheme=scheme)


def test_laplace_noise_beside_phases_and_for_publications_is_refused() -> None:
    phase = PlannedRelease("vector_sum", 2.0, 0.5, 3, 1.0, sampling=Sampling(0.1, 5))
    with pytest.raises(BadParameter):
        plan_of(pure(share=0.5), phase)
    with pytest.raises(BadParameter):
        pure(kind="publication")
    with pytest.raises(BadParameter):
        pure(sampling=Sampling(0.1, 5))
    with pytest.raises(BadParameter):
        plan_of(pure(), scheme="pooled", calibration="published")


def test_json_of_a_gaussian_plan_has_no_new_field() -> None:
    gaussian = plan_of(PlannedRelease("vector_sum", 2.0, 1.0, 1, 1.0))
    assert "noise" not in json.loads(gaussian.to_json())["releases"][0]
    both = plan_of(PlannedRelease("vector_sum", 2.0, 0.5, 1, 1.0), pure(share=0.5))
    assert [each.get("noise") for each in json.loads(both.to_json())["releases"]] == [None, "laplace"]
    assert Plan.from_json(both.to_json()) == both
    assert both.public_digest != plan_of(*(gaussian.releases[0],) * 1).public_digest


def test_law_at_unit_scale_is_gaussian() -> None:
    law: NoiseLaw = Scheme("secure-sum").law([PlannedSite("a").shape] * 2, 1)
    assert law.decay == 0


def test_interval_factor_is_that_of_the_noise() -> None:
    assert interval_factor(1.0) == pytest.approx(math.log(20) / math.sqrt(2), abs=1e-4)
    assert interval_factor(1.0, 0.9) == pytest.approx(math.log(10) / math.sqrt(2), abs=1e-4)
    law = plan_of(pure()).law(0)
    shares = [Sampler.seeded(f"interval {s}".encode()).laplace_steps(40_000, law.decay, law.parts) for s in range(4)]
    drawn = np.abs(np.sum(shares, axis=0) * law.step) / law.noise_std
    for level in (0.9, 0.95):
        inside = np.mean(drawn < interval_factor(law.shares, level))
        assert abs(inside - level) < 6 * math.sqrt(level * (1 - level) / 40_000)  # 2e-9 for a normal error


@pytest.mark.parametrize("adjacency", Adjacency)
def test_statistic_without_l1_bound_is_refused(adjacency: Adjacency) -> None:
    scatter = build("scatter", {"columns": 2, "clip": 1.0})
    assert scatter.sensitivity_l1(adjacency) is None
    with pytest.raises(BadParameter):
        scatter.distance(adjacency, "laplace")
    assert scatter.distance(adjacency, "gaussian") == scatter.sensitivity(adjacency)


def test_plan_of_too_many_different_laplace_releases_is_refused() -> None:
    equal = plan_of(*[pure(share=0.02)] * 40)
    assert equal.worst_epsilon <= 1.0
    with pytest.raises(BadParameter, match="16"):
        plan_of(*[pure(share=0.01 + at / 1000) for at in range(17)])


@pytest.mark.parametrize(
    "changed", [{"sensitivity": 1e-100}, {"sensitivity": 1e100, "bound": 1e100}, {"size": 10**11}, {"bound": 1e100}]
)
@pytest.mark.parametrize("asked", [1e-30, 1.0, 40.0])
def test_plan_of_extreme_numbers_is_planned_or_refused(changed: dict[str, Any], asked: float) -> None:
    release = PlannedRelease("vector_sum", **{"sensitivity": 2.0, "bound": 1.0, "size": 1, **changed}, share=1.0)
    with suppress(BadParameter):
        plan = plan_of(replace(release, noise="laplace"), epsilon=asked)
        assert np.all(plan.mus(0) <= asked)
