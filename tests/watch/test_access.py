"""Who is let in: the right token, path, cookie, host and origin, and nobody else."""

from __future__ import annotations

import pytest

from zerosum.watch.access import HEADERS, REPORT_HEADERS, AccessControl, is_loopback

ACCESS = AccessControl()


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
def test_access_known_host_accepts_own_names_only(said: str | None, known: bool) -> None:
    assert ACCESS.known_host(said, "127.0.0.1") is known


def test_access_on_other_address_accepts_given_name_and_connected_address() -> None:
    access = AccessControl("0.0.0.0")
    assert access.known_host("10.0.0.7:8000", "10.0.0.7")
    assert not access.known_host("10.0.0.8:8000", "10.0.0.7")
    assert not access.known_host("evil.example:8000", "10.0.0.7")
    assert not access.known_host("localhost:8000", "10.0.0.7")
    assert AccessControl("hub.example").known_host("HUB.example:1", "10.0.0.7")
    assert [is_loopback(each) for each in ("127.8.0.1", "::1", "localhost", "::", "hub.example")] == [
        *(True, True, True),
        *(False, False),
    ]


@pytest.mark.parametrize(
    ("host", "opened"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("hub", "hub")],
)
def test_access_printed_address_can_be_opened(host: str, opened: str) -> None:
    access = AccessControl(host)
    assert access.address(8000) == f"http://{opened}:8000/?token={access.token}"
    assert access.known_host(f"{opened}:8000", opened.strip("[]"))


def test_access_dual_stack_socket_accepts_mapped_ipv4_address() -> None:
    assert AccessControl("::").known_host("127.0.0.1:8000", "::ffff:127.0.0.1")
    assert not AccessControl("::").known_host("127.0.0.2:8000", "::ffff:127.0.0.1")


def test_access_secrets_are_long_distinct_and_not_in_repr() -> None:
    other = AccessControl()
    mine = (ACCESS.token, ACCESS.session, ACCESS.form, ACCESS.path_secret)
    assert len(set(mine) | {other.token, other.session, other.form, other.path_secret}) == 8
    assert all(len(each) >= 22 for each in mine)
    assert not any(each in repr(ACCESS) for each in mine)
    assert ACCESS.admitted(ACCESS.token)
    for wrong in (None, "", ACCESS.token[:-1], ACCESS.token + "x", ACCESS.session, "\ud800"):
        assert not ACCESS.admitted(wrong)


def test_access_session_needs_cookie_and_path() -> None:
    cookie = f"other=1; zerosum={ACCESS.session}"
    assert ACCESS.inside(ACCESS.path_secret, cookie)
    assert not ACCESS.inside("static", cookie)
    assert ACCESS.inside(ACCESS.path_secret, f"zerosum={ACCESS.session}; zerosum=of-another-port")
    assert ACCESS.inside(ACCESS.path_secret, f"zerosum=of-another-port; zerosum={ACCESS.session}")
    for wrong in (None, "", "zerosum=", f"zerosum={ACCESS.token}", f"zerosum={ACCESS.session}x", "zerosum", "\x00=;;"):
        assert not ACCESS.inside(ACCESS.path_secret, wrong)
    assert {each.strip() for each in ACCESS.cookie().split(";")} >= {
        *("HttpOnly", "SameSite=Strict", f"Path=/{ACCESS.path_secret}/"),
    }


def test_access_actions_are_allowed_from_own_pages_only() -> None:
    ours = {"host": "127.0.0.1:81", "origin": "http://127.0.0.1:81", "sec-fetch-site": "same-origin"}
    assert ACCESS.may_act(ours, ACCESS.form)
    assert ACCESS.may_act({"host": "localhost:9", "origin": "http://localhost:9"}, ACCESS.form)
    for wrong in ("http://127.0.0.1:82", "http://evil.example", "null", "https://127.0.0.1:81", "", "http://127.0.0.1"):
        assert not ACCESS.may_act(ours | {"origin": wrong}, ACCESS.form)
    assert not ACCESS.may_act({name: value for name, value in ours.items() if name != "origin"}, ACCESS.form)
    assert not ACCESS.may_act(ours | {"sec-fetch-site": "same-site"}, ACCESS.form)
    for form in (None, "", ACCESS.token, ACCESS.session):
        assert not ACCESS.may_act(ours, form)


def test_access_content_security_policy_forbids_other_scripts() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    report = REPORT_HEADERS["Content-Security-Policy"]
    assert report.startswith("sandbox; default-src 'none'")  # of no origin, and without scripts
    assert "script-src" not in report
