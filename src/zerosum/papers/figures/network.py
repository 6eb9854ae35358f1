"""Figure 2 of the capeFM paper: accuracy of a network with one hidden layer against epsilon and records.

Four sites, one of them colluding; 50 columns, two normal classes whose means are 1 apart in norm or in every coordinate
(the paper does not state which), each a data set here. All schemes run at the same exact epsilon for the whole training
at delta 1e-5. Those of the paper also run as published, where epsilon is that of one tensor in one iteration at delta
0.01, with the exact epsilon beside it. They share one training of 25 steps (`zerosum.papers.methods.network`).
Zerosum's own program chooses its number of steps; a quick run sets it to 60.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zerosum.algorithms import NeuralClassifierProgram
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.papers.figures.experiment import Carry, Experiment, OnStep, Row, Table, averages, curve, quiet
from zerosum.papers.methods import network as methods
from zerosum.papers.methods.network import Classes, Reading
from zerosum.study.rehearsal import Rehearsal

SITES, COLLUDERS, DELTA = 4, 1, 1e-5
EPSILON = 0.5  # value where it is not varied
# Training records in all, and test records.
RECORDS, HELD_OUT = 10_000, 10_000
OURS = "zerosum"
# Seeds of quick and full runs, and steps of Zerosum's program in a quick run; chosen by hand.
QUICK_SEEDS, FULL_SEEDS, QUICK_STEPS = 3, 10, 60
# Data set to the reading of "means are separated by 1".
DATA: dict[str, Reading] = {"norm": "norm", "coordinate": "coordinate"}

Along = Literal["epsilon", "records"]


def ours(data: Classes, epsilon: float, seed: int, steps: int | None) -> tuple[NeuralClassifierProgram, Any]:
    """Zerosum's program, simulated with its planned noise. The declared range of each column is -6 to 6."""
    names = (*(f"x{i}" for i in range(methods.COLUMNS)), "class")
    ends = np.full(methods.COLUMNS, 6.0)
    ordinary = {"center": 0 * ends, "scale": np.ones(methods.COLUMNS)}
    algorithm = NeuralClassifierProgram(columns=names, lower=-ends, upper=ends, steps=steps, start=seed, **ordinary)
    rehearsal = Rehearsal(algorithm, len(data.y), SITES, epsilon, DELTA, COLLUDERS)
    found = rehearsal.run(Units.from_rows(np.column_stack([data.x, data.y])), seed)
    return algorithm, np.asarray(found["weights"])


def _planned() -> list[tuple[str, methods.Calibration | Literal["none"]]]:
    """Methods and calibrations."""
    exact: list[tuple[str, methods.Calibration | Literal["none"]]] = [(OURS, "exact")]
    exact += [(method, "exact") for method in methods.SCHEMES]
    return [*exact, *[(method, "published") for method in methods.PUBLISHED], ("non-private", "none")]


def _measured(
    reading: Reading, method: str, calibration: str, epsilon: float, records: int, seed: int, steps: int | None
) -> Row:
    """One row: training and test accuracy of a method."""
    data, others = Classes.drawn(reading, records, 2 * seed), Classes.drawn(reading, HELD_OUT, 2 * seed + 1)
    exact = epsilon
    if method == OURS:
        algorithm, weights = ours(data, epsilon, seed, steps)
        scores = [
            float(np.mean(algorithm.probabilities(weights, each.x).argmax(axis=1) == each.y)) for each in (data, others)
        ]
    else:
        how: methods.Calibration = "published" if calibration == "published" else "exact"
        trained = methods.train(method, data, epsilon, DELTA, seed, calibration=how, sites=SITES, colluders=COLLUDERS)
        scores = [methods.accuracy(trained, each) for each in (data, others)]
        exact = float("inf")
        if method != "non-private":
            exact = methods.exact_epsilon(method, how, epsilon, DELTA, SITES, COLLUDERS)
    return {
        "data": reading,
        "method": method,
        "calibration": calibration,
        "epsilon": epsilon,
        "exact_epsilon": exact if calibration != "exact" else epsilon,
        "records": records,
        "seed": seed,
        "accuracy": scores[1],
        "training": scores[0],
    }


