"""Tidy tables of a result: one row for each estimate and kind of interval, with the column names of R's broom.

Columns: the labels of the place (`term`, or `group`, `column`, `level`, `time`), `estimate`, `std_error`, `conf_low`,
`conf_high`, `conf_level`, and `kind`:

- "pooled": the interval is for the same analysis of the pooled data; the error is the privacy noise;
- "population": the interval is for the population that the data are a sample of; sampling error and privacy noise;
- empty: the error is unknown.

Tables of regressions also have `identified`, `unit`, where the result has tests `p_value`, and `p_adjusted` with a
correction. As in broom, the `std_error` of a ratio is that of its logarithm. A quantity q has its intervals in
`q_interval` and `q_population_interval`; without them the pooled interval is normal with the known noise.
"""

from __future__ import annotations

import csv
import importlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from zerosum.errors import BadInput, BadParameter
from zerosum.kernel.quantity import Quantity
from zerosum.report.coefficients import CoefficientTable, JointTest
from zerosum.report.mixed import MixedTable

Cell = str | float | bool | None
Estimate = Mapping[str, Quantity]

_LEVEL = 0.95
_ERRORS = ("estimate", "std_error", "conf_low", "conf_high", "conf_level", "kind")
# Endings of quantities that hold the errors of another quantity.
_POOLED, _POPULATION = "_interval", "_population_interval"
_OF_ANOTHER = ("_interval", "_interval_90", "_interval_95", "_population_std")
# Quantities whose intervals have another beginning of their name.
_STEMS = {"baseline_survival": "baseline"}
# Quantities of regressions that the table of coefficients holds.
_OF_COEFFICIENTS = frozenset(
    {"coefficients", "intercept", "pooled_std", "population_std", "identified", "unidentified_reason", "p_value"}
)


