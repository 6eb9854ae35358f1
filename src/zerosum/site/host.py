"""Conversion of frames: a frame with a message in, a frame with a reply out. Every internal error becomes a refusal."""

from __future__ import annotations

import logging

from zerosum.errors import Refused, ZerosumError
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Refusal, Reply
from zerosum.site.site import Site

_log = logging.getLogger(__name__)  # stays at the site


def answer(site: Site, frame: bytes) -> bytes:
    """The reply to one frame.

    Parameters
    ----------
    site : Site
        The site that answers.
    frame : bytes
        An encoded message of the coordinator. It may be malformed; then the reply is a `Refusal`, too, so that the
        coordinator can distinguish a refusal from a lost site.
    """
    try:
        # Decoding is inside the `try`, since frames come from outside: a malformed one must not end the process.
        reply: Reply = site.handle(decode_message(frame))
    except Exception as error:
        reply = Refusal(site.name, known_error(site.name, error).public())
    return encode(reply)


def known_error(name: str, error: Exception) -> ZerosumError:
    """The error as one of this package, whose detail stays at the site `name`.

    Any other error is logged here and replaced, since its message may contain data.
    """
    if isinstance(error, ZerosumError):
        return error
    _log.error("site %r met an internal error", name, exc_info=error)
    return Refused("this site met an internal error")
