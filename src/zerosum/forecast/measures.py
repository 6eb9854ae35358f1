"""Accuracy measures of algorithms: which numbers of a result count, on which scale, and how they are compared.

Every number of a result is a `Line` with a scale, by which its error is divided in the summary figure: the width of a
column's range for a mean, 1 for a proportion. The figure is then comparable between columns in different units. Results
whose numbers have no order of their own (clusters, components, topics) are first matched to an anchor. Results whose
single numbers have no meaning (directions of a subspace, weights of a network) are measured by a loss between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from zerosum.algorithms import (
    AdditiveModelProgram,
    Algorithm,
    CorrelationProgram,
    CovarianceProgram,
    CoxRegressionProgram,
    DataCollaborationProgram,
    Estimate,
    FeatureClassifierProgram,
    HistogramProgram,
    HypothesisTestProgram,
    ICAProgram,
    KMeansProgram,
    LinearRegressionProgram,
    MeanProgram,
    MixtureProgram,
    MultinomialRegressionProgram,
    NeuralClassifierProgram,
    PCAProgram,
    SurvivalProgram,
    TopicsProgram,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.program import RangedAlgorithm
from zerosum.algorithms.regression.base import Regression
from zerosum.algorithms.synthetic.program import SyntheticDataProgram
from zerosum.algorithms.synthetic.records import Model, distance
from zerosum.arrays import Floats
from zerosum.compute.devices import to_numpy
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.statistics.softmax import BIAS

# Unit of errors that are divided by the width of a column's range.
OF_RANGE = "of a column's range"


@dataclass(frozen=True)
class Line:
    """One number of a result. Its error is divided by `scale` in the summary figure."""

    label: str
    scale: float
    counts: bool = True  # whether it is part of the summary figure


_MOST_PAIRS = 36  # tables of two columns that have a line of their own: those of nine columns; chosen by hand


@dataclass(frozen=True)
class Measure:
    """How a result is evaluated.

    Attributes
    ----------
    lines : tuple of Line
        The numbers, in the order of `values`.
    unit : str
        Unit of the summary figure, for messages.
    values : callable
        `values(estimate, data, anchor)` gives one value for each line. The anchor is the reference: centres, maps or
        topics for matching, or held-out rows for evaluation.
    make_anchor : callable, optional
        Makes the anchor from a noise-free estimate, if the truth is unknown.
    loss : bool
        Whether values are losses in [0, 1], smaller is better.
    level : str
        Name of 1 - loss.
    """

    lines: tuple[Line, ...]
    unit: str  # of the summary figure
    values: Callable[[Estimate, Units, Floats | None], Floats]
    # makes the anchor from a noise-free estimate, if the truth is unknown
    make_anchor: Callable[[Estimate], Floats] | None = None
    loss: bool = False  # whether values are losses in [0, 1], smaller is better
    level: str = ""  # name of 1 - loss

    def reference_clause(self, truth: Floats | None) -> str:
        """Clause about the reference, if the truth is unknown; else empty."""
        return (
            "; results are held against one without privacy" if self.make_anchor is not None and truth is None else ""
        )


def measure_of(algorithm: Algorithm) -> Measure | None:
    """Measure of an algorithm, or None if no single figure describes the quality of its result."""
    match algorithm:
        case MeanProgram():
            return _by_column(algorithm, "mean")
        case CorrelationProgram():
            return _correlation(algorithm)
        case CovarianceProgram():
            return _covariance(algorithm)
        case HistogramProgram():
            return _histogram(algorithm)
        case MixtureProgram():
            return _centers(algorithm, "means", algorithm.n_components)
        case KMeansProgram():
            return _centers(algorithm, "centers", algorithm.n_clusters)
        case PCAProgram():
            return _energy(algorithm)
        case MultinomialRegressionProgram():
            return _of_classes(algorithm)
        case Regression():
            return _coefficients(algorithm)
        case CoxRegressionProgram():
            return _hazards(algorithm)
        case ICAProgram():
            return _maps(algorithm)
        case TopicsProgram():
            return _topics(algorithm)
        case FeatureClassifierProgram() | DataCollaborationProgram() | NeuralClassifierProgram():
            return _classes(algorithm)
        case SurvivalProgram():
            return _survival(algorithm)
        case HypothesisTestProgram():
            return _tests(algorithm)
        case SyntheticDataProgram():
            return _pairs(algorithm)
        case AdditiveModelProgram():
            return _unexplained(algorithm)
        case GroupedAlgorithm():
            return _table(algorithm)
    return None


def _widths(algorithm: RangedAlgorithm) -> Floats:
    """Width of each column's range, shape (n_columns,); the diameter of the ball if only norms are bounded."""
    if algorithm.lower is None:
        return np.full(len(algorithm.columns), 2 * algorithm.radius)
    return 2 * algorithm.half


