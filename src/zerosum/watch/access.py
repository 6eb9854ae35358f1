"""Access control of the watch page: token, session cookie, host check, CSRF protection, security headers.

Every user of the machine can connect to a loopback port, and any web page can direct a browser there. Therefore:

- The printed address has a token that is random for each process. It is exchanged for a cookie (HttpOnly,
  SameSite=Strict).
- Pages have a random path, and the cookie is limited to it. Cookies do not distinguish ports, so another server on this
  host would receive the cookie otherwise.
- The Host header must name this server, as protection against DNS rebinding.
- Requests that change something must have the same Origin and contain a secret of the page (CSRF protection).
- Pages cannot load, run or be framed by foreign content (Content-Security-Policy).

Secrets are compared in constant time and are valid for one process.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

# Name of the session cookie.
COOKIE = "zerosum"
LOOPBACK = "127.0.0.1"
# Host names of a loopback server.
_NAMES = frozenset({"localhost", LOOPBACK, "::1"})

# Headers of every response.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # browsers omit the Origin header if the referrer is suppressed
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# A report is a file from elsewhere. It may use its own styles and pictures, runs nothing, and has an opaque origin.
REPORT_HEADERS = HEADERS | {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
}


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


@dataclass(frozen=True)
class AccessControl:
    """Secrets of one process, and the host it serves at.

    Attributes
    ----------
    host : str
        Name or address given by the user.
    token : str
        Secret of the printed address.
    session : str
        Value of the cookie.
    form : str
        Secret in forms.
    path_secret : str
        Random first part of all paths.
    """

    # 256 bits for each secret (128 for the path, which the cookie protects too), from the operating system.
    # `repr=False` keeps them out of logs and tracebacks.
    host: str = LOOPBACK
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    path_secret: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    def address(self, port: int) -> str:
        """URL to open in a browser. For a server at all addresses (0.0.0.0, ::) it is the loopback address."""
        host = self.host
        if self.everywhere:
            host = "::1" if ":" in host else LOOPBACK
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={self.token}"

    @property
    def everywhere(self) -> bool:
        """Whether the server listens at all addresses of the machine."""
        address = _address(self.host)
        return address is not None and address.is_unspecified

    def cookie(self) -> str:
        """Set-Cookie header."""
        # No `Secure`: the connection is plain HTTP, over which browsers may drop such a cookie. No `Max-Age`: the
        # cookie ends with the browser, and its value is valid for one process.
        return f"{COOKIE}={self.session}; Path=/{self.path_secret}/; HttpOnly; SameSite=Strict"

    def known_host(self, header: str | None, own: str | None) -> bool:
        """Whether a Host header names this server: the configured host, a loopback name for a loopback server, or the
        address `own` of the connection.

        The port is not compared, since a tunnel has another one.

        Parameters
        ----------
        header : str or None
            Value of the Host header.
        own : str or None
            Local address of the connection, needed if the server listens at all addresses.
        """
        # Without this check a page of another site could give its own name this address (DNS rebinding) and read
        # responses as its own.
        host = _host(header or "")
        if host is None:
            return False
        if host == self.host.lower() or (is_loopback(self.host) and host in _NAMES):
            return True
        address = _address(host)
        return address is not None and own is not None and address == _address(own)

    def admitted(self, token: str | None) -> bool:
        """Whether the token is correct."""
        return _same(token, self.token)

    def inside(self, path_secret: str, cookies: str | None) -> bool:
        """Whether a request has the secret path and the session cookie.

        Another server on this host may have set a cookie of the same name for all paths. Both are sent then, so any
        matching value is accepted.
        """
        pairs = [each.strip().partition("=") for each in (cookies or "").split(";")]
        matches = [_same(value, self.session) for name, _, value in pairs if name == COOKIE]
        return _same(path_secret, self.path_secret) and any(matches)

    def may_act(self, headers: Mapping[str, str], form: str | None) -> bool:
        """Whether a request that changes something comes from a page of this server.

        Parameters
        ----------
        headers : mapping of str to str
            Headers of the request, with names in lower case.
        form : str or None
            Secret that the form contains.
        """
        # Three independent proofs: the secret of the form, which other sites cannot read; the Origin header, which
        # scripts cannot set; and Sec-Fetch-Site, where the browser sends it.
        same = headers.get("origin") == f"http://{headers.get('host', '')}"
        fetched = headers.get("sec-fetch-site", "same-origin") == "same-origin"
        return _same(form, self.form) and same and fetched


def _same(value: str | None, secret: str) -> bool:
    """Comparison with a secret in constant time."""
    # surrogatepass: an invalid character in a header compares as unequal instead of raising.
    return secrets.compare_digest((value or "").encode("utf-8", "surrogatepass"), secret.encode())


def _host(header: str) -> str | None:
    """Host name of a Host header without port, in lower case; None if malformed."""
    host, _, port = header.rpartition(":") if header.rfind(":") > header.rfind("]") else (header, "", "")
    # isdigit alone accepts digits of other scripts.
    if port and not (port.isascii() and port.isdigit()):
        return None
    if host.startswith("["):
        return host[1:-1].lower() if host.endswith("]") else None
    return host.lower() if host and ":" not in host else None


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """IP address of a host, or None. IPv4-mapped IPv6 addresses become IPv4."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address  # a dual-stack socket reports 127.0.0.1 as ::ffff:127.0.0.1
