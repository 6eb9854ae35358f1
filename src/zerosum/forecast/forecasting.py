"""Accuracy forecast of a study in a setting: by formula for means and histograms, else by simulation.

A simulation runs the study's own program with the noise of its plan on synthetic data (`zerosum.study.rehearsal`).
Several samples are drawn. Each is run several times with noise and once without. The difference between runs with and
without noise is the error due to privacy. The variation of noise-free results between samples is the sampling error.

Model. With s for a sample and d for a draw of the noise, a number of the result is

    y_sd = t_s + b + e_sd,

where t_s is the result without noise, b the bias due to noise, and e_sd the rest. The forecast states

    noise       root of E var(e | s)                  from `draws` runs of each sample
    bias        E (y_sd - t_s)
    privacy     root of E (y_sd - t_s)^2, or for a loss its mean increase, not below 0
    sampling    standard deviation of t_s over samples
    together    root of privacy^2 + sampling^2

More than a few thousand units are represented by fewer, with the noise reduced in proportion: a mean over n units with
noise tau/n has the same signal-to-noise ratio with m units and noise (tau m/n)/m. The sampling error is then scaled by
sqrt(m/n). If a result is evaluated by a loss, the forecast is the increase of the loss due to noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerosum.algorithms import (
    Algorithm,
    CustomProgram,
    DataCollaborationProgram,
    HistogramProgram,
    ICAProgram,
    MeanProgram,
    NeuralClassifierProgram,
    PCAProgram,
    TopicsProgram,
)
from zerosum.algorithms.groups import GroupedAlgorithm
from zerosum.algorithms.regression.base import Regression
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.forecast.assumptions import Assumptions
from zerosum.forecast.empirical_population import MAX_ELEMENTS, Population
from zerosum.forecast.measures import Line, Measure, measure_of
from zerosum.forecast.populations import population_of
from zerosum.forecast.settings import Setting, split_by_site, study_in_setting, units_per_site
from zerosum.forecast.structured_populations import Classifier
from zerosum.forecast.structures import structures_of
from zerosum.kernel.missing import OBSERVED
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import Scheme
from zerosum.study.entries import SchemeTable
from zerosum.study.rehearsal import PlanSimulation
from zerosum.study.study_file import Study

# Number of simulated units; and for histogram-based algorithms, which need more. The constants below were chosen by
# hand; no benchmark recorded.
_UNITS, _HISTOGRAM_UNITS = 2000, 10_000
_CLASSIFIER_UNITS, _NETWORK_UNITS = 2000, 1000  # simulated units for training a classifier, and a network
_RECORDINGS = 60, 200  # simulated units with many rows each: minimum, maximum
_ELEMENTS = 4_000_000  # largest number of matrix elements of a reduced sample
_ELEMENTS_ALL = 20_000_000  # the same where units cannot be represented by fewer
_SAMPLE = 20_000  # units for standard deviations without simulation
_DRAWS, _DRAWS_SLOW = 4, 2  # noise draws per sample; and for slow algorithms
_NOISE_FREE_SAMPLES = 100  # largest number of samples run without noise
RUNS, SLOW_RUNS = 400, 24  # default number of simulations; and for losses, which are slow
_FRACTION = 16  # another setting gets 1/16 of the simulations of the study's own setting
_MIN_RUNS, _MIN_RUNS_SLOW = 2, 8  # minimum for another setting; and for losses
# Share of simulations in which a value may be suppressed before it is reported as hidden.
_HIDDEN_SHARE = 0.05

# Progress callback: (done, planned).
OnStep = Callable[[int, int], None]


@dataclass(frozen=True)
class LineForecast:
    """Forecast of one number of a result, in its own unit."""

    label: str
    noise: float  # standard deviation due to noise, for a fixed sample
    bias: float  # mean difference from the noise-free result
    privacy: float  # root mean square error due to privacy; of a loss, its increase
    sampling: float  # standard error of sampling; NaN if unknown
    scale: float
    counts: bool
    missing: float = 0.0  # share of simulations in which noise suppresses the number
    without: float | None = None  # of a loss: its mean without privacy

    @property
    def together(self) -> float:
        """Privacy and sampling error combined, as root sum of squares."""
        return math.hypot(self.privacy, self.sampling)

    @property
    def expected(self) -> float | None:
        """Of a loss: its expected value, limited to [0, 1]."""
        return None if self.without is None else min(max(self.without + self.bias, 0.0), 1.0)

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        own = {name: getattr(self, name) for name in ("label", "noise", "bias", "privacy", "sampling", "together")}
        loss = {} if self.without is None else {"without_privacy": self.without, "expected": self.expected}
        return own | {"scale": self.scale, "missing": self.missing} | loss


@dataclass(frozen=True)
class Forecast:
    """Forecast of all numbers of a result in one setting. `runs` is the number of simulations, 0 for a formula."""

    setting: Setting
    lines: tuple[LineForecast, ...]
    runs: int
    standard_error: float | None = None  # standard error of the forecast increase of a loss
    spread: float | None = None  # of a loss: standard deviation of a single run

    def _figure(self, name: str) -> float:
        """Aggregate an attribute over the lines that count, each divided by its scale: root mean square, or the mean
        for losses.

        Parameters
        ----------
        name : str
            Attribute of `LineForecast`. Lines in which it is unknown are left out.
        """
        counted = [getattr(line, name) / line.scale for line in self.lines if line.counts]
        known = [each for each in counted if math.isfinite(each)]
        if not known:
            return math.nan
        return float(np.mean(known)) if self.without is not None else math.sqrt(float(np.mean(np.square(known))))

    @property
    def privacy(self) -> float:
        """Summary figure: root mean square error due to privacy over the lines that count, each divided by its scale.
        For losses, the increase of their mean."""
        return self._figure("privacy") if self.without is None else max(self._figure("bias"), 0.0)

    @property
    def hidden(self) -> tuple[LineForecast, ...]:
        """Lines that count and that noise suppresses in more than 5 % of the simulations."""
        return tuple(line for line in self.lines if line.counts and line.missing > _HIDDEN_SHARE)

    @property
    def sampling(self) -> float:
        """Summary figure of the sampling error."""
        return self._figure("sampling")

    @property
    def without(self) -> float | None:
        """Mean loss without privacy over the lines that count; None where no line has one."""
        known = [line.without for line in self.lines if line.counts and line.without is not None]
        return float(np.mean(known)) if known else None

    @property
    def expected(self) -> float | None:
        """Of losses: their expected mean."""
        known = [line.expected for line in self.lines if line.counts and line.expected is not None]
        return float(np.mean(known)) if known else None

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom of the simulated standard deviations: samples times (draws per sample - 1)."""
        return max(self.runs // _DRAWS, 2) * (_DRAWS - 1) if self.runs else 0

    @property
    def relative_error(self) -> float:
        """Relative standard error of a simulated standard deviation, 1 / sqrt(2 f) for f degrees of freedom (normal
        errors)."""
        return 1 / math.sqrt(2 * self.degrees_of_freedom) if self.runs else 0.0

    @property
    def together(self) -> float:
        """Summary figure of privacy and sampling error combined."""
        return self._figure("together")

    def rescale(self, privacy: float, sampling: float) -> Forecast:
        """The forecast with its privacy and sampling errors multiplied by these factors."""
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
        """JSON-compatible form."""
        loss = () if self.without is None else ("without", "expected", "standard_error", "spread")
        names = ("privacy", "sampling", "together", *loss)
        figures = {name: getattr(self, name) for name in names}
        lines = [line.as_record() for line in self.lines]
        hidden = [line.label for line in self.hidden]
        return self.setting.as_record() | figures | {"runs": self.runs, "hidden": hidden, "lines": lines}


class Advisor:
    """Forecasts of one study from public assumptions. Private site files are not read.

    Parameters
    ----------
    study : Study
        The study; its site files are dropped.
    assumptions : Assumptions, optional
        Public assumptions about the data. Facts that are not stated are completed as typical.
    people : int, optional
        Number of units; by default as the roster declares.

    Attributes
    ----------
    structures : tuple of Structure
        Structures of the data that agree with what is stated. The forecasts are for the first one.

    Raises
    ------
    BadParameter
        If the scheme has no noise, or the algorithm has no accuracy measure.
    """

    def __init__(self, study: Study, assumptions: Assumptions | None = None, people: int | None = None) -> None:
        # A forecast must not read private data, so the site files are dropped before anything else.
        self.study = study.model_copy(update={"site_files": ()})
        stated = assumptions or Assumptions()
        self.structures = structures_of(study.build_algorithm(), stated, study.full_design)
        self.assumptions = self.structures[0].assumptions
        self.own = Setting.of(study, people)
        if not Scheme(study.scheme.name).facts.noisy:
            raise BadParameter("without privacy there is no noise to forecast: give the study another scheme")
        algorithm = study.build_algorithm()
        self._measure = _custom(algorithm) if isinstance(algorithm, CustomProgram) else measure_of(algorithm)
        self._population = population_of(algorithm, self.assumptions, study.full_design)
        if self._measure is None or (self._population is None and not isinstance(algorithm, CustomProgram)):
            raise BadParameter(_no_forecast_message(study.algorithm))
        # Noise-free results by number of units, sample and number of site effects.
        self._free: dict[tuple[int, int, int], Floats] = {}

    @property
    def unit(self) -> str:
        """Unit of the summary figure."""
        return "" if self._measure is None else self._measure.unit

    @property
    def level(self) -> str:
        """Name of 1 - loss ("accuracy", ...); empty if the result is not evaluated by a loss."""
        return "" if self._measure is None else self._measure.level

    @property
    def description(self) -> str:
        """Description of the assumptions about the data."""
        if self._population is None or self._measure is None:
            return "nothing"
        return self._population.description + self._measure.reference_clause(self._population.truth)

    @property
    def caveat(self) -> str:
        """What the forecast of a regression rests on, if its columns are simulated; empty for others."""
        if self.assumptions.like is not None or not isinstance(self.study.build_algorithm(), Regression):
            return ""
        if not self.assumptions.correlation:
            return "This forecast rests on independent columns; correlated columns have larger errors"
        return (
            f"This forecast rests on an assumed correlation of {self.assumptions.correlation:g} between neighbouring "
            "columns; stronger correlations have larger errors"
        )

    @property
    def source(self) -> str:
        """Source of the simulated units, for messages."""
        return "made-up people" if self.assumptions.like is None else "people drawn from the public file"

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of the numbers of the result."""
        return () if self._measure is None else tuple(line.label for line in self._measure.lines)

    @property
    def _is_slow(self) -> bool:
        """Whether a simulation is slow. Those of Data Collaboration are fast and have a large variance."""
        loss = self._measure is not None and self._measure.loss
        return loss and self.study.algorithm != DataCollaborationProgram.name

    @property
    def default_runs(self) -> int:
        """Default number of simulations for the study's own setting."""
        return SLOW_RUNS if self._is_slow else RUNS

    def runs_per_setting(self, runs: int) -> int:
        """Number of simulations for each other setting, if the study's own setting gets `runs`."""
        return max(runs // _FRACTION, _MIN_RUNS_SLOW if self._is_slow else _MIN_RUNS)

    def at(self, setting: Setting, runs: int | None = None, on_step: OnStep = lambda done, planned: None) -> Forecast:
        """Forecast in one setting.

        Parameters
        ----------
        setting : Setting
            Epsilon, sites, colluders and number of units.
        runs : int, optional
            Number of simulations, at least 2. Ignored where a formula exists.
        on_step : callable
            Receives (done, planned).
        """
        runs = self.default_runs if runs is None else runs
        if runs < 2:
            raise BadParameter("a spread needs at least two rehearsals")
        study = study_in_setting(self.study, setting)
        plan, algorithm = study.plan(), study.build_algorithm()
        if isinstance(algorithm, CustomProgram):
            assert self._measure is not None  # noqa: S101
            noise = plan.law(0).noise_std / _weighted_count(plan, setting.people)
            return Forecast(setting, (_line(self._measure.lines[0], noise, math.nan),), 0)
        measure = measure_of(algorithm)  # The lines depend on the roster (site effects), so they are computed again.
        population = population_of(algorithm, self.assumptions, study.full_design)
        assert measure is not None and population is not None  # noqa: S101, PT018
        if isinstance(algorithm, MeanProgram) and OBSERVED not in algorithm.rules.values():
            return self._mean(setting, algorithm, plan, measure, population)
        if isinstance(algorithm, HistogramProgram) and OBSERVED not in algorithm.rules.values():
            return self._histogram(setting, algorithm, plan, measure, population)
        return self._by_simulation(setting, study, plan, measure, population, runs, on_step)

    def needs_simulation(self) -> bool:
        """Whether forecasts of this study need simulations."""
        algorithm = self.study.build_algorithm()
        exact = isinstance(algorithm, MeanProgram | HistogramProgram) and OBSERVED not in algorithm.rules.values()
        return not (exact or isinstance(algorithm, CustomProgram))

    # ---- by formula ------------------------------------------------------------------------------------------------

    def _mean(
        self, setting: Setting, algorithm: MeanProgram, plan: Plan, measure: Measure, population: Population
    ) -> Forecast:
        """Mean by formula.

        The noise is the standard deviation that a noise-free run reports. The sampling error is the standard deviation
        of clipped rows over the root of the effective number of units.
        """
        people = population.people(min(setting.people, _sample_size(population)), _sample_rng(0))
        fewer = setting.people / len(people)
        quiet = PlanSimulation(algorithm, plan, fewer).run_without_noise(_units_by_site(people, plan, setting))
        rows = np.asarray(people.rows)
        if algorithm.lower is not None:
            rows = np.clip(rows, algorithm.lower, algorithm.upper)
        # Standard error of a mean: the mean of clipped values is what the study estimates.
        sampling = np.std(rows, axis=0) / math.sqrt(_effective_count(plan, setting.people))
        noise = np.asarray(quiet["mean"].std)
        figures = zip(measure.lines, noise, sampling, strict=True)
        return Forecast(setting, tuple(_line(line, float(n), float(s)) for line, n, s in figures), 0)

    def _histogram(
        self, setting: Setting, algorithm: HistogramProgram, plan: Plan, measure: Measure, population: Population
    ) -> Forecast:
        """Histogram by formula: noise of the plan over the number of units, and the binomial standard error of a share
        p, sqrt(p (1 - p) / n)."""
        people = population.people(min(setting.people, _sample_size(population)), _sample_rng(0))
        quiet = PlanSimulation(algorithm, plan).run_without_noise(people)
        share = np.asarray(quiet["counts"].value) / len(people)
        noise = plan.law(0).noise_std / _weighted_count(plan, setting.people)
        sampling = np.sqrt(share * (1 - share) / _effective_count(plan, setting.people))
        lines = tuple(_line(line, noise, float(s)) for line, s in zip(measure.lines, sampling, strict=True))
        return Forecast(setting, lines, 0)

    # ---- by rehearsal ----------------------------------------------------------------------------------------------

    def _by_simulation(
        self,
        setting: Setting,
        study: Study,
        plan: Plan,
        measure: Measure,
        population: Population,
        runs: int,
        on_step: OnStep,
    ) -> Forecast:
        """Forecast by simulation.

        For each sample, `base` holds the values without noise, shape (n_samples, n_lines), and `source` those with
        noise, shape (n_loud_samples, n_draws, n_lines).
        """
        algorithm = study.build_algorithm()
        # Draws of the noise on each sample.
        again = _DRAWS_SLOW if self._is_slow else _DRAWS
        count = _synthetic_population(algorithm, population, plan, setting.people)
        private = PlanSimulation(algorithm, plan, setting.people / count)
        open_ = study.model_copy(
            update={
                # The same study without privacy, from which the reference results come.
                "scheme": SchemeTable(name="non-private"),
                "privacy": study.privacy.model_copy(update={"calibration": "exact", "attempts": 0}),
            }
        )
        free = PlanSimulation(open_.build_algorithm(), open_.plan())
        effects = setting.sites if study.design is not None and study.design.site_effects else 0
        # Noise is drawn on `loud` samples. More samples are run without noise, because the sampling error depends on
        # their number.
        loud = max(runs // again, 2)
        samples = loud if measure.loss else max(min(runs // 2, _NOISE_FREE_SAMPLES), loud)
        noisy, quiet = [], []
        anchor = population.truth
        for sample in range(samples):
            people = population.people(count, _sample_rng(sample))
            key = (count, sample, effects)
            if anchor is None and measure.make_anchor is not None:
                anchor = measure.make_anchor(free.run(people, 0))
            # Noise-free results do not depend on epsilon or colluders. They are shared by all settings with the same
            # sample.
            if key not in self._free:
                self._free[key] = measure.values(free.run(people, 0), people, anchor)
            quiet.append(self._free[key])
            sites = _units_by_site(people, plan, setting)
            # The reference for a classifier is the better of two noise-free runs. The program of a non-private plan
            # trains longer and may overfit.
            if isinstance(algorithm, Classifier):
                quiet[-1] = np.minimum(quiet[-1], measure.values(private.run_without_noise(sites), people, anchor))
            if sample < loud:
                draws = private.runs(sites, range(again * sample, again * (sample + 1)))
                noisy.append([measure.values(each, people, anchor) for each in draws])
            on_step(sample + 1, samples)
        drawn, base = np.array(noisy), np.array(quiet)  # shapes: (samples, draws, lines), (samples, lines)
        added = drawn - base[: len(drawn), None, :]
        with warnings.catch_warnings():
            # mean of an empty slice: lines that are missing in all runs
            warnings.simplefilter("ignore", RuntimeWarning)
            # Variance between draws within a sample, averaged over samples.
            noise = np.sqrt(np.nanmean(np.nanvar(drawn, axis=1, ddof=1), axis=0))
            bias, total = np.nanmean(added, axis=(0, 1)), np.sqrt(np.nanmean(added**2, axis=(0, 1)))
            # A loss is an error already: its increase is stated, not the root mean square of the differences. Chance
            # can make the increase negative.
            total = np.maximum(bias, 0.0) if measure.loss else total
            # The standard error scales with 1 / sqrt(n): from `count` simulated units to the planned number.
            sampling = np.nanstd(base, axis=0, ddof=1) * math.sqrt(count / setting.people) * (not measure.loss)
        # A number is missing if it is finite without noise and not with it: noise hid it.
        there = np.isfinite(base[: len(drawn), None, :]) & np.ones_like(drawn, dtype=bool)
        missing = np.sum(there & ~np.isfinite(drawn), axis=(0, 1)) / np.maximum(np.sum(there, axis=(0, 1)), 1)
        figures = zip(measure.lines, noise, bias, total, sampling, missing, strict=True)
        without = np.mean(base, axis=0).tolist() if measure.loss else [None] * len(measure.lines)
        lines = tuple(
            LineForecast(line.label, float(n), float(b), float(t), float(s), line.scale, line.counts, float(m), w)
            for (line, n, b, t, s, m), w in zip(figures, without, strict=True)
            # Numbers that do not exist even without noise are left out.
            if math.isfinite(s) and (math.isfinite(n) or m > 0)
        )
        if not any(math.isfinite(line.privacy) for line in lines):
            raise BadParameter("noise would hide every number of the result: increase epsilon or the number of people")
        if not measure.loss:
            return Forecast(setting, lines, loud * again)
        counting = [line.counts for line in measure.lines]
        # Draws on one sample are correlated, so the standard error is that of the sample means.
        each, single = np.mean(added[:, :, counting], axis=(1, 2)), np.mean(drawn[:, :, counting], axis=2)
        error = float(np.std(each, ddof=1)) / math.sqrt(loud)
        return Forecast(setting, lines, loud * again, error, float(np.std(single, ddof=1)))


def _line(line: Line, noise: float, sampling: float) -> LineForecast:
    """Forecast of a line without bias."""
    return LineForecast(line.label, noise, 0.0, noise, sampling, line.scale, line.counts)


def _sample_size(population: Population) -> int:
    """Number of units for forecasts by formula."""
    # Few elements per unit allow more units; at least _UNITS in any case.
    return min(_SAMPLE, max(_UNITS, _ELEMENTS // population.numbers_each))


def _custom(algorithm: CustomProgram) -> Measure:
    """Measure of a user-defined statistic: one line, in units of its clip."""
    lines = (Line("each number of the mean", algorithm.clip),)
    return Measure(lines, "of the clip", lambda estimate, data, anchor: np.zeros(1))


def _synthetic_population(algorithm: Algorithm, population: Population, plan: Plan, people: int) -> int:
    """Number of simulated units that represent the planned ones.

    Studies that publish single records need all of them, since the noise of a record does not decrease with their
    number.

    Parameters
    ----------
    algorithm : Algorithm
        The program.
    population : Population
        From which units are drawn.
    plan : Plan
        The plan in this setting.
    people : int
        Planned number of units.
    """
    if any(release.kind == "publication" for release in plan.releases):
        if people * population.numbers_each > _ELEMENTS_ALL:
            raise BadParameter(
                f"records are published one by one, so that a forecast must make up every one of {people}, which "
                f"are too many: give --people {_ELEMENTS_ALL // population.numbers_each}, and expect a smaller error "
                "with more"
            )
        return people
    return min(
        people, _largest_sample(algorithm, population, sampled=any(release.sampled for release in plan.releases))
    )


def _largest_sample(algorithm: Algorithm, population: Population, *, sampled: bool) -> int:
    """Largest number of simulated units for an algorithm. The factors 40 and 20 per column were chosen by hand; no
    benchmark recorded.

    Parameters
    ----------
    algorithm : Algorithm
        The program.
    population : Population
        From which units are drawn.
    sampled : bool
        Whether the plan has sub-sampled rounds.
    """
    each, columns = population.numbers_each, len(algorithm.columns)
    if sampled:  # A smaller sample would make batches of subsampled units too small.
        return max(_UNITS, _ELEMENTS_ALL // each)
    if isinstance(algorithm, ICAProgram) or (isinstance(algorithm, PCAProgram) and algorithm.per_recording != "none"):
        count = int(np.clip(_ELEMENTS // each, *_RECORDINGS))
        if count * each > MAX_ELEMENTS:
            raise BadParameter(
                f"a forecast makes up {count} recordings at least, here {count * each:.2g} numbers: too many; "
                "take fewer columns, or shorter recordings (--rows)"
            )
        return count
    if isinstance(algorithm, PCAProgram):
        return max(_UNITS, min(40 * columns, _ELEMENTS // columns))
    if isinstance(algorithm, GroupedAlgorithm | TopicsProgram):  # Quantiles and topics need enough units in each bin.
        return _HISTOGRAM_UNITS
    if isinstance(algorithm, NeuralClassifierProgram):
        return _NETWORK_UNITS
    if isinstance(algorithm, Classifier):
        return max(_NETWORK_UNITS, min(_CLASSIFIER_UNITS, _ELEMENTS // each))
    return max(_UNITS, min(20 * columns, _ELEMENTS // columns))


def _sample_rng(run: int) -> np.random.Generator:
    """Random generator of one sample. The same sample is drawn in every setting, so that settings differ by their noise
    only."""
    # 18 is an arbitrary constant that separates these streams from those of other seeds.
    return np.random.default_rng([18, run])


def _weights(plan: Plan) -> Floats:
    """Weight of each site's sum, shape (n_sites,)."""
    law = plan.law(0)
    return np.asarray(law.weight * law.factor)


def _site_sizes(plan: Plan, people: int) -> Floats:
    """Number of units at each site, shape (n_sites,)."""
    return units_per_site(people, [site.units or 1 for site in plan.sites]).astype(np.float64)


def _weighted_count(plan: Plan, people: int) -> float:
    """Weighted number of units, by which sums are divided."""
    return float(np.sum(_weights(plan) * _site_sizes(plan, people)))


def _effective_count(plan: Plan, people: int) -> float:
    """Effective number of units under unequal weights, (sum w n)^2 / sum w^2 n (Kish)."""
    weights, shares = _weights(plan), _site_sizes(plan, people)
    return float(np.sum(weights * shares) ** 2 / np.sum(weights**2 * shares))


def _units_by_site(people: Units, plan: Plan, setting: Setting) -> Units | list[Units]:
    """Units by site if the sites have different weights, else all together."""
    if np.all(_weights(plan) == 1):
        return people
    return split_by_site(people, [site.units or 1 for site in plan.sites])


def _no_forecast_message(algorithm: str) -> str:
    """Message for an algorithm without forecast."""
    return (
        f"no forecast is offered for the algorithm {algorithm!r}: no single figure measures the quality of its result; "
        "run it on public data of the same kind instead"
    )
