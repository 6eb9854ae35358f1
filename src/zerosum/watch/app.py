"""The page as a web application: few addresses, each behind the gate, and a stream for each page that is open.

/?token=...                 lets a browser in, once
/static/...                 script, stylesheet and icon: nothing in them is secret
/ROOM/...                   pages, as the board has them
/ROOM/live?of=...           what changes on one of them, as server-sent events
/ROOM/.../report            the report beside a result, in a sandbox
/ROOM/.../decision          a form: approve or refuse
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
from zerosum.kernel.markup import Html
from zerosum.watch import layout
from zerosum.watch.gate import HEADERS, REPORT_HEADERS, Gate
from zerosum.watch.markup import Page, paragraph

EVERY = 1.0  # seconds between two looks at whatever is on an open page
BEAT = 15.0  # and until an empty line shows both sides that the other is there
MOST_STREAMS = 40
MOST_FORM = 8192  # bytes
_STATIC = {"watch.css": "text/css", "watch.js": "text/javascript", "icon.svg": "image/svg+xml"}
_OUTSIDE = (
    "Open the address that zerosum watch printed: it has a token, and lets this browser in until zerosum watch ends."
)


class Board(Protocol):
    """What is shown, for a coordinator or for a site. All of it may be called from several threads."""

    title: str

    def page(self, path: str, part: int, form: str) -> Page | None: ...

    def report(self, path: str) -> bytes: ...

    def decide(self, path: str, decision: str, reason: str) -> str: ...


class Watch:
    """The application. `stopping` ends its streams."""

    def __init__(self, board: Board, gate: Gate, *, every: float = EVERY) -> None:
        self.board, self.gate, self.every = board, gate, every
        self.streams = 0
        self.stopping = False
        self._notices: dict[str, Html] = {}  # what was decided, for the page that is shown next
        self._root = f"/{gate.room}/"
        static = files("zerosum.watch") / "static"
        self._static = {name: (static / name).read_bytes() for name in _STATIC}
        self.app = Starlette(
            routes=[
                Route("/", self._guarded(self._enter), methods=["GET"]),
                Route("/static/{name}", self._guarded(self._file), methods=["GET"]),
                Route("/{room}/live", self._guarded(self._live, inside=True), methods=["GET"]),
                Route("/{room}/{path:path}/report", self._guarded(self._report, inside=True), methods=["GET"]),
                Route("/{room}/{path:path}/decision", self._guarded(self._decide, inside=True), methods=["POST"]),
                Route("/{room}/{path:path}", self._guarded(self._page, inside=True), methods=["GET"]),
            ],
            exception_handlers={404: self._missing, 405: self._missing, 500: self._broken},
        )
        self.app.router.redirect_slashes = False  # it would answer before the gate does

    def _guarded(self, answer: Callable[[Request], object], *, inside: bool = False) -> Callable[[Request], object]:
        """Whoever knocks at an address meets the gate first."""

        async def behind(request: Request) -> Response:
            own = (request.scope.get("server") or (None,))[0]
            if not self.gate.known_host(request.headers.get("host"), own):
                return _refused(421, "Not this server", "The name in the address is not one of this server.")
            if inside and not self.gate.inside(request.path_params["room"], request.headers.get("cookie")):
                return _refused(403, "Not let in", _OUTSIDE)
            found: Response = await answer(request)  # type: ignore[misc]
            return found

        return behind

    async def _enter(self, request: Request) -> Response:
        if not self.gate.admitted(request.query_params.get("token")):
            return _refused(403, "Not let in", _OUTSIDE)
        # Not a redirect: where another site's page led here, the cookie would not be sent along with it.
        text = layout.message("One moment", "The page opens.", None, refresh=self._root)
        return HTMLResponse(text, headers=HEADERS | {"Set-Cookie": self.gate.cookie()})

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            return _refused(404, "Not here", "There is nothing at this address.")
        return Response(self._static[name], media_type=_STATIC[name], headers=HEADERS)

    async def _page(self, request: Request) -> Response:
        path = request.path_params["path"]
        return await self._drawn(path, _part(request), self._notices.pop(path, None))

    async def _drawn(
        self, path: str, part: int, notice: Html | None = None, status: int = 200, here: str | None = None
    ) -> Response:
        page = await run_in_threadpool(self.board.page, path, part, self.gate.form)
        if page is None:
            return _refused(404, "Not here", "There is no such study, or its folder is gone.", self._root)
        place = path + (f"?part={part}" if part else "")
        text = layout.document(page, self._root, place, self.board.title, notice, here)
        return HTMLResponse(text, status, headers=HEADERS)

    async def _report(self, request: Request) -> Response:
        try:
            report = await run_in_threadpool(self.board.report, request.path_params["path"])
        except ZerosumError as error:
            return _refused(404, "Not here", str(error), self._root)
        return Response(report, media_type="text/html", headers=REPORT_HEADERS)

    async def _decide(self, request: Request) -> Response:
        fields = await _form(request)
        if fields is None or not self.gate.may_act(request.headers, fields.get("form")):
            words = "This decision did not come from this page, so nothing was decided. Open the page again."
            return _refused(403, "Not decided", words, self._root)
        path = request.path_params["path"]
        try:
            said = await run_in_threadpool(
                self.board.decide, path, fields.get("decision", ""), fields.get("reason", "")
            )
        except ZerosumError as error:
            more = f" (not for others: {error.detail})" if error.detail else ""
            words = f"That did not work: {error}{more}"
            drawn = await self._drawn(path, 0, paragraph(words, class_="fault"), 409, here=f"{path}/decision")
            return drawn if drawn.status_code == 409 else _refused(404, "Not as it should be", words, self._root)
        self._notices[path] = paragraph(f"{said[0].upper()}{said[1:]}.", class_="notice")
        return Response(status_code=303, headers=HEADERS | {"Location": f"{self._root}{path}"})

    async def _live(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return _refused(503, "Too many", "Too many pages are open.", self._root)
        path, _, query = request.query_params.get("of", "").partition("?")
        part = _whole_number(query.removeprefix("part="))
        headers = HEADERS | {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(request, path, part), media_type="text/event-stream", headers=headers)

    async def _events(self, request: Request, path: str, part: int) -> AsyncIterator[str]:
        self.streams += 1
        sent: dict[str, str] = {}
        quiet = 0.0
        try:
            yield "retry: 2000\n\n"
            while not self.stopping and not await request.is_disconnected():
                page = await run_in_threadpool(self.board.page, path, part, self.gate.form)
                if page is None:
                    yield 'event: gone\ndata: {"said": "This study is no longer here."}\n\n'
                    return
                if (told := layout.event(page, sent)) is not None:
                    quiet = 0.0
                    yield told
                elif quiet >= BEAT:
                    quiet = 0.0
                    yield ": still here\n\n"
                quiet += self.every
                await asyncio.sleep(self.every)
        finally:
            self.streams -= 1

    async def _missing(self, request: Request, error: Exception) -> Response:
        return _refused(404, "Not here", "There is nothing at this address.")

    async def _broken(self, request: Request, error: Exception) -> Response:
        """Whatever went wrong is no reason to show how the program is made, or what it read."""
        return _refused(500, "Something went wrong", "The page could not be drawn. zerosum watch goes on.")


def _refused(status: int, title: str, words: str, root: str | None = None) -> Response:
    return HTMLResponse(layout.message(title, words, root), status, headers=HEADERS)


def _part(request: Request) -> int:
    return _whole_number(request.query_params.get("part", ""))


def _whole_number(said: str) -> int:
    return int(said) if said.isascii() and said.isdigit() and len(said) < 6 else 0


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a form; None if it is too long or is none."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return None
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_FORM:
                return None
    except ClientDisconnect:
        return None
    try:
        found = parse_qs(body.decode("ascii"), strict_parsing=False, max_num_fields=8, keep_blank_values=True)
    except ValueError:
        return None
    return {name: values[0] for name, values in found.items() if len(values) == 1}
