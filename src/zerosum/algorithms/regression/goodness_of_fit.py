"""Goodness of fit of a regression from one noisy histogram. Free post-processing.

The release is a table of counts n[clipped, class, bin] (`FitHistogram`): whether the row was clipped, its class
(logistic models; one class else), and the bin of its linear predictor (logistic) or of its residual over the bound.
Each count has independent normal noise of standard deviation `noise_std`; a sum of m counts has sqrt(m) of it.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import Release
from zerosum.statistics.fit import FitHistogram


def fit_of(statistic: FitHistogram, release: Release) -> dict[str, Quantity]:
    """`clipped_share`, and for logistic models `auc`, `deviance` and `scores`, for the others `residuals`.

    `deviance` is the mean of -2 log P(true class) with scores at the middle of their bins. `scores` has the counts by
    class and bin, `residuals` those by bin.

    Parameters
    ----------
    statistic : FitHistogram
        The statistic of the release, for the edges of its bins and the number of classes.
    release : Release
        Noisy counts n[clipped, class, bin] in one flat vector, and the noise of a count.
    """
    counts, noise = np.asarray(statistic.split(release.value)), release.noise_std
    # the public number of units is the total only if each unit counts fully; otherwise the noisy sum is used
    public = release.units is not None and not statistic.weighted and statistic.kept is None
    total = max(float(release.units or 0) if public else float(np.sum(counts)), 1.0)
    cells = statistic.classes * statistic.bins
    # a sum over the cells of the clipped rows has sqrt(cells) of the noise of a count
    share = float(np.clip(np.sum(counts[1]) / total, 0, 1))
    found = {
        "clipped_share": Quantity(np.array([share]), "share", std=math.sqrt(cells) * noise / total),
    }
    labels = tuple(f"{low:g} to {high:g}" for low, high in pairwise(statistic.edges.tolist()))
    both = counts.sum(axis=0)  # clipped or not: two counts, hence sqrt(2) of the noise
    if statistic.classes == 1:
        axis = Axis("residual over its bound", labels)
        return found | {"residuals": Quantity(both[0], "count", (axis,), math.sqrt(2) * noise)}
    # parametric bootstrap of the noise around the released counts, with a fixed seed: a function of the release
    rng = np.random.default_rng(0)
    played = [area(both + math.sqrt(2) * noise * rng.normal(size=both.shape)) for _ in range(TUNING.auc_draws)]
    axes = Axis("class", ("reference", "second")), Axis("score", labels)
    # -2 log P(class) at the middle of each bin: 2 log(1 + exp(eta)) for the reference class, eta -> -eta for the second
    middle = (statistic.edges[1:] + statistic.edges[:-1]) / 2
    lost = 2 * np.logaddexp(0.0, np.stack([middle, -middle]))
    return found | {
        "deviance": mean_of(lost, both, math.sqrt(2) * noise),
        "auc": Quantity(np.array([area(both)]), "diagnostic", std=float(np.std(played))),
        "scores": Quantity(both, "count", axes, math.sqrt(2) * noise),
    }


def spread_of(statistic: FitHistogram, release: Release, worth: float, variance: float | None) -> dict[str, Quantity]:
    """`residual_std`, and `r_squared` if the variance of the response is known; empty for logistic models.

    Parameters
    ----------
    statistic, release : the histogram of residuals over their bound.
    worth : half range of the response, from [-1, 1] to the units of the data.
    variance : variance of the response in [-1, 1]; None if unknown.
    """
    if statistic.classes == 2:
        return {}
    counts = np.asarray(statistic.split(release.value)).sum(axis=(0, 1))
    width = np.diff(statistic.edges)
    # mean square of a value that is uniform in its bin: middle^2 + width^2/12
    squares = statistic.bound**2 * (((statistic.edges[1:] + statistic.edges[:-1]) / 2) ** 2 + width**2 / 12)
    mean = mean_of(squares, counts, math.sqrt(2) * release.noise_std)
    size = math.sqrt(max(float(mean), 1e-12))
    blur = 0.0 if mean.std is None else float(np.ravel(mean.std)[0])
    # delta method: the standard deviation of a square root is that of its argument over twice the root
    found = {"residual_std": Quantity(np.array([worth * size]), "diagnostic", std=worth * blur / (2 * size))}
    if variance is not None:
        # the noise of `variance` itself is not part of the standard deviation
        explained = np.array([1 - float(mean) / variance])
        found["r_squared"] = Quantity(np.clip(explained, 0, 1), "diagnostic", std=blur / variance)
    return found


def mean_of(values: Floats, counts: Floats, noise: float) -> Quantity:
    """Mean of `values` (cells) with noisy `counts` as weights; `noise` is the standard deviation of a count.

    The standard deviation is that of the ratio to first order: noise norm(values - mean)/total.

    >>> float(mean_of(np.array([1.0, 3.0]), np.array([5.0, 5.0]), 0.0))
    2.0
    """
    # A mean of values lies between the least and the largest; beyond it is noise, and so is a total below one unit.
    total = max(float(np.sum(counts)), 1.0)
    mean = float(np.clip(np.sum(values * counts) / total, np.min(values), np.max(values)))
    blur = noise * float(np.linalg.norm(values - mean)) / total
    return Quantity(np.array([mean]), "diagnostic", std=blur)


def area(counts: Floats) -> float:
    """Area under the ROC curve from counts (2 classes, bins); ties within a bin count half.

    Negative counts are noise and become 0; 0.5 if a class has no count left.

    >>> area(np.array([[5.0, 0.0], [0.0, 5.0]])), area(np.array([[1.0, 1.0], [1.0, 1.0]]))
    (1.0, 0.5)
    """
    low, high = np.maximum(counts, 0.0)
    pairs = float(np.sum(low) * np.sum(high))
    if pairs <= 0:
        return 0.5
    # Mann and Whitney: the share of pairs of a reference and a second unit in which the second has the higher score
    below = np.cumsum(low) - low
    return float(np.sum(high * (below + low / 2)) / pairs)
