"""Normal posterior of coefficients from a noisy gradient and a Hessian that is shrunk towards its diagonal.

Model
-----
Round i released, at coefficients w_i (D), the gradient g_i (D) and the negative Hessian H_i (D, D) of a mean
log-likelihood, both with normal noise of known size (`inference.GradientRelease`). Free post-processing in two steps.

1. `average` merges rounds. Near the maximiser w* the gradient is linear, g(w) = H (w* - w), so that the mean of the g_i
   is the gradient at the mean of the w_i whatever H is: no noise of a Hessian enters. The error of second order,
   bend (d'H d) with d = w_i - mean, is counted as noise of round i. Weights are inverse variances. The mean of the
   Hessians over all rounds has the noise of a single release of the whole budget. For coefficients and their errors
   Hessians of far rounds count less: h of a logistic model is largest at eta = 0, so that early rounds overstate H.
   The errors of second order of the rounds, and of the last way to the posterior mean (`moved`), are doubts of the
   point: they enter covariances and no means.

2. `shrunk_posterior` solves g = H d + noise for d = w* - w under the prior d_j ~ N(t_j, q_j^2). With many columns the
   spectral norm of the noise of H, about noise sqrt(2 D), exceeds most eigenvalues of H, although each diagonal entry
   is known well. Off-diagonal entries are therefore taken as correlations R_jk = H_jk/sqrt(H_jj H_kk) with prior N(0,
   tau^2). tau^2 is the mean square of the released ones less that of their noise (empirical Bayes; Ledoit and Wolf 2004
   shrink covariances to a diagonal target in the same way). The posterior of an entry of H has mean C_jk and variance
   V_jk. Then g = C d + (noise of variance s^2 + sum_k V_jk E d_k^2 + sampling), which is solved by the normal equations
   of a linear Gaussian model, iterated because the variance depends on d. There is no threshold on eigenvalues.
   Directions in which C is small keep their prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zerosum.algorithms.regression.inference import GradientRelease, Posterior
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats


def average(
    points: Sequence[GradientRelease], bend: float = 0.0, reach: Floats | None = None, constant: float = 0.0
) -> GradientRelease:
    """Rounds merged into one point at the weighted mean of their coefficients.

    Parameters
    ----------
    points : in the order of the rounds; the last one is the best known.
    bend : the error of second order in an entry of the gradient, over d'H d; 0 where the log-likelihood is quadratic.
    reach : (D,), largest absolute entry of a row by column. Where a column is 0 for most rows and large for a few, the
        error of second order of its own entry is reach_j H_jj d_j^2/2, which d'H d hardly shows. With it, Hessians
        of far points also count less, since h changes with the predictor. Their mean then has less bias and more
        noise: for coefficients and their errors. Steps and scores need a mean with little noise, without `reach`.
    constant : value of the constant column, the last; its entry of H gives the mean of h. 0 without one.

    Returns
    -------
    point : coefficients (D,), gradient (D,), Hessian (D, D) and their noise.
    """
    last = points[-1]
    # no noise: the last point is exact, and any average would be farther away
    if not (last.gradient_noise > 0 and last.hessian_noise > 0):
        return last
    places, gradients, hessians = (
        np.array([getattr(point, what) for point in points]) for what in ("at", "gradient", "hessian")
    )
    gradient_noise, noise = (
        np.array([getattr(point, what) ** 2 for point in points]) for what in ("gradient_noise", "hessian_noise")
    )
    shares, center = 1 / noise / np.sum(1 / noise), last.at
    # Distances from the last coefficients give weights and means of gradients and Hessians, distances from that mean
    # better weights.
    for _ in range(2):
        hessian = np.tensordot(shares, hessians, axes=1)
        # Lengths in the metric of H. A noisy Hessian may be indefinite: only its positive part measures them.
        values, vectors = np.linalg.eigh(hessian)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        remainders, blurs = second_order(places - center, positive, bend, reach, constant)
        weights = 1 / (gradient_noise + np.mean(remainders, axis=1))
        weights = weights / np.sum(weights)
        center = weights @ places
        error = noise + blurs
        shares = 1 / error / np.sum(1 / error)
    return GradientRelease(
        center,
        weights @ gradients,
        np.tensordot(shares, hessians, axes=1),
        math.sqrt(float(weights**2 @ gradient_noise)),
        math.sqrt(float(shares**2 @ noise)),
        math.sqrt(float(shares**2 @ (error - noise))),
        np.diag(weights**2 @ remainders),
    )


def second_order(
    away: Floats, hessian: Floats, bend: float, reach: Floats | None = None, constant: float = 0.0
) -> tuple[Floats, Floats]:
    """Squared errors of a gradient and of a Hessian that are moved by `away`.

    Parameters
    ----------
    away : (n, D), ways in coefficients.
    hessian : (D, D), positive semidefinite.
    bend, reach, constant : as for `average`.

    Returns
    -------
    gradient : (n, D), squared errors of the entries of the gradient.
    hessian : (n,), squared error of an entry of the Hessian; 0 without `reach`.
    """
    lengths = np.sum((away @ hessian) * away, axis=1)
    if reach is None or bend == 0:
        return np.broadcast_to((bend * lengths[:, None]) ** 2, away.shape), np.zeros(len(away))
    diagonal = np.diag(hessian)
    own = reach * diagonal * away**2 / 2
    # h of a row changes by at most its own size times the change of the predictor (h'/h is between -1 and 1). The mean
    # square of that change, d'H d over the mean of h, bounds the squared relative error of an entry of H.
    level = max(diagonal[-1] / constant**2, 1e-9) if constant > 0 else 1.0
    return (bend * lengths[:, None] + own) ** 2, TUNING.bending * np.mean(diagonal) ** 2 * lengths / level


def moved(point: GradientRelease, to: Floats, bend: float) -> GradientRelease:
    """A point of `average` with the error of second order of the way to the coefficients `to` (D,) in its doubt."""
    # without noise the point is exact, and the last one
    if not (point.gradient_noise > 0 and point.hessian_noise > 0):
        return point
    hessian, _variance = denoised(point.hessian, point.hessian_noise)
    gradient, _blur = second_order((to - point.at)[None, :], hessian, bend)
    return replace(point, doubt=point.doubt + np.diag(gradient[0]))


def denoised(hessian: Floats, noise: float, *, cautious: bool = False) -> tuple[Floats, Floats]:
    """Posterior mean and variance of the entries of a Hessian, with correlations shrunk towards 0.

    Parameters
    ----------
    hessian : (D, D), released in isometric coordinates.
    noise : standard deviation of a diagonal entry; that of the others is 1/sqrt(2) of it.
    cautious : whether diagonal entries near their noise are shrunk by the factor 1 - (2 noise/entry)^2 (positive-part
        James-Stein). Of many columns some exceed their noise by chance, and would seem to be identified.

    Returns
    -------
    mean, variance : (D, D), symmetric.

    >>> mean, variance = denoised(np.array([[4.0, 1.0], [1.0, 9.0]]), 0.0)
    >>> mean.round(3).tolist(), float(variance.max())
    ([[4.0, 1.0], [1.0, 9.0]], 0.0)
    """
    # A diagonal entry is positive without noise. One below its noise is not distinguishable from a small one.
    # Its square is a normal number, too.
    least = max(TUNING.hessian_floor * noise, 1e-12 * float(np.max(np.abs(np.diag(hessian)))), 1e-150)
    diagonal = np.maximum(np.diag(hessian), least)
    if cautious and noise > 0:
        ratio = np.minimum(TUNING.hessian_edge * noise / diagonal, 1.0)
        diagonal = np.maximum(diagonal * (1 - ratio**2), least)
    scale = np.outer(diagonal, diagonal)
    squared = (noise**2 / 2) / scale  # variance of the noise of a correlation
    correlations = hessian / np.sqrt(scale)
    off = ~np.eye(len(hessian), dtype=bool)
    spread = 0.0
    if np.any(off):
        # Weights: about the inverse variance of a squared correlation; columns of little signal count little.
        weights = 1 / (squared[off] + TUNING.correlation_square) ** 2
        spread = max(0.0, float(np.sum(weights * (correlations[off] ** 2 - squared[off])) / np.sum(weights)))
    kept = spread / np.maximum(spread + squared, 1e-300)
    mean = np.where(off, correlations * kept * np.sqrt(scale), np.diag(diagonal))
    return mean, np.where(off, kept * squared * scale, noise**2)


def shrunk_posterior(
    point: GradientRelease,
    prior: Floats,
    sampling: float = 0.0,
    center: Floats | None = None,
    *,
    cautious: bool = False,
) -> Posterior:
    """Posterior of the maximiser w* from one point (of `average`) and independent normal priors.

    Parameters
    ----------
    point : gradient, Hessian and their noise at coefficients `at` (D,).
    prior : (D,), standard deviations before any data.
    sampling : dispersion over the number of units, so that sampling * H is the covariance of the sampled gradient
        (information equality); 0 for the posterior about the pooled data.
    center : (D,), prior mean; 0 if not given.
    cautious : for covariances. As for `denoised`, and `point.doubt` is added to the noise of the gradient. Steps with
        it are longer, as small entries are divisors.

    Returns
    -------
    posterior : mean (D,) and covariance (D, D); the covariance is zero where there is no noise at all.

    >>> exact = GradientRelease(np.zeros(2), np.array([2.0, 3.0]), np.diag([1.0, 2.0]), 0.0, 0.0)
    >>> shrunk_posterior(exact, np.ones(2)).mean.round(9).tolist()
    [2.0, 1.5]
    """
    blur = math.hypot(point.hessian_noise, point.hessian_doubt) if cautious else point.hessian_noise
    hessian, variance = denoised(point.hessian, blur, cautious=cautious)
    towards = -point.at if center is None else center - point.at
    squares = prior**2
    values, vectors = np.linalg.eigh(hessian)
    sampled = sampling * (vectors * np.maximum(values, 0.0)) @ vectors.T
    if cautious:
        sampled = sampled + point.doubt
    step, covariance = towards, np.zeros_like(hessian)
    # E d_k^2 is the squared posterior mean plus its variance. The iteration starts at d = 0; a fixed length suffices,
    # since more digits are not in the model.
    second = np.zeros(len(prior))
    through = hessian * squares  # C Q, with Q the prior covariance
    own = through @ hessian
    for _ in range(TUNING.posterior_iterations):
        noise = sampled + np.diag(point.gradient_noise**2 + variance @ second)
        # The form with C Q C + N needs no inverse of the noise N, which may be zero. The ridge is for that case.
        whole = own + noise
        whole = whole + 1e-14 * float(np.max(np.diag(whole))) * np.eye(len(prior))
        gain = np.linalg.solve(whole, through).T
        step = towards + gain @ (point.gradient - hessian @ towards)
        covariance = np.diag(squares) - gain @ through
        second = step**2 + np.maximum(np.diag(covariance), 0.0)
    if not (point.gradient_noise > 0 or point.hessian_noise > 0 or sampling > 0):
        covariance = np.zeros_like(covariance)
    return Posterior(point.at + step, (covariance + covariance.T) / 2)
