"""Normal posterior of coefficients from a noisy gradient and a Hessian that is shrunk towards its diagonal.

Model
-----
Round i released, at coefficients w_i (D), the gradient g_i (D) and the negative Hessian H_i (D, D) of a mean
log-likelihood, both with normal noise of known size (`inference.GradientRelease`). Free post-processing in two steps.

1. `average` merges rounds. Near the maximiser w* the gradient is linear, g(w) = H (w* - w), so that the mean of the g_i
   is the gradient at the mean of the w_i whatever H is: no noise of a Hessian enters. The error of second order,
   bend (d'H d) with d = w_i - mean, is counted as noise of round i. Weights are inverse variances. The Hessian changes
   little near w*, and the mean over all rounds has the noise of a single release of the whole budget.

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

import numpy as np

from zerosum.algorithms.regression.inference import GradientRelease, Posterior
from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats


def average(points: Sequence[GradientRelease], bend: float = 0.0) -> GradientRelease:
    """Rounds merged into one point at the weighted mean of their coefficients.

    Parameters
    ----------
    points : in the order of the rounds; the last one is the best known.
    bend : the error of second order in an entry of the gradient, over d'H d; 0 where the log-likelihood is quadratic.

    Returns
    -------
    point : coefficients (D,), gradient (D,), Hessian (D, D) and their noise.
    """
    last = points[-1]
    # no noise: the last point is exact, and any average would be farther away
    if not (last.gradient_noise > 0 and last.hessian_noise > 0):
        return last
    # inverse-variance weights; their own sum of squares gives the noise of the mean
    precision = np.array([point.hessian_noise**-2 for point in points])
    hessian = sum(share * point.hessian for share, point in zip(precision / np.sum(precision), points, strict=True))
    hessian = np.asarray(hessian)
    # Distances in the metric of H. A noisy Hessian may be indefinite, so that only its positive part measures lengths.
    values, vectors = np.linalg.eigh(hessian)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    center = last.at
    # Two passes: distances from the last coefficients give weights and a mean, distances from that mean better weights.
    for _ in range(2):
        lengths = np.array([float(np.sum((root.T @ (center - point.at)) ** 2)) for point in points])
        variances = np.array([point.gradient_noise**2 for point in points]) + (bend * lengths) ** 2
        shares = 1 / variances
        shares = shares / np.sum(shares)
        center = np.asarray(sum(share * point.at for share, point in zip(shares, points, strict=True)))
    gradient = np.asarray(sum(share * point.gradient for share, point in zip(shares, points, strict=True)))
    return GradientRelease(
        center, gradient, hessian, math.sqrt(float(shares**2 @ variances)), float(1 / math.sqrt(np.sum(precision)))
    )


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
    least = max(TUNING.hessian_floor * noise, 1e-12 * float(np.max(np.abs(np.diag(hessian)))), 1e-300)
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
    cautious : as for `denoised`; for covariances. Steps with it are longer, as small entries are divisors.

    Returns
    -------
    posterior : mean (D,) and covariance (D, D); the covariance is zero where there is no noise at all.

    >>> exact = GradientRelease(np.zeros(2), np.array([2.0, 3.0]), np.diag([1.0, 2.0]), 0.0, 0.0)
    >>> shrunk_posterior(exact, np.ones(2)).mean.round(9).tolist()
    [2.0, 1.5]
    """
    hessian, variance = denoised(point.hessian, point.hessian_noise, cautious=cautious)
    towards = -point.at if center is None else center - point.at
    squares = prior**2
    values, vectors = np.linalg.eigh(hessian)
    sampled = sampling * (vectors * np.maximum(values, 0.0)) @ vectors.T
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
