"""The planner's choice between Gaussian and Laplace noise."""

from __future__ import annotations

import math
from inspect import signature
from typing import Any

import numpy as np
import pytest

from zerosum.algorithms import Algorithm, HistogramProgram, MeanProgram, PCAProgram
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.estimators import Mean
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import NoiseChoice, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.report.record import privacy_report
from zerosum.study import make_plan, run
from zerosum.study.entries import PrivacyTable
from zerosum.study.rehearsal import PlanSimulation, Rehearsal


def terms(scheme: str = "secure-sum", **more: Any) -> Terms:
    sites = tuple(PlannedSite(f"s{s}") for s in range(4))
    settings: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "coalition": Coalition(1)} | more
    return Terms(sites=sites, scheme=Scheme(scheme), **settings)


def mean(columns: int, **more: Any) -> MeanProgram:
    ranges = {"lower": np.zeros(columns), "upper": np.ones(columns)}
    return MeanProgram(columns=tuple(f"x{i}" for i in range(columns)), **ranges | more)


def planned(algorithm: Algorithm, noise: NoiseChoice, *, under: Terms | None = None) -> Plan:
    return make_plan(algorithm, under or terms(), "choice", noise=noise)


@pytest.mark.parametrize(("columns", "law"), [(1, "laplace"), (6, "laplace"), (7, "gaussian"), (20, "gaussian")])
def test_auto_takes_the_smaller_noise_of_a_mean(columns: int, law: str) -> None:
    plans = {noise: planned(mean(columns), noise) for noise in ("auto", "gaussian", "laplace")}
    assert plans["auto"].releases[0].noise == law
    stds = {noise: plan.law(0).noise_std for noise, plan in plans.items()}
    assert stds["auto"] == min(stds["gaussian"], stds["laplace"])
    # At (1, 1e-5): sqrt(2) D sqrt(d) / epsilon over D / mu.
    assert stds["laplace"] / stds["gaussian"] == pytest.approx(math.sqrt(2 * columns) * 0.26805, rel=2e-3)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_auto_takes_laplace_noise_for_counts_of_many_bins(adjacency: Adjacency) -> None:
    histogram = HistogramProgram(columns=("x",), edges=np.arange(101.0))
    plan = planned(histogram, "auto", under=terms(adjacency=adjacency))
    assert plan.releases[0].noise == "laplace"
    ratio = plan.law(0).noise_std / planned(histogram, "gaussian", under=terms(adjacency=adjacency)).law(0).noise_std
    assert ratio == pytest.approx((2 if adjacency is Adjacency.REPLACE_ONE else math.sqrt(2)) * 0.26805, rel=2e-3)


@pytest.mark.parametrize("scheme", ["zero-sum", "pairwise", "cape-published", "cape-helper", "non-private"])
def test_auto_takes_gaussian_noise_under_other_schemes(scheme: str) -> None:
    assert planned(mean(1), "auto", under=terms(scheme)).releases[0].noise == "gaussian"


def test_auto_takes_gaussian_noise_for_programs_of_several_releases() -> None:
    pca = PCAProgram(columns=("a", "b", "c"), n_components=1, clip=1.0)
    assert {release.noise for release in planned(pca, "auto").releases} == {"gaussian"}
    with pytest.raises(BadParameter, match="gaussian"):
        planned(pca, "laplace")


def test_mean_with_missing_values_has_laplace_noise_for_sums_and_counts() -> None:
    plan = planned(mean(2, missing="observed"), "auto")
    assert plan.releases[0].noise == "laplace"
    # c sqrt(d) (1 + a) with c = sqrt(2) and a = sqrt(3)
    assert plan.releases[0].sensitivity == pytest.approx(2 * (1 + math.sqrt(3)))


def test_report_states_the_law_and_its_intervals() -> None:
    report = privacy_report(planned(mean(1), "auto"))
    assert report.releases[0].noise == "laplace"
    assert any("Laplace" in note and "2.09 standard deviations" in note for note in report.notes)
    assert not any("Laplace" in note for note in privacy_report(planned(mean(1), "gaussian")).notes)


def test_simulated_noise_has_the_law_of_the_plan() -> None:
    plan = planned(HistogramProgram(columns=("x",), edges=np.arange(4001.0)), "laplace")
    simulation = PlanSimulation(HistogramProgram(columns=("x",), edges=np.arange(4001.0)), plan)
    counts = np.asarray(simulation.run(Units.from_rows(np.zeros((10, 1))), seed=1)["counts"])[1:]
    std = plan.law(0).noise_std
    # Kurtosis 3 + 3 H/S = 5.25: relative error of the std sqrt(4.25/16000); seven of these.
    assert np.std(counts) == pytest.approx(std, rel=7 * math.sqrt(4.25 / 16_000))
    assert np.mean(counts**4) / np.mean(counts**2) ** 2 > 3.8


def test_mean_with_laplace_noise_has_the_smaller_error() -> None:
    data = Units.from_rows(np.random.default_rng(0).uniform(size=(800, 1)))
    true, found = float(np.mean(data.rows)), {}
    for noise in ("auto", "gaussian"):
        simulation = PlanSimulation(mean(1), planned(mean(1), noise))
        errors = [float(np.asarray(each["mean"])[0]) - true for each in simulation.runs(data, range(2000))]
        found[noise] = np.sqrt(np.mean(np.square(errors)))
    # Planned is 2.637; the relative errors of the two are about 2.4 % and 1.6 %.
    assert found["gaussian"] / found["auto"] == pytest.approx(2.637, rel=0.15)


@pytest.mark.parametrize("columns", [1, 20])
def test_noise_by_default_is_gaussian_everywhere(columns: int) -> None:
    rehearsal = Rehearsal(mean(columns), 400, 4, 1.0, 1e-5)
    assert [release.noise for release in rehearsal.plan.releases] == ["gaussian"]
    assert [release.noise for release in make_plan(mean(columns), terms(), "default").releases] == ["gaussian"]
    defaults = [signature(each).parameters["noise"].default for each in (run, make_plan, Rehearsal, Mean)]
    assert defaults == ["gaussian"] * 4
    assert PrivacyTable.model_fields["noise"].default == "gaussian"


def test_rehearsal_takes_the_noise_that_is_asked_for() -> None:
    choices: tuple[NoiseChoice, ...] = ("gaussian", "laplace")
    for noise in choices:
        rehearsal = Rehearsal(mean(1), 400, 4, 1.0, 1e-5, noise=noise)
        assert [release.noise for release in rehearsal.plan.releases] == [noise]
        assert (rehearsal.shares[0] > 0) == (noise == "laplace")
