"""Runs the program of an algorithm with answers computed from data, without sites."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.algorithms import Algorithm
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency

Floats = NDArray[np.float64]


def exact(units: Units, adjacency: Adjacency = Adjacency.REPLACE_ONE, noise: float = 0.0) -> object:
    """Answer a program's requests from data, with a fixed perturbation instead of noise."""
    rng = np.random.default_rng(0)

    def answer(request: Request) -> Release:
        total = request.statistic.total(units)
        public = float(len(units)) if adjacency is Adjacency.REPLACE_ONE else None
        return Release(total + noise * rng.normal(size=total.shape), noise, public, ("a", "b"))

    return answer


def result_of(
    algorithm: Algorithm, units: Units, adjacency: Adjacency = Adjacency.REPLACE_ONE, noise: float = 0.0
) -> dict[str, Floats]:
    """The estimate, by default without noise, after a check that the requests are the declared releases."""
    estimate, asked = drive(algorithm.program(adjacency), exact(units, adjacency, noise))  # type: ignore[arg-type]
    declared = algorithm.releases(adjacency)
    assert len(asked) == len(declared)
    for request, planned in zip(asked, declared, strict=True):
        statistic = request.statistic
        assert (statistic.name, statistic.size, request.share) == (
            planned.statistic,
            planned.size,
            planned.share,
        )
        assert statistic.sensitivity(adjacency) == planned.sensitivity
    assert sum(planned.share for planned in declared) == pytest.approx(1.0)
    return {key: np.asarray(value) for key, value in estimate.items()}
