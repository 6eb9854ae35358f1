"""Messages as bytes. A frame is a head, a JSON text that says what the message is, and the raw numbers it speaks of.

    bytes 0-3    "ZSUM"
    bytes 4-5    version of this format
    bytes 6-9    length of the JSON text
    ...          the JSON text: kind, fields, and of every array or byte string its type and shape
    ...          the arrays and byte strings themselves, little-endian, one after the other

No part of a frame is code. A reader builds only messages of the kinds in this file, and statistics of its own
registry. Every other input raises `Malformed` or `Unsupported`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.statistic import BoundedMap
from zerosum.errors import Malformed, Unsupported, by_code
from zerosum.kernel.amounts import MOST_UNITS
from zerosum.kernel.events import Sampling
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication, PrivateSum, Request
from zerosum.protocol.messages import (
    Consent,
    Contribute,
    Contribution,
    DealtNoise,
    Dismiss,
    Dismissed,
    DrawSum,
    Message,
    NoiseInput,
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

VERSION: Final = 1
MAX_FRAME: Final = 1 << 32  # bytes; a transport may set a lower limit
MAX_TEXT: Final = 1 << 20  # of them JSON: numbers of any quantity travel as arrays
MOST_SECONDS: Final = 86400.0  # longest time-out that a coordinator may set for the replies of a branch. Chosen by hand

_MAGIC = b"ZSUM"
_HEAD = struct.Struct(">4sHI")
_TYPES = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8")}
_MOST_AXES = 4
_MOST_WORDS = 2000  # characters of a refusal

# What a frame may hold: JSON, and in its place arrays of doubles or of 64-bit integers, and byte strings.
Value = None | bool | int | float | str | bytes | memoryview | NDArray[Any] | list["Value"] | dict[str, "Value"]
Frame = bytes | bytearray | memoryview  # as it was read; what is large in it is used where it lies
Fields = dict[str, Value]
T = TypeVar("T")


def encode(message: Message | Reply) -> bytes:
    """A message as one frame."""
    kind = type(message)
    buffers: list[Frame] = []
    body = [kind.__name__, _lowered(_WRITERS[kind](message), buffers)]
    # NaN and infinity are no JSON, and readers of other languages would refuse the frame; in arrays they are allowed.
    text = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    return b"".join([_HEAD.pack(_MAGIC, VERSION, len(text)), text, *buffers])


def decode_message(frame: Frame) -> Message:
    """A coordinator's message, its statistic built from this process's registry; what does not fit is refused."""
    return _decoded(frame, _MESSAGES)


def decode_reply(frame: Frame) -> Reply:
    """A site's reply."""
    return _decoded(frame, _REPLIES)


# ---- frames ----------------------------------------------------------------------------------------------------


def _decoded(frame: Frame, readers: Mapping[str, Callable[[_Reader], T]]) -> T:
    """The message in a frame, of one of the kinds in `readers`; a field that the kind does not have is refused."""
    kind, fields = _parsed(frame)
    if kind not in readers:
        raise Malformed("a frame holds no message that is expected here")
    reader = _Reader(fields)
    message = readers[kind](reader)
    reader.finish()
    return message


