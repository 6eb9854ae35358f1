"""Linear and logistic regression by the methods of the capeFM paper, and by the strongest methods on pooled data.

**Public or synthetic data only.** capeFM and its forms are the program `cape-fm`, rehearsed
(`zerosum.papers.rehearsal`). The other methods have all data at the coordinator and are plain NumPy functions: the
noise comes from a seeded generator, and no ledger is charged. Data are prepared as in the papers: rows of norm at most
1, responses in [-1, 1] (linear) or {0, 1} (logistic), sites of equal size. That preparation (divide by the largest
norm) is not private.

| method | sees data | noise | as published |
|---|---|---|---|
| non-private | coordinator | none | |
| cape-fm | no party | Gaussian on Lambda_0, Lambda_1, Lambda_2 | costs more than claimed (`functional`) |
| cape-fm-ridge | no party | the same, minimised with our ridge | the same |
| pooled-fm | coordinator | the same (Algorithm 3) | 1.5 or 1.25 times the claimed mu |
| conv, single-site | each site its own | the same | 1.5 or 1.25 times the claimed mu |
| dp-fm | coordinator | Laplace on the coefficients | far more noise than needed (`functional`) |
| objective-perturbation | coordinator | random linear term in the objective | not private for squared loss
(`objective`) |
| adassp | coordinator | Gaussian on X'X, X'y and the smallest eigenvalue | see `adassp_epsilon` |
| dp-gd | coordinator | Gaussian on the gradient of every round | none: accounted exactly here |

`fit` runs a method at the published calibration or at one that costs the given epsilon. `exact_epsilon` gives the cost
of the published one. Neighbouring data sets have one record replaced.
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
from zerosum.papers.methods.functional import Model
from zerosum.papers.methods.records import Records
from zerosum.papers.programs import CapeFMProgram
from zerosum.papers.rehearsal import PublicData, published_tau

Calibration = Literal["exact", "published"]

METHODS = (
    *functional.SCHEMES,
    "dp-fm",
    "objective-perturbation",
    "adassp",
    "dp-gd",
)
# Methods without a logistic form.
LINEAR_ONLY = ("adassp",)
# Squared joint sensitivity of AdaSSP's three releases. z z' for z = (x, y/sqrt 2) contains X'X and X'y, so that these
# move by at most sqrt(2) 3/2. The smallest eigenvalue moves by at most 1, the spectral norm of the difference of two x
# x'.
ADASSP_SQUARED = 5.5


class Sites:
    """Records of several sites as every method receives them.

    Parameters
    ----------
    model : "linear" or "logistic"
        Kind of regression.
    sites : sequence of Records
        Data of the sites, all of equal size.
    """

    def __init__(self, model: Model, sites: Sequence[Records]) -> None:
        _check(model, sites)
        self.model, self.sites, self.everyone = model, tuple(sites), Records.joined(sites)
        rows = [np.column_stack([site.x, site.y]) for site in sites]
        self._data, self._first = PublicData(rows), PublicData(rows[:1])

    def functional(self, method: str, tau: float, rng: np.random.Generator) -> Floats:
        """Coefficients by a form of capeFM, a name in `functional.SCHEMES`, with noise `tau` for sensitivity 1."""
        columns = self.everyone.x.shape[1]
        # The program maps a response from its range to [-1, 1]; -1 and 1 stand for the logistic classes 0 and 1.
        lower = np.append(-np.ones(columns), -1.0 if self.model == "linear" else 0.0)
        program = CapeFMProgram(
            columns=(*(f"x{i}" for i in range(columns)), "response"),
            lower=lower,
            upper=np.ones(columns + 1),
            clip=1.0,
            model=self.model,
            minimiser="ridge" if method == "cape-fm-ridge" else "stationary",
        )
        data = self._first if method in functional.ONE_SITE_METHODS else self._data
        return np.asarray(data.rehearse(program, functional.SCHEMES[method], tau, rng)["coefficients"])


def fit(
    method: str,
    sites: Sites,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    *,
    calibration: Calibration = "exact",
    colluders: int = 1,
    rounds: int = 100,
    momentum: float = 0.0,
    rate: float = 1.0,
    bound: float = 1.0,
) -> Floats:
    """Coefficients by a method.

    Parameters
    ----------
    method : str
        A name in `METHODS`.
    sites : Sites
        Data of the sites.
    epsilon, delta : float
        Budget: claimed (published calibration) or exact.
    rng : Generator
        Source of the noise.
    calibration : "exact" or "published"
        How the noise is chosen.
    colluders : int
        Colluding sites.
    rounds, momentum, rate, bound : int, float
        Settings of dp-gd (`descend`).
    """
    model, everyone = sites.model, sites.everyone
    _known(method, model)
    exactly = calibration == "exact"
    if method in functional.SCHEMES:
        tau = published_tau(epsilon, delta)
        if exactly:
            tau = functional.tau_for_exact(method, model, epsilon, delta, len(sites.sites), colluders)
        return sites.functional(method, tau, rng)
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
            mu = accountant.mu_for(epsilon, delta)
            return descend(model, everyone, mu, rounds, rng, momentum=momentum, rate=rate, bound=bound)


def exact_epsilon(
    method: str, model: Model, epsilon: float, delta: float, *, sites: int, colluders: int, columns: int
) -> float:
    """Cost of the published calibration for `epsilon` at delta: exact for the Gaussian functional mechanism and
    gradient descent, an upper bound for the others.

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


def non_private(sites: Sites) -> Floats:
    """Minimum of the mean loss of all records."""
    everyone = sites.everyone
    if sites.model == "linear":
        return np.asarray(np.linalg.lstsq(everyone.x, everyone.y, rcond=None)[0])
    return objective.minimise(objective.logistic, everyone, np.zeros(everyone.x.shape[1]), 0.0)


