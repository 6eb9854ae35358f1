"""What all rounds of noisy scores and the fourth cumulants say together about a mixing matrix. Free of charge.

A round's scores are entries of a tensor of fourth order, sum_k slope_k m_k m_k m_k m_k over the columns m_k of the
mixing matrix, in the coordinates in which it asked; so are the fourth cumulants. That holds wherever a round asked
from. A filter takes each round as straight around the matrix of its time, and what it heard far from the sources is
lost; here all of them are fitted at once, by rotations of the mixing matrix and the slope of each source.

Tested in tests/algorithms/test_joint_fit.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats
from zerosum.statistics.unmixing import upper

_SPREAD = 0.2, 0.3  # how far slopes are from the usual ones, over these, each by itself and all in common
_DILUTED = 6.0  # how much faster than their fourth cumulant the cube of mixed light tails loses: its variance grows
_FARTHEST = 0.5  # radians of a pair, or parts of a slope, in a step
_ENOUGH = 0.1  # of log likelihood: a step that gains less is the last
_DAMPING = 0.3, 1e4  # of the first step, and where no step helps any more


@dataclass(frozen=True, eq=False)
class Heard:
    """A round: what it asked and what it was told."""

    B: Floats  # the unmixing matrix
    signs: Floats  # of each row's score
    cube: Floats  # 1 for rows whose score was the cube, else 0
    slopes: Floats  # by each row's score, what each source usually has
    turns: Floats
    own: Floats  # each row's slope by its own score
    turn_noise: float
    own_noise: Floats


@dataclass(frozen=True, eq=False)
class Cumulants:
    """Fourth cumulants, the noise of their isometric coordinates, and about how large those of a source are."""

    tensor: Floats
    noise: float
    level: float


@dataclass(frozen=True, eq=False)
class Fit:
    """The most likely mixing matrix near where the search began, and how sure that is."""

    mixing: Floats
    parts: Floats  # each source's slope over the usual one
    value: float  # the log likelihood
    angles: Floats  # the variance of each pair's angle
    doubt: Floats  # and of each part


def fitted(mixing: Floats, signs: Floats, rounds: Sequence[Heard], cumulants: Cumulants, steps: int) -> Fit:
    """Uphill from a mixing matrix, as far as so many steps lead (Levenberg's and Marquardt's)."""
    R = len(mixing)
    N, each, common = R * (R - 1) // 2, _SPREAD[0] ** 2, _SPREAD[1] ** 2
    prior = np.eye(R) / each - common / (each * (each + R * common))

    def at(mixing: Floats, parts: Floats) -> tuple[float, Floats, Floats]:
        """The log likelihood, its gradient, and its expected curvature."""
        value, turns, curvature = _by_cumulants(cumulants, mixing, signs)
        value -= 0.5 * float((parts - 1) @ prior @ (parts - 1))
        gradient, H = np.concatenate([turns, -prior @ (parts - 1)]), np.zeros((N + R, N + R))
        H[:N, :N], H[N:, N:] = np.diag(curvature), prior
        for heard in rounds:
            beyond, J = _by_round(heard, mixing, parts)
            value -= 0.5 * float(beyond @ beyond)
            gradient += J.T @ beyond
            H += J.T @ J
        return value, gradient, H

    parts, damping = np.ones(R), _DAMPING[0]
    value, gradient, H = at(mixing, parts)
    for _ in range(steps):
        step = np.asarray(np.linalg.solve(H + damping * np.diag(np.diag(H)), gradient), dtype=np.float64)
        step *= min(1.0, _FARTHEST / max(float(np.max(np.abs(step))), 1e-300))
        moved = mixing @ rotated(-step[:N], R), parts + step[N:]
        ahead = at(*moved)
        if ahead[0] > value:
            last = ahead[0] - value < _ENOUGH
            (mixing, parts), (value, gradient, H), damping = moved, ahead, damping / 4
        else:
            damping *= 4
            last = damping > _DAMPING[1]
        if last:
            break
    variances = np.diag(np.linalg.inv(H))
    return Fit(mixing, parts, value, variances[:N], variances[N:])


def rotated(angles: Floats, order: int) -> Floats:
    """The rotation that turns each pair by about its angle (Cayley's).

    >>> rotated(np.array([0.1]), 2).round(2)
    array([[ 1. ,  0.1],
           [-0.1,  1. ]])
    """
    half = np.zeros((order, order))
    half[upper(order)] = angles / 2
    half -= half.T
    return np.asarray(np.linalg.solve(np.eye(order) - half, np.eye(order) + half))


def _by_cumulants(cumulants: Cumulants, mixing: Floats, signs: Floats) -> tuple[float, Floats, Floats]:
    """Their log likelihood, up to a constant, its gradient by the angle of each pair, and its expected curvature."""
    R = len(mixing)
    row, column = upper(R)
    m = mixing / np.linalg.norm(mixing, axis=0)
    once = (cumulants.tensor.reshape(-1, R) @ m).reshape(R, R, R, R)
    F = m.T @ np.einsum("abck,bk,ck->ak", once, m, m) * (cumulants.level / cumulants.noise**2 * signs)
    curvature = np.full(len(row), 1 + 8 * (cumulants.level / cumulants.noise) ** 2)  # no angle is free altogether
    return float(np.trace(F)), 4 * (F[column, row] - F[row, column]), curvature


def _by_round(heard: Heard, mixing: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """What a round told beyond what it would by this matrix and these parts, over its noise, and how much of that
    the angle of each pair and the part of each source would explain.

    Row i, which holds G_ik of source k, shows F_ij = sum_k slope_k (G_ik^4 C_ij - G_ik^3 G_jk) with correlations C.
    """
    row, column = upper(len(mixing))
    G = heard.B @ mixing
    G /= np.linalg.norm(G, axis=1, keepdims=True)
    C, S, cubes, fourths = G @ G.T, heard.slopes * parts, G**3, G**4
    left = 1 / np.sqrt(1 + _DILUTED * heard.cube * (1 - np.sum(fourths, axis=1)))
    own = np.sum(S * fourths, axis=1)
    F = own[:, None] * C - (S * cubes) @ G.T

    # a turn of a pair: the first column of G grows by the second, and that by minus the first
    x, y, of_x, of_y = G[:, row], G[:, column], S[:, row], S[:, column]
    d_left = 2 * _DILUTED * (heard.cube * left**3)[:, None] * x * y * (x**2 - y**2)
    d_own = 4 * x * y * (of_x * x**2 - of_y * y**2)
    d_F = (
        d_own[:, None] * C[:, :, None]
        - (y * (3 * of_x * x**2 - of_y * y**2))[:, None] * x
        - (x * (of_x * x**2 - 3 * of_y * y**2))[:, None] * y
    )
    by_part = heard.slopes[:, None] * (fourths[:, None] * C[:, :, None] - cubes[:, None] * G)
    d_F = np.concatenate(
        [left[:, None, None] * d_F + d_left[:, None] * F[:, :, None], left[:, None, None] * by_part], 2
    )
    d_own = np.concatenate([left[:, None] * d_own + d_left * own[:, None], left[:, None] * heard.slopes * fourths], 1)

    F, d_F = (heard.signs * left)[:, None] * F, heard.signs[:, None, None] * d_F
    turns, d_turns = F[row, column] - F[column, row], d_F[row, column] - d_F[column, row]
    beyond = [(heard.turns - turns) / heard.turn_noise, (heard.own - left * own) / heard.own_noise]
    return np.concatenate(beyond), np.concatenate([d_turns / heard.turn_noise, d_own / heard.own_noise[:, None]])
