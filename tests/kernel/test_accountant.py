from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, published
from zerosum.kernel.events import Subsampled

mus = st.floats(1e-3, 50)
deltas = st.floats(1e-12, 0.1)


def test_epsilon_equals_independent_values(oracle: dict[str, Any]) -> None:
    for row in oracle["epsilon"]:
        found = accountant.epsilon(row["mu"], row["delta"])
        assert found == pytest.approx(row["epsilon"], rel=1e-9, abs=1e-12)


@given(mus, deltas)
def test_epsilon_and_calibration_round_to_safe_side(mu: float, delta: float) -> None:
    eps = accountant.epsilon(mu, delta)
    assert accountant.delta(mu, eps) <= delta * (1 + 1e-12)
    if eps > 1e-6:
        assert accountant.delta(mu, eps * (1 - 1e-6)) > delta  # and not by more than rounding
        back = accountant.mu_for(eps, delta)
        assert back == pytest.approx(mu, rel=1e-9)
        assert accountant.delta(back, eps) <= delta * (1 + 1e-12)


@given(mus, mus, deltas)
def test_epsilon_rises_with_mu(a: float, b: float, delta: float) -> None:
    low, high = sorted((a, b))
    assert accountant.epsilon(low, delta) <= accountant.epsilon(high, delta) * (1 + 1e-12)


def test_epsilon_and_delta_at_extreme_mu_are_exact() -> None:
    assert accountant.epsilon(0.0, 1e-5) == 0.0
    assert accountant.epsilon(math.inf, 1e-5) == math.inf
    assert accountant.epsilon(1e8, 1e-5) == pytest.approx(5e15, rel=1e-6)
    assert accountant.delta(0.0, 1.0) == 0.0
    assert accountant.delta(math.inf, 1.0) == 1.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(BadParameter, match="epsilon"):
        accountant.mu_for(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_delta_out_of_range_is_refused(delta: float) -> None:
    with pytest.raises(BadParameter, match="delta"):
        accountant.epsilon(1.0, delta)


def test_epsilon_exact_is_smallest_of_all_accountants(capsys: pytest.CaptureFixture[str]) -> None:
    """500 random compositions; deterministic apart from the fixed draw of the settings."""
    rng = np.random.default_rng(2026)
    gains = []
    for _ in range(500):
        releases = 10 ** rng.uniform(-2.5, 0.3, rng.integers(1, 60))
        delta = 10 ** rng.uniform(-9, -2)
        mu = accountant.compose(releases)
        exact = accountant.epsilon(mu, delta)
        others = {
            "rdp": published.rdp(mu, delta),
            "rdp as published": published.rdp_published(mu, delta),
            "moments": published.moments(mu, delta),
            "strong": published.strong_composition(releases, delta),
        }
        for name, other in others.items():
            assert exact <= other * (1 + 1e-9), name
        if exact > 0:
            gains.append((others["rdp"] / exact, others["rdp as published"] / exact))
    best, theirs = np.median(gains, axis=0)
    with capsys.disabled():
        print(f"\nmedian eps(RDP)/eps(exact) over {len(gains)}: {best:.3f} at its best, {theirs:.3f} as published")
    assert best > 1


def test_moments_accountant_equals_renyi_and_printed_quadratic_differs() -> None:
    """delta = min_t exp(mu^2 (t + t^2)/2 - t eps) has the root mu^2/2 + mu sqrt(2 ln 1/delta)."""
    mu, delta = 1.3, 1e-5
    t = np.linspace(1e-3, 60, 400_000)
    smallest = np.min(mu * mu * (t + 1) / 2 - math.log(delta) / t)
    assert smallest == pytest.approx(published.rdp_published(mu, delta), rel=1e-6)
    assert published.moments(mu, delta) == pytest.approx(smallest, rel=0.05)
    a, c = 1 / (2 * mu**2), mu**2 / 8 + math.log(delta)
    printed = (1 + math.sqrt(1 - 4 * a * c)) / (2 * a)
    assert printed > 1.1 * smallest


def test_strong_composition_of_one_release_is_no_smaller_than_exact() -> None:
    assert published.strong_composition([], 1e-5) == 0.0
    single = published.strong_composition([0.5], 1e-5)
    assert accountant.epsilon(0.5, 1e-5) <= single <= accountant.epsilon(0.5, 1e-6) * 1.01


@pytest.mark.parametrize(
    ("sites", "colluders", "claimed"),
    [(3, 0, 1.25), (4, 1, 1.4745), (5, 1, 1.3194), (10, 3, 1.2956), (30, 9, 1.1088), (100, 33, 1.0409)],
)
def test_theorem_1_equals_printed_values(sites: int, colluders: int, claimed: float) -> None:
    assert published.theorem_1(sites, colluders) == pytest.approx(claimed, abs=5e-5)


def test_theorem_1_outside_assumptions_is_none() -> None:
    assert published.theorem_1(4, 2) is None


def test_theorem_1_epsilon_solves_relation() -> None:
    eps = published.theorem_1_epsilon(1.25, 1e-5)
    mean, spread = 0.625, math.sqrt(1.25)
    x = (eps - mean) / spread
    assert 2 * spread / (eps - mean) * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) == pytest.approx(1e-5)


