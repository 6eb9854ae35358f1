"""Compensated sums of blocks: the rounding error does not grow with the number of blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zerosum.compute.blocks import PIECE, Running, compensated


def test_running_sum_of_many_parts_has_the_rounding_of_one_addition() -> None:
    """Ten thousand parts of 0.1 lose 1.6e-10 in plain double precision."""
    running, plain = Running(PIECE + 3), np.zeros(PIECE + 3)
    part = np.full(PIECE + 3, 0.1)
    for _ in range(10_000):
        running.add(part)
        plain += part
    exact = math.fsum([0.1] * 10_000)
    assert abs(plain[0] - exact) > 1e-10
    assert np.max(np.abs(running.total() - exact)) <= np.spacing(exact)


def test_running_sum_without_parts_is_zero() -> None:
    assert Running(4).total().tolist() == [0, 0, 0, 0]


def test_running_sum_of_whole_numbers_is_exact_without_compensation() -> None:
    running = Running(2, exact=True)
    for value in (2.0**52, 1.0, -(2.0**52)):
        running.add(np.array([value, -value]))
    assert running.total().tolist() == [1.0, -1.0]


def test_running_sum_leaves_parts_unchanged() -> None:
    first = np.ones(3)
    running = Running(3)
    running.add(first)
    running.add(first)
    assert first.tolist() == [1, 1, 1]
    assert running.total().tolist() == [2, 2, 2]


@pytest.mark.parametrize("small", [1e-20, 3e-17])
def test_compensated_addition_keeps_the_lost_part_for_the_next_one(small: float) -> None:
    total, lost = compensated(np.array([1.0]), np.array([0.0]), np.array([small]))
    assert (total[0], lost[0]) == (1.0, small)
