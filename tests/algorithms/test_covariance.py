"""Standard errors and intervals of covariances and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import CovarianceProgram
from zerosum.algorithms.covariance import sampled_correlations
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency

INTERVALS = (
    "covariance_interval",
    "covariance_population_interval",
    "correlation_interval",
    "correlation_population_interval",
)


def estimate_of(
    rows: Floats, noise: float, seed: int, adjacency: Adjacency = Adjacency.REPLACE_ONE, **bounds: Any
) -> Any:
    """Result on rows in [-1, 1] with noise of a given standard deviation in the sum."""
    p = rows.shape[1]
    bounds = bounds or {"lower": -np.ones(p), "upper": np.ones(p)}
    algorithm = CovarianceProgram(columns=tuple(f"x{at}" for at in range(p)), **bounds)
    rng = np.random.default_rng(seed)

    def answer(request: Request) -> Release:
        total = request.statistic.total(Units.from_rows(rows))
        units = float(len(rows)) if adjacency is Adjacency.REPLACE_ONE else None
        return Release(total + noise * rng.normal(size=total.shape), noise, units, ())

    return drive(algorithm.program(adjacency), answer)[0]


def normal(seed: int, units: int, r: float, columns: int = 3, mean: float = 0.2) -> Floats:
    """Rows of which the first two columns have correlation `r`."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(units, columns))
    rows[:, 1] = r * rows[:, 0] + np.sqrt(1 - r * r) * rows[:, 1]
    return np.clip(mean + 0.2 * rows, -1, 1)


@pytest.mark.parametrize(
    ("r", "noise", "adjacency"),
    [
        (0.5, 30.0, Adjacency.ADD_REMOVE),
        (0.999, 30.0, Adjacency.REPLACE_ONE),
        (-0.9, 300.0, Adjacency.ADD_REMOVE),
        (0.3, 3000.0, Adjacency.REPLACE_ONE),
    ],
)
def test_covariance_intervals_over_150_runs_cover_pooled_data_and_population(
    r: float, noise: float, adjacency: Adjacency
) -> None:
    # 150 runs at 95 %: one entry is below 0.88 by chance in 1 of 4000.
    covered: dict[str, list[Any]] = {name: [] for name in INTERVALS}
    truth = np.cov(normal(0, 400_000, r).T)
    scale = np.sqrt(np.diag(truth))
    for seed in range(150):
        rows = normal(seed + 1, 4000, r)
        found = estimate_of(rows, noise, seed, adjacency)
        targets = (np.cov(rows.T, bias=True), truth, np.corrcoef(rows.T), truth / np.outer(scale, scale))
        for name, target in zip(INTERVALS, targets, strict=True):
            low, high = np.moveaxis(found[name].value, -1, 0)
            point = found[name.partition("_")[0]].value
            assert np.all((low <= point + 1e-12) & (point <= high + 1e-12)), name
            covered[name].append(((low - 1e-9 <= target) & (target <= high + 1e-9))[np.triu_indices(3, 1)])
    for name in INTERVALS:
        assert np.mean(covered[name]) >= 0.925, name
        assert np.min(np.mean(covered[name], axis=0)) >= 0.88, name


@pytest.mark.parametrize("adjacency", Adjacency)
def test_covariance_std_equals_spread_of_repeated_releases(adjacency: Adjacency) -> None:
    rows = normal(1, 4000, 0.8, mean=0.6)
    many = [estimate_of(rows, 20.0, seed, adjacency) for seed in range(300)]
    for name in ("covariance", "correlation"):
        spread = np.std([each[name].value for each in many], axis=0)
        stated = np.mean([each[name].std for each in many], axis=0)
        shown = stated > 0
        # The standard deviation of 300 draws has a relative error of 4 %.
        assert np.allclose(spread[shown], stated[shown], rtol=0.18), name
    assert np.all(np.diag(stated) == 0)


def test_correlation_of_column_within_its_noise_is_unknown() -> None:
    rows = normal(1, 500, 0.5)
    rows[:, 2] = 0.1
    found = estimate_of(rows, 60.0, 3)
    assert found["correlation"].std[0, 2] == 1
    assert found["correlation_interval"][0, 2].tolist() == [-1, 1]
    assert found["correlation_population_interval"][0, 2].tolist() == [-1, 1]


@pytest.mark.parametrize("bounds", [{}, {"clip": 2.0}])
def test_covariance_of_noise_alone_stays_possible(bounds: dict[str, Any]) -> None:
    found = estimate_of(normal(1, 50, 0.5), 5000.0, 3, **bounds)
    most = 4.0 if bounds else 1.0
    assert np.max(np.diag(found["covariance"].value)) <= most + 1e-9
    assert np.min(np.linalg.eigvalsh(found["covariance"].value)) > -1e-9
    for name in INTERVALS:
        assert np.all(np.isfinite(found[name].value))
        assert np.all(found[name].value[..., 0] <= found[name].value[..., 1])


def test_sampled_correlations_without_noise_equal_fishers_interval() -> None:
    r = np.array([[1.0, 0.6], [0.6, 1.0]])
    found = sampled_correlations(r, np.stack([r, r], axis=-1), 103.0)[0, 1]
    assert found == pytest.approx(np.tanh(np.arctanh(0.6) + np.array([-0.196, 0.196])), abs=1e-3)
