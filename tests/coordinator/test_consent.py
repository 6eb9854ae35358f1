"""Who is asked again, who is not, and what ends the waiting."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from helpers.small_studies import make
from zerosum.coordinator import consent
from zerosum.coordinator.consent import dismiss, gather
from zerosum.engines.sockets import Sockets
from zerosum.errors import Abandoned, AwaitingConsent, Busy, LedgerRefused, PolicyRefused, SiteFault
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Consent, Dismissed, Refusal
from zerosum.protocol.stream import short

WAITS = AwaitingConsent("this site waits for its steward to decide")


class Scripted:
    """Sites that answer as they are told, one answer after the other."""

    def __init__(self, replies: dict[str, list[bytes | None]]) -> None:
        self.replies, self.asked = replies, dict.fromkeys(replies, 0)

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
        for name in frames:
            answers = self.replies[name]
            self.asked[name] += 1
            yield name, answers.pop(0) if len(answers) > 1 else answers[0]


def agrees(name: str) -> bytes:
    return encode(Consent(name, 20))


def test_gather_repeats_proposal_to_waiting_and_absent_sites_only() -> None:
    engine = Scripted(
        {
            "s0": [agrees("s0")],
            "s1": [None, None, agrees("s1")],
            "s2": [encode(Refusal("s2", WAITS)), agrees("s2")],
            "s3": [b"nonsense", agrees("s0"), agrees("s3")],  # unreadable, then for another site
        }
    )
    seen: list[dict[str, str]] = []
    gather(make("local"), engine, lambda sites: seen.append(dict(sites)), seconds=30.0, every=0.2)
    assert engine.asked == {"s0": 1, "s1": 3, "s2": 2, "s3": 3}
    assert seen[0] == {"s0": "agreed", "s1": "absent", "s2": "waits for its steward", "s3": "absent"}
    assert [list(each.values()).count("agreed") for each in seen] == [1, 2, 4]


def test_gather_time_out_holds_with_site_that_accepts_and_does_not_answer(tmp_path: Path) -> None:
    """In 0.2 it waited for the time-out of the reply, ten minutes, whatever the time-out of the gathering was."""
    server, plan = socket.socket(socket.AF_UNIX), make("local")
    with short(tmp_path / "site") as name:
        server.bind(name)
    server.listen(8)
    engine = Sockets({site.name: tmp_path / "site" for site in plan.sites}, plan.digest(), seconds=3600.0)
    seen: list[Mapping[str, str]] = []
    with closing(server):
        with pytest.raises(Abandoned, match="'s0'"):
            gather(plan, engine, seen.append, seconds=0.5, every=0.1)
        dismiss(engine, ["s0"], seconds=0.1)
        engine.close()
    assert seen == [dict.fromkeys(("s0", "s1", "s2", "s3"), "absent")]


def test_gather_gives_sessions_back_while_a_steward_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes them again when the last steward has decided."""
    monkeypatch.setattr(consent, "GIVE_BACK", 0.02)
    asked: list[tuple[str, str]] = []
    waits = 20

    class Slow:
        def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | None]]:
            nonlocal waits
            for name, frame in frames.items():
                asked.append((name, type(decode_message(frame)).__name__))
                if asked[-1][1] == "Dismiss":
                    yield name, encode(Dismissed(name))
                    continue
                if name == "s2":
                    waits -= 1
                yield name, encode(Refusal(name, WAITS)) if name == "s2" and waits > 0 else agrees(name)

    seen: list[Mapping[str, str]] = []
    gather(make("local"), Slow(), seen.append, seconds=60.0, every=0.01)
    given_back = asked.index(("s0", "Dismiss"))
    assert asked.count(("s0", "Propose")) == asked[:given_back].count(("s0", "Propose")) + 1 == 2
    assert any(sites["s0"] == "ready" and sites["s2"] == "waits for its steward" for sites in seen)
    assert set(seen[-1].values()) == {"agreed"}


def test_gather_while_resumed_gives_no_session_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "GIVE_BACK", 0.0)
    busy = encode(Refusal("s1", Busy("this site takes part in as many studies as it may at once")))
    others: dict[str, list[bytes | None]] = {name: [agrees(name)] for name in ("s0", "s2", "s3")}
    engine = Scripted({**others, "s1": [busy, busy, busy, agrees("s1")]})
    gather(make("local"), engine, lambda sites: None, seconds=30.0, every=0.05, resumed=True)
    assert engine.asked == {"s0": 1, "s1": 4, "s2": 1, "s3": 1}


def test_gather_site_absent_for_too_long_ends_it() -> None:
    others: dict[str, list[bytes | None]] = {name: [agrees(name)] for name in ("s0", "s2", "s3")}
    with pytest.raises(Abandoned, match="'s1'"):
        gather(
            make("local"),
            Scripted({**others, "s1": [None]}),
            lambda sites: None,
            seconds=3600.0,
            every=0.01,
            absent=0.1,
        )


def test_gather_site_without_disk_is_asked_again() -> None:
    full = encode(Refusal("s1", SiteFault("this site cannot write its audit log")))
    others: dict[str, list[bytes | None]] = {name: [agrees(name)] for name in ("s0", "s2", "s3")}
    seen: list[Mapping[str, str]] = []
    gather(make("local"), Scripted({**others, "s1": [full, agrees("s1")]}), seen.append, seconds=30.0, every=0.05)
    assert [sites["s1"] for sites in seen] == ["out of disk or memory", "agreed"]


def test_gather_refusal_or_timeout_raises() -> None:
    refuses = encode(Refusal("s1", PolicyRefused("no")))
    others: dict[str, list[bytes | None]] = {name: [agrees(name)] for name in ("s0", "s2", "s3")}
    with pytest.raises(PolicyRefused, match="'s1'"):
        gather(make("local"), Scripted({**others, "s1": [refuses]}), lambda sites: None, seconds=10.0, every=0.001)
    waits = Scripted({**others, "s1": [encode(Refusal("s1", WAITS))]})
    with pytest.raises(Abandoned, match="'s1'"):
        gather(make("local"), waits, lambda sites: None, seconds=0.01, every=0.002)


@pytest.mark.parametrize(("seconds", "patience"), [(60.0, 0.1), (0.1, 60.0)])
def test_gather_with_spare_sites_waits_limited_time(seconds: float, patience: float) -> None:
    whole = encode(Refusal("s2", LedgerRefused("study 'x' is in the ledger already, whole")))
    for lost in (None, whole):
        engine = Scripted({"s0": [agrees("s0")], "s1": [agrees("s1")], "s2": [lost], "s3": [agrees("s3")]})
        seen: list[Mapping[str, str]] = []
        gather(make("local"), engine, seen.append, every=0.01, spare=1, seconds=seconds, patience=patience)
        assert [sites["s2"] for sites in seen] == ["absent" if lost is None else "cannot go on"]
        assert engine.asked["s2"] > 1
    with pytest.raises(LedgerRefused):  # a study begins with everybody
        gather(make("local"), engine, lambda sites: None, every=0.01, seconds=seconds)
    engine = Scripted({"s0": [None], "s1": [agrees("s1")], "s2": [None], "s3": [agrees("s3")]})
    with pytest.raises(Abandoned, match=r"'s0'.*'s2'"):
        gather(make("local"), engine, lambda sites: None, seconds=0.1, every=0.01, spare=1)
