"""Consent holds budget back; a study that is dismissed, refused or quiet lets it go."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.site_service import REQUEST, lines, more_rounds, refused, serve, tell
from helpers.small_studies import make
from zerosum.errors import BudgetExceeded, Busy, NotAgreed
from zerosum.kernel.request import PrivateSum
from zerosum.protocol.messages import Consent, Contribute, Contribution, Dismiss, Dismissed, Propose, Refusal, Reply
from zerosum.site.decisions import Consents


def test_held_budget_of_consent_lasts_until_study_ends(tmp_path: Path) -> None:
    """Two studies that fit under the cap each and not together: the second is refused before anybody spends."""
    service, first, second = serve(tmp_path, epsilon=6.0), make("local"), make("local")
    assert isinstance(tell(service, first, Propose(first)), Consent)
    error = refused(tell(service, second, Propose(second)))
    assert isinstance(error, BudgetExceeded)
    assert "held" in str(error)
    assert "epsilon 5" in lines(tmp_path)[-1]["detail"]  # how much is not for others
    assert isinstance(tell(service, first, Propose(first)), Consent)  # its own does not stand in its way
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    error = refused(tell(service, second, Propose(second)))  # spent by now, and no longer held
    assert isinstance(error, BudgetExceeded)
    assert "held" not in str(error)
    assert len(service._ledger.entries()) == 1


def test_held_budget_shrinks_with_released_rounds(tmp_path: Path) -> None:
    """What a study has spent is in the ledger and is not held beside it: else 3.4 and 5 would not fit under 8."""
    first = replace(make("local"), epsilon=3.4)
    first, second = more_rounds(first), make("local")
    service = serve(tmp_path, epsilon=8.0)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    share = PrivateSum(REQUEST.statistic, share=0.5)
    assert isinstance(tell(service, first, Contribute(0, 0, share)), Contribution)
    assert isinstance(tell(service, second, Propose(second)), Consent)
    third = make("local")
    assert isinstance(refused(tell(service, third, Propose(third))), BudgetExceeded)
    for plan, message in ((first, Contribute(1, 0, share)), (second, Contribute(0, 0, REQUEST))):
        assert isinstance(tell(service, plan, message), Contribution)  # both were promised


def test_held_budget_is_released_after_refusal_or_silence(tmp_path: Path) -> None:
    first, second, third = make("local"), make("local"), make("local")
    service = serve(tmp_path, epsilon=6.0, hold=0.2)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(refused(tell(service, second, Propose(second))), BudgetExceeded)
    Consents(tmp_path).decide(first.digest(), "refused")
    assert isinstance(tell(service, second, Propose(second)), Consent)
    time.sleep(0.3)
    assert isinstance(tell(service, third, Propose(third)), Consent)
    assert isinstance(tell(service, third, Contribute(0, 0, REQUEST)), Contribution)
    assert isinstance(
        refused(tell(service, second, Contribute(0, 0, REQUEST))), BudgetExceeded
    )  # it came back too late
    assert len(service._ledger.entries()) == 1


@pytest.mark.parametrize("settle", [3600.0, 0.0])
def test_held_budget_of_unused_attempts_lasts_for_settle_time(settle: float, tmp_path: Path) -> None:
    first, second = make("local", attempts=1), make("local")
    service = serve(tmp_path, epsilon=7.0, settle=settle)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    reply = tell(service, second, Propose(second))
    assert isinstance(reply, Refusal if settle else Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)  # once more, which costs nothing
    reply = tell(service, first, Contribute(0, 1, REQUEST))
    assert isinstance(reply, Contribution if settle else Refusal)  # the second was promised it


def test_held_budget_and_place_of_dismissed_study_are_released(tmp_path: Path) -> None:
    service = serve(tmp_path, epsilon=6.0, studies=1)
    first, second = make("local"), make("local")
    assert isinstance(refused(tell(service, first, Dismiss())), NotAgreed)
    for plan, other in ((first, second), (second, first)):
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
        assert isinstance(refused(tell(service, other, Propose(other))), Busy)
        assert isinstance(tell(service, plan, Dismiss()), Dismissed)
        assert isinstance(refused(tell(service, plan, Contribute(0, 0, REQUEST))), NotAgreed)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    assert isinstance(tell(service, first, Dismiss()), Dismissed)
    assert "whole" in str(refused(tell(service, first, Propose(first))))  # what was spent stays spent


def test_held_budget_of_concurrent_consents_stays_within_cap(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, epsilon=9.0, studies=20), [make("local") for _ in range(12)]  # two fit
    replies: list[Reply] = []
    threads = [
        threading.Thread(target=lambda plan=plan: replies.append(tell(service, plan, Propose(plan)))) for plan in plans
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(reply, Consent) for reply in replies) == 2
    assert sum(isinstance(reply, Refusal) and isinstance(reply.error, BudgetExceeded) for reply in replies) == 10


def test_held_budget_full_site_is_busy_and_keeps_its_studies(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, studies=2), [make("local") for _ in range(3)]
    for plan in plans[:2]:
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Busy)
    assert isinstance(tell(service, plans[0], Contribute(0, 0, REQUEST)), Contribution)
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Busy)
    assert isinstance(tell(service, plans[0], Dismiss()), Dismissed)
    assert isinstance(tell(service, plans[2], Propose(plans[2])), Consent)
    assert isinstance(tell(service, plans[1], Contribute(0, 0, REQUEST)), Contribution)
    assert service.studies == 1


def test_held_budget_of_plan_no_longer_covered_is_released(tmp_path: Path) -> None:
    steward, plan, other = Consents(tmp_path), make("local", absences=1), make("local")
    for each in (plan, other):
        steward.decide(each.digest(), "approved")
    service, rest = serve(tmp_path, automatic=False, epsilon=6.0), plan.without(["s2"])
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, rest, Propose(rest)), Consent)
    assert isinstance(refused(tell(service, other, Propose(other))), BudgetExceeded)
    steward.decide(plan.digest(), "refused")
    assert isinstance(tell(service, other, Propose(other)), Consent)


def test_held_budget_of_silent_study_goes_to_later_ones(tmp_path: Path) -> None:
    first, second = more_rounds(make("local")), make("local")
    share = PrivateSum(REQUEST.statistic, share=0.5)
    service = serve(tmp_path, epsilon=6.0, hold=0.2)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    time.sleep(0.3)
    assert isinstance(tell(service, second, Propose(second)), Consent)
    for _ in range(2):  # to ask brings no claim back
        assert isinstance(refused(tell(service, first, Contribute(0, 0, share))), BudgetExceeded)
    assert isinstance(tell(service, second, Contribute(0, 0, REQUEST)), Contribution)
    assert len(service._ledger.entries()) == 1
