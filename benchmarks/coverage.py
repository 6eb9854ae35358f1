"""Coverage of the intervals of regressions, by kind of data: average and worst coefficient, width, predictions.

    python benchmarks/coverage.py [--family linear] [--kinds normal collinear] [--runs 200] [--epsilon 0.5 1 3 10]

Eight unequal sites, 2 colluders, secure sum, delta 1e-5, every setting left to the planner. Programs run with the noise
of their plan, but without sites. A kind of data is a population: made up, or a public table that ships with
scikit-learn or statsmodels, from which every run draws people with replacement. The pooled target is the fit without
privacy on the people of the run. The population target is that fit on the whole table, or on 400 000 made-up people.

Printed for each kind and epsilon:

- coverage of 90 % intervals, average over the coefficients and worst coefficient, for both targets;
- the same of the coefficients that the program calls identified, over the runs where it does (the worst of those that
  are identified in at least a quarter of the runs), and the share of identified ones;
- the median width of the pooled intervals over that of intervals from the rms error (1 is ideal, larger is too wide);
- jump: the 95 % over the 5 % quantile over runs of the stated pooled standard error, largest coefficient;
- error: rms over runs of the error of the pooled slopes, in standard deviations of the linear predictor;
- the share of variance (or deviance) explained: mean, standard deviation, smallest, and without privacy.

Kinds whose names begin with "new-" are those of `fresh_kinds`, on which no constant was chosen.
A family adds its kinds and its fit without privacy to `FAMILIES`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import Pool
from typing import Any

import numpy as np

import fresh_kinds
from zerosum.algorithms import LinearRegressionProgram, LogisticRegressionProgram, PoissonRegressionProgram
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan, resolve
from zerosum.study.rehearsal import PlanSimulation

SITES = (0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.06, 0.04)  # shares of eight unequal sites
COLLUDERS = 2
DELTA = 1e-5
MANY = 400_000  # made-up people that stand for the population

Sample = tuple[Floats, Floats]  # features (n, p) and responses (n,)


@dataclass(frozen=True)
class Kind:
    """A population: people of one run, and a function that draws any number of people."""

    people: int
    draw: Callable[[np.random.Generator, int], Sample]


@dataclass(frozen=True)
class Family:
    """A model: its program, the fit without privacy, and the share explained by coefficients (intercept last).

    `fit` maps (features, responses) to coefficients (p + 1,). `explained` maps (features, responses, coefficients) to a
    number that is 0 for the best constant prediction and at most 1. `ends` maps responses to their public range.
    """

    program: Callable[..., Any]
    fit: Callable[[Floats, Floats], Floats]
    explained: Callable[[Floats, Floats, Floats], float]
    ends: Callable[[Floats], tuple[float, float]]
    kinds: Mapping[str, Kind]


# ---- linear ----------------------------------------------------------------------------------------------------------


def least_squares(x: Floats, y: Floats) -> Floats:
    """Slopes and intercept (p + 1,) of the pooled data without privacy."""
    return np.asarray(np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), y, rcond=None)[0])


def r_squared(x: Floats, y: Floats, found: Floats) -> float:
    """Share of the variance of the responses that coefficients explain."""
    return 1 - float(np.mean((y - x @ found[:-1] - found[-1]) ** 2) / np.var(y))


def _mixed(rng: np.random.Generator, people: int, columns: int, seed: int = 7) -> Floats:
    """Correlated normal features; every third one is binary."""
    mixing = np.eye(columns) + 0.3 * np.random.default_rng(seed).normal(size=(columns, columns))
    x = rng.normal(size=(people, columns)) @ mixing.T
    x[:, ::3] = x[:, ::3] > 0.7
    return np.asarray(x)


def _slopes(columns: int, seed: int = 3) -> Floats:
    return np.asarray(np.random.default_rng(seed).normal(size=columns))


def normal(rng: np.random.Generator, people: int) -> Sample:
    """Correlated features, normal errors; half of the variance is explained."""
    x = _mixed(rng, people, 8)
    eta = x @ _slopes(8)
    return x, eta + 3.0 * rng.normal(size=people)


def collinear(rng: np.random.Generator, people: int) -> Sample:
    """As house prices: two features with r = -.92, two with r = .97, a skewed one, and skewed errors."""
    x = _mixed(rng, people, 9)
    x[:, 1] = -0.92 * x[:, 2] + 0.39 * rng.normal(size=people)
    x[:, 5] = np.exp(0.5 * x[:, 4] + 0.12 * rng.normal(size=people))
    x[:, 4] = np.exp(0.5 * x[:, 4])
    eta = x @ np.array([0.3, -1.0, -0.9, 0.2, 0.5, -0.3, 0.1, 0.4, 0.3])
    return x, eta + rng.gamma(1.5, 0.6, size=people)


def spread(rng: np.random.Generator, people: int) -> Sample:
    """Errors are symmetric; their spread grows sixfold with two features."""
    x = _mixed(rng, people, 7)
    return x, x @ _slopes(7) + np.exp(0.6 * x[:, 1] + 0.5 * x[:, 3]) * rng.normal(size=people)


def hourly(rng: np.random.Generator, people: int) -> Sample:
    """The logarithm of 1 + n for counts by hour: spread and skewness of the errors change with the hour."""
    hour = rng.integers(0, 24, people)
    day, warm, damp = rng.random(people) < 2 / 7, rng.normal(size=people), rng.normal(size=people)
    angle = 2 * np.pi * hour / 24
    rate = np.exp(2.5 - 1.6 * np.cos(angle) - 0.8 * np.sin(2 * angle) + 0.4 * warm - 0.2 * damp - 0.3 * day)
    n = rng.poisson(rate * rng.gamma(3, 1 / 3, people))
    x = np.column_stack(
        [np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle), day, warm, 0.5 * warm + damp]
    )
    return x, np.log1p(n)


def heavy(rng: np.random.Generator, people: int) -> Sample:
    """Errors of Student's t with 3 degrees of freedom."""
    x = _mixed(rng, people, 6)
    return x, x @ _slopes(6) + 2.0 * rng.standard_t(3, people)


