"""A site that serves several studies: whom it agrees with, what it refuses, and what it writes down."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_studies import QUESTION, make
from zerosum.errors import (
    AwaitingConsent,
    BadData,
    BadInput,
    BudgetExceeded,
    Busy,
    Malformed,
    Misdirected,
    NotAgreed,
    OutsidePlan,
    PolicyRefused,
    Refused,
    UnknownStatistic,
    ZerosumError,
)
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.units import Units
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Dismiss,
    Dismissed,
    Message,
    Propose,
    Refusal,
    Reply,
)
from zerosum.secagg.keys import Identity
from zerosum.site.audit_log import AuditLog
from zerosum.site.consents import MOST_WAITING, Consents
from zerosum.site.policy import Policy
from zerosum.site.service import Service
from zerosum.site.steward import decide
from zerosum.statistics.moments import SecondMoment
from zerosum.statistics.vectors import VectorSum

REQUEST = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
ROWS = np.random.default_rng(0).normal(size=(40, 2)) * 0.3


def serve(
    folder: Path,
    *,
    automatic: bool = True,
    load: Any = None,
    studies: int = 8,
    hold: float = 3600.0,
    settle: float = 3600.0,
    keys: tuple[Identity, ...] = (),
    **policy: Any,
) -> Service:
    settings: dict[str, Any] = {"data": "synthetic", "epsilon": 100.0, "ledger": folder / "ledger.sqlite", **policy}
    return Service(
        "s0",
        Policy(population="p", **settings),
        keys[0] if keys else Identity(),
        load or (lambda plan: Units.from_rows(ROWS)),
        Consents(folder, automatic=automatic),
        AuditLog(folder / "audit.jsonl"),
        most_studies=studies,
        hold=hold,
        settle=settle,
        former=keys[1:],
    )


def tell(service: Service, plan: Plan, message: Message) -> Reply:
    return decode_reply(service.answer(bytes.fromhex(plan.digest()), encode(message)))


def refused(reply: Reply) -> ZerosumError:
    assert isinstance(reply, Refusal)
    return reply.error


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def test_a_plan_that_fits_the_policy_and_what_the_log_says_of_it(tmp_path: Path) -> None:
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
    assert "2 numbers, the sum of 'vector_sum' over all persons" in found[1]["words"]
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_without_a_decision_a_plan_waits_and_data_are_not_read(tmp_path: Path) -> None:
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


def test_a_refusal_and_its_reason_reach_the_coordinator_and_the_log_and_the_plan_can_still_be_read(
    tmp_path: Path,
) -> None:
    service, plan = serve(tmp_path, automatic=False), make("local")
    consents, log = Consents(tmp_path), AuditLog(tmp_path / "audit.jsonl")
    tell(service, plan, Propose(plan))
    words = decide(consents, log, plan.digest(), "refused", reason=" not in \n this year ", where="on the page")
    assert words == f"the steward refused the plan {plan.digest()}, on the page: not in this year"
    assert str(refused(tell(service, plan, Propose(plan)))).endswith("refused this study: not in this year")
    assert consents.waiting() == []
    assert consents.plan(plan.digest()) == plan
    (decided,) = [line for line in lines(tmp_path) if line["event"] == "decided"]
    assert (decided["plan"], decided["words"]) == (plan.digest(), words)
    for wrong in ("x" * 301, "a\x1b[2J", "\u202egnp.exe"):
        with pytest.raises(BadInput, match="reason"):
            decide(consents, log, plan.digest(), "refused", reason=wrong)
    with pytest.raises(BadInput, match="for a refusal"):
        decide(consents, log, plan.digest(), "approved", reason="because")
    assert consents.decision(plan.digest()) == "refused"
    decide(consents, log, plan.digest(), "approved")
    assert consents.reason(plan.digest()) == ""
    (tmp_path / "plans" / f"{'0' * 64}.json").write_bytes(plan.to_json())
    with pytest.raises(BadInput, match="another plan"):
        consents.plan("0" * 64)


def test_decisions_are_about_whole_plans_and_files_that_say_something_else_approve_nothing(tmp_path: Path) -> None:
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
    with pytest.raises(Refused, match="too many"):
        consents.keep(make("local"))


def more_rounds(plan: Plan) -> Plan:
    return replace(plan, releases=(replace(plan.releases[0], share=0.5),) * 2)


CHANGES: dict[str, Callable[[Plan], Plan]] = {
    "one more round": more_rounds,
    "less noise": lambda plan: replace(plan, epsilon=6.0),
    "another column": lambda plan: replace(plan, question=replace(plan.question, columns=("a", "c"))),
    "another statistic": lambda plan: replace(plan, releases=(replace(plan.releases[0], statistic="second_moment"),)),
    "another roster": lambda plan: replace(plan, sites=(*plan.sites[:3], replace(plan.sites[3], name="s9"))),
    "another key": lambda plan: replace(plan, sites=(*plan.sites[:3], replace(plan.sites[3], identity="ab" * 32))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_plan_than_the_steward_approved_is_not_agreed_to(change: str, tmp_path: Path) -> None:
    service, plan = serve(tmp_path, automatic=False), make("local")
    Consents(tmp_path).decide(plan.digest(), "approved")
    other = CHANGES[change](plan)
    assert isinstance(refused(tell(service, other, Propose(other))), AwaitingConsent)
    assert isinstance(refused(tell(service, plan, Propose(other))), Misdirected)  # under the digest that was approved
    assert isinstance(refused(tell(service, other, Contribute(0, 0, REQUEST))), NotAgreed)
    assert service._ledger.entries() == []
    assert isinstance(tell(service, plan, Propose(plan)), Consent)


@pytest.mark.parametrize("change", ["one more round", "less noise", "another roster", "another key"])
def test_a_plan_that_changes_in_the_middle_of_its_study_is_refused(change: str, tmp_path: Path) -> None:
    """Even where no steward is asked: what was paid for under one plan is not continued under another."""
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    assert isinstance(tell(service, plan, Contribute(0, 0, REQUEST)), Contribution)
    other = CHANGES[change](plan)
    assert "another plan" in str(refused(tell(service, other, Propose(other))))
    assert len(service._ledger.entries()) == 1


def test_what_was_not_planned_is_refused_and_spends_nothing(tmp_path: Path) -> None:
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


def test_policies_know_columns_and_what_one_study_may_cost(tmp_path: Path) -> None:
    plan = make("local")
    for policy, word in (
        ({"columns": ("a",)}, "column 'b'"),
        ({"study_epsilon": 4.9}, "epsilon 4.9"),
        ({"study_epsilon": 5.1, "delta": 1e-6}, "costs more"),
        ({"minimum_honest": 4}, "at least 4 honest sites"),
    ):
        with pytest.raises(PolicyRefused, match=word):
            serve(tmp_path, **policy).policy.review(plan, 40, frozenset({"vector_sum"}))
    fits = serve(tmp_path, columns=("b", "a"), study_epsilon=5.0, minimum_honest=3)
    assert isinstance(tell(fits, plan, Propose(plan)), Consent)


def test_several_studies_at_once_share_one_ledger_and_the_quietest_goes_first(tmp_path: Path) -> None:
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
    assert isinstance(tell(service, plans[2], Propose(plans[2])), Consent)
    assert len(service._sessions) == 2
    service.close()


def test_what_is_wrong_with_data_stays_here(tmp_path: Path) -> None:
    def load(plan: Plan) -> Units:
        raise BadData("column 'b' has missing values", detail="in row 17")

    service, plan = serve(tmp_path, load=load), make("local")
    said = str(refused(tell(service, plan, Propose(plan))))
    assert "'b'" not in said
    assert "17" not in said
    assert "column 'b' has missing values in row 17" in lines(tmp_path)[0]["detail"]


def test_a_flood_of_refusals_does_not_fill_the_disk(tmp_path: Path) -> None:
    service = serve(tmp_path)
    for _ in range(1000):
        service.answer(bytes(32), b"")
    counts = [line["count"] for line in lines(tmp_path)]
    assert counts == [*range(1, 21), 32, 64, 128, 256, 512]


def test_a_flood_of_what_costs_nothing_does_not_fill_the_disk(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    for _ in range(100):
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    for _ in range(101):
        assert isinstance(tell(service, plan, Contribute(0, 0, REQUEST)), Contribution)
    seen = [(line["event"], line.get("count")) for line in lines(tmp_path)]
    some = [*range(1, 21), 32, 64]
    assert seen == [*(("consented", n) for n in some), ("released", None), *(("repeated", n) for n in some)]


def test_what_cannot_be_written_down_does_not_leave(tmp_path: Path) -> None:
    service, plan = serve(tmp_path), make("local")
    tell(service, plan, Propose(plan))
    (tmp_path / "audit.jsonl").unlink()
    (tmp_path / "audit.jsonl").mkdir()
    with pytest.raises(Refused, match="audit log"):
        tell(service, plan, Contribute(0, 0, REQUEST))


# ---- budget that is held back ---------------------------------------------------------------------------------------


def test_consent_holds_budget_back_until_the_study_is_through(tmp_path: Path) -> None:
    """Two studies that fit under the cap each and not together: the second is refused before anybody spends."""
    service, first, second = serve(tmp_path, epsilon=6.0), make("local"), make("local")
    assert isinstance(tell(service, first, Propose(first)), Consent)
    error = refused(tell(service, second, Propose(second)))
    assert isinstance(error, BudgetExceeded)
    assert "some is held back for other studies" in str(error)
    assert "held back is epsilon 5" in lines(tmp_path)[-1]["detail"]  # how much is not for others
    assert isinstance(tell(service, first, Propose(first)), Consent)  # its own does not stand in its way
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    error = refused(tell(service, second, Propose(second)))  # spent by now, and no longer held
    assert isinstance(error, BudgetExceeded)
    assert "held back" not in str(error)
    assert len(service._ledger.entries()) == 1


def test_what_is_held_shrinks_as_rounds_are_released(tmp_path: Path) -> None:
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


def test_what_is_held_is_let_go_when_the_steward_refuses_or_nobody_says_anything(tmp_path: Path) -> None:
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
def test_attempts_that_are_left_are_held_for_a_while_after_the_last_round(settle: float, tmp_path: Path) -> None:
    first, second = make("local", attempts=1), make("local")
    service = serve(tmp_path, epsilon=7.0, settle=settle)
    assert isinstance(tell(service, first, Propose(first)), Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)
    reply = tell(service, second, Propose(second))
    assert isinstance(reply, Refusal if settle else Consent)
    assert isinstance(tell(service, first, Contribute(0, 0, REQUEST)), Contribution)  # once more, which costs nothing
    reply = tell(service, first, Contribute(0, 1, REQUEST))
    assert isinstance(reply, Contribution if settle else Refusal)  # the second was promised it


def test_a_study_that_is_dismissed_holds_neither_budget_nor_a_place_and_may_come_again(tmp_path: Path) -> None:
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


def test_many_consents_at_once_never_promise_more_than_the_cap(tmp_path: Path) -> None:
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


def test_a_site_with_its_hands_full_lets_a_study_wait_and_pushes_none_out(tmp_path: Path) -> None:
    service, plans = serve(tmp_path, studies=2), [make("local") for _ in range(3)]
    for plan in plans[:2]:
        assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Busy)
    assert isinstance(tell(service, plans[0], Contribute(0, 0, REQUEST)), Contribution)
    assert isinstance(tell(service, plans[2], Propose(plans[2])), Consent)
    assert isinstance(tell(service, plans[1], Contribute(0, 0, REQUEST)), Contribution)
    assert service.studies == 1


# ---- keys -----------------------------------------------------------------------------------------------------------


def pinned(plan: Plan, *keys: Identity) -> Plan:
    named = [replace(site, identity=key.public.hex()) for site, key in zip(plan.sites, keys, strict=False)]
    return replace(plan, sites=(*named, *plan.sites[len(named) :]))


def test_a_former_key_serves_the_studies_that_pin_it_until_it_is_withdrawn(tmp_path: Path) -> None:
    new, old, other = Identity(), Identity(), Identity()
    service = serve(tmp_path, keys=(new, old))
    plans = [pinned(make("secure-sum"), key, *(Identity() for _ in range(3))) for key in (new, old, other)]
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)
    assert isinstance(tell(service, plans[1], Propose(plans[1])), Consent)
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Misdirected)
    Consents(tmp_path).withdraw(old.public.hex())
    assert isinstance(refused(tell(service, plans[1], Propose(plans[1]))), PolicyRefused)
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)


def test_a_withdrawn_key_is_refused_at_once_in_the_middle_of_a_study(tmp_path: Path) -> None:
    east = Identity()
    own = Identity()
    service, plan = serve(tmp_path, keys=(own,)), pinned(more_rounds(make("local")), own, east)
    share = PrivateSum(REQUEST.statistic, share=0.5)
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, plan, Contribute(0, 0, share)), Contribution)
    steward = Consents(tmp_path)
    with pytest.raises(BadInput, match="64 digits"):
        steward.withdraw("../decisions")
    steward.withdraw(east.public.hex())
    for message in (Contribute(1, 0, share), Propose(plan)):
        error = refused(tell(service, plan, message))
        assert isinstance(error, PolicyRefused | NotAgreed)
    assert "'s1' was withdrawn" in str(refused(tell(service, plan, Propose(plan))))
    assert len(service._ledger.entries()) == 1
    assert service.studies == 0


def test_a_roster_may_know_the_old_key_and_the_new_one(tmp_path: Path) -> None:
    new, old, own = (Identity().public.hex() for _ in range(3))
    plan = make("local")
    known: dict[str, str | tuple[str, ...]] = {"s0": own, "s1": (new, old), "s2": own, "s3": own}
    policy = serve(tmp_path, roster=known).policy
    for key, fits in ((new, True), (old, True), (own, False)):
        sites = [replace(site, identity=key if site.name == "s1" else own) for site in plan.sites]
        asked = replace(plan, sites=tuple(sites))
        if fits:
            policy.review(asked, 40, frozenset({"vector_sum"}))
        else:
            with pytest.raises(PolicyRefused, match="another identity for 's1'"):
                policy.review(asked, 40, frozenset({"vector_sum"}))
    for wrong in ({"s0": "abc"}, {"s0": (new, "")}, {"s0": 3}):
        with pytest.raises(ValueError, match="roster"):
            Policy.model_validate({"population": "p", "roster": wrong})


# ---- sites that are left out ----------------------------------------------------------------------------------------


def test_a_plan_that_was_approved_covers_what_it_allows_to_be_left_out_and_nothing_else(tmp_path: Path) -> None:
    steward, plan = Consents(tmp_path), make("local", absences=1)
    service = serve(tmp_path, automatic=False)
    rest = plan.without(["s2"])
    assert isinstance(refused(tell(service, rest, Propose(rest))), AwaitingConsent)  # nobody approved anything yet
    steward.decide(plan.digest(), "approved")
    assert isinstance(refused(tell(service, rest, Propose(rest))), AwaitingConsent)  # nor has it seen what was approved
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, rest, Propose(rest)), Consent)
    assert isinstance(refused(tell(service, plan, Contribute(0, 0, REQUEST))), NotAgreed)  # of one study, one plan
    for other in (
        replace(rest, epsilon=5.1),
        replace(rest, sites=rest.sites[:2]),
        replace(rest, sites=(*rest.sites, replace(plan.sites[2], name="s9"))),
        replace(rest, coalition=replace(rest.coalition, colluders=0), results_to_sites=False),
        replace(rest, study="another"),
    ):
        error = refused(tell(service, other, Propose(other)))
        assert isinstance(error, AwaitingConsent | PolicyRefused)
    again = serve(tmp_path, automatic=False)  # restarted
    assert isinstance(tell(again, rest, Propose(rest)), Consent)
    assert isinstance(tell(again, rest, Contribute(0, 0, REQUEST)), Contribution)
    assert "another plan" in str(refused(tell(again, plan, Propose(plan))))


def test_a_refusal_of_the_plan_that_was_approved_holds_for_what_it_covered(tmp_path: Path) -> None:
    steward, plan = Consents(tmp_path), make("local", absences=1)
    steward.decide(plan.digest(), "approved")
    service, rest = serve(tmp_path, automatic=False), plan.without(["s2"])
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, rest, Propose(rest)), Consent)
    steward.decide(plan.digest(), "refused")
    assert isinstance(refused(tell(service, rest, Contribute(0, 0, REQUEST))), PolicyRefused)
    assert service._ledger.entries() == []


def scaled(plan: Plan, *scales: float) -> Plan:
    return replace(plan, sites=tuple(replace(s, scale=a) for s, a in zip(plan.sites, scales, strict=True)))


@pytest.mark.parametrize("scheme", ["local", "secure-sum"])
def test_a_plan_that_was_approved_covers_none_that_costs_more(scheme: str, tmp_path: Path) -> None:
    """Noise is fixed by the site that asks for the least of it. A coordinator that leaves out one it invented for that
    would get more of the others than their stewards read."""
    own = [Identity() for _ in range(4)]
    plan = scaled(pinned(make(scheme, absences=1), *own), 0.2, 1.0, 0.2, 0.2)
    dear, same = plan.without(["s1"]), plan.without(["s2"])
    assert dear.site_epsilon(0) > 2 * plan.site_epsilon(0)
    service = serve(tmp_path, automatic=False, keys=(own[0],))
    Consents(tmp_path).decide(plan.digest(), "approved")
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(refused(tell(service, dear, Propose(dear))), AwaitingConsent)
    assert isinstance(tell(service, same, Propose(same)), Consent)


def test_a_plan_covers_others_from_when_it_was_approved_and_the_last_of_a_study_counts(tmp_path: Path) -> None:
    steward, service = Consents(tmp_path), serve(tmp_path, automatic=False)
    first = make("local", absences=1)
    second = replace(first, epsilon=4.0)
    for plan in (first, second):
        rest = plan.without(["s2"])
        assert isinstance(refused(tell(service, plan, Propose(plan))), AwaitingConsent)
        steward.decide(plan.digest(), "approved")
        assert isinstance(tell(service, rest, Propose(rest)), Consent)  # though this one was never agreed to whole
    assert isinstance(tell(service, second, Propose(second)), Consent)
    steward.decide(second.digest(), "refused")
    assert isinstance(refused(tell(service, rest, Propose(rest))), AwaitingConsent)


def test_budget_held_for_a_plan_that_is_no_longer_covered_is_let_go(tmp_path: Path) -> None:
    steward, plan, other = Consents(tmp_path), make("local", absences=1), make("local")
    for each in (plan, other):
        steward.decide(each.digest(), "approved")
    service, rest = serve(tmp_path, automatic=False, epsilon=6.0), plan.without(["s2"])
    assert isinstance(tell(service, plan, Propose(plan)), Consent)
    assert isinstance(tell(service, rest, Propose(rest)), Consent)
    assert isinstance(refused(tell(service, other, Propose(other))), BudgetExceeded)
    steward.decide(plan.digest(), "refused")
    assert isinstance(tell(service, other, Propose(other)), Consent)


def test_a_study_that_was_quiet_too_long_takes_nothing_that_others_were_promised_since(tmp_path: Path) -> None:
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
