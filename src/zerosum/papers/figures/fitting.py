"""Zerosum's own regression in the figures of the capeFM paper.

Tested in tests/papers/figures/test_regression_figures.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.algorithms import ALGORITHMS, build
from zerosum.arrays import Floats
from zerosum.kernel.units import Units
from zerosum.study.rehearsal import Rehearsal

ALGORITHM = "linear-regression"


def available() -> bool:
    """Whether Zerosum has an algorithm of that name; figures go without its curve where it has not."""
    return ALGORITHM in ALGORITHMS


def ours(sites: Sequence[Floats], epsilon: float, delta: float, colluders: int, seed: int) -> Floats:
    """The coefficients, the intercept last: the defaults, each record a unit, with the plan's noise from a seed.

    A site's array has the features and, in its last column, the response, all in public ranges of -1 to 1. It is
    rehearsed (`zerosum.study.rehearsal`), for hundreds of curves in a minute.
    """
    columns = sites[0].shape[1]
    names = (*(f"x{i}" for i in range(columns - 1)), "response")
    algorithm = build(ALGORITHM, {"columns": names, "lower": -np.ones(columns), "upper": np.ones(columns)})
    rows = np.vstack(sites)
    rehearsal = Rehearsal(algorithm, len(rows), len(sites), epsilon, delta, colluders)
    estimate = rehearsal.run(Units.from_rows(rows), seed)
    found = [np.ravel(np.asarray(estimate[name])) for name in ("coefficients", "intercept")]
    return np.concatenate(found).astype(np.float64)
