"""One site that refuses or sends something unusable: a loss with a name, within what the plan tolerates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_studies import QUESTION, make, make_sites
from zerosum.coordinator.conduct import conduct
from zerosum.coordinator.faults import Fault, fault
from zerosum.coordinator.journal import Journal
from zerosum.engines.in_process import InProcess
from zerosum.errors import Abandoned, BadMessage, LedgerRefused, SiteFault
from zerosum.kernel.plan import Plan
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import Frame, decode_message, decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    Message,
    Prepare,
    Prepared,
    Refusal,
    Reply,
    Secure,
    Secured,
)
from zerosum.protocol.roster import roster
from zerosum.report.record import Result
from zerosum.secagg import blame, shamir, wire
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.session import SiteSession
from zerosum.secagg.wire import Kind
from zerosum.site.site import Site
from zerosum.study import execute, pin

Instead = Callable[[Message], Reply | bytes | None]  # what a site sends; None: its own reply


class OneFaulty:
    """Sites of which `s2` sends something else."""

    def __init__(self, sites: list[Site], instead: Instead) -> None:
        self._engine, self._instead = InProcess(sites), instead

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        for name, reply in self._engine.exchange(frames):
            other = self._instead(decode_message(frames[name])) if name == "s2" else None
            yield name, reply if other is None else other if isinstance(other, bytes) else encode(other)


def in_step(step: str) -> Callable[[Message], bool]:
    """Whether a message is of a step: contribute, prepare, or one of secure aggregation."""
    kinds = {"contribute": Contribute, "prepare": Prepare}
    if step in kinds:
        return lambda message: isinstance(message, kinds[step])
    return lambda message: isinstance(message, Secure) and message.step == step


def run(plan: Plan, sites: list[Site], instead: Instead, folder: Path | None = None) -> Result:
    engine = OneFaulty(sites, instead)
    if folder is None:
        return execute(plan, QUESTION, engine)
    with Journal.create(folder, plan) as journal:
        return execute(plan, QUESTION, engine, journal=journal)


FULL = LedgerRefused("the ledger cannot be used: the disk is full; make room and try again")


@pytest.mark.parametrize(
    ("scheme", "step"),
    [
        ("secure-sum", "contribute"),
        ("secure-sum", "sign"),
        ("secure-sum", "open"),
        ("local", "contribute"),
        ("zero-sum", "prepare"),
    ],
)
def test_fault_full_disk_of_one_site_is_a_loss(scheme: str, step: str, tmp_path: Path) -> None:
    """In 0.2 it ended the study of all sites, though the plan tolerates a loss."""
    sites = make_sites(tmp_path)
    plan = pin(make(scheme, coalition=Coalition(1, 1)), sites)
    matches = in_step(step)
    found = run(plan, sites, lambda message: Refusal("s2", FULL) if matches(message) else None, tmp_path / "kept")
    early = step in ("contribute", "prepare")
    assert found.participants == (("s0", "s1", "s3") if early else ("s0", "s1", "s2", "s3"),)
    (loss,) = found.losses
    assert (loss["site"], loss["round"], loss["attempt"], loss["evidence"]) == ("s2", 0, 0, "")
    assert "disk is full" in loss["why"]
    assert any("disk is full" in each for each in found.warnings)
    with Journal(tmp_path / "kept" / "journal", writing=False) as journal:
        assert [each.as_record() for each in journal.faults] == [dict(loss)]
    found.write(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["losses"] == [dict(loss)]
    assert Result.read(tmp_path / "out").losses == found.losses


@pytest.mark.parametrize("losses", [0, 1])
def test_fault_refusals_beyond_tolerated_losses_end_study_with_their_reason(losses: int, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, losses)), sites)

    class Two(OneFaulty):
        def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
            refuse = isinstance(decode_message(next(iter(frames.values()))), Contribute)
            names = ("s1", "s2")[: losses + 1]
            for name, reply in super().exchange(frames):
                yield name, encode(Refusal(name, FULL)) if refuse and name in names else reply

    with pytest.raises(LedgerRefused, match="disk is full"):
        execute(plan, QUESTION, Two(sites, lambda message: None))


def test_fault_before_the_first_round_ends_study(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    matches = in_step("share")
    with pytest.raises(SiteFault, match="'s2'"):
        run(plan, sites, lambda message: Refusal("s2", SiteFault("no memory")) if matches(message) else None)
    assert not any(site._books().entries() for site in sites)


@pytest.mark.parametrize("body", [b"", bytes(8), bytes(8 * 3)])
def test_fault_signed_vector_of_wrong_length_is_a_loss_with_evidence(body: bytes, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    bad = wire.encode(Kind.MASKED, roster(plan).study, 0, 2, body, sites[2].identity)
    matches = in_step("contribute")
    found = run(plan, sites, lambda message: Contribution("s2", bad) if matches(message) else None, tmp_path / "kept")
    assert found.participants == (("s0", "s1", "s3"),)
    loss = Fault(**found.losses[0])
    loss.check(plan)
    evidence = bytes.fromhex(loss.evidence)
    assert evidence[-64:] == bad[-64:]
    for changed in (replace(loss, site="s1"), replace(loss, evidence=(bytes([evidence[0] ^ 1]) + evidence[1:]).hex())):
        with pytest.raises(BadMessage):
            changed.check(plan)
    assert any("signed" in each for each in found.warnings)


def test_fault_message_that_another_party_signed_is_no_evidence(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    forged = wire.encode(Kind.MASKED, roster(plan).study, 0, 2, bytes(16), Identity())
    matches = in_step("contribute")
    found = run(plan, sites, lambda message: Contribution("s2", forged) if matches(message) else None)
    assert found.participants == (("s0", "s1", "s3"),)
    assert [each["evidence"] for each in found.losses] == [""]
    assert fault(plan, "s2", 0, 0, "x" * 1000, b"nonsense") == Fault("s2", 0, 0, "x" * 300)


@pytest.mark.parametrize("key", [b"", bytes(32), b"\xff" * 32, bytes(31)])
def test_fault_public_key_that_is_none_names_its_site(key: bytes, tmp_path: Path) -> None:
    """In 0.2 the coordinator sent it to all sites, and the first of them that refused it was named."""
    sites = make_sites(tmp_path)
    plan = pin(make("pairwise"), sites)
    matches = in_step("prepare")
    with pytest.raises(Abandoned, match="'s2'"):
        run(plan, sites, lambda message: Prepared("s2", key) if matches(message) else None)
    assert not any(site._books().entries() for site in sites)


@pytest.mark.parametrize(
    "reply", [b"", b"nonsense", Consent("s2", 40), Contribution("s1", bytes(200)), Secured("s2", bytes(200))]
)
def test_fault_reply_of_another_kind_is_a_loss(reply: Reply | bytes, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    matches = in_step("contribute")
    found = run(plan, sites, lambda message: reply if matches(message) else None)
    assert found.participants == (("s0", "s1", "s3"),)
    assert [(each["site"], each["evidence"]) for each in found.losses] == [("s2", "")]


def test_fault_is_known_after_resumption_and_named_when_round_is_abandoned(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    matches = in_step("contribute")
    engine = OneFaulty(sites, lambda message: b"nonsense" if matches(message) else None)

    class Lossy:
        def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
            for name, reply in engine.exchange(frames):
                yield name, None if name == "s1" and matches(decode_message(frames[name])) else reply

    with Journal.create(tmp_path / "kept", plan) as journal, pytest.raises(Abandoned, match="'s2'"):
        conduct(plan, QUESTION.program(plan.adjacency), Lossy(), journal=journal)
    with Journal(tmp_path / "kept" / "journal", writing=False) as journal:
        assert [each.site for each in journal.faults] == ["s2"]


# ---- openings and shares that contradict what was signed ------------------------------------------------------------


class Changed:
    """Sites of which `s2` has its replies changed on their way, by a party that has its key."""

    def __init__(self, sites: list[Site], change: Callable[[Message, Reply], Reply]) -> None:
        self._engine, self._change = InProcess(sites), change

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        for name, reply in self._engine.exchange(frames):
            if name != "s2" or reply is None:
                yield name, reply
            else:
                yield name, encode(self._change(decode_message(frames[name]), decode_reply(reply)))


def signed_again(site: Site, data: bytes | memoryview, at: int) -> bytes:
    """A message of a site with another last byte but so many, signed by it."""
    message = wire.decode(data)
    body = bytearray(message.body)
    body[at] ^= 1
    return wire.encode(message.kind, message.study, message.attempt, message.sender, bytes(body), site.identity)


@pytest.mark.parametrize("losses", [0, 1])
def test_fault_wrong_opening_is_recorded_with_a_proof(losses: int, tmp_path: Path) -> None:
    """With a tolerated loss the sum of all four is released; without, the round is abandoned, and its culprit known."""
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, losses)), sites)
    matches = in_step("open")

    def change(message: Message, reply: Reply) -> Reply:
        if matches(message) and isinstance(reply, Secured):
            return Secured("s2", signed_again(sites[2], reply.data, -1))
        return reply

    with Journal.create(tmp_path / "kept", plan) as journal:
        if losses:
            found = execute(plan, QUESTION, Changed(sites, change), journal=journal)
            assert found.participants == (("s0", "s1", "s2", "s3"),)
        else:
            with pytest.raises(Abandoned, match="'s2'"):
                execute(plan, QUESTION, Changed(sites, change), journal=journal)
    with Journal(tmp_path / "kept" / "journal", writing=False) as journal:
        (loss,) = journal.faults
        assert loss.site == "s2"
        loss.check(plan)
        assert blame.guilty(roster(plan), journal.proof(0)) == 2


@pytest.mark.parametrize("of", ["seed", "both"])
def test_fault_false_dealing_costs_an_attempt_and_the_site_its_place(
    of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the shares of its key its pair masks cannot be removed: then the study ends, with a culprit."""
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1), attempts=1), sites)
    split, share = shamir.split, SiteSession.share

    def falsely(self: SiteSession, adverts: bytes) -> bytes:
        if self._me == 2:
            calls = count()  # of each attempt first the key, then the seed

            def another(secret: bytes, holders: Sequence[int], threshold: int) -> dict[int, bytes]:
                wrong = next(calls) % 2 or of == "both"
                return split(bytes(32) if wrong else secret, holders, threshold)

            monkeypatch.setattr(shamir, "split", another)
        try:
            return share(self, adverts)
        finally:
            monkeypatch.setattr(shamir, "split", split)

    monkeypatch.setattr(SiteSession, "share", falsely)
    with Journal.create(tmp_path / "kept", plan) as journal:
        if of == "seed":
            found = execute(plan, QUESTION, InProcess(sites), journal=journal)
            assert found.participants == (("s0", "s1", "s3"),)
        else:
            with pytest.raises(Abandoned, match="'s2'"):
                execute(plan, QUESTION, InProcess(sites), journal=journal)
    with Journal(tmp_path / "kept" / "journal", writing=False) as journal:
        assert [(each.site, each.attempt) for each in journal.faults] == [("s2", 0), ("s2", 1)][: 1 + (of == "both")]
        journal.faults[0].check(plan)
        assert blame.guilty(roster(plan), journal.proof(0)) == 2