def _flat(*names: str) -> Callable[[Estimate, Units, Floats | None], Floats]:
    """Reader of all values of the named quantities, flattened and concatenated."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.concatenate([np.ravel(estimate[name].value) for name in names])

    return values


def _by_column(algorithm: RangedAlgorithm, name: str) -> Measure:
    """One line per column, in units of its range."""
    widths = _widths(algorithm)
    lines = [Line(column, float(width)) for column, width in zip(algorithm.columns, widths, strict=True)]
    return Measure(tuple(lines), OF_RANGE, _flat(name))


def _covariance(algorithm: CovarianceProgram) -> Measure:
    """Means in units of the range, and correlations in absolute units."""
    means, names = _by_column(algorithm, "mean"), algorithm.columns
    # Each correlation once: the matrix is symmetric, with 1 on its diagonal.
    upper = [(i, j) for i in range(len(names)) for j in range(i)]
    pairs = [Line(f"{names[j]}, {names[i]}", 1.0) for i, j in upper]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        correlations = estimate["correlation"].value
        return np.concatenate([estimate["mean"].value, [correlations[at] for at in upper]])

    return Measure((*means.lines, *pairs), "of a column's range, or of a correlation", values)


def _correlation(algorithm: CorrelationProgram) -> Measure:
    """Correlations of all pairs, in absolute units."""
    names = algorithm.related
    upper = [(i, j) for i in range(len(names)) for j in range(i)]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.array([estimate["correlation"].value[at] for at in upper])

    return Measure(tuple(Line(f"{names[j]}, {names[i]}", 1.0) for i, j in upper), "of a correlation", values)


def _histogram(algorithm: HistogramProgram) -> Measure:
    """Shares of units per bin."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.asarray(estimate["counts"].value / len(data))

    return Measure(tuple(Line(label, 1.0) for label in algorithm.labels), "of all people", values)


def _centers(algorithm: MixtureProgram | KMeansProgram, name: str, count: int) -> Measure:
    """Cluster centres, matched to the anchor, in units of the range."""
    widths = _widths(algorithm)
    lines = [
        Line(f"{number + 1}: {column}", float(width))
        for number in range(count)
        for column, width in zip(algorithm.columns, widths, strict=True)
    ]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        centers = estimate[name].value
        return np.ravel(centers if anchor is None else match_centers(centers, anchor, widths))

    return Measure(tuple(lines), OF_RANGE, values, lambda estimate: sort_centers(estimate[name].value))


def sort_centers(centers: Floats) -> Floats:
    """Centres sorted by the first column, then by the others. The order is stable between samples."""
    # lexsort sorts by its last key first, so the columns are passed in reverse.
    return np.asarray(centers[np.lexsort(centers.T[::-1])])


def match_centers(centers: Floats, anchor: Floats, widths: Floats) -> Floats:
    """Centres in the order of the anchor's centres, by the assignment with the least total squared distance."""
    return np.asarray(centers[_assignment(np.sum(((anchor[:, None, :] - centers[None, :, :]) / widths) ** 2, axis=2))])


