"""Small seeded results whose tables are exported: a logistic and a linear regression, and a description by group."""

from __future__ import annotations

from functools import cache

import numpy as np

import zerosum
from zerosum.report.record import Result

SITES = 3


@cache
def logistic() -> Result:
    """Logistic regression with released sizes of the columns."""
    return _fitted("logistic")


@cache
def linear() -> Result:
    """Linear regression with released sizes of the columns."""
    return _fitted("linear")


def _fitted(family: str) -> Result:
    """A regression on age and sex."""
    rng = np.random.default_rng(1)
    X, y = {}, {}
    for site in range(SITES):
        age, sex = rng.normal(54, 9, 400), rng.integers(0, 2, 400)
        score = 0.05 * (age - 54) + sex - 0.5
        X[f"s{site}"] = np.column_stack([age, sex])
        y[f"s{site}"] = (
            (rng.random(400) < 1 / (1 + np.exp(-score))).astype(int)
            if family == "logistic"
            else score + rng.normal(0, 1, 400)
        )
    shared = {"lower": [20, 0], "upper": [90, 1], "standardise": "dp", "epsilon": 4.0, "random_state": 0}
    if family == "logistic":
        return zerosum.LogisticRegression(**shared, data="synthetic").fit(X, y).result_  # type: ignore[arg-type]
    return zerosum.LinearRegression(**shared, response=(-5, 5), data="synthetic").fit(X, y).result_  # type: ignore[arg-type]


@cache
def described() -> Result:
    """Description of two columns of numbers, one with missing values, and one of categories, by group."""
    rng = np.random.default_rng(2)
    tables = []
    for _ in range(SITES):
        group, stage = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
        age, chol = rng.normal(50 + 5 * group, 9), rng.normal(240, 40, 300)
        chol[rng.random(300) < 0.2] = np.nan
        tables.append(np.column_stack([age, chol, stage, group]))
    return (
        zerosum.Describe(
            ranges={"x0": (20, 90), "x1": (100, 600)},
            levels={"x2": [0, 1, 2], "x3": [0, 1]},
            by="x3",
            missing={"x1": "observed"},
            epsilon=4.0,
            random_state=0,
            data="synthetic",
        )
        .fit(tables)
        .result_
    )
