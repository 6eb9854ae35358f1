"""Phases of sub-sampled sums: one reservation, secret samples, and an accounting that an independent one confirms."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given
from hypothesis import strategies as st

from helpers.small_studies import make_sites
from zerosum.algorithms.program import Algorithm, Program
from zerosum.engines.in_process import InProcess
from zerosum.errors import Abandoned, BadParameter, OutsidePlan
from zerosum.kernel.accountant import mixed_epsilon
from zerosum.kernel.events import Sampling, Subsampled
from zerosum.kernel.phases import MOST_MU, _largest, _Threshold, step_mu
from zerosum.kernel.plan import MOST_PHASES, Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Contribute, Message, Propose
from zerosum.statistics.vectors import VectorSum
from zerosum.study import execute, make_plan, pin


class Steps(Algorithm):
    """A mean from one sum, then many sums over samples."""

    name: ClassVar[str] = "steps"
    rate: float = 0.25
    steps: int = 6

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        statistic = VectorSum(columns=len(self.columns), clip=1.0)
        sampling = Sampling(self.rate, self.steps)
        return PrivateSum(statistic, 0.2), PrivateSum(statistic, 0.8, sampling)

    def program(self, adjacency: Adjacency) -> Program:
        first, step = self.requests(adjacency)
        yield first
        seen = []
        for _ in range(self.steps):
            release = yield step
            assert release.units is not None
            seen.append(release.value / release.units)
        noise = release.noise_std / (release.units or 1.0)
        return {"means": Quantity(np.array(seen)), "noise": Quantity(np.array([noise]))}


def make(question: Steps, scheme: str = "secure-sum", **changes: object) -> Plan:
    terms = Terms(
        sites=tuple(PlannedSite(f"s{i}") for i in range(4)),
        epsilon=2.0,
        delta=1e-5,
        scheme=Scheme(scheme),
        coalition=Coalition(1),
    )
    return make_plan(question, replace(terms, **changes), "test")  # type: ignore[arg-type]


QUESTION = Steps(columns=("a", "b"))


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "pairwise"])
def test_phase_is_charged_once_and_drawn_step_by_step(scheme: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path, sizes=(120, 200, 400, 300))
    plan = make(QUESTION, scheme)
    result = execute(pin(plan, sites), QUESTION, InProcess(sites))
    assert result.report.rounds == 7
    assert result.estimate["means"].shape == (6, 2)
    truth = np.vstack([site.units.rows for site in sites]).mean(axis=0)
    sampling_std = 1.0 / math.sqrt(0.25 * 1020)
    assert np.all(np.abs(result.estimate["means"] - truth) < 6 * (float(result.estimate["noise"]) + sampling_std))
    for s, site in enumerate(sites):
        with site.policy.open_ledger() as ledger:
            spends = [entry.spend for entry in ledger.entries()]
            assert [(spend.round, spend.rate, spend.steps) for spend in spends] == [(0, None, 1), (1, 0.25, 6)]
            assert ledger.epsilon(1e-5) == pytest.approx(plan.site_epsilon(s), rel=1e-6)
            assert ledger.epsilon(1e-5) <= 2.0


def test_samples_differ_from_step_to_step_and_have_the_planned_rate(tmp_path: Path) -> None:
    """Without noise every step is the sum over its own sample."""
    question = Steps(columns=("a", "b"), rate=0.25, steps=40)
    sites = make_sites(tmp_path, sizes=(120, 200, 400, 300))
    ones = [replace(site.units, rows=np.ones_like(site.units.rows) * 0.5) for site in sites]
    for site, units in zip(sites, ones, strict=True):
        site.units = units
    result = execute(pin(make(question, "non-private"), sites), question, InProcess(sites))
    counts = np.asarray(result.estimate["means"])[:, 0] / 0.5 * 0.25 * 1020  # how many took part in each step
    assert len(set(np.rint(counts).tolist())) > 10
    assert np.allclose(counts, np.rint(counts))
    std = math.sqrt(1020 * 0.25 * 0.75)
    assert abs(np.mean(counts) - 255) < 5 * std / math.sqrt(40)
    assert 0.5 < np.std(counts) / std < 1.6


def test_step_mu_agrees_with_independent_accountant() -> None:
    """A phase with the whole budget costs what was asked for, and a little less noise would not be enough."""
    sampling, mu = Sampling(0.05, 200), 0.5
    found = step_mu(mu, sampling, 1e-5)

    def independent(step: float) -> float:
        accountant = pld.PLDAccountant(
            dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4
        )
        event = dp_accounting.PoissonSampledDpEvent(sampling.rate, dp_accounting.GaussianDpEvent(1 / step))
        accountant.compose(event, sampling.steps)
        return float(accountant.get_epsilon(1e-5))

    from zerosum.kernel.accountant import epsilon

    target = epsilon(mu, 1e-5)
    assert independent(found) <= target * (1 + 1e-3)
    assert independent(found * 1.01) > target
    assert found > mu / (2 * math.sqrt(sampling.steps)) * 4  # what sampling gains


def test_plan_with_phases_costs_requested_epsilon() -> None:
    plan = make(QUESTION)
    assert 1.98 < max(plan.site_epsilon(s) for s in range(4)) <= 2.0
    event = plan.event(1, 0)
    assert isinstance(event, Subsampled)
    assert (event.rate, event.steps) == (0.25, 6)
    assert [plan.position(r) for r in range(plan.rounds)] == [0, 1, 1, 1, 1, 1, 1]
    assert plan.law(1) is plan.law(6)
    alone = make(QUESTION, "local")
    step = alone.event(1, 0)
    assert isinstance(step, Subsampled)
    assert float(alone.law(1).own[0]) * step.mu == pytest.approx(1.0, rel=1e-3)  # a unit that is there or not moves 1
    again = Plan.from_json(plan.to_json())
    assert again.digest() == plan.digest()


def test_phase_step_beyond_last_is_refused(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    plan = make(QUESTION, "local")
    site.handle(Propose(plan))
    first, step = QUESTION.requests(Adjacency.REPLACE_ONE)
    for round in range(1, 7):
        site.handle(Contribute(round, 0, step))
    with pytest.raises(OutsidePlan):
        site.handle(Contribute(7, 0, step))
    assert isinstance(step, PrivateSum)
    with pytest.raises(OutsidePlan):
        site.handle(Contribute(0, 0, replace(first, sampling=step.sampling)))  # type: ignore[arg-type]
    assert [entry.spend.steps for entry in site._books().entries()] == [6]


def test_phase_reservation_stays_spent_after_lost_step(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)

    def loses(site: str, message: Message) -> bool:
        return site == "s3" and isinstance(message, Contribute) and message.round == 3

    with pytest.raises(Abandoned):
        execute(pin(make(QUESTION, "local"), sites), QUESTION, InProcess(sites, loses))
    for site in sites:
        with site.policy.open_ledger() as ledger:
            assert [entry.spend.steps for entry in ledger.entries()] == [1, 6]


def test_sampling_with_add_remove_or_published_calibration_is_refused() -> None:
    with pytest.raises(BadParameter, match="replace-one"):
        make(QUESTION, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(BadParameter, match="sub-sampled"):
        make(QUESTION, "local", calibration="published")
    with pytest.raises(BadParameter, match="rate"):
        Sampling(0.0, 3)


@pytest.mark.parametrize("sampling", [Sampling(1e-6, 5), Sampling(1e-3, 1), Sampling(2e-5, 1)])
def test_step_mu_at_tiny_rate_is_bounded(sampling: Sampling) -> None:
    """Where hardly anybody is ever sampled the search ends at a noise of half the bound."""
    assert step_mu(0.3, sampling, 1e-5) <= MOST_MU


@given(
    power=st.floats(1.0, 3.0),
    curve=st.floats(0.0, 2.0),
    scale=st.floats(1e-3, 1e3),
    floor=st.floats(1e-4, 1.0),
    limit=st.floats(1e-3, 1e3),
)
def test_threshold_search_equals_bisection_with_fewer_evaluations(
    power: float, curve: float, scale: float, floor: float, limit: float
) -> None:
    evaluated: list[float] = []

    def cost(m: float) -> float:
        evaluated.append(m)
        return scale * math.pow(m, power) * math.exp(curve * m)

    fits = _Threshold(cost, limit)
    fits.narrow(floor)
    found = _largest(floor, fits)
    few = len(evaluated)
    evaluated.clear()
    assert found == _largest(floor, lambda m: cost(m) <= limit)
    assert found == MOST_MU or few <= max(14, len(evaluated))
    assert cost(found) <= limit


def test_plan_with_too_many_different_phases_is_refused() -> None:
    plan = make(QUESTION)
    phase = replace(plan.releases[1], share=0.1)
    several = [replace(phase, sampling=Sampling(0.25, 6 + n)) for n in range(MOST_PHASES + 1)]
    assert replace(plan, releases=(*several[:MOST_PHASES], several[0])).phases == MOST_PHASES
    with pytest.raises(BadParameter, match="5"):
        replace(plan, releases=tuple(several))


def test_mixed_epsilon_of_equal_phases_equals_one_of_all_steps() -> None:
    two = mixed_epsilon(0.3, (Subsampled(0.4, 0.1, 20), Subsampled(0.4, 0.1, 30)), 1e-5)
    assert two == mixed_epsilon(0.3, (Subsampled(0.4, 0.1, 50),), 1e-5)
