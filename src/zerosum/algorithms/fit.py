"""From a noisy histogram to how well a regression fits: clipped rows, residuals, the area under the curve."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import Release
from zerosum.statistics.fit import FitHistogram

_DRAWS = 400  # of the noise, played again for the error of the area


def fit_of(statistic: FitHistogram, release: Release) -> dict[str, Quantity]:
    """`clipped_share`; of a logistic model `auc`, `deviance` (the mean of -2 log of what was given the true class, with
    scores at the middle of their bins) and `scores` (counts by class and score); of others `residuals`."""
    counts, noise = np.asarray(statistic.split(release.value)), release.noise_std
    public = release.units is not None and not statistic.weighted and statistic.kept is None
    total = max(float(release.units or 0) if public else float(np.sum(counts)), 1.0)
    cells = statistic.classes * statistic.bins
    share = float(np.clip(np.sum(counts[1]) / total, 0, 1))
    found = {
        "clipped_share": Quantity(np.array([share]), "share", std=math.sqrt(cells) * noise / total),
    }
    labels = tuple(f"{low:g} to {high:g}" for low, high in pairwise(statistic.edges.tolist()))
    both = counts.sum(axis=0)
    if statistic.classes == 1:
        axis = Axis("residual over its bound", labels)
        return found | {"residuals": Quantity(both[0], "count", (axis,), math.sqrt(2) * noise)}
    rng = np.random.default_rng(0)
    played = [area(both + math.sqrt(2) * noise * rng.normal(size=both.shape)) for _ in range(_DRAWS)]
    axes = Axis("class", ("reference", "second")), Axis("score", labels)
    middle = (statistic.edges[1:] + statistic.edges[:-1]) / 2
    lost = 2 * np.logaddexp(0.0, np.stack([middle, -middle]))
    return found | {
        "deviance": mean_of(lost, both, math.sqrt(2) * noise),
        "auc": Quantity(np.array([area(both)]), "diagnostic", std=float(np.std(played))),
        "scores": Quantity(both, "count", axes, math.sqrt(2) * noise),
    }


def spread_of(statistic: FitHistogram, release: Release, worth: float, variance: float | None) -> dict[str, Quantity]:
    """`residual_std` from a histogram of residuals in parts of the bound, and `r_squared` where the response's variance
    is known (as the bound is, in a range of -1 to 1); `worth` is what that is worth in the units of the data."""
    if statistic.classes == 2:
        return {}
    counts = np.asarray(statistic.split(release.value)).sum(axis=(0, 1))
    width = np.diff(statistic.edges)
    squares = statistic.bound**2 * (((statistic.edges[1:] + statistic.edges[:-1]) / 2) ** 2 + width**2 / 12)
    mean = mean_of(squares, counts, math.sqrt(2) * release.noise_std)
    size = math.sqrt(max(float(mean), 1e-12))
    blur = 0.0 if mean.std is None else float(np.ravel(mean.std)[0])
    found = {"residual_std": Quantity(np.array([worth * size]), "diagnostic", std=worth * blur / (2 * size))}
    if variance is not None:
        explained = np.array([1 - float(mean) / variance])
        found["r_squared"] = Quantity(np.clip(explained, 0, 1), "diagnostic", std=blur / variance)
    return found


def mean_of(values: Floats, counts: Floats, noise: float) -> Quantity:
    """The mean of a value that each cell stands for, by noisy counts.

    >>> float(mean_of(np.array([1.0, 3.0]), np.array([5.0, 5.0]), 0.0))
    2.0
    """
    total = max(float(np.sum(counts)), 1.0)
    mean = float(np.clip(np.sum(values * counts) / total, np.min(values), np.max(values)))
    blur = noise * float(np.linalg.norm(values - mean)) / total
    return Quantity(np.array([mean]), "diagnostic", std=blur)


def area(counts: Floats) -> float:
    """The area under the curve from counts of scores (class, bin); ties within a bin count half.

    >>> area(np.array([[5.0, 0.0], [0.0, 5.0]])), area(np.array([[1.0, 1.0], [1.0, 1.0]]))
    (1.0, 0.5)
    """
    low, high = np.maximum(counts, 0.0)
    pairs = float(np.sum(low) * np.sum(high))
    if pairs <= 0:
        return 0.5
    below = np.cumsum(low) - low
    return float(np.sum(high * (below + low / 2)) / pairs)
