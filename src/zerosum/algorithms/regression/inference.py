"""Normal posterior of coefficients from noisy gradients and Hessians. Free post-processing.

Model
-----
A `GradientRelease`, called a point below, is one release at coefficients w (width D): the gradient g (D) and the
negative Hessian H (D, D, positive semidefinite without noise) of the mean log-likelihood. Both have independent normal
noise of known size. H was released in isometric coordinates, so its noise E is symmetric with variance s^2 on the
diagonal and s^2/2 off it, and for a vector d the product E d has covariance (s^2/2)(|d|^2 I + d d').

With w* the maximiser of the pooled log-likelihood, g = H (w* - w) up to third-order terms. The prior is w* ~ N(c,
prior^2 I), c public or released. `posterior` gives the posterior N(mean, covariance) of w*, and `table` the
standard errors, the intervals and the identified coefficients.

The posterior without sampling error is about the regression on the pooled data. With the variance of the sampled
gradient added to the noise it is about the population.

P values are Wald's: a coefficient over its population standard error is standard normal if the coefficient of the
population is 0. The joint test of all slopes b with their population covariance C has b' C^-1 b, chi-squared with as
many degrees of freedom as slopes. Estimates of weakly identified coefficients are shrunk towards the prior mean, so
that their p values are too large rather than too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.regression.tuning import TUNING
from zerosum.arrays import Floats

_LEVELS = {"90": 1.6448536269514722, "95": 1.959963984540054}  # two-sided quantiles of the normal law


@dataclass(frozen=True, eq=False)
class GradientRelease:
    """One release of a gradient and a negative Hessian of the mean log-likelihood (means over units)."""

    at: Floats  # (D,), the coefficients of the release
    gradient: Floats  # (D,)
    hessian: Floats  # (D, D)
    gradient_noise: float  # standard deviation of an entry of the gradient
    hessian_noise: float  # standard deviation of an isometric coordinate of the Hessian (a diagonal entry)
    hessian_doubt: float = 0.0  # standard deviation of the other errors of such a coordinate
    doubt: Floats | float = 0.0  # (D, D), covariance of the other errors of the gradient


@dataclass(frozen=True, eq=False)
class Posterior:
    """Normal posterior of the coefficients."""

    mean: Floats  # (D,)
    covariance: Floats  # (D, D)


def posterior(
    point: GradientRelease, prior: float, sampling: float = 0.0, slope: float = 1.0, center: Floats | None = None
) -> Posterior:
    """Posterior of the maximiser w* given one point and the prior N(center, prior^2 I).

    In the eigenvectors of H with eigenvalues e, each coordinate of d = w* - w is observed as g = e d + noise with
    variance gradient_noise^2 + (hessian_noise^2/2) E|d|^2. The variance depends on d, so the posterior is iterated.
    Directions whose eigenvalue is below the noise of H have no signal; there the posterior is the prior.

    Parameters
    ----------
    point : one point; D coefficients.
    prior : standard deviation of each coefficient before any data.
    sampling : dispersion over the number of units, so that sampling * e is the sampling variance of the gradient along
        an eigenvector (information equality); 0 for the posterior about the pooled data.
    slope : derivative of the mean clipped residual to the mean residual, in (0, 1]; 1 if no residual is clipped.
    center : prior mean (D,); 0 if not given.

    Returns
    -------
    posterior : mean (D,) and covariance (D, D) in the frame; the covariance is zero where there is no noise at all.

    >>> exact = GradientRelease(np.zeros(2), np.array([2.0, 3.0]), np.diag([1.0, 2.0]), 0.0, 0.0)
    >>> posterior(exact, prior=1.0).mean.tolist()
    [2.0, 1.5]
    """
    values, vectors = np.linalg.eigh(point.hessian)
    columns = len(values)
    # The noise has entries of standard deviation sigma = hessian_noise/sqrt(2), and sigma sqrt(columns) is the smallest
    # eigenvalue of a signal that leads to a detectable eigenvector (half the semicircle's radius).
    edge = point.hessian_noise * math.sqrt(columns / 2)
    # The factor sqrt(1 - (edge/e)^4) falls smoothly from 1 to 0 at the edge, because eigenvectors near it are mixed
    # with noise. Form and exponent: chosen by hand; no benchmark recorded.
    raised = np.maximum(values, max(edge, 1e-300))
    signal = slope * raised * np.sqrt(np.maximum(1 - (edge / raised) ** 4, 0.0)) * (values > 0)
    # In the eigenvectors of H the coordinates of g and d are independent, so D scalar problems remain. The prior mean
    # of w* is `center`, which is d = center - w.
    towards = -point.at if center is None else center - point.at
    gradient, back = vectors.T @ point.gradient, vectors.T @ towards
    step, spread = np.zeros(columns), np.zeros(columns)
    sampled = sampling * np.maximum(values, 0.0)
    # E|d|^2 is the squared norm of the posterior mean plus the trace of its covariance. The iteration starts at d = 0
    # and has a fixed length: a root finder would gain digits that the model does not have.
    for _ in range(TUNING.posterior_iterations):
        noise = point.gradient_noise**2 + point.hessian_noise**2 / 2 * (step @ step + np.sum(spread)) + sampled
        if not np.all(noise > 0):  # no noise at all: an exact step where there is a Hessian
            precise = signal > 1e-12 * max(float(np.max(signal)), 1e-300)
            step = np.where(precise, gradient / np.where(precise, signal, 1.0), 0.0)
            return Posterior(point.at + vectors @ step, np.zeros((columns, columns)))
        # Bayes' rule for one normal observation and a normal prior, coordinate by coordinate
        precision = signal**2 / noise + prior**-2
        step = (signal * gradient / noise + back / prior**2) / precision
        spread = 1 / precision
    return Posterior(point.at + vectors @ step, (vectors * spread) @ vectors.T)


def noise_scale(values: Floats, noise: Floats | float) -> Floats:
    """Standard deviation of the noise of the eigenvalues of a noisy matrix, where empty directions repel each other.

    Noise alone spreads the eigenvalues of k empty directions over a semicircle of radius noise sqrt(2 k). k is a smooth
    count of the eigenvalues that do not exceed that radius for all of them.

    Parameters
    ----------
    values : (D,), eigenvalues.
    noise : positive standard deviation of a diagonal entry in these directions, (D,) or one number.
    """
    # The fourth power makes the count continuous in the eigenvalues; chosen by hand, no benchmark recorded.
    empty = 1 / (1 + (np.maximum(values, 0.0) / (noise * math.sqrt(2 * len(values)))) ** 4)
    return np.asarray(noise * np.sqrt(1 + (np.sum(empty) - empty) / 2))


def unseen_share(moments: Floats, noise: float) -> Floats:
    """The share of each coefficient (D,) that lies along directions which released moments cannot tell from empty ones.

    With columns scaled to mean square 1 the prior is equal in all directions, so that this is the share of the prior
    variance of a coefficient about which the data say nothing. Nearly collinear columns have such a direction in
    common: their coefficients are then hardly more than the prior, whatever the noise of their gradient is.

    Parameters
    ----------
    moments : (D, D), released second moments or Hessian, noise included.
    noise : standard deviation of a diagonal entry; of the others 1/sqrt(2) of it.

    >>> pair = np.array([[1.0, 0.97], [0.97, 1.0]])
    >>> unseen_share(pair, 0.1).round(2).tolist(), unseen_share(pair, 0.01).tolist()
    ([0.5, 0.5], [0.0, 0.0])
    """
    if not noise > 0:
        return np.zeros(len(moments))
    size = np.maximum(np.diag(moments), noise)
    values, vectors = np.linalg.eigh(moments / np.sqrt(np.outer(size, size)))
    # v'E v of the scaled noise has the variance noise^2 (sum of v_j^2/size_j)^2
    scale = noise_scale(values, noise * np.sum(vectors**2 / size[:, None], axis=0))
    return np.asarray(vectors**2 @ (values < TUNING.direction_seen * scale).astype(np.float64))


def relative_clip(mean_square: float, bound: float) -> float:
    """The clip of normal residuals in their own standard deviations, from the mean square of those clipped to it.

    Parameters
    ----------
    mean_square : released mean of min(r^2, bound^2).
    bound : clip of the residuals, in the same units.

    Returns
    -------
    cut : bound over the standard deviation of the residuals before they were clipped.

    >>> round(relative_clip(0.516, 1.0), 2)  # standard normal residuals clipped at 1
    1.0
    """
    # a ratio near 1 means that nearly all residuals are at the bound, where the cut cannot be estimated
    ratio = min(max(mean_square / bound**2, 1e-12), TUNING.clipped_ratio_most)

    def clipped_square(cut: float) -> float:
        # E min(z^2, cut^2)/cut^2 for a standard normal z, from E[z^2; |z| < cut] = P(|z| < cut) - 2 cut density(cut)
        density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
        inside = math.erf(cut / math.sqrt(2))
        return (inside - 2 * cut * density) / cut**2 + (1 - inside)

    from scipy.optimize import brentq  # heavy: loaded when it is used

    # The function falls with the cut, from nearly 1 to 1e-14 on [1e-3, 1e7], so the root is unique and lies inside for
    # every ratio above. On the logarithm of the cut an absolute error of 1e-15 is a relative one.
    ends = math.log(1e-3), math.log(1e7)
    return math.exp(brentq(lambda log_cut: clipped_square(math.exp(log_cut)) - ratio, *ends, xtol=1e-15))


def unclipped_share(mean_square: float, bound: float) -> float:
    """The share of normal residuals within `bound`, from the mean square of those clipped to it.

    By Stein's lemma this share is also the derivative of the mean clipped residual to the mean residual: the factor by
    which clipping reduces the gradient (`slope` of `posterior`).

    Parameters
    ----------
    mean_square : released mean of min(r^2, bound^2).
    bound : clip of the residuals, in the same units.

    Returns
    -------
    share : in (0, 1].

    >>> unclipped_share(1.0, 10.0)
    1.0
    >>> round(unclipped_share(0.516, 1.0), 3)  # standard normal residuals clipped at 1
    0.683
    """
    return math.erf(relative_clip(mean_square, bound) / math.sqrt(2))


def table(
    mean: Floats, pooled: Floats, population: Floats, known: Floats, unseen: Floats | float = 0.0
) -> dict[str, Floats]:
    """Standard errors, 90 % and 95 % intervals of both kinds, p values, and `identified` (0 or 1) with the reason.

    Intervals are Wald's: estimate plus or minus a normal quantile times the standard error. P values are
    about the population.

    Parameters
    ----------
    mean : (n,), coefficients in the units of the data.
    pooled, population : (n, n), covariances without and with sampling error.
    known : (n,), prior standard deviations. A coefficient whose pooled standard error is more than
        `TUNING.identified_ratio` of its prior one is not identified.
    unseen : (n,), shares of the prior variances along unknown directions (`unseen_share`), with the same limit.

    Returns
    -------
    results : by name, standard errors, p values, `identified` and `unidentified_reason` (n,), intervals (n, 2) with
        lower and upper ends. The reason is 0 for an identified coefficient, 1 for noise, 2 for collinear columns.
    """
    found: dict[str, Floats] = {}
    for kind, covariance in (("pooled", pooled), ("population", population)):
        # M C M' is positive semidefinite; rounding may leave a diagonal entry slightly negative
        std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        found[f"{kind}_std"] = std
        for level, quantile in _LEVELS.items():
            found[f"{kind}_interval_{level}"] = np.stack([mean - quantile * std, mean + quantile * std], axis=1)
    found["p_value"] = wald_p_values(mean, found["population_std"])
    noisy = found["pooled_std"] > TUNING.identified_ratio * known
    reasons = np.where(noisy, 1.0, np.where(np.asarray(unseen) > TUNING.identified_ratio**2, 2.0, 0.0))
    return found | {"identified": (reasons == 0).astype(np.float64), "unidentified_reason": reasons}


def wald_p_values(estimate: Floats, std: Floats) -> Floats:
    """Two-sided p values of the hypotheses that single coefficients are 0.

    Parameters
    ----------
    estimate, std : (n,), coefficients and their population standard errors; without error the p value is 0, or 1 for a
        coefficient of 0.

    >>> wald_p_values(np.array([1.96, 0.0]), np.ones(2)).round(3).tolist()
    [0.05, 1.0]
    """
    from scipy.special import erfc  # heavy: loaded when it is used

    size = np.abs(estimate)
    ratio = np.divide(size, std, out=np.where(size > 0, np.inf, 0.0), where=std > 0)
    return np.asarray(erfc(ratio / math.sqrt(2)))
