"""Forecasts for varying epsilon, units, sites and colluders, and search for the smallest sufficient epsilon.

All settings use the same samples and the same draws of noise (common random numbers), so that settings differ by their
noise level and not by chance. Only the study's own setting gets the full number of simulations. Other settings get a
fraction, and their errors are corrected by the ratio that the own setting shows between many and few simulations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from zerosum.errors import BadParameter
from zerosum.forecast.assumptions import Assumptions
from zerosum.forecast.forecasting import Advisor, Forecast, OnStep
from zerosum.forecast.settings import Setting
from zerosum.study.study_file import Study

LARGEST, _SMALLEST = 100.0, 1e-4  # largest and smallest epsilon of a search; chosen by hand
# The other structures get this fraction of the simulations of the typical one, at least as many as another setting.
_STRUCTURE_FRACTION = 4
_TRIES = 10  # approximate number of forecasts of a search, for progress reports
_RATIO_TOLERANCE = 1.05  # the search stops when its bounds are closer than this factor; chosen by hand
SUMMARY = ""  # key of the summary figure among targets


@dataclass(frozen=True)
class Target:
    """Result of a search: the forecast at the smallest epsilon whose privacy errors are at most `wanted` and that
    suppresses none of these numbers. None if there is no such epsilon."""

    wanted: Mapping[str, float]  # largest error by label of a line, or by SUMMARY
    forecast: Forecast | None
    others: tuple[tuple[str, float | None], ...] = ()  # the same epsilon by name of another structure of the data

    @property
    def epsilon(self) -> float | None:
        """The epsilon found, or None."""
        return None if self.forecast is None else self.forecast.setting.epsilon

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        record = None if self.forecast is None else self.forecast.as_record()
        others = {"structures": dict(self.others)} if self.others else {}
        return {"wanted": dict(self.wanted), "epsilon": self.epsilon, "forecast": record} | others


@dataclass(frozen=True)
class StructureForecast:
    """Forecast of the study under one structure of the data."""

    name: str  # "favourable", "difficult"
    description: str  # of the assumptions
    forecast: Forecast

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        own = {name: getattr(self.forecast, name) for name in ("privacy", "sampling", "together")}
        return {"name": self.name, "guesses": self.description} | own


@dataclass(frozen=True)
class WhatIf:
    """Forecast of a study's own setting, and of settings that differ in one quantity.

    Attributes
    ----------
    unit : str
        Unit of the summary figure.
    description : str
        Assumptions about the data.
    source : str
        Source of the simulated units.
    own : Forecast
        Forecast of the study as it is.
    around : mapping of str to tuple of Forecast
        Forecasts by the quantity that varies (`settings.KINDS`), in increasing order of it.
    target : Target or None
        Result of a search.
    level : str
        Name of 1 - figure, if the figure is a loss.
    structures : tuple of StructureForecast
        Forecasts of the study under other structures of the data that agree with what is stated.
    caveat : str
        What the forecast rests on, if that should be read first.
    """

    study: str
    algorithm: str
    unit: str
    description: str  # of the assumptions
    source: str  # source of the simulated units
    own: Forecast
    around: Mapping[str, tuple[Forecast, ...]]
    target: Target | None = field(default=None)
    level: str = ""  # name of 1 - figure, if the figure is a loss
    structures: tuple[StructureForecast, ...] = ()
    caveat: str = ""

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest error that privacy adds, over the structures of the data."""
        each = [self.own.privacy, *(other.forecast.privacy for other in self.structures)]
        known = [error for error in each if math.isfinite(error)] or [math.nan]
        return min(known), max(known)

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        return {
            "study": self.study,
            "algorithm": self.algorithm,
            "unit": self.unit,
            "level": self.level,
            "guesses": self.description,
            "caveat": self.caveat,
            "range": list(self.range),
            "structures": [each.as_record() for each in self.structures],
            "own": self.own.as_record(),
            "around": {kind: [each.as_record() for each in row] for kind, row in self.around.items()},
            "target": None if self.target is None else self.target.as_record(),
        }


