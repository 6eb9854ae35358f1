"""capeFM: linear and logistic regression by the functional mechanism (Imtiaz, Mohammadi and Sarwate 2019, Algorithm 4
and appendix H).

Model. Features x (p,) in half ranges, divided by c = `clip` and of norm at most 1; a response y in [-1, 1]. The loss of
a row is Lambda_0 + <Lambda_1, w> + w' Lambda_2 w with

    linear      y^2, -2 y x, x x'           logistic (y = -1 or 1, Taylor's series at 0)      log 2, -y x/2, x x'/8.

One release holds the sums of the arrays, each divided by its own sensitivity (1, 4, sqrt 2; and 1, sqrt(2)/8), so that
each has noise in proportion to it, as published. The joint sensitivity is 1.5 and 1.25 (proved in
`zerosum.papers.methods.functional`; the plan uses the bound of `PolynomialCoefficients`, at most 1/2000 larger). The
papers charge every array as if it were released alone. Their noise on all p^2 entries of Lambda_2 and ours on its
isometric coordinates have the same symmetric part in law, and only that part enters w' Lambda_2 w.

The published minimiser is "any optimiser". `minimiser = "stationary"` solves for the point of zero gradient, which is
the minimum where there is one; "ridge" is our repair for a noisy Lambda_2 that is indefinite.

The scheme decides which published method this is: `cape-published` is capeFM, `local` conv, `pooled` the improved
functional mechanism of one holder. The figures rehearse this program (`zerosum.papers.rehearsal`). dp-fm, with Laplace
noise, stays a function (`zerosum.papers.methods.functional`).
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.algorithms.regression.functional import logistic_table
from zerosum.kernel import coordinates
from zerosum.kernel.quantity import Quantity, columns_axis
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.methods.functional import SENSITIVITIES, Polynomial, repaired, stationary
from zerosum.statistics.polynomial import PolynomialCoefficients

# table[j][k] multiplies (x.w)^j y^k: (y - x.w)^2
_SQUARED_ERROR = np.array([[0.0, 0.0, 1.0], [0.0, -2.0, 0.0], [1.0, 0.0, 0.0]])


class CapeFMProgram(RangedAlgorithm):
    """Regression as published in capeFM; the last column is the response. There is no intercept beside the ranges.

    Results: `coefficients` and `intercept` in the units of the data (a linear model of the response; for logistic
    regression of the log odds of the upper end of its range), and `noise_std`, the noise of an entry of Lambda_2.
    """

    name: ClassVar[str] = "cape-fm"
    model: Literal["linear", "logistic"] = "linear"
    """The loss: squared error, or Taylor's series of the logistic loss."""
    minimiser: Literal["stationary", "ridge"] = "stationary"
    """How the noisy polynomial is minimised: its stationary point, or with a ridge of the size of the noise."""

    @model_validator(mode="after")
    def _response_fits(self) -> Self:
        if len(self.columns) < 2:
            raise ValueError(f"columns must be features and then the response, got {len(self.columns)} column")
        if self.lower is None:
            raise ValueError("lower and upper are required: public ranges of the features and the response")
        return self

    @property
    def radius(self) -> float:
        """Bound on the norm of the features in half ranges: `clip`, or the largest norm possible."""
        return math.sqrt(len(self.columns) - 1) if self.clip is None else self.clip

    def _statistic(self, adjacency: Adjacency) -> PolynomialCoefficients:
        sensitivities = SENSITIVITIES[self.model]
        return PolynomialCoefficients(
            **self.bounds,
            intercept=0.0,
            table=_SQUARED_ERROR if self.model == "linear" else logistic_table(),
            # A constant that is the same for all rows is not released.
            weights=[1 / each if each else 0.0 for each in sensitivities],
            count=adjacency is Adjacency.ADD_REMOVE,
        )

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(self._statistic(adjacency)),)

    def program(self, adjacency: Adjacency) -> Program:
        statistic = self._statistic(adjacency)
        release = yield PrivateSum(statistic)
        # A noisy count may be 0 or negative; at least 1 keeps the division harmless, and the released count alone
        # decides.
        counted = max(float(release.value[-1]), 1.0) if statistic.count else 1.0
        units = release.units or counted
        arrays = {degree: value / units for degree, value in statistic.split(release.value).items()}
        width = len(self.columns) - 1
        # `split` gives coefficients of features in half ranges, before the division by the clip.
        noisy = Polynomial(0.0, arrays[1], coordinates.unpack(arrays[2], width))
        entry = release.noise_std / units * statistic.worth(2)
        # `repaired` expects the noise of independent entries (i, j) and (j, i).
        w = stationary(noisy) if self.minimiser == "stationary" else repaired(noisy, entry)
        # From half ranges back to units of the data. A logistic response is a class and has no units.
        scale = self.half[-1] if self.model == "linear" else 1.0
        coefficients = scale * w / self.half[:-1]
        middle = self.middle[-1] if self.model == "linear" else 0.0
        # A polynomial without a constant term fits a plane through the middle of the ranges.
        intercept = middle - float(coefficients @ self.middle[:-1])
        axis = columns_axis(self.columns[:-1])
        return {
            "coefficients": Quantity(coefficients, "coefficient", (axis,)),
            "intercept": Quantity(np.array([intercept]), "coefficient"),
            "noise_std": Quantity(np.array([entry]), "diagnostic"),
        }
