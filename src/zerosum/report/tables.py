"""Tables and records of descriptive statistics, quantiles, survival curves and tests.

`tables_of` gives the tables that are printed, shown in the report and on the watch page; `records_of` gives the same
content with all digits, for programs. Two intervals stand side by side: "these data" contains the privacy noise only,
"population" also the sampling error.

Arrays of quantities have the group first: (groups, columns) or (groups, columns, quantiles). With one group the column
of groups is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zerosum.kernel.names import visible
from zerosum.kernel.quantity import Quantity
from zerosum.report.document import Table
from zerosum.report.number_format import format_number
from zerosum.report.text_table import fits

Estimate = Mapping[str, Quantity]


def tables_of(estimate: Estimate) -> list[Table]:
    """Tables of descriptive statistics, quantiles, survival curves, tests or additive models; empty for others."""
    return [
        *_means(estimate),
        *_quantiles(estimate),
        *_proportions(estimate),
        *_differences(estimate),
        *_curves(estimate),
        *_tests(estimate),
        *_terms(estimate),
    ]


def _terms(estimate: Estimate) -> Iterator[Table]:
    """The terms of an additive model, from the most to the least important."""
    if not estimate.keys() >= {"effects", "importance", "term_cells"}:
        return
    importance, effects = estimate["importance"], estimate["effects"].value
    ends = np.cumsum([0, *estimate["term_cells"].value]).astype(int).tolist()
    rows = []
    for at in np.argsort(-importance.value, kind="stable").tolist():
        own = effects[ends[at] : ends[at + 1]]
        numbers = (format_number(float(each), 3) for each in (importance.value[at], own.min(), own.max()))
        rows.append((visible(importance.axes[0].labels[at]), str(own.size), *numbers))
    yield Table("Terms", ("term", "cells", "importance", "lowest effect", "highest effect"), tuple(rows))


def records_of(estimate: Estimate) -> dict[str, list[dict[str, Any]]]:
    """The same content as records with all numbers, one for each row.

    Parameters
    ----------
    estimate : mapping
        Quantities of a descriptive table, quantiles or survival curves.

    Returns
    -------
    dict
        Records by the name of the quantity. Each has the labels of its place, the value, and its errors.
    """
    records: dict[str, list[dict[str, Any]]] = {}
    for name in ("mean", "quantile", "proportion", "difference", "proportion_difference", "survival"):
        if name in estimate and f"{name}_interval" in estimate:
            records[name] = list(_records(estimate, name))
    if {"effects", "cell_noise", "cell_units"} <= estimate.keys():
        columns = (estimate[name].value.tolist() for name in ("effects", "cell_noise", "cell_units"))
        labels = estimate["effects"].axes[0].labels
        records["effect"] = [
            {"cell": label, "effect": effect, "cell_noise": noise, "units": units}
            for label, effect, noise, units in zip(labels, *columns, strict=True)
        ]
    if estimate.keys() >= _TESTS:
        records["test"] = list(_test_records(estimate))
    return records


# Further quantities in the records of a quantity.
_BESIDE = {
    "mean": ("observed", "sd", "mean_population_std"),
    "proportion": ("proportion_observed",),
    "survival": ("at_risk", "at_risk_start", "events"),
}


def _records(estimate: Estimate, name: str) -> Iterator[dict[str, Any]]:
    """Yield one record for each element of a quantity."""
    quantity = estimate[name]
    for at in np.ndindex(quantity.shape):
        where = {axis.name: axis.labels[place] for axis, place in zip(quantity.axes, at, strict=True)}
        yield where | {
            name: float(quantity[at]),
            "std": None if quantity.std is None else float(np.asarray(quantity.std)[at]),
            "interval": estimate[f"{name}_interval"][at].tolist(),
            "population_interval": estimate[f"{name}_population_interval"][at].tolist(),
            **{
                other.removeprefix(f"{name}_"): float(estimate[other][at])
                for other in _BESIDE.get(name, ())
                if other in estimate
            },
        }


def correlation_table(estimate: Estimate) -> Table | None:
    """Table of the correlations of all pairs of columns with both intervals; None without intervals or pairs."""
    if "correlation_interval" not in estimate:
        return None
    correlations = estimate["correlation"]
    labels, std = correlations.axes[0].labels, np.asarray(correlations.std)
    # A covariance study has intervals and no tests.
    tests = {name: head for name, head in (("p_value", "p"), ("p_adjusted", "p adjusted")) if name in estimate}
    rows = [
        (
            visible(first),
            visible(labels[b]),
            number(correlations[a, b]) if std[a, b] < 1 else "-",
            interval(estimate["correlation_interval"][a, b]),
            interval(estimate["correlation_population_interval"][a, b]),
            *(p_value(float(estimate[name][a, b])) for name in tests),
        )
        for a, first in enumerate(labels)
        for b in range(a + 1, len(labels))
    ]
    heading = ("column", "and", "correlation", "95 % these data", "95 % population", *tests.values())
    return Table("Correlations in numbers", heading, tuple(rows), folded=len(rows) > _UNFOLDED) if rows else None


_UNFOLDED = 16  # rows of a table that is shown without a click
# Quantities by which a result of tests is known.
_TESTS = {"statistic", "degrees_of_freedom", "p_value"}


def _test_records(estimate: Estimate) -> Iterator[dict[str, Any]]:
    """Yield one record for each tested column."""
    (axis,) = estimate["p_value"].axes
    for j, column in enumerate(axis.labels):
        record: dict[str, Any] = {"column": column}
        for name in ("statistic", "degrees_of_freedom", "p_value", "p_adjusted", "effect", "power"):
            if name in estimate:
                record[name] = float(estimate[name][j])
        if "effect_interval" in estimate:
            record["effect_interval"] = estimate["effect_interval"][j].tolist()
        yield record


def _tests(estimate: Estimate) -> Iterator[Table]:
    """Table of tests, one row for each column."""
    if not estimate.keys() >= _TESTS:
        return
    heading: tuple[str, ...] = ("column", "statistic", "df", "p")
    optional = [("p_adjusted", "p adjusted"), ("effect", "effect"), ("effect_interval", "95 % population")]
    optional.append(("power", "power"))
    there = [(name, title) for name, title in optional if name in estimate]
    rows = []
    for record in _test_records(estimate):
        cells = [visible(record["column"]), number(record["statistic"]), f"{record['degrees_of_freedom']:.0f}"]
        cells.append(p_value(record["p_value"]))
        for name, _title in there:
            shown = {"p_adjusted": p_value, "effect_interval": interval}.get(name, number)
            cells.append(shown(record[name]))
        rows.append(tuple(cells))
    yield Table("Tests", (*heading, *(title for _name, title in there)), tuple(rows))


def p_value(p: float) -> str:
    """A p value with three decimals, or a bound.

    >>> p_value(0.0321), p_value(1e-7)
    ('0.032', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _means(estimate: Estimate) -> Iterator[Table]:
    """Table of means and standard deviations."""
    if "mean_population_interval" not in estimate:
        return
    groups, columns = estimate["mean"].axes
    rows = [
        (
            visible(column),
            *_group(groups.labels, g),
            f"{estimate['observed'][g, j]:.0f}",
            number(estimate["mean"][g, j]),
            interval(estimate["mean_interval"][g, j]),
            interval(estimate["mean_population_interval"][g, j]),
            _spread(estimate["sd"][g, j], estimate["sd_interval"][g, j]),
        )
        for j, column in enumerate(columns.labels)
        for g in range(len(groups.labels))
    ]
    heading = ("column", *_heading(groups.labels), "n", "mean", "95 % these data", "95 % population", "sd")
    yield Table("Means", heading, tuple(rows), _named(groups.labels))


def _quantiles(estimate: Estimate) -> Iterator[Table]:
    """Tables of quantiles."""
    if "quantile" not in estimate:
        return
    for together in (3, 2, 1):  # as many quantiles side by side as fit
        tables = list(_quantiles_by(estimate, together))
        if all(map(fits, tables)):
            break
    yield from tables


def _quantiles_by(estimate: Estimate, together: int) -> Iterator[Table]:
    """Tables of quantiles.

    Parameters
    ----------
    estimate : mapping
        Quantities with `quantile`, shape (groups, columns, quantiles), and `quantile_interval`, with a last axis for
        both ends.
    together : int
        Quantiles per table.
    """
    groups, columns, quantiles = estimate["quantile"].axes
    count = len(quantiles.labels)
    for some in (range(first, min(first + together, count)) for first in range(0, count, together)):
        rows = [
            (
                visible(column),
                *_group(groups.labels, g),
                *(_with(estimate["quantile"][g, j, q], estimate["quantile_interval"][g, j, q]) for q in some),
            )
            for j, column in enumerate(columns.labels)
            for g in range(len(groups.labels))
        ]
        heading = ("column", *_heading(groups.labels), *(quantiles.labels[q] for q in some))
        yield Table("Quantiles (95 % for these data)", heading, tuple(rows), _named(groups.labels))


def _proportions(estimate: Estimate) -> Iterator[Table]:
    """Tables of group sizes and of proportions."""
    if "units" in estimate:
        groups = estimate["units"].axes[0]
        std = np.asarray(estimate["units"].std)
        sizes = [
            # 1.96 standard deviations: the 95 % interval of the noise.
            (visible(label), f"{estimate['units'][g]:.0f}", f"{1.96 * std[g]:.0f}")
            for g, label in enumerate(groups.labels)
        ]
        yield Table("Units", ("group", "n", "give or take, 95 %"), tuple(sizes))
    if "proportion" not in estimate:
        return
    groups, levels = estimate["proportion"].axes
    rows = [
        (
            visible(level),
            *_group(groups.labels, g),
            f"{estimate['proportion_observed'][g, j]:.0f}",
            percent(estimate["proportion"][g, j]),
            _percents(estimate["proportion_interval"][g, j]),
            _percents(estimate["proportion_population_interval"][g, j]),
        )
        for j, level in enumerate(levels.labels)
        for g in range(len(groups.labels))
    ]
    heading = ("level", *_heading(groups.labels), "n", "%", "95 % these data", "95 % population")
    yield Table("Proportions", heading, tuple(rows), _named(groups.labels))


def _differences(estimate: Estimate) -> Iterator[Table]:
    """Tables of differences between groups."""
    for name, title, show, shows in (
        ("difference", "Differences of means", number, interval),
        ("proportion_difference", "Differences of proportions (percentage points)", percent, _percents),
    ):
        if name not in estimate:
            continue
        pairs, columns = estimate[name].axes
        rows = [
            (
                visible(column),
                visible(pair),
                show(estimate[name][g, j]),
                shows(estimate[f"{name}_interval"][g, j]),
                shows(estimate[f"{name}_population_interval"][g, j]),
            )
            for j, column in enumerate(columns.labels)
            for g, pair in enumerate(pairs.labels)
        ]
        heading = (columns.name, "groups", "difference", "95 % these data", "95 % population")
        yield Table(title, heading, tuple(rows), 2)


def _curves(estimate: Estimate) -> Iterator[Table]:
    """Tables of survival, median time and the log-rank test."""
    if "survival" not in estimate:
        return
    groups, times = estimate["survival"].axes
    rows = [
        (
            visible(group),
            f"{time}",
            f"{estimate['at_risk'][g, t]:.0f}",
            percent(estimate["survival"][g, t]),
            _percents(estimate["survival_interval"][g, t]),
            _percents(estimate["survival_population_interval"][g, t]),
        )
        for g, group in enumerate(groups.labels)
        for t, time in enumerate(times.labels)
    ]
    heading = ("group", "until", "at risk", "survival %", "95 % these data", "95 % population")
    yield Table("Survival", heading, tuple(rows))
    medians = [
        (
            visible(group),
            number(estimate["median"][g]),
            interval(estimate["median_interval"][g]),
            interval(estimate["median_population_interval"][g]),
        )
        for g, group in enumerate(groups.labels)
    ]
    yield Table("Median time", ("group", "median", "95 % these data", "95 % population"), tuple(medians))
    if "log_rank_p" in estimate:
        # The log-rank test of g groups has g - 1 degrees of freedom; z is its signed root with two groups.
        degrees, chi_square = len(groups.labels) - 1, float(estimate["log_rank_statistic"])
        test = [("chi-square", f"{chi_square:.3g}")]
        if "log_rank_z" in estimate:
            # The z of results of 0.2 is not that of this statistic, but it has its sign.
            z = math.copysign(math.sqrt(max(chi_square, 0.0)), float(estimate["log_rank_z"]))
            test.append(("z", f"{z:.3g}"))
        test += [("degrees of freedom", f"{degrees}"), ("p", f"{float(estimate['log_rank_p']):.3g}")]
        heading, cells = zip(*test, strict=True)
        yield Table("Log-rank test", heading, (cells,), 0)
        if "log_rank_pooled_z" in estimate:
            statistic = estimate["log_rank_pooled_z"]
            half = 1.96 * float(np.ravel(np.asarray(statistic.std))[0])
            values = f"{float(statistic):.3g}", f"± {half:.3g}"
            yield Table("Log-rank test of these data without privacy, estimate", ("z", "95 %"), (values,), 0)


def _heading(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Heading of the group column, if there are groups."""
    return (visible(groups[1].partition(" = ")[0]),) if len(groups) > 1 else ()


def _group(groups: tuple[str, ...], g: int) -> tuple[str, ...]:
    """Label of a group without the name of the grouping column."""
    return (visible(groups[g].partition(" = ")[2] or groups[g]),) if len(groups) > 1 else ()


def _named(groups: tuple[str, ...]) -> int:
    """Number of name columns."""
    return 2 if len(groups) > 1 else 1


def number(value: float) -> str:
    """Four significant digits; a dash if unknown."""
    return f"{value:.4g}" if np.isfinite(value) else "-"


def _spread(value: float, ends: Any) -> str:
    """A standard deviation, or its upper bound if the estimate is 0 because of noise."""
    # A variance is estimated as a difference of noisy moments and set to 0 if it comes out negative. Its upper bound is
    # what is known then.
    return number(value) if value != 0 or ends[1] == 0 else f"< {number(ends[1])}"


def interval(ends: Any) -> str:
    """An interval as text."""
    return f"{number(ends[0])} to {number(ends[1])}"


def percent(value: float) -> str:
    """A share in percent, without the sign; a dash if unknown."""
    return f"{100 * value:.1f}" if np.isfinite(value) else "-"


def _percents(ends: Any) -> str:
    """An interval of shares in percent."""
    return f"{percent(ends[0])} to {percent(ends[1])}"


def _with(value: float, ends: Any) -> str:
    """A value with its interval."""
    return f"{number(value)} ({number(ends[0])}, {number(ends[1])})"
