"""A study that is resumed more than once: what was asked under one set of keys is not continued under another."""

from __future__ import annotations

from pathlib import Path

import pytest

from small_studies import QUESTION, entries, make, make_sites
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Message, Secure
from zerosum.protocol.progress import Progress
from zerosum.site.site import Site
from zerosum.study import pin


class Stopped(Exception):
    """Somebody ends the coordinator."""


def test_a_coordinator_that_is_stopped_right_after_sites_made_new_keys_takes_another_attempt(tmp_path: Path) -> None:
    """Killed in a round; resumed while a site has restarted, so that all make new keys, and stopped before the round is
    asked again; resumed once more. The keys are those of the journal by then, and the round's are gone."""
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", attempts=1, coalition=Coalition(1, 1)), sites)
    program = QUESTION.program

    def killed(site: str, message: Message) -> bool:
        if isinstance(message, Secure) and message.step == "sign":
            raise Stopped
        return False

    def stopped(seen: Progress) -> None:
        if (seen.stage, seen.done) == ("set-up", 1):
            raise Stopped

    with Journal.create(tmp_path / "kept", plan) as journal, pytest.raises(Stopped):
        conduct(plan, program(plan.adjacency), InProcess(sites, killed), journal=journal)
    old = sites[0]
    old.close()
    sites[0] = Site(old.name, old.units, old.policy, old.identity)
    with Journal(tmp_path / "kept" / "journal") as journal, pytest.raises(Stopped):
        conduct(plan, program(plan.adjacency), InProcess(sites), stopped, journal)
    with Journal(tmp_path / "kept" / "journal") as journal:
        outcome = conduct(plan, program(plan.adjacency), InProcess(sites), journal=journal)
        assert journal.extra == 1
    assert outcome.participants == (("s0", "s1", "s2", "s3"),)
    assert [entries(site) for site in sites] == [2, 2, 2, 2]
