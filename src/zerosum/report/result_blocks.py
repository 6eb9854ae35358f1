"""Tables and plots of a result, chosen by the quantities it contains.

Only released quantities, their known noise and the public question are used. Results of unknown algorithms are shown
too, since the choice depends on the names of quantities and not on the algorithm. Size limits were chosen by hand; no
benchmark recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.masker import Masker
from zerosum.kernel.names import visible
from zerosum.kernel.quantity import NORMAL_95, Axis, Quantity
from zerosum.kernel.question import Question
from zerosum.report import network_blocks
from zerosum.report.coefficients import CoefficientTable
from zerosum.report.document import (
    Bars,
    Block,
    Cloud,
    Clouds,
    Curves,
    Grid,
    Interval,
    Intervals,
    Series,
    Table,
    Text,
    all_known,
    known,
)
from zerosum.report.number_format import format_number, format_percent
from zerosum.report.slices import slices
from zerosum.report.table_one import table_one
from zerosum.report.tables import correlation_table, tables_of

Estimate = Mapping[str, Quantity]
_MOST_ROWS = 40  # largest number of rows of a plot; larger results are in a table or file
_FOLD_FROM = 16  # rows from which a table beside a plot is folded
_MOST_CELLS = 14  # largest number of columns of a heat map
_MOST_HISTOGRAMS = 12  # columns of synthetic data that are drawn
_MOST_SHAPES = 40  # functions of an additive model that are drawn
_MOST_EFFECTS = 2000  # rows of the table of its effects
# Largest number of components or topics that are drawn.
_MOST_MAPS = 12
_TOPIC_WORDS = 8  # words shown per topic


def result_blocks(
    estimate: Estimate, question: Question, space: Masker | None = None, algorithm: str = ""
) -> list[Block]:
    """Blocks of a result: plots where one fits, then tables, then a list of all quantities.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    question : Question
        Public question, for ranges and column names.
    space : Masker, optional
        Public grid, for brain maps.
    algorithm : str
        Name of the algorithm, which decides whether coefficients of a regression have ratios.
    """
    blocks: list[Block] = []
    # A set is <= another if it is a subset: all required quantities are there.
    for fits, show in _BLOCKS:
        if fits <= estimate.keys():
            blocks += list(show(estimate, question, space))
    if "pooled_std" in estimate:
        blocks = [*_coefficients(CoefficientTable.of(estimate, algorithm)), *blocks]
    blocks = blocks or list(_short_tables(estimate))
    return [*blocks, *_numbers(estimate), *_all_quantities(estimate)]


# ---- means, histograms, tables -------------------------------------------------------------------------------------


def _means(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Means with intervals on their public ranges."""
    mean = estimate["mean"]
    # Means by group have their own tables, and means of voxels are maps.
    if len(mean.axes) != 1 or mean.std is None or (space is not None and mean.axes[0].name == "column"):
        return
    labels, spread = _labels(mean.axes[0]), mean.half_width
    lower, upper = _bounds(question, len(labels))
    if lower is not None and upper is not None and len(labels) <= _MOST_ROWS:
        rows = tuple(
            Interval(label, *all_known((value, value - half, value + half, low, high)))
            for label, value, half, low, high in zip(labels, mean.value, spread, lower, upper, strict=True)
        )
        about = "Each on its public range. The bar is the 95 % interval for these data (privacy noise)."
        yield Intervals("Means", about, rows)
    if len(labels) <= 100:
        lines = zip(labels, mean.value, spread, strict=True)
        rows_ = tuple(
            (label, format_number(v), f"{format_number(v - h)} to {format_number(v + h)}") for label, v, h in lines
        )
        yield Table("Means in numbers", ("column", "mean", "95 %, for these data"), rows_)


