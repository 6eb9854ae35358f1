"""Commitments: what a site binds itself to before anything is opened, and what can be held against it afterwards.

    in the set-up     a hash of every self-mask seed, of every key shared with a neighbour, and of every share
    in an attempt     one to the contribution, one to the secret that its noise is drawn from, both signed

A hash of a secret is HKDF of it under a purpose of its own. It is hiding as far as HKDF-SHA256 is a pseudo-random
function of a uniform key, on which the masks rest anyway, and binding as far as SHA-256 has no collisions. Shares of
one secret depend on each other: that their hashes hide them assumes a random function in the place of SHA-256.

The commitment to a contribution is HMAC-SHA256 of the vector, keyed by a salt. The noise of a short vector could be
guessed; the salt, 256 secret bits that no other value shares, cannot. The text names the set-up, the attempt, the
request and the site, so that a commitment is of no use in another place.
"""

from __future__ import annotations

import hashlib
import hmac

from zerosum.secagg import keys, wire
from zerosum.secagg.keys import Identity
from zerosum.secagg.masks import Ring
from zerosum.secagg.wire import Kind

HASH_BYTES = 32
# A holder that opens another share than it was dealt needs a second preimage. A dealer gains nothing by a collision:
# shares that do not give its secret are held against the dealer. So 128 bits are enough.
SHARE_HASH_BYTES = 16
# Of the signed message: header, request, contribution, secret of the noise, signature.
COMMITTED_BYTES = wire.HEADER_BYTES + 3 * HASH_BYTES + keys.SIGNATURE_BYTES


def seed_hash(seed: bytes, roster: bytes, site: int, attempt: int) -> bytes:
    """The hash of a self-mask seed; `roster` is the roster's digest."""
    return keys.derive(seed, "seed hash", b"%d %d " % (site, attempt) + roster)


def pair_hash(agreed: bytes, pair: tuple[int, int], attempt: int, set_up: bytes) -> bytes:
    """The hash of the key that two sites agreed on for one attempt; `set_up` is the digest of the set-up."""
    return keys.derive(agreed, "pair hash", b"%d %d %d " % (min(pair), max(pair), attempt) + set_up)


def share_hash(share: bytes, dealer: int, holder: int, attempt: int, of_seed: bool, set_up: bytes) -> bytes:
    """The hash of one share of a masking secret, or of a self-mask seed."""
    about = b"zerosum share 1\0%d %d %d %d " % (dealer, holder, attempt, of_seed) + set_up
    return hashlib.sha256(about + share).digest()[:SHARE_HASH_BYTES]


def to_contribution(secret: bytes, vector: Ring, about: bytes) -> bytes:
    """The commitment to a vector.

    Parameters
    ----------
    secret:
        The 256-bit secret of the attempt, from which the salt follows.
    vector:
        The contribution with its noise, shape (n,).
    about:
        Names set-up, attempt, request and site.
    """
    salt = keys.derive(secret, "commitment salt", about)
    code = hmac.new(salt, b"zerosum contribution 1\0" + about, "sha256")
    # The hash reads the vector where it lies; only another byte order than that of the wire needs a copy.
    code.update(vector.astype("<u8", copy=False).data)
    return code.digest()


def to_secret(secret: bytes, about: bytes) -> bytes:
    """The commitment to the secret that an attempt's noise is drawn from."""
    return keys.derive(secret, "commitment to the secret", about)


def committed(
    secret: bytes, vector: Ring, about: bytes, asked: bytes, study: bytes, attempt: int, me: int, identity: Identity
) -> bytes:
    """The signed message with both commitments; `asked` is the SHA-256 of what identifies the request."""
    body = asked + to_contribution(secret, vector, about) + to_secret(secret, about)
    return wire.encode(Kind.COMMITTED, study, attempt, me, body, identity)


def committed_with(masked: bytes) -> bytes:
    """The two commitments that came with a masked vector; no signature is checked."""
    message = wire.decode(wire.decode(masked).body[:COMMITTED_BYTES])
    return bytes(message.body[HASH_BYTES:])
