"""Warnings about a result, derived from its releases and their known noise, at no privacy cost.

No data are read. Each warning follows from released numbers, and is given only if noise does not explain the finding
(two standard deviations). All thresholds were chosen by hand; no benchmark recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.report.caveats import column_names, interval_caveats

# Distance of a mean from an end of its range, as a share of the range, below which the range may be wrong. By Markov's
# inequality at least half of the values then lie within twice that distance of the end.
_EDGE_SHARE = 0.05
_NOISE_STDS = 2.0  # noise allowance, in standard deviations
# Expected correlation of a component with its noise-free version, below which it is called unstable.
_LEAST_STABILITY = 0.5
_COLLINEAR = 2  # number of the reason in `unidentified_reason`
_LARGE_LOSS = 0.15
_LARGE_DISCORD = 1.5  # mean squared standardised residual of the rounds of a Cox regression
_LEVEL = 0.05  # of the test of proportional hazards


def result_warnings(estimate: Mapping[str, Quantity], plan: Plan) -> tuple[str, ...]:
    """Warnings for the reader of an estimate.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result of the study.
    plan : Plan
        Its public question gives ranges, clips and edges.
    """
    parameters = plan.question.parameters
    lower, upper, clip = (parameters.get(name) for name in ("lower", "upper", "clip"))
    # Ranges and clips are alternatives: an algorithm has public ranges or a bound on norms.
    warnings = list(_components(estimate))
    if isinstance(lower, list) and isinstance(upper, list):
        low, high = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
        warnings += [*_ranges(estimate, low, high)]
    elif isinstance(clip, int | float):
        warnings += [*_clip(estimate, float(clip))]
    if isinstance(ranges := parameters.get("ranges"), dict):
        warnings += [*_descriptions(estimate, ranges)]
    warnings += [*_hazards(estimate), *_relations(estimate)]
    if parameters.get("edges") is not None:
        warnings += [*_end_bins(estimate)]
    return tuple(warnings)


def _components(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Warn if fewer components than requested are above the noise, or are stable."""
    if "above_noise" not in estimate or "eigenvalues" not in estimate:
        return
    above, requested = int(estimate["above_noise"][0]), len(estimate["eigenvalues"])
    if "stability" in estimate:
        requested = len(estimate["stability"])
        if above < requested:
            yield (
                f"{above} of {requested} dimensions are above the noise: the rest of the space is noise, and there the "
                "stability of components has no meaning"
            )
        unstable = int(np.sum(estimate["stability"].value < _LEAST_STABILITY))
        if unstable:
            yield (
                f"{unstable} of {requested} components have a stability below {_LEAST_STABILITY:g}: the release hardly "
                "determines them. More people, longer recordings, fewer components or a larger epsilon would"
            )
    elif above < requested:
        yield f"{above} of {requested} components are above the noise: the others cannot be distinguished from noise"


def _ranges(estimate: Mapping[str, Quantity], lower: Floats, upper: Floats) -> Iterator[str]:
    """Warn about means near the ends of their ranges, and about intervals wider than the range."""
    mean = estimate.get("mean")
    if mean is None or mean.kind != "mean" or mean.shape != lower.shape or not mean.axes or np.any(upper <= lower):
        return
    names, width = mean.axes[0].labels, upper - lower
    std = np.zeros(len(lower)) if mean.std is None else np.asarray(mean.std)
    for end, distance in (("lower", mean.value - lower), ("upper", upper - mean.value)):
        # The distance may be larger by the noise; only a mean that is near in spite of that is named.
        near = distance + _NOISE_STDS * std < _EDGE_SHARE * width
        if np.any(near):
            yield (
                f"the mean of {column_names(names, near)} lies at the {end} end of its range: most values lie at that "
                "end or beyond it, and the range may be wrong"
            )
    wide = 2 * mean.half_width > width
    if np.any(wide):
        yield (
            f"the 95 % interval of {column_names(names, wide)} is wider than its range: at this epsilon the release "
            "contains no information about it"
        )
    if "correlation" in estimate and not np.all(wide):
        yield from _correlations(estimate["correlation"])
    # Where intervals are wider than the range, this test would only measure the noise.
    if "covariance" in estimate and not np.any(wide):
        variance = np.diag(estimate["covariance"].value)
        moment = estimate.get("moment_noise_std")
        noise = np.zeros(len(lower)) if moment is None else np.diag(moment.value)
        half = width / 2
        # Mean squared distance from the middle of the range, in half ranges: variance plus squared distance of the
        # mean, less the noise allowance. It is near 1 only if most values lie at the ends.
        second = (variance + (mean.value - (lower + upper) / 2) ** 2 - _NOISE_STDS * noise) / half**2
        if np.any(ends := second > (1 - _EDGE_SHARE) ** 2):
            columns = column_names(names, ends)
            yield f"the values of {columns} lie mostly at the ends of the range or beyond: the range may be too narrow"


