"""How sources are still mixed into each other: what a fixed-point ICA asks of every unit in every round.

Tested in tests/statistics/test_time_courses.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.kernel.devices import like, on_host
from zerosum.kernel.statistic import FloatArray
from zerosum.statistics import fused
from zerosum.statistics.rows import fold
from zerosum.statistics.sources import Singles, SourceStatistic, windows_of

Score = Literal["volatility", "tanh", "cube", "both"]
SCORES: tuple[Score, ...] = ("volatility", "tanh", "cube")  # those whose slopes are told in every round

_LEAST = np.float32(0.2)  # the least size that is believed of a source, over its mean square
_OWN = np.float32(0.2)  # of a row's size in "both", the part that is its own square
_STEEP = np.float32(1.5)  # of tanh
_FAR = np.float32(2.0)  # where the cube is cut off
_QUIET = 1e-6  # the least mean square that a score has beside its linear part: with less it is silent


@dataclass(frozen=True, eq=False)
class Told:
    """A released sum, taken apart. Pairs i < j are in the order of `numpy.triu_indices`."""

    turns: Floats  # for each pair, F_ij - F_ji
    correlations: Floats  # for each pair
    slopes: Floats  # for each score of SCORES and each source
    scale: float  # what everybody was divided by, inverted and added up: how much a coefficient counts in the sum


class UnmixingScore(SourceStatistic):
    """The sum over units of a direction: how its sources y = W x are mixed into each other.

    Source i has the score psi of its kind, freed of its linear part over the unit's own rows and divided by its root
    mean square. One of which nothing is left is silent, as volatility is where no recording is longer than the window.
    With F the unit's mean of psi(y) y', the unit tells, divided together by their norm:

    - for each pair the difference F_ij - F_ji over sqrt(2);
    - for each pair the correlation of y_i and y_j, times `correlation_weight`;
    - for each source and each of the three scores the mean of psi'(y), less its linear part, times `slope_weight`;
    - the number `constant`, whose sum says what the norms were.

    Where y_i still holds a_ij of y_j, F_ij is near a_ij times the slope of i and the correlation near a_ij + a_ji: both
    together say what rotation and whitening have left. `signs` turns psi over for sources of negative kurtosis.

    Scores: "tanh" of 1.5 y; "cube", -y^3 cut off at 2; "volatility", y over what its square comes to around that row (a
    moving average over `window` rows, at least a fifth of the whole), the score of a source whose size changes over
    time; "both", the same with a fifth of that size from the row itself, for as long as it is not known which.

    Sensitivity. A contribution has norm 1, or 0 where every source is silent: two of them are at most 2 apart.
    Directions can be nearly opposite, since slopes are unbounded and `constant` is not. Added or removed: 1.
    """

    name: ClassVar[str] = "unmixing_score"
    signs: FloatArray | None = None
    scores: tuple[Score, ...] | None = None
    slope_weight: float = Field(default=0.1, ge=1e-6, le=1)
    correlation_weight: float = Field(default=0.7, ge=1e-6, le=1)
    constant: float = Field(default=0.3, ge=1e-6, le=1)

    @model_validator(mode="after")
    def _one_for_each(self) -> Self:
        R = len(self.unmixing)
        if self.signs is not None and (self.signs.shape != (R,) or not np.all(np.abs(self.signs) == 1)):
            raise ValueError(f"signs must hold 1 or -1 for each of the {R} sources")
        if self.scores is not None and len(self.scores) != R:
            raise ValueError(f"scores must name one for each of the {R} sources")
        return self

    @property
    def size(self) -> int:
        return self.sources * (self.sources - 1) + len(SCORES) * self.sources + 1

    def told(self, y: Array, runs: NDArray[np.int64]) -> Array:
        return self._told_here(y, runs) if on_host(y) else self._told_there(y, runs)

    def _told_here(self, y: Singles, runs: NDArray[np.int64]) -> Floats:
        (units, rows, R), chosen = y.shape, self._chosen
        square = y * y
        around = self.neighbours(square, runs)
        asked = (*SCORES, "both") if self._undecided else SCORES
        summed = np.empty((len(asked), 3, *y.shape), dtype=np.float32)
        F = np.empty((units, R, R))
        for number, (score, (steep, power, along)) in enumerate(zip(asked, summed, strict=True)):
            psi = _score(score, y, square, around, steep)
            np.multiply(psi, psi, out=power)
            np.multiply(psi, y, out=along)
            if (its := chosen == number).any():
                F[:, its] = np.matmul(psi.transpose(0, 2, 1), y)[:, its]  # a product for each unit
        C = np.matmul(y.transpose(0, 2, 1), y).astype(np.float64) / rows
        means = fold(summed.reshape(-1, rows, R)).reshape(-1, 3, units, R).astype(np.float64) / rows
        slopes, linear, divisor = [], np.empty((units, R)), np.empty((units, R))
        for number, (score, (steep, power, along)) in enumerate(zip(asked, means, strict=True)):
            left, its = power - along**2, chosen == number
            size = np.where(
                left > _QUIET, np.sqrt(np.maximum(left, _QUIET)), np.inf
            )  # nothing is left of a straight one
            slopes.append((_slope(score, steep, power, min(self.window, rows)) - along) / size)
            linear[:, its], divisor[:, its] = along[:, its], size[:, its]
        signs = np.ones(R) if self.signs is None else self.signs
        F = (F / rows - linear[:, :, None] * C) * (signs / divisor)[:, :, None]
        loud = np.diagonal(C, axis1=1, axis2=2) > 0
        row, column = upper(R)
        return np.concatenate(
            [
                (F[:, row, column] - F[:, column, row]) / math.sqrt(2),
                self.correlation_weight * C[:, row, column],
                *[self.slope_weight * np.where(loud, each, 0.0) for each in slopes[: len(SCORES)]],
                np.full((units, 1), self.constant),
            ],
            axis=1,
        )

    def _told_there(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """The same by kernels, on a device."""
        windows, longest = windows_of(tuple(runs.tolist()), self.window), min(self.window, y.shape[1])
        weights = self.correlation_weight, self.slope_weight, self.constant
        constants = tuple(float(each) for each in (_LEAST, _OWN, _STEEP, _FAR))
        chosen = like(self._turned, y)
        return fused.unmixing(y, chosen, like(windows, y), longest, weights, constants, self._undecided)

    @cached_property
    def _chosen(self) -> NDArray[np.int32]:
        """The number of each source's score."""
        order = (*SCORES, "both")
        return np.array([order.index(each) for each in self.scores or ("both",) * self.sources], dtype=np.int32)

    @cached_property
    def _turned(self) -> NDArray[np.int32]:
        """The same, plus 4 where it is turned over."""
        turned = np.zeros(self.sources, dtype=np.int32) if self.signs is None else self.signs < 0
        return (self._chosen + 4 * turned).astype(np.int32)

    @property
    def _undecided(self) -> bool:
        return bool(np.any(self._chosen == len(SCORES)))

    def split(self, value: Floats) -> Told:
        """A released sum in its parts."""
        R, N = self.sources, self.sources * (self.sources - 1) // 2
        return Told(
            value[:N] * math.sqrt(2),
            value[N : 2 * N] / self.correlation_weight,
            value[2 * N : -1].reshape(len(SCORES), R) / self.slope_weight,
            float(value[-1]) / self.constant,
        )


