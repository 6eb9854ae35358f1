"""The engine over sockets: replies as they come, and whatever does not come is a loss."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zerosum.engines.sockets import Sockets
from zerosum.errors import Malformed
from zerosum.protocol.stream import connect, read, short, write

PLAN = "ab" * 32
STUDY = bytes.fromhex(PLAN)


@contextmanager
def listening(path: Path, reply: Callable[[bytes], bytes | None], times: int = 1) -> Iterator[None]:
    """Something that answers each of so many connections once, or hangs up."""
    server = socket.socket(socket.AF_UNIX)
    with short(path) as name:
        server.bind(name)
    server.listen(8)

    def work() -> None:
        for _ in range(times):
            stream, _address = server.accept()
            with stream, suppress(OSError, Malformed):  # the other side had enough
                arrived = read(stream, 1 << 20)
                answer = None if arrived is None else reply(bytes(arrived[1]))
                if arrived is not None and answer is not None:
                    write(stream, arrived[0], answer)
                    read(stream, 1 << 20)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    server.close()


def test_sockets_exchange_gives_replies_and_losses(tmp_path: Path) -> None:
    names = ("good", "gone", "mute", "liar")
    paths = {name: tmp_path / name for name in names}
    quiet = threading.Event()

    def says_nothing(frame: bytes) -> bytes | None:
        quiet.wait(10)
        return None

    with (
        listening(paths["good"], lambda frame: frame[::-1]),
        listening(paths["mute"], says_nothing),
        listening(paths["liar"], lambda frame: None),
    ):
        engine = Sockets(paths, PLAN, seconds=0.5)
        found = dict(engine.exchange(dict.fromkeys((*names, "stranger"), b"abc")))
        quiet.set()
        engine.close()
    assert found == {"good": b"cba", "gone": None, "mute": None, "liar": None, "stranger": None}


def test_sockets_stale_connection_is_made_again_once(tmp_path: Path) -> None:
    path = tmp_path / "site"
    with listening(path, lambda frame: frame, times=2):
        engine = Sockets({"site": path}, PLAN, seconds=5.0)
        assert dict(engine.exchange({"site": b"one"})) == {"site": b"one"}
        # the listener reads one frame more on each connection and hangs up, as a process that ends would
        assert dict(engine.exchange({"site": b"two"})) == {"site": b"two"}
        engine.close()


def test_sockets_too_large_reply_is_loss(tmp_path: Path) -> None:
    path = tmp_path / "site"
    with listening(path, lambda frame: bytes(2000)):
        engine = Sockets({"site": path}, PLAN, seconds=5.0, frame_bytes=1000)
        assert dict(engine.exchange({"site": b"one"})) == {"site": None}
        engine.close()


def test_sockets_present_lists_listening_sites(tmp_path: Path) -> None:
    with listening(tmp_path / "here", lambda frame: b""):
        engine = Sockets({"here": tmp_path / "here", "away": tmp_path / "away"}, PLAN)
        assert engine.present(5.0) == ["here"]
        engine.close()


def test_sockets_long_path_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0
    with listening(folder / "socket", lambda frame: frame), connect(folder / "socket", 5.0) as stream:
        write(stream, STUDY, b"hello")
        assert read(stream, 100) == (STUDY, b"hello")
        if before:
            assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3  # the sockets, and no folder
