"""Table of regression coefficients: estimates, intervals for pooled data and population, identifiability.

Two kinds of error are kept apart. The pooled error answers how far the estimate is from the fit on all sites' data
together; only the privacy noise causes it. The population error answers how far it is from the coefficients of the
population that the people are a sample of; it contains the sampling error as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from zerosum.errors import BadInput
from zerosum.kernel.quantity import Quantity
from zerosum.report.document import Table

Interval = tuple[float, float]
# Why a coefficient is not identified, by the number in `unidentified_reason` of an estimate.
_REASONS = (
    "",
    "the privacy noise is too large",
    "nearly collinear with other columns",
    "too few events for the number of columns",
)


@dataclass(frozen=True)
class Coefficient:
    """One coefficient.

    The pooled errors refer to the fit on the pooled data and contain the privacy noise only. The population errors
    refer to the population and contain sampling error and privacy noise.
    """

    name: str
    estimate: float
    pooled_std: float
    pooled_90: Interval
    pooled_95: Interval
    population_std: float
    population_90: Interval
    population_95: Interval
    identified: bool
    unit: str = ""  # unit of measurement, if declared: "per year", "mmHg per year"
    reason: str = ""  # why it is not identified, where the program says so

    @property
    def label(self) -> str:
        """The name with the unit of measurement."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def remark(self) -> str:
        """Whether it is identified, and why not."""
        if self.identified:
            return ""
        return "not identified at this budget" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class CoefficientTable:
    """All coefficients in order, the intercept last.

    `str(table)` is a text table; `as_record()` has every number.
    """

    rows: tuple[Coefficient, ...]

    @classmethod
    def of(cls, estimate: Mapping[str, Quantity]) -> CoefficientTable:
        """Table of the result of a linear, logistic, Poisson or Cox regression. Raises `BadInput` for other results."""
        if "pooled_std" not in estimate:
            raise BadInput("this result has no standard errors of coefficients")
        # The intercept is last, as on the axis of the errors.
        # A Cox regression has none.
        values = estimate["coefficients"].tolist()
        values += estimate["intercept"].tolist() if "intercept" in estimate else []
        reasons = estimate["unidentified_reason"].value if "unidentified_reason" in estimate else np.zeros(len(values))
        axis = estimate["pooled_std"].axes[0]
        units = axis.units or ("",) * len(axis.labels)
        rows = []
        for at, (name, unit, value) in enumerate(zip(axis.labels, units, values, strict=True)):
            spread = {
                f"{kind}_{level}": (float(low), float(high))
                for kind in ("pooled", "population")
                for level in ("90", "95")
                # `for ... in [value]` names the pair within the comprehension.
                for low, high in [estimate[f"{kind}_interval_{level}"][at]]
            }
            rows.append(
                Coefficient(
                    name,
                    value,
                    pooled_std=float(estimate["pooled_std"][at]),
                    population_std=float(estimate["population_std"][at]),
                    identified=bool(estimate["identified"][at]),
                    unit=unit,
                    reason=_REASONS[int(reasons[at])],
                    **spread,
                )
            )
        return cls(tuple(rows))

    def as_record(self) -> list[dict[str, Any]]:
        """JSON-compatible form."""
        return [asdict(row) for row in self.rows]

    def lines(self) -> list[tuple[str, str, str, str, str]]:
        """Rows of text: name, estimate, 95 % interval for the pooled data, for the population, and a remark."""
        return [
            (
                row.label,
                f"{row.estimate:.4g}",
                _interval_text(row.pooled_95),
                _interval_text(row.population_95),
                row.remark,
            )
            for row in self.rows
        ]

    def as_table(self) -> Table:
        """Table of text. The column of remarks is left out if there are none."""
        lines = self.lines()
        count = 5 if any(line[4] for line in lines) else 4
        heading = ("coefficient", "estimate", "95 % pooled data", "95 % population", "remark")
        return Table("Coefficients", heading[:count], tuple(line[:count] for line in lines))

    def as_hazard_ratios(self) -> Table:
        """Table of coefficients of a Cox regression with hazard ratios: exponentials of estimates and ends."""
        lines = []
        for row, line in zip(self.rows, self.lines(), strict=True):
            ratio = _interval_text((_ratio(row.pooled_95[0]), _ratio(row.pooled_95[1])))
            wider = _interval_text((_ratio(row.population_95[0]), _ratio(row.population_95[1])))
            lines.append((*line[:2], f"{_ratio(row.estimate):.4g}", ratio, wider, line[4]))
        count = 6 if any(line[5] for line in lines) else 5
        heading = ("covariate", "coefficient", "hazard ratio", "95 % pooled data", "95 % population", "remark")
        return Table("Hazard ratios in numbers", heading[:count], tuple(line[:count] for line in lines))

    def __str__(self) -> str:
        """The table as text, without title."""
        return str(replace(self.as_table(), title=""))


def _ratio(logarithm: float) -> float:
    """exp, without overflow."""
    return math.exp(min(max(logarithm, -700.0), 700.0))


def _interval_text(interval: Interval) -> str:
    """An interval as text."""
    return f"{interval[0]:.4g} to {interval[1]:.4g}"