def _score(score: Score, y: Singles, square: Singles, around: Singles, steep: Singles) -> Singles:
    """psi for every unit, row and source; `steep` becomes what the mean slope is made of, beside the mean of psi^2."""
    if score == "tanh":
        psi = np.multiply(y, _STEEP, out=steep)
        return np.tanh(psi)
    if score == "cube":
        far = _FAR * _FAR  # a power of two, so that dividing by it does not round
        near = np.minimum(square, far)
        psi = np.minimum(y, _FAR)
        np.maximum(psi, -_FAR, out=psi)
        psi *= near
        np.multiply(near, 1 / far, out=steep)
        np.floor(steep, out=steep)  # 1 where the cube is cut off
        steep *= far
        np.subtract(steep, near, out=steep)
        return np.negative(psi, out=psi)
    own = _OWN if score == "both" else np.float32(0)
    np.multiply(around, (1 - _LEAST) * (1 - own), out=steep)
    if own:
        steep += ((1 - _LEAST) * own) * square
    steep += _LEAST
    np.reciprocal(steep, out=steep)
    return y * steep


def _slope(score: Score, steep: Floats, power: Floats, window: int) -> Floats:
    """The mean of psi' from those of what `_score` left and of psi^2."""
    if score == "tanh":
        return float(_STEEP) * (1 - power)
    if score == "cube":
        return 3 * steep
    own = float(_OWN) if score == "both" else 0.0
    return steep - 2 * (1 - float(_LEAST)) * ((1 - own) / window + own) * power  # of its size, a row's own part


@lru_cache(maxsize=8)
def upper(order: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs i < j."""
    return np.triu_indices(order, 1)
