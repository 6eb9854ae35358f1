"""The gradient and Hessian of a multinomial model: equal to the derivatives of the likelihood, within proved bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build
from zerosum.statistics.multinomial import CURVATURE, MultinomialStep

Floats = NDArray[np.float64]


def log_likelihood(weights: Floats, u: Floats, codes: NDArray[np.int64]) -> float:
    logits = np.concatenate([np.zeros((len(u), 1)), u @ weights.T], axis=1)
    return float(np.sum(logits[np.arange(len(u)), codes] - np.log(np.sum(np.exp(logits), axis=1))))


@pytest.mark.parametrize("classes", [3, 5])
def test_multinomial_step_equals_derivatives_of_the_log_likelihood(classes: int) -> None:
    rng = np.random.default_rng(classes)
    v, codes = rng.uniform(-1, 1, (40, 2)), rng.integers(0, classes, 40)
    weights = rng.normal(size=(classes - 1, 3))
    stat = MultinomialStep(
        columns=3, clip=5.0, classes=classes, coefficients=weights, lower=[-1, -1, 0], upper=[1, 1, classes - 1]
    )
    gradient, hessian = stat.split(stat.total(Units.from_rows(np.column_stack([v, codes]))))
    u, step = np.column_stack([v, np.ones(40)]), 1e-4
    for at in range(weights.size):
        away = np.zeros(weights.size)
        away[at] = step
        up, down = (log_likelihood(weights + sign * away.reshape(weights.shape), u, codes) for sign in (1, -1))
        assert gradient[at] == pytest.approx((up - down) / (2 * step), abs=1e-4)
        middle = log_likelihood(weights, u, codes)
        assert hessian[at, at] == pytest.approx((2 * middle - up - down) / step**2, abs=1e-3)
    assert np.min(np.linalg.eigvalsh(hessian)) > 0


def test_multinomial_step_long_rows_weigh_less_in_gradient_and_hessian_alike() -> None:
    weights = np.array([[0.3, -0.2], [0.1, 0.4]])
    bounds = {"columns": 2, "classes": 3, "coefficients": weights, "lower": [-9, 0], "upper": [9, 2], "scale": [0.1]}
    row = Units.from_rows(np.array([[7.0, 1.0]]))  # u = (7.8, 1)
    short, whole = (MultinomialStep(**bounds, clip=clip) for clip in (2.0, 100.0))
    share = 4.0 / (1 + (7 / 0.9) ** 2)  # (clip/norm)^2
    for got, expected in zip(short.split(short.total(row)), whole.split(whole.total(row)), strict=True):
        assert got == pytest.approx(share * expected, rel=1e-9)


def test_multinomial_step_bounds_hold_for_any_probabilities() -> None:
    """The two inequalities of the proof, for 200 000 random probability vectors of up to eight classes."""
    rng = np.random.default_rng(0)
    for classes in range(3, 9):
        p = rng.dirichlet(10 ** rng.uniform(-2, 1) * np.ones(classes), 33_000)
        p[rng.random(p.shape) < 0.3] *= 1e-6
        p /= p.sum(axis=1, keepdims=True)
        S, C = np.sum(p**2, axis=1), np.sum(p**3, axis=1)
        hessian = S - 2 * C + S**2
        assert np.max(hessian - (1 - S) * np.minimum(S, 1 - S)) < 1e-12
        for residual in (1 - 2 * p[:, 0] + S, 1 - 2 * p.min(axis=1) + S):
            assert np.max(2 * residual + CURVATURE**2 * hessian) <= 4 + 1e-12


def test_multinomial_step_added_unit_attains_the_bound() -> None:
    """Two classes of probability 1/2, and a row of a third one that is not the reference."""
    stat = MultinomialStep(
        columns=1, clip=1.0, classes=4, coefficients=[[40.0], [40.0], [-40.0]], lower=[0], upper=[3], intercept=1.0
    )
    moved = np.linalg.norm(stat.total(Units.from_rows(np.array([[3.0]]))))
    assert moved == pytest.approx(math.sqrt(2.5), rel=1e-9)
    assert moved <= stat.sensitivity(Adjacency.ADD_REMOVE) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"classes": 2, "coefficients": [[0.0, 0.0]]}, "classes"),
        ({"coefficients": [[0.0, 0.0]]}, "coefficients"),
        ({"curvature": 2.1}, "curvature"),
        ({"columns": 3, "offset": (-1.0, 1.0)}, "offset"),
    ],
)
def test_multinomial_step_that_does_not_fit_is_refused(changed: dict[str, object], named: str) -> None:
    fitting = {"columns": 2, "clip": 1.0, "classes": 3, "coefficients": [[0.0, 0.0], [0.0, 0.0]]}
    with pytest.raises(BadParameter, match=named):
        build("multinomial_step", {**fitting, **changed})
