"""What a site does with sums and proposals that are not as they should be: nothing that tells of its data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.small_studies import QUESTION, carry_out, entries, make, make_sites
from zerosum.algorithms import Algorithm, HistogramProgram
from zerosum.algorithms.program import Program
from zerosum.arrays import Array
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.engines.in_process import InProcess
from zerosum.errors import (
    BadData,
    BadParameter,
    LedgerRefused,
    OutsidePlan,
    PolicyRefused,
    ZerosumError,
)
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.question import Question
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Message, Prepare, Propose, Reply
from zerosum.site.ledger import Ledger
from zerosum.site.site import Site
from zerosum.statistics import build, register
from zerosum.statistics.vectors import VectorSum
from zerosum.study import execute, pin, run


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
def test_site_sum_beyond_bound_is_scaled_and_charged_without_refusal(tmp_path: Path, kind: float, sent: float) -> None:
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


def test_statistic_failing_units_count_as_zeros_and_others_unchanged() -> None:
    register(Overstated)
    rows = np.zeros((300, 2))
    rows[7, 0], rows[200, 0] = 3.0, 2.0
    total = build("overstated_by_tests", {"columns": 2}).total(Units.from_rows(rows))
    assert total == pytest.approx([0.1 * 300] * 2)


def test_site_repeated_proposals_do_not_reveal_largest_code(tmp_path: Path) -> None:
    """What a coordinator chooses must not decide together with data whether a site consents."""
    rows = np.arange(20.0)[:, None]
    sites = [Site(site.name, Units.from_rows(rows), site.policy) for site in make_sites(tmp_path)]
    for bins in (5, 19, 20, 100):
        plan = make("local", releases=(PlannedRelease("histogram", math.sqrt(2), 1.0, bins, 1.0),))
        reply = sites[0].handle(Propose(pin(plan, sites)))
        assert isinstance(reply, Consent)
    question, data = HistogramProgram(columns=("x",), values=("a", "b")), dict.fromkeys("abc", rows)
    with pytest.raises(BadData, match="categories"):  # whoever holds the data is told
        run(question, data, epsilon=1.0, delta=1e-5, unit="person")


class RepeatingEngine(InProcess):
    """Asks a site again after an error of its ledger, as an engine that lost the connection would."""

    def __init__(self, sites: list[Site]) -> None:
        super().__init__(sites)
        self.sites = {site.name: site for site in sites}
        self.answers: list[Reply | ZerosumError] = []

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name, frame in frames.items():
            yield name, encode(self._answer(self.sites[name], decode_message(frame)))

    def _answer(self, site: Site, message: Message) -> Reply:
        for _ in range(2):
            try:
                reply = site.handle(message)
            except LedgerRefused as error:
                assert isinstance(message, Contribute)
                self.answers.append(error)
            else:
                if isinstance(message, Contribute):
                    self.answers.append(reply)
                return reply
        raise AssertionError("the ledger refused twice")


@pytest.mark.parametrize("scheme", ["secure-sum", "local", "zero-sum", "pairwise"])
def test_site_repeated_request_after_full_disk_charges_every_reply(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when a contribution is to be charged, and the coordinator asks again."""
    sites = make_sites(tmp_path)
    engine = RepeatingEngine(sites)
    record, refusals = Ledger.record, iter([True])

    def full(self: Ledger, *arguments: object) -> object:
        if next(refusals, False):
            raise LedgerRefused("the disk is full")
        return record(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Ledger, "record", full)
    try:
        execute(pin(make(scheme), sites), QUESTION, engine)
    except ZerosumError:
        assert scheme in ("zero-sum", "pairwise")  # what had been prepared is used up: the round is over
    assert isinstance(engine.answers[0], LedgerRefused)
    answered = [reply.site for reply in engine.answers if isinstance(reply, Contribution)]
    for site in sites:
        with site.policy.open_ledger() as ledger:
            assert len(ledger.entries()) == answered.count(site.name)


def test_site_prepare_twice_gives_same_reply(tmp_path: Path) -> None:
    """A second key or a second draw for one round would be noise that other sites do not know."""
    sites = make_sites(tmp_path)
    sites[0].handle(Propose(pin(make("pairwise"), sites)))
    assert sites[0].handle(Prepare(0, 0)) is sites[0].handle(Prepare(0, 0))


def test_site_with_a_seed_has_other_noise_in_every_round(tmp_path: Path) -> None:
    plan = make("local", seed=7)
    site = make_sites(tmp_path)[0]
    plan = replace(plan, releases=(replace(plan.releases[0], share=0.5),) * 2)
    first, second, again = (site._share(plan, round, 0)[1]._sampler.words(8).tolist() for round in (0, 1, 0))
    assert first == again
    assert not set(first) & set(second)


def test_site_of_people_with_several_rows_refuses_a_study_of_records(tmp_path: Path) -> None:
    people = Units.from_list([np.zeros((1, 2))] * 19 + [np.zeros((2, 2))])
    sites = make_sites(tmp_path, unit="record")
    sites[0] = Site("s0", people, sites[0].policy)
    with pytest.raises(PolicyRefused, match="rows"):
        carry_out(make("secure-sum", unit="record"), sites)
    assert not any((tmp_path / f"{s}.sqlite").exists() for s in range(4))


def test_site_request_above_planned_sensitivity_is_refused(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("local"), sites)
    request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
    wider = PrivateSum(VectorSum(**request.statistic.parameters() | {"clip": 1.5}), request.share)
    with pytest.raises(OutsidePlan, match="sensitivity"):
        sites[0]._fits(plan, 0, wider)


def test_site_without_the_module_of_a_plan_refuses_before_a_charge(tmp_path: Path) -> None:
    site = make_sites(tmp_path, statistics=("module_gradient",))[0]
    asked = PlannedRelease("module_gradient", 2.0, 1.0, 3, 1.0)
    plan = make("local", releases=(asked,), question=Question(parameters={"model": "unregistered"}))
    with pytest.raises(BadParameter, match="module"):
        site.handle(Propose(plan))
    assert entries(site) == 0
