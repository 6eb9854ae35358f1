"""Keys that are replaced or withdrawn, and sites that a plan allows to be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.site_service import REQUEST, more_rounds, refused, serve, tell
from helpers.small_studies import make
from zerosum.errors import AwaitingConsent, BadInput, LedgerRefused, Misdirected, NotAgreed, PolicyRefused
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivateSum
from zerosum.protocol.messages import Consent, Contribute, Contribution, Propose
from zerosum.secagg.keys import Identity
from zerosum.site.decisions import Consents
from zerosum.site.policy import Policy


def pinned(plan: Plan, *keys: Identity) -> Plan:
    named = [replace(site, identity=key.public.hex()) for site, key in zip(plan.sites, keys, strict=False)]
    return replace(plan, sites=(*named, *plan.sites[len(named) :]))


def test_service_former_key_is_accepted_until_withdrawn(tmp_path: Path) -> None:
    new, old, other = Identity(), Identity(), Identity()
    service = serve(tmp_path, keys=(new, old))
    plans = [pinned(make("secure-sum"), key, *(Identity() for _ in range(3))) for key in (new, old, other)]
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)
    assert isinstance(tell(service, plans[1], Propose(plans[1])), Consent)
    assert isinstance(refused(tell(service, plans[2], Propose(plans[2]))), Misdirected)
    Consents(tmp_path).withdraw(old.public.hex())
    assert isinstance(refused(tell(service, plans[1], Propose(plans[1]))), PolicyRefused)
    assert isinstance(tell(service, plans[0], Propose(plans[0])), Consent)


def test_service_withdrawn_key_is_refused_during_study(tmp_path: Path) -> None:
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
    error = refused(tell(service, plan, Propose(plan)))
    assert isinstance(error, PolicyRefused)
    assert "'s1'" in str(error)
    assert len(service._ledger.entries()) == 1
    assert service.studies == 0


def test_policy_roster_may_have_old_and_new_key(tmp_path: Path) -> None:
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
            with pytest.raises(PolicyRefused, match="'s1'"):
                policy.review(asked, 40, frozenset({"vector_sum"}))
    for wrong in ({"s0": "abc"}, {"s0": (new, "")}, {"s0": 3}):
        with pytest.raises(ValueError, match="roster"):
            Policy.model_validate({"population": "p", "roster": wrong})


# ---- sites that are left out ----------------------------------------------------------------------------------------


def test_service_approved_plan_covers_allowed_absences_only(tmp_path: Path) -> None:
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
    assert isinstance(refused(tell(again, plan, Propose(plan))), LedgerRefused)


def test_service_refusal_of_approved_plan_holds_for_covered_plans(tmp_path: Path) -> None:
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
def test_service_approved_plan_covers_no_dearer_plan(scheme: str, tmp_path: Path) -> None:
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


def test_service_last_approved_plan_of_study_covers_absences(tmp_path: Path) -> None:
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
