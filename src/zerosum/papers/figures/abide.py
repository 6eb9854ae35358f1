"""Figures 1c and 2c of capeDJICA on fMRI that can be had: ABIDE (858 people, 200 regions) instead of the paper's data.

As in the paper there is no ground truth: the pseudo ground truth is djICA without noise on the pooled data, after a PCA
of the pooled data. It is computed here with a step of 1, since the papers' step of 0.015/log R does not converge in
1000 rounds. The starting point W = I is a line of the figure: on whitened data it is close to the pseudo ground truth
before anything is learnt.

People are divided into four sites of equal size. Each person's regions are centred, and all volumes are reduced and
whitened by the exact pooled PCA, at no cost, as in the other ICA figures. `exact_epsilon` is that of a person over all
rounds, without the reduction.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np

from zerosum.algorithms.metrics import amari_index
from zerosum.arrays import Floats
from zerosum.errors import BadData, BadParameter
from zerosum.papers.figures.experiment import Experiment, OnStep, Row, Table, averages, curve, quiet
from zerosum.papers.methods import ica as published
from zerosum.papers.methods import ica_costs as costs

SITES, COLLUDERS, COMPONENTS = 4, 1, 20
FILE = "abide_cc200_858.npz"
TRUTH = published.Settings(rounds=100, step=1.0)  # of the pseudo ground truth
# Name of a setting to its step (None: the papers') and rounds. The papers' 1000 rounds are compressed to fewer with the
# same path and the same total (`zerosum.papers.figures.separating`).
STEPS: dict[str, float | None] = {"the papers' step": None, "step 0.3": 0.3}
ROUNDS = 20
_DELTA = 1e-5


def load(folder: Path | None, people: int) -> list[Floats]:
    """White volumes of each site, each of shape (volumes, COMPONENTS), float32; `people` at all sites."""
    if folder is None:
        raise BadData(f"the data set abide is read from a folder: name one that holds {FILE} with --folder")
    if not (folder / FILE).exists():
        raise BadData(f"there is no {FILE} in {folder}")
    with np.load(folder / FILE) as stored:
        volumes, offsets = stored["q"], stored["offsets"]
    each = people // SITES
    chosen = list(pairwise(offsets.tolist()))[: each * SITES]
    # People of the same institution are next to each other: every fourth person goes to the same site.
    sites = []
    for s in range(SITES):
        rows = [volumes[:, a:b].T.astype(np.float32) for a, b in chosen[s::SITES]]
        sites.append(np.concatenate([own - own.mean(axis=0) for own in rows]))
    moment = sum(rows.T @ rows for rows in sites) / sum(len(rows) for rows in sites)
    values, vectors = np.linalg.eigh(np.asarray(moment, dtype=np.float64))
    whitening = (vectors[:, -COMPONENTS:] / np.sqrt(values[-COMPONENTS:])).astype(np.float32)
    return [rows @ whitening for rows in sites]


def ica_abide(
    data: str = "abide",
    folder: Path | None = None,
    *,
    full: bool = False,
    seeds: int | None = None,
    on_step: OnStep = quiet,
) -> Table:
    """Normalised gain index against the epsilon of a round."""
    runs = seeds if seeds is not None else 10 if full else 2
    if runs < 1:
        raise BadParameter(f"at least one seed is needed, got {runs}")
    people = 772 if full else 200
    sites = load(folder, people)
    truth = np.asarray(np.linalg.pinv(published.djica(sites, settings=TRUTH).W), dtype=np.float64)
    swept = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 10.0) if full else (0.05, 0.5, 2.0)
    planned = [(name, epsilon, seed) for name in STEPS for epsilon in (math.inf, *swept) for seed in range(runs)]
    start = amari_index(np.eye(COMPONENTS), truth)
    common: Row = {"people": people, "delta": _DELTA}
    first: Row = {"method": "start, W = I", "step": "none", "epsilon": math.inf, "exact_epsilon": 0.0, "seed": 0}
    rows: Table = [first | common | {"gain_index": start}]
    on_step(0, len(planned))
    for done, (name, epsilon, seed) in enumerate(planned, 1):
        step, rounds = STEPS[name], ROUNDS
        each = epsilon
        if step is None:  # 1000 rounds in ROUNDS: a longer step, and an epsilon of the round with the same total
            step = published.PAPERS.first_step(COMPONENTS) * published.PAPERS.rounds / rounds
            each = epsilon * math.sqrt(published.PAPERS.rounds / rounds)
        settings = published.Settings(rounds=rounds, step=step)
        private = math.isfinite(epsilon)
        if private:
            rng = np.random.default_rng(seed)
            found = published.cape_djica(sites, people // SITES, each, rng, settings)
            exact = costs.exact_epsilon("cape-djica", rounds, each, sites=SITES, colluders=COLLUDERS)
        else:
            found, exact = published.djica(sites, settings=settings), math.inf
        method = "capeDJICA" if private else "djICA"
        row: Row = {"method": method, "step": name, "epsilon": epsilon, "exact_epsilon": exact, "seed": seed}
        rows.append(row | common | {"gain_index": amari_index(found.W, truth)})
        on_step(done, len(planned))
    return rows


def summary(rows: Table) -> Table:
    """Means over seeds."""
    return averages(rows, ["gain_index"])


def draw(rows: Table, path: Path) -> None:
    """capeDJICA against the epsilon of a round, with lines for the starting point and for djICA."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = summary(rows)
    figure, axes = plt.subplots(figsize=(8.5, 6.2), constrained_layout=True)
    colours = dict(zip(STEPS, ("#d9843b", "#8057b8"), strict=True))
    for name, colour in colours.items():
        shown = [line for line in lines if (line["method"], line["step"]) == ("capeDJICA", name)]
        worth = [float(line["exact_epsilon"]) for line in shown]
        label = f"capeDJICA, {name}: exact total ε {min(worth):.2g} to {max(worth):.3g}"
        curve(axes, shown, "epsilon", "gain_index", label=label, colour=colour, bold=False)
        bare = [line for line in lines if (line["method"], line["step"]) == ("djICA", name)]
        axes.axhline(float(bare[0]["gain_index"]), color=colour, lw=1, ls="--", label=f"djICA without noise, {name}")
    axes.axhline(float(lines[0]["gain_index"]), color="black", lw=1.4, label="the start, W = I: nothing learnt")
    axes.axhspan(0, 0.1, color="#0b7a75", alpha=0.07, lw=0)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("ε of one round, as published")
    axes.set_ylabel("normalised gain (Amari) index to the pooled pseudo truth")
    axes.grid(color="#e5e8eb")
    people = int(rows[0]["people"])
    axes.set_title(f"ABIDE: {people} people at {SITES} sites, {COLLUDERS} colluding (shaded: usable)", fontsize=11)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=1)
    figure.savefig(path, dpi=120)
    plt.close(figure)


EXPERIMENTS = (
    Experiment(
        name="ica-abide",
        carry=ica_abide,
        draw=draw,
        summary=summary,
        shown={
            "method": "method",
            "step": "step",
            "eps of a round": "epsilon",
            "exact total eps": "exact_epsilon",
            "people": "people",
            "gain index": "gain_index",
            "spread": "spread",
            "runs": "runs",
        },
        data=("abide",),
    ),
)
