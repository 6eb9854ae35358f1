"""Gaussian mixtures by tensor decomposition as published (capeAGN and its competitors), for reproduction runs.

**Public or synthetic data only.** Plain NumPy functions: noise comes from a seeded generator, and no ledger is charged.
Rows must have norm at most 1 (the papers divide by the largest norm, which is not private) and a known variance v.

Noise `tau` is added to the distinct entries of the second moment tt' - v I and of the third moment t^3 - v c(t),
c(t)_ijk = t_i d_jk + t_j d_ik + t_k d_ij, before the tensor is whitened. Noise that cancels between sites is left out.
The noise that remains in the mean is tau/S for the cape forms (own noise tau/sqrt(S) at each of S sites), tau/sqrt(S)
for conv and tau for one site alone. The paper assumes sensitivities of 1/n and (2 + 6 D v)/n. The exact values for a
replaced row are:

**Second moment.** sqrt(2)/n (`methods.pca`). **Third moment.** f(t) = t^3 - v c(t) is odd, so its diameter is twice its
largest norm. With s = norm(t)^2, norm(c(t))^2 = (3 D + 6) s and <t^3, c(t)> = 3 s^2:

    norm(f(t))^2 = s^3 - 6 v s^2 + (3 D + 6) v^2 s,

whose derivative 3 s^2 - 12 v s + (3 D + 6) v^2 has the discriminant (72 - 36 D) v^2 <= 0 for D >= 2. It increases up to
s = 1, and the diameter is 2 sqrt(1 - 6 v + (3 D + 6) v^2). In one dimension the norm is |t^3 - 3 v t|, largest at t = 1
or where t^2 = v. Distinct entries are at most that far apart. If cancelling noise is not symmetric, a coalition that
averages permuted entries gains at most their multiplicity in the full tensor: the same diameter holds for every noise
law here. `exact_epsilon` composes both releases with it; AVN's tensor is purely epsilon-private, and its epsilon is
added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations_with_replacement, permutations

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.tensor import power_method
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import accountant, amounts
from zerosum.kernel.calculator import account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition

SECOND = math.sqrt(2)  # sensitivity of the second moment, times 1/n

# Method to the kernel's scheme with the same noise law; methods of one site alone have the noise of conv.
SCHEMES: dict[str, str] = {
    "cape-broadcast": "cape-published",
    "cape-helper": "cape-helper",
    "conv": "local",
    "agn": "local",
    "avn": "local",
}
METHODS = tuple(SCHEMES)
# Methods that use the first site only.
ALONE = ("agn", "avn")

Noises = tuple[float, float]  # tau of second moments and of tensors; for AVN the latter is the scale of the norm


# ---- sensitivities ---------------------------------------------------------------------------------------------------


def third_moment_diameter(columns: int, variance: float) -> float:
    """Largest distance of t^3 - v c(t) between two rows of norm at most 1: the sensitivity, times 1/n.

    >>> round(third_moment_diameter(50, 0.05), 4), round(published_third(50, 0.05), 4)
    (2.0881, 17.0)
    """
    square = 1 - 6 * variance + (3 * columns + 6) * variance**2
    if columns == 1 and variance < 1:
        square = max(square, 4 * variance**3)
    return 2 * math.sqrt(square)


def published_third(columns: int, variance: float) -> float:
    """The paper's sensitivity of the third moment, times 1/n."""
    return 2 + 6 * columns * variance


# ---- moments and their decomposition ---------------------------------------------------------------------------------


def second_moment(rows: Floats, variance: float) -> Floats:
    """Mean of t t' - v I, shape (D, D)."""
    return np.asarray(rows.T @ rows / len(rows) - variance * np.eye(rows.shape[1]))


