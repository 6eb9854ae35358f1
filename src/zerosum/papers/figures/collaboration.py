"""Tables 1 to 6 and figures 5 to 8 of the Data Collaboration paper, on MNIST and Fashion-MNIST.

Ten clients with 100 or 1000 records, epsilon 50 at delta 0.01 as published. The exact epsilon for a whole record is
beside it, for the median pair of images (DC-DP) or as proved (FL-DP). The DP row of the paper's table 4 repeats the
Non-DP row of its table 5, a misprint, and is left out. Two programs of Zerosum protect whole records at epsilon 8 and
delta 1e-5: `data-collaboration`, and `feature-classifier`, which trains through the private sum.

The paper names DP-SGD on the aggregated records for the case that the server is trusted and only the model must not
reveal records (its case 2), and does not measure it. Here it is a network of one hidden layer, `neural-classifier` with
Poisson samples under the scheme `pooled`, at the epsilon of Zerosum's programs. That epsilon is for an aligned record
while all maps stay as they are. Maps and alignments are computed from the records without noise, so that there is none
for a record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from zerosum.algorithms import DataCollaborationProgram, FeatureClassifierProgram, NeuralClassifierProgram
from zerosum.arrays import Floats
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadParameter
from zerosum.papers.figures.experiment import SHOWN_SPREAD, Experiment, Row, Run, Table, averages, curve, run_count
from zerosum.papers.figures.panels import subplots
from zerosum.papers.methods import collaboration as methods
from zerosum.papers.methods.records import Records
from zerosum.papers.programs.federated import CLIP
from zerosum.statistics import perceptron
from zerosum.statistics.softmax import BIAS
from zerosum.study.rehearsal import Rehearsal

# Clients, and numbers of components, as in the paper.
CLIENTS, WIDTHS = 10, tuple(range(10, 101, 10))
# Budget of Zerosum's programs.
OUR_EPSILON, OUR_DELTA = 8.0, 1e-5
# Runs of a full and of a quick experiment; chosen by hand.
FULL_SEEDS, QUICK_SEEDS = 5, 1
# Pixels along one side of an image.
SIDE = 28
# Records per client to epochs of a network on all records. A client's own network has three times as many. Chosen by
# hand.
EPOCHS = {100: 40, 1000: 12}
# Data set to file name.
_FILES = {"mnist": "mnist.npz", "fashion": "fashion_mnist.npz"}
# DP-SGD on aligned records, whose numbers have a standard deviation of about 1: their declared range, the hidden units,
# the Poisson sampling rate and the steps. Chosen by hand on MNIST.
_SGD_RANGE, _SGD_HIDDEN, _SGD_RATE, _SGD_STEPS = 5.0, 64, 0.1, 200
# Public features of Zerosum's programs.
FEATURES: dict[str, Any] = {"kind": "scattering", "height": SIDE, "width": SIDE}

# Accuracies of the paper in percent, by data set, method and records per client: one for each width, or one.
PAPER: dict[tuple[str, str, int], tuple[float, ...]] = {
    ("mnist", "DC", 100): (72.87, 79.11, 80.45, 82.37, 82.94, 83.34, 83.68, 84.07, 83.9, 84.88),
    ("mnist", "DC-DP", 100): (67.52, 75.11, 75.96, 76.85, 76.56, 77.33, 75.98, 78.04, 79.06, 79.55),
    ("mnist", "DC", 1000): (89.06, 94.14, 94.82, 94.96, 95.04, 95.1, 94.92, 95.11, 95.01, 95.14),
    ("mnist", "DC-DP", 1000): (87.41, 91.66, 92.03, 91.81, 91.99, 91.94, 92.01, 92.01, 92.04, 92.14),
    ("fashion", "DC", 100): (69.82, 72.47, 72.81, 74.38, 74.57, 74.61, 74.89, 75.24, 74.99, 75.74),
    ("fashion", "DC", 1000): (78.18, 81.38, 82.36, 82.5, 82.88, 82.91, 83.2, 82.95, 83.05, 83.17),
    ("fashion", "DC-DP", 1000): (76.3, 79.27, 80.19, 80.24, 80.57, 80.73, 80.79, 80.8, 81.22, 81.12),
    ("mnist", "FL", 100): (85.43,),
    ("mnist", "FL", 1000): (95.1,),
    ("mnist", "FL-DP", 100): (11.97,),
    ("mnist", "FL-DP", 1000): (89.3,),
    ("mnist", "individual", 100): (65.81,),
    ("mnist", "individual", 1000): (92.5,),
    ("mnist", "centralized", 100): (89.0,),
    ("mnist", "centralized", 1000): (96.1,),
    ("fashion", "FL", 100): (74.7,),
    ("fashion", "FL", 1000): (84.4,),
    ("fashion", "FL-DP", 100): (12.1,),
    ("fashion", "FL-DP", 1000): (79.9,),
    ("fashion", "individual", 100): (70.3,),
    ("fashion", "individual", 1000): (80.0,),
    ("fashion", "centralized", 100): (80.0,),
    ("fashion", "centralized", 1000): (85.9,),
}
# Methods with a number of components.
AGGREGATED = "DC, then DP-SGD"
REDUCED = ("DC", "DC-DP", AGGREGATED)
# Methods without one.
TRAVELLING = ("FL", "FL-DP", "individual", "centralized")
OURS = ("rigorous DC", "private sum")


def paper(data: str, method: str, records: int, width: int) -> float:
    """Accuracy in the paper, NaN if it has none."""
    values = PAPER.get((data, method, records), ())
    if len(values) > 1:
        return values[WIDTHS.index(width)] if width in WIDTHS else float("nan")
    return values[0] if values else float("nan")


def load(data: str, folder: Path | None) -> tuple[Records, Records]:
    """Training and test images, pixels in [0, 1]."""
    if data not in _FILES:
        raise BadParameter(f"unknown data {data!r}; there are {', '.join(_FILES)}")
    if folder is None:
        raise BadData(f"the data set {data} is read from a folder: name one that holds {_FILES[data]} with --folder")
    path = folder / _FILES[data]
    if not path.exists():
        raise BadData(f"the data set {data} is not here: there is no file {path}")
    try:
        with np.load(path) as stored:
            parts = [
                Records(stored[f"x_{part}"].reshape(-1, SIDE * SIDE) / 255, stored[f"y_{part}"].astype(np.int64))
                for part in ("train", "test")
            ]
    except (OSError, ValueError, KeyError) as error:
        raise BadData(f"the file {path} is not the data set {data}: it cannot be read") from error
    return parts[0], parts[1]


def shared_out(images: Records, records: int, seed: int) -> list[Records]:
    """Images of ten clients, drawn without replacement."""
    chosen = np.random.default_rng(seed).permutation(len(images.y))[: CLIENTS * records].reshape(CLIENTS, records)
    return [Records(images.x[each], images.y[each]) for each in chosen]


def median_distance(images: Records, pairs: int = 1500) -> float:
    """Median distance of two random images, from `pairs` pairs."""
    chosen = np.random.default_rng(0).permutation(len(images.y))[: 2 * pairs]
    apart = images.x[chosen[:pairs]] - images.x[chosen[pairs : 2 * pairs]]
    return float(np.median(np.linalg.norm(apart, axis=1)))


def accuracy(
    method: str, clients: list[Records], test: Records, width: int, seed: int, epochs: int | None = None
) -> float:
    """Accuracy of one method as published, or without noise."""
    records = len(clients[0].y)
    epochs = epochs or EPOCHS.get(records, 12)
    if method == AGGREGATED:
        return aggregated(clients, test, width, seed)
    if method in REDUCED:
        noise = methods.published_noise() if method == "DC-DP" else 0.0
        return methods.collaboration_accuracy(clients, test, width, seed, noise, epochs)
    if method == "FL":
        weights = methods.federated(clients, seed)
    elif method == "FL-DP":
        noise = methods.federated_noise(methods.EPSILON, methods.DELTA, records)
        weights = methods.federated(clients, seed, noise=noise, clip=CLIP)
    else:
        own = clients[0] if method == "individual" else Records.joined(clients)
        epochs *= 3 if method == "individual" else 1
        weights = perceptron.start(own.x.shape[1], 10, seed, normal=True)
        weights = perceptron.train(own.x, own.y, epochs=epochs, seed=seed, weights=weights)
    return perceptron.accuracy(weights, test.x, test.y)


def aggregated(clients: list[Records], test: Records, width: int, seed: int, epsilon: float = OUR_EPSILON) -> float:
    """Accuracy of DP-SGD on the records that a trusted server has aggregated by Data Collaboration. Test records are
    mapped by the first site."""
    joint = methods.collaborate(clients, width, seed)
    rows = np.vstack([joint.aligned(at, each) for at, each in enumerate(joint.published)])
    labels = Records.joined(clients).y
    # A client of few records has fewer components.
    ends = np.full(rows.shape[1], _SGD_RANGE)
    program = NeuralClassifierProgram(
        columns=(*(f"z{i}" for i in range(rows.shape[1])), "class"),
        lower=-ends,
        upper=ends,
        classes=tuple(map(float, range(10))),
        center=0 * ends,
        scale=np.ones_like(ends),
        hidden=_SGD_HIDDEN,
        rate=_SGD_RATE,
        steps=_SGD_STEPS,
        start=seed,
    )
    rehearsal = Rehearsal(program, len(labels), len(clients), epsilon, OUR_DELTA, scheme="pooled")
    estimate = rehearsal.run(Units(np.column_stack([rows, labels])), seed)
    chances = program.probabilities(np.asarray(estimate["weights"]), joint.returned(0, test.x))
    return float(np.mean(chances.argmax(axis=1) == test.y))


def ours(
    method: str,
    clients: list[Records],
    test: Records,
    epsilon: float,
    seed: int,
    features: dict[str, Any] | None = None,
    scheme: str = "secure-sum",
) -> float:
    """Accuracy of Zerosum's programs, simulated with their planned noise. One of ten sites colludes."""
    joined, settings = Records.joined(clients), features or FEATURES
    classes = tuple(map(float, range(10)))
    kind = DataCollaborationProgram if method == "rigorous DC" else FeatureClassifierProgram
    program = kind(columns=(*(f"p{i}" for i in range(SIDE * SIDE)), "class"), classes=classes, features=settings)
    units = Units(np.column_stack([255 * joined.x, joined.y]).astype(np.float32))
    estimate = Rehearsal(program, len(joined.y), len(clients), epsilon, OUR_DELTA, scheme=scheme).run(units, seed)
    z: Floats = np.asarray(program.feature_map(255 * test.x), dtype=np.float64) - estimate["center"].value
    z = z @ estimate["projection"].value
    # The programs train on directions of norm 1.
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-30)
    weights = estimate["weights"].value
    constant = weights[-1] if method == "rigorous DC" else BIAS * weights[-1]
    return float(np.mean(np.argmax(z @ weights[:-1] + constant, axis=1) == test.y))


