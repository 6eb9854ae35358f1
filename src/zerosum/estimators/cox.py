"""Private Cox regression over sites."""

# mypy: disable-error-code="import-untyped"
# scikit-learn ships no types
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from zerosum.algorithms import Estimate
from zerosum.algorithms.intervals import Z
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.estimators.base import ColumnRanges, Tables, several_tables
from zerosum.estimators.documentation import documented
from zerosum.estimators.supervised import Supervised
from zerosum.estimators.validation import BOOLEAN, LIST, MAPPING, POSITIVE, Constraint, optional
from zerosum.kernel.missing import Missing
from zerosum.kernel.schemes import Scheme
from zerosum.report.coefficients import CoefficientTable

SITE = "site"  # name of the column of strata


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class CoxRegression(Supervised, ColumnRanges):
    """Private Cox regression (proportional hazards) over sites.

    `coef_` are logarithms of hazard ratios. By default each site has a baseline hazard of its own. Predictions use
    `score_coef_`, which are shrunk more and rank better.

    Parameters
    ----------
    %(ranges)s
    horizon : float
        Public end of the follow-up; people who are observed longer are censored there. A seeded run may leave it out;
        it takes the longest time of the data and adds a note to `notes_`.
    stratify_by_site : bool, default=True
        Whether each site has a baseline hazard of its own.
    events : sequence, default=(0, 1)
        Public values of `event`: first without an event, then one event or several (competing risks).
    cause : value, optional
        The event of interest, by default the first. The others end the observation, so that hazards are those of the
        cause.
    edges : array of shape (bins + 1,), optional
        Public bins of time from 0 to the horizon; by default 24 bins, the first ones shorter.
    time_step : float, optional
        Times are whole multiples of this public number, such as 1 for whole weeks. It moves the edges of bins to
        multiples, which matters where there are few different times.
    parts : int, default=4
        Parts of the time in which the level of the baseline is fitted jointly with the coefficients.
    rounds : int, default=5
        Number of rounds.
    proportionality : float, default=0
        Share of the budget, at most 0.5, for a test whether hazards are proportional; 0.1 is a usual choice. The rest
        of the budget is for the coefficients.
    concordance : float, default=0
        Share of the budget, at most 0.5, for the concordance index on people who are held out of the fit.
    hold_out : float, default=0.2
        The share of people who are held out if `concordance` is positive.
    %(missing)s
    measured_in : dict of str to str, optional
        Unit of measurement of columns, for the table of coefficients.
    %(privacy)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Logarithms of hazard ratios, in the units of the data.
    hazard_ratio_ : ndarray of shape (n_features,)
        Their exponentials.
    table_ : CoefficientTable
        Coefficients with both kinds of intervals; `print(model.table_)` shows it.
    noise_std_ : ndarray of shape (n_features,)
        Standard error of each coefficient about the Cox regression on the data of all sites together.
    population_std_ : ndarray of shape (n_features,)
        Standard error about the population, from sampling and privacy.
    score_coef_ : ndarray of shape (n_features,)
        Coefficients of the predictions.
    strata_ : tuple of str
        Labels of the first axis of `baseline_survival_`.
    times_ : ndarray of shape (bins,)
        Right ends of the bins of time.
    baseline_at_ : ndarray of shape (n_features,)
        Covariates of the baseline: noisy means.
    baseline_survival_ : ndarray of shape (strata, bins)
        Probability to be without the event at `times_`, for covariates `baseline_at_`.
    baseline_interval_ : ndarray of shape (strata, bins, 2)
        Interval of 95 % about the pooled data: privacy noise, and what stopping, weighting and bins of time change.
    baseline_population_interval_ : ndarray of shape (strata, bins, 2)
        Interval of 95 % about the population: the same and sampling.
    baseline_log_variance_ : ndarray of shape (strata, bins)
        Variance of the logarithm of the cumulative baseline hazard about the population.
    baseline_covariance_ : ndarray of shape (strata, bins, n_features)
        Its covariance with the coefficients.
    coefficient_covariance_ : ndarray of shape (n_features, n_features)
        Covariance of the coefficients about the population, without a prior.
    concordance_ : float
        With `concordance`: C on the people who were held out, that is the probability that of two people the one with
        the earlier event has the higher score.
    concordance_interval_ : ndarray of shape (2,)
        Its interval of 95 %%, with privacy noise and sampling.
    proportionality_p_value_ : float
        With `proportionality`: the p-value of the hypothesis that all hazards are proportional.
    late_difference_ : ndarray of shape (n_features,)
        With `proportionality`: coefficients of late times, from about the middle of the events on, less those of all
        times.
    late_p_values_ : ndarray of shape (n_features,)
        Their p-values.
    %(fitted)s

    %(notes)s

    %(example)s

    >>> rng = np.random.default_rng(0)
    >>> X = [rng.uniform(-1, 1, (2000, 2)) for _ in range(3)]
    >>> time = [rng.exponential(np.exp(-rows @ [1.0, -0.5])) for rows in X]
    >>> event = [(each < 2).astype(int) for each in time]
    >>> seeded = {"random_state": 0, "data": "synthetic"}
    >>> fitted = CoxRegression(lower=-1, upper=1, horizon=2, epsilon=3, **seeded).fit(X, time, event)
    >>> bool(np.max(np.abs(fitted.coef_ - [1.0, -0.5])) < 0.2)
    True
    """

    _algorithm: ClassVar[str] = "cox-regression"
    _program_names: ClassVar[Mapping[str, str]] = {}
    _not_parameters: ClassVar[Mapping[str, str]] = {
        **ColumnRanges._not_parameters,
        "entry": "given to `fit` as `entry`",
        "stratum": "made by `fit` from the sites",
        "strata": "made by `fit` from the sites",
        "clip": "chosen from the releases",
    }
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **ColumnRanges._constraints,
        "horizon": optional(POSITIVE),
        "stratify_by_site": BOOLEAN,
        "events": LIST,
        "measured_in": optional(MAPPING),
    }

    horizon: float | None = None
    stratify_by_site: bool = True
    events: Sequence[Any] = (0, 1)
    cause: Any = None
    edges: ArrayLike | None = None
    time_step: float | None = None
    parts: int = 4
    rounds: int = 5
    proportionality: float = 0.0
    concordance: float = 0.0
    hold_out: float = 0.2
    missing: Missing = None
    measured_in: Mapping[str, str] | None = None

    def fit(
        self,
        X: Any,
        time: Any = None,
        event: Any = None,
        *,
        sites: ArrayLike | None = None,
        entry: Any = None,
        people: Any = None,
    ) -> Self:
        """Run one study over the sites and charge their ledgers.

        Parameters
        ----------
        %(fit_x)s
        time : list or dict of vectors, or one vector
            Time until the event or the end of observation of every row, by site as X; not negative.
        event : as time
            Which of `events` happened then, for every row.
        %(fit_sites)s
        entry : as time, optional
            Time at which the observation of a row began (left truncation), before its `time`.
        people : as time, optional
            The person of each row, where people have several rows: intervals from `entry` to `time` with the covariates
            of that interval (time-varying covariates). Only the last row of a person may have an event. Without `entry`
            an interval begins where the one before it ends. The bound of privacy is for all rows of a person together.

        %(fit_returns)s
        """
        if time is None or event is None:
            raise BadData("requires y to be passed, but the target y is None: give the time and the event of every row")

        def tables(scheme: Scheme) -> Tables:
            found = self._tables(X, sites, scheme)
            by_site = self.stratify_by_site and len(found) > 1
            # The order that the program requires: entry, stratum, time; the event is last.
            self._roles = (*(["entry"] if entry is not None else []), *([SITE] if by_site else []), "time")
            times, events = (
                self._by_table(what, values, found, X, sites) for what, values in (("time", time), ("event", event))
            )
            begins = None if entry is None else self._by_table("entry", entry, found, X, sites)
            owners = None if people is None else self._by_table("people", people, found, X, sites)
            if owners is not None:
                self._check_people(owners, found, by_site=isinstance(X, Mapping) or several_tables(X, self._dimensions))
            self._site_names = tuple(found)
            for at, (name, units) in enumerate(found.items()):
                joined = units if begins is None else self._with_role("entry", units, begins[name])
                if by_site:
                    # The stratum is the position of the site, as `strata` lists them: strata are coded 0, 1, ... in the
                    # rows.
                    joined = self._with_role("site", joined, np.full(len(units.rows), float(at)))
                joined = self._with_role("time", joined, times[name])
                self._check_times(joined, begins is not None)
                joined = self._with(joined, events[name])
                found[name] = joined if owners is None else Units.from_groups(joined.rows, owners[name])
            return found

        return self._fit(tables)

    @staticmethod
    def _check_people(owners: Mapping[str, Any], tables: Tables, *, by_site: bool) -> None:
        """Refuse rows that are grouped already, and a person of one array at two sites, whose ledgers are apart."""
        if any(units.offsets is not None for units in tables.values()):
            raise BadParameter("people= labels the rows of tables, but the rows of X are grouped by person already")
        for name, labels in owners.items():
            if len(labels) != len(tables[name].rows):
                raise BadData("inconsistent numbers of samples: people must have a value for each row of X")
        counted = [set(np.asarray(labels).tolist()) for labels in owners.values()]
        if not by_site and len(set().union(*counted)) < sum(map(len, counted)):
            raise BadData(
                "a label of people= has rows at two sites: give sites=, and different labels to other persons"
            )

    def _check_times(self, units: Units, late: bool) -> None:
        """Refuse times that are negative or not after the entry."""
        rows = np.asarray(units.rows)
        begin = rows[:, self.n_features_in_] if late else 0.0
        if np.any(rows[:, -1] < 0) or np.any(begin < 0) or (late and np.any(rows[:, -1] <= begin)):
            raise BadData("some times are negative, or not after the entry")

    def _coded(self, values: Any) -> Floats:
        array = np.asarray(values)
        codes = np.full(len(array), np.nan)
        for code, level in enumerate(self.events):
            codes[array == level] = code
        if np.any(np.isnan(codes)):
            raise BadData("some values of event are not among the events: Unknown label type")
        return codes

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self._feature_names, *self._roles, "event")

    def _parameters(self, tables: Tables) -> dict[str, Any]:
        lower, upper = self._bounds_or_extremes(tables)
        horizon = self.horizon
        if horizon is None and self.edges is not None:
            horizon = float(np.asarray(self.edges, dtype=np.float64)[-1])
        if horizon is None:
            if self.random_state is None:
                raise BadParameter("give the end of the follow-up, a public number: horizon=10")
            self._note("no horizon was given, so the longest time of the data was taken, which is not private")
            horizon = max(float(np.max(np.asarray(units.rows)[:, -2])) for units in tables.values()) or 1.0
        # Ranges of the roles: times up to the horizon, the stratum's code, the event's code.
        ends = [1.0 if role == SITE else float(horizon) for role in self._roles]
        stratified = SITE in self._roles
        return super()._parameters(tables) | {
            "lower": np.append(lower, np.zeros(len(ends) + 1)),
            "upper": np.append(upper, [*ends, 1.0]),
            "entry": "entry" if "entry" in self._roles else None,
            "stratum": SITE if stratified else None,
            "strata": self._site_names if stratified else (),
            "events": tuple(self.events),
            "edges": None if self.edges is None else np.asarray(self.edges, dtype=np.float64),
            "measured_in": dict(self.measured_in or {}),
        }

    def _learn(self, estimate: Estimate) -> None:
        self.coef_: Floats = estimate["coefficients"].value.copy()
        self.hazard_ratio_: Floats = np.exp(self.coef_)
        self.table_ = CoefficientTable.of(estimate, self._algorithm)
        self.noise_std_: Floats = estimate["pooled_std"].value.copy()
        self.population_std_: Floats = estimate["population_std"].value.copy()
        self.score_coef_: Floats = estimate["score_coefficients"].value.copy()
        survival = estimate["baseline_survival"]
        self.strata_, self.times_ = survival.axes[0].labels, np.array([float(end) for end in survival.axes[1].labels])
        self.baseline_at_: Floats = estimate["baseline_at"].value.copy()
        self.baseline_survival_: Floats = survival.value.copy()
        self.baseline_interval_: Floats = estimate["baseline_interval"].value.copy()
        self.baseline_population_interval_: Floats = estimate["baseline_population_interval"].value.copy()
        self.baseline_log_variance_: Floats = estimate["baseline_log_variance"].value.copy()
        self.baseline_covariance_: Floats = estimate["baseline_covariance"].value.copy()
        self.coefficient_covariance_: Floats = estimate["coefficient_covariance"].value.copy()
        if "concordance" in estimate:
            self.concordance_ = float(estimate["concordance"].value[0])
            self.concordance_interval_: Floats = estimate["concordance_interval"].value.copy()
        if "proportionality_p_value" in estimate:
            self.proportionality_p_value_ = float(estimate["proportionality_p_value"].value[0])
            self.late_difference_: Floats = estimate["late_difference"].value.copy()
            self.late_p_values_: Floats = estimate["late_p_values"].value.copy()
        unidentified = sum(not row.identified for row in self.table_.rows)
        if unidentified:
            self._note(f"{unidentified} of {len(self.table_.rows)} coefficients are not identified at this budget")

    def predict(self, X: Any) -> Floats:
        """Hazard of rows relative to the baseline, exp(score).

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.

        Returns
        -------
        ndarray of shape (rows,)
            Relative hazards; 1 for covariates `baseline_at_`.
        """
        # The limit of 700 prevents overflow of exp.
        return np.asarray(np.exp(np.clip((self._own_rows(X) - self.baseline_at_) @ self.score_coef_, -700, 700)))

    def predict_survival(self, X: Any, stratum: str | None = None) -> Floats:
        """Probability of rows to be without the event at `times_`.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.
        stratum : str, optional
            Site whose baseline is used; required if there are several.

        Returns
        -------
        ndarray of shape (rows, bins)
            Probabilities.
        """
        own = self.baseline_survival_[self._stratum(stratum)]
        # Proportional hazards: S(t | x) = S_0(t)^exp(score), with the baseline S_0 at `baseline_at_`.
        return np.asarray(own[None, :] ** self.predict(X)[:, None])

    def predict_survival_interval(self, X: Any, stratum: str | None = None) -> Floats:
        """Intervals of 95 % of the probabilities of `predict_survival` for the population, pointwise.

        They contain privacy noise and the sampling error of coefficients and baseline.

        Parameters
        ----------
        X : array of shape (rows, n_features)
            Rows of one site.
        stratum : str, optional
            Site whose baseline is used; required if there are several.

        Returns
        -------
        ndarray of shape (rows, bins, 2)
            Lower and upper ends.
        """
        at = self._stratum(stratum)
        d = self._own_rows(X) - self.baseline_at_
        # The logarithm of the cumulative hazard log H_0(t) + d.b has about normal errors.
        variance = self.baseline_log_variance_[at] + 2 * d @ self.baseline_covariance_[at].T
        variance = variance + np.einsum("ri,ij,rj->r", d, self.coefficient_covariance_, d)[:, None]
        # The limits prevent overflow of exp.
        reach = np.exp(np.minimum(Z * np.sqrt(np.maximum(variance, 0.0)), 50.0))
        hazard = -np.log(np.clip(self.baseline_survival_[at], 1e-300, 1.0))[None, :] * self.predict(X)[:, None]
        return np.stack([np.exp(-hazard * reach), np.exp(-hazard / reach)], axis=-1)

    def _stratum(self, stratum: str | None) -> int:
        """The position of a stratum; the only one if there is one."""
        check_is_fitted(self, "result_")
        if stratum is None and len(self.strata_) > 1:
            raise BadParameter(f"name the site whose baseline is used: one of {', '.join(self.strata_)}")
        if stratum is not None and stratum not in self.strata_:
            raise BadParameter(f"stratum must be one of {', '.join(self.strata_)}, got {stratum!r}")
        return 0 if stratum is None else self.strata_.index(stratum)
