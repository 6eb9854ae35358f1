"""Sites as processes of their own, each behind a Unix socket: on this machine, or at the end of a tunnel.

A site that cannot be reached, closes the connection or sends nothing within the time-out is lost for that exchange, and
tried again in the next one. All sites receive their frames in parallel, and a reply is passed on as it arrives.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from zerosum.errors import Malformed
from zerosum.protocol.codec import Frame
from zerosum.protocol.stream import alive, connect, read, write

# 256 MiB: a reply of 33 million numbers. Larger ones are refused, so that one site cannot exhaust the coordinator's
# memory.
FRAME_BYTES = 1 << 28


class Sockets:
    """Carries the frames of one study to sites by the paths of their sockets.

    Parameters
    ----------
    paths:
        For each site the path of its Unix socket.
    plan:
        Digest of the study's plan in hex.
    seconds:
        Longest wait for a connection or for the next bytes of a reply.
    frame_bytes:
        Largest reply in bytes.
    """

    def __init__(
        self, paths: Mapping[str, Path], plan: str, *, seconds: float = 600.0, frame_bytes: int = FRAME_BYTES
    ) -> None:
        self._paths, self._study = dict(paths), bytes.fromhex(plan)
        self._seconds, self._most = seconds, frame_bytes
        self._open: dict[str, socket.socket] = {}
        self._busy: set[socket.socket] = set()  # connections on which a reply is awaited
        self._mutex, self._closed = threading.Lock(), False
        # One thread per site: a slow or absent site must not delay the frames of the others.
        self._pool = ThreadPoolExecutor(max(len(self._paths), 1), thread_name_prefix="zerosum-site")

    def close(self) -> None:
        """Close all connections. A reply that is still awaited, from a site that does not answer, is given up."""
        with self._mutex:
            self._closed = True
            for stream in self._busy:
                with suppress(OSError):  # the other side went away
                    stream.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads; `close` would not
        self._pool.shutdown()
        for stream in self._open.values():
            stream.close()
        self._open.clear()

    def present(self, seconds: float = 5.0) -> list[str]:
        """The sites that answer at all, whatever their decision about the study."""
        there = self._pool.map(lambda path: alive(path, seconds), self._paths.values())
        return [name for name, answers in zip(self._paths, there, strict=True) if answers]

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        """Replies as they arrive; None for a site that cannot be reached or does not answer in time."""
        replies = {self._pool.submit(self._carry, name, frame): name for name, frame in frames.items()}
        for done in as_completed(replies):
            yield replies.pop(done), done.result()

    def _carry(self, name: str, frame: bytes) -> Frame | None:
        """The reply of one site. An idle connection may lead to a process that has ended: then the frame is sent once
        more.
        """
        if name not in self._paths:
            return None
        idle = name in self._open
        try:
            return self._ask(name, frame)
        # Not sent again: the site may still be computing, and a second frame would wait behind the first one. The same
        # request may be repeated later, since sites repeat their reply to it.
        except TimeoutError:
            return None
        except (OSError, Malformed):
            # A fresh connection that fails is a loss. An idle one may have been closed by a site that restarted, which
            # is no loss.
            if not idle or self._closed:
                return None
        try:
            return self._ask(name, frame)
        except (OSError, Malformed):
            return None

    def _ask(self, name: str, frame: bytes) -> Frame:
        stream = self._open.pop(name, None) or connect(self._paths[name], self._seconds)
        try:
            with self._mutex:
                if self._closed:
                    raise ConnectionError("the engine was closed")
                self._busy.add(stream)
            write(stream, self._study, frame)
            reply = read(stream, self._most)
            # A reply of another study on this connection means that the two sides are out of step: the connection is
            # given up.
            if reply is None or reply[0] != self._study:
                raise ConnectionError("no reply to what was asked")
        except BaseException:
            stream.close()
            raise
        finally:
            with self._mutex:
                self._busy.discard(stream)
        # A caller may stop reading replies and begin the next exchange: then two connections to one site are in use.
        if (other := self._open.pop(name, None)) is not None:
            other.close()
        # Stored again only after a complete reply: a connection with half a frame in it is never used again.
        self._open[name] = stream
        return reply[1]
