"""Figure 2 of the capeFM paper: accuracy of a network with one hidden layer against epsilon and records.

Four sites, one of them colluding; 50 columns, two normal classes of unit variance, "means are separated by 1". The
paper does not state whether the distance is 1 in norm (a hard task: the Bayes classifier is right for 69 %) or 1 in
each coordinate (an easy one): each is a data set here. All schemes share one training of 25 iterations, the program
`cape-network`, and run at the same exact epsilon for the whole training at delta 1e-5; there the four tensors of a
gradient are clipped together. Zerosum's own program chooses its number of steps; a quick run sets it to 60.

**As published** the schemes of the paper add noise tau = Delta/epsilon sqrt(2 log(1.25/0.01)) to each tensor in every
iteration, where each tensor is clipped to norm 1, so that Delta is 2 in units of the sum. The epsilon of the paper is
that of one tensor in one iteration at delta 0.01. Four tensors are released together (2 times the mu), in every
iteration (sqrt(T) times), to a coordinator with a colluding site, which knows its own draws. The exact epsilon of the
whole is beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from zerosum.algorithms import NeuralClassifierProgram
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadParameter
from zerosum.kernel.statistic import Adjacency
from zerosum.papers.figures.experiment import Experiment, Row, Run, Table, averages, curve, run_count
from zerosum.papers.figures.panels import subplots
from zerosum.papers.programs.network import ITERATIONS, CapeNetworkProgram
from zerosum.papers.rehearsal import PublicData, exact_epsilon, exact_tau, published_tau
from zerosum.study.rehearsal import Rehearsal

Calibration = Literal["exact", "published", "none"]
Reading = Literal["norm", "coordinate"]

SITES, COLLUDERS, DELTA = 4, 1, 1e-5
EPSILON = 0.5  # value where it is not varied
# Columns of the data.
COLUMNS = 50
# Training records in all, and test records.
RECORDS, HELD_OUT = 10_000, 10_000
OURS = "zerosum"
# Name in the figure to the scheme with the same noise law. The secure sum is ours.
SCHEMES = {"secure-sum": "secure-sum", "cape": "cape-published", "conv": "local", "pooled": "pooled"}
# Schemes of the paper, and its delta for one tensor in one iteration.
PUBLISHED, PUBLISHED_DELTA = ("cape", "conv", "pooled"), 0.01
NON_PRIVATE = "non-private"
# A clip that is never reached, and the declared range of each column of the paper's training.
_UNCLIPPED, _RANGE = 1e6, 12.0
# Seeds of quick and full runs, and steps of Zerosum's program in a quick run; chosen by hand.
QUICK_SEEDS, FULL_SEEDS, QUICK_STEPS = 3, 10, 60
# Data set to the reading of "means are separated by 1".
DATA: dict[str, Reading] = {"norm": "norm", "coordinate": "coordinate"}

Along = Literal["epsilon", "records"]


@dataclass(frozen=True, eq=False)
class Classes:
    """Examples of two classes."""

    x: Floats
    y: Floats

    @staticmethod
    def drawn(reading: Reading, count: int, seed: int) -> Classes:
        """Normal classes of unit variance, one at 0 and one at distance 1 in norm or in every coordinate."""
        rng = np.random.default_rng(seed)
        # "The means are separated by 1" (capeFM, section 5.1) can be read as a norm or for each coordinate; the second
        # is an easier task by a factor of sqrt(D).
        apart = 1.0 if reading == "coordinate" else 1 / math.sqrt(COLUMNS)
        y = rng.integers(0, 2, count).astype(np.float64)
        return Classes(rng.standard_normal((count, COLUMNS)) + apart * y[:, None], y)

    @property
    def rows(self) -> Floats:
        """Features and, last, the class."""
        return np.column_stack([self.x, self.y])


def _settings(end: float, seed: int) -> dict[str, Any]:
    """Parameters of both programs."""
    ends = np.full(COLUMNS, end)
    names = (*(f"x{i}" for i in range(COLUMNS)), "class")
    return {
        "columns": names,
        "lower": -ends,
        "upper": ends,
        "center": 0 * ends,
        "scale": np.ones(COLUMNS),
        "start": seed,
    }


def ours(
    data: Classes, epsilon: float, seed: int, steps: int | None = None
) -> tuple[NeuralClassifierProgram, Floats, float]:
    """Zerosum's program, its weights under its planned noise, and epsilon. The declared range of a column is -6 to
    6."""
    algorithm = NeuralClassifierProgram(**_settings(6.0, seed), steps=steps)
    rehearsal = Rehearsal(algorithm, len(data.y), SITES, epsilon, DELTA, COLLUDERS)
    return algorithm, np.asarray(rehearsal.run(Units.from_rows(data.rows), seed)["weights"]), epsilon


def theirs(
    method: str, calibration: Calibration, data: Classes, epsilon: float, seed: int
) -> tuple[CapeNetworkProgram, Floats, float]:
    """The paper's training under a scheme, its weights, and its exact epsilon."""
    algorithm = CapeNetworkProgram(
        **_settings(_RANGE, seed),
        steps=ITERATIONS,
        clip=_UNCLIPPED if method == NON_PRIVATE else 1.0,
        clipping="tensor" if calibration == "published" else "joint",
    )
    sites = PublicData(np.array_split(data.rows, SITES))
    if method == NON_PRIVATE:
        return algorithm, np.asarray(sites.rehearse(algorithm)["weights"]), math.inf
    tau, exact = noise_of(method, calibration, epsilon, algorithm)
    rng = np.random.default_rng([seed, 1])
    return algorithm, np.asarray(sites.rehearse(algorithm, SCHEMES[method], tau, rng)["weights"]), exact


