"""Sites as processes of their own, each behind a Unix socket: on this machine, or at the end of a tunnel.

A site that cannot be reached, closes the connection or sends nothing within the time-out is lost for that exchange, and
tried again in the next one. All sites receive their frames in parallel, and a reply is passed on as it arrives.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from zerosum.errors import Malformed
from zerosum.protocol.codec import Frame
from zerosum.protocol.stream import alive, connect, read, write

FRAME_BYTES = 1 << 28


class Sockets:
    """Carries the frames of one study, named by its plan's digest, to sites by the paths of their sockets."""

    def __init__(
        self, paths: Mapping[str, Path], plan: str, *, seconds: float = 600.0, frame_bytes: int = FRAME_BYTES
    ) -> None:
        self._paths, self._study = dict(paths), bytes.fromhex(plan)
        self._seconds, self._most = seconds, frame_bytes
        self._open: dict[str, socket.socket] = {}
        self._pool = ThreadPoolExecutor(max(len(self._paths), 1), thread_name_prefix="zerosum-site")

    def close(self) -> None:
        self._pool.shutdown()
        for stream in self._open.values():
            stream.close()
        self._open.clear()

    def present(self, seconds: float = 5.0) -> list[str]:
        """The sites that answer at all, whatever their decision about the study."""
        there = self._pool.map(lambda path: alive(path, seconds), self._paths.values())
        return [name for name, answers in zip(self._paths, there, strict=True) if answers]

    def exchange(self, frames: Mapping[str, bytes]) -> Iterator[tuple[str, Frame | None]]:
        asked = {self._pool.submit(self._carry, name, frame): name for name, frame in frames.items()}
        for done in as_completed(asked):
            yield asked.pop(done), done.result()

    def _carry(self, name: str, frame: bytes) -> Frame | None:
        """The reply of one site. An idle connection may lead to a process that has ended: then the frame is sent once
        more.
        """
        if name not in self._paths:
            return None
        idle = name in self._open
        try:
            return self._ask(name, frame)
        except TimeoutError:
            return None
        except (OSError, Malformed):
            if not idle:
                return None
        try:
            return self._ask(name, frame)
        except (OSError, Malformed):
            return None

    def _ask(self, name: str, frame: bytes) -> Frame:
        stream = self._open.pop(name, None) or connect(self._paths[name], self._seconds)
        try:
            write(stream, self._study, frame)
            arrived = read(stream, self._most)
            if arrived is None or arrived[0] != self._study:
                raise ConnectionError("no reply to what was asked")
        except BaseException:
            stream.close()
            raise
        self._open[name] = stream
        return arrived[1]
