"""Warnings that cost nothing: what a release and its known noise say about the question that was asked.

Nothing here looks at data. Each sentence follows from numbers that were released anyway, and is said only where noise
does not explain it (two standard deviations).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity

_EDGE = 0.05  # a mean so near to an end of its range (as a share of it) has most values within twice that of it
_SURE = 2.0  # standard deviations
_INTERVAL = 2 * 1.959964  # the width of a 95 % interval
_UNSTABLE = 0.5  # a component whose correlation with what it would be without noise is expected below that is a guess
_LISTED = 5  # columns that a sentence names


def cautions(estimate: Mapping[str, Quantity], plan: Plan) -> tuple[str, ...]:
    """What a reader of the estimate has to be warned of."""
    parameters = plan.question.parameters
    lower, upper, clip = (parameters.get(name) for name in ("lower", "upper", "clip"))
    found = list(_components(estimate))
    if isinstance(lower, list) and isinstance(upper, list):
        low, high = np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
        found += [*_ranges(estimate, low, high)]
    elif isinstance(clip, int | float):
        found += [*_clipped(estimate, float(clip))]
    if isinstance(ranges := parameters.get("ranges"), dict):
        found += [*_described(estimate, ranges)]
    if parameters.get("edges") is not None:
        found += [*_end_bins(estimate)]
    return tuple(found)


def _components(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    """Fewer components above the noise than were asked for."""
    if "above_noise" not in estimate or "eigenvalues" not in estimate:
        return
    above, asked = int(estimate["above_noise"][0]), len(estimate["eigenvalues"])
    if "stability" in estimate:
        asked = len(estimate["stability"])
        if above < asked:
            yield (
                f"{above} of {asked} dimensions stand above the noise: the rest of the space is noise, and there the "
                "stability of components means nothing"
            )
        unstable = int(np.sum(estimate["stability"].value < _UNSTABLE))
        if unstable:
            yield (
                f"{unstable} of {asked} components have a stability below {_UNSTABLE:g}: the release hardly determines "
                "them. More people, longer recordings, fewer components or a larger epsilon would"
            )
    elif above < asked:
        yield f"{above} of {asked} components stand above the noise: the others cannot be told from noise"


def _ranges(estimate: Mapping[str, Quantity], lower: Floats, upper: Floats) -> Iterator[str]:
    mean = estimate.get("mean")
    if mean is None or mean.kind != "mean" or mean.shape != lower.shape or not mean.axes or np.any(upper <= lower):
        return
    names, width = mean.axes[0].labels, upper - lower
    std = np.zeros(len(lower)) if mean.std is None else np.asarray(mean.std)
    for end, distance in (("lower", mean.value - lower), ("upper", upper - mean.value)):
        near = distance + _SURE * std < _EDGE * width
        if np.any(near):
            yield (
                f"the mean of {_named(names, near)} lies at the {end} end of its range: most values lie at that end or "
                "beyond it, and the range may be wrong"
            )
    wide = _INTERVAL * std > width
    if np.any(wide):
        yield (
            f"the 95 % interval of {_named(names, wide)} is wider than its range: at this epsilon the release says "
            "nothing about it"
        )
    if "covariance" in estimate and not np.any(wide):
        variance = np.diag(estimate["covariance"].value)
        moment = estimate.get("moment_noise_std")
        noise = np.zeros(len(lower)) if moment is None else np.diag(moment.value)
        half = width / 2
        second = (variance + (mean.value - (lower + upper) / 2) ** 2 - _SURE * noise) / half**2
        if np.any(ends := second > (1 - _EDGE) ** 2):
            yield f"the values of {_named(names, ends)} lie mostly at the ends of the range or beyond: too narrow?"


def _described(estimate: Mapping[str, Quantity], ranges: Mapping[str, Any]) -> Iterator[str]:
    """Of a description: means and quantiles of everybody, who come before the groups."""
    quantity = estimate.get("mean", estimate.get("quantile"))
    if quantity is None or len(quantity.axes) < 2 or not set(names := quantity.axes[1].labels) <= set(ranges):
        return
    lower, upper = np.array([ranges[name] for name in names], dtype=np.float64).T
    if "mean" in estimate:
        std = None if quantity.std is None else np.asarray(quantity.std)[0]
        yield from _ranges({"mean": Quantity(quantity.value[0], "mean", (quantity.axes[1],), std)}, lower, upper)
    if "quantile_interval" not in estimate:
        return
    ends, margin = estimate["quantile_interval"].value[0], _EDGE * (upper - lower)
    for end, near in (("lower", ends[:, -1, 1] < lower + margin), ("upper", ends[:, 0, 0] > upper - margin)):
        if np.any(near):
            yield f"all quantiles of {_named(names, near)} lie at the {end} end of the range, which may be wrong"


def _clipped(estimate: Mapping[str, Quantity], clip: float) -> Iterator[str]:
    """The mean of clipped rows is as long as the clip only if most rows are, and so is their second moment."""
    mean = estimate.get("mean")
    if mean is None or mean.kind != "mean" or mean.value.ndim != 1:
        return
    spread = 0.0 if mean.std is None else float(np.max(np.asarray(mean.std)))
    squares = float(mean.value @ mean.value) - len(mean.value) * spread**2  # less what noise adds
    if "covariance" in estimate:
        squares += float(np.trace(estimate["covariance"].value))
    slack = _SURE * 2 * clip * spread
    if "moment_noise_std" in estimate:
        slack += _SURE * float(np.linalg.norm(np.diag(estimate["moment_noise_std"].value)))
    if squares - slack > ((1 - _EDGE) * clip) ** 2:
        yield f"most rows are as long as the clip of {clip:g}, or were longer: it cuts most of them"
    elif _INTERVAL * spread > 2 * clip:
        yield "95 % intervals are wider than what the clip leaves: at this epsilon the release says nothing"


def _end_bins(estimate: Mapping[str, Quantity]) -> Iterator[str]:
    counts = estimate.get("counts")
    if counts is None or counts.value.ndim != 1 or len(counts.value) < 3:
        return
    std = 0.0 if counts.std is None else float(np.max(np.asarray(counts.std)))
    total = float(np.sum(counts.value))
    for at, end in ((0, "first"), (-1, "last")):
        if counts.value[at] - _SURE * std * (1 + np.sqrt(len(counts.value)) / 2) > total / 2 > 0:
            yield f"more than half of everybody is in the {end} bin, which also counts what lies beyond the edges"
    if std > 0 and total < _SURE * std * np.sqrt(len(counts.value)):
        yield "all counts together are within the noise: the release says nothing"


def _named(names: Sequence[str], which: NDArray[np.bool_]) -> str:
    chosen = [name for name, is_it in zip(names, which, strict=True) if is_it]
    more = f" and {len(chosen) - _LISTED} more" if len(chosen) > _LISTED else ""
    return ("column " if len(chosen) == 1 else "columns ") + ", ".join(map(repr, chosen[:_LISTED])) + more