def skewed(rng: np.random.Generator, people: int) -> Sample:
    """Log-normal features, log-normal errors that grow with the prediction."""
    x = np.exp(0.7 * _mixed(rng, people, 6))
    eta = x @ np.array([0.5, 0.4, -0.2, 0.3, 0.2, 0.1])
    return x, eta * np.exp(0.5 * rng.normal(size=people))


def rare(rng: np.random.Generator, people: int) -> Sample:
    """Eight binary features, of 1 to 30 % of people, and a number."""
    share = np.array([0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3])
    x = np.column_stack([rng.random((people, 8)) < share, rng.normal(size=people)]).astype(np.float64)
    return x, x @ _slopes(9) + rng.normal(size=people) * (1 + x[:, 1] + x[:, 4])


def curved(rng: np.random.Generator, people: int) -> Sample:
    """The mean is no linear function: squares, a threshold and a product."""
    x = _mixed(rng, people, 6)
    eta = x @ _slopes(6) + 0.6 * x[:, 1] ** 2 + 1.5 * (x[:, 2] > 1) + 0.7 * x[:, 4] * x[:, 5]
    return x, eta + rng.normal(size=people)


def levels(rng: np.random.Generator, people: int) -> Sample:
    """Three columns of 4 to 6 unequal levels, coded as 0 and 1, and two numbers."""
    parts = []
    for count in (4, 5, 6):
        law = 0.6 ** np.arange(count)
        at = rng.choice(count, size=people, p=law / law.sum())
        parts.append((at[:, None] == np.arange(1, count)).astype(np.float64))
    x = np.column_stack([*parts, rng.normal(size=(people, 2))])
    return x, x @ _slopes(x.shape[1]) + rng.normal(size=people)


def steps(rng: np.random.Generator, people: int) -> Sample:
    """A response in whole numbers from 0 to 10, with a third of the people at 0."""
    x = _mixed(rng, people, 6)
    latent = 1.5 + 0.8 * x @ _slopes(6) + 2.5 * rng.normal(size=people)
    return x, np.clip(np.round(latent), 0, 10)


def small(rng: np.random.Generator, people: int) -> Sample:
    """Few people, ten features."""
    x = _mixed(rng, people, 10)
    eta = x @ _slopes(10)
    return x, eta + 2.0 * rng.normal(size=people)


