"""Private correlations over sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.estimators.base import RangedEstimator, Tables
from zerosum.estimators.documentation import documented
from zerosum.kernel.significance import Correction


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class Correlation(RangedEstimator):
    """Private correlations of all pairs of columns over sites, with intervals and p values that count the noise.

    Parameters
    ----------
    method : {"pearson", "spearman"}, default="pearson"
        Correlations of the values, or of their ranks between public bins.
    given : sequence of str, optional
        Columns whose linear effect is removed from all others: partial correlations.
    rank_share : float, default=0.3
        Share of the budget for the distribution functions that give ranks.
    bins : int, optional
        Number of bins of a distribution function; by default chosen from the noise.
    correction : {"none", "holm", "benjamini-hochberg"}, default="none"
        Adjustment of p values for the number of pairs.
    %(rows_and_privacy)s

    Attributes
    ----------
    correlation_ : ndarray of shape (columns, columns)
        Correlations of the columns that are not in `given`.
    noise_std_ : ndarray of shape (columns, columns)
        Standard deviation that privacy adds to each correlation; 1 for one that the noise hides.
    correlation_interval_ : ndarray of shape (columns, columns, 2)
        Interval of 95 % for the correlation in the pooled data, from privacy alone.
    correlation_population_interval_ : ndarray of shape (columns, columns, 2)
        Interval of 95 % for the correlation in the population, from sampling and privacy.
    p_value_ : ndarray of shape (columns, columns)
        P value of the hypothesis of no correlation in the population.
    p_adjusted_ : ndarray of shape (columns, columns)
        Adjusted p values; only with a correction.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], size=2000) for _ in range(3)]
    >>> found = Correlation(lower=-4, upper=4, epsilon=2.0, random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(found.correlation_[0, 1] - 0.8) < 0.1), bool(found.p_value_[0, 1] < 0.001)
    (True, True)
    """

    _algorithm: ClassVar[str] = "correlation"

    method: Literal["pearson", "spearman"] = "pearson"
    given: Sequence[str] = ()
    rank_share: float = 0.3
    bins: int | None = None
    correction: Correction = "none"

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._bounds_or_extremes(tables)
        return super()._parameters(tables) | {"lower": lower, "upper": upper, "given": tuple(self.given)}

    def _learn(self, estimate: Estimate) -> None:
        self.correlation_: Floats = np.asarray(estimate["correlation"])
        # From privacy alone: sampling error is in the population interval only.
        self.noise_std_: Floats = np.asarray(estimate["correlation"].std)
        self.correlation_interval_: Floats = np.asarray(estimate["correlation_interval"])
        self.correlation_population_interval_: Floats = np.asarray(estimate["correlation_population_interval"])
        self.p_value_: Floats = np.asarray(estimate["p_value"])
        if "p_adjusted" in estimate:
            self.p_adjusted_: Floats = np.asarray(estimate["p_adjusted"])
