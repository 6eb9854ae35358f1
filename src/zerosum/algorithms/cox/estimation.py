"""Coefficients of a Cox model from noisy scores and second moments. Free post-processing.

Model
-----
theta (m) holds coefficients b of standardised columns (p), logarithms of the baseline by part of the time (K), and by
stratum (G - 1, the first stratum is the reference). A row has the numbers u = (column, part, stratum) of the same
length. A round at theta_i measures y = P_i s + noise, with the score s = sum w (d - E) u (m) and a public matrix P_i
(more rows than columns, since the parts and all strata have a constant each), and P_i H P_i' + noise, with the Hessian
H = sum w h u u'. With P = Q R (QR factorisation) Q'y and Q' (.) Q keep all information, in m coordinates whose noise is
independent. All rounds are scores of the same maximiser t*,

    R_i^-1 Q_i'y_i = H (t* - theta_i) + noise_i,

with the noise of the score, the error of H times the way, and the third order (`merged`). The prior is normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.cox.tuning import TUNING
from zerosum.arrays import Floats


@dataclass(frozen=True, eq=False)
class Score:
    """One round."""

    at: Floats  # theta of the round (m,)
    score: Floats  # (m,), in the coordinates of theta
    inverse: Floats  # R^-1 (m, m): the noise of the score is R^-1 times independent numbers
    noise: float  # their standard deviation
    blur: Floats  # standard deviations of the errors of the entries of R H R' (m, m)


def inverted(matrix: Floats) -> Floats:
    """The inverse of a symmetric positive definite matrix, also where rounding makes it singular.

    Parameters
    ----------
    matrix : array of shape (m, m)
        Symmetric. Eigenvalues below 1e-15 of the largest are rounding and become that.
    """
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-15 * max(float(values[-1]), 1e-300))
    return np.asarray((vectors / values) @ vectors.T, dtype=np.float64)


def merged(rounds: Sequence[Score], hessian: Floats, to: Floats, parts: slice) -> tuple[Floats, Floats]:
    """Information J (m, m) and J t (m,) of all rounds about the maximiser near `to`.

    Parameters
    ----------
    rounds : scores with their noise.
    hessian : (m, m), the best known Hessian.
    to : (m,), where errors of moved scores are evaluated.
    parts : the positions of the parts of the time, whose second moments add up to the number of events.
    """
    size = len(to)
    information, weighted = np.zeros((size, size)), np.zeros(size)
    kept = np.trace(hessian[parts, parts])
    for each in rounds:
        # In the coordinates of independent noise: the way is R^-T d, since u'd = (R u)' (R^-T d).
        root = np.linalg.inv(each.inverse)
        way, own = each.inverse.T @ (to - each.at), root @ hessian @ root.T
        # Errors of the entries of the Hessian are independent; a row of them times the way has this variance.
        variance = each.noise**2 + each.blur**2 @ way**2
        # Third order: the sum of w h u (u'd)^2, with (u'd)^2 on average d'H d over the number of events.
        variance = variance + (TUNING.bend * float(way @ own @ way)) ** 2 * np.diag(own) / kept
        # The inverse of R^-1 diag(variance) R^-T.
        precision = (root.T / np.maximum(variance, 1e-18 * kept)) @ root
        weight = hessian @ precision
        information += weight @ hessian
        weighted += weight @ (each.score + hessian @ each.at)
    return information, weighted


def discord(rounds: Sequence[Score], hessian: Floats, at: Floats, parts: slice) -> float:
    """How far the rounds are from one maximiser: the mean of squared standardised residuals of their scores.

    A score at theta_i is H (t - theta_i) and an error of the covariance that `merged` assumes. About 1 if H and the
    errors are right; larger if Newton's steps have not converged, or if the model of the errors is too good.

    Parameters
    ----------
    rounds, hessian, parts : as for `merged`.
    at : (m,), the joint estimate t.

    Returns
    -------
    float
        Sum of squares over the degrees of freedom, (number of rounds - 1) m.
    """
    total, kept = 0.0, np.trace(hessian[parts, parts])
    for each in rounds:
        root = np.linalg.inv(each.inverse)
        residual = root @ (each.score - hessian @ (at - each.at))
        way, own = each.inverse.T @ (at - each.at), root @ hessian @ root.T
        variance = each.noise**2 + each.blur**2 @ way**2
        variance = variance + (TUNING.bend * float(way @ own @ way)) ** 2 * np.diag(own) / kept
        total += float(np.sum(residual**2 / np.maximum(variance, 1e-18 * kept)))
    return total / max((len(rounds) - 1) * len(at), 1)


def likely_size(information: Floats, weighted: Floats, p: int) -> float:
    """The prior deviation of the coefficients with the largest posterior density.

    The estimates of the p coefficients are N(0, V + size^2) for the covariance V of their noise; log size has a normal
    prior.

    Parameters
    ----------
    information, weighted : array of shape (m, m) and (m,)
        J and J t of `merged`.
    p : int
        Number of coefficients, the first entries of theta.

    Returns
    -------
    float
        One of `TUNING.sizes`.
    """
    covariance = inverted(information)
    values, vectors = np.linalg.eigh(covariance[:p, :p])
    # In the eigenvectors of V the estimates are independent under a prior with equal variances.
    squares = (vectors.T @ (covariance @ weighted)[:p]) ** 2
    grid = np.array(TUNING.sizes)
    variance = np.maximum(values, 0.0) + grid[:, None] ** 2
    density = -0.5 * np.sum(np.log(variance) + squares / variance, axis=1)
    density -= 0.5 * ((np.log(grid) - TUNING.size_log) / TUNING.size_spread) ** 2
    return float(grid[int(np.argmax(density))])


def plausible_spread(variance: Floats, noise: Floats, center: Floats) -> tuple[Floats, Floats]:
    """The standard deviation of each column, where its noisy variance may be nothing but noise, and a low one.

    The measured variance is normal about the true one, and the logarithm of the standard deviation has a normal prior.
    A bound in place of the prior would make the scale of a column that is not known as large as the noise allows, and
    the prior of its coefficient, which is per scale, narrower than meant.

    Parameters
    ----------
    variance, noise : array of shape (p,)
        Noisy variances of values in [-1, 1], and the standard deviations of their noise.
    center : array of shape (p,)
        Medians of the prior.

    Returns
    -------
    spread : array of shape (p,)
        The root of the posterior mean of the variance; between `TUNING.scale_least` and 1.
    least : array of shape (p,)
        exp of the posterior mean of the logarithm less `TUNING.spread_low` of its standard deviations, under a prior
        `TUNING.spread_wide` times as wide: ranges may be declared far too wide.

    >>> spread, least = plausible_spread(np.array([0.04, 0.04]), np.array([1e-6, 10.0]), np.array([0.5, 0.5]))
    >>> spread.round(2).tolist(), bool(least[1] < spread[1] / 2)
    ([0.2, 0.54], True)
    """
    logarithms = np.linspace(math.log(TUNING.scale_least), 0.0, 601)[:, None]
    # The grid is finer than any noise that is kept: a relative deviation of 1 % of the variance.
    spread = np.hypot(noise, 0.01 * np.abs(variance) + 1e-6)
    likely = -0.5 * ((variance - np.exp(2 * logarithms)) / spread) ** 2

    def weights(width: float) -> Floats:
        density = likely - 0.5 * ((logarithms - np.log(center)) / width) ** 2
        weight = np.exp(density - np.max(density, axis=0))
        return np.asarray(weight / np.sum(weight, axis=0))

    root = np.sqrt(np.sum(weights(TUNING.spread_log) * np.exp(2 * logarithms), axis=0))
    wide = weights(TUNING.spread_wide * TUNING.spread_log)
    mean = np.sum(wide * logarithms, axis=0)
    deviation = np.sqrt(np.sum(wide * (logarithms - mean) ** 2, axis=0))
    return root, np.exp(mean - TUNING.spread_low * deviation)


def evidence(information: Floats, weighted: Floats, prior: Floats) -> float:
    """Logarithm of the likelihood of the rounds under a normal prior around zero, up to a constant.

    Parameters
    ----------
    information, weighted : J and J t of `merged`.
    prior : precision of the prior (m, m).
    """
    # log N(t; 0, J^-1 + prior^-1) up to terms without the prior, by completing the square.
    whole = information + prior
    size = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(whole)[1]
    return 0.5 * float(size + weighted @ inverted(whole) @ weighted)


def shrunk_moments(moments: Floats, noise: float, weight: float, low: Floats) -> tuple[Floats, float]:
    """Second moments per unit of weight, with correlations shrunk by the share of them that is noise.

    Parameters
    ----------
    moments : (m, m), noisy sums.
    noise : standard deviation of a diagonal entry.
    weight : the sum of weights.
    low : (m,), least second moments.

    Returns
    -------
    moments : (m, m), positive definite.
    error : relative error of an entry that remains.
    """
    size = len(moments)
    diagonal = np.clip(np.diag(moments / weight), low, 3.0)
    correlation = moments / weight / np.sqrt(np.outer(diagonal, diagonal))
    # Entries off the diagonal have half the variance (isometric coordinates).
    variance = (noise / weight) ** 2 / 2
    apart = correlation[~np.eye(size, dtype=bool)]
    kept = max(0.0, 1 - variance / max(float(np.mean(apart**2)), 1e-12)) if size > 1 else 0.0
    correlation = kept * correlation
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    # No eigenvalue below the noise.
    values = np.maximum(values, TUNING.correlation_floor + TUNING.semicircle * np.sqrt(variance * kept * size))
    whole = (vectors * values) @ vectors.T * np.sqrt(np.outer(diagonal, diagonal))
    return whole, float(np.sqrt(variance * kept) * np.mean(1 / values))


def positive(matrix: Floats, floor: Floats) -> Floats:
    """A symmetric matrix with eigenvalues of at least a floor, in units of a positive diagonal.

    Parameters
    ----------
    matrix : (m, m)
    floor : (m,), the diagonal matrix below which no direction may fall.
    """
    root = np.sqrt(floor)
    values, vectors = np.linalg.eigh(matrix / np.outer(root, root))
    return np.asarray((vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(root, root))
