"""Frames on a socket: length, study and the frame. Replies have the same form.

    8 bytes     length of the frame, big-endian
    32 bytes    digest of the plan it belongs to; zeros: none
    ...         the frame

An empty frame without a study tests whether a server is present; the reply is an empty frame.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zerosum.errors import BadInput, Malformed
from zerosum.protocol.codec import Frame

NO_STUDY = bytes(32)

_HEAD = struct.Struct(">Q32s")
_CHUNK = 1 << 20
_LONGEST_PATH = 100  # longest name of a socket, in bytes, that every system accepts


def write(stream: socket.socket, study: bytes, frame: Frame) -> None:
    # Two calls instead of one joined buffer: a frame may have hundreds of megabytes.
    """Send one frame.

    Parameters
    ----------
    stream:
        A connected socket.
    study:
        Digest of the plan, 32 bytes, or `NO_STUDY`.
    frame:
        The bytes of a message; empty for a test whether a server is present.
    """
    stream.sendall(_HEAD.pack(len(frame), study))
    if frame:
        stream.sendall(frame)


def read(
    stream: socket.socket, most: int, seconds: float | None = None, on_frame: Callable[[], object] = lambda: None
) -> tuple[bytes, Frame] | None:
    """The next study and frame; None if the other side has closed the connection.

    Parameters
    ----------
    stream:
        A connected socket.
    most:
        Largest length of the frame in bytes.
    seconds:
        Time-out of the frame; None: the socket's own time-out, for each part.
    on_frame:
        Called when the first byte of the frame has arrived.

    Memory is allocated as bytes arrive, not as they are announced, and a frame that is announced too large is not read.
    After its first byte a frame must be complete within `seconds`, even if it arrives byte by byte.
    """
    # A connection may be idle between two frames for hours. Time is counted from the first byte, so that a client that
    # sends one byte a minute cannot hold a thread for ever.
    first = _exactly(stream, 1, None)
    if first is not None:
        on_frame()
    end = None if seconds is None else time.monotonic() + seconds
    rest = None if first is None else _exactly(stream, _HEAD.size - 1, end)
    head = None if first is None or rest is None else first + rest
    if head is None:
        return None
    # The announced length is checked before anything is read: the sender is not authenticated yet.
    length, study = _HEAD.unpack(head)
    if length > most:
        raise Malformed(f"a frame is larger than the {most} bytes that are taken here")
    frame = _exactly(stream, length, end)
    return None if frame is None else (study, frame)


def _exactly(stream: socket.socket, length: int, end: float | None) -> bytearray | None:
    """The next `length` bytes; None if the connection ends before. `end` is a time of `time.monotonic`, or None."""
    data = bytearray()
    while len(data) < length:
        if end is not None and time.monotonic() > end:
            raise TimeoutError("a frame takes too long")
        part = stream.recv(min(_CHUNK, length - len(data)))
        if not part:
            return None
        data += part
    return data


def connect(path: Path, seconds: float) -> socket.socket:
    """A connection to the server at this path; raises OSError if there is none.

    Parameters
    ----------
    path:
        The Unix socket's path, of any length.
    seconds:
        Time-out of each later operation on the connection.
    """
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.settimeout(seconds)
        with short(path) as name:
            stream.connect(name)
    except BaseException:
        stream.close()
        raise
    return stream


def alive(path: Path, seconds: float) -> bool:
    """Whether a server at this path answers."""
    try:
        with connect(path, seconds) as stream:
            write(stream, NO_STUDY, b"")
            return read(stream, 0) == (NO_STUDY, b"")
    except (OSError, Malformed):
        return False


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A name of the same file that is short enough for a socket, whose names are limited where paths are not."""
    name = str(path.absolute())
    if len(os.fsencode(name)) <= _LONGEST_PATH:
        yield name
        return
    if not Path("/proc/self/fd").is_dir():
        raise BadInput(f"the path {path} is too long for a socket: choose a shorter one for the state folder")
    # The kernel resolves this name to the folder that is open, so that a path of any length fits into the 108 bytes of
    # `sun_path`.
    handle = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{path.name}"
    finally:
        os.close(handle)
