"""Folders are synchronised, and handles given back, also where the disk fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zerosum.disk import sync_folder


def test_the_folder_itself_is_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[os.stat_result] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.fstat(handle)))
    sync_folder(tmp_path)
    assert [each.st_ino for each in seen] == [tmp_path.stat().st_ino]


def test_a_disk_that_fails_is_told_and_the_handle_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def fail(handle: int) -> None:
        opened.append(handle)
        raise OSError("gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="gone"):
        sync_folder(tmp_path)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        os.fstat(opened[0])


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")