def projected_third(rows: Floats, variance: float, W: Floats) -> Floats:
    """Mean of t^3 - v c(t) along the columns of W, shape (K, K, K), without forming the D^3 tensor."""
    seen = rows @ W
    K = W.shape[1]
    cubes = (seen.T @ (seen[:, :, None] * seen[:, None, :]).reshape(len(rows), -1)).reshape(K, K, K) / len(rows)
    mean, inner = seen.mean(axis=0), W.T @ W
    part = mean[:, None, None] * inner[None, :, :]
    return np.asarray(cubes - variance * (part + np.moveaxis(part, 0, 1) + np.moveaxis(part, 0, 2)))


def projected(entries: Floats, W: Floats) -> Floats:
    """Symmetric tensor with these distinct entries along the columns of W, shape (K, K, K), without forming the full
    tensor."""
    index, often = _layout(len(W))
    K = W.shape[1]
    total = np.zeros((K, K, K))
    for start in range(0, len(entries), 4096):
        at = slice(start, start + 4096)
        i, j, k = (W[rows[at]] for rows in index)
        pairs = (i * (entries[at] * often[at])[:, None])[:, :, None] * j[:, None, :]
        total += (pairs.reshape(-1, K * K).T @ k).reshape(K, K, K)
    return np.asarray(np.mean([total.transpose(axes) for axes in permutations(range(3))], axis=0))


@lru_cache(maxsize=4)
def _layout(columns: int) -> tuple[NDArray[np.intp], Floats]:
    """Indices i <= j <= k of distinct entries, and the multiplicity of each in the full tensor."""
    index = np.array(list(combinations_with_replacement(range(columns), 3)), dtype=np.intp).T
    equal = (index[0] == index[1]).astype(int) + (index[1] == index[2])
    return index, np.array([6.0, 3.0, 1.0])[equal]


def whitening(moment: Floats, K: int) -> tuple[Floats, Floats]:
    """W = U D^(-1/2) and U D^(1/2) of the K largest singular values."""
    if not 0 < K <= len(moment):
        raise BadParameter(f"between 1 and {len(moment)} components can be had, got {K}")
    values, vectors = np.linalg.eigh((moment + moment.T) / 2)
    top = np.argsort(-np.abs(values))[:K]
    roots = np.sqrt(np.maximum(np.abs(values[top]), 1e-300))
    return vectors[:, top] / roots, vectors[:, top] * roots


def decomposed(moment: Floats, tensor_along: Callable[[Floats], Floats], K: int, seed: int) -> tuple[Floats, Floats]:
    """Means (K x D) and weights from a second moment and a tensor along W: whitening, then the tensor power method with
    restarts and deflation."""
    W, back = whitening(moment, K)
    values, vectors = power_method(tensor_along(W), K, seed)
    # In whitened coordinates an eigenvalue is 1 / sqrt(weight of the component).
    weights = 1 / np.maximum(values, 1e-12) ** 2
    return (values[:, None] * vectors) @ back.T, weights / np.sum(weights)


# ---- the methods -----------------------------------------------------------------------------------------------------


def non_private(sites: Sequence[Floats], K: int, variance: float, seed: int = 0) -> Floats:
    """Means from all rows together, without noise."""
    rows = np.concatenate(sites)
    return decomposed(second_moment(rows, variance), lambda W: projected_third(rows, variance, W), K, seed)[0]


def random_vectors(columns: int, K: int, seed: int = 0) -> Floats:
    """Means without data: the worst case."""
    drawn = np.random.default_rng(seed).normal(size=(K, columns))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def private(method: str, sites: Sequence[Floats], K: int, variance: float, noises: Noises, seed: int) -> Floats:
    """Means by a method of `METHODS`. Those of `ALONE` use the first site only."""
    rows = sites[0] if method in ALONE else np.concatenate(sites)
    noise, entries = drawn_noise(method, len(sites), rows.shape[1], noises, np.random.default_rng(seed))
    moment = second_moment(rows, variance) + noise
    return decomposed(moment, lambda W: projected_third(rows, variance, W) + projected(entries, W), K, seed)[0]


