"""Must show: the measured variance of the released sum, at equal mu, through the whole path from records to release."""

from __future__ import annotations

import numpy as np
import pytest

from zerosum.algorithms import Mean
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import run

DRAWS = 200_000
S, C = 3, 1


def variance(scheme: Scheme, sizes: tuple[int, ...]) -> float:
    """Variance of the released sum over units, one release of many coordinates, in units of D^2/mu^2."""
    question = Mean(columns=tuple(str(i) for i in range(DRAWS)), clip=1.0)
    sites = {f"site {s}": np.zeros((n, DRAWS)) for s, n in enumerate(sizes)}
    policies = {
        name: Policy(population=f"{name} {scheme}", minimum_units=1, trusted_coordinator=True) for name in sites
    }
    result = run(question, sites, epsilon=1.0, delta=1e-5, scheme=scheme, colluders=C, policies=policies)
    mu = max(line.mu for line in result.report.per_site)
    noise = np.asarray(result.estimate["mean"]) * sum(sizes)
    return float(np.var(noise)) * mu**2 / 2.0**2


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 10, 100)])
def test_the_variance_of_the_released_sum_is_as_predicted(
    sizes: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 2 %: 6 standard errors at 200 000 draws, so a false alarm once in 10^9 checks."""
    H = S - C
    predicted = {
        Scheme("pooled"): 1.0,
        Scheme("local"): S,
        Scheme("zero-sum", ratio=1e6): S / H,
        Scheme("pairwise", ratio=1e6): S / H,
        Scheme("cape-published"): (1 - 1 / H) * S / (S + 1) + S / H,
        Scheme("cape-helper"): (1 - 1 / H) * S / (S + 1) + S / H,
    }
    with capsys.disabled():
        print(f"\nvariance of the released sum / pooled, sites of {sizes} units, {DRAWS} draws:")
        for scheme, expected in predicted.items():
            measured = variance(scheme, sizes)
            print(f"  {scheme.name:15s} measured {measured:.4f}  predicted {expected:.4f}")
            assert measured == pytest.approx(expected, rel=0.02)
