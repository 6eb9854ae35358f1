"""What the papers' ICA claims to cost and what it costs."""

from __future__ import annotations

import math

import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import accountant, published
from zerosum.papers.methods import ica_costs as costs


def test_ica_costs_exact_total_equals_hand_calculation() -> None:
    r = 1 / math.sqrt(2 * math.log(125))
    mu = math.sqrt(1000 * 2 * r * r * 28 / 15)  # privacy.md section 3: 1.86667 at S = 4, C = 1
    assert costs.exact_mu("cape-djica", 1000, 1.0, sites=4, colluders=1) == pytest.approx(mu)
    exact = costs.exact_epsilon("cape-djica", 1000, 1.0, sites=4, colluders=1)
    assert exact == pytest.approx(accountant.epsilon(mu, 1e-5))
    assert exact == pytest.approx(276.3, abs=0.1)
    for method in ("conv", "pooled", "single-site"):
        alone = costs.exact_epsilon(method, 1000, 1.0, sites=4, colluders=1)
        assert alone == pytest.approx(accountant.epsilon(math.sqrt(2000) * r, 1e-5))
        assert alone < exact
    few, many = (
        costs.exact_mu("cape-djica", 1000, 1.0, sites=4, colluders=1, components=R) for R in (20, 50)
    )  # a bias of 20 entries below one cannot reach the clip
    assert few == pytest.approx(mu * math.sqrt((1 + 20 / 30) / 2))
    assert many == pytest.approx(mu)
    assert costs.exact_mu("conv", 9, 1.0, sites=4, colluders=1, points=250) == pytest.approx(math.sqrt(18) * r / 250)


@pytest.mark.parametrize("rounds", [1, 30, 1000])
@pytest.mark.parametrize("ratio", [0.05, 0.3218, 2.0])
def test_ica_costs_exact_is_smallest_for_same_view_and_larger_for_true_view(rounds: int, ratio: float) -> None:
    found = costs.claims(rounds, ratio, sites=4, colluders=1)
    for other in (found.strong, found.moments, found.moments_printed, found.rdp, found.rdp_best):
        assert found.coordinator <= other * (1 + 1e-12)
    assert found.exact > found.coordinator
    assert found.rdp_best <= found.rdp <= found.moments
    assert found.rdp < found.moments_printed
    assert found.rdp < costs.claimed_with_step(rounds, ratio, 0.005)
    if rounds == 1000:
        assert found.exact > found.rdp  # what the papers report lies below the truth
        assert found.strong > found.rdp
        assert found.composition > found.rdp


def test_ica_costs_printed_quadratic_is_solved_and_derived_one_is_rdp() -> None:
    for mu in (0.1, 1.0, 10.0):
        eps, log_delta = costs.moments_printed(mu, 1e-5), math.log(1e-5)
        assert eps**2 / (2 * mu**2) - eps + mu**2 / 8 + log_delta == pytest.approx(0, abs=1e-8)
        eps = published.rdp_published(mu, 1e-5)
        assert eps**2 / (2 * mu**2) - eps / 2 + mu**2 / 8 + log_delta == pytest.approx(0, abs=1e-8)


def test_ica_costs_round_for_exact_total_and_back_is_same() -> None:
    for method in costs.SCHEMES:
        one = costs.epsilon_for_exact(method, 200, 3.0, sites=4, colluders=1)
        assert costs.exact_epsilon(method, 200, one, sites=4, colluders=1) == pytest.approx(3.0, rel=1e-9)


def test_ica_costs_reduction_of_person_is_multiplied_by_volumes() -> None:
    one, person = (costs.reduction_mu(0.5, 1e-2, sites=4, colluders=1, points=points) for points in (1, 250))
    assert person == pytest.approx(250 * one)
    assert one == pytest.approx(math.sqrt(2 * 28 / 15) * costs.ratio(0.5))
    iteration = costs.exact_mu("cape-djica", 1000, 0.5, sites=4, colluders=1)
    assert person > 7 * iteration  # "slightly higher", the paper says


def test_ica_costs_dp_djica_claim_equals_hand_calculation() -> None:
    assert costs.dp_djica_claimed(100, 0.5) == 50
    assert costs.dp_djica_claimed(100, 0.5, points=250) == 12_500


def test_ica_costs_bad_parameter_is_refused() -> None:
    with pytest.raises(BadParameter, match="'ours'"):
        costs.price("ours", 4, 1)
    with pytest.raises(BadParameter, match="0"):
        costs.exact_mu("conv", 0, 1.0, sites=4, colluders=1)
    with pytest.raises(BadParameter, match="sensitivity"):
        costs.claims(3, 0.0, sites=4, colluders=1)
    assert costs.claims(3, 0.1, sites=4, colluders=2).composition == math.inf  # outside Theorem 1
