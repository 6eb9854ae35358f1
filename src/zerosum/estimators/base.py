"""What estimators share: the sites' data on the way in, one study for each fit, the record of it on the way out.

Tested in tests/estimators/test_pca_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from zerosum.algorithms import Algorithm
from zerosum.arrays import Floats
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.units import Units
from zerosum.report.record import PrivacyReport, Result
from zerosum.site.policy import Policy
from zerosum.study import run

Tables = dict[str, Units]


class JointEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator whose `fit` is a study over sites.

    A subclass stores the parameters named here in its own `__init__`, says how many dimensions one site's data have
    (`_dimensions`) and what makes `Units` of them (`_units`).
    """

    _dimensions: int

    n_components: int
    epsilon: float
    delta: float
    scheme: str | Scheme
    colluders: int | None
    dropouts: int
    unit: Literal["record", "person"]
    policies: Mapping[str, Policy] | None
    random_state: int | None

    @abstractmethod
    def _units(self, data: Any, *, first: bool) -> Units:
        """One site's data; the first site says which columns there are."""

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags

    # ---- what goes in ------------------------------------------------------------------------------------------

    def _checked_scheme(self) -> Scheme:
        """The scheme, once what every study shares is sound."""
        if not (self.random_state is None or isinstance(self.random_state, Integral)):
            raise ValueError(f"random_state must be None or one whole number, got {self.random_state!r}")
        if self.unit not in ("record", "person"):
            raise ValueError(f"unit must be 'record' or 'person', got {self.unit!r}")
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        return self.scheme if isinstance(self.scheme, Scheme) else Scheme(self.scheme)

    def _by_site(self, X: Any, sites: ArrayLike | None) -> Tables | None:
        """One validated table per site, by name; None where X is not data by site."""
        if _by_name(X):
            several = {str(name): data for name, data in X.items()}
            if len(several) < len(X):
                raise ValueError("two sites have the same name")
        elif several_tables(X, self._dimensions):
            several = {f"site {s}": data for s, data in enumerate(X)}
        elif isinstance(X, Units):
            raise ValueError("Units are the data of one site: give a list or a dict with one for each site")
        else:
            return None
        if sites is not None:
            raise ValueError("sites= labels the rows of one array, but X holds one table per site already")
        if not several:
            raise ValueError("X holds no sites: give one table per site")
        return {name: self._named(name, data, first=s == 0) for s, (name, data) in enumerate(several.items())}

    def _shared_out(self, units: Units, sites: ArrayLike | None, scheme: Scheme, each: str = "row") -> Tables:
        """The units of one array, by the site that holds each of them."""
        if sites is not None:
            labels = column_or_1d(sites)
            check_consistent_length(range(len(units)), labels)
            names = np.array([str(label) for label in labels.tolist()])
            return {str(name): _chosen(units, np.flatnonzero(names == name)) for name in np.unique(names)}
        if not scheme.facts.sees_data:
            raise ValueError(
                f"whose rows are these? The scheme {scheme.name!r} runs between sites: pass sites= with a label for "
                f"each {each}, or X as a list or dict with the data of each site"
            )
        half = np.arange(len(units)) < len(units) // 2  # a planner wants two sites; a trusted one adds up before noise
        return {"site 0": _chosen(units, np.flatnonzero(half)), "site 1": _chosen(units, np.flatnonzero(~half))}

    def _named(self, name: str, data: Any, *, first: bool) -> Units:
        try:
            if not isinstance(data, Units):
                return self._units(data, first=first)
            data.check()
            self._take_columns(data.columns, first=first)
            return data
        except ValueError as error:
            raise ValueError(f"{name!r}: {error}") from error

    def _take_columns(self, columns: int, *, first: bool) -> None:
        if first:
            self._forget("feature_names_in_")
            self.n_features_in_ = columns
        elif columns != self.n_features_in_:
            raise ValueError(f"it has {columns} columns, the first site {self.n_features_in_}")

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(map(str, getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])))

    def _own_rows(self, X: Any) -> Floats:
        """One array of rows, for a fitted estimator to transform."""
        check_is_fitted(self)
        if isinstance(X, Units) or _by_name(X) or several_tables(X, 2):
            raise ValueError("transform takes one array: call it for each site, where the site's rows are")
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _own_scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        scores = np.asarray(check_array(X, dtype=np.float64))
        if scores.shape[1] != self.n_components_:
            raise ValueError(f"scores must have {self.n_components_} columns, one a component, got {scores.shape[1]}")
        return scores

    def _forget(self, attribute: str) -> None:
        """Drop what an earlier fit learned and this one does not."""
        if hasattr(self, attribute):
            delattr(self, attribute)

    # ---- the study ---------------------------------------------------------------------------------------------

    def _run(self, program: Algorithm, tables: Tables, scheme: Scheme) -> Result:
        policies = dict(self.policies or {})
        paths = [policy.ledger_path.resolve() for policy in policies.values()]
        if len(set(paths)) < len(paths):  # the second would be refused in mid-study, when the first has spent
            raise ValueError("two sites share a ledger: give each a population of its own in policies")
        with tempfile.TemporaryDirectory(prefix="zerosum-reproduction-") as folder:
            if self.random_state is not None:
                for s, name in enumerate(tables):
                    policies.setdefault(name, self._reproduction_policy(name, Path(folder) / f"{s}.sqlite"))
            return run(
                program,
                tables,
                epsilon=self.epsilon,
                delta=self.delta,
                scheme=scheme,
                colluders=self.colluders,
                dropouts=self.dropouts,
                unit=self.unit,
                policies=policies,
                random_state=None if self.random_state is None else int(self.random_state),
            )

    def _reproduction_policy(self, name: str, ledger: Path) -> Policy:
        """For data that are nobody's: any study goes, and the ledger does not outlive it."""
        return Policy.throwaway(name, ledger, unit=self.unit, delta=float(self.delta))

    def _keep(self, result: Result, notes: Sequence[str]) -> Self:
        """Keep the study's record."""
        self.privacy_: PrivacyReport = result.report
        self.result_ = result
        self.notes_ = (*result.report.notes, *notes)
        return self


def several_tables(X: object, depth: int) -> bool:
    """Whether this is a sequence of sites' data, rather than one site's written as a sequence."""
    return isinstance(X, list | tuple) and all(isinstance(each, Units) or dimensions(each) == depth for each in X)


def dimensions(data: object) -> int:
    """How deep data are nested: 1 a row, 2 a table of rows, 3 people with a table each.

    >>> dimensions([1.0, 2.0]), dimensions(np.ones((2, 2))), dimensions([np.ones((3, 2)), np.ones((4, 2))])
    (1, 2, 3)
    """
    if isinstance(data, list | tuple):
        return 1 + dimensions(data[0]) if data else 1
    return int(getattr(data, "ndim", 0))


def _by_name(X: object) -> bool:
    return isinstance(X, Mapping) and not issparse(X)  # SciPy's dictionary of keys is a dict too


def _chosen(units: Units, which: NDArray[np.intp]) -> Units:
    if units.offsets is None:
        return Units(units.rows[which])
    every = list(units.each())
    return Units.from_list([every[at] for at in which])
