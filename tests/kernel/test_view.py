from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from zerosum.errors import BadParameter
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import SCHEMES, Combine, NoiseLaw, NoiseMechanism, Scheme, SiteShape, weighted_laws
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition, calibrate, dealer_mu, mu_squared, solve, view, worst_mu

NOISY = ["pooled", "local", "cape-published", "cape-helper", "zero-sum", "pairwise", "secure-sum"]


def random_law(rng: np.random.Generator, name: str, ratio: float | None = None) -> tuple[NoiseLaw, list[int]]:
    """A law of that scheme with everything unequal that may be, and the sites that do not collude."""
    S = int(rng.integers(2, 9))
    C = int(rng.integers(0, S))
    shapes = [SiteShape(int(rng.integers(1, 200)), float(rng.uniform(0.2, 1))) for _ in range(S)]
    combine = Combine.SUMS
    if name.startswith("cape") and rng.random() < 0.5:
        combine = Combine.WEIGHTED if name == "cape-helper" or rng.random() < 0.5 else Combine.MEANS
        weights = rng.dirichlet(np.ones(S)) if name == "cape-helper" else [None] * S
        shapes = [SiteShape(shape.units, 1.0, weight) for shape, weight in zip(shapes, weights, strict=True)]
    law = Scheme(name, ratio=ratio or 10.0 ** rng.uniform(-2, 8), combine=combine).law(shapes, S - C)
    if name != "cape-helper":
        law = replace(law, own=law.own * rng.uniform(0.5, 2, S))
        if name not in ("pairwise", "secure-sum"):
            law = replace(law, cancelling=law.cancelling * rng.uniform(0.5, 2, S))
    honest = sorted(rng.choice(S, S - C, replace=False).tolist())
    return law, honest


def test_solve_equals_independent_values(oracle: dict[str, Any]) -> None:
    for row in oracle["views"]:
        read = np.array(row["honest_message_map"])
        known = np.array(row["known"]).reshape(-1, read.shape[1])
        shift = np.eye(len(read))[row["site"]]
        found = row["sensitivity"] ** 2 * solve(read, shift, known, np.array(row["variances"]))
        assert found == pytest.approx(row["mu_squared"], rel=1e-9)


@pytest.mark.parametrize("name", NOISY)
def test_mu_squared_closed_forms_agree_with_solver(name: str) -> None:
    rng = np.random.default_rng(NOISY.index(name))
    for ratio in [None] * 150 + [1e8] * 50:
        law, honest = random_law(rng, name, ratio)
        for site in honest:
            closed = mu_squared(law, 1.3, site, honest)
            assert view(law, honest).mu_squared(1.3, site) == pytest.approx(closed, rel=1e-10)


