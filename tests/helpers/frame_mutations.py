"""Frames with something changed in them."""

from __future__ import annotations

import random


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """A byte or a few changed, inserted or cut off, one to four times."""
    changed = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        where = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[where : where + 1] = rng.randbytes(1)
            case 1:
                changed[where : where + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
            case 2:
                del changed[where:]
                changed += b"\0"
            case 3:
                changed[where:where] = changed[: rng.randrange(40)]
    return bytes(changed)
