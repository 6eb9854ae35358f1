"""From noisy gradients and Hessians to coefficients with error bars: what the coordinator computes for free.

A look at the data is a gradient g and a Hessian H of the mean log-likelihood at a point w, each with independent normal
noise of known size (H in isometric coordinates, so that noise E times a vector d has covariance (s^2/2)(|d|^2 I + d d')
for s the noise of an entry). With w* the maximum, g = H (w* - w) up to what a quadratic leaves out.

Tested in tests/algorithms/test_regression.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats

_LEVELS = {"90": 1.6448536269514722, "95": 1.959963984540054}  # two-sided quantiles of the normal law
_TURNS = 6  # of the fixed points below; they settle in three


@dataclass(frozen=True, eq=False)
class Look:
    """A gradient and a Hessian, as means over units, where they were taken, and the noise of an entry of each."""

    at: Floats
    gradient: Floats
    hessian: Floats
    gradient_noise: float
    hessian_noise: float


def combined(looks: Sequence[Look], bend: float = 0.0) -> Look:
    """Several looks as one, at the point of the last, weighed by what each is worth there.

    A gradient is carried from w to the last point by the mean of the Hessians at both (the trapezoidal rule). What that
    leaves out is of third order: `bend` times the cube of the root of d'H d, d the way between the two, counts as
    further noise, and so does the noise of the Hessians along d.
    """
    last = looks[-1]
    gradients, variances = [], []
    for look in looks:
        way = last.at - look.at
        hessian = (look.hessian + last.hessian) / 2
        gradients.append(look.gradient - hessian @ way)
        left_out = bend * max(float(way @ hessian @ way), 0.0) ** 1.5
        blurred = (look.hessian_noise**2 + last.hessian_noise**2) / 8 * float(way @ way)
        variances.append(look.gradient_noise**2 + blurred + left_out**2)
    if not min(variances) > 0:  # no noise: the last look is exact
        return last
    weights = 1 / np.array(variances)
    weights = weights / np.sum(weights)
    return Look(
        last.at,
        np.asarray(weights @ np.array(gradients)),
        np.asarray(sum(w * look.hessian for w, look in zip(weights, looks, strict=True))),
        math.sqrt(float(weights**2 @ np.array(variances))),
        math.sqrt(float(weights**2 @ np.array([look.hessian_noise**2 for look in looks]))),
    )


@dataclass(frozen=True, eq=False)
class Belief:
    """A normal law over coefficients."""

    mean: Floats
    covariance: Floats


def believed(look: Look, prior: float, sampling: float = 0.0, slope: float = 1.0) -> Belief:
    """What a look says about the maximum when coefficients were normal about zero with standard deviation `prior`.

    In the eigenvectors of H, g = e d + noise of variance s^2 = gradient_noise^2 + (hessian_noise^2/2)(|d|^2 + its own
    uncertainty), which is iterated. Eigenvalues below the edge of the noise, its standard deviation times
    sqrt(columns/2), say nothing, those near it less than they seem to, and the prior is left: no direction is ever
    divided by noise.
    `sampling` is the variance of one unit's gradient over the Hessian, divided by the number of units: zero for what
    the pooled data would give, the dispersion over N for the population. `slope` is by how much clipping residuals
    flattens the gradient.
    """
    values, vectors = np.linalg.eigh(look.hessian)
    columns = len(values)
    edge = look.hessian_noise * math.sqrt(columns / 2)
    raised = np.maximum(values, max(edge, 1e-300))
    signal = slope * raised * np.sqrt(np.maximum(1 - (edge / raised) ** 4, 0.0)) * (values > 0)
    gradient, back = vectors.T @ look.gradient, vectors.T @ -look.at
    step, spread = np.zeros(columns), np.zeros(columns)
    sampled = sampling * np.maximum(values, 0.0)
    for _ in range(_TURNS):
        noise = look.gradient_noise**2 + look.hessian_noise**2 / 2 * (step @ step + np.sum(spread)) + sampled
        if not np.all(noise > 0):  # no noise at all: an exact step where there is a Hessian
            precise = signal > 1e-12 * max(float(np.max(signal)), 1e-300)
            step = np.where(precise, gradient / np.where(precise, signal, 1.0), 0.0)
            return Belief(look.at + vectors @ step, np.zeros((columns, columns)))
        precision = signal**2 / noise + prior**-2
        step = (signal * gradient / noise + back / prior**2) / precision
        spread = 1 / precision
    return Belief(look.at + vectors @ step, (vectors * spread) @ vectors.T)


def unclipped(mean_square: float, bound: float) -> float:
    """The share of normal residuals within `bound`, from the mean square of those clipped to it.

    >>> unclipped(1.0, 10.0)
    1.0
    >>> round(unclipped(0.516, 1.0), 3)  # standard normal residuals clipped at 1
    0.683
    """
    ratio = min(max(mean_square / bound**2, 1e-12), 0.9)

    def clipped_square(cut: float) -> float:  # over the square of the cut, for a standard normal
        density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
        inside = math.erf(cut / math.sqrt(2))
        return (inside - 2 * cut * density) / cut**2 + (1 - inside)

    low, high = 1e-3, 1e7
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if clipped_square(middle) > ratio else (low, middle)
    return math.erf(low / math.sqrt(2))


def table(mean: Floats, pooled: Floats, population: Floats, known: Floats) -> dict[str, Floats]:
    """Standard errors and intervals of both kinds, and which coefficients are identified (1) at this budget.

    `known` is how well coefficients would be known without any data: one is not identified when the noise leaves more
    than half of that.
    """
    found: dict[str, Floats] = {}
    for kind, covariance in (("pooled", pooled), ("population", population)):
        std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        found[f"{kind}_std"] = std
        for level, quantile in _LEVELS.items():
            found[f"{kind}_interval_{level}"] = np.stack([mean - quantile * std, mean + quantile * std], axis=1)
    found["identified"] = (found["pooled_std"] <= known / 2).astype(np.float64)
    return found
