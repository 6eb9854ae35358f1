"""Figures 1a-b, 2a-b, 3, 4 and 7a of capeDJICA (2 of DP-djICA): private ICA of synthetic fMRI, as published and by
Zerosum.

Four sites, one of them colluding; 20 GARCH time courses of 250 volumes per person; 30 x 30 maps. The metric is the
normalised Amari index, 0 at best; below 0.1 is considered usable. The papers' methods run twice: at the same exact
total epsilon as Zerosum, and as published, with the exact epsilon for a person. `zerosum.papers.figures.separating`
states what they receive without cost, and how a quick run uses fewer rounds.

Zerosum uses a public basis, the 64 lowest cosines of the image. In full runs it also finds its subspace from all 900
voxels by private PCA (`zerosum-pca`), which holds all volumes in memory. A method with `-tuned` takes a step of 1 for
100 rounds, our choice for these data: with their own step the papers' methods make little progress in 1000 rounds, with
or without noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.arrays import Floats
from zerosum.data.fmri import make_fmri
from zerosum.papers.figures.experiment import Carry, Experiment, Row, Run, Table, averages, curve, run_count
from zerosum.papers.figures.panels import Panel, aligned, draw_panels, subplots
from zerosum.papers.figures.separating import (
    CAPE_TUNED,
    NOT_PRIVATE,
    OPEN,
    OPEN_TUNED,
    OURS,
    OURS_ALONE,
    OURS_OPEN,
    OURS_PCA,
    PAPERS_ROUNDS,
    Separated,
    Separating,
    Trial,
)
from zerosum.papers.methods import ica as published
from zerosum.papers.methods.ica_costs import SCHEMES

EPSILON, ROUND_EPSILON, DELTA = 2.0, 0.5, 1e-5  # values where they are not varied; the last two are the papers'
# Amari index below which a result is considered usable.
USABLE = 0.1
TRUTH, MAP = "truth", "map"  # method name of the true maps, and the column with a map's values
COLUMNS = (
    "method",
    "calibration",
    "rounds",
    "epsilon",
    "exact_epsilon",
    "with_reduction",
    "delta",
    "people",
    "seed",
    "amari_index",
    "correlation",
)


@dataclass(frozen=True)
class Size:
    """Size of a run."""

    people: int = 1024
    components: int = 20
    points: int = 250
    side: int = 30
    rounds: int = PAPERS_ROUNDS
    seeds: int = 10
    slow: bool = True  # whether slow methods run at all (private PCA), or at every point (DP-djICA)

    def setting(self, people: int, seed: int, per_axis: int = 8) -> Separating:
        """Synthetic study of this size."""
        study = make_fmri(people, components=self.components, points=self.points, side=self.side, seed=seed)
        return Separating(study, self.rounds, per_axis)


FULL = Size()
QUICK = Size(rounds=20, seeds=2, slow=False)


@dataclass(frozen=True)
class _Point:
    """One point of a sweep."""

    epsilon: float = EPSILON  # total, for the exact calibration
    round_epsilon: float = ROUND_EPSILON  # of one round, for the published calibration
    delta: float = DELTA
    people: int = FULL.people
    round_delta: float = published.ROUND_DELTA


def _references() -> list[Trial]:
    """Trials without privacy."""
    return [Trial(method) for method in (OURS_OPEN, OPEN, OPEN_TUNED)]


def _trials(point: _Point, private_pca: bool, wishart: bool) -> list[Trial]:
    """Private trials at one point."""
    paid = Trial(OURS, "exact", point.epsilon, point.delta)
    as_published = Trial(OURS, "published", point.round_epsilon, point.delta, point.round_delta)
    own = [OURS, *([OURS_PCA] if private_pca and point.people <= FULL.people else [])]
    return [
        *[replace(paid, method=method) for method in (*own, *SCHEMES, CAPE_TUNED)],
        *[replace(as_published, method=method) for method in SCHEMES],
        *([replace(as_published, method=NOT_PRIVATE, calibration="not private")] if wishart else []),
    ]


def _row(trial: Trial, people: int, seed: int, result: Separated, setting: Separating) -> Row:
    """One row of the table."""
    truth = setting.study.maps
    values = (
        trial.method,
        trial.calibration,
        result.rounds,
        trial.epsilon,
        result.exact_epsilon,
        result.with_reduction,
        trial.delta,
        people,
        seed,
        result.amari_index(truth),
        result.correlation(truth),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _sweep(points: Sequence[_Point], size: Size, run: Run) -> Table:
    """Every method at every point, once per seed. The seed determines the data too."""
    plan: list[tuple[int, int, Trial]] = []
    for seed in range(run_count(run.seeds, size.seeds)):
        for people in dict.fromkeys(point.people for point in points):
            here = [point for point in points if point.people == people]
            trials = [trial for point in here for trial in _trials(point, size.slow, size.slow or point is here[-1])]
            plan += [(seed, people, trial) for trial in (*_references(), *trials)]
    rows: Table = []
    run.on_step(0, len(plan))
    at: tuple[int, int] | None = None
    for done, (seed, people, trial) in enumerate(plan, 1):
        # Trials are ordered by seed and people, so that one study is in memory at a time.
        if at != (seed, people):
            at, setting = (seed, people), size.setting(people, seed)
        rows.append(_row(trial, people, seed, setting.separate(trial, seed), setting))
        run.on_step(done, len(plan))
    return rows


# ---- the experiments ------------------------------------------------------------------------------------------------


def ica_epsilon(run: Run, *, people: int | None = None) -> Table:
    """Amari index against epsilon (capeDJICA, figure 1a, and DP-djICA, figure 2a; with 256 `people`, figure 1b)."""
    size = FULL if run.full else QUICK
    if people is not None:
        size = replace(size, people=people)
    totals = (0.5, 1.0, 2.0, 4.0, 8.0) if run.full else (1.0, 2.0, 4.0)
    rounds = (0.05, 0.1, 0.5, 1.0, 2.0) if run.full else (0.1, 0.5, 1.0)
    points = [_Point(total, each, people=size.people) for total, each in zip(totals, rounds, strict=True)]
    return _sweep(points, size, run)


def ica_subjects(run: Run, *, round_epsilon: float = ROUND_EPSILON) -> Table:
    """Amari index against the number of people at all sites (capeDJICA, figure 2a; with a larger epsilon of a round,
    2b)."""
    size = FULL if run.full else QUICK
    parts = (8, 4, 2, 1) if run.full else (4, 2, 1)
    points = [_Point(round_epsilon=round_epsilon, people=size.people // part) for part in parts]
    return _sweep(points, size, run)


def ica_delta(run: Run) -> Table:
    """Amari index against delta, which also enters the published noise of a round (capeDJICA, figure 7a)."""
    size = FULL if run.full else QUICK
    swept = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if run.full else (1e-7, 1e-5, 1e-3)
    points = [_Point(delta=delta, people=size.people, round_delta=delta) for delta in swept]
    return _sweep(points, size, run)


def ica_maps(run: Run) -> Table:
    """Maps found by the methods (capeDJICA, figure 3; its figure 4 varies capeDJICA alone), one row per map.

    The last column has the values of a map, matched to the truth in order and sign, with largest value 1. The public
    basis has 12 x 12 cosines here, since 8 x 8 blur maps this small.
    """
    size = FULL if run.full else QUICK
    setting = size.setting(size.people, 0, per_axis=min(12, size.side))
    truth = setting.study.maps
    exact, asked = partial(Trial, calibration="exact", epsilon=EPSILON, delta=DELTA), (ROUND_EPSILON, DELTA)
    plan = [
        Trial(OURS_OPEN),
        exact(OURS),
        *([exact(OURS_PCA)] if size.slow else []),
        exact(OURS_ALONE),
        Trial(OPEN),
        exact("cape-djica"),
        Trial("cape-djica", "published", *asked),
        Trial("single-site", "published", *asked),
        Trial(NOT_PRIVATE, "not private", *asked),
    ]
    run.on_step(0, len(plan))
    true = Separated(np.asarray(np.linalg.pinv(truth.T), dtype=np.float64), truth, 0, math.inf, math.inf)
    rows = _map_rows(_row(Trial(TRUTH), size.people, 0, true, setting), truth, truth)
    for done, trial in enumerate(plan, 1):
        result = setting.separate(trial, 0)
        rows += _map_rows(_row(trial, size.people, 0, result, setting), result.maps, truth)
        run.on_step(done, len(plan))
    return rows


def ica_grid(run: Run) -> Table:
    """Maps of capeDJICA as published, for several numbers of people and epsilons of a round (capeDJICA, figure 4)."""
    size = FULL if run.full else QUICK
    counts = [size.people // part for part in ((4, 2, 1) if run.full else (4, 1))]
    rounds = (0.1, 0.5, 2.0, 10.0) if run.full else (0.5, 2.0, 10.0)
    rows: Table = []
    run.on_step(0, len(counts) * len(rounds))
    for at, people in enumerate(counts):
        setting = size.setting(people, 0)
        truth = setting.study.maps
        if not rows:
            true = Separated(np.asarray(np.linalg.pinv(truth.T), dtype=np.float64), truth, 0, math.inf, math.inf)
            rows += _map_rows(_row(Trial(TRUTH), people, 0, true, setting), truth, truth)
        for done, epsilon in enumerate(rounds, 1):
            trial = Trial("cape-djica", "published", epsilon, DELTA)
            result = setting.separate(trial, 0)
            rows += _map_rows(_row(trial, people, 0, result, setting), result.maps, truth)
            run.on_step(at * len(rounds) + done, len(counts) * len(rounds))
    return rows


def draw_grid(rows: Table, path: Path) -> None:
    """One row of maps for each number of people and epsilon of a round."""
    panels = []
    for line in maps_summary(rows):
        own = [row for row in rows if all(row[name] == line[name] for name in ("method", "people", "epsilon"))]
        maps = np.array([[float(value) for value in str(row[MAP]).split()] for row in own])
        heading, notes = "True maps", tuple[str, ...]()
        if line["method"] != TRUTH:
            heading = f"{line['people']} people, ε = {float(line['epsilon']):g} a round"
            notes = (
                _privacy(line),
                f"gain index {float(line['amari_index']):.3f}, corr. {float(line['correlation']):.2f}",
            )
        panels.append(Panel(heading, notes, maps))
    draw_panels(
        panels,
        path,
        title="Maps of capeDJICA as published",
        subtitle=f"4 sites, 1 colluding; ε is a person's exact total at δ = {DELTA:g}",
        footnote="Maps are matched to the true ones in order and sign; colours are shares of a map's largest value.",
    )


def _map_rows(about: Row, maps: Floats, truth: Floats) -> Table:
    """One row per map."""
    rows: Table = []
    for number, (own, true) in enumerate(zip(aligned(maps, truth), truth, strict=True)):
        written = " ".join(f"{value:.3f}" for value in own)
        rows.append(about | {"component": number, "correlation": float(np.corrcoef(own, true)[0, 1]), MAP: written})
    return rows


# ---- summary and pictures -------------------------------------------------------------------------------------------


def summary(rows: Table) -> Table:
    """Means over seeds and the standard deviation of the Amari index, one row per setting."""
    return averages(rows, ["amari_index", "correlation", "rounds"])  # runs may stop early


def maps_summary(rows: Table) -> Table:
    """One row per method, with the mean correlation over its maps."""
    short = [{name: value for name, value in row.items() if name != MAP} for row in rows]
    return averages(short, ["correlation"], over="component")


# Method to label and colour of its curve.
_LOOKS: dict[str, tuple[str, str]] = {
    OURS: ("Zerosum, public basis", "#0b7a75"),
    OURS_PCA: ("Zerosum, private PCA", "#57b8a5"),
    "pooled": ("trusted coordinator (pooled)", "#9aa5b1"),
    "cape-djica": ("capeDJICA", "#d9843b"),
    CAPE_TUNED: ("capeDJICA, our step", "#e8b98a"),
    "conv": ("conv", "#8057b8"),
    "single-site": ("one site alone (local DP-ICA)", "#b83b6f"),
}
# Method to label, colour and style of its horizontal line.
_LINES = {
    OPEN: ("djICA, the papers' step", "black", (0, (1, 2))),
    OPEN_TUNED: ("djICA, our step", "black", (0, (4, 2))),
    OURS_OPEN: ("Zerosum without noise", "black", "-"),
    NOT_PRIVATE: ("DP-djICA: not private", "#c0392b", (0, (4, 2, 1, 2))),
}


def draw(rows: Table, path: Path, x: Literal["epsilon", "people", "delta"] = "epsilon") -> None:
    """Two panels: all methods at the same exact epsilon, and the papers' calibration at its exact epsilon."""
    lines = summary(rows)
    figure, panels = subplots(1, 2, figsize=(13.5, 6.6), sharey=True)
    for axes, calibration in zip(panels, ("exact", "published"), strict=True):
        for method, (label, colour) in _LOOKS.items():
            chosen = "exact" if method in (OURS, OURS_PCA) else calibration
            shown = [line for line in lines if (line["method"], line["calibration"]) == (method, chosen)]
            if not shown:
                continue
            along = "exact_epsilon" if x == "epsilon" else x
            shown.sort(key=lambda line: float(line[along]))
            if x != "epsilon":
                label = f"{label}: ε = {_range(shown, 'exact_epsilon')}"
            curve(axes, shown, along, "amari_index", label=label, colour=colour, bold=method == OURS)
        for method, (label, colour, style) in _LINES.items():
            shown = sorted((line for line in lines if line["method"] == method), key=lambda line: int(line["people"]))
            heights = [float(line["amari_index"]) for line in shown]
            if not shown or (method == NOT_PRIVATE and calibration == "exact"):
                continue
            if x == "people":
                axes.plot([int(line["people"]) for line in shown], heights, color=colour, lw=1, ls=style, label=label)
            else:
                axes.axhline(float(np.mean(heights)), color=colour, lw=1, ls=style, label=label)
        axes.axhspan(0, USABLE, color="#0b7a75", alpha=0.07, lw=0)
        axes.set_xscale("log", base=2 if x == "people" or (x, calibration) == ("epsilon", "exact") else 10)
        axes.set_yscale("log")
        if x != "delta":
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.set_xlabel({"epsilon": "exact total ε, a person's", "people": "people at all sites", "delta": "δ"}[x])
        axes.grid(color="#e5e8eb")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    panels[0].set_ylabel("normalised gain (Amari) index (shaded: usable)")
    panels[0].set_title(
        "every method at the same exact ε\n(theirs are given the exact subspace and whitening)", loc="left", fontsize=11
    )
    theirs = [line for line in lines if line["calibration"] == "published"]
    panels[1].set_title(
        "the papers' calibration, at its true ε\n"
        f"(their reduction left out; with it ε = {_range(theirs, 'with_reduction')})",
        loc="left",
        fontsize=11,
    )
    rounds = max((int(line["rounds"]) for line in theirs), default=0)
    went = "" if rounds >= PAPERS_ROUNDS else f"; the papers' {PAPERS_ROUNDS} rounds compressed to {rounds}"
    figure.suptitle(f"Private ICA of made-up fMRI: 4 sites, 1 colluding{went}", fontsize=13)
    figure.savefig(path, dpi=110)


