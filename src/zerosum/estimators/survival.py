"""Survival curves over sites.

Tested in tests/estimators/test_describe_estimators.py.
"""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import DataMark, Tables
from zerosum.estimators.tables import Levels, TableEstimator
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.site.policy import Policy
from zerosum.study import DEFAULT_SCHEME, Budget, Unit


class SurvivalCurve(TableEstimator):
    """Kaplan-Meier curves over sites, by group, with intervals, medians and the log-rank test, from one release.

    Parameters
    ----------
    edges : array of shape (bins + 1,)
        Public bins of time; curves are given at their right ends. Who is there longer is censored at the last one.
    time, event : str, default="time", "event"
        The columns of the time until the event or the end of observation, and of whether it was the event. Of an array
        without names, the first and the second.
    by : str, optional
        The column of the groups; of an array, the third.
    groups : sequence, optional
        What that column may say.
    events : pair, default=(0, 1)
        What the column of events says: first where it did not happen, then where it did.
    missing : "observed", optional
        With it, rows that lack something count nowhere. By default missing values are refused.
    epsilon : float, default=1.0
        With `delta`, what the whole fit may cost any one unit.
    delta : float, default=1e-5
        See `epsilon`.
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
    groups_ : tuple of str
        What the first axis of the arrays below runs along.
    times_ : ndarray of shape (bins,)
        The right ends of the bins.
    survival_, std_error_ : ndarray of shape (groups, bins)
        The share that is left, NaN from where too few are at risk, and the standard deviation that privacy gives it.
    survival_interval_, survival_population_interval_ : ndarray of shape (groups, bins, 2)
        Of 95 %: for the pooled data, which privacy's noise hides, and for the people they are a sample of.
    at_risk_ : ndarray of shape (groups, bins)
        How many are at risk.
    median_ : ndarray of shape (groups,)
        The median time, NaN where a curve does not come down to one half.
    log_rank_p_ : float
        Of the test that all groups have one curve; it takes chance and privacy's noise into account. Only with groups.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns.
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
    >>> sites = [np.column_stack([rng.exponential(5, 600), np.ones(600)]) for _ in range(3)]
    >>> curve = SurvivalCurve(edges=range(11), random_state=0, data="synthetic").fit(sites)
    >>> bool(abs(curve.survival_[0, 4] - np.exp(-1)) < 0.1)
    True
    """

    _algorithm: ClassVar[str] = "survival"

    def __init__(
        self,
        *,
        edges: ArrayLike | None = None,
        time: str = "time",
        event: str = "event",
        by: str | None = None,
        groups: Sequence[Any] = (),
        events: Sequence[Any] = (0, 1),
        missing: Missing = None,
        epsilon: float = 1.0,
        delta: float = 1e-5,
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
            scheme=scheme,
            colluders=colluders,
            dropouts=dropouts,
            unit=unit,
            policies=policies,
            random_state=random_state,
            data=data,
            budget=budget,
        )
        self.edges = edges
        self.time = time
        self.event = event
        self.by = by
        self.groups = groups
        self.events = events
        self.missing = missing

    @property
    def _declared(self) -> tuple[str, ...]:
        return (self.time, self.event, *(() if self.by is None else (self.by,)))

    @property
    def _categories(self) -> Levels:
        return {self.event: self.events} | ({} if self.by is None else {self.by: self.groups})

    def _names(self, columns: int) -> list[str]:
        if columns != len(self._declared):
            raise BadData(f"give {len(self._declared)} columns: {', '.join(self._declared)}")
        return list(self._declared)

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        if self.edges is None:
            raise BadParameter("give public edges of time")
        edges = np.asarray(self.edges, dtype=np.float64)
        return {"edges": edges, "events": tuple(self.events), "groups": tuple(self.groups), "missing": self.missing}

    def _learn(self, estimate: Estimate) -> None:
        self.groups_ = estimate["survival"].axes[0].labels
        self.times_: Floats = np.asarray(self.edges, dtype=np.float64)[1:]
        self.survival_: Floats = np.asarray(estimate["survival"])
        self.std_error_: Floats = np.asarray(estimate["survival"].std)
        self.survival_interval_: Floats = np.asarray(estimate["survival_interval"])
        self.survival_population_interval_: Floats = np.asarray(estimate["survival_population_interval"])
        self.at_risk_: Floats = np.asarray(estimate["at_risk"])
        self.median_: Floats = np.asarray(estimate["median"])
        if "log_rank_p" in estimate:
            self.log_rank_p_ = float(estimate["log_rank_p"])
