"""What an algorithm's accuracy is: which of its numbers count, on which scale, and how far noise moves them.

Tested in tests/study/test_what_if.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import (
    ICA,
    PCA,
    Algorithm,
    Covariance,
    DataCollaboration,
    Estimate,
    FeatureClassifier,
    Histogram,
    KMeans,
    LinearRegression,
    Mean,
    Mixture,
    NeuralClassifier,
    Survival,
    Topics,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.program import RangedAlgorithm
from zerosum.algorithms.regression import Regression
from zerosum.arrays import Floats
from zerosum.kernel.units import Units
from zerosum.statistics.softmax import BIAS

OF_RANGE = "of a column's range"


@dataclass(frozen=True)
class Line:
    """One number of a result: what it is called, and how large it is when a forecast counts it as 1."""

    label: str
    scale: float
    counts: bool = True  # whether it is part of the one figure that settings are compared by


@dataclass(frozen=True)
class Measure:
    """How a result is read: `values` are those of `lines`, from an estimate, its data and what it is held against:
    centres, maps or topics to match with, or people who judge."""

    lines: tuple[Line, ...]
    unit: str  # of the one figure
    values: Callable[[Estimate, Units, Floats | None], Floats]
    anchored: Callable[[Estimate], Floats] | None = None  # what others are held against, where no truth is known
    loss: bool = False  # whether values are losses: the less, the better
    level: str = ""  # what is 1 less a loss, in words

    def held(self, truth: Floats | None) -> str:
        """What results are held against where the truth is not known, in words."""
        return "; results are held against one without privacy" if self.anchored is not None and truth is None else ""


def measure_of(algorithm: Algorithm) -> Measure | None:
    """None where no figure says how good a result is without somebody's judgement."""
    match algorithm:
        case Mean():
            return _by_column(algorithm, "mean")
        case Covariance():
            return _covariance(algorithm)
        case Histogram():
            return _histogram(algorithm)
        case Mixture():
            return _centers(algorithm, "means", algorithm.n_components)
        case KMeans():
            return _centers(algorithm, "centers", algorithm.n_clusters)
        case PCA():
            return _energy(algorithm)
        case Regression():
            return _coefficients(algorithm)
        case ICA():
            return _maps(algorithm)
        case Topics():
            return _topics(algorithm)
        case FeatureClassifier() | DataCollaboration() | NeuralClassifier():
            return _classes(algorithm)
        case Survival():
            return _survival(algorithm)
        case GroupedAlgorithm():
            return _table(algorithm)
    return None


def _widths(algorithm: RangedAlgorithm) -> Floats:
    if algorithm.lower is None:
        return np.full(len(algorithm.columns), 2 * algorithm.radius)
    return 2 * algorithm.half


def _flat(*names: str) -> Callable[[Estimate, Units, Floats | None], Floats]:
    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.concatenate([np.ravel(estimate[name].value) for name in names])

    return values


def _by_column(algorithm: RangedAlgorithm, name: str) -> Measure:
    widths = _widths(algorithm)
    lines = [Line(column, float(width)) for column, width in zip(algorithm.columns, widths, strict=True)]
    return Measure(tuple(lines), OF_RANGE, _flat(name))


def _covariance(algorithm: Covariance) -> Measure:
    """Means, and correlations as they are."""
    means, names = _by_column(algorithm, "mean"), algorithm.columns
    upper = [(i, j) for i in range(len(names)) for j in range(i)]
    pairs = [Line(f"{names[j]}, {names[i]}", 1.0) for i, j in upper]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        found = estimate["correlation"].value
        return np.concatenate([estimate["mean"].value, [found[at] for at in upper]])

    return Measure((*means.lines, *pairs), "of a column's range, or of a correlation", values)


def _histogram(algorithm: Histogram) -> Measure:
    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.asarray(estimate["counts"].value / len(data))

    return Measure(tuple(Line(label, 1.0) for label in algorithm.labels), "of everybody", values)


