"""Web application of `zerosum watch` (Starlette): routes, access control, live updates by server-sent events.

/?token=...                 sets the session cookie
/static/...                 script, style sheet and icon, without access control
/SECRET/...                 pages
/SECRET/live?of=...         changes of a page, as server-sent events
/SECRET/.../report          the report beside a result, in a sandbox
/SECRET/.../decision        form: approve or refuse
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Protocol
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from zerosum.errors import ZerosumError
from zerosum.watch import layout
from zerosum.watch.access import HEADERS, REPORT_HEADERS, AccessControl
from zerosum.watch.layout import Notice, Page

EVERY = 1.0  # s between two updates of an open page; chosen by hand
BEAT = 15.0  # s without a change until a comment line keeps the stream alive; chosen by hand
# Largest number of open streams; chosen by hand.
MOST_STREAMS = 40
MOST_FORM = 8192  # bytes, largest body of a form
# Static files and their media types.
_STATIC = {"watch.css": "text/css", "watch.js": "text/javascript", "icon.svg": "image/svg+xml"}
# Message for a request without a session.
_NO_SESSION = (
    "Open the address that zerosum watch printed. Its token gives this browser access until zerosum watch ends."
)


class Pages(Protocol):
    """Content of the pages, of a coordinator or a site. Methods may be called from several threads.

    `page(path, part, form)` gives the page at a path, or None. `part` is the index of a piece of a long table, `form`
    the secret that forms must contain. `report(path)` gives the report file of a study. `decide(path, decision,
    reason)` applies the decision of a form and returns a sentence about it. The last two raise a `ZerosumError` if that
    is not possible.
    """

    title: str

    def page(self, path: str, part: int, form: str) -> Page | None: ...

    def report(self, path: str) -> bytes: ...

    def decide(self, path: str, decision: str, reason: str) -> str: ...


class Watch:
    """The application. Setting `stopping` ends its streams.

    Parameters
    ----------
    pages : Pages
        Content of the pages.
    access : AccessControl
        Access control.
    every : float
        Seconds between two updates of an open page.
    """

    def __init__(self, pages: Pages, access: AccessControl, *, every: float = EVERY) -> None:
        self.pages, self.access, self.every = pages, access, every
        # Number of open streams. Handlers run in one event loop, so it needs no lock.
        self.streams = 0
        self.stopping = False
        self._notices: dict[str, Notice] = {}  # notice about a decision, shown once on the next page
        self._root = f"/{access.path_secret}/"
        static = files("zerosum.watch") / "static"
        # Read once: the files belong to the package and do not change while the server runs.
        self._static = {name: (static / name).read_bytes() for name in _STATIC}
        self.app = Starlette(
            routes=[
                Route("/", self._guarded(self._enter), methods=["GET"]),
                # Without access control: the message page for a visitor without a session needs its style too.
                Route("/static/{name}", self._guarded(self._file), methods=["GET"]),
                Route("/{secret}/live", self._guarded(self._live, inside=True), methods=["GET"]),
                # The order matters: the last route would also match the paths of the ones before it.
                Route("/{secret}/{path:path}/report", self._guarded(self._report, inside=True), methods=["GET"]),
                Route("/{secret}/{path:path}/decision", self._guarded(self._decide, inside=True), methods=["POST"]),
                Route("/{secret}/{path:path}", self._guarded(self._page, inside=True), methods=["GET"]),
            ],
            exception_handlers={404: self._missing, 405: self._missing, 500: self._broken},
        )
        self.app.router.redirect_slashes = False  # redirects would be sent before the access checks

    def _guarded(self, answer: Callable[[Request], object], *, inside: bool = False) -> Callable[[Request], object]:
        """Wrap a handler with host and session checks.

        Parameters
        ----------
        answer : callable
            Asynchronous handler.
        inside : bool
            Whether the session cookie and the secret path are required.
        """

        async def behind(request: Request) -> Response:
            # ASGI gives the local address of the connection as (host, port).
            own = (request.scope.get("server") or (None,))[0]
            # Protects against DNS rebinding: a foreign name that resolves to this address is refused.
            if not self.access.known_host(request.headers.get("host"), own):
                return _refused(421, "Not this server", "The name in the address is not one of this server.")
            if inside and not self.access.inside(request.path_params["secret"], request.headers.get("cookie")):
                return _refused(403, "No access", _NO_SESSION)
            response: Response = await answer(request)  # type: ignore[misc]
            return response

        return behind

    async def _enter(self, request: Request) -> Response:
        """Exchange the token in the printed address for the session cookie."""
        if not self.access.admitted(request.query_params.get("token")):
            return _refused(403, "No access", _NO_SESSION)
        # Not a redirect: with SameSite=Strict the browser would not send the cookie after a redirect that another site
        # started.
        text = layout.message("One moment", "The page opens.", None, refresh=self._root)
        return HTMLResponse(text, headers=HEADERS | {"Set-Cookie": self.access.cookie()})

    async def _file(self, request: Request) -> Response:
        """Static file."""
        name = request.path_params["name"]
        # A table of known names, not a path in a folder: a name with `..` is merely unknown.
        if name not in self._static:
            return _refused(404, "Not here", "There is nothing at this address.")
        return Response(self._static[name], media_type=_STATIC[name], headers=HEADERS)

    async def _page(self, request: Request) -> Response:
        """One of the pages."""
        path = request.path_params["path"]
        return await self._response(path, _part(request), self._notices.pop(path, None))

    async def _response(
        self, path: str, part: int, notice: Notice | None = None, status: int = 200, here: str | None = None
    ) -> Response:
        """Response with a rendered page.

        Parameters
        ----------
        path, part : str, int
            Address of the page, and index of a piece of a long table.
        notice : Notice, optional
            Message above the page.
        status : int
            HTTP status.
        here : str, optional
            Path of the current address, if it is not that of the page.
        """
        # Pages read files and may wait for a lock; in a thread they do not stop the event loop.
        page = await run_in_threadpool(self.pages.page, path, part, self.access.form)
        if page is None:
            return _refused(404, "Not here", "There is no such study, or its folder is gone.", self._root)
        place = path + (f"?part={part}" if part else "")
        text = layout.document(page, self._root, place, self.pages.title, notice, here)
        return HTMLResponse(text, status, headers=HEADERS)

    async def _report(self, request: Request) -> Response:
        """The report file of a study."""
        try:
            report = await run_in_threadpool(self.pages.report, request.path_params["path"])
        except ZerosumError as error:
            return _refused(404, "Not here", str(error), self._root)
        return Response(report, media_type="text/html", headers=REPORT_HEADERS)

    async def _decide(self, request: Request) -> Response:
        """Approve or refuse a plan from a form, then redirect to the page."""
        fields = await _form(request)
        # Protects against forms that other sites submit (CSRF).
        if fields is None or not self.access.may_act(request.headers, fields.get("form")):
            text = "This decision did not come from this page, so nothing was decided. Open the page again."
            return _refused(403, "Not decided", text, self._root)
        path = request.path_params["path"]
        try:
            sentence = await run_in_threadpool(
                self.pages.decide, path, fields.get("decision", ""), fields.get("reason", "")
            )
        except ZerosumError as error:
            # The reader is the steward of this site, who may see the detail.
            more = f" (not for others: {error.detail})" if error.detail else ""
            text = f"The decision failed: {error}{more}"
            page = await self._response(path, 0, Notice(text, "fault"), 409, here=f"{path}/decision")
            return page if page.status_code == 409 else _refused(404, "Not decided", text, self._root)
        # Redirect after POST: reloading the page does not repeat the decision.
        self._notices[path] = Notice(f"{sentence[0].upper()}{sentence[1:]}.", "notice")
        return Response(status_code=303, headers=HEADERS | {"Location": f"{self._root}{path}"})

    async def _live(self, request: Request) -> Response:
        """Open a stream of server-sent events, if not too many are open."""
        # Every stream renders its page once a second.
        if self.streams >= MOST_STREAMS:
            return _refused(503, "Too many", "Too many pages are open.", self._root)
        # The address of the page as the page itself has it: a path, and perhaps `?part=N`.
        path, _, query = request.query_params.get("of", "").partition("?")
        part = _whole_number(query.removeprefix("part="))
        # Disables buffering in nginx.
        headers = HEADERS | {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(request, path, part), media_type="text/event-stream", headers=headers)

    async def _events(self, request: Request, path: str, part: int) -> AsyncIterator[str]:
        """Yield the changes of a page as server-sent events, until the client disconnects or the server stops.

        Parameters
        ----------
        request : Request
            Used to detect a disconnected client.
        path, part : str, int
            Address of the page, and index of a piece of a long table.
        """
        self.streams += 1
        # Versions that this client has. It starts empty, so the first event brings every section: the page may have
        # changed between its response and the opening of the stream.
        sent: dict[str, str] = {}
        quiet = 0.0
        try:
            # ms after which a browser connects again; chosen by hand.
            yield "retry: 2000\n\n"
            while not self.stopping and not await request.is_disconnected():
                page = await run_in_threadpool(self.pages.page, path, part, self.access.form)
                if page is None:
                    yield 'event: gone\ndata: {"status": "This study is no longer here."}\n\n'
                    return
                if (update := layout.event(page, sent)) is not None:
                    quiet = 0.0
                    yield update
                elif quiet >= BEAT:
                    quiet = 0.0
                    # A comment of the event-stream format. Without traffic, tunnels and proxies close a connection.
                    yield ": still here\n\n"
                quiet += self.every
                await asyncio.sleep(self.every)
        finally:
            self.streams -= 1

    async def _missing(self, request: Request, error: Exception) -> Response:
        """404 page."""
        return _refused(404, "Not here", "There is nothing at this address.")

    async def _broken(self, request: Request, error: Exception) -> Response:
        """500 page. It contains no details of the error, which could reveal what was read."""
        return _refused(500, "Something went wrong", "The page could not be rendered. zerosum watch continues.")


def _refused(status: int, title: str, text: str, root: str | None = None) -> Response:
    """Response with a message page."""
    return HTMLResponse(layout.message(title, text, root), status, headers=HEADERS)


def _part(request: Request) -> int:
    """Index of the requested piece of a long table."""
    return _whole_number(request.query_params.get("part", ""))


def _whole_number(text: str) -> int:
    """A number with at most five digits, or 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


async def _form(request: Request) -> dict[str, str] | None:
    """Fields of a URL-encoded form with single values; None if it is too long or of another type."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    try:
        # Read in chunks, so that a long body is not held in memory.
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM:
                return None
    except ClientDisconnect:
        return None
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=False, max_num_fields=8, keep_blank_values=True)
    except ValueError:
        return None
    # A field that occurs twice is dropped, so that no two readers of the form can differ in which value counts.
    return {name: values[0] for name, values in fields.items() if len(values) == 1}
