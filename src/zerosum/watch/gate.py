"""Who may read the page and act on it.

Everybody on the machine can connect to a port of loopback, and any web page can send the reader's browser there. So

- the address that is printed has a token, drawn for this process; it buys a cookie (HttpOnly, SameSite=Strict);
- pages lie under a random path, and the cookie is sent there only: cookies know no ports, and a server that somebody
  else runs on this host would be sent it otherwise;
- a request must name a host that is ours, so that a name that was bound again to loopback reads nothing;
- what acts must come from a page of the same origin, by its Origin header, and carry a secret that such a page has;
- no page runs, loads or is framed by anything that is not ours (Content-Security-Policy).

Secrets are compared in constant time, and none outlives the process.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

COOKIE = "zerosum"
LOOPBACK = "127.0.0.1"
_NAMES = frozenset({"localhost", LOOPBACK, "::1"})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without a referrer at all, browsers leave the Origin out too
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A report is a file: its own styles and pictures show, nothing in it runs, and it is of no origin.
REPORT_HEADERS = HEADERS | {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
}


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


@dataclass(frozen=True)
class Gate:
    """The secrets of one process, and the host that it was told to serve at."""

    host: str = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    room: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    def address(self, port: int) -> str:
        """What to open in a browser, on this machine where every address of it is served: 0.0.0.0 and :: are none."""
        host = self.host
        if self.everywhere:
            host = "::1" if ":" in host else LOOPBACK
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={self.token}"

    @property
    def everywhere(self) -> bool:
        """Whether it serves at every address of the machine."""
        address = _address(self.host)
        return address is not None and address.is_unspecified

    def cookie(self) -> str:
        return f"{COOKIE}={self.session}; Path=/{self.room}/; HttpOnly; SameSite=Strict"

    def known_host(self, said: str | None, own: str | None) -> bool:
        """Whether a Host header names this server: as it was told to be called, loopback where it is that, or the very
        address that was connected to. Whatever the port: a tunnel has another."""
        host = _host(said or "")
        if host is None:
            return False
        if host == self.host.lower() or (is_loopback(self.host) and host in _NAMES):
            return True
        address = _address(host)
        return address is not None and own is not None and address == _address(own)

    def admitted(self, token: str | None) -> bool:
        return _same(token, self.token)

    def inside(self, room: str, cookies: str | None) -> bool:
        """Whether a request has the path and the cookie. Another server of this host may have set a cookie of the same
        name for every path: it is sent too, and must not stand in the way of ours."""
        said = [each.strip().partition("=") for each in (cookies or "").split(";")]
        right = [_same(value, self.session) for name, _, value in said if name == COOKIE]
        return _same(room, self.room) and any(right)

    def may_act(self, headers: Mapping[str, str], form: str | None) -> bool:
        """Whether a request that changes something was sent by a page of ours."""
        same = headers.get("origin") == f"http://{headers.get('host', '')}"
        fetched = headers.get("sec-fetch-site", "same-origin") == "same-origin"
        return _same(form, self.form) and same and fetched


def _same(said: str | None, secret: str) -> bool:
    return secrets.compare_digest((said or "").encode("utf-8", "surrogatepass"), secret.encode())


def _host(said: str) -> str | None:
    """The name in a Host header, without its port."""
    host, _, port = said.rpartition(":") if said.rfind(":") > said.rfind("]") else (said, "", "")
    if port and not (port.isascii() and port.isdigit()):
        return None
    if host.startswith("["):
        return host[1:-1].lower() if host.endswith("]") else None
    return host.lower() if host and ":" not in host else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found  # a socket of both kinds calls 127.0.0.1 ::ffff:127.0.0.1
