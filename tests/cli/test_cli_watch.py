"""`zerosum watch` as a process: its address, its end, and what it says where it cannot begin."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.command_line import zerosum
from helpers.deployment import COMMAND
from helpers.watch_page import coordinated
from zerosum.cli.site import site_init
from zerosum.errors import BadInput
from zerosum.watch.server import bind


@contextmanager
def watching(*arguments: object, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [*COMMAND, "watch", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"open (http://\S+)\n", line)
        assert found is not None, (line, process.stderr and process.stderr.read())
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def test_cli_watch_serves_page_until_sigterm(tmp_path: Path) -> None:
    coordinated(tmp_path / "studies" / "vitals")
    with watching("--state", "studies", cwd=tmp_path) as (process, address):
        port = int(re.findall(r"127\.0\.0\.1:(\d+)/", address)[0])
        with urllib.request.urlopen(address, timeout=20) as answer:
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
            room = re.findall(r'href="(/[\w-]{20,}/)"', answer.read().decode())[0]
        there = urllib.request.Request(f"http://127.0.0.1:{port}{room}", headers={"Cookie": cookie})
        with urllib.request.urlopen(there, timeout=20) as answer:
            assert "vitals" in answer.read().decode()
        again = zerosum("watch", "--state", "studies", "--port", str(port), cwd=tmp_path)
        assert again.returncode == 2
        assert f"port {port}" in again.stderr
        stream = urllib.request.urlopen(
            urllib.request.Request(f"{there.full_url}live?of=", headers={"Cookie": cookie}), timeout=20
        )
        with stream:  # a page that is open does not keep it from ending
            assert stream.readline().startswith(b"retry")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        said, errors = process.communicate()
        assert said == ""  # nothing but the address, which has a token in it
        assert errors.strip() == "stopped"


def test_cli_watch_on_other_address_serves_site_page_and_warns(tmp_path: Path) -> None:
    site_init(tmp_path / "north", json_=True)
    with watching("--host", "0.0.0.0", cwd=tmp_path / "north") as (process, address):
        with urllib.request.urlopen(address, timeout=20) as answer:  # as it is printed
            assert answer.status == 200
        port = address.split(":")[2].partition("/")[0]
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/", headers={"Host": "rebound.example"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=20)
        assert refused.value.code == 421
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        said = process.communicate()[1]
        assert "loopback" in said


def test_cli_watch_bad_arguments_are_refused(tmp_path: Path) -> None:
    site_init(tmp_path / "north", json_=True)
    for arguments, word in {
        ("--state", "nowhere"): "nowhere",
        ("--state", ".", "--site", "north"): "--state",
        ("--site", "nowhere.toml"): "nowhere.toml",
        ("--site", "north", "--host", "999.1.1.1"): "999.1.1.1",
        ("--site", "north", "--host", "192.0.2.1"): "192.0.2.1",
    }.items():
        done = zerosum("watch", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert word in done.stderr


def test_watch_bind_port_in_use_is_refused() -> None:
    with bind("127.0.0.1", 0) as first, pytest.raises(BadInput, match=str(first.getsockname()[1])):
        bind("127.0.0.1", first.getsockname()[1])
    if socket.has_ipv6:
        try:
            bind("::1", 0).close()
        except BadInput:
            pytest.skip("this machine has no loopback of IPv6")


def test_cli_watch_without_extra_names_what_to_install(tmp_path: Path) -> None:
    """Modules that cannot be found, as where they are not installed."""
    code = "import sys; sys.modules['starlette'] = None; from zerosum.cli import main; main()"
    command = [sys.executable, "-c", code, "watch", "--state", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "zerosum[watch]" in done.stderr


def test_cli_completion_of_commands_and_options_is_offered(tmp_path: Path) -> None:
    """What the script of `zerosum --install-completion` asks the program for."""
    for words, found in {"zerosum wat": "watch", "zerosum watch --st": "--state"}.items():
        asked = {"_ZEROSUM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = subprocess.run(
            COMMAND, cwd=tmp_path, env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert found in done.stdout.split(), done.stderr