def _drawn(table: Callable[[], Sample]) -> Callable[[np.random.Generator, int], Sample]:
    """A population that is a table: people are drawn with replacement; `MANY` stands for all of it."""
    load = lru_cache(maxsize=1)(table)

    def draw(rng: np.random.Generator, people: int) -> Sample:
        x, y = load()
        if people == MANY:
            return x, y
        chosen = rng.integers(0, len(y), people)
        return x[chosen], y[chosen]

    return draw


def _diabetes() -> Sample:
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)


def _cancer() -> Sample:
    """The area of a nucleus from ten of its other measurements, several of them nearly collinear."""
    from sklearn.datasets import load_breast_cancer

    x = np.asarray(load_breast_cancer().data, dtype=np.float64)
    return x[:, [1, 2, 4, 5, 6, 7, 8, 9, 14, 24]], x[:, 3]


LINEAR: dict[str, Kind] = {
    "normal": Kind(10_000, normal),
    "collinear": Kind(10_000, collinear),
    "spread": Kind(10_000, spread),
    "hourly": Kind(10_000, hourly),
    "heavy": Kind(10_000, heavy),
    "skewed": Kind(10_000, skewed),
    "rare": Kind(10_000, rare),
    "curved": Kind(10_000, curved),
    "levels": Kind(10_000, levels),
    "steps": Kind(10_000, steps),
    "small": Kind(300, small),
    "diabetes": Kind(442, _drawn(_diabetes)),
    "cancer": Kind(5_000, _drawn(_cancer)),
}


def _statsmodels(name: str, response: str, leave: Sequence[str] = ()) -> Callable[[], Sample]:
    """A table of statsmodels, without the columns `leave`."""

    def load() -> Sample:
        datasets = import_module("statsmodels.datasets")  # optional, without types
        frame = getattr(datasets, name).load_pandas().data.drop(columns=list(leave)).dropna().astype(np.float64)
        return frame.drop(columns=response).to_numpy(), frame[response].to_numpy()

    return load


if find_spec("statsmodels") is not None:
    LINEAR |= {
        "affairs": Kind(6_366, _drawn(_statsmodels("fair", "rate_marriage"))),
        "visits": Kind(20_190, _drawn(_statsmodels("randhie", "disea"))),
    }


def _interval(y: Floats) -> tuple[float, float]:
    """A public range that nearly all responses keep."""
    low, high = np.quantile(y, (0.0002, 0.9998))
    return float(np.floor(low)), float(np.ceil(high))


# ---- logistic and Poisson --------------------------------------------------------------------------------------------


def maximum_likelihood(x: Floats, y: Floats, *, counts: bool) -> Floats:
    """Slopes and intercept (p + 1,) by damped Newton steps on standardised columns."""
    center, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    rows = np.column_stack([(x - center) / scale, np.ones(len(x))])
    mean = float(np.mean(y))
    found = np.zeros(rows.shape[1])
    found[-1] = np.log(mean) if counts else np.log(mean / (1 - mean))
    for _ in range(40):
        eta = np.clip(rows @ found, -30, 30)
        rate = np.exp(eta) if counts else 1 / (1 + np.exp(-eta))
        weight = rate if counts else rate * (1 - rate)
        hessian = rows.T @ (weight[:, None] * rows) + 1e-9 * np.eye(rows.shape[1])
        step = np.linalg.solve(hessian, rows.T @ (y - rate))
        # a step changes no predictor by more than 3, so that no rate overflows
        found = found + step * min(1.0, 3 / float(np.max(np.abs(rows @ step))))
        if np.max(np.abs(step)) < 1e-8:
            break
    slopes = found[:-1] / scale
    return np.append(slopes, found[-1] - slopes @ center)


def _logistic_fit(x: Floats, y: Floats) -> Floats:
    return maximum_likelihood(x, y, counts=False)


def _count_fit(x: Floats, y: Floats) -> Floats:
    return maximum_likelihood(x, y, counts=True)


def _logistic_deviance(x: Floats, y: Floats, found: Floats) -> float:
    """Share of the deviance of classes that coefficients explain."""
    eta, mean = np.clip(x @ found[:-1] + found[-1], -30, 30), float(np.mean(y))
    own = float(np.mean(np.log1p(np.exp(eta)) - y * eta))
    return float(1 - own / -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean)))


