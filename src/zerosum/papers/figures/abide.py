"""Figures 1c-d, 2c-d and 7b of capeDJICA on fMRI that can be had: ABIDE (200 regions) instead of the paper's data.

As in the paper there is no ground truth: the pseudo ground truth is djICA without noise on the pooled data of all
PEOPLE people, after a PCA of the pooled data. It is computed here with a step of 1, since the papers' step of
0.015/log R does not converge in 1000 rounds. The starting point W = I is a line of every figure: on whitened data it is
close to the pseudo ground truth before anything is learnt.

People are divided into four sites of equal size. Each person's regions are centred, and all volumes are reduced and
whitened by the exact pooled PCA of all people, at no cost, as in the other ICA figures. Runs on fewer people take the
first ones of each site. A person is the unit: the mean is over people of the mean over a person's volumes, whose number
differs. `exact_epsilon` is that of a person over all rounds, without the reduction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from zerosum.algorithms.metrics import amari_index
from zerosum.compute.units import Units
from zerosum.errors import BadData
from zerosum.papers.figures.experiment import SHOWN_SPREAD, Experiment, Row, Run, Table, averages, curve, run_count
from zerosum.papers.figures.panels import subplots
from zerosum.papers.figures.separating import OPEN, rehearsed
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs as costs

SITES, COLLUDERS, COMPONENTS = 4, 1, 20
# People at all sites: those of the pseudo ground truth, and the smaller of the paper's two numbers.
PEOPLE, FEW_PEOPLE = 772, 256
FILE = "abide_cc200_858.npz"
TRUTH = published.Settings(rounds=100, step=1.0)  # of the pseudo ground truth
# Name of a setting to its step (None: the papers') and rounds. The papers' 1000 rounds are compressed to fewer with the
# same path and the same total (`zerosum.papers.figures.separating`).
STEPS: dict[str, float | None] = {"the papers' step": None, "step 0.3": 0.3}
ROUNDS = 20
_DELTA = 1e-5
_EPSILON, _LARGE = 0.5, 2.0  # epsilons of a round, where they are not varied

Along = Literal["epsilon", "people", "delta"]


def load(folder: Path | None, people: int) -> list[Units]:
    """White volumes of the people of each site, of COMPONENTS columns in float32; `people` at all sites."""
    if folder is None:
        raise BadData(f"the data set abide is read from a folder: name one that holds {FILE} with --folder")
    if not (folder / FILE).exists():
        raise BadData(f"there is no {FILE} in {folder}")
    with np.load(folder / FILE) as stored:
        volumes, offsets = stored["q"], stored["offsets"]
    chosen = list(pairwise(offsets.tolist()))[: people // SITES * SITES]
    # People of the same institution are next to each other: every fourth person goes to the same site.
    sites = []
    for s in range(SITES):
        each = [volumes[:, first:last].T.astype(np.float32) for first, last in chosen[s::SITES]]
        rows = np.concatenate([own - own.mean(axis=0) for own in each])
        sites.append(Units(rows, np.cumsum([0, *map(len, each)])))
    moment = sum(site.rows.T @ site.rows for site in sites) / sum(len(site.rows) for site in sites)
    # float64 for the decomposition only: the small eigenvalues of 200 correlated regions are lost in float32.
    values, vectors = np.linalg.eigh(np.asarray(moment, dtype=np.float64))
    whitening = (vectors[:, -COMPONENTS:] / np.sqrt(values[-COMPONENTS:])).astype(np.float32)
    return [Units(site.rows @ whitening, site.offsets) for site in sites]


@dataclass(frozen=True)
class _Point:
    """One point of a sweep. `delta` is that of the total, `round_delta` that of the published noise of a round."""

    epsilon: float = _EPSILON
    people: int = PEOPLE
    delta: float = _DELTA
    round_delta: float = published.ROUND_DELTA


def _points(along: Along, full: bool, epsilon: float, people: int) -> list[_Point]:
    """The points along one axis."""
    match along:
        case "epsilon":
            swept = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 10.0) if full else (0.05, 0.5, 2.0)
            return [_Point(each, people) for each in swept]
        case "people":
            counts = (64, 128, FEW_PEOPLE, 512, PEOPLE) if full else (64, FEW_PEOPLE, PEOPLE)
            return [_Point(epsilon, count) for count in counts]
        case _:
            deltas = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2) if full else (1e-7, 1e-5, 1e-3)
            return [_Point(epsilon, people, delta, delta) for delta in deltas]


def carry(along: Along, run: Run, *, epsilon: float = _EPSILON, people: int = PEOPLE) -> Table:
    """Normalised gain index against the epsilon of a round, the number of people or delta."""
    runs = run_count(run.seeds, 10 if run.full else 2)
    whole = load(run.folder, PEOPLE)
    rng = np.random.default_rng(0)
    # The Amari index compares an unmixing with a mixing matrix.
    truth = np.asarray(np.linalg.pinv(rehearsed(OPEN, whole, math.inf, TRUTH, rng)[0]), dtype=np.float64)
    points = _points(along, run.full, epsilon, people)
    rows: Table = [
        _row("start, W = I", "none", _Point(math.inf, people), 0.0, 0, amari_index(np.eye(COMPONENTS), truth))
    ]
    planned = len(STEPS) * (len({point.people for point in points}) + len(points) * runs)
    run.on_step(0, planned)
    for name, step in STEPS.items():
        for count in sorted({point.people for point in points}):
            W = rehearsed(OPEN, _first(whole, count), math.inf, _settings(step), rng)[0]
            rows.append(_row("djICA", name, _Point(math.inf, count), math.inf, 0, amari_index(W, truth)))
            run.on_step(len(rows) - 1, planned)
        for point in points:
            settings = _settings(step, point.round_delta)
            # The papers' rounds are compressed: an epsilon of the round with the same total.
            each = point.epsilon * (math.sqrt(published.PAPERS.rounds / ROUNDS) if step is None else 1.0)
            exact = costs.exact_epsilon(
                "cape-djica",
                ROUNDS,
                each,
                sites=SITES,
                colluders=COLLUDERS,
                delta=point.round_delta,
                total_delta=point.delta,
            )
            for seed in range(runs):
                drawn = np.random.default_rng(seed)
                W = rehearsed("cape-djica", _first(whole, point.people), each, settings, drawn)[0]
                rows.append(_row("capeDJICA", name, point, exact, seed, amari_index(W, truth)))
                run.on_step(len(rows) - 1, planned)
    return rows


def _first(sites: Sequence[Units], people: int) -> list[Units]:
    """The first people of each site, `people` in all."""
    return [site.between(0, people // SITES) for site in sites]


def _settings(step: float | None, round_delta: float = published.ROUND_DELTA) -> published.Settings:
    """ROUNDS rounds at a step; None for the papers' 1000 rounds at their step, compressed to a longer step."""
    if step is None:
        step = published.PAPERS.first_step(COMPONENTS) * published.PAPERS.rounds / ROUNDS
    return published.Settings(rounds=ROUNDS, step=step, delta=round_delta)


