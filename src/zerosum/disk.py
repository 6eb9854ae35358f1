"""Folders that keep what was made in them, whatever happens to the machine, and files of their owner alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_OWNER, _UMASK = 0o600, 0o666  # modes of a file of its owner alone, and of one that the umask decides on


def make_folder(folder: Path) -> None:
    """Make a folder, and every parent that is missing, with mode 0700, synced.

    `Path.mkdir(mode=0o700, parents=True)` does not do: it makes missing parents as the umask says.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(PermissionError):  # a folder that this user may write to and not read cannot be synced
            sync_folder(folder.parent)


def open_new(path: Path, *, private: bool) -> BinaryIO:
    """A new file to write bytes to; of its owner alone whatever the umask, or as the umask says."""
    mode = _OWNER if private else _UMASK
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # Path.open has no opener


def sync_folder(folder: Path) -> None:
    """What was made or renamed in a folder is on the disk when this returns."""
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
