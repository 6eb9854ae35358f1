"""Totals of spends."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from zerosum.kernel.accountant import mu_for
from zerosum.kernel.events import LaplaceSum
from zerosum.kernel.laplace import FEWEST_MOVES, Curve
from zerosum.kernel.terms import Noise
from zerosum.site.ledger_records import Cap, Spend, Total, left_under


def test_total_of_several_distances_is_that_of_their_sum() -> None:
    """Many releases of a distance and one release of all of it cost the same."""
    parts = [Spend("s", r, 0, "person", "mean", 2.0, 0.1, "c0ffee", distance=1e-11) for r in range(100)]
    whole = [replace(spend, distance=1e-9 if spend.round == 0 else 0.0) for spend in parts]
    each, once = (Total().plus((spend, spend.mu) for spend in spends).epsilon(1e-5) for spends in (parts, whole))
    assert each == pytest.approx(once, rel=1e-9)
    assert math.isfinite(each)


def test_total_of_two_long_phases_of_one_kind_is_finite() -> None:
    spends = [Spend(n, 0, 0, "person", "vector_sum", 2.0, 1e-5, "ab", rate=0.01, steps=600_000) for n in "ab"]
    assert math.isfinite(Total().plus([(spend, spend.mu) for spend in spends]).epsilon(1e-5))


@pytest.mark.parametrize(("noise", "distance"), [("gaussian", 1e-13), ("laplace", 0.0), ("laplace", 1e-13)])
def test_left_under_of_many_laplace_spends_fits_and_composes_them_once(
    noise: Noise, distance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pure = tuple(LaplaceSum(0.1 + at / 10_000, 4096 + at) for at in range(40))
    total, cap = Total(Fraction(0.09), Fraction(distance), (), pure), Cap(10.0, 1e-5)
    calls, on_grid = [], Curve.on_grid

    def counted(curve: Curve, interval: float) -> object:
        calls.append(interval)
        return on_grid(curve, interval)

    monkeypatch.setattr(Curve, "on_grid", counted)
    left = left_under(total, cap, noise)
    # 40 events once, and one event in each of 16 steps; before it were 40 in each step.
    assert len(calls) <= 60
    assert left_under(replace(total, laplace=pure[::-1]), cap, noise) == left
    assert len(calls) <= 60
    monkeypatch.undo()

    def after(more: float) -> float:
        if noise == "laplace":
            return replace(total, laplace=(*pure, LaplaceSum(more, FEWEST_MOVES))).epsilon(1e-5)
        return replace(total, squares=total.squares + Fraction(mu_for(more, 1e-5)) ** 2).epsilon(1e-5)

    assert after(left) <= cap.epsilon < after(left * 1.001)


def test_left_under_is_zero_where_finite_arithmetic_or_spends_use_up_the_cap() -> None:
    spent = Total(laplace=(LaplaceSum(1.0, 5000, 30),))
    assert left_under(spent, Cap(5.0, 1e-5)) == left_under(spent, Cap(5.0, 1e-5), "laplace") == 0.0
    loose = Total(distance=Fraction(1e-9), laplace=(LaplaceSum(0.1, 5000),))
    assert left_under(loose, Cap(8.0, 1e-5)) == left_under(loose, Cap(8.0, 1e-5), "laplace") == 0.0
