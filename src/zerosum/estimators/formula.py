"""Regressions from a formula and data frames: the design is made at each site by public rules."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.design import Design
from zerosum.data.imputation import Imputation, ImputationModel
from zerosum.data.tables import units_of
from zerosum.errors import BadData, BadParameter, ZerosumError, first_fault


@dataclass(frozen=True)
class FormulaData:
    """Design rows of all sites, in the form that `fit` of a regression takes."""

    X: dict[str, Any]  # rows of the terms by site, as units
    terms: tuple[str, ...]  # their names
    y: dict[str, Floats]  # numbers, or positions of levels
    offset: dict[str, Floats] | None
    weights: dict[str, Floats] | None


def make_design(formula: str, names: list[str], declared: Mapping[str, Any]) -> Design:
    """The design of a formula.

    Parameters
    ----------
    formula : str
        With its response, as "sick ~ age".
    names : list of str
        Names of the sites, for their effects.
    declared : mapping
        Further fields of `Design`.

    Raises
    ------
    BadParameter
        If the formula and the declarations do not fit.
    """
    if "~" not in formula:
        raise BadParameter(f"a formula needs its response, as in 'sick ~ age', got {formula!r}")
    try:
        return Design.model_validate({"formula": formula, **declared}).for_sites(names)
    except ValidationError as error:
        raise BadParameter(first_fault(error)) from None


def design_data(design: Design, sites: Mapping[str, Any], model: ImputationModel | None = None) -> FormulaData:
    """Design rows of the sites' frames.

    Parameters
    ----------
    design : Design
        The design.
    sites : mapping
        A frame for each site, with the columns that the design reads.
    model : ImputationModel, optional
        From which missing values with the rule "impute" are drawn.
    """
    names, imputation = design.columns, design.imputation(model)
    roles = [name for name in ("offset", "weight") if name in design.roles]
    features = len(names) - 1 - len(roles)
    units = {site: design_units(design, frame, site, imputation) for site, frame in sites.items()}
    by_site: dict[str, Floats] = {site: np.asarray(each.rows, dtype=np.float64) for site, each in units.items()}
    tables = {
        site: replace(each, rows=np.ascontiguousarray(by_site[site][:, :features])) for site, each in units.items()
    }
    role = {name: {site: rows[:, features + at] for site, rows in by_site.items()} for at, name in enumerate(roles)}
    weights = role.get("weight")
    if weights is not None:
        # The end of the range is weight 1.
        end = float(design.upper[features + roles.index("weight")])
        weights = {site: values / end for site, values in weights.items()}
    response = {site: rows[:, -1] for site, rows in by_site.items()}
    return FormulaData(tables, names[:features], response, role.get("offset"), weights)


def feature_table(design: Design, frame: Any, site: str) -> Any:
    """A table of the terms of one frame, for predictions.

    Parameters
    ----------
    design : Design
        The design.
    frame : frame
        The columns that the features read; the response and other columns may be missing.
    site : str
        Name of the site.
    """
    import pyarrow as pa

    units = units_of(
        frame, "the data", columns=design.sources, categories=_of(design.levels, design.sources), missing=()
    )
    own = np.asarray(units.rows, dtype=np.float64)
    # Columns that are not features get a public value, which enters none of the terms.
    others = [
        np.full(len(own), 0.0 if name in design.levels else sum(design.ranges[name]) / 2)
        for name in design.read[len(design.sources) :]
    ]
    rows = np.asarray(design.expand(Units(np.column_stack([own, *others])), site).rows)
    features = len(design.columns) - 1 - sum(name in design.roles for name in ("offset", "weight"))
    return pa.table({name: rows[:, at] for at, name in enumerate(design.columns[:features])})


def _of(levels: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The levels of some columns."""
    return {name: known for name, known in levels.items() if name in columns}


def design_units(design: Design, frame: Any, site: str, imputation: Imputation | None) -> Units:
    """The design rows of one frame, as units; errors name the site."""
    try:
        units = units_of(
            frame, "the data", columns=design.read, categories=_of(design.levels, design.read), missing=design.missing
        )
        units = design.expand(units, site, imputation=imputation)
    except ZerosumError as error:
        raise error.about(repr(site)) from error
    if len(units) == 0:
        raise BadData(f"{site!r}: the data have no rows")
    return units
