"""Each unit's difference from public template maps by dual regression, clipped: the release behind guided ICA.

The map of one unit with the matrix X (T x V) of its rows, templates M (R x V) and P = pinv(M) (V x R):

    Y = X P                            time courses of the templates, T x R
    B = (Y'Y + r I)^-1 Y'X             its own maps by regression on the time courses, R x V
    E = B Q - G                        Q (V x d): public directions; G (R x d): a public centre
    contribution = clip_c(w * E)       w (R x d): public weights; clip in Frobenius norm

What can be learned. With r = 0, B P = (Y'Y)^-1 Y'Y = I for every unit, so that B M' = M M': the part of B in the span
of the templates is M itself, whatever the data. All that dual regression finds out about a unit is the part of B in the
complement of that span. Directions Q orthogonal to the templates therefore lose nothing, and noise in the span would be
noise for nothing. Without `directions` the release is B - M in the columns themselves; its part in the span, which is
noise alone, is removed afterwards.

References: C. F. Beckmann et al., Group comparison of resting-state FMRI data using multi-subject ICA and dual
regression, NeuroImage 47, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.elementwise import solved
from zerosum.compute.backends.exact import Exact, added, clip_rows, constant_on, summed
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray, Positive
from zerosum.statistics.networks import NetworkStatistic, zeros

# Added to the diagonal of Y'Y, relative to its mean: a unit with fewer rows than templates has a singular Y'Y, and its
# maps are long and are clipped. Far below the effect of noise on any map.
RIDGE = 2.0**-30
# Weight of the count of units under add-remove, in units of the clip: it adds 2 % to the sensitivity.
COUNT_WEIGHT = 0.2
# Most of the norm of a template that may lie in a direction: far above rounding, far below any effect on a result.
_TOLERANCE = 1e-9


class DualRegression(NetworkStatistic):
    """The sum over units of w * (B Q - G), each clipped to Frobenius norm c; without `directions`, of B - M.

    Sensitivity. Every contribution has norm at most c. By the triangle inequality the contributions of two units are at
    most 2c apart, attained by opposite contributions of norm c: D = 2c for a replaced unit; the number of units does
    not move. Adding or removing a unit moves the sum by at most c, and with the count, which has the weight c/5, by c
    sqrt(1 + 1/25). Both hold for any map of a unit before the clip, hence for any templates, directions, centre,
    weights and ridge.

    Parameters
    ----------
    columns : int
        V.
    templates : array of shape (R, V)
        M, public maps, linearly independent.
    clip : float
        c.
    directions : array of shape (V, d), optional
        Q, public; its columns are orthogonal to the templates.
    center : array of shape (R, d), optional
        G, public; by default zero. Excludes a release without `directions`.
    weights : array of shape (R, d), optional
        w, public and positive; by default one.
    per_recording : {"none", "center", "standardise"}
        Bring each column of each recording to mean zero, and with "standardise" to variance one.
    count : bool
        Whether the number of units, times `COUNT_WEIGHT` c, is released as the last entry.
    """

    name: ClassVar[str] = "dual_regression"
    templates: FloatArray
    clip: Positive
    directions: FloatArray | None = None
    center: FloatArray | None = None
    weights: FloatArray | None = None
    count: bool = False

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        M = self.templates
        if M.ndim != 2 or M.shape[1] != self.columns or not 1 <= len(M) <= self.columns:
            raise ValueError(f"templates must have {self.columns} columns and no more rows, got shape {M.shape}")
        if np.linalg.matrix_rank(M) < len(M):
            raise ValueError("templates must be linearly independent")
        Q = self.directions
        if Q is not None:
            if Q.ndim != 2 or Q.shape[0] != self.columns or not Q.size:
                raise ValueError(f"directions must have {self.columns} rows and a column, got shape {Q.shape}")
            apart = np.abs(M @ Q) / np.linalg.norm(M, axis=1, keepdims=True)
            if not np.all(apart <= _TOLERANCE * np.linalg.norm(Q, axis=0)):
                raise ValueError("directions must be orthogonal to the templates")
        elif self.center is not None or self.weights is not None:
            raise ValueError("a centre and weights need directions")
        for name, value in (("center", self.center), ("weights", self.weights)):
            if value is not None and value.shape != self.shape:
                raise ValueError(f"{name} must have shape {self.shape}, got {value.shape}")
        if self.weights is not None and not np.all(self.weights > 0):
            raise ValueError("weights must be positive")
        return self

    @property
    def shape(self) -> tuple[int, int]:
        """R and d, or R and V without directions."""
        width = self.columns if self.directions is None else int(self.directions.shape[1])
        return len(self.templates), width

    @property
    def size(self) -> int:
        """The number of entries of one difference, and one for the count."""
        return self.shape[0] * self.shape[1] + int(self.count)

    @property
    def row_bytes(self) -> int:
        """Working memory of one row in bytes."""
        return 8 * (5 * self.columns + 4 * sum(self.shape))

    @property
    def unit_numbers(self) -> int:
        """The equations of a unit's maps."""
        return self.shape[0] * sum(self.shape)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        if adjacency is Adjacency.REPLACE_ONE:
            return 2 * self.clip
        return self.clip * (math.hypot(1.0, COUNT_WEIGHT) if self.count else 1.0)

    @cached_property
    def _exact(self) -> Exact:
        """P beside Q, or P alone, in whole numbers, whose products do not round."""
        P = np.asarray(np.linalg.pinv(self.templates), dtype=np.float64)
        return Exact.of(P if self.directions is None else np.hstack([P, self.directions]))

    def sum_block(self, block: Units) -> Array:
        """The sum of the clipped differences of a block, row by row, shape (size,)."""
        return summed(self._parts(block))

    def _parts(self, block: Units) -> Iterator[Array]:
        R = len(self.templates)
        for batch, _some, rows in self.rows_by_shape(block):
            numbers, worth = self.numbers(rows, batch, self._exact)
            xp = array_namespace(numbers)
            courses, others = numbers[:, :, :R], numbers[:, :, R:]
            if self.directions is None:
                others, own_worth = self.numbers(rows, batch, None)
                # B is a ratio of rows and time courses, which are whole numbers of different worth.
                ratio = own_worth / xp.where(worth > 0, worth, xp.ones_like(worth))
            turned = xp.matrix_transpose(courses)
            maps = solved(self._ridged(xp.matmul(turned, courses)), xp.matmul(turned, others))  # products are exact
            if self.directions is None:
                maps = maps * ratio[:, None, None] - constant_on(self.templates, maps)[None, ...]
            if self.center is not None:
                maps = maps - constant_on(self.center, maps)[None, ...]
            if self.weights is not None:
                maps = maps * constant_on(self.weights, maps)[None, ...]
            clipped = clip_rows(xp.reshape(maps, (maps.shape[0], -1)), self.clip)
            if self.count:
                clipped = xp.concat([clipped, xp.full_like(clipped[:, :1], COUNT_WEIGHT * self.clip)], axis=1)
            yield added(clipped)

    def split(self, value: Floats) -> tuple[Floats, float | None]:
        """A release as the sum of weighted differences, shape (R, d) or (R, V), and the number of units with `count`.

        Parameters
        ----------
        value : array of shape (size,)
            A noisy sum.
        """
        if not self.count:
            return value.reshape(self.shape), None
        return value[:-1].reshape(self.shape), float(value[-1]) / (COUNT_WEIGHT * self.clip)

    def _ridged(self, own: Array) -> Array:
        """Y'Y with the ridge; the unit matrix for a unit whose time courses are zero."""
        R = own.shape[1]
        trace = zeros(own, own.shape[0])
        for at in range(R):
            trace = trace + own[:, at, at]
        xp = array_namespace(own)
        diagonal = constant_on(np.eye(R), own)[None, ...]
        return own + diagonal * xp.where(trace > 0, trace * (RIDGE / R), xp.ones_like(trace))[:, None, None]
