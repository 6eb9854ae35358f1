"""A coordinator that asks for something else than what was consented to: every site of a study refuses by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from zerosum.algorithms import MeanProgram
from zerosum.compute.units import Units
from zerosum.errors import (
    AwaitingConsent,
    Forged,
    Inconsistent,
    LedgerRefused,
    Misdirected,
    NotAgreed,
    OutOfTurn,
    OutsidePlan,
    PolicyRefused,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Message,
    Propose,
    Refusal,
    Reply,
    Secure,
    Secured,
)
from zerosum.protocol.roster import roster
from zerosum.secagg.collector import Collector
from zerosum.secagg.keys import Identity
from zerosum.secagg.session import SiteSession
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy
from zerosum.site.schema import DataSchema
from zerosum.site.service import Service
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.vectors import VectorSum
from zerosum.study import make_plan

NAMES = ("s0", "s1", "s2", "s3")
IDENTITIES = [Identity() for _ in NAMES]
QUESTION = MeanProgram(columns=("a", "b"), clip=1.0)
REQUEST = QUESTION.requests(Adjacency.REPLACE_ONE)[0]


def planned(
    question: MeanProgram = QUESTION,
    *,
    epsilon: float = 5.0,
    identities: list[Identity] = IDENTITIES,
    name: str = "agreed",
) -> Plan:
    terms = Terms(
        sites=tuple(
            PlannedSite(name, 40, identity=each.public.hex()) for name, each in zip(NAMES, identities, strict=True)
        ),
        epsilon=epsilon,
        delta=1e-5,
        scheme=Scheme("secure-sum"),
        coalition=Coalition(1, 1),
        attempts=1,
    )
    return make_plan(question, terms, name)


@contextmanager
def services(folder: Path) -> Iterator[list[Service]]:
    """Four sites whose stewards decide about each plan."""
    rng = np.random.default_rng(0)
    with ExitStack() as stack:
        made = []
        for name, identity in zip(NAMES, IDENTITIES, strict=True):
            home, units = folder / name, Units.from_rows(rng.normal(size=(40, 2)) * 0.3)
            policy = Policy(population=name, data="synthetic", epsilon=100.0, ledger=home / "ledger.sqlite")
            consents, log = Consents(home, automatic=False), AuditLog(home / "audit.jsonl")
            schema = DataSchema.of(units, policy.adjacency)
            service = Service(name, policy, identity, partial(_given, units), consents, log, schema=schema)
            stack.callback(service.close)
            made.append(service)
        yield made


def _given(units: Units, plan: Plan) -> Units:
    return units


def tell(service: Service, plan: Plan, message: Message, digest: str | None = None) -> Reply:
    return decode_reply(service.answer(bytes.fromhex(digest or plan.digest()), encode(message)))


def refusals(made: list[Service], plan: Plan, message: Message, digest: str | None = None) -> set[type[ZerosumError]]:
    """How the sites refuse, all of them."""
    replies = [tell(service, plan, message, digest) for service in made]
    assert all(isinstance(reply, Refusal) for reply in replies)
    return {type(reply.error) for reply in replies if isinstance(reply, Refusal)}


def agree(made: list[Service], plan: Plan) -> None:
    for service in made:
        service._consents.decide(plan.digest(), "approved")
        assert isinstance(tell(service, plan, Propose(plan)), Consent)


def set_up(made: list[Service], plan: Plan) -> None:
    collector = Collector(roster(plan))
    take = {"advertise": collector.take_advert, "share": collector.take_shares, "receive": collector.take_ready}
    for step in ("advertise", "share", "receive"):
        adverts = collector.adverts() if step == "share" else b""
        for s, service in enumerate(made):
            data = collector.delivery(s) if step == "receive" else adverts
            reply = tell(service, plan, Secure(step, 0, data))
            assert isinstance(reply, Secured)
            take[step](reply.data)


def spent(made: list[Service]) -> list[int]:
    return [len(service._ledger.entries()) for service in made]


def test_deceit_other_plan_than_approved_one_waits_or_is_refused(tmp_path: Path) -> None:
    """Less noise, another column, another statistic's bound, another roster: each is another plan, and waits."""
    plan = planned()
    others = [
        planned(epsilon=50.0),
        planned(MeanProgram(columns=("a", "c"), clip=1.0)),
        planned(MeanProgram(columns=("a", "b"), clip=2.0)),
        replace(plan, coalition=Coalition(1, 0)),
        replace(plan, attempts=2),
    ]
    crowd = replace(plan, sites=tuple(replace(s, units=4000) if s.name == "s3" else s for s in plan.sites))
    with services(tmp_path) as made:
        agree(made, plan)
        for other in others:
            assert other.digest() != plan.digest()
            assert refusals(made, other, Propose(other)) == {AwaitingConsent}
            assert refusals(made, other, Contribute(0, 0, REQUEST)) == {NotAgreed}
            assert refusals(made, other, Propose(other), plan.digest()) == {Misdirected}
        assert refusals(made[:3], crowd, Propose(crowd)) == {AwaitingConsent}
        assert refusals(made[3:], crowd, Propose(crowd)) == {PolicyRefused}  # its own schema declares another number
        strangers = [*IDENTITIES[:3], Identity()]
        other = planned(identities=strangers)
        assert refusals(made[:3], other, Propose(other)) == {AwaitingConsent}
        assert refusals(made[3:], other, Propose(other)) == {Misdirected}  # its own place has another's key
        assert spent(made) == [0] * 4
        for service in made:
            service._consents.decide(others[0].digest(), "refused")
        assert refusals(made, others[0], Propose(others[0])) == {PolicyRefused}


