"""A site's socket: owner-only, in its state folder. A connection is a stream of frames, each answered in turn.

No frame ends the process. A frame that is too large is refused and its connection closed. A frame that takes longer
than the time-out, even if it arrives byte by byte, is dropped. Stopping completes the requests in progress.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from zerosum.disk import make_folder, open_new
from zerosum.errors import BadInput, Malformed, Refused
from zerosum.protocol.codec import encode
from zerosum.protocol.messages import Refusal
from zerosum.protocol.stream import NO_STUDY, read, short, write
from zerosum.site.service import Service

if sys.platform != "win32":
    import fcntl


class _Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        """Answer the frames of one connection until it is closed."""
        stream: socket.socket = self.request
        stream.settimeout(self.server.seconds)
        # One thread serves one connection, frame after frame, until the other side closes it.
        with suppress(OSError):  # the other side went away, or was too slow
            while self._answer(stream):
                pass

    def _answer(self, stream: socket.socket) -> bool:
        """Read and answer one frame; whether the connection stays open."""
        service = self.server.service
        try:
            self.server.idle(stream)
            arrived = read(stream, self.server.frame_bytes, self.server.seconds, lambda: self.server.in_use(stream))
        except Malformed as error:
            service.refuse(error)
            # After a frame that is malformed the stream has no known position, so that the connection is closed after
            # the reply.
            write(stream, NO_STUDY, encode(Refusal(service.name, error)))
            return False
        if arrived is None:
            return False
        study, frame = arrived
        # An empty frame without a study asks only whether the site is there, and gets an empty reply.
        write(stream, study, b"" if (study, frame) == (NO_STUDY, b"") else service.answer(study, frame))
        return True


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A Unix socket server, one thread for each connection. It listens from its construction until `stop`.

    Parameters
    ----------
    path : Path
        The socket in the state folder.
    service : Service
        Answers the frames.
    frame_bytes : int
        Largest frame in bytes.
    seconds : float
        Time-out of one frame, and of a silent connection.
    connections : int
        Largest number of open connections. A further one takes the place of the connection that has been idle for the
        longest time; its client may connect again. The default was chosen by hand; no benchmark recorded.
    """

    daemon_threads = False
    request_queue_size = 128

    def __init__(
        self, path: Path, service: Service, *, frame_bytes: int, seconds: float, connections: int = 64
    ) -> None:
        self.service, self.frame_bytes, self.seconds, self.connections = service, frame_bytes, seconds, connections
        self._open: set[socket.socket] = set()
        self._idle: dict[socket.socket, None] = {}  # between two frames, the longest idle one first
        self._mutex = threading.Lock()
        self._path = path
        path.unlink(missing_ok=True)  # left by a killed process; the serving process holds the lock
        with short(path) as name:
            super().__init__(name, _Handler)
        # The permission of the socket is the authentication: a process of another user cannot connect.
        path.chmod(0o600)

    def verify_request(self, request: socket.socket, client_address: object) -> bool:  # type: ignore[override]
        """Whether a new connection is accepted; it is counted until `shutdown_request`."""
        with self._mutex:
            # Each connection has a thread and may hold a frame of `frame_bytes` bytes; without a limit a client could
            # fill the memory.
            if len(self._open) >= self.connections:
                # Connections that answer no frame at this moment cost their clients nothing when they are closed. If
                # there is none, the new one is refused.
                longest = next(iter(self._idle), None)
                if longest is None:
                    return False
                self._close_idle(longest)
            self._open.add(request)
            return True

    def idle(self, stream: socket.socket) -> None:
        """A connection waits for its next frame."""
        with self._mutex:
            if stream not in self._open:
                raise ConnectionAbortedError("the connection was closed for another one")
            self._idle[stream] = None

    def in_use(self, stream: socket.socket) -> None:
        """The first byte of a frame has arrived on a connection."""
        with self._mutex:
            if stream not in self._idle:  # closed for another one at this moment: the frame is not answered
                raise ConnectionAbortedError("the connection was closed for another one")
            del self._idle[stream]

    def _close_idle(self, stream: socket.socket) -> None:
        """Close a connection that is idle, so that its thread ends. Called under the lock."""
        del self._idle[stream]
        self._open.discard(stream)
        with suppress(OSError):
            stream.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]
        """Close a connection, so that another one may take its place."""
        with self._mutex:
            self._open.discard(request)
            self._idle.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of one connection, which end with it. `Service.answer` has logged those of a request."""

    def stop(self) -> None:
        """Accept no new connections and frames, and complete the requests in progress. Returns at once."""
        threading.Thread(target=self._stop).start()

    def _stop(self) -> None:
        """End the loop of `serve`, then the reading half of every open connection."""
        # In a thread of its own, since `shutdown` waits for the loop of `serve`, which may be running in the caller's
        # thread.
        self.shutdown()
        with self._mutex:
            for stream in self._open:
                with suppress(OSError):
                    # Only the reading half: a reply in progress is still written.
                    stream.shutdown(socket.SHUT_RD)

    def serve(self) -> None:
        """Answer connections until `stop`, then remove the socket."""
        try:
            self.serve_forever(poll_interval=0.1)
        finally:
            self.server_close()
            self._path.unlink(missing_ok=True)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Scope in which no other process can serve this state folder.

    Two processes would have two tables of reservations, and each would consent to studies that together exceed the cap.
    """
    try:
        make_folder(folder)
        folder.chmod(0o700)
        with suppress(FileExistsError):
            open_new(folder / "lock", private=True).close()
        file: BinaryIO = (folder / "lock").open("ab")
    except OSError as error:
        raise BadInput(f"the state folder {folder} cannot be used: {error.strerror or error}") from error
    with file:
        if sys.platform != "win32":
            try:
                # The system releases this lock at the end of the process for any reason, so that no lock remains after
                # a crash.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(f"another process serves the state folder {folder}") from None
        yield