def _histogram(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Counts by bin."""
    counts = estimate["counts"]
    if len(counts.axes) != 1 or counts.axes[0].name == "cluster":
        return
    labels, values = _labels(counts.axes[0]), counts.value
    half = counts.half_width
    if len(labels) <= 2 * _MOST_ROWS:
        column = question.columns[0] if question.columns else ""
        about = f"Counts of {column}; the lines are 95 % intervals of the privacy noise. Counts below 0 are noise."
        ends = all_known(values - half), all_known(values + half)
        yield Bars("How many in each bin", about, labels, all_known(values), *ends, upright=True)
    if len(labels) <= 100:
        # NaN becomes a dash.
        shares = estimate["shares"].value if "shares" in estimate else np.full(len(values), np.nan)
        rows = [
            (a, format_number(v, 4), f"± {format_number(h, 3)}", format_percent(s))
            for a, v, h, s in zip(labels, values, half, shares, strict=True)
        ]
        yield Table("Counts in numbers", ("bin", "count", "95 %", "share"), tuple(rows))


def _relations(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Histograms of the columns, the relations of pairs, and the expected error of their tables."""
    shares = estimate["category_shares"]
    labels, half = shares.axes[0].labels, shares.half_width
    names = estimate["pair_error"].axes[0].labels
    for name in names[:_MOST_HISTOGRAMS]:
        at = [place for place, label in enumerate(labels) if label.startswith(f"{name} = ")]
        if len(at) > 2 * _MOST_ROWS:
            continue
        own = tuple(labels[place].removeprefix(f"{name} = ") for place in at)
        values = shares.value[at]
        low, high = all_known(values - half[at]), all_known(values + half[at])
        about = "Released shares; the lines are 95 % intervals of the privacy noise."
        yield Bars(name, about, own, all_known(values), low, high, percent=True, small=True)
    if len(names) <= _MOST_CELLS:
        about = (
            "Total variation distance of the table of two columns from independence, in the model: 0 to 1. Records of "
            "the model have these relations."
        )
        rows = tuple(all_known(row) for row in estimate["dependence"].value)
        yield Grid("Relations between columns", about, names, names, rows)
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    pairs.sort(key=lambda pair: -estimate["dependence"].value[pair])
    lines = tuple(
        (
            visible(names[j]),
            visible(names[i]),
            "yes" if estimate["measured"].value[i, j] else "no",
            format_number(float(estimate["dependence"].value[i, j]), 2),
            format_number(float(estimate["pair_error"].value[i, j]), 2),
        )
        for i, j in pairs
    )
    heading = ("column", "and", "table released", "distance from independence", "expected error")
    yield Table("Tables of two columns", heading, lines, folded=len(lines) > _MOST_ROWS)


def _shapes(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """The importance of the terms of an additive model, and the function of each of the most important ones."""
    effects, importance = estimate["effects"], estimate["importance"]
    names = importance.axes[0].labels
    ends = np.cumsum([0, *estimate["term_cells"].value]).astype(int).tolist()
    order = np.argsort(-importance.value, kind="stable").tolist()
    levels = question.parameters.get("levels")
    classes = isinstance(levels, Mapping) and question.columns[-1] in levels
    scale = "log odds" if classes else f"unit of {question.columns[-1]}"
    about = f"Standard deviation of the effect of each term over the units ({scale})."
    shown = order[:_MOST_ROWS]
    yield Bars(
        "Importance",
        about,
        tuple(visible(names[at]) for at in shown),
        all_known([importance.value[at] for at in shown]),
    )
    yield Text(
        (
            f"The pictures have the effect of each cell ({scale}), with mean 0 over the units. The errors of effects "
            "are not known: small steps may be noise, and columns that move together share an effect. The noise of "
            "each cell's own sums is in the table.",
        )
    )
    about = f"Effect by cell ({scale})."
    lines = []
    for place, at in enumerate(order):
        cells = slice(ends[at], ends[at + 1])
        labels = tuple(label.removeprefix(f"{names[at]} = ") for label in effects.axes[0].labels[cells])
        # Functions of pairs are in the table.
        if place < _MOST_SHAPES and names[at] in question.columns and len(labels) <= 2 * _MOST_ROWS:
            yield Bars(visible(names[at]), about, labels, all_known(effects.value[cells]), small=True)
        further = (estimate[name].value[cells].tolist() for name in ("cell_noise", "cell_units"))
        for label, *values in zip(labels, effects.value[cells].tolist(), *further, strict=True):
            lines.append((visible(names[at]), label, *(format_number(value, 3) for value in values)))
    yield Table(
        "Effects",
        ("term", "cell", "effect", "noise of the cell's own sums", "units"),
        tuple(lines[:_MOST_EFFECTS]),
        names=2,
        folded=True,
    )


def _descriptions(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Plots and tables of descriptive statistics, quantiles and survival curves."""
    if {"mean_population_interval", "proportion"} & estimate.keys():
        first = table_one(estimate, question)
        yield replace(first.as_table(), title=f"Table 1: {first.title}")
        yield Text(first.notes)
    if "mean_population_interval" in estimate:
        yield from _group_intervals(estimate, "mean", "Means")
    if "proportion_population_interval" in estimate:
        yield from _group_intervals(estimate, "proportion", "Proportions")
    if "difference" in estimate and "difference_population_interval" in estimate:
        yield from _group_intervals(estimate, "difference", "Differences of means")
    if "quantile" in estimate:
        yield from _quantiles(estimate, question)
    if "survival" in estimate:
        yield from _survival(estimate, question)
    for table in tables_of(estimate):
        yield replace(table, folded=len(table.rows) > _FOLD_FROM)


def _tests(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Effects with their intervals, each on its own axis, and the table of tests."""
    if "effect_interval" in estimate:
        value, ends = estimate["effect"].value, estimate["effect_interval"].value
        rows = []
        for label, at, (low, high) in zip(_labels(estimate["effect"].axes[0]), value, ends, strict=True):
            # The axis includes 0.
            start, end = min(low, 0.0), max(high, 0.0)
            room = 0.1 * (end - start)
            rows.append(Interval(label, *all_known((at, low, high, start - room, end + room))))
        if len(rows) <= _MOST_ROWS:
            about = "The bar is the 95 % interval for the population (privacy noise and sampling error)."
            yield Intervals("Effects", about, tuple(rows))
    for table in tables_of(estimate):
        yield replace(table, folded=len(table.rows) > _FOLD_FROM)


# Caption of plots with two kinds of intervals.
_TWO_INTERVALS = (
    "The thick bar is the 95 % interval for these data (privacy noise), the thin one for the population they are a "
    "sample of (privacy noise and sampling error)."
)


def _group_intervals(estimate: Estimate, name: str, title: str) -> Iterator[Block]:
    """Intervals by column and group. The groups of one column share an axis."""
    value, pooled, wide = (estimate[f"{name}{end}"].value for end in ("", "_interval", "_population_interval"))
    groups, columns = estimate[name].axes
    rows = []
    for j, column in enumerate(_labels(columns)):
        # The axis of differences includes 0.
        held = [*wide[:, j].ravel(), *([0.0] if name == "difference" else [])]
        low, high = np.nanmin(held), np.nanmax(held)
        room = 0.1 * (high - low)
        for g, group in enumerate(groups.labels):
            alone = len(groups.labels) == 1 and name != "difference"
            label = column if alone else f"{columns.labels[j]}, {group}"
            ends = value[g, j], *pooled[g, j], low - room, high + room, *wide[g, j]
            rows.append(Interval(label, *all_known(ends)))
    if len(rows) <= _MOST_ROWS:
        yield Intervals(title, _TWO_INTERVALS, tuple(rows))


def _quantiles(estimate: Estimate, question: Question) -> Iterator[Block]:
    """Lowest, middle and highest requested quantile of each column and group."""
    value, ends = estimate["quantile"].value, estimate["quantile_interval"].value
    groups, columns, levels = estimate["quantile"].axes
    if len(levels.labels) < 2 or len(columns.labels) * len(groups.labels) > _MOST_ROWS:
        return
    ranges = question.parameters.get("ranges")
    rows = []
    for j, column in enumerate(columns.labels):
        given = ranges.get(column) if isinstance(ranges, Mapping) else None
        # Without a public range the axis covers the intervals.
        start, end = given if isinstance(given, list) else (ends[:, j].min(), ends[:, j].max())
        for g, group in enumerate(groups.labels):
            label = _labels(columns)[j] if len(groups.labels) == 1 else f"{column}, {group}"
            # Quantiles are in increasing order of their level: the first, the middle and the last one.
            middle = value[g, j, len(levels.labels) // 2]
            span = middle, value[g, j, 0], value[g, j, -1], start, end, ends[g, j, 0, 0], ends[g, j, -1, 1]
            rows.append(Interval(label, *all_known(span)))
    labels = levels.labels[0], levels.labels[len(levels.labels) // 2], levels.labels[-1]
    about = (
        f"On the public range: the bar from {labels[0]} to {labels[2]}, the dot at {labels[1]}, the line from the "
        "lower end of the lowest 95 % interval to the upper end of the highest."
    )
    yield Intervals("Quantiles", about, tuple(rows))


def _survival(estimate: Estimate, question: Question) -> Iterator[Block]:
    """Survival curves of up to six groups."""
    groups, times = estimate["survival"].axes
    try:
        places = [float(label) for label in times.labels]
    except ValueError:
        return
    names, series = (*question.columns, "", "", "")[:3], []
    for g, group in enumerate(groups.labels[:6]):
        survival = estimate["survival"].value[g]
        # Where the curve is unknown, the band and the number at risk end with it.
        known_ = np.isfinite(survival)
        ends = np.where(known_[:, None], estimate["survival_population_interval"].value[g], np.nan)
        # Results of 0.2 have the number at risk on average over a bin only.
        at_risk = np.where(known_, estimate.get("at_risk_start", estimate["at_risk"]).value[g], np.nan)
        # Survival is 1 at time 0.
        curve = [1.0, *survival], [1.0, *ends[:, 0]], [1.0, *ends[:, 1]]
        y, low, high = map(all_known, curve)
        label = f"{names[2]} = {group}" if names[2] and len(groups.labels) > 1 else group
        counts = all_known([*at_risk, np.nan])
        series.append(Series(label, all_known([0.0, *places]), y, low, high, "steps", counts))
    about = (
        "The share that has not had the event, with 95 % intervals for the population (sampling and privacy). A curve "
        "ends where the number at risk is near its noise."
    )
    yield Curves(
        "Survival", about, names[0] or "time", "survival", tuple(series), percent=True, counts_label="number at risk"
    )


def _covariance(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Heat map and table of correlations."""
    correlations = estimate["correlation"]
    labels = correlations.axes[0].labels if correlations.axes else ()
    # Cells of larger matrices would be too small to read.
    if 1 < len(labels) <= _MOST_CELLS:
        about = "From -1 to 1; red is positive, blue negative."
        yield Grid("Correlations", about, labels, labels, tuple(all_known(row) for row in correlations.value))
        if (table := correlation_table(estimate)) is not None:
            yield table


# ---- regressions ---------------------------------------------------------------------------------------------------


def _coefficients(table: CoefficientTable) -> Iterator[Block]:
    """Coefficients of a regression: ratios on one logarithmic axis, others each on an axis that includes 0."""
    # Coefficients of a linear model have different units, so that they share an axis only if they are standardised.
    shared = table.ratios() if table.ratio else table.standardised() if table.feature_std else None
    if shared is not None and 0 < len(shared.rows) <= _MOST_ROWS:
        yield shared.forest()
    rows = []
    for each in table.rows:
        # 0 on every axis: whether an interval excludes it is what readers look for.
        ends = (*each.pooled_95, *each.population_95, 0.0)
        room = 0.08 * (max(ends) - min(ends))
        span = each.estimate, *each.pooled_95, min(ends) - room, max(ends) + room, *each.population_95
        rows.append(Interval(each.label, *all_known(span)))
    if len(rows) <= _MOST_ROWS and not table.ratio:
        about = f"Each on an axis of its own that holds 0 (the mark). {_TWO_INTERVALS}"
        yield Intervals("Coefficients", about, tuple(rows))
    for numbers in table.tables():
        yield replace(numbers, title=f"{numbers.title} in numbers")
    if shared is not None and not table.ratio:
        yield replace(shared.as_table(), title=f"{shared.title} in numbers")


def _baseline(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Survival at typical covariates of a Cox regression, by stratum."""
    strata, times = estimate["baseline_survival"].axes
    places, series = [float(label) for label in times.labels], []
    for g, label in enumerate(strata.labels[:6]):
        ends_ = estimate["baseline_population_interval"].value[g]
        curve = [1.0, *estimate["baseline_survival"].value[g]], [1.0, *ends_[:, 0]], [1.0, *ends_[:, 1]]
        y, low, high = map(all_known, curve)
        series.append(Series(label, all_known([0.0, *places]), y, low, high))
    typical = [
        f"{name} {format_number(value, 3)}"
        for name, value in zip(estimate["baseline_at"].axes[0].labels, estimate["baseline_at"].value, strict=True)
    ]
    some = ", ".join(typical[:8]) + (", ..." if len(typical) > 8 else "")
    about = f"The share without the event for {some} (noisy means), with 95 % intervals for the population."
    name = question.columns[-2] if len(question.columns) > 1 else "time"
    yield Curves("Survival at typical covariates", about, name, "survival", tuple(series), percent=True)


def _residuals(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Histogram of residuals."""
    yield _bars(
        estimate["residuals"], "Residuals", "Number of people by the difference from their prediction; 95 % intervals."
    )


def _scores(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Histogram of predicted scores by class."""
    scores = estimate["scores"]
    if len(scores.axes) != 2:
        return
    classes, places = scores.axes
    x = tuple(float(at) for at in range(1, len(places.labels) + 1))
    series = tuple(Series(label, x, all_known(line)) for label, line in zip(classes.labels, scores.value, strict=True))
    about = "Number of people of each class by predicted score, in increasing order; noisy counts."
    yield Curves("Scores by class", about, f"{places.name}, bin", "people", series)


# ---- classifiers ---------------------------------------------------------------------------------------------------


def _quality(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Accuracy, confusion matrix and calibration curve of a classifier."""
    right, (low, high) = float(estimate["accuracy"][0]), estimate["accuracy_interval_95"].value
    # Accuracy on people that the classifier was fitted to is too high; the text states which it is.
    held = question.parameters.get("hold_out")
    apart = isinstance(held, int | float) and held > 0
    whom = "people that it was not fitted to" if apart else "people among whom are those it was fitted to"
    interval = f"(95 %: {format_percent(low)} to {format_percent(high)})"
    yield Text((f"It is right {format_percent(right)} of the time on {whom} {interval}.",))
    confusion = estimate["confusion"]
    true, predicted = confusion.axes
    if len(true.labels) <= _MOST_CELLS:
        about = f"People by their true class (rows) and the predicted one (columns){_noise_clause(confusion)}."
        yield Grid("Confusion", about, true.labels, predicted.labels, tuple(all_known(row) for row in confusion.value))
    total, hits = estimate["calibration"].value
    std = estimate["calibration"].std
    noise = np.zeros(2) if std is None else np.asarray(std)[:, 0]
    clear = total > 4 * noise[0]  # bins well above the noise
    middle = (np.arange(len(total)) + 0.5) / len(total)
    if np.any(clear):
        # With noise there can be more hits than people in a bin.
        share = np.clip(hits[clear] / total[clear], 0, 1)
        # Delta method for the ratio hits / total with independent noise in both.
        half = NORMAL_95 * np.hypot(noise[1], share * noise[0]) / total[clear]
        ends = all_known(np.clip(share - half, 0, 1)), all_known(np.clip(share + half, 0, 1))
        series = (
            Series("how often it was right", all_known(middle[clear]), all_known(share), *ends),
            Series("as often as predicted", (0.0, 1.0), (0.0, 1.0), style="dashed"),
        )
        about = "By the probability of the prediction; bands: 95 % intervals of the noise; bins below it are left out."
        yield Curves("Calibration", about, "probability of the predicted class", "right", series, percent=True)


def _model(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Weights of a classifier."""
    if "accuracy" not in estimate:
        yield Text(("The accuracy was not released, so it is not known.",))
    weights = estimate["weights"]
    if len(weights.axes) == 2 and weights.axes[1].name == "class" and weights.shape[0] <= _MOST_CELLS:
        directions, classes = weights.axes
        about = "Weight of each direction of the public features for each class."
        yield Grid("Weights", about, directions.labels, classes.labels, tuple(all_known(row) for row in weights.value))


# ---- components, clusters, topics ----------------------------------------------------------------------------------


def _energy(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Eigenvalues, and their shares of the total."""
    values = estimate["eigenvalues"]
    labels = values.axes[0].labels if values.axes else tuple(str(at + 1) for at in range(len(values)))
    edge = float(estimate["noise_edge"][0]) if "noise_edge" in estimate else None
    # 95 % intervals of the noise, if known.
    half = values.half_width
    noise = "" if edge is None else f" Values below {format_number(edge, 3)} cannot be distinguished from noise."
    ends = (all_known(values.value - half), all_known(values.value + half)) if values.std is not None else ((), ())
    if len(labels) <= _MOST_ROWS:
        names = tuple(f"component {label}" for label in labels)
        yield Bars("Energy of the components", f"Eigenvalues.{noise}", names, all_known(values.value), *ends)
    if "total" in estimate and float(estimate["total"][0]) > 0:
        share = values.value / float(estimate["total"][0])
        rows = zip(labels, values.value, share, np.cumsum(share), strict=True)
        lines = tuple((label, format_number(v), format_percent(s), format_percent(c)) for label, v, s, c in rows)
        heading = ("component", "eigenvalue", "share of the energy", "with those before it")
        yield Table("Energy in numbers", heading, lines)


def _components(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Components as brain slices, a heat map, or the largest weights."""
    components = estimate["components"] if "components" in estimate else estimate["maps"]
    axis, columns = components.axes
    if space is not None and len(columns.labels) == len(space.columns):
        # On the study's grid; the file of the maps has every component.
        yield from slices(components.value[:_MOST_MAPS], space, axis.labels)
        if len(components.value) > _MOST_MAPS:
            yield Text(
                (f"The first {_MOST_MAPS} of {len(components.value)} are drawn; the image beside this report has all.",)
            )
    elif len(columns.labels) <= _MOST_CELLS:
        about = "Weight of each column in each component: red positive, blue negative."
        yield Grid("Components", about, axis.labels, columns.labels, tuple(all_known(row) for row in components.value))
    else:
        for label, row in list(zip(axis.labels, components.value, strict=True))[:_MOST_MAPS]:
            yield _largest_weights(row, columns.labels, f"Component {label}", "The columns with the largest weights.")


def _stability(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Stability of components."""
    stability = estimate["stability"]
    names = tuple(f"component {at + 1}" for at in range(len(stability)))
    about = "Expected agreement of each component with the one found under new noise; 1 is full agreement."
    if stability.value.ndim == 1 and len(names) <= _MOST_ROWS:
        yield Bars("Stability", about, names, all_known(stability.value), whole=1.0)


def _clusters(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Cluster centres and shares."""
    centres = estimate["centers"] if "centers" in estimate else estimate["means"]
    axis, columns = centres.axes
    share, reach = None, np.full((len(axis.labels), len(columns.labels)), np.nan)
    if "weights" in estimate:
        share = estimate["weights"].value
        # Two standard deviations: in two dimensions this ellipse holds 1 - exp(-2) = 86 % of a normal cluster.
        reach = 2 * np.sqrt(np.maximum(estimate["variances"].value, 0))[:, None] * estimate["scale"].value
    elif float(np.sum(np.maximum(estimate["counts"].value, 0))) > 0:
        counts = np.maximum(estimate["counts"].value, 0)
        share = counts / np.sum(counts)
    names = _labels(columns)
    if len(names) >= 2 and len(axis.labels) <= _MOST_ROWS:
        lower, upper = _bounds(question, len(names))
        # Without public ranges the axes cover the centres and their rings.
        low = np.min(centres.value - np.nan_to_num(reach), axis=0) if lower is None else lower
        high = np.max(centres.value + np.nan_to_num(reach), axis=0) if upper is None else upper
        clouds = tuple(
            Cloud(label, *all_known((*centres[k, :2], np.nan if share is None else share[k], *reach[k, :2])))
            for k, label in enumerate(axis.labels)
        )
        drawn = "" if len(names) == 2 else f" Of {len(names)} columns, the first two."
        ring = " The rings hold 86 % of a cluster." if "weights" in estimate else ""
        spans = (known(low[0]), known(high[0])), (known(low[1]), known(high[1]))
        about = f"A disc for each, as large as its share.{ring}{drawn}"
        yield Clouds("Clusters", about, names[0], names[1], *spans, clouds)
    if len(names) <= _MOST_CELLS:
        rows = [
            (label, "–" if share is None else format_percent(float(share[k])), *map(format_number, centres.value[k]))
            for k, label in enumerate(axis.labels)
        ]
        yield Table("Centres in numbers", (axis.name, "share", *names), tuple(rows))


def _topics(estimate: Estimate, question: Question, space: Masker | None) -> Iterator[Block]:
    """Words of each topic."""
    topics = estimate["topics"]
    axis, words = topics.axes
    # Relevance ranks words that are typical for the topic before words that are frequent in all topics.
    order = estimate["relevance"].value if "relevance" in estimate else topics.value
    weights = estimate["weights"].value if "weights" in estimate else None
    for k, label in list(enumerate(axis.labels))[:_MOST_MAPS]:
        # Words are ranked by relevance where the result has it, else by probability.
        # argsort is ascending, so the negated values give the largest first.
        best = np.argsort(-order[k])[:_TOPIC_WORDS]
        share = "" if weights is None else f": {format_percent(float(weights[k]))} of all words"
        about = "Its most characteristic words, and their share of it."
        named = tuple(words.labels[at] for at in best)
        yield Bars(f"Topic {label}{share}", about, named, all_known(topics.value[k, best]), percent=True, small=True)


def _largest_weights(row: Floats, labels: tuple[str, ...], title: str, about: str) -> Bars:
    """Bars with the largest weights of one component."""
    best = np.argsort(-np.abs(row))[:_TOPIC_WORDS]
    return Bars(title, about, tuple(labels[at] for at in best), all_known(row[best]), small=True)


# ---- other quantities ----------------------------------------------------------------------------------------------


def _bars(quantity: Quantity, title: str, about: str) -> Bars:
    """Bars of a one-dimensional quantity with 95 % intervals."""
    labels = _labels(quantity.axes[0])
    half = quantity.half_width
    ends = all_known(quantity.value - half), all_known(quantity.value + half)
    return Bars(title, about, labels, all_known(quantity.value), *ends, upright=True)


def _short_tables(estimate: Estimate) -> Iterator[Block]:
    """Fallback: a table for every short one-dimensional quantity."""
    for name, each in estimate.items():
        if each.value.ndim != 1 or not 1 < each.value.size <= _MOST_ROWS:
            continue
        labels = _labels(each.axes[0]) if each.axes else tuple(str(at + 1) for at in range(each.value.size))
        columns = [labels, map(format_number, each.value.tolist())]
        heading = [each.axes[0].name if each.axes else "number", "value"]
        if each.std is not None:
            columns.append([f"± {format_number(float(one), 3)}" for one in each.half_width])
            heading.append("95 % of the noise")
        title = name.replace("_", " ")
        yield Table(f"{title[:1].upper()}{title[1:]}", tuple(heading), tuple(zip(*columns, strict=True)))


def _numbers(estimate: Estimate) -> Iterator[Block]:
    """Table of single numbers."""
    rows = []
    for name, each in estimate.items():
        # The table of the log-rank test has its numbers.
        if each.value.size == 1 and not name.startswith("log_rank"):
            half = "" if each.std is None else f"± {format_number(float(np.ravel(each.half_width)[0]), 3)}"
            rows.append((name.replace("_", " "), format_number(float(each.value.item())), half))
    if rows:
        wide = 3 if any(row[2] for row in rows) else 2
        yield Table("Single numbers", ("name", "value", "95 % of the noise")[:wide], tuple(r[:wide] for r in rows))


def _all_quantities(estimate: Estimate) -> Iterator[Block]:
    """Folded table of all quantities with shape, axes and kind."""
    rows = []
    for name, each in estimate.items():
        along = " by ".join(axis.name for axis in each.axes)
        rows.append((name, " x ".join(map(str, each.shape)) or "1", along, each.kind))
    yield Table(
        "All estimated quantities, in estimate.npz and result.json",
        ("name", "numbers", "along", "kind"),
        tuple(rows),
        folded=True,
    )


def _labels(axis: Axis) -> tuple[str, ...]:
    """Labels of an axis with units of measurement."""
    units = axis.units or ("",) * len(axis.labels)
    return tuple(f"{label} ({unit})" if unit else label for label, unit in zip(axis.labels, units, strict=True))


def _bounds(question: Question, count: int) -> tuple[Floats, Floats] | tuple[None, None]:
    """Public lower and upper bounds, if there is one for each of `count` columns."""
    lower, upper = question.parameters.get("lower"), question.parameters.get("upper")
    if isinstance(lower, list) and isinstance(upper, list) and len(lower) == len(upper) == count:
        return np.array(lower, dtype=np.float64), np.array(upper, dtype=np.float64)
    return None, None


def _noise_clause(quantity: Quantity) -> str:
    """Clause about the noise of a quantity."""
    return (
        ""
        if quantity.std is None
        else f", each with noise of {format_number(float(np.max(np.asarray(quantity.std))), 3)}"
    )


# (estimate, public question, public grid or None) to blocks of the report.
_BlockFunction = Callable[[Estimate, Question, Masker | None], Iterator[Block]]
# Required quantities and the function that shows them. All that match are used, in this order.
_BLOCKS: tuple[tuple[set[str], _BlockFunction], ...] = (
    ({"mean", "noise_std"}, _means),
    ({"mean", "correlation"}, _means),
    ({"correlation"}, _covariance),
    ({"counts", "shares"}, _histogram),
    ({"mean_population_interval"}, _descriptions),
    ({"quantile"}, lambda e, q, s: iter(()) if "mean_population_interval" in e else _descriptions(e, q, s)),
    ({"survival", "survival_population_interval"}, _descriptions),
    ({"baseline_survival", "baseline_at"}, _baseline),
    ({"statistic", "degrees_of_freedom", "p_value"}, _tests),
    ({"residuals"}, _residuals),
    ({"scores"}, _scores),
    ({"accuracy", "confusion", "calibration", "accuracy_interval_95"}, _quality),
    ({"weights", "projection"}, _model),
    ({"weights", "steps_taken"}, _model),
    ({"eigenvalues"}, _energy),
    ({"components"}, _components),
    ({"maps"}, _components),
    ({"map_difference", "share_kept"}, network_blocks.differences),
    ({"spread", "clip", "connectivity"}, network_blocks.connectivity),
    ({"spread", "clip", "connectivity_coefficients"}, network_blocks.connectivity),
    ({"stability"}, _stability),
    ({"centers", "counts"}, _clusters),
    ({"means", "weights", "variances", "scale"}, _clusters),
    ({"topics"}, _topics),
    ({"component_shares", "pair_error"}, _relations),
    ({"effects", "importance", "term_cells"}, _shapes),
)
