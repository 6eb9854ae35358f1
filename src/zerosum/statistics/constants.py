"""Public constants that several statistics have: centres, scales and orthonormal bases; their checks and their use.

A site checks them when it builds a statistic from a plan, before it reads a row: the sensitivities assume them. Each
check raises a `ValueError`, which pydantic turns into one sentence about the parameter.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Array, Floats
from zerosum.compute.backends.exact import constant_on
from zerosum.kernel.statistic import SMALLEST

_TOLERANCE = 1e-9  # of entries and of Q'Q - I in spectral norm: far above rounding, far below any effect on a bound


def check_placement(columns: int, center: Floats | None, scale: Floats | None, noun: str = "columns") -> None:
    """Refuse a centre or a scale of another length than `columns`, and scales that are not positive.

    Parameters
    ----------
    columns : int
        Number of the columns that are centred and scaled.
    center, scale : array of shape (columns,), optional
        Public constants, or earlier releases.
    noun : str
        What the columns are, for messages.
    """
    for name, value in (("center", center), ("scale", scale)):
        if value is not None and value.shape != (columns,):
            raise ValueError(f"{name} must hold one number for each of the {columns} {noun}, got shape {value.shape}")
    if scale is not None and not np.all(scale >= SMALLEST):
        raise ValueError(f"every scale must be positive, got {np.min(scale):g}")


def placed(rows: Array, center: Floats | None, scale: Floats | None) -> Array:
    """Rows (n, columns), centred and divided by the scale where they are given; each row by itself."""
    if center is not None:
        rows = rows - constant_on(center, rows)[None, :]
    if scale is not None:
        rows = rows / constant_on(scale, rows)[None, :]
    return rows


def check_basis(basis: Floats, width: int, most: int | None = None) -> None:
    """Refuse a basis whose columns are not orthonormal.

    Parameters
    ----------
    basis : array of shape (width, k)
        Q.
    width : int
        Number of rows that Q must have.
    most : int, optional
        Largest k, if it is smaller than `width`.
    """
    largest = width if most is None else min(width, most)
    if basis.ndim != 2 or basis.shape[0] != width or not 1 <= basis.shape[1] <= largest:
        raise ValueError(f"the basis must have {width} rows and no more columns, got shape {basis.shape}")
    # Larger entries would let the products below overflow to NaN, and a comparison with NaN is false.
    bounded = bool(np.max(np.abs(basis)) <= 1 + _TOLERANCE)
    if not (bounded and np.linalg.norm(basis.T @ basis - np.eye(basis.shape[1]), 2) <= _TOLERANCE):
        raise ValueError("the columns of the basis must be orthonormal")
