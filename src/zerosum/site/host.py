"""A site on the wire: frames in, frames out. Whatever goes wrong inside is a refusal, never a traceback."""

from __future__ import annotations

import logging

from zerosum.errors import Refused, ZerosumError
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Refusal
from zerosum.site.site import Site

_log = logging.getLogger(__name__)  # stays at the site


def answer(site: Site, frame: bytes) -> bytes:
    """The reply to one frame."""
    try:
        return encode(site.handle(decode_message(frame)))
    except ZerosumError as error:
        return encode(Refusal(site.name, error.public()))
    except Exception:  # what it says may quote data
        _log.exception("site %r met an internal error", site.name)
        return encode(Refusal(site.name, Refused("this site met an internal error")))
