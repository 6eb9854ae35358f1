"""Connectivity between 10 networks of real people at real scanner sites: errors, coverage and tests.

Run `python benchmarks/connectivity.py groups | covariates | level | study DATA` with the file of ABIDE (858 people, 20
sites, six colluding; delta 1e-5). The networks are ICA maps of half of the people, as in `guided.py`.

groups      Difference between the two diagnostic groups: error against the difference of these people, slope, coverage
            of the intervals for these people (noise alone) and for the population (people drawn again with
            replacement), edges found, and the global test. `--clips` beside the rule.
covariates  The same by regression within sites: diagnosis, and diagnosis with motion.
level       The global test and false discoveries with the diagnosis shuffled within sites.
study       A study over 20 sites in this process, with secure sums, beside the simulation that the others use.

Sums of people drawn again are those of each person's own contribution; they are compared with the statistic's sum once.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import zerosum
from guided import COLLUDERS, DELTA, SITES, Abide, ica_maps, spread
from zerosum.algorithms import ConnectivityProgram, Estimate
from zerosum.compute.units import Units
from zerosum.coordinator.rehearse import drive
from zerosum.kernel import coordinates
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import Release, Request
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.statistics.connectivity import (
    COUNT_WEIGHT,
    ENERGY_WEIGHT,
    EdgeStatistic,
    GroupedConnectivity,
    SiteCentredConnectivity,
)
from zerosum.study.planning import make_plan

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
REGIONS = tuple(f"r{i + 1}" for i in range(200))


@dataclass(frozen=True, eq=False)
class People:
    """Contributions f of all people with a program's clip, their codes and covariates, and their sites."""

    f: Floats
    group: Whole
    x: Floats
    site: Whole

    def drawn(self, which: Whole) -> People:
        return replace(self, f=self.f[which], group=self.group[which], x=self.x[which], site=self.site[which])

    def total(self, statistic: EdgeStatistic) -> Floats:
        c = statistic.clip
        if isinstance(statistic, GroupedConnectivity):
            energy = 2 * np.sum(self.f**2, axis=1) / c**2 - 1
            own = np.column_stack([self.f, np.full(len(self.f), COUNT_WEIGHT * c), ENERGY_WEIGHT * c * energy])
            return np.concatenate([own[self.group == g].sum(axis=0) for g in range(statistic.groups)])
        assert isinstance(statistic, SiteCentredConnectivity)
        parts = []
        for s in np.unique(self.site):
            here = self.site == s
            f, x = (each[here] - each[here].mean(axis=0) for each in (self.f, self.x))
            whole = {"edges": (x.T @ f).ravel(), "covariates": coordinates.pack(x.T @ x)}
            parts.append(whole[statistic.part] if statistic.part in whole else np.array([np.sum(f**2)]))
        return np.asarray(np.sum(parts, axis=0))

    def run(self, program: ConnectivityProgram, plan: Plan, rng: np.random.Generator | None) -> Estimate:
        """The estimate with the noise of a plan, or without noise."""
        rounds = iter(range(plan.rounds))
        names = tuple(site.name for site in plan.sites)

        def answer(request: Request) -> Release:
            assert isinstance(request.statistic, EdgeStatistic)
            total, std = self.total(request.statistic), plan.law(next(rounds)).noise_std
            noisy = total if rng is None else total + std * rng.normal(size=total.shape)
            return Release(noisy, std, float(len(self.f)), names)

        return drive(program.program(Adjacency.REPLACE_ONE), answer)[0]


@dataclass(frozen=True, eq=False)
class Setting:
    """A program, its people, its plans and the data by site."""

    program: ConnectivityProgram
    people: People
    sites: dict[str, Units]

    @classmethod
    def of(cls, abide: Abide, path: Path, maps: Floats, covariates: tuple[str, ...], clip: float | None) -> Setting:
        with np.load(path) as stored:
            group, motion = (stored["dx"] == 1).astype(np.int64), np.minimum(stored["mean_fd"].astype(float), 0.3)
        own = {"dx": (0.0, 1.0), "motion": (0.0, 0.3)}
        columns = (*REGIONS, *(covariates or ("dx",)))
        given = {"maps": maps, "clip": clip, "band": (0.01, 0.1), "duration": 388.0}
        if covariates:
            program = ConnectivityProgram(columns=columns, covariates={name: own[name] for name in covariates}, **given)
        else:
            program = ConnectivityProgram(columns=columns, group="dx", levels=(0.0, 1.0), **given)
        values = {"dx": group.astype(float), "motion": motion}
        extra = np.column_stack([values[name] for name in columns[200:]])
        rows = [np.hstack([own, np.tile(each, (len(own), 1))]) for own, each in zip(abide.people, extra, strict=True)]
        sites = {f"s{s}": Units.from_list([rows[i] for i in np.flatnonzero(abide.site == s)]) for s in range(SITES)}
        statistic = program.requests(Adjacency.REPLACE_ONE)[0].statistic
        assert isinstance(statistic, EdgeStatistic)
        parts = []
        for units in sites.values():
            f = np.zeros((len(units), statistic.width))
            for batch, some, own_f in statistic.contributions(units):
                f[batch.units[some]] = own_f
            parts.append(f)
        order = np.concatenate([np.flatnonzero(abide.site == s) for s in range(SITES)])
        scaled = np.column_stack([2 * extra[:, at] / own[name][1] - 1 for at, name in enumerate(columns[200:])])
        people = People(np.concatenate(parts), group[order], scaled[order], abide.site[order])
        whole = sum(statistic.total(units) for units in sites.values())
        assert np.allclose(whole, people.total(statistic), atol=1e-6), "contributions do not add up to the sum"
        return cls(program, people, sites)

    def plan(self, epsilon: float) -> Plan:
        roster = tuple(PlannedSite(name, len(units)) for name, units in self.sites.items())
        terms = Terms(
            sites=roster, epsilon=epsilon, delta=DELTA, scheme=Scheme(DEFAULT_SCHEME), coalition=Coalition(COLLUDERS)
        )
        return make_plan(self.program, terms, "connectivity")

    @property
    def name(self) -> str:
        return "connectivity_coefficients" if self.program.covariates else "connectivity_difference"

    def drawn(self, rng: np.random.Generator) -> Whole:
        """People drawn again with replacement, within sites for a regression within sites."""
        everyone = np.arange(len(self.people.f))
        if not self.program.covariates:
            return rng.choice(everyone, len(everyone))
        here = [everyone[self.people.site == s] for s in np.unique(self.people.site)]
        return np.concatenate([rng.choice(each, len(each)) for each in here])


