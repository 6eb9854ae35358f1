"""Functional mechanism as published (regression): sensitivities and minimisers of capeFM, its cost, and dp-fm.

capeFM, its conventional, pooled and one-site forms are sums over sites: the program `cape-fm`
(`zerosum.papers.programs.regression`) under the schemes of `SCHEMES`, which the figures rehearse
(`zerosum.papers.rehearsal`). dp-fm has Laplace noise and is a function here. **Public or synthetic data only**: its
noise comes from a seeded generator, and no ledger is charged.

A loss is written as a polynomial of degree two, Lambda_0 + <Lambda_1, w> + w' Lambda_2 w. Noise is added to the arrays,
and the noisy polynomial is minimised. With |x| <= 1, and y in [-1, 1] (linear) or in {0, 1} (logistic, Taylor expansion
at 0), a record contributes

    linear     y^2, -2 y x, x x'              logistic     log 2, (1/2 - y) x, x x'/8        (each over n)

**capeFM** (section 4, Algorithm 4; appendix H) adds noise to every array for the whole (epsilon, delta) from its own
sensitivity: 1, 4, sqrt 2 over n, and 0, 1, sqrt(2)/8. Each of them is correct and attained. The error is that three
arrays are released together. In units of the sensitivities, with t = |x|^2, p = y^2, k = <x, x'> and u, q for the
neighbour's record, a replaced record moves them by

    (p - q)^2 + (p t + q u - 2 y y' k)/4 + (t^2 + u^2 - 2 k^2)/2  <=  (p - q)^2 + (p + q)/4 + 1 + p q/16

(the best k has magnitude |y y'|/4, the rest increases in t and u). The bound is convex in p and in q, and so largest in
a corner: 2.25 at y = 1, y' = 0 and orthogonal unit rows. The exact mu is 1.5 times that of one array. For logistic
regression, with p = q = 1/4 and no Lambda_0, the bound is 1/2 + 1 + 1/16 = 1.25^2. In addition the coordinator and its
colluders know their own draws, which Theorem 1 leaves out and `zerosum.kernel` accounts for. The noise of Lambda_2 is
on all D^2 entries for a Frobenius norm, which is correct; a minimiser uses its symmetric part only.

The published minimiser is "any optimizer". A noisy Lambda_2 is often indefinite and has no minimum, so `stationary`
solves for the point of zero gradient. `repaired` is our repair.

**dp-fm** (Zhang et al. 2012) adds Laplace noise of scale Delta/epsilon to every distinct coefficient, with the L1
sensitivity Delta = 2 (D + 1)^2/n, and D^2/4 + 3 D for logistic regression. Both are valid and far too large for rows in
the unit ball: the distinct entries move by at most 1 + 4 sqrt D + sqrt(D (D + 1)) in L1 norm (as |v|_1 <= sqrt(length)
|v|_2), and by sqrt D + sqrt(D (D + 1))/8 for logistic regression. In L2 norm they move by 4, and by 1 (at x' = x,
opposite responses). Laplace noise of scale b on a shift of a_i is a_i/b-private in each coordinate, hence of sum
(a_i/b)^2/2 zCDP in all (Bun and Steinke 2016, proposition 1.4). `dp_fm_epsilon` takes the smaller of L1/b and the
epsilon of that zCDP at delta. It is a bound, not an exact value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel import amounts, published
from zerosum.papers import rehearsal
from zerosum.papers.methods.records import Records

Model = Literal["linear", "logistic"]

# Published sensitivities of Lambda_0, Lambda_1 and Lambda_2, times 1/n; each is correct by itself.
SENSITIVITIES: dict[Model, tuple[float, float, float]] = {
    "linear": (1.0, 4.0, math.sqrt(2)),
    "logistic": (0.0, 1.0, math.sqrt(2) / 8),
}
# Sensitivity of all three together, each divided by its own sensitivity.
JOINT: dict[Model, float] = {"linear": 1.5, "logistic": 1.25}

# Method to the scheme with the same noise law. A site alone has the noise of a trusted holder of its records.
SCHEMES: dict[str, str] = {
    "cape-fm": "cape-published",
    "cape-fm-ridge": "cape-published",
    "pooled-fm": "pooled",
    "conv": "local",
    "single-site": "pooled",
}
# Methods that use the first site only.
ONE_SITE_METHODS = ("single-site",)


@dataclass(frozen=True, eq=False)
class Polynomial:
    """`constant` + <`linear`, w> + w' `matrix` w."""

    constant: float
    linear: Floats
    matrix: Floats


def coefficients(model: Model, sample: Records) -> Polynomial:
    """Lambda_0, Lambda_1 and Lambda_2 of a site's mean loss."""
    x, y = sample.x, sample.y
    # Means and not sums, so that the arrays of sites of equal size are averaged (capeFM, Algorithm 4, line 10).
    second = x.T @ x / len(x)
    if model == "linear":
        return Polynomial(float(np.mean(y * y)), -2 * (x.T @ y) / len(x), second)
    # Taylor's series of log(1 + exp(x'w)) - y x'w at 0 to the second order: log 2 + (1/2 - y) x'w + (x'w)^2/8.
    return Polynomial(math.log(2), x.T @ (0.5 - y) / len(x), second / 8)


# ---- minimisers -----------------------------------------------------------------------------------------------------


