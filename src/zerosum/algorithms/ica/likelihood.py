"""Joint maximum likelihood of the mixing matrix from all rounds and the fourth cumulants. Free post-processing.

Model, in white coordinates with R sources:

    m_k       column k of the mixing matrix M (R x R)
    G = B M   what the rows of a round's unmixing matrix B (R x R) hold of each source, rows scaled to norm 1
    C = G G'  correlations of the round's components (R x R)
    s_ik      usual slope of the score of row i for source k, times p_k, the part of source k (1: the usual slope)

To leading order the mean score of row i is an entry of the fourth-order tensor sum_k s_ik m_k m_k m_k m_k, so that

    F_ij   = sum_k s_ik (G_ik^4 C_ij - G_ik^3 G_jk)       off-diagonal score, freed of its linear part
    turn   = F_ij - F_ji                                  for each pair i < j, times the signs of the scores
    own_i  = sum_k s_ik G_ik^4                            slope of row i by its own score

The same tensor, with kurtoses instead of slopes, is the release of `FourthCumulants`. The filter in `filter`
linearises each release at its own matrix B, so information from early releases, far from the sources, is lost. Here all
releases are fitted jointly at their own B. The unknowns are the R (R - 1)/2 angles of rotations of M and the R parts
p_k. Each released number has Gaussian noise of a known standard deviation; the parts have a Gaussian prior around 1.
The log likelihood is maximised by the method of Levenberg and Marquardt.

All inputs are released numbers, so the fit spends no budget.

Reference: D. Marquardt, An algorithm for least-squares estimation of nonlinear parameters, SIAM J. 11, 1963. Tuned
constants are in `tuning`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.ica.tuning import TUNING
from zerosum.arrays import Floats
from zerosum.statistics.unmixing import upper


@dataclass(frozen=True, eq=False)
class ScoreRelease:
    """One round of `UnmixingScore`: its public request and its release, in the unit of released sums."""

    B: Floats  # (R, R), the unmixing matrix at which the round was evaluated
    signs: Floats  # (R,), 1 or -1, the sign of each row's score
    cube: Floats  # (R,), 1 for rows whose score was the cube, else 0
    slopes: Floats  # (R, R), entry i, k: the usual slope of source k under the score of row i
    turns: Floats  # (R (R - 1)/2,), the released F_ij - F_ji of the pairs i < j
    own: Floats  # (R,), the released slope of each row by its own score
    turn_noise: float  # standard deviation of each entry of `turns`
    own_noise: Floats  # (R,), standard deviation of each entry of `own`


@dataclass(frozen=True, eq=False)
class Cumulants:
    """The release of `FourthCumulants` as a tensor, with its noise and the typical kurtosis of a source."""

    tensor: Floats  # (R, R, R, R), symmetric
    noise: float  # standard deviation in isometric coordinates
    level: float  # root mean square kurtosis of the sources in the tensor, corrected for noise


@dataclass(frozen=True, eq=False)
class Fit:
    """A local maximum of the joint likelihood, and the variances of its parameters."""

    mixing: Floats  # (R, R), one source per column
    parts: Floats  # (R,), slope of each source over the usual slope
    value: float  # log likelihood, up to a constant
    angles: Floats  # (R (R - 1)/2,), variance of the angle of each pair i < j, in radians squared
    doubt: Floats  # (R,), variance of each part


def maximise(mixing: Floats, signs: Floats, rounds: Sequence[ScoreRelease], cumulants: Cumulants, steps: int) -> Fit:
    """Maximise the joint likelihood from a given mixing matrix, by at most `steps` Levenberg-Marquardt steps.

    Parameters
    ----------
    mixing : array (R, R)
        First mixing matrix, one source per column. Only rotations mixing @ Q are searched: the whitening stays.
    signs : array (R,)
        Sign of each source's kurtosis, 1 or -1.
    rounds : sequence of ScoreRelease
        All rounds so far.
    cumulants : Cumulants
        The release of fourth cumulants.
    steps : int
        Most steps, accepted or not.

    Returns
    -------
    Fit
        The last accepted point, with variances from the inverse of the expected curvature.
    """
    R = len(mixing)
    N, each, common = R * (R - 1) // 2, TUNING.part_spread**2, TUNING.part_spread_common**2
    # Precision of the prior covariance each I + common 1 1', by the Sherman-Morrison formula.
    prior = np.eye(R) / each - common / (each * (each + R * common))

    def at(mixing: Floats, parts: Floats) -> tuple[float, Floats, Floats]:
        """Log likelihood, gradient and expected curvature by (angles of pairs, parts of sources): a vector of N + R."""
        value, turns, curvature = _by_cumulants(cumulants, mixing, signs)
        value -= 0.5 * float((parts - 1) @ prior @ (parts - 1))
        gradient, H = np.concatenate([turns, -prior @ (parts - 1)]), np.zeros((N + R, N + R))
        H[:N, :N], H[N:, N:] = np.diag(curvature), prior
        for release in rounds:
            residuals, J = _by_round(release, mixing, parts)
            # Residuals are divided by their noise, so that J' J is the Gauss-Newton approximation of the curvature.
            value -= 0.5 * float(residuals @ residuals)
            gradient += J.T @ residuals
            H += J.T @ J
        return value, gradient, H

    parts, damping = np.ones(R), TUNING.fit_damping
    value, gradient, H = at(mixing, parts)
    for _ in range(steps):
        # Marquardt's damping scales with the diagonal, so it does not depend on the units of angles and parts.
        step = np.asarray(np.linalg.solve(H + damping * np.diag(np.diag(H)), gradient), dtype=np.float64)
        step *= min(1.0, TUNING.fit_step_most / max(float(np.max(np.abs(step))), 1e-300))
        # Angles act by a rotation, so that the mixing matrix keeps its singular values (the whitening) exactly.
        moved = mixing @ rotated(-step[:N], R), parts + step[N:]
        ahead = at(*moved)
        if ahead[0] > value:
            last = ahead[0] - value < TUNING.fit_gain
            (mixing, parts), (value, gradient, H), damping = moved, ahead, damping / TUNING.fit_damping_factor
        else:
            damping *= TUNING.fit_damping_factor
            last = damping > TUNING.fit_damping_most
        if last:
            break
    # Cramer and Rao: the inverse of the expected curvature at the maximum. The damping is no part of it.
    variances = np.diag(np.linalg.inv(H))
    return Fit(mixing, parts, value, variances[:N], variances[N:])


def rotated(angles: Floats, order: int) -> Floats:
    """The rotation (order x order) of the Cayley transform of small `angles`, one for each pair i < j.

    With the skew-symmetric matrix K of the angles it is (I - K/2)^-1 (I + K/2), which is I + K to first order and
    exactly orthogonal.

    >>> rotated(np.array([0.1]), 2).round(2)
    array([[ 1. ,  0.1],
           [-0.1,  1. ]])
    """
    half = np.zeros((order, order))
    half[upper(order)] = angles / 2
    half -= half.T
    return np.asarray(np.linalg.solve(np.eye(order) - half, np.eye(order) + half))


def _by_cumulants(cumulants: Cumulants, mixing: Floats, signs: Floats) -> tuple[float, Floats, Floats]:
    """Log likelihood of the cumulant tensor, its gradient by the angle of each pair, and its expected curvature.

    All sources are taken to have the same absolute kurtosis, `level`. For orthonormal columns m_k the squared norm of
    the model tensor is then constant, and only the product with the released tensor T depends on the rotation:

        log likelihood = level/noise^2 sum_k signs_k T(m_k, m_k, m_k, m_k) + constant.

    `mixing` is R x R and `signs` has R entries. Gradient and curvature have one entry for each pair i < j.
    """
    R = len(mixing)
    row, column = upper(R)
    # After the whitening of the rounds columns are only nearly orthonormal; unit norm keeps the model's scale.
    m = mixing / np.linalg.norm(mixing, axis=0)
    once = (cumulants.tensor.reshape(-1, R) @ m).reshape(R, R, R, R)
    # F_lk = m_l' T(., m_k, m_k, m_k) signs_k level/noise^2: its diagonal is the likelihood, the rest its gradient.
    F = m.T @ np.einsum("abck,bk,ck->ak", once, m, m) * (cumulants.level / cumulants.noise**2 * signs)
    # A rotation by a moves the model tensor by sqrt(8) level a to first order (4 level^2 a^2 for each of two sources).
    # The 1 is a prior standard deviation of 1 radian: without it an angle that nothing determines has no curvature.
    curvature = np.full(len(row), 1 + 8 * (cumulants.level / cumulants.noise) ** 2)
    return float(np.trace(F)), 4 * (F[column, row] - F[row, column]), curvature


def _by_round(release: ScoreRelease, mixing: Floats, parts: Floats) -> tuple[Floats, Floats]:
    """Residuals of one round, divided by their noise, and the Jacobian of the prediction.

    Parameters
    ----------
    release : ScoreRelease
        The round.
    mixing : array (R, R)
        Mixing matrix, one source per column.
    parts : array (R,)
        Part p_k of each source.

    Returns
    -------
    residuals : array (N + R,)
        Released less predicted turns (N = R (R - 1)/2 pairs) and own slopes (R), each over its standard deviation.
    jacobian : array (N + R, N + R)
        Derivatives of the predictions, over the same standard deviations, by the angles of pairs and the parts.
    """
    row, column = upper(len(mixing))
    G = release.B @ mixing
    # Every unit scales its components to mean square 1, so the rows have norm 1 where the sources are white.
    G /= np.linalg.norm(G, axis=1, keepdims=True)
    C, S, cubes, fourths = G @ G.T, release.slopes * parts, G**3, G**4
    # Loss of slope of the cube under mixing (see `TUNING.cube_dilution`): 1 for the other scores and for separated
    # sources.
    left = 1 / np.sqrt(1 + TUNING.cube_dilution * release.cube * (1 - np.sum(fourths, axis=1)))
    own = np.sum(S * fourths, axis=1)
    F = own[:, None] * C - (S * cubes) @ G.T

    # Derivatives by the angle of a pair: column x of G changes by y, and column y by -x. C = G G' does not change,
    # because a rotation of the sources keeps it. Axes: row i, row j, pair.
    x, y, of_x, of_y = G[:, row], G[:, column], S[:, row], S[:, column]
    d_left = 2 * TUNING.cube_dilution * (release.cube * left**3)[:, None] * x * y * (x**2 - y**2)
    d_own = 4 * x * y * (of_x * x**2 - of_y * y**2)
    d_F = (
        d_own[:, None] * C[:, :, None]
        - (y * (3 * of_x * x**2 - of_y * y**2))[:, None] * x
        - (x * (of_x * x**2 - 3 * of_y * y**2))[:, None] * y
    )
    # Derivatives by the parts: F is linear in them. Axes: row i, row j, source.
    by_part = release.slopes[:, None] * (fourths[:, None] * C[:, :, None] - cubes[:, None] * G)
    # Product rule for the factor `left`, which depends on the angles but not on the parts.
    d_F = np.concatenate(
        [left[:, None, None] * d_F + d_left[:, None] * F[:, :, None], left[:, None, None] * by_part], 2
    )
    d_own = np.concatenate([left[:, None] * d_own + d_left * own[:, None], left[:, None] * release.slopes * fourths], 1)

    # A score with sign -1 enters the release negated; the released slopes `own` have no such sign.
    F, d_F = (release.signs * left)[:, None] * F, release.signs[:, None, None] * d_F
    turns, d_turns = F[row, column] - F[column, row], d_F[row, column] - d_F[column, row]
    residuals = [(release.turns - turns) / release.turn_noise, (release.own - left * own) / release.own_noise]
    return np.concatenate(residuals), np.concatenate([d_turns / release.turn_noise, d_own / release.own_noise[:, None]])
