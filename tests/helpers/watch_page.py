"""The page, served to tests as it is to people: over a socket of loopback."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from helpers.small_studies import make
from zerosum.coordinator.journal import Journal
from zerosum.kernel.plan import Plan
from zerosum.study.coordinating import Settings
from zerosum.study.status import Status
from zerosum.watch.access import AccessControl
from zerosum.watch.app import Pages, Watch
from zerosum.watch.server import bind, server_of

HOSTILE = "<img src=x onerror=alert(1)>\"'&</section></script><script>alert(2)</script>"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


class Visitor:
    """A browser of few abilities: says what it is told to, and has the cookie unless it is told otherwise."""

    def __init__(self, watch: Watch, port: int) -> None:
        self.watch, self.port, self.access = watch, port, watch.access
        self.root = f"/{watch.access.path_secret}/"
        self.origin = f"http://127.0.0.1:{port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
        *,
        cookie: bool = True,
    ) -> Answer:
        said = dict(headers or {})
        if cookie:
            said.setdefault("Cookie", f"zerosum={self.access.session}")
        connection = self.connect()
        try:
            connection.request(method, path, body, said)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def page(self, path: str = "") -> str:
        answer = self.ask(self.root + path)
        assert answer.status == 200, answer.text
        return answer.text

    def decide(self, path: str, decision: str, reason: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        fields = {"form": self.access.form, "decision": decision, "reason": reason}
        said = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin} | dict(headers or {})
        answer = self.ask(f"{self.root}{path}/decision", said, "POST", urlencode(fields).encode())
        return self.ask(answer.headers["location"]) if answer.status == 303 else answer


@contextmanager
def served(board: Pages) -> Iterator[Visitor]:
    watch = Watch(board, AccessControl(), every=0.05)
    listening, started = bind("127.0.0.1", 0), threading.Event()
    port = listening.getsockname()[1]
    server = server_of(watch, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        assert started.wait(20)
        yield Visitor(watch, port)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class Stream:
    """Server-sent events, one after the other."""

    def __init__(self, visitor: Visitor, path: str) -> None:
        self.connection = visitor.connect()
        self.connection.request(
            "GET", f"{visitor.root}live?of={path}", headers={"Cookie": f"zerosum={visitor.access.session}"}
        )
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self.answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.words += data


def parsed(text: str) -> _Tags:
    found = _Tags()
    found.feed(str(text))  # parts of Markup would be escaped again
    found.close()
    return found


def coordinated(folder: Path, plan: Plan | None = None, *, status: bool = True) -> Status | None:
    """A study in a state folder, as `zerosum coordinator` leaves it behind."""
    plan = plan or make("local", study=folder.name)
    Journal.create(folder, plan).close()
    Settings(study=folder / "study.toml", out=folder / "out").save(folder)
    return Status(folder, plan) if status else None


def hostile(study: str = HOSTILE) -> Plan:
    """A plan of a coordinator that tries everything that a name may hold."""
    plan = make("local", study=study)
    question = replace(
        plan.question,
        columns=(HOSTILE, "b"),
        parameters={HOSTILE: HOSTILE, "lower": [0, 1], "upper": [2, 3]},
        preprocessing={HOSTILE: [HOSTILE]},
        files={HOSTILE: HOSTILE},
    )
    others = tuple(replace(site, name=f"{HOSTILE}{at}"[:190]) for at, site in enumerate(plan.sites[1:]))
    return replace(plan, question=question, sites=(plan.sites[0], *others))


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)
