"""Totals of spends."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from zerosum.site.ledger_records import Spend, Total


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
