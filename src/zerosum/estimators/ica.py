"""Private independent components over sites.

Tested in tests/estimators/test_ica_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from zerosum.algorithms import Estimate
from zerosum.algorithms.metrics import Matched, matched
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import DataMark, JointTransformer, Tables, bad_data, dimensions
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.statistics.scatter import per_recording_rows
from zerosum.study import DEFAULT_SCHEME, Budget, Unit

_PIECE = 50  # rows that stand for a person in a seeded run that names none, or a quarter of what a site has


class ICA(JointTransformer):
    """Private independent components over sites.

    Temporal ICA: maps that all people share, with time courses of their own in each. Only maps are released.

    Parameters
    ----------
    n_components : int, default=2
        How many components to release, at least two.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    solver : {"auto", "fixed-point", "second-order"}, default="auto"
        `fixed-point` starts from fourth cumulants and corrects round by round, whatever the tails of the sources are;
        `second-order` diagonalises second moments by frequency.
        `auto` takes the latter where a band is given or `seconds` is below 5.
    basis : array of shape (n_features, k), optional
        Public: maps are looked for in the span of its columns.
    per_recording : {"none", "center", "standardise"}, default="center"
        What is done first to each recording, column by column.
    n_passes : int, optional
        Looks in which dimensions are reduced, by default the algorithm's own.
    rounds : int, optional
        Rounds of the fixed-point solver, by default the planner's choice.
    seconds : float, optional
        Between rows. Clocks of `Units` count where this is left out.
    band : (float, float), optional
        The frequencies in hertz that the second-order solver looks at, by default up to what `seconds` resolves.
    bands : int, default=4
        How many parts it is cut into.
    scheme : str or Scheme, default="secure-sum"
        How sites' noise combines.
    colluders : int, optional
        Sites that may collude with the coordinator, by default a third less one, at least one.
    dropouts : int, default=0
        Sites that may be lost on the way.
    unit : "person" or "record", optional
        What is protected: whoever owns the rows of a unit, or a single row. A person unless told, since
        only whoever owns several rows has a time course.
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
    components_ : ndarray of shape (n_components, n_features)
        What unmixes: time courses are rows @ components_.T.
    maps_ : ndarray of shape (n_components, n_features)
        The maps, the strongest first, norm 1, the largest entry of each positive.
    mixing_ : ndarray of shape (n_features, n_components)
        The maps as columns: components_ @ mixing_ is the identity.
    strength_ : ndarray of shape (n_components,)
        The share of the reduced variance that each makes up.
    stability_ : ndarray of shape (n_components,)
        The correlation that each is expected to have with what it would be without noise.
    above_noise_ : int
        How many dimensions stood above the noise of the last look, and of these how many sources are more than noise.
    n_components_ : int
        How many components there are.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, where the first site's table has names.
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
    A reproduction run on synthetic data; leave `random_state` out to protect somebody.

    >>> from zerosum.data.fmri import make_fmri
    >>> made_up = make_fmri(60, sites=3, components=3, points=80, side=6, noise=0.1)
    >>> sites = [made_up.observed(s) for s in range(3)]
    >>> ica = ICA(n_components=3, epsilon=20, random_state=0, data="synthetic").fit(sites)
    >>> bool(ica.match(made_up.maps).correlations.min() > 0.9), ica.privacy_.private
    (True, False)
    >>> [courses.shape for courses in ica.time_courses(made_up.observed(0)[:2])]
    [(80, 3), (80, 3)]
    """

    _algorithm: ClassVar[str] = "ica"
    _dimensions: ClassVar[tuple[int, ...]] = (3,)

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        solver: Literal["auto", "fixed-point", "second-order"] = "auto",
        basis: ArrayLike | None = None,
        per_recording: Literal["none", "center", "standardise"] = "center",
        n_passes: int | None = None,
        rounds: int | None = None,
        seconds: float | None = None,
        band: tuple[float, float] | None = None,
        bands: int = 4,
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
        self.n_components = n_components
        self.solver = solver
        self.basis = basis
        self.per_recording = per_recording
        self.n_passes = n_passes
        self.rounds = rounds
        self.seconds = seconds
        self.band = band
        self.bands = bands

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None, people: ArrayLike | None = None) -> Self:
        """Run one study over the sites, and spend what it costs at each of them.

        Parameters
        ----------
        X : list or dict of sites' data, or all people's
            One site's data are `Units`, a list with an array (rows, n_features) for each person, or one array (people,
            rows, n_features). Sites are called "site 0", "site 1", ... in a list. One list or array of people needs
            `sites`, and one array of rows `people` too; under the schemes "pooled" and "non-private" one holder
            has all people, and its halves become "site 0" and "site 1".
        y : None
            Ignored.
        sites : array, optional
            The name of the site that holds each person, or each row.
        people : array of shape (rows,), optional
            For one array of rows, in order of time, whose each is. Only a seeded run may do without: it takes pieces of
            50 rows for people, and says so in `notes_`.

        Returns
        -------
        self
            The fitted estimator. If the fit fails, what the last one learned is kept.

        Raises
        ------
        ZerosumError
            What is wrong with the parameters or the data, or which site refuses and why.
        """
        return self._fit(lambda scheme: self._people(X, sites, people, scheme))

    def transform(self, X: ArrayLike) -> Floats:
        """The time courses of these rows.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about their time courses is private: they are for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_components)
            The time courses.
        """
        return np.asarray(self._own_rows(X) @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """The rows that have these time courses and lie in the span of the maps.

        Parameters
        ----------
        X : array of shape (rows, n_components)
            Time courses.

        Returns
        -------
        ndarray of shape (rows, n_features)
            The rows.
        """
        return np.asarray(self._own_scores(X) @ self.mixing_.T)

    def time_courses(self, people: Any) -> list[Floats]:
        """The time courses of each person of one site, whose recordings are first centred or scaled as in `fit`.

        Nothing about them is private: they stay at the site.

        Parameters
        ----------
        people : Units, list of (rows, n_features) arrays, or array of shape (people, rows, n_features)
            The people of one site.

        Returns
        -------
        list of ndarray of shape (rows, n_components)
            The time courses of each.
        """
        check_is_fitted(self, "result_")
        if not isinstance(people, Units) and dimensions(people) != 3:
            raise BadData("time_courses takes the people of one site: Units, or an array for each person")
        units = self._named("this site", people, first=False)
        found = []
        for recordings in units.recordings():
            own = [np.asarray(per_recording_rows(rows, self.per_recording, np)) for rows, _seconds in recordings]
            found.append(np.asarray(np.concatenate(own) @ self.components_.T))
        return found

    def match(self, template: ArrayLike) -> Matched:
        """Which map stands for which of a template's: maps_[order] * signs[:, None] lines up with it.

        Parameters
        ----------
        template : array of shape (k, n_features)
            At most as many maps as there are components.

        Returns
        -------
        Matched
            `order`, `signs`, and the absolute `correlations`, each in the order of the template. It is
            post-processing and costs nothing.
        """
        check_is_fitted(self, "result_")
        with bad_data():
            maps = np.atleast_2d(np.asarray(template, dtype=np.float64))
        return matched(self.maps_, maps)

    # ---- what goes in ------------------------------------------------------------------------------------------

    def _people(self, X: Any, sites: ArrayLike | None, people: ArrayLike | None, scheme: Scheme) -> Tables:
        """Everybody's rows by site."""
        tables = self._given_or_cut(X, sites, people, scheme)
        if any(units.offsets is None for units in tables.values()):  # how they were handed in; how many rows is data
            raise BadData("every person has a single row, which has no time course: keep a person's rows together")
        return tables

    def _given_or_cut(self, X: Any, sites: ArrayLike | None, people: ArrayLike | None, scheme: Scheme) -> Tables:
        tables = self._by_site(X, sites)
        if tables is None and dimensions(X) == 3:
            tables = self._shared_out(self._units(X, first=True), sites, scheme, "person")
        if tables is not None:
            if people is not None:
                raise BadParameter("people= labels the rows of one array, but X says already whose rows are whose")
            return tables
        rows = self._rows(X, first=True, ensure_min_samples=4, ensure_min_features=2)
        if people is not None:
            return self._labelled(rows, people, sites, scheme)
        if sites is None:
            return self._shared_out(self._cut(rows), None, scheme)
        by_row = self._shared_out(Units(rows), sites, scheme)
        return {name: self._cut(np.asarray(units.rows)) for name, units in by_row.items()}

    def _labelled(self, rows: Floats, people: ArrayLike, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """Rows by person, and people by site: each must be at one only, since a guarantee is for a person at a site."""
        whose = column_or_1d(people)
        check_consistent_length(rows, whose)
        units = Units.from_groups(rows, whose)
        if sites is None:
            return self._shared_out(units, None, scheme)
        where = column_or_1d(sites)
        check_consistent_length(rows, where)
        names = np.array([str(label) for label in where.tolist()])
        _, firsts, codes = np.unique(whose, return_index=True, return_inverse=True)
        if np.any(names[firsts][codes] != names):
            raise BadData("somebody has rows at two sites: whoever is not the same person needs a label of its own")
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
        units = Units(volumes.reshape(-1, volumes.shape[2]), np.arange(len(volumes) + 1) * volumes.shape[1])
        units.check()
        self._take_columns(units.columns, first=first)
        return units

    def _cut(self, rows: Floats) -> Units:
        """Consecutive rows as if they were people."""
        if self.random_state is None:
            raise BadData(
                "whose rows are these? A person's rows belong together: pass people= with a label for each row, or "
                "give each site's data as Units or as a list with an array for each person"
            )
        length = min(_PIECE, max(2, len(rows) // 4))
        self._note(f"nobody's name was given, so pieces of {length} rows stand for people")
        return Units.from_groups(rows, np.arange(len(rows)) // length)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in ("basis", "n_passes", "rounds", "seconds", "band")}
        return {name: value for name, value in given.items() if value is not None} | {
            "n_components": self.n_components,
            "solver": self.solver,
            "per_recording": self.per_recording,
            "bands": self.bands,
        }

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
                f"{self.above_noise_} of {self.n_components_} dimensions stand above the noise: the rest of the space "
                "is noise, whatever stability_ says"
            )
