"""Networks with layers of rectified units in NumPy, in single precision, trained by Adam over shuffled batches.

The network of the Data Collaboration paper (inputs-512-128-classes) is one of them. A site trains such a network on its
own records for a round of federated averaging (`zerosum.statistics.local_training`).

**Nothing in this module is private by itself**: trained weights are a function of all records.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats

Singles = NDArray[np.float32]
Labels = NDArray[np.int64]
Weights = list[Singles]  # weight matrix and bias vector of each layer

# Units of the hidden layers.
HIDDEN = (512, 128)
# Batch size and step of Adam.
BATCH, STEP = 32, 1e-3
_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-8  # beta_1, beta_2 and epsilon of Adam


def start(inputs: int, classes: int, seed: int, hidden: tuple[int, ...] = HIDDEN, *, normal: bool = False) -> Weights:
    """Initial weights: uniform in +-1/sqrt(fan-in), including biases, or (`normal`) normal with variance 2/fan-in and
    zero biases (He et al. 2015).

    Parameters
    ----------
    inputs, classes : int
        Numbers of inputs and of classes.
    seed : int
        Public seed.
    hidden : tuple of int
        Widths of the hidden layers.
    normal : bool
        Whether weights are normal.
    """
    rng, sizes = np.random.default_rng(seed), (inputs, *hidden, classes)
    layers: Weights = []
    for before, after in itertools.pairwise(sizes):
        if normal:
            drawn = math.sqrt(2 / before) * rng.standard_normal((before, after))
            layers += [drawn.astype(np.float32), np.zeros(after, dtype=np.float32)]
            continue
        end = 1 / math.sqrt(before)
        layers += [rng.uniform(-end, end, shape).astype(np.float32) for shape in ((before, after), (after,))]
    return layers


def n_weights(inputs: int, classes: int, hidden: tuple[int, ...] = HIDDEN) -> int:
    """Number of weights of such a network.

    Parameters
    ----------
    inputs, classes, hidden
        As for `start`.

    >>> n_weights(2, 3, hidden=(4,))
    27
    """
    sizes = (inputs, *hidden, classes)
    return sum((before + 1) * after for before, after in itertools.pairwise(sizes))


def flat(weights: Weights) -> Floats:
    """All weights in one vector, layer by layer."""
    return np.concatenate([each.ravel() for each in weights]).astype(np.float64)


def of_flat(vector: Floats, inputs: int, classes: int, hidden: tuple[int, ...] = HIDDEN) -> Weights:
    """The weights of a network from one vector, in single precision.

    Parameters
    ----------
    vector : array of shape (n,)
        All weights, layer by layer, as `flat` makes them.
    inputs, classes, hidden
        As for `start`.

    >>> [each.shape for each in of_flat(np.zeros(27), 2, 3, hidden=(4,))]
    [(2, 4), (4,), (4, 3), (3,)]
    """
    shapes = [
        shape
        for before, after in itertools.pairwise((inputs, *hidden, classes))
        for shape in ((before, after), (after,))
    ]
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return [part.astype(np.float32).reshape(shape) for part, shape in zip(np.split(vector, ends), shapes, strict=True)]


def _layers(weights: Weights, x: Singles) -> list[Singles]:
    """Inputs of every layer, and the logits last."""
    values = [x]
    for at in range(0, len(weights), 2):
        out = values[-1] @ weights[at] + weights[at + 1]
        values.append(np.maximum(out, 0) if at + 2 < len(weights) else out)
    return values


def gradient(weights: Weights, x: Singles, y: Labels) -> Weights:
    """Gradient of the mean cross-entropy.

    Parameters
    ----------
    weights : list of arrays
        Matrix and bias of each layer in turn.
    x : array of shape (n, inputs)
        Records.
    y : int array of shape (n,)
        Classes.
    """
    values = _layers(weights, x)
    # Subtracting the maximum avoids overflow of the exponential.
    logits = values[-1] - values[-1].max(axis=1, keepdims=True)
    back = np.exp(logits)
    back /= back.sum(axis=1, keepdims=True)
    # The derivative of the cross-entropy by the logits: probabilities less the class as a one-hot vector.
    back[np.arange(len(y)), y] -= 1
    back /= len(y)
    slopes: Weights = []
    for at in range(len(weights) - 2, -1, -2):
        entered = values[at // 2]
        slopes = [entered.T @ back, back.sum(axis=0), *slopes]
        if at:
            # The derivative of a rectified unit is 1 where it was positive, else 0.
            back = (back @ weights[at].T) * (entered > 0)
    return slopes


def train(
    x: Floats | Singles,
    y: Labels,
    *,
    classes: int = 10,
    epochs: int = 12,
    seed: int = 0,
    weights: Weights | None = None,
    step: float = STEP,
) -> Weights:
    """Adam over shuffled batches, from the given weights or from new ones.

    Parameters
    ----------
    x : array of shape (n, inputs)
        Records.
    y : int array of shape (n,)
        Classes.
    classes : int
        Number of classes.
    epochs : int
        Passes over the records.
    seed : int
        Seed of the order of the records, and of the first weights if none are given.
    weights : list of arrays, optional
        First weights.
    step : float
        Learning rate.
    """
    rng = np.random.default_rng(seed)
    x = np.ascontiguousarray(x, dtype=np.float32)
    weights = [each.copy() for each in (weights or start(x.shape[1], classes, seed))]
    mean, square, room, more = ([np.zeros_like(each) for each in weights] for _ in range(4))
    count = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            batch = order[at : at + BATCH]
            count += 1
            # Adam with the corrections for the zero start of both averages in the rate (Kingma and Ba 2015, section 2).
            rate = np.float32(step * math.sqrt(1 - _SECOND**count) / (1 - _FIRST**count))
            slopes = gradient(weights, x[batch], y[batch])
            # Written with preallocated arrays to avoid allocations in the inner loop.
            for w, g, m, s, a, b in zip(weights, slopes, mean, square, room, more, strict=True):
                m += np.multiply(1 - _FIRST, np.subtract(g, m, out=a), out=a)
                s += np.multiply(1 - _SECOND, np.subtract(np.multiply(g, g, out=a), s, out=a), out=a)
                np.add(np.sqrt(s, out=a), _SMALL, out=a)
                w -= np.divide(np.multiply(rate, m, out=b), a, out=a)
    return weights


def logits(weights: Weights, x: Floats | Singles) -> Singles:
    """Logits of records, shape (n, classes)."""
    return _layers(weights, np.asarray(x, dtype=np.float32))[-1]


def accuracy(weights: Weights, x: Floats | Singles, y: Labels) -> float:
    """Share of records whose most likely class is correct."""
    return float(np.mean(np.argmax(logits(weights, x), axis=1) == y))
