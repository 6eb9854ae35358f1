"""A study's forecast against epsilon, people, sites and colluders, and the smallest epsilon that is accurate enough.

Tested in tests/study/test_what_if.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from zerosum.errors import BadParameter
from zerosum.study.schema import Study
from zerosum.study.what_if.forecast import Advisor, Forecast, OnStep
from zerosum.study.what_if.guesses import Guesses
from zerosum.study.what_if.settings import Setting

LARGEST, _SMALLEST = 100.0, 1e-4  # epsilon that a search looks at
_TRIES = 10  # of a search, about
_NEAR = 1.05  # a larger epsilon by less than this factor is not looked for
WHOLE = ""  # the name of the one figure among targets


@dataclass(frozen=True)
class Target:
    """The smallest epsilon with which privacy adds no more than what was asked and hides none of it, and what it adds
    then; None where no epsilon that makes sense does."""

    wanted: Mapping[str, float]  # by line, or the one figure
    forecast: Forecast | None

    @property
    def epsilon(self) -> float | None:
        return None if self.forecast is None else self.forecast.setting.epsilon

    def as_record(self) -> dict[str, Any]:
        found = None if self.forecast is None else self.forecast.as_record()
        return {"wanted": dict(self.wanted), "epsilon": self.epsilon, "forecast": found}


@dataclass(frozen=True)
class WhatIf:
    """A study's own forecast, and those that differ in one setting."""

    study: str
    algorithm: str
    unit: str
    says: str
    drawn: str  # whom rehearsals are on
    own: Forecast
    around: Mapping[str, tuple[Forecast, ...]]
    target: Target | None = field(default=None)
    level: str = ""  # what is 1 less the figure, where it is a loss

    def as_record(self) -> dict[str, Any]:
        return {
            "study": self.study,
            "algorithm": self.algorithm,
            "unit": self.unit,
            "level": self.level,
            "guesses": self.says,
            "own": self.own.as_record(),
            "around": {kind: [each.as_record() for each in row] for kind, row in self.around.items()},
            "target": None if self.target is None else self.target.as_record(),
        }


def what_if(
    study: Study,
    guesses: Guesses | None = None,
    *,
    people: int | None = None,
    runs: int | None = None,
    target: Mapping[str, float] | None = None,
    on_step: OnStep = lambda done, planned: None,
) -> WhatIf:
    """Forecasts around a study's own setting. Settings that no plan can have are left out."""
    advisor = Advisor(study, guesses, people)
    _check_wanted(advisor, target or {})
    runs = advisor.usual if runs is None else runs
    own, some = advisor.own, advisor.some(runs)
    kinds: dict[str, list[Setting]] = {}
    for kind, setting in own.around():
        kinds.setdefault(kind, []).append(setting)
    todo = dict.fromkeys(setting for row in kinds.values() for setting in row if setting != own)
    before = runs + some * (1 + len(todo))
    whole = before + (some * _TRIES if target is not None else 0)

    def steps(begun: int, length: int) -> OnStep:
        return lambda done, planned: on_step(begun + done * length // planned, whole)

    known = {own: advisor.at(own, runs, steps(0, runs))}
    privacy = 1.0  # of losses, which have an end, and sometimes a run in which all goes wrong
    if not advisor.level:  # what so few draws make of the study itself, others share
        privacy = _ratio(known[own].privacy, advisor.at(own, some, steps(runs, some)).privacy)
    for at, setting in enumerate(todo, 1):
        with suppress(BadParameter):  # no plan can have it
            found = advisor.at(setting, some, steps(runs + some * at, some))
            sampling = known[own].sampling * math.sqrt(own.people / setting.people)
            known[setting] = found.scaled(privacy, _ratio(sampling, found.sampling) if found.runs else 1.0)
    around = {kind: tuple(known[each] for each in row if each in known) for kind, row in kinds.items()}
    reached = None if target is None else search(advisor, target, some, privacy, steps(before, whole - before))
    said = advisor.unit, advisor.says, advisor.drawn
    return WhatIf(study.name, study.algorithm, *said, known[own], around, reached, advisor.level)


def _check_wanted(advisor: Advisor, wanted: Mapping[str, float]) -> None:
    """What is wrong with a target is said before anybody waits for it."""
    for name, error in wanted.items():
        if name != WHOLE and name not in advisor.names:
            raise BadParameter(f"the result has no number called {name!r}: there are {', '.join(advisor.names[:12])}")
        if not (math.isfinite(error) and error > 0):
            raise BadParameter("the error that is wanted must be a positive number")


def _ratio(a: float, b: float) -> float:
    return a / b if a > 0 and b > 0 else 1.0


def search(
    advisor: Advisor,
    wanted: Mapping[str, float],
    runs: int,
    privacy: float = 1.0,
    on_step: OnStep = lambda done, planned: None,
) -> Target:
    """Bisection on the study's plan: the same made-up people and the same draws of noise for every epsilon. `privacy`
    multiplies what so few rehearsals say."""
    _check_wanted(advisor, wanted)
    exact = not advisor.takes_rehearsals()
    tried: dict[float, Forecast | None] = {}

    def reaches(epsilon: float) -> bool:
        on_step(min(len(tried), _TRIES), _TRIES)
        try:
            found = advisor.at(replace(advisor.own, epsilon=epsilon), runs).scaled(privacy, 1.0)
        except BadParameter:
            tried[epsilon] = None
            return False
        tried[epsilon] = found
        by_label = {line.label: line.privacy for line in found.lines} | {WHOLE: found.privacy}
        by_label |= {name: math.inf for line in found.hidden for name in (line.label, WHOLE)}
        return all(by_label.get(name, math.inf) <= error for name, error in wanted.items())

    low = high = min(max(advisor.own.epsilon, _SMALLEST), LARGEST)
    if reaches(high):
        while low > _SMALLEST and reaches(low / 2):
            low, high = low / 2, low / 2
        low = low / 2
    else:
        wall = math.inf  # from where on no study can be planned
        while not reaches(high):
            if tried[high] is None and tried[low] is not None:
                wall = high
            else:
                low = high
            if low >= LARGEST or wall / low < _NEAR:
                return Target(dict(wanted), None)
            high = math.sqrt(low * wall) if math.isfinite(wall) else min(low * 2, LARGEST)
    for _ in range(12 if exact else 5):
        middle = math.sqrt(low * high)
        if reaches(middle):
            high = middle
        else:
            low = middle
    found = tried.get(high)
    rounded = _rounded_up(high)
    if rounded != high and reaches(rounded):
        found = tried[rounded]
    return Target(dict(wanted), found)


def _rounded_up(epsilon: float) -> float:
    """To three digits.

    >>> _rounded_up(1.2341)
    1.24
    """
    places = 2 - math.floor(math.log10(epsilon))
    return float(round(math.ceil(epsilon * 10.0**places - 1e-9) / 10.0**places, max(places, 0)))
