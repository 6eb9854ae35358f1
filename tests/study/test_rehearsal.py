"""A rehearsal has the noise of the plan: its spread is that of real runs."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.study.rehearsal import Rehearsal


def test_rehearsal_has_planned_noise_and_repeats_by_seed() -> None:
    rehearsal = Rehearsal(MeanProgram(columns=("a", "b"), clip=1.0), 400, 4, 1.0, 1e-5)
    data = Units.from_rows(np.full((400, 2), 0.25))
    found = np.array([rehearsal.run(data, seed)["mean"].value for seed in range(300)])
    planned = rehearsal.plan.law(0).noise_std / 400
    assert np.std(found) == pytest.approx(planned, rel=0.15)
    assert np.mean(found) == pytest.approx(0.25, abs=5 * planned / np.sqrt(600))
    assert np.array_equal(rehearsal.run(data, 3)["mean"], rehearsal.run(data, 3)["mean"])
