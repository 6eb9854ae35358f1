"""Public densities within the range of a column of numbers: bins of equal public mass, and values within a bin.

Model
-----
A density f on the range (a, b) that is public: uniform, of the logarithm ("log": f proportional to 1/x, for heavy
tails), or a polygon through given points (x, f(x)). With F its distribution function, the K bins have edges F^-1(k/K),
so that people spread by the public density would fill all bins alike, and a value within a bin is F^-1(u) for u uniform
between F of the bin's edges. Nothing here depends on data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from zerosum.algorithms.quantiles import bin_edges
from zerosum.arrays import Floats

LOG = "log"
Points = tuple[tuple[float, float], ...]
# Steps of the probability within a bin, in the table of values of a model for imputation. Chosen by hand: bins are
# narrow already.
_STEPS = 8
# Points of the grid on which F is tabulated and inverted; between them it is linear. Chosen by hand: its steps are far
# below a bin.
_GRID = 1 << 14


@dataclass(frozen=True)
class Density:
    """A public density of one column.

    Parameters
    ----------
    low, high : float
        The range.
    shape : "log", points or None
        None is uniform.

    >>> Density(1.0, 1000.0, "log").edges(3, whole=False).round(6).tolist()
    [1.0, 10.0, 100.0, 1000.0]
    """

    low: float
    high: float
    shape: str | Points | None = None

    def check(self, name: str) -> None:
        """Raise `ValueError` if the density is none on the range of its column."""
        if self.shape is None:
            return
        if isinstance(self.shape, str):
            if self.shape != LOG:
                raise ValueError(f"the density of {name!r} must be {LOG!r} or points (x, density), got {self.shape!r}")
            if not self.low > 0:
                raise ValueError(
                    f"the density {LOG!r} of {name!r} needs a range above 0, and it begins at {self.low:g}"
                )
            return
        x = [at for at, _ in self.shape]
        f = [value for _, value in self.shape]
        if len(x) < 2 or (x[0], x[-1]) != (self.low, self.high) or not all(a < b for a, b in pairwise(x)):
            raise ValueError(f"the points of the density of {name!r} must rise from {self.low:g} to {self.high:g}")
        if not all(0 < value < math.inf for value in f):
            raise ValueError(f"the density of {name!r} must be positive and finite")

    def mass(self, values: Floats) -> Floats:
        """F at some values; beyond the range 0 or 1."""
        return np.asarray(np.interp(values, *_table(self)))

    def values(self, mass: Floats) -> Floats:
        """F^-1."""
        x, rising = _table(self)
        return np.asarray(np.interp(mass, rising, x))

    def edges(self, bins: int, *, whole: bool) -> Floats:
        """Edges of bins of equal mass, as many or fewer.

        Parameters
        ----------
        bins : int
            Their number.
        whole : bool
            Whether the column holds whole numbers: edges then lie at halves, and there are fewer bins where the density
            would have less than one number in a bin.
        """
        if self.shape is None:
            return bin_edges(self.low, self.high, bins, whole=whole)
        inner = self.values(np.arange(1, bins) / bins)
        if not whole:
            return np.unique(np.concatenate([[self.low], inner, [self.high]]))
        first, last = math.ceil(self.low) - 0.5, math.floor(self.high) + 0.5
        between = np.clip(np.floor(inner) + 0.5, first, last)
        return np.unique(np.concatenate([[first], between, [last]]))

    def drawn(self, low: Floats, high: Floats, places: Floats) -> Floats:
        """Values within bins.

        Parameters
        ----------
        low, high : arrays
            The edges of the bin of each value.
        places : array
            The place of each value within its bin as a probability, 0 to 1.
        """
        begin, end = self.mass(low), self.mass(high)
        # The edges of whole numbers lie up to a half outside of the range, where F is 0 or 1: such a bin, or one
        # without mass, is uniform.
        inside = (end > begin) & (low >= self.low) & (high <= self.high)
        uniform = low + (high - low) * places
        return np.where(inside, np.clip(self.values(begin + (end - begin) * places), low, high), uniform)

    def part(self, edges: Floats, low: float, high: float) -> Floats:
        """The part of the mass of each bin that lies between two numbers, shape (bins,).

        Parameters
        ----------
        edges : array of shape (bins + 1,)
            Edges of the bins.
        low, high : float
            May be infinite.
        """
        begin, end = np.clip(edges[:-1], low, high), np.clip(edges[1:], low, high)
        whole, some = np.diff(self.mass(edges)), self.mass(end) - self.mass(begin)
        inside = (whole > 0) & (edges[:-1] >= self.low) & (edges[1:] <= self.high)
        uniform = (end - begin) / np.diff(edges)
        return np.where(inside, np.divide(some, whole, out=np.zeros_like(some), where=whole > 0), uniform)

    def quantiles(self, edges: Floats) -> Floats:
        """Values of each bin at equal steps of the mass within it, shape (bins, steps + 1)."""
        places = np.linspace(0.0, 1.0, _STEPS + 1)
        each = [self.drawn(np.full(_STEPS + 1, a), np.full(_STEPS + 1, b), places) for a, b in pairwise(edges)]
        return np.array(each)


@lru_cache(maxsize=256)
def _table(density: Density) -> tuple[Floats, Floats]:
    """Points of the range and F at them."""
    if density.shape is None:
        x = np.array([density.low, density.high])
        return x, np.array([0.0, 1.0])
    if isinstance(density.shape, str):
        x = np.geomspace(density.low, density.high, _GRID)
        # Ends without the rounding of the logarithm.
        x[0], x[-1] = density.low, density.high
        return x, np.linspace(0.0, 1.0, _GRID)
    at, value = (np.array(each) for each in zip(*density.shape, strict=True))
    x = np.unique(np.concatenate([np.linspace(density.low, density.high, _GRID), at]))
    f = np.interp(x, at, value / np.max(value))
    # The trapezoid rule is exact for a polygon.
    mass = np.concatenate([[0.0], np.cumsum((f[1:] + f[:-1]) / 2 * np.diff(x))])
    return x, np.asarray(mass / mass[-1])


def check_densities(shapes: Mapping[str, str | Points], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse densities of columns without a range, or that are none on it.

    Parameters
    ----------
    shapes : dict
        By column.
    ranges : dict
        Of the columns of numbers.
    """
    for name, shape in shapes.items():
        if name not in ranges:
            raise ValueError(f"densities names {name!r}, which has no range")
        Density(*ranges[name], shape).check(name)
