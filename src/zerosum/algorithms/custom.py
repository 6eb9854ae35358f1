"""The sum and mean of a user's statistic, which every site has registered."""

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
    """One release of a registered statistic: the `sum` over units and, if the number of units is public, the `mean`."""

    name: ClassVar[str] = "statistic"
    statistic: str
    """Name of the statistic in every site's registry."""
    clip: float = Field(gt=0, allow_inf_nan=False)
    """Bound on the L2 norm of a unit's contribution."""
    options: dict[str, float] = Field(default_factory=dict)
    """Public numbers that are passed to the statistic."""

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
