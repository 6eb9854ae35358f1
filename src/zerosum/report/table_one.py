"""Table 1 of a paper: the groups as columns, from the estimate of a descriptive study.

Rows of a column of numbers: mean (SD), median [quartiles], and missing n (%) where values may be missing. Rows of a
column of categories: n (%) of each level. N of the groups and numbers of observed units are those of the estimate,
which are consistent over the table. The count of a level is its proportion times the number of observed units. The
column of all units is the sum of the groups, so that counts add up.

Standardised difference of two groups, with m the means and s the standard deviations (Austin 2009), and with the
vectors p of proportions of all levels but the first and their multinomial covariances S (Yang and Dalton 2012):

    |m_1 - m_2| / sqrt((s_1^2 + s_2^2)/2),        sqrt((p_1 - p_2)' [(S_1 + S_2)/2]^-1 (p_1 - p_2)).

With more than two groups the largest over all pairs is shown. It is computed from noisy numbers, so that its
expectation is above the true one where the noise is not small against the difference.

P values are those of the estimate, with the noise counted: Welch's test beside the mean, Kruskal-Wallis beside the
median, chi-squared beside a column of categories. A correction adjusts all of them together.

References: Austin 2009, Statistics in Medicine 28; Yang, Dalton 2012, SAS Global Forum 335.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerosum.arrays import Floats
from zerosum.errors import BadInput
from zerosum.kernel.missing import OBSERVED, rules_by_column
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.question import Question
from zerosum.kernel.significance import CORRECTIONS, GROUP_TESTS, Correction, adjusted
from zerosum.report.coefficients import p_text
from zerosum.report.number_format import format_number
from zerosum.report.paper import PaperTable, Row

Estimate = Mapping[str, Quantity]

_ALL = "all"
_DASH = "–"
_MINUS = "\N{MINUS SIGN}"
_SPACE = "\N{NO-BREAK SPACE}"
# Half width of an interval of a standard deviation, over the standard deviation, from which a note names it.
_UNCERTAIN_SD = 0.25


def table_one(
    estimate: Estimate, question: Question, units: float | None = None, correction: Correction = "none"
) -> PaperTable:
    """Table 1 of a descriptive study.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        Result of the algorithm "describe".
    question : Question
        Public question, for the column of groups, the levels, and the rules for missing values.
    units : float, optional
        Public number of units.
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment of the p values for the number of tests in the table.

    Raises
    ------
    BadInput
        If the result is not that of a descriptive study.
    """
    names = [name for name in ("mean", "proportion", "quantile") if name in estimate]
    if not ({"mean", "proportion"} & set(names)):
        raise BadInput("Table 1 needs the result of algorithm describe")
    groups = estimate[names[0]].axes[0].labels
    by = question.parameters.get("by")
    given: Any = question.parameters.get("missing")
    rules = rules_by_column(given, question.columns)
    sizes = _sizes(estimate, groups, units)
    heads = [_head(group, size) for group, size in zip(groups, sizes, strict=True)]
    several = len(groups) > 2
    differ: tuple[str, ...] = ("largest SMD" if len(groups) > 3 else "SMD",) if several else ()
    tests = _tests(estimate, correction)
    if tests:
        differ += ("p" if correction == "none" else "adjusted p",)
    rows: list[Row] = []
    numbers = estimate["mean"].axes[1].labels if "mean" in estimate else ()
    levels: Any = question.parameters.get("levels")
    categories = (
        [name for name in levels if name != by] if isinstance(levels, dict) and "proportion" in estimate else []
    )
    # The order of the columns is that of the question, where it lists them all.
    order = [*question.columns, *numbers, *categories]
    for name in dict.fromkeys(order):
        may_miss = rules.get(name) == OBSERVED
        if name in numbers:
            rows += _number_rows(estimate, name, sizes, may_miss, several, tests)
        elif name in categories:
            rows += _category_rows(estimate, name, list(levels[name]), sizes, may_miss, several, tests)
    title = f"Characteristics of the units{f' by {by}' if several else ''}"
    return PaperTable(
        "table1", title, ("Characteristic", *heads, *differ), tuple(rows), _notes(estimate, several, tests, correction)
    )


def _tests(estimate: Estimate, correction: Correction) -> dict[str, str]:
    """Texts of the p values by "COLUMN: TEST"; empty without groups, and for results of earlier versions."""
    if "group_p_value" not in estimate:
        return {}
    tests = estimate["group_p_value"]
    values = adjusted(tests.value, correction) if correction != "none" else tests.value
    return {label: p_text(float(p)) for label, p in zip(tests.axes[0].labels, values, strict=True)}


def _sizes(estimate: Estimate, groups: Sequence[str], units: float | None) -> list[float | None]:
    """Number of units of each group, as integers that add up; None where it is not known."""
    if "units" in estimate:
        counts = estimate["units"].value
        whole = _rounded(counts[1:], round(float(counts[0])))
        return [float(np.sum(whole)), *whole.tolist()]
    if units is not None and len(groups) == 1:
        return [float(units)]
    # Without sizes of groups: the largest number of observed units of a column.
    most = [np.max(estimate[name].value, axis=1) for name in ("observed", "proportion_observed") if name in estimate]
    return [None] * len(groups) if not most else [float(round(each)) for each in np.max(most, axis=0)]


def _head(group: str, size: float | None) -> str:
    """Heading of a group's column."""
    label = "All" if group == _ALL else group
    # No-break spaces, so that a narrow column breaks before the bracket only.
    return label.replace(" ", _SPACE) + ("" if size is None else f" (N{_SPACE}={_SPACE}{size:.0f})")