# ---- AdaSSP ---------------------------------------------------------------------------------------------------------


def adassp(
    sample: Records, noise: float, delta: float, rng: np.random.Generator, *, isometric: bool, failure: float = 0.05
) -> Floats:
    """Wang 2018, Algorithm 2: least squares from noisy X'X and X'y, with a ridge that adapts to the smallest
    eigenvalue.

    `noise` is that of all three releases. Wang adds it to the entries on and above the diagonal. In isometric
    coordinates those above it get sqrt 2 times less for the same privacy.
    """
    D = sample.x.shape[1]
    gram = sample.x.T @ sample.x
    smallest = float(np.linalg.eigvalsh(gram)[0]) + noise * rng.standard_normal()
    # A lower bound of the smallest eigenvalue that holds with high probability: too large a value would make the ridge
    # too small for the noise.
    smallest = max(0.0, smallest - math.sqrt(math.log(6 / delta)) * noise)
    # Wang 2018, Algorithm 2: the spectral norm of the noise is below this root with probability 1 - failure. No ridge
    # is needed where the data's own curvature exceeds it.
    ridge = max(0.0, math.sqrt(D * math.log(2 * D * D / failure)) * noise - smallest)
    drawn = noise * rng.standard_normal((D, D))
    # In isometric coordinates an entry off the diagonal counts sqrt(2)-fold in the Frobenius norm, which bounds the
    # change.
    above = np.triu(drawn, 1) / (math.sqrt(2) if isometric else 1.0)
    gram = gram + above + above.T + np.diag(np.diag(drawn)) + ridge * np.eye(D)
    return np.asarray(np.linalg.lstsq(gram, sample.x.T @ sample.y + noise * rng.standard_normal(D), rcond=None)[0])


def adassp_epsilon(epsilon: float, delta: float) -> float:
    """Cost of Wang's calibration for a replaced record.

    Wang's noise, 3 sqrt(ln(6/delta))/epsilon on each of three releases, is for an added or removed record, which moves
    each by at most 1. A replaced record moves them by `ADASSP_SQUARED`. At small epsilon the formula has enough slack
    for that, at large epsilon it has not.

    >>> round(adassp_epsilon(1.0, 1e-5), 3), round(adassp_epsilon(10.0, 1e-5), 3)
    (0.783, 10.89)
    """
    return accountant.epsilon(math.sqrt(ADASSP_SQUARED) / _adassp_noise(epsilon, delta, exactly=False), delta)


def _adassp_noise(epsilon: float, delta: float, exactly: bool) -> float:
    """Noise of each release: exact for a replaced record, or Wang's."""
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    if exactly:
        return math.sqrt(ADASSP_SQUARED) / accountant.mu_for(epsilon, delta)
    return 3 * math.sqrt(math.log(6 / delta)) / epsilon


# ---- gradient descent -----------------------------------------------------------------------------------------------


def descend(
    model: Model,
    sample: Records,
    mu: float,
    rounds: int,
    rng: np.random.Generator,
    *,
    momentum: float = 0.0,
    rate: float = 1.0,
    bound: float = 1.0,
) -> Floats:
    """Full-batch gradient descent from 0 with noise in every round. mu^2 adds up over rounds, which is exact.

    A record's gradient is x times a residual that is clipped to `bound`, so that the mean moves by 2 bound/n. The step
    is `rate` times the inverse of the largest possible curvature, which is stable up to 2; above it clipped residuals
    keep the steps finite. In flat directions signal and noise depend only on rounds rate/(1 - momentum), so that
    momentum saves rounds. In steep directions it adds noise.
    """
    amounts.check_count("the number of rounds", rounds)
    x, y = sample.x, sample.y
    n, D = x.shape
    # Sensitivity 2 bound/n over the mu of one of `rounds` equal releases, mu/sqrt(rounds).
    noise = 2 * bound * math.sqrt(rounds) / (mu * n)
    w, velocity = np.zeros(D), np.zeros(D)
    for _ in range(rounds):
        # Clipping bounds the slope of the squared loss, which has no bound of its own; the logistic slope lies in (-1,
        # 1).
        slope = np.clip(x @ w - y if model == "linear" else objective.logistic(x @ w, y)[1], -bound, bound)
        gradient = slope @ x / n + noise * rng.standard_normal(D)
        # 1/c is the step: rows of norm 1 give the mean loss a curvature of at most c.
        velocity = momentum * velocity - rate * gradient / objective.CURVATURE[model]
        w = w + velocity
    return w


# ---- validation -----------------------------------------------------------------------------------------------------


def _known(method: str, model: Model) -> None:
    """Raise `BadParameter` for unknown combinations of method and model."""
    if method not in METHODS:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    if model != "linear" and method in LINEAR_ONLY:
        raise BadParameter(f"{method} is for linear regression only")


def _check(model: Model, sites: Sequence[Records]) -> None:
    """Check the data."""
    if len({len(site.x) for site in sites}) != 1:
        raise BadParameter("the papers' methods need one or more sites of equal size")
    for site in sites:
        if np.max(np.einsum("ij,ij->i", site.x, site.x)) > 1 + 1e-9:
            raise BadData("the papers' methods need rows of norm at most 1")
        if model == "linear" and np.max(np.abs(site.y)) > 1 + 1e-9:
            raise BadData("the papers' methods need responses in [-1, 1]")
        if model == "logistic" and not np.all((site.y == 0) | (site.y == 1)):
            raise BadData("logistic regression needs responses 0 and 1")
