"""Private ICA measured: run `python benchmarks/ica.py rotation | brains | abide FILE | speed` (each prints a table).

rotation  20 GARCH sources of 1024 people at 4 sites, already white: the Amari index of the solver alone and of the
          papers' iteration, each at its exact total epsilon.
brains    the whole way from 900 columns: private PCA or a public basis of low frequencies, all paid.
abide     858 people at 20 real sites: both solvers, each against its own pooled solution without noise.
speed     one round over 1024 x 250 x 20 numbers against a bare `tanh` and matrix product, in processor time.

`--seeds N` sets how many seeds. For `brains`, `--people M`, `--layout even|random|overlapping` of the maps,
`--frequencies 12 0` for public bases of 12 x 12 low frequencies and (0) for private PCA, `--epsilons inf 1 2 4.4 8`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerosum.algorithms import ICAProgram
from zerosum.algorithms.metrics import amari_index, matched
from zerosum.compute.units import Units
from zerosum.data.bases import low_frequencies
from zerosum.data.fmri import Layout, garch_sources, make_fmri
from zerosum.papers.figures.separating import rehearsed
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs
from zerosum.statistics.unmixing import Score, UnmixingScore

Floats = NDArray[np.float64]
Estimate = dict[str, Floats]

DELTA = 1e-5


def names(columns: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(columns))


def people(volumes: NDArray[np.floating[Any]]) -> Units:
    count, points, columns = volumes.shape
    return Units(volumes.reshape(-1, columns), np.arange(0, count * points + 1, points))


def private(
    algorithm: ICAProgram,
    sites: dict[str, Units],
    epsilon: float,
    colluders: int,
    seed: int,
    scheme: str = "secure-sum",
) -> Estimate:
    result = run_trial(algorithm, sites, epsilon=epsilon, delta=DELTA, colluders=colluders, scheme=scheme, seed=seed)
    return {key: np.asarray(value) for key, value in result.estimate.items()}


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} +- {np.std(values):.4f}"


# ---- the solver alone ---------------------------------------------------------------------------------------------


def rotation(seeds: int) -> None:
    print(f"Amari index, M=1024, R=20, S=4, C=1, delta=1e-5, white data, {seeds} seeds")
    found: dict[float, list[float]] = {}
    for seed in range(seeds):
        sources = garch_sources(1024, 20, 250, rng=np.random.default_rng([seed, 0]))
        Q = np.linalg.qr(np.random.default_rng([seed, 1]).normal(size=(20, 20)))[0]
        white = sources @ Q.T
        sites = {f"s{s}": people(white[s::4]) for s in range(4)}
        algorithm = ICAProgram(columns=names(20), n_components=20, per_recording="none")
        for epsilon in (1.0, 1.5, 2.0):
            estimate = private(algorithm, sites, epsilon, 1, seed)
            found.setdefault(epsilon, []).append(amari_index(estimate["unmixing"], Q))
        clean = private(algorithm, sites, 1.0, 1, seed, "non-private")
        found.setdefault(np.inf, []).append(amari_index(clean["unmixing"], Q))
    for epsilon, values in found.items():
        print(f"  ours, whitening paid too, exact eps {epsilon:g}: {spread(values)}", flush=True)
    theirs = [people(white[s::4]) for s in range(4)]
    for method in ("non-private", "cape-djica", "conv", "pooled", "single-site"):
        for rounds, calibration in ((1000, "published"), (100, "exact")):
            each, exact = np.inf, np.inf
            if method != "non-private" and calibration == "exact":
                each, exact = ica_costs.epsilon_for_exact(method, rounds, 1.0, sites=4, colluders=1), 1.0
            elif method != "non-private":
                each, exact = 1.0, ica_costs.exact_epsilon(method, rounds, 1.0, sites=4, colluders=1)
            settings = published.Settings(rounds=rounds, tolerance=0.0)
            W, made = rehearsed(method, theirs, each, settings, np.random.default_rng(0))
            index = amari_index(W, Q)
            print(
                f"  published {method:12s} {made:4d} rounds, exact eps {exact:8.4g}: {index:.4f} (1 seed)",
                flush=True,
            )


# ---- from volumes to maps -----------------------------------------------------------------------------------------


def whole(
    seeds: int, count: int, layout: Layout, n_passes: int, frequencies: Sequence[int], epsilons: Sequence[float]
) -> None:
    print(
        f"M={count}, D=900, R=20, S=4, C=1, delta=1e-5, {layout} maps, {n_passes} passes: Amari index; map correlation"
    )
    made = make_fmri(count, 4, layout=layout, seed=1)
    sites = {f"s{s}": people(made.observed(s, dtype=np.float32)) for s in range(4)}
    for each in frequencies:
        which, basis = (f"{each}^2 frequencies", low_frequencies(30, each)) if each else ("private PCA", None)
        algorithm = ICAProgram(
            columns=names(900), n_components=20, per_recording="none", basis=basis, n_passes=n_passes
        )
        for epsilon in epsilons:
            scheme, wanted = ("non-private", 1) if np.isinf(epsilon) else ("secure-sum", seeds)
            start = perf_counter()
            found = [private(algorithm, sites, min(epsilon, 1e3), 1, seed, scheme) for seed in range(wanted)]
            index = [amari_index(estimate["unmixing"], made.maps.T) for estimate in found]
            maps = [float(np.mean(matched(estimate["maps"], made.maps).correlations)) for estimate in found]
            above = np.mean([estimate["above_noise"][0] for estimate in found])
            took = (perf_counter() - start) / wanted
            print(
                f"  {which:18s} eps {epsilon:4g}: {spread(index)}; {spread(maps)}; {above:.1f} of 20 above the noise "
                f"({took:.0f} s a run)",
                flush=True,
            )


# ---- real brains --------------------------------------------------------------------------------------------------


def standardised(rows: Floats) -> Floats:
    spread = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def abide(path: Path, seeds: int) -> None:
    with np.load(path) as stored:
        q, offsets, scale, mean = (stored[key] for key in ("q", "offsets", "scale", "mean"))
        site, seconds, labels = stored["site"], stored["tr_seconds"], stored["site_names"]
    everyone = [q[:, a:b].T * scale[i] + mean[i] for i, (a, b) in enumerate(pairwise(offsets))]
    everyone = [standardised(rows) for rows in everyone]  # once, what within="standardise" does in every round
    sites = {}
    for s, label in enumerate(labels):
        who = np.flatnonzero(site == s)
        sites[str(label)] = Units.from_runs([[everyone[i]] for i in who], [[float(seconds[i])] for i in who])
    template = dict(sites)
    held = template.pop("PITT")
    clean = ICAProgram(columns=names(200), n_components=30, per_recording="none", n_passes=1)
    public = private(clean, {"a": held, "b": held}, 1.0, 0, 0, "non-private")["maps"].T
    print(f"ABIDE, C=6, delta=1e-5, {seeds} seeds: Amari index; map correlation, against the same without noise")
    for which, studied, basis in (("private PCA", sites, None), ("30 maps of one site, held out", template, public)):
        for solver in ("second-order", "fixed-point"):
            for components in (5, 10):
                algorithm = ICAProgram(
                    columns=names(200),
                    n_components=components,
                    per_recording="none",
                    band=(0.009, 0.11),
                    solver=solver,
                    basis=basis,
                )
                truth = private(algorithm, studied, 1.0, 6, 0, "non-private")
                for epsilon in (1.0, 2.0, 4.4, 10.0):
                    wanted = seeds if solver == "second-order" else max(1, seeds // 2)  # the other takes long
                    found = [private(algorithm, studied, epsilon, 6, seed) for seed in range(wanted)]
                    index = [amari_index(estimate["unmixing"], truth["maps"].T) for estimate in found]
                    maps = [float(np.mean(matched(estimate["maps"], truth["maps"]).correlations)) for estimate in found]
                    print(
                        f"  {which}, {solver}, R={components}, eps {epsilon:g}: {spread(index)}; {spread(maps)}",
                        flush=True,
                    )


# ---- time ---------------------------------------------------------------------------------------------------------


def speed() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1024 * 250, 20))
    units = Units(rows, np.arange(0, len(rows) + 1, 250))
    W = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    scores: tuple[Score, ...] = ("tanh", "volatility", "both")
    for score in scores:
        statistic = UnmixingScore(columns=20, unmixing=W, scores=(score,) * 20)
        ratios, bares = [], []
        for _ in range(15):
            start = process_time()
            np.tanh(rows).T @ rows
            bare = process_time() - start
            start = process_time()
            statistic.total(units)
            ratios.append((process_time() - start) / bare)
            bares.append(bare)
        middle, low, high = float(np.median(ratios)), min(ratios), max(ratios)
        print(
            f"one round, {score}: {middle:.2f} ({low:.2f} to {high:.2f}) times a bare tanh and product "
            f"({1e3 * float(np.median(bares)):.0f} ms)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rotation", "brains", "abide", "speed"])
    parser.add_argument("data", nargs="?", type=Path, help="the file of abide")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--people", type=int, default=1024)
    parser.add_argument("--layout", default="even", choices=["even", "random", "overlapping"])
    parser.add_argument("--frequencies", type=int, nargs="+", default=[12, 0])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[np.inf, 1.0, 2.0, 4.4, 8.0])
    parser.add_argument("--passes", type=int, default=2)
    asked = parser.parse_args()
    if asked.what == "rotation":
        rotation(asked.seeds)
    elif asked.what == "brains":
        whole(asked.seeds, asked.people, asked.layout, asked.passes, asked.frequencies, asked.epsilons)
    elif asked.what == "abide":
        if asked.data is None:
            parser.error("abide needs its file")
        abide(asked.data, asked.seeds)
    else:
        speed()


if __name__ == "__main__":
    main()
