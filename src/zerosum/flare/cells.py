"""The engine over FLARE's job cells: one buffer a message, replies as they come.

A site that computes may take as long as the time-out. A site whose relay no longer answers pings is lost in seconds.
While FLARE itself ends the job, a missing reply is no loss: the exchange is interrupted, the journal gets no record of
it, and a new job resumes the study.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from zerosum.protocol.codec import Frame

CHANNEL, FRAME, PING = "zerosum", "frame", "ping"
_PINGS = 4  # pings without an answer until a site is lost
_TRIES = 3  # how often a frame is sent before the site is lost


class Interrupted(Exception):
    """FLARE is ending the job; no site is to blame."""


class Cells:
    """Carries the frames of one study, named by its plan's digest, to the job cells of its sites.

    Implements `zerosum.engines.base.Engine`.

    Parameters
    ----------
    cell : Cell
        FLARE's cell of the server's job process.
    targets : dict of str to str
        Fully qualified cell name of each site's job process, by the name of the site.
    plan : str
        Digest of the plan in hex. It precedes every frame, so that the site's process can find the study.
    abort : Signal
        FLARE sets it when it ends the job.
    seconds : float
        Longest time that a site may take for one reply.
    ping : float, default=2.0
        Time-out of a ping in seconds, and the time that a frame may take before the first ping.
    """

    def __init__(
        self, cell: Any, targets: Mapping[str, str], plan: str, abort: Signal, seconds: float, ping: float = 2.0
    ) -> None:
        self._cell, self._targets, self._study = cell, dict(targets), bytes.fromhex(plan)
        self._abort, self._seconds, self._ping = abort, seconds, ping
        self._silent: set[str] = set()  # did not answer a ping: one more is enough at the next exchange
        self._pool = ThreadPoolExecutor(max(len(self._targets), 1), thread_name_prefix="zerosum-site")

    def close(self) -> None:
        """Release the threads."""
        # Without waiting: a thread may hang in a request to a lost site until that request's time-out, and the job
        # must be able to end before.
        self._pool.shutdown(wait=False)

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Send a frame to each site.

        Parameters
        ----------
        frames : mapping of str to bytes
            Frame by the name of a site.

        Yields
        ------
        tuple of str and Frame or None
            Name and reply, in the order of arrival; None for a lost site.

        Raises
        ------
        Interrupted
            If FLARE is ending the job.
        """
        pending = {self._pool.submit(self._carry, name, frame): name for name, frame in frames.items()}
        for done in as_completed(pending):
            name, reply = pending.pop(done), done.result()
            # A loss while FLARE ends the job is not the site's. If it were yielded, the coordinator would record the
            # site as lost, and the resumed study would go on without it.
            if reply is None and self._abort.triggered:
                raise Interrupted("FLARE is ending the job: submit it again to go on")
            yield name, reply

    def _carry(self, name: str, frame: bytes) -> Frame | None:
        """Send one frame to one site and wait for its reply.

        Parameters
        ----------
        name : str
            The site.
        frame : bytes
            The frame, without the digest of the plan.

        Returns
        -------
        Frame or None
            The reply; None if the site is lost.
        """
        if name not in self._targets:
            return None
        if name in self._silent and not self._alive(name, 1):
            return None
        end = time.monotonic() + self._seconds
        # A repeated frame is safe: a site stores its reply and returns the same bytes for the same frame, without
        # another release or charge.
        for _ in range(_TRIES):
            # The time-out is short so that the callback is asked early. It extends the wait while the relay answers
            # pings, up to `end`: a site that computes for an hour is not lost, a relay that is gone is lost soon.
            reply = self._send(
                name,
                FRAME,
                self._study + frame,
                min(self._ping, self._seconds),
                progress_wait_cb=lambda: time.monotonic() < end and self._alive(name, _PINGS),
            )
            code, payload = reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload
            if code == ReturnCode.OK and isinstance(payload, Frame):
                return payload
            # The relay answers with another code if the site's process is down, so only a time-out is tried again.
            if code != ReturnCode.TIMEOUT or time.monotonic() > end or name in self._silent:
                return None
        self._silent.add(name)
        return None

    def _alive(self, name: str, pings: int) -> bool:
        """Whether a relay answers one of several pings: a busy machine is slow, one that is gone is unreachable."""
        for _ in range(pings):
            code = self._send(name, PING, b"", self._ping).get_header(MessageHeaderKey.RETURN_CODE)
            # Only a time-out can mean a slow machine; any other code is final.
            if code != ReturnCode.TIMEOUT:
                break
        alive = bool(code == ReturnCode.OK)
        (self._silent.discard if alive else self._silent.add)(name)
        return alive

    def _send(self, name: str, topic: str, payload: bytes, seconds: float, **more: Any) -> Any:
        """Send one request by FLARE's cell.

        Parameters
        ----------
        name : str
            The site.
        topic : str
            FRAME or PING.
        payload : bytes
            Content.
        seconds : float
            Time-out of the request.
        more : Any
            Further arguments of FLARE's `send_request`.

        Returns
        -------
        CellMessage
            The reply. Errors are in its header and not raised (`optional`).
        """
        return self._cell.send_request(
            channel=CHANNEL,
            topic=topic,
            target=self._targets[name],
            request=new_cell_message({}, payload),
            timeout=seconds,
            optional=True,
            abort_signal=self._abort,
            **more,
        )
