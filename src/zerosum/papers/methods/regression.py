"""Linear and logistic regression by every method the capeFM paper compares, and by the strongest pooled peers.

**Public or synthetic data only.** These are plain NumPy functions: the noise comes from a seeded generator and nothing
is charged to a ledger. Data come as the papers prepare them: rows of norm at most 1, responses in [-1, 1] (linear) or
{0, 1} (logistic), sites of equal size. That preparation (divide by the largest norm) is not private.

| method | who sees data | noise | as published |
|---|---|---|---|
| non-private | coordinator | none | |
| cape-fm | nobody | Gaussian on Lambda_0, Lambda_1, Lambda_2 | worth more than it says (`functional`) |
| cape-fm-ridge | nobody | the same, minimised with our ridge | the same |
| pooled-fm | coordinator | the same (Algorithm 3) | 1.5 or 1.25 times the mu it says |
| conv, single-site | each site its own | the same | 1.5 or 1.25 times the mu it says |
| dp-fm | coordinator | Laplace on the coefficients | far more than needed (`functional`) |
| objective-perturbation | coordinator | a random tilt of the objective | not private for squared loss (`objective`) |
| adassp | coordinator | Gaussian on X'X, X'y and the smallest eigenvalue | see `adassp_epsilon` |
| dp-gd | coordinator | Gaussian on the gradient of every round | none: it is accounted exactly here |

`fit` runs one at the published calibration or at one that is worth the given epsilon; `exact_epsilon` says what the
published one is worth. A neighbour has one record replaced.

Tested in tests/papers/methods/test_regression_methods.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.kernel import accountant, amounts
from zerosum.papers.methods import functional, objective
from zerosum.papers.methods.functional import Model, Sample

Calibration = Literal["exact", "published"]

METHODS = (
    *functional.SCHEMES,
    "dp-fm",
    "objective-perturbation",
    "adassp",
    "dp-gd",
)
LINEAR_ONLY = ("adassp",)
#: The squared joint sensitivity of AdaSSP's three releases: a z z' for z = (x, y/sqrt 2) has X'X and X'y in it, so that
#: these move by sqrt(2) 3/2 at most, and the smallest eigenvalue by 1 (|x x' - x' x''| <= 1 in spectral norm).
ADASSP_SQUARED = 5.5


def fit(
    method: str,
    model: Model,
    sites: Sequence[Sample],
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    *,
    calibration: Calibration = "exact",
    colluders: int = 1,
    rounds: int = 100,
    momentum: float = 0.0,
) -> Floats:
    """The coefficients that a method finds; `rounds` and `momentum` are those of dp-gd."""
    _check(method, model, sites)
    exactly = calibration == "exact"
    if method in functional.SCHEMES:
        tau = functional.published_tau(epsilon, delta)
        if exactly:
            tau = functional.tau_for_exact(method, model, epsilon, delta, len(sites), colluders)
        polynomial, entry = functional.noisy(method, model, sites, tau, rng)
        return (
            functional.repaired(polynomial, entry) if method == "cape-fm-ridge" else functional.stationary(polynomial)
        )
    everyone = Sample.pooled(sites)
    D = everyone.x.shape[1]
    match method:
        case "dp-fm":
            scale = functional.dp_fm_sensitivity(model, D) / epsilon
            if exactly:
                scale = functional.dp_fm_scale(model, D, epsilon, delta)
            return functional.dp_fm(model, everyone, scale, rng)
        case "objective-perturbation":
            if exactly:
                return objective.sound(model, everyone, epsilon, delta, rng)
            return objective.published(model, everyone, epsilon, rng)
        case "adassp":
            return adassp(everyone, _adassp_noise(epsilon, delta, exactly), delta, rng, isometric=exactly)
        case _:
            return descend(model, everyone, accountant.mu_for(epsilon, delta), rounds, rng, momentum=momentum)


def exact_epsilon(
    method: str, model: Model, epsilon: float, delta: float, *, sites: int, colluders: int, columns: int
) -> float:
    """What the published calibration for `epsilon` is worth at delta: exactly for the Gaussian functional mechanism
    and gradient descent, at most for the others.

    >>> common = {"sites": 5, "colluders": 1, "columns": 20}
    >>> [round(exact_epsilon(m, "linear", 1.0, 1e-3, **common), 3) for m in ("cape-fm", "conv", "dp-fm", "adassp")]
    [1.496, 1.027, 0.004, 0.635]
    """
    _known(method, model)
    if method in functional.SCHEMES:
        return functional.exact_epsilon(method, model, epsilon, delta, sites, colluders)
    match method:
        case "dp-fm":
            return functional.dp_fm_epsilon(
                model, columns, functional.dp_fm_sensitivity(model, columns) / epsilon, delta
            )
        case "objective-perturbation":
            return objective.published_epsilon(model, epsilon)
        case "adassp":
            return adassp_epsilon(epsilon, delta)
        case _:
            return epsilon


def non_private(model: Model, sites: Sequence[Sample]) -> Floats:
    """The minimum of the average loss of all records."""
    everyone = Sample.pooled(sites)
    if model == "linear":
        return np.asarray(np.linalg.lstsq(everyone.x, everyone.y, rcond=None)[0])
    return objective.minimise(objective.logistic, everyone, np.zeros(everyone.x.shape[1]), 0.0)


# ---- AdaSSP ---------------------------------------------------------------------------------------------------------


def adassp(
    sample: Sample, noise: float, delta: float, rng: np.random.Generator, *, isometric: bool, failure: float = 0.05
) -> Floats:
    """Wang 2018, Algorithm 2: least squares from noisy X'X and X'y, whose ridge adapts to the smallest eigenvalue.

    `noise` is that of all three releases. Wang puts it on the entries on and above the diagonal; in isometric
    coordinates those above it get sqrt 2 times less for the same privacy.
    """
    D = sample.x.shape[1]
    gram = sample.x.T @ sample.x
    smallest = float(np.linalg.eigvalsh(gram)[0]) + noise * rng.standard_normal()
    smallest = max(0.0, smallest - math.sqrt(math.log(6 / delta)) * noise)
    ridge = max(0.0, math.sqrt(D * math.log(2 * D * D / failure)) * noise - smallest)
    drawn = noise * rng.standard_normal((D, D))
    above = np.triu(drawn, 1) / (math.sqrt(2) if isometric else 1.0)
    gram = gram + above + above.T + np.diag(np.diag(drawn)) + ridge * np.eye(D)
    return np.asarray(np.linalg.lstsq(gram, sample.x.T @ sample.y + noise * rng.standard_normal(D), rcond=None)[0])


def adassp_epsilon(epsilon: float, delta: float) -> float:
    """What Wang's calibration is worth where a record is replaced.

    Wang's noise, 3 sqrt(ln(6/delta))/epsilon on each of three releases, is for a record that is added or removed, which
    moves each by at most 1. A replaced one moves them by `ADASSP_SQUARED`. At small epsilon the formula has room enough
    for that; at large it has not.

    >>> round(adassp_epsilon(1.0, 1e-5), 3), round(adassp_epsilon(10.0, 1e-5), 3)
    (0.783, 10.89)
    """
    return accountant.epsilon(math.sqrt(ADASSP_SQUARED) / _adassp_noise(epsilon, delta, exactly=False), delta)


def _adassp_noise(epsilon: float, delta: float, exactly: bool) -> float:
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    if exactly:
        return math.sqrt(ADASSP_SQUARED) / accountant.mu_for(epsilon, delta)
    return 3 * math.sqrt(math.log(6 / delta)) / epsilon


# ---- gradient descent -----------------------------------------------------------------------------------------------


def descend(
    model: Model, sample: Sample, mu: float, rounds: int, rng: np.random.Generator, *, momentum: float = 0.0
) -> Floats:
    """Full-batch gradient descent from 0 with noise in every round: mu^2 adds up over rounds, and that is exact.

    A record's gradient is x times a residual of size at most 1 (clipped, in linear regression), so that the average
    moves by 2/n. A step is one over the largest curvature there can be, which is safe. In flat directions signal and
    noise depend on the rounds over 1 - momentum alone, so that momentum saves rounds; in steep ones it adds noise.
    """
    amounts.check_count("the number of rounds", rounds)
    x, y = sample.x, sample.y
    n, D = x.shape
    noise = 2 * math.sqrt(rounds) / (mu * n)
    w, velocity = np.zeros(D), np.zeros(D)
    for _ in range(rounds):
        slope = np.clip(x @ w - y, -1, 1) if model == "linear" else objective.logistic(x @ w, y)[1]
        gradient = slope @ x / n + noise * rng.standard_normal(D)
        velocity = momentum * velocity - gradient / objective.CURVATURE[model]
        w = w + velocity
    return w


# ---- what cannot be -------------------------------------------------------------------------------------------------


def _known(method: str, model: Model) -> None:
    if method not in METHODS:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    if model != "linear" and method in LINEAR_ONLY:
        raise BadParameter(f"{method} is for linear regression only")


def _check(method: str, model: Model, sites: Sequence[Sample]) -> None:
    _known(method, model)
    if len({len(site.x) for site in sites}) != 1:
        raise BadParameter("the papers' methods need one or more sites of equal size")
    for site in sites:
        if np.max(np.einsum("ij,ij->i", site.x, site.x)) > 1 + 1e-9:
            raise BadData("the papers' methods need rows of norm at most 1")
        if model == "linear" and np.max(np.abs(site.y)) > 1 + 1e-9:
            raise BadData("the papers' methods need responses in [-1, 1]")
        if model == "logistic" and not np.all((site.y == 0) | (site.y == 1)):
            raise BadData("logistic regression needs responses 0 and 1")
