"""Figures 3 and 5 (top) of the capeAGN paper: errors of a mixture's means against epsilon, records and delta.

Five sites, one of them colluding; D = 10 with K = 5 components and D = 50 with K = 10, of variance 0.05, means on
the unit sphere. Every published method runs twice: at the same exact epsilon as Zerosum, and at its own calibration,
with the epsilon that this is truly worth beside it. They are given the largest norm of the rows and the variance, which
is not private; Zerosum is given a ball of radius 10 and pays for the rest.

The metric is the mean distance to the true means, matched by optimal assignment (the paper takes the nearest).

Tested in tests/papers/figures/test_mixture_figures.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.algorithms import Mixture
from zerosum.algorithms.metrics import component_error
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.papers.figures.experiment import Carry, Experiment, OnStep, Table, averages, curve, quiet
from zerosum.papers.figures.trial import run_trial
from zerosum.papers.methods import tensor as published

SITES, COLLUDERS = 5, 1
EPSILON, DELTA, VARIANCE = 1.0, 0.01, 0.05  # where they do not vary
BALL = 10.0  # public, and loose on purpose
OURS = "zerosum"
COLUMNS = ("data", "method", "calibration", "epsilon", "exact_epsilon", "delta", "records", "seed", "error")
_DATA = {"d10": (10, 5), "d50": (50, 10)}
_RECORDS, _SEEDS = 10_000, 10  # at a site, unless they vary


@dataclass(frozen=True)
class Made:
    """A mixture and its rows, by site."""

    means: Floats
    sites: list[Floats]

    @classmethod
    def drawn(cls, columns: int, count: int, records: int, seed: int) -> Made:
        """Equal weights, means on the unit sphere."""
        rng = np.random.default_rng([7, seed])
        means = published.random_vectors(columns, count, seed)
        which = rng.choice(count, SITES * records)
        rows = means[which] + np.sqrt(VARIANCE) * rng.normal(size=(SITES * records, columns))
        return cls(means, list(np.array_split(rows, SITES)))


@dataclass(frozen=True)
class Point:
    epsilon: float
    delta: float
    records: int  # at each site


def ours(sites: Sequence[Floats], K: int, epsilon: float, delta: float, seed: int) -> Floats:
    """Zerosum's means: the defaults, each record a unit, with noise from a seed."""
    columns = tuple(f"x{i}" for i in range(sites[0].shape[1]))
    named = {f"site {s}": rows for s, rows in enumerate(sites, 1)}
    algorithm = Mixture(columns=columns, n_components=K, clip=BALL)
    result = run_trial(algorithm, named, epsilon=epsilon, delta=delta, colluders=COLLUDERS, unit="record", seed=seed)
    return np.asarray(result.estimate["means"])


def published_errors(made: Made, point: Point, seed: int) -> list[tuple[str, str, float, float]]:
    """Every published method on rows divided by their largest norm: method, calibration, exact epsilon, error."""
    K, D = made.means.shape
    largest = max(float(np.max(np.linalg.norm(rows, axis=1))) for rows in made.sites)
    sites, variance = [rows / largest for rows in made.sites], VARIANCE / largest**2

    def error(found: Floats) -> float:
        return component_error(largest * found, made.means)

    rows = [
        ("non-private", "none", float("inf"), error(published.non_private(sites, K, variance, seed))),
        ("random", "none", 0.0, component_error(published.random_vectors(D, K, 1000 + seed), made.means)),
    ]
    asked = (point.epsilon, point.delta)
    for method in published.METHODS:
        exact = published.noises_for_exact(method, *asked, SITES, COLLUDERS, point.records, D, variance)
        claimed = published.published_noises(method, *asked, point.records, D, variance)
        worth = published.exact_epsilon(method, *asked, SITES, COLLUDERS, D, variance)
        for which, noises, true in (("exact", exact, point.epsilon), ("published", claimed, worth)):
            found = published.private(method, sites, K, variance, noises, seed)
            rows.append((method, which, true, error(found)))
    return rows


def _sweep(data: str, points: Sequence[Point], seeds: int | None, full: bool, on_step: OnStep) -> Table:
    if data not in _DATA:
        raise BadParameter(f"unknown data {data!r}; there are {', '.join(_DATA)}")
    runs = seeds if seeds is not None else _SEEDS if full else 2
    if runs < 1:
        raise BadParameter(f"at least one seed is needed, got {runs}")
    D, K = _DATA[data]
    rows: Table = []
    on_step(0, len(points) * runs)
    for at, point in enumerate(points):
        for seed in range(runs):
            made = Made.drawn(D, K, point.records, seed)
            mine = ours(made.sites, K, point.epsilon, point.delta, seed)
            found = [(OURS, "exact", point.epsilon, component_error(mine, made.means))]
            for method, which, true, error in found + published_errors(made, point, seed):
                asked = (point.epsilon, true, point.delta, point.records, seed, error)
                rows.append(dict(zip(COLUMNS, (data, method, which, *asked), strict=True)))
            on_step(at * runs + seed + 1, len(points) * runs)
    return rows


