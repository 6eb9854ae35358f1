"""Private principal components over sites.

Tested in tests/estimators/test_pca_estimator.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import DataMark, JointTransformer, RangedEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class PCA(JointTransformer, RangedEstimator):
    """Private principal components over sites.

    Parameters
    ----------
    n_components : int, default=2
        How many components to release.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
    lower, upper : float or array of shape (n_features,), optional
        Public ranges of the columns. One number stands for every column.
    clip : float, optional
        With ranges, a bound on the rows' norm once mapped to [-1, 1]; without, on the norm of the rows as they are.
        Ranges or a clip must be given, since data must not set their own bounds. Only a seeded run may do without:
        it takes the largest row norm, and says so in `notes_`.
    missing : float, str or dict, optional
        What is done where a value is missing (NaN), for all columns or by the name of each: a number to take instead,
        or "own-rows", the mean of what is observed of the same unit's rows, and where nothing is, the middle of the
        range (0 without ranges). By default missing values are refused.
    centering : {"auto", "ranges", "none"}, default="auto"
        About the units' own centre, which is found on the way together with the clip and costs a tenth of mu squared
        or so; about the middle of the ranges; or about zero.
    scaling : {"none", "ranges"}, default="none"
        Whether columns are divided by half their public range, which is free. Components then live in those units.
    shrink : bool, default=True
        Whether columns that drown in noise are weighed down before the matrix is decomposed.
    per_recording : {"none", "center", "standardise"}, default="none"
        What is done first to the rows of a unit that owns several.
    normalise : bool, default=True
        Where nothing is found on the way: whether every unit's matrix is divided by its norm, so that all weigh the
        same, or only bounded.
    matrix_clip : float, optional
        The bound where matrices are not normalised, by default what rows inside the ranges or the clip reach.
    n_passes : 1 or 2, optional
        How often the matrix is looked at; twice by default where `per_recording` says that units own many rows.
    solver : {"auto", "matrix", "subspace"}, default="auto"
        Release the matrix once, or its product with the current basis in rounds.
    rounds : int, optional
        How many rounds the subspace solver has, by default as many as the planner finds best.
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
    components_ : ndarray of shape (n_components, n_features)
        The components, the largest entry of each positive.
    explained_variance_ : ndarray of shape (n_components,)
        Eigenvalues of the mean of the units' matrices, less what noise adds.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Only where the whole is known: where the matrix is released, in one look.
    explained_variance_std_ : ndarray of shape (n_components,)
        The standard deviation that noise gives each of the eigenvalues.
    mean_ : ndarray of shape (n_features,)
        What rows are centred at.
    scale_ : ndarray of shape (n_features,)
        What they are then divided by.
    noise_edge_ : float
        The eigenvalue that noise alone reaches.
    above_noise_ : int
        How many components stand above it.
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
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(size=(500, 3)) * [3, 1, 0.1] for _ in range(3)]
    >>> pca = PCA(n_components=1, lower=-10, upper=10, random_state=0, data="synthetic").fit(sites)
    >>> int(np.argmax(pca.components_[0])), pca.transform(sites[0]).shape, pca.privacy_.private
    (0, (500, 1), False)
    """

    _algorithm: ClassVar[str] = "pca"

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        clip: float | None = None,
        missing: Missing = None,
        centering: Literal["auto", "ranges", "none"] = "auto",
        scaling: Literal["none", "ranges"] = "none",
        shrink: bool = True,
        per_recording: Literal["none", "center", "standardise"] = "none",
        normalise: bool = True,
        matrix_clip: float | None = None,
        n_passes: Literal[1, 2] | None = None,
        solver: Literal["auto", "matrix", "subspace"] = "auto",
        rounds: int | None = None,
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
            lower=lower,
            upper=upper,
            clip=clip,
            missing=missing,
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
        self.centering = centering
        self.scaling = scaling
        self.shrink = shrink
        self.per_recording = per_recording
        self.normalise = normalise
        self.matrix_clip = matrix_clip
        self.n_passes = n_passes
        self.solver = solver
        self.rounds = rounds

    def transform(self, X: ArrayLike) -> Floats:
        """The scores of each row.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about their scores is private: they are for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_components)
            The scores.
        """
        rows = self._own_rows(X)
        return np.asarray((rows - self.mean_) / self.scale_ @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """The rows that have these scores and lie in the span of the components.

        Parameters
        ----------
        X : array of shape (rows, n_components)
            Scores.

        Returns
        -------
        ndarray of shape (rows, n_features)
            The rows.
        """
        return np.asarray(self._own_scores(X) @ self.components_ * self.scale_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {
            "n_components": self.n_components,
            "centering": self.centering,
            "scaling": self.scaling,
            "shrink": self.shrink,
            "per_recording": self.per_recording,
            "normalise": self.normalise,
            "matrix_clip": self.matrix_clip,
            "n_passes": self.n_passes,
            "solver": self.solver,
            "rounds": self.rounds,
        }

    def _learn(self, estimate: Estimate) -> None:
        self.components_: Floats = np.asarray(estimate["components"])
        self.explained_variance_: Floats = np.asarray(estimate["eigenvalues"])
        self.explained_variance_std_: Floats = np.asarray(estimate["eigenvalue_std"])
        about_zero = self.centering == "none"
        self.mean_: Floats = np.zeros(self.n_features_in_) if about_zero else np.asarray(estimate["mean"])
        self.scale_: Floats = np.asarray(estimate["scale"])
        self.n_components_ = len(self.components_)
        self.noise_edge_ = float(estimate["noise_edge"][0])
        self.above_noise_ = int(estimate["above_noise"][0])
        if "total" in estimate:  # released with the matrix; noise may bring it below what was found of it
            total = max(float(estimate["total"][0]), float(np.sum(self.explained_variance_)), 1e-300)
            self.explained_variance_ratio_ = self.explained_variance_ / total
