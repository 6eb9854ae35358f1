"""Orthogonal directions and kurtoses from a noisy tensor of fourth cumulants. Free post-processing.

Model. In white coordinates, R sources with orthonormal directions u_1 .. u_R (the rows of a rotation U, R x R) and
kurtoses k_1 .. k_R have the fourth-order cumulant tensor

    T_abcd = sum_i k_i u_ia u_ib u_ic u_id        (T: R x R x R x R, symmetric).

The input is the released sum of the units' tensors (`statistics.cumulants.FourthCumulants`), which has this form up to
noise of a known standard deviation in isometric coordinates. The contrast to maximise over rotations U is

    height(U) = sum_i T(u_i, u_i, u_i, u_i)^2,

Comon's contrast of order four (Comon, "Independent component analysis, a new concept?", Signal Processing 36, 1994).
Its stationary points are fixed points of a polar iteration: the gradient with respect to u_i is 8 T(u_i, u_i, u_i, u_i)
T(., u_i, u_i, u_i), and the next U is the rotation nearest to the matrix of these gradients. One start is JADE (Cardoso
and Souloumiac, "Blind beamforming for non-Gaussian signals", IEE Proceedings F 140, 1993); the others are random, with
public seeds.

Nothing here reads data. The tensor is already released, so this module spends no budget.

Tuned constants are in `tuning`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.ica.joint_diagonalization import joint_rotation
from zerosum.algorithms.ica.tuning import TUNING
from zerosum.arrays import Floats


def directions(tensor: Floats, starts: int = TUNING.starts) -> tuple[Floats, Floats]:
    """The rotation whose rows u have the largest sum of squared kurtoses T(u, u, u, u), and these kurtoses.

    The search runs from JADE and from a few random rotations with public seeds, and returns the best end point. With a
    noisy tensor this is more accurate than JADE alone: JADE also diagonalises eigenmatrices that contain only noise.

    Parameters
    ----------
    tensor : array (R, R, R, R)
        Symmetric tensor of fourth cumulants, with or without noise.
    starts : int
        Number of random starts besides JADE.

    Returns
    -------
    rotation : array (R, R)
        One direction per row.
    kurtoses : array (R,)
        T(u, u, u, u) for each row u, in the scale of the tensor.

    Examples
    --------
    >>> kurtoses = np.array([3.0, -1.0, 2.0])
    >>> u = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    >>> found, k = directions(np.einsum("k,ka,kb,kc,kd->abcd", kurtoses, u, u, u, u))
    >>> sorted(k.round(4).tolist()), np.abs(found @ u.T).max(axis=1).round(4).tolist()
    ([-1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    """
    R = len(tensor)
    # Single precision halves the memory traffic of a product with R^4 numbers. The result is only a start, which
    # later rounds correct.
    flat = np.ascontiguousarray(tensor.reshape(-1, R), dtype=np.float32)
    first = [np.linalg.qr(np.random.default_rng(s).normal(size=(R, R)))[0] for s in range(starts)]
    ends = [_climb(flat, start) for start in [jade(tensor), *first]]
    rotation, kurtoses = max(ends, key=lambda each: float(np.sum(each[1] ** 2)))
    return rotation, kurtoses


def jade(tensor: Floats) -> Floats:
    """JADE: the rotation (R x R, one direction per row) that best diagonalises the tensor's eigenmatrices jointly.

    `tensor` (R x R x R x R) acts on symmetric R x R matrices. Its eigenmatrices, each multiplied by its eigenvalue, are
    all diagonal in the coordinates of the sources. With noise no rotation diagonalises all of them, so
    `joint_rotation` minimises the sum of their squared off-diagonal entries.
    """
    R = len(tensor)
    row, column = np.triu_indices(R)
    # The tensor as a symmetric matrix over pairs a <= b. The factor sqrt(2) for pairs a < b makes the coordinates of a
    # symmetric matrix isometric, so that eigenvectors of this matrix are orthonormal eigenmatrices of the tensor.
    root = np.where(row == column, 1.0, math.sqrt(2))
    values, vectors = np.linalg.eigh(tensor[row, column][:, row, column] * root[:, None] * root[None, :])
    # Each eigenmatrix is weighted by its eigenvalue, as in JADE: small eigenvalues hold mostly noise.
    matrices = np.zeros((len(values), R, R))
    matrices[:, row, column] = (vectors * values).T / root
    matrices[:, column, row] = matrices[:, row, column]
    return joint_rotation(matrices, TUNING.jade_sweeps).T


def noise_level(order: int) -> float:
    """The root mean square kurtosis that `directions` finds in a tensor of pure noise, for `order` sources.

    The noise has standard deviation 1 in isometric coordinates. The maximisation selects directions in which the noise
    is large, so the level grows with the order. The formula 0.86 R^0.6 is a fit to simulated values: 1.6 for R = 3, 2.3
    for 5, 3.5 for 10, 5.3 for 20, 6.4 for 28.
    """
    return TUNING.noise_level_factor * math.pow(order, TUNING.noise_level_exponent)


def polar(matrix: Floats) -> Floats:
    """The orthogonal matrix nearest to a square `matrix` in Frobenius norm: its polar factor."""
    # matrix = L S R' has the polar factor L R' (orthogonal Procrustes problem).
    left, _values, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


def _climb(flat: NDArray[np.float32], start: Floats) -> tuple[Floats, Floats]:
    """Maximise the sum of squared kurtoses from one start.

    Parameters
    ----------
    flat : array (R^3, R), float32
        The tensor with its first three axes flattened.
    start : array (R, R)
        First rotation, one direction per row.

    Returns
    -------
    rotation : array (R, R)
        The last rotation that increased the contrast.
    kurtoses : array (R,)
        T(u, u, u, u) for each row u.
    """
    rotation = start.astype(np.float32)
    gradient, kurtoses = _gradient(flat, rotation)
    height, shift = _height(kurtoses), 0.0
    for _ in range(TUNING.start_steps):
        # The shifted polar step: for a large enough shift the contrast cannot decrease, as in the shifted power method
        # (Kolda and Mayo, SIAM J. Matrix Anal. Appl. 32, 2011), but steps become short. `level`, the mean squared
        # kurtosis, has the unit of the gradient part, so shifts are multiples of it.
        level = height / len(rotation)
        moved = polar(kurtoses[:, None] * gradient + np.float32(shift) * rotation).astype(np.float32)
        ahead, values = _gradient(flat, moved)
        if _height(values) < height * (1 + 1e-6):
            # No gain beyond rounding: try again from the same rotation with a larger shift. With a shift of
            # `shift_most` levels the start counts as converged. The negated comparison also ends the search if a value
            # is not a number.
            shift = max(2 * shift, TUNING.shift_first * level)
            if not shift <= TUNING.shift_most * level:
                break
            continue
        # A relative gain between 1e-6 and 1e-5 is accepted as the last step: single precision resolves about 1e-7.
        slow = _height(values) < height * (1 + 1e-5)
        rotation, gradient, kurtoses, height, shift = moved, ahead, values, _height(values), shift / 2
        if slow:
            break
    return rotation.astype(np.float64), kurtoses.astype(np.float64)


def _height(kurtoses: NDArray[Any]) -> float:
    """The contrast: the sum of squared kurtoses, in double precision so that small gains are visible."""
    return float(np.sum(kurtoses.astype(np.float64) ** 2))


def _gradient(flat: NDArray[np.float32], rotation: NDArray[np.float32]) -> tuple[NDArray[np.float32], Any]:
    """T(., u, u, u) (R x R, one row per direction) and T(u, u, u, u) (R) for every row u of `rotation` (R x R).

    `flat` (R^3 x R) is the tensor with its first three axes flattened.
    """
    R = len(rotation)
    # One matrix product contracts the last axis with all rows at once (R^5 operations); the remaining two contractions
    # are done for each row separately, because each row is contracted with itself (R^4 operations and fewer).
    once = (flat @ rotation.T).reshape(R, R, R, R)  # a, b, c, which row
    twice = np.matmul(once.transpose(3, 0, 1, 2), rotation[:, None, :, None])[..., 0]
    gradient = np.matmul(twice, rotation[:, :, None])[..., 0]
    return gradient, np.sum(gradient * rotation, axis=1)
