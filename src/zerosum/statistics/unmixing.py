"""Residual mixing of the sources: the statistic that fixed-point ICA releases in every round.

The map of one unit, with scaled sources y of shape (rows, R) (`zerosum.statistics.sources`) and means E over its rows:

    psi_i(y) = (f(y_i) - E[f(y_i) y_i] y_i) / size_i       size_i^2 = E[f(y_i)^2] - E[f(y_i) y_i]^2
    F_ij = E[psi_i(y) y_j],  C_ij = E[y_i y_j]             both of shape (R, R)
    v = ((F_ij - F_ji)/sqrt(2), w_c C_ij, w_s slopes, constant)

The first two parts have one entry for each pair i < j in the order of `numpy.triu_indices`. The slopes are those of
three scores for each source. v is divided by its norm.
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
from zerosum.compute.backends import fused, native
from zerosum.compute.devices import constant_on, on_host
from zerosum.compute.units import pieces
from zerosum.compute.workspace import workspace
from zerosum.kernel.statistic import FloatArray
from zerosum.statistics.sources import Singles, SourceStatistic, cached, sums, windows_of

Score = Literal["volatility", "tanh", "cube", "both"]
SCORES: tuple[Score, ...] = ("volatility", "tanh", "cube")  # scores whose slopes are released in every round
_ORDER: tuple[Score, ...] = (*SCORES, "both")

_LEAST_SIZE = np.float32(0.2)  # least size of a source around a row, over its mean square, in the score "volatility"
_OWN_PART = np.float32(0.2)  # part of a row's own square in its size, in the score "both"
_SLOPE = np.float32(1.5)  # factor inside tanh
_CUBE_LIMIT = np.float32(2.0)  # absolute value at which the cube is cut off
_LEAST_SQUARE = 1e-6  # least mean square of a score beside its linear part; below it the score is zero


@dataclass(frozen=True, eq=False)
class ScoreSums:
    """A released sum, taken apart. Pairs i < j are in the order of `numpy.triu_indices`.

    Parameters
    ----------
    turns : array of shape (R (R - 1)/2,)
        Sums of F_ij - F_ji.
    correlations : array of shape (R (R - 1)/2,)
        Sums of C_ij.
    slopes : array of shape (3, R)
        Sums of the slopes of each score of `SCORES` and each source.
    scale : float
        Sum over units of 1/norm(v).
    """

    turns: Floats  # for each pair, F_ij - F_ji
    correlations: Floats  # for each pair
    slopes: Floats  # for each score of SCORES and each source
    scale: float  # sum over units of 1/norm: the weight of a coefficient in the sum


class UnmixingScore(SourceStatistic):
    """The sum over units of a normalised vector that measures how the sources y = W x are still mixed.

    Source i has the score psi of its kind, minus its linear part over the unit's own rows, divided by its root mean
    square. A score without a nonlinear part is zero, as volatility is where no recording is longer than the window.
    With F the unit's mean of psi(y) y', a unit contributes these numbers, divided together by their norm:

    - for each pair the difference F_ij - F_ji over sqrt(2);
    - for each pair the correlation of y_i and y_j, times `correlation_weight`;
    - for each source and each of the three scores the mean of psi'(y), less its linear part, times `slope_weight`;
    - the number `constant`, whose sum gives the mean of 1/norm.

    If y_i contains a_ij y_j, then F_ij is near a_ij times the slope of i, and the correlation is near a_ij + a_ji: both
    together give the residual rotation and whitening. `signs` changes the sign of psi for sources of negative kurtosis.

    Scores: "tanh" of 1.5 y; "cube", -y^3 cut off at 2; "volatility", y over what its square comes to around that row (a
    moving average over `window` rows, at least a fifth of the whole), the score of a source whose size changes over
    time; "both", the same with a fifth of that size from the row itself, for as long as it is not known which.

    Sensitivity. A contribution has norm 1, or 0 where every source is silent: two of them are at most 2 apart.
    Directions can be nearly opposite, since slopes are unbounded and `constant` is not. Added or removed: 1.

    Parameters
    ----------
    signs : array of shape (R,), optional
        1 or -1 for each source; all 1 by default.
    scores : tuple of str, optional
        The score of each source; "both" by default.
    slope_weight, correlation_weight, constant : float
        Weights of the parts of v. A larger weight gives that part less noise and the others more.
    columns, unmixing, per_recording, window
        As for `SourceStatistic`.
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
        """R (R - 1) numbers for pairs, 3 R slopes, and the constant."""
        return self.sources * (self.sources - 1) + len(SCORES) * self.sources + 1

    def _sum_alike(self, rows: Array, runs: NDArray[np.int64]) -> Floats:
        """As for `SourceStatistic`, in one pass by the kernel in C if it is compiled."""
        if not native.present():
            return super()._sum_alike(rows, runs)
        weights = self.correlation_weight, self.slope_weight, self.constant
        signs = np.ones(self.sources) if self.signs is None else self.signs
        people = self._per_recording(rows, runs)
        return native.unmixing(people, self._exact, runs, self._score_numbers, signs, self.window, weights)

    def vectors(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """The vectors v, shape (units, size), on the host or by a kernel on the device of y."""
        return self._vectors_on_host(y, runs) if on_host(y) else self._vectors_on_device(y, runs)

    def _vectors_on_host(self, y: Singles, runs: NDArray[np.int64]) -> Floats:
        """v of units on the host, shape (units, size), by the formulas of the module's docstring."""
        units, rows, R = y.shape
        means = np.empty((3, len(SCORES) + self._undecided, units, R))
        products = np.empty((units, 2 * R, R))
        for some in pieces(units, cached(rows * R)):
            means[:, :, some], products[some] = self._row_means(y[some], runs)
        slope, power, along = means
        F, C = products[:, :R], products[:, R:]
        # The variance of f beside its linear part, since E[y^2] = 1.
        left = power - along**2
        size = np.where(
            left > _LEAST_SQUARE, np.sqrt(np.maximum(left, _LEAST_SQUARE)), np.inf
        )  # nothing is left of a straight one
        # A silent source has no slope: without the factor it would contribute f'(0).
        slope = (slope - along) / size * (np.diagonal(C, axis1=1, axis2=2) > 0)
        its = self._score_numbers, slice(None), np.arange(R)
        signs = np.ones(R) if self.signs is None else self.signs
        # F becomes E[psi_i y_j] with the linear part subtracted, before the division by the size.
        F -= along[its].T[:, :, None] * C
        F *= (signs / size[its].T)[:, :, None]
        row, column = upper(R)
        pairs = row * R + column  # in a matrix that is read row by row
        vectors = np.empty((units, self.size))
        turns, correlations, slopes = np.split(vectors[:, :-1], [len(pairs), 2 * len(pairs)], axis=1)
        np.multiply((F - F.transpose(0, 2, 1)).reshape(units, -1)[:, pairs], 1 / math.sqrt(2), out=turns)
        np.multiply(C.reshape(units, -1)[:, pairs], self.correlation_weight, out=correlations)
        np.multiply(np.concatenate(slope[: len(SCORES)], axis=1), self.slope_weight, out=slopes)
        vectors[:, -1] = self.constant
        return vectors

    def _row_means(self, y: Singles, runs: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Means over the rows of a few units.

        Parameters
        ----------
        y : array of shape (units, rows, R)
            Scaled sources.
        runs : int array
            The first row of each recording, and the end of the last one.

        Returns
        -------
        means : array of shape (3, scores, units, R)
            E[f'], E[f^2] and E[f y] of each score f and source.
        products : array of shape (units, 2 R, R)
            E[f_i y_j] with the chosen score of each source and, below, E[y_i y_j].
        """
        units, rows, R = y.shape
        means = np.empty((3, len(SCORES) + self._undecided, units, R))
        with workspace() as spare:
            pair = spare(units, 2 * R, rows)  # what is chosen, and the sources: one product for each unit
            chosen, own = pair[:, :R], pair[:, R:]
            own[...] = y.transpose(0, 2, 1)
            square, *others = (spare(units, R, rows) for _ in range(4))
            np.multiply(own, own, out=square)
            lines = [each.reshape(-1, rows, 1) for each in (square, *others)]
            around = self.neighbours(lines[0], runs, lines[1:]).reshape(square.shape)
            _, psi, more = others
            for number, (slope, power, along) in enumerate(means.swapaxes(0, 1)):
                steep, curved = _score(_ORDER[number], own, square, around, min(self.window, rows), psi, more)
                power[...], along[...] = sums(psi, psi) / rows, sums(psi, own) / rows
                slope[...] = steep - curved * power
                for source in self._sources_of[number]:
                    chosen[:, source] = psi[:, source]
            return means, np.matmul(pair, own.transpose(0, 2, 1)) / float(rows)

    def _vectors_on_device(self, y: Array, runs: NDArray[np.int64]) -> Array:
        """v of units on a device, shape (units, size), by the kernel of `fused`, which computes the same formulas."""
        windows, longest = windows_of(tuple(runs.tolist()), self.window), min(self.window, y.shape[1])
        weights = self.correlation_weight, self.slope_weight, self.constant
        constants = tuple(float(each) for each in (_LEAST_SIZE, _OWN_PART, _SLOPE, _CUBE_LIMIT))
        chosen = constant_on(self._turned, y)
        return fused.unmixing(y, chosen, constant_on(windows, y), longest, weights, constants, self._undecided)

    @cached_property
    def _score_numbers(self) -> NDArray[np.int32]:
        """The number of each source's score."""
        return np.array([_ORDER.index(each) for each in self.scores or ("both",) * self.sources], dtype=np.int32)

    @cached_property
    def _sources_of(self) -> list[list[int]]:
        """The sources of each score."""
        return [np.flatnonzero(self._score_numbers == number).tolist() for number in range(len(_ORDER))]

    @cached_property
    def _turned(self) -> NDArray[np.int32]:
        """The number of each source's score, plus 4 if its sign is -1: the code that the kernels read."""
        turned = np.zeros(self.sources, dtype=np.int32) if self.signs is None else self.signs < 0
        return (self._score_numbers + 4 * turned).astype(np.int32)

    @property
    def _undecided(self) -> bool:
        """Whether a source has the score "both", which the kernels then compute as a fourth one."""
        return bool(np.any(self._score_numbers == len(SCORES)))

    def split(self, value: Floats) -> ScoreSums:
        """A released sum in its parts.

        Parameters
        ----------
        value : array of shape (size,)
            A noisy sum. Each part is divided by its weight, so that weights change the noise only.
        """
        R, N = self.sources, self.sources * (self.sources - 1) // 2
        return ScoreSums(
            value[:N] * math.sqrt(2),
            value[N : 2 * N] / self.correlation_weight,
            value[2 * N : -1].reshape(len(SCORES), R) / self.slope_weight,
            float(value[-1]) / self.constant,
        )


def _score(
    score: Score, y: Singles, square: Singles, around: Singles, window: int, psi: Singles, more: Singles
) -> tuple[Floats | float, float]:
    """Write the score f of every unit, source and row to `psi`; return what the mean of f' is computed from.

    Parameters
    ----------
    score : str
        The score.
    y, square, around : array of shape (units, R, rows)
        Sources, their squares, and the moving average of the squares.
    window : int
        Rows of that average.
    psi : array of shape (units, R, rows)
        Receives f(y).
    more : array of shape (units, R, rows)
        Memory.

    Returns
    -------
    tuple
        (a, b), so that E[f'] = a - b E[f^2]. a is an array (units, R) or a number.
    """
    rows = y.shape[-1]
    if score == "tanh":
        np.tanh(np.multiply(y, _SLOPE, out=psi), out=psi)
        return float(_SLOPE), float(_SLOPE)
    if score == "cube":
        np.clip(y, -_CUBE_LIMIT, _CUBE_LIMIT, out=more)
        np.multiply(more, more, out=psi)
        psi *= more
        np.negative(psi, out=psi)
        more *= more
        more *= 1 / (_CUBE_LIMIT * _CUBE_LIMIT)  # a power of two: this does not round
        np.floor(more, out=more)  # 1 where the cube is cut off
        return 3 * (sums(square, more) / rows - 1), 0.0  # squares have the mean 1
    own = _OWN_PART if score == "both" else np.float32(0)
    np.multiply(around, (1 - _LEAST_SIZE) * (1 - own), out=more)
    if own:
        more += np.multiply(square, (1 - _LEAST_SIZE) * own, out=psi)
    more += _LEAST_SIZE
    np.reciprocal(more, out=more)
    np.multiply(y, more, out=psi)
    part = 2 * (1 - float(_LEAST_SIZE)) * ((1 - float(own)) / window + float(own))  # of its size, a row's own
    return sums(more, np.ones(rows, dtype=np.float32)) / rows, part


@lru_cache(maxsize=8)
def upper(order: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The pairs i < j as two arrays of indices, in the order of a release."""
    return np.triu_indices(order, 1)