def _number_rows(
    estimate: Estimate,
    name: str,
    sizes: Sequence[float | None],
    may_miss: bool,
    several: bool,
    tests: Mapping[str, str],
) -> list[Row]:
    """Rows of a column of numbers.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    name : str
        The column.
    sizes : sequence of float or None
        Number of units of each group, "all" first.
    may_miss : bool
        Whether the column has a row for missing values.
    several : bool
        Whether there are groups to compare.
    tests : mapping of str to str
        Texts of the p values (`_tests`).
    """
    at = estimate["mean"].axes[1].labels.index(name)
    mean, sd = estimate["mean"].value[:, at], estimate["sd"].value[:, at]
    highest = estimate["sd_interval"].value[:, at, 1]
    places = _places(sd, highest)
    cells = [
        f"{_fixed(m, places)} ({_fixed(s, places) if s > 0 else f'< {_fixed(top, places)}'})"
        for m, s, top in zip(mean, sd, highest, strict=True)
    ]
    differ = (
        (_smd_text([_number_smd(mean[a], mean[b], sd[a], sd[b]) for a, b in _pairs(len(mean))]),) if several else ()
    )
    blank = ("",) * len(differ)
    rows = [Row((f"{name}, mean (SD)", *cells, *differ, *_test_cell(tests, name, "means")))]
    if "quantile" in estimate and name in estimate["quantile"].axes[1].labels:
        quantile = estimate["quantile"]
        j, shown = quantile.axes[1].labels.index(name), _quartiles(quantile.axes[2].labels)
        if shown is not None:
            low, middle, high = (quantile.value[:, j, each] for each in shown)
            parts = [
                f"{_fixed(m, places)} [{_fixed(a, places)}, {_fixed(b, places)}]"
                for a, m, b in zip(low, middle, high, strict=True)
            ]
            labels = quantile.axes[2].labels
            between = (
                "IQR"
                if (labels[shown[0]], labels[shown[2]]) == ("25 %", "75 %")
                else (f"{labels[shown[0]]} to {labels[shown[2]]}")
            )
            rows.append(Row((f"{name}, median [{between}]", *parts, *blank, *_test_cell(tests, name, "quantiles"))))
    if may_miss and "observed" in estimate:
        rows.append(_missing_row(name, estimate["observed"].value[:, at], sizes, (*blank, *_no_test(tests))))
    return rows


def _test_cell(tests: Mapping[str, str], name: str, part: str) -> tuple[str, ...]:
    """The cell of a p value; none in a table without tests."""
    return (tests.get(f"{name}: {GROUP_TESTS[part]}", ""),) if tests else ()


def _no_test(tests: Mapping[str, str]) -> tuple[str, ...]:
    """An empty cell in the column of p values; none in a table without tests."""
    return ("",) if tests else ()


