"""Where rows are stopped and weighted: a trade of privacy noise against lost information. Free post-processing.

Model
-----
Covariates are normal, so that the squared length of a standardised row of p covariates is chi-squared with p degrees of
freedom, plus the squares of the constants; the predictor is normal and independent of the length. The squared length of
a row in a release is n = squared length/C^2. `zerosum.statistics.cox_step` has the weight w(n) and the stop:

    w(n) B/(w(n) (n + b^2 n^2/8)^(1/2))  is the expected number of events at which a row is stopped, at least B.

The mean squared error of a coefficient of a standardised covariate with N events, of whose information the share
k(B, C) is left, is modelled as

    (noise B C/(N k))^2    noise of the score over the Hessian N k
    + (1/k - 1)/N          sampling variance 1/(N k) less that of all rows, 1/N
    + drift^2 (1 - k_s) + (drift_weight (1 - k_w))^2    effects differ between what is lost and the rest,

with the share k_s of events before the stop and the mean weight k_w = k/k_s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from zerosum.algorithms.cox.baseline import normal_nodes
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.statistics.cox_step import PART_MOST, weights

# Quantiles of the chi-squared law that stand for the lengths of rows.
_LENGTHS = 200


@dataclass(frozen=True)
class Bounds:
    """The bounds of the rounds, and what the model expects of them."""

    stop: float
    """B."""
    clip: float
    """C."""
    first_weight: float
    """Mean weight of a row in the first round, whose second moments are of all rows."""
    weight: float
    """Mean weight of a row in the other rounds."""
    lost: float
    """1 - k: the share of the information that is expected to be lost."""


def chosen_bounds(p: int, constants: float, events: float, end: float, noise: float) -> Bounds:
    """The bounds with the least modelled error.

    Parameters
    ----------
    p : int
        Number of covariates.
    constants : float
        Sum of the squares of the constants of a part and a stratum, beside covariates of size 1.
    events : float
        N, the number of events.
    end : float
        Marginal cumulative hazard at the horizon.
    noise : float
        Standard deviation of a sum of sensitivity 2 that takes the budget of all rounds.

    Returns
    -------
    Bounds

    >>> found = [chosen_bounds(6, 1.0, 1000.0, 1.0, noise) for noise in (3.0, 100.0)]
    >>> found[0].clip > found[1].clip
    True
    """
    from scipy.stats import chi2  # heavy: loaded when it is used

    nodes, shares = normal_nodes()
    squares = chi2.ppf((np.arange(_LENGTHS) + 0.5) / _LENGTHS, p) + constants
    # The offset makes the mean of the hazards the marginal hazard.
    hazards = end * np.exp(TUNING.predictor * nodes - TUNING.predictor**2 / 2)
    all_events = shares @ (1 - np.exp(-hazards))
    least, best = math.inf, Bounds(1.0, 1.0, 1.0, 1.0, 0.0)
    for room in TUNING.rooms:
        # A multiple of the mean squared length, and at least so large that a = part_size/C is within its limit.
        clip = max(room * (p + constants), TUNING.part_size**2 / PART_MOST**2)
        n = squares / clip
        weight = weights(n, TUNING.curvature, all_rows=False)
        # Where 2 |g|^2 + b^2 T^2 = 2 for a row that expects e events: |g| = w e sqrt(n)/B, T = w n e/(2 B).
        reach = 1 / (weight * np.sqrt(n + TUNING.curvature**2 * n**2 / 8))
        for stop in TUNING.stops:
            # A unit of total hazard h has its event before the stop s with probability 1 - exp(-min(s, h)).
            before = (1 - np.exp(-np.minimum((stop * reach)[:, None], hazards))) @ shares / all_events
            share, early = float(np.mean(before * weight)), float(np.mean(before))
            loss = (noise * stop) ** 2 * clip / (events * share) ** 2 + (1 / share - 1) / events
            loss += TUNING.drift**2 * (1 - early) + (TUNING.drift_weight * (1 - share / early)) ** 2
            if loss < least:
                first = weights(n, TUNING.first_curvature, all_rows=True)
                least = loss
                best = Bounds(stop, math.sqrt(clip), float(np.mean(first)), float(np.mean(weight)), 1 - share)
    return best
