"""A site that serves several studies: whom it agrees with, what it refuses, and what it writes down."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.site_service import REQUEST, ROWS, lines, more_rounds, refused, serve, tell
from helpers.small_studies import make
from zerosum.compute.units import Units
from zerosum.errors import (
    AwaitingConsent,
    BadData,
    BadInput,
    Busy,
    LedgerRefused,
    Malformed,
    Misdirected,
    NotAgreed,
    OutsidePlan,
    PolicyRefused,
    Refused,
    SiteFault,
    UnknownStatistic,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Dismiss, Dismissed, Message, Propose, Reply
from zerosum.site.audit_log import AuditLog
from zerosum.site.decisions import MOST_WAITING, Consents
from zerosum.site.steward import decide
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.vectors import VectorSum


def test_service_plan_within_policy_is_answered_and_logged(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    assert tell(service, plan, Propose(plan)) == Consent("s0", 40)
    first = tell(service, plan, Contribute(0, 0, REQUEST))
    assert isinstance(first, Contribution)
    again = tell(service, plan, Contribute(0, 0, REQUEST))
    assert isinstance(again, Contribution)
    assert np.array_equal(np.asarray(again.payload), np.asarray(first.payload))
    found = lines(tmp_path)
    assert [line["event"] for line in found] == ["consented", "released", "repeated"]
    assert all(line["plan"] == plan.digest() for line in found)
    assert "'a', 'b'" in found[0]["words"]
    assert "2 numbers" in found[1]["words"]
    assert "'vector_sum'" in found[1]["words"]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_service_plan_without_decision_waits_without_reading_data(tmp_path: Path) -> None:
    read: list[str] = []

    def load(plan: Plan) -> Units:
        read.append(plan.study)
        return Units.from_rows(ROWS)

    service, plan = serve(tmp_path, automatic=False, load=load), make("local")
    steward = Consents(tmp_path)  # another process
    for _ in range(3):  # a coordinator that asks again
        assert isinstance(refused(tell(service, plan, Propose(plan))), AwaitingConsent)
    assert steward.waiting() == [plan.digest()]
    assert steward.proposal(plan.digest()) == plan
    assert [line["event"] for line in lines(tmp_path)] == ["waiting"]
    assert isinstance(refused(tell(service, plan, Contribute(0, 0, REQUEST))), NotAgreed)
    assert not read
    steward.decide(steward.find(plan.digest()[:8]), "approved")
    assert steward.waiting() == []
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    steward.decide(plan.digest(), "refused")  # consent is withdrawn in the middle
    assert "steward" in str(refused(tell(service, plan, Contribute(0, 0, REQUEST))))
    assert isinstance(refused(tell(service, plan, Propose(plan))), PolicyRefused)
    assert service._ledger.entries() == []


def test_service_refusal_reason_reaches_coordinator_and_log(
    tmp_path: Path,
) -> None:
    service, plan = serve(tmp_path, automatic=False), make("local")
    consents, log = Consents(tmp_path), AuditLog(tmp_path / "audit.jsonl")
    tell(service, plan, Propose(plan))
    words = decide(consents, log, plan.digest(), "refused", reason=" not in \n this year ", where="on the page")
    assert all(part in words for part in ("refused", plan.digest(), "on the page", "not in this year"))
    assert str(refused(tell(service, plan, Propose(plan)))).endswith(": not in this year")
    assert consents.waiting() == []
    assert consents.plan(plan.digest()) == plan
    (decided,) = [line for line in lines(tmp_path) if line["event"] == "decided"]
    assert (decided["plan"], decided["words"]) == (plan.digest(), words)
    for wrong in ("x" * 301, "a\x1b[2J", "\u202egnp.exe"):
        with pytest.raises(BadInput, match="reason"):
            decide(consents, log, plan.digest(), "refused", reason=wrong)
    with pytest.raises(BadInput, match="refusal"):
        decide(consents, log, plan.digest(), "approved", reason="because")
    assert consents.decision(plan.digest()) == "refused"
    decide(consents, log, plan.digest(), "approved")
    assert consents.reason(plan.digest()) == ""
    (tmp_path / "plans" / f"{'0' * 64}.json").write_bytes(plan.to_json())
    with pytest.raises(BadInput, match="digest"):
        consents.plan("0" * 64)


def test_consents_bad_digest_or_decision_approves_nothing(tmp_path: Path) -> None:
    consents, digest = Consents(tmp_path), make("local").digest()
    for wrong in ("", "../../etc/passwd", digest[:63], digest.upper()):
        with pytest.raises(BadInput):
            consents.decide(wrong, "approved")
        with pytest.raises(BadInput):
            consents.find(wrong)
    consents.decide(digest, "approved")
    for text in ("", "approve", "Approved", "refused approved"):
        (tmp_path / "decisions" / digest).write_text(text)
        assert consents.decision(digest) == "refused"
    for _ in range(MOST_WAITING):
        assert consents.keep(make("local"))
    with pytest.raises(Refused, match="plans"):
        consents.keep(make("local"))


CHANGES: dict[str, Callable[[Plan], Plan]] = {
    "one more round": more_rounds,
    "less noise": lambda plan: replace(plan, epsilon=6.0),
    "another column": lambda plan: replace(plan, question=replace(plan.question, columns=("a", "c"))),
    "another statistic": lambda plan: replace(plan, releases=(replace(plan.releases[0], statistic="second_moment"),)),
    "another roster": lambda plan: replace(plan, sites=(*plan.sites[:3], replace(plan.sites[3], name="s9"))),
    "another key": lambda plan: replace(plan, sites=(*plan.sites[:3], replace(plan.sites[3], identity="ab" * 32))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_service_other_plan_than_approved_one_waits(change: str, tmp_path: Path) -> None:
    service, plan = serve(tmp_path, automatic=False), make("local")
    Consents(tmp_path).decide(plan.digest(), "approved")
    other = CHANGES[change](plan)
    assert isinstance(refused(tell(service, other, Propose(other))), AwaitingConsent)
    assert isinstance(refused(tell(service, plan, Propose(other))), Misdirected)  # under the digest that was approved
    assert isinstance(refused(tell(service, other, Contribute(0, 0, REQUEST))), NotAgreed)
    assert service._ledger.entries() == []
    assert isinstance(tell(service, plan, Propose(plan)), Consent)


@pytest.mark.parametrize("change", ["one more round", "less noise", "another roster", "another key"])
def test_service_plan_changed_during_study_is_refused(change: str, tmp_path: Path) -> None:
    """Even where no steward is asked: what was paid for under one plan is not continued under another."""
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    assert isinstance(tell(service, plan, Contribute(0, 0, REQUEST)), Contribution)
    other = CHANGES[change](plan)
    assert isinstance(refused(tell(service, other, Propose(other))), LedgerRefused)
    assert len(service._ledger.entries()) == 1


def test_service_request_outside_plan_is_refused_without_spending(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    asked: dict[str, tuple[Message, type[ZerosumError]]] = {
        "one more round": (Contribute(1, 0, REQUEST), OutsidePlan),
        "one more attempt": (Contribute(0, 1, REQUEST), OutsidePlan),
        "another statistic": (Contribute(0, 0, PrivateSum(SecondMoment(columns=2, clip=1.0))), OutsidePlan),
        "more numbers": (Contribute(0, 0, PrivateSum(VectorSum(columns=3, clip=1.0))), OutsidePlan),
        "less noise for what it is": (Contribute(0, 0, PrivateSum(VectorSum(columns=2, clip=2.0))), OutsidePlan),
    }
    for what, (message, kind) in asked.items():
        assert isinstance(refused(tell(service, plan, message)), kind), what
    frame = encode(Contribute(0, 0, REQUEST)).replace(b"vector_sum", b"vector_xxx")
    reply = decode_reply(service.answer(bytes.fromhex(plan.digest()), frame))
    assert isinstance(refused(reply), UnknownStatistic)
    assert isinstance(refused(decode_reply(service.answer(bytes(32), b"nonsense"))), Malformed)
    assert service._ledger.entries() == []
    codes = [line["code"] for line in lines(tmp_path) if line["event"] == "refused"]
    assert codes == ["OutsidePlan"] * 5 + ["UnknownStatistic", "Malformed"]


def test_policy_columns_and_epsilon_of_one_study_are_limited(tmp_path: Path) -> None:
    plan = make("local")
    for policy, word in (
        ({"columns": ("a",)}, "'b'"),
        ({"study_epsilon": 4.9}, "epsilon 4.9"),
        ({"study_epsilon": 5.1, "delta": 1e-6}, "1e-06"),
        ({"minimum_honest": 4}, "4 honest"),
    ):
        with pytest.raises(PolicyRefused, match=word):
            serve(tmp_path, **policy).policy.review(plan, 40, frozenset({"vector_sum"}))
    fits = serve(tmp_path, columns=("b", "a"), study_epsilon=5.0, minimum_honest=3)
    assert isinstance(tell(fits, plan, Propose(plan)), Consent)


def test_service_concurrent_studies_share_ledger_and_third_one_waits(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, studies=2, epsilon=12.0), [make("local") for _ in range(3)]
    for plan in plans[:2]:
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    replies: list[Reply] = []

    def ask(plan: Plan) -> None:
        replies.append(tell(service, plan, Contribute(0, 0, REQUEST)))

    threads = [threading.Thread(target=ask, args=(plan,)) for plan in plans[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(reply, Contribution) for reply in replies)
    entries = service._ledger.entries()
    assert {entry.spend.study for entry in entries} == {plan.study for plan in plans[:2]}
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Busy)  # their last messages are to come
    assert isinstance(tell(service, plans[0], Dismiss()), Dismissed)
    assert isinstance(tell(service, plans[2], Propose(plans[2])), Consent)
    assert len(service._sessions) == 2
    service.close()


def test_service_data_error_stays_in_log(tmp_path: Path) -> None:
    def load(plan: Plan) -> Units:
        raise BadData("column 'b' has missing values", detail="in row 17")

    service, plan = serve(tmp_path, load=load), make("local")
    said = str(refused(tell(service, plan, Propose(plan))))
    assert "'b'" not in said
    assert "17" not in said
    assert "column 'b' has missing values in row 17" in lines(tmp_path)[0]["detail"]


def test_service_many_refusals_are_logged_sparsely(tmp_path: Path) -> None:
    service = serve(tmp_path)
    for _ in range(1000):
        service.answer(bytes(32), b"")
    counts = [line["count"] for line in lines(tmp_path)]
    assert counts == [*range(1, 21), 32, 64, 128, 256, 512]


def test_service_many_repeated_requests_are_logged_sparsely(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    for _ in range(100):
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    for _ in range(101):
        assert isinstance(tell(service, plan, Contribute(0, 0, REQUEST)), Contribution)
    seen = [(line["event"], line.get("count")) for line in lines(tmp_path)]
    some = [*range(1, 21), 32, 64]
    assert seen == [*(("consented", n) for n in some), ("released", None), *(("repeated", n) for n in some)]


def test_service_without_writable_log_sends_nothing(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    (tmp_path / "audit.jsonl").unlink()
    (tmp_path / "audit.jsonl").mkdir()
    error = refused(tell(service, plan, Contribute(0, 0, REQUEST)))
    assert isinstance(error, SiteFault)
    assert "audit log" in str(error)
