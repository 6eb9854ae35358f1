"""Private covariance over sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import RangedEstimator
from zerosum.estimators.documentation import documented


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Covariance(RangedEstimator):
    """Private mean, covariance and correlation of the columns over sites, from one joint release.

    Parameters
    ----------
    mean_weight : float, default=0.5
        Weight of the mean in the joint release, as a fraction of the clip. A larger weight makes the mean more accurate
        and the covariance less.
    %(ranges)s
    %(row_clip)s
    %(missing)s
    %(privacy)s

    Attributes
    ----------
    covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the columns. Negative eigenvalues, which only noise can cause, are set to zero.
    noise_std_ : ndarray of shape (n_features, n_features)
        Standard deviation that privacy adds to each covariance, before eigenvalues are set to zero.
    location_ : ndarray of shape (n_features,)
        Mean of each column.
    location_noise_std_ : ndarray of shape (n_features,)
        Standard deviation that privacy adds to each mean.
    correlation_ : ndarray of shape (n_features, n_features)
        Correlation of the columns, from `covariance_`.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=2000) for _ in range(3)]
    >>> found = Covariance(lower=-4, upper=4, epsilon=2.0, random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(found.correlation_[0, 1] - 0.8) < 0.1), found.location_.shape
    (True, (2,))
    """

    _algorithm: ClassVar[str] = "covariance"

    mean_weight: float = 0.5

    def _learn(self, estimate: Estimate) -> None:
        self.location_: Floats = np.asarray(estimate["mean"])
        self.covariance_: Floats = np.asarray(estimate["covariance"])
        self.correlation_: Floats = np.asarray(estimate["correlation"])
        self.location_noise_std_: Floats = np.asarray(estimate["mean_noise_std"])
        self.noise_std_ = self._covariance_noise(np.asarray(estimate["moment_noise_std"]))

    def _covariance_noise(self, moment_std: Floats) -> Floats:
        """Standard deviation of the noise of each covariance, from that of each second moment (n_features, n_features).

        A covariance is a second moment minus the product of two means. With noise e in the mean m, the noise of
        (m + e)(m + e)' is m e' + e m' + e e', independent of the noise of the moment. With s the standard deviation of
        e its variance is (m_i s_j)^2 + (m_j s_i)^2 + (s_i s_j)^2. On the diagonal both factors have the same noise, and
        the variance is twice that.
        """
        mean, std = self.location_ - self._middle, self.location_noise_std_
        crossed = np.outer(mean, std) ** 2
        product = crossed + crossed.T + np.outer(std, std) ** 2
        return np.asarray(np.sqrt(moment_std**2 + product * (1 + np.eye(len(mean)))))
