"""A site on the wire: whatever arrives gets a frame back, and garbage spends nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from helpers.small_studies import QUESTION, make, make_sites
from zerosum.errors import BadMessage, OutsidePlan, Refused
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Message, Prepare, Propose, Refusal, Secure
from zerosum.site.host import answer
from zerosum.site.site import Site
from zerosum.study import pin


def test_host_answers_frames_and_repeats_same_bytes(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    plan = make("local")
    assert decode_reply(answer(site, encode(Propose(plan)))) == Consent("s0", 12)
    asked = encode(Contribute(0, 0, QUESTION.requests(Adjacency.REPLACE_ONE)[0]))
    reply = answer(site, asked)
    assert isinstance(decode_reply(reply), Contribution)
    assert answer(site, asked) == reply  # asked again, the same bytes
    assert len(site._books().entries()) == 1


def test_host_refusal_has_kind_of_error(tmp_path: Path) -> None:
    site = make_sites(tmp_path)[0]
    for frame, kind in ((b"", BadMessage), (encode(Prepare(0, 0)), OutsidePlan)):
        refusal = decode_reply(answer(site, frame))
        assert isinstance(refusal, Refusal)
        assert isinstance(refusal.error, kind)


def test_host_internal_error_reveals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = make_sites(tmp_path)[0]

    def broken(self: Site, message: Message) -> None:
        raise KeyError("person 17")

    monkeypatch.setattr(Site, "handle", broken)
    refusal = decode_reply(answer(site, encode(Prepare(0, 0))))
    assert isinstance(refusal, Refusal)
    assert type(refusal.error) is Refused
    assert "17" not in str(refusal.error)


def test_host_mutated_frames_spend_no_more_than_consented(tmp_path: Path) -> None:
    sites = make_sites(tmp_path)
    plan, rng = pin(make("secure-sum"), sites), random.Random(0)
    request = QUESTION.requests(Adjacency.REPLACE_ONE)[0]
    frames = [encode(m) for m in (Propose(plan), Secure("advertise"), Contribute(0, 0, request), Prepare(0, 0))]
    answer(sites[0], frames[0])
    for _ in range(3000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        assert decode_reply(answer(sites[0], bytes(frame))).site == "s0"
    assert len(sites[0]._books().entries()) <= 1
