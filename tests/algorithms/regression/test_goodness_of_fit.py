"""How well a regression fits: exact without noise, and bought like any other release."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from zerosum.algorithms import LinearRegressionProgram, LogisticRegressionProgram, PoissonRegressionProgram
from zerosum.algorithms.program import PublicFacts
from zerosum.algorithms.regression.goodness_of_fit import area
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics.fit import FitHistogram

RNG = np.random.default_rng(0)
FEATURES = RNG.uniform(-1, 1, (3000, 2))
CLASSES = (RNG.random(3000) < 1 / (1 + np.exp(-3 * FEATURES[:, 0]))).astype(float)
BOUNDS = {"columns": ("a", "b", "y"), "evaluate_share": 0.1, "lower": [-1, -1, 0], "upper": [1, 1, 1]}


def answered(rows: np.ndarray, noise: float = 0.0):  # type: ignore[no-untyped-def]
    units, rng = Units.from_rows(rows), np.random.default_rng(1)

    def answer(request: Request) -> Release:
        total = request.statistic.total(units)
        return Release(total + noise * rng.normal(size=total.shape), noise, float(len(units)), ("a", "b"))

    return answer


def test_logistic_regression_auc_with_noise_is_within_stated_std() -> None:
    rows = np.column_stack([FEATURES, CLASSES])
    kind = LogisticRegressionProgram(**BOUNDS).resolve(PublicFacts(noise=1.0, units=3000))
    found, asked = drive(kind.program(Adjacency.REPLACE_ONE), answered(rows))
    assert [request.statistic.name for request in asked][-1] == "fit_histogram"
    assert sum(request.share for request in asked) == pytest.approx(1.0)
    score = FEATURES @ np.asarray(found["coefficients"])
    assert float(found["auc"]) == pytest.approx(roc_auc_score(CLASSES, score), abs=0.01)
    assert np.sum(np.asarray(found["scores"])) == pytest.approx(3000)
    assert np.asarray(found["scores"])[1].sum() == pytest.approx(CLASSES.sum())
    noisy, _ = drive(kind.program(Adjacency.REPLACE_ONE), answered(rows, 5.0))
    std = float(np.asarray(noisy["auc"].std).item())
    assert std > 0
    assert abs(float(noisy["auc"]) - float(found["auc"])) < 6 * std + 0.02


def test_linear_regression_residuals_and_r_squared_are_near_truth() -> None:
    y = np.clip(0.5 + 0.3 * FEATURES[:, 0] + RNG.normal(0, 0.05, 3000), 0, 1)
    kind = LinearRegressionProgram(**BOUNDS, standardise="dp").resolve(PublicFacts(noise=1.0, units=3000))
    found, _ = drive(kind.program(Adjacency.REPLACE_ONE), answered(np.column_stack([FEATURES, y])))
    best = np.linalg.lstsq(np.column_stack([FEATURES, np.ones(3000)]), y, rcond=None)
    assert float(found["r_squared"]) == pytest.approx(1 - best[1][0] / 3000 / np.var(y), abs=0.02)
    assert np.sum(np.asarray(found["residuals"])) == pytest.approx(3000)
    assert 0 <= float(found["clipped_share"]) < 0.6


def test_poisson_regression_residuals_add_up_to_units() -> None:
    y = RNG.poisson(np.exp(FEATURES[:, 0]))
    bounds = BOUNDS | {"upper": [1, 1, 10]}
    kind = PoissonRegressionProgram(**bounds).resolve(PublicFacts(noise=1.0, units=3000))
    found, _ = drive(kind.program(Adjacency.REPLACE_ONE), answered(np.column_stack([FEATURES, y])))
    assert np.sum(np.asarray(found["residuals"])) == pytest.approx(3000)


def test_fit_histogram_clipped_rows_are_counted() -> None:
    statistic = FitHistogram(
        columns=3,
        clip=0.5,
        intercept=0.0,
        coefficients=[0.0, 0.0],
        edges=[-1, 0, 1],
        lower=[-1, -1, -1],
        upper=[1, 1, 1],
    )
    rows = np.array([[0.1, 0.1, 0.5], [0.9, 0.9, -0.5], [0.2, 0.0, -0.5]])
    counts = np.asarray(statistic.split(statistic.total(Units.from_rows(rows))))
    assert counts[:, 0].tolist() == [[1, 1], [1, 0]]  # one of three was longer than 0.5


def test_auc_without_units_is_one_half() -> None:
    assert area(np.zeros((2, 3))) == 0.5
