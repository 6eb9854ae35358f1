"""Private k-means over sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import JointTransformer, RangedEstimator, several_tables
from zerosum.estimators.documentation import documented


@documented
@dataclass(eq=False, repr=False)
class KMeans(JointTransformer, RangedEstimator):
    """Private k-means over sites, in a fixed number of rounds.

    The start is that of a mixture (`GaussianMixture`). Then come rounds of Lloyd's algorithm on the residuals of each
    cluster, so that noise grows with the size of a cluster and not with the public range.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    rounds : int, default=3
        Rounds of Lloyd's algorithm after the start. The last one has half of their budget.
    start : int, default=0
        Public seed of the start. It does not affect privacy.
    early_share : float, optional
        Share of the budget of all releases before Lloyd's rounds. By default it follows from the noise.
    %(rows_and_privacy)s

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres of the clusters. A centre whose count is below the noise keeps its place of the round before.
    counts_ : ndarray of shape (n_clusters,)
        Noisy number of units that are nearest to each centre of the round before; it can be negative.
    counts_noise_std_ : float
        Standard deviation that privacy adds to each count.
    scale_ : ndarray of shape (n_features,)
        Divisor of each column before distances are computed: half its public range, or one.
    %(fitted)s

    %(notes)s

    There is no `labels_`: the cluster of a row is as private as the row. A site computes it with `predict`.

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.vstack([rng.normal(middle, 0.2, size=(300, 2)) for middle in (-2, 2)]) for _ in range(3)]
    >>> found = KMeans(n_clusters=2, lower=-4, upper=4, random_state=0, data="synthetic").fit(sites)
    >>> np.sort(found.cluster_centers_[:, 0]).round().tolist(), len(set(found.predict([[-2, -2], [2, 2]]).tolist()))
    ([-2.0, 2.0], 2)
    """

    _algorithm: ClassVar[str] = "k-means"

    n_clusters: int = 8
    _: KW_ONLY
    rounds: int = 3
    start: int = 0
    early_share: float | None = None

    def fit_predict(self, X: Any, y: object = None, *, sites: ArrayLike | None = None) -> Any:
        """Fit, and the nearest centre of each row: what each site computes of its own rows with `predict`.

        Parameters
        ----------
        X, y, sites
            As for `fit`.

        Returns
        -------
        ndarray of shape (rows,), list or dict
            An array for one table; for several tables a list, or a dict if they have names.
        """
        self.fit(X, y, sites=sites)
        if isinstance(X, Mapping):
            return {name: self.predict(rows) for name, rows in X.items()}
        return [self.predict(rows) for rows in X] if several_tables(X, (2,)) else self.predict(X)

    def transform(self, X: ArrayLike) -> Floats:
        """Distance of each row from each centre, in columns divided by `scale_`.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows, n_clusters)
            Distances of each row.
        """
        # In the coordinates of the fit, so that the nearest centre is the one to which the fit assigned a row.
        rows, centers = self._own_rows(X) / self.scale_, self.cluster_centers_ / self.scale_
        return np.stack([np.linalg.norm(rows - center, axis=1) for center in centers], axis=1)

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The nearest centre of each row.

        Parameters
        ----------
        %(rows_to)s
        ndarray of shape (rows,)
            Positions in `cluster_centers_`.
        """
        return np.asarray(np.argmin(self.transform(X), axis=1))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _learn(self, estimate: Estimate) -> None:
        self.cluster_centers_: Floats = np.asarray(estimate["centers"])
        self.counts_: Floats = np.asarray(estimate["counts"])
        self.counts_noise_std_ = float(estimate["count_noise_std"][0])
        self.scale_ = self._half
