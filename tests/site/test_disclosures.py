"""What a site tells outside of noisy sums: nothing that depends on a row. The fuzzer in tests/differential searches for
more of this kind."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.site_service import refused, serve, tell
from helpers.small_studies import make, make_sites
from zerosum.algorithms import HistogramProgram
from zerosum.compute.units import Units
from zerosum.data.formats import readable
from zerosum.errors import BadParameter, LedgerRefused, PolicyRefused
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease, PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Consent, Contribute, Contribution, Propose
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.records import LabelledRecords
from zerosum.statistics.vectors import VectorSum
from zerosum.study import make_plan

TERMS = Terms(
    sites=tuple(PlannedSite(f"s{i}", 40) for i in range(4)),
    epsilon=5.0,
    delta=1e-5,
    scheme=Scheme("local"),
    coalition=Coalition(1),
)


def site(folder: Path, rows: Any, **policy: Any) -> Site:
    settings: dict[str, Any] = {"data": "synthetic", "epsilon": 100.0, "ledger": folder / "ledger.sqlite", **policy}
    return Site("s0", rows if isinstance(rows, Units) else Units.from_rows(rows), Policy(population="p", **settings))


def test_code_outside_the_declared_ones_is_answered_like_any_other(tmp_path: Path) -> None:
    question = HistogramProgram(columns=("dx",), values=("asthma", "none"))
    plan, codes = make_plan(question, TERMS, "codes"), np.zeros((40, 1))
    codes[3] = 7.0
    asked = site(tmp_path, codes)
    assert isinstance(asked.handle(Propose(plan)), Consent)
    reply = asked.handle(Contribute(0, 0, question.requests(Adjacency.REPLACE_ONE)[0]))
    assert isinstance(reply, Contribution)


def test_consent_under_add_remove_has_no_number_of_units(tmp_path: Path) -> None:
    terms = replace(TERMS, adjacency=Adjacency.ADD_REMOVE, sites=tuple(PlannedSite(f"s{i}") for i in range(4)))
    plan = make_plan(HistogramProgram(columns=("dx",), values=("asthma", "none")), terms, "codes")
    asked = site(tmp_path, np.zeros((40, 1)), adjacency="add-remove")
    assert asked.handle(Propose(plan)) == Consent("s0", None)


def test_few_units_under_add_remove_are_refused_at_the_desk_only(tmp_path: Path) -> None:
    terms = replace(TERMS, adjacency=Adjacency.ADD_REMOVE, sites=tuple(PlannedSite(f"s{i}") for i in range(4)))
    plan = make_plan(HistogramProgram(columns=("dx",), values=("asthma", "none")), terms, "codes")
    asked = site(tmp_path, np.zeros((3, 1)), adjacency="add-remove", minimum_units=10)
    assert isinstance(asked.handle(Propose(plan)), Consent)
    with pytest.raises(PolicyRefused, match="10 units"):
        asked.check_data()


def test_contribution_that_fails_is_charged_and_not_answered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory for one unit's rows: the failure depends on data, so it costs what the release would have cost."""
    plan = make_plan(HistogramProgram(columns=("dx",), values=("asthma", "none")), TERMS, "codes")
    asked = site(tmp_path, np.zeros((40, 1)))
    asked.handle(Propose(plan))
    request = HistogramProgram(columns=("dx",), values=("asthma", "none")).requests(Adjacency.REPLACE_ONE)[0]

    def full(self: object, units: Units) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(type(request.statistic), "total", full)
        with pytest.raises(MemoryError):
            asked.handle(Contribute(0, 0, request))
    with asked.policy.open_ledger() as ledger:
        assert len(ledger.entries()) == 1
    with pytest.raises(LedgerRefused):
        asked.handle(Contribute(0, 0, request))


@pytest.mark.parametrize("cause", [MemoryError(), OSError(errno.ENOMEM, "no memory"), np.exceptions.AxisError("x")])
def test_data_that_memory_cannot_hold_are_a_fault_of_the_site(cause: Exception, tmp_path: Path) -> None:
    """In earlier versions it was the refusal of data that do not fit, which ended the study."""

    def load(plan: Plan) -> Units:
        with readable(tmp_path / "data.npz", np.exceptions.AxisError):
            raise cause

    service = serve(tmp_path, load=load)
    plan = make(epsilon=1.0)
    error = refused(tell(service, plan, Propose(plan)))
    assert error.code == ("BadData" if isinstance(cause, np.exceptions.AxisError) else "SiteFault")
    assert "data.npz" not in str(error)
    service.close()


def labelled(**part: Any) -> LabelledRecords:
    features = {"kind": "linear", "lower": [-1.0, -1.0], "upper": [1.0, 1.0]}
    return LabelledRecords(columns=3, features=features, classes=2, center=np.zeros(2), projection=np.eye(2), **part)


def test_publication_of_a_part_of_the_units_is_refused_before_any_data_are_used() -> None:
    assert PrivatePublication(labelled()).statistic.every_unit
    for part in ("fitted", "held-out"):
        with pytest.raises(BadParameter, match="unit"):
            PrivatePublication(labelled(part=part, hold_out=0.5))


def test_publication_whose_rows_are_too_few_has_the_declared_number_of_rows(tmp_path: Path) -> None:
    """A map that breaks its promise and leaves units out: the message's size stays public."""

    class Leaving(LabelledRecords):
        @property
        def every_unit(self) -> bool:
            return True

    statistic = labelled()
    release = PlannedRelease(
        statistic.name,
        statistic.sensitivity(Adjacency.REPLACE_ONE),
        1.0,
        statistic.size,
        statistic.sensitivity(Adjacency.ADD_REMOVE),
        3,
        "publication",
    )
    plan = Plan.of(TERMS, "p", "test", (release,))
    rows = np.random.default_rng(0).uniform(-1, 1, size=(40, 3))
    asked = site(tmp_path, rows, publications=True)
    asked.handle(Propose(plan))
    leaving = Leaving(**labelled(part="fitted", hold_out=0.5).parameters())
    reply = asked.handle(Contribute(0, 0, PrivatePublication(leaving)))
    assert isinstance(reply, Contribution)
    assert np.shape(reply.payload) == (40, statistic.size)


def test_attempt_of_a_sampled_phase_is_charged_at_the_planned_rate(tmp_path: Path) -> None:
    statistic, sampling = VectorSum(columns=2, clip=1.0), Sampling(0.5, 3)
    release = PlannedRelease("vector_sum", 2.0, 1.0, 2, 1.0, 2, "sum", sampling)
    terms = replace(TERMS, sites=tuple(PlannedSite(f"s{i}") for i in range(4)))
    plan = Plan.of(replace(terms, attempts=1), "p", "test", (release,))
    asked = make_sites(tmp_path)[0]
    asked.handle(Propose(plan))
    for round, attempt in ((0, 0), (0, 1), (1, 0)):
        asked.handle(Contribute(round, attempt, PrivateSum(statistic, 1.0, sampling)))
    with asked.policy.open_ledger() as ledger:
        spends = [entry.spend for entry in ledger.entries()]
    mu = float(plan.mus(0)[0])
    assert [(spend.rate, spend.steps, spend.mu) for spend in spends] == [(0.5, 3, mu), (0.5, 1, mu)]
