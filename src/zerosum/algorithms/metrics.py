"""Measures of the separation of sources by ICA, and the matching of estimated to true components.

All need the truth, or another solution as a reference. The Amari index and `matched` do not depend on the order, sign
or scale of components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.errors import BadParameter


def amari_index(unmixing: Floats, mixing: Floats) -> float:
    """The normalized Amari index (Amari's, over 2R(R - 1)) of P = unmixing @ mixing: 0 is perfect, 1 the worst.

    Each row and each column of abs(P) adds its sum over its largest entry, less 1: 0 if it has a single entry that is
    not 0. The total is divided by 2R(R - 1). A value below 0.1 is commonly called usable.

    Parameters
    ----------
    unmixing
        R x D, one component a row.
    mixing
        D x R, one map a column.

    Examples
    --------
    >>> amari_index(np.array([[0.0, 2.0], [-3.0, 0.0]]), np.eye(2))
    0.0
    >>> amari_index(np.ones((3, 3)), np.eye(3))
    1.0
    """
    P = np.abs(np.asarray(unmixing) @ np.asarray(mixing))
    R = len(P)
    if P.shape != (R, R) or R < 2:
        raise BadParameter(f"the Amari index compares at least two components with as many maps, got {P.shape}")
    rows, columns = np.max(P, axis=1, keepdims=True), np.max(P, axis=0, keepdims=True)
    if not (np.all(np.isfinite(P)) and np.all(rows > 0) and np.all(columns > 0)):
        return 1.0  # a component or a map is zero or not finite
    return float((np.sum(P / rows) + np.sum(P / columns) - 2 * R) / (2 * R * (R - 1)))


@dataclass(frozen=True)
class Matched:
    """Assignment of estimated to true maps: found[order] * signs corresponds to the truth."""

    order: NDArray[np.intp]
    signs: Floats
    correlations: Floats  # absolute, in the order of the truth


def matched(maps: Floats, truth: Floats) -> Matched:
    """Match maps (K x D) with true ones (R x D, R <= K) so that the sum of absolute correlations is largest.

    >>> truth = np.array([[1.0, 0, 0, 2], [0, 3.0, 1, 0]])
    >>> pairs = matched(-truth[::-1], truth)
    >>> pairs.order.tolist(), pairs.signs.tolist(), pairs.correlations.round(6).tolist()
    ([1, 0], [-1.0, -1.0], [1.0, 1.0])
    """
    if maps.ndim != 2 or truth.ndim != 2 or maps.shape[1] != truth.shape[1] or len(maps) < len(truth):
        raise BadParameter(
            f"maps must be (K, D) and truth (R, D) with R <= K and the same D, got {maps.shape} and {truth.shape}"
        )
    estimates, true = _standardised(maps), _standardised(truth)
    correlation = true @ estimates.T
    from scipy.optimize import linear_sum_assignment

    pairs = linear_sum_assignment(-np.abs(correlation))
    order = np.asarray(pairs[1], dtype=np.intp)
    best = correlation[np.arange(len(truth)), order]
    return Matched(order, np.where(best < 0, -1.0, 1.0), np.abs(best))


def _standardised(maps: Floats) -> Floats:
    apart = maps - maps.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(apart, axis=1, keepdims=True)
    return np.asarray(apart / np.where(norms > 0, norms, 1.0))


def component_error(estimates: Floats, truth: Floats) -> float:
    """The least mean distance between true components (R x D) and estimated ones (K x D) over all matchings.

    >>> component_error(np.array([[2.0, 0.0], [0.0, 1.5]]), np.array([[0.0, 1.0], [2.0, 0.0]]))
    0.25
    """
    from scipy.optimize import linear_sum_assignment  # heavy: loaded when it is used

    distances = np.linalg.norm(np.asarray(estimates)[:, None] - np.asarray(truth)[None], axis=2)
    rows, columns = linear_sum_assignment(distances)
    return float(np.mean(distances[rows, columns]))
