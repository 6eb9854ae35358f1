"""Phases in the ledger: reserved once and drawn down; rounds of a study go forward, under one plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.ledger_spends import ACCOUNT, CAP, spend
from helpers.small_studies import make_sites
from zerosum.algorithms.program import planned
from zerosum.errors import LedgerRefused
from zerosum.kernel.accountant import compose, epsilon
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition, worst_mu
from zerosum.protocol.messages import Contribute, Propose
from zerosum.site.ledger import Ledger
from zerosum.statistics.vectors import VectorSum


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "l.sqlite"


def test_ledger_phase_is_charged_once_and_drawn_step_by_step(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.5), CAP, "aa")
        reserved = ledger.record(spend(1, 0.1, steps=4), CAP, "aa")
        before = ledger.epsilon(1e-5)
        assert before == pytest.approx(epsilon(compose([0.5] + [0.1] * 4), 1e-5))
        drawn = [ledger.draw("s", round, 0, "c0ffee", "aa") for round in (2, 3)]
        ledger.record(spend(3, 0.1, attempt=1), CAP, "aa")  # once more: charged again, and the phase goes on
        drawn.append(ledger.draw("s", 4, 0, "c0ffee", "aa"))
        assert [each.reservation for each in drawn] == [reserved.number] * 3
        with pytest.raises(LedgerRefused, match="step"):
            ledger.draw("s", 5, 0, "c0ffee", "aa")
        assert ledger.mu == pytest.approx(compose([0.5] + [0.1] * 5))
    with Ledger.inspect(path) as ledger:
        assert ledger.draws() == drawn
        assert [entry.spend.steps for entry in ledger.entries()] == [1, 4, 1]
        assert [entry.plan for entry in ledger.entries()] == ["aa"] * 3
        assert ledger.verify() == 6
        with pytest.raises(LedgerRefused, match=r"Ledger\.open"):
            ledger.draw("s", 5, 0, "c0ffee", "aa")


def test_ledger_rounds_of_plan_go_forward_and_attempts_are_used_once(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(3), CAP, "aa")
        for turn, word in ((spend(3), "round 4"), (spend(2), "round 3"), (spend(2, attempt=1), "round 3")):
            with pytest.raises(LedgerRefused, match=word):
                ledger.record(turn, CAP, "aa")
        ledger.record(spend(3, attempt=2), CAP, "aa")
        for turn in (spend(3, attempt=1), spend(3, attempt=2), spend(4, attempt=2)):
            with pytest.raises(LedgerRefused, match="attempt"):
                ledger.record(turn, CAP, "aa")
        ledger.record(spend(4, attempt=3), CAP, "aa")
        assert ledger.verify() == 3


def test_ledger_other_plan_under_same_study_is_refused(path: Path) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, steps=5), CAP, "aa")
        ledger.record(spend(0, study="of old"), CAP)  # nobody said under which plan
        for study, plan in (("s", "bb"), ("of old", "aa")):
            for refused in (
                lambda study=study, plan=plan: ledger.standing(study, plan),
                lambda study=study, plan=plan: ledger.draw(study, 1, 0, "c0ffee", plan),
                lambda study=study, plan=plan: ledger.record(spend(1, study=study), CAP, plan),
            ):
                with pytest.raises(LedgerRefused, match="plan"):
                    refused()
        assert ledger.standing("s", "aa").round == 0
        assert ledger.standing("new", "bb").round == -1
        assert ledger.verify() == 2


def test_reservation_of_reopened_ledger_is_drawn_no_further_than_paid(
    path: Path,
) -> None:
    with Ledger.open(path, ACCOUNT) as ledger:
        ledger.record(spend(0, 0.1, steps=3), CAP, "aa")
    for round in (1, 2):
        with Ledger.open(path, ACCOUNT) as ledger:
            ledger.draw("s", round, 0, "c0ffee", "aa")
    for _ in range(2):
        with Ledger.open(path, ACCOUNT) as ledger:
            with pytest.raises(LedgerRefused, match="step"):
                ledger.draw("s", 3, 0, "c0ffee", "aa")
            assert len(ledger.draws()) == 2
            assert ledger.verify() == 3


@pytest.mark.slow  # test_disclosures.py has a shorter one
def test_ledger_attempt_of_sampled_phase_is_charged_one_step_at_rate_of_phase(tmp_path: Path) -> None:
    step = PrivateSum(VectorSum(columns=2, clip=1.0), sampling=Sampling(0.25, 2))
    terms = Terms(
        sites=tuple(PlannedSite(f"s{i}") for i in range(4)),
        epsilon=30.0,  # where accounting takes a second
        delta=1e-5,
        scheme=Scheme("local"),
        coalition=Coalition(1),
        attempts=1,
    )
    plan = Plan.of(terms, "sampled", "mean", (planned(step, Adjacency.REPLACE_ONE),))
    site = make_sites(tmp_path, epsilon=1000.0)[0]
    site.handle(Propose(plan))
    for round, attempt in ((0, 0), (0, 1), (1, 0)):
        site.handle(Contribute(round, attempt, step))
    mu = float(worst_mu(plan.law(0), step.statistic.sensitivity(Adjacency.ADD_REMOVE), plan.coalition)[0])
    with site.policy.open_ledger() as ledger:
        charged = [
            (e.spend.round, e.spend.attempt, e.spend.steps, e.spend.rate, e.charged_mu) for e in ledger.entries()
        ]
        assert charged == [(0, 0, 2, 0.25, mu), (0, 1, 1, 0.25, mu)]
        assert [(draw.round, draw.attempt) for draw in ledger.draws()] == [(1, 0)]
    site.close()
