"""Must show: the measured variance of the released sum, at equal mu, through the whole path from records to release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Contribute
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import execute, make_plan, pin, run

DRAWS = 200_000
S, C = 3, 1


def variance(scheme: Scheme, sizes: tuple[int, ...]) -> float:
    """Variance of the released sum over units, one release of many coordinates, in units of D^2/mu^2."""
    question = MeanProgram(columns=tuple(str(i) for i in range(DRAWS)), clip=1.0)
    sites = {f"site {s}": np.zeros((n, DRAWS)) for s, n in enumerate(sizes)}
    policies = {
        name: Policy(population=f"{name} {scheme}", minimum_units=1, trusted_coordinator=True) for name in sites
    }
    result = run(question, sites, epsilon=1.0, delta=1e-5, scheme=scheme, colluders=C, unit="person", policies=policies)
    mu = max(line.mu for line in result.report.per_site)
    noise = np.asarray(result.estimate["mean"]) * sum(sizes)
    return float(np.var(noise)) * mu**2 / 2.0**2


def test_variance_with_planned_losses_is_as_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """S/(H - L) times pooled when nobody drops out, (S - L)/(H - L) when L do; within 3 %."""
    question = MeanProgram(columns=tuple(str(i) for i in range(100_000)), clip=1.0)
    sites = [
        Site(f"s{s}", Units.from_rows(np.zeros((2, 100_000))), Policy(population=f"{s}", minimum_units=1))
        for s in range(7)
    ]
    plan = make_plan(
        question,
        Terms(
            sites=tuple(PlannedSite(site.name) for site in sites),
            epsilon=1.0,
            delta=1e-5,
            scheme=Scheme("secure-sum"),
            coalition=Coalition(2, 2),
        ),
        "losses",
    )
    for lost, expected in (((), 7 / 3), (("s1", "s4"), 5 / 3)):
        engine = InProcess(sites, lambda name, message, lost=lost: name in lost and isinstance(message, Contribute))  # type: ignore[misc]
        result = execute(pin(replace(plan, study=str(lost)), sites), question, engine)
        noise = np.asarray(result.estimate["mean"]) * 2 * (7 - len(lost))
        measured = float(np.var(noise)) * result.report.per_site[0].mu ** 2 / 2.0**2
        with capsys.disabled():
            print(
                f"\nvariance / pooled, S=7 C=2 L=2, {len(lost)} lost: measured {measured:.4f} predicted {expected:.4f}"
            )
        assert measured == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 10, 100)])
def test_variance_of_released_sum_is_as_predicted(sizes: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Within 2 %: 6 standard errors at 200 000 draws, so a false alarm once in 10^9 checks."""
    H = S - C
    predicted = {
        Scheme("pooled"): 1.0,
        Scheme("local"): S,
        Scheme("secure-sum"): S / H,
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
