"""Offsets, weights and units held out: the weighted fit without noise, intervals that cover, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from zerosum.algorithms import (
    LinearRegressionProgram,
    LogisticRegressionProgram,
    PoissonRegressionProgram,
    PolynomialLossProgram,
    build,
)
from zerosum.algorithms.program import PublicFacts
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]

KINDS: dict[str, Any] = {
    "linear": LinearRegressionProgram,
    "logistic": LogisticRegressionProgram,
    "poisson": PoissonRegressionProgram,
}
TRUE = np.array([0.5, -0.3, 0.4])
RANGES = {"linear": (-2.0, 8.0), "logistic": (0.0, 1.0), "poisson": (0.0, 40.0)}
OFFSET = {"linear": (0.0, 4.0), "logistic": (-1.0, 2.0), "poisson": (-2.0, 2.0)}
LOWER, UPPER = [-1.0, 0.0], [1.0, 3.0]


def table(family: str, units: int, seed: int = 0, weights: str = "uniform") -> Floats:
    """Two features, an offset, a weight in 0 to 2, a draw, the response."""
    rng = np.random.default_rng(seed)
    features, offset = rng.uniform(LOWER, UPPER, (units, 2)), rng.uniform(*OFFSET[family], units)
    weight = rng.uniform(0, 2, units) if weights == "uniform" else 2.0 * (rng.random(units) < 0.4)
    predictor = features @ TRUE[:2] + TRUE[2] + offset
    if family == "linear":
        response = predictor + rng.normal(0, 0.3, units)
    elif family == "logistic":
        response = (rng.random(units) < expit(predictor)).astype(float)
    else:
        response = np.minimum(rng.poisson(np.exp(predictor)), 40).astype(float)
    return np.column_stack([features, offset, weight, rng.random(units), response])


def algorithm(family: str, roles: tuple[str, ...] = ("offset", "weight"), **more: Any) -> Any:
    ends = {"offset": OFFSET[family], "weight": (0.0, 2.0), "draw": (0.0, 1.0)}
    ranges = [*zip(LOWER, UPPER, strict=True), *(ends[role] for role in roles), RANGES[family]]
    lower, upper = np.array(ranges).T
    named = {role: role for role in roles}
    return KINDS[family](columns=("a", "b", *roles, "y"), lower=lower, upper=upper, **named, **more)


def part(rows: Floats, *roles: str) -> Floats:
    at = {"offset": 2, "weight": 3, "draw": 4}
    return rows[:, [0, 1, *(at[role] for role in roles), 5]]


def reference(family: str, rows: Floats, counts: Floats, *, intercept: bool = True) -> Floats:
    """The maximum of the weighted likelihood."""
    design = np.column_stack([rows[:, :2], np.full(len(rows), float(intercept))])
    offset, y = rows[:, 2], rows[:, -1]

    def lost(w: Floats) -> tuple[float, Floats]:
        eta = design @ w + offset
        if family == "linear":
            value, slope = (y - eta) ** 2 / 2, eta - y
        elif family == "logistic":
            value, slope = np.logaddexp(0, eta) - y * eta, expit(eta) - y
        else:
            value, slope = np.exp(eta) - y * eta, np.exp(eta) - y
        return float(np.mean(counts * value)), design.T @ (counts * slope) / len(y)

    return np.asarray(minimize(lost, np.zeros(3), jac=True, tol=1e-12).x)


def without_noise(rows: Floats) -> Any:
    units = Units.from_rows(rows)

    def answer(request: Request) -> Release:
        return Release(request.statistic.total(units), 0.0, float(len(units)), ("a", "b"))

    return answer


def joined(found: Any) -> Floats:
    return np.append(found["coefficients"], found["intercept"])


@pytest.mark.parametrize("standardise", ["dp", "none"])
@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_without_noise_equals_pooled_fit_with_offset(family: str, standardise: str) -> None:
    rows = table(family, 3000)
    # Newton's method with clipped rates needs more than three rounds to be exact.
    more: dict[str, Any] = {} if family == "linear" else {"rounds": 8}
    more |= {} if family == "logistic" else {"residual_clip": 100.0}
    kind = algorithm(family, standardise=standardise, clip=20.0, **more)
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(part(rows, "offset", "weight")))
    assert "polynomial_coefficients" not in {request.statistic.name for request in asked}
    best = reference(family, rows, rows[:, 3] / 2)
    assert np.allclose(joined(found), best, atol=1e-6 if family == "linear" else 2e-3)
    assert found["coefficients"].axes[0].labels == ("a", "b")


@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_without_intercept_uses_offset_unchanged(family: str) -> None:
    """Ranges about zero, so that rows enter as they are."""
    rows = table(family, 3000)
    top = 0.0 if family == "poisson" else -RANGES[family][1]
    ends = {
        "lower": [-3.0, -3.0, *[OFFSET[family][0], 0.0], top],
        "upper": [3.0, 3.0, OFFSET[family][1], 2.0, -top or 40],
    }
    # Newton's method with clipped rates needs more than three rounds to be exact.
    more: dict[str, Any] = {} if family == "linear" else {"rounds": 8}
    more |= {} if family == "logistic" else {"residual_clip": 100.0}
    kind = algorithm(family, clip=20.0, intercept=False, standardise="none", **more).model_copy(
        update={name: np.array(value) for name, value in ends.items()}
    )
    found, _ = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(part(rows, "offset", "weight")))
    best = reference(family, rows, rows[:, 3] / 2, intercept=False)
    assert np.allclose(joined(found), best, atol=1e-6 if family == "linear" else 5e-3)


@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_held_out_units_do_not_move_fit(family: str) -> None:
    rows = part(table(family, 3000), "offset", "draw")
    kind = algorithm(family, ("offset", "draw"), hold_out=0.25, evaluate_share=0.1, clip=20.0)
    kind = kind.resolve(PublicFacts(noise=1.0, units=3000))
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(rows))
    held = rows[:, 3] < 0.25
    changed = rows.copy()
    changed[held, :2] = 0.3
    changed[held, -1] = 1.0
    fitted = [request for request in asked if request.statistic.name not in ("column_moments", "fit_histogram")]
    for request in fitted:
        one, other = (request.statistic.total(Units.from_rows(each)) for each in (rows, changed))
        assert np.array_equal(one, other)
    last = asked[-1].statistic
    assert np.sum(last.total(Units.from_rows(rows))) == pytest.approx(np.sum(held))
    assert 0 <= float(found["held_out_clipped_share"]) <= 1
    assert "clipped_share" not in found


def test_weighted_regression_held_out_fit_equals_fit_of_held_out_rows() -> None:
    rows = table("logistic", 6000, 2)
    roles = ("offset", "draw")
    kind = algorithm("logistic", roles, hold_out=0.3, evaluate_share=0.1).resolve(PublicFacts(noise=1.0, units=6000))
    found, _ = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(part(rows, *roles)))
    held = rows[rows[:, 4] < 0.3]
    score = held[:, :2] @ np.asarray(found["coefficients"]) + float(found["intercept"]) + held[:, 2]
    assert float(found["held_out_auc"]) == pytest.approx(roc_auc_score(held[:, -1], score), abs=0.01)
    deviance = 2 * np.mean(np.logaddexp(0, score) - held[:, -1] * score)
    assert float(found["held_out_deviance"]) == pytest.approx(deviance, abs=0.01)
    rows = table("linear", 6000, 3)
    kind = algorithm("linear", roles, hold_out=0.3, evaluate_share=0.1, standardise="dp")
    kind = kind.resolve(PublicFacts(noise=1.0, units=6000))
    found, _ = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(part(rows, *roles)))
    assert float(found["held_out_residual_std"]) == pytest.approx(0.3, rel=0.1)
    assert float(found["held_out_r_squared"]) == pytest.approx(1 - 0.09 / np.var(rows[:, -1]), abs=0.02)


@pytest.mark.parametrize("family", list(KINDS))
@pytest.mark.parametrize("adjacency", Adjacency)
def test_weighted_regression_requests_equal_planned_releases(family: str, adjacency: Adjacency) -> None:
    roles = ("offset", "weight", "draw")
    kind = algorithm(family, roles, hold_out=0.2, evaluate_share=0.1).resolve(PublicFacts(noise=5.0, units=400))
    answer = without_noise(part(table(family, 400), *roles))

    def counted(request: Request) -> Release:
        told = answer(request)
        return Release(told.value, 1.0, None if adjacency is Adjacency.ADD_REMOVE else told.units, told.participants)

    found, asked = drive(kind.program(adjacency), counted)
    planned = kind.releases(adjacency)
    assert len(asked) == len(planned)
    for request, release in zip(asked, planned, strict=True):
        statistic = request.statistic
        assert (statistic.name, statistic.size, request.share) == (release.statistic, release.size, release.share)
        assert statistic.sensitivity(adjacency) == release.sensitivity
    assert sum(release.share for release in planned) == pytest.approx(1.0)
    assert np.all(np.isfinite(joined(found)))


def covered(family: str, weights: str, runs: int) -> tuple[float, float]:
    """How many 90 % intervals hold what the pooled data would give, and the truth."""
    roles = ("offset", "weight")
    pooled: list[Any] = []
    population: list[Any] = []
    rehearsal = Rehearsal(algorithm(family, roles), 4000, 4, epsilon=6.0, delta=1e-5)
    for seed in range(runs):
        rows = table(family, 4000, 100 + seed, weights)
        found = rehearsal.run(Units.from_rows(part(rows, *roles)), seed)
        best = reference(family, rows, rows[:, 3] / 2)
        for target, kind, seen in ((best, "pooled", pooled), (TRUE, "population", population)):
            low, high = np.asarray(found[f"{kind}_interval_90"]).T
            seen.append((low <= target) & (target <= high))
    return float(np.mean(pooled)), float(np.mean(population))


@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_intervals_cover(family: str) -> None:
    pooled, population = covered(family, "some", 25)
    assert pooled > 0.78  # 75 intervals, not independent
    assert population > 0.78


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["some", "uniform"])
@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_intervals_cover_over_many_runs(family: str, weights: str) -> None:
    pooled, population = covered(family, weights, 200)
    print(f"{family}, {weights}: pooled {pooled:.3f}, population {population:.3f}")
    assert pooled > 0.86
    assert population > 0.86


@pytest.mark.slow
@pytest.mark.parametrize("family", list(KINDS))
def test_weighted_regression_audit_does_not_exceed_claim(family: str) -> None:
    more: dict[str, Any] = {"hold_out": 0.3, "evaluate_share": 0.2, "rounds": 3}
    kind = algorithm(family, ("offset", "weight", "draw"), **more)
    assert audit(Scheme("secure-sum"), kind, samples=400).holds


def test_polynomial_loss_with_weights_equals_weighted_least_squares() -> None:
    rows = table("linear", 500)
    rows[:, -1] -= rows[:, 2]
    ends = {"lower": [*LOWER, 0, -6], "upper": [*UPPER, 2, 6]}
    squared = [[0, 0, 1], [0, -2, 0], [1, 0, 0]]
    kind = PolynomialLossProgram(columns=("a", "b", "w", "y"), weight="w", table=squared, clip=20.0, **ends)
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(part(rows, "weight")))
    assert len(asked) == 1
    design, root = np.column_stack([rows[:, :2], np.ones(500)]), np.sqrt(rows[:, 3])
    best = np.linalg.lstsq(design * root[:, None], rows[:, -1] / 6 * root, rcond=None)[0]
    assert np.allclose(joined(found), best, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"offset": "a"}, "offset"),
        ({"weight": "w", "lower": [0, 0.5, 0]}, "weight"),
        ({"draw": "w", "hold_out": 0.2}, "hold_out"),
        ({"draw": "w", "evaluate_share": 0.2}, "hold_out"),
        ({"draw": "w", "hold_out": 0.2, "evaluate_share": 0.2, "upper": [1, 3, 1]}, "draw"),
        ({"offset": "w", "upper": [1, 1e6, 1]}, "10000"),
        ({"offset": "w", "method": "polynomial"}, "'polynomial'"),
    ],
)
def test_regression_bad_role_is_refused(more: dict[str, Any], named: str) -> None:
    given = {"columns": ("a", "w", "y"), "lower": [0, 0, 0], "upper": [1, 1, 1]} | more
    with pytest.raises(BadParameter, match=named):
        build("logistic-regression", given)


def test_polynomial_loss_with_offset_is_refused() -> None:
    given = {"columns": ("a", "o", "y"), "lower": [0, 0, 0], "upper": [1, 1, 1], "table": [[0], [1], [1]]}
    with pytest.raises(BadParameter, match="offset"):
        build("polynomial-loss", given | {"offset": "o"})