def noise_of(
    method: str, calibration: Calibration, epsilon: float, algorithm: CapeNetworkProgram
) -> tuple[float, float]:
    """Noise tau of an iteration and the exact epsilon of all, for `epsilon` in all (exact) or, as in the paper, for one
    tensor in one iteration (published)."""
    if calibration == "published" and method not in PUBLISHED:
        raise BadParameter(f"the paper has no calibration for {method!r}")
    (request,) = algorithm.requests(Adjacency.REPLACE_ONE)
    # Equal Gaussian releases of sensitivity s cost as one of sensitivity s sqrt(iterations).
    whole = request.statistic.sensitivity(Adjacency.REPLACE_ONE) * math.sqrt(algorithm.steps or 1)
    terms: dict[str, Any] = {"sites": SITES, "colluders": COLLUDERS, "sensitivity": whole}
    if calibration == "exact":
        return exact_tau(SCHEMES[method], epsilon, DELTA, **terms), epsilon
    # Each tensor alone moves by twice its clip of 1.
    tau = published_tau(epsilon, PUBLISHED_DELTA, 2.0)
    return tau, exact_epsilon(SCHEMES[method], tau, DELTA, **terms)


def _method_list() -> list[tuple[str, Calibration]]:
    """Methods and calibrations."""
    exact: list[tuple[str, Calibration]] = [(method, "exact") for method in (OURS, *SCHEMES)]
    return [*exact, *[(method, "published") for method in PUBLISHED], (NON_PRIVATE, "none")]


def _run_row(
    reading: Reading, method: str, calibration: Calibration, epsilon: float, records: int, seed: int, steps: int | None
) -> Row:
    """One row: training and test accuracy of a method."""
    data, others = Classes.drawn(reading, records, 2 * seed), Classes.drawn(reading, HELD_OUT, 2 * seed + 1)
    algorithm: NeuralClassifierProgram
    algorithm, weights, exact = (
        ours(data, epsilon, seed, steps) if method == OURS else theirs(method, calibration, data, epsilon, seed)
    )
    training, accuracy = (
        float(np.mean(algorithm.probabilities(weights, each.x).argmax(axis=1) == each.y)) for each in (data, others)
    )
    return {
        "data": reading,
        "method": method,
        "calibration": calibration,
        "epsilon": epsilon,
        "exact_epsilon": exact,
        "records": records,
        "seed": seed,
        "accuracy": accuracy,
        "training": training,
    }


def carry(along: Along, run: Run) -> Table:
    """Accuracy on the training examples and on others, for every scheme."""
    runs = run_count(run.seeds, FULL_SEEDS if run.full else QUICK_SEEDS)
    points = [
        (epsilon, RECORDS) for epsilon in ((0.03, 0.1, 0.3, 0.5, 1.0, 3.0, 10.0) if run.full else (0.1, 0.5, 1.0, 3.0))
    ]
    if along == "records":
        points = [(EPSILON, RECORDS // part) for part in ((20, 10, 4, 2, 1) if run.full else (10, 4, 1))]
    planned = [(point, each) for point in points for each in _method_list()]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, ((epsilon, records), (method, calibration)) in enumerate(planned, 1):
        steps = None if run.full else QUICK_STEPS
        rows += [_run_row(DATA[run.data], method, calibration, epsilon, records, seed, steps) for seed in range(runs)]
        run.on_step(done, len(planned))
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
    lines = summary(rows)
    figure, panels = subplots(1, 2, figsize=(13, 6.8), sharey=True)
    for axes, calibration in zip(panels, _TITLES, strict=True):
        for method, (label, colour) in _LOOKS.items():
            chosen = "exact" if method == OURS else calibration
            shown = _of(lines, method, chosen)
            if shown:
                at = "exact_epsilon" if along == "epsilon" else "records"
                if chosen == "published" and along == "records":
                    label = f"{label}: ε = {float(shown[0]['exact_epsilon']):.3g}"
                curve(axes, shown, at, "accuracy", label=label, colour=colour, bold=method == OURS)
        bare = _of(lines, NON_PRIVATE, "none")
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


EXPERIMENTS = tuple(
    Experiment(
        name=name,
        carry=partial(carry, along),
        draw=partial(draw, along=along),
        summary=summary,
        shown=_SHOWN,
        data=tuple(DATA),
    )
    for name, along in _SWEPT.items()
)
