"""More studies than sessions: a queue, no session that ends before its study, and coordinators that all finish."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.site_service import REQUEST, refused, serve, tell
from helpers.small_studies import QUESTION, make
from zerosum.coordinator.consent import dismiss, gather
from zerosum.errors import Busy, NotAgreed
from zerosum.kernel.plan import Plan
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import Frame
from zerosum.protocol.messages import Consent, Contribute, Contribution, Dismiss, Dismissed, Propose
from zerosum.secagg.keys import Identity
from zerosum.site import service as service_module
from zerosum.site.service import Service
from zerosum.study import execute


def test_admission_study_after_its_last_round_is_not_evicted(tmp_path: Path) -> None:
    """Its list is still to be signed and its sum to be opened. In 0.2 a new proposal took its session."""
    service, first, second = serve(tmp_path, studies=1), make("local"), make("local")
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    for _ in range(3):
        assert isinstance(refused(tell(service, second, Propose(second))), Busy)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)  # the reply was lost, say
    assert isinstance(tell(service, first, Dismiss()), Dismissed)
    assert isinstance(tell(service, second, Propose(second)), Consent)


def test_admission_queue_is_first_come_first_served(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, studies=1), [make("local", study=f"study {n}") for n in range(4)]
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)
    for plan in plans[1:]:
        assert isinstance(refused(tell(service, plan, Propose(plan))), Busy)
    assert [each["study"] for each in service.queue()] == ["study 1", "study 2", "study 3"]
    assert [each["study"] for each in service.open_studies()] == ["study 0"]
    assert isinstance(tell(service, plans[2], Dismiss()), Dismissed)  # it leaves the queue
    assert isinstance(refused(tell(service, plans[2], Dismiss())), NotAgreed)
    assert isinstance(tell(service, plans[0], Dismiss()), Dismissed)
    assert isinstance(refused(tell(service, plans[3], Propose(plans[3]))), Busy)  # the free session is not for it
    assert isinstance(tell(service, plans[1], Propose(plans[1])), Consent)
    assert [each["study"] for each in service.queue()] == ["study 3"]


def test_admission_place_in_queue_lapses_without_proposals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service, plans = serve(tmp_path, studies=1), [make("local") for _ in range(3)]
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)
    for plan in plans[1:]:
        assert isinstance(refused(tell(service, plan, Propose(plan))), Busy)
    assert isinstance(tell(service, plans[0], Dismiss()), Dismissed)
    monkeypatch.setattr(service_module, "TICKET_SECONDS", -1.0)
    assert isinstance(tell(service, plans[2], Propose(plans[2])), Consent)  # the first in the queue is gone
    assert service.queue() == []


def test_admission_queue_has_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MOST_QUEUED", 2)
    service, plans = serve(tmp_path, studies=1), [make("local") for _ in range(5)]
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)
    for plan in plans[1:] * 2:
        assert isinstance(refused(tell(service, plan, Propose(plan))), Busy)
    assert [each["plan"] for each in service.queue()] == [plan.digest() for plan in plans[1:3]]


def test_admission_study_that_never_begins_gives_its_session_back(tmp_path: Path) -> None:
    service = serve(tmp_path, studies=1, start=0.0)
    first, second = make("local"), make("local")
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)  # it has begun: it stays
    time.sleep(0.01)
    assert isinstance(refused(tell(service, second, Propose(second))), Busy)
    assert isinstance(tell(service, first, Dismiss()), Dismissed)
    assert isinstance(tell(service, second, Propose(second)), Consent)
    time.sleep(0.01)
    third = make("local")
    assert isinstance(tell(service, third, Propose(third)), Consent)


class Served:
    """The frames of one study to services in this process."""

    def __init__(self, plan: Plan, services: Mapping[str, Service]) -> None:
        self._study, self._services = bytes.fromhex(plan.digest()), services

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        for name, frame in frames.items():
            yield name, self._services[name].answer(self._study, frame)


@pytest.mark.parametrize(("studies", "sessions"), [(6, 1), (14, 3)])
def test_admission_many_coordinators_all_end_with_result(studies: int, sessions: int, tmp_path: Path) -> None:
    """In 0.2 they held one site each for ever, or lost rounds that every site had charged."""
    keys = {f"s{n}": Identity() for n in range(4)}
    services = {
        name: serve(tmp_path / name, name=name, studies=sessions, keys=(key,), epsilon=1e6)
        for name, key in keys.items()
    }
    plans = [make("secure-sum", study=f"study {n}", coalition=Coalition(1, 0)) for n in range(studies)]
    plans = [
        plan.identified(tuple(replace(site, identity=keys[site.name].public.hex()) for site in plan.sites))
        for plan in plans
    ]
    ended: list[str] = []

    def coordinate(plan: Plan) -> None:
        engine = Served(plan, services)
        with suppress(Exception):
            gather(plan, engine, lambda sites: None, seconds=300.0, every=0.02)
            result = execute(plan, QUESTION, engine)
            assert len(result.participants[0]) == 4
            ended.append(plan.study)
        dismiss(engine, keys)

    threads = [threading.Thread(target=coordinate, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == sorted(plan.study for plan in plans)
    for service in services.values():
        assert sorted(entry.spend.study for entry in service._ledger.entries()) == sorted(ended)
        assert service.queue() == service.open_studies() == []
        service.close()