def _category_rows(
    estimate: Estimate,
    name: str,
    levels: list[object],
    sizes: Sequence[float | None],
    may_miss: bool,
    several: bool,
    tests: Mapping[str, str],
) -> list[Row]:
    """Rows of a column of categories: a heading, then n (%) of each level.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    name : str
        The column.
    levels : list
        Its public levels, in order.
    sizes, may_miss, several, tests
        As for `_number_rows`.
    """
    labels = estimate["proportion"].axes[1].labels
    own = [at for at, label in enumerate(labels) if label.startswith(f"{name} = ")][: len(levels)]
    share = estimate["proportion"].value[:, own]
    observed = estimate["proportion_observed"].value[:, own[0]]
    # Noise may leave proportions that do not add up to 1.
    share = share / np.maximum(np.sum(share, axis=1, keepdims=True), 1e-12)
    first = 0 if len(share) == 1 else 1
    whole = np.stack(
        [
            # A complete column has the rounded size of its group, so that its counts add up to the N of the heading.
            _rounded(share[g] * observed[g], round(observed[g]) if may_miss or sizes[g] is None else int(sizes[g] or 0))
            for g in range(first, len(share))
        ]
    )
    counts = whole if first == 0 else np.vstack([np.sum(whole, axis=0), whole])
    totals = np.maximum(np.sum(counts, axis=1), 1.0)
    differ = (_smd_text([_category_smd(share[a], share[b]) for a, b in _pairs(len(share))]),) if several else ()
    blank = (*("",) * len(differ), *_no_test(tests))
    own_test = _test_cell(tests, name, "proportions")
    rows = [Row((f"{name}, n (%)", *("",) * len(counts), *differ, *own_test), heading=True)]
    rows += [
        Row(
            (
                labels[at].partition(" = ")[2],
                *(_count_text(counts[g, k], totals[g]) for g in range(len(counts))),
                *blank,
            ),
            1,
        )
        for k, at in enumerate(own)
    ]
    if may_miss:
        rows.append(_missing_row(name, observed, sizes, blank, indent=1))
    return rows


def _missing_row(
    name: str, observed: Floats, sizes: Sequence[float | None], blank: tuple[str, ...], indent: int = 0
) -> Row:
    """Number and share of the missing values of a column."""
    parts = [
        None if size is None else max(round(size - present), 0) for present, size in zip(observed, sizes, strict=True)
    ]
    # The column of all units is the sum of the groups; it is computed from rounded counts.
    if len(parts) > 1 and all(part is not None for part in parts[1:]) and sizes[0] is not None:
        parts[0] = sum(part or 0 for part in parts[1:])
    cells = [
        _DASH if part is None or not size else _count_text(part, size) for part, size in zip(parts, sizes, strict=True)
    ]
    label = "missing" if indent else f"{name}, missing, n (%)"
    return Row((label, *cells, *blank), indent)


def _rounded(values: Floats, total: int) -> Floats:
    """Whole numbers nearest to the values with a given sum, by the largest remainders.

    >>> _rounded(np.array([1.4, 2.4, 3.2]), 7).tolist()
    [2.0, 2.0, 3.0]
    """
    values = np.maximum(np.asarray(values, dtype=np.float64), 0.0)
    if np.sum(values) > 0:
        # In proportion first: the remainders alone could not make up for a large difference of the sums.
        values = values * (total / np.sum(values))
    low = np.floor(values)
    # Hamilton's method: units that are left go to the largest remainders.
    order = np.argsort(-(values - low), kind="stable")
    low[order[: max(total - int(np.sum(low)), 0)]] += 1
    return np.asarray(low)


def _count_text(count: float, total: float) -> str:
    """A count with its percentage."""
    return f"{count:.0f} ({100 * count / total:.1f})"


def _places(sd: Floats, highest: Floats) -> int:
    """Decimals of a column of numbers: two significant digits of its smallest standard deviation, at most 3."""
    known = [each for each in (*sd, *highest) if np.isfinite(each) and each > 0]
    return 1 if not known else int(min(max(1 - math.floor(math.log10(min(known))), 0), 3))


def _fixed(value: float, places: int) -> str:
    """A number with fixed decimals; a dash if unknown. Minus zero is zero."""
    return _DASH if not math.isfinite(value) else f"{round(float(value), places) + 0.0:.{places}f}".replace("-", _MINUS)