def _worth(method: str, records: int, distance: float) -> tuple[float, float]:
    """Nominal epsilon, and the exact epsilon for a whole record."""
    if method == "DC-DP":
        return methods.EPSILON, methods.record_epsilon(distance)
    if method == "FL-DP":
        return methods.EPSILON, methods.federated_epsilons(methods.EPSILON, methods.DELTA, records)[1]
    if method == AGGREGATED:
        return OUR_EPSILON, float("inf")
    return (OUR_EPSILON, OUR_EPSILON) if method in OURS else (float("inf"), float("inf"))


def carry(run: Run) -> Table:
    """Accuracy of every method on test images. Quick runs have three widths and one seed."""
    runs = run_count(run.seeds, FULL_SEEDS if run.full else QUICK_SEEDS)
    images, test = load(run.data, run.folder)
    if not run.full:
        test = Records(test.x[:2000], test.y[:2000])
    distance = median_distance(images)
    widths = WIDTHS if run.full else (10, 50, 100)
    points = [(method, width) for method in REDUCED for width in widths]
    points += [(method, 0) for method in (*TRAVELLING, *OURS)]
    planned = [(records, *point) for records in (100, 1000) for point in points]
    rows: Table = []
    run.on_step(0, len(planned))
    for done, (records, method, width) in enumerate(planned, 1):
        nominal, exact = _worth(method, records, distance)
        for seed in range(runs):
            clients = shared_out(images, records, seed)
            share = (
                ours(method, clients, test, OUR_EPSILON, seed)
                if method in OURS
                else accuracy(method, clients, test, width, seed)
            )
            row: Row = {"method": method, "records": records, "components": width, "epsilon": nominal}
            row |= {"record_epsilon": exact, "paper": paper(run.data, method, records, width)}
            rows.append(row | {"seed": seed, "accuracy": 100 * share})
        run.on_step(done, len(planned))
    return rows


