"""Private publications: a noisy row for every unit, planned, charged and released like any sum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.small_studies import make_sites
from zerosum.algorithms.program import Algorithm, Program
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.errors import BadParameter, OutsidePlan, PolicyRefused
from zerosum.kernel import accountant
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Contribute, Contribution, Propose
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.records import ClippedRecords
from zerosum.statistics.vectors import VectorSum
from zerosum.study import execute, make_plan, pin


class Publish(Algorithm):
    """Everybody's clipped record, and the sum of all, from halves of the budget."""

    name: ClassVar[str] = "publish"

    def requests(self, adjacency: Adjacency) -> tuple[Request, ...]:
        columns = len(self.columns)
        records = ClippedRecords(columns=columns, clip=1.0)
        return PrivatePublication(records, 0.5), PrivateSum(VectorSum(columns=columns, clip=1.0), 0.5)

    def program(self, adjacency: Adjacency) -> Program:
        publication, total = self.requests(adjacency)
        release = yield publication
        by_site = release.by_site()
        last = yield total
        return {
            "records": Quantity(release.value, std=release.noise_std),
            "rows": Quantity(np.array([float(len(rows)) for rows in by_site.values()])),
            "sum": Quantity(last.value),
        }


QUESTION = Publish(columns=("a", "b"))
SIZES = (12, 20, 40, 30)


def make(scheme: str = "secure-sum", **changes: object) -> Plan:
    terms = Terms(
        sites=tuple(PlannedSite(f"s{i}", n) for i, n in enumerate(SIZES)),
        epsilon=5.0,
        delta=1e-5,
        scheme=Scheme(scheme),
        coalition=Coalition(1),
    )
    return make_plan(QUESTION, replace(terms, **changes), "test")  # type: ignore[arg-type]


def carry_out(plan: Plan, sites: list[Site]):  # type: ignore[no-untyped-def]
    return execute(pin(plan, sites), QUESTION, InProcess(sites))


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "pairwise", "zero-sum", "pooled", "non-private"])
def test_publication_of_every_scheme_has_own_noise_in_each_row(scheme: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path, publications=True)
    plan = make(scheme)
    result = carry_out(plan, sites)
    truth = np.vstack([ClippedRecords(columns=2, clip=1.0).rows(site.units) for site in sites])
    records = result.estimate["records"]
    assert records.shape == truth.shape
    assert result.estimate["rows"].tolist() == list(map(float, SIZES))
    std = float(np.max(np.asarray(records.std)))
    if scheme == "non-private":
        ends = np.cumsum(SIZES)[:-1]
        for here, there in zip(np.split(np.asarray(records), ends), np.split(truth, ends), strict=True):
            assert not np.array_equal(here, there)
            assert np.array_equal(here[np.lexsort(here.T)], there[np.lexsort(there.T)])
        return
    # of 204 draws, the mean square is within a third of the variance but once in 10^5
    assert (np.mean(np.asarray(records) ** 2) - np.mean(truth**2)) / std**2 == pytest.approx(1.0, rel=0.5)
    assert std == pytest.approx(2.0 / (accountant.mu_for(5.0, 1e-5) * np.sqrt(0.5)), rel=1e-3)  # nobody shares it
    for site, line in zip(sites, result.report.per_site, strict=True):
        with site.policy.open_ledger() as ledger:
            kinds = [entry.spend.kind for entry in ledger.entries()]
            assert kinds == ["publication", "sum"]
            assert ledger.epsilon(1e-5) == pytest.approx(line.epsilon, rel=1e-9)
    assert result.report.worst_epsilon <= 5.0 * (1 + 1e-9)
    assert any("published" in note for note in result.report.notes)


def test_publication_without_permission_of_policy_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    with pytest.raises(PolicyRefused, match="publications"):
        carry_out(make(), sites)
    assert not any(site.policy.ledger_path.exists() for site in sites)


def test_publication_in_place_of_planned_sum_is_refused(tmp_path: Path) -> None:
    site = make_sites(tmp_path, publications=True)[0]
    plan = make("local")
    summed = replace(plan, releases=tuple(replace(release, kind="sum") for release in plan.releases))
    site.handle(Propose(summed))
    with pytest.raises(OutsidePlan):
        site.handle(Contribute(0, 0, QUESTION.requests(Adjacency.REPLACE_ONE)[0]))
    assert not site._books().entries()


def test_publication_of_statistic_without_rows_is_refused(tmp_path: Path) -> None:
    site = make_sites(tmp_path, publications=True)[0]
    plan = make("local")
    wrong = replace(plan, releases=(replace(plan.releases[0], statistic="vector_sum"),))
    with pytest.raises(OutsidePlan, match="vector_sum"):
        site.handle(Propose(wrong))


def test_publication_without_declared_units_is_refused() -> None:
    with pytest.raises(BadParameter, match="units"):
        make(sites=tuple(PlannedSite(f"s{i}") for i in range(4)))
    with pytest.raises(BadParameter, match="replace-one"):
        make(sites=tuple(PlannedSite(f"s{i}") for i in range(4)), adjacency=Adjacency.ADD_REMOVE)


def test_publication_too_large_for_a_message_is_refused_by_the_plan() -> None:
    with pytest.raises(BadParameter):
        make(sites=tuple(PlannedSite(f"s{i}", 10**7 * 2) for i in range(4)))


def test_publication_order_of_rows_is_random(tmp_path: Path) -> None:
    """Sorted data would show by their place what their noise hides; every round has an order of its own."""
    units = Units.from_rows(np.column_stack([np.linspace(-1, 1, 500), np.zeros(500)]))
    plan = make(epsilon=37.0, sites=(PlannedSite("s0", 500), PlannedSite("s1", 500)))
    sites = [Site(name, units, Policy.throwaway(name, tmp_path / f"{name}.sqlite")) for name in ("s0", "s1")]
    rows = carry_out(plan, sites).estimate["records"].value
    places = np.arange(500)
    for part in (rows[:500], rows[500:]):
        assert abs(np.corrcoef(places, part[:, 0])[0, 1]) < 0.25
        # nobody is lost or doubled: quantiles are those of the data under their noise
        assert np.std(part[:, 0]) > 0.5
    assert abs(np.corrcoef(np.argsort(rows[:500, 0]), np.argsort(rows[500:, 0]))[0, 1]) < 0.25


def test_publication_replaced_unit_moves_own_row_only(tmp_path: Path) -> None:
    """The same seed in both worlds: the difference of the two publications is what the unit moved."""
    rows = np.random.default_rng(0).normal(size=(12, 2))
    sent = []
    for world, first in enumerate(([3.0, 4.0], [-3.0, -4.0])):
        table = rows.copy()
        table[0] = first
        site = make_sites(tmp_path / str(world), publications=True)[0]
        site = Site("s0", Units.from_rows(table), site.policy)
        plan = replace(make("local"), seed=1)
        site.handle(Propose(plan))
        reply = site.handle(Contribute(0, 0, QUESTION.requests(Adjacency.REPLACE_ONE)[0]))
        assert isinstance(reply, Contribution)
        assert isinstance(reply.payload, np.ndarray)
        sent.append(reply.payload * plan.law(0).step)
    apart = np.linalg.norm(sent[0] - sent[1], axis=1)
    apart = np.sort(apart)[::-1]  # the order in which units are published is no part of this
    assert not np.any(apart[1:])
    assert apart[0] == pytest.approx(2.0, rel=1e-3)
    assert apart[0] <= plan.law(0).site_sensitivity(plan.releases[0].sensitivity, 0)
