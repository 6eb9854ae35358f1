"""Who is asked again, who is not, and what ends the waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from helpers.small_studies import make
from zerosum.coordinator.consent import gather
from zerosum.errors import Abandoned, AwaitingConsent, LedgerRefused, PolicyRefused
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Consent, Refusal

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
    gather(make("local"), engine, lambda sites: seen.append(dict(sites)), seconds=10.0, every=0.001)
    assert engine.asked == {"s0": 1, "s1": 3, "s2": 2, "s3": 3}
    assert seen[0] == {"s0": "agreed", "s1": "absent", "s2": "waits for its steward", "s3": "absent"}
    assert [list(each.values()).count("agreed") for each in seen] == [1, 2, 4]


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
