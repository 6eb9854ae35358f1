"""Poisson regression on made-up counts of different kinds: explained deviance, error and coverage.

    python benchmarks/counts.py [--runs 30] [--epsilon 0.5 1 3 10] [--processes 2]

Eight unequal sites, 2 colluders, secure sum, delta 1e-5, every setting left to the planner. The kinds differ in what
makes counts hard: large overdispersed counts, small overdispersed counts, counts of a Poisson distribution, exposures
that differ 240-fold, rare events. Features are correlated, a third of them are binary and one is skewed.

Printed for each kind and epsilon: explained deviance (mean, smallest, and without privacy), squared error of the
coefficients over their size in standard deviations of the features (median), coverage of 90 % intervals (average and
worst coefficient; of the pooled estimate and of the true coefficients), and the share of identified coefficients.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import zerosum
from zerosum import Policy
from zerosum.algorithms import PoissonRegressionProgram
from zerosum.arrays import Floats

SITES = (0.3, 0.2, 0.15, 0.1, 0.08, 0.07, 0.06, 0.04)  # shares of eight unequal sites


@dataclass(frozen=True)
class Kind:
    """A population of counts: people, features, mean count, variance over mean, and spread of the linear predictor."""

    people: int
    features: int
    mean: float
    dispersion: float
    spread: float
    exposed: bool = False


KINDS = {
    "large": Kind(11_586, 12, 189.0, 53.0, 0.8),
    "visits": Kind(7_000, 10, 2.9, 6.0, 0.35),
    "poisson": Kind(20_000, 6, 2.0, 1.0, 0.6),
    "exposure": Kind(6_000, 6, 0.2, 1.0, 0.8, exposed=True),
    "rare": Kind(8_000, 6, 0.3, 1.5, 0.6),
}
EXPOSURES = (0.05, 12.0)


@dataclass(frozen=True)
class Outcome:
    """One run: deviances, error, and by coefficient whether the two intervals contain their targets."""

    explained: float
    possible: float
    error: float
    pooled: list[bool]
    population: list[bool]
    identified: float


def made(kind: Kind, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Features (n, p), offsets (n,), counts (n,) and true slopes (p,)."""
    rng = np.random.default_rng(1000 + seed)
    n, p = kind.people, kind.features
    x = rng.normal(size=(n, p)) @ (0.3 * rng.normal(size=(p, p)) + np.eye(p)).T
    x[:, ::3] = x[:, ::3] > 0.7
    x[:, 4] = np.exp(0.6 * x[:, 4])
    slopes = rng.normal(size=p)
    predictor = (x - x.mean(axis=0)) @ slopes
    slopes, predictor = (each * kind.spread / predictor.std() for each in (slopes, predictor))
    offset = np.log(rng.uniform(*EXPOSURES, n)) if kind.exposed else np.zeros(n)
    rate = np.exp(predictor)
    rate = rate * kind.mean / rate.mean() * np.exp(offset)
    if kind.dispersion > 1:
        # A gamma mixture of Poisson counts whose variance is `dispersion` times the mean.
        rate = rng.gamma(rate / (kind.dispersion - 1), kind.dispersion - 1)
    return x, offset, rng.poisson(rate).astype(np.float64), slopes


def maximum_likelihood(x: Floats, offset: Floats, y: Floats) -> Floats:
    """Slopes and intercept (p + 1,) of the pooled data without privacy, by damped Newton steps."""
    rows = np.column_stack([x, np.ones(len(x))])
    found = np.append(np.zeros(x.shape[1]), np.log(y.mean() / np.exp(offset).mean()))
    for _ in range(50):
        rate = np.exp(rows @ found + offset)
        step = np.linalg.solve(rows.T @ (rate[:, None] * rows), rows.T @ (y - rate))
        # a step changes no predictor by more than 2, so that no rate overflows
        found = found + step * min(1.0, 2 / float(np.max(np.abs(rows @ step))))
    return np.asarray(found)


def deviance(y: Floats, rate: Floats) -> float:
    """Poisson deviance of rates."""
    positive = np.where(y > 0, y, 1.0)
    return float(2 * np.sum(np.where(y > 0, y * np.log(positive / rate), 0.0) - (y - rate)))


