"""What a site does with sums and proposals that are not as they should be: nothing that tells of its data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.small_studies import carry_out, entries, make, make_sites
from zerosum.algorithms import Algorithm, Histogram
from zerosum.algorithms.program import Program
from zerosum.arrays import Array
from zerosum.errors import (
    BadData,
)
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency, BoundedStatistic
from zerosum.kernel.terms import PlannedRelease
from zerosum.kernel.units import Units
from zerosum.protocol.messages import Consent, Propose
from zerosum.site.site import Site
from zerosum.statistics import build, register
from zerosum.study import pin, run


class Overstated(BoundedStatistic):
    """A mistake: what a unit gives is far beyond its bound, is no number, or fails, as its first column says."""

    name: ClassVar[str] = "overstated_by_tests"

    @property
    def size(self) -> int:
        return self.columns

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Array:
        kinds = set(np.asarray(block.rows)[:, 0].tolist())
        if 3.0 in kinds:
            raise np.linalg.LinAlgError("did not converge for somebody")
        return np.full(self.columns, {1.0: 1e30, 2.0: math.nan}.get(max(kinds), 0.1) * len(block))


class AsksForMore(Algorithm):
    name: ClassVar[str] = "asks-for-more"

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(build("overstated_by_tests", {"columns": len(self.columns)})),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        return {"sum": Quantity(release.value)}


@pytest.mark.parametrize(
    ("kind", "sent"), [(0.0, 0.1 * math.sqrt(2)), (1.0, 1.0), (2.0, 0.1 * math.sqrt(2)), (3.0, 0.1 * math.sqrt(2))]
)
def test_a_sum_beyond_its_bound_is_scaled_to_it_and_nobody_outside_sees_that(
    tmp_path: Path, kind: float, sent: float
) -> None:
    register(Overstated)
    question = AsksForMore(columns=("a", "b"))
    units = Units.from_rows(np.full((20, 2), kind))
    sites = make_sites(tmp_path, statistics=("overstated_by_tests",))
    sites = [Site(site.name, units, site.policy) for site in sites]
    plan = make("local", releases=question.releases(Adjacency.REPLACE_ONE))
    for site in sites:
        total = site._total(site.units, build("overstated_by_tests", {"columns": 2}), plan.releases[0].bound)
        assert np.linalg.norm(total) == pytest.approx(20 * sent)
    carry_out(plan, sites, question=question)  # no refusal, and every site is charged, whatever its data are
    assert [entries(site) for site in sites] == [1, 1, 1, 1]


def test_a_unit_that_fails_counts_as_one_of_zeros_and_the_others_as_they_are() -> None:
    register(Overstated)
    rows = np.zeros((300, 2))
    rows[7, 0], rows[200, 0] = 3.0, 2.0
    total = build("overstated_by_tests", {"columns": 2}).total(Units.from_rows(rows))
    assert total == pytest.approx([0.1 * 300] * 2)


def test_no_proposal_after_another_finds_the_largest_code(tmp_path: Path) -> None:
    """What a coordinator chooses must not decide together with data whether a site consents."""
    rows = np.arange(20.0)[:, None]
    sites = [Site(site.name, Units.from_rows(rows), site.policy) for site in make_sites(tmp_path)]
    for bins in (5, 19, 20, 100):
        plan = make("local", releases=(PlannedRelease("histogram", math.sqrt(2), 1.0, bins, 1.0),))
        reply = sites[0].handle(Propose(pin(plan, sites)))
        assert isinstance(reply, Consent)
    question, data = Histogram(columns=("x",), values=("a", "b")), dict.fromkeys("abc", rows)
    with pytest.raises(BadData, match="outside the 2 declared categories"):  # whoever holds the data is told
        run(question, data, epsilon=1.0, delta=1e-5, unit="person")
