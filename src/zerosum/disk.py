"""Durable folders, and files that only their owner can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

_OWNER, _UMASK = 0o600, 0o666  # modes of a file for its owner only, and of a file whose mode the umask decides


def make_folder(folder: Path) -> None:
    """Create a folder and every missing parent with mode 0700, synced.

    `Path.mkdir(mode=0o700, parents=True)` is not sufficient: it creates missing parents by the umask.
    """
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(PermissionError):  # a folder that this user may write and not read cannot be synced
            sync_folder(folder.parent)


def open_new(path: Path, *, private: bool) -> BinaryIO:
    """A new file for bytes. Raises `FileExistsError` if there is a file of this name.

    The mode is given when the file is created. A later `chmod` would leave a moment in which others can open it.

    Parameters
    ----------
    path : Path
        The file.
    private : bool
        Mode 0600 whatever the umask; otherwise the mode follows the umask.
    """
    mode = _OWNER if private else _UMASK
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))  # Path.open has no opener


def sync_folder(folder: Path) -> None:
    """Make the creation and renaming of files in a folder durable."""
    if os.name == "posix":  # other systems cannot open a folder
        # POSIX: the name of a new file is durable only after its folder was synced, too.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
