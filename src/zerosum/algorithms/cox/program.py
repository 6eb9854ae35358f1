"""Cox regression over sites: hazard ratios, the baseline, and survival, with intervals that count the noise.

Model
-----
The hazard of a unit of stratum g with covariates x at time t is lambda_g(t) exp(x.b). Covariates enter as u = (v -
center)/scale for values v in [-1, 1] of their public ranges. At public hazards and coefficients a unit has the expected
number of events E and the residual d - E. `zerosum.statistics.cox` states how residuals are bounded without bias
(stopping and weighting) and proves the sensitivities.

Symbols
-------
p, K, G
    Numbers of covariates, of parts of the time (runs of bins), and of strata.
theta (m = p + K + G - 1)
    Coefficients b of the scaled covariates u, logarithms of the baseline of each part over that of the table, and
    logarithms of the levels of all strata but the first, which is the reference.
B, C
    Bound of the expected number of events at which a row is stopped (`Fit.stop`), and norm of a row beyond which its
    weight falls below 1 (`Fit.clip`).
z (p)
    Whitened covariates divided by C: z = T (u - mean)/C with the whitening T (p, p) of the rounds so far.
P (p + K + G, m)
    Maps the numbers of a row in the coordinates of theta to those in a release, times C (`Fit._map`).
H (m, m)
    Negative Hessian of the weighted log-likelihood: the sum of w h x x' over rows, x the m numbers of a row in the
    coordinates of theta (covariates, part, stratum).
s
    Standard deviation of the noise of one entry of a round's release.

Releases
--------
1. `CovariateMoments`: centers and scales of the covariates (D = 2).
2. `ExitTable`: exits by stratum, bin of time and event (D = sqrt(3), with entry times sqrt(5)). It gives marginal
   hazards, the number of events, and the bounds of the rounds.
3. Rounds of `CoxStep` (D = 2): score and second moments of covariates, parts of the time, and strata. Parts and strata
   are fitted jointly with the coefficients, so that follow-up that depends on covariates does not bias them. The first
   round has the second moments of all people.

A round at theta_i releases scores y. With P = Q R it gives the score R^-1 Q' (C B y) with the noise R^-1 (C B s), and
the Hessian R H R' with the noise C^2 B s/b of a diagonal entry, b the weight of second moments (`CoxStep.curvature`).
The bound B takes part in both, since a release holds residuals divided by B. The next theta is the posterior mean

    theta = (J + prior)^-1 J t,    J the information of all rounds, t their joint estimate (`estimation.merged`).

Between rounds the covariates are centred and their correlations removed (whitening), so that noise falls where it
matters least. All rounds count: each is a noisy score of the same maximiser (`estimation`).

Results: pooled intervals are about the Cox regression on the data of all sites together. Their variance is that of the
noise, of what stopping and weighting lose, and of effects that are not proportional (`TUNING.wander`). Population
intervals add the sampling variance. With J the information of the releases and H the Hessian after weighting,

    pooled      J^-1 + lost H^-1 + drift,
    population  J^-1 + H^-1 + drift,

each combined with a weak prior of deviation `TUNING.weak`. `lost` is the share of events that stopping and weighting
take away: with H = (1 - lost) H_all the variance of the difference of the two fits is about H^-1 - H_all^-1 = lost
H^-1 (Hausman 1978, for an efficient fit beside one with less information).

The steps between releases and all results are free post-processing.

Reference: Cox 1972; Andersen, Gill 1982 (counting processes); Holford 1980 (piecewise exponential hazards);
Hausman 1978 (variance of the difference of two fits).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.cox.baseline import exits_of, parts_of
from zerosum.algorithms.cox.estimation import plausible_spread
from zerosum.algorithms.cox.fit import Fit, second_moments
from zerosum.algorithms.cox.proportionality import late_effects, late_parts
from zerosum.algorithms.cox.results import concordance_results, estimate_of
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.algorithms.groups import ALL, Level, shown
from zerosum.algorithms.program import Program, RangedAlgorithm
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.concordance import ScoreTable
from zerosum.statistics.cox import CovariateMoments, ExitTable
from zerosum.statistics.cox_step import CoxStep
from zerosum.statistics.regression import SQUARE


class CoxRegressionProgram(RangedAlgorithm):
    """Cox regression: columns are covariates, then the optional entry time and stratum, then the time and the event.

    Results, in the units of the data: `coefficients` (logarithms of hazard ratios) with `pooled_std`, intervals and
    `identified` as for the other regressions; `score_coefficients`, which are shrunk more and rank better;
    `baseline_survival` by stratum at the ends of bins, for a unit with the covariates `baseline_at`, with
    `baseline_interval` (pooled data) and `baseline_population_interval`; `events`; `lost_information`, the share that
    stopping and weighting leave out; `baseline_steps`, how far the baseline is from the table of exits;
    `unidentified_reason` (0 for an identified coefficient); and by column `outweighed` (the share of information with
    rows of low weight), `column_drift` (drift of its mean over the time, beside what is usual) and `spread_known`.
    `baseline_log_variance`, `baseline_covariance` and `coefficient_covariance` give intervals of predicted survival.
    With a share for them: `late_difference` with its deviation and p-values, and `proportionality_p_value`
    (`proportionality`); and `concordance` with its interval (`concordance`).
    """

    name: ClassVar[str] = "cox-regression"
    columns: tuple[str, ...] = Field(min_length=3)
    entry: str | None = None
    """The column, before the time, with the time at which a unit came under observation (left truncation)."""
    stratum: str | None = None
    """The column, before the time, with the stratum; each stratum has a baseline of its own."""
    strata: tuple[Level, ...] = ()
    """Public levels of the stratum."""
    events: tuple[Level, ...] = Field(default=(0.0, 1.0), min_length=2)
    """Values of the event: first without an event, then the events."""
    cause: Level | None = None
    """The event of interest, by default the first; all others end the observation (cause-specific hazards)."""
    edges: FloatArray | None = None
    """Public rising edges of the bins of time, from 0 to the horizon; by default 24 bins of the range of the time."""
    time_step: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Times are whole multiples of this (1 for whole days or weeks); edges of bins are then moved to such multiples."""
    parts: int = Field(default=TUNING.parts, ge=1, le=24)
    """Parts of the time whose baseline is fitted jointly with the coefficients."""
    rounds: int = Field(default=TUNING.rounds, ge=2, le=12)
    """Number of rounds of score and second moments."""
    proportionality: float = Field(default=0.0, ge=0, le=0.5)
    """Share of the budget for the test of proportional hazards, which needs two parts or more; 0: no test."""
    concordance: float = Field(default=0.0, ge=0, le=0.5)
    """Share of the budget for the concordance index on people who are held out; 0: no unit is held out."""
    hold_out: float = Field(default=0.2, gt=0, le=0.5)
    """The share of people who are held out for the concordance index."""
    measured_in: dict[str, str] = Field(default_factory=dict)
    """The unit of measurement of columns, for the table of coefficients."""

    @model_validator(mode="after")
    def _roles_fit(self) -> Self:
        """Refuse columns out of order, and ranges that are not those of times."""
        if self.lower is None or self.upper is None:
            raise ValueError("lower and upper are required: public ranges of the covariates and of the time")
        named = self._roles
        if named != self.columns[self.features : -2] or self.features < 1:
            raise ValueError(
                f"columns must be covariates, then the entry and the stratum ({', '.join(named)}) in this order, then "
                f"the time and the event, got {', '.join(self.columns)}"
            )
        if bool(self.strata) != (self.stratum is not None) or len(self.strata) == 1:
            raise ValueError(f"a stratum needs its column and two levels or more, got {list(self.strata)}")
        for what, known in (("events", self.events), ("strata", self.strata)):
            if len(set(known)) < len(known):
                raise ValueError(f"{what} must be different from each other, got {list(known)}")
        if self.clip is not None:
            raise ValueError("a Cox regression weights rows itself, from its releases: give no clip")
        if self.cause is not None and self.cause not in self.events[1:]:
            raise ValueError(f"cause must be one of the events {list(self.events[1:])}, got {self.cause!r}")
        if self.lower[-2] != 0:
            raise ValueError(f"the range of the time {self.columns[-2]!r} must begin at 0, got {self.lower[-2]:g}")
        if self.edges is not None and (
            self.edges.ndim != 1
            or not self.parts + 1 <= self.edges.size <= 501
            or self.edges[0] != 0
            or not np.all(np.diff(self.edges) > 0)
        ):
            raise ValueError(f"edges must rise from 0 and make {self.parts} to 500 bins of time")
        if self.proportionality and self.parts < 2:
            raise ValueError("the test of proportional hazards needs two parts of the time or more, got parts = 1")
        if strangers := [name for name in self.measured_in if name not in self.columns]:
            raise ValueError(f"measured_in has {strangers[0]!r}, which is not one of the columns")
        return self

    @property
    def _roles(self) -> tuple[str, ...]:
        """Names of the columns between the covariates and the time."""
        return tuple(name for name in (self.entry, self.stratum) if name is not None)

    @property
    def features(self) -> int:
        """Number of covariates p."""
        return len(self.columns) - 2 - len(self._roles)

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        """The events, and the strata if there are any."""
        known: dict[str, Sequence[Level]] = {self.columns[-1]: self.events}
        return known | ({} if self.stratum is None else {self.stratum: self.strata})

    @property
    def coefficient_axis(self) -> Axis:
        """The axis of the coefficients, with their units of measurement."""
        names = self.columns[: self.features]
        units = tuple(f"per {self.measured_in[each]}" if each in self.measured_in else "" for each in names)
        return Axis("coefficient", names, units if self.measured_in else ())

    @property
    def stratum_axis(self) -> Axis:
        """The axis of the strata; "all" without."""
        return Axis("group", tuple(shown(each) for each in self.strata) or (ALL,))

    @property
    def times(self) -> Floats:
        """Edges of the bins of time: as given, or horizon (i/bins)^power, moved to multiples of `time_step`."""
        if self.edges is not None:
            return self.edges
        horizon = 1.0 if self.upper is None else float(self.upper[-2])
        edges = horizon * (np.arange(TUNING.bins + 1) / TUNING.bins) ** TUNING.power
        if self.time_step is None:
            return np.asarray(edges)
        # Upwards, so that no edge falls before the times of its bin; 1e-9 leaves edges that are multiples up to
        # rounding where they are.
        found = np.unique(np.ceil(edges / self.time_step - 1e-9)) * self.time_step
        # Few steps: every step is a bin.
        if len(found) <= self.parts:
            found = np.linspace(0, horizon, self.parts + 1)
        return np.asarray(found)

    @property
    def describe(self) -> str:
        """The releases in words."""
        more = ", a test of proportional hazards" * bool(self.proportionality)
        more += ", a table of scores of held-out people" * bool(self.concordance)
        return f"moments of the covariates, a table of exits, {self.rounds} rounds of scores with their moments{more}"

    # ---- releases --------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> dict[str, Any]:
        """Parameters of all statistics."""
        if self.lower is None or self.upper is None:
            raise AssertionError("checked by _roles_fit")
        own = slice(self.features)
        return {
            "columns": len(self.columns),
            "lower": self.lower[own],
            "upper": self.upper[own],
            "edges": self.times,
            "entry": self.entry is not None,
            "strata": max(len(self.strata), 1),
            "causes": len(self.events),
            "cause": 1 if self.cause is None else self.events.index(self.cause),
            **({"part": "fitted", "hold_out": self.hold_out} if self.concordance else {}),
            **self.filling,
        }

    @property
    def _shares(self) -> tuple[float, float, tuple[float, ...]]:
        """Shares of the budget of the moments, the table, and the rounds; the test and the index have the rest."""
        left = 1 - self.proportionality - self.concordance
        moments, table = TUNING.moments_share * left, TUNING.table_share * left
        return moments, table, ((left - moments - table) / self.rounds,) * self.rounds

    def step_statistic(self, **given: Any) -> CoxStep:
        """The statistic of a round."""
        return CoxStep(**self._rows, **given)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """The moments, the table and the rounds."""
        p, bins = self.features, len(self.times) - 1
        moments, table, rounds = self._shares
        blank: dict[str, Any] = {
            "coefficients": np.zeros(p),
            "hazards": np.zeros((max(len(self.strata), 1), bins + 1)),
            "parts": parts_of(np.ones(bins), self.parts),
            "matrix": np.eye(p),
            "shift": np.zeros(p),
        }
        late = PrivateSum(
            self.step_statistic(**blank, **second_moments(TUNING.part_size / 3, first=False)), self.proportionality
        )
        cuts = np.arange(1.0, TUNING.score_bins)
        times = self.times[[0, *self._score_times(np.ones(bins))]]
        ranked = PrivateSum(self._score_table(np.zeros(p), cuts, times), self.concordance)
        # Sites refuse a release with a larger norm or size than planned; both do not depend on what the rounds fix.
        return (
            PrivateSum(CovariateMoments(**self._rows), moments),
            PrivateSum(ExitTable(**self._rows), table),
            *(
                PrivateSum(
                    self.step_statistic(**blank, **second_moments(TUNING.part_size / 3, first=number == 0)), share
                )
                for number, share in enumerate(rounds)
            ),
            *([late] if self.proportionality else []),
            *([ranked] if self.concordance else []),
        )

    def _score_times(self, events: Floats) -> tuple[int, ...]:
        """Ends of the bins of time in the table of scores, in bins of `times`."""
        return parts_of(events, min(TUNING.score_times, len(events)))

    def _score_table(self, coefficients: Floats, cuts: Floats, times: Floats) -> ScoreTable:
        """The statistic of the concordance index."""
        part = {"part": "held-out", "hold_out": self.hold_out, "edges": times}
        return ScoreTable(**self._rows | part, coefficients=coefficients, cuts=cuts)

    def program(self, adjacency: Adjacency) -> Program:
        """The moments, the table, the rounds, and the results."""
        moments, tabled, rounds = self._shares
        first = CovariateMoments(**self._rows)
        release = yield PrivateSum(first, moments)
        second = ExitTable(**self._rows)
        counted = yield PrivateSum(second, tabled)
        table, events, entries = second.split(counted.value)
        # The expected number of units that take part in the fit.
        units = counted.units and counted.units * (1 - self.hold_out * bool(self.concordance))
        exits = exits_of(table, events, entries, self.times, counted.noise_std, units, entry=self.entry is not None)
        frame = self._frame(first, release, units or float(np.sum(exits.units)))
        # The noise of the release so far gives that of the rounds: standard deviations are D / sqrt(share) times one
        # constant.
        unit = counted.noise_std / second.sensitivity(adjacency) * math.sqrt(tabled)
        noise = 2 * unit / math.sqrt(math.fsum(rounds))
        center, scale, size, size_error, size_least = frame
        fit = Fit(self, exits, center, scale, size, size_error, size_least, counted.noise_std, noise)
        for number, share in enumerate(rounds):
            step = fit.step(first=number == 0)
            fit.take(step, (yield PrivateSum(step, share)), first=number == 0)
        estimate = dict(estimate_of(fit))
        if self.proportionality:
            step = fit.step(first=False, since=float(self.times[fit.parts[late_parts(fit) - 1]]))
            estimate |= late_effects(fit, step, (yield PrivateSum(step, self.proportionality)))
        if self.concordance:
            coefficients, cuts = fit.score_bins(TUNING.score_bins)
            ends = self._score_times(np.sum(fit.exits.events, axis=0))
            ranked = self._score_table(coefficients, cuts, self.times[[0, *ends]])
            release = yield PrivateSum(ranked, self.concordance)
            estimate |= concordance_results(ranked.split(release.value), release.noise_std)
        return estimate

    def _frame(self, statistic: CovariateMoments, release: Release, units: float) -> tuple[Floats, ...]:
        """Center and scale of values in [-1, 1], and the mean square of a scaled covariate with its error; all (p,).

        Parameters
        ----------
        statistic : CovariateMoments
            The statistic of the release.
        release : Release
            Noisy sums of v and v^2, v in [-1, 1].
        units : float
            Public number of units, or the total of the noisy table of exits.

        Returns
        -------
        center, scale, size, size_error, size_least : array of shape (p,)
            u = (v - center)/scale; `size_error` is relative, and `size_least` is a low plausible size.
        """
        p = self.features
        sums, squares = statistic.split(release.value)
        # The statistic divides by sqrt(p): noise of one mean.
        noise = release.noise_std * math.sqrt(p) / units
        # Means are shrunk to the middle of the range.
        prior = TUNING.center**2
        center = np.clip(sums / units * prior / (prior + noise**2), -1, 1)
        # Noise of E v^2 - center^2 by the delta method: squares are released with the weight SQUARE.
        blur = np.sqrt((noise / SQUARE) ** 2 + (2 * np.abs(center) * noise) ** 2)
        variance = squares / units - center**2
        scale, least = plausible_spread(
            variance, blur, np.where(self.binary, TUNING.spread_binary, TUNING.spread_center)
        )
        known = scale**2
        # A rare level scaled to its own deviation would make its few carriers long rows that count little. The
        # carrier's value is (1 + |center|)/scale, which this limits to `rare` times the typical length of a row.
        widest = (1 + np.abs(center)) / (TUNING.rare * math.sqrt(p + 1))
        scale = np.where(self.binary, np.maximum(scale, widest), scale)
        # The mean square of u is below 1 where the scale exceeds the deviation.
        return center, scale, known / scale**2, blur / known, (least / scale) ** 2

    @property
    def binary(self) -> Any:
        """Whether each covariate has the range 0 to 1, as indicators have; (p,)."""
        own = slice(self.features)
        return (self.middle[own] == 0.5) & (self.half[own] == 0.5)