def test_deceit_request_beyond_plan_is_refused_without_spending(tmp_path: Path) -> None:
    """One more round or attempt, another statistic, a larger bound, another number of values."""
    plan = planned()
    asked = [
        Contribute(plan.rounds, 0, REQUEST),
        Contribute(0, plan.attempts + 1, REQUEST),
        Contribute(0, 0, PrivateSum(SecondMoment(columns=2, clip=1.0))),
        Contribute(0, 0, PrivateSum(VectorSum(columns=2, clip=1.5))),
        Contribute(0, 0, PrivateSum(VectorSum(columns=3, clip=1.0))),
    ]
    with services(tmp_path) as made:
        agree(made, plan)
        set_up(made, plan)
        for message in asked:
            assert refusals(made, plan, message) == {OutsidePlan}
        assert spent(made) == [0] * 4
        first = [tell(service, plan, Contribute(0, 0, REQUEST)) for service in made]
        assert all(isinstance(reply, Contribution) for reply in first)
        again = [tell(service, plan, Contribute(0, 0, REQUEST)) for service in made]
        assert [bytes(a.payload) == bytes(b.payload) for a, b in zip(first, again, strict=True)] == [True] * 4  # type: ignore[union-attr]
        smaller = PrivateSum(VectorSum(columns=2, clip=0.5))
        assert refusals(made, plan, Contribute(0, 0, smaller)) == {Inconsistent}
        assert spent(made) == [1] * 4
        for service in made:  # a second coordinator with the same plan makes everybody set up anew, and gets nothing
            assert isinstance(tell(service, plan, Propose(plan)), Consent)
        set_up(made, plan)
        assert refusals(made, plan, Contribute(0, 0, REQUEST)) <= {LedgerRefused, OutOfTurn}
        for service in made:  # and a consent that is withdrawn holds from the next message on
            service._consents.decide(plan.digest(), "refused")
        assert refusals(made, plan, Contribute(0, 1, REQUEST)) == {PolicyRefused}
        assert spent(made) == [1] * 4


def test_deceit_changed_roster_in_set_up_is_refused(tmp_path: Path) -> None:
    """Keys of somebody else in the adverts: no site seals a share for them."""
    plan = planned()
    with services(tmp_path) as made:
        agree(made, plan)
        genuine = [tell(service, plan, Secure("advertise")) for service in made]
        collector, theirs = Collector(roster(plan)), planned(identities=[*IDENTITIES[:3], stranger := Identity()])
        forged = SiteSession(roster(theirs), 3, stranger).advertise()
        with pytest.raises((Forged, Misdirected)):
            collector.take_advert(forged)
        for reply in genuine:
            assert isinstance(reply, Secured)
            collector.take_advert(reply.data)
        honest = collector.adverts()
        assert isinstance(genuine[3], Secured)
        swapped = honest.replace(genuine[3].data, forged)
        assert swapped != honest
        assert refusals(made, plan, Secure("share", 0, swapped)) <= {Forged, Misdirected}
        assert refusals(made, plan, Contribute(0, 0, REQUEST)) == {OutOfTurn}
        assert spent(made) == [0] * 4
