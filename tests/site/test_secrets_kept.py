"""The secrets that a site keeps for its auditor: private, durable before anything leaves, and deleted in time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from helpers.small_studies import carry_out, make, make_sites
from zerosum.errors import BadInput, Refused, SiteFault
from zerosum.kernel.plan import Plan
from zerosum.kernel.view import Coalition
from zerosum.secagg import commitments
from zerosum.secagg.commitments import HASH_BYTES
from zerosum.secagg.wire import decode
from zerosum.site import secrets_kept
from zerosum.site.ledger import Ledger
from zerosum.site.secrets_kept import Kept, KeptSecrets
from zerosum.site.site import Site
from zerosum.study import pin


def keeping(folder: Path, days: float = 1.0) -> tuple[list[Site], KeptSecrets]:
    """Sites of which the first keeps its secrets."""
    sites, kept = make_sites(folder), KeptSecrets(folder / "state", days)
    sites[0] = Site("s0", sites[0].units, sites[0].policy, kept=kept)
    return sites, kept


def ran(folder: Path, scheme: str = "secure-sum", days: float = 1.0) -> tuple[Plan, Site, KeptSecrets]:
    sites, kept = keeping(folder, days)
    plan = pin(make(scheme, coalition=Coalition(1, 1)), sites)
    carry_out(plan, sites)
    return plan, sites[0], kept


@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum", "cape-published"])
def test_secrets_kept_give_the_committed_vector_again(scheme: str, tmp_path: Path) -> None:
    plan, site, kept = ran(tmp_path, scheme)
    (each,) = kept.of(plan.digest())
    assert (each.round, each.attempt) == (0, 0)
    vector = site.recomputed(plan, each)
    body = decode(each.committed).body[HASH_BYTES:]
    expected = commitments.to_contribution(each.secret, vector, each.about)
    assert body == expected + commitments.to_secret(each.secret, each.about)
    assert commitments.to_contribution(each.secret, vector + np.uint64(1), each.about) != expected


@pytest.mark.parametrize("scheme", ["local", "pooled", "pairwise"])
def test_secrets_are_kept_for_secure_sums_only(scheme: str, tmp_path: Path) -> None:
    _, _, kept = ran(tmp_path, scheme)
    assert not kept.plans()


def test_secrets_kept_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    plan, _, _ = ran(tmp_path)
    folder = tmp_path / "state" / secrets_kept.FOLDER
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / plan.digest()).stat().st_mode & 0o777 == 0o700
    files = list((folder / plan.digest()).iterdir())
    assert {path.name for path in files} == {"plan.json", "0-0.json"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_secrets_are_durable_before_the_charge_and_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order a crash leaves an unused secret or an unused charge, and never a message without both."""
    sites, kept = keeping(tmp_path)
    order: list[str] = []
    keep, record, mask = KeptSecrets.keep, Ledger.record, Site._masked

    def noted(name: str, does: object) -> object:
        def call(self: object, *what: object, **more: object) -> object:
            if self in (kept, sites[0]) or name == "record":
                order.append(name)
            return does(self, *what, **more)  # type: ignore[operator]

        return call

    monkeypatch.setattr(KeptSecrets, "keep", noted("keep", keep))
    monkeypatch.setattr(Ledger, "record", noted("record", record))
    monkeypatch.setattr(Site, "_masked", noted("mask", mask))
    carry_out(pin(make("secure-sum"), sites), sites)
    assert order[:3] == ["keep", "record", "mask"]


def test_secrets_that_cannot_be_written_end_the_contribution_without_a_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites, _ = keeping(tmp_path)

    def full(path: Path, text: bytes) -> None:
        raise SiteFault("this site cannot write to its state folder")

    monkeypatch.setattr(secrets_kept, "write_file", full)
    with pytest.raises(SiteFault, match="s0"):
        carry_out(pin(make("secure-sum"), sites), sites)
    assert not sites[0]._books().entries()


def test_secrets_of_two_runs_of_one_question_are_different(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        plan, _, kept = ran(tmp_path / name)
        found += [each.secret for each in kept.of(plan.digest())]
    assert len(set(found)) == 2
    assert {len(each) for each in found} == {32}


def test_secrets_kept_are_found_by_study_and_digest_and_forgotten(tmp_path: Path) -> None:
    plan, _, kept = ran(tmp_path)
    for wanted in (plan.study, plan.digest(), plan.digest()[:8]):
        assert kept.plan(wanted).digest() == plan.digest()
    for wanted in ("other", plan.digest()[:7], ""):
        with pytest.raises(BadInput):
            kept.plan(wanted)
    kept.forget_old()
    assert kept.plans() == [plan.digest()]
    folder = tmp_path / "state" / secrets_kept.FOLDER / plan.digest()
    os.utime(folder, (0, 0))
    kept.forget_old()
    assert not kept.plans()
    assert not folder.exists()


def test_secrets_are_not_kept_for_zero_days(tmp_path: Path) -> None:
    _, _, kept = ran(tmp_path, days=0.0)
    assert not kept.plans()


def test_kept_request_that_is_too_long_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerosum.site.site.MOST_REQUEST", 10)
    plan, _, kept = ran(tmp_path)
    (each,) = kept.of(plan.digest())
    assert each.request is None
    assert Kept.of_text(each.as_text()) == each


@pytest.mark.parametrize("text", [b"", b"{}", b'{"round": 0}', b"\xff"])
def test_kept_secrets_that_are_damaged_are_refused_by_name(text: bytes, tmp_path: Path) -> None:
    plan, _, kept = ran(tmp_path)
    path = tmp_path / "state" / secrets_kept.FOLDER / plan.digest() / "0-0.json"
    path.write_bytes(text)
    with pytest.raises(BadInput, match="0-0"):
        list(kept.of(plan.digest()))


def test_secrets_of_a_contribution_that_ended_before_its_charge_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill between the two: nothing was sent under the first secret. After the charge the file stays."""
    sites, kept = keeping(tmp_path)
    plan = pin(make("secure-sum"), sites)
    secrets: list[bytes] = []

    def again() -> None:
        """The same plan with sites that have restarted."""
        restarted = [Site(s.name, s.units, s.policy, s.identity, kept=kept if s is sites[0] else None) for s in sites]
        try:
            carry_out(plan, restarted)
        finally:
            secrets.extend(each.secret for each in kept.of(plan.digest()))
            for site in restarted:
                site.close()

    with monkeypatch.context() as patch:
        patch.setattr(Site, "_charge", lambda *_: (_ for _ in ()).throw(RuntimeError))
        with pytest.raises(Refused):
            again()
    again()
    with pytest.raises(Refused):
        again()
    first, second, third = secrets
    assert first != second
    assert second == third
    assert len(sites[0]._books().entries()) == 1
