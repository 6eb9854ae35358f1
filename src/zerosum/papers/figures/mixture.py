"""Figures 3 and 5 (top) of the capeAGN paper: error of a mixture's means against epsilon, records and delta.

Five sites, one of them colluding; D = 10 with K = 5 components and D = 50 with K = 10, of variance 0.05, means on the
unit sphere. Every published method runs twice: at the same exact epsilon as Zerosum, and at its own calibration, with
the exact epsilon beside it. The published methods receive the largest norm of the rows and the variance, which is not
private. Zerosum receives a ball of radius 10 and pays for the rest.

The metric is the mean distance to the true means, matched by optimal assignment (the paper takes the nearest).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms import Estimate, MixtureProgram
from zerosum.algorithms.metrics import component_error
from zerosum.arrays import Floats
from zerosum.papers.figures import components
from zerosum.papers.figures.components import COLLUDERS, OURS, SITES, Error, Point, experiments
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods.tensor import mixture_claims
from zerosum.papers.programs import CapeAGNMixtureProgram

VARIANCE = 0.05  # variance of a component
BALL = 10.0  # public radius, deliberately loose


def random_means(columns: int, K: int, seed: int) -> Floats:
    """Random vectors (K, columns) on the unit sphere: the true means, and with another seed the worst case."""
    drawn = np.random.default_rng(seed).normal(size=(K, columns))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


@dataclass(frozen=True)
class TrueMixture:
    """A mixture and its rows by site."""

    means: Floats
    sites: list[Floats]

    @classmethod
    def draw(cls, columns: int, count: int, records: int, seed: int) -> TrueMixture:
        """Mixture with equal weights and means on the unit sphere."""
        rng = np.random.default_rng([7, seed])
        means = random_means(columns, count, seed)
        which = rng.choice(count, SITES * records)
        rows = means[which] + np.sqrt(VARIANCE) * rng.normal(size=(SITES * records, columns))
        return cls(means, list(np.array_split(rows, SITES)))


def ours(sites: Sequence[Floats], K: int, epsilon: float, delta: float, seed: int) -> Floats:
    """Means by Zerosum with default settings, each record a unit, seeded noise."""
    columns = tuple(f"x{i}" for i in range(sites[0].shape[1]))
    named = {f"site {s}": rows for s, rows in enumerate(sites, 1)}
    algorithm = MixtureProgram(columns=columns, n_components=K, clip=BALL)
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    return np.asarray(result.estimate["means"])


def published_errors(made: TrueMixture, point: Point, seed: int) -> list[Error]:
    """Every published method on rows divided by their largest norm: method, calibration, exact epsilon, error."""
    K, D = made.means.shape
    largest = max(float(np.max(np.linalg.norm(rows, axis=1))) for rows in made.sites)
    variance = VARIANCE / largest**2
    program = CapeAGNMixtureProgram(
        columns=tuple(f"x{i}" for i in range(D)), n_components=K, variance=variance, clip=1.0, seed=seed
    )

    def error(estimate: Estimate) -> float:
        return component_error(largest * np.asarray(estimate["means"]), made.means)

    sites = [rows / largest for rows in made.sites]
    return [
        ("random", "none", 0.0, component_error(random_means(D, K, 1000 + seed), made.means)),
        *components.published_errors(program, sites, mixture_claims(D, variance), error, point, seed),
    ]


def errors(D: int, K: int, point: Point, seed: int) -> list[Error]:
    """Errors of Zerosum's means and of every published method's."""
    made = TrueMixture.draw(D, K, point.records, seed)
    mine = ours(made.sites, K, point.epsilon, point.delta, seed)
    return [(OURS, "exact", point.epsilon, component_error(mine, made.means)), *published_errors(made, point, seed)]


EXPERIMENTS = experiments("otd-mog", ("Mixtures of Gaussians", "means"), errors)
