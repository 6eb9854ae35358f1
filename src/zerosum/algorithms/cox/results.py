"""Results of a Cox regression: coefficients with intervals, reasons against them, and survival. Free post-processing.

With J the information of the releases, H the Hessian after stopping and weighting, and `lost` the share of events that
they take away,

    pooled      J^-1 + lost H^-1 + drift,
    population  J^-1 + H^-1 + drift,

with J^-1 multiplied by the discord of the rounds if that is above 1, and stretched along combinations of columns whose
information is not known well (`doubted`). Each is combined with a weak prior of deviation `TUNING.weak`, and averaged
over the smoothness of the baseline (`averaged`). With H = (1 - lost) H_all the variance of the difference of the two
fits is about H^-1 - H_all^-1 = lost H^-1 (Hausman 1978, for an efficient fit beside one with less information).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms.cox.concordance import concordance_of
from zerosum.algorithms.cox.estimation import discord, inverted
from zerosum.algorithms.cox.fit import Fit
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.algorithms.intervals import ENDS, Z
from zerosum.algorithms.program import Estimate
from zerosum.algorithms.regression.inference import table as interval_table
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity

# Why a coefficient is not identified; `zerosum.report.coefficients` has the sentences.
NOISE, COLLINEAR, FEW = 1, 2, 3


def estimate_of(fit: Fit) -> Estimate:
    """The results, in the units of the data."""
    p, plan = fit.p, fit.plan
    # A coefficient of u, over half a range times the scale, is one in the units of the data.
    half = plan.half[:p] * fit.scale
    J, y = fit.merged()
    sampling, noise = inverted(fit.hessian), inverted(J)
    # Both numbers are noisy: limits keep the variances of the results finite.
    lost = float(np.clip(1 - fit.kept / fit.exits.total, 0, 0.9))
    # Rounds that disagree by more than their errors have larger errors (the factor of Birge 1932).
    apart = discord(fit.rounds, fit.hessian, noise @ y, slice(p, p + fit.K))
    noise = doubted(fit, noise * max(apart, 1.0))
    rough = roughness(fit, J)
    # Effects that are not proportional or not linear differ between the information that is lost and the rest, column
    # by column. A baseline that steps from part to part is not known within parts either.
    own = inverted(fit.own_moments())
    least = 1 - fit.bounds.weight * (1 - fit.outweighed)
    lacking = TUNING.wander * np.maximum(least, fit.bounds.lost / 2)
    drift = np.zeros_like(noise)
    drift[:p, :p] = (np.outer(lacking, lacking) + TUNING.within**2 * rough**2) * own
    # Stopping and weighting lose part of the information: the fit differs from that of all by as much sampling.
    mean, pooled, population = averaged(fit, J, y, noise, (lost * sampling, sampling), drift)
    units = np.outer(half, half)
    found = interval_table(mean[:p] / half, pooled[:p, :p] / units, population[:p, :p] / units, np.full(p, math.inf))
    reasons = reasons_of(fit, J, noise)
    found["identified"] = (reasons == 0).astype(np.float64)
    found["unidentified_reason"] = reasons
    axis = plan.coefficient_axis
    estimate = {
        "coefficients": Quantity(mean[:p] / half, "coefficient", (axis,), found["pooled_std"]),
        "score_coefficients": Quantity(fit.theta[:p] / half, "coefficient", (axis,)),
    }
    for name, value in found.items():
        estimate[name] = Quantity(value, "diagnostic", (axis, ENDS)[: value.ndim])
    estimate["outweighed"] = Quantity(fit.outweighed, "diagnostic", (axis,))
    estimate["spread_known"] = Quantity(np.minimum(fit.size_least / fit.size, 1.0), "diagnostic", (axis,))
    estimate["column_drift"] = Quantity(fit.drifting, "diagnostic", (axis,))
    at = plan.middle[:p] + plan.half[:p] * fit.center
    estimate["baseline_at"] = Quantity(at, "number", (axis,))
    estimate |= survival_of(fit, noise + lost * sampling, noise + sampling)
    single = {
        "discord": apart,
        "baseline_steps": rough,
        "events": fit.exits.total,
        "lost_information": lost,
        "stop": fit.bounds.stop,
        "clip": fit.bounds.clip,
    }
    return estimate | {name: Quantity(np.array([value]), "diagnostic") for name, value in single.items()}


def roughness(fit: Fit, J: Floats) -> float:
    """How far the baseline steps from part to part: the root of the mean square, less that of the noise.

    Parameters
    ----------
    J : array of shape (m, m)
        Information of all rounds.
    """
    parts = slice(fit.p, fit.p + fit.K)
    steps = np.diff(fit.theta[parts])
    if not len(steps):
        return 0.0
    # The posterior mean (J + prior)^-1 y has the covariance (J + prior)^-1 J (J + prior)^-1 from noise.
    posterior = inverted(J + fit.prior(fit.tau))
    spread = (posterior @ J @ posterior)[parts, parts]
    across = np.diff(np.eye(fit.K), axis=0)
    expected = float(np.trace(across @ spread @ across.T)) / len(steps)
    return math.sqrt(max(float(np.mean(steps**2)) - expected, 0.0))


def doubted(fit: Fit, noise: Floats) -> Floats:
    """The covariance of the noise where combinations of columns may have less information than their estimate.

    A combination with the eigenvalue l of the columns' correlations has noise of variance 1/l^2 for a score of fixed
    noise. With the error e of l the mean of 1/l^2 is larger by the factor 1 + 3 (e/l)^2 to second order.

    Parameters
    ----------
    noise : array of shape (m, m)
        Covariance of theta.
    """
    values, vectors, root, error = fit.eigenvalues()
    factors = 1 + 3 * np.minimum(error / values, TUNING.doubt_most) ** 2
    p = fit.p
    scale = np.eye(len(noise))
    # A combination c of columns of size 1 has the coefficients c/root: their covariance is stretched along each.
    scale[:p, :p] = (vectors * np.sqrt(factors)) @ vectors.T * root[None, :] / root[:, None]
    return np.asarray(scale @ noise @ scale.T)


def averaged(
    fit: Fit, J: Floats, y: Floats, noise: Floats, samplings: tuple[Floats, Floats], drift: Floats
) -> tuple[Floats, Floats, Floats]:
    """Posterior mean of theta, and its covariances about the pooled data and about the population.

    They are averaged over the possible smoothness of the baseline by its evidence: where the releases do not tell
    whether follow-up depends on the columns, one value would leave out what follows from the others.

    Parameters
    ----------
    J, y : array of shape (m, m) and (m,)
        Information and weighted estimate of all rounds.
    noise : array of shape (m, m)
        Covariance of theta from privacy noise.
    samplings : pair of arrays of shape (m, m)
        Sampling variance that is added, of the pooled data and of the population.
    drift : array of shape (m, m)
        Covariance of what the model leaves out.
    """
    weight, found = fit.smoothness(J, y)
    means, spreads = [], []
    for smooth in found:
        prior = fit.prior(fit.weak, smooth)
        mean = inverted(J + prior) @ y
        faded = drift.copy()
        faded[: fit.p, : fit.p] += np.diag((TUNING.fade * mean[: fit.p]) ** 2)
        means.append(mean)
        # Posterior covariance of an estimate with this variance and the prior: (V^-1 + prior)^-1.
        spreads.append([inverted(inverted(noise + each + faded) + prior) for each in samplings])
    centre = np.einsum("s,si->i", weight, np.array(means))
    away = np.array(means) - centre
    between = np.einsum("s,si,sj->ij", weight, away, away)
    pooled, population = np.einsum("s,skij->kij", weight, np.array(spreads)) + between
    return centre, pooled, population


def reasons_of(fit: Fit, J: Floats, noise: Floats) -> Floats:
    """Why coefficients are not identified, as numbers; 0 for those that are; (p,).

    Parameters
    ----------
    J : array of shape (m, m)
        Information of all rounds.
    noise : array of shape (m, m)
        Covariance of theta from privacy noise, as `doubted` has it.
    """
    p = fit.p
    deviation = np.sqrt(np.maximum(np.diag(noise)[:p], 0.0))
    # Deviation of a coefficient if all others were known; the ratio to that with unknown ones is the root of the
    # variance inflation factor.
    alone = 1 / np.sqrt(np.maximum(np.diag(J)[:p], 1e-300))
    inflated = np.sqrt(np.maximum(np.diag(inverted(J))[:p], 0.0)) > TUNING.inflation * alone
    # Combinations of columns whose eigenvalue is below its own error are not known. Nearly collinear are those with a
    # small one; the others are hidden by the noise of the correlations.
    values, vectors, _root, error = fit.eigenvalues()
    unknown = values < TUNING.collinear * error

    def among(which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(np.sum(vectors[:, which] ** 2, axis=1) > TUNING.hidden_share)

    collinear = among(unknown & (values < TUNING.collinear_most)) | inflated
    noisy = (deviation > TUNING.known) | among(unknown)
    reasons = np.where(noisy, np.where(collinear, COLLINEAR, NOISE), 0)
    few = fit.exits.total < TUNING.events_each * p
    return np.asarray(np.where((reasons == NOISE) & few, FEW, reasons), dtype=np.float64)


def survival_of(fit: Fit, pooled: Floats, population: Floats) -> Estimate:
    """Survival of a unit at the centers by stratum at the ends of bins, with intervals.

    The logarithm of the cumulative hazard has normal errors: of the parts and strata, and of the table, which
    alone gives the shape within a part and, with several strata, of each stratum.

    Parameters
    ----------
    pooled, population : array of shape (m, m)
        Covariances of theta.
    """
    hazards = fit.hazards()[:, 1:]
    bins, ends = hazards.shape[1], np.array([0, *fit.parts])
    # Share of each part in the hazard up to the end of each bin: the derivative by the part's logarithm.
    full = np.concatenate([np.zeros((fit.G, 1)), hazards], axis=1)
    upto = np.minimum(np.arange(1, bins + 1)[:, None], ends[1:]), np.broadcast_to(ends[:-1], (bins, fit.K))
    share = (full[:, np.maximum(*upto)] - full[:, upto[1]]) / np.maximum(hazards, 1e-300)[:, :, None]
    slopes = np.zeros((fit.G, bins, len(pooled)))
    slopes[:, :, fit.p : fit.p + fit.K] = share
    for g in range(1, fit.G):
        slopes[g, :, fit.p + fit.K + g - 1] = 1.0
    # Events up to a bin have the noise of as many counts.
    counts = np.maximum(np.cumsum(fit.exits.events, axis=1), 1.0)
    # Delta method: variance of log H is that of the count of events over its square.
    shape = fit.table_noise**2 * np.arange(1, bins + 1) / counts**2
    if fit.G == 1:
        # The parts correct the level at their ends: what is left is the interpolation between them. With position f
        # within a part its variance is f (1 - f) times that of the part's increment, as of a Brownian bridge.
        inside = np.maximum(np.diff(full, axis=1), 0)[0]
        size = np.diff(ends)
        events = np.add.reduceat(fit.exits.events[0], ends[:-1])
        spent = np.cumsum(inside) - np.repeat(full[0, ends[:-1]], size)
        whole = np.repeat(np.diff(full[0, ends]), size)
        position = np.clip(spent / np.maximum(whole, 1e-300), 0, 1)
        relative = fit.table_noise**2 * np.repeat(size / np.maximum(events, 1.0) ** 2, size)
        shape = (position * (1 - position) * relative * (whole / np.maximum(hazards[0], 1e-300)) ** 2)[None, :]
    # The hazard is constant within bins that were merged; that misfit has no noise to estimate it from.
    shape = np.minimum(shape, 4.0) + TUNING.band**2 + bridged(fit, full)
    # Where few are at risk, one event moves the hazard of all data as well.
    shape = shape + TUNING.thin**2 * fit.exits.thin
    axes = fit.plan.stratum_axis, Axis("time", tuple(f"{end:g}" for end in fit.plan.times[1:]))
    found = {"baseline_survival": Quantity(np.exp(-hazards), "share", axes)}
    # Sampling variance of the logarithm of a cumulative hazard of N events, 1/N (Nelson and Aalen).
    greenwood = 1 / counts
    for kind, covariance, extra in (
        ("baseline_interval", pooled, shape),
        ("baseline_population_interval", population, shape + (greenwood if fit.G > 1 else 0.0)),
    ):
        deviation = np.sqrt(np.einsum("gbi,ij,gbj->gb", slopes, covariance, slopes) + extra)
        # An interval of log H, mapped to survival exp(-H): its ends stay in [0, 1]. 50 prevents overflow.
        reach = np.exp(np.minimum(Z * deviation, 50.0))
        ends_ = np.stack([np.exp(-hazards * reach), np.exp(-hazards / reach)], axis=-1)
        found[kind] = Quantity(ends_, "number", (*axes, ENDS))
    # For other covariates than the centers: log H(t | x) = log H(t) + d.b with d = x - centers has the variance
    # V(t) + 2 d.c(t) + d.V_b.d, by the last covariance and deviation of the loop, those of the population.
    p, axis = fit.p, fit.plan.coefficient_axis
    half = fit.plan.half[:p] * fit.scale
    return found | {
        "baseline_log_variance": Quantity(deviation**2, "diagnostic", axes),
        "baseline_covariance": Quantity((slopes @ population)[:, :, :p] / half, "diagnostic", (*axes, axis)),
        "coefficient_covariance": Quantity(population[:p, :p] / np.outer(half, half), "diagnostic", (axis, axis)),
    }


def bridged(fit: Fit, hazards: Floats) -> Floats:
    """Variance of the logarithm of the cumulative hazard from hazards that are not constant within merged bins.

    With the share f of a merged bin's hazard h spent, the cumulative hazard H has the deviation h c (f (1 - f))^(1/2),
    as a Brownian bridge, c = 2 `TUNING.within_merged`.

    Parameters
    ----------
    hazards : array of shape (G, bins + 1)
        Cumulative hazards from 0.

    Returns
    -------
    array of shape (G, bins)
    """
    found = np.zeros_like(hazards[:, 1:])
    for g, merged in enumerate(fit.exits.merged):
        first = merged
        last = np.searchsorted(merged, merged, side="right")
        spent, whole = hazards[g, 1:] - hazards[g, first], hazards[g, last] - hazards[g, first]
        share = np.clip(spent / np.maximum(whole, 1e-300), 0, 1)
        apart = 2 * TUNING.within_merged * whole * np.sqrt(share * (1 - share))
        found[g] = (apart / np.maximum(hazards[g, 1:], 1e-300)) ** 2
    return np.minimum(found, 4.0)


def concordance_results(table: Floats, noise: float) -> Estimate:
    """The concordance index of held-out people with its interval of 95 %.

    Parameters
    ----------
    table : array of shape (Q, 2 T + 1)
        The noisy table of scores by exit.
    noise : float
        Standard deviation of the noise of an entry.
    """
    found = concordance_of(table, noise)
    ends = np.clip(np.array([found.index - Z * found.std, found.index + Z * found.std]), 0, 1)
    return {
        "concordance": Quantity(np.array([found.index]), "diagnostic", std=np.array([min(found.noise, 1.0)])),
        "concordance_interval": Quantity(ends, "diagnostic", (ENDS,)),
    }