def summary(rows: Table) -> Table:
    """Means over seeds; "-" for values that the paper does not have."""
    # NaN > 0 is false.
    shown = [row | {"paper": row["paper"] if float(row["paper"]) > 0 else "-"} for row in rows]
    return averages(shown, ["accuracy"])


# Method to colour.
_COLOURS = {
    "DC": "#5aa9e6",
    "DC-DP": "#d9843b",
    AGGREGATED: "#b5a000",
    "FL": "#8057b8",
    "FL-DP": "#c0504d",
    "individual": "#9aa3ab",
    "centralized": "black",
    "rigorous DC": "#3f8f4f",
    "private sum": "#0b7a75",
}


def draw(rows: Table, path: Path) -> None:
    """One panel each for 100 and 1000 records per client: Data Collaboration against its width, other methods as
    lines."""
    lines = summary(rows)
    figure, panels = subplots(1, 2, figsize=(13, 6.8), sharey=True)
    for axes, records in zip(panels, (100, 1000), strict=True):
        for method, colour in _COLOURS.items():
            shown = [line for line in lines if (line["method"], line["records"]) == (method, records)]
            if not shown:
                continue
            worth = float(shown[0]["record_epsilon"])
            label = method if np.isinf(worth) else f"{method}: ε = {worth:.3g} for a record"
            if method == AGGREGATED:
                label = f"{method}: ε = {OUR_EPSILON:.3g} for an aligned record"
            if method in REDUCED:
                curve(axes, shown, "components", "accuracy", label=label, colour=colour, bold=False)
            else:
                style = {"lw": 2.5 if method == "private sum" else 1.2, "ls": "-" if method in OURS else "--"}
                axes.axhline(float(shown[0]["accuracy"]), color=colour, label=label, **style)
        axes.set_title(f"{records} records a client", loc="left", fontsize=11)
        axes.set_xlabel("components of Data Collaboration")
        axes.grid(color="#e5e8eb")
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    panels[0].set_ylabel("accuracy on test images, %")
    figure.savefig(path, dpi=120)


# Heading to column of the printed table.
_SHOWN = {
    "method": "method",
    "records": "records",
    "components": "components",
    "nominal eps": "epsilon",
    "record's eps": "record_epsilon",
    "paper": "paper",
    "accuracy": "accuracy",
    **SHOWN_SPREAD,
}


EXPERIMENTS = tuple(
    Experiment(name=f"dc-{name}", carry=carry, draw=draw, summary=summary, shown=_SHOWN, data=(name,))
    for name in _FILES
)