def test_epsilon_of_gaussian_releases_equals_dp_accounting() -> None:
    other = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    other.compose(dp_accounting.GaussianDpEvent(2.0), 4)
    assert accountant.epsilon(accountant.compose([0.5] * 4), 1e-5) == pytest.approx(other.get_epsilon(1e-5), rel=1e-3)


def test_subsampling_is_accounted_for_replaced_unit() -> None:
    """2.84, where add/remove accounting would say 1.83 (privacy.md, section 9); and it composes with plain releases."""
    sampled = [Subsampled(mu=1.0, rate=0.01, steps=1000)]
    eps = accountant.mixed_epsilon(0.0, sampled, 1e-5)
    assert eps == pytest.approx(2.84, abs=0.01)
    assert accountant.mixed_epsilon(0.5, sampled, 1e-5) > max(eps, accountant.epsilon(0.5, 1e-5))
    everything = accountant.mixed_epsilon(0.0, [Subsampled(mu=0.25, rate=1.0, steps=4)], 1e-5)
    assert everything == pytest.approx(accountant.epsilon(1.0, 1e-5), rel=1e-3)


@pytest.mark.parametrize("angle", [np.pi, np.pi / 2, np.pi / 4])
def test_subsampling_epsilon_holds_for_units_at_any_angle(angle: float) -> None:
    """One step, contributions u and v of norm c at an angle: delta at the claimed eps by numerical integration.

    For D = sqrt(2) c, as of second moments and histograms, a loss read off D alone would be too small.
    """
    mu, rate, delta = 2.0, 0.1, 1e-5
    eps = accountant.mixed_epsilon(0.0, [Subsampled(mu, rate, 1)], delta)
    u, v = mu * np.array([1.0, 0.0]), mu * np.array([np.cos(angle), np.sin(angle)])
    x, y = np.meshgrid(np.linspace(-10, 12, 2201), np.linspace(-10, 12, 2201), indexing="ij")
    cell = (x[1, 0] - x[0, 0]) ** 2

    def density(center: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.exp(-((x - center[0]) ** 2 + (y - center[1]) ** 2) / 2) / (2 * np.pi))

    base = density(np.zeros(2))
    p, q = ((1 - rate) * base + rate * density(w) for w in (u, v))
    assert float(np.sum(np.maximum(p - np.exp(eps) * q, 0)) * cell) <= delta * 1.01


@pytest.mark.parametrize(("mu", "rate", "steps"), [(1, 0, 1), (1, 1.5, 1), (1, 0.5, 0), (-1, 0.5, 1)])
def test_subsampled_bad_parameter_is_refused(mu: float, rate: float, steps: int) -> None:
    with pytest.raises(BadParameter):
        Subsampled(mu, rate, steps)


@given(mus)
def test_best_guess_equals_shifted_normal(mu: float) -> None:
    """By the distribution function, which is no part of the accountant; and no better than (epsilon, delta) allow."""
    right = accountant.best_guess(mu)
    assert right == pytest.approx((1 + math.erf(mu / 2 / math.sqrt(2))) / 2, abs=1e-12)
    eps = accountant.epsilon(mu, 1e-5)
    assert right <= (1 + 1e-5 * math.exp(-eps)) / (1 + math.exp(-eps)) + 1e-12


def test_best_guess_with_subsampling_is_between_bounds() -> None:
    phase = [Subsampled(mu=1.0, rate=0.01, steps=100)]
    alone, both = accountant.best_guess(0.0, phase), accountant.best_guess(0.5, phase)
    assert 0.5 < alone < both < accountant.best_guess(0.5) + alone - 0.5  # total variations add up at most
    everything = accountant.best_guess(0.0, [Subsampled(mu=0.25, rate=1.0, steps=4)])
    assert everything == pytest.approx(accountant.best_guess(1.0), abs=1e-3)  # +c and -c
    assert accountant.best_guess(0.5, distance=0.01) == accountant.best_guess(0.5) + 0.01
    assert accountant.best_guess(math.inf) == 1.0
