"""The audit log as a hash chain: what is noticed, and what goes on after a crash, a full disk or a rotation."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zerosum.errors import BadInput, CheckFailed, SiteFault
from zerosum.site import audit_chain
from zerosum.site.audit_chain import Head, head_path, linked, verify
from zerosum.site.audit_log import AuditLog, os_user


def write(path: Path, count: int, first: int = 0) -> None:
    log = AuditLog(path)
    for at in range(first, first + count):
        log.write("waiting", f"event {at}")


def test_audit_chain_of_untouched_log_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    assert verify(path) == (0, 0)
    write(path, 5)
    assert verify(path) == (1, 5)
    assert [path.stat().st_mode & 0o777, head_path(path).stat().st_mode & 0o777] == [0o600, 0o600]


@pytest.mark.parametrize("fault", ["changed", "removed", "swapped", "inserted", "cut off", "last changed", "emptied"])
def test_audit_chain_notices_changes(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 6)
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "changed": [*lines[:2], lines[2].replace(b"event 2", b"event 7"), *lines[3:]],
        "removed": [*lines[:2], *lines[3:]],
        "swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "inserted": [*lines[:3], lines[2], *lines[3:]],
        "cut off": lines[:4],
        "last changed": [*lines[:5], lines[5].replace(b"event 5", b"event 6")],
        "emptied": [],
    }[fault]
    path.write_bytes(b"".join(changed))
    with pytest.raises(CheckFailed):
        verify(path)
    write(path, 2, 6)  # later lines do not hide it
    if fault == "emptied":  # as if the part before had been rotated and moved away, which the first number shows
        assert verify(path) == (7, 8)
        return
    with pytest.raises(CheckFailed):
        verify(path)


def test_audit_chain_with_line_behind_a_changed_one_is_a_fault(tmp_path: Path) -> None:
    """The last line was compared with the head only if the log ended with it."""
    path = tmp_path / "audit.jsonl"
    write(path, 3)
    lines = path.read_bytes().splitlines()
    changed = lines[2].replace(b"event 2", b"event 7")
    new, _ = linked({"event": "waiting"}, Head(3, hashlib.sha256(changed).hexdigest()))
    path.write_bytes(b"\n".join([*lines[:2], changed, new, b""]))
    with pytest.raises(CheckFailed, match="line 3 was changed"):
        verify(path)
    write(path, 1, 4)  # the next line of the site does not hide it
    with pytest.raises(CheckFailed):
        verify(path)


def test_audit_chain_of_log_that_grows_while_it_is_read_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "audit.jsonl", audit_chain._lines
    write(path, 2)
    threads: list[threading.Thread] = []

    def lines(part: Path) -> Iterator[bytes]:
        yield from real(part)
        threads.append(threading.Thread(target=write, args=(path, 1, 2)))
        threads[-1].start()
        threads[-1].join(0.2)  # it waits for the lock, or is done before the head is read

    monkeypatch.setattr(audit_chain, "_lines", lines)
    assert verify(path) == (1, 2)
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert verify(path) == (1, 2 + len(threads))


def test_audit_chain_that_cannot_be_read_is_an_error_of_this_package(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 2)
    (tmp_path / "audit.jsonl.1").mkdir()
    with pytest.raises(BadInput, match="cannot be read"):
        verify(path)


def test_audit_chain_without_head_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 3)
    head_path(path).unlink()
    with pytest.raises(CheckFailed, match="head"):
        verify(path)


def test_audit_chain_goes_on_over_rotated_parts(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 3)
    path.rename(tmp_path / "audit.jsonl.1")
    write(path, 3, 3)
    (tmp_path / "audit.jsonl.1").rename(tmp_path / "audit.jsonl.2")
    path.rename(tmp_path / "audit.jsonl.1")
    assert verify(path) == (1, 6)
    write(path, 1, 6)
    assert verify(path) == (1, 7)
    (tmp_path / "audit.jsonl.2").rename(tmp_path / "elsewhere")  # the oldest part is kept elsewhere
    assert verify(path) == (4, 7)
    (tmp_path / "audit.jsonl.1").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "audit.jsonl.2")
    with pytest.raises(CheckFailed):
        verify(path)


def test_audit_chain_after_crash_between_line_and_head_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 2)
    before = head_path(path).read_bytes()
    write(path, 1, 2)
    head_path(path).write_bytes(before)
    assert verify(path) == (1, 3)
    write(path, 1, 3)
    assert verify(path) == (1, 4)


def test_audit_chain_begins_behind_a_log_of_0_2(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"time": "t", "event": "waiting", "words": "old"}\n' * 3)
    assert verify(path) == (0, 0)
    write(path, 2)
    assert verify(path) == (1, 2)
    path.write_bytes(path.read_bytes().replace(b"old", b"new"))
    with pytest.raises(CheckFailed):
        verify(path)


def test_audit_line_on_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, 2)
    whole, real = path.read_bytes(), os.write
    with monkeypatch.context() as full:
        full.setattr("zerosum.site.audit_log.os.write", lambda handle, text: real(handle, text[:10]))
        with pytest.raises(SiteFault):
            write(path, 1, 2)
    assert path.read_bytes() == whole
    write(path, 1, 2)
    assert verify(path) == (1, 3)


def test_audit_chain_of_several_processes_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    fork = multiprocessing.get_context("spawn")
    processes = [fork.Process(target=write, args=(path, 25, 25 * n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert verify(path) == (1, 75)


def test_audit_line_of_decision_names_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    log = AuditLog(tmp_path / "audit.jsonl")
    log.write("decided", "one")
    log.write("decided", "two", user="stella")
    log.write("waiting", "three")
    users = [json.loads(line).get("user") for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert users == [os_user(), "stella", None]
    monkeypatch.setenv("SUDO_USER", "ada")
    assert os_user().endswith("(sudo by ada)")
    assert os_user(4_000_000) == "uid 4000000"
