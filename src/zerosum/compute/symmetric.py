"""Isometric coordinates of symmetric arrays on any device (`zerosum.kernel.coordinates` has them for NumPy)."""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of

from zerosum.arrays import Array
from zerosum.compute.devices import constant_on, on_host
from zerosum.kernel.coordinates import layout, pack


def packed(symmetric: Array) -> Array:
    """`pack` for a matrix of any array namespace, on the device of the matrix.

    >>> import array_api_strict
    >>> packed(array_api_strict.asarray([[1.0, 2.0], [2.0, 3.0]]))[1] == math.sqrt(2) * 2.0
    Array(True, dtype=array_api_strict.bool)
    """
    if on_host(symmetric):
        return pack(symmetric)
    xp = array_namespace(symmetric)
    places = xp.arange(symmetric.shape[0], device=device_of(symmetric))
    row, column = places[:, None], places[None, :]
    # An entry off the diagonal occurs twice in the matrix and once in the vector. The factor sqrt(2) makes the norm of
    # the vector that of the matrix, so that a clip in either has the same meaning.
    return xp.where(row == column, symmetric, math.sqrt(2) * symmetric)[row <= column]


def powers(rows: Array, order: int) -> Array:
    """Return for every row x the coordinates of its symmetric power (outer product of x with itself), shape (rows,
    size).

    >>> powers(np.array([[1.0, 2.0]]), 2).round(4).tolist()
    [[1.0, 2.8284, 4.0]]
    """
    index, roots = layout(rows.shape[1], order)
    if not on_host(rows):
        xp = array_namespace(rows)
        products = constant_on(roots, rows)[None, :] * xp.take(rows, constant_on(index[0], rows), axis=1)
        for axis in index[1:]:
            products = products * xp.take(rows, constant_on(axis, rows), axis=1)
        return products
    product = roots * rows[:, index[0]]
    for axis in index[1:]:
        product = product * rows[:, axis]
    return np.asarray(product)
