"""Masks: a key's AES-256 stream, read as numbers of Z_2^64 and added to a vector in blocks that stay in the cache.

A long vector is cut into parts that a few threads mask in parallel, each from its own position in the streams. Only
numbers under all their masks are written to memory that leaves this module.
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

# 128 KiB, so that a block of the vector, its key stream and the total stay in a core's cache.
BLOCK = 1 << 14  # numbers per block
PART = 8 * BLOCK  # numbers per task of a thread
THREADS = min(4, os.cpu_count() or 1)
SERIAL_LENGTH = 4 * PART  # largest length without threads: below it, starting threads costs more than it saves
_ZEROS = bytes(8 * BLOCK)  # encrypted zeros are the key stream


def add(
    vector: Ring,
    keys: list[tuple[bytes, bool]],
    out: Ring | None = None,
    done: Callable[[Ring], object] = lambda _part: None,
) -> None:
    """Add each key's mask to the vector, or subtract it, modulo 2^64.

    Parameters
    ----------
    vector:
        Shape (n,), uint64.
    keys:
        Pairs of a 32-byte key and a flag: True adds the mask, False subtracts it.
    out:
        Where the result is written; None: in place.
    done:
        Called with every part of the result, in order, while later parts are still being masked.
    """
    if vector.ndim != 1 or vector.dtype != np.uint64:  # along a second axis a mask would be used twice
        raise BadParameter(f"a plain vector of uint64 is masked, got {vector.ndim} axes of {vector.dtype}")
    out = vector if out is None else out
    if out.shape != vector.shape:
        raise BadParameter(f"{len(vector)} numbers are masked into as many, got room for {out.shape}")
    if len(vector) <= SERIAL_LENGTH:
        for first in range(0, len(vector), PART):
            done(_add(vector, keys, out, first))
        return
    # Cipher and numpy release the interpreter lock. `map` yields in order, whichever thread ends first: the digest of
    # the message depends on the order of the parts.
    with ThreadPoolExecutor(THREADS) as pool:
        for part in pool.map(partial(_add, vector, keys, out), range(0, len(vector), PART)):
            done(part)


def _add(vector: Ring, keys: list[tuple[bytes, bool]], out: Ring, first: int) -> Ring:
    """The masks on one part of the vector, which starts at an even position: a block of the cipher
    holds two numbers.
    """
    plain, masked = vector[first : first + PART], out[first : first + PART]
    # Two numbers of 8 bytes per AES block: the counter at `first` continues the stream, so that the mask does not
    # depend on how the vector was cut, and no two parts share a piece of it.
    counter = modes.CTR((first // 2).to_bytes(16))
    streams = [(Cipher(algorithms.AES(key), counter).encryptor(), plus) for key, plus in keys]
    block = np.empty(min(BLOCK, len(plain)), dtype=np.uint64)
    # `update_into` demands room for one more cipher block, less a byte, than it writes.
    buffer = bytearray(block.nbytes + 15)
    for start in range(0, len(plain), BLOCK):
        part = plain[start : start + BLOCK]
        total, zeros = block[: len(part)], _ZEROS[: 8 * len(part)]
        mask = np.frombuffer(buffer, dtype="<u8", count=len(part))
        # The first stream reads the vector, the next ones the block's total: numbers under only some of their masks
        # stay in this block.
        for stream, plus in streams:
            stream.update_into(zeros, buffer)
            part = np.add(part, mask, out=total) if plus else np.subtract(part, mask, out=total)
        masked[start : start + BLOCK] = part
    return masked
