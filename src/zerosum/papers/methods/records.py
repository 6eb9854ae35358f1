"""Records of a site, on which the papers' methods work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats


@dataclass(frozen=True, eq=False)
class Records:
    """Features x of shape (records, columns), and y of shape (records,): classes as whole numbers, or responses."""

    x: Floats
    y: NDArray[Any]

    @staticmethod
    def joined(sites: Sequence[Records]) -> Records:
        """Records of several sites together, site after site."""
        return Records(np.concatenate([site.x for site in sites]), np.concatenate([site.y for site in sites]))
