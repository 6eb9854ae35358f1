"""Base class of estimators with a response, which is the last column after the features."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.estimators.base import JointEstimator, Tables, bad_data, several_tables
from zerosum.estimators.documentation import documented
from zerosum.kernel.schemes import Scheme


@documented
class Supervised(JointEstimator):
    """An estimator with a response: a number or a class for every row.

    A subclass codes the responses as numbers (`_prepare_coding`, `_coded`), and may have more columns before them
    (`_roles`).

    `score(X, y)`, which subclasses inherit from scikit-learn, is an exact function of its rows: on private rows it is
    not protected and must not leave the site that holds them.
    """

    _roles: tuple[str, ...] = ()  # names of the columns between features and response in this fit
    _terms: tuple[str, ...] = ()  # names of the features of units that a formula made, which have no names themselves

    def fit(self, X: Any, y: Any = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        y : list or dict of vectors, or one vector
            Response or class of every row, by site as X.
        %(fit_sites)s

        %(fit_returns)s
        """
        return self._fit_to(X, y, sites, {})

    def _fit_to(self, X: Any, y: Any, sites: ArrayLike | None, roles: Mapping[str, Any]) -> Self:
        if y is None:
            raise BadData(
                "requires y to be passed, but the target y is None: give the response of every row, by site as X"
            )

        def tables(scheme: Scheme) -> Tables:
            tables_by_site = self._tables(X, sites, scheme)
            # The order of the columns: features, then roles in the order of `roles`, then the response.
            given = {name: values for name, values in roles.items() if values is not None}
            self._roles = tuple(given)
            vectors = {name: self._by_table(name, values, tables_by_site, X, sites) for name, values in given.items()}
            responses = self._by_table("y", y, tables_by_site, X, sites)
            vectors |= self._whole_rows(tables_by_site, vectors)
            self._roles = tuple(vectors)
            # Before any response is coded, since the classes of a seeded run come from all sites.
            self._prepare_coding(responses)
            for name, values in vectors.items():
                tables_by_site = {
                    site: self._with_role(name, units, values[site]) for site, units in tables_by_site.items()
                }
            return {name: self._with(tables_by_site[name], responses[name]) for name in tables_by_site}

        return self._fit(tables)

    def _classes_in(self, vectors: Mapping[str, Any], parameter: str) -> NDArray[Any]:
        """The classes in the data of all sites, sorted, for a fit with seeded noise, which is not private.

        Parameters
        ----------
        vectors : mapping
            Classes of the rows, by site.
        parameter : str
            The constructor parameter that was not given, for the warning.
        """
        values = np.concatenate([np.asarray(vector) for vector in vectors.values()])
        if values.dtype.kind == "f" and not np.all(np.isfinite(values)):
            raise BadData("some values of y are not finite (NaN or infinity)")
        with bad_data():
            check_classification_targets(values)
        known = np.unique(values)
        if len(known) == 1:
            raise BadData("a classifier needs two classes or more, y has one class")
        self._note(f"{parameter} was not given, so the classes of the data were taken, which is not private")
        return known

    def _whole_rows(self, tables: Tables, vectors: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Further roles that follow from missing values of the features, by site; none here.

        Parameters
        ----------
        tables : dict of Units
            The features by site.
        vectors : mapping
            The roles that were given, by site.
        """
        return {}

    def _by_table(self, what: str, given: Any, tables: Tables, X: Any, sites: ArrayLike | None) -> dict[str, Any]:
        """A vector for each site, from the same form as X."""
        by_site = isinstance(X, Mapping) or several_tables(X, self._dimensions)
        names = list(tables)
        if by_site and isinstance(given, Mapping):
            # Matching by name and not by order: the response of one site beside the rows of another would be
            # undetected.
            if {str(name) for name in given} != set(names):
                raise BadData(f"X and {what} must name the same sites")
            return {str(name): column_or_1d(value) for name, value in given.items()}
        if by_site:
            if not isinstance(given, list | tuple) or len(given) != len(names):
                raise BadData(f"X has a table for each site, so {what} must be a list with a vector for each")
            return {name: column_or_1d(value) for name, value in zip(names, given, strict=True)}
        whole = column_or_1d(given, warn=True)
        if sites is not None:
            labels = np.array([str(label) for label in column_or_1d(sites).tolist()])
            return {name: whole[labels == name] if len(whole) == len(labels) else whole for name in names}
        # Without labels `_shared_out` has cut X into two halves, in order.
        cut = len(tables[names[0]].rows)
        return {names[0]: whole[:cut], names[1]: whole[cut:]}

    def _with_role(self, what: str, units: Units, values: Any) -> Units:
        """The rows with one more column, which is not a feature."""
        if len(values) != len(units.rows):
            raise BadData(f"inconsistent numbers of samples: {what} must have a value for each row of X")
        column = numbers(values)
        # Roles have no rule for missing values.
        if not np.all(np.isfinite(column)):
            raise BadData(f"some values of {what} are not finite (NaN or infinity)")
        return replace(units, rows=np.column_stack([np.asarray(units.rows, dtype=np.float64), column]))

    def _with(self, units: Units, values: Any) -> Units:
        """The rows with the coded response as their last column."""
        if len(values) != len(units.rows):
            raise BadData("inconsistent numbers of samples: y must have a value for each row of X")
        coded = self._coded(values)
        if not np.all(np.isfinite(coded)):
            raise BadData("some values of y are not finite (NaN or infinity)")
        return replace(units, rows=np.column_stack([np.asarray(units.rows, dtype=np.float64), coded]))

    def _prepare_coding(self, vectors: Mapping[str, Any]) -> None:
        """Called with all responses before they are coded. Only a seeded run may use their values."""

    def _coded(self, values: Any) -> Floats:
        """The responses of one site as numbers."""
        return numbers(values)

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self._feature_names, *self._roles, "response")

    def _own_rows(self, X: Any) -> Floats:
        check_is_fitted(self, "result_")
        # Rows of two sites in one call would mean that one holder sees both.
        if isinstance(X, Units | Mapping) or several_tables(X, (2,)):
            raise BadData("give one array with rows of one site: call this method for each site, at the site")
        with bad_data():
            rows = self._rows(X, first=False)
        if not np.all(np.isfinite(rows)):
            raise BadData("some values are missing (NaN): a prediction needs all features of a row")
        return rows


def numbers(values: Any) -> Floats:
    """A vector of real numbers; other values raise `BadData`."""
    if np.iscomplexobj(values):
        raise BadData("y, offset and weights must hold real numbers: Complex data not supported")
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadData("some values of y, offset or weights are not numbers") from None
