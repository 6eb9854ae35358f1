"""Sites that restart in the middle of a study: what was answered is not answered again, and what was paid for is
continued under the plan that paid for it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from helpers.small_studies import make_sites
from zerosum.algorithms.program import Algorithm, Program
from zerosum.cli import _run
from zerosum.errors import BudgetExceeded, LedgerRefused, OutsidePlan
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Contribute, Contribution, Propose
from zerosum.protocol.roster import roster, slot
from zerosum.site.site import Site
from zerosum.statistics.vectors import VectorSum
from zerosum.study import make_plan, pin


class Walk(Algorithm):
    """Two plain sums, and a phase of full batches between them."""

    name: ClassVar[str] = "walk"
    steps: int = 4

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        statistic = VectorSum(columns=len(self.columns), clip=1.0)
        phase = PrivateSum(statistic, 0.5, Sampling(1.0, self.steps))
        return PrivateSum(statistic, 0.25), phase, PrivateSum(statistic, 0.25)

    def program(self, adjacency: Adjacency) -> Program:
        first, step, last = self.requests(adjacency)
        seen = []
        for request in (first, *[step] * self.steps, last):
            release = yield request
            seen.append(release.value)
        return {"sums": Quantity(np.array(seen))}


QUESTION = Walk(columns=("a", "b"))
FIRST, STEP, LAST = QUESTION.requests(Adjacency.REPLACE_ONE)


def make(scheme: str = "local", **changes: object) -> Plan:
    sites = tuple(PlannedSite(f"s{i}") for i in range(4))
    terms = Terms(sites=sites, epsilon=2.0, delta=1e-5, scheme=Scheme(scheme), coalition=Coalition(1))
    return make_plan(QUESTION, replace(terms, **changes), "test")  # type: ignore[arg-type]


def restarted(site: Site) -> Site:
    """The same site in a new process: its data, its policy with its ledger, its identity."""
    site.close()
    return Site(site.name, site.units, site.policy, site.identity)


def keys(site: Site) -> list[tuple[int, int]]:
    with site.policy.open_ledger() as ledger:
        charged = [(entry.spend.round, entry.spend.attempt) for entry in ledger.entries()]
        return charged + [(step.round, step.attempt) for step in ledger.draws()]


def ask(site: Site, round: int, attempt: int = 0) -> Contribution:
    request = FIRST if round == 0 else LAST if round == 5 else STEP
    reply = site.handle(Contribute(round, attempt, request))
    assert isinstance(reply, Contribution)
    return reply


def test_restarted_site_goes_on_from_ledger(tmp_path: Path) -> None:
    site, plan = make_sites(tmp_path)[0], make()
    for round in range(6):
        site = restarted(site)
        site.handle(Propose(plan))
        for over in range(round):
            with pytest.raises(LedgerRefused, match=f"round {over + 1}"):
                ask(site, over)
        ask(site, round)
    site = restarted(site)
    with pytest.raises(LedgerRefused, match="study"):
        site.handle(Propose(plan))
    assert sorted(keys(site)) == [(round, 0) for round in range(6)]
    with site.policy.open_ledger() as ledger:
        assert [(entry.spend.round, entry.spend.steps) for entry in ledger.entries()] == [(0, 1), (1, 4), (5, 1)]
        assert ledger.epsilon(1e-5) == pytest.approx(plan.site_epsilon(0), rel=1e-9)
        assert ledger.epsilon(1e-5) <= 2.0


def test_site_finished_round_is_not_answered_again(tmp_path: Path) -> None:
    """Neither by the same site nor by one that restarted, under no attempt that the plan does not have."""
    site, plan = make_sites(tmp_path)[0], make()
    site.handle(Propose(plan))
    for round in range(4):
        ask(site, round)
    for asked in (site, restarted(site)):
        asked.handle(Propose(plan))
        for round in range(4):
            with pytest.raises(LedgerRefused):
                ask(asked, round)
            with pytest.raises(OutsidePlan, match="plan"):
                ask(asked, round, 1)
    assert len(keys(site)) == 4


def test_site_reserved_phase_is_not_continued_under_other_plan(tmp_path: Path) -> None:
    """A coordinator that has a phase paid for at much noise proposes the same study with less for the rest of it."""
    site, plan = make_sites(tmp_path)[0], make()
    site.handle(Propose(plan))
    ask(site, 0)
    ask(site, 1)
    for changes in ({"epsilon": 50.0}, {"attempts": 3}, {"seed": 1}, {"coalition": Coalition(2)}):
        for asked in (site, restarted(site)):
            with pytest.raises(LedgerRefused, match="plan"):
                asked.handle(Propose(replace(plan, **changes)))
    # nor may a site that agreed to the other plan in time answer under it, once the ledger knows the first
    late = restarted(site)
    late._plan = replace(plan, epsilon=50.0)
    with pytest.raises(LedgerRefused, match="plan"):
        ask(late, 2)
    site = restarted(site)
    site.handle(Propose(plan))
    ask(site, 2)
    assert sorted(keys(site)) == [(0, 0), (1, 0), (2, 0)]


def test_site_attempts_have_new_noise_and_are_charged_within_plan(tmp_path: Path) -> None:
    site, plan = make_sites(tmp_path)[0], make(attempts=2)
    site.handle(Propose(plan))
    first = ask(site, 0)
    again = ask(site, 0, 1)
    assert not np.any(first.payload == again.payload)  # fresh noise; alike by chance once in millions of runs
    assert ask(site, 0, 1) is again
    with pytest.raises(LedgerRefused, match="attempt 2"):
        ask(site, 1, 1)
    ask(site, 1)
    ask(site, 2, 2)
    for message in ((1, 2), (2, 2), (3, 3)):
        with pytest.raises((LedgerRefused, OutsidePlan)):
            ask(restarted_under(plan, site), *message)
    with site.policy.open_ledger() as ledger:
        charged = [(entry.spend.round, entry.spend.attempt, entry.spend.steps) for entry in ledger.entries()]
        assert charged == [(0, 0, 1), (0, 1, 1), (1, 0, 4), (2, 2, 1)]


def restarted_under(plan: Plan, site: Site) -> Site:
    again = restarted(site)
    again.handle(Propose(plan))
    return again


@pytest.mark.parametrize("dear", [0, 1, 5])
def test_site_all_attempts_in_one_round_stay_within_plan(dear: int, tmp_path: Path) -> None:
    """Round 0 or 5 is the dearest; at every site what its ledger comes to is at most what was planned."""
    for s, site in enumerate(make_sites(tmp_path)):
        plan = make(attempts=3)
        site.handle(Propose(plan))
        for round in range(6):
            ask(site, round)
            for attempt in (1, 2, 3) if round == dear else ():
                ask(site, round, attempt)
        with site.policy.open_ledger() as ledger:
            spent = ledger.epsilon(1e-5)
        assert spent <= plan.site_epsilon(s) * (1 + 1e-12) <= 2.0 * (1 + 1e-12)
        assert spent > (1.6 if dear == 1 else 2.0 * (1 - 1e-6))


def test_site_consent_checks_cost_still_to_be_paid_with_attempts(tmp_path: Path) -> None:
    plan = make(attempts=3)
    site = make_sites(tmp_path, epsilon=2.0)[0]
    for round in range(6):
        site = restarted(site)
        site.handle(Propose(plan))
        ask(site, round)
        if round == 0:
            ask(site, 0, 1)
    assert site.policy.cap.epsilon == 2.0
    poor = make_sites(tmp_path / "poor", epsilon=1.9)[0]
    without = replace(plan, attempts=0, epsilon=1.5)
    poor.handle(Propose(without))
    with pytest.raises(BudgetExceeded):
        poor.handle(Propose(plan))


def test_ledger_show_has_one_line_for_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site, plan = make_sites(tmp_path)[0], make(attempts=1)
    site.handle(Propose(plan))
    for turn in ((0, 0), (1, 0), (2, 0), (2, 1), (3, 0)):
        ask(site, *turn)
    site.close()
    assert _run(["ledger", "show", str(site.policy.ledger_path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(entry["drawn"], entry["spend"]["steps"]) for entry in record["entries"]] == [(1, 1), (3, 4), (1, 1)]
    assert {entry["plan"] for entry in record["entries"]} == {plan.digest()}
    assert record["epsilon"] <= 2.0
    assert _run(["ledger", "show", str(site.policy.ledger_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("3 of 4") == 1
    assert len(re.findall(r"\d of \d", shown)) == 1
    assert _run(["ledger", "verify", str(site.policy.ledger_path)]) == 0


def test_site_other_attempt_has_other_sample(tmp_path: Path) -> None:
    """With a seed, which would give the same one again; without noise, which would hide it."""
    site = make_sites(tmp_path, sizes=(400, 1, 1, 1))[0]
    step = replace(STEP, sampling=Sampling(0.5, 4))
    plan = replace(make("non-private", attempts=2, seed=5))
    totals = [site._values(plan, 1, attempt, step, bytes(32)).tolist() for attempt in (0, 1, 2, 0)]
    assert totals[0] == totals[3]
    assert len({tuple(total) for total in totals}) == 3


def test_secure_sum_every_attempt_has_own_key_slot(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", attempts=3), sites)
    slots = [slot(plan, round, 0) for round in range(plan.rounds)] + [slot(plan, 2, attempt) for attempt in (1, 2, 3)]
    assert sorted(slots) == list(range(roster(plan).attempts))
