"""The functional mechanism as published: capeFM, its conventional and one-site forms, and dp-fm.

**Public or synthetic data only**, as in all of `zerosum.papers`: plain NumPy, noise from a seeded generator.

A loss is written as a polynomial of degree two, Lambda_0 + <Lambda_1, w> + w' Lambda_2 w, the arrays get noise, and the
noisy polynomial is minimised. With |x| <= 1, and y in [-1, 1] (linear) or in {0, 1} (logistic, Taylor at 0), a record
adds

    linear     y^2, -2 y x, x x'              logistic     log 2, (1/2 - y) x, x x'/8        (each over n)

**capeFM** (section 4, Algorithm 4; appendix H) gives every array noise for the whole (epsilon, delta) from its own
sensitivity: 1, 4, sqrt 2 over n, and 0, 1, sqrt(2)/8. Each is right: attained, and never passed. What is wrong is that
three arrays leave together. In units of the sensitivities, with t = |x|^2, p = y^2, k = <x, x'> and a neighbour's u, q,
a replaced record moves them by

    (p - q)^2 + (p t + q u - 2 y y' k)/4 + (t^2 + u^2 - 2 k^2)/2  <=  (p - q)^2 + (p + q)/4 + 1 + p q/16

(the best k is |y y'|/4 in size, the rest grows in t and u), which is convex in p and in q and so largest in a corner:
2.25 at y = 1, y' = 0, orthogonal unit rows. The true mu is 1.5 times that of one array; for logistic regression, with
p = q = 1/4 and no Lambda_0, 1/2 + 1 + 1/16 = 1.25^2. On top of that comes the view of a coordinator and its colluders
(Theorem 1 leaves out that they know their own draws), which `zerosum.kernel` accounts for. The noise of Lambda_2 is on
all D^2 entries for a Frobenius norm: that is right, and its symmetric half is all that a minimiser uses.

The published minimiser is "any optimizer"; a noisy Lambda_2 is often indefinite and has no minimum, so `stationary`
solves for the point where the gradient vanishes. `repaired` is our repair.

**dp-fm** (Zhang et al. 2012) adds Laplace noise of scale Delta/epsilon to every distinct coefficient, with the L1
sensitivity Delta = 2 (D + 1)^2/n, and D^2/4 + 3 D for logistic regression. Both hold and are far too large for rows
in the unit ball: the distinct entries move by at most 1 + 4 sqrt D + sqrt(D (D + 1)) in L1 norm (as |v|_1 <=
sqrt(length) |v|_2), by sqrt D + sqrt(D (D + 1))/8 for logistic regression. In L2 norm they move by 4, and by 1 (at x'
= x, opposite responses). Laplace noise of scale b on a shift of a_i is a_i/b-private in each coordinate, hence of sum
(a_i/b)^2/2 zCDP in all (Bun and Steinke 2016, proposition 1.4), so that `dp_fm_epsilon` takes the smaller of L1/b and
the epsilon of that zCDP at delta. It is a bound, not an exact figure.

Tested in tests/papers/methods/test_regression_methods.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel import amounts, published
from zerosum.kernel.calculator import account
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.view import Coalition

Model = Literal["linear", "logistic"]

#: Of Lambda_0, Lambda_1 and Lambda_2, times 1/n: as published, and right one by one.
SENSITIVITIES: dict[Model, tuple[float, float, float]] = {
    "linear": (1.0, 4.0, math.sqrt(2)),
    "logistic": (0.0, 1.0, math.sqrt(2) / 8),
}
#: Of all three together, each divided by its own sensitivity.
JOINT: dict[Model, float] = {"linear": 1.5, "logistic": 1.25}

#: The noise law of every form with Gaussian noise, by the kernel's name.
SCHEMES: dict[str, str] = {
    "cape-fm": "cape-published",
    "cape-fm-ridge": "cape-published",
    "pooled-fm": "pooled",
    "conv": "local",
    "single-site": "local",
}


@dataclass(frozen=True, eq=False)
class Sample:
    """Records of a site: features, one record a row, and responses."""

    x: Floats
    y: Floats

    @staticmethod
    def pooled(sites: Sequence[Sample]) -> Sample:
        return Sample(np.concatenate([site.x for site in sites]), np.concatenate([site.y for site in sites]))


@dataclass(frozen=True, eq=False)
class Polynomial:
    """`constant` + <`linear`, w> + w' `matrix` w."""

    constant: float
    linear: Floats
    matrix: Floats

    @property
    def flat(self) -> Floats:
        return np.concatenate([[self.constant], self.linear, self.matrix.ravel()])

    @staticmethod
    def of_flat(values: Floats, columns: int) -> Polynomial:
        return Polynomial(float(values[0]), values[1 : columns + 1], values[columns + 1 :].reshape(columns, columns))


