"""Shared code of the capeAGN figures (mixtures, topics): error of components against epsilon, records and delta.

Every method runs at the same exact epsilon, and at its own calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.algorithms import Algorithm, Estimate
from zerosum.arrays import Floats
from zerosum.errors import BadParameter
from zerosum.kernel.request import PrivateSum
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.figures.experiment import (
    SHOWN_SETTING,
    SHOWN_SPREAD,
    Experiment,
    Run,
    Table,
    averages,
    curve,
    run_count,
)
from zerosum.papers.figures.panels import subplots
from zerosum.papers.methods import tensor
from zerosum.papers.rehearsal import PublicData

# Sites and colluding sites, as in the paper.
SITES, COLLUDERS = 5, 1
EPSILON, DELTA = 1.0, 0.01  # values where they are not varied
# Name of Zerosum's method.
OURS = "zerosum"
# Columns of a row.
COLUMNS = ("data", "method", "calibration", "epsilon", "exact_epsilon", "delta", "records", "seed", "error")
DATA = {"d10": (10, 5), "d50": (50, 10)}  # data set to (columns, components)
_RECORDS, _SEEDS = 10_000, 10  # records per site, where they are not varied, and seeds of a full run

Swept = Literal["epsilon", "records", "delta"]


@dataclass(frozen=True)
class Point:
    """One point of a sweep."""

    epsilon: float
    delta: float
    records: int  # at each site


Error = tuple[str, str, float, float]  # method, calibration, exact epsilon, error
# (columns, components, point, seed) to the errors of all methods
Errors = Callable[[int, int, Point, int], list[Error]]


def experiments(prefix: str, what: tuple[str, str], errors: Errors) -> tuple[Experiment, ...]:
    """The three figures of one model. `what` is its name and the name of its components."""
    names: dict[Swept, str] = {"epsilon": "epsilon", "records": "samples", "delta": "delta"}
    return tuple(
        Experiment(
            name=f"{prefix}-{name}",
            carry=partial(_carry, errors, x),
            draw=partial(draw, x=x, what=what),
            summary=summary,
            shown=SHOWN_SETTING | {"delta": "delta", "records": "records", "error": "error"} | SHOWN_SPREAD,
            data=tuple(DATA),
        )
        for x, name in names.items()
    )


def published_errors(
    program: Algorithm,
    sites: Sequence[Floats],
    claims: tensor.Pair,
    error: Callable[[Estimate], float],
    point: Point,
    seed: int,
) -> list[Error]:
    """The program without noise, and every published method at both calibrations.

    Parameters
    ----------
    program : Algorithm
        `cape-agn-mixture` or `cape-agn-topics`.
    sites : sequence of arrays
        The rows of each site.
    claims : pair of float
        The paper's sensitivities.
    error : callable
        The distance of an estimate from the truth.
    point : Point
        Budget and size.
    seed : int
        Seed of the noise.
    """
    data, alone = PublicData(sites), PublicData(sites[:1])
    statistics = [request.statistic for request in program.requests(Adjacency.REPLACE_ONE)]
    names = [statistic.name for statistic in statistics]
    second, third = (statistic.sensitivity(Adjacency.REPLACE_ONE) for statistic in statistics)
    rows: list[Error] = [("non-private", "none", float("inf"), error(data.rehearse(program)))]
    for method, scheme in tensor.SCHEMES.items():
        claimed = tensor.published_noise(method, point.epsilon, point.delta, claims)
        worth = tensor.exact_epsilon(method, claimed, point.delta, (second, third), sites=SITES, colluders=COLLUDERS)
        fair = tensor.exact_noise(method, point.epsilon, point.delta, (second, third), sites=SITES, colluders=COLLUDERS)
        for which, noise, true in (("exact", fair, point.epsilon), ("published", claimed, worth)):
            # the same draws for both calibrations
            rng = np.random.default_rng([13, seed])
            if method == "avn":
                estimate = tensor.avn(program, alone.sites[0], noise, rng)
            else:
                taus = dict(zip(names, noise, strict=True))
                held = alone if method in tensor.ONE_SITE_METHODS else data
                estimate = held.rehearse(program, scheme, partial(_tau, taus), rng)
            rows.append((method, which, true, error(estimate)))
    return rows


def _tau(taus: dict[str, float], request: PrivateSum) -> float:
    """The noise of a request, by the name of its statistic."""
    return taus[request.statistic.name]


def points(x: Swept, full: bool) -> list[Point]:
    """Points of a sweep along `x`: the papers' in a full run, fewer in a quick one."""
    if x == "epsilon":
        swept = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if full else (0.1, 0.5, 1.0, 3.0)
        sizes = (2000, _RECORDS) if full else (_RECORDS,)
        return [Point(epsilon, DELTA, records) for records in sizes for epsilon in swept]
    if x == "records":
        counts = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000) if full else (1000, 3000, 10_000)
        return [Point(EPSILON, DELTA, records) for records in counts]
    deltas = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if full else (1e-6, 1e-4, 1e-2)
    return [Point(EPSILON, delta, _RECORDS) for delta in deltas]


def _carry(errors: Errors, x: Swept, run: Run) -> Table:
    """Run all methods at all points and seeds."""
    if run.data not in DATA:
        raise BadParameter(f"unknown data {run.data!r}; there are {', '.join(DATA)}")
    runs = run_count(run.seeds, _SEEDS if run.full else 2)
    where: Sequence[Point] = points(x, run.full)
    rows: Table = []
    run.on_step(0, len(where) * runs)
    for at, point in enumerate(where):
        for seed in range(runs):
            for method, which, true, error in errors(*DATA[run.data], point, seed):
                asked = (point.epsilon, true, point.delta, point.records, seed, error)
                rows.append(dict(zip(COLUMNS, (run.data, method, which, *asked), strict=True)))
            run.on_step(at * runs + seed + 1, len(where) * runs)
    return rows


def summary(rows: Table) -> Table:
    """Mean and standard deviation of the error over seeds, one row per setting."""
    # the exact epsilon may vary slightly by seed, with the largest norm
    return averages(rows, ["error", "exact_epsilon"])


# Method to label and colour.
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
    x: Swept,
    what: tuple[str, str],
) -> None:
    """Two panels: all methods at the same exact epsilon, and at the published calibration."""
    most = max(int(row["records"]) for row in rows) if rows else 0
    lines = summary([row for row in rows if x == "records" or int(row["records"]) == most])
    figure, panels = subplots(1, 2, figsize=(12.5, 6.4), sharey=True)
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
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    panels[0].set_ylabel(f"mean distance to the true {what[1]}")
    panels[0].set_title("every method at the same exact ε", loc="left", fontsize=11)
    panels[1].set_title("the paper's own calibration", loc="left", fontsize=11)
    data = str(rows[0]["data"]) if rows else ""
    figure.suptitle(f"{what[0]}, {data}: {SITES} sites, {COLLUDERS} colluding", fontsize=13)
    figure.savefig(path, dpi=120)
