"""Correlations: SciPy's values and p values without noise, coverage and level with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from helpers.program_results import Floats, result_of
from zerosum.algorithms import CorrelationProgram
from zerosum.algorithms.correlation import Pairs
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.study.rehearsal import Rehearsal

QUESTION: dict[str, Any] = {"columns": ("a", "b", "c"), "lower": np.full(3, -5.0), "upper": np.full(3, 5.0)}


def rows(n: int, seed: int, ab: float = 0.3) -> Floats:
    rng = np.random.default_rng(seed)
    covariance = np.array([[1, ab, 0.5], [ab, 1, 0.5], [0.5, 0.5, 1]])
    return rng.multivariate_normal(np.array([0.5, -0.5, 0.0]), covariance, n).clip(-5, 5)


def test_correlation_pearson_without_noise_is_scipy() -> None:
    data = rows(1500, 1, 0.05)
    found = result_of(CorrelationProgram(**QUESTION), Units(data))
    exact = stats.pearsonr(data[:, 0], data[:, 1])
    assert found["correlation"][0, 1] == pytest.approx(exact.statistic)
    assert found["p_value"][0, 1] == pytest.approx(exact.pvalue, abs=0.003)
    ends = exact.confidence_interval()
    assert found["correlation_population_interval"][0, 1] == pytest.approx([ends.low, ends.high], abs=1e-6)
    assert np.diag(found["correlation"]).tolist() == [1, 1, 1]


def test_correlation_spearman_without_noise_is_near_scipy() -> None:
    data = rows(2000, 2)
    data[:, 0] = np.exp(data[:, 0]).clip(-5, 5)
    found = result_of(CorrelationProgram(method="spearman", bins=256, **QUESTION), Units(data))
    exact = stats.spearmanr(data).statistic
    assert found["correlation"] == pytest.approx(exact, abs=0.01)


def test_correlation_given_columns_without_noise_is_that_of_residuals() -> None:
    data = rows(3000, 3, 0.4)
    found = result_of(CorrelationProgram(given=("c",), **QUESTION), Units(data))
    design = np.column_stack([np.ones(len(data)), data[:, 2]])
    residuals = data[:, :2] - design @ np.linalg.lstsq(design, data[:, :2], rcond=None)[0]
    assert found["correlation"].shape == (2, 2)
    assert found["correlation"][0, 1] == pytest.approx(np.corrcoef(residuals.T)[0, 1])


# Coverage of 400 runs: 0.95 less 4 standard errors of 0.011, a false-alarm rate below 1e-4.
@pytest.mark.parametrize("more", [{}, {"method": "spearman"}, {"given": ("c",)}])
def test_correlation_with_noise_has_level_and_coverage(more: dict[str, Any]) -> None:
    program = CorrelationProgram(**QUESTION, **more)
    rehearsal = Rehearsal(program, 1500, 4, 2.0, 1e-5)
    # a and b have the partial correlation 0 given c, and the correlation 0.25
    truth = 0.0 if more.get("given") else 6 / np.pi * np.arcsin(0.25 / 2) if more else 0.25
    held = rejected = 0
    for run in range(400):
        found = rehearsal.run(Units(rows(1500, 1000 + run, 0.25)), run)
        low, high = found["correlation_population_interval"][0, 1]
        held += low <= truth <= high
        rejected += found["p_value"][0, 1] <= 0.05
    assert held / 400 > 0.9
    assert rejected / 400 == pytest.approx(0.05, abs=0.044) if truth == 0 else rejected > 40


def test_correlation_noise_std_agrees_with_simulation() -> None:
    program = CorrelationProgram(given=("c",), **QUESTION)
    data = Units(rows(3000, 5, 0.6))
    rehearsal = Rehearsal(program, 3000, 4, 2.0, 1e-5)
    found = rehearsal.runs(data, range(300))
    spread = np.std([float(each["correlation"][0, 1]) for each in found])
    stated = np.mean([np.asarray(each["correlation"].std)[0, 1] for each in found])
    assert stated == pytest.approx(spread, rel=0.2)  # four standard errors of 300 runs are 0.17


def test_correlation_hidden_by_noise_is_unknown() -> None:
    pairs = Pairs(np.diag([1e-4, 1.0]), np.zeros(2), 0.1, 0.1, 0.0, [0, 1], [])
    value, std = pairs.correlation
    assert (value[0, 1], std[0, 1]) == (0.0, 1.0)
    assert pairs.p_values(100.0)[0, 1] == 1.0


def test_correlation_under_add_remove_counts_units_privately() -> None:
    data = rows(800, 6, 0.8)
    found = result_of(CorrelationProgram(**QUESTION), Units(data), Adjacency.ADD_REMOVE)
    assert found["correlation"][0, 1] == pytest.approx(float(stats.pearsonr(data[:, 0], data[:, 1]).statistic))


def test_correlation_correction_adjusts_each_pair_once() -> None:
    data = rows(300, 7, 0.1)
    plain = result_of(CorrelationProgram(**QUESTION), Units(data))
    found = result_of(CorrelationProgram(correction="holm", **QUESTION), Units(data))
    assert np.max(found["p_adjusted"]) <= min(3 * np.max(plain["p_value"]), 1.0)
    assert found["p_adjusted"] == pytest.approx(found["p_adjusted"].T)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"given": ("z",)}, "'z'"),
        ({"given": ("b", "c")}, "two or more"),
        ({"method": "spearman", "missing": "own-rows"}, "number"),
        ({"lower": None, "upper": None, "clip": 1.0}, "ranges"),
    ],
)
def test_correlation_that_does_not_fit_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        CorrelationProgram(**(QUESTION | change))


@pytest.mark.parametrize(("spread", "known"), [(0.5, True), (0.02, False)])
def test_partial_correlation_is_unknown_where_noise_hides_the_control(spread: float, known: bool) -> None:
    # Columns 0 and 1 are correlated through column 2 alone, whose covariance is read with noise of size 0.05.
    covariance = np.array([[0.5, 0.2, 0.3], [0.2, 0.5, 0.3], [0.3, 0.3, spread]])
    pairs = Pairs(covariance, np.zeros(3), 0.05, 0.0, 0.0, [0, 1], [2])
    value, std = pairs.correlation
    p = pairs.p_values(1e6)[0, 1]
    assert (p < 1) == known
    assert (value[0, 1] != 0) == known
    assert (std[0, 1] < 1) == known


def test_partial_correlation_without_noise_ignores_controls_that_repeat_each_other() -> None:
    covariance = np.array([[0.5, 0.2, 0.3, 0.3], [0.2, 0.5, 0.3, 0.3], [0.3, 0.3, 0.5, 0.5], [0.3, 0.3, 0.5, 0.5]])
    pairs = Pairs(covariance, np.zeros(4), 0.0, 0.0, 0.0, [0, 1], [2, 3])
    # The residual covariance given the one control: 0.2 - 0.3^2/0.5 = 0.02, residual variances 0.5 - 0.18.
    assert pairs.correlation[0][0, 1] == pytest.approx(0.02 / 0.32)
