"""Conversion of frames: a frame with a message in, a frame with a reply out. Every internal error becomes a refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zerosum.errors import Refused, ZerosumError
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Refusal, Reply
from zerosum.site.site import Site

_log = logging.getLogger(__name__)  # stays at the site


def answer(site: Site, frame: bytes) -> bytes:
    """The reply to one frame."""
    return encode(guarded(site.name, lambda: site.handle(decode_message(frame))))


def guarded(name: str, work: Callable[[], Reply], on_error: Callable[[ZerosumError], object] | None = None) -> Reply:
    """The result of `work`, or a refusal. `on_error` receives the full error, whose detail stays at this site."""
    try:
        return work()
    except ZerosumError as error:
        refused: ZerosumError = error
    except Exception:  # its message may contain data
        _log.exception("site %r met an internal error", name)
        refused = Refused("this site met an internal error")
    if on_error is not None:
        on_error(refused)
    return Refusal(name, refused.public())
