"""A test of proportional hazards: effects in the late part of the time against those of all time. Post-processing.

Model
-----
One release more, `CoxStep` at the last theta with all units observed from a public time on only (`since`), has the
score and second moments of late times. With s the late score and L the late Hessian, one Newton step gives the late
coefficients, parts and strata of the baseline estimated as well:

    b_late = theta_b + S^-1 (s_b - L_bc L_cc^-1 s_c),    S = L_bb - L_bc L_cc^-1 L_cb.

With b_all the estimate of all rounds without its prior, D = b_late - b_all has the mean zero under proportional
hazards and the covariance

    V = S^-1 Sigma S^-1 + J^-1 + (S^-1 - S_all^-1),

Sigma that of the noise of s_b - L_bc L_cc^-1 s_c, J^-1 that of the noise of b_all, and the last term sampling, since
late times are a part of all information (Hausman 1978); a share of the relative error `TUNING.fade` is added.
D' V^-1 D is chi-squared with p degrees of freedom. Without noise it is the score test of Grambsch and Therneau (1994)
for an effect that changes at one public time.
"""

from __future__ import annotations

import numpy as np

from zerosum.algorithms.cox.estimation import inverted, positive
from zerosum.algorithms.cox.fit import Fit
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.algorithms.program import Estimate
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.request import Release
from zerosum.statistics.cox_step import CoxStep


def late_parts(fit: Fit) -> int:
    """The number of the part from which on times are late: about half of the events are."""
    return (fit.K + 1) // 2


def late_effects(fit: Fit, step: CoxStep, release: Release) -> Estimate:
    """`late_difference` with its standard deviation and p-values, by coefficient and for all together.

    Parameters
    ----------
    fit : Fit
        After the last round.
    step : CoxStep
        The statistic, at the present theta, with `since` at the beginning of the late parts.
    release : Release
        Its noisy sum.
    """
    from scipy.stats import chi2, norm  # heavy: loaded when it is used

    p, K, m, first = fit.p, fit.K, len(fit.theta), late_parts(fit)
    here = np.r_[np.arange(p), np.arange(p + first, m)]
    score, moments = step.split(release.value)
    clip, noise = fit.bounds.clip, release.noise_std
    # Least squares of released numbers P s and P L P' by those of theta that are late; early parts are zero.
    back = np.linalg.pinv(fit.map()[:, here])
    own, measured = back @ (clip * score), back @ (clip**2 * moments) @ back.T
    spread = (clip * fit.bounds.stop * noise) ** 2 * back @ back.T
    # The guess: late information of the Hessian of all times, with the share of late events for the coefficients.
    counts = np.diag(fit.hessian)[p : p + K]
    share = float(np.clip(np.sum(counts[first:]) / np.sum(counts), TUNING.late_least, 1.0))
    guess = fit.hessian[np.ix_(here, here)].copy()
    guess[:p, :p] *= share
    # Strata: what they share with early parts goes.
    width, late = len(here), slice(p, p + K - first)
    strata = slice(p + K - first, width)
    guess[:p, strata] *= share
    guess[strata, :p] *= share
    level = np.sum(guess[late, strata], axis=0)
    guess[strata, strata] = np.diag(level)
    # Each entry is the posterior mean of a normal model, as in a round.
    error = clip**2 * fit.bounds.stop * noise / step.curvature
    blur = error * np.outer(*(np.sqrt(np.sum(back**2, axis=1)),) * 2)
    root = np.sqrt(np.maximum(np.diag(guess), 1e-9))
    prior = TUNING.late_loose * np.outer(root, root)
    whole = guess + prior**2 / (prior**2 + blur**2) * (measured - guess)
    L = positive((whole + whole.T) / 2, np.maximum(np.diag(guess), 1e-9) * TUNING.floor)
    # s_b - L_bc L_cc^-1 s_c.
    take = np.hstack([np.eye(p), -L[:p, p:] @ inverted(L[p:, p:])])
    inverse = inverted(L[:p, :p] - L[:p, p:] @ inverted(L[p:, p:]) @ L[p:, :p])
    J, y = fit.merged()
    noise_all = inverted(J)
    difference = inverse @ (take @ own) + fit.theta[:p] - (noise_all @ y)[:p]
    sampling = inverse - inverted(fit.own_moments() * fit.kept)
    # Both Hessians are noisy: their difference has no negative variance.
    values, vectors = np.linalg.eigh((sampling + sampling.T) / 2)
    sampling = (vectors * np.maximum(values, 0)) @ vectors.T
    V = inverse @ take @ spread @ take.T @ inverse + noise_all[:p, :p] + sampling
    # Both estimates are of stopped observations: their relative errors, which are partly the same, enter by half.
    V += np.diag(0.5 * (TUNING.fade * (noise_all @ y)[:p]) ** 2)
    deviation = np.sqrt(np.diag(V))
    statistic = float(difference @ inverted(V) @ difference)
    half, axis = fit.plan.half[:p] * fit.scale, fit.plan.coefficient_axis
    return {
        "late_difference": Quantity(difference / half, "diagnostic", (axis,)),
        "late_difference_std": Quantity(deviation / half, "diagnostic", (axis,)),
        "late_p_values": Quantity(2 * norm.sf(np.abs(difference) / deviation), "diagnostic", (axis,)),
        "late_from": Quantity(np.array([step.since]), "diagnostic"),
        "proportionality_p_value": Quantity(np.array([chi2.sf(statistic, p)]), "diagnostic"),
    }
