"""Slow accounting keeps nobody else waiting, and what is decided under locks is decided about the state inside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.ledger_spends import ACCOUNT, CAP, spend
from helpers.site_service import REQUEST, refused, serve, tell
from helpers.small_studies import make
from zerosum.errors import BudgetExceeded
from zerosum.kernel import accountant, phases
from zerosum.kernel.computed_once import computed_once
from zerosum.kernel.events import Sampling, Subsampled
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.protocol.messages import Consent, Contribute, Contribution, Propose, Refusal
from zerosum.site import ledger_records
from zerosum.site.accounting import MOST_REPEATS, accounted, decided
from zerosum.site.ledger import Ledger

PATIENCE = 120.0  # seconds until a test that would hang fails instead
SAMPLING = Sampling(0.25, 6)


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    for cache in (phases.step_mu, phases.step_mus, accountant._composed, ledger_records._mixed_epsilon):
        cache.cache_clear()


def sampled(sampling: Sampling = SAMPLING) -> Plan:
    """At a small epsilon, which is quick to account."""
    plan = make("local", epsilon=0.5)
    return replace(plan, releases=(replace(plan.releases[0], sampling=sampling),))


class Gate:
    """Makes calls wait, from when it is closed to when it is opened."""

    def __init__(self) -> None:
        self._open, self.reached = threading.Event(), threading.Event()
        self._open.set()

    def close(self) -> None:
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def wait(self) -> None:
        if not self._open.is_set():
            self.reached.set()
            assert self._open.wait(PATIENCE)


def slow_calibration(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    real = accountant.trial_epsilon

    def slow(*args: Any) -> float:
        gate.wait()
        return real(*args)

    monkeypatch.setattr(phases, "trial_epsilon", slow)


def slow_totals(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Of ledgers; those without sub-sampled releases are as fast as ever."""
    real = accountant.mixed_curve

    def slow(mu: float, sampled: Iterable[Subsampled]) -> Callable[[float], float]:
        if sampled := tuple(sampled):
            gate.wait()
        return real(mu, sampled)

    monkeypatch.setattr(ledger_records, "mixed_curve", slow)


@contextmanager
def threads(gate: Gate) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        try:
            yield pool
        finally:
            gate.open()


@pytest.mark.parametrize("slow", [slow_calibration, slow_totals])
def test_site_proposal_is_answered_during_accounting_of_another(
    slow: Callable[[pytest.MonkeyPatch, Gate], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, first, second, gate = serve(tmp_path), sampled(), make("local"), Gate()
    slow(monkeypatch, gate)
    gate.close()
    with threads(gate) as pool:
        waiting = pool.submit(tell, service, first, Propose(first))
        assert gate.reached.wait(PATIENCE)
        for message, kind in ((Propose(second), Consent), (Contribute(0, 0, REQUEST), Contribution)):
            assert isinstance(pool.submit(tell, service, second, message).result(PATIENCE), kind)
        assert not waiting.done()
        gate.open()
        assert isinstance(waiting.result(PATIENCE), Consent)
    assert isinstance(
        tell(service, first, Contribute(0, 0, PrivateSum(REQUEST.statistic, 1.0, SAMPLING))), Contribution
    )


def test_site_contribution_is_answered_during_charge_of_other_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the charge that waited is held against the ledger as it is by then."""
    service, phase, others, gate = serve(tmp_path), sampled(), [make("local"), make("local")], Gate()
    slow_totals(monkeypatch, gate)
    for plan in (phase, *others):
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, others[0], Contribute(0, 0, REQUEST)), Contribution)
    ledger_records._mixed_epsilon.cache_clear()  # the total was known since the proposals
    gate.close()
    with threads(gate) as pool:
        step = Contribute(0, 0, PrivateSum(REQUEST.statistic, 1.0, SAMPLING))
        waiting = pool.submit(tell, service, phase, step)
        assert gate.reached.wait(PATIENCE)
        reply = pool.submit(tell, service, others[1], Contribute(0, 0, REQUEST)).result(PATIENCE)
        assert isinstance(reply, Contribution)
        assert not waiting.done()
        gate.open()
        assert isinstance(waiting.result(PATIENCE), Contribution)
    assert [entry.spend.study for entry in service._ledger.entries()] == [
        *(plan.study for plan in others),
        phase.study,
    ]


def test_site_two_studies_accounted_at_once_do_not_both_pass_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both know that they fit on their own before either is agreed to."""
    plans = [sampled(), sampled(Sampling(0.2, 6))]  # different, or one accounting would serve both
    service, both, real = serve(tmp_path, epsilon=0.6), threading.Barrier(2), accountant.mixed_curve
    seen: set[tuple[Subsampled, ...]] = set()

    def slow(mu: float, sampled: Iterable[Subsampled]) -> Callable[[float], float]:
        curve, alone = real(mu, sampled := tuple(sampled)), len(sampled) == 1 and sampled not in seen
        if alone:
            seen.add(sampled)
            both.wait(PATIENCE)
        return curve

    monkeypatch.setattr(ledger_records, "mixed_curve", slow)
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda plan: tell(service, plan, Propose(plan)), plans))
    agreed = [reply for reply in replies if isinstance(reply, Consent)]
    (other,) = [reply for reply in replies if isinstance(reply, Refusal)]
    assert len(agreed) == 1
    assert isinstance(refused(other), BudgetExceeded)


