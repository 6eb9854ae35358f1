"""Schedules of subspace iteration: shares add up to the budget, and the choice follows public facts."""

from __future__ import annotations

import pytest

from zerosum.algorithms.pca.subspace import Schedule, choose_schedule


@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("growth", [1.0, 4.0])
def test_schedule_shares_add_up_to_one_and_rise_by_the_growth(rounds: int, growth: float) -> None:
    shares = Schedule(rounds, growth, 0).shares
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    assert shares[-1] / shares[0] == pytest.approx(growth if rounds > 1 else 1)


def test_schedule_with_given_fields_keeps_them() -> None:
    assert choose_schedule(50, 3, 1000, 1.0, rounds=4, growth=2.0, extra=5) == Schedule(4, 2.0, 5)
    assert choose_schedule(50, 3, 1000, 1.0, rounds=4).rounds == 4


def test_schedule_basis_is_never_wider_than_the_columns() -> None:
    assert choose_schedule(5, 3, 1000, 1.0).extra <= 2


def test_schedule_at_large_noise_has_no_more_rounds_than_at_small_noise() -> None:
    """Each round gets a share: under much noise many rounds leave none of them a signal."""
    assert choose_schedule(500, 5, 10_000, 300.0).rounds <= choose_schedule(500, 5, 10_000, 0.01).rounds
