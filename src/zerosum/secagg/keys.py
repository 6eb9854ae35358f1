"""Keys: identities that sign, keys for one attempt that agree, and what is derived from an agreement.

Every derivation has a purpose and a context of its own, so no key serves twice.

Tested in tests/secagg/test_secagg_vectors.py.
"""

from __future__ import annotations

import os
from functools import lru_cache

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from zerosum.errors import Forged

KEY_BYTES = 32
_PRIME = 2**255 - 19  # of the field that X25519 computes in
_PROBE = bytes(KEY_BYTES)  # a public scalar: clamped as RFC 7748, section 5 says, it is 2^254
SIGNATURE_BYTES = 64
SEAL_BYTES = 16


class Identity:
    """A site's long-lived signing key; its public half is pinned in every roster."""

    def __init__(self, key: Ed25519PrivateKey | None = None) -> None:
        self._key = key or Ed25519PrivateKey.generate()

    @classmethod
    def of(cls, private: bytes) -> Identity:
        return cls(Ed25519PrivateKey.from_private_bytes(private))

    @property
    def private(self) -> bytes:
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)


def check_signature(public: bytes, signature: bytes, content: bytes) -> None:
    """Raise `Forged` unless the holder of this identity signed this content."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (InvalidSignature, ValueError):
        raise Forged("a signature does not hold") from None


def new_secret() -> bytes:
    """An X25519 private key, drawn by the operating system."""
    return os.urandom(KEY_BYTES)


def public_of(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes) -> bytes:
    """The Diffie-Hellman secret two sites share."""
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Forged("a public key is not one") from None


@lru_cache(maxsize=1 << 14)  # of public keys only; sites in one process, as in rehearsals, see the same ones
def essence(public: bytes) -> bytes:
    """The part of a public key that agreements depend on: two keys agree on the same secrets if theirs is equal.

    X25519 ignores the top bit of an encoding and reduces the rest modulo 2^255 - 19, so that a key has several
    encodings; `public_of` writes the least of them, and others are refused. And a clamped scalar is a multiple of 8,
    which cancels any point of small order that was added to a key: the product with one public scalar cancels it too,
    and is one-to-one on what remains, because 2^254 has an inverse modulo the order of the subgroup. A key that is
    itself of small order is refused.
    """
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= _PRIME:
        raise Forged("a public key is not in its canonical encoding")
    return agree(_PROBE, public)


def derive(secret: bytes, purpose: str, context: bytes) -> bytes:
    """A 256-bit key for one purpose in one context, by HKDF-SHA256."""
    info = b"zerosum secagg 1\0" + purpose.encode() + b"\0" + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def seal(key: bytes, content: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate under a key that seals nothing else (so its nonce may be zero)."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, about)
    except InvalidTag:
        raise Forged("a sealed share was changed, or was meant for somebody else") from None
