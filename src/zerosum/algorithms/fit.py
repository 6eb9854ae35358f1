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
    """`clipped_share`; of a logistic model `auc` and `scores` (counts by class and score), of others `residuals`."""
    counts, noise = np.asarray(statistic.split(release.value)), release.noise_std
    total = max(float(np.sum(counts)) if release.units is None else release.units, 1.0)
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
    return found | {
        "auc": Quantity(np.array([area(both)]), "diagnostic", std=float(np.std(played))),
        "scores": Quantity(both, "count", axes, math.sqrt(2) * noise),
    }


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
