"""Weights of a network that a site trains on its own records: one round of federated averaging.

Model. Public weights w (n numbers) enter a round. Site s trains a network of rectified units from w on all its rows x
(p features) with classes y, by Adam over shuffled batches (`zerosum.statistics.perceptron`), for some epochs. With the
trained weights w_s, the clip C, its n_s units and the public number M of units of the largest site it contributes

    f_s = min(1, n_s/M) w_s min(1, C/|w_s|).

The sum over sites, divided by the sum of n_s/M, is the mean of the clipped weights over sites, each weighted by its
number of units, as in FedAvg (McMahan et al. 2017) and in NbAFL, the FL-DP of the Data Collaboration paper (Wei et al.
2020).

This is the one statistic that is not a sum over units: every entry depends on all records of the site. Its sensitivity
is that of an arbitrary point of a ball.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.arrays import Floats
from zerosum.compute.backends.exact import INSIDE
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.kernel.grid import MOST_UNITS
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import perceptron
from zerosum.statistics.network import Examples


class LocalTraining(Examples):
    """The weights of a network after local training on all rows of a site, clipped to norm C and weighted by n_s/M.

    Sensitivity. Replace a unit, add it or remove it. The sites' rows before and after give trained weights u and v in
    the ball of radius C and factors a and b in [0, 1], whatever the training is: nothing else of it is used. So
    norm(a u - b v) <= a C + b C <= 2C. This also holds if all records of a site are replaced. It is attained at a site
    of M units or more: with a small clip only the direction of the weights is left, from w = 0 that is the direction of
    the training, and a unit with the majority of the rows turns it around by the opposite class (the start and all
    biases included). The published bound 2C/m for m records assumes that training is a mean over records of separate
    results; it is not proved and not used.

    A sample of the units (Poisson sub-sampling) is trained on like all units. The accountant takes 2C, the bound of an
    added unit, for a unit that is present or absent; given the other units of the sample every pair of outputs is at
    most that far apart.

    Failures. Training computes with floats only, raises no error for any values, and its batches follow from a public
    seed. A value that is not finite in single precision enters as zero. Weights that are not finite count as zeros.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer.
    weights : array of shape (n,)
        w, layer by layer: the matrix (before, after) row by row, then the biases.
    clip : float
        C.
    epochs : int
        Passes over the site's rows.
    step : float
        Step of Adam.
    seed : int
        Public seed of the order of the rows.
    largest_site : int
        M. A site with more units counts as one of M.
    columns, classes, center, scale, part, hold_out, lower, upper, fill, own_rows
        As for `Examples`.
    """

    name: ClassVar[str] = "local_training"

    classes: int = Field(default=2, ge=2, le=10_000)
    hidden: tuple[int, ...] = Field(default=(), max_length=20)
    epochs: int = Field(default=2, ge=1, le=1000)
    step: float = Field(default=perceptron.STEP, gt=0, le=1e3)
    seed: int = Field(default=0, ge=0, lt=2**63)
    largest_site: int = Field(gt=0, le=MOST_UNITS)

    @model_validator(mode="after")
    def _weights_fit(self) -> Self:
        """Refuse layers and weights that do not fit each other."""
        if any(not 1 <= units <= 100_000 for units in self.hidden):
            raise ValueError(f"hidden layers must have from 1 to 100000 units, got {list(self.hidden)}")
        wanted = perceptron.n_weights(self.columns - 1, self.classes, self.hidden)
        if self.weights.shape != (wanted,):
            raise ValueError(f"there must be {wanted} weights, got shape {self.weights.shape}")
        return self

    @property
    def size(self) -> int:
        """n, the number of weights."""
        return len(self.weights)

    def sensitivity(self, adjacency: Adjacency) -> float:
        """The bound proved in the class docstring, the same for both adjacencies."""
        return 2 * self.clip

    @np.errstate(all="ignore")
    def total(self, units: Units) -> Floats:
        """The contribution of a site, shape (size,). It does not fail for any values of a unit."""
        # All units at once, not block by block: the training is no sum.
        return self.sum_block(self.entering(units).dense())

    def sum_block(self, block: Units) -> Floats:
        """The contribution of a site with these units, shape (size,)."""
        weights = self.tensors
        if len(block):
            x, y = (to_numpy(each) for each in self.examples(block))
            singles = x.astype(np.float32)
            singles = np.where(np.isfinite(singles), singles, np.float32(0))
            labels = y.astype(np.int64)
            weights = perceptron.train(
                singles, labels, epochs=self.epochs, seed=self.seed, weights=weights, step=self.step
            )
        trained = perceptron.flat(weights)
        if not np.all(np.isfinite(trained)):
            return np.zeros(self.size)
        # Squares of single precision do not overflow as doubles. `INSIDE` keeps the result in the ball.
        norm = math.sqrt(float(np.sum(trained * trained))) * INSIDE
        share = min(1.0, len(block) / self.largest_site)
        return trained * (share * min(1.0, self.clip / norm if norm > self.clip else 1.0))

    @property
    def tensors(self) -> perceptron.Weights:
        """w as matrices and vectors in single precision."""
        return perceptron.of_flat(self.weights, self.columns - 1, self.classes, self.hidden)

    def probabilities(self, block: Units) -> Floats:
        """The probability of every class at w for each row, shape (rows, classes). For the user of a model: the
        products of many rows round together, so that no release may use it.
        """
        logits = perceptron.logits(self.tensors, to_numpy(self.examples(block)[0])).astype(np.float64)
        growth = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(growth / growth.sum(axis=1, keepdims=True))