@dataclass(frozen=True)
class TidyTable:
    """One tidy table.

    Attributes
    ----------
    name : str
        Name for `--table`.
    columns : tuple of str
        Names of the columns.
    rows : tuple of tuple
        Cells; None where a number is unknown.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def records(self) -> list[dict[str, Cell]]:
        """The rows as dictionaries, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_csv(self) -> str:
        """CSV text with a heading. Numbers have all digits; unknown ones are empty, which R and pandas read as NA."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            # R and pandas read TRUE and FALSE as truth values.
            writer.writerow([str(cell).upper() if isinstance(cell, bool) else cell for cell in row])
        return buffer.getvalue()

    def to_frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """The table as a data frame.

        Parameters
        ----------
        library : {"pandas", "polars"}, optional
            By default pandas if it is installed, else polars.

        Raises
        ------
        BadInput
            If the library is not installed.
        """
        columns = {name: [row[at] for row in self.rows] for at, name in enumerate(self.columns)}
        # A column of None alone is a column of missing numbers and not of objects.
        numbers = {"estimate", "std_error", "conf_low", "conf_high", "conf_level", "p_value", "p_adjusted"}
        return frame_of(
            {
                key: [math.nan if cell is None else cell for cell in cells] if key in numbers else cells
                for key, cells in columns.items()
            },
            library,
        )


def frame_of(columns: Mapping[str, Sequence[Any]], library: Literal["pandas", "polars"] | None) -> Any:
    """Columns as a data frame.

    Parameters
    ----------
    columns : mapping of str to sequence
        Cells by the name of the column.
    library : {"pandas", "polars"} or None
        None: pandas if it is installed, else polars.

    Raises
    ------
    BadInput
        If the library is not installed.
    """
    for name in (library,) if library else ("pandas", "polars"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        return module.DataFrame(dict(columns))
    wanted = library or "pandas or polars"
    raise BadInput(f"a data frame needs {wanted}: pip install '{library or 'zerosum[frames]'}'")


def chosen_table(tables: Mapping[str, Any], name: str) -> Any:
    """A table by name; the first one for the empty name.

    Parameters
    ----------
    tables : mapping of str to table
        Tables by name.
    name : str
        The name.

    Raises
    ------
    BadParameter
        If there is no such table.
    """
    if not tables:
        raise BadInput("this result has no tables")
    if name and name not in tables:
        raise BadParameter(f"there is no table {name!r}; tables: {', '.join(tables)}")
    return tables[name or next(iter(tables))]


def tidy_tables(estimate: Estimate, algorithm: str = "") -> dict[str, TidyTable]:
    """All tidy tables of a result by name.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    algorithm : str
        Name of the algorithm, which decides whether coefficients of a regression have ratios.
    """
    tables: dict[str, TidyTable] = {}
    covered: frozenset[str] = frozenset()
    if "pooled_std" in estimate:
        table = CoefficientTable.of(estimate, algorithm)
        covered = _OF_COEFFICIENTS
        for each in (
            table,
            *([table.ratios()] if table.ratio else []),
            *([table.standardised()] if table.feature_std else []),
        ):
            tidy = of_coefficients(each)
            tables[tidy.name] = tidy
    for name, quantity in estimate.items():
        # Errors are columns of the table of their estimate.
        if name in covered or any(name.endswith(ending) for ending in _OF_ANOTHER) or name == "noise_std":
            continue
        tables[name] = _of_quantity(name, quantity, estimate)
    return tables


def of_coefficients(table: CoefficientTable) -> TidyTable:
    """Tidy table of coefficients or of a table derived from them, with both kinds of intervals of 95 %.

    Parameters
    ----------
    table : CoefficientTable
        The table.
    """
    rows = [
        (
            row.name,
            row.estimate,
            _finite(getattr(row, f"{kind}_std")),
            *(_finite(end) for end in getattr(row, f"{kind}_95")),
            _LEVEL,
            kind,
            row.identified,
            row.unit,
            # The test is about the population.
            *((row.p_value, row.p_adjusted) if kind == "population" else (None, None))[: len(table.test_headings)],
        )
        for kind in ("population", "pooled")
        for row in table.rows
    ]
    rows = [(row[0], _finite(row[1]), *row[2:]) for row in rows]
    columns = ("term", *_ERRORS, "identified", "unit", *("p_value", "p_adjusted")[: len(table.test_headings)])
    return TidyTable(table.title.lower().replace(" ", "_"), columns, tuple(rows))


def of_joint_tests(tests: Sequence[JointTest]) -> TidyTable:
    """Tidy table of joint tests.

    Parameters
    ----------
    tests : sequence of JointTest
        The tests.
    """
    columns = ("term", "statistic", "df", "p_value", "p_adjusted", "identified")
    rows = tuple(
        (each.name, each.statistic, float(each.degrees_of_freedom), each.p_value, each.p_adjusted, each.identified)
        for each in tests
    )
    return TidyTable("joint_tests", columns, rows)


def of_mixed(mixed: MixedTable) -> TidyTable:
    """Tidy table of a random intercept: the standard deviation between sites, and the intercept of each site.

    Parameters
    ----------
    mixed : MixedTable
        The mixed model.
    """
    columns = ("effect", "group", "term", "estimate", "std_error", "conf_low", "conf_high")
    # As in broom.mixed: the parameter of the random effect, then its values.
    first = ("ran_pars", "site", "sd__(Intercept)", mixed.between, None, *(_finite(end) for end in mixed.interval))
    rows = [("ran_vals", name, "(Intercept)", value, std, None, None) for name, (value, std) in mixed.sites.items()]
    return TidyTable("site_intercepts", columns, (first, *rows))


def _of_quantity(name: str, quantity: Quantity, estimate: Estimate) -> TidyTable:
    """Tidy table of one quantity."""
    names = _axis_names(quantity)
    units = bool(quantity.axes) and any(axis.units for axis in quantity.axes)
    rows: list[tuple[Cell, ...]] = []
    for kind, std, ends in _errors(name, quantity, estimate):
        for at in _places(quantity):
            labels = (
                [axis.labels[place] for axis, place in zip(quantity.axes, at, strict=True)]
                if quantity.axes
                else [str(place + 1) for place in at]
            )
            unit = " ".join(axis.units[p] for axis, p in zip(quantity.axes, at, strict=False) if axis.units)
            low, high = (None, None) if ends is None else (_finite(each) for each in ends[at])
            error = None if std is None else _finite(std[at])
            known = None if low is None and high is None else _LEVEL
            rows.append(
                (*labels, _finite(quantity.value[at]), error, low, high, known, kind, *([unit] if units else []))
            )
    return TidyTable(name, (*names, *_ERRORS, *(["unit"] if units else [])), tuple(rows))


def _errors(name: str, quantity: Quantity, estimate: Estimate) -> Iterator[tuple[str, Any, Any]]:
    """Kind, standard errors and intervals of a quantity: for each kind that the result has; else one without errors.

    Parameters
    ----------
    name : str
        Name of the quantity.
    quantity : Quantity
        The estimate, with the standard deviation that privacy adds.
    estimate : mapping of str to Quantity
        The whole result, in which intervals are quantities of their own.

    Yields
    ------
    kind : {"population", "pooled", ""}
    std : array or None
        Standard errors, as the quantity.
    ends : array of shape (..., 2) or None
        Ends of intervals of 95 %.
    """
    kinds, stem = False, _STEMS.get(name, name)
    # The effect of a hypothesis test has an interval for the population only, under the shorter name.
    endings = (("population", _POOLED),) if name == "effect" else (("population", _POPULATION), ("pooled", _POOLED))
    for kind, ending in endings:
        std = estimate.get(f"{name}_population_std") if kind == "population" else quantity.std
        stored = estimate.get(f"{stem}{ending}", estimate.get(f"{stem}{ending}_95"))
        # A quantity may have intervals of another shape under this name: these are no ends of its entries.
        ends = None if stored is None or stored.value.shape != (*quantity.shape, 2) else stored.value
        if ends is None and kind == "pooled" and std is not None:
            # The standard deviation of a release and its noise law are known (`Quantity.reach`).
            ends = np.stack([quantity.value - quantity.half_width, quantity.value + quantity.half_width], axis=-1)
        if ends is not None:
            kinds = True
            yield kind, None if std is None else np.asarray(std), np.asarray(ends)
    if not kinds:
        yield "", None, None


def _places(quantity: Quantity) -> Iterator[tuple[int, ...]]:
    """Positions of a quantity; of a symmetric matrix those on and above the diagonal."""
    symmetric = _is_symmetric(quantity)
    for at in np.ndindex(quantity.shape):
        if not symmetric or at[0] <= at[1]:
            yield at


def _is_symmetric(quantity: Quantity) -> bool:
    """Whether a quantity is a symmetric matrix with equal labels on both axes."""
    if len(quantity.axes) != 2 or quantity.axes[0] != quantity.axes[1]:
        return False
    return bool(np.array_equal(quantity.value, quantity.value.T, equal_nan=True))


def _axis_names(quantity: Quantity) -> tuple[str, ...]:
    """Columns of the labels: `term` for one axis, else the names of the axes, numbered if they repeat."""
    if quantity.value.ndim == 0:
        return ()
    if not quantity.axes:
        return ("term",) if quantity.value.ndim == 1 else tuple(f"axis_{at + 1}" for at in range(quantity.value.ndim))
    if len(quantity.axes) == 1:
        return ("term",)
    names = [axis.name.replace(" ", "_") for axis in quantity.axes]
    return tuple(
        name if names.index(name) == at else f"{name}_{names[: at + 1].count(name)}" for at, name in enumerate(names)
    )


def _finite(value: Any) -> float | None:
    """A finite number, or None."""
    number = float(value)
    return number if math.isfinite(number) else None
