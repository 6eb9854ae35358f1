"""What estimators share: the sites' data on the way in, one study for each fit, the record of it on the way out.

Tested in tests/estimators/test_pca_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from zerosum import algorithms
from zerosum.algorithms import Algorithm, Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter, ZerosumError
from zerosum.kernel.amounts import check_delta, check_epsilon
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.report.record import PrivacyReport, Result
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit, declared_unit, run

Tables = dict[str, Units]
DataMark = Literal["private", "public", "synthetic"]


class JointEstimator(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator whose `fit` is a study over sites.

    A subclass names its program (`_algorithm`), says how deep one site's data are nested (`_dimensions`), which
    parameters the program gets, and what it learns from the estimate.
    """

    _algorithm: ClassVar[str]
    _dimensions: ClassVar[tuple[int, ...]] = (2,)
    _unnamed: bool = False

    privacy_: PrivacyReport
    result_: Result
    notes_: tuple[str, ...]

    def __init__(
        self,
        *,
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
        self.epsilon = epsilon
        self.delta = delta
        self.scheme = scheme
        self.colluders = colluders
        self.dropouts = dropouts
        self.unit = unit
        self.policies = policies
        self.random_state = random_state
        self.data = data
        self.budget = budget

    @abstractmethod
    def _parameters(self, tables: Tables) -> dict[str, Any]:
        """What the program is given beside the names of the columns."""

    @abstractmethod
    def _learn(self, estimate: Estimate) -> None:
        """Keep what the program found, under scikit-learn's names."""

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites, and spend what it costs at each of them.

        Parameters
        ----------
        X : list or dict of (rows, n_features) arrays or Units, or one array
            One table per site, by its name; in a list, which is for data that are nobody's, they are called "site 0",
            "site 1", ... One array needs `sites`, but for the schemes
            "pooled" and "non-private", where one holder has all rows: its halves become "site 0" and "site 1".
        y : None
            Ignored.
        sites : array of shape (rows,), optional
            For one array, the name of the site that holds each row.

        Returns
        -------
        self
            The fitted estimator. If the fit fails, what the last one learned is kept.

        Raises
        ------
        ZerosumError
            What is wrong with the parameters or the data, or which site refuses and why.
        """
        return self._fit(lambda scheme: self._tables(X, sites, scheme))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags.allow_nan = self._allows_missing
        return tags

    # ---- the study ---------------------------------------------------------------------------------------------

    def _fit(self, tables_under: Callable[[Scheme], Tables]) -> Self:
        scheme = self._checked_scheme()
        with self._afresh():
            with bad_data():
                tables = tables_under(scheme)
            unit = declared_unit(self.unit, tables.values(), seeded=self.random_state is not None)
            with bad_parameters():
                program = algorithms.build(self._algorithm, self._parameters(tables) | {"columns": self._columns})
            self._check_clone(tables)
            self._check_named(tables)
            result = self._run(program, tables, scheme, unit)
            self.privacy_ = result.report
            self.result_ = result
            self._learn(result.estimate)
            said = {note.split(":")[0] for note in self.notes_}
            warned = [each for each in result.warnings if each.split(":")[0] not in said]
            self.notes_ = (*result.report.notes, *self.notes_, *warned)
        return self

    @contextmanager
    def _afresh(self) -> Iterator[None]:
        """A fit starts from the parameters alone; where it fails, the last one stays as it was."""
        last = dict(vars(self))
        for name in last:
            if name.endswith("_"):
                delattr(self, name)
        self.notes_ = ()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(last)
            raise

    def _note(self, sentence: str) -> None:
        """Something else a reader has to know about the run."""
        if sentence not in self.notes_:
            self.notes_ = (*self.notes_, sentence)

    def _checked_scheme(self) -> Scheme:
        """The scheme, once what every study shares is sound."""
        seed = self.random_state
        if not (seed is None or (isinstance(seed, Integral) and int(seed) >= 0)):
            raise BadParameter(f"random_state must be None or one whole number that is not negative, got {seed!r}")
        for name in ("epsilon", "delta"):
            if not isinstance(value := getattr(self, name), Real):
                raise BadParameter(f"{name} must be a number, got {value!r}")
        with bad_parameters():
            check_epsilon(float(self.epsilon))
            check_delta(float(self.delta))
        for name, least in (("colluders", "None or "), ("dropouts", "")):
            value = getattr(self, name)
            if not (isinstance(value, Integral) or (least and value is None)):
                raise BadParameter(f"{name} must be {least}a whole number, got {value!r}")
        policies = {} if self.policies is None else self.policies
        if not isinstance(policies, Mapping) or not all(isinstance(each, Policy) for each in policies.values()):
            raise BadParameter("policies must be a dict from the name of a site to its Policy")
        if self.data not in ("private", "public", "synthetic"):
            raise BadParameter(f"data must be 'private', 'public' or 'synthetic', got {self.data!r}")
        if not (self.budget is None or isinstance(self.budget, Budget)):
            raise BadParameter(f"budget must be None or a zerosum.Budget, got an object of type {type(self.budget)!r}")
        if not isinstance(self.scheme, str | Scheme):
            raise BadParameter(f"scheme must be a name or a Scheme, got {self.scheme!r}")
        return self.scheme if isinstance(self.scheme, Scheme) else Scheme(self.scheme)

    def _check_clone(self, tables: Tables) -> None:
        """Refuse to fit a clone to private data, whatever its budget.

        Searches for hyper-parameters and cross-validation clone an estimator, fit each clone and score it on held-out
        rows. A budget pays for the fits only: the scores, and the parameters chosen by them, are exact functions of
        private rows. A clone does not say what it was made for, so all clones are refused.
        """
        policies = self.policies or {}
        private = any((policies[name].data if name in policies else self.data) == "private" for name in tables)
        if vars(self).get("_cloned", False) and private:
            raise BadParameter(
                "this estimator is a clone, as searches for hyper-parameters and cross-validation make them, and it is "
                "not fitted to private data: the scores on held-out private rows are not protected, and no budget pays "
                "for them. Fit estimators one by one with one zerosum.Budget, and evaluate with evaluate_share or "
                "hold_out where an estimator has them; rehearse a search on data marked data='synthetic' or "
                "data='public'. For one more estimator with the same parameters that is not for a search, construct "
                "it: type(estimator)(**estimator.get_params(deep=False))"
            )

    def __sklearn_clone__(self) -> Self:
        clone: Self = super().__sklearn_clone__()
        clone.__dict__["_cloned"] = True
        return clone

    def _check_named(self, tables: Tables) -> None:
        """Refuse a seed on data that are not marked, and sites without names where a ledger would go by them."""
        policies = self.policies or {}
        if self.data != "private" or all(name in policies for name in tables):
            return
        if self.random_state is not None:
            raise BadParameter(
                "random_state makes noise that protects nobody, and these data are not marked: say data='synthetic' or "
                "data='public', or leave random_state out"
            )
        if self._unnamed:
            raise BadParameter(
                "these sites have no names, and their people's ledgers go by the names of the sites: give X as a dict "
                "with the data of each site by its name, or say data='synthetic' or data='public' where they are "
                "nobody's"
            )

    def _run(self, program: Algorithm, tables: Tables, scheme: Scheme, unit: Unit) -> Result:
        policies = dict(self.policies or {})
        with tempfile.TemporaryDirectory(prefix="zerosum-reproduction-") as folder:
            if self.data != "private":
                for s, name in enumerate(tables):
                    policies.setdefault(name, self._reproduction_policy(name, unit, Path(folder) / f"{s}.sqlite"))
            return run(
                program,
                tables,
                epsilon=self.epsilon,
                delta=self.delta,
                scheme=scheme,
                colluders=self.colluders,
                dropouts=self.dropouts,
                unit=unit,
                policies=policies,
                random_state=None if self.random_state is None else int(self.random_state),
                attempts=getattr(self, "attempts", 0),
                checkpoint=getattr(self, "checkpoint", None),
                budget=self.budget,
            )

    def _reproduction_policy(self, name: str, unit: Unit, ledger: Path) -> Policy:
        """For data that are nobody's: any study goes, and the ledger does not outlive it."""
        return Policy.throwaway(name, ledger, unit=unit, delta=float(self.delta), data=self.data)

    # ---- what goes in ------------------------------------------------------------------------------------------

    def _tables(self, X: Any, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """One validated table per site, by name."""
        tables = self._by_site(X, sites)
        return self._shared_out(self._units(X, first=True), sites, scheme) if tables is None else tables

    def _by_site(self, X: Any, sites: ArrayLike | None) -> Tables | None:
        """One validated table per site, by name; None where X is not data by site."""
        self._unnamed = False
        if _by_name(X):
            several = {str(name): data for name, data in X.items()}
            if len(several) < len(X):
                raise BadParameter("two sites have the same name")
        elif several_tables(X, self._dimensions):
            several = {f"site {s}": data for s, data in enumerate(X)}
            self._unnamed = True
        elif isinstance(X, Iterator | set | frozenset):
            raise BadData("sites have an order or names: give a list or a dict with the data of each")
        elif isinstance(X, Units):
            raise BadData("Units are the data of one site: give a list or a dict with one for each site")
        else:
            return None
        if sites is not None:
            raise BadParameter("sites= labels the rows of one array, but X holds one table per site already")
        if not several:
            raise BadData("X holds no sites: give one table per site")
        return {name: self._named(name, data, first=s == 0) for s, (name, data) in enumerate(several.items())}

    def _shared_out(self, units: Units, sites: ArrayLike | None, scheme: Scheme, each: str = "row") -> Tables:
        """The units of one array, by the site that holds each of them."""
        if sites is not None:
            labels = column_or_1d(sites)
            check_consistent_length(range(len(units)), labels)
            names = np.array([str(label) for label in labels.tolist()])
            return {str(name): _chosen(units, np.flatnonzero(names == name)) for name in np.unique(names)}
        if not scheme.facts.sees_data:
            raise BadParameter(
                f"whose rows are these? The scheme {scheme.name!r} runs between sites: pass sites= with a label for "
                f"each {each}, or X as a list or dict with the data of each site"
            )
        if len(units) < 2:
            raise BadData("one sample is no study: give at least two")
        half = np.arange(len(units)) < len(units) // 2  # a planner wants two sites; a trusted one adds up before noise
        return {"site 0": _chosen(units, np.flatnonzero(half)), "site 1": _chosen(units, np.flatnonzero(~half))}

    def _named(self, name: str, data: Any, *, first: bool) -> Units:
        try:
            with bad_data():
                return self._units(data, first=first)
        except ZerosumError as error:
            raise error.about(repr(name)) from error

    def _units(self, data: Any, *, first: bool) -> Units:
        """One site's data; the first site says which columns there are."""
        if not isinstance(data, Units):
            finite = "allow-nan" if self._allows_missing else True
            return Units(self._rows(data, first=first, ensure_all_finite=finite))
        data.check(range(data.columns) if self._allows_missing else ())
        self._take_columns(data.columns, first=first)
        return data

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Floats:
        """One validated table."""
        if issparse(data):
            raise BadData("sparse data were passed, but dense data is required: use .toarray()")
        check_collected(data)
        return np.asarray(validate_data(self, data, dtype=np.float64, reset=first, **checks))

    def _own_rows(self, X: Any) -> Floats:
        """One array of rows, for a fitted estimator to look at."""
        check_is_fitted(self, "result_")
        if isinstance(X, Units) or _by_name(X) or several_tables(X, (2,)):
            raise BadData("only one array can be transformed: do it for each site, where the site's rows are")
        with bad_data():
            return self._rows(X, first=False)

    @property
    def _allows_missing(self) -> bool:
        """Whether there is a rule for missing values; which columns it is for, the program looks at."""
        return getattr(self, "missing", None) is not None

    def _take_columns(self, columns: int, *, first: bool) -> None:
        if first:
            self.n_features_in_ = columns
        elif columns != self.n_features_in_:
            raise BadData(f"it has {columns} columns, the first site {self.n_features_in_}")

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(map(str, getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])))


