"""A site's identity in a file of its own, so that a site that restarts is the one that a plan pins.

Tested in tests/study/test_checkpoint.py.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from zerosum.errors import BadInput
from zerosum.secagg.keys import KEY_BYTES, Identity


def keep_identity(path: Path) -> Identity:
    """The identity in a file that its owner alone may read; a new one if there is no such file."""
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, Identity().private)
        private = path.read_bytes()
    except OSError as error:
        raise BadInput(f"the identity {path} cannot be used: {error.strerror or error}") from error
    if len(private) != KEY_BYTES:
        raise BadInput(f"the identity {path} is damaged: it must have {KEY_BYTES} bytes")
    return Identity.of(private)


def _write(path: Path, private: bytes) -> None:
    """The file appears whole, and never over another one."""
    handle, name = tempfile.mkstemp(prefix=".key-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(private)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was faster
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
