"""Base class of estimators on tables with categories."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.data.frames import collected
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import JointEstimator, comma_advice
from zerosum.kernel.missing import refusal_by_rules
from zerosum.report.document import Table
from zerosum.report.tables import records_of, tables_of

Levels = Mapping[str, Sequence[Any]]


class TableEstimator(JointEstimator):
    """An estimator on tables whose columns hold numbers or public categories."""

    @property
    @abstractmethod
    def _declared(self) -> tuple[str, ...]:
        """The columns that the estimator reads, in order."""

    @property
    @abstractmethod
    def _categories(self) -> Levels:
        """Public categories of each of these columns that has them."""

    def __str__(self) -> str:
        """The tables of the result as text; the parameters before `fit`."""
        return "\n\n".join(map(str, self.sheets())) if hasattr(self, "result_") else repr(self)

    def sheets(self) -> list[Table]:
        """Tables of the result.

        Returns
        -------
        list of Table
            Each prints as a text of at most 80 characters per line.
        """
        self._fitted()
        return tables_of(self.result_.estimate)

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Tables of the result with all numbers, for a data frame or for JSON.

        Returns
        -------
        dict of str to list of dict
            The rows of each table, by its title.
        """
        self._fitted()
        return records_of(self.result_.estimate)

    def _fitted(self) -> None:
        if not hasattr(self, "result_"):
            raise BadParameter("this estimator has no result yet: call fit first")

    def _units(self, data: Any, *, first: bool) -> Units:
        if isinstance(data, Units):
            return super()._units(data, first=first)
        # Cells stay objects until their column's categories are known, since text does not convert to numbers.
        table, names = self._table(data)
        if first:
            self.feature_names_in_ = np.array(names, dtype=object)
            self.n_features_in_ = len(names)
        elif tuple(names) != tuple(self.feature_names_in_):
            raise BadData("its columns differ from those of the first site")
        return Units(np.column_stack([self._numbers(table[:, at], name) for at, name in enumerate(names)]))

    def _table(self, data: Any) -> tuple[NDArray[Any], list[str]]:
        """The rows as objects, and the names of their columns."""
        data = collected(data)
        if hasattr(data, "columns") and (hasattr(data, "to_numpy") or hasattr(data, "column_names")):
            names = getattr(data, "column_names", data.columns)  # the attribute of an Arrow table has another name
            # Only declared columns are read: a frame may have others, such as names of people.
            frame = {str(name): _objects(data[name]) for name in names if str(name) in self._declared}
            if lacking := [name for name in self._declared if name not in frame]:
                raise BadData(f"there is no column {lacking[0]!r}")
            return np.column_stack([frame[name] for name in self._declared]), list(self._declared)
        table = np.asarray(data, dtype=object)
        if table.ndim != 2 or table.shape[0] == 0:
            raise BadData("give a table with rows and columns for each site")
        return table, self._names(table.shape[1])

    def _names(self, columns: int) -> list[str]:
        """Names of the columns of an array."""
        return [f"x{at}" for at in range(columns)]

    def _numbers(self, values: NDArray[Any], name: str) -> Floats:
        """A column as numbers, its categories as positions in their list; NaN where a value is missing."""
        # Before the conversion, which fails for None and for `pandas.NA`.
        missing = np.array([_is_missing(value) for value in values.tolist()])
        if np.any(missing) and not self._allows_missing:
            raise BadData(refusal_by_rules([f"column {name!r}"], self._rule_words))
        if (known := self._categories.get(name)) is None:
            try:
                return np.where(missing, np.nan, np.where(missing, 0, values)).astype(np.float64)
            except (TypeError, ValueError):
                advice = comma_advice(value for value in values.tolist() if isinstance(value, str))
                raise BadData(f"some values of column {name!r} are not numbers{advice}") from None
        codes: dict[Any, float] = {level: float(code) for code, level in enumerate(known)}
        numbers = np.array(
            [np.nan if none else codes.get(value, -1.0) for value, none in zip(values.tolist(), missing, strict=True)]
        )
        # A misspelt level would count as missing, without a message.
        if np.any(numbers < 0):
            raise BadData(f"some values of column {name!r} are not among its declared levels")
        return numbers


def _objects(column: Any) -> NDArray[Any]:
    """A column of a frame as an array of objects. A chunked column of Arrow is converted by its own method."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else np.asarray(column, dtype=object)
    # Filled afterwards: `np.array` would make a table of cells that are lists.
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


def _is_missing(value: Any) -> bool:
    """Whether a value is missing; `pandas.NA` and `NaT` are recognised by type, because comparisons with them fail."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value == "" or value != value
