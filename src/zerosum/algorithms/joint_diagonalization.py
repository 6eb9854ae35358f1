"""Joint diagonalisation: the rotation that makes several symmetric matrices as diagonal as one rotation can.

Tested in tests/algorithms/test_spectral.py.
"""

from __future__ import annotations

import numpy as np

from zerosum.arrays import Floats


def joint_rotation(matrices: Floats, sweeps: int = 200) -> Floats:
    """The orthogonal Q (R x R) for which all Q' K Q are nearly diagonal, by Jacobi's rotations of one pair at a time.

    Cardoso and Souloumiac's angle for a pair minimises the sum of the squares of what is off the diagonal.

    >>> rng = np.random.default_rng(0)
    >>> Q = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    >>> K = np.stack([Q @ np.diag(rng.normal(size=4)) @ Q.T for _ in range(3)])
    >>> found = joint_rotation(K)
    >>> sorted(np.abs(found.T @ Q).max(axis=0).round(6).tolist())
    [1.0, 1.0, 1.0, 1.0]
    """
    K = np.array(matrices, dtype=np.float64)
    R = K.shape[1]
    Q = np.eye(R)
    for _ in range(sweeps):
        largest = 0.0
        for p in range(R - 1):
            for q in range(p + 1, R):
                apart, across = K[:, p, p] - K[:, q, q], 2 * K[:, p, q]
                straight, bent = float(apart @ apart - across @ across), 2 * float(apart @ across)
                angle = 0.5 * np.arctan2(bent, straight + np.hypot(straight, bent))
                if abs(angle) < 1e-10:
                    continue
                largest = max(largest, abs(angle))
                turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
                K[:, :, [p, q]] = K[:, :, [p, q]] @ turn
                K[:, [p, q], :] = turn.T @ K[:, [p, q], :]
                Q[:, [p, q]] = Q[:, [p, q]] @ turn
        if largest < 1e-8:
            break
    return Q
