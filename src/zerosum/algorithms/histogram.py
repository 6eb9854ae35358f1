"""Counts of units by public category or bin, from one release.

The release is h (bins,), the sum over units of one-hot vectors, with independent normal noise in each entry
(`zerosum.statistics.histogram`, sensitivity sqrt(2)). A unit with several rows contributes their mean. `counts` is the
release itself; `shares` is its projection onto the probability simplex, free post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.program import MissingAlgorithm, Program
from zerosum.arrays import Floats
from zerosum.kernel.missing import OBSERVED, OWN_ROWS, Rule
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.histogram import Histogram as CountsStatistic


class HistogramProgram(MissingAlgorithm):
    """Counts of one column. Declare its `values` (public categories) or its `edges` (bins of a number).

    `counts` are unbiased and may be negative; a unit of a site of scale 0.5 counts half. `shares` are the nearest
    probabilities (free post-processing). `missing` is the category or number that a missing value counts as, or
    "observed": then missing values do not count, the observed rows of a unit share its weight, and the sum of the
    counts estimates the number of observed units.

    Parameters
    ----------
    columns : tuple of str
        The only column.
    values : tuple, optional
        Public categories, in the order of results.
    edges : array of shape (bins + 1,), optional
        Public edges of bins; declare either `values` or `edges`.
    """

    name: ClassVar[str] = "histogram"
    laplace: ClassVar[bool] = True
    columns: tuple[str, ...] = Field(min_length=1, max_length=1)
    values: tuple[str | float | bool, ...] | None = None
    """The categories, in order; or give `edges`."""
    edges: FloatArray | None = None

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "a histogram counts the observed rows of each unit with missing = 'observed': use that rule"
    }

    @model_validator(mode="after")
    def _declared(self) -> Self:
        """Require exactly one of `values` and `edges`, both sound."""
        if (self.values is None) == (self.edges is None):
            answer = "neither" if self.values is None else "both"
            raise ValueError(f"declare either values (categories) or edges (bins) of {self.columns[0]!r}, got {answer}")
        if self.values is not None and (not self.values or len(set(self.values)) < len(self.values)):
            raise ValueError(f"values must be different from each other, and at least one, got {list(self.values)}")
        if self.edges is not None and self.edges.size < 2:
            raise ValueError(f"edges must have at least two numbers, got {self.edges.size}")
        if self.missing is not None and self.values is not None and {OBSERVED, OWN_ROWS} & set(self.values):
            raise ValueError(
                f"a category has the name of a rule for missing values ({OBSERVED!r} or {OWN_ROWS!r}): rename it"
            )
        return self

    @property
    def categories(self) -> dict[str, Sequence[str | float | bool]]:
        """The values of the column, if it holds categories."""
        return {} if self.values is None else {self.columns[0]: self.values}

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        # One release: a histogram needs no earlier one, and takes the whole budget.
        bins = len(self.values or ()) if self.edges is None else self.edges.size - 1
        return (PrivateSum(CountsStatistic(bins=bins, edges=self.edges, fill=self._fill)),)

    def fills(self, rule: Rule) -> bool:
        """Whether a rule is a value of the column: a number, or one of the categories."""
        return super().fills(rule) if self.values is None else rule in self.values

    @property
    def _fill(self) -> tuple[float, ...]:
        """The value that a missing entry counts as: a number, or the position of a category; empty if it has none."""
        rule = self.rules.get(self.columns[0])
        if rule is None or not self.fills(rule):
            return ()
        return (float(rule if self.values is None else self.values.index(rule)),)

    def program(self, adjacency: Adjacency) -> Program:
        """The release as counts, with the nearest probabilities."""
        release = yield self.requests(adjacency)[0]
        axes = (Axis("category" if self.edges is None else "bin", self.labels),)
        return {
            "counts": Quantity(release.value, "count", axes, release.noise_std),
            "shares": Quantity(nearest_probabilities(release.value), "share", axes),
            "noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the categories or bins."""
        if self.edges is None:
            return tuple(map(str, self.values or ()))
        return tuple(f"{low:g} to {high:g}" for low, high in pairwise(self.edges.tolist()))


def nearest_probabilities(counts: Floats, total: float | None = None) -> Floats:
    """Euclidean projection of counts/total onto the probability simplex, by sorting (Duchi et al. 2008).

    Parameters
    ----------
    counts : array of shape (bins,)
        Noisy counts; they may be negative.
    total : float, optional
        The public number of units; None: the sum of the positive counts.

    Returns
    -------
    probabilities : array of shape (bins,)
        At least 0, with the sum 1; equal ones if no count is positive.

    >>> nearest_probabilities(np.array([3.0, 1.0, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    >>> nearest_probabilities(np.array([3.0, 1.0, -1.0]), total=2.0).tolist()
    [1.0, 0.0, 0.0]
    """
    if total is None:
        total = float(np.sum(np.maximum(counts, 0)))
    if total <= 0:
        return np.full(len(counts), 1 / len(counts))
    # a common shift does not change the projection; without it the 1 below is lost in the rounding of huge counts
    below = (counts - np.max(counts)) / total
    # The projection is max(x - shift, 0) with the shift that makes the sum 1. With the k largest entries positive the
    # shift is (their sum - 1)/k, and k is the largest number for which the k-th entry exceeds that shift.
    falling = np.sort(below)[::-1]
    slack = (np.cumsum(falling) - 1) / np.arange(1, len(counts) + 1)
    shift = slack[np.flatnonzero(falling > slack)[-1]]
    return np.asarray(np.maximum(below - shift, 0))