def _row(method: str, step: str, point: _Point, exact: float, seed: int, index: float) -> Row:
    """One row of the table."""
    return {
        "method": method,
        "step": step,
        "epsilon": point.epsilon,
        "exact_epsilon": exact,
        "seed": seed,
        "people": point.people,
        "delta": point.delta,
        "gain_index": index,
    }


def summary(rows: Table) -> Table:
    """Means over seeds."""
    return averages(rows, ["gain_index"])


def draw(rows: Table, path: Path, along: Along = "epsilon") -> None:
    """capeDJICA along one axis, with lines for the starting point and for djICA."""
    lines = summary(rows)
    figure, axes = subplots(figsize=(8.5, 6.2))
    colours = dict(zip(STEPS, ("#d9843b", "#8057b8"), strict=True))
    for name, colour in colours.items():
        shown = [line for line in lines if (line["method"], line["step"]) == ("capeDJICA", name)]
        worth = [float(line["exact_epsilon"]) for line in shown]
        ends = dict.fromkeys(f"{end:.3g}" for end in (min(worth), max(worth)))
        label = f"capeDJICA, {name}: exact total ε {' to '.join(ends)}"
        curve(axes, shown, along, "gain_index", label=label, colour=colour, bold=False)
        bare = [line for line in lines if (line["method"], line["step"]) == ("djICA", name)]
        label = f"djICA without noise, {name}"
        if along == "people":
            heights = [float(line["gain_index"]) for line in bare]
            axes.plot([int(line["people"]) for line in bare], heights, color=colour, lw=1, ls="--", label=label)
        else:
            axes.axhline(float(bare[0]["gain_index"]), color=colour, lw=1, ls="--", label=label)
    axes.axhline(float(lines[0]["gain_index"]), color="black", lw=1.4, label="the start, W = I: nothing learnt")
    axes.axhspan(0, 0.1, color="#0b7a75", alpha=0.07, lw=0)
    axes.set_xscale("log", base=2 if along == "people" else 10)
    if along == "people":
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel({"epsilon": "ε of one round, as published", "people": "people at all sites", "delta": "δ"}[along])
    axes.set_ylabel("normalised gain (Amari) index to the pooled pseudo truth")
    axes.grid(color="#e5e8eb")
    private = [row for row in rows if row["method"] == "capeDJICA"]
    fixed = [f"{SITES} sites, {COLLUDERS} colluding"]
    if along != "people":
        fixed.insert(0, f"{private[0]['people']} people")
    if along != "epsilon":
        fixed.append(f"ε = {float(private[0]['epsilon']):g} a round")
    axes.set_title(f"ABIDE: {', '.join(fixed)} (shaded: usable)", fontsize=11)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=1)
    figure.savefig(path, dpi=120)


# Figure to its axis, the epsilon of a round and the number of people.
_FIGURES: dict[str, tuple[Along, float, int]] = {
    "ica-abide": ("epsilon", _EPSILON, PEOPLE),
    "ica-abide-256": ("epsilon", _EPSILON, FEW_PEOPLE),
    "ica-abide-subjects": ("people", _EPSILON, PEOPLE),
    "ica-abide-subjects-2": ("people", _LARGE, PEOPLE),
    "ica-abide-delta": ("delta", _EPSILON, PEOPLE),
}
EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=partial(carry, along, epsilon=epsilon, people=people),
        draw=partial(draw, along=along),
        summary=summary,
        shown={
            "method": "method",
            "step": "step",
            "eps of a round": "epsilon",
            "exact total eps": "exact_epsilon",
            "delta": "delta",
            "people": "people",
            "gain index": "gain_index",
            **SHOWN_SPREAD,
        },
        data=("abide",),
        brief_seeds=1,
    )
    for name, (along, epsilon, people) in _FIGURES.items()
)
