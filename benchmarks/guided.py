"""Guided ICA, ICA and PCA of real people at real scanner sites: maps, differences from templates, and forecasts.

Run `python benchmarks/guided.py maps | forecast | study DATA` with the file of ABIDE (858 people, 200 regions, 20
sites; six colluding sites, delta 1e-5, whole people protected).

maps      Guided ICA. Templates come from people A, the study is of people B, and the reference is B's dual regression
          with the same templates without noise. Cases: `half`, the ICA maps of A's half of the people on B's half;
          `sites`, those of ten sites on the other ten; `mask`, A's maps as +-1 masks of 30 regions; `noisy`, A's maps
          at correlation 0.7; `site mask`, the masks of ten sites on the other ten. Columns: the template alone; the
          public people's own dual regression, which is free; the release with public people; without them. `--splits`
          random splits beside the first (sites 1 to 10).
forecast  Expected and measured correlations for smaller numbers of people: guided ICA, ICA and PCA.
study     The same guided ICA as a study over 20 sites in this process, with secure sums and discrete noise, beside
          the simulation of its noise that the other two use.

Templates are ICA maps without noise of all people of A. Means and standard deviations over `--seeds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import zerosum
from zerosum.algorithms import GuidedICAProgram, ICAProgram, PCAProgram
from zerosum.algorithms.guided_ica.public import PublicPeople
from zerosum.algorithms.metrics import matched
from zerosum.algorithms.program import PublicFacts
from zerosum.compute.units import Units
from zerosum.kernel.schemes import DEFAULT_SCHEME, Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.kernel.view import Coalition
from zerosum.study.planning import make_plan
from zerosum.study.rehearsal import PlanSimulation, Rehearsal

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

DELTA, COLLUDERS, SITES = 1e-5, 6, 20
COLUMNS = tuple(f"r{i + 1}" for i in range(200))
CASES = ("half", "sites", "mask", "noisy", "site mask")


@dataclass(frozen=True, eq=False)
class Abide:
    """All people, each standardised, with the site of each."""

    people: list[Floats]
    seconds: Floats
    site: Whole

    @classmethod
    def load(cls, path: Path) -> Abide:
        with np.load(path) as stored:
            q, offsets, scale, mean = (stored[key] for key in ("q", "offsets", "scale", "mean"))
            seconds, site = stored["tr_seconds"].astype(float), stored["site"].astype(np.int64)
        each = [q[:, a:b].T * scale[i].astype(float) + mean[i] for i, (a, b) in enumerate(pairwise(offsets))]
        each = [(rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1) for rows in each]
        return cls(each, seconds, site)

    def units(self, which: Whole) -> Units:
        return Units.from_runs([[self.people[i]] for i in which], [[float(self.seconds[i])] for i in which])

    def split(self, case: str, split: int) -> tuple[Whole, Whole]:
        """People A and B: random halves, or those of ten sites and of the other ten; split 0 of sites is in order."""
        everyone = np.arange(len(self.people))
        if not case.startswith("site"):
            order = np.random.default_rng(split).permutation(everyone)
            return np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        sites = np.arange(SITES) if split == 0 else np.random.default_rng(split).permutation(SITES)
        first = np.isin(self.site, sites[: SITES // 2])
        return everyone[first], everyone[~first]


def ica_maps(units: Units, components: int, folder: Path, name: str) -> Floats:
    """ICA maps without noise, kept in a folder between runs."""
    place = folder / f"{name}-{components}.npy"
    if not place.is_file():
        algorithm = ICAProgram(columns=COLUMNS, n_components=components, per_recording="none", band=(0.009, 0.11))
        study = Rehearsal(algorithm, len(units), SITES, 1.0, DELTA, COLLUDERS, scheme="non-private")
        folder.mkdir(parents=True, exist_ok=True)
        np.save(place, np.asarray(study.run(units, 0)["maps"]))
    return np.asarray(np.load(place))


def templates_of(case: str, maps: Floats) -> Floats:
    """The templates of a case, each of norm 1."""
    if case.endswith("mask"):
        edge = np.sort(np.abs(maps), axis=1)[:, -30][:, None]
        maps = np.where(np.abs(maps) >= edge, np.sign(maps), 0.0)
    if case == "noisy":
        other = np.random.default_rng([5, len(maps)]).normal(size=maps.shape)
        maps = 0.7 * maps + np.sqrt(0.51) * other / np.linalg.norm(other, axis=1, keepdims=True)
    return np.asarray(maps / np.linalg.norm(maps, axis=1, keepdims=True))


def correlation(one: Floats, other: Floats) -> float:
    """Mean over rows of the correlation of two tables."""
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)]))


def cosine(one: Floats, other: Floats) -> float:
    """Cosine of two tables as vectors; 0 if one of them is zero."""
    size = np.linalg.norm(one) * np.linalg.norm(other)
    return float(np.sum(one * other) / size) if size > 0 else 0.0


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f}+-{np.std(values, ddof=1) if len(values) > 1 else 0.0:.3f}"


@dataclass(frozen=True, eq=False)
class Case:
    """One case: the program with and without public people, the data, and the truth."""

    program: GuidedICAProgram
    plain: GuidedICAProgram
    units: Units
    difference: Floats
    public: Floats

    @classmethod
    def of(cls, abide: Abide, name: str, components: int, split: int, folder: Path) -> Case:
        a, b = abide.split(name, split)
        kept = f"{'sites' if name.startswith('site') else 'half'}{split}"
        M = templates_of(name, ica_maps(abide.units(a), components, folder, kept))
        facts = PublicPeople.of(abide.units(a), M)
        plain = GuidedICAProgram(columns=COLUMNS, templates=M)
        units = abide.units(b)
        exact = plain.model_copy(update={"clip": 1e9})
        truth = (
            Rehearsal(exact, len(units), SITES, 1.0, DELTA, scheme="non-private").run(units, 0)["map_difference"].value
        )
        own = facts.difference @ facts.basis.T
        return cls(GuidedICAProgram(columns=COLUMNS, templates=M, **facts.parameters()), plain, units, truth, own)

    @property
    def templates(self) -> Floats:
        return self.plain.maps_of_norm_1

    def scores(self, difference: Floats) -> tuple[float, float, float]:
        """Correlation of maps and of the difference with those without noise, and the relative error."""
        M, error = self.templates, difference - self.difference
        maps = correlation(M + difference, M + self.difference)
        return maps, cosine(difference, self.difference), float(np.linalg.norm(error) / np.linalg.norm(self.difference))

    def lines(self, epsilons: Sequence[float], seeds: Sequence[int]) -> Iterator[str]:
        alone, own = correlation(self.templates, self.templates + self.difference), self.scores(self.public)
        size = np.linalg.norm(self.difference)
        people = f"public people {own[0]:.3f}, {own[1]:.2f}"
        yield f"N={len(self.units)}, size {size:.2f}: template alone {alone:.3f}; {people}"
        for epsilon in epsilons:
            text = f"    eps {epsilon:g}:"
            for label, program in (("with public people", self.program), ("templates only", self.plain)):
                study = Rehearsal(program, len(self.units), SITES, epsilon, DELTA, COLLUDERS)
                found = [self.scores(e["map_difference"].value) for e in study.runs(self.units, seeds)]
                maps, difference, error = zip(*found, strict=True)
                worst = min(maps) - alone
                expected = study.algorithm.expectation(PublicFacts(noise=noise_of(study), units=len(self.units)))
                low, high = (expected.low, expected.high) if expected is not None else (0.0, 0.0)
                judged = (0.0, 0.0) if expected is None else expected.judged
                text += (
                    f" {label}: maps {spread(maps)} (forecast {low:.3f}-{high:.3f}), difference {spread(difference)} "
                    f"(forecast {judged[0]:.2f}-{judged[1]:.2f}), error {np.mean(error):.2f}, "
                    f"d={directions_of(study)}, "
                    f"worst run against the template {worst:+.4f};"
                )
            yield text


def directions_of(study: PlanSimulation) -> int:
    """Number of directions that guided ICA releases."""
    assert isinstance(study.algorithm, GuidedICAProgram)
    return study.algorithm.used


def noise_of(study: PlanSimulation) -> float:
    """Noise of a sum of sensitivity 1 with the whole budget."""
    return float(study.plan.noise_of_everything)


def maps(abide: Abide, folder: Path, asked: argparse.Namespace) -> None:
    for components in asked.components:
        for name in asked.cases:
            for split in range(asked.splits if name.startswith("site") or asked.all_splits else 1):
                case = Case.of(abide, name, components, split, folder)
                for at, line in enumerate(case.lines(asked.epsilons, range(asked.seeds))):
                    print(f"R={components} {name} split {split} {line}" if at == 0 else line, flush=True)


def study(abide: Abide, folder: Path, asked: argparse.Namespace) -> None:
    """The real path: sites of ABIDE in this process, secure sums, discrete noise, no seed."""
    for name in asked.cases:
        case = Case.of(abide, name, asked.components[0], 0, folder)
        _a, b = abide.split(name, 0)
        sites = {f"site {s}": abide.units(b[abide.site[b] == s]) for s in np.unique(abide.site[b])}
        for epsilon in asked.epsilons:
            found = []
            for _ in range(asked.seeds):
                with TemporaryDirectory() as ledgers:
                    policies = {
                        site: zerosum.Policy.throwaway(
                            site, Path(ledgers, f"{at}.sqlite"), unit="person", data="public"
                        )
                        for at, site in enumerate(sites)
                    }
                    result = zerosum.run(
                        case.program, sites, epsilon=epsilon, delta=DELTA, colluders=COLLUDERS, policies=policies
                    )
                found.append(case.scores(result.estimate["map_difference"].value))
            plan = simulated_plan(case.program, sites, epsilon)
            again = [
                case.scores(e["map_difference"].value)
                for e in PlanSimulation(case.program, plan).runs(case.units, range(20))
            ]
            print(
                f"{name} R={asked.components[0]} eps {epsilon:g}, {len(sites)} sites: study "
                f"maps {spread([each[0] for each in found])}, difference {spread([each[1] for each in found])} "
                f"({asked.seeds} runs); simulation maps {spread([each[0] for each in again])}, difference "
                f"{spread([each[1] for each in again])} (20 runs)",
                flush=True,
            )


def simulated_plan(program: GuidedICAProgram, sites: dict[str, Units], epsilon: float) -> zerosum.Plan:
    """The plan of a study over these sites."""
    roster = tuple(PlannedSite(name, len(units)) for name, units in sites.items())
    return make_plan(
        program,
        Terms(
            sites=roster, epsilon=epsilon, delta=DELTA, scheme=Scheme(DEFAULT_SCHEME), coalition=Coalition(COLLUDERS)
        ),
        "study",
    )


def forecast(abide: Abide, folder: Path, asked: argparse.Namespace) -> None:
    """Expected and measured, for some of the people."""
    everyone = np.arange(len(abide.people))
    for count in asked.people:
        chosen = [np.sort(np.random.default_rng(seed).permutation(everyone)[:count]) for seed in range(asked.seeds)]
        for epsilon in asked.epsilons:
            for components in asked.components:
                for name in asked.methods:
                    print(f"N={count} eps {epsilon:g} R={components} {name}: ", end="")
                    print(_expected_and_measured(abide, folder, name, components, epsilon, chosen), flush=True)


def _expected_and_measured(
    abide: Abide, folder: Path, name: str, components: int, epsilon: float, chosen: list[Whole]
) -> str:
    if name in CASES:
        return _guided_forecast(abide, folder, name, components, epsilon, chosen)
    measured, expected = [], None
    program: ICAProgram | PCAProgram
    if name == "ica":
        program = ICAProgram(columns=COLUMNS, n_components=components, per_recording="none", band=(0.009, 0.11))
    else:
        program = PCAProgram(
            columns=COLUMNS, n_components=components, per_recording="standardise", centering="none", clip=1e6
        )
    for at, which in enumerate(chosen):
        units = abide.units(which)
        result = "maps" if name == "ica" else "components"
        exact = Rehearsal(program, len(units), SITES, 1.0, DELTA, scheme="non-private").run(units, 0)[result].value
        study = Rehearsal(program, len(units), SITES, epsilon, DELTA, COLLUDERS)
        measured.append(float(np.mean(matched(study.run(units, at)[result].value, exact).correlations)))
        expected = study.algorithm.expectation(PublicFacts(noise=noise_of(study), units=len(units)))
    assert expected is not None
    return f"measured {spread(measured)}, expected {expected.low:.2f} to {expected.high:.2f}"


def _guided_forecast(
    abide: Abide, folder: Path, name: str, components: int, epsilon: float, chosen: list[Whole]
) -> str:
    case = Case.of(abide, name, components, 0, folder)
    _a, b = abide.split(name, 0)
    found, expected = [], None
    for at in range(len(chosen)):
        which = np.sort(np.random.default_rng(at).permutation(b)[: len(chosen[at])])
        own = replace(case, units=abide.units(which))
        exact = case.plain.model_copy(update={"clip": 1e9})
        truth = (
            Rehearsal(exact, len(which), SITES, 1.0, DELTA, scheme="non-private")
            .run(own.units, 0)["map_difference"]
            .value
        )
        own = replace(own, difference=truth)
        study = Rehearsal(case.program, len(which), SITES, epsilon, DELTA, COLLUDERS)
        found.append(own.scores(study.run(own.units, at)["map_difference"].value))
        expected = study.algorithm.expectation(PublicFacts(noise=noise_of(study), units=len(which)))
    assert expected is not None
    return (
        f"maps {spread([each[0] for each in found])}, expected {expected.low:.3f}; difference "
        f"{spread([each[1] for each in found])}, expected {expected.judged[0]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["maps", "forecast", "study"])
    parser.add_argument("data", type=Path, help="the file of ABIDE")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--components", type=int, nargs="+", default=[10])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--all-splits", action="store_true", help="random splits of all cases, not of sites alone")
    parser.add_argument("--people", type=int, nargs="+", default=[24, 60, 200, 429])
    parser.add_argument("--methods", nargs="+", default=["mask", "sites", "ica", "pca"])
    parser.add_argument("--folder", type=Path, default=Path("templates"), help="where templates are kept between runs")
    asked = parser.parse_args()
    abide = Abide.load(asked.data)
    {"maps": maps, "forecast": forecast, "study": study}[asked.what](abide, asked.folder, asked)


if __name__ == "__main__":
    main()