def _count_deviance(x: Floats, y: Floats, found: Floats) -> float:
    """Share of the Poisson deviance that coefficients explain; predictions are at most the largest count."""

    def deviance(rate: Floats) -> float:
        positive = np.where(y > 0, y, 1.0)
        return float(np.sum(np.where(y > 0, y * np.log(positive / rate), 0.0) - (y - rate)))

    rate = np.minimum(np.exp(np.clip(x @ found[:-1] + found[-1], -30, 30)), y.max())
    return 1 - deviance(rate) / deviance(np.full(len(y), y.mean()))


def _many_levels(rng: np.random.Generator, people: int) -> Floats:
    """Six columns of 2 to 14 levels, coded as 0 and 1 (37 columns), and three numbers that go with them."""
    law = np.random.default_rng(5)
    z = rng.normal(size=(people, 2))
    parts = []
    for count in (7, 9, 6, 14, 5, 2):
        score = np.log(law.dirichlet(np.ones(count)) + 0.004) + z @ law.normal(0, 0.7, (2, count))
        at = np.argmax(score + rng.gumbel(size=(people, count)), axis=1)
        parts.append((at[:, None] == np.arange(1, count)).astype(np.float64))
    age = 45 + 14 * z[:, 0] + 10 * rng.normal(size=people)
    stay = np.exp(1 + 0.8 * rng.normal(size=people) + 0.4 * z[:, 1])
    return np.column_stack([*parts, np.clip(age, 17, 90), np.minimum(stay, 60)])


def _uniform(rng: np.random.Generator, people: int) -> Floats:
    return rng.uniform(-1, 1, (people, 10))


def _rare_columns(rng: np.random.Generator, people: int) -> Floats:
    x = rng.normal(size=(people, 10))
    x[:, ::3] = rng.random((people, 4)) < np.array([0.03, 0.1, 0.3, 0.02])
    return x


def _skewed_columns(rng: np.random.Generator, people: int) -> Floats:
    return np.asarray(np.exp(0.8 * _mixed(rng, people, 7)))


def _heavy_columns(rng: np.random.Generator, people: int) -> Floats:
    return rng.standard_t(3, size=(people, 7))


def _collinear_columns(rng: np.random.Generator, people: int) -> Floats:
    x = rng.normal(size=(people, 8))
    x[:, 1] = -0.92 * x[:, 0] + 0.39 * x[:, 1]
    x[:, 3] = 0.7 * x[:, 2] + 0.71 * x[:, 3]
    return x


def _mixed_columns(rng: np.random.Generator, people: int) -> Floats:
    return _mixed(rng, people, 8)


Columns = Callable[[np.random.Generator, int], Floats]


def _response(columns: Columns, law: Callable[[np.random.Generator, Floats], Floats], spread: float) -> Any:
    """A population: columns, and responses by `law` from a predictor of mean 0 and standard deviation `spread`."""
    sample = columns(np.random.default_rng(1), 20_000)
    slopes = np.random.default_rng(3).normal(size=sample.shape[1]) / np.maximum(sample.std(axis=0), 1e-9)
    eta = sample @ slopes
    center, size = float(eta.mean()), float(eta.std())

    def draw(rng: np.random.Generator, people: int) -> Sample:
        x = columns(rng, people)
        return x, law(rng, spread * (x @ slopes - center) / size)

    return draw


def _classes(constant: float) -> Callable[[np.random.Generator, Floats], Floats]:
    """Classes of a logistic model."""
    return lambda rng, eta: (rng.random(len(eta)) < 1 / (1 + np.exp(-eta - constant))).astype(np.float64)


def _other_link(rng: np.random.Generator, eta: Floats) -> Floats:
    """Classes by the complementary log-log link, and a threshold."""
    return (rng.random(len(eta)) < 1 - np.exp(-np.exp(np.clip(eta + (eta > 1) - 1, -30, 4)))).astype(np.float64)


