"""Private counts over sites.

Tested in tests/estimators/test_table_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, column_or_1d

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import DataMark, JointEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class Histogram(JointEstimator):
    """How many units of all sites fall into each public category or bin of one column.

    A unit with several rows counts in shares that add up to one.

    Parameters
    ----------
    categories : sequence of str, float or bool, optional
        What the column may say, in the order in which counts are wanted. A value that is not among them is refused.
    edges : array of shape (bins + 1,), optional
        Instead, where the bins of a number begin and the last one ends. Numbers outside count in the first or last.
    missing : str, float or bool, optional
        What is done where a value is missing (NaN, None or an empty string): a category or a number to count instead,
        or "observed": only what is there counts, and rows of the same unit share its weight. By default missing
        values are refused.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the rows of a unit, or a single row. It must be said where sites are plain
        tables, whose rows could be either; `Units` that say whose each row is hold persons. A seeded run protects
        nobody, and takes plain rows for records.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. It is refused unless `data` says that they are nobody's, or
        sites' own policies do.
    data : {"private", "public", "synthetic"}, default="private"
        Whose the data are. Public and synthetic data are nobody's: sites without a policy of their own then take part
        in any study, and their ledgers are thrown away after the run.
    budget : Budget, optional
        A `zerosum.Budget` that several fits share, which refuses what goes beyond it.

    Attributes
    ----------
    counts_ : ndarray of shape (bins,)
        Unbiased, so they may be negative.
    shares_ : ndarray of shape (bins,)
        The nearest probabilities.
    noise_std_ : float
        The standard deviation that privacy's noise gives each count.
    categories_ : ndarray of shape (bins,)
        What is counted, where categories were given.
    edges_ : ndarray of shape (bins + 1,)
        The bins' edges, where edges were given.
    n_features_in_ : int
        One: a histogram is of one column.
    privacy_ : PrivacyReport
        Whom the fit protects, against whom, and how well.
    result_ : Result
        The study's whole record.
    notes_ : tuple of str
        What else a reader has to know about the run.

    Notes
    -----
    Fitting again is spending again: each `fit` is a study of its own, with fresh noise, charged to every site's ledger.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> sites = {"north": ["A"] * 300 + ["B"] * 100, "east": ["B"] * 250 + ["0"] * 150}
    >>> found = Histogram(categories=["A", "B", "0"], random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(found.counts_ - [300, 350, 150]) < 5 * found.noise_std_)), found.shares_.round(1).tolist()
    (True, [0.4, 0.4, 0.2])
    """

    _algorithm: ClassVar[str] = "histogram"
    _dimensions: ClassVar[tuple[int, ...]] = (1, 2)

    def __init__(
        self,
        *,
        categories: Sequence[str | float | bool] | None = None,
        edges: ArrayLike | None = None,
        missing: Missing = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        scheme: str | Scheme = DEFAULT_SCHEME,
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Unit | None = None,
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
        data: DataMark = "private",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.categories = categories
        self.edges = edges
        self.missing = missing

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites, and spend what it costs at each of them.

        Parameters
        ----------
        X : list or dict of columns or Units, or one column
            One column per site, of shape (rows,) or (rows, 1), called "site 0", "site 1", ... in a list. `Units` hold
            numbers: where categories are words, their positions in the list. One column needs `sites`, but for the
            schemes "pooled" and "non-private", where one holder has all rows: its halves become "site 0" and "site 1".
        y : None
            Ignored.
        sites : array of shape (rows,), optional
            For one column, the name of the site that holds each row.

        Returns
        -------
        self
            The fitted estimator. If the fit fails, what the last one learned is kept.

        Raises
        ------
        ZerosumError
            What is wrong with the parameters or the data, or which site refuses and why.
        """
        if (self.categories is None) == (self.edges is None):
            raise BadParameter("declare either the column's categories or the edges of its bins")
        if self.categories is not None and (np.ndim(self.categories) != 1 or not np.size(self.categories)):
            raise BadParameter("categories must be a list of what the column may say, at least one")
        return super().fit(X, y, sites=sites)

    def _units(self, data: Any, *, first: bool) -> Units:
        if isinstance(data, Units):
            if data.columns != 1:
                raise BadData(f"a histogram is of one column, got {data.columns}")
            units, words = super()._units(data, first=first), any(isinstance(each, str) for each in self._declared)
            if self.categories is None or words:
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
        categories = () if self.categories is None else self.categories
        return [each.item() if isinstance(each, np.generic) else each for each in categories]

    def _codes(self, values: NDArray[Any]) -> Floats:
        """Where each value stands among the categories."""
        known: dict[Any, float] = {category: code for code, category in enumerate(self._declared)}
        if self._allows_missing:
            known = dict.fromkeys([None, ""], np.nan) | known
        codes = np.array([known.get(_one(value), -1) for value in values.tolist()], dtype=np.float64)
        if np.any(codes < 0):
            raise BadData("some values are not among the declared categories")
        return codes[:, None]

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        declared = {"edges": self.edges} if self.categories is None else {"values": tuple(self._declared)}
        return declared | {"missing": self.missing}

    def _learn(self, estimate: Estimate) -> None:
        self.counts_: Floats = np.asarray(estimate["counts"])
        self.shares_: Floats = np.asarray(estimate["shares"])
        self.noise_std_ = float(estimate["noise_std"][0])
        if self.categories is None:
            self.edges_: Floats = np.array(self.edges, dtype=np.float64)
        else:
            self.categories_ = np.array(self._declared, dtype=object)


def _one(value: Any) -> Any:
    """A value, or None for every NaN: no two of these are equal."""
    return None if value != value else value
