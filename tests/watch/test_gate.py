"""Who is let in: the right token, path, cookie, host and origin, and nobody else."""

from __future__ import annotations

import pytest

from zerosum.watch.gate import HEADERS, REPORT_HEADERS, Gate, is_loopback

GATE = Gate()


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ("127.0.0.1:8000", True),
        ("localhost:9", True),
        ("LOCALHOST", True),
        ("[::1]:80", True),
        ("127.0.0.1", True),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example:8000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1:80:80", False),
        ("127.0.0.1:8000@evil.example", False),
        ("evil.example:80#127.0.0.1", False),
        ("[::1", False),
        ("", False),
        (None, False),
        ("10.0.0.7:8000", False),
    ],
)
def test_only_our_own_names_are_known(said: str | None, known: bool) -> None:
    assert GATE.known_host(said, "127.0.0.1") is known


def test_elsewhere_the_name_that_was_given_and_the_address_that_was_connected_to() -> None:
    gate = Gate("0.0.0.0")
    assert gate.known_host("10.0.0.7:8000", "10.0.0.7")
    assert not gate.known_host("10.0.0.8:8000", "10.0.0.7")
    assert not gate.known_host("evil.example:8000", "10.0.0.7")
    assert not gate.known_host("localhost:8000", "10.0.0.7")
    assert Gate("hub.example").known_host("HUB.example:1", "10.0.0.7")
    assert [is_loopback(each) for each in ("127.8.0.1", "::1", "localhost", "::", "hub.example")] == [
        *(True, True, True),
        *(False, False),
    ]


@pytest.mark.parametrize(
    ("host", "opened"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("hub", "hub")],
)
def test_the_address_can_be_opened_as_it_is_printed(host: str, opened: str) -> None:
    gate = Gate(host)
    assert gate.address(8000) == f"http://{opened}:8000/?token={gate.token}"
    assert gate.known_host(f"{opened}:8000", opened.strip("[]"))


def test_a_socket_of_both_kinds_of_addresses_knows_the_older_kind() -> None:
    assert Gate("::").known_host("127.0.0.1:8000", "::ffff:127.0.0.1")
    assert not Gate("::").known_host("127.0.0.2:8000", "::ffff:127.0.0.1")


def test_secrets_are_long_and_of_one_process_and_not_in_what_is_printed_of_a_gate() -> None:
    other = Gate()
    mine = (GATE.token, GATE.session, GATE.form, GATE.room)
    assert len(set(mine) | {other.token, other.session, other.form, other.room}) == 8
    assert all(len(each) >= 22 for each in mine)
    assert not any(each in repr(GATE) for each in mine)
    assert GATE.admitted(GATE.token)
    for wrong in (None, "", GATE.token[:-1], GATE.token + "x", GATE.session, "\ud800"):
        assert not GATE.admitted(wrong)


def test_the_cookie_and_the_path_belong_together() -> None:
    cookie = f"other=1; zerosum={GATE.session}"
    assert GATE.inside(GATE.room, cookie)
    assert not GATE.inside("static", cookie)
    assert GATE.inside(GATE.room, f"zerosum={GATE.session}; zerosum=of-another-port")
    assert GATE.inside(GATE.room, f"zerosum=of-another-port; zerosum={GATE.session}")
    for wrong in (None, "", "zerosum=", f"zerosum={GATE.token}", f"zerosum={GATE.session}x", "zerosum", "\x00=;;"):
        assert not GATE.inside(GATE.room, wrong)
    assert {each.strip() for each in GATE.cookie().split(";")} >= {
        *("HttpOnly", "SameSite=Strict", f"Path=/{GATE.room}/"),
    }


def test_only_our_own_pages_act() -> None:
    ours = {"host": "127.0.0.1:81", "origin": "http://127.0.0.1:81", "sec-fetch-site": "same-origin"}
    assert GATE.may_act(ours, GATE.form)
    assert GATE.may_act({"host": "localhost:9", "origin": "http://localhost:9"}, GATE.form)
    for wrong in ("http://127.0.0.1:82", "http://evil.example", "null", "https://127.0.0.1:81", "", "http://127.0.0.1"):
        assert not GATE.may_act(ours | {"origin": wrong}, GATE.form)
    assert not GATE.may_act({name: value for name, value in ours.items() if name != "origin"}, GATE.form)
    assert not GATE.may_act(ours | {"sec-fetch-site": "same-site"}, GATE.form)
    for form in (None, "", GATE.token, GATE.session):
        assert not GATE.may_act(ours, form)


def test_nothing_runs_that_is_not_ours() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    report = REPORT_HEADERS["Content-Security-Policy"]
    assert report.startswith("sandbox; default-src 'none'")  # of no origin, and without scripts
    assert "script-src" not in report
