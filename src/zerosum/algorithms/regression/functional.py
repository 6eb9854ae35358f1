"""The functional mechanism: a user's polynomial loss, released as coefficient arrays and minimised for free.

Model
-----
With features u (width D) in a frame and a response y in [-1, 1], the loss of a row is the polynomial

    f(w) = sum over j, k of table[j, k] (u.w)^j y^k = sum over j of <Lambda_j, w^(j)>,  Lambda_j = a_j(y) u^(j),

with a_j(y) = sum over k of table[j, k] y^k and u^(j) the j-fold symmetric power (D^j entries, packed to the distinct
ones). One release holds the sums of all Lambda_j over units (`PolynomialCoefficients`, which has the sensitivity).

The minimisation is free post-processing. The noisy polynomial may have no minimum, so negative eigenvalues of its
quadratic part become 0 and a ridge from the known noise is added; beyond degree 2 the search is limited to a ball.

References: Zhang et al. 2012 (functional mechanism); Imtiaz, Mohammadi and Sarwate 2019 (capeFM, its form over sites).
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import Program, PublicFacts
from zerosum.algorithms.regression.base import Frame, Regression, counted_units
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.polynomial import PolynomialCoefficients

# Squared clip per feature: of scaled features (mean square 1), and where only ranges are known (mean square of a
# uniform value in [-1, 1]).
_ROOM, _RANGED = 1.0, 1 / 3
# Ridge, over noise sqrt(D), about the norm of the noise of the quadratic part. From the prototype of logistic
# regression (ridge 2 sigma sqrt(D)).
_RIDGE = 2.0


class PolynomialLossProgram(Regression):
    """The minimum of a loss that is a polynomial in the linear predictor x.w and the response y, both public in form.

    `table`[j][k] multiplies (x.w)^j y^k; y is the response in its range mapped to -1 to 1, and x the features as
    `Regression` brings them to a frame, the intercept among them. Squared error is [[0, 0, 1], [0, -2, 0], [1, 0, 0]],
    a logistic loss `logistic_table()`. The coefficient arrays Lambda_0 to Lambda_J are summed over sites in one joint
    release. The noisy polynomial need have no minimum: eigenvalues of its quadratic part are floored, a ridge from the
    known noise is added, and beyond degree 2 the minimum is sought within `largest` of the origin.

    Results: `coefficients` and `intercept` of x.w for the data as they are, and `loss`, the noisy mean loss there
    (with weights, of weighted losses, over all units).
    """

    name: ClassVar[str] = "polynomial-loss"
    table: FloatArray
    """The loss: entry [j][k] multiplies the j-th power of x.w and the k-th of the response, mapped to -1 to 1."""
    ridge: float = Field(default=_RIDGE, ge=0, allow_inf_nan=False)
    """Ridge of the quadratic part, in multiples of the known noise."""
    largest: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Radius of the search for the minimum beyond degree 2."""

    @model_validator(mode="after")
    def _table_fits(self) -> Self:
        if self.table.ndim != 2 or len(self.table) < 3:
            raise ValueError(
                f"table must have a row for each degree of x.w, at least 3 rows (degrees 0 to 2), got shape "
                f"{self.table.shape}"
            )
        if self.evaluate_share:
            raise ValueError(f"a polynomial loss has no evaluation: leave evaluate_share = {self.evaluate_share:g} out")
        if self.offset is not None:
            raise ValueError("a loss that is a polynomial in x.w alone has no offset")
        return self

    @property
    def _buys(self) -> bool:
        return self.standardise == "dp"  # no mean weight is needed

    @property
    def describe(self) -> str:
        return f"one release of a polynomial of degree {len(self.table) - 1}"

    def resolve(self, facts: PublicFacts) -> Self:
        return self.model_copy(update={"standardise": self._standardised(facts)})

    @property
    def weights(self) -> Floats:
        """Weight of each Lambda_j in the release (degrees,): 1 over its largest norm, so that all have equal noise.

        The constant term serves only the reported loss and gets 0.3 of that. Chosen by hand; no benchmark recorded.
        """
        most = np.sum(np.abs(self.table), axis=1)
        weights = np.where(most > 0, 1 / np.where(most > 0, most, 1.0), 0.0)
        weights[0] *= 0.3
        return np.asarray(weights)

    def _statistic(self, frame: Frame, adjacency: Adjacency) -> PolynomialCoefficients:
        return PolynomialCoefficients(**self._bounds(frame, adjacency), table=self.table, weights=self.weights)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (
            *self._bought(adjacency),
            PrivateSum(self._statistic(self._frame(_ROOM, _RANGED), adjacency), self._left),
        )

    def program(self, adjacency: Adjacency) -> Program:
        frame = yield from self._measure(adjacency, _ROOM, _RANGED)
        statistic = self._statistic(frame, adjacency)
        release = yield PrivateSum(statistic, self._left)
        units = counted_units(release)
        arrays = {j: value / units for j, value in statistic.split(release.value).items()}
        noise = release.noise_std / units
        linear = arrays.get(1, np.zeros(frame.width))
        second = coordinates.unpack(arrays[2], frame.width) if 2 in arrays else np.zeros((frame.width, frame.width))
        ridge = self.ridge * (noise * statistic.worth(2) if 2 in arrays else noise) * math.sqrt(frame.width)
        at = lowest_quadratic(linear, second, ridge)
        polynomial = Polynomial(arrays, frame.width, ridge)
        if max(arrays) > 2:
            # default radius: a predictor of standard deviation 5 for a typical row. Chosen by hand.
            largest = self.largest if self.largest is not None else 5 * math.sqrt(frame.width) / frame.clip
            at = polynomial.lowest(at, largest)
        matrix, _constant = self._in_data_units(frame)
        found = matrix @ at
        loss = np.array([polynomial.value(at)])
        return self._named({"coefficients": found[:-1], "intercept": found[-1:], "loss": loss})