def _centers(algorithm: Mixture | KMeans, name: str, count: int) -> Measure:
    widths = _widths(algorithm)
    lines = [
        Line(f"{number + 1}: {column}", float(width))
        for number in range(count)
        for column, width in zip(algorithm.columns, widths, strict=True)
    ]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        found = estimate[name].value
        return np.ravel(found if anchor is None else matched(found, anchor, widths))

    return Measure(tuple(lines), OF_RANGE, values, lambda estimate: in_order(estimate[name].value))


def in_order(centers: Floats) -> Floats:
    """Centres by their first column, then by the others: an order that the next sample has too."""
    return np.asarray(centers[np.lexsort(centers.T[::-1])])


def matched(found: Floats, anchor: Floats, widths: Floats) -> Floats:
    """Centres in the order of those they are nearest to, all together."""
    return np.asarray(found[_paired(np.sum(((anchor[:, None, :] - found[None, :, :]) / widths) ** 2, axis=2))])


def _energy(algorithm: PCA) -> Measure:
    """How much of the data's variance components hold, as a loss: the largest that so many can hold is 1."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        rows = (np.asarray(data.rows, dtype=np.float64) - algorithm.middle) / algorithm.scale
        if algorithm.centering != "none":
            rows = rows - np.mean(rows, axis=0)
        second = rows.T @ rows / len(rows)
        found = np.atleast_2d(estimate["components"].value)
        most = float(np.sum(np.linalg.eigvalsh(second)[-len(found) :]))
        return np.array([1 - float(np.trace(found @ second @ found.T)) / most if most > 0 else 0.0])

    unit = "of the energy that so many components can hold"
    return Measure((Line("energy lost", 1.0),), unit, values, loss=True, level="energy kept")


def _maps(algorithm: ICA) -> Measure:
    """How far each map is from the true one that it is matched with, or from that of a run without noise: what its
    correlation with it lacks."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        found = estimate["maps"].value
        likeness = np.abs((found if anchor is None else anchor) @ found.T)
        return np.asarray(1 - np.minimum(likeness[np.arange(len(likeness)), _paired(-likeness)], 1.0))

    lines = tuple(Line(f"component {number + 1}", 1.0) for number in range(algorithm.n_components))
    unit = "of the correlation between a component and the true one"
    return Measure(lines, unit, values, lambda estimate: estimate["maps"].value, loss=True, level="correlation")


def _topics(algorithm: Topics) -> Measure:
    """The share of a topic's words that would have to be others, and of topics that the budget does not carry."""
    place = {name: at for at, name in enumerate(algorithm.columns)}

    def whole(estimate: Estimate) -> Floats:
        told = estimate["topics"]
        found = np.zeros((len(told.value), len(place)))
        found[:, [place[name] for name in told.axes[-1].labels]] = told.value
        return found

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        found = whole(estimate)
        truth = found if anchor is None else anchor
        apart = np.array([np.sum(np.abs(found - each), axis=1) / 2 for each in truth])
        lost = 1 - float(np.mean(estimate["carried"].value))
        return np.append(apart[np.arange(len(apart)), _paired(apart)], lost)

    lines = [Line(f"topic {number + 1}", 1.0) for number in range(algorithm.n_components)]
    lines.append(Line("topics not carried", 1.0, counts=False))
    unit = "of a topic's words, by how often they occur"
    return Measure(tuple(lines), unit, values, whole, loss=True, level="words that are right")


def _paired(costs: Floats) -> NDArray[np.intp]:
    """For every row the column it is paired with, so that costs add up to the least."""
    from scipy.optimize import linear_sum_assignment  # heavy: loaded when it is used

    return np.asarray(linear_sum_assignment(costs)[1], dtype=np.intp)


