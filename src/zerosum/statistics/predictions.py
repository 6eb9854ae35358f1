"""How good a classifier is: how often it is right, which classes it takes for which, and how sure it was.

The map of one row with true class t and predicted class p of probability q: three one-hot vectors, of right or wrong
(2), of (t, p) (classes^2), and of right or wrong and the bin of q (2 bins). A unit contributes the means over its rows.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from array_api_compat import array_namespace
from pydantic import Field

from zerosum.arrays import Array, Floats
from zerosum.compute.devices import to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency

# Weight w of the histogram of probabilities beside the two others: it serves a curve, they serve single numbers. A
# larger weight makes the curve more accurate and the accuracy less. Chosen by hand; no benchmark recorded.
WEIGHT = 0.5


def class_of(labels: Array, classes: int) -> Array:
    """The class of each label: whole numbers from 0, others the nearest; NaN stays NaN and is no class.

    Parameters
    ----------
    labels : array of shape (rows,)
        The column of classes.
    classes : int
        The number of classes.
    """
    xp = array_namespace(labels)
    return xp.clip(xp.round(labels), 0.0, float(classes - 1))


class PredictionHistogram(BoundedStatistic):
    """The sum over units of (g, e, w f): g marks whether the predicted class is right or wrong, e the pair of true and
    predicted class, f which of `bins` equal bins the predicted class's probability lies in, and whether it was right.

    Rows hold features and, last, the class as a whole number. A unit with several rows contributes the shares of its
    rows, so it weighs one; a row without a class counts nowhere. g could be added up from e, under more noise.

    Sensitivity. g, e and f are probability vectors (or zero), each at most sqrt(2) from another: D = sqrt(4 + 2 w^2),
    attained by a unit that is right and one that is wrong. Added or removed: sqrt(2 + w^2).

    Parameters
    ----------
    classes : int
        The number of classes.
    bins : int
        The number of equal bins of the probability of the predicted class, from 0 to 1.
    """

    classes: int = Field(ge=2, le=1000)
    bins: int = Field(default=10, ge=1, le=100)

    @abstractmethod
    def probabilities(self, block: Units) -> Array:
        """The probability of every class for each row of a block, as entered."""

    @property
    def size(self) -> int:
        """2 for right and wrong, classes^2 pairs, and 2 bins."""
        return 2 + self.classes**2 + 2 * self.bins

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring."""
        one = math.sqrt(2 + WEIGHT**2)
        return math.sqrt(2) * one if adjacency is Adjacency.REPLACE_ONE else one

    def sum_block(self, block: Units) -> Array:
        """The counts of a block, shape (size,)."""
        probabilities = to_numpy(self.probabilities(block))
        weights = block.row_weights(probabilities)
        labels = to_numpy(class_of(block.rows[:, -1], self.classes))
        # Rows without a class, or with probabilities that are not finite, count nowhere: this their unit alone decides.
        known = np.isfinite(labels) & np.all(np.isfinite(probabilities), axis=1)
        probabilities, true, weights = probabilities[known], labels[known].astype(np.intp), weights[known]
        predicted = np.argmax(probabilities, axis=1)
        right = (true == predicted).astype(np.intp)
        sure = probabilities[np.arange(len(probabilities)), predicted]
        # Inner edges only: a probability of exactly 1 belongs to the last bin.
        place = np.searchsorted(np.linspace(0, 1, self.bins + 1)[1:-1], sure, side="right")
        # The accuracy has counts of its own: added up from the pairs it would have the noise of classes^2 cells.
        often = np.bincount(1 - right, weights, 2)
        pairs = np.bincount(true * self.classes + predicted, weights, self.classes**2)
        curve = np.bincount(right * self.bins + place, weights, 2 * self.bins)
        return np.concatenate([often, pairs, WEIGHT * curve])

    def split(self, release: Floats) -> tuple[Floats, Floats, Floats]:
        """A release as counts of units that are (right, wrong), of (true class, predicted class), and of (wrong or
        right, bin of probability).

        Returns
        -------
        often : array of shape (2,)
        pairs : array of shape (classes, classes)
        curve : array of shape (2, bins)
        """
        pairs = release[2 : 2 + self.classes**2].reshape(self.classes, self.classes)
        return release[:2], pairs, release[2 + self.classes**2 :].reshape(2, self.bins) / WEIGHT
