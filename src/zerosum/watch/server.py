"""Serving the page: a socket of loopback unless somebody says otherwise, until SIGTERM or Ctrl-C.

Everybody on the machine can open connections to a port of loopback, and the owner must be answered all the same. So the
limit is on requests under way, which the gate ends at once unless they are the owner's, and not on connections. A
connection that waits for a request takes a file descriptor and nothing else: it may do so for `_GRACE_SECONDS`, and for
`_WAIT_SECONDS` more if no more than `_WAITING` do.

Tested in tests/watch/test_watch_server.py.
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
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from zerosum.errors import BadInput
from zerosum.watch.app import Watch

_BACKLOG = 128  # connections that the system holds until they are accepted
_REQUESTS = 128  # under way at once; a browser has at most a few, and its streams have a limit of their own
_WAITING = 64  # connections without a request; a browser holds about six
_GRACE_SECONDS = 1.0  # for every client, from a connection or its last response to the next request's headers

_WAIT_SECONDS = 10.0  # more, where few wait


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there, or one sentence that says why not."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(_BACKLOG)
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


class _Protocol(H11Protocol):
    """Uvicorn's connection, which is closed where no request comes.

    Uvicorn has a timeout between a response and the first byte of the next request only: a connection that sends
    nothing at first, or a part of a request's headers, stays for ever.
    """

    _timer: asyncio.TimerHandle | None = None  # None: it does not wait for a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._wait()
        super().on_response_complete()  # which may find the next request already

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(_GRACE_SECONDS, self._wait_longer)

    def _wait_longer(self) -> None:
        waiting = sum(isinstance(each, _Protocol) and each._timer is not None for each in self.connections)
        if waiting > _WAITING:
            self._close()
        else:
            self._timer = self.loop.call_later(_WAIT_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._stop_waiting()
        self.transport.close()


def _limited(app: ASGIApp) -> ASGIApp:
    """The same application, for `_REQUESTS` requests at a time; others are answered with 503."""
    under_way = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        if under_way >= _REQUESTS:
            await PlainTextResponse("Too many requests are under way.", 503)(scope, receive, send)
            return
        under_way += 1
        try:
            await app(scope, receive, send)
        finally:
            under_way -= 1

    return limited


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
        _limited(watch.app),
        http=_Protocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,  # addresses have tokens in them
        proxy_headers=False,  # nobody is believed who says that others asked
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16384,
    )
    return _Server(config, watch, started)
