"""Linear equations and the inverse hyperbolic tangent by elementwise operations: the same bits for every unit.

Libraries of linear algebra round by the kernel, the number of threads and the memory address, and a library's logarithm
may round a number by its position among others. The functions here use additions, multiplications, divisions and square
roots of single numbers in an order that the shape of one unit fixes (`zerosum.compute.backends.exact`), so that norms
computed from them may decide about a unit.
"""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace

from zerosum.arrays import Array

# Halvings of the argument of `arctanh`, and terms of its series after them: at 0.96 the argument falls below 0.061, and
# the first term that is left out is below 1e-19.
_HALVINGS, _TERMS = 4, 7


def solved(matrix: Array, right: Array) -> Array:
    """The solution X of matrix X = right for each unit, by Gauss-Jordan elimination without pivots.

    Elimination without pivots is stable for positive definite matrices (Higham, Accuracy and Stability of Numerical
    Algorithms, 2002, chapter 10). For other matrices the result may be inaccurate or not finite, but it is still a
    function of the unit alone.

    Parameters
    ----------
    matrix : array of shape (units, R, R)
        Positive definite matrices.
    right : array of shape (units, R, d)
        Right-hand sides.

    Returns
    -------
    array of shape (units, R, d)

    Examples
    --------
    >>> solved(np.array([[[2.0, 1.0], [1.0, 3.0]]]), np.array([[[5.0], [10.0]]])).tolist()
    [[[1.0], [3.0]]]
    """
    xp, R = array_namespace(matrix), matrix.shape[1]
    table = xp.concat([matrix, right], axis=2)
    with np.errstate(all="ignore"):
        for column in range(R):
            pivot = table[:, column : column + 1, :] / table[:, column : column + 1, column : column + 1]
            rest = table - table[:, :, column : column + 1] * pivot
            table = xp.concat([rest[:, :column, :], pivot, rest[:, column + 1 :, :]], axis=1)
    return table[:, :, R:]


def arctanh(values: Array) -> Array:
    """The inverse hyperbolic tangent of numbers in [-0.96, 0.96], to 13 digits.

    With t = x/(1 + sqrt(1 - x^2)), arctanh(x) = 2 arctanh(t); four such steps leave a short odd series.

    >>> float(np.max(np.abs(arctanh(np.linspace(-0.96, 0.96, 99)) - np.arctanh(np.linspace(-0.96, 0.96, 99))))) < 1e-13
    True
    """
    xp, part = array_namespace(values), values
    for _ in range(_HALVINGS):
        part = part / (1.0 + xp.sqrt(1.0 - part * part))
    square = part * part
    # Horner's rule for t + t^3/3 + t^5/5 + ...
    series = square * 0.0 + 1.0 / (2 * _TERMS + 1)
    for k in range(_TERMS - 1, -1, -1):
        series = 1.0 / (2 * k + 1) + square * series
    return part * series * float(2**_HALVINGS)
