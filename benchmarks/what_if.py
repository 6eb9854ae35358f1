"""Forecasts of `zerosum plan --what-if` against what seeded runs show.

Run `python benchmarks/what_if.py [--runs 200] [--parts mqrgep] [--rehearsals 400] [--through-sites]`.

For every setting a forecast is made from public guesses. Then samples of people are drawn as guessed, and the study is
run on each with eight seeds that no forecast has: its program with the noise of its plan, or, with `--through-sites`,
as in earnest, through policies, ledgers and the secure sum, for one setting of each part (slow). Printed are the
standard deviation that privacy was forecast to add and the one seen among runs on the same sample, as the root mean
square over the result's numbers, each on its scale; their ratio; and the smallest and largest ratio of a single number.
Four sites, one colluding, delta = 1e-5.

A standard deviation that so few runs show is off by chance, and so is one that rehearsals forecast. So the last table
says, for every part, how many single numbers are off by more than 15 %, and how many would be with a forecast that is
exact but for its number of rehearsals (normal noise).

Parts: m means, q quantiles, r linear regression, g logistic regression, e mixtures (by EM), p principal components; i
independent components, t topics, c feature classifier, n neural classifier, d Data Collaboration. The last six are
losses: what is good is 1 less their mean, over a fifth of the runs (of Data Collaboration, which is quick, all).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from zerosum.algorithms import Estimate
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.forecast import Advisor, Assumptions, ColumnShape, Spectrum
from zerosum.forecast.measures import measure_of
from zerosum.forecast.populations import population_of
from zerosum.forecast.settings import split_by_site
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study
from zerosum.study.planning import pin
from zerosum.study.rehearsal import PlanSimulation
from zerosum.study.running import execute_in_process

SITES, DELTA = 4, 1e-5
DRAWS = 8  # runs on the same people
WITHIN = 0.15
OWN_SEEDS = 10**6  # above those of forecasts
MEMORY = Path("/dev/shm")
SKEWED = {"a": "skewed:1.5:2", "b": "skewed:15:2", "c": "skewed:0.15:2"}
COLUMNS = {"columns": ["a", "b", "c"], "lower": [0, 0, 0], "upper": [10, 100, 1]}


@dataclass(frozen=True)
class Case:
    """A question, how its people lie, and where it is asked."""

    name: str
    algorithm: str
    parameters: dict[str, Any]
    data: str
    assumptions: Assumptions
    epsilon: float
    people: int

    @property
    def study(self) -> Study:
        shares = np.diff(np.linspace(0, self.people, SITES + 1).astype(int)).tolist()
        return Study(
            name="forecast",
            algorithm=self.algorithm,
            parameters=self.parameters,
            unit={"kind": "person"},
            privacy={"epsilon": self.epsilon, "delta": DELTA, "random_state": 0},
            coalition={"colluders": 1},
            sites=[{"name": f"s{at}", "units": units} for at, units in enumerate(shares)],
        )


def shaped(shapes: dict[str, str]) -> Assumptions:
    return Assumptions(columns={name: ColumnShape.parse(said) for name, said in shapes.items()})


def uneven_clusters(seed: int, count: int) -> Units:
    """Three clusters of unequal size in three columns, with a long tail to one side."""
    rng = np.random.default_rng(seed)
    centers = np.array([[2.0, 30.0, 0.3], [8.0, 35.0, 0.5], [5.0, 80.0, 0.7]])
    which = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    tail = rng.gamma(4.0, 0.5, (count, 3)) - 2.0
    return Units(np.clip(centers[which] + tail * np.array([0.5, 5.0, 0.05]), [0, 0, 0], [10, 100, 1]))


def cases(part: str) -> Iterator[Case]:
    corners = [(0.5, 1000), (2.0, 1000), (0.5, 6000), (2.0, 6000)]
    plain, skewed = Assumptions(), shaped(SKEWED)
    some = [(plain, "uniform", *corners[0]), (plain, "uniform", *corners[3])]
    some += [(skewed, "skewed", *corners[1]), (skewed, "skewed", *corners[2])]
    every = [(guess, data, *at) for guess, data in ((plain, "uniform"), (skewed, "skewed")) for at in corners]
    wide = {"ranges": {"a": (0, 10), "b": (0, 100), "c": (0, 1)}, "columns": ["a", "b", "c"]}
    explained = {**COLUMNS, "columns": ["a", "b", "y"]}
    classes = {**explained, "upper": [10, 100, 1]}
    for guess, data, epsilon, people in every if part in "mq" else some:
        narrow = Assumptions(columns={name: shape for name, shape in guess.columns.items() if name != "c"})
        if part == "m":
            yield Case("mean", "mean", COLUMNS, data, guess, epsilon, people)
        if part == "q":
            yield Case("quantiles", "quantiles", wide, data, guess, epsilon, people)
        if part == "r":
            yield Case("linear", "linear-regression", explained, data, narrow, epsilon, people)
        if part == "g":
            yield Case("logistic", "logistic-regression", classes, data, narrow, epsilon, people)
    mixture = {**COLUMNS, "n_components": 3, "scaling": "ranges"}
    uneven = Assumptions(like=uneven_clusters(1, 20_000))
    for guess, data, (epsilon, people) in (
        (plain, "clusters", (0.5, 6000)),
        (plain, "clusters", (2.0, 2000)),
        (uneven, "uneven", (2.0, 2000)),
        (uneven, "uneven", (0.5, 6000)),
    ):
        if part == "e":
            yield Case("mixture", "mixture", mixture, data, guess, epsilon, people)
    for said in ("power:1", "power:0.5", "exponential:0.8"):
        for epsilon, people in ((0.5, 1000), (0.5, 6000), (2.0, 2000)):
            names = [f"c{at}" for at in range(40)]
            many = {"columns": names, "lower": [-1] * 40, "upper": [1] * 40, "n_components": 5}
            guess = Assumptions(spectrum=Spectrum.parse(said))
            if part == "p":
                yield Case("pca", "pca", many, said, guess, epsilon, people)


def losses(part: str) -> Iterator[Case]:
    """Two settings each of algorithms whose people no range describes."""
    names, ranges = [f"c{at}" for at in range(20)], {"lower": [0] * 6, "upper": [1] * 6}
    waves = {"classes": [0, 1, 2], "features": {"kind": "random", "waves": 100, **ranges}}
    asked: dict[str, tuple[str, str, dict[str, Any]]] = {
        "i": ("ica", "sources", {"columns": names, "n_components": 4}),
        "t": ("topics", "documents", {"columns": names, "n_components": 4, "length": 20}),
        "c": ("feature-classifier", "classes", waves),
        "n": ("neural-classifier", "classes", {"columns": [*names[:6], "y"], "classes": [0, 1, 2], **ranges}),
        "d": ("data-collaboration", "classes", waves),
    }
    if part in asked:
        algorithm, data, parameters = asked[part]
        for epsilon, people in ((0.25, 1000), (1.0, 200)) if part == "i" else ((1.0, 2000), (4.0, 500)):
            yield Case(algorithm, algorithm, parameters, data, Assumptions(), epsilon, people)


def seen(case: Case, runs: int, first: int, *, through_sites: bool) -> Floats:
    """What the result's numbers are in seeded runs: samples x draws x numbers."""
    study = case.study
    algorithm = study.build_algorithm()
    # What a case does not state is completed as in its forecast.
    assumptions = Advisor(study, case.assumptions).assumptions
    population, measure = population_of(algorithm, assumptions, study.full_design), measure_of(algorithm)
    assert population is not None
    assert measure is not None
    rehearsed = PlanSimulation(algorithm, study.plan())
    anchor, found = population.truth, []
    for sample in range(max(runs // DRAWS, 2)):
        like = uneven_clusters(1000 + sample, case.people) if case.data == "uneven" else None
        people = like or population.people(case.people, np.random.default_rng([2026, sample]))
        seeds = range(OWN_SEEDS + first + DRAWS * sample, OWN_SEEDS + first + DRAWS * (sample + 1))
        if through_sites:
            estimates = [at_sites(study, people, seed) for seed in seeds]
        else:
            estimates = rehearsed.runs(people, seeds)
        if anchor is None and measure.make_anchor is not None:
            anchor = measure.make_anchor(estimates[0])
        found.append([measure.values(each, people, anchor) for each in estimates])
    return np.array(found)


def at_sites(study: Study, people: Units, seed: int) -> Estimate:
    """A run as in earnest, through policies, ledgers and the secure sum; but for its seed, which protects nobody."""
    seeded = study.model_copy(update={"privacy": study.privacy.model_copy(update={"random_state": seed})})
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        members = [
            Site(f"s{at}", part, Policy.throwaway(f"s{at}", Path(folder) / f"{at}", delta=DELTA))
            for at, part in enumerate(split_by_site(people, [site.units or 1 for site in study.sites]))
        ]
        return execute_in_process(pin(seeded.plan(), members), seeded.build_algorithm(), members).estimate


@dataclass
class Tally:
    """What all settings of a part came to."""

    whole: list[float]
    single: list[float]
    by_chance: float = 0.0

    def summary(self, part: str) -> str:
        if not self.single:
            ends = f"{min(self.whole):+.3f} to {max(self.whole):+.3f}"
            return f"{part:22} {len(self.whole):8d}  {ends:16}  (difference of the means)"
        ends = f"{min(self.whole):.3f} to {max(self.whole):.3f}"
        out = sum(abs(each - 1) > WITHIN for each in self.single)
        single = f"{min(self.single):.2f} to {max(self.single):.2f}"
        return (
            f"{part:22} {len(self.whole):8d}  {ends:16} {len(self.single):8d}  {single:14} {out:11d} "
            f"{self.by_chance:10.1f}"
        )


def outside(*freedom: float) -> float:
    """How likely a ratio of two standard deviations from so many degrees of freedom is off by more than 15 %."""
    off = math.sqrt(sum(1 / (2 * each) for each in freedom))
    return 1 - sum(side * math.erf(math.log(end) / off / math.sqrt(2)) / 2 for side, end in ((1, 1.15), (-1, 0.85)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rehearsals", type=int)
    parser.add_argument("--parts", default="mqrgep")
    parser.add_argument("--through-sites", action="store_true")
    options = parser.parse_args()
    tallies: dict[str, Tally] = {}
    print(f"{'':22} {'data':16} {'epsilon':>7} {'people':>7} {'forecast':>9} {'seen':>9} {'ratio':>6}  single numbers")
    for part in options.parts:
        for number, case in enumerate((*cases(part), *losses(part))):
            if options.through_sites and number != 1:
                continue
            start = time.perf_counter()
            advisor = Advisor(case.study, case.assumptions)
            forecast = advisor.at(advisor.own, options.rehearsals)
            tally = tallies.setdefault(case.name, Tally([], []))
            loss = forecast.expected is not None
            runs = max(options.runs // 5, 2 * DRAWS) if loss and part != "d" else options.runs
            found = seen(case, runs, 1000 * number, through_sites=options.through_sites)
            head = f"{case.name:22} {case.data:16} {case.epsilon:7g} {case.people:7d}"
            counts = np.array([line.counts for line in forecast.lines])
            if loss:
                kept, were = 1 - (forecast.expected or 0.0), 1 - float(np.mean(found[..., counts]))
                tally.whole.append(kept - were)
                took = f"{time.perf_counter() - start:.0f} s"
                print(f"{head} {kept:9.4f} {were:9.4f} {kept - were:+6.3f}  (of {advisor.level}; {took})", flush=True)
                continue
            scale = np.array([line.scale for line in forecast.lines])
            said = np.array([line.noise for line in forecast.lines])
            was = np.sqrt(np.mean(np.var(found, axis=1, ddof=1), axis=0))
            figures = [math.sqrt(float(np.mean((each / scale)[counts] ** 2))) for each in (said, was)]
            single = (said / was)[counts]
            tally.whole.append(figures[0] / figures[1])
            tally.single += single.tolist()
            rehearsed = [forecast.degrees_of_freedom] if forecast.runs else []
            tally.by_chance += len(single) * outside(len(found) * (DRAWS - 1), *rehearsed)
            took = f"{time.perf_counter() - start:.0f} s"
            print(
                f"{head} {figures[0]:9.5f} {figures[1]:9.5f} {figures[0] / figures[1]:6.3f}  "
                f"{single.min():.2f} to {single.max():.2f} ({took})",
                flush=True,
            )
    print(
        f"\n{'forecast over seen':22} settings  {'all numbers':16} {'numbers':>8}  {'each':14} {'off by 15 %':>11} "
        f"{'by chance':>10}"
    )
    for name, tally in tallies.items():
        print(tally.summary(name))


if __name__ == "__main__":
    main()
