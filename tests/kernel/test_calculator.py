"""The calculator: noise to epsilon and back, against the closed forms of the README's table."""

from __future__ import annotations

import math
from typing import Any

import pytest

from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.kernel.calculator import account, account_laplace
from zerosum.kernel.events import Subsampled
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Combine, Scheme, SiteShape
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition

SETTING: dict[str, Any] = {"sensitivity": 1.5, "delta": 1e-5}
RATIO = 100.0  # of zero-sum and pairwise


@pytest.mark.parametrize(("sites", "colluders"), [(4, 1), (10, 3), (3, 0)])
@pytest.mark.parametrize(
    "name", ["pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local"]
)
def test_account_variance_over_pooled_equals_formula(name: str, sites: int, colluders: int) -> None:
    S, H = sites, sites - colluders
    expected = {
        "pooled": 1.0,
        "secure-sum": S / H,
        "zero-sum": S / H + S * (1 - 1 / H) / (1 + RATIO**2),
        "pairwise": S / H + S * (1 - 1 / H) / (1 + RATIO**2),
        "cape-helper": S / H + (1 - 1 / H) * S / (S + 1),
        "cape-published": S / H + (1 - 1 / H) * S / (S + 1),
        "local": float(S),
    }[name]
    cost = account(Scheme(name), sites=S, coalition=Coalition(colluders), epsilon=1.0, **SETTING)
    assert cost.epsilon == pytest.approx(1.0, rel=1e-6)
    assert cost.variance_ratio == pytest.approx(expected, rel=1e-6)
    pooled = SETTING["sensitivity"] / accountant.mu_for(1.0, SETTING["delta"])
    assert cost.noise_std == pytest.approx(pooled * expected**0.5, rel=1e-6)


@pytest.mark.parametrize(
    "name", ["pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local"]
)
def test_account_epsilon_to_noise_and_back_is_same(name: str) -> None:
    there = account(Scheme(name), sites=5, coalition=Coalition(1), epsilon=0.7, **SETTING)
    noise = there.noise.get("tau", there.noise.get("sigma_g"))
    back = account(Scheme(name), sites=5, coalition=Coalition(1), tau=noise, **SETTING)
    assert back.epsilon == pytest.approx(0.7, rel=1e-6)
    assert back.noise == pytest.approx(there.noise)


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("local", {"sensitivity": 0.0}, "sensitivity"),
        ("local", {"tau": 0.0}, "noise"),
        ("local", {"epsilon": 1.0}, "epsilon"),
        ("local", {"tau": None}, "epsilon"),
        ("local", {"delta": 1.0}, "delta"),
        ("non-private", {}, "non-private"),
    ],
)
def test_account_bad_parameter_is_refused(name: str, change: dict[str, Any], named: str) -> None:
    given = {"sites": 3, "coalition": Coalition(0), "tau": 1.0, **SETTING, **change}
    with pytest.raises(BadParameter, match=named):
        account(Scheme(name), **given)


NOISY = ["pooled", "secure-sum", "zero-sum", "pairwise", "cape-helper", "cape-published", "local"]


@pytest.mark.parametrize("name", NOISY)
@pytest.mark.parametrize("rounds", [1, 7, 1000])
def test_account_of_rounds_grows_as_the_root_of_their_number(name: str, rounds: int) -> None:
    one = account(Scheme(name), sites=5, coalition=Coalition(1), tau=20.0, **SETTING)
    many = account(Scheme(name), sites=5, coalition=Coalition(1), tau=20.0, rounds=rounds, **SETTING)
    assert many.round_mu == one.mu
    assert many.mu == pytest.approx(one.mu * math.sqrt(rounds), rel=1e-14)
    assert many.epsilon == accountant.epsilon(many.mu, SETTING["delta"])
    assert many.variance_ratio == one.variance_ratio
    back = account(Scheme(name), sites=5, coalition=Coalition(1), epsilon=many.epsilon, rounds=rounds, **SETTING)
    assert back.noise == pytest.approx(many.noise, rel=1e-9)


def test_account_of_rounds_matches_independent_values(oracle: dict[str, Any]) -> None:
    """Values with 60 digits: of a sum over pooled data, whose noise is chosen to give their mu over nine rounds."""
    for each in oracle["epsilon"]:
        setting = {"sensitivity": 1.0, "delta": each["delta"], "tau": 3 / each["mu"], "rounds": 9}
        cost = account(Scheme("pooled"), sites=2, coalition=Coalition(0), **setting)
        assert cost.epsilon == pytest.approx(each["epsilon"], rel=1e-9, abs=1e-12)


