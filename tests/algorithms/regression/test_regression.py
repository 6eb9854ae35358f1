"""Regression: exact without noise, better with budget, never diverging, with intervals that cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Reference
from sklearn.linear_model import PoissonRegressor

from zerosum.algorithms import (
    Algorithm,
    LinearRegressionProgram,
    LogisticRegressionProgram,
    PoissonRegressionProgram,
    PolynomialLossProgram,
)
from zerosum.algorithms import build as make
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.regression.functional import logistic_table
from zerosum.audit import audit
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.papers.figures.trial import run_trial
from zerosum.study.planning import make_plan, resolve

Floats = NDArray[np.float64]

FEATURES = 4
LOWER, UPPER = np.array([-1.0, 0.0, 10.0, -5.0]), np.array([1.0, 4.0, 30.0, 5.0])
TRUTH = {
    "linear": np.array([0.8, -0.3, 0.02, 0.05, 1.0]),
    "logistic": np.array([1.0, -0.5, 0.05, 0.2, -0.5]),
    "poisson": np.array([0.5, -0.2, 0.02, 0.05, 0.3]),
}
RANGES = {"linear": (-3.0, 5.0), "logistic": (0.0, 1.0), "poisson": (0.0, 20.0)}
KINDS: dict[str, Any] = {
    "linear": LinearRegressionProgram,
    "logistic": LogisticRegressionProgram,
    "poisson": PoissonRegressionProgram,
}
COLUMNS = ("a", "b", "c", "d", "y")


def table(family: str, units: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    features = rng.uniform(LOWER, UPPER, (units, FEATURES))
    predictor = features @ TRUTH[family][:-1] + TRUTH[family][-1]
    if family == "linear":
        response = predictor + 0.1 * rng.uniform(-1, 1, units)
    elif family == "logistic":
        response = (rng.uniform(size=units) < expit(predictor)).astype(np.float64)
    else:
        response = np.minimum(rng.poisson(np.exp(predictor)), 20).astype(np.float64)
    return np.column_stack([features, response])


def algorithm(family: str, **more: Any) -> Any:
    low, high = RANGES[family]
    return KINDS[family](columns=COLUMNS, lower=np.append(LOWER, low), upper=np.append(UPPER, high), **more)


def reference(family: str, rows: Floats) -> Floats:
    features, response = rows[:, :-1], rows[:, -1]
    if family == "linear":
        design = np.column_stack([features, np.ones(len(rows))])
        return np.asarray(np.linalg.lstsq(design, response, rcond=None)[0], dtype=np.float64)
    model = (
        Reference(C=1e8, tol=1e-10, max_iter=5000)
        if family == "logistic"
        else PoissonRegressor(alpha=0, tol=1e-10, max_iter=5000)
    )
    scale = (UPPER - LOWER) / 2
    model.fit(features / scale, response)
    return np.append(np.ravel(model.coef_) / scale, model.intercept_)


def joined(estimate: Any) -> Floats:
    return np.append(estimate["coefficients"], estimate["intercept"])


def without_noise(rows: Floats) -> Callable[[Request], Release]:
    units = Units.from_rows(rows)

    def answer(request: Request) -> Release:
        return Release(request.statistic.total(units), 0.0, float(len(units)), ("a", "b"))

    return answer


class Noisy:
    """A program with the noise that a plan of the secure sum gives it."""

    def __init__(self, kind: Algorithm, units: int, epsilon: float, delta: float = 1e-5) -> None:
        sites = tuple(PlannedSite(f"s{s}", units // 4) for s in range(4))
        scheme, coalition = Scheme("secure-sum"), Coalition(1)
        terms = Terms(sites=sites, epsilon=epsilon, delta=delta, scheme=scheme, coalition=coalition)
        self.algorithm, self.units = resolve(kind, terms), units
        plan = make_plan(self.algorithm, terms, "test")
        self.noise = [plan.law(turn).noise_std for turn in range(len(plan.releases))]

    def run(self, rows: Floats, seed: int) -> Any:
        rng, turn, units = np.random.default_rng(seed), iter(self.noise), Units.from_rows(rows)

        def answer(request: Request) -> Release:
            total, std = request.statistic.total(units), next(turn)
            return Release(total + std * rng.normal(size=total.shape), std, float(self.units), ("a", "b"))

        return drive(self.algorithm.program(Adjacency.REPLACE_ONE), answer)[0]


def overdispersed(units: int = 12_000, features: int = 5) -> tuple[Floats, Floats]:
    """Counts of mean about 150 with 30 times the variance of a Poisson distribution, and their true slopes."""
    rng = np.random.default_rng(8)
    x, slopes = rng.uniform(-1, 1, (units, features)), np.array([0.8, -0.5, 0.3, 0.0, 0.4])
    counts = rng.poisson(rng.gamma(140 * np.exp(x @ slopes) / 29, 29.0))
    return np.column_stack([x, np.minimum(counts, 1500)]).astype(np.float64), slopes


def count_program(features: int = 5) -> PoissonRegressionProgram:
    columns = (*(f"x{at}" for at in range(features)), "y")
    ends = np.ones(features)
    return PoissonRegressionProgram(columns=columns, lower=np.append(-ends, 0), upper=np.append(ends, 1500))


def test_poisson_regression_of_large_overdispersed_counts_predicts_and_reports_dispersion() -> None:
    """A prior centred at 0 pulled the intercept of such counts to a rate of about 1 (explained deviance -9)."""
    rows, slopes = overdispersed()
    sites = {f"s{at}": part for at, part in enumerate(np.array_split(rows, 4))}
    estimate = run_trial(count_program(), sites, epsilon=2.0, colluders=1, seed=3).estimate
    rate = np.exp(rows[:, :5] @ np.asarray(estimate["coefficients"]) + np.asarray(estimate["intercept"]))
    assert 0.8 < rate.mean() / rows[:, -1].mean() < 1.25
    assert np.linalg.norm(np.asarray(estimate["coefficients"]) - slopes) < 0.3
    assert 15 < float(np.asarray(estimate["dispersion"])[0]) < 60


@pytest.mark.parametrize("standardise", ["dp", "none"])
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_regression_without_noise_equals_pooled_fit(family: str, standardise: str) -> None:
    rows = table(family, 3000)
    more: dict[str, Any] = {"standardise": standardise, "clip": 20.0}
    if family != "logistic":
        more["residual_clip"] = 100.0
    found, _asked = drive(algorithm(family, **more).program(Adjacency.REPLACE_ONE), without_noise(rows))
    within = 1e-6 if family == "linear" else 2e-3
    assert np.allclose(joined(found), reference(family, rows), atol=within, rtol=within)
    assert np.all(found["pooled_std"] == 0)
    assert np.all(found["identified"] == 1)


def test_linear_regression_by_gradient_rounds_equals_least_squares() -> None:
    rows = table("linear", 2000)
    kind = algorithm("linear", method="gradient", rounds=900, learning_rate=2.0, residual_clip=100.0, clip=3.0)
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(rows))
    assert {request.statistic.name for request in asked} == {"residual_gradient"}
    assert np.allclose(joined(found), reference("linear", rows), atol=1e-4)


def test_polynomial_loss_of_degree_four_is_minimised() -> None:
    rows = table("linear", 500)
    # (y - x.w)^2 + 0.5 (x.w)^4
    loss = [[0, 0, 1], [0, -2, 0], [1, 0, 0], [0, 0, 0], [0.5, 0, 0]]
    low, high = RANGES["linear"]
    kind = PolynomialLossProgram(
        columns=COLUMNS, lower=np.append(LOWER, low), upper=np.append(UPPER, high), table=loss, clip=10.0, largest=10.0
    )
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), without_noise(rows))
    assert len(asked) == 1
    design = np.column_stack([rows[:, :-1], np.ones(len(rows))])
    response = (rows[:, -1] - (low + high) / 2) / ((high - low) / 2)

    def pooled(w: Floats) -> float:
        eta = design @ w
        return float(np.mean((response - eta) ** 2 + 0.5 * eta**4))

    scale = np.append((UPPER - LOWER) / 2, 1.0)

    def scaled(v: Floats) -> float:
        return pooled(v / scale)

    best = minimize(scaled, np.zeros(5), tol=1e-10)
    assert pooled(joined(found)) <= best.fun + 1e-9
    assert float(found["loss"][0]) == pytest.approx(best.fun, abs=1e-6)


def test_polynomial_loss_with_noise_stays_within_ball() -> None:
    rows, (low, high) = table("linear", 400), RANGES["linear"]
    for loss in ([[0, 0, 1], [0, -2, 0], [1, 0, 0]], [[0, 0, 0], [0, -1, 0], [0.2, 0, 0], [0.1, 0, 0], [0, 0, 0.1]]):
        kind = PolynomialLossProgram(
            columns=COLUMNS, lower=np.append(LOWER, low), upper=np.append(UPPER, high), table=loss
        )
        noisy = Noisy(kind, 400, 0.05)
        for seed in range(20):
            found = noisy.run(rows, seed)
            assert np.max(np.abs(found["coefficients"] * (UPPER - LOWER) / 2)) < 10
            assert np.isfinite(found["loss"][0])


def test_logistic_table_is_taylor_expansion_or_closer_fit() -> None:
    assert logistic_table()[2, 0] == 0.125
    wide = logistic_table(reach=4.0)
    eta = np.linspace(-4, 4, 101)
    loss = np.log1p(np.exp(-eta))

    def apart(coefficients: Floats) -> float:
        fit = coefficients[0, 0] + coefficients[1, 1] * eta + coefficients[2, 0] * eta**2
        return float(np.mean((fit - loss) ** 2))

    assert apart(wide) < apart(logistic_table()) / 10


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_regression_requests_equal_planned_releases(family: str, adjacency: Adjacency) -> None:
    rows = table(family, 400)
    kind = algorithm(family).resolve(PublicFacts(noise=5.0, units=400))
    answer = without_noise(rows)

    def counted(request: Request) -> Release:
        told = answer(request)
        units = None if adjacency is Adjacency.ADD_REMOVE else told.units
        return Release(told.value, 1.0, units, told.participants)

    found, asked = drive(kind.program(adjacency), counted)
    planned = kind.releases(adjacency)
    assert len(asked) == len(planned)
    for request, release in zip(asked, planned, strict=True):
        statistic = request.statistic
        assert (statistic.name, statistic.size, request.share) == (release.statistic, release.size, release.share)
        assert statistic.sensitivity(adjacency) == release.sensitivity
    assert sum(release.share for release in planned) == pytest.approx(1.0)
    assert np.all(np.isfinite(joined(found)))


def test_regression_resolve_follows_public_facts_and_keeps_given_fields() -> None:
    wide = LinearRegressionProgram(columns=tuple(f"x{i}" for i in range(400)), lower=-np.ones(400), upper=np.ones(400))
    quiet, loud = PublicFacts(noise=1.0, units=1_000_000), PublicFacts(noise=50.0, units=1000)
    assert wide.resolve(quiet).method == "gradient"  # too many columns for their second moments in every round
    kind = algorithm("linear")
    chosen = kind.resolve(quiet)
    assert (chosen.method, chosen.standardise) == ("moment", "dp")
    assert chosen == kind.resolve(quiet) == chosen.resolve(loud)
    assert (kind.resolve(loud).method, kind.resolve(loud).standardise) == ("moment", "none")
    assert kind.resolve(PublicFacts(noise=5000.0, units=1000)).method == "gradient"
    assert algorithm("linear", scale=np.ones(FEATURES)).resolve(quiet).standardise == "none"  # declared, not bought


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_regression_errors_shrink_with_epsilon(family: str) -> None:
    rows = table(family, 2000)
    best, scale = reference(family, rows), np.append((UPPER - LOWER) / 2, 3.0)
    errors = []
    for epsilon in (0.3, 3.0, 30.0):
        noisy = Noisy(algorithm(family), 2000, epsilon)
        runs = [(joined(noisy.run(rows, seed)) - best) * scale for seed in range(6)]
        errors.append(float(np.sqrt(np.mean(np.square(runs)))))
    assert errors[0] > 2 * errors[1] > 2.5 * errors[2]  # clips widen as noise falls


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_regression_at_tiny_budget_stays_finite_and_unidentified(family: str) -> None:
    rows, scale = table(family, 400), np.append((UPPER - LOWER) / 2, 1.0)
    noisy = Noisy(algorithm(family), 400, 0.05)
    for seed in range(50):
        found = noisy.run(rows, seed)
        predictors = rows[:, :-1] @ found["coefficients"] + found["intercept"]
        assert np.all(np.isfinite(found["pooled_interval_95"]))
        assert np.max(np.abs(found["coefficients"] * scale[:-1])) < (16 if family == "linear" else 30)
        assert np.all(np.isfinite(predictors))
        assert np.all(found["identified"] == 0)  # and it says so


def test_logistic_regression_of_heavy_tails_is_not_biased_by_its_clip() -> None:
    """Long rows have less weight and are not clipped: a clip of features moved these slopes by a third."""
    rng = np.random.default_rng(3)
    slopes = np.array([1.0, -0.8, 0.5])
    x = np.clip(rng.standard_t(2.5, size=(40_000, 3)), -30, 30)
    y = (rng.uniform(size=len(x)) < expit(x @ slopes)).astype(np.float64)
    ends = np.full(3, 30.0)
    program = LogisticRegressionProgram(
        columns=("a", "b", "c", "y"), lower=np.append(-ends, 0), upper=np.append(ends, 1), standardise="dp", room=1.0
    )
    found = drive(program.program(Adjacency.REPLACE_ONE), without_noise(np.column_stack([x, y])))[0]
    # five standard errors of the weighted fit
    assert np.max(np.abs(joined(found)[:-1] - slopes)) < 0.15


def test_logistic_regression_goal_decides_method_where_budget_is_small() -> None:
    facts = PublicFacts(noise=20.0, units=3000)
    chosen = {goal: algorithm("logistic", goal=goal).resolve(facts) for goal in ("auto", "predict", "inference")}
    assert {goal: program.method for goal, program in chosen.items()} == {
        "auto": "newton",
        "predict": "polynomial",
        "inference": "newton",
    }
    assert algorithm("logistic", goal="inference").resolve(PublicFacts(5000.0, 1000)).method == "newton"
    assert "goal predict" in chosen["predict"].describe


def test_poisson_regression_negative_binomial_finds_shape_and_slopes() -> None:
    rng = np.random.default_rng(5)
    x, slopes = rng.uniform(-1, 1, (20_000, 5)), np.array([0.8, -0.5, 0.3, 0.0, 0.4])
    counts = rng.poisson(20 * np.exp(x @ slopes) * rng.gamma(2.0, 0.5, len(x)))  # variance m + m^2/2
    rows = np.column_stack([x, np.minimum(counts, 1500)]).astype(np.float64)
    program = count_program().model_copy(update={"law": "negative-binomial", "tails": 4.0})
    found = drive(program.program(Adjacency.REPLACE_ONE), without_noise(rows))[0]
    assert float(found["shape"][0]) == pytest.approx(0.5, rel=0.25)
    assert np.max(np.abs(found["coefficients"] - slopes)) < 0.06


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_regression_pooled_and_population_intervals_cover(family: str) -> None:
    units, pooled, population = 4000, [], []
    noisy = Noisy(algorithm(family), units, 4.0)
    for seed in range(60):
        rows = table(family, units, 100 + seed)
        found, best = noisy.run(rows, seed), reference(family, rows) if family == "linear" else None
        low, high = found["population_interval_90"].T
        population.append((low <= TRUTH[family]) & (TRUTH[family] <= high))
        if best is not None:
            low, high = found["pooled_interval_90"].T
            pooled.append((low <= best) & (best <= high))
    # 300 intervals, not independent: three standard errors of a fifth as many
    slack = 3 * math.sqrt(0.09 / 60)
    assert np.mean(population) > 0.9 - slack
    assert not pooled or np.mean(pooled) > 0.9 - slack


@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
def test_regression_over_sites_gives_coefficients_and_intervals(family: str) -> None:
    rows = table(family, 1200)
    found = run_trial(
        algorithm(family), {f"s{s}": rows[s::3] for s in range(3)}, epsilon=8.0, colluders=1, unit="record", seed=1
    ).estimate
    assert np.asarray(found["coefficients"]).shape == (FEATURES,)
    assert np.asarray(found["population_interval_95"]).shape == (FEATURES + 1, 2)
    assert np.all(np.asarray(found["population_std"]) >= np.asarray(found["pooled_std"]) * (1 - 1e-9))


def test_regression_person_with_many_rows_has_weight_one() -> None:
    rows = table("linear", 300)
    twice = Units.from_list([np.repeat(row[None, :], 1 + i % 3, axis=0) for i, row in enumerate(rows)])
    kind = algorithm("linear", residual_clip=100.0, clip=20.0)

    def answer(request: Request) -> Release:
        return Release(request.statistic.total(twice), 0.0, 300.0, ("a", "b"))

    found, _asked = drive(kind.program(Adjacency.REPLACE_ONE), answer)
    assert np.allclose(joined(found), reference("linear", rows), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson", "polynomial"])
def test_regression_audit_does_not_exceed_claim(family: str) -> None:
    if family == "polynomial":
        low, high = np.append(LOWER, -3.0), np.append(UPPER, 5.0)
        kind: Any = PolynomialLossProgram(
            columns=COLUMNS, lower=low, upper=high, table=[[0, 0, 1], [0, -2, 0], [1, 0, 0]]
        )
    else:
        kind = algorithm(family, **({"rounds": 3} if family == "linear" else {}))
    assert audit(Scheme("secure-sum"), kind, samples=400).holds


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"lower": None, "upper": None, "clip": 1.0}, "upper"),
        ({"center": np.zeros(2)}, "center"),
        ({"scale": np.zeros(4)}, "scale"),
    ],
)
def test_regression_bad_parameter_is_refused(more: dict[str, Any], named: str) -> None:
    given = {"columns": COLUMNS, "lower": np.append(LOWER, 0), "upper": np.append(UPPER, 1)} | more
    with pytest.raises(BadParameter, match=named):
        make("logistic-regression", given)
    with pytest.raises(BadParameter, match="count"):
        make("poisson-regression", {"columns": ("a", "y"), "lower": [0, 1], "upper": [1, 5]})
