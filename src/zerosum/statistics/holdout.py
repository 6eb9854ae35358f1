"""Who is held out: a unit's own data decide, so that it is the same in every round and whoever else takes part.

Tested in tests/statistics/test_holdout.py.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.kernel.statistic import to_numpy
from zerosum.kernel.units import Units

Part = Literal["all", "fitted", "held-out"]


def held_out(units: Units, share: float) -> NDArray[np.bool_]:
    """Of every unit whether it is among the held-out ones: about this share, by a hash of its rows.

    Units with equal rows are on the same side, so that none is judged by its own copy.
    """
    bounds = np.arange(units.rows.shape[0] + 1) if units.offsets is None else units.offsets
    rows = np.ascontiguousarray(to_numpy(units.rows))
    below = int(share * 2.0**64)
    drawn = (
        int.from_bytes(hashlib.blake2b(rows[first:last].tobytes(), digest_size=8).digest(), "little")
        for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    )
    return np.fromiter((number < below for number in drawn), dtype=bool, count=len(units))


def chosen(units: Units, part: Part, share: float) -> Units:
    """The units of one part."""
    if part == "all":
        return units
    out = held_out(units, share)
    return units.chosen(out if part == "held-out" else ~out)