@pytest.mark.parametrize("name", ["cape-published", "cape-helper"])
def test_mu_squared_of_solved_weighted_means_equals_conditional_covariance(name: str) -> None:
    """Covariance of the honest messages given what the coalition knows, written out and inverted.

    The mixing matrix is written again here: e_s = r_s - B/(p_s S). Draws in order: r_1 to r_S, then g_1 to g_S.
    """
    rng = np.random.default_rng(11)
    for _ in range(60):
        S = int(rng.integers(2, 8))
        C = int(rng.integers(0, S))
        weights = rng.dirichlet(np.full(S, 3.0))
        shapes = [SiteShape(int(rng.integers(20, 200)), float(rng.uniform(0.3, 1)), float(p)) for p in weights]
        law = weighted_laws(SCHEMES[name].mechanism, shapes, S - C).solved
        colluding = sorted(rng.choice(S, C, replace=False).tolist())
        honest = [s for s in range(S) if s not in colluding]
        e = np.eye(S) - np.outer(1 / (law.weight * S), law.weight)
        message = np.hstack([e, np.eye(S)])
        variance = np.diag(np.concatenate([law.cancelling**2, law.own**2]))
        if name == "cape-helper":
            known = [np.concatenate([e[s], np.zeros(S)]) for s in colluding]
        else:
            known = [np.concatenate([np.eye(S)[s], np.zeros(S)]) for s in colluding]
            known.append(np.concatenate([law.weight, np.zeros(S)]))  # B
        known += [np.concatenate([np.zeros(S), np.eye(S)[s]]) for s in colluding]
        read = message[honest]
        covariance = read @ variance @ read.T
        if known:
            K = np.array(known)
            across = read @ variance @ K.T
            covariance -= across @ np.linalg.pinv(K @ variance @ K.T, rcond=1e-12, hermitian=True) @ across.T
        scale = np.sqrt(np.diag(covariance))
        inverse = np.linalg.inv(covariance / np.outer(scale, scale)) / np.outer(scale, scale)
        for at, site in enumerate(honest):
            expected = (1.3 * law.factor[site]) ** 2 * inverse[at, at]
            assert mu_squared(law, 1.3, site, honest) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("sites", "colluders", "exact"),
    [(3, 0, 1.5), (4, 1, 1.866667), (5, 1, 1.875), (10, 3, 2.207792), (30, 9, 2.350230), (100, 33, 2.467859)],
)
def test_mu_of_published_cape_equals_check_values(sites: int, colluders: int, exact: float) -> None:
    law = Scheme("cape-published").law([SiteShape()] * sites, sites - colluders)
    worst = worst_mu(law, 1.0, Coalition(colluders))
    assert np.allclose(worst**2, exact, atol=5e-7)
    helper = Scheme("cape-helper").law([SiteShape()] * sites, sites - colluders)
    assert np.allclose(worst_mu(helper, 1.0, Coalition(colluders)), worst, rtol=1e-12)


@pytest.mark.parametrize("name", NOISY)
def test_dealer_mu_agrees_with_solver(name: str) -> None:
    """Closed form against a view in which every dealt e is known; only a helper deals, and only there it matters."""
    rng = np.random.default_rng(40 + NOISY.index(name))
    for _ in range(100):
        law, honest = random_law(rng, name)
        coalition = Coalition(law.sites - len(honest))
        dealer, ordinary = dealer_mu(law, 1.3, coalition), worst_mu(law, 1.3, coalition)
        if name != "cape-helper":
            assert np.array_equal(dealer, ordinary)
            continue
        assert np.all(dealer >= ordinary * (1 - 1e-12))
        for site in honest:
            found = view(law, honest, dealer=True).mu_squared(1.3, site)
            assert found == pytest.approx(dealer[site] ** 2, rel=1e-9)
            assert found == pytest.approx((1.3 * law.factor[site] / law.own[site]) ** 2, rel=1e-9)


@pytest.mark.parametrize(("sites", "reached"), [(4, 1.5222), (10, 2.3102), (30, 4.1638)])
def test_coordinator_epsilon_of_dealing_coordinator_equals_reference(sites: int, reached: float) -> None:
    release = PlannedRelease("vector_sum", 2.0, 0.5, 3, 1.0)
    roster = tuple(PlannedSite(f"s{s}") for s in range(sites))
    terms = Terms(
        unit="person",
        adjacency=Adjacency.REPLACE_ONE,
        epsilon=1.0,
        delta=1e-5,
        scheme=Scheme("cape-helper"),
        coalition=Coalition.default(sites),
        sites=roster,
    )
    plan = Plan.of(terms, "s", "mean", (release, release))
    assert plan.site_epsilon(0) == pytest.approx(1.0, abs=1e-9)
    assert plan.coordinator_epsilon(0) == pytest.approx(reached, abs=5e-4)
    other = replace(plan, scheme=Scheme("zero-sum"))
    assert np.array_equal(other.coordinator_mus(), other.site_mus())


def test_solver_with_very_large_cancelling_noise_is_exact() -> None:
    """Pseudo-inverting the conditional covariance returns 0 here; the truth is 0.25."""
    law = Scheme("zero-sum", ratio=1e8).law([SiteShape()] * 5, 4)
    assert view(law, [0, 1, 2, 3]).mu_squared(1.0, 0) == pytest.approx(0.25, rel=1e-10)


