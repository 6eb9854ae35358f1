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
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel import coordinates
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.polynomial import PolynomialCoefficients


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
    ridge: float = Field(default=TUNING.alone_ridge, ge=0, allow_inf_nan=False)
    """Ridge of the quadratic part, in multiples of the known noise."""
    largest: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Radius of the search for the minimum beyond degree 2."""

    @model_validator(mode="after")
    def _table_fits(self) -> Self:
        """Refuse tables without a quadratic part, and roles that a polynomial in x.w does not have."""
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
        """Whether the column moments are released: only if `standardise` asks for them, since no mean weight is
        needed.
        """
        return self.standardise == "dp"  # no mean weight is needed

    @property
    def describe(self) -> str:
        """The degree of the polynomial, for the plan."""
        return f"one release of a polynomial of degree {len(self.table) - 1}"

    def resolve(self, facts: PublicFacts) -> Self:
        """Sets `standardise`; a polynomial loss has no other choice that depends on noise."""
        return self.model_copy(update={"standardise": self._standardised(facts)})

    @property
    def weights(self) -> Floats:
        """Weight of each Lambda_j in the release (degrees,): 1 over its largest norm, so that all have equal noise.

        The constant term serves only the reported loss and gets `TUNING.constant_weight` of that.
        """
        # |a_j(y)| <= sum of |table[j, k]| for y in [-1, 1], and x^(j) has norm at most 1
        most = np.sum(np.abs(self.table), axis=1)
        weights = np.where(most > 0, 1 / np.where(most > 0, most, 1.0), 0.0)
        weights[0] *= TUNING.constant_weight
        return np.asarray(weights)

    def _statistic(self, frame: Frame, adjacency: Adjacency) -> PolynomialCoefficients:
        """The statistic of the only release: Lambda_0 to Lambda_J for rows in this frame."""
        return PolynomialCoefficients(**self._bounds(frame, adjacency), table=self.table, weights=self.weights)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The column moments (optional), then one release of all coefficient arrays."""
        return (
            *self._bought(adjacency),
            PrivateSum(
                self._statistic(self._frame(TUNING.polynomial_room, TUNING.uniform_square), adjacency), self._left
            ),
        )

    def program(self, adjacency: Adjacency) -> Program:
        """One release of all coefficient arrays, then the minimum of the noisy polynomial."""
        frame = yield from self._measure(adjacency, TUNING.polynomial_room, TUNING.uniform_square)
        statistic = self._statistic(frame, adjacency)
        release = yield PrivateSum(statistic, self._left)
        # Means over units: the loss below is the mean loss of a unit.
        units = counted_units(release)
        arrays = {j: value / units for j, value in statistic.split(release.value).items()}
        noise = release.noise_std / units
        # A table may lack a degree; its array is then zero, not noise.
        linear = arrays.get(1, np.zeros(frame.width))
        second = coordinates.unpack(arrays[2], frame.width) if 2 in arrays else np.zeros((frame.width, frame.width))
        # The noise of the quadratic part is a symmetric matrix with entries of standard deviation noise * worth(2); its
        # spectral norm is about sqrt(D) times that, and the ridge covers it so that no direction is divided by noise.
        ridge = self.ridge * (noise * statistic.worth(2) if 2 in arrays else noise) * math.sqrt(frame.width)
        at = lowest_quadratic(linear, second, ridge)
        polynomial = Polynomial(arrays, frame.width, ridge)
        if max(arrays) > 2:
            # Default radius: a row of typical entries clip/sqrt(D) has a predictor of standard deviation
            # `predictor_most` there. Beyond it the polynomial is no approximation of a loss.
            largest = (
                self.largest
                if self.largest is not None
                else TUNING.predictor_most * math.sqrt(frame.width) / frame.clip
            )
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

    Returns
    -------
    w : (D,).

    >>> lowest_quadratic(np.array([-2.0, 0.0]), np.diag([1.0, -0.5]), 0.0).tolist()
    [1.0, 0.0]
    """
    # In the eigenvectors the quadratic is a sum of D parabolas, each with its minimum at -b/(2 a): closed form, so that
    # no iterative minimiser is needed.
    values, vectors = np.linalg.eigh(second)
    raised = np.maximum(values, 0.0) + ridge
    along = vectors.T @ linear
    valid = raised > 1e-9 * max(float(np.max(np.abs(values))), 1e-300)
    return np.asarray(vectors @ np.where(valid, -along / (2 * np.where(valid, raised, 1.0)), 0.0))


class Polynomial:
    """A polynomial in w (width D) from its packed coefficient arrays by degree, plus ridge |w|^2.

    Parameters
    ----------
    arrays : packed coefficient arrays by degree: of degree j, the distinct entries of a symmetric array of D^j.
    width : D.
    ridge : factor of |w|^2; part of the gradient and of the search, not of `value`.
    """

    def __init__(self, arrays: dict[int, Floats], width: int, ridge: float) -> None:
        self.constant = float(arrays[0][0]) if 0 in arrays else 0.0
        self.full = {j: coordinates.unpack(value, width, j) for j, value in arrays.items() if j > 0}
        self.ridge = ridge

    def value(self, w: Floats) -> float:
        """Value at w (D,), without the ridge."""
        return self.constant + sum(float(self._contracted(array, w, j)) for j, array in self.full.items())

    def gradient(self, w: Floats) -> Floats:
        """Gradient (D,) at w (D,), with the ridge. Arrays are symmetric: degree j contributes j Lambda_j(w, ..., w,
        .).
        """
        parts = [j * self._contracted(array, w, j - 1) for j, array in self.full.items()]
        return np.asarray(sum(parts) + 2 * self.ridge * w)

    @staticmethod
    def _contracted(array: Floats, w: Floats, times: int) -> Floats:
        """A symmetric array with `times` of its axes contracted with w."""
        for _ in range(times):
            array = array @ w
        return array

    def lowest(self, start: Floats, largest: float, steps: int = TUNING.descent_steps) -> Floats:
        """A local minimum by projected gradient descent with backtracking, in the ball of radius `largest`.

        Not scipy.optimize: on random cubics and quartics SLSQP left the ball, reached another minimum than the one
        below the start in one case of nine, and agreed to 1e-8 at most.

        Parameters
        ----------
        start : (D,), the minimum of the quadratic part; projected into the ball first.
        largest : radius of the ball. A noisy polynomial of odd degree has no minimum outside of some ball.
        steps : most iterations.

        Returns
        -------
        w : (D,), within the ball. Its height is at most that of the start.
        """

        # Euclidean projection onto the ball
        def inside(w: Floats) -> Floats:
            norm = float(np.linalg.norm(w))
            return w if norm <= largest else w * (largest / norm)

        def height(w: Floats) -> float:
            return self.value(w) + self.ridge * float(w @ w)

        at, rate = inside(start), 1.0
        now = height(at)
        for _ in range(steps):
            slope = self.gradient(at)
            # Armijo's condition: the decrease is at least a fraction of what the slope predicts for the projected
            # step. A rate below 1e-12 moves w by less than rounding does.
            while True:
                there = inside(at - rate * slope)
                lower = height(there)
                if lower <= now - TUNING.armijo * float(slope @ (at - there)) or rate < 1e-12:
                    break
                rate /= 2
            moved = float(np.linalg.norm(there - at))
            if not lower < now:
                break
            # the rate doubles after an accepted step, so that one short step does not shorten all later ones
            at, now, rate = there, lower, 2 * rate
            if moved < 1e-10 * (1 + float(np.linalg.norm(at))):
                break
        return at


def logistic_table(reach: float = 0.0) -> Floats:
    """Table of log(1 + exp(-y x.w)) up to degree 2, for y = -1 or 1.

    `reach` 0 gives Taylor's series at 0. Otherwise the even part, log(2 cosh(x.w/2)), is fitted by least squares on
    [-reach, reach]; the odd part -y x.w/2 is exact.

    Returns
    -------
    table : (3, 2), entry [j][k] for (x.w)^j y^k.

    >>> logistic_table()[2].tolist()
    [0.125, 0.0]
    """
    level, bend = math.log(2), 0.125
    if reach > 0:
        # 2001 points stand for the integral over the interval; the fit changes by less than 1e-3 of itself with more
        x = np.linspace(-reach, reach, 2001)
        even = np.logaddexp(x / 2, -x / 2)
        level, bend = np.linalg.lstsq(np.stack([np.ones_like(x), x**2], axis=1), even, rcond=None)[0].tolist()
    return np.array([[level, 0.0], [0.0, -0.5], [bend, 0.0]])
