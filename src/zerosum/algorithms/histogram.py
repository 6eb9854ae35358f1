"""How many units fall into each public category or bin.

Tested in tests/algorithms/test_programs.py.
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

    `counts` are unbiased (of what the sites contribute: a site of scale 0.5 counts half) and may be negative;
    `shares` are the nearest probabilities (free post-processing). Where values may be missing, `missing` is a category
    or number to count them as, or "observed": then only what is there counts, rows of the same unit share its weight,
    and the counts add up to about the number of units that are observed.
    """

    name: ClassVar[str] = "histogram"
    columns: tuple[str, ...] = Field(min_length=1, max_length=1)
    values: tuple[str | float | bool, ...] | None = None
    """The categories, in order; or give `edges`."""
    edges: FloatArray | None = None

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "a histogram counts a unit by its own rows that are there if missing is 'observed': say that instead"
    }

    @model_validator(mode="after")
    def _declared(self) -> Self:
        if (self.values is None) == (self.edges is None):
            raise ValueError("declare either the column's values (categories) or its edges (bins)")
        if self.values is not None and (not self.values or len(set(self.values)) < len(self.values)):
            raise ValueError("the declared values must be different from each other, and at least one")
        if self.edges is not None and self.edges.size < 2:
            raise ValueError("bins need at least two edges")
        if self.missing is not None and self.values is not None and {OBSERVED, OWN_ROWS} & set(self.values):
            raise ValueError("a category is called as a rule for missing values is: call it otherwise")
        return self

    @property
    def categories(self) -> dict[str, Sequence[str | float | bool]]:
        return {} if self.values is None else {self.columns[0]: self.values}

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        bins = len(self.values or ()) if self.edges is None else self.edges.size - 1
        return (PrivateSum(CountsStatistic(bins=bins, edges=self.edges, fill=self._fill)),)

    def fills(self, rule: Rule) -> bool:
        return super().fills(rule) if self.values is None else rule in self.values

    @property
    def _fill(self) -> tuple[float, ...]:
        """What is counted where a value is missing: a number, or the position of a category."""
        rule = self.rules.get(self.columns[0])
        if rule is None or not self.fills(rule):
            return ()
        return (float(rule if self.values is None else self.values.index(rule)),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        axes = (Axis("category" if self.edges is None else "bin", self.labels),)
        return {
            "counts": Quantity(release.value, "count", axes, release.noise_std),
            "shares": Quantity(nearest_probabilities(release.value), "share", axes),
            "noise_std": Quantity(np.array([release.noise_std]), "diagnostic"),
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """What each count is of."""
        if self.edges is None:
            return tuple(map(str, self.values or ()))
        return tuple(f"{low:g} to {high:g}" for low, high in pairwise(self.edges.tolist()))


def nearest_probabilities(counts: Floats, total: float | None = None) -> Floats:
    """The point of the probability simplex nearest to the counts, scaled to their total or else their positive part.

    >>> nearest_probabilities(np.array([3.0, 1.0, -1.0])).tolist()
    [0.75, 0.25, 0.0]
    >>> nearest_probabilities(np.array([3.0, 1.0, -1.0]), total=2.0).tolist()
    [1.0, 0.0, 0.0]
    """
    if total is None:
        total = float(np.sum(np.maximum(counts, 0)))
    if total <= 0:
        return np.full(len(counts), 1 / len(counts))
    below = (counts - np.max(counts)) / total  # the same point is nearest, and the 1 is not lost beside huge counts
    falling = np.sort(below)[::-1]
    slack = (np.cumsum(falling) - 1) / np.arange(1, len(counts) + 1)
    shift = slack[np.flatnonzero(falling > slack)[-1]]
    return np.asarray(np.maximum(below - shift, 0))
