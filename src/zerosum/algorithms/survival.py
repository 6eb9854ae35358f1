"""Survival curves and the log-rank test, by group, from one release of counts by time of leaving.

Model
-----
Time has public bins b = 1..B. The release is a table of counts per group: c_b units that leave in bin b without the
event (censored), d_b with the event, and one count after the last edge (`SurvivalTable`). All else is free
post-processing:

    r_b = sum over b' >= b of (c_b' + d_b') + after - c_b/2      at risk, by the actuarial convention
    S_b = product over b' <= b of (1 - d_b'/r_b')                survival at the end of bin b (Kaplan-Meier)
    U_g = sum over b of (d_gb - r_gb d_b/r_b)                    log-rank score of group g

The noise of the counts is normal with known variance. Its effect on S and U is the delta method with exact derivatives
(complex steps). Population intervals add Greenwood's variance, and the test the hypergeometric variance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import ALL, Level, shown
from zerosum.algorithms.intervals import ENDS, Z, ratio_interval
from zerosum.algorithms.program import MissingAlgorithm, Program
from zerosum.arrays import Floats
from zerosum.kernel.missing import MEANINGS, OBSERVED, OWN_ROWS, Rule
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.survival import SurvivalTable

# Most bins of time. Chosen by hand; no benchmark recorded.
MOST_BINS = 500
# Least number at risk in standard deviations of its noise, since it is a divisor: at 4 the relative error is a quarter.
# Chosen by hand; no benchmark recorded.
CLEARLY = 4.0
# The same from which the delta method is used alone. Chosen on made-up curves of 228 units: where fewer than a tenth of
# the runs pass CLEARLY, 95 % intervals of these runs would cover 70 to 85 % without the transition.
SURELY = 8.0
# Largest hazard in Greenwood's formula, which divides by 1 - hazard. A numerical guard.
_HAZARD_MOST = 0.999
# Imaginary step of complex-step derivatives: its square vanishes beside 1, so that there is no truncation error.
_STEP = 1e-30
# Entries of the table that are perturbed together: the perturbed tables of all entries would need the square of the
# table in memory. Chosen by hand.
_ENTRIES = 256


class SurvivalProgram(MissingAlgorithm):
    """Kaplan-Meier curves at the ends of public bins of time, with intervals, medians and the log-rank test.

    `columns` are the time until the event or the end of observation, the event indicator and, optionally, the group.
    `events` are the two values of the indicator: first without the event, then with it. Units observed beyond the last
    edge are censored there.

    `survival_interval` is for the pooled data, `survival_population_interval` for the population of which they are a
    sample. Where the number at risk is clearly above its noise, intervals are those of the delta method; elsewhere they
    are limits that hold for any number at risk, and may be wide (between four and eight standard deviations of the
    noise one turns into the other). Points are hidden (NaN, with an
    interval down to 0) by the number of units alone: where it is itself below four standard deviations of the noise of
    the number at risk.

    Parameters
    ----------
    edges : array of shape (B + 1,)
        Public rising edges of the bins of time.
    events : pair
        Values of the indicator, first without the event.
    groups : tuple, optional
        Public levels of the third column.
    """

    name: ClassVar[str] = "survival"
    columns: tuple[str, ...] = Field(min_length=2, max_length=3)
    edges: FloatArray
    events: tuple[Level, Level] = (0.0, 1.0)
    groups: tuple[Level, ...] = ()

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "a survival curve counts the observed rows of each unit with missing = 'observed': use that rule"
    }

    @model_validator(mode="after")
    def _sound(self) -> Self:
        """Refuse edges that do not rise, and groups without their column."""
        if self.edges.ndim != 1 or not 3 <= self.edges.size <= MOST_BINS + 1 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(f"edges must rise and make 2 to {MOST_BINS} bins of time, got {self.edges.size} edges")
        if len(self.columns) == 3 and len(self.groups) < 2:
            raise ValueError(f"groups must name two levels or more of {self.columns[2]!r}, got {list(self.groups)}")
        if len(self.columns) == 2 and self.groups:
            raise ValueError("groups are given without their column: columns must be the time, the event and the group")
        for name, known in (("events", self.events), ("groups", self.groups)):
            if len(set(known)) < len(known):
                raise ValueError(f"{name} must be different from each other, got {list(known)}")
        return self

    def fills(self, rule: Rule) -> bool:
        """No value can stand for a missing time or event; only "observed" is supported."""
        return False

    @classmethod
    def rule_words(cls) -> tuple[str, ...]:
        """The only rule."""
        return (MEANINGS[OBSERVED],)

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        """The two events, and the groups if there are any."""
        return dict(zip(self.columns[1:], (self.events, self.groups), strict=False))

    @property
    def _statistic(self) -> SurvivalTable:
        """The statistic of the release."""
        by: dict[str, Any] = {"group": 2, "groups": len(self.groups)} if self.groups else {}
        return SurvivalTable(columns=len(self.columns), edges=self.edges, **by)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        """One release of the whole budget."""
        return (PrivateSum(self._statistic),)

    def program(self, adjacency: Adjacency) -> Program:
        """One release; curves, medians and the log-rank test are computed from its table."""
        release = yield self.requests(adjacency)[0]
        count = max(len(self.groups), 1)
        table = LeavingTable.of(release, count, whole=OBSERVED not in self.rules.values())
        names = tuple(shown(each) for each in self.groups) or (ALL,)
        groups, bins = Axis("group", names), Axis("time", tuple(f"{end:g}" for end in self.edges[1:]))
        curves = [table.curve(g) for g in range(count)]
        stacked = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
        medians = np.array([self._median(curve) for curve in curves])
        quantities = {
            "survival": Quantity(stacked["survival"], "share", (groups, bins), stacked["noise"]),
            "survival_interval": Quantity(stacked["pooled"], "number", (groups, bins, ENDS)),
            "survival_population_interval": Quantity(stacked["population"], "number", (groups, bins, ENDS)),
            "at_risk": Quantity(table.at_risk, "count", (groups, bins), table.at_risk_std),
            "at_risk_start": Quantity(table.at_start, "count", (groups, bins), table.at_start_std),
            "events": Quantity(table.events, "count", (groups, bins), table.std),
            "median": Quantity(medians[:, 0], "number", (groups,)),
            "median_interval": Quantity(medians[:, 1:3], "number", (groups, ENDS)),
            "median_population_interval": Quantity(medians[:, 3:], "number", (groups, ENDS)),
        }
        return quantities | (table.log_rank() if count > 1 else {})

    def _median(self, curve: Mapping[str, Floats]) -> list[float]:
        """The median with the ends of its pooled and its population interval; NaN where the curve stays above one half.

        The median is where the curve, interpolated linearly between the ends of bins, reaches one half. The lower end
        is the beginning of the first bin in which the lower limit of the curve is at most one half. The upper end is
        the end of the first bin in which the upper limit is.
        """
        medians, survival = [np.nan], np.append(1.0, curve["survival"])
        # `survival` begins with 1 at time 0, so that `at` is at least 1 and edges[at] is the end of bin `at`.
        if (below := np.flatnonzero(survival <= 0.5)).size:
            at = int(below[0])
            fallen = (survival[at - 1] - 0.5) / (survival[at - 1] - survival[at])
            medians = [float(self.edges[at - 1] + fallen * (self.edges[at] - self.edges[at - 1]))]
        for kind in ("pooled", "population"):
            for end in (0, 1):
                reached = np.flatnonzero(curve[kind][:, end] <= 0.5)
                medians.append(float(self.edges[reached[0] + end]) if reached.size else np.nan)
        return medians


class LeavingTable:
    """Noisy counts of leaving units, (groups, 2 B + 1): c_1, d_1, ..., c_B, d_B, and the units after the last edge.

    A unit that leaves without the event is at risk for half of its bin (the actuarial convention), so that a curve on
    coarse bins is near the one on exact times.

    Parameters
    ----------
    table : array of shape (groups, 2 B + 1)
        Noisy counts.
    std : float
        Standard deviation of the noise of an entry.
    tied : bool
        Whether the entries have been adjusted to the public total.
    """

    def __init__(self, table: Floats, std: float, *, tied: bool) -> None:
        self.table, self.std, self.tied = table, std, tied
        self.bins = (table.shape[1] - 1) // 2
        self.at_risk, self.events = _at_risk(table), table[:, 1:-1:2]
        # the number at risk is linear in the table, so that its noise is the same in all groups
        own = self._std_of(_at_risk, 0)
        self.at_risk_std = np.broadcast_to(own, self.at_risk.shape)
        self.at_start = _at_start(table)
        self.at_start_std = np.broadcast_to(self._std_of(_at_start, 0), self.at_start.shape)

    @classmethod
    def of(cls, release: Release, groups: int, *, whole: bool) -> LeavingTable:
        """The table of a release. If all units count and their number is public, the entries are adjusted to it.

        Parameters
        ----------
        release : Release
            A release of `SurvivalTable`.
        groups : int
            Number of groups.
        whole : bool
            Whether no value can be missing, so that all units count.
        """
        table = release.value.reshape(groups, -1)
        tied = whole and release.units is not None
        # The least change of the counts that gives them the public total: every entry has the same noise, so the
        # difference is spread evenly.
        if tied:
            table = table - (np.sum(table) - float(release.units or 0)) / table.size
        return cls(table, release.noise_std, tied=tied)

    def covariance(self, function: Callable[[Any], Any], groups: Sequence[int] | None = None) -> Floats:
        """Covariance that privacy noise gives to a function of the table, to first order (delta method).

        Parameters
        ----------
        function : callable
            A rational function from tables (..., groups, 2 B + 1) to vectors (..., m).
        groups : sequence of int, optional
            The groups it depends on; None: all.

        Returns
        -------
        covariance : array (m, m)
            std^2 J' J for the Jacobian J. A table adjusted to a public total has noise orthogonal to the constant
            vector, so the part of J along it is removed.
        """
        chosen = list(range(len(self.table))) if groups is None else list(groups)
        part = self.table[chosen]
        # Complex-step derivatives, imag f(x + ih)/h, have no cancellation, so they are exact to full precision.
        slopes = []
        for entries in np.array_split(np.arange(part.size), 1 + part.size // _ENTRIES):
            steps = np.zeros((len(entries), part.size), dtype=complex)
            steps[np.arange(len(entries)), entries] = 1j * _STEP
            with np.errstate(all="ignore"):
                slopes.append(function(part + steps.reshape(-1, *part.shape)).imag)
        slope = np.concatenate(slopes) / _STEP
        # Adjusting to a public total subtracts the mean noise from all entries: the noise loses its part along the
        # constant vector, and its covariance is std^2 (I - 1 1'/entries).
        together = np.sum(slope, axis=0)
        tie = np.outer(together, together) / self.table.size if self.tied else 0.0
        return self.std**2 * np.asarray(slope.T @ slope - tie)

    def _std_of(self, function: Callable[[Any], Any], g: int) -> Floats:
        """Standard deviation that privacy noise gives to a function of one group's part of the table.

        Parameters
        ----------
        function : callable
            As for `covariance`.
        g : int
            Position of the group.
        """
        return np.sqrt(np.maximum(np.diag(self.covariance(lambda each: function(each)[..., 0, :], [g])), 0.0))

    def horizon(self, g: int) -> int:
        """Number of bins of a group's curve: until the number at risk is at most CLEARLY times its noise, or 1.

        Parameters
        ----------
        g : int
            Position of the group.
        """
        hidden = np.flatnonzero(self.at_risk[g] <= np.maximum(CLEARLY * self.at_risk_std[g], 1.0))
        return int(hidden[0]) if hidden.size else self.bins

    def curve(self, g: int) -> dict[str, Floats]:
        """A group's curve at the ends of bins, the standard deviation of its noise, and both intervals.

        Parameters
        ----------
        g : int
            Position of the group.

        Returns
        -------
        curve : dict
            `survival` and `noise` (B,), `pooled` and `population` (B, 2).
        """
        known, shown = self.horizon(g), self.shown
        # Limits that hold whatever the number at risk is; where it is clearly above its noise, narrower ones follow.
        pooled, population = self._limits(g)
        survival, noise = np.mean(pooled, axis=1), (pooled[:, 1] - pooled[:, 0]) / (2 * Z)
        if known:
            raw = _survival(self.table)[g, :known]
            noise[:known] = self._std_of(lambda each: _survival(each)[..., :known], g)
            hazard = np.clip(self.events[g, :known] / self.at_risk[g, :known], 0, _HAZARD_MOST)
            # Greenwood: var S = S^2 sum d/(r (r - d)) = S^2 sum hazard/((1 - hazard) r)
            greenwood = np.cumsum(hazard / (1 - hazard) / self.at_risk[g, :known])
            # A survival curve does not rise: the estimate is a non-increasing fit. Intervals are around the raw curve,
            # whose error the delta method gives.
            survival[:known] = np.clip(_falling(raw), 0.0, 1.0)
            # The delta method errs where noise made the number at risk too large. So its interval takes over by
            # degrees, with the smallest evidence of all bins up to here.
            evidence = np.minimum.accumulate(self.at_risk[g, :known] / np.maximum(self.at_risk_std[g, :known], 1e-300))
            trust = np.clip((evidence - CLEARLY) / (SURELY - CLEARLY), 0.0, 1.0)[:, None]
            for ends, extra in ((pooled, 0.0), (population, greenwood * survival[:known] ** 2)):
                reach = Z * np.sqrt(noise[:known] ** 2 + extra)
                near = np.clip(np.stack([raw - reach, raw + reach], axis=-1), 0.0, 1.0)
                ends[:known] = trust * near + (1 - trust) * ends[:known]
                # later the curve is not above its last upper limit
                ends[known:] = np.minimum(ends[known:], ends[known - 1, 1])
        survival = np.minimum.accumulate(np.clip(survival, pooled[:, 0], pooled[:, 1]))
        # the limits of different bins need not fall, and the curve does: they are widened to contain it
        for ends in (pooled, population):
            ends[:, 0] = np.minimum(ends[:, 0], survival)
            ends[shown:, 0] = 0.0
        survival[shown:], noise[shown:] = np.nan, np.nan
        return {"survival": survival, "noise": noise, "pooled": pooled, "population": population}

    @property
    def shown(self) -> int:
        """Number of bins in which a curve is shown: those in which all units together, if they were still at risk,
        would be clearly more than the noise of their number.

        It depends on the noise and on the number of units, which is public under replace-one, and not on the number at
        risk. A curve that ended where the noisy number at risk is small would be shown for longer if noise made that
        number larger, and intervals of the points that are shown would not cover as stated.
        """
        total = float(np.sum(self.table))
        hidden = np.flatnonzero(CLEARLY * self.at_risk_std[0] >= total)
        return int(hidden[0]) if hidden.size else self.bins

    def _limits(self, g: int) -> tuple[Floats, Floats]:
        """Limits of a group's curve for the pooled data and for the population, each (B, 2), without a division by the
        number at risk.

        Of n units in a group, A_b are left after bin b and D_b had the event by then. If those who left without the
        event had all had it, the curve would be A_b/n, and if none of them had, 1 - D_b/n: it lies between. Both are
        ratios of sums of the table, whose limits are Fieller's.
        """
        width, bins = self.table.shape[1], np.arange(1.0, self.bins + 1)
        total, ones = float(np.sum(self.table[g])), np.ones(self.bins)
        gone = np.cumsum(self.table[g, 0:-1:2] + self.table[g, 1:-1:2])

        def covariance(one: Floats, other: Floats, both: Floats) -> Floats:
            """Covariance of two sums over this many entries, `both` of them in common."""
            tie = one * other / self.table.size if self.tied else 0.0
            return self.std**2 * (both - tie)

        def limits(sums: Floats, entries: Floats) -> Floats:
            """Limits (B, 2) of sums over `entries` of the group's row, divided by the sum of the row."""
            whole = width * ones
            own, cross = covariance(entries, entries, entries), covariance(entries, whole, entries)
            return ratio_interval(sums, total * ones, own, cross, covariance(whole, whole, whole), 0.0, 1.0)

        left = limits(total - gone, width - 2 * bins)[:, 0]
        died = limits(np.cumsum(self.events[g]), bins)[:, 0]
        pooled = np.stack([np.minimum(left, 1 - died), 1 - died], axis=-1)
        # The sampling variance of a share of n units is at most share (1 - share)/n; squares of distances add up.
        side = Z * np.sqrt(pooled * (1 - pooled) / max(total, 1.0))
        middle = np.mean(pooled, axis=1)
        reach = np.hypot((pooled[:, 1] - pooled[:, 0])[:, None] / 2, side)
        population = np.stack([middle - reach[:, 0], middle + reach[:, 1]], axis=-1)
        return pooled, np.clip(population, 0.0, 1.0)

    def log_rank(self) -> dict[str, Quantity]:
        """Log-rank test that all groups have one curve, over the bins in which every group has enough units at risk.

        The score U is, for each group but the first, the number of events minus the expected number. Under the null
        hypothesis its covariance is the hypergeometric one plus that of privacy noise, and the statistic is
        U' (sum of both)^-1 U, chi-squared with groups - 1 degrees of freedom. With two groups, `log_rank_z` is its
        signed root, the score over the root of the sum of both. `log_rank_pooled_z` is the score over its
        hypergeometric standard deviation alone: an estimate of the z of the test without privacy, with the standard
        deviation that privacy adds.
        """
        groups = len(self.table)
        known = min(self.horizon(g) for g in range(groups))
        if known == 0:
            nothing = {"log_rank_statistic": 0.0, "log_rank_p": 1.0, "log_rank_bins": 0.0}
            return {name: Quantity(np.array([value]), "diagnostic") for name, value in nothing.items()}
        # The first group is left out: the scores of all groups add up to 0.
        score = _score(self.table, known)
        noise = self.covariance(lambda each: _score(each, known))
        risk, events = self.at_risk[:, :known], np.maximum(np.sum(self.events[:, :known], axis=0), 0.0)
        total = np.sum(risk, axis=0)
        share = risk / total
        # Hypergeometric covariance of the events of the groups in a bin with d events and r at risk: d (r - d)/(r - 1)
        # times diag(p) - p p' for the shares p of the groups at risk (Mantel and Haenszel).
        weight = events * np.clip((total - events) / np.maximum(total - 1, 1.0), 0, 1)
        chance = np.diag(share @ weight) - (share * weight) @ share.T
        chance = chance[1:, 1:]
        from scipy.special import gammaincc

        # The pseudo-inverse, since noisy tables may have a group without events or risk.
        statistic = float(score @ np.linalg.pinv(chance + noise) @ score)
        # the upper tail of a chi-squared variable with groups - 1 degrees of freedom
        p = float(gammaincc((groups - 1) / 2, statistic / 2))
        statistics = {"log_rank_statistic": statistic, "log_rank_p": p, "log_rank_bins": float(known)}
        quantities = {name: Quantity(np.array([value]), "diagnostic") for name, value in statistics.items()}
        if groups == 2 and chance[0, 0] > 0:
            unit = np.sqrt(chance[0, 0])
            quantities["log_rank_z"] = Quantity(score / np.sqrt(chance[0] + noise[0]), "diagnostic")
            quantities["log_rank_pooled_z"] = Quantity(score / unit, "diagnostic", (), np.sqrt(noise[0]) / unit)
        return quantities


