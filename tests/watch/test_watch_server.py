"""The page is served to its owner whatever connections others open; over sockets of loopback."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from helpers.watch_page import Visitor, served
from zerosum.cli.site import site_init
from zerosum.watch import server
from zerosum.watch.site_pages import SitePages

IDLE = 150


@pytest.fixture
def visitor(tmp_path: Path) -> Iterator[Visitor]:
    site_init(tmp_path / "s0", json_=True)
    with served(SitePages(tmp_path / "s0" / "site.toml")) as found:
        yield found


@contextmanager
def connected(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connections that send so much and no more."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)))
            found[-1].sendall(sent)
        yield found


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b"GET /static/watch.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /a/b/decision HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nform=",
    ],
    ids=["nothing", "half a request", "a request, answered", "half a form, refused"],
)
def test_owner_among_connections_without_a_request_is_answered(visitor: Visitor, sent: bytes) -> None:
    with connected(visitor.port, IDLE, sent):
        for _ in range(3):
            assert visitor.ask(visitor.root).status == 200


def test_connections_without_a_request_beyond_the_limit_are_closed(visitor: Visitor) -> None:
    with connected(visitor.port, IDLE) as idle:
        closed = 0
        while closed < IDLE - server._WAITING:  # fails by the timeout of the sockets where they are never closed
            ready, _, _ = select.select(idle, [], [], 30)
            assert ready
            assert all(each.recv(1) == b"" for each in ready)
            closed += len(ready)
            idle = [each for each in idle if each not in ready]
        assert visitor.ask(visitor.root).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /"])
def test_connection_that_sends_no_whole_request_in_time_is_closed(
    visitor: Visitor, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE_SECONDS", 0.1)
    monkeypatch.setattr(server, "_WAIT_SECONDS", 0.1)
    with connected(visitor.port, 1, sent) as (waiting,):
        while waiting.recv(4096):  # fails by the timeout of the socket where it is never closed
            pass


def test_stream_of_a_page_is_not_closed_for_waiting(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_WAITING", 0)
    monkeypatch.setattr(server, "_GRACE_SECONDS", 0.5)
    cookie = f"Cookie: zerosum={visitor.access.session}\r\n"
    request = f"GET {visitor.root}live?of= HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n"
    with connected(visitor.port, 1, request.encode()) as (stream,):
        assert stream.recv(12) == b"HTTP/1.1 200"
        with connected(visitor.port, 1) as (idle,):
            assert idle.recv(1) == b""  # it began to wait after the stream
        while select.select([stream], [], [], 0)[0]:
            assert stream.recv(65536)  # of one that was closed, nothing


def test_requests_beyond_the_limit_are_answered_with_503(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_REQUESTS", 0)
    assert visitor.ask(visitor.root).status == 503
    monkeypatch.undo()
    assert visitor.ask(visitor.root).status == 200
