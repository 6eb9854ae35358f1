from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.schemes import SCHEMES, Combine, NoiseMechanism, Scheme, SiteShape, weighted_laws
from zerosum.kernel.view import Coalition, view, worst_mu


def marginal_noise(name: str, shapes: list[SiteShape]) -> tuple[Floats, float]:
    """Each message's own noise variance and the release's, from the matrices of the law."""
    law = Scheme(name, combine=Combine.WEIGHTED).law(shapes, len(shapes))
    seen = view(law, range(len(shapes)))
    covariance = (seen.read * seen.variance) @ seen.read.T
    return np.diag(covariance), float(law.weight @ covariance @ law.weight)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("cape-published", (None,) * 4),
        ("cape-published", (0.19, 0.22, 0.27, 0.32)),
        ("cape-helper", (0.156, 0.195, 0.235, 0.414)),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 0.9])
def test_scheme_published_solutions_for_unequal_sites_meet_constraints(
    name: str, weights: tuple[float | None, ...], scale: float
) -> None:
    """var(e_s) + var(g_s) = tau_s^2 at every site, and the weighted mean has the pooled variance 1/N^2."""
    units = [40, 50, 60, 70]
    shapes = [SiteShape(n, scale if n == 40 else 1.0, w) for n, w in zip(units, weights, strict=True)]
    messages, released = marginal_noise(name, shapes)
    asked = np.array([shape.scale for shape in shapes])
    assert np.allclose(messages, 1 / (np.array(units) * asked) ** 2, rtol=1e-9)
    assert released == pytest.approx(1.0)  # N times a mean whose noise variance is 1/N^2


@pytest.mark.parametrize("name", ["cape-published", "cape-helper"])
@pytest.mark.parametrize("honest", [1, 2, 3, 5])
def test_scheme_weighted_means_meet_papers_constraints_for_any_weights(name: str, honest: int) -> None:
    """Of messages at least tau_s^2, of the release the pooled variance, and a weighted sum of zero of what cancels."""
    rng = np.random.default_rng(honest)
    for S in (2, 4, 6, 10):
        if honest > S:
            continue
        units, asked = rng.integers(1, 300, S), rng.uniform(0.05, 1, S)
        shapes = [
            SiteShape(int(n), float(a), float(p))
            for n, a, p in zip(units, asked, rng.dirichlet(np.ones(S)), strict=True)
        ]
        law = weighted_laws(SCHEMES[name].mechanism, shapes, honest).solved
        seen = view(law, range(S))
        covariance = (seen.read * seen.variance) @ seen.read.T
        tau2 = 1 / (units * asked) ** 2
        assert np.all(np.diag(covariance) >= tau2 * (1 - 1e-9))
        assert np.min(np.diag(covariance) / tau2) == pytest.approx(1.0)  # no more cancelling noise than needed
        assert law.weight @ covariance @ law.weight == pytest.approx(1.0)
        assert np.sum((law.weight * law.own) ** 2) == pytest.approx(1.0)
        assert np.allclose(
            law.weight @ seen.read[:, : seen.read.shape[1] - S], 0, atol=1e-12 * float(np.max(law.weight))
        )


def test_scheme_division_of_own_noise_solves_the_linear_program() -> None:
    """Against scipy's solver over every set of honest sites."""
    rng = np.random.default_rng(3)
    for S in (2, 3, 4, 5, 6, 7):
        for honest in range(1, S + 1):
            units, p = rng.integers(20, 200, S), rng.dirichlet(np.ones(S) * 3)
            shapes = [SiteShape(int(n), weight=float(each)) for n, each in zip(units, p, strict=True)]
            law = weighted_laws(NoiseMechanism.HELPER, shapes, honest).solved
            moved = (law.weight * law.factor) ** 2
            sets = [(s, H) for H in combinations(range(S), honest) for s in H]
            rows = [[-1.0 if t in H else 0.0 for t in range(S)] for _, H in sets]
            best = linprog(np.ones(S), rows, [-moved[s] for s, _ in sets], bounds=(0, None))
            own = (law.weight * law.own) ** 2
            reached = max(moved[s] / np.sum(own[list(H)]) for s, H in sets) * np.sum(own)
            assert reached == pytest.approx(best.fun, rel=1e-7)


def test_scheme_weighted_means_keep_printed_solution_where_it_exists() -> None:
    """Their noise is that of 0.2."""
    shapes = [SiteShape(40, weight=0.156), SiteShape(50, weight=0.195), SiteShape(60, weight=0.235)]
    shapes.append(SiteShape(70, weight=0.414))
    laws = {name: Scheme(name, combine=Combine.WEIGHTED).law(shapes, 3) for name in ("cape-published", "cape-helper")}
    # Values of 0.2, to the bit.
    published, helper = laws["cape-published"], laws["cape-helper"]
    assert published.own.tolist() == [
        0.01456876456876457,
        0.011655011655011656,
        0.009671179883945842,
        0.005489679402722881,
    ]
    assert published.cancelling.tolist() == [
        0.020348337716913075,
        0.01627867017353046,
        0.013681360192126327,
        0.017013816143765556,
    ]
    assert helper.own.tolist() == [
        0.014613440729743526,
        0.01169075258379482,
        0.00982167397260765,
        0.005368531989691878,
    ]
    assert helper.cancelling.tolist() == [
        0.020284165007174268,
        0.016227332005739413,
        0.013465232940932706,
        math.inf,
    ]


