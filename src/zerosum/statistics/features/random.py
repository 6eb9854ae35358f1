"""Features of tables: columns by their public ranges, and random waves of them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field, model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import Exact, constant_on, sized
from zerosum.kernel.statistic import SMALLEST, FloatArray
from zerosum.statistics.features.base import FeatureMap

_TERMS = 14  # terms of the cosine's series on half a turn: the next term is below 1e-16


class LinearFeatures(FeatureMap):
    """The columns, clamped to their public ranges and mapped to [-1, 1], over the root of their number.

    Parameters
    ----------
    lower, upper : array of shape (inputs,)
        Public ranges of the columns.

    >>> import numpy as np
    >>> LinearFeatures(lower=[0, 0, 0, 0], upper=[1, 2, 1, 1])(np.array([[1.0, 1.0, 7.0, 0.5]])).tolist()
    [[0.5, 0.0, 0.5, 0.0]]
    """

    kind: ClassVar[str] = "linear"
    batch: ClassVar[int] = 1024
    lower: FloatArray
    upper: FloatArray

    @model_validator(mode="after")
    def _ranges_fit(self) -> Self:
        if self.lower.ndim != 1 or self.lower.shape != self.upper.shape or not len(self.lower):
            raise ValueError("lower and upper must hold one number for each column")
        if not np.all(self.upper - self.lower >= SMALLEST):
            raise ValueError("every lower bound must lie below its upper bound")
        return self

    @property
    def inputs(self) -> int:
        """The number of columns."""
        return len(self.lower)

    @property
    def size(self) -> int:
        """The number of features: one for each column."""
        return self.inputs

    def map_batch(self, rows: Array) -> Array:
        """The features of a batch, of norm at most 1: entries in [-1, 1] over the root of their number."""
        xp = array_namespace(rows)
        middle, half = (
            constant_on((self.upper + self.lower) / 2, rows),
            constant_on((self.upper - self.lower) / 2, rows),
        )
        return xp.clip((rows - middle) / half, -1.0, 1.0) / math.sqrt(self.inputs)


class RandomFeatures(LinearFeatures):
    """The linear features and `waves` random cosines of them, of equal weight: a Gaussian kernel's (Rahimi and Recht).

    A wave is cos(w.x + b) for a public random direction w and phase b from `seed`. Along an ordinary distance between
    two rows of uniform columns it turns by 1/`bandwidth` radian.

    Parameters
    ----------
    waves : int
        Number of random cosines.
    bandwidth : float
        Width of the kernel, in ordinary distances between two rows.
    seed : int
        Public seed of directions and phases.
    lower, upper
        As for `LinearFeatures`.
    """

    kind: ClassVar[str] = "random"
    waves: int = Field(default=500, ge=1, le=100_000)
    bandwidth: float = Field(default=1.0, ge=1e-6, le=1e6)
    seed: int = Field(default=0, ge=0)

    @property
    def size(self) -> int:
        """Linear features and cosines."""
        return self.inputs + self.waves

    @cached_property
    def _waves(self) -> tuple[Exact, Floats]:
        """The directions in whole numbers, of shape (inputs, waves), and the phases in turns, of shape (waves,)."""
        rng = np.random.default_rng(self.seed)
        # Two uniform values in [-1, 1] have a mean squared difference of 2/3, and the linear features divide by the
        # root of the number of columns: a wave of unit variance then turns by sqrt(2/3), and the factor sqrt(1.5) makes
        # that 1.
        directions = rng.normal(size=(self.inputs, self.waves)) * math.sqrt(1.5) / self.bandwidth
        return Exact.of(directions), rng.uniform(0, 1, self.waves)

    def map_batch(self, rows: Array) -> Array:
        """The features of a batch, of norm at most 1. Both halves have norm at most 1 and are divided by sqrt(2)."""
        xp = array_namespace(rows)
        linear = super().map_batch(rows)
        exact, phases = self._waves
        scaled, size, norm = sized(linear)
        turns = (
            exact.projections(scaled, norm) * (size * norm)[:, None] / (2 * math.pi)
            + constant_on(phases, rows)[None, :]
        )
        waves = cosine(turns) / math.sqrt(self.waves)
        return xp.concat([linear, waves], axis=1) / math.sqrt(2)


def cosine(turns: Array) -> Array:
    """cos(2 pi turns) from elementwise operations alone: a library's cosine may round by the position in the array.

    Parameters
    ----------
    turns : array
        Angles in turns; whole turns are subtracted first, so that the series converges.

    >>> import numpy as np
    >>> [round(float(x), 12) for x in cosine(np.array([0.0, 0.125, 1.5, -7.25]))]
    [1.0, 0.707106781187, -1.0, 0.0]
    """
    xp = array_namespace(turns)
    part = turns - xp.round(turns)
    square = -((2 * math.pi) ** 2) * part * part
    series = xp.ones_like(part)
    for k in range(_TERMS, 0, -1):
        series = 1.0 + square * series / float(2 * k * (2 * k - 1))
    return series
