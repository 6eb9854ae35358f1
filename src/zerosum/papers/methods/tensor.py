"""Orthogonal tensor decomposition of capeAGN, AVN, and the noise and cost of capeAGN and its competitors.

capeAGN, conv and AGN are sums over sites: the programs `cape-agn-mixture` and `cape-agn-topics`
(`zerosum.papers.programs.tensor`) under the schemes of `SCHEMES`, which the figures rehearse
(`zerosum.papers.rehearsal`). AVN, whose noise on the tensor of one site is not normal, is a function here. **Public or
synthetic data only.**

Noise is stated for sums over the units of a site, of rows of norm at most 1. Half of epsilon and of delta is for the
second moment, half for the third. `mixture_claims` and `TOPIC_CLAIMS` are the sensitivities that the paper assumes; the
statistics of the programs have the exact ones (`zerosum.statistics.published`). `exact_epsilon` composes both releases.
AVN's tensor is purely epsilon-private, and its epsilon is added.

The paper's cancelling noise on a tensor is not symmetric while the own noise is. A coalition that averages permuted
entries reduces the variance of the cancelling noise of an entry by at most its multiplicity, so that the cost of that
form is bounded by the distance of whole tensors: sqrt(2) for topics, as for distinct entries, and 2 sqrt(1 - 6 v + (3 D
+ 6) v^2) for mixtures, at most 1 % more than for distinct entries at the figures' settings.
"""

from __future__ import annotations

import math

import numpy as np

from zerosum.algorithms import Algorithm, Estimate
from zerosum.algorithms.tensor import power_method
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.errors import BadParameter
from zerosum.kernel.request import Release, Request
from zerosum.kernel.statistic import Adjacency
from zerosum.papers import rehearsal

# Method to the scheme with the same noise law. A site alone has the noise of a trusted holder of its records.
SCHEMES: dict[str, str] = {
    "cape-broadcast": "cape-published",
    "cape-helper": "cape-helper",
    "conv": "local",
    "agn": "pooled",
    "avn": "pooled",
}
METHODS = tuple(SCHEMES)
# Methods that use the first site only.
ONE_SITE_METHODS = ("agn", "avn")

Pair = tuple[float, float]  # of the second and the third moment: sensitivities, or noise

# The paper's sensitivities of single topic models, which are exact.
TOPIC_CLAIMS: Pair = (math.sqrt(2), math.sqrt(2))


def mixture_claims(columns: int, variance: float) -> Pair:
    """The paper's sensitivities of mixtures, for rows of norm at most 1.

    >>> [round(each, 4) for each in mixture_claims(50, 0.05)]
    [1.0, 17.0]
    """
    return 1.0, 2 + 6 * columns * variance


# ---- decomposition ---------------------------------------------------------------------------------------------------


def whitening(moment: Floats, K: int) -> tuple[Floats, Floats]:
    """W = U D^(-1/2) and U D^(1/2) of the K largest singular values of a symmetric matrix, each (columns, K)."""
    if not 0 < K <= len(moment):
        raise BadParameter(f"between 1 and {len(moment)} components can be had, got {K}")
    # Singular values as in Algorithm 3 of capeAGN, line 7: with noise an eigenvalue may be negative, and the paper
    # takes its magnitude.
    values, vectors = np.linalg.eigh((moment + moment.T) / 2)
    top = np.argsort(-np.abs(values))[:K]
    roots = np.sqrt(np.maximum(np.abs(values[top]), 1e-300))
    return vectors[:, top] / roots, vectors[:, top] * roots


def decomposed(moment: Floats, tensor: Floats, K: int, seed: int) -> tuple[Floats, Floats]:
    """Components (K, D) and weights (K,) from a second moment (D, D) and a third moment (D, D, D): whitening, then the
    tensor power method with restarts and deflation."""
    W, back = whitening(moment, K)
    D = len(moment)
    # M3(W, W, W), one axis at a time: K D^3 multiplications where the sum over all indices at once has K^3 D^3.
    once = (W.T @ tensor.reshape(D, -1)).reshape(K, D, D)
    values, vectors = power_method(np.asarray(W.T @ once @ W), K, seed)
    # In whitened coordinates an eigenvalue is 1 / sqrt(weight of the component).
    weights = 1 / np.maximum(values, 1e-12) ** 2
    # a_k = l_k U D^(1/2) v_k: whitening is undone, and the eigenvalue restores the length.
    return (values[:, None] * vectors) @ back.T, weights / np.sum(weights)