def coefficients(model: Model, sample: Sample) -> Polynomial:
    """Lambda_0, Lambda_1 and Lambda_2 of a site's average loss."""
    x, y = sample.x, sample.y
    second = x.T @ x / len(x)
    if model == "linear":
        return Polynomial(float(np.mean(y * y)), -2 * (x.T @ y) / len(x), second)
    return Polynomial(math.log(2), x.T @ (0.5 - y) / len(x), second / 8)


# ---- minimisers -----------------------------------------------------------------------------------------------------


def stationary(polynomial: Polynomial) -> Floats:
    """Where the gradient vanishes: the minimum where there is one, a saddle where the noise left none."""
    matrix = polynomial.matrix + polynomial.matrix.T
    return np.asarray(np.linalg.lstsq(matrix, -polynomial.linear, rcond=None)[0])


def trimmed(polynomial: Polynomial, ridge: float) -> Floats:
    """Zhang et al. 2012, section 6: a ridge on the matrix, then directions of negative eigenvalues are left out."""
    matrix = (polynomial.matrix + polynomial.matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix + ridge * np.eye(len(matrix)))
    kept = vectors[:, values > 0]
    return np.asarray(kept @ ((kept.T @ polynomial.linear) / (-2 * values[values > 0])))


def repaired(polynomial: Polynomial, entry: float) -> Floats:
    """Our repair of a matrix with independent noise `entry` on all its entries: a ridge as large as its spectral norm.

    The symmetric half of such noise has entries of standard deviation entry/sqrt 2 off the diagonal, and eigenvalues
    up to sqrt(2 D) entry.
    """
    return trimmed(polynomial, math.sqrt(2 * len(polynomial.linear)) * entry)


# ---- Gaussian noise: capeFM and its kin -----------------------------------------------------------------------------


def noisy(
    method: str, model: Model, sites: Sequence[Sample], tau: float, rng: np.random.Generator
) -> tuple[Polynomial, float]:
    """The polynomial that a method minimises, and the noise of an entry of its matrix.

    `tau` is noise over sensitivity for a release of sensitivity 1 (so that a site of n records adds tau Delta_j/n).
    """
    D = sites[0].x.shape[1]
    if method == "pooled-fm":
        sites = [Sample.pooled(sites)]
    elif method == "single-site":
        sites = sites[:1]
    S, n = len(sites), len(sites[0].x)
    each = np.stack([coefficients(model, site).flat for site in sites])
    scale = np.repeat(SENSITIVITIES[model], (1, D, D * D)) * (tau / n)
    drawn = rng.standard_normal(each.shape)
    own = 1.0
    if SCHEMES[method] == "cape-published":  # noise that adds up to zero, and a little that stays
        own = 1 / math.sqrt(S)
        drawn = drawn - drawn.mean(axis=0) + own * rng.standard_normal(each.shape)
    average = np.mean(each + scale * drawn, axis=0)
    return Polynomial.of_flat(average, D), float(scale[-1]) * own / math.sqrt(S)