def drawn_noise(
    method: str, sites: int, columns: int, noises: Noises, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Noise that remains in the mean: a symmetric matrix, and the distinct entries of a symmetric tensor."""
    stays = 1 / sites if method.startswith("cape") else 1 / math.sqrt(sites) if method == "conv" else 1.0
    upper = np.triu(stays * noises[0] * rng.standard_normal((columns, columns)))
    entries = rng.standard_normal(math.comb(columns + 2, 3))
    if method == "avn":  # density proportional to exp(-norm/scale): uniform direction, gamma-distributed norm
        entries *= noises[1] * rng.gamma(len(entries)) / np.linalg.norm(entries)
    else:
        entries *= stays * noises[1]
    return upper + np.triu(upper, 1).T, entries


# ---- privacy cost ----------------------------------------------------------------------------------------------------


def published_noises(method: str, epsilon: float, delta: float, records: int, columns: int, variance: float) -> Noises:
    """The paper's noise at a site of n records: half of epsilon and delta for each moment, by the classical formula.

    >>> [round(tau, 4) for tau in published_noises("conv", 1.0, 0.01, 1000, 50, 0.05)]
    [0.0066, 0.113]
    """
    _check(method, epsilon, delta, records)
    each = math.sqrt(2 * math.log(1.25 / (delta / 2))) / (epsilon / 2 * records)
    if method == "avn":
        return each, published_third(columns, variance) / (epsilon / 2 * records)
    return each, each * published_third(columns, variance)


def exact_epsilon(
    method: str, epsilon: float, delta: float, sites: int, colluders: int, columns: int, variance: float
) -> float:
    """Exact epsilon of a method at the published calibration for (epsilon, delta)."""
    tau2, tau3 = published_noises(method, epsilon, delta, 1, columns, variance)
    diameter = third_moment_diameter(columns, variance)
    first = mu_squared(method, SECOND, tau2, sites, colluders, delta)
    if method == "avn":
        return accountant.epsilon(math.sqrt(first), delta) + diameter / tau3
    second = mu_squared(method, diameter, tau3, sites, colluders, delta)
    return accountant.epsilon(math.sqrt(first + second), delta)


def noises_for_exact(
    method: str,
    epsilon: float,
    delta: float,
    sites: int,
    colluders: int,
    records: int,
    columns: int,
    variance: float,
) -> Noises:
    """Noise at which a method is exactly (epsilon, delta)-private, with mu^2 divided equally between the two releases.
    AVN uses half of epsilon for each."""
    _check(method, epsilon, delta, records)
    diameter = third_moment_diameter(columns, variance)
    if method == "avn":
        half = tau_for(method, SECOND, epsilon / 2, delta, sites, colluders)
        return half / records, diameter / (epsilon / 2 * records)
    pair = [tau_for(method, math.sqrt(2) * each, epsilon, delta, sites, colluders) for each in (SECOND, diameter)]
    return pair[0] / records, pair[1] / records


def mu_squared(method: str, sensitivity: float, tau: float, sites: int, colluders: int, delta: float) -> float:
    """mu^2 of one release at noise tau, by the exact view of its scheme."""
    scheme, coalition = Scheme(SCHEMES[method]), Coalition(colluders)
    return account(scheme, sites=sites, coalition=coalition, sensitivity=sensitivity, delta=delta, tau=tau).mu_squared


def tau_for(method: str, sensitivity: float, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Noise at which one release is exactly (epsilon, delta)-private."""
    scheme, coalition = Scheme(SCHEMES[method]), Coalition(colluders)
    cost = account(scheme, sites=sites, coalition=coalition, sensitivity=sensitivity, delta=delta, epsilon=epsilon)
    return cost.noise["tau"]


def _check(method: str, epsilon: float, delta: float, records: int) -> None:
    """Check method, budget and number of records."""
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    if method not in SCHEMES:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(SCHEMES)}")
    if records < 1:
        raise BadParameter(f"a method needs at least one record, got {records}")
