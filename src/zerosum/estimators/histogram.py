"""Private histogram over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, column_or_1d

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import JointEstimator, Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import Constraint, optional
from zerosum.kernel.missing import Missing


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Histogram(JointEstimator):
    """Private number of units of all sites in each public category or bin of one column.

    A unit with several rows counts in shares that add up to one.

    Parameters
    ----------
    categories : sequence of str, float or bool, optional
        Categories of the column, in the order of the counts. Another value in the data is refused.
    edges : array of shape (bins + 1,), optional
        Edges of the bins of a numeric column; give either `categories` or `edges`. Numbers outside count in the first
        or the last bin.
    missing : str, float or bool, optional
        Rule for missing values (NaN, None or an empty string): a category or number that replaces them, or "observed",
        which counts the observed rows only; the observed rows of a unit share its weight. By default missing values
        are refused.
    %(privacy)s

    Attributes
    ----------
    counts_ : ndarray of shape (bins,)
        Noisy counts. They are unbiased, so they can be negative.
    noise_std_ : float
        Standard deviation that privacy adds to each count.
    shares_ : ndarray of shape (bins,)
        The probabilities that are nearest to the counts.
    categories_ : ndarray of shape (bins,)
        The categories; only with `categories`.
    edges_ : ndarray of shape (bins + 1,)
        The edges of the bins; only with `edges`.
    n_features_in_ : int
        Always 1: a histogram has one column.
    %(record)s

    %(notes)s

    %(example)s

    >>> sites = {"north": ["A"] * 300 + ["B"] * 100, "east": ["B"] * 250 + ["0"] * 150}
    >>> found = Histogram(categories=["A", "B", "0"], random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(found.counts_ - [300, 350, 150]) < 5 * found.noise_std_)), found.shares_.round(1).tolist()
    (True, [0.4, 0.4, 0.2])
    """

    _algorithm: ClassVar[str] = "histogram"
    _dimensions: ClassVar[tuple[int, ...]] = (1, 2)
    _program_names: ClassVar[Mapping[str, str]] = {"categories": "values"}
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **JointEstimator._constraints,
        "categories": optional(
            Constraint("a list of at least one category", lambda value: np.ndim(value) == 1 and np.size(value) > 0)
        ),
    }

    categories: Sequence[str | float | bool] | None = None
    edges: ArrayLike | None = None
    missing: Missing = None

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        X : list or dict of columns or Units, or one column
            One column per site, of shape (rows,) or (rows, 1), by site name. The columns of a list are called "site 0",
            "site 1", and so on. `Units` hold numbers: for categories that are texts, their positions in the list. One
            column needs `sites`, except under the schemes "pooled" and "non-private", where one holder has all rows:
            its halves become "site 0" and "site 1".
        y : None
            Ignored.
        %(fit_sites)s

        %(fit_returns)s
        """
        # Checked before the data are read: without categories or edges the columns have no meaning.
        if (self.categories is None) == (self.edges is None):
            raise BadParameter("give either the categories of the column or the edges of its bins")
        return super().fit(X, y, sites=sites)

    def _units(self, data: Any, *, first: bool) -> Units:
        if isinstance(data, Units):
            if data.columns != 1:
                raise BadData(f"a histogram has one column, got {data.columns}")
            units = super()._units(data, first=first)
            # `Units` hold numbers. With categories in text they hold codes already; else values, which are coded here.
            if self.categories is None or any(isinstance(each, str) for each in self._declared):
                return units
            return replace(units, rows=self._codes(np.asarray(units.rows)[:, 0]))
        values = column_or_1d(data)
        self._take_columns(1, first=first)
        if self.categories is not None:
            return Units(self._codes(values))
        finite = "allow-nan" if self._allows_missing else True
        return Units(np.asarray(check_array(values[:, None], dtype=np.float64, ensure_all_finite=finite)))

    @property
    def _declared(self) -> list[Any]:
        """The categories as Python values; empty if there are edges."""
        categories = () if self.categories is None else self.categories
        return [each.item() if isinstance(each, np.generic) else each for each in categories]

    def _codes(self, values: NDArray[Any]) -> Floats:
        """Position of each value in the categories, as a column; NaN for a missing value."""
        known: dict[Any, float] = {category: code for code, category in enumerate(self._declared)}
        if self._allows_missing:
            # A category that is declared as "" keeps its place.
            known = dict.fromkeys([None, ""], np.nan) | known
        codes = np.array([known.get(_one(value), -1) for value in values.tolist()], dtype=np.float64)
        if np.any(codes < 0):
            raise BadData("some values are not among the declared categories")
        return codes[:, None]

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        declared = {} if self.categories is None else {"values": tuple(self._declared)}
        return super()._parameters(tables) | declared

    def _learn(self, estimate: Estimate) -> None:
        self.counts_: Floats = np.asarray(estimate["counts"])
        self.shares_: Floats = np.asarray(estimate["shares"])
        self.noise_std_ = float(estimate["noise_std"][0])
        if self.categories is None:
            self.edges_: Floats = np.array(self.edges, dtype=np.float64)
        else:
            self.categories_ = np.array(self._declared, dtype=object)


def _one(value: Any) -> Any:
    """The value, or None for NaN, which is not equal to itself and cannot be looked up."""
    return None if value != value else value