def measure(setting: Setting, epsilon: float, runs: int) -> str:
    """Errors, coverage and tests over noise alone, and over people and noise."""
    plan, name = setting.plan(epsilon), setting.name
    unclipped = setting.people
    truth = unclipped.run(setting.program, plan, None)[name].value[0]
    errors, slopes, edges, found, pooled, population = [], [], [], [], [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, 1])
        own = setting.people.run(setting.program, plan, rng)
        value, ends = own[name].value[0], own[f"{name}_interval"].value[0]
        errors.append(float(np.sqrt(np.mean((value - truth) ** 2))))
        slopes.append(float(np.sum(value * truth) / np.sum(truth**2)))
        edges.append(float(np.sum(own["edge_q_value"].value[0] < 0.05)))
        found.append(float(own["global_test"].value[0, 2] < 0.05))
        pooled.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        again = setting.people.drawn(setting.drawn(rng)).run(setting.program, plan, rng)
        ends = again[f"{name}_population_interval"].value[0]
        population.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
    one, other = np.mean(pooled, axis=0), np.mean(population, axis=0)
    return (
        f"eps {epsilon:g}: rms error {spread(errors)} (difference {np.sqrt(np.mean(truth**2)):.3f}), slope "
        f"{np.mean(slopes):.2f}, coverage pooled {one.mean():.3f} (worst edge {one.min():.3f}), population "
        f"{other.mean():.3f} ({other.min():.3f}), edges found {np.mean(edges):.2f}, global test {np.mean(found):.2f}"
    )


def level(setting: Setting, epsilon: float, runs: int) -> str:
    """Rejections with the groups shuffled within sites: the global test, and any edge at a rate of 5 %."""
    plan, globally, any_edge = setting.plan(epsilon), [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, 2])
        order = np.arange(len(setting.people.f))
        for s in np.unique(setting.people.site):
            here = order[setting.people.site == s]
            order[setting.people.site == s] = rng.permutation(here)
        shuffled = replace(setting.people, group=setting.people.group[order], x=setting.people.x[order])
        found = shuffled.run(setting.program, plan, rng)
        globally.append(float(found["global_test"].value[0, 2] < 0.05))
        any_edge.append(float(np.any(found["edge_q_value"].value[0] < 0.05)))
    return f"eps {epsilon:g}, shuffled: global test {np.mean(globally):.3f}, any edge {np.mean(any_edge):.3f}"


def study(setting: Setting, epsilon: float, runs: int) -> str:
    """The real path beside the simulation."""
    plan, name = setting.plan(epsilon), setting.name
    truth = setting.people.run(setting.program, plan, None)[name].value[0]
    real = []
    for _ in range(runs):
        with TemporaryDirectory() as folder:
            policies = {
                site: zerosum.Policy.throwaway(site, Path(folder, f"{site}.sqlite"), unit="person", data="public")
                for site in setting.sites
            }
            result = zerosum.run(
                setting.program, setting.sites, epsilon=epsilon, delta=DELTA, colluders=COLLUDERS, policies=policies
            )
        real.append(float(np.sqrt(np.mean((result.estimate[name].value[0] - truth) ** 2))))
    simulated = [
        float(
            np.sqrt(
                np.mean(
                    (setting.people.run(setting.program, plan, np.random.default_rng(s))[name].value[0] - truth) ** 2
                )
            )
        )
        for s in range(20)
    ]
    return (
        f"eps {epsilon:g}: rms error of a study {spread(real)} ({runs} runs), simulated {spread(simulated)} (20 runs)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["groups", "covariates", "level", "study"])
    parser.add_argument("data", type=Path, help="the file of ABIDE")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--clips", type=float, nargs="*", default=[])
    parser.add_argument("--folder", type=Path, default=Path("templates"), help="where maps are kept between runs")
    asked = parser.parse_args()
    abide = Abide.load(asked.data)
    maps = ica_maps(abide.units(abide.split("half", 0)[0]), 10, asked.folder, "half0")
    choices: list[tuple[str, ...]] = [()] if asked.what == "groups" else [("dx",), ("dx", "motion")]
    if asked.what in ("level", "study"):
        choices = [(), ("dx",)]
    work = {"groups": measure, "covariates": measure, "level": level, "study": study}[asked.what]
    for covariates in choices:
        for clip in (None, *asked.clips):
            setting = Setting.of(abide, asked.data, maps, covariates, clip)
            print(f"{' and '.join(covariates) or 'groups'}, clip {setting.program.radius:.3f}", flush=True)
            for epsilon in asked.epsilons:
                print(f"  {work(setting, epsilon, asked.runs)}", flush=True)


if __name__ == "__main__":
    main()
