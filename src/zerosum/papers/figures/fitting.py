"""Zerosum's own regression in the figures of the capeFM paper.

Tested in tests/papers/figures/test_regression_figures.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.algorithms import ALGORITHMS, build
from zerosum.arrays import Floats
from zerosum.papers.figures.trial import run_trial

ALGORITHM = "linear-regression"


def available() -> bool:
    """Whether Zerosum has an algorithm of that name; figures go without its curve where it has not."""
    return ALGORITHM in ALGORITHMS


def ours(sites: Sequence[Floats], epsilon: float, delta: float, colluders: int, seed: int) -> Floats:
    """The coefficients, the intercept last: the defaults, each record a unit, with noise from a seed.

    A site's array has the features and, in its last column, the response, all in public ranges of -1 to 1.
    """
    columns = sites[0].shape[1]
    names = (*(f"x{i}" for i in range(columns - 1)), "response")
    algorithm = build(ALGORITHM, {"columns": names, "lower": -np.ones(columns), "upper": np.ones(columns)})
    named = {f"site {s}": rows for s, rows in enumerate(sites, 1)}
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=colluders, unit="record", seed=seed)
    found = [np.ravel(np.asarray(result.estimate[name])) for name in ("coefficients", "intercept")]
    return np.concatenate(found).astype(np.float64)
