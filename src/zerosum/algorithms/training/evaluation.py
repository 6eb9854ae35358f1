"""From a noisy histogram of predictions to what is reported of a classifier: accuracy, confusion, calibration.

Tested in tests/algorithms/training/test_classifier.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from zerosum.algorithms.groups import Level, shown
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import Release
from zerosum.statistics.predictions import WEIGHT, PredictionHistogram

_Z95 = 1.959963984540054


def quality_of(statistic: PredictionHistogram, release: Release, classes: Sequence[Level]) -> dict[str, Quantity]:
    """`accuracy` with `accuracy_interval_95` (sampling and privacy), `confusion` in units by true and predicted class,
    and `calibration`: by the probability of the predicted class, how many units there were and how many were right."""
    often, pairs, sure = statistic.split(release.value)
    noise = release.noise_std
    total = max(float(np.sum(often)), 1.0)
    accuracy = float(np.clip(often[0] / total, 0, 1))
    privacy = noise * math.hypot(accuracy, 1 - accuracy) / total  # of (1 - a) right - a wrong, over their number
    sampling = math.sqrt(max(accuracy * (1 - accuracy), 1 / total) / total)
    half = _Z95 * math.hypot(privacy, sampling)
    labels = tuple(map(shown, classes))
    bins = tuple(f"{low:g} to {high:g}" for low, high in pairwise(np.linspace(0, 1, statistic.bins + 1)))
    ends = np.clip([accuracy - half, accuracy + half], 0, 1)
    return {
        "accuracy": Quantity(np.array([accuracy]), "share", std=privacy),
        "accuracy_interval_95": Quantity(ends, "diagnostic", (Axis("end", ("lower", "upper")),)),
        "confusion": Quantity(pairs, "count", (Axis("true class", labels), Axis("predicted class", labels)), noise),
        "calibration": Quantity(
            np.stack([sure.sum(axis=0), sure[1]]),
            "count",
            (Axis("units", ("all", "right")), Axis("probability of the predicted class", bins)),
            np.array([[math.sqrt(2)], [1.0]]) * noise / WEIGHT,
        ),
    }
