"""Topics from released moments of words: non-negative factors, and probability vectors by least squares.

Symbols: K topics a_k (D words each, probability vectors) with weights w_k; pairs P = sum_k w_k a_k a_k' and triples
T = sum_k w_k a_k (x) a_k (x) a_k, both with noise of known size. All functions here are free post-processing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zerosum.algorithms.tensor import simultaneous
from zerosum.algorithms.topics.tuning import TUNING
from zerosum.arrays import Floats


def on_simplex(rows: Floats) -> Floats:
    """Euclidean projection of each row onto the probability simplex, by sorting.

    >>> on_simplex(np.array([[0.6, 0.6], [2.0, -1.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    # Held, Wolfe and Crowder 1974: subtract the excess of the largest entries that stay positive, shared equally.
    falling = -np.sort(-rows, axis=1)
    excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.sum(falling > excess, axis=1) - 1
    return np.asarray(np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0))


def nonnegative_factors(
    matrix: Floats,
    count: int,
    seed: int = 0,
    starts: int = TUNING.factor_starts,
    iterations: int = TUNING.factor_steps,
) -> Floats:
    """L >= 0 (words x count) with the least squared error of L L' to a symmetric matrix off its diagonal.

    The diagonal is left out: it holds frequencies of single words, not of pairs. Negative entries of the noisy matrix
    are kept, since setting them to zero would bias the sum. The steps are multiplicative with a cubic root, which keeps
    factors positive. They stop after a fixed number, before they fit the noise. The best of several public starts is
    returned.

    Parameters
    ----------
    matrix : array (n, n)
        Noisy symmetric matrix of pairs of n words.
    count : int
        Number of factors, K.
    seed : int
        Public seed of the starts.
    starts, iterations : int
        Number of starts, and of steps from each.

    Returns
    -------
    factors : array (n, K)
        L, non-negative.
    """
    words, rng = len(matrix), np.random.default_rng(seed)
    target = np.array(matrix)
    np.fill_diagonal(target, 0.0)
    # Negative parts go to the denominator of the multiplicative step (D. Lee and H. Seung 2001): both stay positive.
    above, below = np.maximum(target, 0.0), np.maximum(-target, 0.0)
    # Scale of the starts: the sum of L L' equals the sum of the matrix, which noise can make negative.
    mass = max(float(np.sum(target)), 1e-3 * float(np.sum(above)), 1e-300)
    tiny = 1e-12 * mass / words**2
    best: tuple[float, Floats] = (np.inf, np.zeros((words, count)))
    for _ in range(starts):
        factors = rng.uniform(0.01, 1.0, (words, count))
        factors *= np.sqrt(mass / float(np.sum(np.sum(factors, axis=0) ** 2)))
        for _ in range(iterations):
            # Gradient of the model part, (L L' - diag) L, without the n x n product.
            fitted = factors @ (factors.T @ factors) - np.sum(factors**2, axis=1)[:, None] * factors
            # The loss is quartic in the factors: the exponent 1/3 keeps the multiplicative step from oscillating.
            factors = factors * np.cbrt((above @ factors + tiny) / (below @ factors + fitted + tiny))
        rest = target - factors @ factors.T
        np.fill_diagonal(rest, 0.0)
        missed = float(np.sum(rest**2))
        if missed < best[0]:
            best = (missed, factors)
    return best[1]


def topics_from_moments(pairs: Floats, tensor: Floats, axes: Floats, count: int, seed: int) -> tuple[Floats, Floats]:
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
    # Eigenvalues are divisors, and noise can make them small or negative: a floor relative to the largest.
    roots = np.sqrt(np.maximum(values, TUNING.eigenvalue_floor * max(float(values[0]), 1e-12)))
    white = axes.T @ (vectors / roots)
    along = np.einsum("abc,ai,bj,ck->ijk", tensor, white, white, white, optimize=True)
    strengths, parts = simultaneous(along, count, seed)
    # Exact strengths are w_k^(-1/2) >= 1; the floor limits the weight of a noisy one.
    strengths = np.maximum(strengths, TUNING.strength_least)
    weights = strengths**-2.0
    return on_simplex((strengths[:, None] * parts) @ (vectors * roots).T), weights / np.sum(weights)


def fit_topics(
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
        # Loss without the constant |T|^2: the product with T is sum_k w_k T(b_k, b_k, b_k), and the squared norm of the
        # model is the sum over k, l of w_k w_l (b_k'b_l)^3. No tensor of D^3 entries is formed.
        b = a @ axes
        contracted = (b[:, :, None] * b[:, None, :]).reshape(len(a), -1) @ flat.T  # T(b, b, .)
        alike, cross = np.sum(contracted * b, axis=1), b @ b.T
        value = float(-2 * w @ alike + w @ cross**3 @ w)
        by_topic = 6 * w[:, None] * ((cross**2 * w) @ b - contracted) @ axes.T
        by_weight = 2 * (cross**3 @ w - alike)
        if pairs is not None and trust > 0:
            # The same for the pairs, with squares in place of third powers.
            met, inner = a @ pairs, a @ a.T
            alike = np.sum(met * a, axis=1)
            value += trust * float(-2 * w @ alike + w @ inner**2 @ w)
            by_topic += trust * 4 * w[:, None] * ((inner * w) @ a - met)
            by_weight += trust * 2 * (inner**2 @ w - alike)
        return value, by_topic, by_weight

    rng, (count, words), size = np.random.default_rng(0), topics.shape, float(np.sum(tensor**2))
    even = np.full(count, 1 / count)
    starts = [
        (topics, weights),
        *((rng.dirichlet(np.full(words, TUNING.dirichlet), count), even) for _ in range(others)),
    ]
    fits = [_minimise(missed, *start, size) for start in starts]
    return fits[int(np.argmin([missed(*each)[0] for each in fits]))]


def refine_topics(tensor: Floats, topics: Floats, weights: Floats, noise: float) -> tuple[Floats, Floats]:
    """Weighted least squares for a tensor of all words, from the start `topics` and `weights`.

    The variance of an entry, in units of one document, is noise^2 plus its expected value at the start (documents are a
    sample, and counts have Poisson variance). Its weight is the inverse.

    Parameters
    ----------
    tensor : array (D, D, D)
        Noisy moment of triples, per document.
    topics, weights : arrays (K, D) and (K,)
        The start.
    noise : float
        Standard deviation of the noise of an entry, times the root of the number of documents.
    """
    count, words = topics.shape
    expected = (topics.T * weights) @ (topics[:, :, None] * topics[:, None, :]).reshape(count, -1)
    sure = 1 / (noise**2 + np.maximum(expected, 1e-3 / words**3))
    target = tensor.reshape(words, -1)

    def missed(a: Floats, w: Floats) -> tuple[float, Floats, Floats]:
        twice = (a[:, :, None] * a[:, None, :]).reshape(count, -1)
        rest = (a.T * w) @ twice - target
        # By symmetry the three factors a_k have equal gradients, so one of them is computed and counted three times.
        slope = twice @ (sure * rest).T
        return float(np.sum(sure * rest**2)), 6 * w[:, None] * slope, 2 * np.sum(slope * a, axis=1)

    return _minimise(missed, topics, weights, float(np.sum(sure * target**2)))


def correct_em_bias(
    em_round: Callable[[Floats], Floats],
    topics: Floats,
    weights: Floats,
    length: int,
    rounds: int = TUNING.bias_rounds,
) -> tuple[Floats, Floats]:
    """Topics and weights after a round of EM, corrected for the bias of that round by simulation.

    One round of EM is biased towards its start. Documents with known topics are simulated from the estimated topics,
    `em_round` applies the same round to them, and the difference from their true topics is subtracted from the released
    topics. Each of the `rounds` corrections simulates from the result of the one before. More than two would amplify
    noise where there is a topic too many.

    Parameters
    ----------
    em_round : callable
        The round of EM: documents (n, D) to sums of responsibilities (K, D).
    topics, weights : arrays (K, D) and (K,)
        Released topics and weights after the round.
    length : int
        Words of a simulated document.
    rounds : int
        Number of corrections.

    Returns
    -------
    topics, weights : arrays (K, D) and (K,)
        On the simplex, and with sum 1.
    """
    count, words = topics.shape
    size = max(min(TUNING.simulated_documents, TUNING.simulated_counts // words), 1)
    corrected, shares = topics, weights
    for _ in range(rounds):
        # The same public seed in each correction, so that two corrections differ by their topics only.
        rng = np.random.default_rng(0)
        which = rng.choice(count, size=size, p=shares / np.sum(shares))
        documents = rng.multinomial(length, corrected[which]).astype(np.float64)
        own = np.eye(count)[which]
        estimates, true = em_round(documents), own.T @ documents / length
        masses, counts = np.sum(estimates, axis=1, keepdims=True), np.sum(true, axis=1, keepdims=True)
        # Bias of a topic: mean word shares by EM less those by the known topics; zero for a topic without documents.
        wrong = np.divide(estimates, masses, out=np.zeros_like(estimates), where=masses > 0)
        wrong -= np.divide(true, counts, out=wrong.copy(), where=counts > 0)
        corrected = on_simplex(topics - wrong)
        shares = np.maximum(weights - (masses / np.sum(masses) - counts / size)[:, 0], 1e-3 / count)
        shares = shares / np.sum(shares)
    return corrected, shares


def _minimise(
    missed: Callable[[Floats, Floats], tuple[float, Floats, Floats]], topics: Floats, weights: Floats, size: float
) -> tuple[Floats, Floats]:
    """Minimise `missed`, which returns a value and its gradients in topics and weights, by L-BFGS.

    Topics and weights are parametrised as squares over their sum, so that the search is unconstrained.

    Parameters
    ----------
    missed : callable
        From topics (K, D) and weights (K,) to the loss and its gradients by both.
    topics, weights : arrays (K, D) and (K,)
        The start.
    size : float
        Scale of the loss: L-BFGS stops at a relative change, so the loss should be of order 1.
    """
    from scipy.optimize import minimize

    count, words = topics.shape

    def flat(x: Floats) -> tuple[float, Floats]:
        roots, masses = x[:-count].reshape(count, words), x[-count:]
        sums, total = np.sum(roots**2, axis=1, keepdims=True), float(masses @ masses)
        a, w = roots**2 / sums, masses**2 / total
        value, by_topic, by_weight = missed(a, w)
        # Chain rule for a = r^2/sum r^2: da_i/dr_j = 2 r_j/s (delta_ij - a_i).
        by_topic = 2 * roots / sums * (by_topic - np.sum(by_topic * a, axis=1, keepdims=True))
        by_weight = 2 * masses / total * (by_weight - float(by_weight @ w))
        return value / size, np.concatenate([by_topic.ravel(), by_weight]) / size

    even = TUNING.even_part
    start = np.concatenate([np.sqrt((1 - even) * topics + even / words).ravel(), np.sqrt(np.maximum(weights, 1e-4))])
    size = max(size, 1e-300)
    minimum = minimize(flat, start, jac=True, method="L-BFGS-B", options={"maxiter": 800, "maxcor": 20, "ftol": 1e-11})
    squares, masses = minimum.x[:-count].reshape(count, words) ** 2, minimum.x[-count:] ** 2
    return np.asarray(squares / np.sum(squares, axis=1, keepdims=True)), np.asarray(masses / np.sum(masses))
