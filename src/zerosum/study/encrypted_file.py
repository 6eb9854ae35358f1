"""A file that a passphrase encrypts: scrypt for the key, ChaCha20-Poly1305 for the content, in parts of one megabyte.

    "zerosum backup 1\\n"    magic
    16 bytes                salt of scrypt (N = 2^15, r = 8, p = 1; RFC 7914)
    parts                   4 bytes length, then the part under ChaCha20-Poly1305 (RFC 8439)

The nonce of part i is i as 12 bytes, big-endian: the key is fresh for every file, so no nonce occurs twice. The magic,
the salt and a byte that is 1 for the last part only are authenticated with each part. A part that is changed, moved,
left out or added, and a file that is cut off, do not decrypt.
"""

from __future__ import annotations

import io
import os
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from zerosum.errors import BadInput, BadParameter

_MAGIC = b"zerosum backup 1\n"
_SALT, _PART, _TAG = 16, 1 << 20, 16
LEAST_PASSPHRASE = 12  # characters. A backup may be copied and attacked without limit; chosen by hand


def _cipher(passphrase: str, salt: bytes) -> ChaCha20Poly1305:
    """The cipher under the key of a passphrase. 2^15 x 8 blocks take 32 MB and about 0.1 s for each guess."""
    return ChaCha20Poly1305(Scrypt(salt=salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode()))


def encrypt(source: BinaryIO, target: BinaryIO, passphrase: str) -> None:
    """Write the content of `source` to `target`, encrypted.

    Parameters
    ----------
    source, target : file
        Open files.
    passphrase : str
        At least `LEAST_PASSPHRASE` characters.

    Raises
    ------
    BadParameter
        If the passphrase is too short.
    """
    if len(passphrase) < LEAST_PASSPHRASE:
        raise BadParameter(f"a passphrase has {LEAST_PASSPHRASE} characters at least")
    head = _MAGIC + os.urandom(_SALT)
    cipher, at, part = _cipher(passphrase, head[-_SALT:]), 0, source.read(_PART)
    target.write(head)
    while True:
        # One part ahead, to mark the last one: without the mark a file that is cut off between two parts would decrypt.
        after = source.read(_PART)
        sealed = cipher.encrypt(at.to_bytes(12), part, head + bytes([not after]))
        target.write(len(sealed).to_bytes(4) + sealed)
        if not after:
            return
        part, at = after, at + 1


def decrypt(source: BinaryIO, target: BinaryIO, passphrase: str) -> None:
    """Write the decrypted content of `source` to `target`. What was written is authentic only after this has returned.

    Parameters
    ----------
    source, target : file
        Open files.
    passphrase : str
        Of the encryption.

    Raises
    ------
    BadInput
        If the passphrase is wrong, or the file was changed or cut off.
    """
    head = source.read(len(_MAGIC) + _SALT)
    if not head.startswith(_MAGIC) or len(head) < len(_MAGIC) + _SALT:
        raise BadInput("this is no backup of a site")
    cipher, at = _cipher(passphrase, head[-_SALT:]), 0
    length = source.read(4)
    while length:
        # The length is not authenticated: at most one byte above the largest part is read, and that part does not
        # decrypt. A changed length cannot make this process read gigabytes into memory.
        sealed = source.read(min(int.from_bytes(length), _PART + _TAG + 1))
        length = source.read(4)
        try:
            target.write(cipher.decrypt(at.to_bytes(12), sealed, head + bytes([not length])))
        except InvalidTag:
            raise BadInput("the backup does not open: the passphrase is wrong, or the file was changed") from None
        at += 1
    # A head without a part has no tag that could fail.
    if not at:
        raise BadInput("the backup is cut off")


def encrypted(content: bytes, passphrase: str) -> bytes:
    """The content as the bytes of an encrypted file.

    >>> decrypted(encrypted(b"ledger", "twelve letters"), "twelve letters")
    b'ledger'
    """
    target = io.BytesIO()
    encrypt(io.BytesIO(content), target, passphrase)
    return target.getvalue()


def decrypted(content: bytes, passphrase: str) -> bytes:
    """The inverse of `encrypted`."""
    target = io.BytesIO()
    decrypt(io.BytesIO(content), target, passphrase)
    return target.getvalue()
