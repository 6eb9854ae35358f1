"""Private principal components over sites."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import JointTransformer, RangedEstimator
from zerosum.estimators.documentation import documented


@documented
@dataclass(eq=False, repr=False)
class PCA(JointTransformer, RangedEstimator):
    """Private principal components over sites.

    Parameters
    ----------
    n_components : int, default=2
        Number of components.
    %(ranges)s
    %(row_clip)s
    %(missing)s
    centering : {"auto", "ranges", "none"}, default="auto"
        Centre of the rows: the centre of the units, which is estimated together with the clip for about a tenth of mu
        squared ("auto"), the middle of the ranges, or zero.
    look_share : float, optional
        Share of the budget for each release that estimates this centre; by default the planner's choice.
    small_looks : int, optional
        Number of these releases, 2 or 4; by default 4 if the noise is large.
    scaling : {"none", "ranges"}, default="none"
        Whether columns are divided by half their public range, at no cost. Components are in these units.
    shrink : bool, default=True
        Whether columns that are weak relative to the noise get smaller weights before the decomposition.
    per_recording : {"none", "center", "standardise"}, default="none"
        Operation on the rows of each recording before all others.
    normalise : bool, default=True
        If the centre is not estimated: whether the matrix of every unit is divided by its norm, so that all units have
        the same weight, or only bounded by `matrix_clip`.
    matrix_clip : float, optional
        Bound on the norm of the matrix of a unit if it is not normalised; by default the largest norm that the ranges
        or the clip allow.
    n_passes : int, optional
        Number of releases of the matrix, 1 or 2; by default 2 if `per_recording` is set, else 1.
    rounded : bool, optional
        Whether records enter the matrix as numbers of 11 bits, which is faster; by default if the rounding error is far
        below the noise.
    solver : {"auto", "matrix", "subspace"}, default="auto"
        Release the matrix, or in rounds its product with the current basis.
    rounds : int, optional
        Number of rounds of the subspace solver; by default the planner's choice.
    growth : float, optional
        Subspace solver: ratio of the share of the last round to that of the first; by default the planner's choice.
    extra : int, optional
        Subspace solver: number of columns of the basis beyond `n_components`; by default the planner's choice.
    start : int, default=0
        Seed of the public first basis. It does not affect privacy.
    %(privacy)s

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Components as rows of norm 1; the largest entry of each is positive.
    explained_variance_ : ndarray of shape (n_components,)
        Eigenvalues of the mean of the units' matrices, corrected for the noise.
    explained_variance_noise_std_ : ndarray of shape (n_components,)
        Standard deviation that privacy adds to each eigenvalue.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Eigenvalues over the trace of the matrix; only if the matrix is released once.
    mean_ : ndarray of shape (n_features,)
        Centre of the rows.
    scale_ : ndarray of shape (n_features,)
        Divisor of each column after centring.
    noise_edge_ : float
        Largest eigenvalue that noise alone is expected to reach.
    above_noise_ : int
        Number of components with an eigenvalue above it.
    n_components_ : int
        Number of components.
    %(fitted)s

    %(notes)s

    The noise of a component is not one number per entry: compare its eigenvalue with `noise_edge_`.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.normal(size=(500, 3)) * [3, 1, 0.1] for _ in range(3)]
    >>> pca = PCA(n_components=1, lower=-10, upper=10, random_state=0, data="synthetic").fit(sites)
    >>> int(np.argmax(pca.components_[0])), pca.transform(sites[0]).shape, pca.privacy_.private
    (0, (500, 1), False)
    """

    _algorithm: ClassVar[str] = "pca"

    n_components: int = 2
    _: KW_ONLY
    centering: Literal["auto", "ranges", "none"] = "auto"
    look_share: float | None = None
    small_looks: Literal[2, 4] | None = None
    scaling: Literal["none", "ranges"] = "none"
    shrink: bool = True
    per_recording: Literal["none", "center", "standardise"] = "none"
    normalise: bool = True
    matrix_clip: float | None = None
    n_passes: Literal[1, 2] | None = None
    rounded: bool | None = None
    solver: Literal["auto", "matrix", "subspace"] = "auto"
    rounds: int | None = None
    growth: float | None = None
    extra: int | None = None
    start: int = 0

    def transform(self, X: ArrayLike) -> Floats:
        """Scores of each row on the components.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_components)
            Scores.
        """
        rows = self._own_rows(X)
        # Components are orthonormal in the scaled columns.
        return np.asarray((rows - self.mean_) / self.scale_ @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Rows in the span of the components that have these scores.

        Parameters
        ----------
        X : array of shape (rows, n_components)
            Scores.

        Returns
        -------
        ndarray of shape (rows, n_features)
            Rows in the units of the data.
        """
        return np.asarray(self._own_scores(X) @ self.components_ * self.scale_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _learn(self, estimate: Estimate) -> None:
        self.components_: Floats = np.asarray(estimate["components"])
        self.explained_variance_: Floats = np.asarray(estimate["eigenvalues"])
        self.explained_variance_noise_std_: Floats = np.asarray(estimate["eigenvalue_std"])
        # Without centring the components are directions about 0, although a mean may have been released.
        about_zero = self.centering == "none"
        self.mean_: Floats = np.zeros(self.n_features_in_) if about_zero else np.asarray(estimate["mean"])
        self.scale_: Floats = np.asarray(estimate["scale"])
        self.n_components_ = len(self.components_)
        self.noise_edge_ = float(estimate["noise_edge"][0])
        self.above_noise_ = int(estimate["above_noise"][0])
        if "total" in estimate:
            # The trace is released with noise, which may bring it below the sum of the eigenvalues.
            total = max(float(estimate["total"][0]), float(np.sum(self.explained_variance_)), 1e-300)
            self.explained_variance_ratio_ = self.explained_variance_ / total