def _energy(algorithm: PCAProgram) -> Measure:
    """Loss of PCA: 1 - captured variance / largest variance that k components can capture."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        rows = (np.asarray(data.rows, dtype=np.float64) - algorithm.middle) / algorithm.scale
        if algorithm.centering != "none":
            rows = rows - np.mean(rows, axis=0)
        # Captured variance of orthonormal components V (rows): trace(V M V'), with the second moment M of the data.
        second = rows.T @ rows / len(rows)
        components = np.atleast_2d(estimate["components"].value)
        # eigvalsh returns ascending eigenvalues; the sum of the last k is the optimum.
        most = float(np.sum(np.linalg.eigvalsh(second)[-len(components) :]))
        return np.array([1 - float(np.trace(components @ second @ components.T)) / most if most > 0 else 0.0])

    unit = "of the energy that the same number of components can hold"
    return Measure((Line("energy lost", 1.0),), unit, values, loss=True, level="energy kept")


def _maps(algorithm: ICAProgram) -> Measure:
    """Loss of ICA: 1 - absolute correlation of each map with the map it is matched to, of the truth or of a noise-free
    run."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        maps = estimate["maps"].value
        # Maps have unit norm, and their sign is arbitrary.
        likeness = np.abs((maps if anchor is None else anchor) @ maps.T)
        return np.asarray(1 - np.minimum(likeness[np.arange(len(likeness)), _assignment(-likeness)], 1.0))

    lines = tuple(Line(f"component {number + 1}", 1.0) for number in range(algorithm.n_components))
    unit = "of the correlation between a component and the true one"
    return Measure(lines, unit, values, lambda estimate: estimate["maps"].value, loss=True, level="correlation")


def _pairs(algorithm: SyntheticDataProgram) -> Measure:
    """Loss of synthetic data: mean total variation distance of the model's tables of two columns from the data's.

    Further lines have each table, or with many columns those of each column with the others: they show which tables
    will be worth reading.
    """
    pairs = list(combinations(range(len(algorithm.columns)), 2))
    names = algorithm.columns
    # The tables of each line.
    groups = [[at] for at in range(len(pairs))]
    labels = [f"{names[i]} and {names[j]}" for i, j in pairs]
    if len(pairs) > _MOST_PAIRS:
        groups = [[at for at, pair in enumerate(pairs) if column in pair] for column in range(len(names))]
        labels = [f"tables with {name}" for name in names]

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        model = Model(estimate["component_shares"].value, algorithm.sizes, algorithm.forbidden)
        each = np.array([distance(algorithm.table(data, at), model.table(at)) for at in pairs])
        return np.array([np.mean(each), *(np.mean(each[own]) for own in groups)])

    unit = "total variation between tables of two columns"
    lines = [Line("tables of two columns", 1.0), *(Line(label, 1.0, counts=False) for label in labels)]
    return Measure(tuple(lines), unit, values, loss=True, level="agreement")