def what_if(
    study: Study,
    assumptions: Assumptions | None = None,
    *,
    people: int | None = None,
    runs: int | None = None,
    target: Mapping[str, float] | None = None,
    on_step: OnStep = lambda done, planned: None,
) -> WhatIf:
    """Forecasts around a study's own setting. Settings for which no plan exists are left out.

    Parameters
    ----------
    study : Study
        The study; private parts are not read.
    assumptions : Assumptions, optional
        Public assumptions about the data.
    people : int, optional
        Number of units; by default as the roster declares.
    runs : int, optional
        Simulations for the study's own setting. Other settings get 1/16 of them.
    target : mapping of str to float, optional
        Largest error due to privacy, by label or SUMMARY. Starts a search for the smallest epsilon.
    on_step : callable
        Receives (done, planned).
    """
    advisor = Advisor(study, assumptions, people)
    _check_wanted(advisor, target or {})
    runs = advisor.default_runs if runs is None else runs
    own, some = advisor.own, advisor.runs_per_setting(runs)
    kinds: dict[str, list[Setting]] = {}
    for kind, setting in own.around():
        kinds.setdefault(kind, []).append(setting)
    # A dictionary as an ordered set: the own setting occurs in every row and is computed once.
    todo = dict.fromkeys(setting for row in kinds.values() for setting in row if setting != own)
    others = [(each.name, Advisor(study, each.assumptions, people)) for each in advisor.structures[1:]]
    each_other = max(runs // _STRUCTURE_FRACTION, some)
    before = runs + some * (1 + len(todo)) + each_other * len(others)
    whole = before + (some * _TRIES * (1 + len(others)) if target is not None else 0)

    def steps(begun: int, length: int) -> OnStep:
        return lambda done, planned: on_step(begun + done * length // planned, whole)

    known = {own: advisor.at(own, runs, steps(0, runs))}
    privacy = 1.0  # Losses are bounded, and single failed runs dominate ratios. They are not corrected.
    # Control variate: the ratio of the forecast with many simulations to that with few corrects the other settings,
    # since all settings share the same samples and noise draws.
    if not advisor.level:
        privacy = _ratio(known[own].privacy, advisor.at(own, some, steps(runs, some)).privacy)
    for at, setting in enumerate(todo, 1):
        with suppress(BadParameter):  # no plan exists for this setting
            forecast = advisor.at(setting, some, steps(runs + some * at, some))
            # The sampling error is known from the study's own setting and scales with 1 / sqrt(n).
            sampling = known[own].sampling * math.sqrt(own.people / setting.people)
            known[setting] = forecast.rescale(privacy, _ratio(sampling, forecast.sampling) if forecast.runs else 1.0)
    around = {kind: tuple(known[each] for each in row if each in known) for kind, row in kinds.items()}
    begun = runs + some * (1 + len(todo))
    structures = []
    for at, (name, other) in enumerate(others):
        with suppress(BadParameter):  # noise would hide every number
            there = other.at(own, each_other, steps(begun + each_other * at, each_other))
            structures.append(StructureForecast(name, other.description, there))
    reached = None
    if target is not None:
        length = (whole - before) // (1 + len(others))
        reached = search(advisor, target, some, privacy, steps(before, length))
        found_in = [
            (name, search(other, target, some, 1.0, steps(before + length * at, length)).epsilon)
            for at, (name, other) in enumerate(others, 1)
        ]
        reached = replace(reached, others=tuple(found_in))
    texts = advisor.unit, advisor.description, advisor.source
    more = advisor.level, tuple(structures), advisor.caveat
    return WhatIf(study.name, study.algorithm, *texts, known[own], around, reached, *more)


def _check_wanted(advisor: Advisor, wanted: Mapping[str, float]) -> None:
    """Raise `BadParameter` for an invalid target, before any simulation."""
    for name, error in wanted.items():
        if name != SUMMARY and name not in advisor.names:
            raise BadParameter(f"the result has no number called {name!r}: there are {', '.join(advisor.names[:12])}")
        if not (math.isfinite(error) and error > 0):
            raise BadParameter("the wanted error must be a positive number")


def _ratio(a: float, b: float) -> float:
    """a / b, or 1 if one of them is not positive: then there is nothing to correct."""
    return a / b if a > 0 and b > 0 else 1.0


def search(
    advisor: Advisor,
    wanted: Mapping[str, float],
    runs: int,
    privacy: float = 1.0,
    on_step: OnStep = lambda done, planned: None,
) -> Target:
    """Search for the smallest epsilon by bisection on a logarithmic scale.

    All values of epsilon share the same samples and noise draws, so that the error is nearly monotone in epsilon.

    Parameters
    ----------
    advisor : Advisor
        Makes the forecasts.
    wanted : mapping of str to float
        Largest error due to privacy, by label or SUMMARY.
    runs : int
        Simulations per epsilon.
    privacy : float
        Correction factor for errors from few simulations.
    on_step : callable
        Receives (done, planned).
    """
    _check_wanted(advisor, wanted)
    exact = not advisor.needs_simulation()
    tried: dict[float, Forecast | None] = {}

    def reaches(epsilon: float) -> bool:
        """Whether an epsilon meets all targets. The forecast is stored in `tried`, None if no plan exists."""
        on_step(min(len(tried), _TRIES), _TRIES)
        try:
            forecast = advisor.at(replace(advisor.own, epsilon=epsilon), runs).rescale(privacy, 1.0)
        except BadParameter:
            tried[epsilon] = None
            return False
        tried[epsilon] = forecast
        by_label = {line.label: line.privacy for line in forecast.lines} | {SUMMARY: forecast.privacy}
        # A number that noise hides has no finite error, nor has the result as a whole.
        by_label |= {name: math.inf for line in forecast.hidden for name in (line.label, SUMMARY)}
        return all(by_label.get(name, math.inf) <= error for name, error in wanted.items())

    # Start at the study's own epsilon, then halve or double until the target lies between `low` and `high`.
    low = high = min(max(advisor.own.epsilon, _SMALLEST), LARGEST)
    if reaches(high):
        while low > _SMALLEST and reaches(low / 2):
            low, high = low / 2, low / 2
        low = low / 2
    else:
        wall = math.inf  # smallest epsilon tried for which no plan exists
        while not reaches(high):
            # Doubling went beyond the largest epsilon that can be planned; the wall is approached by bisection.
            if tried[high] is None and tried[low] is not None:
                wall = high
            else:
                low = high
            if low >= LARGEST or wall / low < _RATIO_TOLERANCE:
                return Target(dict(wanted), None)
            high = math.sqrt(low * wall) if math.isfinite(wall) else min(low * 2, LARGEST)
    # 12 bisections of a factor of 2 for formulas, 5 for simulations, whose own error is larger. Chosen by hand.
    for _ in range(12 if exact else 5):
        middle = math.sqrt(low * high)
        if reaches(middle):
            high = middle
        else:
            low = middle
    forecast = tried.get(high)
    # A rounded epsilon is what a user enters. It is larger, so it reaches the target unless chance interferes; that is
    # checked.
    rounded = _round_up(high)
    if rounded != high and reaches(rounded):
        forecast = tried[rounded]
    return Target(dict(wanted), forecast)


def _round_up(epsilon: float) -> float:
    """Round up to three significant digits.

    >>> _round_up(1.2341)
    1.24
    """
    places = 2 - math.floor(math.log10(epsilon))
    return float(round(math.ceil(epsilon * 10.0**places - 1e-9) / 10.0**places, max(places, 0)))
