"""Survival curves over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import Tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.estimators.validation import LIST, TEXT, Constraint, optional
from zerosum.kernel.missing import Missing


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class SurvivalCurve(TableEstimator):
    """Private Kaplan-Meier curves over sites, by group, with intervals, medians and the log-rank test.

    All results come from one release of counts by group and bin of time.

    Parameters
    ----------
    edges : array of shape (bins + 1,)
        Public bins of time. Curves are given at their right ends. Units with longer times are censored at the last end.
    time, event : str, default="time", "event"
        Column of the time until the event or the end of observation, and column that states whether the event happened.
        In an array without names they are the first and the second column.
    by : str, optional
        Column of the groups; in an array, the third column.
    groups : sequence, optional
        Public values of that column.
    events : pair, default=(0, 1)
        Values of the column of events: first for no event, then for an event.
    missing : str, optional
        "observed" leaves out rows with a missing value. By default missing values are refused.
    %(privacy)s

    Attributes
    ----------
    groups_ : tuple of str
        Labels of the first axis of the arrays.
    times_ : ndarray of shape (bins,)
        Right ends of the bins.
    survival_ : ndarray of shape (groups, bins)
        Share of units without an event; NaN from the bin on where too few units are at risk.
    noise_std_ : ndarray of shape (groups, bins)
        Standard deviation that privacy adds to each share.
    survival_interval_ : ndarray of shape (groups, bins, 2)
        Interval of 95 % for the curve of the pooled data, from privacy alone.
    survival_population_interval_ : ndarray of shape (groups, bins, 2)
        Interval of 95 % for the curve of the population, from sampling and privacy.
    at_risk_ : ndarray of shape (groups, bins)
        Noisy number of units at risk.
    at_risk_noise_std_ : ndarray of shape (groups, bins)
        Standard deviation that privacy adds to each of these numbers.
    median_ : ndarray of shape (groups,)
        Median time; NaN if a curve stays above one half.
    log_rank_p_ : float
        P value of the test that all groups have the same curve, from sampling and privacy; only with groups.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> sites = [np.column_stack([rng.exponential(5, 600), np.ones(600)]) for _ in range(3)]
    >>> curve = SurvivalCurve(edges=range(11), random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(curve.survival_[0, 4] - np.exp(-1)) < 0.1)
    True
    """

    _algorithm: ClassVar[str] = "survival"
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **TableEstimator._constraints,
        "time": TEXT,
        "event": TEXT,
        "by": optional(TEXT),
        "groups": LIST,
        "events": LIST,
    }

    edges: ArrayLike | None = None
    time: str = "time"
    event: str = "event"
    by: str | None = None
    groups: Sequence[Any] = ()
    events: Sequence[Any] = (0, 1)
    missing: Missing = None

    @property
    def _declared(self) -> tuple[str, ...]:
        return (self.time, self.event, *(() if self.by is None else (self.by,)))

    @property
    def _categories(self) -> Levels:
        return {self.event: self.events} | ({} if self.by is None else {self.by: self.groups})

    def _names(self, columns: int) -> list[str]:
        if columns != len(self._declared):
            more = "; groups need `by`, the name of their column" if self.by is None and len(self.groups) else ""
            raise BadData(f"give {len(self._declared)} columns: {', '.join(self._declared)}, got {columns}{more}")
        return list(self._declared)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if self.edges is None:
            raise BadParameter("give the public edges of the bins of time: edges=[0, 1, 2, ...]")
        edges = np.asarray(self.edges, dtype=np.float64)
        own = {"edges": edges, "events": tuple(self.events), "groups": tuple(self.groups)}
        return super()._parameters(tables) | own

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = estimate["survival"].axes[0].labels
        # A curve steps at the end of each bin, the first time at which its events are known to have happened.
        self.times_: Floats = np.asarray(self.edges, dtype=np.float64)[1:]
        self.survival_: Floats = np.asarray(estimate["survival"])
        self.noise_std_: Floats = np.asarray(estimate["survival"].std)
        self.survival_interval_: Floats = np.asarray(estimate["survival_interval"])
        self.survival_population_interval_: Floats = np.asarray(estimate["survival_population_interval"])
        self.at_risk_: Floats = np.asarray(estimate["at_risk"])
        self.at_risk_noise_std_: Floats = np.asarray(estimate["at_risk"].std)
        self.median_: Floats = np.asarray(estimate["median"])
        # A test needs two groups.
        if "log_rank_p" in estimate:
            self.log_rank_p_ = float(estimate["log_rank_p"])