def test_account_of_cape_over_unequal_sites_equals_sums_when_weights_follow_units() -> None:
    """capeDJICA, section III-C: with weights n_s/N every site has the guarantee and the noise of equal sites."""
    shapes = [SiteShape(units) for units in (100, 200, 300, 400)]
    weighted = Scheme("cape-published", combine=Combine.WEIGHTED)
    cost = account(weighted, sites=shapes, coalition=Coalition(1), tau=2.0, **SETTING)
    equal = account(Scheme("cape-published"), sites=4, coalition=Coalition(1), tau=2.0, **SETTING)
    assert cost.mu == pytest.approx(equal.mu, rel=1e-12)
    assert cost.noise == equal.noise
    assert [site.units for site in cost.by_site] == [100, 200, 300, 400]
    assert all(site.epsilon == pytest.approx(equal.epsilon, rel=1e-9) for site in cost.by_site)
    assert cost.published_mu_squared is None
    assert equal.published_mu_squared is not None


def test_account_of_weighted_means_compares_the_solutions() -> None:
    """The printed solution of capePCA gives three equal sites 4 times the pooled variance, since the last has no own
    noise; the general solution is Algorithm 1, with mu^2 = (1 - 1/2) 3/4 + 3/2.
    """
    setting = {"coalition": Coalition(1), "tau": 2.0, **SETTING}
    cost = account(Scheme("cape-helper", combine=Combine.WEIGHTED), sites=[SiteShape(30)] * 3, **setting)
    assert cost.solutions is not None
    assert cost.solutions.used == "printed"
    assert cost.solutions.printed == pytest.approx(4.0)
    assert cost.solutions.printed == pytest.approx(cost.variance_ratio)
    assert cost.solutions.solved == pytest.approx(1.875)
    assert cost.solutions.sums == pytest.approx(1.875)
    assert account(Scheme("cape-helper"), sites=3, **setting).solutions is None


def test_account_of_weights_that_need_too_much_cancelling_noise_is_refused() -> None:
    shapes = [SiteShape(10, 1e-12), SiteShape(1000), SiteShape(1000)]
    with pytest.raises(BadParameter, match="scales"):
        account(Scheme("cape-helper", combine=Combine.WEIGHTED), sites=shapes, coalition=Coalition(1), tau=1, **SETTING)


def test_account_of_a_mean_of_unequal_means_pays_the_harmonic_factor() -> None:
    """Algorithm 2 of capeDJICA without colluders: the variance grows by (N/S)^2 mean(1/n_s^2), the papers' H(n)."""
    counts = (100, 200, 300, 400)
    means = Scheme("cape-published", combine=Combine.MEANS)
    setting = {"coalition": Coalition(0), "tau": 2.0, **SETTING}
    cost = account(means, sites=[SiteShape(n) for n in counts], **setting)
    equal = account(Scheme("cape-published"), sites=4, **setting)
    H = (1000 / 4) ** 2 * sum(1 / n**2 for n in counts) / 4
    assert round(H, 4) == 2.2244
    assert cost.noise_std == pytest.approx(equal.noise_std * math.sqrt(H), rel=1e-12)


def test_account_of_scaled_sites_multiplies_their_mu() -> None:
    shapes = [SiteShape(), SiteShape(), SiteShape(scale=0.25)]
    cost = account(Scheme("secure-sum"), sites=shapes, coalition=Coalition(1), tau=3.0, rounds=4, **SETTING)
    mus = [site.round_mu for site in cost.by_site]
    assert mus[2] == pytest.approx(mus[0] / 4)
    assert cost.by_site[2].epsilon == pytest.approx(accountant.epsilon(mus[0] / 2, SETTING["delta"]))


