"""A random intercept by site, from the estimates of a model with a constant for each site. Free post-processing.

Model
-----
A study with `site_effects` estimates the slopes b (p) and the constants a (S) of all sites, with a covariance C of
sampling error and privacy noise. In the mixed model a_s = m + u_s, u_s normal with mean 0 and variance t^2. For a
linear model the estimates w = (b, a) are sufficient for the coefficients, so that

    w ~ N(X (b, m), C + t^2 J),     X = [I 0; 0 1],     J = 1 for the constants and 0 for the slopes,

is the mixed model itself and no approximation, up to the weak prior of the regression and the estimated variance of
the residuals. t^2 is estimated by restricted maximum likelihood (REML). Its interval of 95 % is the set of values that
the test of r' (C + t^2 J)^-1 r, chi-squared with S - 1 degrees of freedom, does not reject (Q profile; Viechtbauer
2007). Given t^2 the slopes and m are those of generalised least squares, and the constants their conditional means.
With t^2 = 0 all sites have one constant, and with a large t^2 the slopes are those of the fixed constants.

References: Laird and Ware 1982; Patterson and Thompson 1971; Viechtbauer 2007.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from zerosum.arrays import Floats

if TYPE_CHECKING:  # a table makes a `MixedTable`, and its module imports this one
    from zerosum.report.coefficients import CoefficientTable

# Largest variance between sites in the search, over the largest variance of an estimated constant plus their spread.
# Chosen by hand: far beyond any estimate.
_MOST = 1e4
# Quantiles of the interval of the variance between sites.
_TAILS = (0.975, 0.025)


@dataclass(frozen=True)
class MixedTable:
    """A linear model with a random intercept by site (`zerosum.report.mixed`).

    Attributes
    ----------
    fixed : CoefficientTable
        The slopes and the mean intercept.
    between : float
        Standard deviation of the intercepts between sites.
    interval : tuple of float
        Its interval of 95 %.
    sites : mapping of str to tuple of float
        Intercept of each site, drawn towards the mean, and its standard error.
    """

    fixed: CoefficientTable
    between: float
    interval: tuple[float, float]
    sites: Mapping[str, tuple[float, float]]

    @property
    def note(self) -> str:
        """The standard deviation between sites with its interval, for tables."""
        low, high = (f"{end:.3g}" for end in self.interval)
        return (
            f"Random intercept by site: standard deviation {self.between:.3g} (95 % CI {low} to {high}) between "
            f"{len(self.sites)} sites."
        )

    def __str__(self) -> str:
        """The coefficients, and the intercepts of the sites."""
        lines = [f"{name}: {value:.4g} (SE {std:.2g})" for name, (value, std) in self.sites.items()]
        return "\n".join([str(self.fixed), "", self.note, *lines])


@dataclass(frozen=True, eq=False)
class MixedFit:
    """Fit of a random intercept.

    Attributes
    ----------
    map : array of shape (p + 1, p + S)
        From the estimates (slopes, constants) to the slopes and the mean constant.
    covariance : array of shape (p + 1, p + 1)
        Of the slopes and the mean constant, with the variance between sites.
    between : float
        Standard deviation between sites.
    interval : tuple of float
        Its interval of 95 %.
    constants, constant_std : array of shape (S,)
        Conditional means of the sites' constants, and their standard errors given t.
    """

    map: Floats
    covariance: Floats
    between: float
    interval: tuple[float, float]
    constants: Floats
    constant_std: Floats


def random_intercept(estimate: Floats, covariance: Floats, sites: int) -> MixedFit:
    """The mixed model of estimates with a constant for each site.

    Parameters
    ----------
    estimate : array of shape (p + S,)
        Slopes, then the constants of the sites.
    covariance : array of shape (p + S, p + S)
        Their covariance for the population.
    sites : int
        S, at least 3.
    """
    from scipy.optimize import brentq, minimize_scalar
    from scipy.special import chdtri

    width = len(estimate) - sites
    design = np.zeros((len(estimate), width + 1))
    design[:width, :width] = np.eye(width)
    design[width:, width] = 1.0
    shared = np.zeros(len(estimate))
    shared[width:] = 1.0

    def parts(variance: float) -> tuple[Floats, Floats, Floats]:
        """Inverse covariance of the estimates, inverse of X'O^-1 X, and residuals of generalised least squares."""
        precision: Floats = np.asarray(np.linalg.inv(covariance + variance * np.diag(shared)))
        fixed: Floats = np.asarray(np.linalg.inv(design.T @ precision @ design))
        return precision, fixed, estimate - design @ (fixed @ design.T @ precision @ estimate)

    def restricted(root: float) -> float:
        """Twice the negative restricted log-likelihood."""
        precision, fixed, rest = parts(root**2)
        return float(rest @ precision @ rest - np.linalg.slogdet(precision)[1] - np.linalg.slogdet(fixed)[1])

    def quadratic(variance: float) -> float:
        precision, _, rest = parts(variance)
        return float(rest @ precision @ rest)

    own = float(np.max(np.diag(covariance)[width:])) + float(np.var(estimate[width:]))
    root = float(minimize_scalar(restricted, bounds=(0.0, 10 * math.sqrt(own)), method="bounded").x)
    # A bounded search does not evaluate the end itself.
    between = 0.0 if restricted(0.0) <= restricted(root) else root
    ends = []
    for tail in _TAILS:
        # chdtri gives the value with this upper tail. The quadratic form falls with the variance.
        wanted = float(chdtri(sites - 1, 1 - tail))
        if quadratic(0.0) <= wanted:
            ends.append(0.0)
        elif quadratic(_MOST * own) >= wanted:
            ends.append(math.inf)
        else:
            found = brentq(lambda value, wanted=wanted: quadratic(value) - wanted, 0.0, _MOST * own)
            ends.append(math.sqrt(found))
    precision, fixed, rest = parts(between**2)
    total = between**2 * np.diag(shared)
    # E[u | w] = t^2 J O^-1 (w - X g); the error has the covariance of u less the part that w determines, plus that of
    # the mean.
    shrunk = total @ precision
    mean = design @ fixed @ design.T @ precision @ estimate + shrunk @ rest
    left = np.eye(len(estimate)) - shrunk
    error = total - shrunk @ total + left @ design @ fixed @ design.T @ left.T
    return MixedFit(
        fixed @ design.T @ precision,
        fixed,
        between,
        (ends[0], ends[1]),
        mean[width:],
        np.sqrt(np.maximum(np.diag(error)[width:], 0.0)),
    )