class RangedEstimator(JointEstimator):
    """An estimator on numbers with public bounds: ranges of the columns, or a bound on each row's norm."""

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        clip: float | None = None,
        missing: Missing = None,
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
        self.lower = lower
        self.upper = upper
        self.clip = clip
        self.missing = missing

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        """What bounds the rows: as given, or in a seeded run as found."""
        clip, lower, upper = self.clip, self._by_column("lower"), self._by_column("upper")
        if clip is None and lower is None and upper is None:
            if self.random_state is None:
                raise BadParameter(
                    "give public ranges (lower and upper) or a clip: bounds that are read off the data are not private"
                )
            clip = max(_largest_norm(units) for units in tables.values()) or 1.0
            self._note(f"no bounds were given, so the clip, {clip:g}, was read off the data, which is not private")
        if lower is not None and upper is not None and np.any(lower >= upper):
            raise BadParameter("every lower bound must lie below its upper bound")
        return {"lower": lower, "upper": upper, "clip": clip, "missing": self.missing}

    def _by_column(self, which: str) -> Floats | None:
        given = getattr(self, which)
        if given is None:
            return None
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadParameter(f"{which} must be one number or one for each column") from None
        if values.shape not in ((), (self.n_features_in_,)):
            raise BadParameter(
                f"{which} must be one number or one for each of the {self.n_features_in_} columns, "
                f"got shape {values.shape}"
            )
        return np.broadcast_to(values, (self.n_features_in_,)).copy()

    @property
    def _middle(self) -> Floats:
        """What the program takes rows relative to: the middle of the ranges, or zero."""
        lower, upper = self._by_column("lower"), self._by_column("upper")
        return np.zeros(self.n_features_in_) if lower is None or upper is None else (lower + upper) / 2

    @property
    def _half(self) -> Floats:
        """What the program divides columns by: half their ranges, or one."""
        lower, upper = self._by_column("lower"), self._by_column("upper")
        return np.ones(self.n_features_in_) if lower is None or upper is None else (upper - lower) / 2


class JointTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, JointEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator that, once fitted, makes something of the rows of one site, where they are."""

    @property
    @abstractmethod
    def _n_features_out(self) -> int: ...

    def _own_scores(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "result_")
        with bad_data():
            scores = np.asarray(check_array(X, dtype=np.float64))
        if scores.shape[1] != self._n_features_out:
            raise BadData(f"scores must have {self._n_features_out} columns, one a component, got {scores.shape[1]}")
        return scores


@contextmanager
def bad_parameters() -> Iterator[None]:
    """What NumPy or Python find wrong with parameters, as an error of ours."""
    try:
        yield
    except ZerosumError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise BadParameter(f"a parameter cannot be used: {error}") from error


@contextmanager
def bad_data() -> Iterator[None]:
    """What scikit-learn finds wrong with data, in its own words but as an error of ours; no value is quoted."""
    try:
        yield
    except ZerosumError:
        raise
    except (ValueError, OverflowError) as error:
        if "could not convert" in str(error):
            raise BadData("some values are not numbers", detail=str(error)) from None
        raise BadData(str(error)) from error


def several_tables(X: object, depths: tuple[int, ...]) -> bool:
    """Whether this is a sequence of sites' data, rather than one site's written as a sequence."""
    return isinstance(X, list | tuple) and all(isinstance(each, Units) or dimensions(each) in depths for each in X)


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


def _largest_norm(units: Units) -> float:
    norms = (np.linalg.norm(np.nan_to_num(np.asarray(block.rows), nan=0.0), axis=1) for block in units.blocks())
    return max(float(np.max(each)) for each in norms)


def check_collected(data: Any) -> None:
    """A frame that is yet to be computed holds no rows."""
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        raise BadData("it is a lazy frame: give what its collect() returns")
