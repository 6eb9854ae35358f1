"""Private synthetic data over sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.data.imputation import ImputationModel
from zerosum.errors import BadParameter
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.estimators.validation import LIST, MAPPING, RANGES, Constraint, optional
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.schemes import Scheme
from zerosum.study.synthetic_table import INFERENCE_TWINS, Inference, Query, Records, SyntheticTable


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SyntheticData(TableEstimator):
    """Private synthetic records over sites, and a model that answers questions about tables, with error bars.

    One fit spends the budget; any number of records, tables and analyses of the released model are free. Every column
    has a public range (numbers) or public levels (categories). Values that are missing or not declared are a category
    of their own, and are missing in synthetic records.

    Parameters
    ----------
    ranges : dict of str to tuple, optional
        Public lowest and highest value of each column of numbers.
    levels : dict of str to sequence, optional
        Public categories of each other column.
    whole : sequence of str
        Columns of whole numbers.
    bins : int, optional
        Bins of each column of numbers; by default chosen from the noise.
    target : str, optional
        Column to be predicted from the others: its tables with pairs of columns are measured as well.
    totals : dict of str to sequence, optional
        Totals that are public already: for a column, the number of units in each of its levels or bins.
    impossible : sequence of dict
        Combinations of levels that no unit has, such as ``{"sex": "m", "pregnant": "yes"}``.
    densities : dict of str to "log" or points, optional
        For columns of numbers, the public density that sets their bins and values within a bin: ``"log"`` (of the
        logarithm, for heavy tails) or rising points ``(x, density)`` over the range; by default uniform.
    table_cells : int, optional
        Most cells of the tables of the third release; by default 6000, or 1024 for each pair of columns if that is
        fewer.
    %(privacy)s

    Attributes
    ----------
    shares_ : ndarray of shape (categories of all columns,)
        Released share of each category.
    noise_std_ : ndarray of shape (categories of all columns,)
        Standard deviation that privacy adds to each share.
    dependence_ : ndarray of shape (columns, columns)
        Total variation distance of each pair of columns from independence, in the model.
    pair_error_ : ndarray of shape (columns, columns)
        Expected total variation distance between the model's table of each pair and that of the data.
    measured_ : ndarray of shape (columns, columns)
        1 for the pairs whose table was released.
    model_ : SyntheticTable
        The released model.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> def site(units):
    ...     smokes = rng.random(units) < 0.4
    ...     return np.column_stack([smokes, rng.normal(50 + 15 * smokes, 10)])
    >>> found = SyntheticData(levels={"x0": [0, 1]}, ranges={"x1": (0, 100)}, random_state=0, data="synthetic")
    >>> found = found.fit([site(1000) for _ in range(3)])
    >>> bool(abs(found.answer({"x0": 1, "x1": (60, 100)}).value[0] - 0.28) < 0.05)
    True
    >>> {name: len(values) for name, values in found.sample(5, random_state=0).items()}
    {'x0': 5, 'x1': 5}
    """

    _algorithm: ClassVar[str] = "synthetic-data"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **TableEstimator._constraints,
        "ranges": optional(RANGES),
        "levels": optional(MAPPING),
        "whole": LIST,
        "totals": optional(MAPPING),
        "impossible": LIST,
        "densities": optional(MAPPING),
    }

    ranges: Mapping[str, tuple[float, float]] | None = None
    levels: Levels | None = None
    whole: Sequence[str] = ()
    bins: int | None = None
    target: str | None = None
    totals: Mapping[str, Sequence[float]] | None = None
    impossible: Sequence[Mapping[str, Any]] = ()
    densities: Mapping[str, Any] | None = None
    table_cells: int | None = None

    @property
    def _declared(self) -> tuple[str, ...]:
        return (*(self.ranges or {}), *(self.levels or {}))

    @property
    def _categories(self) -> Levels:
        return self.levels or {}

    @property
    def _allows_missing(self) -> bool:
        return True  # missing values have a category of their own

    def _tables(self, X: Any, sites: Any, scheme: Scheme) -> Tables:
        # Before the data are read, since the declaration selects the columns.
        if not self._declared:
            raise BadParameter("give ranges={column: (lowest, highest)}, levels={column: [...]}, or both")
        return super()._tables(X, sites, scheme)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        # Tuples, since a plan and its digest must not depend on the type of a sequence.
        return super()._parameters(tables) | {
            "ranges": {name: tuple(each) for name, each in (self.ranges or {}).items()},
            "levels": {name: tuple(each) for name, each in self._categories.items()},
            "whole": tuple(self.whole),
            "totals": {name: tuple(each) for name, each in (self.totals or {}).items()},
            "impossible": tuple(dict(each) for each in self.impossible),
            "densities": {
                name: each if isinstance(each, str) else tuple(tuple(point) for point in each)
                for name, each in (self.densities or {}).items()
            },
        }

    def _learn(self, estimate: Estimate) -> None:
        self.shares_: Floats = np.asarray(estimate["category_shares"])
        self.noise_std_: Floats = np.asarray(estimate["category_shares"].std)
        self.dependence_: Floats = np.asarray(estimate["dependence"])
        self.pair_error_: Floats = np.asarray(estimate["pair_error"])
        self.measured_: Floats = np.asarray(estimate["measured"])
        self.model_ = SyntheticTable.of(self.result_)

    def sample(self, n_samples: int | None = None, random_state: int | None = None) -> Records:
        """Synthetic records, at no privacy cost.

        Parameters
        ----------
        n_samples : int, optional
            Number of records; by default that of the units.
        random_state : int, optional
            The same number gives the same records.

        Returns
        -------
        dict of str to list
            A list for each column; None where a value is missing.
        """
        self._fitted()
        return self.model_.records(n_samples, random_state)

    def to_frame(
        self,
        n_samples: int | None = None,
        random_state: int | None = None,
        library: Literal["pandas", "polars"] | None = None,
    ) -> Any:
        """Synthetic records as a data frame.

        Parameters
        ----------
        n_samples, random_state
            As for `sample`.
        library : {"pandas", "polars"}, optional
            By default pandas if it is installed, else polars.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            One row for each record.
        """
        from zerosum.report.tidy import frame_of

        return frame_of(self.sample(n_samples, random_state), library)

    def imputation_model(self, columns: Sequence[str] | None = None) -> ImputationModel:
        """The public model by which the sites fill in missing values of a regression, by the rule "impute".

        Parameters
        ----------
        columns : sequence of str, optional
            The columns that the regression reads, its response included; by default all.

        Returns
        -------
        ImputationModel
            For `imputation` of `from_formula`.
        """
        self._fitted()
        return self.model_.imputation_model(columns)

    def marginal(self, columns: Sequence[str]) -> Quantity:
        """The table of one to four columns, with the standard deviation of its error in `std`.

        Parameters
        ----------
        columns : sequence of str
            Different columns.

        Returns
        -------
        Quantity
            Share of each combination of categories.
        """
        self._fitted()
        return self.model_.marginal(tuple(columns))

    def answer(self, query: Query) -> Quantity:
        """The share of units that fit a query, with the standard deviation of its error in `std`.

        Parameters
        ----------
        query : dict
            For each column a level, a collection of levels, or a pair (lowest, highest) of numbers, either of which may
            be infinite; None for a missing value.

        Returns
        -------
        Quantity
            One share.
        """
        self._fitted()
        return self.model_.answer(query)

    def inference(self, analysis: Callable[[Records], Any], twins: int = INFERENCE_TWINS, seed: int = 0) -> Inference:
        """An analysis of synthetic records and its spread over repetitions of the study; it gives no interval.

        What the model has lost of the data is not in the spread, which is a lower limit of the error.

        Parameters
        ----------
        analysis : callable
            From records (a dict of lists) to a number or an array, such as the coefficients of a regression.
        twins : int
            Repetitions of the study on synthetic records; each takes as long as the fit.
        seed : int
            For the records.

        Returns
        -------
        Inference
            Estimate and spread.
        """
        self._fitted()
        return self.model_.inference(analysis, twins, seed)
