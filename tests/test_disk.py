"""Folders are synchronised, and handles given back, also where the disk fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from zerosum.disk import sync_folder


def test_sync_folder_calls_fsync_on_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[os.stat_result] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.fstat(handle)))
    sync_folder(tmp_path)
    assert [each.st_ino for each in seen] == [tmp_path.stat().st_ino]


def test_sync_folder_failure_raises_and_closes_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def fail(handle: int) -> None:
        opened.append(handle)
        raise OSError("gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="gone"):
        sync_folder(tmp_path)
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        os.fstat(opened[0])


def test_sync_folder_of_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "nowhere")