# ---- the three experiments -------------------------------------------------------------------------------------------


def mog_epsilon(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against epsilon (figure 3, top)."""
    swept = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if full else (0.1, 0.5, 1.0, 3.0)
    sizes = (2000, _RECORDS) if full else (_RECORDS,)
    points = [Point(epsilon, DELTA, records) for records in sizes for epsilon in swept]
    return _sweep(data, points, seeds, full, on_step)


def mog_samples(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against the records of a site (figure 3, bottom)."""
    swept = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000) if full else (1000, 3000, 10_000)
    return _sweep(data, [Point(EPSILON, DELTA, records) for records in swept], seeds, full, on_step)


def mog_delta(
    data: str, folder: Path | None = None, *, full: bool = False, seeds: int | None = None, on_step: OnStep = quiet
) -> Table:
    """Errors against delta (figure 5, top)."""
    swept = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if full else (1e-6, 1e-4, 1e-2)
    return _sweep(data, [Point(EPSILON, delta, _RECORDS) for delta in swept], seeds, full, on_step)


# ---- what comes of it ------------------------------------------------------------------------------------------------


def summary(rows: Table) -> Table:
    """Mean and standard deviation of the error over seeds, a row for every other setting."""
    return averages(rows, ["error", "exact_epsilon"])  # the latter follows the largest norm: a little by seed


_LOOKS: dict[str, tuple[str, str]] = {
    OURS: ("Zerosum", "#0b7a75"),
    "cape-broadcast": ("capeAGN, secure aggregation", "#d9843b"),
    "cape-helper": ("capeAGN, noise dealer", "#b5532a"),
    "conv": ("conv", "#8057b8"),
    "agn": ("one site alone, AGN", "#b83b6f"),
    "avn": ("one site alone, AVN", "#3b6fd9"),
}


def draw(
    rows: Table,
    path: Path,
    x: Literal["epsilon", "records", "delta"] = "epsilon",
    what: tuple[str, str] = ("Mixtures of Gaussians", "means"),
) -> None:
    """Two panels: all methods at the same exact epsilon, and the published calibration, named for what it asked."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    most = max(int(row["records"]) for row in rows) if rows else 0
    lines = summary([row for row in rows if x == "records" or int(row["records"]) == most])
    figure, panels = plt.subplots(1, 2, figsize=(12.5, 5.2), sharey=True, constrained_layout=True)
    for axes, calibration in zip(panels, ("exact", "published"), strict=True):
        for method, (label, colour) in _LOOKS.items():
            chosen = "exact" if method == OURS else calibration
            shown = [line for line in lines if (line["method"], line["calibration"]) == (method, chosen)]
            shown.sort(key=lambda line: float(line[x]))
            if shown:
                if chosen == "published":
                    worth = [float(line["exact_epsilon"]) for line in shown]
                    label = f"{label}: true ε {min(worth):.2g} to {max(worth):.2g}"
                curve(axes, shown, x, "error", label=label, colour=colour, bold=method == OURS)
        for method, style in (("non-private", "--"), ("random", ":")):
            flat = sorted((line for line in lines if line["method"] == method), key=lambda line: float(line[x]))
            axes.plot([line[x] for line in flat], [line["error"] for line in flat], color="black", lw=1, ls=style,
                      label=method)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel({"epsilon": "asked ε", "records": "records at each site", "delta": "δ"}[x])
        axes.grid(color="#e5e8eb")
        axes.legend(fontsize=8)
    panels[0].set_ylabel(f"mean distance to the true {what[1]}")
    panels[0].set_title("every method at the same exact ε", loc="left", fontsize=11)
    panels[1].set_title("the paper's own calibration", loc="left", fontsize=11)
    data = str(rows[0]["data"]) if rows else ""
    figure.suptitle(f"{what[0]}, {data}: {SITES} sites, {COLLUDERS} colluding", fontsize=13)
    figure.savefig(path, dpi=120)
    plt.close(figure)


_SWEPT: dict[str, tuple[Carry, Literal["epsilon", "records", "delta"]]] = {
    "otd-mog-epsilon": (mog_epsilon, "epsilon"),
    "otd-mog-samples": (mog_samples, "records"),
    "otd-mog-delta": (mog_delta, "delta"),
}
EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=carry,
        draw=partial(draw, x=x),
        summary=summary,
        shown={
            "method": "method",
            "calibration": "calibration",
            "asked eps": "epsilon",
            "exact eps": "exact_epsilon",
            "delta": "delta",
            "records": "records",
            "error": "error",
            "spread": "spread",
            "runs": "runs",
        },
        data=tuple(_DATA),
    )
    for name, (carry, x) in _SWEPT.items()
)