@pytest.mark.parametrize("name", NOISY)
def test_worst_mu_equals_worst_of_all_coalitions(name: str) -> None:
    rng = np.random.default_rng(100 + NOISY.index(name))
    for _ in range(25):
        law, honest = random_law(rng, name)
        away = law.sites - len(honest)
        found = worst_mu(law, 1.0, Coalition(away))
        for site in range(law.sites):
            others = [s for s in range(law.sites) if s != site]
            every = [
                mu_squared(law, 1.0, site, [s for s in range(law.sites) if s not in gone])
                for gone in combinations(others, away)
            ]
            assert found[site] ** 2 == pytest.approx(max(every), rel=1e-12)


def test_dropouts_count_as_colluders() -> None:
    law = Scheme("secure-sum").law([SiteShape()] * 6, 3)
    assert np.allclose(worst_mu(law, 1.0, Coalition(1, 2)), worst_mu(law, 1.0, Coalition(3)))
    assert worst_mu(law, 1.0, Coalition(1, 2))[0] ** 2 == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", NOISY)
def test_calibrate_reaches_target_from_safe_side(name: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        law, honest = random_law(rng, name)
        coalition = Coalition(law.sites - len(honest))
        for target in (1e-3, 0.7, 40.0):
            reached = worst_mu(calibrate(law, 2.5, coalition, target), 2.5, coalition)
            assert np.max(reached) <= target
            assert np.max(reached) == pytest.approx(target, rel=1e-12)


def test_mu_of_scaled_sites_is_scaled() -> None:
    shapes = [SiteShape(scale=1.0), SiteShape(scale=0.25), SiteShape(scale=0.5)]
    for name in ("local", "zero-sum", "pairwise", "secure-sum", "cape-published"):
        mus = worst_mu(Scheme(name).law(shapes, 2), 1.0, Coalition(1))
        assert np.allclose(mus / mus[0], [1.0, 0.25, 0.5])


def test_mu_squared_without_hiding_noise_is_infinite() -> None:
    shapes = [SiteShape()] * 3
    bare = Scheme("non-private").law(shapes, 2)
    assert math.isinf(worst_mu(bare, 1.0, Coalition(1))[0])
    assert math.isinf(view(bare, [0, 1]).mu_squared(1.0, 0))
    alone = replace(Scheme("zero-sum").law(shapes, 2), own=np.zeros(3))
    assert math.isinf(mu_squared(alone, 1.0, 0, [0, 1]))
    assert math.isinf(view(alone, [0, 1]).mu_squared(1.0, 0))
    with pytest.raises(BadParameter):
        calibrate(bare, 1.0, Coalition(1), 1.0)


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts", "named"),
    [
        (1, 0, 0, "1"),
        (3, 3, 0, "3"),
        (4, 2, 2, "4"),
    ],
)
def test_impossible_coalitions_are_refused(sites: int, colluders: int, dropouts: int, named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        Coalition(colluders, dropouts).honest(sites)
    with pytest.raises(BadParameter, match="colluders"):
        Coalition(-1)


def test_coalition_default_is_published_rule_and_at_least_one() -> None:
    assert [Coalition.default(S).colluders for S in (2, 3, 4, 5, 10, 100)] == [1, 1, 1, 1, 3, 33]


def test_unequal_streams_are_refused() -> None:
    law = NoiseLaw(NoiseMechanism.PAIRWISE, np.ones(2), np.ones(2), np.ones(2), np.array([1.0, 2.0]))
    with pytest.raises(BadParameter):
        mu_squared(law, 1.0, 0, [0, 1])
    dealt = NoiseLaw(NoiseMechanism.HELPER, np.ones(2), np.ones(2), np.ones(2), np.array([1.0, 2.0]))
    with pytest.raises(BadParameter):
        mu_squared(dealt, 1.0, 0, [0, 1])
