"""The secure sum over an engine: only the sum is readable, and a site lost while it is set up ends the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.audit.transcript import Recorder
from zerosum.coordinator.secure import SecureSums
from zerosum.errors import Abandoned
from zerosum.protocol.messages import Contribution, Message, Secure
from zerosum.study import execute, pin


def test_secure_sum_contributions_are_masked_and_distinct_bytes(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    recorder = Recorder(sites)
    plan = pin(make("secure-sum"), sites)
    from helpers.small_studies import QUESTION

    execute(plan, QUESTION, recorder)
    masked = [reply.payload for _, reply in recorder.seen if isinstance(reply, Contribution)]
    assert len(masked) == 4
    assert all(isinstance(payload, memoryview) for payload in masked)
    assert len({bytes(payload) for payload in masked if isinstance(payload, memoryview)}) == 4


@pytest.mark.parametrize("step", ["advertise", "share", "receive"])
def test_secure_sum_site_lost_in_set_up_ends_study_before_spending(step: str, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)

    def loses(site: str, message: Message) -> bool:
        return site == "s1" and isinstance(message, Secure) and message.step == step

    with pytest.raises(Abandoned):
        carry_out(make("secure-sum"), sites, loses)
    assert not any(site._books().entries() for site in sites)


def test_secure_sum_advertised_without_replies_is_none(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum"), sites)
    sums = SecureSums(plan, lambda messages: iter(()))
    assert sums.advertised() is None
