"""A serving site as an inner node: it relays for permitted proposals, and for studies that it takes part in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.site_service import lines, tell
from helpers.trees import NAMES, tree_plan
from zerosum.compute.units import Units
from zerosum.kernel.plan import Plan
from zerosum.protocol.codec import Frame, encode
from zerosum.protocol.messages import Dismiss, Dismissed, Message, Propose, Refusal, Relay, Relayed, Secure
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service

UNITS = Units.from_rows(np.zeros((12, 2)))


class Node:
    """The service of site s0 with a child s3, and what it sent to that child."""

    def __init__(self, folder: Path, minimum_units: int = 10) -> None:
        keys = [Identity() for _ in NAMES]
        base = tree_plan()
        sites = [replace(site, identity=key.public.hex()) for site, key in zip(base.sites, keys, strict=True)]
        self.plan, self.folder, self.sent = base.identified(tuple(sites)), folder, list[str]()
        self.consents = Consents(folder, automatic=False)
        policy = Policy(population="p", ledger=folder / "ledger.sqlite", epsilon=100.0, minimum_units=minimum_units)
        self.service = Service(
            "s0",
            policy,
            keys[0],
            lambda plan: UNITS,
            self.consents,
            AuditLog(folder / "audit.jsonl"),
            schema=DataSchema.of(UNITS, policy.adjacency),
            children=("s2", "s3"),
            connect=self._connect,
        )

    @contextmanager
    def _connect(
        self, plan: str, seconds: float
    ) -> Iterator[Callable[[Mapping[str, bytes]], Iterable[tuple[str, Frame | None]]]]:
        def exchange(frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
            for name in frames:
                self.sent.append(name)
                yield name, encode(Dismissed(name))

        yield exchange

    def relay(self, plan: Plan, message: Message) -> str:
        """The kind of the reply to a message for s3; the code of a refusal."""
        reply = tell(self.service, plan, Relay(plan.digest(), (encode(message),), {"s3": 0}, 5.0))
        return reply.error.code if isinstance(reply, Refusal) else type(reply).__name__


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.service.close()


def test_proposal_is_relayed_and_logged_while_steward_decides(node: Node) -> None:
    assert node.relay(node.plan, Propose(node.plan, False)) == Relayed.__name__
    assert node.sent == ["s3"]
    assert [line["event"] for line in lines(node.folder)] == ["relayed"]


def test_proposal_that_steward_refused_is_not_relayed(node: Node) -> None:
    node.consents.decide(node.plan.digest(), "refused", "no")
    assert node.relay(node.plan, Propose(node.plan, False)) == "PolicyRefused"
    assert not node.sent


def test_proposal_that_policy_refuses_is_not_relayed(tmp_path: Path) -> None:
    node = Node(tmp_path, minimum_units=len(UNITS) + 1)
    assert node.relay(node.plan, Propose(node.plan, False)) == "PolicyRefused"
    assert not node.sent
    node.service.close()


def test_other_messages_are_relayed_for_studies_of_this_site_only(node: Node) -> None:
    advertise = Secure("advertise", 0, b"")
    assert node.relay(node.plan, Propose(node.plan, False)) == Relayed.__name__
    assert node.relay(node.plan, advertise) == "NotAgreed"
    node.consents.decide(node.plan.digest(), "approved")
    tell(node.service, node.plan, Propose(node.plan, False))
    assert node.relay(node.plan, advertise) == Relayed.__name__


def test_proposals_of_others_do_not_displace_plan_of_study_in_progress(node: Node) -> None:
    node.consents.decide(node.plan.digest(), "approved")
    tell(node.service, node.plan, Propose(node.plan, False))
    for number in range(40):
        other = replace(node.plan, study=f"other {number}")
        assert node.relay(other, Propose(other, False)) == Relayed.__name__
    assert node.relay(node.plan, Secure("advertise", 0, b"")) == Relayed.__name__


def test_dismissal_is_relayed_for_plan_that_this_site_refused_later(node: Node) -> None:
    assert node.relay(node.plan, Propose(node.plan, False)) == Relayed.__name__
    node.consents.decide(node.plan.digest(), "refused", "no")
    assert node.relay(node.plan, Dismiss()) == Relayed.__name__
    assert node.sent == ["s3", "s3"]
