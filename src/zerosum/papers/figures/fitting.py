"""Zerosum's linear regression for the figures of the capeFM paper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerosum.algorithms import ALGORITHMS, build
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.study.rehearsal import Rehearsal

# Name of the algorithm.
ALGORITHM = "linear-regression"


def available() -> bool:
    """Whether the algorithm exists; figures leave out its curve otherwise."""
    return ALGORITHM in ALGORITHMS


def ours(sites: Sequence[Floats], epsilon: float, delta: float, colluders: int, seed: int) -> Floats:
    """Coefficients with the intercept last: default settings, each record a unit, seeded noise of the plan.

    A site's array has the features and, in its last column, the response, all in public ranges of -1 to 1. The study is
    simulated (`zerosum.study.rehearsal`), which allows hundreds of curves in a minute.
    """
    columns = sites[0].shape[1]
    names = (*(f"x{i}" for i in range(columns - 1)), "response")
    algorithm = build(ALGORITHM, {"columns": names, "lower": -np.ones(columns), "upper": np.ones(columns)})
    rows = np.vstack(sites)
    rehearsal = Rehearsal(algorithm, len(rows), len(sites), epsilon, delta, colluders)
    estimate = rehearsal.run(Units.from_rows(rows), seed)
    parts = [np.ravel(np.asarray(estimate[name])) for name in ("coefficients", "intercept")]
    return np.concatenate(parts).astype(np.float64)