def _counted(mean: float, dispersion: float = 1.0) -> Callable[[np.random.Generator, Floats], Floats]:
    """Counts of a log-linear model whose variance is `dispersion` times their mean (a gamma mixture)."""

    def law(rng: np.random.Generator, eta: Floats) -> Floats:
        rate = mean * np.exp(np.clip(eta, -30, 4))
        if dispersion > 1:
            rate = rng.gamma(np.maximum(rate / (dispersion - 1), 1e-12), dispersion - 1)
        return rng.poisson(rate).astype(np.float64)

    return law


def _squared(rng: np.random.Generator, eta: Floats) -> Floats:
    """Counts whose variance grows with the square of the mean (negative binomial, shape 2)."""
    rate = 3 * np.exp(np.clip(eta, -30, 4))
    return rng.poisson(rate * rng.gamma(2.0, 0.5, len(eta))).astype(np.float64)


def _softplus(rng: np.random.Generator, eta: Floats) -> Floats:
    """Counts whose mean is no exponential of the predictor."""
    return rng.poisson(2 * np.log1p(np.exp(2 * eta))).astype(np.float64)


def _few(law: Callable[[np.random.Generator, Floats], Floats]) -> Callable[[np.random.Generator, int], Sample]:
    """Two levels of 1 and 2 per thousand of the people, with slopes of 1 and -1, beside six other columns."""
    slopes = np.array([1.0, 0.3, -0.3, 0.4, 0.2, -0.2, -1.0, 0.3])

    def draw(rng: np.random.Generator, people: int) -> Sample:
        x = rng.normal(size=(people, 8))
        x[:, [0, 3, 6]] = rng.random((people, 3)) < np.array([0.001, 0.3, 0.002])
        return x, law(rng, x @ slopes)

    return draw


def _tumour() -> Sample:
    """Malignant or not, from eight measurements."""
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    return np.asarray(table.data, dtype=np.float64)[:, [1, 4, 5, 8, 9, 11, 14, 18]], np.asarray(1.0 - table.target)


def _worse() -> Sample:
    """Whether the disease progresses more than at the median."""
    x, y = _diabetes()
    return x, (y > np.median(y)).astype(np.float64)


LOGISTIC: dict[str, Kind] = {
    "normal": Kind(10_000, _response(_mixed_columns, _classes(-0.5), 1.0)),
    "uniform": Kind(10_000, _response(_uniform, _classes(0.3), 2.0)),
    "levels": Kind(30_000, _response(_many_levels, _classes(-1.3), 1.2)),
    "rare": Kind(15_000, _response(_rare_columns, _classes(-3.0), 1.0)),
    "skewed": Kind(10_000, _response(_skewed_columns, _classes(-1.0), 1.0)),
    "heavy": Kind(10_000, _response(_heavy_columns, _classes(-0.5), 1.0)),
    "collinear": Kind(10_000, _response(_collinear_columns, _classes(-0.6), 1.0)),
    "link": Kind(10_000, _response(_mixed_columns, _other_link, 1.0)),
    "steep": Kind(10_000, _response(_mixed_columns, _classes(0.0), 4.0)),
    "small": Kind(1_500, _response(_mixed_columns, _classes(0.2), 1.0)),
    "ten": Kind(10_000, _few(_classes(-1.0))),
    "tumour": Kind(5_000, _drawn(_tumour)),
    "worse": Kind(2_000, _drawn(_worse)),
}

POISSON: dict[str, Kind] = {
    "poisson": Kind(15_000, _response(_mixed_columns, _counted(2.0), 0.6)),
    "large": Kind(10_000, _response(_mixed_columns, _counted(150.0, 50.0), 0.7)),
    "visits": Kind(10_000, _response(_mixed_columns, _counted(3.0, 6.0), 0.4)),
    "rare": Kind(10_000, _response(_mixed_columns, _counted(0.3, 1.5), 0.6)),
    "squared": Kind(10_000, _response(_mixed_columns, _squared, 0.5)),
    "levels": Kind(20_000, _response(_many_levels, _counted(3.0, 2.0), 0.5)),
    "columns": Kind(15_000, _response(_rare_columns, _counted(2.0), 0.5)),
    "skewed": Kind(10_000, _response(_skewed_columns, _counted(2.0, 1.5), 0.5)),
    "heavy": Kind(10_000, _response(_heavy_columns, _counted(2.0), 0.5)),
    "collinear": Kind(10_000, _response(_collinear_columns, _counted(2.0), 0.6)),
    "link": Kind(10_000, _response(_mixed_columns, _softplus, 0.7)),
    "ten": Kind(10_000, _few(_counted(1.0))),
}


