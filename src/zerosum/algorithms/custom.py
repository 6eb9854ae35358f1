"""The sum and mean of a statistic of the user's own, which every site has registered itself.

Tested in tests/algorithms/test_programs.py.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from zerosum.algorithms.program import Algorithm, Program
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import build


class CustomProgram(Algorithm):
    """One release of a registered statistic: `sum` over units and, where counts are public, `mean`."""

    name: ClassVar[str] = "statistic"
    statistic: str
    """The name under which every site registered it."""
    clip: float = Field(gt=0, allow_inf_nan=False)
    """Bound on the L2 norm of what a unit contributes."""
    options: dict[str, float] = Field(default_factory=dict)
    """Numbers that are handed to it."""

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        params = {"columns": len(self.columns), "clip": self.clip, "options": self.options}
        return (PrivateSum(build(self.statistic, params)),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        estimate = {
            "sum": Quantity(release.value, std=release.noise_std),
            "noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }
        if release.units is not None:
            estimate["mean"] = Quantity(release.value / release.units, std=release.noise_std / release.units)
        return estimate