def test_fault_contradiction_in_set_up_names_both_sites_and_costs_nothing(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    matches = in_step("receive")

    def change(message: Message, reply: Reply) -> Reply:
        if matches(message) and isinstance(reply, Secured):
            return Secured("s2", signed_again(sites[2], reply.data, 33))  # of the first neighbour's keys
        return reply

    with Journal.create(tmp_path / "kept", plan) as journal:
        with pytest.raises(Abandoned, match=r"'s0' and 's2'.*nothing was released"):
            execute(plan, QUESTION, Changed(sites, change), journal=journal)
        assert {each.site for each in journal.faults} == {"s0", "s2"}
        assert all("one of the two" in each.why for each in journal.faults)
    assert not any(site._books().entries() for site in sites)


@pytest.mark.parametrize("scheme", ["secure-sum", "zero-sum"])
def test_fault_vector_beyond_the_bound_of_all_sites_is_not_released(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that adds a number far outside its data, with honest-looking commitments: nobody else could notice."""
    sites = make_sites(tmp_path)
    plan = pin(make(scheme, coalition=Coalition(1, 1)), sites)
    masked = Site._masked

    def far(self: Site, plan: Plan, round: int, attempt: int, vector: Ring, *more: Any) -> bytes:
        changed = vector.copy()
        changed[:1] += np.uint64(2**62 if self.name == "s2" else 0)
        return masked(self, plan, round, attempt, changed, *more)

    monkeypatch.setattr(Site, "_masked", far)
    with pytest.raises(Abandoned, match="longer than"):
        execute(plan, QUESTION, InProcess(sites))


def test_release_is_recorded_with_the_commitments_of_its_sites(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    matches = in_step("contribute")
    with Journal.create(tmp_path / "kept", plan) as journal:
        execute(plan, QUESTION, OneFaulty(sites, lambda m: b"nonsense" if matches(m) else None), journal=journal)
    with Journal(tmp_path / "kept" / "journal", writing=False) as journal:
        found = journal.commitments(0)
    assert list(found) == ["s0", "s1", "s3"]
    for name, data in found.items():
        place = [site.name for site in sites].index(name)
        message = roster(plan).take(data, Kind.COMMITTED, 0)
        assert message.sender == place
