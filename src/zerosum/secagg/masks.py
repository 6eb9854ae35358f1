"""Masks: a key's AES-256 stream read as numbers of Z_2^64 and added to a vector, in blocks that stay in the cache.

Tested in tests/secagg/test_secagg_vectors.py.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from zerosum.errors import BadParameter

Ring = NDArray[np.uint64]

BLOCK = 1 << 14  # numbers a block


def add(vector: Ring, keys: list[tuple[bytes, bool]]) -> None:
    """Add each key's mask to the vector in place, or subtract it (the flag says which), wrapping around."""
    if vector.ndim != 1 or vector.dtype != np.uint64:  # along a second axis a mask would serve twice
        raise BadParameter(f"a plain vector of uint64 is masked, got {vector.ndim} axes of {vector.dtype}")
    streams = [(Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor(), plus) for key, plus in keys]
    zeros = bytes(8 * BLOCK)
    buffer = bytearray(8 * BLOCK + 15)
    for start in range(0, len(vector), BLOCK):
        part = vector[start : start + BLOCK]
        size = 8 * len(part)
        mask = np.frombuffer(buffer, dtype="<u8", count=len(part))
        source, target = zeros[:size] if size < len(zeros) else zeros, memoryview(buffer)[: size + 15]
        for stream, plus in streams:
            stream.update_into(source, target)
            if plus:
                np.add(part, mask, out=part)
            else:
                np.subtract(part, mask, out=part)
