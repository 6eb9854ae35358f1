"""Which units are held out. A unit's own data decide, so its part does not depend on the round or on other units."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Units

Part = Literal["all", "fitted", "held-out"]


def held_out(units: Units, share: float) -> NDArray[np.bool_]:
    """For every unit, whether it is held out: about this share of units, chosen by a hash of their rows.

    Units with equal rows are in the same part, so that no unit is evaluated on a copy of itself.
    """
    return np.asarray(units.own_draws() < share)


def chosen(units: Units, part: Part, share: float) -> Units:
    """The units of one part."""
    if part == "all":
        return units
    out = held_out(units, share)
    return units.chosen(out if part == "held-out" else ~out)