def carry(
    along: Along,
    data: str,
    folder: Path | None = None,
    *,
    full: bool = False,
    seeds: int | None = None,
    on_step: OnStep = quiet,
) -> Table:
    """Accuracy on the training examples and on others, for every scheme."""
    if seeds is None:
        seeds = FULL_SEEDS if full else QUICK_SEEDS
    if seeds < 1:
        raise BadParameter(f"at least one seed is needed, got {seeds}")
    points = [
        (epsilon, RECORDS) for epsilon in ((0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if full else (0.1, 0.5, 1.0, 3.0))
    ]
    if along == "records":
        points = [(EPSILON, RECORDS // part) for part in ((20, 10, 4, 2, 1) if full else (10, 4, 1))]
    planned = [(point, each) for point in points for each in _planned()]
    rows: Table = []
    on_step(0, len(planned))
    for done, ((epsilon, records), (method, calibration)) in enumerate(planned, 1):
        steps = None if full else QUICK_STEPS
        rows += [_measured(DATA[data], method, calibration, epsilon, records, seed, steps) for seed in range(seeds)]
        on_step(done, len(planned))
    return rows


def summary(rows: Table) -> Table:
    """Means over seeds."""
    return averages(rows, ["accuracy", "training"])


# Method to label and colour.
_LOOKS = {
    OURS: ("Zerosum", "#0b7a75"),
    "secure-sum": ("the paper's training, secure sum", "#5aa9e6"),
    "cape": ("CAPE", "#d9843b"),
    "conv": ("conv", "#8057b8"),
    "pooled": ("pooled", "#6b7783"),
}
_TITLES = {"exact": "every scheme at the same ε in all", "published": "as published, at its true ε"}


def draw(rows: Table, path: Path, along: Along = "epsilon") -> None:
    """Two panels: all schemes at the same epsilon, and as published at the exact epsilon."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = summary(rows)
    figure, panels = plt.subplots(1, 2, figsize=(13, 6.8), sharey=True, constrained_layout=True)
    for axes, calibration in zip(panels, _TITLES, strict=True):
        for method, (label, colour) in _LOOKS.items():
            chosen = "exact" if method == OURS else calibration
            shown = _of(lines, method, chosen)
            if shown:
                at = "exact_epsilon" if along == "epsilon" else "records"
                if chosen == "published" and along == "records":
                    label = f"{label}: ε = {float(shown[0]['exact_epsilon']):.3g}"
                curve(axes, shown, at, "accuracy", label=label, colour=colour, bold=method == OURS)
        bare = _of(lines, "non-private", "none")
        if along == "records":
            curve(axes, bare, "records", "accuracy", label="non-private", colour="black", bold=False)
        elif bare:
            axes.axhline(float(bare[0]["accuracy"]), color="black", lw=1, ls="--", label="non-private")
        axes.set_xscale("log")
        axes.set_xlabel("exact ε" if along == "epsilon" else "records in all")
        axes.set_title(_TITLES[calibration], loc="left", fontsize=11)
        axes.grid(color="#e5e8eb")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    panels[0].set_ylabel("accuracy on other examples")
    apart = "in norm" if rows[0]["data"] == "norm" else "in every coordinate"
    figure.suptitle(f"A network with one hidden layer, means 1 apart {apart}; {SITES} sites, {COLLUDERS} colluding")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _of(lines: Table, method: str, calibration: str) -> Table:
    """Lines of one method and calibration."""
    return [line for line in lines if (line["method"], line["calibration"]) == (method, calibration)]


_SHOWN = {
    "method": "method",
    "calibration": "calibration",
    "asked eps": "epsilon",
    "exact eps": "exact_epsilon",
    "records": "records",
    "accuracy": "accuracy",
    "spread": "spread",
    "training": "training",
    "runs": "runs",
}
_SWEPT: dict[str, Along] = {"nn-epsilon": "epsilon", "nn-samples": "records"}


def _carried(along: Along) -> Carry:
    """The experiment along one axis."""
    return partial(carry, along)


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=_carried(along),
        draw=partial(draw, along=along),
        summary=summary,
        shown=_SHOWN,
        data=tuple(DATA),
    )
    for name, along in _SWEPT.items()
)
