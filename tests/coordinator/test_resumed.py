"""Studies that are resumed: nothing goes on under other keys than it was asked under; sites that stay away are lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from helpers.small_studies import QUESTION, entries, make, make_sites
from zerosum.coordinator.conduct import Outcome, conduct
from zerosum.coordinator.consent import gather
from zerosum.coordinator.journal import Journal
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess, Loses
from zerosum.errors import Abandoned, AwaitingConsent, Busy, LedgerRefused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.view import Coalition
from zerosum.protocol.codec import Frame, encode
from zerosum.protocol.messages import Contribute, Dismiss, Message, Refusal, Secure
from zerosum.protocol.progress import Progress
from zerosum.site.site import Site
from zerosum.study import pin


class Stopped(Exception):
    """Somebody ends the coordinator."""


def test_resumed_coordinator_stopped_after_new_keys_takes_another_attempt(tmp_path: Path) -> None:
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


# ---- sites that stay away ------------------------------------------------------------------------------------------


def begin(folder: Path, plan: Plan, sites: list[Site], at: str, lost: str = "") -> None:
    """A study whose coordinator is killed in its round, before the messages of some step go out. One site may not have
    been reached by the request for its contribution."""

    def killed(site: str, message: Message) -> bool:
        if isinstance(message, Secure) and message.step == at:
            raise Stopped
        return site == lost and isinstance(message, Contribute)

    with Journal.create(folder, plan) as journal, pytest.raises(Stopped):
        conduct(plan, QUESTION.program(plan.adjacency), InProcess(sites, killed), journal=journal)


def resume(folder: Path, sites: list[Site], loses: Loses) -> Outcome[Mapping[str, Quantity]]:
    with Journal(folder / "journal") as journal:
        program = QUESTION.program(journal.plan.adjacency)
        return conduct(journal.plan, program, InProcess(sites, loses), journal=journal)


def away(*names: str) -> Loses:
    return lambda site, message: site in names


def restarted(site: Site) -> Site:
    site.close()
    return Site(site.name, site.units, site.policy, site.identity)


@pytest.mark.parametrize("at", ["sign", "open"])
def test_resumed_study_without_absent_site_equals_study_that_lost_it(at: str, tmp_path: Path) -> None:
    """The others say again what they said, and open the masks of the lost one with the shares that they have."""
    sites = make_sites(tmp_path / "a")
    plan = pin(make("secure-sum", seed=5, coalition=Coalition(1, 1)), sites)
    begin(tmp_path / "kept", plan, sites, at, lost="s2")
    found = resume(tmp_path / "kept", sites, away("s2"))
    assert found.participants == (("s0", "s1", "s3"),)
    assert [entries(site) for site in sites] == [1, 1, 0, 1]
    others = make_sites(tmp_path / "b")
    for other, site in zip(others, sites, strict=True):
        other.identity = site.identity
    engine = InProcess(others, lambda site, message: site == "s2" and isinstance(message, Contribute))
    expected = conduct(plan, QUESTION.program(plan.adjacency), engine)
    for name, quantity in expected.result.items():
        assert found.result[name].value.tobytes() == quantity.value.tobytes()


def test_resumed_study_with_too_many_absent_sites_waits_at_no_cost(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", attempts=1, coalition=Coalition(1, 1)), sites)
    begin(tmp_path / "kept", plan, sites, "sign")
    with pytest.raises(Abandoned, match=r"'s1'.*'s2'"):
        resume(tmp_path / "kept", sites, away("s1", "s2"))
    sites[1] = restarted(sites[1])
    with pytest.raises(Abandoned, match="'s2'"):
        resume(tmp_path / "kept", sites, away("s2"))
    assert [entries(site) for site in sites] == [1, 1, 1, 1]


@pytest.mark.parametrize("attempts", [0, 1])
def test_resumed_study_without_announced_site_takes_an_attempt(attempts: int, tmp_path: Path) -> None:
    """They sign one list and no other: away by then, it leaves the round to be asked again, if that was bought."""
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", attempts=attempts, coalition=Coalition(1, 1)), sites)
    begin(tmp_path / "kept", plan, sites, "open")
    if not attempts:
        with pytest.raises(Abandoned):
            resume(tmp_path / "kept", sites, away("s2"))
        assert [entries(site) for site in sites] == [1, 1, 1, 1]
        return
    assert resume(tmp_path / "kept", sites, away("s2")).participants == (("s0", "s1", "s3"),)
    assert [entries(site) for site in sites] == [2, 2, 1, 2]


@pytest.mark.parametrize("charged", [False, True])
def test_resumed_study_without_spare_attempt_leaves_restarted_site_out(charged: bool, tmp_path: Path) -> None:
    """New keys for everybody would cost an attempt, and the plan has none. It is told, and holds nothing back; or its
    ledger has the study whole, and it says so."""
    sites, told = make_sites(tmp_path), []
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    begin(tmp_path / "kept", plan, sites, "sign", lost="s2")
    if charged:  # its reply was lost, not the request
        sites[2].handle(Contribute(0, 0, QUESTION.requests(plan.adjacency)[0]))
    sites[2] = restarted(sites[2])

    def loses(site: str, message: Message) -> bool:
        told.extend([site] if isinstance(message, Dismiss) else [])
        return False

    assert resume(tmp_path / "kept", sites, loses).participants == (("s0", "s1", "s3"),)
    assert told == ([] if charged else ["s2"])
    assert [entries(site) for site in sites] == [1, 1, int(charged), 1]


def test_resumed_local_study_goes_on_without_absent_site(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("local", attempts=1, coalition=Coalition(1, 1)), sites)

    def killed(site: str, message: Message) -> bool:
        if isinstance(message, Contribute) and site == "s3":
            raise Stopped
        return False

    with Journal.create(tmp_path / "kept", plan) as journal, pytest.raises(Stopped):
        conduct(plan, QUESTION.program(plan.adjacency), InProcess(sites, killed), journal=journal)
    assert resume(tmp_path / "kept", sites, away("s2")).participants == (("s0", "s1", "s3"),)
    assert [entries(site) for site in sites] == [2, 2, 1, 1]


class Refusing:
    """Sites of which one refuses whatever it is asked."""

    def __init__(self, engine: Engine, name: str, error: ZerosumError) -> None:
        self._engine, self._name, self._error = engine, name, error

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        yield from self._engine.exchange({name: frame for name, frame in frames.items() if name != self._name})
        if self._name in frames:
            yield self._name, encode(Refusal(self._name, self._error))


@pytest.mark.parametrize("scheme", ["secure-sum", "local"])
@pytest.mark.parametrize(
    "error",
    [
        Busy("this site takes part in as many studies as it may at once"),
        AwaitingConsent("this site waits for its steward to decide"),
    ],
)
def test_resumed_study_treats_busy_or_waiting_site_as_lost(scheme: str, error: ZerosumError, tmp_path: Path) -> None:
    """Who gathers the sites goes on without it, so who asks them does."""
    sites = make_sites(tmp_path)
    plan = pin(make(scheme, attempts=1, coalition=Coalition(1, 1)), sites)

    def killed(site: str, message: Message) -> bool:
        if isinstance(message, Contribute) and site == "s3":
            raise Stopped
        return False

    with Journal.create(tmp_path / "kept", plan) as journal, pytest.raises(Stopped):
        conduct(plan, QUESTION.program(plan.adjacency), InProcess(sites, killed), journal=journal)
    with Journal(tmp_path / "kept" / "journal") as journal:
        engine = Refusing(InProcess(sites), "s2", error)
        gather(plan, engine, lambda sites: None, seconds=10.0, every=0.001, spare=1, patience=0.002)
        found = conduct(plan, QUESTION.program(plan.adjacency), engine, journal=journal)
    assert found.participants == (("s0", "s1", "s3"),)


@pytest.mark.parametrize("losses", [0, 1])
def test_resumed_study_with_unusable_ledger_raises_its_error(losses: int, tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", attempts=1, coalition=Coalition(1, losses)), sites)
    begin(tmp_path / "kept", plan, sites, "open")
    for n in range(losses + 1):
        sites[n] = restarted(sites[n])
        sites[n].policy.counter_path.unlink()
    with pytest.raises(LedgerRefused if not losses else Abandoned, match="counter"):
        resume(tmp_path / "kept", sites, away())


def test_resumed_study_with_earlier_journal_records_keys_once_all_are_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has their digest only. Until then everybody is waited for, since nobody could go on without anybody."""

    def set_up(journal: Journal, keys: bytes) -> None:
        journal._write({"kind": "session", "session": hashlib.sha256(keys).hexdigest()})

    sites = make_sites(tmp_path)
    plan = pin(make("secure-sum", coalition=Coalition(1, 1)), sites)
    with monkeypatch.context() as earlier:
        earlier.setattr(Journal, "set_up", set_up)
        begin(tmp_path / "kept", plan, sites, "sign", lost="s2")

    def stopped(seen: Progress) -> None:
        if (seen.stage, seen.done) == ("set-up", 1):
            raise Stopped

    with Journal(tmp_path / "kept" / "journal") as journal:
        assert journal.spare == 0
        with pytest.raises(Stopped):
            conduct(plan, QUESTION.program(plan.adjacency), InProcess(sites), stopped, journal)
        assert journal.spare == 1
    assert resume(tmp_path / "kept", sites, away("s2")).participants == (("s0", "s1", "s3"),)
    assert [entries(site) for site in sites] == [1, 1, 0, 1]
