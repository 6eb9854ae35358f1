"""Neural network of the Data Collaboration paper (inputs-512-128-classes, rectified units) in NumPy, trained by Adam.

**Public or synthetic data only**, as in all of `zerosum.papers`.
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
    zero biases (He et al. 2015)."""
    rng, sizes = np.random.default_rng(seed), (inputs, *hidden, classes)
    found: Weights = []
    for before, after in itertools.pairwise(sizes):
        if normal:
            drawn = math.sqrt(2 / before) * rng.standard_normal((before, after))
            found += [drawn.astype(np.float32), np.zeros(after, dtype=np.float32)]
            continue
        end = 1 / math.sqrt(before)
        found += [rng.uniform(-end, end, shape).astype(np.float32) for shape in ((before, after), (after,))]
    return found


def _layers(weights: Weights, x: Singles) -> list[Singles]:
    """Inputs of every layer, and the logits last."""
    seen = [x]
    for at in range(0, len(weights), 2):
        out = seen[-1] @ weights[at] + weights[at + 1]
        seen.append(np.maximum(out, 0) if at + 2 < len(weights) else out)
    return seen


def gradient(weights: Weights, x: Singles, y: Labels) -> Weights:
    """Gradient of the mean cross-entropy."""
    seen = _layers(weights, x)
    # Subtracting the maximum avoids overflow of the exponential.
    logits = seen[-1] - seen[-1].max(axis=1, keepdims=True)
    back = np.exp(logits)
    back /= back.sum(axis=1, keepdims=True)
    back[np.arange(len(y)), y] -= 1
    back /= len(y)
    found: Weights = []
    for at in range(len(weights) - 2, -1, -2):
        entered = seen[at // 2]
        found = [entered.T @ back, back.sum(axis=0), *found]
        if at:
            back = (back @ weights[at].T) * (entered > 0)
    return found


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
    """Adam over shuffled batches, from the given weights or from new ones."""
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
            rate = np.float32(step * math.sqrt(1 - _SECOND**count) / (1 - _FIRST**count))
            found = gradient(weights, x[batch], y[batch])
            # Written with preallocated arrays to avoid allocations in the inner loop.
            for w, g, m, s, a, b in zip(weights, found, mean, square, room, more, strict=True):
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