def test_ledger_two_phases_recorded_at_once_do_not_both_pass_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spends = [replace(spend(0, 0.5, study=name), rate=rate, steps=6) for name, rate in (("a", 0.25), ("b", 0.2))]
    alone = max(ledger_records.Total().plus([(each, each.mu)]).epsilon(CAP.delta) for each in spends)
    cap = replace(CAP, epsilon=alone * 1.01)
    ledger_records._mixed_epsilon.cache_clear()
    both, real, seen = threading.Barrier(2), accountant.mixed_curve, set()

    def slow(mu: float, sampled: Iterable[Subsampled]) -> Callable[[float], float]:
        sampled = tuple(sampled)
        if len(sampled) == 1 and sampled not in seen:
            seen.add(sampled)
            both.wait(PATIENCE)
        return real(mu, sampled)

    monkeypatch.setattr(ledger_records, "mixed_curve", slow)

    def record(index: int) -> bool:
        try:
            ledger.record(spends[index], cap)
        except BudgetExceeded:
            return False
        return True

    with Ledger.open(tmp_path / "l.sqlite", ACCOUNT) as ledger, ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(record, range(2))) == [False, True]
        assert len(ledger.entries()) == 1


def test_site_plan_decoded_again_is_not_accounted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, plan = serve(tmp_path, study_epsilon=0.5), sampled()
    assert isinstance(tell(service, plan, Propose(plan)), Consent)

    def never(*args: object) -> Any:
        raise AssertionError("accounted again")

    monkeypatch.setattr(accountant, "_compose", never)
    again = Plan.from_json(plan.to_json())
    assert again is not plan
    assert isinstance(tell(service, again, Propose(again)), Consent)
    assert again.mus(0).tolist() == plan.mus(0).tolist()


def test_site_plan_proposed_by_several_threads_is_calibrated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, plan, gate, real = serve(tmp_path), sampled(), Gate(), accountant.trial_epsilon
    trials: list[tuple[Subsampled, ...]] = []

    def slow(mu: float, events: Iterable[Subsampled], delta: float) -> float:
        gate.wait()
        trials.append(events := tuple(events))
        return real(mu, events, delta)

    monkeypatch.setattr(phases, "trial_epsilon", slow)
    gate.close()
    with threads(gate) as pool:
        replies = [pool.submit(tell, service, plan, Propose(Plan.from_json(plan.to_json()))) for _ in range(3)]
        assert gate.reached.wait(PATIENCE)
        gate.open()
        assert all(isinstance(each.result(PATIENCE), Consent) for each in replies)
    assert len(trials) == len(set(trials))


def test_decision_with_changing_state_is_accounted_inside_lock_at_last() -> None:
    lock, inside, states = threading.RLock(), [], iter(range(100))

    @computed_once(maxsize=100)
    def value(state: int) -> int:
        inside.append(lock._is_owned())  # type: ignore[attr-defined]
        return state

    def decide() -> int:
        with lock:
            return accounted(value, next(states))

    assert decided(decide) == MOST_REPEATS
    assert inside == [False] * MOST_REPEATS + [True]


def test_decision_inside_another_is_accounted_by_outer_one() -> None:
    lock, inside = threading.RLock(), []

    @computed_once(maxsize=4)
    def value(state: int) -> int:
        inside.append(lock._is_owned())  # type: ignore[attr-defined]
        return state

    def outer() -> int:
        with lock:
            return decided(lambda: accounted(value, 7))

    assert decided(outer) == 7
    assert inside == [False]
