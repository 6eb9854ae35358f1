"""Goodness of fit of a regression: one histogram of scores or residuals, and of clipped rows.

The map of one row: a unit vector over the cells (clipped or not, class, bin), 2 * classes * bins in all. A unit
contributes the weighted mean over its rows. Rows are processed as in `zerosum.statistics.regression`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from array_api_compat import array_namespace
from pydantic import model_validator

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on, counts
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.regression import Residuals, counted


class FitHistogram(Residuals):
    """The number of units in each cell: clipped or not, the class (logistic), and a bin of a public axis.

    The axis is the linear predictor of a logistic model, and the residual over its bound of the others. A unit with
    several rows contributes the shares of its rows, so that its weight is one. Values beyond the edges count in the
    outer bins.

    Sensitivity. A contribution is a probability vector over the cells, or shorter where rows have weights. Replacing a
    unit moves the sum by at most sqrt(2), attained by two different cells. Adding or removing a unit: 1, as for any
    histogram.

    Parameters
    ----------
    edges : array of shape (bins + 1,)
        Rising edges of the bins, in units of the linear predictor (logistic) or of the bound of residuals.
    coefficients, bound, family, most and the other parameters
        As for `Residuals`.
    """

    name: ClassVar[str] = "fit_histogram"
    adds_in_pieces: ClassVar[bool] = True
    edges: FloatArray

    @model_validator(mode="after")
    def _edges_rise(self) -> Self:
        if self.edges.ndim != 1 or not 2 <= len(self.edges) <= 1000 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(
                f"edges must be 2 to 1000 rising numbers, got {self.edges.size} of shape {self.edges.shape}"
            )
        return self

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1

    @property
    def classes(self) -> int:
        """Two for logistic models; the others have no classes and count in one."""
        return 2 if self.family == "logistic" else 1

    @property
    def size(self) -> int:
        """The cells, and one for the count."""
        return 2 * self.classes * self.bins + int(self.count)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        return math.sqrt(2) if adjacency is Adjacency.REPLACE_ONE else math.sqrt(1 + int(self.count))

    def sum_block(self, block: Units) -> Array:
        """The weighted counts of a block, shape (size,)."""
        rows = self.design(block)
        xp = array_namespace(rows.x)
        if self.family == "logistic":
            axis, cells = self.predictor(rows), xp.astype(rows.response > 0, xp.int64)
        else:
            axis, cells = self.residuals(rows)[0], 0
        # One number per cell: (clipped * classes + class) * bins + bin. Only inner edges are searched, so that values
        # beyond the outer ones count in the outer bins.
        cells = cells + xp.astype(rows.shrunk < 1, xp.int64) * self.classes
        cells = cells * self.bins + xp.searchsorted(constant_on(self._inner, axis), axis, side="right")
        return counted(counts(cells, rows.weight, 2 * self.classes * self.bins), block, self.count)

    @cached_property
    def _inner(self) -> Floats:
        """The edges between bins, (bins - 1,)."""
        return self.edges[1:-1]

    def split(self, release: Array) -> Array:
        """A release as counts of shape (2, classes, bins): not clipped and clipped, class, bin."""
        return np.asarray(release[: 2 * self.classes * self.bins]).reshape(2, self.classes, self.bins)
