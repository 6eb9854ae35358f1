"""How accurate a study would be in a setting: by formula where its noise says all, else by rehearsal on made-up people.

A rehearsal is the study's own program with its plan's noise. Samples of people are made up again and again, and each is
given to the program several times with noise and once without: what lies between is what privacy adds, and how results
without noise differ from sample to sample is what sampling adds. More people than a few thousand are stood for by
fewer, with the noise smaller in proportion. Where the result is judged by a loss, what counts is how much larger noise
makes it.

Tested in tests/study/test_what_if.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerosum.algorithms import (
    ICA,
    PCA,
    Algorithm,
    CustomStatistic,
    DataCollaboration,
    Histogram,
    Mean,
    NeuralClassifier,
    Topics,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.missing import OBSERVED
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.units import Units
from zerosum.study.entries import SchemeTable
from zerosum.study.rehearsal import Rehearsed
from zerosum.study.schema import Study
from zerosum.study.what_if.guesses import Guesses
from zerosum.study.what_if.measures import Line, Measure, measure_of
from zerosum.study.what_if.people import NUMBERS, World
from zerosum.study.what_if.settings import Setting, altered, parted, shared_out
from zerosum.study.what_if.structures import Classifier
from zerosum.study.what_if.worlds import world_of

_PEOPLE, _MORE = 2000, 10_000  # that stand for everybody in a rehearsal, and where histograms are read closely
_CLASSED, _TRAINED = 2000, 1000  # who train a classifier, and a network
_RECORDED = 60, 200  # people with many rows, at least and at most
_NUMBERS = 4_000_000  # of made-up data, at most, where there are many columns
_ALL = 20_000_000  # and where nobody can stand for others
_SAMPLE = 20_000  # for standard deviations that need no rehearsal
_AGAIN, _TWICE = 4, 2  # draws of noise on the same people, and where one takes long
_WITHOUT = 100  # samples, at most, that are run without noise
RUNS, FEW = 400, 24  # rehearsals where nothing is said, and of losses, each of which takes long
_PART = 16  # of the rehearsals of the study's own setting, one in so many is what each other setting gets
_LEAST, _LEAST_OF_FEW = 2, 8  # and no fewer
_SELDOM = 0.05

OnStep = Callable[[int, int], None]


@dataclass(frozen=True)
class LineForecast:
    """What is expected of one number of a result, in its own unit."""

    label: str
    noise: float  # the standard deviation that privacy adds, on the same people
    bias: float  # how far off it puts the number on average
    privacy: float  # the root of the mean square of all that privacy adds, or how much larger it makes a loss
    sampling: float  # what another sample of people would change; not a number where nothing is known
    scale: float
    counts: bool
    missing: float = 0.0  # in which share of rehearsals noise hides it: it is not in the result then
    without: float | None = None  # of a loss: how large it is without privacy, on average

    @property
    def together(self) -> float:
        return math.hypot(self.privacy, self.sampling)

    @property
    def expected(self) -> float | None:
        """Of a loss: how large it will be, on average; 1 is all there is to lose."""
        return None if self.without is None else min(max(self.without + self.bias, 0.0), 1.0)

    def as_record(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("label", "noise", "bias", "privacy", "sampling", "together")}
        loss = {} if self.without is None else {"without_privacy": self.without, "expected": self.expected}
        return own | {"scale": self.scale, "missing": self.missing} | loss


@dataclass(frozen=True)
class Forecast:
    """What is expected in a setting. `runs` rehearsals tell it; none where a formula does."""

    setting: Setting
    lines: tuple[LineForecast, ...]
    runs: int
    standard_error: float | None = None  # of what privacy adds to a loss, as so few rehearsals tell it
    spread: float | None = None  # of a loss: the standard deviation of a single run's

    def _figure(self, name: str) -> float:
        counted = [getattr(line, name) / line.scale for line in self.lines if line.counts]
        known = [each for each in counted if math.isfinite(each)]
        if not known:
            return math.nan
        return float(np.mean(known)) if self.without is not None else math.sqrt(float(np.mean(np.square(known))))

    @property
    def privacy(self) -> float:
        """The one figure: root mean square over the result's numbers, each on its scale, as far as they are there; of
        losses their mean, and how much larger that becomes."""
        return self._figure("privacy") if self.without is None else max(self._figure("bias"), 0.0)

    @property
    def hidden(self) -> tuple[LineForecast, ...]:
        """Numbers that count, and that noise hides more often than now and then."""
        return tuple(line for line in self.lines if line.counts and line.missing > _SELDOM)

    @property
    def sampling(self) -> float:
        return self._figure("sampling")

    @property
    def without(self) -> float | None:
        """Of losses: their mean without privacy, over the numbers that count."""
        known = [line.without for line in self.lines if line.counts and line.without is not None]
        return float(np.mean(known)) if known else None

    @property
    def expected(self) -> float | None:
        """Of losses: what they will be on average."""
        known = [line.expected for line in self.lines if line.counts and line.expected is not None]
        return float(np.mean(known)) if known else None

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the standard deviations that rehearsals tell."""
        return max(self.runs // _AGAIN, 2) * (_AGAIN - 1) if self.runs else 0

    @property
    def doubt(self) -> float:
        """How far off a standard deviation from so many rehearsals is by chance, as a share of it."""
        return 1 / math.sqrt(2 * self.freedom) if self.runs else 0.0

    @property
    def together(self) -> float:
        return self._figure("together")

    def scaled(self, privacy: float, sampling: float) -> Forecast:
        """The same with both kinds of errors multiplied."""
        lines = [
            replace(
                line,
                noise=line.noise * privacy,
                bias=line.bias * privacy,
                privacy=line.privacy * privacy,
                sampling=line.sampling * sampling,
            )
            for line in self.lines
        ]
        return replace(self, lines=tuple(lines))

    def as_record(self) -> dict[str, Any]:
        loss = () if self.without is None else ("without", "expected", "standard_error", "spread")
        names = ("privacy", "sampling", "together", *loss)
        figures = {name: getattr(self, name) for name in names}
        lines = [line.as_record() for line in self.lines]
        hidden = [line.label for line in self.hidden]
        return self.setting.as_record() | figures | {"runs": self.runs, "hidden": hidden, "lines": lines}


class Advisor:
    """Forecasts of one study, from public guesses. Nothing of any site's private part is read."""

    def __init__(self, study: Study, guesses: Guesses | None = None, people: int | None = None) -> None:
        self.study = study.model_copy(update={"site_files": ()})
        self.guesses = guesses or Guesses()
        self.own = Setting.of(study, people)
        if not Scheme(study.scheme.name).facts.noisy:
            raise BadParameter("without privacy there is no noise to forecast: give the study another scheme")
        algorithm = study.build_algorithm()
        self._measure = _custom(algorithm) if isinstance(algorithm, CustomStatistic) else measure_of(algorithm)
        self._world = world_of(algorithm, self.guesses, study.full_design)
        if self._measure is None or (self._world is None and not isinstance(algorithm, CustomStatistic)):
            raise BadParameter(_nothing(study.algorithm))
        self._free: dict[tuple[int, int, int], Floats] = {}

    @property
    def unit(self) -> str:
        """What the one figure is measured in."""
        return "" if self._measure is None else self._measure.unit

    @property
    def level(self) -> str:
        """What is 1 less the figure, in words, where it is a loss."""
        return "" if self._measure is None else self._measure.level

    @property
    def says(self) -> str:
        """What was taken for granted about the people."""
        if self._world is None or self._measure is None:
            return "nothing"
        return self._world.says + self._measure.held(self._world.truth)

    @property
    def drawn(self) -> str:
        """Whom rehearsals are on."""
        return "made-up people" if self.guesses.like is None else "people drawn from the public file"

    @property
    def names(self) -> tuple[str, ...]:
        """What the numbers of the result are called."""
        return () if self._measure is None else tuple(line.label for line in self._measure.lines)

    @property
    def _few(self) -> bool:
        """Whether a rehearsal takes long; those of Data Collaboration are quick, and vary much."""
        loss = self._measure is not None and self._measure.loss
        return loss and self.study.algorithm != DataCollaboration.name

    @property
    def usual(self) -> int:
        """How many rehearsals the study's own setting gets where nobody says."""
        return FEW if self._few else RUNS

    def some(self, runs: int) -> int:
        """How many each other setting gets, where the study's own gets so many."""
        return max(runs // _PART, _LEAST_OF_FEW if self._few else _LEAST)

    def at(self, setting: Setting, runs: int | None = None, on_step: OnStep = lambda done, planned: None) -> Forecast:
        """What is expected in this setting."""
        runs = self.usual if runs is None else runs
        if runs < 2:
            raise BadParameter("a spread takes two rehearsals at least")
        study = altered(self.study, setting)
        plan, algorithm = study.plan(), study.build_algorithm()
        if isinstance(algorithm, CustomStatistic):
            assert self._measure is not None  # noqa: S101
            noise = plan.law(0).noise_std / _counted(plan, setting.people)
            return Forecast(setting, (_line(self._measure.lines[0], noise, math.nan),), 0)
        measure = measure_of(algorithm)  # the lines of another roster may be others
        world = world_of(algorithm, self.guesses, study.full_design)
        assert measure is not None and world is not None  # noqa: S101, PT018
        if isinstance(algorithm, Mean) and OBSERVED not in algorithm.rules.values():
            return self._mean(setting, algorithm, plan, measure, world)
        if isinstance(algorithm, Histogram) and OBSERVED not in algorithm.rules.values():
            return self._histogram(setting, algorithm, plan, measure, world)
        return self._rehearsed(setting, study, plan, measure, world, runs, on_step)

    def takes_rehearsals(self) -> bool:
        """Whether forecasts of this study take time."""
        algorithm = self.study.build_algorithm()
        exact = isinstance(algorithm, Mean | Histogram) and OBSERVED not in algorithm.rules.values()
        return not (exact or isinstance(algorithm, CustomStatistic))

    # ---- by formula ------------------------------------------------------------------------------------------------

    def _mean(self, setting: Setting, algorithm: Mean, plan: Plan, measure: Measure, world: World) -> Forecast:
        """What a run says of its own noise at a sample that has none; the spread of clamped people for the sampling."""
        people = world.people(min(setting.people, _sampled(world)), _drawing(0))
        fewer = setting.people / len(people)
        quiet = Rehearsed(algorithm, plan, fewer).quietly(_sites(people, plan, setting))
        rows = np.asarray(people.rows)
        if algorithm.lower is not None:
            rows = np.clip(rows, algorithm.lower, algorithm.upper)
        sampling = np.std(rows, axis=0) / math.sqrt(_effective(plan, setting.people))
        noise = np.asarray(quiet["mean"].std)
        figures = zip(measure.lines, noise, sampling, strict=True)
        return Forecast(setting, tuple(_line(line, float(n), float(s)) for line, n, s in figures), 0)

    def _histogram(
        self, setting: Setting, algorithm: Histogram, plan: Plan, measure: Measure, world: World
    ) -> Forecast:
        people = world.people(min(setting.people, _sampled(world)), _drawing(0))
        quiet = Rehearsed(algorithm, plan).quietly(people)
        share = np.asarray(quiet["counts"].value) / len(people)
        noise = plan.law(0).noise_std / _counted(plan, setting.people)
        sampling = np.sqrt(share * (1 - share) / _effective(plan, setting.people))
        lines = tuple(_line(line, noise, float(s)) for line, s in zip(measure.lines, sampling, strict=True))
        return Forecast(setting, lines, 0)

    # ---- by rehearsal ----------------------------------------------------------------------------------------------

    def _rehearsed(
        self, setting: Setting, study: Study, plan: Plan, measure: Measure, world: World, runs: int, on_step: OnStep
    ) -> Forecast:
        algorithm = study.build_algorithm()
        again = _TWICE if self._few else _AGAIN
        count = _made_up(algorithm, world, plan, setting.people)
        private = Rehearsed(algorithm, plan, setting.people / count)
        open_ = study.model_copy(
            update={
                "scheme": SchemeTable(name="non-private"),
                "privacy": study.privacy.model_copy(update={"calibration": "exact", "attempts": 0}),
            }
        )
        free = Rehearsed(open_.build_algorithm(), open_.plan())
        effects = setting.sites if study.design is not None and study.design.site_effects else 0
        loud = max(runs // again, 2)
        samples = loud if measure.loss else max(min(runs // 2, _WITHOUT), loud)
        noisy, quiet = [], []
        anchor = world.truth
        for sample in range(samples):
            people = world.people(count, _drawing(sample))
            key = (count, sample, effects)
            if anchor is None and measure.anchored is not None:
                anchor = measure.anchored(free.run(people, 0))
            if key not in self._free:
                self._free[key] = measure.values(free.run(people, 0), people, anchor)
            quiet.append(self._free[key])
            sites = _sites(people, plan, setting)
            if isinstance(algorithm, Classifier):  # trained on and on without noise, it may be worse than this plan's
                quiet[-1] = np.minimum(quiet[-1], measure.values(private.quietly(sites), people, anchor))
            if sample < loud:
                draws = private.runs(sites, range(again * sample, again * (sample + 1)))
                noisy.append([measure.values(each, people, anchor) for each in draws])
            on_step(sample + 1, samples)
        drawn, base = np.array(noisy), np.array(quiet)  # samples x draws x lines, samples x lines
        added = drawn - base[: len(drawn), None, :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of lines that are never there
            noise = np.sqrt(np.nanmean(np.nanvar(drawn, axis=1, ddof=1), axis=0))
            bias, total = np.nanmean(added, axis=(0, 1)), np.sqrt(np.nanmean(added**2, axis=(0, 1)))
            total = np.maximum(bias, 0.0) if measure.loss else total
            sampling = np.nanstd(base, axis=0, ddof=1) * math.sqrt(count / setting.people) * (not measure.loss)
        there = np.isfinite(base[: len(drawn), None, :]) & np.ones_like(drawn, dtype=bool)
        missing = np.sum(there & ~np.isfinite(drawn), axis=(0, 1)) / np.maximum(np.sum(there, axis=(0, 1)), 1)
        figures = zip(measure.lines, noise, bias, total, sampling, missing, strict=True)
        without = np.mean(base, axis=0).tolist() if measure.loss else [None] * len(measure.lines)
        lines = tuple(
            LineForecast(line.label, float(n), float(b), float(t), float(s), line.scale, line.counts, float(m), w)
            for (line, n, b, t, s, m), w in zip(figures, without, strict=True)
            if math.isfinite(s) and (math.isfinite(n) or m > 0)
        )
        if not any(math.isfinite(line.privacy) for line in lines):
            raise BadParameter("nothing of the result would be left of the noise: ask for more epsilon or people")
        if not measure.loss:
            return Forecast(setting, lines, loud * again)
        counting = [line.counts for line in measure.lines]
        each, single = np.mean(added[:, :, counting], axis=(1, 2)), np.mean(drawn[:, :, counting], axis=2)
        error = float(np.std(each, ddof=1)) / math.sqrt(loud)
        return Forecast(setting, lines, loud * again, error, float(np.std(single, ddof=1)))


def _line(line: Line, noise: float, sampling: float) -> LineForecast:
    return LineForecast(line.label, noise, 0.0, noise, sampling, line.scale, line.counts)


def _sampled(world: World) -> int:
    return min(_SAMPLE, max(_PEOPLE, _NUMBERS // world.numbers_each))


def _custom(algorithm: CustomStatistic) -> Measure:
    lines = (Line("each number of the mean", algorithm.clip),)
    return Measure(lines, "of the clip", lambda estimate, data, anchor: np.zeros(1))


def _made_up(algorithm: Algorithm, world: World, plan: Plan, people: int) -> int:
    """How many made-up people stand for everybody: where records are published one by one nobody can."""
    if any(release.kind == "publication" for release in plan.releases):
        if people * world.numbers_each > _ALL:
            raise BadParameter(
                f"records are published one by one, so that a forecast must make up every one of {people}, which are "
                f"too many: say --people {_ALL // world.numbers_each}, and expect less error than that with more"
            )
        return people
    return min(people, _most(algorithm, world, sampled=any(release.sampled for release in plan.releases)))


def _most(algorithm: Algorithm, world: World, *, sampled: bool) -> int:
    """How many made-up people stand for more."""
    each, columns = world.numbers_each, len(algorithm.columns)
    if sampled:  # fewer would be sampled more coarsely
        return max(_PEOPLE, _ALL // each)
    if isinstance(algorithm, ICA) or (isinstance(algorithm, PCA) and algorithm.per_recording != "none"):
        count = int(np.clip(_NUMBERS // each, *_RECORDED))
        if count * each > NUMBERS:
            raise BadParameter(
                f"a forecast makes up {count} recordings at least, here {count * each:.2g} numbers: too many; "
                "take fewer columns, or shorter recordings (--rows)"
            )
        return count
    if isinstance(algorithm, PCA):
        return max(_PEOPLE, min(40 * columns, _NUMBERS // columns))
    if isinstance(algorithm, GroupedAlgorithm | Topics):  # fewer would lie unevenly between the edges
        return _MORE
    if isinstance(algorithm, NeuralClassifier):
        return _TRAINED
    if isinstance(algorithm, Classifier):
        return max(_TRAINED, min(_CLASSED, _NUMBERS // each))
    return max(_PEOPLE, min(20 * columns, _NUMBERS // columns))


def _drawing(run: int) -> np.random.Generator:
    return np.random.default_rng([18, run])


def _weights(plan: Plan) -> Floats:
    law = plan.law(0)
    return np.asarray(law.weight * law.factor)


def _shares(plan: Plan, people: int) -> Floats:
    return shared_out(people, [site.units or 1 for site in plan.sites]).astype(np.float64)


def _counted(plan: Plan, people: int) -> float:
    """What sums are divided by."""
    return float(np.sum(_weights(plan) * _shares(plan, people)))


def _effective(plan: Plan, people: int) -> float:
    """How many equally weighed people tell as much."""
    weights, shares = _weights(plan), _shares(plan, people)
    return float(np.sum(weights * shares) ** 2 / np.sum(weights**2 * shares))


def _sites(people: Units, plan: Plan, setting: Setting) -> Units | list[Units]:
    """People by site where sites weigh differently, else all together."""
    if np.all(_weights(plan) == 1):
        return people
    return parted(people, [site.units or 1 for site in plan.sites])


def _nothing(algorithm: str) -> str:
    return (
        f"no forecast is offered for the algorithm {algorithm!r}: no single figure says how good its result is; run it "
        "on public data of the same kind to see"
    )
