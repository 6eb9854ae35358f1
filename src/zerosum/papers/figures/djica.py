"""Figures 1 and 2b of DP-djICA: autocorrelations of its components, and its gain index on pooled data of 512 people.

Synthetic fMRI as in `zerosum.papers.figures.ica`. Figure 1 of the paper shows the autocorrelation of four estimated
time courses as evidence that they are independent. The time courses of the data model are white, and so is every
mixture of them: an autocorrelation cannot tell a mixture from a source. The figure here has the same plot for mixtures
that nothing has separated, and beside it a number that can tell, the rank correlation between the squares of two
components (near 0 if they are independent; squares, because whitened components have no correlation themselves).

In figure 2b one party holds all data. DP-djICA then sends nothing from site to site, and its Laplace noise is the same.
Zerosum has the scheme `pooled` there, at an exact total epsilon for a person.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from zerosum.algorithms.metrics import amari_index
from zerosum.arrays import Floats
from zerosum.data.fmri import Brains, make_fmri
from zerosum.papers.figures.experiment import (
    SHOWN_SETTING,
    SHOWN_SPREAD,
    Experiment,
    Row,
    Run,
    Table,
    averages,
    curve,
    run_count,
)
from zerosum.papers.figures.ica import FULL, QUICK, USABLE, Size
from zerosum.papers.figures.panels import subplots
from zerosum.papers.figures.separating import (
    NOT_PRIVATE,
    OPEN,
    OPEN_TUNED,
    OURS_ALONE,
    Separating,
    Trial,
)

POOLED = 512  # people of the paper's pooled data
ROUND_EPSILON = 1.0  # of the paper's figure 1
DELTA = 1e-5  # of Zerosum's total
LAGS, SHOWN = 30, 4  # lags and components of the autocorrelations
MIXTURES, SOURCES = "mixtures", "sources"
_AUTOCORRELATION = "autocorrelation"


# ---- figure 2b ------------------------------------------------------------------------------------------------------


def pooled_epsilon(run: Run) -> Table:
    """Gain index against epsilon for data of 512 people at one party (figure 2b)."""
    size = FULL if run.full else QUICK
    runs = run_count(run.seeds, size.seeds)
    swept = (0.01, 0.1, 1.0, 10.0, 100.0, 1e4) if run.full else (0.1, 1.0, 100.0)
    totals = (0.5, 1.0, 2.0, 4.0, 8.0) if run.full else (1.0, 4.0)
    plan = [
        *(Trial(method) for method in (OPEN, OPEN_TUNED)),
        *(Trial(NOT_PRIVATE, "not private", epsilon) for epsilon in swept),
        *(Trial(OURS_ALONE, "exact", total, DELTA) for total in totals),
    ]
    people = min(POOLED, size.people)
    rows: Table = []
    run.on_step(0, runs * len(plan))
    for seed in range(runs):
        study = _study(size, people, seed, sites=1)
        setting = Separating(study, size.rounds)
        for trial in plan:
            separated = setting.separate(trial, seed)
            rows.append(
                {
                    "method": trial.method,
                    "calibration": trial.calibration,
                    "epsilon": trial.epsilon,
                    "exact_epsilon": separated.exact_epsilon,
                    "people": people,
                    "seed": seed,
                    "gain_index": separated.amari_index(study.maps),
                    "rounds": separated.rounds,
                }
            )
            run.on_step(len(rows), runs * len(plan))
    return rows


def _study(size: Size, people: int, seed: int, sites: int) -> Brains:
    """Synthetic study of a size."""
    return make_fmri(people, sites=sites, components=size.components, points=size.points, side=size.side, seed=seed)


def pooled_summary(rows: Table) -> Table:
    """Means over seeds."""
    return averages(rows, ["gain_index", "rounds"])


def draw_pooled(rows: Table, path: Path) -> None:
    """DP-djICA against the epsilon of a round, Zerosum against its total, and lines for djICA without noise."""
    lines = pooled_summary(rows)
    figure, axes = subplots(figsize=(8.5, 6.2))
    looks = {
        NOT_PRIVATE: ("DP-djICA, ε asked of a round: no ε holds", "#c0392b"),
        OURS_ALONE: ("Zerosum, trusted coordinator, exact total ε of a person", "#0b7a75"),
    }
    for method, (label, colour) in looks.items():
        shown = [line for line in lines if line["method"] == method]
        curve(axes, shown, "epsilon", "gain_index", label=label, colour=colour, bold=method == OURS_ALONE)
    for method, label, style in ((OPEN, "djICA, the papers' step", (0, (1, 2))), (OPEN_TUNED, "djICA, our step", "--")):
        (bare,) = (line for line in lines if line["method"] == method)
        axes.axhline(float(bare["gain_index"]), color="black", lw=1, ls=style, label=f"{label}, without noise")
    lowest = min(float(line["gain_index"]) for line in lines)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2, 1)
    axes.axhspan(lowest / 2, USABLE, color="#0b7a75", alpha=0.07, lw=0)
    axes.set_xlabel("ε")
    axes.set_ylabel("normalised gain (Amari) index (shaded: usable)")
    axes.grid(color="#e5e8eb")
    axes.set_title(f"Private ICA of made-up fMRI of {rows[0]['people']} people at one party", fontsize=11)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    figure.savefig(path, dpi=120)


# ---- figure 1 -------------------------------------------------------------------------------------------------------


def autocorrelation(courses: Floats, lags: int = LAGS) -> Floats:
    """Autocorrelation of a time course at lags 0 to `lags`, the mean over people, shape (lags + 1,).

    Parameters
    ----------
    courses : array of shape (people, T)
        The time course of each person.
    """
    centred = courses - courses.mean(axis=1, keepdims=True)
    products = [np.sum(centred[:, lag:] * centred[:, : centred.shape[1] - lag]) for lag in range(lags + 1)]
    return np.asarray(np.array(products) / products[0])


def dependence(courses: Floats) -> float:
    """Mean size of the rank correlation between the squares of two components, over all pairs.

    Parameters
    ----------
    courses : array of shape (people, T, R)
        Time courses.
    """
    flat = courses.reshape(-1, courses.shape[2])
    # Ranks, since the moments of squares of heavy-tailed values are unstable.
    ranks = np.argsort(np.argsort(flat**2, axis=0), axis=0).astype(np.float64)
    correlations = np.abs(np.corrcoef(ranks.T))
    return float(np.mean(correlations[~np.eye(len(correlations), dtype=bool)]))


def independence(run: Run) -> Table:
    """Autocorrelations of the estimated time courses (figure 1), and of mixtures that nothing has separated.

    There is one row for each method, component and seed. The last column has the values at all lags.
    """
    size = FULL if run.full else QUICK
    # A curve is a mean over people already; more runs add rows for further seeds.
    runs = run_count(run.seeds, 1)
    plan = [
        Trial(OPEN_TUNED),
        Trial(OPEN),
        Trial(NOT_PRIVATE, "not private", ROUND_EPSILON),
    ]
    rows: Table = []
    each = len(plan) + 2
    run.on_step(0, runs * each)
    for seed in range(runs):
        study = _study(size, size.people, seed, sites=4)
        setting = Separating(study, size.rounds)
        truth = study.maps
        sources = np.asarray(study.sources[0], dtype=np.float64)
        rng = np.random.default_rng([seed, len(truth)])
        # An orthogonal mixture of white sources is white: second moments cannot tell it from the sources.
        mixing = np.linalg.qr(rng.standard_normal((len(truth), len(truth))))[0]
        for done, (method, gains) in enumerate(((SOURCES, np.eye(len(truth))), (MIXTURES, mixing)), 1):
            rows += _courses(method, amari_index(gains, np.eye(len(truth))), math.inf, seed, sources @ gains.T)
            run.on_step(seed * each + done, runs * each)
        for done, trial in enumerate(plan, 3):
            result = setting.separate(trial, seed)
            # Volumes are sources times maps.
            estimated = sources @ (truth @ result.unmixing.T)
            rows += _courses(trial.method, result.amari_index(truth), trial.epsilon, seed, estimated)
            run.on_step(seed * each + done, runs * each)
    return rows


def _courses(method: str, index: float, epsilon: float, seed: int, courses: Floats) -> Table:
    """One row for each of the first components; `courses` has shape (people, T, R)."""
    apart = dependence(courses)
    rows: Table = []
    for component in range(min(SHOWN, courses.shape[2])):
        values = autocorrelation(courses[:, :, component])
        row: Row = {
            "method": method,
            "epsilon": epsilon,
            "gain_index": index,
            "dependence": apart,
            "largest": float(np.max(np.abs(values[1:]))),
            "seed": seed,
            "component": component,
        }
        rows.append(row | {_AUTOCORRELATION: " ".join(f"{value:.4f}" for value in values)})
    return rows


def independence_summary(rows: Table) -> Table:
    """One row per method: the means over components and seeds."""
    short = [{name: value for name, value in row.items() if name not in (_AUTOCORRELATION, "seed")} for row in rows]
    return averages(short, ["largest", "gain_index", "dependence"], over="component")


_ROWS = {
    SOURCES: "true time courses",
    MIXTURES: "mixtures, not separated",
    OPEN_TUNED: "djICA, our step",
    OPEN: "djICA, the papers' step",
    NOT_PRIVATE: "DP-djICA, ε = 1 a round",
}


def draw_independence(rows: Table, path: Path) -> None:
    """One row of autocorrelations per method, one column per component."""
    first = [row for row in rows if row["seed"] == 0]
    columns = max(int(row["component"]) for row in first) + 1
    figure, panels = subplots(
        len(_ROWS), columns, figsize=(2.6 * columns + 2.4, 9.0), sharex=True, sharey=True, squeeze=False,
    )  # fmt: skip
    for line, (method, heading) in zip(panels, _ROWS.items(), strict=True):
        own = [row for row in first if row["method"] == method]
        for axes, row in zip(line, own, strict=True):
            values = [float(value) for value in str(row[_AUTOCORRELATION]).split()]
            axes.vlines(range(len(values)), 0, values, color="#0b7a75", lw=1.6)
            axes.axhline(0, color="black", lw=0.6)
            axes.set_ylim(-0.2, 1.05)
        line[0].set_ylabel(heading, fontsize=9)
        line[-1].text(
            0.97, 0.9,
            f"gain index {float(own[0]['gain_index']):.2f}\ndependence of squares {float(own[0]['dependence']):.3f}",
            transform=line[-1].transAxes, fontsize=8.5, ha="right", va="top",
        )  # fmt: skip
    for axes, number in zip(panels[0], range(1, columns + 1), strict=True):
        axes.set_title(f"component {number}", fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel("lag, volumes")
    figure.suptitle("Autocorrelation of time courses: the same for sources and for mixtures", fontsize=13)
    figure.savefig(path, dpi=110)


EXPERIMENTS = (
    Experiment(
        "ica-pooled",
        pooled_epsilon,
        draw_pooled,
        pooled_summary,
        shown=SHOWN_SETTING | {"people": "people", "gain index": "gain_index"} | SHOWN_SPREAD,
        brief_seeds=1,
    ),
    Experiment(
        "ica-autocorrelation",
        independence,
        draw_independence,
        independence_summary,
        shown={
            "method": "method",
            "asked eps": "epsilon",
            "largest at a lag": "largest",
            "dependence of squares": "dependence",
            "gain index": "gain_index",
        },
    ),
)
