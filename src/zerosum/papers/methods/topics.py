"""Single topic model by tensor decomposition as published (capeAGN and its competitors).

**Public or synthetic data only.** As for mixtures (`methods.tensor`), with moments of the first three words of each
document: the mean of t_1 t_2' and of t_1 t_2 t_3 for unit vectors t, symmetrised over the order of words, with noise on
their distinct entries. Topics are made valid as in the paper: negative entries become 0, then entries are divided by
their sum.

**Sensitivities.** The paper has sqrt(2)/n for both, which is correct: contributions have no negative entries and norm
at most 1, so two are at most sqrt(2) apart, as for documents of one word each; symmetrising is a contraction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel import accountant
from zerosum.papers.methods import tensor

SENSITIVITY = math.sqrt(2)  # of both moments, times 1/n
METHODS = tensor.METHODS

Words = NDArray[np.intp]  # first three words of each document, one document per row


def second_moment(words: Words, columns: int) -> Floats:
    """Symmetrised mean of t_1 t_2', shape (columns, columns)."""
    moment = np.zeros((columns, columns))
    np.add.at(moment, (words[:, 0], words[:, 1]), 1.0 / len(words))
    return (moment + moment.T) / 2


def projected_third(words: Words, W: Floats) -> Floats:
    """Symmetrised mean of t_1 t_2 t_3 along the columns of W, shape (K, K, K), without forming the full tensor."""
    first, second, third = (W[words[:, at]] for at in range(3))
    K = W.shape[1]
    pairs = (first[:, :, None] * second[:, None, :]).reshape(len(words), -1)
    cubes = (pairs.T @ third).reshape(K, K, K) / len(words)
    return np.asarray(np.mean([cubes.transpose(axes) for axes in permutations(range(3))], axis=0))


def valid(topics: Floats) -> Floats:
    """Probability vectors as in the paper: negative entries become 0, then division by the sum; uniform if nothing
    remains."""
    kept = np.maximum(topics, 0.0)
    sums = np.sum(kept, axis=1, keepdims=True)
    return np.where(sums > 0, kept / np.where(sums > 0, sums, 1.0), 1.0 / topics.shape[1])


def non_private(sites: Sequence[Words], columns: int, K: int, seed: int = 0) -> Floats:
    """Topics from all documents together, without noise."""
    words = np.concatenate(sites)
    return valid(tensor.decomposed(second_moment(words, columns), lambda W: projected_third(words, W), K, seed)[0])


def random_topics(columns: int, K: int, seed: int = 0) -> Floats:
    """Topics without data: the worst case."""
    return valid(np.abs(np.random.default_rng(seed).normal(size=(K, columns))))


def private(method: str, sites: Sequence[Words], columns: int, K: int, noises: tensor.Noises, seed: int) -> Floats:
    """Topics by a method of `METHODS`. Those of `tensor.ALONE` use the first site only."""
    words = sites[0] if method in tensor.ALONE else np.concatenate(sites)
    noise, entries = tensor.drawn_noise(method, len(sites), columns, noises, np.random.default_rng(seed))
    moment = second_moment(words, columns) + noise
    found = tensor.decomposed(moment, lambda W: projected_third(words, W) + tensor.projected(entries, W), K, seed)
    return valid(found[0])


def published_noises(method: str, epsilon: float, delta: float, records: int) -> tensor.Noises:
    """The paper's noise at a site of n documents: half of epsilon and delta for each moment, by the classical formula.

    >>> [round(tau, 4) for tau in published_noises("conv", 1.0, 0.01, 1000)]
    [0.0094, 0.0094]
    """
    _check(method, records)
    each = SENSITIVITY * math.sqrt(2 * math.log(1.25 / (delta / 2))) / (epsilon / 2 * records)
    return each, SENSITIVITY / (epsilon / 2 * records) if method == "avn" else each


def exact_epsilon(method: str, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Exact epsilon of a method at the published calibration for (epsilon, delta)."""
    tau2, tau3 = published_noises(method, epsilon, delta, 1)
    first = tensor.mu_squared(method, SENSITIVITY, tau2, sites, colluders, delta)
    if method == "avn":
        return accountant.epsilon(math.sqrt(first), delta) + SENSITIVITY / tau3
    return accountant.epsilon(math.sqrt(2 * first), delta)


def noises_for_exact(
    method: str, epsilon: float, delta: float, sites: int, colluders: int, records: int
) -> tensor.Noises:
    """Noise at which a method is exactly (epsilon, delta)-private, with mu^2 divided equally between the two releases.
    AVN uses half of epsilon for each."""
    _check(method, records)
    if method == "avn":
        half = tensor.tau_for(method, SENSITIVITY, epsilon / 2, delta, sites, colluders)
        return half / records, SENSITIVITY / (epsilon / 2 * records)
    each = tensor.tau_for(method, math.sqrt(2) * SENSITIVITY, epsilon, delta, sites, colluders) / records
    return each, each


def _check(method: str, records: int) -> None:
    """Check method and number of records."""
    if method not in METHODS:
        raise BadParameter(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    if records < 1:
        raise BadParameter(f"a method needs at least one record, got {records}")
