"""Who is held out: a unit's own data decide, so that it is the same in every round and whoever else takes part.

Tested in tests/statistics/test_holdout.py.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Units

Part = Literal["all", "fitted", "held-out"]


def held_out(units: Units, share: float) -> NDArray[np.bool_]:
    """Of every unit whether it is among the held-out ones: about this share, by a hash of its rows.

    Units with equal rows are on the same side, so that none is judged by its own copy.
    """
    return np.asarray(units.own_draws() < share)


def chosen(units: Units, part: Part, share: float) -> Units:
    """The units of one part."""
    if part == "all":
        return units
    out = held_out(units, share)
    return units.chosen(out if part == "held-out" else ~out)