def _relations(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Warn of synthetic data whose tables of two columns are no better than those of independent columns."""
    if "pair_error" not in estimate or "dependence" not in estimate:
        return
    upper = np.triu_indices(len(estimate["pair_error"].value), 1)
    error, dependence = estimate["pair_error"].value[upper], estimate["dependence"].value[upper]
    # Both are total variation distances: that of the model from the data, and that of independence from the model.
    if np.mean(error) >= np.mean(dependence):
        yield (
            f"tables of two columns are expected to be {np.mean(error):.3f} from those of the data (total variation), "
            f"and independent columns are {np.mean(dependence):.3f} from those of the model: relations between columns "
            "of these synthetic records mean little. More units, fewer columns or a larger epsilon would help"
        )


def _correlations(correlations: Quantity) -> Iterator[str]:
    """Warn of correlations that the noise leaves unknown: their standard deviation is 1."""
    if correlations.std is None or len(correlations.value) < 2:
        return
    unknown = np.asarray(correlations.std)[np.triu_indices(len(correlations.value), 1)] >= 1
    if np.any(unknown):
        yield (
            f"{int(np.sum(unknown))} of {len(unknown)} correlations are unknown: the variance of one of their columns "
            "does not differ from zero by more than the noise; narrower ranges, fewer columns or more epsilon help"
        )


def _descriptions(estimate: Mapping[str, Quantity], ranges: Mapping[str, Any]) -> Iterator[str]:
    """The same for descriptive tables: means and quantiles of all units, which precede the groups."""
    quantity = estimate.get("mean", estimate.get("quantile"))
    if quantity is None or len(quantity.axes) < 2 or not set(names := quantity.axes[1].labels) <= set(ranges):
        return
    # The first row of every array is that of all units.
    lower, upper = np.array([ranges[name] for name in names], dtype=np.float64).T
    if "mean" in estimate:
        std = None if quantity.std is None else np.asarray(quantity.std)[0]
        yield from _ranges(
            {"mean": Quantity(quantity.value[0], "mean", (quantity.axes[1],), std, quantity.reach)}, lower, upper
        )
    if "quantile_interval" not in estimate:
        return
    ends, margin = estimate["quantile_interval"].value[0], _EDGE_SHARE * (upper - lower)
    # Upper end of the highest quantile's interval near the lower end of the range: all intervals lie there. And the
    # other way round.
    for end, near in (("lower", ends[:, -1, 1] < lower + margin), ("upper", ends[:, 0, 0] > upper - margin)):
        if np.any(near):
            yield f"all quantiles of {column_names(names, near)} lie at the {end} end of the range, which may be wrong"


def _clip(estimate: Mapping[str, Quantity], clip: float) -> Iterator[str]:
    """Warn if most rows are clipped. The mean square norm of clipped rows reaches the square of the clip only if most
    rows do."""
    mean = estimate.get("mean")
    if mean is None or mean.kind != "mean" or mean.value.ndim != 1:
        return
    spread = 0.0 if mean.std is None else float(np.max(np.asarray(mean.std)))
    # minus the expected squared norm of the noise
    squares = float(mean.value @ mean.value) - len(mean.value) * spread**2
    if "covariance" in estimate:
        squares += float(np.trace(estimate["covariance"].value))
    # A mean of norm up to `clip` changes its squared norm by 2 clip std, to first order.
    slack = _NOISE_STDS * 2 * clip * spread
    if "moment_noise_std" in estimate:
        slack += _NOISE_STDS * float(np.linalg.norm(np.diag(estimate["moment_noise_std"].value)))
    if squares - slack > ((1 - _EDGE_SHARE) * clip) ** 2:
        yield f"most rows are as long as the clip of {clip:g}, or were longer: it cuts most of them"
    elif 2 * float(np.max(mean.half_width)) > 2 * clip:
        yield "95 % intervals are wider than the clipped range: at this epsilon the release contains no information"


def _hazards(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Warn about results of a Cox regression that are not to be relied on."""
    if "baseline_steps" not in estimate:
        return
    names, reasons = estimate["coefficients"].axes[0].labels, estimate["unidentified_reason"].value
    if np.all(reasons > 0):
        yield "no coefficient is identified at this budget: the result is mostly the prior and noise"
    if np.any(reasons == _COLLINEAR):
        columns = column_names(names, reasons == _COLLINEAR)
        yield f"{columns}: nearly collinear among events. Merge rare levels, or choose a common one as the reference"
    yield from interval_caveats(estimate)
    if float(estimate["discord"][0]) > _LARGE_DISCORD:
        yield (
            "the rounds disagree by more than their noise: the fit has not converged, for instance because a level is "
            "rare among all and frequent among events. Intervals are widened; more rounds may help"
        )
    if "proportionality_p_value" in estimate and float(estimate["proportionality_p_value"][0]) < _LEVEL:
        columns = column_names(names, estimate["late_p_values"].value < _LEVEL) or "some columns"
        yield f"hazards are not proportional: late effects differ from those of all times ({columns})"
    if float(estimate["lost_information"][0]) > _LARGE_LOSS:
        yield (
            "stopping and weighting leave out more than "
            f"{100 * _LARGE_LOSS:g} % of the information: with effects that change with the time the coefficients "
            "differ from those of all data"
        )


def _end_bins(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Warn if more than half of the units are in the first or last bin, or if all counts are within the noise."""
    counts = estimate.get("counts")
    if counts is None or counts.value.ndim != 1 or len(counts.value) < 3:
        return
    std = 0.0 if counts.std is None else float(np.max(np.asarray(counts.std)))
    total = float(np.sum(counts.value))
    for at, end in ((0, "first"), (-1, "last")):
        # The noise of a bin is `std`, that of half the total std sqrt(bins) / 2.
        if counts.value[at] - _NOISE_STDS * std * (1 + np.sqrt(len(counts.value)) / 2) > total / 2 > 0:
            yield f"more than half of all units are in the {end} bin, which also counts what lies beyond the edges"
    if std > 0 and total < _NOISE_STDS * std * np.sqrt(len(counts.value)):
        yield "all counts together are within the noise: the release contains no information"
