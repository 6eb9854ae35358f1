"""Which units are held out. A unit's own data decide, so its part does not depend on the round or on other units.

A unit moves from one part to the other only with its own data. So the sum over a part is a sum over all units in which
some contribute zero, and every bound of a statistic that holds for zero contributions holds for a part.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zerosum.compute.units import Units

Part = Literal["all", "fitted", "held-out"]


def held_out(units: Units, share: float) -> NDArray[np.bool_]:
    """For every unit, whether it is held out: about this share of units, chosen by a hash of their rows.

    Units with equal rows are in the same part, so that no unit is evaluated on a copy of itself.

    Parameters
    ----------
    units : Units
        All units of a site.
    share : float
        The expected share of held-out units, in [0, 1).

    Returns
    -------
    held_out : array of bool, shape (units,)
    """
    # A draw is a hash of the rows in [0, 1): the same in every round, and without a secret that a site would keep.
    return np.asarray(units.own_draws() < share)


def units_of_part(units: Units, part: Part, share: float) -> Units:
    """The units of one part.

    Parameters
    ----------
    units : Units
        All units of a site.
    part : {"all", "fitted", "held-out"}
        "fitted" are the units that are not held out.
    share : float
        The expected share of held-out units.
    """
    if part == "all":
        return units
    out = held_out(units, share)
    return units.chosen(out if part == "held-out" else ~out)
