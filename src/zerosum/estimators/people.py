"""Base of estimators on recordings of people, of which each has several rows in order of time."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.estimators.base import JointEstimator, Tables, dimensions
from zerosum.estimators.documentation import documented
from zerosum.kernel.schemes import Scheme


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PeopleEstimator(JointEstimator):
    """An estimator on recordings of people.

    Parameters
    ----------
    %(privacy)s
    """

    _dimensions: ClassVar[tuple[int, ...]] = (3,)

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        X : list or dict of sites' data, or the data of all persons
            The data of one site are `Units`, a list with an array (rows, n_features) for each person, or one array
            (persons, rows, n_features). The sites of a list are called "site 0", "site 1", and so on. One list or array
            of persons needs `sites`. Under the schemes "pooled" and "non-private" one holder has all persons, and its
            halves become "site 0" and "site 1".
        y : None
            Ignored.
        sites : array, optional
            Name of the site that holds each person.

        %(fit_returns)s
        """
        return self._fit(lambda scheme: self._people(X, sites, scheme))

    def _people(self, X: Any, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """The rows of all persons by site."""
        tables = self._by_site(X, sites)
        if tables is None:
            tables = self._shared_out(self._units(X, first=True), sites, scheme, "person")
        # The check is on the form of the data, which is public; the number of rows of a person is private.
        if any(units.offsets is None for units in tables.values()):
            raise BadData("every person has a single row, which has no time course: group the rows of each person")
        return tables

    def _units(self, data: Any, *, first: bool) -> Units:
        if isinstance(data, Units):
            return super()._units(data, first=first)
        depth = dimensions(data)
        finite = "allow-nan" if self._allows_missing else True
        if isinstance(data, list | tuple) and depth == 3:
            checks: dict[str, Any] = {"ensure_min_features": 2, "ensure_all_finite": finite}
            return Units.from_list([self._rows(one, first=first and at == 0, **checks) for at, one in enumerate(data)])
        if depth != 3:
            raise BadData(
                "the data of a site are Units, an array for each person, or one array of people, rows and columns: a "
                "table of rows does not say whose they are"
            )
        volumes = np.asarray(data, dtype=np.float64)
        if 0 in volumes.shape:
            raise BadData(f"people, rows and columns must be at least one, got shape {volumes.shape}")
        units = Units(volumes.reshape(-1, volumes.shape[2]), np.arange(len(volumes) + 1) * volumes.shape[1])
        units.check(range(units.columns) if self._allows_missing else ())
        self._take_columns(units.columns, first=first)
        return units
