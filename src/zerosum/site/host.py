"""Conversion of frames: a frame with a message in, a frame with a reply out. Every internal error becomes a refusal."""

from __future__ import annotations

import logging
from collections.abc import Callable

from zerosum.compute.devices import no_memory
from zerosum.errors import Refused, SiteFault, ZerosumError
from zerosum.protocol.codec import decode_message, encode
from zerosum.protocol.messages import Refusal, Relay, Reply
from zerosum.site.site import Site

_log = logging.getLogger(__name__)  # stays at the site


def answer(site: Site, frame: bytes, relay: Callable[[Relay], Reply] | None = None) -> bytes:
    """The reply to one frame.

    Parameters
    ----------
    site : Site
        The site that answers.
    frame : bytes
        An encoded message of the coordinator. It may be malformed; then the reply is a `Refusal`, too, so that the
        coordinator can distinguish a refusal from a lost site.
    relay : callable, optional
        Answers the frames of a branch, if the site may be an inner node of a tree.
    """
    reply: Reply
    try:
        # Decoding is inside the `try`, since frames come from outside: a malformed one must not end the process.
        message = decode_message(frame)
        reply = relay(message) if relay is not None and isinstance(message, Relay) else site.handle(message)
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
    return memory_fault(error) or Refused("this site met an internal error")


def memory_fault(error: BaseException, detail: str = "") -> SiteFault | None:
    """The error of a site without memory, if that is the cause of an error; None otherwise.

    Readers of files turn errors of their libraries into `BadData`, so that the error before it is examined as well.

    Parameters
    ----------
    error : BaseException
        An error, with the errors during whose handling it was raised.
    detail : str
        For the site's own log.
    """
    at: BaseException | None = error
    while at is not None:
        if no_memory(at):
            # An operator must know that more memory helps. The sentence has no amount: that would follow the number
            # of rows.
            return SiteFault("this site has too little memory for this request", detail=detail)
        at = at.__context__
    return None
