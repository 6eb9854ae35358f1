"""Kinds of data for `benchmarks/coverage.py --family ...` that no constant was chosen on.

They were written after the constants and before any of them was run. Change nothing in the regressions after a look at
their figures, or move the kind to `coverage.py` and write a new one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zerosum.arrays import Floats

Sample = tuple[Floats, Floats]
Draw = Callable[[np.random.Generator, int], Sample]


def _levels(rng: np.random.Generator, shares: tuple[float, ...], people: int) -> Floats:
    """A column of levels, coded as 0 and 1 without the first."""
    at = rng.choice(len(shares), size=people, p=np.array(shares) / sum(shares))
    return np.asarray((at[:, None] == np.arange(1, len(shares))).astype(np.float64))


# ---- linear ----------------------------------------------------------------------------------------------------------


def wages(rng: np.random.Generator, people: int) -> Sample:
    """Logarithm of a wage: years of school, experience and its square (r = .97), levels; uneven errors."""
    school = np.clip(np.round(12.5 + 2.8 * rng.normal(size=people)), 4, 20)
    work = np.clip(rng.gamma(2.0, 9.0, people), 0, 50)
    woman, union = rng.random(people) < 0.47, rng.random(people) < 0.15
    region = _levels(rng, (0.4, 0.3, 0.2, 0.1), people)
    x = np.column_stack([school, work, work**2 / 100, woman, union, region])
    eta = 0.09 * school + 0.035 * work - 0.05 * work**2 / 100 - 0.2 * woman + 0.12 * union - region @ [0.05, 0.1, 0.15]
    return x, 0.8 + eta + (0.3 + 0.008 * school) * rng.standard_t(6, people)


def sensors(rng: np.random.Generator, people: int) -> Sample:
    """Twelve neighbouring measurements with r = .8 from one to the next."""
    x = rng.normal(size=(people, 12))
    for at in range(1, 12):
        x[:, at] = 0.8 * x[:, at - 1] + 0.6 * x[:, at]
    slopes = np.array([0.8, 0, 0, -0.5, 0, 0, 0.4, 0, 0, 0, -0.3, 0.6])
    return x, x @ slopes + 1.5 * rng.standard_t(4, people)


def costs(rng: np.random.Generator, people: int) -> Sample:
    """Logarithms of costs, many of them 0, from logarithms of earlier costs with many zeros."""
    health = rng.normal(size=people)
    before = [
        np.log1p(np.where(rng.random(people) < 0.6, 0, np.exp(5 + health + rng.normal(size=people)))) for _ in "abc"
    ]
    age = np.clip(50 + 18 * rng.normal(size=people) + 5 * health, 18, 95)
    x = np.column_stack([*before, age, rng.random(people) < 0.52, rng.random(people) < 0.04])
    none = rng.random(people) < 1 / (1 + np.exp(0.5 * health + 0.02 * (age - 50)))
    now = 4.5 + 0.8 * health + 0.02 * (age - 50) + 1.0 * x[:, 5] + 1.2 * rng.normal(size=people)
    return x, np.log1p(np.where(none, 0, np.exp(now)))


def answers(rng: np.random.Generator, people: int) -> Sample:
    """Eight answers from 1 to 5 with a common factor; the response is an answer from 1 to 7."""
    factor = rng.normal(size=(people, 1))
    x = np.clip(np.round(3.2 + 0.7 * factor + 0.8 * rng.normal(size=(people, 8))), 1, 5)
    latent = 0.5 * x[:, 0] + 0.3 * x[:, 2] - 0.3 * x[:, 5] + 0.2 * x[:, 7] + 2.2 + 1.1 * rng.normal(size=people)
    return x, np.clip(np.round(latent), 1, 7)


def doses(rng: np.random.Generator, people: int) -> Sample:
    """Exponential columns, a response that saturates, gamma errors in proportion to it."""
    x = rng.exponential(size=(people, 5)) * np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    mean = 4 * x[:, 0] / (1 + x[:, 0]) + 0.5 * x[:, 1] - 0.4 * x[:, 2] + 0.1 * x[:, 4] + 1
    return x, mean * rng.gamma(6.0, 1 / 6.0, people)


def district(rng: np.random.Generator, people: int) -> Sample:
    """Few units, six columns, normal errors."""
    z = rng.normal(size=(people, 6))
    x = np.column_stack([z[:, 0], 0.6 * z[:, 0] + 0.8 * z[:, 1], np.exp(0.5 * z[:, 2]), z[:, 3] > 0, z[:, 4], z[:, 5]])
    return x, x @ np.array([0.6, 0.4, 0.5, 0.8, 0.0, -0.3]) + rng.normal(size=people)


# ---- logistic --------------------------------------------------------------------------------------------------------


def _class(rng: np.random.Generator, eta: Floats) -> Floats:
    return (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(np.float64)


def relapse(rng: np.random.Generator, people: int) -> Sample:
    """A clinical outcome of 9 %: age, pressure and weight with r = .4 to .6, levels, a rare history."""
    z = rng.normal(size=people)
    age = np.clip(58 + 12 * z, 20, 95)
    pressure = 130 + 9 * z + 14 * rng.normal(size=people)
    weight = np.clip(27 + 2.5 * z + 4 * rng.normal(size=people), 15, 60)
    x = np.column_stack([age, pressure, weight, rng.random((people, 2)) < [0.5, 0.03], _levels(rng, (5, 3, 2), people)])
    eta = 0.03 * (age - 58) + 0.012 * (pressure - 130) + 0.9 * x[:, 4] + 0.3 * x[:, 3] + x[:, 5:] @ [0.4, 0.8] - 3.1
    return x, _class(rng, eta)


def loans(rng: np.random.Generator, people: int) -> Sample:
    """Defaults: log-normal amounts on their own scale, whole numbers with many zeros, levels."""
    amounts = np.exp(np.array([9.0, 10.5, 7.0]) + np.array([0.7, 0.6, 1.1]) * rng.normal(size=(people, 3)))
    late = rng.poisson(rng.gamma(0.4, 1.0, people))
    x = np.column_stack([amounts / 1000, late, _levels(rng, (4, 3, 2, 1), people)])
    eta = -1.8 + 0.03 * x[:, 0] - 0.01 * x[:, 1] + 0.7 * np.minimum(late, 4) + x[:, 4:] @ [0.2, -0.3, 0.5]
    return x, _class(rng, eta)


def mistaken(rng: np.random.Generator, people: int) -> Sample:
    """A probit law with 3 % of the classes exchanged."""
    x = rng.uniform(-2, 2, (people, 6))
    truth = x @ np.array([0.8, -0.6, 0.5, 0, 0.3, 0]) + 0.3 + rng.normal(size=people) > 0
    return x, (truth ^ (rng.random(people) < 0.03)).astype(np.float64)


# ---- counts ----------------------------------------------------------------------------------------------------------


def claims(rng: np.random.Generator, people: int) -> Sample:
    """Few events: mean .1, levels, a rare one, a skewed number."""
    number = np.minimum(rng.gamma(2.0, 3.0, people), 30)
    x = np.column_stack([_levels(rng, (5, 3, 2), people), rng.random(people) < 0.02, number, rng.normal(size=people)])
    return x, rng.poisson(
        np.exp(
            x
            @ np.array(
                [
                    0.3,
                    0.6,
                    0.8,
                    0.04,
                    -0.3,
                ]
            )
            - 2.8
        )
    ).astype(np.float64)


def calls(rng: np.random.Generator, people: int) -> Sample:
    """Calls by hour: mean about 12, log-normal mixing, an effect that is not monotone."""
    hour = rng.uniform(0, 24, people)
    x = np.column_stack([np.sin(hour / 12 * np.pi), np.cos(hour / 12 * np.pi), rng.normal(size=(people, 3))])
    eta = 2.3 - 0.7 * x[:, 1] + 0.3 * x[:, 0] + 0.2 * x[:, 2] + 0.1 * x[:, 2] ** 2 - 0.15 * x[:, 3]
    return x, rng.poisson(np.exp(np.clip(eta + 0.4 * rng.normal(size=people), -5, 5))).astype(np.float64)


LINEAR: dict[str, tuple[int, Draw]] = {
    "wages": (8_000, wages),
    "sensors": (12_000, sensors),
    "costs": (15_000, costs),
    "answers": (5_000, answers),
    "doses": (9_000, doses),
    "district": (350, district),
}
LOGISTIC: dict[str, tuple[int, Draw]] = {
    "relapse": (14_000, relapse),
    "loans": (16_000, loans),
    "mistaken": (8_000, mistaken),
}
POISSON: dict[str, tuple[int, Draw]] = {"claims": (20_000, claims), "calls": (9_000, calls)}
