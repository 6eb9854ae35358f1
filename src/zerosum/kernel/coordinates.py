"""Isometric coordinates of symmetric arrays: the distinct entries, each scaled by the root of its multiplicity.

For a symmetric matrix X of p columns the coordinates are X_jj and sqrt(2) X_jk for j < k, p (p + 1)/2 numbers. The L2
norm of the coordinates is the Frobenius norm of the array, so that a sensitivity in Frobenius norm carries over
unchanged. Each off-diagonal entry receives sqrt(2) (sqrt(3), sqrt(6) at third order) times less noise than by
perturbing the distinct entries without scaling.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats

# columns beyond which a matrix is processed row by row, since an index array takes three times the memory of its
# coordinates. Chosen by hand; no benchmark recorded
_LARGE_ORDER = 500


def size(columns: int, order: int = 2) -> int:
    """Number of distinct entries of a symmetric array of `columns` columns and this order.

    >>> size(50, 3)
    22100
    """
    return math.comb(columns + order - 1, order)


@lru_cache(maxsize=8)
def layout(columns: int, order: int) -> tuple[NDArray[np.intp], Floats]:
    """Return the positions of the distinct entries, shape (order, size), and the root of each entry's multiplicity,
    shape (size,).
    """
    if order == 2:
        rows, cols = np.triu_indices(columns)
        return np.vstack([rows, cols]), np.where(rows == cols, 1.0, math.sqrt(2))
    index = np.array(list(combinations_with_replacement(range(columns), order)), dtype=np.intp).T
    # The multiplicity of an entry is the number of permutations of its index: order! / product of k! over repeated
    # indices.
    roots = [
        math.sqrt(math.factorial(order) / math.prod(math.factorial(k) for k in Counter(entry).values()))
        for entry in index.T.tolist()
    ]
    return index, np.array(roots)


def pack(symmetric: Floats) -> Floats:
    """Return the coordinate vector of a symmetric array of any order, shape (size,).

    >>> pack(np.array([[1.0, 2.0], [2.0, 3.0]])).round(4).tolist()
    [1.0, 2.8284, 3.0]
    """
    if symmetric.ndim == 2 and len(symmetric) > _LARGE_ORDER:
        return scaled(triangle(symmetric), symmetric.shape[0])
    index, roots = layout(symmetric.shape[0], symmetric.ndim)
    return np.asarray(symmetric[tuple(index)] * roots)


def triangle(matrix: Floats) -> Floats:
    """Return the upper triangle of a matrix, row by row, as a vector of length columns (columns + 1)/2.

    >>> triangle(np.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return np.concatenate([matrix[row, row:] for row in range(len(matrix))], dtype=np.float64)


def scaled(triangle: Floats, columns: int, worth: float = 1.0) -> Floats:
    """Turn the upper triangle of a matrix into coordinates, in place, divided by `worth`.

    Parameters
    ----------
    triangle:
        The upper triangle row by row, shape (columns (columns + 1)/2,); it is overwritten.
    columns:
        Number of columns of the matrix.
    worth:
        Divisor of all entries: the value of one unit of the triangle's integers.

    >>> scaled(np.array([4.0, 8.0, 12.0]), 2, worth=4.0).round(4).tolist()
    [1.0, 2.8284, 3.0]
    """
    rows = np.arange(columns)
    # Position of entry (j, j) in the row by row order: j p - j (j - 1)/2.
    diagonal = rows * (2 * columns + 1 - rows) // 2
    own = triangle[diagonal] / worth
    triangle *= math.sqrt(2) / worth
    triangle[diagonal] = own
    return triangle


def roots(columns: int, order: int) -> Floats:
    """Return the root of each distinct entry's multiplicity, by which the entry is scaled; shape (size,).

    >>> roots(2, 2).round(4).tolist()
    [1.0, 1.4142, 1.0]
    """
    return layout(columns, order)[1]


def unpack(coordinates: Floats, columns: int, order: int = 2) -> Floats:
    """Return the symmetric array of a coordinate vector: the inverse of `pack`.

    >>> unpack(pack(np.eye(3)), 3).tolist() == np.eye(3).tolist()
    True
    """
    array = np.empty((columns,) * order)
    if order == 2 and columns > _LARGE_ORDER:
        at = 0
        for row in range(columns):
            array[row, row] = coordinates[at]
            np.divide(coordinates[at + 1 : at + columns - row], math.sqrt(2), out=array[row, row + 1 :])
            array[row + 1 :, row] = array[row, row + 1 :]
            at += columns - row
        return array
    index, roots = layout(columns, order)
    values = coordinates / roots
    if order == 2:
        array[index[0], index[1]] = values
        array[index[1], index[0]] = values
        return array
    from itertools import permutations

    for axes in permutations(range(order)):
        array[tuple(index[list(axes)])] = values
    return array