def lowest_quadratic(linear: Floats, second: Floats, ridge: float) -> Floats:
    """The minimiser of linear.w + w'second w + ridge |w|^2 after negative eigenvalues of `second` become 0.

    Parameters
    ----------
    linear : (D,).
    second : (D, D), symmetric. Without noise it is positive semidefinite, so negative eigenvalues are noise.
    ridge : added to all eigenvalues. Directions that are still zero, relative to 1e-9 of the largest, stay at 0.

    >>> lowest_quadratic(np.array([-2.0, 0.0]), np.diag([1.0, -0.5]), 0.0).tolist()
    [1.0, 0.0]
    """
    values, vectors = np.linalg.eigh(second)
    raised = np.maximum(values, 0.0) + ridge
    along = vectors.T @ linear
    valid = raised > 1e-9 * max(float(np.max(np.abs(values))), 1e-300)
    return np.asarray(vectors @ np.where(valid, -along / (2 * np.where(valid, raised, 1.0)), 0.0))


class Polynomial:
    """A polynomial in w (width D) from its packed coefficient arrays by degree, plus ridge |w|^2."""

    def __init__(self, arrays: dict[int, Floats], width: int, ridge: float) -> None:
        self.constant = float(arrays[0][0]) if 0 in arrays else 0.0
        self.full = {j: coordinates.unpack(value, width, j) for j, value in arrays.items() if j > 0}
        self.ridge = ridge

    def value(self, w: Floats) -> float:
        """Value at w (D,), without the ridge."""
        return self.constant + sum(float(self._contracted(array, w, j)) for j, array in self.full.items())

    def gradient(self, w: Floats) -> Floats:
        """Gradient at w (D,), with the ridge. Arrays are symmetric: degree j contributes j Lambda_j(w, ..., w, .)."""
        parts = [j * self._contracted(array, w, j - 1) for j, array in self.full.items()]
        return np.asarray(sum(parts) + 2 * self.ridge * w)

    @staticmethod
    def _contracted(array: Floats, w: Floats, times: int) -> Floats:
        """A symmetric array with `times` of its axes contracted with w."""
        for _ in range(times):
            array = array @ w
        return array

    def lowest(self, start: Floats, largest: float, steps: int = 500) -> Floats:
        """A local minimum by projected gradient descent with backtracking, in the ball of radius `largest`.

        `start` is (D,); `steps` limits the iterations.
        """

        def inside(w: Floats) -> Floats:
            norm = float(np.linalg.norm(w))
            return w if norm <= largest else w * (largest / norm)

        def height(w: Floats) -> float:
            return self.value(w) + self.ridge * float(w @ w)

        at, rate = inside(start), 1.0
        now = height(at)
        for _ in range(steps):
            slope = self.gradient(at)
            # Armijo's condition with constant 1e-4; the rate doubles after each accepted step
            while True:
                there = inside(at - rate * slope)
                lower = height(there)
                if lower <= now - 1e-4 * float(slope @ (at - there)) or rate < 1e-12:
                    break
                rate /= 2
            moved = float(np.linalg.norm(there - at))
            if not lower < now:
                break
            at, now, rate = there, lower, 2 * rate
            if moved < 1e-10 * (1 + float(np.linalg.norm(at))):
                break
        return at


def logistic_table(reach: float = 0.0) -> Floats:
    """Table of log(1 + exp(-y x.w)) up to degree 2, for y = -1 or 1.

    `reach` 0 gives Taylor's series at 0. Otherwise the even part, log(2 cosh(x.w/2)), is fitted by least squares on
    [-reach, reach]; the odd part -y x.w/2 is exact.

    >>> logistic_table()[2].tolist()
    [0.125, 0.0]
    """
    level, bend = math.log(2), 0.125
    if reach > 0:
        x = np.linspace(-reach, reach, 2001)
        even = np.logaddexp(x / 2, -x / 2)
        level, bend = np.linalg.lstsq(np.stack([np.ones_like(x), x**2], axis=1), even, rcond=None)[0].tolist()
    return np.array([[level, 0.0], [0.0, -0.5], [bend, 0.0]])