def test_scheme_capepca_prints_no_solution_for_four_equal_sites_and_algorithm_1_is_used() -> None:
    """The printed e_S carries the noise of all others, (S - 1) var(e), which must stay below tau^2."""
    shapes = [SiteShape(8)] * 4
    laws = weighted_laws(NoiseMechanism.HELPER, shapes, 3)
    assert laws.printed is None
    symmetric = Scheme("cape-helper").law(shapes, 3)
    assert np.allclose(laws.solved.weight * laws.solved.own, symmetric.own)
    assert np.allclose(laws.solved.weight * laws.solved.cancelling, symmetric.cancelling)
    assert weighted_laws(NoiseMechanism.HELPER, [SiteShape(8)] * 2, 1).printed is not None


@pytest.mark.parametrize("small", [1e-3, 1e-9, 1e-15, 1e-40])
def test_scheme_weighted_means_of_one_dominant_site_have_finite_noise(small: float) -> None:
    """The difference that sets the cancelling noise is lost in rounding here."""
    shapes = [SiteShape(10**12, weight=1 - small), SiteShape(1, weight=small)]
    law = Scheme("cape-published", combine=Combine.WEIGHTED).law(shapes, 1)
    assert np.all(np.isfinite(law.own))
    assert np.all(law.cancelling >= 0)
    assert np.all(np.isfinite(worst_mu(law, 1.0, Coalition(1))))


def test_scheme_printed_solution_with_own_noise_everywhere_is_used_without_cancelling_noise() -> None:
    """Two sites have no cancelling noise, but every message has own noise, so that 0.2 used this solution."""
    shapes = [SiteShape(70, scale) for scale in (0.5, 1.0, 1.0, 0.5)]
    laws = weighted_laws(NoiseMechanism.BROADCAST, shapes, 2)
    assert laws.used is laws.printed
    assert np.all(laws.used.own > 0)
    assert np.min(laws.used.cancelling) == 0


def test_scheme_printed_solution_without_own_noise_at_most_sites_is_not_used() -> None:
    """Sites of equal size, of which the last asks for half the mu: the printed solution gives it all own noise."""
    shapes = [SiteShape(100)] * 3 + [SiteShape(100, 0.5)]
    laws = weighted_laws(NoiseMechanism.HELPER, shapes, 3)
    assert laws.printed is None
    assert np.all(laws.used.own > 0)
    assert math.isfinite(float(np.max(worst_mu(laws.used, 1.0, Coalition(1)))))


def test_capedjica_equality_of_messages_has_no_solution_for_a_small_weight() -> None:
    """var(e_s) >= X/(S (S - 1)) in weighted units, for X = sum of var(e_t): 0.29 where tau_s^2 is 0.16.

    The linear program has the y_s and the weighted variances of the draws as its unknowns.
    """
    S, k = 4, np.array([1.2, 1.2, 1.2, 0.4])
    t = k**2
    message = np.hstack([np.eye(S), (1 - 2 / S) * np.eye(S) + np.ones((S, S)) / S**2])
    pooled = np.concatenate([np.ones(S), np.zeros(S)])
    equal = linprog(np.zeros(2 * S), A_eq=np.vstack([message, pooled]), b_eq=[*t, 1.0])
    assert equal.status == 2  # infeasible
    least = linprog(np.zeros(2 * S), A_ub=-message, b_ub=-t, A_eq=pooled[None, :], b_eq=[1.0])
    assert least.status == 0
    shapes = [SiteShape(100, weight=float(each) / 4) for each in k]
    law = Scheme("cape-published", combine=Combine.WEIGHTED).law(shapes, 3)
    found = np.concatenate([(law.weight * law.own) ** 2, (law.weight * law.cancelling) ** 2])
    assert np.all(message @ found >= t * (1 - 1e-12))
    assert pooled @ found == pytest.approx(1.0)


def test_scheme_average_of_means_has_published_variance() -> None:
    """H(n) = N^2/S^3 sum of 1/n_s^2 (capeDJICA, remark 3); sums lose nothing."""
    units = np.array([10, 100, 1000])
    shapes = [SiteShape(int(n)) for n in units]
    means = Scheme("cape-published", combine=Combine.MEANS).law(shapes, 3)
    assert means.noise_std**2 == pytest.approx(float(np.sum(units)) ** 2 / 27 * float(np.sum(1 / units**2)))
    sums = Scheme("cape-published").law(shapes, 3)
    assert sums.noise_std == pytest.approx(1.0)


def test_scheme_bad_parameter_is_refused() -> None:
    with pytest.raises(BadParameter, match="'cape'"):
        Scheme("cape")
    with pytest.raises(BadParameter, match="ratio"):
        Scheme("zero-sum", ratio=math.inf)
    with pytest.raises(BadParameter, match="ratio"):
        Scheme("zero-sum", ratio=-1)
    with pytest.raises(BadParameter, match="means"):
        Scheme("local", combine=Combine.MEANS)
    with pytest.raises(BadParameter, match="weighted"):
        Scheme("cape-helper", combine=Combine.MEANS)
    with pytest.raises(BadParameter, match="units"):
        Scheme("cape-published", combine=Combine.MEANS).law([SiteShape()] * 3, 2)
    with pytest.raises(BadParameter, match="weights"):
        Scheme("cape-published", combine=Combine.WEIGHTED).law([SiteShape(3, weight=0.5), SiteShape(3)], 1)
    with pytest.raises(BadParameter, match="scale"):
        Scheme("local").law([SiteShape(scale=0.0), SiteShape()], 1)


@pytest.mark.parametrize("name", SCHEMES)
def test_scheme_of_every_name_has_law(name: str) -> None:
    law = Scheme(name).law([SiteShape(10)] * 4, 3)
    assert law.sites == 4
    assert (law.noise_std == 0) == (name == "non-private")
    assert law.scaled(2.0).noise_std == 2 * law.noise_std
    assert Scheme(name).as_record()["name"] == name
    assert law.mechanism in NoiseMechanism