def _at_risk(table: Any) -> Any:
    """Number at risk in each bin: units that leave in it or later, minus half of its censored units.

    Parameters
    ----------
    table : array of shape (..., 2 B + 1)
        Counts of leaving units, real or complex.

    Returns
    -------
    at_risk : array of shape (..., B)
    """
    return _at_start(table) - table[..., 0:-1:2] / 2


def _at_start(table: Any) -> Any:
    """Number at risk at the beginning of each bin, (..., B): units that leave in it or later, by `table` as above."""
    leaving = table[..., 0:-1:2] + table[..., 1:-1:2]
    return np.flip(np.cumsum(np.flip(leaving, axis=-1), axis=-1), axis=-1) + table[..., -1:]


def _survival(table: Any) -> Any:
    """Kaplan-Meier curve at the ends of bins, (..., B), from a table (..., 2 B + 1)."""
    # bins without units at risk divide by 0; the caller cuts the curve off before them
    with np.errstate(all="ignore"):
        return np.cumprod(1 - table[..., 1:-1:2] / _at_risk(table), axis=-1)


def _score(table: Any, known: int) -> Any:
    """Events minus expected events over the first `known` bins, for every group but the first.

    Parameters
    ----------
    table : array of shape (..., groups, 2 B + 1)
        Counts of leaving units, real or complex.
    known : int
        Number of bins.

    Returns
    -------
    score : array of shape (..., groups - 1)
    """
    risk, events = _at_risk(table)[..., :known], table[..., 1:-1:2][..., :known]
    expected = risk * (np.sum(events, axis=-2) / np.sum(risk, axis=-2))[..., None, :]
    return np.sum(events - expected, axis=-1)[..., 1:]


def _falling(curve: Floats) -> Floats:
    """A non-increasing curve: the mean of the running minimum and of the maximum of all later values."""
    lowest = np.minimum.accumulate(curve)
    highest = np.flip(np.maximum.accumulate(np.flip(curve)))
    return np.asarray((lowest + highest) / 2)
