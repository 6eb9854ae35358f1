"""Deltas of CAPE against noise and against colluders."""

from __future__ import annotations

import math

import pytest

from zerosum.kernel import accountant
from zerosum.papers.figures.cape_delta import cape_collusion, collusion_summary, deltas
from zerosum.papers.figures.experiment import Run


def test_pooled_delta_is_that_of_the_gaussian_mechanism_with_the_same_noise() -> None:
    found = deltas(5, 1.0, 2.0)
    assert found["pooled exact"] == pytest.approx(accountant.delta(1 / 2.0, 1.0))
    assert found["pooled exact"] < found["secure sum exact"] < found["cape exact"] < found["conv exact"]


def test_collusion_grows_and_the_theorem_ends_at_a_third() -> None:
    rows = cape_collusion(Run())
    exact = [
        float(row["delta"]) for row in rows if (row["sites"], row["epsilon"], row["curve"]) == (30, 3.0, "cape exact")
    ]
    assert len(exact) == 30
    assert exact == sorted(exact)
    claims = {int(row["colluders"]): float(row["delta"]) for row in rows
              if (row["sites"], row["epsilon"], row["curve"]) == (30, 3.0, "cape claimed")}  # fmt: skip
    assert all(math.isnan(delta) == (colluders > 9) for colluders, delta in claims.items())
    assert exact[9] > 10 * claims[9]
    assert {row["colluders"] for row in collusion_summary(rows) if row["sites"] == 10} == {0, 3, 6, 9}
