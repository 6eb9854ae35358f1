"""The page over a socket: who is let in, what acts, and streams that end whichever side goes away."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from markupsafe import Markup

from helpers.small_studies import make
from helpers.watch_page import HOSTILE, Stream, Visitor, coordinated, parsed, served, wait_for
from zerosum.cli.site import site_init
from zerosum.site.decisions import Consents
from zerosum.study import SiteFile
from zerosum.watch.access import HEADERS
from zerosum.watch.app import MOST_FORM, MOST_STREAMS
from zerosum.watch.coordinator_pages import CoordinatorPages
from zerosum.watch.layout import Page, Section, event
from zerosum.watch.site_pages import SitePages

PLAN = make("local", study=HOSTILE)
WAITING = f"study/{PLAN.digest()}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    site_init(tmp_path / "s0", json_=True)
    Consents(tmp_path / "s0" / "state").keep(PLAN)
    return tmp_path / "s0"


@pytest.fixture
def visitor(home: Path) -> Iterator[Visitor]:
    with served(SitePages(home / "site.toml")) as found:
        yield found


def decision(home: Path) -> str | None:
    return Consents(home / "state").decision(PLAN.digest())


def test_watch_app_admits_browser_by_token_only(visitor: Visitor) -> None:
    entered = visitor.ask(f"/?token={visitor.access.token}", cookie=False)
    assert entered.status == 200
    assert visitor.root in entered.text  # by a page of ours, so that the cookie is sent along
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert visitor.ask(visitor.root, {"Cookie": cookie.partition(";")[0]}).status == 200
    for path in ("/", "/?token=", f"/?token={visitor.access.session}", visitor.root, f"{visitor.root}live?of="):
        refused = visitor.ask(path, cookie=False)
        assert refused.status == 403
        assert "set-cookie" not in refused.headers
        assert visitor.access.path_secret not in refused.text
    for path in ("/another/", "/static/../app.py", "/static/app.py", "/favicon.ico"):
        assert visitor.ask(path).status in (403, 404)


def test_watch_app_every_answer_has_security_headers(visitor: Visitor) -> None:
    paths = [
        "/",
        f"/?token={visitor.access.token}",
        visitor.root,
        f"{visitor.root}{WAITING}",
        "/static/watch.js",
        "/x/y",
    ]
    for path in paths:
        answer = visitor.ask(path)
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value, path
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


def test_watch_app_rebound_host_name_is_refused(visitor: Visitor) -> None:
    for host in ("evil.example", f"evil.example:{visitor.port}", "127.0.0.1.evil.example"):
        for path in (visitor.root, f"/?token={visitor.access.token}", "/static/watch.js"):
            answer = visitor.ask(path, {"Host": host})
            assert answer.status == 421
            assert "set-cookie" not in answer.headers
    assert visitor.ask(visitor.root, {"Host": f"localhost:{visitor.port}"}).status == 200
    forwarded = {"X-Forwarded-Host": "127.0.0.1", "X-Forwarded-For": "127.0.0.1", "Host": "evil.example"}
    assert visitor.ask(visitor.root, forwarded).status == 421


def test_watch_app_decision_needs_own_origin_and_form(visitor: Visitor, home: Path) -> None:
    evil: list[dict[str, str]] = [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": f"http://127.0.0.1:{visitor.port + 1}"},  # another server of this very host
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data"},
    ]
    for headers in evil:
        assert visitor.decide(WAITING, "approved", headers=headers).status == 403
    assert visitor.decide(WAITING, "approved", headers={"Cookie": "zerosum=x"}).status == 403
    address, form = f"{visitor.root}{WAITING}/decision", {"Content-Type": "application/x-www-form-urlencoded"}
    for fields in ({}, {"form": "x"}, {"form": visitor.access.token}):
        body = urlencode({"decision": "approved", **fields}).encode()
        assert visitor.ask(address, form | {"Origin": visitor.origin}, "POST", body).status == 403
    right = urlencode({"form": visitor.access.form, "decision": "approved"}).encode()
    assert visitor.ask(address, form, "POST", right).status == 403  # without an origin
    assert visitor.ask(address + "?" + right.decode()).status in (403, 404)  # nothing is decided by an address
    assert decision(home) is None
    approved = visitor.decide(WAITING, "approved")
    assert approved.status == 200
    assert decision(home) == "approved"
    assert 'class="notice' in approved.text
    assert 'class="notice' not in visitor.page(WAITING)  # shown once
    again = visitor.decide(WAITING, "approved")
    assert again.status == 409
    refused = visitor.decide(WAITING, "refused", f"not {HOSTILE}")
    assert refused.status == 200
    assert Consents(home / "state").reason(PLAN.digest()) == f"not {HOSTILE}"
    assert parsed(refused.text).tags.count("script") == 1
    assert "img" not in parsed(refused.text).tags


def test_watch_app_bad_form_decides_nothing(visitor: Visitor, home: Path) -> None:
    assert visitor.decide(WAITING, "refused", "x" * 301).status == 409
    assert visitor.decide(WAITING, "refused", "a\x1bb").status == 409
    assert visitor.decide(WAITING, "perhaps").status == 409
    assert visitor.decide(WAITING, "refused", "x" * MOST_FORM).status == 403
    assert visitor.decide("study/zzz", "refused").status == 404
    address = f"{visitor.root}{WAITING}/decision"
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": visitor.origin}
    twice = f"form={visitor.access.form}&decision=approved&decision=refused".encode()
    assert visitor.ask(address, headers, "POST", twice).status == 409
    for body in (b"\xff\xfe", b"=" * 100, b"&" * 5000):
        assert visitor.ask(address, headers, "POST", body).status == 403
    assert visitor.ask(address, headers, "DELETE").status in (404, 405)
    assert decision(home) is None


def test_watch_app_unwritable_state_folder_is_reported(visitor: Visitor, home: Path) -> None:
    (home / "state" / "decisions").write_text("in the way")
    answer = visitor.decide(WAITING, "approved")
    assert answer.status == 409
    assert "state folder" in answer.text
    (home / "state" / "decisions").unlink()
    assert decision(home) is None


def test_watch_app_decision_without_log_holds_and_is_reported(visitor: Visitor, home: Path) -> None:
    log = SiteFile.load(home / "site.toml").audit_log
    log.mkdir(parents=True)
    answer = visitor.decide(WAITING, "approved")
    assert decision(home) == "approved"
    assert answer.status == 404  # nothing here tells of that study any more
    assert "audit log" in answer.text


def test_watch_app_stream_sends_changes_only(tmp_path: Path) -> None:
    status = coordinated(tmp_path / "vitals", make("local", study="vitals"))
    assert status is not None
    pages = CoordinatorPages([tmp_path])
    with served(pages) as visitor:
        key = pages._studies()[0].key
        stream = Stream(visitor, f"study/{key}")
        events = iter(stream)
        first = next(events)
        assert [each["id"] for each in first["sections"]] == ["state", "sites", "plan"]
        status.attended({"s0": "agreed", "s1": "absent", "s2": "absent", "s3": "absent"})
        second = next(events)
        assert "sites" in [each["id"] for each in second["sections"]]
        assert "plan" not in [each["id"] for each in second["sections"]]
        shutil.rmtree(tmp_path / "vitals")
        assert list(events)[-1].keys() == {"status"}
        stream.close()
        assert visitor.ask(f"{visitor.root}study/{key}").status == 404
        wait_for(lambda: visitor.watch.streams == 0)


def test_watch_app_closed_stream_is_released(visitor: Visitor) -> None:
    streams = [Stream(visitor, "") for _ in range(5)]
    for each in streams:
        next(iter(each))
    assert visitor.watch.streams == 5
    for each in streams:
        each.connection.sock.shutdown(socket.SHUT_RDWR)
        each.close()
    wait_for(lambda: visitor.watch.streams == 0)
    assert visitor.ask(visitor.root).status == 200


def test_watch_app_streams_beyond_limit_are_refused(visitor: Visitor) -> None:
    visitor.watch.streams = MOST_STREAMS
    assert visitor.ask(f"{visitor.root}live?of=").status == 503
    visitor.watch.streams = 0


def test_watch_app_streams_end_at_shutdown(home: Path) -> None:
    with served(SitePages(home / "site.toml")) as visitor:
        stream = Stream(visitor, "")
        next(iter(stream))
    assert visitor.watch.streams == 0
    list(stream)  # the end came
    stream.close()


def test_watch_app_internal_error_reveals_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = SitePages(home / "site.toml")
    with served(pages) as visitor:
        monkeypatch.setattr(pages, "page", lambda *_: 1 / 0)
        answer = visitor.ask(visitor.root)
        assert answer.status == 500
        assert "ZeroDivision" not in answer.text
        assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        monkeypatch.undo()
        assert visitor.ask(visitor.root).status == 200


def test_watch_app_junk_on_socket_does_not_stop_it(visitor: Visitor) -> None:
    for junk in (b"\0" * 4000, b"GET / HTTP/9.9\r\n\r\n", b"POST " + b"a" * 40_000, b"GET / HTTP/1.1\r\nHost:"):
        with socket.create_connection(("127.0.0.1", visitor.port), timeout=5) as stream:
            stream.sendall(junk)
    assert visitor.ask(visitor.root).status == 200


def test_watch_app_report_is_served_in_sandbox(tmp_path: Path) -> None:
    status = coordinated(tmp_path / "vitals", make("local", study="vitals"))
    assert status is not None
    (tmp_path / "vitals" / "out").mkdir()
    (tmp_path / "vitals" / "out" / "result.json").write_text("{}")
    (tmp_path / "vitals" / "out" / "report.html").write_text("<script>alert(1)</script>")
    pages = CoordinatorPages([tmp_path])
    with served(pages) as visitor:
        answer = visitor.ask(f"{visitor.root}study/{pages._studies()[0].key}/report")
        assert answer.status == 200
        assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
        assert visitor.ask(f"{visitor.root}study/x/report").status == 404
        assert visitor.ask(f"{visitor.root}study/x/report", cookie=False).status == 403


def test_watch_event_of_any_content_is_one_line() -> None:
    sent: dict[str, str] = {}
    page = Page("a\n\ndata: x", (Section("s", "S", Markup("line\n\nevent: gone\n")),), status="\r\n")
    told = event(page, sent)
    assert told is not None
    assert told.count("\n") == 2
    assert event(page, sent) is None
    without = Page("a\n\ndata: x", (), status="\r\n")
    assert event(without, sent) is not None  # a section went away
