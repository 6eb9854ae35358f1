"""Regression across sites against what the pooled data give: run `python benchmarks/regression.py DATA [--seeds 10]`.

DATA is the folder of data sets. Four tables: training and held-out loss of linear regression on four data sets by one
public rule; AUC on held-out folds for heart disease in four hospitals, with each hospital alone; coverage and width of
90 % intervals (`--runs`, 1000 for the full table); errors of logistic and Poisson coefficients over non-private ones.

Programs run as in a study, with the noise a plan of the secure sum gives every release, but without sites: what a site
would add up is added up at once, so that a thousand runs are affordable.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as Pooled

from zerosum.algorithms import LinearRegressionProgram, LogisticRegressionProgram, PoissonRegressionProgram
from zerosum.compute.units import Units
from zerosum.kernel.request import Request
from zerosum.statistics.regression import ResidualMoment
from zerosum.study import rehearsal as study

Floats = NDArray[np.float64]
Estimate = dict[str, Floats]


class Rehearsal(study.Rehearsal):
    """With plain tables in and plain arrays out."""

    def run(self, rows: Floats, seed: int) -> Estimate:  # type: ignore[override]
        return self.run_with_requests(rows, seed)[0]

    def run_with_requests(self, rows: Floats, seed: int) -> tuple[Estimate, list[Request]]:  # type: ignore[override]
        estimate, asked = super().run_with_requests(Units.from_rows(rows), seed)
        return {name: quantity.value for name, quantity in estimate.items()}, asked


def names(columns: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(columns))


def spread(values: list[float], digits: int = 5) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values):.{digits}f}"


# ---- data ------------------------------------------------------------------------------------------------------------


def crime(folder: Path) -> tuple[Floats, Floats]:
    with np.load(folder / "communities_crime.npz") as stored:
        rows, response = stored["X"].astype(np.float64), stored["y"].astype(np.float64)
    return 2 * rows[:, ~np.isnan(rows).any(axis=0)] - 1, 2 * response - 1


def kegg(folder: Path) -> tuple[Floats, Floats]:
    with gzip.open(folder / "keggundirected_data.csv.gz") as stored:
        table = np.loadtxt(stored, delimiter=",")
    low, high = table.min(axis=0), table.max(axis=0)
    table = 2 * (table - low)[:, high > low] / (high - low)[high > low] - 1
    return table[:, :-1], table[:, -1]


def made_up(columns: int, rows: int = 10_000) -> tuple[Floats, Floats]:
    """As in paper 003: normal features within their ranges, a response that is linear up to a tenth of its spread."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(columns)
    weights /= np.linalg.norm(weights)
    features = rng.standard_normal((rows, columns))
    features /= np.abs(features).max(axis=0)
    response = features @ weights
    response = response / np.abs(response).max()
    return features, np.clip(response + 0.1 * response.std() * rng.standard_normal(rows), -1, 1)


HEART = {  # public: lowest, highest, an ordinary value, an ordinary deviation; missing values become the ordinary one
    "age": (20, 90, 55, 10),
    "trestbps": (80, 200, 140, 20),
    "chol": (100, 600, 250, 50),
    "thalach": (60, 210, 135, 25),
    "oldpeak": (-3, 7, 1, 1),
}
BINARY = ("sex", "cp", "fbs", "exang", "restecg")  # asymptomatic pain or not, any ECG finding or not


def heart(folder: Path) -> tuple[Floats, Floats, NDArray[np.int64]]:
    with np.load(folder / "heart_disease_4site.npz", allow_pickle=True) as stored:
        known = {str(name): i for i, name in enumerate(stored["feature_names"])}
        table = stored["X"].astype(np.float64)
        disease, site = (stored["y"] > 0).astype(np.float64), stored["site"].astype(np.int64)
    parts = []
    for name, (low, high, ordinary, _scale) in HEART.items():
        column = table[:, known[name]]
        column = np.where((column == 0) & (name in ("chol", "trestbps")), np.nan, column)
        parts.append(np.where(np.isnan(column), ordinary, np.clip(column, low, high)))
    for name in BINARY:
        column = table[:, known[name]]
        yes = column == 4 if name == "cp" else column > 0
        parts.append(np.where(np.isnan(column), 0.5, yes.astype(np.float64)))
    return np.stack(parts, axis=1), disease, site


