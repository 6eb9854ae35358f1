"""Accuracy, confusion and calibration of a classifier from a noisy histogram of predictions. Free post-processing.

The release (`PredictionHistogram`) holds counts of units: right and wrong (2), by true and predicted class (classes,
classes), and by being right and the bin of the probability of the predicted class (2, bins). Each count has independent
normal noise of standard deviation s; those by bin have s/WEIGHT. The accuracy is a = right/(right + wrong).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from zerosum.algorithms.groups import Level, shown
from zerosum.algorithms.intervals import Z
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import Release
from zerosum.statistics.predictions import WEIGHT, PredictionHistogram


def quality_of(statistic: PredictionHistogram, release: Release, classes: Sequence[Level]) -> dict[str, Quantity]:
    """Accuracy, confusion and calibration from a release.

    `accuracy_interval_95` covers sampling and privacy noise. `confusion` has the number of units by true and predicted
    class. `calibration` has, by bins of the probability of the predicted class, the number of units and of right ones.

    Parameters
    ----------
    statistic : PredictionHistogram
        The statistic of the release.
    release : Release
        Noisy counts in one flat vector, and the noise of a count.
    classes : sequence
        The classes, in the order of their numbers.
    """
    # the total is the noisy number of units with a class: it need not be public, and units without a class do not count
    often, pairs, sure = statistic.split(release.value)
    noise = release.noise_std
    total = max(float(np.sum(often)), 1.0)
    accuracy = float(np.clip(often[0] / total, 0, 1))
    # Delta method: the error of a is ((1 - a) e_right - a e_wrong)/total.
    privacy = noise * math.hypot(accuracy, 1 - accuracy) / total
    # Binomial variance, at least that of one unit: an accuracy of 0 or 1 among few units is not certain.
    sampling = math.sqrt(max(accuracy * (1 - accuracy), 1 / total) / total)
    half = Z * math.hypot(privacy, sampling)
    labels = tuple(map(shown, classes))
    bins = tuple(f"{low:g} to {high:g}" for low, high in pairwise(np.linspace(0, 1, statistic.bins + 1)))
    ends = np.clip([accuracy - half, accuracy + half], 0, 1)
    return {
        "accuracy": Quantity(np.array([accuracy]), "share", std=privacy),
        "accuracy_interval_95": Quantity(ends, "diagnostic", (Axis("end", ("lower", "upper")),)),
        "confusion": Quantity(pairs, "count", (Axis("true class", labels), Axis("predicted class", labels)), noise),
        "calibration": Quantity(
            # all units of a bin are the sum of two counts, hence sqrt(2) of the noise
            np.stack([sure.sum(axis=0), sure[1]]),
            "count",
            (Axis("units", ("all", "right")), Axis("probability of the predicted class", bins)),
            np.array([[math.sqrt(2)], [1.0]]) * noise / WEIGHT,
        ),
    }
