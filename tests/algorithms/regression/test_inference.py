"""Wald tests of coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from zerosum.algorithms.regression.inference import table, unseen_share, wald_p_values
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


def test_coefficients_of_columns_that_noise_hides_apart_are_not_identified_and_the_reason_is_stated() -> None:
    moments = np.diag([1.0, 1.0, 4.0, 1.0])
    moments[0, 1] = moments[1, 0] = 0.96
    shares = unseen_share(moments, 0.1)
    assert shares == pytest.approx([0.5, 0.5, 0.0, 0.0], abs=0.01)
    assert not unseen_share(moments, 0.02).any()
    assert not unseen_share(moments, 0.0).any()
    covariance = np.diag([0.01, 0.01, 0.01, 0.5])
    found = table(np.zeros(4), covariance, covariance, np.ones(4), shares)
    assert found["identified"].tolist() == [0, 0, 1, 0]
    assert found["unidentified_reason"].tolist() == [2, 2, 0, 1]


def test_share_along_unknown_directions_does_not_depend_on_the_units_of_columns() -> None:
    moments = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.0], [0.1, 0.0, 1.0]])
    assert unseen_share(moments, 1e-3).tolist() == [0, 0, 0]
    # a column a hundred times smaller lies below the noise, and is unknown by itself
    scale = np.diag([1.0, 1.0, 0.01])
    assert unseen_share(scale @ moments @ scale, 0.01) == pytest.approx([0, 0, 1], abs=0.05)
