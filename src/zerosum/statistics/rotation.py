"""Which way sources are still turned into each other: what a fixed-point ICA asks of every unit in every round."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.kernel.statistic import Adjacency, BoundedStatistic, FloatArray, Floats, to_numpy
from zerosum.kernel.units import Array, Units
from zerosum.statistics.scatter import INSIDE, Within, within_recording

Nonlinearity = Literal["tanh", "volatility"]


class RotationScore(BoundedStatistic):
    """The sum over units of a direction: how the unit's sources y = W x (W is `unmixing`) want to be turned.

    Every source is scaled to mean square 1 over the unit's own rows. With F the unit's mean of psi(y) y', the unit
    contributes the distinct entries of F - F' (each over sqrt(2): isometric) and, times `diagonal`, the mean of
    psi'(y) less the diagonal of F, divided together by their norm. The symmetric part of F says nothing about rotation
    and is left out. `signs` turns psi over for sources whose kurtosis is negative.

    psi is tanh, or, with "volatility", y over what its square comes to around that row (a moving average over `window`
    rows, at least a fifth of the whole): the score of a source whose size changes over time.

    Sensitivity. A contribution has norm 1, or 0 where there is nothing to say: two of them are at most 2 apart,
    attained by opposite directions. Added or removed: 1.
    """

    name: ClassVar[str] = "rotation_score"
    columns: int = Field(gt=0)
    unmixing: FloatArray
    signs: FloatArray | None = None
    nonlinearity: Nonlinearity = "tanh"
    window: int = Field(default=9, gt=0)
    diagonal: float = Field(default=0.25, gt=0, le=1)
    within: Within = "nothing"

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        W = self.unmixing
        if W.ndim != 2 or W.shape[1] != self.columns or len(W) < 2:
            raise ValueError(f"unmixing must have {self.columns} columns and two rows at least, got shape {W.shape}")
        if self.signs is not None and (self.signs.shape != (len(W),) or not np.all(np.abs(self.signs) == 1)):
            raise ValueError(f"signs must hold 1 or -1 for each of the {len(W)} sources")
        return self

    @property
    def sources(self) -> int:
        return len(self.unmixing)

    @property
    def size(self) -> int:
        return self.sources * (self.sources + 1) // 2

    @property
    def row_bytes(self) -> int:
        return 8 * (2 * self.columns + 6 * self.sources)

    def sensitivity(self, adjacency: Adjacency) -> float:
        return 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0

    def sum_block(self, block: Units) -> Array:
        xp = array_namespace(block.rows)
        unmixing = xp.matrix_transpose(xp.asarray(self.unmixing))
        signs = np.ones(self.sources) if self.signs is None else self.signs
        upper = np.triu_indices(self.sources, 1)
        total = np.zeros(self.size)
        for recordings in block.recordings():
            F, slope = (to_numpy(each) for each in self._scores(recordings, unmixing, xp))
            F = F * signs[:, None]
            own = np.concatenate([(F - F.T)[upper] / math.sqrt(2), self.diagonal * (slope * signs - np.diag(F))])
            norm = math.sqrt(own @ own) * INSIDE
            if math.isfinite(norm) and norm > 0:
                total += own / norm
        return total

    def _scores(self, recordings: list[tuple[Array, float | None]], unmixing: Array, xp: Any) -> tuple[Array, Array]:
        """The unit's mean of psi(y) y', and of psi'(y)."""
        parts = []
        for each, _seconds in recordings:
            rows = within_recording(xp.astype(each, xp.float64, copy=False), self.within, xp)
            parts.append(xp.matmul(rows, unmixing))
        rows_in_all = sum(part.shape[0] for part in parts)
        with np.errstate(over="ignore", invalid="ignore"):
            power = sum(xp.sum(part * part, axis=0) for part in parts) / rows_in_all
            scale = xp.where(power > 0, xp.sqrt(power), xp.ones_like(power))
            F, slope = 0.0, 0.0
            for part in parts:
                y = part / scale
                psi, mean_slope = self._psi(y, xp)
                F = F + xp.matmul(xp.matrix_transpose(psi), y) / rows_in_all
                slope = slope + mean_slope * (y.shape[0] / rows_in_all)
        return F, slope

    def _psi(self, y: Array, xp: Any) -> tuple[Array, Array]:
        if self.nonlinearity == "tanh":
            psi = xp.tanh(y)
            return psi, 1 - xp.mean(psi * psi, axis=0)
        square = y * y
        size = 0.2 + 0.8 * moving_average(square, self.window, xp)
        psi = y / size
        return psi, xp.mean(1 / size - (1.6 / self.window) * square / (size * size), axis=0)

    def split(self, value: Floats) -> tuple[Floats, Floats]:
        """A released sum as a skew-symmetric matrix (of F - F', halved) and the diagonal."""
        R = self.sources
        skew = np.zeros((R, R))
        skew[np.triu_indices(R, 1)] = value[: R * (R - 1) // 2] / math.sqrt(2)
        return skew - skew.T, value[R * (R - 1) // 2 :] / self.diagonal


def moving_average(values: Array, window: int, xp: Any) -> Array:
    """The mean over `window` rows around each, by column; ends are filled up with the mean of all rows.

    >>> moving_average(np.array([[0.0], [3.0], [0.0], [3.0]]), 3, np).ravel().tolist()
    [1.5, 1.0, 2.0, 1.5]
    """
    rows = values.shape[0]
    window = min(window, rows)
    fill = xp.broadcast_to(xp.mean(values, axis=0, keepdims=True), (window, values.shape[1]))
    before = window // 2
    padded = xp.concat([fill[: before + 1, :], values, fill[: window - before - 1, :]])
    sums = xp.cumulative_sum(padded, axis=0)
    return xp.clip((sums[window:, :] - sums[:-window, :]) / window, 0.0, None)
