"""A frame as the content of a Flower message: the bytes in order, in parts that one HTTP request can carry.

Flower sends every record of a message as an object of its own, in one request with a time-out of 30 s. A contribution
of 48 MB in one record would have to pass within that time.
"""

from __future__ import annotations

from itertools import count

from flwr.app import ConfigRecord, RecordDict

from zerosum.errors import Malformed
from zerosum.protocol.codec import Frame

QUERY = "query"  # type of Flower's messages with a frame
_PART = 4 << 20  # bytes of a record; Flower itself cuts arrays at 5 MiB
_BYTES = "bytes"


def pack(content: Frame) -> RecordDict:
    """The records of a message with this content."""
    view = memoryview(content)
    starts = range(0, max(len(view), 1), _PART)
    return RecordDict(
        {str(at): ConfigRecord({_BYTES: bytes(view[start : start + _PART])}) for at, start in enumerate(starts)}
    )


def unpack(records: RecordDict) -> bytes:
    """The content of a message. Raises `Malformed` if the records are not those of `pack`."""
    parts: list[bytes] = []
    # Records are named by their number: Flower does not promise their order.
    for at in count():
        if len(parts) == len(records):
            return b"".join(parts)
        record = records.get(str(at))
        part = record.get(_BYTES) if isinstance(record, ConfigRecord) and len(record) == 1 else None
        if not isinstance(part, bytes):
            break
        parts.append(part)
    raise Malformed("a message of Flower does not hold a frame")
