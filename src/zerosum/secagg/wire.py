"""The wire format: one contiguous buffer with a header, its body, and the sender's signature. No pickles.

    magic "ZS"  version  kind  study (16)  attempt (4)  sender (4)  length of the body (8)  body  signature (64)

Sites sign every message they send. Messages of the coordinator have zeros there, since no check depends on them. Every
message has one encoding only: a message with any change is refused, or it is another message.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from zerosum.errors import Malformed, Unsupported
from zerosum.secagg.keys import SIGNATURE_BYTES, Identity, check_signature

VERSION = 2  # 1: without commitments
COORDINATOR = 0xFFFFFFFF
STUDY_BYTES = 16
_MAGIC = b"ZS"
# The fields of the module's text in their order, big-endian, without padding.
_HEADER = struct.Struct(">2sBB16sIIQ")
HEADER_BYTES = _HEADER.size
_COUNT = struct.Struct(">I")


class Kind(IntEnum):
    """The kind of a message, in the order of the protocol."""

    ADVERT = 1  # site: its public keys
    ADVERTS = 2  # coordinator: the public keys of all sites
    SHARES = 3  # site: sealed shares of its secrets
    DELIVERY = 4  # coordinator: the shares sealed for this site
    READY = 5  # site: the shares are valid
    MASKED = 6  # site: its masked vector
    LIST = 7  # coordinator: whose vectors are in the sum
    SIGNED = 8  # site: it has seen this list and no other
    WARRANT = 9  # coordinator: enough signatures under this list
    OPENING = 10  # site: shares of what the list opens
    PARTIAL = 11  # inner node of a tree: the sum of the masked vectors of its branch
    DEALT = 12  # site, inside SHARES: the hashes of the shares that it sealed
    COMMITTED = 13  # site, inside MASKED and PARTIAL: its commitments


@dataclass(frozen=True)
class Message:
    """One parsed message; `body` is a view into the buffer of the message."""

    kind: Kind
    study: bytes
    attempt: int
    sender: int
    body: memoryview
    signature: bytes

    def check(self, public: bytes) -> None:
        """Raise `Forged` unless the holder of this identity sent it."""
        # The signature covers the digest of the body instead of the body: `encode_in_place` has it before the message
        # is whole. The header includes the length, the study and the attempt, so that no field can be exchanged.
        head = _HEADER.pack(_MAGIC, VERSION, self.kind, self.study, self.attempt, self.sender, len(self.body))
        check_signature(public, self.signature, head + hashlib.sha256(self.body).digest())


def encode(
    kind: Kind,
    study: bytes,
    attempt: int,
    sender: int,
    body: bytes | memoryview,
    identity: Identity | None = None,
) -> bytes:
    """A message as bytes, signed where the sender is a site."""
    head = _HEADER.pack(_MAGIC, VERSION, kind, study, attempt, sender, len(body))
    signature = bytes(SIGNATURE_BYTES)
    if identity is not None:
        signature = identity.sign(head + hashlib.sha256(body).digest())
    return b"".join((head, body, signature))


def encode_in_place(
    kind: Kind,
    study: bytes,
    attempt: int,
    sender: int,
    length: int,
    fill: Callable[[memoryview], bytes],
    identity: Identity,
) -> bytes:
    """A site's message with a long body, which `fill` writes where it is sent from; it returns the body's SHA-256."""
    head = _HEADER.pack(_MAGIC, VERSION, kind, study, attempt, sender, length)
    # A buffer of the final size, so that a long masked vector is not copied into its message.
    message = io.BytesIO(bytes(_HEADER.size + length + SIGNATURE_BYTES))
    view = message.getbuffer()
    view[: _HEADER.size] = head
    digest = fill(view[_HEADER.size : -SIGNATURE_BYTES])
    view[-SIGNATURE_BYTES:] = identity.sign(head + digest)
    # `getvalue` copies while a view of the buffer exists.
    del view
    return message.getvalue()  # no copy, unless a view of it still exists


def decode(data: bytes | bytearray | memoryview) -> Message:
    """Parse a message, or raise `Malformed` or `Unsupported`; the signature is not checked yet."""
    view = memoryview(data)
    if len(view) < _HEADER.size + SIGNATURE_BYTES:
        raise Malformed(f"a message has at least {_HEADER.size + SIGNATURE_BYTES} bytes, got {len(view)}")
    magic, version, kind, study, attempt, sender, length = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise Malformed("this is no message of the secure sum")
    if version != VERSION:
        raise Unsupported(f"message of version {version}; this release speaks version {VERSION}")
    if kind not in Kind.__members__.values():
        raise Malformed(f"there is no message of kind {kind}")
    # Bytes behind the body would be outside the signature: the length must be exact.
    if length != len(view) - _HEADER.size - SIGNATURE_BYTES:
        raise Malformed(f"the message says it carries {length} bytes, it carries another number")
    body = view[_HEADER.size : _HEADER.size + length]
    return Message(Kind(kind), study, attempt, sender, body, bytes(view[-SIGNATURE_BYTES:]))


def evidence(data: bytes | bytearray | memoryview) -> bytes:
    """Header, digest of the body and signature of a message, which together show who sent it.

    Raises
    ------
    BadMessage
        If the data are no message.
    """
    message, view = decode(data), memoryview(data)
    return b"".join((view[: _HEADER.size], hashlib.sha256(message.body).digest(), message.signature))


def check_evidence(found: bytes, public: bytes) -> None:
    """Raise `Forged` unless the holder of this identity signed the message that `evidence` was made of."""
    check_signature(public, found[-SIGNATURE_BYTES:], found[:-SIGNATURE_BYTES])


def pack(parts: Iterable[bytes]) -> bytes:
    """Several byte strings as one."""
    return b"".join(piece for part in parts for piece in (_COUNT.pack(len(part)), part))


def unpack(body: memoryview, count: int) -> list[memoryview]:
    """The inverse of `pack`; exactly `count` strings must be there."""
    parts = unpack_all(body, count)
    if len(parts) != count:
        raise Malformed(f"{count} parts were expected, the message holds {len(parts)}")
    return parts


def unpack_all(body: memoryview, most: int) -> list[memoryview]:
    """The inverse of `pack`, for at most `most` strings."""
    parts: list[memoryview] = []
    at = 0
    while at < len(body):
        if len(parts) == most or at + _COUNT.size > len(body):
            raise Malformed(f"{most} parts were expected, the message holds another number")
        (length,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        if at + length > len(body):
            raise Malformed("a part of the message is cut short")
        parts.append(body[at : at + length])
        at += length
    return parts


def pack_list(members: Sequence[int], sites: int) -> bytes:
    """A set of sites as bits."""
    bits = bytearray((sites + 7) // 8)
    for member in members:
        bits[member // 8] |= 1 << member % 8
    return bytes(bits)


def unpack_list(body: memoryview | bytes, sites: int) -> tuple[int, ...]:
    """The inverse of `pack_list`: numbers of sites in rising order."""
    if len(body) != (sites + 7) // 8:
        raise Malformed(f"a list of {sites} sites has {(sites + 7) // 8} bytes, got {len(body)}")
    members = tuple(s for s in range(8 * len(body)) if body[s // 8] >> s % 8 & 1)
    # Bits beyond the last site must be zero: otherwise one list would have several encodings, and several signatures.
    if members and members[-1] >= sites:
        raise Malformed("the list names a site that is not on the roster")
    return members
