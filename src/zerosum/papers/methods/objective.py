"""Objective perturbation (Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 2) on pooled data, as published and sound.

The minimiser of   sum of loss(x'w, y)/n + <b, w>/n + (ridge/2) |w|^2   is released, with |x| <= 1 and a random b. The
theorem requires |loss'| <= 1 and loss'' <= c everywhere. b is a function of w and the data. For two data sets that
differ in a record the densities of w differ by those of b, which moves by at most 2, and by a determinant. The Hessian
is H = A + h x x' with A >= n ridge, so that the ratio of the determinants is at most 1 + c/(n ridge).

As published, without another regulariser, ridge = c/(n (e^(epsilon/4) - 1)) and b has density proportional to
e^(-epsilon |b|/4): epsilon/2 for b, and epsilon/2 for a determinant bounded by (1 + c/(n ridge))^2.

- Logistic loss (c = 1/4): the claim holds. The exact cost is 3/4 epsilon, as the determinant needs no square.
- Squared loss, as in the comparison of the capeFM paper: **the claim does not hold.** The slope x (x'w - y) is
  unbounded, b moves in proportion to the length of w, and the ratio of the densities is unbounded: no epsilon is valid
  at delta = 0. The exact epsilon is infinite.

The sound form (`calibration` "exact") spends epsilon/4 on the determinant and draws b ~ N(0, sigma^2 I). The records x
and x' span a plane that does not depend on b, in which b moves by v(w), |v| <= 2. With mu = 2/sigma the log ratio of
the densities, <b, v>/sigma^2 + |v|^2/(2 sigma^2), is at most mu R + mu^2/2, where R is the length of b in that plane
over sigma and P(R > t) = e^(-t^2/2). It exceeds mu^2/2 + mu sqrt(2 ln(1/delta)) with probability at most delta; this is
the epsilon of b. It is a bound, not an exact value. For linear regression the squared loss is replaced by sqrt(1 + r^2)
- 1 in the residual r, which is r^2/2 for small r and has slope and curvature at most 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel import amounts
from zerosum.papers.methods.functional import Model
from zerosum.papers.methods.records import Records

# Value, first and second derivative of the loss of every record, at x'w and y.
Loss = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]

# Largest second derivative c of the loss.
CURVATURE: dict[Model, float] = {"linear": 1.0, "logistic": 0.25}


def squared(margin: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Half the squared residual."""
    residual = margin - y
    return residual**2 / 2, residual, np.ones_like(residual)


def near_squared(margin: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """sqrt(1 + r^2) - 1: half the square of a small residual, with a slope below 1 everywhere."""
    residual = margin - y
    root = np.sqrt(1 + residual**2)
    return root - 1, residual / root, root**-3


def logistic(margin: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Negative log likelihood of y in {0, 1}."""
    from scipy.special import expit

    chance = expit(margin)
    return np.logaddexp(0, margin) - y * margin, chance - y, chance * (1 - chance)


def minimise(loss: Loss, sample: Records, tilt: Floats, ridge: float, rounds: int = 100) -> Floats:
    """Minimum of the mean loss + <tilt, w> + (ridge/2) |w|^2, by Newton's method with step halving."""
    x, y = sample.x, sample.y
    n, D = x.shape
    # Start at 0, where no record's loss is large: the functions are convex, and with a ridge the minimum is unique.
    w = np.zeros(D)

    def value(w: Floats) -> float:
        return float(np.mean(loss(x @ w, y)[0]) + tilt @ w + ridge / 2 * (w @ w))

    now = value(w)
    for _ in range(rounds):
        _, slope, curvature = loss(x @ w, y)
        gradient = x.T @ slope / n + tilt + ridge * w
        hessian = x.T @ (x * curvature[:, None]) / n + ridge * np.eye(D)
        # Least squares instead of a solver, for the Hessian without a ridge of separable or collinear records.
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        # twice the remaining decrease of the quadratic model (Newton decrement)
        if -float(gradient @ step) <= 1e-18 + 1e-15 * abs(now):
            return np.asarray(w + step)
        size = 1.0
        # The full step of Newton may overshoot where the logistic curvature is small. Halving keeps the objective from
        # rising; below 1e-10 rounding decides, and the step is taken.
        while (then := value(w + size * step)) > now and size > 1e-10:
            size /= 2
        now, w = then, w + size * step
    return w


def ridge_of(model: Model, epsilon: float, records: int) -> float:
    """Ridge for which the determinant costs epsilon/4 (published: epsilon/2)."""
    amounts.check_epsilon(epsilon)
    # From 1 + c/(n ridge) = exp(epsilon/4), solved for the ridge. expm1 keeps digits at small epsilon.
    return CURVATURE[model] / (records * math.expm1(epsilon / 4))


def published(model: Model, sample: Records, epsilon: float, rng: np.random.Generator) -> Floats:
    """With the published calibration, and the squared loss unchanged."""
    n, D = sample.x.shape
    direction = rng.standard_normal(D)
    # Density proportional to exp(-epsilon |b|/4): uniform direction, gamma-distributed norm.
    tilt = direction / np.linalg.norm(direction) * rng.gamma(D, 4 / epsilon) / n
    return minimise(logistic if model == "logistic" else squared, sample, tilt, ridge_of(model, epsilon, n))


def published_epsilon(model: Model, epsilon: float) -> float:
    """Exact epsilon of the published calibration, at delta = 0."""
    # Half of epsilon for b and, without the square, a quarter for the determinant; for the squared loss see the module.
    return 0.75 * epsilon if model == "logistic" else math.inf


def mu_of(epsilon: float, delta: float) -> float:
    """The mu of b for three quarters of epsilon: mu^2/2 + mu sqrt(2 ln(1/delta)) = 3 epsilon/4.

    >>> mu = mu_of(1.0, 1e-5)
    >>> round(mu * mu / 2 + mu * math.sqrt(2 * math.log(1e5)), 9)
    0.75
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    width = math.sqrt(2 * math.log(1 / delta))
    # The positive root of mu^2/2 + mu width - 3 epsilon/4.
    return math.sqrt(width**2 + 1.5 * epsilon) - width


def sound(model: Model, sample: Records, epsilon: float, delta: float, rng: np.random.Generator) -> Floats:
    """(epsilon, delta)-private estimate, by the proof in the module docstring."""
    n, D = sample.x.shape
    # Noise of standard deviation 2/mu for a b that moves by at most 2; divided by n, as the objective is a mean.
    tilt = 2 / mu_of(epsilon, delta) * rng.standard_normal(D) / n
    return minimise(logistic if model == "logistic" else near_squared, sample, tilt, ridge_of(model, epsilon, n))
