"""Data with known principal components, and how much of their energy others capture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.kernel.request import Release, Request

Floats = NDArray[np.float64]


def without_noise(units: Units) -> object:
    def answer(request: Request) -> Release:
        total = request.statistic.total(units)
        return Release(total, 0.0, float(len(units)), ("a", "b"))

    return answer


def names(columns: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(columns))


def data(rows: int, columns: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(0.5 + 0.1 * rng.normal(size=(rows, columns)) / np.arange(1, columns + 1)).clip(0, 1)


def captured(matrix: Floats, components: Floats) -> float:
    best = np.sum(np.linalg.eigvalsh(matrix)[-len(components) :])
    return float(np.trace(components @ matrix @ components.T) / best)


def people(count: int, seed: int = 0) -> list[Floats]:
    """People of six rows in six columns, whose sizes spread over orders of magnitude."""
    rng = np.random.default_rng(seed)
    return [10 ** rng.normal(0, 0.4) * rng.normal(size=(6, 6)) / np.arange(1, 7) for _ in range(count)]


def own_matrices(units: list[Floats]) -> Floats:
    return np.array([rows.T @ rows / len(rows) for rows in units])