def _quartiles(labels: Sequence[str]) -> tuple[int, int, int] | None:
    """Positions of the lowest quantile, the median and the highest quantile; None without a median between others."""
    if "50 %" not in labels or len(labels) < 3:
        return None
    middle = list(labels).index("50 %")
    if {"25 %", "75 %"} <= set(labels):
        return list(labels).index("25 %"), middle, list(labels).index("75 %")
    return (0, middle, len(labels) - 1) if 0 < middle < len(labels) - 1 else None


def _pairs(rows: int) -> list[tuple[int, int]]:
    """Pairs of groups; row 0 is for all units."""
    return list(itertools.combinations(range(1, rows), 2))


def _number_smd(one: float, other: float, sd: float, other_sd: float) -> float:
    """Standardised difference of two means; NaN without a standard deviation above its noise."""
    # A standard deviation below its noise is released as 0, and would make the difference infinite.
    pooled = math.sqrt((sd**2 + other_sd**2) / 2)
    return abs(one - other) / pooled if min(sd, other_sd) > 0 else math.nan


def _category_smd(one: Floats, other: Floats) -> float:
    """Standardised difference of two vectors of proportions; NaN if both have one level only."""
    # Proportions add up to 1: without the first level the covariance is regular.
    p, q = one[1:], other[1:]
    # Multinomial covariance diag(p) - p p'; the pseudo-inverse, since a level may be empty in both groups.
    spread = (np.diag(p) - np.outer(p, p) + np.diag(q) - np.outer(q, q)) / 2
    if not np.any(np.abs(spread) > 1e-12):
        return math.nan
    return math.sqrt(max(float((p - q) @ np.linalg.pinv(spread) @ (p - q)), 0.0))


def _smd_text(values: Sequence[float]) -> str:
    """The largest standardised difference; a dash if none is known."""
    known = [value for value in values if math.isfinite(value)]
    return f"{max(known):.2f}" if known else _DASH


def _notes(estimate: Estimate, several: bool, tests: Mapping[str, str], correction: Correction) -> tuple[str, ...]:
    """Notes on the noise of the table, which has no intervals, and on its tests.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    several : bool
        Whether there are groups to compare.
    tests : mapping of str to str
        Texts of the p values (`_tests`).
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment of the p values.
    """
    notes = ["All numbers contain the noise of differential privacy."]
    if "units" in estimate and float(np.max(np.asarray(estimate["units"].std))) > 0:
        half = float(np.max(estimate["units"].half_width[1:]))
        notes.append(f"The N of a group is known to ±{half:.0f} (95 %).")
    if "mean" in estimate and estimate["mean"].std is not None:
        mean, half_widths = estimate["mean"], estimate["mean"].half_width
        parts = [
            f"{name} ±{format_number(float(np.max(half_widths[:, at])), 2)}"
            for at, name in enumerate(mean.axes[1].labels)
        ]
        notes.append(f"Means are known to (95 %, the group with the most noise): {', '.join(parts)}.")
    if "proportion" in estimate and estimate["proportion"].std is not None:
        half = 100 * estimate["proportion"].reach * float(np.max(np.asarray(estimate["proportion"].std)))
        notes.append(f"Proportions are known to ±{format_number(half, 2)} percentage points or better.")
    if several:
        notes.append("SMD: standardised mean difference, from the noisy numbers.")
    if tests:
        beside = {"means": "means", "quantiles": "medians", "proportions": "categories"}
        used = [part for part in beside if any(label.endswith(f": {GROUP_TESTS[part]}") for label in tests)]
        named = ", ".join(f"{GROUP_TESTS[part]} ({beside[part]})" for part in used)
        after = "" if correction == "none" else f"; adjusted for {len(tests)} tests by {CORRECTIONS[correction]}"
        notes.append(f"p: tests that all groups are alike, with the noise counted: {named}{after}.")
    if "sd" in estimate:
        ends, sd = estimate["sd_interval"].value, estimate["sd"].value
        if np.any((ends[..., 1] - ends[..., 0]) / 2 > _UNCERTAIN_SD * np.maximum(sd, 1e-300)):
            notes.append(
                "Standard deviations are less certain than means; the table sd of the export has their intervals."
            )
    if "sd" in estimate and np.any(estimate["sd"].value == 0):
        notes.append("A standard deviation below its noise is shown by its upper limit.")
    return tuple(notes)
