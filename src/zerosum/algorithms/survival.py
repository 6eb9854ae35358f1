"""Survival curves and the log-rank test, by group, from one release of who left when.

Tested in tests/algorithms/test_survival.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from zerosum.algorithms.groups import ALL, Level, shown
from zerosum.algorithms.intervals import Z
from zerosum.algorithms.program import MissingAlgorithm, Program
from zerosum.arrays import Floats
from zerosum.kernel.missing import OBSERVED, OWN_ROWS, Rule
from zerosum.kernel.quantity import Axis, Quantity
from zerosum.kernel.request import PrivateSum, Release
from zerosum.kernel.statistic import Adjacency, FloatArray
from zerosum.statistics.survival import SurvivalTable

MOST = 500  # bins of time
CLEARLY = 4.0  # standard deviations of its noise that a number of people at risk must have, to divide by it
ENDS = Axis("end", ("lower", "upper"))


class SurvivalProgram(MissingAlgorithm):
    """Kaplan-Meier curves at the ends of public bins of time, with intervals, medians and the log-rank test.

    `columns` are the time until the event or the end of observation, whether it was the event, and, if there are
    groups, the group. `events` are what the second one says: first without the event, then with it. People who are
    still there at the last edge are censored there.

    `survival_interval` is for the pooled data, `survival_population_interval` for the people they are a sample of. A
    curve ends where so few are at risk that the noise hides them; from there on it is not a number, and its interval
    goes down to 0.
    """

    name: ClassVar[str] = "survival"
    columns: tuple[str, ...] = Field(min_length=2, max_length=3)
    edges: FloatArray
    events: tuple[Level, Level] = (0.0, 1.0)
    groups: tuple[Level, ...] = ()

    words: ClassVar[Mapping[str, str]] = {
        OWN_ROWS: "a unit counts by its own rows that are there if missing is 'observed': say that instead"
    }

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.edges.ndim != 1 or not 3 <= self.edges.size <= MOST + 1 or not np.all(np.diff(self.edges) > 0):
            raise ValueError(f"edges of time must rise, and make 2 to {MOST} bins")
        if len(self.columns) == 3 and len(self.groups) < 2:
            raise ValueError("a column of groups needs the names of at least two groups")
        if len(self.columns) == 2 and self.groups:
            raise ValueError("name the column of the groups, after those of the time and of the event")
        for known in (self.events, self.groups):
            if len(set(known)) < len(known):
                raise ValueError("events and groups must be different from each other")
        return self

    def fills(self, rule: Rule) -> bool:
        return False

    @property
    def categories(self) -> dict[str, Sequence[Level]]:
        return dict(zip(self.columns[1:], (self.events, self.groups), strict=False))

    @property
    def _statistic(self) -> SurvivalTable:
        by: dict[str, Any] = {"group": 2, "groups": len(self.groups)} if self.groups else {}
        return SurvivalTable(columns=len(self.columns), edges=self.edges, **by)

    def requests(self, adjacency: Adjacency) -> tuple[PrivateSum, ...]:
        return (PrivateSum(self._statistic),)

    def program(self, adjacency: Adjacency) -> Program:
        release = yield self.requests(adjacency)[0]
        count = max(len(self.groups), 1)
        table = LeavingTable.of(release, count, whole=OBSERVED not in self.rules.values())
        names = tuple(shown(each) for each in self.groups) or (ALL,)
        groups, bins = Axis("group", names), Axis("time", tuple(f"{end:g}" for end in self.edges[1:]))
        curves = [table.curve(g) for g in range(count)]
        stacked = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
        medians = np.array([self._median(curve) for curve in curves])
        found = {
            "survival": Quantity(stacked["survival"], "share", (groups, bins), stacked["noise"]),
            "survival_interval": Quantity(stacked["pooled"], "number", (groups, bins, ENDS)),
            "survival_population_interval": Quantity(stacked["population"], "number", (groups, bins, ENDS)),
            "at_risk": Quantity(table.at_risk, "count", (groups, bins), table.at_risk_std),
            "events": Quantity(table.events, "count", (groups, bins), table.std),
            "median": Quantity(medians[:, 0], "number", (groups,)),
            "median_interval": Quantity(medians[:, 1:3], "number", (groups, ENDS)),
            "median_population_interval": Quantity(medians[:, 3:], "number", (groups, ENDS)),
        }
        return found | (table.log_rank() if count > 1 else {})

    def _median(self, curve: Mapping[str, Floats]) -> list[float]:
        """Where a curve comes down to one half, straight between the ends of bins; then the bins in which it may.

        The lower end is the beginning of the first bin in which the interval of the curve reaches one half, the upper
        one the end of the last.
        """
        found, survival = [np.nan], np.append(1.0, curve["survival"])
        if (below := np.flatnonzero(survival <= 0.5)).size:
            at = int(below[0])
            fallen = (survival[at - 1] - 0.5) / (survival[at - 1] - survival[at])
            found = [float(self.edges[at - 1] + fallen * (self.edges[at] - self.edges[at - 1]))]
        for kind in ("pooled", "population"):
            for end in (0, 1):
                reached = np.flatnonzero(curve[kind][:, end] <= 0.5)
                found.append(float(self.edges[reached[0] + end]) if reached.size else np.nan)
        return found


class LeavingTable:
    """Noisy counts of who left: groups by (without, with the event in each bin; and after the last one).

    People who leave a bin without the event are at risk for half of it (the actuarial convention), so that a curve on
    coarse bins is near the one on exact times. `std` is that of an entry.
    """

    def __init__(self, table: Floats, std: float, *, tied: bool) -> None:
        self.table, self.std, self.tied = table, std, tied
        self.bins = (table.shape[1] - 1) // 2
        self.at_risk, self.events = _at_risk(table), table[:, 1:-1:2]
        own = self._std_of(_at_risk, 0)
        self.at_risk_std = np.broadcast_to(own, self.at_risk.shape)

    @classmethod
    def of(cls, release: Release, groups: int, *, whole: bool) -> LeavingTable:
        """Where everybody is counted and how many these are is public, the entries add up to that."""
        table = release.value.reshape(groups, -1)
        tied = whole and release.units is not None
        if tied:
            table = table - (np.sum(table) - float(release.units or 0)) / table.size
        return cls(table, release.noise_std, tied=tied)

    def covariance(self, function: Callable[[Any], Any], groups: Sequence[int] | None = None) -> Floats:
        """Of what privacy's noise does to a function of the table with one axis, to first order; the function is
        rational, and looks at these groups only. Where entries add up to a public number, that much less."""
        chosen = list(range(len(self.table))) if groups is None else list(groups)
        part = self.table[chosen]
        slopes = []  # by complex steps: exact. Some entries at a time, since all at once is the square of the table
        for entries in np.array_split(np.arange(part.size), 1 + part.size // 256):
            steps = np.zeros((len(entries), part.size), dtype=complex)
            steps[np.arange(len(entries)), entries] = 1e-30j
            with np.errstate(all="ignore"):
                slopes.append(function(part + steps.reshape(-1, *part.shape)).imag)
        slope = np.concatenate(slopes) / 1e-30
        together = np.sum(slope, axis=0)
        tie = np.outer(together, together) / self.table.size if self.tied else 0.0
        return self.std**2 * np.asarray(slope.T @ slope - tie)

    def _std_of(self, function: Callable[[Any], Any], g: int) -> Floats:
        """Of a function of one group's part of the table."""
        return np.sqrt(np.maximum(np.diag(self.covariance(lambda each: function(each)[..., 0, :], [g])), 0.0))

    def horizon(self, g: int) -> int:
        """How many bins a group's curve goes: as long as those at risk clearly exceed their noise, and one."""
        hidden = np.flatnonzero(self.at_risk[g] <= np.maximum(CLEARLY * self.at_risk_std[g], 1.0))
        return int(hidden[0]) if hidden.size else self.bins

    def curve(self, g: int) -> dict[str, Floats]:
        """A group's curve at the ends of bins, the noise's standard deviation, and both intervals."""
        known = self.horizon(g)
        survival, noise = np.full(self.bins, np.nan), np.full(self.bins, np.nan)
        pooled, population = (np.tile([0.0, 1.0], (self.bins, 1)) for _ in range(2))
        if known:
            raw = _survival(self.table)[g, :known]
            noise[:known] = self._std_of(lambda each: _survival(each)[..., :known], g)
            hazard = np.clip(self.events[g, :known] / self.at_risk[g, :known], 0, 0.999)
            greenwood = np.cumsum(hazard / (1 - hazard) / self.at_risk[g, :known])
            falling = np.clip(_falling(raw), 0.0, 1.0)
            for ends, extra in ((pooled, 0.0), (population, greenwood * falling**2)):
                reach = Z * np.sqrt(noise[:known] ** 2 + extra)
                ends[:known] = np.clip(np.stack([raw - reach, raw + reach], axis=-1), 0.0, 1.0)
                ends[known:, 1] = ends[known - 1, 1]
            survival[:known] = np.clip(falling, pooled[:known, 0], pooled[:known, 1])
        return {"survival": survival, "noise": noise, "pooled": pooled, "population": population}

    def log_rank(self) -> dict[str, Quantity]:
        """The test that all groups have one curve, over the bins in which every group is clearly at risk.

        The score is, for each group but the first, the events there less those expected. Under one curve it varies by
        chance (the hypergeometric variance) and by privacy's noise; the statistic is its square in units of both
        together. With two groups `log_rank_z`, the score in units of chance alone, is what the same test
        without privacy would say, and its standard deviation is what privacy adds.
        """
        groups = len(self.table)
        known = min(self.horizon(g) for g in range(groups))
        if known == 0:
            nothing = {"log_rank_statistic": 0.0, "log_rank_p": 1.0, "log_rank_bins": 0.0}
            return {name: Quantity(np.array([value]), "diagnostic") for name, value in nothing.items()}
        score = _score(self.table, known)
        noise = self.covariance(lambda each: _score(each, known))
        risk, events = self.at_risk[:, :known], np.maximum(np.sum(self.events[:, :known], axis=0), 0.0)
        total = np.sum(risk, axis=0)
        share = risk / total
        weight = events * np.clip((total - events) / np.maximum(total - 1, 1.0), 0, 1)
        chance = np.diag(share @ weight) - (share * weight) @ share.T
        chance = chance[1:, 1:]
        from scipy.special import gammaincc

        statistic = float(score @ np.linalg.pinv(chance + noise) @ score)
        p = float(gammaincc((groups - 1) / 2, statistic / 2))
        found = {"log_rank_statistic": statistic, "log_rank_p": p, "log_rank_bins": float(known)}
        quantities = {name: Quantity(np.array([value]), "diagnostic") for name, value in found.items()}
        if groups == 2 and chance[0, 0] > 0:
            unit = np.sqrt(chance[0, 0])
            quantities["log_rank_z"] = Quantity(score / unit, "diagnostic", (), np.sqrt(noise[0]) / unit)
        return quantities


def _at_risk(table: Any) -> Any:
    """Who is at risk in each bin: whoever leaves in it or later, less half of those who leave without the event."""
    leaving = table[..., 0:-1:2] + table[..., 1:-1:2]
    later = np.flip(np.cumsum(np.flip(leaving, axis=-1), axis=-1), axis=-1) + table[..., -1:]
    return later - table[..., 0:-1:2] / 2


def _survival(table: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.cumprod(1 - table[..., 1:-1:2] / _at_risk(table), axis=-1)


def _score(table: Any, known: int) -> Any:
    """Events less those expected, for every group but the first."""
    risk, events = _at_risk(table)[..., :known], table[..., 1:-1:2][..., :known]
    expected = risk * (np.sum(events, axis=-2) / np.sum(risk, axis=-2))[..., None, :]
    return np.sum(events - expected, axis=-1)[..., 1:]


def _falling(curve: Floats) -> Floats:
    """A curve that falls, half-way between the highest after and the lowest before."""
    lowest = np.minimum.accumulate(curve)
    highest = np.flip(np.maximum.accumulate(np.flip(curve)))
    return np.asarray((lowest + highest) / 2)