def _affair() -> Sample:
    x, y = _statsmodels("fair", "affairs")()
    return x, (y > 0).astype(np.float64)


if find_spec("statsmodels") is not None:
    LOGISTIC |= {"affairs": Kind(6_366, _drawn(_affair))}
    POISSON |= {"doctor": Kind(20_190, _drawn(_statsmodels("randhie", "mdvis")))}


def _two(y: Floats) -> tuple[float, float]:
    return 0.0, 1.0


def _counting(y: Floats) -> tuple[float, float]:
    """A public largest count that nearly all responses keep."""
    return 0.0, float(np.ceil(1.2 * np.quantile(y, 0.9998) + 1))


FRESH = {"linear": fresh_kinds.LINEAR, "logistic": fresh_kinds.LOGISTIC, "poisson": fresh_kinds.POISSON}
for family, own in (("linear", LINEAR), ("logistic", LOGISTIC), ("poisson", POISSON)):
    own |= {f"new-{name}": Kind(people, draw) for name, (people, draw) in FRESH[family].items()}

FAMILIES: dict[str, Family] = {
    "linear": Family(LinearRegressionProgram, least_squares, r_squared, _interval, LINEAR),
    "logistic": Family(LogisticRegressionProgram, _logistic_fit, _logistic_deviance, _two, LOGISTIC),
    "poisson": Family(PoissonRegressionProgram, _count_fit, _count_deviance, _counting, POISSON),
}


# ---- runs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """One run, by coefficient (p + 1,): errors, whether the two intervals contain their targets, and their sizes."""

    error: Floats
    pooled: Floats
    population: Floats
    std: Floats
    width: Floats
    identified: Floats
    explained: float
    possible: float


@dataclass(frozen=True)
class Case:
    """A kind of a family at one epsilon: public ranges, the plan, and the coefficients of the population."""

    family: Family
    kind: Kind
    low: Floats
    high: Floats
    truth: Floats
    simulation: PlanSimulation


@lru_cache(maxsize=1)
def _population(family: str, name: str) -> tuple[Floats, Floats, Floats, Floats]:
    """Ends of the ranges (p + 1,) and coefficients (p + 1,) of the population, and standard deviations (p,) of the
    features over that of the linear predictor.
    """
    chosen = FAMILIES[family]
    x, y = chosen.kinds[name].draw(np.random.default_rng(987_654), MANY)
    low, high = np.quantile(x, (0.0002, 0.9998), axis=0)
    span = high - low
    # A value beyond its range is clipped, in the program and in all targets.
    low, high = low - 0.02 * span, high + 0.02 * span
    bottom, top = chosen.ends(y)
    truth = chosen.fit(np.clip(x, low, high), np.clip(y, bottom, top))
    return np.append(low, bottom), np.append(high, top), truth, x.std(axis=0) / np.std(x @ truth[:-1])


@lru_cache(maxsize=1)
def case(family: str, name: str, epsilon: float, options: tuple[tuple[str, Any], ...] = ()) -> Case:
    """The plan of a kind at an epsilon; `options` are parameters of the program."""
    chosen = FAMILIES[family]
    kind = chosen.kinds[name]
    low, high, truth, _std = _population(family, name)
    columns = (*(f"x{at}" for at in range(len(low) - 1)), "y")
    algorithm = chosen.program(columns=columns, lower=low, upper=high, **dict(options))
    counts = np.diff(np.round(np.cumsum([0.0, *SITES]) * kind.people).astype(int))
    sites = tuple(PlannedSite(f"site{at}", int(count)) for at, count in enumerate(counts))
    terms = Terms(
        sites=sites, epsilon=epsilon, delta=DELTA, scheme=Scheme(DEFAULT_SCHEME), coalition=Coalition(COLLUDERS)
    )
    plan = make_plan(resolve(algorithm, terms), terms, "coverage")
    return Case(chosen, kind, low, high, truth, PlanSimulation(algorithm, plan))


