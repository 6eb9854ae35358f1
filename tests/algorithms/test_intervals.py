"""Intervals hold as often as they say, however noisy the denominator is."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.algorithms.intervals import difference_interval, ratio_interval, widened

RNG = np.random.default_rng(0)
DRAWS = 20_000


@pytest.mark.parametrize("noise", [1.0, 10.0, 40.0, 200.0])
@pytest.mark.parametrize("ratio", [-0.9, 0.0, 0.6])
def test_ratio_interval_covers_in_95_percent(noise: float, ratio: float) -> None:
    bottom = 100 + noise * RNG.normal(size=DRAWS)
    top = 100 * ratio + 0.7 * noise * RNG.normal(size=DRAWS)
    var = np.full(DRAWS, noise**2)
    ends = ratio_interval(top, bottom, 0.49 * var, 0 * var, var, -1.0, 1.0)
    held = np.mean((ends[:, 0] <= ratio) & (ratio <= ends[:, 1]))
    assert held >= 0.944  # and where the denominator may be zero, more
    if noise <= 10:
        assert held <= 0.956


def test_ratio_interval_of_share_of_its_total_covers_in_95_percent() -> None:
    counts = np.array([30.0, 50.0, 20.0]) + 8 * RNG.normal(size=(DRAWS, 3))
    var = np.full(DRAWS, 64.0)
    ends = ratio_interval(counts[:, 0], counts.sum(axis=1), var, var, 3 * var, 0.0, 1.0)
    assert np.mean((ends[:, 0] <= 0.3) & (ends[:, 1] >= 0.3)) == pytest.approx(0.95, abs=0.006)


def test_ratio_interval_without_noise_is_point() -> None:
    zero = np.zeros(1)
    assert ratio_interval(np.array([3.0]), np.array([4.0]), zero, zero, zero, 0.0, 1.0).tolist() == [[0.75, 0.75]]


def test_ratio_interval_without_units_is_whole_range() -> None:
    zero, one = np.zeros(1), np.ones(1)
    assert ratio_interval(zero, zero, one, zero, one, -1.0, 1.0).tolist() == [[-1.0, 1.0]]
    assert ratio_interval(one, -5 * one, one, zero, one, -1.0, 1.0).tolist() == [[-1.0, 1.0]]


def test_difference_and_sample_intervals_cover_in_95_percent() -> None:
    one, other = 5 + RNG.normal(size=DRAWS), 3 + 2 * RNG.normal(size=DRAWS)
    z = 1.959963984540054
    ends = difference_interval(one, one[:, None] + np.array([-z, z]), other, other[:, None] + np.array([-2 * z, 2 * z]))
    assert np.mean((ends[:, 0] <= 2) & (ends[:, 1] >= 2)) == pytest.approx(0.95, abs=0.006)
    sample = 5 + 3 * RNG.normal(size=DRAWS) + RNG.normal(size=DRAWS)
    wide = widened(sample, sample[:, None] + np.array([-z, z]), np.full(DRAWS, 9.0))
    assert np.mean((wide[:, 0] <= 5) & (wide[:, 1] >= 5)) == pytest.approx(0.95, abs=0.006)
