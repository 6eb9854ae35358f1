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
    %(rows_and_privacy)s

    Attributes
    ----------
    covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the columns. Negative eigenvalues, which only noise can cause, are set to zero.
    noise_std_ : ndarray of shape (n_features, n_features)
        Standard deviation that privacy adds to each covariance, before eigenvalues are set to zero.
    covariance_interval_ : ndarray of shape (n_features, n_features, 2)
        Interval of 95 % for the covariance of the pooled data, from privacy alone.
    covariance_population_interval_ : ndarray of shape (n_features, n_features, 2)
        Interval of 95 % for the covariance of a normal population, from sampling and privacy.
    location_ : ndarray of shape (n_features,)
        Mean of each column.
    location_noise_std_ : ndarray of shape (n_features,)
        Standard deviation that privacy adds to each mean.
    correlation_ : ndarray of shape (n_features, n_features)
        Correlation of the columns, from `covariance_`.
    correlation_noise_std_ : ndarray of shape (n_features, n_features)
        Standard deviation that privacy adds to each correlation; 1 where a correlation is unknown.
    correlation_interval_ : ndarray of shape (n_features, n_features, 2)
        Interval of 95 % for the correlation in the pooled data, from privacy alone.
    correlation_population_interval_ : ndarray of shape (n_features, n_features, 2)
        Interval of 95 % for the correlation in a normal population, from sampling and privacy.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=2000) for _ in range(3)]
    >>> found = Covariance(lower=-4, upper=4, epsilon=2.0, random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(found.correlation_[0, 1] - 0.8) < 0.1), found.location_.shape
    (True, (2,))
    >>> low, high = found.correlation_interval_[0, 1]
    >>> bool(low < 0.8 < high)
    True
    """

    _algorithm: ClassVar[str] = "covariance"

    mean_weight: float = 0.5

    def _learn(self, estimate: Estimate) -> None:
        self.location_: Floats = np.asarray(estimate["mean"])
        self.covariance_: Floats = np.asarray(estimate["covariance"])
        self.correlation_: Floats = np.asarray(estimate["correlation"])
        self.location_noise_std_: Floats = np.asarray(estimate["mean_noise_std"])
        self.noise_std_: Floats = np.asarray(estimate["covariance"].std)
        self.correlation_noise_std_: Floats = np.asarray(estimate["correlation"].std)
        self.covariance_interval_: Floats = np.asarray(estimate["covariance_interval"])
        self.covariance_population_interval_: Floats = np.asarray(estimate["covariance_population_interval"])
        self.correlation_interval_: Floats = np.asarray(estimate["correlation_interval"])
        self.correlation_population_interval_: Floats = np.asarray(estimate["correlation_population_interval"])
