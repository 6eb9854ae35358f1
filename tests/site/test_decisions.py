"""Files of decisions: durable when `write_file` returns."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerosum.site import decisions


def test_write_file_syncs_the_folder_after_the_file_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, folders = tmp_path / "withdrawn" / "key", []

    def record(folder: Path) -> None:
        folders.append((folder, target.read_bytes()))

    monkeypatch.setattr(decisions, "sync_folder", record)
    decisions.write_file(target, b"text")
    assert folders == [(target.parent, b"text")]
