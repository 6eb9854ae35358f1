"""The sum and mean of a user's statistic, which every site has registered.

With f the user's function of one unit's rows, clipped to norm c (`zerosum.statistics.user`), the release is the sum of
f over units, of sensitivity 2 c for a replaced unit and c for one added or removed. With a public number of units n the
mean is sum/n. Both are unbiased for the clipped values.
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
    """One release of a registered statistic: the `sum` over units and, if the number of units is public, the `mean`.

    Parameters
    ----------
    statistic : str
        Name in the registry of every site. A site whose registry lacks it refuses the plan.
    clip : float
        c, which the sensitivity is proportional to. A contribution longer than c is shortened, which biases the sum.
    options : dict of str to float
        Public arguments of the function.
    """

    name: ClassVar[str] = "statistic"
    statistic: str
    """Name of the statistic in every site's registry."""
    clip: float = Field(gt=0, allow_inf_nan=False)
    """Bound on the L2 norm of a unit's contribution."""
    options: dict[str, float] = Field(default_factory=dict)
    """Public numbers that are passed to the statistic."""

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        params = {"columns": len(self.columns), "clip": self.clip, "options": self.options}
        return (PrivateSum(build(self.statistic, params)),)

    def program(self, adjacency: Adjacency) -> Program:
        """The release as `sum`, with `mean` if the number of units is public."""
        release = yield self.requests(adjacency)[0]
        estimate = {
            "sum": Quantity(release.value, std=release.noise_std),
            "noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }
        if release.units is not None:
            estimate["mean"] = Quantity(release.value / release.units, std=release.noise_std / release.units)
        return estimate
