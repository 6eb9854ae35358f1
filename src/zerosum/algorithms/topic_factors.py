"""Topics from released moments of words: non-negative factors, and probability vectors by least squares.

Symbols: K topics a_k (D words each, probability vectors) with weights w_k; pairs P = sum_k w_k a_k a_k' and triples
T = sum_k w_k a_k (x) a_k (x) a_k, both with noise of known size. All functions here are free post-processing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zerosum.algorithms.tensor import simultaneous
from zerosum.arrays import Floats

# Random starts and iterations of `nonnegative_factors`. Chosen by hand; no benchmark recorded.
_STARTS, _ITERATIONS = 3, 150
# Most simulated documents in `unmistaken`, and most counts (documents times words), a limit on memory. Chosen by hand.
_MADE_UP, _ENTRIES = 60_000, 3_000_000


def on_simplex(rows: Floats) -> Floats:
    """Euclidean projection of each row onto the probability simplex, by sorting.

    >>> on_simplex(np.array([[0.6, 0.6], [2.0, -1.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    falling = -np.sort(-rows, axis=1)
    excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.sum(falling > excess, axis=1) - 1
    return np.asarray(np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0))


def nonnegative_factors(
    matrix: Floats, count: int, seed: int = 0, starts: int = _STARTS, iterations: int = _ITERATIONS
) -> Floats:
    """L >= 0 (words x count) with the least squared error of L L' to a symmetric matrix off its diagonal.

    The diagonal is left out: it holds frequencies of single words, not of pairs. Negative entries of the noisy matrix
    are kept, since setting them to zero would bias the sum. The steps are multiplicative with a cubic root, which keeps
    factors positive. They stop after a fixed number, before they fit the noise. The best of several public starts is
    returned.
    """
    words, rng = len(matrix), np.random.default_rng(seed)
    target = np.array(matrix)
    np.fill_diagonal(target, 0.0)
    above, below = np.maximum(target, 0.0), np.maximum(-target, 0.0)
    mass = max(float(np.sum(target)), 1e-3 * float(np.sum(above)), 1e-300)
    tiny = 1e-12 * mass / words**2
    best: tuple[float, Floats] = (np.inf, np.zeros((words, count)))
    for _ in range(starts):
        factors = rng.uniform(0.01, 1.0, (words, count))
        factors *= np.sqrt(mass / float(np.sum(np.sum(factors, axis=0) ** 2)))
        for _ in range(iterations):
            fitted = factors @ (factors.T @ factors) - np.sum(factors**2, axis=1)[:, None] * factors
            factors = factors * np.cbrt((above @ factors + tiny) / (below @ factors + fitted + tiny))
        rest = target - factors @ factors.T
        np.fill_diagonal(rest, 0.0)
        missed = float(np.sum(rest**2))
        if missed < best[0]:
            best = (missed, factors)
    return best[1]


def started(pairs: Floats, tensor: Floats, axes: Floats, count: int, seed: int) -> tuple[Floats, Floats]:
    """Topics (K, D) and weights (K,) by whitening the pairs and decomposing the white tensor.

    With pairs = U diag(e) U', the white coordinates are U diag(e^-1/2). In them the vectors sqrt(w_k) a_k are
    orthonormal, and the tensor is the sum of w_k^(-1/2) times their third powers (Anandkumar et al. 2014).

    Parameters
    ----------
    pairs : array (D, D)
        Noisy moment of pairs.
    tensor : array (m, m, m)
        Noisy moment of triples in the basis `axes`.
    axes : array (D, m)
        Orthonormal basis.
    count : int
        Number of topics.
    seed : int
        Public seed of the decomposition.
    """
    values, vectors = np.linalg.eigh(pairs)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    # eigenvalues are divisors, and noise can make them small or negative: a floor of 1 % of the largest
    roots = np.sqrt(np.maximum(values, 0.01 * max(float(values[0]), 1e-12)))
    white = axes.T @ (vectors / roots)
    along = np.einsum("abc,ai,bj,ck->ijk", tensor, white, white, white, optimize=True)
    strengths, parts = simultaneous(along, count, seed)
    strengths = np.maximum(strengths, 0.3)  # exact values are w^(-1/2) >= 1; the floor limits the weight of a noisy one
    weights = strengths**-2.0
    return on_simplex((strengths[:, None] * parts) @ (vectors * roots).T), weights / np.sum(weights)


def fitted(
    tensor: Floats,
    axes: Floats,
    topics: Floats,
    weights: Floats,
    pairs: Floats | None = None,
    trust: float = 0.0,
    others: int = 0,
) -> tuple[Floats, Floats]:
    """Topics on the simplex and weights with sum 1 that minimise the squared error of the tensor and of the pairs.

    The loss is |T - sum_k w_k b_k (x) b_k (x) b_k|^2 + trust |P - sum_k w_k a_k a_k'|^2 with b_k = axes' a_k. It has
    local minima where topics are similar, so several starts are tried.

    Parameters
    ----------
    tensor : array (m, m, m)
        Noisy moment of triples in the basis `axes` (D, m).
    topics, weights : arrays (K, D) and (K,)
        The first start.
    pairs : array (D, D), optional
        Noisy moment of pairs.
    trust : float
        Weight of the pairs: noise variance of the triples over that of the pairs.
    others : int
        Number of random public starts.
    """
    flat = tensor.reshape(axes.shape[1], -1)

    def missed(a: Floats, w: Floats) -> tuple[float, Floats, Floats]:
        seen = a @ axes
        heard = (seen[:, :, None] * seen[:, None, :]).reshape(len(a), -1) @ flat.T  # T(b, b, .)
        alike, cross = np.sum(heard * seen, axis=1), seen @ seen.T
        value = float(-2 * w @ alike + w @ cross**3 @ w)
        by_topic = 6 * w[:, None] * ((cross**2 * w) @ seen - heard) @ axes.T
        by_weight = 2 * (cross**3 @ w - alike)
        if pairs is not None and trust > 0:
            met, inner = a @ pairs, a @ a.T
            alike = np.sum(met * a, axis=1)
            value += trust * float(-2 * w @ alike + w @ inner**2 @ w)
            by_topic += trust * 4 * w[:, None] * ((inner * w) @ a - met)
            by_weight += trust * 2 * (inner**2 @ w - alike)
        return value, by_topic, by_weight

    rng, (count, words), size = np.random.default_rng(0), topics.shape, float(np.sum(tensor**2))
    even = np.full(count, 1 / count)
    starts = [(topics, weights), *((rng.dirichlet(np.full(words, 0.5), count), even) for _ in range(others))]
    found = [_least(missed, *start, size) for start in starts]
    return found[int(np.argmin([missed(*each)[0] for each in found]))]


def refitted(tensor: Floats, topics: Floats, weights: Floats, noise: float) -> tuple[Floats, Floats]:
    """Weighted least squares for a tensor of all words, from the start `topics` and `weights`.

    The variance of an entry, in units of one document, is noise^2 plus its expected value at the start (documents are a
    sample, and counts have Poisson variance). Its weight is the inverse.
    """
    count, words = topics.shape
    expected = (topics.T * weights) @ (topics[:, :, None] * topics[:, None, :]).reshape(count, -1)
    sure = 1 / (noise**2 + np.maximum(expected, 1e-3 / words**3))
    target = tensor.reshape(words, -1)

    def missed(a: Floats, w: Floats) -> tuple[float, Floats, Floats]:
        twice = (a[:, :, None] * a[:, None, :]).reshape(count, -1)
        rest = (a.T * w) @ twice - target
        heard = twice @ (sure * rest).T
        return float(np.sum(sure * rest**2)), 6 * w[:, None] * heard, 2 * np.sum(heard * a, axis=1)

    return _least(missed, topics, weights, float(np.sum(sure * target**2)))


def unmistaken(
    mixed: Callable[[Floats], Floats], topics: Floats, weights: Floats, length: int, rounds: int = 2
) -> tuple[Floats, Floats]:
    """Topics and weights after a round of EM, corrected for the bias of that round by simulation.

    One round of EM is biased towards its start. Documents with known topics are simulated from the estimated topics,
    `mixed` applies the same round to them, and the difference from their true topics is subtracted from the released
    topics. Each of the `rounds` corrections simulates from the result of the one before. More than two would amplify
    noise where there is a topic too many.

    Parameters
    ----------
    mixed : callable
        The round of EM: documents (n, D) to sums of responsibilities (K, D).
    topics, weights : arrays (K, D) and (K,)
        Released topics and weights after the round.
    length : int
        Words of a simulated document.
    """
    count, words = topics.shape
    size = max(min(_MADE_UP, _ENTRIES // words), 1)
    seen, shares = topics, weights
    for _ in range(rounds):
        rng = np.random.default_rng(0)
        which = rng.choice(count, size=size, p=shares / np.sum(shares))
        documents = rng.multinomial(length, seen[which]).astype(np.float64)
        own = np.eye(count)[which]
        found, true = mixed(documents), own.T @ documents / length
        masses, counts = np.sum(found, axis=1, keepdims=True), np.sum(true, axis=1, keepdims=True)
        wrong = np.divide(found, masses, out=np.zeros_like(found), where=masses > 0)
        wrong -= np.divide(true, counts, out=wrong.copy(), where=counts > 0)
        seen = on_simplex(topics - wrong)
        shares = np.maximum(weights - (masses / np.sum(masses) - counts / size)[:, 0], 1e-3 / count)
        shares = shares / np.sum(shares)
    return seen, shares


def _least(
    missed: Callable[[Floats, Floats], tuple[float, Floats, Floats]], topics: Floats, weights: Floats, size: float
) -> tuple[Floats, Floats]:
    """Minimise `missed`, which returns a value and its gradients in topics and weights, by L-BFGS.

    Topics and weights are parametrised as squares over their sum, so that the search is unconstrained.
    """
    from scipy.optimize import minimize

    count, words = topics.shape

    def flat(x: Floats) -> tuple[float, Floats]:
        roots, masses = x[:-count].reshape(count, words), x[-count:]
        sums, total = np.sum(roots**2, axis=1, keepdims=True), float(masses @ masses)
        a, w = roots**2 / sums, masses**2 / total
        value, by_topic, by_weight = missed(a, w)
        by_topic = 2 * roots / sums * (by_topic - np.sum(by_topic * a, axis=1, keepdims=True))
        by_weight = 2 * masses / total * (by_weight - float(by_weight @ w))
        return value / size, np.concatenate([by_topic.ravel(), by_weight]) / size

    start = np.concatenate([np.sqrt(0.98 * topics + 0.02 / words).ravel(), np.sqrt(np.maximum(weights, 1e-4))])
    size = max(size, 1e-300)
    found = minimize(flat, start, jac=True, method="L-BFGS-B", options={"maxiter": 800, "maxcor": 20, "ftol": 1e-11})
    squares, masses = found.x[:-count].reshape(count, words) ** 2, found.x[-count:] ** 2
    return np.asarray(squares / np.sum(squares, axis=1, keepdims=True)), np.asarray(masses / np.sum(masses))
