"""Wald tests of coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from zerosum.algorithms.regression.inference import table, wald_p_values
from zerosum.kernel.significance import joint_wald


def test_wald_p_values_of_joint_normal_are_those_of_scipy() -> None:
    mean, covariance = np.array([1.0, -0.5, 3.0]), np.array([[1.0, 0.4, 0.0], [0.4, 0.5, 0.1], [0.0, 0.1, 4.0]])
    found = table(mean, covariance / 2, covariance, np.ones(3))
    assert found["p_value"] == pytest.approx(2 * stats.norm.sf(np.abs(mean) / np.sqrt(np.diag(covariance))))
    statistic = mean[:2] @ np.linalg.solve(covariance[:2, :2], mean[:2])
    expected = (statistic, 2, stats.chi2.sf(statistic, 2))
    assert joint_wald(mean[:2], covariance[:2, :2]) == pytest.approx(expected)
    assert joint_wald(np.array([1.0, 1.0]), np.diag([1.0, 0.0]))[1] == 1
    assert wald_p_values(np.array([1.0, 0.0]), np.zeros(2)).tolist() == [0.0, 1.0]
