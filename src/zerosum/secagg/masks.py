"""Masks: a key's AES-256 stream read as numbers of Z_2^64 and added to a vector, in blocks that stay in the cache.

A long vector is cut into parts that a few threads mask side by side, each from its own place in the streams.

Tested in tests/secagg/test_secagg_vectors.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from zerosum.errors import BadParameter

Ring = NDArray[np.uint64]

BLOCK = 1 << 14  # numbers a block
PART = 8 * BLOCK  # numbers that a thread masks at a time
_THREADS = min(4, os.cpu_count() or 1)


def add(vector: Ring, keys: list[tuple[bytes, bool]], done: Callable[[Ring], object] = lambda _part: None) -> None:
    """Add each key's mask to the vector in place, or subtract it (the flag says which), wrapping around.

    `done` is called with every part that has all its masks, in order, while others are still being masked.
    """
    if vector.ndim != 1 or vector.dtype != np.uint64:  # along a second axis a mask would serve twice
        raise BadParameter(f"a plain vector of uint64 is masked, got {vector.ndim} axes of {vector.dtype}")
    if len(vector) <= PART:
        done(_add(vector, keys, 0))
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        for part in pool.map(partial(_add, vector, keys), range(0, len(vector), PART)):
            done(part)


def _add(vector: Ring, keys: list[tuple[bytes, bool]], first: int) -> Ring:
    """The masks on one part of the vector, which starts at an even number: a block of the cipher holds two."""
    masked = vector[first : first + PART]
    counter = modes.CTR((first // 2).to_bytes(16))
    streams = [(Cipher(algorithms.AES(key), counter).encryptor(), plus) for key, plus in keys]
    zeros = bytes(8 * min(BLOCK, len(masked)))
    buffer = bytearray(len(zeros) + 15)
    for start in range(0, len(masked), BLOCK):
        part = masked[start : start + BLOCK]
        size = 8 * len(part)
        mask = np.frombuffer(buffer, dtype="<u8", count=len(part))
        source, target = zeros[:size] if size < len(zeros) else zeros, memoryview(buffer)[: size + 15]
        for stream, plus in streams:
            stream.update_into(source, target)
            if plus:
                np.add(part, mask, out=part)
            else:
                np.subtract(part, mask, out=part)
    return masked
