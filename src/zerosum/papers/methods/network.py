"""Neural network of the capeFM paper (section 5.1) under its schemes, as published and at an exact epsilon.

**Public or synthetic data only**, as in all of `zerosum.papers`: plain NumPy, noise from a seeded generator.

A network with one hidden layer of rectified units and a sigmoid output separates two normal classes of unit variance,
"means are separated by 1", by gradient descent over S = 4 sites. The paper does not state whether the distance is 1 in
norm (a hard task: the Bayes classifier is right for 69 %) or 1 in each of the 50 coordinates (an easy one); both are
here. It does not state hidden units, iterations and step either. Here they are 16, 25 and 0.5 with momentum 0.9, found
on other draws.

**As published** every gradient (of W1, b1, W2 and b2) gets noise tau = Delta/epsilon sqrt(2 log(1.25/0.01)) in every
iteration, "Delta the L2 sensitivity of the corresponding gradient". For a rectified network there is no such bound
unless gradients are clipped, which the paper does not mention. Here each example's gradient of each tensor is clipped
to norm 1, so that Delta = 2/n. The paper's epsilon is that of one tensor in one iteration at delta 0.01. Four tensors
are released together (2 times the mu), in every iteration (sqrt(T) times), to a coordinator with a colluding site,
which knows its own draws. `exact_epsilon` gives the total.

**Exactly**, gradients are clipped over all tensors together, and the noise makes the whole training cost epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.calculator import Cost, account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition
from zerosum.papers.rehearsal import published_tau

Calibration = Literal["exact", "published"]
Reading = Literal["norm", "coordinate"]

# Scheme to the kernel's scheme with the same noise law. The secure sum is ours.
SCHEMES = {"cape": "cape-published", "conv": "local", "pooled": "pooled", "secure-sum": "secure-sum"}
# Schemes of the paper.
PUBLISHED = ("cape", "conv", "pooled")
METHODS = (*SCHEMES, "non-private")
# Inputs, hidden units, iterations, step and momentum; see the module docstring.
COLUMNS, HIDDEN, ITERATIONS, STEP, MOMENTUM = 50, 16, 25, 0.5, 0.9
# delta of the paper, for one tensor in one iteration.
PUBLISHED_DELTA = 0.01
# W1, b1, W2 and b2.
_TENSORS = 4
_SCALE = 2 / math.sqrt(COLUMNS)  # public scale of inputs, which then have norm about 2


@dataclass(frozen=True, eq=False)
class Classes:
    """Examples of two classes."""

    x: Floats
    y: Floats

    @staticmethod
    def drawn(reading: Reading, count: int, seed: int) -> Classes:
        """Normal classes of unit variance, one at 0 and one at distance 1 in norm or in every coordinate."""
        rng = np.random.default_rng(seed)
        apart = 1.0 if reading == "coordinate" else 1 / math.sqrt(COLUMNS)
        y = rng.integers(0, 2, count).astype(np.float64)
        return Classes(rng.standard_normal((count, COLUMNS)) + apart * y[:, None], y)


Tensors = list[Floats]


def start(rng: np.random.Generator) -> Tensors:
    """Initial weights, which are public."""
    first = rng.normal(0, math.sqrt(2 / COLUMNS), (COLUMNS, HIDDEN))
    return [first, np.zeros(HIDDEN), rng.normal(0, math.sqrt(1 / HIDDEN), HIDDEN), np.zeros(1)]


def accuracy(weights: Tensors, data: Classes) -> float:
    """Share of correct classes."""
    first, bias, second, constant = weights
    out = np.maximum(_SCALE * data.x @ first + bias, 0) @ second + constant
    return float(np.mean((out > 0) == (data.y > 0.5)))


def gradients(weights: Tensors, data: Classes, clip: Literal["all", "each"] | None) -> Tensors:
    """Sum over examples of gradients clipped to norm 1: over all tensors together, each tensor separately, or not
    (None)."""
    first, bias, second, constant = weights
    x = _SCALE * data.x
    Z = x @ first + bias
    A = np.maximum(Z, 0)
    e = 1 / (1 + np.exp(-(A @ second + constant))) - data.y
    B = (Z > 0) * second * e[:, None]
    # The gradient of an example is an outer product, so its squared norm is the product of two squared norms.
    b, a, r, q = (np.einsum("ij,ij->i", each, each) for each in (B, A, e[:, None], x))
    squares = [b * q, b, r * a, r]
    if clip == "all":
        squares = [np.sum(squares, axis=0)] * _TENSORS
    factors = [np.ones(len(x)) if clip is None else np.minimum(1, 1 / np.sqrt(np.maximum(s, 1e-300))) for s in squares]
    return [
        x.T @ (B * factors[0][:, None]),
        np.sum(B * factors[1][:, None], axis=0),
        A.T @ (e * factors[2]),
        np.array([e @ factors[3]]),
    ]


def cost(method: str, calibration: Calibration, epsilon: float, delta: float, sites: int, colluders: int) -> Cost:
    """Cost of the whole training and noise of a sum of gradients, for `epsilon` in all (exact) or, as in the paper, for
    one tensor in one iteration (published). A replaced example moves a clipped gradient by at most 2."""
    if method not in SCHEMES or (calibration == "published" and method not in PUBLISHED):
        raise BadParameter(f"there is no {calibration} calibration of {method!r}")
    scheme, coalition, all_steps = Scheme(SCHEMES[method]), Coalition(colluders), 2 * math.sqrt(ITERATIONS)
    if calibration == "exact":
        return account(scheme, sites=sites, coalition=coalition, sensitivity=all_steps, delta=delta, epsilon=epsilon)
    tau, joint = 2 * published_tau(epsilon, PUBLISHED_DELTA), math.sqrt(_TENSORS) * all_steps
    return account(scheme, sites=sites, coalition=coalition, sensitivity=joint, delta=delta, tau=tau)


def exact_epsilon(
    method: str, calibration: Calibration, epsilon: float, delta: float, sites: int = 4, colluders: int = 1
) -> float:
    """Exact epsilon of the training at delta.

    >>> [round(exact_epsilon(each, "published", 0.5, 1e-5), 1) for each in ("cape", "conv")]
    [11.2, 7.7]
    """
    return cost(method, calibration, epsilon, delta, sites, colluders).epsilon


def train(
    method: str,
    data: Classes,
    epsilon: float,
    delta: float,
    seed: int,
    *,
    calibration: Calibration = "exact",
    sites: int = 4,
    colluders: int = 1,
) -> Tensors:
    """Weights after gradient descent under a scheme, with the examples divided equally among the sites."""
    rng = np.random.default_rng(seed)
    weights, velocity = start(rng), [np.zeros(1)] * _TENSORS
    private = method != "non-private"
    noise = cost(method, calibration, epsilon, delta, sites, colluders).noise_std if private else 0.0
    clip: Literal["all", "each"] | None = None
    if private:
        clip = "all" if calibration == "exact" else "each"
    for _ in range(ITERATIONS):
        found = gradients(weights, data, clip)
        noisy = [(each + noise * rng.standard_normal(each.shape)) / len(data.y) for each in found]
        velocity = [MOMENTUM * speed + each for speed, each in zip(velocity, noisy, strict=True)]
        weights = [each - STEP * speed for each, speed in zip(weights, velocity, strict=True)]
    return weights
