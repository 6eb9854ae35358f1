"""Forecasts of `zerosum plan --what-if` against what seeded runs show.

Run `python benchmarks/what_if.py [--runs 200] [--parts mqrgep] [--rehearsals 200] [--through-sites]`.

For every setting a forecast is made from public guesses. Then ten samples of people are drawn as guessed, and the study
is run on all of them with so many seeds in all: its program with the noise of its plan, or, with `--through-sites`, as
in earnest, through policies, ledgers and the secure sum, for one setting of each part (slow). Printed are the standard
deviation that privacy was forecast to add and the one seen among runs on the same sample, as the root mean square over
the result's numbers, each on its scale; their ratio; and the smallest and largest ratio of a single number. Of
principal components it is the share of the energy that is kept. Four sites, one colluding, delta = 1e-5.

Parts: m means, q quantiles, r linear regression, g logistic regression, e mixtures (by EM), p principal components.
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
from zerosum.kernel.units import Units
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.study import Study
from zerosum.study.planning import pin
from zerosum.study.rehearsal import Rehearsed
from zerosum.study.running import execute_here
from zerosum.study.what_if import Advisor, Guesses, Shape, Spectrum
from zerosum.study.what_if.measures import in_order, measure_of
from zerosum.study.what_if.worlds import world_of

SITES, DELTA, SAMPLES = 4, 1e-5, 10
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
    guesses: Guesses
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


def shaped(shapes: dict[str, str]) -> Guesses:
    return Guesses(columns={name: Shape.parse(said) for name, said in shapes.items()})


def uneven_clusters(seed: int, count: int) -> Units:
    """Three clusters of unequal size in three columns, with a long tail to one side."""
    rng = np.random.default_rng(seed)
    centers = np.array([[2.0, 30.0, 0.3], [8.0, 35.0, 0.5], [5.0, 80.0, 0.7]])
    which = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    tail = rng.gamma(4.0, 0.5, (count, 3)) - 2.0
    return Units(np.clip(centers[which] + tail * np.array([0.5, 5.0, 0.05]), [0, 0, 0], [10, 100, 1]))


def cases(part: str) -> Iterator[Case]:
    corners = [(0.5, 1000), (2.0, 1000), (0.5, 6000), (2.0, 6000)]
    plain, skewed = Guesses(), shaped(SKEWED)
    some = [(plain, "uniform", *corners[0]), (plain, "uniform", *corners[3])]
    some += [(skewed, "skewed", *corners[1]), (skewed, "skewed", *corners[2])]
    every = [(guess, data, *at) for guess, data in ((plain, "uniform"), (skewed, "skewed")) for at in corners]
    wide = {"ranges": {"a": (0, 10), "b": (0, 100), "c": (0, 1)}, "columns": ["a", "b", "c"]}
    explained = {**COLUMNS, "columns": ["a", "b", "y"]}
    classes = {**explained, "upper": [10, 100, 1]}
    for guess, data, epsilon, people in every if part in "mq" else some:
        narrow = Guesses(columns={name: shape for name, shape in guess.columns.items() if name != "c"})
        if part == "m":
            yield Case("mean", "mean", COLUMNS, data, guess, epsilon, people)
        if part == "q":
            yield Case("quantiles", "quantiles", wide, data, guess, epsilon, people)
        if part == "r":
            yield Case("linear", "linear-regression", explained, data, narrow, epsilon, people)
        if part == "g":
            yield Case("logistic", "logistic-regression", classes, data, narrow, epsilon, people)
    mixture = {**COLUMNS, "n_components": 3, "scaling": "ranges"}
    uneven = Guesses(like=uneven_clusters(1, 20_000))
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
            guess = Guesses(spectrum=Spectrum.parse(said))
            if part == "p":
                yield Case("pca", "pca", many, said, guess, epsilon, people)


def seen(case: Case, runs: int, first: int, *, through_sites: bool) -> Floats:
    """What the result's numbers are in seeded runs: samples x draws x numbers."""
    study = case.study
    algorithm = study.build_algorithm()
    world, measure = world_of(algorithm, case.guesses, study.full_design), measure_of(algorithm)
    assert world is not None
    assert measure is not None
    rehearsed = Rehearsed(algorithm, study.plan())
    anchor, found = world.truth, []
    for sample in range(SAMPLES):
        like = uneven_clusters(1000 + sample, case.people) if case.data == "uneven" else None
        people = like or world.people(case.people, np.random.default_rng([2026, sample]))
        seeds = range(first + sample * runs // SAMPLES, first + (sample + 1) * runs // SAMPLES)
        if through_sites:
            estimates = [at_sites(study, people, seed) for seed in seeds]
        else:
            estimates = rehearsed.runs(people, seeds)
        if anchor is None and measure.anchor:
            anchor = in_order(estimates[0][measure.anchor].value)
        found.append([measure.values(each, people, anchor) for each in estimates])
    return np.array(found)


def at_sites(study: Study, people: Units, seed: int) -> Estimate:
    """A run as in earnest, through policies, ledgers and the secure sum; but for its seed, which protects nobody."""
    seeded = study.model_copy(update={"privacy": study.privacy.model_copy(update={"random_state": seed})})
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        members = [
            Site(f"s{at}", Units(part), Policy.throwaway(f"s{at}", Path(folder) / f"{at}", delta=DELTA))
            for at, part in enumerate(np.array_split(np.asarray(people.rows), SITES))
        ]
        return execute_here(pin(seeded.plan(), members), seeded.build_algorithm(), members).estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rehearsals", type=int, default=200)
    parser.add_argument("--parts", default="mqrgep")
    parser.add_argument("--through-sites", action="store_true")
    options = parser.parse_args()
    print(f"{'':10} {'data':16} {'epsilon':>7} {'people':>7} {'forecast':>9} {'seen':>9} {'ratio':>6}  single numbers")
    for part in options.parts:
        for number, case in enumerate(cases(part)):
            if options.through_sites and number != 1:
                continue
            start = time.perf_counter()
            advisor = Advisor(case.study, case.guesses)
            forecast = advisor.at(advisor.own, options.rehearsals)
            runs = max(options.runs // 5, 2 * SAMPLES) if part == "p" else options.runs
            found = seen(case, runs, 1000 * number, through_sites=options.through_sites)
            head = f"{case.name:10} {case.data:16} {case.epsilon:7g} {case.people:7d}"
            took = f"{time.perf_counter() - start:.0f} s"
            if part == "p":
                kept, were = 1 - forecast.lines[0].bias, 1 - float(np.mean(found))
                print(f"{head} {kept:9.4f} {were:9.4f} {kept - were:+6.3f}  (of the energy; {took})", flush=True)
                continue
            counts = np.array([line.counts for line in forecast.lines])
            scale = np.array([line.scale for line in forecast.lines])
            said = np.array([line.noise for line in forecast.lines])
            was = np.sqrt(np.mean(np.var(found, axis=1, ddof=1), axis=0))
            figures = [math.sqrt(float(np.mean((each / scale)[counts] ** 2))) for each in (said, was)]
            single = (said / was)[counts]
            print(
                f"{head} {figures[0]:9.5f} {figures[1]:9.5f} {figures[0] / figures[1]:6.3f}  "
                f"{single.min():.2f} to {single.max():.2f} ({took})",
                flush=True,
            )


if __name__ == "__main__":
    main()