def _unexplained(algorithm: AdditiveModelProgram) -> Measure:
    """Loss of an additive model: the share of the variance of the response that its predictions leave."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        # The file of the forecast, as people have it; one row of a unit with several.
        rows = to_numpy(data.rows).astype(np.float64)
        predicted, truth = algorithm.predictor(estimate, rows[:, :-1]), rows[:, -1]
        if algorithm.family == "logistic":
            predicted = expit(predicted)
        else:
            truth = np.clip(truth, *algorithm.response_range)
        spread = float(np.var(truth))
        return np.array([1.0 if spread == 0 else min(float(np.mean((truth - predicted) ** 2)) / spread, 1.0)])

    unit = "of the variance of the response is not explained"
    return Measure((Line("predictions", 1.0),), unit, values, loss=True, level="explained share")


def _topics(algorithm: TopicsProgram) -> Measure:
    """Loss of topic models: total variation distance between matched topics. A further line has the share of topics
    that the budget does not support."""
    place = {name: at for at, name in enumerate(algorithm.columns)}

    def whole(estimate: Estimate) -> Floats:
        """Topics over all words, shape (n_topics, n_words); words that were not released have probability 0."""
        topics = estimate["topics"]
        topics_by_word = np.zeros((len(topics.value), len(place)))
        topics_by_word[:, [place[name] for name in topics.axes[-1].labels]] = topics.value
        return topics_by_word

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        topics_by_word = whole(estimate)
        truth = topics_by_word if anchor is None else anchor
        # Total variation distance: half of the L1 distance between two distributions.
        apart = np.array([np.sum(np.abs(topics_by_word - each), axis=1) / 2 for each in truth])
        lost = 1 - float(np.mean(estimate["carried"].value))
        return np.append(apart[np.arange(len(apart)), _assignment(apart)], lost)

    lines = [Line(f"topic {number + 1}", 1.0) for number in range(algorithm.n_components)]
    lines.append(Line("topics not carried", 1.0, counts=False))
    unit = "of a topic's words, by how often they occur"
    return Measure(tuple(lines), unit, values, whole, loss=True, level="words that are right")


def _assignment(costs: Floats) -> NDArray[np.intp]:
    """Column assigned to each row, with the least total cost (Hungarian method)."""
    from scipy.optimize import linear_sum_assignment  # heavy: loaded when it is used

    return np.asarray(linear_sum_assignment(costs)[1], dtype=np.intp)


def _classes(algorithm: FeatureClassifierProgram | DataCollaborationProgram | NeuralClassifierProgram) -> Measure:
    """Loss of classifiers: share of held-out rows with a wrong class."""
    # Features of the last evaluation rows. Feature maps are slow, and the rows are the same in all runs.
    known: dict[int, tuple[Floats, Floats]] = {}

    def features(rows: Floats) -> Floats:
        """Features of rows; the last column is the class."""
        if isinstance(algorithm, NeuralClassifierProgram):
            return rows[:, :-1]
        if id(rows) not in known:
            known.clear()
            known[id(rows)] = rows, np.asarray(algorithm.feature_map(rows[:, :-1]), dtype=np.float64)
        return known[id(rows)][1]

    def scores(estimate: Estimate, rows: Floats) -> Floats:
        """Scores of each class, shape (n_rows, n_classes), computed as the algorithm does."""
        weights = estimate["weights"].value
        if isinstance(algorithm, NeuralClassifierProgram):
            return algorithm.probabilities(weights, features(rows))
        # As the classifiers predict: centred, projected and scaled to norm 1, with a constant for the bias.
        directions = (features(rows) - estimate["center"].value) @ estimate["projection"].value
        norm = np.linalg.norm(directions, axis=1, keepdims=True)
        constant = BIAS if isinstance(algorithm, FeatureClassifierProgram) else 1.0
        return np.asarray(directions / np.where(norm > 0, norm, 1.0) @ weights[:-1] + constant * weights[-1])

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        rows = np.asarray(data.rows, dtype=np.float64) if anchor is None else anchor
        return np.array([float(np.mean(np.argmax(scores(estimate, rows), axis=1) != rows[:, -1]))])

    unit = "of people, taken for another class"
    return Measure((Line("wrong answers", 1.0),), unit, values, loss=True, level="accuracy")


def _coefficients(algorithm: Regression) -> Measure:
    """Coefficients in units of the effect on the response when a column traverses its range. The intercept does not
    count: it refers to columns at 0, which may be far from the data."""
    widths = 2 * algorithm.half
    response = float(widths[-1]) if isinstance(algorithm, LinearRegressionProgram) else 1.0
    names = algorithm.columns[: algorithm.features]
    # A coefficient times the width of its column is the change of the response as the column goes through its range.
    lines = [Line(name, response / float(width)) for name, width in zip(names, widths, strict=False)]
    unit = "of the response's range" if isinstance(algorithm, LinearRegressionProgram) else "of the linear predictor"
    lines.append(Line("intercept", response, counts=not names))
    return Measure(tuple(lines), f"{unit}, as a column goes through its range", _flat("coefficients", "intercept"))


def _of_classes(algorithm: MultinomialRegressionProgram) -> Measure:
    """Coefficients of every class in units of the effect when a column traverses its range, as in `_coefficients`."""
    names, widths = algorithm.columns[: algorithm.features], (2 * algorithm.half).tolist()
    lines = []
    for each in algorithm.classes[1:]:
        lines += [Line(f"{each}: {name}", 1 / width) for name, width in zip(names, widths, strict=False)]
        lines += [Line(f"{each}: intercept", 1.0, counts=not names)] if algorithm.intercept else []
    unit = "of the linear predictor, as a column goes through its range"
    return Measure(tuple(lines), unit, _flat("coefficients"))


def _hazards(algorithm: CoxRegressionProgram) -> Measure:
    """Logarithms of hazard ratios, in units of the effect when a column traverses its range."""
    names = algorithm.columns[: algorithm.features]
    lines = [Line(name, 1 / float(2 * half)) for name, half in zip(names, algorithm.half, strict=False)]
    unit = "of the logarithm of a hazard ratio, as a column goes through its range"
    # The truth of made-up data is not known: results are compared with one without privacy.
    return Measure(tuple(lines), unit, _flat("coefficients"), lambda estimate: estimate["coefficients"].value)


def _survival(algorithm: SurvivalProgram) -> Measure:
    """Survival probabilities by group and time."""

    def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
        return np.ravel(estimate["survival"].value)

    groups = ("all", *map(str, algorithm.groups)) if algorithm.groups else ("all",)
    ends = [f"{edge:g}" for edge in algorithm.edges[1:]]
    lines = tuple(Line(f"{group}, {end}", 1.0) for group in groups for end in ends)
    return Measure(lines, "of a survival probability", values)


def _tests(algorithm: HypothesisTestProgram) -> Measure:
    """Loss of tests: 1 - power for the planned effects; without effects the error of the effect itself."""
    if algorithm.effect or algorithm.test == "equivalence":

        def values(estimate: Estimate, data: Units, anchor: Floats | None) -> Floats:
            return np.asarray(1 - estimate["power"].value)

        # Columns without a planned effect have no power to forecast.
        lines = [Line(name, 1.0, name in algorithm.effect or not algorithm.effect) for name in algorithm.tested]
        unit = "of tests do not find the planned effect"
        return Measure(tuple(lines), unit, values, loss=True, level="power")
    if algorithm.test == "chi-squared" or algorithm.groups > 2:
        raise BadParameter(
            f"a forecast of the test {algorithm.test!r} needs the planned effect of each column: "
            "effect = { column = ... } in [parameters]"
        )
    ranked = algorithm.test in ("mann-whitney", "wilcoxon")
    widths = [1.0 if ranked else high - low for low, high in (algorithm.ranges[name] for name in algorithm.tested)]
    every = tuple(Line(name, width) for name, width in zip(algorithm.tested, widths, strict=True))
    return Measure(every, "of a probability" if ranked else OF_RANGE, _flat("effect"))


def _table(algorithm: GroupedAlgorithm) -> Measure:
    """Means and quantiles in units of the range, and proportions in absolute units."""
    groups, names = algorithm.group_axis.labels, algorithm.numbers
    width = {name: high - low for name, (low, high) in algorithm.ranges.items()}
    wanted = getattr(algorithm, "wanted", ("quantiles",))
    lines: list[Line] = []
    quantities: list[str] = []
    if "means" in wanted:
        quantities.append("mean")
        lines += [Line(_label(group, name, "mean"), width[name]) for group in groups for name in names]
    if "quantiles" in wanted:
        quantities.append("quantile")
        shares = getattr(algorithm, "probabilities", ())
        lines += [
            Line(_label(group, name, f"{100 * share:g} %"), width[name])
            for group in groups
            for name in names
            for share in shares
        ]
    if "proportions" in wanted and algorithm.described:
        quantities.append("proportion")
        levels = [f"{name} = {level}" for name in algorithm.described for level in algorithm.levels[name]]
        lines += [Line(_label(group, level, ""), 1.0) for group in groups for level in levels]
    return Measure(tuple(lines), "of a column's range, or of a proportion", _flat(*quantities))


def _label(group: str, name: str, what: str) -> str:
    """Label of a line."""
    return ", ".join(each for each in (name, what, "" if group == "all" else group) if each)