def _range(lines: Table, name: str) -> str:
    """Smallest and largest value of a column as text."""
    if not lines:
        return ""
    ends = min(float(line[name]) for line in lines), max(float(line[name]) for line in lines)
    return " to ".join(dict.fromkeys(_number(end) for end in ends))


def _number(value: float) -> str:
    """Three digits, or an integer from 1000."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


# (method, calibration) to the heading of a row of maps.
_HEADINGS = {
    (TRUTH, "none"): "True maps",
    (OURS_OPEN, "none"): "Zerosum without noise",
    (OURS, "exact"): "Zerosum",
    (OURS_PCA, "exact"): "Zerosum, private PCA",
    (OURS_ALONE, "exact"): "Zerosum, one site alone",
    (OPEN, "none"): "djICA without noise",
    ("cape-djica", "exact"): "capeDJICA at the same ε",
    ("cape-djica", "published"): "capeDJICA as published",
    ("single-site", "published"): "One site, as published",
    (NOT_PRIVATE, "not private"): "DP-djICA",
}


def draw_maps(rows: Table, path: Path) -> None:
    """One row of maps per method, with the same map in every column."""
    panels = []
    for line in maps_summary(rows):
        key = str(line["method"]), str(line["calibration"])
        alike = [row for row in rows if (row["method"], row["calibration"]) == key]
        notes = () if line["method"] == TRUTH else (_privacy(line), f"mean correlation {line['correlation']:.3f}")
        maps = np.array([np.array(str(row[MAP]).split(), dtype=np.float64) for row in alike])
        panels.append(Panel(_HEADINGS[key], notes, maps))
    rounds = max(int(row["rounds"]) for row in rows if row["method"] == "cape-djica")
    went = (
        "" if rounds >= PAPERS_ROUNDS else f", their {PAPERS_ROUNDS} rounds compressed to {rounds} of the same total ε"
    )
    draw_panels(
        panels,
        path,
        title="What private ICA makes of the same brains",
        subtitle=f"{rows[0]['people']} people at 4 sites, 1 colluding; ε is a person's exact total at δ = {DELTA:g}",
        footnote="Zerosum works in a public basis of low cosines. djICA and capeDJICA are given exact whitening (at "
        f"the same ε also the exact subspace), and take the papers' step{went}.\n"
        "Maps are matched to the true ones in order and sign; colours are shares of a map's largest value.",
    )


def _privacy(line: Row) -> str:
    """Privacy of a method as text."""
    if line["calibration"] == "none":
        return "no privacy"
    if line["calibration"] == "not private":
        return f"not private, asks ε = {line['epsilon']:g} a round"
    exact, whole = float(line["exact_epsilon"]), float(line["with_reduction"])
    return f"ε = {_number(exact)}" + (f" ({_number(whole)} with its reduction)" if whole > exact * 1.001 else "")


_SWEPT: dict[str, tuple[Carry, Literal["epsilon", "people", "delta"]]] = {
    "ica-epsilon": (ica_epsilon, "epsilon"),
    "ica-epsilon-256": (partial(ica_epsilon, people=256), "epsilon"),
    "ica-subjects": (ica_subjects, "people"),
    "ica-subjects-2": (partial(ica_subjects, round_epsilon=2.0), "people"),
    "ica-delta": (ica_delta, "delta"),
}
_SHOWN = {
    "method": "method",
    "calibration": "calibration",
    "asked eps": "epsilon",
    "exact eps": "exact_epsilon",
    "eps with PCA": "with_reduction",
}
# Columns of a picture of maps: each map has a correlation, and all maps of a method one gain index.
_SHOWN_MAPS = _SHOWN | {"people": "people", "gain index": "amari_index", "corr.": "correlation"}


def _shown(x: Literal["epsilon", "people", "delta"]) -> dict[str, str]:
    """Headings to columns of the printed table of a sweep, so that it fits 80 columns. The CSV file has all columns."""
    swept = {"delta": "delta"} if x == "delta" else {"people": "people"}
    return _SHOWN | swept | {"gain index": "amari_index", "spread": "spread", "runs": "runs"}


EXPERIMENTS = (
    *[
        Experiment(name=name, carry=carry, draw=partial(draw, x=x), summary=summary, shown=_shown(x), brief_seeds=1)
        for name, (carry, x) in _SWEPT.items()
    ],
    *[
        Experiment(name=name, carry=carry, draw=drawn, summary=maps_summary, shown=_SHOWN_MAPS)
        for name, carry, drawn in (("ica-maps", ica_maps, draw_maps), ("ica-grid", ica_grid, draw_grid))
    ],
)
