"""Private k-means over sites.

Tested in tests/estimators/test_table_estimators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import DataMark, JointTransformer, RangedEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class KMeans(JointTransformer, RangedEstimator):
    """Private k-means over sites, in a fixed number of rounds.

    Parameters
    ----------
    n_clusters : int, default=8
        How many centres to release.
    rounds : int, default=5
        How often rows are assigned to centres, the first time to many public cells. Each costs as much.
    start : int, default=0
        A seed for the public cells and nothing else: no privacy depends on it.
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
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The centres. One whose count is lost in the noise stays where it was.
    counts_ : ndarray of shape (n_clusters,)
        How many units are nearest to each centre of the round before; noisy, and negative at times.
    noise_std_ : float
        The standard deviation that privacy's noise gives each count.
    scale_ : ndarray of shape (n_features,)
        What columns are divided by before distances are taken: half their public range, or one.
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

    No `labels_` are kept: whose row lies where is for whoever holds the row, with `predict`.

    Examples
    --------
    A reproduction run on synthetic data; leave `random_state` out, and say `unit`, to protect somebody.

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.vstack([rng.normal(middle, 0.2, size=(300, 2)) for middle in (-2, 2)]) for _ in range(3)]
    >>> found = KMeans(n_clusters=2, lower=-4, upper=4, random_state=0, data="synthetic").fit(sites)
    >>> np.sort(found.cluster_centers_[:, 0]).round().tolist(), len(set(found.predict([[-2, -2], [2, 2]]).tolist()))
    ([-2.0, 2.0], 2)
    """

    _algorithm: ClassVar[str] = "k-means"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        rounds: int = 5,
        start: int = 0,
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
        self.n_clusters = n_clusters
        self.rounds = rounds
        self.start = start

    def transform(self, X: ArrayLike) -> Floats:
        """The distance of each row from each centre, with columns divided by `scale_`, as clusters were found.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about their distances is private: they are for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows, n_clusters)
            One row of distances for each row.
        """
        rows, centers = self._own_rows(X) / self.scale_, self.cluster_centers_ / self.scale_
        return np.stack([np.linalg.norm(rows - center, axis=1) for center in centers], axis=1)

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Which centre is nearest to each row.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site. Nothing about their clusters is private: they are for whoever holds the rows.

        Returns
        -------
        ndarray of shape (rows,)
            Positions in `cluster_centers_`.
        """
        return np.asarray(np.argmin(self.transform(X), axis=1))

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        own = {"n_clusters": self.n_clusters, "rounds": self.rounds, "start": self.start}
        return super()._parameters(tables) | own

    def _learn(self, estimate: Estimate) -> None:
        self.cluster_centers_: Floats = np.asarray(estimate["centers"])
        self.counts_: Floats = np.asarray(estimate["counts"])
        self.noise_std_ = float(estimate["count_noise_std"][0])
        self.scale_ = self._half
