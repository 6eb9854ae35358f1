"""Held-out cases of private ICA: sources of every kind, without being told which, beside other settings and the papers.

Run `python benchmarks/heldout_ica.py kinds | white | shapes | brains | abide FILE | papers | stability`; each prints a
table.

kinds   Laplace, uniform, mixed and GARCH sources: 700 people at 7 sites, 2 colluding, 200 rows, as many columns.
white   20 GARCH sources of 1024 people at 4 sites, 1 colluding, 250 rows, mixed by a rotation.
shapes  skewed sources, people of unequal length, more columns than components, autocorrelated sources.
brains  1024 people, 900 voxels, 20 maps, private PCA.
abide   858 people at 20 real sites, 6 colluding, against the same without noise.
papers  djICA and capeDJICA at the same exact epsilon, as published and with the best step and rounds found here, on
        exactly whitened data, which nobody pays for.
stability  the reported stability of each component against its correlation with the component without noise, with the
        prior odds of `Tuning` and without: the kinds, every second source Gaussian, and all sources Gaussian.

`--seeds N` (from `--first`), `--components`, `--epsilons`, `--kinds`; `--settings` runs other settings of ours beside
the default, with the paired difference. Noise is that of the plan at the exact epsilon, delta 1e-5, collusion included
(`zerosum.study.rehearsal`). Figures are means with standard errors, then median and worst.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import ICAProgram
from zerosum.algorithms.ica import filter as ica_filter
from zerosum.algorithms.ica.tuning import TUNING
from zerosum.algorithms.metrics import amari_index, matched
from zerosum.compute.units import Units
from zerosum.data.fmri import garch_sources, make_fmri
from zerosum.papers.figures.separating import rehearsed
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs
from zerosum.study.rehearsal import Rehearsal

Floats = NDArray[np.float64]
Case = Callable[[int], tuple[Units, Floats]]  # from a seed to people and what mixed them, columns x components

DELTA = 1e-5
KINDS = ("laplace", "uniform", "mixed", "garch")
SETTINGS: dict[str, dict[str, Any]] = {
    "12 rounds": {"rounds": 12},
    "6 rounds": {"rounds": 6},
    "no cumulants": {"start_share": 0.0},
    "half for cumulants": {"start_share": 0.5},
    "window 1": {"window": 1},
}
NEVER = 1e-300  # prior odds of a class that never occurs; its logarithm is finite
ODDS: dict[str, dict[str, Any]] = {  # changes of `Tuning`: the prior odds of mixtures and of Gaussian components
    "default": {},
    "no mixtures": {
        "class_odds": (NEVER, TUNING.class_odds[1]),
        "class_odds_random": (NEVER, TUNING.class_odds_random[1]),
    },
    "no Gaussian": {
        "class_odds": (TUNING.class_odds[0], NEVER),
        "class_odds_random": (TUNING.class_odds_random[0], NEVER),
    },
    "neither": {"class_odds": (NEVER, NEVER), "class_odds_random": (NEVER, NEVER)},
}


def names(columns: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(columns))


def people(volumes: NDArray[np.floating[Any]]) -> Units:
    count, points, columns = volumes.shape
    return Units(volumes.reshape(-1, columns), np.arange(0, count * points + 1, points))


def summary_line(values: Sequence[float]) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} +- {error:.4f} (median {np.median(values):.4f}, worst {np.max(values):.4f})"


# ---- made-up sources ----------------------------------------------------------------------------------------------


def sources(kind: str, shape: tuple[int, int, int], rng: np.random.Generator) -> Floats:
    """Independent sources of variance 1: people x rows x components."""
    R = shape[2]
    if kind == "laplace":
        return np.asarray(rng.laplace(size=shape) / math.sqrt(2))
    if kind == "uniform":
        return np.asarray(rng.uniform(-math.sqrt(3), math.sqrt(3), size=shape))
    if kind == "mixed":
        return np.where(np.arange(R) % 2 == 0, sources("laplace", shape, rng), sources("uniform", shape, rng))
    if kind == "garch":
        return np.asarray(garch_sources(shape[0], R, shape[1], rng=rng))
    if kind == "gaussian":
        return rng.normal(size=shape)
    if kind == "half gaussian":
        return np.where(np.arange(R) % 2 == 0, sources("laplace", shape, rng), sources("gaussian", shape, rng))
    if kind == "skewed":
        return np.asarray(rng.exponential(size=shape) - 1)
    if kind == "slow":  # autocorrelated, with heavy tails
        found = sources("laplace", shape, rng)
        for t in range(1, shape[1]):
            found[:, t] += 0.6 * found[:, t - 1]
        return np.asarray(found * math.sqrt(1 - 0.6**2))
    raise ValueError(f"unknown kind {kind!r}")


def mixing(R: int, rng: np.random.Generator, columns: int | None = None) -> Floats:
    left = np.linalg.qr(rng.normal(size=(columns or R, R)))[0]
    right = np.linalg.qr(rng.normal(size=(R, R)))[0]
    return np.asarray(left * np.linspace(0.7, 1.4, R) @ right.T)


def square(kind: str, R: int) -> Case:
    def case(seed: int) -> tuple[Units, Floats]:
        rng = np.random.default_rng([R, *kind.encode(), seed])
        A = mixing(R, rng)
        return people(sources(kind, (700, 200, R), rng) @ A.T), A

    return case


def white(seed: int) -> tuple[Units, Floats]:
    rng = np.random.default_rng([9, seed])
    A = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    return people(garch_sources(1024, 20, 250, rng=rng) @ A.T), A


def unequal(seed: int) -> tuple[Units, Floats]:
    rng = np.random.default_rng([10, seed])
    A = mixing(10, rng)
    rows = [sources("mixed", (1, int(rng.integers(60, 400)), 10), rng)[0] @ A.T for _ in range(700)]
    return Units.from_list([rng.lognormal() * each for each in rows]), A


def tall(seed: int) -> tuple[Units, Floats]:
    rng = np.random.default_rng([11, seed])
    A = mixing(10, rng, 40)
    rows = sources("mixed", (700, 200, 10), rng) @ A.T
    return people(rows + 0.05 * rng.normal(size=rows.shape)), A


# ---- ours ---------------------------------------------------------------------------------------------------------


class Study:
    """How many people at how many sites, and how many of these collude."""

    def __init__(self, units: int = 700, sites: int = 7, colluders: int = 2) -> None:
        self.units, self.sites, self.colluders = units, sites, colluders

    def compare(
        self, name: str, case: Case, epsilons: Sequence[float], seeds: Sequence[int], settings: bool, **parameters: Any
    ) -> None:
        """The default, and other settings of ours by their paired difference, on the same data with the same noise."""
        variants: dict[str, dict[str, Any]] = {"": {}} | (SETTINGS if settings else {})
        found: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
        start = perf_counter()
        for seed in seeds:
            units, A = case(seed)
            for epsilon in epsilons:
                for variant, change in variants.items():
                    algorithm = ICAProgram(
                        columns=names(len(A)),
                        n_components=A.shape[1],
                        **(parameters | change),
                    )
                    study = Rehearsal(algorithm, self.units, self.sites, epsilon, DELTA, self.colluders)
                    estimate = study.run(units, seed)
                    index = amari_index(np.asarray(estimate["unmixing"]), A)
                    maps = float(np.mean(matched(np.asarray(estimate["maps"]), A.T).correlations))
                    stability = float(np.mean(np.asarray(estimate["stability"])))
                    found.setdefault((variant, epsilon), []).append((index, maps, stability))
        took = (perf_counter() - start) / len(found) / len(seeds)
        for (variant, epsilon), each in found.items():
            index, maps, stability = np.array(each).T
            line = f"  {name} eps {epsilon:g}"
            if variant:
                gap = index - np.array(found["", epsilon])[:, 0]
                error = np.std(gap, ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else 0.0
                print(f"{line}, {variant}: {np.mean(index):.4f}, over the default by {np.mean(gap):.4f} +- {error:.4f}")
            else:
                others = f"maps {np.mean(maps):.3f}, stability {np.mean(stability):.3f} ({took:.0f} s)"
                print(f"{line}: {summary_line(index)}; {others}")
        print("", end="", flush=True)


def stability(kinds: Sequence[str], components: Sequence[int], epsilons: Sequence[float], seeds: Sequence[int]) -> None:
    """Calibration of the reported stability: claimed less measured correlation, mean and root mean square."""
    pooled: dict[str, list[Floats]] = {name: [] for name in ODDS}
    for R in components:
        for kind in kinds:
            for epsilon in epsilons:
                found: dict[str, list[Floats]] = {name: [] for name in ODDS}
                for seed in seeds:
                    for name, gaps in _stability_gaps(square(kind, R), epsilon, seed).items():
                        found[name].append(gaps)
                for name, runs in found.items():
                    pooled[name] += runs
                    print(f"  R={R} {kind} eps {epsilon:g}, {name}: {_calibration(runs)}", flush=True)
    for name, runs in pooled.items():
        print(f"  all, {name}: {_calibration(runs)}")


def _calibration(gaps: Sequence[Floats]) -> str:
    claimed, measured, above = np.concatenate(gaps, axis=1)
    error = claimed - measured
    return (
        f"claimed {np.mean(claimed):.3f}, measured {np.mean(measured):.3f}, "
        f"root mean square error {np.sqrt(np.mean(error**2)):.3f}, above by more than 0.1: {np.mean(error > 0.1):.3f}, "
        f"above noise {np.mean(above):.1f}"
    )


def _stability_gaps(case: Case, epsilon: float, seed: int) -> dict[str, Floats]:
    """By prior odds the claimed stability, the measured one and `above_noise` (3, R) of the components of one run.

    Measured is the correlation of each time course with the nearest one without noise. Sources have variance 1, so rows
    have covariance A A', and time courses u'x and v'x have the covariance (u'A)(v'A)'.
    """
    units, A = case(seed)
    algorithm = ICAProgram(columns=names(len(A)), n_components=A.shape[1])
    quiet = Rehearsal(algorithm, 700, 7, epsilon, DELTA, 2, scheme="non-private").run(units, seed)
    exact = np.asarray(quiet["unmixing"]) @ A
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    found = {}
    for name, change in ODDS.items():
        with patch.object(ica_filter, "TUNING", replace(TUNING, **change)):
            estimate = Rehearsal(algorithm, 700, 7, epsilon, DELTA, 2).run(units, seed)
        own = np.asarray(estimate["unmixing"]) @ A
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        claimed, above = np.asarray(estimate["stability"]), float(np.asarray(estimate["above_noise"]).ravel()[0])
        found[name] = np.stack([claimed, np.max(np.abs(own @ exact.T), axis=1), np.full(len(own), above)])
    return found


def brains(epsilons: Sequence[float], seeds: Sequence[int]) -> None:
    made = make_fmri(1024, 4, seed=1)
    volumes = np.concatenate([np.asarray(made.observed(s, dtype=np.float32)) for s in range(4)])
    units = people(volumes)
    Study(1024, 4, 1).compare(
        "brains", lambda _seed: (units, made.maps.T), epsilons, seeds, False, per_recording="none"
    )


def abide(path: Path, components: Sequence[int], epsilons: Sequence[float], seeds: Sequence[int]) -> None:
    with np.load(path) as stored:
        q, offsets, scale, mean, seconds = (stored[key] for key in ("q", "offsets", "scale", "mean", "tr_seconds"))
    each = [q[:, a:b].T * scale[i] + mean[i] for i, (a, b) in enumerate(pairwise(offsets))]
    each = [(rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1) for rows in each]
    units = Units.from_runs([[rows] for rows in each], [[float(clock)] for clock in seconds])
    for R in components:
        algorithm = ICAProgram(columns=names(200), n_components=R, per_recording="none", band=(0.009, 0.11))
        truth = np.asarray(Rehearsal(algorithm, 858, 20, 1.0, DELTA, 6, scheme="non-private").run(units, 0)["maps"])
        for epsilon in epsilons:
            study = Rehearsal(algorithm, 858, 20, epsilon, DELTA, 6)
            estimates = study.runs(units, seeds)
            maps = [float(np.mean(matched(np.asarray(e["maps"]), truth).correlations)) for e in estimates]
            stability = [float(np.mean(np.asarray(e["stability"]))) for e in estimates]
            error = np.std(maps, ddof=1) / math.sqrt(len(maps)) if len(maps) > 1 else 0.0
            print(
                f"  abide R={R} eps {epsilon:g}, {len(maps)} seeds: maps {np.mean(maps):.3f} +- {error:.3f}, "
                f"stability {np.mean(stability):.3f}",
                flush=True,
            )


# ---- the papers ---------------------------------------------------------------------------------------------------

TUNED = {  # step and rounds; the papers' step is 0.015/log R and their rounds 1000
    "as published": published.Settings(rounds=1000, tolerance=0.0),
    "as published, papers' tolerance": published.Settings(rounds=1000),
    "step 1, 200 rounds": published.Settings(rounds=200, step=1.0, tolerance=0.0),
    "step 1, 30 rounds": published.Settings(rounds=30, step=1.0, tolerance=0.0),
    "step 1, 10 rounds": published.Settings(rounds=10, step=1.0, tolerance=0.0),
    "step 0.3, 30 rounds": published.Settings(rounds=30, step=0.3, tolerance=0.0),
    "step 1, 30 rounds, clip 10": published.Settings(rounds=30, step=1.0, clip=10.0, tolerance=0.0),
}


def papers(kinds: Sequence[str], components: Sequence[int], epsilons: Sequence[float], seeds: Sequence[int]) -> None:
    for R in components:
        for kind in kinds:
            for how, settings in TUNED.items():
                for method in ("non-private", "cape-djica"):
                    for epsilon in epsilons if method != "non-private" else [math.inf]:
                        found = [_theirs(method, square(kind, R), epsilon, settings, seed) for seed in seeds]
                        print(
                            f"  {method}, {how}, R={R} {kind}, exact eps {epsilon:g}: {summary_line(found)}", flush=True
                        )


def _theirs(method: str, case: Case, epsilon: float, settings: published.Settings, seed: int) -> float:
    """On rows that are whitened exactly, at 7 sites of 100 people, 2 of them colluding."""
    units, A = case(seed)
    rows = np.asarray(units.rows)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    W = (vectors / np.sqrt(values)) @ vectors.T
    white = Units((rows @ W).astype(np.float32), units.offsets)
    sites = [white.between(100 * s, 100 * (s + 1)) for s in range(7)]
    each = math.inf
    if method != "non-private":
        each = ica_costs.epsilon_for_exact(
            method, settings.rounds, epsilon, delta=settings.delta, total_delta=DELTA, sites=7, colluders=2
        )
    found = rehearsed(method, sites, each, settings, np.random.default_rng(seed))[0]
    return amari_index(found @ W.T, A)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kinds", "white", "shapes", "brains", "abide", "papers", "stability"])
    parser.add_argument("data", nargs="?", type=Path, help="the file of abide")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--components", type=int, nargs="+", default=[10])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--settings", action="store_true")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.seeds)
    print(f"{asked.what}, seeds {asked.first} to {seeds[-1]}, Amari index", flush=True)
    if asked.what == "kinds":
        for R in asked.components:
            for kind in asked.kinds:
                Study().compare(f"R={R} {kind}", square(kind, R), asked.epsilons, seeds, asked.settings)
    elif asked.what == "white":
        Study(1024, 4, 1).compare(
            "R=20 garch, white", white, asked.epsilons, seeds, asked.settings, per_recording="none"
        )
    elif asked.what == "shapes":
        shapes = {"skewed": square("skewed", 10), "unequal people": unequal, "D=40": tall, "slow": square("slow", 10)}
        for name, case in shapes.items():
            Study().compare(name, case, asked.epsilons, seeds, asked.settings)
    elif asked.what == "stability":
        stability([*asked.kinds, "half gaussian", "gaussian"], asked.components, asked.epsilons, seeds)
    elif asked.what == "brains":
        brains(asked.epsilons, seeds)
    elif asked.what == "papers":
        papers(asked.kinds, asked.components, asked.epsilons, seeds)
    elif asked.data is None:
        parser.error("abide needs its file")
    else:
        abide(asked.data, asked.components, asked.epsilons, seeds)


if __name__ == "__main__":
    main()