def heart_algorithm(**more: Any) -> LogisticRegressionProgram:
    low, high, ordinary, scale = np.array(list(HEART.values()), dtype=np.float64).T
    zeros, ones = np.zeros(len(BINARY)), np.ones(len(BINARY))
    return LogisticRegressionProgram(
        columns=(*HEART, *BINARY, "disease"),
        lower=np.concatenate([low, zeros, [0.0]]),
        upper=np.concatenate([high, ones, [1.0]]),
        center=np.concatenate([ordinary, 0.5 * ones]),
        scale=np.concatenate([scale, 0.5 * ones]),
        **more,
    )


# ---- references ------------------------------------------------------------------------------------------------------


def least_squares(features: Floats, response: Floats) -> Floats:
    return np.asarray(
        np.linalg.lstsq(np.column_stack([features, np.ones(len(features))]), response, rcond=None)[0], dtype=np.float64
    )


def fitted(features: Floats, response: Floats, family: str) -> tuple[Floats, Floats]:
    """Maximum likelihood by Newton's method, and the standard errors; the intercept last."""
    design = np.column_stack([features, np.ones(len(features))])
    center, scale = design.mean(axis=0), np.maximum(design.std(axis=0), 1e-9)
    center[-1], scale[-1] = 0.0, 1.0
    inner = (design - center) / scale
    w: Floats = np.zeros(design.shape[1])
    for _ in range(60):
        rate = expit(inner @ w) if family == "logistic" else np.exp(np.minimum(inner @ w, 30))
        weight = rate * (1 - rate) if family == "logistic" else rate
        hessian = (inner * weight[:, None]).T @ inner
        step = np.linalg.solve(hessian, inner.T @ (response - rate))
        w = w + step * min(1.0, 5 / max(float(np.linalg.norm(step)), 1e-300))
    back = np.diag(1 / scale)
    back[-1, :-1] = -center[:-1] / scale[:-1]
    return np.asarray(back @ w), np.asarray(np.sqrt(np.diag(back @ np.linalg.inv(hessian) @ back.T)))


def auc(truth: Floats, scores: Floats) -> float:
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    for value in np.unique(scores):
        ranks[scores == value] = ranks[scores == value].mean()
    positive = truth > 0
    count = int(positive.sum())
    return float((ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(truth) - count)))


# ---- tables ----------------------------------------------------------------------------------------------------------

FLOORS = {
    "crime": (0.112, 0.090, 0.086, 0.081),
    "kegg": (0.0049, 0.0044, 0.0042, 0.0041),
    "synthetic 20": (0.0009, 0.00064, 0.00064, 0.00064),
    "synthetic 50": (0.007, 0.00063, 0.00063, 0.00063),
}


