"""Base classes of the estimators: shared parameters, the data of the sites, one study for each fit, and its results."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
from zerosum.data.frames import collected
from zerosum.errors import BadData, BadParameter, ZerosumError
from zerosum.estimators.documentation import documented
from zerosum.estimators.validation import (
    POSITIVE,
    PROBABILITY,
    RANGES,
    SEED,
    WHOLE_NUMBER,
    Constraint,
    check_parameters,
    of_type,
    one_of,
    optional,
)
from zerosum.kernel.missing import Missing, refusal_by_rules
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import NoiseChoice
from zerosum.report.record import Result
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit, declared_unit, run

Tables = dict[str, Units]
DataMark = Literal["private", "public", "synthetic"]
AdjacencyName = Literal["replace-one", "add-remove"]
CalibrationName = Literal["exact", "published"]

# A number with a decimal comma, alone or quoted in a message; "1,234" may have one that groups thousands.
_DECIMAL_COMMA = re.compile(r"(?<![^\s'\"])[+-]?\d*,(?:\d{1,2}|\d{4,})(?![^\s'\"])")

# Attributes of 0.2 and their new names; a name of one class only has the class in front.
RENAMED_ATTRIBUTES = {
    "std_error_": "noise_std_ (what privacy alone adds; regressions have the sampling error, too, in population_std_)",
    "observed_std_": "observed_noise_std_",
    "location_std_": "location_noise_std_",
    "covariance_std_": "noise_std_",
    "means_std_": "noise_std_",
    "explained_variance_std_": "explained_variance_noise_std_",
    "coef_std_": "population_std_ (sampling and privacy; noise_std_ is what privacy alone adds)",
    "noise_": "noise_std_",
    "KMeans.noise_std_": "counts_noise_std_",
}


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class JointEstimator(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator whose `fit` is a study over sites.

    Estimators are dataclasses, so that a shared constructor parameter is declared once, in the class that introduces
    it. `get_params`, `set_params` and `clone` of scikit-learn read the generated constructor.

    A subclass sets `_algorithm`, the name of its program, and implements `_learn`. A constructor parameter that has the
    name of a field of the program is passed to it; `_program_names` lists the exceptions, and `_not_parameters` the
    fields that are set in another way, each with the reason.

    Parameters
    ----------
    %(privacy)s
    """

    _algorithm: ClassVar[str]
    _dimensions: ClassVar[tuple[int, ...]] = (2,)  # nesting of the data of one site: 2 for a table of rows
    _program_names: ClassVar[Mapping[str, str]] = {}  # fields of the program by the name of the constructor parameter
    _not_parameters: ClassVar[Mapping[str, str]] = {"columns": "names of the columns of X"}
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        "epsilon": POSITIVE,
        "delta": PROBABILITY,
        "scheme": of_type("the name of a scheme or a Scheme", str, Scheme),
        "colluders": optional(WHOLE_NUMBER),
        "dropouts": WHOLE_NUMBER,
        "adjacency": one_of(*(each.value for each in Adjacency)),
        "calibration": one_of("exact", "published"),
        "noise": one_of("auto", "gaussian", "laplace"),
        "policies": optional(
            Constraint(
                "a dict from site names to objects of the class Policy",
                lambda value: isinstance(value, Mapping) and all(isinstance(each, Policy) for each in value.values()),
            )
        ),
        "random_state": optional(SEED),
        "data": one_of("private", "public", "synthetic"),
        "budget": optional(of_type("a zerosum.Budget", Budget)),
    }
    _unnamed = False  # whether the sites of this fit have no names of their own

    epsilon: float = 1.0
    delta: float = 1e-5
    scheme: str | Scheme = DEFAULT_SCHEME
    colluders: int | None = None
    dropouts: int = 0
    unit: Unit | None = None
    adjacency: AdjacencyName = "replace-one"
    calibration: CalibrationName = "exact"
    noise: NoiseChoice = "gaussian"
    policies: Mapping[str, Policy] | None = None
    random_state: int | None = None
    data: DataMark = "private"
    budget: Budget | None = None

    @abstractmethod
    def _learn(self, estimate: Estimate) -> None:
        """Set the fitted attributes from the estimate of the program."""

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        """Parameters of the program: the constructor parameters that it has a field for, unless they are None."""
        fields = algorithms.fields(self._algorithm)
        # None stands for "the program's default", so that the default is stated in one place, the program.
        given = {self._program_names.get(name, name): value for name, value in self.get_params(deep=False).items()}
        return {name: value for name, value in given.items() if name in fields and value is not None}

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        y : None
            Ignored.
        %(fit_sites)s

        %(fit_returns)s
        """
        return self._fit(lambda scheme: self._tables(X, sites, scheme))

    def __getattr__(self, name: str) -> Any:
        kind = type(self).__name__
        if new := RENAMED_ATTRIBUTES.get(f"{kind}.{name}", RENAMED_ATTRIBUTES.get(name)):
            raise AttributeError(f"{kind}.{name} of version 0.2 is now {new}")
        raise AttributeError(f"{kind!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        tags.input_tags.allow_nan = self._allows_missing
        return tags

    # ---- the study ---------------------------------------------------------------------------------------------

    @contextmanager
    def _fresh_results(self) -> Iterator[None]:
        """Remove the results of the last fit, and restore them if this fit fails."""
        # A failed fit must not leave results of two fits side by side, nor an estimator without results.
        last = dict(vars(self))
        for name in last:
            if name.endswith("_"):
                delattr(self, name)
        self.notes_: tuple[str, ...] = ()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(last)
            raise

    def _fit(self, tables_under: Callable[[Scheme], Tables]) -> Self:
        # In `fit` and not in the constructor, as scikit-learn requires: `set_params` may change a parameter later.
        check_parameters(self._constraints, self.get_params(deep=False))
        scheme = self.scheme if isinstance(self.scheme, Scheme) else Scheme(self.scheme)
        with self._fresh_results():
            # The data before the program, which needs the names of the columns.
            with bad_data():
                tables = tables_under(scheme)
            unit = declared_unit(self.unit, tables.values(), seeded=self.random_state is not None)
            with bad_parameters():
                program = algorithms.build(self._algorithm, self._parameters(tables) | {"columns": self._columns})
            # Both checks come before `_run`, so that a refused fit charges no ledger.
            self._check_clone(tables)
            self._check_named(tables)
            result = self._run(program, tables, scheme, unit)
            self.privacy_ = result.report
            self.result_ = result
            self._learn(result.estimate)
            # A warning of the study is left out if the estimator has a note on the same subject (before the colon).
            noted = {note.split(":")[0] for note in self.notes_}
            warnings = [each for each in result.warnings if each.split(":")[0] not in noted]
            self.notes_ = (*result.report.notes, *self.notes_, *warnings)
        return self

    def _note(self, sentence: str) -> None:
        """Add a remark about the run to `notes_`."""
        if sentence not in self.notes_:
            self.notes_ = (*self.notes_, sentence)

    def _check_clone(self, tables: Tables) -> None:
        """Refuse to fit a clone to private data, whatever its budget.

        Searches for hyper-parameters and cross-validation clone an estimator, fit each clone and score it on held-out
        rows. A budget pays for the fits only: the scores, and the parameters chosen by them, are exact functions of
        private rows. A clone carries no trace of its purpose, so all clones are refused.
        """
        policies = self.policies or {}
        private = any((policies[name].data if name in policies else self.data) == "private" for name in tables)
        if vars(self).get("_cloned", False) and private:
            raise BadParameter(
                "this estimator is a clone, as in a search for hyper-parameters or a cross-validation, and clones are "
                "not fitted to private data: the scores on held-out private rows are not protected, and no budget pays "
                "for them. Fit estimators one by one with one zerosum.Budget, and evaluate with evaluate_share or "
                "hold_out if the estimator has them. Run searches on data marked data='synthetic' or data='public'. "
                "To copy an estimator for another purpose, construct it: "
                "type(estimator)(**estimator.get_params(deep=False))"
            )

    def __sklearn_clone__(self) -> Self:
        clone: Self = super().__sklearn_clone__()
        # Not a constructor parameter: `get_params` does not report it, so that a copy made from the parameters is no
        # clone.
        clone.__dict__["_cloned"] = True
        return clone

    def _check_named(self, tables: Tables) -> None:
        """Refuse a seed for private data, and private sites without names, because ledgers have the names of sites."""
        policies = self.policies or {}
        # A policy states itself whether its data are private; its site checks the seed.
        if self.data != "private" or all(name in policies for name in tables):
            return
        if self.random_state is not None:
            raise BadParameter(
                "a run with random_state protects no one, and these data are private: set data='synthetic' or "
                "data='public' if they are, or leave random_state out"
            )
        if self._unnamed:
            raise BadParameter(
                "these sites have no names, and the ledgers of private data have the names of the sites: give X as a "
                "dict from site names to data, or set data='synthetic' or data='public' if they are"
            )

    def _run(self, program: Algorithm, tables: Tables, scheme: Scheme, unit: Unit) -> Result:
        policies = dict(self.policies or {})
        # The ledgers of public and synthetic data are deleted with this folder.
        with tempfile.TemporaryDirectory(prefix="zerosum-reproduction-") as folder:
            if self.data != "private":
                for s, name in enumerate(tables):
                    # Numbers as file names: a site's name may hold characters that no file name may have.
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
                adjacency=self.adjacency,
                calibration=self.calibration,
                noise=self.noise,
                policies=policies,
                random_state=None if self.random_state is None else int(self.random_state),
                attempts=getattr(self, "attempts", 0),
                checkpoint=getattr(self, "checkpoint", None),
                budget=self.budget,
            )

    def _reproduction_policy(self, name: str, unit: Unit, ledger: Path) -> Policy:
        """For public and synthetic data: a policy that accepts any study, with a ledger in a temporary folder."""
        # These data are public or synthetic: a policy stricter than the study would protect nothing.
        settings: dict[str, Any] = {"unit": unit, "adjacency": Adjacency(self.adjacency), "data": self.data}
        return Policy.throwaway(name, ledger, delta=float(self.delta), **settings)

    # ---- the data ----------------------------------------------------------------------------------------------

    def _tables(self, X: Any, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """One validated table per site, by name."""
        tables = self._by_site(X, sites)
        return self._shared_out(self._units(X, first=True), sites, scheme) if tables is None else tables

    def _by_site(self, X: Any, sites: ArrayLike | None) -> Tables | None:
        """One validated table per site, by name; None if X is not data by site.

        Parameters
        ----------
        X : object
            As given to `fit`. A dict has names; a list gets the names "site 0", "site 1", which no ledger may have.
        sites : array or None
            Labels of rows; refused beside data by site.
        """
        self._unnamed = False
        if _by_name(X):
            # Names become texts, in which 1 and "1" are equal: two sites would share a ledger.
            several = {str(name): data for name, data in X.items()}
            if len(several) < len(X):
                raise BadParameter("two sites have the same name")
        elif several_tables(X, self._dimensions):
            several = {f"site {s}": data for s, data in enumerate(X)}
            self._unnamed = True
        # Before the last branch, which would read it as one table.
        elif isinstance(X, Iterator | set | frozenset):
            raise BadData("give a list or a dict with the data of each site: an iterator or a set has no fixed order")
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
        """The units of one array by site, from the labels `sites`; `each` names what a label belongs to.

        Parameters
        ----------
        units : Units
            The data of all sites, in the order of X.
        sites : array of shape (units,), optional
            The label of each unit's site.
        scheme : Scheme
            Decides whether data without labels may be cut in two.
        each : str
            "row" or "person", for messages.
        """
        if sites is not None:
            labels = column_or_1d(sites)
            check_consistent_length(range(len(units)), labels)
            # As texts, like the names of a dict of sites: labels 1 and "1" name one site.
            names = np.array([str(label) for label in labels.tolist()])
            return {str(name): _selection(units, np.flatnonzero(names == name)) for name in np.unique(names)}
        if not scheme.facts.sees_data:
            raise BadParameter(
                f"the scheme {scheme.name!r} runs between sites, and X is one array: pass sites= with a label for each "
                f"{each}, or X as a list or dict with the data of each site"
            )
        if len(units) < 2:
            raise BadData("a study needs at least two samples, got one sample")
        # A plan needs two sites. Under these schemes one trusted holder sums before noise, so the split has no effect.
        half = np.arange(len(units)) < len(units) // 2
        return {"site 0": _selection(units, np.flatnonzero(half)), "site 1": _selection(units, np.flatnonzero(~half))}

    def _named(self, name: str, data: Any, *, first: bool) -> Units:
        try:
            with bad_data():
                return self._units(data, first=first)
        except ZerosumError as error:
            raise error.about(repr(name)) from error

    def _units(self, data: Any, *, first: bool) -> Units:
        """The data of one site; the first site determines the columns."""
        if not isinstance(data, Units):
            finite = "allow-nan" if self._allows_missing else True
            return Units(self._rows(data, first=first, ensure_all_finite=finite))
        # Which columns have a rule is known only with the program; a column without one is refused there.
        data.check(range(data.columns) if self._allows_missing else ())
        self._take_columns(data.columns, first=first)
        return data

    def _rows(self, data: Any, *, first: bool, **checks: Any) -> Floats:
        """One validated table."""
        if issparse(data):
            raise BadData("sparse data were passed, but dense data is required: use .toarray()")
        given = collected(data)
        try:
            return np.asarray(validate_data(self, given, dtype=np.float64, reset=first, **checks))
        except ValueError as error:
            # scikit-learn's advice is about its own estimators, and it does not name the columns.
            if "contains NaN" not in str(error):
                raise
            gone = np.flatnonzero(np.isnan(np.asarray(given, dtype=np.float64)).any(axis=0)).tolist()
            names = getattr(self, "feature_names_in_", [f"x{at}" for at in range(np.shape(given)[-1])])
            columns = [f"column {str(names[at])!r}" for at in gone]
            raise BadData(f"the data contain NaN: {refusal_by_rules(columns, self._rule_words)}") from None

    @property
    def _rule_words(self) -> tuple[str, ...]:
        """The rules for missing values that the estimator has, in words; none without the parameter `missing`."""
        return algorithms.ALGORITHMS[self._algorithm].rule_words() if hasattr(self, "missing") else ()

    def _own_rows(self, X: Any) -> Floats:
        """One validated array of rows for a method of a fitted estimator."""
        check_is_fitted(self, "result_")
        if isinstance(X, Units) or _by_name(X) or several_tables(X, (2,)):
            raise BadData("give one array with rows of one site: call this method for each site, at the site")
        with bad_data():
            return self._rows(X, first=False)

    @property
    def _allows_missing(self) -> bool:
        """Whether there is a rule for missing values; the program checks which columns have one."""
        return getattr(self, "missing", None) is not None

    def _take_columns(self, columns: int, *, first: bool) -> None:
        if first:
            # Set by scikit-learn for arrays; `Units` are validated here.
            self.n_features_in_ = columns
        elif columns != self.n_features_in_:
            raise BadData(f"it has {columns} columns, the first site {self.n_features_in_}")

    @property
    def _feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X: as in the first table, or x0, x1, and so on."""
        return tuple(map(str, getattr(self, "feature_names_in_", [f"x{i}" for i in range(self.n_features_in_)])))

    @property
    def _columns(self) -> tuple[str, ...]:
        """Names of the columns that the program reads."""
        return self._feature_names


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class ColumnRanges(JointEstimator):
    """An estimator on numeric columns with public ranges.

    Parameters
    ----------
    %(ranges)s
    """

    _constraints: ClassVar[Mapping[str, Constraint]] = {**JointEstimator._constraints, "ranges": optional(RANGES)}

    ranges: Mapping[str, tuple[float, float]] | None = None
    lower: ArrayLike | None = None
    upper: ArrayLike | None = None

    def _bounds(self) -> tuple[Floats | None, Floats | None]:
        """Lower and upper bound of each column, from `ranges` or from `lower` and `upper`; None if not given.

        This is the only place where the two forms are read.
        """
        if self.ranges is not None:
            if self.lower is not None or self.upper is not None:
                raise BadParameter("give ranges, or lower and upper, but not both")
            names = self._feature_names
            if strangers := [name for name in self.ranges if name not in names]:
                raise BadParameter(f"ranges has {strangers[0]!r}, which is not a column; columns: {', '.join(names)}")
            if lacking := [name for name in names if name not in self.ranges]:
                raise BadParameter(f"ranges has no range for column {lacking[0]!r}")
            # In the order of the columns, not of the dict.
            ends = np.array([self.ranges[name] for name in names], dtype=np.float64)
            return ends[:, 0].copy(), ends[:, 1].copy()
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if lower is not None and upper is not None and np.any(lower >= upper):
            at = int(np.argmax(lower >= upper))
            raise BadParameter(
                f"the range of column {self._feature_names[at]!r} must have its lower end first, got {lower[at]:g} to "
                f"{upper[at]:g}"
            )
        return lower, upper

    def _by_column(self, which: str) -> Floats | None:
        """The parameter of this name with one number for each column; None if it is not given."""
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
        # A copy: a broadcast array is read-only and shares one number.
        return np.broadcast_to(values, (self.n_features_in_,)).copy()

    def _bounds_or_extremes(self, tables: Tables) -> tuple[Floats, Floats]:
        """Lower and upper bound of each column: as given, or in a seeded run the extremes of the data."""
        lower, upper = self._bounds()
        if lower is not None and upper is not None:
            return lower, upper
        if self.random_state is None:
            raise BadParameter(
                "give public ranges of the columns (ranges, or lower and upper): bounds must not depend on private data"
            )
        # Without the columns that `fit` appends: the response, weights, offsets.
        own = slice(self.n_features_in_)
        rows = np.concatenate([np.asarray(units.rows, dtype=np.float64)[:, own] for units in tables.values()])
        lower = np.nanmin(rows, axis=0) if lower is None else lower
        upper = np.nanmax(rows, axis=0) if upper is None else upper
        self._note("no ranges were given, so the extremes of the data were taken, which is not private")
        # A range of width 0 would be a division by zero in the program.
        return lower, np.where(upper > lower, upper, lower + self._width_of_constant(lower))

    def _width_of_constant(self, value: Floats) -> Floats:
        """Width of the range of a column that is constant in a seeded run without ranges."""
        return np.ones_like(value)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class RangedEstimator(ColumnRanges):
    """An estimator on numeric columns with public ranges, or with a public bound on the norm of each row.

    Parameters
    ----------
    %(row_clip)s
    %(missing)s
    """

    clip: float | None = None
    missing: Missing = None

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._bounds()
        clip = self.clip
        if clip is None and lower is None and upper is None:
            if self.random_state is None:
                raise BadParameter(
                    "give public ranges (ranges, or lower and upper) or a clip: bounds must not depend on private data"
                )
            clip = max(_largest_norm(units) for units in tables.values()) or 1.0
            self._note(f"no bounds were given, so the clip {clip:g} was taken from the data, which is not private")
        return super()._parameters(tables) | {"lower": lower, "upper": upper, "clip": clip}

    @property
    def _middle(self) -> Floats:
        """Origin of the program's coordinates: the middle of each range, or zero."""
        lower, upper = self._bounds()
        return np.zeros(self.n_features_in_) if lower is None or upper is None else (lower + upper) / 2

    @property
    def _half(self) -> Floats:
        """Unit of the program's coordinates: half of each range, or one."""
        lower, upper = self._bounds()
        return np.ones(self.n_features_in_) if lower is None or upper is None else (upper - lower) / 2


class JointTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, JointEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator whose fitted model transforms rows of one site, at the site."""

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
    """Convert errors of NumPy or Python about parameters to `BadParameter`."""
    try:
        yield
    except ZerosumError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise BadParameter(f"a parameter cannot be used: {error}") from error


@contextmanager
def bad_data() -> Iterator[None]:
    """Convert errors of scikit-learn about data to `BadData` with the same message; no value of the data is quoted."""
    try:
        yield
    except ZerosumError:
        raise
    except (ValueError, OverflowError) as error:
        # scikit-learn quotes the cell. It is a value of a person, so that it goes to the detail, which stays here.
        if "could not convert" in str(error):
            raise BadData(f"some values are not numbers{comma_advice([str(error)])}", detail=str(error)) from None
        raise BadData(str(error)) from error


def comma_advice(texts: Iterable[str]) -> str:
    """Advice for texts with a number with a decimal comma, to be added to a message; empty for others.

    Parameters
    ----------
    texts : iterable of str
        Cells, or a message that quotes one.
    """
    if not any(_DECIMAL_COMMA.search(text) for text in texts):
        return ""
    return ": some have a decimal comma; read them with pandas.read_csv(..., decimal=',') or a like option"


def several_tables(X: object, depths: tuple[int, ...]) -> bool:
    """Whether X is a sequence with the data of several sites, not the data of one site written as a sequence."""
    return isinstance(X, list | tuple) and all(isinstance(each, Units) or dimensions(each) in depths for each in X)


def dimensions(data: object) -> int:
    """Nesting of data: 1 for a row, 2 for a table of rows, 3 for persons with a table each.

    >>> dimensions([1.0, 2.0]), dimensions(np.ones((2, 2))), dimensions([np.ones((3, 2)), np.ones((4, 2))])
    (1, 2, 3)
    """
    if isinstance(data, list | tuple):
        return 1 + dimensions(data[0]) if data else 1
    return int(getattr(data, "ndim", 0))


def _by_name(X: object) -> bool:
    return isinstance(X, Mapping) and not issparse(X)  # SciPy's `dok_array` is a dict


def _selection(units: Units, which: NDArray[np.intp]) -> Units:
    if units.offsets is None:
        return Units(units.rows[which])
    # Units with several rows: `which` counts units and not rows.
    every = list(units.each())
    return Units.from_list([every[at] for at in which])


def _largest_norm(units: Units) -> float:
    # A missing value has no length of its own; only for seeded runs, so that an estimate is enough.
    norms = (np.linalg.norm(np.nan_to_num(np.asarray(block.rows), nan=0.0), axis=1) for block in units.blocks())
    return max(float(np.max(each)) for each in norms)