def outcome(task: tuple[str, str, float, int, tuple[tuple[str, Any], ...]]) -> Outcome:
    """One run of a kind of a family at an epsilon with a seed."""
    family, name, epsilon, seed, options = task
    at = case(family, name, epsilon, options)
    x, y = at.kind.draw(np.random.default_rng(1_000_000 + seed), at.kind.people)
    rows = np.clip(np.column_stack([x, y]), at.low, at.high)
    x, y = rows[:, :-1], rows[:, -1]
    estimate = {each: quantity.value for each, quantity in at.simulation.run(Units.from_rows(rows), seed).items()}
    best = at.family.fit(x, y)
    found = np.append(estimate["coefficients"], estimate["intercept"])

    def inside(interval: str, target: Floats) -> Floats:
        ends = estimate[interval]
        return np.asarray((ends[:, 0] <= target) & (target <= ends[:, 1]), dtype=np.float64)

    # predictions use the scores where a family has them
    scores = np.append(estimate.get("score_coefficients", found[:-1]), estimate.get("score_intercept", found[-1:]))
    ends = estimate["pooled_interval_90"]
    return Outcome(
        found - best,
        inside("pooled_interval_90", best),
        inside("population_interval_90", at.truth),
        estimate["pooled_std"],
        ends[:, 1] - ends[:, 0],
        estimate["identified"],
        at.family.explained(x, y, scores),
        at.family.explained(x, y, best),
    )


HEAD = (
    "| kind | epsilon | pooled: average / worst | population: average / worst | pooled, identified | "
    "population, identified | identified | width | jump | error | explained | smallest | non-private |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def identified_only(inside: Floats, identified: Floats) -> str:
    """Average and worst coverage where coefficients are identified, from (runs, p + 1) of both."""
    runs = identified.sum(axis=0)
    if not runs.any():
        return "-"
    average = float((inside * identified).sum() / runs.sum())
    often = runs >= len(identified) / 4
    worst = float(np.min((inside * identified).sum(axis=0)[often] / runs[often])) if often.any() else math.nan
    return f"{average:.2f} / {worst:.2f}"


def line(name: str, epsilon: float, runs: Sequence[Outcome], std: Floats) -> str:
    """The figures of one kind at one epsilon."""

    def by(field: str) -> Floats:
        return np.array([getattr(each, field) for each in runs])

    known = by("identified")
    error, stated = by("error"), np.maximum(by("std"), 1e-300)
    pooled, population = by("pooled").mean(axis=0), by("population").mean(axis=0)
    rms = np.maximum(np.sqrt(np.mean(error**2, axis=0)), 1e-300)
    width = np.median(by("width"), axis=0) / (2 * 1.6449 * rms)
    jump = np.max(np.quantile(stated, 0.95, axis=0) / np.quantile(stated, 0.05, axis=0))
    size = float(np.sqrt(np.mean(np.sum((error[:, :-1] * std) ** 2, axis=1))))
    explained = by("explained")
    return (
        f"| {name} | {epsilon:g} | {pooled.mean():.2f} / {pooled.min():.2f} | "
        f"{population.mean():.2f} / {population.min():.2f} | {identified_only(by('pooled'), known)} | "
        f"{identified_only(by('population'), known)} | {known.mean():.2f} | {np.median(width):.2f} | {jump:.1f} | "
        f"{size:.3g} | {explained.mean():.3f} ± {explained.std():.3f} | "
        f"{explained.min():.3f} | {by('possible').mean():.3f} |"
    )


def main() -> None:
    """Run the chosen kinds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="linear")
    parser.add_argument("--kinds", nargs="+", default=None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0, 10.0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="parameters of the program, as text")
    chosen = parser.parse_args()
    options = tuple(tuple(each.split("=", 1)) for each in chosen.set)
    print(HEAD, flush=True)
    with Pool(chosen.processes) as pool:
        for name in chosen.kinds or FAMILIES[chosen.family].kinds:
            for epsilon in chosen.epsilon:
                tasks = [(chosen.family, name, epsilon, seed, options) for seed in range(chosen.runs)]
                runs = pool.map(outcome, tasks, chunksize=max(1, chosen.runs // (4 * chosen.processes)))
                print(line(name, epsilon, runs, _population(chosen.family, name)[-1]), flush=True)


if __name__ == "__main__":
    main()