def _classes(algorithm: FeatureClassifier | DataCollaboration | NeuralClassifier) -> Measure:
    """How many of those who judge are taken for another class."""
    known: dict[int, tuple[Floats, Floats]] = {}  # the features of those who judged last

    def features(rows: Floats) -> Floats:
        if isinstance(algorithm, NeuralClassifier):
            return rows[:, :-1]
        if id(rows) not in known:
            known.clear()
            known[id(rows)] = rows, np.asarray(algorithm.feature_map(rows[:, :-1]), dtype=np.float64)
        return known[id(rows)][1]

    def scores(estimate: Estimate, rows: Floats) -> Floats:
        weights = estimate["weights"].value
        if isinstance(algorithm, NeuralClassifier):
            return algorithm.probabilities(weights, features(rows))
        directions = (features(rows) - estimate["center"].value) @ estimate["projection"].value
        norm = np.linalg.norm(directions, axis=1, keepdims=True)
        constant = BIAS if isinstance(algorithm, FeatureClassifier) else 1.0
        return np.asarray(directions / np.where(norm > 0, norm, 1.0) @ weights[:-1] + constant * weights[-1])

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        rows = np.asarray(data.rows, dtype=np.float64) if anchor is None else anchor
        return np.array([float(np.mean(np.argmax(scores(estimate, rows), axis=1) != rows[:, -1]))])

    unit = "of people, taken for another class"
    return Measure((Line("wrong answers", 1.0),), unit, values, loss=True, level="accuracy")


def _coefficients(algorithm: Regression) -> Measure:
    """A coefficient counts by what it makes of the response when its column goes through its range; the intercept,
    which stands for columns at 0, where there may be nobody, does not count."""
    widths = 2 * algorithm.half
    response = float(widths[-1]) if isinstance(algorithm, LinearRegression) else 1.0
    names = algorithm.columns[: algorithm.features]
    lines = [Line(name, response / float(width)) for name, width in zip(names, widths, strict=False)]
    unit = "of the response's range" if isinstance(algorithm, LinearRegression) else "of the linear predictor"
    lines.append(Line("intercept", response, counts=not names))
    return Measure(tuple(lines), f"{unit}, as a column goes through its range", _flat("coefficients", "intercept"))


def _survival(algorithm: Survival) -> Measure:
    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.ravel(estimate["survival"].value)

    groups = ("all", *map(str, algorithm.groups)) if algorithm.groups else ("all",)
    ends = [f"{edge:g}" for edge in algorithm.edges[1:]]
    lines = tuple(Line(f"{group}, {end}", 1.0) for group in groups for end in ends)
    return Measure(lines, "of a survival probability", values)


def _table(algorithm: GroupedAlgorithm) -> Measure:
    """Means and quantiles by their range, proportions as they are."""
    groups, names = algorithm.group_axis.labels, algorithm.numbers
    width = {name: high - low for name, (low, high) in algorithm.ranges.items()}
    wanted = getattr(algorithm, "wanted", ("quantiles",))
    lines: list[Line] = []
    kept: list[str] = []
    if "means" in wanted:
        kept.append("mean")
        lines += [Line(_said(group, name, "mean"), width[name]) for group in groups for name in names]
    if "quantiles" in wanted:
        kept.append("quantile")
        shares = getattr(algorithm, "probabilities", ())
        lines += [
            Line(_said(group, name, f"{100 * share:g} %"), width[name])
            for group in groups
            for name in names
            for share in shares
        ]
    if "proportions" in wanted and algorithm.described:
        kept.append("proportion")
        levels = [f"{name} = {level}" for name in algorithm.described for level in algorithm.levels[name]]
        lines += [Line(_said(group, level, ""), 1.0) for group in groups for level in levels]
    return Measure(tuple(lines), "of a column's range, or of a proportion", _flat(*kept))


def _said(group: str, name: str, what: str) -> str:
    return ", ".join(each for each in (name, what, "" if group == "all" else group) if each)
