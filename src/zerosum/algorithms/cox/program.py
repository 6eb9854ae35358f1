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
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.cox.baseline import Exits, bent, exits_of, normal_nodes, parts_of, uncover
from zerosum.algorithms.cox.estimation import Score, evidence, inverted, likely_size, merged, positive, shrunk_moments
from zerosum.algorithms.cox.tuning import TUNING
from zerosum.algorithms.groups import ALL, Level, shown
from zerosum.algorithms.intervals import ENDS, Z
from zerosum.algorithms.program import Estimate, Program, RangedAlgorithm
from zerosum.algorithms.regression.inference import table as interval_table
from zerosum.arrays import Floats
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.cox import ALL_ROWS, PART_LEAST, PART_MOST, CovariateMoments, CoxStep, ExitTable, free_curvature
from zerosum.statistics.regression import SQUARE

# Why a coefficient is not identified; `zerosum.report.coefficients` has the sentences.
NOISE, COLLINEAR, FEW = 1, 2, 3


class CoxRegressionProgram(RangedAlgorithm):
    """Cox regression: columns are covariates, then the optional entry time and stratum, then the time and the event.

    Results, in the units of the data: `coefficients` (logarithms of hazard ratios) with `pooled_std`, intervals and
    `identified` as for the other regressions; `score_coefficients`, which are shrunk more and rank better;
    `baseline_survival` by stratum at the ends of bins, for a unit with the covariates `baseline_at`, with
    `baseline_interval` (pooled data) and `baseline_population_interval`; `events`; `lost_information`, the share that
    stopping and weighting leave out; `baseline_steps`, how far the baseline is from the table of exits; and
    `unidentified_reason` (0 for an identified coefficient).
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
        return f"moments of the covariates, a table of exits, and {self.rounds} rounds of scores with their moments"

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
            **self.filling,
        }

    @property
    def _shares(self) -> tuple[float, float, tuple[float, ...]]:
        """Shares of the budget of the moments, the table, and the rounds."""
        left = 1 - TUNING.moments_share - TUNING.table_share
        return TUNING.moments_share, TUNING.table_share, (left / self.rounds,) * self.rounds

    def _step(self, **given: Any) -> CoxStep:
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
        # The weight of a part falls with the number of covariates, which the rounds fix. The norm of a contribution is
        # largest at the least weight, and sites refuse a round with a larger norm than planned.
        return (
            PrivateSum(CovariateMoments(**self._rows), moments),
            PrivateSum(ExitTable(**self._rows), table),
            *(
                PrivateSum(self._step(**blank, **_second(PART_LEAST, first=number == 0)), share)
                for number, share in enumerate(rounds)
            ),
        )

    def program(self, adjacency: Adjacency) -> Program:
        """The moments, the table, the rounds, and the results."""
        moments, tabled, rounds = self._shares
        first = CovariateMoments(**self._rows)
        release = yield PrivateSum(first, moments)
        second = ExitTable(**self._rows)
        counted = yield PrivateSum(second, tabled)
        table, events, entries = second.split(counted.value)
        units = counted.units
        exits = exits_of(table, events, entries, self.times, counted.noise_std, units, entry=self.entry is not None)
        center, scale, size = self._frame(first, release, units or float(np.sum(exits.units)))
        fit = Fit(self, exits, center, scale, size, counted.noise_std)
        # The noise of the release so far gives that of the rounds: standard deviations are D / sqrt(share) times one
        # constant.
        unit = counted.noise_std / second.sensitivity(adjacency) * math.sqrt(tabled)
        fit.bound(2 * unit / math.sqrt(math.fsum(rounds)))
        for number, share in enumerate(rounds):
            step = fit.step(first=number == 0)
            fit.take(step, (yield PrivateSum(step, share)), first=number == 0)
        return fit.estimate()

    def _frame(self, statistic: CovariateMoments, release: Release, units: float) -> tuple[Floats, Floats, Floats]:
        """Center and scale of the values in [-1, 1], and the mean square of a scaled covariate; all (p,).

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
        center, scale, size : array of shape (p,)
            u = (v - center)/scale.
        """
        p = self.features
        sums, squares = statistic.split(release.value)
        # The statistic divides by sqrt(p): noise of one mean.
        noise = release.noise_std * math.sqrt(p) / units
        # Means are shrunk by a prior deviation of half of the half range, which a mean rarely exceeds.
        center = np.clip(sums / units * 0.25 / (0.25 + noise**2), -1, 1)
        # Noise of E v^2 - center^2 by the delta method: squares are released with the weight SQUARE.
        blur = np.sqrt((noise / SQUARE) ** 2 + (2 * np.abs(center) * noise) ** 2)
        variance = squares / units - center**2
        # A variance below one and a half deviations of its noise is not known to be above zero. 0.0025 is a deviation
        # of 0.05 half ranges, as `scale_least` of the other regressions. Both chosen by hand; no benchmark recorded.
        scale = np.sqrt(np.clip(variance, np.maximum(1.5 * blur, 0.0025), 1))
        # A rare level scaled to its own deviation would make its few carriers long rows that count little. The
        # carrier's value is (1 + |center|)/scale, which this limits to `rare` times the typical length of a row.
        widest = (1 + np.abs(center)) / (TUNING.rare * math.sqrt(p + 1))
        scale = np.where(self._binary, np.maximum(scale, widest), scale)
        # The mean square of u is below 1 where the scale exceeds the deviation. 1e-3 makes it positive.
        return center, scale, (np.clip(variance, 0, 1) + 1e-3) / scale**2

    @property
    def _binary(self) -> Any:
        """Whether each covariate has the range 0 to 1, as indicators have; (p,)."""
        own = slice(self.features)
        return (self.middle[own] == 0.5) & (self.half[own] == 0.5)


def _second(part: float, *, first: bool) -> dict[str, Any]:
    """Weights of a part of the time and of second moments, and whether these are of all rows.

    Parameters
    ----------
    part : float
        a, the weight of a part of the time in a row of norm at most 1.
    first : bool
        Whether it is the first round.
    """
    # The largest weights with which the second moments cost no noise beside the score (proof of `CoxStep`).
    curvature = ALL_ROWS if first else free_curvature(part)
    return {"part_weight": part, "curvature": curvature, "all_rows": first}


@dataclass(eq=False)
class Fit:
    """State of the rounds. theta = (coefficients of u (p), parts (K), strata but the first (G - 1)).

    The order of calls is `bound` once, then `step` and `take` for each round, then `estimate`. Symbols are those of the
    module.

    Parameters
    ----------
    plan : CoxRegressionProgram
        The public parameters.
    exits : Exits
        Marginal hazards, events and units from the table of exits.
    center, scale, size : array of shape (p,)
        Frame of the covariates, and mean square of each scaled covariate (`CoxRegressionProgram._frame`).
    table_noise : float
        Standard deviation of the noise of an entry of the table.

    Attributes
    ----------
    stop, clip : float
        B and C.
    hessian : array of shape (m, m)
        H, in the coordinates of theta.
    loose : array of shape (m, m)
        Relative standard deviations of the errors of H, over the roots of its diagonal entries.
    whitening, mean : array of shape (p, p) and (p,)
        T and the mean of u among events.
    kept : float
        Number of events that stopping and weighting leave.
    tau, smooth : float
        Prior deviation of the coefficients, and of the change of the baseline from part to part.
    spread : float
        Standard deviation of the predictor u.b, by which `uncover` corrects the marginal hazards.
    """

    plan: CoxRegressionProgram
    exits: Exits
    center: Floats
    scale: Floats
    size: Floats  # mean square of each scaled covariate
    table_noise: float
    parts: tuple[int, ...] = ()
    stop: float = 1.0
    clip: float = 1.0
    theta: Floats = field(default_factory=lambda: np.zeros(0))
    hessian: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    rounds: list[Score] = field(default_factory=list)
    spread: float = 0.0

    def __post_init__(self) -> None:
        p, G = len(self.center), len(self.exits.units)
        self.parts = parts_of(np.sum(self.exits.events, axis=0), self.plan.parts)
        self.p, self.K, self.G = p, len(self.parts), G
        self.theta = np.zeros(p + self.K + G - 1)
        self.tau, self.smooth = math.exp(TUNING.size_log), TUNING.smooth
        self.whitening, self.mean = np.eye(p), np.zeros(p)
        self.kept = self.exits.total  # events that are left after stopping and weighting
        self.loose = np.zeros((0, 0))
        self.dark = TUNING.loose

    # ---- bounds ----------------------------------------------------------------------------------------------------

    def bound(self, noise: float) -> None:
        """Choose the stop B and the room of rows: noise, information lost, and its drift, at their least together.

        Parameters
        ----------
        noise : standard deviation of a sum of sensitivity 2 that takes all rounds' budget.

        Notes
        -----
        The loss is the modelled mean squared error of a coefficient of a standardised covariate. With N events, and the
        share k(B, C) of their information that is left,

            (noise B C/(N k))^2    noise of the score over the Hessian N k
            + (1/k - 1)/N          sampling variance 1/(N k) less that of all rows, 1/N
            + (drift (1 - k))^2    effects differ between the information that is lost and the rest.

        k is the product of the share of events before the stop and the mean weight min(1, C^2/|x|^2).
        """
        from scipy.stats import chi2  # heavy: loaded when it is used

        nodes, weights = normal_nodes()
        events = self.exits.total
        end = float(self.exits.hazards[:, -1] @ self.exits.units / np.sum(self.exits.units))
        # Squared lengths of rows with normal covariates, at 200 quantiles; hazards of units whose predictor is normal
        # with deviation 0.8. The offset 0.32 = 0.8^2/2 makes their mean the marginal hazard. Both chosen by hand; no
        # benchmark recorded.
        constants = TUNING.part_size**2 + self.stratum_size**2
        squares = chi2.ppf((np.arange(200) + 0.5) / 200, self.p) + constants
        hazards = end * np.exp(0.8 * nodes - 0.32)
        least = math.inf
        for stop in TUNING.stops:
            # A unit of total hazard h has its event before the stop with probability 1 - exp(-min(B, h)).
            stopped = weights @ (1 - np.exp(-np.minimum(stop, hazards))) / (weights @ (1 - np.exp(-hazards)))
            for room in TUNING.rooms:
                # Squared C: a multiple of the mean squared length, at least so large that a = part_size/C is within the
                # proof of `CoxStep`.
                clip = max(room * (self.p + constants), TUNING.part_size**2 / PART_MOST**2)
                share = float(stopped * np.mean(np.minimum(1, clip / squares)))
                loss = (noise * stop) ** 2 * clip / (events * share) ** 2
                loss += (1 / share - 1) / events + (TUNING.drift * (1 - share)) ** 2
                if loss < least:
                    # The length of a row at which its weight falls below 1; parts may have half of it (`CoxStep`).
                    least, self.stop, self.clip = loss, stop, math.sqrt(clip)

    @property
    def stratum_size(self) -> float:
        """Constant of a stratum; a single one repeats what the parts of the time tell."""
        return TUNING.stratum_size if self.G > 1 else TUNING.single_size

    # ---- a round ---------------------------------------------------------------------------------------------------

    def hazards(self) -> Floats:
        """Cumulative baseline hazards (G, bins + 1) for u = 0 at theta."""
        base = uncover(self.exits.hazards, self.spread)
        strata = np.concatenate([[0.0], self.theta[self.p + self.K :]])
        found = bent(base, self.parts, self.theta[self.p : self.p + self.K])
        return np.asarray(found * np.exp(strata)[:, None])

    def step(self, *, first: bool) -> CoxStep:
        """The statistic of the next round.

        The statistic sees v in [-1, 1]. With u = (v - center)/scale its linear predictor is slopes.v - slopes.center,
        and z = T (u - mean)/C = W v + o with W = T/(scale C) and o = -W center - T mean/C.

        Parameters
        ----------
        first : bool
            Whether it is the first round, whose second moments are of all rows.
        """
        clip, slopes = self.clip, self.theta[: self.p] / self.scale
        matrix = self.whitening / self.scale / clip
        return self.plan._step(
            coefficients=slopes,
            # eta is slopes.v; the center is part of the baseline. Both limits are guards against overflow by noise.
            hazards=np.minimum(self.hazards() * np.exp(-np.clip(slopes @ self.center, -20, 20)), 1e6),
            parts=self.parts,
            matrix=matrix,
            shift=-matrix @ self.center - self.whitening @ self.mean / clip,
            bound=self.stop,
            stratum_weight=self.stratum_size / clip,
            **_second(TUNING.part_size / clip, first=first),
        )

    def _map(self) -> Floats:
        """P (p + K + G, m): the numbers of a row in a release, times the clip, from those of theta."""
        p, K, G = self.p, self.K, self.G
        found = np.zeros((p + K + G, p + K + G - 1))
        found[:p, :p] = self.whitening
        # Every row is in one part, so that the mean is subtracted by the parts.
        found[:p, p : p + K] = -np.outer(self.whitening @ self.mean, np.ones(K))
        found[p : p + K, p : p + K] = TUNING.part_size * np.eye(K)
        found[p + K + 1 :, p + K :] = self.stratum_size * np.eye(G - 1)
        # The first stratum is where no other is: its constant is that of the parts minus the other strata.
        found[p + K, p : p + K] = self.stratum_size
        found[p + K, p + K :] = -self.stratum_size
        return found

    def take(self, step: CoxStep, release: Release, *, first: bool) -> None:
        """Learn from the release of a round.

        Parameters
        ----------
        step : CoxStep
            The statistic of the round, at the present theta.
        release : Release
            Score and second moments with noise.
        first : bool
            Whether it is the first round, whose second moments are of all rows and give no Hessian of events.
        """
        p, clip, noise = self.p, self.clip, release.noise_std
        score, moments = step.split(release.value)
        # A release has G + K constants where theta has K + G - 1: Q' takes the part of it that theta can explain, and
        # leaves the noise independent.
        Q, R = np.linalg.qr(self._map())
        inverse = np.linalg.inv(R)
        # In the units of z before it was divided by the clip.
        own = inverse @ (Q.T @ (clip * score))
        # `split` multiplies scores by B; z was divided by C.
        gradient_noise = clip * self.stop * noise
        if first:
            self._first_hessian(step, clip**2 * moments, clip**2 * noise / step.curvature)
            root = np.sqrt(np.diag(R @ self.hessian @ R.T))
            # No Hessian of events was released yet: its whole error is that of the guess from all people.
            blur = self.loose * np.outer(root, root)
        else:
            error = clip**2 * self.stop * noise / step.curvature
            blur = self._hessian(Q.T @ (clip**2 * moments) @ Q, R, error)
        self.rounds.append(Score(self.theta.copy(), own, inverse, gradient_noise, blur))
        # The errors of moved scores depend on the maximiser: a few iterations, of a fixed number.
        for _ in range(5):
            J, y = self._merged()
            self.theta = inverted(J + self._prior(self.tau)) @ y
        # Empirical Bayes: both prior deviations follow from the releases, and the posterior mean from them.
        self.tau = likely_size(J, y, p)
        self.smooth = self._likely_smoothness(J, y)
        self.theta = inverted(J + self._prior(self.tau)) @ y
        b = self.theta[:p]
        # Variance of the predictor among events; `uncover` takes it for that of the units.
        self.spread = math.sqrt(max(float(b @ self._own_moments() @ b), 0.0))
        self._whiten()

    def _merged(self) -> tuple[Floats, Floats]:
        """Information of all rounds so far."""
        return merged(self.rounds, self.hessian, self.theta, slice(self.p, self.p + self.K))

    def _prior(self, tau: float) -> Floats:
        """Prior precision of theta, for a prior deviation tau of the coefficients.

        Parameters
        ----------
        tau : float
            Prior deviation of a coefficient of u, equal for all.

        Returns
        -------
        array of shape (m, m)
        """
        # Parts get their precision below; 0 here.
        found = np.diag(
            np.concatenate([np.full(self.p, tau**-2), np.zeros(self.K), np.full(self.G - 1, TUNING.constant**-2)])
        )
        # A random walk over the parts: neighbours are alike, and none is far from the table.
        steps = np.diff(np.eye(self.K), axis=0)
        parts = slice(self.p, self.p + self.K)
        found[parts, parts] = np.eye(self.K) / TUNING.shift**2 + steps.T @ steps / self.smooth**2
        return found

    def _likely_smoothness(self, J: Floats, y: Floats) -> float:
        """The deviation of the walk over the parts that explains the rounds best, with a prior around `TUNING.smooth`.

        Where follow-up depends on the covariates, the table is far from the baseline and the walk is rough.

        Parameters
        ----------
        J, y : array of shape (m, m) and (m,)
            Information and weighted estimate of `estimation.merged`.
        """
        before, found = self.smooth, {}
        # The logarithm of the factor has a standard normal prior. Grid and prior were chosen by hand; no benchmark
        # recorded.
        for factor in (0.5, 1.0, 2.0, 4.0, 8.0):
            self.smooth = factor * TUNING.smooth
            found[self.smooth] = evidence(J, y, self._prior(self.tau)) - 0.5 * (math.log(factor) / 1.0) ** 2
        self.smooth = before
        return max(found, key=lambda each: found[each])

    def _own_moments(self) -> Floats:
        """Covariance of the covariates among events, parts and strata taken out: (p, p) per event."""
        H, p = self.hessian, self.p
        # Schur complement: the information about b that is left when parts and strata are estimated as well.
        across = np.linalg.solve(H[p:, p:], H[p:, :p])
        return np.asarray((H[:p, :p] - H[:p, p:] @ across) / self.kept)

    def _whiten(self) -> None:
        """Center and whitening of the next round: means and correlations of the covariates among events."""
        H, p, K = self.hessian, self.p, self.K
        self.mean = np.sum(H[:p, p : p + K], axis=1) / np.sum(np.diag(H)[p : p + K])
        covariance = self._own_moments()
        # Floors of a variance and of an eigenvalue of the correlations, so that noise is not enlarged without limit.
        # Chosen by hand; no benchmark recorded.
        root = np.sqrt(np.maximum(np.diag(covariance), 0.01))
        values, vectors = np.linalg.eigh(covariance / np.outer(root, root))
        # Correlations go and scales stay, so that noise falls where it matters least.
        self.whitening = root[:, None] * ((vectors * np.maximum(values, 0.03) ** -0.5) @ vectors.T) / root

    def _first_hessian(self, step: CoxStep, moments: Floats, noise: float) -> None:
        """The first Hessian: events times the second moments of all people.

        A round of `all_rows` has sum w x x' over all people, without the times. If covariates of events are those of
        all people, H is that mean times the number of events, with the events by stratum and part from the table. The
        errors of this guess are `TUNING.loose` and `TUNING.loose_parts`.

        Parameters
        ----------
        step : CoxStep
            The statistic of the first round.
        moments : array of shape (p + K + G, p + K + G)
            Its second moments, times C^2.
        noise : float
            Standard deviation of the noise of a diagonal entry of `moments`.
        """
        p, K, G = self.p, self.K, self.G
        units = float(np.sum(self.exits.units))
        size2 = self.stratum_size**2
        # Every row has the square of the constant in one stratum: their sum over that square is the sum of weights. The
        # limit 0.2 was chosen by hand; no benchmark recorded.
        weight = float(np.clip(np.sum(np.diag(moments)[p + K :]) / size2, 0.2 * units, units))
        if G == 1:
            # One stratum: its constant is a further column, whose products are the means.
            chosen = np.r_[np.arange(p), p + K]
            low = np.concatenate([np.clip(0.5 * self.size, 0.01, 0.3), [0.3 * size2]])
            found, rough = shrunk_moments(moments[np.ix_(chosen, chosen)], noise, weight, low)
            # The last row and column are the constant times its size.
            own, mean = found[:p, :p], found[:p, p:] / self.stratum_size
        else:
            found, rough = shrunk_moments(moments[:p, :p], noise, weight, np.clip(0.5 * self.size, 0.01, 0.3))
            share = np.maximum(np.diag(moments)[p + K :] / size2, 0.02 * units / G)
            # Means by stratum. Each keeps the share of its square in the sum of that and the variance of its noise.
            across = moments[:p, p + K :] / share
            spread = noise / math.sqrt(2) / share
            own, mean = found, across * across**2 / (across**2 + spread**2)
        self.dark = math.hypot(TUNING.loose, rough)
        self.kept = self.exits.total * weight / units
        # Events by stratum and part of the time, from the table.
        cells = np.add.reduceat(self.exits.events, [0, *self.parts[:-1]], axis=1) * weight / units
        cells = np.maximum(cells, 1e-3 * self.kept / (K * G))
        H = np.zeros((p + K + G - 1,) * 2)
        # Blocks of H per event: E[u u'], means of u by part and stratum, and the events themselves.
        H[:p, :p] = own * np.sum(cells)
        H[:p, p : p + K] = mean @ cells
        H[p : p + K, p : p + K] = np.diag(np.sum(cells, axis=0))
        H[p : p + K, p + K :] = cells[1:].T
        H[:p, p + K :] = mean[:, 1:] * np.sum(cells[1:], axis=1)
        H[p + K :, p + K :] = np.diag(np.sum(cells[1:], axis=1))
        H = np.triu(H) + np.triu(H, 1).T
        # Blocks from different sources need not be consistent: no direction keeps less than 0.02 of its diagonal.
        # Chosen by hand; no benchmark recorded.
        self.hessian = positive(H, np.maximum(np.diag(H), 1e-6) * 0.02)
        # What is not known yet: moments of events may differ from those of all people, and means drift with the time.
        loose = np.full_like(H, 1.0) * self.dark
        loose[:p, p:] = loose[p:, :p] = TUNING.loose_parts
        self.loose = loose

    def _hessian(self, measured: Floats, R: Floats, error: float) -> Floats:
        """Combine the Hessian with that of a round, entry by entry; returns the errors that are left, in R's units.

        Each entry is the posterior mean of a normal model: the guess R H R' with the relative error `loose`, the
        measurement with the noise of the release. The relative error of the result is widened by `TUNING.loose`/2,
        since H belongs to another theta in the next round.

        Parameters
        ----------
        measured : array of shape (m, m)
            Released second moments in the coordinates of R, R H R' and noise.
        R : array of shape (m, m)
            Triangular factor of P.
        error : float
            Standard deviation of the noise of a diagonal entry of `measured`.

        Returns
        -------
        array of shape (m, m)
            Standard deviations of the errors of the entries of R H R'.
        """
        p = self.p
        guess = R @ self.hessian @ R.T
        # Overall size first: the round measures how many events are left.
        unit = float(np.trace(measured) / np.trace(guess))
        # A trace adds m independent diagonal entries. The ratio has the prior N(1, 0.1^2), chosen by hand; no benchmark
        # recorded.
        variance = len(guess) * error**2 / float(np.trace(guess)) ** 2
        prior = 0.1**2
        factor = max((1 * variance + unit * prior) / (variance + prior), 0.05)
        guess = guess * factor
        root = np.sqrt(np.abs(np.diag(guess)))
        spread = self.loose * np.outer(root, root)
        # Noise of an entry off the diagonal (isometric coordinates), taken for the diagonal as well.
        rho = spread**2 / (spread**2 + error**2 / 2)
        found = guess + rho * (measured - guess)
        inverse = np.linalg.inv(R)
        self.hessian = inverse @ positive(found, np.maximum(np.diag(guess), 1e-9) * 0.03) @ inverse.T
        self.kept = float(np.sum(np.diag(self.hessian)[p : p + self.K]))
        # Posterior deviation of a normal model.
        left: Floats = spread * np.sqrt(1 - rho)
        self.loose = np.sqrt(self.loose**2 * (1 - rho) + (TUNING.loose / 2) ** 2)
        return left

    # ---- results ---------------------------------------------------------------------------------------------------

    def estimate(self) -> Estimate:
        """The results, in the units of the data."""
        p, plan = self.p, self.plan
        # A coefficient of u, over half a range times the scale, is one in the units of the data.
        half = plan.half[:p] * self.scale
        J, y = self._merged()
        prior = self._prior(TUNING.weak)
        sampling, noise = inverted(self.hessian), inverted(J)
        # Both numbers are noisy: limits keep the variances of the results finite.
        lost = float(np.clip(1 - self.kept / self.exits.total, 0, 0.9))
        # Effects that are not proportional differ between the information that is lost and the rest.
        # A baseline that steps from part to part is not known within parts either.
        steps = np.diff(self.theta[p : p + self.K])
        rough = float(np.mean(steps**2)) if len(steps) else 0.0
        drift = np.zeros_like(noise)
        drift[:p, :p] = ((TUNING.wander * lost) ** 2 + TUNING.within**2 * rough) * inverted(self._own_moments())

        # Posterior covariance of an estimate with this variance and the prior: (V^-1 + prior)^-1.
        def about(variance: Floats) -> Floats:
            return inverted(inverted(variance + drift) + prior)

        # Stopping and weighting lose part of the information: the fit differs from that of all by as much sampling.
        pooled, population = about(noise + lost * sampling), about(noise + sampling)
        mean = inverted(J + prior) @ y
        units = np.outer(half, half)
        found = interval_table(
            mean[:p] / half, pooled[:p, :p] / units, population[:p, :p] / units, np.full(p, math.inf)
        )
        reasons = self._reasons(J, noise)
        found["identified"] = (reasons == 0).astype(np.float64)
        found["unidentified_reason"] = reasons
        axis = plan.coefficient_axis
        estimate = {
            "coefficients": Quantity(mean[:p] / half, "coefficient", (axis,), found["pooled_std"]),
            "score_coefficients": Quantity(self.theta[:p] / half, "coefficient", (axis,)),
        }
        for name, value in found.items():
            estimate[name] = Quantity(value, "diagnostic", (axis, ENDS)[: value.ndim])
        at = plan.middle[:p] + plan.half[:p] * self.center
        estimate["baseline_at"] = Quantity(at, "number", (axis,))
        estimate |= self._survival(noise + lost * sampling, noise + sampling)
        single = {
            "baseline_steps": math.sqrt(rough),
            "events": self.exits.total,
            "lost_information": lost,
            "stop": self.stop,
            "clip": self.clip,
        }
        return estimate | {name: Quantity(np.array([value]), "diagnostic") for name, value in single.items()}

    def _reasons(self, J: Floats, noise: Floats) -> Floats:
        """Why coefficients are not identified, as numbers; 0 for those that are; (p,).

        Parameters
        ----------
        J : array of shape (m, m)
            Information of all rounds.
        noise : array of shape (m, m)
            Its inverse: the covariance of theta from privacy noise.
        """
        p = self.p
        deviation = np.sqrt(np.maximum(np.diag(noise)[:p], 0.0))
        # Deviation of a coefficient if all others were known; the ratio of both is the root of the variance inflation
        # factor.
        alone = 1 / np.sqrt(np.maximum(np.diag(J)[:p], 1e-300))
        # Eigenvalues of the columns' correlations that are below their own error: such combinations are not known.
        own = self._own_moments()
        root = np.sqrt(np.maximum(np.diag(own), 1e-12))
        values, vectors = np.linalg.eigh(own / np.outer(root, root))
        # The norm of a p x p matrix of independent errors is of the order of their deviation times sqrt(p).
        error = float(np.mean(self.loose[:p, :p])) * math.sqrt(p)
        hidden = np.sum(vectors[:, values < TUNING.collinear * error] ** 2, axis=1) > TUNING.hidden_share
        noisy = deviation > TUNING.known
        inflated = deviation > TUNING.inflation * alone
        reasons = np.where(noisy, np.where(inflated, COLLINEAR, NOISE), np.where(hidden, COLLINEAR, 0))
        few = self.exits.total < TUNING.events_each * p
        return np.asarray(np.where((reasons == NOISE) & few, FEW, reasons), dtype=np.float64)

    def _survival(self, pooled: Floats, population: Floats) -> Estimate:
        """Survival of a unit at the centers by stratum at the ends of bins, with intervals.

        The logarithm of the cumulative hazard has normal errors: of the parts and strata, and of the table, which
        alone gives the shape within a part and, with several strata, of each stratum.

        Parameters
        ----------
        pooled, population : array of shape (m, m)
            Covariances of theta.
        """
        hazards = self.hazards()[:, 1:]
        bins, ends = hazards.shape[1], np.array([0, *self.parts])
        # Share of each part in the hazard up to the end of each bin: the derivative by the part's logarithm.
        full = np.concatenate([np.zeros((self.G, 1)), hazards], axis=1)
        upto = np.minimum(np.arange(1, bins + 1)[:, None], ends[1:]), np.broadcast_to(ends[:-1], (bins, self.K))
        share = (full[:, np.maximum(*upto)] - full[:, upto[1]]) / np.maximum(hazards, 1e-300)[:, :, None]
        slopes = np.zeros((self.G, bins, len(pooled)))
        slopes[:, :, self.p : self.p + self.K] = share
        for g in range(1, self.G):
            slopes[g, :, self.p + self.K + g - 1] = 1.0
        # Events up to a bin have the noise of as many counts.
        counts = np.maximum(np.cumsum(self.exits.events, axis=1), 1.0)
        # Delta method: variance of log H is that of the count of events over its square.
        shape = self.table_noise**2 * np.arange(1, bins + 1) / counts**2
        if self.G == 1:
            # The parts correct the level at their ends: what is left is the interpolation between them. With position f
            # within a part its variance is f (1 - f) times that of the part's increment, as of a Brownian bridge.
            inside = np.maximum(np.diff(full, axis=1), 0)[0]
            size = np.diff(ends)
            events = np.add.reduceat(self.exits.events[0], ends[:-1])
            spent = np.cumsum(inside) - np.repeat(full[0, ends[:-1]], size)
            whole = np.repeat(np.diff(full[0, ends]), size)
            position = np.clip(spent / np.maximum(whole, 1e-300), 0, 1)
            relative = self.table_noise**2 * np.repeat(size / np.maximum(events, 1.0) ** 2, size)
            shape = (position * (1 - position) * relative * (whole / np.maximum(hazards[0], 1e-300)) ** 2)[None, :]
        # The hazard is constant within bins that were merged; that misfit has no noise to estimate it from.
        shape = np.minimum(shape, 4.0) + TUNING.band**2
        axes = self.plan.stratum_axis, Axis("time", tuple(f"{end:g}" for end in self.plan.times[1:]))
        found = {"baseline_survival": Quantity(np.exp(-hazards), "share", axes)}
        # Sampling variance of the logarithm of a cumulative hazard of N events, 1/N (Nelson and Aalen).
        greenwood = 1 / counts
        for kind, covariance, extra in (
            ("baseline_interval", pooled, shape),
            ("baseline_population_interval", population, shape + (greenwood if self.G > 1 else 0.0)),
        ):
            deviation = np.sqrt(np.einsum("gbi,ij,gbj->gb", slopes, covariance, slopes) + extra)
            # An interval of log H, mapped to survival exp(-H): its ends stay in [0, 1]. 50 prevents overflow.
            reach = np.exp(np.minimum(Z * deviation, 50.0))
            ends_ = np.stack([np.exp(-hazards * reach), np.exp(-hazards / reach)], axis=-1)
            found[kind] = Quantity(ends_, "number", (*axes, ENDS))
        return found
