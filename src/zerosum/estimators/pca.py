"""Private principal components over sites.

Tested in tests/estimators/test_pca_estimator.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from zerosum import algorithms
from zerosum.arrays import Floats
from zerosum.estimators.base import JointEstimator, Tables
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.units import Units
from zerosum.report.record import Result
from zerosum.site.policy import Policy


class PCA(JointEstimator):
    """Private principal components over sites. Fitting again is spending again: each `fit` is a new, charged study.

    Parameters
    ----------
    n_components : int
        How many components to release.
    epsilon, delta : float
        What the whole fit may cost any one unit.
    lower, upper : float or array of shape (n_features,), optional
        Public ranges of the columns. One number stands for every column.
    clip : float, optional
        With ranges, a bound on the rows' norm once mapped to [-1, 1]; without, on the norm of the rows as they are.
        Ranges or a clip must be given, since data must not set their own bounds. Only a seeded run may do without:
        it takes the largest row norm, and says so in `notes_`.
    centering : {"dp", "ranges", "none"}
        About a private mean that costs `mean_share` of the budget, the middle of the ranges, or zero.
    mean_share : float
        What the mean costs, as a share of mu squared.
    scaling : {"none", "ranges"}
        Whether columns are divided by half their public range, which is free. Components then live in those units.
    shrink : bool
        Whether columns that drown in noise are weighed down before the matrix is decomposed.
    per_recording : {"none", "center", "standardise"}
        What is done first to the rows of a unit that owns several.
    normalise : bool
        Whether every unit's matrix is divided by its norm, so that all weigh the same, or only bounded.
    matrix_clip : float or "dp", optional
        The bound where matrices are not normalised, by default what rows inside the ranges or the clip reach. A paid
        one is a quantile of a noisy histogram of the matrices' norms, for a twentieth of mu squared.
    solver : {"auto", "matrix", "subspace"}, rounds : int, optional
        Release the matrix once, or its product with the current basis in `rounds` rounds, by default as many as the
        planner finds best.
    n_passes : {1, 2}, optional
        How often the matrix is looked at; twice by default where `per_recording` says that units own many rows.
    scheme : str or Scheme
        How sites' noise combines; `secure-sum` unless told.
    colluders, dropouts : int
        Sites that may collude with the coordinator (by default a third less one, at least one) or be lost.
    unit : {"record", "person"}
        What is protected: one row, or whoever owns the rows of one of the `Units`.
    policies : dict of str to Policy, optional
        Sites' own policies by name, used as they are. A site without one gets the default, with its name as the
        population: its spends are kept in the user's state folder.
    random_state : int, optional
        None draws noise from the operating system: the private way. A number makes a **reproduction run, which protects
        nobody**: whoever knows it can take the noise away. Sites without a policy of their own are then taken to
        hold synthetic data, and their ledgers are thrown away after the run; no ledger of the user's is touched.

    Attributes
    ----------
    components_ : (n_components, n_features), the largest entry of each positive.
    explained_variance_ : (n_components,), eigenvalues of the mean of the units' matrices, less what noise adds.
    explained_variance_ratio_ : (n_components,), only where the whole is known: with
        unit="record" and normalised rows it is 1.
    explained_variance_std_ : (n_components,), the standard deviation that noise gives each of them.
    mean_, scale_ : (n_features,), what rows are centred at and then divided by.
    noise_edge_ : float, the eigenvalue that noise alone reaches.
    above_noise_ : int, how many components stand above it.
    n_components_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    privacy_ : PrivacyReport, whom the fit protects, against whom, and how well.
    result_ : Result, the study's whole record.
    notes_ : tuple of str, what else a reader has to know about the run.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(size=(500, 3)) * [3, 1, 0.1] for _ in range(3)]
    >>> pca = PCA(n_components=1, lower=-10, upper=10, random_state=0).fit(sites)
    >>> int(np.argmax(pca.components_[0])), pca.transform(sites[0]).shape, pca.privacy_.private
    (0, (500, 1), False)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        clip: float | None = None,
        centering: Literal["dp", "ranges", "none"] = "dp",
        mean_share: float = 0.08,
        scaling: Literal["none", "ranges"] = "none",
        shrink: bool = True,
        per_recording: Literal["none", "center", "standardise"] = "none",
        normalise: bool = True,
        matrix_clip: float | Literal["dp"] | None = None,
        n_passes: Literal[1, 2] | None = None,
        solver: Literal["auto", "matrix", "subspace"] = "auto",
        rounds: int | None = None,
        scheme: str | Scheme = "secure-sum",
        colluders: int | None = None,
        dropouts: int = 0,
        unit: Literal["record", "person"] = "record",
        policies: Mapping[str, Policy] | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.lower = lower
        self.upper = upper
        self.clip = clip
        self.centering = centering
        self.mean_share = mean_share
        self.scaling = scaling
        self.shrink = shrink
        self.per_recording = per_recording
        self.normalise = normalise
        self.matrix_clip = matrix_clip
        self.n_passes = n_passes
        self.solver = solver
        self.rounds = rounds
        self.scheme = scheme
        self.colluders = colluders
        self.dropouts = dropouts
        self.unit = unit
        self.policies = policies
        self.random_state = random_state

    def fit(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Self:
        """Run one study over the sites, and spend what it costs at each of them.

        Parameters
        ----------
        X : list or dict of (rows, n_features) arrays or Units, or one array
            One table per site, called "site 0", "site 1", ... in a list. One array needs `sites`, but for the schemes
            "pooled" and "non-private", where one holder has all rows: its halves become "site 0" and "site 1".
        y : ignored
        sites : array of shape (rows,), optional
            For one array, the name of the site that holds each row.
        """
        scheme = self._checked_scheme()
        tables = self._tables(X, sites, scheme)
        bounds, notes = self._bounds(tables)
        program = algorithms.build(
            "pca",
            bounds
            | {
                "columns": self._columns,
                "n_components": self.n_components,
                "centering": self.centering,
                "mean_share": self.mean_share,
                "scaling": self.scaling,
                "shrink": self.shrink,
                "per_recording": self.per_recording,
                "normalise": self.normalise,
                "matrix_clip": self.matrix_clip,
                "n_passes": self.n_passes,
                "solver": self.solver,
                "rounds": self.rounds,
            },
        )
        result = self._run(program, tables, scheme)
        self._learn(result)
        self._forget("explained_variance_ratio_")
        # A row's normalised matrix has trace 1, a person's only Frobenius norm 1. The declared unit decides, which is
        # public: whether everybody happens to own a single row is data.
        if self.normalise and self.unit == "record":
            self.explained_variance_ratio_ = self.explained_variance_.copy()
        return self._keep(result, notes)

    def transform(self, X: ArrayLike) -> Floats:
        """The scores of each row. Nothing about them is private: they are for whoever holds the rows."""
        rows = self._own_rows(X)
        return np.asarray((rows - self.mean_) / self.scale_ @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """The rows that have these scores and lie in the span of the components."""
        return np.asarray(self._own_scores(X) @ self.components_ * self.scale_ + self.mean_)

    _dimensions = 2

    def _tables(self, X: Any, sites: ArrayLike | None, scheme: Scheme) -> Tables:
        """One validated table per site, by name."""
        tables = self._by_site(X, sites)
        if tables is not None:
            return tables
        return self._shared_out(Units(validate_data(self, X, dtype=np.float64, ensure_min_samples=2)), sites, scheme)

    def _units(self, data: Any, *, first: bool) -> Units:
        return Units(validate_data(self, data, dtype=np.float64, reset=first))

    def _bounds(self, tables: Tables) -> tuple[dict[str, Any], list[str]]:
        """What bounds the rows: as given, or in a seeded run as found."""
        notes, clip = [], self.clip
        lower, upper = self._by_column("lower"), self._by_column("upper")
        if clip is None and lower is None and upper is None:
            if self.random_state is None:
                raise ValueError(
                    "give public ranges (lower and upper) or a clip: bounds that are read off the data are not private"
                )
            clip = max(_largest_norm(units) for units in tables.values()) or 1.0
            notes.append(f"no bounds were given, so the clip, {clip:g}, was read off the data, which is not private")
        return {"lower": lower, "upper": upper, "clip": clip}, notes

    def _by_column(self, which: str) -> Floats | None:
        given = getattr(self, which)
        if given is None:
            return None
        values = np.asarray(given, dtype=np.float64)
        if values.shape not in ((), (self.n_features_in_,)):
            raise ValueError(
                f"{which} must be one number or one for each of the {self.n_features_in_} columns, "
                f"got shape {values.shape}"
            )
        return np.broadcast_to(values, (self.n_features_in_,)).copy()

    def _learn(self, result: Result) -> None:
        estimate = result.estimate
        self.components_: Floats = np.asarray(estimate["components"])
        self.explained_variance_: Floats = np.asarray(estimate["eigenvalues"])
        self.explained_variance_std_: Floats = np.asarray(estimate["eigenvalue_std"])
        about_zero = self.centering == "none"
        self.mean_: Floats = np.zeros(self.n_features_in_) if about_zero else np.asarray(estimate["mean"])
        self.scale_: Floats = np.asarray(estimate["scale"])
        self.n_components_ = len(self.components_)
        self.noise_edge_ = float(estimate["noise_edge"][0])
        self.above_noise_ = int(estimate["above_noise"][0])


def _largest_norm(units: Units) -> float:
    return max(float(np.max(np.linalg.norm(np.asarray(block.rows), axis=1))) for block in units.blocks())
