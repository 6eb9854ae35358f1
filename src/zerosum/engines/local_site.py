"""The connection of a relay to the site's own process on the same machine, by the site's Unix socket."""

from __future__ import annotations

import socket
from pathlib import Path

from zerosum.errors import Malformed
from zerosum.protocol.codec import MAX_FRAME, Frame
from zerosum.protocol.stream import connect, read, write

DIGEST = 32  # bytes of a plan's digest, which a relay receives before each frame


class LocalSite:
    """One connection to a site's process, used for one frame after the other by one thread.

    Parameters
    ----------
    path : Path
        Socket of the site's process.
    seconds : float
        Longest wait for a connection or for the next bytes of a reply.
    """

    def __init__(self, path: Path, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._stream: socket.socket | None = None

    def ask(self, study: bytes, frame: Frame) -> Frame:
        """The site's reply to one frame of the study with this digest.

        Raises
        ------
        OSError, Malformed
            If the site's process does not answer in time, or not with a reply of this study.
        """
        if self._stream is not None:
            try:
                return self._ask_over(self._stream, study, frame)
            except TimeoutError:  # the site may still compute, and a second frame would wait behind the first one
                raise
            except (OSError, Malformed):
                # The site has restarted, or has closed an idle connection for another one. A repeated frame is safe: a
                # site stores its reply.
                pass
        return self._ask_over(connect(self._path, self._seconds), study, frame)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _ask_over(self, stream: socket.socket, study: bytes, frame: Frame) -> Frame:
        """One frame and its reply over this connection, which is stored for the next frame."""
        # Taken out until the exchange is complete: after a failure the rest of a reply could still be in the socket and
        # would be read as the reply to the next frame.
        self._stream = None
        try:
            write(stream, study, frame)
            arrived = read(stream, MAX_FRAME)
            if arrived is None or arrived[0] != study:
                raise ConnectionError("no reply to what was asked")
        except BaseException:
            stream.close()
            raise
        self._stream = stream
        return arrived[1]
