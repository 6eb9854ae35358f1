"""Shamir's secret sharing of 256-bit secrets, in the field of the prime 2^256 + 297.

The secret is the value at 0 of a random polynomial of degree `threshold` - 1, and a share its value at the holder's
number. Any `threshold` shares give the secret; fewer are independent of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from zerosum.errors import BadParameter, Inconsistent

# The smallest prime above 2^256: a 256-bit secret is one element of the field. In a smaller field it would have to be
# cut or reduced.
PRIME = 2**256 + 297
SHARE_BYTES = 33


def split(secret: bytes, holders: Sequence[int], threshold: int) -> dict[int, bytes]:
    """One share for each holder (positive numbers, all different).

    >>> shares = split(bytes(range(32)), [1, 2, 3, 4], 3)
    >>> combine({holder: shares[holder] for holder in (4, 1, 3)}) == bytes(range(32))
    True
    """
    if len(secret) != 32:
        raise BadParameter(f"a secret has 32 bytes, got {len(secret)}")
    if not 1 <= threshold <= len(holders) or len(set(holders)) < len(holders) or min(holders) < 1:
        raise BadParameter(f"cannot share among {len(holders)} holders with threshold {threshold}")
    # All other coefficients are uniform in the whole field, zero included: otherwise threshold - 1 shares would exclude
    # some secrets (Shamir 1979; Bonawitz et al. 2017, section 3.1).
    coefficients = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return {holder: _at(coefficients, holder).to_bytes(SHARE_BYTES) for holder in holders}


def _at(coefficients: Sequence[int], x: int) -> int:
    """The polynomial at x, by Horner's scheme."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


def weights(holders: Sequence[int]) -> list[int]:
    """Lagrange weights at zero: the secret is the sum of weight times share. They depend on the holders only."""
    result = []
    for mine in holders:
        top, bottom = 1, 1
        for other in holders:
            if other != mine:
                top = top * other % PRIME
                bottom = bottom * (other - mine) % PRIME
        # l_i(0) = product over j != i of x_j / (x_j - x_i).
        result.append(top * pow(bottom, -1, PRIME) % PRIME)
    return result


def combine(shares: Mapping[int, bytes], known: Sequence[int] | None = None) -> bytes:
    """The secret from as many shares as its threshold; `known` are their weights, if the caller has them."""
    values = [int.from_bytes(share) for share in shares.values()]
    if any(len(share) != SHARE_BYTES for share in shares.values()) or any(value >= PRIME for value in values):
        raise Inconsistent("a share is not an element of the field")
    factors = weights(list(shares)) if known is None else known
    secret = sum(weight * value for weight, value in zip(factors, values, strict=True)) % PRIME
    # The field is slightly larger than the secrets: such a value shows that the shares are not of one secret.
    if secret >> 256:
        raise Inconsistent("the shares do not belong to one secret")
    return secret.to_bytes(32)
