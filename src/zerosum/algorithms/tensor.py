"""Decompositions of symmetric third-order tensors into orthogonal rank-one parts. Free post-processing.

In white coordinates the third moment of a mixture or a topic model is T = sum over k of l_k v_k (x) v_k (x) v_k with
orthonormal v_k (Anandkumar et al. 2014). `power_method` finds the v_k one after another by power iteration with
deflation. `simultaneous` finds all at once; it is less sensitive to noise, since no error of an earlier part is
deflated into a later one.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadParameter

_STARTS = 8  # starts of `simultaneous`: one from deflation, the others random; chosen by hand
_CLOSE = 1e-10  # largest change of an entry at which the iteration has converged


def power_method(
    tensor: Floats, count: int, seed: int = 0, restarts: int = 20, iterations: int = 50
) -> tuple[Floats, Floats]:
    """The values and unit vectors (one per row) of `count` parts, by the tensor power method with deflation.

    From `restarts` random starts the iteration v <- T(I, v, v)/|T(I, v, v)| runs `iterations` times. The v with the
    largest T(v, v, v) is one part; it is subtracted before the next.

    Parameters
    ----------
    tensor : array of shape (D, D, D)
        Symmetric.
    count : int
        Number of parts.
    seed : int
        Public seed of the starts.
    restarts, iterations : int
        Starts for each part, and steps of each start and of the best one.

    Returns
    -------
    values : array of shape (count,)
    vectors : array of shape (count, D)

    >>> values, vectors = power_method(parts(np.array([3.0, 2.0]), np.eye(2)), 2)
    >>> values.round(6).tolist(), np.abs(vectors).round(6).tolist()
    ([3.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    left, rng = np.array(_checked(tensor, count)), np.random.default_rng(seed)
    values, vectors = np.zeros(count), np.zeros((count, len(left)))
    for k in range(count):
        tried = _unit(rng.normal(size=(restarts, len(left))))
        for _ in range(iterations):
            tried = _unit(_twice(left, tried))
        best = tried[np.argmax(np.sum(_twice(left, tried) * tried, axis=1))][None, :]
        for _ in range(iterations):
            best = _unit(_twice(left, best))
        vectors[k] = best[0]
        values[k] = float(np.sum(_twice(left, best) * best))
        left = left - parts(values[k : k + 1], best)
    return values, vectors


def simultaneous(
    tensor: Floats, count: int, seed: int = 0, starts: int = _STARTS, iterations: int = 200
) -> tuple[Floats, Floats]:
    """The values and orthonormal vectors (one per row, values positive) with the largest sum of squared values.

    A step replaces all vectors by the orthonormal ones nearest to the gradients of that sum (polar decomposition). The
    first start is the result of `power_method`, the others are random and public.

    Parameters
    ----------
    tensor : array of shape (D, D, D)
        Symmetric.
    count : int
        Number of parts, at most D.
    seed : int
        Public seed of the random starts.
    starts, iterations : int
        Number of starts, and most steps of each.

    Returns
    -------
    values : array of shape (count,)
        Positive.
    vectors : array of shape (count, D)
        Orthonormal rows.

    >>> values, vectors = simultaneous(parts(np.array([3.0, 3.0]), np.eye(2)), 2)
    >>> values.round(6).tolist(), sorted(np.abs(vectors).argmax(axis=1).tolist())
    ([3.0, 3.0], [0, 1])
    """
    tensor, rng = _checked(tensor, count), np.random.default_rng(seed)
    if count > len(tensor):
        raise BadParameter(f"the number of orthogonal parts must be at most the dimension {len(tensor)}, got {count}")
    best: tuple[float, Floats, Floats] = (-1.0, np.zeros(count), np.eye(count, len(tensor)))
    for start in range(starts):
        first = power_method(tensor, count, seed)[1] if start == 0 else rng.normal(size=(count, len(tensor)))
        vectors = _orthonormal(first)
        for _ in range(iterations):
            gradient = _twice(tensor, vectors)
            values = np.sum(gradient * vectors, axis=1)
            # the small multiple of the vectors keeps the matrix of full rank where a value is zero
            moved = _orthonormal(gradient * values[:, None] + 1e-9 * vectors)
            change = float(np.max(np.abs(moved - vectors)))
            vectors = moved
            if change < _CLOSE:
                break
        values = np.sum(_twice(tensor, vectors) * vectors, axis=1)
        explained = float(np.sum(values**2))
        if explained > best[0] * (1 + 1e-9):
            best = (explained, values, vectors)
    _explained, values, vectors = best
    signs = np.where(values < 0, -1.0, 1.0)
    return np.abs(values), np.asarray(vectors * signs[:, None])


def parts(values: Floats, vectors: Floats) -> Floats:
    """The tensor sum over k of values[k] v_k (x) v_k (x) v_k, for the rows v_k of `vectors`.

    Parameters
    ----------
    values : array of shape (K,)
    vectors : array of shape (K, D)
    """
    return np.asarray(np.einsum("k,ki,kj,kl->ijl", values, vectors, vectors, vectors, optimize=True))


def _twice(tensor: Floats, vectors: Floats) -> Floats:
    """T(I, v, v) for every row v.

    Parameters
    ----------
    tensor : array of shape (D, D, D)
    vectors : array of shape (count, D)

    Returns
    -------
    array of shape (count, D)
        The gradient of T(v, v, v)/3 at each row.
    """
    order = len(tensor)
    once = (vectors @ tensor.reshape(order, -1)).reshape(-1, order, order)
    return np.asarray(np.matmul(once, vectors[:, :, None])[:, :, 0])


def _unit(rows: Floats) -> Floats:
    """Rows divided by their norms; a row of zeros stays zero."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def _orthonormal(rows: Floats) -> Floats:
    """The nearest matrix with orthonormal rows."""
    left, _values, right = np.linalg.svd(rows, full_matrices=False)
    return np.asarray(left @ right)


def _checked(tensor: Floats, count: int) -> Floats:
    """The tensor, if its shape and the number of parts are valid."""
    if tensor.ndim != 3 or len(set(tensor.shape)) != 1 or count < 1:
        raise BadParameter(
            f"the tensor must be (n, n, n) and the number of parts at least 1, got shape {tensor.shape} and {count}"
        )
    return tensor