def test_account_of_sampled_rounds_uses_the_loss_distributions() -> None:
    setting = {"sites": 4, "coalition": Coalition(1), "rounds": 100, **SETTING}
    cost = account(Scheme("secure-sum"), tau=2.0, rate=0.05, **setting)
    # a unit is present or absent: its norm is half the sensitivity of a replaced unit
    mu = SETTING["sensitivity"] / 2 / (2.0 * math.sqrt(3))
    assert cost.round_mu == pytest.approx(mu)
    expected = accountant.mixed_epsilon(0.0, [Subsampled(mu, 0.05, 100)], SETTING["delta"])
    assert cost.epsilon == pytest.approx(expected, rel=1e-9)
    assert cost.mu == pytest.approx(accountant.mu_for(expected, SETTING["delta"]), rel=1e-9)
    assert cost.epsilon < account(Scheme("secure-sum"), tau=2.0, **setting).epsilon
    back = account(Scheme("secure-sum"), epsilon=cost.epsilon, rate=0.05, **setting)
    assert 0.99 * cost.epsilon < back.epsilon <= cost.epsilon
    assert back.noise["tau"] == pytest.approx(2.0, rel=2e-3)


def test_account_compares_accountants_and_the_exact_one_is_the_smallest() -> None:
    setting = {"sites": 4, "coalition": Coalition(1), "tau": 60.0, "rounds": 1000, "compare": True, **SETTING}
    cost = account(Scheme("cape-published"), **setting)
    assert cost.accountants is not None
    exact = {name: each["exact"] for name, each in cost.accountants.items() if each["exact"] is not None}
    assert min(exact, key=lambda name: exact[name]) == "exact"
    assert exact["exact"] == cost.epsilon
    # mu^2/2 + mu sqrt(2 ln(1/delta)) of the released sum's noise, as in section IV-A of capeDJICA
    mu = SETTING["sensitivity"] / 60 * math.sqrt(1000)
    found = cost.accountants["rdp_published"]["papers"]
    assert found == pytest.approx(mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / SETTING["delta"])))
    assert cost.accountants["theorem_2"]["papers"] is not None
    unequal = account(Scheme("secure-sum"), **setting)
    assert unequal.accountants is not None
    assert all(each["papers"] is None for each in unequal.accountants.values())


@pytest.mark.parametrize(
    ("change", "named"), [({"rounds": 0}, "rounds"), ({"rate": 0.0}, "rate"), ({"rate": 2}, "rate")]
)
def test_account_bad_rounds_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        account(Scheme("local"), sites=3, coalition=Coalition(0), tau=1.0, **SETTING, **change)


# ---- Laplace noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["secure-sum", "pooled", "local"])
def test_laplace_noise_of_the_calculator_is_that_of_a_plan(scheme: str) -> None:
    coalition, sites = Coalition(2, 1), tuple(PlannedSite(f"s{s}") for s in range(8))
    found = account_laplace(Scheme(scheme), sites=8, coalition=coalition, sensitivity=2.0, delta=1e-5, epsilon=0.7)
    terms = Terms(sites=sites, epsilon=0.7, delta=1e-5, scheme=Scheme(scheme), coalition=coalition)
    release = PlannedRelease("vector_sum", 2.0, 1.0, 1, 1.0, noise="laplace")
    law = Plan.of(terms, "s", "mean", (release,)).law(0)
    assert found.noise_std == pytest.approx(law.noise_std, rel=1e-3)
    assert found.variance_ratio == law.shares


def test_laplace_noise_for_an_epsilon_of_many_rounds_costs_that_epsilon() -> None:
    given = {"sites": 4, "coalition": Coalition(1), "sensitivity": 2.0, "delta": 1e-5, "rounds": 10}
    found = account_laplace(Scheme("secure-sum"), **given, epsilon=1.0)  # type: ignore[arg-type]
    assert 0.999 < found.epsilon <= 1.0
    again = account_laplace(Scheme("secure-sum"), **given, scale=found.scale)  # type: ignore[arg-type]
    assert again.round_epsilon == pytest.approx(found.round_epsilon)
    assert 0.1 < found.round_epsilon < 0.3


@pytest.mark.parametrize(
    "wrong", [{"scale": 1.0, "epsilon": 1.0}, {}, {"scale": -1.0}, {"epsilon": 1.0, "rounds": 0}, {"scale": math.inf}]
)
def test_laplace_noise_of_bad_input_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        account_laplace(Scheme("secure-sum"), sites=4, coalition=Coalition(1), sensitivity=2.0, delta=1e-5, **wrong)
    with pytest.raises(BadParameter):
        account_laplace(Scheme("zero-sum"), sites=4, coalition=Coalition(1), sensitivity=2.0, delta=1e-5, scale=1.0)
