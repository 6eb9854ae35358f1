"""The ClientApp of a site: one query handler, which passes bytes to the socket of the site's own process and the reply
back, unread.

The address of the socket comes from this machine, never from a message or from the configuration of a run. There are no
mods: they would see and change every frame, and with a bundle the uploader of a run names them.
"""

from __future__ import annotations

import os
from logging import getLogger
from pathlib import Path

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from zerosum.engines.local_site import DIGEST, LocalSite
from zerosum.errors import Malformed
from zerosum.flower.messages import pack, unpack

_LOG = getLogger("zerosum.flower")


def answer(message: Message, site: LocalSite) -> Message:
    """The reply to one message of the coordinator.

    Parameters
    ----------
    message : Message
        Digest of the plan (32 bytes), then the frame.
    site : LocalSite
        Connection to the site's process.

    Returns
    -------
    Message
        The site's frame, or an error without a text if the site's process does not answer: the text of an exception
        can hold paths of the site, and Flower would send it to the coordinator.
    """
    try:
        content = unpack(message.content)
        if len(content) < DIGEST:
            raise Malformed("a message is shorter than the digest of a plan")
        reply = site.ask(content[:DIGEST], memoryview(content)[DIGEST:])
        return Message(pack(reply), reply_to=message)
    except (OSError, Malformed) as error:
        _LOG.warning("the site's process does not answer: %s", type(error).__name__)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION), reply_to=message)


def _query(message: Message, context: Context) -> Message:
    """Handler for a SuperNode of Flower, which starts a process for each message."""
    seconds = float(os.environ.get("ZEROSUM_SITE_SECONDS", "3600"))
    site = LocalSite(Path(os.environ["ZEROSUM_SITE_SOCKET"]), seconds)
    try:
        return answer(message, site)
    finally:
        site.close()


app = ClientApp()
app.query()(_query)
