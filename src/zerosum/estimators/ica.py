"""Private independent components over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from zerosum.algorithms import Estimate
from zerosum.algorithms.metrics import Matched, matched
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import JointTransformer, Tables, bad_data, dimensions
from zerosum.estimators.documentation import documented
from zerosum.kernel.schemes import Scheme
from zerosum.statistics.scatter import per_recording_rows

# Rows of a synthetic person, in a seeded run on rows without persons; at most a quarter of the rows of a site.
_ROWS_PER_PERSON = 50


@documented
@dataclass(eq=False, repr=False)
class ICA(JointTransformer):
    """Private independent components over sites.

    Temporal ICA: all persons share the maps, and each has their own time courses. Only maps are released.

    Parameters
    ----------
    n_components : int, default=2
        Number of components, at least two.
    solver : {"auto", "fixed-point", "second-order"}, default="auto"
        "fixed-point" starts from fourth cumulants and corrects round by round, for sources with any tails.
        "second-order" diagonalises second moments by frequency. "auto" takes "second-order" if `band` is given or
        `seconds` is below 5.
    window : int, optional
        Number of rows over which the size of a source is averaged; by default 9, or 1 if rows are autocorrelated.
    basis : array of shape (n_features, k), optional
        Public basis; maps lie in the span of its columns.
    per_recording : {"none", "center", "standardise"}, default="center"
        Operation on each column of each recording before all others.
    n_passes : int, optional
        Number of releases that reduce the dimensions; by default 2.
    rounds : int, optional
        Number of rounds of the fixed-point solver; by default the planner's choice.
    start_share : float, optional
        Share for the fourth cumulants, of the budget that the reduction leaves; by default the planner's choice.
    reduction_share : float, optional
        Share of the budget for the reduction of dimensions; by default the planner's choice.
    left_dimensions : int, optional
        Number of dimensions after the first release of the reduction; by default the planner's choice.
    seconds : float, optional
        Time between rows. By default that of the recordings in `Units`.
    band : (float, float), optional
        Frequencies in hertz that the second-order solver uses; by default all that `seconds` resolves.
    bands : int, default=4
        Number of parts of the band.
    subspace_rounds : int, optional
        Beyond 2000 dimensions: number of rounds of the first release; by default the planner's choice.
    subspace_growth : float, optional
        Beyond 2000 dimensions: ratio of the share of the last of these rounds to that of the first.
    start : int, default=0
        Seed of the public first rotation. It does not affect privacy.
    %(privacy)s

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Unmixing matrix: time courses are rows @ components_.T.
    maps_ : ndarray of shape (n_components, n_features)
        Maps of norm 1, the strongest first; the largest entry of each is positive.
    mixing_ : ndarray of shape (n_features, n_components)
        Maps as columns; components_ @ mixing_ is the identity.
    strength_ : ndarray of shape (n_components,)
        Share of the reduced variance of each component.
    stability_ : ndarray of shape (n_components,)
        Expected correlation of each map with the map without noise.
    above_noise_ : int
        Number of components that are above the noise: of the dimensions of the last release of the reduction, and of
        the sources.
    n_components_ : int
        Number of components.
    %(fitted)s

    %(notes)s

    `unit` is "person" unless it is set, since a time course needs several rows. The effect of noise on a map is given
    by `stability_`, not by a standard deviation per entry.

    %(example)s

    >>> from zerosum.data.fmri import make_fmri
    >>> study = make_fmri(60, sites=3, components=3, points=80, side=6, noise=0.1)
    >>> sites = [study.observed(s) for s in range(3)]
    >>> ica = ICA(n_components=3, epsilon=20, random_state=0, data="synthetic").fit(sites)
    >>> bool(ica.match(study.maps).correlations.min() > 0.9), ica.privacy_.private
    (True, False)
    >>> [courses.shape for courses in ica.time_courses(study.observed(0)[:2])]
    [(80, 3), (80, 3)]
    """

    _algorithm: ClassVar[str] = "ica"
    _dimensions: ClassVar[tuple[int, ...]] = (3,)

    n_components: int = 2
    _: KW_ONLY
    solver: Literal["auto", "fixed-point", "second-order"] = "auto"
    window: int | None = None
    basis: ArrayLike | None = None
    per_recording: Literal["none", "center", "standardise"] = "center"
    n_passes: int | None = None
    rounds: int | None = None
    start_share: float | None = None
    reduction_share: float | None = None
    left_dimensions: int | None = None
    seconds: float | None = None
    band: tuple[float, float] | None = None
    bands: int = 4
    subspace_rounds: int | None = None
    subspace_growth: float | None = None
    start: int = 0

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None, people: ArrayLike | None = None) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        X : list or dict of sites' data, or the data of all persons
            The data of one site are `Units`, a list with an array (rows, n_features) for each person, or one array
            (persons, rows, n_features). The sites of a list are called "site 0", "site 1", and so on. One list or array
            of persons needs `sites`, and one array of rows needs `people` too. Under the schemes "pooled" and
            "non-private" one holder has all persons, and its halves become "site 0" and "site 1".
        y : None
            Ignored.
        sites : array, optional
            Name of the site that holds each person, or each row.
        people : array of shape (rows,), optional
            For one array of rows in order of time, the person of each row. A seeded run may leave it out; it takes
            pieces of 50 rows as persons and adds a note to `notes_`.

        %(fit_returns)s
        """
        return self._fit(lambda scheme: self._people(X, sites, people, scheme))

    def transform(self, X: ArrayLike) -> Floats:
        """Time courses of rows.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_components)
            Time courses.
        """
        return np.asarray(self._own_rows(X) @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Rows in the span of the maps that have these time courses.

        Parameters
        ----------
        X : array of shape (rows, n_components)
            Time courses.

        Returns
        -------
        ndarray of shape (rows, n_features)
            Rows in the units of the data.
        """
        return np.asarray(self._own_scores(X) @ self.mixing_.T)

    def time_courses(self, people: Any) -> list[Floats]:
        """Time courses of each person of one site, from recordings that are centred or scaled as in `fit`.

        They are as private as the recordings and must stay at the site.

        Parameters
        ----------
        people : Units, list of (rows, n_features) arrays, or array of shape (people, rows, n_features)
            The persons of one site.

        Returns
        -------
        list of ndarray of shape (rows, n_components)
            Time courses of each person.
        """
        check_is_fitted(self, "result_")
        if not isinstance(people, Units) and dimensions(people) != 3:
            raise BadData("time_courses takes the people of one site: Units, or an array for each person")
        units = self._named("this site", people, first=False)
        courses = []
        for recordings in units.recordings():
            # Prepared as in the fit: the unmixing matrix is for centred or scaled recordings.
            own = [np.asarray(per_recording_rows(rows, self.per_recording, np)) for rows, _seconds in recordings]
            courses.append(np.asarray(np.concatenate(own) @ self.components_.T))
        return courses

    def match(self, template: ArrayLike) -> Matched:
        """Assignment of maps to a template: maps_[order] * signs[:, None] is aligned with it.

        Parameters
        ----------
        template : array of shape (k, n_features)
            Maps of the template, at most as many as components.

        Returns
        -------
        Matched
            `order`, `signs` and absolute `correlations`, in the order of the template. The assignment is
            post-processing and costs no budget.
        """
        check_is_fitted(self, "result_")
        with bad_data():
            maps = np.atleast_2d(np.asarray(template, dtype=np.float64))
        return matched(self.maps_, maps)

    # ---- the data ---------------------------------------------------------------------------------------------

    def _people(self, X: Any, sites: ArrayLike | None, people: ArrayLike | None, scheme: Scheme) -> Tables:
        """The rows of all persons by site."""
        # Four forms of data: by site; one array by person; labelled rows; and, for seeded runs, rows alone.
        tables = self._given_or_cut(X, sites, people, scheme)
        # The check is on the form of the data, which is public; the number of rows of a person is private.
        if any(units.offsets is None for units in tables.values()):
            raise BadData("every person has a single row, which has no time course: group the rows of each person")
        return tables

    def _given_or_cut(self, X: Any, sites: ArrayLike | None, people: ArrayLike | None, scheme: Scheme) -> Tables:
        tables = self._by_site(X, sites)
        if tables is None and dimensions(X) == 3:
            tables = self._shared_out(self._units(X, first=True), sites, scheme, "person")
        if tables is not None:
            if people is not None:
                raise BadParameter(
                    "people= labels the rows of one array, but the rows of X are grouped by person already"
                )
            return tables
        rows = self._rows(X, first=True, ensure_min_samples=4, ensure_min_features=2)
        if people is not None:
            return self._labelled(rows, people, sites, scheme)
        if sites is None:
            return self._shared_out(self._cut(rows), None, scheme)
        by_row = self._shared_out(Units(rows), sites, scheme)
        return {name: self._cut(np.asarray(units.rows)) for name, units in by_row.items()}

    def _labelled(self, rows: Floats, people: ArrayLike, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """Rows by person, and persons by site. A person at two sites is refused: ledgers are by site."""
        whose = column_or_1d(people)
        check_consistent_length(rows, whose)
        units = Units.from_groups(rows, whose)
        if sites is None:
            return self._shared_out(units, None, scheme)
        where = column_or_1d(sites)
        check_consistent_length(rows, where)
        names = np.array([str(label) for label in where.tolist()])
        _, firsts, codes = np.unique(whose, return_index=True, return_inverse=True)
        # Each ledger would be charged for a part of the person only.
        if np.any(names[firsts][codes] != names):
            raise BadData("a label of people= has rows at two sites: give different persons different labels")
        return self._shared_out(units, names[firsts], scheme)

    def _units(self, data: Any, *, first: bool) -> Units:
        if isinstance(data, Units):
            return super()._units(data, first=first)
        depth = dimensions(data)
        if depth == 2:
            return self._cut(self._rows(data, first=first, ensure_min_features=2))
        if isinstance(data, list | tuple) and depth == 3:
            each = [self._rows(one, first=first and at == 0, ensure_min_features=2) for at, one in enumerate(data)]
            return Units.from_list(each)
        volumes = np.asarray(data, dtype=np.float64)
        if volumes.ndim != 3 or 0 in volumes.shape:
            raise BadData(
                "a site's data are Units, an array for each person, or one array of people, rows and columns, "
                f"got shape {volumes.shape}"
            )
        # People with equally many rows need no list of arrays.
        units = Units(volumes.reshape(-1, volumes.shape[2]), np.arange(len(volumes) + 1) * volumes.shape[1])
        units.check()
        self._take_columns(units.columns, first=first)
        return units

    def _cut(self, rows: Floats) -> Units:
        """Pieces of consecutive rows as persons; for seeded runs only."""
        if self.random_state is None:
            raise BadData(
                "X has rows without persons: pass people= with a label for each row, or give the data of each site as "
                "Units or as a list with an array for each person"
            )
        # At least two rows a person, and at least four persons where the rows suffice.
        length = min(_ROWS_PER_PERSON, max(2, len(rows) // 4))
        self._note(f"no people were given, so pieces of {length} rows were taken as persons")
        return Units.from_groups(rows, np.arange(len(rows)) // length)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _learn(self, estimate: Estimate) -> None:
        self.components_: Floats = np.asarray(estimate["unmixing"])
        self.maps_: Floats = np.asarray(estimate["maps"])
        self.mixing_: Floats = self.maps_.T.copy()
        self.strength_: Floats = np.asarray(estimate["strength"])
        self.stability_: Floats = np.asarray(estimate["stability"])
        self.above_noise_ = int(estimate["above_noise"][0])
        self.n_components_ = len(self.components_)
        if self.above_noise_ < self.n_components_:
            self._note(
                f"{self.above_noise_} of {self.n_components_} dimensions are above the noise: the other "
                "components are noise, even if stability_ is high"
            )
