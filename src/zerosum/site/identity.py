"""A site's signing key in a file, so that a restarted site has the identity that plans pin; and its rotation.

A replaced key stays beside the new one (`identity.key.former-...`) for studies whose plans pin it, until it is
withdrawn. A statement signed by both keys documents the replacement for parties that have the old key on a roster.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from zerosum.disk import make_folder, sync_folder
from zerosum.errors import BadInput, Forged
from zerosum.secagg.keys import KEY_BYTES, Identity, check_signature

_ABOUT = b"zerosum key rotation 1\0"


def keep_identity(path: Path) -> Identity:
    """The identity in a file that its owner alone may read; a new one if there is no such file."""
    with suppress(FileExistsError, PermissionError):  # another process was faster; `_read` says what is wrong
        if not path.exists():
            _write(path, Identity())
    return _read(path)


def former_identities(path: Path) -> list[Identity]:
    """The keys that the one in this file has replaced, as far as they were kept."""
    return [_read(each) for each in sorted(path.parent.glob(f"{path.name}.former-*"))]


def rotate_identity(
    path: Path, *, lost: bool = False, name: str = "", before: Callable[[str | None, str, bytes], object] | None = None
) -> tuple[Identity | None, Identity]:
    """Replace the key in the file by a new one. The old key is kept beside it, unless it is `lost`: gone, damaged, or
    known to others.

    `before` is called last, just before the file is replaced, with both public keys and the statement that both keys
    sign for the site of this `name` (empty for a lost key).

    If the process is killed before the replacement, the file holds the old key, and the next call uses the new key that
    lies beside it, so that the keys given to `before` stay valid. After the replacement nothing is left to do.

    Parameters
    ----------
    path : Path
        The file of the current key.
    lost : bool
        Whether the current key is gone, damaged or known to others. No statement is signed with it then.
    name : str
        The site's name in the statement.
    before : callable, optional
        Receives the old and the new public key in hex (the old one None if it cannot be read), and the statement. An
        error that it raises stops the replacement.

    Returns
    -------
    tuple
        The old identity, or None, and the new one.
    """
    old = None
    if not lost:
        old = _read(path)
    else:
        with suppress(BadInput):
            # The old public key is used only to withdraw it, so that a file readable by others is accepted here.
            old = _read(path, others=True)
    fresh = path.with_name(f"{path.name}.new")
    try:
        if lost:  # a reader of the old key may have read this one too
            fresh.unlink(missing_ok=True)
        new = keep_identity(fresh)
        if old is not None and not lost:
            with suppress(FileExistsError):
                # A link and not a rename: at every moment `path` holds a complete key.
                os.link(path, path.with_name(f"{path.name}.former-{old.public.hex()[:8]}"))
        if before is not None:
            statement = b"" if old is None or lost else Rotation.of(name, old, new).to_json()
            before(None if old is None else old.public.hex(), new.public.hex(), statement)
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise BadInput(f"the identity {path} cannot be replaced: {error.strerror or error}") from error
    return old, new


@dataclass(frozen=True)
class Rotation:
    """A site's statement that a new key replaces an old one, signed with both.

    Parameters
    ----------
    site : str
        The site's name.
    old, new : str
        Public keys in hex, 64 digits each.
    made : str
        Time of the rotation, UTC, ISO 8601.
    signed_old, signed_new : str
        Signatures of `content` with the old and with the new key, in hex.
    """

    site: str
    old: str
    new: str
    made: str
    signed_old: str = ""
    signed_new: str = ""

    @classmethod
    def of(cls, site: str, old: Identity, new: Identity) -> Rotation:
        """A new statement, signed with both keys.

        The old key shows that its owner agrees, the new one that its owner has the private half.
        """
        bare = cls(site, old.public.hex(), new.public.hex(), datetime.now(UTC).isoformat(timespec="seconds"))
        signatures = old.sign(bare.content).hex(), new.sign(bare.content).hex()
        return cls(bare.site, bare.old, bare.new, bare.made, *signatures)

    @property
    def content(self) -> bytes:
        """The bytes that are signed. The prefix separates them from everything else that these keys sign."""
        return _ABOUT + json.dumps([self.site, self.old, self.new, self.made]).encode()

    def to_json(self) -> bytes:
        """The statement as a JSON file."""
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Rotation:
        """Read a statement; raise unless both keys signed it."""
        try:
            found = cls(**json.loads(text))
            if not all(isinstance(each, str) for each in asdict(found).values()):
                raise ValueError
            # Without the second signature a site could claim a key that belongs to another site.
            for key, signature in ((found.old, found.signed_old), (found.new, found.signed_new)):
                if not re.fullmatch("[0-9a-f]{64}", key):
                    raise ValueError
                check_signature(bytes.fromhex(key), bytes.fromhex(signature), found.content)
        except (ValueError, TypeError) as error:
            if isinstance(error, Forged):
                raise
            raise BadInput("this is no statement of a site about its keys") from None
        return found


def _read(path: Path, *, others: bool = False) -> Identity:
    """The identity in a file.

    Parameters
    ----------
    path : Path
        32 raw bytes of a private key.
    others : bool
        Whether a file that other users can read is accepted.
    """
    try:
        private, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise BadInput(f"the identity {path} cannot be used: {error.strerror or error}") from error
    if not others and os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise BadInput(
            f"the identity {path} can be read by users other than its owner, who could then sign as this site: make a "
            "new one (zerosum site rotate-key --lost) or, if no other user has read it, chmod 600"
        )
    if len(private) != KEY_BYTES:
        raise BadInput(f"the identity {path} is damaged: it must have {KEY_BYTES} bytes")
    return Identity.of(private)


def _write(path: Path, identity: Identity) -> None:
    """The file appears whole, and never over another one."""
    try:
        make_folder(path.parent)
        handle, name = tempfile.mkstemp(prefix=".key-", dir=path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(identity.private)
                file.flush()
                os.fsync(file.fileno())
            # `link` fails if the name exists. A rename would replace a key that another process has just published.
            os.link(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError:
        raise
    except OSError as error:
        raise BadInput(f"the identity {path} cannot be used: {error.strerror or error}") from error
