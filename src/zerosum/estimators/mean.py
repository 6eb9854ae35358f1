"""Private mean over sites."""

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
class Mean(RangedEstimator):
    """Private mean of each column over sites.

    Every unit has weight one: a unit with several rows counts with their mean.

    Parameters
    ----------
    %(ranges)s
    %(row_clip)s
    missing : float, str or dict, optional
        Rule for missing values (NaN), for all columns or by column name: a number that replaces them; "own-rows", the
        mean of the same unit's other rows (the middle of the range if the unit has no value); or "observed", which
        takes the mean over the units that are observed in the column. By default missing values are refused.
    %(privacy)s

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Mean of each column.
    noise_std_ : ndarray of shape (n_features,)
        Standard deviation that privacy adds to each mean. It does not include the variation between units.
    observed_ : ndarray of shape (n_features,)
        Noisy number of units that are observed in each column; only with the rule "observed".
    observed_noise_std_ : ndarray of shape (n_features,)
        Standard deviation that privacy adds to each of these numbers.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = {name: rng.normal([50, 120], [10, 15], size=(400, 2)) for name in ("north", "east", "south")}
    >>> mean = Mean(ranges={"x0": (0, 100), "x1": (50, 250)}, random_state=0, data="synthetic").fit(sites)
    >>> bool(np.all(np.abs(mean.mean_ - [50, 120]) < 4 * mean.noise_std_ + 1)), mean.privacy_.private
    (True, False)
    """

    _algorithm: ClassVar[str] = "mean"

    def _learn(self, estimate: Estimate) -> None:
        self.mean_: Floats = np.asarray(estimate["mean"])
        self.noise_std_: Floats = np.asarray(estimate["noise_std"])
        if "observed" in estimate:
            self.observed_: Floats = np.asarray(estimate["observed"])
            self.observed_noise_std_: Floats = np.asarray(estimate["observed"].std)