def _parsed(frame: Frame) -> tuple[str, Fields]:
    # Checks go from the outside to the inside, each before memory is allocated for what it limits: a frame may come
    # from any process that can connect.
    """The kind and the fields of a frame, with arrays and byte strings in their places.

    Raises `Malformed` or `Unsupported` for every other input, never another error: a frame may come from any sender.
    """
    if len(frame) > MAX_FRAME:
        raise Malformed("a frame is too large")
    if len(frame) < _HEAD.size:
        raise Malformed("a frame is cut short")
    magic, version, length = _HEAD.unpack_from(frame)
    if magic != _MAGIC:
        raise Malformed("a frame does not begin as one")
    if version != VERSION:
        raise Unsupported(f"a frame of version {version} came, this Zerosum reads version {VERSION}")
    if length > MAX_TEXT:
        raise Malformed("a frame's text is too long")
    # A read-only view: arrays share the memory of the frame, and no statistic may change what another one reads.
    view = memoryview(frame).toreadonly()[_HEAD.size :]
    if len(view) < length:
        raise Malformed("a frame is cut short")
    try:
        # Python's parser accepts NaN and Infinity as constants; `parse_constant` refuses them, as `encode` does. Deep
        # nesting raises RecursionError instead of ValueError.
        body = json.loads(bytes(view[:length]).decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Malformed("a frame's text is not JSON") from None
    buffers = _Buffers(view[length:])
    try:
        raised = _raised(body, buffers)
    except RecursionError:
        raise Malformed("a frame's text is nested too deeply") from None
    # Bytes that no field describes would not be covered by any check.
    buffers.finish()
    match raised:
        case [str(kind), dict(fields)]:
            return kind, fields
    raise Malformed("a frame's text does not name a message and its fields")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _lowered(value: Any, buffers: list[Frame]) -> Any:
    """A value as JSON; arrays and byte strings go into the buffers and leave their type and shape."""
    if isinstance(value, np.ndarray):
        code = "f8" if value.dtype.kind == "f" else "i8"
        buffers.append(np.ascontiguousarray(value, dtype=_TYPES[code]).reshape(-1).view(np.uint8).data)
        return {"$": [code, *value.shape]}
    if isinstance(value, bytes | bytearray | memoryview):
        buffers.append(value)
        return {"$": ["bytes", len(value)]}
    if isinstance(value, Mapping):
        if "$" in value:
            raise Malformed("no field may be called '$'")
        return {str(key): _lowered(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lowered(item, buffers) for item in value]
    return value


def _raised(value: Any, buffers: _Buffers) -> Value:
    """The value again, its arrays and byte strings taken from the buffers in turn."""
    if isinstance(value, dict):
        if "$" in value:
            return buffers.take(value)
        return {key: _raised(item, buffers) for key, item in value.items()}
    if isinstance(value, list):
        return [_raised(item, buffers) for item in value]
    return value  # type: ignore[no-any-return]  # JSON's own: None, bool, int, float, str


class _Buffers:
    """The arrays and byte strings behind the JSON text, taken from the front one after another.

    Parameters
    ----------
    data:
        The part of the frame behind its text. Arrays are views of it, so that a large one is not copied.
    """

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, description: dict[str, Any]) -> Value:
        match description:
            case {"$": [str(code), *shape]} if len(description) == 1 and len(shape) <= _MOST_AXES:
                pass
            case _:
                raise Malformed(f"the description of an array must be a type and at most {_MOST_AXES} lengths")
        # `type` instead of `isinstance`: JSON's `true` is an int in Python.
        if not all(type(length) is int and 0 <= length <= MAX_FRAME for length in shape):
            raise Malformed(f"a length of an array must be a whole number from 0 to {MAX_FRAME}")
        # Axes of length 0 count as 1 here: a shape such as (0, 2^32, 2^32) holds no number, but numpy fails with it.
        if math.prod(max(length, 1) for length in shape) > MAX_FRAME:
            raise Malformed("a frame describes an array that is too large")
        numbers = math.prod(shape)
        if code == "bytes" and len(shape) == 1:
            return self._next(numbers)
        if code not in _TYPES:
            raise Malformed("a frame describes an array of an unknown type")
        array = np.frombuffer(self._next(8 * numbers), dtype=_TYPES[code]).reshape(shape)
        return array.astype(array.dtype.newbyteorder("="), copy=False)

    def _next(self, length: int) -> memoryview:
        part = self._data[self._at : self._at + length]
        if len(part) != length:
            raise Malformed("a frame is cut short")
        self._at += length
        return part

    def finish(self) -> None:
        """Refuse bytes that no field of the text describes."""
        if self._at != len(self._data):
            raise Malformed("a frame is longer than what it describes")


# ---- fields ----------------------------------------------------------------------------------------------------


class _Reader:
    """The fields of one message, each taken once and by its type.

    Every method takes the field `name` and raises `Malformed` if the field is missing or has another type. `finish`
    refuses fields that were not taken.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = dict(fields)

    def take(self, name: str) -> Value:
        if name not in self._fields:
            raise Malformed(f"a message lacks its {name}")
        # Each field is removed when it is read, so that `finish` sees fields that no reader knows: a newer version's
        # field must not be ignored, since it may change the meaning of the message.
        return self._fields.pop(name)

    def finish(self) -> None:
        if self._fields:
            raise Malformed("a message has fields that are not its own")

    def number(self, name: str, most: int = 1 << 62) -> int:
        value = self.take(name)
        if type(value) is int and 0 <= value <= most:
            return value
        raise Malformed(f"a message's {name} is not a whole number")

    def text(self, name: str) -> str:
        if isinstance(value := self.take(name), str):
            return value
        raise Malformed(f"a message's {name} is not a text")

    def flag(self, name: str) -> bool:
        if isinstance(value := self.take(name), bool):
            return value
        raise Malformed(f"a message's {name} is neither true nor false")

    def data(self, name: str) -> bytes:
        if isinstance(value := self.take(name), memoryview):
            return bytes(value)
        raise Malformed(f"a message's {name} is not a byte string")

    def array(self, name: str, kind: str) -> NDArray[Any]:
        """An array of doubles (`kind` "f") or of 64-bit integers (`kind` "i"), of any shape."""
        value = self.take(name)
        if isinstance(value, np.ndarray) and value.dtype.kind == kind:
            return value
        raise Malformed(f"a message's {name} is not an array of the right type")

    def fields(self, name: str) -> _Reader | None:
        """A record of further fields; None if the value is null."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, dict):
            return _Reader(value)
        raise Malformed(f"a message's {name} is not a record")

    def rest(self) -> Fields:
        """All fields that were not taken yet, of any type."""
        rest, self._fields = self._fields, {}
        return rest


def _positive(value: Value, what: str) -> float:
    # The comparison is false for NaN too. The upper bound leaves room for a product without overflow.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e300:
        return float(value)
    raise Malformed(f"a message's {what} is not a positive number")


# ---- messages --------------------------------------------------------------------------------------------------


def _write_request(request: Request) -> Fields:
    """A request as fields: the statistic's name and public parameters, its share of the budget, and the sampling."""
    fields: Fields = {"kind": "sum", "share": request.share, "sampling": None}
    fields |= {"name": request.statistic.name, "parameters": request.statistic.parameters()}
    if isinstance(request, PrivatePublication):
        fields["kind"] = "publication"
    elif request.sampling is not None:
        fields["sampling"] = [request.sampling.rate, request.sampling.steps]
    return fields


def _read_request(reader: _Reader | None) -> Request:
    """The request again, with the statistic of this process's registry."""
    if reader is None or (parameters := reader.fields("parameters")) is None:
        raise Malformed("a message lacks its request")
    kind, name, share = reader.text("kind"), reader.text("name"), _positive(reader.take("share"), "share")
    sampling = reader.take("sampling")
    reader.finish()
    # The name and public parameters travel, never code: sensitivity and bound come from this process's own class.
    statistic = build(name, parameters.rest())
    if kind == "publication" and sampling is None and isinstance(statistic, BoundedMap):
        return PrivatePublication(statistic, share)
    match sampling:
        case None if kind == "sum":
            return PrivateSum(statistic, share)
        case [rate, int(steps)] if kind == "sum" and steps is not True:
            return PrivateSum(statistic, share, Sampling(_positive(rate, "rate"), steps))
    raise Malformed("a message's request is none that is known")


def _write_noise(noise: NoiseInput) -> Fields | None:
    match noise:
        case DrawSum(total, sites):
            return {"total": total, "sites": sites}
        case PublicKeys(keys):
            return {"keys": {str(site): key for site, key in keys.items()}}
        case DealtNoise(helper, coordinator):
            return {"helper": helper, "coordinator": coordinator}
    return None


def _read_noise(reader: _Reader | None) -> NoiseInput:
    if reader is None:
        return None
    fields = reader.rest()
    again = _Reader(fields)
    noise: NoiseInput
    if "total" in fields:
        noise = DrawSum(again.array("total", "i"), again.number("sites"))
    elif "keys" in fields:
        keys = (again.fields("keys") or _Reader({})).rest()
        # At most nine digits: `int` of a long text takes quadratic time.
        if not all(site.isdecimal() and len(site) < 10 and isinstance(key, memoryview) for site, key in keys.items()):
            raise Malformed("a message's keys are none")
        noise = PublicKeys({int(site): bytes(key) for site, key in keys.items() if isinstance(key, memoryview)})
    else:
        noise = DealtNoise(again.array("helper", "f"), again.array("coordinator", "f"))
    again.finish()
    return noise


def _read_secure(reader: _Reader) -> Secure:
    step = reader.text("step")
    match step:
        case "advertise" | "share" | "receive" | "sign" | "open":
            return Secure(step, reader.number("attempt"), reader.data("data"))
    raise Malformed("a step of the secure sum is none")


def _read_consent(reader: _Reader) -> Consent:
    site, units = reader.text("site"), reader.take("units")
    if units is None or (type(units) is int and 0 < units <= MOST_UNITS):
        return Consent(site, units)
    raise Malformed("a message's units are not a whole number")


def _read_contribution(reader: _Reader) -> Contribution:
    site, payload = reader.text("site"), reader.take("payload")
    if isinstance(payload, memoryview | np.ndarray):
        return Contribution(site, payload)
    raise Malformed("a contribution holds no numbers")


def _read_refusal(reader: _Reader) -> Refusal:
    site, code, message = reader.text("site"), reader.text("code"), reader.text("message")
    # An unknown code becomes a plain refusal. The text comes from another machine and is shown to people: its length is
    # limited.
    return Refusal(site, by_code(code)(message[:_MOST_WORDS]))


def _read_relay(reader: _Reader) -> Relay:
    plan, frames, seconds = reader.text("plan"), reader.take("frames"), _positive(reader.take("seconds"), "seconds")
    names, of = reader.take("names"), reader.take("of")
    if not isinstance(frames, list) or not isinstance(names, list) or not isinstance(of, list):
        raise Malformed("a message's frames are none")
    parts = tuple(bytes(frame) for frame in frames if isinstance(frame, memoryview))
    to = {name: at for name, at in zip(names, of, strict=False) if isinstance(name, str) and type(at) is int}
    # Each frame has a site and each site a frame: an index outside the frames would fail later, at the inner node.
    if (
        not parts
        or len(parts) < len(frames)
        or not len(to) == len(names) == len(of)
        or {*to.values()} != {*range(len(parts))}
    ):
        raise Malformed("a message's frames are not those of the sites that it names")
    if seconds > MOST_SECONDS:
        raise Malformed(f"a message's time-out is longer than {MOST_SECONDS:g} seconds")
    return Relay(plan, parts, to, seconds)


def _read_relayed(reader: _Reader) -> Relayed:
    site, names, frames, total = (reader.text("site"), *(reader.take(name) for name in ("names", "frames", "total")))
    if not isinstance(names, list) or not isinstance(frames, list) or not isinstance(total, memoryview | None):
        raise Malformed("a message's replies are none")
    pairs = zip(names, frames, strict=False)
    replies = {name: frame for name, frame in pairs if isinstance(name, str) and isinstance(frame, memoryview)}
    if not len(replies) == len(names) == len(frames):
        raise Malformed("a message's replies are not one of each site that it names")
    return Relayed(site, replies, total)


_WRITERS: dict[type, Callable[[Any], Fields]] = {
    Propose: lambda m: {"plan": m.plan.to_json(), "keep": m.keep},
    Prepare: lambda m: {"round": m.round, "attempt": m.attempt},
    Secure: lambda m: {"step": m.step, "attempt": m.attempt, "data": m.data},
    Contribute: lambda m: {
        "round": m.round,
        "attempt": m.attempt,
        "request": _write_request(m.request),
        "noise_input": _write_noise(m.noise_input),
    },
    Dismiss: lambda m: {},
    Relay: lambda m: {
        "plan": m.plan,
        "frames": m.frames,
        "names": list(m.to),
        "of": list(m.to.values()),
        "seconds": m.seconds,
    },
    Consent: lambda m: {"site": m.site, "units": m.units},
    Prepared: lambda m: {"site": m.site, "payload": m.payload},
    Secured: lambda m: {"site": m.site, "data": m.data},
    Contribution: lambda m: {"site": m.site, "payload": m.payload},
    Dismissed: lambda m: {"site": m.site},
    Refusal: lambda m: {"site": m.site, "code": m.error.code, "message": str(m.error)},
    Relayed: lambda m: {
        "site": m.site,
        "names": list(m.replies),
        "frames": list(m.replies.values()),
        "total": m.total,
    },
}


@lru_cache(maxsize=1)
def _plan(text: bytes) -> Plan:
    """Sites of one process read the same plan one after the other, and what follows from it is computed once."""
    return Plan.from_json(text)


_MESSAGES: dict[str, Callable[[_Reader], Message]] = {
    "Propose": lambda r: Propose(_plan(bytes(r.data("plan"))), r.flag("keep")),
    "Prepare": lambda r: Prepare(r.number("round"), r.number("attempt")),
    "Secure": _read_secure,
    "Contribute": lambda r: Contribute(
        r.number("round"),
        r.number("attempt"),
        _read_request(r.fields("request")),
        _read_noise(r.fields("noise_input")),
    ),
    "Dismiss": lambda r: Dismiss(),
    "Relay": _read_relay,
}

_REPLIES: dict[str, Callable[[_Reader], Reply]] = {
    "Consent": _read_consent,
    "Prepared": lambda r: Prepared(r.text("site"), r.data("payload")),
    "Secured": lambda r: Secured(r.text("site"), r.data("data")),
    "Contribution": _read_contribution,
    "Dismissed": lambda r: Dismissed(r.text("site")),
    "Refusal": _read_refusal,
    "Relayed": _read_relayed,
}