def losses(folder: Path, seeds: int) -> None:
    print("1. linear regression, S=5, C=1, delta=1e-3: mean squared error (response in -1 to 1), training / held out")
    sets: dict[str, Callable[[], tuple[Floats, Floats]]] = {
        "crime": lambda: crime(folder),
        "kegg": lambda: kegg(folder),
        "synthetic 20": lambda: made_up(20),
        "synthetic 50": lambda: made_up(50),
    }
    for name, load in sets.items():
        features, response = load()
        rows = np.column_stack([features, response])
        design = np.column_stack([features, np.ones(len(features))])
        bare = float(np.mean((response - design @ least_squares(features, response)) ** 2))
        print(f"   {name}: {rows.shape[0]} x {features.shape[1]}, non-private {bare:.5f}")
        limits = {"lower": -np.ones(rows.shape[1]), "upper": np.ones(rows.shape[1])}
        algorithm = LinearRegressionProgram(columns=names(rows.shape[1]), **limits)
        for epsilon, floor in zip((0.1, 0.5, 1.0, 3.0), FLOORS[name], strict=True):
            whole = Rehearsal(algorithm, len(rows), 5, epsilon, 1e-3)
            train = [float(np.mean((response - design @ joined(whole.run(rows, s))) ** 2)) for s in range(seeds)]
            held, cut = [], len(rows) * 4 // 5
            part = Rehearsal(algorithm, cut, 5, epsilon, 1e-3)
            for seed in range(min(seeds, 10)):
                order = np.random.default_rng(seed).permutation(len(rows))
                w = joined(part.run(rows[order[:cut]], seed))
                held.append(float(np.mean((response[order[cut:]] - design[order[cut:]] @ w) ** 2)))
            met = "met" if np.mean(train) <= floor else "NOT MET"
            print(
                f"     eps {epsilon:<4g} {spread(train)}   held out {spread(held)}   at most {floor}: {met}", flush=True
            )


def joined(estimate: Estimate, prefix: str = "") -> Floats:
    return np.append(estimate[f"{prefix}coefficients"], estimate[f"{prefix}intercept"])


def folds(truth: Floats, seed: int, parts: int = 5) -> list[NDArray[np.int64]]:
    rng, label = np.random.default_rng(seed), np.empty(len(truth), dtype=np.int64)
    for value in np.unique(truth):
        where = rng.permutation(np.flatnonzero(truth == value))
        label[where] = np.arange(len(where)) % parts
    return [np.flatnonzero(label == k) for k in range(parts)]


def hospitals(folder: Path, seeds: int) -> None:
    print("3a. heart disease, 4 hospitals, C=1, delta=1e-4: AUC on held-out folds")
    features, disease, site = heart(folder)
    rows = np.column_stack([features, disease])

    def held_out(fit: Callable[[Floats, int], Floats], own: int | None = None) -> str:
        found = []
        for seed in range(seeds):
            for test in folds(disease, seed):
                train = np.setdiff1d(np.arange(len(rows)), test)
                if own is not None:
                    train = train[site[train] == own]
                w = fit(rows[train], 10 * seed + int(test[0]))
                found.append(auc(disease[test], features[test] @ w[:-1]))
        return spread(found, 4)

    print(f"     non-private {held_out(lambda table, _s: fitted(table[:, :-1], table[:, -1], 'logistic')[0])}")
    scale = np.array([row[3] for row in HEART.values()] + [0.5] * len(BINARY))

    def alone(table: Floats, _seed: int) -> Floats:
        return np.append(Pooled(C=1.0).fit(table[:, :-1] / scale, table[:, -1]).coef_[0] / scale, 0.0)

    for which in range(4):
        print(f"     hospital {which} alone, non-private {held_out(alone, which)}")
    for epsilon, floor in zip((0.5, 1.0, 2.0, 4.0), (0.860, 0.866, 0.870, 0.873), strict=True):
        parts = []
        for method in ("auto", "newton", "polynomial"):
            plans: dict[int, Rehearsal] = {}

            algorithm = heart_algorithm(method=method)
            plans = {
                n: Rehearsal(algorithm, n, 4, epsilon, 1e-4) for n in {len(rows) - len(f) for f in folds(disease, 0)}
            }

            def private(table: Floats, seed: int, plans: dict[int, Rehearsal] = plans) -> Floats:
                return joined(plans[len(table)].run(table, seed), "score_")

            parts.append(f"{method} {held_out(private)}")
        print(f"     eps {epsilon:<4g} {'   '.join(parts)}   at least {floor}", flush=True)


