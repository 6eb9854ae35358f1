"""The private covariance over sites.

Tested in tests/estimators/test_table_estimators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import DataMark, RangedEstimator, Tables
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class Covariance(RangedEstimator):
    """The private mean, covariance and correlation of the columns over sites, from one joint release.

    Parameters
    ----------
    mean_weight : float, default=0.5
        A fraction of the clip: more moves accuracy from the covariance to the mean.
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
    location_ : ndarray of shape (n_features,)
        The mean of each column.
    covariance_ : ndarray of shape (n_features, n_features)
        Their covariance, with negative eigenvalues, which only noise makes, set to zero.
    correlation_ : ndarray of shape (n_features, n_features)
        The same as correlations.
    location_std_ : ndarray of shape (n_features,)
        The standard deviation that privacy's noise gives each mean.
    covariance_std_ : ndarray of shape (n_features, n_features)
        The standard deviation that it gives each covariance, before eigenvalues are set to zero.
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
    >>> sites = [rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=2000) for _ in range(3)]
    >>> found = Covariance(lower=-4, upper=4, epsilon=2.0, random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(found.correlation_[0, 1] - 0.8) < 0.1), found.location_.shape
    (True, (2,))
    """

    _algorithm: ClassVar[str] = "covariance"

    def __init__(
        self,
        *,
        mean_weight: float = 0.5,
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
        self.mean_weight = mean_weight

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        return super()._parameters(tables) | {"mean_weight": self.mean_weight}

    def _learn(self, estimate: Estimate) -> None:
        self.location_: Floats = np.asarray(estimate["mean"])
        self.covariance_: Floats = np.asarray(estimate["covariance"])
        self.correlation_: Floats = np.asarray(estimate["correlation"])
        self.location_std_: Floats = np.asarray(estimate["mean_noise_std"])
        self.covariance_std_ = self._spread(np.asarray(estimate["moment_noise_std"]))

    def _spread(self, moment_std: Floats) -> Floats:
        """A second moment less the product of two means, each mean with noise e of its own beside that of the moment.

        In (m + e)(m + e)' the noise is m e' + e m' + e e', whose entries are independent of the moment's. With s the
        standard deviation of e its variance is (m_i s_j)^2 + (m_j s_i)^2 + (s_i s_j)^2, and on the diagonal, where
        the two are the same, twice that.
        """
        mean, std = self.location_ - self._middle, self.location_std_
        crossed = np.outer(mean, std) ** 2
        product = crossed + crossed.T + np.outer(std, std) ** 2
        return np.asarray(np.sqrt(moment_std**2 + product * (1 + np.eye(len(mean)))))