def valid(topics: Floats) -> Floats:
    """Probability vectors as in the paper: negative entries become 0, then division by the sum; uniform if nothing
    remains.

    >>> valid(np.array([[2.0, -1.0, 2.0], [-1.0, -1.0, 0.0]])).round(4).tolist()
    [[0.5, 0.0, 0.5], [0.3333, 0.3333, 0.3333]]
    """
    # Not the projection on the simplex, which would keep fewer words: the paper's step.
    positive = np.maximum(topics, 0.0)
    sums = np.sum(positive, axis=1, keepdims=True)
    return np.where(sums > 0, positive / np.where(sums > 0, sums, 1.0), 1.0 / topics.shape[1])


# ---- AVN -------------------------------------------------------------------------------------------------------------


def avn(algorithm: Algorithm, data: Units, noise: Pair, rng: np.random.Generator) -> Estimate:
    """The estimate of a capeAGN program at one site with AVN's noise.

    Parameters
    ----------
    algorithm : Algorithm
        `cape-agn-mixture` or `cape-agn-topics`.
    data : Units
        Public or synthetic data of the site.
    noise : pair of float
        tau of the second moment, and b of the tensor: the noise of its distinct entries has a density proportional to
        exp(-norm/b), that is, a uniform direction and a gamma-distributed norm.
    rng : Generator
        Source of the noise.
    """
    answered = 0

    def answer(request: Request) -> Release:
        nonlocal answered
        tau, b = noise
        normal = rng.standard_normal(request.statistic.size)
        drawn = tau * normal if answered == 0 else b * rng.gamma(len(normal)) * normal / np.linalg.norm(normal)
        # The standard deviation of an entry: E[norm^2] = b^2 size (size + 1).
        std = tau if answered == 0 else b * math.sqrt(len(normal) + 1)
        answered += 1
        return Release(request.statistic.total(data) + drawn, std, float(len(data)), ("site 1",))

    return drive(algorithm.program(Adjacency.REPLACE_ONE), answer)[0]


# ---- privacy cost ----------------------------------------------------------------------------------------------------


def published_noise(method: str, epsilon: float, delta: float, claims: Pair) -> Pair:
    """The paper's noise of a site's sums: half of epsilon and delta for each moment, by the classical formula.

    >>> [round(each, 4) for each in published_noise("conv", 1.0, 0.01, mixture_claims(50, 0.05))]
    [6.6462, 112.985]
    """
    _scheme(method)
    # Equations (4) and (5) of capeAGN with n times the sensitivity of a mean, for sums.
    second, third = (rehearsal.published_tau(epsilon / 2, delta / 2, each) for each in claims)
    # AVN is a Laplace mechanism in L2 norm: scale = sensitivity/epsilon.
    return second, claims[1] / (epsilon / 2) if method == "avn" else third


def exact_epsilon(method: str, noise: Pair, delta: float, sensitivities: Pair, *, sites: int, colluders: int) -> float:
    """Exact epsilon of a method whose releases have this noise and these exact sensitivities.

    >>> noise, exact = published_noise("conv", 1.0, 0.01, mixture_claims(50, 0.05)), (math.sqrt(2), 1.8385)
    >>> round(exact_epsilon("conv", noise, 0.01, exact, sites=5, colluders=1), 3)
    0.289
    """
    # Each moment costs (sensitivity/noise)^2 in mu^2; pure epsilons add up beside it.
    ratios = [sensitivity / each for sensitivity, each in zip(sensitivities, noise, strict=True)]
    normal, pure = (ratios[:1], ratios[1]) if method == "avn" else (ratios, 0.0)
    # mu^2 is proportional to (sensitivity/tau)^2 and adds up over releases: they cost as one release of sensitivity 1.
    tau = 1 / math.hypot(*normal)
    return pure + rehearsal.exact_epsilon(_scheme(method), tau, delta, sites=sites, colluders=colluders)


def exact_noise(method: str, epsilon: float, delta: float, sensitivities: Pair, *, sites: int, colluders: int) -> Pair:
    """Noise of a site's sums at which a method is exactly (epsilon, delta)-private, with mu^2 divided equally between
    the two releases. AVN uses half of epsilon for each."""
    second, third = sensitivities
    scheme, avn_alone = _scheme(method), method == "avn"
    # Two releases of sensitivity 1 and equal noise cost as one of sensitivity sqrt(2).
    asked, releases = (epsilon / 2, 1) if avn_alone else (epsilon, 2)
    tau = rehearsal.exact_tau(scheme, asked, delta, sites=sites, colluders=colluders, sensitivity=math.sqrt(releases))
    return tau * second, third / (epsilon / 2) if avn_alone else tau * third


def _scheme(method: str) -> str:
    """The scheme of a method. Raises `BadParameter`."""
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    return SCHEMES[method]