@dataclass
class Tally:
    """Coverage and widths of intervals over runs."""

    covered: list[NDArray[np.bool_]] = field(default_factory=list)
    widths: list[Floats] = field(default_factory=list)
    identified: list[Floats] = field(default_factory=list)

    def add(self, estimate: Estimate, kind: str, truth: Floats) -> None:
        low, high = estimate[f"{kind}_interval_90"].T
        self.covered.append((low <= truth) & (truth <= high))
        self.widths.append(high - low)
        self.identified.append(estimate["identified"])

    def summary(self, against: Floats) -> str:
        each = np.mean(self.covered, axis=0)
        ratio = float(np.median(np.array(self.widths) / against))
        return (
            f"covers {each.mean():.3f}, worst {each.min():.3f}, median width {ratio:.2f} times, "
            f"identified {np.mean(self.identified):.2f}"
        )


def heart_intervals(folder: Path, runs: int) -> None:
    print("3b. heart disease: 90 % intervals for the pooled non-private coefficients; widths over those of sampling")
    features, disease, _site = heart(folder)
    rows = np.column_stack([features, disease])
    truth, errors = fitted(features, disease, "logistic")
    for epsilon in (1.0, 2.0, 4.0, 8.0):
        rehearsal, tally = Rehearsal(heart_algorithm(), len(rows), 4, epsilon, 1e-4), Tally()
        for seed in range(runs):
            tally.add(rehearsal.run(rows, seed), "pooled", truth)
        print(f"     eps {epsilon:<4g} {tally.summary(2 * 1.6449 * errors)}   ({runs} runs)", flush=True)


def linear_intervals(runs: int, units: int = 20_000, columns: int = 10) -> None:
    print(f"3c. linear, N={units}, D={columns}, delta=1e-5, S=4, C=1: 90 % intervals of both kinds")
    truth = 0.6 * np.random.default_rng(9).uniform(-0.5, 0.5, columns + 1)
    limits = {"lower": -np.ones(columns + 1), "upper": np.ones(columns + 1)}
    algorithm = LinearRegressionProgram(columns=names(columns + 1), **limits)
    for epsilon in (0.5, 1.0, 3.0):
        rehearsal = Rehearsal(algorithm, units, 4, epsilon, 1e-5)
        pooled, population, errors, ideal = Tally(), Tally(), [], []
        for seed in range(runs):
            rng = np.random.default_rng(1_000_000 + seed)
            features = rng.uniform(-1, 1, (units, columns))
            features[:, 1] = 0.7 * features[:, 0] + 0.3 * features[:, 1]
            design = np.column_stack([features, np.ones(units)])
            response = np.clip(design @ truth + 0.15 * rng.standard_normal(units), -1, 1)
            rows = np.column_stack([features, response])
            estimate, asked = rehearsal.run_with_requests(rows, seed)
            best = least_squares(features, response)
            ideal.append(at_best(rows, best, asked, rehearsal))
            pooled.add(estimate, "pooled", best)
            population.add(estimate, "population", truth)
            errors.append(joined(estimate) - best)
        reached = 2 * 1.6449 * np.sqrt(np.mean(np.square(errors), axis=0))
        ratio = float(np.median(np.array(pooled.widths) / (2 * 1.6449 * np.array(ideal))))
        print(f"     eps {epsilon:<4g} pooled: {pooled.summary(reached)} its errors', {ratio:.2f} times the best")
        print(
            f"              population: {population.summary(2 * 1.6449 * sampled(units, columns))} that of sampling",
            flush=True,
        )


