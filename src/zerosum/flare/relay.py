"""The executor of FLARE at a site: it passes bytes to the socket of the site's own process, and the reply back, unread.

The address of the socket comes from this machine ($ZEROSUM_SITE_SOCKET), never from a job. Frames are taken from the
server's own job cell only: an administrator's certificate passes TLS too.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode as TaskCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from zerosum.engines.local_site import DIGEST, LocalSite
from zerosum.errors import Malformed
from zerosum.flare.cells import CHANNEL, FRAME, PING
from zerosum.protocol.codec import Frame


class Relay(Executor):  # type: ignore[misc]  # FLARE ships no types
    """Executor that FLARE starts for a job at a site. $ZEROSUM_SITE_SECONDS is the time-out in seconds of one reply of
    the site's process.

    Frames are carried by one thread, since the site's process answers the frames of a study one after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seconds = float(os.environ.get("ZEROSUM_SITE_SECONDS", "3600"))
        self._site: LocalSite | None = None
        self._mutex = threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="zerosum-relay")

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Register for frames at the start of a job, and stop at its end."""
        if event_type == EventType.END_RUN:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if event_type != EventType.START_RUN:
            return
        cell, server = fl_ctx.get_engine().get_cell(), f"server.{fl_ctx.get_job_id()}"
        cell.register_request_cb(channel=CHANNEL, topic=FRAME, cb=self._take, server=server)
        # Pings are answered at once, beside the one thread for frames, so that a site that computes counts as alive.
        cell.register_request_cb(channel=CHANNEL, topic=PING, cb=lambda request: _reply(ReturnCode.OK))

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Refuse any task of FLARE."""
        return make_reply(TaskCode.TASK_UNKNOWN)  # frames come by cell, not as tasks

    def _take(self, request: Any, server: str) -> Any | Future[Any]:
        """Callback for a frame from the server.

        Parameters
        ----------
        request : CellMessage
            FLARE's message; its payload is the digest of the plan and the frame.
        server : str
            Name of the only cell that may send frames.

        Returns
        -------
        CellMessage or Future
            A refusal, or the reply when it is there.
        """
        # Cells of an administrator or of another site pass TLS too and must not reach the site's socket.
        if request.get_header(MessageHeaderKey.ORIGIN) != server:
            return _reply(ReturnCode.INVALID_REQUEST)
        return self._pool.submit(self._carry, memoryview(request.payload or b""))

    def _carry(self, payload: memoryview) -> Any:
        """Pass one frame to the site's process, and make FLARE's message of the reply.

        Parameters
        ----------
        payload : memoryview
            Digest of the plan (32 bytes), then the frame.
        """
        if len(payload) < DIGEST:
            return _reply(ReturnCode.INVALID_REQUEST)
        try:
            with self._mutex:
                if self._site is None:
                    self._site = LocalSite(Path(os.environ["ZEROSUM_SITE_SOCKET"]), self._seconds)
                return _reply(ReturnCode.OK, self._site.ask(bytes(payload[:DIGEST]), payload[DIGEST:]))
        # KeyError: ZEROSUM_SITE_SOCKET is not set. The log has the kind of error only, because FLARE may send logs to
        # the server.
        except (OSError, Malformed, KeyError) as error:
            self.logger.warning(f"the site's process does not answer: {type(error).__name__}")
            return _reply(ReturnCode.SERVICE_UNAVAILABLE)


def _reply(code: str, payload: Frame = b"") -> Any:
    """A message with FLARE's return code."""
    return new_cell_message({MessageHeaderKey.RETURN_CODE: code}, payload)
