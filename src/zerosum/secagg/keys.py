"""Keys: identities that sign, keys that agree for one attempt, and keys derived from an agreement.

Every derivation has its own purpose and context, so that no key is used twice.
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
_PRIME = 2**255 - 19  # prime of the field of X25519
_PROBE = bytes(KEY_BYTES)  # a public scalar; clamped by RFC 7748, section 5, it is 2^254
SIGNATURE_BYTES = 64
SEAL_BYTES = 16


class Identity:
    """A site's long-term signing key (Ed25519); its public key is pinned in every roster."""

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
    """The public key of an X25519 secret, in its canonical encoding."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes) -> bytes:
    """The Diffie-Hellman secret of two sites (X25519)."""
    try:
        # The library refuses an all-zero result (RFC 7748, section 6.1): with a public key of small order the secret
        # would be a constant that everyone knows.
        return X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Forged("a public key is not one") from None


@lru_cache(maxsize=1 << 14)  # public keys only; sites of one process see the same ones
def essence(public: bytes) -> bytes:
    """The part of a public key that agreements depend on: two keys agree on the same secrets if their essence is equal.

    X25519 ignores the top bit of an encoding and reduces the rest modulo 2^255 - 19, so that a key has several
    encodings. `public_of` writes the least of them, and others are refused. A clamped scalar is a multiple of 8, which
    cancels any point of small order that was added to a key. The product with one public scalar cancels it too, and is
    one-to-one on what remains, because 2^254 has an inverse modulo the order of the subgroup. A key that is itself of
    small order is refused.
    """
    # This also refuses a set top bit, since 2^255 exceeds the prime: one key has one encoding.
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") >= _PRIME:
        raise Forged("a public key is not in its canonical encoding")
    return agree(_PROBE, public)


def derive(secret: bytes, purpose: str, context: bytes) -> bytes:
    """A 256-bit key for one purpose in one context, by HKDF-SHA256."""
    # The zero bytes separate the parts, and no purpose holds one: two different pairs of purpose and context never give
    # the same info. No salt is needed, as the input is a uniform seed or a Diffie-Hellman secret of fresh keys.
    info = b"zerosum secagg 1\0" + purpose.encode() + b"\0" + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def seal(key: bytes, content: bytes, about: bytes) -> bytes:
    """Encrypt and authenticate under a key that seals nothing else, so that its nonce may be zero.

    Parameters
    ----------
    key:
        32 bytes from `derive`, for one sender, one recipient and one set-up.
    content:
        The text, of any length; the result is 16 bytes longer.
    about:
        Bytes that are authenticated and not sent; `unseal` needs the same ones.
    """
    # `about`, the set-up's digest, is authenticated with the text: a share of one set-up does not open in another one.
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes:
    """The content of `seal`, or `Forged` if key, bytes or `about` differ from those of the seal."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, about)
    except InvalidTag:
        raise Forged("a sealed share was changed, or was meant for somebody else") from None
