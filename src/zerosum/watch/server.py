"""HTTP server of the watch page (uvicorn): socket, connection limits, signals.

Every user of the machine can open connections to a loopback port, and the owner must be served all the same. The limit
is therefore on active requests, and the access checks reject those of other users at once. A connection without a
request only holds a file descriptor. It is closed after `_GRACE_SECONDS`, or after `_WAIT_SECONDS` more if at most
`_WAITING` connections wait. The limits were chosen by hand; no benchmark recorded.
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

_BACKLOG = 128  # connections queued by the operating system
_REQUESTS = 128  # active requests; a browser has few, and streams have their own limit
_WAITING = 64  # connections without a request; a browser holds about six
_GRACE_SECONDS = 1.0  # s, for every client, from connection or last response to the headers of the next request

_WAIT_SECONDS = 10.0  # s, additional wait if few connections wait


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        Port; 0 for a free one.

    Raises
    ------
    BadInput
        If the port is in use or invalid, or the host is unknown.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # A server that is started again can bind its port at once, while old connections are in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BadInput(f"the port {port} of {host} is in use: choose another one, or none for a free one") from None
        if isinstance(error, socket.gaierror):
            raise BadInput(f"there is no address {host!r}") from None
        raise BadInput(f"the port {port} of {host} cannot be used: {error.strerror or error}") from None
    except (OverflowError, UnicodeError):
        raise BadInput("a port is a number from 0 to 65535, and a host a name or an address") from None
    return listener


class _Protocol(H11Protocol):
    """HTTP connection of uvicorn that is closed if no request arrives.

    uvicorn has a time-out only between a response and the first byte of the next request. A connection that sends
    nothing at first, or incomplete headers, would stay open without limit.
    """

    _timer: asyncio.TimerHandle | None = None  # None: not waiting for a request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._wait()

    def handle_events(self) -> None:
        """Stop waiting once a request has arrived."""
        super().handle_events()
        # `cycle` is uvicorn's object for a request whose headers are complete.
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        self._wait()
        super().on_response_complete()  # may already find the next request

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        """Start the first timer."""
        self._stop_waiting()
        self._timer = self.loop.call_later(_GRACE_SECONDS, self._wait_longer)

    def _wait_longer(self) -> None:
        """Close the connection if many wait, else start the second timer."""
        waiting = sum(isinstance(each, _Protocol) and each._timer is not None for each in self.connections)
        # Many silent connections are a flood, not browsers. The owner's browser opens a new connection when its request
        # comes, so closing one of its idle connections costs nothing.
        if waiting > _WAITING:
            self._close()
        else:
            self._timer = self.loop.call_later(_WAIT_SECONDS, self._close)

    def _stop_waiting(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Close the connection."""
        self._stop_waiting()
        self.transport.close()


def _limited(app: ASGIApp) -> ASGIApp:
    """The application with at most `_REQUESTS` active requests; others are answered with 503."""
    under_way = 0

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal under_way
        # Refused here, before the application: a flood must not fill the thread pool that renders pages.
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
    """uvicorn server that ends its streams on shutdown and does not raise the signal again."""

    def __init__(self, config: uvicorn.Config, watch: Watch, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._watch, self._started = watch, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then report readiness."""
        await super().startup(sockets)
        self._started()

    async def on_tick(self, counter: int) -> bool:
        """Set `stopping` of the application when the server stops."""
        stop = await super().on_tick(counter)
        # Streams have no end of their own, and uvicorn waits for open responses. Each checks this flag every second.
        self._watch.stopping = stop
        return stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT while serving, in the main thread only. The former handlers are restored
        afterwards."""
        # Python delivers signals to the main thread only, and refuses handlers from others. Tests run servers in
        # threads.
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
        """Request shutdown."""
        self.should_exit = True


def serve(watch: Watch, listening: socket.socket, started: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Parameters
    ----------
    watch : Watch
        The application.
    listening : socket
        A listening socket, from `bind`.
    started : callable
        Called once requests are answered.
    """
    server = server_of(watch, started)
    # A stream that is still open after the grace period is cancelled, which ends the server as intended.
    with suppress(asyncio.CancelledError):
        server.run(sockets=[listening])


def server_of(watch: Watch, started: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Configured server, not started."""
    config = uvicorn.Config(
        _limited(watch.app),
        http=_Protocol,
        # Features that the page does not use are off: WebSockets, lifespan events, proxy headers.
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,  # addresses contain tokens
        proxy_headers=False,  # forwarded addresses are not trusted
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16384,
    )
    return _Server(config, watch, started)