def published_tau(epsilon: float, delta: float) -> float:
    """The noise of the papers over the sensitivity, sqrt(2 ln(1.25/delta))/epsilon.

    >>> round(published_tau(1.0, 1e-5), 4)
    4.8448
    """
    amounts.check_epsilon(epsilon)
    amounts.check_delta(delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def exact_epsilon(method: str, model: Model, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """The true epsilon of a method (a name in `SCHEMES`) at the published calibration for `epsilon`.

    >>> round(exact_epsilon("cape-fm", "linear", 1.0, 1e-5, sites=5, colluders=1), 3)
    1.659
    """
    tau = published_tau(epsilon, delta)
    return account(
        Scheme(SCHEMES[method]),
        sites=sites,
        coalition=Coalition(colluders),
        sensitivity=JOINT[model],
        delta=delta,
        tau=tau,
    ).epsilon


def tau_for_exact(method: str, model: Model, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """The noise over the sensitivity at which a method is exactly (epsilon, delta)-private."""
    cost = account(
        Scheme(SCHEMES[method]),
        sites=sites,
        coalition=Coalition(colluders),
        sensitivity=JOINT[model],
        delta=delta,
        epsilon=epsilon,
    )
    return cost.noise["tau"]


# ---- Laplace noise: dp-fm -------------------------------------------------------------------------------------------


def dp_fm_sensitivity(model: Model, columns: int) -> float:
    """The L1 sensitivity of Zhang et al., times 1/n.

    >>> dp_fm_sensitivity("linear", 20), dp_fm_sensitivity("logistic", 20)
    (882.0, 160.0)
    """
    return 2.0 * (columns + 1) ** 2 if model == "linear" else columns**2 / 4 + 3 * columns


def dp_fm_moves(model: Model, columns: int) -> tuple[float, float]:
    """How far a replaced record can move the distinct coefficients in L1 (a bound) and in L2 norm, times 1/n."""
    first, second = math.sqrt(columns), math.sqrt(columns * (columns + 1))
    return (1 + 4 * first + second, 4.0) if model == "linear" else (first + second / 8, 1.0)


def dp_fm_epsilon(model: Model, columns: int, scale: float, delta: float) -> float:
    """An epsilon that Laplace noise of `scale`/n on every distinct coefficient is worth at delta, or less."""
    total, length = dp_fm_moves(model, columns)
    return min(total / scale, published.rdp(length / scale, delta))


def dp_fm_scale(model: Model, columns: int, epsilon: float, delta: float) -> float:
    """The smallest scale for which `dp_fm_epsilon` proves (epsilon, delta).

    >>> round(dp_fm_epsilon("linear", 20, dp_fm_scale("linear", 20, 1.0, 1e-5), 1e-5), 9)
    1.0
    """
    amounts.check_epsilon(epsilon)
    from scipy.optimize import brentq

    total, length = dp_fm_moves(model, columns)
    mu = float(brentq(lambda mu: published.rdp(mu, delta) - epsilon, 1e-9, 2 * math.sqrt(epsilon) + 1, xtol=1e-14))
    return min(total / epsilon, length / mu)


def dp_fm(model: Model, sample: Sample, scale: float, rng: np.random.Generator) -> Floats:
    """Laplace noise of `scale`/n on every distinct coefficient, then the authors' repair: a ridge of four standard
    deviations of the noise, and directions that are still negative left out."""
    D, n = sample.x.shape[1], len(sample.x)
    loss = coefficients(model, sample)
    drawn = rng.laplace(scale=scale / n, size=(D, D))
    matrix = loss.matrix + np.triu(drawn) + np.triu(drawn, 1).T
    linear = loss.linear + rng.laplace(scale=scale / n, size=D)
    return trimmed(Polynomial(loss.constant, linear, matrix), 4 * math.sqrt(2) * scale / n)
