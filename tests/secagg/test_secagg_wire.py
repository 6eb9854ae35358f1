"""The format of messages: what is packed comes back, what is cut is refused, and all of it is signed."""

from __future__ import annotations

import hashlib

import pytest

from zerosum.errors import Forged, Malformed
from zerosum.secagg import wire
from zerosum.secagg.keys import Identity
from zerosum.secagg.wire import Kind


def test_wire_message_and_parts_encoded_and_decoded_are_same() -> None:
    identity = Identity()
    data = wire.encode(Kind.READY, bytes(range(16)), 7, 3, b"body", identity)
    message = wire.decode(data)
    assert (message.kind, message.study, message.attempt, message.sender) == (Kind.READY, bytes(range(16)), 7, 3)
    assert bytes(message.body) == b"body"
    message.check(identity.public)
    for parts in ([], [b""], [b"", b"a", bytes(300)]):
        packed = wire.pack(parts)
        assert [bytes(part) for part in wire.unpack(memoryview(packed), len(parts))] == parts
        for count in {0, 1, 2, 3, 4} - {len(parts)}:
            with pytest.raises(Malformed):
                wire.unpack(memoryview(packed), count)
    for cut in (b"\0", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff" + bytes(9)):
        with pytest.raises(Malformed):
            wire.unpack(memoryview(cut), 1)


@pytest.mark.parametrize("body", [b"", b"x", b"body" * 1000])
def test_wire_message_encoded_in_place_is_same_and_immutable(body: bytes) -> None:
    identity, views = Identity(), []

    def fill(view: memoryview) -> bytes:
        view[:] = body
        views.append(view)  # kept, against the rules
        return hashlib.sha256(view).digest()

    parts = (Kind.MASKED, bytes(range(16)), 7, 3)
    expected = wire.encode(*parts, body, identity)
    data = wire.encode_in_place(*parts, len(body), fill, identity)
    assert data == expected
    views[0][:] = bytes(len(body))
    assert data == expected


@pytest.mark.parametrize("sites", [1, 7, 8, 9, 200])
def test_wire_list_packed_and_unpacked_is_same(sites: int) -> None:
    for members in ((), (0,), (sites - 1,), tuple(range(sites)), tuple(range(0, sites, 3))):
        packed = wire.pack_list(members, sites)
        assert wire.unpack_list(packed, sites) == members
        with pytest.raises(Malformed):
            wire.unpack_list(packed + b"\0", sites)
        if sites % 8:
            with pytest.raises(Malformed):
                wire.unpack_list(packed[:-1] + bytes([packed[-1] | 0x80]), sites)


def test_wire_signature_covers_kind_study_attempt_and_sender() -> None:
    identity = Identity()
    signature = wire.encode(Kind.SIGNED, bytes(16), 1, 2, b"x", identity)[-64:]
    for kind, study, attempt, sender, body in [
        (Kind.READY, bytes(16), 1, 2, b"x"),
        (Kind.SIGNED, b"\1" * 16, 1, 2, b"x"),
        (Kind.SIGNED, bytes(16), 2, 2, b"x"),
        (Kind.SIGNED, bytes(16), 1, 3, b"x"),
        (Kind.SIGNED, bytes(16), 1, 2, b"xx"),
        (Kind.SIGNED, bytes(16), 1, 2, b""),
    ]:
        with pytest.raises(Forged):
            wire.Message(kind, study, attempt, sender, memoryview(body), signature).check(identity.public)