def stationary(polynomial: Polynomial) -> Floats:
    """Point of zero gradient: the minimum if there is one, otherwise a saddle point."""
    # The gradient of w' M w is (M + M') w: only the symmetric part matters, and noise on both triangles is averaged.
    matrix = polynomial.matrix + polynomial.matrix.T
    # Least squares instead of a solver: a noisy matrix may be singular, and the shortest solution is then taken.
    return np.asarray(np.linalg.lstsq(matrix, -polynomial.linear, rcond=None)[0])


def trimmed(polynomial: Polynomial, ridge: float) -> Floats:
    """Zhang et al. 2012, section 6: add a ridge to the matrix, then drop directions of negative eigenvalues."""
    matrix = (polynomial.matrix + polynomial.matrix.T) / 2
    values, vectors = np.linalg.eigh(matrix + ridge * np.eye(len(matrix)))
    # Along a direction of negative curvature the noisy loss has no minimum; the coefficient there is set to 0.
    directions = vectors[:, values > 0]
    return np.asarray(directions @ ((directions.T @ polynomial.linear) / (-2 * values[values > 0])))


def repaired(polynomial: Polynomial, entry: float) -> Floats:
    """Our repair for independent noise of standard deviation `entry` on all entries: a ridge equal to its spectral
    norm.

    The symmetric part of such noise has entries of standard deviation entry/sqrt 2 off the diagonal, and eigenvalues up
    to sqrt(2 D) entry.
    """
    # sqrt(2 D) times the noise of an entry is the edge of the spectrum of the symmetric part (Wigner's semicircle: 2
    # sqrt(D) times the standard deviation entry/sqrt 2 off the diagonal).
    return trimmed(polynomial, math.sqrt(2 * len(polynomial.linear)) * entry)


# ---- privacy cost of capeFM -----------------------------------------------------------------------------------------


def exact_epsilon(method: str, model: Model, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Exact epsilon of a method (a name in `SCHEMES`) at the published calibration for `epsilon`.

    >>> round(exact_epsilon("cape-fm", "linear", 1.0, 1e-5, sites=5, colluders=1), 3)
    1.659
    """
    tau = rehearsal.published_tau(epsilon, delta)
    return rehearsal.exact_epsilon(
        SCHEMES[method], tau, delta, sites=sites, colluders=colluders, sensitivity=JOINT[model]
    )


def tau_for_exact(method: str, model: Model, epsilon: float, delta: float, sites: int, colluders: int) -> float:
    """Noise for sensitivity 1 at which a method is exactly (epsilon, delta)-private."""
    return rehearsal.exact_tau(
        SCHEMES[method], epsilon, delta, sites=sites, colluders=colluders, sensitivity=JOINT[model]
    )


# ---- Laplace noise: dp-fm -------------------------------------------------------------------------------------------


def dp_fm_sensitivity(model: Model, columns: int) -> float:
    """L1 sensitivity of Zhang et al., times 1/n.

    >>> dp_fm_sensitivity("linear", 20), dp_fm_sensitivity("logistic", 20)
    (882.0, 160.0)
    """
    return 2.0 * (columns + 1) ** 2 if model == "linear" else columns**2 / 4 + 3 * columns


def dp_fm_moves(model: Model, columns: int) -> tuple[float, float]:
    """Largest change of the distinct coefficients by a replaced record, times 1/n: in L1 norm (a bound) and in L2
    norm."""
    first, second = math.sqrt(columns), math.sqrt(columns * (columns + 1))
    return (1 + 4 * first + second, 4.0) if model == "linear" else (first + second / 8, 1.0)


def dp_fm_epsilon(model: Model, columns: int, scale: float, delta: float) -> float:
    """Upper bound on the epsilon of Laplace noise of `scale`/n on every distinct coefficient, at delta."""
    total, length = dp_fm_moves(model, columns)
    # Both bounds hold, so the smaller one does: pure composition is better for few columns, zCDP for many.
    return min(total / scale, published.rdp(length / scale, delta))


def dp_fm_scale(model: Model, columns: int, epsilon: float, delta: float) -> float:
    """Smallest scale for which `dp_fm_epsilon` proves (epsilon, delta).

    >>> round(dp_fm_epsilon("linear", 20, dp_fm_scale("linear", 20, 1.0, 1e-5), 1e-5), 9)
    1.0
    """
    amounts.check_epsilon(epsilon)
    from scipy.optimize import brentq

    total, length = dp_fm_moves(model, columns)
    # The zCDP bound has no closed inverse; it increases in mu, so that its root is unique.
    mu = float(brentq(lambda mu: published.rdp(mu, delta) - epsilon, 1e-9, 2 * math.sqrt(epsilon) + 1, xtol=1e-14))
    return min(total / epsilon, length / mu)


def dp_fm(model: Model, sample: Records, scale: float, rng: np.random.Generator) -> Floats:
    """Laplace noise of `scale`/n on every distinct coefficient, then the authors' repair: a ridge of four standard
    deviations of the noise, without directions that are still negative."""
    D, n = sample.x.shape[1], len(sample.x)
    loss = coefficients(model, sample)
    drawn = rng.laplace(scale=scale / n, size=(D, D))
    # Each distinct coefficient has one draw, mirrored: a second draw for (j, i) would let a reader average the two.
    matrix = loss.matrix + np.triu(drawn) + np.triu(drawn, 1).T
    linear = loss.linear + rng.laplace(scale=scale / n, size=D)
    # Four standard deviations of a Laplace entry, sqrt(2) scale/n each: the choice of Zhang et al., section 6.
    return trimmed(Polynomial(loss.constant, linear, matrix), 4 * math.sqrt(2) * scale / n)