def outcome(task: tuple[str, float, int]) -> Outcome:
    """One run of a kind (by name) at an epsilon with a seed."""
    name, epsilon, seed = task
    kind = KINDS[name]
    x, offset, y, slopes = made(kind, seed)
    p = x.shape[1]
    # Public ranges that nearly all values keep.
    low, high = (np.quantile(np.column_stack([x, y]), share, axis=0) for share in (0.0002, 0.9998))
    low, high = np.append(np.floor(low[:-1]), 0.0), np.append(np.ceil(high[:-1]), np.ceil(1.2 * high[-1] + 1))
    x, y = np.clip(x, low[:-1], high[:-1]), np.clip(y, 0, high[-1])
    columns, table = [f"x{at}" for at in range(p)], x
    if kind.exposed:
        columns, table = [*columns, "offset"], np.column_stack([table, offset])
        low, high = (np.insert(ends, -1, np.log(end)) for ends, end in zip((low, high), EXPOSURES, strict=True))
    rng = np.random.default_rng(seed)
    rows = np.column_stack([table, y])[rng.permutation(len(y))]
    cuts = (np.cumsum(SITES[:-1]) * len(y)).astype(int)
    sites = {f"site{at}": part for at, part in enumerate(np.split(rows, cuts))}
    algorithm = PoissonRegressionProgram(
        columns=(*columns, "y"), lower=low, upper=high, offset="offset" if kind.exposed else None
    )
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policies = {site: Policy.throwaway(site, Path(folder) / site) for site in sites}
        estimate = zerosum.run(
            algorithm,
            sites,
            policies=policies,
            unit="person",
            epsilon=epsilon,
            delta=1e-5,
            colluders=2,
            random_state=seed,
        ).estimate
    slope = np.asarray(estimate["coefficients"])
    best = maximum_likelihood(x, offset, y)

    def explained(found: Floats, constant: float) -> float:
        null = y.sum() / np.exp(offset).sum() * np.exp(offset)
        rate = np.exp(np.clip(x @ found + constant + offset, -30, 30))
        # without exposures a prediction is at most the largest count
        rate = rate if kind.exposed else np.minimum(rate, high[-1])
        return 1 - deviance(y, rate) / deviance(y, null)

    def inside(interval: str, target: Floats) -> list[bool]:
        ends = np.asarray(estimate[interval])[:p]
        return [bool(low <= value <= high) for (low, high), value in zip(ends, target, strict=True)]

    spread = x.std(axis=0)
    # predictions use the scores
    scores = np.asarray(estimate["score_coefficients"]), float(np.asarray(estimate["score_intercept"])[0])
    return Outcome(
        explained(*scores),
        explained(best[:-1], best[-1]),
        float(np.sum(((slope - best[:-1]) * spread) ** 2) / np.sum((best[:-1] * spread) ** 2)),
        inside("pooled_interval_90", best[:-1]),
        inside("population_interval_90", slopes),
        float(np.mean(np.asarray(estimate["identified"])[:p])),
    )


def line(name: str, epsilon: float, runs: Sequence[Outcome]) -> str:
    """The figures of one kind at one epsilon."""
    found = np.array([each.explained for each in runs])
    pooled = np.mean([each.pooled for each in runs], axis=0)
    population = np.mean([each.population for each in runs], axis=0)
    return (
        f"| {name} | {epsilon:g} | {found.mean():.3f} ± {found.std():.3f} | {found.min():.3f} | "
        f"{np.mean([each.possible for each in runs]):.3f} | {np.median([each.error for each in runs]):.4f} | "
        f"{pooled.mean():.2f} / {pooled.min():.2f} | {population.mean():.2f} / {population.min():.2f} | "
        f"{np.mean([each.identified for each in runs]):.2f} |"
    )


def main() -> None:
    """Run all kinds and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 3.0, 10.0])
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    print("| counts | epsilon | deviance explained | smallest | non-private | error | pooled | population | known |")
    print("|---|---|---|---|---|---|---|---|---|")
    with Pool(chosen.processes) as pool:
        for name in KINDS:
            for epsilon in chosen.epsilon:
                runs = pool.map(outcome, [(name, epsilon, seed) for seed in range(chosen.runs)], chunksize=1)
                print(line(name, epsilon, runs), flush=True)


if __name__ == "__main__":
    main()
