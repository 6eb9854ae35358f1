"""Serving the page: a socket of loopback unless somebody says otherwise, until SIGTERM or Ctrl-C.

Tested in tests/cli/test_watching.py.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn

from zerosum.errors import BadInput
from zerosum.watch.app import Watch

_CONNECTIONS = 128


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one sentence that says why not."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(_CONNECTIONS)
        except BaseException:
            found.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadInput(f"the port {port} of {host} is in use: choose another one, or none for a free one") from None
        if isinstance(error, socket.gaierror):
            raise BadInput(f"there is no address {host!r}") from None
        raise BadInput(f"the port {port} of {host} cannot be used: {error.strerror or error}") from None
    except (OverflowError, UnicodeError):
        raise BadInput("a port is a number from 0 to 65535, and a host a name or an address") from None
    return found


class _Server(uvicorn.Server):
    """Uvicorn's, which ends its streams when it is asked to stop, and then ends as if nothing had happened."""

    def __init__(self, config: uvicorn.Config, watch: Watch, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._watch, self._told = watch, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._told()

    async def on_tick(self, counter: int) -> bool:
        stop = await super().on_tick(counter)
        self._watch.stopping = stop
        return stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True


def serve(watch: Watch, listening: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Until SIGTERM or Ctrl-C; `started` is called once requests are answered."""
    server = server_of(watch, started)
    with suppress(asyncio.CancelledError):
        server.run(sockets=[listening])


def server_of(watch: Watch, started: Callable[[], None] = lambda: None) -> uvicorn.Server:
    config = uvicorn.Config(
        watch.app,
        http="h11",
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,  # addresses have tokens in them
        proxy_headers=False,  # nobody is believed who says that others asked
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16384,
    )
    return _Server(config, watch, started)