def at_best(rows: Floats, best: Floats, asked: list[Request], rehearsal: Rehearsal) -> Floats:
    """Standard errors if every gradient that was released counted in full, and how it changes with the coefficients
    came for free and exact."""
    params, features = asked[-1].statistic.parameters(), rows[:, :-1]
    inner = np.column_stack([(features - params["center"]) / params["scale"], np.full(len(rows), params["intercept"])])
    shrunk = np.minimum(1, params["clip"] / np.linalg.norm(inner, axis=1))
    gap = shrunk * (rows[:, -1] - features @ best[:-1] - best[-1])
    weights = shrunk**2 * (np.abs(gap) < params["bound"])
    back = np.diag(np.append(1 / params["scale"], params["intercept"]))
    back[-1, :-1] = -params["center"] / params["scale"]
    bounds = np.array([each.statistic.bound for each in asked if isinstance(each.statistic, ResidualMoment)])
    std = 2 * params["clip"] * rehearsal.noise[-1] / np.sqrt(2) / rehearsal.units / np.sqrt(np.sum(bounds**-2))
    error = std * back @ np.linalg.inv((inner * weights[:, None]).T @ inner / len(inner))
    return np.asarray(np.sqrt(np.sum(error**2, axis=1)))


def sampled(units: int, columns: int) -> Floats:
    """Standard errors of least squares on the made-up data."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (200_000, columns))
    features[:, 1] = 0.7 * features[:, 0] + 0.3 * features[:, 1]
    design = np.column_stack([features, np.ones(len(features))])
    return np.asarray(0.15 * np.sqrt(np.diag(np.linalg.inv(design.T @ design / len(design))) / units))


def coefficients(seeds: int) -> None:
    print(
        "4. rms error of the coefficients over that of the non-private fit, delta=1e-5, S=4, C=1 (at most 1.5 at eps 3)"
    )
    for family, units, columns, size, constant in (
        ("logistic", 50_000, 10, 2.0, 0.3),
        ("poisson", 20_000, 6, 0.5, 0.5),
    ):
        truth = np.append(np.random.default_rng(3).uniform(-size, size, columns), constant)
        top = 1.0 if family == "logistic" else 20.0
        limits = {"lower": np.append(-np.ones(columns), 0.0), "upper": np.append(np.ones(columns), top)}
        kind = LogisticRegressionProgram if family == "logistic" else PoissonRegressionProgram
        for epsilon in (0.5, 1.0, 3.0):
            rehearsal = Rehearsal(kind(columns=names(columns + 1), **limits), units, 4, epsilon, 1e-5)
            private, bare, pooled = [], [], Tally()
            for seed in range(seeds):
                rng = np.random.default_rng(1_000_000 + seed)
                features = rng.uniform(-1, 1, (units, columns))
                predictor = np.column_stack([features, np.ones(units)]) @ truth
                if family == "logistic":
                    response = (rng.uniform(size=units) < expit(predictor)).astype(np.float64)
                else:
                    response = rng.poisson(np.exp(predictor)).astype(np.float64)
                estimate = rehearsal.run(np.column_stack([features, response]), seed)
                best, errors = fitted(features, response, family)
                private.append(float(np.sqrt(np.mean((joined(estimate) - truth) ** 2))))
                bare.append(float(np.sqrt(np.mean((best - truth) ** 2))))
                pooled.add(estimate, "pooled", best)
            ratio = np.sqrt(np.mean(np.square(private)) / np.mean(np.square(bare)))
            print(
                f"     {family} N={units} D={columns} eps {epsilon:<4g} private {spread(private, 4)}, non-private "
                f"{spread(bare, 4)}: {ratio:.2f} times; pooled intervals: {pooled.summary(2 * 1.6449 * errors)}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--runs", type=int, default=None, help="of coverage; 1000 for the full table, 10 a seed unless given"
    )
    parser.add_argument("--only", default="1,3a,3b,3c,4")
    given = parser.parse_args()
    runs = given.runs if given.runs is not None else 10 * given.seeds
    only = given.only.split(",")
    if "1" in only:
        losses(given.data, given.seeds)
    if "3a" in only:
        hospitals(given.data, min(given.seeds, 4))
    if "3b" in only:
        heart_intervals(given.data, runs)
    if "3c" in only:
        linear_intervals(runs)
    if "4" in only:
        coefficients(given.seeds)


if __name__ == "__main__":
    main()
