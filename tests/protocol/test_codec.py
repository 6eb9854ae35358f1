"""Frames: every message comes back as it went, and nothing else comes back at all."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.reproducibility import examples
from helpers.small_studies import QUESTION, make
from helpers.statistic_cases import SMALL
from zerosum.compute.statistic import BoundedStatistic
from zerosum.errors import BadMessage, BudgetExceeded, Malformed, Refused, Unsupported, ZerosumError, by_code
from zerosum.kernel.events import Sampling
from zerosum.kernel.request import PrivatePublication, PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.protocol import codec
from zerosum.protocol.codec import decode_message, decode_reply, encode
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    DealtNoise,
    Dismiss,
    Dismissed,
    DrawSum,
    Message,
    Prepare,
    Prepared,
    Propose,
    PublicKeys,
    Refusal,
    Relay,
    Relayed,
    Reply,
    Secure,
    Secured,
)
from zerosum.statistics import build
from zerosum.statistics.records import ClippedRecords
from zerosum.statistics.vectors import VectorSum

SUM = VectorSum(columns=2, clip=1.0, lower=np.array([0.0, -1.0]), upper=np.array([1.0, 1e-7]))
MESSAGES: list[Message] = [
    Propose(make("secure-sum")),
    Propose(make("secure-sum", releases=QUESTION.releases(Adjacency.REPLACE_ONE, "laplace"))),
    Propose(make("cape-helper", seed=7)),
    Prepare(3, 1),
    Dismiss(),
    Secure("open", 2, b"\x00\xff" * 9),
    Relay("ab" * 32, (encode(Dismiss()), encode(Prepare(0, 0))), {"$": 1, "b": 0, "c": 0}, 60.0),
    Contribute(0, 0, PrivateSum(SUM, 0.25)),
    Contribute(1, 0, PrivateSum(SUM, 0.5, Sampling(0.01, 300))),
    Contribute(1, 2, PrivatePublication(ClippedRecords(columns=3, clip=2.0))),
    Contribute(0, 0, PrivateSum(SUM), DrawSum(np.array([-(2**62), 5]), 4)),
    Contribute(0, 0, PrivateSum(SUM), PublicKeys({0: b"a" * 32, 11: b"b" * 32})),
    Contribute(0, 0, PrivateSum(SUM), DealtNoise(np.array([1e-300, -0.0]), np.array([np.pi, 2.0]))),
]
REPLIES: list[Reply] = [
    Consent("a site", None),
    Consent("ä", 12),
    Dismissed("a site"),
    Prepared("s", b"key"),
    Secured("s", b""),
    Contribution("s", np.array([0.1, -2.5e17])),
    Contribution("s", np.array([[1, -(2**63)], [3, 2**63 - 1]])),
    Contribution("s", b"masked"),
    Refusal("s", BudgetExceeded("no more")),
    Relayed("s", {}),
    Relayed("s", {"$": encode(Consent("$", 3)), "s": encode(Dismissed("s"))}, encode(Contribution("s", b"masked"))),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, BoundedStatistic):
        return type(one) is type(other) and same(one.parameters(), other.parameters())
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, ZerosumError):
        return type(one) is type(other) and str(one) == str(other)
    if is_dataclass(one):
        mine = [(each.name, getattr(one, each.name)) for each in fields(one)]
        return type(one) is type(other) and all(same(value, getattr(other, name)) for name, value in mine)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_codec_message_encoded_and_decoded_is_same(message: Message) -> None:
    again = decode_message(encode(message))
    assert same(message, again)
    if isinstance(message, Contribute) and isinstance(again, Contribute):
        assert message.request.digest() == again.request.digest()
    if isinstance(message, Propose) and isinstance(again, Propose):
        assert message.plan.digest() == again.plan.digest()


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_codec_reply_encoded_and_decoded_is_same(reply: Reply) -> None:
    assert same(reply, decode_reply(encode(reply)))


def test_codec_cases_have_every_kind_of_message() -> None:
    assert {type(each) for each in MESSAGES} == set(get_args(Message))
    assert {type(each) for each in REPLIES} == set(get_args(Reply))


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case[0])
def test_codec_every_statistic_encoded_and_decoded_is_same(case: Any) -> None:
    statistic = build(*case)
    again = decode_message(encode(Contribute(0, 0, PrivateSum(statistic))))
    assert isinstance(again, Contribute)
    assert same(statistic, again.request.statistic)


def test_codec_frame_has_version_and_other_version_is_refused() -> None:
    frame = bytearray(encode(Prepare(0, 0)))
    assert frame[:6] == b"ZSUM" + struct.pack(">H", codec.VERSION)
    frame[5] += 1
    with pytest.raises(Unsupported, match=str(codec.VERSION + 1)):
        decode_message(bytes(frame))


def framed(body: Any, data: bytes = b"") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return struct.pack(">4sHI", b"ZSUM", codec.VERSION, len(text)) + text + data


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"ZSUM",
        b"HTTP/1.1 200 OK\r\n\r\n",
        encode(Prepare(0, 0))[:-1],
        encode(Prepare(0, 0)) + b"x",
        encode(Consent("s", 3)),  # a reply is no message
        framed(b"not json"),
        framed(b"[" * 200_000),
        framed(b'["Prepare",{"round":NaN,"attempt":0}]'),
        framed(b'["Prepare",{"round":' + b"9" * 5000 + b',"attempt":0}]'),
        framed({"Prepare": {}}),
        framed(["Prepare", {"round": 0}]),
        framed(["Prepare", {"round": 0, "attempt": 0, "more": 1}]),
        framed(["Prepare", {"round": True, "attempt": 0}]),
        framed(["Prepare", {"round": 0.0, "attempt": 0}]),
        framed(["Prepare", {"round": -1, "attempt": 0}]),
        framed(["__class__", {}]),
        framed(["Secure", {"step": "shutdown", "attempt": 0, "data": {"$": ["bytes", 0]}}]),
        framed(["Secure", {"step": "open", "attempt": 0, "data": {"$": ["bytes", 5]}}], b"1234"),
        framed(["Secure", {"step": "open", "attempt": 0, "data": {"$": ["bytes", -1]}}]),
        framed(["Secure", {"step": "open", "attempt": 0, "data": {"$": ["O", 1]}}], b"12345678"),
        framed(["Secure", {"step": "open", "attempt": 0, "data": {"$": ["f8", 1 << 31, 1 << 31]}}]),
        framed(["Secure", {"step": "open", "attempt": 0, "data": {"$": ["f8", *[1] * 60]}}], b"12345678"),
        framed(["Propose", {"plan": {"$": ["bytes", 2]}}], b"{}"),
        *(
            framed(["Relay", {"plan": "ab", "frames": frames, "names": names, "of": of, "seconds": seconds}], b"x")
            for frames, names, of, seconds in (
                ([], [], [], 1.0),
                ([{"$": ["bytes", 1]}], ["a"], [1], 1.0),
                ([{"$": ["bytes", 1]}], ["a"], [True], 1.0),
                ([{"$": ["bytes", 1]}], ["a", "a"], [0, 0], 1.0),
                ([{"$": ["bytes", 1]}], ["a"], [0, 0], 1.0),
                ([{"$": ["bytes", 1]}], [["a"]], [0], 1.0),
                ([{"$": ["bytes", 1]}], ["a"], [0], 1e9),
                ([{"$": ["bytes", 1]}], ["a"], [0], -1.0),
                ([{"$": ["f8", 0]}, {"$": ["bytes", 1]}], ["a"], [0], 1.0),
            )
        ),
    ],
)
def test_codec_bad_frame_is_refused_in_one_line(frame: bytes) -> None:
    with pytest.raises(ZerosumError) as refusal:
        decode_message(frame)
    assert "\n" not in str(refusal.value)


def test_codec_unknown_request_is_refused() -> None:
    asked = {
        "kind": "sum",
        "name": "vector_sum",
        "share": 1.0,
        "sampling": None,
        "parameters": {"columns": 2, "clip": 1},
    }

    def contribute(**changes: Any) -> bytes:
        return framed(["Contribute", {"round": 0, "attempt": 0, "request": asked | changes, "noise_input": None}])

    assert isinstance(decode_message(contribute()), Contribute)
    for wrong in (
        {"kind": "code"},
        {"kind": "publication"},  # a sum's statistic has no rows to publish
        {"name": "os.system"},
        {"share": -1.0},
        {"share": "1"},
        {"sampling": [0.5]},
        {"sampling": [2.0, 10]},
        {"parameters": {"columns": 2, "clip": 1, "function": "evil"}},
        {"parameters": None},
    ):
        with pytest.raises(ZerosumError):
            decode_message(contribute(**wrong))


def test_codec_error_keeps_kind_and_unknown_one_becomes_refusal() -> None:
    assert by_code("Malformed") is Malformed
    frame = encode(Refusal("s", Malformed("x"))).replace(b"Malformed", b"Invented_")
    reply = decode_reply(frame)
    assert isinstance(reply, Refusal)
    assert type(reply.error) is Refused


FRAMES = [encode(each) for each in (*MESSAGES, *REPLIES)]


@settings(max_examples=examples(1500), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_codec_mutated_frame_raises_only_package_errors(seed: int) -> None:
    rng = random.Random(seed)
    frame = bytearray(rng.choice(FRAMES))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(frame)) if frame else 0
        match rng.randrange(4):
            case 0:
                frame[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del frame[at : at + rng.randint(1, 20)]
            case 2:
                frame[at:at] = rng.choice(FRAMES)[: rng.randint(1, 40)]
            case _:
                frame[at : at + 8] = rng.choice([b"$", b"null", b"1e999", b'"', b"]", b"{", b"\xff" * 8])
    for decode in (decode_message, decode_reply):
        with suppress(ZerosumError):
            decode(bytes(frame))


@pytest.mark.parametrize(
    ("names", "frames"),
    [(["a"], []), (["a", "a"], [{"$": ["bytes", 1]}, {"$": ["bytes", 0]}]), ([1], [{"$": ["bytes", 1]}]), (1, 2)],
)
def test_codec_bad_replies_of_branch_are_malformed(names: Any, frames: Any) -> None:
    with pytest.raises(Malformed):
        decode_reply(framed(["Relayed", {"site": "s", "names": names, "frames": frames, "total": None}], b"x"))


def test_codec_unreadable_reply_raises_bad_message() -> None:
    with pytest.raises(BadMessage):
        decode_reply(b"garbage")


def contribute_frame(request: dict[str, object], noise: object = None) -> bytes:
    base = {"kind": "sum", "name": "vector_sum", "share": 1.0, "sampling": None}
    base |= {"parameters": {"columns": 2, "clip": 1.0}}
    body = {"round": 0, "attempt": 0, "request": base | request, "noise_input": noise}
    text = json.dumps(["Contribute", body]).encode()
    return struct.pack(">4sHI", b"ZSUM", 1, len(text)) + text


@pytest.mark.parametrize(
    "request_",
    [
        {"share": 10**400},
        {"sampling": [10**400, 3]},
        {"parameters": {"columns": 2, "clip": 1.0, "self": 1}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"a": 1}, "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": [10**400, 0], "upper": [1, 1]}},
        {"parameters": {"columns": 2, "clip": 1.0, "lower": {"$": ["f8", 0, 2**32, 2**32, 2**32]}}},
    ],
)
def test_decode_of_a_hostile_request_raises_an_error_of_the_package(request_: dict[str, object]) -> None:
    with pytest.raises(ZerosumError):
        decode_message(contribute_frame(request_))
