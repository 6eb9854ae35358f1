"""Normal posterior of coefficients from noisy gradients and Hessians. Free post-processing.

Model
-----
A `GradientRelease` is one release at coefficients w (width D): the gradient g (D) and the negative Hessian H (D, D,
positive semidefinite without noise) of the mean log-likelihood. Both have independent normal noise of known size. H
was released in isometric coordinates, so its noise E is symmetric with variance s^2 on the diagonal and s^2/2 off it,
and for a vector d the product E d has covariance (s^2/2)(|d|^2 I + d d').

With w* the maximiser of the pooled log-likelihood, g = H (w* - w) up to third-order terms. The prior is w* ~ N(0,
prior^2 I). `combined` merges several releases into one, `believed` gives the posterior N(mean, covariance) of w*, and
`table` the standard errors, the intervals and the identified coefficients.

The posterior without sampling error is about the regression on the pooled data. With the variance of the sampled
gradient added to the noise it is about the population.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerosum.arrays import Floats

_LEVELS = {"90": 1.6448536269514722, "95": 1.959963984540054}  # two-sided quantiles of the normal law
# Iterations of the fixed point in `believed`, whose noise depends on its own step. Chosen by hand: three suffice.
_TURNS = 6


@dataclass(frozen=True, eq=False)
class GradientRelease:
    """One release of a gradient and a negative Hessian of the mean log-likelihood (means over units)."""

    at: Floats  # (D,), the coefficients of the release
    gradient: Floats  # (D,)
    hessian: Floats  # (D, D)
    gradient_noise: float  # standard deviation of an entry of the gradient
    hessian_noise: float  # standard deviation of an isometric coordinate of the Hessian (a diagonal entry)


def combined(looks: Sequence[GradientRelease], bend: float = 0.0) -> GradientRelease:
    """Several looks merged into one at the coefficients of the last, with inverse-variance weights.

    A gradient is moved from w to the last coefficients by the mean of the Hessians at both ends, g - (H + H_last)/2 d
    with d = w_last - w (trapezoidal rule). Two errors of this are counted as further noise: the noise of the two
    Hessians along d, and the remainder of third order, bend (d'H d)^(3/2).

    Parameters
    ----------
    looks : in the order of the rounds; the last one is the best known.
    bend : factor of the remainder; 0 where the log-likelihood is quadratic.
    """
    last = looks[-1]
    gradients, variances = [], []
    for look in looks:
        way = last.at - look.at
        hessian = (look.hessian + last.hessian) / 2
        gradients.append(look.gradient - hessian @ way)
        left_out = bend * max(float(way @ hessian @ way), 0.0) ** 1.5
        # noise variance of (E + E_last)/2 is (s^2 + s_last^2)/4, and half of it times |d|^2 remains in each entry of
        # its product with d; the d d' part is left out
        blurred = (look.hessian_noise**2 + last.hessian_noise**2) / 8 * float(way @ way)
        variances.append(look.gradient_noise**2 + blurred + left_out**2)
    if not min(variances) > 0:  # no noise: the last look is exact
        return last
    weights = 1 / np.array(variances)
    weights = weights / np.sum(weights)
    # the Hessian is averaged with the weights of the gradients: only its product with the last step matters
    return GradientRelease(
        last.at,
        np.asarray(weights @ np.array(gradients)),
        np.asarray(sum(w * look.hessian for w, look in zip(weights, looks, strict=True))),
        math.sqrt(float(weights**2 @ np.array(variances))),
        math.sqrt(float(weights**2 @ np.array([look.hessian_noise**2 for look in looks]))),
    )


@dataclass(frozen=True, eq=False)
class Belief:
    """Normal posterior of the coefficients."""

    mean: Floats  # (D,)
    covariance: Floats  # (D, D)


def believed(look: GradientRelease, prior: float, sampling: float = 0.0, slope: float = 1.0) -> Belief:
    """Posterior of the maximiser w* given one look and the prior N(0, prior^2 I).

    In the eigenvectors of H with eigenvalues e, each coordinate of d = w* - w is observed as g = e d + noise with
    variance gradient_noise^2 + (hessian_noise^2/2) E|d|^2. The variance depends on d, so the posterior is iterated.
    Directions whose eigenvalue is below the noise of H have no signal; there the posterior is the prior.

    Parameters
    ----------
    look : one look, or several from `combined`.
    prior : standard deviation of each coefficient before any data.
    sampling : dispersion over the number of units, so that sampling * e is the sampling variance of the gradient along
        an eigenvector (information equality); 0 for the posterior about the pooled data.
    slope : derivative of the mean clipped residual to the mean residual, in (0, 1]; 1 if no residual is clipped.
    """
    values, vectors = np.linalg.eigh(look.hessian)
    columns = len(values)
    # The noise has entries of standard deviation sigma = hessian_noise/sqrt(2), and sigma sqrt(columns) is the smallest
    # eigenvalue of a signal that leads to a detectable eigenvector (half the semicircle's radius).
    edge = look.hessian_noise * math.sqrt(columns / 2)
    # The factor sqrt(1 - (edge/e)^4) falls smoothly from 1 to 0 at the edge, because eigenvectors near it are mixed
    # with noise. Form and exponent: chosen by hand; no benchmark recorded.
    raised = np.maximum(values, max(edge, 1e-300))
    signal = slope * raised * np.sqrt(np.maximum(1 - (edge / raised) ** 4, 0.0)) * (values > 0)
    # the prior mean of w* is 0, which is d = -w
    gradient, back = vectors.T @ look.gradient, vectors.T @ -look.at
    step, spread = np.zeros(columns), np.zeros(columns)
    sampled = sampling * np.maximum(values, 0.0)
    for _ in range(_TURNS):
        noise = look.gradient_noise**2 + look.hessian_noise**2 / 2 * (step @ step + np.sum(spread)) + sampled
        if not np.all(noise > 0):  # no noise at all: an exact step where there is a Hessian
            precise = signal > 1e-12 * max(float(np.max(signal)), 1e-300)
            step = np.where(precise, gradient / np.where(precise, signal, 1.0), 0.0)
            return Belief(look.at + vectors @ step, np.zeros((columns, columns)))
        # Bayes' rule for one normal observation and a normal prior, coordinate by coordinate
        precision = signal**2 / noise + prior**-2
        step = (signal * gradient / noise + back / prior**2) / precision
        spread = 1 / precision
    return Belief(look.at + vectors @ step, (vectors * spread) @ vectors.T)


def unclipped(mean_square: float, bound: float) -> float:
    """The share of normal residuals within `bound`, from the mean square of those clipped to it.

    By Stein's lemma this share is also the derivative of the mean clipped residual to the mean residual: the factor by
    which clipping reduces the gradient (`slope` of `believed`).

    Parameters
    ----------
    mean_square : released mean of min(r^2, bound^2).
    bound : clip of the residuals, in the same units.

    >>> unclipped(1.0, 10.0)
    1.0
    >>> round(unclipped(0.516, 1.0), 3)  # standard normal residuals clipped at 1
    0.683
    """
    # a ratio near 1 means that nearly all residuals are at the bound, where the share cannot be estimated
    ratio = min(max(mean_square / bound**2, 1e-12), 0.9)

    def clipped_square(cut: float) -> float:
        # E min(z^2, cut^2)/cut^2 for a standard normal z, from E[z^2; |z| < cut] = P(|z| < cut) - 2 cut density(cut)
        density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
        inside = math.erf(cut / math.sqrt(2))
        return (inside - 2 * cut * density) / cut**2 + (1 - inside)

    # it falls with the cut: bisection on the logarithm; 80 halvings exhaust double precision
    low, high = 1e-3, 1e7
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if clipped_square(middle) > ratio else (low, middle)
    return math.erf(low / math.sqrt(2))


def table(mean: Floats, pooled: Floats, population: Floats, known: Floats) -> dict[str, Floats]:
    """Standard errors, 90 % and 95 % intervals of both kinds, and `identified` (0 or 1).

    Parameters
    ----------
    mean : (n,), coefficients in the units of the data.
    pooled, population : (n, n), covariances without and with sampling error.
    known : (n,), prior standard deviations. A coefficient whose pooled standard error is more than half of its prior
        one is not identified. One half: chosen by hand; no benchmark recorded.
    """
    found: dict[str, Floats] = {}
    for kind, covariance in (("pooled", pooled), ("population", population)):
        std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        found[f"{kind}_std"] = std
        for level, quantile in _LEVELS.items():
            found[f"{kind}_interval_{level}"] = np.stack([mean - quantile * std, mean + quantile * std], axis=1)
    found["identified"] = (found["pooled_std"] <= known / 2).astype(np.float64)
    return found
